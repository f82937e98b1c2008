# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The C interface of shared libraries, `include/rlx.h`, by ctypes: arrays of numpy in and out."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from rlx_mlir.dtypes import DTYPES

ABI_VERSION = 1
INPUT, PARAMETER, OUTPUT = range(3)
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
CXX_COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")

_SIZE, _HANDLE, _TEXT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p


class Options(ctypes.Structure):
    """`rlx_options`."""

    _fields_ = (("abi_version", ctypes.c_uint32), ("threads", ctypes.c_int32), ("weights", _TEXT))


class Symbol(ctypes.Structure):
    """`rlx_symbol`."""

    _fields_ = (("name", _TEXT), ("maximum", ctypes.c_int64))


class Buffer(ctypes.Structure):
    """`rlx_buffer`."""

    _fields_ = (
        ("name", _TEXT),
        ("dtype", _TEXT),
        ("element_bytes", _SIZE),
        ("alignment", _SIZE),
        ("rank", _SIZE),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("maximum", ctypes.POINTER(ctypes.c_int64)),
        ("formula", ctypes.POINTER(_TEXT)),
        ("tied", ctypes.c_int32),
        ("tied_kind", ctypes.c_uint),
        ("tied_index", _SIZE),
        ("given", ctypes.c_int32),
    )


class Memory(ctypes.Structure):
    """`rlx_input` and `rlx_output`."""

    _fields_ = (("data", ctypes.c_void_p), ("bytes", _SIZE))


class CError(Exception):
    """A call failed: its status, and the text of the error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "abi_version": (ctypes.c_uint32, []),
    "load": (ctypes.c_int, [ctypes.POINTER(Options), ctypes.POINTER(_HANDLE)]),
    "free": (None, [_HANDLE]),
    "error": (_TEXT, [_HANDLE]),
    "threads": (ctypes.c_int32, [_HANDLE]),
    "function_count": (_SIZE, [_HANDLE]),
    "function_name": (_TEXT, [_HANDLE, _SIZE]),
    "symbol_count": (_SIZE, [_HANDLE, _SIZE]),
    "describe_symbol": (ctypes.c_int, [_HANDLE, _SIZE, _SIZE, ctypes.POINTER(Symbol)]),
    "buffer_count": (_SIZE, [_HANDLE, _SIZE, ctypes.c_uint]),
    "describe_buffer": (ctypes.c_int, [_HANDLE, _SIZE, ctypes.c_uint, _SIZE, ctypes.POINTER(Buffer)]),
    "find_function": (ctypes.c_int, [_HANDLE, _TEXT, ctypes.POINTER(_SIZE)]),
    "find_buffer": (ctypes.c_int, [_HANDLE, _SIZE, ctypes.c_uint, _TEXT, ctypes.POINTER(_SIZE)]),
    "measure": (
        ctypes.c_int,
        [
            _HANDLE,
            _SIZE,
            ctypes.c_uint,
            _SIZE,
            ctypes.POINTER(ctypes.c_int64),
            _SIZE,
            ctypes.POINTER(ctypes.c_int64),
            ctypes.POINTER(_SIZE),
        ],
    ),
    "set_parameter": (ctypes.c_int, [_HANDLE, _SIZE, _SIZE, ctypes.c_void_p, _SIZE]),
    "run": (
        ctypes.c_int,
        [
            _HANDLE,
            _SIZE,
            ctypes.POINTER(ctypes.c_int64),
            _SIZE,
            ctypes.POINTER(Memory),
            _SIZE,
            ctypes.POINTER(Memory),
            _SIZE,
        ],
    ),
}


_FALLIBLE = frozenset(name for name, (result, _) in SIGNATURES.items() if result is ctypes.c_int and name != "threads")
Signatures = Mapping[str, tuple[Any, list[Any]]]


class CLibrary:
    """A library, loaded into this process; `call` is its functions under their names in rlx.h."""

    def __init__(self, path: Path, prefix: str, signatures: Signatures = MappingProxyType(SIGNATURES)) -> None:
        library = ctypes.CDLL(str(path))
        self.functions = {}
        for name, (result, arguments) in signatures.items():
            function = getattr(library, f"{prefix}_{name}")
            function.restype, function.argtypes = result, arguments
            self.functions[name] = function

    def load(self, *, threads: int = 0, weights: Path | None = None, abi: int = ABI_VERSION) -> CModel:
        """A handle; raises CError."""
        options = Options(abi, threads, None if weights is None else str(weights).encode())
        handle = _HANDLE()
        status = self.functions["load"](ctypes.byref(options), ctypes.byref(handle))
        if status:
            raise CError(status, self.functions["error"](None).decode())
        return CModel(self, handle)


class CModel:
    """A handle; it is freed with the object."""

    def __init__(self, library: CLibrary, handle: Any) -> None:
        self.library = library
        self.handle = handle

    def __del__(self) -> None:
        self.library.functions["free"](self.handle)

    def call(self, name: str, *arguments: Any) -> Any:
        """A function that gives something, or a status: CError where that isn't 0."""
        result = self.library.functions[name](self.handle, *arguments)
        if name in _FALLIBLE and result:
            raise CError(result, self.library.functions["error"](self.handle).decode())
        return result

    def symbols(self, function: int = 0) -> dict[str, int]:
        """Names and largest sizes."""
        found = {}
        for index in range(self.call("symbol_count", function)):
            symbol = Symbol()
            self.call("describe_symbol", function, index, ctypes.byref(symbol))
            found[symbol.name.decode()] = symbol.maximum
        return found

    def buffer(self, kind: int, index: int, function: int = 0) -> Buffer:
        """What is known of a buffer."""
        buffer = Buffer()
        self.call("describe_buffer", function, kind, index, ctypes.byref(buffer))
        return buffer

    def names(self, kind: int, function: int = 0) -> list[str]:
        """Of the buffers of a kind."""
        count = self.call("buffer_count", function, kind)
        return [self.buffer(kind, index, function).name.decode() for index in range(count)]

    def measure(self, kind: int, index: int, sizes: Sequence[int], function: int = 0) -> tuple[tuple[int, ...], int]:
        """Shape and bytes of a buffer."""
        rank = self.buffer(kind, index, function).rank
        shape, count = (ctypes.c_int64 * rank)(), _SIZE()
        self.call("measure", function, kind, index, _sizes(sizes), len(sizes), shape, ctypes.byref(count))
        return tuple(shape), count.value

    def set_parameter(self, index: int, array: np.ndarray, function: int = 0) -> None:
        """Gives a parameter; the array has to stay."""
        self.call("set_parameter", function, index, array.ctypes.data, array.nbytes)

    def run(
        self,
        sizes: Sequence[int],
        inputs: Sequence[np.ndarray | Memory],
        outputs: Sequence[np.ndarray | Memory],
        function: int = 0,
    ) -> None:
        """One run on arrays."""
        self.call(
            "run",
            function,
            _sizes(sizes),
            len(sizes),
            _memories(inputs),
            len(inputs),
            _memories(outputs),
            len(outputs),
        )

    def results(self, executable: Any, inputs: Mapping[str, np.ndarray], function: int = 0) -> dict[str, np.ndarray]:
        """What a run gives for the inputs of an executable of the same module, whose outputs say the types."""
        known: dict[str, int] = {}
        for spec in (*executable.inputs, *executable.artifact.plan_parameters):
            array = inputs[spec.name] if spec.name in inputs else executable.plan_params[spec.name]
            known |= {size: own for size, own in zip(spec.shape, array.shape, strict=True) if isinstance(size, str)}
        sizes = [known[name] for name in self.symbols(function)]
        outputs = {}
        for index, spec in enumerate(executable.outputs):
            shape, size = self.measure(OUTPUT, index, sizes, function)
            outputs[spec.name] = np.full(shape, 77, DTYPES[spec.dtype])
            assert outputs[spec.name].nbytes == size
        arrays = [np.ascontiguousarray(inputs[spec.name]) for spec in executable.inputs]
        self.run(sizes, arrays, list(outputs.values()), function)
        return outputs


def _sizes(sizes: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(sizes))(*sizes) if sizes else None


def _memories(arrays: Sequence[np.ndarray | Memory]) -> Any:
    if not arrays:
        return None
    return (Memory * len(arrays))(
        *(own if isinstance(own, Memory) else Memory(own.ctypes.data, own.nbytes) for own in arrays)
    )


def built(source: Path, library: Path, output: Path, *flags: str) -> Path:
    """A program of C or C++ with a library, without any warnings."""
    cxx = source.suffix == ".cpp"
    compiler = CXX_COMPILER if cxx else COMPILER
    assert compiler is not None
    subprocess.run(
        [
            compiler,
            "-std=c++17" if cxx else "-std=c99",
            *STRICT,
            *flags,
            f"-I{library.parent}",
            str(source),
            str(library),
            f"-Wl,-rpath,{library.parent}",
            "-o",
            str(output),
            *(["-pthread"] if cxx else []),
        ],
        check=True,
    )
    return output


__all__ = [
    "ABI_VERSION",
    "COMPILER",
    "CXX_COMPILER",
    "INPUT",
    "OUTPUT",
    "PARAMETER",
    "SIGNATURES",
    "STRICT",
    "CError",
    "CLibrary",
    "CModel",
    "Memory",
    "built",
]
