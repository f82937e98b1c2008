# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimisers, schedules of rates, and steps of training as graphs."""

from __future__ import annotations

from rlx_mlir.optim.optimizers import Optimizer, adamw, lion, sgd
from rlx_mlir.optim.schedules import Schedule, constant, cosine, linear
from rlx_mlir.optim.steps import train_step

__all__ = ["Optimizer", "Schedule", "adamw", "constant", "cosine", "linear", "lion", "sgd", "train_step"]
