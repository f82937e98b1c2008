# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results without elements, and sums of nothing: interpreted and compiled, shapes and values are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compile_harness import compile_fresh

from rlx_mlir import GraphModule, interpret


def attention(queries: int, keys: int) -> Callable[[GraphModule], Any]:
    def build(m: GraphModule) -> Any:
        q, k, v = (m.input(n, [1, s, 8]) for n, s in (("q", queries), ("k", keys), ("v", keys)))
        return m.attention(q, k, v, num_heads=2, head_dim=4, mask_kind="causal")

    return build


def conv(shape: list[int], kernel: list[int], **options: Any) -> Callable[[GraphModule], Any]:
    return lambda m: m.conv2d(m.input("x", shape), m.input("w", kernel), **options)


CASES: dict[str, Callable[[GraphModule], Any]] = {
    "conv, one short of the kernel": conv([1, 1, 1, 7], [1, 1, 2, 1], stride=[2, 1]),
    "conv, along W": conv([1, 2, 4, 1], [3, 2, 1, 2], stride=[1, 3], dilation=[1, 1]),
    "depthwise conv": conv([1, 2, 1, 7], [2, 1, 2, 1], groups=2, stride=[2, 2]),
    "conv of no batch": conv([0, 2, 3, 7], [2, 2, 2, 1]),
    "conv of padding": conv([1, 2, 0, 7], [2, 2, 1, 1], padding=[1, 0]),
    "matmul over nothing": lambda m: m.matmul(m.input("x", [3, 0]), m.input("w", [0, 4])),
    "matmul of no rows": lambda m: m.matmul(m.input("x", [0, 3]), m.input("w", [3, 4])),
    "no queries": attention(0, 3),
    "no keys": attention(3, 0),
    "narrow": lambda m: m.exp(m.narrow(m.input("x", [3, 4]), 1, 4, 0)),
    "concat": lambda m: m.concat([m.input("a", [2, 0]), m.input("b", [2, 3]), m.input("c", [2, 0])], 1),
    "concat of nothing": lambda m: m.concat([m.input(f"x{i}", [2, 0]) for i in range(20)], 1),
    "concat of four, some empty": lambda m: m.concat([m.input(f"x{i}", [2, n]) for i, n in enumerate((0, 3, 0, 1))], 1),
    "sum": lambda m: m.sum(m.input("x", [3, 0]), 1),
    "max": lambda m: m.max(m.input("x", [0, 3]), 1),
    "transposed conv": lambda m: m.conv_transpose2d(m.input("x", [0, 2, 3, 3]), m.input("w", [2, 2, 2, 2]), stride=2),
}


@pytest.mark.parametrize("build", CASES.values(), ids=CASES.keys())
@pytest.mark.quick(1)
def test_results_without_elements(build: Callable[[GraphModule], Any]) -> None:
    m = GraphModule.mir("empty")
    y = build(m)
    m.set_outputs({"y": y})
    values = {each.name: np.ones(each.shape, np.float32) for each in m.inputs}
    found, want = compile_fresh(m).run(values)["y"], interpret(m, values)["y"]
    assert found.shape == tuple(y.shape)
    np.testing.assert_array_equal(found, want, strict=True)


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_that_are_empty_at_run_time(axis: int) -> None:
    """Four parts of symbolic sizes, of which any may be 0, and all of them."""
    m = GraphModule.mir("parts")
    shapes = [[name, 3] if axis == 0 else [3, name] for name in "abcd"]
    parts = [m.input(f"x{name}", shape) for name, shape in zip("abcd", shapes, strict=True)]
    m.set_outputs({"y": m.concat(parts, axis), "twice": m.concat([m.exp(part) for part in parts], axis)})
    executable = compile_fresh(m)
    for sizes in ((0, 0, 0, 0), (0, 2, 0, 1), (1, 0, 0, 4), (0, 0, 3, 0), (2, 1, 1, 2)):
        given = [
            np.full((size, 3) if axis == 0 else (3, size), number, np.float32) for number, size in enumerate(sizes)
        ]
        found = executable.run({part.name: value for part, value in zip(parts, given, strict=True)})
        np.testing.assert_array_equal(found["y"], np.concatenate(given, axis))
        np.testing.assert_allclose(found["twice"], np.exp(np.concatenate(given, axis)), rtol=1e-6)
