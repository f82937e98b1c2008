# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases of attention for GPUs: their specs and numbers, and how a kernel of one is run by the PTX emulator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from attention_cases import Problem
from gpu_emulated import emulate
from gpu_host import Launch

from ptx_emulator import Stats
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.specs import AttentionSpec
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.mir.attention import attention

NAME = "k"


@dataclass(frozen=True)
class Case(Problem):
    """One problem; sizes of batch, keys and (unless `fixed`) queries are dynamic in its types."""

    mask: str = "full"
    """Shape of the mask: full, broadcast (1, 1, Sq, Sk), keys (B, Sk), row (B, H, 1, Sk)."""
    mask_element: str | None = None
    fixed: bool = False

    @property
    def mask_shape(self) -> tuple[int, ...] | None:
        if self.kind not in ("custom", "bias"):
            return None
        return {
            "full": (self.batch, self.heads, self.queries, self.keys),
            "broadcast": (1, 1, self.queries, self.keys),
            "keys": (self.batch, self.keys),
            "row": (self.batch, self.heads, 1, self.keys),
        }[self.mask]

    def spec(self) -> AttentionSpec:
        """Types of the buffers, and attributes."""

        def type(length: int, heads: int, element: str, fixed: bool) -> str:
            sizes: list[int | None] = list(self.shape(length, heads))
            axis = {"bshd": 1, "bhsd": 2, "packed": len(sizes) - 2}[self.layout]
            if len(sizes) > 2:
                sizes[0] = None
            if not fixed:
                sizes[axis] = None
            return memref(sizes, element)

        mask = None
        if self.mask_shape is not None:
            sizes: list[int | None] = [None if size != 1 else 1 for size in self.mask_shape]
            sizes[0] = 1 if self.mask == "broadcast" else None
            if len(sizes) == 4:
                sizes[1] = self.mask_shape[1]
                sizes[2] = 1 if self.mask == "row" else self.queries if self.fixed else None
            sizes[-1] = None
            mask = memref(sizes, self.mask_element or self.element)
        q = type(self.queries, self.heads, self.element, self.fixed)
        k = type(self.keys, self.kv_heads, self.stored or self.element, False)
        return self.spec_of(q, k, mask)

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        """q, k, v, and what else the case has; keys that don't exist yet are NaN."""
        rng = np.random.default_rng(seed)

        def normal(shape: tuple[int, ...], element: str) -> np.ndarray:
            return rng.standard_normal(shape).astype(DTYPES[element])

        stored = self.stored or self.element
        arrays = [normal(self.shape(self.queries, self.heads), self.element)]
        arrays += [normal(self.shape(self.keys, self.kv_heads), stored) for _ in range(2)]
        if self.pos is not None:
            for x in arrays[1:3]:
                for b, start in enumerate(self.pos):
                    own = x[b] if self.layout != "packed" or self.rank == 3 else x
                    own[(slice(None),) * (self.layout == "bhsd") + (slice(max(start + self.queries, 0), None),)] = (
                        np.nan
                    )
        if self.mask_shape is not None:
            if self.kind == "bias":
                arrays.append(normal(self.mask_shape, self.element))
            else:
                shown = rng.random(self.mask_shape) < 0.7
                arrays.append(shown.astype(DTYPES[self.mask_element or self.element]))
        if self.pos is not None:
            arrays.append(np.array(self.pos, np.int32))
        return arrays

    def reference(self, arrays: list[np.ndarray]) -> np.ndarray:
        """By the reference of the operation."""
        q, k, v, *rest = arrays
        mask = rest.pop(0) if self.mask_shape is not None else None
        pos = rest.pop(0) if self.pos is not None else None
        return attention(
            q,
            k,
            v,
            mask,
            pos,
            num_heads=self.heads,
            head_dim=self.size,
            num_kv_heads=self.kv_heads,
            mask_kind=self.kind,
            window=self.window,
            scale=self.scale,
            softcap=self.softcap,
            layout=self.layout,
        )

    @property
    def tolerance(self) -> float:
        """Of the result's absolute error: weights are rounded to the type of the values once, results once."""
        return {"f32": 2e-5, "f16": 3e-3, "bf16": 2.5e-2}[self.element]


def result_of(kernel: DeviceKernel, chip: str, arrays: list[np.ndarray]) -> tuple[np.ndarray, Stats, list[Launch]]:
    """What the kernel writes, NaN where it writes nothing; what it did, and its launches."""
    out = np.full(arrays[0].shape, np.nan, arrays[0].dtype)
    stats, done = emulate(kernel, NAME, chip, arrays, [out])
    return out, stats, done
