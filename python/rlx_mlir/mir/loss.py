# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.errors import InputError
from rlx_mlir.mir.cost import Cost, Sizes, cost, per_element
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.functions import FUNCTIONS
from rlx_mlir.mir.linalg import Map, SizeLike, as_index, element_type, empty, generic, result_size, size_of, summed
from rlx_mlir.mir.numerics import decode_indices, narrow, sum_along, widen
from rlx_mlir.mir.reductions import reduce_axes
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, chosen_entry, compute, exp, extract, index
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.SoftmaxCrossEntropyWithLogitsOp)
def softmax_cross_entropy_with_logits(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """log(sum_c exp(x[c] - m)) - (x[label] - m), with m the largest of each row x."""
    rows, classes = logits.shape
    if rows and not classes:
        raise InputError(
            f"mir.softmax_cross_entropy_with_logits: 'logits' must have a class for {rows} rows, but it is "
            f"{list(logits.shape)}"
        )
    moved = _moved(logits)
    own = moved[np.arange(rows), decode_indices(labels, classes)]
    return narrow(np.log(sum_along(np.exp(moved), 1, keep_dims=False)) - own, logits.dtype)


@reference(mir.SoftmaxCrossEntropyBackwardOp)
def softmax_cross_entropy_backward(logits: np.ndarray, labels: np.ndarray, d_loss: np.ndarray) -> np.ndarray:
    """(softmax(x)[c] - [c = label]) d_loss, for each row x."""
    exponential = np.exp(_moved(logits))
    is_label = decode_indices(labels, logits.shape[1])[:, None] == np.arange(logits.shape[1])
    share = exponential / sum_along(exponential, 1) - is_label.astype(exponential.dtype)
    return narrow(share * widen(d_loss)[:, None], logits.dtype)


def _moved(logits: np.ndarray) -> np.ndarray:
    """Each row without its largest element."""
    wide = widen(logits)
    return wide - np.max(wide, axis=1, keepdims=True, initial=-np.inf)


# ----------------------------------------------------------------------------------------------------------------------
# Costs, dimensions
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.SoftmaxCrossEntropyWithLogitsOp)
def softmax_cross_entropy_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Largest, difference, exp and sum of each logit."""
    return Cost(4 * sizes.count(op.logits))


#: Largest, difference, exp, sum, quotient, and two of the label's and the loss's.
cost(mir.SoftmaxCrossEntropyBackwardOp)(per_element(7))


@dim_rule(mir.SoftmaxCrossEntropyWithLogitsOp)
def softmax_cross_entropy_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[n]"""
    return (_rows(operands),)


@dim_rule(mir.SoftmaxCrossEntropyBackwardOp)
def softmax_cross_entropy_backward_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[n, c]"""
    return (_rows(operands), operands[0][1])


def _rows(operands: Sequence[tuple[Size, ...]]) -> Size:
    """The number of rows, which is that of labels too."""
    sizes = [own[0] for own in operands]
    return next((size for size in sizes if size.constant is not None), sizes[0])


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


def _sums(logits: ir.Value, rows: SizeLike) -> tuple[ir.Value, ir.Value]:
    """(largest, sum_c exp(x[c] - largest)) of each row."""
    largest = reduce_axes(logits, "max", [1])
    inputs: list[tuple[ir.Value, Map]] = [(logits, [0, 1]), (largest, [0])]
    return largest, summed(2, inputs, [rows], [0], lambda x, m: exp(x - m))


@TO_LINALG.pattern(mir.SoftmaxCrossEntropyWithLogitsOp)
def lower_softmax_cross_entropy(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """softmax_cross_entropy_with_logits(x, l) -> m = max(x); s = sum(exp(x - m)); log(s) - (x[l] - m)"""
    classes, rows = as_index(size_of(op.logits, 1)), result_size(op.result, 0, op.logits, 0)
    largest, total = _sums(op.logits, rows)
    target = element_type(op.logits)

    def loss(label: Scalar, m: Scalar, total: Scalar, _: Scalar) -> Scalar:
        own = extract(op.logits, [index(0), chosen_entry(label, classes)]).widen()
        return (compute(FUNCTIONS["log"], total) - (own - m)).to(target)

    inputs: list[tuple[ir.Value, Map]] = [(op.labels, [0]), (largest, [0]), (total, [0])]
    rewriter.replace(op, generic(1, inputs, [(empty([rows], target), [0])], loss))


@TO_LINALG.pattern(mir.SoftmaxCrossEntropyBackwardOp)
def lower_softmax_cross_entropy_backward(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """softmax_cross_entropy_backward(x, l, d) -> m = max(x); s = sum(exp(x - m)); (exp(x - m) / s - [l]) d"""
    sizes = [result_size(op.result, dim, op.logits, dim) for dim in range(2)]
    classes = as_index(sizes[1])
    largest, total = _sums(op.logits, sizes[0])
    target = element_type(op.logits)

    def gradient(x: Scalar, m: Scalar, total: Scalar, label: Scalar, d: Scalar, _: Scalar) -> Scalar:
        share = exp(x.widen() - m) / total
        is_label = chosen_entry(label, classes).compare("eq", index(1))
        return ((share - is_label.select(share.like(1), 0)) * d.widen()).to(target)

    inputs: list[tuple[ir.Value, Map]] = [(op.logits, [0, 1])]
    inputs += [(value, [0]) for value in (largest, total, op.labels, op.d_loss)]
    rewriter.replace(op, generic(2, inputs, [(empty(sizes, target), [0, 1])], gradient))
