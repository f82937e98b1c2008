# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of blocks and primitives: the Python API that builds, reads and edits modules."""

from rlx_mlir.hir import compositions
from rlx_mlir.hir.edit import Node
from rlx_mlir.hir.module import GraphModule
from rlx_mlir.hir.values import Value

__all__ = ["GraphModule", "Node", "Value", "compositions"]
