# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The graph fuzzer's side in the child process: runs cases in every way that there is, and compares.

Tasks: `{seed, index, file}` draws a case and runs it, leaving it in `file` if anything is wrong; `{file}` runs a case
that is there; `{module}` runs a module on random values; `{reduce, folder}` writes smaller cases to a folder and
lists them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx_mlir import ir
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.errors import RlxError, UnsupportedError
from rlx_mlir.fuzz.cases import Case, case_of, random_case
from rlx_mlir.fuzz.sensitivity import Expected, expected, run_module
from rlx_mlir.hir import GraphModule
from rlx_mlir.runtime.executable import Executable

Answer = dict[str, Any]
Arrays = dict[str, np.ndarray]

#: Perturbed runs: few at first, many before something counts as wrong.
_RUNS, _MORE_RUNS = 6, 60


def prepare() -> None:
    """Loads what every case needs."""
    from rlx_mlir.rewriting import registry

    registry.register_all()
    ir.native.print_stack_traces()


def handle(task: dict[str, Any]) -> Answer:
    """Runs one task."""
    if "reduce" in task:
        from rlx_mlir.fuzz.reduction import write_candidates

        return {"status": "ok", "files": write_candidates(Path(task["reduce"]), Path(task["folder"]), task)}
    if "module" in task:
        return check(case_of(GraphModule.from_text(Path(task["module"]))))
    path = Path(task["file"])
    if "seed" in task:
        case, counts = random_case(task["seed"], task["index"], tuple(task.get("ops", ())))
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


def finding(kind: str, message: str, **more: Any) -> Answer:
    """An answer about something wrong."""
    return {"status": "finding", "kind": kind, "message": message, **more}


def check(case: Case) -> Answer:
    """Runs a case in every way and compares."""
    module = case.module
    try:
        module.verify()
        lowered = module.lower()
    except RlxError as error:
        if _is_unsupported(error):
            return {"status": "unsupported", "message": str(error)}
        return finding("lower", str(error))
    reference = lowered
    if case.options.get("activations") == "int8":
        try:
            reference = lowered.transform("inline,symbol-dce,rlx-fuse,mir-quantize-activations,cse")
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
    if problem is not None:
        return problem
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
            alone = bits.setdefault(way.partition(",")[0], (way, got))
            for name, array in got.items():
                if array.tobytes() != alone[1][name].tobytes():
                    what = f"output '{name}' has other bits with {way} than with {alone[0]}, run {number}"
                    return finding("bits", what, output=name, run=number, way=way)
    return {"status": "ok"}


def _is_unsupported(error: BaseException | None) -> bool:
    """Whether a valid module was refused on purpose, by a pass or by what it called."""
    while error is not None:
        if isinstance(error, UnsupportedError):
            return True
        error = error.__cause__
    return False


def _compile(case: Case) -> tuple[dict[str, Executable], Answer | None]:
    """The module compiled by templates and generically, each for one thread and for three."""
    executables = {}
    for way, disabled in (("templates", ()), ("generic", ("all",))):
        options = {**case.options, "disable_templates": disabled}
        # A case that was made smaller has lost the others.
        options["maxima"] = {
            s: size for s, size in options.get("maxima", {}).items() if s in case.module.dynamic_symbols
        }
        try:
            artifact = build_artifact(case.module, CompileOptions(**options))
            executables[way] = Executable(artifact, threads=1)
            executables[f"{way}, 3 threads"] = Executable(artifact, threads=3)
        except RlxError as error:
            if _is_unsupported(error):
                return {}, {"status": "unsupported", "message": str(error)}
            return {}, finding("compile", f"{way}: {type(error).__name__}: {error}", way=way)
    return executables, None


def _run(executable: Executable, run: Mapping[str, np.ndarray]) -> Arrays | str:
    """The results; or what is wrong with how they came about: inputs written, other bits in a second run."""
    params = {spec.name: run[spec.name] for spec in executable.params}
    inputs = {spec.name: run[spec.name] for spec in executable.inputs}
    if params:
        executable.set_params(params)
    before = {name: array.tobytes() for name, array in inputs.items()}
    got = executable.run(inputs)
    if written := [name for name, array in inputs.items() if array.tobytes() != before[name]]:
        return f"inputs {written} were written"
    tied = {spec.tied for spec in executable.outputs if spec.tied is not None}
    copies = {name: array.copy() for name, array in inputs.items()}
    again = executable.run(copies, donate=tied)
    for name, array in got.items():
        if array.tobytes() != again[name].tobytes():
            return f"output '{name}' has other bits in a second run{' with donated inputs' if tied else ''}"
    return got


def _confirmed(
    module: GraphModule, run: Mapping[str, np.ndarray], reached: dict[str, Expected], got: Mapping[str, Any]
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
