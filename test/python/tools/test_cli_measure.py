# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands of `rlx` that measure and explain: profile, compile --timing, generate --stats, cache."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_cli import rlx

from rlx_mlir import native
from rlx_mlir.runtime import cache as compile_cache

SMALL = ("--context", "64", "--threads", "1")


@pytest.fixture(autouse=True)
def _no_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEBUG", "")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize(
    "command", [("bench",), ("profile",), ("tune",), ("cache", "list"), ("cache", "explain"), ("cache", "clear")]
)
def test_every_command_shows_examples(command: tuple[str, ...]) -> None:
    text = rlx(*command, "--help").stdout
    assert "Examples" in text
    assert f"rlx {' '.join(command)}" in text


# Profiles ---------------------------------------------------------------------------------------------


@pytest.mark.wide
def test_profile(tiny_llama: Path, tmp_path: Path) -> None:
    options = (*SMALL, "--prompt-tokens", "8", "--decode", "2", "--rounds", "2")
    text = rlx("profile", tiny_llama, *options).stdout
    assert text.startswith("machine: 1 threads: ")
    assert "prefill: 8 tokens in " in text
    assert "decode: 1 token in " in text
    assert "attention_0" in text
    assert "blk.0, blk.1" in text
    files = ("--trace", tmp_path / "trace.json", "--plot", tmp_path / "plot.html")
    found = json.loads(rlx("profile", tiny_llama, *options, *files, "--json").stdout)
    assert [program["program"] for program in found["programs"]] == ["prefill", "decode"]
    kernels = found["programs"][1]["kernels"]
    assert {"kernel", "calls", "seconds", "bytes", "flops", "roofline", "bound", "template", "blocks"} <= kernels[
        0
    ].keys()
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert (tmp_path / "plot.html").read_text().startswith("<!doctype html>")


def test_profile_of_prompts_alone(tiny_llama: Path) -> None:
    options = ("--prompt-tokens", "4", "--decode", "0", "--rounds", "1", "--json")
    (program,) = json.loads(rlx("profile", tiny_llama, *SMALL, *options).stdout)["programs"]
    assert program["program"] == "prefill"
    assert program["noise"] == "1 rounds are fewer than 3"


def test_a_profile_that_cannot_be_written(tiny_llama: Path, tmp_path: Path) -> None:
    """Which is said before anything is measured."""
    assert "'p.pdf'" in rlx("profile", tiny_llama, "--plot", tmp_path / "p.pdf", status=1).stderr
    (tmp_path / "file").write_text("")
    for option in ("--trace", "--plot"):
        text = rlx("profile", tmp_path / "no.gguf", option, tmp_path / "file" / "t.html", status=1).stderr
        assert "t.html cannot be written: Not a directory" in text


def test_stats_of_a_generation(tiny_llama: Path) -> None:
    options = (*SMALL, "--greedy", "--max-tokens", "4", "--stats")
    lines = rlx("generate", tiny_llama, "hello", *options).stderr.splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == ["prompt", "decode", "machine"]
    assert "GB/s" in lines[2]
    found = json.loads(rlx("generate", tiny_llama, "hello", *options, "--json").stdout)["roofline"]
    assert set(found) == {"machine", "prompt", "decode"}
    assert found["decode"]["tokens"] == 3


# Compilation ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_table_of_compile_times(tiny_llama: Path, fresh_cache: Path) -> None:
    text = rlx("compile", tiny_llama, "--context", "64", "--timing").stdout
    assert text.startswith("prefill: ")
    assert "\ndecode: " in text
    for word in ("fusion, packing of weights", "LLVM's optimisations"):
        assert word in text


@pytest.mark.wide
def test_compile_timing(tiny_llama: Path, tmp_path: Path, fresh_cache: Path) -> None:
    found = json.loads(rlx("compile", tiny_llama, "--context", "64", "--timing", "--json").stdout)
    assert [program["program"] for program in found["programs"]] == ["prefill", "decode"]
    assert {"stage", "seconds", "passes"} == found["programs"][0]["stages"][0].keys()
    assert not (fresh_cache / "compiled").exists()
    passes = {own["pass"] for stage in found["programs"][0]["stages"] for own in stage["passes"]}
    assert passes >= {"mir-outline-kernels", "convert-vector-to-llvm"}  # the table has the slowest alone
    assert "--output" in rlx("compile", tiny_llama, "--timing", "-o", tmp_path / "out", status=2).stderr


# Cache ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the modules of the tiny model in it."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    rlx("compile", tiny_llama, "--context", "64")
    (folder / "compiled").mkdir(parents=True)
    for own in explained(tiny_llama, "--context", "64"):  # of what other tests have compiled too
        shutil.copy2(compile_cache.folder() / f"{own['key']}.rlx", folder / "compiled")
    return folder


@pytest.fixture
def compiled(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the entries of such a cache, of the test's own."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    shutil.copytree(filled, tmp_path / "cache")
    return tmp_path / "cache" / "compiled"


def explained(*arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(rlx("cache", "explain", *arguments, "--json").stdout)
    return found


def test_entries_that_serve(compiled: Path, tiny_llama: Path) -> None:
    rows = json.loads(rlx("cache", "list", "--json").stdout)
    assert sorted(row["module"] for row in rows) == ["decoder.decode", "decoder.prefill"]
    assert {row["serves"] for row in rows} == {"yes"}
    assert {row["key"] for row in rows} == {path.stem for path in compiled.iterdir()}
    for own in explained(tiny_llama, "--context", "64"):
        assert own["serves"]
        assert (compiled / f"{own['key']}.rlx").is_file()
    text = rlx("cache", "explain", tiny_llama, "--context", "64").stdout
    assert "decoder.prefill is used here" in text
    assert "hidden=64" in text
    (own,) = explained(rows[0]["key"][:20])
    assert own["serves"]
    assert own["parts"]["options"]["activations"] == "int16"


def test_other_options_have_another_key(compiled: Path, tiny_llama: Path) -> None:
    found = explained(tiny_llama, "--context", "32", "--activations", "exact")
    assert not any(own["found"] for own in found)
    assert all(own["reasons"] == ["there is no entry of this key"] for own in found)
    differs = found[1]["nearest"]["differs"]
    assert differs == [
        "option activations: the entry has int16 where exact is wanted",
        "option maxima: the entry has context 64 where 32 is wanted",
    ]
    text = rlx("cache", "explain", tiny_llama, "--context", "32").stdout
    assert "decoder.decode isn't compiled yet" in text
    assert "the entry has context 64 where 32 is wanted" in text


def test_an_entry_of_another_processor(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = next(compiled.iterdir()).stem
    architecture, cpu, model, features = native.host_processor()
    first = next(word for word in features.split(",") if word.startswith("+"))
    others = features.replace(f"{first},", f"-{first[1:]},", 1) + ",+avx99"
    monkeypatch.setattr(native, "host_processor", lambda: (architecture, "other", model, others))
    (own,) = explained(key)
    assert not own["serves"]
    assert f"processor cpu: the entry has {cpu} where other is wanted" in own["reasons"]
    assert f"processor: this one lacks {first[1:]}, which the entry was compiled for" in own["reasons"]
    assert "processor: this one has avx99, which the entry doesn't use" in own["reasons"]


def test_an_entry_of_another_compiler(compiled: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "compiler_build", lambda: "another build")
    rows = json.loads(rlx("cache", "list", "--json").stdout)
    assert all(row["serves"].startswith("no: compiler: the entry is of build ") for row in rows)
    (reason,) = explained(tiny_llama, "--context", "64")[0]["nearest"]["differs"]
    assert reason.endswith("this one is another buil")


def test_a_damaged_entry(compiled: Path, tiny_llama: Path) -> None:
    for path in compiled.iterdir():
        path.write_bytes(b"nothing")
    assert "can't be read" in rlx("cache", "list").stdout
    own = explained(tiny_llama, "--context", "64")[0]
    assert own["found"]
    assert not own["serves"]
    assert "can't be read" in own["reasons"][0]


def test_keys_that_name_no_entry(compiled: Path) -> None:
    assert "begins no entry" in rlx("cache", "explain", "0123abc", status=1).stderr
    digit = next(compiled.iterdir()).stem
    (compiled / f"{digit[:6]}{'0' * 58}.rlx").write_bytes(b"")
    assert "see `rlx cache list`" in rlx("cache", "explain", digit[:6], status=1).stderr
