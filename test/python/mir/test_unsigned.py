# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers without sign, ui8, ui16 and ui32: arithmetic, casts, reductions, products, indices, arrays in and out."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from linalg_harness import case, check, dyn, word
from test_arrays import Foreign

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import BuildError, InputError, UnsupportedError
from rlx_mlir.mir import REFERENCES
from rlx_mlir.runtime.loading import load

UNSIGNED = [np.dtype(name) for name in ("uint8", "uint16", "uint32")]
by_dtype = pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
#: None, one, odd, around the width of vectors, and beyond what one thread takes.
SIZES = (0, 1, 7, 8, 9, 15, 16, 17, 333)


def wrapped(number: int, dtype: np.dtype) -> int:
    return number % (1 << 8 * dtype.itemsize)


#: By builder: on Python's numbers, before wrapping around.
DEFINITIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "maximum": max,
    "minimum": min,
    "floor_div": lambda a, b: a // b if b else 0,
    "floor_rem": lambda a, b: a % b if b else 0,
    "trunc_div": lambda a, b: a // b if b else 0,
    "trunc_rem": lambda a, b: a % b if b else 0,
    "pow": lambda a, b: pow(a, b, 1 << 32),
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}
WORDS = {name: name.removeprefix("bitwise_").replace("imum", "") for name in DEFINITIONS}
COMPARISONS = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt}


def operands(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as a column and a row: all of ui8; else those at both ends and in the middle, and others."""
    most = int(np.iinfo(dtype).max)
    if dtype == np.uint8:
        numbers = list(range(256))
    else:
        middle = (most + 1) // 2
        near = [*range(6), 7, 33, 255, 256, middle - 1, middle, middle + 1, most - 2, most - 1, most]
        numbers = [*near, *(int(x) for x in np.random.default_rng(1).integers(0, most, 8))]
    array = np.array(numbers, dtype)
    return array[:, None], array


def wanted(function: Callable[[int, int], int], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    rows, columns = np.broadcast_arrays(x, y)
    pairs = zip(rows.ravel().tolist(), columns.ravel().tolist(), strict=True)
    return np.array([wrapped(function(a, b), x.dtype) for a, b in pairs], x.dtype).reshape(rows.shape)


@by_dtype
@pytest.mark.parametrize("name", DEFINITIONS)
def test_references_are_the_definitions(name, dtype):
    x, y = operands(dtype)
    got = REFERENCES[f"mir.{WORDS[name]}"](x, y)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, wanted(DEFINITIONS[name], x, y))


@by_dtype
def test_loops_are_the_references(dtype):
    """All pairs of ui8; static, dynamic, broadcast, of nothing."""
    x, y = operands(dtype)
    cases = []
    for name, short in WORDS.items():
        op = {"and": mir.and_, "or": mir.or_}.get(short) or getattr(mir, short)
        cases += [
            case(name, op, x, y),
            case(f"{name} dynamic", op, dyn(x, 0), dyn(y)),
            case(f"{name} scalar", op, dyn(y), np.array(np.iinfo(dtype).max, dtype)),
            case(f"{name} of nothing", op, dyn(x[:0], 0), y),
        ]
    check([*cases, case("not", mir.not_, dyn(y)), case("not of nothing", mir.not_, y[:0])])
    np.testing.assert_array_equal(REFERENCES["mir.not"](y), ~y)


# ----------------------------------------------------------------------------------------------------------------------
# Graphs
# ----------------------------------------------------------------------------------------------------------------------


def arithmetic(dtype: str) -> GraphModule:
    """Every function, comparison and choice over a symbolic dimension, with constants."""
    module = GraphModule.mir("arithmetic")
    x, y = module.input("x", ["n", 5], dtype), module.input("y", [5], dtype)
    outputs = {name: getattr(module, name)(x, y) for name in DEFINITIONS}
    outputs |= {kind: module.compare(kind, x, y) for kind in COMPARISONS}
    outputs["not"] = ~x
    outputs["chosen"] = module.where(x > 200, x, y)
    outputs["by_constants"] = (x // 3) + (100 // y) + (x % 4) + (2**y) + (7 & x) + (8 | x) + (255 ^ x) + 200
    module.set_outputs(outputs)
    return module


def inputs(dtype: np.dtype, rows: int) -> dict[str, np.ndarray]:
    rng, most = np.random.default_rng(rows), int(np.iinfo(dtype).max)
    x = rng.integers(0, most, (rows, 5), dtype, endpoint=True)
    if rows > 1:
        x[1] = [0, 1, most // 2, most // 2 + 1, most]
    return {"x": x, "y": np.array([3, 0, most, most // 2 + 1, 1], dtype)}


def expected(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    x, y = given["x"], given["y"]

    def of(name: str, a: Any, b: Any) -> np.ndarray:
        return wanted(DEFINITIONS[name], *np.broadcast_arrays(np.asarray(a, x.dtype), np.asarray(b, x.dtype)))

    numbers = of("floor_div", x, 3) + of("floor_div", 100, y) + of("floor_rem", x, 4) + of("pow", 2, y)
    return {
        **{name: of(name, x, y) for name in DEFINITIONS},
        **{kind: function(x, y) for kind, function in COMPARISONS.items()},
        "not": ~x,
        "chosen": np.where(x > 200, x, y),
        "by_constants": numbers + (7 & x) + (8 | x) + (255 ^ x) + x.dtype.type(200),
    }


def check_equal(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].dtype == array.dtype, name
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def check_module(module: GraphModule, given_of: Callable[[int], Any], want_of: Callable[[Any], Any]) -> None:
    """Interpreted, and compiled for one thread and for two, at every size."""
    executables = [rlx.compile(module, threads=threads, cache=False) for threads in (1, 2)]
    for rows in SIZES:
        given = given_of(rows)
        want = want_of(given)
        check_equal(interpret(module, given), want)
        for executable in executables:
            check_equal(executable.run(given), want)


@by_dtype
def test_arithmetic(dtype):
    check_module(arithmetic(word(dtype)), lambda rows: inputs(dtype, rows), expected)


def test_no_template_takes_what_it_does_not_know():
    executable = rlx.compile(arithmetic("ui8"), cache=False)
    assert set(executable.artifact.templates.values()) == {"broadcast"}
    module = GraphModule.mir("transposed")
    module.set_outputs({"y": module.transpose(module.input("x", ["n", 6], "ui8"))})
    (reason,) = rlx.compile(module, cache=False).artifact.templates.values()
    assert "no template has values of ui8" in reason


def moves(dtype: str) -> GraphModule:
    module = GraphModule.mir("moves")
    x = module.input("x", ["n", 6], dtype)
    y = module.input("y", ["m", 6], dtype)
    table = module.param("table", [9, 6], dtype)
    at = module.input("at", ["n"], dtype)
    module.set_outputs(
        {
            "turned": module.transpose(x),
            "split": module.reshape(x, [-1, 3]),
            "joined": module.concat([x, y, x], 0),
            "sliced": x[1:, ::2],
            "backwards": x[:, ::-1],
            "narrowed": module.narrow(x, 1, 2, 3),
            "expanded": module.expand(module.reshape(x, [-1, 1, 6]), ["n", 4, 6]),
            "taken": module.gather(table, at),
            "looped": module.cast(module.dim(x, 0, dtype), "i64"),
            "counted": module.iota(["n", 3], 0, dtype),
            "constant": x + np.arange(6, dtype=DTYPES[dtype]),
        }
    )
    return module


@by_dtype
def test_moves_and_indices(dtype):
    most = np.iinfo(dtype).max
    table = np.random.default_rng(0).integers(0, most, (9, 6), dtype, endpoint=True)
    module = moves(word(dtype))

    def given_of(rows: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(rows)
        at = rng.integers(0, 12, rows).astype(dtype)
        if rows:
            at[-1] = most  # beyond the end: it would be the first entry, were it signed
        x, y = (rng.integers(0, most, (count, 6), dtype, endpoint=True) for count in (rows, 3))
        return {"x": x, "y": y, "at": at, "table": table}

    def want_of(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        x, y, n = given["x"], given["y"], len(given["x"])
        return {
            "turned": x.T,
            "split": x.reshape(-1, 3),
            "joined": np.concatenate([x, y, x]),
            "sliced": x[1:, ::2],
            "backwards": x[:, ::-1],
            "narrowed": x[:, 2:5],
            "expanded": np.broadcast_to(x[:, None], (n, 4, 6)),
            "taken": table[np.minimum(given["at"], 8)],
            "looped": np.array(wrapped(n, dtype), np.int64),
            "counted": np.broadcast_to(np.minimum(np.arange(n), most).astype(dtype)[:, None], (n, 3)),
            "constant": x + np.arange(6, dtype=dtype),
        }

    executables = [rlx.compile(module, threads=threads, cache=False) for threads in (1, 2)]
    for rows in SIZES:
        given = given_of(rows)
        want = want_of(given)
        check_equal(interpret(module, given), want)
        for executable in executables:
            executable.set_params({"table": table})
            check_equal(executable.run({name: given[name] for name in ("x", "y", "at")}), want)


def sums(dtype: str) -> GraphModule:
    module = GraphModule.mir("sums")
    x = module.input("x", ["n", 33], dtype)
    module.set_outputs(
        {
            "sum": x.sum(0),
            "rows": module.sum(x, 1),
            "all": x.sum(),
            "prod": module.reduce(x, "prod", 0),
            "max": x.max(0),
            "min": x.min(1, keepdims=True),
            "least": x.min(0),
            "running": module.cumsum(x),
            "before": module.cumsum(x, 0, exclusive=True),
        }
    )
    return module


@by_dtype
def test_sums(dtype):
    most = np.iinfo(dtype).max

    def given_of(rows: int) -> dict[str, np.ndarray]:
        return {"x": np.random.default_rng(rows).integers(0, most, (rows, 33), dtype, endpoint=True)}

    def want_of(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        x = given["x"]
        before = np.concatenate([np.zeros((1, 33), dtype), np.cumsum(x, 0, dtype=dtype)])[: len(x)]
        return {
            "sum": x.sum(0, dtype=dtype),
            "rows": x.sum(1, dtype=dtype),
            "all": np.asarray(x.sum(dtype=dtype)),
            "prod": x.prod(0, dtype=dtype),
            "max": x.max(0, initial=0),
            "min": x.min(1, keepdims=True),
            "least": x.min(0, initial=most),
            "running": np.cumsum(x, 1, dtype=dtype),
            "before": before,
        }

    check_module(sums(word(dtype)), given_of, want_of)


PRODUCTS = [("ui8", "ui8"), ("ui8", "i8"), ("i8", "ui8"), ("ui32", "ui32")]


@pytest.mark.parametrize(("left", "right"), PRODUCTS, ids=[f"{a} x {b}" for a, b in PRODUCTS])
def test_products(left, right):
    """Of bytes they are of i32, signed or not; all wrap around."""
    module = GraphModule.mir("products")
    x, w, v = module.input("x", ["n", 17], left), module.input("w", [17, 9], right), module.input("v", [9, 17], right)
    module.set_outputs({"product": x @ w, "transposed": module.mm(x, v, transpose_rhs=True)})

    def given_of(rows: int) -> dict[str, np.ndarray]:
        rng, found = np.random.default_rng(rows), {}
        for name, kind, shape in (("x", left, (rows, 17)), ("w", right, (17, 9)), ("v", right, (9, 17))):
            info = np.iinfo(DTYPES[kind])
            found[name] = rng.integers(info.min, info.max, shape, DTYPES[kind], endpoint=True)
        return found

    def want_of(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        kind = np.dtype(np.uint32 if left == "ui32" else np.int32)
        x, w, v = (given[name].astype(np.int64) for name in "xwv")
        return {name: (x @ y).astype(kind) for name, y in (("product", w), ("transposed", v.T))}

    check_module(module, given_of, want_of)


# ----------------------------------------------------------------------------------------------------------------------
# Casts
# ----------------------------------------------------------------------------------------------------------------------


def values(dtype: np.dtype) -> np.ndarray:
    """Numbers around the ends of every integer type, as far as the type has them, and what is no number."""
    ends = [sign * (1 << bits) + near for bits in (7, 8, 15, 16, 31, 32) for sign in (-1, 1) for near in (-1, 0, 1)]
    numbers: list[float] = [0, 1, -1, 2, *ends]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([number for number in numbers if info.min <= number <= info.max], dtype)
    if dtype == np.bool_:
        return np.array([False, True])
    with np.errstate(over="ignore"):
        return np.array([*numbers, 0.5, -0.5, 0.99, -0.99, 254.5, 255.5, 1e30, -1e30, np.inf, -np.inf, np.nan]).astype(
            np.float32).astype(dtype)  # fmt: skip


def converted(number: float, dtype: np.dtype) -> int:
    """By the rule: the fraction is dropped, what is outside saturates, NaN is 0."""
    info = np.iinfo(dtype)
    if number != number:
        return 0
    return int(min(max(number, float(info.min)), float(info.max)))


PAIRS = [(a, b) for a in DTYPES for b in DTYPES if "ui" in a + b and "complex" not in a + b and a != b]


def test_casts_between_every_pair():
    cases = []
    for source, target in PAIRS:
        x = values(DTYPES[source])
        got = REFERENCES["mir.cast"](x, result_dtype=DTYPES[target])
        assert got.dtype == DTYPES[target]
        if target == "i1":
            want = x.astype(np.float64) != 0
        elif np.dtype(DTYPES[target]).kind in "iu":
            want = np.array([converted(float(number), DTYPES[target]) for number in x], DTYPES[target])
        elif target in ("bf16", "f8E4M3FN", "f8E5M2"):
            limit = float(ml_dtypes.finfo(DTYPES[target]).max) if target != "bf16" else np.inf
            want = np.clip(x.astype(np.float64), -limit, limit).astype(np.float32).astype(DTYPES[target])
        else:
            with np.errstate(over="ignore"):
                want = x.astype(DTYPES[target])
        np.testing.assert_array_equal(got, want, err_msg=f"{source} to {target}")

        def build(x: Any, target: str = target) -> Any:
            from rlx_mlir import ir

            shape = "x".join("?" if size < 0 else str(size) for size in x.type.shape)
            return mir.cast(ir.Type.parse(f"tensor<{shape}x{target}>"), x)

        if "f8" not in source + target:  # see below
            cases += [case(f"{source} to {target}", build, x), case(f"{source} to {target}, dynamic", build, dyn(x))]
    check(cases)


@by_dtype
def test_casts_of_floats_of_8_bits(dtype):
    floats = ("f8E4M3FN", "f8E5M2")
    module = GraphModule.mir("casts")
    x = module.input("x", ["n"], dtype)
    outputs = {f"to {word}": module.cast(x, word) for word in floats}
    outputs |= {f"from {word}": module.cast(module.input(word, ["m"], word), dtype) for word in floats}
    module.set_outputs(outputs)
    given = {"x": values(dtype), **{word: values(DTYPES[word]) for word in floats}}
    want = {f"to {word}": REFERENCES["mir.cast"](given["x"], result_dtype=DTYPES[word]) for word in floats}
    want |= {f"from {word}": REFERENCES["mir.cast"](given[word], result_dtype=dtype) for word in floats}
    check_equal(rlx.compile(module, cache=False).run(given), want)


# ----------------------------------------------------------------------------------------------------------------------
# Text, arrays, artefacts, errors
# ----------------------------------------------------------------------------------------------------------------------


@by_dtype
def test_text_and_bytecode(dtype):
    for module in (arithmetic(word(dtype)), moves(word(dtype)), sums(word(dtype))):
        text = module.to_text()
        assert f"x{word(dtype)}>" in text
        assert GraphModule.from_text(text).to_text() == text
        assert GraphModule.from_bytecode(module.bytecode(), trusted=True).to_text() == text


@by_dtype
@pytest.mark.quick(1)
def test_compilation_goes_on_from_text_of_any_stage(dtype):
    given = inputs(dtype, 9)
    for stage in ("kernels", "lir", "linalg"):
        text = rlx.emit(arithmetic(word(dtype)), stage)
        check_equal(rlx.compile(GraphModule.from_text(text, stage=stage), cache=False).run(given), expected(given))


def increment(dtype: str) -> GraphModule:
    module = GraphModule.mir("increment")
    module.set_outputs({"y": module.input("x", ["n"], dtype) + module.param("w", [1], dtype)})
    return module


@by_dtype
def test_arrays_in_and_out(dtype, tmp_path: Path):
    """From numpy and DLPack, by name or numpy's type; kept in artefacts; other types are refused by name."""
    most = int(np.iinfo(dtype).max)
    x, w = np.array([0, 1, most - 1, most], dtype), np.array([2], dtype)
    for name in (word(dtype), word(dtype)[1:].replace("i", "u"), dtype.name, dtype):
        assert increment(name).to_text() == increment(word(dtype)).to_text()
    want = np.array([2, 3, 0, 1], dtype)
    path = tmp_path / "increment.rlx"
    rlx.compile(increment(word(dtype)), cache=False).artifact.save(path)
    executable = load(path)
    assert executable.inputs[0].dtype == word(dtype)
    for given, own in ((x, w), (Foreign(x), Foreign(w))):
        executable.set_params({"w": own})
        check_equal(executable.run({"x": given}), {"y": want})
        check_equal(interpret(increment(word(dtype)), {"x": given, "w": own}), {"y": want})
    signed = x.astype(dtype.name[1:])
    for run in (executable.run, lambda given: interpret(increment(word(dtype)), {**given, "w": w})):
        with pytest.raises(InputError, match=rf"element type {dtype.name}, but got {signed.dtype.name}"):
            run({"x": signed})


def test_errors_name_what_is_wrong():
    module = GraphModule.mir("wrong")
    x, y = module.input("x", [4], "ui8"), module.input("y", [4], "i8")
    for number in (-1, 256, 2.5):
        with pytest.raises(BuildError, match=rf"{number} can't be exact in ui8"):
            x + number
    with pytest.raises(BuildError, match="same element type"):
        x + y
    with pytest.raises(BuildError, match="'x' to be of floats"):
        x.mean()
    with pytest.raises(BuildError, match="unknown element type 'uint64'"):
        module.input("z", [4], "uint64")
    wide = module.input("wide", [4, 4], "ui16")
    with pytest.raises(BuildError, match="a float, i8, i32, i64, ui8 or ui32"):
        wide @ wide


def test_gpus_say_what_they_do_not_have():
    with pytest.raises(UnsupportedError, match="no code for GPUs with values of ui16"):
        rlx.compile(arithmetic("ui16"), target="nvptx", chip="sm_80", cache=False)


def test_constants_are_folded():
    module = GraphModule.mir("folded")
    x = module.constant(np.array([250, 5, 0], np.uint8))
    module.set_outputs({"y": (x + 10) // module.constant(np.array([3, 0, 255], np.uint8))})
    assert "floor_div" not in rlx.emit(module, "kernels")
    check_equal(rlx.compile(module, cache=False).run({}), {"y": np.array([1, 0, 0], np.uint8)})


def test_remainders_of_the_largest_number_are_not_zero():
    """What folds of signed integers take for -1."""
    module = GraphModule.mir("remainders")
    x = module.input("x", [3], "ui8")
    module.set_outputs({"y": x % 255, "z": module.trunc_rem(x, 255)})
    given = np.array([254, 255, 7], np.uint8)
    want = np.array([254, 0, 7], np.uint8)
    check_equal(rlx.compile(module, cache=False).run({"x": given}), {"y": want, "z": want})
