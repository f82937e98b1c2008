# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Artefacts for GPUs made by hand, so that the run time is tested without the compiler: host code is C, PTX declares
kernels, and Python does what they do."""

from __future__ import annotations

import ctypes
import functools
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_harness import COMPILER

from rlx_mlir import native
from rlx_mlir.runtime.artifact import Artifact, BufferSpec, PositionCondition, Preparation, PrepareStep
from rlx_mlir.runtime.cuda import CudaExecutable

#: The parameter of `artifact`.
RAW = np.arange(8, dtype=np.float32)

HOST = """
#include <stdint.h>
#include <stddef.h>
void rlx_cuda_launch(const int64_t *launch, void *const *params);
void rlx_cuda_tensor_map(void *map, void *address, const int64_t *spec);
#define ARGS void *const *b, const int64_t *d, int64_t begin, int64_t end, void *scratch
#define KERNEL(NAME, UNITS, SCRATCH, ...)                                                                      \\
  void NAME(ARGS) { (void)b, (void)d, (void)begin, (void)end, (void)scratch; __VA_ARGS__ }                     \\
  int64_t NAME##_units(const int64_t *d) { (void)d; return UNITS; }                                            \\
  int64_t NAME##_scratch(const int64_t *d) { (void)d; return SCRATCH; }
#define LAUNCH(NUMBER, GRID, BLOCK, SHARED, FLAGS, COUNT, ...)                                                 \\
  { int64_t launch[10] = {NUMBER, GRID, 1, 1, BLOCK, 1, 1, SHARED, FLAGS, COUNT};                              \\
    void *params[] = {__VA_ARGS__}; rlx_cuda_launch(launch, params); }

/* b[1][i] = b[0][i] + 1; b[1][i] = b[0][i] + b[2][i % 8] */
KERNEL(increment, 1, 0, int32_t n = (int32_t)d[0];
       LAUNCH(0, (d[0] + 255) / 256, 256, 0, 0, 3, (void *)&b[0], (void *)&b[1], &n))
KERNEL(weigh, d[0] > 0, 0, int32_t n = (int32_t)d[0];
       LAUNCH(1, (d[0] + 255) / 256, 256, 0, 1, 4, (void *)&b[0], (void *)&b[2], (void *)&b[1], &n))
/* row b[1][0] of b[0], [4, 8], += 1 */
KERNEL(update, 1, 0, LAUNCH(2, 1, 8, 0, 0, 2, (void *)&b[0], (void *)&b[1]))
/* by way of scratch memory, of which small sizes need more */
KERNEL(detour, 1, 4 * 1000 * (d[0] < 10 ? 100 : 1), int32_t n = (int32_t)d[0];
       LAUNCH(0, 1, 256, 0, 0, 3, (void *)&b[0], &scratch, &n)
       LAUNCH(0, 1, 256, 0, 0, 3, &scratch, (void *)&b[1], &n))
/* wrong in different ways */
KERNEL(no_kernel, 1, 0, LAUNCH(77, 1, 1, 0, 0, 0, NULL))
KERNEL(few_parameters, 1, 0, LAUNCH(0, 1, 1, 0, 0, 1, (void *)&b[0]))
KERNEL(large_block, 1, 0, LAUNCH(2, 1, 512, 0, 0, 2, (void *)&b[0], (void *)&b[0]))
KERNEL(odd_flags, 1, 0, LAUNCH(2, 1, 8, 0, 2, 2, (void *)&b[0], (void *)&b[0]))
KERNEL(much_shared, 1, 0, LAUNCH(2, 1, 8, 300000, 0, 2, (void *)&b[0], (void *)&b[0]))
/* needs the limit to be raised */
KERNEL(some_shared, 1, 0, LAUNCH(2, 1, 8, 200000, 0, 2, (void *)&b[0], (void *)&b[1]))
/* a map of b[0] as [16, d[0]] of f32 to the kernel; of wrong strides or boxes */
#define MAP(SIZE, STRIDE, BOX)                                                                                 \\
  _Alignas(64) char map[128]; int64_t spec[10] = {7, 2, 3, 2, 0, SIZE, 16, STRIDE, BOX, 8};                    \\
  rlx_cuda_tensor_map(map, b[0], spec); LAUNCH(3, 1, 32, 0, 0, 1, map)
KERNEL(mapped, 1, 0, MAP(d[0], 4 * d[0], 32))
KERNEL(odd_stride, 1, 0, MAP(d[0], 4 * d[0] + 4, 32))
KERNEL(wide_box, 1, 0, MAP(d[0], 4 * d[0], 64))
KERNEL(flat, 1, 0, _Alignas(64) char map[128]; int64_t spec[13] = {7, 9}; rlx_cuda_tensor_map(map, b[0], spec);)
"""

PTX = """.version {version}
.target {chip}
.address_size 64

.visible .entry add_one(
	.param .u64 .ptr .global .align 16 add_one_param_0,
	.param .u64 .ptr .global .align 16 add_one_param_1,
	.param .u32 add_one_param_2
)
.maxntid 256, 1, 1
{{ ret; }}
.visible .entry add_weight(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 d)
.maxntid 256, 1, 1
{{ ret; }}
.visible .entry update_row(.param .u64 a, .param .u64 b)
.maxntid 128, 1, 1
{{ ret; }}
.visible .entry use_map(.param .align 64 .b8 use_map_param_0[128])
{{ ret; }}
"""
KERNELS = ("add_one", "add_weight", "update_row", "use_map")


def at(address: int, count: int, dtype: Any = np.float32) -> np.ndarray:
    """The memory at an address, as an array."""
    assert address, "a kernel got no address"
    kind = np.dtype(dtype)
    return np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(address), kind)


class Kernels:
    """What the kernels do; `maps` are the tensor maps that they got."""

    def __init__(self) -> None:
        self.maps: list[bytes] = []

    def __call__(
        self, ptx: bytes, name: str, grid: tuple[int, ...], block: tuple[int, ...], shared: int, parameters: bytes
    ) -> None:
        if name == "use_map":
            self.maps.append(parameters)
        elif name == "update_row":
            cache, position = struct.unpack("QQ", parameters)
            at(cache, 32).reshape(4, 8)[at(position, 1, np.int32)[0]] += 1
        elif name == "add_one":
            source, target, count = struct.unpack("QQi", parameters)
            assert grid[0] * block[0] >= count
            at(target, count)[:] = at(source, count) + 1
        else:
            source, weight, target, count = struct.unpack("QQQi", parameters)
            at(target, count)[:] = at(source, count) + at(weight, 8)[np.arange(count) % 8]


@functools.cache
def host_object() -> bytes:
    """The host's code, compiled; skips the test where there is no C compiler."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "host.c", Path(folder) / "host.o"
        source.write_text(HOST)
        subprocess.run([COMPILER, "-O1", "-fPIC", "-w", "-c", source, "-o", target], check=True)
        return target.read_bytes()


N = [(1, [0])]


def buffer(name: str, dtype: str, *shape: int | str, **options: Any) -> BufferSpec:
    sizes = tuple(N if size == "n" else [(size, [])] for size in shape)
    return BufferSpec(name, dtype, shape, sizes, **options)


def artifact(**changes: Any) -> Artifact:
    """y = x + 1 + w, by two calls; a row of a cache is changed. The weight of the plan is the caller's `raw`, twice."""
    triple = f"{native.host_processor()[0]}-linux-gnu"
    options: dict[str, Any] = {
        "name": "sample",
        "target": {"triple": triple, "cpu": "", "features": ""},
        "code": host_object(),
        "symbols": (("n", 1000),),
        "arena_bytes": 4096,
        "slots": ((0, 4000),),
        "kernels": ("increment", "weigh", "update"),
        "inputs": (buffer("x", "f32", "n"), buffer("cache", "f32", 4, 8), buffer("pos", "i32", 1)),
        "parameters": (buffer("raw", "f32", 8),),
        "plan_parameters": (buffer("w", "f32", 8),),
        "outputs": (buffer("y", "f32", "n"), buffer("cache_out", "f32", 4, 8, tied="cache", updated=True)),
        "calls": (
            (0, (("input", 0, 0), ("arena", 0, 0)), (N,), [(8, [0])]),
            (1, (("arena", 0, 0), ("output", 0, 0), ("param", 0, 0)), (N,), [(8, [0])]),
            (2, [("output", 1, 0), ("input", 2, 0)], [], [(64, [])]),
        ),
        "preparation": Preparation(("raw",), (PrepareStep("add", (0, 0), {}),), (("w", 1),)),
        "templates": {"increment": "by hand", "weigh": "by hand", "update": "by hand"},
        "positions": (
            PositionCondition("pos", "input", 2, ("1", [(1, [])]), ("1", [(1, [])]), ("4", [(4, [])]), "the cache"),
        ),
        "chip": "sm_90a",
        "device_code": PTX.format(version="8.0", chip="sm_90a").encode(),
        "device_kernels": KERNELS,
    }
    return Artifact(**{**options, **changes})


def one_call(kernel: str, *, tied: bool = False, **changes: Any) -> Artifact:
    """y = what one kernel makes of x, both [n] of f32."""
    return artifact(
        kernels=(kernel,),
        inputs=(buffer("x", "f32", "n"),),
        parameters=(),
        plan_parameters=(),
        outputs=(buffer("y", "f32", "n"),),
        calls=((0, [("input", 0, 0), ("output", 0, 0)], [N], [(8, [0])]),),
        preparation=Preparation(),
        positions=(),
        **changes,
    )


def inputs(n: int, *, pos: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal(n).astype(np.float32),
        "cache": rng.standard_normal((4, 8)).astype(np.float32),
        "pos": np.array([pos], np.int32),
    }


def expected(given: dict[str, Any], raw: np.ndarray) -> dict[str, np.ndarray]:
    x, cache, pos = (np.asarray(given[name]) for name in ("x", "cache", "pos"))
    after = cache.copy()
    after[pos[0]] += 1
    return {"y": x + 1 + (raw + raw)[np.arange(len(x)) % 8], "cache_out": after}


def check(
    results: dict[str, Any], given: dict[str, Any], raw: np.ndarray, names: Sequence[str] = ("y", "cache_out")
) -> None:
    wanted = expected(given, raw)
    for name in names:
        np.testing.assert_array_equal(np.asarray(results[name]), wanted[name], err_msg=name)


def ready(**changes: Any) -> CudaExecutable:
    """What runs `artifact`, with its parameter set."""
    found = CudaExecutable(artifact(**changes))
    found.set_params({"raw": RAW})
    return found
