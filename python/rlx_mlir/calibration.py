# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calibration: between which numbers the operands and results of a module's products lie, over a data set.

The module runs by its references, and each product gets the ranges as its attribute `mir.ranges`, which the pass
`mir-insert-qdq` reads. Where a few elements are far from all others, a range that leaves them out has smaller errors
of rounding: `percentile` and `entropy` choose one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_mlir import checks, ir
from rlx_mlir.attributes import floats_attribute
from rlx_mlir.errors import InputError
from rlx_mlir.interpreter import interpret
from rlx_mlir.lowering.quantization import PRODUCTS, RANGES, final_result
from rlx_mlir.mir.packed import packing
from rlx_mlir.rewriting import identity, operations
from rlx_mlir.semantics.function import entry_function

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule

#: How a range follows from what was seen.
METHODS = ("minmax", "percentile", "entropy")
#: Intervals that magnitudes are counted in, and integers that 8 bits have for them.
_BINS, _LEVELS = 2048, 128
#: Intervals between two ranges that `entropy` compares.
_STEP = 8


@dataclass
class Observer:
    """What was seen of one value: its smallest and its largest number, and how many have which magnitude.

    Numbers that aren't finite aren't counted.

    Attributes:
        low, high: the smallest and the largest number, 0 among them.
        width: of the intervals of magnitudes.
        counts: of the intervals.
    """

    low: float = 0.0
    high: float = 0.0
    width: float = 0.0
    counts: np.ndarray = field(default_factory=lambda: np.zeros(_BINS, np.int64))

    def add(self, array: np.ndarray) -> None:
        """Counts the elements of an array."""
        numbers = array[np.isfinite(array)].astype(np.float64)
        if not numbers.size:
            return
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        magnitudes = np.abs(numbers)
        largest = float(magnitudes.max())
        if not self.width:
            if not largest:
                self.counts[0] += numbers.size
                return
            self.width = largest / _BINS
        while largest > self.width * _BINS:  # neighbours become one
            self.counts = np.concatenate([self.counts.reshape(-1, 2).sum(axis=1), np.zeros(_BINS // 2, np.int64)])
            self.width *= 2
        places = np.minimum((magnitudes / self.width).astype(np.int64), _BINS - 1)
        self.counts += np.bincount(places, minlength=_BINS)

    def bounds(self, method: str, percentile: float = 100.0) -> tuple[float, float]:
        """The range by a method: where it leaves numbers out, those of the largest magnitudes."""
        if method == "minmax" or not self.width:
            return self.low, self.high
        limit = self._percentile(percentile) if method == "percentile" else self._entropy()
        return max(self.low, -limit), min(self.high, limit)

    def _percentile(self, percentile: float) -> float:
        """The end of the first intervals that hold so much of a hundred numbers."""
        total = np.cumsum(self.counts)
        return float((np.searchsorted(total, total[-1] * (percentile / 100)) + 1) * self.width)

    def _entropy(self) -> float:
        """The end of the first intervals whose counts 8 bits keep best: by the divergence of Kullback and Leibler."""
        best, least = _BINS, np.inf
        used = int(np.flatnonzero(self.counts)[-1]) + 1
        for end in range(min(_LEVELS, used), used + 1, _STEP):
            divergence = _divergence(self.counts, end)
            if divergence < least:
                best, least = end, divergence
        return best * self.width


def _divergence(counts: np.ndarray, end: int) -> float:
    """Of the first `end` counts, with those beyond in the last one, from what is left when they are few levels."""
    own = counts[:end].astype(np.float64)
    levels = np.arange(end) * _LEVELS // end if end > _LEVELS else np.arange(end)
    is_there = own > 0
    sums = np.bincount(levels, own, _LEVELS)
    present = np.bincount(levels, is_there, _LEVELS)
    spread = np.where(is_there, (sums / np.maximum(present, 1))[levels], 0.0)
    own[-1] += counts[end:].sum()
    if not spread.sum():
        return np.inf
    p, q = own / own.sum(), spread / spread.sum()
    if np.any((p > 0) & (q == 0)):  # what was cut went where nothing was
        return np.inf
    seen = p > 0
    return float(np.sum(p[seen] * np.log(p[seen] / q[seen])))


def _products(module: GraphModule) -> list[ir.Operation]:
    """The products that can become those of 8 bits, in order."""
    entry = entry_function(module.ir_module)
    return [
        op.operation
        for op in operations(entry)
        if isinstance(op.opview, PRODUCTS)
        and all(packing(value.type) is None and str(value.type.element_type) == "f32" for value in op.operands)
    ]


def calibrate(
    module: GraphModule,
    batches: Iterable[Mapping[str, np.ndarray]],
    *,
    params: Mapping[str, np.ndarray] | None = None,
    method: str = "minmax",
    percentile: float = 99.99,
) -> GraphModule:
    """A copy of a module whose products of f32 say the ranges of their operands and results over a data set.

    Args:
        module: at stage hir or mir; blocks and fused products become primitives.
        batches: inputs of the module by name, for as many calls as there are.
        params: its parameters by name.
        method: minmax, the smallest and the largest number; percentile, what holds so much of a hundred magnitudes;
            entropy, what changes the distribution of magnitudes least. Weights have their own smallest and largest.
        percentile: of `percentile`, above 0 and at most 100.

    Raises InputError where there is no batch or an argument isn't as described, and what `interpret` raises.
    """
    checks.choice("method", method, METHODS)
    if not 0 < checks.real("percentile", percentile) <= 100:
        raise InputError(f"'percentile' is a number above 0 and at most 100, but got {percentile}")
    copy = module.lower_for_autodiff() if module.stage == "hir" else module.clone()
    copy = copy.transform("mir-decompose{only=fused_matmul_bias_act}")
    products = _products(copy)
    seen = [[Observer() for _ in range(3)] for _ in products]
    operands_of: dict[int, list[Observer]] = {}
    result_of: dict[int, Observer] = {}
    for op, (x, weight, result) in zip(products, seen, strict=True):
        operands_of[identity(op)] = [x, weight]
        result_of[identity(final_result(op.opview).owner)] = result

    def watch(op: ir.Operation, operands: Sequence[Any], results: Sequence[Any]) -> None:
        own = identity(op)
        for observer, array in zip(operands_of.get(own, ()), operands, strict=False):
            observer.add(array)
        if own in result_of:
            result_of[own].add(results[0])

    count = 0
    for batch in batches:
        inputs = checks.mapping("batches", batch, "mappings from names to arrays")
        interpret(copy, {**inputs, **(params or {})}, watch=watch)
        count += 1
    if not count:
        raise InputError("'batches' is empty: ranges are those of values that were seen")
    for op, (x, weight, result) in zip(products, seen, strict=True):
        pairs = [x.bounds(method, percentile), weight.bounds("minmax"), result.bounds(method, percentile)]
        listed = [floats_attribute(pair, op.context) for pair in pairs]
        op.attributes[RANGES] = ir.ArrayAttr.get(listed, op.context)
    return copy
