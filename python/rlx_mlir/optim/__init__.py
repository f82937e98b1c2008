# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimisers, schedules of rates, and steps of training as graphs; MLIR is loaded where one is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx_mlir.optim.optimizers import Optimizer, adamw, lion, sgd
from rlx_mlir.optim.schedules import Schedule, constant, cosine, linear

if TYPE_CHECKING:
    from rlx_mlir.optim.steps import train_step as train_step

__all__ = ["Optimizer", "Schedule", "adamw", "constant", "cosine", "linear", "lion", "sgd", "train_step"]


def __getattr__(name: str) -> Any:
    """Imports `train_step` at its first use."""
    if name != "train_step":
        raise AttributeError(f"module 'rlx_mlir.optim' has no attribute '{name}'")
    from rlx_mlir.optim.steps import train_step

    return train_step
