# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `gpu-launches-to-loops`: kernels of GPUs as loops over blocks and threads, which any CPU runs.

So that kernels can be tested, and looked into, where there is no GPU: everything that comes before the code generator
is the same.
"""

from __future__ import annotations

from mlir.dialects import arith, memref, scf

from rlx_mlir import ir
from rlx_mlir.errors import CompileError
from rlx_mlir.lowering.gpu.build import (
    LAUNCH_SIZES,
    VIEWS,
    bodies,
    found,
    location_of,
    number,
)
from rlx_mlir.lowering.kernel_body import constant_value
from rlx_mlir.rewriting import compiler_pass, operations


@compiler_pass("gpu-launches-to-loops", dependent=("scf", "arith", "memref"))
def launches_to_loops(module: ir.Operation) -> None:
    """Turn launches of kernels into loops over blocks and threads, and erase the GPU module.

    The threads of a block run one after the other up to each shuffle of a warp: what they know there is kept for each
    them, conditions as i1: rlx-store-bools-as-bytes runs afterwards. Barriers and memory of blocks aren't supported.
    """
    kernels = {}
    for gpu_module in [op for op in module.regions[0].blocks[0].operations if op.operation.name == "gpu.module"]:
        for kernel in [op for op in gpu_module.regions[0].blocks[0].operations if op.operation.name == "gpu.func"]:
            kernels[str(kernel.operation.attributes["sym_name"].value)] = kernel
    for body in bodies(module):
        for launch in found(body.operation, "gpu.launch_func"):
            name = str(launch.attributes["kernel"]).rpartition("@")[2]
            if name not in kernels:
                raise CompileError(f"{location_of(launch)}: there is no kernel '{name}'")
            with launch.location:
                _Emulation(body, launch, kernels[name]).run()
            launch.erase()
    for gpu_module in [op for op in module.regions[0].blocks[0].operations if op.operation.name == "gpu.module"]:
        gpu_module.operation.erase()
    if "gpu.container_module" in module.attributes:
        del module.attributes["gpu.container_module"]


class _Emulation:
    """One launch: its kernel's operations, cut where threads exchange values."""

    def __init__(self, body: ir.AnyOp, launch: ir.AnyOp, kernel: ir.AnyOp) -> None:
        self._body, self._launch = body, launch
        self._kernel = kernel.operation.clone()
        self._threads = list(ir.DenseI32ArrayAttr(kernel.operation.attributes["known_block_size"]))
        if any(constant_value(v) != 1 for v in list(launch.operands)[1:3]):
            raise CompileError(f"{location_of(launch)}: grids of one dimension are supported")
        for op in operations(self._kernel.operation):
            if op.name.startswith("gpu.") and op.name not in (
                "gpu.block_id",
                "gpu.thread_id",
                "gpu.shuffle",
                "gpu.return",
            ):
                raise CompileError(f"{location_of(op)} isn't supported in loops over threads")

    def run(self) -> None:
        """Writes the loops before the launch."""
        block = self._kernel.operation.regions[0].blocks[0]
        for argument, value in zip(block.arguments, list(self._launch.operands)[LAUNCH_SIZES:], strict=True):
            argument.replace_all_uses_with(value)
        *ops, _ = [op.operation for op in block.operations]
        self._of_block: set[ir.Value] = set()
        with ir.InsertionPoint(self._launch):
            blocks = scf.ForOp(number(0), self._launch.operands[0], number(1))
            with ir.InsertionPoint(blocks.body):
                end = scf.YieldOp([]).operation
        common = [op for op in ops if self._is_common(op)]
        for op in common:
            op.move_before(end)
        for op in [*found(blocks.operation, "gpu.block_id"), *found(self._kernel.operation, "gpu.block_id")]:
            self._dimension(op, "x")
            op.results[0].replace_all_uses_with(blocks.induction_variable)
            op.erase()
        self._ids = {op.results[0]: self._dimension(op, "xy") for op in found(self._kernel.operation, "gpu.thread_id")}
        parts: list[list[ir.AnyOp]] = [[]]
        for op in [op for op in ops if op not in common and op.name != "gpu.thread_id"]:
            if op.name == "gpu.shuffle":
                parts += [[op], []]
            else:
                parts[-1].append(op)
        self._run_parts(parts, end)
        for op in found(blocks.operation, "gpu.shuffle"):  # whose results are read from memory now
            op.erase()
        self._kernel.operation.erase()

    @staticmethod
    def _dimension(op: ir.AnyOp, allowed: str) -> str:
        word = str(op.attributes["dimension"]).removeprefix("#gpu<dim ").removesuffix(">")
        if word not in allowed:
            raise CompileError(f"{location_of(op)}: dimension {word} isn't supported in loops over threads")
        return word

    def _is_common(self, op: ir.AnyOp) -> bool:
        """Whether the operation gives the same for all threads of a block, and touches no memory."""
        if op.name not in (*VIEWS, "gpu.block_id") and not (op.name.startswith("arith.") and not len(op.regions)):
            return False
        if any(self._is_of_thread(operand) for operand in op.operands):
            return False
        self._of_block.update(op.results)
        return True

    def _is_of_thread(self, value: ir.Value) -> bool:
        owner = value.owner
        return (
            not isinstance(owner, ir.Block) and owner.parent == self._kernel.operation and value not in self._of_block
        )

    def _run_parts(self, parts: list[list[ir.AnyOp]], end: ir.AnyOp) -> None:
        """Loops over threads, one for each part; values that several parts use are kept in memory."""
        where = {value: n for n, part in enumerate(parts) for op in part for value in op.results}
        kept: dict[ir.Value, ir.Value] = {}
        for n, part in enumerate(parts):
            for op in [inner for outer in part for inner in (outer, *operations(outer))]:
                kept |= dict.fromkeys(operand for operand in op.operands if where.get(operand, n) != n)
        entry = self._body.regions[0].blocks[0].operations[0]
        with ir.InsertionPoint(entry):
            for value in kept:
                if isinstance(value.type, ir.MemRefType):
                    raise CompileError(f"{location_of(value.owner)}: views aren't kept between parts of a kernel")
                kind = ir.MemRefType.get([self._threads[0] * self._threads[1]], value.type)
                kept[value] = memref.alloca(kind, [], [])
        for n, part in enumerate(parts):
            self._part(part, {value: memory for value, memory in kept.items() if where[value] != n}, kept, end)

    def _part(
        self, part: list[ir.AnyOp], before: dict[ir.Value, ir.Value], kept: dict[ir.Value, ir.Value], end: ir.AnyOp
    ) -> None:
        """One part for all threads of the block; `before` are the kept values of other parts."""
        with ir.InsertionPoint(end):
            rows = scf.ForOp(number(0), number(self._threads[1]), number(1))
            with ir.InsertionPoint(rows.body):
                columns = scf.ForOp(number(0), number(self._threads[0]), number(1))
                with ir.InsertionPoint(columns.body):
                    first = arith.muli(rows.induction_variable, number(self._threads[0]))
                    thread = arith.addi(first, columns.induction_variable)
                    last = scf.YieldOp([]).operation
                scf.YieldOp([])
        ids = {"x": columns.induction_variable, "y": rows.induction_variable}
        start = thread.owner
        loaded: dict[ir.Value, ir.Value] = {}
        for op in part:
            op.move_before(last)
        for op in [inner for outer in part for inner in (outer, *operations(outer))]:
            for place, operand in enumerate(op.operands):
                if operand in self._ids:
                    op.operands[place] = ids[self._ids[operand]]
                elif operand in before and op.name != "gpu.shuffle":
                    if operand not in loaded:
                        with ir.InsertionPoint.after(start):
                            loaded[operand] = memref.load(before[operand], [thread])
                    op.operands[place] = loaded[operand]
        for op in part:
            values = list(op.results)
            if op.name == "gpu.shuffle":
                values = [self._shuffled(op, before, thread)]
            for value, result in zip(values, op.results, strict=False):
                if result in kept:
                    with ir.InsertionPoint(last):
                        memref.store(value, kept[result], [thread])

    @staticmethod
    def _shuffled(op: ir.AnyOp, before: dict[ir.Value, ir.Value], thread: ir.Value) -> ir.Value:
        """The value of another thread, whose number differs in some bits."""
        if "xor" not in str(op.attributes["mode"]):
            raise CompileError(f"{location_of(op)}: shuffles by xor are supported")
        value = op.operands[0]
        if value not in before:  # the same for all threads
            return value
        with ir.InsertionPoint(op):
            distance = arith.index_cast(ir.IndexType.get(), op.operands[1])
            return memref.load(before[value], [arith.xori(thread, distance)])
