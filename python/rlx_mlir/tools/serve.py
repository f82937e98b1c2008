# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx serve`: a model with OpenAI's interface over HTTP."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.errors import InputError
from rlx_mlir.tools.loading import Loading, takes_options
from rlx_mlir.tools.options import progress

if TYPE_CHECKING:
    from rlx_mlir.serving.settings import Settings

_KEY = "RLX_API_KEY"
_MB = 1_000_000


@takes_options
def serve(
    loading: Loading,
    host: Annotated[str, typer.Option(help="Address to listen at; others than this machine's own need a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free.")] = 8000,
    name: Annotated[
        str | None, typer.Option(help="The model's name in requests; that of the file by default.", show_default=False)
    ] = None,
    embeddings: Annotated[
        str | None,
        typer.Option(help="An encoder's folder or name, for /v1/embeddings under this name.", show_default=False),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(help=f"What requests have to bring; {_KEY} isn't seen by other users.", show_default=False),
    ] = None,
    sequences: Annotated[int, typer.Option(min=1, max=64, help="Texts that are worked on at a time.")] = 8,
    queue: Annotated[int, typer.Option(min=1, help="Texts that may wait; others get status 429.")] = 128,
    memory: Annotated[
        int | None,
        typer.Option(min=1, help="MB of keys and values, at most; what --sequences need.", show_default=False),
    ] = None,
    prefix_memory: Annotated[
        int | None,
        typer.Option(min=0, help="MB of keys and values kept of prompts; one context's.", show_default=False),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="That a request may ask for; the context's.", show_default=False)
    ] = None,
    time_limit: Annotated[float, typer.Option(min=0, help="Seconds for a request, waiting included.")] = 600.0,
    body_limit: Annotated[int, typer.Option(min=1, help="KB of a request, at most.")] = 4096,
    connections: Annotated[int, typer.Option(min=1, help="At a time.")] = 256,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that running requests have to end after SIGTERM.")
    ] = 30.0,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A name under which it is reached, beside those of this machine; may be repeated."),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(help="A web page that may use it from browsers, as https://example.org; may be repeated."),
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="A line on stderr for each request, without its texts.")] = False,
) -> None:
    """Serve a model over HTTP, by OpenAI's interface, and a page to chat with; SIGTERM ends it in good order."""
    _need_packages()
    from rlx_mlir.models.embedding import load_encoder
    from rlx_mlir.models.engine import Engine
    from rlx_mlir.serving.server import listen, run
    from rlx_mlir.serving.service import Service
    from rlx_mlir.serving.settings import Settings

    settings = Settings(
        name=_shown(loading.model) if name is None else name,
        embeddings="" if embeddings is None else _shown(embeddings),
        api_key=api_key if api_key is not None else os.environ.get(_KEY) or None,
        host=host,
        hosts=tuple(allowed_host or ()),
        origins=tuple(cors_origin or ()),
        body_bytes=body_limit * 1000,
        max_tokens=max_tokens,
        connections=connections,
        request_seconds=time_limit,
        grace_seconds=grace,
    )
    with listen(host, port) as listener, progress() as say:  # before minutes of compilation
        model = loading.load(say)
        model.tokenizer  # noqa: B018 - what is wrong with it is known now
        encoder = None if embeddings is None else load_encoder(embeddings, threads=loading.threads, progress=say)
        if prefix_memory is not None and model.prefixes is not None:
            model.prefixes.limit = prefix_memory * _MB
        bytes_of_caches = None if memory is None else memory * _MB
        with Engine(model, sequences=sequences, queue=queue, memory=bytes_of_caches) as engine:
            service = Service(settings, engine, encoder)
            _log(log)
            run(service, listener, lambda: _tell(settings, listener.getsockname()[1]))


def _need_packages() -> None:
    """Raises InputError where the extra isn't installed."""
    try:
        import starlette
        import uvicorn
    except ImportError as error:
        package = error.name or "starlette"
        raise InputError(
            f"'rlx serve' needs the package {package}, which isn't installed: pip install 'rlx-mlir[serve]'"
        ) from None
    del starlette, uvicorn


def _shown(model: str) -> str:
    """The name of a model in requests."""
    path = Path(model)
    return path.stem if path.suffix in (".gguf", ".rlx") else path.name or model


def _log(requests: bool) -> None:
    """Errors to stderr; with requests, lines of these."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("rlx_mlir.serving")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if requests else logging.WARNING)


def _tell(settings: Settings, port: int) -> None:
    """Says where it listens."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    typer.echo(f"rlx: serving {settings.name} at http://{host}:{port}", err=True)
    if not settings.is_local and settings.api_key is None:
        typer.echo(
            f"rlx: warning: whoever reaches {settings.host} can use it: set {_KEY}, or listen at 127.0.0.1", err=True
        )
