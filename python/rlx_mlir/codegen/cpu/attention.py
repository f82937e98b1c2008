# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The CPU template for `mir.attention`: grouped queries, every mask kind, plain and cached form, f32, f16 and bf16.

For query i of head h, at absolute position p = offset + i, where offset is `pos[b]` in the cached form and Sk - Sq
otherwise, and for the keys j that exist (j < Sk, and in the cached form j < pos[b] + Sq):

    s_j = scale * <q_i, k_j>;    s_j = softcap * tanh(s_j / softcap) + bias_ij;    o_i = sum_j softmax(s)_j v_j

over the visible keys alone: all (none, bias), j <= p (causal), p - window < j <= p (sliding_window), mask_j >= 0.5
(custom). A query that sees no key gives zeros. Keys that don't exist are never read, and invisible keys don't
contribute even where their memory holds NaN. An additive bias is arithmetic, not a mask: a bias of -inf gives weight 0
(and zeros where all are -inf), but 0 * NaN stays NaN.

Two schedules, both f32 throughout (narrower elements are widened when they are loaded) and with results that depend
neither on how units are cut nor on other rows: prompts (`attention_prefill.py`), and single queries, Sq = 1
(`attention_decode.py`).
"""

from __future__ import annotations

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of
from rlx_mlir.runtime.tiles import ATTENTION_AMX

from . import UnsupportedByTemplate
from .attention_amx import TilePrefill
from .attention_base import AttentionSpec, Schedule
from .attention_decode import Decode
from .attention_prefill import Prefill
from .kernel import Finish, Scratch, write_kernel, write_shared_kernel
from .target import Target

__all__ = ["AttentionSpec", "check_attention", "emit_attention", "template_of"]

LAYOUTS = ("packed", "bshd", "bhsd")
MASK_KINDS = ("none", "causal", "sliding_window", "custom", "bias")
ELEMENTS = ("f32", "f16", "bf16")


def emit_attention(name: str, spec: AttentionSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Raises UnsupportedByTemplate where an element type, rank, size or attribute is outside what the template covers.
    """
    check_attention(spec)
    kind = schedule_of(spec, target)
    names = [operand for operand, _ in spec.operands]
    result = [("out", spec.result)]

    def units(em: Emitter, operands: list[Value]) -> Index:
        return kind(em, spec, target).units(operands[0], operands[1])

    def scratch(em: Emitter, operands: list[Value], parts: Scratch) -> None:
        kind(em, spec, target).take_scratch(operands[1], parts)

    def body(
        em: Emitter, operands: list[Value], results: list[Value], begin: Value, end: Value, parts: Scratch
    ) -> None:
        schedule = kind(em, spec, target)
        schedule.bind(dict(zip(names, operands, strict=True)), results)
        schedule.take_scratch(operands[1], parts)
        schedule.body(begin, end)

    if kind is not Decode:
        return write_kernel(name, spec.operands, result, units=units, scratch=scratch, body=body)

    def combine(
        em: Emitter, operands: list[Value], results: list[Value], begin: Value, end: Value, parts: Scratch
    ) -> None:
        schedule = Decode(em, spec, target)
        schedule.bind(dict(zip(names, operands, strict=True)), results)
        schedule.combine(begin, end, parts)

    finish = Finish(
        memory=lambda em, operands, parts: Decode(em, spec, target).take_shared(operands[0], operands[1], parts),
        units=lambda em, operands: Decode(em, spec, target).heads(operands[0]),
        scratch=lambda em, operands, parts: Decode(em, spec, target).take_row(parts),
        body=combine,
    )
    return write_shared_kernel(name, spec.operands, result, units=units, scratch=scratch, body=body, finish=finish)


def schedule_of(spec: AttentionSpec, target: Target) -> type[Schedule]:
    """How a problem is computed on a processor."""
    if shape_of(spec.q)[spec.sequence_axis] == 1:
        return Decode
    return TilePrefill if target.tiles("bf16") and ATTENTION_AMX not in target.without else Prefill


def template_of(spec: AttentionSpec, target: Target) -> str:
    """The name by which reports call what `emit_attention` makes."""
    return ATTENTION_AMX if schedule_of(spec, target) is TilePrefill else "attention"


def check_attention(spec: AttentionSpec, *, conditions: bool = False) -> None:
    """Raises UnsupportedByTemplate where the spec contradicts itself, or no template covers its types.

    Args:
        conditions: whether masks may be of i1, too.
    """

    def need(condition: bool, rule: str, got: object) -> None:
        if not condition:
            raise UnsupportedByTemplate(f"attention: expects {rule}, but got {got}")

    need(spec.layout in LAYOUTS, f"layout in {LAYOUTS}", spec.layout)
    need(spec.mask_kind in MASK_KINDS, f"mask_kind in {MASK_KINDS}", spec.mask_kind)
    element, stored = element_of(spec.q), element_of(spec.k)
    for type in (spec.q, spec.k, spec.v, spec.result):
        need(element_of(type) in ELEMENTS and "," not in type, f"identity-layout buffers of {ELEMENTS}", type)
    need(element_of(spec.result) == element, f"a result of {element}, as q is", spec.result)
    need(element_of(spec.v) == stored, f"v of {stored}, as k is", spec.v)
    need(stored == element or element == "f32", f"k of {element}, as q is, or q of f32", spec.k)
    heads, kv_heads, size = spec.num_heads, spec.kv_heads, spec.head_dim
    need(heads >= 1 and kv_heads >= 1 and size >= 1, "at least one head of size 1", (heads, kv_heads, size))
    need(heads % kv_heads == 0, "num_heads to be a multiple of num_kv_heads", (heads, kv_heads))
    ranks = (2, 3) if spec.layout == "packed" else (4,)
    for type, count in ((spec.q, heads), (spec.result, heads), (spec.k, kv_heads), (spec.v, kv_heads)):
        shape = shape_of(type)
        need(len(shape) in ranks and len(shape) == len(shape_of(spec.q)), f"rank {ranks} throughout", type)
        tail = {"packed": shape[-1:], "bshd": shape[-2:], "bhsd": (shape[-3], shape[-1]) if len(shape) > 2 else ()}
        need(
            tail[spec.layout] == ((count * size,) if spec.layout == "packed" else (count, size)),
            f"{count} heads of size {size} in the static dimensions",
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
    window = spec.window if spec.mask_kind == "sliding_window" else 1
    need(window is not None and window >= 1, "a window of at least 1 key", spec.window)
    need(spec.softcap is None or spec.softcap > 0, "a positive softcap", spec.softcap)
