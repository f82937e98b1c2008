# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules in files, as commands take them: text of the IR, ONNX, and what a Python file builds."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import InputError, did_you_mean, shortened

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


def _python(model: str) -> ModuleFile:
    """What a name in a Python file is, which is run, with the rights of this process."""
    from rlx_mlir.hir import GraphModule

    path, _, name = model.rpartition(":")
    own = _run(Path(path).expanduser())
    if not hasattr(own, name):
        raise InputError(f"'{path}' has no '{name}'{did_you_mean(name, vars(own))}")
    found: object = getattr(own, name)
    if callable(found) and not isinstance(found, GraphModule):
        with foreign_errors(f"'{model}'"):
            found = found()
    if not isinstance(found, GraphModule):
        raise InputError(f"'{model}' must be a GraphModule, or a function that gives one, but is {shortened(found)}")
    return ModuleFile(found)


def _run(path: Path) -> ModuleType:
    """The module of a Python file."""
    if not path.is_file():
        raise InputError(f"'{path}' is no file")
    name = f"rlx_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"'{path}' is no Python file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # what classes ask for that are made in it
    try:
        with foreign_errors(f"'{path}'"):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    return module


#: Between a Python file and a name in it.
_NAMED = ".py:"
#: What reads files, by how their names end.
_READERS: dict[str, Callable[[Path], ModuleFile]] = {".mlir": _text, ".onnx": _onnx}
#: The same in words.
KINDS = f"{', '.join(_READERS)} or file.py:name"


def is_module_file(name: str | Path) -> bool:
    """Whether a file holds one module, by its name; of a Python file, ``file.py:name`` does."""
    return Path(name).suffix in _READERS or _NAMED in str(name)


def read_module(name: str | Path) -> ModuleFile:
    """The module of a file for which `is_module_file` holds; others are taken for text of the IR.

    Raises what reading such a file raises; InputError where a Python file can't be run, or has no such graph.
    """
    if _NAMED in str(name):
        return _python(str(name))
    path = Path(name)
    return _READERS.get(path.suffix, _text)(path)


__all__ = ["KINDS", "ModuleFile", "is_module_file", "read_module"]
