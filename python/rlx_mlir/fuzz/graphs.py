# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The graph fuzzer's side in the child process: runs cases in every way that there is, and compares.

Tasks: `{seed, index, file}` draws a case and runs it, leaving it in `file` if anything is wrong; `{file}` runs a case
that is there; `{module}` runs a module on random values; `{reduce, folder}` writes smaller cases to a folder and
lists them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from rlx_mlir import ir
from rlx_mlir.compiler import Compilation, CompileOptions, build_artifact
from rlx_mlir.errors import RlxError, UnsupportedError
from rlx_mlir.fuzz.cases import Case, case_of, load_operations, random_case
from rlx_mlir.fuzz.pool import Outcome, Task
from rlx_mlir.fuzz.sensitivity import Expected, expected, run_module
from rlx_mlir.hir import GraphModule
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.semantics.function import arguments

Arrays = dict[str, np.ndarray]

#: Threads of the executables; all of them where there is enough to do for some.
_THREADS, _FEW_THREADS = (1, 2, 3, 5, 8), (1, 3)
_MANY_ELEMENTS = 16_000
#: Of which every element is the exact result, rounded once, or a copy: bits are the same whatever kernel computes it.
_EXACT = frozenset(
    f"mir.{word}"
    for word in (
        *("add", "sub", "mul", "div", "neg", "abs", "relu", "max", "min", "round", "sqrt", "where", "compare", "cast"),
        *("narrow", "slice", "dim", "concat", "reshape", "transpose", "expand", "gather", "cache_update", "constant"),
        *("dynamic_slice", "dynamic_update_slice"),
    )
)
#: Perturbed runs: few at first, many before something counts as wrong.
_RUNS, _MORE_RUNS = 6, 60
#: What estimates of memory say to the byte. Of parameters that nothing reads, a plan doesn't have the symbols.
_ESTIMATED = ("prepared", "arena", "inputs", "outputs", "donated", "peak", "peak_donated")


def prepare() -> None:
    """Loads what every case needs."""
    from rlx_mlir.rewriting import registry

    registry.register_all()
    ir.native.print_stack_traces()


def handle(task: Task) -> Outcome:
    """Runs one task."""
    if "reduce" in task:
        from rlx_mlir.fuzz.reduction import write_candidates

        return {"status": "ok", "files": write_candidates(Path(task["reduce"]), Path(task["folder"]), task)}
    if "module" in task:
        return check(case_of(GraphModule.from_text(Path(task["module"]))))
    return run_case(task, "graphs", check)


def run_case(task: Task, fuzzer: str, check: Callable[[Case], Outcome]) -> Outcome:
    """Draws the case of a task, or reads the one that it names, and checks it; what is no finding leaves no file.

    Args:
        task: has 'file', where the case is or shall be; one that is drawn has 'seed' and 'index'.
        fuzzer: the module that replays it.
        check: what is done with it.
    """
    path = Path(task["file"])
    if "seed" in task:
        load_operations(task.get("load", ()))
        case, counts = random_case(task["seed"], task["index"], tuple(task.get("ops", ())))
        if "load" in task:
            case.options["load"] = task["load"]
        case.fuzzer = fuzzer
        case.save(path)  # before anything can go wrong
    else:
        case, counts = Case.load(path), {}
    begin = time.perf_counter()
    answer = check(case)
    answer["ops"] = dict(Counter(node.op for node in case.module))
    answer["seconds"] = time.perf_counter() - begin
    answer.update(counts)
    if answer["status"] != "finding" and "seed" in task:
        path.unlink()
        path.with_suffix(".npz").unlink()
    return answer


def finding(kind: str, message: str, **more: object) -> Outcome:
    """An answer about something wrong."""
    return {"status": "finding", "kind": kind, "message": message, **more}


def check(case: Case) -> Outcome:
    """Runs a case in every way and compares."""
    module = case.module
    try:
        module.verify()
        # Errors of operations that are made of others are those of these, which may cancel in between.
        lowered = module.lower().transform("mir-decompose")
    except RlxError as error:
        if _is_unsupported(error):
            return {"status": "unsupported", "message": str(error)}
        return finding("lower", str(error))
    reference = lowered
    if case.options.get("activations") == "int8":
        try:
            reference = lowered.transform("inline,symbol-dce,rlx-fuse,mir-quantize-activations{attention=15},cse")
        except RlxError as error:
            return finding("lower", str(error))
    try:
        for number, run in enumerate(case.runs):
            wanted = run_module(module.ir_module, run)
            reached = expected(lowered.ir_module, run, runs=_RUNS)
            if message := _confirmed(lowered, run, reached, wanted):
                return finding(
                    "mismatch", f"hir interpreted, run {number}: {message[1]}", output=message[0], run=number
                )
    except RlxError as error:
        # Values that break a condition at run time: the generator's mistake, or a reference that isn't total.
        return finding("interpret", f"{type(error).__name__}: {error}")
    executables, problem = _compile(case)
    problem = problem or _estimated(case, next(iter(executables.values())))
    if problem is not None:
        return problem
    exact = all(node.op in _EXACT for node in reference)
    for number, run in enumerate(case.runs):
        reached = expected(reference.ir_module, run, runs=_RUNS)
        bits: dict[str, tuple[str, Arrays]] = {}
        for way, executable in executables.items():
            try:
                got = _run(executable, run)
            except RlxError as error:
                return finding("execute", f"{way}, run {number}: {type(error).__name__}: {error}", run=number)
            if isinstance(got, str):
                return finding("execute", f"{way}, run {number}: {got}", run=number, way=way)
            if message := _confirmed(reference, run, reached, got):
                return finding("mismatch", f"{way}, run {number}: {message[1]}", output=message[0], run=number, way=way)
            if problem := _kept_roundings(way, number, reached, got):
                return problem
            own = bits.setdefault(way.partition(",")[0], (way, got))
            alone = next(iter(bits.values())) if exact else own
            for name, array in got.items():
                if not _same_bits(array, alone[1][name]):
                    what = f"output '{name}' has other bits with {way} than with {alone[0]}, run {number}"
                    return finding("bits", what, output=name, run=number, way=way)
        if problem := _rows_alone(
            case, number, reached, {way: (executables[name], got) for way, (name, got) in bits.items()}, reference
        ):
            return problem
    return {"status": "ok"}


def _kept_roundings(way: str, number: int, reached: Mapping[str, Expected], got: Arrays) -> Outcome | None:
    """A finding where a way rounds at other places than the module says."""
    for name, own in reached.items():
        if message := own.dropped_roundings(got[name]):
            return finding("rounding", f"{way}, run {number}: output '{name}': {message}", output=name, run=number)
    return None


def _rows_alone(
    case: Case,
    number: int,
    reached: Mapping[str, Expected],
    ways: Mapping[str, tuple[Executable, Arrays]],
    reference: GraphModule,
) -> Outcome | None:
    """A finding where a part of a batch, computed alone, has other bits than in the batch.

    A symbol counts as a batch where the interpreter computes the same for a part of it, and no tensor has it twice.
    """
    run, listed = case.runs[number], arguments(case.module.entry)
    outputs = {name: value.shape for name, value in case.module.outputs.items()}
    for symbol in case.module.dynamic_symbols:
        axes = {a.name: [i for i, s in enumerate(a.symbols) if s == symbol] for a in listed}
        size = next((run[name].shape[found[0]] for name, found in axes.items() if found), 0)
        named = {name: [i for i, dim in enumerate(shape) if dim == symbol] for name, shape in outputs.items()}
        twice = any(len(found) > 1 for found in (*axes.values(), *named.values()))  # of the sides of an image
        if size < 2 or twice or not all(named.values()):
            continue
        for part in (slice(size // 2, size // 2 + 1), slice(0, size - 1)):
            small = {name: _part(array, axes.get(name, ()), part) for name, array in run.items()}
            try:
                alone = run_module(reference.ir_module, small)
            except RlxError:
                break  # not a batch: positions and tables go together
            parts = {
                n: Expected(_part(e.value, named[n], part), _part(e.spread, named[n], part)) for n, e in reached.items()
            }
            if any(own.difference(np.asarray(alone[name])) for name, own in parts.items()):
                break
            for way, (executable, whole) in ways.items():
                got = _run(executable, small)
                if isinstance(got, str):
                    return finding("execute", f"{way}, run {number}: {got}", run=number, way=way)
                for name, array in got.items():
                    if array.tobytes() != _part(whole[name], named[name], part).tobytes():
                        what = f"output '{name}' has other bits for {part} of '{symbol}' alone, {way}, run {number}"
                        return finding("batch", what, output=name, run=number, way=way)
    return None


def _same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether elements have the same bits, or are NaN: which one it is depends on the instruction that makes it."""
    if x.tobytes() == y.tobytes():
        return True
    words = np.dtype(f"u{x.itemsize}")
    return bool(np.all((x.view(words) == y.view(words)) | ((x != x) & (y != y))))


def _part(array: np.ndarray, axes: Sequence[int], part: slice) -> np.ndarray:
    return np.ascontiguousarray(array[tuple(part if i in axes else slice(None) for i in range(array.ndim))])


def _is_unsupported(error: BaseException | None) -> bool:
    """Whether a valid module was refused on purpose, by a pass or by what it called."""
    while error is not None:
        if isinstance(error, UnsupportedError):
            return True
        error = error.__cause__
    return False


def _compile(case: Case) -> tuple[dict[str, Executable], Outcome | None]:
    """The module compiled by templates and generically, each for one thread and for several; and without fusion."""
    executables = {}
    most = max((array.size for run in case.runs for array in run.values()), default=0)
    threads = _THREADS if most >= _MANY_ELEMENTS else _FEW_THREADS
    given = dict(case.options)
    apart = given.pop("apart", False)
    given.pop("load", None)
    ways: list[tuple[str, tuple[str, ...]]] = [("templates", ()), ("generic", ("all",))]
    for way, disabled in [*ways, ("apart", ())] if apart else ways:
        options = {**given, "disable_templates": disabled}
        # A case that was made smaller has lost the others.
        options["maxima"] = {
            s: size for s, size in options.get("maxima", {}).items() if s in case.module.dynamic_symbols
        }
        try:
            chosen = CompileOptions(**options)
            if way == "apart":
                executables[way] = Executable(Compilation(case.module, chosen, apart=True).artifact(), threads=1)
                continue
            artifact = build_artifact(case.module, chosen)
            for count in threads:
                executables[way if count == 1 else f"{way}, {count} threads"] = Executable(artifact, threads=count)
        except RlxError as error:
            if _is_unsupported(error):
                return {}, {"status": "unsupported", "message": str(error)}
            return {}, finding("compile", f"{way}: {type(error).__name__}: {error}", way=way)
    return executables, None


def _estimated(case: Case, executable: Executable) -> Outcome | None:
    """A finding where memory is estimated to be other than what the compiled module says."""
    maxima, activations = dict(executable.artifact.symbols), case.options.get("activations", "exact")
    try:
        estimate = case.module.memory_estimate(maxima, activations=activations)
    except RlxError as error:
        return finding("estimate", f"{type(error).__name__}: {error}")
    memory = executable.dispatch_report().memory
    for name in _ESTIMATED:
        if getattr(estimate, name) != getattr(memory, name):
            return finding(
                "estimate", f"{name} is {getattr(memory, name)} bytes, but was estimated at {getattr(estimate, name)}"
            )
    return None


def _run(executable: Executable, run: Mapping[str, np.ndarray]) -> Arrays | str:
    """The results; or what is wrong with how they came about: inputs written, other bits in a second run.

    The second run donates what outputs are tied to: copies of inputs and of parameters.
    """
    params = {spec.name: run[spec.name] for spec in executable.params}
    inputs = {spec.name: run[spec.name] for spec in executable.inputs}
    if params:
        executable.set_params(params)
    given = {**params, **inputs}
    before = {name: array.tobytes() for name, array in given.items()}
    got = executable.run(inputs)
    if written := [name for name, array in given.items() if array.tobytes() != before[name]]:
        return f"inputs {written} were written"
    tied = {spec.tied for spec in executable.outputs if spec.tied is not None}
    copies = {name: np.array(array) for name, array in inputs.items()}
    if params:
        executable.set_params({name: np.array(array) for name, array in params.items()})
    again = executable.run(copies, donate=tied)
    for name, array in got.items():
        if array.tobytes() != again[name].tobytes():
            return f"output '{name}' has other bits in a second run{' with donated inputs' if tied else ''}"
    return got


def _confirmed(
    module: GraphModule, run: Mapping[str, np.ndarray], reached: dict[str, Expected], got: Mapping[str, object]
) -> tuple[str, str] | None:
    """(output, what is wrong with it); None where results are within what more perturbed runs reach."""

    def first() -> tuple[str, str] | None:
        for name, own in reached.items():
            if message := own.difference(np.asarray(got[name])):
                return name, f"output '{name}': {message}"
        return None

    found = first()
    if found is not None:
        more = expected(module.ir_module, run, runs=_MORE_RUNS, seed=1)
        for name, own in reached.items():
            own.spread = np.maximum(own.spread, more[name].spread)
        found = first()
    return found
