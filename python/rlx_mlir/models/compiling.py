# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models from their files: compiled (or found compiled), with their weights prepared (or found prepared)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import cast

from ..activations import AUTO
from ..checks import Option
from ..errors import InputError
from ..limits import in_threads
from ..runtime.artifact import Artifact
from . import decoder
from .bundle import NATIVE
from .compiled import CompiledFolder, compiled_folder
from .core import vocabulary_size
from .decode_threads import decode_threads
from .model import Model
from .prepared import IN_FOLDER, Place, PreparedWeights, in_cache, in_folder, set_weights
from .programs import Executable, compile_program
from .source import Source, check_options, open_source

CANDIDATES = 64
"""Largest logits that a GPU chooses among itself: where a sampler needs no more, tokens are chosen there."""


def compiled_model(
    path_or_name: str | os.PathLike[str],
    *,
    threads: int | None,
    target: str,
    cpu: str,
    time_limit: float | None,
    cache: bool,
    prepared_cache: bool | None,
    say: Callable[[str], None],
    **options: Option,
) -> Model:
    """A model from its file, or from a folder of compiled programs.

    Args:
        say: is told what is done.
        options: those of `open_source`.

    The others, and what is raised, are those of `load_model`, which has checked them.
    """
    asked = ("activations", "chunk", "kv_dtype", "nonfinite", "quantize")
    check_options(**{name: options[name] for name in asked})
    begin = time.perf_counter()
    folder = compiled_folder(path_or_name)
    if folder is not None:
        path_or_name, target, options = _as_compiled(folder, target, cpu, options)
    source = open_source(path_or_name, target=target, cache=cache, **options)
    if folder is not None:
        folder.check(source.config)
    team = threads
    if threads is None and target == "cpu":  # measured before anything else takes the processor's time
        team = decode_threads(source.config.read_bytes, source.activations, cache=cache)
    makers = _Makers(
        source,
        target=target,
        cpu="" if cpu == NATIVE else cpu,
        threads=threads,
        team=team,
        time_limit=time_limit,
        cache=cache,
        folder=folder,
    )
    opened = time.perf_counter()
    say("compiling")
    executables = makers.both()
    ready_to_load = time.perf_counter()
    say("preparing weights")
    weights = set_weights(
        source.file,
        source.config,
        source.context,
        tuple(executables.values()),
        nonfinite=source.nonfinite,
        added=source.added,
        place=_place_of(source, folder, cached=cache if prepared_cache is None else prepared_cache),
    )
    model = Model(
        source.file,
        source.config,
        context=source.context,
        chunk=source.chunk,
        activations=source.activations,
        candidates=makers.candidates,
        ranks=source.ranks,
        more=None if target == "cuda" else partial(_with_weights, makers, weights),
        identify=lambda: source.identity,
        source=source,
        **executables,
    )
    compile_seconds = ready_to_load - opened
    model.note(
        load_seconds=time.perf_counter() - begin - compile_seconds,
        compile_seconds=compile_seconds,
        prepared=weights.state,
        prepared_bytes=weights.size,
    )
    return model


def _place_of(
    source: Source, folder: CompiledFolder | None, *, cached: bool
) -> Callable[[Sequence[Artifact]], Place | None] | None:
    """Says where prepared weights are kept: beside compiled programs where these have them, or in the cache."""
    if folder is not None and (folder.folder / IN_FOLDER).exists():
        return partial(in_folder, folder.folder, source.file)
    return partial(in_cache, source.file) if cached else None


def _as_compiled(
    folder: CompiledFolder, target: str, cpu: str, options: dict[str, Option]
) -> tuple[str, str, dict[str, Option]]:
    """The model that programs are of, what they are for, and the options that they were compiled with.

    Raises InputError where others are asked for.
    """
    asked = {"context": None, "chunk": None, "activations": AUTO}
    folder.agree(**{name: (options[name], usual) for name, usual in asked.items()}, device=(target, "cpu"))
    for name, value in (("lora", options["lora"]), ("cpu", cpu)):
        if value:
            raise InputError(f"'{folder.folder}' was compiled without '{name}': load the model that it is of")
    own = {"context": folder.context, "chunk": folder.chunk, "activations": folder.activations}
    return folder.model, folder.device, {**options, **own}


@dataclass(frozen=True)
class _Makers:
    """What makes the modules of a model, without their weights.

    Attributes:
        source: what the model is made of.
        team: threads that `decode` takes.
        folder: that of compiled programs, where the model is one.

    The others are those of `load_model`.
    """

    source: Source
    target: str
    cpu: str
    threads: int | None
    team: int | None
    time_limit: float | None
    cache: bool
    folder: CompiledFolder | None

    @property
    def candidates(self) -> int:
        """Among how many of the largest logits `decode` chooses; 0 where it doesn't."""
        # Rows of the table without a token can't be chosen, which a GPU doesn't know.
        config = self.source.config
        padded = vocabulary_size(self.source.file, config) < config.vocab
        on_gpu = self.target == "cuda" and not padded and self.folder is None
        return min(CANDIDATES, config.vocab) if on_gpu else 0

    def both(self) -> dict[str, Executable]:
        """The modules that a model is loaded with.

        Most of a compilation is LLVM's, which doesn't hold Python's lock. Threads have contexts of their own, without
        the caller's budgets.
        """
        done = in_threads([partial(copy_context().run, self.make, program) for program in decoder.PROGRAMS])
        return dict(zip(decoder.PROGRAMS, done, strict=True))

    def make(self, program: str) -> Executable:
        """A module: from the folder of compiled ones, compiled, or found compiled."""
        threads = self.team if program == "decode" else self.threads
        if self.folder is not None and program in decoder.PROGRAMS:
            return cast("Executable", self.folder.load(program, threads))
        return compile_program(
            self.source.config,
            program,
            ranks=self.source.ranks,
            context=self.source.context,
            chunk=self.source.chunk,
            candidates=self.candidates if program == "decode" else 0,
            activations=self.source.activations,
            target=self.target,
            cpu=self.cpu,
            time_limit=self.time_limit,
            cache=self.cache,
            threads=threads,
        )


def _with_weights(makers: _Makers, weights: PreparedWeights, program: str) -> Executable:
    """Another module of a loaded model, with the weights that it has."""
    executable = makers.make(program)
    weights.bind(executable)
    return executable


__all__ = ["CANDIDATES", "compiled_model"]
