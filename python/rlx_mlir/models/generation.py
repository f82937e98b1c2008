# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text as it is generated: the iterator that `Model.generate` returns, stop strings, and what a run took."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import InputError


@dataclass(frozen=True)
class Stats:
    """What one call of a model took, and what loading the model took.

    Attributes:
        prompt_tokens: tokens that were processed before the first logits.
        reused_tokens: tokens of the prompt that were in the cache already.
        generated_tokens: tokens chosen; the first of them comes from the prompt's logits.
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


class Generation(Iterator[str]):
    """Pieces of text, generated as they are asked for.

    Attributes:
        prompt_ids: token ids of the prompt.
        ids: token ids chosen so far; those that end a turn are not among them.
        finish_reason: None while running; then ``stop`` (the model ended, or a stop string came), ``length``
            (max_tokens), ``context`` (no position is left) or ``closed``.
        stats: what it took, complete once it has finished.
    """

    def __init__(self, prompt_ids: Sequence[int], start: Callable[[Generation], Iterator[str]]) -> None:
        self.prompt_ids = list(prompt_ids)
        self.ids: list[int] = []
        self.finish_reason: str | None = None
        self.stats = Stats()
        self._texts: list[str] = []
        self._pieces = start(self)

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


__all__ = ["Generation", "Stats", "StopStrings", "peak_rss"]
