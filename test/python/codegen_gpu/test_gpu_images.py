# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPU's schedules for norms of groups of channels and pools of images, emulated; and their code, assembled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from covering import products
from cuda_harness import emulated_device
from gpu_emulated import assembled

import rlx_mlir as rlx
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.dtypes import DTYPES

TOLERANCES = {"f32": 2e-6, "f16": 2e-3, "bf16": 1.6e-2}
Dims = list[int | str]


def norm_graph(dims: Dims, dtype: str, groups: int) -> rlx.GraphModule:
    module = rlx.GraphModule.mir("norm")
    gamma, beta = (module.param(name, [dims[1]], dtype) for name in ("gamma", "beta"))
    module.set_outputs({"y": module.group_norm(module.input("x", dims, dtype), gamma, beta, num_groups=groups)})
    return module


def pool_graph(dims: Dims, dtype: str, kind: str, kernel: tuple[int, int], **options: Any) -> rlx.GraphModule:
    module = rlx.GraphModule.mir("pool")
    module.set_outputs({"y": module.pool(module.input("x", dims, dtype), kind=kind, kernel_size=kernel, **options)})
    return module


def check(
    module: rlx.GraphModule, schedule: str, dims: Dims, dtype: str, sizes: list[dict[str, int]], terms: int = 8
) -> None:
    """Compares with the reference, to the rounding of so many terms; norms of elements near a large number, and NaN."""
    rng = np.random.default_rng(len(sizes))
    channels = dims[1]
    names = ("gamma", "beta") if schedule == "group_norm" else ()
    params = {name: rng.standard_normal(channels).astype(DTYPES[dtype]) for name in names}
    with emulated_device("sm_90a"):
        executable = rlx.compile(module, target="cuda", cache=False)
        assert set(executable.artifact.templates.values()) == {schedule}
        executable.set_params(params)
        for own in sizes:
            shape = [own[dim] if isinstance(dim, str) else dim for dim in dims]
            x = (rng.standard_normal(shape) * 3 + (200 if names else 0)).astype(DTYPES[dtype])
            if x.size > 9:
                x.reshape(-1)[7] = np.nan
            got = executable.run({"x": x})["y"].astype(np.float64)
            want = rlx.interpret(module, {"x": x, **params})["y"].astype(np.float64)
            rtol = TOLERANCES[dtype] * max(terms / 8, 1)
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol, err_msg=str(shape))
        del executable


@pytest.mark.parametrize(
    ("dims", "dtype"),
    products([["n", 6, "h", "w"], ["n", 6, 4, 8], ["n", 6, 3, 5], [2, 6, "h", "w"]], ["f32", "f16", "bf16"], meeting=1),
)
@pytest.mark.quick(2)
def test_norms_of_groups(dims: Dims, dtype: str) -> None:
    sizes = [
        {"n": n, "h": h, "w": w} for n, h, w in ((1, 1, 1), (0, 3, 3), (2, 8, 8), (1, 0, 4), (3, 7, 9), (1, 33, 31))
    ]
    check(norm_graph(dims, dtype, 2), "group_norm", dims, dtype, sizes)


def test_a_group_of_one_number_is_zero() -> None:
    module = norm_graph([1, 4, 7, 9], "f32", 2)
    with emulated_device("sm_90a"):
        executable = rlx.compile(module, target="cuda", cache=False)
        beta = np.arange(4, dtype=np.float32)
        executable.set_params({"gamma": np.ones(4, np.float32), "beta": beta})
        got = executable.run({"x": np.full((1, 4, 7, 9), 123456.7, np.float32)})["y"]
        np.testing.assert_array_equal(got, np.broadcast_to(beta[:, None, None], (1, 4, 7, 9)))
        del executable


@pytest.mark.parametrize(
    ("kind", "dtype", "kernel"),
    products(
        ["max", "min", "sum", "mean", "prod"],
        ["f32", "f16", "bf16"],
        [(1, 1), (3, 3), (2, 5), (5, 7), (8, 8), (9, 9)],
        meeting=1,
    ),
)
@pytest.mark.quick(3)
def test_pools(kind: str, dtype: str, kernel: tuple[int, int]) -> None:
    """Of windows that stand in the code, that a thread goes through, and that a warp shares."""
    dims: Dims = ["n", 3, "h", "w"]
    padding = tuple(size // 2 for size in kernel)
    module = pool_graph(dims, dtype, kind, kernel, stride=(1, 2), padding=padding)
    sizes = [{"n": n, "h": h, "w": w} for n, h, w in ((1, 9, 9), (0, 9, 9), (2, 11, 33))]
    check(module, "pool", dims, dtype, sizes, kernel[0] * kernel[1])


def test_what_they_do_not_cover_is_generic() -> None:
    for module in (norm_graph([1, 4, 8, 8], "f64", 2), pool_graph([1, 4, 8, 8], "f64", "max", (2, 2))):
        (how,) = build_artifact(module, CompileOptions(target="nvptx", chip="sm_80")).templates.values()
        assert how.startswith("generic: "), how
        assert how.endswith("have no schedule"), how


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.quick(1)
def test_everything_stays_in_registers(dtype: str) -> None:
    dims: Dims = ["n", 8, "h", "w"]
    for module in (norm_graph(dims, dtype, 2), pool_graph(dims, dtype, "max", (3, 3), padding=(1, 1))):
        for name, kernel in assembled(rlx.emit(module, "ptx", target="nvptx", chip="sm_90a"), "sm_90a").items():
            assert kernel.spills == 0, (name, kernel.messages)
            assert kernel.registers <= 64, (name, kernel.messages)
