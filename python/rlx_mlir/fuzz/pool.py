# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Child processes that run cases: a case that crashes its child, or doesn't end, becomes a finding."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlx_mlir.files import Json

#: A case, as JSON carries it to a child, and what the child says of it.
Task = dict[str, Json]
Outcome = dict[str, Json]

_PATIENCE = 10  # times the seconds of a case that may pass while other programs run
_STDERR = 60_000  # bytes of it that are kept of a crash


class Worker:
    """One child process, started when it is needed and again after it ended."""

    def __init__(self, fuzzer: str, *, seconds: float, megabytes: int = 0, cases: int = 200) -> None:
        """Serves `rlx_mlir.fuzz.<fuzzer>`.

        Args:
            seconds: a case may take; the start of the process comes on top.
            megabytes: of memory that cases may take; 0 for no limit.
            cases: after which the process is replaced, so that what one leaves behind doesn't add up.
        """
        self._command = [sys.executable, "-m", "rlx_mlir.fuzz.worker", fuzzer, str(megabytes)]
        self._seconds, self._cases = seconds, cases
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._served = 0

    def run(self, task: Task) -> Outcome:
        """The child's answer, or what became of it: a finding of kind crash or hang.

        A case whose child was ended from outside, by SIGTERM, runs once more.
        """
        outcome = self._attempt(task)
        if outcome.get("kind") == "crash" and outcome["message"].startswith("SIGTERM"):
            outcome = self._attempt(task)
        return outcome

    def _attempt(self, task: Task) -> Outcome:
        if self._process is None or self._served >= self._cases:
            self.close()
            self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        allowance = self._seconds + (30 if self._served == 0 else 0)
        self._served += 1
        self._errors.seek(0)
        self._errors.truncate()
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
            line = self._answer(process, process.stdout.fileno(), allowance)
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        if line is None:
            process.send_signal(signal.SIGABRT)  # faulthandler prints where it was
            return self._ended("hang", f"no answer after {self._seconds:g} seconds")
        if not line:
            return self._ended("crash", "")
        answer: Outcome = json.loads(line)
        return answer

    @staticmethod
    def _answer(process: subprocess.Popen[bytes], output: int, seconds: float) -> bytes | None:
        """A line of the child's, or None after so many seconds.

        Where other programs have the processors, the clock says little: a child that didn't run for half of the time
        may go on for ten times as long.
        """
        begin = processor_seconds(process.pid)
        for _ in range(_PATIENCE):
            line = _read_line(output, seconds)
            ran = processor_seconds(process.pid) - begin
            if line is not None or ran >= seconds / 2 or not _is_crowded():
                return line
        return None

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "RLX_REPRODUCER_DIR": os.devnull}
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment
        )
        self._served = 0

    def _ended(self, kind: str, message: str) -> Outcome:
        process, self._process = self._process, None
        assert process is not None
        try:
            status = process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _STDERR))
        text = self._errors.read().decode(errors="replace")
        self._errors.close()
        _close(process)
        if kind == "crash":
            cause = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            message = f"{cause}: {_reason(text)}"
        return {"status": "finding", "kind": kind, "message": message, "details": text}

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is None:
            return
        self._errors.close()
        _close(process)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _is_crowded() -> bool:
    """Whether more programs run than there are processors."""
    return os.getloadavg()[0] > 1.5 * len(os.sched_getaffinity(0))


def processor_seconds(process: int) -> float:
    """The processor time of a process and of those of its children that ended; infinity where nobody knows."""
    try:
        after_name = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return math.inf
    return sum(map(int, after_name.split()[11:15])) / os.sysconf("SC_CLK_TCK")


def _read_line(descriptor: int, seconds: float) -> bytes | None:
    """A line; empty where the other side closed, None where it took too long."""
    deadline = time.monotonic() + seconds
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(descriptor, 1 << 16)
        if not part:
            return b""
        parts.append(part)
    return b"".join(parts)


def _reason(text: str) -> str:
    """What a process said last that explains its end."""
    for pattern in (r".*Assertion .*", r"LLVM ERROR: .*", r".*UNREACHABLE executed.*", r"terminate called.*\n.*"):
        if found := re.findall(pattern, text):
            return str(found[-1]).strip()
    return next((line for line in text.splitlines() if line.startswith("Fatal Python error")), "no message")


def run_all(
    make: Callable[[], Worker], tasks: Iterator[Task], jobs: int, stop: Callable[[], bool]
) -> Iterator[tuple[Task, Outcome]]:
    """The outcome of each task, as they come, from `jobs` workers; no task is begun once `stop` says so."""
    if jobs == 1:
        worker = make()
        try:
            for task in tasks:
                if stop():
                    break
                yield task, worker.run(task)
        finally:
            worker.close()
        return
    lock, done = threading.Lock(), queue.Queue[tuple[Task, Outcome] | None]()
    closing = threading.Event()

    def serve() -> None:
        worker = make()
        try:
            while not closing.is_set() and not stop():
                with lock:
                    task = next(tasks, None)
                if task is None:
                    break
                done.put((task, worker.run(task)))
        finally:
            worker.close()
            done.put(None)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    try:
        running = jobs
        while running:
            item = done.get()
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        closing.set()
        for thread in threads:
            thread.join()
