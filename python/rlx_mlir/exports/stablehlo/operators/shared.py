# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What writers of several families share: loops, and what is said of uses of operations that aren't written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlx_mlir.attributes import PythonValue
from rlx_mlir.exports.stablehlo.builder import Writing
from rlx_mlir.exports.stablehlo.tensors import Tensor

#: By the name of an operation: of its attributes, why it isn't written; '' where it is.
REFUSALS: dict[str, Callable[[Mapping[str, PythonValue]], str]] = {}


def _of_groups(attributes: Mapping[str, PythonValue]) -> str:
    groups = attributes.get("groups", 1) or 1
    return f"of {groups} groups" if groups != 1 else ""


def _of_schemes(attributes: Mapping[str, PythonValue]) -> str:
    return "keys or values that are blocks" if {"k_scheme", "v_scheme"} & attributes.keys() else ""


def _of_blocks(attributes: Mapping[str, PythonValue]) -> str:
    return "a cache of blocks" if "scheme" in attributes else ""


REFUSALS |= {f"mir.{name}": _of_groups for name in ("conv_transpose2d", "conv2d_backward_weight")}
REFUSALS |= {"mir.attention": _of_schemes, "mir.cache_update": _of_blocks}


def looped(
    w: Writing,
    carried: Sequence[Tensor],
    holds: Callable[..., Sequence[Tensor]],
    step: Callable[..., Sequence[Tensor]],
) -> list[Tensor]:
    """What is carried, once a condition of it doesn't hold any more, and steps were taken as long as it did."""
    types = [(value.shape, value.word) for value in carried]
    regions = [w.region(types, build)[0] for build in (holds, step)]
    found: list[Tensor] = w.ops("while", carried, types, "", regions)
    return found
