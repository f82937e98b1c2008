# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs of a fuzzer: tasks by number, findings told apart and made smaller, a report. Needs no MLIR."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rlx_mlir.errors import InputError, reason_of
from rlx_mlir.fuzz.pool import Outcome, Task, Worker, run_all

#: For each fuzzer: suffix of its cases, seconds that one may take, MiB of memory that its child may take for cases.
FUZZERS = {
    "graphs": (".mlir", 120.0, 0),
    "derivatives": (".mlir", 120.0, 0),
    "gguf": (".gguf", 20.0, 512),
    "text": (".mlir", 30.0, 4096),
    "bytecode": (".mlirbc", 30.0, 4096),
    "scaling": (".mlir", 240.0, 0),
    "templates": (".jinja", 20.0, 256),
    "folders": (".folder", 20.0, 512),
}
#: Fuzzers whose cases can be made smaller.
_SMALLER = ("graphs", "text")
#: Kinds whose messages are numbers: findings of these are told apart by their operations.
_BY_VALUE = ("mismatch", "bits", "batch", "rounding", "derivative")
#: Findings that are made smaller, and seconds that this may take for each.
_REDUCED, _REDUCTION_SECONDS = 40, 120.0


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        fuzzer: one of FUZZERS.
        seed: of all decisions; the case of a seed and a number is always the same.
        count: cases; 0 for as many as there is time for.
        minutes: after which no case is begun; 0 for no limit.
        jobs: cases at one time.
        out: folder of findings.
        first: number of the first case.
        settings: further entries of each task.
    """

    fuzzer: str
    seed: int = 0
    count: int = 0
    minutes: float = 0.0
    jobs: int = 1
    out: Path = Path("fuzz-findings")
    first: int = 0
    settings: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.count <= 0 and self.minutes <= 0:
            raise InputError("a fuzzer needs an end: a number of cases or of minutes above 0")


@dataclass
class Finding:
    """Something wrong, with the file that shows it.

    Attributes:
        kind: crash, hang, memory, exception, mismatch, bits, batch, rounding, scaling, compile, lower, interpret,
            execute, roundtrip.
        owner: `ours` or `upstream`.
        message: of the smallest case.
        file: the case.
        index: number of the case that found it.
        count: cases that showed the same.
        where: operations of the case, or what else tells it from others.
    """

    kind: str
    owner: str
    message: str
    file: str
    index: int
    where: str = ""
    count: int = 1

    @property
    def command(self) -> str:
        """Shows it again."""
        return f"rlx fuzz replay {self.file}"


@dataclass
class Report:
    """What a run did and found."""

    plan: Plan
    cases: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    next_index: int = 0
    interrupted: bool = False

    def to_dict(self) -> dict[str, object]:
        """The report as plain data."""
        return {
            "fuzzer": self.plan.fuzzer,
            "seed": self.plan.seed,
            "cases": self.cases,
            "next_index": self.next_index,
            "interrupted": self.interrupted,
            "seconds": round(self.seconds, 1),
            "statuses": dict(self.statuses),
            "ops": dict(sorted(self.ops.items())),
            "findings": [{**vars(found), "command": found.command} for found in self.findings],
        }


def run(plan: Plan, say: Callable[[str], None] | None = None) -> Report:
    """Runs a fuzzer; `say` gets a line for each finding."""
    suffix, _, _ = FUZZERS[plan.fuzzer]
    report = Report(plan)
    begin = time.monotonic()
    deadline = begin + plan.minutes * 60 if plan.minutes else float("inf")
    with tempfile.TemporaryDirectory(prefix="rlx-fuzz-") as name:
        folder = Path(name)

        def tasks() -> Iterator[Task]:
            for index in itertools.count(plan.first) if not plan.count else range(plan.first, plan.first + plan.count):
                path = folder / f"{plan.fuzzer}-{plan.seed}-{index}{suffix}"
                yield {"seed": plan.seed, "index": index, "file": str(path), **plan.settings}

        collector = _Collector(report, folder, say)
        try:
            for task, outcome in run_all(
                lambda: make_worker(plan.fuzzer), tasks(), plan.jobs, lambda: time.monotonic() > deadline
            ):
                collector.take(task, outcome)
        except KeyboardInterrupt:
            report.interrupted = True
            if say is not None:
                say("interrupted")
        finally:
            collector.close()
    report.seconds = time.monotonic() - begin
    return report


def make_worker(fuzzer: str) -> Worker:
    """A child process for a fuzzer."""
    _, seconds, megabytes = FUZZERS[fuzzer]
    return Worker(fuzzer, seconds=seconds, megabytes=megabytes)


def replay(path: Path) -> Outcome:
    """Runs the case in a file in a child process."""
    worker = make_worker(fuzzer_of(path))
    try:
        return worker.run({"file": str(path)})
    finally:
        worker.close()


def fuzzer_of(path: Path) -> str:
    """Which fuzzer a case belongs to; InputError where the file doesn't tell."""
    try:
        with path.open("rb") as file:
            head = file.read(4000)
    except OSError as error:
        raise InputError(f"{path} can't be read: {reason_of(error)}") from None
    if path.suffix == ".gguf" or head.startswith(b"GGUF"):
        return "gguf"
    if head.startswith(b"ML\xefR"):
        return "bytecode"
    by_suffix = {suffix: fuzzer for fuzzer, (suffix, _, _) in FUZZERS.items() if suffix not in (".mlir", ".gguf")}
    if path.suffix in by_suffix:
        return by_suffix[path.suffix]
    marks = (
        (b'// fuzz: {"fuzzer": "derivatives"', "derivatives"),
        (b"// fuzz: ", "graphs"),
        (b"// fuzz text: ", "text"),
        (b"// fuzz scaling: ", "scaling"),
    )
    for mark, fuzzer in marks:
        if mark in head:
            return fuzzer
    raise InputError(f"{path} isn't a case of a fuzzer: it is no GGUF file and has no line '// fuzz: …'")


def signature(outcome: Outcome) -> str:
    """What findings with one cause have in common: kind, and message without numbers, names and places."""
    text = re.split(r"\nreproducer: ", str(outcome.get("message", "")))[0]
    lines = [line for line in text.splitlines() if "it reported an error, but didn't raise" not in line]
    last = lines[-1] if lines else ""  # of several, the first say where
    last = re.sub(r".*?pass '[^']*': |block '[^']*' |\S*[/\\]\S*", "", last)
    last = re.sub(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[+-]?\d+)?|'[^']*'|\"[^\"]*\"|`[^`]*`", "N", " ".join(last.split()))
    return f"{outcome.get('kind')}: {last[:300]}"


class _Collector:
    """Counts outcomes, and keeps findings: the first of each kind, made smaller."""

    def __init__(self, report: Report, folder: Path, say: Callable[[str], None] | None) -> None:
        self._report, self._folder, self._say = report, folder, say
        self._seen: dict[str, Finding] = {}
        self._worker: Worker | None = None

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()

    def take(self, task: Task, outcome: Outcome) -> None:
        report = self._report
        report.cases += 1
        report.next_index = max(report.next_index, task["index"] + 1)
        report.statuses[outcome["status"]] += 1
        report.ops.update(outcome.get("ops", {}))
        if outcome["status"] != "finding":
            return
        found = self._seen.get(signature(outcome)) if outcome["kind"] not in _BY_VALUE else None
        if found is None:
            path, last = self._reduce(Path(task["file"]), outcome)
            where = " ".join(sorted(last.get("ops", {}))) or str(last.get("where", ""))
            keys = {signature(outcome), f"{signature(last)} {where}"}
            found = next((self._seen[key] for key in sorted(keys) if key in self._seen), None)
            if found is None:
                owner = last.get("owner") or owner_of(last)
                found = Finding(last["kind"], owner, last["message"][:2000], str(self._keep(path, task, last)),
                                task["index"], where, 0)  # fmt: skip
                report.findings.append(found)
                if self._say is not None:
                    first = found.message.splitlines()[0] if found.message else ""
                    self._say(f"{found.kind} ({found.owner}): {first[:160]}\n  {found.command}")
            for key in keys:
                if outcome["kind"] not in _BY_VALUE or key.endswith(where):
                    self._seen.setdefault(key, found)
        found.count += 1
        for leftover in self._folder.glob(f"{Path(task['file']).stem}*"):
            leftover.unlink()

    def _keep(self, path: Path, task: Task, outcome: Outcome) -> Path:
        out = self._report.plan.out
        out.mkdir(parents=True, exist_ok=True)
        target = out / Path(task["file"]).name
        for suffix in {path.suffix, ".npz"}:
            source = path.with_suffix(suffix)
            if source.exists():
                shutil.copyfile(source, target.with_suffix(suffix))
        target.with_suffix(".txt").write_text(
            json.dumps({k: v for k, v in outcome.items() if k != "details"}, indent=1)
            + "\n\n"
            + str(outcome.get("details", outcome["message"]))
        )
        return target

    def _reduce(self, path: Path, outcome: Outcome) -> tuple[Path, Outcome]:
        """The smallest case that shows the same, and its outcome."""
        fuzzer = self._report.plan.fuzzer
        if fuzzer not in _SMALLER or outcome["kind"] in ("hang", "memory") or len(self._report.findings) >= _REDUCED:
            return path, outcome
        if self._worker is None:
            self._worker = make_worker(fuzzer)
        deadline, stem = time.monotonic() + _REDUCTION_SECONDS, path.stem
        for step in itertools.count():
            request = {key: outcome.get(key) for key in ("run", "output")}
            made = self._worker.run(
                {"reduce": str(path), "folder": str(self._folder), "prefix": f"{stem}-r{step}", **request}
            )
            for file in made.get("files", ()):
                if time.monotonic() > deadline:
                    return path, outcome
                tried = self._worker.run({"file": file})
                if tried["status"] == "finding" and _same(tried, outcome):
                    path, outcome = Path(file), tried
                    break
            else:
                return path, outcome
        raise AssertionError("the loop returns")


def _same(smaller: Outcome, outcome: Outcome) -> bool:
    """Whether a smaller case shows what the larger one did."""
    if smaller["kind"] != outcome["kind"]:
        return False
    return outcome["kind"] in _BY_VALUE or signature(smaller) == signature(outcome)


#: Frames of a stack trace that say nothing about whose code was running.
_NEUTRAL = re.compile(r"PrintStackTrace|SignalHandler|libc\.so|libpthread|libstdc|__assert|abort|raise|linux-vdso")
_FRAME = re.compile(r"^\s*#\d+ 0x[0-9a-f]+ (.*)$", re.MULTILINE)


def owner_of(outcome: Outcome) -> str:
    """`upstream` where a crash was in code of MLIR or LLVM that ours didn't call directly, else `ours`."""
    if outcome["kind"] not in ("crash", "hang"):
        return "ours"
    frames = [frame for frame in _FRAME.findall(str(outcome.get("details", ""))) if not _NEUTRAL.search(frame)]
    for frame in frames:
        # Our functions have no names there: they are hidden. Named ones in our library are MLIR's, linked into it.
        if "rlx::" in frame or (frame.startswith("(") and "_compiler." in frame):
            return "ours"
        if "PyEval" in frame or "Vectorcall" in frame or "OpToOpPassAdaptor" in frame or "PassManager" in frame:
            # A pass in Python called MLIR, or MLIR's pass manager ran one of its own.
            return "ours" if "Py" in frame.partition("/")[0] else "upstream"
    return "upstream" if frames else "ours"
