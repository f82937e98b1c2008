# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handles of values: what the public API gives out in place of MLIR's own, which may dangle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, Union, cast

import numpy as np

from rlx_mlir import ir
from rlx_mlir.checks import Unpicklable
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.hir.types import DTypeLike, NewShape, SizeLike, logical_shape
from rlx_mlir.mir.dims import Size, SizeText
from rlx_mlir.mir.packed import packing

#: What an operand may be: a value, or what becomes a constant.
Operand = Union["Value", np.ndarray, int, float, complex, bool, np.generic]


#: What a builder gives whose results depend on its arguments: a value where there is one, a tuple of several.
ValueOrTuple: TypeAlias = Any


class Owner(Protocol):
    """What a value asks of the graph that it belongs to: what it is, and arithmetic."""

    _generation: int

    @property
    def name(self) -> str: ...

    @property
    def stage(self) -> str: ...

    @property
    def _context(self) -> ir.Context: ...

    def _shape(self, handle: ir.Value, /) -> tuple[int | SizeText, ...]: ...

    def _resolve(self, value: Value, /) -> ir.Value: ...

    def _binary(self, kind: str, lhs: Operand, rhs: Operand, /) -> Value: ...

    def _unary(self, kind: str, x: Operand, /) -> Value: ...

    def _matmul(self, lhs: Operand, rhs: Operand, /) -> Value: ...


class Builders(Protocol):
    """The builders of operations that values have as operators and methods."""

    def compare(self, kind: str, lhs: Operand, rhs: Operand, /) -> Value: ...

    def gather(self, table: Value, indices: Value | np.ndarray, /) -> Value: ...

    def narrow(self, x: Value, axis: int, start: int, length: int, /) -> Value: ...

    def slice(
        self,
        x: Value,
        axis: int,
        start: SizeLike | None = None,
        stop: SizeLike | None = None,
        step: int = 1,
        /,
        *,
        length: int | None = None,
    ) -> Value: ...

    def dynamic_slice(self, x: Value, start: Value | int, length: SizeLike, axis: int = 0, /) -> Value: ...

    def reshape(self, x: Value, new_shape: NewShape, /) -> Value: ...

    def transpose(self, x: Value, permutation: Sequence[int] | None = None, /) -> Value: ...

    def cast(self, x: Value, dtype: DTypeLike, /) -> Value: ...

    def sum(self, x: Value, axes: int | Sequence[int] | None = None, /, *, keep_dims: bool = False) -> Value: ...

    def mean(self, x: Value, axes: int | Sequence[int] | None = None, /, *, keep_dims: bool = False) -> Value: ...

    def max(self, x: Value, axes: int | Sequence[int] | None = None, /, *, keep_dims: bool = False) -> Value: ...

    def min(self, x: Value, axes: int | Sequence[int] | None = None, /, *, keep_dims: bool = False) -> Value: ...

    def any(self, x: Value, axes: int | Sequence[int] | None = None, /, *, keep_dims: bool = False) -> Value: ...

    def all(self, x: Value, axes: int | Sequence[int] | None = None, /, *, keep_dims: bool = False) -> Value: ...

    def _index(self, x: Value, key: object, /) -> Value: ...


class Value(Unpicklable):
    """A tensor of a module under construction: an input, a parameter or a result of an operation.

    A handle is good for one module, until that module is changed otherwise than by building: then every use raises
    StageError. Arithmetic and bitwise operators, comparisons but `==`, and indexing build operations; numbers and
    arrays beside a value become constants of the module (numbers in the value's element type, arrays as they are).
    """

    _instead = "a value belongs to its module, which is copied and pickled as a whole"

    __slots__ = ("_generation", "_graph", "_handle", "_label")

    #: Makes `array + value` come to `Value.__radd__`, where numpy would loop over the array's elements.
    __array_ufunc__ = None

    def __init__(self, graph: Owner, handle: ir.Value, label: str) -> None:
        self._graph = graph
        self._handle = handle
        self._label = label
        self._generation = graph._generation

    @property
    def shape(self) -> tuple[int | SizeText, ...]:
        """Sizes, and for dynamic dimensions their symbols (`batch`, `2*seq`; `?` where no rule names it).

        Symbols are text that is computed with as `GraphModule.size` is: `x.shape[0] * x.shape[1]`, `x.shape[1] // 2`.
        A packed weight has its logical shape, (N, K).
        """
        return self._graph._shape(self._resolve())

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(logical_shape(self._resolve().type))

    @property
    def dtype(self) -> np.dtype:
        """Element type, a numpy type (bfloat16 from `ml_dtypes`); int8 for the bytes of a packed weight."""
        return numpy_dtype(ir.RankedTensorType(self._resolve().type).element_type)

    @property
    def packed(self) -> str | None:
        """The scheme of a packed weight, such as `q4_1`; None for a dense tensor."""
        found = packing(self._resolve().type)
        return None if found is None else found.scheme

    @property
    def name(self) -> str:
        """Name of the input or parameter, or of the block that built the value."""
        self._resolve()
        return self._label

    def _resolve(self) -> ir.Value:
        """The MLIR value; StageError where the module has changed since."""
        return self._graph._resolve(self)

    @property
    def _builders(self) -> Builders:
        """The graph, whose class has the builders of operations, too."""
        return cast(Builders, self._graph)

    def __add__(self, other: Operand) -> Value:
        return self._graph._binary("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self._graph._binary("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self._graph._binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self._graph._binary("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self._graph._binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self._graph._binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self._graph._binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._graph._binary("div", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        return self._graph._binary("floor_div", self, other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return self._graph._binary("floor_div", other, self)

    def __mod__(self, other: Operand) -> Value:
        return self._graph._binary("floor_rem", self, other)

    def __rmod__(self, other: Operand) -> Value:
        return self._graph._binary("floor_rem", other, self)

    def __pow__(self, other: Operand) -> Value:
        return self._graph._binary("pow", self, other)

    def __rpow__(self, other: Operand) -> Value:
        return self._graph._binary("pow", other, self)

    def __and__(self, other: Operand) -> Value:
        return self._graph._binary("and", self, other)

    def __rand__(self, other: Operand) -> Value:
        return self._graph._binary("and", other, self)

    def __or__(self, other: Operand) -> Value:
        return self._graph._binary("or", self, other)

    def __ror__(self, other: Operand) -> Value:
        return self._graph._binary("or", other, self)

    def __xor__(self, other: Operand) -> Value:
        return self._graph._binary("xor", self, other)

    def __rxor__(self, other: Operand) -> Value:
        return self._graph._binary("xor", other, self)

    def __invert__(self) -> Value:
        return self._graph._unary("not", self)

    def __neg__(self) -> Value:
        return self._graph._unary("neg", self)

    def __matmul__(self, other: Value | np.ndarray) -> Value:
        """The product of matrices; an operand of one dimension is a vector, as in numpy: a row here, a column there."""
        return _product(self._graph, self, other)

    def __rmatmul__(self, other: np.ndarray) -> Value:
        return _product(self._graph, other, self)

    def __lt__(self, other: Operand) -> Value:
        return self._builders.compare("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return self._builders.compare("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return self._builders.compare("gt", self, other)

    def __ge__(self, other: Operand) -> Value:
        return self._builders.compare("ge", self, other)

    def __getitem__(self, key: object) -> Value:
        """Numbers, slices, None and an ellipsis as in numpy; `table[ids]` gathers rows.

        `x[2:5]` of a symbolic dimension has 3 elements, and a shorter one is refused when it is given; other slices
        have a size that follows from it. Bounds may be sizes, `x[:, "floordiv(s, 2)":]` or those of `GraphModule.size`,
        and computed: `x[:, i]` and `x[:, i:i + 4]` are `dynamic_slice`, which moves i to where all elements are.
        """
        return self._builders._index(self, key)

    #: Without it, Python would take numbers from 0 on until an index fails.
    __iter__ = None

    def reshape(self, *shape: Any) -> Value:
        """The same elements in another shape, given as sizes or as one sequence; see `GraphModule.reshape`."""
        return self._builders.reshape(
            self, shape[0] if len(shape) == 1 and not isinstance(shape[0], int | str | Size) else shape
        )

    def transpose(self, *axes: Any) -> Value:
        """Dimensions in another order, by default reversed; axes as numbers or as one sequence."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return self._builders.transpose(self, None if isinstance(order, tuple) and not order else order)

    @property
    def T(self) -> Value:
        """Dimensions in reverse order."""
        return self._builders.transpose(self)

    def astype(self, dtype: DTypeLike) -> Value:
        """In another element type; see `GraphModule.cast`."""
        return self._builders.cast(self, dtype)

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """Sum over dimensions, by default all; see `GraphModule.sum`."""
        return self._builders.sum(self, axis, keep_dims=keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """Mean over dimensions, by default all; see `GraphModule.mean`."""
        return self._builders.mean(self, axis, keep_dims=keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """Largest element along dimensions, by default all; see `GraphModule.max`."""
        return self._builders.max(self, axis, keep_dims=keepdims)

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """Smallest element along dimensions, by default all; see `GraphModule.min`."""
        return self._builders.min(self, axis, keep_dims=keepdims)

    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """Whether a condition holds along dimensions, by default all; see `GraphModule.any`."""
        return self._builders.any(self, axis, keep_dims=keepdims)

    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """Whether all conditions hold along dimensions, by default all; see `GraphModule.all`."""
        return self._builders.all(self, axis, keep_dims=keepdims)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise TypeError("a graph value has no elements: `interpret` or `compile` make a graph run")

    def __bool__(self) -> bool:
        raise TypeError("a graph value has no truth value: its elements aren't known while the graph is built")

    def __eq__(self, other: object) -> bool:
        """Whether both are handles of one value; `GraphModule.eq` builds a comparison of elements."""
        return (
            isinstance(other, Value)
            and self._graph is other._graph
            and self._generation == other._generation
            and self._handle == other._handle
        )

    def __hash__(self) -> int:
        return hash((id(self._graph), self._generation, self._handle))

    def __repr__(self) -> str:
        if self._generation != self._graph._generation:
            return f"<Value '{self._label}': stale>"
        dims = ", ".join(str(dim) for dim in self.shape)
        return f"<Value '{self._label}': [{dims}] {self.packed or ir.RankedTensorType(self._handle.type).element_type}>"


def _product(graph: Owner, lhs: Value | np.ndarray, rhs: Value | np.ndarray) -> Value:
    """lhs @ rhs by numpy's rule: a vector is a matrix of one row or column, which the result doesn't have."""
    row, column = (isinstance(each, Value | np.ndarray) and len(each.shape) == 1 for each in (lhs, rhs))
    result = graph._matmul(lhs[None, :] if row else lhs, rhs[:, None] if column else rhs)
    if column:
        result = result[..., 0]
    if row:
        result = result[..., 0] if column else result[..., 0, :]
    return result
