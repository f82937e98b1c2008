# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What reading an ONNX file gives: a module, its parameters, and ways to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..read_model import ReadModel


@dataclass(frozen=True)
class OnnxModel(ReadModel):
    """A model of a file: what `rlx_mlir.from_onnx` gives.

    Attributes:
        module: the graph. Inputs and outputs have the names of the file, weights are parameters by their names there.
        params: an array for each parameter, by name.
        symbols: for each name of a size in the file (`dim_param`), the symbol that it is in the module.
        opset: version of the standard operators that the file asks for.
    """

    symbols: Mapping[str, str]
    opset: int
