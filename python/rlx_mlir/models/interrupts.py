# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ctrl-C between two pieces of work, not within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Holds an interrupt of the keyboard back until the end of the block.

    Only the main thread gets interrupts; in others, and where something else than Python's own function answers them,
    nothing is done.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            signal.default_int_handler(*came[-1])


__all__ = ["deferred_interrupts"]
