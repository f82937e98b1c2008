# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernel generators for CPUs: the record of one, and the ordered list that `cpu-apply-templates` and tuning walk.

A generator is one file of this package: `GENERATORS` in it holds a record for each of its kernels, with everything that
others ask. `MODULES` names the file; nothing else does.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from rlx_mlir.checks import shown
from rlx_mlir.errors import CompileError
from rlx_mlir.tuning.cpu import SHARED, Knob

from . import UnsupportedByTemplate
from .target import Target

Spec = TypeVar("Spec")
Config = TypeVar("Config")

Candidates = Sequence[Mapping[str, int]]
"""Choices beside the rule's, in the order in which they are tried."""

#: Modules of this package that have `GENERATORS`, in the order in which the generators of a class are asked.
MODULES = (
    "gemm_amx_blocks",
    "gemm_amx_f32",
    "gemm_amx",
    "gemm_batched",
    "gemm",
    "gemm_int8",
    "block_quantize",
    "gemm_digits",
    "gemm_packed",
    "gemm_bytes",
    "rows",
    "attention",
    "kept_blocks",
    "recurrence",
    "state_space",
    "conv",
    "conv2d_winograd",
    "conv2d_panels",
    "conv2d",
    "conv2d_channels",
    "pool",
    "norm",
    "group_norm",
    "reduce",
    "solve",
    "cross_entropy",
    "fft",
    "grouped",
    "grouped_panels",
    "copies",
    "transpose",
    "broadcast",
    "top_k",
    "gather",
    "call",
)


@dataclass(frozen=True)
class Generator(Generic[Spec, Config]):
    """One way to make the code of a class of kernels. Its functions are pure: they may be asked at any time, and twice.

    Attributes:
        name: by which reports and the attribute `mir.template` call it.
        kernels: the class of kernels that it is asked for.
        configure: what it decides for a kernel of a name, from what that computes (`lowering.kernel_specs` reads it,
            by class) and the target. None where kernels of this form are another generator's; UnsupportedByTemplate,
            with the reason, where it doesn't cover this one.
        emit: the functions of the kernel as text, for a name, a configuration and the target; it may decline, too.
        switch: the word of `disable_templates` that leaves it out, where it rounds otherwise than the next ones.
        knobs: what may be chosen by measurement in place of its rules, by name; `target.choices` has what is.
        candidates: choices that are worth a measurement: of kernels for prompts (`prefill`), for single tokens
            (`decode`).
    """

    name: str
    kernels: str
    configure: Callable[[str, Spec, Target], Config | None]
    emit: Callable[[str, Config, Target], str]
    switch: str = ""
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    candidates: Mapping[str, Candidates] = field(default_factory=dict)


def as_it_is(name: str, spec: Spec, target: Target) -> Spec:
    """The configuration of a generator that decides nothing beforehand: what the kernel computes."""
    return spec


#: A generator of any class of kernels.
AnyGenerator: TypeAlias = Generator[Any, Any]


@functools.cache
def generators() -> list[AnyGenerator]:
    """All of them, in order: the list itself, where others may be put in."""
    modules = [importlib.import_module(f"{__package__}.{module}") for module in MODULES]
    return [generator for module in modules for generator in module.GENERATORS]


def generators_of(kernels: str) -> list[AnyGenerator]:
    """Those of a class of kernels."""
    return [generator for generator in generators() if generator.kernels == kernels]


def generate(kernels: str, name: str, spec: object, target: Target, skipped: Collection[str] = ()) -> tuple[str, str]:
    """The name of the first generator that takes a kernel, and the kernel's functions as text.

    Args:
        kernels: the kernel's class.
        name: the kernel's name.
        spec: what it computes.
        skipped: switches of generators that aren't asked.

    Raises UnsupportedByTemplate, with the reasons, where none takes it, CompileError where one gives something else.
    """
    reasons = []
    for generator in generators_of(kernels):
        if generator.switch in skipped:
            continue
        try:
            config = generator.configure(name, spec, target)
            if config is not None:
                text = generator.emit(name, config, target)
                if not isinstance(text, str):
                    raise CompileError(f"'emit' of generator '{generator.name}' gives text, but gave {shown(text)}")
                return generator.name, text
        except UnsupportedByTemplate as reason:
            reasons.append(str(reason))
    raise UnsupportedByTemplate("; ".join(dict.fromkeys(reasons)) or f"{name}: {kernels} of this form has no template")


def switches() -> tuple[str, ...]:
    """The words that leave single generators out."""
    return tuple(dict.fromkeys(generator.switch for generator in generators() if generator.switch))


def knobs() -> dict[str, Knob]:
    """All knobs by name."""
    return {**SHARED, **{name: knob for generator in generators() for name, knob in generator.knobs.items()}}


def candidates(name: str, program: str) -> Iterator[Mapping[str, int]]:
    """What is worth a measurement of a generator's kernels, in a program: `prefill` or `decode`."""
    for generator in generators():
        if generator.name == name:
            yield from generator.candidates.get(program, ())
