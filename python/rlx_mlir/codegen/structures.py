# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What loops carry: values in lists, tuples and dataclasses, as one flat list and back.

A structure is a value (a `str`: the name of a value, or a type where only types are asked for), None, or a list, tuple
or dataclass of structures. Anything else is a mistake: a Python number would be the same in each turn of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

__all__ = ["Structure", "described", "flatten", "mapped", "unflatten"]

Structure = TypeVar("Structure")


def _parts(structure: Any) -> Iterable[Any] | None:
    """What a structure is made of; None for a value."""
    if isinstance(structure, str):
        return None
    if structure is None:
        return ()
    if isinstance(structure, (list, tuple)):
        return structure
    if is_dataclass(structure) and not isinstance(structure, type):
        return [getattr(structure, field.name) for field in fields(structure)]
    raise TypeError(f"values are carried in lists, tuples and dataclasses, or as None, but got {structure!r}")


def flatten(structure: Any) -> list[Any]:
    """The values of a structure, in order; TypeError for what is none."""
    parts = _parts(structure)
    return [structure] if parts is None else [leaf for part in parts for leaf in flatten(part)]


def unflatten(like: Structure, values: Iterable[Any]) -> Structure:
    """A structure as `like` is one, of other values: as many as it has."""
    rest = iter(values)
    try:
        made = _filled(like, rest)
    except StopIteration:
        raise ValueError(f"there are fewer values than {described(like)} has") from None
    if (more := next(rest, None)) is not None:
        raise ValueError(f"there are more values than {described(like)} has, the first is {more}")
    return made


def _filled(like: Any, rest: Iterator[Any]) -> Any:
    if like is None:
        return None
    if isinstance(like, str):
        return next(rest)
    if isinstance(like, (list, tuple)):
        parts = [_filled(part, rest) for part in like]
        if isinstance(like, list):
            return parts
        return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)
    return replace(like, **{field.name: _filled(getattr(like, field.name), rest) for field in fields(like)})


def mapped(function: Callable[..., Any], first: Structure, *others: Any) -> Structure:
    """`function` of the values that stand at the same place of each structure; all have the form of the first one."""
    return unflatten(first, [function(*each) for each in zip(*map(flatten, (first, *others)), strict=True)])


def described(structure: Any) -> str:
    """The form of a structure, with the types of its values: `State(turn=i32, sums=[f32, f32])`."""
    if structure is None:
        return "None"
    if isinstance(structure, str):
        return str(getattr(structure, "type", structure))
    parts = [described(part) for part in _parts(structure) or ()]
    if isinstance(structure, list):
        return f"[{', '.join(parts)}]"
    if isinstance(structure, tuple):
        return f"({', '.join(parts)})"
    named = [f"{field.name}={part}" for field, part in zip(fields(structure), parts, strict=True)]
    return f"{type(structure).__name__}({', '.join(named)})"
