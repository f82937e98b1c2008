# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules of kernels for NVIDIA GPUs: Python functions that return MLIR text, and the host's part."""
