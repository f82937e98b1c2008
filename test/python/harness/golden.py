# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recorded logits of a real model, and how far other logits are from them.

A file holds, for each position of a text of ``tokens``: ``ids``, the 512 likeliest tokens by an exact f32 model on the
decoded weights; ``exact`` and ``llamacpp``, logits of these by that model and by llama.cpp; and the log-sum-exp of each
over the whole vocabulary.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rlx_mlir import Model

#: Of prose, code and chats, some 2300 tokens: our own documents and code, and what SmolLM2 went on to write.
TEXTS = Path(__file__).parents[1] / "data" / "texts.json"


def divergence(exact: np.ndarray, exact_lse: np.ndarray, other: np.ndarray, other_lse: np.ndarray) -> np.ndarray:
    """KL(exact | other) at each position, over the listed tokens and one bucket for all others."""
    log_p, log_q = exact - exact_lse[:, None], other - other_lse[:, None]
    p, q = np.exp(log_p), np.exp(log_q)
    rest_p, rest_q = (np.clip(1 - x.sum(axis=-1), 1e-12, 1) for x in (p, q))
    return np.asarray((p * (log_p - log_q)).sum(axis=-1) + rest_p * np.log(rest_p / rest_q))


def kl(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The divergence at each position, over the whole vocabulary: of logits f32 [positions, vocab], to some 1e-7."""
    weights, lse = _weights(expected)
    _, other = _weights(found)
    mean = (weights * (expected - found)).sum(axis=-1, dtype=np.float64) / weights.sum(axis=-1, dtype=np.float64)
    return np.asarray(mean - (lse - other))


def distance_on_texts(exact: Model, other: Model) -> tuple[float, float]:
    """(mean divergence, share of equal likeliest tokens) of a model from the exact one, over all of `TEXTS`."""
    divergences, same = [], []
    for text in json.loads(TEXTS.read_text(encoding="utf-8")):
        ids = exact.tokenize(text)
        wanted, found = exact.logits(ids), other.logits(ids)
        divergences.append(kl(wanted, found))
        same.append(wanted.argmax(axis=-1) == found.argmax(axis=-1))
    return float(np.concatenate(divergences).mean()), float(np.concatenate(same).mean())


def _weights(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What probabilities are proportional to, and the log-sum-exp in f64, at each position."""
    top = logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits - top)
    return weights, top[:, 0] + np.log(weights.sum(axis=-1, dtype=np.float64))


@dataclass(frozen=True)
class Distance:
    """How far logits are from the exact ones.

    Attributes:
        kl_mean, kl_max: divergence over the positions.
        rival_kl_mean: the mean divergence of llama.cpp.
        agreement: share of positions with the same likeliest token.
        rival_agreement: that of llama.cpp.
        clear_misses: positions with another likeliest token, although the exact one leads by more than ``margin``.
        max_error: largest difference of a recorded logit.
    """

    kl_mean: float
    kl_max: float
    rival_kl_mean: float
    agreement: float
    rival_agreement: float
    clear_misses: list[int]
    max_error: float


def distance(path: Path, logits: np.ndarray, *, margin: float = 1e-3) -> Distance:
    """Compares logits [positions, vocab] with a recording."""
    gold = np.load(path)
    wide = logits.astype(np.float64)
    _, lse = _weights(wide)
    own = np.take_along_axis(wide, gold["ids"].astype(np.int64), -1)
    exact, rival = gold["exact"].astype(np.float64), gold["llamacpp"].astype(np.float64)
    kl = divergence(exact, gold["lse_exact"], own, lse)
    best = gold["ids"][:, 0]
    missed = wide.argmax(axis=-1) != best
    rival_best = np.take_along_axis(gold["ids"], rival.argmax(axis=-1)[:, None], -1)[:, 0]
    return Distance(
        kl_mean=float(kl.mean()),
        kl_max=float(kl.max()),
        rival_kl_mean=float(divergence(exact, gold["lse_exact"], rival, gold["lse_llamacpp"]).mean()),
        agreement=float(1 - missed.mean()),
        rival_agreement=float((rival_best == best).mean()),
        clear_misses=np.flatnonzero(missed & (exact[:, 0] - exact[:, 1] > margin)).tolist(),
        max_error=float(np.abs(own - exact).max()),
    )
