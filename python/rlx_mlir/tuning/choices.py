# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measured choices of kernels, in place of rules: their names, which values they may have, their text in pipelines.

A choice is a number, by the names of a kernel and of what is chosen. Where a schedule has kernels for several numbers
of rows, `tile_rows@128` is for the range that 128 rows are in, and `tile_rows` for all ranges that have no own one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rlx_mlir.errors import InputError

__all__ = [
    "NOTHING_CHOSEN",
    "Chosen",
    "Kernels",
    "changes_bits",
    "check_choices",
    "check_kernels",
    "format_choices",
    "read_choices",
    "text_of",
]

Kernels = Mapping[str, Mapping[str, int]]
"""Choices by kernel: values by the name of the choice."""

AT = "@"
"""What stands before a number of rows in a choice's name."""


def check_choices(choices: object, known: Mapping[str, range], *, by_rows: bool = False) -> None:
    """Raises InputError where choices aren't a mapping from kernels to values by the names of choices.

    Args:
        known: the values of each choice that there is.
        by_rows: whether names may end in a number of rows.
    """
    if not isinstance(choices, Mapping):
        raise InputError(f"'choices' expects a mapping from kernels to choices, but got {choices!r}")
    for kernel, own in choices.items():
        if not isinstance(own, Mapping):
            raise InputError(f"'choices' expects a mapping from names to numbers for '{kernel}', but got {own!r}")
        for name, value in own.items():
            base, at, rows = str(name).partition(AT) if by_rows else (str(name), "", "")
            if base not in known:
                *others, last = known
                words = f"{', '.join(others)} or {last}" if others else last
                raise InputError(f"'choices' expects {words} for '{kernel}', but got '{name}'")
            if at and not (rows.isascii() and rows.isdigit() and int(rows)):
                raise InputError(
                    f"'choices' expects a number of rows after '{base}{AT}' of '{kernel}', but got '{rows}'"
                )
            if isinstance(value, bool) or not isinstance(value, int) or value not in known[base]:
                raise InputError(
                    f"'choices' expects {_described(known[base])} for {name} of '{kernel}', but got {value!r}"
                )


def check_kernels(choices: Iterable[str], kernels: Collection[str]) -> None:
    """Raises InputError where choices are for kernels that a module doesn't have."""
    for name in choices:
        if name not in kernels:
            raise InputError(f"'choices' names '{name}', but the kernels are {', '.join(kernels)}")


def _described(values: range) -> str:
    step = f"a multiple of {values.step}" if values.step > 1 else "a number"
    return f"{step} from {values[0]} to {values[-1]}"


def format_choices(choices: Kernels) -> str:
    """Choices by kernel as the text of a pass's option: `kernel:tile_rows:4+kernel:prefetch:0`."""
    parts = [(kernel, name, value) for kernel, own in choices.items() for name, value in own.items()]
    return "+".join(f"{kernel}:{name}:{value}" for kernel, name, value in sorted(parts))


def read_choices(text: str, known: Mapping[str, range], *, by_rows: bool = False) -> dict[str, dict[str, int]]:
    """What `format_choices` wrote, by kernel and name; InputError names the part that can't be read."""
    found: dict[str, dict[str, int]] = {}
    for part in filter(None, text.split("+")):
        kernel, _, rest = part.partition(":")
        name, _, value = rest.partition(":")
        if not kernel or not value.isdigit():
            raise InputError(f"option 'choices' expects kernel:choice:number, joined by +, but got '{part}'")
        found.setdefault(kernel, {})[name] = int(value)
    check_choices(found, known, by_rows=by_rows)
    return found


def text_of(own: Mapping[str, int]) -> str:
    """The choices of a kernel, for people."""
    return ", ".join(f"{name} {value}" for name, value in own.items())


def changes_bits(own: Iterable[str], changing: Collection[str]) -> bool:
    """Whether one of a kernel's choices is among those that change results."""
    return any(name.partition(AT)[0] in changing for name in own)


class Chosen:
    """The choices for one kernel, as a schedule asks for them.

    A choice that nothing asks for is an error at the end: the kernel doesn't have it.
    """

    def __init__(self, kernel: str = "", values: Mapping[str, int] | None = None) -> None:
        self.kernel = kernel
        self._values = dict(values or {})
        self._asked: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._values)

    def part(self, *, above: int = 0, limit: int | None = None) -> Chosen:
        """The choices for more than `above` and up to `limit` rows; what is asked of them counts here, too."""
        own = Chosen(self.kernel)
        own._asked = self._asked
        for key, value in self._values.items():
            name, at, _ = key.partition(AT)
            if not at or _is_within(key, name, above, limit):
                own._values[key] = value
        return own

    def take(
        self, name: str, allowed: Collection[int] | None = None, *, above: int = 0, limit: int | None = None
    ) -> int | None:
        """The value for kernels of more than `above` and up to `limit` rows (None: any number); None where a rule is.

        Raises InputError, with the kernel, the choice, what is allowed and the value, where it isn't allowed (None
        allows all), and where there are two for the same rows.
        """
        own = {key: value for key, value in self._values.items() if _is_within(key, name, above, limit)}
        self._asked.update(own)
        if len(set(own.values())) > 1:
            raise InputError(f"choices {' and '.join(own)} of kernel '{self.kernel}' are for the same range of rows")
        if not own and name in self._values:
            own = {name: self._values[name]}
            self._asked.add(name)
        for key, value in own.items():
            if allowed is not None and value not in allowed:
                words = _described(allowed) if isinstance(allowed, range) else " or ".join(map(str, allowed))
                self.refuse(key, value, words)
            return value
        return None

    def refuse(self, name: str, value: object, allowed: str) -> None:
        """Raises InputError: a value isn't what is allowed."""
        raise InputError(f"choice '{name}' of kernel '{self.kernel}' expects {allowed}, but got {value}")

    def finish(self, schedule: str) -> None:
        """Raises InputError where there are choices that no schedule asked for."""
        for name in self._values:
            if name not in self._asked:
                raise InputError(f"kernel '{self.kernel}', of schedule {schedule}, has no choice '{name}'")


NOTHING_CHOSEN = Chosen()
"""Schedules follow their rules."""


def _is_within(key: str, name: str, above: int, limit: int | None) -> bool:
    """Whether a choice's name says that it is `name`, for a number of rows in a range."""
    base, at, rows = key.partition(AT)
    return base == name and bool(at) and above < int(rows) and (limit is None or int(rows) <= limit)
