# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a server does, without HTTP: requests become work for an engine; what runs, and what is told of errors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import numpy as np

from ..errors import InputError
from ..models.embedding import Encoder
from ..models.engine import Engine, Request
from ..models.generation import Options
from ..models.model import Model
from .calls import Form, form_of, grammar, messages_for
from .driver import Driver, Piece, Work
from .failures import Refusal, refusal_of, stopping
from .metrics import Counter, Gauge, Histogram, Metrics
from .requests import SWITCHES, Chat, Common, Completion, Embeddings, Limits
from .settings import Settings

_log = logging.getLogger("rlx_mlir.serving")

#: Requests for vectors that run or wait, at most.
_MOST_EMBEDDINGS = 64
#: Seconds in which a request that was ended tells its client.
_LAST_SECONDS = 5.0


class Service:
    """A model, what works on requests to it, and what is counted of them.

    Its coroutines are for one event loop.

    Attributes:
        settings: names and limits.
        limits: of requests.
        model: that is served.
        metrics: what is counted.
        replies: of these, replies by path and status.
        is_stopping: whether new requests are refused.
        running: requests that are being answered.
        created: when it was made, in seconds since 1970.
    """

    def __init__(self, settings: Settings, engine: Engine, encoder: Encoder | None = None) -> None:
        """Raises InputError where there is an encoder without a name, or a name without one."""
        if bool(settings.embeddings) != (encoder is not None):
            raise InputError("'embeddings' is the name of an encoder: give both, or none")
        if not isinstance(engine.model, Model):
            raise InputError("a server needs the engine of a Model")
        self.settings = settings
        self.model = engine.model
        context = self.model.context
        self.limits = Limits(min(settings.max_tokens or context, context), settings.choices, settings.inputs)
        self.metrics = Metrics()
        self.is_stopping = False
        self._patience = 0.0
        self.running = 0
        self.created = int(time.time())
        self._encoder = encoder
        self._encoding = asyncio.Lock()
        self._encodings = 0
        self._driver = Driver(engine)
        self._works: set[Work] = set()
        self._count()

    def _count(self) -> None:
        """Makes what is counted."""
        engine, prefixes, add = self._driver.engine, self.model.prefixes, self.metrics.add
        self.replies = Counter("path", "status")
        self._tokens = Counter("kind")
        self._texts = Counter("reason")
        self._first, self._between, self._whole = Histogram(), Histogram(), Histogram()
        add("rlx_requests_total", "Requests that were answered, by path and status.", self.replies)
        add("rlx_tokens_total", "Tokens: of prompts, of these found in the cache, and generated.", self._tokens)
        add("rlx_texts_total", "Texts that ended, by the reason.", self._texts)
        add("rlx_first_token_seconds", "From a request's arrival to its first text.", self._first)
        add("rlx_token_seconds", "Between two tokens of a text.", self._between)
        add("rlx_work_seconds", "From a request's arrival to the end of its texts.", self._whole)
        add("rlx_requests_running", "Requests that are being answered.", Gauge(lambda: self.running))
        add("rlx_sequences_active", "Sequences that the engine works on.", Gauge(lambda: engine.active))
        add("rlx_sequences_waiting", "Sequences that wait for the engine.", Gauge(lambda: engine.waiting))
        add("rlx_engine_failures", "Steps of the engine that failed.", Gauge(lambda: self._driver.failures))
        if prefixes is not None:
            add("rlx_prefix_bytes", "Bytes of keys and values kept of prompts.", Gauge(lambda: prefixes.size))

    # Starting and stopping ------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the thread of the engine."""
        self._driver.start()

    async def drain(self) -> None:
        """Refuses new requests, waits until those that run are answered, as long as is allowed, and ends the rest."""
        self.is_stopping = True
        self._patience = time.monotonic() + self.settings.grace_seconds
        while self.running and time.monotonic() < self._patience:
            await asyncio.sleep(0.02)
        for work in list(self._works):
            work.cancel()
        end = time.monotonic() + _LAST_SECONDS
        while self.running and time.monotonic() < end:
            await asyncio.sleep(0.02)

    def cut_short(self) -> None:
        """`drain` waits no longer."""
        self._patience = 0.0

    def stop(self) -> None:
        """Ends what runs, and the thread."""
        self._driver.stop()

    @property
    def is_well(self) -> bool:
        """Whether new requests are worked on."""
        return not self.is_stopping and self._driver.is_alive

    # Errors ---------------------------------------------------------------------------------------

    def refusal(self, error: BaseException) -> Refusal:
        """What is told of an error; those that aren't the request's fault are logged, and not told."""
        path = self.model.file.path
        found = refusal_of(error, {str(path): self.settings.name} if path else {})
        if found is None:
            _log.error("a request failed", exc_info=error)
            found = Refusal(500, "the server failed; its log says why", code="internal_error")
        return found

    def check_model(self, name: str) -> None:
        """Raises Refusal, of status 404, for a name that isn't the model's."""
        if name != self.settings.name:
            what = "is an encoder, which has no texts" if name == self.settings.embeddings else "isn't served here"
            raise _unknown(name, what)

    def check_end(self, work: Work, request: Request) -> None:
        """Raises where a text ended in a way that isn't an answer."""
        reason = request.finish_reason
        if reason == "error" and request.error is not None:
            raise request.error
        if reason == "closed" or (reason == "cancelled" and not work.is_late):
            raise stopping() if self.is_stopping else Refusal(500, "the server failed; its log says why")
        if reason == "cancelled" and not request.ids:
            seconds = self.settings.request_seconds
            raise Refusal(503, f"no text came within {seconds:g} seconds", code="timeout", headers={"Retry-After": "5"})

    # Texts ----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def chat(self, asked: Chat) -> AsyncIterator[Work]:
        """Work on a chat, which is ended with the block; raises what the request is refused with."""

        form = self._form_for(asked)

        def prompts() -> list[list[int]]:
            messages = messages_for(asked.messages, asked.tools, form)
            variables = dict(asked.variables)
            if asked.tools is not None and form is not Form.GENERIC:
                variables["tools"] = [function.shown for function in asked.tools.functions]
            return [self.model.chat_ids(messages, **variables)]

        options = asked.options
        if asked.tools is not None and (lark := grammar(asked.tools, form)) is not None:
            options = {**options, "response_format": {"type": "lark", "grammar": lark}}
        async with self._working(asked, prompts, options) as work:
            yield work

    def _form_for(self, asked: Chat) -> Form:
        """The form of calls; Refusal where a request sets what the template doesn't read."""
        self.check_model(asked.model)
        known = self.model.chat_template.variables
        for name in asked.variables:
            if name not in known:
                param = name if name in SWITCHES else "chat_template_kwargs"
                raise Refusal(400, f"the chat template of this model doesn't read '{name[:100]}'", param=param)
        return self.form

    @property
    def form(self) -> Form:
        """The form of calls that the model's template knows; ChatTemplateError where it has no template."""
        return form_of(self.model.chat_template)

    @asynccontextmanager
    async def completion(self, asked: Completion) -> AsyncIterator[Work]:
        """Work on a completion, likewise."""

        def prompts() -> list[list[int]]:
            return [self.model.tokenize(own) if isinstance(own, str) else own for own in asked.prompts]

        async with self._working(asked, prompts, asked.options, chat=False) as work:
            yield work

    @asynccontextmanager
    async def _working(
        self, asked: Common, prompts: Callable[[], list[list[int]]], options: Options, *, chat: bool | None = None
    ) -> AsyncIterator[Work]:
        """Work on all texts of a request; what isn't done at the end of the block is cancelled.

        Where ``chat`` is False, all that the model writes is text.
        """
        self.check_model(asked.model)
        loop = asyncio.get_running_loop()
        work = Work(self._driver, loop)

        def add() -> None:
            for ids in prompts():
                for choice in range(asked.count):
                    own = options.copy()
                    own["seed"] = None if asked.seed is None else asked.seed + choice
                    work.add(ids, chat=chat, **own)

        timer = None
        try:
            await asyncio.to_thread(add)  # templates, tokens and grammars take time
            timer = loop.call_later(self.settings.request_seconds, work.expire)
            self._works.add(work)
            yield work
        finally:
            self._works.discard(work)
            if timer is not None:
                timer.cancel()
            work.cancel()
            self._note(work)

    async def pieces(self, work: Work) -> AsyncIterator[Piece]:
        """What the texts of a request say, as it comes."""
        before: dict[int, tuple[int, float]] = {}
        async for piece in work.pieces():
            for tokens, moment in () if piece.is_end else piece.marks:  # when each text came, not when it was read
                if (last := before.get(piece.index)) is None:
                    self._first.observe(moment - work.began)
                elif (count := tokens - last[0]) > 0:
                    self._between.observe((moment - last[1]) / count, count)
                before[piece.index] = tokens, moment
            yield piece

    def _note(self, work: Work) -> None:
        """Counts what is done, or ended early."""
        self._whole.observe(time.perf_counter() - work.began)
        for request in work.requests:
            self._texts.add(1, request.finish_reason or "cancelled")
            self._tokens.add(len(request.prompt_ids), "prompt")
            self._tokens.add(request.stats.reused_tokens, "cached")
            self._tokens.add(len(request.ids), "generated")

    # Vectors --------------------------------------------------------------------------------------

    async def embed(self, asked: Embeddings) -> tuple[np.ndarray, int]:
        """The vectors f32 [inputs, width] of a request, and the number of its tokens."""
        encoder = self._encoder
        if encoder is None or asked.model != self.settings.embeddings:
            what = "has no vectors: --embeddings says which encoder has" if asked.model == self.settings.name else ""
            raise _unknown(asked.model, what or "isn't served here")
        width = encoder.config.hidden
        if asked.width not in (None, width):
            raise Refusal(400, f"'dimensions' must be the encoder's {width}, but is {asked.width}", param="dimensions")
        if self._encodings >= _MOST_EMBEDDINGS:
            raise Refusal(429, "too many requests for vectors wait", code="queue_full", headers={"Retry-After": "1"})

        def compute() -> tuple[np.ndarray, int]:
            inputs: Sequence[str | list[int]] = asked.inputs
            ids = encoder.token_ids([own for own in inputs if isinstance(own, str)], truncate=False)
            ids = ids or [own for own in inputs if not isinstance(own, str)]
            return encoder.embed_tokens(ids), sum(map(len, ids))

        self._encodings += 1
        try:
            async with self._encoding:
                vectors, count = await asyncio.to_thread(compute)
        finally:
            self._encodings -= 1
        self._tokens.add(count, "embedded")
        return vectors, count


def _unknown(name: str, what: str) -> Refusal:
    return Refusal(404, f"the model '{name[:100]}' {what}", code="model_not_found", param="model")


__all__ = ["Service"]
