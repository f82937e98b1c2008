# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles of encoders: the same bits as from the folder, without anything that compiles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import bundle_mutations
import pytest
import tiny_encoders
from bundles import SMALLER, rewritten, with_manifest
from descriptions import set_at

import rlx_mlir as rlx
from rlx_mlir.errors import DownloadError, InputError, RlxError, TokenizerError
from rlx_mlir.models.bundle import TOKENIZER, Bundle
from rlx_mlir.models.embedding import load_encoder
from rlx_mlir.models.loading import load_model

TEXTS = ["the cat sat", "a", "", "the " * 40]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    arrays = tiny_encoders.tensors(tiny_encoders.BERT)
    return tiny_encoders.write(tmp_path_factory.mktemp("encoder"), tiny_encoders.BERT, arrays)


@pytest.fixture(scope="module")
def path(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "bert.rlx"
    rlx.bundle(folder, path, cpu=[SMALLER, "native"], batch=3, max_tokens=20)
    return path


def test_a_bundle_gives_the_bits_of_its_folder(path: Path, folder: Path) -> None:
    for cpu in ("native", SMALLER):
        bundle, plain = load_encoder(path, cpu=cpu), load_encoder(folder, cpu=cpu, batch=3, max_tokens=20)
        assert bundle.embed(TEXTS).tobytes() == plain.embed(TEXTS).tobytes()
    assert bundle.tokenize("the cat") == plain.tokenize("the cat")
    assert {**vars(bundle.config), "tensors": None} == {**vars(plain.config), "tensors": None}
    assert repr(bundle) == repr(plain)
    assert Bundle(path).levels[0].name == "native"


def test_fewer_texts_and_tokens_are_free_and_more_are_refused(path: Path, folder: Path) -> None:
    bundle, plain = (load_encoder(own, batch=2, max_tokens=9) for own in (path, folder))
    assert bundle.batch == 2
    assert bundle.embed(TEXTS).tobytes() == plain.embed(TEXTS).tobytes()
    with pytest.raises(InputError, match=r"bert\.rlx' was bundled with 'batch' 3, but 4 is asked for"):
        load_encoder(path, batch=4)
    with pytest.raises(InputError, match=r"bert\.rlx' was bundled with 'max_tokens' 20, but 21 is asked for"):
        load_encoder(path, max_tokens=21)
    with pytest.raises(InputError, match=r"bert\.rlx' was bundled with 'target' 'cpu', but 'cuda' is asked for"):
        load_encoder(path, target="cuda")


def test_kinds_are_told_apart(path: Path, folder: Path, tiny_llama: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bert\.rlx' is a bundle of an encoder, .*: use load_encoder, or rlx embed"):
        load_model(path)
    with pytest.raises(InputError, match=r"'context' says nothing about .*, which is an encoder, but is 64"):
        rlx.bundle(folder, tmp_path / "m.rlx", context=64)
    rlx.bundle(tiny_llama, tmp_path / "m.rlx", context=64, chunk=16, activations="exact")
    with pytest.raises(InputError, match=r"m\.rlx' is a bundle of a language model: use load_model, or rlx generate"):
        load_encoder(tmp_path / "m.rlx")


_ALONE = """
import sys
sys.modules["tokenizers"] = None
import rlx_mlir
encoder = rlx_mlir.load_encoder(sys.argv[1])
print(encoder.embed_tokens([[1, 2, 3], [4]]).shape)
try:
    encoder.embed("the cat")
except rlx_mlir.errors.TokenizerError as error:
    print(error)
known = ("mlir", "rlx_mlir._compiler", "rlx_mlir.compiler", "rlx_mlir.options", "rlx_mlir.ir", "rlx_mlir.mir")
known += ("rlx_mlir.hir", "rlx_mlir.lowering", "rlx_mlir.codegen", "typer", "rich", "jinja2", "safetensors")
print([name for name in known if name in sys.modules])
"""


def test_ids_need_nothing_but_numpy(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _ALONE, str(path)], capture_output=True, text=True, check=True)
    shape, missing, loaded = done.stdout.splitlines()
    assert shape == "(2, 24)"
    assert missing.endswith("texts need the package tokenizers, which is not installed: pip install tokenizers")
    assert loaded == "[]"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_at("encoder", "architecture", to="gpt"), "'architecture' must be one of bert, roberta, .*, but is 'gpt'"),
        (set_at("encoder", "layers", to=10**6), "'layers'"),
        (set_at("encoder", "hidden", to=34), r"its code must give 'embeddings' 34 wide, but gives .*24"),
        (set_at("encoder", "max_tokens", to=10**6), r"'max_tokens' must be at most the \d+ positions"),
        (set_at("encoder", "eps", to="x"), "'eps' must be a finite number"),
        (set_at("encoder", "texts", "prompts", to={"a": 1}), "'prompts' must be texts by name"),
        (set_at("encoder", "texts", "default_prompt", to="b"), "'default_prompt' must be the name of a prompt"),
        (set_at("options", "batch", to=0), "'batch' must be an integer from 1"),
    ],
)
def test_manifests_that_make_no_sense_are_named(change: Any, message: str, path: Path, tmp_path: Path) -> None:
    with pytest.raises(RlxError, match=message):
        load_encoder(with_manifest(path, tmp_path / "m.rlx", change))


def test_a_tokenizer_that_makes_no_sense_is_named_when_texts_come(path: Path, tmp_path: Path) -> None:
    side = with_manifest(path, tmp_path / "m.rlx", set_at("truncation_side", to="up"))
    with pytest.raises(TokenizerError, match="'truncation_side' must be one of left, right, but is 'up'"):
        load_encoder(side).embed("a")

    def broken(content: dict[str, bytes]) -> None:
        content[TOKENIZER] = b"{}"

    encoder = load_encoder(rewritten(path, tmp_path / "n.rlx", broken))
    assert encoder.embed_tokens([[1]]).shape == (1, 24)
    with pytest.raises(TokenizerError, match=r"n\.rlx: "):
        encoder.embed("a")


@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_whatever_somebody_writes_is_an_error_or_runs(count: int, path: Path, tmp_path: Path) -> None:
    script = Path(bundle_mutations.__file__)
    command = [sys.executable, str(script), "encoder", str(path), str(tmp_path), "0", str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert sum(json.loads(done.stdout).values()) == count


@pytest.mark.slow
def test_minilm_is_bundled(tmp_path: Path) -> None:
    try:
        plain = load_encoder("minilm", download=False)
    except DownloadError as error:
        pytest.skip(str(error))
    rlx.bundle("minilm", tmp_path / "minilm.rlx")
    texts = ["A man is eating food.", "A man eats bread.", "The sea was rough."]
    assert load_encoder(tmp_path / "minilm.rlx").embed(texts).tobytes() == plain.embed(texts).tobytes()
