# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calibration: between which numbers the operands and results of a module's products lie, over a data set.

The module is compiled, with what is observed as further outputs, and each product gets the ranges as its attribute
`mir.ranges`, which the pass `mir-insert-qdq` reads. Where a few elements are far from all others, a range that leaves
them out has smaller errors of rounding: `percentile` and `entropy` choose one. Products for which 8 bits are too few by
any range can stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir import checks, ir
from rlx_mlir.attributes import floats_attribute
from rlx_mlir.compiler import compile
from rlx_mlir.errors import InputError
from rlx_mlir.lowering.quantization import PRODUCTS, RANGES, factors, final_result, scale_of
from rlx_mlir.mir.packed import packing
from rlx_mlir.rewriting import operations
from rlx_mlir.semantics.function import arguments, body, entry_function, is_parameter

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule
    from rlx_mlir.runtime.executable import Executable

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
        counted: whether magnitudes are counted, without which there is one method, minmax.
        low, high: the smallest and the largest number, 0 among them.
        squares, total: the sum of squares, and how many numbers there are.
        width: of the intervals of magnitudes.
        counts: of the intervals.
    """

    counted: bool = True
    low: float = 0.0
    high: float = 0.0
    squares: float = 0.0
    total: int = 0
    width: float = 0.0
    counts: np.ndarray = field(default_factory=lambda: np.zeros(_BINS, np.int64))

    def add(self, array: np.ndarray) -> None:
        """Counts the elements of an array."""
        numbers = array[np.isfinite(array)].astype(np.float64)
        if not numbers.size:
            return
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        self.squares, self.total = self.squares + float(numbers @ numbers), self.total + numbers.size
        if self.counted:
            self._count(numbers)

    def _count(self, numbers: np.ndarray) -> None:
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
        if method == "minmax" or not self.counted or not self.width:
            return self.low, self.high
        limit = self._percentile(percentile) if method == "percentile" else self._entropy()
        return max(self.low, -limit), min(self.high, limit)

    def noise_ratio(self, bounds: tuple[float, float], *, symmetric: bool) -> float:
        """Decibels of the numbers over what their rounding to 8 bits in a range adds to them."""
        scale, _ = scale_of(*bounds, symmetric=symmetric)
        noise = self.total * scale * scale / 12
        return 10 * math.log10(self.squares / noise) if self.squares else math.inf

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


class _Observed:
    """A module whose outputs are what is observed: the operands and results of products."""

    def __init__(self, module: GraphModule, counted: bool) -> None:
        self._module = module.clone()
        self.products = [[Observer(counted), Observer(False), Observer(counted)] for _ in _products(self._module)]
        self._observers: dict[str, list[Observer]] = {}
        self._given: dict[str, list[Observer]] = {}
        """Those of parameters by name, which are no outputs, and of other values by output."""
        entry = entry_function(self._module.ir_module)
        parameters = dict(zip(body(entry).arguments, (argument.name for argument in arguments(entry)), strict=True))
        names: dict[ir.Value, str] = {}
        for op, own in zip(_products(self._module), self.products, strict=True):
            for value, observer in zip((*factors(op.opview), final_result(op.opview)), own, strict=True):
                if is_parameter(value):
                    self._given.setdefault(parameters[value], []).append(observer)
                    continue
                name = names.setdefault(value, f"observed.{len(names)}")
                self._observers.setdefault(name, []).append(observer)
        if names:  # else there is no product, and nothing to observe
            self._module.set_outputs({name: self._module._value(value) for value, name in names.items()})

    def run(self, batches: Iterable[Mapping[str, np.ndarray]], params: Mapping[str, np.ndarray]) -> None:
        """Compiles the module, and adds what it gives for some inputs; compiled again where sizes outgrow it."""
        executable: Executable | None = None
        maxima: dict[str, int] = {}
        for batch in batches:
            inputs = checks.mapping("batches", batch, "mappings from names to arrays")
            sizes = self._sizes(inputs)
            if executable is None or any(size > maxima[symbol] for symbol, size in sizes.items()):
                maxima = {symbol: max(size, maxima.get(symbol, 0)) for symbol, size in sizes.items()}
                executable = compile(self._module, maxima=maxima)
                executable.set_params(params)
            found = executable.run(inputs)
            for name, observers in self._observers.items():
                for observer in observers:
                    observer.add(found[name])
        if executable is None:
            raise InputError("'batches' is empty: ranges are those of values that were seen")
        for name, observers in self._given.items():
            for observer in observers:
                observer.add(np.asarray(params[name]))

    def _sizes(self, inputs: Mapping[str, np.ndarray]) -> dict[str, int]:
        """The sizes of the symbols, of which each is one of some input's."""
        symbols = self._module.dynamic_symbols
        named = [(value.shape, np.shape(inputs.get(value.name, ()))) for value in self._module.inputs]
        pairs = [pair for shape, given in named for pair in zip(shape, given, strict=False)]
        found = {str(size): given for size, given in pairs if isinstance(size, str) and size in symbols}
        return {symbol: max(found.get(symbol, 1), 1) for symbol in symbols}


def calibrate(
    module: GraphModule,
    batches: Iterable[Mapping[str, np.ndarray]],
    *,
    params: Mapping[str, np.ndarray] | None = None,
    method: str = "minmax",
    percentile: float = 99.99,
    least_ratio: float = 0.0,
) -> GraphModule:
    """A copy of a module whose products of f32 say the ranges of their operands and results over a data set.

    Args:
        module: at stage hir or mir; blocks and fused products become primitives.
        batches: inputs of the module by name, for as many calls as there are.
        params: its parameters by name.
        method: minmax, the smallest and the largest number; percentile, what holds so much of a hundred magnitudes;
            entropy, what changes the distribution of magnitudes least. Weights have their own smallest and largest.
        percentile: of `percentile`, above 0 and at most 100.
        least_ratio: decibels. Products stay of f32, without ranges, where rounding an operand or the result to 8 bits
            would leave less than that between its numbers and the noise.

    Raises InputError where there is no batch or an argument isn't as described, and what compiling and running raise.
    """
    checks.choice("method", method, METHODS)
    if not 0 < checks.real("percentile", percentile) <= 100:
        raise InputError(f"'percentile' is a number above 0 and at most 100, but got {percentile}")
    if not 0 <= checks.real("least_ratio", least_ratio) < math.inf:
        raise InputError(f"'least_ratio' is a finite number of decibels, 0 at least, but got {least_ratio}")
    copy = module.lower_for_autodiff() if module.stage == "hir" else module.clone()
    copy = copy.transform("mir-decompose{only=fused_matmul_bias_act}")
    observed = _Observed(copy, method != "minmax")
    observed.run(batches, params or {})
    for op, own in zip(_products(copy), observed.products, strict=True):
        pairs = [observer.bounds(method, percentile) for observer in own]
        ratios = [
            observer.noise_ratio(pair, symmetric=observer is own[1]) for observer, pair in zip(own, pairs, strict=True)
        ]
        if min(ratios) < least_ratio:
            continue
        listed = [floats_attribute(pair, op.context) for pair in pairs]
        op.attributes[RANGES] = ir.ArrayAttr.get(listed, op.context)
    return copy
