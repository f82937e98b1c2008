# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the first operation of a module whose compiled code computes something else than another library does.

The module is compiled once with every value as an output. Each operation is then computed by the other library, of the
operands that our code computed, so that an error stands where it arises. What is compiled as a whole, with operations
joined in kernels, is compared with that: where it differs, the first operation up to which it does is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from rlx_mlir import checks, compiler, ir
from rlx_mlir.errors import InputError
from rlx_mlir.exports.stablehlo.writer import PIPELINE
from rlx_mlir.hir import GraphModule
from rlx_mlir.locations import describe_operation
from rlx_mlir.mir.numerics import FLOAT8, is_inexact
from rlx_mlir.mir.packed import packing
from rlx_mlir.semantics.function import arguments, body, entry_function
from rlx_mlir.verify.inputs import draw, moved
from rlx_mlir.verify.numerics import distance
from rlx_mlir.verify.tolerance import Difference as ElementDifference
from rlx_mlir.verify.tolerance import Expected, operation_error
from rlx_mlir.verify.tolerance import difference as element_difference

#: Errors by rounding of two computations add up; those that are several operations in the other library have more.
_SIDES = 4.0


@dataclass(frozen=True)
class Difference:
    """What differs.

    Attributes:
        op: the operation's name.
        where: its name, block and line, as errors name it.
        ours, theirs: the element that is farthest apart.
        index: where that is in the result.
        allowed: the difference that rounding explains.
        fused: whether it differs only as part of what is compiled as a whole.
        text: what else is wrong, such as another shape; the numbers mean nothing then.
    """

    op: str
    where: str
    ours: float
    theirs: float
    index: tuple[int, ...]
    allowed: float
    fused: bool = False
    text: str = ""

    def to_dict(self) -> dict[str, object]:
        """The same for JSON."""
        return {**asdict(self), "index": list(self.index)}

    def __str__(self) -> str:
        if self.text:
            return f"{self.where} {self.text}"
        at = f" at {list(self.index)}" if self.index else ""
        how = ", compiled with what is before it," if self.fused else ""
        return (
            f"{self.where}{how} gives {self.ours:.9g}{at}, but {self.theirs:.9g} is right: rounding explains a "
            f"difference of {self.allowed:.2g}"
        )


@dataclass(frozen=True)
class Verdict:
    """What a comparison found.

    Attributes:
        rival: who was asked.
        compared: how many operations were.
        skipped: how many weren't, by name and reason.
        difference: the first operation that differs; None where none does.
    """

    rival: str
    compared: int
    skipped: Mapping[tuple[str, str], int] = field(default_factory=dict)
    difference: Difference | None = None

    def to_dict(self) -> dict[str, object]:
        """The same for JSON."""
        return {
            "rival": self.rival,
            "compared": self.compared,
            "skipped": [{"op": op, "reason": why, "count": count} for (op, why), count in self.skipped.items()],
            "difference": None if self.difference is None else self.difference.to_dict(),
        }

    def __str__(self) -> str:
        lines = [f"{self.compared} operations compared with {self.rival}"]
        lines += [f"  {count} x {op} not compared: {reason}" for (op, reason), count in sorted(self.skipped.items())]
        lines.append("none differs" if self.difference is None else f"the first that differs: {self.difference}")
        return "\n".join(lines)


def prepared(
    module: GraphModule,
    sizes: Mapping[str, int] | None,
    inputs: Mapping[str, np.ndarray] | None,
    seed: int,
) -> tuple[GraphModule, dict[str, np.ndarray]]:
    """A module as one function without symbolic sizes, and arrays for its arguments; arguments as of `check_against`.

    Raises InputError for symbols and arguments that the module doesn't have.
    """
    given = checks.mapping("sizes", sizes or {}, "a mapping from symbols to numbers")
    bound = {symbol: given.get(symbol, 8) for symbol in module.dynamic_symbols}
    if unknown := sorted(set(given) - set(bound)):
        raise InputError(f"'{module.name}' has no symbol {unknown[0]!r}, it has {', '.join(bound) or 'none'}")
    lowered = module.bind(bound) if bound else module
    lowered = (lowered.lower() if lowered.stage == "hir" else lowered).transform(PIPELINE)
    known = arguments(entry_function(lowered.ir_module))
    values = draw(known, {}, seed=seed)
    for name, array in checks.mapping("inputs", inputs or {}, "a mapping from names to arrays").items():
        if name not in values:
            raise InputError(f"'{module.name}' has no argument '{name}', it has {', '.join(values)}")
        values[name] = array
    return lowered, values


class Comparison:
    """One comparison of a module without symbolic sizes, at stage mir.

    Args:
        module: one function.
        name: of who is asked.
        values: arrays of its arguments, by name.
        factor: as of `check_against`.

    Attributes:
        ops: the operations of the module.
        known: what compiled code gives for each value of the function, with every value as an output.
    """

    def __init__(self, module: GraphModule, name: str, values: Mapping[str, np.ndarray], factor: float) -> None:
        self._module, self._name, self._values, self._factor = module, name, values, factor
        self._function = entry_function(module.ir_module)
        block = body(self._function)
        *self.ops, self._end = [op.operation for op in block.operations]
        #: Values whose readers are outside; others that the function returns are there to be compared alone.
        self.returned = set(self._end.operands)
        taps = [value for op in self.ops for value in op.results if packing(value.type) is None]
        self.known: dict[ir.Value, np.ndarray] = dict(zip(taps, self._outputs(taps), strict=True))
        for value, argument in zip(block.arguments, arguments(self._function), strict=True):
            self.known[value] = values[argument.name]

    def beyond(
        self, ours: np.ndarray, theirs: np.ndarray, error: float, again: Callable[[], np.ndarray]
    ) -> ElementDifference | None:
        """The element that is farthest beyond what rounding explains; None where none is.

        Args:
            error: the relative error that rounding explains in each of both.
            again: gives what theirs is for operands that are moved by a rounding error.
        """
        error *= _SIDES * self._factor
        found = element_difference(Expected(theirs, relative=error), ours)
        if found is not None and error:  # sums that cancel move by more than they are rounded
            amplified = distance(theirs, again()) * self._factor
            found = element_difference(Expected(theirs, relative=error, absolute=amplified), ours)
        return found

    def whole(self) -> Difference | None:
        """The first operation up to which compiled code differs: what is before it, and nothing behind, compiled."""
        if not self.ops or self._up_to(len(self.ops) - 1) is None:
            return None
        low, high = 0, len(self.ops) - 1
        while low < high:  # what reads a wrong value is wrong, too, so that all that is behind the first differs
            middle = (low + high) // 2
            low, high = (low, middle) if self._up_to(middle) else (middle + 1, high)
        return self._up_to(low)

    def _up_to(self, last: int) -> Difference | None:
        """How what later operations read, or the function returns, differs from the same beside all other values."""
        known = self.known
        values = [value for op in self.ops[: last + 1] for value in op.results if value in known]
        after = {value for op in (*self.ops[last + 1 :], self._end) for value in self._read(op)}
        values = [value for value in values if value in after]
        values = [value for value in values if value.owner.operation.name != "mir.constant"]
        if not values:
            return None
        found = None
        for value, array in zip(values, self._outputs(values), strict=True):
            op = value.owner.operation
            error = operation_error(op, [known[own] for own in op.operands if own in known], [array]) + 2.0**-23
            expected = Expected(known[value], relative=error * _SIDES * self._depth(op) * self._factor)
            own = element_difference(expected, array)
            if own is not None:
                found = Difference(op.name, describe_operation(op), own.got, own.want, own.index, own.allowed, True)
        return found

    def _read(self, op: ir.Operation) -> set[ir.Value]:
        """What an operation reads, with its regions; of what the function returns, what is read outside."""
        if op == self._end:
            return self.returned
        inner = [own.operation for region in op.regions for block in region for own in block.operations]
        return set(op.operands).union(*(self._read(own) for own in inner))

    @staticmethod
    def _depth(op: ir.Operation) -> int:
        """So many operations stand before one, roughly: errors add up along them."""
        return 1 + len(_before(op))

    def _outputs(self, values: Sequence[ir.Value]) -> list[np.ndarray]:
        """Values of the function as compiled code computes them."""
        text = _with_outputs(self._module, values)
        executable = compiler.compile(GraphModule.from_text(text), threads=1)
        executable.set_params({spec.name: self._values[spec.name] for spec in executable.params})
        found = executable.run({spec.name: self._values[spec.name] for spec in executable.inputs})
        return [found[f"v{number}"] for number in range(len(values))]


def moved_operands(operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Operands whose floats are moved by one rounding error, up or down at random."""
    rng = np.random.default_rng(0)
    return [_moved(array, rng) for array in operands]


def _moved(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Floats moved by one rounding error; others, and those of 8 bits, as they are."""
    return moved(array, rng) if is_inexact(array.dtype) and array.dtype not in FLOAT8 else array


def _before(op: ir.Operation) -> set[ir.Operation]:
    """The operations that one depends on."""
    found: set[ir.Operation] = set()
    waiting = [op]
    while waiting:
        for value in waiting.pop().operands:
            if not isinstance(value.owner, ir.Block) and value.owner.operation not in found:
                found.add(value.owner.operation)
                waiting.append(value.owner.operation)
    return found


def _with_outputs(module: GraphModule, values: Sequence[ir.Value]) -> str:
    """The text of a module that returns other values."""
    places = {value: place for place, value in _numbered(module.ir_module)}
    copy = module.clone()
    numbered = dict(_numbered(copy.ir_module))
    copy.set_outputs({f"v{number}": copy._value(numbered[places[own]]) for number, own in enumerate(values)})
    copy.erase_dead()
    return copy.to_text(locations=True)


def _numbered(module: ir.Module) -> list[tuple[tuple[int, int], ir.Value]]:
    """The values of the entry function by the numbers of their operation and result."""
    block = body(entry_function(module))
    return [
        ((number, place), value)
        for number, op in enumerate(block.operations)
        for place, value in enumerate(op.operation.results)
    ]
