# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens that are proposed ahead change how fast a text comes, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models

from rlx_mlir.errors import ExecutionError, InputError
from rlx_mlir.models.choosing import Chooser
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.sampling import Sampler
from rlx_mlir.models.speculation import DRAFTED, Lookup, Speculation

CONTEXT = 64


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Model:
    return load_model(tiny_llama, context=CONTEXT, chunk=16)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Another model with the same vocabulary: it seldom proposes what is chosen."""
    path = tiny_models.write(tmp_path_factory.mktemp("other") / "other.gguf", seed=5)
    return load_model(path, context=CONTEXT, chunk=16)


class Random:
    """Proposes tokens of which some are right, by a text that is known."""

    def __init__(self, text: Sequence[int], seed: int) -> None:
        self.text, self.random = list(text), np.random.default_rng(seed)
        self.rounds = 0

    def draft(self, ids: Sequence[int], chooser: Chooser, count: int) -> list[int]:
        self.rounds += 1
        right = self.text[len(ids) : len(ids) + count]
        wrong = self.random.random(len(right)) < 0.3
        return [int(self.random.integers(3, 260)) if bad else token for token, bad in zip(right, wrong, strict=True)]


def ids_of(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 260, count).tolist()


OPTIONS: list[dict[str, Any]] = [
    {"greedy": True, "ignore_eos": True},
    {"temperature": 1.5, "seed": 3, "ignore_eos": True},
    {"temperature": 2.0, "seed": 4, "top_k": 0, "top_p": 1.0, "min_p": 0.01},
    {"temperature": 1.2, "seed": 5, "repetition_penalty": 1.4, "frequency_penalty": 0.3, "logprobs": 3},
    {"temperature": 1.5, "seed": 6, "stop": ["e", "at"], "ignore_eos": True},
    {"temperature": 1.5, "seed": 7, "logits_processors": [lambda ids, x: x - (np.arange(len(x)) == ids[-1])]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
@pytest.mark.parametrize("length", [1, 9, 40, 57, 64])
@pytest.mark.quick(6)
def test_texts_are_the_same(model: Model, other: Model, options: dict[str, Any], length: int) -> None:
    prompt = ids_of(length, length)
    for most in (1, 2, 7, 8, 9, 50):
        plain = model.generate(prompt, max_tokens=most, **options)
        text = plain.read()
        for draft in ("lookup", model, other):
            found = model.generate(prompt, max_tokens=most, draft=draft, **options)
            assert found.read() == text
            assert found.ids == plain.ids
            assert found.finish_reason == plain.finish_reason
            assert found.logprobs == plain.logprobs
            assert found.stats.accepted_tokens <= found.stats.drafted_tokens


@pytest.mark.parametrize("seed", range(5))
def test_any_proposal_leaves_the_text(model: Model, seed: int) -> None:
    prompt = ids_of(seed, 11)
    options = {"temperature": 1.7, "seed": seed, "max_tokens": 45, "ignore_eos": True}
    plain = model.generate(prompt, **options)
    plain.read()
    task = model.task(prompt, **options)
    session, drafter = model.session(), Random([*prompt, *plain.ids], seed)
    session.feed(prompt)
    ahead = Speculation(session, task, drafter)
    task.take(task.chooser.choose(session.logits))
    while task.reason is None:
        task.take(ahead.follow(task.ids[-1]))
    assert task.ids == plain.ids
    assert 0 < ahead.accepted < ahead.drafted
    assert drafter.rounds < 35
    # What is left of the session is what single steps leave.
    single = model.session()
    single.feed(prompt)
    for token in task.ids[: len(session) - len(prompt)]:
        single.step(token)
    assert session.tokens == single.tokens
    for name, rows in session.rows(len(session)).items():
        np.testing.assert_array_equal(rows.view(np.uint8), single.rows(len(session))[name].view(np.uint8))


def test_a_model_proposes_its_own_choices(model: Model) -> None:
    """Draws are shared: a model that drafts for itself is always right, whatever the temperature."""
    found = model.generate(ids_of(1, 5), draft=model, temperature=3.0, seed=2, max_tokens=40, ignore_eos=True)
    found.read()
    stats = found.stats
    assert stats.drafted_tokens == stats.accepted_tokens > 30


def test_drawn_tokens_have_the_exact_distribution(model: Model, other: Model) -> None:
    """The second token of many generations, against its exact probabilities."""
    prompt = ids_of(2, 6)
    session = model.session()
    session.feed(prompt)
    sampler = Sampler(temperature=1.0, top_k=4, top_p=1.0, seed=0)
    exact = np.zeros(300)
    first_ids, first = sampler.probabilities(session.logits)
    for token, chance in zip(first_ids, first, strict=True):
        fork = session.fork()
        ids, probabilities = sampler.probabilities(fork.step(int(token)))
        exact[ids] += chance * probabilities
    counts = np.zeros(300)
    runs = 1500
    for seed in range(runs):
        generation = model.generate(
            prompt, draft=other, temperature=1.0, top_k=4, top_p=1.0, seed=seed, max_tokens=3, ignore_eos=True
        )
        generation.read()
        counts[generation.ids[1]] += 1
    assert not counts[exact == 0].any()
    seen = exact > 0
    chi = ((counts[seen] - runs * exact[seen]) ** 2 / (runs * exact[seen])).sum()
    assert chi < 2.5 * seen.sum() + 20


def test_lookup_finds_what_followed() -> None:
    chooser = Chooser(Sampler(greedy=True))
    lookup = Lookup()
    ids = [1, 2, 3, 4, 5, 1, 2]
    assert lookup.draft(ids, chooser, 7) == [3, 4, 5, 1, 2]
    assert lookup.draft(ids, chooser, 2) == [3, 4]
    assert lookup.draft([*ids, 3, 9], chooser, 7) == []
    # The longest run that came before, and of several places the last one.
    assert Lookup().draft([1, 2, 7, 0, 1, 2, 8, 0, 1, 2], chooser, 1) == [8]
    assert Lookup().draft([5, 1, 2, 7, 6, 1, 2, 8, 5, 1, 2], chooser, 1) == [7]
    assert Lookup().draft([4], chooser, 3) == []
    assert Lookup().draft([], chooser, 3) == []


def test_lookup_as_text_grows_equals_a_new_one() -> None:
    random, grown, chooser = np.random.default_rng(0), Lookup(), Chooser(Sampler(greedy=True))
    ids: list[int] = []
    for _ in range(200):
        ids += random.integers(0, 3, int(random.integers(1, 4))).tolist()
        assert grown.draft(ids, chooser, DRAFTED) == Lookup().draft(ids, chooser, DRAFTED)


def test_what_drafts_need_is_compiled_at_the_call(tiny_llama: Path) -> None:
    """Else it would be among the seconds of decoding."""
    own, smaller = (load_model(tiny_llama, context=CONTEXT, chunk=16) for _ in range(2))
    own.generate("a")
    assert "extend" not in own.programs._made
    own.generate("a", draft=smaller)
    assert {"extend"} <= own.programs._made.keys() & smaller.programs._made.keys()


def test_an_error_comes_where_it_comes_without_proposals(model: Model) -> None:
    def fails(ids: Sequence[int], logits: np.ndarray) -> None:
        if len(ids) == 14:
            raise KeyError("fourteen")

    options: dict[str, Any] = {"greedy": True, "ignore_eos": True, "logits_processors": [fails]}
    texts = []
    for draft in (None, "lookup", model):
        generation = model.generate(ids_of(3, 6), draft=draft, max_tokens=30, **options)
        with pytest.raises(KeyError, match="fourteen"):
            generation.read()
        texts.append((generation.text, generation.ids))
    assert texts[0] == texts[1] == texts[2]
    assert len(texts[0][1]) == 8


def test_a_model_with_another_vocabulary_is_refused(model: Model, tmp_path: Path) -> None:
    metadata = tiny_models.metadata()
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[20], tokens[21] = tokens[21], tokens[20]
    path = tmp_path / "m.gguf"
    from rlx_mlir.frontends.gguf import write_gguf

    write_gguf(path, {**metadata, "tokenizer.ggml.tokens": tokens}, tiny_models.tensors())
    with pytest.raises(InputError, match="in which token 20 is"):
        model.generate("a", draft=load_model(path, context=CONTEXT))
    with pytest.raises(InputError, match="'draft' is 'lookup', 'mtp' or a model, but got 'x'"):
        model.generate("a", draft="x")
    with pytest.raises(InputError, match="'draft' is 'lookup', 'mtp' or a model, but got 3"):
        model.generate("a", draft=3)  # type: ignore[arg-type]


def test_logits_that_are_not_finite(model: Model) -> None:
    generation = model.generate(ids_of(4, 6), draft=model, greedy=True, max_tokens=30, ignore_eos=True)
    next(generation)
    session = next(
        frame
        for frame in (generation._pieces.gi_frame.f_locals.get("session"),)  # type: ignore[attr-defined]
        if frame is not None
    )
    session.caches["v_1"][0, 1] = np.nan
    with pytest.raises(ExecutionError, match="the values of layer 1"):
        generation.read()
