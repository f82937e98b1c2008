# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fine-tuning of models with packed weights by adapters (LoRA), merging, and what a model makes of a text."""
