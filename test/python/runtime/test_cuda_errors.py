# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Everything that goes wrong with a GPU is an exception of a class of its own, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda_artifacts
import numpy as np
import pytest
from cuda_artifacts import KERNELS, PTX, RAW, artifact, check, inputs, one_call, ready
from cuda_harness import ILLEGAL_ADDRESS, OUT_OF_MEMORY, FakeCuda, fake_device, fake_library

from rlx_mlir import native
from rlx_mlir.errors import (
    DeviceError,
    DeviceFaultError,
    DeviceMemoryError,
    DriverMissingError,
    DriverTooOldError,
    ExecutionError,
    InputError,
    NoDeviceError,
    WrongDeviceError,
)
from rlx_mlir.runtime.cuda import CudaExecutable
from rlx_mlir.runtime.device import DeviceArray

pytestmark = pytest.mark.usefixtures("fresh_cache")


# The driver ---------------------------------------------------------------------------------------


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CUDA_DRIVER", "/nowhere/libcuda.so.1")
    for call in (native.cuda_device_count, native.CudaDevice, lambda: CudaExecutable(artifact())):
        with pytest.raises(
            DriverMissingError, match=r"NVIDIA's driver cannot be loaded: /nowhere/libcuda\.so\.1"
        ) as raised:
            call()
        assert raised.value.code == ""
    assert issubclass(DriverMissingError, DeviceError)
    assert issubclass(DeviceError, ExecutionError)


def test_no_library_of_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"not a library")
    monkeypatch.setenv("RLX_CUDA_DRIVER", str(tmp_path / "libcuda.so.1"))
    with pytest.raises(DriverMissingError, match="cannot be loaded"):
        native.CudaDevice()
    monkeypatch.setenv("RLX_CUDA_DRIVER", "libm.so.6")
    with pytest.raises(DriverTooOldError, match=r"libm\.so\.6 has no function cuInit"):
        native.CudaDevice()


def test_no_gpu() -> None:
    with (
        fake_device(devices=0),
        pytest.raises(NoDeviceError, match="cannot be initialised: CUDA_ERROR_NO_DEVICE") as raised,
    ):
        CudaExecutable(artifact())
    assert raised.value.code == "CUDA_ERROR_NO_DEVICE"


def test_no_such_gpu() -> None:
    with fake_device(devices=2) as cuda:
        cuda.run_kernels(cuda_artifacts.Kernels())
        assert native.cuda_device_count() == 2
        for number in (2, -1):
            with pytest.raises(NoDeviceError, match=f"there is no GPU {number}: the driver .* shows 2, from 0 on"):
                CudaExecutable(artifact(), device=number)
        found = CudaExecutable(artifact(), device=1)
        found.set_params({"raw": RAW})
        check(found.run(given := inputs(3), device_outputs=True), given, RAW)
        assert found.run(given, device_outputs=True)["y"].device == 1
        there = DeviceArray.from_numpy(given["x"], device=0)
        with pytest.raises(InputError, match="input 'x': an array on GPU 1 is needed, but it is on GPU 0"):
            found.run({**given, "x": there})
        del found, there


def test_old_driver() -> None:
    with fake_device(driver=11080), pytest.raises(DriverTooOldError, match=r"is for CUDA 11\.8, but 12\.0 is needed"):
        native.CudaDevice()


def test_old_driver_for_the_ptx() -> None:
    with (
        fake_device(ptx=78),
        pytest.raises(DriverTooOldError, match=r"UNSUPPORTED_PTX_VERSION.*is for CUDA 12\.8") as raised,
    ):
        CudaExecutable(artifact())
    assert raised.value.code == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"


@pytest.mark.parametrize(
    ("chip", "gpu", "message"),
    [
        (
            "sm_90a",
            "sm_80",
            r"for sm_90a, compute capability only 9\.0, but GPU 0 \(fake GPU 8\.0\) has 8\.0: .* chip='sm_80'",
        ),
        ("sm_90a", "sm_100", r"for sm_90a, compute capability only 9\.0, but .* has 10\.0"),
        ("sm_100", "sm_90", r"for sm_100, compute capability 10\.0 or later, .* has 9\.0: compile with chip='sm_90a'"),
        ("sm_80", "sm_75", r"for sm_80, compute capability 8\.0 or later, but .* has 7\.5: no code is for such GPUs"),
        ("sm_90", "sm_89", r"for sm_90, compute capability 9\.0 or later, but .* has 8\.9: .* chip='sm_89'"),
        ("sm_80", "sm_90", ""),
        ("sm_90a", "sm_90", ""),
    ],
)
@pytest.mark.quick(3)
def test_wrong_gpu(chip: str, gpu: str, message: str) -> None:
    with fake_device(gpu) as cuda:
        cuda.run_kernels(cuda_artifacts.Kernels())
        own = one_call("increment", chip=chip, device_code=PTX.format(version="8.0", chip=chip).encode())
        if not message:
            np.testing.assert_array_equal(CudaExecutable(own).run({"x": RAW})["y"], RAW + 1)
            return
        with pytest.raises(WrongDeviceError, match=message):
            CudaExecutable(own)


def test_host_code_for_another_machine(cuda: FakeCuda) -> None:
    with pytest.raises(ExecutionError, match="was compiled for riscv64"):
        CudaExecutable(artifact(target={"triple": "riscv64-unknown-linux-gnu", "features": "", "cpu": ""}))


def test_wrong_ptx(cuda: FakeCuda) -> None:
    text = PTX.format(version="8.0", chip="sm_90a") + "syntax error"
    with pytest.raises(DeviceError, match=r"cannot be loaded to GPU 0 .*:\nptxas application ptx input, line 1; fatal"):
        CudaExecutable(artifact(device_code=text.encode()))
    with pytest.raises(DeviceError, match="kernel 'missing' cannot be loaded: CUDA_ERROR_NOT_FOUND"):
        CudaExecutable(artifact(device_kernels=("add_one", "missing")))


# Memory -------------------------------------------------------------------------------------------


def test_too_little_memory_for_the_arena() -> None:
    with fake_device(memory=1 << 20):
        with pytest.raises(
            DeviceMemoryError, match="cannot have 2097152 bytes of the GPU's memory for the arena of 'sample'"
        ) as raised:
            CudaExecutable(artifact(arena_bytes=1 << 21))
        error = raised.value
        assert (error.requested, error.free, error.total) == (1 << 21, 1 << 20, 1 << 20)
        assert error.code == "CUDA_ERROR_OUT_OF_MEMORY"
        assert "1048576 of the 1048576 bytes of the GPU's are free" in str(error)
        del raised, error


def test_too_little_memory_for_an_array() -> None:
    message = "4000000 bytes of the GPU's memory for an array"
    with fake_device(memory=1 << 20), pytest.raises(DeviceMemoryError, match=message):
        DeviceArray.zeros((1000, 1000), np.float32)


def test_too_little_memory_in_a_run() -> None:
    with fake_device(memory=4 << 20) as cuda:
        cuda.run_kernels(cuda_artifacts.Kernels())
        found = CudaExecutable(one_call("increment", symbols=(("n", 100_000_000),), arena_bytes=0, slots=()))
        x = np.zeros(1_000_000, np.float32)
        with pytest.raises(DeviceMemoryError, match="for output 'y' of 'sample'"):
            found.run({"x": x})
        x = np.zeros(10_000, np.float32)
        np.testing.assert_array_equal(found.run({"x": x})["y"], x + 1)  # it goes on
        del found


def test_too_little_memory_for_scratch(cuda: FakeCuda) -> None:
    found = CudaExecutable(one_call("detour"))
    large, small = (np.arange(n, dtype=np.float32) for n in (20, 5))
    np.testing.assert_array_equal(found.run({"x": large})["y"], large + 2)
    cuda.fail("cuMemAlloc_v2", OUT_OF_MEMORY)
    with pytest.raises(DeviceMemoryError, match="400128 bytes of the GPU's memory for scratch memory of 'sample'"):
        found.run({"x": small})
    assert found._plan.scratch_bytes == 0
    for x in (small, large):
        np.testing.assert_array_equal(found.run({"x": x})["y"], x + 2)
    del found


def test_too_little_memory_for_parameters(cuda: FakeCuda) -> None:
    found = ready()
    cuda.fail("cuMemAlloc_v2", OUT_OF_MEMORY)
    with pytest.raises(DeviceMemoryError, match="32 bytes of the GPU's memory for parameter 'w'"):
        found.set_params({"raw": RAW + 1})
    check(found.run(given := inputs(3)), given, RAW)  # the old ones stay
    del found


@pytest.mark.parametrize("function", ["cuMemAlloc_v2", "cuMemHostAlloc"])
@pytest.mark.parametrize("nth", range(1, 5))
@pytest.mark.quick(3)
def test_nothing_is_left_where_memory_runs_out(cuda: FakeCuda, function: str, nth: int) -> None:
    cuda.fail(function, OUT_OF_MEMORY, nth)
    error = outcome(ready)
    if error is None:
        assert cuda.count(function) < nth
    else:
        assert isinstance(error, DeviceMemoryError)
        assert "cannot have" in str(error)
    cuda.fail(function, 0)
    check(ready().run(given := inputs(3)), given, RAW)


# Every function of the driver may fail --------------------------------------------------------------

CALLED = [
    "cuDevicePrimaryCtxRetain", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async", "cuStreamCreate", "cuStreamSynchronize", "cuStreamBeginCapture_v2",
    "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuEventCreate", "cuEventRecord",
    "cuEventElapsedTime", "cuLaunchKernelEx",
]  # fmt: skip


#: What a capture does once more, without early starts, which some drivers refuse at any of them.
AGAIN = ("cuLaunchKernelEx", "cuStreamEndCapture", "cuGraphInstantiateWithFlags")


def outcome(call: Callable[[], Any]) -> DeviceError | None:
    """How a call fails; nothing else of it is kept."""
    try:
        call()
    except DeviceError as error:
        return error.with_traceback(None)
    return None


def use_everything() -> None:
    given = inputs(3)
    found = ready()
    for _ in range(3):
        check(found.run(given), given, RAW)
    there = {name: DeviceArray.from_numpy(array) for name, array in given.items()}
    check(found.run(there, device_outputs=True), given, RAW)
    found.profile()
    check(found.run(given), given, RAW)


@pytest.mark.parametrize("function", CALLED)
@pytest.mark.quick(2)
def test_a_function_fails(function: str) -> None:
    with fake_device() as cuda:
        cuda.run_kernels(cuda_artifacts.Kernels())
        for nth in range(1, 60):
            before = cuda.count(function)
            cuda.fail(function, 801, nth)
            error = outcome(use_everything)
            cuda.fail(function, 0)
            if error is None and function in AGAIN and cuda.count(function) >= before + nth:
                continue  # in a graph, launches start when those before them have ended
            if error is None:
                assert cuda.count(function) < before + nth
                break
            assert error.code == "CUDA_ERROR_NOT_SUPPORTED", error
            assert "CUDA_ERROR_NOT_SUPPORTED" in str(error)
        else:
            pytest.fail(f"{function} is called very often")
        assert nth > 1 or function == "cuDevicePrimaryCtxRetain"
        use_everything()


# Kernels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["cuModuleLoadDataEx", "cuModuleGetFunction", "cuFuncGetAttribute"])
def test_kernels_that_cannot_be_loaded(cuda: FakeCuda, function: str) -> None:
    cuda.fail(function, 801, 0)
    with pytest.raises(DeviceError, match=r"cannot be loaded( to GPU 0 \(fake GPU 9\.0\))?: CUDA_ERROR_NOT_SUPPORTED"):
        ready()
    cuda.fail(function, OUT_OF_MEMORY, 0)
    with pytest.raises(DeviceMemoryError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        CudaExecutable(artifact(device_kernels=KERNELS[:2]))


def test_the_gpu_cannot_be_selected(cuda: FakeCuda) -> None:
    cuda.fail("cuCtxPushCurrent_v2", 201)
    with pytest.raises(DeviceError, match="the GPU cannot be selected: CUDA_ERROR_INVALID_CONTEXT"):
        DeviceArray.zeros((3,), np.float32)


@pytest.mark.parametrize("graph", [False, True])
def test_a_fault_without_waiting_names_the_run(graph: bool) -> None:
    with fake_device() as cuda:
        cuda.run_kernels(cuda_artifacts.Kernels())
        found, given = ready(), inputs(3)
        for _ in range(3 if graph else 0):
            found.run(given)
        cuda.fail("kernel", ILLEGAL_ADDRESS, 2)
        with pytest.raises(DeviceFaultError) as raised:
            found.run(given)
        text = str(raised.value)
        assert text.startswith(
            "'sample': the run failed (RLX_CUDA_SYNC=1 in the environment names the kernel): CUDA_ERROR_ILLEGAL"
        )
        assert text.endswith("(an illegal memory access was encountered); this process can't use the GPU any more")
        assert raised.value.code == "CUDA_ERROR_ILLEGAL_ADDRESS"
        with pytest.raises(DeviceFaultError, match="can't use the GPU any more"):
            found.run(given)
        for use in (lambda: DeviceArray.zeros((3,), np.float32), ready):
            with pytest.raises(DeviceFaultError, match="can't use the GPU any more"):
                use()
        del found, raised
        cuda.reset(1, 90, 8 << 30, 12080, 87)


def test_a_fault_with_waiting_names_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CUDA_SYNC", "1")
    with fake_device() as cuda:
        cuda.run_kernels(cuda_artifacts.Kernels())
        found, given = ready(), inputs(300)
        for _ in range(3):
            check(found.run(given), given, RAW)
        assert found.graph_counts == (0, 0, 0)
        cuda.fail("kernel", ILLEGAL_ADDRESS, 2)
        message = (
            r"'sample', call 1 \(weigh\): kernel 'add_weight' \(grid 2 x 1 x 1, block 256 x 1 x 1, 0 bytes of shared "
            r"memory\): CUDA_ERROR_ILLEGAL_ADDRESS"
        )
        with pytest.raises(DeviceFaultError, match=message):
            found.run(given)
        del found
        cuda.reset(1, 90, 8 << 30, 12080, 87)


def test_an_error_of_the_emulator_is_shown() -> None:
    def broken(*_: Any) -> None:
        raise ValueError("division by zero in line 7")

    with fake_device() as cuda:
        cuda.run_kernels(broken)
        found = ready()
        with pytest.raises(DeviceFaultError, match=r"LAUNCH_FAILED \(division by zero in line 7\)"):
            found.run(inputs(3))
        assert isinstance(cuda.errors[0], ValueError)
        cuda.errors.clear()
        del found
        cuda.reset(1, 90, 8 << 30, 12080, 87)


@pytest.mark.parametrize(
    ("kernel", "kind", "message"),
    [
        ("no_kernel", ExecutionError, "host code launches kernel 77 of 4"),
        ("few_parameters", ExecutionError, "host code passes 1 of 3 parameters"),
        ("large_block", ExecutionError, r"kernel 'update_row' \(grid 1 x 1 x 1, block 512 .* from 1 to 128 threads"),
        ("odd_flags", ExecutionError, "flags are 2"),
        (
            "much_shared",
            WrongDeviceError,
            "asks for 300000 bytes of dynamic shared memory, but a block of GPU 0 .* has 232448",
        ),
        (
            "odd_stride",
            ExecutionError,
            r"tensor map \(element type 7, swizzle 3, address .*, sizes 4 16, strides 20, box 32 8",
        ),
        ("wide_box", DeviceError, "sizes 4 16, strides 16, box 64 8, .*: CUDA_ERROR_INVALID_VALUE"),
        ("flat", ExecutionError, "a tensor map has from 1 to 5 dimensions, but host code asks for 9"),
    ],
)
@pytest.mark.quick(2)
def test_wrong_launches(cuda: FakeCuda, kernel: str, kind: type[Exception], message: str) -> None:
    found = CudaExecutable(one_call(kernel))
    for _ in range(3):
        with pytest.raises(kind, match=rf"'sample', call 0 \({kernel}\): .*" + message):
            found.run({"x": np.zeros(4, np.float32)})
    del found


@pytest.mark.parametrize("function", AGAIN)
def test_drivers_that_refuse_early_starts_in_graphs(cuda: FakeCuda, function: str) -> None:
    """One driver says so at the launch, another one at the end of the capture."""
    found, given = ready(), inputs(3)
    check(found.run(given), given, RAW)
    cuda.trace()
    cuda.fail(function, 400, 2 if function == "cuLaunchKernelEx" else 1)  # an invalid handle
    check(found.run(given), given, RAW)
    flags = [line.split()[-1] for line in cuda.trace() if line.startswith("launch add_weight")]
    assert flags[-1] == "pdl=0"
    assert found.graph_counts == (1, 1, 1)
    del found
    cuda.fail(function, 400, 0)
    other = outcome(use_everything)
    assert other is not None
    assert other.code == "CUDA_ERROR_INVALID_HANDLE"
    cuda.fail(function, 0)


def test_wrong_launches_in_a_capture(cuda: FakeCuda) -> None:
    found, given = ready(), inputs(3)
    check(found.run(given), given, RAW)
    cuda.fail("cuLaunchKernelEx", 801, 3)
    with pytest.raises(DeviceError, match=r"call 2 \(update\): kernel 'update_row' .*: CUDA_ERROR_NOT_SUPPORTED"):
        found.run(given)
    assert "graph" not in cuda.live
    check(found.run(given), given, RAW)
    assert found.graph_counts == (1, 1, 1)
    del found


# Processes ----------------------------------------------------------------------------------------


def run_python(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Another process, which has the stand-in for the driver and these tests' modules."""
    text = textwrap.dedent(source)
    folder = str(Path(__file__).parents[1] / "harness")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *sys.path]), **environment}
    return subprocess.run(
        [sys.executable, "-c", text], env=variables, capture_output=True, text=True, check=False, timeout=120
    )


FORK = """
    import os, numpy as np, cuda_artifacts
    from cuda_artifacts import artifact, check, inputs
    from rlx_mlir.errors import DeviceError
    from rlx_mlir.runtime.cuda import CudaExecutable
    from rlx_mlir.runtime.device import DeviceArray
    raw = np.arange(8, dtype=np.float32)
    found = CudaExecutable(artifact())
    found.set_params({"raw": raw})
    for _ in range(3):
        found.run(inputs(3))
    child = os.fork()
    if child == 0:
        uses = [lambda: found.run(inputs(3)), lambda: DeviceArray.zeros((3,), "f4"), lambda: CudaExecutable(artifact())]
        for use in uses:
            try:
                use()
            except DeviceError as error:
                assert "this process was forked after its parent had used the GPU" in str(error), error
            else:
                os._exit(3)
        del found, use, uses  # frees nothing of the parent's
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
    found.run(inputs(3))
    print("done")
"""


def test_a_forked_child_cannot_use_the_gpu() -> None:
    done = run_python(FORK, RLX_CUDA_DRIVER=str(fake_library("fork")))
    assert done.stdout == "done\n", done.stderr


def test_a_fault_does_not_end_the_process() -> None:
    source = """
        import cuda_artifacts, numpy as np
        from rlx_mlir.errors import DeviceFaultError
        from rlx_mlir.runtime.cuda import CudaExecutable
        found = CudaExecutable(cuda_artifacts.one_call("increment"))
        try:
            found.run({"x": np.zeros(3, np.float32)})
        except DeviceFaultError as error:
            print(error.code)
    """
    done = run_python(source, RLX_CUDA_DRIVER=str(fake_library("fault")), FAKE_CUDA_FAIL="kernel:1:719")
    assert (done.stdout, done.returncode) == ("CUDA_ERROR_LAUNCH_FAILED\n", 0), done.stderr


def test_executables_that_live_at_exit_are_no_mistake() -> None:
    source = """
        import cuda_artifacts, numpy as np
        from rlx_mlir.runtime.cuda import CudaExecutable
        from rlx_mlir.runtime.device import DeviceArray
        found = CudaExecutable(cuda_artifacts.one_call("increment"))
        array = DeviceArray.zeros((3,), "f4")
        found.cycle = found
    """
    done = run_python(source, RLX_CUDA_DRIVER=str(fake_library("exit")))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_importing_loads_no_driver_and_no_mlir() -> None:
    source = """
        import sys
        import rlx_mlir.runtime.cuda, rlx_mlir.runtime.device, rlx_mlir.runtime.loading
        print(any(name.split(".")[0] == "mlir" for name in sys.modules), "libcuda" in open("/proc/self/maps").read())
    """
    done = run_python(source)
    assert done.stdout == "False False\n", done.stderr
