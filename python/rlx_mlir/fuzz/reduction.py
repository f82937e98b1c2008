# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Smaller cases of the graph fuzzer: each operation by itself, and modules with parts cut away.

Where a value is cut, a new input with what the interpreter computed takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from rlx_mlir import ir
from rlx_mlir.errors import RlxError
from rlx_mlir.fuzz.cases import Case
from rlx_mlir.fuzz.pool import Task
from rlx_mlir.fuzz.sensitivity import run_function
from rlx_mlir.hir import GraphModule
from rlx_mlir.interpreter import bind_inputs
from rlx_mlir.mir import PackedWeight
from rlx_mlir.mir.packed import packing
from rlx_mlir.mir.registry import evaluate
from rlx_mlir.semantics.function import (
    INPUT,
    Signature,
    argument_attributes,
    arguments,
    body,
    entry_function,
    function_name,
    functions,
    set_signature,
    set_ties,
    terminator,
)


def write_candidates(path: Path, folder: Path, task: Task) -> list[str]:
    """Writes smaller cases than the one in `path` to a folder, the smallest first; returns their files."""
    case = Case.load(path)
    files = []
    for number, candidate in enumerate(candidates(case, task.get("output"), task.get("run"))):
        target = folder / f"{task.get('prefix', 'candidate')}-{number}.mlir"
        candidate.save(target)
        files.append(str(target))
        if len(files) >= task.get("limit", 60):
            break
    return files


def candidates(case: Case, output: str | None, run: int | None) -> Iterator[Case]:
    """Smaller cases: one run, single operations, one output, then prefixes and operations cut away."""
    if run is not None and len(case.runs) > 1:
        yield Case(case.module.clone(), [case.runs[run]], case.options)
    values = _values(case)
    count = len(case.module)
    if count > 1:
        for index in range(count):
            yield from _made(case, values, lambda m, i=index: _isolate(m, i))  # type: ignore[misc]
    names = list(case.module.outputs)
    if len(names) > 1:
        chosen = [output] if output in names else names
        for name in chosen:
            yield from _made(case, values, lambda m, n=name: _keep_outputs(m, [n]))  # type: ignore[misc]
        for name in names:
            yield from _made(case, values, lambda m, n=name: _keep_outputs(m, [k for k in names if k != n]))  # type: ignore[misc]
    for size in (count // 2, count // 4, 1):
        for start in range(0, count, max(size, 1)):
            if 0 < size < count:
                yield from _made(case, values, lambda m, s=start, e=start + size: _cut(m, range(s, min(e, count))))  # type: ignore[misc]


Values = list[dict[tuple[int, int], np.ndarray]]


def _values(case: Case) -> Values:
    """For each run the results of each operation, by (operation, result)."""
    module = case.module.ir_module
    listed = {function_name(f): f for f in functions(module)}
    entry = entry_function(module)
    found: Values = []
    for run in case.runs:
        record: dict[ir.Value, np.ndarray] = {}
        run_function(listed, entry, bind_inputs(entry, run), evaluate, record)
        found.append(
            {
                (i, r): record[result]
                for i, op in enumerate(body(entry).operations)
                for r, result in enumerate(op.operation.results)
            }
        )
    return found


Cut = list[tuple[ir.Value, tuple[int, int]]]


def _made(case: Case, values: Values, change: Callable[[GraphModule], Cut | None]) -> Iterator[Case]:
    """The case after a change, which says which values become inputs; nothing where it can't be made."""
    module = case.module.clone()
    try:
        cut = change(module)
        if cut is None:
            return
        runs = [dict(run) for run in case.runs]
        for number, (value, key) in enumerate(cut):
            if any(isinstance(each[key], PackedWeight) for each in values):
                return
            name = f"cut{key[0]}_{key[1]}" if number < 1000 else f"cut{number}"
            if not _replace_by_input(module, value, name, [each[key] for each in values]):
                return
            for run, each in zip(runs, values, strict=True):
                run[name] = np.ascontiguousarray(each[key])
        module.invalidate("reduction")
        module.erase_dead()
        _drop_arguments(module, runs)
        if len(module) == 0 or not module.outputs:
            return
        if (len(module), len(module.outputs)) >= (len(case.module), len(case.module.outputs)):
            return
        module.verify()
    except (RlxError, ir.MLIRError, ValueError):
        return
    yield Case(module, runs, case.options)


def _operations(module: GraphModule) -> list[ir.Operation]:
    *ops, _ = body(module.entry).operations
    return [op.operation for op in ops]


def _isolate(module: GraphModule, index: int) -> Cut | None:
    """Only the operation of a number, and what makes weights packed, is left; its operands become inputs."""
    ops = _operations(module)
    op = ops[index]
    results = [r for r in op.results if packing(r.type) is None]
    if not results:
        return None
    _return(module, results, [f"r{i}" for i in range(len(results))])
    return _cut_operands(ops, op)


def _cut_operands(ops: Sequence[ir.Operation], op: ir.Operation) -> Cut:
    cut: Cut = []
    for operand in op.operands:
        if isinstance(operand, ir.BlockArgument) or any(operand == value for value, _ in cut):
            continue
        result = ir.OpResult(operand)
        owner = result.owner.operation
        if packing(operand.type) is not None:
            cut += _cut_operands(ops, owner)
        elif not owner.name.endswith(".constant"):
            cut.append((operand, (ops.index(owner), result.result_number)))
    return cut


def _keep_outputs(module: GraphModule, names: Sequence[str]) -> Cut | None:
    kept = module.outputs
    if not names:
        return None
    handles = [kept[name]._handle for name in names]
    _return(module, handles, names)
    return []


def _cut(module: GraphModule, indices: range) -> Cut | None:
    """The results of operations become inputs, where something reads them afterwards."""
    ops = _operations(module)
    chosen = [ops[i] for i in indices]
    cut: Cut = []
    for index in indices:
        for number, result in enumerate(ops[index].results):
            users = [use.owner.operation for use in result.uses]
            if any(user not in chosen for user in users):
                cut.append((result, (index, number)))
    return cut or None


def _return(module: GraphModule, handles: Sequence[ir.Value], names: Sequence[str]) -> None:
    """Sets the outputs."""
    function, context = module.entry, module.ir_module.context
    old = terminator(function)
    with context, ir.Location.unknown(), ir.InsertionPoint(old):
        ir.Operation.create("func.return", operands=list(handles))
    old.erase()
    attributes = [{"mir.name": ir.StringAttr.get(name, context)} for name in names]
    set_signature(function, outputs=[handle.type for handle in handles], res_attrs=attributes)
    set_ties(function, {})


def _replace_by_input(module: GraphModule, value: ir.Value, name: str, arrays: Sequence[np.ndarray]) -> bool:
    """Puts a new input in the place of a value; False where its dynamic sizes can't be named."""
    function, type = module.entry, ir.RankedTensorType(value.type)
    dims = module._shape(value)
    known = set(module.dynamic_symbols)
    symbols = []
    for axis in range(type.rank):
        if not type.is_dynamic_dim(axis):
            symbols.append("")
        elif dims[axis] in known:
            symbols.append(str(dims[axis]))
        else:  # a sum of symbols, or unknown: equal sizes in every run get one name
            symbols.append("n" + "_".join(str(array.shape[axis]) for array in arrays))
    with module.ir_module.context, ir.Location.unknown():
        handle = body(function).add_argument(type, ir.Location.unknown())
        Signature.of(function).append(
            function, name, type, argument_attributes(module.ir_module.context, name, INPUT, symbols)
        )
    value.replace_all_uses_with(handle)
    module._known = None
    return True


def _drop_arguments(module: GraphModule, runs: list[dict[str, np.ndarray]]) -> None:
    """Erases arguments that nothing reads, with their values."""
    function = module.entry
    block = body(function)
    listed = arguments(function)
    kept = [a for a in listed if next(iter(block.arguments[a.index].uses), None) is not None]
    for argument in reversed(listed):
        if argument not in kept:
            block.erase_argument(argument.index)
            for run in runs:
                run.pop(argument.name, None)
    context = module.ir_module.context
    attributes = [argument_attributes(context, a.name, a.kind, a.symbols) for a in kept]
    set_signature(function, inputs=[a.type for a in kept], arg_attrs=attributes)
    module.invalidate("reduction")
