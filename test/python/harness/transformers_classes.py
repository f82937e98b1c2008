# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classes of transformers with sizes that make them small, what they are given, and which dimensions are symbols."""

from __future__ import annotations

from typing import Any

import torch
import transformers

IMAGE: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
TEXT: dict[str, Any] = {"vocab_size": 128, **IMAGE}
PLACES: dict[str, Any] = {**TEXT, "max_position_embeddings": 128}
GROUPED: dict[str, Any] = {**PLACES, "num_key_value_heads": 2, "use_cache": False}
HEADS: dict[str, Any] = {**PLACES, "use_cache": False}
PATCHES: dict[str, Any] = {**IMAGE, "image_size": 32, "patch_size": 8}
SEQUENCES: dict[str, Any] = {
    "vocab_size": 128, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "use_cache": False,
}  # fmt: skip
SPECIAL: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GPT: dict[str, Any] = {
    "vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "use_cache": False,
}  # fmt: skip

#: By the class of the model: that of its configuration, what it is given, and its sizes.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "MixtralForCausalLM": ("MixtralConfig", "ids", {**GROUPED, "num_local_experts": 4}),
    "GemmaForCausalLM": ("GemmaConfig", "ids", {**GROUPED, "head_dim": 16}),
    "Gemma2ForCausalLM": ("Gemma2Config", "ids", {**GROUPED, "head_dim": 16, "sliding_window": 8}),
    "Gemma3ForCausalLM": ("Gemma3TextConfig", "ids", {**GROUPED, "head_dim": 16, "sliding_window": 8}),
    "Phi3ForCausalLM": ("Phi3Config", "ids", {**GROUPED, "pad_token_id": 0}),
    "Olmo2ForCausalLM": ("Olmo2Config", "ids", GROUPED),
    "StableLmForCausalLM": ("StableLmConfig", "ids", GROUPED),
    "CohereForCausalLM": ("CohereConfig", "ids", GROUPED),
    "GPT2LMHeadModel": ("GPT2Config", "ids", GPT),
    "GPTJForCausalLM": ("GPTJConfig", "ids", {**GPT, "rotary_dim": 8}),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", "ids", HEADS),
    "GPTNeoForCausalLM": (
        "GPTNeoConfig",
        "ids",
        {
            **{"vocab_size": 128, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 128},
            **{"attention_types": [[["global", "local"], 1]], "window_size": 8, "use_cache": False},
        },
    ),
    "OPTForCausalLM": (
        "OPTConfig",
        "masked",
        {
            **{"vocab_size": 128, "hidden_size": 64, "ffn_dim": 96, "num_hidden_layers": 2, "num_attention_heads": 4},
            **{"max_position_embeddings": 128, "word_embed_proj_dim": 64, "use_cache": False},
        },
    ),
    "BloomForCausalLM": (
        "BloomConfig",
        "masked",
        {"vocab_size": 128, "hidden_size": 64, "n_layer": 2, "n_head": 4, "use_cache": False},
    ),
    "FalconForCausalLM": (
        "FalconConfig",
        "ids",
        {
            **{"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
            "use_cache": False,
        },
    ),
    "MptForCausalLM": (
        "MptConfig",
        "ids",
        {"vocab_size": 128, "d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 128, "use_cache": False},
    ),
    "T5ForConditionalGeneration": (
        "T5Config",
        "pairs",
        {
            **{"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4},
            "use_cache": False,
        },
    ),
    "BartForConditionalGeneration": ("BartConfig", "pairs", {**SEQUENCES, "max_position_embeddings": 128}),
    "WhisperForConditionalGeneration": (
        "WhisperConfig",
        "speech",
        {
            **{**SEQUENCES, **SPECIAL, "num_mel_bins": 16, "max_source_positions": 24, "max_target_positions": 128},
            "decoder_start_token_id": 1,
        },
    ),
    "AlbertModel": ("AlbertConfig", "masked", {**PLACES, "embedding_size": 32}),
    "MPNetModel": ("MPNetConfig", "masked", {**TEXT, "max_position_embeddings": 130}),
    "DebertaV2Model": (
        "DebertaV2Config",
        "masked",
        {
            **{**PLACES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
            **{"max_relative_positions": 16, "position_buckets": 8},
        },
    ),
    "ModernBertModel": ("ModernBertConfig", "masked", {**PLACES, "local_attention": 8, "pad_token_id": 0}),
    "CLIPTextModel": ("CLIPTextConfig", "masked", {**PLACES, "eos_token_id": 2}),
    "CLIPVisionModel": ("CLIPVisionConfig", "image", PATCHES),
    "SiglipVisionModel": ("SiglipVisionConfig", "image", PATCHES),
    "Dinov2Model": (
        "Dinov2Config",
        "image",
        {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8},
    ),
    "SwinModel": (
        "SwinConfig",
        "image",
        {
            **{"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4]},
            "window_size": 4,
        },
    ),
    "ConvNextModel": (
        "ConvNextConfig",
        "image",
        {"hidden_sizes": [16, 32], "depths": [1, 2], "num_stages": 2, "patch_size": 4},
    ),
}


def arguments(kind: str, batch: int, length: int) -> dict[str, Any]:
    """What a model is given; of masked texts the first one is shorter."""
    generator = torch.Generator().manual_seed(100 * batch + length)

    def ids(count: int) -> Any:
        return torch.randint(3, 128, (batch, count), generator=generator)

    if kind == "image":
        return {"pixel_values": torch.randn(batch, 3, 32, 32, generator=generator)}
    if kind == "speech":
        frames = torch.randn(batch, 16, 48, generator=generator)
        return {"input_features": frames, "decoder_input_ids": ids(length)}
    given = {"input_ids": ids(length)}
    if kind != "ids":
        given["attention_mask"] = torch.ones(batch, length, dtype=torch.int64)
        given["attention_mask"][0, length - length // 3 :] = 0
    return given | ({"decoder_input_ids": ids(length + 2)} if kind == "pairs" else {})


def shapes(kind: str) -> dict[str, Any]:
    """Which dimensions are symbols."""
    batch, length = torch.export.Dim("b"), torch.export.Dim("s", max=120)
    own = {0: batch, 1: length}
    return {
        "ids": {"input_ids": own},
        "masked": {"input_ids": own, "attention_mask": own},
        "pairs": {
            **{"input_ids": own, "attention_mask": own},
            "decoder_input_ids": {0: batch, 1: torch.export.Dim("d", max=120)},
        },
        "speech": {"input_features": {0: batch}, "decoder_input_ids": own},
        "image": {"pixel_values": {0: batch}},
    }[kind]


def made(name: str) -> Any:
    """A small model of a class, with seeded random weights."""
    config, _, sizes = MODELS[name]
    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, config)(**sizes)).eval()
