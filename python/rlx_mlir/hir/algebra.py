# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of contractions, systems of equations, products by experts, scattered sums, losses and encoder blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir.hir.arguments import number
from rlx_mlir.hir.emitting import Emitting
from rlx_mlir.hir.graph import Word, shape_of
from rlx_mlir.hir.result_types import check_sequence
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack


class AlgebraBuilders(Emitting):
    """The builders."""

    # Linear algebra -------------------------------------------------------------------------------

    def dot_general(
        self,
        lhs: Value,
        rhs: Value,
        *,
        lhs_contracting: Sequence[int] = (),
        rhs_contracting: Sequence[int] = (),
        lhs_batch: Sequence[int] = (),
        rhs_batch: Sequence[int] = (),
        **options: Unpack[Options],
    ) -> Value:
        """Products of two tensors, summed along pairs of dimensions: [batch.., others of lhs.., others of rhs..].

        Args:
            lhs_contracting, rhs_contracting: the dimensions that are summed, in pairs.
            lhs_batch, rhs_batch: those that both have and that stay, in pairs.
        """
        given = {
            "lhs_contracting": lhs_contracting,
            "rhs_contracting": rhs_contracting,
            "lhs_batch": lhs_batch,
            "rhs_batch": rhs_batch,
        }
        for dims in given.values():
            check_sequence("dot_general", dims, "dimensions")
        attributes = {name: list(dims) for name, dims in given.items()}
        return self._emit("mir.dot_general", {"lhs": lhs, "rhs": rhs}, attributes, **options)[0]

    def lora_matmul(
        self, x: Value, weight: Value, a: Value, b: Value, *, scale: float = 1.0, **options: Unpack[Options]
    ) -> Value:
        """x weight + (scale (x a)) b, rounded once: x [..., K], weight [K, N], a [K, r], b [r, N]."""
        operands = {"x": x, "weight": weight, "a": a, "b": b}
        return self._emit("mir.lora_matmul", operands, {"scale": number(scale)}, **options)[0]

    def dense_solve(self, a: Value, b: Value, **options: Unpack[Options]) -> Value:
        """The x for which a x = b: a [N, N], b and x [N] or [N, K], of f32 or f64; NaN where a is singular."""
        return self._emit("mir.dense_solve", {"a": a, "b": b}, **options)[0]

    def batched_dense_solve(self, a: Value, b: Value, **options: Unpack[Options]) -> Value:
        """The x for which a x = b, of each batch item: a [B, N, N], b and x [B, N] or [B, N, K]; see `dense_solve`."""
        return self._emit("mir.batched_dense_solve", {"a": a, "b": b}, **options)[0]

    # Mixtures of experts --------------------------------------------------------------------------

    def grouped_matmul(self, x: Value, weight: Value, expert: Value | np.ndarray, **options: Unpack[Options]) -> Value:
        """Each row of x [M, K] times the weight of its expert: weight [E, K, N], expert [M], the result [M, N].

        Indices outside of the experts are clamped to them.
        """
        operands = {"x": x, "weight": weight, "expert": expert}
        return self._emit("mir.grouped_matmul", operands, **options)[0]

    def dequant_grouped_matmul(
        self, x: Value, weight: Value, expert: Value | np.ndarray, *, experts: int, **options: Unpack[Options]
    ) -> Value:
        """Each row of x [M, K] times the packed weight of its expert: [M, N].

        Args:
            weight: packed by its type, [experts * N, K]: the rows of one expert after those of another.
            expert: [M], the number of an expert for each row; clamped to those that there are.
        """
        operands = {"x": x, "weight": weight, "expert": expert}
        attributes = {"experts": experts}
        return self._emit("mir.dequant_grouped_matmul", operands, attributes, **options)[0]

    def grouped_block_dot(
        self,
        q: Value,
        scale: Value,
        sum: Value,
        weight: Value,
        expert: Value | np.ndarray,
        *,
        experts: int,
        **options: Unpack[Options],
    ) -> Value:
        """Each row of what `block_quantize` gives of x [M, K] times the packed weight of its expert: f32 [M, N].

        Args:
            weight, expert: as of `dequant_grouped_matmul`.
        """
        operands = {"q": q, "scale": scale, "sum": sum, "weight": weight, "expert": expert}
        return self._emit("mir.grouped_block_dot", operands, {"experts": experts}, **options)[0]

    def dequant_moe_weights(self, weight: Value, *, experts: int, **options: Unpack[Options]) -> Value:
        """The decoded weights, f32 [experts, K, N], of one packed [experts * N, K]."""
        attributes = {"experts": experts}
        return self._emit("mir.dequant_moe_weights", {"weight": weight}, attributes, **options)[0]

    # Indices --------------------------------------------------------------------------------------

    def scatter_add(
        self,
        updates: Value,
        indices: Value | np.ndarray,
        size: int | Value,
        axis: int = 0,
        **options: Unpack[Options],
    ) -> Value:
        """Sums of entries at the places that indices give: the other direction of `gather`.

        The dimensions of `indices`, which `updates` has from `axis` on, become one; an index outside of it drops its
        entry. Entries of one index are added in order, so the result is the same for any number of threads.

        Args:
            size: of that dimension; or a value whose dimension `axis` is as large.
            axis: where it is; a negative one counts from the end of the result.
        """
        if isinstance(axis, int) and axis < 0:
            axis += len(shape_of(updates, "'updates'")) - len(shape_of(indices, "'indices'")) + 1
        like = size if isinstance(size, Value) else None
        attributes = {"axis": axis, "size": None if like is not None else size}
        operands = {"updates": updates, "indices": indices, "like": like}
        return self._emit("mir.scatter_add", operands, attributes, **options)[0]

    def gather_backward(
        self, dy: Value, indices: Value | np.ndarray, table: Value, axis: int = 0, **options: Unpack[Options]
    ) -> Value:
        """The gradient of `gather(table, indices, axis)` by its table, with dy that of the result."""
        return self.scatter_add(dy, indices, table, axis, **options)

    # Losses ---------------------------------------------------------------------------------------

    def softmax_cross_entropy_with_logits(
        self, logits: Value, labels: Value | np.ndarray, **options: Unpack[Options]
    ) -> Value:
        """-log(softmax(logits)) at the label of each row: logits [N, C], labels [N], the result [N]."""
        operands = {"logits": logits, "labels": labels}
        return self._emit("mir.softmax_cross_entropy_with_logits", operands, **options)[0]

    def softmax_cross_entropy_backward(
        self, logits: Value, labels: Value | np.ndarray, d_loss: Value, **options: Unpack[Options]
    ) -> Value:
        """The gradient of `softmax_cross_entropy_with_logits` by its logits, with d_loss [N] that of its result."""
        operands = {"logits": logits, "labels": labels, "d_loss": d_loss}
        return self._emit("mir.softmax_cross_entropy_backward", operands, **options)[0]

    # Encoders -------------------------------------------------------------------------------------

    def fused_attention_block(
        self,
        hidden: Value,
        qkv_w: Value,
        out_w: Value,
        mask: Value | np.ndarray,
        qkv_b: Value | None = None,
        out_b: Value | None = None,
        cos: Value | None = None,
        sin: Value | None = None,
        *,
        num_heads: int,
        head_dim: int,
        **options: Unpack[Options],
    ) -> Value:
        """Self-attention: attention(q, k, v, mask) out_w + out_b, with q, k, v the thirds of hidden qkv_w + qkv_b.

        Args:
            hidden: [B, S, h].
            qkv_w: [h, 3 * num_heads * head_dim], the columns of queries, keys and values one after the other.
            out_w: [num_heads * head_dim, h].
            mask: [B, S] or [B, H, S, S], the keys that a query sees: i1, or at least 0.5.
            qkv_b, out_b: as long as the columns of their weights.
            cos, sin: [P, head_dim / 2] with P >= S, by which queries and keys are rotated.
        """
        operands: dict[str, object] = {"hidden": hidden, "qkv_w": qkv_w, "out_w": out_w, "mask": mask}
        operands |= {"qkv_b": qkv_b, "out_b": out_b, "cos": cos, "sin": sin}
        attributes = {"num_heads": num_heads, "head_dim": head_dim}
        return self._emit("mir.fused_attention_block", operands, attributes, **options)[0]

    def fused_transformer_layer(
        self,
        hidden: Value,
        qkv_w: Value,
        out_w: Value,
        ln1_g: Value,
        fc1_w: Value,
        fc2_w: Value,
        ln2_g: Value,
        mask: Value | np.ndarray,
        *,
        qkv_b: Value | None = None,
        out_b: Value | None = None,
        ln1_b: Value | None = None,
        fc1_b: Value | None = None,
        fc2_b: Value | None = None,
        ln2_b: Value | None = None,
        num_heads: int,
        head_dim: int,
        activation: str = "gelu",
        eps1: float = 1e-5,
        eps2: float = 1e-5,
        **options: Unpack[Options],
    ) -> Value:
        """An encoder layer: h = ln(attention + hidden), then ln(activation(h fc1_w + fc1_b) fc2_w + fc2_b + h).

        The attention is that of `fused_attention_block`, without rotation. `fc1_w` is [h, f], `fc2_w` [f, h]; biases
        may be absent.
        """
        operands: dict[str, object] = {"hidden": hidden, "qkv_w": qkv_w, "out_w": out_w, "ln1_g": ln1_g}
        operands |= {"fc1_w": fc1_w, "fc2_w": fc2_w, "ln2_g": ln2_g, "mask": mask, "qkv_b": qkv_b, "out_b": out_b}
        operands |= {"ln1_b": ln1_b, "fc1_b": fc1_b, "fc2_b": fc2_b, "ln2_b": ln2_b}
        attributes: dict[str, object] = {"num_heads": num_heads, "head_dim": head_dim}
        attributes |= {"activation": Word("activation", activation), "eps1": number(eps1), "eps2": number(eps2)}
        return self._emit("mir.fused_transformer_layer", operands, attributes, **options)[0]
