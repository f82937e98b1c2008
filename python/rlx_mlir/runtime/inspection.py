# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What files of compiled code have, and whether they are whole: for people, and before anything of them is run.

Nothing here makes code executable. What is found wrong is damage, or a file of another compiler: digests don't say who
wrote a file, and instructions aren't looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlx_mlir import checks, native
from rlx_mlir.errors import CacheError, ExecutionError, RlxError
from rlx_mlir.files import Json
from rlx_mlir.paths import open_regular
from rlx_mlir.runtime import artifact as files
from rlx_mlir.runtime import container
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.container import Container, Kind, is_container
from rlx_mlir.runtime.description import check_description
from rlx_mlir.runtime.processor import check_target
from rlx_mlir.runtime.shown import machine_of, size_text
from rlx_mlir.runtime.work import work_of

__all__ = ["Finding", "check_code", "contents", "describe", "describe_artifact", "table", "verify"]

#: ELF's numbers of the machines that code is for, by the first word of their target triples.
_MACHINES = {"x86_64": 62, "aarch64": 183}
#: Where code is linked when it is only looked at: nothing is there.
_NOWHERE = 0x10000
#: What a kernel has beside itself.
_PARTS = ("", "_units", "_scratch")
_ACTIONS = {True: "holds", False: "FAILS"}


@dataclass(frozen=True)
class Finding:
    """Whether a part of a file holds.

    Attributes:
        part: what was checked: ``artifact``, or a section's name.
        problem: what is wrong; empty where nothing is.
    """

    part: str
    problem: str = ""

    def __str__(self) -> str:
        return f"{_ACTIONS[not self.problem]}  {self.part}{f': {self.problem}' if self.problem else ''}"

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        return {"part": self.part, "holds": not self.problem, "problem": self.problem}


def contents(path: str | os.PathLike[str]) -> Artifact | Container:
    """What a file is: an artefact, or a container that is open.

    Raises CacheError where it is neither, or damaged, OSError where it can't be read.
    """
    where = checks.path("path", path)
    try:
        with open_regular(where) as file:
            start = file.read(len(files.MAGIC))
    except CacheError as error:
        raise CacheError(f"{where}: {error}") from None
    if is_container(start):
        return Container(where)
    if start != files.MAGIC:
        known = f"{files.MAGIC!r} or {container.MAGIC!r}"
        raise CacheError(f"{where}: neither an artefact nor a container: it starts with {start!r} instead of {known}")
    return Artifact.load(where)


def describe(path: str | os.PathLike[str]) -> dict[str, object]:
    """What a file has, as JSON can write it; raises what `contents` does. Of a container, code is read, data is not."""
    found = contents(path)
    if isinstance(found, Artifact):
        return {"kind": "artifact", **_of_file(path, _artifact_version(path)), **describe_artifact(found)}
    with found:
        sections = [
            {
                "name": own.name,
                "kind": own.kind.name.lower(),
                "offset": own.offset,
                "bytes": own.size,
                "sha256": own.digest.hex(),
                **({"artifact": describe_artifact(found.artifact(own.name))} if own.kind is Kind.CODE else {}),
            }
            for own in found.sections.values()
        ]
    return {"kind": "container", **_of_file(path, container.VERSION), "sections": sections}


def _artifact_version(path: str | os.PathLike[str]) -> int:
    """The version of an artefact's file, which was read."""
    with open_regular(path) as file:
        return int.from_bytes(file.read(len(files.MAGIC) + 4)[len(files.MAGIC) :], "little")


def _of_file(path: str | os.PathLike[str], version: int) -> dict[str, object]:
    return {"file": os.fspath(path), "bytes": Path(path).stat().st_size, "version": version}


def describe_artifact(artifact: Artifact) -> dict[str, object]:
    """What an artefact is for, takes and gives, as JSON can write it."""
    try:
        check_target(artifact)
        obstacle = ""
    except ExecutionError as error:
        obstacle = str(error)
    return {
        "name": artifact.name,
        "machine": machine_of(artifact),
        "target": dict(artifact.target),
        "runs_here": not obstacle,
        "obstacle": obstacle,
        "code_bytes": len(artifact.code),
        "device_bytes": len(artifact.device_code) + len(artifact.cubin),
        "arena_bytes": artifact.arena_bytes,
        "sizes": dict(artifact.symbols),
        "inputs": [str(spec) for spec in artifact.inputs],
        "parameters": [str(spec) for spec in artifact.parameters],
        "outputs": [str(spec) for spec in artifact.outputs],
        "kernels": len(artifact.kernels),
        "calls": len(artifact.calls),
        "operations": sorted({call.op for call in artifact.own}),
    }


def table(found: Mapping[str, Json]) -> str:
    """What `describe` gives, as text."""
    lines = [f"{found['file']}: {found['kind']}, version {found['version']}, {size_text(found['bytes'])}"]
    if found["kind"] == "artifact":
        return "\n".join([*lines, *_artifact_lines(found, "  ")])
    width = max((len(section["name"]) for section in found["sections"]), default=0)
    for section in found["sections"]:
        lines.append(f"  {section['name']:<{width}}  {section['kind']:<4}  {size_text(section['bytes'])}")
        if "artifact" in section:
            lines += _artifact_lines(section["artifact"], "    ")
    return "\n".join(lines)


def _artifact_lines(found: Mapping[str, Json], indent: str) -> Iterator[str]:
    yield f"{indent}module     {found['name']}, {found['kernels']} kernels, {found['calls']} calls"
    here = "runs here" if found["runs_here"] else f"doesn't run here: {found['obstacle']}"
    yield f"{indent}machine    {found['machine']}; {here}"
    sizes = (size_text(found[name]) for name in ("code_bytes", "device_bytes", "arena_bytes"))
    yield "{}memory     code {}, of a GPU {}, arena {}".format(indent, *sizes)
    for name, size in found["sizes"].items():
        yield f"{indent}size       {name} up to {size}"
    for kind in ("inputs", "parameters", "outputs"):
        for text in found[kind]:
            yield f"{indent}{kind[:-1]:<9}  {text}"
    for name in found["operations"]:
        yield f"{indent}operation  {name}, which has to be registered"


def verify(path: str | os.PathLike[str]) -> Iterator[Finding]:
    """Reads all of a file, and says of each part whether it holds: digests, descriptions, code that can be linked.

    Raises OSError where the file can't be read.
    """
    try:
        found = contents(path)
    except RlxError as error:
        yield Finding("file", str(error))
        return
    if isinstance(found, Artifact):
        yield Finding("artifact", _problem_of(found))
        return
    with found:
        yield Finding("header and table")
        for own in found.sections.values():
            try:
                if own.kind is Kind.CODE:
                    yield Finding(own.name, _problem_of(found.artifact(own.name)))
                else:
                    found.check(own.name)
                    yield Finding(own.name)
            except RlxError as error:
                yield Finding(own.name, str(error))


def _problem_of(artifact: Artifact) -> str:
    try:
        check_code(artifact)
    except RlxError as error:
        return str(error)
    return ""


def check_code(artifact: Artifact) -> None:
    """Whether a description agrees with itself, and its code can be linked and has what the plan calls.

    It may be for another machine than this one. Raises ExecutionError, which says what is wrong.
    """
    check_description(artifact)
    architecture = artifact.target.get("triple", "").partition("-")[0]
    if architecture not in _MACHINES:
        raise ExecutionError(
            f"'{artifact.name}' is for '{architecture}', but this package knows {' and '.join(_MACHINES)}"
        )
    own = [f"own_{call.kernel}{suffix}" for call in artifact.own for suffix in ("", "_failed")]
    functions = dict.fromkeys([*native.host_functions(), *own], _NOWHERE)
    _, symbols, ((first, size), *_), _ = native.link_objects(
        [artifact.code], machine=_MACHINES[architecture], address=_NOWHERE, functions=functions
    )
    for kernel in artifact.kernels:
        for name in (f"{kernel}{suffix}" for suffix in _PARTS):
            if name not in symbols:
                raise ExecutionError(f"'{artifact.name}' calls '{name}', which its code doesn't define")
            if not first <= symbols[name] < first + size:
                raise ExecutionError(f"'{artifact.name}' calls '{name}', which is data, not code")
    work_of(artifact)
