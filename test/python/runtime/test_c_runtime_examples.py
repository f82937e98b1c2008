# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs in C with librlx_runtime.so: examples/c/chat.c, what docs/c-runtime.md shows, and how compilers find it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from c_api import COMPILER, CXX_COMPILER, STRICT
from documents import blocks, run_python, shell

import rlx_mlir as rlx
from rlx_mlir import native
from rlx_mlir.run import main

needs_cc = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
EXAMPLES = Path(__file__).parents[3] / "examples"


def options(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["library", *words]) == 0
    return shlex.split(capsys.readouterr().out)


def test_the_command_says_where_the_library_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cflags, libs = options(capsys, "--cflags"), options(capsys, "--libs")
    assert options(capsys) == options(capsys, "--cflags", "--libs") == cflags + libs
    assert Path(cflags[0][2:], "rlx", "runtime.h").is_file()
    assert Path(libs[0][2:], "librlx_runtime.so").is_file()
    monkeypatch.setattr(native, "folder", lambda: tmp_path)
    assert main(["library"]) == 1
    assert "has no librlx_runtime.so: this build has no run time for C" in capsys.readouterr().err


@needs_cc
def test_the_header_is_one_of_c_and_of_cpp(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = "#include <rlx/runtime.h>\n#include <rlx/runtime.h>\n#include <rlx.h>\n"
    for compiler, standard, suffix in ((COMPILER, "c99", "c"), (CXX_COMPILER, "c++11", "cpp")):
        if compiler is None:
            continue
        source = tmp_path / f"t.{suffix}"
        source.write_text(text + "int main(void) { return (int)rlx_runtime_version() - RLX_RUNTIME_VERSION; }\n")
        command = [compiler, f"-std={standard}", *STRICT, source, *options(capsys), "-o", tmp_path / "t"]
        subprocess.run(command, check=True)
        subprocess.run([tmp_path / "t"], check=True)


def built_chat(capsys: pytest.CaptureFixture[str], folder: Path) -> Path:
    assert COMPILER is not None
    source, program = EXAMPLES / "c" / "chat.c", folder / "chat"
    subprocess.run([COMPILER, "-std=c99", *STRICT, source, *options(capsys), "-o", program], check=True)
    return program


def talk(program: Path, bundle: Path, lines: list[str], *words: str) -> bytes:
    done = subprocess.run(
        [program, bundle, *words],
        input="".join(f"{line}\n" for line in lines).encode(),
        capture_output=True,
        check=True,
    )
    return done.stdout


@needs_cc
def test_example_of_a_chat(capsys: pytest.CaptureFixture[str], tiny_llama: Path, tmp_path: Path) -> None:
    program, bundle = built_chat(capsys, tmp_path), tmp_path / "tiny.rlx"
    rlx.bundle(tiny_llama, bundle, activations="exact", context=64, chunk=16)
    model = rlx.load_model(bundle)
    for sampling in ({"greedy": True}, {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 3}):
        session = model.session()
        session.feed([{"role": "user", "content": "the cat"}])
        # The last position of the context is processed, and one more token is chosen behind it.
        generation = session.generate(max_tokens=session.room + 1, **sampling)
        generation.read()
        expected = b"".join(map(model.tokenizer.token_bytes, generation.ids)) + b"\n"
        assert talk(program, bundle, ["the cat"], *(["3"] if "seed" in sampling else [])) == expected
    failed = subprocess.run([program, tmp_path / "none.rlx"], capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == f"chat: {tmp_path / 'none.rlx'}: No such file or directory\n"
    assert subprocess.run([program], capture_output=True, check=False).returncode == 2


@needs_cc
@pytest.mark.slow
def test_a_conversation_with_smollm2(capsys: pytest.CaptureFixture[str], smollm2_path: Path, tmp_path: Path) -> None:
    program, bundle = built_chat(capsys, tmp_path), tmp_path / "smollm2.rlx"
    rlx.bundle(smollm2_path, bundle, context=512)
    session = rlx.load_model(bundle).session()
    questions, expected = (
        ["What is the capital of France?", "And of Italy?", "Write a short poem about caf\u00e9s."],
        "",
    )
    for question in questions:
        session.feed([{"role": "user", "content": question}])
        expected += session.generate(greedy=True, max_tokens=400).read() + "\n"
    assert talk(program, bundle, questions).decode() == expected


@pytest.mark.wide
@needs_cc
def test_the_page_about_bundles_in_c(tiny_llama: Path, tmp_path: Path) -> None:
    """Each program prints what the text behind it shows."""
    if shutil.which("cc") is None:
        pytest.skip("the page compiles by cc")
    page = "docs/c-runtime.md"
    shutil.copy(tiny_llama, tmp_path / "model.gguf")
    make, *shells = blocks(page, "sh")
    shell(make.text, tmp_path)
    talked, said, ran = blocks(page, "text")
    for block in blocks(page, "c"):
        assert block.file is not None
        (tmp_path / block.file).write_text(block.text)
    # The model is random, and what it says is no text.
    assert shell(shells[0].text.replace("./talk", "./talk 2> answer"), tmp_path) == talked.text
    assert run_python(blocks(page, "python"), tmp_path) == said.text
    assert shell(shells[1].text, tmp_path) == ran.text
