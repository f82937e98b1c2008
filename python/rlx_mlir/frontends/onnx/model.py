# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What reading an ONNX file gives: a module, its parameters, and ways to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_mlir import compiler, interpreter

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule


@dataclass(frozen=True)
class OnnxModel:
    """A model of a file: what `rlx_mlir.from_onnx` gives.

    Attributes:
        module: the graph. Inputs and outputs have the names of the file, weights are parameters by their names there.
        params: an array for each parameter, by name.
        symbols: for each name of a size in the file (`dim_param`), the symbol that it is in the module.
        opset: version of the standard operators that the file asks for.
    """

    module: GraphModule
    params: Mapping[str, np.ndarray] = field(repr=False)
    symbols: Mapping[str, str]
    opset: int

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in the file's order."""
        return tuple(value.name for value in self.module.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in the file's order."""
        return tuple(self.module.outputs)

    def compile(self, **options: Any) -> Any:
        """An executable with its parameters set: `run({name: array})` gives outputs by name.

        Args:
            options: as of `rlx_mlir.compile`; `maxima` are of symbols of the module.

        Raises as `rlx_mlir.compile` does. For target `nvptx` it is the artefact, without parameters.
        """
        compiled: Any = compiler.compile(self.module, **options)
        if hasattr(compiled, "set_params"):
            compiled.set_params({spec.name: self.params[spec.name] for spec in compiled.params})
        return compiled

    def interpret(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Outputs by name, computed by the numpy references of the module's operations: slow, for comparisons."""
        return interpreter.interpret(self.module, {**self.params, **inputs})
