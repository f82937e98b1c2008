# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executables on GPUs: plans, staging, CUDA graphs, parameters, threads, by a stand-in for the driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cuda_artifacts
import numpy as np
import pytest
from cuda_artifacts import artifact, check, inputs, one_call
from cuda_harness import OUT_OF_MEMORY, FakeCuda, fake_device

import rlx_mlir as rlx
from rlx_mlir.errors import DeviceMemoryError, InputError, StageError
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.cuda import CudaExecutable
from rlx_mlir.runtime.device import DeviceArray
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.runtime.loading import executable as make
from rlx_mlir.runtime.loading import load

RAW = np.arange(8, dtype=np.float32)


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def kernels() -> cuda_artifacts.Kernels:
    return cuda_artifacts.Kernels()


@pytest.fixture
def cuda(kernels: cuda_artifacts.Kernels) -> Iterator[FakeCuda]:
    with fake_device() as found:
        found.run_kernels(kernels)
        yield found


@pytest.fixture
def sample(cuda: FakeCuda) -> Iterator[CudaExecutable]:
    found = CudaExecutable(artifact())
    found.set_params({"raw": RAW})
    cuda.trace()
    yield found
    found.__dict__.clear()  # pytest keeps the object itself for longer


# Runs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 7, 255, 256, 257, 1000])
@pytest.mark.quick(1)
def test_runs(sample: CudaExecutable, n: int) -> None:
    for seed in range(3):  # alone, captured, replayed
        given = inputs(n, pos=seed, seed=seed)
        results = sample.run(given)
        assert list(results) == ["y", "cache_out"]
        check(results, given, RAW)
        assert all(isinstance(array, np.ndarray) for array in results.values())


def test_what_is_copied_and_launched(sample: CudaExecutable, cuda: FakeCuda) -> None:
    sample.run(inputs(300))
    assert cuda.trace() == [
        # x, cache and pos lie close to each other, at their maxima: one copy, as with both results
        f"upload {4096 + 256 + 4}",
        "launch add_one 2,1,1 256,1,1 shared=0 pdl=0",
        "launch add_weight 2,1,1 256,1,1 shared=0 pdl=1",
        "launch update_row 1,1,1 8,1,1 shared=0 pdl=0",
        # the result that starts with an input lies where that was copied
        f"download {4 * 32 + (256 - 128) + 256 + 4 * 300}",
    ]
    sample.run(inputs(0))
    launches = [line.split()[1] for line in cuda.trace() if line.startswith("launch")]
    assert launches == ["update_row"]  # no launches of no blocks, and no call without units


def test_call_with_keywords_and_properties(sample: CudaExecutable) -> None:
    given = inputs(5)
    y, cache_out = sample(**given)
    check({"y": y, "cache_out": cache_out}, given, RAW)
    assert (sample.device, sample.threads) == (0, 1)
    assert [spec.name for spec in sample.inputs] == ["x", "cache", "pos"]
    assert "increment" in str(sample.dispatch_report())


def test_outputs_are_written_where_asked(sample: CudaExecutable) -> None:
    given = inputs(9)
    y, cache_out = np.zeros(9, np.float32), np.zeros((4, 8), np.float32)
    results = sample.run(given, outputs={"y": y, "cache_out": cache_out})
    assert results["y"] is y
    assert results["cache_out"] is cache_out
    check(results, given, RAW)


def test_a_donated_array_of_numpy_is_updated(sample: CudaExecutable) -> None:
    given = inputs(9)
    before = {name: array.copy() for name, array in given.items()}
    results = sample.run(given, donate=["cache"])
    assert results["cache_out"] is given["cache"]
    check(results, before, RAW)


def test_arrays_of_the_gpu(sample: CudaExecutable, cuda: FakeCuda) -> None:
    given = inputs(40)
    there = {name: DeviceArray.from_numpy(array) for name, array in given.items()}
    cuda.trace()
    for _ in range(3):
        results = sample.run(there, device_outputs=True)
        assert all(isinstance(array, DeviceArray) for array in results.values())
        check(results, given, RAW)
    np.testing.assert_array_equal(there["cache"].numpy(), given["cache"])
    results = sample.run(there, donate=["cache"])  # mixed: y comes to the host
    assert results["cache_out"] is there["cache"]
    assert isinstance(results["y"], np.ndarray)
    check(results, given, RAW)
    assert not [line for line in cuda.trace() if line == "upload 160"]


def test_a_decode_loop_replays_one_graph(sample: CudaExecutable, cuda: FakeCuda) -> None:
    given = inputs(1)
    cache = DeviceArray.from_numpy(given["cache"])
    x, pos = given["x"], np.zeros(1, np.int32)
    y = np.zeros(1, np.float32)
    call = sample.bind({"x": x, "cache": cache, "pos": pos}, outputs={"y": y}, donate=["cache"])
    wanted = given["cache"].copy()
    for step in range(12):
        x[0], pos[0] = step, step % 4
        call()
        wanted[step % 4] += 1
        assert y[0] == step + 1 + 2 * RAW[0]
    np.testing.assert_array_equal(cache.numpy(), wanted)
    assert sample.graph_counts == (1, 1, 11)
    trace = cuda.trace()
    assert len([line for line in trace if line.startswith("launch")]) == 2 * 3  # run once, captured once
    assert len([line for line in trace if line == "graph"]) == 11


def test_graphs_are_bounded_and_the_last_used_stay(cuda: FakeCuda) -> None:
    found = CudaExecutable(artifact(), graphs=2)
    found.set_params({"raw": RAW})

    def run(n: int) -> bool:
        """Whether a graph was replayed, not made."""
        before = found.graph_counts
        check(found.run(given := inputs(n)), given, RAW)
        return found.graph_counts[2] > before[2] and found.graph_counts[1] == before[1]

    assert [run(n) for n in (3, 3, 3, 4, 4, 4)] == [False, False, True, False, False, True]
    assert [run(n) for n in (5, 5)] == [False, False]  # drops the graph of 3
    assert cuda.live["graph exec"] == 2
    assert [run(4), run(5), run(3)] == [True, True, False]


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_no_graphs(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "environment":
        monkeypatch.setenv("RLX_CUDA_GRAPHS", "0")
    none = CudaExecutable(artifact(), graphs=0 if by == "argument" else None)
    none.set_params({"raw": RAW})
    for _ in range(4):
        check(none.run(given := inputs(3)), given, RAW)
    assert none.graph_counts == (0, 0, 0)
    monkeypatch.setenv("RLX_CUDA_GRAPHS", "some")
    with pytest.raises(InputError, match="RLX_CUDA_GRAPHS expects a number that isn't negative, but it is 'some'"):
        CudaExecutable(artifact())


def test_new_parameters_are_seen_by_replayed_calls(sample: CudaExecutable) -> None:
    given = inputs(11)
    for _ in range(3):
        check(sample.run(given), given, RAW)
    other = RAW[::-1].copy()
    sample.set_params({"raw": other})
    for _ in range(3):
        check(sample.run(given), given, other)


def test_scratch_memory_grows(cuda: FakeCuda) -> None:
    found = CudaExecutable(one_call("detour"))
    for n in (20, 20, 20, 5, 5, 5, 20, 5):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(found.run({"x": x})["y"], x + 2)
    assert found._plan.scratch_bytes >= 400_000


def test_large_arrays_have_memory_of_their_own(cuda: FakeCuda) -> None:
    found = CudaExecutable(one_call("increment", symbols=(("n", 10_000_000),)))
    for n in (3, 1000, 300_000, 300_000, 10, 300_000):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(found.run({"x": x})["y"], x + 1)
    assert cuda.used < 4 * 4 * 300_000 + (1 << 20)  # grown to what was needed, not to the maxima


def test_concurrent_calls_take_turns(sample: CudaExecutable) -> None:
    failures: list[Any] = []

    def work(number: int) -> None:
        try:
            for step in range(20):
                given = inputs(1 + 37 * number, pos=step % 4, seed=number)
                check(sample.run(given), given, RAW)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_executables_in_threads(cuda: FakeCuda) -> None:
    failures: list[Any] = []

    def work(number: int) -> None:
        try:
            own = CudaExecutable(artifact(), graphs=2)
            own.set_params({"raw": RAW + number})
            for step in range(30):
                given: dict[str, Any] = inputs(1 + step % 5, pos=step % 4, seed=number)
                given["x"] = DeviceArray.from_numpy(given["x"])  # while another thread captures
                check(own.run(given, device_outputs=step % 2 == 0), given, RAW + number)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.quick(2)
def test_any_mixture_of_arrays(sample: CudaExecutable, cuda: FakeCuda, seed: int) -> None:
    rng = np.random.default_rng(seed)
    known: dict[tuple[str, int], DeviceArray] = {}  # so that addresses come again

    def there(name: str, array: np.ndarray) -> DeviceArray:
        place = known.setdefault((name, array.size), DeviceArray.zeros(array.shape, array.dtype))
        place.write(array)
        return place

    for _ in range(60):
        n = int(rng.choice([0, 1, 5, 300]))
        given = inputs(n, pos=int(rng.integers(4)), seed=int(rng.integers(100)))
        before = {name: array.copy() for name, array in given.items()}
        mixed = {name: there(name, array) if rng.integers(2) else array for name, array in given.items()}
        outputs: dict[str, Any] = {}
        donate = ["cache"] if rng.integers(2) else []
        for name, shape in (("y", (n,)), ("cache_out", (4, 8))):
            if rng.integers(2) and not (donate and name == "cache_out"):
                empty = np.zeros(shape, np.float32)
                outputs[name] = there(name, empty) if rng.integers(2) else empty
        device_outputs = bool(rng.integers(2))
        results = sample.run(mixed, outputs=outputs, donate=donate, device_outputs=device_outputs)
        check(results, before, RAW)
        for name, place in outputs.items():
            assert results[name] is place
        assert not donate or results["cache_out"] is mixed["cache"]
        if not donate:
            np.testing.assert_array_equal(np.asarray(mixed["cache"]), before["cache"])
        if "y" not in outputs:
            assert isinstance(results["y"], DeviceArray) == device_outputs
    assert sample.graph_counts[2] > 0


def test_shared_memory_above_the_default(cuda: FakeCuda) -> None:
    found = CudaExecutable(
        artifact(
            kernels=("some_shared",),
            inputs=(cuda_artifacts.buffer("pos", "i32", 1),),
            parameters=(),
            plan_parameters=(),
            outputs=(cuda_artifacts.buffer("y", "f32", 4, 8),),
            calls=((0, [("output", 0, 0), ("input", 0, 0)], [], None),),
            preparation=cuda_artifacts.Preparation(),
            positions=(),
            symbols=(),
        )
    )
    found.run({"pos": np.array([2], np.int32)})
    assert cuda.trace()[-2] == "launch update_row 1,1,1 8,1,1 shared=200000 pdl=0"


# Tensor maps --------------------------------------------------------------------------------------


def test_tensor_maps(cuda: FakeCuda, kernels: cuda_artifacts.Kernels) -> None:
    found = CudaExecutable(one_call("mapped"))
    x = DeviceArray.from_numpy(np.zeros(64, np.float32))
    found.run({"x": x})
    tag, address, codes = kernels.maps[0][:8], int.from_bytes(kernels.maps[0][8:16], "little"), kernels.maps[0][16:21]
    assert (tag, address, list(codes)) == (b"RLXTMAP1", x.address, [7, 2, 3, 2, 0])
    assert np.frombuffer(kernels.maps[0], np.uint32, 2, 24).tolist() == [63, 15]
    assert np.frombuffer(kernels.maps[0], np.uint16, 2, 44).tolist() == [32, 8]
    assert np.frombuffer(kernels.maps[0], np.uint64, 1, 56).tolist() == [256]
    found.run({"x": np.zeros(0, np.float32)})
    assert kernels.maps[1] == bytes(128)  # a tensor without elements has no map


# Parameters --------------------------------------------------------------------------------------


def test_parameters_are_shared(cuda: FakeCuda) -> None:
    shared: dict[str, Any] = {}
    first, second = CudaExecutable(artifact()), CudaExecutable(artifact())
    first.set_params({"raw": RAW}, shared=shared)
    used = cuda.used
    second.set_params({"raw": RAW.copy()}, shared=shared)
    assert cuda.used == used
    assert all(isinstance(known.array, DeviceArray) for known in shared.values())
    given = inputs(3)
    check(first.run(given), given, RAW)
    check(second.run(given), given, RAW)
    second.set_params({"raw": RAW + 1}, shared=shared)
    assert cuda.used > used
    check(second.run(given), given, RAW + 1)
    shared.clear()


def test_parameters_used_as_they_are(cuda: FakeCuda) -> None:
    plain = artifact(
        preparation=cuda_artifacts.Preparation(), plan_parameters=(cuda_artifacts.buffer("raw", "f32", 8),)
    )
    found, given = CudaExecutable(plain), inputs(6)
    shared: dict[str, Any] = {}
    found.set_params({"raw": 2 * RAW}, shared=shared)
    check(found.run(given), given, RAW)
    used = cuda.used
    other = CudaExecutable(plain)
    before = cuda.used
    other.set_params({"raw": 2 * RAW}, shared=shared)
    assert cuda.used == before > used
    there = DeviceArray.from_numpy(2 * RAW[::-1].copy())
    before = cuda.used
    found.set_params({"raw": there})
    assert cuda.used <= before
    check(found.run(given), given, RAW[::-1])
    shared.clear()


def test_parameters_of_the_gpu_are_prepared(cuda: FakeCuda) -> None:
    found, given = CudaExecutable(artifact()), inputs(6)
    found.set_params({"raw": DeviceArray.from_numpy(RAW)}, progress=True)
    check(found.run(given), given, RAW)


def test_positions_in_parameters_are_checked(cuda: FakeCuda) -> None:
    own = artifact(
        kernels=("increment",),
        inputs=(cuda_artifacts.buffer("x", "f32", "n"),),
        parameters=(cuda_artifacts.buffer("rows", "i32", 2),),
        plan_parameters=(cuda_artifacts.buffer("rows", "i32", 2),),
        outputs=(cuda_artifacts.buffer("y", "f32", "n"),),
        calls=((0, [("input", 0, 0), ("output", 0, 0)], [cuda_artifacts.N], None),),
        preparation=cuda_artifacts.Preparation(),
        positions=(
            cuda_artifacts.PositionCondition(
                "rows", "param", 0, ("2", [(2, [])]), ("1", [(1, [])]), ("n", cuda_artifacts.N), "a table"
            ),
        ),
    )
    found = CudaExecutable(own)
    for rows in (np.array([0, 4], np.int32), DeviceArray.from_numpy(np.array([0, 4], np.int32))):
        found.set_params({"rows": rows})
        found.run({"x": np.zeros(5, np.float32)})
        with pytest.raises(InputError, match=r"parameter 'rows' is 4 at index 1, .* among the 4 rows that a table has"):
            found.run({"x": np.zeros(4, np.float32)})


# Arguments that don't fit -------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["host", "gpu"])
def test_positions_are_checked_before_anything_runs(sample: CudaExecutable, cuda: FakeCuda, where: str) -> None:
    given: dict[str, Any] = inputs(3, pos=4)
    if where == "gpu":
        given["pos"] = DeviceArray.from_numpy(given["pos"])
    with pytest.raises(InputError, match=r"input 'pos' is 4 at index 0, .* among the 4 rows that the cache has"):
        sample.run(given)
    assert not [line for line in cuda.trace() if line.startswith("launch")]
    check(sample.run(again := inputs(3)), again, RAW)


@pytest.mark.parametrize("where", ["host", "gpu"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros(3, np.float64)}, "input 'x' has element type float32, but got float64"),
        ({"x": np.zeros((3, 1), np.float32)}, "input 'x' has 1 dimensions"),
        ({"x": np.zeros(1001, np.float32)}, "'n' was compiled for at most 1000"),
        ({"cache": np.zeros((4, 9), np.float32)}, "input 'cache' has size 8 in dimension 1"),
    ],
)
@pytest.mark.quick(3)
def test_inputs_that_do_not_fit(sample: CudaExecutable, change: dict[str, Any], message: str, where: str) -> None:
    if where == "gpu":
        change = {name: DeviceArray.from_numpy(array) for name, array in change.items()}
    with pytest.raises(InputError, match=message):
        sample.run({**inputs(3), **change})


def test_names_that_do_not_fit(sample: CudaExecutable) -> None:
    given = inputs(3)
    with pytest.raises(InputError, match="missing inputs: pos"):
        sample.run({name: given[name] for name in ("x", "cache")})
    with pytest.raises(InputError, match="has no output 'z'"):
        sample.run(given, outputs={"z": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match="input 'x' can't be donated"):
        sample.run(given, donate=["x"])
    with pytest.raises(InputError, match="goes to the memory of 'cache', which is donated"):
        sample.run(given, donate=["cache"], outputs={"cache_out": np.zeros((4, 8), np.float32)})
    with pytest.raises(InputError, match="unknown parameters: w"):
        sample.set_params({"w": RAW})


def test_outputs_that_do_not_fit(sample: CudaExecutable) -> None:
    given = inputs(3)
    for array, message in (
        (np.zeros(4, np.float32), "output 'y' has shape .3. and element type float32, but got .4."),
        (DeviceArray.zeros((4,), np.float32), "output 'y' has shape .3. and element type float32, but got .4."),
        (DeviceArray.zeros((3,), np.float64), "but got .3. and float64"),
    ):
        with pytest.raises(InputError, match=message):
            sample.run(given, outputs={"y": array})
    whole = DeviceArray.zeros((8,), np.float32)
    part = DeviceArray(whole.address + 4, (3,), np.float32, device=0, owner=whole)
    with pytest.raises(InputError, match="goes to an array on GPU 0 at a multiple of 16 bytes"):
        sample.run(given, outputs={"y": part})
    x = DeviceArray.from_numpy(given["x"])
    with pytest.raises(InputError, match=r"(output 'y' and input 'x'|input 'x' and output 'y') share memory"):
        sample.run({**given, "x": x}, outputs={"y": x})


def test_inputs_at_odd_addresses_are_copied(sample: CudaExecutable) -> None:
    given: dict[str, Any] = inputs(3)
    whole = DeviceArray.from_numpy(np.concatenate([[0], given["x"]]).astype(np.float32))
    given["x"] = DeviceArray(whole.address + 4, (3,), np.float32, device=0, owner=whole)
    check(sample.run(given), given, RAW)


def test_parameters_come_first(cuda: FakeCuda) -> None:
    found = CudaExecutable(artifact())
    with pytest.raises(StageError, match="needs its parameters"):
        found.run(inputs(3))
    with pytest.raises(InputError, match="parameter 'raw' has size 8"):
        found.set_params({"raw": RAW[:7]})
    with pytest.raises(InputError, match="'graphs' expects a number that isn't negative, or None, but got -1"):
        CudaExecutable(artifact(), graphs=-1)


def test_bound_calls_keep_their_arrays(sample: CudaExecutable) -> None:
    given = inputs(3)
    with pytest.raises(InputError, match="a bound call donates what results are tied to"):
        sample.bind(given)
    with pytest.raises(InputError, match="of a bound call is a contiguous array"):
        sample.bind({**given, "x": np.zeros((3, 2), np.float32)[:, 0]}, donate=["cache"])


# Measuring ----------------------------------------------------------------------------------------


def test_profile(sample: CudaExecutable, cuda: FakeCuda) -> None:
    given = inputs(3)
    sample.profile()
    for _ in range(3):
        check(sample.run(given), given, RAW)
    times = sample.timings()
    assert [name for name, _ in times] == ["increment", "weigh", "update"]
    assert all(seconds == pytest.approx(2e-6) for _, seconds in times)  # the stand-in's clock: a kernel and an event
    assert sample.graph_counts == (0, 0, 0)
    sample.profile(False)
    for _ in range(3):
        check(sample.run(given), given, RAW)
    assert sample.timings() == times
    assert sample.graph_counts == (1, 1, 2)
    assert "us" in str(sample.dispatch_report()) or "µs" in str(sample.dispatch_report())


# Files ---------------------------------------------------------------------------------------------


def test_artifacts_are_saved_and_loaded(cuda: FakeCuda, tmp_path: Path) -> None:
    own = artifact()
    own.save(tmp_path / "sample.rlx")
    again = Artifact.load(tmp_path / "sample.rlx")
    assert (again.device_code, again.device_kernels, again.chip) == (own.device_code, own.device_kernels, own.chip)
    assert again.to_bytes() == own.to_bytes()
    found = rlx.load(tmp_path / "sample.rlx")
    assert isinstance(found, CudaExecutable)
    found.set_params({"raw": RAW})
    check(found.run(given := inputs(3)), given, RAW)
    data = own.to_bytes()
    for place in (20, 30, len(data) - 1):  # in the lengths of its parts, in its checksum, in its PTX
        damaged = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(rlx.errors.CacheError, match="checksum"):
            Artifact.from_bytes(damaged)


def test_loading_chooses_the_class(cuda: FakeCuda) -> None:
    assert type(make(artifact())) is CudaExecutable
    assert type(make(artifact(chip=""), threads=2)) is Executable
    with pytest.raises(InputError, match="was compiled for CPUs: Executable runs it"):
        CudaExecutable(artifact(chip=""))
    with pytest.raises(InputError, match="was compiled for CPUs, but 'device' is 1"):
        make(artifact(chip=""), device=1)
    with pytest.raises(FileNotFoundError):
        load("/nowhere/sample.rlx")


def machine_code(**changes: Any) -> Artifact:
    """An artefact with machine code beside its PTX, as the stand-in for the driver takes it."""
    own = artifact(**changes)
    return replace(own, cubin=b"FAKE CUBIN\n" + own.device_code, assembler=changes.get("assembler", "12.8.93"))


def test_machine_code_beside_ptx_is_what_runs(cuda: FakeCuda) -> None:
    found = CudaExecutable(Artifact.from_bytes(machine_code().to_bytes()))
    assert cuda.trace() == ["module cubin"]
    found.set_params({"raw": RAW})
    check(found.run(given := inputs(3)), given, RAW)
    CudaExecutable(artifact())
    assert "module ptx" in cuda.trace()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"assembler": "13.0.88"}, "ptxas 13.0.88 made it, but the driver is for CUDA 12"),
        ({"chip": "sm_80"}, "it is for sm_80, but fake GPU 9.0 isn't"),
    ],
    ids=["driver", "chip"],
)
def test_machine_code_that_cannot_run_is_left_alone(
    cuda: FakeCuda, changes: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    own = artifact()
    ptx = own.device_code.replace(b"sm_90a", b"sm_80")
    CudaExecutable(machine_code(**{"device_code": ptx, **changes}))
    assert cuda.trace() == ["module ptx"]
    assert said in caplog.text


def test_machine_code_that_the_driver_refuses(cuda: FakeCuda, caplog: pytest.LogCaptureFixture) -> None:
    cuda.fail("cuModuleLoadDataEx", 209)  # of another chip, for all that the name says
    CudaExecutable(machine_code())
    assert cuda.trace() == ["module ptx"]
    assert "machine code of 'sample' isn't used" in caplog.text
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in caplog.text
    cuda.fail("cuModuleLoadDataEx", OUT_OF_MEMORY)
    with pytest.raises(DeviceMemoryError):
        CudaExecutable(machine_code())


def test_graphs_do_without_early_starts_where_the_driver_refuses_them(sample: CudaExecutable, cuda: FakeCuda) -> None:
    given = inputs(3)
    sample.run(given)
    cuda.trace()
    cuda.fail("cuLaunchKernelEx", 400, 2)  # that of `add_weight`, while it is captured
    check(sample.run(given), given, RAW)
    launched = [line for line in cuda.trace() if line.startswith("launch")]
    assert [line.split()[1] for line in launched] == ["add_one", "add_one", "add_weight", "update_row"]
    assert not any(line.endswith("pdl=1") for line in launched)
    assert sample.graph_counts == (1, 1, 1)
    other = inputs(4)
    for _ in range(3):
        check(sample.run(other), other, RAW)
    assert sample.graph_counts == (2, 2, 3)


@pytest.mark.parametrize(("kind", "said"), [("gemm", True), ("rows", False)])
def test_code_for_sm_90_says_that_sm_90a_is_faster(
    cuda: FakeCuda, caplog: pytest.LogCaptureFixture, kind: str, said: bool
) -> None:
    ptx = artifact().device_code.replace(b"sm_90a", b"sm_90")
    CudaExecutable(artifact(chip="sm_90", device_code=ptx, kinds={"increment": kind}))
    assert ("chip='sm_90a' has faster products" in caplog.text) == said
    CudaExecutable(artifact(kinds={"increment": kind}))
    assert len(caplog.records) == said


@pytest.mark.parametrize(("driver", "captured"), [(12020, "pdl=0"), (12030, "pdl=1")])
def test_graphs_of_old_drivers_have_no_early_starts(
    driver: int, captured: str, kernels: cuda_artifacts.Kernels
) -> None:
    with fake_device(driver=driver) as cuda:
        cuda.run_kernels(kernels)
        found = CudaExecutable(artifact())
        found.set_params({"raw": RAW})
        flags = []
        for _ in range(2):
            cuda.trace()
            check(found.run(given := inputs(3)), given, RAW)
            (line,) = [line for line in cuda.trace() if line.startswith("launch add_weight")]
            flags.append(line.split()[-1])
        assert flags == ["pdl=1", captured]
        del found
