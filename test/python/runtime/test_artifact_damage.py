# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Artefacts whose description was changed and signed again: errors, and never the end of the process."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifact_mutations import signed
from compile_harness import compile_fresh
from descriptions import Change, set_at

from rlx_mlir import Artifact, Executable, GraphModule, formats
from rlx_mlir.errors import CacheError, ExecutionError, InputError

MUTATIONS = 400


def rows() -> GraphModule:
    """A packed table, a product, and rows twice, of which there may be any number."""
    m = GraphModule.hir("rows")
    x, ids = m.input("x", ["rows", 8]), m.input("ids", ["rows"], "i32")
    w, table = m.param("w", [8, 32]), m.param("table", [5, 32], packed="q8_0")
    m.set_outputs({"y": m.silu(m.mm(x, w)) + m.gather(table, ids), "z": m.concat([x, x], axis=0)})
    return m


def caches() -> GraphModule:
    """A cache that is written where positions say, and reduced."""
    m = GraphModule.hir("caches")
    cache, new, pos = m.input("cache", ["b", 16, 4]), m.input("new", ["b", "s", 4]), m.input("pos", ["b"], "i32")
    updated = m.cache_update(cache, new, pos)
    m.set_outputs({"cache_out": updated, "sum": m.sum(updated, 1)})
    return m


def of_rows(count: int) -> dict[str, Any]:
    rng = np.random.default_rng(count)
    return {"x": rng.standard_normal((count, 8)).astype(np.float32), "ids": rng.integers(0, 5, count).astype(np.int32)}


def of_caches(b: int, s: int) -> dict[str, Any]:
    rng = np.random.default_rng(b)
    cache, new = (rng.standard_normal((b, size, 4)).astype(np.float32) for size in (16, s))
    return {"cache": cache, "new": new, "pos": (np.arange(b) % (17 - s)).astype(np.int32)}


Case = tuple[bytes, dict[str, Any], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Artefacts as files, parameters, and the inputs of calls."""
    rng = np.random.default_rng(0)
    table = formats.encode("q8_0", rng.standard_normal((5, 32)).astype(np.float32))
    params = {"w": rng.standard_normal((8, 32)).astype(np.float32), "table": table}
    first = compile_fresh(rows(), maxima={"rows": 64}).artifact.to_bytes()
    second = compile_fresh(caches(), maxima={"b": 4, "s": 16}).artifact.to_bytes()
    return [
        (first, params, [of_rows(count) for count in (3, 64, 1, 0)]),
        (second, {}, [of_caches(b, s) for b, s in ((2, 3), (4, 16), (1, 1))]),
    ]


def test_changed_descriptions_are_errors(cases: list[Case], tmp_path: Path) -> None:
    (tmp_path / "cases.pickle").write_bytes(pickle.dumps(cases))
    program = Path(__file__).parents[1] / "harness" / "artifact_mutations.py"
    command = [sys.executable, str(program), str(tmp_path), "0", str(MUTATIONS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"after seed {done.stdout.split()[-1:]}: {done.stderr[-2000:]}"
    outcomes = done.stdout.splitlines()[1::2]
    assert len(outcomes) == MUTATIONS
    refused = sum(outcome != "ran" for outcome in outcomes)
    assert refused > MUTATIONS // 2, "the changes change nothing"


def in_call(number: int, **parts: Any) -> Change:
    """Changes a call: its buffers or dims."""

    def change(description: dict[str, Any]) -> None:
        for part, value in parts.items():
            description["calls"][number][{"kernel": 0, "buffers": 1, "dims": 2}[part]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (in_call(0, dims=[]), "its kernel takes 5 dims, but got 0"),
        (in_call(0, buffers=[["input", 0, 0]]), "its kernel takes 4 buffers, but got 1"),
        (in_call(0, dims=[[[2, [0]]]] * 5), r"call 0 \(cache_update_0\): buffer 0 needs 2048 bytes .* there are 1024"),
        (in_call(1, dims=[[[1, [0]]], [[1, []]]]), r"call 1 \(reduce_0\): its dims don't fit each other"),
        (set_at("inputs", 1, "sizes", 1, to=[[1, [0]]]), "input 'new' has the shape .*, but the sizes"),
        (set_at("inputs", 0, "shape", 1, to=15), "input 'cache' has the shape .*, but the sizes"),
        (set_at("outputs", 0, "tied", to="new"), "'cache_out' is tied to 'new', which has another size"),
        (set_at("positions", 0, "count", to=["9*b", [[9, [0]]]]), "there are 36 positions in 16 bytes"),
        (set_at("outputs", 1, "dtype", to="f99"), "'sum' has the element type 'f99'"),
        (set_at("conditions", to=[{}]), "the artefact's description can't be read"),
    ],
)
def test_what_does_not_fit_is_named(cases: list[Case], change: Change, message: str) -> None:
    def apply(description: dict[str, Any]) -> dict[str, Any]:
        change(description)
        return description

    def use() -> None:
        executable = Executable(Artifact.from_bytes(signed(cases[1][0], apply)), threads=1)
        executable.set_params({})
        executable.run(of_caches(2, 3))

    with pytest.raises((CacheError, ExecutionError, InputError), match=message):
        use()


def test_prepared_parameters_have_the_size_that_is_read(cases: list[Case]) -> None:
    data, params, _ = cases[0]

    def apply(description: dict[str, Any]) -> dict[str, Any]:
        steps = description["preparation"]["steps"]
        assert steps, "the product's weight is packed"
        description["preparation"]["results"][0][1] = 0
        return description

    executable = Executable(Artifact.from_bytes(signed(data, apply)), threads=1)
    with pytest.raises(ExecutionError, match=re.compile("once it is prepared, but the plan reads")):
        executable.set_params(params)
