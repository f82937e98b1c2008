# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`save_shared`: compiled modules as a shared library that needs no Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from rlx_mlir import checks
from rlx_mlir.errors import InputError
from rlx_mlir.place import located
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.c_library import WEIGHTS, Member, SharedLibrary, Weights, check_member, write_library
from rlx_mlir.runtime.description import RunArray
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.runtime.prepare import Prepared, prepare

Module = Executable | Artifact


@located
def save_shared(
    modules: Module | Mapping[str, Module],
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    weights: Weights = "auto",
    params: Mapping[str, object] | None = None,
    compiler: str | None = None,
) -> SharedLibrary:
    """Writes compiled modules as a shared library with a C interface, which needs no Python, MLIR or LLVM.

    Beside the library come its header, ``NAME.h``, the header ``rlx.h`` that this includes, and, where weights have a
    file of their own, ``NAME.weights``. Results are those of the executables, bit for bit.

    Args:
        modules: an executable or artefact for CPUs; or several by name, the functions of one library. They share equal
            parameters.
        path: the library's file, such as ``libmodel.so``.
        name: what the names of its functions in C begin with; by default the file's name without ``lib`` and ``.so``.
        weights: ``embed``: in the library; ``file``: in a file beside it, which processes map; ``caller``: whoever
            loads the library gives all but constants of the code, as the code reads them (`rlx_mlir.Executable` has
            that form in `plan_params`); ``auto``: in the library up to 16 MiB, then in a file.
        params: of those modules whose parameters aren't set: arrays by name, as `Executable.set_params` takes them.
        compiler: the C compiler that links, and perhaps options; by default what the variable CC names, or ``cc``.

    Raises InputError where an argument is wrong, parameters are missing, or there is no compiler; UnsupportedError
    where a module is for a GPU or another processor, or calls operations of the caller's own; ExecutionError where
    linking fails; OSError where a file can't be written.
    """
    target = checks.path("path", path)
    if name is not None:
        checks.text("name", name)
    checks.choice("weights", weights, WEIGHTS)
    if compiler is not None:
        checks.text("compiler", compiler)
    if params is not None:
        checks.mapping("params", params, "a mapping from parameters to arrays")
    named: Mapping[str, Module] = modules if isinstance(modules, Mapping) else {_name_of(modules): modules}
    shared: dict[str, Prepared] = {}
    members = [_member(key, module, params, weights, shared) for key, module in named.items()]
    return write_library(members, target, name=name, weights=weights, compiler=compiler)


def _name_of(module: object) -> str:
    artifact = module.artifact if isinstance(module, Executable) else module
    return artifact.name if isinstance(artifact, Artifact) else "main"


def _member(
    name: object, module: object, params: Mapping[str, object] | None, weights: Weights, shared: dict[str, Prepared]
) -> Member:
    if not isinstance(name, str) or not name:
        raise InputError(f"a function of a library is named by a text, but got {checks.shown(name)}")
    if not isinstance(module, Executable | Artifact):
        raise InputError(f"'{name}' is an executable or an artefact, but got {checks.shown(module)}")
    artifact = module.artifact if isinstance(module, Executable) else module
    check_member(name, artifact)
    known = module.plan_params if isinstance(module, Executable) else None
    if weights == "caller" or not artifact.parameters:
        return Member(name, artifact, _constants(artifact))
    if known is None and params is not None:
        prepared = Executable(artifact, threads=1)
        prepared.set_params(
            {spec.name: params[spec.name] for spec in artifact.parameters if spec.name in params}, shared=shared
        )
        known = prepared.plan_params
    if known is None:
        raise InputError(
            f"'{name}' needs its parameters: call set_params before, give 'params', or let callers of the library give "
            "them with weights='caller'"
        )
    return Member(name, artifact, known)


def _constants(artifact: Artifact) -> dict[str, RunArray]:
    """The plan's parameters that follow from none of the caller's, such as tables."""
    preparation = artifact.preparation
    count = len(preparation.sources)

    def reads(index: int) -> bool:
        return index < count or any(map(reads, preparation.steps[index - count].operands))

    results = tuple((name, index) for name, index in preparation.results if not reads(index))
    return prepare(replace(preparation, results=results), {}, None)


__all__ = ["Module", "save_shared"]
