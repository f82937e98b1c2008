# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives of modules against central differences, both by the operations' definitions.

A case is a function that builds, and its inputs; `check` compares:

- reverse mode with central differences of the module along random directions, one argument after the other;
- forward mode with reverse mode: <cotangents, J tangents> = <J^T cotangents, tangents>;
- the same of the module that reverse mode gave, by the arguments and by the cotangents: second derivatives.

The gradient by complex numbers x + i y is dL/dx + i dL/dy, so the inner product of complex numbers is the real part of
conj(a) b everywhere.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from rlx_mlir import GraphModule, Value, interpret
from rlx_mlir.autodiff.modules import jvp, vjp
from rlx_mlir.autodiff.registry import is_differentiable
from rlx_mlir.errors import GradientWarning
from rlx_mlir.formats import encode
from rlx_mlir.rewriting import operations
from rlx_mlir.semantics.function import arguments, results

Arrays = dict[str, Any]

#: Of f64: central differences of the fourth order have errors of 1e-12, and round to 1e-13.
EXACT = 1e-6
#: Of f32, whose differences round to 1e-5.
SINGLE = 2e-3


@dataclass(frozen=True)
class Input:
    """How an input is made.

    Attributes:
        shape: its sizes.
        dtype: its element type's word.
        make: of a generator and the shape, its numbers.
        packed: the format of a packed weight [N, K].
        words: sizes and symbols that the module declares it with.
    """

    shape: tuple[int, ...]
    dtype: str
    make: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    packed: str | None = None
    words: tuple[int | str, ...] | None = None

    def of(self, dtype: str) -> Input:
        """The same in another type."""
        return replace(self, dtype=dtype)

    def sized(self, *words: int | str) -> Input:
        """The same, declared with symbols."""
        return replace(self, words=words)


def normal(*shape: int, scale: float = 1.0, dtype: str = "f64") -> Input:
    """Normal numbers."""
    return Input(shape, dtype, lambda rng, sizes: rng.standard_normal(sizes) * scale)


def positive(*shape: int, dtype: str = "f64") -> Input:
    """Numbers from 0.5 to 2."""
    return Input(shape, dtype, lambda rng, sizes: rng.uniform(0.5, 2, sizes))


def apart(*shape: int, dtype: str = "f64") -> Input:
    """Numbers that are far enough from 0, from each other and from halves that no small step changes an order."""

    def make(rng: np.random.Generator, sizes: tuple[int, ...]) -> np.ndarray:
        count = int(np.prod(sizes))
        return ((rng.permutation(count) - count // 2 + 0.3) * (4.0 / max(count, 1))).reshape(sizes)

    return Input(shape, dtype, make)


def integers(*shape: int, below: int, least: int = 0, dtype: str = "i32") -> Input:
    """Integers."""
    return Input(shape, dtype, lambda rng, sizes: rng.integers(least, below, sizes))


def given(numbers: object, dtype: str = "f64") -> Input:
    """Those numbers."""
    array = np.asarray(numbers)
    return Input(array.shape, dtype, lambda rng, sizes: array)


def complexes(*shape: int) -> Input:
    """Complex numbers of f32."""
    return Input(shape, "complex<f32>", lambda rng, sizes: rng.standard_normal(sizes) + 1j * rng.standard_normal(sizes))


def weight(n: int, k: int, scheme: str = "q8_0") -> Input:
    """A packed weight of normal numbers."""
    return Input((n, k), "ui8", lambda rng, sizes: rng.standard_normal(sizes), packed=scheme)


@dataclass(frozen=True)
class Case:
    """What is differentiated.

    Attributes:
        build: of the builders of primitives and a value for each input, the result or a tuple of them.
        inputs: by name.
        wrt: what it is differentiated by; None for all inputs of floats.
        tolerance: of differences, relative to the lengths of gradient and direction.
        orders: 2 where second derivatives are to be compared, too.
        jumps: whether the result is constant or jumps, so that central differences don't tell its derivative.
        forward: whether there is forward mode, too.
    """

    build: Callable[..., Any]
    inputs: Mapping[str, Input] = field(default_factory=dict)
    wrt: Sequence[str] | None = None
    tolerance: float = EXACT
    orders: int = 2
    jumps: bool = False
    forward: bool = True


_NUMPY = {"complex<f32>": np.complex64, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "i1": np.bool_, "ui8": np.uint8}
_NUMPY |= {"f64": np.float64, "f32": np.float32, "i32": np.int32, "i64": np.int64, "i8": np.int8}


def arrays_of(case: Case, seed: str = "") -> Arrays:
    """Numbers for the inputs; always the same ones for a seed."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    found: Arrays = {}
    for name, own in case.inputs.items():
        numbers = own.make(rng, own.shape)
        if own.packed is None:
            found[name] = np.asarray(numbers).astype(_NUMPY[own.dtype])
        else:
            found[name] = encode(own.packed, numbers.astype(np.float32))
    return found


def arguments_of(module: GraphModule, case: Case, prefix: str = "") -> list[Value]:
    """A new argument of a module for each input of a case."""
    values = []
    for name, own in case.inputs.items():
        if own.packed is None:
            values.append(module.input(prefix + name, list(own.words or own.shape), own.dtype))
        else:
            values.append(module.param(prefix + name, list(own.shape), packed=own.packed))
    return values


def module_of(case: Case) -> GraphModule:
    """The module that a case builds."""
    module = GraphModule.mir("case")
    built = case.build(module.primitives, *arguments_of(module, case))
    outputs = built if isinstance(built, tuple | list) else (built,)
    module.set_outputs({f"y{number}": value for number, value in enumerate(outputs)})
    return module


def operations_of(cases: Mapping[str, Case]) -> set[str]:
    """The operations that cases build, all in one module."""
    module = GraphModule.mir("cases")
    for number, case in enumerate(cases.values()):
        case.build(module.primitives, *arguments_of(module, case, f"{number}_"))
    return {op.name for op in operations(module.ir_module) if op.name.startswith("mir.")}


def inner(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of the real parts of conj(a) b, in f64."""
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    return float(np.sum(np.conj(a.astype(wide)) * b.astype(wide)).real)


def like(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Normal numbers like an array."""
    numbers = rng.standard_normal(array.shape)
    if np.iscomplexobj(array):
        numbers = numbers + 1j * rng.standard_normal(array.shape)
    return np.asarray(numbers).astype(array.dtype)


def floats_of(module: GraphModule) -> tuple[list[str], list[str]]:
    """Names of the inputs and of the outputs of floats."""
    return (
        [a.name for a in arguments(module.entry) if is_differentiable(a.type)],
        [r.name for r in results(module.entry) if is_differentiable(r.type)],
    )


def new_names(module: GraphModule, own: GraphModule, *, inputs: bool) -> list[str]:
    """The names of inputs, or of outputs, that a derivative has beyond those of the module."""
    names = (lambda m: [x.name for x in m.inputs]) if inputs else (lambda m: list(m.outputs))
    return [name for name in names(own) if name not in names(module)]


def check(
    module: GraphModule,
    values: Arrays,
    wrt: Sequence[str] | None = None,
    *,
    tolerance: float = EXACT,
    orders: int = 1,
    jumps: bool = False,
    forward: bool = True,
    seed: str = "",
    count: int = 2,
) -> GraphModule:
    """Compares derivatives as this file says; gives the module of reverse mode.

    Args:
        module: at stage mir.
        values: of its inputs.
        wrt, tolerance, orders, jumps, forward: as of `Case`.
        seed: of cotangents and directions.
        count: of directions for each argument.
    """
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    names = list(floats_of(module)[0] if wrt is None else wrt)
    outputs = interpret(module, values)
    moving = floats_of(module)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientWarning)  # second derivatives of what is linear are zeros
        pulled, pushed = vjp(module, names), jvp(module, names) if forward else None
    seeds = {
        new: like(rng, outputs[name]) for new, name in zip(new_names(module, pulled, inputs=True), moving, strict=True)
    }
    own = interpret(pulled, values | seeds)
    gradients = dict(zip(names, list(own.values())[len(outputs) :], strict=True))
    cotangents = dict(zip(moving, seeds.values(), strict=True))
    for name, array in outputs.items():
        close = 1e-12 if tolerance <= EXACT else 1e-4
        np.testing.assert_allclose(own[name], array, close, close, err_msg=name)
    for name in names:
        assert gradients[name].shape == values[name].shape, name
        assert gradients[name].dtype == values[name].dtype, name
        for _ in range(0 if jumps else count):
            direction = like(rng, values[name])
            expected = difference(module, values, name, direction, cotangents)
            got = inner(gradients[name], direction)
            size = np.sqrt(inner(gradients[name], gradients[name]) * inner(direction, direction))
            assert abs(got - expected) <= tolerance * max(size, abs(expected)) + tolerance * 1e-3, (
                f"by {name}: {got} of reverse mode, {expected} of differences, in {module.to_text()}"
            )
    if pushed is not None:
        check_forward(module, pushed, values, gradients, cotangents, rng, tolerance)
    if orders > 1:
        options = {"tolerance": tolerance, "jumps": jumps, "forward": forward, "seed": seed}
        check_cotangents(pulled, len(outputs), values | seeds, [*names, *seeds], **options)
    return pulled


def check_cotangents(pulled: GraphModule, count: int, values: Arrays, names: Sequence[str], **options: Any) -> None:
    """Compares derivatives of what reverse mode gives beside the module's own outputs, which are `count`."""
    second = pulled.clone()
    second.set_outputs(dict(list(second.outputs.items())[count:]))
    second.erase_dead()
    check(second, values, names, count=1, **options)


def difference(
    module: GraphModule, values: Arrays, name: str, direction: np.ndarray, cotangents: Mapping[str, np.ndarray]
) -> float:
    """The derivative of <cotangents, outputs> along a direction of an input, by differences of the fourth order."""
    array = values[name]
    wide = np.finfo(array.dtype).eps < 1e-10
    step = (1e-3 if wide else 1e-2) / max(np.sqrt(inner(direction, direction) / max(direction.size, 1)), 1e-3)

    def at(times: float) -> float:
        moved = (array + np.asarray(direction * times * step, array.dtype)).astype(array.dtype)
        outputs = interpret(module, values | {name: moved})
        return sum(inner(cotangent, outputs[own]) for own, cotangent in cotangents.items())

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)


def check_forward(
    module: GraphModule,
    pushed: GraphModule,
    values: Arrays,
    gradients: Arrays,
    cotangents: Arrays,
    rng: np.random.Generator,
    tolerance: float,
) -> None:
    """<cotangents, J tangents> = <J^T cotangents, tangents>, to rounding."""
    names = new_names(module, pushed, inputs=True)
    directions = {own: like(rng, values[name]) for own, name in zip(names, gradients, strict=True)}
    outputs = list(interpret(pushed, values | directions).values())
    tangents = dict(zip(cotangents, outputs[len(outputs) - len(cotangents) :], strict=True))
    terms = [inner(cotangents[name], tangents[name]) for name in cotangents]
    others = [inner(g, t) for g, t in zip(gradients.values(), directions.values(), strict=True)]
    size = sum(
        np.sqrt(inner(a, a) * inner(b, b))
        for own, by in ((gradients, dict(zip(gradients, directions.values(), strict=True))), (cotangents, tangents))
        for a, b in zip(own.values(), by.values(), strict=True)
    )
    bound = 1e-10 if tolerance <= EXACT else tolerance
    assert abs(sum(terms) - sum(others)) <= bound * max(size, 1e-3), (
        f"forward mode gives {sum(terms)}, reverse mode {sum(others)}"
    )


def check_case(case: Case, seed: str) -> None:
    """Compares first derivatives of a case."""
    options = {"tolerance": case.tolerance, "jumps": case.jumps, "forward": case.forward}
    check(module_of(case), arrays_of(case, seed), case.wrt, seed=seed, **options)


def check_second(case: Case, seed: str) -> None:
    """Compares derivatives of the cotangents of a case, by its inputs and by the cotangents of its outputs."""
    module, values = module_of(case), arrays_of(case, seed)
    wrt = case.wrt or floats_of(module)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientWarning)
        pulled = vjp(module, wrt)
    outputs = interpret(module, values)
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    names = new_names(module, pulled, inputs=True)
    seeds = {new: like(rng, outputs[name]) for new, name in zip(names, floats_of(module)[1], strict=True)}
    options = {"tolerance": case.tolerance, "jumps": case.jumps, "forward": case.forward, "seed": seed}
    check_cotangents(pulled, len(outputs), values | seeds, [*wrt, *seeds], **options)
