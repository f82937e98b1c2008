# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Custom calls: checks of sizes, and what says where values lie."""

from __future__ import annotations

from ..call import Call
from ..entries import Entry, as_conditions
from ..registry import Refused, operator


@operator("@shape_assertion")
def _shape_assertion(call: Call) -> list[Entry]:
    """What sizes are asked to be: known to be so, or left to the checks of each call."""
    known = as_conditions(call.operands[0])
    if known is not None and known.constant is False:
        message = call.op.attributes["error_message"].value if "error_message" in call.op.attributes else ""
        raise Refused(f"sizes that the module refuses: {message}"[:300])
    return []


@operator("@Sharding", "@xla.sdy.FuncResultSharding", "@annotate_device_placement", "@LayoutConstraint")
def _same(call: Call) -> list[Entry]:
    """The same values, wherever they lie."""
    return list(call.operands)
