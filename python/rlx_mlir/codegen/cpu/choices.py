# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What templates of products may do in several ways with the same bits as result: measured choices replace the rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from rlx_mlir.errors import InputError

__all__ = ["BY_RULE", "Choices", "check_choices", "format_choices", "parse_choices"]

#: Values that each choice may have; more bytes ahead than this leave every cache before they are needed.
_LEAST = {"tile_rows": 1, "prefetch": 0}
_MOST = {"tile_rows": 64, "prefetch": 1 << 16}


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


def check_choices(choices: object) -> None:
    """Raises InputError where choices aren't a mapping from kernels to values by the names of choices."""
    if not isinstance(choices, Mapping):
        raise InputError(f"'choices' expects a mapping from kernels to choices, but got {choices!r}")
    names = [own.name for own in fields(Choices)]
    for kernel, own in choices.items():
        if not isinstance(own, Mapping):
            raise InputError(f"'choices' expects a mapping from names to numbers for '{kernel}', but got {own!r}")
        for name, value in own.items():
            if name not in names:
                raise InputError(f"'choices' expects {' or '.join(names)} for '{kernel}', but got '{name}'")
            if isinstance(value, bool) or not isinstance(value, int) or not _LEAST[name] <= value <= _MOST[name]:
                raise InputError(
                    f"'choices' expects a number from {_LEAST[name]} to {_MOST[name]} for {name} of '{kernel}', "
                    f"but got {value!r}"
                )


def format_choices(choices: Mapping[str, Mapping[str, int]]) -> str:
    """Choices by kernel as the text of a pass's option: `kernel:tile_rows:4+kernel:prefetch:0`."""
    parts = [(kernel, name, value) for kernel, own in choices.items() for name, value in own.items()]
    return "+".join(f"{kernel}:{name}:{value}" for kernel, name, value in sorted(parts))


def parse_choices(text: str) -> dict[str, Choices]:
    """Inverse of `format_choices`; InputError names the part that can't be read."""
    found: dict[str, dict[str, int]] = {}
    for part in filter(None, text.split("+")):
        kernel, _, rest = part.partition(":")
        name, _, value = rest.partition(":")
        if not kernel or not value.isdigit():
            raise InputError(f"option 'choices' expects kernel:choice:number, joined by +, but got '{part}'")
        found.setdefault(kernel, {})[name] = int(value)
    check_choices(found)
    return {kernel: Choices(**own) for kernel, own in found.items()}
