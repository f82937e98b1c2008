# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Qwen3-Next: heads of values beside each other, in files and folders, compiled; the rest is as in `test_delta`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import tiny_models
from numpy_decoder import NumpyDecoder

from rlx_mlir.errors import ModelFileError, UnsupportedError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.frontends.huggingface_delta import DeltaOrder
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.loading import load_model

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 33)]


@pytest.mark.wide
def test_compiled_files(tmp_path: Path) -> None:
    """The reference's logits; the same bits however a prompt is cut, and the same text with proposals."""
    path = tiny_models.write(tmp_path / "m.gguf", architecture="qwen3next")
    exact = load_model(path, context=64, chunk=16, activations="exact")
    np.testing.assert_allclose(exact.logits(IDS), NumpyDecoder(GGUFFile(path)).logits(IDS), rtol=5e-4, atol=5e-4)
    model = load_model(path, context=64, chunk=16)
    whole, parts = model.session(), model.session()
    whole.feed(IDS)
    for begin, end in ((0, 1), (1, 16), (16, 33)):
        parts.feed(IDS[begin:end])
    np.testing.assert_array_equal(whole.logits, parts.logits)
    options: dict[str, Any] = {"temperature": 1.5, "seed": 3, "max_tokens": 12, "ignore_eos": True}
    plain = model.generate(IDS[:9], **options)
    text = plain.read()
    found = model.generate(IDS[:9], draft="mtp", **options)
    assert (found.read(), found.ids) == (text, plain.ids)


def test_folders_have_the_layer_ahead_where_they_have_its_tensors(tmp_path: Path) -> None:
    """No key of `config.json` says whether they do."""
    tensors = folders.weights("qwen3next")
    folder = folders.write(tmp_path / "f", "qwen3next", tensors, mtp_num_hidden_layers=None)
    assert ModelConfig.from_gguf(HuggingFaceFolder(folder)).predicts
    own = folders.to_folder("qwen3next", tensors)
    write_safetensors(folder / "model.safetensors", {name: own[name] for name in own if not name.startswith("mtp")})
    config = ModelConfig.from_gguf(HuggingFaceFolder(folder))
    assert (config.predicts, config.layers) == (False, 3)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"linear_num_value_heads": 6},
            ModelFileError,
            r"what is 'ssm_a' in files must be 6 for 6 heads of values, but is \[4\]",
        ),
        ({"decoder_sparse_step": 2}, UnsupportedError, r"'decoder_sparse_step' = 2"),
        ({"mlp_only_layers": [1]}, UnsupportedError, r"'mlp_only_layers' = \[1\]"),
    ],
)
def test_folders_that_can_not_be(tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str) -> None:
    folder = folders.write(tmp_path / "f", "qwen3next", folders.weights("qwen3next"), **changes)
    with pytest.raises(error, match=message):
        ModelConfig.from_gguf(HuggingFaceFolder(folder))


@pytest.mark.parametrize("shape", [(191, 64), (192,), (192, 64, 1)])
def test_rows_must_be_of_all_heads(shape: tuple[int, ...]) -> None:
    order = DeltaOrder(keys=2, values=4, size=16, grouped=True)
    with pytest.raises(
        ModelFileError, match=r"'attn_qkvz.weight' in files must be \[192, hidden\] for 2 heads of keys"
    ):
        order.made("attn_qkvz.weight", shape, "f32", lambda: np.zeros(shape, np.float32), "f")
