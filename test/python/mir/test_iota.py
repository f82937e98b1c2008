# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""mir.iota: positions along a dimension of static and symbolic shapes, on CPUs and GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device
from linalg_harness import case, check, dyn

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret, ir
from rlx_mlir.dialects import mir
from rlx_mlir.errors import BuildError, InputError
from rlx_mlir.mir import REFERENCES

DTYPES = {"i32": np.dtype(np.int32), "i64": np.dtype(np.int64), "f32": np.dtype(np.float32)}
by_dtype = pytest.mark.parametrize("dtype", DTYPES)


def along(shape: tuple[int, ...], axis: int, dtype: np.dtype) -> np.ndarray:
    """The positions, by numpy's own."""
    return np.indices(shape)[axis].astype(dtype)


@by_dtype
def test_reference(dtype):
    for shape, axis in [((5,), 0), ((0,), 0), ((2, 3), 0), ((2, 3), 1), ((4, 1, 3), 2), ((2, 0, 3), 2)]:
        attributes = {"axis": axis, "result_shape": shape, "result_dtype": DTYPES[dtype]}
        got = REFERENCES["mir.iota"](**attributes)
        assert got.dtype == DTYPES[dtype]
        np.testing.assert_array_equal(got, along(shape, axis, DTYPES[dtype]))
    like = np.zeros((7, 0, 2))
    attributes = {"axis": 1, "like_dims": [-1, 0, 1], "result_shape": [3, -1, -1], "result_dtype": DTYPES[dtype]}
    np.testing.assert_array_equal(REFERENCES["mir.iota"](like, **attributes), along((3, 7, 0), 1, DTYPES[dtype]))


def test_f32_is_rounded_as_by_a_cast():
    attributes = {"axis": 0, "result_shape": [2**24 + 4], "result_dtype": np.dtype(np.float32)}
    tail = REFERENCES["mir.iota"](**attributes)[-4:]
    assert tail.tolist() == [2.0**24, 2.0**24, 2.0**24 + 2, 2.0**24 + 4]


def build(text: str, axis: int, dims: list[int] | None = None) -> Any:
    """A function that makes the operation from its operand, if there is one."""
    return lambda *like: mir.IotaOp(ir.Type.parse(text), axis, like=like[0] if like else None, like_dims=dims)


@by_dtype
def test_loops_are_the_reference(dtype):
    x = np.zeros((3, 17, 2), np.float16)
    check(
        [
            case("static", build(f"tensor<5x{dtype}>", 0)),
            case("static, 3 dimensions", build(f"tensor<2x3x4x{dtype}>", 1)),
            case("of nothing", build(f"tensor<0x4x{dtype}>", 1)),
            case("dynamic", build(f"tensor<?x{dtype}>", 0, [1]), dyn(x)),
            case("dynamic of nothing", build(f"tensor<?x4x{dtype}>", 1, [0, -1]), dyn(x[:0])),
            case("dynamic, of a static size", build(f"tensor<?x?x{dtype}>", 0, [2, 1]), x),
            case("static, of a dynamic size", build(f"tensor<17x?x{dtype}>", 0, [1, 1]), dyn(x)),
        ]
    )


def positions() -> GraphModule:
    """Positions in a batch of sequences, and a mask and sums that are made of them."""
    module = GraphModule.mir("positions")
    x = module.input("x", ["batch", "seq", 3])
    along_seq = module.iota(["seq"])
    later = module.iota(["seq", 1], dtype="i64") < module.iota([1, "seq"], -1, "i64")
    rows = module.iota(["batch", "seq", 3], 1, "f32")
    module.set_outputs(
        {
            "static": module.iota([2, 5], 1),
            "seq": along_seq,
            "odd": along_seq % 2,
            "later": later,
            "weighted": x * rows,
            "last": module.iota([4, "batch"], -1, "f32"),
        }
    )
    return module


def inputs(batch: int, seq: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seq).normal(size=(batch, seq, 3)).astype(np.float32)}


def expected(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    x = given["x"]
    batch, seq, _ = x.shape
    line = np.arange(seq)
    return {
        "static": along((2, 5), 1, DTYPES["i32"]),
        "seq": line.astype(np.int32),
        "odd": (line % 2).astype(np.int32),
        "later": line[:, None] < line,
        "weighted": x * line[:, None].astype(np.float32),
        "last": along((4, batch), 1, DTYPES["f32"]),
    }


def check_equal(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].dtype == array.dtype, name
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def test_symbols_of_the_result():
    module = GraphModule.mir("symbols")
    x = module.input("x", ["batch", "seq", 3])
    y, z = module.concat([x, x], axis=1), module.input("z", ["rows"])
    assert module.iota([4, "seq"], 1).shape == (4, "seq")
    assert module.iota(["2*seq", "batch"]).shape == (*y.shape[1:2], "batch") == ("2*seq", "batch")
    assert module.iota([4, 3]).shape == (4, 3)
    assert "like" not in str(module.iota([4, 3])._resolve().owner)
    assert module.primitives.iota(z.shape).shape == ("rows",)


def test_on_cpus():
    executable = rlx.compile(positions(), cache=False)
    for batch, seq in ((0, 3), (1, 0), (1, 1), (2, 17), (3, 100)):
        given = inputs(batch, seq)
        check_equal(interpret(positions(), given), expected(given))
        check_equal(executable.run(given), expected(given))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sizes_of_several_values(axis):
    """One value has one symbol, and another one the other."""
    module = GraphModule.mir("several")
    module.input("x", [2, "rows"])
    module.input("y", ["columns", 3])
    module.set_outputs({"grid": module.iota(["rows", 2, "columns"], axis, "i64")})
    executable = rlx.compile(module, cache=False)
    for rows, columns in ((1, 1), (0, 4), (5, 7)):
        given = {"x": np.zeros((2, rows), np.float32), "y": np.zeros((columns, 3), np.float32)}
        want = {"grid": along((rows, 2, columns), axis, DTYPES["i64"])}
        check_equal(interpret(module, given), want)
        check_equal(executable.run(given), want)


def test_a_size_that_differs_is_refused():
    """Where the type says another size than `like` has."""
    text = """
      func.func @f(%x: tensor<?xf32> {mir.kind = "input", mir.name = "x", mir.dims = ["n"]})
          -> (tensor<4xi32> {mir.name = "y"}) {
        %y = mir.iota axis 0 like %x dims [0] : tensor<?xf32> to tensor<4xi32>
        return %y : tensor<4xi32>
      }"""
    executable = rlx.compile(GraphModule.from_text(text, stage="mir"), cache=False)
    np.testing.assert_array_equal(executable.run({"x": np.zeros(4, np.float32)})["y"], [0, 1, 2, 3])
    with pytest.raises(InputError, match=r"'mir.iota'"):
        executable.run({"x": np.zeros(5, np.float32)})


def test_of_bound_sizes():
    given = inputs(2, 5)
    bound = positions().bind(batch=2, seq=5)
    assert "tensor<5xi32>" in bound.to_text()
    check_equal(rlx.compile(bound, cache=False).run(given), expected(given))


def test_on_gpus():
    with emulated_device("sm_80"):
        executable = rlx.compile(positions(), target="cuda", chip="sm_80", cache=False)
        for batch, seq in ((1, 1), (2, 17)):
            given = inputs(batch, seq)
            check_equal(executable.run(given), expected(given))


def test_text_and_bytecode():
    module = positions()
    text = module.to_text()
    assert GraphModule.from_text(text).to_text() == text
    assert GraphModule.from_bytecode(module.bytecode(), trusted=True).to_text() == text


def test_errors():
    module = GraphModule.mir("wrong")
    module.input("x", ["n", 3])
    with pytest.raises(
        BuildError, match=r"'m' where a value has a dimension of that size, but new_shape is \[4, 'm'\]"
    ):
        module.iota([4, "m"])
    with pytest.raises(BuildError, match=r"'mir.iota' expects a sequence of sizes and symbols, but got 4"):
        module.iota(4)
    with pytest.raises(BuildError, match=r"expects 'axis' to be a dimension of the result, whose rank is 1, but got 1"):
        module.iota([4], 1)
    with pytest.raises(BuildError, match=r"must be dense tensor of f32, i32, i64 or ui8 to ui32 index"):
        module.iota([4], dtype="f16")
    with pytest.raises(BuildError, match=r"'axis' is an integer, but got 'x'"):
        module.iota([4], "x")
