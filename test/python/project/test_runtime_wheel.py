# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The package rlx-mlir-runtime: what it has, that it needs numpy alone, and that it computes the same bits."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import decoder
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.programs import maxima
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.container import write_container
from rlx_mlir.runtime.executable import Executable

ROOT = Path(__file__).parents[3]
#: What the package must not need, nor load where it is there.
FOREIGN = (
    *("mlir", "llvm", "ml_dtypes", "tokenizers", "safetensors", "jinja2", "rich", "typer", "platformdirs", "filelock"),
    *("sentencepiece", "huggingface_hub", "starlette", "torch", "onnx"),
)
MOST_BYTES = 3_000_000

#: Runs what `written` made, without any of the packages above, and writes what it gives.
RUN = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {foreign}:
            raise ImportError(name + " is not there")

sys.meta_path.insert(0, Refused())
import numpy as np
import rlx_mlir
from rlx_mlir.runtime.container import Container
from rlx_mlir.runtime.loading import executable, load

for name in sys.argv[2:]:
    folder = sys.argv[1]
    if name == "model":
        with Container(folder + "/model.rlx") as file:
            module = executable(file.artifact("artifact/decode/native"))
    else:
        module = load(folder + "/" + name + ".rlx")
    module.set_params(dict(np.load(folder + "/" + name + ".params.npz")))
    results = module.run(dict(np.load(folder + "/" + name + ".inputs.npz")))
    np.savez(folder + "/" + name + ".found.npz", **results)
print(sorted(own for own in sys.modules if own.partition(".")[0] in {foreign}))
print(rlx_mlir.__file__)
"""


def plain() -> GraphModule:
    m = GraphModule.hir("plain")
    x, w = m.input("x", ["rows", 64]), m.param("w", [64, 32])
    m.set_outputs({"y": m.softmax(m.tan(m.linear(x, w)), -1), "z": m.tanh(x)})
    return m


def written(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Writes a module and a model with packed weights, parameters and inputs; gives the results of this package."""
    rng = np.random.default_rng(0)
    expected: dict[str, dict[str, np.ndarray]] = {}

    def add(name: str, artifact: Artifact, params: dict[str, np.ndarray], inputs: dict[str, np.ndarray]) -> None:
        own = Executable(artifact)
        own.set_params(params)
        np.savez(folder / f"{name}.params.npz", **params)
        np.savez(folder / f"{name}.inputs.npz", **inputs)
        expected[name] = own.run({key: array.copy() for key, array in inputs.items()})

    artifact = build_artifact(plain(), CompileOptions(maxima={"rows": 9}))
    artifact.save(folder / "plain.rlx")
    x = rng.standard_normal((9, 64)).astype(np.float32)
    add("plain", artifact, {"w": rng.standard_normal((64, 32)).astype(np.float32)}, {"x": x})
    matrices = ("attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up")
    path = tiny_models.write(folder / "tiny.gguf", types=dict.fromkeys(matrices, "q4_1"))
    with GGUFFile(path) as file:
        config = ModelConfig.from_gguf(file)
        params = {name: np.array(array) for name, array in decoder.parameters(config, file, 16).items()}
    options = CompileOptions(maxima=maxima(config, "decode", context=16, chunk=8))
    artifact = build_artifact(decoder.build(config, "decode"), options)
    inputs: dict[str, np.ndarray] = {}
    for spec in artifact.inputs:
        shape = [{"context": 16}.get(size, 1) if isinstance(size, str) else size for size in spec.shape]
        fresh = rng.standard_normal(shape).astype(np.float32)
        inputs[spec.name] = np.full(shape, 3, np.int32) if spec.dtype == "i32" else fresh
    with write_container(folder / "model.rlx") as container:
        container.add("manifest", b"{}")
        container.add_artifact("artifact/decode/native", artifact)
    add("model", artifact, params, inputs)
    return expected


def compare(folder: Path, expected: dict[str, dict[str, np.ndarray]]) -> None:
    for name, results in expected.items():
        found = np.load(folder / f"{name}.found.npz")
        assert set(found) == set(results)
        for key, array in results.items():
            assert array.tobytes() == found[key].tobytes(), (name, key)


def builder() -> Any:
    """The script that builds the wheel, as a module."""
    spec = importlib.util.spec_from_file_location("build_runtime", ROOT / "packages" / "runtime" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_package_has_no_compiler() -> None:
    modules = set(builder().closure())
    assert {"rlx_mlir", "rlx_mlir.runtime.executable", "rlx_mlir.formats.panels", "rlx_mlir.runtime.cuda"} <= modules
    parts = {name.split(".")[1] for name in modules if "." in name}
    assert parts <= {
        *("activations", "arrays", "boundary", "budgets", "checks", "chips", "dtypes", "errors", "files", "formats"),
        *("frontends", "models", "native", "own_ops", "paths", "place", "run", "runtime", "version"),
    }


def test_each_module_of_the_package_is_imported_with_numpy_alone() -> None:
    refused = RUN[: RUN.index("import numpy")].replace("{foreign}", repr(FOREIGN))
    # Chat templates need jinja2: that module is loaded where there is one.
    modules = sorted(builder().closure().keys() - {"rlx_mlir.models.sandbox"})
    script = f"{refused}import importlib\nfor name in {modules!r}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_runs_modules_needs_numpy_alone(tmp_path: Path) -> None:
    expected = written(tmp_path)
    script = RUN.replace("{foreign}", repr(FOREIGN))
    command = [sys.executable, "-c", script, str(tmp_path), *expected]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "[]"
    compare(tmp_path, expected)


def test_types_that_numpy_does_not_have_name_their_package(tmp_path: Path) -> None:
    m = GraphModule.hir("narrow")
    x = m.input("x", [4], "bf16")
    m.set_outputs({"y": x + x})
    build_artifact(m, CompileOptions()).save(tmp_path / "narrow.rlx")
    script = "import sys; sys.modules['ml_dtypes'] = None; import rlx_mlir; rlx_mlir.load(sys.argv[1])"
    command = [sys.executable, "-c", script, str(tmp_path / "narrow.rlx")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    message = "ExecutionError: 'narrow': the element type bf16 needs the package ml_dtypes, which can't be imported"
    assert message in done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, str(ROOT / "packages" / "runtime" / "build.py")]
    subprocess.run([*command, "--out", str(folder), "--folder", str(folder / "sources")], check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_runs_in_an_environment_with_numpy(tmp_path: Path, wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("METADATA"))
    assert {"rlx_mlir/__init__.py", "rlx_mlir/_runtime.pyi", "rlx_mlir/py.typed"} <= names
    assert {f"rlx_mlir/{name}" for name in ("include/rlx.h", "include/rlx/runtime.h", "lib/librlx_runtime.so")} <= names
    lines = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    assert [line for line in lines if "extra" not in line] == ["Requires-Dist: numpy>=1.26"]
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", "--quiet"]
    subprocess.run([*pip, str(wheel)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    libraries = Path(np.__file__).parents[1]
    for folder in ("numpy", "numpy.libs"):  # as no index may be at hand
        if (libraries / folder).is_dir():
            (site / folder).symlink_to(libraries / folder)
    expected = written(tmp_path)
    script = RUN.replace("{foreign}", repr(FOREIGN))
    command = [str(python), "-I", "-c", script, str(tmp_path), *expected]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", str(site / "rlx_mlir" / "__init__.py")]
    compare(tmp_path, expected)

    def rlx_run(*arguments: str) -> str:
        program = [str(environment / "bin" / "rlx-run"), *arguments]
        return subprocess.run(program, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    parts = ("header and table", "manifest", "artifact/decode/native")
    assert rlx_run("verify", "model.rlx").splitlines() == [f"holds  {part}" for part in parts]
    assert json.loads(rlx_run("show", "plain.rlx", "--json"))["name"] == "plain"
    rlx_run("run", "plain.rlx", "--params", "plain.params.npz", "--inputs", "plain.inputs.npz", "-o", "plain.found.npz")
    compare(tmp_path, {"plain": expected["plain"]})

    model = rlx.load_model(tmp_path / "tiny.gguf", context=32, chunk=8, cache=False)
    model.save_bundle(tmp_path / "bundle.rlx")
    session, wanted = model.session(), []
    session.feed([5, 6, 7])
    for _ in range(9):
        wanted.append(int(session.logits.argmax()))
        session.step(wanted[-1])
    found = rlx_run("generate", "bundle.rlx", "5", "6", "7", "--max-tokens", "9")
    assert [int(line) for line in found.split()] == wanted

    def refused(program: str) -> str:
        return subprocess.run([str(python), "-I", "-c", program], capture_output=True, text=True, check=False).stderr

    found = refused("import rlx_mlir; rlx_mlir.compile")
    assert "AttributeError: 'compile' is in the package rlx-mlir; rlx-mlir-runtime, which is" in found
    found = refused(f"import rlx_mlir; rlx_mlir.load_model({str(tmp_path / 'tiny.gguf')!r})")
    assert "tiny.gguf has to be compiled, which the package rlx-mlir does; rlx-mlir-runtime, which is" in found
