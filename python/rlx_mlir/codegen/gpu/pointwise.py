# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for element-wise kernels: a thread computes a few vectors of 16 bytes of every result.

Elements are numbered through rows and columns. A row operand is read where the result is written; vectors and periodic
operands repeat, columns of one value a row are read once a vector; the last elements of all, where there is no whole
vector, are computed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import COMPARISONS
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Index, Parameter, Value, element_of, pointer, vec
from rlx_mlir.codegen.gpu.epilogue import elementwise
from rlx_mlir.codegen.gpu.kernel import Constants, DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.row_graph import PEAK, Graph, Node, RowProgram, split_rows

_KINDS = ("load", "scalar", "const", "map", "compare", "round")


THREADS = 256
VECTORS = 2
"""Vectors that a thread computes, a block's threads apart, so that loads overlap."""


def emit_pointwise(
    name: str,
    program: RowProgram,
    chip: str,
    constants: Constants = frozenset(),
) -> DeviceKernel:
    """The kernel of an element-wise program of rows.

    Raises UnsupportedByTemplate where the program isn't element-wise on operands of one width.
    """
    graph = Graph(program)
    for node in graph.nodes:
        if node.kind not in _KINDS or node.start:
            what = f"{node.kind} {'max' if node.op == PEAK else node.op}".rstrip()
            raise UnsupportedByTemplate(f"pointwise: a row's elements depend on others: {what}")
    width = max(node.width for node in graph.nodes)
    for sink in graph.sinks:
        if sink.result.pos is not None or sink.node.width != width:
            raise UnsupportedByTemplate(
                f"pointwise: result '{sink.result.name}' has rows of another width than {width}"
            )
    if split_rows(graph.space.type, graph.space.width)[0] != width:
        raise UnsupportedByTemplate(f"pointwise: rows of {width}, but the operand that says how many has others")
    em = DeviceEmitter(chip)
    operands = [(f"arg{i}", operand.type) for i, operand in enumerate(program.operands)]
    results = [(f"out{i}", result.type) for i, result in enumerate(program.results)]
    periodic = [i for i, operand in enumerate(program.operands) if operand.role == "periodic"]
    moved = [operand.type for operand in program.operands if operand.role == "row"] + [type for _, type in results]
    lanes = 16 // max(BITS[element_of(type)] // 8 for type in moved)
    parameters: list[Parameter] = [
        *(pointer(label, readonly=True, constant=i in constants) for i, (label, _) in enumerate(operands)),
        *(pointer(label) for label, _ in results),
        ("count", "i64"),
        *((f"period{i}", "i64") for i in periodic),
    ]
    symbol = symbol_of(f"{name}_pointwise")
    with em.kernel(symbol, parameters, THREADS, chained=True) as values:
        periods = dict(zip(periodic, values[len(operands) + len(results) + 1 :], strict=True))
        _Body(em, graph, values, periods, width, lanes).run(values[len(operands) + len(results)])
    space = program.operands.index(graph.space)

    def host(host: HostEmitter, sources: list[Value], targets: list[Value], scratch: Scratch) -> None:
        count = host.elements(sources[space])
        numbers = [host.i64(n) for n in (count, *(host.elements(sources[i]) for i in periodic))]
        blocks = host.iceildiv(count, THREADS * VECTORS * lanes)
        host.launch(symbol, blocks, THREADS, [*sources, *targets, *numbers])

    return write_device_kernel(name, "pointwise", operands, results, em, host)


class _Body:
    """Emits the elements of one thread.

    Args:
        values: the kernel's parameters. periods: number of elements of each periodic operand.
        width: elements of a row. lanes: elements of a vector.
    """

    def __init__(
        self,
        em: DeviceEmitter,
        graph: Graph,
        values: Sequence[Value],
        periods: dict[int, Value],
        width: int,
        lanes: int,
    ) -> None:
        self.em, self.graph, self.width, self.lanes = em, graph, width, lanes
        self.numbers = {name: i for i, name in enumerate(graph.operands)}
        self.sources = values[: len(self.numbers)]
        self.targets = values[len(self.numbers) : len(self.numbers) + len(graph.sinks)]
        self.periods = periods
        self.whole = width % lanes == 0

    def run(self, count: Value) -> None:
        """All elements of the thread."""
        em, lanes = self.em, self.lanes
        step = THREADS * lanes
        block = em.wide(em.block()) * (step * VECTORS)
        first = block + em.wide(em.thread() * lanes)
        places = [first if u == 0 else first + u * step for u in range(VECTORS)]
        # The last vector's place decides whether all are whole: then loads stand side by side.
        with em.if_(em.cmpi("ule", places[-1] + lanes, count)) as branch:
            loaded = [self._load_all(place, lanes) for place in places]
            for place, own in zip(places, loaded, strict=True):
                self._store(place, self._values(own, lanes), lanes)
            branch.else_()
            for place in places:
                if self.whole:
                    with em.if_(em.cmpi("ult", place, count)):
                        self._store(place, self._values(self._load_all(place, lanes), lanes), lanes)
                    continue
                end = em.index(em.imin(place + lanes, count))
                with em.loop(place, end, em.const(1, "i64")) as loop:
                    self._store(loop.iv, self._values(self._load_all(loop.iv, 1), 1), 1)

    def _load_all(self, place: Value, count: int) -> dict[Node, list[Value]]:
        """What all nodes that read memory have for `count` elements from `place` on, as f32."""
        return {node: self._load(node, place, count) for node in self.graph.nodes if node.kind in ("load", "scalar")}

    def _load(self, node: Node, place: Value, count: int) -> list[Value]:
        em, number = self.em, self.numbers[node.op]
        operand, base = self.graph.program.operands[number], self.sources[number]
        element = element_of(operand.type)
        if node.kind == "scalar":
            return [em.widen(em.ld(base, element))] * count
        if node.width == self.width and operand.role == "row":
            return self._vector(base, element, place, count)
        if self.whole and count > 1:
            at = self._index(operand.role, number, node, place)
            if node.width == 1:
                return [em.widen(em.ld(base, element, at))] * count
            return self._vector(base, element, at, count)
        return [
            em.widen(em.ld(base, element, self._index(operand.role, number, node, place + lane)))
            for lane in range(count)
        ]

    def _vector(self, base: Value, element: str, place: Index, count: int) -> list[Value]:
        em = self.em
        if count == 1:
            return [em.widen(em.ld(base, element, place))]
        return em.lanes(em.widen(em.ld(base, vec(count, element), place)))

    def _index(self, role: str, number: int, node: Node, place: Index) -> Index:
        """The element of an operand that belongs to an element of the result."""
        row: Index = place // self.width if node.width == 1 else place
        if role == "row":
            return row
        if role == "vector":
            return 0 if node.width == 1 else place % self.width
        return row % self.periods[number]

    def _values(self, loaded: dict[Node, list[Value]], count: int) -> dict[Node, list[Value]]:
        """The values of all nodes, lane by lane."""
        em, values = self.em, dict(loaded)
        for node in self.graph.nodes:
            if node in values:
                continue
            if node.kind == "const":
                values[node] = [em.const(node.number, "f32")] * count
                continue
            inputs = zip(*(values[operand] for operand in node.inputs), strict=True)
            values[node] = [self._compute(node, operands) for operands in inputs]
        return values

    def _compute(self, node: Node, operands: tuple[Value, ...]) -> Value:
        em = self.em
        if node.kind == "compare":
            return em.cmpf(COMPARISONS[node.op], *operands)
        if node.kind == "round":
            return em.widen(em.narrow(operands[0], node.op))
        return operands[0] if node.op == "copy" else elementwise(em, node.op, operands)

    def _store(self, place: Value, values: dict[Node, list[Value]], count: int) -> None:
        em = self.em
        for sink, target in zip(self.graph.sinks, self.targets, strict=True):
            element = element_of(sink.result.type)
            own = values[sink.node]
            if count > 1:
                em.st(em.narrow(em.vector(own), element), target, place)
            else:
                em.st(em.narrow(own[0], element), target, place)
