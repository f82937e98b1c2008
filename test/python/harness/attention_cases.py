# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What problems of attention have in common, whatever computes them."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import AttentionSpec


@dataclass(frozen=True)
class Problem:
    """Sizes, attributes and element types; `stored` is that of keys and values, where it is another one."""

    queries: int
    keys: int
    heads: int = 2
    kv_heads: int = 2
    size: int = 64
    batch: int = 1
    kind: str = "none"
    window: int | None = None
    softcap: float | None = None
    scale: float | None = None
    layout: str = "packed"
    rank: int = 3
    pos: tuple[int, ...] | None = None
    sinks: tuple[float, ...] | None = None
    element: str = "f32"
    stored: str | None = None

    def shape(self, length: int, heads: int) -> tuple[int, ...]:
        """Of queries, keys or values."""
        if self.layout == "bshd":
            return (self.batch, length, heads, self.size)
        if self.layout == "bhsd":
            return (self.batch, heads, length, self.size)
        return (self.batch, length, heads * self.size)[3 - self.rank :]

    def spec_of(self, q: str, k: str, mask: str | None) -> AttentionSpec:
        """The attributes, for buffers of these types; values are as keys, results as queries."""
        return AttentionSpec(
            q,
            k,
            k,
            q,
            self.heads,
            self.size,
            self.kv_heads,
            mask=mask,
            pos=None if self.pos is None else memref([None], "i32"),
            sinks=None if self.sinks is None else memref([self.heads], self.element),
            mask_kind=self.kind,
            window=self.window,
            scale=self.scale,
            softcap=self.softcap,
            layout=self.layout,
        )
