# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The range report: which values may be beyond what an element type can hold, such as 65504 in f16.

Two things are said of each value. A bound is proved from those of inputs and parameters (`mir.ranges`); one that is too
large doesn't mean that the value ever is. What was seen, where inputs are arrays, is what those inputs gave, and says
nothing of others. A value is safe where its bound is small enough, and overflows where that was seen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import ml_dtypes
import numpy as np

from rlx_mlir import ir
from rlx_mlir.arrays import as_array, element_word
from rlx_mlir.errors import InputError, did_you_mean
from rlx_mlir.interpreter import interpret
from rlx_mlir.locations import describe_location
from rlx_mlir.mir.numerics import parts
from rlx_mlir.mir.packed import PackedWeight, packing
from rlx_mlir.mir.ranges import ANYTHING, Interval, Known, Weight, analyse, interval_of_array, weight_of
from rlx_mlir.rewriting import identity
from rlx_mlir.runtime.shown import preformatted
from rlx_mlir.semantics.function import PARAM, Argument, arguments, body, entry_function, results
from rlx_mlir.semantics.module import StagedGraph

#: The largest finite number of each element type that may be asked about; f32 is what values are computed in.
LIMITS = {
    "f16": 65504.0,
    "bf16": float(ml_dtypes.finfo(ml_dtypes.bfloat16).max),
    "f32": float(np.finfo(np.float32).max),
    "f8E4M3FN": 448.0,
    "f8E5M2": 57344.0,
}
_DIRECTORY = re.compile(r"\([^()]*/")
#: Lines of the text, at most; the report has all.
_LISTED = 20

Bound = float | tuple[float, float]


@dataclass(frozen=True)
class Finding:
    """A value that may be beyond its limit.

    Attributes:
        op: what computes it.
        where: its block and line, as far as known.
        limit: the largest finite number of the element type.
        bound: what its magnitude is at most; infinite where nothing is known.
        seen: the largest magnitude that the arrays gave, infinite where there was an infinity or NaN; None where no
            arrays were given.
        verdict: `overflows`: that was seen; `may overflow`: the bound is too large; `unknown`: there is no bound.
    """

    op: str
    where: str
    limit: float
    bound: float
    seen: float | None
    verdict: str


@dataclass(frozen=True)
class RangeReport:
    """Where a module's values may be beyond what their element type can hold.

    Attributes:
        name: of the module.
        dtype: the element type that was asked about; empty where each value's own was.
        values: how many were looked at.
        findings: those that aren't safe, in order.
    """

    name: str
    dtype: str
    values: int
    findings: tuple[Finding, ...]

    @property
    def is_safe(self) -> bool:
        """Whether no value can be beyond its limit: that is proved."""
        return not self.findings

    def to_dict(self) -> dict[str, object]:
        """The report as JSON can write it; bounds that are infinite are None."""
        rows = [asdict(finding) for finding in self.findings]
        for row in rows:
            row.update({key: None for key in ("bound", "seen") if row[key] is not None and math.isinf(row[key])})
        return {"name": self.name, "dtype": self.dtype, "values": self.values, "findings": rows}

    def _repr_html_(self) -> str:
        return preformatted(self)

    def __str__(self) -> str:
        counts = {verdict: sum(f.verdict == verdict for f in self.findings) for verdict in _VERDICTS}
        said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        safe = self.values - len(self.findings)
        what = f" in {self.dtype}" if self.dtype else ""
        lines = [
            f"range report of '{self.name}'{what}: {self.values} values, {safe} safe" + (f", {said}" if said else "")
        ]
        ordered = sorted(self.findings, key=lambda finding: _VERDICTS.index(finding.verdict))
        for finding in ordered[:_LISTED]:
            seen = "" if finding.seen is None else f", seen {_number(finding.seen)}"
            where = _DIRECTORY.sub("(", finding.where)
            lines.append(
                f"  {finding.verdict:<12} {finding.op} {where}: limit {finding.limit:.5g}, "
                f"bound {_number(finding.bound)}{seen}"
            )
        if len(ordered) > _LISTED:
            lines.append(f"  and {len(ordered) - _LISTED} more")
        return "\n".join(lines)


_VERDICTS = ("overflows", "may overflow", "unknown")


def _number(value: float) -> str:
    return "none" if math.isinf(value) else f"{value:.3g}"


def range_report(
    module: StagedGraph,
    *,
    inputs: Mapping[str, np.ndarray | Bound] | None = None,
    params: Mapping[str, np.ndarray | Bound] | None = None,
    dtype: str = "",
) -> RangeReport:
    """Which values of a module may be beyond what an element type can hold.

    Args:
        module: at stage hir or mir; it is not changed.
        inputs: of each by name, an array, a bound of the magnitude, or (least, largest) value. Nothing is known of
            the others, but that caches hold what was written into them.
        params: the same of parameters; of arrays, also the sums that bound products are known.
        dtype: ask as if every float were of this type, one of `LIMITS`; where empty, each is held against its own.

    Where all are arrays, the module is interpreted, too, in the element types that it has. Raises InputError for names
    and types that aren't there, StageError where the module is past stage mir.
    """
    if not isinstance(dtype, str) or (dtype and dtype not in LIMITS):
        raise InputError(f"'dtype' expects one of {', '.join(LIMITS)}, but got {dtype!r}")
    lowered = module if module.stage == "mir" else module.lower()
    entry = entry_function(lowered.ir_module)
    given = _given(arguments(entry), {} if inputs is None else inputs, {} if params is None else params)
    known = initial(entry, given)
    seen = _observed(lowered, given) if all(a.name in given for a in arguments(entry)) else None
    looked, findings = 0, []
    for op, value, interval in walk(entry, known):
        limit = limit_of(value, dtype)
        if limit is None:
            continue
        looked += 1
        largest = None if seen is None else seen.get((identity(op), value.result_number), 0.0)
        if verdict := judge(interval, limit, largest):
            where = describe_location(op.location)
            findings.append(Finding(op.name, where, limit, interval.magnitude, largest, verdict))
    return RangeReport(module.name, dtype, looked, tuple(findings))


def judge(interval: Interval, limit: float, seen: float | None = None) -> str:
    """The verdict on a value, or '' where it is safe."""
    if seen is not None and seen > limit:
        return "overflows"
    if interval.magnitude <= limit:
        return ""
    return "may overflow" if interval.is_known else "unknown"


def limit_of(value: ir.Value, dtype: str = "") -> float | None:
    """The largest finite number of a value's element type, or of `dtype` in its place; None where it has no floats."""
    own = str(value.type.element_type) if isinstance(value.type, ir.RankedTensorType) else ""
    return LIMITS.get(dtype or own) if own in LIMITS or own == "f64" else None


def initial(entry: ir.AnyOp, given: Mapping[str, np.ndarray | Bound]) -> Known:
    """What is known of the arguments of a function, from arrays and bounds by name."""
    intervals: dict[ir.Value, Interval] = {}
    weights: dict[ir.Value, Weight] = {}
    for argument, value in zip(arguments(entry), body(entry).arguments, strict=True):
        bound = given.get(argument.name, ANYTHING)
        if isinstance(bound, np.ndarray | np.generic):
            array = np.asarray(bound)
            if packing(argument.type) is not None:
                array = PackedWeight.of(argument.type, array).dequantize()
            intervals[value] = interval_of_array(array)
            if (parts := weight_of(array)) is not None:
                weights[value] = parts
        else:
            intervals[value] = Interval.of(bound)
    return Known(intervals, weights, _caches(entry))


def _caches(entry: ir.AnyOp) -> frozenset[ir.Value]:
    """Results of `mir.cache_update` whose cache is tied to them: it is what the call before gave."""
    block = body(entry)
    terminator = block.operations[len(block.operations) - 1].operation
    found = set()
    for result, value in zip(results(entry), terminator.operands, strict=True):
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.name != "mir.cache_update" or not result.tied:
            continue
        cache = owner.opview.cache
        tied = next((a.index for a in arguments(entry) if a.name == result.tied), None)
        if tied is not None and cache == block.arguments[tied] and len(list(cache.uses)) == 1:
            found.add(value)
    return frozenset(found)


def walk(entry: ir.AnyOp, known: Known) -> Iterator[tuple[ir.AnyOp, ir.Value, Interval]]:
    """(operation, result, interval) of a function, in order."""
    for op, found in analyse((op for op in body(entry).operations if op.operation.name != "func.return"), known):
        yield from ((op, value, own) for value, own in zip(op.results, found, strict=True))


def _given(
    known: Sequence[Argument], inputs: Mapping[str, np.ndarray | Bound], params: Mapping[str, np.ndarray | Bound]
) -> dict[str, np.ndarray | Bound]:
    """What was given, by name; InputError for other names, for arrays that aren't and for bounds that are none."""
    found: dict[str, np.ndarray | Bound] = {}
    for mapping, is_param in ((inputs, False), (params, True)):
        names = [argument.name for argument in known if (argument.kind == PARAM) == is_param]
        kind = "parameter" if is_param else "input"
        if not isinstance(mapping, Mapping):
            raise InputError(f"{kind}s are a mapping from names to arrays and bounds, but got {mapping!r}"[:400])
        for name, bound in mapping.items():
            found[name] = bound
            if name not in names:
                raise InputError(f"the module has no {kind} '{name}'{did_you_mean(str(name), names)}")
            if isinstance(bound, np.ndarray | np.generic) or hasattr(bound, "__dlpack__"):
                array = found[name] = as_array(f"{kind} '{name}'", bound)
                if not array.dtype.isnative:
                    raise InputError(f"{kind} '{name}' is of {element_word(array.dtype)}")
            else:
                try:
                    interval = Interval.of(bound)
                except (TypeError, ValueError, IndexError, OverflowError):
                    interval = Interval(0.0, -1.0)
                if not interval.low <= interval.high:
                    raise InputError(
                        f"the bound of '{name}' expects a magnitude or (least, largest), but got {bound!r}"[:400]
                    )
    return found


def _observed(module: StagedGraph, arrays: Mapping[str, Any]) -> dict[tuple[int, int], float] | None:
    """The largest magnitude of each result, by (operation's identity, number); None where not all are arrays."""
    if not all(isinstance(array, np.ndarray | np.generic) for array in arrays.values()):
        return None
    largest: dict[tuple[int, int], float] = {}

    def watch(op: ir.AnyOp, operands: Sequence[object], computed: Sequence[object]) -> None:
        for number, value in enumerate(computed):
            if isinstance(value, np.ndarray) and value.size and value.dtype.kind not in "biu":
                wide = np.abs(parts(value).astype(np.float64))
                most = float(wide.max())
                most = most if math.isfinite(most) else math.inf
                key = identity(op), number
                largest[key] = max(most, largest.get(key, 0.0))  # of what is in a region, of all its steps

    interpret(module, arrays, watch=watch)
    return largest
