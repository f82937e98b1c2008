# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reading ONNX files: a graph of theirs becomes a module of ours, operator by operator; see docs/onnx.md."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlx_mlir import checks
from rlx_mlir.arrays import as_array
from rlx_mlir.errors import InputError

if TYPE_CHECKING:
    import onnx

    from .model import OnnxModel


def from_onnx(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto, *, fixed: Mapping[str, object] | None = None
) -> OnnxModel:
    """A model of an ONNX file: a module, its parameters by name, and `compile`.

    Names of sizes in the file (`dim_param`) become symbols of the module, so that one compiled module serves all sizes.
    What nodes compute of shapes is computed while the file is read.

    Args:
        model: path of a file, with its external data beside it; the bytes of one; or an `onnx.ModelProto`.
        fixed: arrays of inputs whose elements decide about sizes, such as the `shape` of a `Reshape`: they are no
            inputs of the module, and always have these elements.

    Raises:
        OnnxError: the file can't be read, or is malformed.
        OnnxUnsupportedError: nodes that have no counterpart here: all of them, with counts, names and reasons.
        UnsupportedError: the library `onnx` isn't installed.
        BudgetError: the file has more nodes or tensors than `rlx_mlir.budget` allows.
    """
    arrays = {}
    given = {} if fixed is None else checks.mapping("fixed", fixed, "a mapping from names to arrays")
    for name, value in given.items():
        if not isinstance(name, str):
            raise InputError(f"'fixed' has arrays by names, but got {checks.shown(name)}")
        arrays[name] = as_array(f"'{name}' in 'fixed'", value)
    from .files import Tensors, read_model

    message, folder, _ = read_model(model)
    from .importer import read
    from .model import OnnxModel

    importer = read(message, Tensors(folder), arrays)
    return OnnxModel(importer.graph, importer.params, importer.symbols, importer.versions.get("", 1))


__all__ = ["from_onnx"]
