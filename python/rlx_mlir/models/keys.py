# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Metadata of one architecture, as models are read by it: each value is checked when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ..errors import GGUFError, UnsupportedError
from ..frontends.model_file import MetadataValue, ModelFile


class Keys:
    """Metadata of one architecture, each value checked as it is read."""

    def __init__(self, file: ModelFile, prefix: str) -> None:
        self.file = file
        self.prefix = prefix

    def get(self, key: str) -> MetadataValue:
        return self.file.metadata.get(f"{self.prefix}.{key}")

    def fail(self, key: str, rule: str, value: object) -> GGUFError:
        return GGUFError(f"metadata '{self.prefix}.{key}' must be {rule}, but is {value!r}", path=self.file.path)

    def require(self, keys: Iterable[str]) -> None:
        missing = [f"'{self.prefix}.{key}'" for key in keys if self.get(key) is None]
        if missing:
            raise GGUFError(f"metadata {', '.join(missing)} must be there, but the file lacks it", path=self.file.path)

    def integer(self, key: str, default: int, least: int = 1) -> int:
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, np.ndarray) and len(value) and (value == value[0]).all():
            value = value[0].item()  # some writers give one number for each layer
        elif isinstance(value, np.ndarray):
            raise UnsupportedError(
                f"{where(self.file)}metadata '{self.prefix}.{key}' differs between layers, which is not supported: "
                f"{np.unique(value)[:8].tolist()}"
            )
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 31:
            raise self.fail(key, f"an integer from {least} to 2^31 - 1", value)
        return value

    def number(self, key: str, default: float, *, zero: float | None = None) -> float:
        """A number above 0; ``zero`` is what 0 means, where it means something."""
        value = self.get(key)
        if value is None:
            return default
        if zero is not None and not isinstance(value, bool | str | np.ndarray) and value == 0:
            return zero
        if isinstance(value, bool) or not isinstance(value, int | float) or not (0 < value < math.inf):
            raise self.fail(key, "a finite number above 0", value)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, "true or false", value)
        return value

    def flags(self, key: str, count: int) -> list[bool] | None:
        """One for each of `count` layers; None where the value is something else than an array of flags."""
        value = self.get(key)
        if not isinstance(value, np.ndarray) or value.dtype != np.bool_:
            return None
        if len(value) != count:
            raise self.fail(key, f"an array of {count} flags, one for each layer,", f"{len(value)} flags")
        return [bool(each) for each in value]


def where(file: ModelFile) -> str:
    """How an error begins that is about a file."""
    return f"{file.path}: " if file.path else ""


__all__ = ["Keys", "where"]
