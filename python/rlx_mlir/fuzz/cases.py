# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases of the graph fuzzer: a module, the values of its arguments, how it is compiled; and their files.

A case is two files: `NAME.mlir`, whose first lines say in comments how to replay it and how it is compiled, and
`NAME.npz` with the arrays, `run/argument` each.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError, reason_of
from rlx_mlir.files import Json
from rlx_mlir.fuzz import operations as _operations  # noqa: F401  (registers generators)
from rlx_mlir.fuzz.draft import FLOATS, LARGE_SIZES, LONG_SIZES, SIZES, Draft, Recipe, Skip, make_value, word
from rlx_mlir.fuzz.primitives import GENERATORS, SINGLE, SUMS
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.lowering.groups import BROADCASTS
from rlx_mlir.mir.numerics import FLOAT8
from rlx_mlir.mir.packed import packing
from rlx_mlir.rewriting.plugins import load_passes
from rlx_mlir.semantics.function import arguments

_MARK = "// fuzz: "


@dataclass
class Case:
    """A module with values.

    Attributes:
        module: at stage hir or mir.
        runs: for each run, the value of every input and parameter.
        options: of `compile`: activations, level, features; `apart`: whether to compile without fusion, too; `load`:
            files that register operations of the user's own.
        fuzzer: which one it is a case of: `graphs` or `derivatives`.
    """

    module: GraphModule
    runs: list[dict[str, np.ndarray]]
    options: dict[str, Json] = field(default_factory=dict)
    fuzzer: str = "graphs"

    def save(self, path: Path) -> None:
        """Writes `path` and the file with its arrays."""
        # Files of numpy's have no word for floats of 8 bits.
        arrays: dict[str, Any] = {
            f"{i}/{name}": array.view(np.uint8) if array.dtype in FLOAT8 else array
            for i, run in enumerate(self.runs)
            for name, array in run.items()
        }
        np.savez_compressed(path.with_suffix(".npz"), **arrays)
        settings = json.dumps({"fuzzer": self.fuzzer, "options": self.options, "runs": len(self.runs)})
        text = self.module.to_text(locations=False)
        path.write_text(f"// rlx fuzz replay {path.name}\n{_MARK}{settings}\n{text}")

    @classmethod
    def load(cls, path: Path) -> Case:
        """Reads what `save` wrote; InputError where a file isn't a case."""
        settings = read_settings(path)
        load_operations(settings["options"].get("load", ()))
        module = GraphModule.from_text(path)
        known = {argument.name: argument for argument in arguments(module.entry)}
        runs: list[dict[str, np.ndarray]] = [{} for _ in range(settings["runs"])]
        try:
            arrays: Any = np.load(path.with_suffix(".npz"))
        except OSError as error:
            raise InputError(f"{path.with_suffix('.npz')} with the values of {path.name}: {reason_of(error)}") from None
        with arrays:
            for key, array in arrays.items():
                number, _, name = key.partition("/")
                if name in known:
                    packed = packing(known[name].type) is not None
                    dtype = np.dtype(np.uint8) if packed else DTYPES[str(known[name].type.element_type)]
                    # bfloat16 is read as bytes without a type, floats of 8 bits as integers.
                    runs[int(number)][name] = array if array.dtype == dtype else array.view(dtype)
        return cls(module, runs, settings["options"], settings.get("fuzzer", "graphs"))


def load_operations(files: Iterable[str]) -> None:
    """Runs files that register operations, once a process."""
    for file in files:
        load_passes(file)


def read_settings(path: Path) -> dict[str, Json]:
    """How the case in a file is compiled; InputError where it doesn't say."""
    try:
        lines = path.read_text().splitlines()[:3]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read: {reason_of(error)}") from None
    for line in lines:
        if line.startswith(_MARK):
            found: dict[str, object] = json.loads(line.removeprefix(_MARK))
            return found
    raise InputError(f"{path} isn't a case of the graph fuzzer: it has no line '{_MARK}…'")


def symbol_sizes(rng: np.random.Generator, large: bool = False) -> list[dict[str, int]]:
    """Sizes of symbols for one to three runs; among them often 0 and 1, or, of large cases, several hundred."""
    names = ["a", "b", "c"][: int(rng.integers(0, 4))]
    small = [size for size in SIZES if size < 34]
    if large:
        small += LARGE_SIZES
    return [{name: int(rng.choice(small)) for name in names} for _ in range(int(rng.integers(1, 4)))]


def random_case(seed: int, index: int, ops: tuple[str, ...] = ()) -> tuple[Case, dict[str, int]]:
    """The case of a number, and how often each operation was drawn or skipped.

    Args:
        ops: operations to draw from; all of the stage by default.
    """
    rng = np.random.default_rng([seed, index])
    stage = "hir" if rng.random() < 0.7 else "mir"
    policy = "direct" if rng.random() < 0.6 else "fusable"
    module = GraphModule.mir("fuzz") if stage == "mir" else GraphModule.hir("fuzz", policy=policy)
    floats = tuple(FLOATS[int(i)] for i in rng.permutation(4)[: int(rng.integers(1, 3))])
    floats = ("f32",) if rng.random() < 0.5 else floats
    large = bool(rng.random() < 0.12)
    draft = Draft(
        rng,
        module,
        symbol_sizes(rng, large),
        floats=floats,
        edges=bool(rng.random() < 0.25),
        constant=bool(rng.random() < 0.15),
        large=large,
    )
    names = [n for n in sorted(ops or GENERATORS) if stage == "hir" or n.startswith("mir.")] or sorted(GENERATORS)
    # Some blocks or products in each graph, beside what is drawn evenly: there are many more unary operations.
    special = [n for n in names if n in SUMS]
    count = int(rng.integers(1, 4 if large else 10))
    skipped = 0
    if not ops and rng.random() < 0.03:
        with contextlib.suppress(Skip):
            _long_rows(draft)
        count = len(module)
    for _ in range(6 * count):
        if len(module) >= count:
            break
        name = draft.choose(special if special and draft.chance(0.4) else names)
        try:
            GENERATORS[name](draft)
        except Skip:
            skipped += 1
    if draft.edges and any(node.op in SUMS for node in module):
        draft.edges = bool(rng.random() < 0.5)  # NaN hides much in sums
    _set_outputs(draft)
    extremes = all(node.op in SINGLE for node in module)
    runs = []
    for number, sizes in enumerate(draft.assignments):
        values = np.random.default_rng([seed, index, number])
        runs.append(
            {n: make_value(r, sizes, values, draft.edges, extremes, draft.constant) for n, r in draft.recipes.items()}
        )
    options = {
        "activations": "int8" if rng.random() < 0.2 else "exact",
        "level": int(rng.choice([2, 2, 2, 1, 0, 3])),
        "features": str(rng.choice(["", "", "", "", "+sse2"])),
        "maxima": {s: max(1, *(sizes[s] for sizes in draft.assignments)) for s in module.dynamic_symbols},
    }
    options["apart"] = options["activations"] == "exact" and bool(rng.random() < 0.4)
    return Case(module, runs, options), {"skipped": skipped}


def _long_rows(draft: Draft) -> None:
    """Sums along thousands of elements, static or not: errors that grow with their number show."""
    length = int(draft.choose(LONG_SIZES))
    draft.assignments = [{"l": length}]
    draft.edges = draft.constant = False
    dim = "l" if draft.chance(0.6) else length
    shape = [draft.size(1, 2), dim] if draft.chance(0.7) else [dim, draft.size(1, 3)]
    dtype = draft.float_type()
    x = draft.new(shape, dtype, domain=draft.choose(["normal", "positive", "skewed"]), param=0.0)
    axis = shape.index(dim)
    name = draft.choose(["softmax", "sum", "mean", "rms_norm", "layer_norm"])
    if name == "softmax":
        draft.values.append(draft.module.softmax(x, axis))
    elif name in ("sum", "mean"):
        draft.values.append(getattr(draft.module, name)(x, axis))
    else:
        weights = [draft.new([dim], word(x), param=0.0) for _ in range(2)]
        draft.values.append(getattr(draft.module, name)(x, *weights, axis=axis))


def case_of(module: GraphModule, seed: int = 0) -> Case:
    """A module with random values, two sizes for each symbol; integers are 0 or 1: they may be positions or indices."""
    rng = np.random.default_rng(seed)
    runs = []
    for size in (5, 3):
        run: dict[str, np.ndarray] = {}
        for argument in arguments(module.entry):
            packed = packing(argument.type)
            shape: list[int | str] = [s or argument.type.get_dim_size(i) for i, s in enumerate(argument.symbols)]
            if packed is not None:
                shape = [packed.n or size, packed.k]
            word = str(argument.type.element_type)
            recipe = Recipe(argument.kind, tuple(shape), word, None if packed is None else packed.scheme)
            if packed is None and DTYPES[word].kind in "iu":
                run[argument.name] = rng.integers(0, 2, [size if isinstance(s, str) else s for s in shape]).astype(
                    DTYPES[word]
                )
            else:
                run[argument.name] = make_value(
                    recipe, {s: size for s in shape if isinstance(s, str)}, rng, edges=False
                )
        runs.append(run)
    return Case(module, runs)


def _set_outputs(draft: Draft) -> None:
    """Returns what nothing reads, and some of all other values: also arguments, and values twice."""
    module = draft.module
    made = [value for node in module for value in node.results if value.packed is None]
    unread = [value for value in made if not module.use_count(value)]
    others = [value for value in draft.values if draft.chance(0.12)]
    chosen = [value for value in unread if draft.chance(0.9)] + others
    if not chosen:
        chosen = made[-1:] or draft.values[:1]
    if draft.chance(0.1) and chosen:
        chosen.append(draft.choose(chosen))
    named = {f"o{i}": value for i, value in enumerate(chosen)}
    module.set_outputs(named, tied=_ties(draft, named))


def _ties(draft: Draft, outputs: Mapping[str, Value]) -> dict[str, Value]:
    """Ties of outputs: of new caches to inputs, and now and then of element-wise results to arguments of their type."""
    tied: dict[str, Value] = {}
    inputs = {value: name for name, value in ((r, draft.module.value(r)) for r in draft.recipes) if name[0] == "i"}
    for node in draft.module:
        pairs = []
        if node.op == "mir.cache_update":
            pairs = [(node.operands[0], node.results[0])]
        elif len(node.results) == 3 and node.op.startswith("hir."):
            caches = [v for v in node.operands if v.ndim == 3 and v.shape == node.results[1].shape]
            pairs = list(zip(caches[-2:], node.results[1:], strict=False))
        for cache, result in pairs:
            name = next((n for n, v in outputs.items() if v == result), None)
            is_alone = cache not in tied.values() and draft.module.use_count(cache) == 1
            if name and cache in inputs and is_alone and draft.chance(0.5):
                tied[name] = cache
    made = {value for node in draft.module if node.op in BROADCASTS for value in node.results}
    for name, value in outputs.items():
        free = [draft.module.value(own) for own in draft.recipes]
        fits = [own for own in free if _may_take(draft.module, value, own) and own not in tied.values()]
        if name not in tied and value in made and fits and draft.chance(0.4):
            tied[name] = draft.choose(fits)
    return tied


def _may_take(module: GraphModule, output: Value, argument: Value) -> bool:
    """Whether an output may be tied to an argument, and often can: most are refused that have several readers."""
    is_alike = output.shape == argument.shape and output.packed is None and output.dtype == argument.dtype
    return is_alike and argument.packed is None and module.use_count(argument) <= 2


__all__ = ["Case", "case_of", "load_operations", "random_case", "read_settings", "symbol_sizes"]
