# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of decoders as blocks and primitives, with or without caches and adapters; what stands in one is data.

An adapter (LoRA) adds to a product with a weight W one of low rank, y = x W^T + scale (x A^T) B^T, A [rank, inputs] and
B [outputs, rank], both f32: parameters named after the weight, `blk.0.attn_q.lora_a` and `blk.0.attn_q.lora_b`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..checks import Option
from ..errors import UnsupportedError
from .architecture import LONG_ROPE_FACTORS, ROPE_FACTORS
from .caches import schemes
from .config import ModelConfig
from .conv_layers import rule_of
from .delta_layers import Past
from .router import route

if TYPE_CHECKING:
    from ..hir import GraphModule, Value

ADAPTED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
"""The products of a layer that an adapter may be added to, by the names of their weights."""

_FEED_FORWARD = ADAPTED[4:]


@dataclass(frozen=True)
class Low:
    """The two factors that an adapter adds to one product, and what their product is multiplied by."""

    a: Value
    b: Value
    scale: float = 1.0


def adapter_names(product: str) -> tuple[str, str]:
    """The parameters of an adapter of a product, such as `blk.0.attn_q`: A and B."""
    return f"{product}.lora_a", f"{product}.lora_b"


def used(config: ModelConfig) -> list[str]:
    """The tensors that are parameters: all but those that go into the rope tables."""
    return [name for name in config.weights if name not in (ROPE_FACTORS, *LONG_ROPE_FACTORS)]


def predicting(config: ModelConfig) -> list[str]:
    """Those of the layer that predicts further ahead."""
    return [name for name in used(config) if config.predicts and name.startswith(f"blk.{config.layers}.")]


def type_of(config: ModelConfig, name: str) -> str:
    """The type of a parameter: that of the file for a matrix, or one for each expert, f32 for a vector."""
    info = config.weights[name]
    return info.type if len(info.shape) > 1 else "f32"


def is_packed(config: ModelConfig, name: str) -> bool:
    """Whether a parameter is rows of bytes: the matrices of experts are, one after the other, whatever their type."""
    return type_of(config, name) != "f32" or len(config.weights[name].shape) == 3


def weight_params(graph: GraphModule, config: ModelConfig, names: Iterable[str] | None = None) -> dict[str, Value]:
    """A parameter of the graph for each weight, by name: for some, or for all that the model's layers have."""

    def param(name: str) -> Value:
        info = config.weights[name]
        if is_packed(config, name):
            return graph.param(name, [info.rows, info.k], packed=type_of(config, name))
        return graph.param(name, info.shape)

    if names is None:
        further = frozenset(predicting(config))
        names = [name for name in used(config) if name not in further]
    return {name: param(name) for name in names}


def adapter_params(
    graph: GraphModule, config: ModelConfig, ranks: Mapping[str, int], scales: Mapping[str, float] | None = None
) -> dict[str, Low]:
    """The parameters of an adapter, by product.

    Args:
        ranks: of each product that has one.
        scales: what is multiplied; 1 where it isn't said.
    """
    found = {}
    for product, rank in ranks.items():
        outputs, inputs = config.weights[f"{product}.weight"].shape
        first, second = adapter_names(product)
        a, b = graph.param(first, [rank, inputs]), graph.param(second, [outputs, rank])
        found[product] = Low(a, b, (scales or {}).get(product, 1.0))
    return found


def rope_names(config: ModelConfig) -> dict[bool, tuple[str, str]]:
    """Names of the parameters with cosines and sines, by whether they are those of local layers; none where no layer
    rotates."""
    names: dict[bool, tuple[str, str]] = {}
    if not set(config.attentive) - set(config.unrotated):
        return names
    if config.local_layers < config.layers:
        names[False] = ("rope.cos", "rope.sin")
    if config.local_layers:
        names[True] = ("rope.local.cos", "rope.local.sin") if config.local_rope_base else ("rope.cos", "rope.sin")
    return names


def rope_params(graph: GraphModule, config: ModelConfig, positions: int | str) -> dict[bool, tuple[Value, Value]]:
    """Parameters for the tables of cosines and sines, by whether they are those of local layers."""
    shape = [positions, config.rotated_head // 2]
    names = rope_names(config)
    made = {pair: (graph.param(pair[0], shape), graph.param(pair[1], shape)) for pair in dict.fromkeys(names.values())}
    return {local: made[pair] for local, pair in names.items()}


def embedded(graph: GraphModule, config: ModelConfig, params: Mapping[str, Value], tokens: Value) -> Value:
    """What the first layer reads: rows of the table."""
    x = graph.gather(params["token_embd.weight"], tokens, name="token_embd")
    return graph.mul(x, config.embedding_scale, name="token_embd") if config.embedding_scale != 1.0 else x


def normed(graph: GraphModule, config: ModelConfig, params: Mapping[str, Value], x: Value) -> Value:
    """What logits are made of, from what the last layer gave."""
    return norm_of(graph, config, params, x, "output_norm", name="output_norm")


def norm_of(
    graph: GraphModule, config: ModelConfig, params: Mapping[str, Value], x: Value, weights: str, *, name: str
) -> Value:
    """The norm whose tensors are called so, without `.weight` and `.bias`."""
    norm = graph.layer_norm if config.plan.layer_norms else graph.rms_norm
    return norm(x, params[f"{weights}.weight"], params.get(f"{weights}.bias"), eps=config.eps, name=name)


def logits_of(graph: GraphModule, config: ModelConfig, params: Mapping[str, Value], x: Value) -> Value:
    """Logits from what the last layer gave."""
    return head_of(graph, config, params, normed(graph, config, params, x))


def head_of(graph: GraphModule, config: ModelConfig, params: Mapping[str, Value], x: Value) -> Value:
    """Logits from what is normed."""
    logits = product(graph, x, params[config.head_weight], params.get("output.bias"), name="output")
    if config.logit_scale != 1.0:
        logits = graph.mul(logits, 1.0 / config.logit_scale, name="output")
    cap = config.logit_softcap
    if cap:
        logits = graph.mul(graph.tanh(graph.mul(logits, 1.0 / cap, name="output"), name="output"), cap, name="output")
    return logits


def product(graph: GraphModule, x: Value, weight: Value, bias: Value | None = None, *, name: str) -> Value:
    """x times a weight, whose rows are outputs in the file, and a bias."""
    if weight.packed is not None and bias is None:
        return graph.dequant_matmul(x, weight, name=name)
    return graph.linear(x, weight, bias, transpose_weight=weight.packed is None, name=name)


@dataclass(frozen=True)
class Layer:
    """Builds one layer of a graph.

    Attributes:
        graph: where it is built.
        config, number: of the model, and which layer it is.
        params: the weights' parameters, by name.
        cos, sin: the tables of its rotations; None where no layer rotates.
        pos: [B], positions of the first tokens; 0 without it.
        adapters: by product; see `adapter_params`.
        seen: of whole sequences, which keys each query sees, where that isn't the mask of the layer's kind:
            [B, 1, S, S].
    """

    graph: GraphModule
    config: ModelConfig
    number: int
    params: Mapping[str, Value]
    cos: Value | None
    sin: Value | None
    pos: Value | None = None
    adapters: Mapping[str, Low] = field(default_factory=dict)
    seen: Value | None = None

    def cached(self, x: Value, caches: Sequence[Value]) -> tuple[Value, tuple[Value, ...]]:
        """The result, and the new caches.

        Args:
            x: [B, S, hidden].
            caches: keys and values; one of latents where these are made of such.
        """
        if self.config.is_plain and not self._has_adapter(*ADAPTED):
            return self._block(x, *caches)
        return self._built(f"blk.{self.number}", x, tuple(caches))

    def recurrent(
        self, x: Value, past: Past, caches: Sequence[Value] = ()
    ) -> tuple[Value, Value, Past, tuple[Value, ...]]:
        """The result, the trail, the states behind the last token, and the new caches; see `delta`.

        Args:
            x: [B, S, hidden].
            past: the states before the first one.
            caches: keys and values, where the layer has attention, too.
        """
        with self.graph.scope(f"blk.{self.number}"):
            n = self._pre_norm(x, "attn_norm")
            added, trail, left = self._delta_rule(n, past)
            assert left is not None
            added, updated = self._with_attention(n, added, tuple(caches))
            return self._behind(x, added), trail, left, updated

    def network(self, x: Value) -> Value:
        """The result of a layer that is a feed-forward network, or experts, alone."""
        with self.graph.scope(f"blk.{self.number}"):
            return self._add(x, self._networks(self._pre_norm(x, "attn_norm")), "ffn_down")

    def sequence(self, x: Value) -> Value:
        """The result for whole sequences, each from its first token on; a block `layer<number>`.

        That name has no point, which would make all layers parts of one block: a step of training computes some of the
        outermost blocks again where memory is short.
        """
        if self.config.streams is not None:
            raise UnsupportedError(
                f"layers of '{self.config.architecture}' change several streams, and some read keys and values of "
                "others, which whole sequences without caches, as in training, don't have"
            )
        if self.config.is_network(self.number):
            return self.network(x)
        if not self.config.is_recurrent(self.number):
            return self._built(f"layer{self.number}", x, ())[0]
        if self.seen is not None:
            raise UnsupportedError(
                f"layer {self.number} of '{self.config.architecture}' has one state of all tokens before, so that "
                "examples beside each other in a row can't be told apart: give each a row of its own"
            )
        with self.graph.scope(f"layer{self.number}"):
            n = self._pre_norm(x, "attn_norm")
            return self._behind(x, self._with_attention(n, self._delta_rule(n, None)[0], ())[0])

    def _built(self, name: str, x: Value, caches: tuple[Value, ...]) -> tuple[Value, tuple[Value, ...]]:
        """The result, and the caches after it where there are some."""
        with self.graph.scope(name):
            attend = self._attend_latents if self.config.latent else self._attend
            n = self._pre_norm(x, "attn_norm")
            attended, updated = attend(n, caches)
            if not self.config.plan.parallel:
                return self._behind(x, attended), updated
            return self._add(self._add(x, attended, "attn_output"), self._feed_forward(n), "ffn_down"), updated

    def _behind(self, x: Value, attended: Value) -> Value:
        """The result, of what attention or what stands in its place gives."""
        h = self._add(x, self._post_norm(attended, "post_attention_norm"), "attn_output")
        if not self.config.has_network(self.number):
            return h
        n = self._pre_norm(h, self.config.plan.ffn_norm)
        return self._add(h, self._post_norm(self._networks(n), "post_ffw_norm"), "ffn_down")

    def _networks(self, n: Value) -> Value:
        """What a layer's network gives, or its experts."""
        return self._experts(n) if self.config.has_experts(self.number) else self._feed_forward(n)

    def _with_attention(self, n: Value, added: Value, caches: tuple[Value, ...]) -> tuple[Value, tuple[Value, ...]]:
        """What stands beside attention with what that gives, and the new caches, where the layer has both."""
        if self.number not in self.config.attentive:
            return added, ()
        attended, updated = self._attend(n, caches)
        return self.graph.add(added, attended, name="attn_output"), updated

    def _delta_rule(self, n: Value, past: Past | None) -> tuple[Value, Value, Past | None]:
        return rule_of(self.graph, self.config, self.number, self.params).attended(n, self._product, past)

    def _add(self, x: Value, added: Value, name: str) -> Value:
        scale = self.config.residual_scale
        return self.graph.add(x, self.graph.mul(added, scale, name=name) if scale != 1.0 else added, name=name)

    def _has_adapter(self, *names: str) -> bool:
        return any(f"blk.{self.number}.{name}" in self.adapters for name in names)

    def _weight(self, name: str) -> Value:
        return self.params[f"blk.{self.number}.{name}.weight"]

    def _bias(self, name: str) -> Value | None:
        """What is added to a product; None for those without one."""
        return self.params.get(f"blk.{self.number}.{name}.bias")

    def _block(self, x: Value, k_cache: Value, v_cache: Value) -> tuple[Value, tuple[Value, ...]]:
        """The layer as one block, which rotates."""
        config = self.config
        assert self.cos is not None
        assert self.sin is not None
        matrices: dict[str, Option] = {
            "q_w": self._weight("attn_q"),
            "k_w": self._weight("attn_k"),
            "v_w": self._weight("attn_v"),
            "o_w": self._weight("attn_output"),
            "gate_w": self._weight("ffn_gate"),
            "up_w": self._weight("ffn_up"),
            "down_w": self._weight("ffn_down"),
        }
        result, new_k, new_v = self.graph.llama_decoder_block(
            x,
            ln1_gamma=self._weight("attn_norm"),
            ln2_gamma=self._weight("ffn_norm"),
            **matrices,
            cos=self.cos,
            sin=self.sin,
            k_cache=k_cache,
            v_cache=v_cache,
            **schemes(config),
            pos=self.pos,
            num_heads=config.heads,
            num_kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            eps=config.eps,
            mask_kind="causal",
            style=config.rope_style,
            # Dense matrices are [outputs, inputs] in the file; packed ones always are.
            transpose_weight=any(matrix.packed is None for matrix in matrices.values()),
            name=f"blk.{self.number}",
        )
        return result, (new_k, new_v)

    def _attend(self, n: Value, caches: tuple[Value, ...]) -> tuple[Value, tuple[Value, ...]]:
        config = self.config
        if config.source(self.number) != self.number:  # of another layer, which has put these tokens' into its caches
            q = self._rotate(self._product(n, "attn_q"), "attn_q", config.heads)
            k, v = caches
            attended = self.graph.attention(q, k, v, **self._scoring, pos=self.pos, **schemes(config), name="attention")
            return self._product(attended, "attn_output"), ()
        q, k, v = (self._product(n, name) for name in ("attn_q", "attn_k", "attn_v"))
        q, gate = self._gate(q) if config.plan.gated else (q, None)
        q, k = self._rotate(q, "attn_q", config.heads), self._rotate(k, "attn_k", config.kv_heads)
        v = self._unit_heads(v) if config.plan.streams else v
        cached: dict[str, Option] = {}
        if caches:
            cached = {"k_cache": caches[0], "v_cache": caches[1], "pos": self.pos, **schemes(config)}
        found = self.graph.attention(q, k, v, **self._scoring, **cached, name="attention")
        attended, updated = (found[0], found[1:]) if cached else (found, ())
        if gate is not None:
            attended = self.graph.mul(attended, self.graph.sigmoid(gate, name="attention"), name="attention")
        return self._product(attended, "attn_output"), updated

    @property
    def _scoring(self) -> dict[str, Option]:
        """How many heads attention has, which keys queries see, and what becomes of scores."""
        config, masked = self.config, dict[str, Option](mask_kind="causal")
        if self.seen is not None:
            masked = {"mask": self.seen, "mask_kind": "custom"}
        elif config.is_local(self.number):
            masked = {"mask_kind": "sliding_window", "window": config.window}
        return {
            "num_heads": config.heads,
            "num_kv_heads": config.kv_heads,
            "head_dim": config.head_dim,
            **masked,
            "scale": config.attention_scale,
            "softcap": config.attention_softcap or None,
            "sinks": self._weight("attn_sinks") if config.plan.sinks else None,
        }

    def _unit_heads(self, v: Value) -> Value:
        """Values of each head divided by the root of their mean square."""
        graph, config, name = self.graph, self.config, "attn_v_norm"
        rows = graph.reshape(v, [*v.shape[:-1], config.kv_heads, config.head_dim], name=name)
        ones = graph.constant(np.ones(config.head_dim, np.float32))
        return graph.reshape(graph.rms_norm(rows, ones, eps=config.eps, name=name), v.shape, name=name)

    def _gate(self, made: Value) -> tuple[Value, Value]:
        """Queries, and what their results are multiplied by the sigmoid of: in each head one behind the other."""
        graph, config, name = self.graph, self.config, "attn_q"
        batch, length = made.shape[:2]
        both = graph.reshape(made, [batch, length, config.heads, 2 * config.head_dim], name=name)
        q, gate = (
            graph.reshape(
                graph.narrow(both, 3, start, config.head_dim, name=name),
                [batch, length, config.heads * config.head_dim],
                name=name,
            )
            for start in (0, config.head_dim)
        )
        return q, gate

    def _attend_latents(self, n: Value, caches: tuple[Value, ...]) -> tuple[Value, tuple[Value, ...]]:
        """Attention of heads that share latents, see `latent`; the values of their rows are the rows."""
        graph, config, latent = self.graph, self.config, self.config.latent
        assert latent is not None
        batch, length, heads = *n.shape[:2], config.heads
        rows, name = self._latent_rows(n), "attention"
        cached: dict[str, Option] = {}
        if caches:
            assert self.pos is not None
            scheme = schemes(config).get("k_scheme")
            rows = graph.cache_update(caches[0], rows, self.pos, scheme=scheme, name=name)
            cached = {"pos": self.pos, "k_scheme": scheme, "v_scheme": scheme}
        attended = graph.attention(
            self._latent_queries(n),
            rows,
            rows,
            self.seen,
            num_heads=heads,
            num_kv_heads=1,
            head_dim=latent.row,
            mask_kind="causal" if self.seen is None else "custom",
            scale=config.attention_scale,
            **cached,
            name=name,
        )
        summed = graph.reshape(attended, [batch, length, heads, latent.row], name=name)
        values = self._by_head(graph.narrow(summed, -1, 0, latent.rank, name=name), "attn_v_b")
        values = graph.reshape(values, [batch, length, heads * latent.value], name=name)
        return self._product(values, "attn_output"), (rows,) if caches else ()

    def _latent_rows(self, n: Value) -> Value:
        """What is cached of each token, [B, S, rank + rotated]: its latent, and the part of keys that heads share."""
        graph, latent, name = self.graph, self.config.latent, "attn_kv_a_mqa"
        assert latent is not None
        made = self._product(n, name)
        own = self._norm(graph.narrow(made, -1, 0, latent.rank, name=name), "attn_kv_a_norm")
        shared = self._turned(graph.narrow(made, -1, latent.rank, latent.rotated, name=name), name)
        return graph.concat([own, shared], axis=2, name=name)

    def _latent_queries(self, n: Value) -> Value:
        """Queries of rows as they are cached, [B, S, heads * (rank + rotated)]."""
        graph, config, latent, name = self.graph, self.config, self.config.latent, "attn_q"
        assert latent is not None
        batch, length, heads = *n.shape[:2], config.heads
        if latent.query_rank:
            q = self._product(self._norm(self._product(n, "attn_q_a"), "attn_q_a_norm"), "attn_q_b")
        else:
            q = self._product(n, "attn_q")
        q = graph.reshape(q, [batch, length, heads, latent.query], name=name)
        plain = self._by_head(graph.narrow(q, -1, 0, latent.plain, name=name), "attn_k_b")
        turned = graph.narrow(q, -1, latent.plain, latent.rotated, name=name)
        turned = graph.reshape(turned, [batch, length, heads * latent.rotated], name=name)
        turned = graph.reshape(self._turned(turned, name), [batch, length, heads, latent.rotated], name=name)
        both = graph.concat([plain, turned], axis=3, name=name)
        return graph.reshape(both, [batch, length, heads * latent.row], name=name)

    def _by_head(self, x: Value, name: str) -> Value:
        """What each head has, [B, S, heads, inputs], times the matrix of that head: [B, S, heads, outputs]."""
        graph, heads = self.graph, self.config.heads
        rows = graph.reshape(x, [-1, x.shape[-1]], name=name)
        numbers = graph.iota([*x.shape[:2], heads], 2, "i32", name=name)
        own = graph.reshape(numbers, [-1], name=name)
        y = graph.dequant_grouped_matmul(rows, self._weight(name), own, experts=heads, name=name)
        return graph.reshape(y, [*x.shape[:3], y.shape[-1]], name=name)

    def _product(self, x: Value, name: str) -> Value:
        """x times a weight of the layer, with its bias, and with what an adapter adds."""
        graph = self.graph
        y = product(graph, x, self._weight(name), self._bias(name), name=name)
        low = self.adapters.get(f"blk.{self.number}.{name}")
        if low is None:
            return y
        inner = graph.linear(x, low.a, transpose_weight=True, name=f"{name}_lora")
        added = graph.linear(inner, low.b, transpose_weight=True, name=f"{name}_lora")
        if low.scale != 1.0:
            added = graph.mul(added, low.scale, name=f"{name}_lora")
        return graph.add(y, added, name=f"{name}_lora")

    def _rotate(self, x: Value, name: str, heads: int) -> Value:
        """Queries or keys by their positions, and by the norm of each head, or of all, where there is one."""
        config, normed = self.config, f"{name}_norm"
        if config.plan.head_norms == "row":
            x = self._norm(x, normed)
        elif config.plan.head_norms and not config.plan.norms_rotated:
            x = self._norm_heads(x, normed, heads)
        if self.number not in config.unrotated:
            x = self._turned(x, name)
        return self._norm_heads(x, normed, heads) if config.plan.norms_rotated else x

    def _norm_heads(self, x: Value, name: str, heads: int) -> Value:
        """The norm of each head."""
        rows = self.graph.reshape(x, [*x.shape[:-1], heads, self.config.head_dim], name=name)
        return self.graph.reshape(self._norm(rows, name), x.shape, name=name)

    def _turned(self, x: Value, name: str) -> Value:
        """Heads by their positions."""
        config, size = self.config, self.config.rotated_head
        assert self.cos is not None
        assert self.sin is not None
        half = config.rope_style == "half"
        return self.graph.rope(
            x,
            self.cos,
            self.sin,
            head_dim=size,
            style=config.rope_style,
            n_rot=config.rope_dims if half and config.rope_dims < size else None,
            pos=self.pos,
            name=f"{name}_rope",
        )

    def _experts(self, n: Value) -> Value:
        """What each token's experts give, weighted: a router chooses those of the largest scores."""
        graph, config = self.graph, self.config
        used, width = config.experts_used, config.hidden
        # Of tokens as they came: products know by their shape which of them have the bits that one alone has.
        name = "ffn_gate_inp"
        scores = graph.reshape(product(graph, n, self._weight(name), self._bias(name), name=name), [-1, config.experts])
        bias = self.params.get(f"blk.{self.number}.exp_probs_b.bias")
        weights, experts = route(graph, config.routing, scores, bias, used=used, normalised=config.experts_normalised)
        tokens = graph.reshape(n, [-1, width], name="ffn_exps")
        count = tokens.shape[0]
        each = graph.expand(graph.reshape(tokens, [count, 1, width]), [count, used, width], name="ffn_exps")
        rows, own = graph.reshape(each, [-1, width], name="ffn_exps"), graph.reshape(experts, [-1], name="ffn_exps")

        if config.plan.gate:
            inner = self._joined(*(self._by_expert(rows, own, name) for name in ("ffn_gate_exps", "ffn_up_exps")))
        else:
            inner = self._bent(self._by_expert(rows, own, "ffn_up_exps"), "ffn_exps")
        found = graph.reshape(self._by_expert(inner, own, "ffn_down_exps"), [count, used, width], name="ffn_exps")
        weighted = graph.mul(found, graph.reshape(weights, [count, used, 1], name="ffn_exps"), name="ffn_exps")
        result = graph.reshape(graph.sum(weighted, 1, name="ffn_exps"), n.shape, name="ffn_exps")
        if not config.shared_ffn:
            return result
        shared = self._feed_forward(n, "_shexp")
        if f"blk.{self.number}.ffn_gate_inp_shexp.weight" not in self.params:
            return graph.add(result, shared, name="ffn_shexp")
        scores = graph.mul(n, self._weight("ffn_gate_inp_shexp"), name="ffn_gate_inp_shexp")
        part = graph.sigmoid(graph.sum(scores, -1, keep_dims=True, name="ffn_shexp"), name="ffn_shexp")
        return graph.add(result, graph.mul(shared, part, name="ffn_shexp"), name="ffn_shexp")

    def _joined(self, gate: Value, up: Value) -> Value:
        """What an expert's last product reads, of its gate and up."""
        graph, plan, name = self.graph, self.config.plan, "ffn_exps"
        clamped = None if plan.experts is None else plan.experts.clamped
        if clamped is None:
            return graph.mul(graph.activation(plan.activation, gate, name=name), up, name=name)
        gate = graph.minimum(gate, clamped.limit, name=name)
        up = graph.maximum(graph.minimum(up, clamped.limit, name=name), -clamped.limit, name=name)
        part = graph.sigmoid(graph.mul(gate, clamped.slope, name=name), name=name)
        return graph.mul(graph.mul(gate, part, name=name), graph.add(up, 1.0, name=name), name=name)

    def _by_expert(self, x: Value, own: Value, name: str) -> Value:
        """Each row times the matrix of its own expert, and with its bias."""
        graph, experts, bias = self.graph, self.config.experts, self._bias(name)
        y = graph.dequant_grouped_matmul(x, self._weight(name), own, experts=experts, name=name)
        return y if bias is None else graph.add(y, graph.gather(bias, own, name=name), name=name)

    def _fuses_feed_forward(self, suffix: str = "") -> bool:
        """Whether the feed-forward part is one block."""
        names = (f"{weight}{suffix}" for weight in _FEED_FORWARD)
        plan = self.config.plan
        return plan.activation == "silu" and plan.gate and not plan.ffn_biases and not self._has_adapter(*names)

    def _feed_forward(self, n: Value, suffix: str = "") -> Value:
        """What a network gives, gated or not; its weights' names end with the suffix."""
        graph, activation, name = self.graph, self.config.plan.activation, f"ffn{suffix}"
        names = [f"{weight}{suffix}" for weight in _FEED_FORWARD]
        if self._fuses_feed_forward(suffix):
            gate_w, up_w, down_w = map(self._weight, names)
            dense = any(weight.packed is None for weight in (gate_w, up_w, down_w))
            return graph.swiglu(n, gate_w=gate_w, up_w=up_w, down_w=down_w, transpose_weight=dense, name=name)
        if not self.config.plan.gate:
            return self._product(self._bent(self._product(n, names[1]), name), names[2])
        gate = graph.activation(activation, self._cut_off(self._product(n, names[0])), name=name)
        return self._product(graph.mul(gate, self._product(n, names[1]), name=name), names[2])

    def _cut_off(self, gate: Value) -> Value:
        """By how much gates are above a bound, where a layer keeps the largest alone."""
        graph, streams, name = self.graph, self.config.streams, "ffn_gate"
        cutoff = None if streams is None else streams.cutoffs[self.number]
        if cutoff is None:
            return gate
        away = graph.sub(gate, graph.mean(gate, -1, keep_dims=True, name=name), name=name)
        deviation = graph.sqrt(graph.mean(graph.mul(away, away, name=name), -1, keep_dims=True, name=name), name=name)
        return graph.relu(graph.sub(away, graph.mul(deviation, cutoff, name=name), name=name), name=name)

    def _bent(self, x: Value, name: str) -> Value:
        """What a network without a gate has between its products."""
        graph, activation = self.graph, self.config.plan.activation
        if activation != "relu_squared":
            return graph.activation(activation, x, name=name)
        bent = graph.relu(x, name=name)
        return graph.mul(bent, bent, name=name)

    def _norm(self, x: Value, name: str) -> Value:
        return norm_of(self.graph, self.config, self.params, x, f"blk.{self.number}.{name}", name=name)

    def _pre_norm(self, x: Value, name: str) -> Value:
        return self._norm(x, name) if self.config.plan.pre_norms else x

    def _post_norm(self, x: Value, name: str) -> Value:
        return self._norm(x, name) if self.config.plan.post_norms else x


__all__ = [
    "ADAPTED",
    "Layer",
    "Low",
    "adapter_names",
    "adapter_params",
    "embedded",
    "head_of",
    "is_packed",
    "logits_of",
    "norm_of",
    "normed",
    "predicting",
    "product",
    "rope_names",
    "rope_params",
    "type_of",
    "used",
    "weight_params",
]
