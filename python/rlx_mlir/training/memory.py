# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which blocks a step of training computes again, so that its memory stays within a limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlx_mlir.errors import InputError
from rlx_mlir.hir import GraphModule
from rlx_mlir.locations import block_name
from rlx_mlir.optim.steps import TrainStep
from rlx_mlir.runtime.shown import size_text

Make = Callable[[tuple[str, ...]], TrainStep]


def within(
    module: GraphModule, make: Make, limit: int, maxima: Mapping[str, int] | None
) -> tuple[TrainStep, tuple[str, ...]]:
    """A step that needs no more than so many bytes, with as few blocks as possible computed again.

    Args:
        module: that is trained, at stage mir.
        make: the step, with some of the module's blocks computed again.
        limit: bytes of a call at its peak, parameters and what the optimiser keeps included.
        maxima: largest sizes, as of `compile`.

    Gives the step, and the blocks. Raises InputError where even all blocks don't bring it within the limit.
    """

    def tried(count: int) -> tuple[TrainStep, int]:
        step = make(blocks[:count])
        return step, step.module.memory_estimate(maxima).peak_donated

    blocks = outer_blocks(module)
    step, taken = tried(0)
    if taken <= limit:
        return step, ()
    least, most = 0, len(blocks)
    best, of_best = tried(most) if most else (step, taken)
    if of_best > limit:
        raise InputError(
            f"a step of module '{module.name}' takes {size_text(taken)}, and {size_text(of_best)} with all of its "
            f"{len(blocks)} blocks computed again, but the limit is {size_text(limit)}"
        )
    while most - least > 1:  # the more blocks, the less memory, as a rule: what is taken has been planned
        middle = (least + most) // 2
        step, taken = tried(middle)
        if taken <= limit:
            most, best = middle, step
        else:
            least = middle
    return best, blocks[:most]


def outer_blocks(module: GraphModule) -> tuple[str, ...]:
    """The outermost named blocks of more than one operation, in order."""
    counts: dict[str, int] = {}
    for node in module.nodes():
        name = block_name(node._op.location).partition(".")[0]
        counts[name] = counts.get(name, 0) + 1
    return tuple(name for name, count in counts.items() if name and count > 1)
