# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled modules as a shared library without Python: object code, the plan as data, weights, and the run time.

A C compiler links them; `include/rlx.h` is the interface, and runtime/c/ what is behind it. The library needs libc,
libm and what belongs to them. Weights are in it, or in a file beside it that every process maps: a page of header, then
arrays, each at a multiple of 64 bytes, as code reads them; the header has a digest that the library knows.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from rlx_mlir import native
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import ExecutionError, InputError, UnsupportedError
from rlx_mlir.paths import replacing, write_atomically
from rlx_mlir.runtime.artifact import Artifact, BufferSpec
from rlx_mlir.runtime.c_header import FUNCTIONS, Described, check_prefix, header
from rlx_mlir.runtime.description import check_description, plan_of
from rlx_mlir.runtime.elf_symbols import rename_defined
from rlx_mlir.runtime.encoding import encode
from rlx_mlir.runtime.processor import relied_on
from rlx_mlir.runtime.sizes import Terms
from rlx_mlir.runtime.tiles import ATTENTION_AMX, GEMM_AMX

Weights = Literal["auto", "embed", "file", "caller"]
WEIGHTS: tuple[Weights, ...] = ("auto", "embed", "file", "caller")

#: Of the description, which runtime/c/description.cpp reads, and of weights, which runtime/c/weights.cpp does.
VERSION = 1
WEIGHTS_VERSION = 1
WEIGHTS_MAGIC = b"RLXWGHT\0"
_HEADER = struct.Struct("<8sIIQ32s")
_START = 4096
_ALIGNMENT = 64

#: With more bytes than this, weights are in a file of their own where nothing else was asked for.
EMBEDDED_BYTES = 16 << 20
#: What the code model of compilers lets a library have.
_MOST_EMBEDDED = 1 << 30
#: What a symbol may be at most that only inputs have which no code reads.
_UNLIMITED = 2**63 - 1


@dataclass(frozen=True)
class SharedLibrary:
    """The files of a library.

    Attributes:
        path: the library.
        header: its header, beside which there is rlx.h.
        weights: the file of its weights; None where they are in the library, or come from the caller.
        sizes: bytes of the library and of the weights.
    """

    path: Path
    header: Path
    weights: Path | None
    sizes: tuple[int, int]


@dataclass(frozen=True)
class Member:
    """A function of a library.

    Attributes:
        name: by which callers find it.
        artifact: what it was compiled to.
        arrays: those of the plan's parameters that the library has; its callers give the others.
    """

    name: str
    artifact: Artifact
    arrays: Mapping[str, np.ndarray]


def write_library(
    members: Sequence[Member], path: Path, *, name: str | None, weights: Weights, compiler: str | None
) -> SharedLibrary:
    """Links a library, and writes its header and weights beside it; each file appears whole or not at all.

    Args:
        members: its functions.
        path: the library's file.
        name: what its functions' names begin with; by default the file's name without ``lib`` and what follows a dot.
        weights: see `rlx_mlir.runtime.exporting.save_shared`.
        compiler: of C, and its options; by default what the environment calls CC, or `cc`.

    Raises InputError where an argument is wrong or no compiler is found, UnsupportedError where a member can't be in
    such a library, ExecutionError where linking fails, OSError where a file can't be written.
    """
    prefix = check_prefix(path.name.partition(".")[0].removeprefix("lib") if name is None else name)
    if not members:
        raise InputError("a shared library needs a compiled module, but got none")
    command = _compiler(compiler)
    runtime = _runtime_object()
    placed = _Placed(members)
    embedded = weights in ("embed", "caller") or (weights == "auto" and placed.size <= EMBEDDED_BYTES)
    if embedded and placed.size > _MOST_EMBEDDED:
        raise InputError(
            f"weights of {placed.size} bytes can't be in the library, which may have {_MOST_EMBEDDED}: weights='file'"
        )
    described = [_described(member) for member in members]
    beside = path.with_name(f"{prefix}.weights")
    files = SharedLibrary(
        path, path.with_name(f"{prefix}.h"), beside if placed.arrays and not embedded else None, (0, 0)
    )
    place = None if not placed.arrays else [int(embedded), beside.name, placed.size, placed.digest.hex()]
    description = _description(prefix, members, described, placed, place)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rlx-", dir=path.parent) as folder:
        linked = _link(Path(folder), prefix, members, description, placed if embedded else None, command, runtime)
        if files.weights is not None:
            with replacing(files.weights) as file:
                placed.write(file)
        write_atomically(files.header, header(prefix, described).encode())
        write_atomically(path.with_name("rlx.h"), _own_file("include", "rlx.h").read_bytes())
        os.replace(linked, path)
    size = files.weights.stat().st_size if files.weights is not None else 0
    return SharedLibrary(files.path, files.header, files.weights, (path.stat().st_size, size))


def check_member(name: str, artifact: Artifact) -> None:
    """Raises UnsupportedError where an artefact can't be in a library."""
    where = f"'{name}' can't be in a shared library"
    check_description(artifact)
    if artifact.chip:
        raise UnsupportedError(f"{where}: it was compiled for the GPU {artifact.chip}, but libraries run on CPUs")
    if artifact.own:
        called = ", ".join(sorted({own.op for own in artifact.own}))
        raise UnsupportedError(f"{where}: it calls operations of your own, which this process has: {called}")
    theirs, ours = artifact.target["triple"].partition("-")[0], platform.machine()
    if theirs != ours:
        raise UnsupportedError(f"{where}: it was compiled for {theirs}, but the run time beside it is for {ours}")


# What a library says of itself ---------------------------------------------------------------------


def _described(member: Member) -> Described:
    """A member with the sizes of all of its buffers."""
    artifact = member.artifact
    symbols = dict(artifact.symbols)
    for spec in (*artifact.inputs, *artifact.plan_parameters):
        for size in spec.shape:
            if isinstance(size, str):
                symbols.setdefault(size, _UNLIMITED)
    numbers = {symbol: number for number, symbol in enumerate(symbols)}

    def given(spec: BufferSpec) -> tuple[Terms, ...]:
        return tuple([(1, [numbers[size]])] if isinstance(size, str) else [(size, [])] for size in spec.shape)

    sizes = (
        tuple(map(given, artifact.inputs)),
        tuple(map(given, artifact.plan_parameters)),
        tuple(tuple(spec.sizes) for spec in artifact.outputs),
    )
    caller = frozenset(spec.name for spec in artifact.plan_parameters if spec.name not in member.arrays)
    return Described(member.name, artifact, tuple(symbols.items()), sizes, caller)


def _description(
    prefix: str,
    members: Sequence[Member],
    described: Sequence[Described],
    placed: _Placed,
    weights: list[object] | None,
) -> bytes:
    """What runtime/c/description.cpp reads."""
    features = sorted({feature for own in members for feature in relied_on(own.artifact.target)})
    tiles = any(
        template.startswith((GEMM_AMX, ATTENTION_AMX))
        for own in members
        for template in own.artifact.templates.values()
    )
    functions = [_function(number, own, placed) for number, own in enumerate(described)]
    return encode([VERSION, prefix, platform.machine(), features, int(tiles), weights, functions])


def _function(number: int, own: Described, placed: _Placed) -> list[object]:
    artifact = own.artifact
    ties = {spec.name: (0, index) for index, spec in enumerate(artifact.inputs)}
    ties |= {spec.name: (1, index) for index, spec in enumerate(artifact.plan_parameters)}
    buffers: list[list[list[object]]] = [[], [], []]
    for kind, specs in enumerate(own.buffers):
        for index, (spec, sizes) in enumerate(zip(specs, own.sizes[kind], strict=True)):
            dtype = DTYPES[spec.dtype]
            tied = None if spec.tied is None else [*ties[spec.tied], int(spec.updated)]
            at = placed.places.get((number, index)) if kind == 1 else None
            formulas = [str(size) for size in spec.shape]
            buffers[kind].append([spec.name, spec.dtype, dtype.alignment, dtype.itemsize, formulas, sizes, tied, at])
    conditions = [
        [each.left[0], each.left[1], each.right[0], each.right[1], int(each.at_least), each.where]
        for each in artifact.conditions
    ]
    # The plan knows its own symbols alone, and takes what has others for empty: no call reads that.
    plan = list(plan_of(artifact).values())
    return [own.name, plan, own.symbols, *buffers, conditions]


class _Placed:
    """Where the weights of a library's functions are, each array once.

    Attributes:
        places: offset and bytes, by the numbers of function and parameter.
        arrays: the arrays by offset.
        size: bytes of all of it.
        digest: of the contents and where they are.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.places: dict[tuple[int, int], tuple[int, int]] = {}
        self.arrays: dict[int, np.ndarray] = {}
        self.size = _START
        known: dict[tuple[int, str], int] = {}
        whole = hashlib.sha256()
        for number, member in enumerate(members):
            for index, spec in enumerate(member.artifact.plan_parameters):
                if spec.name not in member.arrays:
                    continue
                array = np.ascontiguousarray(member.arrays[spec.name])
                key = (array.nbytes, hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest())
                if key not in known:
                    known[key] = self.size
                    self.arrays[self.size] = array
                    whole.update(f"{self.size} {key};".encode())
                    self.size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
                self.places[number, index] = (known[key], array.nbytes)
        self.digest = whole.digest()

    def write(self, file: BinaryIO) -> None:
        """Writes header and arrays."""
        file.write(_HEADER.pack(WEIGHTS_MAGIC, WEIGHTS_VERSION, 0, self.size, self.digest))
        for offset, array in self.arrays.items():
            file.seek(offset)
            file.write(array.reshape(-1).view(np.uint8).data)
        file.truncate(self.size)


# Linking --------------------------------------------------------------------------------------------


def _own_file(*parts: str) -> Path:
    """A file that is installed beside the extension."""
    path = native.folder().joinpath(*parts)
    if not path.is_file():
        raise ExecutionError(
            f"{path} is missing, from which shared libraries are made: this build of rlx-mlir has no run time for C"
        )
    return path


def _runtime_object() -> Path:
    return _own_file("lib", "rlx_runtime.o")


def _compiler(given: str | None) -> list[str]:
    """The command of the C compiler; InputError where there is none."""
    word = given or os.environ.get("CC") or "cc"
    try:
        command = shlex.split(word)
    except ValueError as error:
        raise InputError(f"the C compiler {word!r} is no command: {error}") from None
    if command and shutil.which(command[0]):
        return command
    where = "'compiler' names" if given else "the variable CC names" if os.environ.get("CC") else "linking needs"
    program = command[0] if command else word
    raise InputError(
        f"{where} the C compiler '{program}', but there is no such program: install GCC or Clang (on Debian and Ubuntu "
        "the package gcc), or name another one"
    )


def _link(
    folder: Path,
    prefix: str,
    members: Sequence[Member],
    description: bytes,
    embedded: _Placed | None,
    command: Sequence[str],
    runtime: Path,
) -> Path:
    """Links everything in an empty folder, and gives the library's path in it."""
    (folder / "description.bin").write_bytes(description)
    has_weights = embedded is not None and bool(embedded.arrays)
    if has_weights:
        assert embedded is not None
        with (folder / "weights.bin").open("wb") as file:
            embedded.write(file)
    symbols: dict[str, str] = {}
    objects = []
    for number, member in enumerate(members):
        code, names = rename_defined(member.artifact.code, f"rlx_{number}_")
        (folder / f"code{number}.o").write_bytes(code)
        objects.append(f"code{number}.o")
        symbols |= {f"{number}:{name}": f"rlx_{number}_{name}" for name in names}
    (folder / "library.s").write_text(_assembly(prefix, symbols, has_weights))
    exported = "".join(f" {prefix}_{name};" for name in FUNCTIONS)
    (folder / "exported.map").write_text(f"{{ global:{exported} local: *; }};\n")
    flags = ["relro", "now", "noexecstack", "nodelete", "text"]
    line = [
        *command,
        *("-shared", "-fPIC", "-o", "library.so", "library.s", *objects, str(runtime)),
        *(f"-Wl,-z,{flag}" for flag in flags),
        *("-Wl,--version-script=exported.map", "-Wl,--gc-sections", "-Wl,--no-undefined", "-Wl,--as-needed"),
        *("-static-libgcc", "-lm", "-lpthread", "-ldl"),
    ]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[:8])
        raise ExecutionError(f"the C compiler failed with status {done.returncode}: {shlex.join(line)}\n{said}")
    return folder / "library.so"


def _assembly(prefix: str, symbols: Mapping[str, str], has_weights: bool) -> str:
    """What ties the parts together: the table of code, where data is, and the functions under the library's names.

    Labels that begin with `.L` are the assembler's own. runtime/c/api.cpp has the layout of `rlx_library`.
    """
    ordered = sorted(symbols.items(), key=lambda item: item[0].encode())
    lines = [".section .rodata", ".Ldescription:", '.incbin "description.bin"', ".Ldescription_end:"]
    lines += [f'.Lname{number}: .asciz "{name}"' for number, (name, _) in enumerate(ordered)]
    if has_weights:
        lines += [f".balign {_START}", ".Lweights:", '.incbin "weights.bin"', ".Lweights_end:"]
    lines += ['.section .data.rel.ro,"aw"', ".balign 8", ".Lsymbols:"]
    lines += [f".quad .Lname{number}, {symbol}" for number, (_, symbol) in enumerate(ordered)]
    lines += [".globl rlx_library", ".hidden rlx_library", "rlx_library:"]
    lines += [".quad .Ldescription, .Ldescription_end - .Ldescription"]
    lines += [".quad .Lweights, .Lweights_end - .Lweights" if has_weights else ".quad 0, 0"]
    lines += [f".quad .Lsymbols, {len(ordered)}", ".text"]
    jump = {"x86_64": ("endbr64", "jmp"), "aarch64": ("hint 34", "b")}[platform.machine()]
    for name in FUNCTIONS:
        own = f"{prefix}_{name}"
        lines += [f".globl {own}", f".type {own}, %function", f"{own}:", jump[0], f"{jump[1]} rlx_{name}"]
        lines += [f".size {own}, . - {own}"]
    return "\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""])


__all__ = ["EMBEDDED_BYTES", "WEIGHTS", "Member", "SharedLibrary", "Weights", "check_member", "write_library"]
