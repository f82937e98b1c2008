# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of operations, by which drawings colour them."""

from __future__ import annotations

from collections.abc import Sequence

import rlx_mlir.mir  # noqa: F401  (fills the registry)
from rlx_mlir.mir.registry import REFERENCES

#: What the legend calls each family.
FAMILIES = {
    "product": "products, convolutions",
    "attention": "attention",
    "norm": "norms",
    "element": "element-wise",
    "reduction": "reductions, sorting",
    "movement": "movement",
    "control": "choices, loops",
    "quant": "quantisation",
    "recurrence": "recurrences",
    "sample": "sampling",
    "block": "blocks",
    "other": "other operations",
}
#: Families of the modules of `rlx_mlir.mir` that have the references of operations.
_OF_MODULES = {
    "attention": "attention",
    "complexes": "element",
    "control": "control",
    "conv": "product",
    "elementwise": "element",
    "fused": "element",
    "matmul": "product",
    "norms": "norm",
    "quant": "quant",
    "recurrence": "recurrence",
    "reductions": "reduction",
    "sampling": "sample",
    "scaled": "product",
    "shape": "movement",
}
#: Families of operations whose names say more than their modules do, by a part of the name.
_OF_WORDS = {
    "cache_update": "movement",
    "attention": "attention",
    "rope": "attention",
    "matmul": "product",
    "linear": "product",
    "conv": "product",
    "norm": "norm",
    "gated_delta_net": "recurrence",
    "constant": "movement",
}


def family_of(op: str, kernel: Sequence[str] | None = None) -> str:
    """The family of an operation, by its name; of a call that of the first operation of the kernel that moves no data.

    Args:
        kernel: names of the kernel's operations.
    """
    if kernel is not None:
        found = [family_of(each) for each in kernel]
        return next((own for own in found if own not in ("movement", "element")), found[0] if found else "other")
    dialect, _, word = op.partition(".")
    for part, family in _OF_WORDS.items():
        if part in word:
            return family
    if dialect == "hir":
        return "block"
    reference = REFERENCES.get(op)
    return "other" if reference is None else _OF_MODULES.get(reference.__module__.rpartition(".")[2], "other")
