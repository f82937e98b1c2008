# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `gpu-map-loops`: each loop nest of a kernel becomes a launch of threads.

There are two schedules. By default one thread computes one element of the result, and runs the nest's reductions; the
elements of a row are neighbouring threads, so that they read and write neighbouring memory. Where what is reduced lies
in memory as a row, the threads of a warp share the reduction: then they are the ones that read neighbouring memory. The
steps of a recurrence, whose results lie along its reduction, are those of one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir.dialects import arith, memref, scf

from rlx_mlir import ir
from rlx_mlir.errors import CompileError
from rlx_mlir.lowering.gpu.build import WARP, bodies, found, indices, location_of, number
from rlx_mlir.lowering.sums import compensated, with_lost
from rlx_mlir.rewriting import compiler_pass, operations

#: Threads of a block.
THREADS = 256
#: Results of a block in which each warp computes one.
WARPS = THREADS // WARP
#: The shortest row, where its length is known, that a warp shares.
MIN_SHARED = WARP

#: Terms that a thread of a warp adds one after the other.
TURNS = 32

#: By the operation that combines two values: the word of `gpu.subgroup_reduce`, and the value that changes nothing.
COMBINERS = {
    "arith.addf": ("add", 0.0),
    "arith.mulf": ("mul", 1.0),
    "arith.maximumf": ("maximumf", float("-inf")),
    "arith.minimumf": ("minimumf", float("inf")),
    "arith.addi": ("add", 0),
    "arith.maxsi": ("maxsi", -(1 << 31)),
    "arith.minsi": ("minsi", (1 << 31) - 1),
}
#: Combiners of floats whose order matters: they are shared only where the program allows it.
ORDERED = ("arith.addf", "arith.mulf")


@compiler_pass("gpu-map-loops", dependent=("gpu", "scf", "arith", "memref", "affine"))
def map_loops(module: ir.Operation) -> None:
    """Turn each `linalg.generic` on buffers into a `gpu.launch`: one thread, or one warp, for each result.

    Sizes may be dynamic, and 0: a launch has one block at least, whose threads check their positions. Sums whose
    operations say `reassoc` may be shared by the threads of a warp (`gpu.subgroup_reduce`). Runs after bufferisation.
    """
    for body in bodies(module):
        for op in found(body.operation, "linalg.generic"):
            with op.location, ir.InsertionPoint(op):
                _Nest(op).launch()
            op.erase()
        for op in operations(body.operation):
            if op.name.startswith("linalg.") and op.name not in ("linalg.yield", "linalg.index"):
                raise CompileError(
                    f"{location_of(op)} isn't a generic loop nest: linalg-generalize-named-ops runs before"
                )


@dataclass
class _Operand:
    """A buffer that a nest reads or writes, with the expressions of loops that are its positions."""

    value: ir.Value
    map: ir.AffineMap

    def dims(self) -> list[int | None]:
        """The loop that runs along each dimension; None where the position isn't a loop's alone."""
        return [ir.AffineDimExpr(e).position if isinstance(e, ir.AffineDimExpr) else None for e in self.map.results]

    def loops(self) -> set[int]:
        """The loops that positions depend on."""
        return set().union(*(_loops_of(e) for e in self.map.results))

    def positions(self, loops: Sequence[ir.Value]) -> list[ir.Value]:
        """The positions as values, at the insertion point."""
        return [_evaluate(e, self.map, loops) for e in self.map.results]


def _loops_of(expression: ir.AffineExpr) -> set[int]:
    if isinstance(expression, ir.AffineDimExpr):
        return {expression.position}
    if isinstance(expression, ir.AffineBinaryExpr):
        return _loops_of(expression.lhs) | _loops_of(expression.rhs)
    return set()


def _evaluate(expression: ir.AffineExpr, map: ir.AffineMap, loops: Sequence[ir.Value]) -> ir.Value:
    if isinstance(expression, ir.AffineDimExpr):
        return loops[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return number(expression.value)
    from mlir.dialects import affine

    return affine.AffineApplyOp(ir.AffineMap.get(map.n_dims, 0, [expression]), list(loops)).result


class _Nest:
    """One `linalg.generic` on buffers."""

    def __init__(self, op: ir.AnyOp) -> None:
        self.op = op
        segments = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
        maps = [ir.AffineMapAttr(attribute).value for attribute in op.attributes["indexing_maps"]]
        operands = [_Operand(value, map) for value, map in zip(op.operands, maps, strict=True)]
        self.inputs, self.outputs = operands[: segments[0]], operands[segments[0] :]
        words = [str(iterator) for iterator in op.attributes["iterator_types"]]
        self.parallel = [loop for loop, word in enumerate(words) if "parallel" in word]
        self.reduced = [loop for loop, word in enumerate(words) if "reduction" in word]
        self.block = op.regions[0].blocks[0]
        *self.ops, self.result = list(self.block.operations)
        self.sizes = [self._size(loop, operands) for loop in range(len(words))]
        #: Whether results lie along a reduction: a recurrence, whose steps find in memory what those before left.
        self.is_recurrence = any(operand.loops() & set(self.reduced) for operand in self.outputs)

    def _size(self, loop: int, operands: list[_Operand]) -> int | ir.Value:
        """Number of steps of a loop: a number, or a value where it is dynamic."""
        choices = [(o.value, o.dims().index(loop)) for o in operands if loop in o.dims()]
        if not choices:
            raise CompileError(f"{location_of(self.op)} has a loop along no dimension of its operands")
        for value, axis in choices:
            if (size := ir.ShapedType(value.type).shape[axis]) >= 0:
                return int(size)
        value, axis = choices[0]
        return memref.dim(value, number(axis))

    def combiner(self) -> ir.AnyOp | None:
        """The operation that combines the accumulated value with a new one; None where it isn't known."""
        if len(self.outputs) != 1 or not self.reduced:
            return None
        accumulated = self.block.arguments[len(self.inputs)]
        owner = self.result.operands[0].owner
        if isinstance(owner, ir.Block) or owner.name not in COMBINERS:
            return None
        if len(list(accumulated.uses)) != 1 or accumulated not in list(owner.operands):
            return None
        if owner.name in ORDERED and "reassoc" not in str(owner.attributes["fastmath"]):
            return None
        return owner if str(accumulated.type) in ("f32", "i32") else None

    def is_shared(self) -> bool:
        """Whether a warp computes a result: its threads then read along rows of memory."""
        if self.is_recurrence or self.combiner() is None:
            return False
        inner = self.reduced[-1]
        if isinstance(self.sizes[inner], int) and self.sizes[inner] < MIN_SHARED:
            return False
        along = [operand.dims()[-1:] == [inner] for operand in self.inputs if inner in operand.loops()]
        return bool(along) and all(along)

    # -- code ---------------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Writes the launch at the insertion point; the nest's operations move into it."""
        shared = self.is_shared()
        total = number(1)
        for loop in self.parallel:
            total = arith.muli(total, *indices([self.sizes[loop]]))
        per_block = WARPS if shared else THREADS
        blocks = arith.maxsi(arith.ceildivui(total, number(per_block)), number(1))
        threads = (number(WARP), number(WARPS)) if shared else (number(THREADS), number(1))
        one = number(1)
        launch = ir.Operation.create(
            "gpu.launch",
            operands=[blocks, one, one, *threads, one],
            attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0])},
            regions=1,
        )
        index = ir.IndexType.get()
        block = launch.regions[0].blocks.append(*[index] * 12, arg_locs=[self.op.location] * 12)
        block_id, thread, warp = block.arguments[0], block.arguments[3], block.arguments[4]
        with ir.InsertionPoint(block):
            place = arith.addi(arith.muli(block_id, number(per_block)), warp if shared else thread)
            exists = arith.cmpi(arith.CmpIPredicate.ult, place, total)
            if shared:
                self._shared(place, exists, thread)
            else:
                self._alone(place, exists)
            ir.Operation.create("gpu.terminator")

    def _places(self, place: ir.Value) -> list[ir.Value | None]:
        """The positions of the loops at a result's number; those of reductions are None."""
        loops: list[ir.Value | None] = [None] * len(self.sizes)
        for position, loop in enumerate(reversed(self.parallel)):
            size = self.sizes[loop]
            if position == len(self.parallel) - 1:
                loops[loop] = place
            elif size == 1:
                loops[loop] = number(0)
            else:
                size = indices([size])[0]
                loops[loop], place = arith.remui(place, size), arith.divui(place, size)
        return loops

    def _alone(self, place: ir.Value, exists: ir.Value) -> None:
        """One thread computes one element of each result."""
        guard = scf.IfOp(exists)
        with ir.InsertionPoint(guard.then_block):
            loops = self._places(place)
            if self.is_recurrence:
                self._step(loops, list(self.reduced))
                scf.YieldOp([])
                return
            known = [0 if loop is None else loop for loop in loops]
            positions = [operand.positions(indices(known)) for operand in self.outputs]
            arguments = list(self.block.arguments)[len(self.inputs) :]
            read = [self.reduced or next(iter(argument.uses), None) is not None for argument in arguments]
            start = [
                memref.load(operand.value, at) if needed else None
                for operand, at, needed in zip(self.outputs, positions, read, strict=True)
            ]
            results = self._reduce(loops, start, [(number(0), number(1))] * len(self.reduced))
            for operand, at, value in zip(self.outputs, positions, results, strict=True):
                memref.store(value, operand.value, at)
            scf.YieldOp([])

    def _step(self, loops: list[ir.Value | None], reduced: list[int]) -> None:
        """The steps of a recurrence, one after the other, along the loops that are left."""
        if reduced:
            loop = scf.ForOp(number(0), *indices([self.sizes[reduced[0]]]), number(1))
            with ir.InsertionPoint(loop.body):
                inner = list(loops)
                inner[reduced[0]] = loop.induction_variable
                self._step(inner, reduced[1:])
                scf.YieldOp([])
            return
        at = indices([0 if loop is None else loop for loop in loops])
        positions = [operand.positions(at) for operand in self.outputs]
        before = [memref.load(o.value, p) for o, p in zip(self.outputs, positions, strict=True)]
        for operand, place, value in zip(self.outputs, positions, self._compute(at, before), strict=True):
            memref.store(value, operand.value, place)

    def _shared(self, place: ir.Value, exists: ir.Value, lane: ir.Value) -> None:
        """The threads of a warp compute one element of the result."""
        combiner = self.combiner()
        assert combiner is not None
        word, neutral = COMBINERS[combiner.name]
        kind = self.block.arguments[len(self.inputs)].type
        flags = {"fastmath": combiner.attributes["fastmath"]} if "fastmath" in combiner.attributes else {}
        name = combiner.name
        guard = scf.IfOp(exists, [kind], has_else=True)
        with ir.InsertionPoint(guard.else_block):
            scf.YieldOp([_scalar(kind, neutral)])
        with ir.InsertionPoint(guard.then_block):
            steps = [(number(0), number(1))] * (len(self.reduced) - 1) + [(lane, number(WARP))]
            size = self.sizes[self.reduced[-1]]
            blocked = combiner.name == "arith.addf" and not (isinstance(size, int) and size <= WARP * TURNS)
            scf.YieldOp(self._reduce(self._places(place), [_scalar(kind, neutral)], steps, blocked=blocked))
        operation = ir.Attribute.parse(f"#gpu<all_reduce_op {word}>")
        reduced = ir.Operation.create(
            "gpu.subgroup_reduce", results=[kind], operands=[guard.results[0]], attributes={"op": operation}
        ).result
        first = arith.cmpi(arith.CmpIPredicate.eq, lane, number(0))
        last = scf.IfOp(arith.andi(exists, first))
        with ir.InsertionPoint(last.then_block):
            known = [0 if loop is None else loop for loop in self._places(place)]
            (output,) = self.outputs
            at = output.positions(indices(known))
            before = memref.load(output.value, at)
            after = ir.Operation.create(name, results=[kind], operands=[before, reduced], attributes=flags).result
            memref.store(after, output.value, at)
            scf.YieldOp([])

    def _reduce(
        self,
        loops: list[ir.Value | None],
        start: Sequence[ir.Value | None],
        steps: list[tuple[ir.Value, ir.Value]],
        *,
        blocked: bool = False,
    ) -> list[ir.Value]:
        """The results of the nest's operations, accumulated over loops whose (begin, step) are `steps`.

        blocked: the innermost loop is that of a warp's threads, and a sum which may be long.
        """
        if not steps:
            return self._compute(indices([0 if loop is None else loop for loop in loops]), start)
        done = len(self.reduced) - len(steps)
        begin, step = steps[0]
        if blocked and len(steps) == 1:
            (total,) = start
            return self._blocks(loops, total, begin)
        loop = scf.ForOp(begin, *indices([self.sizes[self.reduced[done]]]), step, start)
        with ir.InsertionPoint(loop.body):
            inner = list(loops)
            inner[self.reduced[done]] = loop.induction_variable
            scf.YieldOp(self._reduce(inner, list(loop.inner_iter_args), steps[1:], blocked=blocked))
        return list(loop.results)

    def _blocks(self, loops: list[ir.Value | None], start: ir.Value | None, lane: ir.Value) -> list[ir.Value]:
        """A thread's sum along the innermost reduction, in blocks; what joining them loses is carried along."""
        size = indices([self.sizes[self.reduced[-1]]])[0]
        assert start is not None  # the sum is read
        kind = start.type
        blocks = scf.ForOp(number(0), size, number(WARP * TURNS), [start, _scalar(kind, 0.0)])
        with ir.InsertionPoint(blocks.body):
            first = blocks.induction_variable
            end = arith.minui(arith.addi(first, number(WARP * TURNS)), size)
            turns = scf.ForOp(arith.addi(first, lane), end, number(WARP), [_scalar(kind, 0.0)])
            with ir.InsertionPoint(turns.body):
                inner = list(loops)
                inner[self.reduced[-1]] = turns.induction_variable
                scf.YieldOp(self._reduce(inner, list(turns.inner_iter_args), []))
            scf.YieldOp(compensated(blocks.inner_iter_args, turns.results[0]))
        return [with_lost(blocks.results)]

    def _compute(self, loops: list[ir.Value], accumulated: Sequence[ir.Value | None]) -> list[ir.Value]:
        """Moves the nest's operations to the insertion point; gives their results."""
        arguments = list(self.block.arguments)
        for operand, argument in zip(self.inputs, arguments, strict=False):
            if next(iter(argument.uses), None) is not None or argument in list(self.result.operands):
                argument.replace_all_uses_with(memref.load(operand.value, operand.positions(loops)))
        for argument, value in zip(arguments[len(self.inputs) :], accumulated, strict=True):
            if value is not None:
                argument.replace_all_uses_with(value)
        anchor = number(0).owner
        for op in self.ops:
            op.operation.move_before(anchor)
            for index in [op.operation] if op.operation.name == "linalg.index" else found(op.operation, "linalg.index"):
                index.results[0].replace_all_uses_with(loops[ir.IntegerAttr(index.attributes["dim"]).value])
                index.erase()
        return list(self.result.operands)


def _scalar(kind: ir.Type, value: float) -> ir.Value:
    return arith.constant(kind, float(value) if str(kind).startswith(("f", "bf")) else int(value))
