# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels join, and why an element-wise operation begins a kernel of its own: for fusion reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.locations import describe_location
from rlx_mlir.lowering.convolutions import fits_image, why_no_template
from rlx_mlir.lowering.fuse import ONE_READER, columns_of, only_user, producer, shape_of
from rlx_mlir.lowering.groups import BROADCASTS, MAX_ELEMENT_OPS, MAX_ROW_OPS, POINTWISE, Group, fits_epilogue
from rlx_mlir.rewriting import Rewrite, RewriteReport, identity

#: Kernels that go on with element-wise operations on what they make.
_GROW = ("gemm", "conv2d", "rows", "broadcast")
_MOST = {"rows": MAX_ROW_OPS, "broadcast": MAX_ELEMENT_OPS}
#: How the report names the decision.
_PATTERN = "join_kernel"


@dataclass(frozen=True)
class _Reason:
    """Why an operation doesn't join a kernel, and what would help."""

    text: str
    hint: str = ""


def note_groups(report: RewriteReport, groups: Sequence[Group]) -> None:
    """Notes the groups of one block: which operations they join, and what nearly joined one.

    Args:
        report: of the pass that makes kernels.
        groups: in the order of their kernels.
    """
    of = {identity(op): number for number, group in enumerate(groups) for op in group.ops}
    for group in groups:
        ops = [op for op in group.ops if op.name != "mir.reshape"]
        if len(ops) > 1:
            words = ", ".join(op.name.removeprefix("mir.") for op in ops)
            report.joined.append(Rewrite(words, ops[0].name, describe_location(ops[-1].location)))
        if (reason := _reason(group, groups, of)) is not None:
            report.miss(_PATTERN, ops[0].operation, reason.text, reason.hint)


def _reason(group: Group, groups: Sequence[Group], of: Mapping[int, int]) -> _Reason | None:
    """Why a group's first operation doesn't join the last kernel that makes what it reads; None where that is plain.

    Args:
        group: one of the groups.
        groups: all of a block.
        of: the number of the group of each operation.
    """
    first = group.ops[0].operation
    if group.kind not in ("rows", "broadcast") or first.name not in POINTWISE | BROADCASTS:
        return None
    made = [value for value in first.operands if not isinstance(value.owner, ir.Block) and identity(value.owner) in of]
    if not made:
        return None
    value = max(made, key=lambda own: of[identity(own.owner)])
    maker = groups[of[identity(value.owner)]]
    if maker.kind not in _GROW:
        return None
    if maker.kind in _MAKERS:
        return _beside(_MAKERS[maker.kind], first, value)
    if len(maker.ops) >= _MOST[maker.kind]:
        return _Reason(f"the kernel before has {len(maker.ops)} operations already, and takes no more")
    if maker.kind == "rows" and group.kind == "broadcast" and shape_of(value) == shape_of(first.results[0]):
        return _Reason(
            "kernels of rows have functions of floats of one type, whose operands are rows, vectors over columns or "
            "one element; rows have a static length"
        )
    return None


@dataclass(frozen=True)
class _Maker:
    """Kernels that end with functions of what they make.

    Attributes:
        what: is made.
        fits: whether they can read a value beside what they make.
        vector: what they can read, beside what has its shape and one element, and the shape of that.
    """

    what: str
    fits: Callable[[ir.Value, ir.Value], bool]
    vector: tuple[str, Callable[[list[int]], str]]


_MAKERS = {
    "gemm": _Maker(
        "product", fits_epilogue, ("a vector over columns", lambda shape: f"{columns_of(shape)} over columns")
    ),
    "conv2d": _Maker("convolution", fits_image, ("a number for each channel", lambda shape: f"[{shape[1]}, 1, 1]")),
}


def _beside(maker: _Maker, op: ir.Operation, value: ir.Value) -> _Reason | None:
    """Why an operation isn't done by the product or convolution that makes a value."""
    what, (vector, described) = maker.what, maker.vector
    convolution = producer(value, mir.ConvOp)
    if convolution is not None and (reason := why_no_template(convolution)):
        return _Reason(f"loops compute the convolution: {reason}")
    if only_user(value) is None:
        return _Reason(f"something else reads what the {what} makes", ONE_READER)
    if op.name not in POINTWISE:
        return _Reason(f"a {what}'s kernel ends with functions of floats")
    if op.results[0].type != value.type:
        return _Reason(f"its result has another shape or element type than the {what}'s")
    if not all(own == value or maker.fits(own, value) for own in op.operands):
        return _Reason(
            f"beside the {what} it reads what is neither of the {what}'s shape, {vector} nor one element",
            hint=f"{described(shape_of(value))}, or the whole shape",
        )
    return None
