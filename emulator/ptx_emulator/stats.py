# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a launch did, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Access:
    """The accesses of one instruction to memory.

    Attributes:
        line: of the PTX text.
        space: ``global`` or ``shared``.
        store: whether it writes.
        width: bytes of one thread.
        requests: times that a warp ran it.
        bytes: read or written by all threads.
        sectors: of 32 bytes, touched by each request; `least` is what the bytes of a request would need.
        wavefronts: of shared memory, in which lanes touch different words of one bank; `least` as above.
    """

    line: int
    space: str
    store: bool
    width: int
    requests: int = 0
    bytes: int = 0
    sectors: int = 0
    wavefronts: int = 0
    least: int = 0

    @property
    def coalesced(self) -> bool:
        """Whether each request touched as few sectors, or wavefronts, as its bytes need."""
        return (self.sectors or self.wavefronts) <= self.least


@dataclass
class Stats:
    """Counts of one launch; `+=` adds those of another.

    Attributes:
        instructions: executed, by opcode with its modifiers, each thread counted.
        accesses: by line, space and whether they write; only with `profile`.
        global_read, global_written: bytes; only with `profile`.
    """

    instructions: Counter[str] = field(default_factory=Counter)
    accesses: dict[tuple[int, str, bool], Access] = field(default_factory=dict)

    @property
    def global_read(self) -> int:
        """Bytes that threads read from global memory."""
        return sum(a.bytes for a in self.accesses.values() if a.space == "global" and not a.store)

    @property
    def global_written(self) -> int:
        """Bytes that threads wrote to global memory."""
        return sum(a.bytes for a in self.accesses.values() if a.space == "global" and a.store)

    @property
    def uncoalesced(self) -> list[Access]:
        """Accesses to global memory whose requests touch more sectors than their bytes need."""
        return [a for a in self.accesses.values() if a.space == "global" and not a.coalesced]

    @property
    def bank_conflicts(self) -> list[Access]:
        """Accesses to shared memory whose requests need more wavefronts than their bytes do."""
        return [a for a in self.accesses.values() if a.space == "shared" and not a.coalesced]

    def count(self, word: str) -> int:
        """Executions of instructions whose opcode starts with a word, each thread counted."""
        return sum(number for name, number in self.instructions.items() if name.startswith(word))

    def __iadd__(self, other: Stats) -> Stats:
        self.instructions.update(other.instructions)
        for key, access in other.accesses.items():
            mine = self.accesses.setdefault(key, Access(access.line, access.space, access.store, access.width))
            for name in ("requests", "bytes", "sectors", "wavefronts", "least"):
                setattr(mine, name, getattr(mine, name) + getattr(access, name))
        return self
