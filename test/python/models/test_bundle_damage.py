# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles that are damaged, cut off, of another version, or that somebody made up."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundle_mutations
import pytest
from bundles import rewritten, with_manifest
from descriptions import set_at

from rlx_mlir.budgets import budget
from rlx_mlir.errors import BudgetError, CacheError, ModelFileError, RlxError
from rlx_mlir.models.bundle import MANIFEST, METADATA, VERSION, Bundle, code_section, weights_section
from rlx_mlir.models.loading import load_model
from rlx_mlir.runtime.container import Container


@pytest.fixture
def path(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copy(tiny_bundle, tmp_path))


def _span(path: Path, name: str) -> tuple[int, int]:
    with Container(path) as container:
        section = container.section(name)
    return section.offset, section.offset + section.size


def _flip(path: Path, at: int, mask: int = 0x10) -> None:
    with path.open("r+b") as file:
        byte = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes([byte ^ mask]), at)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_every_byte_of_header_table_and_manifest_counts(path: Path, step: int) -> None:
    """The header's, and each seventh of the others by default: a digest covers all of each part."""
    (table_at,) = struct.unpack_from("<Q", path.read_bytes(), 16)
    places = [*range(table_at, path.stat().st_size), *range(*_span(path, MANIFEST))]
    assert len(places) > 2000
    for at in [*range(80), *places[::step]]:
        _flip(path, at, 1 << at % 8)
        with pytest.raises(RlxError):
            load_model(path)
        _flip(path, at, 1 << at % 8)
    assert load_model(path).logits([1, 2]).shape == (2, 300)


@pytest.mark.parametrize("name", [code_section("prefill", "native"), METADATA])
def test_code_and_metadata_are_compared_with_their_digests(path: Path, name: str) -> None:
    begin, end = _span(path, name)
    for at in (begin, (begin + end) // 2, end - 1):
        _flip(path, at)
        with pytest.raises(CacheError, match=rf"tiny\.rlx: section '{name}' has the digest .*: the file is damaged"):
            load_model(path)
        _flip(path, at)


def test_code_that_is_used_later_is_compared_then(path: Path) -> None:
    _flip(path, _span(path, code_section("extend", "native"))[0] + 100)
    session = load_model(path).session()
    session.feed([1, 2, 3])
    with pytest.raises(CacheError, match="section 'artifact/extend/native' has the digest"):
        session.extend([4, 5])


def test_weights_are_compared_on_request(path: Path) -> None:
    begin, end = _span(path, weights_section(0))
    Bundle(path).verify()
    _flip(path, (begin + end) // 2)
    load_model(path)
    with pytest.raises(CacheError, match=r"section 'weights/0' has the digest .*: the file is damaged"):
        Bundle(path).verify()


def test_files_that_are_cut_off_are_noticed(path: Path) -> None:
    content = path.read_bytes()
    for size in (0, 1, 7, 8, 9, 79, 80, 4095, 4096, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(RlxError, match=r"tiny\.rlx"):
            load_model(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(CacheError, match="something was appended"):
        load_model(path)


def test_other_versions_are_named(tiny_bundle: Path, tmp_path: Path) -> None:
    def newer(document: dict[str, Any]) -> None:
        document["version"] = VERSION + 1

    with pytest.raises(ModelFileError, match=rf"of version {VERSION}, but this one of {VERSION + 1}: bundle the model"):
        load_model(with_manifest(tiny_bundle, tmp_path / "m.rlx", newer))

    def old_code(content: dict[str, bytes]) -> None:
        name = code_section("decode", "native")
        content[name] = content[name][:8] + struct.pack("<I", 3) + content[name][12:]

    with pytest.raises(CacheError, match=r"section 'artifact/decode/native': not an artefact of version \d+, but of 3"):
        load_model(rewritten(tiny_bundle, tmp_path / "m.rlx", old_code))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_at("kind", to="poem"), "'kind' must be one of decoder, encoder, but is 'poem'"),
        (set_at("levels", to=[]), "'levels' must be 1 to 64, but there are 0"),
        (set_at("levels", 0, to=3), "level 0 must be an object, but is 3"),
        (set_at("levels", 0, "cpu", to=3), "'cpu' must be of type str, but is 3"),
        (set_at("modules", "decode", to={}), "module 'decode' must be there for each level"),
        (set_at("modules", "decode", "native", 0, to=10**6), "'decode' for 'native' must list parameters below"),
        (
            set_at("modules", "decode", "native", to=[]),
            r"'decode' for native: .*reads \d+ prepared parameters, but got 0",
        ),
        (set_at("parameters", 0, to=[0]), r"parameter 0 .* must be section, offset, type and shape, but is \[0\]"),
        (set_at("parameters", 0, 0, to=77), "there is no section 'weights/77'"),
        (set_at("parameters", 0, 1, to=32), "must begin at a multiple of 64 and lie within"),
        (set_at("parameters", 0, 1, to=1 << 40), "must begin at a multiple of 64 and lie within"),
        (set_at("parameters", 0, 2, to="f99"), "must have a known element type, but it is 'f99'"),
        (set_at("parameters", 0, 3, to=[1 << 40, 1 << 40]), "lie within"),
        (set_at("parameters", 0, 3, to=[1] * 40), "must have at most 32 dimensions, but has 40"),
        (set_at("parameters", 0, 3, to=[3, 3]), "'prefill' for native: .* has size"),
        (
            set_at("tensors", "output_norm.weight", to=3),
            "tensor 'output_norm.weight' must have a known type and a shape",
        ),
        (set_at("tensors", "output_norm.weight", 1, to=[-1]), "must have sizes above 0"),
        (set_at("tensors", "output_norm.weight", 1, to=[9]), "output_norm"),
        (
            set_at("options", "context", to=65),
            "'prefill' must be for the 65 positions that the manifest says, but is for 64",
        ),
        (set_at("options", "context", to=0), "'context' must be an integer from 1"),
        (set_at("options", "kv_dtype", to="f99"), "f99"),
        (set_at("identity", to=[]), "'identity' must be of type dict"),
    ],
)
def test_manifests_that_make_no_sense_are_named(
    change: Callable[[dict[str, Any]], None], message: str, tiny_bundle: Path, tmp_path: Path
) -> None:
    with pytest.raises(RlxError, match=message):
        load_model(with_manifest(tiny_bundle, tmp_path / "m.rlx", change))


def test_a_manifest_is_strict_json_with_a_budget(tiny_bundle: Path, tmp_path: Path) -> None:
    def twice(content: dict[str, bytes]) -> None:
        content[MANIFEST] = b'{"version":1,' + content[MANIFEST][1:]

    with pytest.raises(ModelFileError, match="the key 'version' stands twice"):
        load_model(rewritten(tiny_bundle, tmp_path / "m.rlx", twice))
    with budget(json_bytes=4000), pytest.raises(BudgetError, match="'json_bytes'"):
        load_model(tiny_bundle)
    with budget(tensors=3), pytest.raises(BudgetError, match="'tensors'"):
        load_model(tiny_bundle)


def test_values_change_in_mutations(tiny_bundle: Path) -> None:
    with Container(tiny_bundle) as container:
        document = json.loads(container.read(MANIFEST))
    rng = random.Random(0)
    assert sum(bundle_mutations.changed(document, rng) != document for _ in range(50)) > 30


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.slow)])
def test_whatever_somebody_writes_is_an_error_or_runs(count: int, tiny_bundle: Path, tmp_path: Path) -> None:
    """In a process of its own, which would not survive a crash."""
    script = Path(bundle_mutations.__file__)
    command = [sys.executable, str(script), "decoder", str(tiny_bundle), str(tmp_path), "0", str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert sum(found.values()) == count
    assert found.get("ran", 0) < count
