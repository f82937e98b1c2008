# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts of a request as replies: a whole object, or pieces of a stream. Both have the same texts."""

from __future__ import annotations

from collections.abc import Sequence

from ..models.channels import Aside, Kind
from ..models.choosing import TokenLogprob
from . import replies
from .calls import Call, CallReader, Form, call_of
from .driver import Piece, Work
from .requests import Chat, Completion
from .service import Service


class Answer:
    """What chats and completions share."""

    #: OpenAI's names of the object, and of a piece of it.
    kind, piece_kind, short = "", "", ""

    def __init__(self, service: Service, asked: Chat | Completion, work: Work) -> None:
        self._service = service
        self._asked = asked
        self._work = work
        self._heads = replies.Heads(self.short, asked.model)
        self._shown = [0] * len(work.requests)  # tokens whose probabilities were given out

    def whole(self) -> dict[str, object]:
        """The object, where all texts have ended."""
        choices = [self._choice(index) for index in range(len(self._work.requests))]
        return self._heads.reply(self.kind, choices, usage=self._usage())

    def begin(self) -> list[dict[str, object]]:
        """The objects at the begin of a stream."""
        return []

    def follow(self, piece: Piece) -> list[dict[str, object]]:
        """The objects of a stream that a piece of text makes."""
        raise NotImplementedError

    def end(self) -> list[dict[str, object]]:
        """The objects at the end of a stream."""
        return [self._heads.reply(self.piece_kind, [], usage=self._usage())] if self._asked.usage else []

    def _choice(self, index: int) -> dict[str, object]:
        """One text, as the whole object has it."""
        raise NotImplementedError

    def _usage(self) -> dict[str, object]:
        return replies.usage(self._work.requests, self._asked.count)

    def _chunk(self, choice: dict[str, object]) -> dict[str, object]:
        return self._heads.reply(self.piece_kind, [choice], **({"usage": None} if self._asked.usage else {}))

    def _logprobs(self, index: int, count: int) -> dict[str, object] | None:
        """Of the tokens of a text up to a number that weren't shown yet, in the form of the object; None for none."""
        top = self._asked.shows_logprobs
        found = self._work.requests[index].logprobs[self._shown[index] : count]
        self._shown[index] += len(found)
        return None if top is None or not found else self._show(index, found, top)

    def _show(self, index: int, found: Sequence[TokenLogprob], top: int) -> dict[str, object]:
        raise NotImplementedError


class ChatAnswer(Answer):
    """Of /v1/chat/completions."""

    kind, piece_kind, short = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def __init__(self, service: Service, asked: Chat, work: Work) -> None:
        super().__init__(service, asked, work)
        count = len(work.requests)
        self._has_channels = service.form is Form.CHANNELS
        reads = asked.tools is not None and not self._has_channels
        self._readers = [CallReader(service.form) for _ in range(count)] if reads else []
        self._called = [0] * count  # calls that were given out
        self._beside = [0] * count  # asides that were given out

    def _choice(self, index: int) -> dict[str, object]:
        request = self._work.requests[index]
        parts: list[str | Call] = [request.text]
        if self._readers:
            parts = [*self._readers[index].push(request.text), *self._readers[index].flush()]
        parts += self._calls(request.task.asides)
        calls = [part for part in parts if isinstance(part, Call)]
        text = "".join(part for part in parts if isinstance(part, str))
        return {
            "index": index,
            "message": replies.message(text, calls, request.reasoning),
            "logprobs": self._logprobs(index, len(request.ids)),
            "finish_reason": replies.reason_of(request, called=bool(calls)),
        }

    def begin(self) -> list[dict[str, object]]:
        delta: dict[str, object] = {"role": "assistant", "content": "", "refusal": None}
        return [self._piece(index, delta) for index in range(len(self._work.requests))]

    def follow(self, piece: Piece) -> list[dict[str, object]]:
        index, request = piece.index, self._work.requests[piece.index]
        parts: list[str | Call] = [piece.text] if piece.text else []
        reader = self._readers[index] if self._readers else None
        if reader is not None:
            parts = reader.push(piece.text)
            if piece.is_end:
                parts = [*parts, *reader.flush()]
        # What was thought came before what is said, and calls come behind that.
        asides = request.task.asides[self._beside[index] :]
        self._beside[index] += len(asides)
        thoughts = "".join(own.text for own in asides if own.kind is Kind.THOUGHT)
        found = [self._piece(index, {"reasoning_content": thoughts})] if thoughts else []
        for part in [*parts, *self._calls(asides)]:
            if isinstance(part, str):
                delta: dict[str, object] = {"content": part}
            else:
                delta = {"tool_calls": [{"index": self._called[index], **part.to_dict()}]}
                self._called[index] += 1
            found.append(self._piece(index, delta, self._logprobs(index, piece.tokens)))
        if piece.is_end:
            logprobs = self._logprobs(index, len(request.ids))
            reason = replies.reason_of(request, called=self._called[index] > 0)
            found.append(self._piece(index, {}, logprobs, reason))
        return found

    @staticmethod
    def _calls(asides: Sequence[Aside]) -> list[str | Call]:
        """Calls of channels; one that isn't complete is text."""
        return [call_of(own.name, own.text) or own.text for own in asides if own.kind is Kind.CALL]

    def _piece(
        self, index: int, delta: dict[str, object], logprobs: dict[str, object] | None = None, reason: str | None = None
    ) -> dict[str, object]:
        return self._chunk({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason})

    def _show(self, index: int, found: Sequence[TokenLogprob], top: int) -> dict[str, object]:
        return replies.chat_logprobs(self._service.model.tokenizer, found, top)


class CompletionAnswer(Answer):
    """Of /v1/completions."""

    kind, piece_kind, short = "text_completion", "text_completion", "cmpl"

    def __init__(self, service: Service, asked: Completion, work: Work) -> None:
        super().__init__(service, asked, work)
        self._offsets = [0] * len(work.requests)

    def _choice(self, index: int) -> dict[str, object]:
        request = self._work.requests[index]
        reason = replies.reason_of(request)
        return self._piece(index, request.text, self._logprobs(index, len(request.ids)), reason)

    def follow(self, piece: Piece) -> list[dict[str, object]]:
        request = self._work.requests[piece.index]
        reason = replies.reason_of(request) if piece.is_end else None
        logprobs = self._logprobs(piece.index, piece.tokens)
        return [self._chunk(self._piece(piece.index, piece.text, logprobs, reason))]

    def _piece(
        self, index: int, text: str, logprobs: dict[str, object] | None, reason: str | None
    ) -> dict[str, object]:
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}

    def _show(self, index: int, found: Sequence[TokenLogprob], top: int) -> dict[str, object]:
        tokenizer = self._service.model.tokenizer
        logprobs, self._offsets[index] = replies.completion_logprobs(tokenizer, found, top, self._offsets[index])
        return logprobs


__all__ = ["Answer", "ChatAnswer", "CompletionAnswer"]
