# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What builders that compose others ask of their arguments before they read shapes of them or call them.

A builder of one operation leaves that to what makes the operation. One that composes several reads `x.ndim` first, so
its class is decorated: arguments whose annotation is `Value`, a sequence of these, a number or a text are checked.
Keywords that a builder doesn't have are its own error, not that of what it hands them on to.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

from rlx_mlir import checks
from rlx_mlir.errors import InputError, did_you_mean
from rlx_mlir.hir import place
from rlx_mlir.hir.values import Value

_Class = TypeVar("_Class", bound=type)
Given = ParamSpec("Given")
Result = TypeVar("Result")


def _value(name: str, given: object) -> None:
    if not isinstance(given, Value | np.ndarray):
        raise InputError(f"'{name}' is a Value or an array, but got {checks.shown(given)}")


def _values(name: str, given: object) -> None:
    if not isinstance(given, tuple | list):
        raise InputError(f"'{name}' is a sequence of values, but got {checks.shown(given)}")
    for each in given:
        _value(name, each)


def _one_or_several(name: str, given: object) -> None:
    (_values if isinstance(given, tuple | list) else _value)(name, given)


def _sequence(name: str, given: object) -> None:
    if not isinstance(given, tuple | list):
        raise InputError(f"'{name}' is a sequence, but got {checks.shown(given)}")


def _whole(name: str, given: object) -> None:
    checks.whole(name, given, -checks.LARGEST)


def _axes(name: str, given: object) -> None:
    if not isinstance(given, tuple | list | range):
        raise InputError(f"'{name}' is a sequence of dimensions, but got {checks.shown(given)}")
    for each in given:
        _whole(name, each)


def _text(name: str, given: object) -> None:
    checks.text(name, given)


#: What is checked of arguments with an annotation. Seeds have a range of their own.
_KINDS: dict[str, Callable[[str, object], object]] = {
    "Value": _value,
    "Values": _one_or_several,
    "Sequence[Value]": _values,
    "Sequence[Sequence[str]]": _sequence,
    "Sequence[int]": _axes,
    "int": _whole,
    "float": checks.real,
    "bool": checks.flag,
    "str": _text,
}


def checked(builders: _Class) -> _Class:
    """Checks arguments of the public methods that a class defines; BuildError names what isn't as is said."""
    for name, method in list(vars(builders).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(builders, name, _checked(method))
    return builders


def _checked(method: Callable[Given, Result]) -> Callable[Given, Result]:
    names: list[str] = []
    asked: dict[str, tuple[Callable[[str, object], object], bool]] = {}
    rest = None
    for parameter in inspect.signature(method).parameters.values():
        kind = str(parameter.annotation).removesuffix(" | None")
        found = (_KINDS[kind], kind != parameter.annotation) if kind in _KINDS else None
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = (parameter.name, found)
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY:
            names.append(parameter.name)
        if found is not None and parameter.name != "seed":
            asked[parameter.name] = found

    @functools.wraps(method)
    def call(*given: Given.args, **options: Given.kwargs) -> Result:
        by_name = dict(zip(names, given, strict=False)) | options
        with place.checking(f"'{method.__name__}'"):
            for name, (check, optional) in asked.items():
                if name in by_name and not (optional and by_name[name] is None):
                    check(name, by_name[name])
            if rest is not None and rest[1] is not None:
                for value in given[len(names) :]:
                    rest[1][0](rest[0], value)
        return method(*given, **options)

    return call


#: How the annotation of keywords begins that a builder hands on, before the name of the dictionary that lists them.
_UNPACK = "Unpack["


def keywords_known(builders: type) -> None:
    """Has each public method that a class defines, and that gives values, refuse keywords that it doesn't have.

    BuildError names the method, the keyword and those that there are. Keywords whose annotation doesn't list them are
    left to what they are handed on to.
    """
    for name, method in list(vars(builders).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            signature = inspect.signature(method)
            known = _keywords_of(method, signature)
            if known and "Value" in str(signature.return_annotation):
                setattr(builders, name, _with_known(method, known))


def _keywords_of(method: Callable[..., object], signature: inspect.Signature) -> list[str]:
    """All names by which a method takes arguments; none where some aren't known."""
    names: list[str] = []
    for parameter in list(signature.parameters.values())[1:]:
        annotation = str(parameter.annotation)
        if parameter.kind is parameter.VAR_KEYWORD:
            if not annotation.startswith(_UNPACK):
                return []
            names += inspect.unwrap(method).__globals__[annotation.removeprefix(_UNPACK)[:-1]].__annotations__
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            names.append(parameter.name)
    return names


def _with_known(method: Callable[Given, Result], known: list[str]) -> Callable[Given, Result]:
    every = frozenset(known)

    @functools.wraps(method)
    def call(*given: Given.args, **options: Given.kwargs) -> Result:
        for word in options:
            if word not in every:
                own = f"'{method.__name__}' has no '{word}'{did_you_mean(word, known)}"
                raise place.caller().error(f"{own}; it has {', '.join(known)}")
        return method(*given, **options)

    return call
