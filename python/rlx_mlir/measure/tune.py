# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what templates of products can do in several ways, kernel by kernel, and keeps what is faster here.

All kernels of a module try one value at a time, in turns with the module as it is by rule. A value is taken for a
kernel where it is faster by more than `LEAST_GAIN`, and noise doesn't hide it. Then the module with all choices is
measured against the one by rule, in turns again: only if that is faster, too, are the choices kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.errors import ExecutionError
from rlx_mlir.measure.profile import Run, measured, sample_ids
from rlx_mlir.measure.timing import Comparison, Series, compare
from rlx_mlir.models import decoder
from rlx_mlir.models.model import Model, _Session, maxima
from rlx_mlir.runtime import cache as compile_cache
from rlx_mlir.runtime import tuned
from rlx_mlir.runtime.executable import Executable

#: A value that is faster by less than this isn't taken.
LEAST_GAIN = 0.02
#: Tokens before the decode steps that are measured.
_DECODE_PROMPT = 16
#: Decode steps of a round.
_STEPS = 8

#: What is tried, by program: single tokens wait for memory, prompts compute.
CANDIDATES: Mapping[str, Sequence[Mapping[str, int]]] = {
    "prefill": [{"tile_rows": 4}, {"tile_rows": 2}, {"prefetch": 0}],
    "decode": [{"prefetch": 0}, {"prefetch": 512}, {"prefetch": 2048}, {"prefetch": 4096}],
}


@dataclass(frozen=True)
class KernelGain:
    """A kernel for which another value than the rule's is faster.

    Attributes:
        kernel: its name.
        choices: the values.
        gain: how many times faster, with its spread.
    """

    kernel: str
    choices: Mapping[str, int]
    gain: Comparison


@dataclass
class ProgramTuning:
    """What was found for a module.

    Attributes:
        name: of the module.
        kernels: that got a value.
        gain: of the module as a whole, all values together; None where there are none.
        tried: values that were measured.
        kept: the file with the choices; empty where they aren't kept.
    """

    name: str
    tried: int
    kernels: list[KernelGain] = field(default_factory=list)
    gain: Comparison | None = None
    kept: str = ""

    @property
    def choices(self) -> tuned.Chosen:
        """By kernel."""
        return {own.kernel: dict(own.choices) for own in self.kernels}

    @property
    def is_gain(self) -> bool:
        """Whether the module as a whole is faster, beyond noise."""
        return self.gain is not None and self.gain.is_conclusive and self.gain.ratio > 1

    def to_dict(self) -> dict[str, Any]:
        """As JSON can write it."""
        return {
            "program": self.name,
            "tried": self.tried,
            "kernels": [
                {"kernel": own.kernel, "choices": dict(own.choices), **own.gain.to_dict()} for own in self.kernels
            ],
            "gain": None if self.gain is None else self.gain.to_dict(),
            "kept": self.kept,
        }


def tune_model(
    model: Model,
    *,
    threads: int | None = None,
    prompt_tokens: int = 128,
    rounds: int = 7,
    keep: bool = True,
    progress: Callable[[str], None] | None = None,
) -> list[ProgramTuning]:
    """Measures choices for both modules of a model.

    Args:
        model: whose weights are used; compiled by rule, whatever is kept already.
        threads: that are measured, and for which the result holds; it is used for every number of them.
        prompt_tokens: of the prompts that are measured, at most a chunk.
        rounds: of everything in turns.
        keep: write what is faster for later compilations.
        progress: called with a few words before each step.
    """
    say = progress or (lambda _: None)
    context = _Weights.of(model)
    return [_Tuner(model, name, context, threads, prompt_tokens, rounds, say).run(keep) for name in decoder.PROGRAMS]


@dataclass(frozen=True)
class _Weights:
    """The parameters of a model, and what is prepared from them: one copy for all variants."""

    arrays: Mapping[str, Any]
    shared: Any

    @classmethod
    def of(cls, model: Model) -> _Weights:
        return cls(decoder.parameters(model.config, model.file, model.context), {})


class _Tuner:
    """Tunes one module of a model."""

    def __init__(
        self,
        model: Model,
        program: str,
        weights: _Weights,
        threads: int | None,
        prompt_tokens: int,
        rounds: int,
        say: Callable[[str], None],
    ) -> None:
        self._model = model
        self._program = program
        self._weights = weights
        self._threads = threads
        self._rounds = rounds
        self._say = say
        self._ids = sample_ids(min(prompt_tokens, model.chunk, model.context - 1), model.config.vocab)
        self._options = CompileOptions(
            activations=model.activations,
            maxima=maxima(program, context=model.context, chunk=model.chunk),
            verify=False,
            dump_dir=None,
        )

    def run(self, keep: bool) -> ProgramTuning:
        """Tries all values, then those that were faster together."""
        values = CANDIDATES[self._program]
        variants: dict[str, Executable] = {"": self._compile({})}
        names = self._tunable(variants[""])
        for value in values if names else ():
            self._say(f"compiling {self._program} with {_text(value)}")
            variants[_text(value)] = self._compile({name: dict(value) for name in names})
        found = ProgramTuning(self._program, len(variants) - 1)
        if not names:
            return found
        series = self._measure(variants)
        for name in names:
            gain = self._best(name, values, series)
            if gain is not None:
                found.kernels.append(gain)
        if not found.kernels:
            return found
        self._say(f"compiling {self._program} with what was faster")
        pair = {"": variants[""], "chosen": self._compile(found.choices)}
        totals = self._measure(pair)
        found.gain = compare(totals["chosen", ""], totals["", ""], higher_is_better=False)
        if keep and found.is_gain:
            parts = compile_cache.key_parts(
                decoder.describe(self._model.config, self._program), self._options.as_dict()
            )
            found.kept = str(tuned.keep(parts, found.choices, found.gain.to_dict()))
        return found

    def _compile(self, choices: tuned.Chosen) -> Executable:
        """The module with choices, its parameters set."""
        graph = decoder.build(self._model.config, self._program)
        executable = Executable(build_artifact(graph, replace(self._options, choices=choices)), threads=self._threads)
        executable.set_params(self._weights.arrays, shared=self._weights.shared)
        return executable

    @staticmethod
    def _tunable(executable: Executable) -> list[str]:
        """Kernels whose template reads choices."""
        templates = executable.artifact.templates
        return [name for name in executable.artifact.kernels if templates.get(name) in ("gemm_int8", "gemm_panels")]

    def _measure(self, variants: Mapping[str, Executable]) -> dict[tuple[str, str], Series]:
        """Seconds by variant and kernel, in turns; the kernel '' is all of them."""
        series: defaultdict[tuple[str, str], Series] = defaultdict(Series)
        for number in range(self._rounds + 1):
            self._say(f"{self._program}, round {number} of {self._rounds}")
            for variant, executable in variants.items():
                spent: defaultdict[str, list[float]] = defaultdict(list)
                for run in self._runs(executable):
                    once: defaultdict[str, float] = defaultdict(float)
                    for (kernel, _), seconds in zip(executable.timings(), run.calls, strict=True):
                        once[kernel] += seconds
                    once[""] = sum(run.calls)
                    for kernel, seconds in once.items():
                        spent[kernel].append(seconds)
                if number:  # the first round warms everything up
                    for kernel, values in spent.items():
                        series[variant, kernel].values.append(min(values))
        return dict(series)

    def _runs(self, executable: Executable) -> list[Run]:
        """One prompt, or some steps after a short one."""
        model = self._model
        others: dict[str, Any] = {"prefill": model._prefill, "decode": model._decode, self._program: executable}
        variant = Model(
            model.file,
            model.config,
            context=model.context,
            chunk=model.chunk,
            activations=model.activations,
            **others,
        )
        session = _Session(variant)
        if self._program == "prefill":
            sizes = {"seq": len(self._ids), "outputs": 1}
            return [measured(executable, partial(session.prefill, self._ids), sizes)]
        session.prefill(self._ids[:_DECODE_PROMPT])
        steps = min(_STEPS, model.context - len(session.tokens))
        if steps < 1:
            raise ExecutionError(f"a context of {model.context} positions leaves none to measure single tokens at")
        return [measured(executable, partial(session.decode, token), {}) for token in self._ids[:steps]]

    def _best(
        self, kernel: str, values: Sequence[Mapping[str, int]], series: Mapping[tuple[str, str], Series]
    ) -> KernelGain | None:
        """The value that is most faster than the rule for a kernel, beyond noise."""
        rule = series["", kernel]
        gains = [(compare(series[_text(value), kernel], rule, higher_is_better=False), value) for value in values]
        good = [
            KernelGain(kernel, value, gain)
            for gain, value in gains
            if gain.is_conclusive and gain.ratio > 1 + LEAST_GAIN
        ]
        return max(good, key=lambda own: own.gain.ratio, default=None)


def _text(value: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in value.items())
