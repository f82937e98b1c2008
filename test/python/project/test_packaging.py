# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is installed, what documentation says about it, and the project's own files."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from documents import ROOT, blocks, run, run_python, shell
from typer.main import get_command

import rlx_mlir
from rlx_mlir.tools.cli import app

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = None

COMMANDS = ("rlx", "rlx-opt", "rlx-reduce", "rlx-lsp-server", "rlx-filecheck")
MB = 1_000_000


@pytest.fixture(scope="module")
def distribution() -> importlib.metadata.Distribution:
    """The installed package; tests are skipped where the folder is only on the path."""
    try:
        return importlib.metadata.distribution("rlx-mlir")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("rlx-mlir isn't installed")


@pytest.fixture(scope="module")
def wheel_files(distribution: importlib.metadata.Distribution) -> list[importlib.metadata.PackagePath]:
    """Files of the installed wheel."""
    files = [file for file in distribution.files or [] if "__pycache__" not in file.parts]
    if not any(file.name == "compiler.py" for file in files):
        pytest.skip("rlx-mlir is installed in editable mode")
    return files


# The package -------------------------------------------------------------------------------------


def test_metadata(distribution: importlib.metadata.Distribution) -> None:
    metadata = distribution.metadata
    assert metadata["License-Expression"] == "Apache-2.0 WITH LLVM-exception"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_wheel_holds_what_it_needs(wheel_files: list[importlib.metadata.PackagePath]) -> None:
    names = {str(file) for file in wheel_files}
    for module in ("_compiler", "_runtime"):
        assert any(re.fullmatch(rf"rlx_mlir/{module}\..*\.so", name) for name in names), module
        assert f"rlx_mlir/{module}.pyi" in names
    for name in ("_hir_ops_gen.py", "_mir_ops_gen.py", "_mir_enum_gen.py"):
        assert f"rlx_mlir/dialects/{name}" in names
    assert "rlx_mlir/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    python = {path.relative_to(ROOT / "python").as_posix() for path in (ROOT / "python" / "rlx_mlir").rglob("*.py")}
    assert python - names == set(), "files of the source tree that the wheel lacks; is the installed package old?"


def test_wheel_holds_nothing_else(wheel_files: list[importlib.metadata.PackagePath]) -> None:
    odd = [
        str(file)
        for file in wheel_files
        if not file.parts[0].startswith("rlx_mlir") and file.name not in COMMANDS and ".dist-info" not in str(file)
    ]
    assert not odd
    libraries = sorted(file.name.partition(".")[0] for file in wheel_files if file.suffix == ".so")
    assert libraries == ["_compiler", "_runtime", "librlx_runtime"]


def without_emulator(names: Iterable[str]) -> None:
    odd = [name for name in names if {"emulator", "ptx_emulator", "fake_cuda"} & set(Path(name).parts)]
    assert not odd


def test_the_wheel_is_without_the_emulator(wheel_files: list[importlib.metadata.PackagePath]) -> None:
    without_emulator(map(str, wheel_files))


@pytest.mark.skipif(tomllib is None, reason="needs tomllib, of Python 3.11")
def test_wheels_are_made_without_the_emulator() -> None:
    """The one folder that wheels are made of."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["scikit-build"]
    assert settings["wheel"]["packages"] == ["python/rlx_mlir"]
    without_emulator(path.relative_to(ROOT / "python").as_posix() for path in (ROOT / "python" / "rlx_mlir").rglob("*"))
    assert (ROOT / "emulator" / "ptx_emulator" / "__init__.py").is_file()


def test_the_product_imports_nothing_of_the_tests() -> None:
    """Packages of tests, by their names: the emulator, and what lies in their folders."""
    own = {"ptx_emulator", *(path.stem for path in Path(__file__).parents[1].rglob("*.py"))}
    sources = [path for folder in ("python", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    assert any(path.name == "compiler.py" for path in sources)
    line = re.compile(rf"^\s*(?:from|import)\s.*\b(?:{'|'.join(own)})\b", re.MULTILINE)
    found = []
    for path in sources:
        text = path.read_text(encoding="utf-8")
        if not line.search(text):  # parsing is slow
            continue
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            found += [f"{path.relative_to(ROOT)}: {name}" for name in names if name.partition(".")[0] in own]
    assert not found


def test_wheel_is_small(wheel_files: list[importlib.metadata.PackagePath]) -> None:
    """The limit is for the compressed wheel; this is more."""
    assert sum(file.size or 0 for file in wheel_files) < 20 * MB


def test_readme_says_how_large_an_installation_is() -> None:
    """Of the package, and of what it needs and what that needs, as far as it is installed."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert listed is not None
    waiting, found = re.findall(r'"([\w-]+)', listed.group(1)), {}
    while waiting:
        name = waiting.pop().lower()
        if name in found:
            continue
        try:
            own = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # for other systems
            continue
        found[name] = sum(file.size or 0 for file in own.files or [])
        waiting += [re.split(r"[^\w.-]", need)[0] for need in own.requires or [] if "extra ==" not in need]
    stated = re.search(r"the environment has (\d+) MB", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert stated is not None
    total = sum(found.values()) / MB
    assert 0.85 * int(stated.group(1)) < total < 1.1 * int(stated.group(1)), {**found, "total": total}


def test_commands_are_installed(distribution: importlib.metadata.Distribution, tmp_path: Path) -> None:
    scripts = {entry.name for entry in distribution.entry_points if entry.group == "console_scripts"}
    assert scripts == set(COMMANDS)
    for command in COMMANDS:
        path = shutil.which(command, path=str(Path(sys.executable).parent))
        assert path is not None, command
        assert run([path, "--help"], tmp_path)


def test_importing_the_package_is_quick() -> None:
    """Neither it nor the run time loads MLIR; the compiler does."""
    code = "import sys, rlx_mlir, rlx_mlir.native; print(any(m.split('.')[0] == 'mlir' for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("extension", ["_compiler", "_runtime"])
def test_stubs_name_what_extensions_have(extension: str) -> None:
    import rlx_mlir.ir
    import rlx_mlir.native  # noqa: F401  (both load what the extensions link)

    module = importlib.import_module(f"rlx_mlir.{extension}")
    tree = ast.parse((ROOT / "python" / "rlx_mlir" / f"{extension}.pyi").read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert defined == {name for name in vars(module) if not name.startswith("_")}


# pyproject.toml ----------------------------------------------------------------------------------


@pytest.mark.skipif(tomllib is None, reason="needs tomllib, of Python 3.11")
def test_versions_are_pinned_once() -> None:
    """The extra for builds without isolation lists what isolated builds require."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)
    required = set(project["build-system"]["requires"])
    installed = set(project["project"]["dependencies"])
    extra = set(project["project"]["optional-dependencies"]["build"])
    assert required <= extra | installed
    for name in ("xtc-mlir", "xtc-llvm"):
        assert len(set(re.findall(rf'"{name}[\w-]*(==[^"]*)"', text))) == 1, name


# Documentation -----------------------------------------------------------------------------------


def test_readme_graph_example_runs(tmp_path: Path) -> None:
    first, *_ = blocks("README.md", "python")
    text = run_python([first], tmp_path)
    assert "hir.swiglu" in text
    assert "mir.fused_swiglu" in text
    assert "memref.view" in text


@pytest.mark.slow
def test_readme_model_example_runs(smollm2_path: Path, tmp_path: Path) -> None:
    _, second, third, fourth = blocks("README.md", "python")
    assert "load_model" in second.text
    assert "Paris" in run_python([second], tmp_path)
    assert "Rome" in run_python([third], tmp_path)
    assert "load_encoder" in fourth.text


def test_readme_shell_examples_run(tmp_path: Path) -> None:
    (module,) = blocks("README.md", "mlir")
    assert "Save this as `graph.mlir`" in (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "graph.mlir").write_text(module.text)
    *others, inside = blocks("README.md", "sh")
    (bundle,) = (block for block in others if not block.text.startswith("pip install"))
    assert bundle.text.startswith("rlx bundle smollm2"), "the next test's"
    text = shell(inside.text, tmp_path)
    assert "mir." in text
    assert "hir." not in text


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the example has levels of x86-64")
def test_readme_bundle_runs(smollm2_path: Path, tmp_path: Path) -> None:
    """The model of that name is fetched, or was: the fixture says where there is none."""
    (block,) = (block for block in blocks("README.md", "sh") if block.text.startswith("rlx bundle"))
    assert "Paris" in shell(block.text, tmp_path)


def test_readme_names_all_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `rlx ([a-z-]+)", text, re.MULTILINE)
    assert sorted(named) == sorted(get_command(app).commands)  # type: ignore[attr-defined]
    for command in COMMANDS[1:]:
        assert f"\n| `{command}" in text


def test_readme_names_all_variables() -> None:
    """Of the environment: those that the sources read."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    sources = [*(ROOT / "python").rglob("*.py"), *(ROOT / "runtime").rglob("*.cpp"), *(ROOT / "passes").glob("*.cpp")]
    read = {name for path in sources for name in re.findall(r'"(RLX_[A-Z_]+)"', path.read_text(encoding="utf-8"))}
    assert set(re.findall(r"^\| `(RLX_[A-Z_]+)`", text, re.MULTILINE)) == read


@pytest.mark.slow
def test_tutorial_runs(tmp_path: Path) -> None:
    for block in blocks("docs/writing-a-pass.md", "mlir"):
        (tmp_path / (block.file or "")).write_text(block.text)
    run_python(blocks("docs/writing-a-pass.md", "python"), tmp_path)
    for block in blocks("docs/writing-a-pass.md", "sh"):
        assert "mir-simplify-neg" in shell(block.text, tmp_path)


def example(name: str, folder: Path, *arguments: object) -> str:
    """Output of an example."""
    return run([sys.executable, ROOT / "examples" / f"{name}.py", *arguments], folder)


@pytest.mark.slow
def test_example_of_stages_runs(tmp_path: Path) -> None:
    assert "128 tokens: largest difference" in example("stages", tmp_path)
    assert "mir.arena = " in example("stages", tmp_path, "--stage", "lir")


def test_example_of_a_pass_runs(tmp_path: Path) -> None:
    assert "applied: {'add_negated': 1}" in example("own_pass", tmp_path)


@pytest.mark.slow
def test_example_of_a_model_runs(tiny_llama: Path, tmp_path: Path) -> None:
    assert "tokens per second" in example("run_gguf", tmp_path, tiny_llama, "hello")


@pytest.mark.wide
def test_example_of_a_conversation_with_forks_runs(tiny_llama: Path, tmp_path: Path) -> None:
    words = ("hello", "the cat", "--model", tiny_llama, "--answers", 2, "--max-tokens", 4, "--json")
    turns = json.loads(example("chat_with_forks", tmp_path, *words))
    assert [(turn["question"], len(turn["answers"])) for turn in turns] == [("hello", 2), ("the cat", 2)]
    model = rlx_mlir.load_model(tiny_llama)
    talk = [{"role": "user", "content": "hello"}]
    alone = model.generate(talk, greedy=True, max_tokens=4)
    assert turns[0]["answers"][0] == alone.read().strip()
    assert turns[0]["tokens"] == len(alone.prompt_ids) + len(alone.ids)
    behind = model.tokenize(model.chat_template.after_answer([{"role": "user", "content": "the cat"}]), special=True)
    assert 0 <= turns[1]["tokens"] - turns[0]["tokens"] - len(behind) <= 4


@pytest.mark.slow
def test_example_of_json_runs(smollm2_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("llguidance")
    found = json.loads(example("extract_json", tmp_path, "--model", smollm2_path))
    assert (found["name"], found["place"]) == ("Ada Lovelace", "London")
    assert isinstance(found["year"], int)
    schema = {"type": "object", "properties": {"n": {"enum": [12]}}, "required": ["n"], "additionalProperties": False}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    words = ("some text", "--schema", tmp_path / "schema.json", "--model", smollm2_path, "--json")
    assert json.loads(example("extract_json", tmp_path, *words))["value"] == {"n": 12}


def test_example_of_json_says_what_it_needs() -> None:
    script = ROOT / "examples" / "extract_json.py"
    code = f"import sys, runpy; sys.modules['llguidance'] = None; runpy.run_path({str(script)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "extract_json.py needs the package llguidance: pip install 'rlx-mlir[structured]'\n"


@pytest.mark.slow
def test_example_of_classes_runs(smollm2_path: Path, tmp_path: Path) -> None:
    rows = json.loads(example("classify", tmp_path, "--model", smollm2_path, "--json"))["texts"]
    kinds = ["praise", "complaint"] * 3
    assert sum(row["class"] == kind for row, kind in zip(rows, kinds, strict=True)) >= 5
    for row in rows:
        shares = row["probabilities"]
        assert max(shares, key=shares.__getitem__) == row["class"]
        assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.slow
def test_example_of_fine_tuning_runs(tiny_llama: Path, tmp_path: Path) -> None:
    text = example("finetune", tmp_path, tiny_llama, 20, 12)
    before, after = (float(found) for found in re.findall(r"^loss of what is held out: ([\d.]+)", text, re.MULTILINE))
    assert after < before - 0.05


@pytest.mark.slow
def test_examples_of_a_decoder_run(tmp_path: Path) -> None:
    decoder = example("transformer", tmp_path, "--save", "decoder.rlx")
    compiled, interpreted = re.findall(r"^(?:compiled|interpreted): +([\d ]+)$", decoder, re.MULTILINE)
    assert compiled == interpreted
    deployed = example("deploy", tmp_path, "decoder.rlx")
    assert f"next token: {compiled.split()[0]}\nMLIR loaded: False" in deployed


@pytest.mark.slow
def test_example_of_training_runs(tmp_path: Path) -> None:
    rows = example("train", tmp_path, "mlp", "--steps", 200, "--checkpoint", "mlp.safetensors", "--plot", "mlp.svg")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", rows)]
    assert losses[-1] < losses[0] / 2
    assert "<polyline" in (tmp_path / "mlp.svg").read_text(encoding="utf-8")
    assert "goes on at step 200" in example("train", tmp_path, "mlp", "--steps", 210, "--checkpoint", "mlp.safetensors")


@pytest.mark.slow
def test_example_of_formats_runs(tmp_path: Path) -> None:
    rows = example("quantize", tmp_path, "q8_0", "q2_k").splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["q8_0", "q2_k"]
    assert [float(row.split()[2]) < 0.01 for row in rows] == [True, False]


@pytest.mark.slow
def test_example_of_a_gpu_that_is_not_there_runs(tmp_path: Path) -> None:
    assert "gemm_hopper" in example("gpu_offline", tmp_path, "--save", "ffn.rlx")
    assert rlx_mlir.Artifact.load(tmp_path / "ffn.rlx").chip == "sm_90a"
    assert ".target sm_80" in example("gpu_offline", tmp_path, "--chip", "sm_80", "--ptx")


def test_every_example_is_run() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        assert f'example("{path.stem}"' in text


@pytest.mark.parametrize(
    "document", sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
)
def test_links_and_file_names_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    folder = (ROOT / document).parent
    targets = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [target for target in targets if target and not (folder / target).exists()]
    # Names of files in backquotes: from the project's folder, or from the package's.
    homes = [ROOT, ROOT / "python", ROOT / "python" / "rlx_mlir", folder]
    for name in re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|cpp|h|td|mlir|md|toml))`", text):
        if "NAME" not in name and not any((home / name).exists() for home in homes):
            missing.append(name)
    assert not missing


def test_sources_carry_the_licence() -> None:
    files = [
        *ROOT.glob("*/**/*.py"),
        *ROOT.glob("dialects/**/*.td"),
        *ROOT.glob("dialects/*.*"),
        *ROOT.glob("p*/*.cpp"),
    ]
    files += [*ROOT.glob("runtime/*.*"), ROOT / "CMakeLists.txt", ROOT / "Makefile"]
    files += [path for path in (ROOT / ".ci").iterdir() if path.suffix != ".lock"]
    built = {"build", "dist", "Output", ".venv"}
    missing = [
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.is_file()
        and not built & set(path.relative_to(ROOT).parts)
        and not path.name.endswith("_gen.py")
        and "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception" not in path.read_text(encoding="utf-8")[:400]
    ]
    assert not missing
