# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The child process of a fuzzer: reads tasks from stdin, a JSON object a line, and answers each with one.

What a case does to the process (crash, hang, memory) is for the parent to see; what it prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import resource
import sys
import traceback
from pathlib import Path
from types import ModuleType

from rlx_mlir.fuzz.pool import Outcome, Task

_MIB = 1 << 20


def _address_space() -> int:
    """Bytes of address space that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _limit_memory(megabytes: int) -> None:
    """Lets the process take so much more address space; allocations beyond fail with MemoryError."""
    limit = _address_space() + megabytes * _MIB
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _handle(module: ModuleType, task: Task) -> Outcome:
    try:
        answer: Outcome = module.handle(task)
    except MemoryError:
        answer = {"status": "finding", "kind": "memory", "message": traceback.format_exc(limit=-4)}
    except Exception as error:
        answer = {
            "status": "finding",
            "kind": "exception",
            "message": f"{type(error).__name__}: {error}",
            "details": traceback.format_exc(),
        }
    return answer


def main() -> None:
    """Serves the fuzzer that the first argument names; the second limits memory, in MiB (0: no limit).

    A fuzzer is a module of this package, or any module by its name with a dot: it has `prepare` and `handle`.
    """
    name = sys.argv[1]
    module = importlib.import_module(name if "." in name else f"rlx_mlir.fuzz.{name}")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    module.prepare()
    if megabytes := int(sys.argv[2]):
        _limit_memory(megabytes)
    for line in sys.stdin:
        print(json.dumps(_handle(module, json.loads(line))), file=answers, flush=True)
    with contextlib.suppress(BrokenPipeError):
        answers.close()


if __name__ == "__main__":
    main()
