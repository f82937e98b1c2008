# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loading of models: a file is opened and checked, compiled (or found compiled), and its weights are prepared."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from .. import checks
from ..activations import ACTIVATIONS, AUTO, way_of
from ..errors import InputError
from ..frontends.model_file import ModelFile
from ..limits import in_threads
from ..place import located
from ..runtime.artifact import Artifact
from . import decoder
from .adapter import read_adapter
from .compiled import CompiledFolder, compiled_folder
from .config import ModelConfig, check_context
from .core import vocabulary_size
from .decode_threads import decode_threads
from .model import Model
from .opening import open_model
from .prepared import IN_FOLDER, Place, PreparedWeights, in_cache, in_folder, set_weights
from .programs import Executable, compile_program
from .quantised import check_quantize, quantised
from .weights import check_nonfinite

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
    chunk: int = 512,
    kv_dtype: str = "f32",
    target: str = "cpu",
    nonfinite: str = "refuse",
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
        chunk: tokens of a prompt that are processed at once.
        kv_dtype: type of cached keys and values, ``f32``, ``f16``, ``bf16``, ``q8_0`` or ``q4_0``, or one for keys and
            one for values, ``q8_0/q4_0``. They are rounded when they are stored; 16 bits take half of the memory, and
            of the time to read it, blocks of 8 and 4 bits 27 % and 14 %, where heads are multiples of 32 elements.
        target: what runs the model: ``cpu``, or ``cuda``, an NVIDIA GPU of this machine: weights are copied there once,
            and the cache of keys and values stays there.
        nonfinite: what is done about weights, and scales of weights, that are NaN or infinite: ``refuse`` says where
            the first one is, ``zero`` reads each of them, and all that a scale belongs to, as 0.
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
    for name, value in (
        ("nonfinite", nonfinite),
        ("activations", activations),
        ("kv_dtype", kv_dtype),
        ("target", target),
    ):
        checks.text(name, value)
    if quantize is not None:
        check_quantize(checks.text("quantize", quantize))
    checks.flag("cache", cache)
    if prepared_cache is not None:
        checks.flag("prepared_cache", prepared_cache)
    checks.flag("download", download)
    if progress is not None:
        checks.callback("progress", progress, "text")
    check_nonfinite(nonfinite)
    if activations not in (AUTO, *ACTIVATIONS):
        words = ", ".join((AUTO, *ACTIVATIONS))
        raise InputError(f"'activations' must be one of {words}, but is {activations!r}")
    checks.whole("chunk", chunk, 1)
    say = progress or _silent
    begin = time.perf_counter()
    say(f"opening {os.fspath(path_or_name)}")
    folder = compiled_folder(path_or_name)
    if folder is not None:
        folder.agree(
            context=(context, None), chunk=(chunk, 512), activations=(activations, AUTO), device=(target, "cpu")
        )
        context, chunk, activations, target = folder.context, folder.chunk, folder.activations, folder.device
        path_or_name = folder.model
        if lora is not None:
            raise InputError(f"'{folder.folder}' was compiled without an adapter: load the model that it is of")
    activations = way_of(activations, target)
    file = open_model(path_or_name, download=download, progress=progress is not None)
    config = dataclasses.replace(ModelConfig.from_gguf(file), kv_dtype=kv_dtype)
    if quantize is not None:
        file, config = quantised(file, config, quantize, nonfinite=nonfinite, cache=cache, say=say)
    adapter = None if lora is None else read_adapter(checks.path("lora", lora), config)
    if folder is not None:
        folder.check(config)
    context = check_context(config, context)
    team = threads
    if threads is None and target == "cpu":  # measured before anything else takes the processor's time
        team = decode_threads(config.read_bytes, activations, cache=cache)
    makers = _Makers(
        file,
        config,
        context=context,
        chunk=min(chunk, context),
        activations=activations,
        target=target,
        threads=threads,
        team=team,
        time_limit=time_limit,
        cache=cache,
        folder=folder,
        ranks={} if adapter is None else adapter.ranks,
    )
    opened = time.perf_counter()
    say("compiling")
    executables = makers.both()
    ready_to_load = time.perf_counter()
    say("preparing weights")
    place: Callable[[Sequence[Artifact]], Place | None] | None = None
    if folder is not None and (folder.folder / IN_FOLDER).exists():
        place = partial(in_folder, folder.folder, file)
    elif cache if prepared_cache is None else prepared_cache:
        place = partial(in_cache, file)
    added = {} if adapter is None else adapter.params()
    weights = set_weights(
        file,
        config,
        context,
        tuple(executables.values()),
        nonfinite=nonfinite,
        added=added,
        place=place,
    )
    model = Model(
        file,
        config,
        context=context,
        chunk=makers.chunk,
        activations=activations,
        candidates=makers.candidates,
        ranks=makers.ranks,
        more=None if target == "cuda" else partial(_with_weights, makers, weights),
        identify=lambda: {
            "model": file.fingerprint(),
            "activations": activations,
            "kv_dtype": kv_dtype,
            "nonfinite": nonfinite,
            "lora": "" if adapter is None else _digest(added),
        },
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
        team: threads that `decode` takes.
        folder: that of compiled programs, where the model is one.
        ranks: of the products that have an adapter.
        chunk: tokens of a prompt that are processed at once, not more than the context has positions.

    The others are those of `load_model`.
    """

    file: ModelFile
    config: ModelConfig
    context: int
    chunk: int
    activations: str
    target: str
    threads: int | None
    team: int | None
    time_limit: float | None
    cache: bool
    folder: CompiledFolder | None
    ranks: Mapping[str, int]

    @property
    def candidates(self) -> int:
        """Among how many of the largest logits `decode` chooses; 0 where it doesn't."""
        # Rows of the table without a token can't be chosen, which a GPU doesn't know.
        padded = vocabulary_size(self.file, self.config) < self.config.vocab
        on_gpu = self.target == "cuda" and not padded and self.folder is None
        return min(CANDIDATES, self.config.vocab) if on_gpu else 0

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
            self.config,
            program,
            ranks=self.ranks,
            context=self.context,
            chunk=self.chunk,
            candidates=self.candidates if program == "decode" else 0,
            activations=self.activations,
            target=self.target,
            time_limit=self.time_limit,
            cache=self.cache,
            threads=threads,
        )


def _with_weights(makers: _Makers, weights: PreparedWeights, program: str) -> Executable:
    """Another module of a loaded model, with the weights that it has."""
    executable = makers.make(program)
    weights.bind(executable)
    return executable


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """What tells an adapter's numbers apart."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def _silent(text: str) -> None:
    """No progress is shown."""


__all__ = ["load_model"]
