# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What templates of products may do in several ways: measured choices replace the rule."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_mlir.tuning.choices import read_choices

__all__ = ["BY_RULE", "CHANGE_BITS", "KNOWN", "Choices", "parse_choices"]

#: The values of each choice; more bytes ahead than this leave every cache before they are needed.
KNOWN = {
    "tile_rows": range(1, 65),
    "prefetch": range((1 << 16) + 1),
    "amx": range(2),
    "amx_rows": range(32, 4097, 32),
    "amx_k": range(32, 4097, 32),
    "amx_group": range(1, 257),
}
#: Those that change the order in which products are added up, or how they are rounded; all others keep every bit.
CHANGE_BITS = frozenset({"amx", "amx_k"})


@dataclass(frozen=True)
class Choices:
    """The choices for one kernel; None leaves one to the template's rule.

    Attributes:
        tile_rows: rows of a register tile at most.
        prefetch: bytes ahead of the use at which packed weights are fetched; 0 fetches nothing ahead.
        amx: 0 leaves the tiles of AMX out, 1 uses them where templates do so by rule.
        amx_rows, amx_k: of products of f32 by AMX: rows, and elements of K, that are cut into parts at a time.
        amx_group: blocks of 32 columns that share each cutting of rows.
    """

    tile_rows: int | None = None
    prefetch: int | None = None
    amx: int | None = None
    amx_rows: int | None = None
    amx_k: int | None = None
    amx_group: int | None = None

    def limited(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Rows of register tiles, which descend to 1, without those that are too large."""
        return tuple(size for size in sizes if self.tile_rows is None or size <= self.tile_rows)

    def ahead(self, rule: int) -> int:
        """Bytes ahead, where the template's rule says `rule`."""
        return rule if self.prefetch is None else self.prefetch


#: Nothing is chosen: templates follow their rules.
BY_RULE = Choices()


def parse_choices(text: str) -> dict[str, Choices]:
    """Choices by kernel, as `format_choices` wrote them; InputError names the part that can't be read."""
    return {kernel: Choices(**own) for kernel, own in read_choices(text, KNOWN).items()}
