# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Profiles of modules in files: IR text that is compiled here, or an artefact, which was."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir import checks
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError, did_you_mean
from rlx_mlir.measure.timing import Series
from rlx_mlir.runtime.artifact import BufferSpec
from rlx_mlir.runtime.dispatch import DispatchReport
from rlx_mlir.runtime.executable import Executable

#: Calls before those that are measured.
_WARM = 3


@dataclass(frozen=True)
class FileProfile:
    """What calls of a compiled module took.

    Attributes:
        name: of the module.
        sizes: of its symbols.
        threads: of one call, at most.
        seconds: of each call.
        report: how each kernel got its code, and its time.
    """

    name: str
    sizes: Mapping[str, int]
    threads: int
    seconds: Series
    report: DispatchReport

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        return {
            "program": self.name,
            "sizes": dict(self.sizes),
            "threads": self.threads,
            "seconds": self.seconds.to_dict(),
            "report": self.report.to_dict(),
        }

    def __str__(self) -> str:
        at = ", ".join(f"{symbol} = {size}" for symbol, size in self.sizes.items())
        median = self.seconds.median * 1e3
        return (
            f"{self.name}{f' at {at}' if at else ''}: {median:.3g} ms (spread {self.seconds.spread:.0%}, "
            f"{len(self.seconds.values)} calls, up to {self.threads} threads)\n\n{self.report}"
        )


def profile_executable(
    executable: Executable, *, sizes: Mapping[str, int] | None = None, rounds: int = 20
) -> FileProfile:
    """Measures calls on random numbers; integers, such as positions, are zeros.

    Args:
        executable: its parameters are set here.
        sizes: of symbols; others are at their declared maximum.
        rounds: calls that are measured.

    Raises InputError for symbols that it doesn't have, and for sizes and rounds that can't be.
    """
    artifact = executable.artifact
    known = dict(artifact.symbols)
    for symbol, size in (sizes or {}).items():
        if symbol not in known:
            listed = ", ".join(known) or "none"
            raise InputError(
                f"'{artifact.name}' has no symbol '{symbol}'{did_you_mean(symbol, known)}, it has {listed}"
            )
        checks.whole(symbol, size, 1, known[symbol])
    chosen = {**known, **(sizes or {})}
    rng = np.random.default_rng(0)

    def drawn(specs: Sequence[BufferSpec]) -> dict[str, np.ndarray]:
        found = {}
        for spec in specs:
            shape = tuple(size if isinstance(size, int) else chosen[size] for size in spec.shape)
            dtype = DTYPES[spec.dtype]
            integers = dtype.kind in "iub" and dtype == np.dtype(dtype.type)
            found[spec.name] = np.zeros(shape, dtype) if integers else (rng.standard_normal(shape) / 8).astype(dtype)
        return found

    executable.set_params(drawn(executable.params))
    inputs = drawn(executable.inputs)
    for _ in range(_WARM):
        executable.run(inputs)
    seconds = Series()
    executable.profile(True)
    for _ in range(checks.whole("rounds", rounds, 1)):
        begin = time.perf_counter()
        executable.run(inputs)
        seconds.values.append(time.perf_counter() - begin)
    executable.profile(False)
    return FileProfile(artifact.name, chosen, executable.threads, seconds, executable.dispatch_report(chosen))


__all__ = ["FileProfile", "profile_executable"]
