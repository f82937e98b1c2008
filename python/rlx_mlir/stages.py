# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a module is at each stage of its compilation, as tables: `rlx.inspect` and `rlx emit --inspect`.

| stage     | what is shown                                                                                   |
|-----------|-------------------------------------------------------------------------------------------------|
| `hir`, `mir` | operations with their blocks and lines; at `mir`, what lowering changed                      |
| `kernels` | kernels with their operations, what is prepared once, calls with the blocks that they come from |
| `lir`     | sizes, inputs, parameters and outputs, the arena, calls with their buffers                      |
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.checks import Option
from rlx_mlir.compiler import Compilation, CompileOptions
from rlx_mlir.errors import InputError, StageError
from rlx_mlir.hir.module import GraphModule
from rlx_mlir.locations import block_name, source_line
from rlx_mlir.lowering.donation import TIED
from rlx_mlir.lowering.functions import CLASS, KERNEL, entry_function, functions
from rlx_mlir.lowering.lir import ALIGNMENT
from rlx_mlir.lowering.plan import PlanReader
from rlx_mlir.lowering.plan_regions import lifetimes
from rlx_mlir.place import located
from rlx_mlir.reports.drawing import Drawing
from rlx_mlir.reports.fusion import count_operations, format_changes
from rlx_mlir.reports.graph import STAGES as GRAPHS
from rlx_mlir.rewriting import operations
from rlx_mlir.runtime.artifact import BufferSpec, Preparation
from rlx_mlir.runtime.shown import size_text
from rlx_mlir.runtime.sizes import text_of

#: Stages that can be shown, in order.
STAGES = ("hir", "mir", "kernels", "lir")


@located
def inspect(module: object, stage: str | None = None, **options: Option) -> str:
    """What a module is at a stage, as text.

    Args:
        module: a `GraphModule` at stage hir or mir; it is not changed.
        stage: one of `STAGES`, not before the module's own, which is the default.
        options: of `compile`.

    Raises InputError where the stage can't be shown, StageError where the module is past it.
    """
    chosen = CompileOptions(**options)
    module, wanted = _checked(module, stage, STAGES)
    if wanted == module.stage:
        return module.inspect()
    compilation = Compilation(module, chosen)
    if wanted == "mir":
        compilation.run(until="mir")
        lowered = GraphModule.from_ir(compilation.module, stage="mir")
        return f"{lowered.inspect()}\n{_diff(module.ir_module, 'hir', lowered.ir_module, 'mir')}\n"
    before, name = (module, module.stage) if module.stage == "mir" else (module.lower(), "mir")
    compilation.run(until="kernels")
    with compilation.module.context:
        difference = _diff(before.ir_module, name, compilation.module, "kernels")
        if wanted == "kernels":
            return "\n".join([*_kernels(compilation), "", difference]) + "\n"
    compilation.run(until="lir")
    with compilation.module.context:
        return "\n".join(_lir(compilation)) + "\n"


@located
def draw(module: object, stage: str | None = None, *, depth: int | None = None, **options: Option) -> Drawing:
    """A picture of a module at a stage; see `GraphModule.draw`.

    Args:
        module: a `GraphModule` at stage hir, mir or kernels; it is not changed.
        stage: one of these, not before the module's own, which is the default.
        depth: how many blocks are drawn around each other at most.
        options: of `compile`.

    Raises InputError where the stage can't be shown, StageError where the module is past it.
    """
    return at_stage(module, stage, **options).draw(depth=depth)


def at_stage(module: object, stage: str | None = None, **options: Option) -> GraphModule:
    """A module at a later stage, hir, mir or kernels, as compiling has it there; raises as `draw`."""
    chosen = CompileOptions(**options)
    module, wanted = _checked(module, stage, GRAPHS)
    if wanted == module.stage:
        return module
    compilation = Compilation(module, chosen)
    compilation.run(until=wanted)
    return GraphModule.from_ir(compilation.module, stage=wanted)


def _checked(module: object, stage: str | None, known: Sequence[str]) -> tuple[GraphModule, str]:
    """A module, and the stage that it is wanted at, one of those that are known."""
    if not isinstance(module, GraphModule):
        raise InputError(f"'module' expects a GraphModule, but got {type(module).__name__}")
    wanted = module.stage if stage is None else stage
    if not isinstance(wanted, str) or wanted not in known:
        raise InputError(f"'stage' expects one of {', '.join(known)}, but got {wanted!r}"[:400])
    if module.stage in STAGES and STAGES.index(wanted) < STAGES.index(module.stage):
        raise StageError(f"'{module.name}' is past stage {wanted}: it is at {module.stage}")
    return module, wanted


def _diff(before: ir.AnyModule, first: str, after: ir.AnyModule, second: str) -> str:
    """How the numbers of operations differ between two stages."""
    a, b = count_operations(before), count_operations(after)
    return f"{first} -> {second}: {a.total()} -> {b.total()} operations\n  {format_changes(a, b) or 'no difference'}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, right: str = "") -> list[str]:
    """Lines of a table with aligned columns; those named in `right` are aligned to the right."""
    texts = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(head))]
    words = right.split()
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if name in words else cell.ljust(width)
            for cell, width, name in zip(row, widths, head, strict=True)
        ).rstrip()
        for row in texts
    ]


def _source(op: ir.Operation) -> str:
    """Block and line of an operation."""
    name, line = block_name(op.location), source_line(op.location)
    where = f"{os.path.basename(line.file)}:{line.line}" if line is not None else ""
    return f'"{name}" {where}'.strip() if name else where


# Kernels ------------------------------------------------------------------------------------------


def _kernels(compilation: Compilation) -> list[str]:
    module = compilation.module
    entry = entry_function(module)
    kernels = {str(k.name.value): k for k in functions(module, KERNEL)}
    called = [op for op in operations(entry) if op.name == "func.call"]
    calls = Counter(python_value(op.attributes["callee"]) for op in called)
    prepared = compilation.preparation
    lines = [
        f"kernels module @{compilation.name}: {len(kernels)} kernels, {len(called)} calls, "
        f"{len(prepared.results)} prepared parameters",
        "",
    ]
    rows = []
    for name, kernel in sorted(kernels.items(), key=lambda item: -calls[item[0]]):
        *ops, _ = operations(kernel, nested=False)
        words = ", ".join(op.name.removeprefix("mir.") for op in ops)
        tied = " (in place)" if TIED in kernel.operation.attributes else ""
        rows.append((name, python_value(kernel.operation.attributes[CLASS]), calls[name], words + tied))
    lines += table(("kernel", "class", "calls", "operations"), rows, right="calls")
    if prepared.results:
        lines += ["", "  prepared once", *(f"    {name} = {_formula(prepared, i)}" for name, i in prepared.results)]
    lines += ["", *_calls_of(entry)]
    return lines


def _formula(preparation: Preparation, index: int) -> str:
    if index < len(preparation.sources):
        return preparation.sources[index]
    step = preparation.steps[index - len(preparation.sources)]
    return f"{step.op}({', '.join(_formula(preparation, operand) for operand in step.operands)})"


def _calls_of(entry: ir.AnyOp) -> list[str]:
    """The calls of an entry function on tensors, with what they read and give."""
    names: dict[ir.Value, str] = {}
    for argument, own in zip(entry.arguments, entry.operation.attributes["arg_attrs"], strict=True):
        names[argument] = f"%{own['mir.name'].value}" if "mir.name" in own else f"%arg{argument.arg_number}"
    return table(("value", "call", "from"), _rows(entry.operation.regions[0].blocks[0], names, itertools.count()))


def _rows(
    block: ir.Block, names: dict[ir.Value, str], numbers: Iterator[int], indent: str = ""
) -> list[tuple[str, str, str]]:
    """A row for each operation of a block, those in regions below theirs; names the values."""
    rows = []
    for op in (op.operation for op in block.operations):
        names.update((result, f"%{next(numbers)}") for result in op.results)
        read = ", ".join(names[operand] for operand in op.operands)
        given = ", ".join(names[result] for result in op.results)
        what = op.name.removeprefix("func.").removeprefix("mir.")
        what = python_value(op.attributes["callee"]) if op.name == "func.call" else what
        rows.append((f"{indent}{given}", f"{indent}{what}({read})", _source(op) if given else ""))
        for region in op.regions:
            names.update((own, f"%{next(numbers)}") for own in region.blocks[0].arguments)
            rows += _rows(region.blocks[0], names, numbers, indent + "  ")
    return rows


# LIR ----------------------------------------------------------------------------------------------


def _lir(compilation: Compilation) -> list[str]:
    plan = compilation.plan
    entry = entry_function(compilation.module)
    naive = int(entry.operation.attributes["mir.arena_without_reuse"].value)
    symbols = ", ".join(f"{name} <= {size}" for name, size in plan.symbols)
    lines = [
        f"lir module @{compilation.name}: {len(plan.kernels)} kernels, {len(plan.calls)} calls, "
        f"{len(plan.slots)} buffers",
        f"  arena: {size_text(plan.arena_bytes)}, {size_text(naive - plan.arena_bytes)} less than without reuse "
        f"({size_text(naive)}), aligned to {ALIGNMENT} bytes",
        f"  sizes: {symbols or 'all static'}",
    ]
    lines += [
        f"  condition: {c.left[0]} {'>=' if c.at_least else '='} {c.right[0]} ({c.where})" for c in plan.conditions
    ]
    lines += [
        f"  condition: 0 <= {p.name} and {p.name} + {p.rows[0]} <= {p.limit[0]} ({p.where})" for p in plan.positions
    ]
    lines.append("")
    for kind, specs in (("input", plan.inputs), ("param", plan.parameters), ("output", plan.outputs)):
        lines += [f"  {kind:<6} {_buffer(spec)}" for spec in specs]
    sources = [_source(op) for op in operations(entry) if op.name == "func.call"]
    maker: dict[int, int] = {}
    for number, (_, buffers, _, _) in enumerate(plan.calls):
        for kind, index, *_ in buffers:
            if kind == "arena":
                maker.setdefault(index, number)
    if plan.slots:
        rows = []
        alive = lifetimes(plan)
        for number, (offset, size) in sorted(enumerate(plan.slots), key=lambda item: item[1]):
            own = maker[number]
            made = f"{plan.kernels[plan.calls[own][0]]} {sources[own]}".strip()
            rows.append((offset, size, f"b{number}", *alive[number], made))
        head = ("offset", "bytes", "buffer", "first", "last", "made by")
        lines += ["", *table(head, rows, right="offset bytes first last")]
    lines += _blocks(plan)
    lines.append("")
    texts = []
    for number, (kernel, buffers, _, _) in enumerate(plan.calls):
        names = ", ".join(_named(plan, kind, index) for kind, index, *_ in buffers)
        texts.append((number, f"{plan.kernels[kernel]}({names})", sources[number]))
    return [*lines, *table(("call", "kernel and buffers", "from"), texts, right="call")]


def _blocks(plan: PlanReader) -> list[str]:
    """Which calls are in loops and branches, those in others below these."""
    names = [name for name, _ in plan.symbols]
    rows: list[str] = []
    depths: list[int] = []
    for block in plan.blocks:
        depths.append(depths[block.parent] + 1 if block.parent >= 0 else 0)
        first, second = (_calls(*own) for own in ((block.begin, block.middle), (block.middle, block.end)))
        flag = "" if block.flag is None else _named(plan, *block.flag[:2])
        steps = "" if block.steps is None else text_of(block.steps, names)
        if block.kind == "if":
            what = f"if {flag}: {first}; else: {second}"
        elif block.kind == "while":
            what = f"while {flag}, after {first}: {second}" + (f"; at most {steps} times" if steps else "")
        else:
            what = f"{steps} times: {second}"
        turns = ", ".join(f"{_named(plan, *a[:2])} and {_named(plan, *b[:2])}" for a, b, _ in block.swaps)
        rows.append("  " * (depths[-1] + 1) + what + (f"; {turns} take turns" if turns else ""))
    return ["", *rows] if rows else []


def _calls(begin: int, end: int) -> str:
    return "nothing" if begin == end else f"call {begin}" if end == begin + 1 else f"calls {begin} to {end - 1}"


def _buffer(spec: BufferSpec) -> str:
    shape = ", ".join(map(str, spec.shape))
    tied = f" (takes the memory of {spec.tied})" if spec.tied else ""
    return f"{spec.name}: [{shape}] {spec.packed or spec.dtype}{tied}"


def _named(plan: PlanReader, kind: str, index: int) -> str:
    if kind == "arena":
        return f"b{index}"
    return str({"input": plan.inputs, "param": plan.parameters, "output": plan.outputs}[kind][index].name)
