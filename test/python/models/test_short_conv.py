# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LFM2: layers whose past is the last rows of a short convolution, in files and folders, sessions and engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import tiny_models
from numpy_decoder import NumpyDecoder
from state_checks import cut_in_parts, gone_back, same_states, taken_at_once

from rlx_mlir.errors import GGUFError, ModelFileError, RlxError, UnsupportedError
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.models import decoder
from rlx_mlir.models.caches import cache_types, state_bytes
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.short_conv import ShortConv

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 33)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write(tmp_path_factory.mktemp("lfm2") / "m.gguf", architecture="lfm2")


@pytest.fixture(scope="module")
def model(path: Path) -> Model:
    return load_model(path, context=64, chunk=16)


def test_layers_have_caches_or_states(path: Path) -> None:
    config = ModelConfig.from_gguf(GGUFFile(path))
    assert config.delta == ShortConv(channels=64, taps=3, layers=(0, 2, 3))
    assert (config.kv_heads, config.attentive, list(cache_types(config))) == (2, (1,), ["k_1", "v_1"])
    assert config.delta.states() == {f"conv_{layer}": (2, 64) for layer in (0, 2, 3)}
    assert state_bytes(config) == 3 * 4 * 2 * 64
    assert decoder.modules_of(config) == ("prefill", "decode", "batch", "extend", "settle")
    assert not decoder.build(config, "settle").params


def test_compiled_equals_numpy(path: Path) -> None:
    exact = load_model(path, context=64, chunk=16, activations="exact")
    np.testing.assert_allclose(exact.logits(IDS), NumpyDecoder(GGUFFile(path)).logits(IDS), rtol=5e-4, atol=5e-4)


@pytest.mark.parametrize("cuts", [[1] * 5, [4, 1], [1, 16, 16], [2, 31]], ids=str)
def test_a_prompt_has_the_same_bits_wherever_it_is_cut(model: Model, cuts: list[int]) -> None:
    """Also in parts that are shorter than what a channel sees."""
    whole, parts = cut_in_parts(model, IDS, cuts)
    same_states(whole, parts)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9])
def test_tokens_at_once_have_the_bits_of_single_ones(model: Model, count: int) -> None:
    one, many = taken_at_once(model, IDS, count)
    same_states(one, many)


@pytest.mark.parametrize("kept", [0, 1, 2, 7, 8])
def test_states_go_back_to_any_token_that_was_processed_at_once(model: Model, kept: int) -> None:
    gone_back(model, IDS, kept)


@pytest.mark.wide
def test_texts_are_the_same_beside_others_and_with_proposals(model: Model) -> None:
    options: dict[str, Any] = {"temperature": 1.5, "max_tokens": 12, "ignore_eos": True}
    prompts = [IDS[:1], IDS[:7], IDS]
    alone = [model.generate(prompt, seed=seed, **options).read() for seed, prompt in enumerate(prompts)]
    assert [found.text for found in model.generate_many(prompts, seed=0, **options)] == alone
    for seed, prompt in enumerate(prompts):
        assert model.generate(prompt, seed=seed, draft="lookup", **options).read() == alone[seed]


def test_sessions_are_kept(model: Model, tmp_path: Path) -> None:
    session = model.session()
    session.feed(IDS[:9])
    session.save(tmp_path / "s")
    again = model.restore(tmp_path / "s")
    np.testing.assert_array_equal(again.step(5), session.step(5))
    same_states(again, session)


@pytest.mark.wide
def test_the_last_norm_has_another_name_in_files(tmp_path: Path, path: Path) -> None:
    """Numbers of it that aren't finite are found and replaced, and folders are quantised on the way."""
    tensors = tiny_models.tensors(architecture="lfm2")
    tensors["token_embd_norm.weight"][3] = np.nan
    broken = write_gguf(tmp_path / "m.gguf", tiny_models.metadata("lfm2"), tensors)
    with pytest.raises(GGUFError, match=r"tensor 'token_embd_norm\.weight'"):
        load_model(broken, context=64, chunk=16)
    tensors["token_embd_norm.weight"][3] = 0
    zero = write_gguf(tmp_path / "z.gguf", tiny_models.metadata("lfm2"), tensors)
    found, wanted = (load_model(each, context=64, chunk=16, nonfinite="zero").logits(IDS) for each in (broken, zero))
    np.testing.assert_array_equal(found, wanted)
    folder = folders.write(tmp_path / "f", "lfm2", folders.weights("lfm2"))
    quantised = load_model(folder, context=64, chunk=16, quantize="q8_0").logits(IDS)
    plain = load_model(folder, context=64, chunk=16).logits(IDS)
    np.testing.assert_allclose(quantised, plain, atol=0.1 * float(np.abs(plain).max()))


HEADS = "attention__head_count_kv"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too few": ({HEADS: np.array([0, 2], np.int32)}, r"an array of 4 numbers, one for each layer, but is '2 numbers'"),
    "several": ({HEADS: np.array([0, 2, 1, 0], np.int32)}, r"must be one number above 0 .* but is \[0, 2, 1, 0\]"),
    "none": ({HEADS: np.zeros(4, np.int32)}, r"must be one number above 0 in all layers that have attention"),
    "negative": ({HEADS: np.array([0, -2, 0, 0], np.int32)}, r"must be one number above 0 in all layers"),
    "no taps": ({"shortconv__l_cache": None}, r"'lfm2.shortconv.l_cache' must be there"),
    "one tap": ({"shortconv__l_cache": 1}, r"'lfm2.shortconv.l_cache' must be an integer from 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_can_not_be(tmp_path: Path, name: str) -> None:
    changes, message = WRONG[name]
    with pytest.raises(GGUFError, match=message):
        ModelConfig.from_gguf(GGUFFile(tiny_models.write(tmp_path / "m.gguf", changes, architecture="lfm2")))


def test_widths_of_networks_in_folders(tmp_path: Path) -> None:
    """Two thirds of what is said, times a factor, up to a multiple, unless that is turned off."""
    tensors = folders.weights("lfm2")
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 96),
        ({"block_ff_dim": 80}, 80),
        ({"block_auto_adjust_ff_dim": True, "block_multiple_of": 16}, 64),
        ({"block_auto_adjust_ff_dim": True, "block_multiple_of": 16, "block_ffn_dim_multiplier": 1.5}, 96),
        ({"block_auto_adjust_ff_dim": True, "block_multiple_of": 40}, 80),
    ]
    for changes, width in cases:
        folder = folders.write(tmp_path / "f", "lfm2", tensors, **changes)
        assert HuggingFaceFolder(folder).metadata["lfm2.feed_forward_length"] == width


FOLDERS: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "biases": ({"conv_bias": True}, UnsupportedError, r"'conv_bias' = True"),
    "kinds": (
        {"layer_types": ["conv", "mamba"] * 2},
        ModelFileError,
        r"'layer_types' must be 4 of conv, full_attention",
    ),
    "no kinds": (
        {"layer_types": None},
        ModelFileError,
        r"'full_attn_idxs' must be a list of layers below 4, but is None",
    ),
    "numbers": ({"layer_types": None, "full_attn_idxs": [4]}, ModelFileError, r"'full_attn_idxs' must be a list of"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_that_can_not_be(tmp_path: Path, name: str) -> None:
    changes, error, message = FOLDERS[name]
    folder = folders.write(tmp_path / "f", "lfm2", folders.weights("lfm2"), **changes)
    with pytest.raises(error, match=message):
        HuggingFaceFolder(folder)


def test_taps_of_folders_are_of_single_channels(tmp_path: Path) -> None:
    tensors = folders.weights("lfm2")
    folder = folders.write(tmp_path / "f", "lfm2", tensors, layer_types=None, full_attn_idxs=[1])
    found = ModelConfig.from_gguf(HuggingFaceFolder(folder)).delta
    assert found == ShortConv(channels=64, taps=3, layers=(0, 2, 3))
    own = folders.to_folder("lfm2", tensors)
    name = "model.layers.0.conv.conv.weight"
    write_safetensors(folder / "model.safetensors", {**own, name: own[name].repeat(2, axis=1)})
    with pytest.raises(ModelFileError, match=rf"'{name}' must be \[channels, 1, taps\], but is \[64, 2, 3\]"):
        HuggingFaceFolder(folder)
