# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs compiled code for GPUs without one: a stand-in for NVIDIA's driver, whose kernels the emulator of PTX runs.

    with emulated_device("sm_90a") as cuda:
        executable = rlx.compile(module, target="cuda", chip="sm_90a")
        executable.set_params(parameters)
        results = executable.run(inputs)

What runs is all that runs on a GPU: host code, the plan, copies, CUDA graphs, PTX. At the end the block checks that
nothing was misused; see `FakeCuda` for what tests can look at and let go wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import real_gpu

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
SOURCES = Path(__file__).resolve().parents[3] / "emulator" / "fake_cuda"

#: Results of the driver that tests let calls have.
OUT_OF_MEMORY, ILLEGAL_ADDRESS, LAUNCH_FAILED = 2, 700, 719
#: What the driver hands out.
KINDS = ("memory", "pinned memory", "stream", "event", "module", "graph", "graph exec")

#: Runs a kernel: (PTX, name, grid, block, bytes of dynamic shared memory, parameters). May raise.
Runner = Callable[[bytes, str, tuple[int, ...], tuple[int, ...], int, bytes], None]

_LAUNCH = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_int),
)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rlx-fake-cuda-")


@functools.cache
def _built() -> Path:
    """The stand-in's library; skips the test where there is no C compiler."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    library = Path(_folder().name) / "libfakecuda.so"
    flags = ["-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread"]
    subprocess.run([COMPILER, *flags, SOURCES / "fake_cuda.c", "-o", library], check=True)
    return library


@functools.cache
def fake_library(*variant: Any) -> Path:
    """A library of its own for each variant: what the run time has read of a GPU it keeps."""
    copy = Path(_folder().name) / f"libcuda-{'-'.join(map(str, variant))}.so"
    shutil.copyfile(_built(), copy)
    return copy


class FakeCuda:
    """The stand-in for the driver, as tests see it.

    Attributes:
        path: of the library, for the environment's RLX_CUDA_DRIVER.
        errors: what kernels raised.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.errors: list[Exception] = []
        self._library = ctypes.CDLL(str(path))
        for name in ("fake_trace", "fake_misuse"):
            getattr(self._library, name).restype = ctypes.c_char_p
        for name in ("fake_count", "fake_live", "fake_kernels", "fake_changes", "fake_allocations"):
            getattr(self._library, name).restype = ctypes.c_long
        self._library.fake_used.restype = ctypes.c_size_t
        self._library.fake_clock.restype = ctypes.c_double
        self._library.fake_advance.argtypes = (ctypes.c_double,)
        self._library.fake_allocations.argtypes = (ctypes.POINTER(ctypes.c_uint64), ctypes.c_long)
        self._library.fake_fail.argtypes = (ctypes.c_char_p, ctypes.c_long, ctypes.c_int)
        self._library.fake_set_device.argtypes = (*[ctypes.c_int] * 3, ctypes.c_size_t, *[ctypes.c_int] * 2)
        self._callback: Any = None

    def reset(self, devices: int, capability: int, memory: int, driver: int, ptx: int) -> None:
        """Forgets everything, and says what GPUs there are."""
        self._library.fake_reset()
        self._library.fake_set_device(devices, capability // 10, capability % 10, memory, driver, ptx)
        self.errors.clear()

    def run_kernels(self, run: Runner) -> None:
        """Lets kernels be run by a function."""

        def launch(
            image: int,
            length: int,
            name: bytes,
            grid: Any,
            block: Any,
            shared: int,
            params: int,
            size: int,
            result: Any,
        ) -> None:
            try:
                data = ctypes.string_at(params, size)
                run(ctypes.string_at(image, length), name.decode(), tuple(grid[:3]), tuple(block[:3]), shared, data)
            except Exception as error:  # nothing may be raised through the driver
                self.errors.append(error)
                self._library.fake_set_error_text(str(error).encode())
                result[0] = LAUNCH_FAILED

        self._callback = _LAUNCH(launch)
        self._library.fake_set_launch(self._callback)

    def read_late(self) -> None:
        """Lets copies read memory of the host when they take place, as where GPUs see all of it (Grace Hopper); else
        what isn't pinned is read at the call. The driver promises neither."""
        self._library.fake_set_late(1)

    def advance(self, seconds: float) -> None:
        """Lets time pass that events see; a kernel takes 1 us, and what its runner adds."""
        self._library.fake_advance(seconds * 1e3)

    def clock(self) -> float:
        """The time that events see, in seconds."""
        return float(self._library.fake_clock()) / 1e3

    @property
    def changes(self) -> int:
        """How often memory was allocated or freed."""
        return int(self._library.fake_changes())

    def allocations(self) -> dict[int, int]:
        """Bytes of the GPU's memory that is allocated, by address."""
        count = self._library.fake_allocations(None, 0)
        pairs = (ctypes.c_uint64 * (2 * count))()
        self._library.fake_allocations(pairs, count)
        return dict(zip(pairs[::2], pairs[1::2], strict=True))

    def fail(self, function: str, result: int, nth: int = 1) -> None:
        """Lets a function of the driver fail, from now on at its nth call, or at every one where that is 0.

        The name is that of the library, such as ``cuMemAlloc_v2``; ``kernel`` stands for the run of a kernel.
        """
        self._library.fake_fail(function.encode(), nth, result)

    def count(self, function: str) -> int:
        """Calls of a function."""
        return int(self._library.fake_count(function.encode()))

    @property
    def kernels(self) -> int:
        """Kernels that ran."""
        return int(self._library.fake_kernels())

    @property
    def used(self) -> int:
        """Bytes of the GPU's memory that are allocated."""
        return int(self._library.fake_used())

    @property
    def live(self) -> dict[str, int]:
        """What the driver handed out and didn't get back, by its kind."""
        counts = {kind: int(self._library.fake_live(number)) for number, kind in enumerate(KINDS)}
        return {kind: count for kind, count in counts.items() if count}

    @property
    def misuse(self) -> list[str]:
        """What was done that a driver doesn't allow."""
        return sorted(set(self._library.fake_misuse().decode().splitlines()))

    def trace(self, *, clear: bool = True) -> list[str]:
        """Copies, launches and graphs since the last time: ``launch NAME x,y,z x,y,z shared=N pdl=0``."""
        lines = self._library.fake_trace().decode().splitlines()
        if clear:
            self._library.fake_clear_trace()
        return [str(line) for line in lines]


@contextlib.contextmanager
def fake_device(
    chip: str = "sm_90a",
    *,
    devices: int = 1,
    memory: int = 8 << 30,
    driver: int = 12080,
    ptx: int = 87,
    leaks: bool = True,
) -> Iterator[FakeCuda]:
    """GPUs whose kernels do nothing, or what `FakeCuda.run_kernels` says.

    Args:
        chip: what the GPUs are.
        devices: how many there are.
        memory: bytes of each.
        driver: version of CUDA, 12080 for 12.8.
        ptx: the last version of PTX that the driver knows, times ten.
        leaks: whether everything has to be given back at the end: then the block's executables have to be gone.

    At the end, nothing may have been misused.
    """
    capability = int(chip.removeprefix("sm_").rstrip("a"))
    cuda = FakeCuda(fake_library(chip, devices, memory, driver, ptx))
    cuda.reset(devices, capability, memory, driver, ptx)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CUDA_DRIVER", str(cuda.path))
        yield cuda
        gc.collect()
        assert not cuda.misuse, cuda.misuse
        assert not (leaks and cuda.live), cuda.live


class _NoStandIn:
    """In place of the stand-in for the driver, where there is a GPU: what looks at it is skipped."""

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"a GPU doesn't tell '{name}'")


@contextlib.contextmanager
def real_device() -> Iterator[None]:
    """The GPU of this machine; skips the test, with the reason, where there is none that can be used."""
    from rlx_mlir import native
    from rlx_mlir.errors import DeviceError

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RLX_CUDA_DRIVER", raising=False)
        try:
            native.CudaDevice()
        except DeviceError as error:
            pytest.skip(str(error))
        yield


@contextlib.contextmanager
def emulated_device(chip: str = "sm_90a", *, leaks: bool = False, **options: Any) -> Iterator[FakeCuda]:
    """A GPU whose kernels the emulator of PTX runs; arguments are those of `fake_device`.

    With RLX_TEST_GPU=1 in the environment it is this machine's own, where that runs code for the chip.
    """
    from ptx_emulator import DeviceMemory, load

    if real_gpu.is_wanted(chip):
        with real_device():
            yield _NoStandIn()  # type: ignore[misc]
        return
    parse = functools.lru_cache(maxsize=4)(load)
    known: dict[int, int] = {}
    memory, changes = DeviceMemory(), -1

    def run(
        image: bytes, name: str, grid: tuple[int, ...], block: tuple[int, ...], shared: int, parameters: bytes
    ) -> None:
        nonlocal changes, known
        if cuda.changes != changes:
            changes, present = cuda.changes, cuda.allocations()
            # Memory at an old address may be new.
            memory.forget_writes()
            for address in known.keys() - present.keys():
                memory.unregister(address)
            for address in present.keys() - known.keys():
                memory.register_range(address, present[address])
            known = present
        parse(image).launch_bytes(name, grid, block, shared, parameters, memory)

    with fake_device(chip, leaks=leaks, **options) as cuda:
        cuda.run_kernels(run)
        yield cuda
