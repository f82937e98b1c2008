# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The quantiser of blocks whose codes are words of a grid, against all words and against ggml's."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from rlx_mlir import formats
from rlx_mlir.errors import InputError
from rlx_mlir.formats.blocks import factor_integers, stored_codes
from rlx_mlir.formats.grids import table

GGML = {
    "iq1_s": (0.4824, 0.4316, 0.5756, 0.5291),
    "iq1_m": (0.4487, 0.3859, 0.4993, 0.4367),
    "iq2_xxs": (0.3452, 0.2932, 0.3993, 0.3557),
    "iq2_xs": (0.2969, 0.2581, 0.3392, 0.3054),
    "iq2_s": (0.248, 0.224, 0.3052, 0.2822),
    "iq3_xxs": (0.1797, 0.1478, 0.1972, 0.1726),
    "iq3_s": (0.1357, 0.1176, 0.1623, 0.1474),
}
"""Errors of ggml 0.25: of normal numbers, and of Student's t, each without and with an importance matrix."""


def samples() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(17)
    values = [rng.standard_normal((8, 512)).astype(np.float32), rng.standard_t(4, (8, 512)).astype(np.float32)]
    weights = [np.ones(512, np.float32), np.exp(rng.standard_normal(512)).astype(np.float32)]
    return [(x, w) for x in values for w in weights]


def error(name: str, rows: np.ndarray, x: np.ndarray, w: np.ndarray) -> float:
    """Root of the weighted mean square, by that of the values."""
    found = formats.decode(name, rows, x.shape[1])
    return float(np.sqrt((w * (found - x).astype(np.float64) ** 2).mean() / (w * x.astype(np.float64) ** 2).mean()))


@pytest.mark.parametrize("name", GGML)
def test_errors_are_at_most_those_of_ggml(name: str) -> None:
    for (x, w), theirs in zip(samples(), GGML[name], strict=True):
        rows = formats.encode(name, x, weights=None if (w == 1).all() else w)
        assert error(name, rows, x, w) < 0.985 * theirs


@pytest.mark.slow
@pytest.mark.parametrize("name", GGML)
def test_errors_beside_an_installed_ggml(name: str) -> None:
    """What `GGML` records, where the library is there to be asked."""
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        pytest.skip("llama-cpp-python isn't installed")
    library = ctypes.CDLL(str(Path(spec.origin).parent / "lib" / "libggml-base.so"))
    quantize = library.ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    quantize.argtypes = [ctypes.c_int, *2 * [ctypes.c_void_p], *3 * [ctypes.c_int64], ctypes.c_void_p]
    fmt = formats.get_format(name)
    for (x, w), recorded in zip(samples(), GGML[name], strict=True):
        rows = np.zeros((len(x), fmt.row_bytes(x.shape[1])), np.uint8)
        quantize(fmt.type_id, x.ctypes.data, rows.ctypes.data, 0, *x.shape, w.ctypes.data)
        assert error(name, rows, x, w) == pytest.approx(recorded, abs=1e-3)


@pytest.mark.parametrize("name", ["iq1_s", "iq1_m", "iq2_s", "iq3_s"])
def test_words_are_the_best_ones_for_their_scales(name: str) -> None:
    """Of all words with all signs, for each group by itself; of iq1_s for four groups, which are moved alike."""
    fmt = formats.get_format(name)
    grid, scale = fmt.grid, fmt.scale
    assert grid is not None
    assert scale is not None
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 512)).astype(np.float32)
    w = np.exp(rng.standard_normal(512)).astype(np.float32)
    rows = formats.encode(name, x, weights=w)
    decoded = formats.decode(name, rows, 512)
    # A number of a code times the scale is what decodes, so that this gives the scale.
    q = fmt.numbers[stored_codes(fmt, rows)].reshape(2, -1, grid.length).astype(np.float64)
    scales = (decoded.reshape(q.shape)[..., 0] / q[..., 0])[..., None, None]
    shifts = np.arange(grid.length) * grid.digit_bits
    digits = table(grid.table)[:, None] >> shifts & ((1 << grid.digit_bits) - 1)
    own, each = x.reshape(q.shape), w.reshape(-1, grid.length)
    found = (each * (decoded.reshape(q.shape) - own) ** 2).sum(axis=-1)
    least = []
    for sign in (0, 1):
        numbers = fmt.numbers[digits | sign << grid.digit_bits].astype(np.float64)
        target = np.abs(own) if grid.sign_bits > 1 else own
        least.append((each[:, None] * (scales * numbers - target[:, :, None]) ** 2).sum(axis=-1).min(axis=-1))
    together = 4 if name == "iq1_s" else 1
    best = np.stack(least[: 2 if grid.sign_bits == 1 else 1]).reshape(-1, 2, 512 // grid.length // together, together)
    np.testing.assert_allclose(
        found.reshape(best.shape[1:]).sum(axis=-1), best.sum(axis=-1).min(axis=0), rtol=1e-4, atol=1e-5
    )
    low, high = scale.range
    integers = factor_integers(fmt, rows, scale)
    assert low <= integers.min()
    assert integers.max() == high


@pytest.mark.parametrize("name", GGML)
def test_blocks_are_quantised_by_themselves(name: str) -> None:
    """The bytes of rows don't depend on which others there are, nor on powers of two."""
    x = np.random.default_rng(6).standard_normal((17, 256)).astype(np.float32)
    rows = formats.encode(name, x)
    for i in (0, 8, 16):
        np.testing.assert_array_equal(formats.encode(name, x[i : i + 1])[0], rows[i])
    fields = formats.decode(name, formats.encode(name, np.ldexp(x, 8)), 256)
    np.testing.assert_allclose(np.ldexp(fields, -8), formats.decode(name, rows, 256), rtol=2e-3)


@pytest.mark.parametrize("name", GGML)
def test_edges(name: str) -> None:
    x = np.zeros((5, 512), np.float32)
    x[1, ::3] = 1e-40
    x[2, ::2], x[2, 1::2] = 60000, -60000
    x[3, -1] = 60000
    x[4] = -3
    decoded = formats.decode(name, formats.encode(name, x), 512)
    assert not decoded[:2].any()
    assert np.abs(decoded[2] - x[2]).mean() < 60000 * (0.3 if name.startswith("iq2") else 0.15)
    assert not decoded[3, :256].any()
    assert error(name, formats.encode(name, x[4:]), x[4:], np.ones(512)) < 0.35
    w = np.zeros(512, np.float32)
    w[7] = 1  # the others count next to nothing
    assert formats.decode(name, formats.encode(name, x[4:], weights=w), 512)[0, 7] == pytest.approx(-3, rel=0.01)
    assert formats.encode(name, x[:0]).shape == (0, formats.get_format(name).row_bytes(512))
    for value in (np.inf, np.nan):
        x[3, 5] = value
        with pytest.raises(InputError, match=rf"{name} holds finite values, but values\[3, 5\] is {value}"):
            formats.encode(name, x)
    x[3, 5] = 3e38
    with pytest.raises(InputError, match=rf"{name} has f16 scales, for which values\[3, 5\], .*e\+38, is too large"):
        formats.encode(name, x)
