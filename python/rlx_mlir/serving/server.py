# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A server that listens: uvicorn with our protocol, which stops when it is told to and has answered what runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn

from ..errors import InputError, reason_of
from .app import application
from .protocol import Protocol
from .service import Service

_log = logging.getLogger("rlx_mlir.serving")

#: Bytes of a request's head, at most.
_HEAD_BYTES = 16 << 10
#: Seconds that a connection may be silent between two requests.
_IDLE_SECONDS = 15


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is one that is free. Raises InputError where it can't be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise InputError(f"nothing can listen at {host}, port {port}: {reason_of(error).lower()}") from None


class Server(uvicorn.Server):
    """A server of a `Service`. The first SIGTERM or SIGINT drains it, the second one ends it at once."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._draining: asyncio.Task[None] | None = None
        protocol: Any = partial(Protocol, settings=service.settings)
        config = uvicorn.Config(
            application(service),
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=_HEAD_BYTES,
        )
        super().__init__(config)

    async def run_until_told(self, listener: socket.socket, ready: Callable[[], object] | None = None) -> None:
        """Serves what comes to a socket until `tell_to_stop`, and gives everything back."""
        self.service.start()
        try:
            if ready is not None:
                ready()
            await self.serve(sockets=[listener])
        finally:
            await asyncio.to_thread(self.service.stop)

    def tell_to_stop(self) -> None:
        """New requests are refused from now on; those that run are finished, then the server ends.

        To be called by the event loop. A second call ends what runs.
        """
        if self._draining is None:
            _log.info("stopping: %d requests run", self.service.running)
            self._draining = asyncio.ensure_future(self._drain())
        else:
            self.service.cut_short()

    async def _drain(self) -> None:
        await self.service.drain()
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals tell to stop, where this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.tell_to_stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def run(service: Service, listener: socket.socket, ready: Callable[[], object] | None = None) -> None:
    """Serves until SIGTERM or SIGINT; `ready` is called where it listens."""
    asyncio.run(Server(service).run_until_told(listener, ready))


__all__ = ["Server", "listen", "run"]
