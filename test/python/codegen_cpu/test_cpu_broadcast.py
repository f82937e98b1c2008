# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The generator for element-wise operations that aren't on rows, against numpy, on all targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from covering import products
from cpu_harness import TARGETS, compiled

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.broadcast import UNIT, configure_broadcast, emit_broadcast
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import BroadcastSpec, BroadcastStep
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.mir.elementwise import cast

WORDS = ("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32")
Dims = tuple[Any, ...]
#: Sizes of symbols: none, one, odd, vectors and their neighbours, and units and theirs.
SIZES = ((0, 3), (3, 0), (1, 1), (3, 7), (2, 16), (5, 33), (2, 65), (1, UNIT // 4 + 1), (700, 5))


def type_of(dims: Dims, dtype: str) -> str:
    return memref([None if isinstance(dim, str) else dim for dim in dims], dtype)


def array(dims: Dims, dtype: str, sizes: dict[str, int], seed: int) -> np.ndarray:
    shape = [sizes.get(dim, dim) for dim in dims]
    least = 0 if dtype.startswith("u") else -3
    return np.random.default_rng(seed).integers(least, 4, shape).astype(DTYPES[dtype])


def run(spec: BroadcastSpec, target: Target, given: list[np.ndarray], wanted: list[np.ndarray], where: str) -> None:
    """Compares results with those wanted, bit for bit, whole and cut."""
    kernel = compiled("k", emit_broadcast("k", configure_broadcast("k", spec, target), target))
    for cuts in (None, [1, 3]):
        for found, own in zip(kernel(given, wanted, cuts), wanted, strict=True):
            assert found.tobytes() == own.tobytes(), where


@pytest.mark.parametrize(
    ("case", "dtype", "bits"),
    products(
        [
            ((3, 1, 8), (4, 1), (3, 4, 8)),
            (("a", "b"), ("a", 1), ("a", "b")),
            (("a", "b"), ("b",), ("a", "b")),
            (("a", "b"), (), ("a", "b")),
            ((1, "b", 5), ("a", "b", 1), ("a", "b", 5)),
            (("a", 1, "b"), (1, "b"), ("a", 1, "b")),
            (("a", 1, 1, "b"), (2, "b", 1), ("a", 2, "b", "b")),
            ((7, 40), (7, 1), (7, 40)),
            ((), (), ()),
        ],
        list(WORDS),
        sorted(TARGETS),
        meeting=1,
    ),
)
@pytest.mark.quick(11)
def test_every_way_to_broadcast(case: tuple[Any, ...], dtype: str, bits: int) -> None:
    """A comparison, a choice by it, and a sum: where(x < y, x + y, x), and what it was chosen by."""
    x, y, result = case
    steps = (
        BroadcastStep("compare", "lt", (0, 1), "i1"),
        BroadcastStep("add", "add", (0, 1), dtype),
        BroadcastStep("where", "where", (2, 3, 0), dtype),
    )
    spec = BroadcastSpec((type_of(x, dtype), type_of(y, dtype)), type_of(result, dtype), steps, (0, 2))
    for a, b in SIZES:
        left, right = array(x, dtype, {"a": a, "b": b}, 1), array(y, dtype, {"a": a, "b": b}, 2)
        total = left + right
        less = np.broadcast_to(left < right, total.shape)
        wanted = [np.ascontiguousarray(less), np.where(left < right, total, left).astype(DTYPES[dtype])]
        run(spec, TARGETS[bits], [left, right], wanted, f"{a}, {b}")


@pytest.mark.parametrize("kind", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "ui8", "i1"])
@pytest.mark.quick(9)
def test_comparisons_are_bytes(kind: str, dtype: str) -> None:
    """With NaN only `ne` is true; numbers without sign are larger than those with their first bit clear."""
    spec = BroadcastSpec(
        (type_of((5, 12), dtype),) * 2, type_of((5, 12), "i1"), (BroadcastStep("compare", kind, (0, 1), "i1"),)
    )
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 250, (5, 12)) % 5 * 51 for _ in range(2))
    x, y = (v.astype(DTYPES[dtype]) for v in (x, y))
    if "f" in dtype:
        x[0, :3] = np.nan
    functions = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}
    function = {**functions, "gt": np.greater, "ge": np.greater_equal}[kind]
    for target in TARGETS.values():
        with np.errstate(invalid="ignore"):
            run(spec, target, [x, y], [function(x, y)], str(target.vector_bits))


#: Numbers that are hard to convert: halfway between two, at the ends of ranges, subnormal, no numbers.
HARD = [0.0, 0.5, 1.5, 2.5, 126.5, 127.5, 128.0, 128.5, 129.0, 239.9, 255.5, 256.0, 448.0, 464.0, 65519.0, 65520.0]
HARD += [2.0**-6, 2.0**-7, 1.5 * 2.0**-9, 2.0**-10, 3 * 2.0**-11, 2.0**-17, 6e-8, 257.0, 1 + 2.0**-8]
HARD += [1 + 2.0**-8 + 2.0**-40, 65535.5, 65536.0, 2.0**31 - 1, 2.0**31, 2.0**32 - 1, 2.0**32, 2.0**63]
HARD += [3.4e38, 1e39, 1e300, np.inf, np.nan]
WHOLE = [0, 1, -1, 127, 128, -128, -129, 255, 256, 257, 259, 32767, 32768, 65535, 65537, 2**24 + 1, 2**31 - 1, 2**31]
WHOLE += [-(2**31), 2**32 - 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**40 + 2**32 + 1]
CONVERTED = {word: DTYPES[word] for word in (*WORDS, "i1", "f8E4M3FN", "f8E5M2")}


def hard(source: str) -> np.ndarray:
    """Numbers of a type, [n, 8]."""
    dtype = CONVERTED[source]
    if np.dtype(dtype).itemsize == 1 and source != "i1":
        x = np.arange(256).astype(np.uint8).view(dtype)
    elif source.startswith(("i", "u")):
        x = np.array(WHOLE * 2).astype(np.int64).astype(dtype)
    else:
        some = np.random.default_rng(0).standard_normal(180) * 300
        x = np.array([*HARD, *(-h for h in HARD), *some]).astype(dtype)
    return x[: len(x) // 8 * 8].reshape(-1, 8)


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("source", CONVERTED)
@pytest.mark.quick(14)
def test_every_conversion(source: str, bits: int) -> None:
    """Bit for bit what the reference gives, but for the bits of NaNs; of vectors, and of one number for each row."""
    with np.errstate(all="ignore"):
        converted(source, TARGETS[bits])


def converted(source: str, target: Target) -> None:
    x = hard(source)
    for result, wanted_type in CONVERTED.items():
        if result == source:
            continue
        step = BroadcastStep("cast", "cast", (0,), result)
        own = BroadcastSpec((type_of(("n", 8), source),), type_of(("n", 8), result), (step,))
        repeated = BroadcastSpec(
            (type_of(("n", 1), source), type_of((1, 2), result)),
            type_of(("n", 2), result),
            (BroadcastStep("cast", "cast", (0,), result), BroadcastStep("where", "where", (0.0, 1, 2), result)),
        )
        wanted = cast(x, result_dtype=np.dtype(wanted_type))
        kernel = compiled("k", emit_broadcast("k", configure_broadcast("k", own, target), target))
        (got,) = kernel([x], [wanted], [1])
        kernel = compiled("k", emit_broadcast("k", configure_broadcast("k", repeated, target), target))
        numbers = x.reshape(-1, 1)
        (pairs,) = kernel([numbers, np.zeros((1, 2), wanted_type)], [np.repeat(wanted.reshape(-1, 1), 2, 1)])
        for found in (got, pairs[:, :1].reshape(x.shape), pairs[:, 1:].reshape(x.shape)):
            same = (np.ascontiguousarray(found).view(np.uint8) == wanted.view(np.uint8)).reshape(x.size, -1)
            alike = same.all(axis=1).reshape(x.shape)
            alike |= np.isnan(found.astype(np.float64)) & np.isnan(wanted.astype(np.float64))
            assert alike.all(), f"{result}: {x[~alike][:3]} became {found[~alike][:3]}, not {wanted[~alike][:3]}"


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["i32", "i64", "f32", "i8"])
@pytest.mark.quick(4)
def test_positions(axis: int, dtype: str) -> None:
    """Along each axis, with sizes of an operand that isn't read, and beside one that is."""
    dims: Dims = ("a", 3, "b")
    alone = BroadcastSpec(
        (type_of(("b", "a"), "f32"),),
        type_of(dims, dtype),
        # A constant isn't the operand of its number.
        (BroadcastStep("iota", "iota", (), dtype, axis=axis), BroadcastStep("add", "add", (1, 0.0), dtype)),
        sizes=((0, 0, 1), (2, 0, 0)),
    )
    beside = BroadcastSpec(
        (type_of(dims, dtype),),
        type_of(dims, dtype),
        (BroadcastStep("iota", "iota", (), dtype, axis=axis), BroadcastStep("sub", "sub", (0, 1), dtype)),
    )
    for target in TARGETS.values():
        for a, b in SIZES:
            sizes = {"a": a, "b": b}
            line = np.arange((a, 3, b)[axis]).clip(0, 127 if dtype == "i8" else None).astype(DTYPES[dtype])
            wanted = np.broadcast_to(line.reshape([-1 if d == axis else 1 for d in range(3)]), (a, 3, b)).copy()
            run(alone, target, [np.zeros((b, a), np.float32)], [wanted], f"{a}, {b}")
            x = array(dims, dtype, sizes, 1)
            run(beside, target, [x], [x - wanted], f"{a}, {b}")


def test_positions_of_static_sizes() -> None:
    spec = BroadcastSpec((), "memref<4x1x37xi64>", (BroadcastStep("iota", "iota", (), "i64", axis=2),))
    wanted = np.broadcast_to(np.arange(37), (4, 1, 37)).copy()
    for target in TARGETS.values():
        run(spec, target, [], [wanted], "")


@pytest.mark.parametrize("dtype", ["i8", "ui8", "i64", "f64", "bf16", "i1"])
def test_copies_that_repeat(dtype: str) -> None:
    kind = DTYPES[dtype]
    spec = BroadcastSpec(
        (type_of(("a", 1, "b"), dtype), "memref<?xf32>"),
        type_of(("a", "c", "b"), dtype),
        (BroadcastStep("copy", "copy", (0,), dtype),),
        sizes=((1, 1, 0),),
    )
    for target in TARGETS.values():
        for a, b in SIZES[:7]:
            x = np.random.default_rng(0).integers(0, 2, (a, 1, b)).astype(kind)
            run(spec, target, [x, np.zeros(5, np.float32)], [np.repeat(x, 5, 1)], f"{a}, {b}")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_values_between_are_rounded(dtype: str) -> None:
    """(x + y) - y where x is lost beside y, unless values between operations stay wide."""
    type = type_of((20,), dtype)
    for rounds in (True, False):
        steps = (BroadcastStep("add", "add", (0, 1), dtype, rounds), BroadcastStep("sub", "sub", (2, 1), dtype))
        x, y = np.full(20, 2.0**-12).astype(DTYPES[dtype]), np.full(20, 1.0).astype(DTYPES[dtype])
        wanted = np.zeros_like(x) if rounds else x
        for target in TARGETS.values():
            run(BroadcastSpec((type, type), type, steps), target, [x, y], [wanted], str(rounds))


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64", "f64", "ui16"])
@pytest.mark.quick(2)
def test_chains_of_other_types_are_one_kernel(dtype: str) -> None:
    """Integers and f64, on rows too, what conversions follow, and constants whose elements differ."""
    module = GraphModule.mir("chain")
    x, y = module.input("x", ["n", 24], dtype), module.input("y", [24], dtype)
    table = module.constant(np.arange(24).astype(DTYPES[dtype]))
    total = module.where(module.compare("lt", x, y), module.sub(module.mul(x, y), table), y)
    module.set_outputs({"total": total, "halves": module.cast(module.cast(total, "f32"), "bf16")})
    executable = rlx.compile(module, cache=False, threads=1)
    assert set(executable.artifact.templates.values()) == {"broadcast"}
    for n in (0, 1, 5):
        inputs = {"x": array(("n", 24), dtype, {"n": n}, 1), "y": array((24,), dtype, {}, 2)}
        found, wanted = executable.run(inputs), interpret(module, inputs)
        for name, value in wanted.items():
            assert found[name].tobytes() == value.tobytes(), name


def test_threads_change_no_bits() -> None:
    module = GraphModule.mir("mask")
    x, y = module.input("x", ["n", 1, 300]), module.input("y", ["n", 40, 1])
    seen = module.compare("gt", module.sub(x, y), 0.25)
    module.set_outputs({"seen": seen, "chosen": module.where(seen, module.mul(x, y), 0.5)})
    rng, found = np.random.default_rng(0), []
    inputs = {"x": rng.standard_normal((7, 1, 300), np.float32), "y": rng.standard_normal((7, 40, 1), np.float32)}
    for threads in (1, 2):
        executable = rlx.compile(module, cache=False, threads=threads)
        assert set(executable.artifact.templates.values()) == {"broadcast"}
        found.append({name: value.tobytes() for name, value in executable.run(inputs).items()})
    assert found[0] == found[1]
    assert {name: value.tobytes() for name, value in interpret(module, inputs).items()} == found[0]


def test_what_the_template_leaves_out() -> None:
    def spec(op: str, read: str, result: str) -> BroadcastSpec:
        return BroadcastSpec((f"memref<4x{read}>",), f"memref<4x{result}>", (BroadcastStep(op, op, (0,), result),))

    for op, read, result, message in (
        ("neg", "f8E5M2", "f8E5M2", "neg of floats of 8 bits"),
        ("neg", "complex<f32>", "complex<f32>", "elements of complex"),
        ("exp", "i32", "i32", "exp: there is none of"),
        ("not", "f32", "f32", "not: there is none of"),
    ):
        with pytest.raises(UnsupportedByTemplate, match=message):
            emit_broadcast("b", configure_broadcast("b", spec(op, read, result), TARGETS[512]), TARGETS[512])
    lost = BroadcastSpec((), "memref<?xi32>", (BroadcastStep("iota", "iota", (), "i32"),))
    with pytest.raises(UnsupportedByTemplate, match="no operand has the size of dimension 0"):
        emit_broadcast("b", lost, TARGETS[512])
