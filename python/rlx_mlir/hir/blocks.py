# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of HIR blocks, for modules at stage hir.

Every builder takes `name` (of the block, inside of the current scope) and `shape` (what the caller believes the first
result's shape to be, checked against the inferred one), as keywords. All raise BuildError, at the caller's line, where
operands or attributes break a rule of the block, and StageError for a module at another stage.

A weight of K inputs and N outputs is dense, [K, N] (or [N, K] with `transpose_weight`), or packed by its type. The
blocks that are also primitives (`rms_norm`, `rope`, `attention`, `dequant_matmul`, `dequant_matmul_nvfp4`,
`gated_delta_net`) build the primitive at stage mir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir.attributes import PythonValue
from rlx_mlir.hir import place
from rlx_mlir.hir.arguments import number, word
from rlx_mlir.hir.graph import Graph, Word
from rlx_mlir.hir.images import Images
from rlx_mlir.hir.primitives import Primitives
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Value, ValueOrTuple

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Blocks(Graph, Images):
    """The builders of blocks, over those of primitives."""

    def linear(
        self,
        x: Value,
        weight: Value,
        bias: Value | None = None,
        *,
        activation: str | None = None,
        transpose_weight: bool = False,
        **options: Unpack[Options],
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
        **options: Unpack[Options],
    ) -> Value:
        """`linear` with a bias, which policy direct lowers to one primitive: rounded once.

        Under policy fusable it becomes a product, a sum and an activation, as `linear` does, each rounded: what
        differentiates must not meet a fused operation.
        """
        operands = {"x": x, "weight": weight, "bias": bias}
        attributes = {"activation": word("activation", activation), "transpose_weight": transpose_weight}
        return self._emit("hir.linear_fused", operands, attributes, **options)[0]

    def shared_linear_pair(
        self, x: Value, w_first: Value, w_second: Value, *, transpose_weight: bool = False, **options: Unpack[Options]
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
        **options: Unpack[Options],
    ) -> Value:
        """(silu(x gate_w) * (x up_w)) down_w: x [..., K], gate and up of F outputs, down of F inputs."""
        operands = {"x": x, "gate_w": gate_w, "up_w": up_w, "down_w": down_w}
        return self._emit("hir.swiglu", operands, {"transpose_weight": transpose_weight}, **options)[0]

    def residual_rms_norm(
        self,
        x: Value,
        residual: Value,
        gamma: Value,
        beta: Value | None = None,
        *,
        eps: float = 1e-5,
        **options: Unpack[Options],
    ) -> Value:
        """rms_norm(x + residual) over the last dimension; gamma and beta as long as that."""
        operands = {"x": x, "residual": residual, "gamma": gamma, "beta": beta}
        return self._emit("hir.residual_rms_norm", operands, {"eps": number(eps)}, **options)[0]

    def rms_norm(
        self,
        x: Value,
        gamma: Value,
        beta: Value | None = None,
        *,
        axis: int = -1,
        eps: float = 1e-5,
        **options: Unpack[Options],
    ) -> Value:
        """x / sqrt(mean(x^2) + eps) * gamma + beta over the last dimension; over another one it is a primitive.

        Args:
            eps: in the unit of x squared; positive.
        """
        if self.stage != "hir" or not isinstance(axis, int) or axis != -1:
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
        **options: Unpack[Options],
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

    def dequant_matmul(
        self,
        x: Value,
        weight: Value | np.ndarray,
        scale: Value | np.ndarray | None = None,
        zp: Value | np.ndarray | None = None,
        scheme: str | None = None,
        **options: Unpack[Options],
    ) -> Value:
        """x [..., K] times a quantised weight of N outputs: [..., N].

        Args:
            weight: packed by its type, without a scheme; else i8, the codes of the scheme: [K, N], or the bytes of
                ceil(K * N / 2) pairs of nibbles with int4.
            scale: f32, [ceil(K / block), N] or, with fp8, [N]; without one, all of fp8 are 1.
            zp: zero points of the scale's shape, with int8a only.
            scheme: `int8/32`, `int8a/32`, `int4/32` (with any length of blocks), `fp8e4m3` or `fp8e5m2`; see
                `rlx_mlir.formats`.
        """
        return self._dequant_matmul("hir" if self.stage == "hir" else "mir", x, weight, scale, zp, scheme, options)

    def dequant_matmul_nvfp4(
        self,
        x: Value,
        codes: Value | np.ndarray,
        block_scales: Value | np.ndarray,
        global_scale: Value | np.ndarray,
        **options: Unpack[Options],
    ) -> Value:
        """x [..., K] times a weight in NVFP4, of i8 [ceil(K * N / 2)] with scales i8 [ceil(K / 16), N] and f32 [1]."""
        dialect = "hir" if self.stage == "hir" else "mir"
        return self._dequant_matmul_nvfp4(dialect, x, codes, block_scales, global_scale, options)

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
        sinks: Value | None = None,
        k_scheme: str | None = None,
        v_scheme: str | None = None,
        **options: Unpack[Options],
    ) -> ValueOrTuple:
        """softmax(scale q k^T, masked) v for each head; a query that sees no key gives zeros.

        Args:
            q: [B, Sq, num_heads * head_dim].
            k, v: [B, Sk, num_kv_heads * head_dim]; query head h reads head h // (num_heads / num_kv_heads).
            mask: with `mask_kind` custom [B, Sk] or [B, H, Sq, Sk], with bias [B, H, Sq, Sk], added to the scores.
            mask_kind: none, causal, sliding_window, custom or bias.
            window: number of keys that sliding_window keeps, the query's own included.
            scale: 1 / sqrt(head_dim) by default.
            softcap: c: scores become c tanh(score / c), before masks and biases.
            layout: `packed`; `bhsd` and `bshd` are of the primitive, which this builds then.
            k_cache, v_cache: [B, P, num_kv_heads * head_dim]; k and v are written to rows pos[b], pos[b] + 1, ….
            pos: [B] i32, the position of the first query. It comes with the caches; the primitive takes it alone.
            sinks: [num_heads], one more score of each softmax, which no key has: it takes a part of the weight.
            k_scheme, v_scheme: `q8_0` or `q4_0` where a cache is i8 [B, P, bytes], of blocks of 32 elements, or with
                the primitive k or v.

        Returns the result, like q; with caches a tuple (result, new k_cache, new v_cache).
        """
        cached = k_cache is not None or v_cache is not None
        schemes = {"k_scheme": k_scheme, "v_scheme": v_scheme}
        of_primitive = not _is_packed(layout) or pos is not None or any(schemes.values())
        if not cached and (self.stage != "hir" or of_primitive):
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
                sinks=sinks,
                **schemes,
                **options,
            )
        if not _is_packed(layout):
            raise place.caller().error(f"'hir.attention' with caches has layout packed only, but got {layout!r}")
        operands = {"q": q, "k": k, "v": v, "mask": mask, "k_cache": k_cache, "v_cache": v_cache, "pos": pos}
        operands["sinks"] = sinks
        attributes = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "mask_kind": Word("mask_kind", mask_kind),
            "window": window,
            "scale": number(scale),
            "softcap": number(softcap),
            **{name: word("cache_scheme", scheme) for name, scheme in schemes.items()},
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
        style: str = "half",
        transpose_weight: bool = False,
        k_scheme: str | None = None,
        v_scheme: str | None = None,
        **options: Unpack[Options],
    ) -> ValueOrTuple:
        """One layer of a LLaMA model: h = x + attention(rms_norm(x)) o_w; h + swiglu(rms_norm(h)).

        Args:
            x: [B, S, E].
            ln1_gamma, ln1_beta, ln2_gamma, ln2_beta: [E].
            q_w, k_w, v_w: E inputs; num_heads * head_dim, num_kv_heads * head_dim (twice) outputs.
            o_w: num_heads * head_dim inputs, E outputs.
            gate_w, up_w, down_w: as in `swiglu`, E inputs and outputs.
            cos, sin: as in `rope`, as is `style`: GGUF files of LLaMA models need interleaved.
            mask, mask_kind, window: as in `attention`; causal unless said, where text without `mask` hides no key.
            k_cache, v_cache, pos: as in `attention`; `pos` is read by rope too, and may come without caches.
            k_scheme, v_scheme: as in `attention`.

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
            "k_scheme": word("cache_scheme", k_scheme),
            "v_scheme": word("cache_scheme", v_scheme),
            "transpose_weight": transpose_weight,
        }
        results = self._emit("hir.llama_decoder_block", operands, attributes, **options)
        return results if len(results) > 1 else results[0]

    def transformer_block(self, x: Value, *, name: str = "transformer_block", **arguments: PythonValue) -> ValueOrTuple:
        """The same as `llama_decoder_block`, under another name."""
        return self.llama_decoder_block(x, name=name, **arguments)

    def depthwise_conv1d_causal(
        self, input: Value, weight: Value, left_pad: Value | None = None, **options: Unpack[Options]
    ) -> Value:
        """Each channel convolved with its own kernel over the last K tokens; the last tap is of the token itself.

        Args:
            input: [B, S, C].
            weight: [C, 1, 1, K].
            left_pad: [B, K - 1, C], the tokens before: what `input` of the call before ended with, or zeros. It may
                be left out where B is static: zeros then.
        """
        if left_pad is None and isinstance(input, Value) and isinstance(weight, Value):
            sizes = [*input.shape[:1], *(size - 1 for size in weight.shape[3:] if isinstance(size, int))]
            if len(sizes) != 2 or not isinstance(sizes[0], int):
                raise place.caller().error(
                    f"'hir.depthwise_conv1d_causal' takes zeros for 'left_pad' only where the batch is static, "
                    f"but 'input' is {list(input.shape)} and 'weight' {list(weight.shape)}"
                )
            shape: tuple[PythonValue, ...] = (*sizes, *weight.shape[:1])
            left_pad = self.constant(np.zeros(shape, input.dtype))
        operands = {"input": input, "weight": weight, "left_pad": left_pad}
        return self._emit("hir.depthwise_conv1d_causal", operands, **options)[0]

    def gated_delta_net(
        self,
        q: Value,
        k: Value,
        v: Value,
        g: Value,
        beta: Value,
        state: Value | None = None,
        *,
        chunk: int | None = None,
        **options: Unpack[Options],
    ) -> tuple[Value, Value]:
        """Linear attention by a gated delta rule: (result [B, S, H, n], state [B, H, n, n] after the last token).

        Args:
            q, k, v: [B, S, H, n]; q and k of unit length, their heads repeated where v has more.
            g: [B, S, H], the logarithm of the decay of each step.
            beta: [B, S, H], the strength of each correction.
            state: [B, H, n, n] f32 (f64 where q is), what the call before gave; zeros without it.
            chunk: steps that generic code takes at once; with 1, all code goes step by step, and a step has the same
                bits wherever a sequence is cut. Where it is given, this is the primitive at once.
        """
        if self.stage != "hir" or chunk is not None:
            return Primitives.gated_delta_net(self, q, k, v, g, beta, state, chunk=chunk, **options)
        operands = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "state": state}
        result, state_out = self._emit("hir.gated_delta_net", operands, **options)
        return result, state_out

    def gated_delta_net_carry(
        self, q: Value, k: Value, v: Value, g: Value, beta: Value, state: Value, **options: Unpack[Options]
    ) -> tuple[Value, Value]:
        """The same as `gated_delta_net` with a state."""
        return self.gated_delta_net(q, k, v, g, beta, state, **options)

    def qwen35_mtp_head(
        self,
        h_pre_norm: Value,
        *,
        input_ids: Value,
        cos: Value,
        sin: Value,
        last_token_idx: Value,
        embed_w: Value,
        hnorm_w: Value,
        enorm_w: Value,
        eh_w: Value,
        attn_norm_w: Value,
        q_gate_w: Value,
        k_w: Value,
        v_w: Value,
        q_norm_w: Value,
        k_norm_w: Value,
        o_w: Value,
        post_norm_w: Value,
        gate_w: Value,
        up_w: Value,
        down_w: Value,
        head_norm_w: Value,
        lm_head_w: Value,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        hnorm_b: Value | None = None,
        enorm_b: Value | None = None,
        attn_norm_b: Value | None = None,
        q_norm_b: Value | None = None,
        k_norm_b: Value | None = None,
        post_norm_b: Value | None = None,
        head_norm_b: Value | None = None,
        n_rot: int | None = None,
        eps: float = 1e-6,
        style: str = "half",
        transpose_weight: bool = False,
        **options: Unpack[Options],
    ) -> Value:
        """Draft head of Qwen3.5: scores [B, 1, V] of the token after the next one, for each item's last token.

        Args:
            h_pre_norm: [B, S, E], the trunk's last hidden state before the final norm.
            input_ids: [B, S], the tokens (i32, i64, or whole f32).
            cos, sin: tables [P, head_dim / 2], of which the first n_rot / 2 columns are read, as in `rope`.
            last_token_idx: [B], the row of each item whose scores are wanted (i32, i64, or whole f32).
            embed_w: [vocabulary, E], or packed.
            hnorm_w, enorm_w, attn_norm_w, post_norm_w, head_norm_w: gammas [E]; `…_b` are their betas.
            q_norm_w, k_norm_w: gammas [head_dim], of each head; `…_b` are their betas.
            eh_w: 2E inputs, the embedding first, then h_pre_norm; E outputs.
            q_gate_w: E inputs, 2 num_heads head_dim outputs: in each head its query, then its gate.
            k_w, v_w: E inputs, num_kv_heads head_dim outputs.
            o_w: num_heads head_dim inputs, E outputs.
            gate_w, up_w, down_w: as in `swiglu`, E inputs and outputs.
            lm_head_w: E inputs, V outputs.
            n_rot, style: as in `rope`.
            eps: of all norms; 1e-6 unless said, as in Qwen3.5's files, where operations without one have 1e-5.
        """
        operands = {
            "h_pre_norm": h_pre_norm,
            "input_ids": input_ids,
            "cos": cos,
            "sin": sin,
            "last_token_idx": last_token_idx,
            "embed_w": embed_w,
            "hnorm_w": hnorm_w,
            "hnorm_b": hnorm_b,
            "enorm_w": enorm_w,
            "enorm_b": enorm_b,
            "eh_w": eh_w,
            "attn_norm_w": attn_norm_w,
            "attn_norm_b": attn_norm_b,
            "q_gate_w": q_gate_w,
            "k_w": k_w,
            "v_w": v_w,
            "q_norm_w": q_norm_w,
            "q_norm_b": q_norm_b,
            "k_norm_w": k_norm_w,
            "k_norm_b": k_norm_b,
            "o_w": o_w,
            "post_norm_w": post_norm_w,
            "post_norm_b": post_norm_b,
            "gate_w": gate_w,
            "up_w": up_w,
            "down_w": down_w,
            "head_norm_w": head_norm_w,
            "head_norm_b": head_norm_b,
            "lm_head_w": lm_head_w,
        }
        attributes = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "n_rot": n_rot,
            "eps": number(eps),
            "style": Word("rope_style", style),
            "transpose_weight": transpose_weight,
        }
        return self._emit("hir.qwen35_mtp_head", operands, attributes, **options)[0]


def _is_packed(layout: object) -> bool:
    """Whether a layout of heads is that of the block; arrays of numpy have no truth to compare with."""
    return isinstance(layout, str) and layout == "packed"
