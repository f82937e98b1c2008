# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of the gradient of images of Gaussian splats: see `splat_gradient` for what they compute.

Nothing is added up by several threads: each entry of a list sums over the pixels of its tile, and each splat over the
entries. For what lies behind an entry at a pixel, the list is walked from its begin.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir.dialects import arith

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.functions import FUNCTIONS
from rlx_mlir.mir.linalg import (
    SizeLike,
    as_index,
    collapse,
    divided,
    empty,
    filled,
    for_each,
    generic,
    plus,
    size_of,
    split_dims,
    times,
    write_slice,
)
from rlx_mlir.mir.registry import TO_LINALG
from rlx_mlir.mir.scalars import Scalar, compute, element, exp, extract, index, sqrt
from rlx_mlir.mir.splat_loops import (
    Operands,
    Prepared,
    Scene,
    Turn,
    Vector,
    blended,
    conjugate,
    cross,
    density,
    dot,
    each,
    joined,
    less,
    numbers,
    prepared,
    rotated,
    scaled,
    tensors,
    unit,
)
from rlx_mlir.mir.splats import BAND0, BAND1, Image
from rlx_mlir.rewriting import Rewriter

#: What entries and splats sum up: by color, by opacity, by the camera and by rays in their frame, by rotation.
SUMS = {"color": 3, "opacity": 1, "local": 3, "axes": 3, "turn": 4}


def turn_gradient(q: Turn, v: Vector, y: Vector) -> tuple[Scalar, ...]:
    """The gradient of y . rot(q, v) by q."""
    w, u = q[0], (q[1], q[2], q[3])
    vu, yu, yv, turned = dot(v, u), dot(y, u), dot(y, v), cross(y, v)
    by_u = [(y[i] * vu + v[i] * yu - u[i] * 2.0 * yv + w * turned[i]) * 2.0 for i in range(3)]
    return dot(y, cross(v, u)) * 2.0, *by_u


class _Pixels:
    """What pixels give for entries and for splats."""

    def __init__(self, op: ir.AnyOp, scene: Scene) -> None:
        self._op, self._scene, self._image = op, scene, scene.image
        self._prepared = Prepared(prepared(scene), scene.image)
        self._threshold = float(python_value(op.transmittance_threshold))
        self._background = numbers(op.meta, range(12, 15))
        self._entries = self._image.max_list_entries
        #: Pixels of a tile: no more than the image has.
        self._sides = [min(self._image.tile_size, side) for side in (self._image.height, self._image.width)]

    def _wanted(self) -> list[ir.Value]:
        """The gradient by the linear color of each pixel, before max(x, 0)^2.2."""
        image = self._image
        view = split_dims(self._op.d_rgba, [[0, 1, 2]], [image.height, image.width, 4])
        given: Operands = [(view, [0, 1, ir.AffineConstantExpr.get(at)]) for at in range(3)]
        clip = python_value(self._op.loss_grad_clip)

        def body(*scalars: Scalar) -> tuple[Scalar, ...]:
            gradient, background = scalars[:3], scalars[3:6]
            if clip is not None:
                gradient = tuple(g.max(-clip).min(clip) for g in gradient)
            _, *total, left = blended(self._prepared, image, self._threshold, background[0])
            linear = [(part + left * own).max(0.0) for part, own in zip(total, background, strict=True)]
            slopes = [compute(FUNCTIONS["pow"], x, x.like(1.2)) * 2.2 for x in linear]
            return tuple(g * slope for g, slope in zip(gradient, slopes, strict=True))

        outputs = tensors(3, [image.height, image.width], element("f32"))
        made: list[ir.Value] = generic(2, [*given, *self._background], outputs, body)
        return made

    def _tiles(self) -> ir.Value:
        """The tile of each entry; -1 without one."""
        i64 = element("i64")

        def body(_: Scalar, found: Scalar) -> Scalar:
            begin, end = self._prepared.bounds(index(1))
            is_in = (index(0) >= begin) & (index(0) < end)
            return is_in.select(index(1).to(i64), found)

        shape = (empty([self._image.tiles], i64), [1])
        return generic(2, [shape], [(filled([self._entries], i64, -1), [0])], body, reduction=[1])

    def _pixel(self, tile: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """Whether a tile has the pixel of a nest along entries, rows and columns, and its row and column."""
        image = self._image
        own = tile.max(0).to("index")
        row = (own // image.columns) * image.tile_size + index(1)
        column = (own % image.columns) * image.tile_size + index(2)
        exists = (tile >= 0) & (row < image.height) & (column < image.width)
        return exists, exists.select(row, 0), exists.select(column, 0)

    def _alphas(self, tiles: ir.Value) -> ir.Value:
        """The opacity of each entry at each pixel of its tile; 0 where it doesn't count."""
        image = self._image

        def body(tile: Scalar, _: Scalar) -> Scalar:
            exists, row, column = self._pixel(tile)
            opacity, valid, local, inverse, turn = self._prepared.splat(index(0))[1:]
            ray = self._prepared.ray(row * image.width + column)
            alpha = density(local, inverse, turn, opacity, ray, image.alpha_cutoff)
            counts = exists & (valid > 0.0) & (alpha >= image.alpha_cutoff)
            return counts.select(alpha, 0.0)

        target = (empty([self._entries, *self._sides], element("f32")), [0, 1, 2])
        return generic(3, [(tiles, [0])], [target], body)

    def _hit(
        self, alphas: ir.Value, tile: Scalar, wanted: Vector, background: Sequence[Scalar], exists: Scalar
    ) -> tuple[Scalar, Scalar, Scalar]:
        """At an entry's pixel: what of it is left, its opacity, and the gradient by what of that is left behind it."""
        begin, end = self._prepared.bounds(tile.max(0).to("index"))
        end = exists.select(end, begin)
        zero, one = wanted[0].like(0), wanted[0].like(1)
        own, *pixel = (index(loop) for loop in range(3))  # the loop inside has no positions of the nest

        def entry(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            left, own_left, own_alpha, inner, behind = (Scalar(value) for value in carried)
            at = Scalar(number)
            goes_on = (left < self._threshold).compare("eq", 0)
            alpha = goes_on.select(extract(alphas, [at, *pixel]), 0.0)
            is_own, is_after = at.compare("eq", own), at > own
            own_left, own_alpha = is_own.select(left, own_left), is_own.select(alpha, own_alpha)
            added = inner * alpha * dot(wanted, self._prepared.color(at))
            behind = is_after.select(behind + added, behind)
            inner = is_after.select(inner * (one - alpha), inner)
            return [x.value for x in (left * (one - alpha), own_left, own_alpha, inner, behind)]

        start = [x.value for x in (one, zero, zero, one, zero)]
        found = for_each(begin.value, end.value, start, entry)
        _, left, alpha, inner, behind = (Scalar(value) for value in found)
        return left, alpha, behind + inner * dot(wanted, background)

    def _of_entries(self, tiles: ir.Value) -> list[ir.Value]:
        """The sums of each entry over the pixels of its tile."""
        image = self._image
        planes, alphas = self._wanted(), self._alphas(tiles)

        def body(tile: Scalar, _: Scalar, *scalars: Scalar) -> tuple[Scalar, ...]:
            background, totals = scalars[:3], scalars[3:]
            exists, row, column = self._pixel(tile)
            red, green, blue = (extract(plane, [row, column]) for plane in planes)
            wanted = (red, green, blue)
            left, alpha, behind = self._hit(alphas, tile, wanted, background, exists)
            color, _, _, local, inverse, turn = self._prepared.splat(index(0))
            ray = self._prepared.ray(row * image.width + column)
            is_hit = alpha > 0.0
            weight = is_hit.select(left * (dot(wanted, color) - behind) * alpha, 0.0)
            direction = each(rotated(turn, ray), inverse)
            t = -dot(local, direction) / dot(direction, direction)
            nearest = [is_hit.select(own + along * t, 0.0) for own, along in zip(local, direction, strict=True)]
            by_local = scaled((nearest[0], nearest[1], nearest[2]), weight * -9.0)
            by_direction = scaled(by_local, is_hit.select(t, 0.0))
            along = [is_hit.select(part, 0.0) for part in direction]
            by_axes = each(by_direction, (along[0], along[1], along[2]))
            by_turn = turn_gradient(turn, ray, each(by_direction, inverse))
            parts = [*scaled(wanted, is_hit.select(left * alpha, 0.0)), weight, *by_local, *by_axes, *by_turn]
            return tuple(total + part for total, part in zip(totals, parts, strict=True))

        f32 = element("f32")
        outputs = [(filled([self._entries], f32, 0), [0]) for _ in range(sum(SUMS.values()))]
        operands: Operands = [(tiles, [0]), (alphas, [0, 1, 2]), *self._background]
        found: list[ir.Value] = generic(3, operands, outputs, body, reduction=[1, 2])
        return found

    def sums(self) -> list[ir.Value]:
        """The sums of each splat over the entries that are its own."""
        tiles = self._tiles()
        values = self._of_entries(tiles)
        splats = (empty([self._scene.count], element("f32")), [0])

        def body(_: Scalar, tile: Scalar, *scalars: Scalar) -> tuple[Scalar, ...]:
            given, totals = scalars[: len(values)], scalars[len(values) :]
            is_own = (tile >= 0) & self._prepared.number(index(1)).compare("eq", index(0))
            return tuple(total + is_own.select(x, 0.0) for x, total in zip(given, totals, strict=True))

        outputs = [(filled([self._scene.count], element("f32"), 0), [0]) for _ in values]
        operands: Operands = [splats, (tiles, [1]), *((value, [1]) for value in values)]
        found: list[ir.Value] = generic(2, operands, outputs, body, reduction=[1])
        return found


class _Splats:
    """The gradients by a scene's operands, from the sums of its splats."""

    def __init__(self, scene: Scene, sums: Sequence[ir.Value]) -> None:
        self._scene, self._sums = scene, sums
        self._read, self._given = scene.coefficients()
        self._is_plain = scene.takes_colors(self._read, self._given)

    def _operands(self) -> Operands:
        scene = self._scene
        own = [*scene.of_splat(scene.positions, 3), *scene.of_splat(scene.scales, 3)]
        own += [*scene.of_splat(scene.rotations, 4), (scene.opacities, [0]), *scene.of_splat(scene.colors, 3)]
        return [*own, *((value, [0]) for value in self._sums), (self._is_plain, []), *scene.camera[:3]]

    def _view(self, shade: Vector, away: Vector) -> Vector:
        """The gradient by the vector to the camera, on which colors depend."""
        length = sqrt(dot(away, away))
        direction = unit(away, instead=(0, 0, 0))

        def of_band(band: int) -> Scalar:
            first, second, third = (self._read(index(0), band, color) for color in range(3))
            return dot((first, second, third), shade) * BAND1

        along = (-of_band(3), -of_band(1), of_band(2))
        across = less(along, scaled(direction, dot(along, direction)))
        is_away = length > 1e-8
        x, y, z = (is_away.select(part / length, 0.0) for part in across)
        return x, y, z

    def by_splat(self) -> list[ir.Value]:
        """Those by position, scale, rotation, opacity and color: 14 tensors [N]."""
        ratio = float(python_value(self._scene.op.radius_scale))

        def body(*scalars: Scalar) -> tuple[Scalar, ...]:
            place, scale, turn, (opacity,), color = _cut(scalars, [3, 3, 4, 1, 3])
            shade, (weight,), local, axes, by_rays = _cut(scalars[14:], list(SUMS.values()))
            is_plain, *eye = scalars[28:32]
            q = (turn[0], turn[1], turn[2], turn[3])
            away = less((eye[0], eye[1], eye[2]), (place[0], place[1], place[2]))
            sizes = [exp(part) * ratio * 3.0 for part in scale]
            inverse = [size.like(1) / size.max(1e-6) for size in sizes]
            frame = (inverse[0], inverse[1], inverse[2])
            camera = each(rotated(q, away), frame)
            by_camera = each((local[0], local[1], local[2]), frame)
            by_away = rotated(conjugate(q), by_camera)
            by_view = self._view((shade[0], shade[1], shade[2]), away)
            moved = [-(a + b) for a, b in zip(by_away, by_view, strict=True)]
            grown = [
                (s > 1e-6).select(-(a * b + c), 0.0) for s, a, b, c in zip(sizes, local, camera, axes, strict=True)
            ]
            turned = [a + b for a, b in zip(turn_gradient(q, away, by_camera), by_rays, strict=True)]
            is_inside = (opacity > 0.0) & (opacity < 1.0)
            lit = is_inside.select(weight / is_inside.select(opacity, 1.0), 0.0)
            shaded = [(is_plain & (c >= 0.0) & (c <= 1.0)).select(s, 0.0) for c, s in zip(color, shade, strict=True)]
            return *moved, *grown, *turned, lit, *shaded

        made: list[ir.Value] = generic(1, self._operands(), tensors(14, [self._scene.count], element("f32")), body)
        return made

    def by_coefficient(self, coefficients: SizeLike) -> ir.Value:
        """Those by coefficients, of so many bands, as a vector."""
        operands: Operands = [(value, [0]) for value in self._sums[:3]]
        operands += [*self._scene.of_splat(self._scene.positions, 3), (self._is_plain, []), *self._scene.camera[:3]]

        def body(*scalars: Scalar) -> Scalar:
            shade, place, (is_plain,), eye, _ = _cut(scalars, [3, 3, 1, 3, 1])
            x, y, z = unit(less((eye[0], eye[1], eye[2]), (place[0], place[1], place[2])), instead=(0, 0, 0))
            own = index(2).compare("eq", 0).select(shade[0], index(2).compare("eq", 1).select(shade[1], shade[2]))
            factors = (is_plain.select(x.like(0), BAND0), y * -BAND1, z * BAND1, x * -BAND1)
            found = own.like(0)
            for band, factor in enumerate(factors):
                found = index(1).compare("eq", band).select(factor * own, found)
            return found

        target = (empty([self._scene.count, coefficients, 3], element("f32")), [0, 1, 2])
        return collapse(generic(3, operands, [target], body), [[0, 1, 2]])


def _cut(scalars: Sequence[Scalar], widths: Sequence[int]) -> list[Sequence[Scalar]]:
    """Scalars in groups of these sizes."""
    found, at = [], 0
    for width in widths:
        found.append(scalars[at : at + width])
        at += width
    return found


def _larger(left: SizeLike, right: SizeLike) -> SizeLike:
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    return arith.MaxSIOp(as_index(left), as_index(right)).result


@TO_LINALG.pattern(mir.GaussianSplatRenderBackwardOp)
def lower_render_backward(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """gaussian_splat_render_backward -> generics: of pixels, of entries and their pixels, of splats and entries"""
    scene = Scene(op, Image.of(op))
    own = _Splats(scene, _Pixels(op, scene).sums())
    count, length = scene.count, size_of(op.sh_coeffs, 0)
    values = own.by_splat()
    bands = divided(length, _larger(times(3, count), 1))
    result = filled([plus(times(14, count), _larger(length, times(3, count)))], element("f32"), 0)
    at: SizeLike = 0
    for width in (3, 3, 4, 1, 3):
        group, values = values[:width], values[width:]
        part = joined(group) if width > 1 else group[0]
        result = write_slice(part, result, [at], [times(width, count)])
        at = plus(at, times(width, count))
    by_coefficient = own.by_coefficient(bands)
    result = write_slice(by_coefficient, result, [at], [times(3, count, bands)])
    rewriter.replace(op, result)
