# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes that follow from symbols, as values of a graph: as numbers that calls compute, and as dimensions."""

from __future__ import annotations

import numpy as np

from rlx_mlir.errors import UnsupportedError
from rlx_mlir.frontends.tensors import plain
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.mir.dims import Positive, Quotient, Size


class Sizes:
    """Makes values of sizes in one graph.

    Args:
        graph: that they are for.
    """

    def __init__(self, graph: GraphModule) -> None:
        self._graph = graph
        self._dims: dict[str, tuple[Value, int]] = {}

    def note(self, symbol: str, value: Value, axis: int) -> None:
        """Says that a dimension of a value, such as an input, has the size of a symbol."""
        self._dims.setdefault(symbol, (value, axis))

    def _dimension(self, symbol: str) -> tuple[Value, int]:
        if symbol not in self._dims:
            found = self._graph._dimension(Size.of(symbol))
            if found is None:
                raise UnsupportedError(f"no value has a dimension of the size '{symbol}'")
            return found
        return self._dims[symbol]

    def value(self, size: Size) -> Value:
        """A size as a number that calls compute, i64 without dimensions."""
        m = self._graph
        if size.constant is not None:
            return m.constant(np.int64(size.constant))
        total: Value | None = None
        for factors, coefficient in size.terms:
            part: Value | None = None
            for factor in factors:
                if isinstance(factor, str):
                    value, axis = self._dimension(factor)
                    own = m.dim(value, axis)
                elif isinstance(factor, Quotient):
                    own = m.floor_div(self.value(factor.size), np.int64(factor.number))
                else:
                    own = m.maximum(self.value(factor.size), np.int64(0))
                part = own if part is None else m.mul(part, own)
            if part is None:
                part = m.constant(np.int64(coefficient))
            elif coefficient != 1:
                part = m.mul(part, np.int64(coefficient))
            total = part if total is None else m.add(total, part)
        return m.constant(np.int64(0)) if total is None else total

    def carry(self, size: Size) -> None:
        """Sees to it that a value of the graph has a dimension of a size, which results can take it from.

        UnsupportedError where no value can be made that has one.
        """
        if size.constant is not None or self._graph._dimension(size) is not None:
            return
        self._carrier(size)
        if self._graph._dimension(size) is None:
            raise UnsupportedError(f"no value can be made that has a dimension of {size}")

    def _carrier(self, size: Size) -> Value:
        """A value with one dimension that is as long as a size is."""
        m = self._graph
        found = m._dimension(size)
        if size.constant is not None or found is not None:
            return m.iota(plain([size]))
        more = [(factors, number) for factors, number in size.terms if number > 0]
        less = size - Size(tuple(more))
        if less.terms:
            return m.slice(self._carrier(Size(tuple(more))), 0, 0, size)
        if len(more) > 1:
            return m.concat([self._carrier(Size((term,))) for term in more], 0)
        ((factors, number),) = more
        if len(factors) == 1 and number == 1 and isinstance(factors[0], Quotient):
            inner = factors[0]
            return m.slice(self._carrier(inner.size), 0, inner.number - 1, None, inner.number)
        if len(factors) == 1 and number == 1 and isinstance(factors[0], Positive):
            raise UnsupportedError(f"no value can be made that has a dimension of {size}")
        parts = [Size.of(number)] if number != 1 else []
        parts += [Size((((factor,), 1),)) for factor in factors]
        for part in parts:
            self.carry(part)
        return m.reshape(m.iota(plain(parts)), plain([size]))
