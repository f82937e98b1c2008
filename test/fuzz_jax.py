# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random functions of JAX, and gradients of them, are read as StableHLO, compiled, and compared with JAX.

    python test/fuzz_jax.py --seed 1 --count 200
    python test/fuzz_jax.py --seed 1 --first 17 --count 1 --show

A case is a number: the same seed and number give the same function. The status is 1 where one differs, or isn't read.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import rlx_mlir as rlx
from rlx_mlir.errors import RlxError

SIZES = (1, 2, 3, 5, 8, 17)
#: Functions of one array that keep its shape, and whose results stay moderate.
UNARY: tuple[Callable[[Any], Any], ...] = (
    jnp.sin, jnp.tanh, jax.nn.sigmoid, jax.nn.silu, jax.nn.gelu, jax.nn.relu, jax.nn.softplus, jnp.abs, jnp.negative,
    lambda x: jnp.exp(-jnp.abs(x)), lambda x: jnp.log1p(jnp.abs(x)), lambda x: jnp.sqrt(jnp.abs(x) + 1.0),
    lambda x: lax.rsqrt(x * x + 0.5), lambda x: jnp.clip(x, -1.0, 2.0), lambda x: jnp.where(x > 0.3, x, 0.1 * x),
    lambda x: jax.nn.softmax(x, -1), lambda x: jax.nn.log_softmax(x, 0), lambda x: jnp.cumsum(x, -1) * 0.3,
    lambda x: jnp.sort(x, -1), lambda x: jnp.flip(x, 0), lambda x: jnp.roll(x, 1, -1),
    lambda x: x - x.mean(-1, keepdims=True), lambda x: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-3),
    lambda x: jnp.expm1(0.3 * x), lambda x: jnp.arctan2(x, 1.0 + x * x), lambda x: jax.lax.stop_gradient(x) * x,
)  # fmt: skip
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, lambda a, b: a / (1.0 + jnp.abs(b)),
    jnp.logaddexp, lambda a, b: jnp.where(a > b, a, b * 0.5),
)  # fmt: skip


class Draft:
    """Draws steps of a function, which are functions of the list of values so far."""

    def __init__(self, seed: Sequence[int]) -> None:
        self._rng = np.random.default_rng(seed)
        self.steps: list[Callable[[list[Any]], Any]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.inputs: list[np.ndarray] = []

    def choose(self, items: Sequence[Any]) -> Any:
        return items[int(self._rng.integers(len(items)))]

    def input(self) -> None:
        """An array of one to three dimensions."""
        shape = tuple(int(self.choose(SIZES)) for _ in range(int(self._rng.integers(1, 4))))
        self.inputs.append(self._rng.standard_normal(shape).astype(np.float32))
        self.shapes.append(shape)

    def step(self) -> None:
        """One more value."""
        at = int(self._rng.integers(len(self.shapes)))
        shape = self.shapes[at]
        make = self.choose(
            (self._unary, self._unary, self._binary, self._moved, self._reduced, self._product, self._placed)
        )
        found = make(at, shape)
        if found is None:
            return
        function, result = found
        self.steps.append(function)
        self.shapes.append(result)

    def _unary(self, at: int, shape: tuple[int, ...]) -> Any:
        function = self.choose(UNARY)
        return lambda values: function(values[at]), shape

    def _binary(self, at: int, shape: tuple[int, ...]) -> Any:
        others = [i for i, other in enumerate(self.shapes) if _fits(shape, other)]
        other, function = self.choose(others), self.choose(BINARY)
        return lambda values: function(values[at], values[other]), np.broadcast_shapes(shape, self.shapes[other])

    def _moved(self, at: int, shape: tuple[int, ...]) -> Any:
        axis, kind = int(self._rng.integers(len(shape))), self.choose(("turn", "flatten", "cut", "pad", "join"))
        if kind == "turn":
            order = tuple(int(own) for own in self._rng.permutation(len(shape)))
            return lambda values: values[at].transpose(order), tuple(shape[own] for own in order)
        if kind == "flatten":
            return lambda values: values[at].reshape(-1), (int(np.prod(shape)),)
        if kind == "pad":
            pads = tuple((int(own), int(more)) for own, more in self._rng.integers(0, 3, (len(shape), 2)))
            padded = tuple(size + a + b for size, (a, b) in zip(shape, pads, strict=True))
            return lambda values: jnp.pad(values[at], pads), padded
        if kind == "join":
            return lambda values: jnp.concatenate([values[at]] * 2, axis), _changed(shape, axis, 2 * shape[axis])
        start = int(self._rng.integers(shape[axis]))
        key = tuple(slice(start, None) if own == axis else slice(None) for own in range(len(shape)))
        return lambda values: values[at][key], _changed(shape, axis, shape[axis] - start)

    def _reduced(self, at: int, shape: tuple[int, ...]) -> Any:
        if len(shape) < 2:
            return None
        axis, kind = int(self._rng.integers(len(shape))), self.choose((jnp.sum, jnp.mean, jnp.max, jnp.min, jnp.var))
        return lambda values: kind(values[at], axis), (*shape[:axis], *shape[axis + 1 :])

    def _product(self, at: int, shape: tuple[int, ...]) -> Any:
        if len(shape) < 2:
            return None
        scale = np.float32(shape[-1] ** -0.5)
        return lambda values: values[at] @ jnp.swapaxes(values[at], -1, -2) * scale, (*shape[:-1], shape[-2])

    def _placed(self, at: int, shape: tuple[int, ...]) -> Any:
        places = self._rng.integers(0, shape[0], int(self._rng.integers(1, 4))).astype(np.int32)
        number = np.float32(self._rng.standard_normal())
        kind = self.choose(("take", "add", "scan", "largest"))
        if kind == "take":
            return lambda values: values[at][places], (len(places), *shape[1:])
        if kind == "add":
            return lambda values: values[at].at[places].add(number), shape
        if kind == "largest":
            return lambda values: lax.top_k(values[at], 1)[0], (*shape[:-1], 1)
        return lambda values: lax.scan(lambda c, row: (0.5 * c + row, c), values[at][0], values[at])[1], shape

    def function(self) -> Callable[..., Any]:
        """The function of the inputs that was drawn."""
        steps = list(self.steps)

        def run(*inputs: Any) -> list[Any]:
            values = list(inputs)
            for step in steps:
                values.append(step(values))
            return values[len(inputs) :] or values

        return run


def _changed(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    """A shape with another size along one dimension."""
    return (*shape[:axis], size, *shape[axis + 1 :])


def _fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False))


def case(seed: int, number: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """A function and its arguments."""
    draft = Draft([seed, number])
    for _ in range(draft.choose((1, 2))):
        draft.input()
    for _ in range(draft.choose((2, 4, 8))):
        if max(int(np.prod(shape)) for shape in draft.shapes) < 20000:
            draft.step()
    function = draft.function()
    if draft.choose((True, False)):

        def total(*inputs: Any) -> Any:
            return sum(jnp.sum(jnp.sin(value)) for value in function(*inputs))

        return jax.grad(total, tuple(range(len(draft.inputs)))), draft.inputs
    return function, draft.inputs


def moved(number: int, x: np.ndarray) -> np.ndarray:
    """An array, each of whose elements is moved by about ten rounding errors."""
    signs = np.random.default_rng(number).choice(np.array([-1, 1], np.float32), x.shape)
    return x * (1 + np.float32(1e-6) * signs)


def problem(seed: int, number: int) -> str:
    """What is wrong with a case; '' where nothing is."""
    function, inputs = case(seed, number)
    wanted = jax.tree_util.tree_leaves(jax.jit(function)(*inputs))
    other = jax.tree_util.tree_leaves(jax.jit(function)(*map(moved, range(len(inputs)), inputs)))
    try:
        found = jax.tree_util.tree_leaves(rlx.from_jax(function, *inputs).compile(threads=1)(*inputs))
    except RlxError as error:
        return f"{type(error).__name__}: {error}"
    for place, (own, want, near) in enumerate(zip(found, wanted, other, strict=True)):
        a, b, c = (np.asarray(each).astype(np.float64) for each in (own, want, near))
        if a.shape != b.shape or own.dtype != want.dtype:
            return f"result {place} is {own.dtype} {a.shape}, not {want.dtype} {b.shape}"
        size = np.abs(b).max(initial=0.0)
        gap = np.abs(a - b).max(initial=0.0)
        if not gap <= 2e-5 * (1 + size) + 50 * np.abs(b - c).max(initial=0.0):
            return f"result {place} of {b.shape} differs by {gap:.3g}, of numbers up to {size:.3g}"
    return ""


def main() -> int:
    """Runs cases, and prints those that differ."""
    parser = argparse.ArgumentParser(description="Compares random functions of JAX with JAX.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long; 0 for never")
    parser.add_argument("--show", action="store_true", help="print each case's StableHLO")
    given = parser.parse_args()
    begun, wrong, ran = time.monotonic(), 0, 0
    for number in range(given.first, given.first + given.count):
        if given.minutes and time.monotonic() - begun > given.minutes * 60:
            break
        if given.show:
            function, inputs = case(given.seed, number)
            print(jax.jit(function).lower(*inputs).as_text())
        ran += 1
        if text := problem(given.seed, number):
            wrong += 1
            print(f"--seed {given.seed} --first {number} --count 1: {text}", flush=True)
    print(f"{ran} functions, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
