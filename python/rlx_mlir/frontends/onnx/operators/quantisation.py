# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantised tensors and products: 8 and 16 bits, weights of few bits in blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends.tensors import Tensor, plain
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

from ..call import Call
from ..registry import MICROSOFT, Refused, operator
from ..types import HALVES, NUMPY, SMALL, in_graphs, is_integer, name_of
from ..windows import windows
from .convolutions import convolved

_I32 = np.dtype(np.int32)
_F32 = np.dtype(np.float32)
_F64 = np.dtype(np.float64)


def _codes(call: Call, number: int) -> Value:
    """An operand of integers; those of few bits, which values can't have, as bytes where they are known."""
    tensor = call.tensor(number)
    if tensor.dtype in SMALL and tensor.numbers is not None:
        tensor = Tensor.of(tensor.numbers.astype(np.int8), name=tensor.name)
    return call.importer.value(tensor)


def _along(call: Call, factor: Value, x: Sequence[Size]) -> Value:
    """Scales or zero points as what broadcasts with x: one for all, for each index of `axis`, or for blocks of it."""
    own = Tensor.running(factor).shape
    axis = call.along(call.integer("axis", 1), len(x)) if len(own) else 0
    block = call.integer("block_size", 0)
    if not own or (len(own) == 1 and own[0].constant == 1 and not block):
        return call.reshaped(factor, [])
    if len(own) == 1 and not (block and len(x) == 1):
        return call.reshaped(factor, [own[0] if i == axis else 1 for i in range(len(x))])
    if not block or len(own) != len(x):
        raise OnnxError(f"node '{call.name}': scales of {len(own)} dimensions for {len(x)}")
    wide = call.reshaped(factor, [*own[: axis + 1], 1, *own[axis + 1 :]])
    wide = call.expanded(wide, [*own[: axis + 1], block, *own[axis + 1 :]])
    wide = call.reshaped(wide, [*own[:axis], own[axis] * block, *own[axis + 1 :]])
    return call.m.slice(wide, axis, 0, plain([x[axis]])[0]) if own[axis] * block != x[axis] else wide


@operator("QuantizeLinear")
def _quantize(call: Call) -> Tensor:
    m, shape = call.m, call.shape(0)
    x = call.value(0)
    number = call.integer("output_dtype", 0)
    dtype = call.dtype(2) if call.has(2) else NUMPY.get(number) if number else np.dtype(np.uint8)
    if dtype is None or not in_graphs(dtype):
        raise Refused(f"values of graphs can't have elements of type {name_of(number) if dtype is None else dtype}")
    x = m.cast(x, _F32) if is_integer(x.dtype) or x.dtype in HALVES else x
    scale = call.narrowed(_along(call, call.value(1), shape), x.dtype)
    y = m.div(x, scale)
    if not is_integer(dtype):
        if not call.flag("saturate", True):
            raise Refused("floats of 8 bits saturate, but 'saturate' is 0")
        return call.out(m.cast(y, dtype))
    y = m.round(y)
    if call.has(2):
        y = m.add(y, m.cast(_along(call, call.value(2), shape), y.dtype))
    return call.out(m.cast(y, dtype))


@operator("DequantizeLinear")
def _dequantize(call: Call) -> Tensor:
    m, shape = call.m, call.shape(0)
    x, scale = _codes(call, 0), call.value(1)
    number = call.integer("output_dtype", 0)
    dtype = NUMPY.get(number) if number else scale.dtype
    if dtype is None or not in_graphs(dtype):
        raise Refused(f"values of graphs can't have elements of type {name_of(number)}")
    wide = _F32 if scale.dtype in HALVES else scale.dtype
    if is_integer(x.dtype) and call.has(2):
        codes = m.sub(m.cast(x, _I32), m.cast(_along(call, _codes(call, 2), shape), _I32))
    else:
        codes = x
    y = m.mul(m.cast(codes, wide), call.narrowed(_along(call, scale, shape), wide))
    return call.out(call.narrowed(y, dtype))


# Products -------------------------------------------------------------------------------------------


def _is_zero(tensor: Tensor | None) -> bool:
    return tensor is None or (tensor.numbers is not None and not np.any(tensor.numbers))


def integer_product(call: Call, a: int, b: int, a_zero: int, b_zero: int) -> Value:
    """(A - its zero points) (B - its zero points) of bytes, as i32, modulo 2^32.

    The product of bytes has kernels; what the zero points add are sums of rows and columns.
    """
    m = call.m
    x, w = call.value(a), call.value(b)
    y = m.matmul(x, w)
    left, right = call.maybe(a_zero), call.maybe(b_zero)
    if _is_zero(left) and _is_zero(right):
        return y
    count = call.shape(a)[-1]
    zx = None if _is_zero(left) else _zero_points(call, a_zero, -2)
    zw = None if _is_zero(right) else _zero_points(call, b_zero, -1)
    if zx is not None:
        y = m.sub(y, m.mul(m.sum(m.cast(w, _I32), -2, keep_dims=True), zx))
    if zw is not None:
        y = m.sub(y, m.mul(m.sum(m.cast(x, _I32), -1, keep_dims=True), zw))
    if zx is not None and zw is not None:
        number = m.constant(np.int32(count.constant)) if count.constant is not None else None
        if number is None:
            number = m.cast(call.importer.size(count), _I32)
        y = m.add(y, m.mul(m.mul(zx, zw), number))
    return y


def _zero_points(call: Call, number: int, axis: int) -> Value:
    """Zero points as i32: one, or one for each row (axis -2) or column (-1) of the result."""
    value = call.m.cast(call.value(number), _I32)
    shape = Tensor.running(value).shape
    if not shape or (len(shape) == 1 and shape[0].constant == 1):
        return call.reshaped(value, [])
    if len(shape) == 1:
        return call.reshaped(value, [shape[0], 1]) if axis == -2 else value
    return value


@operator("MatMulInteger")
def _matmul_integer(call: Call) -> Tensor:
    if call.rank(0) < 2 or call.rank(1) < 2:
        raise Refused("factors of one dimension")
    return call.out(integer_product(call, 0, 1, 2, 3))


@operator("MatMulIntegerToFloat", "DynamicQuantizeMatMul", domain=MICROSOFT)
def _matmul_integer_to_float(call: Call) -> Tensor:
    if call.op == "DynamicQuantizeMatMul":
        raise Refused("activations that are quantised within a product")
    m = call.m
    y = m.cast(integer_product(call, 0, 1, 4, 5), _F32)
    y = m.mul(y, m.mul(call.value(2), call.value(3)))
    return call.out(m.add(y, call.value(6)) if call.has(6) else y)


@operator("QLinearMatMul")
def _qlinear_matmul(call: Call) -> Tensor:
    m = call.m
    total = integer_product(call, 0, 3, 2, 5)
    scales = [call.narrowed(call.value(number), _F32) for number in (1, 4, 6)]
    a, b, y = (call.reshaped(s, []) if Tensor.running(s).shape in ((), (Size.of(1),)) else s for s in scales)
    a = call.reshaped(a, [*Tensor.running(a).shape, 1]) if a.ndim == 1 else a
    found = m.round(m.div(m.mul(m.cast(total, _F32), m.mul(a, b)), y))
    zero = m.cast(_zero_points(call, 7, -2), _F32)
    return call.out(m.cast(m.add(found, zero), call.dtype(7)))


def _integer_conv(call: Call, x: int, weight: int, x_zero: int, w_zero: int) -> Value:
    """A convolution of bytes less their zero points, exact, as f64."""
    m = call.m
    values = []
    for number, zero in ((x, x_zero), (weight, w_zero)):
        value = m.cast(call.value(number), _F64)
        if not _is_zero(call.maybe(zero)):
            points = m.cast(call.value(zero), _F64)
            shape = Tensor.running(points).shape
            one = not shape or shape[0].constant == 1
            value = m.sub(value, call.reshaped(points, [] if one else [shape[0], *[1] * (value.ndim - 1)]))
        values.append(value)
    sizes = call.shape(weight)[2:]
    if any(size.constant is None for size in sizes):
        raise Refused("a kernel whose size calls decide")
    over = windows(call, [size.constant or 0 for size in sizes], call.shape(x)[2:])
    return convolved(call, values[0], values[1], over, call.integer("group", 1))


@operator("ConvInteger")
def _conv_integer(call: Call) -> Tensor:
    return call.out(call.m.cast(_integer_conv(call, 0, 1, 2, 3), _I32))


@operator("QLinearConv")
def _qlinear_conv(call: Call) -> Tensor:
    m = call.m
    total = _integer_conv(call, 0, 3, 2, 5)
    rank = total.ndim
    if call.has(8):
        total = m.add(total, m.cast(call.reshaped(call.value(8), [*call.shape(8), *[1] * (rank - 2)]), _F64))
    x_scale, w_scale, y_scale = (call.narrowed(call.value(number), _F32) for number in (1, 4, 6))
    if call.shape(4) and call.shape(4)[0].constant != 1:
        w_scale = call.reshaped(w_scale, [*call.shape(4), *[1] * (rank - 2)])
    else:
        w_scale = call.reshaped(w_scale, [])
    scale = m.div(m.mul(call.reshaped(x_scale, []), w_scale), call.reshaped(y_scale, []))
    found = m.round(m.mul(m.cast(total, _F32), scale))
    return call.out(m.cast(m.add(found, m.cast(call.reshaped(call.value(7), []), _F32)), call.dtype(7)))


# Weights of few bits --------------------------------------------------------------------------------


@operator("MatMulNBits", domain=MICROSOFT)
def _matmul_bits(call: Call) -> Tensor:
    """Weights in blocks along K, which become those of `mir.dequant_matmul_scaled`."""
    m = call.m
    k, n, bits, block = (
        call.integer(word, default) for word, default in (("K", 0), ("N", 0), ("bits", 4), ("block_size", 0))
    )
    if bits not in (2, 4, 8) or block < 16 or k <= 0 or n <= 0:
        raise Refused(f"weights of {bits} bits in blocks of {block}, for K of {k} and N of {n}")
    if call.has(4):
        raise Refused("an order of columns, 'g_idx'")
    count = math.ceil(k / block)
    codes = _unpacked(call, 1, bits, (n, count * block))[:, :k].T
    scales = call.known(2, "the scales").reshape(n, count).T.astype(np.float32)
    middle = 1 << (bits - 1)
    points = _points(call, bits, n, count)
    x = call.value(0)
    params = [np.ascontiguousarray(scales)]
    if points is None and bits == 4:
        weight = _nibbles(codes.astype(np.int16) - middle)
        scheme = f"int4/{block}"
    else:
        weight = (codes.astype(np.int16) - middle).astype(np.int8)
        scheme = f"int8/{block}" if points is None else f"int8a/{block}"
        params += [] if points is None else [np.ascontiguousarray(points.T.astype(np.float32) - middle)]
    names = [call.node.input[1], call.node.input[2], call.node.input[3] if len(call.node.input) > 3 else ""]
    values = [
        call.importer.value(Tensor.of(np.ascontiguousarray(each), name=name))
        for each, name in zip([weight, *params], names, strict=False)
    ]
    y = m.dequant_matmul(x, values[0], values[1], values[2] if len(values) > 2 else None, scheme)
    return call.out(m.add(y, call.value(5)) if call.has(5) else y)


def _unpacked(call: Call, number: int, bits: int, shape: tuple[int, int]) -> np.ndarray:
    """Codes without sign, of which a byte holds several, the first one in its low bits."""
    content = call.known(number, "the codes of a weight").astype(np.uint8).reshape(shape[0], -1)
    each = 8 // bits
    codes = np.stack([(content >> (bits * i)) & ((1 << bits) - 1) for i in range(each)], -1)
    codes = codes.reshape(shape[0], -1)[:, : shape[1]]
    if codes.shape != shape:
        raise OnnxError(f"node '{call.name}': {shape[0]} x {shape[1]} codes are needed, but there are {codes.shape}")
    return codes


def _points(call: Call, bits: int, n: int, count: int) -> np.ndarray | None:
    """Zero points [N, blocks]; None where all are the middle one."""
    if not call.has(3):
        return None
    if call.dtype(3) == np.uint8:
        return _unpacked(call, 3, bits, (n, count))
    return call.known(3, "the zero points").reshape(n, count)


def _nibbles(codes: np.ndarray) -> np.ndarray:
    """Codes of 4 bits [K, N], two in a byte, in row-major order."""
    flat = (codes.reshape(-1) & 15).astype(np.uint8)
    flat = np.concatenate([flat, np.zeros(flat.size % 2, np.uint8)])
    return (flat[::2] | (flat[1::2] << 4)).view(np.int8)
