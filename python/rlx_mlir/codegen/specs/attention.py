# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel of attention computes, and what it may be asked for, on any target."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import element_of, shape_of
from rlx_mlir.formats import get_format

LAYOUTS = ("packed", "bshd", "bhsd")
MASK_KINDS = ("none", "causal", "sliding_window", "custom", "bias")
KEPT = ("q8_0", "q4_0")


@dataclass(frozen=True)
class AttentionSpec:
    """One `mir.attention` after outlining: memref types as text, attributes under their names on the op.

    q and result are [B, Sq, H*D] or [Sq, H*D] (packed), [B, Sq, H, D] (bshd) or [B, H, Sq, D] (bhsd); k and v the same
    with Sk and num_kv_heads. mask is [B or 1, H or 1, Sq or 1, Sk], or [B or 1, Sk] (custom only), pos is [B] i32,
    sinks is [H], of f32 or of the element type of q.
    B, Sq and Sk may be `?`. Elements are f32, f16 or bf16; k and v may be of f16 or bf16 beside a q of f32, or bytes of
    blocks, whose formats `k_scheme` and `v_scheme` name: [B, Sk, bytes], i8. Where `shared`, they are one operand.
    """

    q: str
    k: str
    v: str
    result: str
    num_heads: int
    head_dim: int
    num_kv_heads: int | None = None
    mask: str | None = None
    pos: str | None = None
    sinks: str | None = None
    mask_kind: str = "none"
    window: int | None = None
    scale: float | None = None
    softcap: float | None = None
    layout: str = "packed"
    k_scheme: str | None = None
    v_scheme: str | None = None
    shared: bool = False

    @property
    def kv_heads(self) -> int:
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.num_heads // self.kv_heads

    @property
    def by_position(self) -> bool:
        """Whether positions say which keys a query sees: none behind it, or of these the nearest alone."""
        return self.mask_kind in ("causal", "sliding_window")

    @property
    def hides(self) -> bool:
        """Whether a query may not see keys that others do."""
        return self.by_position or self.mask_kind == "custom"

    @property
    def one_storage(self) -> bool:
        """Whether keys and values are elements of one type."""
        return self.k_scheme is self.v_scheme is None and element_of(self.k) == element_of(self.v)

    @property
    def sequence_axis(self) -> int:
        """The axis of Sq and Sk."""
        return len(shape_of(self.q)) - 2 if self.layout != "bshd" else 1

    @property
    def operands(self) -> list[tuple[str, str]]:
        """Names and types of the kernel's operands, in order."""
        values = None if self.shared else self.v
        named = [("q", self.q), ("k", self.k), ("v", values), ("mask", self.mask), ("pos", self.pos)]
        named.append(("sinks", self.sinks))
        return [(name, type) for name, type in named if type is not None]


@dataclass(frozen=True)
class CacheSpec:
    """One `mir.cache_update` in blocks after outlining; its result has the memory of its first operand.

    Attributes:
        cache: type of the buffer of the cache and of the result, [B, P, bytes] of i8.
        new: that of the rows that are written, [B, S, E] of f32.
        pos: that of the places of the first ones, [B] of i32.
        scheme: format of the blocks.
        order: the kernel's operands for cache, new and pos.
    """

    cache: str
    new: str
    pos: str
    scheme: str
    order: tuple[int, ...]


def head_width(spec: AttentionSpec, scheme: str | None) -> int:
    """Elements of the buffer that hold a head of keys or values: bytes, where it has a scheme."""
    return spec.head_dim if scheme is None else get_format(scheme).row_bytes(spec.head_dim)


def check_attention(
    spec: AttentionSpec, *, conditions: bool = False, blocks: bool = False, sinks: bool = False
) -> None:
    """Raises UnsupportedByTemplate where the spec contradicts itself, or no template covers its types.

    Args:
        conditions: whether masks may be of i1, too.
        blocks: whether keys and values may be blocks, of different types, and one operand.
        sinks: whether heads may have sinks.
    """

    def need(condition: bool, rule: str, got: object) -> None:
        if not condition:
            raise UnsupportedByTemplate(f"attention: expects {rule}, but got {got}")

    need(spec.layout in LAYOUTS, f"layout in {LAYOUTS}", spec.layout)
    need(spec.mask_kind in MASK_KINDS, f"mask_kind in {MASK_KINDS}", spec.mask_kind)
    element = element_of(spec.q)
    heads, kv_heads, size = spec.num_heads, spec.kv_heads, spec.head_dim
    need(heads >= 1 and kv_heads >= 1 and size >= 1, "at least one head of size 1", (heads, kv_heads, size))
    need(blocks or spec.one_storage, "k and v of one element type", (spec.k, spec.v))
    need(blocks or not spec.shared, "k and v apart", "one operand")
    need(not spec.shared or spec.k == spec.v, "k and v of one type where they are one operand", (spec.k, spec.v))
    kept = ((spec.k, spec.k_scheme), (spec.v, spec.v_scheme))
    for type, scheme in ((spec.q, None), (spec.result, None), *kept):
        known = IN_F32 if scheme is None else ("i8",)
        need(element_of(type) in known and "," not in type, f"identity-layout buffers of {known}", type)
    need(element_of(spec.result) == element, f"a result of {element}, as q is", spec.result)
    for type, scheme in kept:
        need(element == "f32" or element_of(type) == element, f"k and v of {element}, as q is, or q of f32", type)
        if scheme is not None:
            need(scheme in KEPT and size % get_format(scheme).block == 0, f"heads of whole blocks of {KEPT}", scheme)
            need(spec.layout == "packed", "layout packed with blocks", spec.layout)
    need(heads % kv_heads == 0, "num_heads to be a multiple of num_kv_heads", (heads, kv_heads))
    ranks = (2, 3) if spec.layout == "packed" else (4,)
    widths = [(type, kv_heads, head_width(spec, scheme)) for type, scheme in kept]
    for type, count, width in ((spec.q, heads, size), (spec.result, heads, size), *widths):
        shape = shape_of(type)
        need(len(shape) in ranks and len(shape) == len(shape_of(spec.q)), f"rank {ranks} throughout", type)
        tail = {"packed": shape[-1:], "bshd": shape[-2:], "bhsd": (shape[-3], shape[-1]) if len(shape) > 2 else ()}
        need(
            tail[spec.layout] == ((count * width,) if spec.layout == "packed" else (count, width)),
            f"{count} heads of size {width} in the static dimensions",
            type,
        )
    need((spec.mask is None) == (spec.mask_kind not in ("custom", "bias")), "a mask for custom and bias", spec.mask)
    if spec.mask is not None:
        masks = (2, 4) if spec.mask_kind == "custom" else (4,)
        need(len(shape_of(spec.mask)) in masks, f"a mask of rank {masks}", spec.mask)
        boolean = conditions and spec.mask_kind == "custom" and element_of(spec.mask) == "i1"
        need(boolean or element_of(spec.mask) == element, f"a mask of {element}, as q is", spec.mask)
    if spec.pos is not None:
        need(len(shape_of(spec.pos)) == 1 and element_of(spec.pos) == "i32", "pos [B] of i32", spec.pos)
    if spec.sinks is not None:
        need(sinks, "no sinks", spec.sinks)
        need(shape_of(spec.sinks) in ((heads,), (None,)), f"a sink for each of {heads} heads", spec.sinks)
        need(element_of(spec.sinks) in ("f32", element), f"sinks of f32, or of {element} as q is", spec.sinks)
    window = spec.window if spec.mask_kind == "sliding_window" else 1
    need(window is not None and window >= 1, "a window of at least 1 key", spec.window)
    need(spec.softcap is None or spec.softcap > 0, "a positive softcap", spec.softcap)
