# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tuning and measuring on a GPU, without one: a stand-in for the driver says how long kernels take."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cuda_harness import FakeCuda, emulated_device, fake_device
from test_cli import rlx

import rlx_mlir
from rlx_mlir.compiler import CompileOptions
from rlx_mlir.errors import DeviceMemoryError, DriverMissingError
from rlx_mlir.hir import GraphModule
from rlx_mlir.measure import bench, device, tune, workloads
from rlx_mlir.measure.bench import Request, run
from rlx_mlir.measure.profile import profile_model
from rlx_mlir.measure.programs import material_of, options_of
from rlx_mlir.measure.subjects import ModelSubject
from rlx_mlir.models import decoder
from rlx_mlir.models.programs import compile_program
from rlx_mlir.runtime import cache, tuned
from rlx_mlir.tools.loading import Loading

#: Seconds of a kernel, and of a warp of one for few rows: fewer warps are faster.
KERNEL, WARP = 5e-6, 1e-6


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RLX_DEBUG", "")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def gpu() -> Iterator[FakeCuda]:
    with fake_device("sm_90a", leaks=False, memory=1 << 30) as cuda:

        def launch(image: bytes, name: str, grid: Any, block: tuple[int, ...], shared: int, params: bytes) -> None:
            cuda.advance(WARP * block[0] / 32 if "_gemv" in name else KERNEL)

        cuda.run_kernels(launch)
        yield cuda


@pytest.fixture(scope="module")
def model(gpu: FakeCuda, tiny_llama: Path) -> Any:
    return rlx_mlir.load_model(tiny_llama, target="cuda", context=64, chunk=32, cache=False)


@pytest.fixture
def tuner(gpu: FakeCuda, model: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes tuners of a module, whose clock is the GPU's."""
    monkeypatch.setattr(tune._Tuner, "clock", staticmethod(gpu.clock))

    def make(program: str, *prompts: int, tries: int = 1, same_bits: bool = False) -> tune._Tuner:
        plan = tune._Plan(None, 3, tries, same_bits, keep=True, say=lambda _: None)
        params = decoder.parameters(model.config, model.file, model.context)
        return tune._Tuner(ModelSubject(model, program, params, {}, prompts), plan)

    return make


@pytest.mark.wide
def test_what_is_faster_is_found_and_kept_and_used(tuner: Any, model: Any) -> None:
    found = tuner("decode").run()
    assert len(found.kernels) >= 5
    for own in found.kernels:
        assert own.choices == {"gemv_warps": 4}
        assert own.gain.ratio > 1.5
    assert found.gains[1].ratio > 1.2
    # The next compilation finds it: that of `load_model`, with its options.
    sizes = {"context": model.context, "chunk": model.chunk, "candidates": model.candidates}
    again: Any = compile_program(model.config, "decode", **sizes, activations="int8", target="cuda")
    assert again.artifact.key["options"]["choices"] == found.choices
    kept = json.loads(Path(found.kept).read_text())
    assert kept["choices"] == found.choices
    assert kept["measured"]["1"]["ratio"] == found.gains[1].ratio


@pytest.mark.slow
def test_what_is_not_faster_is_not_kept(tuner: Any, gpu: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faster kernels don't help where the module as a whole isn't faster."""
    time = iter(range(1 << 20))
    monkeypatch.setattr(tune._Tuner, "clock", staticmethod(lambda: float(next(time))))
    found = tuner("decode").run()
    assert found.kernels
    assert not found.is_gain
    assert found.kept == ""


def test_candidates_are_for_sizes(tuner: Any, model: Any) -> None:
    """Of prompts, for their numbers of rows."""
    own = tuner("prefill", 16, 32, tries=3)
    found = own._candidates(model.programs.prefill)
    templates = model.programs.prefill.artifact.templates
    tokens = {tokens for tokens, _ in found}
    assert tokens == {16, 32}
    for (rows, kernel), each in found.items():
        assert 1 <= len(each) <= 3
        if templates[kernel].startswith("gemv"):
            ends = {int(name.partition("@")[2]) for choices in each for name in choices if name != "few_rows"}
            assert ends in ({{16: 16, 32: 64}[rows]}, {1})  # the ends of their ranges; the head has one row
        else:
            assert templates[kernel] == "attention_f32"
    assert any("tile_rows@16" in choices for each in found.values() for choices in each)
    assert any("gemv_warps@1" in choices for each in found.values() for choices in each)
    joined = tune._joined(found, 0)
    assert any("@16" in text and "@64" in text for text in (" ".join(own) for own in joined.values()))
    # Prompts in one range of rows share its candidates.
    found = tuner("prefill", 20, 32, tries=3)._candidates(model.programs.prefill)
    for tokens, kernel in found:
        assert found[tokens, kernel] == found[32, kernel]


def test_what_changes_bits_may_be_left_out(tuner: Any, model: Any) -> None:
    found = tuner("prefill", 16, tries=20, same_bits=True)._candidates(model.programs.prefill)
    names = {name.partition("@")[0] for each in found.values() for own in each for name in own}
    assert names == {"stages", "sweep", "gemv_warps", "gemv_rows"}
    found = tuner("decode", tries=20, same_bits=True)._candidates(model.programs.decode)
    assert any("gemv_warps" in own for own in found[1, "block_quantize_block_dot_add_0"])
    assert not any("gemv_warps" in own for own in found[1, "rms_norm_block_quantize_block_dot_0"])


def test_a_candidate_that_cannot_run_is_left_out(
    tuner: Any, model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def compiled(self: Any, choices: Any) -> Any:
        if any("gemv_warps" in own for own in choices.values()):
            raise DeviceMemoryError("there isn't enough memory")
        return model.programs.decode

    monkeypatch.setattr(tune._Tuner, "_compile", compiled)
    with caplog.at_level(logging.WARNING, "rlx_mlir.measure.tune"):
        found = tuner("decode").run()
    assert found.tried == 1
    assert not found.kernels
    assert "candidate 1 of decode is left out: there isn't enough memory" in caplog.text


@pytest.mark.slow
def test_a_model_is_loaded_with_what_is_kept(
    model: Any, gpu: FakeCuda, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune._Tuner, "clock", staticmethod(gpu.clock))
    prefill, decode = tune.tune_model(model, prompts=(16, 32), rounds=3, tries=2)
    again: Any = rlx_mlir.load_model(tiny_llama, target="cuda", context=64, chunk=32)
    assert prefill.kept
    assert decode.kept
    assert again.programs.prefill.artifact.key["options"]["choices"] == prefill.choices
    assert again.programs.decode.artifact.key["options"]["choices"] == decode.choices


def test_choices_hold_for_a_device_and_its_driver() -> None:
    paths = set()
    for chip, driver in (("sm_90a", 12080), ("sm_90a", 12090), ("sm_80", 12080)):
        with fake_device(chip, driver=driver):
            options = CompileOptions(target="cuda", chip="sm_80")
            parts = cache.key_parts({"module": "m"}, options.as_dict())
            assert tuned.find(parts, options.known_choices) == {}
            paths.add(tuned.keep(parts, {"k": {"split": 2}}, {}))
            assert tuned.find(parts, options.known_choices) == {"k": {"split": 2}}
    assert len(paths) == 3


def test_another_number_of_multiprocessors_is_another_device(gpu: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = cache.key_parts({"module": "m"}, CompileOptions(target="cuda").as_dict())
    path, own = tuned.path_of(parts), tuned.device_parts()
    assert own == {"name": "fake GPU 9.0", "multiprocessors": 132, "driver": 12080}
    monkeypatch.setattr(tuned, "device_parts", lambda: {**own, "multiprocessors": 114})
    assert tuned.path_of(parts) != path


@pytest.mark.slow
def test_the_command(model: Any, monkeypatch: pytest.MonkeyPatch, gpu: FakeCuda) -> None:
    monkeypatch.setattr(tune._Tuner, "clock", staticmethod(gpu.clock))
    monkeypatch.setattr(Loading, "load", lambda self, say: model)
    monkeypatch.setattr(decoder, "PROGRAMS", ("decode",))  # each is some modules to compile
    text = rlx("tune", "tiny", "--device", "cuda", "--tries", "1", "--rounds", "3").stdout
    assert "gemv_warps 4, 2." in text
    assert "kept in " in text


# Profiles and benchmarks -------------------------------------------------------------------------------


def test_profile(model: Any) -> None:
    found = profile_model(model, prompt_tokens=8, decode=3, rounds=2)
    prefill, decode = found.programs
    kernels = {own.name: own for own in decode.kernels}
    attention = kernels["attention_0"]  # two launches each of two layers, and the events' own steps of 1 us
    assert attention.seconds == pytest.approx(attention.calls * (2 * KERNEL + 3e-6), rel=0.3)
    assert attention.template == "attention_decode"
    assert all(own.work.bytes for own in decode.kernels if own.kind == "gemm")
    assert prefill.tokens == 8
    assert "fake GPU 9.0, 132 multiprocessors: 66900 GFLOP/s of f32, 1979000 Gop/s of int8, " in str(found.roofline)
    assert "GB/s copied in 64 MiB" in str(found.roofline)


def test_the_limits_follow_from_the_device(gpu: FakeCuda) -> None:
    probe = device.DeviceProbe()
    (figure,) = probe.figures().values()
    assert figure() > 0
    assert probe.working_set == 64 << 20
    for peak in device.PEAKS.values():
        assert 1e12 < peak.flops < 2e14
        assert peak.integer_ops is None or peak.integer_ops > peak.flops


def test_times_of_kernels_are_those_of_events(gpu: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(own for own in workloads.WORKLOADS if own.startswith("rms_norm"))
    monkeypatch.setattr(bench, "check", lambda *_: None)  # kernels do nothing here
    (row,) = run(Request(threads=1, kernels=(name,), rounds=3, floor=0.0, device="cuda"), lambda _: None)
    assert 5 <= row["ours"]["median"] < 60  # microseconds
    assert row["machine"]["device"].startswith("fake GPU")


@pytest.mark.slow
def test_tokens_per_second_of_a_model(tiny_llama: Path) -> None:
    request = Request(threads=1, model=str(tiny_llama), prompts=(4,), decode=2, rounds=1, device="cuda")
    with emulated_device("sm_90a", memory=1 << 29):
        prefill, decode = run(request, lambda _: None)
    assert (prefill["what"], decode["what"]) == ("prefill 4", "decode")
    assert prefill["unit"] == "tokens/s"
    assert prefill["machine"]["device"].startswith("fake GPU")
    assert decode["bound"] == "memory"


def test_rivals_are_elsewhere(gpu: FakeCuda) -> None:
    for option, value in (("--vs", "torch"), ("--threads", "2")):
        text = rlx("bench", "--device", "cuda", option, value, status=2).stderr
        assert f"'{option}' is for CPUs: benchmarks/gpu compares with others on a GPU" in text


@pytest.mark.parametrize("command", ["bench", "profile", "tune"])
def test_without_a_gpu(command: str, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CUDA_DRIVER", "/nowhere/libcuda.so.1")
    arguments = [] if command == "bench" else [tiny_llama]
    text = rlx(command, *arguments, "--device", "cuda", status=1).stderr
    assert "/nowhere/libcuda.so.1" in text
    with pytest.raises(DriverMissingError):
        tuned.device_parts()


def test_materials_are_those_of_the_compiler(model: Any, gpu: FakeCuda) -> None:
    """What `rlx tune` keeps is for the module that `load_model` compiles."""
    assert material_of(model, "decode") == decoder.describe(model.config, "decode", model.candidates)
    assert options_of(model, "decode").target == "cuda"
    assert options_of(model, "prefill").maxima["seq"] == 32


def test_a_module_is_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """At two sizes of a symbol; where another schedule is faster for few rows, that one is taken."""
    m = GraphModule.mir("product")
    m.set_outputs({"y": m.matmul(m.input("x", ["n", 64]), m.param("w", [64, 48]))})
    options: Any = {"target": "cuda", "maxima": {"n": 64}}
    with fake_device("sm_90a", leaks=False) as gpu:

        def launch(image: bytes, name: str, grid: Any, block: tuple[int, ...], shared: int, params: bytes) -> None:
            gpu.advance(3 * KERNEL if "_gemv" in name else KERNEL)

        gpu.run_kernels(launch)
        monkeypatch.setattr(tune._Tuner, "clock", staticmethod(gpu.clock))
        (found,) = rlx_mlir.tune(m, sizes={"n": (4, 40)}, rounds=3, tries=2, **options)
        again: Any = rlx_mlir.compile(m, **options)
        assert again.artifact.key["options"]["choices"] == found.choices
        del again
    assert found.symbol == "n"
    assert found.choices == {"matmul_0": {"few_rows": 3}}
    assert {size: round(gain.ratio) for size, gain in found.gains.items()} == {4: 3, 40: 1}
