# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache folder, as `rlx cache` shows and clears it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ..errors import CacheError
from ..models.hub import cache_dir

_PARTS = {"models": "models", "compiled": "compiled"}
"""Folders in the cache by what they hold; nothing else in it is ours to delete."""


def describe_cache() -> dict[str, Any]:
    """The folder, and number and size of the files of each kind."""
    parts = {}
    for name, folder in _PARTS.items():
        sizes = _sizes(cache_dir() / folder)
        parts[name] = {"files": len(sizes), "bytes": sum(sizes)}
    return {"folder": str(cache_dir()), "parts": parts}


def clear_cache(*, models: bool = False) -> int:
    """Deletes compiled code, and returns how many bytes that were; CacheError where it can't be deleted.

    Args:
        models: delete downloaded models, too.
    """
    freed = 0
    for name, folder in _PARTS.items():
        if name == "models" and not models:
            continue
        path = cache_dir() / folder
        size = sum(_sizes(path))
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CacheError(f"{path} cannot be deleted: {error.strerror}") from error
        freed += size
    return freed


def _sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]


__all__ = ["clear_cache", "describe_cache"]
