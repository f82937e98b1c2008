# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels of whole tensors compute: selection, movement, broadcasts, reductions, scans, norms, convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import element_of, memref, shape_of
from rlx_mlir.codegen.kernel import Buffers
from rlx_mlir.codegen.program import IDENTITY, Program
from rlx_mlir.formats import PANEL_ROWS


@dataclass(frozen=True)
class TopKSpec:
    """The first `k` elements of each row in an order: types of the buffers x [.., n], values and indices [.., k].

    Attributes:
        values, indices: None where it isn't a result; one of them is.
        k: None where it is a dimension of the results that calls give.
        smallest: whether the smallest elements come first, otherwise the largest.
        nan_largest: whether NaN is larger than every number, otherwise smaller.
        others: types of further buffers, of which k follows; nothing is read of them.
        order: the kernel's operand for x and each of the others.
    """

    x: str
    values: str | None
    indices: str | None
    k: int | None
    smallest: bool = False
    nan_largest: bool = False
    others: tuple[str, ...] = ()
    order: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class SampleSpec:
    """One of `k` candidates for each sequence; the third result has the memory of the fifth operand.

    Attributes:
        operands: types of the buffers values and indices [B, k], controls [B, 3], draws and chosen [B, P], pos [B].
        results: of token [B, 1], next [B], chosen [B, P].
    """

    operands: tuple[str, ...]
    results: tuple[str, ...]
    k: int


@dataclass(frozen=True)
class GatherSpec:
    """results = program(table[b.., o.., indices[b.., i..], t..], arguments), with results [b.., o.., i.., t..].

    Attributes:
        table, indices: types of the buffers.
        arguments, results: types of the program's buffers.
        axis: the dimension of the table that indices choose from.
        batch_dims: how many of its first dimensions the indices have, too.
        order: the kernel's operand for table, indices and each argument.
        program: what is done to each element; it has arguments only where t is one dimension.
        scheme, layout: of a packed table: its format, and `rows` or `planes`; empty for a dense one.
        k: columns of a packed table.
    """

    table: str
    indices: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    axis: int
    batch_dims: int
    order: tuple[int, ...]
    program: Program
    scheme: str = ""
    layout: str = ""
    k: int = 0


@dataclass(frozen=True)
class SolveSpec:
    """Systems of linear equations after outlining: a [n, n] or [B, n, n], b and result [n] or [n, K], or of each batch
    item, as memref types of f32 or f64."""

    a: str
    b: str
    result: str
    operand_order: tuple[int, ...]


@dataclass(frozen=True)
class LossSpec:
    """Cross entropy after outlining: logits [n, c], labels [n] and result [n], or with d_loss [n], its gradient by the
    logits, [n, c], as memref types."""

    logits: str
    labels: str
    d_loss: str | None
    result: str
    operand_order: tuple[int, ...]


@dataclass(frozen=True)
class FftPart:
    """A result of a transform of real rows, of memref type `out`: `length` parts of its numbers from `start` on."""

    out: str
    is_imaginary: bool
    start: int
    length: int


@dataclass(frozen=True)
class FftSpec:
    """Transforms of rows of `n` complex numbers, times `scale`, with roots whose exponents have the sign `sign`.

    Attributes:
        x: the memref type of the operand and of the result, [.., n] of complex<f32> or [.., 2 n] of both parts.
        parts: the results where rows are real: x is [.., n] of f32 or f64 then.
    """

    x: str
    n: int
    sign: int
    scale: float
    parts: tuple[FftPart, ...] = ()


@dataclass(frozen=True)
class GroupedSpec:
    """result[m] = x[m] weight[expert[m]]: x [M, K], weight [E, K, N], expert [M], result [M, N], as memref types."""

    x: str
    weight: str
    expert: str
    result: str
    operand_order: tuple[int, ...]


@dataclass(frozen=True)
class PackedGroupedSpec:
    """The same with packed weights, `mir.dequant_grouped_matmul`: x [M, K], expert [M], result [M, N], as memref types.

    Attributes:
        weight: of the weights' bytes.
        scheme, layout: how they are packed.
        experts: how many there are.
    """

    x: str
    weight: str
    expert: str
    result: str
    operand_order: tuple[int, ...]
    scheme: str
    layout: str
    experts: int


@dataclass(frozen=True)
class QuantizedGroupedSpec(PackedGroupedSpec):
    """The same of quantised rows, `mir.grouped_block_dot`: x is q [M, K], with scale and sum [M, K / 32]."""

    scale: str
    sum: str


@dataclass(frozen=True)
class QMatmulSpec:
    """A product of bytes, `mir.q_matmul`: x [M, K], weight [K, N], bias [N], result [M, N], as memref types.

    Attributes:
        bias: of i32; empty where there is none.
        x_zp, w_zp, out_zp, mult: as of the operation.
    """

    x: str
    weight: str
    bias: str
    result: str
    x_zp: int
    w_zp: int
    out_zp: int
    mult: float
    operand_order: tuple[int, ...]


@dataclass(frozen=True)
class MoveSpec:
    """What moves elements: a transpose, a part, inputs joined along an axis, or an expansion.

    Attributes:
        inputs, result: types of the buffers.
        order: the kernel's operand for each input.
        permutation: of a transpose: dimension i of the result is dimension `permutation[i]` of the input.
        axis: of a part, and of inputs that are joined.
        start, length: of a part.
    """

    op: Literal["transpose", "narrow", "concat", "expand"]
    inputs: tuple[str, ...]
    result: str
    order: tuple[int, ...]
    permutation: tuple[int, ...] = ()
    axis: int = 0
    start: int = 0
    length: int = 0


@dataclass(frozen=True)
class ReduceSpec:
    """A reduction of x along axes: types of the buffers x and result; kind as of `mir.reduce`."""

    x: str
    result: str
    kind: str
    axes: tuple[int, ...]


@dataclass(frozen=True)
class ScanSpec:
    """Running sums of x along an axis; `exclusive`: of the elements before."""

    x: str
    axis: int
    exclusive: bool


#: The shortest sums, and the fewest outputs of a group, for which templates that copy what kernels see pay.
SHORTEST_SUM, FEWEST_OUTPUTS = 8, 4


def why_no_convolution(x: str, weight: str, result: str) -> str:
    """Why CPUs have no template for a convolution of buffers of these types; empty where they have one."""
    element, sizes = element_of(weight), shape_of(weight)
    if element not in IN_F32:
        return f"convolutions of {element} have no template"
    if None in sizes or 0 in (*sizes, *shape_of(x), *shape_of(result)):
        return f"expects static kernels and no empty operand, not {weight}"
    return ""


@dataclass(frozen=True)
class Conv2dSpec:
    """results = program(conv(x, weight), arguments), of a `mir.conv`.

    Attributes:
        x, weight, result: types of the buffers; of the weight [Co, Ci / groups, kH, kW], whatever form it is read in.
        order: the kernel's operand for x, weight and each argument.
        program: what follows, on elements (output, place): its arguments have the result's shape, a number for each
            output (`column`), or one.
        arguments: types of its arguments.
        in_panels: whether the weight's buffer is [Co / 16, Ci / groups kH kW, 16]: 16 outputs lie side by side.
        transformed: whether 16 numbers of each channel follow in these, [Co / 16, (9 + 16) Ci, 16]: of kernels of 3 x 3
            the transforms for Winograd's F(2 x 2, 3 x 3), number by number.
    """

    x: str
    weight: str
    result: str
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    order: tuple[int, ...]
    program: Program = IDENTITY
    arguments: tuple[str, ...] = ()
    in_panels: bool = False
    transformed: bool = False

    @property
    def has_few_products(self) -> bool:
        """Whether a group has few outputs, or short sums: then what places see isn't worth a copy for each tap."""
        outputs, *sums = (size or 0 for size in shape_of(self.weight))
        return outputs // self.groups < FEWEST_OUTPUTS or math.prod(sums) < SHORTEST_SUM

    @property
    def operands(self) -> Buffers:
        """The operands' buffers."""
        weight = self.weight
        if self.in_panels:
            outputs, *sums = (size or 0 for size in shape_of(weight))
            rows = math.prod(sums) + (16 * sums[0] if self.transformed else 0)
            weight = memref((outputs // PANEL_ROWS, rows, PANEL_ROWS), element_of(weight))
        return [("x", self.x), ("weight", weight), *((f"arg{i}", own) for i, own in enumerate(self.arguments))]

    @property
    def results(self) -> Buffers:
        """The results' buffers."""
        return [(f"out{i}", self.result) for i in range(len(self.program.results))]


@dataclass(frozen=True)
class PoolSpec:
    """A `mir.pool` of images: types of the buffers x [N, C, H, W] and result, and the attributes."""

    x: str
    result: str
    kind: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]


@dataclass(frozen=True)
class NormSpec:
    """A softmax, rms_norm or layer_norm (`op`) along any axis.

    Attributes:
        x: the type of x's buffer, and of the result's.
        factors: types of gamma and beta, where there are some: vectors along the axis.
        order: the kernel's operand for x and each of the factors.
    """

    op: str
    x: str
    factors: tuple[str, ...]
    axis: int
    eps: float
    order: tuple[int, ...]


@dataclass(frozen=True)
class GroupNormSpec:
    """A norm of groups of channels of images, `mir.group_norm`.

    Attributes:
        x: the type of x's buffer [N, C, H, W], and of the result's.
        factors: types of gamma and beta, where there are some: vectors of channels.
        order: the kernel's operand for x and each of the factors.
    """

    x: str
    factors: tuple[str, ...]
    groups: int
    eps: float
    order: tuple[int, ...]


@dataclass(frozen=True)
class BroadcastStep:
    """One operation on elements: `word` is its MIR name, or a comparison's kind; `result` the type of what it makes.

    reads: earlier values, those of operands first; a float stands for a constant.
    rounds: whether steps read what it makes rounded to the type, where that is f16 or bf16; results always are.
    axis: of `iota`, the dimension whose positions it makes.
    """

    op: str
    word: str
    reads: tuple[int | float, ...]
    result: str
    rounds: bool = True
    axis: int = 0


@dataclass(frozen=True)
class BroadcastSpec:
    """Element-wise operations on operands that broadcast as numpy's; the last step's value is a result.

    Attributes:
        operands: types of the buffers; those that no step reads give sizes.
        result: type of the last step's buffer, whose shape all steps have.
        steps: in order.
        returned: the steps whose values are the kernel's results, in their order; the last one alone where empty.
        sizes: of dimensions that no operand has which is read: (dimension, operand, that operand's dimension).
    """

    operands: tuple[str, ...]
    result: str
    steps: tuple[BroadcastStep, ...]
    returned: tuple[int, ...] = ()
    sizes: tuple[tuple[int, int, int], ...] = ()

    @property
    def results(self) -> tuple[tuple[int, str], ...]:
        """The steps whose values are results, with the types of their buffers."""
        shape = shape_of(self.result)
        returned = self.returned or (len(self.steps) - 1,)
        return tuple((step, memref(shape, self.steps[step].result)) for step in returned)


@dataclass(frozen=True)
class CallSpec:
    """A call of a function of the user's own.

    Attributes:
        operands, results: their buffers.
        order: the kernel's operand for each of `operands`.
        parameters: what a function of C gets beside them.
    """

    operands: tuple[str, ...]
    results: tuple[str, ...]
    order: tuple[int, ...]
    parameters: tuple[float, ...] = ()
