# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model for EleutherAI's lm-evaluation-harness, the package `lm_eval`, which asks for likelihoods and texts.

`language_model` gives what `lm_eval.simple_evaluate(model=…)` takes; the package is loaded there, and needed for
nothing else. Texts are cut into tokens as transformers cuts them for it: control tokens are recognised in them, and a
token that begins texts stands in front where the vocabulary asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from rlx_mlir.checks import Option
from rlx_mlir.errors import InputError
from rlx_mlir.files import Json
from rlx_mlir.models.loading import load_model

if TYPE_CHECKING:
    import os

    from rlx_mlir.models.model import Model

Numbers = npt.NDArray[np.float64]

_MOST = 256
"""Tokens that are generated where a request doesn't say."""


class Request(Protocol):
    """What the harness gives: its class `Instance`."""

    @property
    def args(self) -> tuple[Json, ...]: ...


class Answers:
    """What the harness asks of a model; with its class `LM`, `language_model` makes one of both.

    Attributes:
        model: the model.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self._last: tuple[tuple[int, ...], Numbers] | None = None

    @property
    def tokenizer_name(self) -> str:
        """What requests that are kept depend on, beside their texts."""
        return str(self.model.file.path)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The text of the chat template where one is asked for."""
        return self.model.chat_template.source if chat_template else None

    def apply_chat_template(self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """Messages in the chat template."""
        return self.model.chat_template.render(chat_history, add_generation_prompt=add_generation_prompt)

    def loglikelihood(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Of each context and continuation the log of the continuation's probability, and whether each of its tokens is
        the likeliest one."""
        found = []
        for request in requests:
            context, continuation = request.args
            found.append(self._score(*self._pair(context, continuation)))
            self._keep("loglikelihood", request, found[-1])
        return found

    def loglikelihood_rolling(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[float]:
        """Of each text the log of its probability: every token is predicted once, in windows that are as long as the
        context, the last of which goes back as far as it can."""
        found = []
        for request in requests:
            (text,) = request.args
            ids = self.model.tokenize(text, bos=False, special=True)
            found.append(sum(self._score(given, wanted)[0] for given, wanted in self._windows(ids)))
            self._keep("loglikelihood_rolling", request, found[-1])
        return found

    def generate_until(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[str]:
        """Continues each context up to one of some texts: greedily, unless `do_sample` is set."""
        found = []
        for request in requests:
            context, options = request.args
            found.append(self._generated(context, dict(options)))
            self._keep("generate_until", request, found[-1])
        return found

    def _keep(self, what: str, request: Request, answer: object) -> None:
        hook = getattr(self, "cache_hook", None)  # of the harness
        if hook is not None:
            hook.add_partial(what, request.args, answer)

    def _tokens(self, text: str) -> list[int]:
        """Ids of a text that begins."""
        tokenizer = self.model.tokenizer
        begun = tokenizer.bos_id is not None and text.startswith(tokenizer.tokens[tokenizer.bos_id] or "\0")
        return self.model.tokenize(text, bos=False if begun else None, special=True)

    def _prefix(self) -> int:
        """What stands before a text that nothing stands before."""
        tokenizer = self.model.tokenizer
        found = tokenizer.eos_id if tokenizer.bos_id is None else tokenizer.bos_id
        if found is None:
            raise InputError("a text without context needs a token before it, but the vocabulary has none for that")
        return found

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Ids of a context and its continuation: blanks at the end of the context belong to the continuation."""
        kept = context.rstrip()
        continuation = context[len(kept) :] + continuation
        if not kept:
            return [self._prefix()], self.model.tokenize(continuation, bos=False, special=True)
        given, whole = self._tokens(kept), self._tokens(kept + continuation)
        return given, whole[len(given) :]

    def _score(self, given: Sequence[int], wanted: Sequence[int]) -> tuple[float, bool]:
        """The log of the probability of some tokens behind others, leaving out those that are too far back."""
        if not wanted:
            return 0.0, True
        room = self.model.context
        if len(wanted) > room:
            raise InputError(f"a continuation has {len(wanted)} tokens, but the context only {room} positions")
        ids = tuple([*given, *wanted][-(room + 1) : -1])
        if self._last is None or self._last[0] != ids:  # continuations of one token each often share it
            logits = self.model.logits(ids)[:, : self.model.texts].astype(np.float64)
            self._last = ids, logits
        logits = self._last[1][-len(wanted) :]
        top = logits.max(axis=1)
        chosen = logits[np.arange(len(wanted)), np.asarray(wanted)]
        logs = chosen - top - np.log(np.exp(logits - top[:, None]).sum(axis=1))
        return float(logs.sum()), bool((logits.argmax(axis=1) == np.asarray(wanted)).all())

    def _windows(self, ids: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
        """What is given and what is predicted, so that each token is predicted once."""
        room, whole = self.model.context, [self._prefix(), *ids]
        for begin in range(0, len(ids), room):
            end = min(begin + room, len(ids))
            yield whole[max(0, end - room) : begin + 1], list(ids[begin:end])

    def _generated(self, context: str, options: dict[str, Json]) -> str:
        until = options.get("until") or ()
        stop = [until] if isinstance(until, str) else list(until)
        most = min(int(options.get("max_gen_toks", _MOST)), self.model.context - 1)
        ids = self._tokens(context)[-(self.model.context - most) :] or [self._prefix()]
        sampled = bool(options.get("do_sample")) and float(options.get("temperature", 1.0)) > 0
        how: dict[str, Option] = {"greedy": True}
        if sampled:
            how = {name: options[name] for name in ("temperature", "top_k", "top_p", "min_p") if name in options}
        return "".join(self.model.generate(ids, max_tokens=most, stop=[text for text in stop if text], **how))


def language_model(model: Model | str | os.PathLike[str], **options: Option) -> object:
    """A model as the harness takes it: an instance of `lm_eval.api.model.LM`.

    Args:
        model: one that is loaded, or what `load_model` takes.
        options: of `load_model`, where it isn't loaded.

    Raises InputError where `lm_eval` isn't installed, or options are given for a model that is loaded.
    """
    try:
        from lm_eval.api.model import LM
    except ImportError as error:
        raise InputError(f"the package lm_eval, which this is for, can't be loaded: {error}") from None
    from rlx_mlir.models.model import Model

    if isinstance(model, Model):
        if options:
            raise InputError(f"the model is loaded: {', '.join(map(repr, options))} can't be changed any more")
        loaded = model
    else:
        loaded = load_model(model, **options)
    return type("RlxModel", (Answers, LM), {})(loaded)


__all__ = ["Answers", "Request", "language_model"]
