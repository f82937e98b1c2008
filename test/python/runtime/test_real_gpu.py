# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What runs kernels on a GPU for the tests of numbers, tried out on the stand-in for the driver."""

from __future__ import annotations

from collections.abc import Callable

import gpu_attention
import gpu_products
import pytest
import real_gpu
import test_gpu_attention
import test_gpu_gemv
from cuda_harness import emulated_device
from test_gpu_gemm_mma import product

from rlx_mlir.codegen.gpu.attention_hopper import prefill_hopper
from rlx_mlir.codegen.gpu.gemm_mma import gemm_mma


def by_wgmma() -> None:
    case = gpu_attention.Case(70, 90, 2, 1, 64, element="bf16", kind="causal")
    test_gpu_attention.check(case, prefill_hopper, "sm_90a")


def by_mma() -> None:
    gemm = product(None, 72, 64)
    gpu_products.check(gemm_mma("sm_80", gemm), gemm, gpu_products.dense_case(gemm, (5, 64), (72, 64)), "sm_80")


def by_a_ring() -> None:
    test_gpu_gemv.check(test_gpu_gemv.Case("q8_0", 2, 256, 40, chip="sm_90a"))


@pytest.mark.parametrize(
    ("run", "launched"),
    [(by_wgmma, ["k_wgmma"]), (by_mma, ["mm_"]), (by_a_ring, ["p_gemv2"])],
    ids=["maps", "dynamic sizes", "ring"],
)
@pytest.mark.quick(1)
def test_numbers_are_those_of_the_gpu(
    run: Callable[[], None], launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with emulated_device("sm_90a") as cuda:
        monkeypatch.setenv("RLX_TEST_GPU", "1")
        assert real_gpu.is_wanted("sm_90a")
        assert real_gpu.is_wanted("sm_80")
        assert not real_gpu.is_wanted("sm_100")
        run()
        seen = [line.split()[1] for line in cuda.trace() if line.startswith("launch")]
        assert [any(name.startswith(own) for name in seen) for own in launched] == [True] * len(launched)
        cuda.run_kernels(lambda *launch: None)
        with pytest.raises(AssertionError):  # the GPU computes nothing
            run()
        monkeypatch.delenv("RLX_TEST_GPU")
        run()


def test_what_a_driver_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated_device("sm_90a") as cuda:
        monkeypatch.setenv("RLX_TEST_GPU", "1")
        cuda.fail("cuModuleLoadDataEx", 209)
        with pytest.raises(RuntimeError, match="cuModuleLoadDataEx: CUDA_ERROR_NO_BINARY_FOR_GPU"):
            by_a_ring()
