# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of the HIR dialect: blocks of transformer models."""

from rlx_mlir.dialects._hir_ops_gen import *  # noqa: F403
