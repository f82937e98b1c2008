# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that move elements and change none."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.errors import InputError
from rlx_mlir.mir.cost import Cost, Sizes, cost, element_bytes
from rlx_mlir.mir.decode import element_value
from rlx_mlir.mir.dims import Size, ceildiv, followed, is_never_negative, maximum, minimum, product
from rlx_mlir.mir.linalg import (
    SizeLike,
    as_index,
    broadcast_map,
    cast_shape,
    computed,
    divided,
    element_type,
    empty,
    extract_slice,
    generic,
    plus,
    reshaped,
    size_of,
    sizes_of,
    times,
    write_slice,
)
from rlx_mlir.mir.numerics import decode_indices
from rlx_mlir.mir.packed import PackedWeight, packing
from rlx_mlir.mir.registry import TO_LINALG, Evaluated, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, chosen_entry, extract, index
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.ReshapeOp)
def reshape(
    x: np.ndarray,
    *like: np.ndarray,
    new_shape: Sequence[int],
    sizes: Sequence[str] = (),
    like_dims: Sequence[int] = (),
) -> np.ndarray:
    """The same elements in another shape; -1 is what the others leave, -2 the size of `x` there, -3 one of `sizes`."""
    given = iter([like_number(size, like, like_dims) for size in sizes])
    entries = [next(given) if size == -3 else size for size in new_shape]
    shape = [x.shape[i] if size == -2 else size for i, size in enumerate(entries)]
    if -1 in shape:
        # Dimensions that stay cancel, so that an empty one doesn't hide what the others leave.
        total = int(np.prod([size for i, size in enumerate(x.shape) if i >= len(entries) or entries[i] != -2]))
        rest = int(np.prod([size for size in entries if size >= 0]))
        shape[shape.index(-1)] = total // rest if rest else 0
    if int(np.prod(shape)) != x.size:
        raise InputError(f"mir.reshape: {list(x.shape)} has {x.size} elements, but {list(new_shape)} asks for {shape}")
    return x.reshape(shape)


@reference(mir.TransposeOp)
def transpose(x: np.ndarray, *, permutation: Sequence[int]) -> np.ndarray:
    """Dimension i of the result is dimension `permutation[i]` of `x`."""
    return np.transpose(x, permutation)


@reference(mir.BarrierOp)
def barrier(x: np.ndarray) -> np.ndarray:
    """x"""
    return x


@reference(mir.NarrowOp)
def narrow_range(x: np.ndarray, *, axis: int, start: int, length: int) -> np.ndarray:
    """x[.., start : start + length, ..] along `axis`."""
    if start + length > x.shape[axis]:
        raise InputError(
            f"mir.narrow: dimension {axis} has size {x.shape[axis]}, but the range ends at {start + length}"
        )
    return x[(slice(None),) * axis + (slice(start, start + length),)]


def like_number(size: int | str, like: Sequence[np.ndarray], like_dims: Sequence[int]) -> int:
    """What a size is that follows from those of other arrays."""
    known = [Size.of(array.shape[dim]) for array, dim in zip(like, like_dims, strict=True)]
    return followed(size, known).evaluate({})


@reference(mir.SliceOp)
def slice_range(
    x: np.ndarray,
    *like: np.ndarray,
    axis: int,
    start: int | str | None = None,
    stop: int | str | None = None,
    step: int = 1,
    length: int | None = None,
    like_dims: Sequence[int] = (),
) -> np.ndarray:
    """x[.., start : stop : step, ..] along `axis`; InputError where that isn't `length` elements."""
    begin, end = (None if bound is None else like_number(bound, like, like_dims) for bound in (start, stop))
    result = x[(slice(None),) * axis + (slice(begin, end, step),)]
    if length is not None and result.shape[axis] != length:
        raise InputError(
            f"mir.slice: dimension {axis} has size {x.shape[axis]}, of which the slice takes {result.shape[axis]} "
            f"elements, but 'length' is {length}"
        )
    return result


def _first(name: str, x: np.ndarray, start: np.ndarray, axis: int, count: int) -> int:
    """Where `count` elements begin that are all there; InputError where there are fewer."""
    last = x.shape[axis] - count
    if last < 0 or count < 0:
        raise InputError(f"{name}: dimension {axis} has size {x.shape[axis]}, but {count} elements are asked for")
    return max(0, min(int(start), last))


@reference(mir.DynamicSliceOp)
def dynamic_slice(
    x: np.ndarray,
    start: np.ndarray,
    *like: np.ndarray,
    axis: int,
    length: int | str,
    like_dims: Sequence[int] = (),
) -> np.ndarray:
    """x[.., s : s + length, ..] along `axis`, with s the number in `start`, moved to where all elements are there."""
    count = like_number(length, like, like_dims)
    first = _first("mir.dynamic_slice", x, start, axis, count)
    return x[(slice(None),) * axis + (slice(first, first + count),)]


@reference(mir.DynamicUpdateSliceOp)
def dynamic_update_slice(x: np.ndarray, update: np.ndarray, start: np.ndarray, *, axis: int) -> np.ndarray:
    """`x` with x[.., s : s + m, ..] along `axis` replaced by `update`, with s as in `dynamic_slice`."""
    others = [[size for dim, size in enumerate(array.shape) if dim != axis] for array in (x, update)]
    if others[0] != others[1]:
        raise InputError(
            f"mir.dynamic_update_slice: 'x' is {list(x.shape)} and 'update' {list(update.shape)}, "
            f"which differ in another dimension than {axis}"
        )
    result, count = x.copy(), update.shape[axis]
    first = _first("mir.dynamic_update_slice", x, start, axis, count)
    result[(slice(None),) * axis + (slice(first, first + count),)] = update
    return result


@reference(mir.DimOp)
def dim(x: np.ndarray, *, axis: int, result_dtype: np.dtype) -> np.ndarray:
    """x.shape[axis] as a number."""
    return np.array(x.shape[axis]).astype(result_dtype)


@reference(mir.ConcatOp)
def concat(*inputs: Evaluated, axis: int) -> np.ndarray | PackedWeight:
    """The inputs one after the other along `axis`; packed weights are joined in rows."""
    if isinstance(inputs[0], PackedWeight):
        rows = np.concatenate([weight.bytes for weight in inputs], axis=axis)
        return dataclasses.replace(inputs[0], n=len(rows), bytes=rows)
    return np.concatenate(inputs, axis=axis)


@reference(mir.ExpandOp)
def expand(
    x: np.ndarray,
    like: np.ndarray | None = None,
    *,
    like_dims: Sequence[int] | None = None,
    result_shape: Sequence[int],
) -> np.ndarray:
    """numpy's broadcast_to; -1 in the shape is the size of `like` at its entry of `like_dims`, or that of `x`."""
    missing = len(result_shape) - x.ndim
    shape = list(result_shape)
    for at, size in enumerate(shape):
        if size < 0 and like is not None and like_dims is not None and like_dims[at] >= 0:
            shape[at] = like.shape[like_dims[at]]
        elif size < 0:
            shape[at] = x.shape[at - missing]
    return np.broadcast_to(x, shape)


@reference(mir.GatherOp)
def gather(table: np.ndarray | PackedWeight, indices: np.ndarray, *, axis: int, batch_dims: int = 0) -> np.ndarray:
    """result[b.., o.., i.., t..] = table[b.., o.., indices[b.., i..], t..], with b the first `batch_dims` dimensions.

    Indices outside are clamped, packed rows are decoded.
    """
    entries = table.n if isinstance(table, PackedWeight) else table.shape[axis]
    if not entries and indices.size:
        raise InputError(f"mir.gather: 'table' must have an entry along axis {axis} for {list(indices.shape)} indices")
    if isinstance(table, PackedWeight):
        return table.take(decode_indices(indices, entries))
    batches = table.shape[:batch_dims]
    if indices.shape[:batch_dims] != batches:
        raise InputError(
            f"mir.gather: the first {batch_dims} dimensions of 'table' and 'indices' must be alike, "
            f"but they are {list(batches)} and {list(indices.shape[:batch_dims])}"
        )
    chosen = decode_indices(indices, entries)
    result = np.empty((*table.shape[:axis], *indices.shape[batch_dims:], *table.shape[axis + 1 :]), table.dtype)
    for batch in np.ndindex(*batches):
        result[batch] = np.take(table[batch], chosen[batch], axis=axis - batch_dims)
    return result


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.BarrierOp)
def barrier_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Nothing: it goes before kernels are made."""
    return Cost(reads={op.x: 0}, writes={0: 0})


@cost(mir.NarrowOp)
def narrow_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Only the range is read."""
    return Cost(reads={op.x: sizes.bytes(op.result)})


def _unread(op: ir.AnyOp) -> dict[ir.Value, int]:
    """Operands that only give sizes."""
    return dict.fromkeys(op.like, 0)


@cost(mir.ReshapeOp)
def reshape_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """The elements are read and written; of `like` none is read."""
    return Cost(reads=_unread(op) | {op.x: sizes.bytes(op.x)})


@cost(mir.SliceOp, mir.DynamicSliceOp)
def slice_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Only what is taken is read."""
    return Cost(reads=_unread(op) | {op.x: sizes.bytes(op.result)})


@cost(mir.DynamicUpdateSliceOp)
def update_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """What is new is read and written; other elements stay where they are."""
    return Cost(reads={op.x: 0}, writes={0: sizes.bytes(op.update)})


@cost(mir.DimOp)
def dim_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """No element is read."""
    return Cost(reads={op.x: 0})


@cost(mir.ExpandOp)
def expand_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Of `like` no element is read."""
    return Cost(reads={} if op.like is None else {op.like: 0})


@cost(mir.GatherOp)
def gather_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Only the entries that indices name are read; those of a packed table are decoded."""
    encoding = packing(op.table.type)
    if encoding is None:
        return Cost(reads={op.table: sizes.count(op.result) * element_bytes(op.table)})
    entries = sizes.count(op.indices)
    return Cost(2 * sizes.count(op.result), reads={op.table: entries * encoding.format.row_bytes(encoding.k)})


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


def like_sizes(op: ir.AnyOp, like: Sequence[tuple[Size, ...]]) -> list[Size]:
    """The sizes that d0, d1, ... stand for in an operation, from the dimensions of its `like`."""
    return [sizes[dim] for sizes, dim in zip(like, _like_dims(op), strict=True)]


def _like_dims(op: ir.AnyOp) -> Sequence[int]:
    """The dimensions of an operation's `like` that it takes sizes from."""
    dims: Sequence[int] = () if op.like_dims is None else python_value(op.like_dims)
    return dims


def _texts(sizes: ir.Attribute | None) -> list[str]:
    """The `sizes` of a reshape."""
    return [] if sizes is None else list(python_value(sizes))


@dim_rule(mir.ReshapeOp)
def reshape_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The entries of `new_shape`; -1 is what the others leave."""
    x, *like = operands
    entries = python_value(op.new_shape)
    given = iter([followed(size, like_sizes(op, like)) for size in _texts(op.sizes)])
    sizes = [x[i] if size == -2 else next(given) if size == -3 else Size.of(size) for i, size in enumerate(entries)]
    if -1 not in entries:
        return tuple(sizes)
    position, declared = entries.index(-1), op.result.type
    if not declared.is_dynamic_dim(position):
        sizes[position] = Size.of(declared.get_dim_size(position))
        return tuple(sizes)
    # Dimensions that stay cancel: what is left is divided by numbers.
    total = product(size for i, size in enumerate(x) if i >= len(entries) or entries[i] != -2)
    rest = product(size for size, entry in zip(sizes, entries, strict=True) if entry not in (-1, -2))
    # What doesn't divide is refused at run time: it is a condition that nothing is left over.
    sizes[position] = Size.of(0) if rest.constant == 0 else total // rest
    return tuple(sizes)


@dim_rule(mir.TransposeOp)
def transpose_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`, permuted."""
    return tuple(operands[0][i] for i in python_value(op.permutation))


@dim_rule(mir.BarrierOp)
def barrier_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`."""
    return operands[0]


@dim_rule(mir.NarrowOp)
def narrow_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`, with `length` along the axis."""
    dims = list(operands[0])
    dims[python_value(op.axis)] = Size.of(python_value(op.length))
    return tuple(dims)


def slice_sizes(size: Size, start: Size | None, stop: Size | None, step: int) -> tuple[Size, Size]:
    """The first position and the number of elements of Python's slice of a dimension."""
    low, high = (Size.of(0), size) if step > 0 else (Size.of(-1), size - 1)
    zero = Size.of(0)

    def bound(given: Size | None, otherwise: Size) -> Size:
        if given is None:
            return otherwise
        if is_never_negative(given):
            return minimum(given, high)
        from_end = maximum(size + given, low)
        if is_never_negative(-given - 1):
            return from_end
        # Positive or negative, as sizes turn out: one of the two, chosen by 0 or 1.
        is_negative = minimum(maximum(-given, zero), Size.of(1))
        return minimum(maximum(given, zero), high) + is_negative * (from_end - minimum(zero, high))

    begin, end = bound(start, low if step > 0 else high), bound(stop, high if step > 0 else low)
    distance = end - begin if step > 0 else begin - end
    return begin, ceildiv(maximum(distance, zero), Size.of(abs(step)))


def sliced(op: ir.AnyOp, size: Size, known: Sequence[Size]) -> tuple[Size, Size]:
    """`slice_sizes` of a `mir.slice`, whose dimension has the size, and whose `like` have the known ones."""
    start, stop = (None if bound is None else followed(python_value(bound), known) for bound in (op.start, op.stop))
    return slice_sizes(size, start, stop, python_value(op.step))


@dim_rule(mir.SliceOp)
def slice_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`, with the number of elements along the axis."""
    x, *like = operands
    dims, axis = list(x), python_value(op.axis)
    if op.length is None:
        dims[axis] = sliced(op, dims[axis], like_sizes(op, like))[1]
    else:
        dims[axis] = Size.of(python_value(op.length))
    return tuple(dims)


@dim_rule(mir.DynamicSliceOp)
def dynamic_slice_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`, with `length` along the axis."""
    x, _, *like = operands
    dims = list(x)
    dims[python_value(op.axis)] = followed(python_value(op.length), like_sizes(op, like))
    return tuple(dims)


@dim_rule(mir.DynamicUpdateSliceOp)
def update_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`."""
    return operands[0]


@dim_rule(mir.DimOp)
def dim_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """None."""
    return ()


@dim_rule(mir.ConcatOp)
def concat_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The sum along the axis; elsewhere numbers beat symbols."""
    axis = python_value(op.axis)
    dims = []
    for position, sizes in enumerate(zip(*operands, strict=True)):
        if position == axis:
            dims.append(sum(sizes, Size.of(0)))
        else:
            dims.append(next((size for size in sizes if size.constant is not None), sizes[0]))
    return tuple(dims)


def _expand_source(op: ir.AnyOp, at: int) -> tuple[int, int]:
    """The operand that gives the size of a dynamic dimension of an expand's result, and its dimension there."""
    dims = None if op.like_dims is None else python_value(op.like_dims)
    if dims is not None and dims[at] >= 0:
        return 1, dims[at]
    return 0, at - (op.result.type.rank - op.x.type.rank)


@dim_rule(mir.ExpandOp)
def expand_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The static sizes of the result; where it is dynamic, those of `like` or of `x`."""
    declared = op.result.type
    dims = []
    for at in range(declared.rank):
        if not declared.is_dynamic_dim(at):
            dims.append(Size.of(declared.get_dim_size(at)))
            continue
        operand, position = _expand_source(op, at)
        dims.append(operands[operand][position])
    return tuple(dims)


@dim_rule(mir.GatherOp)
def gather_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Dimension `axis` of the table replaced by those of the indices; a packed table has k columns."""
    table, indices = operands
    encoding = packing(op.table.type)
    if encoding is not None:
        return (*indices, Size.of(encoding.k))
    axis, batches = python_value(op.axis), python_value(op.batch_dims)
    shared = [a if a.constant is not None else b for a, b in zip(table[:batches], indices[:batches], strict=True)]
    return (*shared, *table[batches:axis], *indices[batches:], *table[axis + 1 :])


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


@TO_LINALG.pattern(mir.ReshapeOp)
def lower_reshape(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """reshape(x) -> collapse_shape of the dimensions that change, then expand_shape"""
    own = sizes_of(op.x)
    type = op.result.type
    entries = python_value(op.new_shape)
    given = iter(_texts(op.sizes))
    sizes: list[SizeLike] = []
    for i, entry in enumerate(entries):
        text = next(given) if entry == -3 else ""
        if not type.is_dynamic_dim(i):
            sizes.append(int(type.get_dim_size(i)))
        else:
            sizes.append(own[i] if entry == -2 else -1 if entry == -1 else like_size(op, text))
    if -1 in sizes:
        position = sizes.index(-1)
        rest = times(*(size for i, size in enumerate(sizes) if i != position))
        sizes[position] = divided(times(*own), rest)
    kept = next((i for i, entry in enumerate(entries) if entry != -2), len(entries))
    rewriter.replace(op, reshaped(op.x, sizes, same=kept))


@TO_LINALG.pattern(mir.TransposeOp)
def lower_transpose(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """transpose(x) -> generic: result[permuted] = x[..]"""
    permutation = python_value(op.permutation)
    own = sizes_of(op.x)
    loops = range(len(own))
    destination = empty([own[i] for i in permutation], op.x.type.element_type)
    source = [permutation.index(dim) for dim in loops]
    rewriter.replace(op, generic(len(own), [(op.x, source)], [(destination, loops)], lambda x, _: x))


@TO_LINALG.pattern(mir.BarrierOp)
def lower_barrier(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """barrier(x) -> x"""
    rewriter.replace(op, op.x)


@TO_LINALG.pattern(mir.NarrowOp)
def lower_narrow(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """narrow(x) -> tensor.extract_slice"""
    axis = python_value(op.axis)
    sizes = sizes_of(op.x)
    offsets: list[SizeLike] = [0] * len(sizes)
    length = python_value(op.length)
    # A slice of nothing may not start at the end.
    sizes[axis], offsets[axis] = length, python_value(op.start) if length else 0
    rewriter.replace(op, extract_slice(op.x, offsets, sizes))


def _like_values(op: ir.AnyOp) -> list[SizeLike]:
    """The sizes that d0, d1, ... stand for in an operation."""
    return [size_of(value, dim) for value, dim in zip(op.like, _like_dims(op), strict=True)]


def like_size(op: ir.AnyOp, size: int | str) -> SizeLike:
    """A size that follows from those of an operation's `like`."""
    values = _like_values(op)
    names = [f"d{number}" for number in range(len(values))]
    return computed(followed(size, [*map(Size.of, names)]), dict(zip(names, values, strict=True)))


@TO_LINALG.pattern(mir.SliceOp)
def lower_slice(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """slice(x) -> tensor.extract_slice; for a negative step generic over the result: tensor.extract from the end on"""
    axis, step = python_value(op.axis), python_value(op.step)
    sizes = sizes_of(op.x)
    values = {"n": sizes[axis]} | {f"d{number}": value for number, value in enumerate(_like_values(op))}
    names = [Size.of(name if not isinstance(value, int) else value) for name, value in values.items()]
    first, count = sliced(op, names[0], names[1:])
    begin = computed(first, values)
    # The type leaves a size open that is the same for all of the operand's, as of [5:2].
    length = computed(count, values) if op.length is None else python_value(op.length)
    sizes[axis] = as_index(length) if op.result.type.is_dynamic_dim(axis) else length
    if step > 0:
        offsets: list[SizeLike] = [0] * len(sizes)
        strides = [1] * len(sizes)
        # A slice of nothing may not start at the end.
        offsets[axis], strides[axis] = 0 if sizes[axis] == 0 else begin, step
        rewriter.replace(op, extract_slice(op.x, offsets, sizes, strides=strides))
        return
    rank = len(sizes)

    def pick(_: Scalar) -> Scalar:
        at = [index(dim) for dim in range(rank)]
        at[axis] = Scalar(as_index(begin)) + at[axis] * step
        return extract(op.x, at)

    rewriter.replace(op, generic(rank, [], [(empty(sizes, element_type(op.x)), range(rank))], pick))


def _from(op: ir.AnyOp, size: SizeLike, count: SizeLike) -> ir.Value:
    """The position that `start` holds, moved to where so many elements of a dimension of the size are there."""
    start = extract(op.start, [])
    position = start if start.word == "i64" else start.to("i64")
    last = Scalar(as_index(size)).to("i64") - Scalar(as_index(count)).to("i64")
    return position.min(last).max(0).to("index").value


@TO_LINALG.pattern(mir.DynamicSliceOp)
def lower_dynamic_slice(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """dynamic_slice(x, start) -> tensor.extract_slice from the clamped position on"""
    axis = python_value(op.axis)
    sizes = sizes_of(op.x)
    offsets: list[SizeLike] = [0] * len(sizes)
    length = like_size(op, python_value(op.length))
    offsets[axis] = _from(op, sizes[axis], length)
    sizes[axis] = as_index(length) if op.result.type.is_dynamic_dim(axis) else length
    rewriter.replace(op, extract_slice(op.x, offsets, sizes))


@TO_LINALG.pattern(mir.DynamicUpdateSliceOp)
def lower_dynamic_update_slice(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """dynamic_update_slice(x, u, start) -> u written into the slice of x from the clamped position on"""
    axis = python_value(op.axis)
    sizes = sizes_of(op.x)
    offsets: list[SizeLike] = [0] * len(sizes)
    count = size_of(op.update, axis)
    offsets[axis] = _from(op, sizes[axis], count)
    sizes[axis] = count
    rewriter.replace(op, write_slice(cast_shape(op.update, sizes), op.x, offsets, sizes))


@TO_LINALG.pattern(mir.DimOp)
def lower_dim(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """dim(x) -> tensor.dim, converted by a generic without loops"""
    element = op.result.type.element_type
    size = as_index(size_of(op.x, python_value(op.axis)))

    def number(_: Scalar) -> Scalar:
        whole = Scalar(size).to("i64")
        return whole.low_bits(element) if isinstance(element, ir.IntegerType) else whole.to(element)

    rewriter.replace(op, generic(0, [], [(empty([], element), [])], number))


@TO_LINALG.pattern(mir.ConcatOp)
def lower_concat(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """concat(x, y, ..) -> each written into a slice of one destination"""
    axis = python_value(op.axis)
    inputs = list(op.inputs)
    type = op.result.type
    lengths = [size_of(x, axis) for x in inputs]
    sizes = [
        plus(*lengths)
        if dim == axis
        else next((size for x in inputs if isinstance(size := size_of(x, dim), int)), size_of(inputs[0], dim))
        for dim in range(type.rank)
    ]
    result = empty(sizes, type.element_type)
    start: SizeLike = 0
    for x, length in zip(inputs, lengths, strict=True):
        offsets: list[SizeLike] = [0] * type.rank
        offsets[axis] = start
        part = [length if dim == axis else size for dim, size in enumerate(sizes)]
        if length != 0:  # a slice of nothing may not start at the end
            result = write_slice(cast_shape(x, part), result, offsets, part)
        start = plus(start, length)
    rewriter.replace(op, result)


@TO_LINALG.pattern(mir.ExpandOp)
def lower_expand(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """expand(x) -> generic: result[..] = x[0 where its size is 1]"""
    type = op.result.type
    sizes: list[SizeLike] = []
    for dim in range(type.rank):
        if not type.is_dynamic_dim(dim):
            sizes.append(int(type.get_dim_size(dim)))
            continue
        source, position = _expand_source(op, dim)
        sizes.append(size_of(op.operation.operands[source], position))
    loops = range(type.rank)
    operand = (op.x, broadcast_map(op.x, loops, sizes))
    rewriter.replace(op, generic(type.rank, [operand], [(empty(sizes, type.element_type), loops)], lambda x, _: x))


@TO_LINALG.pattern(mir.GatherOp)
def lower_gather(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """gather(table, i) -> generic over the result: tensor.extract at the clamped index, or decoding of packed rows"""
    type = op.result.type
    encoding = packing(op.table.type)
    axis, batches = python_value(op.axis), python_value(op.batch_dims)
    count = op.indices.type.rank - batches
    table = [] if encoding is not None else sizes_of(op.table)
    own = sizes_of(op.indices)
    inner = [encoding.k] if encoding is not None else table[axis + 1 :]
    shared = [a if isinstance(a, int) else b for a, b in zip(table[:batches], own[:batches], strict=True)]
    sizes = [*shared, *table[batches:axis], *own[batches:], *inner]
    entries = as_index(size_of(op.table, axis))

    def pick(position: Scalar, _: Scalar) -> Scalar:
        chosen = chosen_entry(position, entries)
        at = [index(dim) for dim in range(type.rank)]
        if encoding is not None:
            return element_value(op.table, encoding, chosen, at[-1])
        return extract(op.table, [*at[:axis], chosen, *at[axis + count :]])

    operand = (op.indices, [*range(batches), *range(axis, axis + count)])
    destination = (empty(sizes, type.element_type), range(type.rank))
    rewriter.replace(op, generic(type.rank, [operand], [destination], pick))
