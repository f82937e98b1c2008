# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gemma 3n: layers that change several streams, and read keys and values of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import stream_models
import tiny_models
from interpreted import load_interpreted
from state_checks import cut_in_parts, taken_at_once

from rlx_mlir.errors import GGUFError, ModelFileError, RlxError, UnsupportedError
from rlx_mlir.finetuning.graph import LossGraph
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.models.caches import cache_types
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 33)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write(tmp_path_factory.mktemp("streams") / "m.gguf", architecture="gemma3n")


@pytest.fixture(scope="module")
def model(path: Path) -> Model:
    return load_model(path, context=64, chunk=16)


def config_of(tmp_path: Path, **changes: Any) -> ModelConfig:
    return ModelConfig.from_gguf(GGUFFile(tiny_models.write(tmp_path / "m.gguf", changes, architecture="gemma3n")))


def test_layers_read_keys_of_those_that_see_as_much(tmp_path: Path) -> None:
    """And have no caches of their own."""
    config = config_of(tmp_path)
    assert config.streams is not None
    assert config.streams.sources == stream_models.SOURCES == (0, 1, 2, 2, 1)
    assert list(cache_types(config)) == ["k_0", "v_0", "k_1", "v_1", "k_2", "v_2"]
    assert [config.is_network(layer) for layer in range(5)] == [False] * 5
    assert "blk.2.attn_k.weight" in config.weights
    assert not {f"blk.3.{name}.weight" for name in ("attn_k", "attn_v", "attn_k_norm")} & {*config.weights}
    assert [cutoff is None for cutoff in config.streams.cutoffs] == [False, True, True, False, True]
    none = config_of(tmp_path, attention__shared_kv_layers=0, activation_sparsity_scale=None).streams
    assert none is not None
    assert (none.sources, none.cutoffs) == ((0, 1, 2, 3, 4), (None,) * 5)


def test_files_may_lack_what_is_not_read(tmp_path: Path, path: Path) -> None:
    """Keys and values of layers that read those of others: the same logits."""
    tensors = tiny_models.tensors(architecture="gemma3n")
    kept = {
        name: value
        for name, value in tensors.items()
        if not name.startswith(("blk.3.attn_k", "blk.3.attn_v", "blk.4.attn_k", "blk.4.attn_v"))
    }
    assert len(kept) == len(tensors) - 6
    other = write_gguf(tmp_path / "m.gguf", tiny_models.metadata("gemma3n"), kept)
    np.testing.assert_array_equal(load_interpreted(other).logits(IDS[:9]), load_interpreted(path).logits(IDS[:9]))


@pytest.mark.parametrize("cuts", [[4, 1], [1, 16, 16]], ids=str)
def test_a_prompt_has_the_same_bits_wherever_it_is_cut(model: Model, cuts: list[int]) -> None:
    cut_in_parts(model, IDS, cuts)


def test_tokens_at_once_have_the_bits_of_single_ones(model: Model) -> None:
    taken_at_once(model, IDS, 8)


def test_texts_are_the_same_beside_others(model: Model) -> None:
    options: dict[str, Any] = {"temperature": 1.5, "max_tokens": 6, "ignore_eos": True}
    prompts = [IDS[:1], IDS[:7], IDS]
    alone = [model.generate(prompt, seed=seed, **options).read() for seed, prompt in enumerate(prompts)]
    assert [found.text for found in model.generate_many(prompts, seed=0, **options)] == alone


def test_sessions_are_cut_and_kept(model: Model, tmp_path: Path) -> None:
    session, again = model.session(), model.session()
    session.feed(IDS[:12])
    session.truncate(9)
    again.feed(IDS[:9])
    wanted = again.step(5)
    session.save(tmp_path / "s")
    np.testing.assert_array_equal(session.step(5), wanted)
    np.testing.assert_array_equal(model.restore(tmp_path / "s").step(5), wanted)


def test_whole_sequences_are_refused(path: Path) -> None:
    """Training would need keys and values that layers leave to others."""
    config = ModelConfig.from_gguf(GGUFFile(path))
    with pytest.raises(UnsupportedError, match=r"layers of 'gemma3n' change several streams"):
        LossGraph(config, 1, 8, {}, {}).build()


WRONG: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "all shared": ({"attention__shared_kv_layers": 5}, GGUFError, "must be so few that a layer of each kind.* is 5"),
    "no global one": ({"attention__shared_kv_layers": 4}, GGUFError, "must be so few that a layer of each kind"),
    "no streams": ({"altup__num_inputs": None}, GGUFError, r"'gemma3n.altup.num_inputs' must be there"),
    "one stream": ({"altup__num_inputs": 1}, GGUFError, r"altup.num_inputs' must be an integer from 2"),
    "another one is read": ({"altup__active_idx": 1}, UnsupportedError, r"'gemma3n.altup.active_idx' = 1"),
    "cutoffs": (
        {"activation_sparsity_scale": np.zeros(4, np.float32)},
        GGUFError,
        r"must be an array of 5 numbers, one for each layer, but is \[0.0, 0.0, 0.0, 0.0\]",
    ),
    "cutoff": (
        {"activation_sparsity_scale": np.array([0, 0, 0, 0, np.nan], np.float32)},
        GGUFError,
        "must be numbers, or minus infinity where nothing is cut off, but is",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_can_not_be(tmp_path: Path, name: str) -> None:
    changes, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        config_of(tmp_path, **changes)


FOLDERS: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "widths": (
        {"intermediate_size": [96, 96, 64, 96, 96]},
        ModelFileError,
        r"'intermediate_size' must be the same number for all layers, but is \[96, 96, 64",
    ),
    "shares": (
        {"activation_sparsity_pattern": [0.9]},
        ModelFileError,
        r"must be 5 numbers from 0 to less than 1, one for each layer, but is \[0.9\]",
    ),
    "share": ({"activation_sparsity_pattern": 1.0}, ModelFileError, "must be 5 numbers from 0 to less than 1"),
    "scale": ({"altup_correct_scale": False}, UnsupportedError, r"'altup_correct_scale' = False"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_that_can_not_be(tmp_path: Path, name: str) -> None:
    changes, error, message = FOLDERS[name]
    folder = folders.write(tmp_path / "f", "gemma3n", folders.weights("gemma3n"), **changes)
    with pytest.raises(error, match=message):
        HuggingFaceFolder(folder)


def test_shares_that_no_key_says(tmp_path: Path) -> None:
    """Of models of more than ten layers, ten have one."""
    tensors = folders.weights("gemma3n")
    for share, wanted in ((None, [None] * 5), (0.5, [0.0] * 5)):
        folder = folders.write(tmp_path / str(share), "gemma3n", tensors, activation_sparsity_pattern=share)
        streams = ModelConfig.from_gguf(HuggingFaceFolder(folder)).streams
        assert streams is not None
        assert list(streams.cutoffs) == wanted
