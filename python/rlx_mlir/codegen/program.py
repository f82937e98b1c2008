# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar operations, and the fused scalar program that a matrix product ends with; the same for every target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Emitter, Operand, Value, element_of, shape_of, with_element
from rlx_mlir.mir.algebra import Op, Primitive
from rlx_mlir.mir.functions import FUNCTIONS, Elementwise, of_arity

Unary = Callable[[Emitter, Value], Value]


Rule = Callable[..., Value]
"""What emits a step of a formula, from its operands; some of them may be numbers."""


def _maximum(em: Emitter, x: Operand, y: Operand) -> Value:
    # A comparison that is false for NaN lets NaN through, in two instructions; maximumf needs four on x86.
    if isinstance(x, Value) and not isinstance(y, Value):
        return em.select(em.cmpf("ole", x, y), y, x)
    return em.maximumf(x, y)


def _fma(em: Emitter, a: Operand, b: Operand, c: Operand) -> Value:
    kind = next(x.type for x in (a, b, c) if isinstance(x, Value))
    return em.fma(*(x if isinstance(x, Value) else em.const(x, kind) for x in (a, b, c)))


#: The steps of formulas as operations of arith and math; other primitives are those of math, by their names.
RULES: Mapping[str, Rule] = {
    "add": lambda em, x, y: x + y,
    "sub": lambda em, x, y: x - y,
    "mul": lambda em, x, y: x * y,
    "div": lambda em, x, y: x / y,
    "neg": lambda em, x: -x,
    "max": _maximum,
    "min": lambda em, x, y: em.minimumf(x, y),
    "less": lambda em, x, y: em.cmpf("olt", x, y),
    "equal": lambda em, x, y: em.cmpf("oeq", x, y),
    "select": lambda em, condition, x, y: em.select(condition, x, y),
    "multiply_add": lambda em, a, b, c: a * b + c,
    "fma": _fma,
}


#: The same on integers, which are signed, and on conditions.
INTEGER_RULES: Mapping[str, Rule] = {
    "add": lambda em, x, y: x + y,
    "sub": lambda em, x, y: x - y,
    "mul": lambda em, x, y: x * y,
    "max": lambda em, x, y: em.binary("arith.maxsi", x, y),
    "min": lambda em, x, y: em.binary("arith.minsi", x, y),
    "less": lambda em, x, y: em.cmpi("slt", x, y),
    "equal": lambda em, x, y: em.cmpi("eq", x, y),
    "select": lambda em, condition, x, y: em.select(condition, x, y),
    "and": lambda em, x, y: x & y,
    "or": lambda em, x, y: x | y,
    "xor": lambda em, x, y: x ^ y,
    "quotient": lambda em, x, y: em.binary("arith.divsi", x, y),
    "remainder": lambda em, x, y: em.binary("arith.remsi", x, y),
}


#: And on integers without sign.
UNSIGNED_RULES: Mapping[str, Rule] = {
    **INTEGER_RULES,
    "max": lambda em, x, y: em.binary("arith.maxui", x, y),
    "min": lambda em, x, y: em.binary("arith.minui", x, y),
    "less": lambda em, x, y: em.cmpi("ult", x, y),
    "quotient": lambda em, x, y: em.binary("arith.divui", x, y),
    "remainder": lambda em, x, y: em.binary("arith.remui", x, y),
}


def emit_function(
    em: Emitter, record: Elementwise, rules: Mapping[str, Rule], *operands: Value, element: str = ""
) -> Value:
    """A function of elements on scalars or vectors, by its formula.

    Args:
        rules: the target's own, which cover `RULES` or `INTEGER_RULES`; by the name of a primitive, its own form of it.
        element: the elements' type where registers have another one: of integers without sign.
    """

    def step(op: Op, values: Sequence[Value | float]) -> Value:
        name = op.name if isinstance(op, Primitive) else op
        if name in rules:
            return rules[name](em, *values)
        own = [x if isinstance(x, Value) else em.const(x, kind) for x in values]
        return em.op(f"math.{name} {', '.join(own)} : {kind}", kind)

    kind = operands[0].type
    found = record.formula_for(element or element_of(kind)).run(step, *operands)
    return found if isinstance(found, Value) else em.const(found, kind)


def unary_functions(rules: Mapping[str, Rule]) -> dict[str, Unary]:
    """What emits each function of one float by a target's rules, by its MIR name."""
    return {word: _emitter(record, rules) for word, record in of_arity(1, "f32").items()}


def _emitter(record: Elementwise, rules: Mapping[str, Rule]) -> Unary:
    return lambda em, x: emit_function(em, record, rules, x)


#: Per type of 16 bits: the bits of f32 that it lacks at the end of the fraction.
_LACKS = {"f16": 13, "bf16": 16}


def _rounded(element: str) -> Unary:
    """f32 as the nearest number of a narrower type, ties to even, as f32; done on integers, as instructions for it
    aren't everywhere."""
    lacks = _LACKS[element]
    mask = (1 << lacks) - 1

    def apply(em: Emitter, x: Value) -> Value:
        bits = em.bitcast(x, with_element(x.type, "i32"))
        size = bits & 0x7FFFFFFF
        odd = (size >> lacks) & 1
        near = (size + odd + (mask >> 1)) & ~mask
        if element == "f16":
            # Below 2^-14 numbers are multiples of 2^-24, those of f32 from 0.5 to 1; from 2^16 on there are none.
            small = em.bitcast(em.bitcast(size, x.type) + 0.5 - 0.5, size.type)
            near = em.select(em.cmpi("ult", size, 113 << 23), small, near)
            near = em.select(em.cmpi("uge", near, 143 << 23), 0x7F800000, near)
        signed = em.bitcast(near | (bits & -0x80000000), x.type)
        return em.select(em.cmpf("uno", x, x), x, signed)

    return apply


UNARY: dict[str, Unary] = {
    **unary_functions(RULES),
    **{f"to_{element}": _rounded(element) for element in _LACKS},
}
"""The operations of one operand, as operations of arith and math; to_f16 and to_bf16 round f32 to what f16 and bf16
have."""

ELEMENTWISE = {
    **dict.fromkeys(UNARY, 1),
    **{word: record.arity for word, record in FUNCTIONS.items()},
    "where": 3,
}
"""The operations by their MIR names, with their number of operands."""


def emit_elementwise(
    em: Emitter, op: str, operands: Sequence[Value], type: str, unary: Mapping[str, Unary] = UNARY, element: str = ""
) -> Value:
    """One MIR scalar operation on scalars or vectors of `type`; scalar operands of a vector operation are broadcast.

    `unary` are the target's own forms of operations of one operand. `element` is the elements' type where registers
    have another one: of integers without sign.

    NaN goes through relu, max and min; sigmoid and silu saturate without NaN for every finite x; round is half to even.
    Functions of integers and of conditions are those that take them; `where` takes its condition (i1) first.
    """
    if op not in ELEMENTWISE:
        raise UnsupportedByTemplate(f"elementwise: unknown operation '{op}'; known are {', '.join(ELEMENTWISE)}")
    if len(operands) != ELEMENTWISE[op]:
        raise ValueError(f"elementwise {op}: expects {ELEMENTWISE[op]} operands, but got {len(operands)}")
    if op == "where":
        condition, on_true, on_false = operands
        return em.select(condition, _shaped(em, on_true, type), _shaped(em, on_false, type))
    shaped = [_shaped(em, operand, type) for operand in operands]
    floating, record = element_of(type).startswith(("f", "bf")), FUNCTIONS.get(op)
    element = element or element_of(type)
    if not (floating if record is None else record.takes(element)):
        raise UnsupportedByTemplate(f"elementwise {op}: there is none of {type}")
    if record is None or (floating and record.arity == 1):
        return unary[op](em, shaped[0])
    rules = RULES if floating else UNSIGNED_RULES if element.startswith("u") else INTEGER_RULES
    return emit_function(em, record, rules, *shaped, element=element)


def _shaped(em: Emitter, x: Value, type: str) -> Value:
    if x.type == type:
        return x
    if element_of(x.type) != element_of(type) or shape_of(x.type):
        raise ValueError(f"elementwise: expects operands of type {type} or {element_of(type)}, but got {x.type}")
    return em.broadcast(x, type)


Ref = tuple[Literal["acc", "arg", "step", "const"], float]
"""An operand of a step: ("acc", i) the i-th product, ("arg", i) an argument, ("step", i) an earlier step's value,
("const", x) a number."""

Broadcast = Literal["full", "row", "column", "scalar"]


@dataclass(frozen=True)
class Step:
    """One scalar operation, by its MIR name."""

    op: str
    inputs: tuple[Ref, ...]


@dataclass(frozen=True)
class Argument:
    """A further f32 operand of a program on the elements (m, n) of a product [M, N].

    broadcast: "full" has the output's elements, "row" is indexed by n alone (a bias, N elements), "column" by m alone
    (M elements), "scalar" has one element. `shape` is the buffer's, where it isn't the natural one: the output's shape
    for "full", [N] for "row", [] for "scalar". `element` is its type, where that isn't the outputs'.
    """

    broadcast: Broadcast
    shape: tuple[int | None, ...] | None = None
    element: str = ""


@dataclass(frozen=True)
class Program:
    """outputs = steps(accumulators, arguments), element by element; each output is a buffer of its own."""

    steps: tuple[Step, ...] = ()
    arguments: tuple[Argument, ...] = ()
    outputs: tuple[Ref, ...] = ()
    accumulators: int = 1

    def __post_init__(self) -> None:
        for i, step in enumerate(self.steps):
            if len(step.inputs) != ELEMENTWISE.get(step.op, -1) or step.op == "where":
                raise UnsupportedByTemplate(
                    f"epilogue step {i}: no operation '{step.op}' with {len(step.inputs)} operands"
                )
            for ref in step.inputs:
                self._check(f"epilogue step {i}", ref, i)
        for i, ref in enumerate(self.results):
            self._check(f"epilogue output {i}", ref, len(self.steps))

    def _check(self, where: str, ref: Ref, steps: int) -> None:
        kind, index = ref
        limits = {"acc": self.accumulators, "arg": len(self.arguments), "step": steps}
        if kind != "const" and (kind not in limits or not 0 <= index < limits[kind]):
            raise ValueError(f"{where}: there is no {kind} {index}; {limits.get(kind, 0)} can be used here")

    @property
    def results(self) -> tuple[Ref, ...]:
        """`outputs`; where none is given, the last step's value or the first product."""
        return self.outputs or ((("step", len(self.steps) - 1),) if self.steps else (("acc", 0),))

    def emit(
        self,
        em: Emitter,
        products: Sequence[Value],
        argument: Callable[[int], Value],
        unary: Mapping[str, Unary] = UNARY,
    ) -> list[Value]:
        """The outputs for scalars or vectors of products; `argument(i)` loads a vector or a scalar of argument i."""
        type = products[0].type
        loaded: dict[int, Value] = {}
        values: list[Value] = []

        def resolve(ref: Ref) -> Value:
            kind, index = ref
            if kind == "const":
                return em.const(float(index), type)
            i = int(index)
            if kind == "acc":
                return products[i]
            if kind == "step":
                return values[i]
            if i not in loaded:
                loaded[i] = _shaped(em, argument(i), type)
            return loaded[i]

        for step in self.steps:
            values.append(emit_elementwise(em, step.op, [resolve(ref) for ref in step.inputs], type, unary))
        return [resolve(ref) for ref in self.results]


IDENTITY = Program()
"""The product itself."""

SWIGLU = Program((Step("silu", (("acc", 0),)), Step("mul", (("step", 0), ("acc", 1)))), accumulators=2)
"""silu(gate) * up, for two products gate and up of one x."""
