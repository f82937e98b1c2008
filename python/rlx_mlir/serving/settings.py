# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a server allows, and whom it answers. Needs no package beside Python's own."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from .. import checks
from ..errors import InputError

_MOST_SECONDS = 86400.0


@dataclass(frozen=True)
class Settings:
    """Limits of a server, and its names. Raises InputError for values out of range.

    Attributes:
        name: of the model in requests.
        embeddings: of the encoder in requests; "" where there is none.
        api_key: what requests have to bring; None for nothing.
        host: the address that it listens at.
        hosts: names, in the header `Host`, under which it may be reached beside those of the machine itself. Where it
            listens at a loopback address, others are refused: pages of the web could reach it by a name of theirs.
        origins: pages that may use it from a browser (CORS); none by default.
        body_bytes: of a request, at most.
        max_tokens: that a request may ask for; None for as many as the context has positions.
        choices: texts of one request, at most: prompts times `n`.
        inputs: texts of one request for embeddings, at most.
        connections: at a time.
        header_seconds: for the head of a request.
        body_seconds: for the body of a request.
        request_seconds: from there to the end of the answer, waiting included; what is there then ends with "length".
        grace_seconds: that running requests have to finish where the server is told to stop.
    """

    name: str
    embeddings: str = ""
    api_key: str | None = None
    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    body_bytes: int = 4 << 20
    max_tokens: int | None = None
    choices: int = 16
    inputs: int = 2048
    connections: int = 256
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    request_seconds: float = 600.0
    grace_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("name", "embeddings", "host"):
            checks.text(name, getattr(self, name))
        if not self.name or self.name == self.embeddings:
            raise InputError(f"a model and an encoder need names that differ, but are '{self.name}' both")
        for name in ("body_bytes", "choices", "inputs", "connections"):
            checks.whole(name, getattr(self, name), 1)
        if self.max_tokens is not None:
            checks.whole("max_tokens", self.max_tokens, 1)
        for name in ("header_seconds", "body_seconds", "request_seconds", "grace_seconds"):
            if not 0 <= checks.real(name, getattr(self, name)) <= _MOST_SECONDS:
                raise InputError(f"'{name}' must be from 0 to {_MOST_SECONDS:.0f}, but is {getattr(self, name)}")
        key = self.api_key
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise InputError("an API key must be printable ASCII without blanks, and not be empty")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def serves_host(self, header: str) -> bool:
        """Whether a header `Host`, a name and perhaps a port, is of this server."""
        name = host_name(header)
        return (
            not self.is_local or name in ("localhost", self.host.lower(), *map(str.lower, self.hosts)) or _loops(name)
        )


def host_name(header: str) -> str:
    """The name in a header `Host`, in lower case, without its port."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _loops(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


__all__ = ["Settings", "host_name"]
