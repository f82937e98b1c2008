# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ours beside others, in one process and in turns, with one number of threads.

Run as a module, it reads a request from stdin and writes one JSON object a line: progress, rows, and what went wrong.
`rlx bench` starts it once for each number of threads, since some libraries read that number when they are imported, and
since a crash of one of them ends its process only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rlx_mlir.activations import AUTO
from rlx_mlir.compiler import CompileOptions
from rlx_mlir.files import Json
from rlx_mlir.measure.models import Implementation, Ours, Setting
from rlx_mlir.measure.profile import sample_ids
from rlx_mlir.measure.rivals import RIVALS, Rival, check
from rlx_mlir.measure.roofline import rounded_set
from rlx_mlir.measure.summary import ModelWork, least_seconds, total
from rlx_mlir.measure.timing import Series, compare, interleave, seconds_per_call, versions
from rlx_mlir.measure.work import ModuleWork
from rlx_mlir.measure.workloads import WORKLOADS, Workload
from rlx_mlir.models.bundle import bundle_at
from rlx_mlir.models.config import ModelConfig, check_context
from rlx_mlir.models.hub import resolve
from rlx_mlir.models.opening import open_model
from rlx_mlir.runtime.work import Work

if TYPE_CHECKING:
    from rlx_mlir.measure.device import DeviceProbe
    from rlx_mlir.measure.roofline import Probe, Roofline
    from rlx_mlir.models.model import Model
    from rlx_mlir.runtime.cuda import CudaExecutable

#: Said of progress: a few words.
Say = Callable[[str], None]
Row = dict[str, Json]

#: Tokens of the prompt before decode steps.
_DECODE_PROMPT = 32


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        threads: of everything.
        vs: names of rivals.
        model: a file, or the name of a known model; empty for workloads.
        kernels: names of workloads.
        prompts: lengths of prompts.
        decode: steps after a short prompt, and after each of `contexts`: tokens that are in the cache already.
        sequences: numbers of sequences that are decoded together, behind a short prompt each.
        activations: of our model, one after the other; none for the way that it is loaded with where nothing is said.
        kv_dtype: of our model's cache.
        rounds: of everything in turns.
        floor: seconds that one measurement of a workload takes at least.
        device: what runs ours: cpu or cuda.
    """

    threads: int
    vs: tuple[str, ...] = ()
    model: str = ""
    kernels: tuple[str, ...] = ()
    prompts: tuple[int, ...] = (16, 128, 512)
    decode: int = 48
    contexts: tuple[int, ...] = ()
    sequences: tuple[int, ...] = ()
    activations: tuple[str, ...] = ("int8",)
    kv_dtype: str | None = None
    rounds: int = 5
    floor: float = 0.02
    device: str = "cpu"

    @property
    def positions(self) -> int:
        """That a model's cache needs."""
        if not self.decode:
            return max((*self.prompts, 1))
        # Of sequences that are decoded together, the first goes on while the prompts of the others are processed.
        before = max((_DECODE_PROMPT, *self.contexts, *(_DECODE_PROMPT + count for count in self.sequences)))
        return max((*self.prompts, before + 1 + self.decode))

    def to_json(self) -> str:
        """The request as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Request:
        """The request from its text."""
        values: dict[str, Json] = {
            name: tuple(own) if isinstance(own, list) else own for name, own in json.loads(text).items()
        }
        return Request(**values)


@dataclass
class _Limits:
    """The machine's limits, measured in the rounds of everything else."""

    request: Request
    working_set: int
    probe: DeviceProbe | Probe = field(init=False)

    def __post_init__(self) -> None:
        from rlx_mlir.measure.device import DeviceProbe
        from rlx_mlir.measure.roofline import Probe

        on_gpu = self.request.device == "cuda"
        self.probe = DeviceProbe() if on_gpu else Probe(self.request.threads, self.working_set)

    def take(self, series: dict[str, Series]) -> Roofline:
        """The roofline of the rounds; its series are taken out of the others."""
        return self.probe.roofline({name: series.pop(name) for name in self.probe.figures()})


def about(request: Request) -> dict[str, str]:
    """Versions of ours and of rivals, and the machine."""
    from rlx_mlir import native
    from rlx_mlir.runtime import tuned

    packages = [package for name in request.vs for package in RIVALS[name].packages]
    found = {**versions(["rlx-mlir", *dict.fromkeys(["numpy", *packages])]), "cpu": native.host_processor()[1]}
    if request.device == "cuda":
        found |= {f"gpu {name}": str(value) for name, value in tuned.device_parts().items()}
    return found


def run(request: Request, say: Say) -> Iterator[Row]:
    """The rows of a request, as they are measured; a rival that fails has a row with the reason."""
    rivals = [RIVALS[name] for name in request.vs if not RIVALS[name].missing]
    if request.model:
        yield from _model(request, rivals, say)
        return
    for name in request.kernels:
        say(f"{name}, {request.threads} threads")
        yield from _workload(WORKLOADS[name](), rivals, request)


# Workloads --------------------------------------------------------------------------------------------


def _workload(workload: Workload, rivals: Sequence[Rival], request: Request) -> Iterator[Row]:
    import rlx_mlir as rlx

    graph = workload.build()
    executable = rlx.compile(graph, threads=request.threads, target=request.device)
    executable.set_params(workload.params)
    check(workload, "rlx-mlir", executable.run(workload.inputs)["y"])
    calls: dict[str, Callable[[], object]] = {"ours": lambda: executable.run(workload.inputs)["y"]}
    rows: list[Row] = []
    for rival in rivals:
        if rival.prepare is None:
            continue
        try:
            runner = rival.prepare(workload, request.threads)
            check(workload, rival.name, runner())
        except Exception as error:  # whatever a rival raises is a row of the table
            rows.append(_failure(workload.name, request.threads, rival.name, error))
            continue
        calls[rival.name] = runner
    work = sum(ModuleWork(graph, CompileOptions(target=request.device)).at({}), Work())
    limits = _Limits(request, work.read)
    figures = {name: seconds_per_call(call, request.floor) for name, call in calls.items()}
    if request.device == "cuda":
        figures["ours"] = seconds_by_events(executable, workload.inputs, request.floor)
    series = interleave({**figures, **limits.probe.figures()}, request.rounds)
    bounds = limits.take(series)
    ours = series.pop("ours")
    least, bound = least_seconds([(work, False)], bounds)
    own = {
        "what": workload.name,
        "threads": request.threads,
        "unit": "us",
        "ours": _scaled(ours, 1e6),
        "gflops": work.flops / ours.median / 1e9,
        "gbps": work.bytes / ours.median / 1e9,
        "roofline": least / ours.median,
        "bound": bound,
        "machine": bounds.to_dict(),
    }
    yield from _against(own, ours, series, 1e6, higher_is_better=False)
    yield from rows


def seconds_by_events(executable: CudaExecutable, inputs: Mapping[str, object], floor: float) -> Callable[[], float]:
    """A figure: seconds that the kernels of one run take on a GPU, by events, for arrays that are there.

    Args:
        executable: a `CudaExecutable` with its parameters.
        inputs: arrays of numpy.
        floor: seconds that one measurement takes at least.
    """
    from rlx_mlir.runtime.device import DeviceArray

    placed = {name: DeviceArray.from_numpy(array, device=executable.device) for name, array in inputs.items()}
    call = executable.bind(placed, device_outputs=True)

    def figure() -> float:
        call()
        executable.profile(True)
        begin = time.perf_counter()
        call()
        while time.perf_counter() - begin < floor:
            call()
        executable.profile(False)
        return float(sum(seconds for _, seconds in executable.timings()))

    return figure


def _scaled(series: Series, factor: float) -> dict[str, object]:
    return Series([value * factor for value in series.values]).to_dict()


def _against(
    own: Row, ours: Series, others: Mapping[str, Series], factor: float, *, higher_is_better: bool
) -> Iterator[Row]:
    """A row for each rival, with its share of the limits of our work; one row of ours alone where there is none."""
    if not others:
        yield {**own, "vs": None, "noise": ours.noise}
    for name, series in others.items():
        found = compare(ours, series, higher_is_better=higher_is_better)
        times = series.median / ours.median if higher_is_better else ours.median / series.median
        theirs = {"theirs": _scaled(series, factor), "their_roofline": own["roofline"] * times}
        yield {**own, "vs": name, **theirs, **found.to_dict()}


def _failure(what: str, threads: int, rival: str, error: Exception) -> Row:
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return {"what": what, "threads": threads, "vs": rival, "error": text[:300]}


# Models -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """A figure of a model.

    Attributes:
        what: its name.
        work: of our model, each call's, and whether its products are of integers.
        tokens: that the work is for.
        rate: tokens per second of an implementation.
    """

    what: str
    work: list[tuple[Work, bool]]
    tokens: int
    rate: Callable[[Implementation], float]


def _cases(request: Request, model: Model, counted: ModelWork) -> Iterator[_Case]:
    vocab = min(model.config.vocab, model.texts)
    for length in request.prompts:
        rate = partial(_prefill, ids=sample_ids(length, vocab))
        yield _Case(f"prefill {length}", counted.prompt(length), length, rate)
    for before in (_DECODE_PROMPT, *request.contexts) if request.decode else ():
        what = "decode" if before == _DECODE_PROMPT else f"decode at {before}"
        steps = partial(_decode, ids=sample_ids(before, vocab), steps=request.decode)
        yield _Case(what, counted.decode(before + request.decode // 2), 1, steps)
    for count in request.sequences if request.decode else ():
        together = partial(_together, ids=sample_ids(_DECODE_PROMPT, vocab), count=count, steps=request.decode)
        work = counted.decode_together(_DECODE_PROMPT + request.decode // 2, count)
        yield _Case(f"decode {count} together", work, count, together)


def _prefill(implementation: Implementation, ids: list[int]) -> float:
    return implementation.prefill(ids)


def _decode(implementation: Implementation, ids: list[int], steps: int) -> float:
    return implementation.decode(ids, steps)


def _together(implementation: Implementation, ids: list[int], count: int, steps: int) -> float:
    prompts = [[number, *ids[1:]] for number in range(count)]  # no two begin alike
    return implementation.decode_together(prompts, steps)


def _model(request: Request, rivals: Sequence[Rival], say: Say) -> Iterator[Row]:
    is_bundle = bundle_at(request.model) is not None
    path = request.model if is_bundle else str(resolve(request.model))
    with open_model(path) as file:
        config = ModelConfig.from_gguf(file)
    positions = max(check_context(config, request.positions), check_context(config, None))
    setting = Setting(path, request.threads, positions, is_bundle)
    opponents: dict[str, Implementation] = {}
    for rival in rivals:
        say(f"loading the model for {rival.name}, {request.threads} threads")
        assert rival.load is not None
        try:
            opponents[rival.name] = rival.load(setting)
        except Exception as error:  # whatever a rival raises is a row of the table
            yield _failure(request.model, request.threads, rival.name, error)
    for asked in request.activations or (AUTO,):
        say(f"loading the model, {request.threads} threads")
        ours = Ours(setting, asked, request.device, request.kv_dtype)
        activations = ours.model.activations
        counted = ModelWork(ours.model)
        limits = _Limits(request, rounded_set(total(counted.decode(0)).read))
        for case in _cases(request, ours.model, counted):
            say(f"{case.what}, {request.threads} threads, {activations}")
            for row in _measured(case, ours, opponents, limits):
                yield {**row, "activations": activations, "threads": request.threads}


def _measured(case: _Case, ours: Ours, opponents: dict[str, Implementation], limits: _Limits) -> Iterator[Row]:
    """The rows of a figure; a rival that fails has one with the reason, and no more."""
    case.rate(ours)
    for name, opponent in list(opponents.items()):
        try:
            case.rate(opponent)
        except Exception as error:  # as above
            del opponents[name]
            yield _failure(case.what, limits.request.threads, name, error)
    everyone = {"ours": ours, **opponents}
    figures: dict[str, Callable[[], float]] = {name: partial(case.rate, own) for name, own in everyone.items()}
    probes = limits.probe.figures()
    for probe in probes.values():
        probe()
    series = interleave({**figures, **probes}, limits.request.rounds, warm=False)
    bounds = limits.take(series)
    rate = series.pop("ours")
    least, bound = least_seconds(case.work, bounds)
    work = total(case.work)
    integer = sum(own.flops for own, is_integer in case.work if is_integer)
    row = {
        "what": case.what,
        "unit": "tokens/s",
        "ours": rate.to_dict(),
        "roofline": least * rate.median / case.tokens,
        "bound": bound,
        "products": "int8" if 2 * integer > work.flops else "f32",
        "gbps": work.bytes / case.tokens * rate.median / 1e9,
        "gflops": work.flops / case.tokens * rate.median / 1e9,
        "machine": bounds.to_dict(),
    }
    yield from _against(row, rate, series, 1.0, higher_is_better=True)


# The process ------------------------------------------------------------------------------------------


def cpus(threads: int) -> list[int]:
    """So many of the CPUs that this process may use, of different cores as far as there are enough."""
    allowed = sorted(os.sched_getaffinity(0))
    cores: dict[str, list[int]] = {}
    for cpu in allowed:
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", encoding="ascii") as file:
                core = file.read().strip()
        except OSError:
            core = str(cpu)
        cores.setdefault(core, []).append(cpu)
    rows = list(cores.values())
    ordered = [own[depth] for depth in range(max(map(len, rows))) for own in rows if depth < len(own)]
    return ordered[:threads]


def main() -> None:
    """Answers the request on stdin."""
    request = Request.from_json(sys.stdin.read())
    # Libraries that start as many threads as there are CPUs see as many as everybody gets.
    os.sched_setaffinity(0, cpus(request.threads))

    def write(**line: object) -> None:
        print(json.dumps(line), flush=True)

    from rlx_mlir.errors import RlxError

    try:
        write(about=about(request))
        for row in run(request, lambda text: write(progress=text)):
            write(row=row)
    except RlxError as error:
        write(error=str(error))


if __name__ == "__main__":
    main()
