# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A random graph under construction: values that there are, sizes of symbols, and how arguments get their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from rlx_mlir import formats
from rlx_mlir.attributes import PythonValue
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.numerics import is_float, joined_parts

Item = TypeVar("Item")

Dim = int | str
Shape = tuple[Dim, ...]

FLOATS = ("f32", "bf16", "f16", "f64")
INTEGERS = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32")
#: Sizes at which code changes what it does: none, one, odd, and around the widths of vectors and panels.
SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65)
_SIZE_WEIGHTS = np.array([2, 5, 5, 6, 5, 4, 3, 3, 3, 4, 4, 2, 3, 2, 1, 1], np.float64)
#: Sizes of large cases: beyond what one thread, one panel or one vector takes, at any rank.
LARGE_SIZES = (97, 112, 127, 128, 129, 200, 256, 257, 300, 448, 513)
#: Lengths along which errors of sums add up.
LONG_SIZES = (3_000, 10_000, 50_000)
#: Elements that one tensor has at most, with each symbol at its largest size; and those of large cases.
MAX_ELEMENTS, MAX_LARGE_ELEMENTS = 40_000, 320_000
SCHEMES = tuple(name for name in formats.FORMATS if name in (
    "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k",
))  # fmt: skip


#: Bounds of at least so much are for the sake of few elements; large cases go beyond.
_ROOM = 17


class Skip(Exception):
    """The operation can't be made of what there is: another one is drawn."""


@dataclass(frozen=True)
class Recipe:
    """How the value of an argument is made.

    Attributes:
        kind: `input` or `param`.
        shape: sizes and symbols; [N, K] of a packed weight.
        dtype: element type's word.
        packed: scheme of a packed weight.
        domain: `normal`, `positive`, `index`, `position`, `choice`; `bias`, what is added to scores; `skewed`, one
            element of a row far above the others; or, of i8, `bytes`.
        scale: of normal numbers; the number of entries of an index; for a position (table's rows, tokens).
    """

    kind: str
    shape: Shape
    dtype: str
    packed: str | None = None
    domain: str = "normal"
    scale: Any = 1.0


@dataclass
class Draft:
    """The graph, and what is known of it.

    Attributes:
        rng: where every decision comes from.
        module: at stage hir or mir.
        assignments: sizes of the symbols, for each run.
        values: what operands are taken from.
        recipes: of the arguments, by name.
        floats: the element types that arguments have, most of them the first.
        edges: whether some elements of arguments are NaN, infinities, zeros and the like.
        constant: whether arguments have rows of equal elements.
        large: whether some sizes are up to several hundred.
    """

    rng: np.random.Generator
    module: GraphModule
    assignments: list[dict[str, int]]
    values: list[Value] = field(default_factory=list)
    recipes: dict[str, Recipe] = field(default_factory=dict)
    floats: tuple[str, ...] = ("f32",)
    edges: bool = False
    constant: bool = False
    large: bool = False

    # -- decisions ---------------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """True that often."""
        return bool(self.rng.random() < probability)

    def choose(self, options: Sequence[Item]) -> Item:
        """One of several; Skip where there is none."""
        if not options:
            raise Skip
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """From `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def size(self, least: int = 0, most: int = 65) -> int:
        """A static size, mostly one that changes what code does."""
        if self.large and most >= _ROOM and self.chance(0.25):
            return int(self.choose([size for size in LARGE_SIZES if size >= least]))
        fits = [i for i, size in enumerate(SIZES) if least <= size <= most]
        if not fits:
            return self.integer(least, most)
        weights = _SIZE_WEIGHTS[fits]
        return int(SIZES[fits[int(self.rng.choice(len(fits), p=weights / weights.sum()))]])

    def dim(self, least: int = 0, most: int = 65, dynamic: float = 0.4) -> Dim:
        """A size or a symbol, within bounds at every assignment."""
        if self.chance(dynamic):
            bound = LARGE_SIZES[-1] if self.large and most >= _ROOM else most
            fits = [s for s in self.symbols if least <= self.smallest(s) and self.largest(s) <= bound]
            if fits:
                return str(self.choose(fits))
        return self.size(least, most)

    def float_type(self) -> str:
        """An element type."""
        return self.floats[0] if self.chance(0.7) else str(self.choose(self.floats))

    @property
    def most_elements(self) -> int:
        """What one tensor has at most."""
        return MAX_LARGE_ELEMENTS if self.large else MAX_ELEMENTS

    # -- sizes -------------------------------------------------------------------------------------------------------

    @property
    def symbols(self) -> list[str]:
        """Names of the dynamic sizes."""
        return list(self.assignments[0])

    def sizes_of(self, dim: Dim) -> list[int]:
        """The size at each assignment; Skip where it isn't known."""
        if isinstance(dim, int):
            return [dim] * len(self.assignments)
        if dim == "?":
            raise Skip
        size = Size.parse(dim)
        return [size.evaluate(assignment) for assignment in self.assignments]

    def largest(self, dim: Dim) -> int:
        """The largest size that a dimension gets."""
        return max(self.sizes_of(dim))

    def smallest(self, dim: Dim) -> int:
        """The smallest size that a dimension gets."""
        return min(self.sizes_of(dim))

    def elements(self, shape: Sequence[Dim]) -> int:
        """The most elements that a tensor gets."""
        return int(np.prod([max(self.largest(dim), 1) for dim in shape], dtype=np.int64)) if shape else 1

    def shape(self, least_rank: int = 0, most_rank: int = 4, last: Dim | None = None) -> Shape:
        """A shape of few enough elements."""
        rank = self.integer(least_rank, most_rank)
        while True:
            most = 65 if rank < 3 else 17
            dims = [self.dim(most=most) for _ in range(rank)]
            if last is not None and dims:
                dims[-1] = last
            if self.elements(dims) <= self.most_elements:
                return tuple(dims)

    # -- values ------------------------------------------------------------------------------------------------------

    def argument(self, recipe: Recipe) -> Value:
        """A new argument."""
        if recipe.packed is None and self.elements(recipe.shape) > self.most_elements * 2:
            raise Skip
        name = f"{recipe.kind[0]}{len(self.recipes)}"
        if recipe.packed is not None:
            value = self.module.param(name, list(recipe.shape), packed=recipe.packed)
        elif recipe.kind == "param":
            value = self.module.param(name, list(recipe.shape), recipe.dtype)
        else:
            value = self.module.input(name, list(recipe.shape), recipe.dtype)
        self.recipes[name] = recipe
        if recipe.packed is None and recipe.domain == "normal":
            self.values.append(value)
        return value

    def new(
        self,
        shape: Sequence[Dim],
        dtype: str,
        domain: str = "normal",
        scale: Any = 1.0,
        param: float = 0.3,
    ) -> Value:
        """A new input, or with some probability a parameter; Skip where the shape can't be written down."""
        for dim in shape:
            if isinstance(dim, str) and dim not in self.symbols:
                raise Skip
        static = not any(isinstance(dim, str) for dim in shape)
        kind = "param" if self.chance(param if static else param * 0.3) else "input"
        return self.argument(Recipe(kind, tuple(shape), dtype, None, domain, scale))

    def pick(self, fits: Callable[[Value], bool]) -> Value | None:
        """A value that there is, mostly a recent one; None where none fits."""
        found = [value for value in self.values if fits(value)]
        if not found:
            return None
        recent = found[-4:] if self.chance(0.6) else found
        return recent[int(self.rng.integers(len(recent)))]

    def any(self, dtypes: Sequence[str], least_rank: int = 0, most_rank: int = 4) -> Value:
        """A value of one of the types, or a new argument."""
        if self.chance(0.8):
            found = self.pick(lambda v: word(v) in dtypes and least_rank <= v.ndim <= most_rank and self.small(v))
            if found is not None:
                return found
        dtype = self.float_type()
        return self.new(self.shape(least_rank, most_rank), dtype if dtype in dtypes else self.choose(dtypes))

    def floating(self, least_rank: int = 0, most_rank: int = 4) -> Value:
        """A value of floats."""
        return self.any(FLOATS, least_rank, most_rank)

    def like(self, shape: Sequence[Dim], dtype: str, *, reuse: float = 0.5, **options: PythonValue) -> Value:
        """A value of a shape and type: one that there is, or a new argument."""
        wanted = tuple(shape)
        if "?" not in wanted and self.chance(reuse):
            found = self.pick(lambda v: word(v) == dtype and v.shape == wanted)
            if found is not None:
                return found
        return self.new(wanted, dtype, **options)

    def small(self, value: Value) -> bool:
        """Whether a value is small enough to be worked with."""
        try:
            return self.elements(value.shape) <= self.most_elements
        except Skip:
            return True

    def vector(self, size: Dim, dtype: str) -> Value:
        """A vector of weights, such as a bias."""
        return self.like([size], dtype, reuse=0.4, param=0.8)

    def optional(self, make: Callable[[], Value], probability: float = 0.4) -> Value | None:
        """A value or none."""
        return make() if self.chance(probability) else None

    def columns(self, most: int = 512) -> int:
        """Inputs of a packed weight: a multiple of the length of some block."""
        return int(self.choose([size for size in (32, 64, 96, 256, 512) if size <= most]))

    def scheme(self, k: Dim) -> str:
        """A scheme that can hold rows of k elements; Skip where there is none."""
        if not isinstance(k, int) or k < 1:
            raise Skip
        return str(self.choose([name for name in SCHEMES if k % formats.get_format(name).block == 0]))

    def integers(self, k: Dim) -> str:
        """A scheme of integers and scales that can hold rows of k elements; Skip where none is drawn."""
        return str(self.choose([s for s in (self.scheme(k) for _ in range(4)) if s not in ("f32", "f16", "bf16")]))

    def packed(self, n: int, k: Dim, scheme: str | None = None) -> Value:
        """A packed weight [n, k]."""
        if not isinstance(k, int) or not isinstance(n, int) or n < 1:
            raise Skip
        chosen = scheme or self.scheme(k)
        return self.argument(Recipe("param", (n, k), "i8", chosen, "normal", k**-0.5))

    def dense_weight(self, k: Dim, n: Dim, dtype: str, transposed: bool) -> Value:
        """A dense weight of k inputs and n outputs."""
        scale = max(self.largest(k), 1) ** -0.5
        shape = (n, k) if transposed else (k, n)
        if self.chance(0.15):
            return self.like(shape, dtype, reuse=1.0)
        return self.new(shape, dtype, scale=scale, param=0.8)

    def weight(self, k: Dim, n: Dim, dtype: str, transposed: bool, dense: bool | None = None) -> Value:
        """A weight of k inputs and n outputs, dense or packed."""
        if dense is None:
            dense = self.chance(0.55)
        if (
            not dense
            and isinstance(k, int)
            and isinstance(n, int)
            and k > 0
            and n > 0
            and self.elements((n, k)) < 200_000
        ):
            return self.packed(n, k)
        return self.dense_weight(k, n, dtype, transposed)

    # -- operations --------------------------------------------------------------------------------------------------

    def emit(
        self,
        op: str,
        operands: Mapping[str, object],
        attributes: Mapping[str, object] | None = None,
        **options: PythonValue,
    ) -> tuple[Value, ...]:
        """Appends an operation; its results can be operands from now on."""
        results = self.module._emit(op, operands, attributes, **options)
        self.values += [value for value in results if value.packed is None]
        return results


def word(value: Value) -> str:
    """The element type of a value."""
    return next(name for name, dtype in DTYPES.items() if dtype == value.dtype)


#: What breaks code that was written for ordinary numbers.
_EDGES = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -1.5, 2.5)
#: And what does so only where nothing is added or multiplied: whether a sum of these overflows depends on its order.
_EXTREME = ("max", "-max", "tiny", "subnormal")


#: What rows of equal elements hold: sums of up to 8192 of one of these are exact in f32.
ROUND = (0.0, 1.0, -2.0, 0.5, 3.0, 1024.0, 60_000.0)


def make_value(
    recipe: Recipe,
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    edges: bool,
    extremes: bool = False,
    constant: bool = False,
) -> np.ndarray:
    """The array of an argument.

    Args:
        edges: some elements are NaN, infinities and the like.
        extremes: some of these are the largest numbers and subnormal ones.
        constant: some rows have equal elements.
    """
    shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in recipe.shape)
    dtype = DTYPES[recipe.dtype]
    if dtype.kind == "c":
        floats = replace(recipe, dtype="f32")
        return joined_parts(*(make_value(floats, sizes, rng, edges, extremes, constant) for _ in "ri"))
    if recipe.packed is not None:
        return formats.encode(recipe.packed, (rng.standard_normal(shape) * recipe.scale).astype(np.float32))
    if recipe.domain == "index":
        low, high = (-2, recipe.scale + 3) if edges else (0, max(recipe.scale, 1))
        array = rng.integers(low, high, shape).astype(np.float64)
        if dtype.kind == "u":
            array = np.clip(array, 0, np.iinfo(dtype).max)
        return _edged(array, dtype, rng, 0.1 if edges else 0.0, extremes)
    if recipe.domain == "position":
        rows, tokens = (sizes[dim] if isinstance(dim, str) else dim for dim in recipe.scale)
        return rng.integers(0, rows - tokens + 1, shape).astype(dtype)
    if recipe.dtype == "i1":
        truths: np.ndarray = rng.random(shape) < rng.choice([0.0, 0.5, 0.8, 1.0])
        return truths
    if recipe.domain == "bytes":
        return rng.integers(-128, 128, shape).astype(dtype)
    if recipe.domain == "choice":
        return rng.choice(np.array([0.0, 0.25, 0.5, 1.0]), shape).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        small = rng.integers(max(info.min, -9), 10, shape)
        ends = [number for number in (info.min, info.max, -1, 0, 127, -128, 255) if info.min <= number <= info.max]
        chosen = rng.random(shape) < (0.2 if edges else 0.0)
        return np.where(chosen, rng.choice(np.array(ends), shape), small).astype(dtype)
    if recipe.domain == "bias":
        return _bias(shape, dtype, rng)
    if recipe.domain == "skewed":
        return _skewed(shape, rng).astype(dtype)
    array = rng.standard_normal(shape) * recipe.scale
    if constant and recipe.domain == "normal" and array.ndim and rng.random() < 0.7:
        rows = rng.random((*shape[:-1], 1)) < 0.6
        array = np.where(rows, rng.choice(np.array(ROUND), rows.shape), array)
    if recipe.domain == "positive":
        array = np.abs(array) + 0.1
    return _edged(array, dtype, rng, rng.choice([0.02, 0.2]) if edges else 0.0, extremes)


def _bias(shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """What is added to scores: rows as models make them, where a number far below zero, or -inf, stands for a mask."""
    import ml_dtypes

    array = rng.standard_normal(shape)
    least = float(ml_dtypes.finfo(dtype).min)
    masked = rng.choice(np.array([-np.inf, least, least, -1e4, -9.0]))
    rows = rng.random((*shape[:-1], 1)) < 0.3  # all of them, the others in part
    return np.where(rows | (rng.random(shape) < 0.3), masked, array).astype(dtype)


def _skewed(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Rows of which one element is far above the others, which count together: exponentials of -15, 50,000 times."""
    array = np.full(shape, -15.0) + rng.uniform(0, 0.5, shape)
    if array.size:
        array[..., 0] = 0.0
    return array


def _edged(array: np.ndarray, dtype: np.dtype, rng: np.random.Generator, share: float, extremes: bool) -> np.ndarray:
    """Floats with a share of edge values."""
    if not share or not is_float(dtype):
        return array.astype(dtype)
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    special = {
        "max": float(info.max),
        "-max": -float(info.max),
        "tiny": float(info.tiny),
        "subnormal": float(info.smallest_subnormal),
    }
    options = np.array([*_EDGES, *(special[name] for name in _EXTREME if extremes)])
    # Not all kinds in one array: a NaN in each row would leave nothing to compare. Often one alone, such as -inf.
    options = rng.choice(options, 1 if rng.random() < 0.5 else int(rng.integers(2, 5)))
    return np.where(rng.random(array.shape) < share, rng.choice(options, array.shape), array).astype(dtype)
