# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules compiled for GPUs and run: by the emulator of PTX everywhere, and by a GPU where there is one.

python -m pytest -m gpu test/python        runs what needs a GPU
"""

from __future__ import annotations

import json
import runpy
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device, real_device

import rlx_mlir as rlx
from rlx_mlir import CudaExecutable, DeviceArray, formats, native
from rlx_mlir.errors import InputError
from rlx_mlir.hir import GraphModule
from rlx_mlir.interpreter import interpret
from rlx_mlir.models.caches import CacheType


@pytest.fixture(params=["emulated", pytest.param("real", marks=pytest.mark.gpu)], autouse=True)
def gpu(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    with emulated_device() if request.param == "emulated" else real_device():
        yield request.param


def compiled(module: GraphModule, **options: Any) -> CudaExecutable:
    found = rlx.compile(module, target="cuda", **options)
    assert isinstance(found, CudaExecutable)
    return found


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def layer() -> GraphModule:
    """Products with dense and packed weights, rows, element-wise operations, a table; a row for each of `rows`."""
    m = GraphModule.hir("layer")
    x, ids = m.input("x", ["rows", 64]), m.input("ids", ["rows"], "i32")
    dense, packed = m.param("dense", [64, 48]), m.param("packed", [40, 64], packed="q8_0")
    gamma, table = m.param("gamma", [48]), m.param("table", [5, 48])
    hidden = m.rms_norm(m.mm(x, dense) + m.gather(table, ids), gamma)
    m.set_outputs({"hidden": m.silu(hidden), "decoded": m.linear(x, packed)})
    return m


def layer_params() -> dict[str, np.ndarray]:
    return {
        "dense": normal(64, 48, seed=1),
        "packed": formats.encode("q8_0", normal(40, 64, seed=2)),
        "gamma": normal(48, seed=3),
        "table": normal(5, 48, seed=4),
    }


def layer_inputs(rows: int) -> dict[str, np.ndarray]:
    return {"x": normal(rows, 64, seed=rows), "ids": np.arange(rows, dtype=np.int32) % 5}


def test_a_layer_at_sizes_that_hurt() -> None:
    module = layer()
    executable = compiled(module, maxima={"rows": 70})
    executable.set_params(layer_params())
    for rows in (0, 1, 2, 17, 33, 70, 17, 17, 17):
        given = layer_inputs(rows)
        expected = interpret(module, {**given, **layer_params()})
        results = executable.run(given)
        for name, wanted in expected.items():
            np.testing.assert_allclose(results[name], wanted, rtol=2e-5, atol=2e-5, err_msg=f"{name} of {rows} rows")
    assert executable.graph_counts[2] >= 3


def test_results_are_the_same_from_run_to_run() -> None:
    executable = compiled(layer(), maxima={"rows": 70})
    executable.set_params(layer_params())
    given = layer_inputs(19)
    first = executable.run(given)
    for _ in range(4):  # alone, captured, replayed
        for name, array in executable.run(given).items():
            np.testing.assert_array_equal(array, first[name])
    there = {name: DeviceArray.from_numpy(array) for name, array in given.items()}
    for name, array in executable.run(there, device_outputs=True).items():
        np.testing.assert_array_equal(array.numpy(), first[name])


@pytest.mark.parametrize("chip", ["sm_80", "sm_89", "sm_90", "sm_120a"])
@pytest.mark.quick(1)
def test_other_chips(gpu: str, chip: str) -> None:
    if gpu == "real":
        pytest.skip("this machine's GPU is one chip")
    with emulated_device(chip) as cuda:
        module = layer()
        executable = compiled(module, maxima={"rows": 70})
        assert executable.artifact.chip == {"sm_90": "sm_90a"}.get(chip, chip)
        executable.set_params(layer_params())
        for rows in (1, 33):
            given = layer_inputs(rows)
            expected = interpret(module, {**given, **layer_params()})
            for name, result in executable.run(given).items():
                np.testing.assert_allclose(result, expected[name], rtol=2e-5, atol=2e-5, err_msg=f"{name}, {rows} rows")
        chained = {line.rpartition("pdl=")[2] for line in cuda.trace() if line.startswith("launch")}
        assert ("1" in chained) == (chip in ("sm_90", "sm_120a"))


def decoder() -> GraphModule:
    """Attention of one token to a cache, which gets its key and value."""
    m = GraphModule.hir("step")
    heads, kv_heads, size, length = 4, 2, 16, 24
    x = m.input("x", [1, 1, heads * size])
    pos = m.input("pos", [1], "i32")
    keys = m.input("keys", [1, length, kv_heads * size])
    values = m.input("values", [1, length, kv_heads * size])
    q = m.linear(x, m.param("q", [heads * size, heads * size]))
    k = m.linear(x, m.param("k", [heads * size, kv_heads * size]))
    v = m.linear(x, m.param("v", [heads * size, kv_heads * size]))
    result, keys_out, values_out = m.attention(
        q, k, v, k_cache=keys, v_cache=values, pos=pos, num_heads=heads, num_kv_heads=kv_heads, head_dim=size,
        mask_kind="causal",
    )  # fmt: skip
    m.set_outputs({"y": result, "keys_out": keys_out, "values_out": values_out})
    return m


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("pair", [("q8_0", "q4_0"), ("f16", "q8_0"), ("bf16", "f32")], ids="/".join)
@pytest.mark.quick(3)
def test_caches_of_blocks_and_of_different_types(pair: tuple[str, str], tokens: int) -> None:
    types = dict(zip(("k", "v"), (CacheType(kind, 64) for kind in pair), strict=True))
    m = GraphModule.hir("caches")
    q, k, v = m.input("q", [2, tokens, 128]), m.input("k", [2, tokens, 64]), m.input("v", [2, tokens, 64])
    caches = {f"{name}_cache": m.input(f"{name}_cache", [2, 9, t.width], t.element) for name, t in types.items()}
    heads: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 32, "mask_kind": "causal"}
    schemes = {f"{name}_scheme": type.scheme for name, type in types.items()}
    out, *new = m.attention(q, k, v, **heads, **caches, pos=m.input("pos", [2], "i32"), **schemes)
    m.set_outputs(
        {"out": out, "k_out": new[0], "v_out": new[1]}, tied=dict(zip(("k_out", "v_out"), caches.values(), strict=True))
    )
    given = {name: normal(2, tokens, 64 + 64 * (name == "q"), seed=ord(name)) for name in "qkv"}
    given |= {f"{name}_cache": type.stored(normal(18, 64)).reshape(2, 9, -1) for name, type in types.items()}
    given["pos"] = np.array([0, 5], np.int32)
    expected = interpret(m, given)
    results = compiled(m).run(given)
    np.testing.assert_allclose(results["out"], expected["out"], rtol=2e-5, atol=2e-5)
    for name in ("k_out", "v_out"):
        assert np.asarray(results[name]).tobytes() == expected[name].tobytes()


def test_a_decode_loop_keeps_its_cache_on_the_gpu() -> None:
    module = decoder()
    executable = compiled(module)
    params = {name: normal(64, 64 if name == "q" else 32, seed=ord(name)) / 8 for name in "qkv"}
    executable.set_params(params)
    names = ("keys", "values")
    host = {name: np.zeros((1, 24, 32), np.float32) for name in names}
    there = {name: DeviceArray.from_numpy(array) for name, array in host.items()}
    x, pos = np.zeros((1, 1, 64), np.float32), np.zeros(1, np.int32)
    call = executable.bind({"x": x, "pos": pos, **there}, donate=names)
    for step in range(6):
        x[...], pos[0] = normal(1, 1, 64, seed=step), step
        expected = interpret(module, {"x": x, "pos": pos, **host, **params})
        host = {name: np.asarray(expected[f"{name}_out"]) for name in names}
        results = call()
        np.testing.assert_allclose(results["y"], expected["y"], rtol=1e-4, atol=1e-5, err_msg=str(step))
        for name in names:
            np.testing.assert_allclose(there[name].numpy(), host[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert executable.graph_counts == (1, 1, 5)
    pos[0] = 24
    with pytest.raises(InputError, match="input 'pos' is 24 at index 0"):
        call()


def test_threads_share_an_executable() -> None:
    executable = compiled(layer(), maxima={"rows": 70})
    executable.set_params(layer_params())
    alone = {rows: executable.run(layer_inputs(rows)) for rows in (1, 5, 9)}
    different: list[Any] = []

    def work(rows: int) -> None:
        for _ in range(3):
            results = executable.run(layer_inputs(rows))
            different.extend(name for name in results if not np.array_equal(results[name], alone[rows][name]))

    threads = [threading.Thread(target=work, args=(rows,)) for rows in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not different


def test_saved_and_loaded(tmp_path: Path) -> None:
    executable = compiled(layer(), maxima={"rows": 70})
    executable.artifact.save(tmp_path / "layer.rlx")
    again = rlx.load(tmp_path / "layer.rlx")
    for own in (executable, again):
        own.set_params(layer_params())
    given = layer_inputs(7)
    first, second = executable.run(given), again.run(given)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_times_of_kernels() -> None:
    executable = compiled(layer(), maxima={"rows": 70})
    executable.set_params(layer_params())
    executable.profile()
    executable.run(layer_inputs(9))
    times = executable.timings()
    assert {name for name, _ in times} == executable.artifact.templates.keys()
    assert all(seconds > 0 for _, seconds in times)


def test_memory_is_given_back() -> None:
    before = native.CudaDevice().allocated_bytes
    executable = compiled(layer(), maxima={"rows": 70})
    executable.set_params(layer_params())
    executable.run(layer_inputs(9))
    assert native.CudaDevice().allocated_bytes > before
    del executable
    assert native.CudaDevice().allocated_bytes == before


def test_the_benchmark_of_launches(
    gpu: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(__file__).parents[3] / "benchmarks" / "gpu" / "launches.py"
    arguments = ["--kernels", "2", "--copies", "4096", "--repeats", "1", "--json"]
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    runpy.run_path(str(path), run_name="__main__")
    found = json.loads(capsys.readouterr().out)
    assert found["launches"][0]["calls"] == 2
    assert found["copies"][0]["to"] > 0


@pytest.mark.gpu
def test_other_libraries_share_memory(gpu: str) -> None:
    torch = pytest.importorskip("torch")
    if gpu != "real" or not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU")
    array = DeviceArray.from_numpy(normal(3, 4))
    tensor = torch.from_dlpack(array)
    tensor += 1
    torch.cuda.synchronize()
    np.testing.assert_array_equal(array.numpy(), normal(3, 4) + 1)
    np.testing.assert_array_equal(DeviceArray.from_dlpack(tensor).numpy(), normal(3, 4) + 1)
