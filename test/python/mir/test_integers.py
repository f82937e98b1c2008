# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Logic of conditions and bits, division, power, products and sums of integers: against Python's, on CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor, trunc
from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device
from linalg_harness import case, check, dyn

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.dialects import mir
from rlx_mlir.errors import BuildError
from rlx_mlir.mir import REFERENCES

DTYPES = [np.dtype(name) for name in ("int8", "int16", "int32", "int64")]
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

Numbers = Callable[[int, int], int]


def power(a: int, b: int) -> int:
    """a^b, without the part after the point; 0 where it would divide by 0."""
    return a**b if b >= 0 else trunc(Fraction(1, a**-b)) if a else 0


#: By builder: on Python's numbers, before wrapping around. By 0, quotient and remainder are 0.
DEFINITIONS: dict[str, Numbers] = {
    "floor_div": lambda a, b: floor(Fraction(a, b)) if b else 0,
    "floor_rem": lambda a, b: a - b * floor(Fraction(a, b)) if b else 0,
    "trunc_div": lambda a, b: trunc(Fraction(a, b)) if b else 0,
    "trunc_rem": lambda a, b: a - b * trunc(Fraction(a, b)) if b else 0,
    "pow": power,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
}
WORDS = {name: name.removeprefix("bitwise_") for name in DEFINITIONS}


def wrapped(number: int, dtype: np.dtype) -> int:
    bits = 8 * dtype.itemsize
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def operands(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as a column and a row: all of i8; else those around 0 and the ends, powers of two, and others."""
    info = np.iinfo(dtype)
    if dtype == np.int8:
        numbers = list(range(-128, 128))
    else:
        near = [*range(-5, 6), 7, -7, 10, 33, info.bits - 1, info.bits, info.bits + 1]
        ends = [info.min, info.min + 1, info.max - 1, info.max, 1 << info.bits // 2, -(1 << info.bits - 2)]
        numbers = [*near, *ends, *(int(x) for x in np.random.default_rng(1).integers(info.min, info.max, 8))]
    array = np.array(numbers, dtype)
    return array[:, None], array


def wanted(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """By the definition; of large exponents, where powers have too many digits, by modular arithmetic."""
    rows, columns = np.broadcast_arrays(x, y)
    found = []
    for a, b in zip(rows.ravel().tolist(), columns.ravel().tolist(), strict=True):
        if name == "pow":
            b = max(b, -4 + b % 2)  # 1 / a^-b is 1, -1 or less: all that counts is whether b is odd
        is_large = name == "pow" and b > 8
        exact = pow(a, b, 1 << 8 * x.dtype.itemsize) if is_large else DEFINITIONS[name](a, b)
        found.append(wrapped(exact, x.dtype))
    return np.array(found, x.dtype).reshape(rows.shape)


@by_dtype
@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.quick(9)
def test_references_are_the_definitions(name, dtype):
    x, y = operands(dtype)
    got = REFERENCES[f"mir.{WORDS[name]}"](x, y)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, wanted(name, x, y))


@by_dtype
@pytest.mark.quick(2)
def test_loops_are_the_references(dtype):
    """All pairs of i8; static, dynamic, broadcast, of nothing."""
    x, y = operands(dtype)
    cases = []
    for name, word in WORDS.items():
        op = {"and": mir.and_, "or": mir.or_}.get(word) or getattr(mir, word)
        cases += [
            case(f"{name}", op, x, y),
            case(f"{name} dynamic", op, dyn(x, 0), dyn(y)),
            case(f"{name} scalar", op, dyn(y), np.array(-7, dtype)),
            case(f"{name} of nothing", op, dyn(x[:0], 0), y),
        ]
    check([*cases, case("not", mir.not_, dyn(y)), case("not of nothing", mir.not_, y[:0])])


def test_logic_of_conditions():
    """All pairs, by the references and compiled."""
    x, y = np.array([[False], [True]]), np.array([False, True])
    for word, function in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        got = REFERENCES[f"mir.{word}"](x, y)
        assert got.dtype == np.bool_
        np.testing.assert_array_equal(got, function(x, y))
    np.testing.assert_array_equal(REFERENCES["mir.not"](y), [True, False])
    ops = {"and": mir.and_, "or": mir.or_, "xor": mir.xor}
    cases = [case(word, op, x, dyn(y)) for word, op in ops.items()]
    check([*cases, case("not", mir.not_, dyn(y)), case("not of a scalar", mir.not_, np.array(True))])


# ----------------------------------------------------------------------------------------------------------------------
# Graphs
# ----------------------------------------------------------------------------------------------------------------------


def arithmetic(dtype: str) -> GraphModule:
    """Every function, by operators where there is one, over a symbolic dimension, with constants."""
    module = GraphModule.mir("integers")
    x, y = module.input("x", ["n", 5], dtype), module.input("y", [5], dtype)
    module.set_outputs(
        {
            "floor_div": x // y,
            "floor_rem": x % y,
            "trunc_div": module.trunc_div(x, y),
            "trunc_rem": module.trunc_rem(x, y),
            "pow": x**y,
            "logic": (x & y) | (x ^ 3),
            "not": ~x,
            "by_constants": (x // 3) + (100 // y) + (x % -4) + (100 % y) + 2**y + (7 & x) + (8 | x) + (1 ^ x),
        }
    )
    return module


def inputs(dtype: str, rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    x = rng.integers(-100, 100, (rows, 5)).astype(dtype)
    if rows > 1:
        x[1] = [0, 1, -1, np.iinfo(dtype).min, np.iinfo(dtype).max]
    return {"x": x, "y": np.array([3, 0, -1, -2, 5], dtype)}


def expected(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By Python's numbers."""
    x, y = given["x"], given["y"]

    def of(name: str, a: Any, b: Any) -> np.ndarray:
        return wanted(name, *np.broadcast_arrays(np.asarray(a, x.dtype), np.asarray(b, x.dtype)))

    with np.errstate(over="ignore"):
        quotients = of("floor_div", x, 3) + of("floor_div", 100, y) + of("floor_rem", x, -4) + of("floor_rem", 100, y)
        return {
            **{name: of(name, x, y) for name in ("floor_div", "floor_rem", "trunc_div", "trunc_rem", "pow")},
            "logic": (x & y) | (x ^ 3),
            "not": ~x,
            "by_constants": quotients + of("pow", 2, y) + (7 & x) + (8 | x) + (1 ^ x),
        }


def conditions() -> GraphModule:
    """Numbers within bounds, and others, by operators on comparisons."""
    module = GraphModule.mir("conditions")
    x, flag = module.input("x", ["n", 9]), module.input("flag", ["n", 1], "i1")
    inside = (x > -1.0) & (x < 1.0)
    outside = ~inside | flag
    module.set_outputs(
        {
            "inside": inside,
            "differs": outside ^ flag,
            "kept": module.where(inside & ~flag, x, 0.0),
            "constants": (True & inside) | (False ^ flag),
        }
    )
    return module


def expected_conditions(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    x, flag = given["x"], given["flag"]
    inside = (x > -1) & (x < 1)
    return {
        "inside": inside,
        "differs": (~inside | flag) ^ flag,
        "kept": np.where(inside & ~flag, x, np.float32(0)),
        "constants": inside | flag,
    }


def condition_inputs(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    return {"x": rng.normal(size=(rows, 9)).astype(np.float32), "flag": rng.random((rows, 1)) < 0.5}


def check_equal(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].dtype == array.dtype, name
        np.testing.assert_array_equal(got[name], array, err_msg=name)


@by_dtype
@pytest.mark.quick(1)
def test_integers_on_cpus(dtype):
    word = f"i{8 * dtype.itemsize}"
    executable = rlx.compile(arithmetic(word), cache=False)
    for rows in (0, 1, 2, 17):
        given = inputs(dtype.name, rows)
        check_equal(interpret(arithmetic(word), given), expected(given))
        check_equal(executable.run(given), expected(given))


def test_conditions_on_cpus():
    executable = rlx.compile(conditions(), cache=False)
    for rows in (0, 1, 17):
        given = condition_inputs(rows)
        check_equal(interpret(conditions(), given), expected_conditions(given))
        check_equal(executable.run(given), expected_conditions(given))


@pytest.mark.parametrize("disabled", [(), ("all",)], ids=["kernels", "loops"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.quick(1)
def test_integers_on_gpus(dtype, disabled):
    word = dtype.replace("int", "i")
    with emulated_device("sm_80"):
        executable = rlx.compile(arithmetic(word), target="cuda", chip="sm_80", disable_templates=disabled, cache=False)
        generic = {text.partition(":")[0] == "generic" for text in executable.artifact.templates.values()}
        assert generic == {bool(disabled)}, executable.artifact.templates
        given = inputs(dtype, 3)
        check_equal(executable.run(given), expected(given))


def test_constants_of_many_digits_on_gpus():
    """Schedules hold constants as f64: those that it lacks are left to loops."""
    module = GraphModule.mir("digits")
    x = module.input("x", ["n"], "i64")
    module.set_outputs({"few": x + 2**62, "many": x + (2**62 + 1)})
    with emulated_device("sm_80"):
        executable = rlx.compile(module, target="cuda", chip="sm_80", cache=False)
        kinds = sorted(text.partition(":")[0] for text in executable.artifact.templates.values())
        assert kinds == ["broadcast", "generic"]
        x = np.array([0, 1, -5], np.int64)
        check_equal(executable.run({"x": x}), {"few": x + 2**62, "many": x + (2**62 + 1)})


@pytest.mark.parametrize("disabled", [(), ("all",)], ids=["kernels", "loops"])
@pytest.mark.quick(1)
def test_conditions_on_gpus(disabled):
    with emulated_device("sm_80"):
        executable = rlx.compile(conditions(), target="cuda", chip="sm_80", disable_templates=disabled, cache=False)
        given = condition_inputs(5)
        check_equal(executable.run(given), expected_conditions(given))


def test_text_and_bytecode():
    for module in (arithmetic("i16"), conditions()):
        text = module.to_text()
        assert GraphModule.from_text(text).to_text() == text
        assert GraphModule.from_bytecode(module.bytecode(), trusted=True).to_text() == text


def test_errors_name_the_types():
    module = GraphModule.mir("wrong")
    x, n = module.input("x", [4]), module.input("n", [4], "i32")
    with pytest.raises(BuildError, match=r"'mir.and' op expects 'lhs' to be dense tensor of i1, i8 to i64 or"):
        x & x
    with pytest.raises(BuildError, match=r"'mir.floor_div' op expects 'lhs' to be dense tensor of i8 to i64 or"):
        x // 2
    with pytest.raises(BuildError, match=r"True is a bool, but the other operand is of i32"):
        n & True
    with pytest.raises(BuildError, match=r"2.5 can't be exact in i32"):
        n // 2.5


# ----------------------------------------------------------------------------------------------------------------------
# Sums
# ----------------------------------------------------------------------------------------------------------------------


def sums(dtype: str) -> GraphModule:
    """Products, running sums and reductions of integers, and of conditions on them."""
    module = GraphModule.mir("sums")
    x, w = module.input("x", ["n", 33], dtype), module.input("w", [33, 5], dtype)
    y = module.input("y", ["n", 5], dtype)
    module.set_outputs(
        {
            "product": x @ w,
            "transposed": module.mm(y, w, transpose_rhs=True),
            "running": module.cumsum(x),
            "before": module.cumsum(x, 0, exclusive=True),
            "sum": x.sum(0),
            "any": (x > 100).any(1),
            "all": (x > -100).all(axis=0, keepdims=True),
            "any_at_all": (x > 100).any(),
        }
    )
    return module


def sum_inputs(dtype: str, rows: int) -> dict[str, np.ndarray]:
    rng, info = np.random.default_rng(rows), np.iinfo(dtype)
    shapes = {"x": (rows, 33), "w": (33, 5), "y": (rows, 5)}
    return {name: rng.integers(info.min, info.max, shape, dtype, endpoint=True) for name, shape in shapes.items()}


def expected_sums(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By Python's numbers, of any size, and wrapped around at the end."""
    x = given["x"]
    whole = np.dtype(np.int32) if x.dtype == np.int8 else x.dtype

    def wrap(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
        return np.array([wrapped(int(number), dtype) for number in numbers.ravel()], dtype).reshape(numbers.shape)

    exact = {name: array.astype(object) for name, array in given.items()}
    before = np.concatenate([np.zeros((1, 33), object), np.cumsum(exact["x"], 0)])[: len(x)]
    return {
        "product": wrap(exact["x"] @ exact["w"], whole),
        "transposed": wrap(exact["y"] @ exact["w"].T, whole),
        "running": wrap(np.cumsum(exact["x"], 1), x.dtype),
        "before": wrap(before, x.dtype),
        "sum": wrap(exact["x"].sum(0), x.dtype),
        "any": (x > 100).any(1),
        "all": (x > -100).all(0, keepdims=True),
        "any_at_all": (x > 100).any(),
    }


SUMMED = ["int8", "int32", "int64"]


@pytest.mark.parametrize("dtype", SUMMED)
@pytest.mark.quick(1)
def test_sums_on_cpus(dtype):
    module = sums(dtype.replace("int", "i"))
    executable = rlx.compile(module, cache=False)
    for rows in (0, 1, 17):
        given = sum_inputs(dtype, rows)
        check_equal(interpret(module, given), expected_sums(given))
        check_equal(executable.run(given), expected_sums(given))


@pytest.mark.parametrize("dtype", SUMMED)
@pytest.mark.quick(1)
def test_sums_on_gpus(dtype):
    with emulated_device("sm_80"):
        executable = rlx.compile(sums(dtype.replace("int", "i")), target="cuda", chip="sm_80", cache=False)
        given = sum_inputs(dtype, 5)
        check_equal(executable.run(given), expected_sums(given))
