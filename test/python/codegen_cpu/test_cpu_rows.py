# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The row template against an f64 interpreter of row programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cpu_harness import TARGETS, Kernel, compiled, guarded

from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.rows import emit_rows
from rlx_mlir.codegen.emit import element_of, memref, shape_of
from rlx_mlir.codegen.row_graph import Operand, Result, RowProgram, Step

BITS = sorted(TARGETS)
WIDTHS = [1, 3, 16, 17, 576, 1000]
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


UNARY: dict[str, Any] = {
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "gelu_approx": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * sigmoid(x),
    "sigmoid": sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "neg": np.negative,
    "round": np.round,
    "atan": np.arctan,
    **{name: getattr(np, name) for name in ("tanh", "exp", "log", "sqrt", "abs", "sin", "cos", "tan")},
}
BINARY: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
}
COMPARE: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
REDUCE: dict[str, Any] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}


# -- the interpreter --------------------------------------------------------------------------------------------------


def norm(x: np.ndarray, gamma: Any, beta: Any, eps: float, centre: bool) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True) if centre else x
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return y * (1 if gamma is None else gamma) + (0 if beta is None else beta)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, positions: np.ndarray, attributes: Mapping) -> np.ndarray:
    size = attributes["head_dim"]
    rotated = attributes.get("n_rot") or size
    half = rotated // 2
    heads = x.reshape(len(x), -1, size).copy()
    if attributes.get("style", "half") == "half":
        first, second = slice(0, half), slice(half, rotated)
    else:
        first, second = slice(0, rotated, 2), slice(1, rotated, 2)
    c, s = (table[positions][:, None, :half].astype(np.float64) for table in (cos, sin))
    u, v = heads[..., first].copy(), heads[..., second].copy()
    heads[..., first], heads[..., second] = u * c - v * s, v * c + u * s
    return heads.reshape(x.shape)


class Case:
    """A program with arrays for its operands."""

    def __init__(self, program: RowProgram, arrays: Sequence[np.ndarray], bits: int = 512) -> None:
        self.program, self.bits = program, bits
        self.arrays = dict(zip([operand.name for operand in program.operands], arrays, strict=True))

    def kernel(self) -> Kernel:
        return compiled("k", emit_rows("k", self.program, TARGETS[self.bits]))

    def rows(self, operand: Operand) -> np.ndarray:
        array = self.arrays[operand.name].astype(np.float64)
        return array.reshape(-1, operand.width or (array.shape or (1,))[-1])

    @property
    def space(self) -> Operand:
        rows = [operand for operand in self.program.operands if operand.role == "row"]
        return next(operand for operand in rows if self.program.space in (None, operand.name))

    def batch_and_positions(self, pos: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Batch element and position of every row, from the leading dimensions and the heads in the last one."""
        shape = self.arrays[self.space.name].shape
        width = self.space.width or shape[-1]
        leading = list(shape[:-1]) if shape[-1] >= width else list(shape[:-2])
        axis = len(leading) - 1 if self.program.position_axis is None else self.program.position_axis
        count = self.rows(self.space).shape[0]
        grid = np.indices([*leading, count // max(math.prod(leading), 1)]).reshape(len(leading) + 1, -1)
        s = grid[axis]
        b = grid[0] if axis > 0 else np.zeros_like(s)
        return b, s if pos is None else s + self.arrays[pos][b]

    def values(self) -> dict[str, np.ndarray]:
        rows = self.rows(self.space).shape[0]
        values: dict[str, np.ndarray] = {}
        for operand in self.program.operands:
            if operand.role in ("row", "vector", "scalar"):
                values[operand.name] = self.rows(operand)
            if operand.role == "periodic":
                values[operand.name] = np.resize(self.rows(operand), (rows, self.rows(operand).shape[1]))
        for step in self.program.steps:
            values[step.name] = self.step(step, values)
        return values

    def step(self, step: Step, values: Mapping[str, np.ndarray]) -> np.ndarray:
        a: Mapping[str, Any] = step.attributes
        if step.op == "rope":
            name, cos, sin, *pos = step.operands
            positions = self.batch_and_positions(pos[0] if pos else None)[1]
            return rotate(values[name or ""], self.arrays[cos or ""], self.arrays[sin or ""], positions, a)
        x: list[Any] = [None if name is None else values[name] for name in step.operands]
        if step.op in UNARY:
            return UNARY[step.op](x[0])
        if step.op in BINARY:
            return BINARY[step.op](x[0], x[1])
        if step.op == "where":
            return np.where(x[0], x[1], x[2])
        if step.op == "compare":
            return COMPARE[a["kind"]](x[0], x[1])
        if step.op == "constant":
            return np.full((1, 1), a["value"])
        if step.op == "cast":
            return x[0].astype(np.float32).astype(DTYPES[a["to"]]).astype(np.float64)
        if step.op == "reduce":
            return REDUCE[a["kind"]](x[0], axis=-1, keepdims=True)
        if step.op == "softmax":
            weight = np.exp(x[0] - x[0].max(-1, keepdims=True))
            return weight / weight.sum(-1, keepdims=True)
        if step.op == "narrow":
            return x[0][:, a["start"] : a["start"] + a["length"]]
        if step.op == "fused_swiglu":
            up, gate = np.split(x[0], 2, axis=-1)[:: -1 if a.get("gate_first") else 1]
            return up * gate * sigmoid(gate)
        centre = step.op.endswith("layer_norm")
        if step.op.startswith("fused_residual"):
            bias = 0 if len(x) < 3 or x[2] is None else x[2]
            x = [x[0] + x[1] + bias, *x[3:]]
        gamma, beta = (*x[1:], None, None)[:2]
        return norm(x[0], gamma, beta, a.get("eps", 1e-5), centre)

    def expected(self) -> list[np.ndarray]:
        """The results; one that is a cache update is the whole cache, of which rows outside are left out."""
        values, results = self.values(), []
        rows = self.rows(self.space).shape[0]
        for result in self.program.results:
            value = values[result.value]
            if result.pos is None:
                shape = [size if size is not None else -1 for size in shape_of(result.type)]
                width = result.width or (shape or [1])[-1]
                full = np.broadcast_to(value, (rows, width))
                space = self.arrays[self.space.name].shape
                shape = [space[i] if size < 0 else size for i, size in enumerate(shape)]
                results.append(full.reshape(shape))
                continue
            cache = self.arrays[result.value + "_cache"].astype(np.float64)
            b, p = self.batch_and_positions(result.pos)
            flat = cache.reshape(cache.shape[0], cache.shape[1], -1, value.shape[1])
            seen: dict[tuple[int, int], int] = {}
            for row in range(rows):
                inner = seen.setdefault((b[row], p[row]), 0)
                seen[b[row], p[row]] += 1
                if 0 <= p[row] < cache.shape[1]:
                    flat[b[row], p[row], inner] = value[row]
            results.append(flat.reshape(cache.shape))
        return results

    def outputs(self, expected: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [
            np.zeros(array.shape, DTYPES[element_of(result.type)])
            for array, result in zip(expected, self.program.results, strict=True)
        ]

    def run(self, cuts: Sequence[int] | None = None) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            outputs = self.outputs(self.expected())
        return self.kernel()(list(self.arrays.values()), outputs, cuts)

    def check(self, rtol: float = 2e-5, atol: float = 2e-5) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            expected = self.expected()
        actual = self.run()
        for result, want, got in zip(self.program.results, expected, actual, strict=True):
            half = {"f16": 1e-3, "bf16": 8e-3}.get(element_of(result.type), 0.0)
            np.testing.assert_allclose(got.astype(np.float64), want, rtol + half, atol + half, err_msg=result.name)
        return actual


def normal(*shape: int, dtype: str = "f32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(DTYPES[dtype])


def one(op: str, width: int, *, attributes: Mapping | None = None, vectors: int = 0) -> tuple[RowProgram, list]:
    """A program of one op on x [?, width] and some vectors."""
    operands = [Operand("x", memref([None, width], "f32"))]
    operands += [Operand(f"g{i}", memref([width], "f32"), "vector") for i in range(vectors)]
    step = Step("y", op, tuple(operand.name for operand in operands), attributes or {})
    program = RowProgram(tuple(operands), (step,), (Result("out", memref([None, width], "f32"), "y"),))
    return program, [normal(5, width), *(normal(width, seed=i + 1) for i in range(vectors))]


# -- elementwise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("width", [1, 3, 17, 40])
@pytest.mark.quick(3)
def test_unary(width: int, bits: int) -> None:
    type = memref([None, width], "f32")
    steps = tuple(Step(f"y_{op}", op, ("x",)) for op in UNARY)
    results = tuple(Result(op, type, f"y_{op}") for op in UNARY)
    Case(RowProgram((Operand("x", type),), steps, results), [np.abs(normal(6, width)) + 0.01], bits).check()
    signed = [op for op in UNARY if op not in ("log", "sqrt", "rsqrt")]
    results = tuple(Result(op, type, f"y_{op}") for op in signed)
    Case(RowProgram((Operand("x", type),), steps, results), [3 * normal(6, width)], bits).check(5e-5, 5e-5)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("width", [1, 7, 33])
@pytest.mark.quick(2)
def test_binary_broadcasts(width: int, bits: int) -> None:
    operands = (
        Operand("x", memref([None, None, width], "f32")),
        Operand("row", memref([None, None, width], "f32")),
        Operand("vector", memref([width], "f32"), "vector"),
        Operand("wide_vector", memref([1, 1, width], "f32"), "vector"),
        Operand("number", memref([], "f32"), "scalar"),
        Operand("one", memref([1, 1], "f32"), "scalar"),
        Operand("per_row", memref([None, None, 1], "f32")),
        Operand("reduced", memref([None, None], "f32"), width=1),
        Operand("periodic", memref([3, width], "f32"), "periodic"),
    )
    others = [operand.name for operand in operands[1:]]
    steps = tuple(Step(f"{op}_{name}", op, ("x", name)) for op in BINARY for name in others)
    steps += tuple(Step(f"r{op}_{name}", op, (name, "x")) for op in ("sub", "div") for name in others)
    results = tuple(Result(step.name, memref([None, None, width], "f32"), step.name) for step in steps)
    shapes = [(2, 3, width), (2, 3, width), (width,), (1, 1, width), (), (1, 1), (2, 3, 1), (2, 3), (3, width)]
    arrays = [np.abs(normal(*shape, seed=i)) + 0.1 for i, shape in enumerate(shapes)]
    Case(RowProgram(operands, steps, results), [np.asarray(a, np.float32) for a in arrays], bits).check()


@pytest.mark.parametrize("width", [1, 20])
def test_compare_and_where(width: int) -> None:
    type = memref([None, width], "f32")
    operands = (Operand("x", type), Operand("y", type), Operand("g", memref([width], "f32"), "vector"))
    steps: list[Step] = [Step("zero", "constant", attributes={"value": 0.0})]
    for kind in COMPARE:
        steps.append(Step(f"c_{kind}", "compare", ("x", "y"), {"kind": kind}))
        steps.append(Step(f"w_{kind}", "where", (f"c_{kind}", "x", "g")))
    steps.append(Step("positive", "compare", ("x", "zero"), {"kind": "gt"}))
    steps.append(Step("w_positive", "where", ("positive", "zero", "y")))
    results = tuple(Result(step.name, type, step.name) for step in steps if step.op == "where")
    x, y = normal(4, width), normal(4, width, seed=1)
    y[:2] = x[:2]
    x[1, 0] = np.nan
    Case(RowProgram(operands, tuple(steps), results), [x, y, normal(width)]).check()


def test_nan_and_infinity_keep_their_meaning() -> None:
    type = memref([None, 20], "f32")
    unary = ("relu", "exp", "silu", "sigmoid", "tanh", "abs")
    steps = [Step(op, op, ("x",)) for op in unary] + [Step(op, op, ("x", "y")) for op in ("max", "min")]
    program = RowProgram(
        (Operand("x", type), Operand("y", type)), tuple(steps), tuple(Result(s.name, type, s.name) for s in steps)
    )
    x, y = normal(1, 20), normal(1, 20, seed=1)
    x[0, :5] = np.nan, np.inf, -np.inf, 200, -200
    y[0, 5] = np.nan
    relu, exp, silu, *_ = Case(program, [x, y]).run()
    np.testing.assert_array_equal(relu[0, :5], [np.nan, np.inf, 0, 200, 0])
    np.testing.assert_array_equal(exp[0, :4], [np.nan, np.inf, 0, np.inf])
    np.testing.assert_array_equal(silu[0, [0, 1, 3]], [np.nan, np.inf, 200])
    for got, function in zip(Case(program, [x, y]).run()[6:], (np.maximum, np.minimum), strict=True):
        np.testing.assert_array_equal(got, function(x, y))


# -- norms, softmax, reductions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("op", ["rms_norm", "layer_norm", "softmax"])
@pytest.mark.quick(8)
def test_norms_and_softmax(op: str, width: int, bits: int) -> None:
    vectors = 0 if op == "softmax" else 2 if op == "layer_norm" else 1
    program, arrays = one(op, width, vectors=vectors, attributes={"eps": 1e-3} if vectors else {})
    Case(program, arrays, bits).check()


@pytest.mark.parametrize("op", ["fused_residual_rms_norm", "fused_residual_layer_norm"])
@pytest.mark.parametrize(("bias", "beta"), [(False, False), (True, True), (False, True)])
def test_residual_norms(op: str, bias: bool, beta: bool) -> None:
    width = 133
    type = memref([None, None, width], "f32")
    operands = [Operand("x", type), Operand("residual", type)]
    operands += [Operand(name, memref([width], "f32"), "vector") for name in ("bias", "gamma", "beta")]
    names = ("x", "residual", "bias" if bias else None, "gamma", "beta" if beta else None)
    steps = (Step("y", op, names), Step("total", "add", ("x", "residual")))
    results = (Result("out", type, "y"), Result("sum", type, "total"))
    arrays = [normal(2, 3, width), normal(2, 3, width, seed=1), *(normal(width, seed=i) for i in (2, 3, 4))]
    Case(RowProgram(tuple(operands), steps, results), arrays).check()


def test_layer_norm_of_a_large_offset_keeps_its_digits() -> None:
    program, (x,) = one("layer_norm", 100)
    Case(program, [x + np.float32(1000)]).check(1e-3, 1e-3)


#: Numbers whose multiples aren't all numbers of their type.
CONSTANTS = {"f16": (60000.0, 0.1), "bf16": (3e33, -0.1), "f32": (60001.3, 1e-3, -16777215.0)}


@pytest.mark.parametrize("width", [7, 13, 112, 3584])
@pytest.mark.quick(3)
def test_layer_norm_of_constant_rows_is_zero(width: int) -> None:
    """Whatever the sum loses, and though 1 / width is no number."""
    for element, constants in CONSTANTS.items():
        type = memref([None, width], element)
        # Squares of differences are 0, so that even a tiny eps doesn't divide by 0.
        step = Step("y", "layer_norm", ("x",), {"eps": 1e-30})
        program = RowProgram((Operand("x", type),), (step,), (Result("o", type, "y"),))
        x = np.repeat(np.array([[c] for c in constants]).astype(DTYPES[element]), width, axis=1)
        (got,) = Case(program, [x]).run()
        np.testing.assert_array_equal(got.astype(np.float32), 0)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.quick(8)
def test_reductions(width: int, bits: int) -> None:
    operands = (Operand("x", memref([None, None, width], "f32")),)
    steps = tuple(Step(kind, "reduce", ("x",), {"kind": kind}) for kind in REDUCE)
    results = [Result(kind, memref([None, None, 1], "f32"), kind) for kind in REDUCE]
    results += [Result(f"{kind}_", memref([None, None], "f32"), kind, width=1) for kind in REDUCE]
    x = normal(2, 3, width)
    x[0] = np.sign(x[0]) * (1 + 0.01 * x[0])  # a product that stays in range
    x[1] = np.clip(x[1], 0.9, 1.1)
    Case(RowProgram(operands, steps, tuple(results)), [x], bits).check(2e-4, 2e-4)


@pytest.mark.parametrize("width", [2, 40])
def test_max_and_min_propagate_nan(width: int) -> None:
    operands = (Operand("x", memref([2, width], "f32")),)
    steps = tuple(Step(kind, "reduce", ("x",), {"kind": kind}) for kind in ("max", "min"))
    results = tuple(Result(kind, memref([2, 1], "f32"), kind) for kind in ("max", "min"))
    x = normal(2, width)
    x[0, -1] = np.nan
    for result in Case(RowProgram(operands, steps, results), [x]).check():
        assert np.isnan(result[0, 0])
        assert np.isfinite(result[1, 0])


def test_softmax_of_extreme_rows() -> None:
    program, (x,) = one("softmax", 19)
    x[0, 3] = np.inf
    x[1] = -np.inf
    x[2] = 1e30
    x[3, 4] = -np.inf
    (y,) = Case(program, [x]).run()
    assert np.isnan(y[:2]).all()
    np.testing.assert_allclose(y[2], 1 / 19, rtol=1e-6)
    assert y[3, 4] == 0
    np.testing.assert_allclose(y[3].sum(), 1, rtol=1e-6)


def test_what_a_later_loop_needs_is_kept() -> None:
    """Two reductions over values that are expensive, used before and after, at full and part width."""
    width, type = 50, memref([None, 50], "f32")
    steps = (
        Step("e", "exp", ("x",)),
        Step("m", "reduce", ("e",), {"kind": "mean"}),
        Step("d", "sub", ("e", "m")),
        Step("t", "tanh", ("d",)),
        Step("n", "reduce", ("t",), {"kind": "sum"}),
        Step("u", "mul", ("t", "n")),
        Step("part", "narrow", ("t",), {"start": 11, "length": 20}),
        Step("p", "add", ("part", "n")),
        Step("s", "softmax", ("u",)),
        Step("c", "compare", ("t", "m"), {"kind": "lt"}),
        Step("w", "where", ("c", "s", "e")),
    )
    results = (Result("w", type, "w"), Result("p", memref([None, 20], "f32"), "p"), Result("t", type, "t"))
    for bits in BITS:
        Case(RowProgram((Operand("x", type),), steps, results), [normal(4, width)], bits).check()


# -- SwiGLU, narrow, rope, caches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate_first", [False, True])
@pytest.mark.parametrize("width", [1, 5, 48, 100])
def test_swiglu(width: int, gate_first: bool) -> None:
    operands = (Operand("x", memref([None, 2 * width], "f32")), Operand("b", memref([2 * width], "f32"), "vector"))
    add = Step("z", "add", ("x", "b"))
    if width == 1:  # single columns are read from operands only
        add = Step("unused", "neg", ("x",))
    steps = (add, Step("y", "fused_swiglu", ("x" if width == 1 else "z",), {"gate_first": gate_first}))
    results = (Result("out", memref([None, width], "f32"), "y"),)
    Case(RowProgram(operands, steps, results), [normal(3, 2 * width), normal(2 * width)]).check()


def test_narrow_splits_a_row() -> None:
    operands = (Operand("qkv", memref([None, 90], "f32")), Operand("b", memref([90], "f32"), "vector"))
    steps = (
        Step("z", "add", ("qkv", "b")),
        Step("q", "narrow", ("z",), {"start": 0, "length": 50}),
        Step("k", "narrow", ("z",), {"start": 50, "length": 39}),
        Step("last", "narrow", ("qkv",), {"start": 89, "length": 1}),
        Step("scaled", "mul", ("q", "last")),
    )
    results = (Result("q", memref([None, 50], "f32"), "scaled"), Result("k", memref([None, 39], "f32"), "k"))
    Case(RowProgram(operands, steps, results), [normal(4, 90), normal(90)]).check()


def tables(positions: int, size: int) -> list[np.ndarray]:
    angles = np.arange(positions)[:, None] * 0.1 * (1 + np.arange(size // 2))
    return [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]


def rope_operands(type: str, size: int, pos: bool, width: int | None = None) -> tuple[Operand, ...]:
    table = memref([None, size // 2], "f32")
    operands = (Operand("x", type, width=width), Operand("cos", table, "table"), Operand("sin", table, "table"))
    return (*operands, Operand("pos", memref([None], "i32"), "pos")) if pos else operands


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize(("size", "n_rot"), [(2, 2), (6, 4), (20, 20), (64, 64), (64, 38), (80, 32)])
@pytest.mark.quick(10)
def test_rope(size: int, n_rot: int, style: str, bits: int) -> None:
    type = memref([None, None, 3 * size], "f32")
    operands = rope_operands(type, size, pos=True)
    attributes = {"head_dim": size, "n_rot": n_rot, "style": style}
    steps = (Step("y", "rope", ("x", "cos", "sin", "pos"), attributes),)
    program = RowProgram(operands, steps, (Result("out", type, "y"),))
    pos = np.array([0, 7], np.int32)
    Case(program, [normal(2, 4, 3 * size), *tables(12, size), pos], bits).check()


def test_rope_without_pos_in_every_rank() -> None:
    attributes = {"head_dim": 8}
    for shape in ((4, 16), (2, 4, 16), (2, 3, 4, 8)):
        type = memref([*[None] * (len(shape) - 1), shape[-1]], "f32")
        steps = (Step("y", "rope", ("x", "cos", "sin"), attributes),)
        program = RowProgram(rope_operands(type, 8, pos=False), steps, (Result("out", type, "y"),))
        Case(program, [normal(*shape), *tables(4, 8)]).check()
    # [B, S, H, D]: positions stand before the heads
    type = memref([None, None, 3, 8], "f32")
    program = RowProgram(
        rope_operands(type, 8, pos=True),
        (Step("y", "rope", ("x", "cos", "sin", "pos"), attributes),),
        (Result("out", type, "y"),),
        position_axis=1,
    )
    Case(program, [normal(2, 5, 3, 8), *tables(9, 8), np.array([4, 1], np.int32)]).check()


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_norm_of_heads_then_rope_then_more(style: str) -> None:
    """Heads as rows: [B, S, H*D] seen as [B*S*H, D]; the rope's result goes on to an elementwise op and a reduction."""
    size, type = 40, memref([None, None, 3 * 40], "f32")
    operands = (*rope_operands(type, size, pos=True, width=size), Operand("g", memref([size], "f32"), "vector"))
    steps = (
        Step("n", "rms_norm", ("x", "g")),
        Step("r", "rope", ("n", "cos", "sin", "pos"), {"head_dim": size, "style": style}),
        Step("e", "exp", ("r",)),
        Step("m", "reduce", ("e",), {"kind": "max"}),
        Step("z", "div", ("e", "m")),
    )
    results = (Result("r", type, "r", width=size), Result("z", type, "z", width=size))
    arrays = [normal(2, 4, 3 * size), *tables(12, size), np.array([3, 0], np.int32), normal(size)]
    Case(RowProgram(operands, steps, results), arrays).check()


def test_rope_position_outside_of_the_tables_reads_only_them() -> None:
    type = memref([None, None, 8], "f32")
    steps = (Step("y", "rope", ("x", "cos", "sin", "pos"), {"head_dim": 8}),)
    program = RowProgram(rope_operands(type, 8, pos=True), steps, (Result("out", type, "y"),))
    arrays = [normal(2, 3, 8), *tables(4, 8), np.array([2, -1], np.int32)]
    (result,) = compiled("k", emit_rows("k", program, TARGETS[256]))(arrays, [arrays[0]])
    nearest = np.array([2, 3, 3, 0, 0, 1])
    x = arrays[0].reshape(6, 8).astype(np.float64)
    want = rotate(x, arrays[1], arrays[2], nearest, {"head_dim": 8})
    np.testing.assert_allclose(result.reshape(6, 8), want, 1e-5, 1e-5)


@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("width", [24, 8])
def test_cache_update_after_rope(width: int, element: str) -> None:
    """Keys are rotated into the cache, values go straight in; the caches are updated in place."""
    wide, cache = memref([None, None, 24], "f32"), memref([None, None, 24], element)
    operands = (
        *rope_operands(wide, 8, pos=True, width=width),
        Operand("v", wide, width=width),
        Operand("y_cache", cache, "tied"),
        Operand("v_cache", cache, "tied"),
    )
    steps = (Step("y", "rope", ("x", "cos", "sin", "pos"), {"head_dim": 8}),)
    results = (Result("k_out", cache, "y", pos="pos"), Result("v_out", cache, "v", pos="pos"))
    program = RowProgram(operands, steps, results)
    caches = [normal(3, 9, 24, dtype=element, seed=i) for i in (5, 6)]
    pos = np.array([0, 6, 7], np.int32)  # the last one's third row doesn't exist
    arrays = [normal(3, 3, 24), *tables(12, 8), pos, normal(3, 3, 24, seed=2), *caches]
    case = Case(program, arrays)
    buffers = [guarded(array) for array in arrays]
    case.kernel().run([*buffers, *buffers[-2:]], cuts=[2, 3])
    tolerance = {"f32": 1e-5, "f16": 1e-3, "bf16": 8e-3}[element]
    for got, want in zip(buffers[-2:], case.expected(), strict=True):
        np.testing.assert_allclose(got.astype(np.float64), want, tolerance, tolerance)
    for got, before in zip(buffers[-2:], caches, strict=True):
        assert got[0, 3:].tobytes() == before[0, 3:].tobytes()


def test_cache_update_of_negative_positions_writes_nothing() -> None:
    type = memref([None, None, 4], "f32")
    operands = (Operand("x", type), Operand("pos", memref([None], "i32"), "pos"), Operand("x_cache", type, "tied"))
    program = RowProgram(operands, (), (Result("out", type, "x", pos="pos"),))
    buffers = [guarded(a) for a in (normal(2, 2, 4), np.array([-2, 100], np.int32), normal(2, 5, 4, seed=1))]
    before = buffers[2].copy()
    compiled("k", emit_rows("k", program, TARGETS[256])).run([*buffers, buffers[2]])
    assert before.tobytes() == buffers[2].tobytes()


# -- element types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("width", [1, 13, 64])
@pytest.mark.quick(9)
def test_half_operands_and_results(width: int, element: str, bits: int) -> None:
    type = memref([None, width], element)
    operands = (Operand("x", type), Operand("g", memref([width], element), "vector"))
    steps = (Step("y", "rms_norm", ("x", "g")), Step("w", "cast", ("y",), {"to": "f32"}))
    results = (Result("y", type, "y"), Result("w", memref([None, width], "f32"), "w"))
    Case(
        RowProgram(operands, steps, results), [normal(3, width, dtype=element), normal(width, dtype=element)], bits
    ).check()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_rounding_is_to_nearest_even(element: str, bits: int) -> None:
    special = [
        0.0,
        -0.0,
        1.0,
        np.inf,
        -np.inf,
        np.nan,
        65504,
        65519.996,
        65520,
        1e5,
        3.4e38,
        1e-8,
        2**-25,
        1.5 * 2**-24,
    ]
    special += [2**-14, 2**-14 * 0.9999, -(2**-24), 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 1e-40, -1e-45]
    rng = np.random.default_rng(0)
    spread = (rng.standard_normal(1000) * 10.0 ** rng.uniform(-9, 6, 1000)).astype(np.float32)
    ties = (rng.integers(0, 1 << 16, 500, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    x = np.concatenate([np.array(special, np.float32), spread, ties[np.isfinite(ties)]])[None]
    type = memref([1, x.size], "f32")
    steps = (Step("h", "cast", ("x",), {"to": element}), Step("z", "add", ("h", "x")))
    results = (Result("h", memref([1, x.size], element), "h"), Result("wide", type, "h"))
    program = RowProgram((Operand("x", type),), steps, results)
    half, wide = Case(program, [x], bits).run()
    with np.errstate(all="ignore"):
        want = x.astype(DTYPES[element])
    np.testing.assert_array_equal(half.astype(np.float32), want.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(half.astype(np.float32)), np.signbit(want.astype(np.float32)))
    np.testing.assert_array_equal(wide, want.astype(np.float32))


# -- shapes, cuts, random programs ------------------------------------------------------------------------------------


def test_empty_and_single_rows() -> None:
    program, (_, gamma) = one("rms_norm", 20, vectors=1)
    for rows in (0, 1):
        Case(program, [normal(rows, 20), gamma]).check()
    flat = RowProgram(
        (Operand("x", memref([20], "f32")),), (Step("y", "exp", ("x",)),), (Result("o", memref([20], "f32"), "y"),)
    )
    Case(flat, [normal(20)]).check()


def test_several_dimensions_as_one_row() -> None:
    type = memref([None, 3, 7], "f32")
    program = RowProgram(
        (Operand("x", type, width=21),), (Step("y", "silu", ("x",)),), (Result("o", type, "y", width=21),)
    )
    case = Case(program, [normal(4, 3, 7)])
    (got,) = case.kernel()([case.arrays["x"]], [case.arrays["x"]])
    np.testing.assert_allclose(got, UNARY["silu"](case.arrays["x"].astype(np.float64)), 1e-5, 1e-5)
    assert case.kernel().units([case.arrays["x"], got]) == 4


@pytest.mark.parametrize("op", ["softmax", "layer_norm"])
def test_bits_do_not_depend_on_the_cut(op: str) -> None:
    program, _ = one(op, 100)
    case = Case(program, [normal(37, 100)])
    (whole,) = case.run()
    for cuts in ([1], [5, 7], list(range(37))):
        assert case.run(cuts)[0].tobytes() == whole.tobytes()


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.quick(7)
def test_random_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    width = int(rng.choice([1, 2, 15, 16, 33, 70, 150]))
    type = memref([None, width], "f32")
    operands = (
        Operand("x", type),
        Operand("y", type),
        Operand("g", memref([width], "f32"), "vector"),
        Operand("s", memref([], "f32"), "scalar"),
        Operand("p", memref([None, 1], "f32")),
    )
    names, steps = [operand.name for operand in operands], []
    for i in range(12):
        op = str(rng.choice(["add", "sub", "mul", "max", "tanh", "sin", "sigmoid", "neg", "reduce", "softmax", "norm"]))
        inputs = [str(rng.choice(names[-6:])) for _ in range(2)]
        if op == "reduce":
            step = Step(f"t{i}", op, (inputs[0],), {"kind": str(rng.choice(["sum", "mean", "max", "min"]))})
        elif op == "softmax":
            step = Step(f"t{i}", op, (inputs[0],))
        elif op == "norm":
            step = Step(f"t{i}", str(rng.choice(["rms_norm", "layer_norm"])), (inputs[0],), {"eps": 1.0})
        else:
            step = Step(f"t{i}", op, tuple(inputs if op in BINARY else inputs[:1]))
        # Bounded, so that no chain leaves the range in which f32 and f64 agree.
        steps += [step, Step(f"b{i}", "atan", (step.name,))]
        names.append(f"b{i}")
    chosen = rng.choice(12, 4, replace=False)
    results = tuple(Result(f"o{i}", type, f"b{i}") for i in sorted({*chosen.tolist(), 11}))
    arrays = [normal(3, width), normal(3, width, seed=1), normal(width), np.array(0.5, np.float32), normal(3, 1)]
    Case(RowProgram(operands, tuple(steps), results), arrays, BITS[seed % 3]).check(2e-4, 2e-4)


def test_code_size_is_independent_of_the_width() -> None:
    sizes = [
        len(emit_rows("k", one("layer_norm", width)[0], TARGETS[256]).splitlines()) for width in (1 << 16, 1 << 20)
    ]
    assert sizes[0] == sizes[1]


# -- errors -----------------------------------------------------------------------------------------------------------

X = Operand("x", "memref<?x8xf32>")
OUT = Result("out", "memref<?x8xf32>", "y")


@pytest.mark.parametrize(
    ("operands", "step", "result", "message"),
    [
        ((X,), Step("y", "cumsum", ("x",)), OUT, "step 'y' = cumsum: isn't a row-wise op"),
        ((X,), Step("y", "exp", ("z",)), OUT, "expects values, but 'z' isn't one"),
        ((X,), Step("y", "add", ("x",)), OUT, "expects 2 operands, but got 1"),
        ((X,), Step("y", "exp", ("x",)), Result("out", "memref<?x9xf32>", "y"), "'out' has rows of 9, but .* 8"),
        (
            (X,),
            Step("y", "exp", ("x",)),
            Result("out", "memref<?x8xf64>", "y"),
            "f32, f16, bf16, but got memref<.x8xf64>",
        ),
        ((X,), Step("y", "compare", ("x", "x"), {"kind": "lt"}), OUT, "f32, f16, bf16"),
        ((X,), Step("y", "reduce", ("x",), {"kind": "any"}), OUT, "kind in sum, mean"),
        ((X,), Step("y", "narrow", ("x",), {"start": 4, "length": 5}), OUT, "columns of 0..8, but got 4..9"),
        ((X,), Step("y", "rope", ("x", "c", "s"), {"head_dim": 3}), OUT, "whole heads of size 3"),
        ((X,), Step("y", "rope", ("x", "c", "s"), {"head_dim": 4}), OUT, "tables .P, 2."),
        ((Operand("x", "memref<?x?xf32>"),), Step("y", "exp", ("x",)), OUT, "a static last dimension"),
        ((Operand("x", "memref<?x8xi32>"),), Step("y", "exp", ("x",)), OUT, "'x' in f32, f16, bf16"),
        ((Operand("x", "memref<8xf32>", "vector"),), Step("y", "exp", ("x",)), OUT, "an operand of several rows"),
        (
            (Operand("x", "memref<3x8xf32>"), Operand("z", "memref<4x8xf32>")),
            Step("y", "add", ("x", "z")),
            OUT,
            "'z' to have 3 rows, but memref<4x8xf32> has 4",
        ),
        (
            (X, Operand("z", "memref<?x4xf32>")),
            Step("y", "add", ("x", "z")),
            OUT,
            r"operands of one width, but got \[4, 8\]",
        ),
        ((X,), Step("y", "exp", ("x",)), Result("out", "memref<?x?x8xf32>", "y", pos="p"), "role pos, but got 'p'"),
    ],
)
def test_unsupported(operands: tuple, step: Step, result: Result, message: str) -> None:
    with pytest.raises(UnsupportedByTemplate, match=message):
        emit_rows("k", RowProgram(operands, (step,), (result,)), TARGETS[256])
