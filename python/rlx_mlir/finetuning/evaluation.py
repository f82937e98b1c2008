# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model makes of a text: perplexity, and the divergence from another model, token by token.

A text that is longer than the context is read in windows: each begins `stride` tokens after the one before, and of each
those tokens count that no window before it had. So every token but the first is predicted once, and, but for those of
the first window, after `context - stride` tokens at least. Where the vocabulary asks for it, each window begins with
the token that begins texts, which isn't counted.

Published perplexities are often those of llama.cpp's tool, which cuts a text into parts as long as the context that
have nothing in common, leaves out what remains, and counts the tokens behind the middle of each: `halves`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlx_mlir import checks
from rlx_mlir.errors import InputError
from rlx_mlir.models.model import Model

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """What was found of a text.

    Attributes:
        ids: the tokens that were predicted: all but the first, or all behind the one that begins texts; with `halves`,
            those behind the middles.
        losses: of each, -log of its probability.
        divergences: at each, the Kullback-Leibler divergence of the model from the other one, whose logits count as the
            right ones; None where there is no other.
        agreements: of each, whether both find the same token likeliest; None likewise.
    """

    ids: tuple[int, ...]
    losses: Numbers
    divergences: Numbers | None = None
    agreements: npt.NDArray[np.bool_] | None = None

    @property
    def loss(self) -> float:
        """The mean of all losses."""
        return float(self.losses.mean())

    @property
    def perplexity(self) -> float:
        """exp of the mean loss."""
        return math.exp(self.loss)

    @property
    def loss_error(self) -> float:
        """The standard error of the mean loss, as if tokens were independent."""
        return float(self.losses.std(ddof=1) / math.sqrt(len(self.losses))) if len(self.losses) > 1 else math.nan

    def to_dict(self) -> dict[str, object]:
        """The figures, as JSON can write them."""
        found: dict[str, object] = {"tokens": len(self.ids), "loss": self.loss, "perplexity": self.perplexity}
        if len(self.ids) > 1:
            found["loss_error"] = self.loss_error
        if self.divergences is not None and self.agreements is not None:
            at = self.divergences
            found["divergence"] = {
                "mean": float(at.mean()),
                "median": float(np.median(at)),
                "p99": float(np.percentile(at, 99)),
                "max": float(at.max()),
                "same_likeliest": float(self.agreements.mean()),
            }
        return found


@dataclass(frozen=True)
class _Window:
    """Tokens that are computed together, and the first of those that count."""

    ids: tuple[int, ...]
    first: int


def evaluate(
    model: Model,
    text: str,
    *,
    context: int | None = None,
    stride: int | None = None,
    halves: bool = False,
    against: Model | None = None,
    progress: Callable[[str], None] | None = None,
) -> Evaluation:
    """The losses of a text's tokens, and how far the model is from another one.

    Args:
        model: as it was loaded.
        text: in which no special tokens are recognised.
        context: tokens of a window; as many as the model's context has, which is the most, by default.
        stride: see above; half of a window by default.
        halves: windows are those of llama.cpp's tool, see above; there is no stride then.
        against: a model with the same vocabulary, or the same model loaded in another way.
        progress: is told what is done.

    Raises InputError where the text has too few tokens, the stride isn't from 1 to the context, or is said beside
    `halves`, or the vocabularies differ; ExecutionError where logits aren't finite.
    """
    checks.text("text", text)
    room = model.context if against is None else min(model.context, against.context)
    if context is not None:
        room = min(room, checks.whole("context", context, 1))
    step = max(1, room // 2) if stride is None else checks.whole("stride", stride, 1)
    if against is not None and against.tokenizer.tokens != model.tokenizer.tokens:
        raise InputError("two models are compared token by token, but their vocabularies differ")
    ids = model.tokenizer.tokenize(text)
    begins = model.tokenizer.add_bos and model.tokenizer.bos_id is not None
    if len(ids) < 2:
        raise InputError(f"a text is evaluated from two tokens on, but has {len(ids)}")
    if halves:
        if stride is not None:
            raise InputError(f"'halves' has windows with nothing in common, but 'stride' is {stride}")
        if room < 4 or len(ids) < room:
            raise InputError(
                f"with 'halves', a text must fill a window of 4 positions or more, but has {len(ids)} tokens, and the "
                f"window {room}: load the model with a smaller 'context'"
            )
    elif room < 2 + begins or step > room - 1 - begins:
        raise InputError(
            f"'stride' must be from 1 to {room - 1 - begins}, the context's {room} positions but for those before the "
            f"tokens that count, but is {step}"
        )
    counted: list[int] = []
    losses, divergences, agreements = [], [], []
    windows = _halves(ids, room, prefix=begins) if halves else _windows(ids, room, step, prefix=begins)
    for number, window in enumerate(windows):
        if progress is not None:
            progress(f"window {number + 1}")
        targets = np.array(window.ids[window.first :])
        counted += window.ids[window.first :]
        own = _log_probabilities(model, window)
        losses.append(-own[np.arange(len(targets)), targets])
        if against is not None:
            other = _log_probabilities(against, window)
            divergences.append((np.exp(other) * (other - own)).sum(axis=1))
            agreements.append(own.argmax(axis=1) == other.argmax(axis=1))
    return Evaluation(
        tuple(counted),
        np.concatenate(losses),
        np.concatenate(divergences) if divergences else None,
        np.concatenate(agreements) if agreements else None,
    )


def _windows(ids: Sequence[int], room: int, stride: int, *, prefix: bool) -> Iterator[_Window]:
    """Windows in which every token but the first counts once.

    Args:
        ids: of the text.
        room: tokens of a window at most.
        stride: how many are new in each window but the first.
        prefix: the text's first token begins every window.
    """
    head = tuple(ids[:1]) if prefix else ()
    begin, done = len(head), 1
    while done < len(ids):
        end = min(len(ids), begin + room - len(head))
        inside = (*head, *ids[begin:end])
        yield _Window(inside, len(inside) - (end - done))
        done, begin = end, begin + stride


def _halves(ids: Sequence[int], room: int, *, prefix: bool) -> Iterator[_Window]:
    """Windows with nothing in common, of which the tokens behind the middle count.

    Args:
        ids, room: as for `_windows`.
        prefix: the text's first token stands in place of every window's.
    """
    for begin in range(0, len(ids) - room + 1, room):
        head = ids[0] if prefix else ids[begin]
        yield _Window((head, *ids[begin + 1 : begin + room]), room // 2 + 1)


def _log_probabilities(model: Model, window: _Window) -> Numbers:
    """Of all tokens with a text, at the places of those that count, f64 [places, vocabulary]."""
    logits = model.logits(window.ids)[window.first - 1 : -1, : model.texts].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    found: Numbers = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return found


__all__ = ["Evaluation", "evaluate"]
