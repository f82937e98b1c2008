# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors as OpenAI's interface has them: a status, and a JSON object that says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ChatTemplateError, ContextLengthError, InputError, QueueFullError, TokenizerError

_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """A request that isn't answered.

    Attributes:
        status: of HTTP.
        message: for people.
        code: for programs; None for none.
        param: the field that is wrong; None where it isn't one.
        headers: of the reply.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    def to_dict(self) -> dict[str, object]:
        """OpenAI's object."""
        kind = _KINDS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def stopping() -> Refusal:
    """What requests get that come after the server was told to stop."""
    return Refusal(503, "the server is shutting down", code="shutting_down", headers={"Retry-After": "30"})


def refusal_of(error: BaseException, hidden: Mapping[str, str]) -> Refusal | None:
    """What a request gets for an error that is its own fault, or for a full queue; None for every other one.

    Args:
        error: what was raised.
        hidden: texts that aren't told, such as paths, and what stands in their place.
    """
    if isinstance(error, Refusal):
        return error
    message = str(error)
    for text, instead in hidden.items():
        message = message.replace(text, instead)
    if isinstance(error, QueueFullError):
        return Refusal(429, message, code="queue_full", headers={"Retry-After": "1"})
    if isinstance(error, ContextLengthError):
        return Refusal(400, message, code="context_length_exceeded")
    if isinstance(error, InputError | ChatTemplateError | TokenizerError):
        return Refusal(400, message)
    return None


__all__ = ["Refusal", "refusal_of", "stopping"]
