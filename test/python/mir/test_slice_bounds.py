# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slices whose bounds are sizes or values, updates of slices, and dimensions that are split and joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from compile_harness import compare, compile_fresh
from cuda_harness import emulated_device
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx_mlir as rlx
from rlx_mlir import GraphModule, Value, interpret
from rlx_mlir.errors import BuildError, InputError, UnsupportedError
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.shape import slice_sizes

LENGTHS = (0, 1, 2, 7, 300)

#: Bounds of a dimension of size s, with k the size of another one: as text, and as Python has them.
BOUNDS: dict[str, tuple[Any, Any, int, Callable[[int, int], slice]]] = {
    "to another's size": (None, "k", 1, lambda s, k: slice(k)),
    "from another's size": ("k", None, 1, lambda s, k: slice(k, None)),
    "half": ("floordiv(s, 2)", None, 1, lambda s, k: slice(s // 2, None)),
    "first half": (None, "floordiv(s, 2)", 1, lambda s, k: slice(s // 2)),
    "last": ("max(s - k, 0)", None, 1, lambda s, k: slice(max(s - k, 0), None)),
    "may be negative": ("s - k", "s", 1, lambda s, k: slice(s - k, s)),
    "both may be": ("k - s", "s - k", 1, lambda s, k: slice(k - s, s - k)),
    "from the end": ("-k - 1", None, 1, lambda s, k: slice(-k - 1, None)),
    "beyond": ("s + 1", "2*s + k", 1, lambda s, k: slice(s + 1, 2 * s + k)),
    "size and number": ("k", -1, 2, lambda s, k: slice(k, -1, 2)),
    "number and size": (1, "ceildiv(s, 3)", 3, lambda s, k: slice(1, -(-s // 3), 3)),
    "backwards": ("k", "s - 2*k", -1, lambda s, k: slice(k, s - 2 * k, -1)),
    "backwards from the end": ("-k - 1", None, -2, lambda s, k: slice(-k - 1, None, -2)),
    "product": ("k*s - 5", "k*k", 1, lambda s, k: slice(k * s - 5, k * k)),
}

bounds = st.one_of(st.none(), st.integers(-4, 4))


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def run_both(executable: rlx.Executable, m: GraphModule, inputs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [executable.run(inputs), interpret(m, inputs)]


# -- bounds that are sizes -------------------------------------------------------------------------------------------


def with_bounds(s: int, k: int, first: Any, last: Any, step: int) -> tuple[list[Size | None], range]:
    """Bounds a k + b, of any sign, as sizes, None where they are left out; and what Python's slice with them takes."""
    sizes: list[Size | None] = []
    numbers = []
    for factor, summand in (first, last):
        is_open = factor is None or summand is None
        sizes.append(None if is_open else Size.of("k") * factor + summand)
        numbers.append(None if is_open else k * factor + summand)
    return sizes, range(s)[slice(*numbers, step)]


slices = given(*[st.integers(0, 7)] * 2, *[st.tuples(bounds, bounds)] * 2, st.integers(-3, 3).filter(bool))


@settings(max_examples=300, deadline=None)
@slices
def test_sizes_of_slices(s: int, k: int, first: Any, last: Any, step: int) -> None:
    sizes, wanted = with_bounds(s, k, first, last, step)
    begin, count = slice_sizes(Size.of("s"), *sizes, step)
    assert count.evaluate({"s": s, "k": k}) == len(wanted)
    assert not wanted or begin.evaluate({"s": s, "k": k}) == wanted[0]


@settings(max_examples=60, deadline=None)  # each is a module
@slices
def test_types_of_slices(s: int, k: int, first: Any, last: Any, step: int) -> None:
    """The verifier takes the size that there are, of a text with such bounds."""
    sizes, wanted = with_bounds(s, k, first, last, step)
    m = GraphModule.mir("static")
    x, like = m.input("x", [s, 2]), m.input("like", [k])
    text = [
        f'{name} "{str(size).replace("k", "d0")}"'
        for name, size in zip(("start", "stop"), sizes, strict=True)
        if size is not None
    ]
    parsed = GraphModule.from_text(
        f"func.func @f(%x: {x._handle.type}, %y: {like._handle.type}) -> tensor<{len(wanted)}x2xf32> {{\n"
        f"  %r = mir.slice %x axis 0 {' '.join(text)} step {step} like %y dims [0] : {x._handle.type}, "
        f"{like._handle.type}\n  return %r : tensor<{len(wanted)}x2xf32>\n}}"
    )
    assert next(iter(parsed.outputs.values())).shape == (len(wanted), 2)


@pytest.mark.parametrize("threads", [1, 2])
def test_bounds_that_are_sizes(threads: int) -> None:
    """One executable for all sizes, equal to numpy's slices of numbers."""
    m = GraphModule.mir("bounds")
    x, like = m.input("x", ["b", "s", 3]), m.input("like", ["k"], "i32")
    outputs = {name: x[:, slice(start, stop, step)] for name, (start, stop, step, _) in BOUNDS.items()}
    m.set_outputs({**outputs, "like": like})
    compiled = rlx.compile(m, cache=False, threads=threads, maxima={"b": 3, "s": 300, "k": 20})
    for s in LENGTHS:
        for k in (0, 1, 3, 20):
            inputs = {"x": array(2 if s < 100 else 1, s, 3), "like": np.zeros(k, np.int32)}
            for found in run_both(compiled, m, inputs):
                for name, (*_, key) in BOUNDS.items():
                    np.testing.assert_array_equal(found[name], inputs["x"][:, key(s, k)], err_msg=f"{name}: {s}, {k}")


@pytest.mark.parametrize("size", [0, 1, 9])
@pytest.mark.quick(1)
def test_sizes_of_static_dimensions(size: int) -> None:
    """The dimension is known, the bounds aren't."""
    m = GraphModule.mir("static")
    x, y = m.input("x", [size, 2]), m.input("y", ["s", "k"])
    m.set_outputs({name: x[slice(a, b, step)] for name, (a, b, step, _) in BOUNDS.items()} | {"y": y})
    compiled = compile_fresh(m)
    for s, k in ((0, 1), (1, 0), (5, 2), (12, 30)):
        inputs = {"x": array(size, 2), "y": array(s, k)}
        for found in run_both(compiled, m, inputs):
            for name, (*_, key) in BOUNDS.items():
                np.testing.assert_array_equal(found[name], inputs["x"][key(s, k)], err_msg=f"{name}: {s}, {k}")


def test_positions_that_are_sizes() -> None:
    """One element; where it isn't there, the call is refused."""
    m = GraphModule.mir("positions")
    x, size = m.input("x", ["s", 4]), m.size("s")
    m.set_outputs({"middle": x[size // 2], "last": x[size - 1, 1:], "fourth from the end": x[size - 4]})
    compiled = compile_fresh(m)
    assert [output.shape for output in compiled.outputs] == [(4,), (3,), (4,)]
    for s in (3, 4, 9):
        if s == 3:  # -1 is no position
            with pytest.raises(InputError, match="'s' is 3"):
                compiled.run({"x": array(s, 4)})
            continue
        inputs = {"x": array(s, 4)}
        for found in run_both(compiled, m, inputs):
            np.testing.assert_array_equal(found["middle"], inputs["x"][s // 2])
            np.testing.assert_array_equal(found["last"], inputs["x"][s - 1, 1:])
            np.testing.assert_array_equal(found["fourth from the end"], inputs["x"][s - 4])


def test_sizes_that_meet() -> None:
    """Sizes that follow are those of other values: what is written in two ways meets without a condition."""
    m = GraphModule.mir("meet")
    x, y = m.input("x", ["s", 4]), m.input("y", ["t", 4])
    s, t = m.size("s"), m.size("t")
    assert x[:s].shape == x["0":].shape == x[: 2 * s].shape == ("s", 4)
    assert x[: s // 2].shape == (str(s // 2), 4)
    assert x[1:][:"max(s - 1, 0)"].shape == x[1:].shape
    assert x[s // 2 :][: s - s // 2].shape == x[s // 2 :].shape == (str(s - s // 2), 4)
    assert y[: x.shape[0]].shape == y[:"min(s, t)"].shape
    assert x[4 * t + 1 : 4 * t + 1].shape == (0, 4)
    m.set_outputs({"y": x[: s // 2] + x[s - s // 2 :], "z": y[:s] * x[:t]})
    compiled = compile_fresh(m, verify="numeric")
    assert not compiled.artifact.conditions
    for sizes in ((0, 3), (1, 1), (8, 5), (33, 60)):
        inputs = {"x": array(sizes[0], 4), "y": array(sizes[1], 4)}
        half, least = sizes[0] // 2, min(sizes)
        for found in run_both(compiled, m, inputs):
            np.testing.assert_array_equal(found["y"], inputs["x"][:half] + inputs["x"][sizes[0] - half :])
            np.testing.assert_array_equal(found["z"], inputs["x"][:least] * inputs["y"][:least])


def test_sizes_that_do_not_meet() -> None:
    m = GraphModule.mir("apart")
    x, y = m.input("x", ["s", 4]), m.input("y", ["t", 4])
    m.set_outputs({"y": x["floordiv(s, 2)":] + y})
    compiled = compile_fresh(m)
    compiled.run({"x": array(7, 4), "y": array(4, 4)})
    with pytest.raises(
        InputError, match=r"'mir.add'.* \+ s is equal to t, but 4 and 3 were given: 's' is 7 .*'t' is 3"
    ):
        compiled.run({"x": array(7, 4), "y": array(3, 4)})


def test_bound_symbols() -> None:
    """With all symbols bound, bounds are numbers, and `like` is gone once the graph is simplified."""
    m = GraphModule.mir("bound")
    x, y = m.input("x", ["s", 4]), m.input("y", ["k", 2])
    m.set_outputs({"z": x["k":"s - k"], "n": m.dim(y, 0)})
    bound = m.bind(s=9, k=2)
    assert bound.outputs["z"].shape == (5, 4)
    inputs = {"x": array(9, 4), "y": array(2, 2)}
    for found in run_both(compile_fresh(bound), bound, inputs):
        np.testing.assert_array_equal(found["z"], inputs["x"][2:7])


# -- bounds that are values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.quick(1)
def test_bounds_that_are_values(dtype: str, threads: int) -> None:
    m = GraphModule.mir("values")
    x, i, like = m.input("x", ["b", "s", 3]), m.input("i", [], dtype), m.input("like", ["k"], "i32")
    m.set_outputs({
        "one": x[:, i],
        "two": x[:, i + 1 : i + 3],
        "sized": m.dynamic_slice(x, i, "k", 1),
        "computed": m.dynamic_slice(x, m.max(m.iota(["k"], dtype=dtype), 0) - i, 2, 1),
        "whole": m.dynamic_slice(x, i, "s", 1),
        "last": x[..., i : 1 + i],
        "like": like,
    })  # fmt: skip
    compiled = rlx.compile(m, cache=False, threads=threads)
    for s, k in ((2, 1), (3, 3), (9, 4), (200, 150)):
        for at in (-(2**31), -1, 0, 1, s - 2, s, 2**31 - 1 if dtype == "i32" else 2**62):
            given, first = array(2, s, 3), lambda start, count, size=s: min(max(start, 0), size - count)
            inputs = {"x": given, "i": np.array(at, rlx.dtypes.DTYPES[dtype]), "like": np.zeros(k, np.int32)}
            for found in run_both(compiled, m, inputs):
                where = f"{s}, {k}, {at}"
                np.testing.assert_array_equal(found["one"], given[:, first(at, 1)], err_msg=where)
                np.testing.assert_array_equal(found["sized"], given[:, first(at, k) :][:, :k], err_msg=where)
                np.testing.assert_array_equal(found["whole"], given, err_msg=where)
                np.testing.assert_array_equal(found["last"], given[..., first(at, 1, 3)][..., None], err_msg=where)
                if abs(at) < 2**31 - 1:  # the sum is within the type
                    two = first(at + 1, 2)
                    np.testing.assert_array_equal(found["two"], given[:, two : two + 2], err_msg=where)
                    two = first(k - 1 - at, 2)
                    np.testing.assert_array_equal(found["computed"], given[:, two : two + 2], err_msg=where)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "i8", "i64", "i1"])
@pytest.mark.quick(1)
def test_values_of_all_types(dtype: str) -> None:
    m = GraphModule.mir("types")
    x, u, i = m.input("x", [5, "s"], dtype), m.input("u", [5, 2], dtype), m.input("i", [], "i32")
    m.set_outputs({"part": x[1:, i : i + 2], "new": m.dynamic_update_slice(x, u, i, -1)})
    compiled = compile_fresh(m)
    inputs = {"x": array(5, 9) * 3, "u": array(5, 2) * 3, "i": np.array(4, np.int32)}
    kind = rlx.dtypes.DTYPES[dtype]
    inputs = {name: value if name == "i" else value.astype(kind) for name, value in inputs.items()}
    wanted = inputs["x"].copy()
    wanted[:, 4:6] = inputs["u"]
    for found in run_both(compiled, m, inputs):
        np.testing.assert_array_equal(found["part"], inputs["x"][1:, 4:6])
        np.testing.assert_array_equal(found["new"], wanted)


def test_slices_longer_than_the_dimension() -> None:
    m = GraphModule.mir("longer")
    x, i, y = m.input("x", ["s", 3]), m.input("i", [], "i32"), m.input("y", ["k", 3])
    m.set_outputs({"a": m.dynamic_slice(x, i, "k"), "b": m.dynamic_update_slice(x, y, i), "c": x[i : i + 2]})
    compiled = compile_fresh(m)
    for s, k in ((2, 3), (1, 1)):
        inputs = {"x": array(s, 3), "y": array(k, 3), "i": np.array(0, np.int32)}
        with pytest.raises(InputError, match=r"'mir.dynamic_(update_)?slice'.*'s' is " + str(s)):
            compiled.run(inputs)
        with pytest.raises(InputError, match=f"dimension 0 has size {s}, but {max(k, 2)} elements are asked for"):
            interpret(m, inputs)


# -- updates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_updates(threads: int) -> None:
    m = GraphModule.mir("updates")
    x, u, i = m.input("x", ["b", "s", 3]), m.input("u", ["b", "k", 3]), m.input("i", [], "i64")
    m.set_outputs({
        "new": m.dynamic_update_slice(x, u, i, 1),
        "own": m.dynamic_update_slice(x, m.dynamic_slice(x, i, "k", 1) * 2.0, 1, 1),
        "computed": m.dynamic_update_slice(m.exp(x), u, i, 1),
        "whole": m.dynamic_update_slice(x, m.neg(x), i, 0),
        "table": m.dynamic_update_slice(np.arange(12, dtype=np.float32).reshape(4, 3), x[0, :1], i),
    })  # fmt: skip
    compiled = rlx.compile(m, cache=False, threads=threads)
    for b, s, k in ((1, 1, 0), (2, 7, 3), (2, 4, 4), (1, 300, 299)):
        for at in (-3, 0, 2, s):
            inputs = {"x": array(b, s, 3), "u": array(b, k, 3) + 1, "i": np.array(at)}
            first = min(max(at, 0), s - k)
            new, own, computed = inputs["x"].copy(), inputs["x"].copy(), np.exp(inputs["x"])
            new[:, first : first + k] = computed[:, first : first + k] = inputs["u"]
            second = min(1, s - k)
            own[:, second : second + k] = inputs["x"][:, first : first + k] * 2
            table = np.arange(12, dtype=np.float32).reshape(4, 3)
            table[min(max(at, 0), 3)] = inputs["x"][0, 0]
            for found in run_both(compiled, m, inputs):
                np.testing.assert_array_equal(found["new"], new)
                np.testing.assert_array_equal(found["own"], own)
                np.testing.assert_allclose(found["computed"], computed, rtol=1e-6)
                np.testing.assert_array_equal(found["whole"], -inputs["x"])
                np.testing.assert_array_equal(found["table"], table)


def cache(tied: bool) -> GraphModule:
    """A cache whose row is replaced in two steps, beside what reads the new one."""
    m = GraphModule.mir("cache")
    x, u, i = m.input("cache", [4, "s", 8]), m.input("u", [4, 1, 8]), m.input("i", [], "i32")
    new = m.dynamic_update_slice(m.dynamic_update_slice(x, u, i, 1), u * 2.0, i + 1, 1)
    m.set_outputs({"new": new, "sum": m.sum(new, 1)}, tied={"new": "cache"} if tied else {})
    return m


@pytest.mark.parametrize("tied", [False, True])
def test_updates_in_place(tied: bool) -> None:
    """Nothing is copied where the input is donated: the kernels write what is new."""
    m = cache(tied)
    compiled = rlx.compile(m, cache=False, verify="numeric")
    (spec,) = (spec for spec in compiled.outputs if spec.name == "new")
    assert spec.tied == "cache"
    for donate in ((), ("cache",)):
        inputs = {"cache": array(4, 9, 8), "u": array(4, 1, 8) + 1, "i": np.array(3, np.int32)}
        given, wanted = inputs["cache"].copy(), interpret(m, inputs)
        results = compiled.run(inputs, donate=donate)
        assert (results["new"] is inputs["cache"]) == bool(donate)
        np.testing.assert_array_equal(results["new"], wanted["new"])
        np.testing.assert_allclose(results["sum"], wanted["sum"], rtol=1e-5)
        if not donate:
            np.testing.assert_array_equal(inputs["cache"], given)


def test_kernels_write_only_what_is_new() -> None:
    """Code of an update in place has no memory of its own, and copies nothing."""
    text = str(rlx.emit(cache(True), "llvm"))

    def function(suffix: str) -> str:
        found = text[text.index(f"@dynamic_update_slice_0{suffix}(") :]
        return found[: found.index("\n}")]

    assert "ret i64 0" in function("_scratch")
    assert "mem" not in function("").replace("memory", "")


def test_an_input_that_is_read_later_is_copied() -> None:
    m = GraphModule.mir("later")
    x, u, i = m.input("x", ["s", 4]), m.input("u", [1, 4]), m.input("i", [], "i32")
    new = m.dynamic_update_slice(x, u, i)
    m.set_outputs({"new": new, "old": x + new})
    compiled = compile_fresh(m)
    inputs = {"x": array(6, 4), "u": array(1, 4) + 1, "i": np.array(2, np.int32)}
    given = inputs["x"].copy()
    for found in run_both(compiled, m, inputs):
        np.testing.assert_array_equal(found["old"], given + found["new"])
    m.set_outputs({"new": new, "old": x + new}, tied={"new": "x"})
    with pytest.raises(UnsupportedError, match=r"'mir.add'.* reads 'x' after the result is there"):
        compile_fresh(m)


# -- dimensions that are split and joined ----------------------------------------------------------------------------


def reshapes(m: GraphModule, x: Value, flat: Value, h: Value) -> dict[str, Value]:
    """x is [b, s, 8], flat [b*s, 8] and h [s, h]."""
    s = m.size("s")
    return {
        "joined": m.reshape(x, ["b*s", 8]),
        "split": m.reshape(flat, ["b", "s", 8]),
        "with the rest": m.reshape(flat, ["b", -1, 8]),
        "rest first": m.reshape(flat, [-1, "s", 8]),
        "turned": m.reshape(x, ["s", "b", 8]),
        "halves": m.reshape(x, ["b", s // 2, 2, 8]),
        "one": x.reshape(-1),
        "columns": m.reshape(x, ["b", "8*s"]),
        "to the last": m.reshape(flat, [8, "s", "b"]),
        "heads": m.reshape(flat, ["b*s", 2, 4]),
        "of another": m.reshape(m.concat([h, h], 1), ["s", 2, "h"]),
        "back": m.reshape(m.reshape(flat, ["b", "s", 8]) * 2.0, [-1, 8]),
    }


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.quick(1)
def test_splitting_and_joining(threads: int) -> None:
    m = GraphModule.mir("split")
    x, h = m.input("x", ["b", "s", 8]), m.input("h", ["s", "h"])
    # A value whose dimension is the product of two symbols, as an operation computes it.
    m.set_outputs(reshapes(m, x, m.exp(m.reshape(x, [-1, 8])), h))
    shapes = {name: value.shape for name, value in m.outputs.items()}
    assert shapes["split"] == shapes["with the rest"] == shapes["rest first"] == ("b", "s", 8)
    assert shapes["halves"] == ("b", "floordiv(s, 2)", 2, 8)
    assert shapes["joined"] == ("b*s", 8)
    assert shapes["of another"] == ("s", 2, "h")
    compiled = rlx.compile(m, cache=False, threads=threads)
    for b, s, width in ((0, 2, 3), (2, 0, 1), (1, 2, 0), (3, 8, 5), (2, 150, 1)):
        inputs = {"x": array(b, s, 8), "h": array(s, width)}
        flat = np.exp(inputs["x"].reshape(b * s, 8))
        wanted = {
            "joined": inputs["x"].reshape(b * s, 8),
            "turned": inputs["x"].reshape(s, b, 8),
            "halves": inputs["x"].reshape(b, s // 2, 2, 8),
            "one": inputs["x"].reshape(-1),
            "columns": inputs["x"].reshape(b, s * 8),
            "split": flat.reshape(b, s, 8),
            "with the rest": flat.reshape(b, s, 8),
            "rest first": flat.reshape(b, s, 8),
            "to the last": flat.reshape(8, s, b),
            "heads": flat.reshape(b * s, 2, 4),
            "of another": np.concatenate([inputs["h"]] * 2, 1).reshape(s, 2, width),
            "back": flat * 2,
        }
        for found in run_both(compiled, m, inputs):
            for name, own in wanted.items():
                assert found[name].shape == own.shape, (name, b, s)
                np.testing.assert_allclose(found[name], own, rtol=1e-6, err_msg=f"{name}: {b}, {s}")


def test_shapes_are_computed_with() -> None:
    m = GraphModule.mir("shapes")
    x = m.input("x", ["b", "s", 8])
    (b, s, width), other = x.shape, m.input("y", ["t", 4])
    rows = m.reshape(x, [b * s, width])
    assert rows.shape == (b * s, 8) == ("b*s", 8)
    assert m.reshape(x, [b, s * 2, width // 2]).shape == ("b", "2*s", 4)
    assert x[:, s // 2 : s].shape == x[:, "s // 2":].shape
    joined = m.concat([other, other], axis=0)
    assert joined.shape == (other.shape[0] * 2, 4)
    assert m.iota([other.shape[0] * 2]).shape == ("2*t",)
    assert m.reshape(rows, x.shape).shape == x.shape


def test_sizes_that_do_not_divide() -> None:
    """The call says which symbol, which expression, and both values."""
    m = GraphModule.mir("odd")
    x = m.input("x", ["s"])
    m.set_outputs({"y": m.reshape(x, ["floordiv(s, 2)", 2]) * 2.0})
    assert m.outputs["y"].shape == ("floordiv(s, 2)", 2)
    compiled = compile_fresh(m)
    np.testing.assert_array_equal(compiled.run({"x": array(6)})["y"], array(6).reshape(3, 2) * 2)
    with pytest.raises(
        InputError, match=r"'mir.reshape'.* s is equal to 2\*floordiv\(s, 2\), but 7 and 6 were given: 's' is 7"
    ):
        compiled.run({"x": array(7)})
    with pytest.raises(InputError, match=r"mir.reshape: \[7\] has 7 elements"):
        interpret(m, {"x": array(7)})


def test_sizes_that_do_not_multiply() -> None:
    m = GraphModule.mir("other")
    x, y = m.input("x", ["n", 4]), m.input("y", ["b", "s"])
    m.set_outputs({"z": m.reshape(x, ["b", "s", 4]) * 2.0, "y": y})
    compiled = compile_fresh(m)
    np.testing.assert_array_equal(
        compiled.run({"x": array(6, 4), "y": array(2, 3)})["z"], array(6, 4).reshape(2, 3, 4) * 2
    )
    with pytest.raises(InputError, match=r"4\*n is equal to 4\*b\*s, but 28 and 24 were .*'b' is 2 .*'s' is 3"):
        compiled.run({"x": array(7, 4), "y": array(2, 3)})


# -- GPUs ------------------------------------------------------------------------------------------------------------


def test_on_gpus() -> None:
    """By the generic path, and with schedules of what reads the results; run by the emulator of PTX."""
    m = GraphModule.mir("on_gpus")
    x, u, i = m.input("x", ["b", "s", 12]), m.input("u", ["b", "k", 12]), m.input("i", [], "i32")
    state = m.input("state", ["s", 12])
    part = m.silu(x[:, "floordiv(s, 2)":])
    m.set_outputs({
        "part": part,
        "one": x[:, i],
        "range": x[:, i : i + 2] * 2.0,
        "sized": m.dynamic_slice(x, i, "k", 1),
        "new": m.dynamic_update_slice(m.exp(x), u, i, 1),
        "copied": m.dynamic_update_slice(x, u, i, 1),
        "state": m.dynamic_update_slice(state, u[0, :1], i),
        "split": m.reshape(m.exp(m.reshape(x, [-1, 12])), ["b", "s", 12]),
        "turned": x[:, "k" : : -1],
    })  # fmt: skip
    failures: list[str] = []
    with emulated_device("sm_80") as cuda:
        executable = rlx.compile(m, target="cuda", chip="sm_80", cache=False)
        for b, s, k, at in ((1, 2, 1, 0), (2, 9, 4, 7), (1, 5, 5, -2)):
            inputs = {
                "x": array(b, s, 12),
                "u": array(b, k, 12) + 1,
                "i": np.array(at, np.int32),
                "state": array(s, 12),
            }
            wanted = interpret(m, inputs)
            for donate in ((), ("state",)):
                given = {name: value.copy() for name, value in inputs.items()}
                failures += compare(wanted, executable.run(given, donate=donate), f"{b}, {s}, {k}, {at}, {donate}")
        assert not cuda.errors
        del executable
    assert not failures, "\n".join(failures)


# -- errors ----------------------------------------------------------------------------------------------------------

LENGTH = "the length of a slice is known while the graph is built.*dynamic_slice"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m, x, i: x[i:], LENGTH),
        (lambda m, x, i: x[:i], LENGTH),
        (lambda m, x, i: x[0:i], LENGTH),
        (lambda m, x, i: x[i : i * 2], LENGTH),
        (lambda m, x, i: x[i : i + 4 : 2], LENGTH),
        (lambda m, x, i: x[i : i + m.input("j", [], "i32")], LENGTH),
        (lambda m, x, i: m.dynamic_slice(x, i, i), LENGTH),
        (lambda m, x, i: m.dynamic_slice(x, i, "t"), "'mir.dynamic_slice' takes 't' where a value has a dimension"),
        (lambda m, x, i: m.dynamic_slice(x, i, -1), "expects 'length' to be from 0 to the size of dimension 0"),
        (lambda m, x, i: m.dynamic_slice(x, i, 5, 1), "expects 'length' to be from 0 to the size of dimension 1"),
        (lambda m, x, i: m.dynamic_slice(x, m.cast(i, "f32"), 1), "'start' to be dense 0-d tensor"),
        (lambda m, x, i: m.dynamic_slice(x, "s", 1), "'start' of 'mir.dynamic_slice' is a Value or an array"),
        (lambda m, x, i: m.dynamic_update_slice(x, x[:, :3], i), "expects 'update' to be like 'x' in every dimension"),
        (lambda m, x, i: x[:, m.iota([3])], "beside other entries expects a value without dimensions"),
        (lambda m, x, i: x["s":1.5], "a slice has numbers or sizes"),
        (lambda m, x, i: m.slice(x, 0, start=True), "'start' is a number or a size, such as 's'"),
        (lambda m, x, i: m.size(None), "'size': it is a number or a size"),
        (lambda m, x, i: m.reshape(x, ["t", "u", 4]), "'mir.reshape' takes '[tu]' where a value has a dimension"),
        (lambda m, x, i: m.reshape(x, ["s*", 4]), "'mir.reshape': in the size"),
    ],
)
def test_what_cannot_be_built(build: Any, message: str) -> None:
    m = GraphModule.mir("wrong")
    with pytest.raises(BuildError, match=message):
        build(m, m.input("x", ["s", 4]), m.input("i", [], "i32"))
