# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the tests, lit's and pytest's, of the package that is installed; exits with 1 where one fails.

Usage:

    python test/run.py             the tests that each change is to pass, the quick ones
    python test/run.py --wide      those too that add cases or larger models: what .ci/run does
    python test/run.py --all       all, with those that take minutes, much memory or large downloads
    python test/run.py --slow      these alone
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SLOW = "slow or network"
WIDE = f"not ({SLOW})"
QUICK = f"not ({SLOW} or wide)"


def run(name: str, *arguments: str, **variables: str) -> bool:
    """Runs a test runner in the project's folder, with such variables of the environment; whether every test passed."""
    print("+", name, *arguments, flush=True)
    start = ["-m", "pytest"] if name == "pytest" else ["-c", "from lit.main import main; main()"]
    # Each test is a process's alone: threads of numpy that wait for work would take processors from others.
    environment = {"OPENBLAS_NUM_THREADS": "1", **variables, **os.environ}
    # What Python compiles of sources is kept: each process would spend seconds on it, and tests start hundreds.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    status = subprocess.run([sys.executable, *start, *arguments], cwd=ROOT, env=environment, check=False).returncode
    if status < 0:  # It can't say so itself.
        print(f"{name} was ended by signal {-status}; 9 is what a lack of memory looks like", file=sys.stderr)
    return status == 0


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description="Runs the tests of the package that is installed.")
    parser.add_argument("--wide", action="store_true", help="also what adds cases or larger models")
    parser.add_argument("--all", action="store_true", help="that, and what takes minutes or fetches large files")
    parser.add_argument("--slow", action="store_true", help="only what takes minutes or fetches large files")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="tests at one time")
    options = parser.parse_args()
    passed = options.slow or run("lit", "-sv", f"-j{options.jobs}", "test/lit")
    marks = ["-m", SLOW] if options.slow else [] if options.all else ["-m", WIDE if options.wide else QUICK]
    # pytest comes last: its closing line counts the tests. Neighbours share what they compile: they stay together.
    # The longest ones are named, so that who makes the run longer sees it.
    spent = ["--durations=25", "--durations-min=3"]
    # Where time doesn't matter, every test runs the code that users run, see levels.py.
    level = {"RLX_LEVEL": "2"} if options.all or options.slow else {}
    if not run("pytest", "-q", "-n", str(options.jobs), "--dist", "worksteal", *spent, *marks, **level):
        passed = False
    if not passed:
        print("some tests failed", file=sys.stderr)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
