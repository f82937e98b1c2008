# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far two computations of one value may be apart.

Two parts add up. Rounding: every operation adds to the relative error of its operands, by its kind and element type.
Conditioning: a module may amplify errors (exponentials, cancellation); by how much is measured, as the change of the
outputs where every input moves by one rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir import ir
from rlx_mlir.mir.functions import Rounding, named
from rlx_mlir.mir.numerics import accumulator, is_inexact, parts
from rlx_mlir.verify.inputs import rounding_unit

#: Allowed is so many times the error that rounding is expected to give.
SAFETY = 4.0
#: Elements near zero, where sums cancel, may be wrong by the error of an element of this size, relative to the largest.
CANCELLATION = 0.1


def _names(words: str) -> frozenset[str]:
    return frozenset(f"mir.{word}" for word in words.split())


EXACT = named(lambda record: record.rounding is Rounding.EXACT) | _names(
    "constant reshape transpose narrow concat expand gather repack cache_update where compare sample complex real imag "
    "conjugate resize_nearest_2x barrier"
)
ARITHMETIC = named(lambda record: record.rounding in (Rounding.STEP, Rounding.ROUNDED)) | _names("cast")
#: Errors of functions of elements, in units; compiled code has polynomials of its own.
TRANSCENDENTAL = named(lambda record: record.rounding is Rounding.FUNCTION) | _names("fused_swiglu rope axial_rope2d")
#: Blocks are several operations, as are those on splats.
_BLOCK_FACTOR = 8


def operation_error(op: ir.Operation, operands: Sequence[object], results: Sequence[object]) -> float:
    """The relative error that an operation adds to that of its operands."""
    arrays = [value for value in results if isinstance(value, np.ndarray) and is_inexact(value.dtype)]
    if not arrays or op.name in EXACT:
        return 0.0
    stored = max(rounding_unit(array.dtype) for array in arrays)
    computed = max(rounding_unit(accumulator(array.dtype)) for array in arrays)
    if op.name in ARITHMETIC:
        return stored
    if op.name in TRANSCENDENTAL:
        return stored + 8 * computed
    longest = max((max(value.shape, default=1) for value in operands if isinstance(value, np.ndarray)), default=1)
    steps = 8 + math.sqrt(longest)
    if op.name.startswith(("hir.", "mir.gaussian_splat")):
        return _BLOCK_FACTOR * (stored + steps * computed)
    return stored + steps * computed


class Errors:
    """The relative errors of the values of one run; its method `watch` is given to the interpreter."""

    def __init__(self, functions: Mapping[str, ir.Operation]) -> None:
        self._functions = functions
        self._known: dict[ir.Value, float] = {}

    def watch(self, op: ir.Operation, operands: Sequence[object], results: Sequence[object]) -> None:
        """Notes the errors of the results of an operation."""
        before = max((self.of(value) for value in op.operands), default=0.0)
        if op.name == "func.call":
            own = self.of_results(self._functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value])
        else:
            own = [operation_error(op, operands, results)] * len(results)
        for value, error in zip(op.results, own, strict=True):
            self._known[value] = before + error

    def of(self, value: ir.Value) -> float:
        """The relative error of a value; of arguments it is zero."""
        return self._known.get(value, 0.0)

    def of_results(self, function: ir.Operation) -> list[float]:
        """The relative errors of what a function returned in its last run."""
        operations = function.regions[0].blocks[0].operations
        return [self.of(value) for value in operations[len(operations) - 1].operation.operands]


@dataclass(frozen=True)
class Expected:
    """A value, and how far another computation of it may be away from it.

    Attributes:
        array: the value.
        relative: error by rounding, relative to the element.
        absolute: error by the conditioning of what computes it.
        whole: that integers may be off by.
    """

    array: np.ndarray
    relative: float = 0.0
    absolute: float = 0.0
    whole: int = 0

    def allowed(self) -> np.ndarray:
        """The difference allowed, by element; that of a complex number is that of either part."""
        if not is_inexact(self.array.dtype):
            return np.full(self.array.shape, float(self.whole))
        is_complex = self.array.dtype.kind == "c"
        size = np.abs(self.array.astype(np.complex128 if is_complex else np.float64))
        finite = size[np.isfinite(size)]
        floor = CANCELLATION * (finite.max() if finite.size else 0.0)
        return SAFETY * (self.relative * (size + floor) + self.absolute)


@dataclass(frozen=True)
class Difference:
    """An element that is beyond its tolerance: where, what was expected, what was found; or what else is wrong."""

    index: tuple[int, ...] = ()
    want: float = 0.0
    got: float = 0.0
    allowed: float = 0.0
    text: str = ""

    def __str__(self) -> str:
        if self.text:
            return self.text
        at = f"at {list(self.index)} " if self.index else ""
        return f"{at}{self.want:.7g} before, {self.got:.7g} after, allowed is a difference of {self.allowed:.2g}"


def difference(expected: Expected, found: np.ndarray, *, overall: float | None = None) -> Difference | None:
    """The element that is farthest beyond its tolerance; None where there is none.

    Args:
        expected: the value with its tolerance.
        found: what is compared with it.
        overall: where given, the root mean square of the differences is compared with this part of that of the
            values, instead of element by element.
    """
    want = expected.array
    if want.shape != found.shape or want.dtype != found.dtype:
        return Difference(text=f"{want.dtype} {list(want.shape)} before, {found.dtype} {list(found.shape)} after")
    if want.size == 0:
        return None
    a, b = parts(want).astype(np.float64), parts(found).astype(np.float64)
    with np.errstate(all="ignore"):
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        gap = np.where(np.isnan(gap), np.inf, gap)  # NaN on one side only, or infinities of two signs
        if overall is not None:
            size, off = (math.sqrt(float(np.mean(np.square(x)))) for x in (np.nan_to_num(a), gap))
            limit = overall * size + SAFETY * expected.absolute
            if off <= limit:
                return None
            text = f"the root mean square of the differences is {off:.3g}, that of the values {size:.3g}"
            return Difference(text=f"{text}; allowed is {overall:.3g} of it")
        allowed = expected.allowed()
        if allowed.shape != a.shape:
            allowed = np.broadcast_to(allowed[..., None], a.shape)
        # Where an infinity is expected, or found, nothing but that is near enough.
        excess = np.where(gap > np.nan_to_num(allowed), gap / np.maximum(np.nan_to_num(allowed), 1e-300), 0.0)
    worst = int(np.argmax(excess))
    if excess.flat[worst] == 0:
        return None
    index = tuple(int(i) for i in np.unravel_index(worst, a.shape))
    return Difference(index, float(a[index]), float(b[index]), float(allowed[index]))
