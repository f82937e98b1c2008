# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the lm-evaluation-harness asks of a model, against numpy; with a stand-in for its package, or the package."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from interpreted import load_interpreted
from numpy_decoder import NumpyDecoder

from rlx_mlir.errors import InputError
from rlx_mlir.finetuning.harness import language_model
from rlx_mlir.frontends.gguf import GGUFFile

CONTEXT = 24


@dataclass
class Asked:
    args: tuple[Any, ...]


class Kept:
    def __init__(self) -> None:
        self.answers: list[tuple[str, tuple[Any, ...], object]] = []

    def add_partial(self, what: str, args: tuple[Any, ...], answer: object) -> None:
        self.answers.append((what, args, answer))


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> type:
    """The class that the harness knows models by."""

    class LM:
        def __init__(self) -> None:
            self.cache_hook = Kept()

    api = types.ModuleType("lm_eval.api.model")
    api.LM = LM  # type: ignore[attr-defined]
    for name, module in {"lm_eval": types.ModuleType("lm_eval"), "lm_eval.api": api, "lm_eval.api.model": api}.items():
        monkeypatch.setitem(sys.modules, name, module)
    return LM


@pytest.fixture
def model(base: type, tiny_llama: Path) -> Any:
    made = language_model(load_interpreted(tiny_llama, context=CONTEXT))
    assert isinstance(made, base)
    return made


def logs(ids: list[int], tiny_llama: Path) -> np.ndarray:
    logits = NumpyDecoder(GGUFFile(tiny_llama)).logits(ids).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))


def test_likelihoods_of_continuations(model: Any, tiny_llama: Path) -> None:
    own = model.model
    asked = [("the cat sat", " on the mat"), ("the cat sat ", "on the mat"), ("", "one two"), ("the cat", "")]
    found = model.loglikelihood([Asked(pair) for pair in asked])
    given, whole = own.tokenize("the cat sat"), own.tokenize("the cat sat on the mat")
    at = logs(whole, tiny_llama)[len(given) - 1 : -1]
    wanted = at[np.arange(len(at)), whole[len(given) :]].sum()
    assert found[0][0] == pytest.approx(wanted, rel=1e-4)
    assert found[0] == found[1]  # a blank at the end belongs to the continuation
    ids = [own.tokenizer.bos_id, *own.tokenize("one two", bos=False)]
    at = logs(ids, tiny_llama)[:-1]
    assert found[2][0] == pytest.approx(at[np.arange(len(at)), ids[1:]].sum(), rel=1e-4)
    assert found[3] == (0.0, True)
    best = own.detokenize([int(logs(given, tiny_llama)[-1].argmax())])
    assert model.cache_hook.answers[0] == ("loglikelihood", asked[0], found[0])
    assert isinstance(best, str)


def test_the_likeliest_continuation_is_said_to_be_so(model: Any) -> None:
    given = model.model.tokenize("the cat sat on")
    best = int(model.model.logits(given)[-1].argmax())
    assert model._score(given, [best])[1]
    assert not model._score(given, [(best + 1) % 300])[1]


def test_what_is_too_far_back_is_left_out(model: Any, tiny_llama: Path) -> None:
    given, wanted = [int(i) for i in np.random.default_rng(0).integers(3, 259, 40)], [70, 80]
    ids = [*given, *wanted][-(CONTEXT + 1) :]
    at = logs(ids[:-1], tiny_llama)[-2:]
    assert model._score(given, wanted)[0] == pytest.approx(at[[0, 1], wanted].sum(), rel=1e-4)
    with pytest.raises(InputError, match="a continuation has 25 tokens, but the context only 24 positions"):
        model._score(given, list(range(3, 28)))


@pytest.mark.parametrize("length", [1, 23, 24, 25, 60])
def test_every_token_of_a_text_is_predicted_once(model: Any, tiny_llama: Path, length: int) -> None:
    ids = [int(i) for i in np.random.default_rng(length).integers(3, 259, length)]
    windows = list(model._windows(ids))
    assert [index for _, wanted in windows for index in wanted] == ids
    whole, total = [model.model.tokenizer.bos_id, *ids], 0.0
    for given, wanted in windows:
        assert len(given) + len(wanted) - 1 <= CONTEXT
        total += model._score(given, wanted)[0]
    expected, done = 0.0, 0
    for end in [*range(CONTEXT, length, CONTEXT), length]:
        inside = whole[max(0, end - CONTEXT) : end]
        at = logs(inside, tiny_llama)[-(end - done) :]
        expected += at[np.arange(end - done), ids[done:end]].sum()
        done = end
    assert total == pytest.approx(expected, rel=1e-4)


def test_rolling_likelihoods_are_of_whole_texts(model: Any) -> None:
    text = "the cat sat on the mat"
    ids = model.model.tokenize(text, bos=False)
    found = model.loglikelihood_rolling([Asked((text,)), Asked(("",))])
    assert found == [pytest.approx(model._score([model._prefix()], ids)[0]), 0]


def test_texts_are_continued_up_to_one_of_some(model: Any) -> None:
    own = model.model
    options = {"until": ["\n\n"], "max_gen_toks": 8}
    (whole,) = model.generate_until([Asked(("the cat", options))])
    assert whole == "".join(own.generate("the cat", max_tokens=8, greedy=True, stop=["\n\n"]))
    stop = whole[3:5]
    cut, same = model.generate_until(
        [Asked(("the cat", {"until": stop, "max_gen_toks": 8})), Asked(("the cat", options))]
    )
    assert (cut, same) == (whole[: whole.index(stop)], whole)
    sampled = {"until": [], "max_gen_toks": 4, "do_sample": True, "temperature": 5.0}
    drawn = {model.generate_until([Asked(("the cat", sampled))])[0] for _ in range(8)}
    assert len(drawn) > 1
    long = "the cat sat on the mat " * 20
    assert isinstance(model.generate_until([Asked((long, options))])[0], str)


def test_messages_are_put_into_the_template(model: Any) -> None:
    text = model.apply_chat_template([{"role": "user", "content": "hello"}])
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert model.chat_template(True) == tiny_models.TEMPLATE
    assert model.chat_template() is None
    assert model._tokens(text)[0] == 1  # a control token, which texts of the harness may contain
    assert model.tokenizer_name.endswith(".gguf")


def test_what_cannot_be_made(base: type, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="the model is loaded: 'context' can't be changed any more"):
        language_model(load_interpreted(tiny_llama), context=8)
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    with pytest.raises(InputError, match="the package lm_eval, which this is for, can't be loaded"):
        language_model(tiny_llama)
