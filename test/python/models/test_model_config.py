# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Configurations from metadata: what is read, and that what cannot be run is refused by name."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models

from rlx_mlir.budgets import budget
from rlx_mlir.errors import BudgetError, GGUFError, InputError, UnsupportedError, did_you_mean, nearest
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.models import decoder
from rlx_mlir.models.architectures import ARCHITECTURES
from rlx_mlir.models.config import ModelConfig, check_context


def read(path: Path, changes: dict[str, Any] | None = None, **options: Any) -> ModelConfig:
    return ModelConfig.from_gguf(GGUFFile(tiny_models.write(path / "m.gguf", changes, **options)))


def test_tiny(tiny_llama: Path) -> None:
    config = ModelConfig.from_gguf(GGUFFile(tiny_llama))
    assert (config.layers, config.hidden, config.heads, config.kv_heads, config.head_dim) == (2, 64, 4, 2, 16)
    assert (config.ffn, config.vocab, config.context, config.rope_dims) == (96, 300, 256, 16)
    assert config.rope_style == "interleaved"
    assert config.eps == pytest.approx(1e-5)
    assert config.tied_head
    assert config.head_weight == "token_embd.weight"
    per_layer = 2 * 64 + 64 * 64 * 2 + 32 * 64 * 2 + 3 * 96 * 64
    assert config.parameters == 300 * 64 + 64 + 2 * per_layer


def test_smollm2(smollm2_path: Path) -> None:
    config = ModelConfig.from_gguf(GGUFFile(smollm2_path))
    assert (config.layers, config.hidden, config.heads, config.kv_heads, config.head_dim) == (30, 576, 9, 3, 64)
    assert (config.ffn, config.vocab, config.context, config.rope_base) == (1536, 49152, 8192, 100000)
    assert config.tied_head
    assert config.parameters == 134_515_008


def of(path: Path, architecture: str, changes: dict[str, Any] | None = None, **options: Any) -> ModelConfig:
    return ModelConfig.from_gguf(
        GGUFFile(tiny_models.write(path / "m.gguf", changes, architecture=architecture, **options))
    )


def test_qwen(tmp_path: Path) -> None:
    """Heads that rotate by halves; Qwen3's are of a width of their own."""
    first, second = of(tmp_path, "qwen2"), of(tmp_path, "qwen3")
    assert (first.head_dim, second.head_dim, second.sizes["q_width"]) == (16, 32, 128)
    assert first.rope_style == second.rope_style == "half"
    assert "blk.0.attn_k.bias" in first.weights
    assert "blk.0.attn_k_norm.weight" in second.weights
    assert first.attention_scale == 0.25
    assert not any(config.is_local(layer) for config in (first, second) for layer in range(2))


def test_gemma(tmp_path: Path) -> None:
    config = of(tmp_path, "gemma3")
    assert (config.window, config.local, config.local_layers) == (8, (0, 1, 2, 3, 4), 5)
    assert (config.rope_base, config.local_rope_base) == (1e6, 1e4)
    assert [config.is_local(layer) for layer in range(6)] == [True] * 5 + [False]
    other = of(
        tmp_path,
        "gemma3",
        {"rope__freq_base_swa": 500.0, "attention__sliding_window_pattern": 2, "block_count": 4},
        layers=4,
    )
    assert (other.local, other.local_rope_base) == ((0, 2), 500.0)
    everywhere = of(tmp_path, "gemma3", {"attention__sliding_window": None})
    assert (everywhere.window, everywhere.local_layers) == (0, 0)


def test_only_global_layers_are_stretched(tmp_path: Path) -> None:
    config = of(tmp_path, "gemma3", {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0})
    angles = np.arange(100)[:, None]
    cos, _ = config.rope_tables(100)
    np.testing.assert_allclose(cos, np.cos(angles / 8 / 1e6 ** (np.arange(16) / 16)), atol=1e-7)
    cos, _ = config.rope_tables(100, local=True)
    np.testing.assert_allclose(cos, np.cos(angles / 1e4 ** (np.arange(16) / 16)), atol=1e-7)


def test_the_largest_gemma_divides_scores_by_another_width(tmp_path: Path) -> None:
    """62 layers: by sqrt(hidden / heads) in place of sqrt(head_dim)."""
    config = of(tmp_path, "gemma3", {"block_count": 62}, layers=62)
    assert config.attention_scale == pytest.approx((64 / 4) ** -0.5)
    assert of(tmp_path, "gemma3").attention_scale == pytest.approx(32**-0.5)


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "gemma3"])
def test_other_families_need_their_tensors(tmp_path: Path, architecture: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(architecture), tiny_models.tensors())
    missing = {"qwen2": "attn_q.bias", "qwen3": "attn_q_norm.weight", "gemma3": "post_ffw_norm.weight"}
    with pytest.raises(GGUFError, match=rf"missing tensors: .*blk\.0\.{missing[architecture]}"):
        ModelConfig.from_gguf(GGUFFile(path))


def test_defaults(tmp_path: Path) -> None:
    absent = {"attention__head_count_kv": None, "rope__freq_base": None, "rope__dimension_count": None}
    config = read(tmp_path, {**absent, "vocab_size": None}, kv_heads=4)
    assert (config.kv_heads, config.rope_base, config.rope_dims, config.vocab) == (4, 10000.0, 16, 300)


def test_head_width_of_its_own(tmp_path: Path) -> None:
    """Four heads of 32 in a model of width 64."""
    changes = {"attention__key_length": 32, "attention__value_length": 32, "rope__dimension_count": 32}
    config = read(tmp_path, changes, head_dim=32)
    assert (config.head_dim, config.kv_width) == (32, 64)


def test_untied_head(tmp_path: Path) -> None:
    config = read(tmp_path, tied=False)
    assert not config.tied_head
    assert config.head_weight == "output.weight"


def test_one_number_for_each_layer(tmp_path: Path) -> None:
    assert read(tmp_path, {"attention__head_count_kv": np.array([2, 2], np.int32)}).kv_heads == 2
    with pytest.raises(UnsupportedError, match=r"head_count_kv' differs between layers.*\[1, 2\]"):
        read(tmp_path, {"attention__head_count_kv": np.array([2, 1], np.int32)})


def test_unknown_architecture(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "rwkv7"}, {"x": np.zeros(1, np.float32)})
    with pytest.raises(
        UnsupportedError,
        match=r"m\.gguf: architecture 'rwkv7' is not supported, known are cohere2, command-r, deepseek2, ernie4_5, ",
    ):
        ModelConfig.from_gguf(GGUFFile(path))


def test_an_unknown_architecture_names_the_nearest_and_all_else(tmp_path: Path) -> None:
    tensors = {**tiny_models.tensors(), "blk.0.ssm_a": np.zeros(4, np.int64), "blk.0.ssm_b": np.zeros(4, np.int16)}
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "gema3"}, tensors)
    with pytest.raises(UnsupportedError) as caught:
        ModelConfig.from_gguf(GGUFFile(path))
    message = str(caught.value)
    assert "'gema3' is not supported, known are cohere2, command-r, deepseek2, ernie4_5, exaone4, " in message
    assert "; the nearest is gemma3; " in message
    assert "nor are these types of tensors: 'blk.0.ssm_a' is i64, 'blk.0.ssm_b' is i16" in message


def test_types_and_tensors_without_a_use_are_listed_together(tmp_path: Path) -> None:
    tensors = {**tiny_models.tensors(), "blk.0.attn_q.bias": np.ones(64, np.float32)}
    tensors["output_norm.weight"] = np.zeros(64, np.int8)
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(), tensors)
    with pytest.raises(UnsupportedError) as caught:
        ModelConfig.from_gguf(GGUFFile(path))
    assert "'output_norm.weight' is i8; a matrix may be" in str(caught.value)
    assert "has no use for these tensors, and leaving them out would change results: blk.0.attn_q" in str(caught.value)


def test_a_misspelt_tensor_is_named_beside_the_missing_one(tmp_path: Path) -> None:
    tensors = tiny_models.tensors()
    tensors["blk.0.atn_q.weight"] = tensors.pop("blk.0.attn_q.weight")
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(), tensors)
    with pytest.raises(GGUFError, match=r"missing tensors: blk\.0\.attn_q\.weight \(nearest: blk\.0\.atn_q\.weight\)"):
        ModelConfig.from_gguf(GGUFFile(path))


def test_missing_keys_are_listed_together(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match=r"'llama\.block_count', 'llama\.attention\.head_count' must be there"):
        read(tmp_path, {"block_count": None, "attention__head_count": None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_count": 0}, r"'llama\.block_count' must be an integer from 1 to 2\^31 - 1, but is 0"),
        ({"block_count": "2"}, r"block_count' must be an integer.*but is '2'"),
        ({"block_count": True}, r"block_count' must be an integer.*but is True"),
        ({"block_count": 1 << 30}, r"block_count' must be at most the number of tensors, 20, but is 1073741824"),
        ({"attention__head_count": 3}, r"head_count' must be a multiple of the key/value heads, 2, but is 3"),
        ({"attention__head_count": 6}, r"embedding_length' must be a multiple of the heads, 6.*but is 64"),
        ({"attention__key_length": 15}, r"key_length' must be even, but is 15"),
        ({"attention__layer_norm_rms_epsilon": 0.0}, r"epsilon' must be a finite number above 0, but is 0\.0"),
        ({"attention__layer_norm_rms_epsilon": float("nan")}, r"epsilon' must be a finite number above 0, but is nan"),
        ({"rope__dimension_count": 18}, r"dimension_count' must be even and at most the head's width, 16, but is 18"),
        ({"rope__freq_base": -1.0}, r"freq_base' must be a finite number above 0, but is -1\.0"),
        ({"vocab_size": 299}, r"vocab_size' must be the rows of 'token_embd\.weight', 300, but is 299"),
        ({"context_length": 0}, r"context_length' must be an integer from 1"),
        ({"expert_count": 4}, r"'llama\.expert_used_count' must be there"),
        ({"expert_count": "4", "expert_used_count": 2}, r"expert_count' must be an integer from 1.*but is '4'"),
        ({"expert_count": 4, "expert_used_count": 5}, r"expert_used_count' must be at most the number of experts, 4"),
        ({"expert_count": 4, "expert_used_count": 2}, r"blk\.0\.ffn_gate_inp\.weight"),
    ],
)
def test_bad_values_name_key_and_rule(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GGUFError, match=message):
        read(tmp_path, changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expert_count": 8, "expert_shared_count": 4}, r"'llama\.expert_shared_count' = 4"),
        ({"attention__scale": 0.5, "logit_scale": 2.0}, r"attention\.scale' = 0\.5, 'llama\.logit_scale' = 2\.0"),
        ({"attention__causal": False}, r"causal' = False"),
        ({"final_logit_softcapping": 30.0}, r"final_logit_softcapping' = 30\.0"),
        ({"rope__scaling__type": "dynamic"}, r"rope scaling 'dynamic'.*known are none, linear, longrope, yarn"),
        ({"rope__scaling__type": "su", "expert_used_count": 8}, r"'llama\.expert_used_count' = 8, rope scaling 'su'"),
        ({"rope__scaling__yarn_ext_factor": 1.0}, r"yarn_ext_factor' = 1\.0"),
        ({"rope__scaling__type": "yarn", "rope__scaling__yarn_ext_factor": 0.5}, r"yarn_ext_factor' = 0\.5"),
        ({"attention__value_length": 32}, r"equally wide, but have 16 and 32"),
    ],
)
def test_what_is_not_implemented_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        read(tmp_path, changes)


@pytest.mark.parametrize(("key", "neutral"), ARCHITECTURES["llama"].refused.items())
@pytest.mark.quick(15)
def test_every_refused_key_has_values_that_change_nothing(tmp_path: Path, key: str, neutral: tuple[Any, ...]) -> None:
    word = key.replace(".", "__")
    for value in (*neutral, np.array([neutral[0]] * 2) if not isinstance(neutral[0], float) else neutral[0]):
        read(tmp_path, {word: value})
    other = not neutral[0] if isinstance(neutral[0], bool) else type(neutral[0])(7)
    with pytest.raises(UnsupportedError, match=rf"'llama\.{re.escape(key)}' = {other!r}"):
        read(tmp_path, {word: other})


def test_neutral_options_are_accepted(tmp_path: Path) -> None:
    """What says how a model was made, or something beside other keys only."""
    read(tmp_path, {"logit_scale": 1.0, "rope__scaling__type": "none", "rope__scaling__finetuned": True})
    read(tmp_path, {"rope__scaling__original_context_length": 64, "rope__scaling__yarn_beta_fast": 32.0})
    read(tmp_path, {"expert_feed_forward_length": 96, "expert_weights_scale": 2.5, "tensor_data_layout": "reference"})


@pytest.mark.parametrize(
    ("changes", "scale"),
    [
        ({}, 1.0),
        ({"factor": 4.0}, 4.0),  # the format's default type is linear
        ({"factor": 4.0, "type": "linear"}, 4.0),
        ({"factor": 4.0, "type": "none"}, 1.0),
        ({"type": "linear"}, 1.0),
        ({"factor": 0.0}, 1.0),
        ({"old": 2.0}, 2.0),
        ({"old": 2.0, "type": "linear"}, 2.0),
        ({"old": 2.0, "type": "none"}, 1.0),
        ({"old": 2.0, "factor": 4.0}, 4.0),
        ({"old": 0.0}, 1.0),
        ({"old": 2.0, "factor": 0.0}, 1.0),
    ],
)
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_rope_scaling(tmp_path: Path, architecture: str, changes: dict[str, Any], scale: float) -> None:
    names = {"factor": "rope__scaling__factor", "type": "rope__scaling__type", "old": "rope__scale_linear"}
    config = of(tmp_path, architecture, {names[key]: value for key, value in changes.items()})
    assert config.rope_scale == scale


@pytest.mark.parametrize(
    "key", ["llama.rope.scaling.type", "split.count", "general.type", "general.quantization_version"]
)
def test_arrays_are_no_words(tmp_path: Path, key: str) -> None:
    """Of these keys each is compared with few values, which an array isn't."""
    metadata = tiny_models.metadata() | {key: np.array([1, 1], np.int32)}
    path = write_gguf(tmp_path / "m.gguf", metadata, tiny_models.tensors())
    with pytest.raises(UnsupportedError, match=re.escape(key)):
        ModelConfig.from_gguf(GGUFFile(path))


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan"), "4", np.array([4.0], np.float32)])
def test_bad_rope_factors(tmp_path: Path, value: Any) -> None:
    with pytest.raises(GGUFError, match=r"rope\.scaling\.factor' must be a finite number above 0"):
        read(tmp_path, {"rope__scaling__factor": value})


def test_the_width_of_values_has_a_default_of_its_own(tmp_path: Path) -> None:
    """hidden / heads, whatever the width of keys is."""
    with pytest.raises(UnsupportedError, match="equally wide, but have 32 and 16"):
        read(tmp_path, {"attention__key_length": 32, "rope__dimension_count": 32}, head_dim=32)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (
            {"split.count": 3, "split.no": 1},
            r"is number 2 of the 3 files of a split model .*, which must be opened together",
        ),
        ({"split.count": 2}, "is one of 2 files of a split model"),
        ({"general.type": "adapter"}, "'general.type' must be 'model', but is 'adapter'"),
        ({"general.quantization_version": 1}, "'general.quantization_version' must be 2, but is 1"),
    ],
)
@pytest.mark.parametrize("architecture", ["llama", None])
def test_files_that_are_no_whole_model(
    tmp_path: Path, architecture: str | None, metadata: dict[str, Any], message: str
) -> None:
    """Said first: most of a split model's files have no other metadata."""
    own = tiny_models.metadata() if architecture else {}
    path = write_gguf(tmp_path / "m.gguf", own | metadata, tiny_models.tensors())
    with pytest.raises(UnsupportedError, match=message):
        ModelConfig.from_gguf(GGUFFile.single(path))


def test_one_file_of_one_is_a_whole_model(tmp_path: Path) -> None:
    more = {"split.count": np.uint16(1), "split.no": np.uint16(0), "general.type": "model"}
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata() | more, tiny_models.tensors())
    assert ModelConfig.from_gguf(GGUFFile(path)).layers == 2


def test_layers_have_a_budget(tiny_llama: Path) -> None:
    with budget(layers=1), pytest.raises(BudgetError, match=r"block_count' needs 2, but the budget 'layers'"):
        ModelConfig.from_gguf(GGUFFile(tiny_llama))


def test_many_misnamed_tensors_are_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are compared for what is shown only: all with all took 83 s for 640 of them."""
    count = 1800
    tensors = {f"blk.{i // 9}.atttn_q{i % 9}.weightt_of_this_file": np.zeros(1, np.float32) for i in range(count)}
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(block_count=count // 9), tensors)
    file = GGUFFile(path)
    compared = 0

    class Counting(difflib.SequenceMatcher[str]):
        def set_seq1(self, a: Sequence[str]) -> None:
            nonlocal compared
            compared += 1
            super().set_seq1(a)

    monkeypatch.setattr(difflib, "SequenceMatcher", Counting)
    with pytest.raises(GGUFError, match=r"nearest: blk\.0\.atttn"):
        ModelConfig.from_gguf(file)
    assert 0 < compared <= 12 * 65


def test_the_nearest_of_many_names() -> None:
    names = [f"blk.{i}.attn_{kind}.weight" for i in range(500) for kind in "qkv"]
    assert nearest("blk.77.atn_q.weight", names) == "blk.77.attn_q.weight"
    assert nearest("bk.77.attn_q.weight", names) == "blk.77.attn_q.weight"
    assert nearest("x" * 100_000, names) == nearest("", names) == ""
    assert did_you_mean("layerz", ["layers", "y" * 100_000]) == " (did you mean 'layers'?)"


def test_a_configuration_prints_briefly(smollm2_path: Path) -> None:
    text = repr(ModelConfig.from_gguf(GGUFFile(smollm2_path)))
    assert len(text) < 600
    assert "layers=30" in text


def test_missing_tensors_and_shapes_are_listed_together(tmp_path: Path) -> None:
    tensors = tiny_models.tensors()
    del tensors["blk.0.attn_q.weight"], tensors["blk.1.ffn_norm.weight"]
    tensors["output_norm.weight"] = np.ones(63, np.float32)
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(), tensors)
    with pytest.raises(GGUFError) as caught:
        ModelConfig.from_gguf(GGUFFile(path))
    message = str(caught.value)
    assert "missing tensors: blk.0.attn_q.weight, blk.1.ffn_norm.weight" in message
    assert "'output_norm.weight' must be [64] [hidden], but is [63]" in message


def test_many_missing_tensors_are_counted(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(), tiny_models.tensors(layers=1))
    with pytest.raises(GGUFError, match=r"missing tensors: blk\.1\.attn_norm\.weight"):
        ModelConfig.from_gguf(GGUFFile(path))


def test_types_that_are_not_supported_are_listed_together(tmp_path: Path) -> None:
    tensors = tiny_models.tensors()
    tensors["blk.0.attn_q.weight"] = np.zeros((64, 64), np.int16)
    tensors["output_norm.weight"] = np.zeros(64, np.int8)
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(), tensors)
    with pytest.raises(UnsupportedError) as caught:
        ModelConfig.from_gguf(GGUFFile(path))
    assert "'output_norm.weight' is i8, 'blk.0.attn_q.weight' is i16" in str(caught.value)
    assert "q4_1" in str(caught.value)


def test_tensors_without_a_use_are_refused(tmp_path: Path) -> None:
    tensors = {**tiny_models.tensors(), "blk.0.attn_q.bias": np.ones(64, np.float32)}
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(), tensors)
    with pytest.raises(UnsupportedError, match=r"no use for these tensors.*blk\.0\.attn_q\.bias"):
        ModelConfig.from_gguf(GGUFFile(path))


def test_rope_tables(tiny_llama: Path, tmp_path: Path) -> None:
    config = ModelConfig.from_gguf(GGUFFile(tiny_llama))
    cos, sin = config.rope_tables(100)
    assert cos.shape == sin.shape == (100, 8)
    assert cos.dtype == np.float32
    angles = np.arange(100)[:, None] / 10000 ** (np.arange(8) / 8)
    np.testing.assert_allclose(cos, np.cos(angles), atol=1e-7)
    np.testing.assert_allclose(sin, np.sin(angles), atol=1e-7)
    halved, _ = config.rope_tables(100, np.full(8, 2.0))
    np.testing.assert_allclose(halved, np.cos(angles / 2), atol=1e-7)
    partial = read(
        tmp_path, {"rope__dimension_count": 8, "rope__scaling__type": "linear", "rope__scaling__factor": 4.0}
    )
    cos, sin = partial.rope_tables(10)
    np.testing.assert_allclose(cos[:, :4], np.cos(np.arange(10)[:, None] / 4 / 10000 ** (np.arange(4) / 4)), atol=1e-7)
    assert (cos[:, 4:] == 1).all()
    assert (sin[:, 4:] == 0).all()


def test_context(tiny_llama: Path, smollm2_path: Path) -> None:
    tiny, large = (ModelConfig.from_gguf(GGUFFile(path)) for path in (tiny_llama, smollm2_path))
    assert check_context(tiny, None) == 256
    assert check_context(large, None) == 2048
    assert check_context(large, 8192) == 8192
    for bad in (0, 8193, 2.5, True):
        with pytest.raises(InputError, match=r"'context' must be from 1 to the model's, 8192"):
            check_context(large, bad)  # type: ignore[arg-type]


def test_description_is_json_and_tells_models_apart(tmp_path: Path, tiny_llama: Path) -> None:
    """What a compiled module depends on, and nothing else: neither weights nor what only fills the rope tables."""
    base = ModelConfig.from_gguf(GGUFFile(tiny_llama))
    described = decoder.describe(base, "decode")
    assert json.loads(json.dumps(described)) == described
    assert decoder.describe(base, "prefill") != described
    other_weights = read(tmp_path, {"rope__freq_base": 500.0}, seed=1)
    assert decoder.describe(other_weights, "decode") == described
    assert decoder.describe(read(tmp_path, types={"attn_q": "q4_0"}), "decode") != described
    assert decoder.describe(read(tmp_path, {"attention__layer_norm_rms_epsilon": 1e-6}), "decode") != described
    with pytest.raises(InputError, match="modules are prefill, decode, batch, extend, but got 'train'"):
        decoder.describe(base, "train")
