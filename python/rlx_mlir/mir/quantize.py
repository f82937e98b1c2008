# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of 8 bits with given scales, their products, and what stands for them in training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from mlir.dialects import arith

from rlx_mlir import ir
from rlx_mlir.attributes import elements_attribute, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.formats import affine
from rlx_mlir.formats.affine import BEYOND, by_channel, round_away, to_bytes
from rlx_mlir.mir.conv import conv, conv_dims, convolved
from rlx_mlir.mir.cost import Cost, Sizes, cost, per_element
from rlx_mlir.mir.dims import Size, product
from rlx_mlir.mir.linalg import (
    Map,
    SizeLike,
    converted,
    elementwise,
    empty,
    generic,
    reduced,
    size_of,
    tensor_type,
)
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.reductions import reduce_axes
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, absolute, accumulator, element, exp, round_even
from rlx_mlir.rewriting import Rewriter

#: The largest integer of so many bits, the smallest one of which isn't used.
LARGEST = {8: 127, 4: 7, 2: 1}
#: The smallest scale of what is rounded in training.
LEAST_SCALE = 1e-12

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


quantize = reference(mir.QuantizeOp)(affine.quantize)
dequantize = reference(mir.DequantizeOp)(affine.dequantize)


def _rounded(x: np.ndarray, scale: np.ndarray, bits: int, axis: int | None) -> np.ndarray:
    """clamp(round(x / scale), -largest, largest) scale, in the type of x, whose channels have scales of f32."""
    wide = widen(x)
    scales = by_channel(scale, x.ndim, axis, wide.dtype)
    return narrow(round_away(wide / scales).clip(-LARGEST[bits], LARGEST[bits]) * scales, x.dtype)


def _others(rank: int, axis: int | None) -> tuple[int, ...]:
    """The dimensions that aren't channels."""
    return tuple(dim for dim in range(rank) if axis is None or dim != axis % rank)


@reference(mir.FakeQuantizeOp)
def fake_quantize(
    x: np.ndarray,
    state: np.ndarray | None = None,
    *,
    bits: int,
    axis: int | None = None,
    ste: str = "identity",
    scale_mode: str = "per_batch",
    decay: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(clamp(round(x / scale), -largest, largest) scale, scale); the mode gives the scale, `ste` gradients alone."""
    least = np.float32(LEAST_SCALE)
    if scale_mode == "fixed":
        assert state is not None, "C3"
        scale = np.maximum(state, least)
    else:
        largest = np.max(np.abs(widen(x)), axis=_others(x.ndim, axis), initial=0).reshape(-1).astype(np.float32)
        scale = np.maximum(largest / np.float32(LARGEST[bits]), least)
        if scale_mode == "ema":
            assert state is not None, "C3"
            assert decay is not None, "C3"
            kept = np.float32(decay)
            scale = np.where(state <= 0, scale, kept * state + (np.float32(1) - kept) * scale)
    return _rounded(x, scale, bits, axis), scale


@reference(mir.FakeQuantizeBackwardOp)
def fake_quantize_backward(
    x: np.ndarray, scale: np.ndarray, g: np.ndarray, *, bits: int, axis: int | None = None, ste: str = "identity"
) -> np.ndarray:
    """The gradient of what is rounded with a scale, from that of the result, by the estimator `ste`."""
    wide, gradient = widen(x), widen(g)
    s = by_channel(scale, x.ndim, axis, wide.dtype)
    largest = s * wide.dtype.type(LARGEST[bits])
    if ste == "clipped_identity":
        gradient = np.where(np.abs(wide) <= largest, gradient, 0)
    elif ste == "tanh":
        power = np.exp(np.abs(wide / s) * -2)  # 1 - tanh^2 would have no digits where tanh is near 1
        gradient = gradient * (4 * power / ((1 + power) * (1 + power)))
    elif ste == "hard_tanh":
        gradient = gradient * np.maximum(1 - np.abs(wide / largest), 0)
    return narrow(gradient, x.dtype)


def _learned(scale: np.ndarray, x: np.ndarray, axis: int | None) -> np.ndarray:
    """Learned scales of the channels of x, in the type in which it is computed."""
    return by_channel(np.maximum(scale, np.float32(LEAST_SCALE)), x.ndim, axis, widen(x).dtype)


@reference(mir.FakeQuantizeLsqOp)
def fake_quantize_lsq(x: np.ndarray, scale: np.ndarray, *, bits: int, axis: int | None = None) -> np.ndarray:
    """clamp(round(x / s), -largest, largest) s, with s the scale, 1e-12 at least."""
    return _rounded(x, np.maximum(scale, np.float32(LEAST_SCALE)), bits, axis)


@reference(mir.FakeQuantizeLsqBackwardXOp)
def fake_quantize_lsq_backward_x(
    x: np.ndarray, scale: np.ndarray, g: np.ndarray, *, bits: int, axis: int | None = None
) -> np.ndarray:
    """g where |x / s| is the largest integer at most, 0 elsewhere."""
    return np.where(np.abs(widen(x) / _learned(scale, x, axis)) <= LARGEST[bits], g, np.zeros((), g.dtype))


@reference(mir.FakeQuantizeLsqBackwardScaleOp)
def fake_quantize_lsq_backward_scale(
    x: np.ndarray, scale: np.ndarray, g: np.ndarray, *, bits: int, axis: int | None = None
) -> np.ndarray:
    """The sum of g times what the rounding of z = x / s adds to it, or the largest integer, over each channel."""
    z = widen(x) / _learned(scale, x, axis)
    largest = LARGEST[bits]
    weight = np.where(np.abs(z) <= largest, round_away(z) - z, np.sign(z) * largest)
    return np.asarray((weight * widen(g)).sum(axis=_others(x.ndim, axis)).reshape(-1).astype(np.float32))


def _requantized(total: np.ndarray, bias: np.ndarray | None, mult: float, zero_point: int) -> np.ndarray:
    """Exact sums, with the bias of each output, the last dimension, as i8: i32 wraps around first."""
    if bias is not None:
        total = total + bias
    return to_bytes(total.astype(np.int32).astype(np.float32) * np.float32(mult), zero_point)


@reference(mir.QMatmulOp)
def q_matmul(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    x_zp: int = 0,
    w_zp: int = 0,
    out_zp: int = 0,
    mult: float,
) -> np.ndarray:
    """round((bias + (x - x_zp) (weight - w_zp)) mult) + out_zp as i8; f64 holds the sums exactly."""
    total = np.matmul(x.astype(np.float64) - x_zp, weight.astype(np.float64) - w_zp)
    return _requantized(total.astype(np.int64), bias, mult, out_zp)


@reference(mir.QConv2dOp)
def q_conv2d(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    x_zp: int = 0,
    w_zp: int = 0,
    out_zp: int = 0,
    mult: float,
) -> np.ndarray:
    """round((bias + conv(x - x_zp, weight - w_zp)) mult) + out_zp as i8; f64 holds the sums exactly."""
    wide, taps = x.astype(np.float64) - x_zp, weight.astype(np.float64) - w_zp
    total = conv(wide, taps, stride=stride, padding=padding, dilation=dilation, groups=groups).astype(np.int64)
    return _requantized(total, None if bias is None else bias.reshape(-1, 1, 1), mult, out_zp)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------

cost(mir.QuantizeOp)(per_element(4))  # times, round, plus, clamp
cost(mir.DequantizeOp)(per_element(2))
cost(mir.FakeQuantizeOp)(per_element(6))  # magnitude, largest, and the four of the next one
cost(mir.FakeQuantizeLsqOp)(per_element(4))
cost(mir.FakeQuantizeLsqBackwardXOp)(per_element(3))

#: What a gradient computes of an element.
_STE_COST = {"identity": 0, "clipped_identity": 3, "tanh": 5, "hard_tanh": 5}


@cost(mir.FakeQuantizeBackwardOp)
def fake_quantize_backward_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """By the estimator."""
    return Cost(_STE_COST[_word(op.ste)] * sizes.count(op.x))


@cost(mir.FakeQuantizeLsqBackwardScaleOp)
def fake_quantize_lsq_backward_scale_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Quotient, rounding, difference, product, sum."""
    return Cost(5 * sizes.count(op.x))


@cost(mir.QMatmulOp)
def q_matmul_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 M N K, and 4 for each result."""
    return Cost((2 * sizes[op.x][1] + 4) * sizes.count(op.result))


@cost(mir.QConv2dOp)
def q_conv2d_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 for each element of the result and of the kernel of its output, and 4 for each result."""
    return Cost((2 * product(sizes[op.weight][1:]) + 4) * sizes.count(op.result))


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


def _with_channels(
    op: ir.AnyOp, dims: tuple[Size, ...], count: Size | None
) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """Those of a tensor, and of its channels, where an operand or attribute with an entry for each may be of static
    size."""
    axis = python_value(op.axis)
    if axis is None:
        return dims, (Size.of(1),)
    own = dims[axis] if count is None or count.constant is None else count
    position = axis % len(dims)
    return (*dims[:position], own, *dims[position + 1 :]), (own,)


@dim_rule(mir.QuantizeOp, mir.DequantizeOp)
def quantize_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of the operand; along the axis there are as many as there are scales."""
    return _with_channels(op, operands[0], Size.of(len(python_value(op.scales))))[0]


@dim_rule(mir.FakeQuantizeOp)
def fake_quantize_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """Those of x, and [C]."""
    x, *state = operands
    return list(_with_channels(op, x, state[0][0] if state else None))


@dim_rule(mir.FakeQuantizeBackwardOp, mir.FakeQuantizeLsqOp, mir.FakeQuantizeLsqBackwardXOp)
def rounded_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of x."""
    return _with_channels(op, operands[0], operands[1][0])[0]


@dim_rule(mir.FakeQuantizeLsqBackwardScaleOp)
def scale_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[C]"""
    return _with_channels(op, operands[0], operands[1][0])[1]


def _outputs(own: Size, bias: Sequence[tuple[Size, ...]]) -> Size:
    """The number of outputs, which a bias may be the one to tell."""
    return bias[0][0] if bias and bias[0][0].constant is not None else own


@dim_rule(mir.QMatmulOp)
def q_matmul_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[M, N]"""
    x, weight, *bias = operands
    return x[0], _outputs(weight[1], bias)


@dim_rule(mir.QConv2dOp)
def q_conv2d_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[N, Co, Ho, Wo]"""
    batch, outputs, *area = conv_dims(op, operands[:2])
    return (batch, _outputs(outputs, operands[2:]), *area)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


def _word(attribute: ir.Attribute) -> str:
    return str(python_value(attribute))


def _nearest(x: Scalar) -> Scalar:
    """The integer nearest to x, of two the one that is farther from 0."""
    even = round_even(x)
    is_tie = absolute(x - even).compare("eq", 0.5)
    return is_tie.select(x + (x < 0).select(x.like(-0.5), 0.5), even)


def _to_bytes(x: Scalar, zero_point: Scalar | float) -> Scalar:
    """A float rounded to an integer, and that with the zero point added, as i8: saturated, NaN as 0."""
    rounded = _nearest(x).max(-BEYOND).min(BEYOND - 1)
    number = rounded.compare("eq", rounded).select(rounded, 0)
    return (Scalar(arith.FPToSIOp(element("i32"), number.value).result) + zero_point).to("i8")


def _axis_map(op: ir.AnyOp, rank: int) -> list[int | None]:
    """The map of a vector with an entry for each channel."""
    axis = python_value(op.axis)
    return [None if axis is None else axis % rank]


def _channelwise(
    op: ir.AnyOp,
    result: ir.Type,
    tensors: Sequence[ir.Value],
    vectors: Sequence[ir.Value],
    body: Callable[..., Scalar],
) -> ir.Value:
    """A tensor of a function of the elements of others of its shape, widened, and of those of their channels."""
    type = ir.RankedTensorType(result)
    loops = range(type.rank)
    sizes: list[SizeLike] = [
        size_of(tensors[0], dim) if type.is_dynamic_dim(dim) else int(type.get_dim_size(dim)) for dim in loops
    ]
    inputs: list[tuple[ir.Value, Map]] = [(tensor, loops) for tensor in tensors]
    inputs += [(vector, _axis_map(op, type.rank)) for vector in vectors]
    target = type.element_type

    def rounded(*scalars: Scalar) -> Scalar:
        return body(*(scalar.widen() for scalar in scalars[:-1])).to(target)

    return generic(type.rank, inputs, [(empty(sizes, target), loops)], rounded)


Numbers = tuple[Sequence[float] | np.ndarray, ir.Type]


def _vectors(op: ir.AnyOp, *tables: Numbers) -> tuple[list[ir.Value], list[float]]:
    """Numbers of channels, one table for each kind: as tensors, or the one of each where there is no axis."""
    if op.axis is None:
        return [], [numbers[0] for numbers, _ in tables]
    attributes = [elements_attribute(np.array(numbers, numpy_dtype(type)), type) for numbers, type in tables]
    return [arith.ConstantOp(attribute.type, attribute).result for attribute in attributes], []


@TO_LINALG.pattern(mir.QuantizeOp)
def lower_quantize(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """quantize(x) -> generic: clamp(round(x * (1 / scale)) + zero_point)"""
    computed = accumulator(op.x.type.element_type)
    inverse = 1 / np.array(python_value(op.scales), np.float32).astype(numpy_dtype(computed))
    vectors, shared = _vectors(op, (inverse, computed), (python_value(op.zero_points), element("i32")))

    def quantised(x: Scalar, *own: Scalar) -> Scalar:
        factor, zero_point = own or shared
        return _to_bytes(x * factor, zero_point)

    rewriter.replace(op, _channelwise(op, op.result.type, [op.x], vectors, quantised))


@TO_LINALG.pattern(mir.DequantizeOp)
def lower_dequantize(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """dequantize(q) -> generic: (q - zero_point) * scale"""
    vectors, shared = _vectors(
        op, (python_value(op.scales), element("f32")), (python_value(op.zero_points), element("i32"))
    )

    def number(q: Scalar, *own: Scalar) -> Scalar:
        scale, zero_point = own or shared
        return (q.to("i32") - zero_point).to("f32") * scale

    rewriter.replace(op, _channelwise(op, op.result.type, [op.q], vectors, number))


def _rounding(op: ir.AnyOp, scale: ir.Value, floor: Callable[[Scalar], Scalar]) -> ir.Value:
    """clamp(round(x / s), -largest, largest) * s of each element, with s what `floor` makes of its scale."""
    largest = LARGEST[python_value(op.bits)]

    def rounded(x: Scalar, scale: Scalar) -> Scalar:
        s = floor(scale).to(x.type)
        return _nearest(x / s).max(-largest).min(largest) * s

    return _channelwise(op, op.operation.results[0].type, [op.x], [scale], rounded)


def _at_least(scale: Scalar) -> Scalar:
    return scale.max(LEAST_SCALE)


@TO_LINALG.pattern(mir.FakeQuantizeOp)
def lower_fake_quantize(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """fake_quantize(x) -> m[c] = max|x|; scale[c] of m[c] and state[c]; clamp(round(x / scale)) * scale"""
    mode, divisor = _word(op.scale_mode), LARGEST[python_value(op.bits)]
    type = op.scale.type
    if mode == "fixed":
        scale = elementwise(type, [op.state], _at_least)
    else:
        rank = op.x.type.rank
        count: SizeLike = size_of(op.x, python_value(op.axis)) if type.is_dynamic_dim(0) else int(type.get_dim_size(0))
        largest = reduced(
            rank, [(op.x, range(rank))], [count], _axis_map(op, rank), 0, lambda x, most: most.max(absolute(x))
        )

        def scale_of(most: Scalar, *state: Scalar) -> Scalar:
            current = _at_least(most.to("f32") / divisor)
            if not state:
                return current
            kept = np.float32(python_value(op.decay))
            moved = state[0] * float(kept) + current * float(np.float32(1) - kept)
            return (state[0] <= 0).select(current, moved)

        scale = elementwise(type, [largest, *([] if op.state is None else [op.state])], scale_of)
    rewriter.replace(op, _rounding(op, scale, lambda scale: scale), scale)


@TO_LINALG.pattern(mir.FakeQuantizeLsqOp)
def lower_fake_quantize_lsq(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """fake_quantize_lsq(x, scale) -> generic: clamp(round(x / s)) * s with s = max(scale, 1e-12)"""
    rewriter.replace(op, _rounding(op, op.scale, _at_least))


@TO_LINALG.pattern(mir.FakeQuantizeBackwardOp)
def lower_fake_quantize_backward(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """fake_quantize_backward(x, scale, g) -> generic: g times the slope of the estimator"""
    ste, qmax = _word(op.ste), LARGEST[python_value(op.bits)]

    def gradient(x: Scalar, g: Scalar, scale: Scalar) -> Scalar:
        s = scale.to(x.type)
        if ste == "identity":
            return g
        if ste == "clipped_identity":
            return (absolute(x) <= s * qmax).select(g, 0)
        if ste == "tanh":
            power = exp(absolute(x / s) * -2)
            return g * (power * 4 / ((power + 1) * (power + 1)))
        return g * (1 - absolute(x / (s * qmax))).max(0)

    rewriter.replace(op, _channelwise(op, op.result.type, [op.x, op.g], [op.scale], gradient))


@TO_LINALG.pattern(mir.FakeQuantizeLsqBackwardXOp)
def lower_fake_quantize_lsq_backward_x(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """fake_quantize_lsq_backward_x(x, scale, g) -> generic: g where |x / s| is at most the largest integer"""
    largest = LARGEST[python_value(op.bits)]

    def gradient(x: Scalar, g: Scalar, scale: Scalar) -> Scalar:
        return (absolute(x / _at_least(scale).to(x.type)) <= largest).select(g, 0)

    rewriter.replace(op, _channelwise(op, op.result.type, [op.x, op.g], [op.scale], gradient))


@TO_LINALG.pattern(mir.FakeQuantizeLsqBackwardScaleOp)
def lower_fake_quantize_lsq_backward_scale(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """fake_quantize_lsq_backward_scale(x, scale, g) -> generic: terms of the elements; their sum over each channel"""
    largest = LARGEST[python_value(op.bits)]
    axis, rank = python_value(op.axis), op.x.type.rank

    def term(x: Scalar, g: Scalar, scale: Scalar) -> Scalar:
        z = x / _at_least(scale).to(x.type)
        outside = (z < 0).select(z.like(-largest), largest)
        # NaN is outside of every range, and stays what it is.
        outside = z.compare("eq", z).select(outside, z)
        return g * (absolute(z) <= largest).select(_nearest(z) - z, outside)

    sizes = [size_of(op.x, dim) for dim in range(rank)]
    if axis is not None and not op.result.type.is_dynamic_dim(0):
        sizes[axis] = int(op.result.type.get_dim_size(0))
    computed = accumulator(op.x.type.element_type)
    terms = _channelwise(op, tensor_type(sizes, computed), [op.x, op.g], [op.scale], term)
    total = reduce_axes(terms, "sum", _others(rank, axis)) if _others(rank, axis) else terms
    if axis is None:
        total = generic(1, [(total, [])], [(empty([1], computed), [0])], lambda x, _: x)
    rewriter.replace(op, converted(total, op.result.type))


def _requantised(op: ir.AnyOp, total: ir.Value, outputs: int) -> ir.Value:
    """Sums of i32, with the bias of each output, which that dimension numbers, as i8."""
    loops = range(ir.RankedTensorType(total.type).rank)
    inputs: list[tuple[ir.Value, Map]] = [(total, loops)]
    if op.bias is not None:
        inputs.append((op.bias, [outputs]))

    def result(total: Scalar, *rest: Scalar) -> Scalar:
        whole = total + rest[0] if len(rest) > 1 else total
        return _to_bytes(whole.to("f32") * python_value(op.mult), python_value(op.out_zp))

    type = op.result.type
    sizes: list[SizeLike] = [
        size_of(total, dim) if type.is_dynamic_dim(dim) else int(type.get_dim_size(dim)) for dim in loops
    ]
    return generic(len(loops), inputs, [(empty(sizes, type.element_type), loops)], result)


def _product(op: ir.AnyOp) -> Callable[[Scalar, Scalar, Scalar], Scalar]:
    """How a product of two integers, each without its zero point, is added to a sum of i32."""
    x_zp, w_zp = python_value(op.x_zp), python_value(op.w_zp)

    def added(x: Scalar, w: Scalar, total: Scalar) -> Scalar:
        return total + (x.to("i32") - x_zp) * (w.to("i32") - w_zp)

    return added


@TO_LINALG.pattern(mir.QMatmulOp)
def lower_q_matmul(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """q_matmul(x, w, b) -> sum += (x - x_zp) * (w - w_zp); generic: clamp(round((sum + b) * mult) + out_zp)"""
    sizes = [size_of(op.x, 0), size_of(op.weight, 1)]
    m, k, n = range(3)  # the innermost loop runs along rows of the weight
    total = reduced(3, [(op.x, [m, k]), (op.weight, [k, n])], sizes, [m, n], 0, _product(op), type=element("i32"))
    rewriter.replace(op, _requantised(op, total, 1))


@TO_LINALG.pattern(mir.QConv2dOp)
def lower_q_conv2d(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """q_conv2d(x, w, b) -> the sums of conv; generic: clamp(round((sum + b) * mult) + out_zp)"""
    total = convolved(op, _product(op), element("i32"), outside=python_value(op.x_zp))
    rewriter.replace(op, _requantised(op, total, 1))
