# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex numbers: made of parts, and taken apart. Their arithmetic is that of `mir/elementwise.py`."""

from __future__ import annotations

import numpy as np

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import cost, per_element
from rlx_mlir.mir.elementwise import broadcast_dims, same_dims
from rlx_mlir.mir.linalg import elementwise
from rlx_mlir.mir.numerics import joined_parts
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import joined
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.ComplexOp)
def complex_of_parts(re: np.ndarray, im: np.ndarray) -> np.ndarray:
    """re + im i, part by part: a product with i would make NaN of infinities."""
    return joined_parts(*np.broadcast_arrays(re, im))


@reference(mir.RealOp)
def real(z: np.ndarray) -> np.ndarray:
    """The real parts."""
    return np.array(z.real)


@reference(mir.ImagOp)
def imag(z: np.ndarray) -> np.ndarray:
    """The imaginary parts."""
    return np.array(z.imag)


@reference(mir.ConjugateOp)
def conjugate(z: np.ndarray) -> np.ndarray:
    """a - bi of a + bi."""
    return np.conjugate(z)


@reference(mir.ComplexNormSqOp)
def complex_norm_sq(z: np.ndarray) -> np.ndarray:
    """a^2 + b^2 of a + bi."""
    return np.asarray(z.real * z.real + z.imag * z.imag)


@reference(mir.ComplexNormSqBackwardOp)
def complex_norm_sq_backward(z: np.ndarray, g: np.ndarray) -> np.ndarray:
    """g a + g b i of a + bi, part by part."""
    return joined_parts(g * z.real, g * z.imag)


# ----------------------------------------------------------------------------------------------------------------------
# Costs and dimensions
# ----------------------------------------------------------------------------------------------------------------------


cost(mir.ConjugateOp)(per_element(1))
#: Two squares and their sum.
cost(mir.ComplexNormSqOp)(per_element(3))
cost(mir.ComplexNormSqBackwardOp)(per_element(2))

dim_rule(mir.ComplexOp, mir.ComplexNormSqBackwardOp)(broadcast_dims)
dim_rule(mir.RealOp, mir.ImagOp, mir.ConjugateOp, mir.ComplexNormSqOp)(same_dims)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


@TO_LINALG.pattern(mir.ComplexOp)
def lower_complex(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """complex(re, im) -> generic: complex.create of each pair"""
    rewriter.replace(op, elementwise(op.result.type, [op.re, op.im], joined))


@TO_LINALG.pattern(mir.RealOp)
def lower_real(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """real(z) -> generic: complex.re of each element"""
    rewriter.replace(op, elementwise(op.result.type, [op.z], lambda z: z.re))


@TO_LINALG.pattern(mir.ImagOp)
def lower_imag(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """imag(z) -> generic: complex.im of each element"""
    rewriter.replace(op, elementwise(op.result.type, [op.z], lambda z: z.im))


@TO_LINALG.pattern(mir.ConjugateOp)
def lower_conjugate(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """conjugate(z) -> generic: a - bi"""
    rewriter.replace(op, elementwise(op.result.type, [op.z], lambda z: joined(z.re, -z.im)))


@TO_LINALG.pattern(mir.ComplexNormSqOp)
def lower_complex_norm_sq(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """complex_norm_sq(z) -> generic: a^2 + b^2"""
    rewriter.replace(op, elementwise(op.result.type, [op.z], lambda z: z.re * z.re + z.im * z.im))


@TO_LINALG.pattern(mir.ComplexNormSqBackwardOp)
def lower_complex_norm_sq_backward(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """complex_norm_sq_backward(z, g) -> generic: g a + g b i"""
    rewriter.replace(op, elementwise(op.result.type, [op.z, op.g], lambda z, g: joined(g * z.re, g * z.im)))
