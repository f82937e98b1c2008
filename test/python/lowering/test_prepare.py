# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Preparation of parameters at run time gives what the interpreted function @prepare gives, bit for bit."""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compile_harness import Program, compile_fresh, integers, positive, scaled

from rlx_mlir import Executable, GraphModule, formats, interpret
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.mir import PackedWeight
from rlx_mlir.runtime.artifact import Artifact, Preparation, PrepareStep
from rlx_mlir.runtime.prepare import OPERATIONS, Prepared, constant_step, prepare

SCHEMES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "f16", "bf16", "f32")


def elementwise(p: Program, dtype: str) -> None:
    m = p.m
    w, v, g = p.param("w", [6, 5], dtype), p.param("v", [6, 5], dtype, positive), p.param("g", [5], dtype, positive)
    x = p.input("x", [6, 5], dtype)
    p.output(add=x + (w + v), sub=x - (w - g), mul=x * (w * g), div=x + w / v, neg=x + (-w))
    p.output(max=x + m.maximum(w, g), min=x + m.minimum(v, w), root=x + m.sqrt(g))
    p.output(scalar=x + (p.param("one", [], dtype) + p.param("two", [], dtype)))


def movement(p: Program) -> None:
    m = p.m
    w, g, h = p.param("w", [6, 4]), p.param("g", [4]), p.param("h", [4], "bf16")
    rows, columns = p.input("rows", [4, 6]), p.input("columns", [6, 4])
    p.output(transpose=rows + m.transpose(w), narrow=m.narrow(columns, 0, 0, 2) + m.narrow(w, 0, 3, 2))
    p.output(
        last=m.narrow(columns, 1, 0, 3) + m.narrow(w, 1, 1, 3), concat=m.concat([columns] * 2, 1) + m.concat([w, w], 1)
    )
    p.output(reshape=rows + m.reshape(w, [4, -1]), expand=columns + m.expand(g, [6, 4]))
    p.output(cast=m.cast(columns, "bf16") + m.cast(g, "bf16"), wide=columns + m.cast(h, "f32"))
    p.output(long=rows * m.transpose(m.reshape(m.narrow(m.concat([w, w * w], 0), 0, 2, 6), [6, 4])))


def products(p: Program) -> None:
    m = p.m
    x = p.input("x", ["n", 64])
    for scheme in SCHEMES:
        p.output(**{scheme: m.dequant_matmul(x, p.param(scheme, [19, 64], packed=scheme))})
    dense, transposed = p.param("dense", [64, 33]), p.param("transposed", [33, 64])
    p.output(dense=m.silu(m.mm(x, dense)), transposed=m.exp(m.mm(x, transposed, transpose_rhs=True)))
    first, second = p.param("first", [16, 64], packed="q4_1"), p.param("second", [5, 64], packed="q4_1")
    negative = m.neg(x)
    p.output(first=m.dequant_matmul(negative, first), second=m.dequant_matmul(negative, second))


def constants(p: Program, dtype: str) -> None:
    """Constants of every kind beside parameters, and what follows from constants."""
    m = p.m
    w, g, x = p.param("w", [6, 5], dtype), p.param("g", [5], dtype), p.input("x", [6, 5], dtype)
    one, two = m.constant(np.ones(5), dtype), m.constant(np.full(5, 2), dtype)
    each = m.constant(np.arange(30).reshape(6, 5) - 7.5, dtype)
    p.output(norm=x * (g + one), each=x + w * each, late=x + (w * (each + one)), own=x * two)
    p.output(joined=m.concat([x, x], 1) + m.concat([w, each], 1), wide=x + m.expand(g * one, [6, 5]))


def quantised(p: Program) -> None:
    """Weights of 8 bits, by one scale and by several, and biases of integers."""
    m = p.m
    x, bias = p.input("x", [3, 6], "i8", integers(-128, 128)), p.param("bias", [4])
    for dtype in ("f32", "bf16", "f64"):
        own = m.quantize(p.param(f"w_{dtype}", [6, 4], dtype), 0.02, 3)
        p.output(**{f"one_{dtype}": m.q_matmul(x, own, m.cast(m.round(bias * 1e9), "i32"), mult=0.001)})
    many = m.quantize_per_channel(p.param("many", [6, 4]), [0.01, 0.02, 0.03, 0.5], [0, 1, -128, 127], axis=1)
    p.output(many=m.q_matmul(x, many, mult=0.001))


CASES: dict[str, Callable[[Program], None]] = {
    **{f"elementwise {dtype}": partial(elementwise, dtype=dtype) for dtype in ("f32", "f16", "bf16", "f64")},
    **{f"constants {dtype}": partial(constants, dtype=dtype) for dtype in ("f32", "f16", "bf16", "f64")},
    "movement": movement,
    "products": products,
    "quantised": quantised,
}


def hoisted(module: GraphModule) -> GraphModule:
    """The module with its work on parameters in @prepare."""
    return module.lower().transform("rlx-fuse,mir-pack-weights,mir-hoist-params", stage="mir")


def interpreted(module: GraphModule, params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What @prepare gives, by its definition."""
    found = interpret(hoisted(module), params, function="prepare")
    return {n: v.bytes.view(np.int8) if isinstance(v, PackedWeight) else v for n, v in found.items()}


def bound_arrays(executable: Executable) -> tuple[np.ndarray, ...]:
    """What an executable hands to its code."""
    assert executable._bound is not None
    return executable._bound.arrays


def program(name: str) -> Program:
    p = Program()
    CASES[name](p)
    p.finish()
    return p


@cache
def artifact_of(name: str) -> Artifact:
    """What the program compiles to: several tests look at it."""
    return compile_fresh(program(name).m).artifact


@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick(1)
def test_prepared_parameters_are_those_of_the_interpreter(name: str) -> None:
    p = program(name)
    _, params = p.values({"n": 1})
    artifact = artifact_of(name)
    used = {source: params[source] for source in artifact.preparation.sources}
    found = prepare(artifact.preparation, used, None)
    expected = interpreted(p.m, used)
    assert found.keys() == expected.keys() != set()
    for label, array in found.items():
        assert array.dtype == expected[label].dtype, label
        assert array.tobytes() == np.ascontiguousarray(expected[label]).tobytes(), label
        assert array.flags.c_contiguous
        spec = next(s for s in artifact.plan_parameters if s.name == label)
        assert tuple(spec.shape) == array.shape


def test_work_with_constants_is_done_once() -> None:
    """Only what reads inputs is left in the kernels, and the parameters themselves are gone."""
    p = program("constants f32")
    hoisting = hoisted(p.m)
    assert [spec.name for spec in hoisting.params if not spec.name.endswith((":prepared", "#2", "#3", "#4"))] == []
    plain = [node for node in hoisting.nodes() if node.op == "mir.constant"]
    assert len(plain) == 1, "what inputs meet stays"
    executable = Executable(artifact_of("constants f32"))
    assert {spec.name for spec in executable.params} == {"w", "g"}
    inputs, params = p.values({})
    executable.set_params(params)
    got, want = executable.run(inputs), interpret(p.m, {**inputs, **params})
    for label, array in want.items():
        np.testing.assert_allclose(got[label], array, rtol=1e-6, err_msg=label)


def test_weights_that_are_scaled_by_constants_are_packed() -> None:
    p = Program()
    m = p.m
    scale = m.constant(np.linspace(1, 2, 8), "f32")
    p.output(y=m.mm(p.input("x", ["n", 64]), p.param("w", [64, 8]) * scale))
    module = p.finish()
    executable = compile_fresh(module)
    assert {step.op for step in executable.artifact.preparation.steps} >= {"constant", "mul", "repack"}
    assert [spec.name for spec in executable.artifact.plan_parameters] == ["w:panels"]
    inputs, params = p.values({"n": 3})
    executable.set_params(params)
    np.testing.assert_allclose(executable.run(inputs)["y"], interpret(module, {**inputs, **params})["y"], rtol=1e-4)


def test_products_with_constants_are_prepared() -> None:
    """There is nothing to set: they are prepared where the executable is made."""
    p = Program()
    m = p.m
    weight = m.constant(np.arange(64 * 8, dtype=np.float32).reshape(64, 8) / 64, "f32")
    p.output(y=m.mm(p.input("x", ["n", 64]), weight))
    module = p.finish()
    executable = compile_fresh(module)
    assert [step.op for step in executable.artifact.preparation.steps] == ["constant", "transpose", "repack"]
    assert set(executable.artifact.templates.values()) == {"gemm_panels"}
    inputs, _ = p.values({"n": 2})
    np.testing.assert_allclose(executable.run(inputs)["y"], interpret(module, inputs)["y"], rtol=1e-4)


def test_tables_are_in_memory_once() -> None:
    """Constants that templates read from memory are prepared, not copied at each call; beside parameters too."""
    for weighted in (False, True):
        p = Program()
        m = p.m
        x = p.input("x", ["n", 4, 32])
        table = m.constant(np.arange(4 * 32, dtype=np.float32).reshape(4, 32) / 64, "f32")
        if weighted:
            x = x * p.param("w", [32])
        p.output(y=m.softmax(m.add(x, table)), z=m.rms_norm(table, m.constant(np.ones(32), "f32")))
        module = p.finish()
        executable = compile_fresh(module)
        assert "constant:prepared" in [own.name for own in executable.artifact.plan_parameters]
        assert all("concat" not in name for name in executable.artifact.kernels)
        inputs, params = p.values({"n": 2})
        executable.set_params(params)
        found = executable.run(inputs)
        for name, value in interpret(module, {**inputs, **params}).items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)


def test_large_constants_stay_in_the_code() -> None:
    """The artefact's description is read at each start."""
    p = Program()
    m = p.m
    large, splat = m.constant(np.arange(1 << 15, dtype=np.float32), "f32"), m.constant(np.ones(1 << 15), "f32")
    w = p.param("w", [1 << 15])
    p.output(y=p.input("x", [1 << 15]) * (w + large), z=p.input("v", [1 << 15]) * (w + splat))
    executable = compile_fresh(p.finish())
    assert [step.op for step in executable.artifact.preparation.steps] == ["constant", "add"]
    assert len(executable.artifact.preparation.steps[0].attributes["data"]) == 8


@pytest.mark.wide
def test_every_operation_is_tested() -> None:
    found = {step.op for name in CASES for step in artifact_of(name).preparation.steps}
    assert found == OPERATIONS.keys()


def test_special_numbers_stay() -> None:
    """No warning, and the bits of the interpreter."""
    m = GraphModule.hir("special")
    w, v, x = m.param("w", [6]), m.param("v", [6]), m.input("x", [6])
    m.set_outputs({"y": x + w / v, "z": x + m.maximum(w, v) * w})
    values = {
        "w": np.array([np.nan, np.inf, 1, -1, 0, 3e38], np.float32),
        "v": np.array([1, np.inf, 0, 0, 0, 1e-38], np.float32),
    }
    found = prepare(compile_fresh(m).artifact.preparation, values, None)
    for label, expected in interpreted(m, values).items():
        np.testing.assert_array_equal(found[label], expected)


def test_work_that_numpy_does_not_do_stays_in_the_module() -> None:
    """Whole functions of parameters, conversions that saturate, and sizes that aren't known."""
    m = GraphModule.hir("stays")
    w, i, d, x = m.param("w", [4]), m.param("i", [4], "i32"), m.param("d", ["k"]), m.input("x", [4])
    m.set_outputs({"exp": x + m.exp(w), "cast": x + m.cast(i, "f32"), "sum": x + m.sum(d + d), "int": m.cast(w, "i8")})
    executable = compile_fresh(m)
    assert executable.artifact.preparation == Preparation()
    assert {spec.name for spec in executable.params} == {"w", "i", "d"}
    params = {"w": np.array([1, 2, 300, np.nan], np.float32), "i": np.arange(4, dtype=np.int32)}
    params["d"] = np.ones(3, np.float32)
    executable.set_params(params)
    inputs = {"x": np.zeros(4, np.float32)}
    for label, expected in interpret(m, {**inputs, **params}).items():
        np.testing.assert_allclose(executable.run(inputs)[label], expected, rtol=1e-6)


def test_shared_parameters_are_prepared_once() -> None:
    """Two modules with a weight in common, and one dictionary: one copy of its panels."""
    executables = []
    for rows, other in ((1, "a"), ("n", "b")):
        m = GraphModule.hir(f"uses_{other}")
        x = m.input("x", [rows, 64])
        y, z = m.dequant_matmul(x, m.param("w", [32, 64], packed="q4_1")), m.mm(m.exp(x), m.param(other, [64, 8]))
        m.set_outputs({"y": y, "z": z})
        executables.append(compile_fresh(m))
    rng = np.random.default_rng(0)
    weights = {"w": formats.encode("q4_1", rng.standard_normal((32, 64)).astype(np.float32))}
    shared: dict[str, Prepared] = {}
    for executable, other in zip(executables, "ab", strict=True):
        executable.set_params({**weights, other: rng.standard_normal((64, 8)).astype(np.float32)}, shared=shared)
    assert len(shared) == 3
    row = rng.standard_normal((1, 64)).astype(np.float32)
    decoded = formats.decode("q4_1", weights["w"], 64)
    (panels,) = (entry.array for key, entry in shared.items() if re.search(r'repack\("w"', key))
    for executable in executables:
        assert any(array is panels for array in bound_arrays(executable))
        np.testing.assert_allclose(executable.run({"x": row})["y"], row @ decoded.T, rtol=1e-4, atol=1e-4)


def one_product() -> Executable:
    m = GraphModule.hir("product")
    m.set_outputs({"y": m.mm(m.input("x", [1, 64]), m.param("w", [64, 8]))})
    return compile_fresh(m)


def test_other_weights_are_never_shared() -> None:
    """Neither those of another array, nor those that are written to the same one, nor those in its memory later."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, 64)).astype(np.float32)
    executables, shared = [one_product(), one_product()], dict[str, Prepared]()
    w = np.zeros((64, 8), np.float32)
    for turn in range(6):
        if turn % 2:
            w[...] = rng.standard_normal(w.shape)  # the same array
        else:
            w = rng.standard_normal(w.shape).astype(np.float32)  # often at the address of the last one
        for executable in executables:
            executable.set_params({"w": w}, shared=shared)
            np.testing.assert_allclose(executable(x=x), x @ w, rtol=1e-4, atol=1e-4)
        assert bound_arrays(executables[0])[0] is bound_arrays(executables[1])[0]


def test_weights_of_mapped_files_are_shared_while_the_file_is_open(tmp_path: Path) -> None:
    """They are known by their addresses, which another file may have later."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 64)).astype(np.float32)
    executables, shared = [one_product(), one_product()], dict[str, Prepared]()
    for turn in range(4):
        expected = rng.standard_normal((64, 8)).astype(np.float32)
        path = tmp_path / f"{turn}.bin"
        path.write_bytes(expected.tobytes())
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for executable in executables:  # each with its own view
            w = np.frombuffer(mapping, np.uint8).view(np.float32).reshape(64, 8)
            executable.set_params({"w": w}, shared=shared)
            np.testing.assert_allclose(executable(x=x), x @ expected, rtol=1e-4, atol=1e-4)
        assert len(shared) == 1, "entries of closed files are dropped"
        (entry,) = shared.values()
        assert len(entry.files) == 1
        assert all(bound_arrays(executable)[0] is entry.array for executable in executables)
        del w, mapping
        assert not entry.is_current


def test_arrays_without_preparation_are_not_copied() -> None:
    m = GraphModule.hir("table")
    m.set_outputs({"y": m.gather(m.param("table", [5, 8]), m.input("ids", ["n"], "i32"))})
    executable = compile_fresh(m)
    table = np.arange(40, dtype=np.float32).reshape(5, 8)
    executable.set_params({"table": table})
    assert bound_arrays(executable)[0] is table
    assert np.array_equal(executable(ids=np.array([4, 0], np.int32)), table[[4, 0]])


def test_unknown_operations_are_named() -> None:
    preparation = Preparation(("w",), (PrepareStep("sinh", (0,)),), (("w:prepared", 1),))
    with pytest.raises(UnsupportedError, match="'sinh' can't run when parameters are set; known are constant, concat"):
        prepare(preparation, {"w": np.zeros(1)}, None)


def test_preparation_is_readable() -> None:
    """What is prepared is named after what it comes from."""
    names = {spec.name for spec in artifact_of("products").plan_parameters}
    assert {"q4_1:panels", "dense:panels", "first+second:panels"} <= names


def test_random_programs_of_parameters() -> None:
    """Chains of operations on parameters alone."""
    rng = np.random.default_rng(7)
    for _ in range(4):
        p = Program()
        m: Any = p.m
        values = [p.param("a", [4, 4], make=scaled(1)), p.param("b", [4, 4], make=positive)]
        for _ in range(8):
            x, y = (values[i] for i in rng.integers(0, len(values), 2))
            values.append(
                [
                    x + y,
                    x * y,
                    x - y,
                    m.transpose(x),
                    m.maximum(x, y),
                    m.concat([m.narrow(x, 0, 0, 2), m.narrow(y, 0, 1, 2)], 0),
                ][rng.integers(0, 6)]
            )
        p.output(y=p.input("x", [4, 4]) + values[-1])
        module = p.finish()
        inputs, params = p.values({})
        executable = compile_fresh(module)
        executable.set_params(params)
        np.testing.assert_allclose(
            executable.run(inputs)["y"], interpret(module, {**inputs, **params})["y"], rtol=1e-5, atol=1e-6
        )


def test_constants_of_no_dimension_are_prepared() -> None:
    for shape in ((), (1,), (2, 3), (0,)):
        array = np.full(shape, 0.5, np.float32)
        step = PrepareStep("constant", (), constant_step(array))
        found = prepare(Preparation((), (step,), (("c", 0),)), {}, None)["c"]
        assert found.shape == shape
        np.testing.assert_array_equal(found, array)
