# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""StableHLO's own parsers, which come with jaxlib: from pretty text and portable artifacts to the generic text.

jaxlib has an MLIR of its own, which shares nothing with ours: modules go from one to the other as text.
"""

from __future__ import annotations

import sys
from typing import Any


def parsed(content: bytes) -> Any:
    """jaxlib's module of text or of a portable artifact; raises what jaxlib raises."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo

    context, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    with context, ir.Location.unknown():
        if content.startswith(b"ML\xefR"):
            return stablehlo.deserialize_portable_artifact(context, content)
        return ir.Module.parse(content.decode())


def generic_text(content: bytes) -> str:
    """The generic text of a module, with the locations of its operations."""
    module = parsed(content)
    return str(module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True))


def main() -> None:
    """Reads a module from standard input, and writes its generic text."""
    sys.stdout.buffer.write(generic_text(sys.stdin.buffer.read()).encode())
