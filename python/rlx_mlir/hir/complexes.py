# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of complex numbers; sums, products and quotients are those of all numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_mlir.hir.emitting import Emitting
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Value

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ComplexBuilders(Emitting):
    """The builders."""

    def complex(self, re: Value, im: Value, **options: Unpack[Options]) -> Value:
        """re + im i of f32, after numpy's broadcasting of the shapes."""
        return self._emit("mir.complex", {"re": re, "im": im}, **options)[0]

    def real(self, z: Value, **options: Unpack[Options]) -> Value:
        """The real parts, of f32."""
        return self._emit("mir.real", {"z": z}, **options)[0]

    def imag(self, z: Value, **options: Unpack[Options]) -> Value:
        """The imaginary parts, of f32."""
        return self._emit("mir.imag", {"z": z}, **options)[0]

    def conjugate(self, z: Value, **options: Unpack[Options]) -> Value:
        """a - bi of each a + bi."""
        return self._emit("mir.conjugate", {"z": z}, **options)[0]

    def complex_norm_sq(self, z: Value, **options: Unpack[Options]) -> Value:
        """a^2 + b^2 of each a + bi, of f32."""
        return self._emit("mir.complex_norm_sq", {"z": z}, **options)[0]

    def complex_norm_sq_backward(self, z: Value, g: Value, **options: Unpack[Options]) -> Value:
        """g a + g b i of each a + bi of z: the gradient by its conjugate, where g is that by complex_norm_sq(z)."""
        return self._emit("mir.complex_norm_sq_backward", {"z": z, "g": g}, **options)[0]
