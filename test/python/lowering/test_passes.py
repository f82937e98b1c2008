# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes keep the meaning of modules: random programs, interpreted before and after, and compiled."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from rlx_mlir import GraphModule, compile, formats, interpret, ir
from rlx_mlir.compiler import CompileOptions, stages
from rlx_mlir.errors import InputError, PassError
from rlx_mlir.lowering.lir import Slot, assign_offsets
from rlx_mlir.rewriting import run_pipeline

SIZES = {"a": 3, "b": 2}
UNARY = ("silu", "relu", "tanh", "sigmoid", "neg", "gelu")
BINARY = ("add", "mul", "sub", "max")
Shape = tuple[str | int, ...]


class RandomProgram:
    """A function of MIR over values [rows, width], whose structure provokes fusion: products of one input, residuals,
    gates, biases, reshapes, second readers, and results that are arguments or returned twice.

    Attributes:
        text: the module.
        inputs: a value for each input and parameter.
    """

    def __init__(self, seed: int, count: int = 24) -> None:
        self._random = random.Random(seed)
        self._numpy = np.random.default_rng(seed)
        self.inputs: dict[str, np.ndarray] = {}
        self._arguments: list[str] = []
        self._lines: list[str] = []
        self._values: list[tuple[str, Shape]] = []
        for number, rows in enumerate(("a", "a", "b", 4)):
            self._value(f"x{number}", (rows, 32), "input")
        for _ in range(count):
            self._step()
        returned = [self._random.choice(self._values) for _ in range(3)] + self._values[-2:]
        types = ", ".join(self._type(shape) for _, shape in returned)
        results = ", ".join(f'{self._type(shape)} {{mir.name = "y{i}"}}' for i, (_, shape) in enumerate(returned))
        self._lines.append(f"return {', '.join(name for name, _ in returned)} : {types}")
        body = "\n  ".join(self._lines)
        self.text = f"func.func @main({', '.join(self._arguments)}) -> ({results}) {{\n  {body}\n}}"

    @staticmethod
    def _type(shape: Shape, element: str = "f32") -> str:
        return f"tensor<{'x'.join('?' if isinstance(size, str) else str(size) for size in shape)}x{element}>"

    def _argument(self, name: str, kind: str, type: str, value: np.ndarray, shape: Shape = ()) -> str:
        dims = ""
        if any(isinstance(size, str) for size in shape):
            words = ", ".join(f'"{size}"' if isinstance(size, str) else '""' for size in shape)
            dims = f", mir.dims = [{words}]"
        self._arguments.append(f'%{name}: {type} {{mir.name = "{name}", mir.kind = "{kind}"{dims}}}')
        self.inputs[name] = value
        return f"%{name}"

    def _value(self, name: str, shape: Shape, kind: str) -> str:
        sizes = [SIZES[size] if isinstance(size, str) else size for size in shape]
        data = (self._numpy.standard_normal(sizes) * 0.5).astype(np.float32)
        argument = self._argument(name, kind, self._type(shape), data, shape)
        if kind == "input":
            self._values.append((argument, shape))
        return argument

    def _parameter(self, shape: Shape) -> str:
        return self._value(f"p{len(self.inputs)}", shape, "param")

    def _op(self, text: str, shape: Shape) -> str:
        name = f"%v{len(self._lines)}"
        self._lines.append(f"{name} = mir.{text}")
        self._values.append((name, shape))
        return name

    def _product(self, x: str, shape: Shape, width: int) -> str:
        """x times a parameter: dense, transposed or packed."""
        inner, out = shape[-1], (*shape[:-1], width)
        assert isinstance(inner, int)
        kind = self._random.choice(("dense", "transposed", "packed"))
        if kind == "packed":
            rows = formats.encode("q8_0", (self._numpy.standard_normal((width, inner)) * 0.2).astype(np.float32))
            type = f"tensor<{width}x{rows.shape[1]}xi8, #mir.packed<q8_0, k = {inner}>>"
            weight = self._argument(f"p{len(self.inputs)}", "param", type, rows)
            return self._op(f"dequant_matmul {x}, {weight} : {self._type(shape)}, {type}", out)
        weights: Shape = (width, inner) if kind == "transposed" else (inner, width)
        weight = self._parameter(weights)
        word = " transpose_rhs" if kind == "transposed" else ""
        return self._op(f"matmul {x}, {weight}{word} : {self._type(shape)}, {self._type(weights)}", out)

    def _step(self) -> None:
        x, shape = self._random.choice(self._values[-8:])
        same = [name for name, other in self._values if other == shape]
        width = shape[-1]
        assert isinstance(width, int)
        own, vector = self._type(shape), self._type((width,))
        step = self._random.choice(
            (
                "unary",
                "binary",
                "vector",
                "product",
                "product",
                "twins",
                "norm",
                "residual",
                "halves",
                "reshape",
                "other",
            )
        )
        if step == "unary":
            self._op(f"{self._random.choice(UNARY)} {x} : {own}", shape)
        elif step == "binary":
            self._op(f"{self._random.choice(BINARY)} {x}, {self._random.choice(same)} : {own}", shape)
        elif step == "vector":
            self._op(f"{self._random.choice(BINARY)} {x}, {self._parameter((width,))} : {own}, {vector}", shape)
        elif step == "product":
            self._product(x, shape, self._random.choice((32, 64)))
        elif step == "twins":
            width = self._random.choice((32, 64))
            gate, up = self._product(x, shape, width), self._product(x, shape, width)
            out = (*shape[:-1], width)
            gated = self._op(f"silu {gate} : {self._type(out)}", out)
            self._op(f"mul {gated}, {up} : {self._type(out)}", out)
        elif step == "norm":
            kind = self._random.choice(("rms_norm", "layer_norm"))
            self._op(f"{kind} {x}, {self._parameter((width,))} : {own}, {vector}", shape)
        elif step == "residual":
            total = self._op(f"add {x}, {self._random.choice(same)} : {own}", shape)
            self._op(f"rms_norm {total}, {self._parameter((width,))} : {own}, {vector}", shape)
        elif step == "halves" and width == 64:
            half = (*shape[:-1], 32)
            up = self._op(f"narrow {x} axis 1 start 0 length 32 : {own}", half)
            gate = self._op(f"narrow {x} axis 1 start 32 length 32 : {own}", half)
            gated = self._op(f"silu {gate} : {self._type(half)}", half)
            self._op(f"mul {gated}, {up} : {self._type(half)}", half)
        elif step == "reshape" and width == 64:
            rows = shape[0]
            # A size that is no symbol has no name that other values could share.
            out = (f"2*{rows}" if isinstance(rows, str) else 2 * rows, 32)
            self._op(f"reshape {x} to [-1, 32] : {own}", out)
        elif step == "other":
            kind = self._random.choice(("softmax {} axis 0", "cumsum {} axis 1", "softmax {}"))
            self._op(f"{kind.format(x)} : {own}", shape)


def close(actual: np.ndarray, expected: np.ndarray, message: str) -> None:
    """Equal but for the order of sums: relative to the largest element, which others were computed with."""
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-5 * scale, err_msg=message)


def check(program: RandomProgram, module: ir.Module, expected: dict[str, Any]) -> None:
    """The module gives the expected results; where it has @prepare, on the parameters that this makes."""
    inputs = dict(program.inputs)
    if "@prepare(" in str(module):
        names = parameters_of(module, "prepare")
        inputs |= interpret(module, {name: inputs[name] for name in names}, function="prepare")
    actual = interpret(module, {name: inputs[name] for name in parameters_of(module, "main")})
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        close(actual[name], value, f"{name}\n{program.text}")


def parameters_of(module: ir.Module, name: str) -> list[str]:
    from rlx_mlir.semantics.function import arguments, function_name, functions

    return [a.name for f in functions(module) if function_name(f) == name for a in arguments(f)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.quick(4)
def test_random_programs_mean_the_same_at_every_stage(seed: int) -> None:
    program = RandomProgram(seed)
    module = ir.Module.parse(program.text, ir.new_context())
    expected = interpret(module, program.inputs)
    for pipeline in ("rlx-fuse", "mir-pack-weights,mir-hoist-params", "mir-outline-kernels"):
        run_pipeline(module, pipeline)
        check(program, module, expected)
    run_pipeline(module, "rlx-verify-stage{stage=kernels},lir-plan,rlx-verify-stage{stage=lir}")


@pytest.mark.parametrize("fusion", ["mir-fuse-matmul-bias-act", "mir-fuse-residual-norm", "mir-fuse-swiglu"])
@pytest.mark.parametrize("seed", [100, 101, 102])
def test_each_fusion_alone_keeps_the_meaning(seed: int, fusion: str) -> None:
    program = RandomProgram(seed, count=40)
    module = ir.Module.parse(program.text, ir.new_context())
    expected = interpret(module, program.inputs)
    run_pipeline(module, f"{fusion},mir-fuse-shared-input,mir-outline-kernels")
    check(program, module, expected)


@pytest.mark.parametrize("templates", [(), ("all",)], ids=["templates", "generic"])
@pytest.mark.parametrize("seed", [7, 8])
@pytest.mark.quick(1)
def test_random_programs_compile(seed: int, templates: tuple[str, ...]) -> None:
    program = RandomProgram(seed)
    module = GraphModule.from_text(program.text, stage="mir")
    expected = interpret(module, program.inputs)
    executable = compile(module, cache=False, verify=True, disable_templates=templates, level=1)
    names = {argument for argument in program.inputs if argument.startswith("p")}
    used = {spec.name for spec in executable.artifact.parameters}
    executable.set_params({name: program.inputs[name] for name in names & used})
    actual = executable.run({name: value for name, value in program.inputs.items() if name not in names})
    for name, value in expected.items():
        close(actual[name], value, f"{name}\n{program.text}")


# Memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_offsets_never_overlap_and_the_arena_holds_the_largest_set_of_live_slots(seed: int) -> None:
    chooser = random.Random(seed)
    slots = []
    for _ in range(60):
        first = chooser.randrange(100)
        slots.append(Slot(chooser.randrange(0, 5000), first, first + chooser.randrange(20)))
    arena = assign_offsets(slots)
    for i, one in enumerate(slots):
        assert one.offset % 64 == 0
        assert one.offset + one.bytes <= arena
        for other in slots[:i]:
            together = one.first <= other.last and other.first <= one.last
            disjoint = one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset
            assert disjoint or not together
    needed = max(sum(s.bytes for s in slots if s.first <= step <= s.last) for step in range(120))
    assert needed <= arena <= sum(-(-s.bytes // 64) * 64 for s in slots)


def test_no_slot_needs_no_arena() -> None:
    assert assign_offsets([]) == 0


# The options of the compiler ----------------------------------------------------------------------


def test_verification_runs_at_every_stage_where_asked() -> None:
    plain = stages(CompileOptions(verify=False))
    checked = stages(CompileOptions(verify=True))
    assert [stage for stage, _ in plain] == [stage for stage, _ in checked]
    assert not any("rlx-verify-stage" in pipeline for _, pipeline in plain)
    assert all(pipeline.endswith(f"rlx-verify-stage{{stage={stage}}}") for stage, pipeline in checked)
    assert checked[0][1].startswith("rlx-verify-stage{stage=hir},")
    assert CompileOptions(verify=True).as_dict() == CompileOptions(verify=False).as_dict()  # One cache entry for both.


def test_verification_is_on_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_VERIFY", "1")
    assert CompileOptions().verify
    monkeypatch.setenv("RLX_VERIFY", "0")
    assert not CompileOptions().verify


def test_the_level_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none is given; it is part of the key of what is kept."""
    monkeypatch.delenv("RLX_LEVEL", raising=False)
    assert CompileOptions().level == 2
    for level in range(4):
        monkeypatch.setenv("RLX_LEVEL", str(level))
        assert CompileOptions().level == CompileOptions().as_dict()["level"] == level
        assert CompileOptions(level=3).level == 3
    monkeypatch.setenv("RLX_LEVEL", "")
    assert CompileOptions().level == 2
    for wrong in ("4", "-1", "O2", "2 "):
        monkeypatch.setenv("RLX_LEVEL", wrong)
        with pytest.raises(InputError, match=rf"RLX_LEVEL expects a level from 0 to 3, but is '{wrong}'"):
            CompileOptions()


def test_a_broken_contract_fails_the_compilation() -> None:
    """An argument that is said to be an output: whether it is given at each call isn't known."""
    arguments = '%x: tensor<4xf32> {mir.name = "x", mir.kind = "output"}'
    text = f'func.func @f({arguments}) -> (tensor<4xf32> {{mir.name = "y"}}) {{ return %x : tensor<4xf32> }}'
    module = GraphModule.from_text(text, stage="mir")
    with pytest.raises(PassError, match=r"function 'f': argument 0 has no 'mir\.kind' of input or param"):
        compile(module, cache=False, verify=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxima": {"sequence": 8}}, r"'maxima' names 'sequence', but .* a, b"),
        ({"disable_templates": ("gem",)}, r"'disable_templates' expects .* but got 'gem'"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_an_error(options: dict[str, Any], message: str) -> None:
    module = GraphModule.from_text(RandomProgram(0, count=1).text, stage="mir")
    with pytest.raises(InputError, match=message):
        compile(module, cache=False, **options)
