# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dynamic sizes that meet: equal at run time, whoever runs the module, and known where one of the two is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import InputError
from rlx_mlir.lowering.plan import ATTENTION_FACTOR, PRODUCTS_PER_BYTE

Shapes = dict[str, list[int | str]]
Build = Callable[[GraphModule, dict[str, Any]], Any]


def built(shapes: Shapes, build: Build, stage: str = "mir") -> GraphModule:
    module = GraphModule.mir("f") if stage == "mir" else GraphModule.hir("f")
    module.set_outputs({"y": build(module, {name: module.input(name, shape) for name, shape in shapes.items()})})
    return module


def ones(shapes: Shapes, **sizes: int) -> dict[str, np.ndarray]:
    known = {name: [s if isinstance(s, int) else sizes[s] for s in shape] for name, shape in shapes.items()}
    return {name: np.ones(shape, np.float32) for name, shape in known.items()}


#: Shapes in which a and b meet, and an operation that numpy would broadcast, or that would fail in it.
MEETING: dict[str, tuple[Shapes, Build]] = {
    "add": ({"x": ["a"], "y": ["b"]}, lambda m, v: v["x"] + v["y"]),
    "where": ({"x": ["a"], "y": ["b"]}, lambda m, v: m.where(v["x"] > 0, v["x"], v["y"])),
    "matmul": ({"x": ["a", 2, 3], "y": ["b", 3, 2]}, lambda m, v: v["x"] @ v["y"]),
    "bias": ({"x": [2, 4], "y": [4, "a"], "z": ["b"]}, lambda m, v: m.fused_matmul_bias_act(v["x"], v["y"], v["z"])),
    "rms_norm": ({"x": [2, "a"], "y": ["b"]}, lambda m, v: m.rms_norm(v["x"], v["y"])),
    "residual": (
        {"x": ["a", 4], "y": ["b", 4], "z": [4]},
        lambda m, v: m.fused_residual_rms_norm(v["x"], v["y"], v["z"]),
    ),
    "attention": (
        {"q": ["a", 2, 4], "k": ["b", 2, 4]},
        lambda m, v: m.attention(v["q"], v["k"], v["k"], num_heads=1, head_dim=4),
    ),
    "rope": (
        {"x": [1, 1, 4], "c": ["a", 2], "s": ["b", 2]},
        lambda m, v: m.rope(v["x"], v["c"], v["s"], head_dim=4, style="half"),
    ),
    "gated_delta_net": (
        {"x": [1, "a", 2, 3], "g": [1, "b", 2]},
        lambda m, v: m.gated_delta_net(v["x"], v["x"], v["x"], v["g"], v["g"])[0],
    ),
}


@pytest.mark.parametrize(("shapes", "build"), MEETING.values(), ids=list(MEETING))
@pytest.mark.quick(4)
def test_only_what_is_1_in_its_type_is_broadcast(shapes: Shapes, build: Build) -> None:
    module = built(shapes, build)
    compiled = rlx.compile(module, cache=False)
    for sizes in ({"a": 3, "b": 1}, {"a": 1, "b": 3}, {"a": 1, "b": 0}):
        values = ones(shapes, **sizes)
        for run in (lambda values=values: interpret(module, values), lambda values=values: compiled.run(values)):
            with pytest.raises(InputError, match=r"expects that .+ is equal to .+, but \d and \d were given"):
                run()
    values = ones(shapes, a=3, b=3)
    np.testing.assert_allclose(compiled.run(values)["y"], interpret(module, values)["y"], rtol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "build"),
    [
        ({"x": [2, "a"], "w": ["a", 3], "z": ["b"]}, lambda m, v: m.linear(v["x"], v["w"], v["z"])),
        ({"x": ["a", "a"], "z": ["b"]}, lambda m, v: m.rms_norm(v["x"], v["z"])),
        ({"x": ["a", 4], "y": ["b", 4], "z": [4]}, lambda m, v: m.residual_rms_norm(v["x"], v["y"], v["z"])),
        (
            {"x": [2, 4], "g": [4, "a"], "u": [4, "b"], "d": ["a", 2]},
            lambda m, v: m.swiglu(v["x"], gate_w=v["g"], up_w=v["u"], down_w=v["d"]),
        ),
    ],
)
def test_references_of_blocks_dont_broadcast(shapes: Shapes, build: Build) -> None:
    module = built(shapes, build, "hir")
    interpret(module, ones(shapes, a=3, b=3))
    with pytest.raises(InputError, match="is equal to"):
        interpret(module, ones(shapes, a=3, b=1))


def check(shapes: Shapes, build: Build, stage: str = "mir", **sizes: int) -> GraphModule:
    """Compiles, and compares with the reference on random values."""
    module = built(shapes, build, stage)
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal(own.shape).astype(np.float32) for name, own in ones(shapes, **sizes).items()}
    got = rlx.compile(module, cache=False).run(values)["y"]
    np.testing.assert_allclose(got, interpret(module, values)["y"], rtol=1e-4, atol=1e-5)
    return module


def test_widths_of_attention_that_types_leave_open() -> None:
    def build(m: GraphModule, v: dict[str, Any]) -> Any:
        return m.attention(v["q"], v["k"], v["k"], num_heads=2, num_kv_heads=1, head_dim=3, layout=layout)

    layout = "packed"
    check({"q": [1, 2, "a"], "k": [1, 4, "b"]}, build, a=6, b=3)
    layout = "bhsd"
    check({"q": [1, "h", 2, 3], "k": [1, "g", 4, "d"]}, build, h=2, g=1, d=3)


def test_a_bias_whose_length_its_type_leaves_open() -> None:
    check({"x": [2, 4], "w": [4, 3], "z": ["c"]}, lambda m, v: m.linear(v["x"], v["w"], v["z"]), "hir", c=3)


def test_outputs_that_the_bias_knows() -> None:
    shapes: Shapes = {"x": [2, 4], "w": [4, "n"], "z": [3]}
    module = check(shapes, lambda m, v: m.linear(v["x"], v["w"], v["z"]), "hir", n=3)
    assert module.outputs["y"].shape == (2, 3)


@pytest.mark.parametrize(
    ("shapes", "build", "good", "bad", "message"),
    [
        (
            {"x": [1, 1, "a"], "c": [3, 2]},
            lambda m, v: m.rope(v["x"], v["c"], v["c"], head_dim=4, style="half"),
            (0, 4, 12),
            6,
            r"'mir.rope'.* expects that a is equal to 4\*floordiv\(a, 4\), but 6 and 4 were given: 'a' is 6",
        ),
        (
            {"x": [1, 2, 4, 4], "w": ["a", 1, 3, 3]},
            lambda m, v: m.conv2d(v["x"], v["w"], groups=2),
            (0, 2, 6),
            3,
            r"'mir.conv'.* expects that a is equal to 2\*floordiv\(a, 2\), but 3 and 2 were given: 'a' is 3",
        ),
        (
            {"x": [3, "a"]},
            lambda m, v: m.fused_swiglu(v["x"]),
            (0, 2, 66),
            5,
            r"'mir.fused_swiglu'.* expects that a is equal to 2\*floordiv\(a, 2\), but 5 and 4 were given: 'a' is 5",
        ),
    ],
)
def test_sizes_that_have_to_be_divisible(
    shapes: Shapes, build: Build, good: tuple[int, ...], bad: int, message: str
) -> None:
    module = built(shapes, build)
    compiled = rlx.compile(module, cache=False)
    rng = np.random.default_rng(0)
    for size in good:
        given = {k: rng.standard_normal(a.shape).astype(np.float32) for k, a in ones(shapes, a=size).items()}
        np.testing.assert_allclose(compiled.run(given)["y"], interpret(module, given)["y"], rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match=message):
        compiled.run(ones(shapes, a=bad))


def work_of(module: GraphModule) -> Any:
    """The terms of the one call's work: (coefficient, numbers of symbols)."""
    ((*_, work),) = rlx.compile(module, cache=False).artifact.calls
    return work


def test_work_of_products_and_attention() -> None:
    """What decides whether threads are worth their start."""
    module = built({"x": ["n", 64], "w": [64, 96]}, lambda m, v: m.matmul(v["x"], v["w"]))
    assert work_of(module) == [(64 * 96, []), (64 * 96 // PRODUCTS_PER_BYTE, [0])]
    options: Any = {"num_heads": 3, "num_kv_heads": 3, "head_dim": 8, "layout": "bhsd", "mask_kind": "none"}
    shapes: Shapes = {"q": [2, 3, "s", 8], "k": [2, 3, "t", 8]}
    module = built(shapes, lambda m, v: m.attention(v["q"], v["k"], v["k"], **options))
    assert work_of(module) == [(2 * 3 * 8 * ATTENTION_FACTOR, [0, 1])]
    shapes = {"x": [2, 3, "s", 8]}
    module = built(shapes, lambda m, v: m.attention(v["x"], v["x"], v["x"], **options))
    assert work_of(module) == [(2 * 3 * 8 * ATTENTION_FACTOR, [0, 0])]
