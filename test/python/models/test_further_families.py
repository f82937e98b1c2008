# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What families ask for that are LLaMA's layers but for little, and what of them is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import tiny_models
from interpreted import load_interpreted
from numpy_decoder import NumpyDecoder

from rlx_mlir.errors import GGUFError, ModelFileError, RlxError, UnsupportedError
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.loading import load_model

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 20)]


def config_of(tmp_path: Path, architecture: str, **changes: Any) -> ModelConfig:
    return ModelConfig.from_gguf(GGUFFile(tiny_models.write(tmp_path / "m.gguf", changes, architecture=architecture)))


def test_windows_say_which_layers_rotate(tmp_path: Path) -> None:
    """Of EXAONE 4 the global ones don't, where there is a window at all, however long; without one all do."""
    found = config_of(tmp_path, "exaone4")
    assert (found.window, found.local, found.unrotated) == (8, (0, 1, 2), (3,))
    long = config_of(tmp_path, "exaone4", attention__sliding_window=256)
    assert (long.window, long.local, long.unrotated) == (0, (), (3,))
    free = config_of(tmp_path, "exaone4", attention__sliding_window=None)
    assert (free.window, free.local, free.unrotated) == (0, (), ())
    pattern = np.array([True, False, False, True])
    own = config_of(tmp_path, "exaone4", attention__sliding_window_pattern=pattern)
    assert (own.local, own.unrotated) == ((0, 3), (1, 2))


def test_local_layers_may_rotate_by_the_same_base(tmp_path: Path) -> None:
    """Of OLMo 3, which stretches global ones alone; OLMo 2 has no window."""
    found = config_of(tmp_path, "olmo3", rope__freq_base=5e5)
    assert (found.local, found.local_rope_base, found.yarn is not None) == ((0, 1, 2), 5e5, True)
    assert config_of(tmp_path, "olmo3", rope__freq_base_swa=1e4).local_rope_base == 1e4
    older = config_of(tmp_path, "olmo2")
    assert (older.local, older.local_rope_base) == ((), 0.0)


@pytest.mark.parametrize("architecture", ["glm4", "seed_oss"])
def test_files_may_lack_biases(tmp_path: Path, architecture: str) -> None:
    tensors = tiny_models.tensors(architecture=architecture)
    own = {name: value for name, value in tensors.items() if not name.endswith(".bias")}
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(architecture), own)
    found, wanted = load_interpreted(path).logits(IDS), NumpyDecoder(GGUFFile(path)).logits(IDS)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


def test_adapters_have_the_rows_of_folders(tmp_path: Path) -> None:
    """Those of queries and keys are in another order in GGUF files of some architectures."""
    for architecture, permuted in (("llama", True), ("minicpm", True), ("glm4", False), ("ernie4_5", False)):
        assert config_of(tmp_path, architecture).permuted_heads is permuted


@pytest.mark.parametrize("key", ["embedding_scale", "residual_scale", "logit_scale"])
def test_factors_must_be_there(tmp_path: Path, key: str) -> None:
    """Older files of MiniCPM lack them, and mean other numbers than 1."""
    with pytest.raises(GGUFError, match=rf"'minicpm.{key}' must be there"):
        config_of(tmp_path, "minicpm", **{key: None})


def test_queries_keys_and_values_may_be_joined_with_biases(tmp_path: Path) -> None:
    """As files of Phi 2 may have them; the parts are those of files that have them apart."""
    tensors = folders.weights("phi2")
    apart = write_gguf(tmp_path / "a.gguf", tiny_models.metadata("phi2"), tensors)
    for layer in range(2):
        for kind in ("weight", "bias"):
            parts = [tensors.pop(f"blk.{layer}.attn_{letter}.{kind}") for letter in "qkv"]
            tensors[f"blk.{layer}.attn_qkv.{kind}"] = np.concatenate(parts)
    joined = write_gguf(tmp_path / "b.gguf", tiny_models.metadata("phi2"), tensors)
    np.testing.assert_array_equal(load_interpreted(joined).logits(IDS), load_interpreted(apart).logits(IDS))
    tensors["blk.0.attn_qkv.bias"] = tensors["blk.0.attn_qkv.bias"][1:]
    path = write_gguf(tmp_path / "c.gguf", tiny_models.metadata("phi2"), tensors)
    with pytest.raises(GGUFError, match=r"missing tensors: blk\.0\.attn_q\.bias"):
        ModelConfig.from_gguf(GGUFFile(path))


def test_experts_may_be_weighed_among_those_near(tmp_path: Path) -> None:
    """With none near, each has the weight 1; two alone have weights."""
    with pytest.raises(UnsupportedError, match=r"'phimoe.expert_used_count' must be 2, but is 3"):
        config_of(tmp_path, "phimoe", expert_used_count=3)
    assert config_of(tmp_path, "phimoe", expert_jitter=None).routing.near == 0.02
    assert config_of(tmp_path, "phimoe", expert_jitter=0.0).routing.near == 0.0


def test_lengths_of_rotations_are_the_same_of_long_sequences(tmp_path: Path) -> None:
    """In transformers those of Phi 3.5 MoE change with the length of each sequence."""
    factors = {f"{word}_factor": [1.0] * 8 for word in ("short", "long")}
    scaling = {"type": "longrope", **factors, "original_max_position_embeddings": 64}
    tensors = folders.weights("phimoe")
    both = {"short_mscale": 1.25, "long_mscale": 1.25}
    folder = folders.write(tmp_path / "a", "phimoe", tensors, rope_scaling=scaling | both)
    assert ModelConfig.from_gguf(HuggingFaceFolder(folder)).rope_attention == 1.25
    folder = folders.write(tmp_path / "b", "phimoe", tensors, rope_scaling=scaling | both | {"long_mscale": 1.5})
    with pytest.raises(UnsupportedError, match=r"must be the same, but are 1\.25 and 1\.5"):
        HuggingFaceFolder(folder)


# Norms that subtract the mean -------------------------------------------------------------------


@pytest.mark.wide
@pytest.mark.parametrize("architecture", ["cohere2", pytest.param("starcoder2", marks=pytest.mark.slow)])
def test_tokens_have_the_same_bits_whatever_is_beside_them(tmp_path: Path, architecture: str) -> None:
    """A prompt wherever it is cut, tokens at once, and sequences of an engine; and they are the reference's."""
    path = tiny_models.write(tmp_path / "m.gguf", architecture=architecture)
    exact = load_model(path, context=64, chunk=16, activations="exact")
    np.testing.assert_allclose(exact.logits(IDS), NumpyDecoder(GGUFFile(path)).logits(IDS), rtol=5e-4, atol=5e-4)
    model = load_model(path, context=64, chunk=16)
    whole, parts = model.session(), model.session()
    whole.feed(IDS)
    for begin, end in ((0, 1), (1, 9), (9, 20)):
        parts.feed(IDS[begin:end])
    np.testing.assert_array_equal(whole.logits, parts.logits)
    rows = [whole.step(token) for token in IDS[:9]]
    np.testing.assert_array_equal(parts.extend(IDS[:9]), np.stack(rows))
    options: dict[str, Any] = {"temperature": 1.5, "max_tokens": 8, "ignore_eos": True}
    prompts = [IDS[:1], IDS[:7], IDS]
    alone = [model.generate(prompt, seed=seed, **options).read() for seed, prompt in enumerate(prompts)]
    beside = model.generate_many(prompts, seed=0, **options)
    assert [found.text for found in beside] == alone


def test_logits_are_multiplied(tmp_path: Path) -> None:
    """By what other families divide them by."""
    for architecture, scale in (("cohere2", 4.0), ("command-r", 4.0), ("minicpm", 2.0)):
        assert config_of(tmp_path, architecture).logit_scale == scale


WITHOUT = {
    "cohere2": ({"attention__layer_norm_epsilon": None}, r"'cohere2.attention.layer_norm_epsilon' must be there"),
    "stablelm": ({"use_parallel_residual": True}, r"'stablelm.use_parallel_residual' = True"),
}


@pytest.mark.parametrize("architecture", WITHOUT)
def test_files_that_can_not_be(tmp_path: Path, architecture: str) -> None:
    changes, message = WITHOUT[architecture]
    with pytest.raises((GGUFError, UnsupportedError), match=message):
        config_of(tmp_path, architecture, **changes)


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("command-r", {"use_qk_norm": True}),
        ("phi2", {"qk_layernorm": True}),
        ("stablelm", {"qk_layernorm": True}),
        ("stablelm", {"use_parallel_residual": True}),
        ("starcoder2", {"use_bias": False}),
    ],
)
def test_folders_that_can_not_be(tmp_path: Path, architecture: str, changes: dict[str, Any]) -> None:
    folder = folders.write(tmp_path / "f", architecture, folders.weights(architecture), **changes)
    ((key, value),) = changes.items()
    with pytest.raises(UnsupportedError, match=f"'{key}' = {value}"):
        HuggingFaceFolder(folder)


# Granite 4 ----------------------------------------------------------------------------------------


def write_granite4(folder: Path, tensors: dict[str, np.ndarray], **changes: Any) -> Path:
    """A folder with Granite's weights by the names of Granite 4, gate and up in one."""
    found = folders.to_folder("granite", tensors)
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        both = [found.pop(f"{prefix}.mlp.{word}_proj.weight") for word in ("gate", "up")]
        found[f"{prefix}.shared_mlp.input_linear.weight"] = np.concatenate(both)
        found[f"{prefix}.shared_mlp.output_linear.weight"] = found.pop(f"{prefix}.mlp.down_proj.weight")
    own = {"num_local_experts": 0, "shared_intermediate_size": 96, "position_embedding_type": "rope"}
    kinds = {"layer_types": ["attention"] * 2, "intermediate_size": 8}
    folder.mkdir()
    config = folders.config("granite", model_type="granitemoehybrid", **{**own, **kinds, **changes})
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", found)
    return folder


def test_granite_4_without_states_is_granite(tmp_path: Path) -> None:
    tensors = folders.weights("granite")
    other = folders.write(tmp_path / "f", "granite", tensors)
    folder = write_granite4(tmp_path / "g", tensors)
    np.testing.assert_array_equal(load_interpreted(folder).logits(IDS), load_interpreted(other).logits(IDS))


REFUSED: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "other layers": (
        {"layer_types": ["conv", "attention"]},
        UnsupportedError,
        r"layers of 'granitemoehybrid' must have attention, by 'layer_types', but are \['conv', 'attention'\]",
    ),
    "states by default": ({"layer_types": None}, UnsupportedError, r"must have attention, .* but are None"),
    "too few": ({"layer_types": ["attention"]}, ModelFileError, r"'layer_types' must be 2 of attention"),
    "positions": ({"position_embedding_type": "nope"}, UnsupportedError, r"'position_embedding_type' = 'nope'"),
    "experts": ({"num_local_experts": 4}, UnsupportedError, r"'num_local_experts' = 4"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_granites_are_refused(tmp_path: Path, name: str) -> None:
    changes, error, message = REFUSED[name]
    folder = write_granite4(tmp_path / "g", folders.weights("granite"), **changes)
    with pytest.raises(error, match=message):
        ModelConfig.from_gguf(HuggingFaceFolder(folder))


# Rotations ----------------------------------------------------------------------------------------


def test_bases_grow_by_a_fixed_factor_alone(tmp_path: Path) -> None:
    """Elsewhere `dynamic` means one that depends on the length of a sequence."""
    tensors = folders.weights("hunyuan-dense")
    scaling = {"type": "dynamic", "factor": 2.0}
    folder = folders.write(tmp_path / "f", "hunyuan-dense", tensors, rope_scaling=scaling)
    with pytest.raises(UnsupportedError, match=r"'rope_type' dynamic are supported with 'alpha' alone"):
        HuggingFaceFolder(folder)
    known = folders.write(tmp_path / "g", "hunyuan-dense", tensors)
    np.testing.assert_allclose(ModelConfig.from_gguf(HuggingFaceFolder(known)).rope_base, 98765.0, rtol=1e-12)


def test_local_layers_are_not_stretched_in_folders_either(tmp_path: Path) -> None:
    tensors = folders.weights("olmo3")
    nested = {
        "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
        "sliding_attention": {"rope_type": "default", "rope_theta": 3e4},
    }
    folder = folders.write(tmp_path / "f", "olmo3", tensors, rope_scaling=None, rope_parameters=nested)
    found = ModelConfig.from_gguf(HuggingFaceFolder(folder))
    assert (found.rope_base, found.rope_scale, found.local_rope_base) == (1e4, 2.0, 3e4)
    nested["sliding_attention"]["rope_type"] = "linear"
    folder = folders.write(tmp_path / "g", "olmo3", tensors, rope_scaling=None, rope_parameters=nested)
    with pytest.raises(UnsupportedError, match=r"local layers must be of 'rope_type' default, but are 'linear'"):
        HuggingFaceFolder(folder)
