# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches beside a loop over their entries: what `vmap` gives is what each entry alone gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.errors import BuildError
from rlx_mlir.fuzz.draft import Draft, Recipe, Skip, make_value
from rlx_mlir.fuzz.operations import GENERATORS
from rlx_mlir.mir.packed import PackedWeight

Arrays = dict[str, np.ndarray]

#: Relative distances that other orders of a sum explain, by the narrowest type that there is.
_CLOSE = {"float64": 1e-11, "float32": 2e-5, "complex64": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def stacked(values: Iterable[Arrays], batched: Iterable[str]) -> Arrays:
    """The arguments of a batch, from those of its entries: what isn't batched is that of the first."""
    entries = list(values)
    return {name: np.stack([e[name] for e in entries]) if name in batched else v for name, v in entries[0].items()}


def looped(module: GraphModule, given: Arrays, batched: Iterable[str], size: int) -> list[Arrays]:
    """What each entry gives."""
    return [
        rlx.interpret(module, {name: v[entry] if name in batched else v for name, v in given.items()})
        for entry in range(size)
    ]


def difference(got: Mapping[str, np.ndarray], wanted: list[Arrays], *, exact: bool) -> str:
    """What is wrong with the results of a batch, beside those of its entries; '' where nothing is."""
    narrowest = [_CLOSE[array.dtype.name] for array in wanted[0].values() if array.dtype.name in _CLOSE]
    for name, result in got.items():
        one = np.stack([entry[name] for entry in wanted])
        if result.shape != one.shape or result.dtype != one.dtype:
            return f"{name} is {result.dtype}{list(result.shape)}, not {one.dtype}{list(one.shape)}"
        if exact or one.dtype.name not in _CLOSE:
            words = np.dtype(f"V{one.itemsize}")
            same = (np.ascontiguousarray(result).view(words) == np.ascontiguousarray(one).view(words)).reshape(
                one.shape
            )
            same |= (result != result) & (one != one)
            if not np.all(same):
                return f"{name} has other bits in {np.sum(~same)} of {one.size} places"
            continue
        wide = np.result_type(one.dtype, np.float32) if one.dtype.kind != "V" else np.float32
        result, one = result.astype(wide), one.astype(wide)
        bound = max(narrowest) * max(float(np.max(np.abs(np.where(np.isfinite(one), one, 0)), initial=0)), 1.0)
        with np.errstate(invalid="ignore"):
            near = (np.abs(result - one) <= bound) | (result == one) | ((result != result) & (one != one))
        if not np.all(near):
            return f"{name} differs by {np.nanmax(np.abs(result - one))} of at most {bound}"
    return ""


def drawn(name: str, number: int) -> tuple[GraphModule, dict[str, Recipe], dict[str, int]] | None:
    """A module of one operation of the fuzzer's, and what its arguments are; None where it couldn't be drawn."""
    rng = np.random.default_rng([number, *map(ord, name)])
    module = GraphModule.mir("drawn")
    floats = ("f32",) if rng.random() < 0.7 else ("f16", "f64", "bf16")
    sizes = {"a": int(rng.choice([1, 2, 3, 5])), "b": int(rng.choice([1, 2, 4]))}
    draft = Draft(rng, module, [sizes], floats=floats)
    try:
        GENERATORS[name](draft)
    except (Skip, BuildError):
        return None
    made = [value for node in module for value in node.results if value.packed is None and not module.use_count(value)]
    if not made or not any(recipe.packed is None for recipe in draft.recipes.values()):
        return None
    module.set_outputs({f"o{number}": value for number, value in enumerate(made)})
    return module, draft.recipes, sizes


def value_of(recipe: Recipe, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray | PackedWeight:
    """An array for an argument."""
    return make_value(recipe, sizes, rng, edges=False)
