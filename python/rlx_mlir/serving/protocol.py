# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What happens to a connection before there is a request: how many there may be, and how long one may be silent."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlx_mlir.checks import Option

from . import replies
from .failures import Refusal
from .settings import Settings


def _reply(refusal: Refusal) -> bytes:
    """A whole reply of HTTP, after which the connection ends."""
    content = replies.encode(refusal.to_dict())
    reason = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}[refusal.status]
    headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), "Connection": "close"}
    lines = [f"HTTP/1.1 {refusal.status} {reason}", *(f"{k}: {v}" for k, v in {**headers, **refusal.headers}.items())]
    return "\r\n".join([*lines, "", ""]).encode() + content


class Protocol(H11Protocol):
    """HTTP/1.1 with a limit of connections, and of the time that a request's head may take."""

    def __init__(self, *given: Option, settings: Settings, **more: Option) -> None:
        super().__init__(*given, **more)
        self._settings = settings
        self._waits: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._settings.connections:
            most = self._settings.connections
            refusal = Refusal(503, f"{most} connections are open, and more may not be", headers={"Retry-After": "1"})
            self._end(refusal)
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif not self.transport.is_closing():
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:  # of the next head there is a part
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._end(Refusal(400, f"{msg[:1].lower()}{msg[1:].rstrip('.')}"))

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._end(Refusal(400, "there are no web sockets here"))

    def _wait(self) -> None:
        """A request's head has to be there before long."""
        if self._waits is None:
            self._waits = self.loop.call_later(self._settings.header_seconds, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _too_slow(self) -> None:
        seconds = self._settings.header_seconds
        self._end(Refusal(408, f"the head of a request didn't come within {seconds:g} seconds"))

    def _end(self, refusal: Refusal) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.write(_reply(refusal))
            self.transport.close()


__all__ = ["Protocol"]
