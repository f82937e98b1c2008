# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The orders of `mir.top_k` as those of signed integers, for kernels of GPUs: what comes first has the largest key."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Value
from rlx_mlir.codegen.gpu.emit import DeviceEmitter

_FLOATS = {"f16": 32, "bf16": 32, "f32": 32, "f64": 64}
_INTEGERS = {"i8": 32, "i16": 32, "i32": 32, "i64": 64}


@dataclass(frozen=True)
class Order:
    """An order of elements.

    Attributes:
        element: their type.
        smallest, nan_largest: see `TopKSpec`.
    """

    element: str
    smallest: bool = False
    nan_largest: bool = False

    @classmethod
    def of(cls, name: str, element: str, smallest: bool, nan_largest: bool) -> Order:
        """That of a kernel; UnsupportedByTemplate for elements that are no floats and no integers of 8 to 64 bits."""
        if element not in _FLOATS and element not in _INTEGERS:
            raise UnsupportedByTemplate(f"{name}: elements of {element} have no schedule for orders")
        return cls(element, smallest, nan_largest)

    @property
    def is_float(self) -> bool:
        """Whether NaN is among what elements may be."""
        return self.element in _FLOATS

    @property
    def bits(self) -> int:
        """Those of a key, 32 or 64."""
        return _FLOATS[self.element] if self.is_float else _INTEGERS[self.element]

    @property
    def key_type(self) -> str:
        """The type of a key."""
        return f"i{self.bits}"

    @property
    def least(self) -> int:
        """The smallest key, which what isn't there has, too."""
        return -(1 << (self.bits - 1))

    def key(self, em: DeviceEmitter, x: Value) -> Value:
        """The key of an element; equal ones, such as zeros of both signs, have the same."""
        if self.is_float:
            number = x if self.element == "f64" else em.widen(x)
            ordered = self._turned(em, em.bitcast(number + 0.0, self.key_type))  # -0 + 0 is 0
            of_nan = -1 - self.least if self.nan_largest else self.least
            ordered = em.select(em.cmpf("uno", number, number), of_nan, ordered)
        else:
            ordered = x if self.element == self.key_type else em.cast("arith.extsi", x, self.key_type)
        return ordered ^ -1 if self.smallest else ordered

    def value(self, em: DeviceEmitter, key: Value) -> Value:
        """The element that has a key; of NaN, one of them."""
        ordered = key ^ -1 if self.smallest else key
        if self.is_float:
            number = em.bitcast(self._turned(em, ordered), f"f{self.bits}")
            return number if self.element == "f64" else em.narrow(number, self.element)
        return ordered if self.element == self.key_type else em.cast("arith.trunci", ordered, self.element)

    def _turned(self, em: DeviceEmitter, bits: Value) -> Value:
        """The bits of a number as an integer of its order, and back."""
        return bits ^ (em.binary("arith.shrsi", bits, self.bits - 1) & (-1 - self.least))
