# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose files have weights of any type, or are split: the logits are those of the decoded weights."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny_models
from gguf.constants import GGMLQuantizationType
from numpy_decoder import NumpyDecoder

from rlx_mlir import formats
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.frontends.gguf_split import part_name
from rlx_mlir.models.config import WEIGHT_TYPES
from rlx_mlir.models.description import describe_file, format_description
from rlx_mlir.models.loading import load_model

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 24)]
MATRICES = ("token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
MODELS = {
    "tables": ("iq4_nl", "mxfp4", "iq4_nl", "iq4_xs", "mxfp4", "tq2_0", "nvfp4", "tq1_0", "q8_k"),
    "grids": ("iq3_xxs", "iq2_s", "iq2_xxs", "iq2_xs", "iq1_s", "iq3_s", "iq1_m", "q1_0", "iq4_xs"),
}
SIZES = {"hidden": 256, "heads": 4, "head_dim": 64, "ffn": 256, "layers": 1, "tied": False}
METADATA = {"embedding_length": 256, "feed_forward_length": 256, "block_count": 1}


def write(folder: Path, kinds: tuple[str, ...]) -> Path:
    return tiny_models.write(folder / "m.gguf", METADATA, types=dict(zip(MATRICES, kinds, strict=True)), **SIZES)


def test_every_type_is_one_of_weights() -> None:
    described = {fmt.name for fmt in formats.FORMATS_BY_ID.values() if fmt.has_blocks}
    assert described - WEIGHT_TYPES == set()
    used = {kind for kinds in MODELS.values() for kind in kinds}
    assert described - used == {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"}


@pytest.mark.parametrize("kinds", list(MODELS.values()), ids=MODELS)
@pytest.mark.quick(3)
def test_models_compute_with_the_decoded_weights(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    path = write(tmp_path, kinds)
    with GGUFFile(path) as file:
        for name, info in file.tensors.items():
            if info.type not in ("f32", "q8_k", "q1_0"):
                rows = np.ascontiguousarray(file.tensor(name))
                want = gguf.dequantize(rows, GGMLQuantizationType[info.type.upper()])
                np.testing.assert_array_equal(file.dequantize(name), want)
        expected = NumpyDecoder(file).logits(IDS)
    model = load_model(path, activations="exact", context=64, chunk=16)
    np.testing.assert_allclose(model.logits(IDS), expected, rtol=2e-4, atol=2e-4 * np.abs(expected).max())
    generated = model.generate(IDS[:8], max_tokens=3, temperature=0)
    generated.read()
    assert generated.ids[0] == int(expected[7].argmax())


@pytest.mark.parametrize("kinds", list(MODELS.values()), ids=MODELS)
@pytest.mark.quick(1)
@pytest.mark.wide
def test_integers_are_near_the_decoded_weights(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    path = write(tmp_path, kinds)
    with GGUFFile(path) as file:
        expected = NumpyDecoder(file).logits(IDS)
    coarse = load_model(path, activations="int8", context=64, chunk=16).logits(IDS)
    correlation = np.corrcoef(coarse.reshape(-1), expected.reshape(-1))[0, 1]
    assert correlation > 0.99


def write_split(folder: Path, whole: Path, count: int = 3) -> list[Path]:
    """The file's tensors, dealt out to several, as llama.cpp's tools write them."""
    with GGUFFile(whole) as file:
        paths = []
        for number in range(count):
            metadata = {key: file.metadata.typed(key) for key in file.metadata} if number == 0 else {}
            metadata |= {"split.no": np.uint16(number), "split.count": np.uint16(count)}
            metadata |= {"split.tensors.count": np.int32(len(file.tensors))}
            own = list(file.tensors.values())[number::count]
            tensors = {info.name: (info.type, file.tensor(info.name), info.shape) for info in own}
            path = folder / part_name("part", number, count)
            paths.append(write_gguf(path, metadata, tensors))
        return paths


def test_split_models_are_the_whole_ones(tmp_path: Path, tiny_llama: Path) -> None:
    parts = write_split(tmp_path, tiny_llama)
    options = {"activations": "int8", "context": 64, "chunk": 16}
    whole = load_model(tiny_llama, **options).logits(IDS)
    np.testing.assert_array_equal(load_model(parts[1], **options).logits(IDS), whole)
    for part in parts:
        found = describe_file(str(part), tensors=True, verify=True)
        assert found["runs"], found["reason"]
        assert found["files"] == 3
        assert found["bytes"] == sum(own.stat().st_size for own in parts)
        assert " in 3 files, GGUF version 3" in format_description(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["iq4_nl", "mxfp4", "tq2_0"])
def test_smollm2_requantised(tmp_path: Path, smollm2_path: Path, kind: str) -> None:
    """All matrices whose rows are whole blocks; the others stay as they are."""
    with GGUFFile(smollm2_path) as file:
        metadata = {key: file.metadata.typed(key) for key in file.metadata}
        tensors = {}
        for name, info in file.tensors.items():
            tensors[name] = (info.type, file.tensor(name), info.shape)
            if len(info.shape) == 2 and info.k % formats.get_format(kind).block == 0:
                tensors[name] = (kind, formats.encode(kind, file.dequantize(name)), info.shape)
        path = write_gguf(tmp_path / "m.gguf", metadata, tensors)
    assert sum(own[0] == kind for own in tensors.values()) >= 30
    ids = IDS[:12]
    with GGUFFile(path) as file:
        expected = NumpyDecoder(file).logits(ids, 2)
    found = load_model(path, activations="exact", context=64, chunk=16).logits(ids)[-2:]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
