# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The HTTP of a server, as an application of ASGI: routes, keys, limits, streams, and errors as JSON."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import InputError, ModelFileError, shortened
from ..frontends.documents import parse_json
from . import metrics, replies
from .answers import Answer, ChatAnswer, CompletionAnswer
from .driver import Work
from .failures import Refusal, stopping
from .requests import chat_of, completion_of, embeddings_of
from .service import Service

_log = logging.getLogger("rlx_mlir.serving")

_JSON = "application/json"
#: Seconds that a client has to read what is left of an answer, after the time of the request.
_READING = 30.0
#: Paths that need no key, and are answered while the server stops.
_OPEN = ("/", "/health")
_SAFE = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def application(service: Service) -> ASGIApp:
    """The application of a service."""
    routes = [
        Route("/", _page, methods=["GET"]),
        Route("/health", _health, methods=["GET"]),
        Route("/metrics", _metrics, methods=["GET"]),
        Route("/v1/models", _models, methods=["GET"]),
        Route("/v1/models/{name:path}", _model, methods=["GET"]),
        Route("/v1/chat/completions", Texts(service, chat_of, service.chat, ChatAnswer), methods=["POST"]),
        Route("/v1/completions", Texts(service, completion_of, service.completion, CompletionAnswer), methods=["POST"]),
        Route("/v1/embeddings", Vectors(service), methods=["POST"]),
    ]
    origins = list(service.settings.origins)
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
    )
    app = Starlette(
        routes=routes,
        middleware=[*([cors] if origins else []), Middleware(Entry, service=service)],
        exception_handlers={HTTPException: _no_route},
    )
    app.state.service = service
    return app


class Entry:
    """What every request passes: who may come, what is counted, and errors as JSON."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, statuses = time.perf_counter(), [499]  # where nothing is sent, the client went before

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses[:] = [message["status"]]
            await send(message)

        try:
            self._admit(scope)
            await self._app(scope, receive, sending)
        except Exception as error:
            refusal = self._service.refusal(error)
            if statuses == [499]:
                await refused(refusal)(scope, receive, sending)
        finally:
            path = known_path(scope)
            self._service.replies.add(1, path, str(statuses[0]))
            _log.info("%s %s %d %.3f s", scope["method"], path, statuses[0], time.perf_counter() - begin)

    def _admit(self, scope: Scope) -> None:
        """Raises Refusal for who may not come."""
        headers, settings = Headers(scope=scope), self._service.settings
        if not settings.serves_host(headers.get("host", "")):
            raise Refusal(403, "the header 'Host' names another machine than this one", code="host_not_allowed")
        if scope["path"] in _OPEN:
            return
        key = settings.api_key
        if key is not None:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            fits = hmac.compare_digest(given.strip().encode(errors="replace"), key.encode())
            if scheme.lower() != "bearer" or not fits:
                raise Refusal(
                    401,
                    "the header 'Authorization: Bearer KEY' has no key of this server",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        if self._service.is_stopping and scope["method"] == "POST":
            raise stopping()


def known_path(scope: Scope) -> str:
    """The path of a request for logs and metrics: one of ours, as paths of strangers could be endless."""
    route = scope.get("route")
    return str(route.path) if isinstance(route, Route) else _PATHS.get(scope["path"], "other")


_PATHS = {
    path: path
    for path in ("/", "/health", "/metrics", "/v1/models", "/v1/chat/completions", "/v1/completions", "/v1/embeddings")
}


def refused(refusal: Refusal) -> Response:
    """The reply of an error."""
    headers = {**_SAFE, **refusal.headers}
    return Response(replies.encode(refusal.to_dict()), refusal.status, headers, _JSON)


def answered(value: object) -> Response:
    """The reply of a JSON object."""
    return Response(replies.encode(value), headers=_SAFE, media_type=_JSON)


async def _no_route(request: Request, error: Exception) -> Response:
    """Where no route fits: 404, 405."""
    assert isinstance(error, HTTPException)
    message = error.detail.lower()
    if error.status_code == 404:
        known = ", ".join(route.path for route in request.app.routes if route.path.startswith("/v1/"))
        message = f"there is nothing at {shortened(request.url.path)}; what there is: {known}"
    return refused(Refusal(error.status_code, message, headers=error.headers))


# What answers at once -----------------------------------------------------------------------------


def _service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


@cache
def page() -> tuple[bytes, str]:
    """The page to chat with, and the policy of what it may do: run its own script, and ask this server."""
    text = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")

    def digest(tag: str) -> str:
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        return base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()

    policy = (
        f"default-src 'none'; script-src 'sha256-{digest('script')}'; style-src 'sha256-{digest('style')}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy


async def _page(_request: Request) -> Response:
    content, policy = page()
    headers = {**_SAFE, "Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
    return Response(content, headers=headers, media_type="text/html")


async def _health(request: Request) -> Response:
    service = _service_of(request)
    state = "ok" if service.is_well else "stopping" if service.is_stopping else "failed"
    return Response(replies.encode({"status": state}), 200 if service.is_well else 503, _SAFE, _JSON)


async def _metrics(request: Request) -> Response:
    return Response(_service_of(request).metrics.text(), headers=_SAFE, media_type=metrics.CONTENT_TYPE)


def _entries(service: Service) -> list[dict[str, object]]:
    names = [service.settings.name, service.settings.embeddings]
    return [replies.model_entry(name, service.created) for name in names if name]


async def _models(request: Request) -> Response:
    return answered({"object": "list", "data": _entries(_service_of(request))})


async def _model(request: Request) -> Response:
    name = request.path_params["name"]
    for entry in _entries(_service_of(request)):
        if entry["id"] == name:
            return answered(entry)
    return refused(Refusal(404, f"the model '{name[:100]}' isn't served here", code="model_not_found"))


# What takes time ----------------------------------------------------------------------------------


class Endpoint:
    """An endpoint that reads a JSON body and then works; where the client goes, the work is ended."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.service.running += 1
        try:
            body = await self._body(Headers(scope=scope), receive)
            work = asyncio.ensure_future(self.answer(body, scope, receive, send))
            gone = asyncio.ensure_future(_disconnected(receive))
            limit = self.service.settings.request_seconds + _READING
            try:
                await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED, timeout=limit)
            finally:
                gone.cancel()
                if not work.done():  # the client went, or doesn't read; or this task is cancelled
                    work.cancel()
                with suppress(asyncio.CancelledError):
                    await work
        finally:
            self.service.running -= 1

    async def answer(self, body: object, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer to a body."""
        raise NotImplementedError

    async def _body(self, headers: Headers, receive: Receive) -> object:
        """The JSON of a body; raises Refusal."""
        if headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            # Pages of other sites can send text without being asked, but not JSON.
            raise Refusal(415, f"the header 'Content-Type' must be {_JSON}")
        settings = self.service.settings
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > settings.body_bytes:
            raise _too_large(settings.body_bytes)
        try:
            content = await asyncio.wait_for(_read(receive, settings.body_bytes), settings.body_seconds)
        except asyncio.TimeoutError:
            seconds = settings.body_seconds
            raise Refusal(408, f"the body didn't come within {seconds:g} seconds", headers=_CLOSE) from None
        try:
            return await asyncio.to_thread(parse_json, content, None)
        except (ModelFileError, InputError) as error:
            raise Refusal(400, f"the body can't be read: {error}") from None


_CLOSE = {"Connection": "close"}


def _too_large(limit: int) -> Refusal:
    return Refusal(413, f"a body may have {limit} bytes, but has more", headers=_CLOSE)


async def _read(receive: Receive, limit: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "the client went before its request was read")
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


#: A request, as the endpoint's own class of `requests`.
Asked: TypeAlias = Any


class Texts(Endpoint):
    """Chats or completions."""

    def __init__(
        self,
        service: Service,
        read: Callable[..., Asked],
        begin: Callable[[Asked], AbstractAsyncContextManager[Work]],
        answer: type[Answer],
    ) -> None:
        super().__init__(service)
        self._read_body, self._begin, self._answer_of = read, begin, answer

    async def answer(self, body: object, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self._read_body(body, self.service.limits)
        async with self._begin(asked) as work:
            answer = self._answer_of(self.service, asked, work)
            if asked.stream:
                await _stream(self._events(work, answer), send)
                return
            async for _ in self.service.pieces(work):
                pass
            for request in work.requests:
                self.service.check_end(work, request)
            whole = answer.whole()
        await answered(whole)(scope, receive, send)

    async def _events(self, work: Work, answer: Answer) -> AsyncIterator[bytes]:
        """The events of a stream. An error is one, after which nothing follows but the end."""
        try:
            for value in answer.begin():
                yield replies.event(value)
            async for piece in self.service.pieces(work):
                if piece.is_end:
                    self.service.check_end(work, work.requests[piece.index])
                yield b"".join(map(replies.event, answer.follow(piece)))
            for value in answer.end():
                yield replies.event(value)
        except Exception as error:
            yield replies.event(self.service.refusal(error).to_dict())
        yield replies.DONE


async def _stream(events: AsyncIterator[bytes], send: Send) -> None:
    headers = {**_SAFE, "Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": raw})
    async for content in events:
        if content:
            await send({"type": "http.response.body", "body": content, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Vectors(Endpoint):
    """Embeddings."""

    async def answer(self, body: object, scope: Scope, receive: Receive, send: Send) -> None:
        asked = embeddings_of(body, self.service.limits)
        vectors, tokens = await self.service.embed(asked)
        data = [replies.embedding(vector, number, as_bytes=asked.base64) for number, vector in enumerate(vectors)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        await answered({"object": "list", "data": data, "model": asked.model, "usage": usage})(scope, receive, send)


__all__ = ["application", "page"]
