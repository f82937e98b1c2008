# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values for the arguments of a module: random ones, and those at which code breaks."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rlx_mlir import formats, ir
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.errors import InputError, StageError
from rlx_mlir.mir.numerics import FLOAT8, by_parts, is_inexact, joined_parts
from rlx_mlir.mir.packed import packing
from rlx_mlir.semantics.function import INPUT, Argument

#: Sizes of dynamic dimensions; the last entry gives each symbol an odd size of its own.
SIZES: tuple[tuple[int, ...], ...] = ((1,), (2,), (3, 5, 7, 9))

#: Factor of large values: squares of them are finite in the element type, sums of many squares too.
_LARGE = {"float16": 16.0, "float8_e4m3fn": 16.0, "float8_e5m2": 16.0, "float32": 1e3, "bfloat16": 1e3, "float64": 1e3}


@dataclass(frozen=True)
class Sample:
    """Values of all arguments, and what is special about them."""

    name: str
    values: Mapping[str, np.ndarray]

    def __str__(self) -> str:
        return self.name


def samples(
    arguments: Sequence[Argument], *, seed: int = 0, nan: bool = False, maxima: Mapping[str, int] | None = None
) -> Iterator[Sample]:
    """Samples of the arguments of a module; parameters are the same in all of them that have the same sizes.

    Args:
        arguments: of the entry function.
        seed: of the random numbers.
        nan: add a sample with NaN and infinities among the inputs.
        maxima: sizes that symbols may have at most.
    """
    if seed < 0:
        raise InputError(f"'seed' is a number from 0 on, but got {seed}")
    for argument in arguments:
        if not isinstance(argument.type, ir.RankedTensorType):
            raise StageError(f"samples are made of tensors, but '{argument.name}' is of {argument.type}")
    symbols = symbols_of(arguments)
    every = SIZES if symbols else SIZES[-1:]
    weights: dict[tuple[object, ...], np.ndarray] = {}
    for sizes in every:
        limits = maxima or {}
        bound = {s: min(sizes[i % len(sizes)], limits.get(s, sizes[-1])) for i, s in enumerate(symbols)}
        special = sizes is SIZES[-1]
        kinds = [*_KINDS] if special else ["normal"]
        if nan and special:
            kinds.append("not finite")
        listed = ", ".join(f"{symbol} = {size}" for symbol, size in bound.items())
        for kind in kinds:
            make = _KINDS.get(kind, _not_finite)
            whole = 2 if kind == "normal" and special else 1
            values: dict[str, np.ndarray] = {}
            for argument in arguments:
                random = _random(seed, argument.name)
                if argument.kind == INPUT:
                    values[argument.name] = _value(argument, bound, make, random, whole)
                    continue
                key = (argument.name, *(bound[symbol] for symbol in _symbols(argument)))
                if key not in weights:
                    weights[key] = _value(argument, bound, _normal, random, whole)
                values[argument.name] = weights[key]
            yield Sample(f"{kind} values" + (f", {listed}" if listed else ""), values)


def symbols_of(arguments: Sequence[Argument]) -> list[str]:
    """What stands for the dynamic sizes of arguments, in order of appearance."""
    return list(dict.fromkeys(s for argument in arguments for s in _symbols(argument)))


def draw(arguments: Sequence[Argument], sizes: Mapping[str, int], *, seed: int = 0) -> dict[str, np.ndarray]:
    """A value of each argument by name, with the given sizes by symbol: normal random numbers, integers are zeros."""
    return {own.name: _value(own, sizes, _normal, _random(seed, own.name), 1) for own in arguments}


def _random(seed: int, name: str) -> np.random.Generator:
    """Random numbers of an argument, whatever other arguments there are."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def perturbed(sample: Sample, arguments: Sequence[Argument], seed: int = 1) -> Sample:
    """The sample with each floating-point number moved by one rounding error, up or down at random.

    Floats of 8 bits stay: what is computed from them is much more precise than they are.
    """
    rng = np.random.default_rng(seed)
    values = {}
    for argument in arguments:
        array = sample.values[argument.name]
        if packing(argument.type) is None and is_inexact(array.dtype) and array.dtype not in FLOAT8:
            array = moved(array, rng)
        values[argument.name] = array
    return Sample(sample.name, values)


def moved(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An array, each of whose floats is moved by one rounding error, up or down."""
    return by_parts(partial(_moved, rng=rng), array)


def _moved(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Floats, each moved by one rounding error."""
    wide = np.float64 if array.dtype == np.float64 else np.float32
    unit = rounding_unit(array.dtype)
    with np.errstate(all="ignore"):
        moved = array.astype(wide) * (1 + 2 * unit * rng.choice((-1.0, 1.0), array.shape))
        return np.asarray(moved).astype(array.dtype)


def rounding_unit(dtype: np.dtype) -> float:
    """Half of the distance of 1 to the next larger number of a floating-point type, or of complex numbers' parts."""
    units = {"float16": -11, "bfloat16": -8, "float8_e4m3fn": -4, "float8_e5m2": -3, "float32": -24, "float64": -53}
    return 2.0 ** (units["float32"] if dtype == np.complex64 else units[dtype.name])


def _symbols(argument: Argument) -> list[str]:
    """What stands for the sizes that are dynamic: a symbol, or a name for a dimension that has none."""
    return [_symbol(argument, axis) for axis in range(argument.type.rank) if argument.type.is_dynamic_dim(axis)]


def _symbol(argument: Argument, axis: int) -> str:
    named = argument.symbols[axis] if axis < len(argument.symbols) else ""
    return named if named not in ("", "?") else f"{argument.name}[{axis}]"


Make = Callable[[tuple[int, ...], str, np.random.Generator], np.ndarray]


def _value(
    argument: Argument, sizes: Mapping[str, int], make: Make, rng: np.random.Generator, below: int
) -> np.ndarray:
    """A value of an argument; integers are less than `below`."""
    type = argument.type
    shape = tuple(
        sizes[_symbol(argument, axis)] if type.is_dynamic_dim(axis) else type.get_dim_size(axis)
        for axis in range(type.rank)
    )
    if (packed := packing(type)) is not None:
        rows = shape[0] if packed.n is None else packed.n
        weight = (rng.standard_normal((rows, packed.k)) * packed.k**-0.5).astype(np.float32)
        encoded = formats.encode(packed.scheme, weight)
        if packed.layout == "planes":
            return formats.pack_planes(packed.scheme, encoded, packed.k)
        return formats.pack_panels(packed.scheme, encoded, packed.k) if packed.layout == "panels" else encoded
    dtype = numpy_dtype(type.element_type)
    if not is_inexact(dtype):
        # Positions, row numbers and ids: small enough for whatever they point into.
        return np.asarray(rng.integers(0, 2 if dtype == np.bool_ else below, shape)).astype(dtype)
    is_complex = dtype.kind == "c"
    values = joined_parts(*(make(shape, "float32", rng) for _ in "ri")) if is_complex else make(shape, dtype.name, rng)
    if argument.kind != INPUT:  # A weight keeps the size of what it is multiplied with; a vector is a scale, or a bias.
        values = values * max(shape) ** -0.5 if len(shape) > 1 else 1 + values / 4
    return np.asarray(values).astype(dtype)


def _normal(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal(shape)


def _zeros(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    return np.zeros(shape)


def _large(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal(shape) * _LARGE[dtype]


def _signed_zeros(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(np.array([0.0, -0.0, 1.0, -1.0, 0.5, 1e-5]), shape)


def _not_finite(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    values = rng.standard_normal(shape)
    return np.where(rng.random(shape) < 0.1, rng.choice(np.array([np.nan, np.inf, -np.inf]), shape), values)


_KINDS: dict[str, Make] = {
    "normal": _normal,
    "zero": _zeros,
    "large": _large,
    "signed zero and small": _signed_zeros,
}
