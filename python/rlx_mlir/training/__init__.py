# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training on CPUs: batches, steps, and checkpoints."""

from __future__ import annotations

from rlx_mlir.training.batches import Batches
from rlx_mlir.training.trainer import Trainer

__all__ = ["Batches", "Trainer"]
