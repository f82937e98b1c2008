# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-check-ranges`: where values may be beyond what their element type can hold, in remarks."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.errors import InputError
from rlx_mlir.rewriting import Option, compiler_pass
from rlx_mlir.semantics.function import PARAM, arguments, entry_function


@compiler_pass(
    "mir-check-ranges",
    options={
        "dtype": Option("element type to ask about in place of each value's own, such as f16", ""),
        "inputs": Option("what elements of inputs are at most, by magnitude", "1"),
        "params": Option("what elements of parameters are at most, by magnitude", "1"),
    },
)
def check_ranges(module: ir.Operation, *, dtype: str, inputs: str, params: str) -> None:
    """Say in remarks which values of the entry function may be beyond what their element type can hold.

    What values are at most is proved from the bounds of arguments; `GraphModule.range_report` knows parameters by their
    elements, too. Changes nothing. Runs at stage mir.
    """
    from rlx_mlir.reports.ranges import LIMITS, initial, judge, limit_of, walk

    if dtype and dtype not in LIMITS:
        raise InputError(f"option 'dtype' expects one of {', '.join(LIMITS)}, but got '{dtype}'")
    entry = entry_function(module)
    bounds = {"inputs": _bound("inputs", inputs), "params": _bound("params", params)}
    given = {a.name: bounds["params" if a.kind == PARAM else "inputs"] for a in arguments(entry)}
    for op, value, interval in walk(entry, initial(entry, given)):
        limit = limit_of(value, dtype)
        if limit is None or not judge(interval, limit):
            continue
        text = f"its magnitude is at most {interval.magnitude:.3g}" if interval.is_known else "it has no bound"
        kind = dtype or str(value.type.element_type)
        ir.native.emit_remark(
            op.location, f"mir-check-ranges: '{op.name}' may overflow in {kind}: {text}, and the limit {limit:.5g}"
        )


def _bound(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise InputError(f"option '{option}' expects a magnitude, but got '{text}'")
    return value
