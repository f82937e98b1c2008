# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of HIR blocks, for modules at stage hir.

Every builder takes `name` (of the block, inside of the current scope) and `shape` (what the caller believes the first
result's shape to be, checked against the inferred one), as keywords. All raise BuildError, at the caller's line, where
operands or attributes break a rule of the block, and StageError for a module at another stage.

A weight of K inputs and N outputs is dense, [K, N] (or [N, K] with `transpose_weight`), or packed by its type. The four
blocks that are also primitives (`rms_norm`, `rope`, `attention`, `dequant_matmul`) build the primitive at stage mir.
"""

from __future__ import annotations

from typing import Any

from rlx_mlir.hir import place
from rlx_mlir.hir.graph import Graph, Word
from rlx_mlir.hir.primitives import Primitives, number, word
from rlx_mlir.hir.values import Value


class Blocks(Graph, Primitives):
    """The builders of blocks, over those of primitives."""

    def linear(
        self,
        x: Value,
        weight: Value,
        bias: Value | None = None,
        *,
        activation: str | None = None,
        transpose_weight: bool = False,
        **options: Any,
    ) -> Value:
        """activation(x weight + bias): x [..., K] -> [..., N], bias [N].

        Args:
            activation: one of the words that `activation` takes.
        """
        operands = {"x": x, "weight": weight, "bias": bias}
        attributes = {"activation": word("activation", activation), "transpose_weight": transpose_weight}
        return self._emit("hir.linear", operands, attributes, **options)[0]

    def linear_fused(
        self,
        x: Value,
        weight: Value,
        bias: Value,
        *,
        activation: str | None = None,
        transpose_weight: bool = False,
        **options: Any,
    ) -> Value:
        """`linear` with a bias, as one primitive under every fusion policy: rounded once."""
        operands = {"x": x, "weight": weight, "bias": bias}
        attributes = {"activation": word("activation", activation), "transpose_weight": transpose_weight}
        return self._emit("hir.linear_fused", operands, attributes, **options)[0]

    def shared_linear_pair(
        self, x: Value, w_first: Value, w_second: Value, *, transpose_weight: bool = False, **options: Any
    ) -> tuple[Value, Value]:
        """(x w_first, x w_second), [..., N1] and [..., N2]."""
        operands = {"x": x, "w_first": w_first, "w_second": w_second}
        first, second = self._emit(
            "hir.shared_linear_pair", operands, {"transpose_weight": transpose_weight}, **options
        )
        return first, second

    def swiglu(
        self,
        x: Value,
        *,
        gate_w: Value,
        up_w: Value,
        down_w: Value,
        transpose_weight: bool = False,
        **options: Any,
    ) -> Value:
        """(silu(x gate_w) * (x up_w)) down_w: x [..., K], gate and up of F outputs, down of F inputs."""
        operands = {"x": x, "gate_w": gate_w, "up_w": up_w, "down_w": down_w}
        return self._emit("hir.swiglu", operands, {"transpose_weight": transpose_weight}, **options)[0]

    def residual_rms_norm(
        self, x: Value, residual: Value, gamma: Value, beta: Value | None = None, *, eps: float = 1e-5, **options: Any
    ) -> Value:
        """rms_norm(x + residual) over the last dimension; gamma and beta as long as that."""
        operands = {"x": x, "residual": residual, "gamma": gamma, "beta": beta}
        return self._emit("hir.residual_rms_norm", operands, {"eps": number(eps)}, **options)[0]

    def rms_norm(
        self, x: Value, gamma: Value, beta: Value | None = None, *, axis: int = -1, eps: float = 1e-5, **options: Any
    ) -> Value:
        """x / sqrt(mean(x^2) + eps) * gamma + beta over the last dimension; over another one it is a primitive.

        Args:
            eps: in the unit of x squared; positive.
        """
        if self.stage != "hir" or axis != -1:
            return Primitives.rms_norm(self, x, gamma, beta, axis=axis, eps=eps, **options)
        operands = {"x": x, "gamma": gamma, "beta": beta}
        return self._emit("hir.rms_norm", operands, {"eps": number(eps)}, **options)[0]

    def rope(
        self,
        x: Value,
        cos: Value,
        sin: Value,
        *,
        head_dim: int,
        style: str,
        n_rot: int | None = None,
        pos: Value | None = None,
        **options: Any,
    ) -> Value:
        """Rotary position embedding of x [B, S, heads * head_dim] by tables [P, head_dim / 2].

        Args:
            style: `half` rotates elements i and i + n_rot / 2 together, `interleaved` 2i and 2i + 1. It belongs to
                the weights, so there is no default.
            n_rot: elements of each head that are rotated, all by default.
            pos: [B] i32, the row of the tables for the first position; 0 without it.
        """
        if self.stage != "hir":
            return Primitives.rope(self, x, cos, sin, head_dim=head_dim, style=style, n_rot=n_rot, pos=pos, **options)
        operands = {"x": x, "cos": cos, "sin": sin, "pos": pos}
        attributes = {"head_dim": head_dim, "n_rot": n_rot, "style": Word("rope_style", style)}
        return self._emit("hir.rope", operands, attributes, **options)[0]

    def dequant_matmul(self, x: Value, weight: Value, **options: Any) -> Value:
        """x [..., K] times a packed weight of N rows: [..., N]."""
        op = "hir.dequant_matmul" if self.stage == "hir" else "mir.dequant_matmul"
        return self._emit(op, {"x": x, "weight": weight}, **options)[0]

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        mask: Value | None = None,
        *,
        num_heads: int,
        head_dim: int,
        num_kv_heads: int | None = None,
        mask_kind: str = "none",
        window: int | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        layout: str = "packed",
        k_cache: Value | None = None,
        v_cache: Value | None = None,
        pos: Value | None = None,
        **options: Any,
    ) -> Any:
        """softmax(scale q k^T, masked) v for each head; a query that sees no key gives zeros.

        Args:
            q: [B, Sq, num_heads * head_dim].
            k, v: [B, Sk, num_kv_heads * head_dim]; query head h reads head h // (num_heads / num_kv_heads).
            mask: with `mask_kind` custom [B, Sk] or [B, H, Sq, Sk], with bias [B, H, Sq, Sk], added to the scores.
            mask_kind: none, causal, sliding_window, custom or bias.
            window: number of keys that sliding_window keeps, the query's own included.
            scale: 1 / sqrt(head_dim) by default.
            softcap: c: scores become c tanh(score / c) before masking.
            layout: `packed`; `bhsd` and `bshd` are of the primitive, which this builds then.
            k_cache, v_cache: [B, P, num_kv_heads * head_dim]; k and v are written to rows pos[b], pos[b] + 1, ….
            pos: [B] i32, the position of the first query. It comes with the caches; the primitive takes it alone.

        Returns the result, like q; with caches a tuple (result, new k_cache, new v_cache).
        """
        cached = k_cache is not None or v_cache is not None
        if not cached and (self.stage != "hir" or layout != "packed" or pos is not None):
            return Primitives.attention(
                self,
                q,
                k,
                v,
                mask,
                num_heads=num_heads,
                head_dim=head_dim,
                num_kv_heads=num_kv_heads,
                mask_kind=mask_kind,
                window=window,
                scale=scale,
                softcap=softcap,
                layout=layout,
                pos=pos,
                **options,
            )
        if layout != "packed":
            raise place.caller().error(f"'hir.attention' with caches has layout packed only, but got {layout!r}")
        operands = {"q": q, "k": k, "v": v, "mask": mask, "k_cache": k_cache, "v_cache": v_cache, "pos": pos}
        attributes = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "mask_kind": Word("mask_kind", mask_kind),
            "window": window,
            "scale": number(scale),
            "softcap": number(softcap),
        }
        results = self._emit("hir.attention", operands, attributes, **options)
        return results if cached else results[0]

    def llama_decoder_block(
        self,
        x: Value,
        *,
        ln1_gamma: Value,
        q_w: Value,
        k_w: Value,
        v_w: Value,
        o_w: Value,
        ln2_gamma: Value,
        gate_w: Value,
        up_w: Value,
        down_w: Value,
        cos: Value,
        sin: Value,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        ln1_beta: Value | None = None,
        ln2_beta: Value | None = None,
        mask: Value | None = None,
        k_cache: Value | None = None,
        v_cache: Value | None = None,
        pos: Value | None = None,
        eps: float = 1e-5,
        mask_kind: str = "causal",
        window: int | None = None,
        style: str = "interleaved",
        transpose_weight: bool = False,
        **options: Any,
    ) -> Any:
        """One layer of a LLaMA model: h = x + attention(rms_norm(x)) o_w; h + swiglu(rms_norm(h)).

        Args:
            x: [B, S, E].
            ln1_gamma, ln1_beta, ln2_gamma, ln2_beta: [E].
            q_w, k_w, v_w: E inputs; num_heads * head_dim, num_kv_heads * head_dim (twice) outputs.
            o_w: num_heads * head_dim inputs, E outputs.
            gate_w, up_w, down_w: as in `swiglu`, E inputs and outputs.
            cos, sin: as in `rope`, as is `style` (interleaved is what GGUF files of LLaMA models need).
            mask, mask_kind, window: as in `attention`, causal by default.
            k_cache, v_cache, pos: as in `attention`; `pos` is read by rope too, and may come without caches.

        Returns the result, [B, S, E]; with caches a tuple (result, new k_cache, new v_cache).
        """
        operands = {
            "x": x,
            "ln1_gamma": ln1_gamma,
            "q_w": q_w,
            "k_w": k_w,
            "v_w": v_w,
            "o_w": o_w,
            "ln2_gamma": ln2_gamma,
            "gate_w": gate_w,
            "up_w": up_w,
            "down_w": down_w,
            "cos": cos,
            "sin": sin,
            "ln1_beta": ln1_beta,
            "ln2_beta": ln2_beta,
            "mask": mask,
            "k_cache": k_cache,
            "v_cache": v_cache,
            "pos": pos,
        }
        attributes = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "eps": number(eps),
            "mask_kind": Word("mask_kind", mask_kind),
            "window": window,
            "style": Word("rope_style", style),
            "transpose_weight": transpose_weight,
        }
        results = self._emit("hir.llama_decoder_block", operands, attributes, **options)
        return results if len(results) > 1 else results[0]

    def transformer_block(self, x: Value, *, name: str = "transformer_block", **arguments: Any) -> Any:
        """The same as `llama_decoder_block`, under another name."""
        return self.llama_decoder_block(x, name=name, **arguments)
