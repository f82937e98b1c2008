# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that move elements: cotangents go back the same way."""

from __future__ import annotations

from rlx_mlir.attributes import PythonValue
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Forward, Reverse, jvp, linear, reshaped, unbroadcast, vjp, zeros_like
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size


@vjp(mir.ReshapeOp)
def reshape(m: Builders, at: Reverse, x: Value, *like: Value, **attributes: PythonValue) -> Value:
    """The operand's shape."""
    return reshaped(m, at.dy, x)


@vjp(mir.BarrierOp)
def barrier(m: Builders, at: Reverse, x: Value) -> Value:
    """The cotangent itself."""
    return at.dy


@vjp(mir.TransposeOp)
def transpose(m: Builders, at: Reverse, x: Value, *, permutation: list[int]) -> Value:
    """The inverse permutation."""
    return m.transpose(at.dy, [permutation.index(axis) for axis in range(x.ndim)])


@vjp(mir.ExpandOp)
def expand(m: Builders, at: Reverse, x: Value, *like: Value, **attributes: PythonValue) -> Value:
    """The sum over what was repeated."""
    return unbroadcast(m, at.dy, x)


@vjp(mir.NarrowOp)
def narrow(m: Builders, at: Reverse, x: Value, *, axis: int, start: int, length: int) -> Value:
    """Zeros where nothing was read."""
    return _between(m, at.dy, x, axis % x.ndim, start)


def _between(m: Builders, dy: Value, x: Value, axis: int, start: int) -> Value:
    """A cotangent of a part of x along a dimension, in zeros for the rest."""
    sizes = m.sizes_of(x)
    if m.sizes_of(dy)[axis] == Size.of(0):  # which may begin beyond the end
        return zeros_like(m, x)
    rest = sizes[axis] - start - m.sizes_of(dy)[axis]
    if rest.constant is None:
        return m.dynamic_update_slice(zeros_like(m, x), dy, start, axis)
    zero = m.constant(0.0, x.dtype)

    def zeros(count: int) -> list[Value]:
        return [] if not count else [m.expand(zero, [*sizes[:axis], count, *sizes[axis + 1 :]])]

    parts = [*zeros(start), dy, *zeros(rest.constant)]
    return parts[0] if len(parts) == 1 else m.concat(parts, axis)


@vjp(mir.SliceOp)
def slice_(
    m: Builders,
    at: Reverse,
    x: Value,
    *like: Value,
    axis: int,
    start: PythonValue = None,
    step: int = 1,
    **attributes: PythonValue,
) -> Value:
    """Zeros where nothing was read: before or after one part, else each entry goes back to where the places say."""
    own = axis % x.ndim
    if step == 1 and (start is None or (isinstance(start, int) and start >= 0)):
        return _between(m, at.dy, x, own, start or 0)
    if step == 1 and attributes.get("stop") is None:
        begin = m.sub(m.dim(x, own, "i32"), m.dim(at.dy, own, "i32"))
        return m.dynamic_update_slice(zeros_like(m, x), at.dy, begin, own)
    positions = m.iota([m.sizes_of(x)[own]], 0, "i32")
    given = {name: at.op.attributes[name] for name in at.op.attributes}
    places = m.expression("mir.slice", {"x": positions, "like": list(like)}, {**given, "axis": 0})
    return m.scatter_add(at.dy, places, x, own)


@vjp(mir.DynamicSliceOp)
def dynamic_slice(m: Builders, at: Reverse, x: Value, start: Value, *like: Value, axis: int, **_: object) -> Value:
    """The cotangent in zeros, at the same place."""
    return m.dynamic_update_slice(zeros_like(m, x), at.dy, start, axis)


@jvp(mir.DynamicSliceOp)
def dynamic_slice_forward(m: Builders, at: Forward, x: Value, start: Value, *like: Value, **_: object) -> Value | None:
    """The same part of the tangent."""
    if at.tangents[0] is None:
        return None
    return m.copied(at.op, [at.tangents[0], start, *like])[0]


@vjp(mir.DynamicUpdateSliceOp)
def dynamic_update_slice(
    m: Builders, at: Reverse, x: Value, update: Value, start: Value, *, axis: int
) -> tuple[Value, Value]:
    """Zeros where x was replaced, and the part that replaced it."""
    part = m.dynamic_slice(at.dy, start, m.sizes_of(update)[axis], axis)
    return m.dynamic_update_slice(at.dy, zeros_like(m, update), start, axis), part


@vjp(mir.ConcatOp)
def concat(m: Builders, at: Reverse, *inputs: Value, axis: int) -> tuple[Value, ...]:
    """A part for each operand."""
    own, begin = axis % at.y.ndim, Size.of(0)
    found = []
    for value in inputs:
        end = begin + m.sizes_of(value)[own]
        found.append(m.slice(at.dy, own, begin, end))
        begin = end
    return tuple(found)


@jvp(mir.ConcatOp)
def concat_forward(m: Builders, at: Forward, *inputs: Value, axis: int) -> Value:
    """The tangents joined."""
    own = [zeros_like(m, x) if t is None else t for x, t in zip(inputs, at.tangents, strict=True)]
    return m.concat(own, axis)


@jvp(mir.ReshapeOp, mir.ExpandOp, mir.SliceOp)
def like_others(m: Builders, at: Forward, x: Value, *like: Value, **attributes: PythonValue) -> Value | None:
    """The same of the tangent; sizes are those of the same values."""
    if at.tangents[0] is None:
        return None
    return m.copied(at.op, [at.tangents[0], *like])[0]


linear(mir.BarrierOp, mir.TransposeOp, mir.NarrowOp)
linear(mir.DynamicUpdateSliceOp, by=(0, 1))
