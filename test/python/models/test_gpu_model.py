# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models on an emulated GPU, from the file to the text: the same as on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_models
from cuda_harness import emulated_device

from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 21)]
SIZES = {"context": 32, "chunk": 16, "cache": False}


def text_of(model: Model, **options: object) -> str:
    return model.generate(IDS[:6], max_tokens=5, ignore_eos=True, **options).read()  # type: ignore[arg-type]


def check(got: np.ndarray, wanted: np.ndarray, activations: str) -> None:
    """Equal to rounding; where activations are rounded to 8 bits, a sum's last bit may be one of these.

    From there on all later positions differ, which read the keys and values of that one: KL is small.
    """
    equal = len(got) if activations == "exact" else 1
    limit = 2e-4 * np.abs(wanted).max()
    np.testing.assert_allclose(got[:equal], wanted[:equal], rtol=2e-4, atol=limit)
    p, q = (x - np.log(np.exp(x.astype(np.float64)).sum(-1, keepdims=True)) for x in (wanted, got))
    assert (np.exp(p) * (p - q)).sum(-1).mean() < 1e-4


@pytest.mark.parametrize(
    ("architecture", "activations", "chip"),
    [
        ("llama", "int8", "sm_90a"),
        pytest.param("llama", "exact", "sm_80", marks=pytest.mark.slow),
        pytest.param("llama", "exact", "sm_90a", marks=pytest.mark.slow),
        pytest.param("gemma3", "int8", "sm_90a", marks=pytest.mark.slow),
        pytest.param("gemma3", "exact", "sm_90a", marks=pytest.mark.slow),
        pytest.param("qwen3", "int8", "sm_80", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_model_gives_what_it_gives_on_the_cpu(tmp_path: Path, architecture: str, activations: str, chip: str) -> None:
    path = tiny_models.write(tmp_path / "tiny.gguf", architecture=architecture)
    on_cpu = load_model(path, activations=activations, **SIZES)  # type: ignore[arg-type]
    wanted = on_cpu.logits(IDS)
    with emulated_device(chip):
        model = load_model(path, activations=activations, target="cuda", **SIZES)  # type: ignore[arg-type]
        for program in (model.programs.prefill, model.programs.decode):
            kernels = program.artifact.templates  # type: ignore[attr-defined]
            assert not [name for name, own in kernels.items() if own.startswith("generic")], kernels
        check(model.logits(IDS), wanted, activations)
        assert text_of(model, greedy=True) == text_of(on_cpu, greedy=True)
        # Chosen by the GPU among the largest logits, and by the host among all of them.
        for top_k in (20, 0):
            assert text_of(model, top_k=top_k, seed=3) == text_of(on_cpu, top_k=top_k, seed=3)
        kept, made, replayed = model.programs.decode.graph_counts  # type: ignore[attr-defined]
        assert (kept, made) == (3, 3)  # steps that choose come in two directions
        assert replayed >= 9
        del model
