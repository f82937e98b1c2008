# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Symbolic dimensions: sizes as polynomials over named symbols, and over what divides and compares such polynomials.

A size is kept in a normal form, so that two sizes are equal where they are written alike: `floordiv` of a sum leaves
out what divides, of nested quotients one is left, and every minimum and maximum is made from `max(p, 0)`. Symbols are
sizes of dimensions: they are never negative.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, ClassVar, Literal, NoReturn, SupportsIndex, TypeAlias

from rlx_mlir.errors import InputError, UnsupportedError, shortened

#: What a product of sizes may have: text can ask for sums that no memory holds once they are multiplied out.
MOST_TERMS, MOST_FACTORS = 4096, 64

#: The largest size that a symbol is taken to have, of which no maximum is declared.
DEFAULT_MAXIMUM = 512

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_symbol(name: str) -> str:
    """The name, where it can name a dimension: letters, digits and `_`; InputError otherwise."""
    if not _SYMBOL.fullmatch(name):
        raise InputError(f"a symbolic dimension is named by letters, digits and '_', but got {name!r}")
    return name


@dataclass(frozen=True)
class Quotient:
    """The largest integer that is at most size / number. Made by `floordiv`, which brings it to normal form.

    Attributes:
        number: at least 2.
    """

    size: Size
    number: int
    kind: ClassVar[Literal["floordiv"]] = "floordiv"

    def __str__(self) -> str:
        return f"floordiv({self.size}, {self.number})"

    def apply(self, value: int) -> int:
        """The number for the number of `size`."""
        return value // self.number

    def bounds(self, maxima: Mapping[str, int] | None) -> Bounds:
        """As `Size.bounds`."""
        low, high = (end if math.isinf(end) else end // self.number for end in self.size.bounds(maxima))
        return low, high


@dataclass(frozen=True)
class Positive:
    """max(size, 0). Made by `maximum`, which brings it to normal form."""

    size: Size
    kind: ClassVar[Literal["max"]] = "max"
    number: ClassVar[int] = 0

    def __str__(self) -> str:
        return f"max({self.size}, 0)"

    def apply(self, value: int) -> int:
        """The number for the number of `size`."""
        return max(value, 0)

    def bounds(self, maxima: Mapping[str, int] | None) -> Bounds:
        """As `Size.bounds`."""
        low, high = self.size.bounds(maxima)
        return max(low, 0), max(high, 0)


#: What a term of a size is the product of: symbols, by their names, and what is computed from other sizes.
Derived = Quotient | Positive
Factor = str | Derived
#: Smallest and largest value, infinite where there is no limit.
Bounds = tuple[int | float, int | float]


@dataclass(frozen=True, repr=False)
class Size:
    """A sum of products of symbols and derived sizes with integer coefficients.

    Attributes:
        terms: (sorted factors, coefficient) pairs, sorted, without zero coefficients; the empty tuple of factors is
            the constant.
    """

    terms: tuple[tuple[tuple[Factor, ...], int], ...]

    @staticmethod
    def of(value: Size | int | str) -> Size:
        """The size of a number, of a symbol by its name, or of an entry of a shape."""
        if isinstance(value, Size):
            return value
        if isinstance(value, str):
            return Size.parse(value) if isinstance(value, SizeText) else _factor(value)
        return _number(value)

    @staticmethod
    def parse(text: str) -> Size:
        """The size from the text that `str` gives of it, or from other sums of products; InputError says where.

        Grammar: sums of products of numbers, symbols, `floordiv(a, b)`, `ceildiv(a, b)`, `mod(a, b)`, `max(a, b)` and
        `min(a, b)`, with parentheses; `a // b` and `a % b` are read as Python does.
        """
        return _Parser(text).run()

    @property
    def constant(self) -> int | None:
        """The number, where no symbol is left in it."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @property
    def is_symbol(self) -> bool:
        """Whether it is one symbol, and nothing else."""
        return any(self.terms == (((name,), 1),) for name in self.symbols)

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that occur, in derived sizes too."""
        found: set[str] = set()
        for factors, _ in self.terms:
            for factor in factors:
                found |= {factor} if isinstance(factor, str) else factor.size.symbols
        return frozenset(found)

    def __add__(self, other: Size | int | str) -> Size:
        added = Size.of(other)
        if (left := self.constant) is not None and (right := added.constant) is not None:
            return _number(left + right)  # as most sizes are
        totals = dict(self.terms)
        for factors, coefficient in added.terms:
            totals[factors] = totals.get(factors, 0) + coefficient
        return _size(totals)

    def __mul__(self, other: Size | int | str) -> Size:
        factor = Size.of(other)
        if (own := self.constant) is not None and (number := factor.constant) is not None:
            return _number(own * number)
        totals: dict[tuple[Factor, ...], int] = {}
        if len(self.terms) * len(factor.terms) > MOST_TERMS or self._degree + factor._degree > MOST_FACTORS:
            raise UnsupportedError(
                f"a size has at most {MOST_TERMS} terms of {MOST_FACTORS} factors, but ({shortened(str(self))}) * "
                f"({shortened(str(factor))}) may have more"
            )
        for left, a in self.terms:
            for right, b in factor.terms:
                key = tuple(sorted(left + right, key=str))
                totals[key] = totals.get(key, 0) + a * b
        return _size(totals)

    @property
    def _degree(self) -> int:
        """The most factors that a term has."""
        return max((len(factors) for factors, _ in self.terms), default=0)

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size | int | str) -> Size:
        return self + -Size.of(other)

    def __floordiv__(self, other: Size | int | str) -> Size:
        return floordiv(self, Size.of(other))

    def __mod__(self, other: Size | int | str) -> Size:
        return self - floordiv(self, Size.of(other)) * other

    def __rsub__(self, other: Size | int | str) -> Size:
        return Size.of(other) - self

    __radd__ = __add__
    __rmul__ = __mul__

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The number for given sizes; KeyError names a symbol without one."""
        total = 0
        for factors, coefficient in self.terms:
            for factor in factors:
                if isinstance(factor, str):
                    coefficient *= sizes[factor]
                else:
                    coefficient *= factor.apply(factor.size.evaluate(sizes))
            total += coefficient
        return total

    def substituted(self, sizes: Mapping[str, Size]) -> Size:
        """The size with others in place of its symbols; KeyError names a symbol without one."""
        total = Size.of(0)
        for factors, coefficient in self.terms:
            total += product([coefficient, *(_substituted(factor, sizes) for factor in factors)])
        return total

    def bounds(self, maxima: Mapping[str, int] | None = None) -> Bounds:
        """What the size is at least and at most, for symbols from 0 to their maxima, or to any number without one."""
        low: int | float = 0
        high: int | float = 0
        for factors, coefficient in self.terms:
            own: Bounds = (coefficient, coefficient)
            for factor in factors:
                if isinstance(factor, str):
                    own = _scaled(own, (0, (maxima or {}).get(factor, math.inf)))
                else:
                    own = _scaled(own, factor.bounds(maxima))
            low, high = low + own[0], high + own[1]
        return low, high

    def divided_by(self, divisor: Size) -> Size | None:
        """The exact quotient by a single term; None where it isn't one."""
        if len(divisor.terms) != 1:
            return Size.of(1) if divisor == self and self.terms else None
        symbols, coefficient = divisor.terms[0]
        totals: dict[tuple[Factor, ...], int] = {}
        for own, a in self.terms:
            rest = list(own)
            for symbol in symbols:
                if symbol not in rest:
                    return None
                rest.remove(symbol)
            if a % coefficient:
                return None
            totals[tuple(rest)] = a // coefficient
        return _size(totals)

    def __str__(self) -> str:
        parts = []
        for factors, coefficient in self.terms:
            words = [str(factor) for factor in factors]
            parts.append("*".join(words if coefficient == 1 and words else [str(coefficient), *words]))
        return " + ".join(parts) or "0"

    def __repr__(self) -> str:
        return f"Size.parse('{self}')"


class SizeText(str):
    """The text of a size, with which is computed as with the size: `SizeText("s") * 2 == "2*s"`.

    Sums, differences, products, `//` and `%` are numbers where no symbol is left, otherwise such texts in normal form.
    Other text is joined to it by `+`, as to any text.
    """

    __slots__ = ()
    #: Numbers of numpy leave arithmetic to this class.
    __array_ufunc__ = None

    def __add__(self, other: Operand) -> Any:
        if isinstance(other, str) and not isinstance(other, SizeText):
            return str(self) + other
        return _computed(operator.add, self, other)

    def __radd__(self, other: Operand) -> Any:
        return _computed(operator.add, other, self)

    def __sub__(self, other: Operand) -> Any:
        return _computed(operator.sub, self, other)

    def __rsub__(self, other: Operand) -> Any:
        return _computed(operator.sub, other, self)

    def __mul__(self, other: Operand) -> Any:  # type: ignore[override]
        return _computed(operator.mul, self, other)

    __rmul__ = __mul__  # type: ignore[assignment]

    def __floordiv__(self, other: Operand) -> Any:
        return _computed(operator.floordiv, self, other)

    def __mod__(self, other: Operand) -> Any:
        return _computed(operator.mod, self, other)


#: What is computed with beside sizes.
Operand: TypeAlias = "int | str | Size"


def _computed(step: Callable[[Size, Size], Size], left: Operand, right: Operand) -> Any:
    """What two sizes give by a step, as an entry of a shape, or as a `Size` beside one; NotImplemented for others."""
    for side in (left, right):
        if isinstance(side, bool) or not isinstance(side, str | Size | SupportsIndex):
            return NotImplemented
        if isinstance(side, str) and "?" in side:
            raise InputError(f"a size can't be computed of '{side}', which no rule names")
    sizes = [Size.of(side if isinstance(side, str | Size) else operator.index(side)) for side in (left, right)]
    found = step(*sizes)
    if isinstance(left, Size) or isinstance(right, Size):
        return found
    return SizeText(found) if found.constant is None else found.constant


def floordiv(size: Size, divisor: Size) -> Size:
    """The largest integer that is at most size / divisor.

    What the divisor divides exactly is left out of the quotient, common factors of both are, too,
    floordiv(floordiv(p, a), b) is floordiv(p, a * b), and the quotient of a maximum is the maximum of quotients.

    Raises:
        UnsupportedError: for a divisor that is no number and doesn't divide the size exactly.
        InputError: for a divisor of 0.
    """
    by = divisor.constant
    if by is None:
        exact = size.divided_by(divisor)
        if exact is None:
            raise UnsupportedError(
                f"({size}) / ({divisor}) isn't made of sums, products, minima and division by numbers"
            )
        return exact
    if by == 0:
        raise InputError(f"the size {size} is divided by 0")
    if by < 0:
        return floordiv(-size, Size.of(-by))
    whole = _size({factors: coefficient // by for factors, coefficient in size.terms})
    rest = {factors: coefficient % by for factors, coefficient in size.terms if coefficient % by}
    constant = rest.pop((), 0)
    if not rest:
        return whole
    common = math.gcd(by, *rest.values())
    by, constant = by // common, constant // common
    if len(rest) == 1:
        ((factors, coefficient),) = rest.items()
        inner = factors[0]
        if coefficient == common and len(factors) == 1 and isinstance(inner, Quotient):
            return whole + floordiv(inner.size + inner.number * constant, Size.of(inner.number * by))
        if coefficient == common and len(factors) == 1 and isinstance(inner, Positive):
            parts = (inner.size + constant, Size.of(constant))
            return whole + maximum(*(floordiv(part, Size.of(by)) for part in parts))
    left = _size({(): constant, **{factors: coefficient // common for factors, coefficient in rest.items()}})
    return whole + _factor(Quotient(left, by))


def ceildiv(size: Size, divisor: Size) -> Size:
    """The smallest integer that is at least size / divisor; raises as `floordiv`."""
    by = divisor.constant
    if by is not None and by > 0:  # as a quotient of a sum without signs, which is equal to what others write as one
        return floordiv(size + (by - 1), divisor)
    return -floordiv(-size, divisor)


def maximum(left: Size, right: Size) -> Size:
    """The larger one: one of the two where that is known, else the smaller one and max(difference, 0)."""
    difference = left - right
    if is_never_negative(difference):
        return left
    if is_never_negative(-difference):
        return right
    common = math.gcd(*(coefficient for _, coefficient in difference.terms))
    # Of max(d, 0) = d + max(-d, 0), the one whose first symbol is added is the normal form.
    first = next(coefficient for factors, coefficient in difference.terms if factors)
    if first < 0:
        left, right, difference = right, left, -difference
    part = Size(tuple((factors, coefficient // common) for factors, coefficient in difference.terms))
    match part.terms:
        case ((), below), ((Positive() as inner,), 1):  # max(max(p, 0) - c, 0), in which c isn't negative
            return right + maximum(inner.size + below, Size.of(0)) * common
    return right + _factor(Positive(part)) * common


def is_never_negative(size: Size, depth: int = 6) -> bool:
    """Whether a size is seen to be at least 0, whatever numbers its symbols stand for.

    So is s - floordiv(s, 2): p / n - 1 < floordiv(p, n) <= p / n, and max(p, 0) is p or 0. At most `depth` derived
    sizes are replaced so.
    """
    size = _without_common(size)
    if size.bounds()[0] >= 0:
        return True
    for factors, coefficient in size.terms if depth else ():
        if len(factors) != 1 or isinstance(factors[0], str):
            continue
        own, rest = factors[0], size - Size(((factors, coefficient),))
        if isinstance(own, Positive):
            cases = (is_never_negative(case, depth - 1) for case in (rest, rest + own.size * coefficient))
            return any(cases) if coefficient > 0 else all(cases)
        least = own.size - (own.number - 1) if coefficient > 0 else own.size
        # An integer is at least 0 where its multiple by n is more than -n.
        return is_never_negative(rest * own.number + least * coefficient + (own.number - 1), depth - 1)
    return False


def _without_common(size: Size) -> Size:
    """A size that is at least 0 where another one, c s + k, is: s + floor(k / c)."""
    common = math.gcd(*(coefficient for factors, coefficient in size.terms if factors))
    if common <= 1:
        return size
    return Size(tuple((own, number // common) for own, number in size.terms if number // common))


def minimum(left: Size, right: Size) -> Size:
    """The smaller one."""
    return left + right - maximum(left, right)


def followed(size: int | str, known: Sequence[Size]) -> Size:
    """A size as operations write it: a number, or text in which d0, d1, ... are the known ones, in order."""
    if isinstance(size, int):
        return Size.of(size)
    return Size.parse(size).substituted({f"d{number}": own for number, own in enumerate(known)})


def parse_maxima(text: str) -> dict[str, int]:
    """Sizes by symbol from `seq:512,batch:4`; InputError names the part that can't be read."""
    sizes = {}
    for part in filter(None, text.replace(" ", ",").split(",")):
        name, colon, size = part.partition(":")
        if not name or not colon or not size.isdigit():
            raise InputError(f"option 'maxima' expects symbol:size, separated by commas, but got '{part}'")
        sizes[name] = int(size)
    return sizes


def at_most(size: Size, maxima: Mapping[str, int]) -> int:
    """What the size is at most, for symbols up to their declared maxima, or to `DEFAULT_MAXIMUM`."""
    return largest(size, {symbol: maxima.get(symbol, DEFAULT_MAXIMUM) for symbol in size.symbols})


def product(sizes: Iterable[Size | int | str]) -> Size:
    """The product of sizes; 1 where there are none."""
    return reduce(lambda a, b: a * b, sizes, Size.of(1))


def largest(size: Size, maxima: Mapping[str, int]) -> int:
    """What the size is at most, for symbols up to their maxima, which it has for each; at least 0."""
    _, high = size.bounds(maxima)
    return max(int(high), 0)


def broadcast(*shapes: Iterable[Size]) -> tuple[Size, ...]:
    """Numpy's broadcasting of shapes: a size beats 1, a number symbols, a symbol what is made of some.

    Of others the first stays. Calls must give equal sizes, whatever they are: `min(s, 128)` and s are both s then.
    """
    aligned: list[Size] = []
    for shape in shapes:
        sizes = list(shape)
        if len(sizes) > len(aligned):
            aligned = [Size.of(1)] * (len(sizes) - len(aligned)) + aligned
        for position, size in enumerate(reversed(sizes), start=1):
            current = aligned[-position]
            simpler = size.constant != 1 if size.constant is not None else size.is_symbol and not current.is_symbol
            if current.constant == 1 or (current.constant is None and simpler):
                aligned[-position] = size
    return tuple(aligned)


@lru_cache(4096)
def _number(value: int) -> Size:
    """The size of a number: graphs have few different ones, but many values."""
    return Size((((), value),) if value else ())


def _factor(factor: Factor) -> Size:
    return Size((((factor,), 1),))


def _size(totals: Mapping[tuple[Factor, ...], int]) -> Size:
    return Size(tuple(sorted(((factors, value) for factors, value in totals.items() if value), key=_order)))


def _order(term: tuple[tuple[Factor, ...], int]) -> tuple[str, ...]:
    return tuple(map(str, term[0]))


def _substituted(factor: Factor, sizes: Mapping[str, Size]) -> Size:
    """A factor with other sizes in place of its symbols."""
    if isinstance(factor, str):
        return sizes[factor]
    own, number = factor.size.substituted(sizes), Size.of(factor.number)
    return maximum(own, number) if isinstance(factor, Positive) else floordiv(own, number)


def _scaled(left: Bounds, right: Bounds) -> Bounds:
    """The bounds of a product."""
    ends = [a * b if a and b else 0 for a in left for b in right]
    return min(ends), max(ends)


#: The functions that sizes are written with, by their names in text.
_FUNCTIONS = {
    "floordiv": floordiv,
    "ceildiv": ceildiv,
    "mod": Size.__mod__,
    "max": maximum,
    "min": minimum,
}
_OPERATORS = {"*": Size.__mul__, "//": floordiv, "%": Size.__mod__}


class _Parser:
    """Reads the text of one size."""

    #: How deep what sizes are made of may be nested in text.
    DEPTH = 64
    _TOKEN = re.compile(r"\s*([A-Za-z_?][A-Za-z0-9_]*|[0-9]+|//|[-+*%(),])")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._depth = 0
        self._token = ""

    def run(self) -> Size:
        self._next()
        size = self._sum()
        if self._token:
            self._fail("the end")
        return size

    def _fail(self, expected: str) -> NoReturn:
        found = repr(self._token) if self._token else "the end"
        raise InputError(f"in the size {shortened(self._text)}, {expected} is expected, but there is {found}")

    def _next(self) -> str:
        """Steps on; returns what was there."""
        past = self._token
        found = self._TOKEN.match(self._text, self._at)
        if found is None and self._text[self._at :].strip():
            raise InputError(f"the size {shortened(self._text)} has a character that no size has")
        self._token = found.group(1) if found else ""
        self._at = found.end() if found else len(self._text)
        return past

    def _take(self, wanted: str) -> None:
        if self._token != wanted:
            self._fail(f"'{wanted}'")
        self._next()

    def _sum(self) -> Size:
        self._depth += 1
        if self._depth > self.DEPTH:
            raise InputError(f"the size {shortened(self._text)} is nested more than {self.DEPTH} deep")
        total = self._product()
        while self._token in ("+", "-"):
            sign = -1 if self._next() == "-" else 1
            total = total + self._product() * sign
        self._depth -= 1
        return total

    def _product(self) -> Size:
        sign = 1
        while self._token == "-":
            self._next()
            sign = -sign
        total = self._value() * sign
        while (combine := _OPERATORS.get(self._token)) is not None:
            self._next()
            total = combine(total, self._value())
        return total

    def _value(self) -> Size:
        word = self._token
        if word == "(":
            self._next()
            size = self._sum()
            self._take(")")
            return size
        if not word or word in (*_OPERATORS, "-", "+", ",", ")"):
            self._fail("a number, a symbol or a function")
        self._next()
        if word.isdigit():
            return Size.of(int(word))
        if self._token != "(":
            return Size.of(word)
        if word not in _FUNCTIONS:
            raise InputError(
                f"sizes have the functions {', '.join(_FUNCTIONS)}, but {shortened(self._text)} has '{word}'"
            )
        self._next()
        left = self._sum()
        self._take(",")
        right = self._sum()
        self._take(")")
        return _FUNCTIONS[word](left, right)
