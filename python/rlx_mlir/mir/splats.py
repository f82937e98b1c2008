# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gaussian splats: what they are in numpy, their sizes and costs. Their loops are in `mir/splat_loops.py`.

Shapes inside are [N] for N splats, [N, 3] for their vectors; all is computed in the type of the operands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size, maximum
from rlx_mlir.mir.registry import dim_rule, reference

#: Numbers of the camera.
META = 23
#: Numbers that are prepared of each splat: color, opacity, visibility, camera, inverse axes, rotation.
OF_SPLAT = 15
#: Numbers that say what was prepared.
PARAMETERS = 11
#: The begin of a list without entries; its end is 0.
NOWHERE = 2.0**32
#: Constants of spherical harmonics of bands 0 and 1.
BAND0, BAND1 = 0.28209479, 0.48860251
#: Coefficients of a splat from which on `colors` aren't looked at.
ALL_BANDS = 16
#: Ellipses whose shorter half axis is less, in pixels, are in no list.
LEAST_AXIS = 0.125


@dataclass(frozen=True)
class Image:
    """What images are made of: sizes and limits."""

    width: int
    height: int
    tile_size: int
    max_list_entries: int
    alpha_cutoff: float

    @classmethod
    def of(cls, op: ir.AnyOp) -> Image:
        """That of an operation."""
        names = ("width", "height", "tile_size", "max_list_entries", "alpha_cutoff")
        return cls(*(python_value(getattr(op, name)) for name in names))

    @property
    def columns(self) -> int:
        """Tiles in a row."""
        return -(-self.width // self.tile_size)

    @property
    def rows(self) -> int:
        """Rows of tiles."""
        return -(-self.height // self.tile_size)

    @property
    def tiles(self) -> int:
        """Tiles."""
        return self.columns * self.rows

    @property
    def pixels(self) -> int:
        """Pixels."""
        return self.width * self.height

    @property
    def shared(self) -> int:
        """The numbers that are prepared whatever the number of splats."""
        return self.max_list_entries + 2 * self.tiles + 3 * self.pixels + PARAMETERS


@dim_rule(mir.GaussianSplatPrepareOp)
def prepared_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """What is shared, and so much for each splat, or for one where there is none."""
    (count,) = operands[3]
    return (maximum(count, Size.of(1)) * OF_SPLAT + Image.of(op).shared,)


@dim_rule(mir.GaussianSplatRasterizeOp, mir.GaussianSplatRenderOp)
def image_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Four numbers for each pixel."""
    return (Size.of(4 * Image.of(op).pixels),)


@cost(mir.GaussianSplatPrepareOp)
def prepare_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Some hundred operations for each splat and its tiles, and pairs of splats, and of these or tiles with entries."""
    image, count = Image.of(op), sizes.count(op.opacities)
    entries = image.max_list_entries
    return Cost(count * (300 + 60 * image.tiles + 4 * count + 4 * entries) + entries * (60 * image.tiles + 8 * entries))


@cost(mir.GaussianSplatRasterizeOp)
def rasterize_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Sixty operations for each pixel and entry of its list; all of them may be in each."""
    image = Image.of(op)
    return Cost(60 * image.pixels * image.max_list_entries)


@cost(mir.GaussianSplatRenderOp)
def render_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Both of the above."""
    return Cost(prepare_cost(op, sizes).flops + rasterize_cost(op, sizes).flops)


# ----------------------------------------------------------------------------------------------------------------------
# The camera and the splats
# ----------------------------------------------------------------------------------------------------------------------


def _unit(v: np.ndarray) -> np.ndarray:
    """v / |v|, and (0, 0, 1) of what has hardly a length."""
    length = np.sqrt(np.sum(v * v, -1, keepdims=True))
    with np.errstate(all="ignore"):
        return np.where(length > 1e-8, v / length, np.array([0, 0, 1], v.dtype))


@dataclass(frozen=True)
class Camera:
    """Where pixels are seen from: a position, right, up and forward as rows, the distance of the image in pixels."""

    position: np.ndarray
    basis: np.ndarray
    focal: np.ndarray
    far: np.ndarray
    background: np.ndarray

    @classmethod
    def of(cls, meta: np.ndarray, image: Image) -> Camera:
        """That of the numbers of an operation."""
        position, target, up = meta[0:3], meta[3:6], meta[6:9]
        forward = _unit(target - position)
        right = _unit(np.cross(_unit(up), forward))
        basis = np.stack([right, _unit(np.cross(forward, right)), forward])
        half = meta.dtype.type(math.pi / 360)
        focal = meta.dtype.type(0.5 * image.height) / np.tan(meta[9] * half)
        return cls(position, basis, focal, meta[11], meta[12:15])

    def rays(self, image: Image) -> np.ndarray:
        """The directions of all pixels, [height, width, 3]."""
        dtype = self.basis.dtype
        x = (np.arange(image.width) + 0.5 - 0.5 * image.width).astype(dtype) / self.focal
        y = (np.arange(image.height) + 0.5 - 0.5 * image.height).astype(dtype) / self.focal
        right, up, forward = self.basis
        return _unit(x[None, :, None] * right + y[:, None, None] * up + forward)


def rotated(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """v of the world in the frame of a splat whose rotation is q = (w, x, y, z)."""
    w, u = q[..., :1], q[..., 1:]
    return v + 2 * np.cross(np.cross(v, u) + w * v, u)


def conjugate(q: np.ndarray) -> np.ndarray:
    """The inverse rotation."""
    return q * np.array([1, -1, -1, -1], q.dtype)


@dataclass(frozen=True)
class Scene:
    """The operands, by splat."""

    positions: np.ndarray
    scales: np.ndarray
    rotations: np.ndarray
    opacities: np.ndarray
    colors: np.ndarray
    coefficients: np.ndarray
    """[N, C, 3] with C >= 4: zeros where there are none."""
    given: int
    """C as given."""

    @classmethod
    def of(
        cls,
        positions: np.ndarray,
        scales: np.ndarray,
        rotations: np.ndarray,
        opacities: np.ndarray,
        colors: np.ndarray,
        sh_coeffs: np.ndarray,
    ) -> Scene:
        """That of an operation's operands."""
        n = len(opacities)
        given = len(sh_coeffs) // (3 * n) if n else 0
        coefficients = np.zeros((n, max(given, 4), 3), positions.dtype)
        coefficients[:, :given] = sh_coeffs[: 3 * n * given].reshape(n, given, 3)
        position, scale, color = (x.reshape(n, 3) for x in (positions, scales, colors))
        return cls(position, scale, rotations.reshape(n, 4), opacities, color, coefficients, given)

    @property
    def takes_colors(self) -> bool:
        """Whether colors are those given, not those of the coefficients."""
        return self.given < ALL_BANDS and bool(np.all(np.abs(self.coefficients[:, 0]) <= 1e-8))

    def shade(self, camera: Camera) -> np.ndarray:
        """The colors that the camera sees, [N, 3]."""
        first = self.coefficients[:, 0]
        if self.takes_colors:
            first = (np.clip(self.colors, 0, 1) - first.dtype.type(0.5)) / first.dtype.type(BAND0)
        x, y, z = (part[:, None] for part in self.directions(camera).T)
        second, third, fourth = (self.coefficients[:, band] for band in (1, 2, 3))
        dtype = first.dtype.type
        return dtype(0.5) + dtype(BAND0) * first + dtype(BAND1) * (z * third - y * second - x * fourth)

    def directions(self, camera: Camera) -> np.ndarray:
        """Unit vectors from the splats to the camera; zeros where they are in one place."""
        away = camera.position - self.positions
        length = np.sqrt(np.sum(away * away, -1, keepdims=True))
        with np.errstate(all="ignore"):
            return np.where(length > 1e-8, away / length, away.dtype.type(0))


def reach(opacities: np.ndarray, cutoff: float) -> np.ndarray:
    """The distance from its mean, in deviations, at which a splat's opacity is at the cutoff."""
    least = opacities.dtype.type(cutoff)
    return np.sqrt(np.maximum(-2 * np.log(least / np.maximum(np.clip(opacities, 0, 1), least)), 0))


@dataclass(frozen=True)
class Ellipses:
    """The outlines of splats on the image: centres, half extents, and conics (a, b, c) around the centres."""

    seen: np.ndarray
    center: np.ndarray
    extent: np.ndarray
    conic: np.ndarray
    shorter: np.ndarray
    """The shorter half axis."""


def outlines(scene: Scene, camera: Camera, image: Image, radius_scale: float) -> Ellipses:
    """What the camera sees of each splat.

    From the camera, in a space where the ellipsoid is the unit ball, the outline is a circle. Its points, and so their
    projections, are P0 + cos t Pa + sin t Pb, of which the dual conic is made.
    """
    dtype = scene.positions.dtype.type
    cutoff = dtype(image.alpha_cutoff)
    kappa = reach(scene.opacities, image.alpha_cutoff)
    axes = np.maximum(np.exp(scene.scales) * dtype(radius_scale) * kappa[:, None], dtype(1e-6))
    away = camera.position - scene.positions
    v = rotated(scene.rotations, away) / axes
    distance = np.sqrt(np.sum(v * v, -1))
    place = -away @ camera.basis.T
    with np.errstate(all="ignore"):
        n = v / distance[:, None]
        is_along = (np.abs(n[:, 2]) >= dtype(0.999))[:, None]
        e = np.where(is_along, np.array([0, 1, 0], dtype), np.array([0, 0, 1], dtype))
        first = _unit(np.cross(e, n))
        second = _unit(np.cross(n, first))
        circle = np.sqrt(np.maximum(1 - 1 / (distance * distance), 0))[:, None]

        def seen(local: np.ndarray) -> np.ndarray:
            return rotated(conjugate(scene.rotations), local * axes) @ camera.basis.T

        p0, pa, pb = place + seen(n / distance[:, None]), seen(circle * first), seen(circle * second)
        middle = p0[:, :2] / p0[:, 2:]
        pa, pb = (np.concatenate([p[:, :2] - middle * p[:, 2:], p[:, 2:]], -1) for p in (pa, pb))
        depth = p0[:, 2] * p0[:, 2] - pa[:, 2] * pa[:, 2] - pb[:, 2] * pb[:, 2]
        offset = -(pa[:, :2] * pa[:, 2:] + pb[:, :2] * pb[:, 2:]) / depth[:, None]
        products = [(0, 0), (0, 1), (1, 1)]
        spread = [
            (pa[:, i] * pa[:, j] + pb[:, i] * pb[:, j]) / depth + offset[:, i] * offset[:, j] for i, j in products
        ]
        center = (middle + offset) * camera.focal + np.array([image.width, image.height], dtype) * dtype(0.5)
        xx, xy, yy = (s * camera.focal * camera.focal for s in spread)
    everywhere = ~((distance > dtype(1 + 1e-6)) & (p0[:, 2] > dtype(1e-12)) & (depth > dtype(1e-12)))
    side = dtype(max(image.width, image.height))
    for value, fixed in ((xx, side * side), (xy, dtype(0)), (yy, side * side)):
        value[everywhere] = fixed
    center[everywhere] = np.array([image.width, image.height], dtype) * dtype(0.5)
    with np.errstate(all="ignore"):
        determinant = xx * yy - xy * xy
        longer = (xx + yy) * dtype(0.5) + np.sqrt((xx - yy) * (xx - yy) * dtype(0.25) + xy * xy)
        extent = np.stack([np.sqrt(xx), np.sqrt(yy)], -1)
        conic = np.stack([yy, -xy, xx], -1) / determinant[:, None]
        shorter = np.sqrt(determinant / longer)
        radius = (np.sqrt(longer) + 1)[:, None]
        limit = np.array([image.width, image.height], dtype)
        overlaps = np.all((center + radius >= 0) & (center - radius < limit), -1)
        in_front = ~everywhere | _in_frustum(place, np.max(axes, -1), camera, image)
        finite = np.all(np.isfinite(conic), -1) & np.all(np.isfinite(center), -1)
        found = (np.clip(scene.opacities, 0, 1) >= cutoff) & (place[:, 2] > dtype(1e-4))
    return Ellipses(found & overlaps & in_front & finite, center, extent, conic, shorter)


def _in_frustum(place: np.ndarray, radius: np.ndarray, camera: Camera, image: Image) -> np.ndarray:
    """Whether balls may be in the part of space that the image shows."""
    dtype = place.dtype.type
    f, x, y = camera.focal, dtype(0.5 * image.width), dtype(0.5 * image.height)
    z = place[:, 2]
    inside = (z + radius > dtype(1e-4)) & (z - radius < camera.far)
    for axis, side in ((0, x), (1, y)):
        normal = np.sqrt(f * f + side * side)
        for sign in (1, -1):
            inside &= sign * f * place[:, axis] + side * z >= -radius * normal
    return inside


# ----------------------------------------------------------------------------------------------------------------------
# Lists and images
# ----------------------------------------------------------------------------------------------------------------------


def tiles_of(number: int, own: Ellipses, image: Image) -> list[int]:
    """The tiles that an ellipse touches, along lines of its longer side."""
    (x, y), (ex, ey), (a, b, c) = own.center[number], own.extent[number], own.conic[number]
    dtype = x.dtype.type
    if not own.shorter[number] >= LEAST_AXIS:
        return []
    size = dtype(image.tile_size)
    lines = [(row, column) for row in range(image.rows) for column in range(image.columns)]
    if not ex > ey:
        lines = [(row, column) for column in range(image.columns) for row in range(image.rows)]
    return [
        row * image.columns + column
        for row, column in lines
        if _least(a, b, c, column * size - x, (column + 1) * size - x, row * size - y, (row + 1) * size - y)
        <= dtype(1 + 1e-6)
    ]


def _least(a: float, b: float, c: float, x0: float, x1: float, y0: float, y1: float) -> float:
    """The least a x^2 + 2 b x y + c y^2 in a rectangle."""
    if x0 <= 0 <= x1 and y0 <= 0 <= y1:
        return 0.0

    def at(x: float, y: float) -> float:
        return a * x * x + 2 * b * x * y + c * y * y

    along_y = [at(x, min(max(-b * x / c, y0), y1)) for x in (x0, x1)]
    along_x = [at(min(max(-b * y / a, x0), x1), y) for y in (y0, y1)]
    return min(*along_y, *along_x)


@reference(mir.GaussianSplatPrepareOp)
def prepare(
    positions: np.ndarray,
    scales: np.ndarray,
    rotations: np.ndarray,
    opacities: np.ndarray,
    colors: np.ndarray,
    sh_coeffs: np.ndarray,
    meta: np.ndarray,
    *,
    width: int = 64,
    height: int = 64,
    tile_size: int = 16,
    max_list_entries: int = 576,
    alpha_cutoff: float = 1 / 255,
    radius_scale: float = 1.6,
    transmittance_threshold: float = 0.01,
) -> np.ndarray:
    """The vector that images are made of: see the operation's documentation."""
    image = Image(width, height, tile_size, max_list_entries, alpha_cutoff)
    camera = Camera.of(meta, image)
    scene = Scene.of(positions, scales, rotations, opacities, colors, sh_coeffs)
    dtype, n = positions.dtype.type, len(opacities)
    inverse = 1 / np.maximum(np.exp(scene.scales) * dtype(radius_scale) * dtype(3), dtype(1e-6))
    away = camera.position - scene.positions
    own = outlines(scene, camera, image, radius_scale)
    order = np.argsort(np.where(own.seen, np.sqrt(np.sum(away * away, -1)), np.inf), kind="stable")
    entries = [(tile, splat) for splat in order if own.seen[splat] for tile in tiles_of(splat, own, image)]
    entries = sorted(entries[:max_list_entries], key=lambda entry: entry[0])
    listed, ranges = np.zeros(max_list_entries, dtype), np.tile(np.array([NOWHERE, 0], dtype), (image.tiles, 1))
    for place, (tile, splat) in enumerate(entries):
        listed[place] = splat
        ranges[tile] = min(ranges[tile, 0], place), place + 1
    columns = [
        np.concatenate([scene.shade(camera), opacities[:, None]], -1),
        own.seen[:, None],
        rotated(scene.rotations, away) * inverse,
        inverse,
        scene.rotations,
    ]
    parts = [column if n else np.zeros((1, column.shape[1])) for column in columns]
    numbers = [width, height, tile_size, image.columns, alpha_cutoff, transmittance_threshold]
    parts += [listed, ranges, camera.rays(image)]
    parts += [np.array(numbers), np.maximum(camera.background, 0) ** dtype(2.2), np.zeros(2)]
    return np.concatenate([part.reshape(-1) for part in parts]).astype(positions.dtype)


@reference(mir.GaussianSplatRasterizeOp)
def rasterize(
    prepared: np.ndarray,
    meta: np.ndarray,
    *,
    width: int = 64,
    height: int = 64,
    tile_size: int = 16,
    max_list_entries: int = 576,
    alpha_cutoff: float = 1 / 255,
    transmittance_threshold: float = 0.01,
) -> np.ndarray:
    """The image, tile by tile: all pixels of one at once, the entries of its list one after the other."""
    image = Image(width, height, tile_size, max_list_entries, alpha_cutoff)
    dtype = prepared.dtype.type
    n = (len(prepared) - image.shared) // OF_SPLAT
    bounds = np.cumsum([0, 4 * n, n, 3 * n, 3 * n, 4 * n, max_list_entries, 2 * image.tiles, 3 * image.pixels])
    color, valid, local, inverse, turn, listed, ranges, rays = (
        prepared[start:stop] for start, stop in pairwise(bounds)
    )
    background = np.maximum(meta[12:15], 0) ** dtype(2.2)
    rays = rays.reshape(height, width, 3)
    result = np.empty((height, width, 4), prepared.dtype)
    result[...] = [*background, 1]
    for tile in range(image.tiles):
        begin, end = (bounded(number, max_list_entries) for number in ranges[2 * tile : 2 * tile + 2])
        if begin >= end:
            continue
        row, column = divmod(tile, image.columns)
        part = np.s_[row * tile_size : (row + 1) * tile_size, column * tile_size : (column + 1) * tile_size]
        total, left = np.zeros_like(rays[part]), np.ones_like(rays[part][..., 0])
        for entry in range(begin, end):
            i = bounded(listed[entry], n - 1)
            if not valid[i] > 0:
                continue
            own = slice(3 * i, 3 * i + 3)
            opacity = color[4 * i + 3]
            alpha = alphas(local[own], inverse[own], turn[4 * i : 4 * i + 4], opacity, rays[part], alpha_cutoff)
            hit = (alpha >= dtype(alpha_cutoff)) & ~(left < dtype(transmittance_threshold))
            alpha = np.where(hit, alpha, 0)
            after = total + (left * alpha)[..., None] * color[4 * i : 4 * i + 3]
            total = np.where(hit[..., None], after, total)
            left = left * (1 - alpha)
        shown = np.maximum(total + left[..., None] * meta[12:15], 0) ** dtype(2.2)
        result[part] = np.concatenate([shown, (1 - left)[..., None]], -1)
    return result.reshape(-1)


def bounded(number: float, most: int) -> int:
    """A number as a position from 0 to `most`; NaN counts as 0."""
    return int(min(max(number, 0), most)) if number == number else 0


def alphas(
    local: np.ndarray, inverse: np.ndarray, turn: np.ndarray, opacity: np.ndarray, rays: np.ndarray, cutoff: float
) -> np.ndarray:
    """The opacity of a splat along rays: the density where they are nearest to it, in front of the camera."""
    dtype = rays.dtype.type
    own = np.clip(opacity, 0, 1)
    kappa = reach(np.asarray(opacity), cutoff)
    direction = rotated(turn, rays) * inverse
    square = np.sum(direction * direction, -1)
    with np.errstate(all="ignore"):
        t = -np.sum(local * direction, -1) / square
        nearest = local + t[..., None] * direction
        alpha = own * np.exp(dtype(-4.5) * np.sum(nearest * nearest, -1))
        hits = (kappa > 0) & (square * (9 / (kappa * kappa)) > dtype(1e-10)) & (t > 0)
    return np.where(hits, alpha, dtype(0))


@reference(mir.GaussianSplatRenderOp)
def render(
    positions: np.ndarray,
    scales: np.ndarray,
    rotations: np.ndarray,
    opacities: np.ndarray,
    colors: np.ndarray,
    sh_coeffs: np.ndarray,
    meta: np.ndarray,
    *,
    width: int = 64,
    height: int = 64,
    tile_size: int = 16,
    max_list_entries: int = 576,
    alpha_cutoff: float = 1 / 255,
    radius_scale: float = 1.6,
    transmittance_threshold: float = 0.01,
) -> np.ndarray:
    """The image of splats; zeros where there is none."""
    if not len(opacities):
        return np.zeros(4 * width * height, positions.dtype)
    shared: dict[str, Any] = {
        "width": width,
        "height": height,
        "tile_size": tile_size,
        "max_list_entries": max_list_entries,
        "alpha_cutoff": alpha_cutoff,
        "transmittance_threshold": transmittance_threshold,
    }
    operands = (positions, scales, rotations, opacities, colors, sh_coeffs, meta)
    return rasterize(prepare(*operands, radius_scale=radius_scale, **shared), meta, **shared)
