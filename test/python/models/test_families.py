# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Architectures beside LLaMA: each computes what an independent model in numpy computes, interpreted and compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from interpreted import load_interpreted
from numpy_decoder import NumpyDecoder

from rlx_mlir import compile
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import decoder
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.session import Session

FIRST = ("qwen2", "qwen3", "gemma3")
"""Families whose kernels are looked at."""
FAMILIES = (
    *FIRST,
    *("qwen3moe", "gemma", "gemma2", "phi3", "smollm3", "olmo2", "granite"),
    *("qwen2vl", "qwen3vl", "qwen3vlmoe", "seed_oss", "glm4", "ernie4_5"),
    *("hunyuan-dense", "olmo3", "exaone4", "minicpm"),
    *("cohere2", "command-r", "stablelm", "starcoder2", "lfm2"),
    *("mamba", "falcon-mamba", "jamba", "mamba2", "granitehybrid", "granitehybrid-experts", "falcon-h1", "nemotron_h"),
    *("nemotron_h_moe", "bamba", "phi2", "phimoe", "gemma3n"),
    *("mixtral", "qwen2moe", "olmoe", "granitemoe", "gpt-oss", "deepseek3", "qwen35", "qwen35moe", "qwen3next"),
)
IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 40)]


#: Families that are compiled by default, with what others have, too, and by CI: the graphs of all are interpreted.
KINDS = ("qwen3", "gemma3")
WIDE_KINDS = ("qwen2", "gemma2", "phi3", "qwen2moe")


def compiled_ones() -> list[Any]:
    """All families; those that aren't among these are slow."""
    marks = {**{name: [] for name in KINDS}, **{name: [pytest.mark.wide] for name in WIDE_KINDS}}
    return [pytest.param(name, marks=marks.get(name, [pytest.mark.slow])) for name in FAMILIES]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def path(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write(tmp_path_factory.mktemp(family) / "m.gguf", architecture=family)


@pytest.fixture(scope="module")
def expected(path: Path) -> np.ndarray:
    return NumpyDecoder(GGUFFile(path)).logits(IDS)


@pytest.fixture(scope="module")
def compiled(path: Path) -> Model:
    return load_model(path, activations="exact", context=64, chunk=16)


def close(actual: np.ndarray, wanted: np.ndarray) -> None:
    """Within the rounding of f32 sums of a hundred terms, a few layers deep."""
    np.testing.assert_allclose(actual, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("stage", ["hir", pytest.param("mir", marks=pytest.mark.slow)])
def test_interpreted_equals_numpy(path: Path, expected: np.ndarray, stage: str) -> None:
    close(load_interpreted(path, stage=stage).logits(IDS), expected)


@pytest.mark.parametrize("family", compiled_ones(), indirect=True)
def test_compiled_equals_numpy(compiled: Model, expected: np.ndarray) -> None:
    """In chunks of 16, so that windows of 8 and cached keys meet; Gemma's prompt is five windows long."""
    close(compiled.logits(IDS), expected)


@pytest.mark.parametrize("family", compiled_ones(), indirect=True)
@pytest.mark.parametrize("split", [1, 7, 8, 9, 33])
@pytest.mark.quick(5)
def test_prefill_then_decode_equals_prefill(compiled: Model, expected: np.ndarray, split: int) -> None:
    session = Session(compiled)
    close(session.prefill(IDS[:split]), expected[split - 1])
    for position in range(split, min(split + 10, len(IDS))):
        close(session.decode(IDS[position]), expected[position])


@pytest.mark.parametrize("chunk", [1, 3, 64])
@pytest.mark.quick(3)
def test_chunks_equal_the_whole(path: Path, expected: np.ndarray, chunk: int) -> None:
    tokens = 20 if chunk == 1 else len(IDS)  # two windows and a half
    close(load_interpreted(path, chunk=chunk).logits(IDS[:tokens]), expected[:tokens])


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[pytest.mark.slow] * (name != "qwen3")) for name in FAMILIES], indirect=True
)
@pytest.mark.quick(1)
@pytest.mark.slow
def test_compiled_int8_is_near(path: Path, expected: np.ndarray) -> None:
    """Rounding to 8 bits costs about 1/127 of the largest element of a block, here some percent of the logits."""
    found = load_model(path, activations="int8", context=64, chunk=16).logits(IDS)
    bound = 0.04 if "jamba" in str(path) else 0.02  # of Jamba's four experts, some tokens get another one
    assert np.abs(found - expected).mean() < bound * np.abs(expected).max()
    assert not np.array_equal(found, expected)


ALL_DENSE = dict.fromkeys(("token_embd", "attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up", "ffn_down"), "f32")
TWO_LAYERS = {"block_count": 2, "attention__sliding_window_pattern": 2}  # a local and a global one
VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "qwen2-dense-untied": ("qwen2", {}, {"tied": False, "types": ALL_DENSE}),
    "qwen3-half-rotated": ("qwen3", {"rope__dimension_count": 16}, {}),
    "qwen3-one-key-head": ("qwen3", {"attention__head_count_kv": 1}, {"kv_heads": 1}),
    "gemma3-dense": ("gemma3", TWO_LAYERS, {"layers": 2, "types": ALL_DENSE}),
    "gemma3-grouped-stretched": (
        "gemma3",
        {**TWO_LAYERS, "attention__head_count_kv": 2, "rope__scaling__type": "linear", "rope__scaling__factor": 8.0},
        {"layers": 2, "kv_heads": 2},
    ),
    "llama-window": ("llama", {"attention__sliding_window": 8}, {}),
    "llama-yarn": (
        "llama",
        {
            "rope__scaling__type": "yarn",
            "rope__scaling__factor": 4.0,
            "rope__scaling__original_context_length": 64,
            "rope__scaling__yarn_beta_fast": 8.0,
            "rope__scaling__attn_factor": 1.5,
        },
        {},
    ),
    "qwen2-window-later": (
        "qwen2",
        {"attention__sliding_window": 5, "attention__sliding_window_pattern": np.array([False, True])},
        {},
    ),
    "qwen3moe-sums": ("qwen3moe", {"expert_weights_norm": False, "expert_used_count": 3}, {}),
    "phi3-long": ("phi3", {"rope__scaling__original_context_length": 63, "attention__sliding_window": 1}, {}),
    "phi3-partial": ("phi3", {"rope__dimension_count": 12}, {"rope_pairs": 6}),
    "olmo2-grouped": ("olmo2", {"attention__head_count_kv": 1}, {"kv_heads": 1}),
    "deepseek2": ("deepseek2", {}, {}),
    "deepseek2-groups": ("deepseek2", {"expert_group_count": 3, "expert_group_used_count": 2}, {}),
    "deepseek2-sums": ("deepseek2", {"expert_weights_norm": True, "expert_weights_scale": 16.0}, {"tied": False}),
    "deepseek3-all-groups": (
        "deepseek3",
        {"expert_group_used_count": 4, "rope__scaling__yarn_log_multiplier": 0.0},
        {},
    ),
    "granite-dense": ("granite", {"residual_scale": 2.0}, {"types": ALL_DENSE}),
    "gpt-oss-untied-dense": ("gpt-oss", {}, {"tied": False, "types": ALL_DENSE}),
    "gpt-oss-whole-experts": ("gpt-oss", {"expert_used_count": 6, "attention__sliding_window": 1}, {}),
    "gpt-oss-all-global": (
        "gpt-oss",
        {"attention__sliding_window": None, "attention__head_count_kv": 1},
        {"kv_heads": 1},
    ),
    "gemma3-k-quants": (
        "gemma3",
        {**TWO_LAYERS, "embedding_length": 256, "feed_forward_length": 256, "attention__sliding_window": 1},
        {"layers": 2, "hidden": 256, "ffn": 256, "types": {"attn_v": "q6_k", "ffn_down": "q6_k", "ffn_up": "q4_k"}},
    ),
}


#: Variants with kernels that no other one has.
COMPILED = ("qwen3-half-rotated", "gemma3-grouped-stretched", "gemma3-k-quants", "gpt-oss-whole-experts")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.quick(3)
def test_variants_equal_numpy(tmp_path: Path, variant: str) -> None:
    family, changes, options = VARIANTS[variant]
    path = tiny_models.write(tmp_path / "m.gguf", changes, architecture=family, **options)
    close(load_interpreted(path).logits(IDS[:20]), NumpyDecoder(GGUFFile(path)).logits(IDS[:20]))


@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=[pytest.mark.slow] * (name not in COMPILED)) for name in VARIANTS]
)
@pytest.mark.quick(1)
@pytest.mark.wide
def test_compiled_variants_equal_numpy(tmp_path: Path, variant: str) -> None:
    family, changes, options = VARIANTS[variant]
    path = tiny_models.write(tmp_path / "m.gguf", changes, architecture=family, **options)
    expected = NumpyDecoder(GGUFFile(path)).logits(IDS[:20])
    close(load_model(path, activations="exact", context=64, chunk=16, cache=False).logits(IDS[:20]), expected)


def test_what_differs_matters(tmp_path: Path) -> None:
    """The numpy model without a window, or with one base for all layers, is another one: tests would see it."""
    path = tiny_models.write(tmp_path / "m.gguf", architecture="gemma3")
    expected = NumpyDecoder(GGUFFile(path)).logits(IDS)
    for key, value in (("attention.sliding_window", 64), ("rope.freq_base", 10000.0)):
        other = GGUFFile(path)
        other.metadata = {**other.metadata, f"gemma3.{key}": value}  # type: ignore[misc]
        assert np.abs(NumpyDecoder(other).logits(IDS) - expected).max() > 0.1


@pytest.mark.parametrize("family", FIRST, indirect=True)
def test_layers_are_named_as_their_tensors(path: Path, family: str) -> None:
    module = decoder.build(ModelConfig.from_gguf(GGUFFile(path)), "prefill")
    names = {node.name for node in module.nodes()}
    assert {"token_embd", "blk.0.attn_norm", "blk.1.attn_q", "blk.1.attention", "output"} <= names
    assert ("blk.0.attn_q_norm" in names) == (family != "qwen2")
    assert ("blk.0.post_ffw_norm" in names) == (family == "gemma3")


@pytest.mark.parametrize("family", FIRST, indirect=True)
def test_kernels(compiled: Model, family: str) -> None:
    """All come from templates; each head is one row of a kernel."""
    for executable in (compiled.programs.prefill, compiled.programs.decode):
        templates = executable.artifact.templates  # type: ignore[attr-defined]
        generic = {name for name, template in templates.items() if template.startswith("generic")}
        assert not generic, generic
        words = {name.rsplit("_", 1)[0] for name in templates}
        assert ("rms_norm_rope" in words) == (family != "qwen2")
        assert "rms_norm_rope_cache_update" in words or family == "qwen2"
        gate = "gelu_approx" if family == "gemma3" else "silu"
        assert f"dequant_matmul_{gate}_mul" in words
        assert ("mul_rms_norm" in words) == (family == "gemma3"), "rows of the table are scaled where they are normed"


@pytest.mark.parametrize("family", [*FIRST, "gemma2", "smollm3"], indirect=True)
def test_two_tables_only_where_layers_differ(path: Path, family: str) -> None:
    file = GGUFFile(path)
    config = ModelConfig.from_gguf(file)
    arrays = decoder.parameters(config, file, 32)
    local = {"rope.local.cos", "rope.local.sin"} if family == "gemma3" else set()
    assert set(arrays) == {*config.weights, "rope.cos", "rope.sin", *local}
    assert set(arrays) == {param.name for param in decoder.build(config, "decode").params}


@pytest.mark.slow
def test_generic_kernels_equal_templates(tmp_path: Path) -> None:
    """One layer with norms of heads and a gate: the kernels are the same, the code another."""
    changes = {**TWO_LAYERS, "block_count": 1}
    file = GGUFFile(tiny_models.write(tmp_path / "m.gguf", changes, architecture="gemma3", layers=1))
    config = ModelConfig.from_gguf(file)
    module = decoder.build(config, "prefill")
    params = decoder.parameters(config, file, 16)
    inputs: dict[str, np.ndarray] = {
        "tokens": np.array([IDS[:9]], np.int32),
        "pos": np.array([3], np.int32),
        "rows": np.arange(9, dtype=np.int32),
        "k_0": np.random.default_rng(1).standard_normal((1, 16, 32)).astype(np.float32),
        "v_0": np.random.default_rng(2).standard_normal((1, 16, 32)).astype(np.float32),
    }
    found = []
    for names in ((), ("rows",), ("all",)):
        executable = compile(module, disable_templates=names, cache=False, level=0 if "all" in names else 2)
        executable.set_params(params)
        found.append(executable.run(inputs))
    for other in found[1:]:
        for name, expected in found[0].items():
            close(other[name], expected)
