# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of users' own at run time: what compiled code calls, and what happens where that fails.

Compiled code calls a function of C by its address. A function of Python is called through one that `ctypes` makes,
which takes the interpreter's lock; what it raises is kept, and raised once the plan's run is over.
"""

from __future__ import annotations

import ctypes
import math
import threading
from _ctypes import CFuncPtr  # the class of functions of C, which ctypes doesn't name
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from rlx_mlir import native
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import ExecutionError, InputError
from rlx_mlir.own_ops import OwnOp, find_op
from rlx_mlir.runtime.artifact import Artifact, OwnCall

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_FAILED = ctypes.CFUNCTYPE(None, ctypes.c_int64)


#: What runs an artefact's calls: `native.Plan`, `_GuardedPlan` around one, or `native.CudaPlan`; their methods differ.
RunPlan: TypeAlias = Any


class _Failure(threading.local):
    """What the present run of this thread failed with; kernels of one unit run on the thread that runs the plan."""

    error: BaseException | None = None


class Linked:
    """The code of an artefact, with the functions that it calls.

    Attributes:
        code: linked with them.
    """

    def __init__(self, artifact: Artifact) -> None:
        """Links the code.

        Raises ExecutionError, which names all of them, where the code calls operations that aren't registered, or are
        others than it was compiled for.
        """
        self._failure = _Failure()
        functions = [(call, _registered(artifact, call)) for call in artifact.own]
        self._kept: list[object] = []
        symbols = []
        for call, own in functions:
            kernel = own.kernel if call.native else self._python(call, own)
            assert isinstance(kernel, CFuncPtr)
            pair = (kernel, self._native_failure(call))
            self._kept += pair
            for name, function in zip((f"own_{call.kernel}", f"own_{call.kernel}_failed"), pair, strict=True):
                symbols.append((name, ctypes.cast(function, ctypes.c_void_p).value or 0))
        self.code = native.ObjectCode([artifact.code], symbols)
        for call in artifact.own:
            _check_buffers(call, self.code)

    def guard(self, plan: RunPlan) -> RunPlan:
        """A plan on the code that raises what the functions failed with; the plan itself where there are none."""
        return _GuardedPlan(plan, self) if self._kept else plan

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Around what runs the code in this thread: raises what a function failed with."""
        self._failure.error = None
        yield
        error, self._failure.error = self._failure.error, None
        if error is not None:
            raise error

    def check(self) -> None:
        """Raises what a function has failed with in this run: a loop needn't go on."""
        if self._failure.error is not None:
            raise self._failure.error

    def _note(self, error: BaseException) -> None:
        """Keeps the first error of a run."""
        if self._failure.error is None:
            self._failure.error = error

    def _python(self, call: OwnCall, own: OwnOp) -> CFuncPtr:
        def run(buffers: int, sizes: int, _: int) -> int:
            if self._failure.error is not None:
                return 0  # what the operands hold comes from what failed
            try:
                # As a range of the pool that may call anything: a plan that it ran would wait for the one that runs.
                native.parallel_for(lambda begin, end, thread: _compute(call, own, buffers, sizes), 1, 1)
            except BaseException as error:  # such as KeyboardInterrupt: compiled code can't pass it on
                self._note(error)
            return 0

        return _FUNCTION(run)

    def _native_failure(self, call: OwnCall) -> CFuncPtr:
        def failed(status: int) -> None:
            self._note(ExecutionError(f"the kernel of '{call.op}' gave the error number {status}"))

        return _FAILED(failed)


class _GuardedPlan:
    """A plan of compiled code that calls functions which may fail."""

    def __init__(self, plan: RunPlan, linked: Linked) -> None:
        self._plan = plan
        self._linked = linked

    def run(self, *arguments: object) -> None:
        """Runs the plan; raises what a function failed with. The outputs mean nothing then."""
        with self._linked.guarded():
            self._plan.run(*arguments, check=self._linked.check)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)


def _registered(artifact: Artifact, call: OwnCall) -> OwnOp:
    """The operation that a kernel calls, which has to be registered as it was; ExecutionError otherwise."""
    where = f"'{artifact.name}' calls your operation '{call.op}'"
    try:
        own = find_op(call.op)
    except InputError:
        needed = ", ".join(sorted({each.op for each in artifact.own}))
        raise ExecutionError(
            f"{where}, which isn't registered in this process: register_op has to be called for {needed} before"
        ) from None
    if own.kernel is None:
        raise ExecutionError(f"{where}, but it is registered without a kernel")
    if own.is_native != call.native:
        kinds = ("Python", "C")
        raise ExecutionError(
            f"{where} as a function of {kinds[call.native]}, but its kernel is one of {kinds[own.is_native]}: compile "
            "it again"
        )
    if own.operand_count not in (None, len(call.operands)) or set(own.parameter_names) != set(call.parameters):
        raise ExecutionError(
            f"{where} with {len(call.operands)} operands and the parameters {', '.join(call.parameters) or 'none'}, "
            "but it is registered with others: compile it again"
        )
    return own


def _check_buffers(call: OwnCall, code: native.ObjectCode) -> None:
    """ExecutionError where the kernel's code has other buffers than the description says: their memory is read so."""
    first = ctypes.c_int64.from_address(code.lookup(f"{call.kernel}_signature"))
    words = (ctypes.c_int64 * first.value).from_address(ctypes.addressof(first))
    found, at = [], 2
    for _ in range(words[1]):
        found.append((int(words[at]), int(words[at + 1])))
        at += 2 + words[at + 1]
    count = len(found) - len(call.results)
    expected = [found[number] for number in call.order if 0 <= number < count] + found[count:]
    if count < 0 or [(DTYPES[dtype].itemsize, rank) for dtype, rank in (*call.operands, *call.results)] != expected:
        raise ExecutionError(f"kernel '{call.kernel}' has other operands and results than those of '{call.op}'")


def _compute(call: OwnCall, own: OwnOp, buffers: int, sizes: int) -> None:
    """Calls the kernel on arrays in the memory of operands, and copies what it gives to that of the results."""
    described = (*call.operands, *call.results)
    pointers = (ctypes.c_void_p * len(described)).from_address(buffers)
    entries = iter((ctypes.c_int64 * sum(rank for _, rank in described)).from_address(sizes))
    arrays = []
    for pointer, (dtype, rank) in zip(pointers, described, strict=True):
        arrays.append(_array(pointer, tuple(next(entries) for _ in range(rank)), DTYPES[dtype]))
    operands, results = arrays[: len(call.operands)], arrays[len(call.operands) :]
    for array in operands:
        array.flags.writeable = False
    found = own.call_kernel(operands, call.parameters)
    for result, value in zip(results, found, strict=True):
        if value.shape != result.shape or value.dtype != result.dtype:
            raise ExecutionError(
                f"'kernel' of '{own.name}' gave {value.dtype} {list(value.shape)}, but the code was compiled for "
                f"{result.dtype} {list(result.shape)}: compile it again"
            )
        result[...] = value


def _array(pointer: int | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array on memory that compiled code has."""
    count = math.prod(shape) * dtype.itemsize
    if not count or pointer is None:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * count).from_address(pointer)
    array: np.ndarray = np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
    return array


__all__ = ["Linked"]
