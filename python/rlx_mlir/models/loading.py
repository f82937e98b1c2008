# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loading of models: a file is opened and checked, compiled (or found compiled), and its weights are prepared."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import cast

from .. import checks
from ..activations import AUTO
from ..errors import InputError
from ..limits import in_threads
from ..place import located
from ..runtime.artifact import Artifact
from . import decoder
from .compiled import CompiledFolder, compiled_folder
from .core import vocabulary_size
from .decode_threads import decode_threads
from .model import Model
from .prepared import IN_FOLDER, Place, PreparedWeights, in_cache, in_folder, set_weights
from .programs import Executable, compile_program
from .source import NATIVE, Source, check_options, open_source

Progress = Callable[[str], None]

CANDIDATES = 64
"""Largest logits that a GPU chooses among itself: where a sampler needs no more, tokens are chosen there."""


@located
def load_model(
    path_or_name: str | os.PathLike[str],
    *,
    threads: int | None = None,
    activations: str = AUTO,
    context: int | None = None,
    chunk: int | None = None,
    kv_dtype: str | None = None,
    target: str = "cpu",
    cpu: str = "",
    nonfinite: str | None = None,
    quantize: str | None = None,
    lora: str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
    cache: bool = True,
    prepared_cache: bool | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Model:
    """Loads a model: opens and checks its file, compiles it (or finds it compiled), prepares its weights.

    Args:
        path_or_name: a .gguf file, or a folder with a model as Hugging Face's libraries write it; a name that
            `rlx_mlir.models.hub` knows, or ``hf:owner/repository[:file]``, which is fetched if need be; or a folder
            that ``rlx compile MODEL -o FOLDER`` wrote, whose programs run with the options they were compiled with.
            Programs are code: load such folders of those alone whom you trust.
        threads: of the compiled code; None for as many as the process may use, but to decode no more than it takes to
            read the weights of a large model, which is measured once for a machine, see docs/performance.md.
        activations: how activations meet quantised weights: ``auto`` is ``int16`` on CPUs, ``int8`` on GPUs. ``int8``
            rounds them to 8 bits, block by block, and on CPUs what queries, keys and values are computed from to 15;
            ``int16`` rounds all to 15 bits; ``exact`` computes with decoded weights in f32.
        context: positions that can be used, at most the model's own; by default that, but not more than 2048.
        chunk: tokens of a prompt that are processed at once; 512 by default.
        kv_dtype: type of cached keys and values, ``f32`` (the default), ``f16``, ``bf16``, ``q8_0`` or ``q4_0``, or one
            for keys and one for values, ``q8_0/q4_0``. They are rounded when they are stored; 16 bits take half of the
            memory, and of the time to read it, blocks of 8 and 4 bits 27 % and 14 %, where heads are multiples of 32
            elements.
        target: what runs the model: ``cpu``, or ``cuda``, an NVIDIA GPU of this machine: weights are copied there once,
            and the cache of keys and values stays there.
        cpu: the CPU to compile for, as LLVM names it, such as ``x86-64-v3``; this one by default, which is ``native``,
            too. Of a bundle, which of its levels runs; the best one that this machine has by default.
        nonfinite: what is done about weights, and scales of weights, that are NaN or infinite: ``refuse``, the default,
            says where the first one is, ``zero`` reads each of them, and all that a scale belongs to, as 0.
        quantize: a type of weights, such as ``q4_k``, that matrices of f32, f16 and bf16 are quantised to; None leaves
            them as they are. Rows that aren't a multiple of the type's blocks get a wider type, see docs/models.md. The
            result is kept in the cache.
        lora: a folder with an adapter that ``rlx finetune`` or PEFT wrote: products that it is for get one of low rank
            beside them.
        time_limit: seconds that each of the two programs may take to compile; by default what the budget
            ``compile_seconds`` allows, see `rlx_mlir.budgets`.
        cache: keep compiled code for later processes, and use it.
        prepared_cache: keep prepared weights for later processes, and use them: a file about as large as the model's,
            which all processes map, see docs/models.md. By default as ``cache`` says.
        download: fetch a model of a known name that is not there.
        progress: called with a few words before each step that may take time.

    Raises InputError for bad arguments, GGUFError and UnsupportedError for the file, BudgetError for what is too large
    or takes too long, DownloadError, CompileError (TimeLimitError after ``time_limit``).
    """
    checks.path("path_or_name", path_or_name)
    check_options(activations=activations, chunk=chunk, kv_dtype=kv_dtype, nonfinite=nonfinite, quantize=quantize)
    checks.text("target", target)
    checks.text("cpu", cpu)
    checks.flag("cache", cache)
    if prepared_cache is not None:
        checks.flag("prepared_cache", prepared_cache)
    checks.flag("download", download)
    if progress is not None:
        checks.callback("progress", progress, "text")
    say = progress or _silent
    begin = time.perf_counter()
    say(f"opening {os.fspath(path_or_name)}")
    folder = compiled_folder(path_or_name)
    if folder is not None:
        folder.agree(
            context=(context, None), chunk=(chunk, None), activations=(activations, AUTO), device=(target, "cpu")
        )
        context, chunk, activations, target = folder.context, folder.chunk, folder.activations, folder.device
        path_or_name = folder.model
        for name, value in (("lora", lora), ("cpu", cpu)):
            if value:
                raise InputError(f"'{folder.folder}' was compiled without '{name}': load the model that it is of")
    source = open_source(
        path_or_name,
        activations=activations,
        context=context,
        chunk=chunk,
        kv_dtype=kv_dtype,
        nonfinite=nonfinite,
        quantize=quantize,
        lora=lora,
        target=target,
        cache=cache,
        download=download,
        progress=progress,
    )
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
    place: Callable[[Sequence[Artifact]], Place | None] | None = None
    if folder is not None and (folder.folder / IN_FOLDER).exists():
        place = partial(in_folder, folder.folder, source.file)
    elif cache if prepared_cache is None else prepared_cache:
        place = partial(in_cache, source.file)
    weights = set_weights(
        source.file,
        source.config,
        source.context,
        tuple(executables.values()),
        nonfinite=source.nonfinite,
        added=source.added,
        place=place,
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


def _silent(text: str) -> None:
    """No progress is shown."""


__all__ = ["load_model"]
