# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `cpu-split-kernels`: kernels of loops get work units, and temporaries no larger than a few of them.

A kernel without a template is a sequence of loop nests on buffers. Along a dimension of its results, each nest may have
a loop whose variable is the index of every access to what the nest writes; then its iterations need one another's
results only at the same position, in this nest and in those before it. Such loops can be cut anywhere, into units of
several threads and into blocks in turn; every element is computed by the same operations as before.

Where results lie along is followed from reader to writer: a weight that a nest decodes for another is decoded for the
positions of the present block alone. What is read at other positions has to be complete, and is computed by each call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mlir.dialects import arith, memref, scf

from rlx_mlir import ir
from rlx_mlir.lowering.donation import TIED
from rlx_mlir.lowering.kernel_body import constant_value
from rlx_mlir.lowering.kernels import EXTRA_ARGUMENTS, TEMPLATE
from rlx_mlir.mir.cost import type_bytes
from rlx_mlir.rewriting import compiler_pass, operations

#: Positions of a unit along a static dimension: a cache line of f32.
POSITIONS = 16
#: Static dimensions of at least so many positions are cut rather than dynamic ones, which may be 1.
MANY = 8 * POSITIONS
#: Positions that temporaries hold at a time.
BLOCK = 16
#: Temporaries of at most so many bytes keep their size.
SMALL_BYTES = 16 * 1024

#: Operations without effects on memory, by the beginnings of their names.
PURE = ("arith.", "math.", "index.", "affine.apply", "memref.dim", "ub.")
#: Operations with regions; those that give values aren't looked through, but choices of numbers.
CONTROL = ("scf.for", "scf.if", "scf.yield")
#: Operations that give another view of a buffer.
VIEWS = ("memref.collapse_shape", "memref.expand_shape", "memref.cast", "memref.subview", "memref.reinterpret_cast")

#: What may stand between loops that are looked through, such as what indices that are read say.
BETWEEN = ("memref.load", "scf.yield", *VIEWS)


@compiler_pass("cpu-split-kernels", dependent=("arith", "memref", "scf"))
def split_kernels(module: ir.Operation) -> None:
    """Cut kernels of loops into work units along a dimension of their results; bits stay.

    Temporaries of many positions along it shrink to a block of them. A kernel whose loops depend on one another in
    another way, and one that changes an operand in place, keeps its one unit. Run on loops, before kernel-plan-scratch.
    """
    found = {str(f.name.value): f for f in module.regions[0].blocks[0].operations if f.operation.name == "func.func"}
    for name, body in found.items():
        attributes = body.operation.attributes
        if not name.endswith(".body") or TIED in attributes or not is_generic(attributes):
            continue
        plans = _plans(body, found[name.removesuffix("body") + "units"])
        if plans:
            min(plans, key=lambda plan: plan.cost).apply()


def is_generic(attributes: Mapping[str, ir.Attribute]) -> bool:
    """Whether a function belongs to a kernel without a template."""
    return TEMPLATE in attributes and str(attributes[TEMPLATE].value).startswith("generic")


@dataclass
class _Access:
    """A load or store: the buffer's own memory, and the index along each of its dimensions, where one value says it."""

    op: ir.AnyOp
    root: ir.Value
    places: dict[int, int]
    """Dimension of the memory -> number of the operand of `op` that is the index along it."""
    is_store: bool

    def index(self, dim: int) -> ir.Value | None:
        return self.op.operands[self.places[dim]] if dim in self.places else None


@dataclass
class _Nest:
    """A loop at the top of the body with what is in it, or a load or store outside of loops."""

    op: ir.AnyOp
    accesses: list[_Access]
    loops: list[ir.AnyOp] = field(default_factory=list)
    """The loops that stand in one another, nothing but loads and index arithmetic between them."""

    def roots(self, *, written: bool) -> list[ir.Value]:
        return list(dict.fromkeys(a.root for a in self.accesses if a.is_store == written))

    def dims_along(self, loop: ir.AnyOp, root: ir.Value) -> list[int]:
        """The dimensions along which all accesses of the nest to some memory have the loop's variable as index."""
        own = [a for a in self.accesses if a.root == root]
        variable = loop.regions[0].blocks[0].arguments[0]
        # Bindings compare a value with nothing but values: where a view has no such dimension, there is none.
        return [dim for dim in own[0].places if all(dim in a.places and a.index(dim) == variable for a in own)]


def _trace(value: ir.Value) -> tuple[ir.Value, dict[int, int]] | None:
    """The memory that a buffer is a view of, and for dimensions of the view which dimension of the memory they are."""
    owner = value.owner
    rank = ir.MemRefType(value.type).rank
    if isinstance(owner, ir.Block):
        return (value, {dim: dim for dim in range(rank)}) if _is_function(owner.owner) else None
    owner = owner.operation  # A view of an operation may have a name of its own: get_global's is the global's.
    if owner.name in ("memref.alloc", "memref.get_global"):
        return value, {dim: dim for dim in range(rank)}
    if owner.name not in VIEWS or (source := _trace(owner.operands[0])) is None:
        return None
    root, dims = source
    kept = {dim: dims[below] for dim, below in _view_dims(owner).items() if below in dims}
    return root, kept


def _is_function(op: ir.AnyOp) -> bool:
    return bool(op.operation.name == "func.func")


def _view_dims(view: ir.AnyOp) -> dict[int, int]:
    """The dimensions of a view that are dimensions of its source, from their first element on."""
    rank = ir.MemRefType(view.results[0].type).rank
    if view.name == "memref.cast":
        return {dim: dim for dim in range(rank)}
    if view.name in ("memref.collapse_shape", "memref.expand_shape"):
        groups = [[attribute.value for attribute in group] for group in view.attributes["reassociation"]]
        single = {i: group[0] for i, group in enumerate(groups) if len(group) == 1}
        return single if view.name == "memref.collapse_shape" else {dim: i for i, dim in single.items()}
    if view.name == "memref.subview":
        offsets, sizes, strides = (list(view.attributes[f"static_{part}"]) for part in ("offsets", "sizes", "strides"))
        dropped = len(sizes) - rank
        if dropped and sizes.count(1) != dropped:
            return {}
        kept = [dim for dim, size in enumerate(sizes) if not dropped or size != 1]
        return {above: dim for above, dim in enumerate(kept) if offsets[dim] == 0 and strides[dim] == 1}
    return {}


def _collect(body: ir.AnyOp) -> list[_Nest] | None:
    """The nests of a body in order; None where there is something else than loops, loads, stores and arithmetic."""
    nests = []
    for op in operations(body, nested=False):
        if op.name == "func.return" or op.name in ("memref.alloc", "memref.get_global", *VIEWS) or _is_pure(op):
            continue
        accesses = _accesses(op)
        if accesses is None:
            return None
        nests.append(_Nest(op, accesses, _chain(op)))
    return nests


def _is_pure(op: ir.AnyOp) -> bool:
    return bool(op.name.startswith(PURE))


def _accesses(top: ir.AnyOp) -> list[_Access] | None:
    accesses = []
    for op in [top, *operations(top)]:
        if op.name in ("memref.load", "memref.store"):
            first = 1 if op.name == "memref.store" else 0
            traced = _trace(op.operands[first])
            if traced is None:
                return None
            root, dims = traced
            places = {below: first + 1 + dim for dim, below in dims.items()}
            accesses.append(_Access(op, root, places, first == 1))
        elif not (op.name in CONTROL or op.name in VIEWS or _is_pure(op)) or not _is_followed(op):
            return None
    return accesses


def _is_followed(op: ir.AnyOp) -> bool:
    """Whether what is in an operation's regions is all that is to know of it: no buffer comes out of them."""
    if op.name == "scf.if":
        return not any(isinstance(result.type, ir.MemRefType) for result in op.results)
    return op.name not in CONTROL or not len(op.results)


def _chain(op: ir.AnyOp | None) -> list[ir.AnyOp]:
    """The loop, and those that stand in it and in one another."""
    loops: list[ir.AnyOp] = []
    while op is not None and op.name == "scf.for" and constant_value(op.operands[2]) == 1:
        loops.append(op)
        inner = [o for o in operations(op, nested=False) if not (_is_pure(o) or o.name in BETWEEN)]
        op = inner[0] if len(inner) == 1 else None
    return loops


# -- which loops are cut ----------------------------------------------------------------------------------------------


class _ConflictError(Exception):
    """Something has to be complete that isn't: `root`, which no result may be."""

    def __init__(self, root: ir.Value) -> None:
        self.root = root


def _plans(body: ir.AnyOp, units: ir.AnyOp) -> list[_Plan]:
    """The ways to cut a kernel, one for each suitable dimension of its results."""
    nests = _collect(body)
    if not nests:
        return []
    written = {root for nest in nests for root in nest.roots(written=True)}
    arguments = list(body.arguments)[:-EXTRA_ARGUMENTS]
    results = [argument for argument in arguments if argument in written]
    if not results:
        return []
    plans = []
    for dim in range(min(ir.MemRefType(result.type).rank for result in results)):
        whole: set[ir.Value] = set()
        while (plan := _attempt(body, units, nests, results, dim, written, whole)) is not None:
            if isinstance(plan, _Plan):
                plans += [plan] if plan.extent != 1 else []
                break
            whole.add(plan)
    return plans


def _attempt(
    body: ir.AnyOp,
    units: ir.AnyOp,
    nests: list[_Nest],
    results: list[ir.Value],
    dim: int,
    written: set[ir.Value],
    whole: set[ir.Value],
) -> _Plan | ir.Value | None:
    """A plan; the memory that has to be complete for another attempt; or None where there is no way.

    Args:
        dim: the dimension of the results to cut along.
        written: memory that the kernel writes.
        whole: memory that each call computes completely.
    """
    sizes = {ir.MemRefType(result.type).shape[dim] for result in results}
    if len(sizes) > 1:
        return None
    where = dict.fromkeys(results, dim)
    cut: dict[int, ir.AnyOp] = {}
    try:
        changed = True
        while changed:
            before = (len(where), len(cut))
            for number, nest in enumerate(nests):
                _follow(number, nest, where, cut, written, whole)
            changed = before != (len(where), len(cut))
        _check_whole(nests, where, cut, written)
    except _ConflictError as conflict:
        root = conflict.root
        return None if root in results or root in whole else root
    return _Plan(body, units, nests, results, dim, where, dict(sorted(cut.items())))


def _follow(
    number: int,
    nest: _Nest,
    where: dict[ir.Value, int],
    cut: dict[int, ir.AnyOp],
    written: set[ir.Value],
    whole: set[ir.Value],
) -> None:
    """Finds the nest's loop to cut from what it writes, and where the memory that it uses lies along that loop."""
    if number not in cut:
        for root in nest.roots(written=True):
            if root in where:
                loops = [loop for loop in nest.loops if where[root] in nest.dims_along(loop, root)]
                if not loops:
                    raise _ConflictError(root)
                cut[number] = loops[0]
                break
        else:
            return
    for root in dict.fromkeys(access.root for access in nest.accesses):
        if root not in written or root in whole:
            continue
        dims = nest.dims_along(cut[number], root)
        if root in where:
            if where[root] not in dims:
                raise _ConflictError(root)
        elif dims:
            where[root] = dims[0]
        else:
            raise _ConflictError(root)


def _check_whole(
    nests: list[_Nest], where: dict[ir.Value, int], cut: dict[int, ir.AnyOp], written: set[ir.Value]
) -> None:
    """Complete memory is computed by nests that aren't cut, from complete memory."""
    for number, nest in enumerate(nests):
        for root in nest.roots(written=True):
            if (root in where) != (number in cut):
                raise _ConflictError(next((r for r in nest.roots(written=True) if r in where), root))
        if number not in cut:
            for root in nest.roots(written=False):
                if root in where and root in written:
                    raise _ConflictError(root)


# -- cutting them -----------------------------------------------------------------------------------------------------


@dataclass
class _Plan:
    """One way to cut a kernel: the dimension of its results, where its memory lies, and the loop of each nest."""

    body: ir.AnyOp
    units: ir.AnyOp
    nests: list[_Nest]
    results: list[ir.Value]
    dim: int
    where: dict[ir.Value, int]
    cut: dict[int, ir.AnyOp]

    @property
    def extent(self) -> int | None:
        """Size of the results along the dimension; None where dynamic."""
        size = ir.MemRefType(self.results[0].type).shape[self.dim]
        return None if size < 0 else size

    @property
    def cost(self) -> tuple[int, int, int]:
        """What is computed several times counts first; then sizes that are known to be large, the last ones first."""
        extent = self.extent
        kind = 1 if extent is None else 0 if extent >= MANY else 2
        return len(self.nests) - len(self.cut), kind, -(extent or self.dim)

    @property
    def positions(self) -> int:
        """Positions of a unit."""
        return POSITIONS if self.extent is not None and self.extent >= MANY else 1

    def apply(self) -> None:
        """Changes the body and the function that counts units."""
        *_, last = operations(self.units, nested=False)
        numbers = [ir.BlockArgument(result).arg_number for result in self.results]
        with ir.InsertionPoint(last), last.location:
            length = self._length([self.units.arguments[number] for number in numbers])
            positions = _index(self.positions)
            last.operands[0] = arith.divui(arith.addi(length, _index(self.positions - 1)), positions)
        shrinking = self._shrinking()
        first = next(iter(operations(self.body, nested=False)))
        with ir.InsertionPoint(first), first.location:
            begin, end = list(self.body.arguments)[-EXTRA_ARGUMENTS:][:2]
            positions = _index(self.positions)
            start = arith.muli(begin, positions)
            stop = arith.minsi(arith.muli(end, positions), self._length(self.results))
        base = None
        if shrinking:
            base, stop = self._block_loop(start, stop)
            start = base
        for number, loop in self.cut.items():
            with ir.InsertionPoint(loop), loop.location:
                lower = loop.operands[0]
                loop.operands[0] = start if constant_value(lower) == 0 else arith.maxsi(lower, start)
                loop.operands[1] = arith.minsi(loop.operands[1], stop)
            if base is not None and shrinking[number]:
                _count_from(base, loop, shrinking[number])

    def _length(self, results: Sequence[ir.Value]) -> ir.Value:
        """The results' size along the dimension, at the insertion point."""
        if self.extent is not None:
            return _index(self.extent)
        lengths = [memref.dim(result, _index(self.dim)) for result in results]
        total = lengths[0]
        for length in lengths[1:]:
            total = arith.maxsi(total, length)
        return total

    def _block_loop(self, start: ir.Value, stop: ir.Value) -> tuple[ir.Value, ir.Value]:
        """A loop over blocks at the end of the body, with the nests that are cut in it: its bounds of a block."""
        *_, last = operations(self.body, nested=False)
        with ir.InsertionPoint(last), last.location:
            loop = scf.ForOp(start, stop, _index(BLOCK))
            with ir.InsertionPoint(loop.body):
                end = arith.minsi(arith.addi(loop.induction_variable, _index(BLOCK)), stop)
                terminator = scf.YieldOp([])
        for number in self.cut:
            self.nests[number].op.move_before(terminator.operation)
        return loop.induction_variable, end

    # -- temporaries --------------------------------------------------------------------------------------------------

    def _shrinking(self) -> dict[int, list[tuple[_Access, int]]]:
        """Makes large temporaries as large as a block; gives, by nest, the accesses to them and the dimension."""
        if (self.extent is not None and self.extent <= BLOCK) or not self._in_order():
            return {}
        chosen: dict[ir.Value, int] = {}
        views: list[tuple[ir.Value, int]] = []
        for root, dim in self.where.items():
            if (
                root in self.results
                or root.owner.operation.name != "memref.alloc"
                or not _is_large(ir.MemRefType(root.type))
            ):
                continue
            found = _views(root, dim)
            if found is not None:
                chosen[root] = dim
                views += found
        moved = {
            number: [(access, chosen[access.root]) for access in self.nests[number].accesses if access.root in chosen]
            for number in self.cut
        }
        for root, dim in chosen.items():
            _shrink_memory(root.owner, dim)
        for view, dim in views:
            _shrink_view(view, dim)
        return moved if chosen else {}

    def _in_order(self) -> bool:
        """Whether all nests that aren't cut may run before those that are."""
        return not any(
            number < late and set(nest.roots(written=True)) & set(self.nests[number].roots(written=False))
            for late, nest in enumerate(self.nests)
            if late not in self.cut
            for number in self.cut
        )


def _count_from(base: ir.Value, loop: ir.AnyOp, accesses: Sequence[tuple[_Access, int]]) -> None:
    """Makes accesses in a loop to memory of one block count from the block's first position."""
    block = loop.regions[0].blocks[0]
    with ir.InsertionPoint.at_block_begin(block), loop.location:
        local = arith.subi(block.arguments[0], base)
    for access, dim in accesses:
        access.op.operands[access.places[dim]] = local


def _is_large(kind: ir.MemRefType) -> bool:
    bytes_ = type_bytes(kind.element_type) * math.prod(max(size, 1) for size in kind.shape)
    return not kind.has_static_shape or bytes_ > SMALL_BYTES


def _views(root: ir.Value, dim: int) -> list[tuple[ir.Value, int]] | None:
    """The views of memory with the dimension in them that is `dim`; None where one of them can't shrink with it."""
    dynamic = ir.MemRefType(root.type).shape[dim] < 0
    views: list[tuple[ir.Value, int]] = []
    todo = [(root, dim)]
    while todo:
        value, own = todo.pop()
        for use in value.uses:
            user = use.owner.operation
            if user.name in ("memref.load", "memref.store"):
                continue
            if user.name == "memref.dim" and constant_value(user.operands[1]) not in (None, own):
                continue
            if dynamic or user.name not in ("memref.collapse_shape", "memref.expand_shape"):
                return None
            below = [above for above, source in _view_dims(user).items() if source == own]
            if not below or ir.MemRefType(user.results[0].type).shape[below[0]] < 0:
                return None
            views.append((user, below[0]))
            todo.append((user.results[0], below[0]))
    return views


def _shrink_memory(alloc: ir.AnyOp, dim: int) -> None:
    """Gives memory the size of a block along a dimension."""
    kind = ir.MemRefType(alloc.results[0].type)
    shape, sizes = list(kind.shape), list(alloc.operands)
    if shape[dim] < 0:
        del sizes[sum(size < 0 for size in shape[:dim])]
    shape[dim] = BLOCK
    with ir.InsertionPoint(alloc), alloc.location:
        smaller = memref.alloc(ir.MemRefType.get(shape, kind.element_type), sizes, [])
    alloc.results[0].replace_all_uses_with(smaller)
    alloc.erase()


def _shrink_view(view: ir.AnyOp, dim: int) -> None:
    """Gives a view of smaller memory its size along a static dimension."""
    kind = ir.MemRefType(view.results[0].type)
    shape = list(kind.shape)
    shape[dim] = BLOCK
    view.results[0].set_type(ir.MemRefType.get(shape, kind.element_type))
    if view.name == "memref.expand_shape":
        static = list(ir.DenseI64ArrayAttr(view.attributes["static_output_shape"]))
        static[dim] = BLOCK
        view.attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(static)


def _index(value: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), value)
