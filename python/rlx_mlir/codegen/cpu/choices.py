# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What templates of products may do in several ways with the same bits as result: measured choices replace the rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlx_mlir.errors import InputError

__all__ = ["BY_RULE", "LIMITS", "Choices", "check_choices", "format_choices", "parse_choices", "read_choices"]

#: Least and greatest value of each choice; more bytes ahead than this leave every cache before they are needed.
LIMITS = {"tile_rows": (1, 64), "prefetch": (0, 1 << 16)}


@dataclass(frozen=True)
class Choices:
    """The choices for one kernel; None leaves one to the template's rule.

    Attributes:
        tile_rows: rows of a register tile at most.
        prefetch: bytes ahead of the use at which packed weights are fetched; 0 fetches nothing ahead.
    """

    tile_rows: int | None = None
    prefetch: int | None = None

    def limited(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Rows of register tiles, which descend to 1, without those that are too large."""
        return tuple(size for size in sizes if self.tile_rows is None or size <= self.tile_rows)

    def ahead(self, rule: int) -> int:
        """Bytes ahead, where the template's rule says `rule`."""
        return rule if self.prefetch is None else self.prefetch


#: Nothing is chosen: templates follow their rules.
BY_RULE = Choices()


def check_choices(choices: object, limits: Mapping[str, tuple[int, int]] = LIMITS) -> None:
    """Raises InputError where choices aren't a mapping from kernels to values by the names of choices.

    Args:
        limits: least and greatest value of each choice that there is.
    """
    if not isinstance(choices, Mapping):
        raise InputError(f"'choices' expects a mapping from kernels to choices, but got {choices!r}")
    for kernel, own in choices.items():
        if not isinstance(own, Mapping):
            raise InputError(f"'choices' expects a mapping from names to numbers for '{kernel}', but got {own!r}")
        for name, value in own.items():
            if name not in limits:
                raise InputError(f"'choices' expects {' or '.join(limits)} for '{kernel}', but got '{name}'")
            least, most = limits[name]
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise InputError(
                    f"'choices' expects a number from {least} to {most} for {name} of '{kernel}', but got {value!r}"
                )


def format_choices(choices: Mapping[str, Mapping[str, int]]) -> str:
    """Choices by kernel as the text of a pass's option: `kernel:tile_rows:4+kernel:prefetch:0`."""
    parts = [(kernel, name, value) for kernel, own in choices.items() for name, value in own.items()]
    return "+".join(f"{kernel}:{name}:{value}" for kernel, name, value in sorted(parts))


def parse_choices(text: str) -> dict[str, Choices]:
    """Inverse of `format_choices`; InputError names the part that can't be read."""
    return {kernel: Choices(**own) for kernel, own in read_choices(text).items()}


def read_choices(text: str, limits: Mapping[str, tuple[int, int]] = LIMITS) -> dict[str, dict[str, int]]:
    """What `format_choices` wrote, by kernel and name; InputError names the part that can't be read."""
    found: dict[str, dict[str, int]] = {}
    for part in filter(None, text.split("+")):
        kernel, _, rest = part.partition(":")
        name, _, value = rest.partition(":")
        if not kernel or not value.isdigit():
            raise InputError(f"option 'choices' expects kernel:choice:number, joined by +, but got '{part}'")
        found.setdefault(kernel, {})[name] = int(value)
    check_choices(found, limits)
    return found
