# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outputs that are tied to arguments: which ties are refused, and that results are right where memory is donated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain, combinations

import numpy as np
import pytest
import seeds

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.hir.values import Value
from rlx_mlir.runtime.executable import Executable

#: Rows and columns of the random graphs: less than a vector, vectors with tails, and enough for several threads.
SIZES = ((5, 3), (19, 37), (6, 6), (300, 70))
REFUSED = "can't take the memory of '[a-z0-9]+', to which it is tied: "


@dataclass
class Drawn:
    """A random graph with ties.

    Attributes:
        arrays: what its arguments get.
        values: of the graph, each with what numpy gives for it.
        expected: the results.
        tied: by output, the argument.
    """

    module: GraphModule
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    values: list[tuple[Value, np.ndarray]] = field(default_factory=list)
    expected: dict[str, np.ndarray] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def step(drawn: Drawn, rng: np.random.Generator, square: tuple[Value, np.ndarray], fixed: bool) -> None:
    """Adds one operation, or a few, on values that are there."""
    m = drawn.module
    (a, x), (b, y) = (drawn.values[i] for i in rng.integers(0, len(drawn.values), 2))
    if x.shape != y.shape:
        y, b = x, a
    kind = rng.integers(0, 12)
    if kind == 0:
        made = a + b, x + y
    elif kind == 1:
        made = a - b, x - y
    elif kind == 2:
        made = a * b, x * y
    elif kind == 3:
        made = m.maximum(a, b), np.maximum(x, y)
    elif kind == 4:
        made = m.tanh(a), np.tanh(x)
    elif kind == 5:
        made = m.where(m.lt(a, b), a, b * 0.5), np.where(x < y, x, y * np.float32(0.5))
    elif kind == 6:
        made = a - m.mean(a, -1, keep_dims=True), x - x.mean(-1, keepdims=True)
    elif kind == 7:
        made = m.softmax(a), softmax(x)
    elif kind == 8 and x.shape[-1] == square[1].shape[0]:
        made = a @ square[0] * 0.1, x @ square[1] * np.float32(0.1)
    elif kind == 9 and fixed:
        made = m.reshape(a, list(x.shape[::-1])), x.reshape(x.shape[::-1])
    elif kind == 10 and fixed and x.shape[0] > 1:
        rolled = m.concat([m.narrow(a, 0, 1, x.shape[0] - 1), m.narrow(a, 0, 0, 1)], axis=0)
        made = rolled, np.concatenate([x[1:], x[:1]])
    elif kind == 11 and fixed:
        made = m.transpose(a), x.T
    else:
        made = m.tanh(a * b), np.tanh(x * y)
    drawn.values.append((made[0], np.asarray(made[1], np.float32)))


def draw(seed: int) -> Drawn:
    """A random graph of element-wise operations, reductions, products and views, some of whose outputs are tied."""
    rng = np.random.default_rng([seed, seeds.seed()])
    rows, columns = SIZES[rng.integers(0, len(SIZES))]
    fixed = bool(rng.integers(0, 3))
    shape = [rows if fixed else "s", columns]
    drawn = Drawn(GraphModule.hir("ties"))
    m = drawn.module

    def argument(name: str, shape: list[int | str], sizes: tuple[int, int]) -> tuple[Value, np.ndarray]:
        drawn.arrays[name] = rng.uniform(-1, 1, sizes).astype(np.float32)
        return (m.param if rng.integers(0, 2) and fixed else m.input)(name, shape), drawn.arrays[name]

    square = argument("q", [columns, columns], (columns, columns))
    given = [argument(f"a{i}", shape, (rows, columns)) for i in range(rng.integers(2, 5))]
    drawn.values += given
    for _ in range(rng.integers(2, 9)):
        step(drawn, rng, square, fixed)
    chosen = rng.permutation(len(drawn.values))[: rng.integers(1, 4)]
    outputs = {f"o{i}": drawn.values[at] for i, at in enumerate(chosen)}
    free = [name for name in drawn.arrays if name != "q" or fixed]
    for name, (_, array) in outputs.items():
        fits = [own for own in free if drawn.arrays[own].shape == array.shape]
        if fits and rng.integers(0, 4):
            drawn.tied[name] = fits[rng.integers(0, len(fits))]
            free.remove(drawn.tied[name])
    m.set_outputs({name: value for name, (value, _) in outputs.items()}, tied=drawn.tied)
    drawn.expected = {name: array for name, (_, array) in outputs.items()}
    return drawn


def check(drawn: Drawn, executable: Executable, donate: tuple[str, ...], name: str) -> None:
    """Runs it, compares with numpy, and looks at which memory has what."""
    copies = {own: array.copy() for own, array in drawn.arrays.items()}
    executable.set_params({spec.name: copies[spec.name] for spec in executable.params})
    results = executable.run({spec.name: copies[spec.name] for spec in executable.inputs}, donate=donate)
    for output, array in drawn.expected.items():
        np.testing.assert_allclose(results[output], array, rtol=1e-4, atol=1e-5, err_msg=f"{name}: {output}")
        assert (results[output] is copies.get(drawn.tied.get(output, ""))) == (drawn.tied.get(output) in donate)
    for own, array in drawn.arrays.items():
        if own not in donate:
            np.testing.assert_array_equal(copies[own], array, err_msg=f"{name}: {own} was written")


def subsets(names: list[str]) -> list[tuple[str, ...]]:
    return list(chain.from_iterable(combinations(names, count) for count in range(len(names) + 1)))


@pytest.mark.parametrize("disabled", [(), ("all",)], ids=["templates", "generic"])
def test_random_ties(disabled: tuple[str, ...]) -> None:
    found: Counter[str] = Counter()
    for seed in range(40):
        drawn = draw(seed)
        try:
            options = CompileOptions(disable_templates=disabled)
            artifact = build_artifact(drawn.module, options)
        except UnsupportedError as error:
            assert "to which it is tied: " in str(error), f"seed {seed}: {error}"
            found["refused"] += 1
            continue
        found["accepted"] += bool(drawn.tied)
        for threads in (1, 2, 3):
            executable = Executable(artifact, threads=threads)
            for donate in subsets(list(drawn.tied.values())):
                check(drawn, executable, donate, f"seed {seed}, {threads} threads, donate {donate}")
    assert found["refused"] >= 2
    assert found["accepted"] >= 10
