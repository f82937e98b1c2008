# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The generator for gathers, against the reference, on all targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cpu_harness import TARGETS, compiled

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.cpu import gather
from rlx_mlir.codegen.cpu.gather import AHEAD, LARGE_TABLE, UNIT, configure, emit_gather
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.program import IDENTITY, Program, Step
from rlx_mlir.codegen.specs import GatherSpec
from rlx_mlir.formats import FORMATS, decode, encode, get_format
from rlx_mlir.mir import REFERENCES

DTYPES: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
}
#: Shapes of table and indices, axis, batch_dims.
CASES = {
    "rows": ((20, 33), (7,), 0, 0),
    "rows for each place": ((20, 16), (3, 5), 0, 0),
    "one row": ((9, 40), (), 0, 0),
    "numbers": ((50,), (17,), 0, 0),
    "columns": ((6, 19), (4,), 1, 0),
    "between": ((3, 8, 31), (2, 3), 1, 0),
    "rows of each": ((3, 9, 17), (3, 4), 1, 1),
    "numbers of each": ((3, 2, 30), (3, 2, 11), 2, 2),
    "between of each": ((2, 3, 5, 15), (2, 7), 2, 1),
    "no index": ((4, 5), (0,), 0, 0),
    "no columns": ((4, 0), (3,), 0, 0),
    "many": ((4, 700), (4, UNIT // 4 + 3), 1, 1),
    "many parts": ((UNIT, 3), (2,), 1, 0),
    "numbers of several parts": ((7, 1100), (UNIT // 8 + 3,), 1, 0),
    "numbers of few parts": ((2, 3, 9), (5,), 2, 0),
    "long entries": ((LARGE_TABLE // AHEAD, AHEAD // 4 + 3), (40,), 0, 0),
    "short entries of a large table": ((LARGE_TABLE // 64, 19), (77,), 0, 0),
    "all numbers of each part": ((5, 67), (131,), 1, 0),
}


def compared(case: tuple[Any, ...], dtype: str, target: Target, dynamic: bool, indices_of: Any = np.int32) -> None:
    table_shape, indices_shape, axis, batch_dims = case
    rng = np.random.default_rng(len(table_shape))
    table = (rng.standard_normal(table_shape) * 50).astype(DTYPES[dtype])
    indices = rng.integers(0, table_shape[axis], indices_shape).astype(indices_of)
    if indices_of is np.float32:
        indices += np.float32(0.75)
    for place, outside in zip(range(min(indices.size, 3)), (table_shape[axis] + 1, -2, np.nan), strict=False):
        indices.flat[place] = 0 if np.isnan(outside) and indices_of is not np.float32 else outside
    wanted = REFERENCES["mir.gather"](table, indices, axis=axis, batch_dims=batch_dims)
    word = {np.int32: "i32", np.int64: "i64", np.float32: "f32"}[indices_of]
    types = [
        memref([None] * array.ndim if dynamic else array.shape, element)
        for array, element in ((table, dtype), (indices, word), (wanted, dtype))
    ]
    spec = GatherSpec(types[0], types[1], (), (types[2],), axis, batch_dims, (0, 1), IDENTITY)
    kernel = compiled("k", emit_gather("k", configure("k", spec, target), target))
    for cuts in (None, [1, 3]):
        (found,) = kernel([table, indices], [wanted], cuts)
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick(13)
def test_shapes(case: str, dynamic: bool) -> None:
    for target in TARGETS.values():
        compared(CASES[case], "f32", target, dynamic)


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_of_tables(dtype: str) -> None:
    for case in ("rows", "numbers of each"):
        compared(CASES[case], dtype, TARGETS[512], False)


@pytest.mark.parametrize("indices", [np.int64, np.float32])
def test_types_of_indices(indices: Any) -> None:
    compared(CASES["rows of each"], "f32", TARGETS[256], True, indices)


@pytest.mark.parametrize("columns", [1024, 1025, 1039])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
def test_large_results_pass_by_the_caches(dtype: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Entries begin anywhere between two multiples of a vector's bytes.
    table = memref((9, columns), dtype)
    spec = GatherSpec(table, memref((None,), "i32"), (), (memref((None, columns), dtype),), 0, 0, (0, 1), IDENTITY)
    monkeypatch.setattr(gather, "STREAMED", 1 << 15)
    for target in TARGETS.values():
        assert "nontemporal" in emit_gather("k", spec, target)
        assert "nontemporal" not in emit_gather("k", spec, replace(target, triple="aarch64-unknown-linux-gnu"))
        compared(((9, columns), (24,), 0, 0), dtype, target, dynamic=False)


def test_what_has_no_template() -> None:
    for element in ("complex<f32>", "i1"):
        spec = GatherSpec(memref((4, 8), element), "memref<3xi32>", (), ("",), 0, 0, (0, 1), IDENTITY)
        with pytest.raises(UnsupportedByTemplate, match=f"gathers of {element.split('<')[0]}"):
            configure("k", spec, TARGETS[512])
    program = Program((Step("neg", (("acc", 0),)),))
    spec = GatherSpec("memref<4x20xf32>", "memref<3xi32>", (), ("memref<3x20xf32>",), 0, 0, (0, 1), program)
    with pytest.raises(UnsupportedByTemplate, match="operations on entries"):
        configure("k", spec, TARGETS[512])


# -- packed tables -----------------------------------------------------------------------------------------------------


def packed_spec(scheme: str, k: int, rows: int, count: int, dtype: str = "f32", layout: str = "rows") -> GatherSpec:
    table = memref([rows, get_format(scheme).row_bytes(k)], "i8")
    result = memref([count, k], dtype)
    packed = {"scheme": scheme, "layout": layout, "k": k}
    return GatherSpec(table, memref([count], "i32"), (), (result,), 0, 0, (0, 1), IDENTITY, **packed)


def decoded(scheme: str, target: Target, blocks: int, dtype: str = "f32") -> None:
    """Compares decoded rows with the reference's, bit for bit, whole and cut; indices beyond the table are clamped."""
    fmt = get_format(scheme)
    k = blocks * (fmt.block if fmt.dense is None else 16)
    rng = np.random.default_rng(blocks)
    table = encode(scheme, (rng.standard_normal((9, k)) * 3).astype(np.float32)).view(np.int8)
    indices = np.array([8, 0, -1, 3, 99], np.int32)
    wanted = decode(scheme, table.view(np.uint8), k)[np.clip(indices, 0, 8)].astype(DTYPES[dtype])
    spec = packed_spec(scheme, k, 9, 5, dtype)
    kernel = compiled("k", emit_gather("k", configure("k", spec, target), target))
    for cuts in (None, [1, 3]):
        (found,) = kernel([table, indices], [wanted], cuts)
        assert found.tobytes() == wanted.tobytes()


PLAIN = [fmt.name for fmt in FORMATS.values() if fmt.encodable and (fmt.dense is not None or fmt.is_plain)]


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("scheme", PLAIN)
@pytest.mark.quick(6)
def test_packed_rows(scheme: str, bits: int) -> None:
    decoded(scheme, TARGETS[bits], 1)
    decoded(scheme, TARGETS[bits], 3)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_packed_rows_are_rounded_once(dtype: str) -> None:
    for target in TARGETS.values():
        decoded("q4_1", target, 2, dtype)


def test_packed_rows_without_a_template() -> None:
    for spec, what in (
        (packed_spec("q4_1", 64, 9, 5, layout="panels"), "a table in panels with rows of 64 elements"),
        (packed_spec("f16", 17, 9, 5), "a table in rows with rows of 17 elements"),
        (packed_spec("iq4_nl", 64, 9, 5), "iq4_nl isn't of integers in planes"),
    ):
        with pytest.raises(UnsupportedByTemplate, match=what):
            configure("k", spec, TARGETS[512])
