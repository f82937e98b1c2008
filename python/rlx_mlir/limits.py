# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How compilations end early: by a time limit, by Ctrl-C, or because one beside them failed. Needs no MLIR.

Compilers work in native code, which knows nothing of Python's signals. So the main thread has another one work, and
waits: Ctrl-C reaches it at once. It then stops the other one's `Watch`, which native code asks whether to go on: before
each pass of MLIR and each application of a pattern, before each optional pass of LLVM, and before code generation of
each function. What is under way is not interrupted: one pass that runs for ever can't be ended.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rlx_mlir.errors import CompileError, TimeLimitError

if TYPE_CHECKING:
    from rlx_mlir import _compiler as native

Result = TypeVar("Result")

_thread = threading.local()


class Watch:
    """What may end a compilation, and where its time went.

    Attributes:
        native: what native code asks.
        kernels: names of the module's, as soon as they are known.
    """

    def __init__(self, name: str = "", seconds: float | None = None) -> None:
        """Starts to count.

        Args:
            name: of the module.
            seconds: after which the compilation ends; None for none.
        """
        from rlx_mlir import ir

        self.native: native.Watch = ir.native.Watch(seconds or 0.0)
        self.kernels: tuple[str, ...] = ()
        self._name = name
        self._seconds = seconds
        group = getattr(_thread, "group", None)
        if group is not None:
            group.add(self)

    def stop(self) -> None:
        """Ends the compilation; from any thread."""
        self.native.stop()

    def culprit(self) -> str:
        """The kernel that most of the time went to, if there is one."""
        _, kernels = self._spent()
        return max(kernels, key=kernels.__getitem__, default="")

    def _spent(self) -> tuple[Counter[str], Counter[str]]:
        """Seconds by pass, and by kernel."""
        passes, kernels = Counter[str](), Counter[str]()
        for (own, unit), seconds in self.native.work:
            passes[own] += seconds  # type: ignore[assignment]
            kernels[self._kernel(unit)] += seconds  # type: ignore[assignment]
        del kernels[""]
        return passes, kernels

    def error(self, reproducer: Path | None = None) -> CompileError:
        """The error of a compilation that didn't come to its end."""
        if not self.native.is_late:
            return CompileError(f"compiling '{self._name}' was stopped")
        passes, kernels = self._spent()
        running, unit = self.native.place
        kernel = self._kernel(unit)
        text = f"compiling '{self._name}' isn't done within its time limit of {self._seconds:g} s"
        if running:
            text += f": {_named(running)} was running" + (f" on kernel '{kernel}'" if kernel else "")
        most = [f"{_named(name)} ({seconds:.1f} s)" for name, seconds in passes.most_common(1)]
        most += [f"kernel '{name}' ({seconds:.1f} s)" for name, seconds in kernels.most_common(1)]
        if most:
            text += f"; most of the time went to {' and to '.join(most)}"
        return TimeLimitError(
            text, seconds=self._seconds or 0.0, pass_name=running or None, kernel=kernel or None, reproducer=reproducer
        )

    def _kernel(self, function: str) -> str:
        """The kernel that a function belongs to, or an empty text."""
        own = [name for name in self.kernels if function == name or function.startswith((f"{name}.", f"{name}_"))]
        return max(own, key=len, default="")


def _named(own: str) -> str:
    """A pass as a message names it: passes of LLVM have the names of their classes."""
    if own[:1].isupper():
        return f"LLVM's '{own}'"
    return f"pass '{own}'" if " " not in own else own


def current() -> Watch:
    """The watch of the compilation that this thread is at; a new one where it is at none."""
    watch = getattr(_thread, "watch", None)
    return watch if watch is not None else Watch("a pipeline")


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """What this thread compiles in the block belongs to the watch."""
    outer = getattr(_thread, "watch", None)
    _thread.watch = watch
    try:
        yield
    finally:
        _thread.watch = outer


def interruptible(call: Callable[[], Result], watch: Watch) -> Result:
    """Makes a call of native code that asks the watch: from the main thread, such that Ctrl-C ends it soon.

    Elsewhere signals don't arrive, and the call is made as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    results: list[Result] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=work, name="rlx-compile").start()
    try:
        done.wait()
    except BaseException:  # KeyboardInterrupt, or what a handler of the caller's raises
        watch.stop()
        done.wait()
        raise
    if errors:
        raise errors[0]
    return results[0]


def end_at_interrupts() -> None:
    """Lets Ctrl-C end the process at once: MLIR's mains never ask Python whether it was pressed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class _Group:
    """Compilations of several threads that end together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: list[Watch] = []
        self._stopped = False

    def add(self, watch: Watch) -> None:
        with self._lock:
            self._watches.append(watch)
            if self._stopped:
                watch.stop()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for watch in self._watches:
                watch.stop()


def in_threads(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of calls that compile, each made in a thread of its own.

    Where one raises, or Ctrl-C is pressed, what the others compile ends soon, and what was raised first is raised.
    """
    group = _Group()

    def work(call: Callable[[], Result]) -> Result:
        _thread.group = group
        return call()

    with ThreadPoolExecutor(len(calls), "rlx-compile") as pool:
        futures = [pool.submit(work, call) for call in calls]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                if (error := future.exception()) is not None:
                    raise error
        except BaseException:
            group.stop()
            raise
        return [future.result() for future in futures]
