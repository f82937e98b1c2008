# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the schedules of attention for CPUs share: views of heads, and the functions of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.attention import NEGATIVE_INFINITY, AttentionKernel, KeyRange
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec, with_element
from rlx_mlir.codegen.specs.attention import AttentionSpec, head_width
from rlx_mlir.formats import get_format
from rlx_mlir.formats.descriptions import RUN

from .exponentials import larger
from .kept_blocks import decoded_block
from .kernel import Scratch
from .target import Target, rounded

EXP2 = (
    1.0,
    0.6931471824645996,
    0.24022647738456726,
    0.055503323674201965,
    0.00961843691766262,
    0.0013398875016719103,
    0.00015353361959569156,
)
"""2^r on [-0.5, 0.5]: coefficients of 1, r, r^2, ... with a relative error of 2e-9 before rounding; 2^0 is exact."""


@dataclass(frozen=True)
class Heads:
    """q, k, v or the result as one flat buffer: element (b, h, s, d) stands at base(b, h) + s * stride + d.

    Where keys or values are blocks, of format `scheme`, elements of the buffer are bytes, `size` of them a head.
    """

    flat: Value
    heads: int
    size: int
    length: Index
    stride: int
    scheme: str | None = None

    def base(self, b: Index, h: Index) -> Index:
        if self.stride == self.size and self.heads > 1:  # bhsd
            return (b * self.heads + h) * (self.length * self.size)
        return b * (self.length * self.stride) + h * self.size


class Schedule(AttentionKernel):
    """The views of the buffers, key ranges, exp and max with the NaN rules of the template."""

    q: Heads
    k: Heads
    v: Heads
    out: Heads

    def __init__(self, em: Emitter, spec: AttentionSpec, target: Target) -> None:
        super().__init__(em, spec)
        self.target = target
        self.lanes = target.lanes("f32")
        self.type = target.vector("f32")
        self.size = spec.head_dim
        self.element = element_of(spec.q)

    # What a schedule implements -------------------------------------------------------------------

    def units(self, q: Value, k: Value) -> Index:
        """How many units the work has."""
        raise NotImplementedError

    def take_scratch(self, k: Value, parts: Scratch) -> None:
        """Takes a thread's scratch."""
        raise NotImplementedError

    def body(self, begin: Value, end: Value) -> None:
        """Computes the units [begin, end)."""
        raise NotImplementedError

    # Buffers --------------------------------------------------------------------------------------

    def batch(self, q: Value) -> Index:
        return 1 if len(shape_of(q.type)) == 2 else self.em.dim(q, 0)

    def bind(self, buffers: dict[str, Value], results: Sequence[Value]) -> None:
        """Makes the flat views; to be called once, at the head of the body. The first result is the attention's."""
        em, spec = self.em, self.spec

        def heads(buffer: Value, count: int, scheme: str | None = None) -> Heads:
            size = head_width(spec, scheme)
            stride = size if spec.layout == "bhsd" else count * size
            return Heads(self.flat(buffer), count, size, em.dim(buffer, spec.sequence_axis), stride, scheme)

        self.q, self.out = heads(buffers["q"], spec.num_heads), heads(results[0], spec.num_heads)
        self.k = heads(buffers["k"], spec.kv_heads, spec.k_scheme)
        self.v = self.k if spec.shared else heads(buffers["v"], spec.kv_heads, spec.v_scheme)
        self.pos, self.sinks = buffers.get("pos"), buffers.get("sinks")
        self.mask: Value | None = None
        if spec.mask is not None:
            mask = buffers["mask"]
            self.mask = self.flat(mask)
            self.mask_dims = [em.dim(mask, axis) for axis in range(len(shape_of(mask.type)))]

    def flat(self, buffer: Value) -> Value:
        return self.em.collapse(buffer, [list(range(len(shape_of(buffer.type))))])

    def wide(self, x: Value) -> Value:
        """A loaded value as f32."""
        return self.target.widen(self.em, x)

    def narrow(self, x: Value) -> Value:
        """A value of f32 in the type of the result."""
        return rounded(self.em, self.target, x, self.element)

    def vector(self, buffer: Value) -> str:
        """The type of a vector of `lanes` elements of a buffer."""
        return with_element(self.type, element_of(buffer.type))

    def mask_row(self, *position: Index) -> Index:
        """Where the mask's row of the given leading indices starts; a dimension of size 1 broadcasts."""
        flat: Index = 0
        for index, size in zip(position, self.mask_dims, strict=False):
            flat = flat * size + (0 if size == 1 else index)
        return flat * self.mask_dims[-1]

    def copy_wide(self, source: Value, at: Index, target: Value, to: Index, factor: float | None = None) -> None:
        """`size` elements from `source[at]` on, as f32 and times `factor`, to `target[to]`: a row of a head."""
        em = self.em
        whole = self.size // self.lanes * self.lanes

        def moved(value: Value) -> Value:
            value = self.wide(value)
            return value if factor is None else value * factor

        if whole:
            with em.loop(0, whole, self.lanes, hint="d") as d:
                value = em.vload(source, [at + d.iv], self.vector(source))
                em.vstore(moved(value), target, [to + d.iv])
        if whole < self.size:
            with em.loop(whole, self.size, hint="d") as d:
                em.store(moved(em.load(source, [at + d.iv])), target, [to + d.iv])

    def copy_row(self, x: Heads, at: Index, target: Value, to: Index) -> None:
        """A head's elements of a key or value that begins at `at`, as f32, to `target[to]`."""
        if x.scheme is None:
            self.copy_wide(x.flat, at, target, to)
            return
        nbytes = get_format(x.scheme).nbytes
        for block in range(self.size // RUN):
            for i, vector in enumerate(decoded_block(self.em, self.target, x.scheme, x.flat, at + block * nbytes)):
                self.em.vstore(vector, target, [to + (block * RUN + i * self.lanes)])

    # Keys -----------------------------------------------------------------------------------------

    def keys(self, b: Index, first: Index, count: Index) -> KeyRange:
        """The keys that exist and that at least one of the queries `first` .. `first + count - 1` may see."""
        em = self.em
        start = None if self.pos is None else em.cast("arith.index_cast", em.load(self.pos, [b]), "index")
        return self.seen_by_some(self.q.length, self.k.length, start, first, count)

    # Arithmetic -----------------------------------------------------------------------------------

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.target.fma(self.em, a, b, c)

    def larger(self, new: Value, running: Value) -> Value:
        """max without NaN handling (one instruction): a NaN score is dropped here and comes back through its exp."""
        return larger(self.em, new, running)

    def exp2(self, x: Value, coefficients: Sequence[float] = EXP2) -> Value:
        """2^x for vectors of x below 127: 0 where the result would be below 2^-126, NaN where x is NaN.

        Args:
            coefficients: of the polynomial on [-0.5, 0.5].
        """
        em = self.em
        integers = with_element(x.type, "i32")
        power = self.larger(em.const(-127.0, x.type), x)
        # Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
        shifted = power + 12582912.0
        rest = power - (shifted - 12582912.0)
        value = em.const(coefficients[-1], x.type)
        for coefficient in reversed(coefficients[:-1]):
            value = self.fma(value, rest, em.const(coefficient, x.type))
        # The exponent of 2^-127 is 0, which makes the factor 0.0.
        exponent = (em.bitcast(shifted, integers) << 23) + (127 << 23)
        return value * em.bitcast(exponent, x.type)

    def capped(self, product: Value, most: float) -> Value:
        return self.em.unary("math.tanh", product) * most

    def opening(self, h: Index) -> tuple[Value, Value]:
        """The maximum and the sum, in all lanes, that scores of head `h` are added to: none so far, or its sink alone.

        The sum is 1 of a sink, and 0 of one of -inf.
        """
        em = self.em
        if self.sinks is None:
            return em.const(NEGATIVE_INFINITY, self.type), em.zero(self.type)
        sink = em.broadcast(self.wide(em.load(self.sinks, [h])), self.type)
        maximum = sink if self.score_unit == 1.0 else sink * self.score_unit
        return maximum, self.weight(maximum, self.finite(maximum))

    def normalised(self, total: Value, sum_: Value, inverse: Value) -> Value:
        """total / sum, and zero where no key was visible."""
        em = self.em
        empty = em.cmpf("oeq", sum_, 0.0)
        return em.select(empty, em.zero(total.type), total * inverse)

    def i32_lanes(self, index: Index) -> Value:
        em = self.em
        return em.broadcast(em.cast("arith.index_cast", em.index(index), "i32"), vec(self.lanes, "i32"))
