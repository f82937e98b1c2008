# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one place where tests get random numbers from that may differ between runs.

`RLX_TEST_SEED` is a number, 0 by default, or `fresh` for another one in every run; pytest's first lines say which.
Hypothesis draws from it, and so do the short runs of the fuzzers. `RLX_TEST_SHUFFLE` likewise runs the tests in another
order: none may depend on what ran before.
"""

from __future__ import annotations

import os
import random
from collections.abc import MutableSequence
from typing import Any

SEED, SHUFFLE = "RLX_TEST_SEED", "RLX_TEST_SHUFFLE"


def settle(variable: str) -> int | None:
    """The number that a variable has, or gets where it is `fresh`; None where it is unset. Processes inherit it."""
    text = os.environ.get(variable, "")
    if text == "fresh":
        text = os.environ[variable] = str(random.SystemRandom().randrange(1 << 31))
    if text and not (text.isascii() and text.isdigit()):
        raise ValueError(f"{variable} expects a number or 'fresh', but got {text!r}")
    return int(text) if text else None


def seed() -> int:
    """The number that this run's random tests are drawn from."""
    return settle(SEED) or 0


def shuffle(items: MutableSequence[Any]) -> None:
    """Brings the tests into the order of `RLX_TEST_SHUFFLE`, where it is set: the same in every worker."""
    number = settle(SHUFFLE)
    if number is not None:
        random.Random(number).shuffle(items)


def header() -> str:
    """The line about both in pytest's header."""
    order = settle(SHUFFLE)
    return f"{SEED}={seed()}" + (f" {SHUFFLE}={order}" if order is not None else "")
