# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small random models as GGUF files: complete, with a vocabulary and a chat template, in kilobytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx_mlir import formats
from rlx_mlir.frontends.gguf import write_gguf
from rlx_mlir.models.tokenizer import TokenType

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_WORDS = (" the", " cat", " sat", " on", " mat", "ing", " hello", " world", " one", " two")


def vocabulary() -> dict[str, Any]:
    """Metadata of a byte-level BPE vocabulary of 300 tokens: 3 special ones, 256 bytes, some merges."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letter = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(letter[byte] for byte in range(256))]
    merges = []
    for word in _WORDS:
        pieces = [letter[byte] for byte in word.encode()]
        while len(pieces) > 1:
            merged = pieces[0] + pieces[1]
            if merged not in tokens:
                merges.append(f"{pieces[0]} {pieces[1]}")
                tokens.append(merged)
            pieces[:2] = [merged]
    tokens += [f"<|unused_{i}|>" for i in range(300 - len(tokens))]
    control = [token.startswith("<|") for token in tokens]
    types = [int(TokenType.CONTROL if each else TokenType.NORMAL) for each in control]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def metadata(**changes: Any) -> dict[str, Any]:
    """Metadata of the tiny model; ``changes`` by key without ``llama.``, dots written as ``__``, None to leave out."""
    values: dict[str, Any] = {
        "block_count": 2,
        "context_length": 256,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        "rope.dimension_count": 16,
        "vocab_size": 300,
    }
    values |= {key.replace("__", "."): value for key, value in changes.items()}
    numbers = {f"llama.{key}": value for key, value in values.items() if value is not None}
    return {"general.architecture": "llama", "general.name": "tiny", **numbers, **vocabulary()}


def tensors(
    types: Mapping[str, str] | None = None,
    *,
    tied: bool = True,
    seed: int = 0,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    ffn: int = 96,
    vocab: int = 300,
) -> dict[str, Any]:
    """Random weights; ``types`` by the last words of a name (`attn_q`, `token_embd`), q4_1 for others."""
    random = np.random.default_rng(seed)
    types = {"token_embd": "q8_0", "output": "q8_0", "ffn_down": "q8_0", "attn_v": "f32", **(types or {})}

    def matrix(name: str, n: int, k: int) -> Any:
        values = random.standard_normal((n, k)).astype(np.float32) * np.float32(1.5 * k**-0.5)
        kind = types.get(name, "q4_1")
        dense = formats.get_format(kind).dense
        return values.astype(dense) if dense is not None else (kind, formats.encode(kind, values), (n, k))

    def vector() -> np.ndarray:
        return random.uniform(0.5, 1.5, hidden).astype(np.float32)

    found: dict[str, Any] = {"token_embd.weight": matrix("token_embd", vocab, hidden), "output_norm.weight": vector()}
    if not tied:
        found["output.weight"] = matrix("output", vocab, hidden)
    for layer in range(layers):
        sizes = {
            "attn_q": (heads * head_dim, hidden),
            "attn_k": (kv_heads * head_dim, hidden),
            "attn_v": (kv_heads * head_dim, hidden),
            "attn_output": (hidden, heads * head_dim),
            "ffn_gate": (ffn, hidden),
            "ffn_up": (ffn, hidden),
            "ffn_down": (hidden, ffn),
        }
        for name, (n, k) in sizes.items():
            found[f"blk.{layer}.{name}.weight"] = matrix(name, n, k)
        found[f"blk.{layer}.attn_norm.weight"] = vector()
        found[f"blk.{layer}.ffn_norm.weight"] = vector()
    return found


def write(path: Path, changes: Mapping[str, Any] | None = None, **options: Any) -> Path:
    """A file with the tiny model; ``changes`` go to `metadata`, ``options`` to `tensors`."""
    return write_gguf(path, metadata(**(changes or {})), tensors(**options))
