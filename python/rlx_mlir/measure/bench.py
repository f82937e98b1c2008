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
from typing import TYPE_CHECKING, Any

from rlx_mlir.measure.rivals import RIVALS, Rival, check
from rlx_mlir.measure.timing import Series, compare, interleave, seconds_per_call, versions
from rlx_mlir.measure.workloads import WORKLOADS, Workload

if TYPE_CHECKING:
    from rlx_mlir.runtime.cuda import CudaExecutable

#: Said of progress: a few words.
Say = Callable[[str], None]
Row = dict[str, Any]

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
        prompts: lengths of prompts; decode: steps after a short one.
        activations: of our model.
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
    activations: tuple[str, ...] = ("int8",)
    rounds: int = 5
    floor: float = 0.02
    device: str = "cpu"

    def to_json(self) -> str:
        """The request as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Request:
        """The request from its text."""
        values: dict[str, Any] = {
            name: tuple(own) if isinstance(own, list) else own for name, own in json.loads(text).items()
        }
        return Request(**values)


@dataclass
class _Limits:
    """The machine's limits, measured in the rounds of everything else."""

    request: Request
    working_set: int
    probe: Any = field(init=False)

    def __post_init__(self) -> None:
        from rlx_mlir.measure.device import DeviceProbe
        from rlx_mlir.measure.roofline import Probe

        on_gpu = self.request.device == "cuda"
        self.probe = DeviceProbe() if on_gpu else Probe(self.request.threads, self.working_set)

    def take(self, series: dict[str, Series]) -> Any:
        """The roofline of the rounds; its series are taken out of the others."""
        return self.probe.roofline({name: series.pop(name) for name in self.probe.figures()})


def about(request: Request) -> dict[str, str]:
    """Versions of ours and of rivals, and the machine."""
    from rlx_mlir import native
    from rlx_mlir.runtime import tuned

    packages = [package for name in request.vs for package in RIVALS[name].packages]
    found = {**versions(["rlx-mlir", *dict.fromkeys(["numpy", *packages])]), "cpu": native.host_target()[1]}
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
    from rlx_mlir.compiler import CompileOptions
    from rlx_mlir.measure.summary import least_seconds
    from rlx_mlir.measure.work import ModuleWork, Work

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
    """A row for each rival; one row of ours alone where there is none."""
    if not others:
        yield {**own, "vs": None, "noise": ours.noise}
    for name, series in others.items():
        found = compare(ours, series, higher_is_better=higher_is_better)
        yield {**own, "vs": name, "theirs": _scaled(series, factor), **found.to_dict()}


def _failure(what: str, threads: int, rival: str, error: Exception) -> Row:
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return {"what": what, "threads": threads, "vs": rival, "error": text[:300]}


# Models -----------------------------------------------------------------------------------------------


class Ours:
    """rlx-mlir: what `Model.generate` runs, with greedy choices."""

    def __init__(self, path: str, threads: int, activations: str, device: str = "cpu") -> None:
        import rlx_mlir as rlx

        self.model = rlx.load_model(path, threads=threads, activations=activations, target=device)

    def prefill(self, ids: list[int]) -> float:
        """Tokens per second of one prompt."""
        self.model.generate(ids, max_tokens=1, greedy=True).read()
        return self.model.stats.prompt_rate

    def decode(self, ids: list[int], steps: int) -> float:
        """Tokens per second of steps after a prompt."""
        self.model.generate(ids, max_tokens=steps + 1, greedy=True, ignore_eos=True).read()
        return self.model.stats.decode_rate


class LlamaCpp:
    """llama.cpp through its Python package."""

    def __init__(self, path: str, threads: int) -> None:
        import llama_cpp

        self.model = llama_cpp.Llama(
            path, n_ctx=2048, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def prefill(self, ids: list[int]) -> float:
        """Tokens per second of one prompt."""
        self.model.reset()
        begin = time.perf_counter()
        self.model.eval(ids)
        return len(ids) / (time.perf_counter() - begin)

    def decode(self, ids: list[int], steps: int) -> float:
        """Tokens per second of steps after a prompt."""
        self.model.reset()
        self.model.eval(ids)
        begin = time.perf_counter()
        for step in range(steps):
            self.model.eval([100 + step])
        return steps / (time.perf_counter() - begin)


def _prefill(implementation: Any, ids: list[int]) -> float:
    return float(implementation.prefill(ids))


def _decode(implementation: Any, ids: list[int], steps: int) -> float:
    return float(implementation.decode(ids, steps))


def _model(request: Request, rivals: Sequence[Rival], say: Say) -> Iterator[Row]:
    from rlx_mlir.measure.profile import sample_ids
    from rlx_mlir.measure.roofline import rounded_set
    from rlx_mlir.measure.summary import ModelWork, least_seconds, total
    from rlx_mlir.models.hub import resolve

    path = str(resolve(request.model))
    opponents: dict[str, Any] = {}
    say(f"loading, {request.threads} threads")
    for rival in rivals:
        if rival.name == "llama.cpp":
            try:
                opponents[rival.name] = LlamaCpp(path, request.threads)
            except Exception as error:  # as above
                yield _failure(request.model, request.threads, rival.name, error)
    for activations in request.activations:
        ours = Ours(path, request.threads, activations, request.device)
        counted = ModelWork(ours.model)
        vocab = ours.model.config.vocab
        middle = counted.decode(min(_DECODE_PROMPT + request.decode // 2, ours.model.context - 1))
        limits = _Limits(request, rounded_set(total(middle).read))
        everyone = {"ours": ours, **opponents}
        cases: list[tuple[str, list[tuple[Any, bool]], int, Callable[[Any], float]]] = []
        for length in request.prompts:
            prompt = partial(_prefill, ids=sample_ids(length, vocab))
            cases.append((f"prefill {length}", counted.prompt(length), length, prompt))
        if request.decode:
            steps = partial(_decode, ids=sample_ids(_DECODE_PROMPT, vocab), steps=request.decode)
            cases.append(("decode", middle, 1, steps))
        for what, work, tokens, figure in cases:
            say(f"{what}, {request.threads} threads, {activations}")
            figures: dict[str, Callable[[], float]] = {name: partial(figure, own) for name, own in everyone.items()}
            series = interleave({**figures, **limits.probe.figures()}, request.rounds)
            bounds = limits.take(series)
            rate = series.pop("ours")
            least, bound = least_seconds(work, bounds)
            row = {
                "what": what,
                "activations": activations,
                "threads": request.threads,
                "unit": "tokens/s",
                "ours": rate.to_dict(),
                "roofline": least * rate.median / tokens,
                "bound": bound,
                "gbps": total(work).bytes / tokens * rate.median / 1e9,
                "gflops": total(work).flops / tokens * rate.median / 1e9,
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
