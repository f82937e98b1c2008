# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs tests of pytest, and prints which part of the branches of Python they took, and of which files the least.

Usage:

    python test/branch_coverage.py                          the quick tests
    python test/branch_coverage.py test/python/models/test_hub.py  these alone
    python test/branch_coverage.py --least 70               exits with 1 where less than 70 % is covered

Processes that tests start count as well. Exits with 1 where a test fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTED = 10


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description="Branch coverage of the Python sources.")
    parser.add_argument("tests", nargs="*", default=["test/python"], help="files and folders for pytest")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="tests at one time")
    parser.add_argument("--least", type=float, default=0.0, help="per cent that have to be covered")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "COVERAGE_FILE": str(Path(folder) / "data")}

        def coverage(*arguments: str) -> int:
            command = [sys.executable, "-m", "coverage", *arguments]
            return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode

        # Tests of time are tests of code that nobody traces.
        marks = "not (slow or network or gpu)"
        tests = ["-m", "pytest", "-q", "-n", str(options.jobs), "-m", marks, *options.tests]
        failed = coverage("run", *tests)
        if coverage("combine", "-q") or coverage("json", "-q", "-o", f"{folder}/report.json"):
            return 1
        report = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
    files = {name: own["summary"] for name, own in report["files"].items()}
    ranked = sorted(files, key=lambda name: (files[name]["percent_covered"], name))
    print(f"\nleast covered of {len(files)} files:")
    for name in ranked[:LISTED]:
        own = files[name]
        print(
            f"{own['percent_covered']:5.1f} %  {name}: not taken are {own['missing_lines']} of "
            f"{own['num_statements']} statements and {own['missing_branches']} of {own['num_branches']} branches"
        )
    total = report["totals"]
    print(
        f"all: {total['percent_covered']:.1f} %; {total['covered_lines']} of {total['num_statements']} statements, "
        f"{total['covered_branches']} of {total['num_branches']} branches"
    )
    return 1 if failed or total["percent_covered"] < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
