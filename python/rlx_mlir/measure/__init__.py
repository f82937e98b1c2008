# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measuring: the limits of a machine, interleaved timing, and what each kernel of a compiled module takes."""
