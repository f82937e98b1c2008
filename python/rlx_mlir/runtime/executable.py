# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled modules that run: parameters are set once, then each call gives inputs and gets outputs, as arrays."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rlx_mlir import checks, native
from rlx_mlir.arrays import as_array, element_word, host_arrays
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import ExecutionError, InputError, StageError, did_you_mean, reason_of
from rlx_mlir.place import located
from rlx_mlir.runtime import shown
from rlx_mlir.runtime.artifact import Artifact, BufferSpec
from rlx_mlir.runtime.description import RunArray, check_description, check_prepared, described, plan_of
from rlx_mlir.runtime.dispatch import DispatchReport, dispatch_report
from rlx_mlir.runtime.own import Linked, RunPlan
from rlx_mlir.runtime.prepare import Prepared, Shared, prepare
from rlx_mlir.runtime.processor import check_target
from rlx_mlir.runtime.sizes import evaluate, symbols_of
from rlx_mlir.runtime.tiles import ATTENTION_AMX, GEMM_AMX, request_tiles

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Array = np.ndarray

#: Of the symbols, by name: the size, and what has it.
Sizes = dict[str, tuple[int, str]]

#: The sizes of an array, in places where all of a specification's are numbers: it has no symbols, or they have sizes.
Shape: TypeAlias = tuple[Any, ...]

#: Where empty arrays are said to be: numpy gives some of them no address, and nothing is read there.
_NOWHERE = np.zeros(64, np.uint8)


#: Bytes from which on zeros are pages of their own, and from which on these are large ones, as numpy has them.
_MAPPED, _HUGE = 1 << 17, 1 << 22


def _mapped_zeros(size: int) -> mmap.mmap:
    """Pages of zeros, which the system takes back when they go.

    What an allocator keeps for later isn't zero: it would be written at once, and never given back. Raises MemoryError
    where the system gives none.
    """
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{size} bytes of zeros: {reason_of(error)}") from None
    if size >= _HUGE:
        with contextlib.suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def empty_aligned(shape: Sequence[int], dtype: np.dtype) -> Array:
    """An uninitialised array whose data starts at a multiple of 64 bytes."""
    return _placed_array(shape, dtype, math.prod(shape) * dtype.itemsize)[0]


def _placed_array(shape: Sequence[int], dtype: np.dtype, size: int) -> tuple[Array, int]:
    """An uninitialised array of so many bytes, whose data starts at a multiple of 64, and where that is."""
    raw = np.empty(size + 64, np.uint8)
    start = address_of(raw)
    offset = -start % 64
    return np.ndarray(shape, dtype, raw, offset), start + offset


@dataclass(frozen=True)
class Parameters:
    """What `set_params` sets: kept together, so that a call sees all of the old ones or all of the new ones."""

    arrays: tuple[RunArray, ...] = ()
    addresses: list[int] = field(default_factory=list)
    sizes: Sizes = field(default_factory=dict)

    @cached_property
    def spans(self) -> tuple[list[int], list[int]]:
        """Where the arrays start, in order, and how far those up to each one reach."""
        spans = sorted((at, at + a.nbytes) for a, at in zip(self.arrays, self.addresses, strict=True) if a.nbytes)
        return [start for start, _ in spans], list(accumulate((end for _, end in spans), max))

    @cached_property
    def shared(self) -> frozenset[int]:
        """Numbers of the parameters that share memory with another one."""
        placed = enumerate(zip(self.arrays, self.addresses, strict=True))
        ordered = sorted((at, at + array.nbytes, number) for number, (array, at) in placed)
        found: set[int] = set()
        reach, last = 0, -1  # how far those before reach, and which one that is
        for start, end, number in ordered:
            if start < reach and end > start:
                found |= {last, number}
            if end > reach:
                reach, last = end, number
        return frozenset(found)

    def overlap(self, start: int, end: int, own: int | None = None) -> bool:
        """Whether a parameter lies in a range of memory; another one, of the range of parameter number `own`."""
        if own is not None:
            return own in self.shared
        starts, reach = self.spans
        number = bisect_left(starts, end)
        return number > 0 and reach[number - 1] > start


class BoundCall:
    """A call whose arrays are decided; `Executable.bind` makes one.

    Attributes:
        inputs: the arrays that a call reads, by name.
        results: the arrays that it writes, by name.
    """

    def __init__(
        self,
        plan: RunPlan,
        inputs: Mapping[str, object],
        results: dict[str, RunArray],
        parameters: Parameters,
        arguments: tuple[object, ...],
    ) -> None:
        self.inputs = inputs
        self.results = results
        self._plan = plan
        self._parameters = parameters  # keeps their memory
        self._arguments = arguments

    @located
    def __call__(self) -> dict[str, RunArray]:
        """Runs the module on what the inputs hold now; other threads of Python go on meanwhile.

        Raises InputError, before anything runs, where positions name rows that a table or cache doesn't have.
        """
        self._plan.run(*self._arguments)
        return self.results


class Executable(checks.Unpicklable):
    """A compiled module.

    Calls from several threads are safe: they share one arena, and take turns. Parameters are copied or prepared by
    `set_params`; arrays that are used as they are must not be changed afterwards, but by calls that donate them.
    """

    _instead = "save its 'artifact', which other processes load"

    @located
    def __init__(self, artifact: Artifact, *, threads: int | None = None) -> None:
        """Loads the code.

        Args:
            artifact: what the compiler made, or a cache kept.
            threads: of one call; None for as many as the process may use.

        Raises ExecutionError where the code isn't for this machine, InputError where `threads` is no number of them.
        """
        check_description(artifact)
        check_target(artifact)
        if (
            any(name.startswith((GEMM_AMX, ATTENTION_AMX)) for name in artifact.templates.values())
            and not request_tiles()
        ):
            raise ExecutionError(
                f"the code of '{artifact.name}' uses AMX tiles, which the operating system doesn't lend: compile it "
                "again, on this machine"
            )
        check_threads(threads)
        self.artifact = artifact
        with described(artifact):
            linked = Linked(artifact)
            try:
                plan = native.Plan(linked.code, **plan_of(artifact), threads=threads or 0)
            except ExecutionError as error:
                sizes = ", ".join(f"{symbol} = {size}" for symbol, size in artifact.symbols)
                hint = f"; it was compiled for sizes up to {sizes}: 'maxima' declares others" if sizes else ""
                raise ExecutionError(f"'{artifact.name}': {error}{hint}") from None
        self._plan: RunPlan = linked.guard(plan)
        self._maxima = dict(artifact.symbols)
        self._bound: Parameters | None = None
        if not artifact.parameters:  # but perhaps constants are prepared
            self.set_params({})

    def __repr__(self) -> str:
        return shown.line(type(self).__name__, self.artifact, *self._state())

    def _repr_html_(self) -> str:
        return shown.table(type(self).__name__, self.artifact, *self._state())

    def _state(self) -> tuple[str, ...]:
        """What `repr` says beside the artefact's facts."""
        return (f"threads={self.threads}", *(("parameters not set",) if self._bound is None else ()))

    @property
    def inputs(self) -> tuple[BufferSpec, ...]:
        """What a call needs."""
        return self.artifact.inputs

    @property
    def outputs(self) -> tuple[BufferSpec, ...]:
        """What a call gives."""
        return self.artifact.outputs

    @property
    def params(self) -> tuple[BufferSpec, ...]:
        """What `set_params` needs."""
        return self.artifact.parameters

    @property
    def plan_params(self) -> dict[str, RunArray] | None:
        """What calls read, by name: parameters as `set_params` has prepared them; None before."""
        bound = self._bound
        if bound is None:
            return None
        return {spec.name: array for spec, array in zip(self.artifact.plan_parameters, bound.arrays, strict=True)}

    @property
    def threads(self) -> int:
        """Threads that one call uses at most."""
        return int(self._plan.threads)

    def zeros(self, shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> RunArray:
        """Zeros where a call reads and writes them best: what stays between calls, such as caches.

        On CPUs, data starts at a multiple of 64 bytes, and memory of large arrays is taken when it is first written.
        """
        shape, dtype = checks.sizes("shape", shape), checks.element_type("dtype", dtype)
        size = math.prod(shape) * dtype.itemsize
        if size >= _MAPPED:
            return np.ndarray(shape, dtype, _mapped_zeros(size))
        raw = np.zeros(size + 64, np.uint8)
        return np.ndarray(shape, dtype, raw, -raw.ctypes.data % 64)

    @located
    def set_params(self, params: Mapping[str, object], *, shared: Shared | None = None) -> None:
        """Binds every parameter, and prepares those that the code wants in another layout.

        Args:
            params: arrays by name: dense ones of the declared shape and element type, packed ones as bytes
                [rows, bytes of a row] (int8 or uint8).
            shared: a dictionary, empty at first, of prepared parameters to be taken from and added to: executables
                that get equal parameters and the same dictionary keep one copy. Parameters are told apart by their
                contents, those in a file that is mapped to be read by where they are.

        Raises InputError where one is missing, unknown, or of another shape or type; then the old ones stay.
        """
        self._check_names("parameter", params, self.params)
        if shared is not None and not (
            isinstance(shared, MutableMapping) and all(isinstance(known, Prepared) for known in shared.values())
        ):
            raise InputError(f"'shared' is a dictionary that set_params fills, or None, but got {checks.shown(shared)}")
        sizes: Sizes = {}
        sources = {spec.name: self._checked("parameter", spec, params[spec.name], sizes) for spec in self.params}
        with described(self.artifact):
            prepared = prepare(self.artifact.preparation, sources, shared)
        for spec in self.artifact.plan_parameters:
            check_prepared(spec, prepared[spec.name] if spec.name in prepared else sources[spec.name])
        arrays = tuple(
            prepared[spec.name] if spec.name in prepared else sources[spec.name]
            for spec in self.artifact.plan_parameters
        )
        self._bound = Parameters(arrays, [address_of(array) for array in arrays], sizes)

    @located
    def set_prepared(self, arrays: Sequence[Array]) -> None:
        """Binds parameters that were prepared before, as a bundle keeps them: nothing is computed or copied.

        Args:
            arrays: contiguous ones, in the order of the artefact's ``plan_parameters``, of their shapes and element
                types.

        Raises InputError where there are others, fewer or more of them; then the old ones stay.
        """
        specs = self.artifact.plan_parameters
        if not isinstance(arrays, Sequence) or not all(isinstance(array, np.ndarray) for array in arrays):
            raise InputError(f"'arrays' are several arrays of numpy, but got {checks.shown(arrays)}")
        if len(arrays) != len(specs):
            raise InputError(f"'{self.artifact.name}' reads {len(specs)} prepared parameters, but got {len(arrays)}")
        sizes: Sizes = {}
        for spec, array in zip(specs, arrays, strict=True):
            named = f"prepared parameter '{spec.name}'"
            self._check_fits(named, spec, array, sizes)
            if not _is_readable(array):
                raise InputError(f"{named} is a contiguous, aligned array, but got strides {array.strides}")
        self._bound = Parameters(tuple(arrays), [address_of(array) for array in arrays], sizes)

    @property
    def prepared(self) -> tuple[Array, ...]:
        """The parameters as the code reads them, in the order of the artefact's ``plan_parameters``.

        Raises StageError where they aren't set yet.
        """
        if self._bound is None:
            raise StageError(f"'{self.artifact.name}' has no parameters yet: call set_params before")
        return self._bound.arrays

    @located
    def run(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | None = None,
        donate: Collection[str] = (),
    ) -> dict[str, RunArray]:
        """Runs the module once; other threads of Python go on meanwhile.

        Args:
            inputs: arrays by name (numpy, or anything with DLPack); copied only where not contiguous.
            outputs: arrays to write some of the results to, by name (likewise; of libraries whose DLPack says that
                memory may be written); the others are allocated. They may share memory with nothing that the call
                reads.
            donate: names of inputs and parameters whose memory outputs tied to them take: caches updated in place, and
                parameters that an optimiser's step makes new values of, which later calls read.

        Returns:
            The results by name, in the order of the module's outputs: arrays of numpy, or those that `outputs` has.

        Raises InputError, which names the input and the rule, where one is missing, unknown, of another shape or type,
        where sizes with one symbol differ, where a size exceeds its declared maximum, or where positions name rows that
        a table or cache doesn't have. Raises StageError where parameters aren't set yet.
        """
        plain = outputs is None and isinstance(donate, tuple) and not donate
        if plain and (results := self._run_plain(inputs)) is not None:
            return results
        given = {} if outputs is None else outputs
        results = self._arrange(host_arrays("input", inputs), host_arrays("output", given), donate)()
        return {name: given.get(name, result) for name, result in results.items()} if given else results

    @located
    async def run_async(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | None = None,
        donate: Collection[str] = (),
    ) -> dict[str, RunArray]:
        """`run` where there is an event loop, which goes on meanwhile: it takes, gives and raises the same.

        Calls of one executable run one after the other, in the order in which they were begun, on a thread of its own.
        One that is cancelled before its turn doesn't run; another one does to its end, and its arrays are in use until
        then.
        """
        import asyncio

        call = partial(self.run, inputs, outputs=outputs, donate=donate)
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)

    @cached_property
    def _worker(self) -> ThreadPoolExecutor:
        """The thread of asynchronous calls, which ends with the executable."""
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(1, thread_name_prefix=f"rlx {self.artifact.name}")

    def _run_plain(self, inputs: Mapping[str, object]) -> dict[str, Array] | None:
        """A call whose sizes all are numbers, on arrays that can be read as they are; None for any other one, of which
        nothing was done. A small kernel takes a few microseconds, as long as all checks of a call."""
        bound, plain = self._bound, self._plain
        if bound is None or plain is None or type(inputs) is not dict or len(inputs) != len(plain[0]):
            return None
        addresses = []
        for name, shape, dtype in plain[0]:
            value = inputs.get(name)
            if type(value) is not np.ndarray or value.shape != shape or value.dtype != dtype or not _is_readable(value):
                return None
            addresses.append(address_of(value))
        results, into = {}, []
        for name, shape, dtype, size in plain[1]:
            results[name], start = _placed_array(shape, dtype, size)
            into.append(start)
        self._plan.run(addresses, bound.addresses, into, [])
        return results

    @located
    def bind(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | None = None,
        donate: Collection[str] = (),
    ) -> BoundCall:
        """A call that can be repeated without checking its arrays again: write new inputs into them, and call it.

        Args:
            inputs, outputs, donate: as for `run`; results that have no array are allocated, once. Inputs are
                contiguous arrays; those that are updated in place have to be donated.

        Raises what `run` raises, before anything runs.
        """
        inputs = host_arrays("input", inputs)
        arranged = self._arrange(inputs, host_arrays("output", {} if outputs is None else outputs), donate)
        self._check_bound(arranged, inputs, donate)
        return arranged

    def _check_bound(self, arranged: BoundCall, inputs: Mapping[str, object], donate: Collection[str]) -> None:
        """Raises InputError where a call can't be repeated on its arrays."""
        for name, array in arranged.inputs.items():
            if array is not inputs[name]:
                raise InputError(f"input '{name}' of a bound call is a contiguous array, to be written into")
        for spec in self.outputs:
            if spec.updated and spec.tied not in donate:
                raise InputError(f"a bound call donates what results are tied to: '{spec.tied}', for '{spec.name}'")

    def _arrange(
        self, inputs: Mapping[str, object], outputs: Mapping[str, Array], donate: Collection[str]
    ) -> BoundCall:
        """Checks everything about a call, and copies what outputs start with."""
        bound, arrays, ordered = self._check_inputs(inputs, outputs, donate)
        results = self._results(bound, arrays, outputs, donate, ordered)
        addresses = [address_of(array) for array in arrays.values()]
        into = [address_of(array) for array in results.values()]
        self._check_apart(bound, outputs, donate, arrays, addresses, results, into)
        return BoundCall(self._plan, arrays, results, bound, (addresses, bound.addresses, into, ordered))

    @located
    def __call__(self, *arrays: object, **inputs: object) -> Array | tuple[Array, ...]:
        """Runs the module on inputs in their order, by keyword, or the first ones in order and the others by keyword.

        Returns the result, or a tuple where there are several. Raises what `run` raises.
        """
        results = tuple(self.run(self._named(arrays, inputs) if arrays else inputs).values())
        return results[0] if len(results) == 1 else results

    def _named(self, arrays: Sequence[object], inputs: Mapping[str, object]) -> dict[str, object]:
        """Inputs by name; InputError where there are more than the module has, or one is given twice."""
        names = [spec.name for spec in self.inputs]
        if len(arrays) > len(names):
            listed = ", ".join(names) or "none"
            raise InputError(f"'{self.artifact.name}' has {len(names)} inputs, {listed}, but got {len(arrays)} arrays")
        for name in names[: len(arrays)]:
            if name in inputs:
                raise InputError(f"input '{name}' of '{self.artifact.name}' is given by position and by keyword")
        return {**dict(zip(names, arrays, strict=False)), **inputs}

    def profile(self, enabled: bool = True) -> None:
        """Starts or stops measuring each call; `timings` and `dispatch_report` then say how long kernels took."""
        self._plan.profile(checks.flag("enabled", enabled))

    def timings(self) -> list[tuple[str, float]]:
        """(kernel, seconds per run) of each call since `profile(True)`."""
        runs, nanoseconds = self._plan.timings()
        return [(name, ns * 1e-9 / max(runs, 1)) for name, ns in zip(self._plan.calls, nanoseconds, strict=True)]

    @located
    def dispatch_report(self, sizes: Mapping[str, int] | None = None) -> DispatchReport:
        """How each kernel got its code, and how much of the work it does; printed, it is a table.

        Args:
            sizes: of symbols, for the estimates of work; their declared maxima by default.

        Times are in it where calls were profiled. Raises InputError where `sizes` names an unknown symbol.
        """
        measured: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self.timings():
            measured[name] += seconds
        scratch = self._plan.scratch_bytes * self.threads
        return dispatch_report(self.artifact, sizes, measured if any(measured.values()) else None, scratch)

    # -- checks ------------------------------------------------------------------------------------------------------

    @cached_property
    def _input_names(self) -> frozenset[str]:
        return frozenset(spec.name for spec in self.inputs)

    @cached_property
    def _plain(self) -> tuple[list[tuple[str, Shape, np.dtype]], list[tuple[str, Shape, np.dtype, int]]] | None:
        """Names, shapes and types of the inputs, and of the outputs, with their bytes, where those are all that a call
        depends on."""
        artifact = self.artifact
        if artifact.symbols or artifact.conditions or any(spec.tied is not None for spec in self.outputs):
            return None
        read = [(spec.name, spec.shape, DTYPES[spec.dtype]) for spec in self.inputs]
        written = [(spec.name, tuple(spec.shape), DTYPES[spec.dtype]) for spec in self.outputs]
        if any(isinstance(size, str) for _, shape, _ in (*read, *written) for size in shape):
            return None
        return read, [
            (name, shape, dtype, math.prod(map(int, shape)) * dtype.itemsize) for name, shape, dtype in written
        ]

    @cached_property
    def _parameter_numbers(self) -> dict[str, int]:
        """By name, the parameters that calls read."""
        return {spec.name: number for number, spec in enumerate(self.artifact.plan_parameters)}

    @cached_property
    def _written_ties(self) -> dict[str, str]:
        """By output, what it is tied to, where calls write it: an argument that is returned as it is stays so."""
        written = {number for _, buffers, *_ in self.artifact.calls for kind, number, *_ in buffers if kind == "output"}
        outputs = (spec for number, spec in enumerate(self.outputs) if number in written)
        return {spec.name: spec.tied for spec in outputs if spec.tied is not None}

    def _check_names(self, what: str, given: object, specs: Sequence[BufferSpec]) -> None:
        if not isinstance(given, Mapping):
            raise InputError(
                f"{what}s of '{self.artifact.name}' are a mapping from names to arrays, but got {type(given).__name__}"
            )
        names = {spec.name: None for spec in specs}
        if given.keys() == names.keys():
            return
        missing = [name for name in names if name not in given]
        unknown = [str(name) for name in given if name not in names]
        parts = [f"missing {what}s: {', '.join(missing)}"] if missing else []
        if unknown:
            guessed = [name + did_you_mean(name, missing or names) for name in unknown[:12]] + unknown[12:]
            parts.append(f"unknown {what}s: {', '.join(guessed)}; known are {', '.join(names) or 'none'}")
        raise InputError(f"'{self.artifact.name}': {'; '.join(parts)}")

    def _check_inputs(
        self, inputs: Mapping[str, object], outputs: Mapping[str, object], donate: Collection[str]
    ) -> tuple[Parameters, dict[str, RunArray], list[int]]:
        """The parameters, the inputs as arrays, and the sizes of the symbols in order, where a call may have them."""
        bound = self._bound
        if bound is None:
            raise StageError(f"'{self.artifact.name}' needs its parameters: call set_params before it runs")
        if type(inputs) is not dict or inputs.keys() != self._input_names:
            self._check_names("input", inputs, self.inputs)
        if type(outputs) is not dict:
            checks.mapping("outputs", outputs, "a mapping from outputs to arrays")
        if type(donate) is not tuple or donate:
            checks.names("donate", donate)
        sizes = dict(bound.sizes)
        arrays = {spec.name: self._checked("input", spec, inputs[spec.name], sizes) for spec in self.inputs}
        ordered = self._ordered(sizes)
        self._check_conditions(ordered, sizes)
        self._check_given(bound, inputs, arrays, outputs, donate)
        return bound, arrays, ordered

    def _check_apart(
        self,
        bound: Parameters,
        outputs: Mapping[str, object],
        donate: Collection[str],
        arrays: Mapping[str, RunArray],
        addresses: Sequence[int],
        results: Mapping[str, RunArray],
        into: Sequence[int],
    ) -> None:
        """Raises InputError where memory that a call writes is read or written under another name, too.

        `addresses` and `into` are those of the arrays that it reads, and of the results.
        """
        if not outputs and not donate:
            return
        own = {name: tied for name, tied in self._written_ties.items() if tied in donate}
        taken = set(own.values())
        spans = []
        for (name, array), start in zip(arrays.items(), addresses, strict=True):
            size = array.nbytes
            if size and name not in taken:
                spans.append((start, start + size, "", name))
        for (name, array), start in zip(results.items(), into, strict=True):
            size = array.nbytes
            if size and (name in outputs or name in own):
                number = self._parameter_numbers.get(own[name]) if name in own else None
                if bound.overlap(start, start + size, number):
                    raise InputError(f"output '{name}' shares memory with a parameter")
                spans.append((start, start + size, name, name))
        spans.sort()
        # In the order of their starts: how far those before reach that are read, and written, and whose that is.
        read = written = 0
        reader = writer = ""
        for start, end, output, name in spans:
            if (output and start < read) or start < written:
                kind = "output" if output else "input"
                other = f"input '{reader}'" if output and start < read else f"output '{writer}'"
                raise InputError(f"{kind} '{name}' and {other} share memory, but what a call writes is its alone")
            if output and end > written:
                written, writer = end, name
            elif not output and end > read:
                read, reader = end, name

    def _checked(self, what: str, spec: BufferSpec, value: object, sizes: Sizes) -> Array:
        """The value as a contiguous array that fits the specification; notes the sizes of symbols."""
        if type(value) is np.ndarray and value.shape == spec.shape and value.dtype == DTYPES[spec.dtype]:
            return value if _is_readable(value) else np.array(value, order="C")
        named = f"{what} '{spec.name}'"
        array = as_array(named, value)
        self._check_fits(named, spec, array, sizes)
        # Not only contiguous: compiled code reads whole elements.
        return array if _is_readable(array) else np.array(array, order="C")

    def _check_fits(self, named: str, spec: BufferSpec, array: RunArray, sizes: Sizes) -> None:
        """Raises InputError where shape or element type don't fit the specification; notes the sizes of symbols."""
        dtype = DTYPES[spec.dtype]
        if array.dtype != dtype and not (spec.packed and array.dtype == np.uint8):
            word = "int8 or uint8" if spec.packed else dtype.name
            raise InputError(f"{named} has element type {word}, but got {element_word(array.dtype)}")
        if array.ndim != len(spec.shape):
            raise InputError(
                f"{named} has {len(spec.shape)} dimensions, {_listed(spec.shape)}, but got {_listed(array.shape)}"
            )
        for axis, (expected, size) in enumerate(zip(spec.shape, array.shape, strict=True)):
            if isinstance(expected, int):
                if size != expected:
                    raise InputError(
                        f"{named} has size {expected} in dimension {axis} of {_listed(spec.shape)}, but got "
                        f"{_listed(array.shape)}"
                    )
                continue
            known, source = sizes.setdefault(expected, (size, named))
            if known != size:
                raise InputError(
                    f"symbol '{expected}' is {known} in {source}, but {size} in {named} (dimension {axis} of "
                    f"{_listed(array.shape)})"
                )
            maximum = self._maxima.get(expected)
            if maximum is not None and size > maximum:
                raise InputError(
                    f"{named} has size {size} in dimension {axis}, but '{expected}' was compiled for at most "
                    f"{maximum}: compile with maxima={{'{expected}': {size}}}"
                )

    def _ordered(self, sizes: Sizes) -> list[int]:
        """The sizes of the plan's symbols."""
        try:
            return [sizes[name][0] for name, _ in self.artifact.symbols]
        except KeyError as error:
            raise ExecutionError(f"nothing that '{self.artifact.name}' gets has the symbol {error}") from None

    def _check_conditions(self, ordered: list[int], sizes: Sizes) -> None:
        """Raises InputError where sizes that meet in an operation don't fit: code relies on that."""
        for own in self.artifact.conditions:
            left, right = (evaluate(terms, ordered) for _, terms in (own.left, own.right))
            if left >= right if own.at_least else left == right:
                continue
            rule = "is at least" if own.at_least else "is equal to"
            numbers = sorted(symbols_of(own.left[1]) | symbols_of(own.right[1]))
            named = (self.artifact.symbols[number][0] for number in numbers)
            values = ", ".join(f"'{symbol}' is {sizes[symbol][0]} in {sizes[symbol][1]}" for symbol in named)
            raise InputError(
                f"{own.where} expects that {own.left[0]} {rule} {own.right[0]}, but {left} and {right} were given: "
                f"{values}"
            )

    def _check_given(
        self,
        bound: Parameters,
        inputs: Mapping[str, object],
        arrays: Mapping[str, object],
        given: Mapping[str, object],
        donate: Collection[str],
    ) -> None:
        """Raises InputError where what results are to go to has wrong names, or can't be written."""
        names = {spec.name: spec for spec in self.outputs}
        for name in given:
            if name not in names:
                raise InputError(f"'{self.artifact.name}' has no output '{name}'; it has {', '.join(names) or 'none'}")
        if not donate:
            return
        tied = {spec.tied: spec.name for spec in self.outputs if spec.tied is not None}
        for name in donate:
            self._check_donated(name, bound, inputs, arrays, is_tied=name in tied)
            if tied[name] in given:
                raise InputError(
                    f"output '{tied[name]}' goes to the memory of '{name}', which is donated, but an array was given "
                    "for it, too"
                )

    def _check_donated(
        self, name: str, bound: Parameters, inputs: Mapping[str, object], arrays: Mapping[str, object], *, is_tied: bool
    ) -> None:
        """Raises InputError where there is no such argument, no output is tied to it, or it can't be written."""
        number = self._parameter_numbers.get(name)
        if name not in arrays and number is None:
            known = ", ".join((*arrays, *self._parameter_numbers)) or "none"
            raise InputError(f"'{self.artifact.name}' has no input '{name}' to donate; it has {known}")
        named = f"input '{name}'" if number is None else f"parameter '{name}'"
        if not is_tied:
            raise InputError(f"{named} can't be donated: no output of '{self.artifact.name}' is tied to it")
        array = arrays[name] if number is None else bound.arrays[number]
        is_read_only = isinstance(array, np.ndarray) and not array.flags.writeable
        if is_read_only or (number is None and array is not inputs[name]):
            raise InputError(f"{named} can't be donated: only a contiguous, writeable array can")

    def _results(
        self,
        bound: Parameters,
        arrays: Mapping[str, Array],
        given: Mapping[str, Array],
        donate: Collection[str],
        sizes: list[int],
    ) -> dict[str, Array]:
        """The arrays that results go to, by name; those that are updated in place have what they are tied to."""
        results = {}
        for spec in self.outputs:
            if spec.tied is not None and spec.tied in donate:
                results[spec.name] = self._tied_array(spec.tied, bound, arrays)
                continue
            array = given.get(spec.name)
            # Without symbols, all sizes are numbers.
            shape: Shape = tuple(evaluate(size, sizes) for size in spec.sizes) if sizes else tuple(spec.shape)
            if array is None:
                array = empty_aligned(shape, DTYPES[spec.dtype])
            else:
                check_output(spec, array, shape)
            if spec.tied is not None and spec.updated:
                np.copyto(array, self._tied_array(spec.tied, bound, arrays))
            results[spec.name] = array
        return results

    def _tied_array(self, name: str, bound: Parameters, arrays: Mapping[str, RunArray]) -> RunArray:
        """The array of an input or parameter."""
        number = self._parameter_numbers.get(name)
        return arrays[name] if number is None else bound.arrays[number]


def check_threads(threads: object) -> None:
    """Raises InputError where it is neither a number of threads nor None."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads < 2**31):
        raise InputError(f"'threads' expects a positive number, or None, but got {checks.shown(threads)}")


def _is_readable(array: Array) -> bool:
    flags = array.flags
    return flags.c_contiguous and flags.aligned


def check_output(spec: BufferSpec, array: object, shape: tuple[int, ...]) -> None:
    """Raises InputError where a result can't be written to the array that was given for it."""
    dtype = DTYPES[spec.dtype]
    if type(array) is np.ndarray and array.shape == shape and array.dtype == dtype:
        flags = array.flags
        if flags.c_contiguous and flags.aligned and flags.writeable:
            return
    named = f"output '{spec.name}'"
    if not isinstance(array, np.ndarray):
        raise InputError(f"{named} goes to an array of numpy, but got {type(array).__name__}")
    if array.shape != shape or array.dtype != dtype:
        raise InputError(
            f"{named} has shape {_listed(shape)} and element type {dtype}, but got {_listed(array.shape)} and "
            f"{element_word(array.dtype)}"
        )
    if not (_is_readable(array) and array.flags.writeable):
        raise InputError(
            f"{named} goes to a contiguous, aligned, writeable array, but got strides {array.strides}, "
            f"aligned={array.flags.aligned}, writeable={array.flags.writeable}"
        )


def address_of(array: Array) -> int:
    """Where a contiguous array starts, or some address where it has no elements."""
    if not array.size:
        return int(_NOWHERE.ctypes.data)
    try:
        # A quarter of the time of numpy's `ctypes`, which each call takes for every array.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # of memory that is read-only, and of types that Python's buffers don't know
        return int(array.ctypes.data)


def _listed(shape: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, shape))}]"
