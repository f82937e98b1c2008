# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipelines run pass by pass, under observation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rlx_mlir import ir
from rlx_mlir.errors import PassError
from rlx_mlir.rewriting.pipelines import split
from rlx_mlir.rewriting.registry import run_pipeline


class Observer(Protocol):
    """What is told of passes that changed a module."""

    def changed(self, step: str, before: ir.Module, after: ir.Module) -> None:
        """A pass, given as a pipeline, has changed a module; neither of the two may be changed now."""


def run_observed(module: ir.Module, pipeline: str, observers: Iterable[Observer]) -> None:
    """Runs a pipeline pass by pass, and tells observers of each that changed the module; raises as `run_pipeline`."""
    for step in split(pipeline):
        before = clone(module)
        run_pipeline(module, step)
        if not ir.native.is_equivalent(before.operation, module.operation):
            for observer in observers:
                observer.changed(step, before, module)


def run_and_verify(module: ir.Module, pipeline: str) -> None:
    """Runs a pipeline on a module, and verifies what its passes made of it together.

    Verifying after each of many small passes takes about as long as the passes themselves. Where one fails, or the
    result isn't valid, they run again on the module as it was, each verified: so errors name the pass that is to blame.

    Raises as `run_pipeline`.
    """
    before = clone(module)
    try:
        run_pipeline(module, pipeline, verify=False)
        module.operation.verify()
    except (PassError, ir.MLIRError) as error:
        run_pipeline(before, pipeline)
        raise PassError(f"pipeline '{pipeline}' failed once, and not again: {error}") from error


def clone(module: ir.Module) -> ir.Module:
    """A copy of a module, in its context."""
    source = module.operation
    copy: ir.Module = ir.Module.create(source.location)
    with source.context:
        for name, attribute in source.attributes.items():
            copy.operation.attributes[name] = attribute
        for op in module.body.operations:
            copy.body.append(op.operation.clone())
    return copy
