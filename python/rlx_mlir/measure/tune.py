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

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rlx_mlir.codegen.choices import AT, changes_bits, text_of
from rlx_mlir.codegen.cpu.choices import CHANGE_BITS
from rlx_mlir.compiler import build_artifact
from rlx_mlir.errors import CompileError, DeviceError, DeviceFaultError, InputError
from rlx_mlir.measure.profile import measured, sample_ids
from rlx_mlir.measure.programs import executable_of, graph_of, is_on_gpu, material_of, options_of
from rlx_mlir.measure.timing import Comparison, Series, compare
from rlx_mlir.measure.work import ModuleWork
from rlx_mlir.models import decoder
from rlx_mlir.models.model import Model, _Session
from rlx_mlir.runtime import cache as compile_cache
from rlx_mlir.runtime import tuned
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.runtime.loading import executable as executable_for

log = logging.getLogger(__name__)

#: A candidate that is faster by less than this isn't taken.
LEAST_GAIN = 0.02
#: Prompts that are measured where nothing else is said: tokens.
CPU_PROMPTS, GPU_PROMPTS = (128,), (16, 128, 512)
#: Decode steps of a round.
_STEPS = 8
#: Candidates of a kernel on a GPU at most: each is a module to compile.
TRIES = 8

Candidates = Sequence[Mapping[str, int]]

_REGISTER_TILES: Mapping[str, Candidates] = {
    # Single tokens wait for memory, prompts compute.
    "prefill": [{"tile_rows": 4}, {"tile_rows": 2}, {"prefetch": 0}],
    "decode": [{"prefetch": 0}, {"prefetch": 512}, {"prefetch": 2048}, {"prefetch": 4096}],
}
_AMX_PARTS: Mapping[str, Candidates] = {
    "prefill": [
        {"amx": 0},
        {"amx_rows": 128},
        {"amx_rows": 512},
        {"amx_group": 12},
        {"amx_group": 48},
        {"amx_k": 128},
        {"amx_k": 512},
    ],
}
#: What is tried on CPUs, by template and program.
CANDIDATES: Mapping[str, Mapping[str, Candidates]] = {
    "gemm_int8": _REGISTER_TILES,
    "gemm_panels": _REGISTER_TILES,
    "gemm_amx": {"prefill": [{"amx": 0}, {"prefetch": 0}, {"prefetch": 2048}, {"prefetch": 4096}]},
    "gemm_amx_batched": {"prefill": [{"amx": 0}]},
    "gemm_amx_int8": {"prefill": [{"amx": 0}]},
    "attention_amx": {"prefill": [{"amx": 0}]},
    "gemm_amx_f32": _AMX_PARTS,
    "gemm_amx_f32_batched": _AMX_PARTS,
}


@dataclass(frozen=True)
class KernelGain:
    """A kernel for which other choices than the rule's are faster.

    Attributes:
        kernel: its name.
        tokens: that the measured calls process.
        choices: what is faster.
        gain: how many times faster, with its spread.
    """

    kernel: str
    tokens: int
    choices: Mapping[str, int]
    gain: Comparison


@dataclass
class ProgramTuning:
    """What was found for a module.

    Attributes:
        name: of the module.
        kernels: that got choices, for each number of tokens.
        gains: of the module as a whole, all choices together, by the number of tokens; none where there are none.
        tried: candidates that were measured, of the kernel with most of them.
        kept: the file with the choices; empty where they aren't kept.
    """

    name: str
    tried: int
    kernels: list[KernelGain] = field(default_factory=list)
    gains: dict[int, Comparison] = field(default_factory=dict)
    kept: str = ""

    @property
    def choices(self) -> tuned.Chosen:
        """By kernel. What isn't for a range of rows follows from the most tokens that were measured."""
        found: tuned.Chosen = {}
        for own in sorted(self.kernels, key=lambda own: -own.tokens):
            taken = found.setdefault(own.kernel, {})
            if not taken.keys() & own.choices.keys():
                taken |= own.choices
        return found

    @property
    def is_gain(self) -> bool:
        """Whether the module as a whole is faster for some number of tokens, beyond noise, and for none slower."""
        ratios = [gain.ratio for gain in self.gains.values() if gain.is_conclusive]
        return any(ratio > 1 for ratio in ratios) and not any(ratio < 1 / (1 + LEAST_GAIN) for ratio in ratios)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can write it."""
        return {
            "program": self.name,
            "tried": self.tried,
            "kernels": [
                {"kernel": own.kernel, "tokens": own.tokens, "choices": dict(own.choices), **own.gain.to_dict()}
                for own in self.kernels
            ],
            "gains": {str(tokens): gain.to_dict() for tokens, gain in self.gains.items()},
            "kept": self.kept,
        }


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
    say = progress or (lambda _: None)
    on_gpu = is_on_gpu(model)
    if len(prompts) > 1 and not on_gpu:
        given = ", ".join(map(str, prompts))
        raise InputError(
            f"choices for CPUs hold for any number of rows: one length of prompts is expected, but got {given}"
        )
    lengths = prompts or (GPU_PROMPTS if on_gpu else CPU_PROMPTS)
    weights = _Weights.of(model)
    plan = _Plan(threads, rounds, tries, same_bits)
    return [_Tuner(model, name, weights, lengths, plan, say).run(keep) for name in decoder.PROGRAMS]


@dataclass(frozen=True)
class _Weights:
    """The parameters of a model, and what is prepared from them: one copy for all variants."""

    arrays: Mapping[str, Any]
    shared: Any

    @classmethod
    def of(cls, model: Model) -> _Weights:
        return cls(decoder.parameters(model.config, model.file, model.context), {})


@dataclass(frozen=True)
class _Plan:
    """What `tune_model` was told."""

    threads: int | None
    rounds: int
    tries: int
    same_bits: bool


Times = dict[tuple[str, int, str], Series]
"""Seconds by variant, number of tokens, and kernel; the kernel '' is all of them."""


class _Tuner:
    """Tunes one module of a model."""

    #: Measures the module as a whole.
    clock: Callable[[], float] = staticmethod(time.perf_counter)

    def __init__(
        self,
        model: Model,
        program: str,
        weights: _Weights,
        prompts: Sequence[int],
        plan: _Plan,
        say: Callable[[str], None],
    ) -> None:
        self._model = model
        self._program = program
        self._weights = weights
        self._plan = plan
        self._say = say
        self._on_gpu = is_on_gpu(model)
        most = min(model.chunk, model.context - 1)
        self._tokens = [1] if program == "decode" else sorted({min(length, most) for length in prompts})
        self._options = options_of(model, program)

    def run(self, keep: bool) -> ProgramTuning:
        """Tries all candidates, then those that were faster together."""
        variants = {"": self._compile({})}
        candidates = self._candidates(variants[""])
        count = max(map(len, candidates.values()), default=0)
        for number in range(count):
            self._say(f"compiling {self._program} with candidate {number + 1} of {count}")
            try:
                variants[str(number)] = self._tried(_joined(candidates, number))
            except DeviceFaultError:  # nothing can be measured any more
                raise
            except (CompileError, DeviceError) as error:
                log.warning("candidate %d of %s is left out: %s", number + 1, self._program, error)
        found = ProgramTuning(self._program, count)
        if not count:
            return found
        times = self._measure(variants)
        for (tokens, kernel), own in candidates.items():
            gain = _best(kernel, tokens, own, times)
            if gain is not None:
                found.kernels.append(gain)
        if not found.kernels:
            return found
        self._say(f"compiling {self._program} with what was faster")
        totals = self._measure({"": variants[""], "chosen": self._compile(found.choices)})
        for tokens in self._tokens:
            both = totals["chosen", tokens, ""], totals["", tokens, ""]
            found.gains[tokens] = compare(*both, higher_is_better=False)
        if keep and found.is_gain:
            parts = compile_cache.key_parts(material_of(self._model, self._program), self._options.as_dict())
            found.kept = str(tuned.keep(parts, found.choices, found.to_dict()["gains"]))
        return found

    def _compile(self, choices: tuned.Chosen) -> Executable:
        """The module with choices, its parameters set."""
        graph = graph_of(self._model, self._program)
        artifact = build_artifact(graph, replace(self._options, choices=choices))
        made = executable_for(artifact, threads=self._plan.threads)
        made.set_params(self._weights.arrays, shared=self._weights.shared)
        return made

    def _tried(self, choices: tuned.Chosen) -> Executable:
        """The module with choices, which ran once: a GPU may refuse a launch, or lack memory."""
        made = self._compile(choices)
        for tokens in self._tokens if self._on_gpu else ():
            self._steps(made, tokens)[0]()
        return made

    def _candidates(self, rule: Executable) -> dict[tuple[int, str], Candidates]:
        """By number of tokens and kernel, for those that have some."""
        found = self._of_gpu(rule) if self._on_gpu else self._of_cpu(rule)
        return {key: own for key, own in found.items() if own}

    def _of_cpu(self, rule: Executable) -> dict[tuple[int, str], Candidates]:
        (tokens,) = self._tokens
        found: dict[tuple[int, str], Candidates] = {}
        for name in rule.artifact.kernels:
            by_program = CANDIDATES.get(rule.artifact.templates.get(name, ""), {})
            found[tokens, name] = [
                own
                for own in by_program.get(self._program, ())
                if not (self._plan.same_bits and changes_bits(own, CHANGE_BITS))
            ]
        return found

    def _of_gpu(self, rule: Executable) -> dict[tuple[int, str], Candidates]:
        from rlx_mlir.lowering.gpu.candidates import list_candidates

        work = ModuleWork(graph_of(self._model, self._program), self._options)
        templates = rule.artifact.templates
        found: dict[tuple[int, str], Candidates] = {}
        ranges: dict[tuple[str, str], Candidates] = {}  # numbers of tokens that are in one have the same candidates
        for tokens in reversed(self._tokens):
            shapes = work.operands({**dict(rule.artifact.symbols), **self._sizes(tokens)})
            with work.context:
                for call, own in zip(work.calls, shapes, strict=True):
                    if (tokens, call.kernel) not in found:
                        each = list_candidates(
                            call.kernel,
                            work.kernel(call.kernel),
                            self._options.chip,
                            own,
                            templates[call.kernel],
                            same_bits=self._plan.same_bits,
                        )
                        ends = next(iter(each[0])).partition(AT)[2] if each else ""
                        found[tokens, call.kernel] = ranges.setdefault((call.kernel, ends), each[: self._plan.tries])
        return found

    def _sizes(self, tokens: int) -> dict[str, int]:
        return {} if self._program == "decode" else {"seq": tokens, "outputs": 1}

    def _measure(self, variants: Mapping[str, Executable]) -> Times:
        """Everything in turns."""
        series: defaultdict[tuple[str, int, str], Series] = defaultdict(Series)
        for number in range(self._plan.rounds + 1):
            self._say(f"{self._program}, round {number} of {self._plan.rounds}")
            for tokens in self._tokens:
                for variant, executable in variants.items():
                    spent = self._spent(executable, tokens)
                    for kernel, seconds in spent.items() if number else ():  # the first round warms everything up
                        series[variant, tokens, kernel].values.append(seconds)
        return dict(series)

    def _spent(self, executable: Executable, tokens: int) -> dict[str, float]:
        """Seconds of each kernel, and of all, in the fastest of some runs."""
        spent: defaultdict[str, list[float]] = defaultdict(list)
        for step in self._steps(executable, tokens):
            run = measured(executable, step, self._sizes(tokens))
            once: defaultdict[str, float] = defaultdict(float)
            for (kernel, _), seconds in zip(executable.timings(), run.calls, strict=True):
                once[kernel] += seconds
            for kernel, seconds in once.items():
                spent[kernel].append(seconds)
            if not self._on_gpu:
                spent[""].append(sum(run.calls))
        for step in self._steps(executable, tokens) if self._on_gpu else ():
            begin = self.clock()
            step()
            spent[""].append(self.clock() - begin)
        return {kernel: min(values) for kernel, values in spent.items()}

    def _steps(self, executable: Executable, tokens: int) -> list[Callable[[], object]]:
        """What runs the module once each: a prompt, or some single tokens in the middle of the context."""
        model = self._model
        others: dict[str, Any] = {name: executable_of(model, name) for name in ("prefill", "decode")}
        variant = Model(
            model.file,
            model.config,
            context=model.context,
            chunk=model.chunk,
            activations=model.activations,
            candidates=model.candidates,
            **{**others, self._program: executable},
        )
        session = _Session(variant)
        if self._program == "prefill":
            return [partial(session.prefill, sample_ids(tokens, model.config.vocab))]
        # As if there were tokens before: keys of zeros take the same time.
        before = model.context // 2
        session.tokens.extend(sample_ids(before, model.config.vocab))
        steps = min(_STEPS, model.context - before)
        return [partial(session.advance, token) for token in sample_ids(steps, model.config.vocab)]


def _joined(candidates: Mapping[tuple[int, str], Candidates], number: int) -> tuned.Chosen:
    """The choices of all kernels that have a candidate of this number, for all numbers of tokens."""
    joined: tuned.Chosen = {}
    for (_, kernel), own in candidates.items():
        if number < len(own):
            joined.setdefault(kernel, {}).update(own[number])
    return joined


def _best(kernel: str, tokens: int, candidates: Candidates, times: Times) -> KernelGain | None:
    """The candidate that is most faster than the rule for a kernel, beyond noise."""
    rule = times["", tokens, kernel]
    gains = [
        KernelGain(kernel, tokens, own, compare(times[str(number), tokens, kernel], rule, higher_is_better=False))
        for number, own in enumerate(candidates)
        if (str(number), tokens, kernel) in times
    ]
    good = [own for own in gains if own.gain.is_conclusive and own.gain.ratio > 1 + LEAST_GAIN]
    return max(good, key=lambda own: own.gain.ratio, default=None)


def describe(own: KernelGain, *, several: bool) -> str:
    """A line about a kernel; with the number of tokens where there are several."""
    at = f" at {own.tokens} tokens" if several else ""
    return f"{own.kernel}{at}: {text_of(own.choices)}, {own.gain} as fast (spread {own.gain.spread:.0%})"
