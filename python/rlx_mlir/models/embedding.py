# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Encoders that run: texts to vectors. A folder with weights and tokenizer, and one compiled module.

Threads: one `Encoder` may be used from several; calls of the compiled code take turns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from .. import checks
from ..arrays import as_array
from ..errors import ContextLengthError, InputError, ModelFileError, TokenizerError
from ..frontends.safetensors import SafetensorsFile
from ..place import located
from . import encoder
from .encoder_config import EncoderConfig
from .hub import resolve_folder

if TYPE_CHECKING:
    from ..hir import GraphModule

Floats = npt.NDArray[np.float32]
Progress = Callable[[str], None]

WEIGHTS = "model.safetensors"
"""The file of a folder that holds the tensors."""

BATCH = 16
"""Texts that are computed at once, where nothing else is said."""


class Executable(Protocol):
    """What an encoder needs of compiled code."""

    def set_params(self, params: Mapping[str, np.ndarray], /) -> Any:
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


@located
def load_encoder(
    path_or_name: str | os.PathLike[str],
    *,
    threads: int | None = None,
    batch: int = BATCH,
    max_tokens: int | None = None,
    target: str = "cpu",
    cache: bool = True,
    download: bool = True,
    progress: Progress | None = None,
) -> Encoder:
    """Loads an encoder: opens and checks its files, compiles it (or finds it compiled), prepares its weights.

    Args:
        path_or_name: a folder with `config.json`, `model.safetensors` and `tokenizer.json` (or `vocab.txt`), or a name
            that `rlx_mlir.models.hub` knows, which is fetched if need be.
        threads: of the compiled code; None for as many as the process may use.
        batch: texts that are computed at once, at most.
        max_tokens: tokens of a text that are read, special ones included; by default what the model was made for.
        cache: keep compiled code for later processes, and use it.
        download: fetch a model of a known name that is not there.
        progress: called with a few words before each step that may take time.

    Raises InputError for bad arguments, ModelFileError, TokenizerError and UnsupportedError for the files,
    DownloadError, CompileError.
    """
    from ..compiler import compile_cached

    checks.path("path_or_name", path_or_name)
    checks.text("target", target)
    checks.flag("cache", cache)
    checks.flag("download", download)
    if progress is not None:
        checks.callback("progress", progress, "text")
    say = progress or (lambda text: None)
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise InputError(f"'batch' must be an integer of at least 1, but is {batch!r}")
    say(f"opening {os.fspath(path_or_name)}")
    folder = resolve_folder(path_or_name, download=download, progress=progress is not None)
    weights = open_weights(folder)
    config = EncoderConfig.from_folder(folder, weights, max_tokens)
    tokenizer = TextTokenizer(folder, config)
    say("compiling")
    executable = compile_cached(
        encoder.describe(config),
        partial(encoder.build, config),
        maxima=maxima(config, batch),
        threads=threads,
        target=target,
        cache=cache,
    )
    say("preparing weights")
    executable.set_params(encoder.parameters(config, weights))
    return Encoder(config, tokenizer, executable, batch=batch)


def open_weights(folder: Path) -> SafetensorsFile:
    """The tensors of a model's folder."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise ModelFileError("the file is missing; an encoder is a folder that has it", path=path)
    return SafetensorsFile(path)


def maxima(config: EncoderConfig, batch: int) -> dict[str, int]:
    """The largest size of each symbolic dimension of the module."""
    return {"batch": batch, "seq": config.max_tokens}


class TextTokenizer:
    """Texts to ids of tokens, with the special ones around them, by `tokenizer.json` or a WordPiece `vocab.txt`."""

    def __init__(self, folder: Path, config: EncoderConfig) -> None:
        """Reads the folder's files.

        Raises TokenizerError where there are none, or they are malformed or don't fit the model.
        """
        import tokenizers  # here, because the import is slow

        path = folder / "tokenizer.json"
        try:
            if path.is_file():
                self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
            else:
                path = folder / "vocab.txt"
                self._tokenizer = _word_pieces(path, _lowercase(folder))
        except TokenizerError:
            raise
        except Exception as error:  # the library raises plain Exception
            raise TokenizerError(f"{path}: {error}") from None
        # What the file says of these is what it was saved with, not what the model was made for.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        size = self._tokenizer.get_vocab_size()
        if size > config.vocab:
            raise TokenizerError(f"{path}: the model has {config.vocab} token ids, but the tokenizer {size}")
        self._special = self._tokenizer.num_special_tokens_to_add(False)
        if config.max_tokens < self._special:
            raise InputError(
                f"'max_tokens' must be at least the special tokens, {self._special}, but is {config.max_tokens}"
            )
        self._limited = type(self._tokenizer).from_str(self._tokenizer.to_str())
        self._limited.enable_truncation(config.max_tokens)

    def encode(self, texts: Sequence[str], *, truncate: bool) -> list[list[int]]:
        """The ids of each text; with `truncate` not more than the model reads."""
        tokenizer = self._limited if truncate else self._tokenizer
        return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        return str(self._tokenizer.decode(list(ids)))


def _lowercase(folder: Path) -> bool:
    import json

    path = folder / "tokenizer_config.json"
    try:
        return bool(json.loads(path.read_text("utf-8")).get("do_lower_case", True)) if path.is_file() else True
    except (OSError, ValueError, AttributeError) as error:
        raise TokenizerError(f"{path}: the file must hold a JSON object: {error}") from None


def _word_pieces(path: Path, lowercase: bool) -> Any:
    """BERT's tokenizer for a vocabulary of one piece a line."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors

    if not path.is_file():
        raise TokenizerError(f"{path.parent}: there is neither a tokenizer.json nor a vocab.txt")
    pieces = path.read_text("utf-8").splitlines()
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    missing = [word for word in ("[UNK]", "[CLS]", "[SEP]") if word not in vocabulary]
    if missing:
        raise TokenizerError(f"{path}: a vocabulary of WordPiece has [UNK], [CLS] and [SEP], but lacks {missing}")
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [word for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if word in vocabulary]
    tokenizer.add_special_tokens(special)
    around = [(word, vocabulary[word]) for word in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    return tokenizer


class Encoder:
    """A loaded encoder; `load_encoder` makes one.

    Attributes:
        config: what the model is.
        tokenizer: of its vocabulary.
        batch: texts that are computed at once, at most.
    """

    def __init__(
        self, config: EncoderConfig, tokenizer: TextTokenizer, executable: Executable, *, batch: int = BATCH
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.batch = batch
        self._executable = executable

    def __repr__(self) -> str:
        config = self.config
        return (
            f"Encoder({config.architecture}, {config.layers} layers, {config.hidden} wide, "
            f"{config.max_tokens} tokens, batch {self.batch})"
        )

    def tokenize(self, text: str, *, truncate: bool = True) -> list[int]:
        """Ids of a text's tokens, special ones included."""
        checks.text("text", text)
        return self.tokenizer.encode([text], truncate=checks.flag("truncate", truncate))[0]

    def embed(self, texts: str | Sequence[str], *, truncate: bool = True) -> Floats:
        """The vectors of texts, f32 [texts, hidden] in their order; of one string [1, hidden].

        Texts of similar lengths are computed together, so that little is padding; padding changes nothing but the
        order of sums.

        Args:
            truncate: read the first `config.max_tokens` tokens of a longer text; else that is a ContextLengthError.

        Raises InputError where an element isn't a string.
        """
        ids = self.tokenizer.encode(_texts(texts), truncate=checks.flag("truncate", truncate))
        for number, tokens in enumerate(ids):
            if len(tokens) > self.config.max_tokens:
                raise ContextLengthError(
                    f"text {number} has {len(tokens)} tokens, but the encoder reads {self.config.max_tokens}",
                    requested=len(tokens),
                    limit=self.config.max_tokens,
                )
        return self.embed_tokens(ids)

    def embed_tokens(self, ids: Sequence[Sequence[int]]) -> Floats:
        """The vectors of lists of token ids, f32 [lists, hidden].

        Raises InputError for an empty list, one that is too long, and for ids outside of the vocabulary.
        """
        ids = _id_lists(ids)
        for number, tokens in enumerate(ids):
            if not 1 <= len(tokens) <= self.config.max_tokens:
                raise InputError(f"list {number} must have 1 to {self.config.max_tokens} tokens, but has {len(tokens)}")
            outside = [token for token in tokens if not 0 <= token < self.config.vocab]
            if outside:
                raise InputError(f"list {number} must have ids from 0 to {self.config.vocab - 1}, but has {outside[0]}")
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
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping) or not getattr(texts, "ndim", 1):
        raise InputError(f"texts are a string or several, but got {type(texts).__name__}")
    listed = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(listed):
        if not checks.is_text(text):
            raise InputError(f"text {number} must be a string with an encoding, but is {checks.shown(text)}")
    return listed


def _id_lists(ids: Any) -> list[list[int]]:
    """Lists of token ids: whole numbers, which nothing rounds."""
    if (
        isinstance(ids, str | bytes | Mapping)
        or not isinstance(ids, Sequence | np.ndarray)
        or not getattr(ids, "ndim", 1)
    ):
        raise InputError(f"'ids' are lists of token ids, but got {checks.shown(ids)}")
    found = []
    for number, tokens in enumerate(ids):
        own = as_array(f"list {number}", tokens)
        if own.ndim != 1 or (own.size and own.dtype.kind not in "iu"):
            raise InputError(f"list {number} has token ids, whole numbers, but got {checks.shown(tokens)}")
        found.append([int(token) for token in own])
    return found


__all__ = ["Encoder", "TextTokenizer", "load_encoder"]
