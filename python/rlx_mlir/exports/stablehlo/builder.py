# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds text of StableHLO, operation by operation, in the generic form: types are inferred here."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from rlx_mlir import ir
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.exports.stablehlo.tensors import Dim, Tensor, elements, is_static, numbers_of, plain, type_of
from rlx_mlir.mir.dims import Positive, Quotient, Size, broadcast, maximum, product

#: Operations that reduce, by our words of reductions.
JOINED = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}
COMPARISONS = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}

#: The element type of sizes: that of `get_dimension_size`.
SIZES = "i32"


def numbers(values: Sequence[int]) -> str:
    """An array of whole numbers, as an attribute."""
    listed = ", ".join(str(int(value)) for value in values)
    return f"array<i64: {listed}>" if listed else "array<i64>"


def joined(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape that others broadcast to, as numpy does it."""
    return tuple(plain(size) for size in broadcast(*([Size.of(size) for size in shape] for shape in shapes)))


class Builder:
    """The text of one function.

    Sizes are numbers, or made of symbols. What these are is read from arguments that have them as dimensions, and where
    a shape has such a size, the operation is the one that takes shapes as values.

    Attributes:
        lines: operations so far.
        place: the location of what is built next.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.place = ""
        self._count = 0
        self._indent = "    "
        self._symbols: dict[str, tuple[Tensor, int]] = {}
        self._sizes: dict[Size | str, Tensor] = {}

    # -- text --------------------------------------------------------------------------------------------------------

    def _name(self) -> str:
        self._count += 1
        return f"%{self._count - 1}"

    def ops(
        self,
        name: str,
        operands: Sequence[Tensor],
        types: Sequence[tuple[Sequence[Dim], str]],
        attributes: str = "",
        regions: Sequence[Sequence[str]] = (),
    ) -> list[Tensor]:
        """Appends an operation with any number of results.

        Args:
            name: without the dialect, which is `stablehlo`, unless it has a dot.
            types: shapes and element types of the results.
            attributes: text of the dictionary, without braces.
            regions: lines of each.
        """
        kinds = [(tuple(plain(size) for size in shape), word) for shape, word in types]
        own = self._name()
        full = name if "." in name else f"stablehlo.{name}"
        given = ", ".join(operand.name for operand in operands)
        results = [type_of(shape, word) for shape, word in kinds]
        text = f'{own}:{len(types)} = "{full}"' if len(types) > 1 else f'{own} = "{full}"'
        text += f"({given})" + (f" <{{{attributes}}}>" if attributes else "")
        listed = ", ".join(operand.type for operand in operands)
        tail = f" : ({listed}) -> {results[0] if len(results) == 1 else '(' + ', '.join(results) + ')'}{self.place}"
        if regions:
            self.lines.append(f"{self._indent}{text} ({{")
            for number, lines in enumerate(regions):
                if number:
                    self.lines.append(f"{self._indent}}}, {{")
                self.lines += lines
            self.lines.append(f"{self._indent}}}){tail}")
        else:
            self.lines.append(f"{self._indent}{text}{tail}")
        names = [own] if len(types) == 1 else [f"{own}#{number}" for number in range(len(types))]
        return [Tensor(each, shape, word) for each, (shape, word) in zip(names, kinds, strict=True)]

    def op(
        self, name: str, operands: Sequence[Tensor], shape: Sequence[Dim], word: str, attributes: str = ""
    ) -> Tensor:
        """Appends an operation with one result."""
        return self.ops(name, operands, [(shape, word)], attributes)[0]

    @contextmanager
    def _apart(self) -> Iterator[list[str]]:
        """What is built inside goes into a list of lines of its own; sizes that it finds are known there alone."""
        around, self.lines, indent, sizes = self.lines, [], self._indent, self._sizes
        self._indent, self._sizes = self._indent + "  ", dict(sizes)
        try:
            yield self.lines
        finally:
            self.lines, self._indent, self._sizes = around, indent, sizes

    def region(
        self, types: Sequence[tuple[Sequence[Dim], str]], build: Callable[..., Sequence[Tensor]]
    ) -> tuple[list[str], list[Tensor]]:
        """The lines of a region, and what it gives.

        Args:
            types: of its arguments.
            build: a function of these.
        """
        with self._apart() as lines:
            arguments = [Tensor(self._name(), tuple(shape), word) for shape, word in types]
            if arguments:
                listed = ", ".join(f"{own.name}: {own.type}" for own in arguments)
                lines.append(f"{self._indent[:-2]}^bb0({listed}):")
            found = list(build(*arguments))
            names, kinds = (", ".join(getattr(own, part) for own in found) for part in ("name", "type"))
            lines.append(f'{self._indent}"stablehlo.return"({names}) : ({kinds}) -> ()')
        return lines, found

    # -- elements ----------------------------------------------------------------------------------------------------

    def constant(self, array: np.ndarray, word: str) -> Tensor:
        """A constant of elements."""
        kind = type_of(array.shape, word)
        return self.op("constant", [], array.shape, word, f"value = {elements(array, word)} : {kind}")

    def number(self, value: object, like: Tensor) -> Tensor:
        """A number in the element type of a value, repeated to its shape."""
        with np.errstate(over="ignore"):
            return self.spread(self.constant(np.asarray(value).astype(like.dtype), like.word), like.shape)

    def unary(self, name: str, x: Tensor) -> Tensor:
        """A function of elements that leaves their type."""
        return self.op(name, [x], x.shape, x.word)

    def pair(self, *values: Tensor) -> list[Tensor]:
        """Values repeated to one shape, as numpy broadcasts."""
        shape = joined(*(value.shape for value in values))
        return [self.spread(value, shape) for value in values]

    def binary(self, name: str, a: Tensor, b: Tensor | float) -> Tensor:
        """A function of two elements of one type; a number is one of the type of `a`."""
        left, right = self.pair(a, b if isinstance(b, Tensor) else self.number(b, a))
        return self.op(name, [left, right], left.shape, left.word)

    def add(self, a: Tensor, b: Tensor | float) -> Tensor:
        """a + b"""
        return self.binary("add", a, b)

    def sub(self, a: Tensor, b: Tensor | float) -> Tensor:
        """a - b"""
        return self.binary("subtract", a, b)

    def mul(self, a: Tensor, b: Tensor | float) -> Tensor:
        """a b"""
        return self.binary("multiply", a, b)

    def div(self, a: Tensor, b: Tensor | float) -> Tensor:
        """a / b"""
        return self.binary("divide", a, b)

    def compare(self, kind: str, a: Tensor, b: Tensor | float) -> Tensor:
        """A comparison: i1."""
        left, right = self.pair(a, b if isinstance(b, Tensor) else self.number(b, a))
        sort = "FLOAT" if left.is_float else "UNSIGNED" if left.word.startswith("u") or left.word == "i1" else "SIGNED"
        attributes = (
            f"comparison_direction = #stablehlo<comparison_direction {COMPARISONS[kind]}>, "
            f"compare_type = #stablehlo<comparison_type {sort}>"
        )
        return self.op("compare", [left, right], left.shape, "i1", attributes)

    def where(self, condition: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
        """a where a condition holds, else b; one of them is a value."""
        like = a if isinstance(a, Tensor) else b
        assert isinstance(like, Tensor)
        sides = [own if isinstance(own, Tensor) else self.number(own, like) for own in (a, b)]
        own, left, right = self.pair(condition, *sides)
        return self.op("select", [own, left, right], left.shape, left.word)

    def cast(self, x: Tensor, word: str) -> Tensor:
        """x in another element type, or itself."""
        return x if x.word == word else self.op("convert", [x], x.shape, word)

    def wide(self, x: Tensor) -> Tensor:
        """x in f32 where it is of 16 bits or less."""
        return self.cast(x, "f32") if x.is_float and x.dtype.itemsize < 4 else x

    # -- sizes -------------------------------------------------------------------------------------------------------

    def note(self, value: Tensor) -> None:
        """Says that symbols that are dimensions of a value can be read from it."""
        for axis, size in enumerate(value.shape):
            if isinstance(size, Size) and str(size) in size.symbols:
                self._symbols.setdefault(str(size), (value, axis))

    def extent(self, size: Dim) -> Tensor:
        """A size as a value, i32 without dimensions; UnsupportedError where no argument says what a symbol is."""
        if isinstance(size, int):
            return self.constant(np.asarray(size, np.int32), SIZES)
        if size not in self._sizes:
            parts = [self._term(factors, coefficient) for factors, coefficient in size.terms]
            total = parts[0] if parts else self.extent(0)
            for part in parts[1:]:
                total = self.add(total, part)
            self._sizes[size] = total
        return self._sizes[size]

    def _term(self, factors: Sequence[str | Quotient | Positive], coefficient: int) -> Tensor:
        """A product of symbols and what is computed of sizes, with a number."""
        found = None if factors and coefficient == 1 else self.extent(coefficient)
        for factor in factors:
            own = self._factor(factor)
            found = own if found is None else self.mul(found, own)
        assert found is not None
        return found

    def _factor(self, factor: str | Quotient | Positive) -> Tensor:
        if isinstance(factor, Positive):
            return self.binary("maximum", self.extent(factor.size), 0)
        if isinstance(factor, Quotient):  # the quotient of StableHLO is rounded towards 0
            own, by = self.extent(factor.size), factor.number
            rest = self.binary("remainder", own, by)
            return self.sub(self.binary("divide", own, by), self.cast(self.compare("lt", rest, 0), SIZES))
        if factor not in self._symbols:
            raise UnsupportedError(f"no argument has a dimension of the size '{factor}'")
        if factor not in self._sizes:
            value, axis = self._symbols[factor]
            self._sizes[factor] = self.op("get_dimension_size", [value], (), SIZES, f"dimension = {axis} : i64")
        return self._sizes[factor]

    def extents(self, sizes: Sequence[Dim]) -> Tensor:
        """Sizes as a value of one dimension."""
        if is_static(sizes):
            return self.constant(np.asarray(numbers_of(sizes), np.int32), SIZES)
        return self.concat([self.op("reshape", [self.extent(size)], (1,), SIZES) for size in sizes], 0)

    # -- shapes ------------------------------------------------------------------------------------------------------

    def spread(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
        """x repeated to a shape, as numpy broadcasts."""
        if x.shape == tuple(shape):
            return x
        dims = range(len(shape) - x.rank, len(shape))
        return self.placed(x, shape, list(dims))

    def placed(self, x: Tensor, shape: Sequence[Dim], dims: Sequence[int]) -> Tensor:
        """x with its dimensions at others of a shape, and repeated to it."""
        if not is_static(shape):
            attributes = f"broadcast_dimensions = {numbers(dims)}"
            return self.op("dynamic_broadcast_in_dim", [x, self.extents(shape)], shape, x.word, attributes)
        return self.op("broadcast_in_dim", [x], shape, x.word, f"broadcast_dimensions = {numbers(dims)}")

    def reshape(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
        """The same elements in another shape."""
        shape = tuple(plain(size) for size in shape)
        if x.shape == shape:
            return x
        if is_static(shape):
            return self.op("reshape", [x], shape, x.word)
        return self.op("dynamic_reshape", [x, self.extents(shape)], shape, x.word)

    def transpose(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """x with its dimensions in another order."""
        if list(order) == list(range(x.rank)):
            return x
        return self.op("transpose", [x], [x.shape[at] for at in order], x.word, f"permutation = {numbers(order)}")

    def cut(self, x: Tensor, axis: int, start: Dim, stop: Dim, step: int = 1) -> Tensor:
        """Elements along one dimension, from `start` to `stop`, which isn't before it."""
        starts: list[Dim] = [0] * x.rank
        limits, steps, shape = list(x.shape), [1] * x.rank, list(x.shape)
        starts[axis], limits[axis], steps[axis] = plain(start), plain(stop), step
        shape[axis] = plain(maximum((Size.of(stop) - start + (step - 1)) // step, Size.of(0)))
        if not is_static([*starts, *limits]):
            places = [self.extents(own) for own in (starts, limits, steps)]
            return self.op("real_dynamic_slice", [x, *places], shape, x.word)
        attributes = (
            f"start_indices = {numbers(numbers_of(starts))}, limit_indices = {numbers(numbers_of(limits))}, "
            f"strides = {numbers(steps)}"
        )
        return self.op("slice", [x], shape, x.word, attributes)

    def concat(self, values: Sequence[Tensor], axis: int) -> Tensor:
        """Values joined along one dimension."""
        shape = list(values[0].shape)
        total = Size.of(0)
        for value in values:
            total = total + value.shape[axis]
        shape[axis] = plain(total)
        return self.op("concatenate", values, shape, values[0].word, f"dimension = {axis} : i64")

    def reverse(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """x backwards along dimensions."""
        return self.op("reverse", [x], x.shape, x.word, f"dimensions = {numbers(axes)}")

    def iota(self, shape: Sequence[Dim], axis: int, word: str = "i32") -> Tensor:
        """0, 1, 2, … along a dimension."""
        if not is_static(shape):
            return self.op("dynamic_iota", [self.extents(shape)], shape, word, f"iota_dimension = {axis} : i64")
        return self.op("iota", [], shape, word, f"iota_dimension = {axis} : i64")

    # -- sums --------------------------------------------------------------------------------------------------------

    def joining(self, kind: str, word: str) -> list[str]:
        """The region that joins two elements."""
        lines, _ = self.region([((), word)] * 2, lambda a, b: [self.op(JOINED[kind], [a, b], (), word)])
        return lines

    def neutral(self, kind: str, word: str) -> Tensor:
        """What changes nothing that it is joined with."""
        like = Tensor("", (), word)
        values: dict[str, object] = {"sum": 0, "any": False, "prod": 1, "all": True}
        if kind in ("max", "min"):
            if like.is_float:
                values = {"max": -np.inf, "min": np.inf}
            else:
                info = np.iinfo(like.dtype)
                values = {"max": info.min, "min": info.max}
        return self.constant(np.asarray(values[kind]).astype(like.dtype), word)

    def reduce(self, x: Tensor, kind: str, axes: Sequence[int], *, keep: bool = False) -> Tensor:
        """All elements along dimensions joined; sums, means and products of 16 bits in f32."""
        if not axes:
            return x
        own = self.wide(x)
        if kind == "mean":
            total = self.reduce(own, "sum", axes, keep=keep)
            count = plain(product(x.shape[axis] for axis in axes))
            by = float(count) if isinstance(count, int) else self.cast(self.extent(count), own.word)
            return self.cast(self.div(total, by), x.word)
        init = self.neutral(kind, own.word)
        shape = [size for axis, size in enumerate(x.shape) if axis not in axes]
        (found,) = self.ops(
            "reduce",
            [own, init],
            [(shape, own.word)],
            f"dimensions = {numbers(sorted(axes))}",
            [self.joining(kind, own.word)],
        )
        if keep:
            found = self.reshape(found, [1 if axis in axes else size for axis, size in enumerate(x.shape)])
        return self.cast(found, x.word)

    def dot(
        self,
        a: Tensor,
        b: Tensor,
        contracting: tuple[Sequence[int], Sequence[int]],
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    ) -> Tensor:
        """A contraction; floats of 16 bits are summed in f32."""
        word = a.word
        if a.word != b.word and not (a.word in ("i8", "ui8") and b.word in ("i8", "ui8")):
            raise UnsupportedError(f"a product of {a.word} and {b.word}")
        if a.word in ("i8", "ui8"):
            word = "i32"
            a, b = self.cast(a, word), self.cast(b, word)
        left, right = self.wide(a), self.wide(b)
        kept = [
            [size for axis, size in enumerate(own.shape) if axis not in (*pair[0], *pair[1])]
            for own, pair in ((left, (contracting[0], batch[0])), (right, (contracting[1], batch[1])))
        ]
        shape = [*(left.shape[axis] for axis in batch[0]), *kept[0], *kept[1]]
        parts = [
            f"{side}_{what}_dimensions = [{', '.join(map(str, own))}]"
            for what, pair in (("batching", batch), ("contracting", contracting))
            for side, own in zip(("lhs", "rhs"), pair, strict=True)
            if own
        ]
        attributes = (
            f"dot_dimension_numbers = #stablehlo.dot<{', '.join(parts)}>, "
            "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"
        )
        return self.cast(self.op("dot_general", [left, right], shape, left.word, attributes), word)

    def matmul(self, a: Tensor, b: Tensor, *, transpose_rhs: bool = False) -> Tensor:
        """a b of the last two dimensions, whose others broadcast."""
        inner = (a.rank - 1, b.rank - 1 if transpose_rhs else b.rank - 2)
        if b.rank == 2:
            return self.dot(a, b, ([inner[0]], [inner[1]]))
        lead = joined(a.shape[:-2], b.shape[:-2])
        a, b = self.spread(a, [*lead, *a.shape[-2:]]), self.spread(b, [*lead, *b.shape[-2:]])
        own = list(range(len(lead)))
        last = len(lead) + 1
        return self.dot(a, b, ([last], [last if transpose_rhs else last - 1]), (own, own))


class Writing(Builder):
    """What writers of operations ask of who writes a function.

    Attributes:
        types: shapes and element types of the results of the operation that is written.
        blocks: of its regions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.types: list[tuple[tuple[Dim, ...], str]] = []
        self.blocks: list[ir.Block] = []

    @abstractmethod
    def block(self, block: ir.Block, values: Sequence[Tensor]) -> list[Tensor]:
        """What a block gives for values of its arguments."""
