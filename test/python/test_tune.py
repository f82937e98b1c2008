# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measured choices of kernels: what they change, how they are chosen and kept, and `rlx tune`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import rlx

import rlx_mlir
from rlx_mlir import formats
from rlx_mlir.codegen.cpu.choices import Choices, format_choices, parse_choices
from rlx_mlir.compiler import CompileOptions, stages
from rlx_mlir.errors import InputError
from rlx_mlir.hir import GraphModule
from rlx_mlir.measure import tune
from rlx_mlir.measure.timing import Series
from rlx_mlir.runtime import cache, tuned


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RLX_DEBUG", "")
    monkeypatch.setenv("NO_COLOR", "1")


def product() -> GraphModule:
    m = GraphModule.mir("product")
    m.set_outputs({"y": m.dequant_matmul(m.input("x", ["n", 64]), m.param("w", [48, 64], packed="q4_1"))})
    return m


@pytest.mark.parametrize(("activations", "kernel"), [("int8", "block_dot_0"), ("exact", "dequant_matmul_0")])
def test_choices_change_code_and_no_bit(activations: str, kernel: str) -> None:
    random = np.random.default_rng(0)
    w = formats.encode("q4_1", random.standard_normal((48, 64), np.float32)).reshape(48, -1)
    x = random.standard_normal((13, 64), np.float32)
    results, codes = [], set()
    for own in ({}, {"tile_rows": 1}, {"tile_rows": 4, "prefetch": 0}, {"prefetch": 4096}):
        choices = {kernel: own} if own else {}
        executable = rlx_mlir.compile(product(), cache=False, activations=activations, choices=choices)
        executable.set_params({"w": w})
        results.append(executable.run({"x": x})["y"].tobytes())
        codes.add(executable.artifact.code)
    assert len(set(results)) == 1
    assert len(codes) >= 2


def test_tiles_are_limited() -> None:
    assert Choices().limited((12, 8, 4, 2, 1)) == (12, 8, 4, 2, 1)
    assert Choices(tile_rows=5).limited((12, 8, 4, 2, 1)) == (4, 2, 1)
    assert Choices(tile_rows=1).limited((6, 1)) == (1,)
    assert (Choices().ahead(1024), Choices(prefetch=0).ahead(1024)) == (1024, 0)


def test_choices_are_text_in_pipelines() -> None:
    choices = {"b": {"prefetch": 0}, "a": {"tile_rows": 4, "prefetch": 64}}
    text = format_choices(choices)
    assert text == "a:prefetch:64+a:tile_rows:4+b:prefetch:0"
    assert parse_choices(text) == {"a": Choices(4, 64), "b": Choices(None, 0)}
    assert f"choices={text}" in dict(stages(CompileOptions(choices=choices)))["linalg"]
    with pytest.raises(InputError, match=r"expects kernel:choice:number, joined by \+, but got 'a:b'"):
        parse_choices("a:b")


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ([], "'choices' expects a mapping from kernels to choices, but got"),
        ({"a": 3}, "'choices' expects a mapping from names to numbers for 'a', but got 3"),
        ({"a": {"tile": 3}}, "expects tile_rows or prefetch for 'a', but got 'tile'"),
        ({"a": {"tile_rows": 0}}, "expects a number from 1 to 64 for tile_rows of 'a', but got 0"),
        ({"a": {"prefetch": 1.5}}, "for prefetch of 'a', but got 1.5"),
    ],
)
def test_choices_that_cannot_be(choices: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        CompileOptions(choices=choices)


# What is kept -----------------------------------------------------------------------------------------


def parts() -> dict[str, Any]:
    return cache.key_parts({"module": "m"}, CompileOptions().as_dict())


def test_choices_are_kept_for_one_build(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuned.find(parts()) == {}
    path = tuned.keep(parts(), {"k": {"prefetch": 0}}, {"ratio": 1.5})
    assert tuned.find(parts()) == {"k": {"prefetch": 0}}
    assert json.loads(path.read_text())["measured"] == {"ratio": 1.5}
    assert tuned.find(cache.key_parts({"module": "n"}, CompileOptions().as_dict())) == {}
    assert tuned.find(cache.key_parts({"module": "m"}, CompileOptions(level=1).as_dict())) == {}
    monkeypatch.setattr(tuned, "compiler_build", lambda: "another")
    assert tuned.find(parts()) == {}
    tuned.forget(parts())
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"build": 1}', "\x00"])
def test_a_damaged_file_is_ignored(content: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tuned.keep(parts(), {}, {})
    path.write_text(content)
    with caplog.at_level(logging.WARNING, "rlx_mlir.runtime.tuned"):
        assert tuned.find(parts()) == {}
    assert content == '{"build": 1}' or str(path) in caplog.text


def test_later_compilations_use_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rlx_mlir.compile(product(), activations="int8")
    own = cache.key_parts({"module": product().to_text()}, CompileOptions(activations="int8").as_dict())
    assert len(list(cache.folder().iterdir())) == 1
    tuned.keep(own, {"block_dot_0": {"tile_rows": 2}}, {})
    executable = rlx_mlir.compile(product(), activations="int8")
    assert executable.artifact.key["options"]["choices"] == {"block_dot_0": {"tile_rows": 2}}
    assert len(list(cache.folder().iterdir())) == 2  # another key: both stay
    given = rlx_mlir.compile(product(), activations="int8", choices={"block_dot_0": {"prefetch": 0}})
    assert given.artifact.key["options"]["choices"] == {"block_dot_0": {"prefetch": 0}}


# Tuning -----------------------------------------------------------------------------------------------


@pytest.fixture
def model(tiny_llama: Path) -> Any:
    return rlx_mlir.load_model(tiny_llama, threads=1, context=64, chunk=32)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variants are the module by rule: for tests of what follows from times."""

    def compiled(self: Any, choices: Any) -> Any:
        return {"prefill": self._model._prefill, "decode": self._model._decode}[self._program]

    monkeypatch.setattr(tune._Tuner, "_compile", compiled)


def faked(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float]) -> None:
    """Times of variants as they are said here, for every kernel; the one by rule takes 1."""

    def measure(self: Any, variants: Any) -> dict[tuple[str, str], Series]:
        kernels = [*variants[""].artifact.kernels, ""]
        return {(v, k): Series([seconds.get(v, 1.0)] * 3) for v in variants for k in kernels}

    monkeypatch.setattr(tune._Tuner, "_measure", measure)


@pytest.mark.usefixtures("uncompiled")
def test_what_is_faster_is_kept(model: Any, monkeypatch: pytest.MonkeyPatch, tiny_llama: Path) -> None:
    faked(monkeypatch, {"prefetch 0": 0.9, "prefetch 2048": 0.8, "chosen": 0.8})
    prefill, decode = tune.tune_model(model, threads=1, rounds=3)
    assert {own.choices["prefetch"] for own in decode.kernels} == {2048}
    assert {own.choices["prefetch"] for own in prefill.kernels} == {0}
    assert decode.gain is not None
    assert decode.gain.ratio == pytest.approx(1.25)
    assert Path(decode.kept).is_file()
    again = rlx_mlir.load_model(tiny_llama, threads=1, context=64, chunk=32)
    assert again._decode.artifact.key["options"]["choices"] == decode.choices
    ids = [5, 6, 7]
    assert np.array_equal(again.logits(ids), model.logits(ids))


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    ("seconds", "kernels"),
    [
        ({}, False),
        ({"prefetch 0": 0.99}, False),  # below the least gain
        ({"prefetch 0": 0.9, "chosen": 1.0}, True),  # faster alone, not all together
    ],
)
def test_what_is_not_faster_is_not_kept(
    model: Any, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], kernels: bool
) -> None:
    faked(monkeypatch, seconds)
    for own in tune.tune_model(model, threads=1, rounds=3):
        assert bool(own.kernels) == kernels
        assert own.kept == ""


@pytest.mark.usefixtures("uncompiled")
def test_noise_is_no_gain(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(self: Any, variants: Any) -> dict[tuple[str, str], Series]:
        kernels = [*variants[""].artifact.kernels, ""]
        return {(v, k): Series([1.0, 1.0, 1.0] if v == "" else [0.1, 0.9, 0.5]) for v in variants for k in kernels}

    monkeypatch.setattr(tune._Tuner, "_measure", measure)
    assert not any(own.kernels for own in tune.tune_model(model, threads=1, rounds=3))


def test_the_command(tiny_llama: Path, tmp_path: Path) -> None:
    options = ("--context", "64", "--threads", "1", "--rounds", "3", "--prompt-tokens", "8", "--dry-run")
    found = json.loads(rlx("tune", tiny_llama, *options, "--json").stdout)
    assert [own["program"] for own in found["programs"]] == ["prefill", "decode"]
    assert [own["tried"] for own in found["programs"]] == [len(tune.CANDIDATES[p]) for p in ("prefill", "decode")]
    assert not (tmp_path / "cache" / "tuned").exists()


@pytest.mark.usefixtures("uncompiled")
def test_the_report(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, {"prefetch 0": 0.5, "chosen": 0.5})
    text = rlx("tune", tiny_llama, "--context", "64", "--threads", "1").stdout
    assert "decode: 2.00x as fast as by rule (spread 0%)" in text
    assert "prefetch 0, 2.00x as fast" in text
    assert "kept in " in text
    assert json.loads(rlx("cache", "--json").stdout)["parts"]["tuned"]["files"] == 2
    faked(monkeypatch, {})
    text = rlx("tune", tiny_llama, "--context", "64", "--threads", "1").stdout
    assert "decode: nothing of 4 tried is faster than the rule beyond noise" in text
