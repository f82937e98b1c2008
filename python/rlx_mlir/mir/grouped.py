# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of rows with one of several weights each, dense or packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.errors import InputError
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.decode import element_integer, element_minimum, element_scale, element_value
from rlx_mlir.mir.dims import Size, minimum
from rlx_mlir.mir.linalg import (
    Map,
    as_index,
    converted,
    empty,
    generic,
    reduced,
    result_size,
    size_of,
    split_dims,
)
from rlx_mlir.mir.numerics import decode_indices, narrow, widen
from rlx_mlir.mir.packed import PackedWeight, Packing, QuantParts, packing_of
from rlx_mlir.mir.quant import BLOCK, block_dot_work, dot_of_parts, packed_rows, product_type, run_sums
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, chosen_entry, element, extract, index
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.GroupedMatmulOp)
def grouped_matmul(x: np.ndarray, weight: np.ndarray, expert: np.ndarray) -> np.ndarray:
    """result[m] = x[m] weight[expert[m]]"""
    if len(x) and not len(weight):
        raise InputError(f"mir.grouped_matmul: 'weight' must have an expert for {len(x)} rows of 'x'")
    own = widen(x)
    return narrow(_by_expert(own, widen(weight), decode_indices(expert, len(weight))), x.dtype)


@reference(mir.DequantGroupedMatmulOp)
def dequant_grouped_matmul(x: np.ndarray, weight: PackedWeight, expert: np.ndarray, *, experts: int) -> np.ndarray:
    """result[m] = x[m] W^T, with W the decoded weight of expert[m]."""
    own = widen(x)
    decoded = dequant_moe_weights(weight, experts=experts).astype(own.dtype, copy=False)
    return narrow(_by_expert(own, decoded, decode_indices(expert, experts)), x.dtype)


@reference(mir.GroupedBlockDotOp)
def grouped_block_dot(
    q: np.ndarray, scale: np.ndarray, sum: np.ndarray, weight: PackedWeight, expert: np.ndarray, *, experts: int
) -> np.ndarray:
    """result[m] = block_dot(q[m], scale[m], sum[m], the weight of expert[m])"""
    chosen, parts, rows = decode_indices(expert, experts), weight.parts(), weight.n // experts
    result = np.zeros((len(q), rows), np.float32)
    for number in np.unique(chosen):
        own, those = chosen == number, slice(number * rows, (number + 1) * rows)
        minima = None if parts.minima is None else parts.minima[those]
        of_expert = QuantParts(parts.integers[those], parts.scales[those], minima, parts.run)
        result[own] = dot_of_parts(q[own], scale[own], sum[own], of_expert)
    return result


@reference(mir.DequantMoeWeightsOp)
def dequant_moe_weights(weight: PackedWeight, *, experts: int) -> np.ndarray:
    """result[e, k, n] = W_e[n, k]"""
    rows = weight.dequantize().astype(np.float32, copy=False)
    return np.ascontiguousarray(rows.reshape(experts, weight.n // experts, weight.k).swapaxes(1, 2))


def _by_expert(x: np.ndarray, weights: np.ndarray, expert: np.ndarray) -> np.ndarray:
    """The rows of `x` times the weight of their expert, one product for each expert."""
    result = np.zeros((len(x), weights.shape[2]), x.dtype)
    for number in np.unique(expert):
        result[expert == number] = np.matmul(x[expert == number], weights[number])
    return result


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.GroupedMatmulOp)
def grouped_matmul_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 M N K; of the weights no more is read than each row's, nor than there is."""
    experts, k, _ = sizes[op.weight]
    used = minimum(experts, sizes[op.x][0])
    return Cost(2 * sizes.count(op.result) * k, reads={op.weight: sizes.bytes(op.weight, without=0) * used})


@cost(mir.DequantGroupedMatmulOp)
def dequant_grouped_matmul_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 M N K, and the weights that are used; decoding isn't counted."""
    rows, k = sizes[op.x]
    return Cost(2 * sizes.count(op.result) * k, reads={op.weight: _of_used(op, sizes, rows)})


def _of_used(op: ir.AnyOp, sizes: Sizes, rows: Size) -> Size:
    """Bytes of the experts of a packed weight that so many rows use, at most."""
    experts = int(python_value(op.experts))
    return sizes.bytes(op.weight) // experts * minimum(Size.of(experts), rows)


@cost(mir.GroupedBlockDotOp)
def grouped_block_dot_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """As of `block_dot`, and the weights that are used."""
    return Cost(block_dot_work(op, sizes), reads={op.weight: _of_used(op, sizes, sizes[op.q][0])})


@cost(mir.DequantMoeWeightsOp)
def dequant_moe_weights_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 for each element."""
    return Cost(2 * sizes.count(op.result))


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


def _row_count(x: tuple[Size, ...], expert: tuple[Size, ...]) -> Size:
    return x[0] if x[0].constant is not None else expert[0]


@dim_rule(mir.GroupedMatmulOp)
def grouped_matmul_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[m, n]"""
    x, weight, expert = operands
    return (_row_count(x, expert), weight[2])


def _expert_rows(op: ir.AnyOp) -> int:
    """n, the rows of one expert in a packed weight."""
    dims = tuple(Size.of(size) for size in op.weight.type.shape)
    rows = packed_rows(op.weight, dims).constant
    assert rows is not None, "the verifier's rule"
    return rows // int(python_value(op.experts))


@dim_rule(mir.DequantGroupedMatmulOp)
def dequant_grouped_matmul_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[m, n]"""
    return (_row_count(operands[0], operands[2]), Size.of(_expert_rows(op)))


@dim_rule(mir.GroupedBlockDotOp)
def grouped_block_dot_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[m, n]"""
    return (_row_count(operands[0], operands[4]), Size.of(_expert_rows(op)))


@dim_rule(mir.DequantMoeWeightsOp)
def dequant_moe_weights_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[e, k, n]"""
    return tuple(Size.of(size) for size in op.result.type.shape)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


@TO_LINALG.pattern(mir.GroupedMatmulOp)
def lower_grouped_matmul(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """grouped_matmul(x, w, e) -> generic: result[m, n] += x[m, k] * w[e[m], k, n], read by tensor.extract"""
    experts = as_index(size_of(op.weight, 0))
    sizes = [result_size(op.result, 0, op.x, 0), result_size(op.result, 1, op.weight, 2)]
    m, k, n = range(3)  # the innermost loop runs along rows of the weight

    def add(x: Scalar, expert: Scalar, total: Scalar) -> Scalar:
        weight = extract(op.weight, [chosen_entry(expert, experts), index(k), index(n)])
        return total + x * weight.to(total.type)

    total = reduced(3, [(op.x, [m, k]), (op.expert, [m])], sizes, [m, n], 0, add)
    rewriter.replace(op, converted(total, op.result.type))


@TO_LINALG.pattern(mir.DequantGroupedMatmulOp)
def lower_dequant_grouped_matmul(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """dequant_grouped_matmul(x, w, e) -> generic: result[m, n] += x[m, k] * W[e[m] N + n, k], decoded on the way"""
    encoding, rows = packing_of(op.weight), _expert_rows(op)
    experts = as_index(int(python_value(op.experts)))
    m, n, k = range(3)

    def add(x: Scalar, expert: Scalar, total: Scalar) -> Scalar:
        row = chosen_entry(expert, experts) * rows + index(n)
        return total + x * element_value(op.weight, encoding, row, index(k)).to(total.type)

    sizes = [result_size(op.result, 0, op.x, 0), rows]
    total = reduced(3, [(op.x, [m, k]), (op.expert, [m])], sizes, [m, n], 0, add)
    rewriter.replace(op, converted(total, op.result.type))


@TO_LINALG.pattern(mir.GroupedBlockDotOp)
def lower_grouped_block_dot(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """grouped_block_dot(q, scale, sum, W, e) -> p += q_w * q, exact; result += scale * (d * p + m * sum)"""
    encoding, rows = packing_of(op.weight), _expert_rows(op)
    experts = as_index(int(python_value(op.experts)))
    run = min(encoding.format.sub, BLOCK)
    per_block, blocks = BLOCK // run, encoding.k // BLOCK
    count = result_size(op.result, 0, op.q, 0)
    q = split_dims(op.q, [[0], [1, 2, 3]], [count, blocks, per_block, run])
    m, n, b, p, e = range(5)

    def weight(expert: Scalar, read: Callable[[ir.Value, Packing, Scalar, Scalar], Scalar], k: Scalar) -> Scalar:
        return read(op.weight, encoding, chosen_entry(expert, experts) * rows + index(n), k)

    def multiply(q: Scalar, expert: Scalar, total: Scalar) -> Scalar:
        k = (index(b) * per_block + index(p)) * run + index(e)
        return total + q.to(total.type) * weight(expert, element_integer, k).to(total.type)

    sums = [count, rows, blocks, per_block]
    inputs: list[tuple[ir.Value, Map]] = [(q, [m, b, p, e]), (op.expert, [m])]
    products = reduced(5, inputs, sums, [m, n, b, p], 0, multiply, type=product_type(op.q))
    inputs = [(products, [m, n, b, p]), (op.scale, [m, b]), (op.expert, [m])]
    if encoding.format.minimum is not None:
        inputs.append((op.sum, [m, b]) if per_block == 1 else (run_sums(q, sums[:1] + sums[2:]), [m, b, p]))

    def combine(product: Scalar, scale: Scalar, expert: Scalar, *rest: Scalar) -> Scalar:
        *sum_, total = rest
        k = (index(b) * per_block + index(p)) * run
        value = weight(expert, element_scale, k) * product.to("f32")
        if sum_:
            value = value + weight(expert, element_minimum, k) * sum_[0].to("f32")
        return total + scale * value

    rewriter.replace(op, reduced(4, inputs, [count, rows], [m, n], 0, combine, type=element("f32")))


@TO_LINALG.pattern(mir.DequantMoeWeightsOp)
def lower_dequant_moe_weights(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """dequant_moe_weights(w) -> generic: result[e, k, n] = W[e N + n, k]"""
    encoding, rows = packing_of(op.weight), _expert_rows(op)

    def decode(_: Scalar) -> Scalar:
        return element_value(op.weight, encoding, index(0) * rows + index(2), index(1))

    type = op.result.type
    rewriter.replace(op, generic(3, [], [(empty(type.shape, type.element_type), range(3))], decode))
