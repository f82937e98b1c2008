# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs on a GPU that nobody waits for: results, order, lifetimes, streams of others, errors. Work of the stand-in for
the driver is done when somebody waits for it, so that whoever reads too early is found out."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import cuda_artifacts
import numpy as np
import pytest
from cuda_artifacts import RAW, check, expected, inputs, one_call, ready
from cuda_harness import ILLEGAL_ADDRESS, FakeCuda, fake_device

from rlx_mlir import native
from rlx_mlir.errors import DeviceFaultError, InputError
from rlx_mlir.runtime.cuda import CudaExecutable
from rlx_mlir.runtime.device import DeviceArray
from rlx_mlir.runtime.runs import InFlight, Run, stream_handle

pytestmark = pytest.mark.usefixtures("fresh_cache")


@pytest.fixture
def sample(cuda: FakeCuda) -> Iterator[CudaExecutable]:
    found = ready()
    cuda.trace()
    yield found
    found.__dict__.clear()  # pytest keeps the object itself for longer


class Stream:
    """A stream of another library, as PyTorch has them."""

    def __init__(self, cuda: FakeCuda) -> None:
        import ctypes

        self._library = cuda._library
        handle = ctypes.c_void_p()
        self._call("cuCtxPushCurrent_v2", ctypes.c_void_p(self._context()))
        self._call("cuStreamCreate", ctypes.byref(handle), 1)
        self.cuda_stream = handle.value or 0

    def _context(self) -> int:
        import ctypes

        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        return context.value or 0

    def _call(self, name: str, *arguments: Any) -> None:
        assert getattr(self._library, name)(*arguments) == 0, name

    def begin_capture(self, mode: int) -> None:
        self._call("cuStreamBeginCapture_v2", self._handle(), mode)

    def end_capture(self) -> None:
        """Of a capture that nothing has made invalid."""
        import ctypes

        graph = ctypes.c_void_p()
        self._call("cuStreamEndCapture", self._handle(), ctypes.byref(graph))
        self._call("cuGraphDestroy", graph)

    def _handle(self) -> Any:
        import ctypes

        return ctypes.c_void_p(self.cuda_stream)

    def write(self, array: DeviceArray, value: int) -> None:
        """Sets all bytes, when the stream comes to it."""
        import ctypes

        address, stream = ctypes.c_uint64(array.address), ctypes.c_void_p(self.cuda_stream)
        self._call("cuMemsetD8Async", address, ctypes.c_ubyte(value), ctypes.c_size_t(array.nbytes), stream)

    def close(self) -> None:
        import ctypes

        self._call("cuStreamSynchronize", ctypes.c_void_p(self.cuda_stream))
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(self.cuda_stream))
        self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


# Results ---------------------------------------------------------------------------------------------------


def test_results_wait_when_they_are_read(sample: CudaExecutable, cuda: FakeCuda) -> None:
    for seed in range(4):  # alone, captured, replayed
        given = inputs(20, seed=seed)
        before = cuda.kernels
        results = sample.run(given, wait=False)
        assert all(isinstance(array, DeviceArray) for array in results.values())
        run = results["y"].run
        assert run is not None
        assert (run.number, run.name, run.done) == (seed + 1, "sample", False)
        assert cuda.kernels == before
        check({name: array.numpy() for name, array in results.items()}, given, RAW)
        assert run.done
        assert results["y"].run is None
        assert repr(run) == f"Run({seed + 1} of 'sample')"


def test_a_run_is_one_launch_of_a_graph(sample: CudaExecutable, cuda: FakeCuda) -> None:
    given = {name: DeviceArray.from_numpy(array) for name, array in inputs(20).items()}
    known = np.array([1], np.int32)
    step = sample.bind(
        given, outputs={"y": DeviceArray.empty((20,), np.float32)}, donate=["cache"], known={"pos": known}
    )
    start = np.zeros((4, 8), np.float32)
    given["cache"].write(start)
    for _ in range(2):
        step(wait=False)
    cuda.trace()
    waits = [cuda.count(name) for name in ("cuStreamSynchronize", "cuEventSynchronize")]
    for _ in range(5):
        step(wait=False)
    assert cuda.trace() == ["graph"] * 5
    assert waits == [cuda.count(name) for name in ("cuStreamSynchronize", "cuEventSynchronize")]
    start[1] += 7
    np.testing.assert_array_equal(given["cache"].numpy(), start)
    step()  # waits, and comes after those before
    start[1] += 1
    np.testing.assert_array_equal(given["cache"].numpy(), start)
    assert given["cache"].run is None


def test_a_part_waits_for_what_was_started_before_it(cuda: FakeCuda) -> None:
    executable = CudaExecutable(one_call("increment"))
    x, y = (DeviceArray.from_numpy(np.arange(8, dtype=np.float32)) for _ in range(2))
    call = executable.bind({"x": x}, outputs={"y": y})
    call(wait=False)
    part, before = y.part(2, 5), cuda.kernels
    call(wait=False)
    np.testing.assert_array_equal(part.numpy(), [3, 4, 5])
    assert cuda.kernels == before + 1
    assert y.run is not None
    assert not y.run.done
    y.part(3, 3).write(np.zeros(0, np.float32))
    with pytest.raises(InputError, match="8 elements has no part from 3 to 9"):
        y.part(3, 9)
    executable.synchronize()
    assert y.run.done


def test_inputs_of_the_host_may_change_when_it_is_over(sample: CudaExecutable) -> None:
    """Small ones pass through pinned memory, which the next run doesn't overwrite too early."""
    results, given = [], []
    for seed in range(5):
        given.append(inputs(100, seed=seed, pos=seed % 4))
        results.append(sample.run(given[-1], wait=False))
    for own, found in zip(given, results, strict=True):
        check({name: array.numpy() for name, array in found.items()}, own, RAW)


def test_waiting_runs_and_others_in_turn(sample: CudaExecutable) -> None:
    for seed in range(6):
        given = inputs(30, seed=seed)
        found = sample.run(given, wait=seed % 2 == 0)
        check({name: np.asarray(array) for name, array in found.items()}, given, RAW)


# Order and lifetimes ---------------------------------------------------------------------------------------


def test_executables_follow_each_other(cuda: FakeCuda) -> None:
    first, second = CudaExecutable(one_call("increment")), CudaExecutable(one_call("increment"))
    x = np.arange(10, dtype=np.float32)
    (y,) = first.run({"x": x}, wait=False).values()
    (z,) = second.run({"x": y}, wait=False).values()
    (back,) = first.run({"x": z}, wait=True).values()
    np.testing.assert_array_equal(back, x + 3)
    # What is read is not overwritten before: a run of the other executable, and a copy from the host.
    (z,) = second.run({"x": y}, wait=False).values()
    first.run({"x": x + 100}, outputs={"y": y}, wait=False)
    np.testing.assert_array_equal(z.numpy(), x + 2)
    (z,) = second.run({"x": y}, wait=False).values()
    y.write(x)
    np.testing.assert_array_equal(z.numpy(), x + 102)


def test_what_a_run_uses_stays(cuda: FakeCuda) -> None:
    found = ready()
    results = found.run({name: DeviceArray.from_numpy(array) for name, array in inputs(9).items()}, wait=False)
    found.set_params({"raw": RAW + 1})
    y = results.pop("y")
    del results
    gc.collect()
    np.testing.assert_array_equal(y.numpy(), expected(inputs(9), RAW)["y"])
    found.run(inputs(9), wait=False)  # its results go at once
    gc.collect()
    assert cuda.live["event"] > 0
    found.run(inputs(9))
    run = found.run(inputs(9), wait=False)["y"].run
    del found, y  # waits for the run
    gc.collect()
    assert run is not None
    assert run.done
    run.wait()
    del run


def test_larger_sizes_while_a_run_is_under_way(cuda: FakeCuda) -> None:
    """Memory that has to grow isn't freed before."""
    found = CudaExecutable(one_call("detour", symbols=(("n", 1000),)))
    x = np.arange(100, dtype=np.float32)
    (large,) = found.run({"x": x}, wait=False).values()
    (small,) = found.run({"x": x[:5]}, wait=False).values()  # needs more scratch memory
    np.testing.assert_array_equal(large.numpy(), x + 2)
    np.testing.assert_array_equal(small.numpy(), x[:5] + 2)


def test_measured_and_waiting_runs(sample: CudaExecutable, monkeypatch: pytest.MonkeyPatch) -> None:
    sample.profile()
    results = sample.run(inputs(9), wait=False)
    assert results["y"].run is not None
    assert results["y"].run.done
    check({name: array.numpy() for name, array in results.items()}, inputs(9), RAW)
    assert all(seconds > 0 for _, seconds in sample.timings())


def test_threads_that_start_runs_of_one_executable(cuda: FakeCuda) -> None:
    executable = CudaExecutable(one_call("increment"))
    x, y = DeviceArray.zeros((8,), np.float32), DeviceArray.zeros((8,), np.float32)
    call = executable.bind({"x": x}, outputs={"y": y})

    def start() -> None:
        for number in range(30):
            call(wait=number % 7 == 0)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(y.numpy(), np.ones(8))
    executable.synchronize()
    assert y.run is None


def test_the_last_run_of_an_array_stays_the_last() -> None:
    plan, other = object(), object()
    array = DeviceArray(0, (), np.float32, device=0, owner=None)
    flight = InFlight(plan)

    def run(number: int, of: object = plan) -> Run:
        return Run(type("Native", (), {"number": number, "done": True})(), of, "sample", ())

    first, second, third, foreign = run(1), run(2), run(3), run(9, other)
    flight.note([array], [None], second)
    flight.note([array], [None], first)  # was started before, by another thread
    assert array.run is second
    flight.note([array], [None], third)
    assert array.run is third
    flight.note([array], [second], None)  # is over, but not the third
    assert array.run is third
    flight.note([array], [third], None)
    assert array.run is None
    array.run = foreign
    flight.note([array], [foreign], first)
    assert array.run is first


# Streams of others -----------------------------------------------------------------------------------------


def test_a_run_takes_its_turn_in_a_stream(cuda: FakeCuda) -> None:
    executable, stream = CudaExecutable(one_call("increment")), Stream(cuda)
    x = DeviceArray.zeros((4,), np.float32)
    y = DeviceArray.zeros((4,), np.float32)
    stream.write(x, 0x3F)  # 0.747
    executable.run({"x": x}, outputs={"y": y}, wait=False, stream=stream)
    stream.write(x, 0)
    wanted = np.frombuffer(b"\x3f" * 4, np.float32)[0] + 1
    before = cuda.kernels
    native.CudaDevice().synchronize(stream.cuda_stream)  # the stream waits for the run, and so does who waits for it
    assert cuda.kernels == before + 1
    np.testing.assert_array_equal(y.numpy(), [wanted] * 4)
    np.testing.assert_array_equal(x.numpy(), [0] * 4)
    stream.write(x, 0x3F)
    found = executable.run({"x": x}, stream=stream)  # waits
    np.testing.assert_array_equal(found["y"], [wanted] * 4)
    stream.close()


def test_dlpack_lets_the_stream_of_the_consumer_wait(sample: CudaExecutable, cuda: FakeCuda) -> None:
    stream = Stream(cuda)
    results = sample.run(inputs(9), wait=False)
    before = cuda.kernels
    results["y"].__dlpack__(stream=stream.cuda_stream)
    results["y"].__dlpack__(stream=-1)
    assert cuda.kernels == before
    native.CudaDevice().synchronize(stream.cuda_stream)
    assert cuda.kernels == before + 3
    results = sample.run(inputs(9), wait=False)
    results["y"].__dlpack__()  # waits
    assert cuda.kernels == before + 6
    results = sample.run(inputs(9), wait=False)
    assert results["y"].__cuda_array_interface__["stream"] is None
    assert cuda.kernels == before + 9
    with pytest.raises(BufferError, match="DLPack's stream is -1, or the handle of a stream that isn't 0"):
        results["y"].__dlpack__(stream=0)
    stream.close()


def test_arrays_of_others_are_ordered_by_the_stream(cuda: FakeCuda) -> None:
    executable, stream = CudaExecutable(one_call("increment")), Stream(cuda)
    memory = DeviceArray.zeros((4,), np.float32)
    asked = []

    class Foreign:
        def __dlpack_device__(self) -> tuple[int, int]:
            return memory.__dlpack_device__()

        def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
            asked.append(stream)
            return memory.__dlpack__(stream=-1)

    class Interface:
        def __init__(self, produced: int | None) -> None:
            self.__cuda_array_interface__ = {**memory.__cuda_array_interface__, "stream": produced}

    waits = cuda.count("cuStreamSynchronize")
    for given in (Foreign(), Interface(stream.cuda_stream), Interface(None)):
        stream.write(memory, 0x3F)
        executable.run({"x": given}, wait=False, stream=stream)
    assert asked == [stream.cuda_stream]
    assert cuda.count("cuStreamSynchronize") == waits
    executable.run({"x": Foreign()}, wait=False, stream=0)
    assert asked[1:] == [1]
    stream.close()


@pytest.mark.parametrize("mode", [0, 1])  # of PyTorch, unless it is asked for another one; of threads
def test_a_stream_that_is_captured_stays_so(cuda: FakeCuda, mode: int) -> None:
    """A run in it would become a part of somebody's graph, or end the capture."""
    executable, stream = CudaExecutable(one_call("increment")), Stream(cuda)
    x, y = DeviceArray.zeros((4,), np.float32), DeviceArray.zeros((4,), np.float32)
    call = executable.bind({"x": x}, outputs={"y": y})
    pending = executable.run({"x": x}, wait=False)["y"]
    uses = [
        lambda: executable.run({"x": x}, wait=False, stream=stream),
        lambda: call(wait=False, stream=stream),
        lambda: pending.__dlpack__(stream=stream.cuda_stream),
    ]
    stream.begin_capture(mode)
    for use in uses:
        with pytest.raises(InputError, match="the stream that it is ordered by is being captured"):
            use()
    stream.end_capture()
    for use in uses:
        use()
    pending.wait()
    executable.synchronize()
    stream.close()
    del uses


def test_what_another_thread_captures_stays_so(cuda: FakeCuda) -> None:
    """In the mode in which nobody else may allocate memory meanwhile, which is PyTorch's."""
    executable, given = ready(), inputs(9)
    begun, done = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def capture() -> None:
        try:
            stream = Stream(cuda)
            stream.begin_capture(0)
            begun.set()
            done.wait(30)
            stream.end_capture()
            stream.close()
        except BaseException as error:
            failures.append(error)
        finally:
            begun.set()

    thread = threading.Thread(target=capture)
    thread.start()
    begun.wait(30)
    for wait in (True, True, False):
        results = executable.run(given, wait=wait)
        check({name: np.asarray(array) for name, array in results.items()}, given, RAW)
    other = ready()
    check(other.run(given), given, RAW)
    del executable, other, results
    gc.collect()
    done.set()
    thread.join()
    assert not failures, failures


def test_an_array_that_is_copied_comes_after_the_stream(cuda: FakeCuda) -> None:
    """One of another library's that isn't at a multiple of 16 bytes."""
    executable, stream = CudaExecutable(one_call("increment")), Stream(cuda)
    memory = DeviceArray.zeros((9,), np.float32)

    class Foreign:
        def __dlpack_device__(self) -> tuple[int, int]:
            return memory.__dlpack_device__()

        def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
            return memory.part(1, 5).__dlpack__(stream=-1)

    stream.write(memory, 0x3F)
    found = executable.run({"x": Foreign()}, wait=False, stream=stream)["y"]
    np.testing.assert_array_equal(found.numpy(), np.frombuffer(b"\x3f" * 16, np.float32) + 1)
    stream.close()


def test_what_is_read_late(cuda: FakeCuda) -> None:
    """Memory of the host that isn't pinned, and that nobody else keeps, is there when a copy takes place."""
    cuda.read_late()
    executable = CudaExecutable(one_call("increment", symbols=(("n", 2_000_000),)))
    results = []
    for seed in range(3):
        every = np.full(1_000_000, seed, np.float32)
        results.append(executable.run({"x": every[::2]}, wait=False)["y"])  # a copy of ours
        del every
        gc.collect()
        np.full(500_000, -1, np.float32)
    array = DeviceArray.from_numpy(np.arange(9, dtype=np.float32))
    np.testing.assert_array_equal(array.numpy(), np.arange(9))
    for seed, result in enumerate(results):
        np.testing.assert_array_equal(result.numpy(), np.full(500_000, seed + 1, np.float32))


def test_what_a_stream_is() -> None:
    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 44

    class CuPy:
        ptr = 55

    assert [stream_handle(own) for own in (0, 7, Protocol(), CuPy())] == [0, 7, 44, 55]
    for wrong in (-1, True, "x", None):
        with pytest.raises(InputError, match="a CUDA stream, or its handle, is expected"):
            stream_handle(wrong)


# Errors ----------------------------------------------------------------------------------------------------


def test_outputs_that_a_run_cannot_write(sample: CudaExecutable) -> None:
    given, y = inputs(9), np.zeros(9, np.float32)
    message = r"output 'y' of 'sample' goes to an array of numpy, which a run with wait=False can't write"
    with pytest.raises(InputError, match=message):
        sample.run(given, outputs={"y": y}, wait=False)
    with pytest.raises(InputError, match="output 'cache_out' of 'sample' goes to an array of numpy"):
        sample.run(given, donate=["cache"], wait=False)
    check(sample.run(given), given, RAW)


def test_what_is_known_of_positions(sample: CudaExecutable, cuda: FakeCuda) -> None:
    given: dict[str, Any] = {name: DeviceArray.from_numpy(array) for name, array in inputs(9).items()}
    y = DeviceArray.empty((9,), np.float32)
    known = np.array([1], np.int32)

    def bind(said: Any) -> Any:
        return sample.bind(given, outputs={"y": y}, donate=["cache"], known=said)

    call = bind({"pos": known})
    known[0] = 4
    before = cuda.kernels
    with pytest.raises(InputError, match="the cache"):
        call(wait=False)
    assert cuda.kernels == before
    for said, message in (
        ({"z": known}, "'known' says what inputs on the GPU hold, but 'z' is none"),
        (
            {"pos": known[:0]},
            r"known of input 'pos' is a contiguous array of numpy of shape \[1\] and element type int32",
        ),
        ({"pos": known.astype(np.int64)}, "element type int32, but got array"),
        ({"pos": 3}, "element type int32, but got 3"),
    ):
        with pytest.raises(InputError, match=message):
            bind(said)
    # Without it, positions are fetched, after the runs that may write them.
    unsaid = bind({})
    waits = cuda.count("cuStreamSynchronize")
    unsaid(wait=False)
    assert cuda.count("cuStreamSynchronize") == waits + 1
    y.wait()


@pytest.mark.parametrize("read", ["numpy", "wait", "synchronize", "run"])
def test_a_fault_is_told_to_who_waits(read: str) -> None:
    with fake_device(leaks=False) as cuda:
        cuda.run_kernels(cuda_artifacts.Kernels())
        found, given = ready(), inputs(9)
        found.run(given, wait=False)["y"].wait()
        cuda.fail(
            "kernel", ILLEGAL_ADDRESS, 4
        )  # in the second of these runs; its inputs were copied when the first was over
        results = [found.run(given, wait=False)["y"] for _ in range(3)]
        last = results[-1].run
        assert last is not None
        message = r"^'sample': one of the runs 3 to 4 failed .*CUDA_ERROR_ILLEGAL_ADDRESS.*can't use the GPU any more$"
        pending = (
            r"it may be an error of one of the runs 3 to 4, which nobody has waited for: CUDA_ERROR_ILLEGAL_ADDRESS"
        )
        assert not last.done
        uses: dict[str, tuple[Any, str]] = {
            "numpy": (results[-1].numpy, message),
            "wait": (last.wait, message),
            "synchronize": (found.synchronize, f"earlier runs cannot be waited for; {pending}"),
            "run": (partial(found.run, given), pending),
        }
        use, wanted = uses[read]
        with pytest.raises(DeviceFaultError, match=wanted) as raised:
            use()
        assert raised.value.code == "CUDA_ERROR_ILLEGAL_ADDRESS"
        with pytest.raises(DeviceFaultError, match="can't use the GPU any more"):
            found.run(given, wait=False)
        del found, results, last, use, uses, raised


@pytest.mark.parametrize("function", ["cuEventCreate", "cuEventRecord", "cuGraphLaunch", "cuStreamWaitEvent"])
@pytest.mark.quick(3)
def test_a_start_that_fails(cuda: FakeCuda, function: str) -> None:
    first, second = CudaExecutable(one_call("increment")), CudaExecutable(one_call("increment"))
    x = DeviceArray.from_numpy(np.arange(3, dtype=np.float32))
    y, z = (DeviceArray.empty((3,), np.float32) for _ in range(2))
    calls = [first.bind({"x": x}, outputs={"y": y}), second.bind({"x": y}, outputs={"y": z})]
    for _ in range(3):
        for call in calls:
            call(wait=False)
    calls[0](wait=False)
    cuda.fail(function, 1, 1)
    with pytest.raises(Exception, match="CUDA_ERROR_INVALID_VALUE"):
        calls[1](wait=False)
    calls[1](wait=False)
    np.testing.assert_array_equal(z.numpy(), [2, 3, 4])
