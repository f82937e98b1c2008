# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The generator for norms of groups of channels, against the reference in f64, on all targets."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compile_fresh, templates_of
from cpu_harness import TARGETS, compiled

from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.group_norm import GENERATORS, VECTORS, emit_group_norm
from rlx_mlir.codegen.cpu.sums import TURNS
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import GroupNormSpec
from rlx_mlir.mir import REFERENCES

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCES = {"f32": 4e-6, "f16": 1e-3, "bf16": 8e-3}
EPS = 1e-5

#: Images and groups: less than a vector, one, one more and one less; several turns and chunks, with rests; as many
#: groups as channels, and one.
CASES: list[tuple[tuple[int, int, int, int], int]] = [
    ((1, 2, 2, 2), 1),
    ((2, 4, 3, 5), 2),
    ((2, 6, 4, 4), 6),
    ((1, 3, 1, 17), 3),
    ((2, 4, 7, 7), 2),
    ((1, 8, 16, 16), 8),
    ((1, 2, 8, TURNS * VECTORS * 2 + 3), 2),
    ((1, 3, 40, 300), 1),
    ((2, 2, 64, 67), 2),
]


def run(
    x: np.ndarray, factors: list[np.ndarray], groups: int, word: str, target: Target, *, dynamic: bool = False
) -> np.ndarray:
    """The template's result, which is the same however units are cut."""
    dims = [None if dynamic and axis != 1 else size for axis, size in enumerate(x.shape)]
    vectors = (memref((x.shape[1],), word),) * len(factors)
    spec = GroupNormSpec(memref(dims, word), vectors, groups, EPS, tuple(range(1 + len(factors))))
    kernel, result = compiled("k", emit_group_norm("k", spec, target)), [np.empty(x.shape, x.dtype)]
    (found,) = kernel([x, *factors], result)
    assert kernel([x, *factors], result, range(30))[0].tobytes() == found.tobytes(), "the result depends on cuts"
    return found


def reference(x: np.ndarray, factors: list[np.ndarray], groups: int) -> np.ndarray:
    wide = [array.astype(np.float64) for array in (x, *factors)]
    found: np.ndarray = REFERENCES["mir.group_norm"](*wide, num_groups=groups, eps=EPS)
    return found


def drawn(shape: tuple[int, ...], word: str, factors: int = 2) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(list(shape))
    x = (rng.standard_normal(shape) * 3 + 1).astype(DTYPES[word])
    return x, [rng.standard_normal(shape[1]).astype(DTYPES[word]) for _ in range(factors)]


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.quick(5)
def test_sizes(case: tuple[tuple[int, int, int, int], int], bits: int) -> None:
    shape, groups = case
    x, factors = drawn(shape, "f32")
    want = reference(x, factors, groups)
    for dynamic in (False, True):
        found = run(x, factors, groups, "f32", TARGETS[bits], dynamic=dynamic)
        np.testing.assert_allclose(found, want, rtol=4e-6, atol=4e-6)


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("word", ["f16", "bf16"])
@pytest.mark.quick(2)
def test_halves(word: str, bits: int) -> None:
    for shape, count in (((2, 4, 7, 9), 1), ((1, 8, 16, 16), 2)):
        x, factors = drawn(shape, word, count)
        found, want = run(x, factors, 2, word, TARGETS[bits]), reference(x, factors, 2)
        np.testing.assert_allclose(found.astype(np.float64), want, rtol=TOLERANCES[word], atol=TOLERANCES[word])


def test_images_of_no_pixel_and_no_image() -> None:
    for shape in ((0, 4, 5, 5), (2, 4, 0, 5), (1, 4, 1, 1), (3, 4, 1, 3)):
        x, factors = drawn(shape, "f32")
        found = run(x, factors, 4, "f32", TARGETS[256], dynamic=True)
        np.testing.assert_allclose(found, reference(x, factors, 4), rtol=4e-6, atol=4e-6)


def test_groups_of_one_large_number_are_beta() -> None:
    """Whose mean isn't a number of f32 times a power of two; and groups far from 0 keep their digits."""
    for shape in ((1, 3, 9, 9), (1, 3, 99, 101)):
        x = np.full(shape, np.float32(12345.678))
        gamma, beta = np.float32([1, -2, 3]), np.float32([0.5, 0, -7])
        found = run(x, [gamma, beta], 3, "f32", TARGETS[512])
        np.testing.assert_array_equal(found, np.broadcast_to(beta[:, None, None], shape))
        rng = np.random.default_rng(0)
        x = (rng.standard_normal(shape) + 1e4).astype(np.float32)
        want = reference(x, [gamma, beta], 1)
        np.testing.assert_allclose(run(x, [gamma, beta], 1, "f32", TARGETS[512]), want, rtol=1e-5, atol=1e-5)


def test_channels_of_one_group_that_lie_far_apart() -> None:
    """Means of chunks that jump: the variance has the digits that two passes give it."""
    x = np.random.default_rng(0).standard_normal((1, 8, 60, 64)).astype(np.float32)
    x += (np.arange(8, dtype=np.float32) % 3 * 1000)[:, None, None]
    x[0, 0, 0, 0] = 1e5
    factors = [np.ones(8, np.float32)]
    want = reference(x, factors, 1)
    np.testing.assert_allclose(run(x, factors, 1, "f32", TARGETS[256]), want, rtol=1e-5, atol=1e-6)


def test_what_is_not_finite_stays_in_its_group() -> None:
    x, factors = drawn((1, 4, 9, 9), "f32")
    want = run(x, factors, 4, "f32", TARGETS[256])
    x[0, 1, 3, 3], x[0, 2, 0, 0] = np.nan, np.inf
    found = run(x, factors, 4, "f32", TARGETS[256])
    np.testing.assert_array_equal(found[0, [0, 3]], want[0, [0, 3]])
    assert np.isnan(found[0, 1:3]).all()


@pytest.mark.parametrize(
    ("x", "message"), [("memref<1x4x8x8xf64>", "norms of groups of f64"), ("memref<?x4x1x3xf32>", "at least 4 pixels")]
)
def test_what_has_no_template(x: str, message: str) -> None:
    (generator,) = GENERATORS
    with pytest.raises(UnsupportedByTemplate, match=message):
        generator.configure("g", GroupNormSpec(x, (), 2, EPS, (0,)), TARGETS[256])


def test_graphs() -> None:
    """Kernels of any size up to the maxima; threads change no bit."""
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 8, "h", "w"], "f32")
    gamma = np.linspace(0.5, 2, 8, dtype=np.float32)
    m.set_outputs({"y": m.group_norm(x, m.param("gamma", [8]), m.constant(gamma - 1), num_groups=4)})
    one, two = (compile_fresh(m, maxima={"n": 3, "h": 20, "w": 30}, threads=threads) for threads in (1, 2))
    assert set(templates_of(one).values()) == {"group_norm"}
    for executable in (one, two):
        executable.set_params({"gamma": gamma})
    for n, h, w in ((3, 20, 30), (1, 1, 1), (0, 3, 3), (2, 0, 4), (2, 7, 11)):
        given = {"x": np.random.default_rng(0).standard_normal((n, 8, h, w)).astype(np.float32)}
        want = interpret(m, {**given, "gamma": gamma})["y"]
        found = one.run(given)["y"]
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
        assert two.run(given)["y"].tobytes() == found.tobytes()
