# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of operations, by which drawings colour them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import rlx_mlir.mir  # noqa: F401  (fills the registry)
from rlx_mlir.mir.registry import REFERENCES

#: What the legend calls each family.
FAMILIES = {
    "product": "products, convolutions, solves, transforms",
    "attention": "attention",
    "norm": "norms",
    "element": "element-wise",
    "reduction": "reductions, sorting",
    "movement": "movement",
    "control": "choices, loops",
    "quant": "quantisation",
    "recurrence": "recurrences",
    "sample": "sampling",
    "image": "pools, pixels, splats",
    "block": "blocks",
    "other": "other operations",
}
#: Families of the modules of `rlx_mlir.mir` that have the references of operations.
_OF_MODULES = {
    "affine": "quant",
    "attention": "attention",
    "backward": "element",
    "complexes": "element",
    "control": "control",
    "conv": "product",
    "custom": "other",
    "elementwise": "element",
    "fft": "product",
    "fused": "element",
    "group_norms": "norm",
    "grouped": "product",
    "images": "image",
    "indexing": "movement",
    "linear": "product",
    "loss": "reduction",
    "matmul": "product",
    "norms": "norm",
    "quant": "quant",
    "quantize": "quant",
    "recurrence": "recurrence",
    "reductions": "reduction",
    "sampling": "sample",
    "scaled": "product",
    "shape": "movement",
    "solve": "product",
    "splat_gradient": "image",
    "splats": "image",
    "state_space": "recurrence",
}
#: Families of operations whose names say more than their modules do, by a part of the name.
_OF_WORDS = {
    "complex_norm": "element",
    "transformer_layer": "block",
    "moe_weights": "quant",
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
    return "other" if reference is None else _OF_MODULES.get(module_of(reference), "other")


def module_of(reference: Callable[..., object]) -> str:
    """The module of `rlx_mlir.mir` that a reference is in."""
    return reference.__module__.rpartition(".")[2]
