# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx batch`: continues the prompts of a file, several at a time.

A line of the input is a JSON object:

| key | |
|---|---|
| `prompt` or `messages` | a text or token ids; or chat messages |
| `id` | optional: anything, which the output repeats |
| `chat` | optional: whether a text goes into the chat template, in place of `--chat` |
| an option of `Model.generate` | optional: in place of the command's, such as `max_tokens` |

A line of the output is one of the input, by its number in `line`: its `id`, `text`, `finish_reason`, `prompt_tokens`,
`generated_tokens`, `reasoning` of a model that thinks, and, where they are asked for, `logprobs`; or `error`.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.errors import InputError, ModelFileError, RlxError, did_you_mean, shortened
from rlx_mlir.files import Json
from rlx_mlir.tools.choosing import Choosing, logprob_rows
from rlx_mlir.tools.loading import LoadingToGenerate, takes_options
from rlx_mlir.tools.options import JsonOption, OptionError, counted, message_of, print_json, progress, writing

if TYPE_CHECKING:
    from rlx_mlir.checks import Option
    from rlx_mlir.models.core import Core
    from rlx_mlir.models.engine import Engine
    from rlx_mlir.models.generation import Generation
    from rlx_mlir.models.model import Model

#: Failures that are shown; the output has all.
_SHOWN = 10


#: Lines of the output, as they are done.
Records = Generator[dict[str, object], None, None]


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A line of the input.

    Attributes:
        number: of the line, from 1.
        index: among the lines that aren't empty, from 0; it is added to the seed.
        values: its object.
        error: what is wrong with it.
    """

    number: int
    index: int
    values: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    error: str = ""

    def record(self, **found: object) -> dict[str, object]:
        """Its line of the output."""
        return {"line": self.number, **({"id": self.values["id"]} if "id" in self.values else {}), **found}


@takes_options
def batch(
    loading: LoadingToGenerate,
    choosing: Choosing,
    prompts: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="JSON lines: {prompt} or {messages: [{role, content}, …]}, with id and options or not.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="File for JSON lines: text, or error, of each line.")],
    sequences: Annotated[int, typer.Option(min=1, help="Lines that are worked on at a time.")] = 8,
    chat: Annotated[bool, typer.Option("--chat", help="Put prompts into the chat template.")] = False,
    unordered: Annotated[
        bool, typer.Option("--unordered", help="Write lines as they are done, not in the order of the input.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on behind what an interrupted run wrote to the output.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Continue the prompts of a file, several at a time.

    Each text is the one that `rlx generate` gives; the seed of a line is --seed plus the number of lines before it. A
    line that fails has its error in the output, and the others go on; then the exit status is 1. With --resume, lines
    that failed before stay as they are.
    """
    common = {"chat": chat, **choosing.options()}
    entries = _read(prompts)
    done = _done_before(output, prompts, entries, resume=resume)
    left = [entry for entry in entries if entry.number not in done]
    totals = _Totals(len(entries), len(done), errors=[error for error in done.values() if error])
    with _opened(output) as write:  # before anything takes long
        records = _records(loading, left, common, sequences)
        totals.begin = time.perf_counter()
        with closing(records), counted("line", len(entries), len(done)) as show:
            for record in records if unordered else _in_order(records, left):
                write(record)
                totals.add(record)
                show(totals.resumed + totals.written, totals.figures())
    if as_json:
        print_json({**totals.to_dict(), "output": str(output)})
    else:
        typer.echo(str(totals))
    for text in totals.errors[:_SHOWN]:
        typer.echo(f"rlx: {text}", err=True)
    if len(totals.errors) > _SHOWN:
        typer.echo(f"rlx: {len(totals.errors) - _SHOWN} more lines failed: {output} says why", err=True)
    if totals.errors:
        raise typer.Exit(1)


@dataclasses.dataclass
class _Totals:
    """What a run did.

    Attributes:
        lines: of the input.
        resumed: of these, those that the output had before.
        written: since then.
        errors: of lines that failed, now or before.
    """

    lines: int
    resumed: int
    written: int = 0
    generated_tokens: int = 0
    errors: list[str] = dataclasses.field(default_factory=list)
    begin: float = dataclasses.field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begin

    def add(self, record: Mapping[str, Json]) -> None:
        """Counts a line of the output."""
        self.written += 1
        self.generated_tokens += record.get("generated_tokens", 0)
        if "error" in record:
            self.errors.append(record["error"])

    def figures(self) -> str:
        """What is shown on the way."""
        failed = f", {len(self.errors)} failed" * bool(self.errors)
        return f"{self.generated_tokens / self.seconds:.1f} tokens/s{failed}"

    def __str__(self) -> str:
        before = f", {self.resumed} of them before" * bool(self.resumed)
        return (
            f"{self.lines} lines{before}, {len(self.errors)} failed; {self.generated_tokens} tokens in "
            f"{self.seconds:.1f} s, {self.generated_tokens / self.seconds:.1f} tokens/s"
        )

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        return {
            "lines": self.lines,
            "resumed": self.resumed,
            "failed": len(self.errors),
            "generated_tokens": self.generated_tokens,
            "seconds": self.seconds,
            "tokens_per_second": self.generated_tokens / self.seconds,
        }


# Files ------------------------------------------------------------------------------------------------


def _read(path: Path) -> list[_Entry]:
    """The lines of the input that aren't empty; ModelFileError, BudgetError where the file can't be read."""
    from rlx_mlir.files import read_text

    lines = [(number, line) for number, line in enumerate(read_text(path).split("\n"), 1) if line.strip()]
    if not lines:
        raise ModelFileError("the file must have a prompt in a line at least, but has none", path=path)
    return [_entry(number, index, line) for index, (number, line) in enumerate(lines)]


def _entry(number: int, index: int, line: str) -> _Entry:
    from rlx_mlir.frontends.documents import parse_json

    try:
        value = parse_json(line.encode(), f"line {number}")
        if not isinstance(value, dict):
            raise InputError(f"line {number}: must be an object, but is {shortened(value)}")
    except RlxError as error:
        return _Entry(number, index, error=str(error))
    return _Entry(number, index, value, _wrong(number, value))


def _wrong(number: int, value: Mapping[str, object]) -> str:
    """What is wrong with the keys of a line."""
    known = _keys()
    for key in value:
        if key not in known:
            near = did_you_mean(key, known) or f"; there are {', '.join(known)}"
            return f"line {number}: there is no option {shortened(key)}{near}"
    if ("prompt" in value) == ("messages" in value):
        keys = ", ".join(value) or "nothing"
        return f"line {number}: must have 'prompt' or 'messages', and not both, but has {keys}"
    return ""


def _keys() -> tuple[str, ...]:
    """What a line may have: all options but functions."""
    from rlx_mlir.models.generation import Options

    options = (name for name in Options.__annotations__ if name != "logits_processors")
    return ("id", "prompt", "messages", "chat", *options)


def _done_before(output: Path, prompts: Path, entries: Sequence[_Entry], *, resume: bool) -> dict[int, str]:
    """The lines that the output has, by number: the error of each that failed, else nothing. What was cut off while it
    was written is removed.

    Raises InputError where there is an output that isn't to be gone on with, or that isn't of this input.
    """
    from rlx_mlir.files import read_bytes
    from rlx_mlir.frontends.documents import parse_json
    from rlx_mlir.paths import open_output

    if not output.is_file() or not output.stat().st_size:
        return {}
    if output.samefile(prompts):
        raise OptionError(f"'--output' {output} is the input: its lines would be lost")
    if not resume:
        raise InputError(f"{output} is there already: '--resume' goes on behind its lines, or remove it")
    content = read_bytes(output)
    size = content.rfind(b"\n") + 1
    by_number = {entry.number: entry for entry in entries}
    found: dict[int, str] = {}
    for place, line in enumerate(content[:size].splitlines(), 1):
        value = parse_json(line, f"{output}: line {place}")
        number = value.get("line") if isinstance(value, dict) else None
        entry = by_number.get(number) if isinstance(number, int) else None
        if entry is None or entry.values.get("id") != value.get("id"):
            raise InputError(
                f"{output}: line {place} must be of a line of {prompts}, with its 'id', to go on, but is "
                f"{shortened(line.decode())}"
            )
        found[entry.number] = str(value.get("error", ""))
    if size < len(content):
        with writing(output), open_output(output, append=True) as file:
            file.truncate(size)
    return found


@contextmanager
def _opened(path: Path) -> Iterator[Callable[[Mapping[str, object]], None]]:
    """What appends a line to the output, which has it as a whole before the next one is asked for."""
    from rlx_mlir.paths import open_output

    with ExitStack() as stack:
        with writing(path):
            file = stack.enter_context(open_output(path, append=True))

        def write(record: Mapping[str, object]) -> None:
            text = json.dumps(record, ensure_ascii=False)
            with writing(path):
                file.write(f"{text}\n".encode())
                file.flush()

        yield write


# Lines ------------------------------------------------------------------------------------------------


def _records(loading: LoadingToGenerate, left: list[_Entry], common: Mapping[str, Option], sequences: int) -> Records:
    """Lines of the output as they are done, of those of the input that are left: without any, no model is loaded."""
    if not left:
        return _none()
    with progress() as say:
        model = loading.load(say)
        if model.on_gpu:
            return _one_by_one(model, left, common)
        return _together(_engine(model, sequences, say), left, common)


def _none() -> Records:
    yield from ()


def _engine(model: Model, sequences: int, say: Callable[[str], None] | None) -> Engine:
    from rlx_mlir.models.engine import Engine

    if say is not None:
        say("compiling what decodes several sequences")
    return Engine(model, sequences=sequences, queue=sequences)


def _together(engine: Engine, entries: Sequence[_Entry], common: Mapping[str, Option]) -> Records:
    """Lines of the output as they are done, several at a time; then the engine is closed."""
    left, done = deque(entries), list[dict[str, object]]()
    with engine:
        while left or not engine.is_idle:
            while left and engine.waiting < engine.queue:
                entry = left.popleft()
                try:
                    ended = partial(_note, done, engine.model, entry)
                    engine.add(**_asked(entry, common), on_text=_nothing, on_done=ended)
                except RlxError as error:
                    done.append(_failed(entry, error))
            engine.step()
            yield from done
            done.clear()


def _one_by_one(model: Model, entries: Sequence[_Entry], common: Mapping[str, Option]) -> Records:
    """The same one after the other, as on GPUs."""
    for entry in entries:
        try:
            generation = model.generate(**_asked(entry, common))
            generation.read()
        except RlxError as error:
            yield _failed(entry, error)
        else:
            yield _record(model, entry, generation)


def _note(done: list[dict[str, object]], model: Core, entry: _Entry, generation: Generation) -> None:
    error = generation.error
    done.append(_record(model, entry, generation) if error is None else _failed(entry, error))


def _nothing(_text: str) -> None:
    """Text is written when all of it is there."""


def _asked(entry: _Entry, common: Mapping[str, Option]) -> dict[str, Option]:
    """Arguments of `Model.generate` for a line; InputError for one that is wrong."""
    if entry.error:
        raise InputError(entry.error)
    own = {name: value for name, value in entry.values.items() if name not in ("id", "prompt", "messages")}
    options = {**common, **own}
    if "messages" in entry.values:
        messages = entry.values["messages"]
        if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
            raise InputError(f"'messages' must be objects with 'role' and 'content', but is {shortened(messages)}")
        options["prompt"], options["chat"] = messages, True
    else:
        prompt = options["prompt"] = entry.values["prompt"]
        options["chat"] = options["chat"] and isinstance(prompt, str) if "chat" not in own else own["chat"]
    if "seed" not in own and common["seed"] is not None:
        options["seed"] = common["seed"] + entry.index
    if isinstance(bias := own.get("logit_bias"), dict):  # keys of JSON are texts
        options["logit_bias"] = {int(key) if key.isascii() and key.isdigit() else key: bias[key] for key in bias}
    return options


def _failed(entry: _Entry, error: BaseException) -> dict[str, object]:
    text = message_of(error)
    where = f"line {entry.number}: "
    return entry.record(error=text if text.startswith(where) else where + text)


def _record(model: Core, entry: _Entry, generation: Generation) -> dict[str, object]:
    found = entry.record(
        text=generation.text,
        finish_reason=generation.finish_reason,
        prompt_tokens=len(generation.prompt_ids),
        generated_tokens=len(generation.ids),
    )
    if generation.reasoning:
        found["reasoning"] = generation.reasoning
    if generation.logprobs:
        found["logprobs"] = logprob_rows(model, generation.logprobs)
    return found


def _in_order(records: Iterable[dict[str, object]], entries: Sequence[_Entry]) -> Iterator[dict[str, object]]:
    """Lines of the output in the order of the input: each waits for those before it."""
    waiting: dict[object, dict[str, object]] = {}
    order = deque(entry.number for entry in entries)
    for record in records:
        waiting[record["line"]] = record
        while order and order[0] in waiting:
            yield waiting.pop(order.popleft())
