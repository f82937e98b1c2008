# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bound calls that the run time repeats on a GPU without the host: what is computed, by which calls of the driver."""

from __future__ import annotations

from typing import Any

import cuda_artifacts
import numpy as np
import pytest
from cuda_artifacts import RAW, artifact, one_call
from cuda_harness import ILLEGAL_ADDRESS, FakeCuda, fake_device

from rlx_mlir.errors import DeviceFaultError, InputError
from rlx_mlir.runtime.cuda import CudaExecutable, DeviceLoop
from rlx_mlir.runtime.device import DeviceArray

pytestmark = pytest.mark.usefixtures("fresh_cache")


class Counter:
    """Two arrays, of which each is one more than the other was."""

    def __init__(self, **options: Any) -> None:
        self.executable = CudaExecutable(one_call("increment"), **options)
        self.arrays = [DeviceArray.zeros((5,), np.float32) for _ in range(2)]
        x, y = self.arrays
        self.loop = self.executable.loop([self.bind(x, y), self.bind(y, x)])
        self.started = 0

    def bind(self, x: DeviceArray, y: DeviceArray) -> Any:
        return self.executable.bind({"x": x}, outputs={"y": y})

    def go_on(self, count: int, *, joined: bool = False) -> Any:
        first = self.started % 2
        self.started += count
        return self.loop(count, first=first, joined=joined)

    def check(self) -> None:
        np.testing.assert_array_equal(self.arrays[self.started % 2].numpy(), np.full(5, self.started, np.float32))


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("graphs", [0, 1, 2, 16])
@pytest.mark.quick(3)
def test_runs_follow_each_other(cuda: FakeCuda, graphs: int, joined: bool) -> None:
    counter = Counter(graphs=graphs)
    for count in (1, 2, 4, 8, 8, 8, 3, 8, 8, 1, 8):
        run = counter.go_on(count, joined=joined)
        assert run.number == counter.started
        assert counter.arrays[0].run is run
        if count % 2:
            counter.check()
    counter.check()
    kept, captured, launched = counter.executable.graph_counts
    assert (kept, captured > 0, launched > 0) == (graphs if graphs < 3 else kept, graphs > 0, graphs > 0)


@pytest.mark.parametrize("joined", [False, True])
def test_the_driver_is_called_once_a_run_or_once_for_all(cuda: FakeCuda, joined: bool) -> None:
    counter = Counter()
    for _ in range(3):
        counter.go_on(8, joined=joined)
    counter.executable.synchronize()
    cuda.trace()
    names = ("cuGraphLaunch", "cuEventRecord", "cuEventCreate", "cuCtxPushCurrent_v2", "cuLaunchKernelEx")
    waits = ("cuStreamSynchronize", "cuEventSynchronize")
    before = {name: cuda.count(name) for name in (*names, *waits)}
    run = counter.go_on(8, joined=joined)
    spent = {name: cuda.count(name) - count for name, count in before.items()}
    assert cuda.trace() == ["graph"] * (1 if joined else 8)
    assert [spent[name] for name in ("cuEventRecord", "cuEventCreate", "cuLaunchKernelEx")] == [1, 1, 0]
    assert spent["cuCtxPushCurrent_v2"] <= 8  # the runs that were over went, too
    assert [spent[name] for name in waits] == [0, 0]
    run.wait()
    counter.check()


def test_a_joined_graph_starts_kernels_early_across_runs(cuda: FakeCuda) -> None:
    executable = CudaExecutable(artifact())
    executable.set_params({"raw": RAW})
    given = {name: DeviceArray.from_numpy(array) for name, array in cuda_artifacts.inputs(9).items()}
    y, known = DeviceArray.zeros((9,), np.float32), np.array([1], np.int32)
    loop = executable.loop([executable.bind(given, outputs={"y": y}, donate=["cache"], known={"pos": known})])
    cache = given["cache"].numpy()
    loop(3, joined=True)
    cuda.trace()
    loop(3, joined=True)
    trace = [line for line in cuda.trace() if line.startswith("launch")]
    assert [line.split()[1] for line in trace] == ["add_one", "add_weight", "update_row"] * 3
    assert [line.split()[-1] for line in trace] == ["pdl=0", "pdl=1", "pdl=0"] * 3
    cache[1] += 6
    np.testing.assert_array_equal(given["cache"].numpy(), cache)


def test_a_graph_of_many_that_cannot_be_made(cuda: FakeCuda) -> None:
    """Then there are graphs of one run."""
    counter = Counter()
    counter.go_on(8, joined=True)
    cuda.fail("cuGraphInstantiateWithFlags", 2)  # out of memory
    for _ in range(3):
        counter.go_on(8, joined=True)
    counter.check()
    assert counter.executable.graph_counts == (2, 2, 6 + 3 * 8)


def test_it_comes_after_runs_of_others(cuda: FakeCuda) -> None:
    counter, other = Counter(), CudaExecutable(one_call("increment"))
    other.run({"x": np.full(5, 41, np.float32)}, outputs={"y": counter.arrays[0]}, wait=False)
    counter.loop(2)
    np.testing.assert_array_equal(counter.arrays[0].numpy(), np.full(5, 44))
    counter.loop(1)
    found = other.run({"x": counter.arrays[1]}, wait=False)["y"]
    np.testing.assert_array_equal(found.numpy(), np.full(5, 46))


def test_what_it_uses_stays(cuda: FakeCuda) -> None:
    counter = Counter()
    for _ in range(2):
        run = counter.go_on(8)
    y = counter.arrays[0]
    del counter
    np.testing.assert_array_equal(y.numpy(), np.full(5, 16))
    assert run.done


def test_measured_runs(cuda: FakeCuda) -> None:
    counter = Counter()
    counter.executable.profile()
    assert counter.go_on(4, joined=True).done
    assert counter.executable._plan.timings()[0] == 4
    counter.check()
    counter.executable.profile(False)
    counter.go_on(4, joined=True)
    counter.check()


def test_waiting_after_each_launch(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CUDA_SYNC", "1")
    counter = Counter()
    assert counter.go_on(5, joined=True).done
    counter.check()
    assert counter.executable.graph_counts == (0, 0, 0)


def test_what_cannot_be_repeated(cuda: FakeCuda) -> None:
    counter, host = Counter(), np.zeros(5, np.float32)
    x, y = counter.arrays
    executable = counter.executable

    def loop(*calls: Any) -> DeviceLoop:
        return executable.loop(calls)

    cases = [
        (lambda: loop(), "a loop has bound calls of 'sample', and at least one"),
        (lambda: loop(Counter().bind(x, y)), "a loop has bound calls of 'sample'"),
        (lambda: counter.loop(0), "at least once, from one of them on, but got 0 times, from number 0 of 2"),
        (lambda: counter.loop(1, first=2), "1 times, from number 2 of 2"),
        (lambda: loop(executable.bind({"x": host}, outputs={"y": y}))(1), "'x' is an array of the host"),
        (lambda: loop(executable.bind({"x": x}, outputs={"y": host}))(1), "'y' is an array of the host"),
        (
            lambda: loop(counter.bind(x, y), counter.bind(*(DeviceArray.zeros((n,), np.float32) for n in (6, 6))))(2),
            "have the same sizes",
        ),
    ]
    before = cuda.kernels
    for use, message in cases:
        with pytest.raises(InputError, match=message):
            use()
    executable.synchronize()
    assert cuda.kernels == before
    del cases, use


def test_positions_are_known(cuda: FakeCuda) -> None:
    executable = CudaExecutable(artifact())
    executable.set_params({"raw": RAW})
    given = {name: DeviceArray.from_numpy(array) for name, array in cuda_artifacts.inputs(9).items()}
    y, known = DeviceArray.zeros((9,), np.float32), np.array([3], np.int32)
    loop = executable.loop([executable.bind(given, outputs={"y": y}, donate=["cache"], known={"pos": known})])
    loop(2).wait()
    known[0] = 4
    before = cuda.kernels
    with pytest.raises(InputError, match="the cache"):
        loop(2)
    assert cuda.kernels == before
    with pytest.raises(InputError, match="input 'pos' of runs that are repeated holds positions"):
        executable.loop([executable.bind(given, outputs={"y": y}, donate=["cache"])])(2)


@pytest.mark.parametrize("joined", [False, True])
def test_a_fault_names_the_runs(joined: bool) -> None:
    with fake_device(leaks=False) as cuda:
        cuda.run_kernels(cuda_artifacts.Kernels())
        counter = Counter()
        for _ in range(3):
            counter.go_on(4, joined=joined)
        counter.check()
        cuda.fail("kernel", ILLEGAL_ADDRESS, 3)
        run = counter.go_on(4, joined=joined)
        with pytest.raises(DeviceFaultError, match="one of the runs 13 to 16 failed"):
            run.wait()
        with pytest.raises(DeviceFaultError):
            counter.go_on(4)
        del counter, run
