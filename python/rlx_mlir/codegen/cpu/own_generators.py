# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernel generators of users' own: they are asked before those of the package.

docs/own-operations.md is for whoever writes one.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence

from rlx_mlir import checks
from rlx_mlir.errors import InputError, did_you_mean
from rlx_mlir.kernel_classes import CLASSES
from rlx_mlir.own_ops import function_digest
from rlx_mlir.tuning.choices import check_choices
from rlx_mlir.tuning.cpu import Knob, ranges

from .registry import AnyGenerator, Candidates, Generator, as_it_is, generators, knobs

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
_PARTS = ("kernels", "emit", "configure", "knobs", "candidates")
_PROGRAMS = ("prefill", "decode")

_lock = threading.Lock()
_own: dict[str, AnyGenerator] = {}


def register_generator(
    name: str,
    *,
    kernels: str | None = None,
    emit: Callable[..., str] | None = None,
    configure: Callable[..., object] | None = None,
    knobs: Mapping[str, Knob] | None = None,
    candidates: Mapping[str, Candidates] | None = None,
    **unknown: object,
) -> AnyGenerator:
    """Makes the code of a class of kernels for CPUs from a function of Python, before the package's own generators.

    Args:
        name: two or more words with dots between them, such as `my.sums`: reports have it, and `disable_templates`
            leaves the generator out by it.
        kernels: the class of kernels that it is asked for, which reports say of each kernel.
        emit: `(name, config, target)`: the functions of the kernel of that name, as text; `rlx_mlir.codegen.emit` helps
            to write it. Raises `UnsupportedByTemplate` with the reason where it doesn't cover the kernel, which then is
            another generator's.
        configure: `(name, spec, target)`, of which spec says what the kernel computes (a class of
            `rlx_mlir.codegen.specs`): what `emit` gets. None where kernels of this form are others'; it may decline,
            too. Without it, `emit` gets the spec.
        knobs: what `compile(choices=)` and `rlx tune` may choose, which `target.choices` has.
        candidates: choices to try, in programs `prefill` and `decode`.

    Returns the record. Raises InputError, which names what is missing or wrong.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            "a generator's name is two or more words of letters, digits and '_' with dots between them, such as "
            f"'my.sums', but got {checks.shown(name)}"
        )
    for word in unknown:
        raise InputError(f"generator '{name}' has no '{word}'{did_you_mean(word, _PARTS)}; it has {', '.join(_PARTS)}")
    if missing := [word for word, part in (("kernels", kernels), ("emit", emit)) if part is None]:
        raise InputError(f"generator '{name}' lacks {', '.join(missing)}")
    if not isinstance(kernels, str) or kernels not in CLASSES:
        raise InputError(
            f"'kernels' of '{name}' is one of {', '.join(CLASSES)}, but got {checks.shown(kernels)}"
            f"{did_you_mean(str(kernels), CLASSES)}"
        )
    for word, function in (("emit", emit), ("configure", configure)):
        if function is not None:
            _check_function(name, word, function)
    assert emit is not None
    chosen = dict(checks.mapping("knobs", {} if knobs is None else knobs, "a mapping from names to Knobs"))
    tried = dict(
        checks.mapping("candidates", {} if candidates is None else candidates, "a mapping from programs to choices")
    )
    _check_knobs(name, chosen, tried)
    own = Generator(name, kernels, configure or as_it_is, emit, name, chosen, tried)
    with _lock:
        if name in _own:
            raise InputError(f"generator '{name}' is registered already; unregister_generator forgets it")
        generators().insert(len(_own), own)
        _own[name] = own
    return own


def unregister_generator(name: str) -> None:
    """Forgets a generator: kernels get other code from now on. Raises InputError where there is none of that name."""
    with _lock:
        own = _own.pop(checks.text("name", name, "the name of a generator"), None)
        if own is None:
            raise InputError(
                f"no generator '{name}' is registered{did_you_mean(name, _own)}; registered: "
                f"{', '.join(_own) or 'none is'}"
            )
        generators().remove(own)


def generator_digests() -> dict[str, str | None]:
    """What decides about the code of each generator, in the order in which they are asked; None where nothing tells."""
    with _lock:
        listed = list(_own.values())
    return {own.name: _digest(own) for own in listed}


def _digest(own: AnyGenerator) -> str | None:
    parts = [function_digest(function) for function in (own.configure, own.emit)]
    if None in parts:
        return None
    return hashlib.sha256("\n".join([own.kernels, repr(own.knobs), *map(str, parts)]).encode()).hexdigest()


def _check_function(name: str, word: str, function: object) -> None:
    """Raises InputError where a part of a generator can't be called as it will be."""
    if not callable(function):
        raise InputError(f"'{word}' of '{name}' is a function, but got {checks.shown(function)}")
    what = "spec" if word == "configure" else "config"
    try:
        inspect.signature(function).bind(name, None, None)
    except TypeError as error:
        raise InputError(
            f"'{word}' of '{name}' takes (name, {what}, target), but is {inspect.signature(function)}: {error}"
        ) from None
    except ValueError:  # some of Python's own functions have no signature
        pass


def _check_knobs(name: str, own: Mapping[str, Knob], candidates: Mapping[str, Candidates]) -> None:
    """Raises InputError for knobs that are none or another generator's, and for candidates of others."""
    known = knobs()
    for word, knob in own.items():
        if not isinstance(knob, Knob):
            raise InputError(f"knob '{word}' of '{name}' is a Knob, but got {checks.shown(knob)}")
        if word in known:
            raise InputError(f"'{name}' can't have a knob '{word}': it is another generator's")
    for program, listed in candidates.items():
        if program not in _PROGRAMS:
            raise InputError(f"'candidates' of '{name}' has {', '.join(_PROGRAMS)}, but got {checks.shown(program)}")
        several = isinstance(listed, Sequence) and not isinstance(listed, str | bytes)
        if not several or not all(isinstance(choices, Mapping) for choices in listed):
            raise InputError(
                f"'candidates' of '{name}' has a sequence of mappings for {program}, but got {checks.shown(listed)}"
            )
        for choices in listed:
            if unknown := [word for word in choices if word not in own]:
                raise InputError(f"'candidates' of '{name}' chooses {', '.join(unknown)}, which is no knob of it")
            check_choices({name: choices}, ranges(own))
