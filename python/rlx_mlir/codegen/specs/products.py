# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What products of matrices compute, with what follows them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.kernel import Buffers
from rlx_mlir.codegen.program import Program

Sizes = tuple[int | None, ...]
"""Sizes of a value, None where dynamic."""


def known_product(sizes: Sizes) -> int | None:
    """The product of sizes; None where one is dynamic."""
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def argument_buffers(program: Program, result: Sizes, element: str) -> Buffers:
    """The buffers of a program's arguments, for results of these sizes and this type of elements."""
    natural: dict[str, Sizes] = {"full": result, "row": result[-1:], "column": (*result[:-1], 1), "scalar": ()}
    shapes = [natural[own.broadcast] if own.shape is None else own.shape for own in program.arguments]
    types = [memref(shape, own.element or element) for shape, own in zip(shapes, program.arguments, strict=True)]
    return [(f"arg{i}", type) for i, type in enumerate(types)]


def result_buffers(program: Program, result: Sizes, element: str) -> Buffers:
    """The buffers of a program's results."""
    return [(f"out{i}", memref(result, element)) for i in range(len(program.results))]


def need_bytes(name: str, bits: int) -> None:
    """Raises UnsupportedByTemplate where activations are quantised to more than bytes."""
    if bits != 8:
        raise UnsupportedByTemplate(f"{name}: no schedule has activations of {bits} bits")


@dataclass(frozen=True)
class ProductSpec:
    """A kernel of class gemm: outputs = program(x W_0, x W_1, .., arguments).

    Attributes:
        kind: `matmul` of dense operands, `scaled_matmul` of dense ones of 8 bits, `dequant_matmul` with packed weights,
            `block_dot` of a quantised x.
        x, weight, result: sizes; a dense weight is [.., K, N], or [.., N, K] where `transposed`.
        program: what follows the products; its accumulators are the weights.
        order: the kernel's operand for each operand of the template: x (or its quantised parts), weights, arguments.
        element: type of the products' results, of arguments and outputs; of dense operands, too.
        scheme, layout: of packed weights: their format, and `rows`, `panels` or `planes`; empty for dense ones.
        norm: epsilon of the RMS norm that the kernel applies to x first; its operands are x and gamma.
        quantises: whether it then quantises x: its operand is x, not q, scale and sum.
        bits: of the integers of a quantised x: 8, 15 or 22.
        float8: types of x and of the weights in a `scaled_matmul`, whose scales are part of the program.
    """

    name: str
    kind: Literal["matmul", "scaled_matmul", "dequant_matmul", "block_dot"]
    x: Sizes
    weight: Sizes
    result: Sizes
    program: Program
    order: tuple[int, ...]
    element: str
    transposed: bool = False
    scheme: str = ""
    layout: str = ""
    norm: float | None = None
    quantises: bool = False
    bits: int = 8
    float8: tuple[str, str] | None = None

    def need_plain(self) -> None:
        """Raises UnsupportedByTemplate where the kernel changes x before its products."""
        if self.norm is not None or self.quantises:
            raise UnsupportedByTemplate(f"{self.name}: norms and quantisation of x are for the schedule of few rows")

    @property
    def is_matrix(self) -> bool:
        """Whether the weight is one matrix of known sizes, not empty."""
        return len(self.weight) == 2 and all(self.weight)

    @property
    def rows(self) -> int | None:
        """M, the product of the leading sizes of x; None if that is dynamic."""
        return known_product(self.x[:-1])

    @property
    def sharing(self) -> int | None:
        """The rows that share a right operand; None where their number is dynamic."""
        if len(self.weight) == 2:
            return self.rows
        return self.x[-2] if len(self.x) > 1 else 1


@dataclass(frozen=True)
class QuantizeSpec:
    """A kernel of class quantize: q, scale, sum = block_quantize(x), of f32, in blocks of 32.

    Attributes:
        x: sizes of x.
        bits: of the integers: 8, 15 or 22.
    """

    x: Sizes
    bits: int = 8
