# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes and rewrite patterns in Python."""

from rlx_mlir.rewriting.patterns import (
    Miss,
    PatternSet,
    RewriteError,
    Rewriter,
    RewriteReport,
    apply_patterns,
    erase_dead,
    identity,
    operations,
)
from rlx_mlir.rewriting.registry import Option, Pipeline, compiler_pass, named_pipeline, run_pipeline

__all__ = [
    "Miss",
    "Option",
    "PatternSet",
    "Pipeline",
    "RewriteError",
    "RewriteReport",
    "Rewriter",
    "apply_patterns",
    "compiler_pass",
    "erase_dead",
    "identity",
    "named_pipeline",
    "operations",
    "run_pipeline",
]
