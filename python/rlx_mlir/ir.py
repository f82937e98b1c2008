# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""MLIR's Python bindings, and contexts that know our dialects and passes.

Import `ir` from here, never from `mlir`: this module loads the compiler extension into them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from mlir._mlir_libs import _mlir as _bindings
from mlir.ir import *  # noqa: F403
from mlir.ir import Context, DialectRegistry, Module, Operation, OpView, register_attribute_builder  # noqa: F401

from rlx_mlir import _compiler as native
from rlx_mlir import formats
from rlx_mlir.erasure import guard_erasure

#: An operation: as MLIR's own class, or as that of its dialect, which names operands and attributes.
AnyOp: TypeAlias = Operation | OpView
#: A module: MLIR's own class, or the operation that it is.
AnyModule: TypeAlias = Module | AnyOp

# Operations find their Python classes by the name of their dialect.
_bindings.globals.append_dialect_search_prefix("rlx_mlir.dialects")
guard_erasure()


def _register_format(format: formats.BlockFormat) -> None:
    """Tells the dialect of a format that weights may have: types are checked by its sizes."""
    if format.is_weight:
        panel = formats.panel_layout(format).block_bytes // formats.PANEL_ROWS if format.has_panels else 0
        planes = formats.plane_layout(format).planes if format.has_planes else ()
        parts = [(plane.elements, plane.nbytes) for plane in planes]
        native.register_format(format.name, format.block, format.nbytes, panel, format.has_integers, parts)


formats.each_format(_register_format)

_lock = threading.Lock()
_native_passes_registered = False


def register_native_passes() -> None:
    """Registers the native passes, once for the process."""
    global _native_passes_registered
    with _lock:
        if not _native_passes_registered:
            native.register_native_passes()
            _native_passes_registered = True


@contextmanager
def single_threaded(context: Context) -> Iterator[None]:
    """Keeps MLIR from verifying on other threads: a diagnostic from one of them would end the process.

    The bindings collect diagnostics in Python objects, and those threads don't hold Python's lock.
    """
    context.enable_multithreading(False)
    try:
        yield
    finally:
        context.enable_multithreading(True)


def new_context() -> Context:
    """A context that can load HIR, MIR and every upstream dialect."""
    register_native_passes()
    context = Context()
    registry = DialectRegistry()
    native.register_dialects(registry)
    context.append_dialect_registry(registry)
    for dialect in ("func", "hir", "mir"):
        context.get_dialect_descriptor(dialect)
    return context
