# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measured choices of kernels: what they change, how they are chosen and kept, and `rlx tune`."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_cli import rlx

import rlx_mlir
from rlx_mlir import formats, native
from rlx_mlir.codegen.cpu import registry
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.compiler import CompileOptions, stages
from rlx_mlir.errors import InputError
from rlx_mlir.hir import GraphModule
from rlx_mlir.measure import tune
from rlx_mlir.measure.programs import executable_of
from rlx_mlir.measure.subjects import ModuleSubject
from rlx_mlir.measure.timing import Comparison, Series
from rlx_mlir.models import decoder
from rlx_mlir.models.programs import compile_program
from rlx_mlir.runtime import cache, tuned
from rlx_mlir.runtime.tiles import request_tiles
from rlx_mlir.tools.loading import Loading
from rlx_mlir.tuning.choices import format_choices, text_of
from rlx_mlir.tuning.cpu import SHARED, Choices, parse_choices

KNOWN = CompileOptions().known_choices


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RLX_DEBUG", "")
    monkeypatch.setenv("NO_COLOR", "1")


def candidates(monkeypatch: pytest.MonkeyPatch, **programs: list[dict[str, int]]) -> None:
    """Generators that have candidates have these, by program."""
    known = {own.name for own in registry.generators() if own.candidates}

    def made(name: str, program: str) -> list[dict[str, int]]:
        return programs.get(program, []) if name in known else []

    monkeypatch.setattr(registry, "candidates", made)


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


@pytest.mark.skipif(not request_tiles(), reason="the processor has no AMX")
@pytest.mark.parametrize("weight", ["f32", "q4_1", "activations"])
def test_choices_of_tiles(weight: str) -> None:
    """Blocks of rows and groups keep every bit; blocks of K, and multiply-adds instead of tiles, round otherwise."""
    m = GraphModule.mir("product")
    x, random = m.input("x", ["n", 320]), np.random.default_rng(0)
    inputs = {"x": random.standard_normal((70, 320), np.float32)}
    w = random.standard_normal((320, 96), np.float32)
    if weight == "q4_1":
        m.set_outputs({"y": m.dequant_matmul(x, m.param("w", [96, 320], packed=weight))})
        w = formats.encode(weight, np.ascontiguousarray(w.T)).reshape(96, -1)
    else:
        own = m.param("w", [320, 96]) if weight == "f32" else m.input("w", [320, 96])
        m.set_outputs({"y": m.matmul(x, own)})

    def made(own: dict[str, int]) -> Any:
        kernel = "matmul_0" if weight == "activations" else "dequant_matmul_0"
        executable = rlx_mlir.compile(m, cache=False, choices={kernel: own} if own else {})
        if weight != "activations":
            executable.set_params({"w": w})
        (template,) = executable.artifact.templates.values()
        given = {**inputs, "w": w} if weight == "activations" else inputs
        return executable.run(given)["y"], template, executable.artifact.code

    rule, template, code = made({})
    assert template.startswith("gemm_amx_f32")
    for own in ({"amx_rows": 32}, {"amx_group": 1}):
        result, name, other = made(own)
        assert name == template
        assert other != code
        assert np.array_equal(result, rule)
    for own in ({"amx_k": 32}, {"amx": 0}):
        result, name, other = made(own)
        assert (name == template) == ("amx" not in own)
        assert other != code
        np.testing.assert_allclose(result, rule, rtol=1e-4, atol=1e-4)
    assert made({"amx": 1})[2] == code


@pytest.mark.skipif(not Target.from_features(native.host_processor()[3]).tiles("bf16"), reason="no tiles of bf16")
def test_choices_of_tiles_of_bf16() -> None:
    m = GraphModule.mir("product")
    m.set_outputs({"y": m.matmul(m.input("x", ["n", 96], "bf16"), m.param("w", [96, 64], "bf16"))})
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16) for shape in ((40, 96), (96, 64)))
    found = {}
    for text, own in (("rule", {}), ("prefetch", {"prefetch": 0}), ("amx", {"amx": 0})):
        executable = rlx_mlir.compile(m, cache=False, choices={"dequant_matmul_0": own} if own else {})
        executable.set_params({"w": w})
        result = executable.run({"x": x})["y"]
        found[text] = (*executable.artifact.templates.values(), result.tobytes(), executable.artifact.code)
    assert found["rule"][:2] == found["prefetch"][:2]
    assert found["rule"][0] == "gemm_amx"
    assert found["rule"][2] != found["prefetch"][2]
    assert found["amx"][0] != "gemm_amx"


def test_tiles_are_limited() -> None:
    assert Choices().limited((12, 8, 4, 2, 1)) == (12, 8, 4, 2, 1)
    assert Choices({"tile_rows": 5}).limited((12, 8, 4, 2, 1)) == (4, 2, 1)
    assert Choices({"tile_rows": 1}).limited((6, 1)) == (1,)
    assert (Choices().ahead(1024), Choices({"prefetch": 0}).ahead(1024)) == (1024, 0)


def test_choices_are_text_in_pipelines() -> None:
    choices = {"b": {"prefetch": 0}, "a": {"tile_rows": 4, "prefetch": 64}}
    text = format_choices(choices)
    assert text == "a:prefetch:64+a:tile_rows:4+b:prefetch:0"
    assert parse_choices(text, SHARED) == {name: Choices(own) for name, own in choices.items()}
    assert f"choices={text}" in dict(stages(CompileOptions(choices=choices)))["linalg"]
    with pytest.raises(InputError, match=r"expects kernel:choice:number, joined by \+, but got 'a:b'"):
        parse_choices("a:b", SHARED)


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ([], "'choices' expects a mapping from kernels to choices, but got"),
        ({"a": 3}, "'choices' expects a mapping from names to numbers for 'a', but got 3"),
        ({"a": {"tile": 3}}, "expects tile_rows, prefetch, amx, .*amx_group.* for 'a', but got 'tile'"),
        ({"a": {"amx_k": 40}}, "expects a multiple of 32 from 32 to 4096 for amx_k of 'a', but got 40"),
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
    assert tuned.find(parts(), KNOWN) == {}
    path = tuned.keep(parts(), {"k": {"prefetch": 0}}, {"ratio": 1.5})
    assert tuned.find(parts(), KNOWN) == {"k": {"prefetch": 0}}
    assert json.loads(path.read_text())["measured"] == {"ratio": 1.5}
    assert tuned.find(cache.key_parts({"module": "n"}, CompileOptions().as_dict()), KNOWN) == {}
    assert tuned.find(cache.key_parts({"module": "m"}, CompileOptions(level=1).as_dict()), KNOWN) == {}
    monkeypatch.setattr(tuned, "compiler_build", lambda: "another")
    assert tuned.find(parts(), KNOWN) == {}
    tuned.forget(parts())
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"build": 1}', "\x00"])
def test_a_damaged_file_is_ignored(content: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tuned.keep(parts(), {}, {})
    path.write_text(content)
    with caplog.at_level(logging.WARNING, "rlx_mlir.runtime.tuned"):
        assert tuned.find(parts(), KNOWN) == {}
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


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Any:
    return rlx_mlir.load_model(tiny_llama, threads=1, context=64, chunk=32, cache=False)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variants are the module by rule: for tests of what follows from times."""

    def compiled(self: Any, choices: Any) -> Any:
        return executable_of(self._subject._model, self._subject.name)

    monkeypatch.setattr(tune._Tuner, "_compile", compiled)


def faked(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float | list[float]]) -> None:
    """Times of candidates as they are said here by their text, for every kernel; the rule takes 1."""

    def measure(self: Any, variants: Any) -> tune.Times:
        candidates = self._candidates(variants[""])
        times: tune.Times = {}
        for variant, size, kernel in itertools.product(variants, self._subject.cases, variants[""].artifact.kernels):
            own = candidates.get((size, kernel), ())
            text = text_of(own[int(variant)]) if variant.isdigit() and int(variant) < len(own) else variant
            spent = seconds.get(text, 1.0)
            series = Series([spent] * 3 if isinstance(spent, float) else spent)
            times[variant, size, kernel] = times[variant, size, ""] = series
        return times

    monkeypatch.setattr(tune._Tuner, "_measure", measure)


@pytest.mark.usefixtures("uncompiled")
def test_what_is_faster_is_kept(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, {"prefetch 0": 0.9, "amx 0": 0.9, "prefetch 2048": 0.8, "chosen": 0.8})
    prefill, decode = tune.tune_model(model, threads=1, rounds=3)
    assert {own.choices["prefetch"] for own in decode.kernels} == {2048}
    assert {text_of(own.choices) for own in prefill.kernels} <= {"prefetch 0", "amx 0"}
    assert prefill.kernels
    assert decode.gains[1].ratio == pytest.approx(1.25)
    assert Path(decode.kept).is_file()
    sizes = {"context": model.context, "chunk": model.chunk}
    again: Any = compile_program(model.config, "decode", **sizes, activations="int16", threads=1)
    assert again.artifact.key["options"]["choices"] == decode.choices


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    ("seconds", "kernels"),
    [
        ({}, False),
        ({"prefetch 0": 0.99, "amx 0": 0.99}, False),  # below the least gain
        ({"prefetch 0": 0.9, "amx 0": 0.9, "chosen": 1.0}, True),  # faster alone, not all together
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
    faked(monkeypatch, {name: [0.1, 0.9, 0.5] for name in ("prefetch 0", "prefetch 2048", "amx 0")})
    assert not any(own.kernels for own in tune.tune_model(model, threads=1, rounds=3))


@pytest.mark.usefixtures("uncompiled")
def test_what_changes_bits_may_be_left_out(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, {"amx 0": 0.5, "amx_k 128": 0.5, "prefetch 0": 0.9})
    for own in tune.tune_model(model, threads=1, rounds=3, same_bits=True):
        assert not any(registry.knobs()[name].changes_bits for kernel in own.kernels for name in kernel.choices)


def test_one_length_of_prompts_on_a_cpu(model: Any) -> None:
    with pytest.raises(
        InputError, match="hold for any number of rows: one length of prompts is expected, but got 4, 8"
    ):
        tune.tune_model(model, prompts=(4, 8))


def test_choices_of_several_sizes_are_joined() -> None:
    gain = Comparison(1.5, 0.0, "")
    own = tune.ProgramTuning("prefill", 2)
    own.kernels = [
        tune.KernelGain("a", 16, {"key_tile": 16}, gain),
        tune.KernelGain("a", 512, {"key_tile": 64}, gain),
        tune.KernelGain("b", 16, {"split@16": 2}, gain),
        tune.KernelGain("b", 512, {"split@512": 1}, gain),
    ]
    assert own.choices == {"a": {"key_tile": 64}, "b": {"split@16": 2, "split@512": 1}}
    own.gains = {16: gain, 512: Comparison(1.0, 0.0, "")}
    assert own.is_gain
    own.gains[512] = Comparison(0.9, 0.0, "")
    assert not own.is_gain
    own.gains = {16: Comparison(1.5, 0.5, "spread")}
    assert not own.is_gain


# Modules -------------------------------------------------------------------------------------------------


def test_a_module_is_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is what `compile` with the same options finds; other sizes of calls don't matter for that."""
    candidates(monkeypatch, decode=[{"prefetch": 0}])
    faked(monkeypatch, {"prefetch 0": 0.5, "chosen": 0.5})
    options: Any = {"activations": "int8", "maxima": {"n": 64}}
    (found,) = rlx_mlir.tune(product(), sizes={"n": 5}, rounds=3, threads=1, **options)
    assert (found.name, found.symbol, set(found.gains)) == ("product", "n", {5})
    assert found.choices == {"block_dot_0": {"prefetch": 0}}
    assert rlx_mlir.compile(product(), **options).artifact.key["options"]["choices"] == found.choices
    assert not rlx_mlir.compile(product(), activations="int8").artifact.key["options"]["choices"]


def test_a_module_is_measured_on_given_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are those of the arrays; a cache is updated where it is."""
    candidates(monkeypatch, prefill=[{"prefetch": 0}])
    m = GraphModule.hir("attend")
    x, pos = m.input("x", ["batch", "seq", 32]), m.input("pos", ["batch"], "i32")
    caches = [m.input(name, ["batch", 64, 16]) for name in ("k", "v")]
    k, v = (m.linear(x, m.param(f"{name}_w", [32, 16])) for name in "kv")
    y, *out = m.attention(
        x,
        k,
        v,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        mask_kind="causal",
        k_cache=caches[0],
        v_cache=caches[1],
        pos=pos,
    )
    m.set_outputs({"y": y, "k_out": out[0], "v_out": out[1]})
    found = tune.tune_module(
        m, arrays={"pos": np.array([50, 3], np.int32)}, sizes={"seq": 4}, rounds=3, threads=1, keep=False
    )
    assert (found.symbol, found.kept) == ("seq", "")
    subject = ModuleSubject(m, CompileOptions(), {"seq": 4}, {"pos": np.array([50, 3], np.int32)})
    assert subject.cases == {4: {"batch": 2, "seq": 4}}
    with pytest.raises(InputError, match=r"'pos' .*100"):
        tune.tune_module(m, arrays={"pos": np.array([100], np.int32)}, sizes={"seq": 4})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sizes": {"m": 3}}, "'sizes' names 'm', but 'product' has n"),
        ({"sizes": {"n": 0}}, "'sizes' expects positive numbers for 'n', but got 0"),
        ({"sizes": {"n": []}}, r"'sizes' expects positive numbers for 'n', but got \[\]"),
        ({"sizes": {"n": (4, 8)}}, "one size of 'n' is expected, but got 4, 8"),
        ({"sizes": {"n": 65}, "maxima": {"n": 64}}, "'sizes' has 65 for 'n', but its maximum is 64"),
        ({"arrays": {"z": np.zeros(3)}}, "'arrays' names 'z', but 'product' has x, w"),
        ({"target": "nvptx"}, "'target' expects what can be measured here, cpu or cuda, but got 'nvptx'"),
        ({"choices": {"block_dot_0": {"prefetch": 0}}}, "'choices' are what is looked for"),
        ({"speed": 1}, "speed"),
    ],
)
def test_modules_that_cannot_be_tuned(options: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        tune.tune_module(product(), **options)


@pytest.mark.wide
def test_the_command_tunes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates(monkeypatch, decode=[{"prefetch": 0}])
    faked(monkeypatch, {"prefetch 0": 0.5, "chosen": 0.5})
    path = tmp_path / "graph.mlir"
    path.write_text(product().to_text())
    np.savez(tmp_path / "given.npz", x=np.zeros((7, 64), np.float32))
    rounds = ("--rounds", "3", "--threads", "1")
    text = rlx("tune", str(path), "--size", "n=5", "--maximum", "n=64", *rounds).stdout
    assert "product: 2.00x as fast as by rule" in text
    assert "kept in " in text
    found = json.loads(rlx("tune", str(path), "--arrays", str(tmp_path / "given.npz"), *rounds, "--json").stdout)
    assert [(own["program"], own["symbol"], list(own["gains"])) for own in found["programs"]] == [
        ("product", "n", ["7"])
    ]
    options: Any = {"activations": "int16", "maxima": {"n": 64}}
    assert rlx_mlir.compile(product(), **options).artifact.key["options"]["choices"]
    for given, message in (
        (("--size", "n"), "'--size' expects symbol=number, but got 'n'"),
        (("--size", "n=a"), "'--size' expects positive numbers with commas between, but got 'a'"),
        (("--prompt-tokens", "8"), "'--prompt-tokens' says nothing about a file of one module: leave it out"),
        (("--arrays", str(path)), "cannot be read as a .npz file"),
    ):
        assert message in rlx("tune", str(path), *given, status=2 if message.startswith("'--") else 1).stderr
    candidates(monkeypatch)
    assert "product: none of its kernels has choices to try" in rlx("tune", str(path), *rounds).stdout
    assert "'--size' says nothing about a model" in rlx("tune", "smollm2", "--size", "n=3", status=2).stderr


def test_the_command(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loading, "load", lambda self, say: model)
    candidates(monkeypatch, decode=[{"prefetch": 0}])
    monkeypatch.setattr(decoder, "PROGRAMS", ("decode",))  # each is some modules to compile
    options = ("--threads", "1", "--rounds", "3", "--prompt-tokens", "8", "--dry-run")
    found = json.loads(rlx("tune", "tiny", *options, "--json").stdout)
    assert [(own["program"], own["tried"]) for own in found["programs"]] == [("decode", 1)]
    assert not (tmp_path / "cache" / "tuned").exists()


@pytest.mark.usefixtures("uncompiled")
def test_the_report(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loading, "load", lambda self, say: model)
    faked(monkeypatch, {"prefetch 0": 0.5, "amx 0": 0.5, "chosen": 0.5})
    text = rlx("tune", "tiny", "--threads", "1").stdout
    assert "decode: 2.00x as fast as by rule (spread 0%)" in text
    assert "prefetch 0, 2.00x as fast" in text
    assert "kept in " in text
    assert json.loads(rlx("cache", "--json").stdout)["parts"]["tuned"]["files"] == 2
    faked(monkeypatch, {})
    text = rlx("tune", "tiny", "--threads", "1").stdout
    assert "decode: nothing of 4 tried is faster than the rule beyond noise" in text
