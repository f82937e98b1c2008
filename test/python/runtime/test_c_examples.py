# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs in C, C++ and by ctypes with libraries of ours: examples/, and headers for names of every kind."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_api import COMPILER, CXX_COMPILER, STRICT, built
from compile_harness import compile_fresh
from documents import blocks, run_python, shell
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import Executable, GraphModule
from rlx_mlir.tools.cli import app

pytestmark = pytest.mark.skipif(COMPILER is None, reason="linking needs a C compiler")
needs_cxx = pytest.mark.skipif(CXX_COMPILER is None, reason="needs a C++ compiler")
EXAMPLES = Path(__file__).parents[3] / "examples"


def made() -> Executable:
    """The network of the examples."""
    spec = importlib.util.spec_from_file_location("make_mlp", EXAMPLES / "c" / "make_mlp.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    executable: Executable = module.make()
    return executable


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """The library of the examples, and what they have to print."""
    executable = made()
    path = rlx.save_shared(executable, tmp_path_factory.mktemp("mlp") / "libmlp.so").path
    x = np.array([(i % 7) / 8 - 0.25 for i in range(60)], np.float32).reshape(3, 20)
    return path, [float(value) for value in executable.run({"x": x})["y"].reshape(-1)]


def printed(*command: Any) -> list[float]:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, timeout=300)
    return [float.fromhex(line) for line in done.stdout.split()]


def test_example_in_c(mlp: tuple[Path, list[float]]) -> None:
    library, expected = mlp
    assert printed(built(EXAMPLES / "c" / "mlp.c", library, library.with_name("in_c"))) == expected


@needs_cxx
def test_example_in_cpp(mlp: tuple[Path, list[float]]) -> None:
    library, expected = mlp
    assert printed(built(EXAMPLES / "cpp" / "mlp.cpp", library, library.with_name("in_cpp"))) == expected


def test_example_of_ctypes(mlp: tuple[Path, list[float]]) -> None:
    library, expected = mlp
    # -I -S: Python's own library alone.
    assert printed(sys.executable, "-I", "-S", EXAMPLES / "ctypes" / "mlp.py", library) == expected


def emit(*words: Any) -> str:
    result = CliRunner().invoke(app, ["emit", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.wide
def test_example_of_a_decoder(tiny_llama: Path, tmp_path: Path) -> None:
    """What examples/c/decoder.c generates is what the model does."""
    library = tmp_path / "libmodel.so"
    options = ("--activations", "exact", "--context", 64, "--chunk", 16)
    said = emit(tiny_llama, "--stage", "shared", "--name", "model", *options, "-o", library)
    assert "functions prefill, decode" in said
    program = built(EXAMPLES / "c" / "decoder.c", library, tmp_path / "decoder")
    model = rlx.load_model(tiny_llama, activations="exact", context=64, chunk=16)
    for prompt in ([1], [3, 5, 2, 7], [9] * 16):
        generation = model.generate(prompt, max_tokens=12, greedy=True, ignore_eos=True)
        list(generation)
        done = subprocess.run([program, "12", *map(str, prompt)], capture_output=True, text=True, check=True)
        assert list(map(int, done.stdout.split())) == list(generation.ids)
        vocabulary = tmp_path / "model.vocabulary"
        done = subprocess.run([program, vocabulary, "12", *map(str, prompt)], capture_output=True, check=True)
        ends = [at for at, index in enumerate(generation.ids) if index in model.tokenizer.stop_ids] or [12]
        assert done.stdout == b"".join(map(model.tokenizer.token_bytes, generation.ids[: ends[0]]))
    data = vocabulary.read_bytes()
    assert f"model.vocabulary: {len(model.tokenizer.tokens)} tokens" in said
    for damaged in (b"", data[:20], data[:200], data[:-1], b"GGUF" + data[4:], data[:8] + b"\2" + data[9:]):
        vocabulary.write_bytes(damaged)
        done = subprocess.run([program, vocabulary, "1", "1"], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"model.vocabulary: it " in done.stderr
    long = subprocess.run([program, "1", *["1"] * 17], capture_output=True, text=True, check=False)
    assert (long.returncode, long.stderr) == (2, "usage: decoder [VOCABULARY] NUMBER ID...: from 1 to 16 ids\n")
    wrong = subprocess.run([program, "60", "1"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 0  # 60 behind one: 61 of 64 positions
    over = subprocess.run([program, "70", "1"], capture_output=True, text=True, check=False)
    assert over.returncode == 1
    assert "input 'pos' is 64 at index 0, but rows 64 to 64 have to be among the 64 rows" in over.stderr.replace(
        "' of 'decode'", "'"
    )


@pytest.mark.slow
@pytest.mark.network
def test_example_of_smollm2(tmp_path: Path) -> None:
    library = tmp_path / "libmodel.so"
    emit("smollm2", "--stage", "shared", "--name", "model", "-o", library)
    assert (tmp_path / "model.weights").stat().st_size > 100e6
    program = built(EXAMPLES / "c" / "decoder.c", library, tmp_path / "decoder")
    model = rlx.load_model("smollm2")
    prompt = model.tokenize("The capital of France is")
    generation = model.generate(prompt, max_tokens=20, greedy=True, ignore_eos=True)
    list(generation)
    done = subprocess.run([program, "20", *map(str, prompt)], capture_output=True, text=True, check=True)
    assert list(map(int, done.stdout.split())) == list(generation.ids)


@pytest.mark.wide
def test_examples_under_valgrind(tmp_path: Path) -> None:
    """No leak, no memory that isn't theirs; valgrind knows no more than AVX2."""
    valgrind = shutil.which("valgrind")
    if valgrind is None or platform.machine() != "x86_64":
        pytest.skip("needs valgrind, on x86-64")
    own = made()
    graph = GraphModule.hir("forward")
    x = graph.input("x", ["batch", 20])
    hidden = graph.gelu(graph.linear(x, graph.param("w1", [20, 33]), graph.param("b1", [33])))
    graph.set_outputs({"y": graph.linear(hidden, graph.param("w2", [33, 5]))})
    narrow = rlx.compile(graph, maxima={"batch": 16}, cpu="x86-64-v3")
    assert [spec.name for spec in own.params] == [spec.name for spec in narrow.params]
    rng = np.random.default_rng(0)
    narrow.set_params(
        {s.name: rng.standard_normal([int(n) for n in s.shape]).astype(np.float32) for s in narrow.params}
    )
    library = rlx.save_shared(narrow, tmp_path / "libmlp.so", weights="file").path
    for source in ("c/mlp.c", "cpp/mlp.cpp")[: 2 if CXX_COMPILER else 1]:
        program = built(EXAMPLES / source, library, tmp_path / "program")
        command = [valgrind, "-q", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect,possible"]
        done = subprocess.run([*command, "--error-exitcode=9", program], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]


def test_the_page_about_libraries(tmp_path: Path) -> None:
    """Each program prints what the text behind it shows."""
    if shutil.which("cc") is None:
        pytest.skip("the page links by cc")
    page = "docs/c-api.md"
    said, *shown = blocks(page, "text")
    assert run_python(blocks(page, "python"), tmp_path) == said.text
    for program, text in zip(blocks(page, "c"), shown, strict=True):
        (tmp_path / "net.c").write_text(program.text)
        assert shell(blocks(page, "sh")[1].text, tmp_path) == text.text


# Headers --------------------------------------------------------------------------------------------

NAMES = ["layers.0.k", "layers_0_k", "Layers-0-K", "int", "class", "3d", "é", "model", "sizes_", "a*/b", "x\\", "run"]


@pytest.mark.parametrize("outputs", [1, 24])
def test_headers_for_names_of_every_kind(tmp_path: Path, outputs: int) -> None:
    graph = GraphModule.hir("error")
    values = [graph.input(name, ["n" if number % 2 else "for", 2]) for number, name in enumerate(NAMES)]
    total = graph.concat(values, 0)
    graph.set_outputs({f"y.{number}": total for number in range(outputs)})
    executable = compile_fresh(graph, maxima={"n": 4, "for": 3})
    path = rlx.save_shared(
        {"error": executable, "error 2": executable, "load": executable}, tmp_path / "libnames.so"
    ).path
    text = path.with_name("names.h").read_text()
    assert "#define NAMES_ERROR_2 0" in text  # `names_error` is a function of every library
    assert ("names_run runs it: it has 12 inputs and 24 outputs" in text) == (outputs == 24)
    (tmp_path / "t.c").write_text(
        '#include "names.h"\n#include "names.h"\nint main(void) { return (int)names_abi_version() - 1; }\n'
    )
    shutil.copy(tmp_path / "t.c", tmp_path / "t.cpp")
    for source in ("t.c", "t.cpp")[: 2 if CXX_COMPILER else 1]:
        subprocess.run([built(tmp_path / source, path, tmp_path / "t")], check=True)


TYPED = """
#include "typed.h"
#include <stdio.h>
int main(void) {
  const rlx_options options = {RLX_ABI_VERSION, 1, NULL};
  rlx_model *model;
  float x[TYPED_MAIN_INPUT_X_MOST] = {1, 2, 3, 4, 5, 6}, z[TYPED_MAIN_INPUT_Z_MOST] = {7, 8, 9};
  float y[TYPED_MAIN_OUTPUT_Y_MOST];
  int i, status;
  if (typed_load(&options, &model) != RLX_OK)
    return 1;
  if (typed_main(model, 2, 1, x, z, y) != RLX_OK) {
    puts(typed_error(model));
    return 2;
  }
  for (i = 0; i < 5 * TYPED_MAIN_OUTPUT_Y_SIZE_1; ++i)
    printf("%g\\n", (double)y[i]);
  for (i = 0; i < 2; ++i) {
    status = typed_main(model, i ? INT64_MIN : INT64_MAX, 1, x, z, y);
    fprintf(stderr, "%d %s\\n", status, typed_error(model));
  }
  typed_free(model);
  return 0;
}
"""


def test_typed_functions_compute_sizes(tmp_path: Path) -> None:
    """And sizes that the library refuses aren't computed with in numbers that overflow."""
    graph = GraphModule.hir("main")
    x, z = graph.input("x", ["m", 3]), graph.input("z", ["n", 3])
    graph.set_outputs({"y": graph.concat([x, z, x], 0)})
    executable = compile_fresh(graph, maxima={"m": 4, "n": 4})
    assert [name for name, _ in executable.artifact.symbols] == ["m", "n"]
    path = rlx.save_shared(executable, tmp_path / "libtyped.so").path
    (tmp_path / "t.c").write_text(TYPED)
    program = built(tmp_path / "t.c", path, tmp_path / "t", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(map(float, done.stdout.split())) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6]
    rule = "1 the size of 'm' of 'main' must be from 0 to 4, but it is "
    assert done.stderr.splitlines() == [f"{rule}{2**63 - 1}", f"{rule}{-(2**63)}"]


def test_the_header_alone(tmp_path: Path) -> None:
    """It says nothing more without a prefix, and any number of prefixes may follow."""
    header = Path(__file__).parents[3] / "include" / "rlx.h"
    text = f'#include "{header}"\n' + "".join(
        f'#define RLX_PREFIX {name}\n#include "{header}"\n' for name in ("a", "b")
    )
    for compiler, standard, suffix in ((COMPILER, "c99", "c"), (CXX_COMPILER, "c++11", "cpp")):
        if compiler is None:
            continue
        source = tmp_path / f"t.{suffix}"
        source.write_text(text + "rlx_status (*own)(const rlx_options *, rlx_model **) = b_load;\n")
        subprocess.run([compiler, f"-std={standard}", *STRICT, "-fsyntax-only", source], check=True)


# The command ----------------------------------------------------------------------------------------


def test_the_command_takes_modules_and_artefacts(tmp_path: Path) -> None:
    executable = made()
    graph = GraphModule.hir("net")
    x = graph.input("x", ["batch", 20])
    graph.set_outputs({"y": graph.linear(x, graph.param("w", [20, 5]))})
    (tmp_path / "net.mlir").write_text(graph.to_text())
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "w.npz", w=rng.standard_normal((20, 5)).astype(np.float32))
    said = emit(
        *(tmp_path / "net.mlir", "--stage", "shared", "--params", tmp_path / "w.npz", "--weights", "file"),
        *("--cc", COMPILER, "-o", tmp_path / "libnet.so"),
    )
    assert (tmp_path / "net.weights").exists()
    assert f"{tmp_path / 'net.weights'}: " in said
    executable.artifact.save(tmp_path / "mlp.rlx")
    emit(tmp_path / "mlp.rlx", "--stage", "shared", "--weights", "caller", "-o", tmp_path / "libmlp.so")
    assert "#define MLP_FORWARD_PARAMETER_B1 0" in (tmp_path / "mlp.h").read_text()
    cpu = "x86-64-v2" if platform.machine() == "x86_64" else "generic"
    emit(
        tmp_path / "net.mlir",
        "--stage",
        "shared",
        "--weights",
        "caller",
        "--cpu",
        cpu,
        "-o",
        tmp_path / "lib2.so",
        "--name",
        "two",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stage", "shared"], "'--stage shared' writes files: '--output' says which, such as libmodel.so"),
        (["--stage", "shared", "-o", "{out}", "--inspect"], "'--inspect' says nothing about a shared library"),
        (["--stage", "shared", "-o", "{out}", "--target", "nvptx"], "'--target' says nothing about a shared library"),
        (["--stage", "mir", "--weights", "embed"], "'--weights' says nothing about stage mir: leave it out"),
        (["--stage", "mir", "--cc", "cc"], "'--cc' says nothing about stage mir: leave it out"),
        (["--stage", "shared", "-o", "{out}"], "'net' needs its parameters"),
        (["--stage", "shared", "-o", "{out}", "--params", "{out}"], "cannot be read as a .npz file"),
    ],
)
def test_commands_that_make_no_sense(tmp_path: Path, words: list[str], message: str) -> None:
    graph = GraphModule.hir("net")
    graph.set_outputs({"y": graph.linear(graph.input("x", ["batch", 20]), graph.param("w", [20, 5]))})
    (tmp_path / "net.mlir").write_text(graph.to_text())
    words = [word.format(out=tmp_path / "libx.so") for word in words]
    result = CliRunner().invoke(app, ["emit", str(tmp_path / "net.mlir"), *words])
    assert result.exit_code == (2 if message.startswith("'--") else 1)
    assert message in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["net.mlir"]
