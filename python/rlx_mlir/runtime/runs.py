# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs on a GPU that nobody has waited for, and streams of other libraries."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rlx_mlir.errors import DeviceError, InputError

if TYPE_CHECKING:
    from rlx_mlir._runtime import CudaPlan, CudaRun


class Used(Protocol):
    """An array that knows the last run that uses it."""

    run: Run | None


class Run:
    """A run of a module on a GPU that was started with ``wait=False``.

    Attributes:
        name: of the module.
        number: of the run, among all of its executable; the first is 1.
    """

    __slots__ = ("_kept", "_native", "name", "plan")

    def __init__(self, native: CudaRun, plan: CudaPlan, name: str, kept: tuple[object, ...]) -> None:
        """`kept` is what the run uses, which stays until it is over; `plan` is whose run it is."""
        self._native = native
        self._kept = kept
        self.plan = plan
        self.name = name

    @property
    def number(self) -> int:
        """Of the run, among all of its executable."""
        return int(self._native.number)

    def wait(self) -> None:
        """Returns when the run is over.

        Raises DeviceFaultError, or another DeviceError, where it or one before it failed: the message names them.
        """
        self._native.wait()
        self._kept = ()

    @property
    def done(self) -> bool:
        """Whether the run is over; raises what `wait` raises."""
        return bool(self._native.done)

    def hold(self, stream: object) -> None:
        """Lets a CUDA stream (see `stream_handle`) wait for the run; the caller goes on."""
        self._native.hold(stream_handle(stream))

    @property
    def native(self) -> CudaRun:
        """What plans take."""
        return self._native

    def __repr__(self) -> str:
        return f"Run({self.number} of '{self.name}')"


class InFlight:
    """The runs of an executable that may not be over: what they use has to stay, whoever drops it."""

    def __init__(self, plan: CudaPlan) -> None:
        self._plan = plan
        self._runs: deque[Run] = deque()
        self._lock = threading.Lock()

    def add(self, run: Run) -> None:
        """Takes a run, and forgets those that are over."""
        with self._lock:
            self._runs.append(run)
            with contextlib.suppress(DeviceError, IndexError):  # whoever waits for it is told
                while self._runs[0].done:
                    self._runs.popleft()

    def note(self, arrays: Sequence[Used], before: Sequence[Run | None], run: Run | None) -> None:
        """Makes a run, or none where it is over, the last one that uses arrays.

        `before` are those that were the last ones when the run was started: one that another thread has started since
        stays.
        """
        with self._lock:
            for array, own in zip(arrays, before, strict=True):
                last = array.run
                newer = last is not own and last is not None and last.plan is self._plan
                if not newer or (run is not None and last is not None and last.number < run.number):
                    array.run = run

    def __del__(self) -> None:
        if self._runs:
            with contextlib.suppress(DeviceError):
                self._plan.synchronize()


def stream_handle(stream: object) -> int:
    """The handle of a CUDA stream.

    Args:
        stream: a handle as a number (0 for the default stream), or a stream of PyTorch, CuPy, or any other library
            whose streams have `__cuda_stream__`.

    Raises InputError where it is none of these.
    """
    found = stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        found = (protocol() if callable(protocol) else protocol)[1]
    else:
        for attribute in ("cuda_stream", "ptr"):
            found = getattr(found, attribute, found)
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise InputError(f"a CUDA stream, or its handle, is expected, but got {stream!r}")
    return found


__all__ = ["InFlight", "Run", "stream_handle"]
