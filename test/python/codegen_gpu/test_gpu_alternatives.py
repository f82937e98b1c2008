# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels for which the host decides between two schedules."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_harness import emulated_device
from gpu_emulated import emulate
from gpu_host import scratch_bytes

import rlx_mlir as rlx
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Value, memref
from rlx_mlir.codegen.gpu.emit import DeviceEmitter
from rlx_mlir.codegen.gpu.gemv import Gemv, gemv
from rlx_mlir.codegen.gpu.gemv_config import GemvConfig
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, by_rows, write_device_kernel


def kernels() -> tuple[DeviceKernel, DeviceKernel]:
    spec = Gemv("p", (2, None, 32), 5, "f32", dense=True)
    few = gemv("sm_80", spec, {1: GemvConfig(lanes=8)})
    return few, gemv("sm_80", spec, {8: GemvConfig(tile=8, lanes=8)})


@pytest.mark.parametrize(("rows", "kernel"), [(1, "p_gemv1"), (2, "p_gemv1"), (3, "p_gemv8"), (9, "p_gemv8")])
def test_rows_decide(rows: int, kernel: str) -> None:
    joined = by_rows(*kernels(), 4)
    assert joined.schedule == "gemv|gemv"
    rng = np.random.default_rng(rows)
    x, w = rng.standard_normal((2, rows, 32)).astype(np.float32), rng.standard_normal((5, 32)).astype(np.float32)
    found = np.zeros((2, rows, 5), np.float32)
    _, launched = emulate(joined, "p", "sm_80", [x, w], [found])
    assert [one.kernel for one in launched] == [kernel]
    np.testing.assert_allclose(found, x @ w.T, rtol=1e-5, atol=1e-5)


def scratching(name: str, count: int) -> DeviceKernel:
    """A kernel that takes scratch memory, and launches nothing."""

    def take(em: HostEmitter, operands: list[Value], scratch: Scratch) -> None:
        scratch.take([em.dim(operands[0], 0), count], "f32")

    def host(em: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        take(em, operands, scratch)

    operands = [("x", memref((None, 4), "f32"))]
    return write_device_kernel(
        "p", name, operands, [("y", memref((None, 4), "f32"))], DeviceEmitter("sm_80"), host, scratch=take
    )


def test_scratch_memory_is_enough_for_both() -> None:
    joined = by_rows(scratching("small", 3), scratching("large", 1000), 8)
    for kernel in (joined, by_rows(scratching("large", 1000), scratching("small", 3), 8)):
        assert scratch_bytes(kernel, "p", [(7, 4), (7, 4)]) == -(-7 * 1000 * 4 // 256) * 256


def test_schedules_of_different_kernels_are_refused() -> None:
    few, _ = kernels()
    for other in (Gemv("q", (2, None, 32), 5, "f32", dense=True), Gemv("p", (2, None, 32), 6, "f32", dense=True)):
        with pytest.raises(ValueError, match="p: the schedules aren't of one kernel"):
            by_rows(few, gemv("sm_80", other, {1: GemvConfig(lanes=8)}), 4)


def test_what_the_host_cannot_compute_declines_the_schedule() -> None:
    def host(em: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        em.i32(1 << 31)

    with pytest.raises(UnsupportedByTemplate, match="expects sizes up to"):
        write_device_kernel("p", "large", [("x", memref((4,), "f32"))], [], DeviceEmitter("sm_80"), host)


@pytest.mark.parametrize("shape", [["s", 0, 64], [0, "s", 64]])
@pytest.mark.quick(1)
def test_a_dynamic_batch_that_is_known_to_be_empty(shape: list[str | int]) -> None:
    m = rlx.GraphModule.hir("empty")
    weight = np.zeros((48, 68), np.uint8)
    m.set_outputs({"y": m.dequant_matmul(m.input("x", shape), m.param("w", [48, 64], packed="q8_0"))})
    with emulated_device("sm_90a"):
        executable = rlx.compile(m, target="cuda", chip="sm_90a", cache=False)
        executable.set_params({"w": weight})
        result = executable(x=np.ones([3 if size == "s" else size for size in shape], np.float32))
        assert result.size == 0
        del executable
