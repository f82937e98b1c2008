# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoders in folders as Hugging Face's transformers writes them: what their configuration and tensors are called.

A family says what differs from LLaMA; all of it is data. Names on the right are those of GGUF, which the rest of this
package reads, whichever format a model has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from . import huggingface_delta, huggingface_scan, huggingface_streams
from .huggingface_family import ATTENTION, NO_BIASES, Family
from .huggingface_scan_families import NO_SCAN_BIASES, SCAN_KEYS, SCANNING

NUMBERS: Mapping[str, str] = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "vocab_size": "vocab_size",
}
"""Keys of `config.json` in every family."""

_HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_GATED = {f"mlp.{word}_proj": f"ffn_{word}" for word in ("gate", "up", "down")}
_LLAMA = {
    **ATTENTION,
    **_GATED,
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_BOTH_NORMS = {
    **ATTENTION,
    **_GATED,
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}

OUTSIDE: Mapping[str, str] = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "model.norm.bias": "output_norm.bias",
    "model.embedding_norm.weight": "token_embd_norm.weight",
    "model.embeddings.weight": "token_embd.weight",
    "model.norm_f.weight": "output_norm.weight",
    "model.final_layernorm.weight": "output_norm.weight",
    "model.final_layernorm.bias": "output_norm.bias",
    "lm_head.weight": "output.weight",
    "lm_head.bias": "output.bias",
    **huggingface_streams.OUTSIDE,
}
"""Tensors outside of the layers."""

_EXPERTS = {
    "num_experts": "expert_count",
    "num_local_experts": "expert_count",  # as transformers saves it
    "num_experts_per_tok": "expert_used_count",
}
_DEEPSEEK_LAYER = {
    **{
        f"self_attn.{theirs}": own
        for theirs, own in (
            ("q_proj", "attn_q"),
            ("q_a_proj", "attn_q_a"),
            ("q_a_layernorm", "attn_q_a_norm"),
            ("q_b_proj", "attn_q_b"),
            ("kv_a_proj_with_mqa", "attn_kv_a_mqa"),
            ("kv_a_layernorm", "attn_kv_a_norm"),
            ("kv_b_proj", "attn_kv_b"),
            ("o_proj", "attn_output"),
        )
    },
    **_GATED,
    **{f"mlp.shared_experts.{word}_proj": f"ffn_{word}_shexp" for word in ("gate", "up", "down")},
    "mlp.gate": "ffn_gate_inp",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_NORMALISED = {"norm_topk_prob": "expert_weights_norm"}
_GRANITE_SCALES = {
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "attention_multiplier": "attention.scale",
    "logits_scaling": "logit_scale",
}

_ALL_SPARSE: Mapping[str, tuple[object, ...]] = {"decoder_sparse_step": (None, 1), "mlp_only_layers": (None, [])}
_CAUSAL: Mapping[str, tuple[object, ...]] = {"use_bidirectional_attention": (None, False)}

REFUSED: Mapping[str, tuple[object, ...]] = {
    "quantization_config": (None,),
    "is_encoder_decoder": (None, False),
    "add_cross_attention": (None, False),
    "pruned_heads": (None, {}),
}
"""Keys that change what is computed in a way that isn't implemented, with the values at which they change nothing."""


_GELU = ("gelu_pytorch_tanh", "gelu_new")
_GEMMA: dict[str, object] = {"head_dim": 256, "tie_word_embeddings": True, "hidden_activation": _GELU[0]}
_CAPS = {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"}

_GEMMA3 = Family(
    "gemma3_text",
    "gemma3",
    {**_BOTH_NORMS, **_HEAD_NORMS},
    numbers=_CAPS,
    defaults={
        **_GEMMA,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "query_pre_attn_scalar": 256,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
    },
    activation="hidden_activation",
    activations=_GELU,
    windows="period",
    refused={**NO_BIASES, **_CAUSAL},
    plus_one=True,
)

_GEMMA3N = Family(
    "gemma3n_text",
    "gemma3n",
    {**_BOTH_NORMS, **_HEAD_NORMS, **huggingface_streams.LAYER},
    numbers={"final_logit_softcapping": "final_logit_softcapping", **huggingface_streams.NUMBERS},
    defaults={
        **_GEMMA,
        "num_key_value_heads": 2,
        "vocab_size": 262400,
        "max_position_embeddings": 32768,
        "intermediate_size": 16384,
        "sliding_window": 512,
        "sliding_window_pattern": 5,
        "final_logit_softcapping": 30.0,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "hidden_size_per_layer_input": 256,
        "altup_num_inputs": 4,
        "num_kv_shared_layers": 15,
    },
    activation="hidden_activation",
    activations=_GELU,
    windows="period",
    refused={**NO_BIASES, "altup_active_idx": (None, 0), "altup_correct_scale": (None, True)},
    bare=huggingface_streams.BARE,
    streams=True,
)

_DEEPSEEK2 = Family(
    "deepseek_v2",
    "deepseek2",
    _DEEPSEEK_LAYER,
    numbers={
        **_NORMALISED,
        "n_routed_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "n_shared_experts": "expert_shared_count",
        "n_group": "expert_group_count",
        "topk_group": "expert_group_used_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "routed_scaling_factor": "expert_weights_scale",
    },
    defaults={
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "moe_intermediate_size": 1407,
        "routed_scaling_factor": 1.0,
        "first_k_dense_replace": 0,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "norm_topk_prob": False,
        "topk_method": "greedy",
    },
    refused={
        **NO_BIASES,
        "scoring_func": (None, "softmax"),
        "topk_method": (None, "greedy", "group_limited_greedy"),
        "norm_topk_prob": (None, False),  # transformers doesn't read it, and the models' own code leaves out a factor
        "moe_layer_freq": (None, 1),
    },
    split_experts=True,
    latent=True,
)

_SHARED = {
    **{f"mlp.shared_expert.{word}_proj": f"ffn_{word}_shexp" for word in ("gate", "up", "down")},
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
"""A router, and the network that all tokens have."""

_QWEN35 = Family(
    "qwen3_5_text",
    "qwen35",
    {
        **_LLAMA,
        **_HEAD_NORMS,
        **huggingface_delta.LAYER,
        **huggingface_delta.AHEAD,
        "post_attention_layernorm": "post_attention_norm",
    },
    defaults={
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 248320,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "partial_rotary_factor": 0.25,
        "mtp_num_hidden_layers": 0,
    },
    refused={**NO_BIASES, "attn_output_gate": (None, True)},
    plus_one=True,
    bare=huggingface_delta.BARE,
    delta=True,
)
_QWEN35_EXPERTS = replace(
    _QWEN35,
    name="qwen3_5_moe_text",
    architecture="qwen35moe",
    layer={**_QWEN35.layer, **_SHARED},
    numbers={
        **_EXPERTS,
        "moe_intermediate_size": "expert_feed_forward_length",
        "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    },
    defaults={
        **_QWEN35.defaults,
        "num_key_value_heads": 2,
        "intermediate_size": 512,  # which says nothing: all layers have experts
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts": 256,
        "num_experts_per_tok": 8,
    },
    split_experts=True,
)
_QWEN3 = Family(
    "qwen3",
    "qwen3",
    {**_LLAMA, **_HEAD_NORMS},
    defaults={"head_dim": 128, "sliding_window": 4096},
    windows="later",
    switched=True,
    refused=NO_BIASES,
)
_QWEN3_EXPERTS = Family(
    "qwen3_moe",
    "qwen3moe",
    {**_LLAMA, **_HEAD_NORMS, "mlp.gate": "ffn_gate_inp"},
    numbers={**_EXPERTS, **_NORMALISED, "moe_intermediate_size": "expert_feed_forward_length"},
    defaults={"sliding_window": 4096, "norm_topk_prob": False},
    windows="all",
    switched=True,
    refused={**NO_BIASES, **_ALL_SPARSE},
    split_experts=True,
)
_SEEN = {"rope_theta": 5e5, "vocab_size": 151936}
"""What the language model of Qwen3-VL has by default."""
_OLMO2 = Family(
    "olmo2",
    "olmo2",
    {
        **ATTENTION,
        **_GATED,
        **_HEAD_NORMS,
        "post_attention_layernorm": "post_attention_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
    defaults={"rms_norm_eps": 1e-5},
    refused=NO_BIASES,
)
_GRANITE = Family(
    "granite",
    "granite",
    _LLAMA,
    numbers=_GRANITE_SCALES,
    defaults=dict.fromkeys(_GRANITE_SCALES, 1.0),
    refused=NO_BIASES,
)

_GRANITE_HYBRID = replace(
    _GRANITE,
    name="granitemoehybrid",
    architecture="granitehybrid",
    layer={
        **ATTENTION,
        "shared_mlp.input_linear": "ffn_gate_up",
        "shared_mlp.output_linear": "ffn_down",
        "block_sparse_moe.router.layer": "ffn_gate_inp",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        **huggingface_scan.layer_names("mamba"),
    },
    numbers=_GRANITE_SCALES,
    defaults={
        **_GRANITE.defaults,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 1024,
        "mamba_n_heads": 128,
        "mamba_n_groups": 1,
        "mamba_d_state": 256,
        "mamba_d_conv": 4,
    },
    refused={**NO_BIASES, **NO_SCAN_BIASES, "position_embedding_type": (None, "rope", "nope")},
    bare=huggingface_scan.bare_names("mamba"),
    split_experts=True,
    scans="instead",
    scan=SCAN_KEYS,
)
_COHERE2 = Family(
    "cohere2",
    "cohere2",
    {name: own for name, own in _LLAMA.items() if own != "ffn_norm"},
    numbers={"layer_norm_eps": "attention.layer_norm_epsilon", "logit_scale": "logit_scale"},
    defaults={
        "layer_norm_eps": 1e-5,
        "logit_scale": 0.0625,
        "tie_word_embeddings": True,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
    },
    windows="period",
    refused=NO_BIASES,
    own_order=True,
)

_QWEN3_NEXT = replace(
    _QWEN35_EXPERTS,
    name="qwen3_next",
    architecture="qwen3next",
    layer={
        **{name: own for name, own in _QWEN35_EXPERTS.layer.items() if name not in huggingface_delta.LAYER},
        **huggingface_delta.GROUPED,
    },
    numbers={**_QWEN35_EXPERTS.numbers, **_NORMALISED},
    defaults={
        **_QWEN35_EXPERTS.defaults,
        "vocab_size": 151936,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "norm_topk_prob": True,
        "mtp_num_hidden_layers": 1,  # which no key says, but tensors
    },
    refused={**NO_BIASES, **_ALL_SPARSE},
    grouped=True,
)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("llama", "llama", _LLAMA, refused=NO_BIASES),
        Family("mistral", "llama", _LLAMA, defaults={"sliding_window": 4096}, windows="all"),
        Family("qwen2", "qwen2", _LLAMA, defaults={"sliding_window": 4096}, windows="later", switched=True),
        _QWEN3,
        replace(
            _QWEN3, name="qwen3_vl", architecture="qwen3vl", defaults={**_QWEN3.defaults, **_SEEN}, part="text_config"
        ),
        _QWEN3_EXPERTS,
        replace(
            _QWEN3_EXPERTS,
            name="qwen3_vl_moe",
            architecture="qwen3vlmoe",
            defaults={**_QWEN3_EXPERTS.defaults, **_SEEN, "norm_topk_prob": True},
            part="text_config",
        ),
        Family(
            "seed_oss",
            "seed_oss",
            {**_LLAMA, "post_attention_layernorm": "post_attention_norm"},
            defaults={"head_dim": 128},
            refused={"attention_out_bias": (None, False), "mlp_bias": (None, False)},
        ),
        Family(
            "glm4",
            "glm4",
            {
                **ATTENTION,
                "mlp.gate_up_proj": "ffn_up",
                "mlp.down_proj": "ffn_down",
                "input_layernorm": "attn_norm",
                "post_self_attn_layernorm": "post_attention_norm",
                "post_attention_layernorm": "ffn_norm",
                "post_mlp_layernorm": "post_ffw_norm",
            },
            defaults={"head_dim": 128, "partial_rotary_factor": 0.5, "rms_norm_eps": 1.5625e-7},
            own_order=True,
        ),
        Family(
            "ernie4_5",
            "ernie4_5",
            _LLAMA,
            defaults={
                "head_dim": 128,
                "num_key_value_heads": 2,
                "rms_norm_eps": 1e-5,
                "rope_theta": 5e5,
                "tie_word_embeddings": True,
            },
            refused={"use_bias": (None, False)},
            own_order=True,
        ),
        Family(
            "hunyuan_v1_dense",
            "hunyuan-dense",
            {**_LLAMA, "self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"},
            defaults={"rms_norm_eps": 1e-5},
            refused=NO_BIASES,
        ),
        Family(
            "exaone4",
            "exaone4",
            {**_OLMO2.layer},
            defaults={"sliding_window": 4096, "sliding_window_pattern": 4, "rms_norm_eps": 1e-5},
            windows="period",
        ),
        Family(
            "lfm2",
            "lfm2",
            {
                **{name: own for name, own in ATTENTION.items() if own != "attn_output"},
                "self_attn.out_proj": "attn_output",
                "self_attn.q_layernorm": "attn_q_norm",
                "self_attn.k_layernorm": "attn_k_norm",
                **{f"conv.{word}": f"shortconv.{word}" for word in ("in_proj", "conv", "out_proj")},
                "feed_forward.w1": "ffn_gate",
                "feed_forward.w2": "ffn_down",
                "feed_forward.w3": "ffn_up",
                "operator_norm": "attn_norm",
                "ffn_norm": "ffn_norm",
            },
            numbers={"norm_eps": "attention.layer_norm_rms_epsilon"},
            defaults={
                "num_key_value_heads": 8,
                "norm_eps": 1e-5,
                "rope_theta": 1e6,
                "tie_word_embeddings": True,
                "conv_L_cache": 3,
                "block_multiple_of": 256,
                "block_ffn_dim_multiplier": 1.0,
                "block_auto_adjust_ff_dim": True,
            },
            refused={"conv_bias": (None, False), "tie_embedding": (None, True)},
            convs=True,
        ),
        _COHERE2,
        replace(
            _COHERE2,
            name="cohere",
            architecture="command-r",
            windows="",
            defaults={**_COHERE2.defaults, "rope_theta": 5e5},
            refused={**NO_BIASES, "use_qk_norm": (None, False)},
        ),
        Family(
            "stablelm",
            "stablelm",
            _LLAMA,
            numbers={"layer_norm_eps": "attention.layer_norm_epsilon"},
            defaults={"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25},
            refused={"qk_layernorm": (None, False), "use_parallel_residual": (None, False)},
        ),
        Family(
            "starcoder2",
            "starcoder2",
            {**_LLAMA, "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
            numbers={"norm_epsilon": "attention.layer_norm_epsilon"},
            defaults={
                "norm_epsilon": 1e-5,
                "num_key_value_heads": 2,
                "tie_word_embeddings": True,
                "hidden_act": _GELU[0],
            },
            activations=_GELU,
            windows="all",
            refused={"use_bias": (None, True)},
        ),
        Family("minicpm", "minicpm", _LLAMA, defaults={"tie_word_embeddings": True, "rms_norm_eps": 1e-6}),
        Family(
            "qwen2_moe",
            "qwen2moe",
            {**_LLAMA, **_SHARED},
            numbers={
                **_EXPERTS,
                **_NORMALISED,
                "moe_intermediate_size": "expert_feed_forward_length",
                "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
            },
            defaults={"sliding_window": 4096, "norm_topk_prob": False},
            windows="later",
            switched=True,
            refused={"qkv_bias": (None, True), **_ALL_SPARSE},
            split_experts=True,
        ),
        Family(
            "mixtral",
            "llama",
            {**_LLAMA, "block_sparse_moe.gate": "ffn_gate_inp"},
            numbers=_EXPERTS,
            defaults={"num_local_experts": 8, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5},
            windows="all",
            split_experts=True,
        ),
        Family(
            "olmoe",
            "olmoe",
            {**_LLAMA, **_HEAD_NORMS, "mlp.gate": "ffn_gate_inp"},
            numbers={**_EXPERTS, **_NORMALISED},
            defaults={"norm_topk_prob": False, "rms_norm_eps": 1e-5},
            refused={**NO_BIASES, "clip_qkv": (None,)},
            split_experts=True,
        ),
        Family(
            "gemma",
            "gemma",
            _LLAMA,
            defaults={**_GEMMA, "hidden_act": _GELU[0]},
            activations=_GELU,
            refused={**NO_BIASES, **_CAUSAL, "hidden_activation": (None, *_GELU)},
            plus_one=True,
        ),
        Family(
            "gemma2",
            "gemma2",
            _BOTH_NORMS,
            numbers=_CAPS,
            defaults={**_GEMMA, "sliding_window": 4096, "sliding_window_pattern": 2, "query_pre_attn_scalar": 256},
            activation="hidden_activation",
            activations=_GELU,
            windows="period",
            refused={**NO_BIASES, **_CAUSAL},
            plus_one=True,
        ),
        _GEMMA3,
        replace(_GEMMA3, name="gemma3", part="text_config"),
        _GEMMA3N,
        replace(_GEMMA3N, name="gemma3n", part="text_config"),
        Family(
            "phi3",
            "phi3",
            {**_LLAMA, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
            defaults={"rms_norm_eps": 1e-5},
            windows="all",
        ),
        Family(
            "phi",
            "phi2",
            {
                **{name: own for name, own in ATTENTION.items() if own != "attn_output"},
                "self_attn.dense": "attn_output",
                "mlp.fc1": "ffn_up",
                "mlp.fc2": "ffn_down",
                "input_layernorm": "attn_norm",
            },
            numbers={"layer_norm_eps": "attention.layer_norm_epsilon"},
            defaults={"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "hidden_act": _GELU[1]},
            activations=_GELU,
            refused={"qk_layernorm": (None, False)},
        ),
        Family(
            "phimoe",
            "phimoe",
            {**_LLAMA, "mlp.router": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp"},
            numbers=_EXPERTS,
            defaults={
                "num_key_value_heads": 8,
                "num_local_experts": 16,
                "num_experts_per_tok": 2,
                "rms_norm_eps": 1e-5,
                "rope_theta": 1e6,
                "router_jitter_noise": 0.01,
            },
            windows="all",
            split_experts=True,
            near="router_jitter_noise",
        ),
        Family(
            "smollm3",
            "smollm3",
            _LLAMA,
            defaults={"tie_word_embeddings": True, "rope_theta": 2e6},
            windows="unrotated",
            switched=True,
            refused=NO_BIASES,
        ),
        _OLMO2,
        replace(
            _OLMO2,
            name="olmo3",
            defaults={**_OLMO2.defaults, "sliding_window": 4096, "sliding_window_pattern": 4, "rope_theta": 5e5},
            windows="period",
            nested_rope=True,
        ),
        _GRANITE,
        replace(
            _GRANITE,
            name="granitemoehybrid",
            layer={
                **ATTENTION,
                "shared_mlp.input_linear": "ffn_gate_up",
                "shared_mlp.output_linear": "ffn_down",
                "input_layernorm": "attn_norm",
                "post_attention_layernorm": "ffn_norm",
            },
            numbers={**_GRANITE_SCALES, "shared_intermediate_size": "feed_forward_length"},
            defaults={**_GRANITE.defaults, "num_local_experts": 8, "shared_intermediate_size": 1024},
            refused={**NO_BIASES, "position_embedding_type": ("rope",), "num_local_experts": (0,)},
            only_attention=True,
            with_scans=_GRANITE_HYBRID,
        ),
        *SCANNING,
        Family(
            "granitemoe",
            "granitemoe",
            {**_LLAMA, "block_sparse_moe.router.layer": "ffn_gate_inp"},
            numbers={**_GRANITE_SCALES, **_EXPERTS},
            defaults={**dict.fromkeys(_GRANITE_SCALES, 1.0), "num_local_experts": 8, "num_experts_per_tok": 2},
            refused=NO_BIASES,
            split_experts=True,
        ),
        Family(
            "gpt_oss",
            "gpt-oss",
            {
                **ATTENTION,
                "input_layernorm": "attn_norm",
                "post_attention_layernorm": "post_attention_norm",
                "mlp.router": "ffn_gate_inp",
            },
            numbers={**_EXPERTS, "intermediate_size": "expert_feed_forward_length"},
            defaults={
                "num_attention_heads": 64,
                "num_key_value_heads": 8,
                "head_dim": 64,
                "num_local_experts": 128,
                "num_experts_per_tok": 4,
                "vocab_size": 201088,
                "max_position_embeddings": 131072,
                "rms_norm_eps": 1e-5,
                "sliding_window": 128,
                "sliding_window_pattern": 2,
                "rope_theta": 150000.0,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 32.0,
                    "beta_fast": 32.0,
                    "beta_slow": 1.0,
                    "truncate": False,
                    "original_max_position_embeddings": 4096,
                },
            },
            windows="period",
            refused={
                "attention_bias": (None, True),
                "swiglu_alpha": (None, 1.702),
                "swiglu_limit": (None, 7.0),
            },
            bare={"self_attn.sinks": "attn_sinks.weight"},
            mixed_experts=True,
            packed=("mxfp4",),
        ),
        *(replace(own, name=own.name.removesuffix("_text"), part="text_config") for own in (_QWEN35, _QWEN35_EXPERTS)),
        _QWEN35,
        _QWEN35_EXPERTS,
        _QWEN3_NEXT,
        _DEEPSEEK2,
        replace(
            _DEEPSEEK2,
            name="deepseek_v3",
            defaults={
                **_DEEPSEEK2.defaults,
                "n_routed_experts": 256,
                "num_experts_per_tok": 8,
                "n_shared_experts": 1,
                "moe_intermediate_size": 2048,
                "routed_scaling_factor": 2.5,
                "first_k_dense_replace": 3,
                "n_group": 8,
                "topk_group": 4,
                "norm_topk_prob": True,
                "rope_interleave": True,
                "scoring_func": "sigmoid",
                "topk_method": "noaux_tc",
                "num_nextn_predict_layers": 1,
            },
            refused={
                **NO_BIASES,
                "scoring_func": (None, "sigmoid"),
                "topk_method": (None, "noaux_tc"),
                "moe_layer_freq": (None, 1),
            },
            ahead="num_nextn_predict_layers",
            bare={"mlp.gate.e_score_correction_bias": "exp_probs_b.bias"},
        ),
    )
}
"""Families that can be read, by their `model_type`."""


__all__ = ["FAMILIES", "NUMBERS", "OUTSIDE", "REFUSED", "Family"]
