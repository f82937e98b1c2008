# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Who is asked for a second opinion: JAX and IREE through StableHLO, PyTorch by a table of operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from rlx_mlir import ir
from rlx_mlir.against.iree_tools import iree_compile
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import ExecutionError, InputError, UnsupportedError
from rlx_mlir.exports.stablehlo.writer import unwritten_reason, written_operation


class Rival(Protocol):
    """Computes single operations."""

    def refusal(self, op: ir.Operation, /) -> str:
        """Why an operation isn't compared; '' where it is."""

    def run(self, op: ir.Operation, operands: Sequence[np.ndarray], /) -> list[np.ndarray]:
        """The results of an operation."""


class Jax:
    """XLA for CPUs, by JAX: each operation is written as StableHLO, and compiled by itself."""

    def __init__(self) -> None:
        try:
            import jax
            import jax.extend.backend
            from jaxlib import _jax, xla_client
        except ImportError:
            raise missing("jax", "'rlx-mlir[jax]'") from None
        self._jax: ModuleType = jax
        self._client = jax.extend.backend.get_backend("cpu")
        self._devices = _jax.DeviceList(tuple(self._client.local_devices()[:1]))
        self._options = xla_client.CompileOptions()
        self._compiled: dict[str, Any] = {}

    def refusal(self, op: ir.Operation) -> str:
        """Why an operation isn't compared; '' where it is."""
        return unwritten_reason(op)

    def run(self, op: ir.Operation, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of an operation."""
        return self.run_text(written_operation(op), operands)

    def run_text(self, text: str, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of a module of StableHLO as text; ExecutionError with JAX's reason where it can't be run."""
        from rlx_mlir.frontends.stablehlo.reader import parsed

        with foreign_errors("JAX", ExecutionError), self._jax.enable_x64(True):
            if text not in self._compiled:
                module = parsed(text.encode())
                self._compiled[text] = self._client.compile_and_load(str(module), self._devices, self._options)
            device = self._client.local_devices()[0]
            given = [self._jax.device_put(array, device) for array in operands]
            return [np.asarray(found) for found in self._compiled[text].execute(given)]


class Iree:
    """IREE for CPUs: each operation is written as StableHLO, and compiled by itself, in a process of its compiler."""

    def __init__(self) -> None:
        try:
            import iree.runtime
        except ImportError:
            raise missing("iree", _IREE) from None
        self._runtime: Any = iree.runtime
        self._compiled: dict[str, Any] = {}

    def refusal(self, op: ir.Operation) -> str:
        """Why an operation isn't compared; '' where it is."""
        return unwritten_reason(op)

    def run(self, op: ir.Operation, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of an operation; UnsupportedError where IREE's compiler doesn't take it."""
        text = written_operation(op)
        with foreign_errors("IREE", ExecutionError):
            if text not in self._compiled:
                binary = iree_compile(text, _IREE_FLAGS, install=f"pip install {_IREE}")
                self._compiled[text] = self._runtime.load_vm_flatbuffer(binary, driver="local-sync")
            found = self._compiled[text]["main"](*operands)
        results = found if isinstance(found, tuple | list) else [found]
        return [np.asarray(own.to_host()) for own in results]


class Torch:
    """PyTorch's operators for CPUs, one or a few for each operation."""

    def __init__(self) -> None:
        try:
            import torch
        except ImportError:
            raise missing("torch", "'rlx-mlir[torch]'") from None
        from rlx_mlir.against.torch_operators import TABLE, refused

        self._torch, self._table, self._refused = torch, TABLE, refused

    def refusal(self, op: ir.Operation) -> str:
        """Why an operation isn't compared; '' where it is."""
        if op.name not in self._table:
            return "the table of PyTorch's operators doesn't have it"
        return self._refused(op)

    def run(self, op: ir.Operation, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of an operation."""
        from rlx_mlir.against.torch_operators import run

        with foreign_errors("PyTorch", ExecutionError):
            return run(op, operands)


_IREE = "iree-base-compiler iree-base-runtime"
#: Numbers of 64 bits stay these.
_IREE_FLAGS = ("--iree-input-type=stablehlo", "--iree-input-demote-f64-to-f32=false")


def missing(name: str, package: str) -> UnsupportedError:
    """The error of who isn't installed, with what installs it."""
    return UnsupportedError(f"comparing with {name} needs it, but it isn't installed: pip install {package}")


#: Who is asked, by name; or why nobody is.
RIVALS: dict[str, Callable[[], Rival] | str] = {
    "jax": Jax,
    "torch": Torch,
    "iree": Iree,
    "onnxruntime": "modules aren't written as ONNX files: give the path of such a file",
}


def rival_of(name: str) -> Rival:
    """The rival of a name; InputError where there is none, UnsupportedError with the reason where it can't be asked."""
    found = RIVALS.get(name)
    if found is None:
        raise InputError(f"who is compared with is one of {', '.join(RIVALS)}, but got {name!r}")
    if isinstance(found, str):
        raise UnsupportedError(f"there is no comparison with {name}: {found}")
    return found()


__all__ = ["RIVALS", "Jax", "Rival", "Torch", "missing", "rival_of"]
