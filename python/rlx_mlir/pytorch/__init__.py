# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of PyTorch: exported graphs as modules, and a backend of `torch.compile`; PyTorch is loaded at their use."""

from rlx_mlir.pytorch.program import TorchProgram, from_torch

__all__ = ["TorchProgram", "from_torch"]
