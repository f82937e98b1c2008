# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders that the patterns from MIR to linalg share: loops over tensors, sizes, slices, shapes.

A size is a Python int where it is static, and an index value where it is dynamic. Loops are numbered; a map lists, for
each dimension of a tensor, the loop that runs along it, None where the tensor is read at position 0 (broadcast), or an
affine expression of loops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from mlir.dialects import arith, bufferization, scf, tensor
from mlir.dialects import linalg as dialect

from rlx_mlir import ir
from rlx_mlir.mir.dims import Factor, Positive, Size
from rlx_mlir.mir.scalars import Scalar, accumulator, constant, element, extract, index, loaded, stored

SizeLike: TypeAlias = int | ir.Value
Map: TypeAlias = Sequence[int | ir.AffineExpr | None]

# ----------------------------------------------------------------------------------------------------------------------
# Sizes
# ----------------------------------------------------------------------------------------------------------------------


def index_constant(number: int) -> ir.Value:
    """A number as index value."""
    return constant(element("index"), number).value


def as_index(size: SizeLike) -> ir.Value:
    """A size as index value."""
    return index_constant(size) if isinstance(size, int) else size


def size_of(value: ir.Value, dim: int) -> SizeLike:
    """The size of one dimension; `dim` may count from the end."""
    type = ir.RankedTensorType(value.type)
    position = dim % type.rank
    if not type.is_dynamic_dim(position):
        return int(type.get_dim_size(position))
    return tensor.DimOp(value, index_constant(position)).result


def sizes_of(value: ir.Value) -> list[SizeLike]:
    """The sizes of all dimensions."""
    return [size_of(value, dim) for dim in range(ir.RankedTensorType(value.type).rank)]


def result_size(result: ir.Value, dim: int, source: ir.Value, at: int) -> SizeLike:
    """The size of a dimension of a result, which is that of a source's: the static one of the two."""
    type = ir.RankedTensorType(result.type)
    return size_of(source, at) if type.is_dynamic_dim(dim) else int(type.get_dim_size(dim))


def times(*sizes: SizeLike) -> SizeLike:
    """The product of sizes."""
    static = 1
    dynamic: ir.Value | None = None
    for size in sizes:
        if isinstance(size, int):
            static *= size
        else:
            dynamic = size if dynamic is None else arith.MulIOp(dynamic, size).result
    if dynamic is None:
        return static
    return dynamic if static == 1 else arith.MulIOp(dynamic, index_constant(static)).result


def plus(*sizes: SizeLike) -> SizeLike:
    """The sum of sizes."""
    total: SizeLike = 0
    for size in sizes:
        if isinstance(total, int) and isinstance(size, int):
            total += size
        elif isinstance(total, int) and total == 0:
            total = size
        else:
            total = arith.AddIOp(as_index(total), as_index(size)).result
    return total


def divided(size: SizeLike, divisor: SizeLike) -> SizeLike:
    """The quotient of sizes, without remainder."""
    if isinstance(size, int) and isinstance(divisor, int):
        return size // divisor
    return arith.DivUIOp(as_index(size), as_index(divisor)).result


def computed(size: Size, known: Mapping[str, SizeLike]) -> SizeLike:
    """A size, with values for its symbols."""

    def factor(own: Factor) -> SizeLike:
        if isinstance(own, str):
            return known[own]
        value = computed(own.size, known)
        if isinstance(value, int):
            return own.apply(value)
        op = arith.MaxSIOp if isinstance(own, Positive) else arith.FloorDivSIOp
        return op(value, index_constant(own.number)).result

    return plus(*(times(coefficient, *map(factor, factors)) for factors, coefficient in size.terms))


def tensor_type(sizes: Sequence[SizeLike], type: ir.Type) -> ir.RankedTensorType:
    """The type of a tensor of these sizes."""
    unknown = ir.ShapedType.get_dynamic_size()
    return ir.RankedTensorType.get([size if isinstance(size, int) else unknown for size in sizes], type)


def element_type(value: ir.Value) -> ir.Type:
    """The element type of a tensor."""
    return ir.RankedTensorType(value.type).element_type


def aligned_sizes(result: ir.Type, operands: Sequence[ir.Value]) -> list[SizeLike]:
    """The sizes of a result of numpy's broadcasting; a dynamic one is that of an operand which isn't 1 there."""
    type = ir.RankedTensorType(result)
    sizes: list[SizeLike] = []
    for dim in range(type.rank):
        if not type.is_dynamic_dim(dim):
            sizes.append(int(type.get_dim_size(dim)))
            continue
        from_end = dim - type.rank
        ranks = [(operand, ir.RankedTensorType(operand.type)) for operand in operands]
        source = next(o for o, t in ranks if t.rank >= -from_end and t.is_dynamic_dim(t.rank + from_end))
        sizes.append(size_of(source, from_end))
    return sizes


def broadcast_map(value: ir.Value, loops: Sequence[int], sizes: Sequence[SizeLike]) -> list[int | None]:
    """The map of an operand that broadcasts to loops of these sizes, aligned at the last."""
    type = ir.RankedTensorType(value.type)
    first = len(loops) - type.rank
    result: list[int | None] = []
    for dim in range(type.rank):
        stays = not type.is_dynamic_dim(dim) and type.get_dim_size(dim) == 1 and sizes[first + dim] != 1
        result.append(None if stays else loops[first + dim])
    return result


# ----------------------------------------------------------------------------------------------------------------------
# Tensors
# ----------------------------------------------------------------------------------------------------------------------


def empty(sizes: Sequence[SizeLike], type: ir.Type) -> ir.Value:
    """A tensor without contents, as destination."""
    return tensor.EmptyOp(list(sizes), type).result


def filled(sizes: Sequence[SizeLike], type: ir.Type, number: float) -> ir.Value:
    """A tensor of one number."""
    return generic(len(sizes), [], [(empty(sizes, type), range(len(sizes)))], lambda _: constant(type, number))


def generic(
    loops: int,
    inputs: Sequence[tuple[ir.Value, Map]],
    outputs: Sequence[tuple[ir.Value, Map]],
    body: Callable[..., Scalar | tuple[Scalar, ...]],
    *,
    reduction: Collection[int] = (),
) -> Any:
    """A `linalg.generic`.

    Args:
        loops: number of loops; their order is that of the nest.
        inputs: tensors read, with their maps.
        outputs: destinations, with their maps.
        body: a function of one scalar for each input and output, giving one scalar for each output (a tuple where
            there are several). Where there is a reduction, the scalars are fast (see `Scalar`).
        reduction: the loops along which outputs accumulate.

    Returns the result, or a list of them where there are several outputs.
    """
    operands = [*inputs, *outputs]
    maps = [ir.AffineMap.get(loops, 0, [_position(entry) for entry in map]) for _, map in operands]
    iterators = ["reduction" if loop in reduction else "parallel" for loop in range(loops)]
    op = dialect.GenericOp(
        [value.type for value, _ in outputs],
        [value for value, _ in inputs],
        [value for value, _ in outputs],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(map) for map in maps]),
        ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{iterator}>") for iterator in iterators]),
    )
    types = [element_type(value) for value, _ in operands]
    block = op.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
    with ir.InsertionPoint(block):
        scalars = [loaded(argument, fast=bool(reduction)) for argument in block.arguments]
        result = body(*scalars)
        results = result if isinstance(result, tuple) else (result,)
        dialect.YieldOp([stored(scalar) for scalar in results])
    return op.results[0] if len(outputs) == 1 else list(op.results)


def _position(entry: int | ir.AffineExpr | None) -> ir.AffineExpr:
    if entry is None:
        return ir.AffineConstantExpr.get(0)
    return ir.AffineDimExpr.get(entry) if isinstance(entry, int) else entry


def elementwise(result: ir.Type, inputs: Sequence[ir.Value], body: Callable[..., Scalar]) -> ir.Value:
    """A tensor of the result type whose elements are a function of those of the inputs, after broadcasting.

    Floats come to the body in their accumulation type; what it returns is rounded to the element type.
    """
    sizes = aligned_sizes(result, inputs)
    loops = range(len(sizes))
    target = ir.RankedTensorType(result).element_type

    def rounded(*scalars: Scalar) -> Scalar:
        return body(*(scalar.widen() for scalar in scalars[:-1])).to(target)

    operands = [(value, broadcast_map(value, loops, sizes)) for value in inputs]
    return generic(len(sizes), operands, [(empty(sizes, target), loops)], rounded)


def reduced(
    loops: int,
    inputs: Sequence[tuple[ir.Value, Map]],
    sizes: Sequence[SizeLike],
    map: Map,
    start: float,
    body: Callable[..., Scalar],
    *,
    type: ir.Type | None = None,
) -> ir.Value:
    """A reduction of the inputs to a tensor of these sizes, accumulated from `start` in `type`.

    `body` takes the inputs' scalars, widened, and the accumulated one. The loops that `map` leaves out are reduced.
    """
    target = accumulator(element_type(inputs[0][0])) if type is None else type
    return generic(
        loops,
        inputs,
        [(filled(sizes, target, start), map)],
        lambda *scalars: body(*(scalar.widen() for scalar in scalars[:-1]), scalars[-1]),
        reduction=[loop for loop in range(loops) if loop not in map],
    )


#: Terms that are added one after the other where nothing carries along what additions lose.
FEW_TERMS = 16


def added(total: Scalar, lost: Scalar, x: Scalar) -> tuple[Scalar, Scalar]:
    """(total + x, lost + what that addition loses), in this order and no other."""
    total, lost, x = (Scalar(value.value) for value in (total, lost, x))
    after = total + x
    moved = after - total
    return after, lost + ((total - (after - moved)) + (x - moved))


def completed(total: Scalar, lost: Scalar) -> Scalar:
    """A total with what its additions have lost; that of infinities is NaN: then the total is what it is."""
    return lost.compare("eq", lost).select(total + lost, total)


def summed(
    loops: int,
    inputs: Sequence[tuple[ir.Value, Map]],
    sizes: Sequence[SizeLike],
    map: Map,
    term: Callable[..., Scalar] = lambda x: x,
) -> ir.Value:
    """The sum of terms of the inputs' scalars, along the one loop that `map` leaves out: its error doesn't grow with
    the length.

    Along the innermost loop such sums are reduced in parts (on CPUs by `cpu-order-sums`). Elsewhere neighbouring sums
    grow side by side, and with each of them, in memory of its own, what its additions have lost.
    """
    (along,) = (loop for loop in range(loops) if loop not in map)
    length = next(size_of(x, list(own).index(along)) for x, own in inputs if along in own)
    target = accumulator(element_type(inputs[0][0]))
    if along == loops - 1 or not str(target).startswith("f") or (isinstance(length, int) and length <= FEW_TERMS):
        return reduced(loops, inputs, sizes, map, 0, lambda *scalars: scalars[-1] + term(*scalars[:-1]))

    def body(*scalars: Scalar) -> tuple[Scalar, Scalar]:
        total, lost = scalars[-2:]
        return added(total, lost, term(*(scalar.widen() for scalar in scalars[:-2])))

    zeros = [(filled(sizes, target, 0), map) for _ in range(2)]
    totals = generic(loops, inputs, zeros, body, reduction=[along])
    return elementwise(totals[0].type, totals, completed)


def converted(value: ir.Value, result: ir.Type) -> ir.Value:
    """The elements in the element type of the result."""
    return value if value.type == result else elementwise(result, [value], lambda x: x)


def extract_slice(
    source: ir.Value,
    offsets: Sequence[SizeLike],
    sizes: Sequence[SizeLike],
    *,
    strides: Sequence[int] | None = None,
    drop: Collection[int] = (),
) -> ir.Value:
    """Part of a tensor, by default its neighbours; the dimensions in `drop`, of size 1, are left out of the result."""
    kept = [size for dim, size in enumerate(sizes) if dim not in drop]
    if _holds_nothing(source, sizes):
        return empty(kept, element_type(source))
    static, dynamic = zip(*(_split(list(part)) for part in (offsets, sizes, strides or [1] * len(sizes))), strict=True)
    return tensor.ExtractSliceOp(tensor_type(kept, element_type(source)), source, *dynamic, *static).result


def write_slice(
    source: ir.Value,
    target: ir.Value,
    offsets: Sequence[SizeLike],
    sizes: Sequence[SizeLike],
    *,
    drop: Collection[int] = (),
    body: Callable[[Scalar], Scalar] = lambda x: x,
) -> ir.Value:
    """The target with part of it replaced by the source, which lacks the dimensions in `drop`, of size 1.

    What is written is `body` of the source's elements. The part is written by a loop: a plain insertion becomes a copy
    of strided memory, which calls a library.
    """
    loops = range(len(sizes) - len(drop))
    return update_slice([(source, loops)], target, offsets, sizes, drop=drop, body=lambda x, _: body(x))


def update_slice(
    inputs: Sequence[tuple[ir.Value, Map]],
    target: ir.Value,
    offsets: Sequence[SizeLike],
    sizes: Sequence[SizeLike],
    *,
    drop: Collection[int] = (),
    body: Callable[..., Scalar],
) -> ir.Value:
    """The target with part of it changed, by loops along its dimensions but those in `drop`, of size 1.

    The new elements are `body` of those of the inputs, whose maps are given, and of the old one.
    """
    if _holds_nothing(target, sizes):
        return target
    part = extract_slice(target, offsets, sizes, drop=drop)
    loops = range(len(sizes) - len(drop))
    written = generic(len(loops), inputs, [(part, loops)], body)
    return insert_slice(written, target, offsets, sizes)


def insert_slice(
    source: ir.Value, target: ir.Value, offsets: Sequence[SizeLike], sizes: Sequence[SizeLike]
) -> ir.Value:
    """The target with part of it replaced by the source, which was made with that part as its destination."""
    if _holds_nothing(target, sizes):
        return target
    static, dynamic = zip(*(_split(list(numbers)) for numbers in (offsets, sizes, [1] * len(sizes))), strict=True)
    return tensor.InsertSliceOp(source, target, *dynamic, *static).result


def _holds_nothing(value: ir.Value, sizes: Sequence[SizeLike]) -> bool:
    """Whether a tensor or part of it is known to be empty: MLIR refuses slices of it, even those of size 0."""
    return 0 in ir.RankedTensorType(value.type).shape or any(isinstance(size, int) and size == 0 for size in sizes)


def _split(sizes: Sequence[SizeLike]) -> tuple[list[int], list[ir.Value]]:
    unknown = ir.ShapedType.get_dynamic_size()
    static = [size if isinstance(size, int) else unknown for size in sizes]
    return static, [size for size in sizes if not isinstance(size, int)]


def collapse(value: ir.Value, groups: Sequence[Sequence[int]]) -> ir.Value:
    """Each group of neighbouring dimensions as one.

    Of a tensor that is known to be empty, another one: MLIR takes a group of a dynamic size and 0 for a static one.
    """
    sizes = sizes_of(value)
    if len(groups) == len(sizes):
        return value
    merged = [times(*(sizes[dim] for dim in group)) for group in groups]
    if _holds_nothing(value, sizes):
        return empty(merged, element_type(value))
    return tensor.CollapseShapeOp(tensor_type(merged, element_type(value)), value, [list(g) for g in groups]).result


def split_dims(value: ir.Value, groups: Sequence[Sequence[int]], sizes: Sequence[SizeLike]) -> ir.Value:
    """Inverse of `collapse`: the dimensions of `value` cut into these sizes, one group for each dimension."""
    if _holds_nothing(value, sizes):
        return empty(sizes, element_type(value))
    own = [times(*(sizes[dim] for dim in group)) for group in groups]
    source = cast_shape(value, own)
    if len(sizes) == len(own):
        return source
    static, dynamic = _split(list(sizes))
    type = tensor_type(sizes, element_type(value))
    return tensor.ExpandShapeOp(type, source, [list(group) for group in groups], dynamic, static).result


def cast_shape(value: ir.Value, sizes: Sequence[SizeLike]) -> ir.Value:
    """The same tensor with these sizes in its type, which are its sizes at run time."""
    type = tensor_type(sizes, element_type(value))
    return value if value.type == type else tensor.CastOp(type, value).result


def reshaped(value: ir.Value, sizes: Sequence[SizeLike], *, same: int = 0) -> ir.Value:
    """The same elements, in row-major order, in another shape, of which the first `same` sizes are those of `value`."""
    own = sizes_of(value)
    rank, target = len(own), len(sizes)
    start = same
    while start < min(rank, target) and isinstance(own[start], int) and own[start] == sizes[start]:
        start += 1
    if start == rank == target:
        return value
    stop = 0  # dimensions at the end that stay
    while stop < min(rank, target) - start and isinstance(own[-1 - stop], int) and own[-1 - stop] == sizes[-1 - stop]:
        stop += 1
    if (start + stop in (rank, target)) and start + stop:  # ones come or go: they need a neighbour
        stop, start = (stop - 1, start) if stop else (stop, start - 1)

    def groups(count: int) -> list[list[int]]:
        before, after = ([[dim] for dim in dims] for dims in (range(start), range(count - stop, count)))
        middle = list(range(start, count - stop))
        return [*before, middle, *after] if middle else [*before, *after]

    if rank == 0 or target == 0:  # the other one consists of ones
        flat = cast_shape(value, [1] * rank)
        return split_dims(flat, [], sizes) if rank == 0 else collapse(flat, [])
    flat = collapse(value, groups(rank))
    if sum(not isinstance(size, int) for size in sizes[start : target - stop]) > 1:
        return _split_at_run_time(flat, sizes, start, target - stop)
    return split_dims(flat, groups(target), sizes)


def _split_at_run_time(flat: ir.Value, sizes: Sequence[SizeLike], start: int, stop: int) -> ir.Value:
    """A copy with several dimensions, from `start` to `stop`, in place of one: expand_shape takes one dynamic size."""
    rank = len(sizes)

    def body(_: Scalar) -> Scalar:
        place = index(start)
        for dim in range(start + 1, stop):
            place = place * Scalar(as_index(sizes[dim])) + index(dim)
        return extract(flat, [*(index(dim) for dim in range(start)), place, *(index(dim) for dim in range(stop, rank))])

    target = empty(sizes, element_type(flat))
    copied: ir.Value = generic(rank, [], [(target, range(rank))], body)
    return copied


def for_each(
    start: SizeLike, stop: SizeLike, values: Sequence[ir.Value], body: Callable[..., Sequence[ir.Value]]
) -> list[ir.Value]:
    """A sequential loop: `body` takes the position and the carried values, and gives the next ones."""
    loop = scf.ForOp(as_index(start), as_index(stop), index_constant(1), list(values))
    with ir.InsertionPoint(loop.body):
        scf.YieldOp(list(body(loop.induction_variable, *loop.inner_iter_args)))
    return list(loop.results)


def kept_in(source: ir.Value, target: ir.Value) -> ir.Value:
    """The source in the memory of the target, which a loop carries.

    A loop nest with `target` as its destination isn't enough: where it doesn't read it, passes give it another.
    """
    kept: ir.Value = bufferization.MaterializeInDestinationOp(target.type, source, target).results[0]
    return kept


def count_as(sizes: Sequence[SizeLike], type: ir.Type) -> Scalar:
    """The product of sizes as a float."""
    total = times(*sizes)
    if isinstance(total, int):
        return constant(type, total)
    return Scalar(total).to(type)
