# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that move elements by rules of their shapes, and that make tensors of a shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends.tensors import Tensor, Thing, plain
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size, broadcast, is_never_negative, product

from ..call import Call
from ..registry import Refused, operator
from ..types import FLOATS, NUMPY, in_graphs, name_of


@operator("Identity")
def _identity(call: Call) -> list[Thing | None]:
    return [call.inputs[0]]


@operator("Dropout")
def _dropout(call: Call) -> list[Tensor]:
    """In files for inference it drops nothing."""
    if call.has(2) and bool(call.known(2, "whether it is training").reshape(-1)[0]):
        ratio = float(call.known(1, "the ratio").reshape(-1)[0]) if call.has(1) else 0.5
        if ratio:
            raise Refused("a dropout in training draws random numbers")
    found = [call.tensor(0)]
    if call.wants(1):
        mask = np.bool_(True) if call.version >= 10 else np.ones((), call.dtype(0))
        found.append(call.out(call.filled(mask, call.shape(0), np.asarray(mask).dtype)))
    return found


@operator("Constant")
def _constant(call: Call) -> Tensor:
    name = next(iter(call.outputs), "")
    if "value" in call.attributes:
        return Tensor.of(call.attributes["value"], name=name)
    for word, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        if word in call.attributes:
            return Tensor.of(np.array(call.attributes[word], dtype))
    for word, dtype in (("value_floats", np.float32), ("value_ints", np.int64)):
        if word in call.attributes:
            return Tensor.of(np.array(call.attributes[word], dtype), name=name)
    raise Refused(f"a constant of kind {', '.join(call.attributes) or 'none'}")


@operator("Reshape")
def _reshape(call: Call) -> Tensor:
    own, wanted = call.shape(0), call.sizes(1, "the shape")
    return call.out(call.reshaped(call.value(0), resolved_shape(call, own, wanted)))


def resolved_shape(call: Call, own: Sequence[Size], wanted: Sequence[Size]) -> list[Size]:
    """The shape that a reshape asks for, with 0 for what stays and -1 for the rest."""
    zero = call.flag("allowzero")
    shape = []
    for number, size in enumerate(wanted):
        if size.constant == 0 and not zero:
            if number >= len(own):
                raise OnnxError(f"node '{call.name}': entry {number} of the shape is 0, but there are {len(own)} sizes")
            shape.append(own[number])
        else:
            shape.append(size)
    rest = [number for number, size in enumerate(shape) if size.constant == -1]
    if len(rest) > 1:
        raise OnnxError(f"node '{call.name}': a shape has -1 once, but here {len(rest)} times")
    if rest:
        others = product(size for number, size in enumerate(shape) if number not in rest)
        total = product(own)
        exact = total.divided_by(others)
        if exact is None:
            exact = _quotient(call, total, others)
        shape[rest[0]] = exact
    return shape


def _quotient(call: Call, total: Size, others: Size) -> Size:
    if others.constant == 0:
        raise OnnxError(f"node '{call.name}': a shape with 0 elements has no -1")
    return total // others


@operator("Flatten")
def _flatten(call: Call) -> Tensor:
    shape, axis = call.shape(0), call.integer("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return call.out(call.reshaped(call.value(0), [product(shape[:axis]), product(shape[axis:])]))


@operator("Squeeze")
def _squeeze(call: Call) -> Tensor:
    shape, axes = call.shape(0), call.axes(1)
    if axes is None:
        gone = {i for i, size in enumerate(shape) if size.constant == 1}
    else:
        gone = {call.along(axis, len(shape)) for axis in axes}
    for axis in gone:
        if shape[axis].constant not in (1, None):
            raise OnnxError(f"node '{call.name}': dimension {axis} is squeezed, but has size {shape[axis]}")
    return call.out(call.reshaped(call.value(0), [size for i, size in enumerate(shape) if i not in gone]))


@operator("Unsqueeze")
def _unsqueeze(call: Call) -> Tensor:
    return call.out(call.reshaped(call.value(0), unsqueezed(call, call.shape(0), call.axes(1) or [])))


def unsqueezed(call: Call, shape: Sequence[Size], axes: Sequence[int]) -> list[Size]:
    """A shape with sizes of 1 at the axes that the result has."""
    rank = len(shape) + len(axes)
    places = {call.along(axis, rank) for axis in axes}
    if len(places) != len(axes):
        raise OnnxError(f"node '{call.name}': {list(axes)} names a dimension twice")
    left = iter(shape)
    return [Size.of(1) if i in places else next(left) for i in range(rank)]


@operator("Transpose")
def _transpose(call: Call) -> Tensor:
    order = call.ints("perm", range(call.rank(0) - 1, -1, -1))
    order = [call.along(axis, call.rank(0)) for axis in order]
    return call.out(call.m.transpose(call.value(0), order))


@operator("Concat")
def _concat(call: Call) -> Tensor:
    values = [call.value(number) for number in range(len(call.inputs))]
    axis = call.axis(0, call.rank(0))
    return call.out(call.m.concat(values, axis) if len(values) > 1 else values[0])


@operator("Split")
def _split(call: Call) -> list[Tensor]:
    axis = call.axis(0, call.rank(0))
    total = call.shape(0)[axis]
    if call.has(1):
        parts = call.sizes(1, "the parts")
    elif call.maybe_ints("split") is not None:
        parts = [Size.of(part) for part in call.ints("split", [])]
    else:
        parts = even_parts(total, call.integer("num_outputs", len(call.outputs)))
    start, found = Size.of(0), []
    for part in parts:
        found.append(call.out(sliced(call, call.value(0), axis, start, start + part)))
        start = start + part
    return found


def even_parts(total: Size, count: int) -> list[Size]:
    """The sizes of so many parts, of which the last may be smaller."""
    each = -(-total // count) if total.constant is None else Size.of(-(-total.constant // count))
    if total.constant is None:
        if total.divided_by(Size.of(count)) is None:
            raise Refused(f"{count} parts of a dimension of {total}")
        each = total // count
        return [each] * count
    sizes = []
    left = total.constant
    for _ in range(count):
        sizes.append(Size.of(min(each.constant or 0, left)))
        left -= sizes[-1].constant or 0
    return sizes


def sliced(call: Call, x: Value, axis: int, start: Size, stop: Size) -> Value:
    """Elements along a dimension from one size to another."""
    bounds = plain([start, stop])
    return call.m.slice(x, axis, bounds[0], bounds[1])


@operator("Slice")
def _slice(call: Call) -> Tensor:
    x, rank = call.value(0), call.rank(0)
    if call.version < 10:
        starts = [Size.of(entry) for entry in call.ints("starts", [])]
        stops = [Size.of(entry) for entry in call.ints("ends", [])]
        axes = call.ints("axes", range(len(starts)))
        steps = [1] * len(starts)
    else:
        starts, stops = call.sizes(1, "the starts"), call.sizes(2, "the ends")
        axes = call.known_ints(3, "the axes") if call.has(3) else list(range(len(starts)))
        steps = call.known_ints(4, "the steps") if call.has(4) else [1] * len(starts)
    if not len(starts) == len(stops) == len(axes) == len(steps):
        raise OnnxError(f"node '{call.name}': starts, ends, axes and steps are as many, but here they aren't")
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        x = _one_slice(call, x, call.along(axis, rank), start, stop, step)
    return call.out(x)


def _one_slice(call: Call, x: Value, axis: int, start: Size, stop: Size, step: int) -> Value:
    if step == 0:
        raise OnnxError(f"node '{call.name}': a step isn't 0")
    total = Tensor.running(x).shape[axis]
    first, last = _bound(start, total, step, first=True), _bound(stop, total, step, first=False)
    if first is None and last is None and step == 1:
        return x
    begin, end = (None if own is None else plain([own])[0] for own in (first, last))
    # Of one element, bounds that calls decide leave it, or nothing is computed: what follows broadcasts it.
    decided = (
        total.constant == 1 and step == 1 and any(own is not None and own.constant is None for own in (first, last))
    )
    return call.m.slice(x, axis, begin, end, step, length=1 if decided else None)


def _bound(bound: Size, total: Size, step: int, first: bool) -> Size | None:
    """A bound as our slices take it; None where it is the end of the dimension.

    Those of ONNX are moved to the ends before they count: `-n - 1` is before the first element for a negative step.
    """
    number, size = bound.constant, total.constant
    if number is not None:
        if number >= (size if size is not None else 1 << 62):
            return None if (step > 0) != first else Size.of(number)
        if number < 0 and size is not None and number < -size:
            return None if first == (step > 0) or (not first and step < 0) else Size.of(0)
        if number < -(1 << 60):
            return None if first == (step > 0) or (not first and step < 0) else Size.of(0)
        return bound
    if bound == total and step > 0 and not first:
        return None
    return bound


@operator("Expand")
def _expand(call: Call) -> Tensor:
    wanted = broadcast(call.shape(0), call.sizes(1, "the shape"))
    return call.out(call.expanded(call.value(0), wanted))


@operator("Tile")
def _tile(call: Call) -> Tensor:
    x, counts = call.value(0), call.sizes(1, "the repeats")
    shape = Tensor.running(x).shape
    if len(counts) != len(shape):
        raise OnnxError(
            f"node '{call.name}': {len(shape)} dimensions are repeated, but there are {len(counts)} numbers"
        )
    if all(count.constant == 1 for count in counts):
        return call.out(x)
    spread = [size for pair in zip([Size.of(1)] * len(shape), shape, strict=True) for size in pair]
    wanted = [size for pair in zip(counts, shape, strict=True) for size in pair]
    wide = call.expanded(call.reshaped(x, spread), wanted)
    return call.out(call.reshaped(wide, [count * size for count, size in zip(counts, shape, strict=True)]))


# Tensors of a shape ---------------------------------------------------------------------------------


@operator("Shape", "Size")
def _never(call: Call) -> Tensor:
    raise Refused("a shape that isn't known")


@operator("ConstantOfShape")
def _constant_of_shape(call: Call) -> Tensor:
    number = np.asarray(call.attributes.get("value", np.zeros(1, np.float32))).reshape(-1)
    if number.size != 1:
        raise OnnxError(f"node '{call.name}': 'value' has one element, but here {number.size}")
    return call.out(call.filled(number[0], call.sizes(0, "the shape"), number.dtype))


@operator("Range")
def _range(call: Call) -> Tensor:
    m, dtype = call.m, call.dtype(0)
    if dtype in FLOATS:
        start_, limit_, by_ = (float(call.known(number, "a bound").reshape(-1)[0]) for number in range(3))
        if not by_ or not np.isfinite([start_, limit_, by_]).all():
            raise OnnxError(f"node '{call.name}': a range from {start_} to {limit_} in steps of {by_}")
        call.affordable(int(max((limit_ - start_) / by_, 0)))
        return Tensor.of(np.arange(start_, limit_, by_, dtype=dtype))
    (start,), (limit,), (step,) = (call.sizes(number, "a bound") for number in range(3))
    by = step.constant
    if by is None or by == 0:
        raise Refused(f"steps of {step}")
    length = (limit - start + (by - 1 if by > 0 else by + 1)) // by if by > 0 else -((limit - start) // -by)
    if not is_never_negative(length):
        raise Refused(f"a range of {length} elements, which may be negative")
    y = call.iota([length], 0)
    y = m.mul(y, np.int64(by)) if by != 1 else y
    if start != Size.of(0):
        y = m.add(y, call.importer.size(start))
    return call.out(call.narrowed(y, dtype))


@operator("EyeLike")
def _eye_like(call: Call) -> Tensor:
    number = call.integer("dtype", 0)
    dtype = NUMPY.get(number) if number else call.dtype(0)
    if dtype is None or not in_graphs(dtype):
        raise Refused(f"values of graphs can't have elements of type {name_of(number)}")
    shape = call.shape(0)
    if len(shape) != 2:
        raise OnnxError(f"node '{call.name}': a matrix has 2 dimensions, but here {len(shape)}")
    rows, columns = call.iota(shape, 0), call.iota(shape, 1)
    return call.out(call.m.cast(call.m.eq(rows + np.int64(call.integer("k", 0)), columns), dtype))


@operator("Trilu")
def _trilu(call: Call) -> Tensor:
    x, m = call.value(0), call.m
    shape = call.shape(0)
    rows, columns = call.iota(shape[-2:], 0), call.iota(shape[-2:], 1)
    if call.has(1):
        k = m.maximum(m.minimum(call.value(1), np.int64(1 << 40)), np.int64(-(1 << 40)))
        rows = m.add(rows, call.reshaped(k, []))
    kept = m.ge(columns, rows) if call.flag("upper", True) else m.le(columns, rows)
    return call.out(m.where(kept, x, m.constant(call.scalar(0, x))))


# Padding and blocks ---------------------------------------------------------------------------------


@operator("Pad")
def _pad(call: Call) -> Tensor:
    x, rank = call.value(0), call.rank(0)
    numbers = call.known_ints(1, "the pads") if call.version >= 11 else call.ints("pads", [])
    axes = call.known_ints(3, "the axes") if call.has(3) else list(range(rank))
    if len(numbers) != 2 * len(axes):
        raise OnnxError(f"node '{call.name}': {2 * len(axes)} pads are needed, but there are {len(numbers)}")
    pads = [(0, 0)] * rank
    for number, axis in enumerate(axes):
        pads[call.along(axis, rank)] = (numbers[number], numbers[number + len(axes)])
    mode = call.choice("mode", "constant", ("constant", "edge", "reflect", "wrap"))
    if mode == "constant":
        fill: object = call.number("value", 0.0) if call.version < 11 else 0
        if call.has(2):
            known = call.tensor(2).numbers
            fill = call.reshaped(call.value(2), []) if known is None else known.reshape(-1)[0]
        return call.out(call.padded(x, pads, fill))
    for axis, (before, after) in enumerate(pads):
        x = _repeated(call, x, axis, before, after, mode)
    return call.out(x)


def _repeated(call: Call, x: Value, axis: int, before: int, after: int, mode: str) -> Value:
    """A value with elements of its own before and after those of a dimension, whose size is known."""
    size = Tensor.running(x).shape[axis].constant
    if before < 0 or after < 0:
        x = call.m.slice(x, axis, max(-before, 0), after if after < 0 else None)
        size = Tensor.running(x).shape[axis].constant
        before, after = max(before, 0), max(after, 0)
    if before == after == 0:
        return x
    if size is None:
        raise Refused(f"padding by '{mode}' of a dimension whose size calls decide")
    call.affordable(size + before + after)
    places = np.pad(np.arange(size), (before, after), mode=mode)  # type: ignore[call-overload]
    return call.m.gather(x, places.astype(np.int64), axis)


@operator("DepthToSpace")
def _depth_to_space(call: Call) -> Tensor:
    n, c, h, w = call.shape(0)
    block = call.integer("blocksize", 0)
    if call.choice("mode", "DCR", ("DCR", "CRD")) == "DCR":
        wide = call.reshaped(call.value(0), [n, block, block, c // (block * block), h, w])
        wide = call.m.transpose(wide, [0, 3, 4, 1, 5, 2])
    else:
        wide = call.reshaped(call.value(0), [n, c // (block * block), block, block, h, w])
        wide = call.m.transpose(wide, [0, 1, 4, 2, 5, 3])
    return call.out(call.reshaped(wide, [n, c // (block * block), h * block, w * block]))


@operator("SpaceToDepth")
def _space_to_depth(call: Call) -> Tensor:
    n, c, h, w = call.shape(0)
    block = call.integer("blocksize", 0)
    wide = call.reshaped(call.value(0), [n, c, h // block, block, w // block, block])
    order = [0, 1, 3, 5, 2, 4] if call.text("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    wide = call.m.transpose(wide, order)
    return call.out(call.reshaped(wide, [n, c * block * block, h // block, w // block]))


@operator("CenterCropPad")
def _center_crop_pad(call: Call) -> Tensor:
    rank = call.rank(0)
    axes = [call.along(axis, rank) for axis in call.ints("axes", range(rank))]
    wanted = call.sizes(1, "the shape")
    pads = [(0, 0)] * rank
    for axis, size in zip(axes, wanted, strict=True):
        difference = (size - call.shape(0)[axis]).constant
        if difference is None:
            raise Refused(f"a dimension of {call.shape(0)[axis]} made one of {size}")
        before = difference // 2 if difference > 0 else -(-difference // 2)
        pads[axis] = (before, difference - before)
    return call.out(call.padded(call.value(0), pads, 0))


@operator("ReverseSequence")
def _reverse_sequence(call: Call) -> Tensor:
    x, lengths, m = call.value(0), call.value(1), call.m
    time, batch, shape = call.integer("time_axis", 0), call.integer("batch_axis", 1), call.shape(0)
    if {time, batch} != {0, 1}:
        raise OnnxError(f"node '{call.name}': time and batch are dimensions 0 and 1, but are {time} and {batch}")
    pair = [shape[batch], shape[time]]
    places, ends = call.iota(pair, 1), call.reshaped(call.narrowed(lengths, np.dtype(np.int64)), [shape[batch], 1])
    places = m.where(m.lt(places, ends), ends - np.int64(1) - places, places)
    order = [1, 0, *range(2, len(shape))]
    rows = m.transpose(x, order) if batch == 1 else x
    found = m.gather(rows, places, 1, batch_dims=1)
    return call.out(m.transpose(found, order) if batch == 1 else found)
