# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is differentiated: convolutions, pools, images, transforms, splats, and what stands for 8 bits in training."""

from __future__ import annotations

from derivatives import SINGLE, Case, apart, complexes, given, normal, positive

GEOMETRY = {"stride": (1, 2), "padding": (1, 0), "dilation": (1, 2), "groups": 2}
IMAGE = ("n", 4, "h", "w")

CONVOLUTIONS = {
    "conv2d": Case(lambda b, x, w: b.conv2d(x, w), {"x": normal(2, 2, 4, 3), "w": normal(3, 2, 2, 2)}),
    "conv2d with everything": Case(
        lambda b, x, w: b.conv2d(x, w, **GEOMETRY), {"x": normal(2, 4, 5, 6).sized(*IMAGE), "w": normal(4, 2, 2, 2)}
    ),
    "conv2d depthwise": Case(
        lambda b, x, w: b.conv2d(x, w, groups=2, stride=2), {"x": normal(1, 2, 6, 6), "w": normal(2, 1, 3, 3)}
    ),
    "conv_transpose2d": Case(
        lambda b, x, w: b.conv_transpose2d(x, w, **GEOMETRY, output_padding=(0, 1)),
        {"x": normal(2, 4, 3, 3).sized(*IMAGE), "w": normal(4, 2, 2, 2)},
    ),
    "conv_transpose2d with pixels to spare": Case(
        lambda b, x, w: b.conv_transpose2d(x, w, stride=(1, 2), padding=(1, 0), output_padding=(2, 3)),
        {"x": normal(1, 2, 3, 3).sized("n", 2, "h", "w"), "w": normal(2, 1, 2, 2)},
    ),
    "conv2d_backward_input": Case(
        lambda b, x, w, dy: b.conv2d_backward_input(b.mul(b.conv2d(x, w, **GEOMETRY), dy), w, x, **GEOMETRY),
        {"x": normal(2, 4, 5, 6).sized(*IMAGE), "w": normal(4, 2, 2, 2), "dy": normal(4, 1, 1)},
    ),
    "conv2d_backward_weight": Case(
        lambda b, x, dy: b.conv2d_backward_weight(x, dy, kernel_size=2, **GEOMETRY),
        {"x": normal(2, 4, 5, 6), "dy": normal(2, 4, 6, 2)},
    ),
}

POOLS = {
    **{
        f"pool {kind}": Case(
            lambda b, x, kind=kind: b.pool(x, kind, (2, 3), stride=(1, 2), padding=(1, 1)),
            {"x": apart(2, 2, 4, 5).sized("n", 2, "h", "w")},
        )
        for kind in ("max", "min", "mean", "sum", "prod")
    },
    "pool prod of zeros": Case(
        lambda b, x: b.pool(x, "prod", 2), {"x": given([[[[0.0, 2, 3], [1.5, 0, 2], [2, 2, 1]]]])}
    ),
    "max_pool2d_backward": Case(
        lambda b, x, dy: b.maxpool2d_backward(x, dy, kernel_size=2, padding=1),
        {"x": apart(1, 2, 3, 3), "dy": normal(1, 2, 4, 4)},
    ),
}

IMAGES = {
    "group_norm": Case(
        lambda b, x, g, c: b.group_norm(x, g, c, num_groups=2, eps=0.25),
        {"x": normal(2, 4, 2, 2).sized(*IMAGE), "g": normal(4), "c": normal(4)},
    ),
    "group_norm without beta": Case(
        lambda b, x, g: b.group_norm(x, g, num_groups=1, eps=0.25), {"x": normal(1, 3, 2, 2), "g": normal(3)}
    ),
    "layer_norm2d": Case(
        lambda b, x, g, c: b.layer_norm2d(x, g, c, eps=0.25), {"x": normal(2, 3, 2, 1), "g": normal(3), "c": normal(3)}
    ),
    "group_norm_backward_input": Case(
        lambda b, x, g, dy: b.group_norm_backward_input(x, g, dy, num_groups=2, eps=0.25),
        {"x": normal(1, 4, 2, 1).sized(*IMAGE), "g": normal(4), "dy": normal(1, 4, 2, 1).sized(*IMAGE)},
    ),
    "group_norm_backward_gamma": Case(
        lambda b, x, dy: b.group_norm_backward_gamma(x, dy, num_groups=2, eps=0.25),
        {"x": normal(1, 4, 2, 1).sized(*IMAGE), "dy": normal(1, 4, 2, 1).sized(*IMAGE)},
    ),
    "group_norm_backward_beta": Case(lambda b, dy: b.group_norm_backward_beta(dy), {"dy": normal(2, 3, 2, 2)}),
    "resize_nearest_2x": Case(lambda b, x: b.resize_nearest_2x(x), {"x": normal(2, 2, 2, 3).sized("n", 2, "h", "w")}),
}

SPECTRA = {
    **{
        f"fft {norm}{' inverse' * inverse}": Case(
            lambda b, x, norm=norm, inverse=inverse: b.fft(x, norm=norm, inverse=inverse),
            {"x": normal(2, 12).sized("n", 12)},
        )
        for norm in ("backward", "forward", "ortho")
        for inverse in (False, True)
    },
    **{
        f"fft of complex {norm}": Case(
            lambda b, z, norm=norm: b.fft(z, norm=norm, inverse=norm == "ortho"),
            {"z": complexes(2, 5)},
            tolerance=SINGLE,
        )
        for norm in ("backward", "ortho")
    },
    "rfft": Case(lambda b, x: b.rfft(x), {"x": normal(2, 6)}),
    "stft": Case(lambda b, x: b.stft(x, 4, 2), {"x": normal(8)}),
}

TRAINING = {
    **{
        f"fake_quantize {ste} {mode}": Case(
            lambda b, x, *s, ste=ste, mode=mode: b.fake_quantize(
                x, *s, bits=4, axis=1, ste=ste, scale_mode=mode, **({"decay": 0.9} if mode == "ema" else {})
            )[0],
            {"x": normal(2, 3, 2).sized("n", 3, 2)} | ({} if mode == "per_batch" else {"s": positive(3, dtype="f32")}),
            tolerance=SINGLE,
            jumps=True,
        )
        for ste, mode in (
            ("identity", "per_batch"),
            ("clipped_identity", "fixed"),
            ("tanh", "ema"),
            ("hard_tanh", "per_batch"),
        )
    },
    **{
        f"fake_quantize_backward {ste}": Case(
            lambda b, x, s, g, ste=ste: b.fake_quantize_backward(x, s, g, bits=4, axis=1, ste=ste),
            {"x": normal(2, 3), "s": positive(3, dtype="f32"), "g": normal(2, 3)},
            tolerance=SINGLE,
        )
        for ste in ("identity", "clipped_identity", "tanh", "hard_tanh")
    },
    "fake_quantize_lsq": Case(
        lambda b, x, s: b.fake_quantize_lsq(x, s, bits=4, axis=0),
        {"x": normal(3, 4), "s": positive(3, dtype="f32")},
        tolerance=SINGLE,
        jumps=True,
    ),
    "fake_quantize_lsq_backward_x": Case(
        lambda b, x, s, g: b.fake_quantize_lsq_backward_x(x, s, g, bits=2),
        {"x": normal(3, 4), "s": positive(1, dtype="f32"), "g": normal(3, 4)},
        tolerance=SINGLE,
    ),
    "fake_quantize_lsq_backward_scale": Case(
        lambda b, x, s, g: b.fake_quantize_lsq_backward_scale(x, s, g, bits=2, axis=1),
        {"x": normal(3, 4), "s": positive(4, dtype="f32"), "g": normal(3, 4)},
        tolerance=SINGLE,
    ),
}


def _scene(n=2, coefficients=0):
    """Splats before a camera, whose outlines don't end at pixels, and the numbers of the camera."""
    turns = [[0.9, 0.2, -0.3, 0.1], [0.7, -0.4, 0.5, 0.2]][:n]
    camera = [0.3, -0.2, -4, 0, 0, 0, 0.1, 1, 0, 50, 0.1, 50, 0.2, 0.5, 0.1, *[0] * 8]
    return {
        "positions": given([0.3, -0.2, 0.1, -0.4, 0.3, 0.5][: 3 * n], "f32"),
        "scales": given([-1.3, -1.6, -1.1, -1.2, -1.5, -1.4][: 3 * n], "f32"),
        "rotations": given([number for turn in turns for number in turn], "f32"),
        "opacities": given([0.7, 0.6][:n], "f32"),
        "colors": given([0.3, 0.8, 0.5, 0.6, 0.2, 0.7][: 3 * n], "f32"),
        "sh": normal(3 * n * coefficients, scale=0.3, dtype="f32"),
        "camera": given(camera, "f32"),
    }


#: Each pixel has the same splats at each step: cutoffs are low, and all of the image is one tile.
VIEW = {
    "width": 6,
    "height": 5,
    "tile_size": 16,
    "max_list_entries": 16,
    "alpha_cutoff": 1e-6,
    "transmittance_threshold": 0.0,
}
SPLATS = {
    f"gaussian_splat_render of {what}": Case(
        lambda b, *scene: b.gaussian_splat_render(*scene, **VIEW),
        inputs,
        tolerance=1e-2,
        orders=1,
        forward=False,
        wrt=["positions", "scales", "rotations", "opacities", *(["colors"] if not inputs["sh"].shape[0] else ["sh"])],
    )
    for what, inputs in {"colors": _scene(), "harmonics": _scene(coefficients=4), "one": _scene(1)}.items()
}

PICTURES = CONVOLUTIONS | POOLS | IMAGES | SPECTRA | TRAINING | SPLATS
