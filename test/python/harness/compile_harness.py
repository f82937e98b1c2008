# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs one module in every way that there is, and compares: interpreted at stage hir and at stage mir, compiled by
templates, compiled generically.

Many results go into one module: what LLVM needs to start dominates the time of small functions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from linalg_harness import difference
from packed_harness import encoded

from rlx_mlir import Executable, GraphModule, Value, compile, interpret

Make = Callable[[np.random.Generator, tuple[int, ...]], Any]
Sizes = Mapping[str, int]

DTYPES: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "i1": np.bool_,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
}


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of the size of activations."""
    return rng.standard_normal(shape)


def scaled(factor: float, offset: float = 0.0) -> Make:
    """Normal numbers times a factor, plus an offset."""
    return lambda rng, shape: rng.standard_normal(shape) * factor + offset


def integers(low: int, high: int) -> Make:
    """Integers from `low` to `high - 1`."""
    return lambda rng, shape: rng.integers(low, high, shape)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers from 0.1 to 4."""
    return rng.uniform(0.1, 4, shape)


@dataclass
class Argument:
    """An input or parameter: its shape, where symbols may stand, and how its values are made."""

    shape: tuple[int | str, ...]
    dtype: str
    make: Make
    packed: str | None = None

    def value(self, rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in self.shape)
        array = np.asarray(self.make(rng, shape))
        if self.packed is not None:
            return encoded(self.packed, array.astype(np.float32))
        return array.astype(DTYPES[self.dtype])


@dataclass
class Program:
    """A module under test, with how the values of its arguments are made."""

    stage: str = "hir"
    policy: str = "direct"
    name: str = "program"
    arguments: dict[str, Argument] = field(default_factory=dict)
    params: set[str] = field(default_factory=set)
    outputs: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.m = GraphModule.mir(self.name) if self.stage == "mir" else GraphModule.hir(self.name, policy=self.policy)

    def input(self, name: str, shape: Sequence[int | str], dtype: str = "f32", make: Make = normal) -> Value:
        """A new input."""
        self.arguments[name] = Argument(tuple(shape), dtype, make)
        return self.m.input(name, list(shape), dtype)

    def param(
        self,
        name: str,
        shape: Sequence[int | str],
        dtype: str = "f32",
        make: Make | None = None,
        *,
        packed: str | None = None,
    ) -> Value:
        """A new parameter; packed ones are [N, K]. Values are scaled for sums of as many terms as there may be."""
        inner = [size for size in shape if isinstance(size, int) and size > 0]
        chosen = make or (scaled(max(inner) ** -0.5) if len(shape) > 1 and inner else normal)
        self.arguments[name] = Argument(tuple(shape), dtype, chosen, packed)
        self.params.add(name)
        if packed is not None:
            return self.m.param(name, list(shape), packed=packed)
        return self.m.param(name, list(shape), dtype)

    def output(self, **values: Value) -> None:
        """Adds results."""
        self.outputs |= values

    def finish(self) -> GraphModule:
        """The module, with its outputs set."""
        self.m.set_outputs(self.outputs)
        return self.m

    def values(self, sizes: Sizes, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """(inputs, parameters) of the given sizes."""
        rng = np.random.default_rng(seed)
        params = {name: a.value(rng, sizes) for name, a in self.arguments.items() if name in self.params}
        inputs = {name: a.value(rng, sizes) for name, a in self.arguments.items() if name not in self.params}
        return inputs, params


def compile_fresh(module: GraphModule, **options: Any) -> Executable:
    """The module compiled, without the cache."""
    return compile(module, cache=False, **options)


def templates_of(executable: Executable) -> dict[str, str]:
    """By kernel, the name of its template, `generic` where it has none; they are named as without AMX and VNNI."""
    names = {
        "gemm_amx_f32": "gemm_panels",
        "gemm_amx_f32_batched": "gemm_dense",
        "gemm_amx_int8": "gemm_int8",
        "gemm_digits": "gemm_panels",
        "attention_amx": "attention",
    }
    own = executable.artifact.templates.items()
    return {name: "generic" if t.startswith("generic") else names.get(t, t) for name, t in own}


def every(**sizes: Sequence[int]) -> list[dict[str, int]]:
    """Every combination of the sizes of symbols."""
    return [dict(zip(sizes, values, strict=True)) for values in itertools.product(*sizes.values())]


def compare(
    want: Mapping[str, np.ndarray],
    got: Mapping[str, np.ndarray],
    what: str,
    tolerance: Mapping[str, float] | float | None = None,
) -> list[str]:
    """What differs, by result; `tolerance` for all results, or by their names.

    Errors are relative to the element, with a floor for cancellation in sums: a tenth of that, of the largest one.
    """
    assert want.keys() == got.keys(), f"{what}: {list(want)} expected, but got {list(got)}"
    messages = []
    for name, expected in want.items():
        allowed = tolerance.get(name) if isinstance(tolerance, Mapping) else tolerance
        if expected.dtype != got[name].dtype:
            messages.append(f"{what}: '{name}' is of {got[name].dtype}, not {expected.dtype}")
        elif message := difference(expected, got[name], allowed):
            messages.append(f"{what}: '{name}': {message}")
    return messages


class Ways:
    """Every way to run a module: interpreted as it is and at stage mir, compiled by templates and generically.

    With `activations="int8"` the only reference is the interpreted module whose activations are quantised.
    """

    def __init__(self, module: GraphModule, threads: int | None = 1, **options: Any) -> None:
        self.references = {"hir": module, "mir": module.lower()}
        if options.get("activations") == "int8":
            self.references = {"mir": module.lower().transform("rlx-fuse,mir-quantize-activations{attention=15},cse")}
        self.templates = compile_fresh(module, threads=threads, **options)
        # What LLVM does to generic code is tested with element types that have no templates; without it, code of this
        # size compiles ten times as fast.
        options = {"level": 0, "disable_templates": ("all",), **options}
        self.generic = compile_fresh(module, threads=threads, **options)
        assert set(templates_of(self.generic).values()) <= {"generic"}
        self.params: dict[str, np.ndarray] = {}

    def set_params(self, params: Mapping[str, np.ndarray]) -> None:
        """Binds parameters."""
        self.params = dict(params)
        self.templates.set_params(params)
        self.generic.set_params(params)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        """The results by the way that they were computed, references first. Asserts that inputs stay as they are."""
        before = {name: array.tobytes() for name, array in inputs.items()}
        runs = {stage: interpret(module, {**inputs, **self.params}) for stage, module in self.references.items()}
        runs |= {"templates": self.templates.run(inputs), "generic": self.generic.run(inputs)}
        assert before == {name: array.tobytes() for name, array in inputs.items()}, "an input was written"
        return runs


def check(
    program: Program,
    sizes: Sequence[Sizes] = ({},),
    *,
    templates: set[str] | None = None,
    tolerance: Mapping[str, float] | float | None = None,
    **options: Any,
) -> Ways:
    """Asserts that a module gives the same results in every way that it can be run.

    Args:
        sizes: of the symbols; one executable serves all of them.
        templates: what all the kernels must come from; `generic` for those without one. None: anything.
        tolerance: relative error allowed, for all results or by their names; by default by element type.
        options: of the compilation.
    """
    ways = Ways(program.finish(), **options)
    assert templates is None or set(templates_of(ways.templates).values()) == templates, (
        ways.templates.artifact.templates
    )
    ways.set_params(program.values(sizes[0])[1])
    failures = []
    for each in sizes:
        (_, expected), *others = ways.run(program.values(each)[0]).items()
        for what, results in others:
            failures += compare(expected, results, f"{what} {dict(each)}", tolerance)
    assert not failures, "\n".join(failures)
    return ways
