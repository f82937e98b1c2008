# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the first operation of a module whose compiled code computes something else than another library does.

The module is compiled once with every value as an output. Each operation is then computed by the other library, of the
operands that our code computed, so that an error stands where it arises. What is compiled as a whole, with operations
joined in kernels, is compared with that: where it differs, the first operation up to which it does is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from rlx_mlir import checks, compiler, ir
from rlx_mlir.against.rivals import Rival, rival_of
from rlx_mlir.errors import InputError, RlxError, StageError
from rlx_mlir.exports.stablehlo.writer import PIPELINE
from rlx_mlir.hir import GraphModule
from rlx_mlir.locations import describe_operation
from rlx_mlir.mir.numerics import FLOAT8, is_inexact
from rlx_mlir.mir.packed import packing
from rlx_mlir.place import located
from rlx_mlir.semantics.function import arguments, body, entry_function
from rlx_mlir.verify.inputs import draw, moved
from rlx_mlir.verify.numerics import distance
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
    """

    op: str
    where: str
    ours: float
    theirs: float
    index: tuple[int, ...]
    allowed: float
    fused: bool = False

    def to_dict(self) -> dict[str, object]:
        """The same for JSON."""
        return {**asdict(self), "index": list(self.index)}

    def __str__(self) -> str:
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


@located
def check_against(
    module: GraphModule,
    rival: str = "jax",
    *,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
    factor: float = 1.0,
) -> Verdict:
    """Compares compiled code with what another library computes, operation by operation.

    Args:
        module: at stage hir or mir.
        rival: `jax`, or `torch`; each has to be installed.
        sizes: of symbols, 8 where nothing is said.
        inputs: arrays of inputs and parameters by name; the others are random numbers, integers zeros.
        seed: of these.
        factor: so many times the error that rounding explains is allowed.

    Raises InputError for arguments that can't be, UnsupportedError where the rival isn't installed or can't be asked,
    and what `compile` raises.
    """
    if not isinstance(module, GraphModule):
        raise InputError(f"what is compared is a GraphModule, but got {checks.shown(module)}")
    if module.stage not in ("hir", "mir"):
        raise StageError(f"a module is compared at stage hir or mir, but '{module.name}' is at stage {module.stage}")
    if checks.real("factor", factor) <= 0:
        raise InputError(f"'factor' is above 0, but got {factor}")
    asked = rival_of(checks.text("rival", rival))
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
    return _Comparison(lowered, asked, rival, values, factor).run()


class _Comparison:
    """One comparison of a module without symbolic sizes, at stage mir."""

    def __init__(
        self, module: GraphModule, rival: Rival, name: str, values: Mapping[str, np.ndarray], factor: float
    ) -> None:
        self._module, self._rival, self._name, self._values, self._factor = module, rival, name, values, factor

    def run(self) -> Verdict:
        """The first operation that differs, by itself or else in what is compiled as a whole."""
        block = body(entry_function(self._module.ir_module))
        ops = [op.operation for op in block.operations][:-1]
        taps = [value for op in ops for value in op.results if packing(value.type) is None]
        arrays = self._outputs(taps)
        known: dict[ir.Value, np.ndarray] = dict(zip(taps, arrays, strict=True))
        for value, argument in zip(block.arguments, arguments(entry_function(self._module.ir_module)), strict=True):
            known[value] = self._values[argument.name]
        compared, skipped = 0, dict[tuple[str, str], int]()
        for op in ops:
            if op.name == "mir.constant":
                continue
            reason = self._rival.refusal(op)
            theirs: list[np.ndarray] = []
            if not reason:
                try:
                    theirs = self._rival.run(op, [known[value] for value in op.operands])
                except RlxError as error:
                    reason = str(error)
            if reason:
                skipped[op.name, reason] = skipped.get((op.name, reason), 0) + 1
                continue
            compared += 1
            found = self._differs(op, [known[value] for value in op.operands], theirs, known)
            if found is not None:
                return Verdict(self._name, compared, skipped, found)
        return Verdict(self._name, compared, skipped, self._as_a_whole(ops, known))

    def _differs(
        self,
        op: ir.Operation,
        operands: Sequence[np.ndarray],
        theirs: Sequence[np.ndarray],
        known: Mapping[ir.Value, np.ndarray],
    ) -> Difference | None:
        """The element of an operation's results that is farthest beyond what rounding explains."""
        ours = [known[value] for value in op.results]
        error = operation_error(op, operands, ours) * _SIDES * self._factor
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            found = element_difference(Expected(other, relative=error), mine)
            if found is not None and error:  # sums that cancel move by more than they are rounded
                rng = np.random.default_rng(0)
                again = self._rival.run(op, [_moved(array, rng) for array in operands])[number]
                amplified = distance(other, again) * self._factor
                found = element_difference(Expected(other, relative=error, absolute=amplified), mine)
            if found is not None:
                return Difference(op.name, describe_operation(op), found.got, found.want, found.index, found.allowed)
        return None

    def _as_a_whole(self, ops: Sequence[ir.Operation], known: Mapping[ir.Value, np.ndarray]) -> Difference | None:
        """The first operation up to which compiled code differs: what is before it, and nothing behind, compiled."""
        if not ops or self._up_to(ops, len(ops) - 1, known) is None:
            return None
        low, high = 0, len(ops) - 1
        while low < high:  # what reads a wrong value is wrong, too, so that all that is behind the first differs
            middle = (low + high) // 2
            low, high = (low, middle) if self._up_to(ops, middle, known) else (middle + 1, high)
        return self._up_to(ops, low, known)

    def _up_to(self, ops: Sequence[ir.Operation], last: int, known: Mapping[ir.Value, np.ndarray]) -> Difference | None:
        """How what later operations read, or the function returns, differs from the same beside all other values."""
        before = set(ops[: last + 1])
        values = [value for op in ops[: last + 1] for value in op.results if value in known]
        values = [value for value in values if any(use.owner.operation not in before for use in value.uses)]
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
