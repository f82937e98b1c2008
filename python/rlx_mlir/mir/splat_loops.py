# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of Gaussian splats, for CPUs and GPUs: no nest depends on the order in which its results are computed.

Sorting is by counting: an entry's place is the number of those before it. What is counted in vain, N^2 and M^2 pairs of
N splats and M entries of lists, is a comparison each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mlir.dialects import arith

from rlx_mlir import ir
from rlx_mlir.attributes import elements_attribute, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.functions import FUNCTIONS
from rlx_mlir.mir.linalg import (
    Map,
    SizeLike,
    as_index,
    collapse,
    divided,
    empty,
    extract_slice,
    filled,
    for_each,
    generic,
    index_constant,
    plus,
    size_of,
    split_dims,
    times,
    write_slice,
)
from rlx_mlir.mir.registry import TO_LINALG
from rlx_mlir.mir.scalars import Scalar, absolute, compute, element, exp, extract, index, sqrt
from rlx_mlir.mir.splats import ALL_BANDS, BAND0, BAND1, LEAST_AXIS, NOWHERE, OF_SPLAT, Image
from rlx_mlir.rewriting import Rewriter

#: Three numbers, as those of a place or a direction.
Vector = tuple[Scalar, Scalar, Scalar]
#: A rotation (w, x, y, z).
Turn = tuple[Scalar, Scalar, Scalar, Scalar]

# ----------------------------------------------------------------------------------------------------------------------
# Arithmetic of vectors
# ----------------------------------------------------------------------------------------------------------------------


def dot(a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    """The scalar product."""
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total


def cross(a: Vector, b: Vector) -> Vector:
    """The vector product."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def added(a: Vector, b: Vector) -> Vector:
    """a + b"""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def less(a: Vector, b: Vector) -> Vector:
    """a - b"""
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def scaled(a: Vector, factor: Scalar | float) -> Vector:
    """a times a number."""
    return a[0] * factor, a[1] * factor, a[2] * factor


def each(a: Vector, b: Vector) -> Vector:
    """The products of the parts."""
    return a[0] * b[0], a[1] * b[1], a[2] * b[2]


def unit(v: Vector, least: float = 1e-8, instead: Sequence[float] = (0, 0, 1)) -> Vector:
    """v / |v|; something else where that has hardly a length."""
    length = sqrt(dot(v, v))
    found = length > least
    x, y, z = (found.select(part / length, other) for part, other in zip(v, instead, strict=True))
    return x, y, z


def rotated(q: Turn, v: Vector) -> Vector:
    """v of the world in the frame of a splat."""
    u = (q[1], q[2], q[3])
    return added(v, scaled(cross(added(cross(v, u), scaled(v, q[0])), u), 2.0))


def conjugate(q: Turn) -> Turn:
    """The inverse rotation."""
    return q[0], -q[1], -q[2], -q[3]


def clamped(x: Scalar) -> Scalar:
    """x between 0 and 1."""
    return x.max(0.0).min(1.0)


def reach(opacity: Scalar, cutoff: float) -> Scalar:
    """The distance from its mean, in deviations, at which a splat's opacity is at the cutoff."""
    ratio = opacity.like(cutoff) / clamped(opacity).max(cutoff)
    return sqrt((compute(FUNCTIONS["log"], ratio) * -2.0).max(0.0))


def shown(x: Scalar) -> Scalar:
    """A linear number as images have it: max(x, 0)^2.2."""
    return compute(FUNCTIONS["pow"], x.max(0.0), x.like(2.2))


# ----------------------------------------------------------------------------------------------------------------------
# The camera
# ----------------------------------------------------------------------------------------------------------------------

Operands = list[tuple[ir.Value, Map]]


def numbers(value: ir.Value, positions: Sequence[int]) -> Operands:
    """Single numbers of a vector, as operands of a nest."""
    return [(value, [ir.AffineConstantExpr.get(at)]) for at in positions]


def tensors(count: int, sizes: Sequence[SizeLike], type: ir.Type) -> Operands:
    """Destinations of a nest along these sizes."""
    return [(empty(sizes, type), range(len(sizes))) for _ in range(count)]


@dataclass(frozen=True)
class Camera:
    """Where pixels are seen from, by the scalars of a body."""

    position: Vector
    right: Vector
    up: Vector
    forward: Vector
    focal: Scalar

    #: Numbers of `operands`.
    COUNT = 13

    @staticmethod
    def operands(meta: ir.Value, image: Image) -> Operands:
        """What a body gets it from."""
        f32 = element("f32")

        def body(*given: Scalar) -> tuple[Scalar, ...]:
            position, target, up = (given[at : at + 3] for at in (0, 3, 6))
            forward = unit(less(_vector(target), _vector(position)))
            right = unit(cross(unit(_vector(up)), forward))
            half = compute(FUNCTIONS["tan"], given[9] * (math.pi / 360))
            return *right, *unit(cross(forward, right)), *forward, half.like(0.5 * image.height) / half

        made = generic(0, numbers(meta, range(10)), tensors(10, [], f32), body)
        return [*numbers(meta, range(3)), *((value, []) for value in made)]

    @classmethod
    def of(cls, scalars: Sequence[Scalar]) -> Camera:
        """That of a body's scalars."""
        position, right, up, forward = (_vector(scalars[at : at + 3]) for at in (0, 3, 6, 9))
        return cls(position, right, up, forward, scalars[12])

    def seen(self, v: Vector) -> Vector:
        """A direction of the world by right, up and forward."""
        return dot(self.right, v), dot(self.up, v), dot(self.forward, v)

    def ray(self, x: Scalar, y: Scalar, image: Image) -> Vector:
        """The direction of a pixel."""
        across = (x + (0.5 - 0.5 * image.width)) / self.focal
        upwards = (y + (0.5 - 0.5 * image.height)) / self.focal
        return unit(added(added(scaled(self.right, across), scaled(self.up, upwards)), self.forward))


def _vector(scalars: Sequence[Scalar]) -> Vector:
    x, y, z = scalars
    return x, y, z


# ----------------------------------------------------------------------------------------------------------------------
# Outlines
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outline:
    """The ellipse of a splat on the image: see `splats.outlines`."""

    seen: Scalar
    is_listed: Scalar
    center: tuple[Scalar, Scalar]
    conic: Vector
    is_wide: Scalar


def outline(
    place: Vector, turn: Turn, axes: Vector, opacity: Scalar, camera: Camera, far: Scalar, image: Image
) -> Outline:
    """That of a splat at a place, by its half axes."""
    one, away = opacity.like(1), less(camera.position, place)
    x, y, z = (-part for part in camera.seen(away))
    turned = rotated(turn, away)
    v = (turned[0] / axes[0], turned[1] / axes[1], turned[2] / axes[2])
    distance = sqrt(dot(v, v))
    n = (v[0] / distance, v[1] / distance, v[2] / distance)
    is_along = absolute(n[2]) >= 0.999
    e = (one.like(0), is_along.select(one, 0.0), is_along.select(0.0, one))
    first = unit(cross(e, n))
    circle = sqrt((one - one / (distance * distance)).max(0.0))

    def projected(local: Vector) -> Vector:
        return camera.seen(rotated(conjugate(turn), each(local, axes)))

    near = projected((n[0] / distance, n[1] / distance, n[2] / distance))
    p0 = added((x, y, z), near)
    pa, pb = (projected(scaled(side, circle)) for side in (first, unit(cross(n, first))))
    middle = (p0[0] / p0[2], p0[1] / p0[2])
    depth = p0[2] * p0[2] - pa[2] * pa[2] - pb[2] * pb[2]
    moved = [(p[0] - middle[0] * p[2], p[1] - middle[1] * p[2]) for p in (pa, pb)]
    offset = [-(moved[0][i] * pa[2] + moved[1][i] * pb[2]) / depth for i in range(2)]
    is_whole = (distance > 1 + 1e-6) & (p0[2] > 1e-12) & (depth > 1e-12)
    side = float(max(image.width, image.height)) ** 2

    def spread(i: int, j: int, instead: float) -> Scalar:
        total = (moved[0][i] * moved[0][j] + moved[1][i] * moved[1][j]) / depth + offset[i] * offset[j]
        return is_whole.select(total * camera.focal * camera.focal, instead)

    xx, xy, yy = spread(0, 0, side), spread(0, 1, 0.0), spread(1, 1, side)
    sides = (0.5 * image.width, 0.5 * image.height)
    center = [is_whole.select((middle[i] + offset[i]) * camera.focal + sides[i], sides[i]) for i in range(2)]
    determinant = xx * yy - xy * xy
    longer = (xx + yy) * 0.5 + sqrt((xx - yy) * (xx - yy) * 0.25 + xy * xy)
    conic = (yy / determinant, -xy / determinant, xx / determinant)
    radius = sqrt(longer) + 1.0
    finite = conic[0].compare("eq", conic[0])
    for value in (*conic, *center):
        finite = finite & (absolute(value) < math.inf)
    overlaps = (center[0] + radius >= 0.0) & (center[1] + radius >= 0.0)
    overlaps = overlaps & (center[0] - radius < image.width) & (center[1] - radius < image.height)
    ball = axes[0].max(axes[1]).max(axes[2])
    before = is_whole | _in_frustum((x, y, z), ball, camera.focal, far, image)
    found = (clamped(opacity) >= image.alpha_cutoff) & (z > 1e-4) & finite & overlaps & before
    is_listed = found & (sqrt(determinant / longer) >= LEAST_AXIS)
    return Outline(found, is_listed, (center[0], center[1]), conic, sqrt(xx) > sqrt(yy))


def _in_frustum(place: Vector, radius: Scalar, focal: Scalar, far: Scalar, image: Image) -> Scalar:
    """Whether a ball may be in the part of space that the image shows."""
    x, y, z = place
    inside = (z + radius > 1e-4) & (z - radius < far)
    for part, half in ((x, 0.5 * image.width), (y, 0.5 * image.height)):
        reached = -radius * sqrt(focal * focal + half * half)
        for side in (part * focal, -(part * focal)):
            inside = inside & (side + z * half >= reached)
    return inside


def touches(center: Sequence[Scalar], conic: Vector, row: Scalar, column: Scalar, image: Image) -> Scalar:
    """Whether an ellipse reaches a tile, whose row and column are floats."""
    a, b, c = conic
    size = float(image.tile_size)
    x0, x1 = column * size - center[0], (column + 1.0) * size - center[0]
    y0, y1 = row * size - center[1], (row + 1.0) * size - center[1]

    def at(x: Scalar, y: Scalar) -> Scalar:
        return a * x * x + b * 2.0 * x * y + c * y * y

    along_y = [at(x, (-b * x / c).max(y0).min(y1)) for x in (x0, x1)]
    along_x = [at((-b * y / a).max(x0).min(x1), y) for y in (y0, y1)]
    least = along_y[0].min(along_y[1]).min(along_x[0]).min(along_x[1])
    inside = (x0 <= 0.0) & (x1 >= 0.0) & (y0 <= 0.0) & (y1 >= 0.0)
    return inside | (least <= 1 + 1e-6)


# ----------------------------------------------------------------------------------------------------------------------
# Scenes
# ----------------------------------------------------------------------------------------------------------------------


class Scene:
    """The seven operands of an operation, by splat."""

    def __init__(self, op: ir.AnyOp, image: Image) -> None:
        self.image, self.op = image, op
        lengths = [(op.opacities, 1), (op.positions, 3), (op.scales, 3), (op.rotations, 4), (op.colors, 3)]
        known = (size_of(value, 0) for value, _ in lengths)
        sizes = [divided(size, each) for size, (_, each) in zip(known, lengths, strict=True)]
        self.count = next((size for size in sizes if isinstance(size, int)), sizes[0])
        self.positions, self.scales, self.rotations, self.colors = (
            split_dims(value, [[0, 1]], [self.count, size]) for value, size in lengths[1:]
        )
        self.opacities = split_dims(op.opacities, [[0]], [self.count])
        self.camera = Camera.operands(op.meta, image)

    def of_splat(self, value: ir.Value, count: int) -> Operands:
        """The numbers of a splat, along the first loop of a nest."""
        return [(value, [0, ir.AffineConstantExpr.get(at)]) for at in range(count)]

    def coefficients(self) -> tuple[Callable[[Scalar, int, int], Scalar], Scalar]:
        """What gives a coefficient (of a splat, by its band and color), 0 where there is none; and how many there are,
        which is a scalar of index."""
        length = size_of(self.op.sh_coeffs, 0)
        padded = filled([plus(length, 1)], element("f32"), 0)
        padded = write_slice(self.op.sh_coeffs, padded, [0], [length])
        splats = Scalar(as_index(times(3, self.count))).max(1)
        given = Scalar(as_index(length)) // splats

        def read(splat: Scalar, band: int, color: int) -> Scalar:
            at = (splat * given + band) * 3 + color
            return extract(padded, [(given > band).select(at, Scalar(as_index(length)))])

        return read, given

    def takes_colors(self, read: Callable[[Scalar, int, int], Scalar], given: Scalar) -> ir.Value:
        """Whether colors are those given, not those of the coefficients, as i1 of no dimensions."""
        start = filled([], element("f32"), 0)
        largest = generic(
            1,
            [(self.opacities, [0])],
            [(start, [])],
            lambda _, most: most.max(_largest([absolute(read(index(0), 0, color)) for color in range(3)])),
            reduction=[0],
        )
        few = given < ALL_BANDS
        return generic(0, [(largest, [])], tensors(1, [], element("i1")), lambda most, _: (most <= 1e-8) & few)

    def shades(self) -> list[ir.Value]:
        """Red, green and blue of each splat, as the camera sees it."""
        read, given = self.coefficients()
        operands = [(self.takes_colors(read, given), []), *self.of_splat(self.positions, 3)]
        operands += [*self.of_splat(self.colors, 3), *self.camera[:3]]

        def body(*scalars: Scalar) -> tuple[Scalar, ...]:
            is_plain = scalars[0]
            place, color, eye = (scalars[at : at + 3] for at in (1, 4, 7))
            x, y, z = unit(less(_vector(eye), _vector(place)), instead=(0, 0, 0))
            found = []
            for at in range(3):
                plain = (clamped(color[at]) - 0.5) / x.like(BAND0)
                first = is_plain.select(plain, read(index(0), 0, at))
                second, third, fourth = (read(index(0), band, at) for band in (1, 2, 3))
                found.append(first * BAND0 + 0.5 + (z * third - y * second - x * fourth) * BAND1)
            return tuple(found)

        made: list[ir.Value] = generic(1, operands, tensors(3, [self.count], element("f32")), body)
        return made


def _largest(values: Sequence[Scalar]) -> Scalar:
    most = values[0]
    for value in values[1:]:
        most = most.max(value)
    return most


# ----------------------------------------------------------------------------------------------------------------------
# Lists of tiles
# ----------------------------------------------------------------------------------------------------------------------


class _Lists:
    """The entries of all tiles' lists, of splats whose outlines and distances are tensors [N]."""

    def __init__(self, image: Image, outlines: Sequence[ir.Value], distances: ir.Value) -> None:
        """outlines: whether a splat is in lists, whether it is wide (both i1), its center and its conic."""
        self._image, self._outlines, self._distances = image, list(outlines), distances
        self._i64, self._most = element("i64"), image.max_list_entries
        self._tiles = (empty([image.tiles], self._i64), [1])

    def _hit(self, number: Scalar, scalars: Sequence[Scalar]) -> tuple[Scalar, Scalar]:
        """Whether a splat touches the tile of a number along its lines, and that tile's own number."""
        image = self._image
        is_listed, is_wide, *rest = scalars
        row = is_wide.select(number // image.columns, number % image.rows)
        column = is_wide.select(number % image.columns, number // image.rows)
        place = (row.to("f32"), column.to("f32"))
        hit = is_listed & touches(rest[:2], _vector(rest[2:]), *place, image)
        return hit, row * image.columns + column

    def _chosen(self) -> list[ir.Value]:
        """For each entry: its splat, -1 without one; its number among those of the splat; the splat's outline."""
        i64, listed = self._i64, [(value, [0]) for value in self._outlines]
        along = [(value, [1]) for value in self._outlines]
        zeros = filled([size_of(self._distances, 0)], i64, 0)
        counts = generic(
            2,
            [*listed, self._tiles],
            [(zeros, [0])],
            lambda *scalars: scalars[-1] + self._hit(index(1).to(i64), scalars[:-2])[0].to(i64),
            reduction=[1],
        )

        def before(own: Scalar, other: Scalar, count: Scalar, total: Scalar) -> Scalar:
            is_before = (other < own) | (other.compare("eq", own) & (index(1) < index(0)))
            return total + is_before.select(count, 0)

        zeros = filled([size_of(self._distances, 0)], i64, 0)
        operands: Operands = [(self._distances, [0]), (self._distances, [1]), (counts, [1])]
        starts = generic(2, operands, [(zeros, [0])], before, reduction=[1])
        empties = [filled([self._most], type, start) for type, start in self._kinds()]

        def choose(start: Scalar, count: Scalar, *scalars: Scalar) -> tuple[Scalar, ...]:
            own, totals = scalars[: len(listed)], scalars[len(listed) :]
            number = index(0).to(i64) - start
            is_here = (number >= 0) & (number < count)
            values = (index(1).to(i64), number, *own)
            return tuple(is_here.select(value, total) for value, total in zip(values, totals, strict=True))

        operands = [(starts, [1]), (counts, [1]), *along]
        found: list[ir.Value] = generic(2, operands, [(value, [0]) for value in empties], choose, reduction=[1])
        return found

    def _kinds(self) -> list[tuple[ir.Type, int]]:
        i1, f32 = element("i1"), element("f32")
        return [(self._i64, -1), (self._i64, 0), (i1, 0), (i1, 0), *[(f32, 0)] * 5]

    def made(self) -> tuple[ir.Value, ir.Value]:
        """The lists, one after the other [M], and begin and end of each [T, 2], as floats."""
        image, i64, f32 = self._image, self._i64, element("f32")
        splats, wanted, *outlines = self._chosen()

        def search(number: Scalar, *scalars: Scalar) -> tuple[Scalar, Scalar]:
            *own, _, passed, tile = scalars
            hit, place = self._hit(index(1).to(i64), own)
            is_it = hit & passed.compare("eq", number)
            return passed + hit.to(i64), is_it.select(place, tile)

        operands: Operands = [(wanted, [0]), *((value, [0]) for value in outlines), self._tiles]
        start = [(filled([self._most], i64, first), [0]) for first in (0, image.tiles)]
        _, tiles = generic(2, operands, start, search, reduction=[1])

        def before(own: Scalar, other: Scalar, total: Scalar) -> Scalar:
            is_before = (other < own) | (other.compare("eq", own) & (index(1) < index(0)))
            return total + is_before.to(i64)

        zeros = filled([self._most], i64, 0)
        places = generic(2, [(tiles, [0]), (tiles, [1])], [(zeros, [0])], before, reduction=[1])

        def put(place: Scalar, splat: Scalar, total: Scalar) -> Scalar:
            is_here = place.compare("eq", index(0).to(i64)) & (splat >= 0)
            return is_here.select(splat.to("f32"), total)

        listed = generic(2, [(places, [1]), (splats, [1])], [(filled([self._most], f32, 0), [0])], put, reduction=[1])
        counts = [(filled([image.tiles], i64, 0), [0]) for _ in range(2)]

        def count(tile: Scalar, first: Scalar, last: Scalar) -> tuple[Scalar, Scalar]:
            own = index(0).to(i64)
            return first + (tile < own).to(i64), last + (tile <= own).to(i64)

        first, last = generic(2, [(tiles, [1])], counts, count, reduction=[1])

        def bound(begin: Scalar, end: Scalar, _: Scalar) -> Scalar:
            is_end, is_empty = index(1).compare("eq", 1), begin.compare("eq", end)
            own = is_end.select(end, begin).to("f32")
            return is_empty.select(is_end.select(own.like(0), NOWHERE), own)

        target = (empty([image.tiles, 2], f32), [0, 1])
        return listed, generic(2, [(first, [0]), (last, [0])], [target], bound)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


def joined(values: Sequence[ir.Value]) -> ir.Value:
    """Tensors [N] beside each other: [N k] as a vector."""
    count = len(values)

    def body(*scalars: Scalar) -> Scalar:
        found = scalars[0]
        for at, value in enumerate(scalars[1:-1], start=1):
            found = index(1).compare("eq", at).select(value, found)
        return found

    target = (empty([size_of(values[0], 0), count], element("f32")), [0, 1])
    return collapse(generic(2, [(value, [0]) for value in values], [target], body), [[0, 1]])


@TO_LINALG.pattern(mir.GaussianSplatPrepareOp)
def lower_prepare(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """gaussian_splat_prepare -> generics: of splats, of pairs of splats, of entries and splats, of pairs of entries"""
    rewriter.replace(op, prepared(Scene(op, Image.of(op))))


def prepared(scene: Scene) -> ir.Value:
    """The vector that images are made of."""
    op, image, count, f32 = scene.op, scene.image, scene.count, element("f32")
    *outlines, distance = _seen(scene)
    lists, seen = outlines[:7], outlines[7:]
    listed, ranges = _Lists(image, lists, distance).made()

    def direction(*scalars: Scalar) -> tuple[Scalar, ...]:
        return Camera.of(scalars).ray(index(1).to("f32"), index(0).to("f32"), image)

    rays = generic(2, scene.camera, tensors(3, [image.height, image.width], f32), direction)
    rays = [collapse(value, [[0, 1]]) for value in rays]
    total = max(count, 1) if isinstance(count, int) else Scalar(count).max(1).value
    parts: list[tuple[ir.Value, SizeLike, SizeLike]] = []
    at: SizeLike = 0
    for values in ([*scene.shades(), scene.opacities], seen[:1], seen[1:4], seen[4:7]):
        width = len(values)
        parts.append((joined(values) if width > 1 else values[0], at, times(width, count)))
        at = plus(at, times(width, total))
    parts.append((collapse(scene.rotations, [[0, 1]]), at, times(4, count)))
    shared = [(listed, image.max_list_entries), (collapse(ranges, [[0, 1]]), 2 * image.tiles)]
    shared += [(joined(rays), 3 * image.pixels), *_parameters(op, image)]
    at = times(OF_SPLAT, total)
    for value, size in shared:
        parts.append((value, at, size))
        at = plus(at, size)
    result = filled([plus(at, 2)], f32, 0)
    for value, start, size in parts:
        result = write_slice(value, result, [start], [size])
    return result


def _seen(scene: Scene) -> list[ir.Value]:
    """Of each splat: what its lists are made of (7 tensors), whether it is seen, the camera in its frame, the inverse
    axes of that, and its distance."""
    op, image, count, f32 = scene.op, scene.image, scene.count, element("f32")
    ratio = float(python_value(op.radius_scale))
    splat = [*scene.of_splat(scene.positions, 3), *scene.of_splat(scene.scales, 3)]
    splat += [*scene.of_splat(scene.rotations, 4), (scene.opacities, [0])]
    far = numbers(op.meta, [11])

    def see(*scalars: Scalar) -> tuple[Scalar, ...]:
        place, scales, turn, opacity = (scalars[at:end] for at, end in ((0, 3), (3, 6), (6, 10), (10, 11)))
        camera = Camera.of(scalars[11 : 11 + Camera.COUNT])
        sizes = [exp(scale) * ratio for scale in scales]
        kappa = reach(opacity[0], image.alpha_cutoff)
        axes = _vector([(size * kappa).max(1e-6) for size in sizes])
        inverse = _vector([size.like(1) / (size * 3.0).max(1e-6) for size in sizes])
        w, x, y, z = turn
        away = less(camera.position, _vector(place))
        own = outline(_vector(place), (w, x, y, z), axes, opacity[0], camera, scalars[11 + Camera.COUNT], image)
        local = each(rotated((w, x, y, z), away), inverse)
        found = own.seen.select(kappa.like(1), 0.0)
        lists = (own.is_listed, own.is_wide, *own.center, *own.conic)
        return *lists, found, *local, *inverse, sqrt(dot(away, away))

    outputs = [*tensors(2, [count], element("i1")), *tensors(13, [count], f32)]
    made: list[ir.Value] = generic(1, [*splat, *scene.camera, *far], outputs, see)
    return made


def _parameters(op: ir.AnyOp, image: Image) -> list[tuple[ir.Value, int]]:
    """What says how the image is made; two zeros follow."""
    f32 = element("f32")
    given = [image.width, image.height, image.tile_size, image.columns, image.alpha_cutoff]
    line = np.array([*given, python_value(op.transmittance_threshold)], np.float32)
    table = arith.ConstantOp(ir.RankedTensorType.get(line.shape, f32), elements_attribute(line, f32)).result
    behind = extract_slice(op.meta, [12], [3])
    target = (empty([3], f32), [0])
    return [(table, 6), (generic(1, [(behind, [0])], [target], lambda x, _: shown(x)), 3)]


class Prepared:
    """What was prepared of splats, as bodies read it: positions are kept within the vector, whatever it holds."""

    def __init__(self, prepared: ir.Value, image: Image) -> None:
        self._values, self._image = prepared, image
        length = size_of(prepared, 0)
        if isinstance(length, int):
            self._count: SizeLike = (length - image.shared) // OF_SPLAT
        else:
            rest = arith.SubIOp(length, index_constant(image.shared)).result
            self._count = divided(rest, OF_SPLAT)
        starts = [(0, 4), (4, 1), (5, 3), (8, 3), (11, 4)]
        self._parts = [(Scalar(as_index(times(at, self._count))), width) for at, width in starts]
        self._lists = Scalar(as_index(times(OF_SPLAT, self._count)))

    def _position(self, number: Scalar, most: Scalar | int) -> Scalar:
        """A float as a position from 0 on; integers saturate, and NaN counts as 0."""
        whole = number.to("i64").max(0)
        limit = most.to("i64") if isinstance(most, Scalar) else whole.like(most)
        return whole.min(limit).to("index")

    def bounds(self, tile: Scalar) -> tuple[Scalar, Scalar]:
        """Begin and end of a tile's list."""
        at = self._lists + self._image.max_list_entries + tile * 2
        begin, end = (extract(self._values, [place]) for place in (at, at + 1))
        most = self._image.max_list_entries
        return self._position(begin, most), self._position(end, most)

    def ray(self, pixel: Scalar) -> Vector:
        """The direction of a pixel."""
        at = self._lists + (self._image.max_list_entries + 2 * self._image.tiles) + pixel * 3
        x, y, z = (extract(self._values, [at + part]) for part in range(3))
        return x, y, z

    def number(self, entry: Scalar) -> Scalar:
        """The number of an entry's splat."""
        return self._position(extract(self._values, [self._lists + entry]), Scalar(as_index(self._count)) - 1)

    def color(self, entry: Scalar) -> Vector:
        """The color of an entry's splat."""
        at = self.number(entry) * 4
        red, green, blue = (extract(self._values, [at + part]) for part in range(3))
        return red, green, blue

    def splat(self, entry: Scalar) -> tuple[Vector, Scalar, Scalar, Vector, Vector, Turn]:
        """Color, opacity, visibility, camera, inverse axes and rotation of an entry's splat."""
        number = self.number(entry)

        def read(part: int) -> list[Scalar]:
            start, width = self._parts[part]
            at = start + number * width
            return [extract(self._values, [at + place]) for place in range(width)]

        *color, opacity = read(0)
        w, x, y, z = read(4)
        return _vector(color), opacity, read(1)[0], _vector(read(2)), _vector(read(3)), (w, x, y, z)


def density(local: Vector, inverse: Vector, turn: Turn, opacity: Scalar, ray: Vector, cutoff: float) -> Scalar:
    """The opacity of a splat along a ray: see `splats.alphas`."""
    kappa = reach(opacity, cutoff)
    direction = each(rotated(turn, ray), inverse)
    square = dot(direction, direction)
    t = -dot(local, direction) / square
    nearest = added(local, scaled(direction, t))
    alpha = clamped(opacity) * exp(dot(nearest, nearest) * -4.5)
    hits = (kappa > 0.0) & (square * (kappa.like(9) / (kappa * kappa)) > 1e-10) & (t > 0.0)
    return hits.select(alpha, 0.0)


def blended(prepared: Prepared, image: Image, threshold: float, like: Scalar) -> tuple[Scalar, ...]:
    """At the pixel of a nest along rows and columns: whether its list is empty, the color of splats, and what of the
    background is left."""
    row, column = index(0), index(1)
    begin, end = prepared.bounds((row // image.tile_size) * image.columns + column // image.tile_size)
    ray = prepared.ray(row * image.width + column)

    def entry(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
        *total, left = (Scalar(value) for value in carried)
        color, opacity, valid, local, inverse, turn = prepared.splat(Scalar(number))
        alpha = density(local, inverse, turn, opacity, ray, image.alpha_cutoff)
        goes_on = (left < threshold).compare("eq", 0)
        counts = (valid > 0.0) & (alpha >= image.alpha_cutoff) & goes_on
        alpha = counts.select(alpha, 0.0)
        weight = left * alpha
        parts = [counts.select(part + weight * own, part).value for part, own in zip(total, color, strict=True)]
        return [*parts, (left * (alpha.like(1) - alpha)).value]

    start = [like.like(0).value] * 3 + [like.like(1).value]
    return begin >= end, *map(Scalar, for_each(begin.value, end.value, start, entry))


@TO_LINALG.pattern(mir.GaussianSplatRasterizeOp)
def lower_rasterize(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """gaussian_splat_rasterize -> generic: scf.for over the entries of a pixel's tile, in the body"""
    image, f32 = Image.of(op), element("f32")
    own = Prepared(op.prepared, image)
    threshold = float(python_value(op.transmittance_threshold))

    def pixel(*background: Scalar) -> tuple[Scalar, ...]:
        is_empty, *total, left = blended(own, image, threshold, background[0])
        zipped = zip(total, background[:3], strict=True)
        colors = [shown(is_empty.select(behind, part + left * behind)) for part, behind in zipped]
        return *colors, is_empty.select(left.like(1), left.like(1) - left)

    made = generic(2, numbers(op.meta, range(12, 15)), tensors(4, [image.height, image.width], f32), pixel)
    rewriter.replace(op, joined([collapse(value, [[0, 1]]) for value in made]))
