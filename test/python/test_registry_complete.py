# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every MIR operation has all that Python must know of it."""

from __future__ import annotations

import inspect
from typing import Any

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.mir import DIM_RULES, PREPARE_ONLY, REFERENCES, TO_LINALG

OPS: dict[str, Any] = {
    op.OPERATION_NAME: op
    for _, op in inspect.getmembers(mir, inspect.isclass)
    if issubclass(op, ir.OpView) and op is not ir.OpView
}


def test_operations_are_found():
    assert {"mir.add", "mir.attention", "mir.repack"} <= OPS.keys()


def test_nothing_is_missing():
    lowered = {pattern.root for pattern in TO_LINALG} | PREPARE_ONLY
    missing = [
        f"{name} has no {what}"
        for name in sorted(OPS)
        for what, known in (("reference", REFERENCES), ("dim rule", DIM_RULES), ("lowering to linalg", lowered))
        if name not in known
    ]
    assert not missing, "\n".join(missing)


def test_nothing_is_left_over():
    """No entry for an operation that doesn't exist, and no pattern for one that only runs in preparation."""
    roots = {pattern.root for pattern in TO_LINALG}
    known = REFERENCES.keys() | DIM_RULES.keys() | roots | PREPARE_ONLY  # HIR has its entries there, too
    assert not {name for name in known if name.startswith("mir.")} - OPS.keys()
    assert not roots & PREPARE_ONLY


def test_references_take_the_attributes_of_their_operations():
    """Keywords are the names of attributes in the ODS (or what the result type tells)."""
    wrong = []
    for name, op in OPS.items():
        attributes = {k for k, v in vars(op).items() if isinstance(v, property)}
        for parameter in inspect.signature(REFERENCES[name]).parameters.values():
            known = attributes | {"result_dtype", "result_shape"}
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in known:
                wrong.append(f"{name}: '{parameter.name}'")
    assert not wrong, wrong
