# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of the user's own that register passes and operations: they are code, and run with the user's rights."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import InputError
from rlx_mlir.own_ops import registered_ops, unregister_op
from rlx_mlir.rewriting.registry import PASSES


def load_passes(path: str | os.PathLike[str]) -> list[str]:
    """Runs a Python file that registers passes or operations, once a process; the names of the passes that are new.

    The module has the file's name without `.py`, and its folder isn't put on the path of imports.

    Raises InputError where it isn't a Python file, a module of that name is there already, or the file raises.
    """
    file = Path(path).resolve()
    if file.suffix != ".py" or not file.is_file():
        raise InputError(f"passes are loaded from a Python file, but '{path}' is none")
    known = sys.modules.get(file.stem)
    if known is not None:
        if getattr(known, "__file__", None) == str(file):
            return []
        raise InputError(f"'{path}' can't be loaded: there is a module '{file.stem}' already; name the file otherwise")
    before = set(PASSES)
    own = {op.name for op in registered_ops()}
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        with foreign_errors(f"'{path}'"):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[file.stem]
        for name in set(PASSES) - before:
            del PASSES[name]
        for name in {op.name for op in registered_ops()} - own:
            unregister_op(name)
        raise
    return [name for name in PASSES if name not in before]
