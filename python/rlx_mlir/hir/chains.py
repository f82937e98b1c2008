# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The builder of chains of element-wise steps that are given as data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlx_mlir.hir import place
from rlx_mlir.hir.checked import checked
from rlx_mlir.hir.draws import Draws
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.functions import of_arity

if TYPE_CHECKING:
    from typing_extensions import Unpack

_OPERAND = re.compile(r"([is])(\d{1,6})")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@checked
class Chains(Draws):
    """The builder."""

    def elementwise_region(
        self, inputs: Sequence[Value], chain: Sequence[Sequence[str]], **options: Unpack[Options]
    ) -> Value:
        """What a chain of element-wise steps gives, the last one's value; the compiler makes one kernel of it.

        Args:
            inputs: values that broadcast with each other.
            chain: steps, each a word and its operands, `i0` for the first input and `s0` for the value of the first
                step: `("add", "i0", "i1")`, `("silu", "s0")`, `("lt", "s0", "i1")`, `("where", "s2", "s1", "i0")`,
                `("cast", "f16", "s3")`. Words are those of `activation`, `binary`, `compare`, where and cast.

        Raises BuildError for a step that is none, or an operand that there isn't before it.
        """
        here = place.caller()
        steps: list[Value] = []

        def operand(text: str) -> Value:
            match = _OPERAND.fullmatch(text) if isinstance(text, str) else None
            known = steps if match is not None and match[1] == "s" else inputs
            if match is None or int(match[2]) >= len(known):
                raise here.error(
                    f"step {len(steps)} of 'elementwise_region' reads an input, i0 to i{len(inputs) - 1}, or an "
                    f"earlier step, but got {text!r}"
                )
            return known[int(match[2])]

        for step in chain:
            word, *given = step if isinstance(step, tuple | list) and len(step) else ("",)
            last = options if len(steps) + 1 == len(chain) else {}
            arities = {"where": 3, "cast": 2} | dict.fromkeys(_COMPARISONS, 2)
            arities |= {own: arity for arity in (1, 2) for own in of_arity(arity)}
            if not isinstance(word, str) or word not in arities or len(given) != arities[word]:
                raise here.error(
                    f"step {len(steps)} of 'elementwise_region' is a word and its operands, but got {step!r}"
                )
            if word == "cast":
                steps.append(self.cast(operand(given[1]), given[0], **last))
            elif word == "where":
                steps.append(self.where(*map(operand, given), **last))
            elif word in _COMPARISONS:
                steps.append(self.compare(word, *map(operand, given), **last))
            elif arities[word] == 2:
                steps.append(self.binary(word, *map(operand, given), **last))
            else:
                steps.append(self._unary(word, operand(given[0]), **last))
        if not steps:
            raise here.error("'elementwise_region' has a step at least")
        return steps[-1]
