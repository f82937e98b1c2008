# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How each token of one generation is chosen: what is added to logits, what is forbidden, and who draws.

A `Sampler` sees logits alone. A `Chooser` also knows what came before, and changes logits before the sampler draws.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import overload

import numpy as np
import numpy.typing as npt

from .. import checks
from ..errors import InputError
from .sampling import Sampler, checked_logits, largest_ids
from .structured import Guide

_Logits = npt.NDArray[np.float32]
Processor = Callable[[Sequence[int], _Logits], "_Logits | None"]
"""Of token ids so far, the prompt's first, and logits [texts]: other logits, or None where it changed these."""

_NO_BIAS: Mapping[int, float] = MappingProxyType({})
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class TokenLogprob:
    """How likely a chosen token was, by the model's own logits: before bias, penalties, processors and temperature.

    Attributes:
        id: the token.
        logprob: the natural logarithm of its probability.
        top: ids of the likeliest tokens and their logprobs, the likeliest first, of equal ones those of smaller index.
    """

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class Chooser:
    """Chooses the tokens of one generation. Logits are changed in this order, in f32, before the sampler draws:

    1. ``logit_bias`` is added;
    2. ``repetition_penalty`` p: of each token in the prompt or generated, l becomes l / p where l > 0, else l * p
       (Keskar et al., "CTRL: A Conditional Transformer Language Model for Controllable Generation", 2019);
    3. of each generated token, ``presence_penalty`` and ``frequency_penalty`` times how often it came are subtracted
       (as OpenAI's interface defines them); 2 and 3 are computed in f64 and rounded once;
    4. ``processors``, one after another;
    5. what the ``guide`` doesn't allow becomes -inf.

    A choice depends on the tokens so far, the logits, and the sampler's stream, of which each takes one number (none
    where the sampler is greedy). So tokens that something else proposed are checked by choosing from the model's
    logits, in order, until a choice differs. A call that raises chooses nothing, and takes no number.

    Attributes:
        sampler: draws; a clone of a chooser has a clone of it.
        guide: what says which tokens may come next, or None.
        logprobs: of each token chosen, in order; empty where they weren't asked for.
        is_plain: whether the sampler alone decides, so that it may be asked in the chooser's place, as where a GPU
            chooses ahead.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        logit_bias: Mapping[int, float] = _NO_BIAS,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        processors: Sequence[Processor] = (),
        logprobs: int = 0,
        guide: Guide | None = None,
        prompt: Sequence[int] = (),
    ) -> None:
        """Starts behind a prompt.

        Args:
            sampler: draws from the logits that are left.
            logit_bias: numbers that are added to the logits of some ids; -inf forbids a token.
            repetition_penalty: above 0; 1 is none, more makes repetition less likely.
            presence_penalty, frequency_penalty: 0 is none, less than 0 makes repetition likelier.
            processors: `logits_processors` of `Model.generate`. Each is called with the ids so far, the prompt's first,
                a view that can't be written and that grows, and with logits f32 [texts] of its own. It changes these
                and returns None, or returns others. What it raises is its own.
            logprobs: how many of the likeliest tokens `logprobs` lists beside each chosen one; 0 records nothing.
            guide: knows which tokens may come next, see `structured`; it is advanced by each choice.
            prompt: ids that came before.

        Raises InputError for numbers out of range, and for what isn't a function, an id, or a guide.
        """
        if not isinstance(sampler, Sampler):
            raise InputError(f"'sampler' is a Sampler, but got {checks.shown(sampler)}")
        if guide is not None and not isinstance(guide, Guide):
            raise InputError(f"'guide' is a Guide or None, but got {checks.shown(guide)}")
        self.sampler = sampler
        self.guide = guide
        self.logprobs: list[TokenLogprob] = []
        self._top = checks.whole("logprobs", logprobs)
        self._bias = _bias(logit_bias)
        self._repetition = _in_f32("repetition_penalty", repetition_penalty)
        if not self._repetition > 0:
            raise InputError(f"'repetition_penalty' must be above 0, but is {repetition_penalty}")
        self._presence = _in_f32("presence_penalty", presence_penalty)
        self._frequency = _in_f32("frequency_penalty", frequency_penalty)
        self._processors = _functions(processors)
        ids = _ids("prompt", prompt)
        self._penalises = self._repetition != 1 or self._presence != 0 or self._frequency != 0
        self._tally = _Tally(ids if self._repetition != 1 else [])
        self._history = ids if self._processors else []
        self.is_plain = not (
            self._top or len(self._bias[0]) or self._processors or self._penalises or guide is not None
        )

    @property
    def is_finished(self) -> bool:
        """Whether the guide's text is complete and nothing can follow but the model's end."""
        return self.guide is not None and self.guide.is_finished

    def check_ids(self, texts: int) -> None:
        """Raises InputError where a biased token isn't one of so many that have logits."""
        checks.whole("texts", texts)
        ids = self._bias[0]
        if len(ids) and ids.max() >= texts:
            raise InputError(f"a token id of 'logit_bias' must be in [0, {texts}), but {int(ids.max())} is one")
        if len(self._tally.ids) and self._tally.ids.max() >= texts:
            raise InputError(f"a token id of 'prompt' must be in [0, {texts}), but {int(self._tally.ids.max())} is one")

    def choose(self, logits: npt.NDArray[np.float32]) -> int:
        """The next token, by logits f32 ``[texts]``, which aren't written to; it is recorded as what comes next.

        Raises InputError where a logit is NaN or +inf, where no token is left to choose, and where a processor gives
        what aren't logits.
        """
        values = checked_logits(logits, None)
        token = int(self.sampler(values if self.is_plain else self._changed(values)))
        self._record(token, logits)
        return token

    def clone(self) -> Chooser:
        """Another chooser in the same state: both make the same choices from here on. Processors are shared."""
        twin = copy.copy(self)
        twin.sampler = self.sampler.clone()
        twin.guide = self.guide.clone() if self.guide is not None else None
        twin.logprobs = list(self.logprobs)
        twin._history = list(self._history)
        twin._tally = self._tally.clone()
        return twin

    def _changed(self, values: _Logits) -> _Logits:
        """Checked logits, which are this call's own, by the five steps."""
        self.check_ids(len(values))
        ids, bias = self._bias
        with np.errstate(over="ignore"):  # a logit that f32 can't hold is an error below
            if len(ids):
                values[ids] += bias
                _check_choice(values, "'logit_bias'")
            if self._penalises and len(self._tally.ids):
                self._penalise(values)
                _check_choice(values, "the penalties")
        for place, processor in enumerate(self._processors):
            values = self._processed(values, place, processor)
        if self.guide is not None:
            np.copyto(values, np.float32(-np.inf), where=~self.guide.mask(len(values)))
            _check_choice(values, "'response_format'")
        return values

    def _penalise(self, values: _Logits) -> None:
        ids, counts = self._tally.ids, self._tally.counts
        old = values[ids].astype(np.float64)
        new = np.where(old > 0, old / self._repetition, old * self._repetition)
        new -= self._presence * (counts > 0) + self._frequency * counts
        values[ids] = new

    def _processed(self, values: _Logits, place: int, processor: Processor) -> _Logits:
        """What one processor makes of logits, in an array that belongs to nobody else."""
        shape = values.shape
        found = processor(_ReadOnly(self._history), values)
        found = values if found is None else found
        name = f"'logits_processors' {place} ('{getattr(processor, '__name__', type(processor).__name__)}')"
        if not isinstance(found, np.ndarray) or found.dtype != np.float32 or found.shape != shape:
            got = f"{found.dtype} {list(found.shape)}" if isinstance(found, np.ndarray) else checks.shown(found)
            raise InputError(f"{name} must give float32 {list(shape)}, or None, but gave {got}")
        bad = np.isnan(found)
        if bad.any():
            raise InputError(
                f"{name} must not give NaN, but {int(bad.sum())} of {bad.size} are, the first at {int(bad.argmax())}"
            )
        _check_choice(found, name)
        return found if found is values else np.array(found)

    def _record(self, token: int, logits: npt.NDArray[np.float32]) -> None:
        if self.guide is not None:
            self.guide.advance(token)
        if self._top:
            self.logprobs.append(token_logprob(logits, token, self._top))
        if self._processors:
            self._history.append(token)
        if self._penalises:
            self._tally.add(token)


def token_logprob(logits: npt.NDArray[np.float32], token: int, count: int) -> TokenLogprob:
    """How likely a token is by logits ``[texts]``, and the ``count`` likeliest ones; the softmax is in f64.

    Raises InputError where a logit is NaN or +inf, or all are -inf, and where the token has none.
    """
    values = checked_logits(logits, None)
    checks.whole("token", token, most=len(values) - 1)
    checks.whole("count", count, 1)
    exact = values.astype(np.float64)
    exact -= exact.max()  # before the rest, which large logits would swallow
    exact -= math.log(np.exp(exact).sum())
    top = tuple((int(index), float(exact[index])) for index in largest_ids(values, count))
    return TokenLogprob(token, float(exact[token]), top)


class _ReadOnly(Sequence[int]):
    """A list that can be read and not written; it shows what is appended later."""

    __slots__ = ("_ids",)

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    def __repr__(self) -> str:
        return repr(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return tuple(self._ids[index]) if isinstance(index, slice) else self._ids[index]


class _Tally:
    """Tokens that came, each once, and how often each was generated; to add one takes constant time."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._places = {token: place for place, token in enumerate(dict.fromkeys(prompt))}
        size = len(self._places)
        self._all_ids = np.array([*self._places, *[0] * 64], np.int64)
        self._all_counts = np.zeros(size + 64, np.int64)

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        return self._all_ids[: len(self._places)]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        return self._all_counts[: len(self._places)]

    def add(self, token: int) -> None:
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._all_ids):
            self._all_ids = np.concatenate([self._all_ids, np.zeros(place, np.int64)])
            self._all_counts = np.concatenate([self._all_counts, np.zeros(place, np.int64)])
        self._all_ids[place] = token
        self._all_counts[place] += 1

    def clone(self) -> _Tally:
        twin = copy.copy(self)
        twin._places = dict(self._places)
        twin._all_ids = self._all_ids.copy()
        twin._all_counts = self._all_counts.copy()
        return twin


def _check_choice(values: _Logits, who: str) -> None:
    """Raises InputError unless there is a token to choose."""
    largest = values.max()
    if not np.isfinite(largest):
        rule = "must leave a token to choose" if largest < 0 else "must leave finite logits, or -inf"
        raise InputError(f"{who} {rule}, but the largest logit is {largest} at {int(values.argmax())}")


def _in_f32(name: str, value: object) -> float:
    number = checks.real(name, value)
    if not abs(number) <= _LARGEST:
        raise InputError(f"'{name}' must be finite, in f32, but is {value}")
    return number


def _bias(given: Mapping[int, float]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Ids and what is added to their logits."""
    if not isinstance(given, Mapping):
        raise InputError(f"'logit_bias' is a mapping of token ids to numbers, but got {checks.shown(given)}")
    ids = [checks.whole("an id of logit_bias", index) for index in given]
    values = [checks.real(f"logit_bias[{index}]", value) for index, value in zip(ids, given.values(), strict=True)]
    for index, value in zip(ids, values, strict=True):
        if not (abs(value) <= _LARGEST or value == -math.inf):
            raise InputError(f"'logit_bias[{index}]' must be finite, in f32, or -inf, but is {value}")
    return np.array(ids, np.int64), np.array(values, np.float32)


def _functions(given: Sequence[Processor]) -> tuple[Processor, ...]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise InputError(f"'logits_processors' expects several functions, but got {checks.shown(given)}")
    return tuple(checks.callback("logits_processors", each, "ids", "logits") for each in given)


def _ids(name: str, given: Sequence[int]) -> list[int]:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence | np.ndarray) or getattr(given, "ndim", 1) != 1:
        raise InputError(f"'{name}' is token ids, but got {checks.shown(given)}")
    return [checks.whole(f"an id of {name}", index) for index in given]


__all__ = ["Chooser", "Processor", "TokenLogprob", "token_logprob"]
