# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The seed of random tests, and the order of all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import seeds

TESTS = """
import hypothesis.core, pytest, seeds
@pytest.mark.parametrize("number", range(8))
def test_order(number): print("order", number)
def test_seed(): print("seed", seeds.seed(), hypothesis.core.global_force_seed)
"""


def output(folder: Path, **variables: str) -> list[str]:
    """What a run of the tests above prints about seeds and order."""
    (folder / "test_it.py").write_text(TESTS)
    for name in ("conftest.py", "covering.py", "seeds.py", "tiny_models.py"):
        link = folder / name
        if not link.exists():
            own = Path(__file__).parents[1]
            link.symlink_to(own / name if name == "conftest.py" else own / "harness" / name)
    environment = {k: v for k, v in os.environ.items() if k not in (seeds.SEED, seeds.SHUFFLE)} | variables
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=True)
    return [line for line in done.stdout.splitlines() if "RLX_TEST" in line or "order" in line or "seed " in line]


@pytest.mark.slow
def test_runs_can_be_had_again(tmp_path: Path) -> None:
    plain = output(tmp_path)
    assert plain[0] == "RLX_TEST_SEED=0"
    assert output(tmp_path) == plain
    fresh = output(tmp_path, RLX_TEST_SEED="fresh", RLX_TEST_SHUFFLE="fresh")
    words = dict(word.split("=") for word in fresh[0].split())
    assert words.keys() == {seeds.SEED, seeds.SHUFFLE}
    assert fresh[1:] != plain[1:]
    assert any(f"seed {words[seeds.SEED]} {words[seeds.SEED]}" in line for line in fresh)
    assert output(tmp_path, **words) == fresh


def test_seeds_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(seeds.SEED, "x")
    with pytest.raises(ValueError, match="RLX_TEST_SEED expects a number or 'fresh', but got 'x'"):
        seeds.seed()
