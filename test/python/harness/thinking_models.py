# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vocabularies of tiny models that think: between tags, or in channels; and answers that they are made to give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tiny_models

from rlx_mlir.models.tokenizer import TokenType

MARKS = ("start", "channel", "constrain", "message", "end", "call", "return")
TAGS = ("<think>", "</think>")
_TEMPLATE = tiny_models.TEMPLATE.replace("assistant\n", "assistant\n{% if enable_thinking %}<think>\n{% endif %}")


def _with_tokens(found: dict[str, Any], last: Sequence[str], kind: TokenType) -> dict[str, Any]:
    """Metadata of a model with some tokens in the place of its last ones, which are unused."""
    tokens, types = list(found["tokenizer.ggml.tokens"]), found["tokenizer.ggml.token_type"].copy()
    tokens[-len(last) :], types[-len(last) :] = last, kind
    return {**found, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}


def channels(**changes: Any) -> dict[str, Any]:
    """Metadata of a tiny gpt-oss with the control tokens of channels."""
    marks = [f"<|{word}|>" for word in MARKS]
    found = _with_tokens(tiny_models.metadata("gpt-oss"), marks, TokenType.CONTROL)
    ends = found["tokenizer.ggml.tokens"].index("<|return|>")
    return {**found, "tokenizer.ggml.eos_token_id": ends, **changes}


def thoughts(kind: TokenType = TokenType.USER_DEFINED) -> dict[str, Any]:
    """Metadata of a tiny llama with both tags, whose template opens a thought where it is told to."""
    return {**_with_tokens(tiny_models.metadata(), TAGS, kind), "tokenizer.chat_template": _TEMPLATE}


def forced(ids: Sequence[int], prompt: int) -> Any:
    """A logits processor that leaves but one token, behind a prompt of so many."""

    def only(before: Sequence[int], logits: np.ndarray) -> np.ndarray:
        found = np.full_like(logits, -np.inf)
        found[ids[len(before) - prompt]] = 0
        return found

    return only
