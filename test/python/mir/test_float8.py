# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Floats of 8 bits on CPUs: conversions, moves, arrays in and out, and products with scales."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import Program, check, compile_fresh, every

from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import BuildError, InputError

E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
FLOAT8 = {"f8E4M3FN": E4M3, "f8E5M2": E5M2}


def codes(dtype: np.dtype[Any]) -> np.ndarray:
    """Every float of 8 bits."""
    return np.arange(256, dtype=np.uint8).view(dtype)


def nearest(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Floats of 8 bits by their definition, from f64: the nearest one, the even code of two, saturated."""
    table = codes(dtype)[:128].astype(np.float64)
    table = table[np.isfinite(table)]
    distance = np.abs(np.abs(x.astype(np.float64))[:, None].clip(0, table[-1]) - table)
    best = distance.min(axis=1, keepdims=True)
    candidates = distance == best
    even = candidates & (np.arange(len(table)) % 2 == 0)
    code = np.where(even.any(axis=1), even.argmax(axis=1), candidates.argmax(axis=1))
    code = np.where(np.isnan(x), 0x7F, code) | np.where(np.signbit(x), 0x80, 0)
    return code.astype(np.uint8).view(dtype)


def bits(x: np.ndarray) -> np.ndarray:
    """The codes, those of NaN as one."""
    return np.where(np.isnan(x.astype(np.float32)), 0x7F, x.view(np.uint8))


def hard_numbers(dtype: np.dtype[Any]) -> np.ndarray:
    """f32: every value, the middles between neighbours and what is next to them, the ends, and what isn't finite."""
    table = codes(dtype).astype(np.float32)
    table = np.unique(table[np.isfinite(table)])
    middles = (table[1:] + table[:-1]) / 2
    ends = np.array([448, 464, 465, 57344, 61440, 1e30, 2.0**-10, 2.0**-17, 1e-30, 1e-45, -0.0], np.float32)
    exact = np.concatenate([table, middles, ends])
    beside = [np.nextafter(exact, np.float32(end)) for end in (-np.inf, np.inf)]
    return np.concatenate([exact, *beside, np.array([np.inf, -np.inf, np.nan], np.float32)])


@pytest.mark.parametrize("word", FLOAT8)
def test_conversions_round_to_the_nearest_and_saturate(word: str) -> None:
    """The reference and compiled code, against the definition; f64 rounds once."""
    dtype = FLOAT8[word]
    numbers = hard_numbers(dtype)
    doubles = np.concatenate([numbers.astype(np.float64), np.nextafter(numbers.astype(np.float64), 0)])
    m = GraphModule.mir("casts")
    m.set_outputs(
        {
            "single": m.cast(m.input("x", ["n"]), word),
            "double": m.cast(m.input("d", ["m"], "f64"), word),
            "whole": m.cast(m.input("i", [5], "i64"), word),
            "truth": m.cast(m.input("b", [2], "i1"), word),
        }
    )
    integers = np.array([0, -3, 17, 2**40, -(2**62) - 1], np.int64)
    inputs = {"x": numbers, "d": doubles, "i": integers, "b": np.array([False, True])}
    executable = compile_fresh(m, maxima={"n": len(numbers), "m": len(doubles)})
    for found in (interpret(m, inputs), executable.run(inputs)):
        assert all(value.dtype == dtype for value in found.values())
        np.testing.assert_array_equal(bits(found["single"]), bits(nearest(numbers, dtype)))
        np.testing.assert_array_equal(bits(found["double"]), bits(nearest(doubles, dtype)))
        np.testing.assert_array_equal(bits(found["whole"]), bits(nearest(integers, dtype)))
        np.testing.assert_array_equal(found["truth"].astype(np.float32), [0, 1])


@pytest.mark.parametrize("word", FLOAT8)
@pytest.mark.quick(1)
def test_every_float_of_8_bits_widens_exactly(word: str) -> None:
    dtype = FLOAT8[word]
    m = GraphModule.mir("widen")
    x = m.input("x", [256], word)
    wide = {name: m.cast(x, name) for name in ("f32", "f16", "bf16", "f64", "i32", "i1", *FLOAT8)}
    m.set_outputs(wide)
    inputs = {"x": codes(dtype)}
    want, got = interpret(m, inputs), compile_fresh(m).run(inputs)
    for name in ("f32", "f16", "bf16", "f64"):
        for found in (want[name], got[name]):
            np.testing.assert_array_equal(found.astype(np.float32), codes(dtype).astype(np.float32))
    for name in ("i32", "i1"):
        np.testing.assert_array_equal(want[name], got[name])
    for name in FLOAT8:
        np.testing.assert_array_equal(bits(want[name]), bits(got[name]))


def test_moves_keep_every_code() -> None:
    """Reshape, transpose, narrow, concat and expand, and arguments that are results."""
    m = GraphModule.mir("moves")
    x = m.input("x", ["n", 16], "f8E4M3FN")
    turned = m.transpose(x, [1, 0])
    m.set_outputs(
        {
            "x": x,
            "turned": turned,
            "part": m.narrow(turned, 0, 3, 5),
            "joined": m.concat([x, x], axis=1),
            "flat": m.reshape(x, [-1]),
            "wide": m.expand(m.reshape(x, [-2, 16, 1]), ["n", 16, 2]),
        }
    )
    executable = compile_fresh(m, maxima={"n": 16})
    for n in (16, 0, 1):
        inputs = {"x": codes(E4M3)[: 16 * n].reshape(n, 16)}
        want, got = interpret(m, inputs), executable.run(inputs)
        for name, value in want.items():
            np.testing.assert_array_equal(value.view(np.uint8), got[name].view(np.uint8), err_msg=name)


#: K and N.
SIZES = [(1, 1), (37, 5), (64, 16), (0, 3), (5, 0)]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.quick(1)
def test_products(transpose: bool) -> None:
    """Both types, all results and scales, on every way there is."""
    p = Program("mir")
    rows, one = p.input("rows", ["m"]), p.input("one", [1])
    kinds = [("f8E4M3FN", "f8E4M3FN", "f32"), ("f8E5M2", "f8E4M3FN", "bf16"), ("f8E4M3FN", "f8E5M2", "f16")]
    for i, (k, n) in enumerate(SIZES):
        columns = p.param(f"columns{k}_{n}", [n], "f32")
        scales = [("plain", ()), ("one", (one, one)), ("each", (rows, columns))]
        for j, (left, right, out) in enumerate(kinds):
            x = p.input(f"x{k}_{n}_{left}_{right}", ["m", k], left)
            w = p.param(f"w{k}_{n}_{left}_{right}", [n, k] if transpose else [k, n], right)
            name, given = scales[(i + j + transpose) % 3]  # in turn
            p.output(**{f"{name}_{k}_{n}_{out}": p.m.scaled_matmul(x, w, *given, dtype=out, transpose_rhs=transpose)})
    check(p, every(m=[5, 0, 1]), maxima={"m": 5}, templates={"generic"})


def test_batches_broadcast() -> None:
    p = Program("mir")
    x, w = p.input("x", [2, 1, "m", 9], "f8E4M3FN"), p.input("w", [3, 4, 9], "f8E4M3FN")
    xs, ws = p.input("xs", [2, 1, "m"]), p.input("ws", [3, 4])
    y = p.m.scaled_matmul(x, w, xs, ws, dtype="bf16", transpose_rhs=True)
    p.output(y=p.m.relu(y), z=p.m.scaled_matmul(x, w, xs, transpose_rhs=True))
    check(p, [{"m": 3}], maxima={"m": 3})


def test_what_follows_a_product_is_its_kernel_s() -> None:
    p = Program("mir")
    x, w = p.input("x", ["m", 32], "f8E4M3FN"), p.param("w", [8, 32], "f8E4M3FN")
    bias, residual = p.param("bias", [8], "bf16"), p.input("residual", ["m", 8], "bf16")
    y = p.m.scaled_matmul(x, w, p.input("xs", ["m"]), p.param("ws", [8]), dtype="bf16", transpose_rhs=True)
    p.output(y=p.m.add(p.m.silu(p.m.add(y, bias)), residual))
    check(p, [{"m": 7}], maxima={"m": 7})


def test_mistakes_are_named() -> None:
    m = GraphModule.mir("wrong")
    x, w = m.input("x", [2, 8], "f8E4M3FN"), m.input("w", [4, 8], "f8E4M3FN")
    with pytest.raises(BuildError, match=r"test_float8\.py.*the same k, but got 8 and 4"):
        m.scaled_matmul(x, w)
    with pytest.raises(BuildError, match="at least two dimensions"):
        m.scaled_matmul(x, m.reshape(w, [-1]))
    with pytest.raises(BuildError, match="unknown element type 'f9'"):
        m.scaled_matmul(x, w, dtype="f9", transpose_rhs=True)
    with pytest.raises(BuildError, match="must be dense tensor of f16, bf16 or f32"):
        m.scaled_matmul(x, w, dtype="f64", transpose_rhs=True)
    with pytest.raises(BuildError, match="f8E4M3FN"):
        m.add(x, x)
    m.set_outputs({"y": m.scaled_matmul(x, w, transpose_rhs=True)})
    executable = compile_fresh(m)
    good = np.ones((2, 8), E4M3)
    with pytest.raises(InputError, match="input 'x' has element type float8_e4m3fn, but got int8"):
        executable.run({"x": np.ones((2, 8), np.int8), "w": np.ones((4, 8), E4M3)})
    np.testing.assert_array_equal(executable.run({"x": good, "w": np.ones((4, 8), E4M3)})["y"], np.full((2, 4), 8))
