# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of loops over sequences under the names of their uses, their gradients, and functions with their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_backward import differences, module, random, values

from rlx_mlir import GraphModule, compile, interpret
from rlx_mlir.errors import BuildError
from rlx_mlir.hir import Value
from rlx_mlir.hir.scans import last_of_segments


def step(m: Any, carried: Value, *entries: Value) -> Value:
    """tanh(0.5 c + x + ...)"""
    total = m.mul(carried, 0.5)
    for entry in entries:
        total = m.add(total, entry)
    return m.tanh(total)


def in_numpy(init: np.ndarray, *xs: np.ndarray, length: int) -> list[np.ndarray]:
    """The carried value before the first step and after each."""
    found = [init]
    for t in range(length):
        found.append(np.tanh(0.5 * found[-1] + sum((x[t] for x in xs), np.zeros_like(init))))
    return found


def both(build: Callable[..., Any], arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What is built gives, interpreted and compiled alike."""
    m = module(build, arrays)
    found = list(interpret(m, arrays).values())
    for own, compiled in zip(found, compile(m).run(arrays).values(), strict=True):
        np.testing.assert_allclose(compiled, own, rtol=1e-12)
    return found


def test_uses():
    init, x, shift = random(3), random(5, 3, seed=1), random(3, seed=2)
    *_, last = in_numpy(init, x, length=5)
    (found,) = both(lambda m, c, x: m.scan_with_xs(lambda c, x: step(m, c, x), c, x), {"c": init, "x": x})
    np.testing.assert_allclose(found, last)

    def shifted(m: Any, c: Value, x: Value, b: Value) -> Value:
        return m.scan_with_bcasts_and_xs(lambda c, b, x: step(m, c, m.mul(b, x)), c, [b], [x])

    (found,) = both(shifted, {"c": init, "x": x, "b": shift})
    np.testing.assert_allclose(found, in_numpy(init, shift * x, length=5)[-1])
    (found,) = both(lambda m, c: m.scan_trajectory(lambda c: step(m, c), c, 4), {"c": init})
    np.testing.assert_allclose(found, np.stack(in_numpy(init, length=4)[1:]))
    m = module(lambda m, c: m.scan_checkpointed(lambda c: step(m, c), c, 6, 2), {"c": init})
    assert "length 6 checkpoints 2" in m.to_text()
    np.testing.assert_allclose(compile(m).run({"c": init})["y0"], in_numpy(init, length=6)[-1])


def test_several_carried_values():
    a, b, x = random(2), random(2, seed=1), random(3, 2, seed=2)

    def build(m: Any, a: Value, b: Value, x: Value) -> tuple[Value, ...]:
        first, second = m.scan_with_xs(lambda a, b, x: (b, m.add(a, x)), (a, b), x)
        return first, second

    first, second = both(build, {"a": a, "b": b, "x": x})
    for t in range(3):
        a, b = b, a + x[t]
    np.testing.assert_allclose(first, a)
    np.testing.assert_allclose(second, b)


@pytest.mark.parametrize("length", [0, 1, 5])
@pytest.mark.parametrize("of_trajectory", [False, True])
def test_gradients(length, of_trajectory):
    init, x = random(2), random(length, 2, seed=1)
    upstream = random(length, 2, seed=2) if of_trajectory else random(2, seed=2)

    def forward(m: Any, init: Value, x: Value) -> Value:
        last, all_of = m.scan(lambda c, x: (step(m, c, x),) * 2, init, x)
        return all_of if of_trajectory else last

    def vjp(m: Any) -> Callable[..., Any]:
        def run(c: Value, x: Value, dy: Value) -> tuple[Value, Value]:
            y = step(m, c, x)
            inner = m.mul(dy, m.sub(1.0, m.mul(y, y)))
            return m.mul(inner, 0.5), inner

        return run

    def backward(m: Any, init: Value, x: Value, trajectory: Value, upstream: Value) -> tuple[Value, Value]:
        options = {"of_trajectory": of_trajectory}
        return (
            m.scan_backward(vjp(m), init, trajectory, upstream, x, **options),
            m.scan_backward_xs(vjp(m), init, trajectory, upstream, x, index=0, **options),
        )

    carried = in_numpy(init, x, length=length)[1:]
    given = {"init": init, "x": x, "trajectory": np.array(carried).reshape(length, 2), "upstream": upstream}
    by_init, by_x = both(backward, given)
    forward_of = {"init": init, "x": x}
    np.testing.assert_allclose(by_init, differences(forward, forward_of, "init", upstream), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(by_x, differences(forward, forward_of, "x", upstream), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("length", "kept"), [(7, 3), (6, 2), (5, 1), (4, 4), (1, 1)])
@pytest.mark.parametrize("of_trajectory", [False, True])
@pytest.mark.quick(4)
def test_gradients_from_checkpoints(length, kept, of_trajectory):
    """The same bits as from the whole trajectory."""
    init, x = random(2), random(length, 2, seed=1)
    upstream = random(length, 2, seed=2) if of_trajectory else random(2, seed=2)
    after = np.stack(in_numpy(init, x, length=length)[1:])
    ends = last_of_segments(length, kept)
    assert ends[-1] == length - 1
    assert len(set(ends)) == kept

    def backward(m: Any, init: Value, x: Value, all_of: Value, some: Value, upstream: Value) -> tuple[Value, ...]:
        def vjp(c: Value, x: Value, dy: Value) -> tuple[Value, Value]:
            y = step(m, c, x)
            inner = m.mul(dy, m.sub(1.0, m.mul(y, y)))
            return m.mul(inner, 0.5), inner

        def body(c: Value, x: Value) -> Value:
            return step(m, c, x)

        options = {"of_trajectory": of_trajectory}
        return (
            m.scan_backward(vjp, init, all_of, upstream, x, **options),
            m.scan_backward_xs(vjp, init, all_of, upstream, x, index=0, **options),
            m.scan_backward_with_checkpoints(vjp, body, init, some, upstream, x, **options),
            m.scan_backward_xs_with_checkpoints(vjp, body, init, some, upstream, x, index=0, **options),
        )

    given = {"init": init, "x": x, "all_of": after, "some": after[ends], "upstream": upstream}
    by_init, by_x, from_some, xs_from_some = both(backward, given)
    np.testing.assert_allclose(from_some, by_init, rtol=1e-14)
    np.testing.assert_allclose(xs_from_some, by_x, rtol=1e-14)


def test_too_many_checkpoints():
    with pytest.raises(BuildError, match="from 1 to so many checkpoints, but got 2 and 3"):
        module(
            lambda m, c, k, u: m.scan_backward_with_checkpoints(lambda c, d: d, lambda c: c, c, k, u, length=2),
            {"c": random(2), "k": random(3, 2), "u": random(2)},
        )
    with pytest.raises(BuildError, match="'checkpoints' to be from 1 to the number of steps, 2, but got 3"):
        module(lambda m, c: m.scan_checkpointed(lambda c: c, c, 2, 3), {"c": random(2)})


# -- functions with gradients of their own -----------------------------------------------------------------------------


def straight_through(m: Any, x: Value) -> Value:
    return m.custom_fn(
        lambda x: m.round(x),
        x,
        vjp=lambda x, y, dy: dy,
        jvp=lambda x, dx: dx,
    )


def test_functions_run():
    x = random(4, 3, dtype=np.float32) * 3
    (found,) = both(straight_through, {"x": x})
    np.testing.assert_array_equal(found, np.rint(x))


def test_functions_of_several_values_in_loops():
    x, y = random(3, 2), random(2, seed=1)

    def build(m: Any, x: Value, y: Value) -> tuple[Value, ...]:
        def inner(a: Value, b: Value) -> tuple[Value, Value]:
            return m.add(a, m.custom_fn(lambda c: m.mul(c, 2.0), b)), m.sub(a, b)

        def body(c: Value, e: Value) -> tuple[Value, Value]:
            total, gap = m.custom_fn(inner, c, e)
            return total, gap

        return m.scan(body, y, x)

    last, gaps = both(build, {"x": x, "y": y})
    for row, gap in zip(x, gaps, strict=True):
        np.testing.assert_allclose(gap, y - row)
        y = y + 2 * row
    np.testing.assert_allclose(last, y)


def test_functions_with_symbols_are_bound():
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 3])
    m.set_outputs({"y": straight_through(m, x)})
    bound = m.bind(n=4)
    assert "^bb0(%arg1: tensor<4x3xf32>, %arg2: tensor<4x3xf32>, %arg3: tensor<4x3xf32>)" in bound.to_text()
    assert m.range_report(inputs={"x": 2.0}) is not None
    assert "custom_fn" not in m.transform("mir-decompose").to_text()
    assert "custom_fn" in m.transform("mir-decompose{only=fused_swiglu}").to_text()


def test_functions_read_their_inputs_alone():
    with pytest.raises(BuildError, match=r"'function' of 'mir\.custom_fn' reads 'y' of the graph around it"):
        module(lambda m, x, y: m.custom_fn(lambda x: m.add(x, y), x), {"x": random(2), "y": random(2)})
    with pytest.raises(BuildError, match="expects region 'vjp' to yield"):
        module(lambda m, x: m.custom_fn(lambda x: m.neg(x), x, vjp=lambda x, y, dy: m.sum(dy)), {"x": random(2)})
    (constant,) = values(lambda m, x: m.custom_fn(lambda x: m.mul(x, 2.5), x), {"x": random(2)})
    np.testing.assert_allclose(constant, random(2) * 2.5)
