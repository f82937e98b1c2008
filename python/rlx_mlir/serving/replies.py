# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replies as OpenAI's interface has them: JSON objects of texts, of pieces of them, of vectors."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..models.choosing import TokenLogprob
from ..version import __version__
from .calls import Call

if TYPE_CHECKING:
    from ..models.engine import Request
    from ..models.tokenizer import Tokenizer

#: What stands for a probability of 0.
_NEVER = -9999.0


def encode(value: object) -> bytes:
    """A value as JSON in UTF-8, in one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def event(value: object) -> bytes:
    """A value as an event of a stream."""
    return b"data: " + encode(value) + b"\n\n"


#: The end of a stream.
DONE = b"data: [DONE]\n\n"


class Heads:
    """What all objects of one reply have in common.

    Args:
        kind: the begin of its id.
        model: the name that was asked for.
    """

    def __init__(self, kind: str, model: str) -> None:
        self._own = {"id": f"{kind}-{secrets.token_hex(16)}", "created": int(time.time()), "model": model}

    def reply(self, kind: str, choices: Sequence[object], **more: object) -> dict[str, object]:
        """One object; ``kind`` says what it is, such as chat.completion."""
        own = self._own
        fields = {"id": own["id"], "object": kind, "created": own["created"], "model": own["model"]}
        return {**fields, "system_fingerprint": f"rlx-{__version__}", "choices": list(choices), **more}


def usage(requests: Sequence[Request], count: int) -> dict[str, object]:
    """Numbers of tokens: each prompt, which has ``count`` texts, is counted once."""
    firsts = requests[::count]
    prompt = sum(len(request.prompt_ids) for request in firsts)
    completion = sum(len(request.ids) for request in requests)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(request.stats.reused_tokens for request in firsts)},
    }


def reason_of(request: Request, *, called: bool = False) -> str:
    """Why a text ended, in OpenAI's words."""
    if request.finish_reason == "stop":
        return "tool_calls" if called else "stop"
    return "length"  # max_tokens, the context, the time


def _finite(logprob: float) -> float:
    return max(logprob, _NEVER)


def _text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.token_bytes(token, special=True).decode(errors="replace")


def chat_logprobs(tokenizer: Tokenizer, found: Sequence[TokenLogprob], top: int) -> dict[str, object]:
    """How likely tokens were, each beside the ``top`` likeliest, for chats."""

    def entry(token: int, logprob: float) -> dict[str, object]:
        content = tokenizer.token_bytes(token, special=True)
        return {"token": content.decode(errors="replace"), "logprob": _finite(logprob), "bytes": list(content)}

    tokens = [
        {**entry(own.id, own.logprob), "top_logprobs": [entry(*other) for other in own.top[:top]]} for own in found
    ]
    return {"content": tokens, "refusal": None}


def completion_logprobs(
    tokenizer: Tokenizer, found: Sequence[TokenLogprob], top: int, offset: int
) -> tuple[dict[str, object], int]:
    """The same for completions; ``offset`` is where the first token's text begins. Gives where the next one's does."""
    texts = [_text(tokenizer, own.id) for own in found]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    tops = [{_text(tokenizer, token): _finite(logprob) for token, logprob in own.top[:top]} for own in found]
    logprobs = {
        "tokens": texts,
        "token_logprobs": [_finite(own.logprob) for own in found],
        "top_logprobs": tops if top else None,
        "text_offset": offsets,
    }
    return logprobs, offset


def message(text: str, calls: Sequence[Call], reasoning: str = "") -> dict[str, object]:
    """The message of a chat; with what was thought, where that is known."""
    own: dict[str, object] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
    if reasoning:
        own["reasoning_content"] = reasoning
    return {**own, "tool_calls": [call.to_dict() for call in calls]} if calls else own


def embedding(vector: np.ndarray, index: int, *, as_bytes: bool) -> dict[str, object]:
    """A vector, f32."""
    shown: object = vector.tolist()
    if as_bytes:
        shown = base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return {"object": "embedding", "index": index, "embedding": shown}


def model_entry(name: str, created: int) -> dict[str, object]:
    """What a list of models has of each."""
    return {"id": name, "object": "model", "created": created, "owned_by": "rlx-mlir"}


__all__ = [
    "DONE",
    "Heads",
    "chat_logprobs",
    "completion_logprobs",
    "embedding",
    "encode",
    "event",
    "message",
    "model_entry",
    "reason_of",
    "usage",
]
