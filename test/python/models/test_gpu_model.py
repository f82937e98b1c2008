# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models on an emulated GPU, from the file to the text: the same as on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_models
from cuda_harness import emulated_device

from rlx_mlir.models import compiling
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.session import Session

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


def states_of(session: Session) -> dict[str, np.ndarray]:
    session._settle()
    return {name: np.asarray(array) for name, array in session.states.arrays.items()}


@pytest.mark.parametrize("architecture", ["lfm2", "qwen35", "qwen3next"])
@pytest.mark.slow
def test_states_are_those_of_the_tokens_that_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    """Prompts in pieces, forks, files, and what steps ahead have done that came to nothing."""
    monkeypatch.setattr(compiling, "CANDIDATES", 4)
    path = tiny_models.write(tmp_path / "tiny.gguf", architecture=architecture)
    sizes = {**SIZES, "activations": "exact"}
    on_cpu = load_model(path, **sizes)  # type: ignore[arg-type]
    wanted = on_cpu.logits(IDS)
    with emulated_device("sm_90a"):
        model = load_model(path, target="cuda", **sizes)  # type: ignore[arg-type]
        check(model.logits(IDS), wanted, "exact")
        session = model.session()
        session.feed(IDS[:5])
        fork = session.fork()
        answer = iter(session.generate(max_tokens=20, ignore_eos=True, greedy=True))
        next(answer)
        next(answer)
        answer.close()  # type: ignore[attr-defined]
        for token in session.tokens[5:]:
            fork.step(token)
        for (name, own), other in zip(states_of(session).items(), states_of(fork).values(), strict=True):
            np.testing.assert_array_equal(own, other, err_msg=name)
        session.save(tmp_path / "session")
        restored = model.restore(tmp_path / "session")
        np.testing.assert_array_equal(restored.step(9), session.step(9))
        # A prompt goes on behind its last whole chunk, where another one begins alike.
        for behind in ([3], [4]):
            ids = IDS[:17] + behind
            task = model.generate(ids, max_tokens=2, ignore_eos=True, greedy=True)
            task.read()
            assert task.ids[0] == int(on_cpu.logits(ids)[-1].argmax())
        assert task.stats.reused_tokens == 16
        del model, session, fork, restored, answer, task
