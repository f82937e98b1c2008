# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fine-tuning of models with packed weights by adapters (LoRA), merging, and what a model makes of a text."""

from __future__ import annotations

from rlx_mlir.finetuning.data import Example, Reader, Rows, rows_of
from rlx_mlir.finetuning.evaluation import Evaluation, evaluate
from rlx_mlir.finetuning.layers import Comparison, Part, compare_layers
from rlx_mlir.finetuning.merging import Merged, merge_adapter
from rlx_mlir.finetuning.tuning import FineTuning, Settings, Step

__all__ = [
    "Comparison",
    "Evaluation",
    "Example",
    "FineTuning",
    "Merged",
    "Part",
    "Reader",
    "Rows",
    "Settings",
    "Step",
    "compare_layers",
    "evaluate",
    "merge_adapter",
    "rows_of",
]
