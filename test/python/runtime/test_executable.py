# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executables: what they refuse and how they say so, whose memory they use, threads, and artefacts as files."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compile_fresh

import rlx_mlir as rlx
from rlx_mlir import Artifact, Executable, GraphModule, formats, interpret
from rlx_mlir.errors import CacheError, ExecutionError, InputError, StageError


def layer() -> GraphModule:
    """y = silu(x w) with rows of a packed table added; z = x + other."""
    m = GraphModule.hir("layer")
    x, other = m.input("x", ["rows", 8]), m.input("other", ["rows", 8])
    ids = m.input("ids", ["rows"], "i32")
    w, table = m.param("w", [8, 32]), m.param("table", [5, 32], packed="q8_0")
    m.set_outputs({"y": m.silu(m.mm(x, w)) + m.gather(table, ids), "z": x + other})
    return m


def caches() -> GraphModule:
    """A cache that is written, and one that is read."""
    m = GraphModule.hir("caches")
    cache, new, pos = m.input("cache", ["b", 16, 4]), m.input("new", ["b", "s", 4]), m.input("pos", ["b"], "i32")
    updated = m.cache_update(cache, new, pos)
    m.set_outputs({"cache_out": updated, "sum": m.sum(updated, 1)})
    return m


def arrays(rows: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    x, other = (rng.standard_normal((rows, 8)).astype(np.float32) for _ in range(2))
    return {"x": x, "other": other, "ids": rng.integers(0, 5, rows).astype(np.int32)}


@pytest.fixture(scope="module")
def params() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    table = formats.encode("q8_0", rng.standard_normal((5, 32)).astype(np.float32))
    return {"w": rng.standard_normal((8, 32)).astype(np.float32), "table": table}


@pytest.fixture(scope="module")
def executable(params: dict[str, np.ndarray]) -> Executable:
    found = compile_fresh(layer(), maxima={"rows": 64})
    found.set_params(params)
    return found


@pytest.fixture(scope="module")
def cached() -> Executable:
    return compile_fresh(caches(), maxima={"b": 4, "s": 16})


def line_of(text: str) -> int:
    """The line of this file that holds the text (but for the lines that search for it)."""
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, start=1) if text in line and "line_of" not in line)


# -- what is refused -------------------------------------------------------------------------------------------------


def changed(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**arrays(), **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (changed(ids=None), "'layer': missing inputs: ids"),
        (changed(more=np.zeros(1)), "'layer': unknown inputs: more; known are x, other, ids"),
        ([1, 2], r"inputs of 'layer' are a mapping from names to arrays, but got list"),
        (changed(x=np.zeros((3, 8))), "input 'x' has element type float32, but got float64"),
        (
            changed(x=np.zeros((3, 8), ">f4")),
            r"input 'x' has element type float32, but got float32 with its bytes in the other order \(>f4\)",
        ),
        (changed(x=np.zeros((3, 7), np.float32)), r"'x' has size 8 in dimension 1 of \[rows, 8\], but got \[3, 7\]"),
        (changed(x=np.zeros(8, np.float32)), r"input 'x' has 2 dimensions, \[rows, 8\], but got \[8\]"),
        (
            changed(other=np.zeros((4, 8), np.float32)),
            r"symbol 'rows' is 3 in input 'x', but 4 in input 'other' \(dimension 0 of \[4, 8\]\)",
        ),
        (
            arrays(65),
            r"input 'x' has size 65 in dimension 0, but 'rows' was compiled for at most 64: compile with "
            r"maxima=\{'rows': 65\}",
        ),
        (changed(ids=np.zeros(3, np.int64)), "input 'ids' has element type int32, but got int64"),
        (changed(x=[[1.0] * 8, [2.0]]), r"input 'x' can't be read as an array \(got list\): ValueError: "),
        (changed(x="text"), "input 'x' has element type float32, but got <U4"),
        (changed(x=np.ma.masked_array(np.zeros((3, 8), np.float32))), "got a masked one"),
    ],
)
def test_inputs_that_are_refused(executable: Executable, inputs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        executable.run(inputs)  # the refused call
    assert str(raised.value).startswith(f"{__file__}:{line_of('# the refused call')}: ")
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w": None}, "'layer': missing parameters: w"),
        ({"v": np.zeros(3)}, "'layer': unknown parameters: v; known are w, table"),
        ({"w": np.zeros((8, 32), np.float16)}, "parameter 'w' has element type float32, but got float16"),
        (
            {"w": np.zeros((32, 8), np.float32)},
            r"parameter 'w' has size 8 in dimension 0 of \[8, 32\], but got \[32, 8\]",
        ),
        ({"table": np.zeros((5, 33), np.uint8)}, r"parameter 'table' has size 34 in dimension 1 of \[5, 34\]"),
        ({"table": np.zeros((5, 34), np.float32)}, "parameter 'table' has element type int8 or uint8, but got float32"),
    ],
)
def test_parameters_that_are_refused(
    executable: Executable, params: dict[str, np.ndarray], change: dict[str, Any], message: str
) -> None:
    given = {name: array for name, array in {**params, **change}.items() if array is not None}
    before = executable.run(arrays())
    with pytest.raises(InputError, match=message) as raised:
        executable.set_params(given)  # the refused parameters
    assert str(raised.value).startswith(f"{__file__}:{line_of('# the refused parameters')}: ")
    after = executable.run(arrays())  # the old parameters stay
    assert after["y"].tobytes() == before["y"].tobytes()


def test_order_of_calls_names_the_line() -> None:
    executable = compile_fresh(layer())
    with pytest.raises(StageError, match=r"test_executable\.py:\d+: 'layer' needs its parameters: call set_params"):
        executable.run(arrays())
    with pytest.raises(InputError, match=r"test_executable\.py:\d+: 'caches': missing inputs: new, pos$"):
        compile_fresh(caches())(cache=np.zeros((1, 16, 4), np.float32))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rlx.compile("func.func @f() { return }"), InputError, "expects a GraphModule, but got str.*from_text"),
        (lambda: rlx.compile(layer().ir_module), InputError, "expects a GraphModule, but got Module"),
        (lambda: rlx.compile(layer(), maxima={"cols": 3}), InputError, "'maxima' names 'cols', but 'layer' has rows"),
        (
            lambda: rlx.compile(layer(), maxima={"rows": 0}),
            InputError,
            "a positive size of 64 bits for 'rows', but got 0",
        ),
        (
            lambda: rlx.compile(layer(), maxima={"rows": 2**63}),
            InputError,
            "a positive size of 64 bits for 'rows', but got 9223372036854775808",
        ),
        (lambda: rlx.compile(layer(), maxima=64), InputError, "a mapping from symbols to sizes, but got 64"),
        (lambda: rlx.compile(layer(), activations="fp4"), InputError, "one of int8, int16, exact, but got 'fp4'"),
        (lambda: rlx.compile(layer(), target="tpu"), InputError, "'target'.*'tpu'"),
        (lambda: rlx.compile(layer(), level=4), InputError, "from 0 to 3, but got 4"),
        (lambda: rlx.compile(layer(), disable_templates="all"), InputError, "several names, but got 'all'"),
        (lambda: rlx.compile(layer(), disable_templates=("gem",)), InputError, "gemm, .*rows, attention.*'gem'"),
        (lambda: rlx.compile(layer(), features="avx2"), InputError, r"\+name or -name.*'avx2'"),
        (lambda: rlx.compile(layer(), features="+avx22"), InputError, r"'\+avx22', which isn't a feature.*\+avx2"),
        (lambda: rlx.compile(layer(), threads=0), InputError, "positive number, or None, but got 0"),
        (lambda: rlx.compile(layer(), threads=1 << 20), InputError, "threads must be from 1 to"),
        (lambda: rlx.emit(layer(), "gpu"), InputError, "'stage' expects one of hir, .*'gpu'"),
        (lambda: rlx.emit(layer().lower(), "hir"), StageError, "'layer' is past stage hir"),
    ],
)
@pytest.mark.quick(1)
def test_options_that_are_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        call()
    assert str(raised.value).startswith(f"{__file__}:")


def test_modules_that_are_lowered_otherwise_do_not_compile() -> None:
    module = layer().transform("hir-to-mir,rlx-fuse,rlx-to-kernels", stage="kernels")
    with pytest.raises(
        StageError, match=r"from stage kernels on: 'mir.parameters' of the module, .*, doesn't have w, table;"
    ):
        rlx.compile(module, cache=False)


@pytest.mark.parametrize(
    ("shapes", "build", "sizes", "message"),
    [
        ((["a", 6], ["c", 6]), lambda m, x, y: x + y, {"a": 2, "c": 3}, "'mir.add' in block 'sum'.*a is equal to c"),
        ((["a", 6], ["c", 6]), lambda m, x, y: x * y, {"a": 3, "c": 1}, "'mir.mul'.*but 3 and 1 were given"),
        (
            (["a", "k"], ["l", 4]),
            lambda m, x, y: m.mm(x, y),
            {"a": 2, "k": 3, "l": 4},
            "'k' is 3 in input 'x', 'l' is 4",
        ),
        ((["b", 2, 3], ["c", 3, 4]), lambda m, x, y: m.mm(x, y), {"b": 1, "c": 3}, "'mir.matmul'.*b is equal to c"),
        ((["a", 6], ["c", 6]), lambda m, x, y: m.concat([x, y], 1), {"a": 2, "c": 3}, "'mir.concat'"),
        ((["a", 6], ["n"]), lambda m, x, y: m.rms_norm(x, y), {"a": 2, "n": 5}, "n is equal to 6, but 5 and 6"),
        ((["a", 6], [1]), lambda m, x, y: m.narrow(x, 0, 2, 3) + y, {"a": 4}, "a is at least 5, but 4 and 5"),
        ((["a", "k"], [1]), lambda m, x, y: m.reshape(x, [4, 6]) + y, {"a": 5, "k": 6}, "a.k is equal to 24"),
        (
            ([1, "s", 8], [1, "t", 8]),
            lambda m, x, y: m.attention(x, y, m.input("v", [1, "u", 8]), num_heads=2, head_dim=4),
            {"s": 2, "t": 3, "u": 4},
            "'mir.attention'.*t is equal to u",
        ),
    ],
)
@pytest.mark.quick(2)
def test_sizes_that_types_leave_open_are_checked(shapes: Any, build: Any, sizes: dict[str, int], message: str) -> None:
    """Unequal sizes under different symbols: refused, where compiled code would read what isn't there."""
    m = GraphModule.hir("open")
    x, y = m.input("x", shapes[0]), m.input("y", shapes[1])
    with m.scope("sum"):
        m.set_outputs({"y": build(m, x, y)})
    for options in ({}, {"disable_templates": ("all",)}):
        executable = compile_fresh(m, **options)
        inputs = {
            spec.name: np.zeros([size if isinstance(size, int) else sizes[size] for size in spec.shape], np.float32)
            for spec in executable.inputs
        }
        with pytest.raises(InputError, match=message):
            executable.run(inputs)


def test_symbols_of_parameters() -> None:
    """Sizes that only parameters have, and those that inputs share with them."""
    m = GraphModule.hir("dynamic")
    m.set_outputs({"y": m.mm(m.input("x", ["a", "k"]), m.param("w", ["k", "n"]))})
    executable = compile_fresh(m, maxima={"a": 8, "k": 16, "n": 16})
    for k, n in ((3, 4), (7, 1)):
        w, x = np.ones((k, n), np.float32), np.ones((2, k), np.float32)
        executable.set_params({"w": w})
        assert np.array_equal(executable(x=x), x @ w)
        with pytest.raises(InputError, match=rf"symbol 'k' is {k} in parameter 'w', but 9 in input 'x'"):
            executable(x=np.ones((2, 9), np.float32))
    with pytest.raises(InputError, match="'n' was compiled for at most 16"):
        executable.set_params({"w": np.ones((3, 17), np.float32)})


def test_bytes_of_packed_weights_may_be_signed_or_not(params: dict[str, np.ndarray]) -> None:
    m = GraphModule.hir("bytes")
    m.set_outputs({"y": m.cast(m.input("x", [2], "i8"), "f32")})
    with pytest.raises(InputError, match="input 'x' has element type int8, but got uint8"):
        compile_fresh(m).run({"x": np.array([1, 200], np.uint8)})
    executable = compile_fresh(layer())
    results = []
    for table in (params["table"], params["table"].view(np.int8)):
        executable.set_params({**params, "table": table})
        results.append(executable.run(arrays())["y"])
    assert results[0].tobytes() == results[1].tobytes()


# -- whose memory ----------------------------------------------------------------------------------------------------


class Foreign:
    """An array of another library: nothing but DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class Elsewhere(Foreign):
    """An array on a GPU."""

    def __dlpack__(self, **_options: Any) -> Any:
        raise BufferError("the memory is on another device")


def misaligned(array: np.ndarray) -> np.ndarray:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    found = raw[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    assert array.itemsize == 1 or not found.flags.aligned
    return found


def read_only(array: np.ndarray) -> np.ndarray:
    found = array.copy()
    found.flags.writeable = False
    return found


@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: np.ascontiguousarray(a[::-1])[::-1],
        lambda a: np.pad(a, [(1, 1)] * a.ndim)[(slice(1, -1),) * a.ndim],
        misaligned,
        read_only,
        Foreign,
        lambda a: a.view(np.ndarray),
        memoryview,
    ],
    ids=["fortran", "strided", "reversed", "inner", "misaligned", "read-only", "dlpack", "view", "buffer"],
)
def test_arrays_of_every_kind(executable: Executable, params: dict[str, np.ndarray], convert: Any) -> None:
    expected = executable.run(arrays())
    found = executable.run({name: convert(array) for name, array in arrays().items()})
    assert {n: y.tobytes() for n, y in found.items()} == {n: y.tobytes() for n, y in expected.items()}
    executable.set_params({name: convert(array) for name, array in params.items()})
    assert executable.run(arrays())["y"].tobytes() == expected["y"].tobytes()


def test_arrays_that_cannot_be_read(executable: Executable) -> None:
    with pytest.raises(InputError, match=r"'x' can't be read as an array \(got Elsewhere\): .*another device"):
        executable.run(changed(x=Elsewhere(arrays()["x"])))


def test_results_are_arrays_for_everyone(executable: Executable) -> None:
    results = executable.run(arrays())
    assert list(results) == ["y", "z"]
    for y in results.values():
        assert y.flags.c_contiguous
        assert y.ctypes.data % 64 == 0
        assert np.shares_memory(np.from_dlpack(y), y)
    first = results["y"].copy()
    executable.run(arrays(5))
    assert np.array_equal(first, results["y"])  # a later call doesn't change the results of an earlier one
    y, z = executable(**arrays())
    assert np.array_equal(y, results["y"])
    assert np.array_equal(z, results["z"])


def test_results_go_to_given_arrays(executable: Executable) -> None:
    expected = executable.run(arrays())
    z = np.full((3, 8), np.nan, np.float32)
    results = executable.run(arrays(), outputs={"z": z})
    assert results["z"] is z
    assert np.array_equal(z, expected["z"])
    assert np.array_equal(results["y"], expected["y"])


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"w": np.zeros(3)}, "'layer' has no output 'w'; it has y, z"),
        (
            {"z": np.zeros((3, 9), np.float32)},
            r"output 'z' has shape \[3, 8\] and element type float32, but got \[3, 9\]",
        ),
        ({"z": np.zeros((3, 8))}, "element type float32, but got .* float64"),
        ({"z": np.zeros((8, 3), np.float32).T}, r"a contiguous, aligned, writeable array, but got strides \(4, 12\)"),
        ({"z": misaligned(np.zeros((3, 8), np.float32))}, "aligned=False"),
        ({"z": read_only(np.zeros((3, 8), np.float32))}, "writeable=False"),
        ({"z": [[0.0] * 8] * 3}, "output 'z' goes to an array of numpy, but got list"),
    ],
)
def test_outputs_that_are_refused(executable: Executable, outputs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        executable.run(arrays(), outputs=outputs)


def test_outputs_share_memory_with_nothing_else(executable: Executable, params: dict[str, np.ndarray]) -> None:
    inputs = arrays()
    both = np.zeros((6, 8), np.float32)
    with pytest.raises(InputError, match=r"(output 'z'|input 'x') and (output 'z'|input 'x') share memory"):
        executable.run(inputs, outputs={"z": inputs["x"]})
    inputs["x"] = both[:3]
    executable.run(inputs, outputs={"z": both[3:]})
    with pytest.raises(InputError, match="share memory"):
        executable.run(inputs, outputs={"z": both[2:5]})
    weights = np.zeros((5, 34), np.uint8)
    executable.set_params({**params, "table": weights})
    with pytest.raises(InputError, match="output 'z' shares memory with a parameter"):
        executable.run(arrays(), outputs={"z": weights.reshape(-1)[8:104].view(np.float32).reshape(3, 8)})
    executable.set_params(params)


def cache_inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    cache, new = (rng.standard_normal((2, length, 4)).astype(np.float32) for length in (16, 3))
    return {"cache": cache, "new": new, "pos": np.array([0, 7], np.int32)}


def test_caches_are_copied_unless_they_are_donated(cached: Executable) -> None:
    inputs = cache_inputs()
    before = inputs["cache"].copy()
    expected = interpret(caches(), inputs)
    results = cached.run(inputs)
    assert np.array_equal(inputs["cache"], before)
    assert np.array_equal(results["cache_out"], expected["cache_out"])
    given = np.empty_like(before)
    assert cached.run(inputs, outputs={"cache_out": given})["cache_out"] is given
    assert np.array_equal(given, expected["cache_out"])
    assert np.array_equal(inputs["cache"], before)
    results = cached.run(inputs, donate=["cache"])
    assert results["cache_out"] is inputs["cache"]
    assert np.array_equal(inputs["cache"], expected["cache_out"])
    np.testing.assert_allclose(results["sum"], expected["sum"], rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"donate": ["new"]}, "input 'new' can't be donated: no output of 'caches' is tied to it"),
        ({}, {"donate": "cache"}, "'donate' expects several names, but got 'cache'"),
        ({"cache": np.zeros((16, 2, 4), np.float32).swapaxes(0, 1)}, {}, "'cache' can't be donated: only a contiguous"),
        ({"cache": read_only(np.zeros((2, 16, 4), np.float32))}, {}, "'cache' can't be donated: .* writeable"),
        ({"cache": Foreign(read_only(np.zeros((2, 16, 4), np.float32)))}, {}, "'cache' can't be donated: .* writeable"),
        ({}, {"outputs": {"cache_out": np.zeros((2, 16, 4), np.float32)}}, "memory of 'cache', which is donated, but"),
    ],
)
def test_donations_that_are_refused(cached: Executable, change: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        cached.run({**cache_inputs(), **change}, **{"donate": ["cache"], **options})


def test_a_donated_cache_is_nothing_else(cached: Executable) -> None:
    inputs = cache_inputs()
    inputs["new"] = inputs["cache"][:, :3]
    inputs["new"] = inputs["cache"].reshape(-1)[:24].reshape(2, 3, 4)
    with pytest.raises(InputError, match="share memory"):
        cached.run(inputs, donate=["cache"])


def test_arrays_without_elements(executable: Executable, cached: Executable) -> None:
    """Some have no address."""
    results = executable.run(arrays(0))
    assert results["y"].shape == (0, 32)
    assert results["z"].shape == (0, 8)
    inputs = {"cache": np.zeros((0, 16, 4), np.float32), "new": np.zeros((0, 3, 4), np.float32)}
    results = cached.run({**inputs, "pos": np.zeros(0, np.int32)}, donate=["cache"])
    assert results["sum"].shape == (0, 4)
    results = cached.run({**cache_inputs(), "new": np.zeros((2, 0, 4), np.float32)})
    assert np.array_equal(results["cache_out"], cache_inputs()["cache"])


def test_modules_with_nothing_to_give_or_take() -> None:
    with pytest.raises(InputError, match="'nothing' gives nothing: set_outputs says what it returns"):
        compile_fresh(GraphModule.hir("nothing"))
    m = GraphModule.hir("constant")
    m.set_outputs({"y": m.constant([1.0, 2.0])})
    executable = compile_fresh(m)
    assert executable.params == ()
    assert np.array_equal(executable(), [1.0, 2.0])
    with pytest.raises(InputError, match="unknown inputs: x; known are none"):
        executable(x=1)


def test_half_precision_arrays() -> None:
    m = GraphModule.hir("half")
    x = m.input("x", ["n", 4], "bf16")
    m.set_outputs({"y": x + x})
    y = compile_fresh(m).run({"x": np.ones((2, 4), ml_dtypes.bfloat16)})["y"]
    assert y.dtype == ml_dtypes.bfloat16
    assert y.astype(float).tolist() == [[2.0] * 4] * 2


# -- threads ---------------------------------------------------------------------------------------------------------


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs work(number) in threads at once; the first exception of any is raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_share_an_executable(executable: Executable) -> None:
    expected = {rows: executable.run(arrays(rows)) for rows in range(1, 9)}

    def work(number: int) -> None:
        for turn in range(40):
            rows = (number + turn) % 8 + 1
            results = executable.run(arrays(rows))
            assert all(results[name].tobytes() == y.tobytes() for name, y in expected[rows].items())

    in_threads(8, work)


def test_parameters_change_between_calls_only(executable: Executable, params: dict[str, np.ndarray]) -> None:
    """A call sees all of the old parameters or all of the new ones, and they live as long as it runs."""
    other = {"w": params["w"] * 2, "table": params["table"]}
    inputs = arrays(64)
    allowed = set()
    for given in (params, other):
        executable.set_params(given)
        allowed.add(executable.run(inputs)["y"].tobytes())

    def work(number: int) -> None:
        for turn in range(30):
            if number == 0:
                executable.set_params([params, other][turn % 2])
            else:
                assert executable.run(inputs)["y"].tobytes() in allowed

    in_threads(4, work)
    executable.set_params(params)


def test_other_threads_go_on_during_a_run() -> None:
    m = GraphModule.hir("long")
    x = m.input("x", [1 << 15, 64])
    for _ in range(48):
        x = m.cumsum(m.sin(x), 0)
    m.set_outputs({"y": x})
    executable = compile_fresh(m, threads=1)
    array = np.ones((1 << 15, 64), np.float32)
    seconds: list[float] = []

    def work() -> None:
        begin = time.perf_counter()
        executable.run({"x": array})
        seconds.append(time.perf_counter() - begin)

    executable.run({"x": array})
    thread = threading.Thread(target=work)
    ticks = 0
    thread.start()
    while thread.is_alive():
        ticks += 1
        time.sleep(0.001)
    assert seconds[0] > 0.02, "too short to tell"
    assert ticks > 5


def test_threads_build_compile_and_run_at_once() -> None:
    def work(number: int) -> None:
        for turn in range(3):
            m = GraphModule.hir(f"module{number}")
            x = m.input("x", ["n", 8])
            m.set_outputs({"y": m.tanh(x * float(number + 1)) + float(turn)})
            array = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
            y = compile_fresh(m)(x=array)
            np.testing.assert_allclose(y, np.tanh(array * (number + 1)) + turn, rtol=1e-5, atol=1e-6)

    in_threads(4, work)


def test_profile(executable: Executable) -> None:
    executable.profile()
    executable.run(arrays())
    executable.run(arrays(8))
    timings = executable.timings()
    assert {name for name, _ in timings} == executable.artifact.templates.keys()
    assert all(0 <= seconds < 1 for _, seconds in timings)
    executable.profile(False)


# -- artefacts -------------------------------------------------------------------------------------------------------


def test_artefacts_are_files(executable: Executable, params: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / "deep" / "layer.rlx"
    executable.artifact.save(path)
    assert [p.name for p in path.parent.iterdir()] == ["layer.rlx"]
    loaded = Artifact.load(path)
    assert loaded.to_bytes() == executable.artifact.to_bytes()
    again = Executable(loaded)
    assert again.inputs == executable.inputs
    assert again.params == executable.params
    again.set_params(params)
    assert again.run(arrays())["y"].tobytes() == executable.run(arrays())["y"].tobytes()
    open_sizes = GraphModule.define("open", lambda m: {"y": m.input("x", ["a"]) + m.input("y", ["c"])})
    again = Executable(Artifact.from_bytes(compile_fresh(open_sizes).artifact.to_bytes()))
    with pytest.raises(InputError, match="a is equal to c"):
        again(x=np.zeros(2, np.float32), y=np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:40], "at least 60 bytes, but this one has 40"),
        (lambda data: data[:-1], "checksum doesn't hold"),
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], "checksum doesn't hold"),
        (lambda data: data + b"x", "checksum doesn't hold"),
        (lambda data: b"ELF" + data[3:], "not an artefact"),
        (lambda data: data[:8] + b"\xff" + data[9:], "not an artefact of version"),
    ],
)
def test_damaged_artefacts(executable: Executable, tmp_path: Path, damage: Any, message: str) -> None:
    path = tmp_path / "damaged.rlx"
    path.write_bytes(damage(executable.artifact.to_bytes()))
    with pytest.raises(CacheError, match=message):
        Artifact.load(path)


def test_artefacts_for_other_processors_are_not_run(executable: Executable) -> None:
    target = executable.artifact.target
    other = replace(executable.artifact, target={**target, "features": target["features"] + ",+avx99"})
    with pytest.raises(ExecutionError, match=r"'layer' was compiled for a processor \(.*\) with avx99, which this one"):
        Executable(other)
    other = replace(executable.artifact, target={**target, "triple": "riscv64-unknown-linux-gnu"})
    with pytest.raises(ExecutionError, match="compiled for riscv64, but this machine is"):
        Executable(other)


def test_sizes_beyond_memory_say_what_to_declare() -> None:
    m = GraphModule.hir("huge")
    x = m.input("x", ["a", "b", "c", "d"])
    m.set_outputs({"y": m.exp(m.cumsum(x, 0))})
    maxima = dict.fromkeys("abcd", 1 << 12)
    with pytest.raises(ExecutionError, match=r"'huge': cannot have \d+ bytes.*a = 4096, .*'maxima' declares others"):
        compile_fresh(m, maxima=maxima)


_FRESH = """
import sys
import numpy as np
from rlx_mlir import Artifact, Executable
executable = Executable(Artifact.load(sys.argv[1]))
data = np.load(sys.argv[2])
executable.set_params({name[2:]: data[name] for name in data.files if name.startswith("p_")})
results = executable.run({name[2:]: data[name] for name in data.files if name.startswith("i_")})
np.savez(sys.argv[3], **results)
print([name for name in sys.modules if name.split(".")[0] == "mlir" or name in ("rlx_mlir._compiler", "rlx_mlir.ir")])
"""


def test_artefacts_run_without_the_compiler(
    executable: Executable, params: dict[str, np.ndarray], tmp_path: Path
) -> None:
    executable.artifact.save(tmp_path / "layer.rlx")
    given: dict[str, Any] = {f"p_{name}": array for name, array in params.items()}
    given |= {f"i_{name}": array for name, array in arrays().items()}
    np.savez(tmp_path / "in.npz", **given)
    command = [sys.executable, "-c", _FRESH, *(str(tmp_path / n) for n in ("layer.rlx", "in.npz", "out.npz"))]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
    found = np.load(tmp_path / "out.npz")
    for name, y in executable.run(arrays()).items():
        assert found[name].tobytes() == y.tobytes()


def test_parameters_are_those_that_the_module_declares() -> None:
    """In their order, unused ones too; what the text doesn't name has the interpreter's names."""
    text = """
    func.func @text(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>, %u: tensor<?xf16> {mir.kind = "param"},
                    %w: tensor<4x4xf32> {mir.kind = "param"}) -> (tensor<?x4xf32>, tensor<4x4xf32>) {
      %0 = mir.matmul %x, %w : tensor<?x4xf32>, tensor<4x4xf32>
      %1 = mir.add %0, %y : tensor<?x4xf32>
      %2 = mir.add %w, %w : tensor<4x4xf32>
      return %1, %2 : tensor<?x4xf32>, tensor<4x4xf32>
    }"""
    module = GraphModule.from_text(text)
    executable = compile_fresh(module)
    assert [str(spec) for spec in executable.params] == ["arg2: [arg2_0] f16", "arg3: [4, 4] f32"]
    inputs = {name: np.ones((2, 4), np.float32) for name in ("arg0", "arg1")}
    params: dict[str, Any] = {"arg2": np.zeros(3, np.float16), "arg3": np.eye(4, dtype=np.float32)}
    executable.set_params(params)
    expected = interpret(module, {**inputs, **params})
    assert {n: y.tolist() for n, y in executable.run(inputs).items()} == {n: y.tolist() for n, y in expected.items()}
    with pytest.raises(InputError, match="arg0_0 is equal to arg1_0, but 2 and 3 were given"):
        executable.run({**inputs, "arg1": np.ones((3, 4), np.float32)})
    with pytest.raises(InputError, match="missing parameters: arg2"):
        executable.set_params({"arg3": params["arg3"]})


def test_specifications_describe_arguments(executable: Executable) -> None:
    assert [str(spec) for spec in executable.inputs] == ["x: [rows, 8] f32", "other: [rows, 8] f32", "ids: [rows] i32"]
    assert [str(spec) for spec in executable.params] == ["w: [8, 32] f32", "table: [5, 34] i8 (q8_0)"]
    assert [str(spec) for spec in executable.outputs] == ["y: [rows, 32] f32", "z: [rows, 8] f32"]
    assert re.fullmatch(r"[\w-]+", executable.artifact.target["triple"])
    assert executable.threads >= 1


def test_maxima_of_symbols_that_only_unused_arguments_have() -> None:
    module = GraphModule.from_text("""
      func.func @main(%x: tensor<?x4xf32> {mir.dims = ["a", ""], mir.kind = "input", mir.name = "x"},
                      %unused: tensor<?x2xf32> {mir.dims = ["b", ""], mir.kind = "param", mir.name = "p"})
          -> (tensor<?x4xf32> {mir.name = "y"}) {
        %y = mir.neg %x : tensor<?x4xf32>
        return %y : tensor<?x4xf32>
      }""")
    executable = rlx.compile(module, maxima={"a": 2, "b": 3}, cache=False)
    executable.set_params({"p": np.zeros((3, 2), np.float32)})
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(executable.run({"x": x})["y"], -x)


def stepper() -> Executable:
    """total = scale * (cache, after new was written to row pos)"""
    m = GraphModule.hir("stepper")
    cache, new, pos = m.input("cache", [1, 4, 2]), m.input("new", [1, 1, 2]), m.input("pos", [1], "i32")
    written = m.cache_update(cache, new, pos)
    m.set_outputs({"total": written * m.param("scale", [2]), "next": written})
    return rlx.compile(m, cache=False)


def arguments() -> dict[str, np.ndarray]:
    return {
        "cache": np.zeros((1, 4, 2), np.float32),
        "new": np.zeros((1, 1, 2), np.float32),
        "pos": np.zeros(1, np.int32),
    }


def test_bound_calls_read_what_the_arrays_hold_then() -> None:
    executable = stepper()
    executable.set_params({"scale": np.array([1, 10], np.float32)})
    inputs = arguments()
    call = executable.bind(inputs, donate=["cache"])
    assert call.results["next"] is inputs["cache"]
    executable.set_params({"scale": np.array([2, 20], np.float32)})  # not seen: the call has its parameters
    for step in range(4):
        inputs["new"][...] = step + 1
        inputs["pos"][...] = step
        assert call() is call.results
    rows = np.array([1, 2, 3, 4], np.float32)[:, None]
    np.testing.assert_array_equal(inputs["cache"][0], np.broadcast_to(rows, (4, 2)))
    np.testing.assert_array_equal(call.results["total"][0], rows * [1, 10])


@pytest.mark.parametrize(
    ("change", "donate", "message"),
    [
        ({"new": [[[1.0, 2.0]]]}, ["cache"], "input 'new' has element type float32|'new' of a bound call is"),
        ({"new": np.zeros((1, 1, 4), np.float32)[..., ::2]}, ["cache"], "input 'new' of a bound call is a contiguous"),
        ({}, [], "a bound call donates what results are tied to: 'cache', for 'next'"),
        ({"pos": np.zeros(2, np.int32)}, ["cache"], "input 'pos' has size 1"),
    ],
)
def test_bound_calls_refuse_what_they_can_t_repeat(change: dict[str, Any], donate: list[str], message: str) -> None:
    executable = stepper()
    executable.set_params({"scale": np.ones(2, np.float32)})
    with pytest.raises(InputError, match=message):
        executable.bind(arguments() | change, donate=donate)


def test_element_types_are_numpys_too():
    m = GraphModule.mir("types")
    types = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i1": np.bool_, "f64": np.float64}
    m.set_outputs({f"y_{word}": m.reshape(m.input(word, [2], word), [1, 2]) for word in types})
    ex = rlx.compile(m)
    for spec, known in zip(ex.inputs, types.values(), strict=True):
        assert spec.numpy_dtype == known
    ex.run({spec.name: np.zeros(2).astype(spec.numpy_dtype) for spec in ex.inputs})


def test_executables_say_how_they_are_kept():
    m = GraphModule.mir("kept")
    m.set_outputs({"y": m.neg(m.input("x", [2]))})
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"Executable objects .*: save its 'artifact', which other processes load"):
            copied(rlx.compile(m))
