# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many bytes a compiled module takes: code, constants, parameters, and what a call needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.runtime.artifact import Artifact, BufferSpec
from rlx_mlir.runtime.shown import size_text
from rlx_mlir.runtime.sizes import evaluate

__all__ = ["MemoryReport", "memory_report"]


@dataclass(frozen=True)
class MemoryReport:
    """Bytes of a compiled module, for sizes of its symbols.

    Attributes:
        code: of the host's kernels, and of a GPU's.
        constants: that preparation starts from; those of kernels are a part of the code.
        parameters: as callers give them.
        prepared: what is made of parameters once, and kept beside those that are read as they are.
        arena: of values between kernels, for the declared maxima, with memory reused.
        inputs: of one call.
        outputs: of one call, but for those that are tied to an input or parameter.
        donated: of outputs that are tied: they take no memory of their own where what they are tied to is donated.
        peak: all arrays of one call at a time, arena and parameters as code reads them included, if nothing is donated.
        peak_donated: the same if everything is donated that outputs are tied to.
        scratch: what threads have for themselves while they compute, for the declared maxima, of all threads of a call;
            it comes on top of the peak, and is None where no code is loaded, which decides about it.
    """

    code: int
    constants: int
    parameters: int
    prepared: int
    arena: int
    inputs: int
    outputs: int
    donated: int
    peak: int
    peak_donated: int
    scratch: int | None = None

    def __str__(self) -> str:
        known = {name: size for name, size in vars(self).items() if size is not None}
        words = [f"{name.replace('_', ' ')} {size_text(size)}" for name, size in known.items()]
        return "memory: " + ", ".join(words)


def memory_report(artifact: Artifact, sizes: Mapping[str, int], scratch: int | None = None) -> MemoryReport:
    """The bytes of a compiled module, for a size of each of its symbols, and what its loaded code needs of scratch."""
    values = [sizes[name] for name, _ in artifact.symbols]

    def total(specs: Iterable[BufferSpec]) -> int:
        return sum(_elements(spec, values, sizes) * DTYPES[spec.dtype].itemsize for spec in specs)

    made = {name for name, _ in artifact.preparation.results}
    inputs, donated = total(artifact.inputs), total(spec for spec in artifact.outputs if spec.tied is not None)
    outputs = total(spec for spec in artifact.outputs if spec.tied is None)
    peak_donated = total(artifact.plan_parameters) + artifact.arena_bytes + inputs + outputs
    return MemoryReport(
        code=len(artifact.code) + len(artifact.device_code) + len(artifact.cubin),
        constants=sum(len(step.attributes.get("data", "")) * 3 // 4 for step in artifact.preparation.steps),
        parameters=total(artifact.parameters),
        prepared=total(spec for spec in artifact.plan_parameters if spec.name in made),
        arena=artifact.arena_bytes,
        inputs=inputs,
        outputs=outputs,
        donated=donated,
        peak=peak_donated + donated,
        peak_donated=peak_donated,
        scratch=scratch,
    )


def _elements(spec: BufferSpec, values: list[int], sizes: Mapping[str, int]) -> int:
    """How many elements there are; parameters that callers set have their sizes in words."""
    if spec.sizes:
        return math.prod(evaluate(size, values) for size in spec.sizes)
    return math.prod(size if isinstance(size, int) else sizes.get(size, 0) for size in spec.shape)
