# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled modules as shared libraries: the same bits as executables, and every mistake that can be seen an error."""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_api import COMPILER, INPUT, OUTPUT, PARAMETER, CError, CLibrary, CModel, Memory
from compile_harness import compile_fresh

import rlx_mlir as rlx
from rlx_mlir import Executable, GraphModule, formats
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import ExecutionError, InputError, UnsupportedError
from rlx_mlir.runtime import c_library
from rlx_mlir.runtime.c_header import FUNCTIONS
from rlx_mlir.runtime.elf_symbols import rename_defined
from rlx_mlir.runtime.tiles import request_tiles

pytestmark = pytest.mark.skipif(COMPILER is None, reason="linking needs a C compiler")


def network(name: str = "forward", rows: int = 20) -> GraphModule:
    """Two layers."""
    graph = GraphModule.hir(name)
    x = graph.input("x", ["batch", rows])
    hidden = graph.gelu(graph.linear(x, graph.param("w1", [rows, 33]), graph.param("b1", [33])))
    graph.set_outputs({"y": graph.linear(hidden, graph.param("w2", [33, 5]))})
    return graph


def weights_of(executable: Executable, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        spec.name: rng.standard_normal([int(size) for size in spec.shape]).astype(DTYPES[spec.dtype])
        for spec in executable.params
    }


@pytest.fixture(scope="module")
def forward() -> Executable:
    executable = compile_fresh(network(), maxima={"batch": 16})
    executable.set_params(weights_of(executable))
    return executable


@pytest.fixture(scope="module")
def library(forward: Executable, tmp_path_factory: pytest.TempPathFactory) -> CLibrary:
    written = rlx.save_shared(forward, tmp_path_factory.mktemp("library") / "libnet.so")
    return CLibrary(written.path, "net")


@pytest.fixture
def model(library: CLibrary) -> CModel:
    return library.load(threads=2)


def loaded(modules: Any, folder: Path, name: str = "own", **options: Any) -> CModel:
    """A handle of a library that is written for a test."""
    return CLibrary(rlx.save_shared(modules, folder / f"lib{name}.so", **options).path, name).load()


def assert_same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes(), name


# The same results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 3, 15, 16])
def test_results_are_those_of_the_executable(model: CModel, forward: Executable, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 20)).astype(np.float32)
    assert_same(model.results(forward, {"x": x}), forward.run({"x": x}))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_results_do_not_depend_on_threads(library: CLibrary, forward: Executable, threads: int) -> None:
    own = library.load(threads=threads)
    assert own.call("threads") == threads
    x = np.random.default_rng(1).standard_normal((16, 20)).astype(np.float32)
    assert_same(own.results(forward, {"x": x}), forward.run({"x": x}))


def test_packed_tables(tmp_path: Path) -> None:
    graph = GraphModule.hir("rows")
    ids = graph.input("ids", ["n"], "i32")
    graph.set_outputs({"y": graph.gather(graph.param("table", [5, 32], packed="q8_0"), ids)})
    executable = compile_fresh(graph, maxima={"n": 8})
    table = formats.encode("q8_0", np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32))
    executable.set_params({"table": table})
    own = loaded(executable, tmp_path)
    given = {"ids": np.array([4, 0, 2], np.int32)}
    assert_same(own.results(executable, given), executable.run(given))


def caches() -> GraphModule:
    graph = GraphModule.hir("caches")
    cache, new = graph.input("cache", ["b", 16, 4]), graph.input("new", ["b", "s", 4])
    updated = graph.cache_update(cache, new, graph.input("pos", ["b"], "i32"))
    graph.set_outputs({"cache_out": updated, "sum": graph.sum(updated, 1)}, tied={"cache_out": cache})
    return graph


def test_tied_outputs_are_updated_in_place_or_somewhere_else(tmp_path: Path) -> None:
    executable = compile_fresh(caches(), maxima={"b": 2, "s": 4})
    own = loaded(executable, tmp_path)
    assert own.buffer(OUTPUT, 0).tied == 1
    assert (own.buffer(OUTPUT, 0).tied_kind, own.buffer(OUTPUT, 0).tied_index) == (INPUT, 0)
    assert own.buffer(OUTPUT, 1).tied == 0
    rng = np.random.default_rng(0)
    cache, new = rng.standard_normal((2, 16, 4)).astype(np.float32), rng.standard_normal((2, 3, 4)).astype(np.float32)
    given = {"cache": cache, "new": new, "pos": np.array([0, 13], np.int32)}
    before, expected = cache.copy(), executable.run(given)
    assert_same(own.results(executable, given), expected)
    assert cache.tobytes() == before.tobytes()  # it was somewhere else
    total = np.empty((2, 4), np.float32)
    sizes = [{"b": 2, "s": 3}[name] for name in own.symbols()]
    own.run(sizes, [given[spec.name] for spec in executable.inputs], [cache, total])
    assert_same({"cache_out": cache, "sum": total}, expected)
    with pytest.raises(CError, match=r"'pos' is 14 at index 1, but rows 14 to 16 have to be among the 16 rows"):
        own.results(executable, {**given, "pos": np.array([0, 14], np.int32)})


def test_parameters_that_runs_update(tmp_path: Path) -> None:
    """An optimiser's step: at the address of the caller's parameter, or somewhere else, but never in the library."""
    graph = GraphModule.hir("step")
    w, gradient = graph.param("w", [3, 5]), graph.input("gradient", [3, 5])
    graph.set_outputs({"w_new": w - gradient * 0.5, "norm": graph.sum(gradient * gradient, [0, 1])}, tied={"w_new": w})
    executable = compile_fresh(graph)
    rng = np.random.default_rng(0)
    start, given = rng.standard_normal((3, 5)).astype(np.float32), rng.standard_normal((3, 5)).astype(np.float32)
    executable.set_params({"w": start.copy()})
    expected = executable.run({"gradient": given})
    own = loaded(executable, tmp_path, weights="caller")
    assert (own.buffer(OUTPUT, 0).tied, own.buffer(OUTPUT, 0).tied_kind) == (1, PARAMETER)
    w_of, total = start.copy(), np.empty((), np.float32)
    own.set_parameter(0, w_of)
    assert_same(own.results(executable, {"gradient": given}), expected)
    own.run([], [given], [w_of, total])
    assert_same({"w_new": w_of, "norm": total}, expected)
    fixed = loaded(executable, tmp_path, name="fixed")
    assert_same(fixed.results(executable, {"gradient": given}), expected)
    with pytest.raises(CError, match=r"input 'gradient' .* and output 'w_new' .* share memory"):
        own.run([], [w_of], [w_of, total])


def test_loops_and_choices(tmp_path: Path) -> None:
    graph = GraphModule.hir("loops")
    x, w = graph.input("x", ["n", 4]), graph.param("w", [4, 4])
    first = graph.constant(0, "i32")
    looped = graph.while_loop(lambda i, _: i < 5, lambda i, z: (i + 1, graph.tanh(graph.mm(z, w))), (first, x))[1]
    chosen = graph.cond(graph.sum(x, [0, 1]) < 0.0, lambda: graph.mm(looped, w), lambda: looped * 2.0)
    graph.set_outputs({"y": chosen})
    executable = compile_fresh(graph, maxima={"n": 8})
    executable.set_params({"w": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)})
    own = loaded(executable, tmp_path)
    for rows, sign in ((3, 1), (8, -1), (0, 1), (1, -1)):
        given = {"x": sign * np.random.default_rng(rows).random((rows, 4)).astype(np.float32)}
        assert_same(own.results(executable, given), executable.run(given))


def test_sizes_of_outputs_are_computed(tmp_path: Path) -> None:
    graph = GraphModule.hir("shapes")
    x, y = graph.input("x", ["n", 3]), graph.input("y", ["m", 3])
    graph.input("unused", ["other", 2], "i64")
    graph.set_outputs({"joined": graph.concat([x, y, x], 0)})
    executable = compile_fresh(graph, maxima={"n": 8, "m": 8})
    artifact = executable.artifact
    fewer = tuple(symbol for symbol in artifact.symbols if symbol[0] != "other")  # no call reads it
    assert artifact.symbols[: len(fewer)] == fewer
    own = loaded(replace(artifact, symbols=fewer), tmp_path)
    symbols = own.symbols()
    assert symbols == {"n": 8, "m": 8, "other": 2**63 - 1}
    given = {
        "x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "y": np.ones((5, 3), np.float32),
        "unused": np.zeros((7, 2), np.int64),
    }
    assert_same(own.results(executable, given), executable.run(given))
    described = own.buffer(OUTPUT, 0)
    assert described.rank == 2
    assert list(described.shape[:2]) == [-1, 3]
    assert list(described.maximum[:2]) == [24, 3]
    with pytest.raises(CError, match=r"input 'unused' .* has 112 bytes for these sizes, but got 96"):
        own.run(
            [{"n": 2, "m": 5, "other": 7}[s] for s in symbols],
            [*list(given.values())[:2], given["unused"][1:]],
            [np.empty((9, 3), np.float32)],
        )


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64", "i8", "i32", "i64", "i1"])
def test_element_types(tmp_path: Path, dtype: str) -> None:
    graph = GraphModule.hir("kinds")
    x = graph.input("x", ["n", 3], dtype)
    graph.set_outputs({"y": graph.transpose(x, [1, 0])})
    executable = compile_fresh(graph, maxima={"n": 8})
    own = loaded(executable, tmp_path)
    buffer = own.buffer(INPUT, 0)
    assert buffer.dtype.decode() == dtype
    assert (buffer.element_bytes, buffer.alignment) == (DTYPES[dtype].itemsize, DTYPES[dtype].alignment)
    given = {"x": np.random.default_rng(0).integers(0, 2, (5, 3)).astype(DTYPES[dtype])}
    assert_same(own.results(executable, given), executable.run(given))


def test_conditions_of_sizes_are_checked(tmp_path: Path) -> None:
    graph = GraphModule.hir("sum")
    graph.set_outputs({"y": graph.input("x", ["n", 3]) + graph.input("z", ["m", 3])})
    executable = compile_fresh(graph, maxima={"n": 8, "m": 8})
    own = loaded(executable, tmp_path)
    x, z = np.ones((2, 3), np.float32), np.ones((3, 3), np.float32)
    with pytest.raises(InputError) as expected:
        executable.run({"x": x, "z": z})
    with pytest.raises(CError) as found:
        own.run([{"n": 2, "m": 3}[name] for name in own.symbols()], [x, z], [np.empty((2, 3), np.float32)])
    assert re.sub(r".*(expects that .* were given).*", r"\1", str(expected.value)) in str(found.value)


# What is said of a library --------------------------------------------------------------------------


def test_description(library: CLibrary, model: CModel) -> None:
    assert library.functions["abi_version"]() == 1
    assert model.call("function_count") == 1
    assert model.call("function_name", 0) == b"forward"
    assert model.call("function_name", 1) is None
    assert model.symbols() == {"batch": 16}
    assert model.names(INPUT) == ["x"]
    assert model.names(OUTPUT) == ["y"]
    assert [model.buffer(PARAMETER, index).given for index in range(3)] == [1, 1, 1]
    x = model.buffer(INPUT, 0)
    assert (x.dtype, x.element_bytes, x.rank) == (b"f32", 4, 2)
    assert (list(x.shape[:2]), list(x.maximum[:2])) == ([-1, 20], [16, 20])
    assert [x.formula[0], x.formula[1]] == [b"batch", b"20"]
    assert model.measure(OUTPUT, 0, [7]) == ((7, 5), 140)
    number = ctypes.c_size_t()
    model.call("find_buffer", 0, PARAMETER, b"b1", ctypes.byref(number))
    assert model.names(PARAMETER)[number.value] == "b1"
    model.call("find_function", b"forward", ctypes.byref(number))
    assert number.value == 0


def test_only_the_interface_can_be_seen(library: CLibrary, forward: Executable, tmp_path: Path) -> None:
    nm, readelf = shutil.which("nm"), shutil.which("readelf")
    if nm is None or readelf is None:
        pytest.skip("needs binutils")
    path = rlx.save_shared(forward, tmp_path / "libnet.so").path
    lines = subprocess.run([nm, "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in lines.splitlines()} == {f"net_{name}" for name in library.functions}
    dynamic = subprocess.run([readelf, "-dlW", path], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    assert all(re.match(r"(libc|libm|libpthread|libdl|ld-linux.*)\.so", name) for name in needed), needed
    assert "NODELETE" in dynamic
    assert "RWE" not in dynamic
    assert "TEXTREL" not in dynamic


# Mistakes -------------------------------------------------------------------------------------------

X, Y = np.zeros((3, 20), np.float32), np.zeros((3, 5), np.float32)
BOTH = np.zeros(100, np.float32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [X], [Y]), "'forward' has 1 symbol, but got 0 sizes"),
        (([3, 3], [X], [Y]), "'forward' has 1 symbol, but got 2 sizes"),
        (([17], [X], [Y]), "the size of 'batch' of 'forward' must be from 0 to 16, but it is 17"),
        (([-1], [X], [Y]), "must be from 0 to 16, but it is -1"),
        (([3], [], [Y]), "'forward' has 1 input, but got 0"),
        (([3], [X], [Y, Y]), "'forward' has 1 output, but got 2"),
        (([3], [X[:2]], [Y]), "input 'x' of 'forward' has 240 bytes for these sizes, but got 160"),
        (([2], [X], [Y]), "input 'x' of 'forward' has 160 bytes for these sizes, but got 240"),
        (([3], [X], [Y[:1]]), "output 'y' of 'forward' has 60 bytes for these sizes, but got 20"),
        (([3], [Memory(None, 240)], [Y]), "input 'x' of 'forward' is at a null address"),
        (([3], [X], [Memory(None, 60)]), "output 'y' of 'forward' is at a null address"),
        (([3], [Memory(4097, 240)], [Y]), "must be at a multiple of 4 bytes, but its address is 4097"),
        (([3], [Memory(2**64 - 16, 240)], [Y]), "reaches beyond the end of memory"),
        (([3], [BOTH[:60].reshape(3, 20)], [BOTH[50:65].reshape(3, 5)]), "output 'y' .* and input 'x' .* share memory"),
        (([3], [BOTH[10:70].reshape(3, 20)], [BOTH[:15].reshape(3, 5)]), "input 'x' .* and output 'y' .* share memory"),
    ],
)
def test_runs_that_make_no_sense(model: CModel, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(CError, match=message) as raised:
        model.run(*arguments)
    assert raised.value.status == 1
    model.run([3], [X], [Y])  # it can still be used


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        ("run", (0, None, 1, None, 1, None, 1), "the sizes of the symbols of 'forward' are at a null address"),
        (
            "run",
            (0, (ctypes.c_int64 * 1)(3), 1, None, 1, None, 1),
            "the list of inputs of 'forward' is at a null address",
        ),
        ("run", (1, None, 0, None, 0, None, 0), "'net' has 1 function, but number 1 was asked for"),
        ("describe_symbol", (0, 0, None), "the address for a symbol is null"),
        (
            "describe_symbol",
            (0, 1, ctypes.create_string_buffer(64)),
            "'forward' has 1 symbol, but number 1 was asked for",
        ),
        ("describe_buffer", (0, 0, 1, ctypes.create_string_buffer(256)), "'forward' has 1 input, but number 1"),
        ("describe_buffer", (0, 3, 0, ctypes.create_string_buffer(256)), r"a kind is 0 \(input\), .* but it is 3"),
        ("describe_buffer", (7, 0, 0, ctypes.create_string_buffer(256)), "'net' has 1 function, but number 7"),
        (
            "find_function",
            (b"backward", ctypes.byref(ctypes.c_size_t())),
            "'net' has no function 'backward'; known are forward",
        ),
        ("find_function", (None, ctypes.byref(ctypes.c_size_t())), "the address for a name is null"),
        ("find_buffer", (0, 0, b"y", ctypes.byref(ctypes.c_size_t())), "'forward' has no input 'y'; known are x"),
        ("find_buffer", (0, 9, b"y", ctypes.byref(ctypes.c_size_t())), "a kind is .* but it is 9"),
        ("measure", (0, 0, 0, (ctypes.c_int64 * 1)(17), 1, None, None), "must be from 0 to 16, but it is 17"),
        ("set_parameter", (0, 3, None, 0), "'forward' has 3 parameters, but number 3"),
        ("set_parameter", (0, 0, None, 132), "parameter 'b1' of 'forward' is at a null address"),
        ("set_parameter", (0, 0, 4096, 4), "parameter 'b1' of 'forward' has 132 bytes for these sizes, but got 4"),
        ("set_parameter", (0, 0, 4098, 132), "must be at a multiple of 4 bytes, but its address is 4098"),
    ],
)
def test_calls_that_make_no_sense(model: CModel, call: str, arguments: tuple[Any, ...], message: str) -> None:
    function = model.library.functions[call]
    converted = [
        ctypes.cast(value, kind) if isinstance(value, ctypes.Array) and not isinstance(value, kind) else value
        for value, kind in zip(arguments, function.argtypes[1:], strict=True)
    ]
    with pytest.raises(CError, match=message):
        model.call(call, *converted)


def test_handles_that_are_none(library: CLibrary) -> None:
    own = library.functions
    for name in ("threads", "function_count"):
        assert own[name](None) == 0
    assert own["function_name"](None, 0) is None
    assert own["symbol_count"](None, 0) == own["buffer_count"](None, 0, 0) == 0
    assert own["run"](None, 0, None, 0, None, 0, None, 0) == 1
    assert own["error"](None) == b"the handle is null"
    own["free"](None)
    something = ctypes.create_string_buffer(4096)
    address = (ctypes.addressof(something) + 63) // 64 * 64
    assert own["run"](address, 0, None, 0, None, 0, None, 0) == 1
    assert own["error"](address) == b"the handle isn't one of this library, or was freed"
    own["free"](address)
    assert own["load"](None, None) == 1
    assert own["error"](None) == b"the address for the handle is null"


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ({"abi": 2}, 1, "the library has version 1 of its interface, but the program was compiled for version 2"),
        ({"threads": -1}, 1, "threads must be from 1 to 1024, or 0 .* but it is -1"),
        ({"threads": 1025}, 1, "threads must be from 1 to 1024, or 0 .* but it is 1025"),
        ({"weights": Path("x")}, 1, "'net' has its weights in itself, but the file 'x' was given"),
    ],
)
def test_loads_that_make_no_sense(library: CLibrary, options: dict[str, Any], status: int, message: str) -> None:
    with pytest.raises(CError, match=message) as raised:
        library.load(**options)
    assert raised.value.status == status


def test_errors_are_a_threads_own(model: CModel) -> None:
    with pytest.raises(CError, match="number 5"):
        model.run([1], [X], [Y], function=5)
    texts = []
    thread = threading.Thread(target=lambda: texts.append(model.library.functions["error"](model.handle)))
    thread.start()
    thread.join()
    assert texts == [b""]
    assert b"number 5" in model.library.functions["error"](model.handle)


# Weights --------------------------------------------------------------------------------------------


def test_weights_in_a_file(forward: Executable, tmp_path: Path) -> None:
    written = rlx.save_shared(forward, tmp_path / "libnet.so", weights="file", name="beside")
    assert written.weights == tmp_path / "beside.weights"
    library = CLibrary(written.path, "beside")
    given = {"x": np.ones((2, 20), np.float32)}
    expected = forward.run(given)
    assert_same(library.load().results(forward, given), expected)
    moved = written.weights.rename(tmp_path / "moved")
    with pytest.raises(CError, match=r"beside.weights' can't be used: No such file") as raised:
        library.load()
    assert raised.value.status == 2
    assert_same(library.load(weights=moved).results(forward, given), expected)
    with pytest.raises(CError, match=r"it is no regular file|it has .* bytes, but"):
        library.load(weights=tmp_path)


def test_weights_of_something_else(forward: Executable, tmp_path: Path) -> None:
    library = CLibrary(rlx.save_shared(forward, tmp_path / "libnet.so", weights="file").path, "net")
    path = tmp_path / "net.weights"
    data = path.read_bytes()
    other = compile_fresh(network(), maxima={"batch": 16})
    other.set_params(weights_of(other, seed=1))
    second = rlx.save_shared(other, tmp_path / "other" / "libnet.so", weights="file").weights
    assert second is not None
    cases = {
        "it is of another model: its digest is": second.read_bytes(),
        "but the library expects": data[:-1],
        "it isn't a file of weights": b"GGUF" + data[4:],
        "it is of version 2, but this library reads 1": data[:8] + b"\2" + data[9:],
        "its header says": data[:16] + b"\1" + data[17:],
    }
    for message, content in cases.items():
        path.write_bytes(content)
        with pytest.raises(CError, match=message):
            library.load()
    path.write_bytes(data)
    library.load()


def test_weights_of_the_caller(forward: Executable, tmp_path: Path) -> None:
    own = loaded(forward, tmp_path, weights="caller")
    given = {"x": np.ones((2, 20), np.float32)}
    with pytest.raises(CError, match=r"parameter 'b1' of 'forward' isn't set: set_parameter has to give it"):
        own.results(forward, given)
    prepared = forward.plan_params
    assert prepared is not None
    assert own.names(PARAMETER) == list(prepared)
    kept = [np.ascontiguousarray(array) for array in prepared.values()]
    for index, array in enumerate(kept):
        assert own.buffer(PARAMETER, index).given == 0
        own.set_parameter(index, array)
        assert own.buffer(PARAMETER, index).given == 1
    assert_same(own.results(forward, given), forward.run(given))
    text = (tmp_path / "own.h").read_text()
    assert "#define OWN_FORWARD_PARAMETER_B1_SIZE_0 33" in text
    with pytest.raises(CError, match="'own' has no weights: set_parameter gives them, but the file 'x' was given"):
        own.library.load(weights=Path("x"))


def test_large_weights_go_to_a_file(forward: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx_mlir.runtime.c_library.EMBEDDED_BYTES", 4096)
    assert rlx.save_shared(forward, tmp_path / "liba.so").weights is not None
    monkeypatch.setattr("rlx_mlir.runtime.c_library._MOST_EMBEDDED", 4096)
    with pytest.raises(InputError, match="can't be in the library, which may have 4096: weights='file'"):
        rlx.save_shared(forward, tmp_path / "libb.so", weights="embed")


def test_equal_parameters_are_kept_once(forward: Executable, tmp_path: Path) -> None:
    alone = rlx.save_shared(forward, tmp_path / "liba.so", weights="file")
    both = rlx.save_shared({"one": forward, "two": forward}, tmp_path / "libb.so", weights="file")
    assert both.sizes[1] == alone.sizes[1]
    own = CLibrary(both.path, "b").load()
    given = {"x": np.ones((2, 20), np.float32)}
    for function in range(2):
        assert_same(own.results(forward, given, function), forward.run(given))


# Several at once ------------------------------------------------------------------------------------


def test_two_libraries_in_one_process(library: CLibrary, forward: Executable, tmp_path: Path) -> None:
    other = compile_fresh(network("forward", 7), maxima={"batch": 4})
    other.set_params(weights_of(other, seed=3))
    second = loaded(other, tmp_path, name="second")
    first = library.load(threads=2)
    for rows in (1, 4, 2):
        a, b = np.full((rows, 20), rows, np.float32), np.full((rows, 7), rows, np.float32)
        assert_same(first.results(forward, {"x": a}), forward.run({"x": a}))
        assert_same(second.results(other, {"x": b}), other.run({"x": b}))
    # A handle of the other library, whose functions have the same layout, isn't taken for one's own.
    with pytest.raises(CError, match="the handle isn't one of this library"):
        CModel.call(_Foreign(library, second.handle), "run", 0, None, 0, None, 0, None, 0)


class _Foreign:
    """A handle in the hands of another library."""

    def __init__(self, library: CLibrary, handle: Any) -> None:
        self.library = library
        self.handle = handle


@pytest.mark.parametrize("shared", [True, False])
def test_threads_run_at_the_same_time(library: CLibrary, forward: Executable, shared: bool) -> None:
    given = [{"x": np.full((rows, 20), rows / 3, np.float32)} for rows in (1, 5, 16)]
    expected = [forward.run(own) for own in given]
    one = library.load(threads=2)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            own = one if shared else library.load(threads=2)
            for turn in range(60):
                each = (number + turn) % 3
                assert_same(own.results(forward, given[each]), expected[each])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


FORK = """
import os, sys
import numpy as np
sys.path.insert(0, sys.argv[2])
from c_api import CLibrary, Memory
model = CLibrary(sys.argv[1], "net").load(threads=3)
x, y = np.ones((16, 20), np.float32), np.zeros((16, 5), np.float32)
model.run([16], [x], [y])
child = os.fork()
if child == 0:
    again = np.zeros_like(y)
    model.run([16], [x], [again])
    os._exit(0 if again.tobytes() == y.tobytes() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_children_of_fork_go_on(forward: Executable, tmp_path: Path) -> None:
    path = rlx.save_shared(forward, tmp_path / "libnet.so").path
    harness = Path(__file__).parents[1] / "harness"
    subprocess.run([sys.executable, "-c", FORK, path, harness], check=True, timeout=120)


# Writing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "3d", "a-b", "rlx", "RLX", "int", "class", "ä", "a b"])
def test_names_that_are_no_identifiers(forward: Executable, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="a library's name begins its functions' names"):
        rlx.save_shared(forward, tmp_path / "x.so", name=name)
    assert list(tmp_path.iterdir()) == []


def test_parameters_that_are_missing(tmp_path: Path) -> None:
    executable = compile_fresh(network(), maxima={"batch": 16})
    with pytest.raises(InputError, match="'forward' needs its parameters: call set_params before, give 'params', or"):
        rlx.save_shared(executable, tmp_path / "libx.so")
    params = weights_of(executable)
    with pytest.raises(InputError, match="missing parameters: w2"):
        rlx.save_shared(executable, tmp_path / "libx.so", params={"w1": params["w1"], "b1": params["b1"]})
    assert list(tmp_path.iterdir()) == []
    own = loaded(executable.artifact, tmp_path, params=params)
    executable.set_params(params)
    given = {"x": np.ones((2, 20), np.float32)}
    assert_same(own.results(executable, given), executable.run(given))


def test_compilers_that_are_missing_or_fail(
    forward: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="'compiler' names the C compiler 'no-such-cc', but there is no such program"):
        rlx.save_shared(forward, tmp_path / "libx.so", compiler="no-such-cc -O2")
    monkeypatch.setenv("CC", "also-none")
    with pytest.raises(InputError, match="the variable CC names the C compiler 'also-none'"):
        rlx.save_shared(forward, tmp_path / "libx.so")
    with pytest.raises(InputError, match="is no command: No closing quotation"):
        rlx.save_shared(forward, tmp_path / "libx.so", compiler="'cc")
    with pytest.raises(ExecutionError, match=r"(?s)the C compiler failed with status \d+: .*-shared.*\n.*no-such-flag"):
        rlx.save_shared(forward, tmp_path / "libx.so", compiler=f"{COMPILER} -Wl,--no-such-flag")
    monkeypatch.delenv("CC")
    monkeypatch.setattr("rlx_mlir.native.folder", lambda: tmp_path)
    with pytest.raises(ExecutionError, match=r"rlx_runtime.o is missing, from which shared libraries are made"):
        rlx.save_shared(forward, tmp_path / "libx.so")
    assert list(tmp_path.iterdir()) == []


def test_modules_that_cannot_be_in_a_library(tmp_path: Path) -> None:
    graph = network()
    gpu = rlx.compile(graph, target="nvptx", maxima={"batch": 4})
    with pytest.raises(
        UnsupportedError, match="'forward' can't be in a shared library: it was compiled for the GPU sm_"
    ):
        rlx.save_shared(gpu, tmp_path / "libx.so")
    with pytest.raises(InputError, match="needs a compiled module, but got none"):
        rlx.save_shared({}, tmp_path / "libx.so")
    with pytest.raises(InputError, match="'a' is an executable or an artefact, but got"):
        rlx.save_shared({"a": graph}, tmp_path / "libx.so")  # type: ignore[dict-item]


def test_code_for_another_machine(forward: Executable, tmp_path: Path) -> None:
    other = replace(forward.artifact, target={**forward.artifact.target, "triple": "riscv64-linux-gnu"})
    with pytest.raises(UnsupportedError, match="it was compiled for riscv64, but the run time beside it is for"):
        rlx.save_shared(other, tmp_path / "libx.so", params=weights_of(forward))


def test_a_processor_that_lacks_instructions(forward: Executable, tmp_path: Path) -> None:
    target = {**forward.artifact.target, "features": "+fantasy," + forward.artifact.target["features"] + ",-other"}
    library = rlx.save_shared(replace(forward.artifact, target=target), tmp_path / "libnet.so", weights="caller").path
    with pytest.raises(
        CError, match=r"'net' was compiled for a processor with fantasy, which this one \(.+\) lacks"
    ) as at:
        CLibrary(library, "net").load()
    assert at.value.status == 2


def test_tiles_that_the_system_does_not_lend(forward: Executable, tmp_path: Path) -> None:
    if request_tiles():
        pytest.skip("this machine has them")
    artifact = replace(forward.artifact, templates={forward.artifact.kernels[0]: "gemm_amx_i8"})
    library = rlx.save_shared(artifact, tmp_path / "libnet.so", weights="caller").path
    with pytest.raises(CError, match="the code of 'net' uses AMX tiles, which the operating system doesn't lend"):
        CLibrary(library, "net").load()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_ties_the_parts_together_is_assembly_of_both_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    (llvm,) = importlib.util.find_spec("llvm").submodule_search_locations  # type: ignore[union-attr, misc]
    monkeypatch.setattr(platform, "machine", lambda: machine)
    text = c_library._assembly("net", {"0:b": "rlx_0_b", "0:a": "rlx_0_a", "1:a": "rlx_1_a"}, True)
    for name in ("description.bin", "weights.bin"):
        (tmp_path / name).write_bytes(b"x" * 5000)
    command = [Path(llvm) / "bin" / "llvm-mc", f"-triple={machine}-linux-gnu", "-filetype=obj", "-o", "net.o"]
    subprocess.run(command, cwd=tmp_path, input=text, text=True, check=True)
    _, defined = rename_defined((tmp_path / "net.o").read_bytes(), "p_")
    assert set(defined) == {"rlx_library", *(f"net_{name}" for name in FUNCTIONS)}


def test_damaged_code(forward: Executable, tmp_path: Path) -> None:
    for code in (b"", forward.artifact.code[:100], b"MZ" + forward.artifact.code[2:], forward.artifact.code[:-300]):
        with pytest.raises(ExecutionError, match="object"):
            rlx.save_shared(replace(forward.artifact, code=code), tmp_path / "libx.so", weights="caller")


def test_operations_of_ones_own_are_refused(tmp_path: Path) -> None:
    rlx.register_op("c.twice", infer=lambda x: x, reference=lambda x: x + x, kernel=lambda x: x + x)
    try:
        graph = GraphModule.hir("own")
        graph.set_outputs({"y": graph.custom("c.twice", graph.input("x", [3]))})
        executable = compile_fresh(graph)
        with pytest.raises(UnsupportedError, match=r"operations of your own, which this process has: c\.twice"):
            rlx.save_shared(executable, tmp_path / "libx.so")
    finally:
        rlx.unregister_op("c.twice")
