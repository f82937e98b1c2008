# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results of the emulator that are kept: found where nothing changed, and never where something did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import emulated_results
import gpu_emulated
import numpy as np
import pytest

from ptx_emulator import Stats, machine
from rlx_mlir.codegen.gpu.quantize import Quantize, quantize


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for results, which is empty."""
    monkeypatch.setattr(emulated_results, "folder", None)
    monkeypatch.delenv("RLX_TEST_EMULATE", raising=False)
    emulated_results.begin(tmp_path / "kept")
    return tmp_path / "kept"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts that were emulated."""
    texts: list[str] = []
    load = gpu_emulated.load

    def noted(text: str) -> Any:
        texts.append(text)
        return load(text)

    monkeypatch.setattr(gpu_emulated, "load", noted)
    return texts


def run(scale: float = 1.0, element: str = "f32", fill: float = 0.0, profile: bool = True) -> tuple[list[Any], Stats]:
    """Quantises some rows; the results, and what the kernel did."""
    dtype = {"f32": np.float32, "f16": np.float16}[element]
    x = (np.random.default_rng(0).standard_normal((3, 64)) * scale).astype(dtype)
    shapes = (((3, 64), np.int8), ((3, 2), np.float32), ((3, 2), np.int32))
    found = [np.full(shape, fill, dtype) for shape, dtype in shapes]
    kernel = quantize("sm_80", Quantize("p", (None, 64), element, 32))
    stats, launched = gpu_emulated.emulate(kernel, "p", "sm_80", [x], found, profile=profile)
    assert len(launched) == 1
    return found, stats


def test_a_kernel_is_emulated_once(kept: Path, loaded: list[str]) -> None:
    first, counted = run()
    again, told = run()
    assert len(loaded) == 1
    assert [array.tobytes() for array in again] == [array.tobytes() for array in first]
    assert any(array.any() for array in first)
    assert told == counted
    assert told.accesses
    assert told.count("st.global") > 0


@pytest.mark.parametrize("changed", [{"scale": 2.0}, {"element": "f16"}, {"fill": 1.0}, {"profile": False}], ids=str)
def test_what_is_another_run_is_emulated(changed: dict[str, Any], kept: Path, loaded: list[str]) -> None:
    run()
    run(**changed)
    assert len(loaded) == 2


def test_another_emulator_emulates_again(kept: Path, loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    monkeypatch.setattr(machine, "MULTIPROCESSORS", 3)
    run()
    monkeypatch.undo()
    emulated_results.begin(kept)
    monkeypatch.setattr(emulated_results, "_sources", lambda: "others")
    run()
    assert len(list(kept.iterdir())) == 3


def test_sources_count_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for text in ("a = 1\n", "a = 2\n"):
        (tmp_path / "__init__.py").write_text(text)
        monkeypatch.setattr(emulated_results.ptx_emulator, "__file__", str(tmp_path / "__init__.py"))
        digests.add(emulated_results._sources.__wrapped__())
    assert len(digests) == 2


def test_damaged_results_are_none(kept: Path, loaded: list[str]) -> None:
    run()
    (path,) = kept.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    run()
    assert len(loaded) == 2


def test_all_are_emulated_where_that_is_wanted(kept: Path, loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    monkeypatch.setenv("RLX_TEST_EMULATE", "1")
    emulated_results.begin(kept)
    run()
    assert len(loaded) == 2


def test_what_was_used_last_is_kept(kept: Path, loaded: list[str]) -> None:
    run()
    (first,) = kept.iterdir()
    run(scale=2.0)
    (second,) = set(kept.iterdir()) - {first}
    run()  # the first one is used again
    emulated_results.tidy(first.stat().st_size + second.stat().st_size)
    assert set(kept.iterdir()) == {first, second}
    emulated_results.tidy(first.stat().st_size + 10)
    assert list(kept.iterdir()) == [first]


def test_results_outlive_the_memory_they_were_in(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are copies, which nothing overwrites: the emulated memory itself goes when the kernel is done."""
    given: list[np.ndarray] = []
    keep = emulated_results.keep

    def noted(name: str, stats: Stats, arrays: Any) -> None:
        given.extend(arrays)
        keep(name, stats, arrays)

    monkeypatch.setattr(emulated_results, "keep", noted)
    run()
    assert len(given) == 4
    assert all(array.flags.owndata for array in given)
