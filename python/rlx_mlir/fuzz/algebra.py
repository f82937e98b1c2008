# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How contractions, systems of equations, products by experts, scattered sums, losses and encoder blocks are drawn."""

from __future__ import annotations

import numpy as np

from rlx_mlir.fuzz.draft import FLOATS, Dim, Draft, Skip, word
from rlx_mlir.fuzz.primitives import ACTIVATIONS, ARITH, COMPLEX, INDICES, UNSIGNED_INDICES, eps, generates, indices
from rlx_mlir.hir import Value
from rlx_mlir.hir.graph import Word

#: Multiplications of one case at most.
_MOST = 400_000


@generates("mir.dot_general", sums=True)
def dot_general(draft: Draft) -> None:
    dtype = draft.choose([draft.float_type(), draft.choose(["i8", "i32", "i64", "ui32"])])
    batch, contracting = ([draft.dim(most=9) for _ in range(draft.integer(0, 2))] for _ in range(2))
    free = [[draft.dim(most=17) for _ in range(draft.integer(0, 2))] for _ in range(2)]
    if draft.elements([*batch, *contracting, *free[0], *free[1]]) > _MOST:
        raise Skip
    operands: dict[str, Value] = {}
    attributes: dict[str, object] = {}
    for name, own in zip(("lhs", "rhs"), free, strict=True):
        dims: list[Dim] = [*batch, *contracting, *own]
        order = [int(at) for at in draft.rng.permutation(len(dims))]
        operands[name] = draft.like([dims[at] for at in order], dtype, param=0.2)
        places = [order.index(at) for at in range(len(batch) + len(contracting))]
        attributes[f"{name}_batch"], attributes[f"{name}_contracting"] = places[: len(batch)], places[len(batch) :]
    draft.emit("mir.dot_general", operands, attributes)


@generates("mir.lora_matmul", sums=True)
def lora_matmul(draft: Draft) -> None:
    x, n, r = draft.floating(1), draft.dim(), draft.dim(most=9)
    dtype, k = word(x), x.shape[-1]
    operands = {"x": x, "weight": draft.dense_weight(k, n, dtype, False), "a": draft.dense_weight(k, r, dtype, False)}
    operands["b"] = draft.dense_weight(r, n, dtype, False)
    draft.emit("mir.lora_matmul", operands, {"scale": draft.choose([0.0, 0.5, 2.0])})


@generates("mir.dense_solve", "mir.batched_dense_solve", sums=True)
def solve(draft: Draft, name: str) -> None:
    """Systems whose diagonal outweighs the rest: rounding makes others singular, or not."""
    dtype, n = draft.choose(["f32", "f64"]), draft.size(0, 17)
    batch: list[Dim] = [draft.dim(most=3)] if name == "mir.batched_dense_solve" else []
    sides: list[Dim] = [draft.dim(most=9)] if draft.chance(0.5) else []
    rows = draft.like([*batch, n, n], dtype, param=0.1)
    (small,) = draft.emit("mir.tanh", {"x": rows})
    heavy = np.eye(n, dtype=np.float32 if dtype == "f32" else np.float64) * (n + 1)
    if draft.chance(0.5):
        heavy = heavy[::-1]  # the pivots are elsewhere
    a = draft.module.add(small, np.ascontiguousarray(heavy))
    draft.emit(name, {"a": a, "b": draft.like([*batch, n, *sides], dtype, param=0.1)})


def _experts(draft: Draft, rows: Dim, count: int) -> Value:
    """The numbers of experts of rows."""
    return indices(draft, [rows], count, (*INDICES, *UNSIGNED_INDICES))


@generates("mir.grouped_matmul", sums=True)
def grouped_matmul(draft: Draft) -> None:
    dtype, rows, k, n, experts = draft.float_type(), draft.dim(), draft.dim(), draft.dim(), draft.size(1, 9)
    if draft.elements([rows, k, n]) > _MOST:
        raise Skip
    weight = draft.new([experts, k, n], dtype, scale=max(draft.largest(k), 1) ** -0.5, param=0.8)
    operands = {"x": draft.like([rows, k], dtype), "weight": weight, "expert": _experts(draft, rows, experts)}
    draft.emit("mir.grouped_matmul", operands)


@generates("mir.dequant_grouped_matmul", "mir.dequant_moe_weights", sums=True)
def packed_experts(draft: Draft, name: str) -> None:
    k, n, experts = draft.columns(256), draft.size(1, 17), draft.size(1, 5)
    weight = draft.packed(experts * n, k)
    if name == "mir.dequant_moe_weights":
        draft.emit(name, {"weight": weight}, {"experts": experts})
        return
    rows = draft.dim(most=17)
    operands = {"x": draft.like([rows, k], draft.float_type()), "weight": weight}
    draft.emit(name, operands | {"expert": _experts(draft, rows, experts)}, {"experts": experts})


@generates("mir.grouped_block_dot", sums=True)
def quantised_experts(draft: Draft) -> None:
    k, n, experts, rows = draft.columns(256), draft.size(1, 17), draft.size(1, 5), draft.dim(most=17)
    if draft.chance(0.5):
        n = draft.choose([32, 64])  # whole panels
    bits = {"bits": draft.choose([None, 15, 22])}
    q, scale, total = draft.emit("mir.block_quantize", {"x": draft.like([rows, k], "f32")}, bits)
    operands = {"q": q, "scale": scale, "sum": total, "weight": draft.packed(experts * n, k, draft.integers(k))}
    draft.emit("mir.grouped_block_dot", operands | {"expert": _experts(draft, rows, experts)}, {"experts": experts})


@generates("mir.scatter_add", sums=True)
def scatter_add(draft: Draft) -> None:
    updates = draft.any((*ARITH, COMPLEX), 0, 4)
    count = draft.integer(0, min(updates.ndim, 2))
    axis = draft.integer(0, updates.ndim - count)
    size = draft.dim(most=17)
    where = updates.shape[axis : axis + count]
    if draft.elements([*updates.shape, size]) > 2_000_000 or "?" in updates.shape:
        raise Skip
    places = indices(draft, where, draft.largest(size) + draft.choose([0, 2]), (*INDICES, *UNSIGNED_INDICES))
    operands = {"updates": updates, "indices": places, "like": None}
    if isinstance(size, str) or draft.chance(0.3):
        shape: list[Dim] = [*(draft.shape(axis, axis) if axis < 3 else [1] * axis), size]
        operands["like"] = draft.like(shape, draft.float_type())
    draft.emit("mir.scatter_add", operands, {"axis": axis, "size": size if operands["like"] is None else None})


@generates("mir.softmax_cross_entropy_with_logits", "mir.softmax_cross_entropy_backward", sums=True)
def cross_entropy(draft: Draft, name: str) -> None:
    dtype, rows, classes = draft.float_type(), draft.dim(), draft.dim(1)
    logits = draft.like([rows, classes], dtype)
    labels = indices(draft, [rows], classes, (*INDICES, *UNSIGNED_INDICES))
    operands = {"logits": logits, "labels": labels}
    if name == "mir.softmax_cross_entropy_backward":
        operands["d_loss"] = draft.like([rows], dtype)
    draft.emit(name, operands)


@generates("mir.fused_attention_block", "mir.fused_transformer_layer", sums=True)
def encoder(draft: Draft, name: str) -> None:
    dtype, heads, d = draft.choose(FLOATS), draft.choose([1, 2, 3]), draft.choose([2, 4, 8])
    batch, length, inner = draft.dim(most=3), draft.dim(most=17), draft.size(1, 17)
    width = heads * d

    def vector(size: Dim) -> Value | None:
        return draft.optional(lambda: draft.vector(size, dtype))

    shape = (
        [batch, length] if draft.chance(0.6) else [draft.choose([1, batch]), heads, draft.choose([1, length]), length]
    )
    operands: dict[str, Value | None] = {
        "hidden": draft.like([batch, length, inner], dtype),
        "qkv_w": draft.dense_weight(inner, 3 * width, dtype, False),
        "out_w": draft.dense_weight(width, inner, dtype, False),
        "mask": draft.new(shape, draft.choose(["i1", dtype]), domain="choice", param=0.1),
        "qkv_b": vector(3 * width),
        "out_b": vector(inner),
    }
    attributes: dict[str, object] = {"num_heads": heads, "head_dim": d}
    if name == "mir.fused_attention_block":
        if draft.chance(0.5):
            table = [max(draft.largest(length), 1) + draft.choose([0, 3]), d // 2]
            element = draft.choose(["f32", dtype])
            operands |= {part: draft.like(table, element, param=0.9) for part in ("cos", "sin")}
        draft.emit(name, operands, attributes)
        return
    outer = draft.size(1, 33)
    operands |= {
        "ln1_g": draft.vector(inner, dtype),
        "fc1_w": draft.dense_weight(inner, outer, dtype, False),
        "fc2_w": draft.dense_weight(outer, inner, dtype, False),
        "ln2_g": draft.vector(inner, dtype),
        "ln1_b": vector(inner),
        "fc1_b": vector(outer),
        "fc2_b": vector(inner),
        "ln2_b": vector(inner),
    }
    attributes |= {"activation": Word("activation", draft.choose(ACTIVATIONS)), "eps1": eps(draft), "eps2": eps(draft)}
    draft.emit(name, operands, attributes)
