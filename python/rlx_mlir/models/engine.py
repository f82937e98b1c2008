# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Many sequences of one model at a time: prompts in chunks beside tokens of all that have begun, which are decoded
together.

A sequence that decodes has a row of the `Pool`; those rows are the first ones, without holes, so that `batch` reads
them in place. One prompt is processed at a time, in the row behind them. Where a sequence ends, the last row takes its
place.

A sequence has the same bits whatever runs beside it, see `decoder`: its text is the one that `Model.generate` gives.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .. import checks
from ..errors import InputError, QueueFullError, UnsupportedError
from .caches import bytes_per_token, cache_types, state_bytes, state_shapes
from .core import Core, Prompt
from .generation import Generation, Options, Stats, Task, peak_rss
from .interrupts import deferred_interrupts
from .pool import Pool
from .programs import MAX_SEQUENCES
from .session import not_finite

if TYPE_CHECKING:
    from typing_extensions import Unpack

Listener = Callable[[str], object]
Observer = Callable[[Generation], object]


class Request(Generation):
    """What `Engine.add` gives: a generation that the engine's steps move on.

    Iterating over it makes steps until there is text, of this request or of others too. Several threads may iterate
    over requests of one engine.

    Attributes:
        priority: of those that wait, the largest goes first.
    """

    def __init__(
        self, engine: Engine, task: Task, priority: int, on_text: Listener | None, on_done: Observer | None
    ) -> None:
        super().__init__(task, _read)
        self.priority = priority
        self.engine = engine
        self._on_text = on_text
        self._on_done = on_done
        self.waiting: deque[str] = deque()  # text that wasn't read yet
        self.row = -1
        self.position = 0  # tokens whose keys and values are there
        self.reused = 0
        self.times = [time.perf_counter()] * 2  # of its start, and of its first token
        self.is_cancelled = False

    def say(self, piece: str) -> None:
        """Hands a piece of text to who listens."""
        if self._on_text is None:
            self.waiting.append(piece)
        else:
            self._texts.append(piece)
            self._on_text(piece)

    def end(self, reason: str, error: BaseException | None) -> None:
        """Ends it. What `on_done` raises is its error, where it has none yet: others go on."""
        self.error = error
        self.finish_reason = reason
        if self._on_done is None:
            return
        try:
            self._on_done(self)
        except Exception as raised:
            self.error = self.error or raised
            self.finish_reason = "error"

    def cancel(self) -> None:
        """Ends it at the next step, with the reason ``cancelled``; what was generated stays."""
        self.is_cancelled = True

    def close(self) -> None:
        """As `cancel`, and makes no step itself."""
        self.cancel()


def _read(generation: Generation) -> Iterator[str]:
    """Pieces of text of a request, as they come."""
    assert isinstance(generation, Request)
    while True:
        while generation.waiting:
            yield generation.waiting.popleft()
        if generation.finish_reason is not None and not generation.waiting:
            if generation.error is not None:
                raise generation.error
            return
        generation.engine.step(until=generation)


class Engine(checks.Unpicklable):
    """Continues prompts of many callers with one model: continuous batching.

    `add` gives a `Request` at once; `step` moves all on: one chunk of one prompt, and a token of each sequence that is
    past its prompt. So prompts never hold the others up for longer than a chunk, and are processed by priority, of
    equal ones the earlier first. All methods may be called by several threads; steps are made one after another.

    A sequence that fails (a callback or a logits processor raises, logits aren't finite, memory runs out) ends with the
    reason ``error`` and what was raised in `Request.error`; the others go on. An interrupt (Ctrl-C) comes through
    between two steps, and nothing is lost by it.

    Attributes:
        model: whose code and weights it uses.
        sequences: prompts and texts that are worked on at a time, at most.
        queue: requests that may wait, at most.
        memory: bytes of keys and values, at most.
    """

    _instead = "make one of the same model"

    def __init__(
        self,
        model: Core,
        *,
        sequences: int = 8,
        queue: int = 1024,
        memory: int | None = None,
        chunk: int = 128,
    ) -> None:
        """Compiles, or finds compiled, what decodes several sequences.

        Args:
            model: on the CPU.
            sequences: at most 64.
            queue: see above; `add` raises QueueFullError where as many wait.
            memory: see above; a request waits until its prompt and ``max_tokens`` fit beside the others. None for as
                much as the sequences can need.
            chunk: tokens of a prompt that are processed in one step while others decode, at most.

        Raises InputError for arguments out of range, UnsupportedError for a model on a GPU, CompileError.
        """
        if not isinstance(model, Core):
            raise InputError(f"'model' is a Model, but got {checks.shown(model)}")
        if model.on_gpu:
            raise UnsupportedError("an engine needs a model on the CPU, but this one is on a GPU")
        self.model = model
        self.sequences = checks.whole("sequences", sequences, 1, MAX_SEQUENCES)
        self.queue = checks.whole("queue", queue, 1)
        self._chunk = min(checks.whole("chunk", chunk, 1), model.chunk)
        self._token_bytes = bytes_per_token(model.config)
        self._state_bytes = state_bytes(model.config)
        most = self.sequences * (model.context * self._token_bytes + self._state_bytes)
        self.memory = most if memory is None else checks.whole("memory", memory, 1)
        self._pool = Pool(self.sequences, model.context, cache_types(model.config), state_shapes(model.config))
        self._batch = model.programs.get("batch") if self.sequences > 1 else None
        self._logits = np.empty((self.sequences, 1, model.config.vocab), np.float32)
        self._tokens = np.zeros((self.sequences, 1), np.int32)
        self._positions = np.zeros(self.sequences, np.int32)
        self._calls: dict[int, Callable[[], object]] = {}
        self._queue: list[tuple[int, int, Request]] = []
        self._numbers = itertools.count()
        self._prompt: Request | None = None
        self._active: list[Request] = []  # by row
        self._reserved = 0
        self._state = threading.Lock()  # around the queue
        self._turn = threading.RLock()  # around a step

    def __repr__(self) -> str:
        return f"<Engine of {self.model!r}: {self.active} of {self.sequences} sequences, {self.waiting} waiting>"

    @property
    def active(self) -> int:
        """Sequences that are worked on."""
        return len(self._active) + (self._prompt is not None)

    @property
    def waiting(self) -> int:
        """Requests that haven't begun."""
        return len(self._queue)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be done."""
        return not (self._queue or self._active or self._prompt)

    def add(
        self,
        prompt: Prompt,
        *,
        chat: bool | None = None,
        priority: int = 0,
        on_text: Listener | None = None,
        on_done: Observer | None = None,
        **options: Unpack[Options],
    ) -> Request:
        """Asks for the continuation of a prompt.

        Args:
            prompt, chat: see `Model.generate`.
            priority: of those that wait, the largest goes first.
            on_text: called with each piece of text, by the thread that makes the step; where it isn't given, iterating
                over the request gives the pieces.
            on_done: called with the request when it has ended.
            options: those of `Model.generate`, but for ``draft``.

        Raises as `Model.generate` does; QueueFullError where the queue is full, InputError where the request needs more
        than ``memory``.
        """
        checks.whole("priority", priority, -(2**31))
        if on_text is not None:
            checks.callback("on_text", on_text, "text")
        if on_done is not None:
            checks.callback("on_done", on_done, "request")
        task = self.model.task(prompt, chat=chat, **options)
        need = self._bytes(task)
        if need > self.memory:
            raise InputError(
                f"a prompt of {len(task.prompt)} tokens with 'max_tokens' {task.max_tokens} needs {need} bytes of keys "
                f"and values, but the engine's 'memory' is {self.memory}"
            )
        request = Request(self, task, priority, on_text, on_done)
        with self._state:
            if len(self._queue) >= self.queue:
                raise QueueFullError(f"{len(self._queue)} requests wait, and 'queue' allows {self.queue}: come later")
            heapq.heappush(self._queue, (-priority, next(self._numbers), request))
        return request

    def step(self, until: Request | None = None) -> bool:
        """Moves all sequences on; gives whether there was anything to do.

        Args:
            until: nothing is done where this request has text to be read, or has finished, by another thread's step.
        """
        if until is not None and not isinstance(until, Request):
            raise InputError(f"'until' is a Request, but got {checks.shown(until)}")
        with self._turn:
            if until is not None and (until.waiting or until.finish_reason is not None):
                return True
            if until is not None and self.is_idle:
                raise InputError("a request whose engine was closed gives no more text")
            with deferred_interrupts():
                self._drop_cancelled()
                self._begin()
                busy = self.active > 0
                if self._prompt is not None:
                    self._guarded([self._prompt], self._read_prompt, self._prompt)
                if self._active:
                    self._guarded(list(self._active), self._decode)
                return busy

    def run(self) -> None:
        """Makes steps until nothing is left to be done."""
        while not self.is_idle:
            self.step()

    def close(self) -> None:
        """Ends all requests, with the reason ``closed``, and gives memory back."""
        with self._turn:
            with self._state:
                left = [request for _, _, request in self._queue]
                self._queue.clear()
            for request in left:
                self._finish(request, "closed")
            for request in [*self._active, *([] if self._prompt is None else [self._prompt])]:
                self._remove(request, "closed")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # Requests that begin and end ------------------------------------------------------------------

    def _bytes(self, task: Task) -> int:
        """Keys and values that a task may need, and states."""
        return min(len(task.prompt) + task.max_tokens, self.model.context) * self._token_bytes + self._state_bytes

    def _drop_cancelled(self) -> None:
        with self._state:
            gone = [request for _, _, request in self._queue if request.is_cancelled]
            if gone:
                self._queue = [entry for entry in self._queue if not entry[2].is_cancelled]
                heapq.heapify(self._queue)
        for request in gone:
            self._finish(request, "cancelled")
        if self._prompt is not None and self._prompt.is_cancelled:
            self._remove(self._prompt, "cancelled")
        for request in [request for request in self._active if request.is_cancelled]:
            self._remove(request, "cancelled")

    def _begin(self) -> None:
        """Takes the next prompt, where none is under way, and there are a row and memory for it."""
        if self._prompt is not None or len(self._active) == self.sequences:
            return
        with self._state:
            if not self._queue or self._reserved + self._bytes(self._queue[0][2].task) > self.memory:
                return
            request = heapq.heappop(self._queue)[2]
        self._reserved += self._bytes(request.task)
        request.row = len(self._active)
        request.times = [time.perf_counter()] * 2
        self._prompt = request
        prompt, prefixes = request.task.prompt, self.model.prefixes
        if prefixes is not None:
            request.position, parts = prefixes.find(prompt, len(prompt) - 1)
            self._pool.load(request.row, request.position, parts)
        request.reused = request.position

    def _finish(self, request: Request, reason: str, error: BaseException | None = None) -> None:
        """Ends a request that has no row."""
        task, now = request.task, time.perf_counter()
        request.stats = Stats(
            prompt_tokens=min(request.position, len(task.prompt)) - request.reused,
            reused_tokens=request.reused,
            generated_tokens=len(task.ids),
            prompt_seconds=request.times[1] - request.times[0],
            decode_seconds=now - request.times[1],
            peak_rss=peak_rss(),
        )
        request.end(reason, error)

    def _remove(self, request: Request, reason: str, error: BaseException | None = None) -> None:
        """Ends a request that has a row, which the last one takes."""
        self._reserved -= self._bytes(request.task)
        if request is self._prompt:
            self._pool.clear(request.row, request.position)
            self._prompt = None
        else:
            last = self._active.pop()
            self._pool.clear(request.row, request.position)
            if last is not request:
                self._move(last, request.row)
                self._active[last.row] = last
            if self._prompt is not None:
                self._move(self._prompt, len(self._active))
        self._finish(request, reason, error)

    def _move(self, request: Request, row: int) -> None:
        self._pool.move(request.row, row, request.position)
        request.row = row

    # Steps ----------------------------------------------------------------------------------------

    def _guarded(self, requests: Sequence[Request], work: Callable[..., None], *arguments: Request) -> None:
        """Does some work; where it raises, as for want of memory, the requests that it is for end."""
        try:
            work(*arguments)
        except Exception as error:
            for request in requests:
                if request.finish_reason is None:
                    self._remove(request, "error", error)

    def _read_prompt(self, request: Request) -> None:
        """Processes a chunk of a prompt; after the last one its first token is chosen."""
        prompt = request.task.prompt
        part = prompt[request.position :][: self._chunk if self._active else self.model.chunk]
        inputs: dict[str, np.ndarray] = {
            "tokens": np.array([part], np.int32),
            "pos": np.array([request.position], np.int32),
            "rows": np.array([len(part) - 1], np.int32),
            **self._pool.view(request.row, request.row + 1),
        }
        logits = self._logits[request.row : request.row + 1]
        with self.model.turn:
            self.model.programs.prefill.run(inputs, outputs={"logits": logits}, donate=self._pool.updated)
        request.position += len(part)
        if request.position < len(prompt):
            return
        if self.model.prefixes is not None:
            self.model.prefixes.add(prompt, self._pool.rows(request.row, len(prompt)))
        self._prompt = None
        self._active.append(request)
        self._choose([request])
        request.times[1] = time.perf_counter()

    def _decode(self) -> None:
        """Processes the last token of each sequence that is past its prompt, and chooses the next one."""
        rows = list(self._active)
        for request in rows:
            self._tokens[request.row] = request.task.ids[-1]
            self._positions[request.row] = request.position
        call = self._call(len(rows))
        with self.model.turn:
            call()
        for request in rows:
            request.position += 1
        self._choose(rows)

    def _call(self, count: int) -> Callable[[], object]:
        """What decodes the first ``count`` rows."""
        if count not in self._calls:
            program = self.model.programs.decode if count == 1 else self._batch
            assert program is not None
            self._calls[count] = program.bind(
                {"tokens": self._tokens[:count], "pos": self._positions[:count], **self._pool.view(0, count)},
                outputs={"logits": self._logits[:count]},
                donate=self._pool.updated,
            )
        return self._calls[count]

    def _choose(self, requests: Sequence[Request]) -> None:
        """Chooses a token for each of some sequences by its row of the logits."""
        ended: list[tuple[Request, str, BaseException | None]] = []
        for request in requests:
            task, row = request.task, request.row
            try:
                self._check(request)
                piece = task.take(task.chooser.choose(self._logits[row, 0, : self.model.texts]))
                if piece or task.has_aside:
                    request.say(piece)
            except Exception as error:
                ended.append((request, "error", error))
                continue
            if task.reason is not None:
                ended.append((request, task.reason, None))
        for request, reason, raised in ended:
            self._remove(request, reason, raised)

    def _check(self, request: Request) -> None:
        """Raises ExecutionError unless all logits of a sequence are finite."""
        if not np.isfinite(self._logits[request.row]).all():
            rows = self._pool.rows(request.row, request.position)
            raise not_finite(rows, request.position, cache_types(self.model.config))


__all__ = ["Engine", "Request"]
