# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of elements: one record each, of all that the compiler and its tools know of it.

`mir/elementwise.py` holds the records. Nothing lists the functions again: references, loops, the programs of kernel
templates, fusion, ranges, tolerances, costs, fuzzers and builders are made from `FUNCTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from rlx_mlir import ir
from rlx_mlir.mir.algebra import Formula
from rlx_mlir.mir.intervals import Rule
from rlx_mlir.mir.numerics import joined_parts


class Rounding(Enum):
    """What errors a function has.

    EXACT: none. STEP: none, but it jumps, so that errors of its operands may grow. ROUNDED: the exact value is rounded.
    FUNCTION: some units; compiled code has polynomials of its own.
    """

    EXACT = "exact"
    STEP = "step"
    ROUNDED = "rounded"
    FUNCTION = "function"


@dataclass(frozen=True)
class Elementwise:
    """What is known of an operation that applies a function to each element.

    Attributes:
        op: its class.
        doc: the function in a phrase; the docstring of the builder.
        formula: in f32, as code computes it; it says how many operands the operation has.
        interval: of its values, from those of its operands.
        rounding: its errors.
        precise: the same in f64, where the formula has the digits of f32 alone.
        reference: on numpy arrays of the accumulation type; the formula by default.
        derivatives: by each operand, as formulas of all operands; None for what has none here.
        flops: for each element.
        floats, integers, complexes, conditions: what operands may be: floats, integers, complex numbers, and i1.
        of_integers: the formula on integers of so many bits, where it is another one.
        of_unsigned: that on integers without sign, where it is yet another one.
        of_complex: the real and the imaginary part on complex numbers, as formulas of the parts of all operands; None
            where the formula itself is right.
        activation: whether products take it into their kernel (`mir.fused_matmul_bias_act`).
        domain: what the fuzzer draws half of the operands from: `normal` numbers, or `positive` ones.
        periodic: whether multiples of a period are subtracted first: its errors are absolute.
        builder: its name among the builders; by default the operation's.
    """

    op: type[ir.OpView]
    doc: str
    formula: Formula
    interval: Rule
    rounding: Rounding = Rounding.FUNCTION
    precise: Formula | None = None
    reference: Callable[..., np.ndarray] | None = None
    derivatives: tuple[Formula, ...] | None = None
    flops: int = 1
    floats: bool = True
    integers: bool = False
    complexes: bool = False
    conditions: bool = False
    of_integers: Callable[[int], Formula] | None = None
    of_unsigned: Callable[[int], Formula] | None = None
    of_complex: tuple[Formula, Formula] | None = None
    activation: bool = False
    domain: str = "normal"
    periodic: bool = False
    builder: str = ""

    @property
    def name(self) -> str:
        """The operation's name."""
        return str(self.op.OPERATION_NAME)

    @property
    def word(self) -> str:
        """The name without the dialect."""
        return self.name.removeprefix("mir.")

    @property
    def arity(self) -> int:
        """The number of operands."""
        return self.formula.arguments

    @property
    def builder_name(self) -> str:
        """The name of the method that builds it."""
        return self.builder or self.word

    def formula_for(self, element: str) -> Formula:
        """The formula for an element type, in which steps are computed."""
        if self.of_unsigned is not None and element.startswith("ui"):
            return self.of_unsigned(int(element[2:]))
        if self.of_integers is not None and element.startswith("i"):
            return self.of_integers(int(element[1:]))
        return self.precise if self.precise is not None and element == "f64" else self.formula

    def apply(self, *operands: np.ndarray) -> np.ndarray:
        """The function on numpy arrays of the accumulation type, by the reference."""
        if self.reference is not None:
            return np.asarray(self.reference(*operands))
        dtype = operands[0].dtype
        if self.of_complex is not None and dtype.kind == "c":
            given = [part for x in operands for part in (x.real, x.imag)]
            return joined_parts(*(part.evaluate(*given) for part in self.of_complex))
        of_bits = self.of_unsigned if dtype.kind == "u" else None
        return np.asarray((self.formula if of_bits is None else of_bits(8 * dtype.itemsize)).evaluate(*operands))

    def takes(self, element: str) -> bool:
        """Whether there is the function of an element type."""
        if element == "i1":
            return self.conditions
        if element.startswith("complex"):
            return self.complexes
        return self.integers if element.startswith(("i", "ui")) else self.floats


#: By the word of the operation.
FUNCTIONS: dict[str, Elementwise] = {}


def register(record: Elementwise) -> Elementwise:
    """Makes a record known."""
    FUNCTIONS[record.word] = record
    return record


def named(wanted: Callable[[Elementwise], bool]) -> frozenset[str]:
    """The names of the operations whose records a predicate holds for."""
    return frozenset(record.name for record in FUNCTIONS.values() if wanted(record))


def of_arity(arity: int, element: str = "") -> dict[str, Elementwise]:
    """The functions of so many elements, by word; where a type is given, those that there are of it."""
    return {
        word: record
        for word, record in FUNCTIONS.items()
        if record.arity == arity and (not element or record.takes(element))
    }
