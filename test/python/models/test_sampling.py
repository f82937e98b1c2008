# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sampling: the order of its steps, ties, seeds and errors."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx_mlir.errors import InputError
from rlx_mlir.models.sampling import Sampler

LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], np.float32))


def test_greedy_takes_the_first_of_equals() -> None:
    logits = np.array([0, 3, 1, 3], np.float32)
    assert Sampler(greedy=True)(logits) == 1
    assert Sampler(temperature=0)(logits) == 1
    assert Sampler(top_k=1, seed=0)(logits) == 1
    assert Sampler(greedy=True).probabilities(logits)[0].tolist() == [1]


def test_probabilities_are_the_softmax() -> None:
    ids, probabilities = Sampler(temperature=1, top_k=0, top_p=1).probabilities(LOGITS)
    assert ids.tolist() == [1, 3, 4, 0, 2]
    np.testing.assert_allclose(probabilities, [0.4, 0.25, 0.2, 0.1, 0.05], rtol=1e-6)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-30])
def test_tiny_temperatures(temperature: float) -> None:
    """The largest alone is left, and nothing is warned of."""
    _, probabilities = Sampler(temperature=temperature, top_k=0, top_p=1).probabilities(LOGITS)
    np.testing.assert_array_equal(probabilities, np.eye(len(LOGITS))[0])


def test_temperature_comes_first() -> None:
    _, probabilities = Sampler(temperature=0.5, top_k=0, top_p=1).probabilities(LOGITS)
    squares = np.array([0.4, 0.25, 0.2, 0.1, 0.05]) ** 2
    np.testing.assert_allclose(probabilities, squares / squares.sum(), rtol=1e-6)


def test_top_p_applies_to_what_top_k_leaves() -> None:
    """Of 0.4 0.25 0.2, renormalised 0.47 0.29 0.24, the first two reach 0.7; of all five, three would be needed."""
    ids, probabilities = Sampler(temperature=1, top_k=3, top_p=0.7).probabilities(LOGITS)
    assert ids.tolist() == [1, 3]
    np.testing.assert_allclose(probabilities, [0.4 / 0.65, 0.25 / 0.65], rtol=1e-6)
    assert len(Sampler(temperature=1, top_k=0, top_p=0.7).probabilities(LOGITS)[0]) == 3


def test_top_p_keeps_at_least_one() -> None:
    assert Sampler(top_p=1e-9).probabilities(LOGITS)[0].tolist() == [1]


def reference(
    logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[list[int], list[float]]:
    """Ids and probabilities, step by step."""
    ids = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[: top_k or None]
    weights = [math.exp((float(logits[i]) - float(logits[ids[0]])) / temperature) for i in ids]
    likely = [weight / sum(weights) for weight in weights]
    count = next((n for n in range(1, len(ids)) if sum(likely[:n]) >= top_p), len(ids)) if top_p < 1 else len(ids)
    kept = [(i, p) for i, p in zip(ids[:count], likely[:count], strict=True) if p >= min_p * likely[0]]
    return [i for i, _ in kept], [p / sum(q for _, q in kept) for _, p in kept]


@pytest.mark.parametrize("top_k", [0, 1, 7, 63, 64, 65])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("min_p", [0.0, 0.01, 0.2, 1.0])
def test_all_steps_against_a_reference(top_k: int, top_p: float, min_p: float) -> None:
    for seed, size in enumerate((1, 2, 63, 64, 65)):
        logits = (np.random.default_rng(seed).standard_normal(size) * 3).round(1).astype(np.float32)
        sampler = Sampler(0.9, top_k, top_p, min_p=min_p)
        ids, probabilities = sampler.probabilities(logits)
        want_ids, want = reference(logits, 0.9, top_k, top_p, min_p)
        assert ids.tolist() == want_ids
        np.testing.assert_allclose(probabilities, want, rtol=1e-12)


def test_min_p_is_relative_to_the_largest() -> None:
    """Of 0.4 0.25 0.2 0.1 0.05, those of at least 0.45 of 0.4 are three; more than 0.5 leaves two."""
    options: dict[str, Any] = {"temperature": 1, "top_k": 0, "top_p": 1}
    assert Sampler(**options, min_p=0.45).probabilities(LOGITS)[0].tolist() == [1, 3, 4]
    ids, probabilities = Sampler(**options, min_p=0.55).probabilities(LOGITS)
    assert ids.tolist() == [1, 3]
    np.testing.assert_allclose(probabilities, [0.4 / 0.65, 0.25 / 0.65], rtol=1e-6)
    assert Sampler(**options, min_p=1).probabilities(np.array([1, 3, 3, 2], np.float32))[0].tolist() == [1, 2]


def test_min_p_and_top_p_look_at_the_same_probabilities() -> None:
    """Renormalised after min_p, 0.47 0.29 0.24 would reach 0.7 with two; of 0.4 0.25 0.2 it takes three."""
    ids, _ = Sampler(temperature=1, top_k=0, top_p=0.7, min_p=0.45).probabilities(LOGITS)
    assert ids.tolist() == [1, 3, 4]
    ids, _ = Sampler(temperature=1, top_k=0, top_p=0.6, min_p=0.45).probabilities(LOGITS)
    assert ids.tolist() == [1, 3]


def test_gpus_have_no_min_p() -> None:
    assert Sampler(top_k=40).needs_at_most(64)
    assert not Sampler(top_k=40, min_p=0.1).needs_at_most(64)
    assert Sampler(greedy=True, min_p=0.1).needs_at_most(64)
    assert not Sampler(top_k=0).needs_at_most(64)


@pytest.mark.parametrize("options", [{}, {"greedy": True}, {"min_p": 0.1, "top_k": 0}])
def test_clones_draw_alike_and_apart(options: dict[str, Any]) -> None:
    logits = np.random.default_rng(0).standard_normal((60, 100)).astype(np.float32)
    first = Sampler(seed=3, **options)
    for row in logits[:20]:
        first(row)
    second = first.clone()
    assert repr(second) == repr(first)
    ahead = [first(row) for row in logits[20:]]
    assert [second(row) for row in logits[20:]] == ahead
    np.testing.assert_array_equal(first.draws(4), second.draws(4))


def test_top_k_prefers_smaller_indices_among_equals() -> None:
    logits = np.array([1, 2, 1, 1, 1], np.float32)
    assert Sampler(top_k=3, top_p=1).probabilities(logits)[0].tolist() == [1, 0, 2]
    assert Sampler(top_k=99, top_p=1).probabilities(logits)[0].tolist() == [1, 0, 2, 3, 4]


def test_masked_tokens_are_never_chosen() -> None:
    logits = np.array([-np.inf, 1, -np.inf, 0], np.float32)
    for top_k in (0, 1, 2, 3, 4):
        ids, _ = Sampler(temperature=5, top_k=top_k, top_p=1).probabilities(logits)
        assert set(ids.tolist()) <= {1, 3}
    assert {Sampler(temperature=9, seed=s)(logits) for s in range(40)} == {1, 3}


def test_a_seed_decides_everything() -> None:
    logits = np.random.default_rng(0).standard_normal((50, 1000)).astype(np.float32)
    first, second = Sampler(seed=7)(logits), Sampler(seed=7)(logits)
    assert isinstance(first, np.ndarray)
    np.testing.assert_array_equal(first, second)
    one_by_one = Sampler(seed=7)
    assert [one_by_one(row) for row in logits] == first.tolist()
    assert Sampler(seed=8)(logits).tolist() != first.tolist()
    assert Sampler()(logits).tolist() != Sampler()(logits).tolist()


def test_frequencies_follow_the_probabilities() -> None:
    sampler = Sampler(temperature=1, top_k=0, top_p=1, seed=1)
    drawn = np.bincount([sampler(LOGITS) for _ in range(5000)], minlength=5) / 5000
    np.testing.assert_allclose(drawn, np.exp(LOGITS), atol=0.03)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_element_types(dtype: type) -> None:
    assert Sampler(greedy=True)(LOGITS.astype(dtype)) == 1


def test_bad_logits_are_named() -> None:
    with pytest.raises(InputError, match="'logits' must not be NaN, but 2 of 4 are, the first at 1"):
        Sampler()(np.array([0, np.nan, 1, np.nan], np.float32))
    with pytest.raises(InputError, match="'logits' of row 1 must not be NaN, but 1 of 2 are, the first at 0"):
        Sampler(greedy=True)(np.array([[0, 1], [np.nan, 1]], np.float32))
    with pytest.raises(InputError, match="the largest of 'logits' must be finite, but is inf at 1"):
        Sampler()(np.array([0, np.inf], np.float32))
    with pytest.raises(InputError, match="the largest of 'logits' must be finite, but is -inf"):
        Sampler()(np.array([-np.inf, -np.inf], np.float32))
    with pytest.raises(InputError, match=r"must be \[vocab\] or \[batch, vocab\], but has the shape \[1, 1, 2\]"):
        Sampler()(np.zeros((1, 1, 2), np.float32))
    with pytest.raises(InputError, match=r"'logits' is an array, but got \[1, 2\]"):
        Sampler()([1, 2])  # type: ignore[call-overload]
    with pytest.raises(InputError, match=r"'logits' is an array of numbers, but got array\(\['a'\]"):
        Sampler()(np.array(["a"]))
    with pytest.raises(InputError, match="not empty"):
        Sampler()(np.zeros(0, np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "'temperature' must be finite and at least 0, but is -1"),
        ({"temperature": float("nan")}, "'temperature' must be finite"),
        ({"top_k": -1}, "'top_k' is a whole number of at least 0, but got -1"),
        ({"top_k": 1.5}, r"'top_k' is a whole number of at least 0, but got 1\.5"),
        ({"top_k": None}, "'top_k' is a whole number of at least 0, but got None"),
        ({"temperature": "warm"}, "'temperature' is a number, but got 'warm'"),
        ({"seed": 1.5}, r"'seed' is a whole number from 0 to \d+, but got 1\.5"),
        ({"greedy": "yes"}, "'greedy' is True or False, but got 'yes'"),
        ({"top_p": 0}, r"'top_p' must be in \(0, 1\], but is 0"),
        ({"top_p": 1.1}, r"'top_p' must be in \(0, 1\], but is 1.1"),
        ({"min_p": -0.1}, r"'min_p' must be in \[0, 1\], but is -0.1"),
        ({"min_p": 1.5}, r"'min_p' must be in \[0, 1\], but is 1.5"),
        ({"min_p": float("nan")}, r"'min_p' must be in \[0, 1\], but is nan"),
        ({"min_p": "x"}, "'min_p' is a number, but got 'x'"),
        ({"seed": -1}, r"'seed' is a whole number from 0 to \d+, but got -1"),
    ],
)
def test_parameters_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampler(**options)
