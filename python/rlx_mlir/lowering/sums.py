# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `cpu-order-sums`: sums of generic kernels get an order of their own, which is fast and loses few digits.

Until here, a sum's operations say that their order is free (`reassoc`, `contract`). Left to LLVM, the order is that of
its vectors, and another one in what is left over: results would depend on where kernels are cut into work units. Here
the order is chosen, and the words are dropped: every element has the same bits, whoever computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlir.dialects import arith, memref, scf

from rlx_mlir import ir
from rlx_mlir.lowering.kernel_body import constant_value
from rlx_mlir.lowering.split import is_generic
from rlx_mlir.rewriting import compiler_pass, operations

#: Partial sums side by side: as many as keep a processor's adders busy; fewer in rows that are shorter than two turns.
LANES, FEW_LANES = 32, 8
#: Terms of a partial sum of one block.
TURNS = 16
#: By the operation: what changes nothing.
NEUTRAL = {"arith.addf": 0.0, "arith.mulf": 1.0}


@compiler_pass("cpu-order-sums", dependent=("arith", "memref", "scf"))
def order_sums(module: ir.Operation) -> None:
    """Give sums along innermost loops several partial sums and blocks, and take away the freedom to reorder others.

    Element j of a block is added to partial sum j mod 32, which has 16 terms; partial sums are joined in pairs, and
    blocks one after the other, with what each addition loses carried along. So an error doesn't grow with the length:
    it is at most 24 roundings, relative to the sum of magnitudes. Products of all elements are taken in parts, too. Run
    on the loops of generic kernels, after kernel-plan-scratch.
    """
    for function in module.regions[0].blocks[0].operations:
        if function.operation.name != "func.func" or not is_generic(function.operation.attributes):
            continue
        for loop in [op for op in operations(function) if op.name == "scf.for"]:
            if (sum := _read(loop)) is not None:
                sum.rewrite(function)
        for op in operations(function):
            if "fastmath" in op.attributes:
                op.attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<none>")


def _read(loop: ir.AnyOp) -> _Sum | None:
    """The sum that a loop makes in memory; None where it does something else, or is short."""
    *ops, _ = operations(loop, nested=False)
    stores = [op for op in ops if op.name == "memref.store"]
    if len(stores) != 1 or len(loop.results) or any(len(op.regions) for op in ops):
        return None
    store = stores[0]
    chain = []
    value, memory, place = store.operands[0], store.operands[1], list(store.operands)[2:]
    inside = [loop.regions[0].blocks[0].arguments[0], *(result for op in ops for result in op.results)]
    if any(v in inside for v in place):
        return None
    loads = [op for op in ops if op.name == "memref.load" and op.operands[0] == memory]
    if len(loads) != 1 or list(loads[0].operands)[1:] != place:
        return None
    while value != loads[0].results[0]:
        op = value.owner
        if isinstance(op, ir.Block) or op.name not in NEUTRAL or not _is_free(op) or op not in ops:
            return None
        chain.append(op.name)
        # What is accumulated stands first where an operation adds to it, and second where it is added.
        value = next((v for v in op.operands if _leads_to(v, loads[0], ops)), None)
        if value is None:
            return None
    if len(set(chain)) != 1:
        return None
    low, high = (constant_value(loop.operands[i]) for i in (0, 1))
    length = None if low is None or high is None else high - low
    if constant_value(loop.operands[2]) != 1 or (length is not None and length < 2 * FEW_LANES):
        return None
    return _Sum(loop, loads[0], store, chain[0], length)


def _is_free(op: ir.AnyOp) -> bool:
    return "fastmath" in op.attributes and "reassoc" in str(op.attributes["fastmath"])


def _leads_to(value: ir.Value, load: ir.AnyOp, ops: Sequence[ir.AnyOp]) -> bool:
    """Whether what a load gives comes to a value by free operations alone."""
    if value == load.results[0]:
        return True
    op = value.owner
    if isinstance(op, ir.Block) or op.name not in NEUTRAL or not _is_free(op) or op not in ops:
        return False
    return any(_leads_to(v, load, ops) for v in op.operands)


def _index(value: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), value)


def compensated(carried: Sequence[ir.Value], own: ir.Value) -> list[ir.Value]:
    """A sum with one number more, and with what that addition loses added to what those before lost: `carried` both."""
    total, lost = carried
    after = arith.addf(total, own)
    moved = arith.subf(after, total)
    error = arith.addf(arith.subf(total, arith.subf(after, moved)), arith.subf(own, moved))
    return [after, arith.addf(lost, error)]


def with_lost(carried: Sequence[ir.Value]) -> ir.Value:
    """A sum with what its additions lost."""
    total, lost = carried
    # Differences of infinities are NaN: then the sum is what it is.
    known = arith.cmpf(arith.CmpFPredicate.ORD, lost, lost)
    return arith.select(known, arith.addf(total, lost), total)


@dataclass
class _Sum:
    """A loop that loads a number, joins it with others, and stores it again.

    Attributes:
        word: the operation that joins: arith.addf or arith.mulf.
        length: turns of the loop, None where dynamic.
    """

    loop: ir.AnyOp
    load: ir.AnyOp
    store: ir.AnyOp
    word: str
    length: int | None

    @property
    def _type(self) -> ir.Type:
        return self.load.results[0].type

    @property
    def _lanes(self) -> int:
        return LANES if self.length is None or self.length >= 2 * LANES else FEW_LANES

    def _join(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return (arith.addf if self.word == "arith.addf" else arith.mulf)(x, y)

    def rewrite(self, function: ir.AnyOp) -> None:
        """Replaces the loop; its partial sums are an array on the stack."""
        first = next(iter(operations(function, nested=False)))
        with ir.InsertionPoint(first), self.loop.location:
            parts = memref.alloca(ir.MemRefType.get([self._lanes], self._type), [], [])
        with ir.InsertionPoint(self.loop), self.loop.location:
            self._neutral = arith.constant(self._type, ir.FloatAttr.get(self._type, NEUTRAL[self.word]))
            low, high = list(self.loop.operands)[:2]
            block = self._lanes * TURNS
            if self.length is not None and self.length <= block:
                total = self._block(parts, low, high)
            else:
                total = self._blocks(parts, low, high, block)
            place = list(self.load.operands)[1:]
            before = memref.load(self.load.operands[0], place)
            memref.store(self._join(before, total), self.load.operands[0], place)
        self.loop.erase()

    def _blocks(self, parts: ir.Value, low: ir.Value, high: ir.Value, block: int) -> ir.Value:
        """All blocks, joined one after the other; of sums, what each addition loses is carried along and added last."""
        start = [self._neutral] if self.word == "arith.mulf" else [self._neutral, self._neutral]
        loop = scf.ForOp(low, high, _index(block), start)
        with ir.InsertionPoint(loop.body):
            end = arith.minsi(arith.addi(loop.induction_variable, _index(block)), high)
            own = self._block(parts, loop.induction_variable, end)
            if self.word == "arith.mulf":
                scf.YieldOp([arith.mulf(loop.inner_iter_args[0], own)])
            else:
                scf.YieldOp(compensated(loop.inner_iter_args, own))
        return loop.results[0] if self.word == "arith.mulf" else with_lost(loop.results)

    def _block(self, parts: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
        """One block: partial sums, then those joined in pairs."""
        lanes = self._lanes
        zero, one, width = _index(0), _index(1), _index(lanes)
        self._each(zero, width, lambda at: memref.store(self._neutral, parts, [at]))
        count = arith.subi(high, low)
        whole = arith.addi(low, arith.muli(arith.divui(count, width), width))
        turns = scf.ForOp(low, whole, width)
        with ir.InsertionPoint(turns.body):
            begin = turns.induction_variable
            self._each(zero, width, lambda at: self._add(parts, at, arith.addi(begin, at)))
            scf.YieldOp([])
        if self.length is None or self.length % lanes:
            self._each(whole, high, lambda at: self._add(parts, arith.subi(at, whole), at))
        values = [memref.load(parts, [one if at == 1 else _index(at)]) for at in range(lanes)]
        while len(values) > 1:
            half = len(values) // 2
            values = [self._join(x, y) for x, y in zip(values[:half], values[half:], strict=True)]
        return values[0]

    @staticmethod
    def _each(low: ir.Value, high: ir.Value, body: Callable[[ir.Value], object]) -> None:
        loop = scf.ForOp(low, high, _index(1))
        with ir.InsertionPoint(loop.body):
            body(loop.induction_variable)
            scf.YieldOp([])

    def _add(self, parts: ir.Value, lane: ir.Value, position: ir.Value) -> None:
        """The loop's body at a position, on a partial sum."""
        known = {self.loop.regions[0].blocks[0].arguments[0]: position}
        *ops, _ = operations(self.loop, nested=False)
        for op in ops:
            if op == self.load:
                known[op.results[0]] = memref.load(parts, [lane])
                continue
            if op == self.store:
                memref.store(known[op.operands[0]], parts, [lane])
                continue
            clone = op.clone()
            for number, operand in enumerate(op.operands):
                if operand in known:
                    clone.operation.operands[number] = known[operand]
            known.update(zip(op.results, clone.operation.results, strict=True))
