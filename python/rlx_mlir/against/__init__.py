# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A second opinion on compiled code: operation by operation, by what another library computes."""

from rlx_mlir.against.asking import check_against
from rlx_mlir.against.comparison import Difference, Verdict
from rlx_mlir.against.rivals import RIVALS

__all__ = ["RIVALS", "Difference", "Verdict", "check_against"]
