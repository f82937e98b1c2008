# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many threads decode: what is said, what was measured, and what is kept of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rlx_mlir.errors import InputError
from rlx_mlir.models import decode_threads as module
from rlx_mlir.models.decode_threads import LEAST_BYTES, VARIABLE, candidates, decode_threads, fewest
from rlx_mlir.models.loading import load_model

RATES = {1: 10.0, 2: 19.0, 3: 24.5, 4: 25.0}


@pytest.fixture
def measured(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine of four CPUs with `RATES`; the ways of activations that were measured."""
    calls: list[str] = []

    def measure(activations: str, counts: list[int], product: object) -> dict[int, float]:
        calls.append(activations)
        return {count: RATES[count] for count in counts}

    for variable in (VARIABLE, "RLX_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(module.native, "default_threads", lambda: 4)
    monkeypatch.setattr(module, "measured_rates", measure)
    return calls


def test_the_fewest_threads_that_read_nearly_as_fast() -> None:
    assert fewest(RATES) == 3
    assert fewest({1: 1.0, 2: 2.0}) == 2
    assert fewest({1: 97.0, 2: 100.0}) == 1
    assert fewest({1: 96.9, 2: 100.0}) == 2
    assert fewest({1: 5.0, 2: 4.0}) == 1


@pytest.mark.parametrize(
    ("most", "counts"),
    [
        (1, [1]),
        (2, [1, 2]),
        (4, [1, 2, 3, 4]),
        (5, [1, 2, 3, 4, 5]),
        (16, [1, 2, 3, 4, 6, 8, 12, 16]),
        (17, [1, 2, 3, 4, 6, 8, 12, 16, 17]),
    ],
)
def test_numbers_to_try(most: int, counts: list[int]) -> None:
    assert candidates(most) == counts


def test_a_machine_is_measured_once_for_each_way_of_activations(
    measured: list[str], fresh_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert [decode_threads(LEAST_BYTES, "int8") for _ in range(3)] == [3, 3, 3]
    assert decode_threads(LEAST_BYTES, "exact") == 3
    assert measured == ["int8", "exact"]
    assert not caplog.records  # where nothing was kept, nothing is damaged


def test_nothing_is_measured_where_it_says_nothing(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode_threads(LEAST_BYTES - 1, "int8") is None
    assert decode_threads(LEAST_BYTES, "int8", cache=False) is None
    monkeypatch.setattr(module.native, "default_threads", lambda: 1)
    assert decode_threads(LEAST_BYTES, "int8") is None
    assert measured == []


def test_the_environment_comes_first(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_NUM_THREADS", "4")
    assert decode_threads(LEAST_BYTES, "int8") is None
    for text, threads in (("2", 2), ("all", None), ("1024", 1024)):
        monkeypatch.setenv(VARIABLE, text)
        assert decode_threads(LEAST_BYTES, "int8") == threads
        assert decode_threads(0, "int8") == threads
    for text in ("0", "1025", "", "two", "-1", "²"):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(InputError, match=rf"RLX_DECODE_THREADS must be 'all' or .* 1 to 1024, but it is '{text}'"):
            decode_threads(LEAST_BYTES, "int8")
    assert measured == []


@pytest.mark.parametrize("text", ["", "{}", '{"rates": 1}', '{"rates": {"0": 1}}', '{"rates": {"1": -1}}', "[", "\xff"])
def test_a_damaged_file_is_measured_again(
    measured: list[str], fresh_cache: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    decode_threads(LEAST_BYTES, "int8")
    (file,) = (fresh_cache / "machine").iterdir()
    before = file.read_text()
    file.write_text(text)
    assert decode_threads(LEAST_BYTES, "int8") == 3
    assert measured == ["int8", "int8"]
    assert f"ignoring measured rates {file}: it is damaged" in caplog.text
    assert file.read_text() == before
    assert json.loads(before)["key"]["activations"] == "int8"


def test_where_others_work_it_is_measured_again_later(
    measured: list[str], fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = module.measured_rates

    def busy(activations: str, counts: list[int], product: object) -> dict[int, float]:
        measured.append("busy")
        return {}

    monkeypatch.setattr(module, "measured_rates", busy)
    assert [decode_threads(LEAST_BYTES, "int8") for _ in range(2)] == [None, None]
    assert measured == ["busy"]
    (file,) = (fresh_cache / "machine").iterdir()
    os.utime(file, (0, 0))
    monkeypatch.setattr(module, "measured_rates", quiet)
    assert decode_threads(LEAST_BYTES, "int8") == 3


def test_rates_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs here: then CPUs count as ours in any case."""
    monkeypatch.setattr(module, "_UNDISTURBED", 0.0)
    monkeypatch.setattr(module, "_ROUNDS", 1)
    found = module.measured_rates("int8", [1, 2])
    assert list(found) == [1, 2]
    assert all(1e8 < rate < 1e13 for rate in found.values())
    monkeypatch.setattr(module, "_UNDISTURBED", 1e9)
    assert module.measured_rates("int8", [1, 2]) == {}


@pytest.mark.wide
def test_models_decode_with_them(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_NUM_THREADS", "3")
    plain = load_model(tiny_llama, context=64, chunk=16)
    assert (plain.threads, plain.decode_threads) == (3, 3)
    monkeypatch.setenv(VARIABLE, "2")
    model = load_model(tiny_llama, context=64, chunk=16)
    assert (model.threads, model.decode_threads) == (3, 2)
    given = load_model(tiny_llama, context=64, chunk=16, threads=1)
    assert (given.threads, given.decode_threads) == (1, 1)
    texts = {own.generate("hello", max_tokens=8, greedy=True).read() for own in (plain, model, given)}
    assert len(texts) == 1


def test_what_a_token_reads(tiny_llama: Path) -> None:
    config = load_model(tiny_llama, context=64, chunk=16).config
    everything = sum(info.nbytes or 0 for info in config.weights.values())
    table = config.weights["token_embd.weight"].nbytes or 0
    assert config.read_bytes == (everything if config.tied_head else everything - table)
