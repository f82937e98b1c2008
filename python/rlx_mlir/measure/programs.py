# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The two modules of a loaded model as the compiler had them: graphs, options, executables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_mlir.compiler import CompileOptions
from rlx_mlir.measure.work import ModuleWork
from rlx_mlir.models import decoder
from rlx_mlir.models.model import Model
from rlx_mlir.models.programs import maxima
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.runtime.work import CountedWork
from rlx_mlir.runtime.work import work_of as counted_work_of

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule

#: What tells the calls of a module, and what they do: out of its artefact, or of its graph.
Counted = CountedWork | ModuleWork

__all__ = ["Counted", "executable_of", "graph_of", "material_of", "options_of", "work_of"]


def executable_of(model: Model, program: str) -> Executable:
    """The compiled module."""
    found = _program(model, program)
    assert isinstance(found, Executable)
    return found


def _program(model: Model, program: str) -> object:
    return {"prefill": model.programs.prefill, "decode": model.programs.decode}[program]


def _candidates(model: Model, program: str) -> int:
    return model.candidates if program == "decode" else 0


def graph_of(model: Model, program: str) -> GraphModule:
    """The graph that was compiled."""
    return decoder.build(model.config, program, _candidates(model, program))


def material_of(model: Model, program: str) -> dict[str, object]:
    """What the graph is made of, for keys of caches."""
    return decoder.describe(model.config, program, _candidates(model, program))


def options_of(model: Model, program: str) -> CompileOptions:
    """How it is compiled by `load_model`, without what the environment says of checks and dumps."""
    return CompileOptions(
        target="cuda" if model.on_gpu else "cpu",
        activations=model.activations,
        maxima=maxima(model.config, program, context=model.context, chunk=model.chunk),
        verify=False,
        dump_dir=None,
    )


def work_of(model: Model, program: str) -> Counted:
    """What its calls do: as its artefact says, or where that doesn't, once its graph is compiled to kernels again."""
    own = _program(model, program) if program in decoder.PROGRAMS else None
    if isinstance(own, Executable) and (found := counted_work_of(own.artifact)):
        return found
    return ModuleWork(graph_of(model, program), options_of(model, program))
