# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of primitives that make positions, and move elements and change none."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir import ir
from rlx_mlir.hir import place
from rlx_mlir.hir.emitting import Emitting
from rlx_mlir.hir.graph import axes_of, axis_of, integer, shape_of
from rlx_mlir.hir.result_types import check_sequence, context_of, like, sized
from rlx_mlir.hir.sizes import UNKNOWN_LENGTH, Followed, as_size, shape_sizes, split_shape
from rlx_mlir.hir.types import DTypeLike, NewShape, Options, ShapeLike, SizeLike, dtype_word, element_type
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlx_mlir.semantics.dims import Dims


def _position(start: Value | int) -> Value | np.ndarray | int:
    """A position as an operand; numbers become i64, and beyond its range are an error."""
    if not isinstance(start, int | np.integer) or isinstance(start, bool):
        return start
    try:
        return np.array(start, np.int64)
    except OverflowError:
        raise place.caller().error(f"'start' is a number of 64 bits, but got {start}") from None


def in_type_of(m: Emitting, x: Value, like: Value) -> Value:
    """The elements of x in the type of a value of the same number of elements, whose sizes its type may not say."""
    type, context = ir.RankedTensorType(like._handle.type), like._handle.context
    dynamic = [axis for axis in range(type.rank) if type.is_dynamic_dim(axis)]
    entries = [-3 if axis in dynamic else type.get_dim_size(axis) for axis in range(type.rank)]
    words = [ir.StringAttr.get(f"d{number}", context) for number in range(len(dynamic))]
    attributes = {"new_shape": entries, "sizes": ir.ArrayAttr.get(words, context), "like_dims": dynamic}
    return m._emit("mir.reshape", {"x": x, "like": [like] * len(dynamic)}, attributes)[0]


class Shapes(Emitting):
    """The builders; what they need of a graph is abstract here."""

    @abstractmethod
    def _dimension(self, size: Size) -> tuple[Value, int] | None: ...

    @abstractmethod
    def _all_dims(self) -> dict[ir.Value, Dims]: ...

    def iota(
        self,
        new_shape: NewShape,
        axis: int = 0,
        dtype: DTypeLike = "i32",
        *,
        name: str | None = None,
        shape: ShapeLike | None = None,
    ) -> Value:
        """0, 1, 2, ... along one dimension, the same numbers in every other.

        Args:
            new_shape: sizes and symbols, or what is computed of symbols, such as `2*s`: a value of the graph has a
                dimension of that size.
            axis: along which numbers count; a negative one counts from the end.
            dtype: f32, i32, i64, ui8, ui16 or ui32.
        """
        wanted = shape_sizes("mir.iota", new_shape)
        with place.checking("'mir.iota'"):
            element = element_type(dtype_word(dtype), self._context)
            at = integer(axis, "axis")
        at += len(wanted) if at < 0 else 0
        sources = self._sources(wanted, ())
        if isinstance(sources, int):
            raise place.caller().error(
                f"'mir.iota' takes '{list(new_shape)[sources]}' where a value has a dimension of that size, but "
                f"new_shape is {list(new_shape)}, and no value has one"
            )
        # One value gives sizes; dimensions that others have come by an expansion.
        counted = [source for source in sources if 0 <= at < len(wanted) and source[1][at] >= 0]
        value, dims = next(iter(counted or sources), (None, None))
        sizes = [
            own.constant if own.constant is not None else -1 if dims is not None and dims[i] >= 0 else 1
            for i, own in enumerate(wanted)
        ]
        declared = shape if len(sources) < 2 else None
        result = sized(sizes, element, self._context)
        attributes = {"axis": at, "like_dims": dims}
        x = self._emit("mir.iota", {"like": value}, attributes, name=name, shape=declared, result=result)[0]
        return x if len(sources) < 2 else self.expand(x, new_shape, name=name, shape=shape)

    def reshape(
        self, x: Value, new_shape: NewShape, *, name: str | None = None, shape: ShapeLike | None = None
    ) -> Value:
        """The same elements in another shape.

        Args:
            new_shape: sizes; -1 for what the others leave (once); -2, or the symbol that `x` has there, for the size
                of `x` at that position. One other symbol, or what is computed of symbols, stands for -1; of several,
                all have to follow from dimensions of values of the graph, but for one where there is no -1: `[b*s, 8]`
                becomes `["b", "s", 8]`. That the numbers of elements agree is checked at the call.
        """
        followed = Followed("mir.reshape", self._dimension, self._context)
        entries, sizes = split_shape(shape_of(x, "'x' of 'mir.reshape'"), new_shape, followed)
        texts = [ir.StringAttr.get(followed.text(size), self._context) for size in sizes]
        attributes: dict[str, object] = {"new_shape": entries, **followed.attributes}
        if texts:
            attributes["sizes"] = ir.ArrayAttr.get(texts, self._context)
        return self._emit("mir.reshape", {"x": x, "like": followed.values}, attributes, name=name, shape=shape)[0]

    def transpose(self, x: Value, permutation: Sequence[int] | None = None, **options: Unpack[Options]) -> Value:
        """Dimension i of the result is dimension `permutation[i]` of x; without one, the order is reversed."""
        order = axes_of(x, permutation)[::-1] if permutation is None else axes_of(x, permutation)
        return self._emit("mir.transpose", {"x": x}, {"permutation": order}, **options)[0]

    def barrier(self, x: Value, **options: Unpack[Options]) -> Value:
        """x, but operations on it aren't those on x: what is computed again of it isn't recognised as computed."""
        return self._emit("mir.barrier", {"x": x}, **options)[0]

    def narrow(self, x: Value, axis: int, start: int, length: int, **options: Unpack[Options]) -> Value:
        """Elements start .. start + length - 1 along one dimension; a negative axis counts from the end."""
        attributes = {"axis": axis_of(x, axis), "start": start, "length": length}
        return self._emit("mir.narrow", {"x": x}, attributes, **options)[0]

    def slice(
        self,
        x: Value,
        axis: int,
        start: SizeLike | None = None,
        stop: SizeLike | None = None,
        step: int = 1,
        *,
        length: int | None = None,
        **options: Unpack[Options],
    ) -> Value:
        """Elements along one dimension as Python's `x[start:stop:step]` takes them; `x[:, 1::2]` builds it.

        Bounds that are negative count from the end, and such that are outside are moved to the ends. Of a symbolic
        dimension, or with bounds that are sizes, the result has a size that follows, such as `max(s - 1, 0)`.

        Args:
            axis: the dimension; a negative one counts from the end.
            start: the first element; without it the first one, or the last one for a negative step. A number or a
                size, such as `floordiv(s, 2)`, of symbols that values of the graph have. A size that may turn out to
                be negative counts from the end then: `max(s - 4, 0)` doesn't.
            stop: the position that isn't taken any more; without it all up to the end.
            step: how far the elements are from each other; not 0.
            length: how many elements there are; another number of a symbolic dimension is refused when it is given.
        """
        followed = Followed("mir.slice", self._dimension, self._context)
        attributes = {"axis": axis_of(x, axis), "step": step, "length": length}
        for name, bound in (("start", start), ("stop", stop)):
            if bound is not None:
                attributes[name] = followed.attribute(as_size("mir.slice", bound, f"'{name}'"))
        given = {key: value for key, value in attributes.items() if value is not None}
        operands = {"x": x, "like": followed.values}
        return self._emit("mir.slice", operands, given | followed.attributes, **options)[0]

    def dynamic_slice(
        self, x: Value, start: Value | int, length: SizeLike, axis: int = 0, **options: Unpack[Options]
    ) -> Value:
        """As many elements along one dimension as `length` says, from a computed position on.

        `x[:, i]` and `x[:, i:i + 4]` build it, for a value i. A position from which not all of them are there is moved
        to the nearest one that has them: before the first element to that, so a negative one doesn't count from the
        end. More elements than there are is an error: where sizes are symbols, when they are given.

        Args:
            start: an i32 or i64 value without dimensions.
            length: a number or a size, as in `slice`: it is known before anything is computed.
            axis: the dimension; a negative one counts from the end.
        """
        if isinstance(length, Value):
            raise place.caller().error(f"'mir.dynamic_slice': {UNKNOWN_LENGTH}")
        followed = Followed("mir.dynamic_slice", self._dimension, self._context)
        attributes = {
            "axis": axis_of(x, axis),
            "length": followed.attribute(as_size("mir.dynamic_slice", length, "'length'")),
        }
        operands = {"x": x, "start": _position(start), "like": followed.values}
        return self._emit("mir.dynamic_slice", operands, attributes | followed.attributes, **options)[0]

    def dynamic_update_slice(
        self, x: Value, update: Value, start: Value | int, axis: int = 0, **options: Unpack[Options]
    ) -> Value:
        """x with `update` in place of its elements along one dimension, from a computed position on.

        The position is moved as in `dynamic_slice`, so all of `update` is in the result. Where x isn't read any more,
        it is changed in place; an output that is tied to an input is, too, where calls donate that.

        Args:
            update: as large as x, but for the dimension, along which it is at most as large.
            start: an i32 or i64 value without dimensions.
            axis: the dimension; a negative one counts from the end.
        """
        operands = {"x": x, "update": update, "start": _position(start)}
        return self._emit("mir.dynamic_update_slice", operands, {"axis": axis_of(x, axis)}, **options)[0]

    def dim(
        self, x: Value, axis: int, dtype: DTypeLike = "i64", *, name: str | None = None, shape: ShapeLike | None = None
    ) -> Value:
        """The size of a dimension as a number, without dimensions: i64, or another integer or floating-point type."""
        with place.checking("'mir.dim'"):
            element = element_type(dtype_word(dtype), context_of(x))
        result = like(x, element=element, sizes=[])
        return self._emit("mir.dim", {"x": x}, {"axis": axis_of(x, axis)}, name=name, shape=shape, result=result)[0]

    def concat(self, values: Sequence[Value], axis: int, **options: Unpack[Options]) -> Value:
        """Values joined along one dimension; a negative axis counts from the end."""
        check_sequence("mir.concat", values, "values")
        listed = list(values)
        if not listed:
            raise place.caller().error("'mir.concat' expects at least one value, but got none")
        return self._emit("mir.concat", {"inputs": listed}, {"axis": axis_of(listed[0], axis)}, **options)[0]

    def expand(
        self, x: Value, new_shape: NewShape, *, name: str | None = None, shape: ShapeLike | None = None
    ) -> Value:
        """x repeated along dimensions of size 1 and new leading ones.

        Args:
            new_shape: sizes and symbols, or what is computed of symbols, such as `2*s`: x or another value of the
                graph has a dimension of that size.
        """
        own = shape_of(x, "'x' of 'mir.expand'")
        wanted = shape_sizes("mir.expand", new_shape)
        x = x if isinstance(x, Value) else self.constant(x)
        sources = self._sources(wanted, self._all_dims()[x._resolve()])
        if isinstance(sources, int):
            raise place.caller().error(
                f"'mir.expand' takes '{list(new_shape)[sources]}' where a value has a dimension of that size, but x is "
                f"{list(own)}, new_shape is {list(new_shape)}, and no other value has one"
            )
        # One operation for each value that gives sizes; what is repeated by a later one is 1 until then.
        missing = len(wanted) - len(own)
        repeated = {i for i in range(len(wanted)) if i < missing or own[i - missing] == 1}
        known = [-1 if size.constant is None else size.constant for size in wanted]
        steps = [({"like": value}, {"like_dims": dims}) for value, dims in sources] or [({}, {})]
        for number, (operands, attributes) in enumerate(steps):
            later = {i for _, dims in sources[number + 1 :] for i, axis in enumerate(dims) if axis >= 0}
            sizes = [1 if i in later & repeated else size for i, size in enumerate(known)]
            declared = None if later else shape
            result = like(x, sizes=sizes)
            x = self._emit("mir.expand", {"x": x, **operands}, attributes, name=name, shape=declared, result=result)[0]
        return x

    def _sources(self, wanted: Sequence[Size], own: Sequence[Size]) -> list[tuple[Value, list[int]]] | int:
        """The values that give sizes which x, of sizes `own`, doesn't have; or the first dimension that none has.

        Each comes with its dimension for each of the result's, -1 where it isn't from there.
        """
        found: dict[ir.Value, tuple[Value, list[int]]] = {}
        missing = len(wanted) - len(own)
        for i, size in enumerate(wanted):
            if size.constant is not None or (i >= missing and own[i - missing] == size):
                continue
            source = self._dimension(size)
            if source is None:
                return i
            value, axis = source
            found.setdefault(value._resolve(), (value, [-1] * len(wanted)))[1][i] = axis
        return list(found.values())

    def gather(
        self,
        table: Value,
        indices: Value | np.ndarray,
        axis: int = 0,
        *,
        batch_dims: int = 0,
        **options: Unpack[Options],
    ) -> Value:
        """Entries of a table (dense, or the decoded rows of a packed weight) along one dimension.

        Indices count from 0; those outside of the table are clamped to its ends, so -1 is the first entry.

        Args:
            batch_dims: so many leading dimensions are those of both operands: rows [B, S, E] at indices [B, 1], with
                axis 1 and batch_dims 1, are [B, 1, E], one row of each batch item.
        """
        attributes = {"axis": axis_of(table, axis), "batch_dims": batch_dims}
        return self._emit("mir.gather", {"table": table, "indices": indices}, attributes, **options)[0]
