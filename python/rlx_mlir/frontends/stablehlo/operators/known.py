# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on integers and conditions that are known while a module is read: shapes, positions and masks.

Each gives what is known of its result, or None where that is no such thing: then it is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx_mlir.attributes import elements_array
from rlx_mlir.errors import RlxError
from rlx_mlir.frontends import positions
from rlx_mlir.frontends.positions import Conditions, Positions
from rlx_mlir.frontends.tensors import MOST_FOLDED, Tensor, array_of_sizes
from rlx_mlir.mir import elementwise
from rlx_mlir.mir.dims import Size, is_never_negative, maximum, minimum

from ..call import Call, element_dtype, is_float, is_long
from ..entries import Entry, Known, Repeated, as_array, as_conditions, as_positions, as_sizes, of_array, shape_of, splat
from ..registry import fold, operator

_INTEGERS = (np.dtype(np.int32), np.dtype(np.int64))
_WORDS = {_INTEGERS[0]: "i32", _INTEGERS[1]: "i64"}
#: Kinds of comparisons, by StableHLO's words.
COMPARISONS = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}


@operator("constant")
def _constant(call: Call) -> Entry:
    attribute, dtype = call.attribute("value"), element_dtype(call.op.results[0].type)
    array = np.array(attribute).view(dtype) if is_long(attribute.type) else elements_array(attribute)
    if not is_float(array.dtype) and array.dtype.kind != "c":
        found = splat(array.flat[0].item(), list(map(Size.of, array.shape)), array.dtype) if _is_splat(array) else None
        return of_array(array) if found is None or array.size <= 16 else found
    if _is_splat(array) and array.ndim:
        return Repeated(call.m.constant(array.flat[0]), tuple(map(Size.of, array.shape)))
    return Tensor.of(array)


def _is_splat(array: np.ndarray) -> bool:
    """Whether all elements are one, bit by bit."""
    if not array.size:
        return False
    bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
    return bool((bits == bits[0]).all())


@operator("get_dimension_size")
def _get_dimension_size(call: Call) -> Entry:
    size = call.shape(0)[call.integer("dimension")]
    return Tensor.of(array_of_sizes([size]).reshape(()), call.result_dtype())


@fold("iota")
def _iota(call: Call) -> Entry | None:
    return _counted(call, list(map(Size.of, call.result_shape())))


@fold("dynamic_iota")
def _dynamic_iota(call: Call) -> Entry | None:
    return _counted(call, call.sizes(0, "sizes"))


def _counted(call: Call, shape: Sequence[Size]) -> Entry | None:
    axis, dtype = call.integer("iota_dimension"), call.result_dtype()
    if dtype not in _INTEGERS:
        return None
    steps = tuple(int(i == axis and size != Size.of(1)) for i, size in enumerate(shape))
    return Positions(tuple(shape), Size.of(0), steps, _WORDS[dtype])


# Arithmetic -----------------------------------------------------------------------------------------

_SIZES: dict[str, Callable[[Size, Size], Size]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": maximum,
    "minimum": minimum,
}


def _towards_zero(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        quotient = np.where(b == 0, -1, np.abs(a) // np.maximum(np.abs(b), 1) * np.sign(a) * np.sign(b))
    return quotient.astype(a.dtype)


_NUMBERS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "divide": _towards_zero,
    "remainder": lambda a, b: np.where(b == 0, a, a - _towards_zero(a, b) * b).astype(a.dtype),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.bitwise_not,
    "negate": np.negative,
    "abs": np.abs,
    "sign": np.sign,
}


def _word(call: Call) -> str:
    return str(call.op.name).partition(".")[2]


@fold(*_NUMBERS)
def _arithmetic(call: Call) -> Entry | None:
    word = _word(call)
    if word in ("divide", "remainder", "maximum", "minimum", "sign", "abs"):
        call.refuse_unsigned()
    found = _decided(word, call.operands) or _by_positions(word, call.operands)
    if found is not None:
        return found
    arrays = [as_array(entry) for entry in call.operands]
    if any(array is None or is_float(array.dtype) or array.size > MOST_FOLDED for array in arrays):
        return None
    if all(array is not None and array.dtype != object for array in arrays):
        with np.errstate(over="ignore"):
            return of_array(_NUMBERS[word](*arrays))
    return _of_sizes(word, call)


def _decided(word: str, operands: Sequence[Entry]) -> Entry | None:
    """Of two conditions, where one is the same everywhere, that one or the other, whatever that is."""
    if word not in ("and", "or"):
        return None
    for own, other in (operands, operands[::-1]):
        known = as_conditions(own)
        if known is not None and known.constant is not None:
            return own if known.constant == (word == "or") else other
    return None


def _of_sizes(word: str, call: Call) -> Entry | None:
    """Arithmetic on sizes, of which quotients by positive numbers are rounded down."""
    sides = [as_sizes(entry) for entry in call.operands]
    if len(sides) == 1:
        return _of_one_size(word, call, sides[0])
    left, right = sides
    if left is None or right is None:
        return None
    try:
        if word in _SIZES:
            found = [_SIZES[word](a, b) for a, b in zip(left, right, strict=True)]
        elif word in ("divide", "remainder") and all(_at_least(own, 0) for own in (*left, *right)):
            found = [a // b if word == "divide" else a % b for a, b in zip(left, right, strict=True)]
        else:
            return None
    except RlxError:  # sizes that aren't sums, products or quotients by numbers
        return None
    return _sized(call, found)


def _of_one_size(word: str, call: Call, sizes: list[Size] | None) -> Entry | None:
    if sizes is None:
        return None
    if word == "negate":
        return _sized(call, [-own for own in sizes])
    if word == "abs" and all(_at_least(own, 0) for own in sizes):
        return call.operands[0]
    if word == "sign" and all(_at_least(own, 1) for own in sizes):
        return Tensor.of(np.ones([size.constant or 0 for size in call.shape(0)], call.result_dtype()))
    return None


def _sized(call: Call, sizes: Sequence[Size]) -> Tensor:
    shape = [size.constant or 0 for size in call.shape(0)]
    return Tensor.of(array_of_sizes(sizes).reshape(shape), call.result_dtype())


def _at_least(size: Size, least: int) -> bool:
    """Whether a size is seen to be so large: exported functions of JAX have no dimension of size 0."""
    return is_never_negative(_from_one(size) - least)


def _from_one(size: Size) -> Size:
    """A size by symbols that count from 0 where its own count from 1."""
    return size.substituted({symbol: Size.of(symbol) + 1 for symbol in size.symbols})


def _by_positions(word: str, operands: Sequence[Entry]) -> Known | None:
    """Arithmetic and logic on what follows from positions, where one operand isn't the same everywhere."""
    if not any(isinstance(entry, Positions | Conditions) for entry in operands):
        return None
    shape = shape_of(operands[0])
    conditions = [as_conditions(entry) for entry in operands]
    if word in ("and", "or", "not", "xor") and all(own is not None for own in conditions):
        known = [own for own in conditions if own is not None]
        return _logic(word, known, shape)
    pair = [as_positions(entry) for entry in operands]
    if any(own is None for own in pair):
        return None
    listed = [own for own in pair if own is not None]
    dtype = listed[0].dtype
    if word == "negate":
        return positions.multiplied(listed[0], _number(-1, dtype), shape, dtype)
    if len(listed) == 2:
        if word in ("add", "subtract"):
            return positions.added(listed[0], listed[1], 1 if word == "add" else -1, shape, dtype)
        if word == "multiply":
            return positions.multiplied(listed[0], listed[1], shape, dtype)
    return None


def _number(value: int, dtype: str) -> Positions:
    return Positions((), Size.of(value), (), dtype)


def _logic(word: str, known: Sequence[Conditions], shape: tuple[Size, ...]) -> Conditions | None:
    if word == "not":
        return positions.negated(known[0])
    if word == "and":
        return positions.both(known[0], known[1], shape)
    for own, other in (known, known[::-1]):
        if own.constant is not None:
            if word == "or":
                return own if own.constant else other
            return positions.negated(other) if own.constant else other
    return None


def _whole_numbers(call: Call) -> list[np.ndarray] | None:
    """The operands as arrays of integers or conditions; None where one is something else."""
    found = []
    for entry in call.operands:
        array = as_array(entry)
        if array is None or array.dtype == object or is_float(array.dtype):
            return None
        found.append(array)
    return found


@fold("compare")
def _compare(call: Call) -> Entry | None:
    call.refuse_unsigned()
    kind = COMPARISONS[call.word("comparison_direction")]
    shape = call.shape(0)
    pair = [as_positions(entry) for entry in call.operands]
    if pair[0] is not None and pair[1] is not None:
        if not shape:
            left, right = (Positions((), _from_one(own.base), (), own.dtype) for own in pair if own is not None)
            found = positions.compared(kind, left, right, shape)
            return found if found.constant is not None else None
        return positions.compared(kind, pair[0], pair[1], shape)
    arrays = _whole_numbers(call)
    if arrays is None:
        return None
    return of_array(elementwise.COMPARISONS[kind](*arrays))


@fold("select")
def _select(call: Call) -> Entry | None:
    condition, on_true, on_false = call.operands
    known = as_conditions(condition)
    if known is not None and known.constant is not None:
        return on_true if known.constant else on_false
    own, other = as_conditions(on_true), as_conditions(on_false)
    if known is not None and own is not None and other is not None and len(known.shape) == len(own.shape):
        if own.constant is True and other.constant is False:
            return known
        if own.constant is False and other.constant is True:
            return positions.negated(known)
        if other.constant is False:
            return positions.both(known, own, own.shape)
    arrays = _whole_numbers(call)
    if arrays is None:
        return None
    return of_array(np.asarray(np.where(arrays[0], arrays[1], arrays[2])))


@fold("clamp")
def _clamp(call: Call) -> Entry | None:
    arrays = _whole_numbers(call)
    if arrays is None:
        return None
    low, x, high = arrays
    return of_array(np.minimum(np.maximum(x, low), high))


@fold("convert")
def _convert(call: Call) -> Entry | None:
    (entry,), dtype = call.operands, call.result_dtype()
    if isinstance(entry, Conditions) and dtype == np.bool_:
        return entry
    if isinstance(entry, Positions) and dtype in _INTEGERS:
        return positions.added(entry, _number(0, entry.dtype), 1, entry.shape, _WORDS[dtype])
    array = as_array(entry)
    if array is None or is_float(array.dtype) or dtype.kind not in "iub" or array.size > MOST_FOLDED:
        return None
    if array.dtype == object:
        return Tensor.of(array, dtype) if dtype in _INTEGERS else None
    return of_array(array.astype(dtype))


# Shapes ---------------------------------------------------------------------------------------------


def _moved(entry: Entry, places: Sequence[int | None], shape: tuple[Size, ...]) -> Known | None:
    """With dimensions elsewhere, as `positions.placed`, then repeated to a shape."""
    if not isinstance(entry, Positions | Conditions):
        return None
    one: tuple[Size, ...] = tuple(Size.of(1) if at is None else entry.shape[at] for at in places)
    return positions.expand(positions.placed(entry, places, one), shape)


def _places(dims: Sequence[int], rank: int) -> list[int | None]:
    places: list[int | None] = [None] * rank
    for number, dim in enumerate(dims):
        places[dim] = number
    return places


def broadcast(entry: Entry, shape: tuple[Size, ...], dims: Sequence[int]) -> Known | None:
    """A known entry with its dimensions at others of a shape, and repeated to it; None where it isn't known."""
    found = _moved(entry, _places(dims, len(shape)), shape)
    if found is not None or not isinstance(entry, Tensor) or entry.array is None:
        return found
    own = as_conditions(entry) if entry.dtype == np.bool_ else as_positions(entry)
    if own is not None:
        return _moved(own, _places(dims, len(shape)), shape)
    sizes = [size.constant for size in shape]
    if any(size is None for size in sizes) or math.prod(size or 0 for size in sizes) > MOST_FOLDED:
        return None
    if is_float(entry.dtype) or entry.array.size <= 1 < math.prod(size or 0 for size in sizes):
        return None
    inner = [1] * len(shape)
    order = np.argsort(dims)
    for at in order:
        inner[dims[at]] = entry.array.shape[at]
    turned = entry.array.transpose(order).reshape(inner)
    return of_array(np.broadcast_to(turned, [size or 0 for size in sizes]), entry.dtype)


def reshape(entry: Entry, shape: tuple[Size, ...]) -> Known | None:
    """A known entry in another shape; None where it isn't known."""
    if isinstance(entry, Tensor) and entry.array is not None:
        if any(size.constant is None for size in shape):
            return None
        return Tensor(entry.dtype, entry.array.reshape([size.constant or 0 for size in shape]), name=entry.name)
    if not isinstance(entry, Positions | Conditions):
        return None
    if isinstance(entry, Positions) and entry.constant is not None:
        return Positions(shape, entry.base, (0,) * len(shape), entry.dtype)
    if isinstance(entry, Conditions) and entry.constant is not None:
        return Conditions(shape, never=entry.never)
    own = [dim for dim, size in enumerate(entry.shape) if size.constant != 1]
    if [entry.shape[dim] for dim in own] != [size for size in shape if size.constant != 1]:
        array = as_array(entry)
        sizes = [size.constant for size in shape]
        return None if array is None or None in sizes else of_array(array.reshape([size or 0 for size in sizes]))
    rest = iter(own)
    return positions.placed(entry, [None if size.constant == 1 else next(rest) for size in shape], shape)


@fold("transpose")
def _transpose(call: Call) -> Entry | None:
    order, entry = call.ints("permutation"), call.operands[0]
    if isinstance(entry, Tensor) and entry.array is not None:
        return Tensor(entry.dtype, entry.array.transpose(order), name=entry.name)
    return _moved(entry, order, tuple(shape_of(entry)[at] for at in order))


def is_placed(entry: Entry) -> bool:
    """Whether an entry is known by its positions."""
    return isinstance(entry, Positions | Conditions)


@fold("slice")
def _slice(call: Call) -> Entry | None:
    starts, limits, steps = (call.ints(name) for name in ("start_indices", "limit_indices", "strides"))
    (entry,) = call.operands
    if isinstance(entry, Tensor) and entry.array is not None:
        own = tuple(slice(a, b, c) for a, b, c in zip(starts, limits, steps, strict=True))
        return Tensor.of(entry.array[own], entry.dtype, entry.name if entry.array[own].size == entry.array.size else "")
    if not isinstance(entry, Positions | Conditions):
        return None
    return cut(entry, list(map(Size.of, starts)), list(map(Size.of, limits)), steps)


def cut(
    entry: Positions | Conditions, starts: Sequence[Size], limits: Sequence[Size], steps: Sequence[int]
) -> Positions | Conditions:
    """Elements from `starts` on to `limits`, in steps."""
    for axis, (start, limit, step) in enumerate(zip(starts, limits, steps, strict=True)):
        if (start, limit, step) == (Size.of(0), entry.shape[axis], 1):
            continue
        count = (limit - start + (step - 1)) // step
        shape = (*entry.shape[:axis], count, *entry.shape[axis + 1 :])
        entry = positions.taken(entry, axis, start, step, shape)
    return entry


@fold("concatenate")
def _concatenate(call: Call) -> Entry | None:
    axis = call.integer("dimension")
    arrays = [as_array(entry) for entry in call.operands]
    if all(array is not None for array in arrays) and sum(array.size for array in arrays if array is not None) <= (
        MOST_FOLDED
    ):
        listed = [array for array in arrays if array is not None]
        if any(array.dtype == object for array in listed):
            listed = [_as_objects(array) for array in listed]
        return of_array(np.concatenate(listed, axis), call.result_dtype())
    if not all(map(is_placed, call.operands)):
        return None
    parts: Any = call.operands
    shape = list(parts[0].shape)
    for part in parts[1:]:
        shape[axis] = shape[axis] + part.shape[axis]
    return positions.joined(parts, axis, tuple(shape))


def _as_objects(array: np.ndarray) -> np.ndarray:
    return array_of_sizes([Size.of(own if isinstance(own, Size) else int(own)) for own in array.reshape(-1)]).reshape(
        array.shape
    )


@fold("reverse")
def _reverse(call: Call) -> Entry | None:
    (entry,) = call.operands
    if isinstance(entry, Tensor) and entry.array is not None:
        return Tensor.of(np.flip(entry.array, tuple(call.ints("dimensions"))), entry.dtype)
    return None


@fold("reduce")
def _reduce(call: Call) -> Entry | None:
    """Of known conditions and sizes: whether any or all hold, sums and products of few."""
    body = [str(op.operation.name) for op in call.op.regions[0].blocks[0].operations]
    if len(call.operands) != 2 or len(body) != 2:
        return None
    array, init = (as_array(entry) for entry in call.operands)
    if array is None or init is None or is_float(array.dtype):
        return None
    axes, word = call.ints("dimensions"), body[0].partition(".")[2]
    if array.dtype == object:
        if word not in _SIZES or array.ndim != 1:
            return None
        total = Size.of(init.reshape(-1)[0] if init.dtype == object else int(init))
        for own in _as_objects(array):
            total = _SIZES[word](total, own)
        return Tensor.of(array_of_sizes([total]).reshape(()), call.result_dtype())
    ufunc = _NUMBERS.get(word)
    if not isinstance(ufunc, np.ufunc) or init.dtype == object:
        return None
    return of_array(ufunc(ufunc.reduce(array, axis=tuple(axes), dtype=array.dtype), init))


__all__ = ["COMPARISONS", "broadcast", "cut", "is_placed", "reshape"]
