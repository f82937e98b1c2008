# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether this processor has what code was compiled for.

LLVM's names of features are of three kinds: instructions that code generation chooses, instructions that only programs
which ask for them by name have, such as those of operating systems, and hints about what is fast. Only the first kind
can end a process.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlx_mlir import native
from rlx_mlir.errors import ExecutionError
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.tiles import request_tiles

#: What a processor of x86-64 may lack which runs code compiled for it: runtime/features.cpp lists them.
_X86_UNNEEDED = frozenset(native.unneeded_features())


def check_target(artifact: Artifact) -> None:
    """Raises ExecutionError where the code needs what this processor doesn't have: running it would end the process."""
    ours, name, _, features = native.host_processor()
    theirs = artifact.target["triple"].partition("-")[0]
    if theirs != ours:
        raise ExecutionError(f"'{artifact.name}' was compiled for {theirs}, but this machine is {ours}")
    if names := lacking(artifact.target["features"], features, ours):
        named = f" ({artifact.target['cpu']})" if artifact.target.get("cpu") else ""
        raise ExecutionError(
            f"'{artifact.name}' was compiled for a processor{named} with {', '.join(names)}, which this one ({name}) "
            "lacks"
        )


def relied_on(target: Mapping[str, str]) -> list[str]:
    """Those features of a target that end a process whose processor lacks them, as LLVM names them, in order."""
    return sorted(set(_wanted(target["features"], target["triple"].partition("-")[0])))


def _wanted(features: str, architecture: str) -> list[str]:
    """The same of the text of features."""
    wanted = [word[1:] for word in features.split(",") if word.startswith("+")]
    if architecture == "aarch64":
        return wanted  # of what is listed of a processor, only what is absent counts
    return [name for name in wanted if name not in _X86_UNNEEDED]


def missing(triple: str, features: str) -> str:
    """What this machine lacks for code of a target, in words; empty where nothing.

    Args:
        triple: of the target.
        features: that the code relies on, ``+name`` and ``-name`` with commas between.
    """
    ours, cpu, _, here = native.host_processor()
    theirs = triple.partition("-")[0]
    if theirs != ours:
        return f"{theirs}, where this machine is {ours}"
    names = lacking(features, here, ours)
    if not names and "+amx-tile" in features.split(",") and not request_tiles():
        return "AMX tiles, which the operating system doesn't lend"
    return f"{', '.join(names)}, which {cpu} lacks" if names else ""


def lacking(needed: str, here: str, architecture: str) -> list[str]:
    """Those features that code relies on and a processor doesn't have.

    Args:
        needed: what the code was compiled for, ``+name`` and ``-name`` with commas between.
        here: what the processor has and lacks, written likewise. Of AArch64 it is all that code generation chooses.
        architecture: the first part of a target triple.
    """
    wanted, words = _wanted(needed, architecture), set(here.split(","))
    if architecture == "aarch64":
        return [name for name in wanted if f"-{name}" in words]
    return [name for name in wanted if f"+{name}" not in words]


__all__ = ["check_target", "lacking", "missing", "relied_on"]
