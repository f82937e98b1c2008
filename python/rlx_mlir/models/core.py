# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a loaded model has, without what is done with it: configuration, compiled modules, tokenizer."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import checks
from ..arrays import as_array
from ..checks import Option
from ..errors import ContextLengthError, InputError
from ..frontends.model_file import ModelFile
from .caches import bytes_per_token
from .chat import ChatTemplate
from .config import ModelConfig
from .generation import Options, Stats, Task, peak_rss, task_of
from .json_tokenizer import tokenizer_of
from .prefixes import PrefixCache
from .programs import Executable, Programs
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .source import Source

Prompt = str | Sequence[int] | np.ndarray | Sequence[Mapping[str, object]]
"""A text; token ids; or chat messages, mappings with "role" and "content"."""


class Core(checks.Unpicklable):
    """A loaded model, as its sessions see it.

    Attributes:
        config: what the model is.
        file: its open file.
        context: positions that a sequence can have.
        chunk: tokens of a prompt that are processed at once.
        activations: how activations meet quantised weights, see `load_model`.
        candidates: among how many of the largest logits `decode` chooses; 0 where it doesn't.
        ranks: of the products that have an adapter.
        texts: ids that have a text; rows of the embedding table behind them are padding.
        on_gpu: whether keys and values are in a GPU's memory.
        reuse: a prompt takes over a multiple of so many tokens from the sequence before it. 1 on CPUs, where what is
            computed of a token is the same bits however many are processed with it; as many as ``chunk`` on GPUs, which
            add up in another order for other numbers of tokens.
        programs: the compiled modules.
        prefixes: keys and values of prompts that were processed, for others that begin alike; None on GPUs, and where
            layers have states in their place (`delta`): there the sequence that was finished last is taken over alone.
        trails: names of what `extend` gives of such states.
        turn: held around a call of compiled code.
        source: what it was made of, by `load_model`; None for what came out of a bundle.
    """

    _instead = "load the model where it is needed: processes share the weights of one file"

    def __init__(
        self,
        file: ModelFile,
        config: ModelConfig,
        *,
        prefill: Executable,
        decode: Executable,
        context: int,
        chunk: int,
        activations: str = "exact",
        candidates: int = 0,
        ranks: Mapping[str, int] | None = None,
        more: Callable[[str], Executable] | None = None,
        identify: Callable[[], Mapping[str, str]] = dict,
        source: Source | None = None,
    ) -> None:
        self.file = file
        self.config = config
        self.context = context
        self.chunk = chunk
        self.activations = activations
        self.candidates = candidates
        self.ranks = dict(ranks or {})
        self.source = source
        # What stands in for compiled code has no artefact.
        self.on_gpu = bool(getattr(getattr(decode, "artifact", None), "chip", ""))
        self.reuse = chunk if self.on_gpu else 1
        self.texts = vocabulary_size(file, config)
        self.programs = Programs(prefill, decode, more)
        self.turn = threading.Lock()
        # Keys and values of a part of a prompt are no use where layers have a state behind it.
        apart = self.on_gpu or config.delta is not None
        self.prefixes = None if apart else PrefixCache(context * bytes_per_token(config))
        self.trails = config.trails
        self._identify = identify
        # Around everything below. A thread may come twice: where it collects garbage, abandoned generations end.
        self._state = threading.RLock()
        self._stats = Stats()
        self._tokenizer: Tokenizer | None = None
        self._template: ChatTemplate | None = None

    def __repr__(self) -> str:
        name = Path(self.file.path).name if self.file.path else "in memory"
        return f"Model({name}, {self.config.architecture}, {self.config.layers} layers, context {self.context})"

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, made at its first use; TokenizerError where the file has none that is supported."""
        with self._state:
            if self._tokenizer is None:
                tokenizer = tokenizer_of(self.file.metadata, origin=self.file.path or "")
                if tokenizer.vocab_size > self.config.vocab:
                    raise InputError(
                        f"the tokenizer has {tokenizer.vocab_size} tokens, but the embedding table only "
                        f"{self.config.vocab} rows"
                    )
                self._tokenizer = tokenizer
            return self._tokenizer

    @property
    def chat_template(self) -> ChatTemplate:
        """The chat template; ChatTemplateError where the file has none."""
        with self._state:
            if self._template is None:
                self._template = ChatTemplate.from_metadata(self.file.metadata, origin=self.file.path or "")
            return self._template

    @functools.cached_property
    def identity(self) -> Mapping[str, str]:
        """What keys and values depend on: the file, and options of `load_model`."""
        return dict(self._identify())

    @property
    def threads(self) -> int | None:
        """Threads of the compiled code, where it says: those of prompts."""
        return getattr(self.programs.prefill, "threads", None)

    @property
    def decode_threads(self) -> int | None:
        """Threads that decode, where the code says: fewer where more wouldn't read the weights faster."""
        return getattr(self.programs.decode, "threads", None)

    @property
    def stats(self) -> Stats:
        """What the last finished call and loading took."""
        with self._state:
            return self._stats

    def tokenize(self, text: str, bos: bool | None = None, special: bool = False) -> list[int]:
        """Token ids of a text, see `Tokenizer.tokenize`."""
        checks.text("text", text)
        if bos is not None:
            checks.flag("bos", bos)
        return self.tokenizer.tokenize(text, bos=bos, special=checks.flag("special", special))

    def detokenize(self, ids: Sequence[int], special: bool = False) -> str:
        """Text of token ids, see `Tokenizer.detokenize`."""
        array = as_array("ids", ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise InputError(f"'ids' are token ids, but got {checks.shown(ids)}")
        return self.tokenizer.detokenize(array.tolist(), special=checks.flag("special", special))

    def task(self, prompt: Prompt, *, chat: bool | None = None, **options: Unpack[Options]) -> Task:
        """What is asked for by a prompt and options of `generate`, which raises as that does."""
        if chat is not None:
            checks.flag("chat", chat)
        ids = self.checked_ids(self.prompt_ids(prompt, chat), "the prompt")
        if max(ids) >= self.texts:
            at = next(i for i, index in enumerate(ids) if index >= self.texts)
            raise InputError(
                f"a token id of a prompt must have a text, and be in [0, {self.texts}), but {ids[at]} is at position "
                f"{at}: the {self.config.vocab} rows of the embedding table are padded"
            )
        template = self.file.metadata.get("tokenizer.chat_template")
        return task_of(
            ids,
            lambda: self.tokenizer,
            self.texts,
            self.context,
            template=template if isinstance(template, str) else "",
            thinks=chat is not False,
            **options,
        )

    def prompt_ids(
        self, prompt: Prompt, chat: bool | None = None, *, behind: bool = False
    ) -> Sequence[int] | np.ndarray:
        """Token ids of a prompt; what is ids already is given back as it is.

        Args:
            prompt, chat: see `Model.generate`.
            behind: the prompt goes on behind other tokens, messages behind an answer.

        Raises InputError for what is no prompt, ChatTemplateError, TokenizerError.
        """
        messages: Sequence[Mapping[str, object]]
        if isinstance(prompt, str):
            if not chat:
                return self.tokenizer.tokenize(prompt, bos=False if behind else None, continued=behind)
            messages = [{"role": "user", "content": prompt}]
        elif not isinstance(prompt, Sequence | np.ndarray) or not getattr(prompt, "ndim", 1):
            raise InputError(f"a prompt is text, a list of messages or token ids, but got {type(prompt).__name__}")
        elif len(prompt) and isinstance(prompt[0], Mapping):
            if chat is False:
                raise InputError("'chat' is False, but the prompt is a list of messages")
            messages = prompt  # type: ignore[assignment]
        else:
            if chat:
                raise InputError("'chat' is True, but the prompt is a list of token ids")
            return prompt  # type: ignore[return-value]
        if not behind:
            return self.chat_ids(messages)
        return self.tokenizer.tokenize(
            self.chat_template.after_answer(messages), bos=False, special=True, continued=True
        )

    def chat_ids(self, messages: Sequence[Mapping[str, object]], **variables: Option) -> list[int]:
        """Token ids of messages in the chat template, up to where the model's answer begins.

        Args:
            messages: mappings with "role" and "content".
            variables: what the template reads beside, such as ``tools``, see `ChatTemplate.render`.

        Raises ChatTemplateError where the file has no template, or it refuses the messages; and as `render` does.
        """
        template = self.chat_template
        text = template.render(messages, **variables)
        has_bos = bool(template.bos_token) and text.startswith(template.bos_token)
        return self.tokenizer.tokenize(text, bos=False if has_bos else None, special=True)

    def checked_ids(self, given: Sequence[int] | np.ndarray, what: str) -> list[int]:
        """Checked token ids: an index outside the embedding table would be clamped in silence."""
        array = as_array(what, given)
        if array.shape == (0,):
            raise InputError(f"{what} must have at least one token, but has none")
        if array.ndim != 1 or array.dtype.kind not in "iu":
            hint = ": tokenize makes them of text" if array.dtype.kind == "U" else ""
            raise InputError(f"{what} must be one or more token ids, but is {array.dtype} {list(array.shape)}{hint}")
        bad = (array < 0) | (array >= self.config.vocab)
        if bad.any():
            at = int(bad.argmax())
            raise InputError(f"a token id must be in [0, {self.config.vocab}), but {array[at]} is at position {at}")
        if array.size > self.context:
            raise ContextLengthError(
                f"{what} has {array.size} tokens, but the context has {self.context} positions{self.larger_context}",
                requested=int(array.size),
                limit=self.context,
            )
        return [int(index) for index in array]

    @property
    def larger_context(self) -> str:
        """What errors say after the number of positions: that there can be more, or can't."""
        if self.context < self.config.context:
            return f"; load the model with a larger 'context' (its own is {self.config.context})"
        return ", and the model was made for no more"

    def note(self, **values: Option) -> Stats:
        """Keeps what a call took: fields of `Stats`."""
        with self._state:
            self._stats = dataclasses.replace(self._stats, peak_rss=peak_rss(), **values)
            return self._stats


def vocabulary_size(file: ModelFile, config: ModelConfig) -> int:
    """Tokens that the file has texts for; all rows of the table where it has no vocabulary."""
    key = "tokenizer.ggml.tokens"
    size = file.metadata.length(key) if key in file.metadata else None
    return config.vocab if size is None else size


__all__ = ["Core", "Prompt", "vocabulary_size"]
