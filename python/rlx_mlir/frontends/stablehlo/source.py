# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reading modules of StableHLO: three forms, of which our MLIR reads one by itself.

- The generic text, `"stablehlo.add"(%0, %1) : …`, needs nothing else: its operations are read as those of a dialect
  that isn't registered.
- The pretty text, `stablehlo.add %0, %1 : …`, and portable artifacts, bytecode of a version of StableHLO, need its own
  parsers, which come with jaxlib. Another process reads them, as all bytecode of strangers, and gives the generic text.
- What `jax.export` serialises is such an artifact, with the types of the function around it.

MLIR since version 23 writes a condition of a constant as a byte; ours reads a bit: constants of text are brought to
that.
"""

from __future__ import annotations

import math
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from rlx_mlir import budgets, ir, sources
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import InputError, StablehloError, UnsupportedError, shortened
from rlx_mlir.files import check_regular, open_regular

#: Operations in generic and in pretty text.
_GENERIC = re.compile(r'"(?:stablehlo|chlo)\.\w+"\(')
_PRETTY = re.compile(r"(?<![\"\w#!.])(?:stablehlo|chlo)\.\w+")
_CONDITIONS = re.compile(r'dense<"0x([0-9A-Fa-f]+)"> : tensor<((?:\d+x)+)i1>')
#: Seconds, and bytes for a further second, that another process may take to read a module.
_SECONDS, _BYTES_A_SECOND = 60, 1 << 20

#: What the other process runs; the rest of the package isn't imported there.
_PROGRAM = "import runpy, sys; sys.path[:] = sys.argv[2:]; runpy.run_path(sys.argv[1])['main']()"

#: What belongs to JAX, which is a library that may be absent: arrays and other leaves, structures of them, and what
#: `jax.export` makes.
Jax: TypeAlias = Any


def content_of(source: object) -> tuple[bytes, str]:
    """The bytes of a module, and what names it in errors.

    Args:
        source: a path, text or bytes.
    """
    if isinstance(source, bytes | bytearray):
        return bytes(source), "the module"
    if isinstance(source, str) and ("\n" in source or "func.func" in source):
        return source.encode(), "the module"
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"a module of StableHLO is a path, text or bytes, but got {shortened(source)}")
    with foreign_errors(shortened(source), StablehloError):
        path = Path(source)
    size = check_regular(path, error=StablehloError)
    budgets.check("ir_bytes", size, str(path))
    with open_regular(path, error=StablehloError) as file, foreign_errors(str(path), StablehloError):
        return file.read(size), str(path)


def has_stablehlo(content: bytes) -> bool:
    """Whether text or bytecode of MLIR has operations of StableHLO."""
    if content.startswith(sources.BYTECODE):
        return content[4:].lstrip(b"\0\r").startswith(b"StableHLO")
    text = content.decode(errors="replace")
    return bool(_GENERIC.search(text) or _PRETTY.search(text))


def is_text(content: bytes) -> bool:
    """Whether bytes are text: what `jax.export` serialises has zeros."""
    return b"\0" not in content


def parsed(content: bytes, what: str) -> ir.Module:
    """The module of a text or a portable artifact, with operations that aren't registered.

    Raises StablehloError where it can't be read, UnsupportedError where that needs jaxlib, which isn't there.
    """
    budgets.check("ir_bytes", len(content), what)
    if content.startswith(sources.BYTECODE):
        text = _read_elsewhere(content, what, "a portable artifact")
    else:
        with foreign_errors(what, StablehloError):
            text = content.decode()
        if not _GENERIC.search(text) and _PRETTY.search(text):
            text = _read_elsewhere(content, what, "text that isn't of the generic form")
    return parsed_text(text, what)


def parsed_text(text: str, what: str) -> ir.Module:
    """The module of a text in the generic form."""
    text = _CONDITIONS.sub(_in_bits, text)
    sources.check_source(text.encode(), what)
    context = ir.new_context()
    context.allow_unregistered_dialects = True
    with ir.single_threaded(context):
        try:
            module: ir.Module = ir.Module.parse(text, context)
            return module
        except ir.MLIRError as error:
            first = error.error_diagnostics[0] if error.error_diagnostics else None
            where = f" (line {first.location.start_line})" if first is not None and first.location.is_a_file() else ""
            message = first.message if first is not None else str(error)
            raise StablehloError(f"{what} doesn't parse: {message}{where}") from None


def _in_bits(found: re.Match[str]) -> str:
    """A constant of conditions with a bit for each, of one with a byte for each."""
    data = np.frombuffer(bytes.fromhex(found[1]), np.uint8)
    count = math.prod(int(size) for size in found[2].split("x") if size)
    if data.size != count or count < 2:
        return found[0]
    packed = np.packbits(data != 0, bitorder="little").tobytes()
    return f'dense<"0x{packed.hex().upper()}"> : tensor<{found[2]}i1>'


def _read_elsewhere(content: bytes, what: str, form: str) -> str:
    """The generic text of a module that jaxlib reads, in another process."""
    seconds = _SECONDS + len(content) // _BYTES_A_SECOND
    reader = str(Path(__file__).with_name("reader.py"))
    done = sources.run_reader([_PROGRAM, reader, *sys.path], content, what, seconds, StablehloError)
    if not done.returncode:
        return done.stdout.decode()
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    if any("No module named 'jaxlib" in line for line in lines[-1:]):
        raise UnsupportedError(
            f"{what} is {form}, which jaxlib reads, which isn't installed: pip install 'rlx-mlir[jax]'; text of the "
            "generic form (`print_generic_op_form=True`, or `stablehlo-opt --mlir-print-op-generic`) needs nothing else"
        )
    reason = next((line for line in lines if "error:" in line), lines[-1] if lines else "no reason is given")
    raise StablehloError(f"{what} doesn't parse as {form}: {shortened(reason.strip(), 300)}")


def jax_library() -> ModuleType:
    """The library `jax`; UnsupportedError says how to install it where it isn't."""
    try:
        import jax
        import jax.export
    except ImportError:
        raise UnsupportedError(
            "functions of JAX need the library jax, which isn't installed: pip install 'rlx-mlir[jax]'"
        ) from None
    library: ModuleType = jax
    return library
