# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adapters that become part of a model's file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from interpreted import load_interpreted
from test_adapter import TOKENS, random_adapter

from rlx_mlir.errors import InputError, ModelFileError
from rlx_mlir.finetuning import merge_adapter
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.models.adapter import write_adapter
from rlx_mlir.models.config import ModelConfig


@pytest.fixture
def adapter(tmp_path: Path, tiny_llama: Path) -> Path:
    config = ModelConfig.from_gguf(GGUFFile(tiny_llama))
    write_adapter(tmp_path / "adapter", config, random_adapter(config, ("attn_q", "ffn_down")), alpha=8.0)
    return tmp_path / "adapter"


def test_merged_models_give_the_logits_of_the_adapter(tmp_path: Path, tiny_llama: Path, adapter: Path) -> None:
    own = random_adapter(ModelConfig.from_gguf(GGUFFile(tiny_llama)), ("attn_q", "ffn_down"))
    wanted = load_interpreted(tiny_llama, adapter=own).logits(TOKENS)
    scale = np.abs(wanted).max()
    plain = load_interpreted(tiny_llama).logits(TOKENS)
    far = np.abs(plain - wanted).mean()
    for type, limit in (("f32", 1e-5 * scale), ("f16", 2e-3 * scale), ("q8_0", 0.05 * far), (None, 0.3 * far)):
        merge_adapter(tiny_llama, adapter, tmp_path / "merged.gguf", type=type)
        found = load_interpreted(tmp_path / "merged.gguf").logits(TOKENS)
        assert np.abs(found - wanted).mean() < limit, type


def test_all_else_is_as_it_was(tmp_path: Path, adapter: Path) -> None:
    values = {"general.a": np.uint8(3), "general.b": np.int32(5), "general.c": 0.1, "general.d": np.float64(0.1)}
    path = write_gguf(tmp_path / "tiny.gguf", {**tiny_models.metadata(), **values}, tiny_models.tensors())
    merged = merge_adapter(path, adapter, tmp_path / "merged.gguf")
    before, after = GGUFFile(path), GGUFFile(tmp_path / "merged.gguf")
    changed = {f"blk.{layer}.{name}.weight" for layer in range(2) for name in ("attn_q", "ffn_down")}
    assert {own.name for own in merged} == changed
    assert list(before.metadata) == list(after.metadata)
    for key in before.metadata:
        own, other = before.metadata.typed(key), after.metadata.typed(key)
        assert np.array_equal(own, other), key
        assert type(own) is type(other)
    for name, info in before.tensors.items():
        assert (info.type, info.shape) == (after.tensors[name].type, after.tensors[name].shape)
        assert np.array_equal(before.tensor(name), after.tensor(name)) == (name not in changed)


def test_what_rounding_does_is_said(tmp_path: Path, adapter: Path, tiny_llama: Path) -> None:
    (first, *_) = merge_adapter(tiny_llama, adapter, tmp_path / "merged.gguf")
    own = random_adapter(ModelConfig.from_gguf(GGUFFile(tiny_llama)), ("attn_q", "ffn_down"))
    change = own.change("blk.0.attn_q")
    wanted = GGUFFile(tiny_llama).dequantize("blk.0.attn_q.weight") + change
    stored = GGUFFile(tmp_path / "merged.gguf").dequantize("blk.0.attn_q.weight")
    assert (first.name, first.type) == ("blk.0.attn_q.weight", "q4_1")
    assert first.change == pytest.approx(float(np.sqrt(np.mean(change**2))), rel=1e-4)
    assert first.error == pytest.approx(float(np.sqrt(np.mean((stored - wanted) ** 2))), rel=1e-4)
    assert {own.type for own in merge_adapter(tiny_llama, adapter, tmp_path / "merged.gguf", type="q5_0")} == {"q5_0"}


def test_what_is_refused_leaves_no_file(tmp_path: Path, adapter: Path, tiny_llama: Path) -> None:
    target = tmp_path / "new" / "merged.gguf"
    with pytest.raises(InputError, match=r"'type' must be one of bf16, .*, but is 'q9'"):
        merge_adapter(tiny_llama, adapter, target, type="q9")
    with pytest.raises(ModelFileError, match="the file is missing"):
        merge_adapter(tiny_llama, tmp_path, target)
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(tiny_llama.read_bytes())
    link = tmp_path / "link.gguf"
    os.link(copy, link)
    with pytest.raises(InputError, match="is the model itself: the new file needs another name"):
        merge_adapter(copy, adapter, link)
    assert copy.read_bytes() == tiny_llama.read_bytes()
    other = tiny_models.write(tmp_path / "other.gguf", {"block_count": 1}, layers=1)
    with pytest.raises(ModelFileError, match="belongs to no product that an adapter of this model may have"):
        merge_adapter(other, adapter, target)
    assert not target.parent.exists()
