# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiler for transformer models on MLIR.

Build a graph with `GraphModule`, look at it with `inspect`, run it by its definition with `interpret`. What is not
needed isn't imported: `import rlx_mlir` and `rlx_mlir.runtime` don't load MLIR.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from rlx_mlir.version import __version__ as __version__

if TYPE_CHECKING:
    from rlx_mlir import errors as errors
    from rlx_mlir import optim as optim
    from rlx_mlir import training as training
    from rlx_mlir.against import check_against as check_against
    from rlx_mlir.arrays import as_dlpack as as_dlpack
    from rlx_mlir.autodiff import grad as grad
    from rlx_mlir.autodiff import grad_with_loss as grad_with_loss
    from rlx_mlir.autodiff import hessian as hessian
    from rlx_mlir.autodiff import hvp as hvp
    from rlx_mlir.autodiff import jacfwd as jacfwd
    from rlx_mlir.autodiff import jacrev as jacrev
    from rlx_mlir.autodiff import jvp as jvp
    from rlx_mlir.autodiff import value_and_grad as value_and_grad
    from rlx_mlir.autodiff import vjp as vjp
    from rlx_mlir.autodiff import vmap as vmap
    from rlx_mlir.budgets import Budgets as Budgets
    from rlx_mlir.budgets import budget as budget
    from rlx_mlir.codegen.cpu.own_generators import register_generator as register_generator
    from rlx_mlir.codegen.cpu.own_generators import unregister_generator as unregister_generator
    from rlx_mlir.compiler import compile as compile
    from rlx_mlir.compiler import emit as emit
    from rlx_mlir.exports.stablehlo import to_stablehlo as to_stablehlo
    from rlx_mlir.frontends.onnx import from_onnx as from_onnx
    from rlx_mlir.frontends.stablehlo import from_stablehlo as from_stablehlo
    from rlx_mlir.frontends.stablehlo.functions import from_jax as from_jax
    from rlx_mlir.hir import GraphModule as GraphModule
    from rlx_mlir.hir import Value as Value
    from rlx_mlir.interpreter import interpret as interpret
    from rlx_mlir.measure.tune import tune as tune
    from rlx_mlir.models.bundling import bundle as bundle
    from rlx_mlir.models.embedding import Encoder as Encoder
    from rlx_mlir.models.embedding import load_encoder as load_encoder
    from rlx_mlir.models.engine import Engine as Engine
    from rlx_mlir.models.engine import Request as Request
    from rlx_mlir.models.loading import load_model as load_model
    from rlx_mlir.models.model import Model as Model
    from rlx_mlir.models.session import Session as Session
    from rlx_mlir.options import CompileOptions as CompileOptions
    from rlx_mlir.own_ops import TensorSpec as TensorSpec
    from rlx_mlir.own_ops import register_op as register_op
    from rlx_mlir.own_ops import unregister_op as unregister_op
    from rlx_mlir.pytorch import from_torch as from_torch
    from rlx_mlir.runtime.artifact import Artifact as Artifact
    from rlx_mlir.runtime.cuda import CudaExecutable as CudaExecutable
    from rlx_mlir.runtime.device import DeviceArray as DeviceArray
    from rlx_mlir.runtime.executable import Executable as Executable
    from rlx_mlir.runtime.exporting import save_shared as save_shared
    from rlx_mlir.runtime.loading import load as load
    from rlx_mlir.stages import draw as draw
    from rlx_mlir.stages import inspect as inspect
    from rlx_mlir.training import Trainer as Trainer

#: Where each name of the public API is defined; None for a submodule.
_EXPORTS: dict[str, str | None] = {
    "GraphModule": "rlx_mlir.hir",
    "Value": "rlx_mlir.hir",
    "Budgets": "rlx_mlir.budgets",
    "budget": "rlx_mlir.budgets",
    "Artifact": "rlx_mlir.runtime.artifact",
    "CompileOptions": "rlx_mlir.options",
    "as_dlpack": "rlx_mlir.arrays",
    "CudaExecutable": "rlx_mlir.runtime.cuda",
    "DeviceArray": "rlx_mlir.runtime.device",
    "Executable": "rlx_mlir.runtime.executable",
    "Encoder": "rlx_mlir.models.embedding",
    "Engine": "rlx_mlir.models.engine",
    "Model": "rlx_mlir.models.model",
    "Request": "rlx_mlir.models.engine",
    "Session": "rlx_mlir.models.session",
    "bundle": "rlx_mlir.models.bundling",
    "check_against": "rlx_mlir.against",
    "compile": "rlx_mlir.compiler",
    "draw": "rlx_mlir.stages",
    "from_jax": "rlx_mlir.frontends.stablehlo.functions",
    "from_onnx": "rlx_mlir.frontends.onnx",
    "from_stablehlo": "rlx_mlir.frontends.stablehlo",
    "grad": "rlx_mlir.autodiff",
    "grad_with_loss": "rlx_mlir.autodiff",
    "hessian": "rlx_mlir.autodiff",
    "hvp": "rlx_mlir.autodiff",
    "jacfwd": "rlx_mlir.autodiff",
    "jacrev": "rlx_mlir.autodiff",
    "jvp": "rlx_mlir.autodiff",
    "value_and_grad": "rlx_mlir.autodiff",
    "vjp": "rlx_mlir.autodiff",
    "vmap": "rlx_mlir.autodiff",
    "emit": "rlx_mlir.compiler",
    "from_torch": "rlx_mlir.pytorch",
    "load": "rlx_mlir.runtime.loading",
    "save_shared": "rlx_mlir.runtime.exporting",
    "load_encoder": "rlx_mlir.models.embedding",
    "load_model": "rlx_mlir.models.loading",
    "errors": None,
    "optim": None,
    "training": None,
    "inspect": "rlx_mlir.stages",
    "interpret": "rlx_mlir.interpreter",
    "Trainer": "rlx_mlir.training",
    "TensorSpec": "rlx_mlir.own_ops",
    "register_generator": "rlx_mlir.codegen.cpu.own_generators",
    "register_op": "rlx_mlir.own_ops",
    "to_stablehlo": "rlx_mlir.exports.stablehlo",
    "tune": "rlx_mlir.measure.tune",
    "unregister_generator": "rlx_mlir.codegen.cpu.own_generators",
    "unregister_op": "rlx_mlir.own_ops",
}

#: Public modules, in which names are looked for that aren't here.
_SUBMODULES = ("errors", "formats", "optim", "training")

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Imports a name of the public API at its first use."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'rlx_mlir' has no attribute '{name}'{_hint(name)}")
    home = _EXPORTS[name]
    if home is None:
        return importlib.import_module(f"rlx_mlir.{name}")
    try:
        value = getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name is None or not home.startswith(error.name):  # a library that the module needs
            raise
        raise AttributeError(
            f"'{name}' is in the package rlx-mlir; rlx-mlir-runtime, which is installed, runs compiled modules alone"
        ) from None
    globals()[name] = value
    return value


def _hint(name: str) -> str:
    """Where a public name is that isn't here, or what is like it; '' for names of Python's own protocols."""
    if name.startswith("_"):
        return ""
    if importlib.util.find_spec(f"rlx_mlir.{name}") is not None:  # each first `from rlx_mlir import` of one asks, too
        return f": it is a module, which 'import rlx_mlir.{name}' makes one"
    for home in _SUBMODULES:
        if name in _names_of(home):
            return f": it is in 'rlx_mlir.{home}'"
    from rlx_mlir.errors import did_you_mean

    return did_you_mean(name, _EXPORTS)


def _names_of(module: str) -> list[str]:
    """The names that a module makes public, read from its source: importing it may load MLIR."""
    import ast
    from pathlib import Path

    spec = importlib.util.find_spec(f"rlx_mlir.{module}")
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return []
    for statement in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    return []


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
