# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rings of stages in shared memory that one thread fills by bulk copies, while others read what is filled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value


class Slot(NamedTuple):
    """A stage of a ring, and the parity of its barrier: what loops along rings carry."""

    stage: Value
    phase: Value


@dataclass(frozen=True)
class TmaRing:
    """The barriers of a ring, two for each stage: it is full once its copies are done, empty once all have read it.

    Attributes:
        base: an address in shared memory.
        stages: how many there are.
        full_at, empty_at: how many bytes behind it the barriers of either kind begin, stage by stage.
    """

    em: DeviceEmitter
    base: Value
    stages: int
    full_at: int
    empty_at: int

    def full(self, stage: Index) -> Value:
        """The barrier that says that a stage holds what was copied."""
        return self.em.at(self.base, stage * 8 + self.full_at, "i8")

    def empty(self, stage: Index) -> Value:
        """The barrier that says that all who read a stage are done with it."""
        return self.em.at(self.base, stage * 8 + self.empty_at, "i8")

    def wait_full(self, slot: Slot) -> None:
        """Waits until a stage is filled."""
        self.em.mbarrier_wait(self.full(slot.stage), slot.phase)

    def wait_empty(self, slot: Slot) -> None:
        """Waits until a stage may be filled."""
        self.em.mbarrier_wait(self.empty(slot.stage), slot.phase)

    def release(self, stage: Index, leads: Value) -> None:
        """Tells that a group of threads, one of which leads, is done with a stage."""
        with self.em.if_(leads):
            self.em.mbarrier_arrive(self.empty(stage))

    def first_to_fill(self) -> Slot:
        """The slot from which on the ring is filled: barriers that nobody has arrived at are in the other phase."""
        return Slot(self.em.const(0), self.em.const(1))

    def advance(self, slot: Slot) -> Slot:
        """The next stage, and the parity that its barriers have when it is reached again."""
        em, following = self.em, slot.stage + 1
        wraps = em.cmpi("eq", following, self.stages)
        return Slot(em.select(wraps, 0, following), em.select(wraps, slot.phase ^ 1, slot.phase))
