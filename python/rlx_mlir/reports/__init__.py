# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler did, for people: fusion, dispatch of kernels, stages, passes. Nothing is imported here."""
