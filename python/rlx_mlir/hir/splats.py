# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of images of Gaussian splats, all of whose operands are vectors of f32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir import checks
from rlx_mlir.hir import place
from rlx_mlir.hir.checked import checked
from rlx_mlir.hir.primitives import Primitives
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.splats import META

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ImageOptions(Options, total=False):
    """What images of splats are made with.

    Attributes:
        width, height: of the image, 64 by default.
        tile_size: side of the tiles, whose splats are listed; 16 by default.
        max_list_entries: of all tiles' lists; 576 by default.
        alpha_cutoff: opacity from which on a splat counts at a pixel; 1 / 255 by default.
        transmittance_threshold: of what is behind, below which nothing follows; 0.01 by default.
    """

    width: int
    height: int
    tile_size: int
    max_list_entries: int
    alpha_cutoff: float
    transmittance_threshold: float


class SceneOptions(ImageOptions, total=False):
    """What splats are seen with, too.

    Attributes:
        radius_scale: factor of their deviations; 1.6 by default.
    """

    radius_scale: float


#: The operands that say what is seen, and from where.
_SCENE = ("positions", "scales", "rotations", "opacities", "colors", "sh_coeffs", "meta")
_OPTIONS = ("name", "shape")


@checked
class Splats(Primitives):
    """The builders. Scenes of N splats are: positions [3 N], scales [3 N], natural logarithms of deviations, rotations
    [4 N], quaternions (w, x, y, z), opacities [N], colors [3 N], sh_coeffs [3 N C], spherical harmonics, and meta [23],
    as `gaussian_splat_render_meta` makes it."""

    def gaussian_splat_prepare(self, *scene: Value, **options: Unpack[SceneOptions]) -> Value:
        """Splats as a camera sees them, in lists of tiles: what `gaussian_splat_rasterize` takes.

        Args:
            scene: positions, scales, rotations, opacities, colors, sh_coeffs, meta.
        """
        return self._splats("prepare", _named("prepare", scene), options)

    def gaussian_splat_rasterize(self, prepared: Value, meta: Value, **options: Unpack[ImageOptions]) -> Value:
        """The image [4 width height] of what `gaussian_splat_prepare` gives, with the same options."""
        return self._splats("rasterize", {"prepared": prepared, "meta": meta}, options)

    def gaussian_splat_render(self, *scene: Value, **options: Unpack[SceneOptions]) -> Value:
        """The image of splats: height, width, and red, green, blue and opacity, as a vector.

        Args:
            scene: positions, scales, rotations, opacities, colors, sh_coeffs, meta.
        """
        return self._splats("render", _named("render", scene), options)

    def gaussian_splat_render_decomposed(self, *scene: Value, **options: Unpack[SceneOptions]) -> Value:
        """The same by two operations; without splats it is the background."""
        shared: ImageOptions = {k: v for k, v in options.items() if k != "radius_scale"}  # type: ignore[assignment]
        prepared = Splats.gaussian_splat_prepare(self, *scene, **options)
        return Splats.gaussian_splat_rasterize(self, prepared, scene[-1], **shared)

    def gaussian_splat_render_backward(
        self, *operands: Value, loss_grad_clip: float | None = None, **options: Unpack[SceneOptions]
    ) -> Value:
        """The gradients by positions, scales, rotations, opacities, colors and sh_coeffs, one after the other.

        Args:
            operands: those of `gaussian_splat_render`, and the gradient by its result, whose opacities don't count.
            loss_grad_clip: bounds what comes in, from -loss_grad_clip to that; without it nothing is bounded.
        """
        named = _named("render_backward", operands, (*_SCENE, "d_rgba"))
        return self._splats("render_backward", named, options, loss_grad_clip=loss_grad_clip)

    def gaussian_splat_render_meta(
        self,
        position: Sequence[float],
        target: Sequence[float],
        up: Sequence[float] = (0.0, 1.0, 0.0),
        *,
        fov: float = 60.0,
        near: float = 0.1,
        far: float = 100.0,
        background: Sequence[float] = (0.0, 0.0, 0.0),
        name: str | None = None,
    ) -> Value:
        """The camera as a constant [23].

        Args:
            position, target, up: three numbers each.
            fov: the vertical field of view in degrees.
            near, far: distances; of the near one nothing is read.
            background: a linear color.
        """
        line = np.zeros(META, np.float32)
        try:
            for start, part in ((0, position), (3, target), (6, up), (12, background)):
                numbers = np.asarray(part)
                if numbers.dtype.kind not in "iuf":
                    raise TypeError(f"three numbers are expected, but got {checks.shown(part)}")
                line[start : start + 3] = np.broadcast_to(numbers.astype(np.float32), (3,))
            line[9:12] = fov, near, far
        except (TypeError, ValueError) as error:
            raise place.caller().error(f"'gaussian_splat_render_meta': {error}") from None
        return self.constant(line, name=name)

    def _splats(
        self, word: str, operands: dict[str, object], options: SceneOptions | ImageOptions, **more: float | None
    ) -> Value:
        attributes = {key: value for key, value in options.items() if key not in _OPTIONS} | more
        own: Options = {key: options[key] for key in _OPTIONS if key in options}  # type: ignore[assignment, literal-required]
        return self._emit(f"mir.gaussian_splat_{word}", operands, attributes, **own)[0]


def _named(word: str, given: Sequence[Value], names: Sequence[str] = _SCENE) -> dict[str, object]:
    """The operands by name; BuildError where they aren't as many."""
    if len(given) != len(names):
        raise place.caller().error(
            f"'gaussian_splat_{word}' expects {', '.join(names)}, {len(names)} values, but got {len(given)}"
        )
    return dict(zip(names, given, strict=True))
