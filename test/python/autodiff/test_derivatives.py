# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives of every operation against central differences, and that no operation is left out."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from cases_blocks import BLOCKS
from cases_core import CORE
from cases_images import PICTURES, SPLATS, VIEW
from derivatives import (
    Case,
    Input,
    arrays_of,
    check,
    check_case,
    check_second,
    floats_of,
    given,
    inner,
    module_of,
    normal,
    operations_of,
)

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import BuildError
from rlx_mlir.mir import REFERENCES

CASES = CORE | BLOCKS | PICTURES
#: Operations that nothing is differentiated through, and why.
WITHOUT = {
    **dict.fromkeys(
        ("and", "or", "xor", "not", "floor_div", "floor_rem", "trunc_div", "trunc_rem"), "of integers or conditions"
    ),
    "quantize": "gives integers",
    "dequantize": "of integers",
    "q_matmul": "of integers",
    "q_conv2d": "of integers",
    "sample": "gives tokens",
    "repack": "gives a packed weight",
    "block_quantize": "chosen by precision, after differentiation",
    "block_dot": "chosen by precision, after differentiation",
    "grouped_block_dot": "chosen by precision, after differentiation",
    "gaussian_splat_prepare": "lists of splats; images are differentiated as a whole",
    "gaussian_splat_rasterize": "of what is prepared; images are differentiated as a whole",
    "gaussian_splat_render_backward": "lists are constants to it: gradients have no gradients",
}
#: Operations whose derivatives other files compare.
ELSEWHERE = {"if", "while", "scan", "custom_fn", "custom"}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_differences(name):
    check_case(CASES[name], name)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.orders > 1])
@pytest.mark.quick(30)
def test_second_derivatives_are_those_of_differences(name):
    check_second(CASES[name], name)


def test_every_operation_has_a_case_or_a_reason():
    covered = operations_of(CASES)
    named = {f"mir.{word}" for word in WITHOUT.keys() | ELSEWHERE}
    primitives = {name for name in REFERENCES if name.startswith("mir.")}
    assert primitives - covered == named
    assert not covered & {f"mir.{word}" for word in WITHOUT}


# -- types -----------------------------------------------------------------------------------------------------------

_TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
#: Cases that build with numbers of f64, or whose operations have no type of 16 bits.
_WIDE = ("dense_solve", "batched_dense_solve", "fft", "rfft", "stft", "cast", "compare", "dim", "iota", "fake_quantize")
#: Operands that are of f32 where the others have 16 bits.
_STATES = {"selective_scan": "h", "gated_delta_net": "s"}


def _narrowed(case: Case, dtype: str, kept: str | None) -> Case:
    """A case with inputs of another type in place of f64."""

    def changed(name: str, own: Input) -> Input:
        if own.dtype != "f64":
            return own
        return own.of("f32" if name == kept else dtype)

    return replace(case, inputs={name: changed(name, own) for name, own in case.inputs.items()})


def _pulled(case: Case, module: GraphModule) -> GraphModule:
    """The module of reverse mode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rlx.errors.GradientWarning)  # some cases have inputs that nothing reads
        return rlx.vjp(module, case.wrt or floats_of(module)[0])


def _gradients(case: Case, values: dict[str, np.ndarray], seeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """All cotangents of the inputs; `seeds` is filled where it is empty."""
    module = module_of(case)
    pulled = _pulled(case, module)
    own = {value.name: value for value in pulled.inputs}
    outputs = interpret(module, values)
    rng = np.random.default_rng(0)
    for name in own.keys() - values.keys():
        like = outputs[name.removeprefix("d_")]
        seeds.setdefault(name, rng.standard_normal(like.shape).astype(ml_dtypes.bfloat16))
    cast = {name: seed.astype(own[name].dtype) for name, seed in seeds.items()}
    return list(interpret(pulled, values | cast).values())[len(outputs) :]


def _typed_cases() -> Iterator[str]:
    for name, case in CASES.items():
        only = all(own.dtype in ("f64", "i32", "i1", "ui8", "i8") for own in case.inputs.values())
        if only and not case.jumps and name.split()[0] not in _WIDE and name != "tan":
            yield name


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("name", list(_typed_cases()))
@pytest.mark.quick(30)
def test_gradients_of_16_bits_are_near_those_of_64(name, dtype):
    kept = _STATES.get(name.split()[0])
    case = _narrowed(CASES[name], dtype, kept)
    values, seeds = arrays_of(case, name), {}
    found = _gradients(case, values, seeds)
    wide = {
        key: array.astype(np.float64) if CASES[name].inputs[key].dtype == "f64" else array
        for key, array in values.items()
    }
    for got, expected in zip(found, _gradients(CASES[name], wide, seeds), strict=True):
        assert got.dtype in (_TYPES[dtype], np.float32)
        off = got.astype(np.float64) - expected
        assert inner(off, off) <= (0.05 if dtype == "bf16" else 0.01) ** 2 * inner(expected, expected) + 1e-6


# -- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CASES if any(own.words for own in CASES[name].inputs.values())])
@pytest.mark.quick(8)
def test_one_module_serves_all_sizes(name):
    case = CASES[name]
    module = module_of(case)
    for change in (1, -1):

        def sized(own: Input, change: int = change) -> Input:
            if own.words is None:
                return own
            sizes = zip(own.words, own.shape, strict=True)
            return replace(own, shape=tuple(size + change if isinstance(word, str) else size for word, size in sizes))

        other = replace(case, inputs={key: sized(own) for key, own in case.inputs.items()})
        try:
            values = arrays_of(other, name)
            interpret(module, values)
        except rlx.errors.InputError:
            continue  # numbers of the case fit its own sizes only
        check(module, values, case.wrt, tolerance=case.tolerance, jumps=case.jumps, forward=case.forward, seed=name)


@pytest.mark.parametrize("name", [name for name in CASES if any(own.words for own in CASES[name].inputs.values())])
@pytest.mark.quick(6)
def test_sizes_need_no_names(name):
    case = CASES[name]
    module = GraphModule.from_text(re.sub(r"mir\.dims = \[[^]]*\], ", "", module_of(case).to_text()))
    options = {"tolerance": case.tolerance, "jumps": case.jumps, "forward": case.forward}
    check(module, arrays_of(case, name), case.wrt, seed=name, count=1, **options)


# -- places where there are several derivatives -----------------------------------------------------------------------


def _gradient(build, **inputs) -> dict[str, np.ndarray]:
    """Gradients of the sum of what is built."""
    case = Case(lambda b, *values: b.sum(built := build(b, *values), list(range(built.ndim))), inputs)
    return interpret(rlx.grad(module_of(case)), arrays_of(case))


def test_each_of_several_largest_elements_has_the_whole_gradient():
    tied = given([[3.0, 1.0, 3.0], [2.0, 2.0, 2.0]])
    np.testing.assert_array_equal(_gradient(lambda b, x: b.max(x, 1), x=tied)["d_x"], [[1, 0, 1], [1, 1, 1]])
    np.testing.assert_array_equal(_gradient(lambda b, x: b.min(x, 1), x=tied)["d_x"], [[0, 1, 0], [1, 1, 1]])


def test_pools_give_the_gradient_to_the_first_of_several_largest_elements():
    tied = given(np.ones((1, 1, 2, 3)))
    for kind in ("max", "min"):
        found = _gradient(lambda b, x, kind=kind: b.pool(x, kind, 2), x=tied)["d_x"]
        np.testing.assert_array_equal(found, [[[[1, 1, 0], [0, 0, 0]]]])


def test_slopes_at_kinks_are_those_of_the_records():
    zero = given([0.0, 0.0])
    np.testing.assert_array_equal(_gradient(lambda b, x: b.relu(x), x=zero)["d_x"], [0, 0])
    np.testing.assert_array_equal(_gradient(lambda b, x: b.round(x), x=given([0.3, 1.7]))["d_x"], [1, 1])
    both = _gradient(lambda b, x, y: b.maximum(x, y), x=zero, y=zero)
    np.testing.assert_array_equal(both["d_x"] + both["d_y"], [1, 1])


def test_products_with_zeros_have_the_products_of_the_others():
    found = _gradient(lambda b, x: b.prod(x, 0), x=given([0.0, 2.0, 3.0]))["d_x"]
    np.testing.assert_array_equal(found, [6, 0, 0])


# -- rounding in training --------------------------------------------------------------------------------------------

X = np.array([-3.0, -0.4, 0.2, 0.7, 2.5])


@pytest.mark.parametrize(
    ("ste", "slope"),
    [
        ("identity", np.ones(5)),
        ("clipped_identity", [0, 1, 1, 1, 0]),
        ("tanh", 1 - np.tanh(X) ** 2),
        ("hard_tanh", np.maximum(1 - np.abs(X), 0)),
    ],
)
def test_gradients_go_through_rounding_by_the_estimator(ste, slope):
    def build(b, x, scale):
        return b.fake_quantize(x, scale, bits=2, ste=ste, scale_mode="fixed")[0]

    case = Case(lambda b, x, scale: b.sum(build(b, x, scale), 0), {"x": given(X), "scale": given([1.0], "f32")})
    found = interpret(rlx.grad(module_of(case), "x"), arrays_of(case))
    np.testing.assert_allclose(found["d_x"], slope, 1e-6)


def test_learned_scales_have_gradients():
    found = _gradient(lambda b, x, s: b.fake_quantize_lsq(x, s, bits=2), x=given(X), s=given([1.0], "f32"))
    np.testing.assert_array_equal(found["d_x"], [0, 1, 1, 1, 0])
    np.testing.assert_allclose(found["d_s"], [-1 + 0.4 - 0.2 + 0.3 + 1], 1e-6)


# -- what has none ---------------------------------------------------------------------------------------------------

#: Files that build the cases.
FILES = r"(test_derivatives|cases_images)\.py"
_SCENE = next(iter(SPLATS.values())).inputs
REFUSED = {
    "block_quantize": Case(lambda b, x: b.block_quantize(x)[1], {"x": normal(2, 32)}),
    "gaussian_splat_prepare": Case(lambda b, *scene: b.gaussian_splat_prepare(*scene), _SCENE),
    "gaussian_splat_rasterize": Case(
        lambda b, x, camera: b.gaussian_splat_rasterize(x, camera, width=2, height=2, max_list_entries=4),
        {"x": normal(59, dtype="f32"), "camera": _SCENE["camera"]},
    ),
    "gaussian_splat_render_backward": Case(
        lambda b, *given: b.gaussian_splat_render_backward(*given, width=2, height=2),
        {**_SCENE, "d": normal(16, dtype="f32")},
    ),
}


def test_images_in_two_steps_have_the_gradient_of_one():
    case = SPLATS["gaussian_splat_render of colors"]
    parted = replace(case, build=lambda b, *scene: b.gaussian_splat_render_decomposed(*scene, **VIEW))
    values, seeds = arrays_of(case), {}
    for one, two in zip(_gradients(case, values, seeds), _gradients(parted, values, seeds), strict=True):
        np.testing.assert_array_equal(one, two)
    other = replace(
        parted,
        build=lambda b, *scene: b.gaussian_splat_rasterize(b.gaussian_splat_prepare(*scene), scene[-1], width=32),
    )
    with pytest.raises(BuildError, match="gaussian_splat_rasterize"):
        rlx.vjp(module_of(other))


@pytest.mark.parametrize("transform", [rlx.vjp, rlx.jvp])
@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_an_error_that_names_it_and_the_line(name, transform):
    with pytest.raises(BuildError, match=rf"'mir.{name}'.*\(.*{FILES}:\d+\): it has no rule"):
        transform(module_of(REFUSED[name]))


def test_numbers_through_integers_have_no_gradient():
    m = GraphModule.mir("bytes")
    x = m.input("x", [3], "f32")
    m.set_outputs({"y": m.dequantize(m.quantize(x, 0.5), 0.5)})
    with pytest.warns(rlx.errors.GradientWarning, match="no output that is differentiated depends on argument 'x'"):
        pulled = rlx.vjp(m)
    values = {"x": np.ones(3, np.float32), "d_y": np.ones(3, np.float32)}
    np.testing.assert_array_equal(interpret(pulled, values)["d_x"], [0, 0, 0])


# -- compiled --------------------------------------------------------------------------------------------------------

#: Of each family, what runs as compiled code.
COMPILED = (
    *("gelu", "div", "where", "erfc", "concat of symbols", "slice backwards", "mean of symbols", "prod of symbols"),
    *("gather of batches", "scatter_add of axis 1", "softmax_cross_entropy_with_logits", "dot_general of symbols"),
    *("matmul of batches", "grouped_matmul", "layer_norm -1 with beta", "rms_norm 0 without beta"),
    *("attention with softcap", "attention with a bias", "rope interleaved with positions", "selective_scan"),
    *(
        "gated_delta_net",
        "conv2d with everything",
        "conv_transpose2d",
        "pool max",
        "pool mean",
        "pool prod",
        "group_norm",
    ),
    *("fft ortho", "fake_quantize tanh ema", "fake_quantize_lsq", "dequant_matmul", "dequant_matmul_scaled int4"),
    *("gaussian_splat_render of colors", "resize_nearest_2x", "top_k of rows", "cumsum exclusive"),
)


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.quick(3)
def test_compiled_gradients_are_those_of_the_definitions(name):
    case = _narrowed(CASES[name], "f32", None)
    module = module_of(case)
    pulled = _pulled(case, module)
    values = arrays_of(case, name)
    outputs = interpret(module, values)
    rng = np.random.default_rng(0)
    for value in pulled.inputs:
        if value.name not in values:
            like = outputs[value.name.removeprefix("d_")]
            values[value.name] = rng.standard_normal(like.shape).astype(np.float32)
    weights = {value.name: values.pop(value.name) for value in pulled.params}
    executable = rlx.compile(pulled)
    executable.set_params(weights)
    found = executable.run(values)
    for key, expected in interpret(pulled, values | weights).items():
        off = found[key].astype(np.float64) - expected.astype(np.float64)
        assert inner(off, off) <= 1e-5**2 * inner(expected, expected) + 1e-9, key
