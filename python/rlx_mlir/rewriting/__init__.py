# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes and rewrite patterns in Python."""

from rlx_mlir.rewriting.patterns import (
    PatternSet,
    RewriteError,
    Rewriter,
    apply_patterns,
    erase_dead,
    identity,
    operations,
)
from rlx_mlir.rewriting.pipelines import Pipeline, named_pipeline
from rlx_mlir.rewriting.recording import Miss, Recorder, Rewrite, RewriteReport, recording, report_into
from rlx_mlir.rewriting.registry import Option, ValueChange, compiler_pass, run_pipeline

__all__ = [
    "Miss",
    "Option",
    "PatternSet",
    "Pipeline",
    "Recorder",
    "Rewrite",
    "RewriteError",
    "RewriteReport",
    "Rewriter",
    "ValueChange",
    "apply_patterns",
    "compiler_pass",
    "erase_dead",
    "identity",
    "named_pipeline",
    "operations",
    "recording",
    "report_into",
    "run_pipeline",
]
