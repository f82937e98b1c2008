# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a GPU can do at most: its memory, measured by a copy, and arithmetic, by what NVIDIA's data sheets say.

Arithmetic isn't measured: a kernel that reaches the peak is one of those in question.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rlx_mlir import native
from rlx_mlir.chips import chip_of
from rlx_mlir.measure.roofline import Roofline
from rlx_mlir.measure.timing import Series
from rlx_mlir.runtime.device import DeviceArray

#: Bytes of a copy at most, and the part of a GPU's memory that it may take: larger than any cache.
_MOST_BYTES, _PART = 1 << 30, 16


@dataclass(frozen=True)
class Peak:
    """A product of NVIDIA, by its data sheet.

    Attributes:
        name: of the product.
        multiprocessors: that it has.
        flops: of multiply-adds of f32 without tensor cores, two each, per second.
        integer_ops: of dot products of bytes by tensor cores, two for each pair, dense, per second; None where what is
            published differs, or says nothing: then `flops` is the bound of integers, too.
    """

    name: str
    multiprocessors: int
    flops: float
    integer_ops: float | None = None


#: By chip; other products of a chip have more or fewer multiprocessors.
PEAKS = {
    "sm_80": Peak("A100 SXM", 108, 19.5e12, 624e12),
    "sm_86": Peak("A40", 84, 37.4e12, 299.3e12),
    "sm_87": Peak("Jetson AGX Orin", 16, 5.3e12),
    "sm_89": Peak("L40S", 142, 91.6e12, 733e12),
    "sm_90": Peak("H100 SXM", 132, 66.9e12, 1979e12),
    "sm_100": Peak("B200", 148, 80e12, 4500e12),
    "sm_103": Peak("B300", 148, 75e12),
    "sm_120": Peak("GeForce RTX 5090", 170, 104.8e12, 838e12),
    "sm_121": Peak("GB10", 48, 31e12),
}


def peak_of(device: native.CudaDevice) -> tuple[float, float | None]:
    """(operations of f32, of bytes) per second of a GPU, by its chip and its number of multiprocessors."""
    peak = PEAKS[chip_of(*device.compute_capability).removesuffix("a")]
    part = device.multiprocessors / peak.multiprocessors
    return peak.flops * part, None if peak.integer_ops is None else peak.integer_ops * part


class DeviceProbe:
    """Measures a GPU: as `roofline.Probe` does a CPU."""

    def __init__(self, ordinal: int = 0) -> None:
        """Takes the memory; raises the run time's error where there is no GPU."""
        self._device = native.CudaDevice(ordinal)
        self.working_set = min(_MOST_BYTES, self._device.total_bytes // _PART)
        self._arrays = [
            DeviceArray.empty((self.working_set,), "uint8", device=ordinal, what="measuring a copy") for _ in range(2)
        ]

    @property
    def name(self) -> str:
        """The GPU's."""
        return f"{self._device.name}, {self._device.multiprocessors} multiprocessors"

    def bandwidth(self) -> float:
        """Bytes per second that a copy reads and writes."""
        source, target = self._arrays
        begin = time.perf_counter()
        self._device.copy(target.address, source.address, self.working_set)
        return 2 * self.working_set / (time.perf_counter() - begin)

    def figures(self) -> dict[str, Callable[[], float]]:
        """What is measured, by name, for `interleave`."""
        return {"bandwidth": self.bandwidth}

    def roofline(self, series: dict[str, Series]) -> Roofline:
        """The bounds that rounds of `figures` show: the best, since what disturbs only makes slower."""
        flops, integer_ops = peak_of(self._device)
        copies = series["bandwidth"]
        return Roofline(1, flops, integer_ops, max(copies.values), self.working_set, copies.spread, self.name)
