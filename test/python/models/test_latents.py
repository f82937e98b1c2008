# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose keys and values are made of latents: their one cache, how experts are chosen, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import tiny_models
from interpreted import load_interpreted
from numpy_decoder import NumpyDecoder

from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import GGUFError, InputError, ModelFileError, RlxError, UnsupportedError
from rlx_mlir.formats import decode, encode
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.models.adapter import new_adapter
from rlx_mlir.models.caches import bytes_per_token, cache_types
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.description import describe_file
from rlx_mlir.models.latent import Latent
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.older_latents import OlderLatents
from rlx_mlir.models.opening import open_model
from rlx_mlir.models.router import route
from rlx_mlir.models.routing import Routing
from rlx_mlir.quantizing import quantize

IDS = [int(i) for i in np.random.default_rng(7).integers(3, 290, 20)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write(tmp_path_factory.mktemp("latents") / "m.gguf", architecture="deepseek3")


def read(tmp_path: Path, architecture: str = "deepseek3", **changes: Any) -> ModelConfig:
    path = tiny_models.write(tmp_path / "m.gguf", changes, architecture=architecture)
    return ModelConfig.from_gguf(GGUFFile(path))


def test_a_layer_has_one_cache(path: Path) -> None:
    """Of 64 elements of the latent and 32 of what rotates, in place of 4 heads of 64 and 16."""
    config = ModelConfig.from_gguf(GGUFFile(path))
    assert config.latent == Latent(rank=64, query_rank=32, plain=32, rotated=32, value=16)
    types = cache_types(config)
    assert list(types) == ["k_0", "k_1", "k_2"]
    assert {type.width for type in types.values()} == {96}
    assert bytes_per_token(config) == 3 * 96 * 4 < 3 * 4 * (64 + 16) * 4
    session = load_interpreted(path).session()
    session.feed(IDS)
    assert {name: rows.shape for name, rows in session.rows(5).items()} == dict.fromkeys(types, (5, 96))


def test_both_are_of_one_type(path: Path) -> None:
    for kv_dtype in ("q8_0/q4_0", "f16/f32"):
        with pytest.raises(InputError, match=rf"'kv_dtype' must be one type where .* latents, but is '{kv_dtype}'"):
            load_model(path, kv_dtype=kv_dtype)


def test_saved_sessions_go_on(path: Path, tmp_path: Path) -> None:
    model = load_interpreted(path)
    session = model.session()
    session.feed(IDS)
    session.save(tmp_path / "a.session")
    restored = model.restore(tmp_path / "a.session")
    np.testing.assert_array_equal(restored.step(7), session.step(7))


def test_prompts_that_begin_alike_are_processed_once(path: Path) -> None:
    model = load_interpreted(path)
    options: dict[str, Any] = {"greedy": True, "max_tokens": 2, "ignore_eos": True}
    model.generate([*IDS, 5], **options).read()
    found = model.generate([*IDS, 6, 7], **options)
    found.read()
    assert model.stats.reused_tokens == len(IDS)
    model.forget()
    again = model.generate([*IDS, 6, 7], **options)
    again.read()
    assert (model.stats.reused_tokens, again.ids) == (0, found.ids)


# Experts -------------------------------------------------------------------------------------------

ROUTINGS = {
    "softmax": (Routing(), False, False),
    "softmax-groups": (Routing("softmax", 3, 2, 16.0), False, False),
    "sigmoid": (Routing("sigmoid", scale=2.5), True, True),
    "sigmoid-groups": (Routing("sigmoid", 4, 2), True, True),
    "groups-of-one": (Routing("sigmoid", 12, 5), True, False),
}


def chosen(routing: Routing, scores: np.ndarray, bias: np.ndarray, used: int) -> list[int]:
    """The experts of a token, the best first, by trying all."""
    wanted = list(scores + bias)
    size = len(wanted) // routing.groups
    parts = [wanted[i : i + size] for i in range(0, len(wanted), size)]
    best = [sum(sorted(part)[-2:]) if routing.scores == "sigmoid" else max(part) for part in parts]
    kept = sorted(range(len(parts)), key=lambda i: -best[i])[: routing.groups_used]
    return sorted((i for i in range(len(wanted)) if i // size in kept), key=lambda i: -wanted[i])[:used]


@pytest.mark.parametrize("tokens", [0, 1, 7])
@pytest.mark.parametrize("name", ROUTINGS)
def test_experts_are_chosen_as_numpy_chooses(name: str, tokens: int) -> None:
    routing, biased, normalised = ROUTINGS[name]
    random, used = np.random.default_rng(tokens), 4
    products = random.standard_normal((tokens, 12)).astype(np.float32)
    bias = random.uniform(-1, 1, 12).astype(np.float32) if biased else np.zeros(12, np.float32)
    graph = GraphModule.hir("route")
    x, b = graph.input("x", ["t", 12], "f32"), graph.input("b", [12], "f32")
    weights, experts = route(graph, routing, x, b if biased else None, used=used, normalised=normalised)
    graph.set_outputs({"weights": weights, "experts": experts, "b": graph.add(b, 1.0)})
    found = interpret(graph, {"x": products, "b": bias})
    assert found["weights"].shape == found["experts"].shape == (tokens, used)
    for i, row in enumerate(products.astype(np.float64)):
        scores = np.exp(row) / np.exp(row).sum() if routing.scores == "softmax" else 1 / (1 + np.exp(-row))
        own = chosen(routing, scores, bias, used)
        assert found["experts"][i].tolist() == own
        total = scores[own].sum() if normalised else 1.0
        np.testing.assert_allclose(found["weights"][i], scores[own] / total * routing.scale, rtol=1e-5)


# Older files ---------------------------------------------------------------------------------------


def older(tmp_path: Path, kind: str = "f32", **changes: Any) -> tuple[Path, Path]:
    """A file of today, and one from before latents were cached: rows of keys and values of each head in one matrix."""
    rows = dict.fromkeys(("attn_k_b", "attn_v_b"), "f32")
    tensors = tiny_models.tensors(rows, architecture="deepseek3")
    now = write_gguf(tmp_path / "now.gguf", tiny_models.metadata("deepseek3"), tensors)
    own: dict[str, Any] = {}
    for name, value in tensors.items():
        if name.endswith("attn_k_b.weight"):
            both = np.concatenate([value.swapaxes(1, 2), tensors[name.replace("k_b", "v_b")]], axis=1)
            flat = both.reshape(-1, both.shape[-1])
            stored = flat if kind == "f32" else (kind, encode(kind, flat), flat.shape)
            own[name.replace("k_b", "kv_b")] = stored
        elif not name.endswith("attn_v_b.weight"):
            own[name] = value
    widths = {"attention__key_length": 64, "attention__value_length": 16, "attention__head_count_kv": 4}
    missing = {"attention__key_length_mla": None, "attention__value_length_mla": None}
    metadata = tiny_models.metadata("deepseek3", **{**widths, **missing, **changes})
    return write_gguf(tmp_path / "then.gguf", metadata, own), now


def test_older_files_have_the_logits_of_those_of_today(tmp_path: Path) -> None:
    then, now = older(tmp_path)
    with open_model(then) as file, open_model(now) as wanted:
        assert isinstance(file, OlderLatents)
        assert file.tensors.keys() == wanted.tensors.keys()
        for name in wanted.tensors:
            np.testing.assert_array_equal(file.dequantize(name), wanted.dequantize(name), err_msg=name)
        assert ModelConfig.from_gguf(file).numbers() == ModelConfig.from_gguf(wanted).numbers()
        assert len(file.metadata) == len(list(file.metadata)) == len(wanted.metadata)
    np.testing.assert_array_equal(load_interpreted(then).logits(IDS), load_interpreted(now).logits(IDS))


@pytest.mark.wide
def test_blocks_of_older_files_are_kept_where_they_can_be(tmp_path: Path) -> None:
    """Rows of values have the same bytes; what is turned has the same numbers."""
    then, now = older(tmp_path, "q8_0")
    with open_model(then) as file, open_model(now) as wanted:
        for layer in range(3):
            keys, values = (f"blk.{layer}.attn_{word}_b.weight" for word in "kv")
            assert (file.info(keys).type, file.info(values).type) == ("f32", "q8_0")
            rows = wanted.dequantize(values).reshape(-1, 64)
            np.testing.assert_array_equal(file.tensor(values), encode("q8_0", rows))
            turned = wanted.dequantize(keys).swapaxes(1, 2).reshape(-1, 64)
            rounded = decode("q8_0", encode("q8_0", turned), 64).reshape(4, 32, 64).swapaxes(1, 2)
            np.testing.assert_array_equal(file.dequantize(keys), rounded)
    options: dict[str, Any] = {"activations": "exact", "context": 32, "chunk": 16}
    found, exact = load_model(then, **options).logits(IDS), load_model(now, **options).logits(IDS)
    assert 0 < np.abs(found - exact).max() < 0.1 * np.abs(exact).max()


def test_older_files_become_files_of_today(tmp_path: Path) -> None:
    then, now = older(tmp_path)
    quantize(then, tmp_path / "q.gguf", "f16")
    with GGUFFile(tmp_path / "q.gguf") as found, GGUFFile(now) as wanted:
        assert found.tensors.keys() == wanted.tensors.keys()
        for key in ("key_length", "value_length", "key_length_mla", "value_length_mla", "head_count_kv"):
            assert found.metadata[f"deepseek2.attention.{key}"] == wanted.metadata[f"deepseek2.attention.{key}"]
    shown = describe_file(str(then))
    assert (shown["runs"], shown["format"]) == (True, "GGUF")


def test_older_files_must_fit(tmp_path: Path) -> None:
    then, _ = older(tmp_path, attention__value_length=15)
    rule = r"'blk\.0\.attn_kv_b\.weight' must be \[188, 64\], .* 32 elements of keys and 15 of values of .* 4 heads"
    with pytest.raises(GGUFError, match=rule):
        open_model(then)


# What is refused -----------------------------------------------------------------------------------

METADATA: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "older files": (
        {"attention__key_length_mla": None},
        UnsupportedError,
        r"lacks 'deepseek2\.attention\.key_length_mla': .* have keys and values in tensors attn_kv_b",
    ),
    "no rank": ({"attention__kv_lora_rank": None}, GGUFError, r"'deepseek2\.attention\.kv_lora_rank' must be there"),
    "heads": ({"attention__head_count_kv": 4}, GGUFError, r"head_count_kv' must be 1, as all heads .*, but is 4"),
    "row": (
        {"attention__key_length": 95},
        GGUFError,
        r"key_length' must be the rank and what rotates, 64 \+ 32, .* 95",
    ),
    "values": ({"attention__value_length": 63}, GGUFError, r"value_length' must be the rank, 64, but is 63"),
    "odd": ({"rope__dimension_count": 31}, GGUFError, r"must be even and less than the width of queries, 64, .* 31"),
    "all rotates": ({"rope__dimension_count": 64}, GGUFError, r"must be even and less than .* 64, but is 64"),
    "function": ({"expert_gating_func": 3}, UnsupportedError, r"expert_gating_func' must be one of \[0, 1, 2\], .* 3"),
    "groups": ({"expert_group_count": 3}, GGUFError, r"must be a divisor of the number of experts, 8, but is 3"),
    "more groups": ({"expert_group_used_count": 5}, GGUFError, r"group_used_count' must be at most 4, .* but is 5"),
    "too few": ({"expert_group_used_count": 1}, GGUFError, r"so many that there are 3 experts in as .* 2, but is 1"),
    "ahead": ({"nextn_predict_layers": 1}, UnsupportedError, r"'deepseek2\.nextn_predict_layers' = 1"),
    "narrower": ({"attention__q_lora_rank": 31}, GGUFError, r"'blk\.0\.attn_q_a\.weight' must be \[31, 64\] \[query_r"),
    "whole queries": ({"attention__q_lora_rank": None}, GGUFError, r"missing tensors: blk\.0\.attn_q\.weight"),
    "all experts": ({"leading_dense_block_count": 0}, GGUFError, r"missing tensors: blk\.0\.ffn_gate_inp\.weight"),
    "no shared": ({"expert_shared_count": 0}, GGUFError, r"expert_shared_count' must be an integer from 1 .* is 0"),
    "wide": ({"expert_shared_count": 2}, GGUFError, r"'blk\.1\.ffn_gate_shexp\.weight' must be \[64, 64\]"),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata_that_do_not_fit(tmp_path: Path, name: str) -> None:
    changes, error, message = METADATA[name]
    with pytest.raises(error, match=message):
        read(tmp_path, **changes)


def test_layers_may_have_no_experts_at_all(tmp_path: Path) -> None:
    """By the metadata of a model without any, or because all layers are among the first ones."""
    tensors = tiny_models.tensors(architecture="deepseek2", layers=1)
    wanted = None
    for number, changes in enumerate(
        ({"leading_dense_block_count": 7}, {"expert_count": None, "expert_used_count": None})
    ):
        metadata = tiny_models.metadata("deepseek2", block_count=1, **changes)
        path = write_gguf(tmp_path / f"{number}.gguf", metadata, tensors)
        config = ModelConfig.from_gguf(GGUFFile(path))
        assert not config.has_experts(0)
        found = load_interpreted(path).logits(IDS)
        wanted = NumpyDecoder(GGUFFile(path)).logits(IDS) if wanted is None else wanted
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


FOLDERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "scores": ("deepseek2", {"scoring_func": "sigmoid"}, r"'scoring_func' = 'sigmoid'"),
    "sums": ("deepseek2", {"norm_topk_prob": True}, r"'norm_topk_prob' = True"),
    "method": ("deepseek3", {"topk_method": "greedy"}, r"'topk_method' = 'greedy'"),
    "every other": ("deepseek3", {"moe_layer_freq": 2}, r"'moe_layer_freq' = 2"),
    "stretched": (
        "deepseek2",
        {"rope_scaling": {"type": "linear", "factor": 2.0, "mscale_all_dim": 1.0}},
        r"'mscale_all_dim' = 1\.0 is supported with rotations of type yarn alone, but they are linear",
    ),
    "biases": ("deepseek3", {"attention_bias": True}, r"'attention_bias' = True"),
    "integers": ("deepseek3", {"quantization_config": {"quant_method": "gptq"}}, r"'quantization_config' = \{"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_that_ask_for_something_else(tmp_path: Path, name: str) -> None:
    architecture, changes, message = FOLDERS[name]
    folder = folders.write(tmp_path / "f", architecture, folders.weights(architecture), **changes)
    with pytest.raises(UnsupportedError, match=message):
        HuggingFaceFolder(folder)


def test_adapters_are_of_products_that_there_are(path: Path) -> None:
    config = ModelConfig.from_gguf(GGUFFile(path))
    for target in ("attn_q", "ffn_gate"):
        layer = 0 if target == "attn_q" else 1
        with pytest.raises(InputError, match=rf"'{target}', but the model has no 'blk\.{layer}\.{target}\.weight'"):
            new_adapter(config, [target], 2, 2.0, seed=0)
    assert list(new_adapter(config, ["attn_output"], 2, 2.0, seed=0).factors)[-1] == "blk.2.attn_output"


def test_files_cannot_say_that_halves_rotate(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "f", "deepseek3", folders.weights("deepseek3"), rope_interleave=False)
    with pytest.raises(UnsupportedError, match=r"half a head apart \('rope_interleave' is false\)"):
        quantize(folder, tmp_path / "q.gguf", "q8_0")


def test_rows_of_heads_must_fit(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "f", "deepseek2", folders.weights("deepseek2"), v_head_dim=15)
    rule = r"kv_b_proj\.weight' must be \[188, 64\], rows for 32 .* 15 of values of each of 4 heads, but is \[192, 64\]"
    with pytest.raises(ModelFileError, match=rule):
        HuggingFaceFolder(folder)


def test_layers_that_predict_further_tokens_are_not_read(tmp_path: Path) -> None:
    """As many as the configuration says, and no more."""
    tensors = folders.weights("deepseek3")
    folder = folders.write(tmp_path / "f", "deepseek3", tensors, num_nextn_predict_layers=1)
    own = folders.to_folder("deepseek3", tensors)
    for layer, error in ((3, None), (4, r"no use for these tensors.*'model\.layers\.4\.enorm\.weight'")):
        write_safetensors(folder / "model.safetensors", own | {f"model.layers.{layer}.enorm.weight": np.ones(64, "f4")})
        if error is None:
            assert HuggingFaceFolder(folder).tensors.keys() == tensors.keys() - {"output.weight"}
        else:
            with pytest.raises(UnsupportedError, match=error):
                HuggingFaceFolder(folder)


def test_groups_count_where_experts_are_chosen_by_them(tmp_path: Path) -> None:
    tensors, groups = folders.weights("deepseek2"), {"n_group": 3, "topk_group": 2}
    for method, wanted in (("greedy", Routing()), ("group_limited_greedy", Routing("softmax", 3, 2))):
        folder = folders.write(tmp_path / method, "deepseek2", tensors, topk_method=method, **groups)
        assert ModelConfig.from_gguf(HuggingFaceFolder(folder)).routing == wanted


def test_what_stretches_positions(tmp_path: Path) -> None:
    """Scores grow by the square of 1 + 0.1 m log(factor), for the m of all dimensions; what rotates by the ratio of
    that for both."""
    scaling = {"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64}
    for first, second in ((0.707, 0.707), (1.0, 0.5), (None, None)):
        own = scaling if first is None else {**scaling, "mscale": first, "mscale_all_dim": second}
        folder = folders.write(tmp_path / "f", "deepseek2", folders.weights("deepseek2"), rope_scaling=own)
        config = ModelConfig.from_gguf(HuggingFaceFolder(folder))
        grown = [1 + 0.1 * (weight or 0.0) * np.log(40) for weight in (first, second)]
        np.testing.assert_allclose(config.attention_scale, grown[1] ** 2 / 8, rtol=1e-6)
        natural = 1 + 0.1 * np.log(40)
        np.testing.assert_allclose(config.rope_attention, natural if first is None else grown[0] / grown[1], rtol=1e-6)
