# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches of keys and values by ``kv_dtype``: what the text says, and models that keep theirs as it says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from golden import distance_on_texts
from interpreted import compile_interpreted
from numpy_decoder import NumpyDecoder
from typer.testing import CliRunner

from rlx_mlir.errors import ExecutionError, InputError
from rlx_mlir.formats import decode, encode
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.models import compiling
from rlx_mlir.models.caches import KV_DTYPES, CacheType, bytes_per_token, cache_types, check_kv_dtype, kinds, schemes
from rlx_mlir.models.delta import Delta
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.session import Session
from rlx_mlir.tools.cli import app


@dataclass(frozen=True)
class Sizes:
    """What caches depend on."""

    kv_dtype: str
    attentive: tuple[int, ...] = (0, 1)
    kv_width: int = 64
    latent: object = None
    delta: Delta | None = None


def test_one_type_is_that_of_keys_and_values() -> None:
    for kind in KV_DTYPES:
        assert kinds(kind) == kinds(f"{kind}/{kind}") == (kind, kind)
    assert kinds("f16/q8_0") == ("f16", "q8_0")


@pytest.mark.parametrize(
    "text", ["", "f64", "q4_1", "q8_0/", "/q8_0", "q8_0/q4_0/f16", "q8_0,q4_0", "Q8_0", "f16 / f16"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=rf"'kv_dtype' must be one of f32, .*, but is '{re.escape(text)}'"):
        kinds(text)


def test_heads_are_whole_blocks() -> None:
    check_kv_dtype("q8_0/q4_0", 64)
    check_kv_dtype("bf16", 20)
    check_kv_dtype("q4_0", 64, one=True)
    with pytest.raises(InputError, match=r"'kv_dtype' must be one type where .* latents, but is 'q8_0/q4_0'"):
        check_kv_dtype("q8_0/q4_0", 64, one=True)
    for text, kind in (("q8_0", "q8_0"), ("f16/q4_0", "q4_0")):
        rule = rf"'kv_dtype' {kind} has blocks of 32 elements, of which a head must be a multiple, but .* have 80"
        with pytest.raises(InputError, match=rule):
            check_kv_dtype(text, 80)


def test_arrays_of_caches() -> None:
    types = cache_types(Sizes("q8_0/q4_0"))
    assert list(types) == ["k_0", "v_0", "k_1", "v_1"]
    assert (types["k_1"].width, types["v_0"].width) == (68, 36)
    assert {type.dtype for type in types.values()} == {np.dtype(np.int8)}
    assert schemes(Sizes("q8_0/q4_0")) == {"k_scheme": "q8_0", "v_scheme": "q4_0"}
    assert schemes(Sizes("f16/q4_0")) == {"v_scheme": "q4_0"}
    assert schemes(Sizes("bf16")) == {}
    latents = Sizes("q8_0", latent=True)
    assert {name: type.width for name, type in cache_types(latents).items()} == {"k_0": 68, "k_1": 68}
    assert bytes_per_token(latents) == 136
    of_a_token = {"f32": 1024, "f16": 512, "q8_0": 272, "q4_0": 144, "q8_0/q4_0": 208, "f16/q8_0": 392}
    assert {text: bytes_per_token(Sizes(text)) for text in of_a_token} == of_a_token


@pytest.mark.parametrize("kind", KV_DTYPES)
def test_rows_are_numbers_again(kind: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 64), np.float32)
    type = CacheType(kind, 64)
    rows = type.stored(x)
    assert rows.shape == (3, type.width)
    assert rows.dtype == type.dtype
    assert type.nbytes == rows[0].nbytes
    if type.scheme:
        assert type.numbers(rows).tobytes() == decode(kind, encode(kind, x), 64).tobytes()
    np.testing.assert_allclose(type.numbers(rows), x, atol={"bf16": 0.02, "q8_0": 0.02, "q4_0": 0.4}.get(kind, 2e-3))


# Models --------------------------------------------------------------------------------------------


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3", pytest.param("gpt-oss", marks=pytest.mark.wide)])
@pytest.mark.parametrize(("kv_dtype", "limit"), [("q8_0", 3e-3), ("f16/q8_0", 3e-3), ("q8_0/q4_0", 0.3), ("q4_0", 0.6)])
@pytest.mark.quick(2)
def test_logits_are_near_those_of_exact_caches(
    tmp_path: Path, architecture: str, kv_dtype: str, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a random model, whose logits depend on its keys and values as much as on tokens; a prompt, and steps after."""
    path = tiny_models.write(tmp_path / "m.gguf", architecture=architecture)
    ids = np.random.default_rng(0).integers(0, 300, 40).tolist()
    wanted = NumpyDecoder(GGUFFile(path)).logits(ids)
    model = load_model(path, activations="exact", kv_dtype=kv_dtype, context=64, chunk=16)
    found = model.logits(ids)
    p, q = log_softmax(wanted), log_softmax(found)
    divergence = (np.exp(p) * (p - q)).sum(axis=-1).mean()
    assert 0 < divergence < limit
    session = Session(model)
    steps = [session.prefill(ids[:36]).copy(), *(session.decode(token).copy() for token in ids[36:])]
    np.testing.assert_allclose(np.stack(steps), found[35:], atol=0.02 * np.abs(found).max())
    for program in (model.programs.prefill, model.programs.decode):
        ways = program.artifact.templates  # type: ignore[attr-defined]
        own = {name: how for name, how in ways.items() if "attention" in name or "cache" in name}
        assert len(own) >= 2
        assert set(own.values()) <= {"attention", "rows", "cache_update"}, own
    monkeypatch.setattr(compiling, "compile_program", compile_interpreted)
    exact = load_model(path, activations="exact", kv_dtype=kv_dtype, context=64).logits(ids)
    np.testing.assert_allclose(found, exact, atol=0.05 * np.abs(exact).max())  # a code may be rounded the other way


def test_a_model_of_other_heads_is_refused(tiny_llama: Path) -> None:
    with pytest.raises(InputError, match=r"'kv_dtype' q8_0 has blocks of 32 elements, .* the model's heads have 16"):
        load_model(tiny_llama, kv_dtype="f16/q8_0")


def test_keys_that_no_block_holds_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "compile_program", compile_interpreted)
    tensors = tiny_models.tensors({"attn_v": "f32"}, architecture="qwen3")
    tensors["blk.1.attn_v.weight"] *= np.float32(1e8)
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata("qwen3"), tensors)
    text = r"the values of layer 1 \('v_1', a cache of q8_0\) .* position 0 has nan; q8_0 holds .* up to 8\.31901e\+06"
    with pytest.raises(ExecutionError, match=text):
        load_model(path, kv_dtype="f16/q8_0", context=64).logits([5, 6, 7])


@pytest.mark.parametrize(("kv_dtype", "limit", "least"), [("q8_0", 3e-3, 0.96), ("q8_0/q4_0", 0.05, 0.85)])
@pytest.mark.slow
def test_blocks_on_varied_text(smollm2_path: Path, kv_dtype: str, limit: float, least: float) -> None:
    exact = load_model(smollm2_path, activations="exact")
    kl_mean, agreement = distance_on_texts(exact, load_model(smollm2_path, activations="exact", kv_dtype=kv_dtype))
    assert kl_mean < limit
    assert agreement > least


@pytest.mark.wide
def test_the_command_line_has_two_types(tmp_path: Path) -> None:
    path = str(tiny_models.write(tmp_path / "m.gguf", architecture="qwen3"))
    runner = CliRunner()
    done = runner.invoke(app, ["generate", path, "hello", "--max-tokens", "2", "--kv-cache", "q8_0/q4_0"])
    assert done.exit_code == 0, done.output
    failed = runner.invoke(app, ["generate", path, "hello", "--kv-cache", "q8_0,q4_0"])
    assert failed.exit_code == 2
    assert "--kv-cache" in failed.output
