# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which template makes a kernel's code for CPUs: asks the template for the kernel's class."""

from __future__ import annotations

from collections.abc import Callable

from rlx_mlir import ir
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.attention import emit_attention, template_of
from rlx_mlir.codegen.cpu.call import emit_call
from rlx_mlir.codegen.cpu.conv import emit_conv
from rlx_mlir.codegen.cpu.gemm import gemm_dense
from rlx_mlir.codegen.cpu.gemm_amx import gemm_amx
from rlx_mlir.codegen.cpu.gemm_amx_blocks import gemm_blocks, has_integers
from rlx_mlir.codegen.cpu.gemm_amx_f32 import gemm_split, gemm_split_batched, splits
from rlx_mlir.codegen.cpu.gemm_amx_int8 import uses_integer_tiles
from rlx_mlir.codegen.cpu.gemm_batched import gemm_batched, uses_tiles
from rlx_mlir.codegen.cpu.gemm_int8 import block_quantize, gemm_int8
from rlx_mlir.codegen.cpu.gemm_packed import FEW_ROWS, gemm_panels
from rlx_mlir.codegen.cpu.panels import find_layout
from rlx_mlir.codegen.cpu.recurrence import emit_recurrence
from rlx_mlir.codegen.cpu.rows import emit_rows
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.kernel_classes import OWN
from rlx_mlir.lowering.functions import kernel_class
from rlx_mlir.lowering.kernel_specs import (
    read_attention,
    read_call,
    read_conv,
    read_product,
    read_quantize,
    read_recurrence,
    read_rows,
)
from rlx_mlir.runtime.tiles import GEMM_AMX, GEMM_AMX_F32


def select_template(name: str, kernel: ir.AnyOp, target: Target) -> tuple[str, str]:
    """The template's name, and its functions for the kernel as text.

    Raises UnsupportedByTemplate, with the reason, where no template covers the kernel.
    """
    kind = kernel_class(kernel)
    if kind == OWN:
        return OWN, emit_call(name, read_call(kernel))
    if kind not in CLASSES:
        raise UnsupportedByTemplate(f"{name}: kernels of class '{kind}' have no template")
    return CLASSES[kind](name, kernel, target)


def _gemm(name: str, kernel: ir.AnyOp, target: Target) -> tuple[str, str]:
    spec = read_product(name, kernel)
    if spec.kind == "scaled_matmul":
        raise UnsupportedByTemplate(f"{name}: products of {spec.float8} have no template")
    rows = spec.rows
    few = rows is not None and rows <= FEW_ROWS
    sharing = rows if len(spec.weight) == 2 else spec.x[-2] if len(spec.x) > 1 else 1
    in_parts = splits(target, spec.element, sharing, spec.x[-1])
    if spec.kind == "matmul" and in_parts and len(spec.x) > 1 and 0 not in spec.weight:
        return GEMM_AMX_F32 + "_batched", gemm_split_batched(target, spec.batched())
    if spec.kind == "matmul" and (not spec.is_matrix or (target.tiles(spec.element) and not few)):
        batched = spec.batched()
        return GEMM_AMX + "_batched" if uses_tiles(target, batched) else "gemm_batched", gemm_batched(target, batched)
    product = spec.product()
    if spec.kind == "matmul":
        return "gemm_dense", gemm_dense(target, product, transpose_rhs=spec.transposed)
    if spec.layout != "panels":
        raise UnsupportedByTemplate(f"{name}: the weight isn't in panels")
    if spec.kind == "block_dot":
        by_tiles = uses_integer_tiles(target, rows, find_layout(spec.scheme, product.k))
        return GEMM_AMX + "_int8" if by_tiles else "gemm_int8", gemm_int8(target, product, spec.scheme)
    if target.tiles(product.element) and not few and product.element == spec.scheme:
        return GEMM_AMX, gemm_amx(target, product)
    if not few and splits(target, spec.element, None, product.k) and has_integers(find_layout(spec.scheme, product.k)):
        return GEMM_AMX_F32, gemm_blocks(target, product, spec.scheme)
    if in_parts:
        return GEMM_AMX_F32, gemm_split(target, product, spec.scheme)
    return "gemm_panels", gemm_panels(target, product, spec.scheme)


def _rows(name: str, kernel: ir.AnyOp, target: Target) -> tuple[str, str]:
    return "rows", emit_rows(name, read_rows(name, kernel), target)


def _attention(name: str, kernel: ir.AnyOp, target: Target) -> tuple[str, str]:
    spec = read_attention(name, kernel)
    return template_of(spec, target), emit_attention(name, spec, target)


def _quantize(name: str, kernel: ir.AnyOp, target: Target) -> tuple[str, str]:
    return "block_quantize", block_quantize(target, name, read_quantize(name, kernel))


def _conv(name: str, kernel: ir.AnyOp, target: Target) -> tuple[str, str]:
    return "conv", emit_conv(name, read_conv(name, kernel), target)


def _recurrence(name: str, kernel: ir.AnyOp, target: Target) -> tuple[str, str]:
    return "recurrence", emit_recurrence(name, read_recurrence(name, kernel), target)


#: The template of each class of kernels that has one.
CLASSES: dict[str, Callable[[str, ir.AnyOp, Target], tuple[str, str]]] = {
    "gemm": _gemm,
    "rows": _rows,
    "attention": _attention,
    "quantize": _quantize,
    "recurrence": _recurrence,
    "conv": _conv,
}
