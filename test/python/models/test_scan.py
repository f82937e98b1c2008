# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mamba, Mamba 2 and models with their layers: states of selective scans in files and folders, sessions and engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import scan_models
import tiny_models
from interpreted import load_interpreted
from numpy_decoder import NumpyDecoder
from state_checks import cut_in_parts, gone_back, gone_on_behind_its_prompt, same_states, taken_at_once

from rlx_mlir.errors import GGUFError, ModelFileError, RlxError, UnsupportedError
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.models import decoder
from rlx_mlir.models.caches import cache_types, state_bytes
from rlx_mlir.models.channel_scan import ChannelScan
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.engine import Engine
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.programs import maxima
from rlx_mlir.models.scan import Scan

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 33)]
COMPILED = ("mamba2", "jamba", "falcon-h1")
"""With states alone, in groups; with rates for each number, beside layers of attention; with both in each layer."""


@pytest.fixture(scope="module", params=[*COMPILED[:2], pytest.param(COMPILED[2], marks=pytest.mark.wide)])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write(tmp_path_factory.mktemp("scan") / "m.gguf", architecture=request.param)


@pytest.fixture(scope="module")
def model(path: Path) -> Model:
    return load_model(path, context=64, chunk=16)


def config_of(tmp_path: Path, architecture: str, **changes: Any) -> ModelConfig:
    return ModelConfig.from_gguf(GGUFFile(tiny_models.write(tmp_path / "m.gguf", changes, architecture=architecture)))


def test_layers_have_caches_states_or_both(tmp_path: Path) -> None:
    """And those that are networks alone have neither."""
    names = ("mamba2", "granitehybrid", "falcon-h1", "nemotron_h", "jamba")
    found = {name: config_of(tmp_path, name) for name in names}
    jamba = found.pop("jamba")
    assert jamba.delta == ChannelScan(inner=128, rank=5, numbers=8, taps=4, layers=(0, 2, 3), eps=jamba.eps)
    assert (jamba.attentive, jamba.sparse, jamba.unrotated) == ((1,), (1, 3), (0, 1, 2, 3))
    assert list(cache_types(jamba)) == ["k_1", "v_1"]
    assert state_bytes(jamba) == 3 * 4 * (3 * 128 + 128 * 8)
    layers = {name: config.delta.layers for name, config in found.items() if isinstance(config.delta, Scan)}
    assert layers == {"mamba2": (0, 1, 2), "granitehybrid": (0, 2), "falcon-h1": (0, 1), "nemotron_h": (0, 3)}
    attentive = {name: config.attentive for name, config in found.items()}
    assert attentive == {"mamba2": (), "granitehybrid": (1,), "falcon-h1": (0, 1), "nemotron_h": (2,)}
    assert [found["nemotron_h"].is_network(layer) for layer in range(4)] == [False, True, False, False]
    assert [found["mamba2"].has_network(layer) for layer in range(3)] == [False] * 3
    assert found["falcon-h1"].unrotated == ()
    assert found["nemotron_h"].unrotated == (0, 1, 2, 3)
    assert list(cache_types(found["granitehybrid"])) == ["k_1", "v_1"]
    config = found["mamba2"]
    assert config.delta == Scan(inner=128, heads=8, groups=2, numbers=16, taps=4, layers=(0, 1, 2))
    assert state_bytes(config) == 3 * 4 * (3 * (128 + 2 * 2 * 16) + 128 * 16)
    assert maxima(config, "decode", context=64, chunk=16) == {}
    assert decoder.modules_of(config) == ("prefill", "decode", "batch", "extend", "settle")


@pytest.mark.parametrize("architecture", [*scan_models.SIZES])
@pytest.mark.quick(2)
def test_compiled_equals_numpy(tmp_path: Path, architecture: str) -> None:
    path = tiny_models.write(tmp_path / "m.gguf", architecture=architecture)
    exact = load_model(path, context=64, chunk=16, activations="exact")
    wanted = NumpyDecoder(GGUFFile(path)).logits(IDS)
    np.testing.assert_allclose(exact.logits(IDS), wanted, rtol=5e-4, atol=5e-4)
    session = exact.session()
    rows = [session.step(token) for token in IDS]
    np.testing.assert_allclose(np.stack(rows), wanted, rtol=5e-4, atol=5e-4)


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


def test_others_are_refused_and_forks_are_apart(model: Model) -> None:
    session = model.session()
    session.feed(IDS[:9])
    with pytest.raises(UnsupportedError, match="tokens"):
        session.truncate(5)
    other = session.fork()
    session.step(1)
    again = model.session()
    again.feed(IDS[:9])
    np.testing.assert_array_equal(other.step(5), again.step(5))


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


def test_tokens_that_may_go_are_saved_as_those_that_stay(model: Model, tmp_path: Path) -> None:
    """Of tokens that were processed at once, as many as a session was cut to."""
    session, single = model.session(), model.session()
    session.feed(IDS[:5])
    session.extend(IDS[5:13])
    session.truncate(8)
    session.save(tmp_path / "s")
    single.feed(IDS[:5])
    for token in IDS[5:8]:
        single.step(token)
    again = model.restore(tmp_path / "s")
    assert list(again.tokens) == IDS[:8]
    same_states(again, single)
    np.testing.assert_array_equal(again.step(9), single.step(9))


def test_conversations_go_on_behind_their_prompt(model: Model) -> None:
    """Parts of prompts aren't kept where states are of the whole; what begins with that is processed from there."""
    assert model.prefixes is None
    gone_on_behind_its_prompt(model, IDS)


def test_rows_of_engines_are_taken_by_others(model: Model) -> None:
    """With their states: prompts of other lengths, texts that end at other times."""
    options: dict[str, Any] = {"temperature": 1.1, "ignore_eos": True}
    prompts = [IDS[:3], IDS[3:20], IDS[5:6], IDS[10:], IDS[2:4]]
    with Engine(model, sequences=2) as engine:
        lengths = [3 + 2 * seed for seed in range(5)]
        requests = [
            engine.add(prompt, seed=seed, max_tokens=lengths[seed], **options) for seed, prompt in enumerate(prompts)
        ]
        found = [request.read() for request in requests]
    for seed, (prompt, text) in enumerate(zip(prompts, found, strict=True)):
        assert model.generate(prompt, seed=seed, max_tokens=lengths[seed], **options).read() == text


@pytest.mark.wide
def test_bundles_have_all_modules(model: Model, tmp_path: Path) -> None:
    """Those of states alone are for any number of positions."""
    report = model.save_bundle(tmp_path / "m.rlx")
    assert set(report.modules) == set(decoder.modules_of(model.config))
    options: dict[str, Any] = {"greedy": True, "max_tokens": 12, "ignore_eos": True}
    loaded = load_model(tmp_path / "m.rlx")
    assert loaded.generate(IDS[:9], **options).read() == model.generate(IDS[:9], **options).read()


def test_heads_that_do_not_decay(tmp_path: Path) -> None:
    """And others at rates from very slow to at once."""
    tensors = tiny_models.tensors(architecture="mamba2")
    for layer in range(3):
        tensors[f"blk.{layer}.ssm_a"][:5, 0] = [0, -1e-30, -1e-6, -50, -1e4]
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata("mamba2"), tensors)
    found = load_model(path, context=64, chunk=16, activations="exact").logits(IDS)
    np.testing.assert_allclose(found, NumpyDecoder(GGUFFile(path)).logits(IDS), rtol=5e-4, atol=5e-4)


@pytest.mark.wide
def test_steps_have_limits(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "f", "mamba2", folders.weights("mamba2"), time_step_limit=[0.3, 0.9])
    config = ModelConfig.from_gguf(HuggingFaceFolder(folder))
    assert isinstance(config.delta, Scan)
    assert (config.delta.least, config.delta.most) == (0.3, 0.9)
    path = tiny_models.write(
        tmp_path / "m.gguf", {"ssm__step_least": 0.3, "ssm__step_most": 0.9}, architecture="mamba2"
    )
    found = load_model(path, context=64, chunk=16, activations="exact").logits(IDS)
    np.testing.assert_allclose(found, NumpyDecoder(GGUFFile(path)).logits(IDS), rtol=5e-4, atol=5e-4)


WRONG: dict[str, tuple[str, dict[str, Any], type[RlxError], str]] = {
    "heads": ("mamba2", {"ssm__time_step_rank": 6}, GGUFError, r"ssm.inner_size' must be a multiple of the heads, 6"),
    "groups": (
        "mamba2",
        {"ssm__group_count": 3},
        GGUFError,
        r"ssm.time_step_rank' must be a multiple of the groups, 3",
    ),
    "taps": ("mamba2", {"ssm__conv_kernel": 1}, GGUFError, r"ssm.conv_kernel' must be at least 2, but is 1"),
    "taps of channels": ("mamba", {"ssm__conv_kernel": 1}, GGUFError, r"conv_kernel' must be at least 2, but is 1"),
    "no rank": ("jamba", {"ssm__time_step_rank": None}, GGUFError, r"'jamba.ssm.time_step_rank' must be there"),
    "norms": ("mamba", {"ssm__dt_b_c_rms": 1}, GGUFError, r"ssm.dt_b_c_rms' must be true or false, but is 1"),
    "experts": ("jamba", {"expert_used_count": 5}, GGUFError, r"must be at most the number of experts, 4, but is 5"),
    "no sizes": ("mamba2", {"ssm__state_size": None}, GGUFError, r"'mamba2.ssm.state_size' must be there"),
    "steps": ("mamba2", {"ssm__step_least": 2.0, "ssm__step_most": 1.0}, GGUFError, r"at least .*, 2.0, but is 1.0"),
    "widths": (
        "nemotron_h",
        {"feed_forward_length": 96},
        GGUFError,
        r"feed_forward_length' must be an array of 4 numbers, one in all layers that are networks, and 0 in others",
    ),
    "two kinds": (
        "nemotron_h",
        {"feed_forward_length": np.array([0, 96, 96, 0], np.int32)},
        GGUFError,
        r"feed_forward_length' must be 0 in layers with heads of keys and values, but is 'above 0 in \[2\]'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_can_not_be(tmp_path: Path, name: str) -> None:
    architecture, changes, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        config_of(tmp_path, architecture, **changes)


FOLDERS: dict[str, tuple[str, dict[str, Any], type[RlxError], str]] = {
    "biases": ("mamba2", {"use_bias": True}, UnsupportedError, r"'use_bias' = True"),
    "limits": ("mamba2", {"time_step_limit": [1.0, 0.5]}, ModelFileError, r"'time_step_limit' must be a least and a"),
    "norms": ("falcon-h1", {"mamba_rms_norm": True}, UnsupportedError, r"'mamba_norm_before_gate' must be false"),
    "factors": ("falcon-h1", {"ssm_multipliers": [1.0]}, ModelFileError, r"'ssm_multipliers' must be a list of 5"),
    "latents": ("nemotron_h_moe", {"moe_latent_size": 16}, UnsupportedError, r"'moe_latent_size' = 16"),
    "indices": ("bamba", {"attn_layer_indices": [3]}, ModelFileError, r"'attn_layer_indices' must be a list of .* 3"),
    "offset": ("jamba", {"attn_layer_offset": 4}, ModelFileError, r"'attn_layer_offset' must be below .*, 4, but is 4"),
    "biases of channels": ("mamba", {"use_bias": True}, UnsupportedError, r"'use_bias' = True"),
    "biases of Jamba": ("jamba", {"mamba_proj_bias": True}, UnsupportedError, r"'mamba_proj_bias' = True"),
    "kinds": ("nemotron_h", {"layers_block_type": ["rwkv"] * 4}, ModelFileError, r"'layer_types' must be 4 of mamba"),
    "no kinds": ("nemotron_h", {"layers_block_type": None}, ModelFileError, r"'layers_block_type' must be a list of"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_that_can_not_be(tmp_path: Path, name: str) -> None:
    architecture, changes, error, message = FOLDERS[name]
    folder = folders.write(tmp_path / "f", architecture, folders.weights(architecture), **changes)
    with pytest.raises(error, match=message):
        HuggingFaceFolder(folder)


def test_networks_beside_experts_are_as_wide(tmp_path: Path) -> None:
    """In folders and files of Nemotron-H; the error gives both widths."""
    tensors = folders.weights("nemotron_h_moe")
    kinds = {"layers_block_type": ["linear_attention", "mlp", "full_attention", "moe"]}
    folder = HuggingFaceFolder(folders.write(tmp_path / "f", "nemotron_h_moe", tensors, **kinds))
    with pytest.raises(GGUFError, match=r"one in all layers that are networks.* but is \[0, 96, 0, 32\]"):
        ModelConfig.from_gguf(folder)


def test_layers_may_be_letters(tmp_path: Path) -> None:
    tensors = folders.weights("nemotron_h")
    letters = {"layers_block_type": None, "hybrid_override_pattern": "M-*M"}
    config = ModelConfig.from_gguf(HuggingFaceFolder(folders.write(tmp_path / "f", "nemotron_h", tensors, **letters)))
    assert (config.attentive, config.networks) == ((2,), (1,))
    tensors, letters = folders.weights("nemotron_h_moe"), {**letters, "hybrid_override_pattern": "ME*E"}
    folder = folders.write(tmp_path / "g", "nemotron_h_moe", tensors, **letters)
    config = ModelConfig.from_gguf(HuggingFaceFolder(folder))
    assert (config.architecture, config.networks, config.sparse) == ("nemotron_h_moe", (1, 3), (1, 3))


def test_norms_of_channels_have_an_eps_of_their_own(tmp_path: Path) -> None:
    """That of Falcon-Mamba's folders, which files lack."""
    tensors = folders.weights("falcon-mamba")
    own = ModelConfig.from_gguf(HuggingFaceFolder(folders.write(tmp_path / "f", "falcon-mamba", tensors)))
    other = folders.write(tmp_path / "g", "falcon-mamba", tensors, mixer_rms_eps=0.5)
    config = ModelConfig.from_gguf(HuggingFaceFolder(other))
    assert isinstance(own.delta, ChannelScan)
    assert isinstance(config.delta, ChannelScan)
    assert (own.delta.eps, config.delta.eps, config.eps) == (1e-5, 0.5, 1e-5)
    file = config_of(tmp_path, "falcon-mamba")
    assert isinstance(file.delta, ChannelScan)
    assert file.delta.eps == file.eps


def test_rates_may_be_far_apart(tmp_path: Path) -> None:
    """Of the numbers of one state: from none to at once."""
    tensors = tiny_models.tensors(architecture="mamba")
    for layer in range(3):
        tensors[f"blk.{layer}.ssm_a"][:, :5] = [0, -1e-30, -1e-6, -50, -1e4]
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata("mamba"), tensors)
    found = load_interpreted(path).logits(IDS)
    np.testing.assert_allclose(found, NumpyDecoder(GGUFFile(path)).logits(IDS), rtol=5e-4, atol=5e-4)


@pytest.mark.parametrize(
    ("name", "shape", "rule"),
    [
        ("conv1d.weight", (192, 2, 4), r"\[channels, 1, taps\]"),
        ("A_log", (8, 1), r"\[heads\]"),
        ("norm.weight", (127,), "a multiple of 2 groups"),
    ],
)
def test_shapes_of_folders(tmp_path: Path, name: str, shape: tuple[int, ...], rule: str) -> None:
    tensors = folders.weights("mamba2")
    folder, own = folders.write(tmp_path / "f", "mamba2", tensors), folders.to_folder("mamba2", tensors)
    own[f"backbone.layers.0.mixer.{name}"] = np.zeros(shape, np.float32)
    write_safetensors(folder / "model.safetensors", own)
    with pytest.raises(ModelFileError, match=rf"must be {rule}, but is"):
        HuggingFaceFolder(folder)
