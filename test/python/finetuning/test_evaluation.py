# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Perplexity and divergence of models on a text, against numpy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from interpreted import load_interpreted
from numpy_decoder import NumpyDecoder
from test_adapter import random_adapter

from rlx_mlir.errors import InputError
from rlx_mlir.finetuning import evaluate
from rlx_mlir.finetuning.evaluation import _windows
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models.config import ModelConfig

TEXT = "the cat sat on the mat hello world one two the cat"


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_one_window_is_the_mean_loss(tiny_llama: Path) -> None:
    model = load_interpreted(tiny_llama, context=64)
    found = evaluate(model, TEXT)
    ids = model.tokenize(TEXT)
    wanted = log_probabilities(NumpyDecoder(GGUFFile(tiny_llama)).logits(ids))
    losses = [-wanted[place, following] for place, following in enumerate(ids[1:])]
    assert found.ids == tuple(ids[1:])
    np.testing.assert_allclose(found.losses, losses, rtol=1e-4)
    assert found.perplexity == pytest.approx(math.exp(np.mean(losses)), rel=1e-4)
    assert found.loss_error == pytest.approx(np.std(losses, ddof=1) / math.sqrt(len(losses)), rel=1e-3)
    assert found.divergences is None
    assert set(found.to_dict()) == {"tokens", "loss", "perplexity", "loss_error"}


def test_windows_predict_each_token_once_from_what_is_before_it(tiny_llama: Path) -> None:
    model = load_interpreted(tiny_llama, context=8)
    found = evaluate(model, TEXT, stride=3)
    ids = model.tokenize(TEXT)
    assert len(ids) > 12
    decoder = NumpyDecoder(GGUFFile(tiny_llama))
    losses = []
    for place in range(1, len(ids)):
        begin = 0 if place < 8 else 3 * math.ceil((place - 7) / 3)
        losses.append(-log_probabilities(decoder.logits(ids[begin:place], last=1))[0, ids[place]])
    np.testing.assert_allclose(found.losses, losses, rtol=1e-4)


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize(
    ("size", "room", "stride"), [(2, 8, 4), (8, 8, 4), (9, 8, 4), (50, 8, 6), (51, 16, 1), (30, 7, 5)]
)
def test_windows_count_every_token_but_the_first(size: int, room: int, stride: int, prefix: bool) -> None:
    ids = list(range(size))
    counted = []
    for window in _windows(ids, room, stride, prefix=prefix):
        assert 1 <= window.first < len(window.ids) <= room
        assert not prefix or window.ids[0] == 0
        inside = list(window.ids[prefix:])
        assert inside == list(range(inside[0], inside[-1] + 1))
        counted += window.ids[window.first :]
    assert counted == ids[1:]


def test_texts_begin_with_the_token_that_begins_texts(tmp_path: Path) -> None:
    path = tiny_models.write(tmp_path / "tiny.gguf", {"attention__head_count": 4})
    model = load_interpreted(path, context=8)
    model.tokenizer.add_bos = True
    found = evaluate(model, TEXT, stride=3)
    ids = model.tokenize(TEXT)
    assert ids[0] == model.tokenizer.bos_id
    assert found.ids == tuple(ids[1:])
    decoder = NumpyDecoder(GGUFFile(path))
    begin = 1 + 3 * math.ceil((len(ids) - 1 - 7) / 3)
    last = log_probabilities(decoder.logits([ids[0], *ids[begin:-1]], last=1))[0, ids[-1]]
    assert found.losses[-1] == pytest.approx(-last, rel=1e-4)


def test_divergence_from_another_model(tiny_llama: Path) -> None:
    """The other one's probabilities count as right."""
    adapter = random_adapter(ModelConfig.from_gguf(GGUFFile(tiny_llama)), ("attn_v",))
    model, other = load_interpreted(tiny_llama, adapter=adapter), load_interpreted(tiny_llama)
    found = evaluate(model, TEXT, against=other)
    ids = model.tokenize(TEXT)
    own, right = (log_probabilities(each.logits(ids)[:-1].astype(np.float64)) for each in (model, other))
    wanted = (np.exp(right) * (right - own)).sum(axis=1)
    assert found.divergences is not None
    np.testing.assert_allclose(found.divergences, wanted, rtol=1e-6)
    figures = found.to_dict()["divergence"]
    assert figures["mean"] == pytest.approx(wanted.mean())
    assert figures["max"] == pytest.approx(wanted.max())
    assert figures["same_likeliest"] == np.mean(own.argmax(axis=1) == right.argmax(axis=1))
    same = evaluate(other, TEXT, against=load_interpreted(tiny_llama))
    assert same.divergences is not None
    assert not same.divergences.any()
    assert same.to_dict()["divergence"]["same_likeliest"] == 1.0


def test_what_cannot_be_evaluated(tiny_llama: Path, tmp_path: Path) -> None:
    model = load_interpreted(tiny_llama, context=8)
    with pytest.raises(InputError, match="a text is evaluated from two tokens on, but has 1"):
        evaluate(model, "a")
    with pytest.raises(InputError, match=r"'stride' must be from 1 to 7, .* but is 8"):
        evaluate(model, TEXT, stride=8)
    other = load_interpreted(tiny_llama)
    other.tokenizer.tokens[200] = "another"
    with pytest.raises(InputError, match="compared token by token, but their vocabularies differ"):
        evaluate(model, TEXT, against=other)


def test_halves_are_windows_with_nothing_in_common(tiny_llama: Path) -> None:
    """The tokens behind the middle of each count, as for llama.cpp's perplexity; what is left of the text doesn't."""
    model = load_interpreted(tiny_llama, context=6)
    found = evaluate(model, TEXT, halves=True)
    ids = model.tokenize(TEXT)
    decoder = NumpyDecoder(GGUFFile(tiny_llama))
    losses, counted = [], []
    for begin in range(0, len(ids) - 5, 6):
        window = ids[begin : begin + 6]
        at = log_probabilities(decoder.logits(window))
        losses += [-at[place, window[place + 1]] for place in (3, 4)]
        counted += window[4:]
    assert len(ids) % 6
    assert found.ids == tuple(counted)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-4)
    model.tokenizer.add_bos = True
    with_bos = evaluate(model, TEXT, halves=True)
    first = [model.tokenizer.bos_id, *ids[6:11]]  # the text itself begins with it, too
    at = log_probabilities(decoder.logits(first))
    assert with_bos.losses[2] == pytest.approx(-at[3, first[4]], rel=1e-4)
    with pytest.raises(InputError, match="'halves' has windows with nothing in common, but 'stride' is 3"):
        evaluate(model, TEXT, halves=True, stride=3)
    with pytest.raises(
        InputError, match="must fill a window of 4 positions or more, but has 5 tokens, and the window 6"
    ):
        evaluate(model, "the cat", halves=True)
