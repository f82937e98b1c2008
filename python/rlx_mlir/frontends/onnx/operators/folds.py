# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is computed while a file is read, of elements that are numbers or sizes: above all, arithmetic on shapes.

Arrays of sizes hold `Size` objects, for which numpy's functions that move elements work as they are, and `+`, `-` and
`*` are those of sizes. What sizes don't decide, such as whether a symbol equals 7, is None: it is built instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx_mlir.frontends.tensors import MOST_FOLDED, array_of_sizes
from rlx_mlir.mir.dims import Size, is_never_negative, maximum, minimum

from ..call import Call
from ..registry import fold
from ..types import NUMPY, SMALL, is_integer
from .shapes import even_parts, resolved_shape, unsqueezed

Array = np.ndarray


def _is_sizes(*arrays: Array) -> bool:
    return any(array.dtype == object for array in arrays)


def _sizes(array: Array) -> Array:
    """An array of numbers as one of sizes."""
    if array.dtype == object:
        return array
    return array_of_sizes([Size.of(int(entry)) for entry in array.reshape(-1)]).reshape(array.shape)


def _each(function: Callable[..., object], *arrays: Array) -> Array | None:
    """What a function of sizes gives of each element, as an array of objects; None where it is None for one."""
    wide = np.broadcast_arrays(*arrays)
    found = np.empty(wide[0].shape, object)
    for place in np.ndindex(found.shape):
        entry = function(*(array[place] for array in wide))
        if entry is None:
            return None
        found[place] = entry
    return found


def _fits(count: int) -> bool:
    return count <= MOST_FOLDED


# Shapes ---------------------------------------------------------------------------------------------


@fold("Shape")
def _shape(call: Call, x: Array | None) -> Array:
    shape = call.shape(0)
    start, end = call.integer("start", 0), call.maybe_int("end")
    return array_of_sizes(shape[start:end])


@fold("Size")
def _size(call: Call, x: Array | None) -> Array:
    total = Size.of(1)
    for size in call.shape(0):
        total = total * size
    found = np.empty((), object)
    found[()] = total
    return found


@fold("Reshape")
def _reshape(call: Call, x: Array, shape: Array) -> Array | None:
    wanted = resolved_shape(call, call.shape(0), call.sizes(1, "the shape"))
    numbers = [size.constant for size in wanted]
    return None if None in numbers else x.reshape(numbers)


@fold("Identity")
def _identity(call: Call, x: Array) -> None:
    return None


@fold("Flatten")
def _flatten(call: Call, x: Array) -> Array:
    axis = call.integer("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1)


@fold("Squeeze")
def _squeeze(call: Call, x: Array, axes: Array | None = None) -> Array:
    found = call.axes(1)
    return np.squeeze(x) if found is None else np.squeeze(x, tuple(found))


@fold("Unsqueeze")
def _unsqueeze(call: Call, x: Array, axes: Array | None = None) -> Array:
    shape = unsqueezed(call, call.shape(0), call.axes(1) or [])
    return x.reshape([size.constant for size in shape])


@fold("Transpose")
def _transpose(call: Call, x: Array) -> Array:
    return np.transpose(x, call.ints("perm", range(x.ndim - 1, -1, -1)))


@fold("Concat")
def _concat(call: Call, *arrays: Array) -> Array:
    given = [_sizes(array) for array in arrays] if _is_sizes(*arrays) else arrays
    return np.concatenate(given, call.axis(0, arrays[0].ndim))


@fold("Gather")
def _gather(call: Call, x: Array, indices: Array) -> Array | None:
    if _is_sizes(indices):
        return None
    return np.take(x, indices, call.axis(0, x.ndim))


@fold("Slice")
def _slice(
    call: Call, x: Array, starts: Array, stops: Array, axes: Array | None = None, steps: Array | None = None
) -> Array | None:
    if _is_sizes(*(each for each in (starts, stops, axes, steps) if each is not None)):
        return None
    key: list[slice] = [slice(None)] * x.ndim
    for number, start in enumerate(starts.reshape(-1)):
        axis = int(axes.reshape(-1)[number]) if axes is not None else number
        step = int(steps.reshape(-1)[number]) if steps is not None else 1
        stop = int(stops.reshape(-1)[number])
        before = step < 0 and stop < -x.shape[axis]
        key[call.along(axis, x.ndim)] = slice(int(start), None if before else stop, step)
    return x[tuple(key)]


@fold("Split")
def _split(call: Call, x: Array, parts: Array | None = None) -> list[Array] | None:
    axis = call.axis(0, x.ndim)
    if parts is not None:
        sizes = [int(part) for part in parts]
    elif call.maybe_ints("split") is not None:
        sizes = call.ints("split", [])
    else:
        count = call.integer("num_outputs", len(call.outputs))
        sizes = [size.constant or 0 for size in even_parts(Size.of(x.shape[axis]), count)]
    return np.split(x, np.cumsum(sizes)[:-1].tolist(), axis)


@fold("Expand")
def _expand(call: Call, x: Array, shape: Array) -> Array | None:
    if _is_sizes(shape) or not _fits(int(np.prod(np.maximum(shape, 1).astype(float)) * max(x.size, 1))):
        return None
    wanted = np.broadcast_shapes(x.shape, tuple(int(size) for size in shape))
    return np.broadcast_to(x, wanted).copy()


@fold("Tile")
def _tile(call: Call, x: Array, counts: Array) -> Array | None:
    if _is_sizes(counts) or not _fits(int(np.prod(counts.astype(float)) * max(x.size, 1))):
        return None
    return np.tile(x, counts)


@fold("ConstantOfShape")
def _constant_of_shape(call: Call, shape: Array) -> Array | None:
    number = np.asarray(call.attributes.get("value", np.zeros(1, np.float32)))
    if _is_sizes(shape) or number.size != 1 or not _fits(int(np.prod(shape.astype(float)))):
        return None
    return np.full([int(size) for size in shape], number.reshape(-1)[0], number.dtype)


@fold("Range")
def _range(call: Call, start: Array, limit: Array, step: Array) -> Array | None:
    if _is_sizes(start, limit, step):
        return None
    first, last, by = (array.reshape(-1)[0] for array in (start, limit, step))
    if by == 0 or not _fits(int(max((float(last) - float(first)) / float(by), 0))):
        return None
    found: Array = np.arange(first, last, by, dtype=start.dtype)
    return found


# Arithmetic -----------------------------------------------------------------------------------------


def _binary(name: str, of_sizes: Callable[[Size, Size], object], of_numbers: Callable[[Array, Array], Array]) -> None:
    """A function of two elements: of sizes one by one, None where it doesn't decide."""

    @fold(name)
    def run(call: Call, a: Array, b: Array) -> Array | None:
        if _is_sizes(a, b):
            return _each(of_sizes, _sizes(a), _sizes(b)) if is_integer(call.dtype(1)) else None
        with np.errstate(all="ignore"):
            return of_numbers(a, b)


def _quotient(a: Size, b: Size) -> Size | None:
    """Rounded towards 0, as ONNX's are: rounded down where nothing is negative."""
    exact = a.divided_by(b) if b != Size.of(0) else None
    if exact is not None:
        return exact
    return a // b if b.constant and b.constant > 0 and is_never_negative(a) else None


def _remainder(a: Size, b: Size) -> Size | None:
    return a % b if b.constant and b.constant > 0 and is_never_negative(a) else None


def _truncated(a: Array, b: Array) -> Array:
    if is_integer(a.dtype):
        with np.errstate(all="ignore"):
            found = np.floor_divide(np.abs(a), np.abs(b)) * np.sign(a) * np.sign(b)
        return found.astype(a.dtype)
    return np.divide(a, b)


_binary("Add", Size.__add__, np.add)
_binary("Sub", Size.__sub__, np.subtract)
_binary("Mul", Size.__mul__, np.multiply)
_binary("Div", _quotient, _truncated)


@fold("Mod")
def _mod(call: Call, a: Array, b: Array) -> Array | None:
    if _is_sizes(a, b):
        return _each(_remainder, _sizes(a), _sizes(b))
    if np.any(b == 0):
        return None
    return np.fmod(a, b) if call.flag("fmod") else np.mod(a, b)


def _extreme(name: str, of_sizes: Callable[[Size, Size], Size], of_numbers: Callable[[Array, Array], Array]) -> None:
    @fold(name)
    def run(call: Call, *arrays: Array) -> Array | None:
        found: Array | None = arrays[0]
        for array in arrays[1:]:
            assert found is not None
            if _is_sizes(found, array):
                found = _each(of_sizes, _sizes(found), _sizes(array))
            else:
                found = of_numbers(found, array)
        return found


_extreme("Max", maximum, np.maximum)
_extreme("Min", minimum, np.minimum)


def _of_numbers(name: str, function: Callable[[Array], Array]) -> None:
    """A function of one element that sizes don't have."""

    @fold(name)
    def run(call: Call, x: Array) -> Array | None:
        if _is_sizes(x):
            return None
        with np.errstate(all="ignore"):
            return function(x).astype(x.dtype)


_of_numbers("Sqrt", np.sqrt)
_of_numbers("Floor", np.floor)
_of_numbers("Ceil", np.ceil)
_of_numbers("Reciprocal", lambda x: np.divide(np.ones((), x.dtype), x))
_of_numbers("Not", np.logical_not)
_of_numbers("Exp", np.exp)
_of_numbers("Log", np.log)


@fold("Pow")
def _pow(call: Call, a: Array, b: Array) -> Array | None:
    if _is_sizes(a, b) or (is_integer(a.dtype) and np.any(b < 0)):
        return None
    with np.errstate(all="ignore"):
        return np.power(a, b).astype(a.dtype)


@fold("Abs")
def _abs(call: Call, x: Array) -> Array | None:
    return x if _is_sizes(x) and all(map(is_never_negative, x.reshape(-1))) else None if _is_sizes(x) else np.abs(x)


@fold("Neg")
def _neg(call: Call, x: Array) -> Array:
    return _each(Size.__neg__, x) if _is_sizes(x) else np.negative(x)  # type: ignore[return-value]


# Comparisons ----------------------------------------------------------------------------------------


def _is_less(a: Size, b: Size) -> bool | None:
    """Whether a size is always, or never, below another one; None where that depends on symbols."""
    if is_never_negative(b - a - 1):
        return True
    return False if is_never_negative(a - b) else None


def _is_equal(a: Size, b: Size) -> bool | None:
    if a == b:
        return True
    return False if is_never_negative(a - b - 1) or is_never_negative(b - a - 1) else None


def _negated(found: bool | None) -> bool | None:
    return None if found is None else not found


def _comparison(
    name: str, of_sizes: Callable[[Size, Size], bool | None], of_numbers: Callable[[Array, Array], Array]
) -> None:
    @fold(name)
    def run(call: Call, a: Array, b: Array) -> Array | None:
        if not _is_sizes(a, b):
            return np.asarray(of_numbers(a, b))
        found = _each(of_sizes, _sizes(a), _sizes(b))
        return None if found is None else found.astype(np.bool_)


_comparison("Equal", _is_equal, np.equal)
_comparison("Less", _is_less, np.less)
_comparison("LessOrEqual", lambda a, b: _negated(_is_less(b, a)), np.less_equal)
_comparison("Greater", lambda a, b: _is_less(b, a), np.greater)
_comparison("GreaterOrEqual", lambda a, b: _negated(_is_less(a, b)), np.greater_equal)
_binary("And", lambda a, b: None, np.logical_and)
_binary("Or", lambda a, b: None, np.logical_or)
_binary("Xor", lambda a, b: None, np.logical_xor)


@fold("Where")
def _where(call: Call, condition: Array, a: Array, b: Array) -> Array | None:
    if _is_sizes(condition):
        return None
    if _is_sizes(a, b):
        a, b = _sizes(a), _sizes(b)
    return np.where(condition, a, b)


@fold("Cast")
def _cast(call: Call, x: Array) -> Array | None:
    return _converted(x, NUMPY.get(call.integer("to", 0)))


@fold("CastLike")
def _cast_like(call: Call, x: Array | None, like: Array | None) -> Array | None:
    return None if x is None else _converted(x, call.dtype(1))


def _converted(x: Array, dtype: np.dtype | None) -> Array | None:
    """Known elements in another element type; None where that is left to run time."""
    if _is_sizes(x):
        return x if dtype is not None and dtype.kind in "i" and dtype.itemsize >= 4 else None
    if dtype is None or dtype in SMALL or x.dtype in SMALL or dtype.itemsize == 1:
        return None
    if x.dtype.kind not in "iub" and dtype.kind in "iu":
        wide = x.astype(np.float64)
        limits = np.iinfo(dtype)
        if not np.all((wide > limits.min) & (wide < limits.max)):
            return None
    with np.errstate(all="ignore"):
        return x.astype(dtype)


# Reductions -----------------------------------------------------------------------------------------


def _reduction(name: str, function: Callable[[Size, Size], Size], of_numbers: Callable[..., Array]) -> None:
    """Reductions of sizes, which are few; those of numbers are integers, as order changes what floats give."""

    @fold(name)
    def run(call: Call, x: Array, axes: Array | None = None) -> Array | None:
        found = call.axes(1)
        if not found and call.flag("noop_with_empty_axes"):
            return x
        over = tuple(range(x.ndim)) if not found else tuple(call.along(axis, x.ndim) for axis in found)
        keep = call.flag("keepdims", True)
        if not _is_sizes(x):
            if not is_integer(x.dtype) or not x.size:
                return None
            return np.asarray(of_numbers(x, axis=over, keepdims=keep)).astype(x.dtype)
        return _over(x, over, keep, function)


def _over(x: Array, over: Sequence[int], keep: bool, function: Callable[[Size, Size], Size]) -> Array | None:
    if len(over) != x.ndim or not x.size:
        return None
    entries = list(x.reshape(-1))
    total = entries[0]
    for entry in entries[1:]:
        total = function(total, entry)
    return array_of_sizes([total]).reshape([1] * x.ndim if keep else [])


_reduction("ReduceProd", Size.__mul__, np.prod)
_reduction("ReduceSum", Size.__add__, np.sum)
_reduction("ReduceMax", maximum, np.max)
_reduction("ReduceMin", minimum, np.min)
