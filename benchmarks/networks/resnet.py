# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ResNet-18, of images of any size. Norms are those of inference, a factor and a shift for each channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from networks.base import Shapes


@dataclass(frozen=True)
class ResNet:
    """Groups of two blocks; each but the first halves the image.

    Attributes:
        widths: channels of the groups.
        classes: numbers that come out.
        maxima: see `Network`.
    """

    widths: tuple[int, ...] = (64, 128, 256, 512)
    classes: int = 1000
    maxima: Mapping[str, int] = field(default_factory=lambda: {"h": 320, "w": 320})

    @property
    def input_shape(self) -> tuple[int | str, ...]:
        """One image, [1, 3, h, w]."""
        return (1, 3, "h", "w")

    def shapes(self) -> Shapes:
        """See `Network`."""
        found: Shapes = {"stem": (self.widths[0], 3, 7, 7)}
        inputs = self.widths[0]
        for group, width in enumerate(self.widths):
            for block in range(2):
                name = f"{group}.{block}"
                found[f"{name}.first"], found[f"{name}.second"] = (width, inputs, 3, 3), (width, width, 3, 3)
                if inputs != width:
                    found[f"{name}.side"] = (width, inputs, 1, 1)
                inputs = width
        norms = {f"{name}.{part}": shape[:1] for name, shape in found.items() for part in ("factor", "shift")}
        return {**found, **norms, "out": (self.widths[-1], self.classes), "out.shift": (self.classes,)}

    def __call__(self, f: Any, x: Any, w: Mapping[str, Any]) -> Any:
        """[1, classes]"""

        def layer(x: Any, name: str, stride: int, padding: int) -> Any:
            convolved = f.conv(x, w[name], stride, padding)
            return convolved * f.by_channel(w[f"{name}.factor"]) + f.by_channel(w[f"{name}.shift"])

        x = f.largest(f.relu(layer(x, "stem", 2, 3)), 3, 2, 1)
        for group in range(len(self.widths)):
            for block in range(2):
                name, stride = f"{group}.{block}", 2 if group and not block else 1
                inner = layer(f.relu(layer(x, f"{name}.first", stride, 1)), f"{name}.second", 1, 1)
                side = layer(x, f"{name}.side", stride, 0) if f"{name}.side" in w else x
                x = f.relu(inner + side)
        return f.linear(f.mean(x, (2, 3)), w["out"], w["out.shift"])
