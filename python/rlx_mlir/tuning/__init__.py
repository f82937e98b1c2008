# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tuning knobs of kernels: which there are, which values they may have, and their text. Needs no MLIR."""
