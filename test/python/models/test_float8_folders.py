# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders whose matrices are floats of 8 bits with scales: the logits of those with the same numbers as bf16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import folders
import ml_dtypes
import numpy as np
import pytest
from interpreted import load_interpreted

from rlx_mlir.errors import ModelFileError, RlxError, UnsupportedError
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.models.loading import load_model

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 20)]
F8 = ml_dtypes.float8_e4m3fn
BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [24, 40]}
GROUP = {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}, "targets": ["Linear"]}
METHODS: dict[str, dict[str, Any]] = {
    "blocks": BLOCKS,
    "rows": {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": GROUP}},
    "lines": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0},
    "whole": {"quant_method": "fp8", "activation_scheme": "static"},
}


def is_packed(name: str, value: np.ndarray) -> bool:
    """Matrices of layers are, but for routers, and what isn't a product."""
    own = not any(word in name for word in ("embed", "lm_head", "mlp.gate.", "conv1d", "in_proj_a", "in_proj_b", "fc."))
    return value.ndim == 2 and own


def pack(name: str, value: np.ndarray, method: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Tensors of a folder, and the numbers that they stand for, element by element."""
    value = value.astype(np.float32)
    rows, columns = value.shape
    height, width = {"blocks": (24, 40), "rows": (1, columns), "lines": (1, columns), "whole": (rows, columns)}[method]
    count = -(-rows // height), -(-columns // width)
    scale = np.empty(count, np.float32)
    codes, numbers = np.empty(value.shape, F8), np.empty(value.shape, ml_dtypes.bfloat16)
    for i, j in np.ndindex(*count):
        place = slice(i * height, (i + 1) * height), slice(j * width, (j + 1) * width)
        scale[i, j] = np.float32(np.abs(value[place]).max() / 448)
        if method == "rows":
            scale[i, j] = scale[i, j].astype(ml_dtypes.bfloat16)
        codes[place] = (value[place] / scale[i, j]).astype(F8)
        numbers[place] = (codes[place].astype(np.float32) * scale[i, j]).astype(ml_dtypes.bfloat16)
    word = "weight_scale_inv" if method == "blocks" else "weight_scale"
    stored = scale.astype(ml_dtypes.bfloat16) if method == "rows" else scale[0, 0] if method == "whole" else scale
    found = {name: codes, name.replace("weight", word): stored}
    if method == "whole":
        found[name.replace("weight", "input_scale")] = np.ones(1, np.float32)
    return found, numbers


def write(tmp_path: Path, architecture: str, method: str, **config: Any) -> tuple[Path, Path, dict[str, np.ndarray]]:
    """A folder of such floats, one of the same numbers, and the tensors of the first one."""
    dense, packed = {}, {}
    for name, value in folders.to_folder(architecture, folders.weights(architecture, "bf16")).items():
        if is_packed(name, value):
            own, dense[name] = pack(name, value, method)
            packed |= own
        else:
            dense[name] = packed[name] = value
    paths = []
    for number, (tensors, more) in enumerate(((packed, {"quantization_config": METHODS[method]}), (dense, {}))):
        paths.append(
            folders.write(tmp_path / str(number), architecture, folders.weights(architecture), **more, **config)
        )
        write_safetensors(paths[-1] / "model.safetensors", tensors)
    return paths[0], paths[1], packed


@pytest.mark.parametrize("architecture", ["llama", "gemma", "qwen3moe", "deepseek3", "qwen35"])
@pytest.mark.parametrize("method", METHODS)
def test_tensors_are_those_of_bf16(tmp_path: Path, architecture: str, method: str) -> None:
    """Experts that lie apart, keys and values of latents, and heads in another order, too."""
    packed, dense, _ = write(tmp_path, architecture, method)
    found, wanted = HuggingFaceFolder(packed), HuggingFaceFolder(dense)
    assert found.tensors.keys() == wanted.tensors.keys()
    for name, info in wanted.tensors.items():
        assert (found.info(name).type, found.info(name).shape) == (info.type, info.shape)
        np.testing.assert_array_equal(found.tensor(name), wanted.tensor(name), err_msg=name)


@pytest.mark.wide
def test_logits_are_those_of_bf16(tmp_path: Path) -> None:
    """As they are, and quantised on the way."""
    packed, dense, _ = write(tmp_path, "deepseek3", "blocks")
    np.testing.assert_array_equal(load_interpreted(packed).logits(IDS), load_interpreted(dense).logits(IDS))
    options: dict[str, Any] = {"quantize": "q8_0", "context": 32, "chunk": 16, "cache": False}
    np.testing.assert_array_equal(load_model(packed, **options).logits(IDS), load_model(dense, **options).logits(IDS))


#: What stands in the folder in place of something else, and the error.
Change = Callable[[dict[str, np.ndarray]], None]
KEY = "model.layers.1.mlp.up_proj.weight"


def drop(tensors: dict[str, np.ndarray]) -> None:
    del tensors[f"{KEY}_scale_inv"]


def narrow(tensors: dict[str, np.ndarray]) -> None:
    tensors[f"{KEY}_scale_inv"] = tensors[f"{KEY}_scale_inv"][:-1]


def whole(tensors: dict[str, np.ndarray]) -> None:
    tensors[KEY] = tensors[KEY].astype(np.float32)


def orphan(tensors: dict[str, np.ndarray]) -> None:
    tensors["model.layers.1.mlp.x_proj.weight_scale_inv"] = np.ones((1, 1), np.float32)


def integers(tensors: dict[str, np.ndarray]) -> None:
    tensors[f"{KEY}_scale_inv"] = tensors[f"{KEY}_scale_inv"].astype(np.int32)


TENSORS: dict[str, tuple[Change, type[RlxError], str]] = {
    "no scales": (drop, UnsupportedError, r"up_proj\.weight' is F8_E4M3"),
    "fewer": (
        narrow,
        ModelFileError,
        r"scales of '.*', \[96, 64\] .* must be \[4, 2\], one .* \[24, 40\].* are \[3, 2\]",
    ),
    "of f32": (whole, UnsupportedError, r"up_proj\.weight' with scales is f32, these f32"),
    "of nothing": (orphan, UnsupportedError, r"x_proj\.weight_scale_inv' has no matrix"),
    "of integers": (integers, UnsupportedError, r"up_proj\.weight' with scales is F8_E4M3, these i32"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_scales_that_do_not_fit(tmp_path: Path, name: str) -> None:
    change, error, message = TENSORS[name]
    folder, _, tensors = write(tmp_path, "llama", "blocks")
    change(tensors)
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(error, match=message):
        HuggingFaceFolder(folder)


CONFIGS: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "others": ({"quant_method": "gptq"}, UnsupportedError, r"'quantization_config' = \{'quant_method': 'gptq'"),
    "e5m2": ({**BLOCKS, "fmt": "e5m2"}, UnsupportedError, r"read as e4m3 alone, but 'fmt' is 'e5m2'"),
    "blocks": ({**BLOCKS, "weight_block_size": [24, 0]}, ModelFileError, r"'weight_block_size' must be two integers"),
    "no groups": ({"quant_method": "compressed-tensors"}, UnsupportedError, r"'config_groups' has None"),
    "integers": (
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4, "type": "int"}}}},
        UnsupportedError,
        r"floats of 8 bits by 'channel' or 'tensor' alone, but 'config_groups' has \{'num_bits': 4",
    ),
    "caches": (
        {"quant_method": "compressed-tensors", "config_groups": {"a": GROUP}, "kv_cache_scheme": {"num_bits": 8}},
        UnsupportedError,
        r"'kv_cache_scheme' of 'compressed-tensors' isn't supported",
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_methods_that_are_not_read(tmp_path: Path, name: str) -> None:
    own, error, message = CONFIGS[name]
    folder = folders.write(tmp_path / "f", "llama", folders.weights("llama"), quantization_config=own)
    with pytest.raises(error, match=message):
        HuggingFaceFolder(folder)
