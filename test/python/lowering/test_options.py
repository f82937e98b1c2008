# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every documented option is used once, end to end: what it takes is compiled, run, and right."""

from __future__ import annotations

import inspect
import json
import platform
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_encoders
import typer
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.compiler import CompileOptions
from rlx_mlir.fuzz.cases import case_of
from rlx_mlir.lowering.machine import machine
from rlx_mlir.measure import shapes
from rlx_mlir.models.loading import load_model
from rlx_mlir.tools.cli import app

# Compiling -----------------------------------------------------------------------------------------


def product() -> GraphModule:
    m = GraphModule.mir("product")
    m.set_outputs({"y": m.silu(m.matmul(m.input("x", ["n", 24]), m.param("w", [24, 40])))})
    return m


#: For each option what is given; for GPUs what goes with it. Those of this machine run, the others give artefacts.
COMPILING: dict[str, list[dict[str, Any]]] = {
    "target": [{"target": "cpu"}, {"target": "nvptx"}],
    "activations": [{"activations": "exact"}, {"activations": "int8"}],
    "intermediates": [{"intermediates": "rounded"}, {"intermediates": "wide"}],
    "maxima": [{"maxima": {"n": 700}}],
    "disable_templates": [{"disable_templates": ("all",)}, {"disable_templates": ("gemm",)}],
    "triple": [{"triple": machine()[0]}],
    "cpu": [{"cpu": name} for name in ("x86-64", "x86-64-v2") if platform.machine() == "x86_64"]
    or [{"cpu": "generic"}],
    "features": [{"features": "+sse2" if platform.machine() == "x86_64" else "+neon"}],
    "chip": [{"target": "nvptx", "chip": "sm_80"}],
    "ptx": [{"target": "nvptx", "chip": "sm_90a", "ptx": "8.6"}],
    "cubin": [{"target": "nvptx", "cubin": "never"}],
    "level": [{"level": level} for level in range(4)],
    "choices": [{"choices": {"product": {"tile_rows": 2}}}],
    "verify": [{"verify": False}, {"verify": True}, {"verify": "numeric"}],
    "dump_dir": [{"dump_dir": None}],
    "passes": [{"passes": {"after:rlx-fuse": "canonicalize,cse"}}],
    "skip_fusion": [{"skip_fusion": True}, {"skip_fusion": ("mir-fuse-swiglu",)}],
    "time_limit": [{"time_limit": 500.0}],
}


def test_every_option_of_compile_is_used() -> None:
    assert COMPILING.keys() == {each.name for each in fields(CompileOptions)}


@pytest.mark.parametrize("options", [own for uses in COMPILING.values() for own in uses], ids=str)
@pytest.mark.quick(1)
def test_compiled_with(options: dict[str, Any], tmp_path: Path) -> None:
    if "dump_dir" in options:
        options = {"dump_dir": tmp_path / "dump"}
    if "choices" in options:  # kernels are named after what is joined in them
        (kernel,) = rlx.compile(product(), cache=False).artifact.kernels
        options = {"choices": {kernel: options["choices"]["product"]}}
    executable = rlx.compile(product(), cache=False, **options)
    if options.get("target") == "nvptx":
        assert b".entry" in executable.device_code or executable.kernels
        return
    rows = options.get("maxima", {}).get("n", 9)
    random = np.random.default_rng(0)
    x, w = random.standard_normal((rows, 24), np.float32), random.standard_normal((24, 40), np.float32)
    executable.set_params({"w": w})
    z = x.astype(np.float64) @ w
    np.testing.assert_allclose(executable.run({"x": x})["y"], z / (1 + np.exp(-z)), rtol=1e-4, atol=1e-5)
    if "dump_dir" in options:
        (overview,) = (tmp_path / "dump").rglob("README.md")
        assert "# Passes that changed `product`" in overview.read_text()


# Models --------------------------------------------------------------------------------------------

#: For each parameter of `load_model` a value; whether logits stay the same bits, or nearly the same.
LOADING: dict[str, tuple[Any, bool]] = {
    "threads": (2, True),
    "activations": ("int8", False),
    "context": (48, True),
    "chunk": (8, True),
    "kv_dtype": ("f16", False),
    "nonfinite": ("zero", True),
    "quantize": ("q8_0", False),
    "target": ("cpu", True),
    "cache": (False, True),
    "prepared_cache": (False, True),
    "download": (False, True),
    "progress": (lambda words: None, True),
    "cpu": ("native", True),
    "time_limit": (500.0, True),
    "lora": (None, True),  # adapters are written in test/python/finetuning
}
PROMPT = list(range(10, 30))


def test_every_option_of_models_is_used() -> None:
    path, *others = inspect.signature(load_model).parameters
    assert path == "path_or_name"
    assert set(others) <= LOADING.keys()


#: What lines of commands have too: models with these options are compiled once.
SMALL: dict[str, Any] = {"activations": "exact", "threads": 1, "context": 64, "chunk": 16}


@pytest.fixture(scope="module")
def plain(tiny_llama: Path) -> np.ndarray:
    return load_model(tiny_llama, **SMALL).logits(PROMPT)


@pytest.mark.parametrize(
    "option",
    [  # two of those for which the model is compiled again
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("context", "chunk", "cache", "kv_dtype")))
        for name in inspect.signature(load_model).parameters
        if name in LOADING
    ],
)
def test_loaded_with(option: str, tiny_llama: Path, plain: np.ndarray) -> None:
    value, same = LOADING[option]
    model = load_model(tiny_llama, **{**SMALL, option: value})
    logits = model.logits(PROMPT)
    if same:
        np.testing.assert_array_equal(logits, plain)
    else:
        np.testing.assert_allclose(logits, plain, atol=0.1 * float(np.abs(plain).max()))
        assert not np.array_equal(logits, plain)


# Commands ------------------------------------------------------------------------------------------

#: Command lines that use the options; words in braces are files.
LINES = (
    "generate {llama} hello --max-tokens 3 --temperature 0.7 --top-k 3 --top-p 0.9 --seed 1 --stop zzz --chat "
    "--threads 1 --activations exact --context 64 --chunk 16 --kv-cache f16 --no-prepared-cache --device cpu --json "
    "--stats",
    "generate {llama} hello --greedy --max-tokens 2 --nonfinite zero --quantize q8_0 --activations exact --context 64 "
    "--chunk 16",
    "generate {llama} hello --max-tokens 3 --min-p 0.1 --repetition-penalty 1.1 --presence-penalty 0.1 "
    "--frequency-penalty 0.1 --logprobs 2 --draft lookup --activations exact --context 64 --chunk 16 --json --stats",
    "generate {llama} hello --max-tokens 3 --session {session} --save-session {out} --activations exact --context 64 "
    "--chunk 16",
    "generate {llama} hello --max-tokens 30 --json-schema {schema} --activations exact --context 64 --chunk 16",
    "generate {llama} hello --max-tokens 3 --grammar {grammar} --activations exact --context 64 --chunk 16",
    "generate {llama} hello --max-tokens 3 --regex [0-9]+ --activations exact --context 64 --chunk 16",
    "batch {llama} {prompts} -o {out} --sequences 2 --chat --unordered --resume --max-tokens 3 --temperature 0.7 "
    "--top-k 3 --top-p 0.9 --min-p 0.1 --seed 1 --stop zzz --repetition-penalty 1.1 --presence-penalty 0.1 "
    "--frequency-penalty 0.1 --logprobs 1 --regex [0-9]+ --threads 1 --activations exact --context 64 --chunk 16 "
    "--kv-cache f32 --no-prepared-cache --device cpu --json",
    "batch {llama} {prompts} -o {out} --greedy --max-tokens 2 --nonfinite zero --quantize q8_0 --lora {adapter} "
    "--grammar {grammar} --activations exact --context 64 --chunk 16",
    "batch {llama} {prompts} -o {out} --max-tokens 30 --json-schema {schema} --activations exact --context 64 "
    "--chunk 16",
    "chat {llama} --system short --max-tokens 2 --temperature 0.7 --top-k 3 --top-p 0.9 --seed 1 --device cpu "
    "--threads 1 --activations exact --context 64 --chunk 16 --kv-cache f16",
    "serve {llama} --host 127.0.0.1 --port 0 --name tiny --embeddings {bert} --api-key key --sequences 2 --queue 3 "
    "--memory 100 --prefix-memory 1 --max-tokens 20 --time-limit 60 --body-limit 100 --connections 9 --grace 1 "
    "--allowed-host a.example --cors-origin https://a.example --log --device cpu --threads 1 --activations exact "
    "--context 64 --chunk 16 --kv-cache f16",
    "embed {bert} the --threads 1 --batch 1 --max-tokens 8 --prompt query --json",
    "models --json",
    "models --verify",
    "inspect {llama} --tensors --verify --json",
    "compile {llama} -o {out} --weights --threads 1 --activations exact --context 64 --chunk 16 --time-limit 900 "
    "--json",
    "compile {llama} --timing --context 64 --chunk 16",
    "compile {llama} -o {out} --target nvptx --chip sm_80 --ptx 8.6 --cubin never --context 64 --chunk 16",
    "bundle {llama} -o {out} --cpu {cpu} --cpu native --activations exact --context 64 --chunk 16 --kv-cache f16 "
    "--nonfinite zero --quantize q8_0 --lora {adapter} --time-limit 900 --json",
    "bundle {bert} -o {out} --batch 2 --max-tokens 8",
    "generate {llama} hello --greedy --max-tokens 2 --cpu {cpu} --activations exact --context 64 --chunk 16",
    "chat {llama} --max-tokens 2 --cpu native --activations exact --context 64 --chunk 16",
    "batch {llama} {prompts} -o {out} --max-tokens 2 --cpu native --activations exact --context 64 --chunk 16",
    "serve {llama} --port 0 --cpu native --activations exact --context 64 --chunk 16",
    "embed {bert} the --cpu {cpu}",
    "emit {module} --stage llvm --triple {triple} --cpu {cpu} --features {features} -o {out}.ll",
    "emit {llama} --stage mir --function decode --activations exact --context 64 --chunk 16 --inspect",
    "emit {module} --stage asm --kernel {kernel}",
    "emit {module} --stage ptx --target nvptx --chip sm_90a --ptx 8.6",
    "emit {module} --stage shared --params {weights} --weights embed --name own --cc cc -o {out}.so",
    "emit {module} --stage kernels --load {passes} --pass after:rlx-fuse=cse --skip-fusion mir-fuse-swiglu",
    "draw {llama} --stage mir --function decode --depth 0 --activations exact --context 64 --chunk 16 -o {out}.svg",
    "export {module} --stage kernels --activations exact -o {out}.json",
    "export {llama} --function decode --context 64 --chunk 16",
    "estimate {llama} --function decode --context 64 --chunk 16 --json",
    "estimate {module} --maximum n=16 --target cpu --activations exact",
    "report {llama} --function decode --activations exact --context 64 --chunk 16 --ranges f16 --json "
    "--skip-fusion all",
    "report {module} --target nvptx --chip sm_80",
    "report {clean} --assert-clean",
    "bench --model {llama} --threads 1 --prompt 4 --decode 2 --activations exact --rounds 1 --device cpu --json "
    "--sequences 2",
    "bench --shape 1b-q4_0 --layers 1 --folder {out} --threads 1 --prompt 2 --decode 2 --context 40 --kv-cache f16 "
    "--rounds 1 --json",
    "bench --kernels softmax --vs numpy --threads 1 --rounds 1 --json",
    "profile {llama} --prompt-tokens 4 --decode 2 --rounds 1 --trace {out}.json --plot {out}.html --json --device cpu "
    "--threads 1 --activations exact --context 64 --chunk 16 --kv-cache f16 --cpu native",
    "profile {module} --size n=5 --maximum n=16 --rounds 1",
    "tune {module} --size n=5 --maximum n=16 --rounds 3 --tries 1 --same-bits --dry-run --json --threads 1",
    "tune {module} --arrays {arrays} --rounds 3 --tries 1 --dry-run",
    "tune {llama} --prompt-tokens 4 --rounds 3 --tries 1 --dry-run --device cpu --activations exact --context 64 "
    "--chunk 16 --kv-cache f16 --cpu native",
    "artifact show {artifact} --json",
    "artifact verify {artifact} --json",
    "cache list --json",
    "cache explain {llama} --activations exact --context 64 --chunk 16 --json",
    "cache clear --models --json",
    "emit {module} --to stablehlo --size n=5 -o {out}.mlir",
    "check-against torch {module} --size n=5 --seed 1 --factor 2 --json",
    "check-against torch {llama} --function prefill --context 64 --chunk 16 --size seq=2 --size outputs=1 "
    "--size context=4",
    "check-gpu --only copies --number 0 --timeout 300 --json",
    "fuzz graphs --seed 1 --count 1 --minutes 5 -j 1 --first 4 --out {out} --op mir.add --load {operations} --json",
    "fuzz derivatives --seed 1 --count 1 --minutes 5 -j 1 --first 4 --out {out} --json",
    "fuzz gguf {llama} --seed 1 --count 2 --minutes 5 -j 1 --first 3 --out {out} --json",
    "fuzz text --seed 1 --count 2 --minutes 5 -j 1 --first 3 --out {out} --corpus {corpus} --json",
    "fuzz bytecode --seed 1 --count 1 --minutes 5 -j 1 --first 0 --out {out} --corpus {corpus} --json",
    "fuzz scaling --seed 1 --count 1 --minutes 5 -j 1 --first 0 --out {out} --json",
    "fuzz templates --seed 1 --count 2 --minutes 5 -j 1 --first 3 --out {out} --json",
    "fuzz folders --seed 1 --count 2 --minutes 5 -j 1 --first 3 --out {out} --json",
    "fuzz replay {case} --json",
    "ops swiglu --json",
    "calibrate {module} {inputs} --params {weights} --method percentile --percentile 99 --quantize -o {out}.mlir",
    "calibrate {module} {inputs} --params {weights} --least-ratio 20 --quantize",
    "finetune {llama} {dialogues} -o {out} --lora 2 --alpha 4 --targets q --length 16 --batch 1 --accumulate 2 "
    "--steps 2 --lr 1e-3 --warmup 1 --weight-decay 0.1 --clip-norm 2 --seed 1 --pack --eval 0.5 "
    "--checkpoint {out}.safetensors --save-every 1 --resume --base tiny --memory 500 --threads 1 --json",
    "finetune {llama} {dialogues} -o {out} --epochs 0.5 --length 16 --batch 1",
    "quantize {llama} -o {out}.gguf --type q5_0 --imatrix {text} --chunks 1 --threads 1 --json",
    "quantize {llama} --type q8_0 --dry-run",
    "merge-lora {llama} {adapter} -o {out}.gguf --type f16 --json",
    "eval {llama} {text} --context 16 --stride 8 --lora {adapter} --activations exact --kv-cache f16 --against {llama} "
    "--against-lora {adapter} --against-activations int8 --per-token --layers --tolerance 0.5 --threads 1 "
    "--chunk 16 --device cpu --json",
    "eval {llama} {text} --context 4 --halves",
    "generate {llama} hello --greedy --max-tokens 2 --lora {adapter} --activations exact --context 64 --chunk 16",
    "interesting text {module} --match mir.add --opt --cse --seconds 60",
)
#: Commands whose exit status says what was found, or whether; `check-gpu` finds no GPU on most machines, and
#: `check-against` no other library on some.
_ANSWERS = ("fuzz", "interesting", "check-against", "check-gpu")


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command with the words that lead to it."""
    command = typer.main.get_command(app) if command is None else command
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        yield from commands(inner, (*path, name))


def test_every_option_of_commands_is_used() -> None:
    """A line of the list above has each option that `--help` shows, after its command."""
    lines = [line.split() for line in LINES]
    unused = [
        " ".join([*path, option.opts[-1]])
        for path, command in commands()
        for option in command.params
        if option.param_type_name == "option" and "--help" not in option.opts and not getattr(option, "hidden", False)
        if not any(tuple(line[: len(path)]) == path and set(option.opts) & set(line) for line in lines)
    ]
    assert unused == []


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> dict[str, str]:
    tmp_path = tmp_path_factory.mktemp("files")
    (tmp_path / "corpus").mkdir()
    text = "func.func @f(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {\n  return %x : tensor<4x8xf32>\n}\n"
    (tmp_path / "corpus" / "f.mlir").write_text(text)
    module = GraphModule.mir("m")
    x = module.input("x", ["n", 24])
    module.set_outputs({"y": module.add(module.matmul(x, module.param("w", [24, 40])), np.float32(1))})
    (tmp_path / "m.mlir").write_text(module.to_text())
    (tmp_path / "clean.mlir").write_text(product().to_text())
    np.savez(tmp_path / "arrays.npz", x=np.ones((5, 24), np.float32), w=np.ones((24, 40), np.float32))
    np.savez(tmp_path / "inputs.npz", x=np.ones((5, 24), np.float32))
    np.savez(tmp_path / "weights.npz", w=np.ones((24, 40), np.float32))
    (tmp_path / "dialogues.jsonl").write_text('{"prompt": "the", "completion": " cat"}\n' * 20)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "the"}\n{"prompt": "cat", "id": 1}\n')
    (tmp_path / "grammar.lark").write_text("start: /[a-z]+/")
    (tmp_path / "schema.json").write_text('{"type": "object", "additionalProperties": false}')
    session = load_model(tiny_llama, activations="exact", context=64, chunk=16).session()
    session.feed("the")
    session.save(tmp_path / "talk.session")
    (tmp_path / "text.txt").write_text("the cat sat on the mat " * 4)
    case_of(module).save(tmp_path / "case.mlir")
    for name in ("passes", "operations"):  # each is loaded once in a process
        (tmp_path / f"{name}_of_options.py").write_text("")
    bert = tiny_encoders.BERT
    folder = tiny_encoders.write(tmp_path / "bert", bert, tiny_encoders.tensors(bert))
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "the "}}')
    adapter = tmp_path / "adapter"
    words = (
        "finetune",
        tiny_llama,
        tmp_path / "dialogues.jsonl",
        "-o",
        adapter,
        "--steps",
        1,
        "--batch",
        1,
        "--length",
        16,
    )
    assert CliRunner().invoke(app, list(map(str, words))).exit_code == 0
    compiled = rlx.compile(module, cache=False).artifact
    compiled.save(tmp_path / "m.rlx")
    found = {
        "llama": tiny_llama,
        "bert": folder,
        "module": tmp_path / "m.mlir",
        "clean": tmp_path / "clean.mlir",
        "passes": tmp_path / "passes_of_options.py",
        "operations": tmp_path / "operations_of_options.py",
        "arrays": tmp_path / "arrays.npz",
        "inputs": tmp_path / "inputs.npz",
        "weights": tmp_path / "weights.npz",
        "dialogues": tmp_path / "dialogues.jsonl",
        "text": tmp_path / "text.txt",
        "prompts": tmp_path / "prompts.jsonl",
        "grammar": tmp_path / "grammar.lark",
        "schema": tmp_path / "schema.json",
        "session": tmp_path / "talk.session",
        "adapter": adapter,
        "case": tmp_path / "case.mlir",
        "corpus": tmp_path / "corpus",
        "artifact": tmp_path / "m.rlx",
        "triple": machine()[0],
        "cpu": "x86-64-v2" if platform.machine() == "x86_64" else "generic",
        "features": "+sse2" if platform.machine() == "x86_64" else "+neon",
        "kernel": next(iter(compiled.kernels)),
    }
    return {name: str(value) for name, value in found.items()}


def _lines() -> Iterator[Any]:
    """Those that measure compile times take minutes, and models take long without the cache, or in several ways."""
    for line in LINES:
        words = line.split()
        long = words[:2] in (["fuzz", "scaling"], ["tune", "{llama}"]) or "--timing" in words
        level = [pytest.mark.slow] if long else [pytest.mark.wide] if words[:2] == ["bench", "--shape"] else []
        yield pytest.param(line, id="-".join(words[:3]), marks=level)


@pytest.mark.parametrize("line", list(_lines()))
@pytest.mark.quick(3)
def test_command_line(line: str, made: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEBUG", "")
    monkeypatch.setitem(
        shapes.SIZES, "1b", shapes.Shape("1b", 2, 256, 256, 4, 2, 300, "")
    )  # in place of hundreds of MB
    if line.startswith(("cache", "models")):  # the others share what is compiled
        monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    if line.startswith("serve"):  # it would serve until a signal; test/python/serving does
        pytest.importorskip("starlette", reason="needs the extra 'serve'")
        monkeypatch.setattr("rlx_mlir.serving.server.run", lambda _service, _listener, ready: ready())
    words = [word.format(**made, out=tmp_path / "out") for word in line.split()]

    result = CliRunner().invoke(app, words)
    assert "Traceback" not in result.output, (result.output, result.exception)
    assert result.exit_code in ((0, 1) if words[0] in _ANSWERS else (0,)), (result.output, result.exception)
    missing = ("no GPU can be used", "isn't installed")
    if "--json" in words and not any(reason in result.output for reason in missing):
        json.loads(result.stdout)
