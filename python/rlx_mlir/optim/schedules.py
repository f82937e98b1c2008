# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules of learning rates: functions from the number of a step to its rate."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx_mlir import checks
from rlx_mlir.errors import InputError

#: The rate of a step, by its number from 0.
Schedule = Callable[[int], float]


def constant(rate: float, *, warmup: int = 0) -> Schedule:
    """The same rate at every step, after a rise from 0 over `warmup` steps.

    Raises InputError where the rate is negative, or `warmup` is no number of steps.
    """
    peak, rise = _rate("rate", rate), checks.whole("warmup", warmup)
    return lambda step: _risen(peak, step, rise)


def linear(rate: float, steps: int, *, warmup: int = 0, last: float = 0.0) -> Schedule:
    """A rise from 0 over `warmup` steps, then a straight way to `last` at step `steps`, where it stays.

    Raises InputError as `cosine` does.
    """
    return _falling(rate, steps, warmup, last, lambda part: 1 - part)


def cosine(rate: float, steps: int, *, warmup: int = 0, last: float = 0.0) -> Schedule:
    """A rise from 0 over `warmup` steps, then half a cosine to `last` at step `steps`, where it stays.

    Args:
        rate: the largest rate, that of step `warmup`.
        steps: in all; more than `warmup`.
        warmup: of the rise.
        last: the rate in the end.

    Raises InputError where a rate is negative, or there are no steps between `warmup` and `steps`.
    """
    return _falling(rate, steps, warmup, last, lambda part: (1 + math.cos(math.pi * part)) / 2)


def _falling(rate: float, steps: int, warmup: int, last: float, share: Callable[[float], float]) -> Schedule:
    peak, end = _rate("rate", rate), _rate("last", last)
    rise = checks.whole("warmup", warmup)
    count = checks.whole("steps", steps, rise + 1)

    def at(step: int) -> float:
        if step < rise:
            return _risen(peak, step, rise)
        return end + (peak - end) * share(min(1.0, (step - rise) / (count - rise)))

    return at


def _risen(peak: float, step: int, rise: int) -> float:
    return peak * min(1.0, (step + 1) / rise) if rise else peak


def _rate(name: str, value: float) -> float:
    rate = checks.real(name, value)
    if not 0 <= rate < math.inf:
        raise InputError(f"'{name}' is a finite rate of at least 0, but got {value!r}")
    return rate
