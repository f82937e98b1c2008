# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Speculation: something fast proposes tokens ahead, the model processes several at once, and those that it would have
chosen itself are kept.

Tokens are chosen from the model's own logits, in order, by the generation's own chooser; a proposed token is accepted
where it is what was chosen, and the first one that isn't ends a round. So the text is the one without speculation,
token for token, for greedy choices and for drawn ones with the same seed, and drawn tokens have the exact distribution:
`extend` gives logits the bits that `decode` gives. A draft model, and the layer of a model that predicts further ahead,
draw with the random numbers that the chooser will take, from distributions that are alike: they mostly propose what
will be chosen.

This differs from the acceptance of Leviathan et al. ("Fast Inference from Transformers via Speculative Decoding", 2023)
in that the draft's probabilities don't matter, only its tokens do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..errors import InputError
from . import decoder
from .caches import cache_types
from .choosing import Chooser
from .core import Core
from .generation import Task
from .prediction import CACHES
from .session import Floats, Hidden, Session

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

DRAFTED = decoder.EXTENDED - 1
"""Tokens that are proposed at once, at most: they are processed beside the one before them."""

PREDICTED = 3
"""Tokens that the model's own layer for that proposes at once, at most: each is made of the one before."""

_LONGEST, _SHORTEST = 4, 2
"""Tokens that a lookup has to find again."""


class Drafter(Protocol):
    """Proposes what may follow."""

    def draft(self, ids: Sequence[int], chooser: Chooser, count: int) -> list[int]:
        """At most ``count`` tokens that may follow ``ids``, which ``chooser`` will choose about."""


class Lookup:
    """Proposes what followed the same tokens before: good where a text repeats parts of the prompt, or of itself.

    The longest run of the last tokens that came before is taken, and of several places the last one.
    """

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._seen = 0

    def draft(self, ids: Sequence[int], chooser: Chooser, count: int) -> list[int]:
        """See `Drafter`."""
        # A run that ends with the last token isn't noted yet, so what is found lies before it.
        for end in range(max(self._seen, 1), len(ids)):
            for size in range(_SHORTEST, min(_LONGEST, end) + 1):
                self._ends[tuple(ids[end - size : end])] = end
        self._seen = len(ids)
        for size in range(min(_LONGEST, len(ids)), _SHORTEST - 1, -1):
            found = self._ends.get(tuple(ids[len(ids) - size :]))
            if found is not None:
                return list(ids[found : found + count])
        return []


class DraftModel:
    """Proposes what a smaller model would choose."""

    def __init__(self, model: Core) -> None:
        self._session = Session(model)

    def draft(self, ids: Sequence[int], chooser: Chooser, count: int) -> list[int]:
        """See `Drafter`."""
        session, found, chooser = self._session, list[int](), chooser.clone()
        count = min(count, session.model.context - len(ids))
        if count <= 0:
            return []
        logits = session.choosable(session.moved_to(ids))
        for left in range(count, 0, -1):
            found.append(chooser.choose(logits))
            if left > 1:
                logits = session.choosable(session.decode(found[-1]))
        return found


class Prediction:
    """Proposes what the model's own layer for that predicts, see `prediction`; what that gives is predicted from, too.

    It knows of the tokens that were processed since it began to listen: where a prompt's first ones were taken over
    from another one, it proposes without them.
    """

    def __init__(self, model: Core) -> None:
        self._model = model
        kinds = cache_types(model.config, [model.config.layers]).values()
        shapes = [(1, model.context, kind.width) for kind in kinds]
        self._caches = {
            name: model.programs.decode.zeros(shape, kind.dtype)
            for name, shape, kind in zip(CACHES, shapes, kinds, strict=True)
        }
        self._heard = Hidden(0)
        self._begin = 0

    def listen(self, session: Session) -> None:
        """Begins with the tokens that the session processes from now on."""
        self._begin = len(session)
        self._heard = session.heard = Hidden(self._begin)

    def draft(self, ids: Sequence[int], chooser: Chooser, count: int) -> list[int]:
        """See `Drafter`."""
        found, chooser = list[int](), chooser.clone()
        first = self._heard.begin
        hidden = self._heard.taken()
        tokens, at = ids[first + 1 :], first - self._begin
        for _ in range(min(count, PREDICTED)):
            logits, hidden = self._predicted(tokens, hidden, at)
            if not np.isfinite(logits).all():
                break  # what the model itself computes says where that begins
            found.append(chooser.choose(logits[: self._model.texts]))
            tokens, at = found[-1:], at + len(tokens)
        return found

    def _predicted(self, tokens: Sequence[int], hidden: Floats, at: int) -> tuple[Floats, Floats]:
        """Logits [vocab] and the hidden state [1, hidden] of the last of some pairs, which stand from ``at`` on."""
        predict, size = self._model.programs.get("predict"), self._model.chunk
        found: Mapping[str, np.ndarray] = {}
        for start in range(0, len(tokens), size):
            part = tokens[start : start + size]
            inputs = {
                "tokens": np.array([part], np.int32),
                "hidden": np.ascontiguousarray(hidden[None, start : start + size]),
                "pos": np.array([at + start], np.int32),
                "rows": np.array([len(part) - 1], np.int32),
                **self._caches,
            }
            with self._model.turn:
                found = predict.run(inputs, donate=self._caches.keys())
        return found["logits"][0, 0], found["hidden_out"][0]


def check_vocabulary(own: Tokenizer, other: Tokenizer) -> None:
    """Raises InputError unless a draft model's tokenizer has the tokens of the model's own."""
    if own.vocab_size != other.vocab_size:
        raise InputError(
            f"'draft' must have the vocabulary of the model, {own.vocab_size} tokens, but has {other.vocab_size}"
        )
    if (own.kind, own.types, own.tokens) == (other.kind, other.types, other.tokens):
        return  # what bytes are made of
    for index in range(own.vocab_size):
        texts = [tokenizer.token_bytes(index, special=True) for tokenizer in (own, other)]
        if texts[0] != texts[1]:
            raise InputError(
                f"'draft' must have the vocabulary of the model, in which token {index} is {texts[0]!r}, but it is "
                f"{texts[1]!r}"
            )


class Speculation:
    """The rounds of one generation.

    Attributes:
        drafted: tokens that were proposed.
        accepted: of these, those that were chosen.
    """

    def __init__(self, session: Session, task: Task, drafter: Drafter) -> None:
        self.drafted = 0
        self.accepted = 0
        self._session, self._task, self._drafter = session, task, drafter
        self._ready: list[int] = []  # chosen already, the next one last

    def follow(self, token: int) -> int:
        """The token that is chosen after ``token``, the last one."""
        if not self._ready:
            self._ready = self._round(token)[::-1]
        return self._ready.pop()

    def _round(self, token: int) -> list[int]:
        """Tokens that are chosen after ``token``, one at least."""
        session, task = self._session, self._task
        drafted: list[int] = []
        most = min(DRAFTED, task.most - 1)
        if most > 0 and session.room >= decoder.EXTENDED:
            drafted = self._drafter.draft([*task.prompt, *task.ids], task.chooser, most)
        if not drafted:
            return [task.chooser.choose(session.choosable(session.decode(token)))]
        before = len(session)
        logits = session.extended([token, *drafted])
        chosen = self._chosen(logits, drafted)
        self.drafted += len(drafted)
        self.accepted += sum(own == proposed for own, proposed in zip(chosen, drafted, strict=False))
        session.truncate(before + len(chosen))  # the last one isn't processed yet
        return chosen

    def _chosen(self, logits: Floats, drafted: Sequence[int]) -> list[int]:
        """Tokens that are chosen by logits after the last one and after those that were proposed, until one is another.

        What raises for a token that isn't the first ends the round before it: the next one begins there.
        """
        task, chosen = self._task, list[int]()
        for row, proposed in zip(logits, [*drafted, None], strict=True):
            try:
                chosen.append(task.chooser.choose(self._session.choosable(row)))
            except Exception:
                if not chosen:
                    raise
                break
            if chosen[-1] != proposed or task.is_last(chosen[-1]):
                break
        return chosen


__all__ = [
    *("DRAFTED", "PREDICTED"),
    *("DraftModel", "Drafter", "Lookup", "Prediction", "Speculation", "check_vocabulary"),
]
