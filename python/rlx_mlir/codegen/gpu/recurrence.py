# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for the gated delta rule: a block keeps 32 columns of one head's memory in registers, step after step.

Columns are independent of each other. Lane j of each warp has column j, and warp w the rows from 32 w on, so state is
read and written by whole lines. With M the memory before the step, a = e^g and c = n^-0.5,

    r = sum_i k[i] M[i]    p = sum_i q[i] M[i]    x = sum_i q[i] k[i]
    d = beta (v - a r)     o = c (a p + x d)      M[i] = a M[i] + k[i] d

so each step passes over the rows once before the warps exchange their sums, by one barrier: sums, keys and queries have
two places each, and while a step is computed the operands of the next one are on their way.

From `PROMPT` steps on, `recurrence_chunks.py` takes several steps at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Parameter, Value, element_of, pointer, shape_of, vec
from rlx_mlir.codegen.gpu.epilogue import exp
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.gpu.recurrence_chunks import Chunks, chunk_memory
from rlx_mlir.codegen.specs.sequence import RecurrenceSpec

WARP = 32
#: Rows that a thread keeps.
ROWS = 32
#: The largest n: 8 warps.
MAX_SIZE = 8 * ROWS
#: Steps from which on they are taken in chunks: fewer would leave much of a chunk empty.
PROMPT = 16


def emit_recurrence(name: str, spec: RecurrenceSpec, chip: str) -> DeviceKernel:
    """The kernel of a `mir.gated_delta_net`.

    Raises UnsupportedByTemplate where the element type isn't f32, f16 or bf16, or n isn't known, or above MAX_SIZE.
    """
    element, n = element_of(spec.q), shape_of(spec.q)[-1]
    if element not in IN_F32:
        raise UnsupportedByTemplate(f"{name}: recurrences of {element} have no schedule")
    if not n or n > MAX_SIZE:
        raise UnsupportedByTemplate(f"{name}: expects a state size from 1 to {MAX_SIZE}, but q is {spec.q}")
    named = [("q", spec.q), ("k", spec.k), ("v", spec.v), ("g", spec.g), ("beta", spec.beta), ("state", spec.state)]
    operands = [(label, type) for label, type in named if type is not None]
    results = [(label, type) for label, type in (("out", spec.result), ("next", spec.state_out)) if type is not None]
    em = DeviceEmitter(chip)
    warps, groups = -(-n // ROWS), -(-n // WARP)
    parameters: list[Parameter] = [
        *(pointer(label, readonly=True) for label, _ in operands),
        *(pointer(label) for label, _ in results),
        ("steps", "i32"),
        ("heads", "i32"),
    ]
    known = shape_of(spec.q)[1]
    symbols = []
    if known is None or known < PROMPT:
        symbols.append(symbol_of(f"{name}_recurrence"))
    if known is None or known >= PROMPT:
        symbols.append(symbol_of(f"{name}_chunks"))
    for symbol in symbols:
        with em.kernel(symbol, parameters, WARP * warps, chained=True) as values:
            buffers = dict(zip([label for label, _ in [*operands, *results]], values, strict=False))
            body = _Recurrence(em, element, n, buffers, values[-2], values[-1])
            if symbol.endswith("_chunks"):
                body.run_in_chunks()
            else:
                body.run()

    def host(host: HostEmitter, sources: list[Value], targets: list[Value], scratch: Scratch) -> None:
        batch, steps, heads = (host.dim(sources[0], axis) for axis in range(3))
        blocks = batch * heads * groups
        arguments = [*sources, *targets, host.i32(steps), host.i32(heads)]

        def launch(symbol: str) -> None:
            in_chunks = symbol.endswith("_chunks")
            shared = chunk_memory(warps) if in_chunks else (2 * 2 * WARP * warps + 2 * 3 * WARP * warps) * 4
            host.launch(symbol, blocks, WARP * warps, arguments, shared=shared)

        if len(symbols) == 1:
            launch(symbols[0])
            return
        with host.if_(host.cmpi("ult", steps, PROMPT)) as branch:
            launch(symbols[0])
            branch.else_()
            launch(symbols[1])

    return write_device_kernel(name, "recurrence", operands, results, em, host, order=spec.operand_order)


class _Recurrence:
    """Emits the steps of one block: 32 columns of one head of one batch item."""

    def __init__(
        self, em: DeviceEmitter, element: str, n: int, buffers: dict[str, Value], steps: Value, heads: Value
    ) -> None:
        self.em, self.element, self.n, self.buffers, self.steps, self.heads = em, element, n, buffers, steps, heads
        self.warps = -(-n // ROWS)
        self.width = WARP * self.warps
        """Rows of a key in shared memory; those from n on are zeros."""
        groups = -(-n // WARP)
        head = em.index(em.block() // groups)
        self.head = head
        self.batch, self.h = em.index(head // heads), em.index(head % heads)
        self.lane, self.warp = em.lane(), em.warp()
        self.column = em.index(em.block() % groups * WARP + self.lane)
        self.exists = em.cmpi("ult", self.column, n)
        self.row = em.index(self.warp * ROWS)
        # Gates of step t are at (batch steps + t) heads + h; rows of q, k and v at n times that.
        first = em.wide(self.batch) * em.wide(steps)
        self.gate = first * em.wide(heads) + em.wide(self.h)
        self.keys = em.shared()
        self.sums = em.shared(2 * 2 * self.width * 4)

    def run(self) -> None:
        """All steps, from state to state."""
        em = self.em
        memory = self._state_in()
        ahead = self._fetch(em.const(0), self.gate)
        self._put(em.const(0), ahead)
        em.barrier()
        zero = em.const(0)
        with em.loop(0, self.steps, 1, (memory, self.gate, zero, ahead[2:]), hint="t") as loop:
            memory, gate, turn, (v, g, beta) = loop.carry
            following = gate + em.wide(self.heads)
            ahead = self._fetch(loop.iv + 1, following)
            other = turn ^ 1
            decay = exp(em, g)
            key, parts = self._recall(memory, turn)
            self._share(turn, parts)
            self._put(other, ahead)
            em.barrier()
            recalled, asked, product = self._total(turn)
            change = beta * (v - decay * recalled)
            self._answer(gate, em.fmaf(product, change, decay * asked))
            memory = [em.fmaf(k, change, decay * m) for k, m in zip(key, memory, strict=True)]
            loop.yield_((memory, following, other, ahead[2:]))
        self._state_out(loop.result[0])

    def run_in_chunks(self) -> None:
        """All steps, several at a time."""
        chunks = Chunks(
            self.em, self.element, self.n, self.buffers, self.steps, self.heads, (self.batch, self.h), self.column
        )
        self._state_out(chunks.run(self._state_in()))

    # -- state --------------------------------------------------------------------------------------------------------

    def _place(self, row: int) -> tuple[Value, Value]:
        """(the element of the state at one of the thread's rows, whether it exists)"""
        em = self.em
        at = em.index(self.row + row)
        start = em.wide(self.head) * (self.n * self.n)
        place = start + em.wide(at * self.n + self.column)
        return place, self.exists & em.cmpi("ult", at, self.n)

    def _state_in(self) -> list[Value]:
        em = self.em
        state = self.buffers.get("state")
        if state is None:
            return [em.zero("f32")] * ROWS
        return [em.ld_if(exists, state, "f32", at) for at, exists in (self._place(row) for row in range(ROWS))]

    def _state_out(self, memory: Sequence[Value]) -> None:
        em = self.em
        target = self.buffers.get("next")
        if target is None:
            return
        for row, value in enumerate(memory):
            at, exists = self._place(row)
            with em.if_(exists):
                em.st(value, target, at)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _fetch(self, t: Value, gate: Value) -> list[Value]:
        """Of step t: the thread's element of the key and the query, its column of v, and both gates; zeros after
        the last step."""
        em = self.em
        own = em.index(self.warp * WARP + self.lane)
        there = em.cmpi("slt", t, self.steps)
        rows = gate * self.n
        is_row = there & em.cmpi("ult", own, self.n)
        places = [(name, rows + em.wide(own), is_row) for name in ("k", "q")]
        places.append(("v", rows + em.wide(self.column), there & self.exists))
        places += [(name, gate, there) for name in ("g", "beta")]
        return [em.widen(em.ld_if(exists, self.buffers[name], self.element, at)) for name, at, exists in places]

    def _put(self, turn: Value, fetched: Sequence[Value]) -> None:
        """The thread's elements of a key and a query into shared memory, the query over sqrt(n)."""
        em = self.em
        own = turn * (2 * self.width) + (self.warp * WARP + self.lane)
        em.st(fetched[0], self.keys, own)
        em.st(fetched[1] * self.n**-0.5, self.keys, own + self.width)

    def _recall(self, memory: Sequence[Value], turn: Value) -> tuple[list[Value], list[Value]]:
        """(the key at the thread's rows; over these rows, the sums of k M, q M and q k)"""
        em = self.em
        start = turn * (2 * self.width) + self.row

        def rows(first: Index) -> list[Value]:
            vectors = [em.ld(self.keys, vec(4, "f32"), first + at) for at in range(0, ROWS, 4)]
            return [x for vector in vectors for x in em.lanes(vector)]

        key, query = rows(start), rows(start + self.width)
        return key, [self._dot(x, y) for x, y in ((key, memory), (query, memory), (query, key))]

    def _dot(self, x: Sequence[Value], y: Sequence[Value]) -> Value:
        """A sum of products in four chains, whose steps don't wait for each other."""
        em = self.em
        chains = [x[i] * y[i] for i in range(4)]
        for i in range(4, len(x)):
            chains[i % 4] = em.fmaf(x[i], y[i], chains[i % 4])
        return em.tree("add", chains)

    def _share(self, turn: Value, parts: Sequence[Value]) -> None:
        em = self.em
        start = turn * (3 * self.width) + (self.warp * (3 * WARP) + self.lane)
        for number, part in enumerate(parts):
            em.st(part, self.sums, start + number * WARP)

    def _total(self, turn: Value) -> list[Value]:
        """The sums of all warps, in their order."""
        em = self.em
        start = turn * (3 * self.width) + self.lane
        totals = []
        for number in range(3):
            places = [start + (3 * warp + number) * WARP for warp in range(self.warps)]
            totals.append(em.tree("add", [em.ld(self.sums, "f32", place) for place in places]))
        return totals

    def _answer(self, gate: Value, value: Value) -> None:
        """The result at the thread's column, written by the first warp."""
        em = self.em
        if "out" not in self.buffers:
            return
        with em.if_(self.exists & em.cmpi("eq", self.warp, 0)):
            at = gate * self.n + em.wide(self.column)
            em.st(em.narrow(value, self.element), self.buffers["out"], at)
