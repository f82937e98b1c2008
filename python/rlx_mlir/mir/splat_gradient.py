# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gradient of images of Gaussian splats in numpy.

The opacity of a splat along a ray is o e^(-4.5 |P|^2), where P = l + t d is the point nearest to its mean of the line
from the camera l in the direction d, both in the frame where the splat is a ball: l = rot(q, camera - position) / r and
d = rot(q, ray) / r. P is the shortest, so that |P|^2 has the gradients 2 P by l and 2 t P by d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size, maximum
from rlx_mlir.mir.registry import dim_rule, reference
from rlx_mlir.mir.splats import (
    BAND0,
    BAND1,
    OF_SPLAT,
    Camera,
    Image,
    Scene,
    alphas,
    bounded,
    conjugate,
    prepare,
    rotated,
)


@dim_rule(mir.GaussianSplatRenderBackwardOp)
def gradient_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """14 numbers for each splat, and its coefficients, of which there is one at least."""
    (count,), (coefficients,) = operands[3], operands[5]
    return (count * 14 + maximum(coefficients, count * 3),)


@cost(mir.GaussianSplatRenderBackwardOp)
def gradient_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Thrice the image, and for each entry and pixel of its tile the entries of its list, as if that were short."""
    image = Image.of(op)
    entries, pixels = image.max_list_entries, image.tile_size**2
    return Cost(180 * image.pixels * entries + entries * pixels * (200 + 10 * entries))


@dataclass
class _Sums:
    """What pixels give for each splat."""

    color: np.ndarray
    opacity: np.ndarray
    local: np.ndarray
    axes: np.ndarray
    """By the directions of rays alone."""
    turn: np.ndarray
    """By the directions of rays alone."""


def turn_gradient(q: np.ndarray, v: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The gradient of y . rot(q, v) by q."""
    w, u = q[..., :1], q[..., 1:]

    def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.sum(a * b, -1, keepdims=True)

    by_w = 2 * dot(y, np.cross(v, u))
    by_u = 2 * (y * dot(v, u) + v * dot(y, u) - 2 * u * dot(y, v) + w * np.cross(y, v))
    return np.concatenate([by_w, by_u], -1)


@reference(mir.GaussianSplatRenderBackwardOp)
def render_backward(
    positions: np.ndarray,
    scales: np.ndarray,
    rotations: np.ndarray,
    opacities: np.ndarray,
    colors: np.ndarray,
    sh_coeffs: np.ndarray,
    meta: np.ndarray,
    d_rgba: np.ndarray,
    *,
    width: int = 64,
    height: int = 64,
    tile_size: int = 16,
    max_list_entries: int = 576,
    alpha_cutoff: float = 1 / 255,
    radius_scale: float = 1.6,
    transmittance_threshold: float = 0.01,
    loss_grad_clip: float | None = None,
) -> np.ndarray:
    """The gradients by positions, scales, rotations, opacities, colors and coefficients, one after the other."""
    n, dtype = len(opacities), positions.dtype.type
    if not n:
        return np.zeros(0, positions.dtype)
    image = Image(width, height, tile_size, max_list_entries, alpha_cutoff)
    operands = (positions, scales, rotations, opacities, colors, sh_coeffs, meta)
    prepared = prepare(
        *operands,
        width=width,
        height=height,
        tile_size=tile_size,
        max_list_entries=max_list_entries,
        alpha_cutoff=alpha_cutoff,
        radius_scale=radius_scale,
    )
    gradient = d_rgba.reshape(height, width, 4)[..., :3]
    if loss_grad_clip is not None:
        gradient = np.clip(gradient, -dtype(loss_grad_clip), dtype(loss_grad_clip))
    sums = _sums(prepared, meta, gradient, image, transmittance_threshold)
    camera, scene = Camera.of(meta, image), Scene.of(*operands[:-1])
    size = np.exp(scene.scales) * dtype(radius_scale) * dtype(3)
    inverse = 1 / np.maximum(size, dtype(1e-6))
    away = camera.position - scene.positions
    local = rotated(scene.rotations, away) * inverse
    by_away = rotated(conjugate(scene.rotations), sums.local * inverse)
    by_scale = np.where(size > dtype(1e-6), -(sums.local * local + sums.axes), dtype(0))
    by_turn = turn_gradient(scene.rotations, away, sums.local * inverse) + sums.turn
    is_inside = (opacities > 0) & (opacities < 1)
    by_opacity = np.where(is_inside, sums.opacity / np.where(is_inside, opacities, dtype(1)), dtype(0))
    by_color, by_coefficients, by_view = _shading(scene, camera, sums.color)
    parts = [-(by_away + by_view), by_scale, by_turn, by_opacity, by_color, by_coefficients]
    result = np.concatenate([part.reshape(-1) for part in parts])
    total = 14 * n + max(len(sh_coeffs), 3 * n)
    return np.concatenate([result, np.zeros(total - len(result), result.dtype)]).astype(positions.dtype)


def _sums(prepared: np.ndarray, meta: np.ndarray, gradient: np.ndarray, image: Image, threshold: float) -> _Sums:
    """Over all pixels, tile by tile: forwards for what reaches each entry, then backwards for what is behind it."""
    dtype, n = prepared.dtype.type, (len(prepared) - image.shared) // OF_SPLAT
    starts = np.cumsum([0, 4 * n, n, 3 * n, 3 * n, 4 * n, image.max_list_entries, 2 * image.tiles, 3 * image.pixels])
    color, valid, local, inverse, turn, listed, ranges, rays = (
        prepared[start:stop] for start, stop in pairwise(starts)
    )
    color, local, inverse, turn = color.reshape(n, 4), local.reshape(n, 3), inverse.reshape(n, 3), turn.reshape(n, 4)
    rays = rays.reshape(image.height, image.width, 3)
    sums = _Sums(*(np.zeros(shape, prepared.dtype) for shape in ((n, 3), (n,), (n, 3), (n, 3), (n, 4))))
    side = image.tile_size
    for tile in range(image.tiles):
        begin, end = (bounded(number, image.max_list_entries) for number in ranges[2 * tile : 2 * tile + 2])
        row, column = divmod(tile, image.columns)
        part = np.s_[row * side : (row + 1) * side, column * side : (column + 1) * side]
        own = rays[part]
        total, left, hits = np.zeros_like(own), np.ones_like(own[..., 0]), []
        for entry in range(begin, end):
            i = bounded(listed[entry], n - 1)
            if not valid[i] > 0:
                continue
            alpha = alphas(local[i], inverse[i], turn[i], color[i, 3], own, image.alpha_cutoff)
            alpha = np.where((alpha >= dtype(image.alpha_cutoff)) & ~(left < dtype(threshold)), alpha, 0)
            hits.append((i, alpha, left))
            total = total + (left * alpha)[..., None] * color[i, :3]
            left = left * (1 - alpha)
        if begin >= end:
            continue
        before = np.maximum(total + left[..., None] * meta[12:15], 0)
        wanted = gradient[part] * (dtype(2.2) * before ** dtype(1.2))
        behind = np.sum(wanted * meta[12:15], -1)
        for i, alpha, left in reversed(hits):
            sums.color[i] += np.sum(wanted * (left * alpha)[..., None], (0, 1))
            own_part = np.sum(wanted * color[i, :3], -1)
            weight = left * (own_part - behind) * alpha  # by alpha, times alpha
            behind = behind * (1 - alpha) + alpha * own_part
            sums.opacity[i] += np.sum(weight)
            _add_geometry(sums, i, weight, own, local[i], inverse[i], turn[i])
    return sums


def _add_geometry(
    sums: _Sums, i: int, weight: np.ndarray, rays: np.ndarray, local: np.ndarray, inverse: np.ndarray, turn: np.ndarray
) -> None:
    """What the opacities of one splat give, by its frame; weights are 0 where it isn't hit."""
    direction = rotated(turn, rays) * inverse
    hit = (weight != 0)[..., None]
    with np.errstate(all="ignore"):
        t = (-np.sum(local * direction, -1) / np.sum(direction * direction, -1))[..., None]
        nearest = np.where(hit, local + t * direction, 0)
    by_local = weight.dtype.type(-9) * weight[..., None] * nearest
    by_direction = np.where(hit, t, 0) * by_local
    sums.local[i] += np.sum(by_local, (0, 1))
    sums.axes[i] += np.sum(by_direction * np.where(hit, direction, 0), (0, 1))
    sums.turn[i] += np.sum(turn_gradient(turn, rays, by_direction * inverse), (0, 1))


def _shading(scene: Scene, camera: Camera, by_shade: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gradients by colors, by coefficients as they were given, and by the vector to the camera."""
    dtype = by_shade.dtype.type
    away = camera.position - scene.positions
    length = np.sqrt(np.sum(away * away, -1, keepdims=True))
    direction = scene.directions(camera)
    x, y, z = (part[:, None] for part in direction.T)
    by_color, by_coefficients = np.zeros_like(by_shade), np.zeros_like(scene.coefficients)
    if scene.takes_colors:
        by_color = np.where((scene.colors >= 0) & (scene.colors <= 1), by_shade, dtype(0))
    else:
        by_coefficients[:, 0] = dtype(BAND0) * by_shade
    for band, factor in ((1, -y), (2, z), (3, -x)):
        by_coefficients[:, band] = dtype(BAND1) * factor * by_shade
    second, third, fourth = (np.sum(scene.coefficients[:, band] * by_shade, -1) for band in (1, 2, 3))
    along = dtype(BAND1) * np.stack([-fourth, -second, third], -1)
    with np.errstate(all="ignore"):
        across = (along - direction * np.sum(along * direction, -1, keepdims=True)) / length
    return by_color, by_coefficients[:, : scene.given], np.where(length > dtype(1e-8), across, dtype(0))
