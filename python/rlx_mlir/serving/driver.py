# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The thread that makes an engine's steps, and what carries text from there to the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..models.engine import Engine, Request
from ..models.generation import Generation, Options

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger("rlx_mlir.serving")


class Driver:
    """Makes steps of an engine in a thread of its own, as long as there is work; it sleeps otherwise.

    `add` may be called by any thread. A step that raises ends all requests of that moment, with the reason ``closed``;
    those that come later are worked on.

    Attributes:
        engine: whose steps they are.
        failures: steps that raised.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.failures = 0
        self._wake = threading.Condition()
        self._stops = False
        self._thread = threading.Thread(target=self._work, name="rlx-engine", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def add(
        self,
        prompt: Sequence[int],
        *,
        chat: bool | None,
        on_text: Callable[[str], object],
        on_done: Callable[[Generation], object],
        **options: Unpack[Options],
    ) -> Request:
        """As `Engine.add`; and wakes the thread."""
        request = self.engine.add(prompt, chat=chat, on_text=on_text, on_done=on_done, **options)
        with self._wake:
            self._wake.notify()
        return request

    def stop(self) -> None:
        """Ends all requests, and the thread, after the step that it is at."""
        with self._wake:
            self._stops = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self.engine.close()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _work(self) -> None:
        while True:
            with self._wake:
                while self.engine.is_idle and not self._stops:
                    self._wake.wait()
                if self._stops:
                    return
            try:
                self.engine.step()
            except Exception:
                self.failures += 1
                _log.exception("a step of the engine failed: its requests are ended")
                self.engine.close()


@dataclass(frozen=True)
class Piece:
    """Text of one choice, or its end.

    Attributes:
        index: of the choice.
        text: that came.
        marks: of each text that this one joins, the tokens of the choice so far, and when it came, in seconds of
            `time.perf_counter`.
        is_end: whether nothing follows.
    """

    index: int
    text: str
    marks: tuple[tuple[int, float], ...]
    is_end: bool = False

    @property
    def tokens(self) -> int:
        """Of the choice so far."""
        return self.marks[-1][0]


class Work:
    """The choices of one HTTP request, which an engine works on together.

    Made and read by the event loop; `add` is called by threads.

    Attributes:
        requests: one for each choice.
        began: when it was made, in seconds of `time.perf_counter`.
        is_late: whether it was ended because its time was over.
    """

    def __init__(self, driver: Driver, loop: asyncio.AbstractEventLoop) -> None:
        self.requests: list[Request] = []
        self.began = time.perf_counter()
        self.is_late = False
        self._driver = driver
        self._loop = loop
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue()
        self._is_cancelled = False

    def add(self, prompt: Sequence[int], *, chat: bool | None = None, **options: Unpack[Options]) -> None:
        """One more choice; raises as `Engine.add` does."""
        index, turn = len(self.requests), threading.Lock()

        def on_text(text: str) -> None:
            with turn:  # until the request is in the list
                request = self.requests[index]
            self._say(Piece(index, text, ((len(request.ids), time.perf_counter()),)))

        def on_done(generation: Generation) -> None:
            self._say(Piece(index, "", ((len(generation.ids), time.perf_counter()),), is_end=True))

        with turn:
            request = self._driver.add(prompt, chat=chat, on_text=on_text, on_done=on_done, **options)
            self.requests.append(request)
        if self._is_cancelled:
            request.cancel()

    def _say(self, piece: Piece) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    def cancel(self) -> None:
        """Ends what hasn't ended yet; choices that are added afterwards, too."""
        self._is_cancelled = True
        for request in list(self.requests):
            request.cancel()

    def expire(self) -> None:
        """As `cancel`, because its time is over."""
        if any(request.finish_reason is None for request in self.requests):
            self.is_late = True
            self.cancel()

    async def pieces(self) -> AsyncIterator[Piece]:
        """What all choices say, as it comes; text of a choice that came meanwhile is one piece."""
        left = len(self.requests)
        while left:
            piece = await self._pieces.get()
            while not self._pieces.empty() and not piece.is_end:
                following = self._pieces.get_nowait()
                if following.index == piece.index and not following.is_end:
                    piece = Piece(piece.index, piece.text + following.text, piece.marks + following.marks)
                else:
                    yield piece
                    piece = following
            left -= piece.is_end
            yield piece


__all__ = ["Driver", "Piece", "Work"]
