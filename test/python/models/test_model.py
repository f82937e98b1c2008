# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loading and generating, on a tiny random model: most with interpreted modules, so that only this layer is tested."""

from __future__ import annotations

import dataclasses
import gc
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from interpreted import compile_interpreted, load_interpreted

from rlx_mlir import compiler
from rlx_mlir.budgets import budget
from rlx_mlir.errors import (
    BudgetError,
    ChatTemplateError,
    ContextLengthError,
    ExecutionError,
    InputError,
    RlxError,
    TimeLimitError,
)
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.models import compiling
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.generation import Stats, StopStrings
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.programs import maxima
from rlx_mlir.models.session import Session


@pytest.fixture
def model(tiny_llama: Path) -> Model:
    return load_interpreted(tiny_llama)


def greedy_ids(model: Model, ids: list[int], count: int) -> list[int]:
    """What greedy decoding gives, by logits of the whole sequence at each step."""
    ids = list(ids)
    for _ in range(count):
        ids.append(int(model.logits(ids)[-1].argmax()))
    return ids[-count:]


def test_greedy_generation_follows_the_logits(model: Model) -> None:
    prompt = model.tokenize("hello the cat")
    generation = model.generate(prompt, greedy=True, max_tokens=6, ignore_eos=True)
    text = generation.read()
    assert generation.ids == greedy_ids(model, prompt, 6)
    assert text == model.detokenize(generation.ids)
    assert generation.finish_reason == "length"
    assert generation.prompt_ids == prompt


def test_text_and_its_ids_are_the_same_prompt(model: Model) -> None:
    text = "on the mat"
    by_text = model.generate(text, greedy=True, max_tokens=4).read()
    assert model.generate(model.tokenize(text), greedy=True, max_tokens=4).read() == by_text
    assert model.generate(np.array(model.tokenize(text)), greedy=True, max_tokens=4).read() == by_text


def test_seeds_repeat_choices(model: Model) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 3.0, "ignore_eos": True}
    texts = [model.generate("a", seed=seed, **options).read() for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_pieces_come_as_they_are_generated(model: Model) -> None:
    generation = model.generate("hello", greedy=True, max_tokens=20, ignore_eos=True)
    first = next(generation)
    assert first
    assert len(generation.ids) < 20
    assert generation.finish_reason is None
    assert first + "".join(generation) == generation.text


def test_the_models_end_token_ends_generation(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = model.generate("hello", greedy=True, max_tokens=5, ignore_eos=True)
    plain.read()
    monkeypatch.setattr(model.tokenizer, "stop_ids", frozenset({plain.ids[3]}))
    cut = plain.ids.index(plain.ids[3])
    ended = model.generate("hello", greedy=True, max_tokens=5)
    ended.read()
    assert ended.finish_reason == "stop"
    assert ended.ids == plain.ids[:cut]


def test_generation_stops_at_text(model: Model) -> None:
    whole = model.generate("hello", greedy=True, max_tokens=12, ignore_eos=True).read()
    stop = whole[4:7]
    generation = model.generate("hello", greedy=True, max_tokens=12, ignore_eos=True, stop=stop)
    assert generation.read() == whole[: whole.index(stop)]
    assert generation.finish_reason == "stop"


@pytest.mark.parametrize("size", [1, 2, 5])
def test_stop_strings_across_pieces(size: int) -> None:
    text = "abcabd then END of it"
    stops = StopStrings(["END", "abcx", "the end"])
    pieces = [stops.push(text[i : i + size]) for i in range(0, len(text), size)]
    assert "".join(pieces) == "abcabd then "
    assert stops.found
    assert stops.push("more") + stops.flush() == ""


def test_stop_strings_hold_back_no_more_than_needed() -> None:
    stops = StopStrings(["END"])
    assert [stops.push(c) for c in "xENyE"] == ["x", "", "", "ENy", ""]
    assert stops.flush() == "E"
    assert not stops.found
    with pytest.raises(InputError, match="non-empty text, but is ''"):
        StopStrings([""])


def test_the_context_bounds_generation(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_interpreted(tiny_llama, context=8)
    generation = model.generate([5] * 6, greedy=True, max_tokens=100, ignore_eos=True)
    generation.read()
    assert generation.finish_reason == "context"
    assert len(generation.ids) == 3  # after positions 6, 7 and 8
    assert len(model.logits([5] * 8)) == 8
    for call in (model.logits, model.generate):
        text = r"9 tokens, but the context has 8 positions; load the model with a larger 'context' \(its own is 256\)$"
        with pytest.raises(ContextLengthError, match=text) as caught:
            call([5] * 9)
        assert (caught.value.requested, caught.value.limit) == (9, 8)
    with monkeypatch.context() as patch:
        patch.setattr(model, "config", dataclasses.replace(model.config, context=8))
        with pytest.raises(ContextLengthError, match=r"8 positions, and the model was made for no more$"):
            model.generate([5] * 9)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], r"must have at least one token, but has none"),
        ([[1, 2]], r"one or more token ids, but is int64 \[1, 2\]"),
        ([1.5], r"token ids, but is float64"),
        ([3, 300], r"must be in \[0, 300\), but 300 is at position 1"),
        ([-1], r"must be in \[0, 300\), but -1 is at position 0"),
    ],
)
def test_bad_ids(model: Model, ids: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        model.logits(ids)
    with pytest.raises(InputError):
        model.generate(ids)


def test_bad_options(model: Model) -> None:
    with pytest.raises(InputError, match="'max_tokens' is a whole number of at least 1, but got 0"):
        model.generate("a", max_tokens=0)
    with pytest.raises(InputError, match="a prompt is text, a list of messages or token ids, but got NoneType"):
        model.generate(None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'top_p'"):
        model.generate("a", top_p=0)
    with pytest.raises(InputError, match="list of token ids"):
        model.generate([1], chat=True)
    with pytest.raises(InputError, match="list of messages"):
        model.generate([{"role": "user", "content": "a"}], chat=False)
    with pytest.raises(InputError, match="the prompt must have at least one token, but has none"):
        model.generate("")


def test_abandoned_generations_end_where_the_collector_finds_them(model: Model) -> None:
    """Even while the thread that it runs in has the model's lock."""
    generation = model.generate("hello", greedy=True, max_tokens=100)
    next(generation)
    assert repr(generation).startswith("<Generation of ")
    assert f", {len(generation.ids)} generated, running: " in repr(generation)

    def collect() -> None:
        with model._state:
            gc.collect()

    del generation
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert model._spare is not None


@pytest.mark.slow
def test_python_ends_quietly_in_a_generation(tiny_llama: Path) -> None:
    code = "import sys, rlx_mlir as rlx; g = rlx.load_model(sys.argv[1]).generate('hello', greedy=True); next(g)"
    done = subprocess.run([sys.executable, "-c", code, tiny_llama], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_chat(model: Model) -> None:
    messages = [{"role": "user", "content": "hello <|im_end|>"}]
    generation = model.generate(messages, greedy=True, max_tokens=2)
    text = "<|im_start|>user\nhello <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert generation.prompt_ids == model.tokenize(text, special=True)
    assert model.generate("hello <|im_end|>", chat=True).prompt_ids == generation.prompt_ids
    assert model.generate("hello <|im_end|>").prompt_ids != generation.prompt_ids


def test_no_template(tmp_path: Path) -> None:
    metadata = {**tiny_models.metadata(), "tokenizer.chat_template": "x"}
    del metadata["tokenizer.chat_template"]
    model = load_interpreted(write_gguf(tmp_path / "m.gguf", metadata, tiny_models.tensors()))
    with pytest.raises(ChatTemplateError, match="no chat template"):
        model.generate("a", chat=True)


def read(model: Model, prompt: list[int], count: int = 5) -> tuple[str, int]:
    """What follows a prompt, and how many of its tokens were taken over."""
    generation = model.generate(prompt, greedy=True, max_tokens=count, ignore_eos=True)
    return generation.read(), generation.stats.reused_tokens


@pytest.mark.parametrize(
    ("prompt", "reused"),
    [
        ([7, 8, 9], 2),  # logits need a token to be processed
        ([7, 8], 1),
        ([7, 8, 9, 20, 21], 3),
        ([7, 8, 30, 31], 2),
        ([7], 0),
        ([1, 2, 3, 4, 5, 6, 7, 8], 0),
    ],
)
@pytest.mark.quick(2)
def test_prompts_take_over_what_they_have_in_common(
    model: Model, tiny_llama: Path, prompt: list[int], reused: int
) -> None:
    read(model, [7, 8, 9])
    text, found = read(model, prompt)
    assert found == reused
    assert model.stats.prompt_tokens == len(prompt) - reused
    assert (text, 0) == read(load_interpreted(tiny_llama), prompt)


def test_a_conversation_that_goes_on_keeps_its_prompts(model: Model, tiny_llama: Path) -> None:
    """Chosen tokens are processed once more, as part of a prompt, and then kept."""
    first = model.generate([7, 8, 9], greedy=True, max_tokens=4, ignore_eos=True)
    first.read()
    longer = [*first.prompt_ids, *first.ids, 20, 21]
    assert read(model, longer)[1] == 3
    text, reused = read(model, [*longer, 22])
    assert reused == len(longer)
    assert text == read(load_interpreted(tiny_llama), [*longer, 22])[0]


def test_chosen_tokens_are_not_taken_over(model: Model) -> None:
    session = Session(model)
    session.prefill([7, 8, 9])
    session.decode(10)
    session.prefill([11, 12])
    session.keep([7, 8, 9, 10, 11, 12, 13])
    assert (session.tokens, session.prefilled) == ((7, 8, 9), 3)
    session.prefill([10, 11])
    session.keep([7, 8, 9, 10, 11])
    assert (session.tokens, session.prefilled) == ((7, 8, 9, 10), 4)


def test_gpus_take_over_whole_chunks(model: Model, tiny_llama: Path) -> None:
    """There a row's sums depend on how many rows are computed with it: calls have to be those of a fresh start."""
    model.reuse, model.prefixes = model.chunk, None
    prompt = list(range(5, 45))
    read(model, prompt)
    text, reused = read(model, [*prompt[:-1], 80])
    assert reused == 32
    assert model.programs.prefill.calls == [16, 16, 8, 8]  # type: ignore[attr-defined]
    assert text == read(load_interpreted(tiny_llama), [*prompt[:-1], 80])[0]


@pytest.mark.parametrize(
    ("architecture", "activations", "kv_dtype"),
    [
        ("llama", "exact", "f16"),
        pytest.param("gpt-oss", "exact", "f32", marks=pytest.mark.wide),
        pytest.param("llama", "int8", "f32", marks=pytest.mark.slow),
        pytest.param("gemma3", "int8", "bf16", marks=pytest.mark.slow),
    ],
)
def test_prefill_is_the_same_bits_however_it_is_cut(
    tmp_path: Path, architecture: str, activations: str, kv_dtype: str
) -> None:
    """What taking over keys and values rests on: compiled code, on CPUs."""
    path = tiny_models.write(tmp_path / "m.gguf", architecture=architecture)
    model = load_model(path, activations=activations, kv_dtype=kv_dtype, context=64, chunk=48)
    ids = np.random.default_rng(0).integers(0, 300, 40).tolist()
    found = []
    for cuts in ([40], [1, 39], [39, 1], [7, 9, 24], [17, 23], [5] * 8):
        session, at = Session(model), 0
        for count in cuts:
            logits = session.prefill(ids[at : at + count])
            at += count
        found.append([logits.copy(), *(np.array(cache)[0, :40] for cache in session.caches.values())])
    for other in found[1:]:
        for first, second in zip(found[0], other, strict=True):
            assert np.array_equal(first.view(np.uint8), second.view(np.uint8))


@pytest.mark.parametrize("activations", ["exact", "int8"])
@pytest.mark.quick(1)
@pytest.mark.wide
def test_texts_are_the_same_whether_tokens_are_taken_over(tiny_llama: Path, activations: str) -> None:
    """Twenty prompts, each after another one that shares its start, chosen tokens among them."""
    random = np.random.default_rng(1)
    model = load_model(tiny_llama, activations=activations, context=64)
    taken = 0
    for _ in range(20):
        start = random.integers(3, 260, 12).tolist()
        prior = model.generate(start, greedy=True, max_tokens=10, ignore_eos=True)
        prior.read()
        prompt = [*start, *prior.ids[: int(random.integers(0, 10))], *random.integers(3, 260, 3).tolist()]
        session = model.session_for(prompt)
        taken += len(session.tokens)
        fresh = Session(model).prefill(prompt)
        found = session.prefill(prompt[len(session.tokens) :])
        assert np.array_equal(found.view(np.uint32), fresh.view(np.uint32))
        model.give_back(session)
        text, reused = read(model, prompt, 20)
        assert reused == len(prompt) - 1
        model.forget()
        assert read(model, prompt, 20) == (text, 0)
    assert taken == 20 * 12


def test_a_generation_can_end_early(model: Model) -> None:
    generation = model.generate("hello", greedy=True, max_tokens=20, ignore_eos=True)
    next(generation)
    generation.close()
    assert generation.finish_reason == "closed"
    assert list(generation) == []
    unused = model.generate("hello")
    unused.close()
    assert unused.text == ""


def test_generations_at_once_have_their_own_caches(model: Model) -> None:
    """Interleaved in one thread, and run by several."""
    prompts = [[7, 8, 9], [20, 21], [30]]
    alone = [model.generate(p, greedy=True, max_tokens=6, ignore_eos=True).read() for p in prompts]
    running = [model.generate(p, greedy=True, max_tokens=6, ignore_eos=True) for p in prompts]
    while any(next(generation, None) is not None for generation in running):
        pass
    assert [generation.text for generation in running] == alone

    found: dict[int, str] = {}

    def run(index: int) -> None:
        found[index] = model.generate(prompts[index], greedy=True, max_tokens=6, ignore_eos=True).read()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(3)] == alone


def test_stats(model: Model) -> None:
    assert model.stats.prompt_tokens == 0
    generation = model.generate([5] * 20, greedy=True, max_tokens=6, ignore_eos=True)
    generation.read()
    stats = generation.stats
    assert (stats.prompt_tokens, stats.generated_tokens) == (20, 6)
    assert stats.prompt_rate > 0
    assert stats.decode_rate > 0
    assert stats.peak_rss > 1 << 20
    assert model.stats.generated_tokens == 6
    assert set(stats.to_dict()) >= {"prompt_rate", "decode_rate", "load_seconds", "compile_seconds", "peak_rss"}
    model.logits([5] * 3)
    assert (model.stats.prompt_tokens, model.stats.generated_tokens) == (3, 0)
    assert Stats().prompt_rate == Stats().decode_rate == 0


def test_prompts_run_in_chunks(tiny_llama: Path) -> None:
    model = load_interpreted(tiny_llama, chunk=16)
    model.generate([5] * 40, greedy=True, max_tokens=2, ignore_eos=True).read()
    assert model.programs.prefill.calls == [16, 16, 8]  # type: ignore[attr-defined]
    assert model.programs.decode.calls == [1]  # type: ignore[attr-defined]


def padded(tmp_path: Path, rows: int = 340) -> Path:
    """A model whose embedding table has more rows than the vocabulary has tokens, and prefers those."""
    tensors = tiny_models.tensors({"token_embd": "f32"}, vocab=rows)
    tensors["token_embd.weight"][300:] *= 20
    return write_gguf(tmp_path / "padded.gguf", tiny_models.metadata(vocab_size=rows), tensors)


def test_padding_of_the_table_is_never_chosen(tmp_path: Path) -> None:
    model = load_interpreted(padded(tmp_path))
    assert max(greedy_ids(model, [5, 6, 7], 3)) >= 300
    for options in ({"greedy": True}, {"temperature": 5.0, "top_k": 0, "seed": 1}, {"top_k": 5, "seed": 2}):
        generation = model.generate([5, 6, 7], max_tokens=8, ignore_eos=True, **options)
        assert generation.read() == model.detokenize(generation.ids)
        assert max(generation.ids) < 300


def test_padding_of_the_table_is_no_prompt(tmp_path: Path) -> None:
    model = load_interpreted(padded(tmp_path))
    with pytest.raises(
        InputError, match=r"must have a text, and be in \[0, 300\), but 320 is at position 1: the 340 rows"
    ):
        model.generate([5, 320])
    assert model.logits([5, 320]).shape == (2, 340)


def large_keys(tmp_path: Path, what: str = "attn_k") -> Path:
    """A model whose second layer has keys (or values) of about 1e5."""
    tensors = tiny_models.tensors({what: "f32"})
    tensors[f"blk.1.{what}.weight"] *= np.float32(1e5)
    return write_gguf(tmp_path / f"{what}.gguf", tiny_models.metadata(), tensors)


@pytest.mark.parametrize(
    ("what", "name"), [("attn_k", "keys of layer 1 ('k_1'"), ("attn_v", "values of layer 1 ('v_1'")]
)
def test_keys_beyond_the_caches_type_are_named(
    tmp_path: Path, what: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "compile_program", compile_interpreted)
    path = large_keys(tmp_path, what)
    model = load_model(path, kv_dtype="f16", context=64)
    expected = (
        rf"must be finite: the {re.escape(name)}, a cache of f16\) aren't: position \d+ has -?inf; f16 holds .* 65504"
    )
    with pytest.raises(ExecutionError, match=expected):
        model.logits([5, 6, 7])
    with pytest.raises(ExecutionError, match=expected):
        model.generate([5, 6, 7], greedy=True).read()
    for kv_dtype in ("f32", "bf16"):
        assert np.isfinite(load_model(path, kv_dtype=kv_dtype, context=64).logits([5, 6, 7])).all()


def test_logits_that_overflow_are_an_error(tmp_path: Path) -> None:
    tensors = tiny_models.tensors()
    tensors["output_norm.weight"] = np.full(64, 3e38, np.float32)
    model = load_interpreted(write_gguf(tmp_path / "m.gguf", tiny_models.metadata(), tensors))
    with pytest.raises(ExecutionError, match="logits of 2 tokens must be finite: keys and values are, so what follows"):
        model.logits([5, 6])


def test_compiling_has_a_limit(tmp_path: Path) -> None:
    path = tiny_models.write(tmp_path / "m.gguf")
    with pytest.raises(TimeLimitError, match=r"isn't done within its time limit of 0\.001 s"):
        load_model(path, cache=False, time_limit=1e-3)
    with pytest.raises(InputError, match="'time_limit' expects a positive number of seconds"):
        load_model(path, cache=False, time_limit=-1)


def test_compiling_has_a_budget(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the threads that compile see, and a limit that is given replaces."""
    limits: list[Any] = []

    def compile_cached(*_: Any, time_limit: float, **options: Any) -> Any:
        limits.append(time_limit)
        raise TimeLimitError(f"compiling 'decode' isn't done within its time limit of {time_limit:g} s")

    monkeypatch.setattr(compiler, "compile_cached", compile_cached)
    with (
        budget(compile_seconds=7),
        pytest.raises(BudgetError, match=r"within its .* 7 s, which needs .*'compile_seconds'"),
    ):
        load_model(tiny_llama)
    with budget(compile_seconds=7), pytest.raises(TimeLimitError, match="of 9 s"):
        load_model(tiny_llama, time_limit=9)
    assert set(limits) == {7, 9}


def test_tokenizer_larger_than_the_table(tmp_path: Path) -> None:
    tensors = tiny_models.tensors(vocab=299)
    metadata = tiny_models.metadata(vocab_size=None)
    model = load_interpreted(write_gguf(tmp_path / "m.gguf", metadata, tensors))
    with pytest.raises(InputError, match="tokenizer has 300 tokens, but the embedding table only 299 rows"):
        model.tokenize("a")


def test_load_model(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def compile_program(config: ModelConfig, program: str, **options: Any) -> Any:
        asked.append({"program": program, **options})
        return compile_interpreted(config, program)

    monkeypatch.setattr(compiling, "compile_program", compile_program)
    steps: list[str] = []
    model = load_model(tiny_llama, threads=3, activations="exact", context=100, chunk=700, progress=steps.append)
    assert sorted(each["program"] for each in asked) == ["decode", "prefill"]
    assert all(each["threads"] == 3 and each["activations"] == "exact" and each["chunk"] == 100 for each in asked)
    assert steps == [f"opening {tiny_llama}", "compiling", "preparing weights"]
    assert (model.context, model.chunk) == (100, 100)
    assert model.stats.load_seconds > 0
    assert repr(model) == "Model(tiny.gguf, llama, 2 layers, context 100)"
    assert model.logits([1, 2]).shape == (2, 300)


def test_load_model_checks_its_arguments_first(tiny_llama: Path) -> None:
    for options, message in (
        ({"activations": "int4"}, "'activations' must be one of auto, int8, int16, exact, but is 'int4'"),
        ({"chunk": 0}, "'chunk' is a whole number of at least 1, but got 0"),
        ({"context": 257}, "'context' must be from 1 to the model's, 256, but is 257"),
    ):
        with pytest.raises(InputError, match=message):
            load_model(tiny_llama, **options)


def test_a_broken_file_is_one_of_our_errors(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(RlxError):
        load_model(path)


def test_maxima(tiny_llama: Path) -> None:
    config = ModelConfig.from_gguf(GGUFFile(tiny_llama))
    assert maxima(config, "decode", context=2048, chunk=512) == {"context": 2048}
    assert maxima(config, "prefill", context=2048, chunk=512) == {"context": 2048, "seq": 512, "outputs": 128}
    assert maxima(config, "prefill", context=64, chunk=64) == {"context": 64, "seq": 64, "outputs": 64}


def test_module_is_a_graph(model: Model) -> None:
    assert model.module().name == "prefill"
    assert model.module("decode", "mir").stage == "mir"
    with pytest.raises(InputError, match=r"'stage' must be hir or mir, but is 'asm'; Model\.emit \(or rlx\.emit\)"):
        model.module("decode", "asm")


def test_later_stages_are_text(model: Model) -> None:
    assert " call @" in model.emit("decode", "kernels")
    assert "mir.block_dot" not in model.emit("decode", "kernels")  # this model's activations are exact
    assert "mir.kernel = " in model.emit("decode", "lir")
    assert model.emit("prefill", "hir") == model.module("prefill").to_text()
    with pytest.raises(InputError, match="'stage' expects one of hir, mir, kernels"):
        model.emit("decode", "x")


def test_file_stays_usable(tiny_llama: Path) -> None:
    file = GGUFFile(tiny_llama)
    before = file.tensor("token_embd.weight").copy()
    file.release()
    assert np.array_equal(file.tensor("token_embd.weight"), before)


_WARM = """
import sys
from rlx_mlir.models.loading import load_model
model = load_model(sys.argv[1], context=64, chunk=16)
print(model.generate([5, 6, 7], greedy=True, max_tokens=4, ignore_eos=True).read().encode())
print("mlir" in sys.modules, "rlx_mlir._compiler" in sys.modules, "rlx_mlir.hir" in sys.modules)
"""


@pytest.mark.wide
def test_a_warm_start_needs_no_compiler(tiny_llama: Path, tmp_path: Path) -> None:
    """The second process finds the code in the cache: no MLIR, no graph; and says the same."""
    environment = {**os.environ, "RLX_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", _WARM, str(tiny_llama)]
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
        for _ in range(2)
    ]
    assert runs[0][0] == runs[1][0]
    assert runs[0][1] == "True True True"
    assert runs[1][1] == "False False False"
