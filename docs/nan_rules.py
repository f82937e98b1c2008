# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What NaN in an operand does to the results of each operation, as the references compute it: docs/nan.md."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import RlxError
from rlx_mlir.fuzz.cases import case_of
from rlx_mlir.mir.numerics import is_float, parts
from rlx_mlir.semantics.function import arguments
from rlx_mlir.semantics.ops import operand_name
from rlx_mlir.tools.ops import example, operation_names

INTRODUCTION = """# NaN, operation by operation

Each line says what one NaN in an operand does to the results of the operation's documented example
([mir.md](mir.md)), with dynamic sizes of 5 and other operands of random numbers that aren't negative: the references
computed it. "NaN in 4 of 12" is the number of elements that become NaN, of all elements of the results; other elements
keep their values, but where it says that they change. Code for CPUs and GPUs is tested against the references with NaN
in its operands.

IEEE arithmetic lets NaN through. The lines in which it does something else are those to read: maxima and minima keep
NaN (as numpy's do), comparisons with it are false but for `ne`, indices count it as 0, `top_k` as less than any number,
casts to integers as 0.
"""


def nan_rules() -> str:
    """The page."""
    lines = [INTRODUCTION, "| operation | operand | one NaN in it |", "| --- | --- | --- |"]
    left_out = []
    for name in operation_names():
        try:
            lines += [f"| `{name}` | {operand} | {what} |" for operand, what in rules(name)]
        except RlxError:
            left_out.append(f"`{name}`")
    return "\n".join([*lines, "", f"Dynamic sizes of some examples can't all be 5: {', '.join(left_out)}."]) + "\n"


def rules(name: str) -> Iterator[tuple[str, str]]:
    """The operands of an operation's example that can hold NaN, and what it does there.

    Raises RlxError where the example doesn't run without NaN.
    """
    if name == "mir.custom" or not example(name):
        return
    module = GraphModule.from_text(example(name), stage="mir")
    run = {key: _positive(array) for key, array in case_of(module).runs[0].items()}
    before = interpret(module, run)
    op = next(node._op for node in module if node.op == name)
    for argument in arguments(module.entry):
        own, handle = run[argument.name], module._block.arguments[argument.index]
        if handle not in list(op.operands) or not own.size or not (is_float(own.dtype) or own.dtype.kind == "c"):
            continue
        changed = np.array(own)
        changed[tuple(size // 2 for size in own.shape)] = np.nan
        try:
            after = interpret(module, {**run, argument.name: changed})
        except RlxError:
            yield operand_name(op, handle), "an error"
        else:
            yield operand_name(op, handle), _effect(before, after)


def _positive(array: np.ndarray) -> np.ndarray:
    """The numbers without their signs, which have logarithms and roots; others as they are."""
    return np.abs(array) if is_float(array.dtype) else array


def _is_nan(array: np.ndarray) -> np.ndarray:
    """Which elements are NaN, or have a part that is."""
    found = np.isnan(parts(array).astype(np.float64))
    return np.array(found.any(-1) if array.dtype.kind == "c" else found)


def _effect(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> str:
    """What differs between results."""
    nans = changed = count = 0
    values: list[str] = []
    for name, old in before.items():
        new = after[name]
        count += new.size
        missing = _is_nan(new) & ~_is_nan(old)
        other = np.array(old != new) & ~_is_nan(new)
        nans, changed = nans + int(missing.sum()), changed + int(other.sum())
        values += [str(value) for value in new[other].reshape(-1)[:1]]
    if not nans and not changed:
        return "nothing changes"
    listed = [f"NaN in {nans} of {count}"] if nans else []
    if changed:
        listed.append(f"{changed} of {count} change" + (f": the first is {values[0]}" if changed == 1 else ""))
    return "; ".join(listed)
