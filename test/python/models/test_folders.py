# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoders in folders of Hugging Face's libraries: what the same weights give as a GGUF file, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import tiny_models
from interpreted import load_interpreted
from numpy_decoder import NumpyDecoder

from rlx_mlir.errors import InputError, ModelFileError, RlxError, SafetensorsError, UnsupportedError
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.frontends.huggingface_config import read_config
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.loading import load_model

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 20)]


def close(actual: np.ndarray, wanted: np.ndarray) -> None:
    """Within the rounding of f32 sums of a hundred terms, a few layers deep."""
    np.testing.assert_allclose(actual, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("architecture", folders.FAMILIES)
@pytest.mark.quick(4)
def test_a_folder_gives_the_logits_of_the_file(tmp_path: Path, architecture: str) -> None:
    """The same bits where weights are the same bytes; where rows are in another order, so are sums."""
    folder, path = folders.write_both(tmp_path, architecture)
    found, wanted = load_interpreted(folder).logits(IDS), load_interpreted(path).logits(IDS)
    if architecture in folders.PERMUTED:
        close(found, wanted)
    else:
        np.testing.assert_array_equal(found, wanted)
    close(found, NumpyDecoder(GGUFFile(path)).logits(IDS))


@pytest.mark.parametrize(
    ("architecture", "dtype"),
    [
        ("llama", "bf16"),
        pytest.param("qwen3moe", "f16", marks=pytest.mark.wide),
        ("gemma2", "bf16"),
        ("gpt-oss", "bf16"),
    ],
)
@pytest.mark.quick(1)
def test_compiled_folders_give_the_logits_of_the_file(tmp_path: Path, architecture: str, dtype: str) -> None:
    """In the element types of published weights; a folder in several files is the same."""
    folder, path = folders.write_both(tmp_path, architecture, dtype, shards=3)
    options: dict[str, Any] = {"activations": "exact", "context": 32, "chunk": 16}
    found, wanted = load_model(folder, **options).logits(IDS), load_model(path, **options).logits(IDS)
    if architecture in folders.PERMUTED:
        close(found, wanted)
    else:
        np.testing.assert_array_equal(found, wanted)
    close(found, NumpyDecoder(GGUFFile(path)).logits(IDS))


def test_experts_may_be_joined(tmp_path: Path) -> None:
    """As later versions of the library save them."""
    tensors = folders.weights("qwen3moe")
    apart = HuggingFaceFolder(folders.write(tmp_path / "a", "qwen3moe", tensors))
    joined = HuggingFaceFolder(folders.write(tmp_path / "b", "qwen3moe", tensors, joined=True))
    assert apart.tensors.keys() == joined.tensors.keys()
    for name in apart.tensors:
        np.testing.assert_array_equal(apart.tensor(name), joined.tensor(name))


def mxfp4_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Blocks and scales, as folders have them, of blocks of a GGUF file [experts, outputs, n, 17]: code by code."""
    codes = np.concatenate([rows[..., 1:] & 15, rows[..., 1:] >> 4], axis=-1)  # in the order of elements
    return codes[..., 0::2] | codes[..., 1::2] << 4, rows[..., 0]


def write_mxfp4(tmp_path: Path) -> tuple[Path, Path, dict[str, np.ndarray]]:
    """A folder of gpt-oss with experts of MXFP4, a GGUF file with the same ones, and the folder's tensors."""
    architecture = "gpt-oss"
    kinds = {f"ffn_{word}_exps": "mxfp4" for word in ("gate", "up", "down")}
    dense = dict.fromkeys(("token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_output"), "f32")
    tensors = tiny_models.tensors(dense | kinds, architecture=architecture)
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(architecture), tensors)
    numbers = {name: value for name, value in tensors.items() if not isinstance(value, tuple)}
    own = folders.to_folder(architecture, numbers)
    for layer in range(2):
        prefix = f"model.layers.{layer}.mlp.experts"
        experts = {}
        for word in ("gate", "up", "down"):
            _, rows, (count, outputs, width) = tensors[f"blk.{layer}.ffn_{word}_exps.weight"]
            experts[word] = mxfp4_of(rows.reshape(count, outputs, width // 32, 17))
        both = [np.stack(pair, axis=2) for pair in zip(experts["gate"], experts["up"], strict=True)]
        for kind, joined, down in zip(("blocks", "scales"), both, experts["down"], strict=True):
            own[f"{prefix}.gate_up_proj_{kind}"] = joined.reshape(len(down), -1, *joined.shape[3:])
            own[f"{prefix}.down_proj_{kind}"] = down
    folder = tmp_path / "folder"
    folder.mkdir()
    packing = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    (folder / "config.json").write_text(json.dumps(folders.config(architecture, quantization_config=packing)))
    write_safetensors(folder / "model.safetensors", own)
    return folder, path, own


@pytest.mark.wide
def test_experts_of_mxfp4(tmp_path: Path) -> None:
    """The same bytes as in a GGUF file, and the same bits of logits, compiled."""
    folder, path, _ = write_mxfp4(tmp_path)
    file, other = HuggingFaceFolder(folder), GGUFFile(path)
    for name, info in other.tensors.items():
        if name.endswith("_exps.weight"):
            assert (file.tensors[name].type, file.tensors[name].shape) == ("mxfp4", info.shape)
            np.testing.assert_array_equal(file.dequantize(name), other.dequantize(name))
    options: dict[str, Any] = {"activations": "exact", "context": 32, "chunk": 16}
    found = load_model(folder, **options).logits(IDS)
    np.testing.assert_array_equal(found, load_model(path, **options).logits(IDS))
    close(found, NumpyDecoder(other).logits(IDS))


def test_experts_of_mxfp4_must_fit(tmp_path: Path) -> None:
    folder, _, own = write_mxfp4(tmp_path)
    prefix = "model.layers.1.mlp.experts"
    blocks, scales = f"{prefix}.gate_up_proj_blocks", f"{prefix}.gate_up_proj_scales"
    for changed in (
        {scales: None},
        {blocks: None},
        {scales: own[scales][:, :-1]},
        {scales: own[scales].astype(np.float32)},
        {blocks: own[blocks][..., :15]},
        {blocks: own[blocks][:, 1:], scales: own[scales][:, 1:]},
    ):
        tensors = {name: value for name, value in (own | changed).items() if value is not None}
        write_safetensors(folder / "model.safetensors", tensors)
        with pytest.raises(ModelFileError, match=r"experts of MXFP4 must be blocks .* 'blk\.1', gate_up_proj, are"):
            HuggingFaceFolder(folder)
    dense = {f"{prefix}.down_proj": np.zeros((6, 64, 64), np.float32)}
    write_safetensors(folder / "model.safetensors", own | dense)
    with pytest.raises(ModelFileError, match=r"'blk\.1\.ffn_down_exps\.weight' must be given once, but is there as n"):
        HuggingFaceFolder(folder)
    for name, array in (
        (f"{prefix}.gate_up_proj", np.zeros((6, 64, 3), "f4")),
        (f"{prefix}.up_proj", np.zeros(3, "f4")),
    ):
        write_safetensors(folder / "model.safetensors", own | {name: array})
        with pytest.raises(UnsupportedError, match=rf"no use for these tensors.*'{name}'"):
            HuggingFaceFolder(folder)
    config = folders.config("gpt-oss", quantization_config={"quant_method": "gptq"})
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedError, match=r"'quantization_config' = \{"):
        HuggingFaceFolder(folder)


def test_what_gpt_oss_says_by_default(tmp_path: Path) -> None:
    """As transformers has it: rotations, windows, and the constants of the gate, which can't be others."""
    changes = {"rope_scaling": None, "rope_theta": None, "sliding_window": 8}
    folder = folders.write(tmp_path / "f", "gpt-oss", folders.weights("gpt-oss"), **changes)
    config = ModelConfig.from_gguf(HuggingFaceFolder(folder))
    assert (config.rope_base, config.rope_scale, config.rope_original) == (150000.0, 32.0, 4096)
    assert config.yarn is not None
    assert not config.yarn.whole
    assert config.rope_attention == pytest.approx(1 + 0.1 * np.log(32))
    assert (config.local, config.window, config.eps) == ((0,), 8, 1e-5)
    for key, value in (("swiglu_limit", 5.0), ("swiglu_alpha", 1.0), ("attention_bias", False)):
        folder = folders.write(tmp_path / "f", "gpt-oss", folders.weights("gpt-oss"), **{key: value})
        with pytest.raises(UnsupportedError, match=f"'{key}' = {value}"):
            HuggingFaceFolder(folder)


ROTATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {"rope_scaling": None}),
    "linear": ({"rope_type": "linear", "factor": 4.0}, {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
    ),
    "llama3": (
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
}


@pytest.mark.parametrize("kind", ROTATIONS)
def test_both_forms_of_rotations_are_one(tmp_path: Path, kind: str) -> None:
    now, earlier = ROTATIONS[kind]
    tensors = folders.weights("llama")
    found = []
    for number, changes in enumerate(
        ({"rope_parameters": {"rope_theta": 500.0, **now}}, {**earlier, "rope_theta": 500.0})
    ):
        file = HuggingFaceFolder(folders.write(tmp_path / str(number), "llama", tensors, **changes))
        config = ModelConfig.from_gguf(file)
        name = config.factors_of(64)
        found.append(config.rope_tables(64, None if name is None else file.dequantize(name)))
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(first, second)


def tables(folder: Path, positions: int) -> tuple[np.ndarray, np.ndarray]:
    file = HuggingFaceFolder(folder)
    config = ModelConfig.from_gguf(file)
    name = config.factors_of(positions)
    return config.rope_tables(positions, None if name is None else file.dequantize(name))


def test_factors_of_llama3(tmp_path: Path) -> None:
    """Pairs that turn fewer than once in 32 positions are 8 times slower, those that turn 4 times as fast as before."""
    folder = folders.write(tmp_path / "f", "llama", folders.weights("llama"), **ROTATIONS["llama3"][1])
    cos, _ = tables(folder, 2)
    plain = 10000.0 ** (-np.arange(8) / 8)
    turns = 32 * plain / (2 * np.pi)
    wanted = np.where(turns > 4, plain, plain / 8)
    between = (turns <= 4) & (turns >= 1)
    part = (turns - 1) / 3
    wanted = np.where(between, (1 - part) * plain / 8 + part * plain, wanted)
    np.testing.assert_allclose(np.arccos(cos[1].astype(np.float64)), wanted, rtol=1e-3, atol=1e-3)
    assert between.any()


def test_long_sequences_have_factors_of_their_own(tmp_path: Path) -> None:
    scaling = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    changes = {"rope_scaling": scaling, "original_max_position_embeddings": 64}
    folder = folders.write(tmp_path / "f", "phi3", folders.weights("phi3"), **changes)
    grown = np.sqrt(1 + np.log(4) / np.log(64))  # 256 positions in place of 64
    plain = 10000.0 ** (-np.arange(8) / 8)
    for positions, factor in ((64, 1.0), (65, 4.0)):
        cos, sin = tables(folder, positions)
        np.testing.assert_allclose(cos[3], grown * np.cos(3 * plain / factor), rtol=1e-6)
        np.testing.assert_allclose(sin[3], grown * np.sin(3 * plain / factor), rtol=1e-5, atol=1e-7)


def test_windows(tmp_path: Path) -> None:
    """By `layer_types`, or by each family's rule; null is none."""

    def local(architecture: str, **changes: Any) -> tuple[int, ...]:
        folder = folders.write(tmp_path / "f", architecture, folders.weights(architecture), **changes)
        return ModelConfig.from_gguf(HuggingFaceFolder(folder)).local

    assert local("llama", model_type="mistral", sliding_window=8) == (0, 1)
    assert local("llama", model_type="mistral", sliding_window=None) == ()
    assert local("llama", sliding_window=8) == ()  # the key says nothing there
    assert local("llama", model_type="mistral", sliding_window=256) == ()  # as long as any sequence
    assert local("qwen2", sliding_window=8, use_sliding_window=True, max_window_layers=1) == (1,)
    assert local("qwen2", sliding_window=8, max_window_layers=1) == ()
    kinds = ["sliding_attention", "full_attention"]
    assert local("qwen2", sliding_window=8, use_sliding_window=True, layer_types=kinds) == (0,)
    assert local("gemma2") == (0, 2)
    assert local("gemma3") == (0, 1, 2, 3, 4)
    with pytest.raises(ModelFileError, match=r"'layer_types' must be 2 of sliding_attention, full_attention"):
        local("qwen2", sliding_window=8, use_sliding_window=True, layer_types=kinds[:1])


def test_layers_that_do_not_rotate(tmp_path: Path) -> None:
    tensors = folders.weights("smollm3")
    for changes, wanted in (
        ({}, (3,)),
        ({"no_rope_layer_interval": 2}, (1, 3)),
        ({"no_rope_layers": [0, 1, 1, 1]}, (0,)),
    ):
        file = HuggingFaceFolder(folders.write(tmp_path / "f", "smollm3", tensors, **changes))
        assert ModelConfig.from_gguf(file).unrotated == wanted


def test_the_text_of_a_model_of_several_parts(tmp_path: Path) -> None:
    """By either form of names; parts for images aren't read, and what is left out is so by default."""
    tensors = folders.weights("gemma3", heads=8, kv_heads=4)
    own = folders.to_folder("gemma3", tensors)
    left_out = ("num_attention_heads", "num_key_value_heads", "max_position_embeddings")
    text = {key: value for key, value in folders.config("gemma3").items() if key not in left_out}
    whole = folders.write(tmp_path / "f", "gemma3", tensors, num_attention_heads=8, num_key_value_heads=4)
    wanted = ModelConfig.from_gguf(HuggingFaceFolder(whole))
    for number, prefixes in enumerate((("language_model.", ""), ("model.language_model.", "model."))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
        named = {prefixes[0] + name.removeprefix(prefixes[1]): value for name, value in own.items()}
        images = {"vision_tower.x": np.zeros(4, "i4"), "model.multi_modal_projector.y": np.zeros(4, "f4")}
        write_safetensors(folder / "model.safetensors", named | images)
        file = HuggingFaceFolder(folder)
        config = ModelConfig.from_gguf(file)
        assert (config.context, config.rope_original) == (131072, 131072)
        found = config.numbers() | {"context": 256, "rope_original": 256}
        assert found == wanted.numbers()
        name = "blk.5.ffn_down.weight"
        np.testing.assert_array_equal(file.tensor(name), tensors[name])


def test_an_untied_head(tmp_path: Path) -> None:
    tensors = folders.weights("qwen3", tied=False)
    tied = ModelConfig.from_gguf(HuggingFaceFolder(folders.write(tmp_path / "a", "qwen3", tensors)))
    assert tied.head_weight == "token_embd.weight"  # whatever the files have beside it
    own = folders.write(tmp_path / "b", "qwen3", tensors, tie_word_embeddings=False)
    assert ModelConfig.from_gguf(HuggingFaceFolder(own)).head_weight == "output.weight"
    del tensors["output.weight"]
    with pytest.raises(ModelFileError, match=r"must be a tensor 'lm_head\.weight'"):
        HuggingFaceFolder(folders.write(tmp_path / "c", "qwen3", tensors, tie_word_embeddings=False))


REFUSED: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "family": ({"model_type": "qwen4"}, UnsupportedError, r"'model_type' 'qwen4' is not supported.*nearest is qwen"),
    "no family": ({"model_type": 3}, ModelFileError, r"'model_type' must be of type str, but is 3"),
    "bias": ({"attention_bias": True}, UnsupportedError, r"'attention_bias' = True"),
    "function": ({"hidden_act": "relu"}, UnsupportedError, r"'hidden_act' = 'relu' \(known are silu"),
    "quantised": ({"quantization_config": {"quant_method": "awq"}}, UnsupportedError, r"'quantization_config' = \{"),
    "rotations": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, UnsupportedError, r"'rope_type' 'dynamic'"),
    "factor": (
        {"rope_scaling": {"type": "linear", "factor": 0}},
        ModelFileError,
        r"'factor' must be a finite number ab",
    ),
    "scaling": ({"rope_scaling": [1]}, ModelFileError, r"'rope_parameters' must be an object"),
    "sizes": ({"hidden_size": -1}, ModelFileError, r"'hidden_size' must be an integer from 1 .* but is -1"),
    "flag": ({"tie_word_embeddings": "yes"}, ModelFileError, r"'tie_word_embeddings' must be true or false"),
    "layers": ({"num_hidden_layers": 3}, RlxError, r"missing tensors: blk\.2"),
    "fewer layers": ({"num_hidden_layers": 1}, UnsupportedError, r"has no use for these tensors.*blk\.1"),
    "width": ({"intermediate_size": 95}, RlxError, r"'blk\.0\.ffn_gate\.weight' must be \[95, 64\]"),
    "window": (
        {"sliding_window": "x", "model_type": "mistral"},
        ModelFileError,
        r"'sliding_window' must be an integer",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_named(tmp_path: Path, name: str) -> None:
    changes, error, message = REFUSED[name]
    folder = folders.write(tmp_path / "f", "llama", folders.weights("llama"), **changes)
    with pytest.raises(error, match=message) as caught:
        ModelConfig.from_gguf(HuggingFaceFolder(folder))
    assert str(folder) in str(caught.value)


def test_tensors_without_a_use_and_other_types(tmp_path: Path) -> None:
    tensors = folders.weights("llama")
    folder = folders.write(tmp_path / "f", "llama", tensors)
    own = folders.to_folder("llama", tensors)
    write_safetensors(folder / "model.safetensors", own | {"model.layers.0.self_attn.q_proj.bias": np.zeros(64, "f4")})
    config = ModelConfig.from_gguf
    with pytest.raises(UnsupportedError, match=r"no use for these tensors.*blk\.0\.attn_q\.bias"):
        config(HuggingFaceFolder(folder))
    write_safetensors(
        folder / "model.safetensors", own | {"model.other": np.zeros(4, "f4"), "lm_head.weight": np.zeros(4)}
    )
    with pytest.raises(
        UnsupportedError, match=r"'lm_head\.weight' is f64; supported are f32, f16, bf16; .*'model\.other'"
    ):
        HuggingFaceFolder(folder)
    write_safetensors(folder / "model.safetensors", own | {"model.rotary_emb.inv_freq": np.zeros(8, "f4")})
    config(HuggingFaceFolder(folder))  # follows from the configuration


def test_experts_must_fit_each_other(tmp_path: Path) -> None:
    tensors = folders.weights("qwen3moe")
    folder = folders.write(tmp_path / "f", "qwen3moe", tensors)
    own = folders.to_folder("qwen3moe", tensors)
    gone = "model.layers.0.mlp.experts.2.up_proj.weight"
    for changed in ({}, {gone: np.zeros((3, 64), "f4")}):
        write_safetensors(folder / "model.safetensors", {n: v for n, v in own.items() if n != gone} | changed)
        with pytest.raises(
            ModelFileError, match=r"'blk\.0\.ffn_up_exps\.weight' must be of experts 0, 1, … of one type"
        ):
            HuggingFaceFolder(folder)


def test_weights_in_pickles_are_not_read(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "f", "llama", folders.weights("llama"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelFileError, match=r"pytorch_model\.bin, which is there, isn't read"):
        HuggingFaceFolder(folder)


def test_damaged_files(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "f", "llama", folders.weights("llama"), shards=2)
    file = sorted(folder.glob("*.safetensors"))[0]
    content = file.read_bytes()
    for cut in (0, 4, 100, len(content) - 1):
        file.write_bytes(content[:cut])
        with pytest.raises(SafetensorsError):
            HuggingFaceFolder(folder)
    file.unlink()
    with pytest.raises(SafetensorsError, match="missing"):
        HuggingFaceFolder(folder)
    index = folder / "model.safetensors.index.json"
    index.write_text(re.sub(r"model-00001[^\"]*", "../model.safetensors", index.read_text()))
    with pytest.raises(ModelFileError, match="inside the folder"):
        HuggingFaceFolder(folder)
    (folder / "config.json").write_text('{"model_type": "llama", "model_type": "qwen2"}')
    with pytest.raises(ModelFileError, match="stands twice"):
        read_config(folder)


def test_a_header_of_any_length(tmp_path: Path) -> None:
    """Elements that don't begin at a multiple of their size are copied."""
    folder = folders.write(tmp_path / "f", "qwen2", folders.weights("qwen2"))
    wanted = {
        name: np.array(HuggingFaceFolder(folder).tensor(name)) for name in ("blk.0.attn_q.weight", "output_norm.weight")
    }
    path = folder / "model.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length])).encode()
    header += b" " * (len(header) % 2 == 0)
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
    file = HuggingFaceFolder(folder)
    for name, value in wanted.items():
        np.testing.assert_array_equal(file.tensor(name), value)


def test_a_closed_folder(tmp_path: Path) -> None:
    with HuggingFaceFolder(folders.write(tmp_path / "f", "qwen2", folders.weights("qwen2"))) as file:
        kept = file.tensor("blk.0.attn_q.weight")
        before = file.fingerprint()
        assert not kept.flags.writeable
        assert len(file.mappings) == len(file.paths) == len(file.statuses) == 1
    np.testing.assert_array_equal(kept, folders.weights("qwen2")["blk.0.attn_q.weight"])
    with pytest.raises(InputError, match="the folder is closed"):
        file.tensor("blk.0.attn_k.weight")
    other = folders.write(tmp_path / "g", "qwen2", folders.weights("qwen2", seed=1))
    assert HuggingFaceFolder(other).fingerprint() != before


def test_what_a_path_is(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"is a folder without a config\.json"):
        load_model(tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match="is an encoder, which makes vectors of texts: use load_encoder"):
        load_model(tmp_path / "empty")
