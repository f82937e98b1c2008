# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-fold-constants`: operations on constants become constants, where their meaning fixes every bit.

What an operation gives is what its reference gives, so only operations are folded whose results no implementation may
give otherwise: those on integers and conditions, comparisons, choices and conversions, those that move elements, and
of the functions of floats those that IEEE 754 rounds correctly (sums, products, quotients, square roots) or that don't
round. Functions such as exp are left alone: compiled code has polynomials of its own, and a graph whose result depended
on what happens to be constant would change with it. So are sums over many floats, matrix products among them, whose
order is free. Of zeros with different signs no larger one is defined; what asks for it stays, too.

The folders that operations have in C++ are another matter: they drop operations that do nothing, whether operands are
constant or not, when MLIR's canonicalizer runs, and compute nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array, elements_attribute, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.mir.cost import Sizes, cost_of
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.functions import FUNCTIONS, Rounding
from rlx_mlir.mir.numerics import FLOAT8, is_float, widen
from rlx_mlir.mir.registry import evaluate
from rlx_mlir.rewriting import Option, PatternSet, Rewriter, apply_patterns, compiler_pass, erase_dead, identity
from rlx_mlir.runtime.shown import size_text

#: Operations that move elements of one tensor and change none.
MOVES = frozenset(f"mir.{word}" for word in ("reshape", "transpose", "narrow", "slice", "dynamic_slice", "expand"))
#: Operations that give one element for each of their operands'.
OF_ELEMENTS = frozenset({"mir.cast", "mir.compare", "mir.where", *(record.name for record in FUNCTIONS.values())})
#: Operations that are exact on integers and conditions alone.
OF_INTEGERS = frozenset(f"mir.{word}" for word in ("reduce", "cumsum", "matmul"))
#: What is folded where its operands are constants.
FOLDABLE = MOVES | OF_ELEMENTS | OF_INTEGERS | {"mir.concat", "mir.gather", "mir.dim"}
#: Functions that compare numbers, of which zeros may have two signs.
_ORDERED = frozenset({"mir.max", "mir.min", "mir.relu"})
#: More elements than this has no tensor that a machine holds.
_LARGEST = 1 << 48


@compiler_pass(
    "mir-fold-constants",
    dependent=("mir",),
    options={
        "max-bytes": Option("bytes of a result whose elements differ", 1 << 16, least=0),
        "max-cost": Option("elements that are read and written, and operations on them, in all", 1 << 22, least=0),
    },
)
def fold_constants(module: ir.Operation, *, max_bytes: int, max_cost: int) -> None:
    """Replace operations on constants by what they give, where that is exact by definition.

    Positions (`mir.iota`) of static shape count as constants, and so do sizes that a type says (`mir.dim`); by
    themselves positions stay, as kernels compute them without memory. Results of one number repeated are kept as that
    number, whatever their size.
    """
    folder = _Folder(max_bytes, max_cost)
    patterns = PatternSet()
    for name in sorted(FOLDABLE):
        patterns.pattern(name)(folder.fold)
    apply_patterns(module, patterns)
    erase_dead(module)


class _Folder:
    """What is known of the values of one module."""

    def __init__(self, max_bytes: int, max_cost: int) -> None:
        self._max_bytes = max_bytes
        self._max_cost = max_cost
        self._left = max_cost
        #: The results of operations by their identity, of those that are too large to be constants, too: what reads
        #: them may be small.
        self._known: dict[int, np.ndarray] = {}

    def fold(self, op: ir.AnyOp, rewriter: Rewriter) -> None:
        """operation(constants) -> constant"""
        operation = op.operation
        if next(iter(operation.results[0].uses), None) is None:
            return
        array = self._result(operation, rewriter)
        if array is None or array.dtype in FLOAT8:  # of which there are no constants
            return
        if not _is_uniform(array) and array.nbytes > self._max_bytes:
            return rewriter.no_match(
                f"the constant would have {size_text(array.nbytes)}, more than {size_text(self._max_bytes)}",
                hint="option max-bytes is the bound",
            )
        constant = mir.constant(_attribute(array, ir.RankedTensorType(operation.results[0].type)))
        self._known[identity(constant.owner)] = array
        del self._known[identity(operation)]  # another operation may get its identity once it is gone
        rewriter.replace(op, constant)

    def _result(self, op: ir.Operation, rewriter: Rewriter) -> np.ndarray | None:
        """The result of an operation; None where an operand isn't known, or the operation stays for a reason."""
        known = self._known.get(identity(op))
        if known is not None:
            return known
        if op.name == "mir.dim":
            return self._size(op)
        if not all(self._is_known(value) for value in op.operands) or not _is_bounded(op.results[0]):
            return None
        reason, hint = self._reason(op)
        if reason:
            rewriter.no_match(reason, hint=hint)
            return None
        self._left -= self._cost(op)
        return self._known.setdefault(identity(op), _computed(op, [self._value(value) for value in op.operands]))

    def _reason(self, op: ir.Operation) -> tuple[str, str]:
        """Why an operation on known values stays, and what would help; '' where it doesn't."""
        if reason := _inexact(op):
            return reason, ""
        cost = self._cost(op)
        if cost > self._left:
            return f"it costs {cost}, and of {self._max_cost} are {self._left} left", "option max-cost is the bound"
        if op.name in _ORDERED and _has_two_zeros([self._value(value) for value in op.operands]):
            return "which of 0 and -0 is larger isn't defined", ""
        return "", ""

    def _size(self, op: ir.Operation) -> np.ndarray | None:
        """A size that the operand's type says, as a number."""
        kind = ir.RankedTensorType(op.operands[0].type)
        axis = python_value(op.attributes["axis"])
        if kind.is_dynamic_dim(axis):
            return None
        shape = [kind.get_dim_size(axis) if at == axis else 1 for at in range(kind.rank)]
        sized = np.broadcast_to(np.zeros((), bool), shape)
        return self._known.setdefault(identity(op), evaluate(op.opview, [sized])[0])

    def _is_known(self, value: ir.Value) -> bool:
        """Whether the elements of a value are, or follow from its operation alone."""
        if isinstance(value.owner, ir.Block):
            return False
        op = value.owner.operation
        if identity(op) in self._known:
            return True
        if op.name == "mir.constant":
            return isinstance(op.attributes["value"], ir.DenseElementsAttr) and _is_bounded(value)
        return op.name == "mir.iota" and _is_bounded(value)

    def _value(self, value: ir.Value) -> np.ndarray:
        """The elements of a value that `_is_known`; those that are one number repeated take the memory of one."""
        op = value.owner.operation
        known = self._known.get(identity(op))
        if known is None:
            known = _constant(op) if op.name == "mir.constant" else evaluate(op.opview, [])[0]
            self._known[identity(op)] = known
        return known

    def _cost(self, op: ir.Operation) -> int:
        """Elements that are read and written, and operations on them; 1 where all elements of operands are one."""
        counts = [self._count(value) for value in op.operands]
        if op.name in MOVES | OF_ELEMENTS and all(count == 1 for count in counts):
            return 1
        values = [*op.operands, *op.results]
        shapes = {value: tuple(map(Size.of, ir.RankedTensorType(value.type).shape)) for value in values}
        sizes = Sizes(shapes)
        done = sizes.count(op.results[0]) + cost_of(op.opview, sizes).flops
        return sum(counts) + done.evaluate({})

    def _count(self, value: ir.Value) -> int:
        """Different elements that a value may have."""
        op, kind = value.owner.operation, ir.RankedTensorType(value.type)
        if op.name == "mir.iota":
            return int(kind.get_dim_size(python_value(op.attributes["axis"])))
        known = self._known.get(identity(op))
        if known is not None:
            return 1 if _is_uniform(known) else int(known.size)
        return 1 if ir.DenseElementsAttr(op.attributes["value"]).is_splat else math.prod(kind.shape)


def _is_bounded(value: ir.Value) -> bool:
    """Whether a value is a dense tensor of static shape that a constant can hold: one of complex numbers can't."""
    kind = ir.RankedTensorType(value.type)
    return (
        kind.has_static_shape
        and kind.encoding is None
        and str(kind.element_type) in DTYPES
        and not isinstance(kind.element_type, ir.ComplexType)
        and math.prod(kind.shape) <= _LARGEST
    )


def _inexact(op: ir.Operation) -> str:
    """Why compiled code may give other bits than the reference; '' where it may not."""
    if not is_float(DTYPES[str(ir.RankedTensorType(op.operands[0].type).element_type)]):
        return ""
    if op.name in OF_INTEGERS:
        return "the order in which floats are combined is free"
    record = FUNCTIONS.get(op.name.removeprefix("mir."))
    if record is not None and record.rounding is Rounding.FUNCTION:
        return f"the last bits of {record.word} aren't defined"
    return ""


def _is_uniform(array: np.ndarray) -> bool:
    """Whether an array is one number repeated, in the memory of one; see `_computed`."""
    return array.size > 0 and all(
        stride == 0 or size == 1 for stride, size in zip(array.strides, array.shape, strict=True)
    )


def _has_two_zeros(operands: Sequence[np.ndarray]) -> bool:
    """Whether zeros of different signs meet; where there is one operand, it meets 0."""
    if not is_float(operands[0].dtype):
        return False
    lhs, rhs = (operands[0], np.zeros((), operands[0].dtype)) if len(operands) == 1 else operands
    lhs, rhs = widen(lhs), widen(rhs)
    return bool(np.any((lhs == 0) & (rhs == 0) & (np.signbit(lhs) != np.signbit(rhs))))


def _computed(op: ir.Operation, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The result of an operation; one number repeated where all operands are."""
    if op.name not in MOVES | OF_ELEMENTS or not all(map(_is_uniform, operands)):
        return _compact(np.asarray(evaluate(op.opview, operands)[0]))
    single = [np.array(operand[(0,) * operand.ndim]).reshape(1) for operand in operands]
    number = single[0] if op.name in MOVES else evaluate(op.opview, single)[0]
    return np.broadcast_to(number.reshape(()), list(ir.RankedTensorType(op.results[0].type).shape))


def _compact(array: np.ndarray) -> np.ndarray:
    """The array in the memory of one element, where all of them have the same bits."""
    if not array.size:
        return array
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view(np.uint8).reshape(flat.size, -1)
    return np.broadcast_to(flat[:1].reshape(()), array.shape) if np.all(bits == bits[:1]) else array


def _constant(op: ir.Operation) -> np.ndarray:
    """The elements of a `mir.constant`."""
    value = ir.DenseElementsAttr(op.attributes["value"])
    if not value.is_splat:
        return elements_array(value)
    kind = ir.RankedTensorType(op.results[0].type)
    one = ir.DenseElementsAttr.get_splat(ir.RankedTensorType.get([], kind.element_type), value.get_splat_value())
    return np.broadcast_to(elements_array(one), list(kind.shape))


def _attribute(array: np.ndarray, kind: ir.RankedTensorType) -> ir.DenseElementsAttr:
    """The elements of a constant; one number repeated is kept as one."""
    if not _is_uniform(array):
        return elements_attribute(array, kind.element_type)
    one = elements_attribute(np.array(array[(0,) * array.ndim]), kind.element_type)
    return ir.DenseElementsAttr.get_splat(kind, one.get_splat_value())
