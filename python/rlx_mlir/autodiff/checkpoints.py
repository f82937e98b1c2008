# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks that are computed again where their gradients are needed, so that what they compute needn't be kept.

Of a block, what it reads is kept. Before cotangents go back through it, its operations are copied, and read that
through `mir.barrier`: nothing recognises them as computed already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby

from rlx_mlir import ir
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.reverse import active_values, pull_back
from rlx_mlir.errors import InputError
from rlx_mlir.hir.values import Value
from rlx_mlir.locations import block_name
from rlx_mlir.semantics.function import PARAM, arguments


def blocks_of(ops: Sequence[ir.Operation], patterns: Sequence[str]) -> list[tuple[str, list[ir.Operation]]]:
    """Operations in order, as runs of one block each, whose name matches a pattern; '' where none does.

    The name of a block is the shortest one that matches: of "layer0.attention.q" it is "layer0" by "layer*".
    """
    found = []
    for name, run in groupby(ops, lambda op: _matching(block_name(op.location), patterns)):
        found.append((name, list(run)))
    return found


def check_patterns(patterns: Sequence[str], runs: Sequence[tuple[str, Sequence[ir.Operation]]], module: str) -> None:
    """Raises InputError where a pattern matches no block that has operations."""
    names = {name for name, _ in runs}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names if name):
            raise InputError(f"no block of module '{module}' has a name like '{pattern}'")


def _matching(name: str, patterns: Sequence[str]) -> str:
    """The shortest of a block and those around it that matches a pattern; '' where none does."""
    parts = name.split(".")
    outer = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((own for own in outer if any(fnmatchcase(own, pattern) for pattern in patterns)), "")


def pull_back_blocks(
    m: Builders,
    runs: Sequence[tuple[str, Sequence[ir.Operation]]],
    given: Mapping[ir.Value, Value],
    wanted: Sequence[ir.Value],
) -> list[Value | None]:
    """The cotangents of values, as of `pull_back`; operations of runs that have a name are computed again."""
    active = active_values([op for _, ops in runs for op in ops], wanted)
    weights = {m._block.arguments[own.index] for own in arguments(m.entry) if own.kind == PARAM}
    cotangents = dict(given)
    for name, ops in reversed(runs):
        inside = {result for op in ops for result in op.results}
        outside = list(dict.fromkeys(v for v in _read(ops) if v in active and v not in inside))
        own = {value: cotangents[value] for value in inside if value in cotangents}
        if not own:
            continue
        found = _again(m, ops, own, outside, weights) if name else pull_back(m, ops, own, outside)
        for value, cotangent in zip(outside, found, strict=True):
            if cotangent is not None:
                before = cotangents.get(value)
                cotangents[value] = cotangent if before is None else m.add(before, cotangent)
    return [cotangents.get(value) for value in wanted]


def _read(ops: Sequence[ir.Operation]) -> Iterator[ir.Value]:
    for op in ops:
        yield from op.operands


def _again(
    m: Builders,
    ops: Sequence[ir.Operation],
    given: Mapping[ir.Value, Value],
    wanted: Sequence[ir.Value],
    weights: set[ir.Value],
) -> list[Value | None]:
    """The cotangents of what operations read, through copies of these."""
    inside = {result for op in ops for result in op.results}
    known: dict[ir.Value, Value] = {}
    for value in dict.fromkeys(_read(ops)):
        if value not in inside:
            own = m._value(m.latest(value))
            with m.stemming_from(ops[0]):
                known[value] = own if value in weights or _is_constant(value) else m.barrier(own)
    copies = m.copies(ops, known)
    changes = {m._resolve(known[value]): cotangent for value, cotangent in given.items()}
    return pull_back(m, copies, changes, [m._resolve(known[value]) for value in wanted])


def _is_constant(value: ir.Value) -> bool:
    return not isinstance(value, ir.BlockArgument) and ir.OpResult(value).owner.name == "mir.constant"
