# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products for GPUs against numpy: random operands, what they give in f64, and what kernels give, by the emulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gpu_emulated import emulate
from gpu_host import Launch

from ptx_emulator import Stats
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.program import IDENTITY, SWIGLU, Argument, Program, Step

TYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
#: Chips whose code ptxas is asked about; all but the first are slow.
CHIPS = ["sm_80", *(pytest.param(chip, marks=pytest.mark.slow) for chip in ("sm_86", "sm_90"))]
#: Relative error of one rounding, twice.
ROUNDING = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}

BIAS_GELU_RESIDUAL = Program(
    (Step("add", (("acc", 0), ("arg", 0))), Step("gelu", (("step", 0),)), Step("add", (("step", 1), ("arg", 1)))),
    (Argument("row"), Argument("full")),
)
SCALED = Program(
    (Step("mul", (("acc", 0), ("arg", 0))), Step("mul", (("step", 0), ("arg", 1)))),
    (Argument("scalar"), Argument("column")),
)
BOTH = Program((Step("relu", (("acc", 0),)),), (), (("step", 0), ("acc", 0)))
RESIDUAL = Program((Step("add", (("acc", 0), ("arg", 0))),), (Argument("full"),))
PROGRAMS = {
    "identity": IDENTITY,
    "bias_gelu_residual": BIAS_GELU_RESIDUAL,
    "scaled": SCALED,
    "two_outputs": BOTH,
    "swiglu": SWIGLU,
    "residual": RESIDUAL,
}

_ERF = np.vectorize(math.erf, otypes=[np.float64])
_STEPS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "mul": np.multiply,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + _ERF(x * math.sqrt(0.5))) / 2,
}


def run_program(program: Program, products: Sequence[np.ndarray], arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a program, f64."""
    values: list[np.ndarray] = []

    def resolve(ref: Any) -> np.ndarray:
        kind, index = ref
        if kind == "const":
            return np.float64(index)
        return {"acc": products, "arg": arguments, "step": values}[kind][int(index)]

    for step in program.steps:
        values.append(_STEPS[step.op](*map(resolve, step.inputs)))
    return [resolve(ref) for ref in program.results]


@dataclass
class Case:
    """Arrays for one call: operands in the template's order, products in f64, how large their terms are together."""

    operands: list[np.ndarray]
    arguments: list[np.ndarray]
    products: list[np.ndarray]
    magnitudes: list[np.ndarray]


def argument_arrays(gemm: Gemm, out_shape: tuple[int, ...], rng: np.random.Generator) -> list[np.ndarray]:
    """Values for the program's arguments."""
    shapes = {"full": out_shape, "row": out_shape[-1:], "column": (*out_shape[:-1], 1), "scalar": ()}
    dtype = TYPES[gemm.element]
    return [np.asarray(rng.standard_normal(shapes[a.broadcast]), dtype) for a in gemm.program.arguments]


def dense_case(gemm: Gemm, x_shape: tuple[int, ...], w_shape: tuple[int, ...], seed: int = 0) -> Case:
    """Random operands of these sizes."""
    rng = np.random.default_rng(seed)
    dtype = TYPES[gemm.element]
    x = rng.standard_normal(x_shape).astype(dtype)
    weights = [rng.standard_normal(w_shape).astype(dtype) for _ in range(gemm.program.accumulators)]
    wide = [np.swapaxes(w, -1, -2) if gemm.transpose_rhs else w for w in (w.astype(np.float64) for w in weights)]
    products = [np.matmul(x.astype(np.float64), w) for w in wide]
    magnitudes = [np.matmul(np.abs(x.astype(np.float64)), np.abs(w)) for w in wide]
    arguments = argument_arrays(gemm, products[0].shape, rng)
    return Case([x, *weights, *arguments], arguments, products, magnitudes)


def check(
    kernel: DeviceKernel, gemm: Gemm, case: Case, chip: str, *, slack: float = 4.0, profile: bool = False
) -> tuple[Stats, list[Launch]]:
    """Runs the kernel and compares, within one rounding of the outputs and what errors of the products make of them.

    slack: units in the last place of f32 that a product may be off, for terms of the magnitudes' size.
    """
    shape, program = case.products[0].shape, gemm.program
    arguments = [a.astype(np.float64) for a in case.arguments]
    want = run_program(program, case.products, arguments)
    got = [np.full(shape, np.nan, TYPES[gemm.element]) for _ in want]
    stats, launches = emulate(kernel, gemm.name, chip, case.operands, got, profile=profile)
    bounds = [ROUNDING[gemm.element] * np.abs(expected) + 2.0**-20 for expected in want]
    for i, magnitude in enumerate(case.magnitudes):
        error = slack * 2.0**-23 * (magnitude + 1)
        for moved in (case.products[i] + error, case.products[i] - error):
            near = run_program(program, [*case.products[:i], moved, *case.products[i + 1 :]], arguments)
            bounds = [b + np.abs(n - w) for b, n, w in zip(bounds, near, want, strict=True)]
    for expected, array, bound in zip(want, got, bounds, strict=True):
        bad = ~(np.abs(array.astype(np.float64) - expected) <= bound)
        assert not bad.any(), (
            f"{bad.sum()} of {bad.size} differ, the first at {tuple(int(i) for i in np.argwhere(bad)[0])}: "
            f"{array[bad][0]} for {expected[bad][0]}, which is further than {bound[bad][0]:.3g}"
        )
    return stats, launches


def padded_rows(weight: np.ndarray, stride: int) -> np.ndarray:
    """Rows with `stride` elements between them, as bytes; what lies between is zero."""
    rows = np.zeros((weight.shape[0], stride), weight.dtype)
    rows[:, : weight.shape[1]] = weight
    return rows.view(np.int8).reshape(weight.shape[0], -1)


def conflicts(stats: Stats, text: str, words: Sequence[str]) -> list[str]:
    """Lines of the PTX with one of the words whose accesses to shared memory conflict, of a run with `profile`."""
    lines = text.splitlines()
    assert any(access.space == "shared" for access in stats.accesses.values())
    found = [lines[access.line - 1].strip() for access in stats.bank_conflicts]
    return [line for line in found if line.startswith(tuple(words))]
