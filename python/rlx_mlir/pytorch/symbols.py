# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes as PyTorch's exporter has them, expressions of sympy, in the algebra of this package."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.mir.dims import Size, ceildiv, check_symbol, maximum, minimum

if TYPE_CHECKING:
    from sympy import Basic
    from torch import SymInt

#: What expressions of sizes are made of, by the name of sympy's or the exporter's class.
_OPERATIONS: dict[str, Callable[..., Size]] = {
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "CeilToInt": lambda a: a,
    "CeilDiv": lambda a, b: ceildiv(a, b),
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "ModularIndexing": lambda a, b, c: (a // b) % c,
}

#: Numerators and denominators of numbers that sizes are multiplied by.
_MOST_PARTS = 1 << 16


class Symbols:
    """Names of the symbols of a program.

    Args:
        names: what symbols of the exporter, such as `s72`, are called; others keep their names.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = dict(names or {})

    def name(self, symbol: str) -> str:
        """What a symbol of the exporter is called."""
        return self._names.get(symbol, symbol)

    def size(self, value: int | SymInt) -> Size:
        """A number, a symbolic integer or an expression as a size.

        Raises UnsupportedError for expressions that aren't made of sums, products, quotients by numbers, minima and
        maxima.
        """
        if isinstance(value, int):
            return Size.of(value)
        node = getattr(value, "node", None)
        return self._of(value if node is None else node.expr)

    def dim(self, value: int | SymInt) -> int | str:
        """The same as a dimension of a shape: a number, or text."""
        size = self.size(value)
        return str(size) if size.constant is None else size.constant

    def _of(self, expression: Basic) -> Size:
        kind = type(expression).__name__
        if getattr(expression, "is_Integer", False):
            return Size.of(int(expression))
        if getattr(expression, "is_Symbol", False):
            return Size.of(self.name(str(expression)))
        if kind in ("TruncToInt", "FloorToInt") and (scaled := self._scaled(expression.args[0])) is not None:
            return scaled
        parts = [self._of(part) for part in expression.args]
        match kind:
            case "Add":
                return sum(parts[1:], parts[0])
            case "Mul":
                total = parts[0]
                for part in parts[1:]:
                    total = total * part
                return total
            case "Pow" if (power := parts[1].constant) is not None and power > 0:
                total = parts[0]
                for _ in range(power - 1):
                    total = total * parts[0]
                return total
            case "Max" | "Min":
                join = maximum if kind == "Max" else minimum
                total = parts[0]
                for part in parts[1:]:
                    total = join(total, part)
                return total
        if kind in _OPERATIONS:
            return _OPERATIONS[kind](*parts)
        raise UnsupportedError(f"a size of '{expression}' isn't made of sums, products, minima and division by numbers")

    def _scaled(self, expression: Basic) -> Size | None:
        """A size times a number such as 1.5, without what is behind the point; None where it isn't that."""
        factor, size = Fraction(1), Size.of(1)
        for part in expression.args if type(expression).__name__ == "Mul" else [expression]:
            if getattr(part, "is_Float", False):
                factor *= Fraction(float(part))
            elif type(part).__name__ == "ToFloat":
                size = size * self._of(part.args[0])
            else:
                return None
        if not 0 < factor.numerator <= _MOST_PARTS or factor.denominator > _MOST_PARTS:
            return None
        return size * factor.numerator // factor.denominator


def symbol_name(given: object) -> str:
    """A dimension's name as the caller gave it, as a symbol; InputError where it can't be one."""
    name = str(given)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise InputError(f"'dynamic_shapes' names dimensions by letters, digits and '_', but got {name!r}")
    return check_symbol(name)
