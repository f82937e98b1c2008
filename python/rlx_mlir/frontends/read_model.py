# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What reading a file of another compiler gives: a module, its parameters, and ways to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir import compiler, interpreter
from rlx_mlir.checks import Option
from rlx_mlir.mir.registry import Evaluated
from rlx_mlir.runtime.artifact import CompiledModule

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule


@dataclass(frozen=True)
class ReadModel:
    """A model that was read.

    Attributes:
        module: the graph, at stage mir.
        params: an array for each parameter, by name.
    """

    module: GraphModule
    params: Mapping[str, np.ndarray] = field(repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in the order of what was read."""
        return tuple(value.name for value in self.module.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in the order of what was read."""
        return tuple(self.module.outputs)

    def compile(self, **options: Option) -> CompiledModule:
        """An executable with its parameters set: `run({name: array})` gives outputs by name.

        Args:
            options: as of `rlx_mlir.compile`; `maxima` are of symbols of the module.

        Raises as `rlx_mlir.compile` does. For target `nvptx` it is the artefact, without parameters.
        """
        compiled: CompiledModule = compiler.compile(self.module, **options)
        if hasattr(compiled, "set_params"):
            compiled.set_params({spec.name: self.params[spec.name] for spec in compiled.params})
        return compiled

    def interpret(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Evaluated]:
        """Outputs by name, computed by the numpy references of the module's operations: slow, for comparisons."""
        return interpreter.interpret(self.module, {**self.params, **inputs})


__all__ = ["ReadModel"]
