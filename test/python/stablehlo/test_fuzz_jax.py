# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Some of the functions that `test/fuzz_jax.py` draws; a night has more."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("first", [0, 10, 20, 30, 40])
@pytest.mark.quick(1)
def test_functions(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "test"))
    import fuzz_jax

    found = {number: fuzz_jax.problem(1, number) for number in range(first, first + 10)}
    assert not {number: text for number, text in found.items() if text}
