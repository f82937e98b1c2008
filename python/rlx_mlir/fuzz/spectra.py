# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How transforms, selective scans and Gaussian splats are drawn: of finite values; what others give isn't fixed."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.attributes import PythonValue
from rlx_mlir.fuzz.draft import Dim, Draft, Skip
from rlx_mlir.fuzz.primitives import COMPLEX, generates
from rlx_mlir.hir import Value
from rlx_mlir.hir.graph import Word

#: Lengths of transforms: one, factors of all sizes, powers of two, and primes that no stage is made for.
LENGTHS = (1, 2, 3, 4, 6, 7, 8, 13, 15, 16, 17, 30, 32, 34, 60, 64, 97, 128)


def finite(draft: Draft, shape: Sequence[Dim], dtype: str, **options: PythonValue) -> Value:
    """Values from -1 to 1."""
    return draft.emit("mir.tanh", {"x": draft.like(shape, dtype, **options)})[0]


@generates("mir.fft", sums=True)
def fft(draft: Draft) -> None:
    n, dtype = draft.choose(LENGTHS), draft.choose(["f32", "f32", "f64", COMPLEX])
    lead = [draft.dim(most=5) for _ in range(draft.integer(0, 2))]
    if draft.elements([*lead, 2 * n]) > draft.most_elements:
        raise Skip
    if dtype == COMPLEX:
        re, im = (finite(draft, [*lead, n], "f32") for _ in range(2))
        (x,) = draft.emit("mir.complex", {"re": re, "im": im})
    else:
        x = finite(draft, [*lead, 2 * n], dtype)
    norm = Word("fft_norm", draft.choose(["backward", "forward", "ortho"]))
    draft.emit("mir.fft", {"x": x}, {"inverse": draft.chance(0.5), "norm": norm})


@generates("mir.complex_norm_sq_backward")
def complex_norm_sq_backward(draft: Draft) -> None:
    z = draft.any([COMPLEX])
    draft.emit("mir.complex_norm_sq_backward", {"z": z, "g": draft.like(z.shape, "f32")})


@generates("mir.selective_scan", sums=True)
def selective_scan(draft: Draft) -> None:
    dtype, batch, steps = draft.float_type(), draft.dim(most=3), draft.dim(most=70)
    channels, n = draft.dim(0, 17, dynamic=0.2), draft.dim(0, 17, dynamic=0.1)
    x, step = (finite(draft, [batch, steps, channels], dtype, param=0.05) for _ in range(2))
    (delta,) = draft.emit("mir.abs", {"x": step})
    (rate,) = draft.emit("mir.abs", {"x": finite(draft, [channels, n], dtype, param=0.9)})
    (a,) = draft.emit("mir.neg", {"x": rate})
    b, c = (finite(draft, [batch, steps, n], dtype, param=0.05) for _ in range(2))
    wide = "f64" if dtype == "f64" else "f32"
    state = draft.optional(lambda: finite(draft, [batch, channels, n], wide, param=0.1), 0.6)
    draft.emit("mir.selective_scan", {"x": x, "delta": delta, "a": a, "b": b, "c": c, "state": state})


def _scene(draft: Draft) -> tuple[dict[str, object], dict[str, object]]:
    """Operands and attributes of a few splats before a camera, in a small image."""
    n, count = draft.integer(0, 3), draft.choose([0, 0, 1, 4, 16])
    sizes = {"positions": 3, "scales": 3, "rotations": 4, "opacities": 1, "colors": 3, "sh_coeffs": 3 * count}
    values: dict[str, object] = {}
    for name, size in sizes.items():
        value = draft.emit("mir.tanh", {"x": draft.new([size * n], "f32", domain="normal", param=0.3)})[0]
        if name == "scales":
            # Not small for their distance: a ray passes by a mean at what is left of two long vectors.
            value = draft.module.sub(draft.module.mul(value, 0.3), 0.9)
        values[name] = value
    eye = [float(x) for x in draft.rng.uniform(-1, 1, 3)]
    values["meta"] = draft.module.gaussian_splat_render_meta([eye[0], eye[1], -4.0 + eye[2]], [0, 0, 0], fov=40)
    view: dict[str, object] = {"width": draft.integer(1, 20), "height": draft.integer(1, 20)}
    return values, view | {"tile_size": draft.choose([4, 8, 16]), "max_list_entries": draft.choose([1, 8, 40])}


@generates("mir.gaussian_splat_prepare", "mir.gaussian_splat_render", sums=True)
def splats(draft: Draft, name: str) -> None:
    values, view = _scene(draft)
    draft.emit(name, values, view)


@generates("mir.gaussian_splat_rasterize", sums=True)
def rasterize(draft: Draft) -> None:
    values, view = _scene(draft)
    (prepared,) = draft.emit("mir.gaussian_splat_prepare", values, view)
    draft.emit("mir.gaussian_splat_rasterize", {"prepared": prepared, "meta": values["meta"]}, view)


@generates("mir.gaussian_splat_render_backward", sums=True)
def render_backward(draft: Draft) -> None:
    values, view = _scene(draft)
    size = 4 * int(str(view["width"])) * int(str(view["height"]))
    gradient = draft.emit("mir.tanh", {"x": draft.new([size], "f32", domain="normal")})[0]
    (found,) = draft.emit("mir.gaussian_splat_render_backward", {**values, "d_rgba": gradient}, view)
    draft.values.pop()  # Sums over pixels cancel: more than half of the digits aren't asked for.
    draft.values.append(draft.module.cast(found, "f16"))
