# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What loops carry and kernels take: values in lists, tuples, dictionaries and dataclasses, as one flat list and back.

A structure is a value (a `str`: the name of a value, or a type where only types are asked for), None, or a list, tuple,
dictionary or dataclass of structures. Python's numbers are values of sizes alone: in a loop, one would be the same in
each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

Structure = TypeVar("Structure")

#: A structure, or a part of one: which of those above it is made of, only who makes it knows.
Nested: TypeAlias = Any


def _parts(structure: Nested) -> list[tuple[str, Nested]] | None:
    """What a structure is made of, with names where parts have some; None for a value."""
    if isinstance(structure, str):
        return None
    if structure is None:
        return []
    if isinstance(structure, (list, tuple)):
        return [("", part) for part in structure]
    if isinstance(structure, dict):
        return list(structure.items())
    if is_dataclass(structure) and not isinstance(structure, type):
        return [(field.name, getattr(structure, field.name)) for field in fields(structure)]
    raise TypeError(f"values are carried in lists, tuples, dictionaries and dataclasses, or as None, not {structure!r}")


def named(structure: Nested, name: str = "", *, numbers: bool = False) -> Iterator[tuple[str, Nested]]:
    """The values of a structure, in order, each with the innermost name that it has; TypeError for what is none.

    Args:
        numbers: whether Python's ints are values, too.
    """
    parts = None if numbers and isinstance(structure, int) else _parts(structure)
    if parts is None:
        yield name, structure
        return
    for own, part in parts:
        yield from named(part, own or name, numbers=numbers)


def flatten(structure: Nested, *, numbers: bool = False) -> list[Nested]:
    """The values of a structure, in order; arguments as for `named`."""
    return [value for _, value in named(structure, numbers=numbers)]


def unflatten(like: Structure, values: Iterable[Nested]) -> Structure:
    """A structure as `like` is one, of other values: as many as it has."""
    rest = iter(values)
    try:
        made: Structure = _filled(like, rest)
    except StopIteration:
        raise ValueError(f"there are fewer values than {described(like)} has") from None
    if (more := next(rest, None)) is not None:
        raise ValueError(f"there are more values than {described(like)} has, the first is {more}")
    return made


def _filled(like: Nested, rest: Iterator[Nested]) -> Nested:
    if like is None:
        return None
    if isinstance(like, (str, int)):
        return next(rest)
    made = [_filled(part, rest) for _, part in _parts(like) or ()]
    if isinstance(like, list):
        return made
    if isinstance(like, tuple):
        return type(like)(*made) if hasattr(like, "_fields") else tuple(made)
    if isinstance(like, dict):
        return dict(zip(like, made, strict=True))
    return replace(like, **dict(zip((field.name for field in fields(like)), made, strict=True)))


def mapped(function: Callable[..., object], first: Structure, *others: Nested) -> Structure:
    """`function` of the values that stand at the same place of each structure; all have the form of the first one."""
    return unflatten(first, [function(*each) for each in zip(*map(flatten, (first, *others)), strict=True)])


def described(structure: Nested) -> str:
    """The form of a structure, with the types of its values: `State(turn=i32, sums=[f32, f32])`."""
    if structure is None or isinstance(structure, int):
        return str(structure)
    if isinstance(structure, str):
        return str(getattr(structure, "type", structure))
    inner = ", ".join(
        f"{name}={described(part)}" if name else described(part) for name, part in _parts(structure) or ()
    )
    if isinstance(structure, list):
        return f"[{inner}]"
    if isinstance(structure, dict):
        return f"{{{inner}}}"
    return f"({inner})" if isinstance(structure, tuple) else f"{type(structure).__name__}({inner})"


def pairwise(join: Callable[[Structure, Structure], Structure], values: Sequence[Structure]) -> Structure:
    """At least one structure, neighbours joined until one is left: short chains, and small errors of sums."""
    left = list(values)
    while len(left) > 1:
        pairs = [left[i : i + 2] for i in range(0, len(left), 2)]
        left = [pair[0] if len(pair) == 1 else join(*pair) for pair in pairs]
    return left[0]
