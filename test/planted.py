# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plants known faults, one at a time, and says whether the check that is to find each of them does.

``python test/planted.py`` copies the package and its tests to a temporary folder, changes a few lines there as
`planted_faults.py` says, runs the fault's check (a fuzzer with seed and number of cases, or some tests) in the copy,
and takes the change back. The status is 1 where a fault isn't found.

``--sound`` runs every check without any fault: one that fails then says nothing, and the status is 1. ``--list`` shows
the table, ``--only NAME`` (may be repeated) takes some faults, ``--json`` prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from planted_faults import FAULTS, Change, Fault
from run import QUICK

ROOT = Path(__file__).resolve().parents[1]
#: What is changed, and what writes beside itself; the rest of the project is seen through links.
COPIED = ("emulator", "python", "test")
LEFT_OUT = (".git", "build", ".venv")
#: Seconds for a check, where a fault doesn't say otherwise.
SECONDS = 300.0
#: Editable installs find packages by a finder of their own, before any folder.
SITE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
"""
#: What a change that can't even run makes: such an error says nothing about the fault.
MISTAKES = re.compile(r"\b(NameError|SyntaxError|ImportError|ModuleNotFoundError|UnboundLocalError)\b")


class PlantError(Exception):
    """A fault that can't be planted."""


@dataclass(frozen=True)
class Outcome:
    """What came of a check.

    Attributes:
        name: of the fault; of a check without one, the check.
        status: `found`, `NOT FOUND`, `clean`, or `UNSOUND` of a check that fails without a fault.
        seconds: that the check ran.
        check: how to run it by hand.
        why: the last lines of its output, or what is wrong with it.
    """

    name: str
    status: str
    seconds: float
    check: str
    why: str = ""

    @property
    def good(self) -> bool:
        """Whether it is as it should be."""
        return self.status in ("found", "clean")


def planted_text(fault: Fault, root: Path = ROOT) -> dict[str, str]:
    """The files of a fault, by path, as they are with it; PlantError where a text isn't there, once."""
    texts: dict[str, str] = {}
    for change in fault.changes:
        before = texts.get(change.file) or (root / change.file).read_text(encoding="utf-8")
        texts[change.file] = _changed(before, change, fault.name)
    return texts


def _changed(text: str, change: Change, name: str) -> str:
    if (count := text.count(change.old)) != 1:
        raise PlantError(f"'{name}': {change.file} has this text {count} times, not once:\n{change.old}")
    return text.replace(change.old, change.new)


def installed() -> Path:
    """The folder of the package that is installed, which has what was built."""
    found = find_spec("rlx_mlir._runtime")
    if found is None or found.origin is None:
        raise PlantError("rlx-mlir isn't installed: pip install . or make develop")
    return Path(found.origin).parent


def built_files() -> dict[Path, Path]:
    """What the build makes of the package, by its place: extensions, folders of C, and the Python of the dialects."""
    folder = installed()
    found = (
        path for pattern in ("*.so", "include", "lib", "dialects/_*_gen.py") for path in sorted(folder.glob(pattern))
    )
    return {path.relative_to(folder): path for path in found}


class Copy:
    """A copy of the project whose package and tests may be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for entry in ROOT.iterdir():
            if entry.name in COPIED:
                shutil.copytree(entry, folder / entry.name, symlinks=True, ignore=self._ignored)
            elif entry.name not in LEFT_OUT:
                (folder / entry.name).symlink_to(entry)
        for name, built in built_files().items():
            copy = folder / "python" / "rlx_mlir" / name
            if not copy.exists():
                copy.symlink_to(built)
        (folder / "python" / "sitecustomize.py").write_text(SITE)

    @staticmethod
    def _ignored(_: str, names: list[str]) -> list[str]:
        return [name for name in names if name == "__pycache__" or name.endswith(".so")]

    def write(self, texts: dict[str, str]) -> None:
        """Writes files, and takes away what Python compiled of them: times of files don't tell such changes apart."""
        for name, text in texts.items():
            path = self.folder / name
            path.write_text(text, encoding="utf-8")
            Path(cache_from_source(str(path))).unlink(missing_ok=True)

    def run(self, check: str, seconds: float) -> tuple[int | None, str]:
        """The status of a check (1: it failed; None: the time is over), and its output."""
        program, *arguments = shlex.split(check)
        with tempfile.TemporaryDirectory() as scratch:
            if program == "pytest":
                # Those that run by default are to find a fault.
                start = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", QUICK]
            elif program == "lit":
                start = ["-c", "from lit.main import main; main()", "-q", "--max-failures=1"]
                arguments += [f"-Dexec_root={scratch}/lit", "test/lit"]
            else:  # rlx fuzz
                start = ["-c", "from rlx_mlir.tools.cli import main; main()"]
                arguments += ["--json", "--out", f"{scratch}/findings"]
            own = {"PYTHONPATH": str(self.folder / "python"), "RLX_CACHE_DIR": f"{scratch}/cache"}
            own |= {"RLX_REPRODUCER_DIR": f"{scratch}/reproducers", "NO_COLOR": "1"}
            with open(f"{scratch}/output", "w+", errors="replace") as output:
                process = subprocess.Popen(
                    [sys.executable, *start, *arguments],
                    cwd=self.folder,
                    env={**os.environ, **own},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                try:
                    status: int | None = process.wait(seconds)
                except subprocess.TimeoutExpired:
                    status = None
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
                output.seek(0)
                return status, output.read()


def outcome(fault: Fault | None, name: str, check: str, status: int | None, text: str, seconds: float) -> Outcome:
    """What the status and the output of a check mean."""
    lines = [line for line in text.splitlines() if line.strip()]
    why = "\n".join(lines[-6:])
    if status is None:
        why = f"it wasn't over after {seconds:.0f} s"
    failed = status == 1 or (status is not None and status < 0)
    if failed and check.startswith("rlx fuzz"):
        messages = re.findall(r'"message": "(.*)"', text)
        failed = bool(messages)  # without findings, it is the command that failed
        why = messages[0] if messages else why
    if fault is None:
        return Outcome(name, "clean" if status == 0 else "UNSOUND", seconds, check, "" if status == 0 else why)
    if failed and (mistake := MISTAKES.search(text)) is not None:
        failed, why = False, f"the change itself can't run: {mistake[0]}\n{why}"
    found = failed or (status is None and fault.hangs)
    return Outcome(name, "found" if found else "NOT FOUND", seconds, check, why)


def plant(faults: Iterable[Fault], copy: Copy) -> Iterable[Outcome]:
    """Plants each fault, and runs its check."""
    for fault in faults:
        texts = planted_text(fault)
        copy.write(texts)
        begin = time.monotonic()
        status, text = copy.run(fault.check, fault.seconds or SECONDS)
        yield outcome(fault, fault.name, fault.check, status, text, time.monotonic() - begin)
        copy.write({name: (ROOT / name).read_text(encoding="utf-8") for name in texts})


def sound(faults: Iterable[Fault], copy: Copy) -> Iterable[Outcome]:
    """Runs the checks of faults, each once, without any of these."""
    limits = {fault.check: fault.seconds or SECONDS for fault in faults}  # also of those that are found by not ending
    for check, limit in limits.items():
        begin = time.monotonic()
        status, text = copy.run(check, limit)
        yield outcome(None, check, check, status, text, time.monotonic() - begin)


def chosen(names: Sequence[str]) -> list[Fault]:
    """The faults of some names, or all; PlantError for a name that there isn't."""
    known = {fault.name: fault for fault in FAULTS}
    if unknown := [name for name in names if name not in known]:
        raise PlantError(f"no fault is named {', '.join(unknown)}; see --list")
    return [known[name] for name in names] or list(FAULTS)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this fault; may be repeated")
    parser.add_argument("--sound", action="store_true", help="run the checks without faults: each must succeed")
    parser.add_argument("--list", action="store_true", help="show the faults and their checks")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    try:
        faults = chosen(options.only)
        installed()
        for fault in faults:
            planted_text(fault)
    except PlantError as error:
        print(error, file=sys.stderr)
        return 2
    if options.list:
        rows = [{"name": fault.name, "files": sorted(planted_text(fault)), "check": fault.check} for fault in faults]
        print(json.dumps(rows, indent=2) if options.json else "\n".join(f"{r['name']:36} {r['check']}" for r in rows))
        return 0
    done: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="rlx-planted-") as name:
        copy = Copy(Path(name))
        for result in (sound if options.sound else plant)(faults, copy):
            done.append(result)
            if not options.json:
                print(f"{result.status:10} {result.seconds:6.1f} s  {result.name}", flush=True)
                if not result.good:
                    print(f"    {result.check}\n" + "\n".join(f"    | {line}" for line in result.why.splitlines()))
    good = sum(result.good for result in done)
    if options.json:
        print(json.dumps({"good": good, "of": len(done), "outcomes": [asdict(result) for result in done]}, indent=2))
    else:
        print(f"{good} of {len(done)} {'checks succeed' if options.sound else 'faults are found'}")
    return 0 if good == len(done) else 1


if __name__ == "__main__":
    sys.exit(main())
