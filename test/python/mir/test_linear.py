# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contractions along any dimensions, low-rank updates, and systems of equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compile_harness import Program, compile_fresh, templates_of
from compile_harness import check as check_program
from gpu_harness import compile_emulated
from linalg_harness import FLOATS, builder, case, check, dyn, normal, word

from rlx_mlir import GraphModule, interpret
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import BuildError, InputError
from rlx_mlir.mir import REFERENCES

# Contractions -----------------------------------------------------------------------------------------

#: Letters of einsum, and the shape of each operand: batches first and last, none, several, only batches, one number.
CONTRACTIONS = (
    ("mk,kn->mn", (5, 7), (7, 9)),
    ("km,nk->mn", (7, 5), (9, 7)),
    ("bmk,bkn->bmn", (3, 5, 7), (3, 7, 9)),
    ("mbkc,nkbc->bmn", (4, 3, 5, 2), (6, 5, 3, 2)),
    ("ab,cd->abcd", (2, 3), (4, 5)),
    ("ab,ab->ab", (4, 17), (4, 17)),
    ("ab,ba->", (4, 17), (17, 4)),
    (",->", (), ()),
    ("ak,bk->ab", (3, 0), (2, 0)),
    ("ak,kb->ab", (0, 4), (4, 3)),
)


def contraction(letters: str) -> dict[str, list[int]]:
    """The attributes for a formula of einsum whose result has batches, then what is left of lhs and of rhs."""
    operands, result = letters.split("->")
    lhs, rhs = operands.split(",")
    shared = [letter for letter in lhs if letter in rhs]
    batch = [letter for letter in result if letter in shared]
    summed = [letter for letter in shared if letter not in result]
    return {
        "lhs_contracting": [lhs.index(letter) for letter in summed],
        "rhs_contracting": [rhs.index(letter) for letter in summed],
        "lhs_batch": [lhs.index(letter) for letter in batch],
        "rhs_batch": [rhs.index(letter) for letter in batch],
    }


@pytest.mark.parametrize("entry", CONTRACTIONS, ids=[entry[0] for entry in CONTRACTIONS])
def test_reference_of_contractions(entry: tuple[str, tuple[int, ...], tuple[int, ...]]) -> None:
    letters, left, right = entry
    a, b = normal(*left, dtype=np.float64), normal(*right, dtype=np.float64, seed=1)
    found = REFERENCES["mir.dot_general"](a, b, **contraction(letters))
    np.testing.assert_allclose(found, np.einsum(letters, a, b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [*FLOATS, *map(np.dtype, ("int8", "int32", "int64", "uint32"))], ids=word)
@pytest.mark.quick(3)
def test_contractions(dtype: np.dtype) -> None:
    cases = []
    for letters, left, right in CONTRACTIONS:
        build = builder(mir.dot_general, **contraction(letters))
        a, b = normal(*left, dtype=dtype, scale=3), normal(*right, dtype=dtype, seed=1, scale=3)
        cases += [case(letters, build, a, b), case(f"{letters} dynamic", build, dyn(a), dyn(b))]
    check(cases)


def test_contractions_of_symbols() -> None:
    p = Program()
    x, w = p.input("x", ["b", "s", 3, 17]), p.param("w", [17, 5, 3])
    y = p.input("y", [17, "b", "s"])
    p.output(
        by_weight=p.m.dot_general(x, w, lhs_contracting=[3, 2], rhs_contracting=[0, 2]),
        by_batch=p.m.dot_general(x, y, lhs_contracting=[3], rhs_contracting=[0], lhs_batch=[1, 0], rhs_batch=[2, 1]),
    )
    check_program(p, [{"b": b, "s": s} for b, s in ((2, 3), (0, 4), (1, 1), (3, 33))])


def test_contractions_on_gpus() -> None:
    module = GraphModule.mir("gpu")
    x, y = module.input("x", ["b", "m", 40]), module.input("y", [7, "b", 40])
    pairs: dict[str, Any] = {"lhs_contracting": [2], "rhs_contracting": [2], "lhs_batch": [0], "rhs_batch": [1]}
    module.set_outputs({"z": module.dot_general(x, y, **pairs)})
    given = {"x": normal(2, 5, 40), "y": normal(7, 2, 40, seed=1)}
    found = compile_emulated(module).run(given)["z"]
    np.testing.assert_allclose(found, np.einsum("bmk,nbk->bmn", given["x"], given["y"]), rtol=1e-4, atol=1e-5)


def test_dimensions_are_sequences() -> None:
    module = GraphModule.mir("built")
    x = module.input("x", [2, 3])
    with pytest.raises(BuildError, match="'dot_general' expects a sequence of dimensions, but got 1"):
        module.dot_general(x, x, lhs_contracting=1, rhs_contracting=1)
    with pytest.raises(BuildError, match="equally many entries"):
        module.dot_general(x, x, lhs_contracting=[1])


# Low-rank updates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.quick(2)
def test_lora(dtype: str) -> None:
    p = Program()
    x, line = p.input("x", ["b", "s", 24], dtype), p.input("line", [24], dtype)
    weights = [p.param("w", [24, 17], dtype), p.param("a", [24, 3], dtype), p.param("b", [3, 17], dtype)]
    p.output(y=p.m.lora_matmul(x, *weights, scale=2.0), z=p.m.lora_matmul(line, *weights))
    ways = check_program(p, [{"b": b, "s": s} for b, s in ((2, 3), (0, 4), (1, 17))])
    inputs, params = p.values({"b": 2, "s": 3})
    ways.templates.set_params(params)
    x64, w, a, b = (v.astype(np.float64) for v in (inputs["x"], params["w"], params["a"], params["b"]))
    rounding = {"f32": 1e-5, "f64": 1e-13, "f16": 1e-3, "bf16": 8e-3}[dtype]
    found = ways.templates.run(inputs)["y"].astype(np.float64)
    np.testing.assert_allclose(found, x64 @ w + 2 * (x64 @ a) @ b, rtol=rounding, atol=rounding)


def test_products_in_between_are_not_rounded() -> None:
    """(x a) is 300, which bf16 has, times 1.015625, 304.6875, which it hasn't; less 304 by x w."""
    module = GraphModule.mir("once")
    x = module.input("x", [1, 2], "bf16")
    weights = [module.input(name, shape, "bf16") for name, shape in (("w", [2, 1]), ("a", [2, 1]), ("b", [1, 1]))]
    module.set_outputs({"y": module.lora_matmul(x, *weights, scale=1.015625)})
    given = {"x": [[1, 1]], "w": [[-304], [0]], "a": [[150], [150]], "b": [[1]]}
    found = compile_fresh(module).run({name: np.array(value).astype(x.dtype) for name, value in given.items()})["y"]
    assert float(found[0, 0]) == 0.6875


# Systems of equations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 5, 17, 40])
def test_reference_of_solutions(n: int, dtype: type) -> None:
    a, b = normal(3, n, n, dtype=dtype), normal(3, n, 2, dtype=dtype, seed=1)
    found = REFERENCES["mir.batched_dense_solve"](a, b)
    want = np.linalg.solve(a.astype(np.float64), b.astype(np.float64))
    assert np.abs(found - want).max() <= 1e3 * np.finfo(dtype).eps * np.abs(want).max()
    np.testing.assert_array_equal(REFERENCES["mir.dense_solve"](a[1], b[1, :, 0]), found[1, :, 0])


def systems(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Matrices of which no rounding makes singular ones: their largest elements stand in other rows than the pivots."""
    rows = normal(*shape, dtype=np.float64, seed=seed) / 4
    n = shape[-1]
    place = np.random.default_rng(seed).permutation(n)
    rows[..., place, np.arange(n)] += n
    return rows.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solutions(dtype: type) -> None:
    cases = []
    for n in (0, 1, 2, 8, 17):
        a, b = systems(n, n, dtype=dtype), normal(n, 3, dtype=dtype, seed=1)
        several = systems(2, n, n, dtype=dtype, seed=2)
        cases += [
            case(f"{n}", mir.dense_solve, a, b[:, 0]),
            case(f"{n} dynamic", mir.dense_solve, dyn(a), dyn(b)),
            case(f"{n} sides", mir.dense_solve, a, dyn(b, 1)),
            case(f"{n} batched", mir.batched_dense_solve, several, b[:, :2].T),
            case(f"{n} batched dynamic", mir.batched_dense_solve, dyn(several), dyn(np.stack([b, -b]))),
            case(f"{n} no batch", mir.batched_dense_solve, dyn(several[:0]), b.T[:0]),
            case(f"{n} no side", mir.dense_solve, dyn(a), b[:, :0]),
        ]
    check(cases)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_has_no_solution_is_nan(dtype: type) -> None:
    """A pivot of 0 gives NaN throughout its own system; NaN in a matrix does, too, in a right side in its own."""
    n = 5
    a, b = systems(6, n, n, dtype=dtype), normal(6, n, 2, dtype=dtype, seed=1)
    a[0] = 0
    a[1] = np.ones((n, n))  # the second pivot is 0
    a[2, :, -1] = 0  # the last
    a[3, 3, 1] = np.nan
    b[4, 2, 1] = np.nan
    found = REFERENCES["mir.batched_dense_solve"](a, b)
    assert np.isnan(found[:4]).all()
    assert np.isnan(found[4, :, 1]).all()
    assert np.isfinite(found[4, :, 0]).all()
    assert np.isfinite(found[5]).all()
    check([case("singular", mir.batched_dense_solve, dyn(a), b), case("zero", mir.dense_solve, a[0], b[0])])


def test_pivots_are_chosen() -> None:
    """Without exchanges the first quotient would be 1 / 1e-20, and nothing of the second row be left."""
    a, b = np.array([[1e-20, 1], [1, 1]], np.float32), np.array([1, 2], np.float32)
    np.testing.assert_array_equal(REFERENCES["mir.dense_solve"](a, b), [1, 1])
    check([case("small pivot", mir.dense_solve, a, b)])


def test_solutions_of_symbols() -> None:
    module = GraphModule.mir("solve")
    a, b = module.input("a", ["b", "n", "n"], "f64"), module.input("b", ["b", "n", "k"], "f64")
    one, side = module.input("one", ["n", "n"]), module.input("side", ["n"])
    module.set_outputs({"x": module.batched_dense_solve(a, b), "y": module.dense_solve(one, side)})
    executables = [compile_fresh(module, threads=threads) for threads in (1, 2)]
    for batch, n, k in ((1, 1, 1), (3, 16, 5), (0, 4, 2), (2, 0, 3), (2, 9, 0), (2, 33, 1)):
        given = {
            "a": systems(batch, n, n, dtype=np.float64),
            "b": normal(batch, n, k, dtype=np.float64),
            "one": systems(n, n),
            "side": normal(n),
        }
        want = {"x": np.linalg.solve(given["a"], given["b"]), "y": np.linalg.solve(given["one"], given["side"])}
        for executable in executables:
            for name, found in executable.run(given).items():
                np.testing.assert_allclose(found, want[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_template_of_solutions(dtype: str) -> None:
    """Around whole blocks and tiles; a batch item that has no solution leaves others alone."""
    module = GraphModule.mir("template")
    a, b = module.input("a", ["b", "n", "n"], dtype), module.input("b", ["b", "n", "k"], dtype)
    module.set_outputs({"x": module.batched_dense_solve(a, b)})
    executable = compile_fresh(module, threads=2)
    assert set(templates_of(executable).values()) == {"solve"}
    tolerance = 1e-4 if dtype == "f32" else 1e-12
    for n, k in ((1, 1), (7, 2), (8, 8), (9, 17), (16, 1), (31, 9), (65, 3)):
        given = {"a": systems(4, n, n, dtype=DTYPES[dtype]), "b": normal(4, n, k, dtype=DTYPES[dtype])}
        given["a"][1, :, n // 2] = 0
        given["a"][2, 0, 0] = np.nan
        found = executable.run(given)["x"]
        assert np.isnan(found[1:3]).all()
        want = np.linalg.solve(given["a"][[0, 3]].astype(np.float64), given["b"][[0, 3]].astype(np.float64))
        np.testing.assert_allclose(found[[0, 3]], want, rtol=tolerance, atol=tolerance)


def test_solutions_on_gpus() -> None:
    module = GraphModule.mir("gpu")
    a, b = module.input("a", ["b", 6, 6]), module.input("b", ["b", 6])
    module.set_outputs({"x": module.batched_dense_solve(a, b)})
    executable = compile_emulated(module)
    for batch in (0, 1, 3):
        given = {"a": systems(batch, 6, 6), "b": normal(batch, 6)}
        want = np.linalg.solve(given["a"], given["b"][..., None])[..., 0]
        np.testing.assert_allclose(executable.run(given)["x"], want, rtol=1e-4, atol=1e-6)


def test_matrices_are_square_when_they_run() -> None:
    module = GraphModule.mir("sizes")
    module.set_outputs({"x": module.dense_solve(module.input("a", ["m", "n"]), module.input("b", ["n"]))})
    given = {"a": normal(3, 4), "b": normal(4)}
    for run in (compile_fresh(module).run, lambda given: interpret(module, given)):
        with pytest.raises(InputError, match=r"mir\.dense_solve"):
            run(given)
