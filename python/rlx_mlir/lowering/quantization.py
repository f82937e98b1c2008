# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Post-training quantisation: quantised operands and results of products by a calibration's ranges, and products of
8 bits in place of those of floats between them."""

from __future__ import annotations

import math

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_attribute, floats_attribute, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import only_user, producer, shape_of
from rlx_mlir.rewriting import Option, PatternSet, Rewriter, ValueChange, apply_patterns, compiler_pass, erase_dead

#: Attribute of a product: [low, high] of each operand, and of its result, after the bias where one is added.
RANGES = "mir.ranges"
#: What stands for a range of nothing but zeros.
_LEAST_SCALE = 1e-6

INSERT, PROPAGATE = PatternSet(), PatternSet()
_SYMMETRIC = "symmetric"

# ----------------------------------------------------------------------------------------------------------------------
# Scales
# ----------------------------------------------------------------------------------------------------------------------


def scale_of(low: float, high: float, *, symmetric: bool) -> tuple[float, int]:
    """(scale, zero point) by which 8 bits hold numbers from `low` to `high`, and 0 exactly."""
    low, high = min(low, 0.0), max(high, 0.0)
    if symmetric:
        return float(np.float32(max(-low, high, 127 * _LEAST_SCALE) / 127)), 0
    scale = max((high - low) / 255, _LEAST_SCALE)
    return float(np.float32(scale)), int(np.clip(round(-128 - low / scale), -128, 127))


# ----------------------------------------------------------------------------------------------------------------------
# Products
# ----------------------------------------------------------------------------------------------------------------------

#: What can become a product of 8 bits.
PRODUCTS = (mir.MatmulOp, mir.ConvOp)


def factors(op: ir.AnyOp) -> tuple[ir.Value, ir.Value]:
    """What a product multiplies: values, and weights."""
    return (op.lhs, op.rhs) if isinstance(op, mir.MatmulOp) else (op.x, op.weight)


def bias_of(op: ir.AnyOp) -> tuple[ir.AnyOp, ir.Value] | None:
    """(the addition of a bias to a product that nothing else reads, the bias); None where there is none."""
    add = only_user(op.result)
    if not isinstance(add, mir.AddOp) or add.result.type != op.result.type:
        return None
    bias = add.rhs if add.lhs == op.result else add.lhs
    shape, outputs = shape_of(bias), outputs_of(op)
    trailing = [1, 1] if isinstance(op, mir.ConvOp) else []
    wanted = [outputs, *trailing]
    while len(shape) > len(wanted) and shape[0] == 1:
        shape = shape[1:]
    return (add, bias) if shape == wanted and outputs > 0 else None


def outputs_of(op: ir.AnyOp) -> int:
    """The number of outputs of a product; negative where it isn't known."""
    return shape_of(op.result)[1 if isinstance(op, mir.ConvOp) else -1]


def final_result(op: ir.AnyOp) -> ir.Value:
    """The product with its bias."""
    added = bias_of(op)
    result: ir.Value = op.result if added is None else added[0].result
    return result


# ----------------------------------------------------------------------------------------------------------------------
# mir-insert-qdq
# ----------------------------------------------------------------------------------------------------------------------


@compiler_pass(
    "mir-insert-qdq",
    options={"symmetric": Option("ranges of values are symmetric, as those of weights are; zero points are 0", False)},
    changes_values=ValueChange("operands and results of products are rounded to 8 bits", 0.1),
)
def insert_qdq(module: ir.Operation, *, symmetric: bool) -> None:
    """Put quantize and dequantize around products of f32, by the ranges that a calibration has found.

    Products that have ranges, the attribute `mir.ranges`, lose it; others stay as they are. Weights, the second
    operand, have symmetric ranges. The result is what a bias has been added to, where nothing but its addition reads
    the product.
    """
    apply_patterns(module, INSERT.select(_SYMMETRIC) if symmetric else INSERT.select())
    erase_dead(module)


def _round_trip(value: ir.Value, bounds: tuple[float, float], *, symmetric: bool) -> ir.AnyOp:
    """(quantize, dequantize) of a value."""
    scale, zero_point = scale_of(*bounds, symmetric=symmetric)
    scales, zero_points = floats_attribute([scale], value.context), ir.DenseI32ArrayAttr.get([zero_point])
    quantised = mir.QuantizeOp(value, scales, zero_points)
    return mir.DequantizeOp(quantised.result, scales, zero_points)


def _insert(op: ir.AnyOp, rewriter: Rewriter, *, symmetric: bool) -> None:
    operation = op.operation
    if RANGES not in operation.attributes:
        return
    bounds = [tuple(entry) for entry in python_value(operation.attributes[RANGES])]
    if any(str(ir.RankedTensorType(v.type).element_type) != "f32" for v in operation.operands):
        return rewriter.no_match("its operands aren't of f32")
    if len(bounds) != 3 or not all(len(pair) == 2 and all(map(math.isfinite, pair)) for pair in bounds):
        return rewriter.no_match(f"'{RANGES}' isn't three pairs of numbers")
    del operation.attributes[RANGES]
    for number, (value, own) in enumerate(zip(factors(op), bounds, strict=False)):
        if producer(value, mir.DequantizeOp) is None:
            operation.operands[number] = _round_trip(value, own, symmetric=symmetric or number == 1).result
    result = final_result(op)
    readers = list(result.uses)
    with ir.InsertionPoint.after(result.owner):
        last = _round_trip(result, bounds[2], symmetric=symmetric)
    for use in readers:
        use.owner.operands[use.operand_number] = last.result
    rewriter.changed()


def insert_around(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """product with ranges -> the product between quantize and dequantize"""
    _insert(op, rewriter, symmetric=False)


def insert_symmetric(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """product with ranges -> the product between quantize and dequantize, without zero points"""
    _insert(op, rewriter, symmetric=True)


for _kind in PRODUCTS:
    INSERT.pattern(_kind, _SYMMETRIC)(insert_symmetric)  # where it is selected it comes first
    INSERT.pattern(_kind)(insert_around)


# ----------------------------------------------------------------------------------------------------------------------
# mir-quant-propagate
# ----------------------------------------------------------------------------------------------------------------------


@compiler_pass(
    "mir-quant-propagate",
    changes_values=ValueChange("products of 8 bits round a bias to integers, and their sums once", 0.05),
)
def quant_propagate(module: ir.Operation) -> None:
    """Make quantize(product(dequantize(x), dequantize(w)) + bias) a product of 8 bits.

    Products of one scale each become mir.q_matmul and mir.q_conv2d; those of more dimensions are of their rows. A
    bias becomes one of integers. What is quantised by one scale and read by another is quantised again, and
    dequantize(quantize(dequantize(q))) of one scale is dequantize(q).
    """
    apply_patterns(module, PROPAGATE)
    erase_dead(module)


def _shared(op: ir.AnyOp) -> tuple[float, int] | None:
    """(scale, zero point) of a whole tensor; None where channels have their own."""
    scales, zero_points = python_value(op.scales), python_value(op.zero_points)
    return (scales[0], zero_points[0]) if op.axis is None else None


@PROPAGATE.pattern(mir.QuantizeOp)
def drop_round_trip(op: mir.QuantizeOp, rewriter: Rewriter) -> None:
    """quantize(dequantize(q)) of the same scales -> q"""
    before = producer(op.x, mir.DequantizeOp)
    if before is None:
        return
    if (op.scales, op.zero_points, op.axis) == (before.scales, before.zero_points, before.axis):
        rewriter.replace(op, before.q)


def _product_before(value: ir.Value) -> tuple[ir.AnyOp, ir.Value | None] | None:
    """(product, bias) of which a value is the result; None where it is another's, or something else reads them."""
    found = producer(value, *PRODUCTS)
    if found is not None:
        return (found, None) if only_user(value) is not None else None
    add = producer(value, mir.AddOp)
    if add is None or only_user(value) is None:
        return None
    for own in (add.lhs, add.rhs):
        product = producer(own, *PRODUCTS)
        added = None if product is None else bias_of(product)
        if added is not None and added[0] == add:
            return product, added[1]
    return None


def _integer_bias(bias: ir.Value, outputs: int, unit: float) -> ir.Value:
    """A bias as integers of a unit, [outputs]."""
    f32 = ir.F32Type.get()
    if shape_of(bias) != [outputs]:
        bias = mir.reshape(bias, [outputs], [])
    factor = mir.constant(elements_attribute(np.array(1 / np.float32(unit)), f32))
    return mir.cast(
        ir.RankedTensorType.get([outputs], ir.IntegerType.get_signless(32)), mir.round(mir.mul(bias, factor))
    )


def _with_rows_of(result: ir.Value, x: ir.Value, shape: list[int]) -> ir.Value:
    """A matrix in a shape whose dimensions but the last are those of x, of which several may be dynamic."""
    if sum(size < 0 for size in shape) <= 1:
        return mir.reshape(result, [size if size >= 0 else -1 for size in shape], [])
    dims = [dim for dim, size in enumerate(shape[:-1]) if size < 0]
    sizes = ir.ArrayAttr.get([ir.StringAttr.get(f"d{number}") for number in range(len(dims))])
    wanted = [*(size if size >= 0 else -3 for size in shape[:-1]), max(shape[-1], -1)]
    return mir.reshape(result, wanted, [x] * len(dims), sizes=sizes, like_dims=ir.DenseI64ArrayAttr.get(dims))


@PROPAGATE.pattern(mir.QuantizeOp)
def integer_product(op: mir.QuantizeOp, rewriter: Rewriter) -> None:
    """quantize(product(dequantize(x), dequantize(w)) + bias) -> q_matmul or q_conv2d of x and w"""
    found = _product_before(op.x)
    if found is None:
        return None
    product, bias = found
    sources = [producer(value, mir.DequantizeOp) for value in factors(product)]
    if any(source is None for source in sources):
        return rewriter.no_match("an operand of the product isn't quantised")
    shared = [own for own in map(_shared, (*sources, op)) if own is not None]
    if len(shared) < 3:
        return rewriter.no_match(
            "channels have scales of their own", hint="products of 8 bits have one of each operand"
        )
    (x_scale, x_zp), (w_scale, w_zp), (y_scale, out_zp) = shared
    unit = x_scale * w_scale
    mult = float(np.float32(unit / y_scale))
    if not 0 < mult < math.inf or not 0 < np.float32(unit) < math.inf:
        return rewriter.no_match("the quotient of the scales is no number of f32")
    x, w = (source.q for source in sources)
    if isinstance(product, mir.MatmulOp) and len(shape_of(w)) != 2:
        return rewriter.no_match("the weights have more than two dimensions")
    outer = shape_of(op.x)[:-1]
    if isinstance(product, mir.MatmulOp) and not outer:
        return rewriter.no_match("no dimension numbers rows")
    whole = None if bias is None else _integer_bias(bias, outputs_of(product), unit)
    i32 = ir.IntegerType.get_signless(32)
    numbers = {name: ir.IntegerAttr.get(i32, n) for name, n in (("x_zp", x_zp), ("w_zp", w_zp), ("out_zp", out_zp))}
    if isinstance(product, mir.ConvOp):
        geometry = {name: getattr(product, name) for name in ("stride", "padding", "dilation", "groups")}
        return rewriter.replace(op, mir.q_conv2d(x, w, mult, bias=whole, **geometry, **numbers))
    if product.transpose_rhs:
        w = mir.transpose(w, [1, 0])
    if len(outer) == 1:
        return rewriter.replace(op, mir.q_matmul(x, w, mult, bias=whole, **numbers))
    rows = mir.reshape(x, [-1, shape_of(w)[0]], [])
    result = mir.q_matmul(rows, w, mult, bias=whole, **numbers)
    return rewriter.replace(op, _with_rows_of(result, x, shape_of(op.x)))
