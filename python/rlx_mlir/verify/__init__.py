# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numeric verification: whether each pass, kernel and plan computes what the module meant before."""

from rlx_mlir.errors import NumericError
from rlx_mlir.verify.kernels import check_executable
from rlx_mlir.verify.numerics import NumericVerifier, compare_modules

__all__ = ["NumericError", "NumericVerifier", "check_executable", "compare_modules"]
