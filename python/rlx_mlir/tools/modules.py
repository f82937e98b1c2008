# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules in files, as commands take them: text of the IR, and ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from rlx_mlir.hir import GraphModule


@dataclass(frozen=True)
class ModuleFile:
    """What a file holds.

    Attributes:
        module: the graph.
        params: arrays for its parameters, by name; none where the file has none.
    """

    module: GraphModule
    params: Mapping[str, np.ndarray] = field(default_factory=dict)


def _text(path: Path) -> ModuleFile:
    from rlx_mlir.hir import GraphModule

    return ModuleFile(GraphModule.from_text(path))


def _onnx(path: Path) -> ModuleFile:
    from rlx_mlir.frontends.onnx import from_onnx

    model = from_onnx(path)
    return ModuleFile(model.module, model.params)


#: What reads files, by how their names end.
_READERS: dict[str, Callable[[Path], ModuleFile]] = {".mlir": _text, ".onnx": _onnx}
#: The same in words.
KINDS = " or ".join(_READERS)


def is_module_file(name: str | Path) -> bool:
    """Whether a file holds one module, by its name."""
    return Path(name).suffix in _READERS


def read_module(name: str | Path) -> ModuleFile:
    """The module of a file for which `is_module_file` holds; others are taken for text of the IR.

    Raises what reading such a file raises.
    """
    path = Path(name)
    return _READERS.get(path.suffix, _text)(path)


__all__ = ["KINDS", "ModuleFile", "is_module_file", "read_module"]
