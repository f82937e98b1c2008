# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reading StableHLO, and functions of JAX: an operation of theirs becomes some of ours; see docs/jax.md."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rlx_mlir.place import located

if TYPE_CHECKING:
    from .model import StablehloModel


@located
def from_stablehlo(source: str | os.PathLike[str] | bytes, *, name: str | None = None) -> StablehloModel:
    """A module of StableHLO: a graph, its parameters by name, and `compile`.

    Text of the generic form needs nothing else. Pretty text and portable artifacts (bytecode) are read by jaxlib, in
    another process; what `jax.export` serialises needs jax, and gives what `from_jax` gives.

    Args:
        source: path of a file, its text, or its bytes.
        name: of the graph; by default that of the module.

    Raises:
        StablehloError: the module can't be read, or is malformed.
        StablehloUnsupportedError: operations that have no counterpart here: all of them, with counts and places.
        UnsupportedError: jaxlib is needed and isn't installed.
        BudgetError: the module is larger than `rlx_mlir.budget` allows.
    """
    from rlx_mlir import checks
    from rlx_mlir.sources import BYTECODE

    from .source import content_of, is_text, parsed

    name = checks.text("name", name) if name is not None else None
    content, what = content_of(source)
    if not content.startswith(BYTECODE) and not is_text(content):
        from .functions import deserialized

        return deserialized(content, name)
    from .model import built

    return built(parsed(content, what), name)


__all__ = ["from_stablehlo"]
