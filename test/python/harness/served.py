# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Servers for tests: in a thread of this process, with an engine that can be held up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from rlx_mlir.models.embedding import Encoder
from rlx_mlir.models.engine import Engine
from rlx_mlir.models.model import Model
from rlx_mlir.serving.server import Server, listen
from rlx_mlir.serving.service import Service
from rlx_mlir.serving.settings import Settings


class Served:
    """A server that runs.

    Attributes:
        url: where it is.
        port: of it.
        gate: steps of the engine wait until it is set; it is, at first.
        service: what it serves.
    """

    def __init__(self, engine: Engine, settings: Settings, encoder: Encoder | None) -> None:
        self.engine = engine
        self.gate = threading.Event()
        self.gate.set()
        self.service = Service(settings, engine, encoder)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._listener = listen("127.0.0.1", 0)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        step = engine.step

        def gated() -> bool:
            self.gate.wait()
            return step()

        engine.step = gated  # type: ignore[method-assign, assignment]

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.server = Server(self.service)
        with self._listener:
            await self.server.run_until_told(self._listener, self._ready.set)

    def start(self) -> None:
        """Starts it."""
        self._thread.start()
        assert self._ready.wait(60)

    def tell_to_stop(self) -> None:
        """As a signal does."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.server.tell_to_stop)

    def join(self) -> None:
        """Waits for its end."""
        self._thread.join(120)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        """Ends it at once."""
        self.gate.set()
        if self._thread.is_alive():
            self.tell_to_stop()
            self.tell_to_stop()
        self.join()

    def client(self, **options: Any) -> httpx.Client:
        """A client of it."""
        return httpx.Client(base_url=self.url, timeout=120, trust_env=False, **options)


@contextmanager
def served(
    model: Model, *, sequences: int = 4, queue: int = 128, encoder: Encoder | None = None, **settings: Any
) -> Iterator[Served]:
    """A server of a model under the name ``tiny``, and of an encoder under the name ``vectors``."""
    own = Settings(name="tiny", embeddings="" if encoder is None else "vectors", **settings)
    with Engine(model, sequences=sequences, queue=queue, chunk=8) as engine:
        found = Served(engine, own, encoder)
        found.start()
        try:
            yield found
        finally:
            found.stop()
