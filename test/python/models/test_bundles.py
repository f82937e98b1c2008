# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles of language models: the same bits as from the model's file, without anything that compiles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import tiny_models
import tokenizers
from bundles import LACKING, OPTIONS, SMALLER, with_manifest
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

import rlx_mlir as rlx
from rlx_mlir import Model, quantizing
from rlx_mlir.errors import ExecutionError, InputError, ModelFileError, RlxError, UnsupportedError
from rlx_mlir.models import bundled as bundled_models
from rlx_mlir.models import bundling, compiling
from rlx_mlir.models import decode_threads as threads
from rlx_mlir.models.bundle import ALIGNMENT, MANIFEST, Bundle, weights_section
from rlx_mlir.models.bundling import BundleReport
from rlx_mlir.models.caches import bytes_per_token
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.opening import open_model
from rlx_mlir.runtime.container import Container

PROMPT = [5, 6, 7, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55]


@pytest.fixture(scope="session")
def bundled(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BundleReport]:
    path = tmp_path_factory.mktemp("bundles") / "tiny.rlx"
    return path, rlx.bundle(tiny_llama, path, cpu=[SMALLER, "native"], **OPTIONS)


@pytest.fixture
def path(bundled: tuple[Path, BundleReport]) -> Path:
    return bundled[0]


def _texts(model: Model) -> tuple[Any, ...]:
    """What all modules of a model give."""
    session = model.session()
    session.feed(PROMPT)
    extended = session.extend(list(range(20, 31)))
    generations = model.generate_many([PROMPT, PROMPT[:3], [9]], sequences=3, max_tokens=9, greedy=True)
    drafted = model.generate(PROMPT, max_tokens=12, greedy=True, draft="lookup").read()
    return model.logits(PROMPT).tobytes(), extended.tobytes(), [own.read() for own in generations], drafted


def test_a_bundle_gives_the_bits_of_its_model(path: Path, tiny_llama: Path) -> None:
    bundle, plain = load_model(path), load_model(tiny_llama, **OPTIONS)
    assert _texts(bundle) == _texts(plain)
    assert (bundle.context, bundle.chunk, bundle.activations) == (plain.context, plain.chunk, plain.activations)
    assert bundle.config.numbers() == plain.config.numbers()
    assert bundle.texts == plain.texts
    assert bundle.stats.prepared == "mapped"
    assert bundle.stats.compile_seconds == 0


def test_texts_and_chats_are_the_models(path: Path, tiny_llama: Path) -> None:
    bundle, plain = load_model(path), load_model(tiny_llama, **OPTIONS)
    assert bundle.tokenize("the cat sat") == plain.tokenize("the cat sat")
    assert bundle.tokenizer.tokens == plain.tokenizer.tokens
    messages = [{"role": "user", "content": "hello"}]
    assert bundle.chat_ids(messages) == plain.chat_ids(messages)
    assert repr(bundle) == "Model(tiny.rlx, llama, 2 layers, context 64)"


def test_sessions_go_on_in_a_bundle(path: Path, tiny_llama: Path, tmp_path: Path) -> None:
    session = load_model(tiny_llama, **OPTIONS).session()
    session.feed(PROMPT)
    session.save(tmp_path / "talk")
    restored = load_model(path).restore(tmp_path / "talk")
    assert restored.step(3).tobytes() == session.step(3).tobytes()


def test_each_level_gives_the_bits_of_code_for_its_cpu(path: Path, tiny_llama: Path) -> None:
    for cpu in (SMALLER, "native"):
        expected = load_model(tiny_llama, cpu=cpu, **OPTIONS).logits(PROMPT)
        assert load_model(path, cpu=cpu).logits(PROMPT).tobytes() == expected.tobytes()
    (used,) = {load_model(path, cpu=SMALLER).programs.decode.artifact.target["cpu"]}
    assert used == SMALLER


def test_the_best_level_comes_first_and_weights_are_there_once(bundled: tuple[Path, BundleReport]) -> None:
    path, report = bundled
    bundle = Bundle(path)
    assert [level.name for level in bundle.levels] == ["native", SMALLER] == list(report.levels)
    assert bundle.level().name == "native"
    assert bundle.level(SMALLER).name == SMALLER
    assert list(bundle.modules) == ["prefill", "decode", "batch", "extend"] == list(report.modules)
    with Container(path) as container:
        assert container.section(weights_section(0)).size > 100_000
        assert container.section(weights_section(1)).size == 0  # both CPUs have panels of the same layout
        document = json.loads(container.read(MANIFEST))
    assert report.size == path.stat().st_size
    assert all(offset % ALIGNMENT == 0 for _, offset, _, _ in document["parameters"])
    assert str(report).startswith(f"{path}: ")
    assert report.to_dict()["kind"] == "decoder"


def test_parameters_are_mapped_and_not_copied(path: Path) -> None:
    model = load_model(path)
    prefill, decode = (getattr(model.programs, name).prepared for name in ("prefill", "decode"))
    shared = {array.ctypes.data for array in prefill} & {array.ctypes.data for array in decode}
    assert len(shared) == len(prefill)
    assert not any(array.flags.writeable or array.flags.owndata for array in prefill)
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in prefill)


_ALONE = """
import sys
import rlx_mlir
model = rlx_mlir.load_model(sys.argv[1])
print(model.generate([5, 6, 7], greedy=True, max_tokens=4, ignore_eos=True).ids or "")
session = model.session()
session.feed([5, 6, 7])
session.extend([1, 2, 3])
generations = model.generate_many([[5, 6], [7]], max_tokens=3, greedy=True)
assert all(own.error is None for own in generations)
known = ("mlir", "rlx_mlir._compiler", "rlx_mlir.compiler", "rlx_mlir.options", "rlx_mlir.ir", "rlx_mlir.mir")
known += ("rlx_mlir.hir", "rlx_mlir.lowering", "rlx_mlir.codegen", "rlx_mlir.rewriting", "rlx_mlir.dialects")
known += ("rlx_mlir.frontends.huggingface",)
known += ("typer", "rich", "jinja2", "sentencepiece", "safetensors", "huggingface_hub", "filelock", "platformdirs")
print([name for name in known if name in sys.modules])
"""


def test_running_a_bundle_loads_nothing_that_compiles(path: Path, tmp_path: Path) -> None:
    """No file of a cache is looked for either: there is none."""
    environment = {**os.environ, "RLX_CACHE_DIR": str(tmp_path / "nothing")}
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, str(path)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert not (tmp_path / "nothing").exists()


_WITHOUT = """
import sys
for name in ("tokenizers", "jinja2", "sentencepiece"):
    sys.modules[name] = None
import rlx_mlir
model = rlx_mlir.load_model(sys.argv[1])
session = model.session()
session.feed([5, 6, 7])
for call in (lambda: model.tokenize("a"), lambda: model.chat_template, lambda: model.generate("a")):
    try:
        call()
        print("no error")
    except rlx_mlir.errors.RlxError as error:
        print(type(error).__name__, error)
"""


def test_what_texts_need_is_named_where_it_is_missing(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT, str(path)], capture_output=True, text=True, check=True)
    tokens, template, text = done.stdout.splitlines()
    assert tokens.startswith("TokenizerError")
    assert "need the package tokenizers, which is not installed: pip install tokenizers" in tokens
    assert template.startswith("ChatTemplateError")
    assert "need the package jinja2, which is not installed: pip install jinja2" in template
    assert text == tokens


def test_a_large_model_decodes_with_as_many_threads_as_read_its_weights(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is measured with is in the bundle: nothing is compiled for that either."""
    for module in (bundling, bundled_models, threads):
        monkeypatch.setattr(module, "LEAST_BYTES", 1)
    monkeypatch.setattr(threads, "_BYTES", 1 << 20)
    monkeypatch.setattr(threads, "_ROUNDS", 1)
    monkeypatch.setattr(threads, "_UNDISTURBED", 0.0)
    monkeypatch.setattr(threads, "ENOUGH", 0.0)  # then one thread is
    for variable in (threads.VARIABLE, "RLX_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    rlx.bundle(tiny_llama, tmp_path / "m.rlx", **OPTIONS)
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(threads, "product_artifact", pytest.fail)
    monkeypatch.setattr(threads.native, "default_threads", lambda: 2)
    assert load_model(tmp_path / "m.rlx").decode_threads == 1
    assert len(list((tmp_path / "cache" / "machine").iterdir())) == 1
    assert load_model(tmp_path / "m.rlx", threads=2).decode_threads == 2
    monkeypatch.setenv(threads.VARIABLE, "3")
    assert load_model(tmp_path / "m.rlx").decode_threads == 3


# Options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": 32}, "'context' 64, but 32 is asked for"),
        ({"chunk": 512}, "'chunk' 16, but 512 is asked for"),
        ({"activations": "int8"}, "'activations' 'exact', but 'int8' is asked for"),
        ({"kv_dtype": "f16"}, "'kv_dtype' 'f32', but 'f16' is asked for"),
        ({"nonfinite": "zero"}, "'nonfinite' 'refuse', but 'zero' is asked for"),
        ({"quantize": "q4_k"}, "'quantize' None, but 'q4_k' is asked for"),
        ({"lora": "adapter"}, "'lora' None, but 'adapter' is asked for"),
        ({"target": "cuda"}, "'target' 'cpu', but 'cuda' is asked for"),
    ],
)
def test_options_that_are_fixed_are_refused(path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=rf"tiny\.rlx' was bundled with {message}"):
        load_model(path, **options)


def test_options_that_agree_and_those_that_are_free_are_taken(path: Path) -> None:
    model = load_model(path, **OPTIONS, kv_dtype="f32", nonfinite="refuse", threads=1, cache=False, download=False)
    assert model.threads == model.decode_threads == 1


@pytest.mark.wide
def test_options_are_kept(tiny_llama: Path, tmp_path: Path) -> None:
    options = {**OPTIONS, "kv_dtype": "f16", "quantize": "q8_0"}
    rlx.bundle(tiny_llama, tmp_path / "m.rlx", **options)
    model = load_model(tmp_path / "m.rlx", kv_dtype="f16")
    assert model.config.kv_dtype == "f16"
    assert model.logits(PROMPT).tobytes() == load_model(tiny_llama, **options).logits(PROMPT).tobytes()
    with pytest.raises(InputError, match="'kv_dtype' 'f16', but 'f32' is asked for"):
        load_model(tmp_path / "m.rlx", kv_dtype="f32")


def test_a_level_that_isnt_there_is_named(path: Path) -> None:
    with pytest.raises(InputError, match=rf"has code for native, {SMALLER}, but 'cpu' 'znver9' is asked for"):
        load_model(path, cpu="znver9")


@pytest.mark.slow
def test_a_machine_that_lacks_every_level_is_told_what(tiny_llama: Path, tmp_path: Path) -> None:
    rlx.bundle(tiny_llama, tmp_path / "m.rlx", cpu=[LACKING], **OPTIONS)
    with pytest.raises(ExecutionError, match=rf"has code for {LACKING}, but this machine can't .*{LACKING} needs \w+"):
        load_model(tmp_path / "m.rlx")


def test_a_machine_of_another_kind_is_told_what(path: Path, tmp_path: Path) -> None:
    def foreign(document: dict[str, Any]) -> None:
        for level in document["levels"]:
            level["triple"] = "riscv64-linux-gnu"

    other = with_manifest(path, tmp_path / "o.rlx", foreign)
    with pytest.raises(ExecutionError, match=rf"any of them: native needs riscv64, where .*; {SMALLER} needs riscv64"):
        load_model(other)
    with pytest.raises(ExecutionError, match="can't run that: native needs riscv64"):
        load_model(other, cpu="native")


def test_a_level_that_the_machine_lacks_is_left_out(path: Path, tmp_path: Path) -> None:
    def lacking(document: dict[str, Any]) -> None:
        document["levels"][0]["features"] += ",+nothing-has-this"

    model = load_model(with_manifest(path, tmp_path / "o.rlx", lacking))
    assert model.programs.decode.artifact.target["cpu"] == SMALLER


# Writing ----------------------------------------------------------------------------------------------


def test_a_loaded_model_is_bundled_as_it_is(path: Path, tiny_llama: Path, tmp_path: Path) -> None:
    steps: list[str] = []
    load_model(tiny_llama, **OPTIONS).save_bundle(tmp_path / "m.rlx", cpu="native", progress=steps.append)
    assert steps[0] == "compiling prefill, decode, batch, extend for native, 1 of 1"
    assert load_model(tmp_path / "m.rlx").logits(PROMPT).tobytes() == load_model(path).logits(PROMPT).tobytes()
    with pytest.raises(InputError, match=r"m\.rlx' can't be bundled: it is a bundle itself"):
        load_model(tmp_path / "m.rlx").save_bundle(tmp_path / "again.rlx")


def _tokenizer(folder: Path) -> None:
    """Gives a folder a tokenizer of bytes and some merges, and a chat template."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer, made.decoder = ByteLevel(False), tokenizers.decoders.ByteLevel()
    trainer = BpeTrainer(vocab_size=280, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    made.train_from_iterator(["the cat sat on the mat"] * 5, trainer)
    made.add_special_tokens(["<s>", "</s>"])
    made.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "chat_template": tiny_models.TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


@pytest.mark.quick(1)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.wide
def test_folders_are_bundled(dtype: str, tmp_path: Path) -> None:
    folder, _ = folders.write_both(tmp_path, "qwen3", dtype)
    _tokenizer(folder)
    rlx.bundle(folder, tmp_path / "m.rlx", **OPTIONS)
    bundle, plain = load_model(tmp_path / "m.rlx"), load_model(folder, **OPTIONS)
    assert bundle.logits(PROMPT).tobytes() == plain.logits(PROMPT).tobytes()
    assert bundle.config.numbers() == plain.config.numbers()
    assert bundle.tokenize("the cat", bos=True) == plain.tokenize("the cat") != plain.tokenize("the cat", bos=False)
    messages = [{"role": "user", "content": "the mat"}]
    assert bundle.chat_ids(messages) == plain.chat_ids(messages)
    assert bundle.texts == plain.texts
    assert bundle.tokenizer.stop_ids == plain.tokenizer.stop_ids


@pytest.mark.parametrize("architecture", ["gemma3", "phi3", "qwen2"])
@pytest.mark.slow
def test_other_architectures_are_bundled(architecture: str, tmp_path: Path) -> None:
    path = tiny_models.write(tmp_path / "m.gguf", architecture=architecture)
    rlx.bundle(path, tmp_path / "m.rlx", **OPTIONS)
    expected = load_model(path, **OPTIONS).logits(PROMPT)
    assert load_model(tmp_path / "m.rlx").logits(PROMPT).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("cpu", "message"),
    [
        ("x86/64", "'cpu' is native or a CPU as LLVM names it, such as x86-64-v3, but got 'x86/64'"),
        ([], "'cpu' names one CPU or several, each once, but got none"),
        (["native", "native"], "each once, but got native, native"),
        (3, "'cpu' expects several names, but got 3"),
        ("nothing-like-it", "nothing-like-it"),
    ],
)
def test_cpus_that_cant_be_are_refused(tiny_llama: Path, tmp_path: Path, cpu: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rlx.bundle(tiny_llama, tmp_path / "m.rlx", cpu=cpu, **OPTIONS)
    assert not list(tmp_path.iterdir())


def test_what_fails_leaves_no_file(tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "m.rlx").write_bytes(b"old")
    monkeypatch.setattr("rlx_mlir.models.bundling._Weights._add", fail)
    with pytest.raises(OSError, match="No space left"):
        rlx.bundle(tiny_llama, tmp_path / "m.rlx", **OPTIONS)
    assert [own.read_bytes() for own in tmp_path.iterdir()] == [b"old"]


def test_options_of_the_other_kind_are_refused(tiny_llama: Path, path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'batch' says nothing about .*tiny\.gguf', which is a language model"):
        rlx.bundle(tiny_llama, tmp_path / "m.rlx", batch=3)
    with pytest.raises(InputError, match=r"tiny\.rlx' is a bundle already"):
        rlx.bundle(path, tmp_path / "m.rlx")


# The file as a model's file -----------------------------------------------------------------------------


def test_a_bundle_says_what_its_model_was(path: Path, tiny_llama: Path) -> None:
    file, plain = open_model(path), open_model(tiny_llama)
    assert file.architecture == "llama"
    assert {name: (info.type, info.shape, info.nbytes) for name, info in file.tensors.items()} == {
        name: (info.type, info.shape, info.nbytes) for name, info in plain.tensors.items()
    }
    assert {**file.metadata}.keys() == {**plain.metadata}.keys()
    assert file.fingerprint() == plain.fingerprint()
    with pytest.raises(InputError, match=r"tensor 'output_norm.weight' is asked for, but .*tiny\.rlx' is a bundle"):
        file.tensor("output_norm.weight")


def test_files_that_arent_bundles_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"m\.rlx: a bundle is a regular file, but there is no such file"):
        load_model(tmp_path / "m.rlx")
    (tmp_path / "m.rlx").mkdir()
    with pytest.raises(ModelFileError, match="but it is a folder"):
        load_model(tmp_path / "m.rlx")
    (tmp_path / "n.rlx").write_bytes(b"RLXMLIR\0 and more")
    with pytest.raises(InputError, match=r"n\.rlx: not a bundle of a model: it starts with b'RLXMLIR"):
        load_model(tmp_path / "n.rlx")
    os.mkfifo(tmp_path / "p.rlx")
    with pytest.raises(ModelFileError, match="but it is a FIFO"):
        load_model(tmp_path / "p.rlx")


def test_the_name_doesnt_matter(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").write_bytes(path.read_bytes())
    monkeypatch.setattr(compiling, "compile_program", pytest.fail)
    assert load_model(tmp_path / "model").logits([1, 2]).shape == (2, 300)


def test_artefacts_and_bundles_are_told_apart(path: Path) -> None:
    with pytest.raises(RlxError, match="load_model"):
        rlx.load(path)


def test_prepared_parameters_are_checked(path: Path) -> None:
    bundle = Bundle(path)
    executable = bundle.executable("decode", bundle.level())
    arrays = list(executable.prepared)
    with pytest.raises(InputError, match=rf"reads {len(arrays)} prepared parameters, but got {len(arrays) - 1}"):
        executable.set_prepared(arrays[:-1])
    with pytest.raises(InputError, match=r"prepared parameter '.*' has "):
        executable.set_prepared([*arrays[:-1], np.zeros((3, 3, 3), np.float32)])
    wide = next(number for number, array in enumerate(arrays) if array.ndim == 2)
    with pytest.raises(InputError, match="is a contiguous, aligned array, but got strides"):
        executable.set_prepared([np.asfortranarray(a) if n == wide else a for n, a in enumerate(arrays)])
    executable.set_prepared(arrays)


# Published models -----------------------------------------------------------------------------------------

_PEAK = """
import sys
import rlx_mlir
from rlx_mlir.models.generation import peak_rss
model = rlx_mlir.load_model(sys.argv[1])
session = model.session()
session.feed(list(range(100, 120)))
print(peak_rss())
"""


@pytest.mark.slow
def test_smollm2_is_bundled(smollm2_path: Path, tmp_path: Path) -> None:
    """The same bits and texts for each CPU; no more memory than the file, keys and values, and a tenth more."""
    path = tmp_path / "smollm2.rlx"
    report = rlx.bundle(smollm2_path, path, cpu=[SMALLER, "native"])
    for cpu in ("", SMALLER):
        bundle, plain = load_model(path, cpu=cpu), load_model(smollm2_path, cpu=cpu)
        ids = plain.tokenize("The capital of France is")
        assert bundle.logits(ids).tobytes() == plain.logits(ids).tobytes()
        options: dict[str, Any] = {"chat": True, "greedy": True, "max_tokens": 12}
        assert bundle.generate("Hello", **options).read() == plain.generate("Hello", **options).read()
    peak = int(subprocess.run([sys.executable, "-c", _PEAK, str(path)], capture_output=True, check=True).stdout)
    caches = bundle.context * bytes_per_token(bundle.config)
    assert peak <= 1.1 * (report.size + caches)


def test_where_a_file_goes_is_looked_at_first(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is compiled, or a text is run for an importance matrix; and nothing is left there."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")

    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("it was begun")

    for module, name in ((bundling, "_write_source"), (quantizing, "importance_of"), (quantizing, "quantize_file")):
        monkeypatch.setattr(module, name, never)
    for name, problem in (("folder", IsADirectoryError), ("file/model.rlx", OSError)):
        with pytest.raises(problem):
            rlx.bundle(tiny_llama, tmp_path / name)
        with pytest.raises(problem):
            quantizing.quantize(tiny_llama, tmp_path / name, "q8_0", importance="text.txt")
    with pytest.raises(AssertionError, match="it was begun"):
        rlx.bundle(tiny_llama, tmp_path / "new" / "model.rlx")
    assert list((tmp_path / "new").iterdir()) == []


def test_bundles_are_not_quantised(tiny_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"tiny\.rlx' is a bundle, .*: quantise the model that it was made of"):
        quantizing.quantize(tiny_bundle, tmp_path / "a.gguf", "q8_0")
