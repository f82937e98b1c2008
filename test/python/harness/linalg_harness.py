# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs single MIR operations twice, by their references and compiled through linalg, and compares.

Many cases go into one module: LLVM's start dominates the time of small functions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from machine_code import loaded
from mlir.dialects import func

from rlx_mlir import ir, native
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.mir import PackedWeight, evaluate, result_dims
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.numerics import parts
from rlx_mlir.rewriting.steps import run_and_verify

LOWER = (
    "builtin.module(func.func(mir-to-linalg),rlx-strip-signedness,"
    "one-shot-bufferize{bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map},"
    "func.func(rlx-copies-to-linalg,convert-linalg-to-loops),rlx-store-bools-as-bytes,canonicalize,cse,lower-affine,expand-strided-metadata,lower-affine,convert-scf-to-cf,"
    "convert-math-to-llvm,convert-math-to-libm,convert-index-to-llvm,arith-expand{include-bf16=true},"
    "convert-complex-to-llvm,convert-arith-to-llvm,convert-ub-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,"
    "reconcile-unrealized-casts)"
)

BF16 = np.dtype(ml_dtypes.bfloat16)
_WORDS = {
    **{"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "i1"},
    "complex64": "complex<f32>",
}

#: Relative error that the rounding of results allows, and some for a free order of summation.
TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-5, "f64": 1e-12}


FLOATS = [np.dtype(np.float32), np.dtype(np.float16), BF16, np.dtype(np.float64)]


def word(dtype: np.dtype[Any]) -> str:
    """The element type of an array in MLIR."""
    return _WORDS.get(dtype.name, dtype.name.replace("int", "i"))


@dataclass(frozen=True)
class Input:
    """An operand: its value, and which of its dimensions are dynamic in the type."""

    value: np.ndarray | PackedWeight
    dynamic: tuple[int, ...] = ()

    @property
    def array(self) -> np.ndarray:
        return self.value.bytes.view(np.int8) if isinstance(self.value, PackedWeight) else self.value

    @property
    def type(self) -> str:
        sizes = ["?" if dim in self.dynamic else str(size) for dim, size in enumerate(self.array.shape)]
        encoding = ""
        if isinstance(self.value, PackedWeight):
            n = f", n = {self.value.n}" if self.value.layout == "panels" else ""
            layout = f", layout = {self.value.layout}" if self.value.layout != "rows" else ""
            encoding = f", #mir.packed<{self.value.scheme}, k = {self.value.k}{n}{layout}>"
        return f"tensor<{'x'.join([*sizes, word(self.array.dtype)])}{encoding}>"


@dataclass(frozen=True)
class Case:
    """One operation on given operands.

    Attributes:
        name: says what is tested.
        build: makes the operation from its operands.
        inputs: the operands.
        tolerance: relative error allowed; by default that of the result's element type. Integers are exact.
    """

    name: str
    build: Callable[..., Any]
    inputs: tuple[Input, ...]
    tolerance: float | None = None


def case(name: str, build: Callable[..., Any], *inputs: Any, tolerance: float | None = None) -> Case:
    """A case; operands may be given as arrays or packed weights, whose types are static then."""
    return Case(name, build, tuple(x if isinstance(x, Input) else Input(x) for x in inputs), tolerance)


def dyn(value: np.ndarray | PackedWeight, *dims: int) -> Input:
    """An operand with dynamic dimensions; without `dims` all of them are."""
    rank = (value.bytes if isinstance(value, PackedWeight) else value).ndim
    return Input(value, dims or tuple(range(rank)))


def run(cases: Sequence[Case], level: int = 0) -> list[tuple[Case, list[np.ndarray], list[np.ndarray]]]:
    """For each case: what the reference gives, and what the compiled code gives.

    `level` is LLVM's: at 0 code of this size compiles ten times as fast as at 1.
    """
    with ir.new_context(), ir.Location.unknown():
        module = ir.Module.create()
        expected = []
        for number, item in enumerate(cases):
            types = [ir.Type.parse(x.type) for x in item.inputs]
            built: list[Any] = []
            with ir.InsertionPoint(module.body):

                def make(*arguments: Any, item: Case = item, built: list[Any] = built) -> list[Any]:
                    op = item.build(*arguments)
                    built.append(op.owner if isinstance(op, ir.Value) else op.operation)
                    return list(built[0].results)

                func.FuncOp.from_py_func(*types, name=f"f{number}")(make)
            function = module.body.operations[number]
            function.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
            operands = [item.inputs[ir.BlockArgument(operand).arg_number].value for operand in built[0].operands]
            results = evaluate(built[0], operands)
            _check_dims(item, built[0], results)
            expected.append(results)
        run_and_verify(module, LOWER)
        code = loaded(module, level)
        actual = [_call(code, f"f{i}", cases[i], expected[i]) for i in range(len(cases))]
    return list(zip(cases, expected, actual, strict=True))


def _check_dims(item: Case, op: ir.Operation, results: Sequence[np.ndarray]) -> None:
    """Asserts that the rule for symbolic dimensions gives the shapes of the results; equal sizes have one symbol."""
    sizes: dict[str, int] = {}
    operands = []
    for operand in op.operands:
        given = item.inputs[ir.BlockArgument(operand).arg_number]
        dims = [f"s{size}" if dim in given.dynamic else size for dim, size in enumerate(given.array.shape)]
        sizes |= {f"s{size}": size for size in given.array.shape}
        operands.append(tuple(Size.of(dim) for dim in dims))
    try:
        found = result_dims(op.opview, operands)
    except UnsupportedError:
        # Where the rule divides a symbol.
        assert op.name in ("mir.reshape", "mir.fused_swiglu", "mir.rope", "mir.conv"), item.name
        return
    for dims, result, value in zip(found, op.results, results, strict=True):
        if not isinstance(value, PackedWeight):
            assert tuple(dim.evaluate(sizes) for dim in dims) == value.shape, f"{item.name}: {[str(d) for d in dims]}"
        for dim, size in zip(dims, result.type.shape, strict=True):
            assert size < 0 or dim.constant == size, f"{item.name}: {dim} where the type has {size}"


def _call(code: native.ObjectCode, name: str, item: Case, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    keep = [np.ascontiguousarray(x.array).copy() for x in item.inputs]
    words = [3 + 2 * x.ndim for x in like]
    result = (ctypes.c_int64 * sum(words))()
    arguments = [result]
    for array in keep:
        strides = [stride // array.itemsize for stride in array.strides]
        numbers = [array.ctypes.data, array.ctypes.data, 0, *array.shape, *strides]
        arguments.append((ctypes.c_int64 * len(numbers))(*numbers))
    ctypes.CFUNCTYPE(None)(code.lookup(f"_mlir_ciface_{name}"))(*map(ctypes.byref, arguments))
    start, results = 0, []
    for count, expected in zip(words, like, strict=True):
        results.append(_read(list(result[start : start + count]), expected))
        start += count
    return results


def _read(descriptor: list[int], like: np.ndarray) -> np.ndarray:
    """A copy of the array that a memref descriptor describes."""
    _, data, offset, *rest = descriptor
    shape, strides = rest[: like.ndim], rest[like.ndim :]
    if 0 in shape:
        return np.zeros(shape, like.dtype)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    raw = (ctypes.c_uint8 * (extent * like.dtype.itemsize)).from_address(data + offset * like.dtype.itemsize)
    flat = np.frombuffer(raw, like.dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, [s * like.dtype.itemsize for s in strides]).copy()


def check(cases: Sequence[Case], level: int = 0) -> None:
    """Asserts that reference and compiled code agree in every case; lists all that don't."""
    failures = []
    for item, expected, actual in run(cases, level):
        for number, (want, got) in enumerate(zip(expected, actual, strict=True)):
            if message := difference(want, got, item.tolerance):
                failures.append(f"{item.name}, result {number}: {message}")
    assert not failures, "\n".join(failures)


def difference(want: np.ndarray, got: np.ndarray, tolerance: float | None = None) -> str | None:
    """What is wrong with an array, or None."""
    if want.shape != got.shape:
        return f"shape {want.shape} expected, but got {got.shape}"
    want, got = parts(want), parts(got)
    name = word(want.dtype)
    if name not in TOLERANCE:
        return None if np.array_equal(want, got) else f"expected {want.ravel()[:8]}, but got {got.ravel()[:8]}"
    a, b = want.astype(np.float64), got.astype(np.float64)
    allowed = TOLERANCE[name] if tolerance is None else tolerance
    finite = a[np.isfinite(a)]
    scale = max(float(np.abs(finite).max()), 1e-30) if finite.size else 1.0
    # Relative to the element, with a floor for cancellation in sums of larger terms.
    close = np.isclose(b, a, rtol=allowed, atol=allowed * scale * 0.1, equal_nan=True)
    if close.all():
        return None
    where = tuple(int(i[0]) for i in np.nonzero(~close))
    return f"{int((~close).sum())} of {close.size} differ, first at {where}: expected {a[where]}, but got {b[where]}"


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Normally distributed numbers."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def builder(op: Any, **attributes: Any) -> Any:
    """A function that makes an operation from its operands."""
    return lambda *operands: op(*operands, **attributes)
