# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What builds each operator of PyTorch: importing this package fills `graph.HANDLERS` and `graph.FOLDERS`."""

from rlx_mlir.pytorch.handlers import arithmetic, creation, gradients, images, known, layers, reductions, shapes

__all__ = ["arithmetic", "creation", "gradients", "images", "known", "layers", "reductions", "shapes"]
