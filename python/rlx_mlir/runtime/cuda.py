# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled modules that run on an NVIDIA GPU."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rlx_mlir import native
from rlx_mlir.arrays import host_arrays
from rlx_mlir.chips import OLDEST, chip_of, sm_version
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError, WrongDeviceError
from rlx_mlir.place import located
from rlx_mlir.runtime import cubins
from rlx_mlir.runtime.artifact import Artifact, BufferSpec
from rlx_mlir.runtime.description import RunArray, check_description
from rlx_mlir.runtime.device import ALIGNMENT, Array, DeviceArray, as_device_array, is_device_array
from rlx_mlir.runtime.executable import (
    BoundCall,
    Executable,
    Parameters,
    Sizes,
    address_of,
    check_output,
    empty_aligned,
)
from rlx_mlir.runtime.own import RunPlan
from rlx_mlir.runtime.prepare import Shared, forget_closed, place_source, prepare
from rlx_mlir.runtime.processor import check_target
from rlx_mlir.runtime.runs import InFlight, Run, stream_handle
from rlx_mlir.runtime.sizes import evaluate

#: CUDA graphs that an executable keeps, where nothing else is said.
_GRAPHS = 16
#: Bytes of an input whose sizes nothing reads, and which have no maximum therefore.
_UNBOUNDED = 1 << 62

#: What a run reads or writes: memory of the host, or of the GPU.
AnyArray = Array | DeviceArray


@dataclass(frozen=True)
class _DeviceParameters(Parameters):
    """Parameters on a GPU.

    Attributes:
        values: where a copy on the host is, of those that hold positions; 0 for others.
        kept: these copies.
    """

    values: list[int] = field(default_factory=list)
    kept: tuple[Array, ...] = ()


class DeviceCall(BoundCall):
    """A call on a GPU whose arrays are decided; `CudaExecutable.bind` makes one."""

    def __init__(
        self,
        plan: native.CudaPlan,
        inputs: Mapping[str, object],
        results: dict[str, RunArray],
        parameters: Parameters,
        arguments: tuple[native.CudaArguments, ...],
        known: Mapping[str, Array],
        flight: InFlight,
        name: str,
    ) -> None:
        super().__init__(plan, inputs, results, parameters, arguments)
        self._flight = flight
        self._name = name
        arrays = {id(array): array for array in (*inputs.values(), *results.values())}  # donated ones are in both
        self._on_device = [array for array in arrays.values() if isinstance(array, DeviceArray)]
        owners = tuple(array.owner for array in self._on_device)
        hosts = tuple(array for array in inputs.values() if not isinstance(array, DeviceArray))
        self._kept = (parameters, owners, hosts)
        self._known = known  # keeps their memory

    @located
    def __call__(self, *, wait: bool = True, stream: object = None) -> dict[str, RunArray]:
        """Runs the module on what the inputs hold now; other threads of Python go on meanwhile.

        Args:
            wait, stream: as for `CudaExecutable.run`.

        Raises InputError, before anything runs, where positions name rows that a table or cache doesn't have.
        """
        plan = self._plan
        before = [array.run for array in self._on_device]
        after = {run for run in before if run is not None and run.plan is not plan}
        handle = None if stream is None else stream_handle(stream)
        if not wait:
            self._check_written()
        started = plan.run(self._arguments[0], wait, handle, [run.native for run in after])
        run = None if started is None else Run(started, plan, self._name, self._kept)
        if run is not None:
            self._flight.add(run)
        self._flight.note(self._on_device, before, run)
        return self.results

    def _check_written(self) -> None:
        """Raises InputError where a result goes to memory of the host."""
        for name, array in self.results.items():
            if not isinstance(array, DeviceArray):
                raise InputError(
                    f"output '{name}' of '{self._name}' goes to an array of numpy, which a run with wait=False can't "
                    "write: give a DeviceArray, or none"
                )


class DeviceLoop:
    """Bound calls of one module that are repeated in turn, on the GPU alone; `CudaExecutable.loop` makes one."""

    def __init__(self, calls: Sequence[DeviceCall]) -> None:
        first = calls[0]
        self._plan, self._flight, self._name = first._plan, first._flight, first._name
        self._arguments = [call._arguments[0] for call in calls]
        self._on_device = list({id(array): array for call in calls for array in call._on_device}.values())
        self._kept = tuple(call._kept for call in calls)
        self._known = tuple(call._known for call in calls)  # keeps their memory

    @located
    def __call__(self, count: int, *, first: int = 0, joined: bool = False) -> Run:
        """Starts so many runs, one after the other, and returns: a single call of the run time.

        Args:
            count: of runs.
            first: the number of the call that comes first.
            joined: runs that are repeated like that become one CUDA graph, from the second time on: for numbers of runs
                that come often, as each is a graph of its own.

        Returns:
            The last of the runs, which waits for all of them.

        Raises InputError, before anything runs, where positions name rows that a table or cache doesn't have: `known`
        of the calls says how large they become at most.
        """
        before = [array.run for array in self._on_device]
        after = {run for run in before if run is not None and run.plan is not self._plan}
        last = self._plan.repeat(
            self._arguments, first=first, count=count, joined=joined, after=[run.native for run in after]
        )
        run = Run(last, self._plan, self._name, self._kept)
        self._flight.add(run)
        self._flight.note(self._on_device, before, run)
        return run


class CudaExecutable(Executable):
    """A compiled module on a GPU.

    What `Executable` says holds here, too. Parameters are copied to the GPU once. Inputs are arrays of numpy, or of the
    GPU (`DeviceArray`, or those of other libraries that have `__dlpack__` or `__cuda_array_interface__`), which are
    used where they are; results are arrays of numpy unless others are asked for. A call waits for the GPU unless it is
    told not to.

    A call with sizes and addresses that came before is replayed as a CUDA graph, from the second time on. Arrays of
    numpy have fixed places on the GPU, so only those of the GPU have to stay where they are for that.
    """

    @located
    def __init__(self, artifact: Artifact, *, device: int = 0, graphs: int | None = None) -> None:
        """Loads the code.

        Args:
            artifact: what the compiler made, or a cache kept.
            device: the GPU's number.
            graphs: how many CUDA graphs are kept, the last used ones; 0 for none. None for what the environment's
                RLX_CUDA_GRAPHS says, 16 where it says nothing.

        With RLX_CUDA_SYNC=1 in the environment each launch is waited for, and an error names its kernel.

        Raises DriverMissingError, NoDeviceError or DriverTooOldError where nothing can run, WrongDeviceError where the
        code is for another GPU, DeviceMemoryError where there isn't enough memory, ExecutionError where the host's code
        isn't for this machine.
        """
        if not artifact.chip:
            raise InputError(f"'{artifact.name}' was compiled for CPUs: Executable runs it")
        if graphs is None:
            graphs = _graphs_of_environment()
        elif isinstance(graphs, bool) or not isinstance(graphs, int) or graphs < 0:
            raise InputError(f"'graphs' expects a number that isn't negative, or None, but got {graphs!r}")
        check_description(artifact)
        check_target(artifact)
        self.artifact = artifact
        self._device = native.CudaDevice(device)
        check_chip(artifact, self._device)
        self._maxima = dict(artifact.symbols)
        largest = [size for _, size in artifact.symbols]
        positions = [(p.kind, p.index, p.count[1], p.rows[1], p.limit[1], p.where) for p in artifact.positions]
        self._plan: RunPlan = native.CudaPlan(
            native.ObjectCode([artifact.code]),
            cubins.load(self._device, artifact),
            name=artifact.name,
            symbols=artifact.symbols,
            arena_bytes=artifact.arena_bytes,
            slots=artifact.slots,
            kernels=artifact.kernels,
            inputs=[spec.name for spec in artifact.inputs],
            input_bytes=[self._input_bytes(spec) for spec in artifact.inputs],
            params=[spec.name for spec in artifact.plan_parameters],
            outputs=[spec.name for spec in artifact.outputs],
            output_bytes=[
                math.prod(evaluate(size, largest) for size in spec.sizes) * DTYPES[spec.dtype].itemsize
                for spec in artifact.outputs
            ],
            calls=artifact.calls,
            blocks=[own.words for own in artifact.blocks],
            positions=positions,
            graphs=graphs,
            wait=os.environ.get("RLX_CUDA_SYNC", "") not in ("", "0"),
        )
        self._bound: _DeviceParameters | None = None
        self._flight = InFlight(self._plan)
        if not artifact.parameters:  # but perhaps constants are prepared
            self.set_params({})

    def _input_bytes(self, spec: BufferSpec) -> int:
        """Of an input at the maxima."""
        sizes = [size if isinstance(size, int) else self._maxima.get(size) for size in spec.shape]
        if None in sizes:
            return _UNBOUNDED
        return math.prod(size or 0 for size in sizes) * DTYPES[spec.dtype].itemsize

    @property
    def device(self) -> int:
        """The GPU's number."""
        return self._device.ordinal

    @property
    def threads(self) -> int:
        """Threads of the host that one call uses."""
        return 1

    @property
    def graph_counts(self) -> tuple[int, int, int]:
        """CUDA graphs that are kept, that were made, and calls that were replayed as one."""
        kept, captured, launched = self._plan.graph_counts
        return kept, captured, launched

    def zeros(self, shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> DeviceArray:
        """Zeros on the GPU."""
        return DeviceArray.zeros(shape, dtype, device=self.device)

    @located
    def set_params(self, params: Mapping[str, object], *, shared: Shared | None = None, progress: bool = False) -> None:
        """Copies every parameter to the GPU, those that the code wants in another layout prepared.

        Args:
            params, shared: as for `Executable.set_params`; what executables on one GPU share is there once. Arrays of
                the GPU are used where they are, unless the code wants them in another layout.
            progress: show on stderr how much is copied, where that is a terminal.

        Raises InputError where one is missing, unknown, or of another shape or type, and DeviceMemoryError where there
        isn't enough memory; then the old ones stay.
        """
        self._check_names("parameter", params, self.params)
        sizes: Sizes = {}
        given = {spec.name: self._checked("parameter", spec, params[spec.name], sizes) for spec in self.params}
        preparation, where = self.artifact.preparation, f"on GPU {self.device}: "
        sources = {name: np.asarray(given[name]) for name in preparation.sources}
        forget_closed(shared)
        with _bar(self.artifact.name, sum(array.nbytes for array in given.values()), progress) as advance:
            host: dict[str, Array] = {}

            def place(name: str, array: Array) -> DeviceArray:
                copy = DeviceArray.from_numpy(array, device=self.device, what=f"parameter '{name}'")
                advance(array.nbytes)
                return copy

            tied = {spec.tied for spec in self.outputs}
            placed: dict[str, DeviceArray] = prepare(preparation, sources, shared, place, where)
            for spec in self.artifact.plan_parameters:
                if spec.name in placed:
                    continue
                source = given[spec.name]
                if isinstance(source, DeviceArray):
                    source.wait()
                else:
                    host[spec.name] = source
                    # What calls may write is this executable's alone.
                    own = None if spec.name in tied else shared
                    source = place_source(spec.name, source, own, place, where)
                placed[spec.name] = source
        arrays = tuple(placed[spec.name] for spec in self.artifact.plan_parameters)
        kept, values = [], [0] * len(arrays)
        for index in {own.index for own in self.artifact.positions if own.kind == "param"}:
            name = self.artifact.plan_parameters[index].name
            kept.append(np.array(host.get(name, placed[name]), order="C"))
            values[index] = address_of(kept[-1])
        self._bound = _DeviceParameters(arrays, [a.address for a in arrays], sizes, values, tuple(kept))

    @located
    def run(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | None = None,
        donate: Collection[str] = (),
        device_outputs: bool = False,
        wait: bool = True,
        stream: object = None,
    ) -> dict[str, RunArray]:
        """Runs the module once; other threads of Python go on meanwhile.

        Args:
            inputs: arrays by name, of the host or the GPU.
            outputs: arrays to write some of the results to, by name: of numpy, or `DeviceArray`.
            donate: names of inputs and parameters whose memory outputs tied to them take.
            device_outputs: results that have no array are `DeviceArray`, not arrays of numpy.
            wait: False returns when the work has been started. Results are `DeviceArray`, and reading one waits
                for it. Inputs stay unchanged until the run is over (``results[name].run.wait()``).
            stream: a CUDA stream of another library, or its handle. The run comes after what the stream holds, and
                what it gets later comes after the run, with ``wait=False``, too.

        Returns:
            The results by name, in the order of `outputs`.

        Raises what `Executable.run` raises, and DeviceFaultError where a kernel fails: then the process can't use the
        GPU any more. Of a run with ``wait=False``, whoever waits for it gets this error.
        """
        if stream is not None:  # before memory is allocated, which would end the capture
            self._device.check_outside_capture(stream_handle(stream))
        inputs, outputs = host_arrays("input", inputs), host_arrays("output", outputs or {})
        call = self._arrange(inputs, outputs, donate, device_outputs or not wait, stream=stream)
        return call(wait=wait, stream=stream)

    def synchronize(self) -> None:
        """Waits for all runs; DeviceFaultError where one failed."""
        self._plan.synchronize()

    @located
    def bind(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | None = None,
        donate: Collection[str] = (),
        device_outputs: bool = False,
        known: Mapping[str, Array] | None = None,
    ) -> DeviceCall:
        """A call that can be repeated without checking its arrays again: write new inputs into them, and call it.

        Arrays of numpy are read at each call, and written at its end. See `Executable.bind`, and `run`.

        Args:
            known: of inputs on the GPU that are positions, arrays of numpy that say at each call what these will hold
                when the run comes to read them. Positions are checked by these, where they would be fetched otherwise,
                for which the call has to wait. Wrong ones may end the process's use of the GPU.
        """
        inputs, outputs = host_arrays("input", inputs), host_arrays("output", outputs or {})
        arranged = self._arrange(inputs, outputs, donate, device_outputs, known or {})
        self._check_bound(arranged, inputs, donate)
        return arranged

    @located
    def loop(self, calls: Sequence[DeviceCall]) -> DeviceLoop:
        """Bound calls of this module that are repeated in turn, without the host: one writes what the next one reads.

        Args:
            calls: made by `bind`, with all arrays on the GPU, outputs that inputs are tied to donated, and positions
                `known`.

        Raises InputError where one is of another module; calling the loop, where one has arrays of the host.
        """
        if not calls or any(call._plan is not self._plan for call in calls):
            raise InputError(f"a loop has bound calls of '{self.artifact.name}', and at least one")
        return DeviceLoop(calls)

    def _arrange(
        self,
        inputs: Mapping[str, object],
        outputs: Mapping[str, object],
        donate: Collection[str],
        device_outputs: bool = False,
        known: Mapping[str, Array] | None = None,
        *,
        stream: object = None,
    ) -> DeviceCall:
        if stream is not None:
            inputs = {
                name: value if name in donate else self._ordered_after(value, stream) for name, value in inputs.items()
            }
        bound, arrays, ordered = self._check_inputs(inputs, outputs, donate)
        assert isinstance(bound, _DeviceParameters)
        results, tied = self._place_results(bound, arrays, outputs, donate, ordered, device_outputs)
        addresses = [_address(array) for array in arrays.values()]
        into = [_address(array) for array in results.values()]
        self._check_apart(bound, outputs, donate, arrays, addresses, results, into)
        known = known or {}
        self._check_known(known, arrays)
        said = [address_of(known[name]) if name in known else 0 for name in arrays]
        given = zip(arrays.values(), addresses, said, strict=True)
        arguments = native.CudaArguments(
            inputs=[_argument(array, at, -1, value) for array, at, value in given],
            outputs=[_argument(array, at, of) for array, at, of in zip(results.values(), into, tied, strict=True)],
            params=bound.addresses,
            param_values=bound.values,
            sizes=ordered,
        )
        return DeviceCall(self._plan, arrays, results, bound, (arguments,), known, self._flight, self.artifact.name)

    def _check_known(self, known: Mapping[str, Array], arrays: Mapping[str, AnyArray]) -> None:
        """Raises InputError where what is said of positions on the GPU doesn't fit them."""
        for name, array in known.items():
            own = arrays.get(name)
            if not isinstance(own, DeviceArray):
                raise InputError(f"'known' says what inputs on the GPU hold, but '{name}' is none")
            fits = isinstance(array, np.ndarray) and array.shape == own.shape and array.dtype == own.dtype
            if not (fits and array.flags.c_contiguous and array.flags.aligned):
                raise InputError(
                    f"what is known of input '{name}' is a contiguous array of numpy of shape {list(own.shape)} and "
                    f"element type {own.dtype}, but got {array!r}"
                )

    def _ordered_after(self, value: object, stream: object) -> object:
        """An array of another library on the GPU as ours: the stream waits for it, where the call would otherwise."""
        if isinstance(value, DeviceArray) or not is_device_array(value):
            return value
        array = as_device_array(value, device=self.device, stream=stream)
        if array.address % ALIGNMENT:  # it is copied before the run, which alone comes after the stream
            self._device.synchronize(stream_handle(stream))
        return array

    def _place_results(
        self,
        bound: _DeviceParameters,
        arrays: Mapping[str, AnyArray],
        given: Mapping[str, RunArray],
        donate: Collection[str],
        sizes: list[int],
        device_outputs: bool,
    ) -> tuple[dict[str, AnyArray], list[int]]:
        """The arrays that results go to, and of each the number of the input or parameter it starts with, or -1."""
        given_specs = (*self.inputs, *self.artifact.plan_parameters)
        numbers = {spec.name: number for number, spec in enumerate(given_specs)}
        results: dict[str, AnyArray] = {}
        tied = []
        for spec in self.outputs:
            shape = tuple(evaluate(size, sizes) for size in spec.sizes)
            array = given.get(spec.name)
            if spec.tied is not None and spec.tied in donate:
                array = self._tied_array(spec.tied, bound, arrays)
            elif isinstance(array, DeviceArray):
                self._check_device_output(spec, array, shape)
            elif array is not None:
                check_output(spec, array, shape)
            elif device_outputs:
                what = f"output '{spec.name}' of '{self.artifact.name}'"
                array = DeviceArray.empty(shape, DTYPES[spec.dtype], device=self.device, what=what)
            else:
                array = empty_aligned(shape, DTYPES[spec.dtype])
            results[spec.name] = array
            start = None if spec.tied is None else self._tied_array(spec.tied, bound, arrays)
            tied.append(numbers[str(spec.tied)] if _starts_with(spec, start, array) else -1)
        return results, tied

    def _check_donated(
        self, name: str, bound: Parameters, inputs: Mapping[str, object], arrays: Mapping[str, object], *, is_tied: bool
    ) -> None:
        super()._check_donated(name, bound, inputs, arrays, is_tied=is_tied)
        for own in self.artifact.positions:
            if own.kind == "param" and own.name == name:
                raise InputError(f"parameter '{name}' can't be donated: it holds positions, which the host knows")

    def _check_device_output(self, spec: BufferSpec, array: DeviceArray, shape: tuple[int, ...]) -> None:
        """Raises InputError where a result can't be written to an array of the GPU that was given for it."""
        named, dtype = f"output '{spec.name}'", DTYPES[spec.dtype]
        if array.shape != shape or array.dtype != dtype:
            raise InputError(
                f"{named} has shape {list(shape)} and element type {dtype}, but got {list(array.shape)} and "
                f"{array.dtype}"
            )
        if array.device != self.device or array.address % ALIGNMENT:
            raise InputError(
                f"{named} goes to an array on GPU {self.device} at a multiple of {ALIGNMENT} bytes, but got one on GPU "
                f"{array.device} at {array.address:#x}"
            )

    def _checked(self, what: str, spec: BufferSpec, value: object, sizes: Sizes) -> RunArray:
        if not is_device_array(value):
            return super()._checked(what, spec, value, sizes)
        named = f"{what} '{spec.name}'"
        try:
            array = as_device_array(value, device=self.device)
        except InputError as error:
            raise InputError(f"{named}: {error}") from None
        self._check_fits(named, spec, array, sizes)
        if array.address % ALIGNMENT == 0:
            return array
        copy = DeviceArray.empty(array.shape, array.dtype, device=self.device, what=named)
        copy.write(array)
        return copy


def _graphs_of_environment() -> int:
    text = os.environ.get("RLX_CUDA_GRAPHS", "")
    if not text:
        return _GRAPHS
    if not text.isascii() or not text.isdigit():
        raise InputError(f"RLX_CUDA_GRAPHS expects a number that isn't negative, but it is '{text}'")
    return int(text)


def check_chip(artifact: Artifact, device: native.CudaDevice) -> None:
    """Raises WrongDeviceError where a GPU doesn't run code for a chip; a later one does, unless the name ends in a."""
    major, minor = device.compute_capability
    ours, theirs = 10 * major + minor, sm_version(artifact.chip)
    exact = artifact.chip.endswith("a")
    if ours == theirs if exact else ours >= theirs:
        return
    rule = f"only {theirs // 10}.{theirs % 10}" if exact else f"{theirs // 10}.{theirs % 10} or later"
    advice = f"compile with chip='{chip_of(major, minor)}'" if ours >= OLDEST else "no code is for such GPUs"
    raise WrongDeviceError(
        f"'{artifact.name}' was compiled for {artifact.chip}, compute capability {rule}, but GPU {device.ordinal} "
        f"({device.name}) has {major}.{minor}: {advice}"
    )


def _argument(array: AnyArray, address: int, tied: int, known: int = 0) -> tuple[int, int, bool, int, int]:
    return address, array.nbytes, isinstance(array, DeviceArray), known, tied


def _starts_with(spec: BufferSpec, given: AnyArray | None, array: AnyArray) -> bool:
    """Whether a result gets the contents of what it is tied to, or shares the plan's copy of that on the GPU.

    What is on the GPU stays there where it is donated; the plan has its own copy of what isn't.
    """
    if given is None or (given is array and isinstance(array, DeviceArray)):
        return False
    return spec.updated or not (isinstance(given, DeviceArray) or isinstance(array, DeviceArray))


def _address(array: AnyArray) -> int:
    return array.address if isinstance(array, DeviceArray) else address_of(array)


@contextlib.contextmanager
def _bar(name: str, total: int, progress: bool) -> Iterator[Callable[[int], None]]:
    """Shows how many bytes of parameters were copied; gives what advances it."""
    if not progress:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(f"copying '{name}' to the GPU", total=total)
        yield lambda count: bar.advance(task, count)
