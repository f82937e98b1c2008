# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which of the portable schedules (sm_80 on) a product takes: by what its operands are."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.gemm_base import Gemm, Shape
from rlx_mlir.codegen.gpu.gemm_float8 import gemm_float8
from rlx_mlir.codegen.gpu.gemm_fma import gemm_fma
from rlx_mlir.codegen.gpu.gemm_mma import gemm_mma, gemm_tf32
from rlx_mlir.codegen.gpu.gemm_quant import gemm_block_dot, gemm_decoded
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.program import Program
from rlx_mlir.formats.planes import plane_layout
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen

__all__ = ["ProductSpec", "emit_product", "float8_product"]


class ProductSpec(Protocol):
    """What is known of a product; see `specs.ProductSpec`."""

    @property
    def kind(self) -> str: ...
    @property
    def x(self) -> Shape: ...
    @property
    def weight(self) -> Shape: ...
    @property
    def result(self) -> Shape: ...
    @property
    def program(self) -> Program: ...
    @property
    def order(self) -> tuple[int, ...]: ...
    @property
    def element(self) -> str: ...
    @property
    def transposed(self) -> bool: ...
    @property
    def scheme(self) -> str: ...
    @property
    def layout(self) -> str: ...
    @property
    def float8(self) -> tuple[str, str] | None: ...


def emit_product(
    name: str,
    spec: ProductSpec,
    chip: str,
    constants: frozenset[int] = frozenset(),
    choices: Chosen = NOTHING_CHOSEN,
) -> DeviceKernel:
    """The kernels of a product; UnsupportedByTemplate where no portable schedule covers it.

    Args:
        constants: the kernel's operands that are parameters of the model.
        choices: measured ones; products of f32 round their operands to tf32 only where `tf32` is chosen.
    """

    def gemm(weight: Shape, *, transposed: bool, stride: int | None = None) -> Gemm:
        return _gemm(name, spec, constants, choices, weight, transposed=transposed, stride=stride)

    dense = gemm_mma
    if spec.element == "f32":
        dense = gemm_tf32 if choices.take("tf32") else gemm_fma
    if spec.kind == "scaled_matmul":
        return gemm_float8(chip, float8_product(name, spec, constants, choices))
    if spec.kind == "matmul":
        return dense(chip, gemm(spec.weight, transposed=spec.transposed))
    k, n = spec.x[-1], spec.result[-1]
    if spec.layout != "planes" or k is None or n is None:
        raise UnsupportedByTemplate(f"{name}: expects [N, K] weights in planes, but they are {spec.layout} [{n}, {k}]")
    if spec.kind == "block_dot":
        return gemm_block_dot(chip, gemm((n, k), transposed=True), spec.scheme)
    layout = plane_layout(spec.scheme)
    if layout.dense and spec.scheme == spec.element:
        stride = layout.row_bytes(k) // layout.format.nbytes
        return dense(chip, gemm((n, k), transposed=True, stride=stride))
    return gemm_decoded(chip, gemm((n, k), transposed=True), spec.scheme)


def float8_product(
    name: str, spec: ProductSpec, constants: frozenset[int] = frozenset(), choices: Chosen = NOTHING_CHOSEN
) -> Gemm:
    """A product of floats of 8 bits; the arguments are those of `emit_product`."""
    own = _gemm(name, spec, constants, choices, spec.weight, transposed=spec.transposed)
    return replace(own, float8=spec.float8)


def _gemm(
    name: str,
    spec: ProductSpec,
    constants: frozenset[int],
    choices: Chosen,
    weight: Shape,
    *,
    transposed: bool,
    stride: int | None = None,
) -> Gemm:
    first = 3 if spec.kind == "block_dot" else 1
    constant = constants.issuperset(spec.order[first : first + spec.program.accumulators])
    shapes = (spec.x, weight, spec.result)
    return Gemm(name, *shapes, spec.program, spec.order, spec.element, transposed, stride, constant, choices)
