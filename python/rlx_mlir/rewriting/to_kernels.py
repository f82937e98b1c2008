# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes from primitives to kernels, as text: what compiling runs, and what reports run a part of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

#: The options of `mir-quantize-activations` on CPUs. GPUs have bytes alone; what attention and experts read stays f32.
QUANTIZED = {"int8": "{attention=15 experts=8}", "int16": "{bits=15 attention=15 experts=15}"}


class KernelSteps(NamedTuple):
    """Pipelines that follow each other.

    Attributes:
        primitives: makes one function of primitives.
        prepare: makes of these what patterns of fusion look for.
        fuse: joins operations.
        outline: makes kernels.
    """

    primitives: str
    prepare: str
    fuse: str
    outline: str

    @property
    def unfused(self) -> str:
        """All that comes before fusion."""
        return f"{self.primitives},{self.prepare}"

    def __str__(self) -> str:
        return ",".join(self)


def kernel_steps(
    *,
    gpu: bool = False,
    activations: str = "exact",
    intermediates: str = "rounded",
    maxima: Mapping[str, int] | None = None,
    disable_templates: Collection[str] = (),
) -> KernelSteps:
    """The pipelines from stage mir to stage kernels.

    Args:
        gpu: whether kernels run on a GPU.
        activations, intermediates, maxima, disable_templates: as of `compile`.
    """
    wide = ",mir-keep-wide" if intermediates == "wide" else ""
    options = "" if gpu else QUANTIZED.get(activations, "")
    quantize = "" if activations == "exact" else f",mir-quantize-activations{options},cse"
    listed = ",".join(f"{symbol}:{size}" for symbol, size in sorted((maxima or {}).items()))
    columns = f'mir-conv-to-matmul{{maxima="{listed}"}}'
    custom = f"mir-lower-custom{{kernels={str(not gpu).lower()}}}"
    # What no template would read takes memory.
    transform = "" if {"all", "conv2d", "conv2d_winograd"} & set(disable_templates) else "mir-transform-kernels,"
    return KernelSteps(
        f"inline,symbol-dce,{custom},mir-decompose,mir-dot-to-matmul{wide}",
        "gpu-select-branches,mir-unroll-scans" if gpu else f"mir-unroll-scans,{columns}",
        f"rlx-fuse{quantize}",
        "rlx-gpu-to-kernels" if gpu else f"{transform}rlx-to-kernels",
    )
