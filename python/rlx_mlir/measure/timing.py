# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Timing that can be trusted: implementations in turns, medians with their spread, and no conclusion from noise."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata

from rlx_mlir.version import __version__

#: Above this spread (interquartile range over median), figures say nothing.
NOISY = 0.25
#: Above this change of the median from the first half of the rounds to the second, they say nothing either.
DRIFTING = 0.15
#: Seconds between two implementations: threads of libraries spin on for up to 0.2 s after a call, and would take a CPU
#: from whoever comes next.
REST = 0.3
#: Seconds for which an implementation runs unmeasured then: threads that slept may be woken on the CPU of their caller,
#: and the kernel needs some 12 ms to find them another.
WAKE = 0.04
#: Fewer rounds than this have no spread worth the name.
FEWEST_ROUNDS = 3


def seconds_per_call(
    call: Callable[[], object], floor: float, clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """A figure for `interleave`: seconds of one call, over at least `floor` seconds of calls, with threads awake."""

    def calls(least: float, clock: Callable[[], float]) -> float:
        count, begin = 0, clock()
        while True:
            call()
            count += 1
            spent = clock() - begin
            if spent >= least:
                return spent / count

    def figure() -> float:
        calls(WAKE, time.perf_counter)
        return calls(floor, clock)

    return figure


@dataclass
class Series:
    """Measurements of one implementation in the order of their rounds, in one unit."""

    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Interquartile range over the median; of fewer than four values, the whole range over it."""
        if len(self.values) < 4:
            return (max(self.values) - min(self.values)) / self.median
        low, _, high = statistics.quantiles(self.values, n=4)
        return (high - low) / self.median

    @property
    def drift(self) -> float:
        """Change of the median from the first half of the rounds to the second, relative; 0 for fewer than four."""
        half = len(self.values) // 2
        if half < 2:
            return 0.0
        return statistics.median(self.values[-half:]) / statistics.median(self.values[:half]) - 1

    @property
    def noise(self) -> str:
        """Why nothing follows from the values; empty where something does."""
        if len(self.values) < FEWEST_ROUNDS:
            return f"{len(self.values)} rounds are fewer than {FEWEST_ROUNDS}"
        if self.spread > NOISY:
            return f"spread of {self.spread:.0%} is above {NOISY:.0%}"
        if abs(self.drift) > DRIFTING:
            return f"drift of {self.drift:+.0%} is above {DRIFTING:.0%}"
        return ""

    def to_dict(self) -> dict[str, object]:
        """Median, spread and drift, as JSON can write them."""
        return {"median": self.median, "spread": self.spread, "drift": self.drift, "rounds": len(self.values)}


@dataclass(frozen=True)
class Comparison:
    """One implementation against another that was measured in the same rounds.

    Attributes:
        ratio: how many times better the first one is: median over rounds of the ratio within a round.
        spread: interquartile range of that ratio over its median.
        noise: why nothing follows; empty where something does.
    """

    ratio: float
    spread: float
    noise: str

    @property
    def is_conclusive(self) -> bool:
        return not self.noise

    def __str__(self) -> str:
        """The ratio; where it says nothing, that, and nothing else."""
        return f"inconclusive: {self.noise}" if self.noise else f"{self.ratio:.2f}x"

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it: without conclusion, the ratio is null."""
        return {"ratio": self.ratio if self.is_conclusive else None, "spread": self.spread, "noise": self.noise}


def compare(ours: Series, rival: Series, *, higher_is_better: bool = True) -> Comparison:
    """How many times better the first series is than the second, round by round, unless noise hides it.

    A machine that slows down for everybody moves both series and leaves their ratio: then the ratio's own spread
    decides, beside that of the series.
    """
    pairs = zip(ours.values, rival.values, strict=True)
    ratios = Series([a / b if higher_is_better else b / a for a, b in pairs])
    noise = ratios.noise and f"of the ratio, {ratios.noise}"
    for name, series in (("ours", ours), ("the other", rival)):
        noise = noise or (series.noise and f"of {name}, {series.noise}")
    return Comparison(ratios.median, ratios.spread, noise)


def interleave(
    implementations: Mapping[str, Callable[[], float]],
    rounds: int,
    *,
    warm: bool = True,
    rest: float = REST,
    after_round: Callable[[int], None] | None = None,
) -> dict[str, Series]:
    """Runs all implementations in turn, `rounds` times: A B A B…

    Args:
        implementations: each returns its own figure (seconds, tokens per second), so that set-up doesn't count.
        rounds: measured ones.
        warm: run each once before, unmeasured.
        rest: seconds of sleep before each implementation's turn, where there are several.
        after_round: called with the number of rounds done, for progress.
    """
    series = {name: Series() for name in implementations}
    if warm:
        for run in implementations.values():
            run()
    for number in range(rounds):
        for name, run in implementations.items():
            if len(implementations) > 1:
                time.sleep(rest)
            series[name].values.append(run())
        if after_round is not None:
            after_round(number + 1)
    return series


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Installed versions, and what machine this is."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "cpus": str(os.cpu_count())}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            # This package may run from its source.
            found[package] = __version__ if package == "rlx-mlir" else "not installed"
    return found
