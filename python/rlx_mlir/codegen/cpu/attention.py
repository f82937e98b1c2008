# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The CPU template for `mir.attention`: grouped queries, every mask kind, plain and cached form, f32, f16 and
bf16; keys and values may be blocks of q8_0 or q4_0, and of different types.

For query i of head h, at absolute position p = offset + i, where offset is `pos[b]` in the cached form and Sk - Sq
otherwise, and for the keys j that exist (j < Sk, and in the cached form j < pos[b] + Sq):

    s_j = scale * <q_i, k_j>;    s_j = softcap * tanh(s_j / softcap) + bias_ij;    o_i = sum_j softmax(s)_j v_j

A head's sink is one more score of each softmax, without a value: what maxima and sums start with.

over the visible keys alone: all (none, bias), j <= p (causal), p - window < j <= p (sliding_window), mask_j >= 0.5
(custom). A query that sees no key gives zeros. Keys that don't exist are never read, and invisible keys don't
contribute even where their memory holds NaN. An additive bias is arithmetic, not a mask: a bias of -inf gives weight 0
(and zeros where all are -inf), but 0 * NaN stays NaN.

Two schedules, both f32 throughout (narrower elements are widened, and blocks decoded, when they are loaded) and with
results that depend neither on how units are cut nor on other rows: prompts (`attention_prefill.py`), and few queries,
each by itself (`attention_decode.py`): those without other ones (Sq = 1), and up to `FEW` of a sequence with a cache.
"""

from __future__ import annotations

from rlx_mlir.codegen.emit import Emitter, Index, Value, shape_of
from rlx_mlir.codegen.specs.attention import AttentionSpec, check_attention
from rlx_mlir.runtime.tiles import ATTENTION_AMX
from rlx_mlir.tuning.cpu import SHARED

from .attention_amx import TilePrefill
from .attention_base import Schedule
from .attention_decode import FEW, Decode
from .attention_prefill import Prefill
from .kernel import Finish, Scratch, write_kernel, write_shared_kernel
from .registry import Generator
from .target import Target


def emit_attention(name: str, spec: AttentionSpec, target: Target, kind: type[Schedule]) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch` of a schedule, as text."""
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


Config = tuple[AttentionSpec, type[Schedule]]
"""A problem, and the schedule that computes it."""


def _configure(name: str, spec: AttentionSpec, target: Target) -> Config:
    check_attention(spec, blocks=True, sinks=True)
    queries = shape_of(spec.q)[spec.sequence_axis]
    has_cache = any(operand == "pos" for operand, _ in spec.operands)
    is_decode = queries == 1 or (has_cache and queries is not None and 0 < queries <= FEW)
    return spec, Decode if is_decode else Prefill


def _configure_tiles(name: str, spec: AttentionSpec, target: Target) -> Config | None:
    _, kind = _configure(name, spec, target)
    return (spec, TilePrefill) if kind is Prefill and spec.one_storage and target.tiles("bf16") else None


def _emit(name: str, config: Config, target: Target) -> str:
    return emit_attention(name, config[0], target, config[1])


GENERATORS = (
    Generator(
        ATTENTION_AMX,
        "attention",
        _configure_tiles,
        _emit,
        switch=ATTENTION_AMX,
        knobs=SHARED,
        candidates={"prefill": [{"amx": 0}]},
    ),
    Generator("attention", "attention", _configure, _emit),
)
