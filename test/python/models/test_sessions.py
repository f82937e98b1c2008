# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sessions of a compiled tiny model: what they give is the same bits however they came to it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models

from rlx_mlir.errors import ContextLengthError, ExecutionError, InputError, SafetensorsError, UnsupportedError
from rlx_mlir.frontends.safetensors import SafetensorsFile
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.session import Session

CONTEXT = 64


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Model:
    return load_model(tiny_llama, context=CONTEXT, chunk=16)


def ids_of(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 260, count).tolist()


def same_bits(first: np.ndarray, second: np.ndarray) -> None:
    np.testing.assert_array_equal(first.view(np.uint8), second.view(np.uint8))


def same_state(first: Session, second: Session) -> None:
    assert first.tokens == second.tokens
    assert first.prefilled == second.prefilled
    same_bits(first.logits, second.logits)
    for name, rows in first.rows(len(first)).items():
        same_bits(rows, second.rows(len(second))[name])


@pytest.mark.parametrize(
    ("architecture", "activations", "kv_dtype"),
    [
        ("llama", "int16", "f32"),
        pytest.param("gpt-oss", "exact", "q8_0", marks=pytest.mark.wide),
        pytest.param("deepseek3", "int16", "q8_0", marks=pytest.mark.wide),
        pytest.param("llama", "exact", "f16", marks=pytest.mark.slow),
        pytest.param("llama", "int8", "bf16", marks=pytest.mark.slow),
        pytest.param("gemma3", "int16", "f16", marks=pytest.mark.slow),
        pytest.param("qwen3", "exact", "f32", marks=pytest.mark.slow),
        pytest.param("qwen3moe", "exact", "f32", marks=pytest.mark.slow),
        pytest.param("gpt-oss", "int16", "f32", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_chosen_tokens_have_the_same_bits_one_by_one_and_together(
    tmp_path: Path, architecture: str, activations: str, kv_dtype: str, threads: int
) -> None:
    """`decode`, `extend` and `batch` are one function, which the module's documentation promises."""
    path = tiny_models.write(tmp_path / "m.gguf", architecture=architecture)
    model = load_model(path, activations=activations, kv_dtype=kv_dtype, context=CONTEXT, chunk=16, threads=threads)
    session = model.session()
    session.feed(ids_of(0, 19))
    single = session.fork()
    ids = ids_of(1, 21)
    found = session.extend(ids)
    same_bits(found, np.stack([single.step(token) for token in ids]))
    same_state(session, single)
    # Eight sequences of other lengths beside each other.
    batch = model.programs.get("batch")
    lengths = [1, 2, 5, 8, 16, 19, 30, 40]
    sessions = []
    for length in lengths:
        sessions.append(model.session())
        sessions[-1].feed(ids_of(length, length))
    caches = {name: np.concatenate([own.caches[name] for own in sessions]) for name in session.caches}
    tokens = np.array([[7 + row] for row in range(8)], np.int32)
    results = batch.run({"tokens": tokens, "pos": np.array(lengths, np.int32), **caches}, donate=caches.keys())
    for row, own in enumerate(sessions):
        same_bits(results["logits"][row, 0], own.step(7 + row))
        for name, rows in own.rows(len(own)).items():
            same_bits(results[name][row, : len(own)], rows)


@pytest.mark.parametrize("cuts", [[30], [1, 29], [29, 1], [16, 14], [7, 9, 14], [1] * 30])
def test_prompts_are_the_same_bits_however_they_are_fed(model: Model, cuts: list[int]) -> None:
    ids, whole, cut = ids_of(2, 30), model.session(), model.session()
    whole.feed(ids)
    for count in cuts:
        cut.feed(ids[len(cut) : len(cut) + count])
    same_state(whole, cut)
    same_bits(whole.logits, model.logits(ids)[-1])


def test_texts_begin_once(model: Model) -> None:
    session = model.session()
    session.feed("hello the cat")
    assert list(session.tokens) == model.tokenize("hello the cat")
    session.feed(" on the mat")
    assert list(session.tokens) == [*model.tokenize("hello the cat"), *model.tokenize(" on the mat", bos=False)]
    assert session.text == model.detokenize(session.tokens)
    assert repr(session) == f"<Session of {len(session)} tokens, of {CONTEXT} positions>"


def test_a_fork_goes_on_as_a_fresh_run(model: Model) -> None:
    ids = ids_of(3, 17)
    session = model.session()
    session.feed(ids)
    forks = [session.fork() for _ in range(3)]
    for number, fork in enumerate(forks):
        fork.step(20 + number)
        fork.feed(ids_of(number, 5))
    session.feed([50])
    for number, fork in enumerate(forks):
        fresh = model.session()
        fresh.feed(ids)
        fresh.step(20 + number)
        fresh.feed(ids_of(number, 5))
        same_state(fork, fresh)
    assert session.tokens == (*ids, 50)


@pytest.mark.parametrize("keep", [0, 1, 7, 16, 20])
def test_truncated_sessions_go_on_as_if_nothing_had_come(model: Model, keep: int) -> None:
    ids = ids_of(4, 20)
    session, fresh = model.session(), model.session()
    session.feed(ids)
    session.extend(ids_of(5, 9))
    session.truncate(keep)
    if keep < 29:
        with pytest.raises(InputError, match=r"none came since (truncate|its start)"):
            session.logits  # noqa: B018
    session.feed([9, 8])
    fresh.feed([*ids[:keep], 9, 8])
    same_state(session, fresh)


def test_generation_of_a_session_leaves_all_chosen_tokens(model: Model) -> None:
    session = model.session()
    session.feed("hello the cat")
    before = session.tokens
    generation = session.generate(greedy=True, max_tokens=6, ignore_eos=True)
    text = generation.read()
    alone = model.generate("hello the cat", greedy=True, max_tokens=6, ignore_eos=True)
    assert text == alone.read()
    assert session.tokens == (*before, *generation.ids)
    assert generation.stats.reused_tokens == len(before)
    # A second turn sees the first one: the logits are those after the last chosen token.
    again = model.session()
    again.feed(before)
    for token in generation.ids:
        again.step(token)
    same_state(session, again)


def test_a_generation_that_is_closed_leaves_a_session_to_go_on_with(model: Model) -> None:
    session = model.session()
    session.feed("hello")
    generation = session.generate(greedy=True, max_tokens=9, ignore_eos=True)
    next(generation)
    generation.close()
    assert session.tokens[-len(generation.ids) :] == tuple(generation.ids)
    session.step(5)


@pytest.mark.parametrize("kv_dtype", ["bf16", *(pytest.param(kind, marks=pytest.mark.wide) for kind in ("f32", "f16"))])
def test_saved_sessions_go_on_with_the_same_bits(tiny_llama: Path, tmp_path: Path, kv_dtype: str) -> None:
    model = load_model(tiny_llama, context=CONTEXT, kv_dtype=kv_dtype)
    session = model.session()
    session.feed(ids_of(6, 13))
    session.step(9)
    path = tmp_path / "a.session"
    session.save(path)
    session.save(path)  # the old file is replaced
    other = load_model(tiny_llama, context=32, kv_dtype=kv_dtype)
    restored = other.restore(path)
    same_state(session, restored)
    same_bits(session.step(11), restored.step(11))
    session.truncate(0)
    session.save(path)
    assert len(other.restore(path)) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["a.session"]


def damaged(path: Path, texts: dict[str, str], tensors: dict[str, Any]) -> None:
    """Writes a session's file again, with other texts and tensors; None leaves one out."""
    file = SafetensorsFile(path)
    kept = {name: file.tensor(name) for name in file.tensors} | tensors
    write_safetensors(path, {name: array for name, array in kept.items() if array is not None}, file.metadata | texts)


@pytest.mark.parametrize(
    ("texts", "tensors", "message"),
    [
        ({"format": "x"}, {}, "must be a session of version 1, as 'Session.save' writes it, but is 'x' '1'"),
        ({"version": "2"}, {}, "but is 'rlx-session' '2'"),
        ({"identity": "{"}, {}, "its identity can't be read"),
        ({"prefilled": "6"}, {}, r"'prefilled' must be in \[0, 5\], but is '6'"),
        ({"prefilled": "-1"}, {}, "'prefilled' must be in"),
        ({"prefilled": "٣"}, {}, "'prefilled' must be in"),
        ({}, {"tokens": np.arange(5)}, "'tokens' must be i32"),
        ({}, {"tokens": np.zeros(65, np.int32)}, "not more than the 64 positions"),
        ({}, {"tokens": np.full(5, 300, np.int32)}, r"must be in \[0, 300\), but go from 300 to 300"),
        ({}, {"tokens": np.full(5, -1, np.int32)}, "but go from -1 to -1"),
        ({}, {"k_0": np.zeros((4, 32), np.float32)}, r"'k_0' must be float32 \[5, 32\], but is float32 \[4, 32\]"),
        ({}, {"v_1": np.zeros((5, 32), np.float16)}, "'v_1' must be float32"),
        ({}, {"v_1": None}, "v_1"),
        ({}, {"logits": np.zeros(5, np.float32)}, r"'logits' must be f32 \[300\], but are float32 \[5\]"),
    ],
)
def test_files_that_are_no_sessions_of_the_model(
    model: Model, tmp_path: Path, texts: dict[str, str], tensors: dict[str, Any], message: str
) -> None:
    session, path = model.session(), tmp_path / "s"
    session.feed(ids_of(7, 5))
    session.save(path)
    damaged(path, texts, tensors)
    with pytest.raises(SafetensorsError, match=message):
        model.restore(path)


def test_sessions_of_other_models_and_options_are_refused(model: Model, tiny_llama: Path, tmp_path: Path) -> None:
    session, path = model.session(), tmp_path / "s"
    session.feed([5, 6])
    session.save(path)
    other = load_model(tiny_llama, context=CONTEXT, kv_dtype="f16")
    with pytest.raises(SafetensorsError, match="kv_dtype is 'f16', but 'f32' in the file"):
        other.restore(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SafetensorsError):
        model.restore(path)
    with pytest.raises(SafetensorsError):
        model.restore(tmp_path / "missing")


def test_what_a_session_refuses_leaves_it_as_it_was(model: Model) -> None:
    session = model.session()
    session.feed(ids_of(8, 60))
    before = session.fork()
    for call, kind, message in (
        (lambda: session.feed([1, 2, 3, 4, 5]), ContextLengthError, "room for 4 more of 64 positions, but got 5"),
        (lambda: session.extend([1] * 5), ContextLengthError, "room for 4 more"),
        (lambda: session.feed([300]), InputError, "must be in"),
        (lambda: session.step(-1), InputError, "whole number"),
        (lambda: session.feed([]), InputError, "at least one token"),
        (lambda: session.truncate(61), InputError, "at most the 60 tokens of the session, but is 61"),
    ):
        with pytest.raises(kind, match=message):
            call()
    same_state(session, before)
    same_bits(session.extend([1, 2, 3, 4]), np.stack([before.step(token) for token in (1, 2, 3, 4)]))
    assert session.room == 0
    with pytest.raises(ContextLengthError, match="room for 0 more"):
        session.step(1)
    with pytest.raises(InputError, match="none came since its start"):
        model.session().generate()


def test_logits_that_are_not_finite_leave_the_session(model: Model) -> None:
    session = model.session()
    session.feed([5, 6, 7])
    session.caches["v_1"][0, 1] = np.nan
    with pytest.raises(ExecutionError, match="the values of layer 1"):
        session.feed([8])
    with pytest.raises(ExecutionError, match="the values of layer 1"):
        session.step(8)
    with pytest.raises(ExecutionError, match="the values of layer 1"):
        session.extend([8, 9])
    assert session.tokens == (5, 6, 7)


def test_sessions_of_several_threads(model: Model) -> None:
    found: dict[int, np.ndarray] = {}

    def work(seed: int) -> None:
        session = model.session()
        session.feed(ids_of(seed, 20))
        for token in ids_of(seed + 100, 12):
            session.step(token)
        found[seed] = session.logits

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(6):
        alone = model.session()
        alone.feed(ids_of(seed, 20))
        alone.extend(ids_of(seed + 100, 12))
        same_bits(found[seed], alone.logits)


def test_gpus_take_single_tokens(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    session = model.session()
    session.feed([5])
    monkeypatch.setattr(model, "on_gpu", True)
    with pytest.raises(UnsupportedError, match=r"'extend' of a session .* programs for CPUs alone do: take 'step'"):
        session.extend([1, 2])
    with pytest.raises(UnsupportedError, match="'draft' needs a model on the CPU"):
        model.generate("a", draft="lookup")


def test_texts_that_follow_others_are_tokenized_as_such(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """No token begins a text within a text, and SentencePiece's vocabularies put no space before it."""
    asked: list[tuple[bool | None, bool]] = []
    whole = model.tokenizer.tokenize

    def tokenize(text: str, bos: bool | None = None, special: bool = False, *, continued: bool = False) -> list[int]:
        asked.append((bos, continued))
        return whole(text, bos, special, continued=continued)

    monkeypatch.setattr(model.tokenizer, "tokenize", tokenize)
    session = model.session()
    session.feed("hello")
    session.feed(" world")
    assert asked == [(None, False), (False, True)]
    assert session.text == "hello world"


def test_messages_go_on_behind_an_answer(model: Model) -> None:
    session = model.session()
    session.feed([{"role": "user", "content": "one"}])
    session.step(70)
    session.feed("two", chat=True)
    text = "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n"
    more = "<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n"
    ids = [*model.tokenize(text, special=True), 70, *model.tokenize(more, special=True)]
    assert list(session.tokens) == ids
    before = session.logits
    for wrong, options, message in (
        ([{"content": "a"}], {}, "message 0 must be a mapping with a 'role'"),
        ([3, 4], {"chat": True}, "'chat' is True, but the prompt is a list of token ids"),
        ([{"role": "user", "content": "a"}], {"chat": False}, "'chat' is False, but the prompt is a list of messages"),
        ("a", {"chat": 1}, "'chat' is True or False, but got 1"),
    ):
        with pytest.raises(InputError, match=message):
            session.feed(wrong, **options)  # type: ignore[arg-type]
    assert list(session.tokens) == ids
    same_bits(session.logits, before)
