# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Encoders that run: texts to vectors. A folder with weights and tokenizer, and one compiled module.

Threads: one `Encoder` may be used from several; calls of the compiled code take turns.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from .. import checks
from ..boundary import compiler_needed
from ..errors import ContextLengthError, InputError, did_you_mean, shortened
from ..files import decode
from ..frontends.safetensors import INDEX, WEIGHTS, SafetensorsFile, ShardedSafetensors, open_weights
from ..place import located
from . import encoder
from .bundle import NATIVE, TOKENIZER, bundle_at, open_bundle
from .encoder_config import EncoderConfig
from .encoder_tokenizer import TextTokenizer
from .hub import resolve_folder
from .sentence_files import SentenceFiles

if TYPE_CHECKING:
    from ..hir import GraphModule

Floats = npt.NDArray[np.float32]
Progress = Callable[[str], None]

BATCH = 16
"""Texts that are computed at once, where nothing else is said."""


class Executable(Protocol):
    """What an encoder needs of compiled code."""

    def set_params(self, params: Mapping[str, np.ndarray], /) -> object:
        """Binds the weights."""

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        /,
        *,
        outputs: Mapping[str, np.ndarray] | None = None,
        donate: Collection[str] = (),
    ) -> Mapping[str, np.ndarray]:
        """One call."""


@dataclass(frozen=True)
class EncoderFiles:
    """What a folder with an encoder has: its configuration, tokenizer and weights."""

    config: EncoderConfig
    tokenizer: TextTokenizer
    weights: SafetensorsFile | ShardedSafetensors


def open_encoder(
    path_or_name: str | os.PathLike[str], max_tokens: int | None, *, download: bool = True, progress: bool = False
) -> EncoderFiles:
    """Opens and checks an encoder's files; arguments and errors are those of `load_encoder`."""
    folder = resolve_folder(path_or_name, download=download, progress=progress)
    files = SentenceFiles.of(folder)
    weights = open_weights(files.base)
    config = EncoderConfig.from_folder(folder, weights, max_tokens, files)
    return EncoderFiles(config, TextTokenizer(files.base, config), weights)


@located
def load_encoder(
    path_or_name: str | os.PathLike[str],
    *,
    threads: int | None = None,
    batch: int | None = None,
    max_tokens: int | None = None,
    target: str = "cpu",
    cpu: str = "",
    cache: bool = True,
    download: bool = True,
    progress: Progress | None = None,
) -> Encoder:
    """Loads an encoder: opens and checks its files, compiles it (or finds it compiled), prepares its weights.

    Args:
        path_or_name: a folder with `config.json`, `model.safetensors` (or several files and
            `model.safetensors.index.json`) and `tokenizer.json` (or `vocab.txt`); a name that `rlx_mlir.models.hub`
            knows, which is fetched if need be; or a bundle, which `rlx_mlir.bundle` wrote and which is code.
        threads: of the compiled code; None for as many as the process may use.
        batch: texts that are computed at once, at most: 16 by default; of a bundle, not more than it was made for.
        max_tokens: tokens of a text that are read, special ones included; by default what the model was made for. Of a
            bundle, not more than it was made for.
        target: what runs it: ``cpu``, or ``cuda``.
        cpu: the CPU to compile for, or the level of a bundle, see `load_model`.
        cache: keep compiled code for later processes, and use it.
        download: fetch a model of a known name that is not there.
        progress: called with a few words before each step that may take time.

    Raises InputError for bad arguments, ModelFileError, TokenizerError and UnsupportedError for the files,
    DownloadError, CompileError; of bundles CacheError where they are damaged, ExecutionError where they aren't for this
    machine.
    """
    checks.path("path_or_name", path_or_name)
    checks.text("target", target)
    checks.text("cpu", cpu)
    checks.flag("cache", cache)
    checks.flag("download", download)
    if progress is not None:
        checks.callback("progress", progress, "text")
    if batch is not None:
        checks.whole("batch", batch, 1)
    if max_tokens is not None:
        checks.whole("max_tokens", max_tokens, 1)
    say = progress or (lambda text: None)
    say(f"opening {os.fspath(path_or_name)}")
    if (path := bundle_at(path_or_name)) is not None:
        return _of_bundle(path, threads=threads, batch=batch, max_tokens=max_tokens, target=target, cpu=cpu)
    with compiler_needed(os.fspath(path_or_name)):
        from ..compiler import compile_cached

    files = open_encoder(path_or_name, max_tokens, download=download, progress=progress is not None)
    most = BATCH if batch is None else batch
    say("compiling")
    executable = compile_cached(
        encoder.describe(files.config),
        partial(encoder.build, files.config),
        maxima=maxima(files.config, most),
        threads=threads,
        target=target,
        cpu="" if cpu == NATIVE else cpu,
        cache=cache,
    )
    say("preparing weights")
    executable.set_params(encoder.parameters(files.config, files.weights))
    return Encoder(files.config, files.tokenizer, executable, batch=most)


def _of_bundle(
    path: Path, *, threads: int | None, batch: int | None, max_tokens: int | None, target: str, cpu: str
) -> Encoder:
    """The encoder of a bundle."""
    bundle = open_bundle(path, "encoder")
    if target != "cpu":
        raise InputError(f"'{path}' was bundled with 'target' 'cpu', but {target!r} is asked for")
    config = EncoderConfig.from_document(bundle.document.part("encoder"))
    options = bundle.document.part("options")
    most = {"batch": options.integer("batch"), "max_tokens": config.max_tokens}
    for name, value in (("batch", batch), ("max_tokens", max_tokens)):
        if value is not None and value > most[name]:
            raise InputError(f"'{path}' was bundled with '{name}' {most[name]}, but {value} is asked for")
    config = replace(config, max_tokens=max_tokens or config.max_tokens)
    level = bundle.level(cpu)
    executable = bundle.executable(encoder.PROGRAM, level, threads=threads)
    widths = {spec.name: spec.shape[-1:] for spec in executable.outputs}
    if widths != {"embeddings": (config.hidden,)}:
        raise bundle.fail(f"its code must give 'embeddings' {config.hidden} wide, but gives {widths}")

    def tokenizer() -> TextTokenizer:
        text = decode(bundle.section(TOKENIZER), path)
        return TextTokenizer.of_description(text, bundle.document.get("truncation_side", str), config, path)

    return Encoder(config, tokenizer, executable, batch=batch or most["batch"])


def maxima(config: EncoderConfig, batch: int) -> dict[str, int]:
    """The largest size of each symbolic dimension of the module."""
    return {"batch": batch, "seq": config.max_tokens}


class Encoder(checks.Unpicklable):
    """A loaded encoder; `load_encoder` makes one.

    Attributes:
        config: what the model is.
        batch: texts that are computed at once, at most.
    """

    _instead = "load the encoder where it is needed"

    def __init__(
        self,
        config: EncoderConfig,
        tokenizer: TextTokenizer | Callable[[], TextTokenizer],
        executable: Executable,
        *,
        batch: int = BATCH,
    ) -> None:
        """Takes what `load_encoder` has found; ``tokenizer`` may be what makes one when the first text comes."""
        self.config = config
        self._tokenizer = tokenizer
        self.batch = batch
        self._executable = executable

    def __repr__(self) -> str:
        config = self.config
        return (
            f"Encoder({config.architecture}, {config.layers} layers, {config.hidden} wide, "
            f"{config.max_tokens} tokens, batch {self.batch})"
        )

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """Of the model's vocabulary; TokenizerError where it is broken, or the library isn't installed."""
        return self._tokenizer() if callable(self._tokenizer) else self._tokenizer

    def tokenize(self, text: str, *, truncate: bool = True) -> list[int]:
        """Ids of a text's tokens, special ones included; without a prompt, but else as `embed` reads it."""
        checks.text("text", text)
        read = self.config.texts.apply(text)
        return self.tokenizer.encode([read], truncate=checks.flag("truncate", truncate))[0]

    def embed(self, texts: str | Sequence[str], *, truncate: bool = True, prompt_name: str | None = None) -> Floats:
        """The vectors of texts, f32 [texts, hidden] in their order; of one string [1, hidden].

        Texts of similar lengths are computed together, so that little is padding; padding changes nothing but the
        order of sums.

        Args:
            truncate: read the first `config.max_tokens` tokens of a longer text; else that is a ContextLengthError.
            prompt_name: the one of `config.texts.prompts` that goes in front of each text; by default the model's own,
                `config.texts.default_prompt`, where it has one. "" is for none.

        Raises InputError where an element isn't a string or isn't Unicode, and where there is no such prompt.
        """
        return self.embed_tokens(self.token_ids(texts, truncate=truncate, prompt_name=prompt_name))

    def token_ids(
        self, texts: str | Sequence[str], *, truncate: bool = True, prompt_name: str | None = None
    ) -> list[list[int]]:
        """The ids of tokens that `embed` reads of texts, prompts and special ones included; raises as it does."""
        prompt = self._prompt(prompt_name)
        read = [self.config.texts.apply(text, prompt) for text in _texts(texts)]
        ids = self.tokenizer.encode(read, truncate=checks.flag("truncate", truncate))
        for number, tokens in enumerate(ids):
            if len(tokens) > self.config.max_tokens:
                raise ContextLengthError(
                    f"text {number} has {len(tokens)} tokens, but the encoder reads {self.config.max_tokens}",
                    requested=len(tokens),
                    limit=self.config.max_tokens,
                )
        return ids

    def _prompt(self, name: str | None) -> str:
        if name is not None:
            checks.text("prompt_name", name)
        prompts = self.config.texts.prompts
        name = self.config.texts.default_prompt if name is None else name
        if not name and name not in prompts:
            return ""
        if not isinstance(name, str) or name not in prompts:
            known = ", ".join(prompts) or "none"
            hint = did_you_mean(name, prompts) if isinstance(name, str) else ""
            raise InputError(f"the model has no prompt {shortened(name)}{hint}; there are {known}")
        return prompts[name]

    def embed_tokens(self, ids: Sequence[Sequence[int]] | np.ndarray) -> Floats:
        """The vectors of lists of token ids, f32 [lists, hidden].

        Raises InputError for what isn't lists of integers, for an empty list, one that is too long, and for ids
        outside of the vocabulary.
        """
        ids = _id_lists(ids)
        for number, tokens in enumerate(ids):
            if not 1 <= len(tokens) <= self.config.max_tokens:
                raise InputError(f"list {number} must have 1 to {self.config.max_tokens} tokens, but has {len(tokens)}")
            outside = [token for token in tokens if not 0 <= token < self.config.vocab]
            if outside:
                raise InputError(
                    f"list {number} must have ids from 0 to {self.config.vocab - 1}, but has {shortened(outside[0])}"
                )
        vectors = np.empty((len(ids), self.config.hidden), np.float32)
        by_length = sorted(range(len(ids)), key=lambda number: len(ids[number]))
        for start in range(0, len(ids), self.batch):
            part = by_length[start : start + self.batch]
            vectors[part] = self._run([ids[number] for number in part])
        return vectors

    def module(self) -> GraphModule:
        """The graph, to inspect, lower or change."""
        return encoder.build(self.config)

    def _run(self, ids: Sequence[Sequence[int]]) -> Floats:
        """The vectors of one batch, padded to its longest."""
        shape = (len(ids), max(len(tokens) for tokens in ids))
        tokens, mask = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        for row, own in enumerate(ids):
            tokens[row, : len(own)] = own
            mask[row, : len(own)] = 1
        places = np.arange(shape[1], dtype=np.int32) + self.config.first_position
        positions = np.ascontiguousarray(np.broadcast_to(places, shape))
        inputs = {"tokens": tokens, "positions": positions, "mask": mask}
        return self._executable.run(inputs)["embeddings"]


def _texts(texts: str | Sequence[str]) -> list[str]:
    if isinstance(texts, bytes | bytearray) or not isinstance(texts, Iterable) or _is_scalar(texts):
        raise InputError(f"texts are a string or several, but got {type(texts).__name__}")
    listed = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise InputError(f"text {number} must be a string, but is of type {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"text {number} is not valid Unicode at character {error.start}: {error.reason}") from None
    return listed


def _is_scalar(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 0


def _id_lists(ids: Any) -> list[list[int]]:
    """Lists of integers, of whatever holds them; arrays may be of any integer type and byte order."""
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable) or _is_scalar(ids):
        raise InputError(f"token ids are lists of integers, a list for each text, but got {type(ids).__name__}")
    found = []
    for number, tokens in enumerate(ids):
        if isinstance(tokens, str | bytes | Mapping) or not isinstance(tokens, Iterable) or _is_scalar(tokens):
            raise InputError(f"list {number} must be a list of token ids, but is {shortened(tokens)}")
        if np.ma.is_masked(tokens):
            raise InputError(f"list {number} must have ids alone, but is a masked array")
        own = []
        for token in tokens:
            try:
                whole = operator.index(token)
            except TypeError:
                whole = None
            if whole is None or isinstance(token, bool | np.bool_):
                raise InputError(f"list {number} must have integers, but has {shortened(token)}")
            own.append(whole)
        found.append(own)
    return found


__all__ = [
    "BATCH",
    "INDEX",
    "WEIGHTS",
    "Encoder",
    "EncoderFiles",
    "TextTokenizer",
    "load_encoder",
    "maxima",
    "open_encoder",
    "open_weights",
]
