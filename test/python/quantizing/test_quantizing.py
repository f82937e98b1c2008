# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models written as GGUF files of some mix: types, bytes, metadata, folders, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import tiny_models
from numpy_decoder import NumpyDecoder
from test_cli import rlx

from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.formats import encode
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.models.opening import open_model
from rlx_mlir.quantizing import Importance, Source, plan, quantize

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 20)]
DENSE = dict.fromkeys(
    ("token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"), "f32"
)


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    """Rows of 256, so that blocks of K types fit."""
    sizes = {"embedding_length": 256, "feed_forward_length": 256, "rope__dimension_count": 64}
    options: dict[str, Any] = {"hidden": 256, "ffn": 256, "head_dim": 64}
    return tiny_models.write(tmp_path / "dense.gguf", sizes, types=DENSE, **options)


@pytest.mark.parametrize("mix", ["q4_k_m", "q3_k_l", "iq4_xs", "q8_0", "bf16", "f32"])
def test_tensors_are_those_of_the_model_in_the_types_of_the_mix(dense: Path, tmp_path: Path, mix: str) -> None:
    told: list[tuple[str, int, int]] = []
    found = quantize(dense, tmp_path / "q.gguf", mix, progress=lambda *state: told.append(state))
    with GGUFFile(dense) as model, GGUFFile(tmp_path / "q.gguf") as file:
        assert list(file.tensors) == list(model.tensors) == [tensor.name for tensor in found.tensors]
        for tensor in found.tensors:
            info = file.info(tensor.name)
            assert (info.type, info.shape, info.nbytes) == (tensor.type, tensor.shape, tensor.nbytes)
            values = model.dequantize(tensor.name)
            rows = file.tensor(tensor.name)
            if values.ndim == 1:
                np.testing.assert_array_equal(rows, values)
            else:
                wanted = encode(tensor.type, values)
                np.testing.assert_array_equal(rows.reshape(len(values), -1).view(np.uint8), wanted)
        kept = {key: value for key, value in model.metadata.items() if key.startswith(("llama.", "tokenizer."))}
        for key, value in kept.items():
            np.testing.assert_array_equal(file.metadata[key], value)
        assert file.metadata["general.file_type"] == found.mix.number
        assert file.metadata["general.quantization_version"] == 2
    assert told[-1][1:] == (found.nbytes, found.nbytes)
    assert sorted({name for name, _, _ in told}) == sorted(tensor.name for tensor in found.tensors)


@pytest.mark.parametrize("architecture", folders.FAMILIES)
@pytest.mark.quick(3)
def test_a_folder_becomes_the_file_of_a_converter(tmp_path: Path, architecture: str) -> None:
    """With rows in their order, norms with their 1, and all vectors of f32."""
    folder, path = folders.write_both(tmp_path, architecture, "f16")
    quantize(folder, tmp_path / "q.gguf", "f16")
    with GGUFFile(path) as wanted, GGUFFile(tmp_path / "q.gguf") as found:
        assert found.tensors.keys() == wanted.tensors.keys()
        for name in wanted.tensors:
            np.testing.assert_array_equal(found.dequantize(name), wanted.dequantize(name))
        assert not {key for key in found.metadata if key.endswith(("rope.halves", "rope.layers"))}
        one, other = NumpyDecoder(found).logits(IDS), NumpyDecoder(wanted).logits(IDS)
    if architecture not in ("phi3", "granite"):  # whose folders have other numbers of their own
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("architecture", "truncate"), [("llama", False), ("gpt-oss", True)])
def test_bounds_that_files_can_not_say_are_refused(tmp_path: Path, architecture: str, truncate: bool) -> None:
    """Files of gpt-oss stand for bounds between pairs, those of others for whole ones."""
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": truncate}
    tensors = folders.weights(architecture)
    folder = folders.write(tmp_path / "f", architecture, tensors, rope_scaling=scaling)
    word = str(truncate).lower()
    with pytest.raises(UnsupportedError, match=rf"can't say .* {'' if truncate else 'no '}whole pairs .* is {word}\)"):
        quantize(folder, tmp_path / "q.gguf", "f16")


def test_matrices_of_experts_have_columns_of_their_own(tmp_path: Path) -> None:
    folder, _ = folders.write_both(tmp_path, "qwen3moe")
    with open_model(folder) as file:
        source = Source.of(file)
        name = "blk.1.ffn_up_exps.weight"
        weights = np.random.default_rng(0).random((6, 64)).astype(np.float32)
        weights[2] = 0  # saw nothing
        weights[2] += 1
        found = Importance({name: weights}, "these", 1)
        planned = {tensor.name: tensor.type for tensor in plan(source, "q4_k_m", has_importance=True).tensors}
        assert planned[name] == "q5_0"
        assert planned["blk.1.ffn_gate_inp.weight"] == "f32"
        values = file.dequantize(name)
    quantize(folder, tmp_path / "q.gguf", "q4_k_m", importance=found)
    with GGUFFile(tmp_path / "q.gguf") as written:
        rows = written.tensor(name).reshape(6, 32, -1)
        for expert in range(6):
            np.testing.assert_array_equal(rows[expert], encode("q5_0", values[expert], weights=weights[expert]))
        assert written.metadata["quantize.imatrix.file"] == "these"


def test_what_cannot_be_written(dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "q.gguf"
    with pytest.raises(InputError, match="there is no mix 'q4_k_z'"):
        quantize(dense, output, "q4_k_z")
    with pytest.raises(InputError, match="is the model itself: the new file needs another name"):
        quantize(dense, dense, "q8_0")
    other = Importance({"blk.7.attn_q.weight": np.ones((1, 256), np.float32)}, "x.dat", 1)
    with pytest.raises(
        InputError, match=r"x.dat is of another model: it has 'blk.7.attn_q.weight', which the model lac"
    ):
        quantize(dense, output, "q8_0", importance=other)
    other = Importance({"blk.0.attn_q.weight": np.ones((1, 64), np.float32)}, "x.dat", 1)
    with pytest.raises(InputError, match=r"\[1, 64\] numbers for 'blk.0.attn_q.weight', but the tensor has 1 of 256"):
        quantize(dense, output, "q8_0", importance=other)
    tensors = tiny_models.tensors(DENSE)
    tensors["blk.1.ffn_up.weight"][3, 5] = np.nan
    broken = write_gguf(tmp_path / "b.gguf", tiny_models.metadata(), tensors)
    with pytest.raises(InputError, match=r"tensor 'blk.1.ffn_up.weight' can't be quantised to q8_0: .*\[3, 5\] is nan"):
        quantize(broken, output, "q8_0")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(InputError, match=r"needs \d\.\d MiB, but its disk has 1000 B left"):
        quantize(dense, output, "q8_0")
    assert not output.exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("mix", ["iq1_s", "iq2_xs", "iq3_xxs", "iq3_m"])
def test_types_of_few_bits(dense: Path, tmp_path: Path, mix: str) -> None:
    """They are those of the mix, and errors count by the matrix that they need."""
    output = tmp_path / "q.gguf"
    rng = np.random.default_rng(3)
    with GGUFFile(dense) as model:
        values = {name: model.dequantize(name) for name, info in model.tensors.items() if len(info.shape) == 2}
    squares = {name: np.exp(rng.standard_normal((1, 256))).astype(np.float32) for name in values if "blk" in name}
    found = quantize(dense, output, mix, importance=Importance(squares, "these", 1))
    types = {tensor.name: tensor.type for tensor in found.tensors}
    assert types["blk.1.ffn_up.weight"] == {"iq3_m": "iq3_s"}.get(mix, mix)
    with GGUFFile(output) as file:
        assert file.metadata["general.file_type"] == {"iq1_s": 24, "iq2_xs": 20, "iq3_xxs": 23, "iq3_m": 27}[mix]
        for name, own in squares.items():
            rows = file.tensor(name).reshape(len(values[name]), -1)
            np.testing.assert_array_equal(rows, encode(types[name], values[name], weights=own[0]))
    if mix == "iq3_m":
        assert not quantize(dense, output, mix).needing
        return
    output.unlink()
    first = found.needing[0]
    with pytest.raises(
        InputError, match=rf"mix {mix} needs an importance matrix, .* '{first.name}' would be {first.type}"
    ):
        quantize(dense, output, mix)
    squares.pop(first.name)
    with pytest.raises(InputError, match=rf"these says nothing of '{first.name}', which would be {first.type}"):
        quantize(dense, output, mix, importance=Importance(squares, "these", 1))
    assert not output.exists()


def test_the_command_asks_for_an_importance_matrix(dense: Path, tmp_path: Path) -> None:
    said = rlx("quantize", dense, "-o", tmp_path / "q.gguf", "--type", "iq2_xxs", status=1).stderr
    assert "the mix iq2_xxs needs an importance matrix" in said
    lines = rlx("quantize", dense, "--type", "q2_k_s", "--dry-run").stdout.splitlines()
    assert lines[-1] == "14 tensors need an importance matrix, '--imatrix'"
    assert not (tmp_path / "q.gguf").exists()


def test_the_command(dense: Path, tmp_path: Path) -> None:
    output = tmp_path / "q.gguf"
    lines = rlx("quantize", dense, "--type", "Q4_K_S", "--dry-run").stdout.splitlines()
    assert any(
        line.split() == ["blk.0.attn_q.weight", "256", "x", "256", "f32", "->", "q4_k", "36.0", "KiB"] for line in lines
    )
    assert lines[-1].startswith("q4_k_s: 20 tensors, 12 of q4_k, 5 of f32, 2 of q5_k, 1 of q6_k; ")
    assert not output.exists()
    found = json.loads(rlx("quantize", dense, "-o", output, "--type", "q4_k_s", "--json").stdout)
    assert (found["mix"], found["output"], found["requantised"]) == ("q4_k_s", str(output), 0)
    assert sum(tensor["bytes"] for tensor in found["tensors"]) == found["bytes"]
    again = rlx("quantize", output, "-o", tmp_path / "r.gguf", "--type", "q3_k_s").stdout
    assert "tensors were rounded to blocks before: errors add up" in again
    assert again.endswith("r.gguf\n")
    assert "'--output' names the new file" in rlx("quantize", dense, status=2).stderr
    late = rlx("quantize", dense, "--dry-run", "--imatrix", tmp_path / "m.dat", "--chunks", 2, status=2).stderr
    assert "'--chunks' are those of a text" in late
    assert "'--chunks' are those of a text" in rlx("quantize", dense, "--dry-run", "--chunks", 2, status=2).stderr
