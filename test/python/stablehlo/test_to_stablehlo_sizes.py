# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of symbolic sizes are written once, and mean at each size what they meant: read again, and run by JAX."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import stablehlo_sizes

import rlx_mlir as rlx
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.exports.stablehlo.builder import Builder
from rlx_mlir.mir.dims import Size
from rlx_mlir.semantics.function import arguments, entry_function
from rlx_mlir.verify.inputs import draw

Module = rlx.GraphModule
SIZES = ({"b": 2, "s": 7}, {"b": 1, "s": 1}, {"b": 3, "s": 16})


def elements(m: Module) -> Any:
    x, row = m.input("x", ["b", "s", 5]), m.input("row", ["s", 1])
    joined = m.where(x > row, x * row, m.maximum(x, 0.5)) + m.input("one", [1, 1, 5])
    whole = m.floor_rem(m.cast(x * 9.0, "i32"), 4)
    return [joined, m.gelu(x), m.gelu_approx(x), m.silu(x), m.atan(x), m.erfc(x), whole, m.cast(x, "f16")]


def shapes(m: Module) -> Any:
    x = m.input("x", ["b", "s", 6])
    flat = m.reshape(x, ["b*s", 6])
    found = [flat, m.reshape(flat, ["s", "b", 3, 2]), m.transpose(x, [2, 0, 1]), m.concat([x, x], 1)]
    found += [m.narrow(x, 2, 1, 3), x[:, :, ::-2], m.flip(x, 1), m.iota(["b", "s"], 1), m.dim(x, 1), m.dim(flat, 0)]
    found += [m.expand(m.reshape(m.iota(["s"], 0), [1, "s"]), ["b", "s"]), m.concat([x[:, :1], x], 1)]
    found += [
        x[:, 1:],
        x[:, -1:],
        x[:, :1],
        x[:, ::2],
        x[:, ::-1],
        x[:, ::-3],
        x[:, 1::2],
        x[:, : m.size("s") // 2],
        x[:, m.size("s") // 2 :],
    ]
    return found


def reductions(m: Module) -> Any:
    x = m.input("x", ["b", "s", 5])
    found = [m.reduce(x, kind, axes) for kind in ("sum", "mean", "max", "prod") for axes in ([1], [0, 1], [2])]
    return [*found, m.mean(x, 1, keep_dims=True), m.any(x > 0, 0), m.softmax(x, 1), m.softmax(x, 2), m.cumsum(x, 2)]


def indices(m: Module) -> Any:
    x, table = m.input("x", ["b", "s", 3]), m.param("table", [9, 4])
    places = m.input("places", ["b", "s"], "i64")
    at = m.constant(np.array(2, np.int32))
    found = [m.gather(table, places), m.gather(x, m.constant(np.array([2, 0])), 2), m.gather(x, at, 1)]
    moved = m.dynamic_slice(m.param("long", [20, 4]), at, "s", 0)
    return [*found, m.scatter_add(x, np.array([0, 2, 0], np.int32), 4, 2), moved, m.dynamic_update_slice(x, x, at, 1)]


def products(m: Module) -> Any:
    a, b = m.input("a", ["b", "s", 4]), m.input("c", ["b", "s", 4])
    square = m.matmul(a, b, transpose_rhs=True)
    dots = m.dot_general(a, b, lhs_contracting=[1], rhs_contracting=[1], lhs_batch=[0], rhs_batch=[0])
    return [m.matmul(a, m.param("w", [4, 6])), square, m.matmul(square, b), dots]


def blocks(m: Module) -> Any:
    x, g, b = m.input("x", ["b", "s", 16]), m.param("g", [16]), m.param("beta", [16])
    cos, sin = m.param("cos", [16, 4]), m.param("sin", [16, 4])
    p = m.primitives
    found = [p.rms_norm(x, g), m.layer_norm(x, g, b), p.rope(x, cos, sin, head_dim=8, style="half")]
    pos = m.input("pos", ["b"], "i32")
    found.append(p.rope(x, cos, sin, pos=pos, head_dim=8, n_rot=4, style="interleaved"))
    k, mask = m.input("k", ["b", 17, 8]), m.input("seen", ["b", 17], "i1")
    for kind, more in (("none", {}), ("causal", {}), ("sliding_window", {"window": 3}), ("custom", {"mask": mask}),
                       ("bias", {"mask": m.input("bias", [1, 2, "s", 17])}),
                       ("causal", {"pos": pos, "softcap": 5.0, "scale": 0.3})):  # fmt: skip
        given = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "mask_kind": kind, **more}
        found.append(p.attention(x, k, k, **given))
    return found


def orders(m: Module) -> Any:
    x = m.input("x", ["b", "s", 9])
    found = list(m.top_k(x, 4))
    for smallest in (False, True):
        for nan_largest in (False, True):
            found += m.top_k(m.log(x), 9, smallest=smallest, nan_largest=nan_largest)
    return [*found, *m.top_k(m.cast(x * 3.0, "i32"), 5, smallest=True)]


def images(m: Module) -> Any:
    x, w = m.input("x", ["b", 4, "s", "s"]), m.param("w", [6, 2, 3, 3])
    y = m.input("y", ["b", 4, 6, 7])
    found = [m.conv2d(x, w, padding=1, groups=2), m.conv2d(y, w, stride=[2, 1], groups=2)]
    found += [m.pool(x, kind, [2, 3], stride=[2, 1], padding=[1, 1]) for kind in ("max", "mean")]
    found += [m.conv_transpose2d(y, m.param("v", [4, 3, 2, 2]), stride=[2, 2]), m.resize_nearest_2x(x)]
    return found


def choices(m: Module) -> Any:
    """Loops and choices whose values have symbolic sizes, or take as many steps."""
    x, row = m.input("x", ["b", "s", 5]), m.input("row", ["s", 5])
    go = m.input("go", [], "i1")
    found = list(m.while_loop(lambda a: m.lt(m.sum(m.abs(a)), 400.0), lambda a: (a + a + row,), (x,), limit=5))
    found.append(m.cond(go, lambda: m.softmax(x, 1), lambda: m.concat([x[:, 1:], x[:, :1]], 1)))
    for reverse in (False, True):
        carry, rows = m.scan(lambda a, each: (a + each, (a * each, m.sum(each))), row, x, reverse=reverse)
        found += [carry, *rows]
    steps, _ = m.scan(lambda a: (m.transpose(m.softmax(a + x, 2), [0, 1, 2]), None), x, length=3)
    return [*found, steps]


def caches(m: Module) -> Any:
    """Rows that are written at the positions of each batch, into caches of symbolic sizes."""
    cache, new, pos = m.input("cache", ["b", 20, 4]), m.input("new", ["b", "s", 4]), m.input("pos", ["b"], "i32")
    pos = m.maximum(m.minimum(pos, 4), 0)
    wide, rows = m.input("wide", [2, 9, "b"], "f16"), m.input("rows", [2, 2, "b"], "f16")
    long, one = m.input("long", [1, "s", 3]), m.input("own", [1, 1, 3])
    at = m.constant(np.array([3, 5], np.int32))
    found = [m.cache_update(cache, new, pos), m.cache_update(wide, rows, at)]
    return [*found, m.cache_update(long, one, m.constant(np.zeros(1, np.int32)))]


FAMILIES: dict[str, Callable[[Module], Any]] = {
    own.__name__: own
    for own in (elements, shapes, reductions, indices, products, blocks, orders, images, choices, caches)
}


def built(family: str) -> Module:
    m = Module.mir(family)
    m.set_outputs({f"y{number}": value for number, value in enumerate(FAMILIES[family](m))})
    return m


def compared(found: Any, wanted: dict[str, np.ndarray], what: str) -> None:
    for (name, want), array in zip(wanted.items(), found, strict=True):
        assert (array.shape, array.dtype) == (want.shape, want.dtype), f"{what}: {name}"
        tolerance = 2e-3 if want.dtype == np.float16 else 5e-6
        np.testing.assert_allclose(array, want, atol=tolerance, rtol=tolerance, err_msg=f"{what}: {name}")


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax isn't installed")
@pytest.mark.parametrize("family", FAMILIES)
def test_jax_runs_it_at_every_size(family: str) -> None:
    m = built(family)
    text = rlx.to_stablehlo(m)
    for sizes in SIZES:
        values = draw(arguments(entry_function(m.ir_module)), sizes)
        compared(stablehlo_sizes.run(text, list(values.values())), rlx.interpret(m, values), f"{family} at {sizes}")


@pytest.mark.parametrize("family", FAMILIES)
def test_types_say_which_sizes_are_open(family: str) -> None:
    m = built(family)
    text = rlx.to_stablehlo(m)
    bound = rlx.to_stablehlo(m.bind(b=2, s=7))
    assert "?x" in text
    assert "dynamic_" not in bound.replace("dynamic_slice", "").replace("dynamic_update_slice", "")
    assert "?" not in bound


def test_what_is_written_is_read_again() -> None:
    m = Module.mir("layer")
    x = m.input("x", ["b", "s", 16])
    m.set_outputs(
        {"y": m.softmax(m.matmul(m.layer_norm(x, m.param("g", [16]), m.param("h", [16])), m.param("w", [16, 5])))}
    )
    again = rlx.from_stablehlo(rlx.to_stablehlo(m))
    assert [len(value.shape) for value in again.module.inputs] == [3, 1, 1, 2]
    for sizes in SIZES:
        values = draw(arguments(entry_function(m.ir_module)), sizes)
        compared(again.interpret(values).values(), rlx.interpret(m, values), str(sizes))


@pytest.mark.parametrize("family", ["choices", "caches"])
def test_loops_and_caches_are_read_again(family: str) -> None:
    """With slices that begin where a step says, of as many elements as sizes say."""
    m = built(family)
    again = rlx.from_stablehlo(rlx.to_stablehlo(m))
    for sizes in SIZES:
        values = draw(arguments(entry_function(m.ir_module)), sizes)
        compared(again.interpret(values).values(), rlx.interpret(m, values), f"{family} at {sizes}")


def test_slices_of_other_bounds_are_refused() -> None:
    """Of computed bounds nothing says how many elements there are."""
    text = rlx.to_stablehlo(built("caches")).replace('"stablehlo.add"', '"stablehlo.multiply"')
    with pytest.raises(UnsupportedError, match="bounds that are computed when the graph runs"):
        rlx.from_stablehlo(text)


def test_paddings_of_images_need_their_sizes() -> None:
    m = Module.mir("open")
    m.set_outputs({"y": m.conv_transpose2d(m.input("x", ["n", 4, "s", 8]), m.param("w", [4, 3, 2, 2]))})
    with pytest.raises(UnsupportedError, match="paddings of images of s x 8 pixels"):
        rlx.to_stablehlo(m)


def test_symbols_that_no_argument_has_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no argument has a dimension of the size 'n'"):
        Builder().extent(Size.of("n") + 1)
