# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels compute, where that isn't said in terms of one template for CPUs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TopKSpec"]


@dataclass(frozen=True)
class TopKSpec:
    """The `k` largest elements of each row: types of the buffers x [.., n], values and indices [.., k]."""

    x: str
    values: str
    indices: str
    k: int
