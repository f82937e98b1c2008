# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What writers say of uses of operations that they don't write."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlx_mlir.attributes import PythonValue

#: By the name of an operation: of its attributes, why it isn't written; '' where it is.
REFUSALS: dict[str, Callable[[Mapping[str, PythonValue]], str]] = {}


def _of_groups(attributes: Mapping[str, PythonValue]) -> str:
    groups = attributes.get("groups", 1) or 1
    return f"of {groups} groups" if groups != 1 else ""


def _of_schemes(attributes: Mapping[str, PythonValue]) -> str:
    return "keys or values that are blocks" if {"k_scheme", "v_scheme"} & attributes.keys() else ""


def _of_blocks(attributes: Mapping[str, PythonValue]) -> str:
    return "a cache of blocks" if "scheme" in attributes else ""


#: Operations that aren't written of symbolic sizes; neither are those of the family of control flow.
STATIC = frozenset({"mir.cache_update"})
_STATIC_FAMILIES = ("control",)


def needs_numbers(name: str, handler: Callable[..., object]) -> bool:
    """Whether an operation is written of sizes that are numbers alone."""
    return name in STATIC or handler.__module__.rpartition(".")[2] in _STATIC_FAMILIES


REFUSALS |= {f"mir.{name}": _of_groups for name in ("conv_transpose2d", "conv2d_backward_weight")}
REFUSALS |= {"mir.attention": _of_schemes, "mir.cache_update": _of_blocks}
