# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Profiles of modules in files: graphs that are compiled here, or an artefact, which was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir import checks
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError, did_you_mean
from rlx_mlir.measure.profile import Profile, ProgramProfile, Run, measured
from rlx_mlir.measure.timing import Series
from rlx_mlir.runtime.artifact import BufferSpec
from rlx_mlir.runtime.dispatch import DispatchReport
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.runtime.work import work_of

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule

#: Calls before those that are measured.
_WARM = 3
#: Measurements of the machine's limits after each call, and how many calls have some.
_PROBES, _PROBED = 2, 5


@dataclass(frozen=True)
class FileProfile:
    """What calls of a compiled module took.

    Attributes:
        name: of the module.
        sizes: of its symbols.
        threads: of one call, at most.
        seconds: of each call.
        report: how each kernel got its code, and its time.
        program: bytes, operations and the machine's limits; None where the artefact doesn't say what its calls do:
            its file is of version 10, or it was compiled from a later stage than kernels.
    """

    name: str
    sizes: Mapping[str, int]
    threads: int
    seconds: Series
    report: DispatchReport
    program: ProgramProfile | None = None

    @property
    def profile(self) -> Profile:
        """The same as a profile of a model with one module, for timelines and plots; InputError without a program."""
        if self.program is None:
            raise InputError(f"'{self.name}' doesn't say what its calls read, write and compute: compile it again")
        return Profile(self.name, (self.program,), self.program.roofline)

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        found: dict[str, object] = {
            "program": self.name,
            "sizes": dict(self.sizes),
            "threads": self.threads,
            "seconds": self.seconds.to_dict(),
            "report": self.report.to_dict(),
        }
        if self.program is not None:
            words = ("bytes", "flops", "bound", "roofline", "kernels")
            own = self.program.to_dict()
            found |= {"machine": self.program.roofline.to_dict(), **{word: own[word] for word in words}}
        return found

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
    """Measures calls on random numbers, beside the machine's limits; integers, such as positions, are zeros.

    Args:
        executable: its parameters are set here.
        sizes: of symbols; others are at their declared maximum.
        rounds: calls that are measured.

    Raises InputError for symbols that it doesn't have, and for sizes and rounds that can't be; ExecutionError where
    what the artefact says of its calls makes no sense.
    """
    return _measured(executable, None, sizes or {}, rounds)


def profile_module(
    module: GraphModule,
    *,
    threads: int | None = None,
    activations: str = "exact",
    maxima: Mapping[str, int] | None = None,
    params: Mapping[str, np.ndarray] | None = None,
    sizes: Mapping[str, int] | None = None,
    rounds: int = 20,
) -> FileProfile:
    """Compiles a graph, and measures it as `profile_executable` does, beside the machine's limits.

    Args:
        module: at stage hir, mir or kernels; at later ones there is nothing to count operations of.
        threads, activations, maxima: see `rlx_mlir.compile`.
        params: its parameters, where they are known; all or none.
        sizes, rounds: see `profile_executable`.

    Raises as `rlx_mlir.compile` and `profile_executable` do.
    """
    from rlx_mlir.compiler import compile

    executable = compile(module, threads=threads, activations=activations, maxima=dict(maxima or {}))
    return _measured(executable, params, sizes or {}, rounds)


def _measured(
    executable: Executable, params: Mapping[str, np.ndarray] | None, sizes: Mapping[str, int], rounds: int
) -> FileProfile:
    from rlx_mlir.measure.device import DeviceProbe
    from rlx_mlir.measure.roofline import Probe, rounded_set

    artifact, count = executable.artifact, checks.whole("rounds", rounds, 1)
    chosen, inputs = _prepared(executable, sizes, params)
    work = work_of(artifact)
    if work is None:
        return _profile(executable, chosen, [_run(executable, inputs, chosen) for _ in range(count)], None)
    done = work.at(chosen)
    probe = (
        DeviceProbe(executable.device)  # type: ignore[attr-defined]
        if artifact.chip
        else Probe(executable.threads, rounded_set(sum(own.bytes for own in done)))
    )
    limits: dict[str, Series] = {name: Series() for name in probe.figures()}
    runs = []
    for number in range(count):
        runs.append(_run(executable, inputs, chosen))
        for _ in range(_PROBES if number < _PROBED else 0):  # in turns, so that both have the same machine
            for name, figure in probe.figures().items():
                limits[name].values.append(figure())
    program = ProgramProfile(
        artifact.name, work.calls, artifact.templates, runs, [done] * len(runs), probe.roofline(limits)
    )
    return _profile(executable, chosen, runs, program)


def _prepared(
    executable: Executable, sizes: Mapping[str, int], params: Mapping[str, np.ndarray] | None = None
) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """The sizes of all symbols, and inputs; the parameters are set, and the first calls are over."""
    artifact = executable.artifact
    known = dict(artifact.symbols)
    for symbol, size in sizes.items():
        if symbol not in known:
            listed = ", ".join(known) or "none"
            raise InputError(
                f"'{artifact.name}' has no symbol '{symbol}'{did_you_mean(symbol, known)}, it has {listed}"
            )
        checks.whole(symbol, size, 1, known[symbol])
    chosen = {**known, **sizes}
    rng = np.random.default_rng(0)

    def drawn(specs: Sequence[BufferSpec]) -> dict[str, np.ndarray]:
        found = {}
        for spec in specs:
            shape = tuple(size if isinstance(size, int) else chosen[size] for size in spec.shape)
            dtype = DTYPES[spec.dtype]
            integers = dtype.kind in "iub" and dtype == np.dtype(dtype.type)
            found[spec.name] = np.zeros(shape, dtype) if integers else (rng.standard_normal(shape) / 8).astype(dtype)
        return found

    executable.set_params(params or drawn(executable.params))
    inputs = drawn(executable.inputs)
    for _ in range(_WARM):
        executable.run(inputs)
    return chosen, inputs


def _run(executable: Executable, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> Run:
    return measured(executable, partial(executable.run, inputs), sizes)


def _profile(
    executable: Executable, sizes: Mapping[str, int], runs: Sequence[Run], program: ProgramProfile | None
) -> FileProfile:
    seconds = Series([run.seconds for run in runs])
    report = executable.dispatch_report(sizes)  # with the times of the last run
    return FileProfile(executable.artifact.name, sizes, executable.threads, seconds, report, program)


__all__ = ["FileProfile", "profile_executable", "profile_module"]
