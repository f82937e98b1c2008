# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernel generators for CPUs may do in several ways: measured choices replace their rules.

Each generator brings its knobs; those that several have stand here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlx_mlir.tuning.choices import read_choices

__all__ = ["BY_RULE", "SHARED", "Choices", "Knob", "parse_choices", "ranges"]


@dataclass(frozen=True)
class Knob:
    """Something that can be done in several ways.

    Attributes:
        values: the numbers that may be chosen.
        changes_bits: whether it changes the order in which products are added up, or how they are rounded; all others
            keep every bit.
    """

    values: range
    changes_bits: bool = False


#: Knobs of several generators.
SHARED: Mapping[str, Knob] = {
    # Rows of a register tile at most.
    "tile_rows": Knob(range(1, 65)),
    # Bytes ahead of the use at which packed weights are fetched, 0 for nothing; more leave every cache before.
    "prefetch": Knob(range((1 << 16) + 1)),
    # 0 leaves the tiles of AMX out, 1 uses them where templates do so by rule.
    "amx": Knob(range(2), changes_bits=True),
}


@dataclass(frozen=True)
class Choices:
    """The choices for one kernel.

    Attributes:
        values: by knob; one that isn't there is left to the generator's rule.
    """

    values: Mapping[str, int] = field(default_factory=dict)

    def get(self, knob: str) -> int | None:
        """The value that was chosen; None where the rule decides."""
        return self.values.get(knob)

    def limited(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Rows of register tiles, which descend to 1, without those that are too large."""
        most = self.get("tile_rows")
        return tuple(size for size in sizes if most is None or size <= most)

    def ahead(self, rule: int) -> int:
        """Bytes ahead, where the generator's rule says `rule`."""
        prefetch = self.get("prefetch")
        return rule if prefetch is None else prefetch


#: Nothing is chosen: generators follow their rules.
BY_RULE = Choices()


def ranges(knobs: Mapping[str, Knob]) -> dict[str, range]:
    """The values of each knob."""
    return {name: knob.values for name, knob in knobs.items()}


def parse_choices(text: str, knobs: Mapping[str, Knob]) -> dict[str, Choices]:
    """Choices by kernel, as `format_choices` wrote them; InputError names the part that can't be read."""
    return {kernel: Choices(own) for kernel, own in read_choices(text, ranges(knobs)).items()}
