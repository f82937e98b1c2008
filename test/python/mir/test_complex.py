# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex numbers: arithmetic, parts, moves, sums, casts, constants, arrays in and out."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from linalg_harness import case, check, dyn
from test_arrays import Foreign

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import BuildError, InputError, UnsupportedError
from rlx_mlir.mir import REFERENCES
from rlx_mlir.mir.numerics import is_float, joined_parts, parts
from rlx_mlir.runtime.loading import load
from rlx_mlir.verify.tolerance import Expected, difference

WORD = "complex<f32>"
C64 = np.dtype(np.complex64)
#: None, one, odd, around the width of vectors, and beyond what one thread takes.
SIZES = (0, 1, 3, 4, 5, 7, 8, 9, 333)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return joined_parts(*(rng.standard_normal(shape).astype(np.float32) for _ in "ri"))


def check_close(got: dict[str, np.ndarray], want: dict[str, np.ndarray], units: float = 4.0) -> None:
    """Within some units of f32, relative to the magnitude; what isn't finite is the same, part by part."""
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].dtype == array.dtype, name
        assert got[name].shape == array.shape, name
        size = np.abs(array.astype(np.complex128))
        allowed = units * 2.0**-23 * np.where(np.isfinite(size), size, 0.0)
        a, b = parts(array), parts(got[name])
        if array.dtype == C64:
            allowed = np.broadcast_to(allowed[..., None], a.shape)
        same = (a == b) | ((a != a) & (b != b))
        with np.errstate(invalid="ignore"):
            near = np.isfinite(a) & np.isfinite(b) & (np.abs(np.subtract(a, b, dtype=np.float64)) <= allowed)
        assert (same | near).all(), f"{name}: {array}, but got {got[name]}"


def check_module(module: GraphModule, given_of: Callable[[int], Any], want_of: Callable[[Any], Any]) -> None:
    """Interpreted, and compiled for one thread and for two, at every size."""
    executables = [rlx.compile(module, threads=threads, cache=False) for threads in (1, 2)]
    for rows in SIZES:
        given = given_of(rows)
        with np.errstate(all="ignore"):
            want = want_of(given)
        check_close(interpret(module, given), want)
        for executable in executables:
            check_close(executable.run(given), want)


def arithmetic() -> GraphModule:
    module = GraphModule.mir("arithmetic")
    x, y = module.input("x", ["n", 5], WORD), module.input("y", [5], WORD)
    f = module.input("f", ["n", 1])
    module.set_outputs(
        {
            "add": x + y,
            "sub": x - y,
            "mul": x * y,
            "div": x / y,
            "neg": -x,
            "numbers": (x * 2 - 1j) / (1 + 2j),
            "real": module.real(x),
            "imag": module.imag(x),
            "conjugate": module.conjugate(x),
            "norm": module.complex_norm_sq(x),
            "norm_backward": module.complex_norm_sq_backward(x, module.imag(x)),
            "exp": module.exp(x),
            "log": module.log(x),
            "sqrt": module.sqrt(x),
            "made": module.complex(f, module.real(x)),
            "chosen": module.where(f > 0.0, x, y),
        }
    )
    return module


def inputs(rows: int) -> dict[str, np.ndarray]:
    return {
        "x": numbers(rows, 5, seed=rows),
        "y": numbers(5, seed=1000 + rows),
        "f": np.random.default_rng(rows).standard_normal((rows, 1)).astype(np.float32),
    }


def expected(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By numpy, in complex128 where results are rounded."""
    x, y, f = given["x"], given["y"], given["f"]
    wide = x.astype(np.complex128)
    return {
        "add": x + y,
        "sub": x - y,
        "mul": (wide * y).astype(C64),
        "div": (wide / y).astype(C64),
        "neg": -x,
        "numbers": ((wide * 2 - 1j) / (1 + 2j)).astype(C64),
        "real": x.real,
        "imag": x.imag,
        "conjugate": np.conjugate(x),
        "norm": (wide.real**2 + wide.imag**2).astype(np.float32),
        "norm_backward": (wide * x.imag).astype(C64),
        "exp": np.exp(wide).astype(C64),
        "log": np.log(wide).astype(C64),
        "sqrt": np.sqrt(wide).astype(C64),
        "made": f + 1j * x.real.astype(C64),
        "chosen": np.where(f > 0, x, y),
    }


def test_arithmetic():
    check_module(arithmetic(), inputs, expected)


SPECIAL = np.array(
    [
        *(0, -0.0, 1, complex(0, -1), complex(-0.0, 2), complex(np.inf, 1)),
        *(complex(3, -np.inf), complex(np.nan, 1), 1e30j, 1e-30),
    ],
    C64,
)


def test_loops_are_the_references():
    """Infinities, NaN, zeros and numbers whose squares overflow included; static, dynamic, broadcast, of nothing."""
    x, y = SPECIAL[:, None], SPECIAL
    cases = []
    for name in ("add", "sub", "mul", "div"):
        op = getattr(mir, name)
        cases += [case(name, op, x, y), case(f"{name} dynamic", op, dyn(x, 0), dyn(y))]
        cases += [case(f"{name} of nothing", op, dyn(x[:0], 0), y)]
    for name in ("neg", "conjugate", "real", "imag", "complex_norm_sq", "exp", "log", "sqrt"):
        cases += [case(name, getattr(mir, name), dyn(y)), case(f"{name} of nothing", getattr(mir, name), y[:0])]
    gradient = np.linspace(-1, 2, y.size).astype(np.float32)
    for part in (y, y[:0], np.stack([y, y])):
        g = np.resize(gradient, part.shape)
        cases.append(case(f"norm backward {part.shape}", mir.complex_norm_sq_backward, dyn(part), dyn(g)))
    with np.errstate(all="ignore"):
        check([*cases, case("complex", mir.complex, y.real.copy(), dyn(y.imag.copy()[:, None], 0))])


def test_references_by_hand():
    z = np.array([3 - 4j, complex(-0.0, np.inf)], C64)
    np.testing.assert_array_equal(REFERENCES["mir.complex_norm_sq"](z), np.array([25, np.inf], np.float32))
    np.testing.assert_array_equal(
        parts(REFERENCES["mir.conjugate"](z)), np.array([[3, 4], [-0.0, -np.inf]], np.float32)
    )
    made = REFERENCES["mir.complex"](np.array([1, np.inf], np.float32), np.array([np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(parts(made), np.array([[1, np.inf], [np.inf, np.nan]], np.float32))
    large = np.array([3e30 + 4e30j], C64)
    np.testing.assert_allclose(REFERENCES["mir.div"](large, large), [1])
    with np.errstate(all="ignore"):
        assert np.isnan(parts(REFERENCES["mir.div"](np.ones(1, C64), np.zeros(1, C64)))).all()


def of_parts(*pairs: tuple[float, float]) -> np.ndarray:
    with np.errstate(over="ignore"):
        return joined_parts(*np.array(pairs, np.float32).T)


def test_branches_and_infinities():
    """The angle's sign is that of the imaginary part, of zeros too; no square overflows; real numbers stay real."""
    inf, nan, quarter = np.inf, np.nan, np.float32(np.pi / 4)
    pi, root = np.float32(np.pi), cmath.sqrt(3e38 + 3e38j)
    cases = {
        "log": [
            ((-1.0, 0.0), (0.0, pi)),
            ((-1.0, -0.0), (0.0, -pi)),
            ((1.0, -0.0), (0.0, -0.0)),
            ((0.0, 0.0), (-inf, 0.0)),
            ((-0.0, -0.0), (-inf, -pi)),
            ((inf, -inf), (inf, -quarter)),
            ((-inf, 3.0), (inf, pi)),
            ((3e38, 3e38), (math.log(3e38) + math.log(2) / 2, quarter)),
            ((nan, 1.0), (nan, nan)),
        ],
        "sqrt": [
            ((-4.0, 0.0), (0.0, 2.0)),
            ((-4.0, -0.0), (0.0, -2.0)),
            ((0.0, -0.0), (0.0, -0.0)),
            ((-0.0, 0.0), (0.0, 0.0)),
            ((3e38, 3e38), (root.real, root.imag)),
            ((-inf, -1.0), (0.0, -inf)),
            ((inf, 1.0), (inf, 0.0)),
            ((nan, inf), (inf, inf)),
            ((1e-20, 0.0), (1e-10, 0.0)),
        ],
        "exp": [
            ((1.0, -0.0), (np.e, -0.0)),
            ((inf, 0.0), (inf, 0.0)),
            ((-inf, 2.0), (-0.0, 0.0)),
            ((89.0, 1.57), tuple(np.exp(89.0) * part(np.float64(np.float32(1.57))) for part in (np.cos, np.sin))),
            ((89.0, -1.5707963), (np.exp(89.0) * np.cos(np.float64(np.float32(1.5707963))), -inf)),
            ((0.0, inf), (nan, nan)),
        ],
    }
    for name, pairs in cases.items():
        z, want = of_parts(*(given for given, _ in pairs)), of_parts(*(found for _, found in pairs))
        module = GraphModule.mir("branches")
        module.set_outputs({"y": getattr(module, name)(module.input("z", ["n"], WORD))})
        with np.errstate(all="ignore"):
            for got in (interpret(module, {"z": z}), rlx.compile(module, cache=False).run({"z": z})):
                np.testing.assert_allclose(parts(got["y"]), parts(want), rtol=2e-6, err_msg=name)
                signs = np.signbit(parts(got["y"])) == np.signbit(parts(want))
                assert (signs | np.isnan(parts(want))).all(), f"{name}: {got['y']}"


def test_the_gradient_of_squares_is_half_the_real_one():
    """(d/da + i d/db) (a^2 + b^2) / 2, by differences."""
    z, step = numbers(5).astype(np.complex128), 1e-6
    squares = REFERENCES["mir.complex_norm_sq"]
    found = REFERENCES["mir.complex_norm_sq_backward"](z, np.full(5, 3.0))
    along = [(squares(z + step * unit) - squares(z - step * unit)) / (2 * step) for unit in (1, 1j)]
    np.testing.assert_allclose(found, 3 * (along[0] + 1j * along[1]) / 2, rtol=1e-8)


def moves() -> GraphModule:
    module = GraphModule.mir("moves")
    x, y = module.input("x", ["n", 6], WORD), module.input("y", ["m", 6], WORD)
    at = module.input("at", ["n"], "i32")
    module.set_outputs(
        {
            "turned": module.transpose(x),
            "split": module.reshape(x, [-1, 3]),
            "joined": module.concat([x, y, x], 0),
            "sliced": x[1:, ::2],
            "backwards": x[:, ::-1],
            "narrowed": module.narrow(x, 1, 2, 3),
            "expanded": module.expand(module.reshape(x, [-1, 1, 6]), ["n", 4, 6]),
            "taken": module.gather(y, at),
            "sum": x.sum(0),
            "rows": module.sum(x, 1, keep_dims=True),
            "all": x.sum(),
            "mean": x.mean(1),
        }
    )
    return module


def test_moves_and_sums():
    def given_of(rows: int) -> dict[str, np.ndarray]:
        at = np.random.default_rng(rows).integers(0, 3, rows).astype(np.int32)
        return {"x": numbers(rows, 6, seed=rows), "y": numbers(3, 6), "at": at}

    def want_of(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        x, y, n = given["x"], given["y"], len(given["x"])
        wide = x.astype(np.complex128)
        return {
            "turned": x.T,
            "split": x.reshape(-1, 3),
            "joined": np.concatenate([x, y, x]),
            "sliced": x[1:, ::2],
            "backwards": x[:, ::-1],
            "narrowed": x[:, 2:5],
            "expanded": np.broadcast_to(x[:, None], (n, 4, 6)),
            "taken": y[given["at"]],
            "sum": wide.sum(0).astype(C64),
            "rows": wide.sum(1, keepdims=True).astype(C64),
            "all": np.asarray(wide.sum().astype(C64)),
            "mean": wide.mean(1).astype(C64),
        }

    check_module(moves(), given_of, want_of)


def casts() -> GraphModule:
    """From and to every type."""
    module = GraphModule.mir("casts")
    z = module.input("z", ["n"], WORD)
    others = [word for word in DTYPES if word != WORD]
    outputs = {f"to {word}": module.cast(z, word) for word in others}
    outputs |= {f"from {word}": module.cast(module.input(word.lower(), ["n"], word), WORD) for word in others}
    module.set_outputs(outputs)
    return module


def test_casts():
    """Of complex numbers the real part stays; other numbers get an imaginary part of 0."""
    real = np.array([0, -0.0, 1.5, -2.5, 100, 300, 70000, 1e12, -1e12, np.inf, -np.inf, np.nan], np.float32)
    z = joined_parts(real, np.full(real.shape, np.inf, np.float32))
    z[0] = complex(0, 2)
    z[1] = 0
    given, want = {"z": z}, {}
    others = {word: dtype for word, dtype in DTYPES.items() if word != WORD}
    cast = REFERENCES["mir.cast"]
    for word, dtype in others.items():
        given[word.lower()] = cast(real, result_dtype=dtype)
        want[f"to {word}"] = cast(real, result_dtype=dtype)
        want[f"from {word}"] = given[word.lower()].astype(np.float32) + np.complex64(0)
    want["to i1"] = np.array([True, False, *[True] * 10])
    for got in (interpret(casts(), given), rlx.compile(casts(), cache=False).run(given)):
        for name, array in want.items():
            assert got[name].dtype == array.dtype, name
            a, b = parts(array), parts(got[name])
            same = (a == b) | ((a != a) & (b != b)) if is_float(a.dtype) else a == b
            assert same.all(), f"{name}: {array}, but got {got[name]}"
            assert array.dtype != C64 or not b[..., 1].any(), name


# ----------------------------------------------------------------------------------------------------------------------
# Constants, text, arrays, artefacts, errors
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [GraphModule.hir, GraphModule.mir], ids=["hir", "mir"])
def test_constants(make):
    """They are made of two; of Python's numbers and of arrays."""
    module = make("constants")
    x = module.input("x", ["n"], WORD)
    table = np.array([1 + 2j, complex(np.inf, -0.0), -3j], C64)
    module.set_outputs(
        {
            "array": x + table,
            "number": x + 2.5,
            "by_hand": module.constant([1j, 2]),
            "wide": module.constant(np.array(1 + 1j), "c64"),
        }
    )
    given = {"x": np.zeros(3, C64)}
    want = {
        "array": table,
        "number": np.full(3, 2.5, C64),
        "by_hand": np.array([1j, 2], C64),
        "wide": np.array(1 + 1j, C64),
    }
    check_close(interpret(module, given), want, 0.0)
    check_close(rlx.compile(module, cache=False).run(given), want, 0.0)
    with pytest.raises(BuildError, match=r"broadcast"):
        x + np.zeros((2, 2), C64) + table
    count = module.to_text().count("mir.complex")
    with pytest.raises(BuildError, match=r"same element type"):
        module.add(module.real(x), table)
    assert module.to_text().count("mir.complex") == count  # what was made for an operation that failed is gone


def test_text_and_bytecode():
    for module in (arithmetic(), moves(), casts()):
        text = module.to_text()
        assert "xcomplex<f32>>" in text
        assert GraphModule.from_text(text).to_text() == text
        assert GraphModule.from_bytecode(module.bytecode(), trusted=True).to_text() == text


def test_compilation_goes_on_from_text_of_any_stage():
    given = inputs(9)
    for stage in ("kernels", "lir", "linalg"):
        text = rlx.emit(arithmetic(), stage)
        check_close(rlx.compile(GraphModule.from_text(text, stage=stage), cache=False).run(given), expected(given))


def scaled(dtype: Any) -> GraphModule:
    module = GraphModule.mir("scaled")
    module.set_outputs({"y": module.input("x", ["n"], dtype) * module.param("w", [1], dtype)})
    return module


def test_arrays_in_and_out(tmp_path: Path):
    """From numpy and DLPack, by word or numpy's type; kept in artefacts; other types are refused by name."""
    x, w = numbers(4), np.array([1j], C64)
    for dtype in ("c64", "complex64", np.complex64):
        assert scaled(dtype).to_text() == scaled(WORD).to_text()
    want = {"y": joined_parts(-x.imag, x.real)}
    path = tmp_path / "scaled.rlx"
    rlx.compile(scaled(WORD), cache=False).artifact.save(path)
    executable = load(path)
    assert executable.inputs[0].dtype == WORD
    for given, own in ((x, w), (Foreign(x), Foreign(w)), (np.repeat(x, 2)[::2], w)):
        executable.set_params({"w": own})
        check_close(executable.run({"x": given}), want, 0.0)
        check_close(interpret(scaled(WORD), {"x": given, "w": own}), want, 0.0)
    for run in (executable.run, lambda given: interpret(scaled(WORD), {**given, "w": w})):
        for wrong in (np.zeros(4, np.complex128), np.zeros(4, np.float32)):
            with pytest.raises(InputError, match=rf"element type complex64, but got {wrong.dtype.name}"):
                run({"x": wrong})


def test_errors_name_what_is_wrong():
    module = GraphModule.mir("wrong")
    z, x = module.input("z", [4], WORD), module.input("x", [4])
    with pytest.raises(BuildError, match="kind sum or mean of complex numbers, but got max"):
        z.max()
    with pytest.raises(BuildError, match=r"'mir.compare' op expects 'lhs' to be dense tensor of a float, i8 to i64"):
        _ = z < z
    with pytest.raises(BuildError, match=r"'mir.tanh' op expects 'x' to be dense tensor of f16, bf16, f32 or f64"):
        module.tanh(z)
    with pytest.raises(BuildError, match=r"expects 'z' and 'g' to have one shape, but got \[4\] and \[1\]"):
        module.complex_norm_sq_backward(z, np.ones(1, np.float32))
    with pytest.raises(BuildError, match="got complex 1j"):
        x + 1j
    with pytest.raises(BuildError, match="out of range for complex<f32>"):
        z + 1e300j
    with pytest.raises(BuildError, match="unknown element type 'complex128'"):
        module.input("w", [4], "complex128")


def test_gpus_say_what_they_do_not_have():
    with pytest.raises(UnsupportedError, match="no code for GPUs with values of complex<f32>"):
        rlx.compile(arithmetic(), target="nvptx", chip="sm_80", cache=False)


def test_verification_sees_both_parts():
    """Tolerances are relative to the magnitude; an imaginary part that differs is found."""
    z = numbers(7)
    near = Expected(z, relative=2.0**-22)
    assert difference(near, z * np.complex64(1 + 1e-7)) is None
    wrong = z.copy()
    wrong.imag[3] += 0.25
    found = difference(near, wrong)
    assert found is not None
    assert found.index == (3, 1)
    executable = rlx.compile(arithmetic(), cache=False, verify="numeric")
    check_close(executable.run(inputs(3)), expected(inputs(3)))
