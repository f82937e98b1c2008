# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiny models of each family, saved by transformers, have the logits that transformers computes.

Where that library isn't installed, `test_folders` and `test_families` compare with numpy.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx_mlir.models.loading import load_model

pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 40)]
SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONG = {
    "type": "longrope",
    "short_factor": [1.0 + i / 10 for i in range(8)],
    "long_factor": [2.0 + i for i in range(8)],
}
EXPERTS = {"head_dim": 32, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
DELTA = {
    "head_dim": 32,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "rms_norm_eps": 1e-6,
}
GEMMA = {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 24}
GRANITE = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.1,
    "logits_scaling": 2.0,
}
MAMBA2 = {
    **{"num_heads": 8, "head_dim": 16, "n_groups": 2, "state_size": 16, "chunk_size": 8},
    "num_attention_heads": None,
}
HYBRID = {
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    **{"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 8},
    "shared_intermediate_size": 80,
}
FALCON = {
    **{"mamba_d_ssm": 96, "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 16},
    **{"mamba_chunk_size": 8, "embedding_multiplier": 3.0, "lm_head_multiplier": 1.5, "key_multiplier": 0.6},
    **{"attention_out_multiplier": 0.8, "attention_in_multiplier": 1.1, "ssm_in_multiplier": 1.4},
    **{"ssm_out_multiplier": 0.6, "mlp_multipliers": [0.7, 1.3], "ssm_multipliers": [0.5, 1.5, 0.8, 0.7, 1.2]},
}
JAMBA = {
    **{"attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 0},
    **{"num_experts": 4, "mamba_d_state": 8, "num_hidden_layers": 4},
}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "q_lora_rank": None,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 24,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
}
GROUPS = {"n_group": 4, "topk_group": 2, "q_lora_rank": 48, "routed_scaling_factor": 2.5}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama-3": ("LlamaConfig", {"rope_scaling": LLAMA3, "tie_word_embeddings": True}),
    "llama-linear": ("LlamaConfig", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama-yarn": ("LlamaConfig", {"rope_scaling": YARN}),
    "llama-yarn-bounds": (
        "LlamaConfig",
        {"rope_scaling": {**YARN, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False, "attention_factor": 1.5}},
    ),
    "mistral-window": ("MistralConfig", {"sliding_window": 8}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-window": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "qwen3-moe": ("Qwen3MoeConfig", {**EXPERTS, "norm_topk_prob": True}),
    "qwen3-moe-sums": ("Qwen3MoeConfig", {**EXPERTS, "norm_topk_prob": False}),
    "gemma": ("GemmaConfig", {"head_dim": 32}),
    "gemma2": ("Gemma2Config", {**GEMMA, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}),
    "gemma3": ("Gemma3TextConfig", {**GEMMA, "num_hidden_layers": 6}),
    "phi3": ("Phi3Config", {}),
    "phi3-long": ("Phi3Config", {"sliding_window": 8, "original_max_position_embeddings": 128, "rope_scaling": LONG}),
    "phi3-partial": ("Phi3Config", {"partial_rotary_factor": 0.75}),
    "smollm3": ("SmolLM3Config", {"num_hidden_layers": 4}),
    "olmo2": ("Olmo2Config", {}),
    "granite": ("GraniteConfig", GRANITE),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4}),
    "qwen2-moe": ("Qwen2MoeConfig", {**EXPERTS, "head_dim": 16, "shared_expert_intermediate_size": 64}),
    "qwen2-moe-normalised": (
        "Qwen2MoeConfig",
        {**EXPERTS, "head_dim": 16, "shared_expert_intermediate_size": 32, "norm_topk_prob": True},
    ),
    "olmoe": ("OlmoeConfig", {"num_experts": 8, "num_experts_per_tok": 3}),
    "gpt-oss": (
        "GptOssConfig",
        {
            **{"head_dim": 32, "num_local_experts": 6, "num_experts_per_tok": 3, "sliding_window": 8},
            "rope_parameters": {**YARN, "truncate": False, "rope_theta": 150000.0},
        },
    ),
    "deepseek-2-lite": ("DeepseekV2Config", LATENT),
    "deepseek-2": (
        "DeepseekV2Config",
        {
            **LATENT,
            **GROUPS,
            "topk_method": "group_limited_greedy",
            "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
        },
    ),
    "deepseek-2-greedy": ("DeepseekV2Config", {**LATENT, **GROUPS, "first_k_dense_replace": 0, "rope_scaling": None}),
    "deepseek-3": ("DeepseekV3Config", {**LATENT, **GROUPS}),
    "deepseek-3-halves": (
        "DeepseekV3Config",
        {**LATENT, "n_group": 1, "topk_group": 1, "norm_topk_prob": False, "rope_interleave": False, "v_head_dim": 32},
    ),
    "qwen35": ("Qwen3_5TextConfig", DELTA),
    "qwen35-alike": ("Qwen3_5TextConfig", {**DELTA, "linear_num_key_heads": 4, "tie_word_embeddings": True}),
    "qwen35-moe": ("Qwen3_5MoeTextConfig", {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 64}),
    "qwen3-next": (
        "Qwen3NextConfig",
        {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 64, "linear_num_value_heads": 6},
    ),
    "seed-oss": ("SeedOssConfig", {"head_dim": 32}),
    "glm4": ("Glm4Config", {"head_dim": 16}),
    "glm4-no-biases": ("Glm4Config", {"head_dim": 32, "attention_bias": False}),
    "ernie4.5": ("Ernie4_5Config", {"head_dim": 32}),
    "hunyuan": ("HunYuanDenseV1Config", {"head_dim": 32}),
    "hunyuan-alpha": (
        "HunYuanDenseV1Config",
        {
            "head_dim": 32,
            "rope_parameters": {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "rope_theta": 10000.0},
        },
    ),
    "olmo3": ("Olmo3Config", {"num_hidden_layers": 4, "sliding_window": 8}),
    "olmo3-yarn": ("Olmo3Config", {"num_hidden_layers": 4, "sliding_window": 8, "rope_scaling": YARN}),
    "exaone4": (
        "Exaone4Config",
        {"num_hidden_layers": 4, "sliding_window": 8, "rope_parameters": {**LLAMA3, "rope_theta": 1e6}},
    ),
    "exaone4-global": ("Exaone4Config", {"sliding_window": None, "layer_types": ["full_attention"] * 3}),
    "cohere2": ("Cohere2Config", {"num_hidden_layers": 4, "sliding_window": 8, "logit_scale": 0.5}),
    "cohere": ("CohereConfig", {"logit_scale": 0.5}),
    "stablelm": ("StableLmConfig", {"partial_rotary_factor": 0.25}),
    "stablelm-biases": ("StableLmConfig", {"use_qkv_bias": True, "partial_rotary_factor": 0.5}),
    "starcoder2": ("Starcoder2Config", {"sliding_window": 8}),
    "starcoder2-global": ("Starcoder2Config", {"tie_word_embeddings": False}),
    "lfm2": ("Lfm2Config", {"num_hidden_layers": 4, "full_attn_idxs": [1], "block_multiple_of": 32}),
    "lfm2-4-taps": (
        "Lfm2Config",
        {"layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 4, "block_auto_adjust_ff_dim": False},
    ),
    "granite-4-dense": (
        "GraniteMoeHybridConfig",
        {
            **GRANITE,
            "layer_types": ["full_attention"] * 3,
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 80,
            "position_embedding_type": "rope",
        },
    ),
    "granite-4": ("GraniteMoeHybridConfig", {**GRANITE, **HYBRID, "num_local_experts": 0, "num_experts_per_tok": 0}),
    "granite-4-moe": (
        "GraniteMoeHybridConfig",
        {**GRANITE, **HYBRID, "num_local_experts": 5, "mamba_n_groups": 2, "position_embedding_type": "rope"},
    ),
    "mamba": ("MambaConfig", {"num_attention_heads": None, "state_size": 8, "conv_kernel": 3}),
    "mamba-untied": (
        "MambaConfig",
        {"num_attention_heads": None, "tie_word_embeddings": False, "time_step_rank": 7, "use_conv_bias": False},
    ),
    "falcon-mamba": ("FalconMambaConfig", {"num_attention_heads": None, "mixer_rms_eps": 1e-3}),
    "jamba": ("JambaConfig", JAMBA),
    "jamba-no-experts": ("JambaConfig", {**JAMBA, "num_experts": 1, "tie_word_embeddings": True, "mamba_dt_rank": 9}),
    "mamba2": ("Mamba2Config", MAMBA2),
    "mamba2-limits": ("Mamba2Config", {**MAMBA2, "n_groups": 1, "time_step_limit": (0.2, 0.7)}),
    "falcon-h1": ("FalconH1Config", FALCON),
    "falcon-h1-norms": ("FalconH1Config", {**FALCON, "mamba_rms_norm": True, "mamba_norm_before_gate": False}),
    "nemotron-h": (
        "NemotronHConfig",
        {
            **{"head_dim": 16, "ssm_state_size": 16, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2},
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"],
            "num_hidden_layers": 4,
            "chunk_size": 8,
        },
    ),
    "nemotron-h-moe": (
        "NemotronHConfig",
        {
            **{"head_dim": 16, "ssm_state_size": 16, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2},
            **{"n_routed_experts": 6, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 64},
            **{"routed_scaling_factor": 2.5, "n_group": 2, "topk_group": 1},
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
            "num_hidden_layers": 4,
            "chunk_size": 8,
        },
    ),
    "bamba": (
        "BambaConfig",
        {
            **{"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 8},
            "attn_layer_indices": [1],
        },
    ),
    "phi": ("PhiConfig", {"num_key_value_heads": None}),
    "phi-part": ("PhiConfig", {"partial_rotary_factor": 0.25}),
    "phimoe": ("PhimoeConfig", {"num_local_experts": 5, "router_jitter_noise": 0.3}),
    "phimoe-biases": (
        "PhimoeConfig",
        {
            **{"num_local_experts": 4, "attention_bias": True, "lm_head_bias": True, "router_jitter_noise": 0.05},
            "max_position_embeddings": 256,
            "rope_scaling": {**LONG, "short_mscale": 1.3, "long_mscale": 1.3, "original_max_position_embeddings": 128},
        },
    ),
    "gemma3n": (
        "Gemma3nTextConfig",
        {
            **{"head_dim": 16, "sliding_window": 8, "num_hidden_layers": 5, "num_kv_shared_layers": 2},
            **{"hidden_size_per_layer_input": 32, "laurel_rank": 8, "vocab_size_per_layer_input": 280},
            "activation_sparsity_pattern": [0.95, 0.5, 0.0, 0.0, 0.3],
            "layer_types": [f"{'full' if layer in (1, 3) else 'sliding'}_attention" for layer in range(5)],
        },
    ),
    "granite-moe": ("GraniteMoeConfig", {**GRANITE, "num_local_experts": 4}),
}


def test_the_text_of_a_model_of_several_parts(tmp_path: Path) -> None:
    """Gemma 3 with images: its description leaves out what is so by default."""
    text = transformers.Gemma3TextConfig(**{**SIZES, **GEMMA, "num_hidden_layers": 2})
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = transformers.SiglipVisionConfig(**sizes, image_size=28, patch_size=14)
    config = transformers.Gemma3Config(text_config=text, vision_config=vision)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.Gemma3ForConditionalGeneration(config).eval()
    with torch.no_grad():
        wanted = model(torch.tensor([IDS])).logits[0].numpy()
    model.save_pretrained(tmp_path)
    found = load_model(tmp_path, activations="exact", context=64, chunk=16).logits(IDS)
    np.testing.assert_allclose(found, wanted, atol=1e-4, rtol=0)


def make(name: str) -> Any:
    """A model with random weights, among which no norm is 1."""
    word, changes = MODELS[name]
    config = getattr(transformers, word)(**{**SIZES, **changes})
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "norm" in key:
                zero_centred = ("gemma" in name and name != "gemma3n") or (
                    name.startswith(("qwen35", "qwen3-next")) and "linear_attn" not in key
                )
                weight.copy_(torch.rand_like(weight) + (-0.5 if zero_centred else 0.5))
            elif "A_log" in key:
                weight.copy_(torch.rand_like(weight))
            else:
                width = 10 if weight.ndim == 1 else weight.shape[-1]
                weight.copy_(torch.randn_like(weight) * 1.5 * width**-0.5)
        for key, buffer in model.named_buffers():
            if "correction_bias" in key:
                buffer.copy_(torch.rand_like(buffer) - 0.5)
    return model


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.quick(3)
def test_logits_are_those_of_transformers(tmp_path: Path, name: str, dtype: str) -> None:
    """Weights of bf16 are exact in f32, in which both compute. Chunks of 16 keep windows and caches apart."""
    model, own = make(name), getattr(torch, dtype)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.to(own).float())
        wanted = model(torch.tensor([IDS])).logits[0].numpy()
    model.to(own).save_pretrained(tmp_path, max_shard_size="100KB" if own == torch.bfloat16 else "1GB")
    found = load_model(tmp_path, activations="exact", context=64, chunk=16).logits(IDS)
    np.testing.assert_allclose(found, wanted, atol=1e-4, rtol=0)
    assert np.abs(wanted).max() > 2
