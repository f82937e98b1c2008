# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which kernels take the time, and how near each comes to what the machine can do."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rlx_mlir.errors import ContextLengthError, InputError
from rlx_mlir.measure.device import DeviceProbe
from rlx_mlir.measure.programs import executable_of, work_of
from rlx_mlir.measure.roofline import Probe, Roofline, rounded_set
from rlx_mlir.measure.timing import Series
from rlx_mlir.models import decoder
from rlx_mlir.models.model import Model
from rlx_mlir.models.session import Session
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.runtime.work import Call, Work

#: Blocks that a table names before it only counts the others.
_LISTED = 3
#: Ids of the tokens of a profile are spread over the vocabulary by this step.
_STRIDE = 37
#: Measurements of the machine's limits after each round.
_PROBES = 4


@dataclass(frozen=True)
class Run:
    """One measured run of a module.

    Attributes:
        begin: when it started, in seconds of `time.perf_counter`.
        seconds: what it took as a whole.
        calls: seconds of each call of the plan.
        sizes: of the module's symbols.
        position: tokens in the caches before it.
    """

    begin: float
    seconds: float
    calls: tuple[float, ...]
    sizes: Mapping[str, int]
    position: int


def measured(executable: Executable, step: Callable[[], object], sizes: Mapping[str, int], position: int = 0) -> Run:
    """Runs `step`, which runs the executable once, and notes what each of its calls took.

    Args:
        sizes: of the symbols that aren't at their declared maximum.
        position: tokens in the caches before it.
    """
    executable.profile(True)
    begin = time.perf_counter()
    step()
    seconds = time.perf_counter() - begin
    executable.profile(False)
    spent = tuple(own for _, own in executable.timings())
    return Run(begin, seconds, spent, {**dict(executable.artifact.symbols), **sizes}, position)


@dataclass(frozen=True)
class KernelProfile:
    """The calls of one kernel in one run of a module: medians over the runs.

    Attributes:
        name, kind, template: of the kernel; `template` is "generic" where none covers it.
        ops: its primitives.
        blocks: that its calls come from.
        calls: of one run.
        seconds: of all its calls in one run.
        share: of the time of all kernels, 0 to 1.
        work: of all its calls in one run.
        bound: "memory" or "arithmetic": which of the two limits it.
        fraction: the least time that the roofline allows, over the time taken. Above 1 where operands come from a
            cache that is faster than the memory that was measured.
        integer: whether its products are of integers, and so its bound.
    """

    name: str
    kind: str
    template: str
    ops: tuple[str, ...]
    blocks: tuple[str, ...]
    calls: int
    seconds: float
    share: float
    work: Work
    bound: str
    fraction: float
    integer: bool

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.work.bytes / self.seconds if self.seconds else 0.0

    @property
    def flops(self) -> float:
        """Operations per second."""
        return self.work.flops / self.seconds if self.seconds else 0.0

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.work.flops / self.work.bytes if self.work.bytes else 0.0

    @property
    def where(self) -> str:
        """The blocks in few words."""
        more = len(self.blocks) - _LISTED
        return ", ".join(self.blocks[:_LISTED]) + (f" and {more} more" if more > 0 else "")

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        return {
            "kernel": self.name,
            "class": self.kind,
            "template": self.template,
            "ops": list(self.ops),
            "blocks": list(self.blocks),
            "calls": self.calls,
            "seconds": self.seconds,
            "share": self.share,
            "bytes": self.work.bytes,
            "flops": self.work.flops,
            "bytes_per_second": self.bandwidth,
            "flops_per_second": self.flops,
            "bound": self.bound,
            "roofline": self.fraction,
        }


@dataclass
class ProgramProfile:
    """What was measured of one module.

    Attributes:
        name: of the module.
        calls: of its plan.
        templates: where each kernel's code comes from.
        runs: in the order of time.
        work: of each call, for each run.
    """

    name: str
    calls: tuple[Call, ...]
    templates: Mapping[str, str]
    runs: list[Run]
    work: list[list[Work]]
    roofline: Roofline
    kernels: tuple[KernelProfile, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.kernels = _kernels(self)

    @property
    def tokens(self) -> int:
        """That one run processes: of the median one, where the last chunk of a prompt is shorter."""
        return statistics.median_high(run.sizes.get("seq", 1) for run in self.runs)

    @property
    def seconds(self) -> Series:
        """Of each run."""
        return Series([run.seconds for run in self.runs])

    @property
    def total(self) -> Work:
        """Of one run: the median one."""
        totals = [sum(own, Work()) for own in self.work]
        return sorted(totals, key=lambda work: work.flops)[len(totals) // 2]

    @property
    def in_kernels(self) -> float:
        """The part of a run's time that kernels take."""
        return statistics.median(sum(run.calls) / run.seconds for run in self.runs)

    @property
    def bound(self) -> str:
        """Whether reading memory or arithmetic takes longer at the limits of the machine."""
        memory, arithmetic = self._least_seconds
        return "memory" if memory >= arithmetic else "arithmetic"

    @property
    def fraction(self) -> float:
        """The least time of a run, for all of its bytes or operations, over the time that it took."""
        return max(self._least_seconds) / self.seconds.median

    @property
    def _least_seconds(self) -> tuple[float, float]:
        """For all bytes, and for all operations."""
        bounds = self.roofline
        arithmetic = sum(kernel.work.flops / bounds.arithmetic(kernel.integer) for kernel in self.kernels)
        return self.total.bytes / bounds.bandwidth, arithmetic

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        seconds, work = self.seconds, self.total
        return {
            "program": self.name,
            "runs": len(self.runs),
            "tokens": self.tokens,
            "seconds": seconds.to_dict(),
            "noise": seconds.noise,
            "tokens_per_second": self.tokens / seconds.median,
            "in_kernels": self.in_kernels,
            "bytes": work.bytes,
            "flops": work.flops,
            "bound": self.bound,
            "roofline": self.fraction,
            "kernels": [kernel.to_dict() for kernel in self.kernels],
        }


@dataclass(frozen=True)
class Profile:
    """What was measured of a model."""

    model: str
    programs: tuple[ProgramProfile, ...]
    roofline: Roofline

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        return {
            "model": self.model,
            "machine": self.roofline.to_dict(),
            "programs": [program.to_dict() for program in self.programs],
        }


def _kernels(program: ProgramProfile) -> tuple[KernelProfile, ...]:
    """The kernels of a program, the one that takes most time first."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for number, call in enumerate(program.calls):
        numbers[call.kernel].append(number)
    middle = _middle(program.work)
    spent = {
        name: statistics.median(sum(run.calls[number] for number in own) for run in program.runs)
        for name, own in numbers.items()
    }
    total = sum(spent.values()) or 1.0
    rows = []
    for name, own in numbers.items():
        first = program.calls[own[0]]
        work = sum((middle[number] for number in own), Work())
        memory = work.bytes / program.roofline.bandwidth
        arithmetic = work.flops / program.roofline.arithmetic(first.integer)
        rows.append(
            KernelProfile(
                name,
                first.kind,
                program.templates.get(name, "").partition(":")[0],
                first.ops,
                tuple(dict.fromkeys(program.calls[number].block for number in own)),
                len(own),
                spent[name],
                spent[name] / total,
                work,
                "memory" if memory >= arithmetic else "arithmetic",
                max(memory, arithmetic) / spent[name] if spent[name] else 0.0,
                first.integer,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _middle(work: list[list[Work]]) -> list[Work]:
    """The calls of the run whose work is the median."""
    return sorted(work, key=lambda own: sum(call.flops for call in own))[len(work) // 2]


def profile_model(
    model: Model,
    *,
    prompt_tokens: int = 128,
    decode: int = 32,
    rounds: int = 3,
    progress: Callable[[str], None] | None = None,
) -> Profile:
    """Measures prompts, and single tokens after them.

    Args:
        model: its executables are used as they are.
        prompt_tokens: of each prompt; it is processed in chunks of `model.chunk`.
        decode: tokens after each prompt; 0 for none.
        rounds: prompts.
        progress: called with a few words before each step.

    Raises InputError where a number is too small, ContextLengthError where the tokens exceed the context.
    """
    say = progress or (lambda _: None)
    for name, value, least in (("prompt_tokens", prompt_tokens, 1), ("decode", decode, 0), ("rounds", rounds, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"'{name}' must be an integer of at least {least}, but is {value!r}")
    if prompt_tokens + decode > model.context:
        raise ContextLengthError(
            f"{prompt_tokens} tokens of a prompt and {decode} after it are more than the context's {model.context}",
            requested=prompt_tokens + decode,
            limit=model.context,
        )
    ids = sample_ids(prompt_tokens, model.config.vocab)
    say("warming up")
    session = Session(model)
    session.prefill(ids)
    if decode:
        session.decode(ids[0])
    say("counting work")
    modules = {name: work_of(model, name) for name in decoder.PROGRAMS}
    largest = dict(executable_of(model, "decode").artifact.symbols)
    weights = sum(call.read for call in modules["decode"].at(largest, prompt_tokens))
    say("preparing to measure the machine")
    probe = DeviceProbe() if model.on_gpu else Probe(model.threads, rounded_set(weights))
    limits: dict[str, Series] = {name: Series() for name in probe.figures()}
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for name, run in _round(model, ids, decode):
            runs[name].append(run)
        # In turns with the model, so that both have the same machine.
        for _ in range(_PROBES):
            for name, figure in probe.figures().items():
                limits[name].values.append(figure())
    bounds = probe.roofline(limits)
    programs = tuple(
        ProgramProfile(
            name,
            modules[name].calls,
            executable_of(model, name).artifact.templates,
            own,
            [modules[name].at(run.sizes, run.position) for run in own],
            bounds,
        )
        for name, own in runs.items()
    )
    return Profile(str(model.file.path or "in memory"), programs, bounds)


def sample_ids(count: int, vocab: int) -> list[int]:
    """Token ids that are all over the vocabulary, the same at each call."""
    return [(100 + _STRIDE * number) % vocab for number in range(count)]


def _round(model: Model, ids: Sequence[int], decode: int) -> Iterator[tuple[str, Run]]:
    """A measured prompt, in chunks, and the tokens after it, each with its program."""
    session = Session(model)
    for start in range(0, len(ids), model.chunk):
        part = ids[start : start + model.chunk]
        sizes = {"seq": len(part), "outputs": 1}
        yield "prefill", measured(executable_of(model, "prefill"), partial(session.prefill, part), sizes, start)
    for position, token in enumerate(sample_ids(decode, model.config.vocab), start=len(ids)):
        yield "decode", measured(executable_of(model, "decode"), partial(session.decode, token), {}, position)
