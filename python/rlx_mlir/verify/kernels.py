# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether compiled code computes what it was compiled from: kernel by kernel, then the whole plan.

The module at stage kernels is interpreted, and what each kernel got and gave is kept. Each kernel's code then runs on
the same operands, in a plan of its own. Where all of them agree and the whole plan doesn't, its calls run one by one in
the plan's memory, which shows the call that finds other operands than it should.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir import ir, native
from rlx_mlir.attributes import python_value
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError, NumericError
from rlx_mlir.interpreter import interpret
from rlx_mlir.locations import describe_location
from rlx_mlir.lowering.donation import TIED
from rlx_mlir.lowering.functions import CLASS
from rlx_mlir.runtime.artifact import Artifact, BufferSpec
from rlx_mlir.runtime.artifact import Call as PlannedCall
from rlx_mlir.runtime.executable import Executable, empty_aligned
from rlx_mlir.runtime.own import Linked, RunPlan
from rlx_mlir.runtime.prepare import prepare
from rlx_mlir.runtime.sizes import evaluate
from rlx_mlir.semantics.function import PREPARE, Argument, arguments, function_name, functions, role
from rlx_mlir.verify.inputs import Sample, perturbed, samples
from rlx_mlir.verify.numerics import Outputs, distance, evaluate_outputs, for_module, module_arguments, plain
from rlx_mlir.verify.tolerance import Errors, Expected, difference

if TYPE_CHECKING:
    from rlx_mlir._runtime import Buffer

#: Calls of one kernel that are compared for one sample; those of other layers differ in their values alone.
CALLS = 2
#: Integers that quantisation may be off by where two ways to round meet a tie: a value, and a sum of 32 of them.
_TIES = {"int8": 1, "int32": 32}


@dataclass(frozen=True)
class Call:
    """A call of a kernel, as it was interpreted."""

    number: int
    kernel: str
    operands: tuple[np.ndarray, ...]
    results: tuple[Expected, ...]
    where: str
    sample: Sample


@dataclass
class Checked:
    """What was compared: the number of samples, and of calls of each kernel."""

    samples: int
    kernels: dict[str, int]


def check_executable(executable: Executable, module: ir.Module, *, seed: int = 0, nan: bool = False) -> Checked:
    """Compares compiled code with the module that it was compiled from.

    Args:
        executable: its parameters are set to others.
        module: the same at stage kernels.
        seed, nan: see `samples`.

    Raises NumericError, which names the kernel with its template, or the call of the plan, or the parameter; InputError
    where no inputs are found that the module accepts.
    """
    artifact = executable.artifact
    known = module_arguments(module)
    checker = _Checker(artifact, module)
    reason: Exception | None = None
    count = 0
    for sample in samples(known, seed=seed, nan=nan, maxima=dict(artifact.symbols)):
        try:
            expected, calls = checker.interpret(sample, known)
        except InputError as error:
            reason = error
            continue
        count += 1
        checker.check_preparation(sample)
        seen: Counter[str] = Counter()
        for call in calls:
            seen[call.kernel] += 1
            if seen[call.kernel] <= CALLS:
                checker.check_call(call)
        values = for_module(module, sample)
        executable.set_params({spec.name: values[spec.name] for spec in executable.params})
        found = executable.run({spec.name: values[spec.name] for spec in executable.inputs})
        for name, value in expected.items():
            gap = difference(value, found[name])
            if gap is not None:
                text = f"output '{name}' of the compiled module differs from the interpreted one: {gap} ({sample})"
                detail = checker.find_call(sample, calls)
                raise NumericError(f"{text}\n{detail}", culprit="plan", sample=str(sample))
    if not count:
        raise InputError(f"no inputs were found that the module accepts: {reason}")
    return Checked(count, checker.checked)


class _Checker:
    """Runs pieces of one compiled module."""

    def __init__(self, artifact: Artifact, module: ir.Module) -> None:
        self._artifact = artifact
        self._module = module
        self._linked = Linked(artifact)
        self._code = self._linked.code
        self._functions = {function_name(f): f for f in functions(module)}
        self._plans: dict[tuple[str, tuple[int, ...]], native.Plan] = {}
        self.checked: dict[str, int] = dict.fromkeys(artifact.kernels, 0)

    # -- what the module means ----------------------------------------------------------------------------------------

    def interpret(self, sample: Sample, known: Sequence[Argument]) -> tuple[Outputs, list[Call]]:
        """The outputs of the module, and the calls of kernels in the order of the plan."""
        errors = Errors(self._functions)
        calls: list[Call] = []

        def watch(op: ir.Operation, operands: Sequence[object], results: Sequence[object]) -> None:
            if op.name != "func.call":
                return
            name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            whole = _TIES if self._kind(name) == "quantize" else {}
            own = errors.of_results(self._functions[name])
            expected = tuple(
                Expected(array, error, whole=whole.get(array.dtype.name, 0))
                for array, error in zip(map(plain, results), own, strict=True)
            )
            given = tuple(map(plain, operands))
            calls.append(Call(len(calls), name, given, expected, describe_location(op.location), sample))

        outputs = evaluate_outputs(self._module, sample, known, conditioning=True, errors=errors, watch=watch)
        return outputs, calls

    def _kind(self, kernel: str) -> str:
        return str(python_value(self._functions[kernel].attributes[CLASS]))

    def _conditioned(self, call: Call) -> tuple[Expected, ...]:
        """The results of a call, with tolerances for how the kernel amplifies errors of its operands."""
        function = self._functions[call.kernel]
        known = arguments(function)
        given = {a.name: value for a, value in zip(known, call.operands, strict=True)}
        moved = perturbed(Sample("", given), known).values
        again = [plain(v) for v in interpret(self._module, moved, function=call.kernel).values()]
        return tuple(
            Expected(own.array, own.relative, distance(own.array, other), own.whole)
            for own, other in zip(call.results, again, strict=True)
        )

    # -- kernels ------------------------------------------------------------------------------------------------------

    def check_preparation(self, sample: Sample) -> None:
        """Raises NumericError where the run time prepares a parameter differently than @prepare says."""
        function = next((f for f in self._functions.values() if role(f) == PREPARE), None)
        if function is None:
            return
        values = {a.name: sample.values[a.name] for a in arguments(function)}
        want = interpret(self._module, values, function=function_name(function))
        found = prepare(self._artifact.preparation, values, {})
        for name, value in want.items():
            array = plain(value)
            gap = difference(Expected(array, 1e-6), found[name].view(array.dtype))
            if gap is not None:
                raise NumericError(
                    f"preparation of parameter '{name}' differs from @{function_name(function)}: {gap}",
                    culprit=name,
                    sample=str(sample),
                )

    def check_call(self, call: Call) -> None:
        """Raises NumericError where a kernel's code gives something else than its operations do."""
        self.checked[call.kernel] += 1
        found = self._run(call)
        for number, (expected, array) in enumerate(zip(self._conditioned(call), found, strict=True)):
            gap = difference(expected, array)
            if gap is not None:
                template = self._artifact.templates.get(call.kernel, "")
                place = f", called in {call.where}" if call.where else ""
                raise NumericError(
                    f"kernel '{call.kernel}' ({template}) differs from its operations: result {number} {gap} "
                    f"({call.sample}){place}\n{self._text(call.kernel)}",
                    culprit=call.kernel,
                    sample=str(call.sample),
                )

    def _text(self, kernel: str) -> str:
        return str(self._functions[kernel]).strip()

    def _tied(self, kernel: str, count: int) -> list[int]:
        attributes = self._functions[kernel].attributes
        return list(attributes[TIED]) if TIED in attributes else [-1] * count

    def _run(self, call: Call) -> list[np.ndarray]:
        """The results of a kernel's code on the operands of a call."""
        operands = [_aligned(array) for array in call.operands]
        results = [empty_aligned(own.array.shape, own.array.dtype) for own in call.results]
        tied = self._tied(call.kernel, len(results))
        for result, operand in zip(results, tied, strict=True):
            if operand >= 0:
                np.copyto(result, operands[operand])
        sizes = self._dynamic(call)
        key = (call.kernel, tuple(sizes))
        if key not in self._plans:
            outputs = {operand: number for number, operand in enumerate(tied) if operand >= 0}
            buffers: list[Buffer] = [
                ("output", outputs[i], 0) if i in outputs else ("input", i, 0) for i in range(len(operands))
            ]
            buffers += [("output", i, 0) for i in range(len(results))]
            self._plans[key] = native.Plan(
                self._code,
                symbols=[(f"d{i}", max(size, 1)) for i, size in enumerate(sizes)],
                arena_bytes=0,
                slots=[],
                kernels=[call.kernel],
                inputs=[f"operand {i}" for i in range(len(operands))],
                params=[],
                outputs=[f"result {i}" for i in range(len(results))],
                calls=[(0, buffers, [[(1, [i])] for i in range(len(sizes))], None)],
                threads=1,
            )
        with self._linked.guarded():
            self._plans[key].run(_addresses(operands), [], _addresses(results), sizes)
        return results

    def _dynamic(self, call: Call) -> list[int]:
        """The sizes of the dynamic dimensions of operands and results, in order."""
        type = ir.FunctionType(ir.TypeAttr(self._functions[call.kernel].attributes["function_type"]).value)
        arrays = [*call.operands, *(own.array for own in call.results)]
        return [
            array.shape[axis]
            for kind, array in zip([*type.inputs, *type.results], arrays, strict=True)
            for axis in range(array.ndim)
            if kind.is_dynamic_dim(axis)
        ]

    # -- the plan -----------------------------------------------------------------------------------------------------

    def find_call(self, sample: Sample, calls: Sequence[Call]) -> str:
        """Which call of the plan goes wrong, as text: its calls run one by one, with their memory in the open."""
        if self._artifact.blocks:
            return "the plan has loops or branches: its calls can't be run one by one"
        memory = _Memory(self._artifact, self._code, for_module(self._module, sample))
        for call in calls:
            for place, array, expected in memory.operands(call):
                if difference(Expected(expected, 1e-3), array) is not None:
                    writer = memory.writer(place, call.number)
                    named = f" by call {writer}, of '{calls[writer].kernel}'" if writer is not None else ""
                    return (
                        f"call {call.number} of the plan, of kernel '{call.kernel}' {call.where}, doesn't find its "
                        f"operand in {_described(place)}: the memory was overwritten{named}, or is another's"
                    )
            memory.run(call.number)
            for place, array, expected in memory.results(call):
                if difference(Expected(expected, 1e-3), array) is not None:
                    return (
                        f"call {call.number} of the plan, of kernel '{call.kernel}' {call.where}, gives something else "
                        f"in {_described(place)} than it does alone: it overwrites its operands, or its sizes are wrong"
                    )
        return "each call of the plan is right where the calls run one by one"


Place = tuple[str, int, int]  # the source, its number, and an offset in bytes


class _Memory:
    """The buffers of a plan as arrays, in which its calls run one at a time."""

    def __init__(self, artifact: Artifact, code: native.ObjectCode, values: Mapping[str, np.ndarray]) -> None:
        self._artifact = artifact
        prepared = prepare(artifact.preparation, values, {})
        inputs = {spec.name: _aligned(values[spec.name]) for spec in artifact.inputs}
        params = [
            _aligned(prepared[s.name] if s.name in prepared else values[s.name]) for s in artifact.plan_parameters
        ]
        self._sizes = _sizes(artifact, [*artifact.inputs, *artifact.plan_parameters], [*inputs.values(), *params])
        outputs = []
        for spec in artifact.outputs:
            shape = tuple(evaluate(size, self._sizes) for size in spec.sizes)
            outputs.append(empty_aligned(shape, DTYPES[spec.dtype]))
            if spec.tied is not None and spec.updated:
                np.copyto(outputs[-1], values[spec.tied])
        arena = empty_aligned((artifact.arena_bytes,), np.dtype(np.uint8))
        self._arrays = {"input": list(inputs.values()), "param": params, "output": [*outputs, arena]}
        self._plans = [self._single(code, call) for call in artifact.calls]

    def _single(self, code: native.ObjectCode, call: PlannedCall) -> RunPlan:
        """A plan of one call, whose arena is one more output: its memory can be read then."""
        artifact = self._artifact
        kernel, buffers, dims, work = call
        arena = len(artifact.outputs)
        places = [self._place(buffer) for buffer in buffers]
        open_buffers: list[Buffer] = [
            ("output", arena, at) if kind == "arena" else (kind, n, at) for kind, n, at in places
        ]
        return native.Plan(
            code,
            symbols=artifact.symbols,
            arena_bytes=0,
            slots=[],
            kernels=artifact.kernels,
            inputs=[spec.name for spec in artifact.inputs],
            params=[spec.name for spec in artifact.plan_parameters],
            outputs=[*(spec.name for spec in artifact.outputs), "arena"],
            calls=[(kernel, open_buffers, dims, work)],
            threads=1,
        )

    def _place(self, buffer: Place) -> Place:
        kind, number, offset = buffer
        return (kind, 0, self._artifact.slots[number][0] + offset) if kind == "arena" else (kind, number, offset)

    def run(self, number: int) -> None:
        """Runs one call of the plan."""
        arrays = self._arrays
        addresses = [_addresses(arrays[kind]) for kind in ("input", "param", "output")]
        self._plans[number].run(*addresses, self._sizes)

    def operands(self, call: Call) -> list[tuple[Place, np.ndarray, np.ndarray]]:
        """Where each operand of a call is, what is there, and what should be."""
        return self._values(call, 0, call.operands)

    def results(self, call: Call) -> list[tuple[Place, np.ndarray, np.ndarray]]:
        """Where each result of a call is, what is there, and what should be."""
        return self._values(call, len(call.operands), [own.array for own in call.results])

    def _values(
        self, call: Call, start: int, wanted: Sequence[np.ndarray]
    ) -> list[tuple[Place, np.ndarray, np.ndarray]]:
        buffers = self._artifact.calls[call.number][1][start : start + len(wanted)]
        found = []
        for buffer, array in zip(buffers, wanted, strict=True):
            place = self._place(buffer)
            kind, number, offset = place
            whole = self._arrays["output"][-1] if kind == "arena" else self._arrays[kind][number]
            raw = whole.reshape(-1).view(np.uint8)[offset : offset + array.nbytes]
            found.append((place, raw.view(array.dtype).reshape(array.shape), array))
        return found

    def writer(self, place: Place, before: int) -> int | None:
        """The last call before another one that wrote to memory around a place in the arena."""
        kind, _, offset = place
        if kind != "arena":
            return None
        for number in reversed(range(before)):
            for own, slot, _ in self._artifact.calls[number][1]:
                if own == "arena":
                    start, size = self._artifact.slots[slot]
                    if start <= offset < start + size and self._is_result(number, slot):
                        return number
        return None

    def _is_result(self, number: int, slot: int) -> bool:
        """Whether the call is the first one that has the buffer: it writes it."""
        return not any(
            own == "arena" and other == slot for call in self._artifact.calls[:number] for own, other, _ in call[1]
        )


def _described(place: Place) -> str:
    kind, number, offset = place
    return f"the arena at byte {offset}" if kind == "arena" else f"{kind} {number}"


def _sizes(artifact: Artifact, specs: Sequence[BufferSpec], arrays: Sequence[np.ndarray]) -> list[int]:
    """The size of each symbol of a plan, from the shapes of what has it."""
    found: dict[str, int] = {}
    for spec, array in zip(specs, arrays, strict=True):
        found.update({word: size for word, size in zip(spec.shape, array.shape, strict=True) if isinstance(word, str)})
    return [found[name] for name, _ in artifact.symbols]


def _aligned(array: np.ndarray) -> np.ndarray:
    copy = empty_aligned(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def _addresses(arrays: Sequence[np.ndarray]) -> list[int]:
    return [array.ctypes.data for array in arrays]
