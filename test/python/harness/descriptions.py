# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes of what files say of themselves, as JSON has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Change = Callable[[dict[str, Any]], None]


def set_at(*path: Any, to: Any) -> Change:
    """A change that puts a value at a place."""

    def change(description: dict[str, Any]) -> None:
        inner: Any = description
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to

    return change
