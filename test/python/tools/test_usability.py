# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What people meet first: how things show themselves, numpy's manners, and what mistakes are answered with."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import ROOT
from gpu_harness import assemble
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import compiler, errors
from rlx_mlir.errors import BuildError, CacheError, InputError, RlxError
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.tools.cli import app

# The package -------------------------------------------------------------------------------------


def test_version_stands_in_one_place() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in text
    assert 'input = "python/rlx_mlir/version.py"' in text
    assert re.fullmatch(r"\d+\.\d+\.\d+", rlx.__version__)
    assert CliRunner().invoke(app, ["--version"]).stdout == f"rlx {rlx.__version__}\n"


def test_keywords_of_compile_are_its_options() -> None:
    """What editors complete and `help` shows is what is accepted."""
    fields = [field.name for field in dataclasses.fields(rlx.CompileOptions)]
    assert ["target", *compiler.OptionKeywords.__annotations__] == fields
    text = inspect.getdoc(rlx.compile) or ""
    assert [name for name in fields if not re.search(rf"\b{name}\b", text)] == []


# Indexing and methods of values ------------------------------------------------------------------

KEYS: dict[str, Any] = {
    "number": np.s_[1],
    "last": np.s_[..., -1],
    "slice": np.s_[:, 1:3],
    "open slices": np.s_[1:, :-1],
    "ellipsis": np.s_[..., :4],
    "number in the middle": np.s_[:, 2, 1:],
    "numbers": np.s_[0, 1, 2],
    "new axis": np.s_[:, None, 0],
    "new axis first": np.s_[None],
    "all": np.s_[:, :, :],
    "empty": np.s_[:, 2:2],
    "beyond the end": np.s_[:, 1:99],
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_indexing_is_that_of_numpy(key: Any) -> None:
    x = np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5)
    m = rlx.GraphModule.mir("index")
    m.set_outputs({"y": m.input("x", x.shape)[key]})
    found = rlx.interpret(m, {"x": x})["y"]
    assert found.shape == x[key].shape
    assert np.array_equal(found, x[key])


@pytest.mark.parametrize("key", [np.s_[:, 0], np.s_[..., 1:3], np.s_[:, :2], np.s_[0], np.s_[:, :, None]])
def test_indexing_keeps_symbols(key: Any) -> None:
    x = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    m = rlx.GraphModule.hir("index")
    m.set_outputs({"y": m.input("x", ["batch", "seq", 4])[key]})
    assert np.array_equal(rlx.compile(m)(x), x[key])


def test_arrays_of_numbers_index_rows() -> None:
    m = rlx.GraphModule.hir("lookup")
    table, ids = m.param("table", [7, 4]), m.input("ids", ["batch", "seq"], "i32")
    m.set_outputs({"y": table[ids], "z": table[np.array([3, 0], np.int32)]})
    values = {"table": np.arange(28, dtype=np.float32).reshape(7, 4), "ids": np.array([[1, 6, 0]], np.int32)}
    found = rlx.interpret(m, values)
    assert np.array_equal(found["y"], values["table"][values["ids"]])
    assert np.array_equal(found["z"], values["table"][[3, 0]])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (np.s_[5, 0, 0], "index: 5 is outside of dimension 0, of size 2"),
        (np.s_[0, 0, 0, 0], "at most 3 entries and one ellipsis, but got 4"),
        (
            np.s_[::0],
            r"a slice has numbers or sizes, and a step that isn't 0, but got slice\(None, None, 0\) for dimension 0",
        ),
        (np.s_[:, "x":], "takes 'x' where a value has a dimension of that size, but no value has one"),
        (np.s_["x"], "expects numbers, sizes, slices, None"),
        (np.s_[True], "expects numbers, sizes, slices, None"),
    ],
)
def test_what_indexing_refuses(key: Any, message: str) -> None:
    x = rlx.GraphModule.mir("index").input("x", [2, "seq", 4])
    with pytest.raises(BuildError, match=rf"{re.escape(__file__)}:\d+: .*{message}"):
        x[key]


@pytest.mark.parametrize(
    "key", [np.s_[0], np.s_[1, None], np.s_[None, 0, :, None], np.s_[:, None, 1:], np.s_[0, ..., 0]]
)
def test_several_symbols_move(key: Any) -> None:
    m = rlx.GraphModule.mir("index")
    y = m.input("x", [2, "a", "b"])[key]
    m.set_outputs({"y": y})
    for shape in ((2, 3, 4), (2, 1, 5), (2, 4, 1)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        assert np.array_equal(rlx.interpret(m, {"x": x})["y"], x[key])
        assert np.array_equal(rlx.compile(m).run({"x": x})["y"], x[key])


def test_methods_and_comparisons_of_values() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    m = rlx.GraphModule.mir("methods")
    v = m.input("x", x.shape)
    outputs = {"reshape": v.reshape(3, 2), "list": v.reshape([-1]), "T": v.T, "transpose": v.transpose(1, 0)}
    outputs |= {"astype": v.astype(np.int32), "lt": v < 2, "le": v <= 2, "gt": v > 2, "ge": v >= 2}
    outputs |= {"sum": v.sum(), "mean": v.mean(-1, keepdims=True), "max": v.max(0), "min": v.min(axis=(0, 1))}
    m.set_outputs(outputs)
    found = rlx.interpret(m, {"x": x})
    reduced = {"sum": x.sum(), "mean": x.mean(-1, keepdims=True), "max": x.max(0), "min": x.min(axis=(0, 1))}
    wanted = reduced | {"reshape": x.reshape(3, 2), "list": x.reshape(-1), "T": x.T, "transpose": x.T}
    wanted |= {"astype": x.astype(np.int32), "lt": x < 2, "le": x <= 2, "gt": x > 2, "ge": x >= 2}
    for name, array in wanted.items():
        assert np.array_equal(found[name], array), name
    for misuse in (iter, list, np.asarray, float, len):
        with pytest.raises(TypeError):
            misuse(v)  # type: ignore[operator]


# Compiled modules --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def executable() -> rlx.Executable:
    m = rlx.GraphModule.hir("scaled")
    x, y = m.input("x", ["rows", 4]), m.input("y", ["rows", 4])
    m.set_outputs({"z": x * m.param("scale", [4]) - y})
    found = rlx.compile(m, maxima={"rows": 8})
    assert "parameters not set" in repr(found)
    found.set_params({"scale": np.full(4, 2, np.float32)})
    return found


def test_inputs_by_position(executable: rlx.Executable) -> None:
    x, y = np.ones((3, 4), np.float32), np.full((3, 4), 0.5, np.float32)
    for found in (executable(x, y), executable(x, y=y), executable(x=x, y=y)):
        assert np.array_equal(found, x * 2 - y)
    with pytest.raises(InputError, match=r"test_usability\.py:\d+: 'scaled' has 2 inputs, x, y, but got 3 arrays"):
        executable(x, y, y)
    with pytest.raises(InputError, match="input 'x' of 'scaled' is given by position and by keyword"):
        executable(x, x=x)


def test_compiled_modules_show_themselves(executable: rlx.Executable) -> None:
    text = repr(executable)
    assert re.fullmatch(
        r"<Executable 'scaled' for \S+ .*: \(x: \[rows, 4\] f32, y: \[rows, 4\] f32\) -> \(z: \[rows, 4\] f32\); "
        r"1 parameter, \d kernels?, threads=\d+>",
        text,
    )
    assert repr(executable.artifact).startswith("<Artifact 'scaled' for ")
    assert len(repr(executable.artifact)) < 300  # no code, no features
    table = executable._repr_html_()
    assert "<td>parameter</td><td>scale</td><td>[4] f32</td>" in table
    assert "rows up to 8" in table


def test_modules_and_reports_show_themselves_in_notebooks(executable: rlx.Executable) -> None:
    m = rlx.GraphModule.hir("a<b")
    m.set_outputs(m.silu(m.input("x", [4])))
    for shown in (m, m.fusion_report(), executable.dispatch_report()):
        assert re.fullmatch(r"<pre[^<>]*>[^<]+</pre>", shown._repr_html_())


# Mistakes ----------------------------------------------------------------------------------------


def here(message: str) -> str:
    return rf"{re.escape(__file__)}:\d+: .*{message}"


#: Builders whose keywords are those of another, which refuses others.
_HAND_ON = {"attention_backward", "custom", "expand_block", "rope_backward", "scan_backward", "transformer_block"}
_HAND_ON |= {name for name in dir(rlx.GraphModule) if name.startswith("scan_backward")}


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in {*dir(rlx.GraphModule)} - _HAND_ON
        if inspect.isfunction(method := getattr(rlx.GraphModule, name))
        and not name.startswith("_")
        and "Value" in str(inspect.signature(method).return_annotation)
    ),
)
def test_keywords_that_a_builder_lacks_are_its_own_error(name: str) -> None:
    m = rlx.GraphModule.hir("m")
    x = m.input("x", [4])
    parameters = list(inspect.signature(getattr(m, name)).parameters.values())
    needed = [each for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    samples: dict[str, object] = {"str": "s", "int": 0, "float": 1.0, "Sequence[int]": [0], "Sequence[Value]": [x]}
    samples["Sequence[Sequence[str]]"] = [["s"]]
    given = [samples.get(str(each.annotation), x) for each in needed]
    with pytest.raises(BuildError, match=here(f"'{name}' has no 'sape'.*; it has ")):
        getattr(m, name)(*given, sape=[4])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("RlxError", "it is in 'rlx_mlir.errors'"),
        ("adamw", "it is in 'rlx_mlir.optim'"),
        ("Batches", "it is in 'rlx_mlir.training'"),
        ("encode", "it is in 'rlx_mlir.formats'"),
        ("formats", "it is a module, which 'import rlx_mlir.formats' makes one"),
    ],
)
def test_names_that_live_elsewhere_are_said_to(name: str, hint: str) -> None:
    code = f"import rlx_mlir as rlx\nrlx.{name}"  # in a process of its own: here, all modules are imported
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    message = f"module 'rlx_mlir' has no attribute '{name}': {hint}"
    assert done.stderr.splitlines()[-1].startswith(f"AttributeError: {message}")  # Python may guess a name behind it


def test_every_error_is_public() -> None:
    own = {
        name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, RlxError | Warning)
    }
    assert own == set(errors.__all__)


def test_misspelt_names_are_guessed(executable: rlx.Executable) -> None:
    with pytest.raises(InputError, match=here(r"missing parameters: scale; .*sclae \(did you mean 'scale'\?\)")):
        executable.set_params({"sclae": np.ones(4, np.float32)})
    m = rlx.GraphModule.hir("m")
    x, gamma = m.input("x", [4]), m.param("gamma", [4])
    with pytest.raises(InputError, match=here(r"no option 'activation' \(did you mean 'activations'\?\)")):
        rlx.compile(m, activation="int8")  # type: ignore[call-overload]
    with pytest.raises(InputError, match=here(r"no option 'chips' \(did you mean 'chip'\?\)")):
        rlx.emit(m, "mir", chips="sm_90")  # type: ignore[call-arg]
    with pytest.raises(BuildError, match=here(r"'rms_norm' has no 'epsilon' \(did you mean 'eps'\?\)")):
        m.rms_norm(x, gamma, epsilon=1e-6)  # type: ignore[call-arg]
    with pytest.raises(BuildError, match=here(r"'mean' has no 'axis' \(did you mean 'axes'\?\); it has x, axes, ")):
        m.mean(x, axis=1)  # type: ignore[call-arg]
    with pytest.raises(BuildError, match=here("a number is expected, but got 'small'")):
        m.rms_norm(x, gamma, eps="small")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"'rlx_mlir' has no attribute 'complie' \(did you mean 'compile'\?\)"):
        rlx.complie  # type: ignore[attr-defined]  # noqa: B018
    m.set_outputs({"y": m.rms_norm(x, gamma)})
    with pytest.raises(InputError, match=here("'m' needs a value for param 'gamma'")):
        rlx.interpret(m, {"x": np.ones(4, np.float32)})
    with pytest.raises(InputError, match=here("'tiny' is neither a folder nor a known encoder")):
        rlx.load_encoder("tiny")


def test_outputs_that_are_none() -> None:
    m = rlx.GraphModule.hir("m")
    for wrong in (3, "x", None):
        with pytest.raises(BuildError, match=here("outputs are a Value, or several in a list or a mapping")):
            m.set_outputs(wrong)  # type: ignore[arg-type]


def test_modules_that_return_nothing() -> None:
    m = rlx.GraphModule.hir("m")
    m.silu(m.input("x", [4]))
    with pytest.raises(InputError, match=here("'m' gives nothing: set_outputs says what it returns")):
        rlx.compile(m)


def test_outputs_are_tied_to_names_too() -> None:
    m = rlx.GraphModule.hir("m")
    cache = m.input("cache", [2, 8, 4])
    updated = m.cache_update(cache, m.input("rows", [2, 1, 4]), m.input("pos", [2], "i32"))
    m.set_outputs({"new": updated}, tied={"new": "cache"})
    assert "(may take the memory of %cache)" in m.inspect()
    assert rlx.compile(m).outputs[0].tied == "cache"
    for wrong in ("cash", 3):
        with pytest.raises(BuildError, match=here("output 'new' is tied to an argument or the name of one, but got")):
            m.set_outputs({"new": cache + 1}, tied={"new": wrong})  # type: ignore[dict-item]


def test_files_that_are_no_artefacts(tmp_path: Path) -> None:
    for content, message in (
        (b"GGUF" + bytes(100), "it starts with b'GGUF.*'.*; models are for load_model"),
        (b"", "not an artefact: it starts with b''"),
        (b"import numpy", "not an artefact: it starts with b'import n'"),
    ):
        (tmp_path / "wrong.rlx").write_bytes(content)
        for read in (rlx.load, Artifact.load):
            with pytest.raises(CacheError, match=rf"wrong\.rlx: .*{message}"):
                read(tmp_path / "wrong.rlx")  # type: ignore[operator]
    with pytest.raises(InputError, match=r"none\.mlir: no such file"):
        rlx.GraphModule.from_text(tmp_path / "none.mlir")


# The command line --------------------------------------------------------------------------------


def rlx_command(*arguments: object, status: int = 0) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "rlx_mlir.tools.cli", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done
    return done


def test_errors_of_commands_name_no_line_of_python(tiny_llama: Path) -> None:
    """Not the command line's own, and not that of a thread of the library."""
    error = rlx_command("generate", tiny_llama, "x", "--repetition-penalty=0", status=1).stderr
    assert error.startswith("rlx: error: 'repetition_penalty'"), error
    error = rlx_command("compile", tiny_llama, "--target", "nvptx", "--chip", "sm_12", status=1).stderr
    assert error.startswith("rlx: error: 'chip' expects"), error
    with pytest.raises(InputError, match=here("'threads' expects a positive number")):
        rlx.load_model(tiny_llama, threads=0)


def test_commands_are_listed_in_the_order_of_their_use() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    listed = re.findall(r"^│ ([a-z]+) ", text, re.MULTILINE)
    assert listed[:6] == ["generate", "batch", "chat", "serve", "embed", "models"]
    assert listed[-2:] == ["fuzz", "interesting"]


def test_interrupted_fuzzers_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("rlx_mlir.fuzz.campaign.run_all", interrupted)
    done = CliRunner().invoke(app, ["fuzz", "graphs", "--count", "5", "--json"])
    assert done.exit_code == 130
    assert json.loads(done.stdout)["interrupted"] is True


def test_reports_as_json(tmp_path: Path) -> None:
    m = rlx.GraphModule.hir("mlp", policy="fusable")
    h = m.linear(m.input("x", [3, 8]), m.param("w", [8, 8]), m.param("b", [8]), activation="silu")
    m.set_outputs(m.rms_norm(h, m.param("g", [8])))
    (tmp_path / "mlp.mlir").write_text(m.to_text(locations=True))
    found = json.loads(CliRunner().invoke(app, ["report", str(tmp_path / "mlp.mlir"), "--json"]).stdout)
    assert found["fusion"]["fused"][0]["pass"] == "mir-fuse-matmul-bias-act"
    assert {row["template"] for row in found["dispatch"]["kernels"]} <= {
        "gemm_panels",
        "rows",
        "gemm_amx_f32",
        "gemm_digits",
    }


# One kernel --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_kernels() -> rlx.GraphModule:
    m = rlx.GraphModule.hir("two")
    x = m.input("x", ["rows", 64])
    m.set_outputs(m.linear(m.rms_norm(x, m.param("gamma", [64])), m.param("w", [64, 32])))
    return m


#: At each stage, how the code of a function of a name begins.
CPU_CODE = {
    "kernels": r"func\.func private @{}\(",
    "lir": r"func\.func private @{}\(",
    "linalg": r"func\.func private @{}\.body\(",
    "llvm": r"define void @{}\(",
    "asm": r"^{}:",
}
GPU_CODE = {"gpu": r"llvm\.func @{}_rows\(", "nvvm": r"llvm\.func @{}_rows\(", "ptx": r"\.entry {}_rows\("}


@pytest.mark.parametrize(
    ("stage", "target"), [*((stage, "cpu") for stage in CPU_CODE), *((stage, "nvptx") for stage in GPU_CODE)]
)
def test_one_kernel_is_emitted(two_kernels: rlx.GraphModule, stage: str, target: str) -> None:
    pattern = CPU_CODE[stage] if target == "cpu" else GPU_CODE[stage]
    whole = rlx.emit(two_kernels, stage, target=target)
    text = rlx.emit(two_kernels, stage, target=target, kernel="rms_norm_0")
    assert re.search(pattern.format("rms_norm_0"), text, re.MULTILINE)
    assert "matmul_0" in whole
    assert "matmul_0" not in text
    assert len(text) < len(whole)


def test_the_assembler_takes_the_ptx_of_one_kernel(two_kernels: rlx.GraphModule) -> None:
    text = rlx.emit(two_kernels, "ptx", target="nvptx", chip="sm_90a", kernel="matmul_0")
    assert text.count(".entry") >= 2
    assemble(text, "sm_90a")


def test_kernels_that_are_not_there(two_kernels: rlx.GraphModule) -> None:
    with pytest.raises(InputError, match=here(r"'two' has no kernel 'rms_norm' \(did you mean 'rms_norm_0'\?\)")):
        rlx.emit(two_kernels, "asm", kernel="rms_norm")
    with pytest.raises(InputError, match=here("there are kernels from stage kernels on, not at mir")):
        rlx.emit(two_kernels, "mir", kernel="rms_norm_0")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["compil"], "rlx: there is no command 'compil' (did you mean 'compile'?)\n"),
        (["frobnicate"], "rlx: there is no command 'frobnicate'; see rlx --help\n"),
        (["cache", "lst"], "rlx: there is no command 'lst' (did you mean 'list'?)\n"),
    ],
)
def test_commands_that_are_not_there(words: list[str], line: str) -> None:
    done = subprocess.run([sys.executable, "-m", "rlx_mlir.tools.cli", *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, line)


def test_filecheck_has_a_command(tmp_path: Path) -> None:
    (tmp_path / "f.mlir").write_text("// CHECK: mir.add\n")
    command = [sys.executable, "-m", "rlx_mlir.tools.filecheck", str(tmp_path / "f.mlir")]
    assert subprocess.run(command, input="mir.add", capture_output=True, text=True).returncode == 0
    assert subprocess.run(command, input="mir.sub", capture_output=True, text=True).returncode == 1


def test_reports_are_in_columns_in_notebooks() -> None:
    module = rlx.GraphModule.hir("f")
    module.set_outputs({"y": module.relu(module.input("x", [2]))})
    for shown in (module, module.fusion_report(), module.range_report()):
        assert shown._repr_html_().startswith('<pre style="font-family: ui-monospace, ')
