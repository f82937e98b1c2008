# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`benchmarks/attention.py` runs, checks what it compares, and says what is missing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "attention.py"
SMALL = [
    "--heads",
    "9/3",
    "--head-dims",
    "64",
    "--decode",
    "40",
    "--prompts",
    "33",
    "--rounds",
    "3",
    "--floor",
    "0.001",
]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300)


def test_figures_of_every_problem_as_json() -> None:
    done = run("--threads", "1", "--clock", "cpu", "--dtype", "f16", "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["what"] for row in found["rows"]] == [
        "decode 40, heads 9/3 x 64, f16",
        "prompt 33, heads 9/3 x 64, f16",
    ]
    assert all(row["us"] > 0 for row in found["rows"])
    compared = importlib.util.find_spec("torch") is not None
    assert all(("ratio" in row) == compared for row in found["rows"])
    assert ("torch isn't installed" in done.stderr) == (not compared)
    assert found["about"]["torch"] == "not installed" or compared


@pytest.mark.slow
def test_queries_may_be_as_narrow_as_keys() -> None:
    done = run("--threads", "1", "--clock", "cpu", "--dtype", "bf16", "--queries", "narrow", "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["what"] for row in rows] == [
        "decode 40, heads 9/3 x 64, bf16 queries too",
        "prompt 33, heads 9/3 x 64, bf16 queries too",
    ]


def test_processor_time_needs_one_thread() -> None:
    done = run("--threads", "2", "--clock", "cpu")
    assert done.returncode == 2
    assert "it needs --threads 1" in done.stderr
