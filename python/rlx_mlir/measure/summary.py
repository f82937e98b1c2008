# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How near a run of a model came to what the machine can do, from its times alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

from rlx_mlir.measure.programs import Counted, executable_of, work_of
from rlx_mlir.measure.roofline import Roofline, measure, rounded_set
from rlx_mlir.measure.timing import interleave
from rlx_mlir.models.generation import Stats
from rlx_mlir.models.model import Model
from rlx_mlir.models.programs import maxima
from rlx_mlir.runtime.work import Work


@dataclass(frozen=True)
class Part:
    """The prompt of a run, or the tokens after it.

    Attributes:
        name: "prompt" or "decode".
        tokens, seconds: of the run.
        work: of all these tokens.
        least: seconds that the machine's limits allow at least.
        bound: "memory" or "arithmetic": which of them.
    """

    name: str
    tokens: int
    seconds: float
    work: Work
    least: float
    bound: str

    @property
    def fraction(self) -> float:
        """The least time over the time taken."""
        return self.least / self.seconds

    def __str__(self) -> str:
        each = f"{self.work.flops / self.tokens / 1e9:.2f} GFLOP and {self.work.bytes / self.tokens / 1e6:.1f} MB"
        spent, least = (1e6 * seconds / self.tokens for seconds in (self.seconds, self.least))
        times = f"{spent:.1f} us a token, where {least:.1f} are least"
        return (
            f"{self.name}: {each} a token, {times}, {self.work.flops / self.seconds / 1e9:.0f} GFLOP/s, "
            f"{self.work.bytes / self.seconds / 1e9:.1f} GB/s, {self.fraction:.0%} of what {self.bound} allows"
        )

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        return {
            "tokens": self.tokens,
            "microseconds_per_token": 1e6 * self.seconds / self.tokens,
            "least_microseconds_per_token": 1e6 * self.least / self.tokens,
            "flops": self.work.flops,
            "bytes": self.work.bytes,
            "flops_per_second": self.work.flops / self.seconds,
            "bytes_per_second": self.work.bytes / self.seconds,
            "bound": self.bound,
            "roofline": self.fraction,
        }


@dataclass(frozen=True)
class Summary:
    """The parts of a run that took time, and the machine."""

    parts: tuple[Part, ...]
    roofline: Roofline

    def __str__(self) -> str:
        return "\n".join([*map(str, self.parts), f"machine: {self.roofline}"])

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        return {"machine": self.roofline.to_dict(), **{part.name: part.to_dict() for part in self.parts}}


class ModelWork:
    """What a model's modules do, counted from their kernels."""

    def __init__(self, model: Model) -> None:
        """Reads what the modules' artefacts say; compiles those up to their kernels that say nothing."""
        self._model = model
        self._modules: dict[str, Counted] = {}

    def _at(self, program: str, position: int, **sizes: int) -> list[tuple[Work, bool]]:
        model = self._model
        if program not in self._modules:
            self._modules[program] = work_of(model, program)
        module = self._modules[program]
        largest = maxima(model.config, program, context=model.context, chunk=model.chunk)
        found = module.at({**largest, **sizes}, position)
        return [(work, call.integer) for work, call in zip(found, module.calls, strict=True)]

    def prompt(self, tokens: int, position: int = 0) -> list[tuple[Work, bool]]:
        """Of a prompt of so many tokens, in chunks: each call's work, and whether its products are of integers."""
        done: list[tuple[Work, bool]] = []
        for start in range(0, tokens, self._model.chunk):
            count = min(self._model.chunk, tokens - start)
            done += self._at("prefill", position + start, seq=count, outputs=1)
        return done

    def decode(self, position: int) -> list[tuple[Work, bool]]:
        """Of one token at a position."""
        return self._at("decode", position)

    def decode_together(self, position: int, sequences: int) -> list[tuple[Work, bool]]:
        """Of one token of each of several sequences, all at one position."""
        return self._at("batch", position, batch=sequences) if sequences > 1 else self.decode(position)


def total(work: list[tuple[Work, bool]]) -> Work:
    """The sum."""
    return reduce(add, (own for own, _ in work), Work())


def least_seconds(work: list[tuple[Work, bool]], bounds: Roofline) -> tuple[float, str]:
    """The least time for so much work, by all of its bytes or all of its operations; and which of them it is."""
    memory = total(work).bytes / bounds.bandwidth
    arithmetic = sum(own.flops / bounds.arithmetic(integer) for own, integer in work)
    return (memory, "memory") if memory >= arithmetic else (arithmetic, "arithmetic")


def _bounds(model: Model, read: int) -> Roofline:
    """The limits of what runs the model, whose step reads so many bytes."""
    if not model.on_gpu:
        return measure(model.threads, rounded_set(read))
    from rlx_mlir.measure.device import DeviceProbe

    probe = DeviceProbe(executable_of(model, "decode").device)  # type: ignore[attr-defined]
    return probe.roofline(interleave(probe.figures(), 5))


def summarize(model: Model, stats: Stats) -> Summary:
    """What a run of the model did, beside the limits of the machine, which take about a second to measure."""
    counted = ModelWork(model)
    before = stats.reused_tokens + stats.prompt_tokens
    steps = stats.generated_tokens - 1
    middle = counted.decode(min(model.context - 1, before + max(steps, 0) // 2))
    bounds = _bounds(model, total(middle).read)
    parts = []
    if stats.prompt_tokens and stats.prompt_seconds:
        work = counted.prompt(stats.prompt_tokens, stats.reused_tokens)
        parts.append(
            Part("prompt", stats.prompt_tokens, stats.prompt_seconds, total(work), *least_seconds(work, bounds))
        )
    if steps > 0 and stats.decode_seconds:
        parts.append(
            Part("decode", steps, stats.decode_seconds, total(middle * steps), *least_seconds(middle * steps, bounds))
        )
    return Summary(tuple(parts), bounds)
