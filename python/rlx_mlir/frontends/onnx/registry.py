# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables of operators: what a node of a file becomes.

A *handler* builds what an operator means, one function each, in a file for its family under `operators/`. A *fold*
computes it on elements that are known while the file is read, numbers or sizes; where it can't, it gives None.
Both are chosen by domain, name and the version of the domain's operators that the file asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rlx_mlir.frontends.tensors import Thing

Results = Thing | Iterable[Thing | None]
#: Builds the results of a node, which is a `Call`.
Handler = Callable[[Any], Results]
#: Computes the result of a node of known elements; None where it is to be built.
Fold = Callable[..., Any]

#: The domain of operators that onnxruntime added.
MICROSOFT = "com.microsoft"
#: Names of the domain that has none.
STANDARD = ("", "ai.onnx")

#: (first version, handler), by domain and name, the newest first.
_HANDLERS: dict[tuple[str, str], list[tuple[int, Handler]]] = {}
_FOLDS: dict[str, Fold] = {}


class Refused(Exception):
    """A node asks for what isn't there; the text says what.

    Attributes:
        inputs: names of the model's inputs whose elements decide about sizes.
    """

    def __init__(self, reason: str, inputs: Iterable[str] = ()) -> None:
        super().__init__(reason)
        self.inputs = frozenset(inputs)


def operator(*names: str, domain: str = "", since: int = 1) -> Callable[[Handler], Handler]:
    """Registers the handler of operators, from a version of their domain on."""

    def add(handler: Handler) -> Handler:
        for name in names:
            versions = _HANDLERS.setdefault((domain, name), [])
            versions.append((since, handler))
            versions.sort(key=lambda entry: -entry[0])
        return handler

    return add


def fold(*names: str) -> Callable[[Fold], Fold]:
    """Registers what computes operators of known elements: `fold(call, *arrays)`, an array or a list of them."""

    def add(function: Fold) -> Fold:
        _FOLDS.update(dict.fromkeys(names, function))
        return function

    return add


def canonical(domain: str) -> str:
    """The domain, by the one name that the tables have for it."""
    return "" if domain in STANDARD else domain


def handler_of(domain: str, name: str, version: int) -> Handler | None:
    """The handler of an operator in a version of its domain; None where there is none."""
    for since, handler in _HANDLERS.get((canonical(domain), name), ()):
        if since <= version:
            return handler
    return None


def fold_of(domain: str, name: str) -> Fold | None:
    """What computes an operator of known elements; None where nothing does."""
    return _FOLDS.get(name) if canonical(domain) == "" else None


def by_family() -> dict[tuple[str, str], list[str]]:
    """The operators that have a handler, by domain and by the module under `operators` that has it."""
    found: dict[tuple[str, str], list[str]] = {}
    for (domain, name), versions in sorted(_HANDLERS.items()):
        found.setdefault((domain, versions[0][1].__module__.rpartition(".")[2]), []).append(name)
    return found


def as_arrays(found: object) -> list[np.ndarray]:
    """What a fold gave, as a list of arrays: numpy gives elements of arrays of objects as they are."""
    arrays = []
    for each in found if isinstance(found, list | tuple) else [found]:
        if not isinstance(each, np.ndarray | np.generic):
            whole = np.empty((), object)
            whole[()] = each
            each = whole
        arrays.append(np.asarray(each))
    return arrays
