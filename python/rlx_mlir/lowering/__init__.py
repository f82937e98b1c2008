# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes and patterns between the stages, and the named pipelines."""
