# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small emitter of MLIR text, so that kernel templates read like code.

A template holds an `Emitter` and calls one method per operation; every method returns a `Value`, the SSA name that
knows its type:

    em = Emitter()
    lanes = vec(16, "f32")
    arguments = [("x", memref((None,), "f32")), ("begin", "index"), ("end", "index")]
    with em.func("scale.body", arguments) as (x, begin, end):
        with em.loop(begin, end, 16) as loop:
            em.vstore(em.vload(x, [loop.iv], lanes) * 0.5, x, [loop.iv])
    text = em.text()

- A `Value` is a `str` (its name), so operations that have no method are one f-string:
  `em.op(f"math.ctpop {v} : {v.type}", v.type)`.
- Python numbers stand for constants: of the other operand's type in arithmetic (splat where that is a vector), of type
  `index_type` in subscripts and loop bounds. Constants are pooled at the head of their function.
- Values have Python's operators, by their types; arithmetic of indices folds what is known: `i + 0` is `i`.
- Regions (`func`, `loop`, `if_`, `switch`) are context managers. A loop's `carry` is a value or a structure of values:
  lists, tuples, dataclasses; inside it is `loop.carry`, `loop.yield_` gives the next one, `loop.result` is the last.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, overload

import numpy as np

from rlx_mlir.codegen.structures import Nested, Structure, described, flatten, unflatten


class Value(str):
    """An SSA value: the string is its name (`%x`, `%r#1`), `type` its MLIR type.

    Operators emit operations, of integers or floats, scalars or vectors, as the type says. On integers, `//`, `%` and
    `>>` are unsigned; on scalars, `+ - * // %` fold: what is 0 whatever the value is, `x * 0` and `x % 1`, is Python's
    int, which every method takes in place of an index. Comparisons have predicates: `Emitter.cmpi`, `Emitter.cmpf`.
    """

    type: str
    emitter: Emitter | None

    def __new__(cls, name: str, type: str, emitter: Emitter | None = None) -> Value:
        value = super().__new__(cls, name)
        value.type, value.emitter = type, emitter
        return value

    def _emit(self, word: str, lhs: Operand, rhs: Operand) -> Value:
        if not isinstance(lhs, Value | int | float) or not isinstance(rhs, Value | int | float):
            return NotImplemented
        if self.emitter is None:
            raise TypeError(f"nothing can be computed from {self}, which no emitter has made")
        return self.emitter.arithmetic(word, lhs, rhs)

    def __add__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._emit("+", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self._emit("+", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self._emit("-", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self._emit("-", other, self)

    def __mul__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._emit("*", self, other)

    def __rmul__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._emit("*", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self._emit("/", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._emit("/", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        return self._emit("//", self, other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return self._emit("//", other, self)

    def __mod__(self, other: Operand) -> Value:
        return self._emit("%", self, other)

    def __rmod__(self, other: Operand) -> Value:
        return self._emit("%", other, self)

    def __and__(self, other: Operand) -> Value:
        return self._emit("&", self, other)

    def __rand__(self, other: Operand) -> Value:
        return self._emit("&", other, self)

    def __or__(self, other: Operand) -> Value:
        return self._emit("|", self, other)

    def __ror__(self, other: Operand) -> Value:
        return self._emit("|", other, self)

    def __xor__(self, other: Operand) -> Value:
        return self._emit("^", self, other)

    def __rxor__(self, other: Operand) -> Value:
        return self._emit("^", other, self)

    def __lshift__(self, other: Operand) -> Value:
        return self._emit("<<", self, other)

    def __rlshift__(self, other: Operand) -> Value:
        return self._emit("<<", other, self)

    def __rshift__(self, other: Operand) -> Value:
        return self._emit(">>", self, other)

    def __rrshift__(self, other: Operand) -> Value:
        return self._emit(">>", other, self)

    def __neg__(self) -> Value:
        is_float = _is_float(element_of(self.type))
        return self.emitter.unary("arith.negf", self) if is_float and self.emitter else self._emit("-", 0, self)


Index = Value | int
Operand = Value | int | float

#: The operations of operators, on integers and on floats.
_ARITHMETIC = {
    "+": ("arith.addi", "arith.addf"),
    "-": ("arith.subi", "arith.subf"),
    "*": ("arith.muli", "arith.mulf"),
    "/": ("", "arith.divf"),
    "//": ("arith.divui", ""),
    "%": ("arith.remui", ""),
    "&": ("arith.andi", ""),
    "|": ("arith.ori", ""),
    "^": ("arith.xori", ""),
    "<<": ("arith.shli", ""),
    ">>": ("arith.shrui", ""),
}

_SHAPED = re.compile(r"^(?:vector|memref)<((?:(?:\d+|\?)x)*)([^,>]+)")
_FLOAT_BITS = {"f16": ("<e", "<H", 4), "f32": ("<f", "<I", 8), "f64": ("<d", "<Q", 16)}


def vec(lanes: int, element: str) -> str:
    """The type of a vector of `lanes` elements: `vec(16, "f32") == "vector<16xf32>"`."""
    return f"vector<{lanes}x{element}>"


def memref(shape: Sequence[int | None], element: str) -> str:
    """The type of an identity-layout buffer, None where dynamic: `memref((None, 4), "f32") == "memref<?x4xf32>"`."""
    return f"memref<{''.join('?x' if size is None else f'{size}x' for size in shape)}{element}>"


def shape_of(type: str) -> tuple[int | None, ...]:
    """The sizes of a vector or memref type, None where dynamic; () for a scalar type."""
    match = _SHAPED.match(type)
    if match is None:
        return ()
    return tuple(None if size == "?" else int(size) for size in match.group(1).split("x")[:-1])


def element_of(type: str) -> str:
    """The element type of a vector or memref type; the type itself for a scalar."""
    match = _SHAPED.match(type)
    return type if match is None else match.group(2)


def with_element(type: str, element: str) -> str:
    """A vector or scalar type with another element: `with_element("vector<8xi32>", "f32") == "vector<8xf32>"`."""
    shape = shape_of(type)
    return f"vector<{''.join(f'{size}x' for size in shape)}{element}>" if type.startswith("vector") else element


def _float_literal(value: float, element: str) -> str:
    if math.isfinite(value):
        text = repr(float(value))
        mantissa, exponent, power = text.partition("e")
        return text if "." in mantissa else f"{mantissa}.0{exponent}{power}"
    if element == "bf16":
        return f"0x{struct.unpack('<I', struct.pack('<f', value))[0] >> 16:04X}"
    pack, unpack, digits = _FLOAT_BITS[element]
    return f"0x{struct.unpack(unpack, struct.pack(pack, value))[0]:0{digits}X}"


def _is_float(element: str) -> bool:
    return element.startswith(("f", "bf"))


def _literal(value: float | bool, element: str) -> str:
    if isinstance(value, bool) or element == "i1":
        return "true" if value else "false"
    return _float_literal(float(value), element) if _is_float(element) else str(int(value))


class _Region(Generic[Structure]):
    """A region that ends by yielding a structure as `like` is one, of the same types."""

    def __init__(self, emitter: Emitter, name: str, like: object) -> None:
        self._emitter, self._name, self._like = emitter, name, like

    def yield_(self, values: Structure) -> None:
        """Ends the region; TypeError where `values` has another form or other types than the region carries."""
        expected, given = described(self._like), described(values)
        if given != expected:
            raise TypeError(f"{self._name}: expects to yield {expected}, but got {given}")
        if leaves := flatten(values):
            self._emitter.line(f"scf.yield {', '.join(leaves)} : {', '.join(leaf.type for leaf in leaves)}")


class Loop(_Region[Structure]):
    """One `scf.for`.

    Attributes:
        iv: what counts.
        carry: what was carried in, in this iteration; `yield_` ends it with what the next one gets.
        result: the same after the last iteration.
    """

    def __init__(self, emitter: Emitter, iv: Value, inits: Structure, carry: Structure, result: Structure) -> None:
        super().__init__(emitter, "loop", inits)
        self.iv, self.carry, self.result = iv, carry, result
        self.yielded = not flatten(inits)

    def yield_(self, values: Structure) -> None:
        """Ends an iteration: `values` are the next one's `carry`; TypeError where form or types differ."""
        super().yield_(values)
        self.yielded = True


class Branch(_Region[Structure]):
    """One `scf.if`; where it has results, each side ends in `yield_`, and `else_()` stands between them.

    Attributes:
        result: what the side that runs yields.
    """

    def __init__(self, emitter: Emitter, like: object, result: Structure) -> None:
        super().__init__(emitter, "if", like)
        self.result = result

    def else_(self) -> None:
        """Starts the other side."""
        self._emitter.dedent()
        self._emitter.line("} else {")
        self._emitter.indent()


class Switch:
    """One `scf.index_switch` without results: `with switch.case(3): ...`; no case taken does nothing."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    @contextmanager
    def case(self, value: int) -> Iterator[None]:
        """The region that runs when the selector equals `value`."""
        em = self._emitter
        em.line(f"case {value} {{")
        em.indent()
        yield
        em.line("scf.yield")
        em.dedent()
        em.line("}")


#: Those that fold on integer scalars.
_FOLDED = ("+", "-", "*", "//", "%")


def _fold(word: str, lhs: Operand, rhs: Operand) -> Operand | None:
    """The result of an operation on an integer scalar and 0 or 1, or None where it has to be computed."""
    if word in ("+", "*") and not isinstance(lhs, Value):
        lhs, rhs = rhs, lhs
    if isinstance(rhs, Value) or rhs not in (0, 1):
        return None
    if rhs == 0:
        return lhs if word in ("+", "-") else 0 if word == "*" else None
    return lhs if word in ("*", "//") else 0 if word == "%" else None


class Emitter:
    """Collects the text of functions; see the module's docstring for the idea."""

    #: Type of Python ints in subscripts, bounds of loops and constants without a type.
    index_type = "index"

    def __init__(self) -> None:
        self._done: list[str] = []
        self._lines: list[str] = []
        self._depth = 0
        self._constants: dict[tuple[str, str], Value] = {}
        self._names: dict[str, int] = {}
        self._tables: dict[str, str] = {}

    # -- text ---------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """All tables and finished functions, in the order of their definition."""
        return "\n".join([*self._tables.values(), *self._done]) + "\n"

    def line(self, text: str) -> None:
        """Appends one line at the present indentation."""
        self._lines.append("  " * self._depth + text)

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def fresh(self, hint: str = "v") -> str:
        """A new SSA name that starts with `hint`."""
        count = self._names.get(hint, 0)
        self._names[hint] = count + 1
        return f"%{hint}_{count}"

    def op(self, text: str, type: str, hint: str = "v") -> Value:
        """Emits `%fresh = text` and returns it as a value of `type`."""
        name = self.fresh(hint)
        self.line(f"{name} = {text}")
        return Value(name, type, self)

    def ops(self, text: str, types: Sequence[str], hint: str = "r") -> list[Value]:
        """Emits an operation with any number of results."""
        if not types:
            self.line(text)
            return []
        name = self.fresh(hint)
        if len(types) == 1:
            self.line(f"{name} = {text}")
            return [Value(name, types[0], self)]
        self.line(f"{name}:{len(types)} = {text}")
        return [Value(f"{name}#{i}", type, self) for i, type in enumerate(types)]

    # -- constants ----------------------------------------------------------------------------------------------------

    def const(self, value: float | bool | Sequence[float], type: str = "") -> Value:
        """A constant, pooled at the head of the function; a number splats over a vector type, a sequence lists it."""
        type = type or self.index_type
        element = element_of(type)
        if isinstance(value, (int, float)):
            literal = _literal(value, element)
            if type.startswith("vector"):
                literal = f"dense<{literal}>"
        else:
            literal = f"dense<[{', '.join(_literal(item, element) for item in value)}]>"
        key = (literal, type)
        if key not in self._constants:
            plain = re.fullmatch(r"-?\d+", literal) and type == self.index_type
            name = f"%c{literal.replace('-', 'm')}" if plain else self.fresh("cst")
            self._constants[key] = Value(name, type, self)
        return self._constants[key]

    def zero(self, type: str) -> Value:
        """Zero of a scalar or vector type."""
        return self.const(0, type)

    def index(self, value: Index) -> Value:
        """An index operand: a Python int becomes a constant."""
        return value if isinstance(value, Value) else self.const(value)

    def _pair(self, lhs: Operand, rhs: Operand) -> tuple[Value, Value]:
        if isinstance(lhs, Value):
            return lhs, rhs if isinstance(rhs, Value) else self.const(rhs, lhs.type)
        if isinstance(rhs, Value):
            return self.const(lhs, rhs.type), rhs
        if isinstance(lhs, int) and isinstance(rhs, int):
            return self.const(lhs), self.const(rhs)
        raise TypeError(f"one operand has to be a Value, or both an int, but got {lhs!r} and {rhs!r}")

    # -- functions and regions ----------------------------------------------------------------------------------------

    @contextmanager
    def func(
        self,
        name: str,
        arguments: Sequence[tuple[str, str]],
        results: Sequence[str] = (),
        *,
        visibility: str = "private",
    ) -> Iterator[list[Value]]:
        """`func.func @name(arguments) -> results`; `arguments` are (name, type). With results, end it by `return_`.

        Argument names must not look like `c8` or `v_8`, which are the emitter's own.
        """
        values = [Value(f"%{argument}", type, self) for argument, type in arguments]
        self._begin()
        yield values
        if not results:
            self.line("return")
        signature = ", ".join(f"{value}: {value.type}" for value in values)
        arrow = f" -> ({', '.join(results)})" if len(results) > 1 else f" -> {results[0]}" if results else ""
        self._finish(f"func.func {visibility + ' ' if visibility else ''}@{name}({signature}){arrow} {{")

    def _begin(self) -> None:
        """Starts a function's text."""
        self._lines, self._constants, self._names, self._depth = [], {}, {}, 1

    def _finish(self, head: str) -> None:
        """Ends a function's text: its first line, the constants, what was emitted."""
        constants = [
            f"  {value} = arith.constant {literal}{'' if value.type == 'i1' else f' : {value.type}'}"
            for (literal, _), value in self._constants.items()
        ]
        self._done.append("\n".join([head, *constants, *self._lines, "}"]))
        self._lines, self._depth = [], 0

    def return_(self, values: Sequence[Value]) -> None:
        """Ends a function that has results."""
        self.line(f"return {', '.join(values)} : {', '.join(value.type for value in values)}")

    @overload
    def loop(
        self, lower: Index, upper: Index, step: Index = ..., *, hint: str = ...
    ) -> AbstractContextManager[Loop[tuple[()]]]: ...
    @overload
    def loop(
        self, lower: Index, upper: Index, step: Index, carry: Structure, hint: str = ...
    ) -> AbstractContextManager[Loop[Structure]]: ...
    @overload
    def loop(
        self, lower: Index, upper: Index, *, carry: Structure, hint: str = ...
    ) -> AbstractContextManager[Loop[Structure]]: ...

    @contextmanager
    def loop(
        self, lower: Index, upper: Index, step: Index = 1, carry: Nested = (), hint: str = "i"
    ) -> Iterator[Loop[Nested]]:
        """`for iv in range(lower, upper, step)`; `loop.result` is valid after the block.

        Args:
            carry: what the first iteration gets: a value, or a structure of values (`codegen.structures`).
        """
        type = next((bound.type for bound in (lower, upper, step) if isinstance(bound, Value)), self.index_type)
        bounds = [bound if isinstance(bound, Value) else self.const(bound, type) for bound in (lower, upper, step)]
        iv = Value(self.fresh(hint), type, self)
        inits = flatten(carry)
        arguments = [Value(self.fresh("a"), init.type, self) for init in inits]
        types = [init.type for init in inits]
        head = f"scf.for {iv} = {bounds[0]} to {bounds[1]} step {bounds[2]}"
        if inits:
            carried = ", ".join(f"{argument} = {init}" for argument, init in zip(arguments, inits, strict=True))
            head += f" iter_args({carried}) -> ({', '.join(types)})"
        head += "" if type == "index" else f" : {type}"
        results = self.ops(head + " {", types)
        loop: Loop[Nested] = Loop(self, iv, carry, unflatten(carry, arguments), unflatten(carry, results))
        self.indent()
        yield loop
        if not loop.yielded:
            raise ValueError("loop: values are carried, but the block ends without `yield_`")
        self.dedent()
        self.line("}")

    @overload
    def if_(self, condition: Value) -> AbstractContextManager[Branch[tuple[()]]]: ...
    @overload
    def if_(self, condition: Value, like: str) -> AbstractContextManager[Branch[Value]]: ...
    @overload
    def if_(self, condition: Value, like: list[str]) -> AbstractContextManager[Branch[list[Value]]]: ...
    @overload
    def if_(self, condition: Value, like: Structure) -> AbstractContextManager[Branch[Structure]]: ...

    @contextmanager
    def if_(self, condition: Value, like: Nested = ()) -> Iterator[Branch[Nested]]:
        """`if condition`.

        Args:
            like: what both sides have to `yield_`: types, or values of these types, in a structure.
        """
        types = [str(getattr(leaf, "type", leaf)) for leaf in flatten(like)]
        arrow = f" -> ({', '.join(types)})" if types else ""
        results = self.ops(f"scf.if {condition}{arrow} {{", types)
        branch: Branch[Nested] = Branch(self, like, unflatten(like, results))
        self.indent()
        yield branch
        self.dedent()
        self.line("}")

    @contextmanager
    def switch(self, selector: Value) -> Iterator[Switch]:
        """`switch (selector)` over index values."""
        self.line(f"scf.index_switch {selector}")
        yield Switch(self)
        self.line("default {")
        self.line("}")

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def arithmetic(self, word: str, lhs: Operand, rhs: Operand) -> Value:
        """What an operator of values emits; on integer scalars it folds where one side is Python's 0 or 1."""
        type = (lhs if isinstance(lhs, Value) else rhs).type  # type: ignore[union-attr]
        of_integers, of_floats = _ARITHMETIC[word]
        is_float = _is_float(element_of(type))
        op = of_floats if is_float else of_integers
        if not op:
            raise TypeError(f"{lhs} {word} {rhs}: there is no such operation on {type}")
        folds = word in _FOLDED and not is_float and not type.startswith("vector")
        folded = _fold(word, lhs, rhs) if folds else None
        return self.binary(op, lhs, rhs) if folded is None else folded  # type: ignore[return-value]

    def iceildiv(self, lhs: Index, rhs: Index) -> Index:
        """Quotient, rounded up."""
        return (lhs + (rhs - 1)) // rhs

    def imin(self, lhs: Index, rhs: Index) -> Index:
        if isinstance(lhs, int) and isinstance(rhs, int):
            return min(lhs, rhs)
        return self.binary("arith.minsi", lhs, rhs)

    def imax(self, lhs: Index, rhs: Index) -> Index:
        if isinstance(lhs, int) and isinstance(rhs, int):
            return max(lhs, rhs)
        return self.binary("arith.maxsi", lhs, rhs)

    # -- arithmetic on scalars and vectors ----------------------------------------------------------------------------

    def binary(self, op: str, lhs: Operand, rhs: Operand, fastmath: str = "") -> Value:
        """Any two-operand operation with operands and result of one type, e.g. `arith.addf`, `math.powf`."""
        left, right = self._pair(lhs, rhs)
        if left.type != right.type:
            raise TypeError(f"{op}: expects two operands of one type, but got {left.type} and {right.type}")
        flags = f" fastmath<{fastmath}>" if fastmath else ""
        return self.op(f"{op} {left}, {right}{flags} : {left.type}", left.type)

    def unary(self, op: str, x: Value) -> Value:
        """Any one-operand operation whose result has its operand's type, e.g. `math.exp`, `arith.negf`."""
        return self.op(f"{op} {x} : {x.type}", x.type)

    def maximumf(self, lhs: Operand, rhs: Operand) -> Value:
        """The larger one; NaN where either is NaN."""
        return self.binary("arith.maximumf", lhs, rhs)

    def minimumf(self, lhs: Operand, rhs: Operand) -> Value:
        """The smaller one; NaN where either is NaN."""
        return self.binary("arith.minimumf", lhs, rhs)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, rounded once (vectors and scalars)."""
        name = "vector.fma" if a.type.startswith("vector") else "math.fma"
        return self.op(f"{name} {a}, {b}, {c} : {a.type}", a.type)

    def cmpf(self, predicate: str, lhs: Operand, rhs: Operand) -> Value:
        """`predicate` as arith.cmpf names it: oeq, olt, une, uno, ..."""
        return self._compare("arith.cmpf", predicate, lhs, rhs)

    def cmpi(self, predicate: str, lhs: Operand, rhs: Operand) -> Value:
        """`predicate` as arith.cmpi names it: eq, ne, slt, ult, ..."""
        return self._compare("arith.cmpi", predicate, lhs, rhs)

    def _compare(self, op: str, predicate: str, lhs: Operand, rhs: Operand) -> Value:
        left, right = self._pair(lhs, rhs)
        return self.op(f"{op} {predicate}, {left}, {right} : {left.type}", with_element(left.type, "i1"))

    def select(self, condition: Value, on_true: Operand, on_false: Operand) -> Value:
        """Element by element where `condition` is a vector, else one of the two values."""
        left, right = self._pair(on_true, on_false)
        kind = f"{condition.type}, {left.type}" if condition.type.startswith("vector") else left.type
        return self.op(f"arith.select {condition}, {left}, {right} : {kind}", left.type)

    def cast(self, op: str, x: Value, type: str) -> Value:
        """A conversion: `cast("arith.extf", v, vec(8, "f32"))`, `arith.sitofp`, `arith.index_cast`, ..."""
        return self.op(f"{op} {x} : {x.type} to {type}", type)

    def bitcast(self, x: Value, type: str) -> Value:
        """The same bits as another vector (any lane width) or scalar type."""
        return self.cast("vector.bitcast" if x.type.startswith("vector") else "arith.bitcast", x, type)

    def intrinsic(self, name: str, operands: Sequence[Value], type: str) -> Value:
        """An LLVM intrinsic, e.g. `llvm.x86.avx512.vpdpbusd.512`; the caller has checked that the target has it."""
        types = ", ".join(operand.type for operand in operands)
        return self.op(f'llvm.call_intrinsic "{name}"({", ".join(operands)}) : ({types}) -> {type}', type)

    # -- vectors ------------------------------------------------------------------------------------------------------

    def broadcast(self, x: Value, type: str) -> Value:
        """`x`, a scalar or a shorter shape, repeated to the vector `type`."""
        return self.op(f"vector.broadcast {x} : {x.type} to {type}", type)

    def extract(self, x: Value, position: int) -> Value:
        """One lane of a 1-D vector."""
        return self.op(f"vector.extract {x}[{position}] : {element_of(x.type)} from {x.type}", element_of(x.type))

    def vector(self, values: Sequence[Value]) -> Value:
        """A 1-D vector of scalars, all of one type."""
        type = vec(len(values), values[0].type)
        return self.op(f"vector.from_elements {', '.join(values)} : {type}", type)

    def shuffle(self, lhs: Value, rhs: Value, lanes: Sequence[int]) -> Value:
        """Lanes picked from the concatenation of two vectors."""
        type = vec(len(lanes), element_of(lhs.type))
        return self.op(f"vector.shuffle {lhs}, {rhs} [{', '.join(map(str, lanes))}] : {lhs.type}, {rhs.type}", type)

    def slice(self, x: Value, offset: int, lanes: int) -> Value:
        """`lanes` consecutive lanes of a 1-D vector, from `offset`."""
        return self.shuffle(x, x, range(offset, offset + lanes))

    def reduce(self, kind: str, x: Value, fastmath: str = "") -> Value:
        """All lanes in one: add, mul, maximumf, minimumf, maxsi, and, ...; in lane order without `fastmath` reassoc."""
        element = element_of(x.type)
        flags = f" fastmath<{fastmath}>" if fastmath else ""
        return self.op(f"vector.reduction <{kind}>, {x}{flags} : {x.type} into {element}", element)

    def mask(self, count: Index, lanes: int) -> Value:
        """A mask whose first `count` lanes are set (all if `count` exceeds `lanes`)."""
        type = vec(lanes, "i1")
        return self.op(f"vector.create_mask {self.index(count)} : {type}", type, "mask")

    # -- tables -------------------------------------------------------------------------------------------------------

    def table(self, symbol: str, numbers: np.ndarray) -> Value:
        """Numbers of f32 or f64 that are known at compile time, as a buffer that isn't written; one for each symbol."""
        type = memref(numbers.shape, {4: "f32", 8: "f64"}[numbers.itemsize])
        if symbol not in self._tables:
            raw = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<")).tobytes().hex().upper()
            self._tables[symbol] = f'memref.global "private" constant @{symbol} : {type} = dense<"0x{raw}">'
        return self.op(f"memref.get_global @{symbol} : {type}", type, "table")

    # -- memory -------------------------------------------------------------------------------------------------------

    def _at(self, buffer: Value, indices: Sequence[Index]) -> str:
        return f"{buffer}[{', '.join(self.index(index) for index in indices)}]"

    def load(self, buffer: Value, indices: Sequence[Index]) -> Value:
        """One element."""
        return self.op(f"memref.load {self._at(buffer, indices)} : {buffer.type}", element_of(buffer.type))

    def store(self, value: Value, buffer: Value, indices: Sequence[Index]) -> None:
        """One element."""
        self.line(f"memref.store {value}, {self._at(buffer, indices)} : {buffer.type}")

    def vload(self, buffer: Value, indices: Sequence[Index], type: str, mask: Value | None = None) -> Value:
        """Consecutive elements of the last dimension as one vector; no alignment beyond the element's is assumed.

        Where a mask isn't set, memory isn't touched, and the vector is zero.
        """
        if mask is not None:
            return self.masked_load(buffer, indices, mask, self.zero(type))
        return self.op(f"vector.load {self._at(buffer, indices)} : {buffer.type}, {type}", type)

    def vstore(self, value: Value, buffer: Value, indices: Sequence[Index], mask: Value | None = None) -> None:
        """The inverse of `vload`."""
        if mask is not None:
            self.masked_store(value, buffer, indices, mask)
            return
        self.line(f"vector.store {value}, {self._at(buffer, indices)} : {buffer.type}, {value.type}")

    def stream(self, value: Value, buffer: Value, indices: Sequence[Index], alignment: int) -> None:
        """As `vstore`, past the caches, at an address that is a multiple of `alignment` bytes: the vector's size, which
        processors ask for. Later stores may come first, but for those after `fence_streams`."""
        attributes = f"{{alignment = {alignment} : i64, nontemporal = true}}"
        self.line(f"vector.store {value}, {self._at(buffer, indices)} {attributes} : {buffer.type}, {value.type}")

    def fence_streams(self) -> None:
        """Lets no later store come before those of `stream`; x86 alone has it by this name."""
        self.line('llvm.call_intrinsic "llvm.x86.sse.sfence"() : () -> ()')

    def address(self, buffer: Value) -> Value:
        """Where the first element of a buffer is, in bytes, as an index."""
        return self.op(f"memref.extract_aligned_pointer_as_index {buffer} : {buffer.type} -> index", "index", "start")

    def masked_load(self, buffer: Value, indices: Sequence[Index], mask: Value, other: Value) -> Value:
        """As `vload` where `mask` is set, `other` elsewhere; masked-off memory isn't touched."""
        at = self._at(buffer, indices)
        text = f"vector.maskedload {at}, {mask}, {other} : {buffer.type}, {mask.type}, {other.type} into {other.type}"
        return self.op(text, other.type)

    def masked_store(self, value: Value, buffer: Value, indices: Sequence[Index], mask: Value) -> None:
        """As `vstore` where `mask` is set; other memory isn't touched."""
        at = self._at(buffer, indices)
        self.line(f"vector.maskedstore {at}, {mask}, {value} : {buffer.type}, {mask.type}, {value.type}")

    def prefetch(self, buffer: Value, indices: Sequence[Index], locality: int = 3, *, write: bool = False) -> None:
        """Asks for the cache line of an element, which need not exist; `locality` 3 is nearest (L1), 0 streams."""
        mode = "write" if write else "read"
        self.line(f"memref.prefetch {self._at(buffer, indices)}, {mode}, locality<{locality}>, data : {buffer.type}")

    def dim(self, buffer: Value, axis: int) -> Index:
        """A size of a buffer: an int where its type says it."""
        size = shape_of(buffer.type)[axis]
        if size is not None:
            return size
        return self.op(f"memref.dim {buffer}, {self.const(axis)} : {buffer.type}", "index", "dim")

    def dims(self, buffer: Value, axes: Iterable[int]) -> Index:
        """The product of some sizes of a buffer; 1 of none."""
        count: Index = 1
        for axis in axes:
            count = count * self.dim(buffer, axis)
        return count

    def view(self, bytes_: Value, offset: Index, shape: Sequence[Index], element: str) -> Value:
        """A part of a byte buffer (1-D, i8) from byte `offset` on, as a buffer of `shape` and `element`."""
        type = memref([size if isinstance(size, int) else None for size in shape], element)
        sizes = ", ".join(size for size in shape if isinstance(size, Value))
        return self.op(f"memref.view {bytes_}[{self.index(offset)}][{sizes}] : {bytes_.type} to {type}", type, "view")

    def collapse(self, buffer: Value, groups: Sequence[Sequence[int]]) -> Value:
        """Joins neighbouring dimensions of an identity-layout buffer: `collapse(x, [[0, 1], [2]])`; no data moves."""
        sizes = shape_of(buffer.type)
        if all(len(group) == 1 for group in groups) and groups:
            return buffer
        shape: list[int | None] = []
        for group in groups:
            members = [sizes[axis] for axis in group]
            known = [size for size in members if size is not None]
            shape.append(math.prod(known) if len(known) == len(members) else None)
        type = memref(shape, element_of(buffer.type))
        text = ", ".join(f"[{', '.join(map(str, group))}]" for group in groups)
        return self.op(f"memref.collapse_shape {buffer} [{text}] : {buffer.type} into {type}", type, "flat")

    def rows(self, buffer: Value) -> Value:
        """An identity-layout buffer [..., K] as [M, K], M the product of the leading sizes (1 for rank 1)."""
        rank = len(shape_of(buffer.type))
        if rank == 1:
            size = self.dim(buffer, 0)
            type = memref([1, size if isinstance(size, int) else None], element_of(buffer.type))
            text = f"memref.expand_shape {buffer} [[0, 1]] output_shape [1, {size}] : {buffer.type} into {type}"
            return self.op(text, type, "flat")
        return self.collapse(buffer, [list(range(rank - 1)), [rank - 1]])

    def flat(self, buffer: Value) -> Value:
        """An identity-layout buffer of any rank as one dimension."""
        rank = len(shape_of(buffer.type))
        if rank:
            return self.collapse(buffer, [list(range(rank))])
        type = memref([1], element_of(buffer.type))
        return self.op(f"memref.expand_shape {buffer} [] output_shape [1] : {buffer.type} into {type}", type, "flat")
