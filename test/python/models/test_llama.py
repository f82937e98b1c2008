# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The graphs of LLaMA models: built as described, and equal to an independent model in numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from interpreted import Interpreted, load_interpreted
from numpy_decoder import NumpyDecoder

from rlx_mlir.errors import InputError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import decoder
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.session import Session

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 40)]


@pytest.fixture(scope="module")
def tiny(tiny_llama: Path) -> Model:
    return load_interpreted(tiny_llama)


@pytest.fixture(scope="module")
def expected(tiny_llama: Path) -> np.ndarray:
    return NumpyDecoder(GGUFFile(tiny_llama)).logits(IDS)


def close(actual: np.ndarray, wanted: np.ndarray) -> None:
    """Within the rounding of f32 sums of a hundred terms, a few layers deep."""
    np.testing.assert_allclose(actual, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("stage", ["hir", "mir"])
def test_equals_numpy(tiny_llama: Path, expected: np.ndarray, stage: str) -> None:
    close(load_interpreted(tiny_llama, stage=stage).logits(IDS), expected)


VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "untied-head": ({}, {"tied": False}),
    "dense-head": ({}, {"tied": False, "types": {"output": "f32"}}),
    "dense-table": ({}, {"types": {"token_embd": "f32"}}),
    "half-precision": ({}, {"types": {"token_embd": "f16", "attn_q": "bf16", "ffn_up": "f16"}}),
    "all-dense": (
        {},
        {"types": dict.fromkeys(("attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up", "ffn_down"), "f32")},
    ),
    "other-blocks": ({}, {"types": {"attn_q": "q4_0", "attn_k": "q5_0", "ffn_up": "q5_1", "ffn_gate": "q8_0"}}),
    "no-grouping": ({"attention__head_count_kv": 4}, {"kv_heads": 4}),
    "one-key-head": ({"attention__head_count_kv": 1}, {"kv_heads": 1}),
    "wide-heads": (
        {"attention__key_length": 32, "attention__value_length": 32, "rope__dimension_count": 32},
        {"head_dim": 32},
    ),
    "half-rotated": ({"rope__dimension_count": 8}, {}),
    "stretched": ({"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, {}),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.quick(5)
def test_variants_equal_numpy(tmp_path: Path, variant: str) -> None:
    changes, options = VARIANTS[variant]
    path = tiny_models.write(tmp_path / "m.gguf", changes, **options)
    close(load_interpreted(path).logits(IDS[:20]), NumpyDecoder(GGUFFile(path)).logits(IDS[:20]))


#: Variants that go together, each of which is in one model; compiling them one by one is slow.
TOGETHER = {
    "formats": ("untied-head", "other-blocks", "no-grouping", "stretched"),
    "halves": ("dense-head", "half-precision", "one-key-head", "half-rotated"),
    "dense": ("dense-table", "all-dense", "wide-heads"),
}


def test_all_variants_are_compiled() -> None:
    assert sorted(name for names in TOGETHER.values() for name in names) == sorted(VARIANTS)


def together(names: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What several variants change, in one."""
    changes: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name in names:
        own, given = VARIANTS[name]
        types = {**options.get("types", {}), **given.get("types", {})}
        changes, options = changes | own, options | given | ({"types": types} if types else {})
    return changes, options


@pytest.mark.parametrize(
    "names",
    [
        *(pytest.param(names, id=name) for name, names in TOGETHER.items()),
        *(pytest.param((name,), id=name, marks=pytest.mark.slow) for name in VARIANTS),
    ],
)
@pytest.mark.quick(1)
def test_compiled_variants_equal_numpy(tmp_path: Path, names: tuple[str, ...]) -> None:
    """By prefill, by decode, and by both."""
    changes, options = together(names)
    path = tiny_models.write(tmp_path / "m.gguf", changes, **options)
    expected = NumpyDecoder(GGUFFile(path)).logits(IDS)
    model = load_model(path, activations="exact", context=64, chunk=16, cache=False)
    close(model.logits(IDS), expected)
    session = Session(model)
    close(session.prefill(IDS[:19]), expected[18])
    for position in range(19, 24):
        close(session.decode(IDS[position]), expected[position])


def test_compiled_int8_is_near(tiny_llama: Path, expected: np.ndarray) -> None:
    """Rounding to 8 bits costs about 1/127 of the largest element of a block, here some percent of the logits."""
    found = load_model(tiny_llama, activations="int8", context=64, chunk=16).logits(IDS)
    assert np.abs(found - expected).mean() < 0.02 * np.abs(expected).max()
    assert not np.array_equal(found, expected)


def test_frequency_factors(tmp_path: Path) -> None:
    tensors = {**tiny_models.tensors(), "rope_freqs.weight": np.linspace(1, 8, 8, dtype=np.float32)}
    path = tiny_models.write_gguf(tmp_path / "m.gguf", tiny_models.metadata(), tensors)
    model = load_interpreted(path)
    assert "rope_freqs.weight" not in model.programs.prefill.params  # type: ignore[attr-defined]
    close(model.logits(IDS[:20]), NumpyDecoder(GGUFFile(path)).logits(IDS[:20]))


@pytest.mark.parametrize("chunk", [1, 3, 16, 64])
@pytest.mark.quick(2)
def test_chunks_equal_the_whole(tiny_llama: Path, expected: np.ndarray, chunk: int) -> None:
    model = load_interpreted(tiny_llama, chunk=chunk)
    close(model.logits(IDS), expected)
    close(Session(model).prefill(IDS), expected[-1])


@pytest.mark.parametrize("split", [1, 15, 16, 17, 39])
@pytest.mark.quick(1)
def test_prefill_then_decode_equals_prefill(tiny: Model, expected: np.ndarray, split: int) -> None:
    session = Session(tiny)
    close(session.prefill(IDS[:split]), expected[split - 1])
    for position in range(split, len(IDS)):
        close(session.decode(IDS[position]), expected[position])
    assert session.tokens == tuple(IDS)


def test_only_the_rows_that_are_asked_for(tiny: Model, expected: np.ndarray) -> None:
    session = Session(tiny)
    out = np.empty((1, 3, 300), np.float32)
    session._prefill(IDS[:10], np.array([9, 0, 4], np.int32), out)
    close(out[0], expected[[9, 0, 4]])


def test_every_layer_is_a_named_block(tiny_llama: Path) -> None:
    module = decoder.build(ModelConfig.from_gguf(GGUFFile(tiny_llama)), "prefill")
    names = [node.name for node in module.nodes()]
    assert names == ["token_embd", "blk.0", "blk.1", "rows", "output_norm", "output"]
    lowered = [node.name for node in module.lower().nodes()]
    assert "blk.0" in lowered
    assert "blk.1" in lowered


def test_caches_are_tied_to_their_results(tiny_llama: Path) -> None:
    for program in decoder.PROGRAMS:
        text = decoder.build(ModelConfig.from_gguf(GGUFFile(tiny_llama)), program).inspect()
        for name in ("k_0", "v_0", "k_1", "v_1"):
            assert f"output {name} = " in text
            assert f"(may take the memory of %{name})" in text


def test_a_tied_head_is_one_parameter(tiny_llama: Path, tmp_path: Path) -> None:
    tied = decoder.build(ModelConfig.from_gguf(GGUFFile(tiny_llama)), "decode").inspect()
    assert tied.count("param  %token_embd.weight") == 1
    assert "%output.weight" not in tied
    untied = tiny_models.write(tmp_path / "m.gguf", tied=False)
    assert "param  %output.weight" in decoder.build(ModelConfig.from_gguf(GGUFFile(untied)), "decode").inspect()


def test_parameters_are_views_of_the_file(tiny_llama: Path) -> None:
    file = GGUFFile(tiny_llama)
    config = ModelConfig.from_gguf(file)
    arrays = decoder.parameters(config, file, 32)
    assert set(arrays) == {*config.weights, "rope.cos", "rope.sin"}
    assert arrays["rope.cos"].shape == (32, 8)
    assert arrays["blk.0.attn_q.weight"].dtype == np.uint8
    assert arrays["blk.0.attn_q.weight"].shape == (64, 40)
    assert arrays["blk.0.attn_v.weight"].dtype == np.float32
    for name in config.weights:
        assert np.shares_memory(arrays[name], file.tensor(name)), name


def test_unknown_program(tiny_llama: Path) -> None:
    with pytest.raises(InputError, match="modules are prefill, decode, batch, extend, but got 'x'"):
        decoder.build(ModelConfig.from_gguf(GGUFFile(tiny_llama)), "x")


@pytest.mark.slow
def test_smollm2_starts_as_the_golden_text(smollm2_path: Path) -> None:
    """Eight tokens through the interpreter, against exact logits of the real model."""
    gold = np.load(Path(__file__).parents[1] / "data" / "smollm2_a.npz")
    model = load_interpreted(smollm2_path, context=8, chunk=8)
    logits = model.logits(gold["tokens"][:8].astype(np.int64))
    np.testing.assert_allclose(
        np.take_along_axis(logits, gold["ids"][:8].astype(np.int64), -1), gold["exact"][:8], atol=1e-3
    )
    assert isinstance(model.programs.prefill, Interpreted)
