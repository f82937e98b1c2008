# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what templates and schedules can do in several ways, kernel by kernel, and keeps what is faster here.

Every kernel has candidates: choices beside the rule's. All kernels of a module try one at a time, in turns with the
module as it is by rule. A candidate is taken for a kernel where it is faster by more than `LEAST_GAIN`, and noise
doesn't hide it. Then the module with all choices is measured against the one by rule, in turns again: only if that is
faster, too, are the choices kept.

On CPUs a kernel's times are the run time's, on GPUs they are those of events around its launches. The module as a whole
is measured from outside there: events keep the kernels of a chain apart, which run into each other otherwise.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir.checks import Option
from rlx_mlir.codegen.cpu import registry
from rlx_mlir.compiler import _check_module, build_artifact
from rlx_mlir.errors import CompileError, DeviceError, DeviceFaultError, InputError
from rlx_mlir.files import Json
from rlx_mlir.measure.profile import measured
from rlx_mlir.measure.subjects import ModelSubject, ModuleSubject, Sizes, Subject
from rlx_mlir.measure.timing import Comparison, Series, compare
from rlx_mlir.measure.work import ModuleWork
from rlx_mlir.models import decoder
from rlx_mlir.models.model import Model
from rlx_mlir.options import options_of
from rlx_mlir.place import located
from rlx_mlir.runtime import cache as compile_cache
from rlx_mlir.runtime import tuned
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.runtime.loading import executable as executable_for
from rlx_mlir.runtime.prepare import Prepared
from rlx_mlir.tuning.choices import AT, changes_bits, text_of

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule

log = logging.getLogger(__name__)

#: A candidate that is faster by less than this isn't taken.
LEAST_GAIN = 0.02
#: Prompts that are measured where nothing else is said: tokens.
CPU_PROMPTS, GPU_PROMPTS = (128,), (16, 128, 512)
#: Candidates of a kernel on a GPU at most: each is a module to compile.
TRIES = 8

Candidates = Sequence[Mapping[str, int]]


@dataclass(frozen=True)
class KernelGain:
    """A kernel for which other choices than the rule's are faster.

    Attributes:
        kernel: its name.
        size: of the measured calls: of a model's, the tokens that they process.
        choices: what is faster.
        gain: how many times faster, with its spread.
    """

    kernel: str
    size: int
    choices: Mapping[str, int]
    gain: Comparison


@dataclass
class ProgramTuning:
    """What was found for a module.

    Attributes:
        name: of the module.
        tried: candidates that were measured, of the kernel with most of them.
        symbol: what sizes are sizes of: "tokens" of a model, a symbol of another module, '' where none is dynamic.
        kernels: that got choices, for each size.
        gains: of the module as a whole, all choices together, by size; none where there are none.
        kept: the file with the choices; empty where they aren't kept.
    """

    name: str
    tried: int
    symbol: str = "tokens"
    kernels: list[KernelGain] = field(default_factory=list)
    gains: dict[int, Comparison] = field(default_factory=dict)
    kept: str = ""

    @property
    def choices(self) -> tuned.Chosen:
        """By kernel. What isn't for a range of rows follows from the largest size that was measured."""
        found: tuned.Chosen = {}
        for own in sorted(self.kernels, key=lambda own: -own.size):
            taken = found.setdefault(own.kernel, {})
            if not taken.keys() & own.choices.keys():
                taken |= own.choices
        return found

    @property
    def is_gain(self) -> bool:
        """Whether the module as a whole is faster at some size, beyond noise, and at none slower."""
        ratios = [gain.ratio for gain in self.gains.values() if gain.is_conclusive]
        return any(ratio > 1 for ratio in ratios) and not any(ratio < 1 / (1 + LEAST_GAIN) for ratio in ratios)

    def to_dict(self) -> dict[str, Json]:
        """As JSON can write it."""
        return {
            "program": self.name,
            "tried": self.tried,
            "symbol": self.symbol,
            "kernels": [
                {"kernel": own.kernel, "size": own.size, "choices": dict(own.choices), **own.gain.to_dict()}
                for own in self.kernels
            ],
            "gains": {str(size): gain.to_dict() for size, gain in self.gains.items()},
            "kept": self.kept,
        }


@located
def tune_model(
    model: Model,
    *,
    threads: int | None = None,
    prompts: Sequence[int] = (),
    rounds: int = 7,
    tries: int = TRIES,
    same_bits: bool = False,
    keep: bool = True,
    progress: Callable[[str], None] | None = None,
) -> list[ProgramTuning]:
    """Measures choices for both modules of a model.

    Args:
        model: whose weights are used; compiled by rule, whatever is kept already.
        threads: that are measured, and for which the result holds; it is used for every number of them.
        prompts: tokens of the prompts that are measured, at most a chunk; by default 128, on GPUs 16, 128 and 512.
        rounds: of everything in turns.
        tries: candidates of a kernel on a GPU, at most.
        same_bits: leave out what changes results by rounding.
        keep: write what is faster for later compilations.
        progress: called with a few words before each step.

    Raises InputError where several prompts are given for a CPU, whose choices hold for any number of rows.
    """
    on_gpu = model.on_gpu
    if len(prompts) > 1 and not on_gpu:
        _refuse_several("length of prompts", prompts)
    lengths = prompts or (GPU_PROMPTS if on_gpu else CPU_PROMPTS)
    weights: Mapping[str, object] = decoder.parameters(model.config, model.file, model.context)
    shared: dict[str, Prepared] = {}
    plan = _Plan(threads, rounds, tries, same_bits, keep, progress or (lambda _: None))
    return [_Tuner(ModelSubject(model, name, weights, shared, lengths), plan).run() for name in decoder.PROGRAMS]


@located
def tune_module(
    module: GraphModule,
    *,
    sizes: Sizes | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
    threads: int | None = None,
    rounds: int = 7,
    tries: int = TRIES,
    same_bits: bool = False,
    keep: bool = True,
    progress: Callable[[str], None] | None = None,
    target: str = "cpu",
    **options: Option,
) -> ProgramTuning:
    """Measures choices for a module; `compile` with the same module and options then uses what is kept.

    Args:
        module: at stage hir or mir; it is not changed.
        sizes: of dynamic dimensions, by symbol, at which calls are measured; by default what given arrays have, or
            the declared maximum. On GPUs one symbol may have several.
        arrays: of inputs and parameters, by name. Others are random numbers, integers zeros: positions and indices
            that matter for the time have to be given.
        threads, rounds, tries, same_bits, keep, progress: as for `tune_model`.
        target: what runs the module, `cpu` or `cuda`.
        options: the fields of `CompileOptions`, but `choices`.

    Raises InputError for names, sizes and options that can't be, and what `compile` and calls raise.
    """
    if target == "nvptx":
        raise InputError("'target' expects what can be measured here, cpu or cuda, but got 'nvptx'")
    if options.get("choices"):
        raise InputError("'choices' are what is looked for: leave them out")
    made = options_of(target, options)
    for symbol, own in (sizes or {}).items():
        if not made.is_gpu and isinstance(own, Sequence) and len(own) > 1:
            _refuse_several(f"size of '{symbol}'", own)
    _check_module(module)
    plan = _Plan(threads, rounds, tries, same_bits, keep, progress or (lambda _: None))
    return _Tuner(ModuleSubject(module, made, sizes or {}, arrays or {}), plan).run()


@located
def tune(what: Model | GraphModule, **options: Option) -> list[ProgramTuning]:
    """Measures what else kernels could do, for both modules of a model or for a module, and keeps what is faster.

    Never needed: by default, rules choose. `options` are those of `tune_model` or `tune_module`.
    """
    return tune_model(what, **options) if isinstance(what, Model) else [tune_module(what, **options)]


def _refuse_several(what: str, sizes: Sequence[int]) -> None:
    given = ", ".join(map(str, sizes))
    raise InputError(f"choices for CPUs hold for any number of rows: one {what} is expected, but got {given}")


@dataclass(frozen=True)
class _Plan:
    """What `tune_model` was told."""

    threads: int | None
    rounds: int
    tries: int
    same_bits: bool
    keep: bool
    say: Callable[[str], None]


Times = dict[tuple[str, int, str], Series]
"""Seconds by variant, size, and kernel; the kernel '' is all of them."""


class _Tuner:
    """Tunes one module."""

    #: Measures the module as a whole.
    clock: Callable[[], float] = staticmethod(time.perf_counter)

    def __init__(self, subject: Subject, plan: _Plan) -> None:
        self._subject = subject
        self._plan = plan

    def run(self) -> ProgramTuning:
        """Tries all candidates, then those that were faster together."""
        subject, say = self._subject, self._plan.say
        say(f"compiling {subject.name}")
        variants = {"": self._compile({})}
        candidates = self._candidates(variants[""])
        count = max(map(len, candidates.values()), default=0)
        for number in range(count):
            say(f"compiling {subject.name} with candidate {number + 1} of {count}")
            try:
                variants[str(number)] = self._tried(_joined(candidates, number))
            except DeviceFaultError:  # nothing can be measured any more
                raise
            except (CompileError, DeviceError) as error:
                log.warning("candidate %d of %s is left out: %s", number + 1, subject.name, error)
        found = ProgramTuning(subject.name, count, subject.symbol)
        if not count:
            return found
        times = self._measure(variants)
        for (size, kernel), own in candidates.items():
            gain = _best(kernel, size, own, times)
            if gain is not None:
                found.kernels.append(gain)
        if not found.kernels:
            return found
        say(f"compiling {subject.name} with what was faster")
        totals = self._measure({"": variants[""], "chosen": self._compile(found.choices)})
        for size in subject.cases:
            both = totals["chosen", size, ""], totals["", size, ""]
            found.gains[size] = compare(*both, higher_is_better=False)
        if self._plan.keep and found.is_gain:
            parts = compile_cache.key_parts(subject.material(), subject.options.as_dict())
            found.kept = str(tuned.keep(parts, found.choices, found.to_dict()["gains"]))
        return found

    def _compile(self, choices: tuned.Chosen) -> Executable:
        """The module with choices, its parameters set."""
        subject = self._subject
        artifact = build_artifact(subject.graph(), replace(subject.options, choices=choices))
        made = executable_for(artifact, threads=self._plan.threads)
        made.set_params(subject.params, shared=subject.shared)
        return made

    def _tried(self, choices: tuned.Chosen) -> Executable:
        """The module with choices, which ran once: a GPU may refuse a launch, or lack memory."""
        made = self._compile(choices)
        for size in self._subject.cases if self._subject.on_gpu else ():
            self._subject.steps(made, size)[0]()
        return made

    def _candidates(self, rule: Executable) -> dict[tuple[int, str], Candidates]:
        """By size and kernel, for those that have some."""
        found = self._of_gpu(rule) if self._subject.on_gpu else self._of_cpu(rule)
        return {key: own for key, own in found.items() if own}

    def _of_cpu(self, rule: Executable) -> dict[tuple[int, str], Candidates]:
        (size,) = self._subject.cases
        found: dict[tuple[int, str], Candidates] = {}
        changing = [knob for knob, own in registry.knobs().items() if own.changes_bits]
        for name in rule.artifact.kernels:
            template = rule.artifact.templates.get(name, "")
            own: list[Mapping[str, int]] = []
            for one in itertools.chain.from_iterable(registry.candidates(template, p) for p in self._subject.programs):
                if one not in own and not (self._plan.same_bits and changes_bits(one, changing)):
                    own.append(one)
            found[size, name] = own
        return found

    def _of_gpu(self, rule: Executable) -> dict[tuple[int, str], Candidates]:
        from rlx_mlir.lowering.gpu.candidates import list_candidates

        options, cases = self._subject.options, self._subject.cases
        work = ModuleWork(self._subject.graph(), options)
        templates = rule.artifact.templates
        found: dict[tuple[int, str], Candidates] = {}
        ranges: dict[tuple[str, str], Candidates] = {}  # sizes that are in one range have the same candidates
        for size in reversed([*cases]):
            shapes = work.operands({**dict(rule.artifact.symbols), **cases[size]})
            with work.context:
                for call, own in zip(work.calls, shapes, strict=True):
                    if (size, call.kernel) not in found:
                        each = list_candidates(
                            call.kernel,
                            work.kernel(call.kernel),
                            options.chip,
                            own,
                            templates[call.kernel],
                            same_bits=self._plan.same_bits,
                        )
                        ends = next(iter(each[0])).partition(AT)[2] if each else ""
                        found[size, call.kernel] = ranges.setdefault((call.kernel, ends), each[: self._plan.tries])
        return found

    def _measure(self, variants: Mapping[str, Executable]) -> Times:
        """Everything in turns."""
        series: defaultdict[tuple[str, int, str], Series] = defaultdict(Series)
        for number in range(self._plan.rounds + 1):
            self._plan.say(f"{self._subject.name}, round {number} of {self._plan.rounds}")
            for size in self._subject.cases:
                for variant, executable in variants.items():
                    spent = self._spent(executable, size)
                    for kernel, seconds in spent.items() if number else ():  # the first round warms everything up
                        series[variant, size, kernel].values.append(seconds)
        return dict(series)

    def _spent(self, executable: Executable, size: int) -> dict[str, float]:
        """Seconds of each kernel, and of all, in the fastest of some runs."""
        subject = self._subject
        spent: defaultdict[str, list[float]] = defaultdict(list)
        for step in subject.steps(executable, size):
            run = measured(executable, step, subject.cases[size])
            once: defaultdict[str, float] = defaultdict(float)
            for (kernel, _), seconds in zip(executable.timings(), run.calls, strict=True):
                once[kernel] += seconds
            for kernel, seconds in once.items():
                spent[kernel].append(seconds)
            if not subject.on_gpu:
                spent[""].append(sum(run.calls))
        for step in subject.steps(executable, size) if subject.on_gpu else ():
            begin = self.clock()
            step()
            spent[""].append(self.clock() - begin)
        return {kernel: min(values) for kernel, values in spent.items()}


def _joined(candidates: Mapping[tuple[int, str], Candidates], number: int) -> tuned.Chosen:
    """The choices of all kernels that have a candidate of this number, for all sizes."""
    joined: tuned.Chosen = {}
    for (_, kernel), own in candidates.items():
        if number < len(own):
            joined.setdefault(kernel, {}).update(own[number])
    return joined


def _best(kernel: str, size: int, candidates: Candidates, times: Times) -> KernelGain | None:
    """The candidate that is most faster than the rule for a kernel, beyond noise."""
    rule = times["", size, kernel]
    gains = [
        KernelGain(kernel, size, own, compare(times[str(number), size, kernel], rule, higher_is_better=False))
        for number, own in enumerate(candidates)
        if (str(number), size, kernel) in times
    ]
    good = [own for own in gains if own.gain.is_conclusive and own.gain.ratio > 1 + LEAST_GAIN]
    return max(good, key=lambda own: own.gain.ratio, default=None)


def describe(own: KernelGain, symbol: str) -> str:
    """A line about a kernel; with its size, of the symbol, where there is one."""
    at = f" at {symbol} = {own.size}" if symbol else ""
    return f"{own.kernel}{at}: {text_of(own.choices)}, {own.gain} as fast (spread {own.gain.spread:.0%})"
