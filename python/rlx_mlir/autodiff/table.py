# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How each operation is differentiated and batched, for tables."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from rlx_mlir.autodiff import rules as rules
from rlx_mlir.autodiff.registry import CONSTANT, PARTS
from rlx_mlir.mir.registry import BATCHING, COMPOSITIONS, JVPS, VJPS


@dataclass(frozen=True)
class Ways:
    """How an operation is differentiated and batched.

    Attributes:
        vjp, jvp: `rule`, `parts` where it is what it is made of that is differentiated, `transpose` of the rule of
            reverse mode, `constant` where no derivative goes through; empty where there is none.
        batching: `rule`, `parts`, or `one by one`.
        formula: the cotangents in words, from the rule of reverse mode.
    """

    vjp: str
    jvp: str
    batching: str
    formula: str


def ways(name: str) -> Ways:
    """How an operation of MIR is differentiated and batched, by its name."""
    parts = "parts" if name in {*COMPOSITIONS, *PARTS} else ""
    if name in CONSTANT:
        reverse = forward = "constant"
    else:
        reverse = "rule" if name in VJPS else parts
        forward = "rule" if name in JVPS else "transpose" if name in VJPS else parts
    batching = "rule" if name in BATCHING else "parts" if name in COMPOSITIONS else "one by one"
    words = "" if reverse != "rule" else (inspect.getdoc(VJPS[name]) or "").partition("\n")[0]
    return Ways(reverse, forward, batching, words)
