# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that users register: building, text, meaning, lowering, kernels of Python and of C, and all mistakes."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device
from documents import blocks, run_python, shell

import rlx_mlir as rlx
from rlx_mlir import Artifact, Executable, GraphModule, TensorSpec, own_ops, register_op
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import (
    BuildError,
    ExecutionError,
    InputError,
    NumericError,
    RlxError,
    StageError,
    UnsupportedError,
)
from rlx_mlir.rewriting.plugins import load_passes

RNG = np.random.default_rng(0)


pytestmark = pytest.mark.usefixtures("forget_operations")


# -- operations ------------------------------------------------------------------------------------------------------


def same(x: TensorSpec, *, scale: float = 1.0) -> TensorSpec:
    return x


def scaled(x: np.ndarray, *, scale: float) -> np.ndarray:
    return np.asarray(x * np.array(scale, x.dtype))


def lower_scaled(m: Any, x: Any, *, scale: float) -> Any:
    return x * scale


def two(x: TensorSpec, w: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    return TensorSpec((x.shape[0] * 2, x.shape[1]), x.dtype), TensorSpec((), "i64")


def two_reference(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([x * w, x]), np.array(x.shape[0], np.int64)


def lower_two(m: Any, x: Any, w: Any) -> tuple[Any, Any]:
    return m.concat([x * w, x], axis=0), m.dim(x, 0, "i64")


def register_scaled(**parts: Any) -> own_ops.OwnOp:
    return register_op("own.scaled", **{"infer": same, "reference": scaled, "lowering": lower_scaled, **parts})


def register_two(**parts: Any) -> own_ops.OwnOp:
    return register_op("own.two", infer=two, reference=two_reference, **parts)


def scaled_module(dtype: str = "f32", **parameters: Any) -> GraphModule:
    m = GraphModule.mir("net")
    x = m.input("x", ["rows", 4], dtype)
    m.set_outputs({"y": m.custom("own.scaled", x, **parameters)})
    return m


def two_module() -> GraphModule:
    m = GraphModule.mir("net")
    x, w = m.input("x", ["rows", 4]), m.param("w", [4])
    y, n = m.custom("own.two", x, w)
    m.set_outputs({"y": y + 1.0, "n": n})
    return m


def check_two(executable: Executable) -> None:
    """Results are those of numpy, for no row, one and several."""
    w = RNG.standard_normal(4).astype(np.float32)
    executable.set_params({"w": w})
    for rows in (0, 1, 5):
        x = RNG.standard_normal((rows, 4)).astype(np.float32)
        found = executable.run({"x": x})
        assert np.allclose(found["y"], np.concatenate([x * w, x]) + 1, rtol=1e-6)
        assert found["n"] == rows


# -- registration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        ("scaled", {}, "two or more words"),
        ("mir.scaled", {}, "not of mir or hir"),
        ("own.2", {}, "two or more words"),
        (3, {}, "two or more words"),
        ("own.scaled", {"infer": None}, "'own.scaled' lacks infer$"),
        ("own.scaled", {"reference": None, "lowering": None}, "lacks reference, lowering or kernel"),
        ("own.scaled", {"lowering": None}, "lacks lowering or kernel"),
        ("own.scaled", {"kernel": 5}, "'kernel' of 'own.scaled' is a function, but got 5"),
        ("own.scaled", {"vjp": "x"}, "'vjp' of 'own.scaled' is a function"),
        ("own.scaled", {"lowerin": lower_scaled}, r"has no 'lowerin' \(did you mean 'lowering'\?\)"),
        ("own.scaled", {"reference": lambda x, y, *, scale: x}, "'reference' of 'own.scaled' takes .*missing"),
        ("own.scaled", {"reference": lambda x: x}, "'reference' of 'own.scaled' takes .*unexpected keyword"),
        ("own.scaled", {"lowering": scaled}, r"'lowering' of 'own.scaled' takes \(m, x"),
        ("own.scaled", {"kernel": lambda x: x}, "'kernel' of 'own.scaled' takes"),
        ("own.scaled", {"infer": lambda x, scale=1.0: x}, "operand 'scale' has a default"),
        ("own.scaled", {"infer": lambda x, **any: x}, "takes any keyword"),
        ("own.scaled", {"infer": lambda *, scale: scale}, "takes no operand"),
        ("own.scaled", {"infer": lambda x, *, name: x}, "can't have a parameter 'name'"),
        ("own.scaled", {"infer": max}, "'infer' of 'own.scaled' has no signature"),
    ],
)
def test_what_is_missing_or_wrong_is_named(name: Any, parts: dict[str, Any], message: str) -> None:
    given = {"infer": same, "reference": scaled, "lowering": lower_scaled, **parts}
    with pytest.raises(InputError, match=message):
        register_op(name, **given)
    assert not [own for own in own_ops.registered_ops() if own.name.startswith("own.")]


def test_a_name_is_taken_once() -> None:
    own = register_scaled(vjp=scaled)
    assert own_ops.find_op("own.scaled") is own
    assert own.vjp is scaled
    with pytest.raises(InputError, match=r"'own.scaled' is registered already"):
        register_scaled()
    own_ops.unregister_op("own.scaled")
    register_scaled()
    with pytest.raises(InputError, match=r"no operation 'own.scale' is registered \(did you mean 'own.scaled'\?\)"):
        own_ops.unregister_op("own.scale")


def test_functions_of_numpy_are_references() -> None:
    register_op("own.larger", infer=lambda x, y: x, reference=np.maximum, kernel=np.maximum)
    m = GraphModule.mir("net")
    x = m.input("x", [3])
    m.set_outputs({"y": m.custom("own.larger", x, np.array([1, 2, 3], np.float32))})
    given = np.array([3, 2, 1], np.float32)
    for found in (rlx.interpret(m, {"x": given})["y"], rlx.compile(m)(x=given)):
        assert np.array_equal(found, [3, 2, 3])


# -- building --------------------------------------------------------------------------------------------------------


def test_a_module_with_it_is_built_printed_and_read() -> None:
    register_two(lowering=lower_two)
    m = two_module()
    assert next(iter(m.nodes())).op == "mir.custom"
    text = m.to_text()
    assert (
        'mir.custom "own.two"(%arg0, %arg1) : (tensor<?x4xf32>, tensor<4xf32>) -> (tensor<?x4xf32>, tensor<i64>)'
        in text
    )
    again = GraphModule.from_text(text)
    assert again == m
    assert GraphModule.from_bytecode(m.bytecode()) == m
    assert again.outputs["y"].shape == ("2*rows", 4)


def test_parameters_have_defaults_and_kinds() -> None:
    def infer(
        x: TensorSpec, *, a: int, b: float = 0.1, c: bool = True, d: str = "é", e: list[int] | None = None
    ) -> TensorSpec:
        found.append((a, b, c, d, e))
        return x

    found: list[Any] = []
    register_op("own.many", infer=infer, reference=lambda x, **given: found.append(given) or x, kernel=lambda x, **_: x)
    m = GraphModule.mir("net")
    x = m.input("x", [2])
    y = m.custom("own.many", x, a=np.int64(-(2**63)), e=[1, 2.5, "x", False])
    m.set_outputs({"y": y})
    again = GraphModule.from_text(m.to_text())
    rlx.interpret(again, {"x": np.zeros(2, np.float32)})
    given = {"a": -(2**63), "b": 0.1, "c": True, "d": "é", "e": [1, 2.5, "x", False]}
    assert found[-1] == given
    assert [type(value) for value in found[-1].values()] == [int, float, bool, str, list]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m, x: m.custom("own.nothing", x), "no operation 'own.nothing' is registered"),
        (lambda m, x: m.custom("own.scaled", x, x), "has 1 operands, but got 2"),
        (lambda m, x: m.custom("own.scaled"), "has 1 operands, but got 0"),
        (lambda m, x: m.custom("own.scaled", x, scal=2), r"no parameter 'scal' \(did you mean 'scale'\?\)"),
        (lambda m, x: m.custom("own.scaled", x, scale=1j), "is a boolean, a number, a text or a list of these"),
        (lambda m, x: m.custom("own.scaled", x, scale=2**63), "is a boolean, a number"),
        (lambda m, x: m.custom("own.scaled", x, scale=[[1]]), "is a boolean, a number"),
        (lambda m, x: m.custom("own.scaled", 3), "an operand is a Value or an array, but got int 3"),
        (lambda m, x: m.custom("own.scaled", x, shape=[3, 4]), "declared as"),
        (lambda m, x: m.custom("own.scaled", m.param("p", [4, 32], packed="q8_0")), "is a packed weight"),
        (
            lambda m, x: m.custom("own.bad", x, how="raises"),
            r"'infer' of 'own.bad' raised ZeroDivisionError.*f32 \[rows",
        ),
        (lambda m, x: m.custom("own.bad", x, how="array"), "gives a TensorSpec, or a tuple"),
        (lambda m, x: m.custom("own.bad", x, how="size"), "gave a shape with 2.5"),
        (lambda m, x: m.custom("own.bad", x, how="negative"), "gave a negative size"),
        (lambda m, x: m.custom("own.bad", x, how="dtype"), "is an element type"),
        (lambda m, x: m.custom("own.bad", x), "needs a value for its parameter 'how'"),
    ],
)
def test_mistakes_of_callers_are_errors_at_their_line(build: Callable[..., Any], message: str) -> None:
    def infer(x: TensorSpec, *, how: str) -> Any:
        given: dict[str, Callable[[], Any]] = {
            "raises": lambda: 1 // 0,
            "array": lambda: np.zeros(2),
            "size": lambda: TensorSpec((2.5,), "f32"),
            "negative": lambda: TensorSpec((-1,), "f32"),
            "dtype": lambda: TensorSpec((1,), "f31"),
        }
        return given[how]()

    register_scaled()
    register_op("own.bad", infer=infer, reference=lambda x, *, how: x, kernel=lambda x, *, how: x)
    m = GraphModule.mir("net")
    x = m.input("x", ["rows", 4])
    with pytest.raises(BuildError, match=message) as caught:
        build(m, x)
    assert str(caught.value).startswith(f"{__file__}:")
    assert not len(m)


# -- meaning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda x, *, scale: x[:-1], r"'reference' of 'own.scaled' gave f32 \[1, 4\], but 'infer' says f32 \[2, 4\]"),
        (lambda x, *, scale: x.astype(np.float64), "gave f64"),
        (lambda x, *, scale: (x, x), "gave f32 .*, f32"),
        (lambda x, *, scale: None, "gave NoneType"),
        (lambda x, *, scale: 1 / 0, "'reference' of 'own.scaled' raised ZeroDivisionError"),
    ],
)
def test_a_reference_gives_what_infer_says(reference: Callable[..., Any], message: str) -> None:
    register_scaled(reference=reference)
    with pytest.raises(ExecutionError, match=message):
        rlx.interpret(scaled_module(), {"x": np.ones((2, 4), np.float32)})


def test_text_whose_types_are_others_is_refused() -> None:
    register_scaled()
    text = scaled_module().to_text()
    for right in ("-> tensor<?x4xf32>", "return %0 : tensor<?x4xf32>", "-> (tensor<?x4xf32>"):
        text = text.replace(right, right.replace("x4x", "x5x"))
    wrong = GraphModule.from_text(text)
    with pytest.raises(RlxError, match=r"'infer' of 'own.scaled' says f32 \[rows, 4\], but the operation gives"):
        rlx.compile(wrong)


def test_without_registration_it_is_read_but_not_compiled() -> None:
    register_scaled()
    text = scaled_module().to_text()
    own_ops.unregister_op("own.scaled")
    m = GraphModule.from_text(text)
    assert m.outputs["y"].shape == ("?", 4)
    assert m.to_text() == text
    for run in (lambda: rlx.compile(m), lambda: rlx.interpret(m, {"x": np.ones((1, 4), np.float32)})):
        with pytest.raises(RlxError, match=r"no operation 'own.scaled' is registered"):
            run()


# -- lowering --------------------------------------------------------------------------------------------------------


def test_a_lowering_takes_its_place_and_fuses() -> None:
    register_two(lowering=lower_two)
    m = two_module()
    kernels = rlx.emit(m, "kernels")
    assert "mir.custom" not in kernels
    check_two(rlx.compile(m, cache=False))
    check_two(rlx.compile(m, cache=False, verify="numeric"))
    bound = rlx.compile(m.bind(rows=5), cache=False)
    bound.set_params({"w": np.ones(4, np.float32)})
    assert bound.run({"x": np.ones((5, 4), np.float32)})["y"].shape == (10, 4)


def test_what_it_is_made_of_becomes_one_kernel() -> None:
    register_scaled()
    m = GraphModule.mir("net")
    m.set_outputs({"y": m.custom("own.scaled", m.input("x", ["rows", 64]), scale=2.0) + 1.0})
    assert rlx.emit(m, "kernels").count("mir.kernel =") == 1


def test_it_keeps_the_block_and_the_line() -> None:
    register_scaled()
    m = GraphModule.mir("net")
    m.set_outputs({"y": m.custom("own.scaled", m.input("x", ["rows", 4]), name="layer.scale")})
    lowered = m.transform("mir-lower-custom").to_text(locations=True)
    assert "mir.mul" in lowered
    assert 'loc("layer.scale"' in lowered
    assert "test_own_ops.py" in lowered


def test_lowerings_may_use_others() -> None:
    register_scaled()
    register_op(
        "own.twice",
        infer=lambda x: x,
        reference=lambda x: x * 4,
        lowering=lambda m, x: m.custom("own.scaled", m.custom("own.scaled", x, scale=2.0), scale=2.0),
    )
    m = GraphModule.mir("net")
    m.set_outputs({"y": m.custom("own.twice", m.input("x", [3]))})
    assert np.array_equal(rlx.compile(m)(x=np.ones(3, np.float32)), [4, 4, 4])


def test_an_operand_may_be_the_result() -> None:
    register_op("own.same", infer=lambda x, y: (y, x), reference=lambda x, y: (y, x), lowering=lambda m, x, y: (y, x))
    m = GraphModule.mir("net")
    a, b = m.custom("own.same", m.input("x", ["n"]), m.input("y", ["n"]))
    a, b = m.custom("own.same", a, b)
    m.set_outputs({"a": a, "b": b})
    x, y = np.ones(2, np.float32), np.zeros(2, np.float32)
    found = rlx.compile(m)(x, y)
    assert np.array_equal(found[0], x)
    assert np.array_equal(found[1], y)


@pytest.mark.parametrize(
    ("lowering", "message"),
    [
        (lambda m, x, *, scale: m.cast(x, "f16"), r"gives f16 \[s0, 4\], but 'infer' says f32 \[s0, 4\]"),
        (lambda m, x, *, scale: m.concat([x, x], axis=0), r"gives f32 \[2\*s0, 4\], but 'infer' says f32 \[s0, 4\]"),
        (lambda m, x, *, scale: (x, x), "gives f32"),
        (lambda m, x, *, scale: 3, "gives values of its module, but gave 3"),
        (lambda m, x, *, scale: m.input("more", [1, 4]), "adds an input or a parameter"),
        (lambda m, x, *, scale: GraphModule.mir("other").input("x", [1, 4]), "gives a value of another module"),
        (lambda m, x, *, scale: x + m.constant(np.ones(3, np.float32)), "'lowering' of 'own.scaled' raised"),
        (lambda m, x, *, scale: 1 / 0, "'lowering' of 'own.scaled' raised: ZeroDivisionError"),
        (lambda m, x, *, scale: m.custom("own.scaled", x, scale=scale), "more than 16 deep"),
    ],
)
def test_a_lowering_gives_what_infer_says(lowering: Callable[..., Any], message: str) -> None:
    register_scaled(lowering=lowering)
    with pytest.raises(RlxError, match=message):
        rlx.compile(scaled_module())


def test_gpus_take_the_lowering() -> None:
    register_scaled(kernel=scaled)
    assert "mul.rn.f32" in rlx.emit(scaled_module(scale=3.0), "ptx", target="nvptx")
    own_ops.unregister_op("own.scaled")
    register_scaled(kernel=scaled, lowering=None)
    with pytest.raises(UnsupportedError, match=r"'own.scaled' has a kernel, which CPUs call, but GPUs need a lowering"):
        rlx.emit(scaled_module(), "ptx", target="nvptx")


def test_a_gpu_computes_what_the_lowering_builds() -> None:
    register_scaled(kernel=scaled)
    given = RNG.standard_normal((5, 4)).astype(np.float32)
    with emulated_device():
        executable = rlx.compile(scaled_module(scale=3.0), target="cuda", cache=False)
        assert np.array_equal(executable.run({"x": given})["y"], given * 3)


def test_verification_finds_a_lowering_that_computes_something_else() -> None:
    register_scaled(lowering=lambda m, x, *, scale: x * (scale + 1))
    with pytest.raises(RlxError, match="mir-lower-custom"):
        rlx.compile(scaled_module(), verify="numeric")


# -- kernels of Python -----------------------------------------------------------------------------------------------


def test_compiled_code_calls_a_kernel() -> None:
    register_two(kernel=two_reference)
    m = two_module()
    executable = rlx.compile(m, cache=False, verify="numeric")
    assert executable.artifact.kinds["own_two_0"] == "own"
    check_two(executable)
    check_two(rlx.compile(m, cache=False, disable_templates=("all",)))
    bound = rlx.compile(m.bind(rows=5), cache=False)
    bound.set_params({"w": np.ones(4, np.float32)})
    assert bound.run({"x": np.ones((5, 4), np.float32)})["y"].shape == (10, 4)


def test_modules_of_blocks_have_them_too() -> None:
    register_scaled()
    register_two(kernel=two_reference)
    m = GraphModule.hir("net")
    x, w = m.input("x", ["rows", 4]), m.param("w", [4])
    y, n = m.primitives.custom("own.two", m.rms_norm(m.custom("own.scaled", x, scale=1.0), w), w)
    m.set_outputs({"y": y, "n": n})
    arrays = {"x": RNG.standard_normal((3, 4)).astype(np.float32), "w": np.ones(4, np.float32)}
    executable = rlx.compile(m, cache=False, verify="numeric")
    executable.set_params({"w": arrays["w"]})
    found, expected = executable.run({"x": arrays["x"]}), rlx.interpret(m, arrays)
    assert np.allclose(found["y"], expected["y"], rtol=1e-5)
    assert "own_two_0" in str(executable.dispatch_report())


def test_text_of_later_stages_goes_on() -> None:
    register_two(kernel=two_reference)
    for stage in ("kernels", "lir"):
        text = rlx.emit(two_module(), stage)
        check_two(rlx.compile(GraphModule.from_text(text), cache=False))
    m = GraphModule.mir("net")
    m.set_outputs({"y": m.neg(m.input("x", [4]))})
    text = rlx.emit(m, "kernels").replace('"broadcast"', '"own"')
    with pytest.raises(StageError, match=r"'neg_0' is of class own: it holds one mir.custom on its arguments"):
        rlx.compile(GraphModule.from_text(text), cache=False)


def test_a_kernel_is_preferred_to_a_lowering() -> None:
    calls: list[float] = []

    def kernel(x: np.ndarray, *, scale: float) -> np.ndarray:
        calls.append(scale)
        return scaled(x, scale=scale)

    register_scaled(kernel=kernel)
    found = rlx.compile(scaled_module(scale=3.0))(x=np.ones((2, 4), np.float32))
    assert np.array_equal(found, np.full((2, 4), 3.0))
    assert calls == [3.0]


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.quick(6)
def test_every_element_type(dtype: str) -> None:
    def kernel(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.ascontiguousarray(x.T), y

    register_op("own.turn", infer=lambda x, y: (TensorSpec(x.shape[::-1], x.dtype), y), reference=kernel, kernel=kernel)
    m = GraphModule.mir("net")
    x, y = m.custom("own.turn", m.input("x", ["a", "b"], dtype), m.input("y", [], dtype))
    m.set_outputs({"x": x, "y": y})
    given = RNG.integers(0, 2, (3, 5)).astype(DTYPES[dtype])
    one = np.array(1).astype(DTYPES[dtype])
    found = rlx.compile(m, cache=False).run({"x": given, "y": one})
    assert np.array_equal(found["x"], given.T)
    assert found["y"] == one


def test_operands_may_be_equal_constants_or_views() -> None:
    def kernel(x: np.ndarray, y: np.ndarray, z: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x - y + z * s, z

    register_op("own.four", infer=lambda x, y, z, s: (x, z), reference=kernel, kernel=kernel)
    m = GraphModule.mir("net")
    x = m.input("x", [6])
    table, number = np.arange(6, dtype=np.float32), np.array(2.0, np.float32)
    y, _ = m.custom("own.four", x, x, table, number)
    again, _ = m.custom("own.four", m.reshape(y, [6]), x, table, number)
    m.set_outputs({"y": m.reshape(again, [2, 3])})
    given = RNG.standard_normal(6).astype(np.float32)
    found = rlx.compile(m, cache=False)(x=given)
    assert np.allclose(found, (table * 2 - given + table * 2).reshape(2, 3), rtol=1e-6)


def test_arrays_are_read_only_and_may_be_given_back() -> None:
    def kernel(x: np.ndarray, *, scale: float) -> np.ndarray:
        with pytest.raises(ValueError, match="read-only"):
            x[...] = 0
        return x

    register_scaled(kernel=kernel)
    given = RNG.standard_normal((2, 4)).astype(np.float32)
    assert np.array_equal(rlx.compile(scaled_module(), cache=False)(x=given), given)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda x, *, scale: x[:-1], r"'kernel' of 'own.scaled' gave f32 \[1, 4\], but 'infer' says f32 \[2, 4\]"),
        (lambda x, *, scale: 1 / 0, "'kernel' of 'own.scaled' raised ZeroDivisionError: division by zero"),
        (lambda x, *, scale: None, "gave NoneType"),
    ],
)
def test_what_a_kernel_raises_is_an_error_that_names_it(kernel: Callable[..., Any], message: str) -> None:
    broken = [True]
    register_scaled(kernel=lambda x, *, scale: kernel(x, scale=scale) if broken[0] else x)
    executable = rlx.compile(scaled_module(), cache=False)
    given = np.ones((2, 4), np.float32)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=message):
            executable(x=given)
    bound = executable.bind({"x": given})
    with pytest.raises(ExecutionError, match=message):
        bound()
    broken[0] = False
    assert np.array_equal(executable(x=given), given)


def test_an_interrupt_goes_through() -> None:
    def kernel(x: np.ndarray, *, scale: float) -> np.ndarray:
        raise KeyboardInterrupt

    register_scaled(kernel=kernel)
    with pytest.raises(KeyboardInterrupt):
        rlx.compile(scaled_module(), cache=False)(x=np.ones((2, 4), np.float32))


def test_after_an_error_no_other_kernel_is_called() -> None:
    calls: list[float] = []

    def kernel(x: np.ndarray, *, scale: float) -> np.ndarray:
        calls.append(scale)
        raise ValueError("no")

    register_scaled(kernel=kernel)
    m = GraphModule.mir("net")
    x = m.input("x", [4])
    m.set_outputs({"y": m.custom("own.scaled", m.custom("own.scaled", x, scale=1.0), scale=2.0)})
    with pytest.raises(ExecutionError, match="ValueError: no"):
        rlx.compile(m, cache=False)(x=np.ones(4, np.float32))
    assert calls == [1.0]


def test_a_kernel_that_runs_a_module_is_refused() -> None:
    """It would wait for the run that it is part of."""
    register_scaled(kernel=lambda x, *, scale: executable(x=np.array(x)))
    executable = rlx.compile(scaled_module(), cache=False)
    with pytest.raises(ExecutionError, match=r"'kernel' of 'own.scaled' raised InputError.*a plan can't run"):
        executable(x=np.ones((2, 4), np.float32))


def test_threads_get_their_own_results_and_errors() -> None:
    def kernel(x: np.ndarray, *, scale: float) -> np.ndarray:
        if x[0, 0] % 2:
            raise ValueError(f"odd {int(x[0, 0])}")
        return x * 2

    register_scaled(kernel=kernel)
    executable = rlx.compile(scaled_module(), cache=False)
    wrong: list[str] = []

    def work(number: int) -> None:
        given = np.full((3, 4), number, np.float32)
        for _ in range(50):
            try:
                found = executable(x=given)
            except ExecutionError as error:
                if not number % 2 or f"odd {number}" not in str(error):
                    wrong.append(f"{number}: {error}")
                continue
            if number % 2 or not np.array_equal(found, given * 2):
                wrong.append(f"{number}: {found}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_verification_finds_a_kernel_that_computes_something_else() -> None:
    register_scaled(kernel=lambda x, *, scale: scaled(x, scale=scale + 1))
    with pytest.raises(NumericError, match=r"kernel 'own_scaled_0' .*differs from its operations"):
        rlx.compile(scaled_module(), verify="numeric", cache=False)


# -- artefacts and the cache -----------------------------------------------------------------------------------------


def test_an_artefact_needs_what_it_calls(tmp_path: Path) -> None:
    register_two(kernel=two_reference)
    path = tmp_path / "net.rlx"
    rlx.compile(two_module(), cache=False).artifact.save(path)
    check_two(rlx.load(path))
    own_ops.unregister_op("own.two")
    with pytest.raises(ExecutionError, match=r"'net' calls your operation 'own.two', which isn't registered in this"):
        rlx.load(path)
    register_two(lowering=lower_two)
    with pytest.raises(ExecutionError, match="but it is registered without a kernel"):
        rlx.load(path)
    own_ops.unregister_op("own.two")
    register_op("own.two", infer=same, reference=scaled, kernel=scaled)
    with pytest.raises(
        ExecutionError, match="with 2 operands and the parameters none, but it is registered with others"
    ):
        rlx.load(path)


def test_an_artefact_of_lowered_operations_needs_nothing(tmp_path: Path) -> None:
    register_two(lowering=lower_two)
    path = tmp_path / "net.rlx"
    rlx.compile(two_module(), cache=False).artifact.save(path)
    own_ops.unregister_op("own.two")
    check_two(rlx.load(path))


@pytest.mark.parametrize(
    "change", [{"operands": (("f64", 2), ("f32", 1))}, {"order": (0, 5)}, {"results": (("f32", 3),)}]
)
def test_a_description_of_other_buffers_is_refused(change: dict[str, Any]) -> None:
    register_two(kernel=two_reference)
    artifact = rlx.compile(two_module(), cache=False).artifact
    (call,) = artifact.own
    wrong = dataclasses.replace(artifact, own=(dataclasses.replace(call, **change),))
    with pytest.raises(ExecutionError, match="kernel 'own_two_0' has other operands and results"):
        Executable(Artifact.from_bytes(wrong.to_bytes()))


def test_the_result_that_infer_said_is_what_a_kernel_writes() -> None:
    """Memory is as the code was compiled for, whatever is registered later."""
    register_op("own.size", infer=lambda x: x, reference=lambda x: x, kernel=lambda x: x)
    m = GraphModule.mir("net")
    m.set_outputs({"y": m.custom("own.size", m.input("x", ["n"]))})
    artifact = rlx.compile(m, cache=False).artifact
    own_ops.unregister_op("own.size")

    def larger(x: np.ndarray) -> np.ndarray:
        return np.ones(x.shape[0] + 1000, np.float32)

    register_op("own.size", infer=lambda x: TensorSpec((x.shape[0] + 1000,), x.dtype), reference=larger, kernel=larger)
    with pytest.raises(ExecutionError, match=r"but the code was compiled for float32 \[3\]: compile it again"):
        Executable(artifact)(x=np.ones(3, np.float32))


def test_the_cache_knows_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    source = """
import rlx_mlir as rlx
def infer(x): return x
def reference(x): return x * FACTOR
def lowering(m, x): return x * FACTOR.0
rlx.register_op("own.filed", infer=infer, reference=reference, lowering=lowering)
"""
    kept = []
    for number, factor in enumerate(("2", "3", "3")):
        file = tmp_path / f"filed_{number}.py"
        file.write_text(source.replace("FACTOR", factor))
        load_passes(file)
        m = GraphModule.mir("net")
        m.set_outputs({"y": m.custom("own.filed", m.input("x", [2]))})
        assert np.array_equal(rlx.compile(m)(x=np.ones(2, np.float32)), [int(factor)] * 2)
        kept.append(len(list((tmp_path / "cache").rglob("*.rlx"))))
        own_ops.unregister_op("own.filed")
    assert kept == [1, 2, 2]


def test_what_has_no_source_of_its_own_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    for factor in (2.0, 3.0):
        register_scaled(lowering=(lambda inner: lambda m, x, *, scale: x * inner)(factor))
        assert own_ops.find_op("own.scaled").digest is None
        executable = rlx.compile(scaled_module())
        assert np.array_equal(executable(x=np.ones((1, 4), np.float32)), np.full((1, 4), factor))
        own_ops.unregister_op("own.scaled")
    assert not list((tmp_path / "cache").rglob("*.rlx"))


def test_defaults_are_part_of_the_source() -> None:
    digests = []
    for factor in (2.0, 3.0, 2.0, np.ones(1)):
        own = register_scaled(lowering=lambda m, x, *, scale, factor=factor: x * factor)
        digests.append(own.digest)
        own_ops.unregister_op("own.scaled")
    assert digests[0] == digests[2] != digests[1]
    assert digests[3] is None


def test_a_file_that_fails_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "half_done.py"
    file.write_text(
        "import rlx_mlir as rlx\n"
        "rlx.register_op('own.half', infer=lambda x: x, reference=lambda x: x, kernel=lambda x: x)\n1 / 0\n"
    )
    with pytest.raises(InputError, match="ZeroDivisionError"):
        load_passes(file)
    with pytest.raises(InputError, match=r"no operation 'own.half'"):
        own_ops.find_op("own.half")


# -- commands and documentation --------------------------------------------------------------------------------------


def test_commands_load_files_that_register(tmp_path: Path) -> None:
    (tmp_path / "loaded_ops.py").write_text(
        "import rlx_mlir as rlx\n"
        "rlx.register_op('own.loaded', infer=lambda x: x, reference=lambda x: x + x, lowering=lambda m, x: x + x)\n"
    )
    (tmp_path / "x.mlir").write_text(
        "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        '  %y = mir.custom "own.loaded"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n'
        "  return %y : tensor<4xf32>\n}\n"
    )
    found = shell("rlx-opt x.mlir --rlx-load=loaded_ops.py --mir-lower-custom", tmp_path)
    assert "mir.add %arg0, %arg0" in found
    assert "mir.add" in shell("rlx emit x.mlir --stage kernels --load loaded_ops.py", tmp_path)


@pytest.mark.slow
def test_the_fuzzer_draws_and_replays_them(tmp_path: Path) -> None:
    """The kernel is wrong, so a case with it is found, kept, and found again."""
    (tmp_path / "drawn_ops.py").write_text(
        "import rlx_mlir as rlx\n"
        "def sample(rng): return [rlx.TensorSpec((3, 4), 'f32')], {'by': 2.0}\n"
        "rlx.register_op('own.drawn', infer=lambda x, *, by: x, reference=lambda x, *, by: x + 1, "
        "kernel=lambda x, *, by: x + by, sample=sample)\n"
    )
    script = (
        "if rlx fuzz graphs --op mir.custom --load drawn_ops.py --count 1 --out found; then exit 1; fi; "
        "if rlx fuzz replay found/graphs-0-*.mlir; then exit 1; fi; cat found/*.mlir"
    )
    found = shell(script, tmp_path)
    assert 'mir.custom "own.drawn"' in found
    assert "mismatch" in found


def test_the_page_about_them(tmp_path: Path) -> None:
    document = "docs/own-operations.md"
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    found = blocks("docs/own-operations.md", "python", "c")
    for block in found:
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    for block in blocks(document, "sh"):
        shell(block.text, tmp_path)
    run_python(found, tmp_path)
    example = blocks(document, "python")[0].text.strip()
    assert len([line for line in example.splitlines() if line.strip()]) <= 20
