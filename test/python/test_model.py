# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loading and generating, on a tiny random model: most with interpreted modules, so that only this layer is tested."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from interpreted import compile_interpreted, load_interpreted

from rlx_mlir.errors import ChatTemplateError, ContextLengthError, InputError, RlxError
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.models import model as model_module
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.generation import Stats, StopStrings
from rlx_mlir.models.model import Model, load_model, maxima


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


def test_the_context_bounds_generation(tiny_llama: Path) -> None:
    model = load_interpreted(tiny_llama, context=8)
    generation = model.generate([5] * 6, greedy=True, max_tokens=100, ignore_eos=True)
    generation.read()
    assert generation.finish_reason == "context"
    assert len(generation.ids) == 3  # after positions 6, 7 and 8
    assert len(model.logits([5] * 8)) == 8
    for call in (model.logits, model.generate):
        with pytest.raises(ContextLengthError, match=r"9 tokens, but the context has 8 positions") as caught:
            call([5] * 9)
        assert (caught.value.requested, caught.value.limit) == (9, 8)


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


def test_a_conversation_that_goes_on_keeps_its_cache(model: Model, tiny_llama: Path) -> None:
    first = model.generate([7, 8, 9], greedy=True, max_tokens=4, ignore_eos=True)
    first.read()
    longer = [*first.prompt_ids, *first.ids, 20, 21]
    second = model.generate(longer, greedy=True, max_tokens=5, ignore_eos=True)
    second.read()
    assert second.stats.reused_tokens == 6  # the last id chosen was never put in
    assert second.stats.prompt_tokens == 3
    fresh = load_interpreted(tiny_llama).generate(longer, greedy=True, max_tokens=5, ignore_eos=True)
    assert fresh.read() == second.text
    assert fresh.stats.reused_tokens == 0


@pytest.mark.parametrize("prompt", [[7, 8, 9], [7, 8], [1, 2, 3, 4, 5, 6, 7, 8]])
def test_other_prompts_start_anew(model: Model, tiny_llama: Path, prompt: list[int]) -> None:
    model.generate([7, 8, 9], greedy=True, max_tokens=4, ignore_eos=True).read()
    again = model.generate(prompt, greedy=True, max_tokens=5, ignore_eos=True)
    again.read()
    assert again.stats.reused_tokens == 0
    fresh = load_interpreted(tiny_llama).generate(prompt, greedy=True, max_tokens=5, ignore_eos=True)
    assert fresh.read() == again.text


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
    assert model._prefill.calls == [16, 16, 8]  # type: ignore[attr-defined]
    assert model._decode.calls == [1]  # type: ignore[attr-defined]


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

    monkeypatch.setattr(model_module, "compile_program", compile_program)
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
        ({"activations": "int4"}, "'activations' must be one of int8, exact, but is 'int4'"),
        ({"chunk": 0}, "'chunk' must be an integer of at least 1, but is 0"),
        ({"context": 257}, "'context' must be from 1 to the model's, 256, but is 257"),
    ):
        with pytest.raises(InputError, match=message):
            load_model(tiny_llama, **options)


def test_a_broken_file_is_one_of_our_errors(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(RlxError):
        load_model(path)


def test_maxima() -> None:
    assert maxima("decode", context=2048, chunk=512) == {"context": 2048}
    assert maxima("prefill", context=2048, chunk=512) == {"context": 2048, "seq": 512, "outputs": 128}
    assert maxima("prefill", context=64, chunk=64) == {"context": 64, "seq": 64, "outputs": 64}


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
from rlx_mlir.models.model import load_model
model = load_model(sys.argv[1], context=64, chunk=16)
print(model.generate([5, 6, 7], greedy=True, max_tokens=4, ignore_eos=True).read().encode())
print("mlir" in sys.modules, "rlx_mlir._compiler" in sys.modules, "rlx_mlir.hir" in sys.modules)
"""


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
