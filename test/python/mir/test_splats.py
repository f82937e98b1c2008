# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gaussian splats: images against densities of covariance matrices, gradients against differences, and loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_harness import calls, compile_emulated

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import BuildError
from rlx_mlir.mir import REFERENCES
from rlx_mlir.mir.splats import BAND0, NOWHERE, OF_SPLAT, Camera, Image, Scene

NAMES = ("positions", "scales", "rotations", "opacities", "colors", "sh_coeffs", "meta")
VIEW = {"width": 21, "height": 13, "tile_size": 8, "max_list_entries": 64}
CUTOFF, SCALE, THRESHOLD = 1 / 255, 1.6, 0.01


def meta(eye: Any = (0.3, -0.2, -4.0), fov: float = 50.0, dtype: Any = np.float32) -> np.ndarray:
    line = np.zeros(23, dtype)
    line[0:3], line[6:9], line[9:12], line[12:15] = eye, (0.1, 1, 0), (fov, 0.1, 50), (0.2, 0.5, 0.1)
    return line


def scene(n: int, count: int = 4, dtype: Any = np.float32, seed: int = 0) -> dict[str, np.ndarray]:
    """Splats around the origin, not far apart; their rotations are of length one."""
    rng = np.random.default_rng([n, count, seed])
    turns = rng.standard_normal((n, 4))
    turns /= np.linalg.norm(turns, axis=-1, keepdims=True)
    values = {
        "positions": rng.uniform(-0.8, 0.8, 3 * n),
        "scales": rng.uniform(-2.5, -1.2, 3 * n),
        "rotations": turns.reshape(-1),
        "opacities": rng.uniform(0.2, 0.9, n),
        "colors": rng.uniform(0.1, 0.9, 3 * n),
        "sh_coeffs": rng.uniform(-0.5, 0.5, 3 * n * count),
    }
    return {name: value.astype(dtype) for name, value in values.items()} | {"meta": meta(dtype=dtype)}


def reference(name: str, *operands: np.ndarray, **view: Any) -> np.ndarray:
    return REFERENCES[f"mir.gaussian_splat_{name}"](*operands, **view)


def by_covariances(given: dict[str, np.ndarray], view: dict[str, Any]) -> np.ndarray:
    """The image, from the least distance along each ray by the inverse covariance, splat after splat; no tiles."""
    width, height = view["width"], view["height"]
    image = Image(width, height, view["tile_size"], view["max_list_entries"], float(CUTOFF))
    camera = Camera.of(given["meta"], image)
    rays = camera.rays(image)
    shades = Scene.of(*(given[name] for name in NAMES[:-1])).shade(camera)
    positions, scales = given["positions"].reshape(-1, 3), given["scales"].reshape(-1, 3)
    total, left = np.zeros((height, width, 3)), np.ones((height, width))
    order = np.argsort(np.linalg.norm(positions - camera.position, axis=-1), kind="stable")
    for i in order:
        w, x, y, z = given["rotations"].reshape(-1, 4)[i]
        turn = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )
        inverse = turn @ np.diag((SCALE * np.exp(scales[i])) ** -2.0) @ turn.T
        away = camera.position - positions[i]
        a = np.einsum("hwi,ij,hwj->hw", rays, inverse, rays)
        b = np.einsum("hwi,ij,j->hw", rays, inverse, away)
        least = away @ inverse @ away - b * b / a
        alpha = np.where(b < 0, given["opacities"][i] * np.exp(-0.5 * least), 0)
        alpha = np.where((alpha >= CUTOFF) & (left >= THRESHOLD), alpha, 0)
        total += (left * alpha)[..., None] * shades[i]
        left *= 1 - alpha
    shown = np.maximum(total + left[..., None] * given["meta"][12:15], 0) ** 2.2
    return np.concatenate([shown, 1 - left[..., None]], -1)


# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 20])
def test_images_are_densities_of_covariances(n):
    """Also where splats are nearer than tiles are wide: no list lacks a splat that counts."""
    for seed in range(4):
        given = scene(n, 4, np.float64, seed)
        view = {**VIEW, "tile_size": (3, 8, 64, 5)[seed]} | {"max_list_entries": 4000}
        found = reference("render", *given.values(), **view).reshape(13, 21, 4)
        want = by_covariances(given, view)
        is_empty = (found[..., 3] == 1) & (want[..., 3] == 0)  # no list has an entry there
        np.testing.assert_allclose(found[..., :3], want[..., :3], atol=1e-12)
        np.testing.assert_allclose(np.where(is_empty, 0, found[..., 3]), want[..., 3], atol=1e-12)
        assert want[..., 3].max() > 0.1


def test_what_is_prepared():
    given = scene(3, 0)
    given["positions"][3:6] = (0, 0, -9)  # behind the camera
    given["opacities"][2] = 0.003  # less than the cutoff
    found = reference("prepare", *given.values(), **VIEW)
    image = Image(21, 13, 8, 64, float(CUTOFF))
    assert found.shape == (OF_SPLAT * 3 + image.shared,)
    assert (image.columns, image.rows, image.shared) == (3, 2, 64 + 12 + 3 * 273 + 11)
    np.testing.assert_array_equal(found[12:15], [1, 0, 0])
    np.testing.assert_allclose(found[:3], given["colors"][:3], rtol=1e-6)
    np.testing.assert_array_equal(found[3:12:4], given["opacities"])
    ranges = found[45 + 64 : 45 + 76].reshape(6, 2)
    used = ranges[ranges[:, 0] != NOWHERE]
    assert len(used)
    assert (ranges[ranges[:, 0] == NOWHERE, 1] == 0).all()
    assert (used[:, 1] - used[:, 0] == 1).all()
    np.testing.assert_allclose(
        found[-11:-2], [21, 13, 8, 3, CUTOFF, THRESHOLD, *given["meta"][12:15] ** 2.2], rtol=1e-6
    )


def test_lists_end_where_they_are_full():
    given = scene(20)
    full = reference("prepare", *given.values(), **{**VIEW, "max_list_entries": 4000})
    count = int(full[OF_SPLAT * 20 + 4000 :][1:12:2].max())
    short = reference("prepare", *given.values(), **{**VIEW, "max_list_entries": 5})
    assert count > 5
    assert short[OF_SPLAT * 20 + 5 :][1:12:2].max() == 5


def test_colors_and_coefficients():
    """The first band's constant, and colors where there are no others, or zeros."""
    given = scene(2, 0)
    colored = reference("prepare", *given.values(), **VIEW)
    given["sh_coeffs"] = np.zeros(6, np.float32)
    np.testing.assert_array_equal(reference("prepare", *given.values(), **VIEW), colored)
    given["sh_coeffs"][:] = (given["colors"] - 0.5) / BAND0
    np.testing.assert_allclose(reference("prepare", *given.values(), **VIEW), colored, rtol=1e-6)
    given["sh_coeffs"] = np.zeros(96, np.float32)  # all bands are there: zeros count
    np.testing.assert_allclose(reference("prepare", *given.values(), **VIEW)[:3], 0.5)


def test_a_camera_inside_of_a_splat_sees_it_everywhere():
    given = scene(1)
    given["positions"][:] = given["meta"][:3] + np.array([0, 0, 0.1], np.float32)
    given["scales"][:] = 0.0
    found = reference("prepare", *given.values(), **VIEW)
    assert found[4] == 1
    assert (found[15 + 64 : 15 + 76].reshape(6, 2)[:, 1] > 0).all()


def test_nothing_is_seen_of_no_splat():
    given = scene(0)
    assert not reference("render", *given.values(), **VIEW).any()
    assert reference("render_backward", *given.values(), np.ones(4 * 273, np.float32), **VIEW).shape == (0,)
    found = reference("rasterize", reference("prepare", *given.values(), **VIEW), given["meta"], **VIEW)
    np.testing.assert_allclose(found.reshape(-1, 4), [[*given["meta"][12:15] ** 2.2, 1]] * 273, rtol=1e-6)


@pytest.mark.parametrize(
    "count", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow), 5]
)
def test_gradients_are_differences(count):
    """By all operands, in f64, where no splat comes or goes. The gradient by opacity is none outside of 0 and 1."""
    given = scene(4, count, np.float64, 3)
    given["opacities"][1] = 1.25
    view = VIEW | {"max_list_entries": 4000, "alpha_cutoff": 1e-5}
    weights = np.random.default_rng(1).standard_normal((273, 4))
    found = reference("render_backward", *given.values(), weights.reshape(-1), **view)
    weights[:, 3] = 0

    def loss(changed: dict[str, np.ndarray]) -> float:
        return float(reference("render", *changed.values(), **view) @ weights.reshape(-1))

    start, step = 0, 1e-6
    for name in NAMES[:-1]:
        own = found[start : start + given[name].size]
        start += given[name].size
        want = np.empty(own.shape)
        for at in range(own.size):
            ends = []
            for sign in (1, -1):
                moved = given[name].copy()
                moved[at] += sign * step
                ends.append(loss(given | {name: moved}))
            want[at] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(own, want, atol=2e-5 * max(np.abs(want).max(initial=0), 1), err_msg=name)
    assert len(found) == 14 * 4 + max(12 * count, 12)
    assert not found[start:].any()


def test_gradients_are_clipped():
    given = scene(3)
    weights = np.random.default_rng(2).standard_normal(4 * 273).astype(np.float32)
    clipped = reference("render_backward", *given.values(), weights, **VIEW, loss_grad_clip=0.5)
    bounded = reference("render_backward", *given.values(), np.clip(weights, -0.5, 0.5), **VIEW)
    np.testing.assert_array_equal(clipped, bounded)
    assert np.abs(clipped - reference("render_backward", *given.values(), weights, **VIEW)).max() > 1e-3


# ----------------------------------------------------------------------------------------------------------------------
# Loops
# ----------------------------------------------------------------------------------------------------------------------


def program(n: int | None, count: int, view: dict[str, Any], *, gradient: bool = False) -> GraphModule:
    """All operations; n is None for a number of splats that isn't known."""
    module = GraphModule.mir("splats")
    sizes = {
        "positions": 3,
        "scales": 3,
        "rotations": 4,
        "opacities": 1,
        "colors": 3,
        "sh_coeffs": 3 * count,
        "meta": 23,
    }
    shapes = {name: size if name == "meta" else name if n is None else size * n for name, size in sizes.items()}
    values = [module.input(name, [shape]) for name, shape in shapes.items()]
    prepared = module.gaussian_splat_prepare(*values, **view)
    outputs = {
        "prepared": prepared,
        "rasterized": module.gaussian_splat_rasterize(prepared, values[-1], **view),
        "rendered": module.gaussian_splat_render(*values, **view),
    }
    if gradient:
        d_rgba = module.input("d_rgba", [4 * view["width"] * view["height"]])
        outputs = {"gradient": module.gaussian_splat_render_backward(*values, d_rgba, **view)}
    module.set_outputs(outputs)
    return module


def compare(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        scale = np.maximum(np.abs(array), 1) if name != "gradient" else max(np.abs(array).max(initial=0), 1)
        assert got[name].shape == array.shape
        assert (np.abs(got[name] - array) <= 2e-5 * scale).all(), f"{name}: {np.abs(got[name] - array).max()}"


@pytest.mark.parametrize("gradient", [False, True])
def test_compiled_for_any_number_of_splats(gradient):
    module = program(None, 4, VIEW, gradient=gradient)
    executables = [rlx.compile(module, threads=k, cache=False) for k in ((2,) if gradient else (1, 2))]
    more = {"d_rgba": np.random.default_rng(0).standard_normal(4 * 273).astype(np.float32)} if gradient else {}
    for n in (0, 1, 2, 17):
        for count in (0, 4):
            given = scene(n, count) | more
            want = interpret(module, given)
            for executable in executables:
                compare(executable.run(given), want)


@pytest.mark.parametrize("n", [pytest.param(0, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.slow), 9])
def test_compiled_for_a_known_number(n):
    view = VIEW | {"width": 5, "height": 7, "tile_size": 4, "max_list_entries": 6}
    for count in (1,) if n == 9 else (0, 1):
        given = scene(n, count)
        compare(rlx.compile(program(n, count, view), cache=False).run(given), interpret(program(n, count, view), given))


def test_what_was_prepared_may_hold_anything():
    """Positions in it are kept inside of it."""
    module = GraphModule.mir("rasterize")
    view = VIEW | {"width": 8, "height": 8}
    prepared = module.input("prepared", ["length"])
    module.set_outputs({"y": module.gaussian_splat_rasterize(prepared, module.input("meta", [23]), **view)})
    executable = rlx.compile(module, cache=False)
    image = Image(8, 8, 8, 64, float(CUTOFF))
    for value in (1e9, -1e9, np.nan, np.inf):
        given = {"prepared": np.full(OF_SPLAT * 2 + image.shared, value, np.float32), "meta": meta()}
        given["prepared"][OF_SPLAT * 2 + 64 :][:2] = 0, 1e9
        with np.errstate(all="ignore"):
            want = interpret(module, given)["y"]
        np.testing.assert_allclose(executable.run(given)["y"], want, rtol=1e-5)


def test_builders():
    module = GraphModule.hir("built")
    given = scene(3)
    values = [module.input(name, [given[name].size]) for name in NAMES[:-1]]
    camera = module.gaussian_splat_render_meta((0.3, -0.2, -4), (0, 0, 0), (0.1, 1, 0), fov=50, far=50, background=0.3)
    outputs = {
        "rendered": module.gaussian_splat_render(*values, camera, **VIEW),
        "decomposed": module.gaussian_splat_render_decomposed(*values, camera, **VIEW, radius_scale=1.6),
    }
    module.set_outputs(outputs)
    del given["meta"]
    found = rlx.compile(module, cache=False).run(given)
    np.testing.assert_array_equal(found["rendered"], found["decomposed"])
    line = meta()
    line[12:15] = 0.3
    np.testing.assert_allclose(found["rendered"], reference("render", *given.values(), line, **VIEW), atol=2e-5)
    with pytest.raises(BuildError, match=r"'gaussian_splat_render' expects positions, scales, .* 7 values, but got 2"):
        module.gaussian_splat_render(*values[:2])
    with pytest.raises(BuildError, match="'gaussian_splat_render_meta'"):
        module.gaussian_splat_render_meta((1, 2), (0, 0, 0))
    with pytest.raises(BuildError, match="expects 'width' to be from 1 to 16384, but got 0"):
        module.gaussian_splat_prepare(*values, camera, width=0)


@pytest.mark.parametrize("gradient", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.wide
def test_kernels_for_gpus_run_as_loops(gradient):
    view = VIEW | {"width": 6, "height": 5, "tile_size": 4, "max_list_entries": 12}
    module = program(None, 1, view, gradient=gradient)
    more = {"d_rgba": np.ones(120, np.float32)} if gradient else {}
    executable = compile_emulated(module)
    for n in (0, 3):
        given = scene(n, 1) | more
        compare(executable.run(given), interpret(module, given))


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [False, True])
def test_ptx_is_complete(gradient):
    module = program(None, 1, VIEW, gradient=gradient)
    assert not calls(rlx.emit(module, "ptx", target="nvptx", chip="sm_80"))
