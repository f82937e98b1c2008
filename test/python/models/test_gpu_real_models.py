# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SmolLM2 and Gemma 3 on an emulated GPU: a prompt, and a step of decoding after it, against the CPU's logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cuda_harness import emulated_device

from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.session import Session

TEXT = "The capital of France is Paris, and that of Italy is"
SIZES = {"context": 64, "chunk": 16}

pytestmark = pytest.mark.slow  # the emulator runs some 10,000 times as long as a GPU


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    return wide - np.logaddexp.reduce(wide)


def logits_of(model: Model, ids: list[int]) -> list[np.ndarray]:
    """Those after all tokens but the last, by a prompt where they are several, and after the last by decoding."""
    session = Session(model)
    first = session.prefill(ids[:-1]) if len(ids) > 2 else session.decode(ids[0])
    return [first.copy(), session.decode(ids[-1]).copy()]


def check(got: np.ndarray, wanted: np.ndarray, limit: float) -> None:
    """Where products round their operands to 8 bits, other orders of sums change some of them, and layers amplify that:
    the CPU's own prompts and steps of decoding differ as much."""
    p, q = log_probabilities(wanted), log_probabilities(got)
    assert (np.exp(p) * (p - q)).sum() < limit
    assert got.argmax() == wanted.argmax()


@pytest.mark.parametrize(
    ("name", "activations", "chip", "prompt", "limit"),
    [
        ("smollm2", "int8", "sm_90a", 1, 1e-6),
        ("smollm2", "int8", "sm_90a", 10, 5e-3),
        ("smollm2", "exact", "sm_80", 10, 1e-9),
        ("gemma3", "int8", "sm_90a", 1, 1e-6),
        ("gemma3", "exact", "sm_80", 10, 1e-9),
    ],
)
def test_logits_are_those_of_the_cpu(
    request: pytest.FixtureRequest, name: str, activations: str, chip: str, prompt: int, limit: float
) -> None:
    path: Path = request.getfixturevalue(f"{name}_path")
    on_cpu = load_model(path, activations=activations, **SIZES)  # type: ignore[arg-type]
    ids = on_cpu.tokenize(TEXT)[: prompt + 1]
    wanted = logits_of(on_cpu, ids)
    with emulated_device(chip):
        model = load_model(path, activations=activations, target="cuda", cache=False, **SIZES)  # type: ignore[arg-type]
        for got, expected in zip(logits_of(model, ids), wanted, strict=True):
            check(got, expected, limit)
        del model
