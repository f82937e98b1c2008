# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the regions of reductions, scatters and sorts compute, found by computing it: of numbers that tell it apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array

from . import attributes
from .call import element_dtype
from .registry import Refused

_COMPARED: dict[str, Callable[..., np.ndarray]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "stablehlo.add": np.add,
    "stablehlo.subtract": np.subtract,
    "stablehlo.multiply": np.multiply,
    "stablehlo.divide": np.divide,
    "stablehlo.maximum": np.maximum,
    "stablehlo.minimum": np.minimum,
    "stablehlo.and": np.bitwise_and,
    "stablehlo.or": np.bitwise_or,
    "stablehlo.xor": np.bitwise_xor,
    "stablehlo.not": np.bitwise_not,
    "stablehlo.negate": np.negative,
    "stablehlo.abs": np.abs,
    "stablehlo.select": np.where,
}


def evaluate(block: ir.Block, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a block of operations on elements gives for arrays of them; Refused where it has others."""
    known: dict[ir.Value, np.ndarray] = dict(zip(block.arguments, arguments, strict=True))
    for op in (each.operation for each in block.operations):
        operands = [known[value] if value in known else _constant(value) for value in op.operands]
        if op.name == "stablehlo.return":
            return operands
        with np.errstate(all="ignore"):
            known[op.results[0]] = _computed(op, operands)
    raise Refused("a function of elements without results")


def _constant(value: ir.Value) -> np.ndarray:
    """The elements of a constant around a region; Refused for what else is read of there."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "stablehlo.constant":
        raise Refused("a function of elements that reads what is around it")
    return elements_array(owner.operation.attributes["value"])


def _computed(op: ir.Operation, operands: Sequence[np.ndarray]) -> np.ndarray:
    name = str(op.name)
    if name == "stablehlo.constant":
        return elements_array(op.attributes["value"])
    if name == "stablehlo.compare":
        if "compare_type" in op.attributes and attributes.word(op.attributes["compare_type"]) == "TOTALORDER":
            return _total_order(attributes.word(op.attributes["comparison_direction"]), *operands)
        found: np.ndarray = _COMPARED[attributes.word(op.attributes["comparison_direction"])](*operands)
        return found
    if name not in _FUNCTIONS:
        raise Refused(f"a function of elements with '{name}'")
    result: np.ndarray = np.asarray(_FUNCTIONS[name](*operands)).astype(element_dtype(op.results[0].type))
    return result


def _total_order(kind: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Comparisons by the order in which -0 is less than 0, and NaN more than infinity."""

    def key(x: np.ndarray) -> np.ndarray:
        wide = x.astype(np.float64)
        infinite = np.where(np.isinf(wide), np.copysign(2.0, wide) * 1e308, wide)
        place = np.where(np.isnan(wide), np.inf, infinite)
        return np.stack([place, np.where(wide == 0, np.copysign(1.0, wide), 0.0)])

    a, b = key(left), key(right)
    less = (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    same = (a[0] == b[0]) & (a[1] == b[1])
    results = {"LT": less, "LE": less | same, "EQ": same, "NE": ~same, "GT": ~(less | same), "GE": ~less}
    return np.asarray(results[kind])


def _samples(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of numbers that tell functions of two apart."""
    if dtype == np.bool_:
        values = np.array([False, True])
    elif dtype.kind in "iu":
        values = np.array([0, 1, 2, 3, 5, 6, 12], dtype)
    else:
        values = np.array([-3.0, -0.5, 0.0, 1.0, 2.0, 3.5, np.nan, np.inf]).astype(dtype)
    left, right = np.meshgrid(values, values)
    return left.reshape(-1), right.reshape(-1)


#: What a function of two elements may be, by our words of reductions.
_KINDS: dict[str, Callable[..., np.ndarray]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def kind_of(block: ir.Block, dtype: np.dtype) -> str:
    """What a function of two elements combines them to: a word of reductions, or `first` or `second` for one of them.

    Refused where it is none of these.
    """
    left, right = _samples(dtype)
    (found,) = evaluate(block, [left, right])
    with np.errstate(all="ignore"):
        if dtype == np.bool_:
            candidates = {"any": left | right, "all": left & right}
        else:
            candidates = {word: np.asarray(function(left, right)) for word, function in _KINDS.items()}
    candidates |= {"second": right, "first": left}
    for word, wanted in candidates.items():
        if np.array_equal(found, wanted.astype(found.dtype), equal_nan=dtype != np.bool_ and dtype.kind not in "iu"):
            return word
    raise Refused("a function of two elements that is no sum, product, maximum or minimum")


def extreme_of(block: ir.Block, dtype: np.dtype) -> str:
    """`max` or `min` where a function of two pairs of an element and its place gives the pair of the extreme one.

    Of equal elements that is the one with the smaller place, and the first NaN before all. Refused otherwise.
    """
    left, right = _samples(dtype)
    places = np.arange(left.size, dtype=np.int64) % 3
    for word, less in (("max", np.less), ("min", np.greater)):
        for a, b in ((places, places + 1), (places + 1, places)):
            value, place = evaluate(block, [left, a, right, b])
            is_nan = [own != own for own in (left, right)]
            with np.errstate(all="ignore"):
                second = ~is_nan[0] & (is_nan[1] | less(left, right))
                tie = (left == right) & (b < a)
            chosen = second | (tie & ~is_nan[0])
            # Of two that are NaN the places aren't compared: the reduction goes from the first on.
            if not np.array_equal(place, np.where(chosen, b, a)) and not np.array_equal(
                place, np.where(chosen | (is_nan[0] & is_nan[1] & (b < a)), b, a)
            ):
                break
            if not np.array_equal(value, np.where(chosen, right, left), equal_nan=dtype.kind not in "iub"):
                break
        else:
            return word
    raise Refused("a function of several elements that is no place of a maximum or minimum")


def order_of(block: ir.Block, dtypes: Sequence[np.dtype]) -> tuple[int, bool]:
    """By which operand a comparator sorts, and whether from the largest on; Refused where it is no such order.

    Args:
        dtypes: element types of the operands.
    """
    for key, dtype in enumerate(dtypes):
        left, right = _samples(dtype)
        keep = ~((left != left) | (right != right))
        left, right = left[keep], right[keep]
        for descending in (False, True):
            wanted = left > right if descending else left < right
            if all(_orders(block, dtypes, key, (left, right), wanted, others) for others in ((0, 1), (1, 0))):
                return key, descending
    raise Refused("a comparator that is no order of one operand")


def _orders(
    block: ir.Block,
    dtypes: Sequence[np.dtype],
    key: int,
    pair: tuple[np.ndarray, np.ndarray],
    wanted: np.ndarray,
    others: tuple[int, int],
) -> bool:
    """Whether a comparator gives what is wanted of pairs of a key, whatever the other operands are."""
    arguments: list[np.ndarray] = []
    for number, dtype in enumerate(dtypes):
        for own, other in zip(pair, others, strict=True):
            arguments.append(own if number == key else np.full(own.shape, other).astype(dtype))
    (found,) = evaluate(block, arguments)
    return bool(np.array_equal(found, wanted))


def is_at_least(block: ir.Block, dtype: np.dtype) -> bool:
    """Whether a function of two elements says that the first is at least as large as the second."""
    left, right = _samples(dtype)
    keep = ~((left != left) | (right != right))
    (found,) = evaluate(block, [left[keep], right[keep]])
    return bool(np.array_equal(found, left[keep] >= right[keep]))
