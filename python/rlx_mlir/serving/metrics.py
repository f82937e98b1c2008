# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts and times as Prometheus reads them: its text format, of version 0.0.4.

One thread writes and reads, the one of the event loop.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Bounds of the histograms."""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _labels(labels: Mapping[str, str]) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items()) + "}" if labels else ""


class Counter:
    """A number that grows, for each value of its labels."""

    kind = "counter"

    def __init__(self, *names: str) -> None:
        self._names = names
        self._values: dict[tuple[str, ...], float] = {} if names else {(): 0}

    def add(self, count: float = 1, *values: str) -> None:
        """Adds to the number of some labels' values, in the order of their names."""
        self._values[values] = self._values.get(values, 0) + count

    def value(self, *values: str) -> float:
        """The number of some labels' values."""
        return self._values.get(values, 0)

    def lines(self, name: str) -> list[str]:
        """Its lines."""
        return [
            f"{name}{_labels(dict(zip(self._names, values, strict=True)))} {_number(count)}"
            for values, count in sorted(self._values.items())
        ]


class Gauge:
    """A number that is asked for where it is read."""

    kind = "gauge"

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read

    def lines(self, name: str) -> list[str]:
        """Its line."""
        return [f"{name} {_number(self._read())}"]


class Histogram:
    """How many observations were up to each of some bounds, and their sum."""

    kind = "histogram"

    def __init__(self, bounds: Sequence[float] = _SECONDS) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value, several times."""
        self._counts[bisect.bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def lines(self, name: str) -> list[str]:
        """Its lines."""
        found, count = [], 0
        for bound, own in zip((*map(_number, self._bounds), "+Inf"), self._counts, strict=True):
            count += own
            found.append(f'{name}_bucket{{le="{bound}"}} {count}')
        return [*found, f"{name}_sum {_number(self._sum)}", f"{name}_count {count}"]


Metric = Counter | Gauge | Histogram


class Metrics:
    """All that a server counts, by name, with what it means."""

    def __init__(self) -> None:
        self._all: dict[str, tuple[str, Metric]] = {}

    def add(self, name: str, meaning: str, metric: Metric) -> None:
        """One more."""
        self._all[name] = (meaning, metric)

    def text(self) -> str:
        """All of them as text."""
        lines: list[str] = []
        for name, (meaning, metric) in self._all.items():
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {metric.kind}", *metric.lines(name)]
        return "\n".join(lines) + "\n"


__all__ = ["CONTENT_TYPE", "Counter", "Gauge", "Histogram", "Metric", "Metrics"]
