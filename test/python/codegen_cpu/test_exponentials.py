# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The maximum and the exponentials of softmax, for all targets."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_harness import TARGETS, compiled

from rlx_mlir.codegen.cpu.exponentials import exp_below, larger, peak_of
from rlx_mlir.codegen.cpu.kernel import Scratch, write_kernel
from rlx_mlir.codegen.emit import Emitter, Value, memref

COUNT = 1 << 16


def _no_scratch(em: Emitter, values: list[Value], parts: Scratch) -> None:
    """The kernels below need none."""


@pytest.mark.parametrize("bits", sorted(TARGETS))
def test_exponentials(bits: int) -> None:
    """Relative errors grow from 3 to 7 roundings; the ends are exact."""
    target = TARGETS[bits]

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        with em.loop(0, COUNT, target.lanes("f32")) as loop:
            x = em.vload(values[0], [loop.iv], target.vector("f32"))
            em.vstore(exp_below(em, target, x), outs[0], [loop.iv])

    buffer = memref((COUNT,), "f32")
    text = write_kernel(
        "weigh", [("x", buffer)], [("y", buffer)], units=lambda em, values: 1, scratch=_no_scratch, body=body
    )
    kernel = compiled("weigh", text)
    for lowest, roundings in ((0.3, 3), (3.0, 3), (20.0, 4), (87.3, 7)):
        x = -np.random.default_rng(0).uniform(0, lowest, COUNT).astype(np.float32)
        x[:6] = 0, -np.inf, np.nan, -88, -1000, -0.0
        (y,) = kernel([x], [np.zeros(COUNT, np.float32)])
        np.testing.assert_array_equal(y[:6], np.array([1, 0, np.nan, 0, 0, 1], np.float32))
        expected = np.exp(x[6:].astype(np.float64))
        assert (np.abs(y[6:] / expected - 1) <= roundings * 2.0**-24).all()


@pytest.mark.parametrize("bits", sorted(TARGETS))
def test_peaks_leave_nan_out(bits: int) -> None:
    target = TARGETS[bits]
    lanes = target.lanes("f32")

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        x = em.vload(values[0], [0], target.vector("f32"))
        em.store(peak_of(em, larger(em, x, em.const(-np.inf, x.type))), outs[0], [0])

    operands, results = [("x", memref((lanes,), "f32"))], [("y", memref((1,), "f32"))]
    text = write_kernel("peak", operands, results, units=lambda em, values: 1, scratch=_no_scratch, body=body)
    kernel = compiled("peak", text)
    x = np.arange(lanes, dtype=np.float32)
    for turn in range(lanes):
        own = np.roll(x, turn)
        own[own == 0] = np.nan
        assert kernel([own], [np.zeros(1, np.float32)])[0] == lanes - 1
    assert kernel([np.full(lanes, np.nan, np.float32)], [np.zeros(1, np.float32)])[0] == -np.inf
