# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What documentation shows exists and works: each command with its options, each name, each block of Python.

Blocks that need files or output of their own to be looked at are run elsewhere: `ELSEWHERE` says where.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device
from documents import ROOT, blocks, environment, run, run_python, shell
from typer.main import get_command

import rlx_mlir as rlx
from rlx_mlir.fuzz import primitives, scaling
from rlx_mlir.rewriting.pipelines import PIPELINES
from rlx_mlir.rewriting.registry import PASSES, register_all
from rlx_mlir.tools.cli import app

#: Written by hand; those of the dialects have tests of their own.
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    if path.name not in ("hir.md", "mir.md")
)

#: The test file that runs the Python and shell blocks of a document.
ELSEWHERE = {
    "README.md": "project/test_packaging.py",
    "docs/writing-a-pass.md": "project/test_packaging.py",
    "docs/debugging.md": "tools/test_reports.py",
    "docs/c-api.md": "runtime/test_c_examples.py",
    "docs/c-runtime.md": "runtime/test_c_runtime_examples.py",
    "docs/formats.md": "formats/test_own_formats.py",
    "docs/jax.md": "stablehlo/test_jax_documentation.py",
    "docs/onnx.md": "onnx_files/test_onnx_import.py",
    "docs/own-operations.md": "hir/test_own_ops.py",
    "docs/torch.md": "pytorch/test_torch_documentation.py",
    "CONTRIBUTING.md": "codegen_cpu/test_generators.py",
}
HERE = (
    "docs/arrays.md",
    "docs/artifacts.md",
    "docs/bundles.md",
    *("docs/control-flow.md", "docs/differentiation.md", "docs/finetuning.md", "docs/fuzzing.md", "docs/gpu.md"),
    *(
        "docs/graphs.md",
        "docs/models.md",
        "docs/quantisation.md",
        "docs/quantizing.md",
        "docs/security.md",
        "docs/serving.md",
    ),
    "docs/sessions.md",
    *("docs/sizes.md", "docs/tutorial.md"),
)

#: What commands on a line stand for a value that the reader chooses.
_STAND_INS = {"MODEL": "smollm2", "PROMPT": "x", "FILE": "x.gguf", "TEXT…": "x", "MODULE": "x.mlir"}


#: Names with a dot that are an attribute of IR, and a header.
_ATTRIBUTES = ("rlx.pdl", "rlx.h")
#: Names that begin as those of passes do.
_OTHERS = ("rlx-mlir-runtime", "rlx-run")


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def command_lines(document: str) -> Iterator[str]:
    """Lines that begin with one of our commands, in shell blocks and in backquotes."""
    starts = ("rlx ", "rlx-opt ", "rlx-reduce ", "python ", "make ", "benchmarks/")
    lines = [line for block in blocks(document, "sh") for line in block.text.splitlines()]
    # A command of its own in a sentence or table has no line break in it but for the page's width.
    lines += [
        re.sub(r"\s+", " ", found)
        for found in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text_of(document), flags=re.S))
    ]
    for line in lines:
        for part in re.split(r"\s(?:&&|\|)\s", re.sub(r"\s+# .*", "", line)):
            if part.strip().startswith(starts):
                yield part.strip()


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.quick(1)
def test_commands_take_what_documentation_gives_them(document: str) -> None:
    wrong = []
    for line in command_lines(document):
        words = [_STAND_INS.get(word, word) for word in shlex.split(line)]
        complete = line in {own for block in blocks(document, "sh") for own in block.text.splitlines()}
        try:
            if words[0].startswith("benchmarks/"):
                words.insert(0, "python")
            {"rlx": check_rlx, "python": check_script, "make": check_target}.get(words[0], skip)(words[1:], complete)
        except Exception as error:
            wrong.append(f"{line}: {error}")
    assert not wrong


def skip(words: list[str], complete: bool) -> None:
    """MLIR's tools read their options themselves; the blocks with them are run."""


def check_rlx(words: list[str], complete: bool) -> None:
    """Parses a command line; in sentences arguments may be left out, and words say what is meant."""
    command: Any = get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-") and words[0] not in "…[":
        if words[0] not in command.commands:
            raise ValueError(f"'{command.name}' has no command '{words[0]}'")
        command, words = command.commands[words[0]], words[1:]
    options = {name for own in command.params for name in (*own.opts, *own.secondary_opts)} | {"--help"}
    for word in words:
        if word.startswith("-") and word.partition("=")[0] not in options:
            raise ValueError(f"it has no option {word}")
    if complete and not hasattr(command, "commands"):
        command.make_context("rlx", list(words))


def check_script(words: list[str], complete: bool) -> None:
    """A script is there, and so are its options; of modules, the module is."""
    if words[0] == "-m":
        importlib.import_module(words[1])
        return
    path = ROOT / words[0]
    if not path.exists() and words[0] == "my_opt.py":  # the reader wrote it before
        return
    source = path.read_text(encoding="utf-8")
    if "from rlx_mlir.tools.cli import app" in source:  # it passes its options on
        check_rlx(["bench", *words[1:]], complete=False)
        return
    if path.parent.name == "benchmarks":
        source += (path.parent / "harness.py").read_text(encoding="utf-8")
    for word in words[1:]:
        if word.startswith("--") and f'"{word}"' not in source:
            raise ValueError(f"it has no option {word}")


def check_target(words: list[str], complete: bool) -> None:
    if not re.search(rf"^{words[0]}:", text_of("Makefile"), re.MULTILINE):
        raise ValueError("the Makefile has no such target")


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.quick(7)
def test_names_in_documentation_exist(document: str) -> None:
    """Of modules, functions and classes of the package, and of passes."""
    register_all()
    text = re.sub(r"```.*?```", "", text_of(document), flags=re.S)
    missing = []
    for dotted in re.findall(r"`((?:rlx|rlx_mlir)(?:\.\w+)+)\b", text):
        if dotted in _ATTRIBUTES:
            continue
        rest = dotted.split(".")[1:]
        found: Any = importlib.import_module("rlx_mlir")
        for name in rest:
            try:
                found = getattr(found, name, None) or importlib.import_module(f"{found.__name__}.{name}")
            except ImportError:
                missing.append(dotted)
                break
    known = {*_OTHERS, *PASSES, *PIPELINES, *(command.name for command in get_command(app).commands.values())}  # type: ignore[attr-defined]
    native = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("passes/*.cpp"))
    for name in re.findall(r"`((?:hir|mir|lir|cpu|gpu|kernel|rlx)(?:-[a-z0-9]+)+)\b[`{]", text):
        if name not in known and f'"{name}"' not in native and name not in text_of("pyproject.toml"):
            missing.append(name)
    assert not missing


def test_the_map_of_the_code_names_every_package() -> None:
    (tree,) = re.findall(r"```\n(dialects/.*?)```", text_of("docs/architecture.md"), flags=re.S)
    package = ROOT / "python" / "rlx_mlir"
    folders = [path.parent for path in [*package.glob("*/__init__.py"), *package.glob("codegen/*/__init__.py")]]
    folders += [ROOT / name for name in ("dialects", "passes", "runtime", "test/lit", "test/python")]
    named = [str(path.relative_to(package if package in path.parents else ROOT)) for path in folders]
    assert [name for name in named if f"{name}/" not in tree] == []


def test_every_block_is_run_by_a_test() -> None:
    with_python = {document for document in DOCUMENTS if blocks(document, "python")}
    assert with_python == {*ELSEWHERE, *HERE}
    for document, test in ELSEWHERE.items():
        assert f'"{document}"' in text_of(f"test/python/{test}")


# Blocks of Python --------------------------------------------------------------------------------


def test_generators_on_the_page_about_fuzzing_are_those_of_the_package() -> None:
    _, generator, family = blocks("docs/fuzzing.md", "python")
    assert re.sub(r"  # .*", "", generator.text) == inspect.getsource(primitives.softmax)
    decorator, signature, *_ = inspect.getsource(scaling.chain).splitlines()
    assert family.text == f"{decorator}\n{signature} ...\n"


def test_the_block_about_derivatives_on_the_page_about_fuzzing_finds_its_wrong_rule() -> None:
    block, *_ = blocks("docs/fuzzing.md", "python")
    exec(block.text, {})
    with pytest.raises(KeyError, match="kind"):  # there is no finding where the rule is right
        exec(block.text.replace("m.neg(right(m, at, x))", "right(m, at, x)"), {})


#: What the page about GPUs takes as given: a module, its weights, and arrays for it.
def _cache_module() -> dict[str, Any]:
    m = rlx.GraphModule.hir("module")
    x, pos = m.input("x", ["batch", 1, 64]), m.input("pos", ["batch"], "i32")
    cache = m.input("cache", ["batch", 128, 64])
    scaled = x * m.param("scale", [64])
    m.set_outputs({"y": scaled + 1, "cache": m.cache_update(cache, scaled, pos)})
    return {
        "rlx": rlx,
        "np": np,
        "module": m,
        "weights": {"scale": np.full(64, 2, np.float32)},
        "x": np.ones((1, 1, 64), np.float32),
        "pos": np.zeros(1, np.int32),
        "cache": np.zeros((1, 128, 64), np.float32),
    }


_PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 p_x, .param .u64 p_y, .param .u32 p_n) {
  .reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .f32 %f<6>;
  ld.param.u64 %rd1, [p_x];
  ld.param.u64 %rd2, [p_y];
  ld.param.u32 %r1, [p_n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  mov.b32 %r6, 0;
  mov.f32 %f1, 0f00000000;
  mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r6, %r6, %r6, %r6}, {%r6, %r6},
    {%f1, %f1, %f1, %f1};
  setp.ge.s32 %p1, %r5, %r1;
  @%p1 bra $done;
  mul.wide.s32 %rd3, %r5, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f5, [%rd4];
  add.f32 %f5, %f5, %f1;
  st.global.f32 [%rd5], %f5;
$done:
  ret;
}
"""


def test_blocks_about_gpus_run() -> None:
    """On the stand-in for a GPU, whose kernels the emulator runs."""
    compiling, multiplying, running, waiting, repeating, emulating = blocks("docs/gpu.md", "python")
    names = _cache_module()
    own, _, foreign = waiting.text.partition("\nstream = torch")  # torch isn't among what tests need
    assert "torch.from_dlpack" in foreign
    with emulated_device("sm_90a"):
        exec(compiling.text, names)
        assert names["artifact"].chip == "sm_90a"
        assert ".target sm_80" in names["ptx"]
        exec(multiplying.text, floats := {"rlx": rlx, "np": np})
        assert "gemv_float8|gemm_hopper" in rlx.compile(floats["m"], target="cuda").artifact.templates.values()
        exec(running.text, names)
        assert set(names["results"]) == {"y", "cache"}
        m = rlx.GraphModule.hir("other")
        m.set_outputs({"y": -m.input("x", ["batch", 1, 64])})
        names |= {"other": rlx.compile(m, target="cuda"), "results": None}
        exec(own, names)
        assert np.array_equal(names["y"], -(names["x"] * 2 + 1))
        exec(repeating.text, names)
        assert np.array_equal(names["a"].numpy(), 2**8 * names["x"] + 2**8 - 1)
    x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    exec(emulating.text, {"ptx": _PTX, "x": x, "y": y, "np": np})
    assert np.array_equal(y[:1000], x[:1000])
    assert not y[1000:].any()


@pytest.mark.parametrize("document", ["docs/control-flow.md", "docs/quantisation.md", "docs/sizes.md"])
def test_pages_run(document: str, tmp_path: Path) -> None:
    """Their blocks, each page as one program."""
    run_python(blocks(document, "python"), tmp_path)


def test_the_tutorial_runs(tmp_path: Path) -> None:
    """Its blocks as one program; what its comments say is printed is printed."""
    found = blocks("docs/tutorial.md", "python")
    text = run_python(found, tmp_path)
    assert re.search(r"^<Executable 'head' for .*: \(x: \[batch, seq, 64\] f32\) -> \(.*; 2 parameters, ", text, re.M)
    (promised,) = re.findall(r"^    # …:\d+: (.*)$", found[-1].text, re.M)
    assert re.search(rf"document\.py:\d+: {re.escape(promised)}$", text, re.M)


@pytest.mark.slow
def test_the_page_on_fine_tuning_runs(tiny_llama: Path, tmp_path: Path) -> None:
    """Its commands, then its program, in one folder, with a model and dialogues that are small."""
    shutil.copy(tiny_llama, tmp_path / "model.gguf")
    talk = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "the cat sat"}]
    (tmp_path / "dialogues.jsonl").write_text((json.dumps({"messages": talk}) + "\n") * 8)
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n")
    (commands,), (program,) = blocks("docs/finetuning.md", "sh"), blocks("docs/finetuning.md", "python")
    printed = [run([*shlex.split(line)], tmp_path) for line in commands.text.splitlines()]
    assert "held out, 2 rows: loss " in printed[0]
    assert "divergence: mean " in printed[3]
    assert "'divergence': {'mean': " in run_python([program], tmp_path)


def test_the_page_on_artifacts_runs(tmp_path: Path) -> None:
    """Its program writes files, which its commands read."""
    (program,), (commands,) = blocks("docs/artifacts.md", "python"), blocks("docs/artifacts.md", "sh")
    assert run_python([program], tmp_path).split() == ["[1.", "1.", "1.]"]
    printed = [run([*shlex.split(line)], tmp_path) for line in commands.text.splitlines()]
    assert "artifact/scores/native" in printed[0]
    assert printed[1].splitlines() == [
        f"holds  {part}" for part in ("header and table", "manifest", "artifact/scores/native", "weights/0")
    ]


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the page has levels of x86-64")
def test_the_page_on_bundles_runs(tiny_llama: Path, tmp_path: Path) -> None:
    """Its commands, then its program, in one folder, with a model that is small."""
    shutil.copy(tiny_llama, tmp_path / "model.gguf")
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n")
    (commands,), (program,) = blocks("docs/bundles.md", "sh"), blocks("docs/bundles.md", "python")
    printed = [run([*shlex.split(line)], tmp_path) for line in commands.text.splitlines()]
    assert "for native, x86-64-v3" in printed[0]
    assert "code          prefill, decode, batch, extend for native, x86-64-v3" in printed[1]
    assert "perplexity" in printed[3]
    said = run_python([program], tmp_path)
    assert "small.rlx: " in said
    assert said.rstrip().endswith("moved.rlx' was bundled with 'context' 128, but 64 is asked for")


@pytest.mark.slow
def test_the_page_on_quantizing_runs(tiny_llama: Path, tmp_path: Path) -> None:
    """Its commands, then its program, in one folder, with a model and a text that are small."""
    shutil.copy(tiny_llama, tmp_path / "model.gguf")
    (tmp_path / "text.txt").write_text("the cat sat on the mat hello world\n" * 8)
    (commands,), (program,) = blocks("docs/quantizing.md", "sh"), blocks("docs/quantizing.md", "python")
    printed = [run([*shlex.split(line)], tmp_path) for line in commands.text.splitlines()]
    assert "q4_k_m: " in printed[0]
    assert printed[1].endswith("small.gguf\n")
    assert "divergence: mean " in printed[2]
    assert "differs by more than 0.05" in printed[2]
    assert json.loads(printed[3])["mix"] == "iq4_nl"
    assert "bits a weight" in run_python([program], tmp_path)


@pytest.mark.slow
def test_the_page_on_sessions_runs(tiny_llama: Path, tmp_path: Path) -> None:
    """Its program, then its commands, in one folder, with a model that is small."""
    pytest.importorskip("llguidance")
    shutil.copy(tiny_llama, tmp_path / "model.gguf")
    printed = run_python(blocks("docs/sessions.md", "python"), tmp_path)
    assert re.search(r"^\d+ tokens, \d+ positions left$", printed, re.MULTILINE)
    for block in blocks("docs/sessions.md", "sh"):
        shell(block.text.replace(" --max-tokens", " --context 256 --max-tokens"), tmp_path)
    found = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
    assert [(row["line"], row.get("id"), row["generated_tokens"]) for row in found] == [(1, 1, 8), (2, None, 3)]


@pytest.mark.slow
def test_the_page_on_serving_runs(tiny_llama: Path, tmp_path: Path) -> None:
    """Its command serves, at a port that is free, and its program is answered."""
    pytest.importorskip("starlette", reason="needs the extra 'serve'")
    pytest.importorskip("openai", reason="needs openai, of the extra 'test'")
    shutil.copy(tiny_llama, tmp_path / "model.gguf")
    (command,), (program,) = blocks("docs/serving.md", "sh"), blocks("docs/serving.md", "python")
    words = shlex.split(command.text.replace("--port 8000", "--port 0"))
    line = [sys.executable, "-m", "rlx_mlir.tools.cli", *words[1:]]
    server = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        assert server.stderr is not None
        said = server.stderr.readline()
        assert said.startswith("rlx: serving tiny at http://127.0.0.1:")
        own = dataclasses.replace(program, text=program.text.replace("http://127.0.0.1:8000", said.split()[-1]))
        printed = run_python([own], tmp_path)
        assert "{" in printed  # a random model may fill up its context with blanks
        server.terminate()
        assert server.wait(120) == 0
    finally:
        server.kill()
        server.communicate()


@pytest.mark.slow
@pytest.mark.usefixtures("smollm2_path")
def test_blocks_about_models_run(tmp_path: Path) -> None:
    for block in blocks("docs/models.md", "python"):
        (tmp_path / "block.py").write_text(block.text)
        assert run([sys.executable, "block.py"], tmp_path)


def glossary_rows() -> list[list[str]]:
    """The cells of each term."""
    lines = re.findall(r"^\| (.*) \|$", text_of("docs/glossary.md"), flags=re.M)
    return [re.split(r"\s*\|\s*", line) for line in lines if not line.startswith("term | ")]


def test_the_glossary_names_modules_that_exist() -> None:
    homes = (ROOT / "python" / "rlx_mlir", ROOT)
    wrong = []
    for term, _, meaning, where in glossary_rows():
        names = re.findall(r"`([^`]+)`", where)
        missing = [name for name in names if not any((home / name).is_file() for home in homes)]
        if missing or not names or not meaning.endswith("."):
            wrong.append(f"{term}: {where}")
    assert wrong == []


def test_the_glossary_explains_each_term_once() -> None:
    terms = [term for row in glossary_rows() for term in row[0].split(", ")]
    assert len(terms) > 50
    assert sorted(set(terms)) == sorted(terms)
