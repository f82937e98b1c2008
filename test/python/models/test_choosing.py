# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choosing tokens: bias, penalties, processors, logprobs and guides, against references that are written plainly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rlx_mlir.errors import InputError
from rlx_mlir.models.choosing import Chooser, TokenLogprob, token_logprob
from rlx_mlir.models.sampling import Sampler

TEXTS = 37
F32_MAX = float(np.finfo(np.float32).max)


def logits_of(seed: int, texts: int = TEXTS) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(texts) * 4).astype(np.float32)


class Alternating:
    """A guide that allows even and odd ids in turn, so many tokens in all; then 0 alone."""

    def __init__(self, length: int, place: int = 0) -> None:
        self.length, self.place = length, place

    @property
    def is_finished(self) -> bool:
        return self.place >= self.length

    def mask(self, size: int) -> np.ndarray:
        return np.arange(size) == 0 if self.is_finished else np.arange(size) % 2 == self.place % 2

    def advance(self, token: int) -> None:
        self.place += 1

    def clone(self) -> Alternating:
        return Alternating(self.length, self.place)


class Seen:
    """A sampler that takes the largest logit, and keeps what it was shown."""

    def __init__(self, **options: Any) -> None:
        self.logits: list[np.ndarray] = []
        self.chooser = Chooser(Sampler(greedy=True), **options)
        self.chooser.sampler = self  # type: ignore[assignment]

    def __call__(self, logits: np.ndarray) -> int:
        self.logits.append(logits.copy())
        return int(np.argmax(logits))

    def clone(self) -> Seen:
        return self


def expected(
    logits: np.ndarray,
    prompt: Sequence[int],
    generated: Sequence[int],
    bias: dict[int, float],
    repetition: float,
    presence: float,
    frequency: float,
) -> np.ndarray:
    """Token by token, from the whole history."""
    values = logits.copy()
    for token, by in bias.items():
        values[token] += np.float32(by)
    for token in range(len(values)):
        value = float(values[token])
        if token in prompt or token in generated:
            value = value / repetition if value > 0 else value * repetition
        count = list(generated).count(token)
        value -= presence * (count > 0) + frequency * count
        values[token] = np.float32(value)
    return values


@pytest.mark.parametrize("seed", range(12))
def test_bias_and_penalties_over_a_random_history(seed: int) -> None:
    random = np.random.default_rng(seed)
    prompt = random.integers(0, TEXTS, random.integers(0, 20)).tolist()
    bias = {int(i): float(v) for i, v in zip(random.permutation(TEXTS)[:5], random.standard_normal(5) * 3, strict=True)}
    repetition = [1.0, 1.3, 0.7, 2.0][seed % 4]
    presence, frequency = float(random.uniform(-1, 2)), float(random.uniform(-1, 2))
    seen = Seen(
        logit_bias=bias,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        prompt=prompt,
    )
    generated: list[int] = []
    for step in range(150):  # more than the tables of counts have places for at first
        logits = logits_of(1000 * seed + step)
        want = expected(logits, prompt, generated, bias, repetition, presence, frequency)
        before = logits.copy()
        logits.flags.writeable = False
        token = seen.chooser.choose(logits)
        np.testing.assert_array_equal(seen.logits[-1], want)
        np.testing.assert_array_equal(logits, before)
        assert token == int(np.argmax(want))
        generated.append(token)
    assert len(set(generated)) > 5


def test_tables_of_counts_grow() -> None:
    """Every one of 300 tokens, forced by its bias in turn."""
    seen = Seen(repetition_penalty=1.5, frequency_penalty=0.25, prompt=[299, 299, 1])
    generated: list[int] = []
    for token in [*range(300), *range(0, 300, 3)]:
        logits = np.zeros(300, np.float32)
        logits[token] = 50
        assert seen.chooser.choose(logits) == token
        np.testing.assert_array_equal(seen.logits[-1], expected(logits, [299, 1], generated, {}, 1.5, 0, 0.25))
        generated.append(token)


def test_each_penalty_by_hand() -> None:
    """Token 1 is in the prompt, 2 was generated twice."""
    logits = np.array([1, 2, -3, 4], np.float32)
    forced = np.array([0, 0, 9, 0], np.float32)

    def after(**options: Any) -> list[float]:
        seen = Seen(prompt=[1, 1], **options)
        seen.chooser.choose(forced)
        seen.chooser.choose(forced)
        seen.chooser.choose(logits)
        found: list[float] = seen.logits[-1].tolist()
        return found

    assert after(repetition_penalty=2.0) == [1, 1, -6, 4]
    assert after(presence_penalty=0.5) == [1, 2, -3.5, 4]
    assert after(frequency_penalty=0.5) == [1, 2, -4, 4]
    assert after(logit_bias={0: -math.inf, 3: 1.5}) == [-math.inf, 2, -3, 5.5]
    assert after(logit_bias={1: 1}, repetition_penalty=2.0, presence_penalty=1.0) == [1, 1.5, -7, 4]


def test_masked_logits_stay_masked() -> None:
    logits = np.array([-np.inf, 1, -np.inf], np.float32)
    seen = Seen(repetition_penalty=F32_MAX, presence_penalty=-F32_MAX, frequency_penalty=-F32_MAX, prompt=[0, 2])
    assert seen.chooser.choose(logits) == 1
    assert seen.logits[-1].tolist() == [-np.inf, 1, -np.inf]


def test_processors_run_in_order_on_their_own_logits() -> None:
    shown: list[tuple[list[int], list[float]]] = []

    def in_place(ids: Sequence[int], logits: np.ndarray) -> None:
        shown.append((list(ids), logits.tolist()))
        logits[0] = 7

    constant = np.array([0, 5, 8], np.float32)
    constant.flags.writeable = False

    def other(ids: Sequence[int], logits: np.ndarray) -> np.ndarray:
        shown.append((list(ids), logits.tolist()))
        return constant

    chooser = Chooser(Sampler(greedy=True), processors=[in_place, other, in_place], prompt=[2, 1], logit_bias={1: 1})
    logits = np.array([1, 2, 3], np.float32)
    assert chooser.choose(logits) == 2
    assert chooser.choose(logits) == 2
    assert shown[:3] == [([2, 1], [1, 3, 3]), ([2, 1], [7, 3, 3]), ([2, 1], [0, 5, 8])]
    assert shown[3:] == [([2, 1, 2], values) for _, values in shown[:3]]
    assert constant.tolist() == [0, 5, 8]
    assert logits.tolist() == [1, 2, 3]


def test_ids_that_processors_get_are_read_only_and_a_sequence() -> None:
    kept: list[Sequence[int]] = []
    chooser = Chooser(Sampler(greedy=True), processors=[lambda ids, logits: kept.append(ids)], prompt=[4, 5, 6])
    chooser.choose(logits_of(0))
    (ids,) = kept
    assert (len(ids), ids[0], ids[-2], ids[1:3], 5 in ids) == (4, 4, 6, (5, 6), True)
    assert repr(ids).startswith("[4, 5, 6, ")
    assert np.asarray(ids)[:3].tolist() == [4, 5, 6]
    with pytest.raises(TypeError):
        ids[0] = 1  # type: ignore[index]


class Named:
    def __init__(self, give: Callable[[np.ndarray], Any]) -> None:
        self.give = give

    def __call__(self, ids: Sequence[int], logits: np.ndarray) -> Any:
        return self.give(logits)


def reshaped(logits: np.ndarray) -> None:
    logits.shape = (1, 3)


def with_nan(logits: np.ndarray) -> None:
    logits[1:] = np.nan


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda logits: logits[:2], r"must give float32 \[3\], or None, but gave float32 \[2\]"),
        (lambda logits: logits.astype(float), r"must give float32 \[3\], or None, but gave float64 \[3\]"),
        (lambda logits: logits[None], r".*but gave float32 \[1, 3\]"),
        (lambda logits: logits.tolist(), r".*but gave \[1\.0, 2\.0, 3\.0\]"),
        pytest.param(
            reshaped,
            r".*but gave float32 \[1, 3\]",
            marks=pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning"),
        ),
        (with_nan, "must not give NaN, but 2 of 3 are, the first at 1"),
        (
            lambda logits: logits + np.float32(np.inf),
            "must leave finite logits, or -inf, but the largest logit is inf at 0",
        ),
        (
            lambda logits: logits - np.float32(np.inf),
            "must leave a token to choose, but the largest logit is -inf at 0",
        ),
    ],
)
def test_errors_name_the_processor(give: Callable[[np.ndarray], Any], message: str) -> None:
    chooser = Chooser(Sampler(seed=0), processors=[lambda ids, logits: None, Named(give)])
    with pytest.raises(InputError, match=rf"^'logits_processors' 1 \('Named'\) {message}"):
        chooser.choose(np.array([1, 2, 3], np.float32))


def test_a_call_that_raises_chooses_nothing() -> None:
    def failing(ids: Sequence[int], logits: np.ndarray) -> None:
        if fails:
            raise KeyError("theirs")

    made = [
        Chooser(Sampler(seed=3), processors=[failing], guide=Alternating(99), frequency_penalty=2.0, logprobs=1)
        for _ in range(2)
    ]
    fails = True
    with pytest.raises(KeyError, match="theirs"):
        made[0].choose(logits_of(0))
    fails = False
    with pytest.raises(InputError, match="'logits' must not be NaN, but 1 of 37 are, the first at 4"):
        made[0].choose(np.where(np.arange(TEXTS) == 4, np.float32(np.nan), logits_of(0)))
    assert made[0].logprobs == []
    for step in range(30):
        assert made[0].choose(logits_of(step)) == made[1].choose(logits_of(step))
    assert made[0].logprobs == made[1].logprobs


def test_logprobs_are_those_of_the_models_own_logits() -> None:
    chooser = Chooser(
        Sampler(greedy=True),
        logprobs=3,
        logit_bias={5: 100},
        processors=[lambda ids, logits: None],
        guide=Alternating(9),
    )
    logits = logits_of(3)
    logits[[7, 30]] = logits.max()
    logits[11] = -np.inf
    chooser.choose(logits)
    chooser.choose(logits)
    exact = logits.astype(np.float64)
    exact = exact - np.log(np.exp(exact).sum())
    order = np.argsort(-exact, kind="stable")[:3].tolist()
    assert order[:2] == sorted(order[:2])
    assert [entry.id for entry in chooser.logprobs] == [30, 5]
    for entry in chooser.logprobs:
        assert entry.logprob == pytest.approx(exact[entry.id], abs=1e-12)
        assert [index for index, _ in entry.top] == order
        np.testing.assert_allclose([value for _, value in entry.top], exact[order], atol=1e-12)


def test_logprobs_of_large_and_masked_logits() -> None:
    logits = np.array([-np.inf, 3e38, 3e38, -3e38], np.float32)
    assert token_logprob(logits, 0, 9) == TokenLogprob(
        0, -math.inf, ((1, -math.log(2)), (2, -math.log(2)), (3, float(np.float32(-3e38)) - float(np.float32(3e38))))
    )
    assert token_logprob(np.zeros(1, np.float32), 0, 1) == TokenLogprob(0, 0.0, ((0, 0.0),))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"logit_bias": {3: 2.0}},
        {"repetition_penalty": 1.5, "prompt": [1, 2, 3]},
        {"frequency_penalty": 0.5, "presence_penalty": 0.5},
        {"processors": [lambda ids, logits: logits + np.float32(len(ids) % 3) * (logits > 0)]},
        {"guide": Alternating(1000)},
        {"logprobs": 2},
    ],
)
def test_clones_go_on_alike_and_apart(options: dict[str, Any]) -> None:
    """A clone makes the choices of the original, whichever goes first, and neither sees those of the other."""
    start = options.get("guide")
    first = Chooser(
        Sampler(temperature=2, top_k=0, top_p=1, seed=5), **options | ({"guide": start.clone()} if start else {})
    )
    for step in range(20):
        first.choose(logits_of(step))
    second = first.clone()
    assert second.logprobs == first.logprobs
    assert second.logprobs is not first.logprobs
    ahead = [first.choose(logits_of(step)) for step in range(20, 60)]
    third = second.clone()
    assert [second.choose(logits_of(step)) for step in range(20, 60)] == ahead
    assert [third.choose(logits_of(step)) for step in range(20, 60)] == ahead
    other = [third.choose(logits_of(step)) for step in range(60, 90)]
    assert [second.choose(logits_of(step)) for step in range(60, 90)] == other
    assert len(set(ahead)) > 5
    assert second.logprobs == third.logprobs


def test_proposed_tokens_are_checked_by_choosing() -> None:
    """Whoever proposed tokens: choices from the true logits, in order, are those that would be made without."""
    options: dict[str, Any] = {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "prompt": [3, 4]}
    plain, checked = (Chooser(Sampler(seed=9), **options) for _ in range(2))
    want = [plain.choose(logits_of(step)) for step in range(60)]
    found: list[int] = []
    while len(found) < 60:
        proposed = [*want[len(found) : len(found) + 3], 0]  # the last one is wrong nearly always
        for token in proposed[: 60 - len(found)]:
            found.append(checked.choose(logits_of(len(found))))
            if found[-1] != token:
                break
    assert found == want


@pytest.mark.parametrize(
    ("options", "plain"),
    [
        ({}, True),
        ({"prompt": [1, 2]}, True),
        ({"repetition_penalty": 1}, True),
        ({"logit_bias": {1: 0.0}}, False),
        ({"repetition_penalty": 1.1}, False),
        ({"presence_penalty": 0.1}, False),
        ({"frequency_penalty": -0.1}, False),
        ({"processors": [lambda ids, logits: None]}, False),
        ({"logprobs": 1}, False),
        ({"guide": Alternating(0)}, False),
    ],
)
def test_is_plain_where_the_sampler_alone_decides(options: dict[str, Any], plain: bool) -> None:
    chooser = Chooser(Sampler(seed=1), **options)
    assert chooser.is_plain == plain == chooser.clone().is_plain
    if plain:
        sampler = Sampler(seed=1)
        assert [chooser.choose(logits_of(i)) for i in range(9)] == [sampler(logits_of(i)) for i in range(9)]


def test_a_guide_masks_and_is_advanced() -> None:
    chooser = Chooser(Sampler(temperature=3, seed=0), guide=Alternating(20), processors=[lambda ids, logits: None])
    chosen = []
    while not chooser.is_finished:
        chosen.append(chooser.choose(logits_of(len(chosen))))
    assert [token % 2 for token in chosen] == [0, 1] * 10
    assert chooser.choose(logits_of(0)) == 0
    assert not Chooser(Sampler()).is_finished
    forbidden = Chooser(Sampler(), guide=Alternating(0), logit_bias={0: -math.inf})
    with pytest.raises(
        InputError, match="'response_format' must leave a token to choose, but the largest logit is -inf"
    ):
        forbidden.choose(logits_of(0))


def test_frequencies_follow_the_changed_logits() -> None:
    """Of 0.1 0.2 0.3 0.4, the last forbidden and the first four times as likely: 0.4 0.2 0.3 of 0.9."""
    logits = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    chooser = Chooser(Sampler(temperature=1, top_k=0, top_p=1, seed=2), logit_bias={0: math.log(4), 3: -math.inf})
    drawn = np.bincount([chooser.choose(logits) for _ in range(5000)], minlength=4) / 5000
    np.testing.assert_allclose(drawn, np.array([0.4, 0.2, 0.3, 0]) / 0.9, atol=0.03)


@pytest.mark.parametrize("options", [{"logit_bias": {0: 1.0}}, {"repetition_penalty": 2.0, "prompt": [0]}])
def test_one_token_alone(options: dict[str, Any]) -> None:
    assert Chooser(Sampler(seed=0), **options).choose(np.zeros(1, np.float32)) == 0


def test_ids_without_logits_are_named() -> None:
    chooser = Chooser(Sampler(), logit_bias={3: 1.0, 40: 2.0})
    chooser.check_ids(41)
    with pytest.raises(InputError, match=r"a token id of 'logit_bias' must be in \[0, 37\), but 40 is one"):
        chooser.choose(logits_of(0))
    chooser = Chooser(Sampler(), repetition_penalty=1.1, prompt=[1, 99])
    with pytest.raises(InputError, match=r"a token id of 'prompt' must be in \[0, 37\), but 99 is one"):
        chooser.check_ids(TEXTS)


def test_overflow_is_named() -> None:
    logits = np.array([3e38, 0], np.float32)
    with pytest.raises(
        InputError, match="'logit_bias' must leave finite logits, or -inf, but the largest logit is inf at 0"
    ):
        Chooser(Sampler(), logit_bias={0: 3e38}).choose(logits)
    with pytest.raises(
        InputError, match="the penalties must leave finite logits, or -inf, but the largest logit is inf"
    ):
        Chooser(Sampler(), repetition_penalty=0.1, prompt=[0]).choose(logits)
    with pytest.raises(
        InputError, match="'logit_bias' must leave a token to choose, but the largest logit is -inf at 0"
    ):
        Chooser(Sampler(), logit_bias={0: -math.inf, 1: -math.inf}).choose(logits)


@pytest.mark.parametrize("options", [{}, {"logprobs": 1}])
def test_shapes_of_logits(options: dict[str, Any]) -> None:
    chooser = Chooser(Sampler(), **options)
    for shape in ((2, 3), (0,), ()):
        with pytest.raises(InputError, match=r"'logits' must be \[vocab\] and not empty, but has the shape"):
            chooser.choose(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logit_bias": [1]}, r"'logit_bias' is a mapping of token ids to numbers, but got \[1\]"),
        ({"logit_bias": {"a": 1}}, "'an id of logit_bias' is a whole number of at least 0, but got 'a'"),
        ({"logit_bias": {-1: 1}}, "'an id of logit_bias' is a whole number of at least 0, but got -1"),
        ({"logit_bias": {True: 1}}, "'an id of logit_bias' is a whole number of at least 0, but got True"),
        ({"logit_bias": {7: None}}, r"'logit_bias\[7\]' is a number, but got None"),
        ({"logit_bias": {7: math.nan}}, r"'logit_bias\[7\]' must be finite, in f32, or -inf, but is nan"),
        ({"logit_bias": {7: math.inf}}, r"'logit_bias\[7\]' must be finite, in f32, or -inf, but is inf"),
        ({"logit_bias": {7: 1e39}}, r"'logit_bias\[7\]' must be finite, in f32, or -inf, but is 1e\+39"),
        ({"repetition_penalty": 0}, "'repetition_penalty' must be above 0, but is 0"),
        ({"repetition_penalty": -1.5}, r"'repetition_penalty' must be above 0, but is -1\.5"),
        ({"repetition_penalty": math.nan}, "'repetition_penalty' must be finite, in f32, but is nan"),
        ({"presence_penalty": math.inf}, "'presence_penalty' must be finite, in f32, but is inf"),
        ({"frequency_penalty": "much"}, "'frequency_penalty' is a number, but got 'much'"),
        ({"processors": print}, "'logits_processors' expects several functions, but got <built-in"),
        ({"processors": [3]}, r"'logits_processors' is a function of \(ids, logits\), but got 3"),
        (
            {"processors": [lambda ids: None]},
            r"'logits_processors' is a function of \(ids, logits\), but got <function",
        ),
        ({"logprobs": -1}, "'logprobs' is a whole number of at least 0, but got -1"),
        ({"logprobs": True}, "'logprobs' is a whole number of at least 0, but got True"),
        ({"guide": {"type": "json_object"}}, "'guide' is a Guide or None, but got {'type'"),
        ({"prompt": "text"}, "'prompt' is token ids, but got 'text'"),
        ({"prompt": [1.5], "processors": [lambda ids, logits: None]}, r"'an id of prompt' is a whole number.*got 1\.5"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Chooser(Sampler(), **options)


def test_the_sampler_is_checked() -> None:
    with pytest.raises(InputError, match="'sampler' is a Sampler, but got None"):
        Chooser(None)  # type: ignore[arg-type]
