# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `rlx-verify-stage`: whether a module keeps what its stage promises to the passes that follow.

One function checks one stage. It yields what is wrong, each with the function, the operation and the rule; what the
verifiers of operations say isn't said again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.errors import CompileError, InputError
from rlx_mlir.kernel_classes import CLASSES, GENERIC, OWN
from rlx_mlir.lowering.extents import oversized
from rlx_mlir.lowering.functions import (
    CLASS,
    KERNEL,
    PREPARE,
    ROLE,
    argument_attributes,
    entry_function,
    functions,
    result_attributes,
)
from rlx_mlir.lowering.gpu.build import bodies, is_pure
from rlx_mlir.lowering.gpu.host import PDL, device_functions, kernel_names, kernel_of, waits
from rlx_mlir.lowering.gpu.outline import HOST
from rlx_mlir.lowering.kernels import EXTRA_ARGUMENTS, MEASURES, TEMPLATE
from rlx_mlir.lowering.lir import ALIGNMENT
from rlx_mlir.lowering.plan import PlanReader
from rlx_mlir.lowering.plan_regions import KINDS, lifetimes
from rlx_mlir.lowering.regions import is_kept
from rlx_mlir.lowering.scratch import follows_from_sizes
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.registry import PLANNED, REFERENCES, TERMINATORS
from rlx_mlir.rewriting import Option, compiler_pass, operations

#: A report ends after so many lines: one mistake often breaks a rule many times.
MAX_REPORTED = 10

#: What is wrong, one message each.
Problems = Iterator[str]


def _at(function: ir.AnyOp, op: ir.AnyOp | None = None) -> str:
    name = python_value(function.operation.attributes["sym_name"])
    return f"function '{name}'" if op is None else f"function '{name}': '{op.name}' at {op.location}"


def _dialect(op: ir.AnyOp) -> str:
    return str(op.name).partition(".")[0]


def _is_defined(function: ir.AnyOp) -> bool:
    return len(function.operation.regions[0].blocks) > 0


def _only_dialects(function: ir.AnyOp, allowed: set[str], rule: str) -> Problems:
    for op in operations(function):
        if _dialect(op) not in allowed:
            yield f"{_at(function, op)}: {rule}"


# HIR and MIR --------------------------------------------------------------------------------------


def _hir(module: ir.Operation) -> Problems:
    yield from _interface(module)
    for function in functions(module):
        yield from _only_dialects(function, {"hir", "mir", "func"}, "functions hold operations of hir, mir and func")


def _interface(module: ir.Operation) -> Problems:
    """Arguments have a name and a kind, results have a name."""
    entry = entry_function(module)
    names: Counter[str] = Counter()
    for number, own in enumerate(argument_attributes(entry)):
        names[own.get("mir.name", "")] += 1
        if "mir.name" not in own:
            yield f"{_at(entry)}: argument {number} has no 'mir.name'"
        if own.get("mir.kind") not in ("input", "param"):
            yield f"{_at(entry)}: argument {number} has no 'mir.kind' of input or param"
    outputs: Counter[str] = Counter()
    for number, own in enumerate(result_attributes(entry)):
        outputs[own.get("mir.name", "")] += 1
        if "mir.name" not in own:
            yield f"{_at(entry)}: result {number} has no 'mir.name'"
    for what, counts in (("arguments", names), ("results", outputs)):
        for name in (name for name, count in counts.items() if name and count > 1):
            yield f"{_at(entry)}: {counts[name]} {what} are named '{name}'"


def _mir(module: ir.Operation) -> Problems:
    yield from _interface(module)
    for function in functions(module):
        yield from _is_mir(function, {"mir", "func", "scf", "arith"})


def _is_mir(function: ir.AnyOp, allowed: set[str]) -> Problems:
    rule = f"functions hold operations of {', '.join(sorted(allowed))}"
    yield from _only_dialects(function, allowed, rule)
    for op in operations(function):
        if _dialect(op) == "mir" and op.name not in REFERENCES and op.name not in TERMINATORS:
            yield f"{_at(function, op)}: every operation of mir has a reference"


# Kernels ------------------------------------------------------------------------------------------


def _kernels(module: ir.Operation) -> Problems:
    entry = entry_function(module)
    kernels = {str(kernel.name.value): kernel for kernel in functions(module, KERNEL)}
    called: set[str] = set()
    for op in operations(entry):
        if op.name == "func.call":
            called.add(python_value(op.attributes["callee"]))
        elif op.name not in ("mir.reshape", "func.return", *TERMINATORS) and not is_kept(op):
            yield f"{_at(entry, op)}: the entry function holds calls, reshapes, and loops and choices of these only"
    for name in sorted(called - kernels.keys()):
        yield f"{_at(entry)}: it calls '{name}', which is no kernel"
    bodies: dict[str, str] = {}
    for name, kernel in kernels.items():
        yield from _is_mir(kernel, {"mir", "func"})
        if name not in called:
            yield f"{_at(kernel)}: every kernel is called"
        yield from _has_class(kernel)
        body = str(kernel).replace(f"@{name}(", "@(", 1)
        if body in bodies:
            yield f"{_at(kernel)}: it is the same as kernel '{bodies[body]}'"
        bodies.setdefault(body, name)
    yield from _preparation(module, entry)


def _has_class(kernel: ir.AnyOp) -> Problems:
    attributes = kernel.operation.attributes
    own = python_value(attributes[CLASS]) if CLASS in attributes else None
    if own not in (*CLASSES, GENERIC, OWN):
        yield f"{_at(kernel)}: a kernel has a '{CLASS}' of {', '.join((*CLASSES, GENERIC, OWN))}, but got {own!r}"


def _preparation(module: ir.Operation, entry: ir.AnyOp) -> Problems:
    """What @prepare gives are parameters of the entry function, of the same types."""
    wanted = {
        own.get("mir.name"): argument.type
        for argument, own in zip(entry.arguments, argument_attributes(entry), strict=True)
        if own.get("mir.kind") == "param"
    }
    found = functions(module, PREPARE)
    for prepare in found:
        yield from _is_mir(prepare, {"mir", "func"})
        for number, (own, kind) in enumerate(zip(result_attributes(prepare), prepare.type.results, strict=True)):
            name = own.get("mir.name")
            if wanted.get(name) != kind:
                yield (
                    f"{_at(prepare)}: result {number} is '{name}' of {kind}, but that parameter of the entry function "
                    f"is of {wanted.get(name, 'no type: it is not there')}"
                )
    if len(found) > 1:
        yield f"{_at(found[1])}: there is one function of role '{PREPARE}'"


# LIR ----------------------------------------------------------------------------------------------

#: What a planned function is made of.
_PLANNED = frozenset(
    {f"arith.{name}" for name in ("constant", "muli", "addi", "subi", "floordivsi", "maxsi")}
    | {f"memref.{name}" for name in ("dim", "view", "reinterpret_cast", "cast")}
    | {"func.call", "func.return"}
    | KINDS
)


def _lir(module: ir.Operation) -> Problems:
    entry = entry_function(module)
    attributes = entry.operation.attributes
    missing = [name for name in ("mir.arena", "mir.symbols") if name not in attributes]
    if missing:
        yield f"{_at(entry)}: a planned function has attributes {', '.join(missing)}"
        return
    wrong = [*_planned_form(entry), *_maxima(entry), *_declarations(entry, module)]
    yield from wrong or _memory(entry, module)


def _planned_form(entry: ir.AnyOp) -> Problems:
    """The function is made of calls on buffers, which are views of the arena."""
    for op in operations(entry):
        if op.name not in _PLANNED:
            yield f"{_at(entry, op)}: a planned function holds calls, views of memory, and arithmetic on sizes"
    for number, argument in enumerate(entry.arguments):
        if not isinstance(argument.type, ir.MemRefType):
            yield f"{_at(entry)}: argument {number} is of {argument.type}: all are buffers"
    arena = entry.arguments[0] if len(entry.arguments) else None
    if arena is None or str(arena.type) != "memref<?xi8>":
        yield f"{_at(entry)}: the first argument is the arena, a memref<?xi8>"
        return
    for op in operations(entry):
        if op.name == "memref.view":
            if op.operands[0] != arena:
                yield f"{_at(entry, op)}: views are views of the arena"
            if isinstance(op.operands[1].owner, ir.Block) or op.operands[1].owner.name != "arith.constant":
                yield f"{_at(entry, op)}: offsets are constants"


def _declarations(entry: ir.AnyOp, module: ir.Operation) -> Problems:
    declared = {str(op.name.value): op for op in functions(module) if not _is_defined(op)}
    for op in operations(entry):
        if op.name == "func.call" and python_value(op.attributes["callee"]) not in declared:
            yield f"{_at(entry, op)}: every kernel that is called is declared, with its '{CLASS}'"
    for kernel in declared.values():
        yield from _has_class(kernel)


def _maxima(entry: ir.AnyOp) -> Problems:
    """Every symbol has a declared maximum."""
    symbols = {item.name: int(item.attr.value) for item in entry.operation.attributes["mir.symbols"]}
    for name, size in symbols.items():
        if size < 1:
            yield f"{_at(entry)}: the maximum of symbol '{name}' is positive, but got {size}"
    for number, own in enumerate(argument_attributes(entry)):
        for word in own.get("mir.dims", ()):
            try:
                unknown = sorted(Size.parse(word).symbols - symbols.keys()) if word else []
            except InputError as error:
                yield f"{_at(entry)}: argument {number}: {error}"
                continue
            for symbol in unknown:
                yield f"{_at(entry)}: argument {number} has a dimension '{symbol}' without a declared maximum"


def _memory(entry: ir.AnyOp, module: ir.Operation) -> Problems:
    """Buffers in the arena are aligned and inside, and two that are alive at one time don't overlap."""
    plan = PlanReader(module)
    alive_at = lifetimes(plan)
    written = {index for _, buffers, _, _ in plan.calls for kind, index, *_ in buffers if kind == "output"}
    for buffer, spec in enumerate(plan.outputs):
        if buffer not in written and spec.tied is None:
            yield f"{_at(entry)}: no call writes output '{spec.name}'"
    inputs = {spec.name for spec in (*plan.inputs, *plan.parameters)}
    for spec in plan.outputs:
        if spec.tied is not None and spec.tied not in inputs:
            yield f"{_at(entry)}: output '{spec.name}' is tied to '{spec.tied}', which is no input or parameter"
    for buffer, (offset, size) in enumerate(plan.slots):
        if offset % ALIGNMENT:
            yield f"{_at(entry)}: buffer {buffer} starts at {offset}, which is no multiple of {ALIGNMENT}"
        if offset < 0 or offset + size > plan.arena_bytes:
            yield (
                f"{_at(entry)}: buffer {buffer} is [{offset}, {offset + size}) where sizes are largest, outside of the "
                f"arena of {plan.arena_bytes} bytes"
            )
    alive: set[int] = set()
    for buffer, (first, _) in sorted(alive_at.items(), key=lambda item: item[1][0]):
        alive = {other for other in alive if alive_at[other][1] >= first}
        start, end = plan.slots[buffer][0], sum(plan.slots[buffer])
        for other in sorted(alive):
            offset, size = plan.slots[other]
            if start < offset + size and offset < end:
                yield (
                    f"{_at(entry)}: buffers {other} at [{offset}, {offset + size}) and {buffer} at [{start}, {end}) "
                    f"overlap, and both are alive at call {first}"
                )
        alive.add(buffer)


# Code ---------------------------------------------------------------------------------------------


def _linalg(module: ir.Operation) -> Problems:
    for function in functions(module) + functions(module, KERNEL):
        for op in operations(function):
            if _dialect(op) in ("mir", "hir") and op.name not in PLANNED:
                yield f"{_at(function, op)}: kernels hold no operation of mir or hir"
    for prepare in functions(module, PREPARE):
        yield from _is_mir(prepare, {"mir", "func"})
    for kernel in functions(module, KERNEL):
        if TEMPLATE not in kernel.operation.attributes:
            yield f"{_at(kernel)}: a generic kernel says in '{TEMPLATE}' why it is generic"
    yield from _bodies(module)


def _has_code(module: ir.Operation) -> Problems:
    """Kernels are bodies now, and what runs once has left."""
    for kernel in functions(module, KERNEL):
        yield f"{_at(kernel)}: a kernel that has code is no longer there as MIR"
    for prepare in functions(module, PREPARE):
        yield f"{_at(prepare)}: what runs once has left the module"
    yield from _bodies(module)


def _bodies(module: ir.Operation) -> Problems:
    """The code of a kernel is its body and two functions that measure it, all on the same buffers."""
    by_name = {str(f.name.value): f for f in functions(module)}
    for name, body in by_name.items():
        if not name.endswith(".body"):
            continue
        if TEMPLATE not in body.operation.attributes:
            yield f"{_at(body)}: a body names its template in '{TEMPLATE}'"
        kinds = list(body.type.inputs)
        if [str(k) for k in kinds[-EXTRA_ARGUMENTS:]] != ["index", "index", "memref<?xi8>"] or body.type.results:
            yield f"{_at(body)}: a body is a function of buffers, two indices and scratch memory, without results"
            continue
        buffers = kinds[:-EXTRA_ARGUMENTS]
        for kind in buffers:
            if not isinstance(kind, ir.MemRefType) or ir.AffineMap.get_identity(kind.rank) != kind.affine_map:
                yield f"{_at(body)}: operands and results are buffers of identity layout, but got {kind}"
        shares = name.removesuffix("body") + "shared" in by_name
        for suffix in (*MEASURES, "shared") if shares else MEASURES:
            measure = by_name.get(name.removesuffix("body") + suffix)
            if measure is None:
                yield f"{_at(body)}: it comes with a function '{name.removesuffix('body')}{suffix}'"
            elif list(measure.type.inputs) != buffers or [str(t) for t in measure.type.results] != ["index"]:
                yield f"{_at(measure)}: it has the buffers of '{name}', and one result, an index"
            else:
                allowed = ("arith", "func")
                for op in operations(measure):
                    if _dialect(op) not in allowed and op.name != "memref.dim":
                        yield f"{_at(measure, op)}: measuring uses sizes of buffers and arithmetic only"


def _cpu(module: ir.Operation) -> Problems:
    yield from _has_code(module)
    for function in functions(module):
        if not str(function.name.value).endswith(".body"):
            continue
        for op in operations(function):
            if _dialect(op) in ("mir", "hir", "linalg", "tensor", "bufferization"):
                yield f"{_at(function, op)}: tensors are gone, and linalg is loops"
            elif any(isinstance(v.type, ir.RankedTensorType) for v in (*op.operands, *op.results)):
                yield f"{_at(function, op)}: tensors are gone"
            elif op.name in ("memref.alloc", "memref.alloca"):
                yield from _allocation(function, op)


def _allocation(body: ir.AnyOp, op: ir.AnyOp) -> Problems:
    """Memory is allocated where its size isn't known before: in loops, or of a size that depends on data."""
    buffers = list(body.arguments)[:-EXTRA_ARGUMENTS]
    if op.name == "memref.alloca":
        return
    if op.parent.operation == body.operation and all(follows_from_sizes(v, buffers) for v in op.operands):
        yield f"{_at(body, op)}: memory whose size follows from the sizes of buffers is scratch memory"
    if not any(use.owner.name == "memref.dealloc" for use in op.results[0].uses):
        yield f"{_at(body, op)}: memory that is allocated is freed"


def _llvm(module: ir.Operation) -> Problems:
    defined: dict[str, ir.AnyOp] = {}
    for op in module.regions[0].blocks[0].operations:
        operation = op.operation
        if _dialect(operation) != "llvm":
            yield f"'{operation.name}' at {operation.location}: a module to translate holds operations of llvm only"
        elif operation.name == "llvm.func" and _is_defined(op):
            defined[python_value(operation.attributes["sym_name"])] = op
            for inner in operations(op):
                if _dialect(inner) != "llvm":
                    yield f"{_at(op, inner)}: a function to translate holds operations of llvm only"
    for name, function in defined.items():
        if ROLE in function.operation.attributes:
            continue
        if name.endswith(("_units", "_scratch", "_shared")) and name.rpartition("_")[0] in defined:
            continue
        finish = [f"_finish_{suffix}" for suffix in MEASURES] if f"{name}_shared" in defined else []
        for suffix in (*(f"_{suffix}" for suffix in MEASURES), *finish):
            if name + suffix not in defined:
                yield f"{_at(function)}: a kernel comes with a function '{name + suffix}'"


# GPUs ---------------------------------------------------------------------------------------------

#: What kernels that are still loops hold.
_KERNEL = frozenset({"affine", "arith", "gpu", "math", "memref", "nvvm", "scf"})


def _gpu(module: ir.Operation) -> Problems:
    """The host computes sizes and launches; what it launches is there, and waits where it has to."""
    yield from _has_code(module)
    kernels = device_functions(module)
    for name, kernel in kernels.items():
        allowed = _KERNEL if kernel.operation.name == "gpu.func" else _KERNEL | {"llvm", "vector"}
        yield from _only_dialects(kernel, set(allowed), f"kernels hold operations of {', '.join(sorted(allowed))}")
        if "gpu.kernel" not in kernel.operation.attributes and kernel.operation.name == "llvm.func":
            yield f"{_at(kernel)}: a function of a schedule has the attribute 'gpu.kernel'"
        if not name.isidentifier():
            yield f"{_at(kernel)}: the name of a kernel is one that PTX can spell"
    for body in bodies(module):
        for op in operations(body.operation):
            if op.name not in HOST and not is_pure(op):
                yield f"{_at(body, op)}: the host computes sizes and launches"
    for body, launch in _launches(module):
        name = kernel_of(launch)
        if name not in kernels:
            yield f"{_at(body, launch)}: what is launched is a kernel of the GPU module, but got '{name}'"
        elif PDL in launch.attributes and not waits(kernels[name]):
            yield f"{_at(body, launch)}: a kernel that may start before the one before has ended waits for it"


def _launches(module: ir.AnyModule) -> Iterator[tuple[ir.AnyOp, ir.AnyOp]]:
    """Each launch with the body that it is in."""
    for body in bodies(module):
        for op in operations(body.operation):
            if op.name == "gpu.launch_func":
                yield body, op


def _nvvm(module: ir.Operation) -> Problems:
    for kernel in device_functions(module).values():
        yield from _only_dialects(kernel, {"llvm", "nvvm"}, "kernels hold operations of llvm and nvvm only")


def _ptx(module: ir.Operation) -> Problems:
    """The GPU's code is text, and holds what is launched."""
    for op in module.regions[0].blocks[0].operations:
        if op.operation.name == "gpu.module":
            yield f"'gpu.module' at {op.operation.location}: code for the GPU is a 'gpu.binary'"
    known = set(kernel_names(module))
    for body, launch in _launches(module):
        if (name := kernel_of(launch)) not in known:
            yield f"{_at(body, launch)}: what is launched is a kernel of the PTX, but got '{name}'"


#: The checks of each stage.
STAGES: dict[str, Callable[[ir.Operation], Problems]] = {
    "hir": _hir,
    "mir": _mir,
    "kernels": _kernels,
    "lir": _lir,
    "linalg": _linalg,
    "cpu": _cpu,
    "llvm": _llvm,
    "gpu": _gpu,
    "nvvm": _nvvm,
    "ptx": _ptx,
    "host": _llvm,
}


@compiler_pass(
    "rlx-verify-stage", options={"stage": Option("the stage whose contract is checked", "mir", tuple(STAGES))}
)
def verify_stage(module: ir.Operation, *, stage: str) -> None:
    """Check that the module keeps the contract of its stage."""
    problems: list[str] = []
    shapes: Iterable[str] = () if STAGES[stage] is _llvm else oversized(module)  # LLVM's types have none
    for problem in itertools.chain(shapes, STAGES[stage](module)):
        if len(problems) == MAX_REPORTED:
            problems.append("and more")
            break
        problems.append(problem)
    if problems:
        raise CompileError("\n".join([f"the module isn't one of stage '{stage}'", *problems]))
