# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sampling: the order of its steps, ties, seeds and errors."""

from __future__ import annotations

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
        ({"seed": -1}, r"'seed' is a whole number from 0 to \d+, but got -1"),
    ],
)
def test_parameters_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampler(**options)
