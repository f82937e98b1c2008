# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of StableHLO in the generic form, which needs no other library: what JAX wrote, against numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError, StablehloError, StablehloUnsupportedError

TEXTS = Path(__file__).with_name("texts")
Arrays = dict[str, np.ndarray]


def read(name: str) -> Any:
    return rlx.from_stablehlo(TEXTS / f"{name}.mlir")


def drawn(module: rlx.GraphModule, seed: int = 0, **sizes: int) -> Arrays:
    """Random numbers for each input of floats."""
    rng = np.random.default_rng(seed)
    found = {}
    for value in module.inputs:
        shape = [sizes.get(size, 0) if isinstance(size, str) else size for size in value.shape]
        scale = shape[0] ** -0.5 if len(shape) > 1 else 1.0
        found[value.name] = (rng.standard_normal(shape) * scale).astype(value.dtype)
    return found


def text(body: str, arguments: str = "%a: tensor<4xf32>", kind: str = "(tensor<4xf32>) -> tensor<4xf32>") -> str:
    return (
        f'"builtin.module"() ({{\n"func.func"() <{{function_type = {kind}, sym_name = "main"}}> ({{\n'
        f"^bb0({arguments}):\n{body}\n}}) : () -> ()\n}}) : () -> ()\n"
    )


# Networks -------------------------------------------------------------------------------------------


def wide(arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in arrays.items()}


def slope(function: Callable[[Arrays], float], at: Arrays, along: Arrays, step: float = 1e-6) -> float:
    """How a function changes along a direction, of f64."""
    ahead, behind = ({name: at[name] + sign * step * along.get(name, 0.0) for name in at} for sign in (1, -1))
    return (function(ahead) - function(behind)) / (2 * step)


def check_gradients(model: Any, arrays: Arrays, function: Callable[[Arrays], float], names: Mapping[str, str]) -> None:
    """Gradients, by output and the input that they are of, against differences along random directions."""
    exact = wide(arrays)
    for found in (model.compile(threads=1).run(arrays), model.interpret(arrays)):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            along = {own: rng.standard_normal(arrays[own].shape) for own in names.values()}
            total = sum(float((found[output].astype(np.float64) * along[own]).sum()) for output, own in names.items())
            assert np.isclose(total, slope(function, exact, along), rtol=2e-4, atol=1e-5)


def erf(x: np.ndarray) -> np.ndarray:
    from math import erf as of_one

    return np.vectorize(of_one)(x)


def test_gradient_of_an_mlp() -> None:
    model = read("mlp_gradient")
    arrays = drawn(model.module)

    def loss(p: Arrays) -> float:
        h = p["arg3"] @ p["arg0"] + p["arg1"]
        h = h * 0.5 * (1 + erf(h / np.sqrt(2)))
        return float(np.mean((h @ p["arg2"] - p["arg4"]) ** 2))

    result, *gradients = model.outputs
    assert np.isclose(model.compile(threads=1).run(arrays)[result], loss(wide(arrays)), rtol=1e-5)
    check_gradients(model, arrays, loss, dict(zip(gradients, ("arg0", "arg1", "arg2"), strict=True)))


def llama(p: Arrays, ids: np.ndarray, heads: int = 4, kv_heads: int = 2, head: int = 8) -> np.ndarray:
    """That of `benchmarks/networks/llama_jax.py`, of one layer, in numpy; arguments are in the order of names."""
    embed, down, gate, n1, n2, up, wk, wo, wq, wv, last = (p[f"arg{number}"] for number in range(11))

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5) * weight

    def rotated(x: np.ndarray) -> np.ndarray:
        angles = np.arange(x.shape[1])[:, None, None] / 1e4 ** (np.arange(0, head, 2) / head)
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    x = embed[ids]
    batch, length, _ = x.shape
    h = norm(x, n1)
    q = rotated((h @ wq).reshape(batch, length, heads, head))
    k = np.repeat(rotated((h @ wk).reshape(batch, length, kv_heads, head)), heads // kv_heads, 2)
    v = np.repeat((h @ wv).reshape(batch, length, kv_heads, head), heads // kv_heads, 2)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(head)
    scores = np.where(np.tril(np.ones((length, length), bool)), scores, -1e30)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    x = x + np.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, -1) @ wo
    h = norm(x, n2)
    gated = h @ gate
    x = x + (gated / (1 + np.exp(-gated)) * (h @ up)) @ down
    return norm(x, last) @ embed.T


def of_llama(model: Any, batch: int, length: int) -> Arrays:
    sizes = dict(zip(model.module.dynamic_symbols, (batch, length), strict=False))
    arrays = drawn(model.module, **sizes)
    arrays["arg11"] = np.random.default_rng(1).integers(0, 48, (batch, length)).astype(np.int32)
    return arrays


def test_llama_of_any_batch_and_length() -> None:
    model = read("llama_dynamic")
    run = model.compile(threads=1, maxima=dict(zip(model.module.dynamic_symbols, (4, 64), strict=True)))
    for batch, length in ((1, 1), (2, 7), (3, 16), (1, 17), (4, 33)):
        arrays = of_llama(model, batch, length)
        want = llama(wide(arrays), arrays["arg11"])
        (found,) = run.run(arrays).values()
        np.testing.assert_allclose(found, want, atol=2e-5, rtol=2e-5)


def test_blocks_of_a_llama_are_found() -> None:
    report = str(read("llama_dynamic").module.fusion_report())
    for block in ("mir.attention +1", "mir.rope +2", "mir.fused_swiglu +1", "raise_norm"):
        assert block in report, report
    assert "share_repeated_heads" in report
    assert "masked causal" in read("llama_dynamic").module.transform("mir-dot-to-matmul,mir-raise-blocks").to_text()
    assert "mir.softmax" not in report.split("fused")[0]


def test_loss_and_gradient_of_a_llama() -> None:
    model = read("llama_gradient")
    arrays = of_llama(model, 2, 7)

    def loss(p: Arrays) -> float:
        logits = llama(p, arrays["arg11"][:, :-1])
        total = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
        own = np.take_along_axis(logits, arrays["arg11"][:, 1:, None], -1)[..., 0]
        return float(np.mean(total - own))

    result, *gradients = model.outputs
    assert np.isclose(model.compile(threads=1).run(arrays)[result], loss(wide(arrays)), rtol=1e-5)
    check_gradients(model, arrays, loss, {output: f"arg{number}" for number, output in enumerate(gradients)})


def test_gradient_of_a_convolution() -> None:
    model = read("convolution_gradient")
    arrays = drawn(model.module)

    def total(p: Arrays) -> float:
        x = np.pad(p["arg0"], ((0, 0), (1, 1), (0, 1), (0, 0)))
        y = np.zeros((2, 5, 4, 4))
        for u in range(3):
            for v in range(3):
                y += np.einsum("nhwc,co->nhwo", x[:, u : u + 9 : 2, v : v + 7 : 2], p["arg1"][u, v])
        y = np.maximum(y, 0)[:, :4]
        return float(y.reshape(2, 2, 2, 2, 2, 4).max((2, 4)).sum())

    check_gradients(model, arrays, total, dict(zip(model.outputs, ("arg0", "arg1"), strict=True)))


# Operations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("indices", [[0, 3, 5], [2, 2, 4], [-1, 0, 7]], ids=str)
def test_indices(indices: list[int]) -> None:
    model = read("indices")
    x = np.random.default_rng(0).integers(-3, 3, (6, 5)).astype(np.float32)  # with equal elements
    i = np.array(indices, np.int32)
    found = list(model.compile(threads=1).run({"arg0": x, "arg1": i}).values())
    rows = np.where(i < 0, i + 6, i)
    inside = rows[(rows >= 0) & (rows < 6)]
    added, written = x.copy(), x.copy()
    np.add.at(added, inside, 1.0)
    written[inside, 0] = 2.0
    taken = x[np.clip(rows, 0, 5)]
    order = np.argsort(x, -1, kind="stable")
    largest = np.argsort(-x, -1, kind="stable")[:, :2]
    want = [order, np.take_along_axis(x, largest, -1), largest, np.argmax(x, -1), added, written, taken, x[:, i % 3]]
    for own, expected in zip(found, [*want, np.cumsum(x, 0)], strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-6)


@pytest.mark.parametrize("count", [-1, 0, 2, 3, 9])
def test_loops_and_choices(count: int) -> None:
    model = read("loops")
    x = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    found = list(model.compile(threads=1).run({"arg0": x, "arg1": np.array(count, np.int32)}).values())
    carried, stacked = x[0].astype(np.float64), []
    for row in x:
        stacked.append(carried)
        carried = carried * 0.5 + row
    branch = (np.sin, np.cos, np.tanh)[min(max(count, 0), 2)]
    summed = x + sum(range(max(count, 0)))
    want = [carried, np.stack(stacked), summed, np.sin(x) if count > 2 else np.cos(x), branch(x)]
    for own, expected in zip(found, want, strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-5, rtol=1e-5)


#: `jax.random.uniform(jax.random.PRNGKey(42), (5,))`
RANDOM = [0.48870956897735596, 0.6797971725463867, 0.6162714958190918, 0.5610160827636719, 0.4506446123123169]


def test_random_numbers_are_those_of_jax() -> None:
    """Threefry, written out: 32 bits of integers, shifted, and read as floats."""
    found = read("random").compile(threads=1).run({"arg0": np.array([0, 42], np.uint32)})
    np.testing.assert_array_equal(next(iter(found.values())), np.array(RANDOM, np.float32))


# What is read ---------------------------------------------------------------------------------------


def test_conditions_with_a_byte_each() -> None:
    """MLIR writes long constants of conditions with a byte for each since version 23, and with a bit before."""
    wanted = np.arange(40) % 3 == 0
    kind = "() -> tensor<40xi1>"
    for data in (wanted.astype(np.uint8), np.packbits(wanted, bitorder="little")):
        value = f'dense<"0x{data.tobytes().hex().upper()}"> : tensor<40xi1>'
        body = f'%0 = "stablehlo.constant"() <{{value = {value}}}> : {kind}\n"func.return"(%0) : (tensor<40xi1>) -> ()'
        found = rlx.from_stablehlo(text(body, "", kind)).compile(threads=1).run({})
        np.testing.assert_array_equal(found["result0"], wanted)


def test_long_constants_are_parameters() -> None:
    table = np.random.default_rng(0).standard_normal((64, 33)).astype(np.float32)
    value = f'dense<"0x{table.tobytes().hex().upper()}"> : tensor<64x33xf32>'
    body = (
        f'%0 = "stablehlo.constant"() <{{value = {value}}}> : () -> tensor<64x33xf32>\n'
        '%1 = "stablehlo.multiply"(%a, %0) : (tensor<64x33xf32>, tensor<64x33xf32>) -> tensor<64x33xf32>\n'
        '"func.return"(%1) : (tensor<64x33xf32>) -> ()'
    )
    model = rlx.from_stablehlo(text(body, "%a: tensor<64x33xf32>", "(tensor<64x33xf32>) -> tensor<64x33xf32>"))
    assert list(model.params) == ["constant"]
    found = model.compile(threads=1).run({"arg0": np.full((64, 33), 2, np.float32)})
    np.testing.assert_array_equal(found["result0"], 2 * table)


@pytest.mark.parametrize("lengths", [[1], [8], [7], [3, 6]])
@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
def test_transforms(kind: str, lengths: list[int]) -> None:
    half = [*lengths[:-1], lengths[-1] // 2 + 1]
    given, wanted = (half if kind == own else lengths for own in ("IRFFT", "RFFT"))
    real = {"RFFT": (True, False), "IRFFT": (False, True)}.get(kind, (False, False))
    shapes = [f"tensor<2x{'x'.join(map(str, each))}x{'f32' if own else 'complex<f32>'}>" for each, own in
              zip((given, wanted), real, strict=True)]  # fmt: skip
    body = (
        f'%0 = "stablehlo.fft"(%a) <{{fft_length = array<i64: {", ".join(map(str, lengths))}>, '
        f"fft_type = #stablehlo<fft_type {kind}>}}> : ({shapes[0]}) -> {shapes[1]}\n"
        f'"func.return"(%0) : ({shapes[1]}) -> ()'
    )
    model = rlx.from_stablehlo(text(body, f"%a: {shapes[0]}", f"({shapes[0]}) -> {shapes[1]}"))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, *given)).astype(np.float32)
    if kind != "RFFT":
        x = (x + 1j * rng.standard_normal(x.shape)).astype(np.complex64)
    axes = list(range(1, x.ndim))
    want = {
        "FFT": lambda: np.fft.fftn(x, axes=axes),
        "IFFT": lambda: np.fft.ifftn(x, axes=axes),
        "RFFT": lambda: np.fft.rfftn(x, axes=axes),
        "IRFFT": lambda: np.fft.irfftn(x, lengths, axes),
    }[kind]()
    for found in (model.compile(threads=1).run({"arg0": x}), model.interpret({"arg0": x})):
        np.testing.assert_allclose(found["result0"], want, atol=1e-5, rtol=1e-5)
        assert found["result0"].dtype == (np.float32 if kind == "IRFFT" else np.complex64)


def test_sorts_along_unknown_lengths() -> None:
    """The rows of a key, of which another value goes with the elements; and the first elements of rows."""
    kinds = "tensor<2x?xf32>, tensor<2x?xi32>"
    body = (
        '%0:2 = "stablehlo.sort"(%a, %b) <{dimension = 1 : i64, is_stable = true}> ({\n'
        "^bb0(%x: tensor<f32>, %y: tensor<f32>, %p: tensor<i32>, %q: tensor<i32>):\n"
        '%c = "stablehlo.compare"(%x, %y) <{comparison_direction = #stablehlo<comparison_direction LT>}> : '
        "(tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        f'"stablehlo.return"(%c) : (tensor<i1>) -> ()\n}}) : ({kinds}) -> ({kinds})\n'
        f'"func.return"(%0#0, %0#1) : ({kinds}) -> ()'
    )
    model = rlx.from_stablehlo(text(body, "%a: tensor<2x?xf32>, %b: tensor<2x?xi32>", f"({kinds}) -> ({kinds})"))
    for length in (0, 1, 7, 200):
        rng = np.random.default_rng(length)
        given = {"arg0": rng.integers(0, 9, (2, length)).astype(np.float32)}
        given["arg1"] = rng.integers(0, 99, (2, length)).astype(np.int32)
        order = np.argsort(given["arg0"], axis=1, kind="stable")
        for found in (model.compile(threads=1).run(given), model.interpret(given)):
            for name, result in zip(given, found.values(), strict=True):
                np.testing.assert_array_equal(result, np.take_along_axis(given[name], order, 1))


def test_transforms_of_unknown_lengths_are_refused() -> None:
    kind = "tensor<?xcomplex<f32>>"
    body = (
        '%0 = "stablehlo.fft"(%a) <{fft_length = array<i64: 8>, fft_type = #stablehlo<fft_type FFT>}> : '
        "(tensor<?xcomplex<f32>>) -> tensor<?xcomplex<f32>>\n"
        '"func.return"(%0) : (tensor<?xcomplex<f32>>) -> ()'
    )
    with pytest.raises(StablehloUnsupportedError, match="a transform of arg0_0 numbers"):
        rlx.from_stablehlo(text(body, f"%a: {kind}", f"({kind}) -> {kind}"))


@pytest.mark.parametrize(("narrow", "wide"), [("ui8", "i32"), ("i8", "ui16"), ("ui32", "i64"), ("i16", "i64")])
def test_bits_of_integers_of_other_widths(narrow: str, wide: str) -> None:
    own, other = DTYPES[narrow], DTYPES[wide]
    count = other.itemsize // own.itemsize
    small, large = f"tensor<3x{count}x{narrow}>", f"tensor<3x{wide}>"
    body = (
        f'%0 = "stablehlo.bitcast_convert"(%a) : ({small}) -> {large}\n'
        f'%1 = "stablehlo.bitcast_convert"(%0) : ({large}) -> {small}\n'
        f'"func.return"(%0, %1) : ({large}, {small}) -> ()'
    )
    model = rlx.from_stablehlo(text(body, f"%a: {small}", f"({small}) -> ({large}, {small})"))
    limits = np.iinfo(own)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (3, count), own, endpoint=True)
    for found in (model.compile(threads=1).run({"arg0": x}), model.interpret({"arg0": x})):
        np.testing.assert_array_equal(found["result0"], x.view(other).reshape(3))
        np.testing.assert_array_equal(found["result1"], x)


def test_all_that_is_unknown_is_listed_once() -> None:
    body = (
        '%0 = "stablehlo.unheard_of"(%a) : (tensor<4xf32>) -> tensor<4xf32>\n'
        '%1 = "stablehlo.unheard_of"(%0) : (tensor<4xf32>) -> tensor<4xf32>\n'
        '%2 = "stablehlo.custom_call"(%a) <{call_target_name = "own"}> : (tensor<4xf32>) -> tensor<4xf32>\n'
        '%3 = "stablehlo.add"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>\n'
        '"func.return"(%3) : (tensor<4xf32>) -> ()'
    )
    with pytest.raises(StablehloUnsupportedError) as caught:
        rlx.from_stablehlo(text(body))
    assert caught.value.operations == {"stablehlo.unheard_of": 2, "@own": 1}
    message = str(caught.value)
    assert "3 operations of 'module' can't be compiled" in message
    assert "2 x stablehlo.unheard_of, first at line 4, line 5: there is no such operation here" in message
    assert "1 x @own, first at line 6: there is no such operation here" in message


_IOTA = '%0 = "stablehlo.iota"() : () -> tensor<4xf32>\n"func.return"(%0) : (tensor<4xf32>) -> ()'


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('"builtin.module"() ({\n^bb0:\n}) : () -> ()', "a module has a function '@main', but this one has none"),
        (text('"func.return"(%b) : (tensor<4xf32>) -> ()'), "doesn't parse: use of undeclared SSA value name"),
        (text(_IOTA), "no attribute"),
        (b"ML\xefR nothing", "the module"),
    ],
)
def test_malformed(source: str | bytes, message: str) -> None:
    with pytest.raises((StablehloError, rlx.errors.UnsupportedError), match=message):
        rlx.from_stablehlo(source)


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(InputError, match="a module of StableHLO is a path, text or bytes, but got 3"):
        rlx.from_stablehlo(3)  # type: ignore[arg-type]
    with pytest.raises(StablehloError, match="the file is missing"):
        rlx.from_stablehlo("nowhere.mlir")
