# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sine, cosine and tangent of angles of any size, in every kind of kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest
import seeds
from cuda_harness import emulated_device

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.lowering.angles import two_over_pi

FUNCTIONS = {"sin": np.sin, "cos": np.cos, "tan": np.tan}
#: The f32 that is nearest to a multiple of pi / 2, and others that are hard.
HARD = [0.0, 1e-40, 1e-30, 0.785398, math.pi / 2, math.pi, 1e4, 105_000.0, 16367173 * 2.0**72, 1e30, 3.4028235e38]


def angles(count: int) -> np.ndarray:
    """f32 of all sizes and both signs, with what is no number."""
    rng = np.random.default_rng(seeds.seed())
    bits = rng.integers(0, 0x7F800000, count, dtype=np.uint32).view(np.float32)
    near = rng.uniform(-20, 20, count).astype(np.float32)
    hard = np.array(HARD, np.float32)
    return np.concatenate([hard, -hard, bits, -bits, near, np.float32([np.inf, -np.inf, np.nan])])


def compare(x: np.ndarray, found: Mapping[str, np.ndarray], ulps: float) -> None:
    for name, function in FUNCTIONS.items():
        with np.errstate(invalid="ignore"):
            wanted = function(x.astype(np.float64))
        got = found[name].ravel()
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        known = ~np.isnan(wanted)
        spacing = np.spacing(np.abs(wanted[known]).astype(np.float32)).astype(np.float64)
        error = np.abs(got[known].astype(np.float64) - wanted[known]) / spacing
        worst = int(np.argmax(error))
        assert error[worst] <= ulps, f"{name}({x[known][worst]!r}) is off by {error[worst]:.2f} ulp"


def test_the_parts_are_two_over_pi() -> None:
    """By Machin's formula, pi = 16 atan(1/5) - 4 atan(1/239), and each part has so few bits that products are exact."""

    def atan_of_inverse(n: int) -> Fraction:
        return sum((Fraction((-1) ** k, (2 * k + 1) * n ** (2 * k + 1)) for k in range(120)), Fraction(0))

    pi = 16 * atan_of_inverse(5) - 4 * atan_of_inverse(239)
    parts = two_over_pi()
    assert abs(2 / pi - sum(map(Fraction, parts))) < Fraction(1, 2**192)
    for part in parts:
        assert float(np.float32(part)) == part or Fraction(part).numerator.bit_length() <= 24


def products() -> GraphModule:
    """The functions after a product, whose kernels apply them to vectors."""
    m = GraphModule.mir("angles")
    y = m.matmul(m.input("x", ["n", 1]), m.param("w", [1, 8]))
    m.set_outputs({name: getattr(m, name)(y) for name in FUNCTIONS})
    return m


def pointwise() -> GraphModule:
    m = GraphModule.mir("angles")
    x = m.input("x", ["n", 1])
    m.set_outputs({name: getattr(m, name)(x) for name in FUNCTIONS})
    return m


@pytest.mark.parametrize("build", [products, pointwise])
@pytest.mark.parametrize("disabled", [(), ("all",)], ids=["templates", "generic"])
@pytest.mark.quick(3)
def test_on_cpus(build: type, disabled: tuple[str, ...]) -> None:
    """A C library is off by one unit in the last place at most; the expansion by hardly more than rounding."""
    x = angles(400)
    if build is products:
        x = x[np.isfinite(x)]
    run = rlx.compile(build(), maxima={"n": len(x)}, disable_templates=disabled)
    if build is products:
        run.set_params({"w": np.ones((1, 8), np.float32)})
    compare(x, {name: own[:, 0] for name, own in run.run({"x": x[:, None]}).items()}, 1.0)


def test_signs_of_zero() -> None:
    m = GraphModule.mir("angles")
    x = m.input("x", [16])
    m.set_outputs({name: getattr(m, name)(x) for name in ("sin", "tan")})
    for disabled in ((), ("all",)):
        for own in rlx.compile(m, disable_templates=disabled).run({"x": np.full(16, -0.0, np.float32)}).values():
            np.testing.assert_array_equal(np.signbit(own), True)


def test_on_gpus() -> None:
    x = angles(60)
    with emulated_device("sm_90a"):
        run = rlx.compile(pointwise(), target="cuda", cache=False)
        compare(x, {name: own[:, 0] for name, own in run.run({"x": x[:, None]}).items()}, 0.51)
