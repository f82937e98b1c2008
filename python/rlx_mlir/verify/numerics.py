# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether passes keep what a module computes: it is interpreted before and after each of them, and compared.

Works at the stages whose operations have references: hir, mir and kernels. A pass that changes values on purpose says
so where it is registered (`changes_values`), and is held to the tolerance that it states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir import ir
from rlx_mlir.errors import ExecutionError, InputError, NumericError, PassError, RlxError
from rlx_mlir.interpreter import Watch, interpret
from rlx_mlir.locations import describe_operation
from rlx_mlir.mir import PackedWeight
from rlx_mlir.mir.numerics import parts
from rlx_mlir.mir.registry import REFERENCES
from rlx_mlir.rewriting import Rewrite, ValueChange, operations, recording, run_pipeline
from rlx_mlir.rewriting.failure import write_reproducer
from rlx_mlir.rewriting.pipelines import pass_name
from rlx_mlir.rewriting.registry import PASSES
from rlx_mlir.rewriting.steps import clone
from rlx_mlir.semantics.function import (
    PREPARE,
    Argument,
    arguments,
    entry_function,
    function_name,
    function_type,
    functions,
    results,
    role,
)
from rlx_mlir.verify.inputs import Sample, perturbed, samples
from rlx_mlir.verify.tolerance import Difference, Errors, Expected, difference

#: The outputs of a module by name, each with its tolerance.
Outputs = dict[str, Expected]


def is_interpretable(module: ir.Module) -> bool:
    """Whether every operation of a module can be interpreted, and its functions are of tensors, not of buffers."""
    types = (type for f in functions(module) for type in function_type(f).inputs)
    return not any(isinstance(type, ir.MemRefType) for type in types) and all(
        op.name in REFERENCES or op.name in ("func.func", "func.call", "func.return") for op in operations(module)
    )


def module_arguments(module: ir.Module) -> list[Argument]:
    """The arguments that callers give: those of the entry, with what @prepare reads in place of what it gives."""
    found = arguments(entry_function(module))
    for prepare in (f for f in functions(module) if role(f) == PREPARE):
        given = {result.name for result in results(prepare)}
        names = {argument.name for argument in found}
        found = [a for a in found if a.name not in given]
        found += [a for a in arguments(prepare) if a.name not in names]
    return found


def plain(value: object) -> np.ndarray:
    """A value of the interpreter as an array: a packed weight as its bytes."""
    return value.bytes if isinstance(value, PackedWeight) else np.asarray(value)


def evaluate_outputs(
    module: ir.Module,
    sample: Sample,
    known: Sequence[Argument],
    *,
    conditioning: bool,
    errors: Errors | None = None,
    watch: Watch | None = None,
) -> Outputs:
    """The outputs of a module on a sample, with their tolerances.

    Args:
        known: the arguments that the sample is for.
        conditioning: measure how the module amplifies errors; costs a second run.
        errors: of the values of the run, for whoever watches it.
        watch: is called after each operation.
    """
    noted = errors if errors is not None else Errors({function_name(f): f for f in functions(module)})

    def look(op: ir.Operation, operands: Sequence[object], computed: Sequence[object]) -> None:
        noted.watch(op, operands, computed)
        if watch is not None:
            watch(op, operands, computed)

    found = interpret(module, for_module(module, sample), watch=look)
    values = {name: plain(value) for name, value in found.items()}
    relative = noted.of_results(entry_function(module))
    absolute = [0.0] * len(values)
    if conditioning:
        moved = interpret(module, for_module(module, perturbed(sample, known)))
        absolute = [distance(value, plain(moved[name])) for name, value in values.items()]
    return {
        name: Expected(value, error, amplified)
        for (name, value), error, amplified in zip(values.items(), relative, absolute, strict=True)
    }


def for_module(module: ir.Module, sample: Sample) -> dict[str, np.ndarray]:
    """The values of a sample that a module takes: passes drop parameters that nothing reads."""
    return {argument.name: sample.values[argument.name] for argument in module_arguments(module)}


def distance(first: np.ndarray, second: np.ndarray) -> float:
    """The largest finite difference of two arrays of one shape."""
    if not first.size or first.dtype == np.uint8:
        return 0.0
    with np.errstate(all="ignore"):
        gap = np.abs(parts(first).astype(np.float64) - parts(second).astype(np.float64))
    return float(np.max(gap, initial=0.0, where=np.isfinite(gap)))


@dataclass(frozen=True)
class Finding:
    """An output that differs: on which sample, and by how much."""

    sample: Sample
    output: str
    difference: Difference

    def __str__(self) -> str:
        return f"output '{self.output}' differs: {self.difference} ({self.sample})"


class NumericVerifier:
    """Follows one module through passes; `changed` is called after each pass that changed it.

    Attributes:
        interpretations: how often the module was interpreted.
        skipped: samples that the module doesn't accept, with the reason: positions outside of a cache, for example.
    """

    def __init__(
        self, module: ir.Module, *, seed: int = 0, nan: bool = False, maxima: dict[str, int] | None = None
    ) -> None:
        """Interprets the module on every sample.

        Raises InputError where no sample fits the module.
        """
        self.arguments = module_arguments(module)
        self.interpretations = 0
        self.skipped: list[tuple[Sample, str]] = []
        self.samples: list[Sample] = []
        self._expected: list[Outputs] = []
        for sample in samples(self.arguments, seed=seed, nan=nan, maxima=maxima):
            try:
                self._expected.append(self._run(module, sample, conditioning=True))
                self.samples.append(sample)
            except InputError as error:
                self.skipped.append((sample, str(error)))
        if not self.samples:
            raise InputError(f"no inputs were found that the module accepts: {self.skipped[-1][1]}")

    def _run(self, module: ir.Module, sample: Sample, *, conditioning: bool) -> Outputs:
        self.interpretations += 1 + conditioning
        return evaluate_outputs(module, sample, self.arguments, conditioning=conditioning)

    def changed(self, step: str, before: ir.Module, after: ir.Module) -> None:
        """Compares a module with what it was before a pass; those that can't be interpreted are passed over.

        Args:
            step: the pass, as a pipeline.
            before: the module before the pass; it is not changed.
            after: the module after the pass.

        Raises NumericError, which names the pass, and the rewrite and the operation that changed a value.
        """
        if not is_interpretable(after):
            return
        name = pass_name(step)
        change = PASSES[name].changes_values if name in PASSES else None
        found: list[Outputs] = []
        for number, sample in enumerate(self.samples):
            try:
                outputs = self._run(after, sample, conditioning=change is not None)
            except (RlxError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise self._error(
                    name, step, before, f"the module can't be interpreted any more: {error}", sample
                ) from None
            finding = _compare(self._expected[number], outputs, sample, change)
            if finding is not None:
                details = self._explain(step, before, after, number, change)
                raise self._error(name, step, before, "\n".join([str(finding), *details]), sample)
            if change is None:  # How the module amplifies errors follows from what it computes, which hasn't changed.
                outputs = {
                    key: Expected(value.array, value.relative, self._expected[number][key].absolute)
                    for key, value in outputs.items()
                }
            found.append(outputs)
        self._expected = found

    def _error(self, name: str, step: str, before: ir.Module, text: str, sample: Sample) -> NumericError:
        command = f"// rlx-opt %s --rlx-verify-numerics --pass-pipeline='builtin.module({step})'\n"
        reproducer = write_reproducer(command + before.operation.get_asm(enable_debug_info=True))
        where = f"after pass '{name}'" if name else "the modules don't compute the same"
        return NumericError(f"{where}: {text}", culprit=name, sample=str(sample), reproducer=reproducer)

    # -- what exactly changed -----------------------------------------------------------------------------------------

    def _explain(
        self, step: str, before: ir.Module, after: ir.Module, number: int, change: ValueChange | None
    ) -> list[str]:
        lines = [] if change is None else [f"the pass may change values ({change.reason}), but not so much"]

        def is_wrong(module: ir.Module) -> bool:
            try:
                outputs = self._run(module, self.samples[number], conditioning=change is not None)
            except (RlxError, ArithmeticError, LookupError, TypeError, ValueError):
                return False  # Between two rewrites that belong together.
            return _compare(self._expected[number], outputs, self.samples[number], change) is not None

        rewrite = find_rewrite(step, before, is_wrong)
        if rewrite is not None:
            where = f" in {rewrite.where}" if rewrite.where else ""
            lines.append(f"the first rewrite with this effect: pattern '{rewrite.pattern}' on '{rewrite.op}'{where}")
        elif change is None and (operation := find_operation(before, after, self.samples[number])):
            lines.append(f"the first operation with another value: {operation}")
        return lines


def _compare(expected: Outputs, found: Outputs, sample: Sample, change: ValueChange | None) -> Finding | None:
    """The first output that differs; None where there is none."""
    if expected.keys() != found.keys():
        text = f"the outputs were {', '.join(expected)}, and are {', '.join(found)}"
        return Finding(sample, next(iter(expected), ""), Difference(text=text))
    for name, value in expected.items():
        own = found[name]
        merged = Expected(value.array, max(value.relative, own.relative), max(value.absolute, own.absolute))
        gap = difference(merged, own.array, overall=None if change is None else change.tolerance)
        if gap is not None:
            return Finding(sample, name, gap)
    return None


def find_rewrite(step: str, before: ir.Module, is_wrong: Callable[[ir.Module], bool]) -> Rewrite | None:
    """The first rewrite of a pass after which a module is wrong, by bisection; None where the pass has no patterns.

    Args:
        step: the pass, as a pipeline.
        before: the module before the pass; it is not changed.
        is_wrong: whether a module, to which some of the rewrites were applied, is wrong.
    """

    def run(budget: int | None) -> tuple[ir.Module, list[Rewrite]]:
        module = clone(before)
        with recording(module, budget=budget) as recorder:
            try:
                run_pipeline(module, step)
            except PassError:
                if budget is None:
                    raise
                # The pass misses what it was stopped from doing; the module is as the rewrites left it.
        return module, [rewrite for _, report in recorder.reports for rewrite in report.rewrites]

    _, rewrites = run(None)
    right, wrong = 0, len(rewrites)
    if not rewrites or not is_wrong(run(wrong)[0]):
        return None
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if is_wrong(run(middle)[0]):
            wrong = middle
        else:
            right = middle
    return rewrites[wrong - 1]


def find_operation(before: ir.Module, after: ir.Module, sample: Sample) -> str | None:
    """The first operation after a pass that makes an output wrong, as text; None where none is found.

    Its value is one that no operation had before, and so are those of what its value goes into, up to an output.
    (Values that only the new way to compute something has are in between ones that were there before.)
    """
    known: dict[tuple[object, ...], list[np.ndarray]] = {}

    def note(op: ir.Operation, operands: Sequence[object], results: Sequence[object]) -> None:
        for array in map(plain, results):
            known.setdefault((array.dtype, array.shape), []).append(array)

    interpret(before, for_module(before, sample), watch=note)
    errors = Errors({function_name(f): f for f in functions(after)})
    nodes: list[tuple[ir.Operation, Sequence[object], list[object]]] = []

    def look(op: ir.Operation, operands: Sequence[object], results: Sequence[object]) -> None:
        errors.watch(op, operands, results)
        changed = []
        for value, result in zip(op.results, results, strict=True):
            array = plain(result)
            expected = Expected(array, max(errors.of(value), 1e-6))
            if all(difference(expected, other) is not None for other in known.get((array.dtype, array.shape), ())):
                changed.append(result)
        if op.name != "func.call":  # Its results are those of an operation in the function that it calls.
            nodes.append((op, operands, changed))

    outputs = interpret(after, for_module(after, sample), watch=look)
    needed = {id(value) for value in outputs.values()}
    wrong = None
    for op, operands, changed in reversed(nodes):
        if any(id(value) in needed for value in changed):
            needed |= {id(value) for value in operands}
            wrong = op
    return describe_operation(wrong) if wrong is not None else None


def compare_modules(
    before: ir.Module, after: ir.Module, *, step: str = "", seed: int = 0, nan: bool = False
) -> NumericVerifier:
    """Checks that two modules compute the same; returns the verifier that did.

    Args:
        before: a module at stage hir, mir or kernels.
        after: the same after `step`.
        step: the pass between them, if it is one: its tolerance applies, and its rewrites are searched.

    Raises NumericError where they don't, ExecutionError where one of them can't be interpreted.
    """
    for module in (before, after):
        if not is_interpretable(module):
            raise ExecutionError("a module can be interpreted where all its operations are of hir, mir and func")
    verifier = NumericVerifier(before, seed=seed, nan=nan)
    verifier.changed(step, before, after)
    return verifier
