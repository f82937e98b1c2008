# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A vision transformer as DINOv2-small is one, of images of any size.

Position embeddings are those of a square of patches, resized to the image's patches by bicubic interpolation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from networks.base import Shapes


@dataclass(frozen=True)
class VisionTransformer:
    """Patches, a class token, and layers of attention and two products, each scaled.

    Attributes:
        width: elements of a token.
        heads: of attention.
        layers: how many.
        hidden: elements between the two products.
        patch: pixels of a patch's side.
        side: patches of the side of the square that has position embeddings.
        maxima: see `Network`.
    """

    width: int = 384
    heads: int = 6
    layers: int = 12
    hidden: int = 1536
    patch: int = 14
    side: int = 37
    maxima: Mapping[str, int] = field(default_factory=lambda: {"h": 560, "w": 560})

    @property
    def input_shape(self) -> tuple[int | str, ...]:
        """One image, [1, 3, h, w]."""
        return (1, 3, "h", "w")

    def shapes(self) -> Shapes:
        """See `Network`."""
        n, hidden = self.width, self.hidden
        found: Shapes = {"patch": (n, 3, self.patch, self.patch), "patch.shift": (n,)}
        found |= {"class.table": (1, 1, n), "place.table": (1, 1, n), "places.table": (self.side, self.side, n)}
        for layer in range(self.layers):
            products = {"qkv": (n, 3 * n), "out": (n, n), "up": (n, hidden), "down": (hidden, n)}
            for name, shape in products.items():
                found[f"{layer}.{name}"], found[f"{layer}.{name}.shift"] = shape, shape[1:]
            for name in ("attention", "mlp"):
                found |= {f"{layer}.{name}.{part}": (n,) for part in ("factor", "shift")}
                found[f"{layer}.{name}.scale.factor"] = (n,)
        return {**found, "norm.factor": (n,), "norm.shift": (n,)}

    def __call__(self, f: Any, x: Any, w: Mapping[str, Any]) -> Any:
        """The class token after the last norm, [1, width]."""
        n = self.width

        def norm(x: Any, name: str) -> Any:
            return f.layer_norm(x, w[f"{name}.factor"], w[f"{name}.shift"], 1e-6)

        def linear(x: Any, name: str) -> Any:
            return f.linear(x, w[name], w[f"{name}.shift"])

        image = f.conv(x, w["patch"], self.patch, 0)  # [1, n, rows, columns]
        tokens = f.reshape(f.transpose(image, (0, 2, 3, 1)), (1, -1, n)) + w["patch.shift"]
        tokens = tokens + f.reshape(f.resized(w["places.table"], image), (1, -1, n))
        x = f.concat([w["class.table"] + w["place.table"], tokens], 1)
        for layer in range(self.layers):
            qkv = linear(norm(x, f"{layer}.attention"), f"{layer}.qkv")
            q, k, v = (qkv[:, :, part * n : (part + 1) * n] for part in range(3))
            attended = linear(f.attention(q, k, v, self.heads, self.heads, False), f"{layer}.out")
            x = x + attended * w[f"{layer}.attention.scale.factor"]
            inner = f.gelu(linear(norm(x, f"{layer}.mlp"), f"{layer}.up"))
            x = x + linear(inner, f"{layer}.down") * w[f"{layer}.mlp.scale.factor"]
        return norm(x[:, 0], "norm")
