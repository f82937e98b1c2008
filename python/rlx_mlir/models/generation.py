# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text as it is generated: what is asked for, the iterator that `Model.generate` returns, and what a run took."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypedDict

from .. import checks
from ..errors import InputError
from .channels import Aside, Kind, division_of
from .choosing import Chooser, Processor, TokenLogprob
from .guides import guide_behind
from .sampling import Sampler

if TYPE_CHECKING:
    from .tokenizer import Tokenizer


class Options(TypedDict, total=False):
    """Options of `Model.generate`, which says what they mean, about what follows a prompt."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None
    greedy: bool
    stop: str | Sequence[str]
    ignore_eos: bool
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float] | None
    logits_processors: Sequence[Processor]
    logprobs: int
    response_format: Mapping[str, object] | None


@dataclass(frozen=True)
class Stats:
    """What one call of a model took, and what loading the model took.

    Attributes:
        prompt_tokens: tokens that were processed before the first logits.
        reused_tokens: tokens of the prompt that were in the cache already.
        generated_tokens: tokens chosen; the first of them comes from the prompt's logits.
        drafted_tokens: tokens that were proposed ahead, see ``draft`` of `Model.generate`.
        accepted_tokens: of these, those that were chosen.
        prompt_seconds: time for the prompt.
        decode_seconds: time for the tokens after the first, sampling included, the caller's own work left out.
        load_seconds: opening the file and preparing the weights.
        compile_seconds: compiling both modules, or finding them compiled.
        peak_rss: largest resident size of the process so far, bytes, of memory and of mapped files.
        prepared: where prepared weights are: `computed`, in memory; `kept`, in a file that this process wrote;
            `mapped`, in a file that was there.
        prepared_bytes: of that file; 0 where there is none.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    load_seconds: float = 0.0
    compile_seconds: float = 0.0
    peak_rss: int = 0
    prepared: str = "computed"
    prepared_bytes: int = 0

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second; 0 where there were none."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Generated tokens per second, the first left out; 0 where there was no other."""
        steps = self.generated_tokens - 1
        return steps / self.decode_seconds if steps > 0 and self.decode_seconds else 0.0

    def to_dict(self) -> dict[str, object]:
        """Fields and rates, as JSON can write them."""
        return {**dataclasses.asdict(self), "prompt_rate": self.prompt_rate, "decode_rate": self.decode_rate}


def peak_rss() -> int:
    """The largest resident size that the process has had, bytes."""
    import resource

    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:  # getrusage's number is that of the process that started this one, where that was larger
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB


class StopStrings:
    """Cuts a stream of text at the first of several strings, and holds back what may be the start of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises InputError for an empty stop string, or one that isn't text."""
        for stop in stops:
            if not isinstance(stop, str) or not stop:
                raise InputError(f"a stop string must be a non-empty text, but is {stop!r}")
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """What can be given out after ``text`` has come; nothing more once a stop string is found."""
        if self.found:
            return ""
        self._held += text
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            self.found = True
            return self._give(min(places), drop=True)
        longest = max(map(len, self._stops), default=1) - 1
        for start in range(max(0, len(self._held) - longest), len(self._held)):
            if any(stop.startswith(self._held[start:]) for stop in self._stops):
                return self._give(start)
        return self._give(len(self._held))

    def flush(self) -> str:
        """What was held back, at the end of the stream."""
        return self._give(len(self._held))

    def _give(self, count: int, *, drop: bool = False) -> str:
        text, self._held = self._held[:count], "" if drop else self._held[count:]
        return text


class Stream(Protocol):
    """Text of tokens that come one by one."""

    def push(self, index: int) -> str:
        """The text that is complete with one more token."""

    def flush(self) -> str:
        """The rest."""


class Task:
    """What is asked for after a prompt, and how far it is: pieces of text of chosen tokens, and why it ends.

    Attributes:
        prompt: ids of the prompt.
        chooser: chooses the tokens.
        max_tokens: tokens to generate at most.
        ids: those that were chosen, but for one that ends the model's turn.
        reason: why it has ended; None before.
        asides: parts of the answer beside its text, see `channels`; each as it came.
        has_aside: whether some came with the last token.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        chooser: Chooser,
        *,
        stops: StopStrings,
        stream: Stream,
        ends: Collection[int],
        max_tokens: int,
        context: int,
        asides: list[Aside] | None = None,
    ) -> None:
        """Starts.

        Args:
            prompt, chooser, max_tokens: see above.
            stops: texts at which it ends.
            stream: makes text of tokens.
            ends: tokens that end the model's turn.
            context: positions of a sequence.
            asides: where ``stream`` notes what is beside the text.
        """
        self.asides: list[Aside] = [] if asides is None else asides
        self.has_aside = False
        self.prompt = list(prompt)
        self.chooser = chooser
        self.max_tokens = max_tokens
        self.ids: list[int] = []
        self.reason: str | None = None
        self._stops, self._stream, self._ends = stops, stream, ends
        self._context = context

    @property
    def most(self) -> int:
        """Tokens that may still be chosen."""
        # The last token that is chosen needs no position.
        return min(self.max_tokens - len(self.ids), self._context + 1 - len(self.prompt) - len(self.ids))

    def take(self, token: int) -> str:
        """The text that is complete with one more chosen token; `reason` says whether it was the last one."""
        before = len(self.asides)
        piece = self._taken(token)
        self.has_aside = len(self.asides) > before
        return piece

    def _taken(self, token: int) -> str:
        if token in self._ends:
            self.reason = "stop"
            return self._rest()
        self.ids.append(token)
        piece = self._stops.push(self._stream.push(token))
        if self._stops.found or self.chooser.is_finished:
            self.reason = "stop"
        elif len(self.ids) == self.max_tokens:
            self.reason = "length"
        elif not self.most:
            self.reason = "context"
        return piece + self._rest() if self.reason else piece

    def is_last(self, token: int) -> bool:
        """Whether a token that was just chosen ends the model's turn, or what is asked for."""
        return token in self._ends or self.chooser.is_finished

    def _rest(self) -> str:
        """What was held back."""
        return "" if self._stops.found else self._stops.push(self._stream.flush()) + self._stops.flush()

    @property
    def logprobs(self) -> list[TokenLogprob]:
        """Of `ids`, where they were asked for."""
        return self.chooser.logprobs[: len(self.ids)]


def task_of(
    prompt: Sequence[int],
    tokenizer: Callable[[], Tokenizer],
    texts: int,
    context: int,
    *,
    template: str = "",
    thinks: bool = True,
    max_tokens: int = 256,
    temperature: float = 0.8,
    top_k: int = 40,
    top_p: float = 0.95,
    min_p: float = 0.0,
    seed: int | None = None,
    greedy: bool = False,
    stop: str | Sequence[str] = (),
    ignore_eos: bool = False,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    logit_bias: Mapping[int, float] | None = None,
    logits_processors: Sequence[Processor] = (),
    logprobs: int = 0,
    response_format: Mapping[str, object] | None = None,
) -> Task:
    """What is asked for by options of `Model.generate`; raises InputError as that does.

    Args:
        prompt: ids.
        tokenizer: gives the model's.
        texts: ids that have a text.
        context: positions of a sequence.
        template, thinks: see `division_of`.
    """
    checks.whole("max_tokens", max_tokens, 1)
    checks.flag("ignore_eos", ignore_eos)
    stops = StopStrings([checks.text("stop", stop)] if isinstance(stop, str) else checks.names("stop", stop))
    division = division_of(tokenizer(), prompt, template, thinks=thinks)
    chooser = Chooser(
        Sampler(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed, greedy=greedy),
        logit_bias={} if logit_bias is None else logit_bias,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        processors=logits_processors,
        logprobs=logprobs,
        guide=guide_behind(division, response_format, tokenizer()),
        prompt=prompt,
    )
    chooser.check_ids(texts)
    return Task(
        prompt,
        chooser,
        stops=stops,
        stream=tokenizer().stream() if division is None else division.stream,
        asides=None if division is None else division.stream.asides,
        ends=frozenset() if ignore_eos else tokenizer().stop_ids,
        max_tokens=max_tokens,
        context=context,
    )


def pieces(task: Task, first: Callable[[], int], following: Callable[[], int], spent: list[float]) -> Iterator[str]:
    """The pieces of text of a task, until it ends; an empty one where something came that isn't text.

    Args:
        task: takes the tokens.
        first: chooses the first one.
        following: chooses the one after that which was chosen last.
        spent: seconds of the first token, and of the others, are added to it; those of the caller aren't counted.
    """
    begin = time.perf_counter()
    token = first()
    spent[0] += time.perf_counter() - begin
    while True:
        begin = time.perf_counter()
        piece = task.take(token)
        if len(task.ids) > 1:
            spent[1] += time.perf_counter() - begin
        if piece or task.has_aside:
            yield piece
        if task.reason is not None:
            return
        begin = time.perf_counter()
        token = following()
        spent[1] += time.perf_counter() - begin


class Generation(checks.Unpicklable, Iterator[str]):
    """Pieces of text, generated as they are asked for.

    Attributes:
        finish_reason: None while running; then ``stop`` (the model ended, a stop string came, or what
            ``response_format`` asks for is complete), ``length`` (max_tokens), ``context`` (no position is left),
            ``closed``; and of an engine ``cancelled`` and ``error``.
        error: what was raised where that is ``error``.
        stats: what it took, complete once it has finished.
    """

    _instead = "generate again with the same seed"

    def __init__(self, task: Task, start: Callable[[Generation], Iterator[str]]) -> None:
        self.finish_reason: str | None = None
        self.error: BaseException | None = None
        self.stats = Stats()
        self.task = task
        self._texts: list[str] = []
        self._pieces = start(self)

    @property
    def prompt_ids(self) -> list[int]:
        """Token ids of the prompt."""
        return self.task.prompt

    @property
    def ids(self) -> list[int]:
        """Token ids chosen so far; those that end a turn are not among them."""
        return self.task.ids

    @property
    def logprobs(self) -> list[TokenLogprob]:
        """How likely each of `ids` was, where ``logprobs`` was asked for."""
        return self.task.logprobs

    def __repr__(self) -> str:
        state = self.finish_reason or "running"
        return f"<Generation of {len(self.prompt_ids)} tokens, {len(self.ids)} generated, {state}: {self.text!r}>"

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> str:
        piece = next(self._pieces)
        self._texts.append(piece)
        return piece

    @property
    def text(self) -> str:
        """The text given out so far."""
        return "".join(self._texts)

    @property
    def reasoning(self) -> str:
        """What was thought so far, of a model that thinks, see `channels`: none of it is in `text`."""
        return "".join(own.text for own in self.task.asides if own.kind is Kind.THOUGHT)

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Calls of functions in answers with channels: names, and arguments as the model wrote them, mostly JSON."""
        return [(own.name, own.text) for own in self.task.asides if own.kind is Kind.CALL]

    def read(self) -> str:
        """Runs to the end and returns the whole text."""
        for _ in self:
            pass
        return self.text

    def close(self) -> None:
        """Ends early; what has been generated stays."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
        self.finish_reason = self.finish_reason or "closed"


__all__ = ["Generation", "Options", "Stats", "StopStrings", "Task", "peak_rss", "pieces", "task_of"]
