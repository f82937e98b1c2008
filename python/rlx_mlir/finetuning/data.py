# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Examples for fine-tuning, from lines of JSON, as tokens of which some count: those of the answers.

| a line's object has | what counts |
|---|---|
| `messages`, of `role` and `content`, through the model's chat template | the assistant's turns, and what ends them |
| `prompt` and `completion`, texts that follow each other | the completion, and the end of the text after it |
| `text` | all |

Files may come from anywhere: whatever is wrong with a line is an error that names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rlx_mlir.errors import InputError, ModelFileError, RlxError, UnsupportedError, shortened
from rlx_mlir.files import Json, read_bytes
from rlx_mlir.frontends.documents import parse_json
from rlx_mlir.frontends.model_file import ModelFile
from rlx_mlir.models.chat import ChatTemplate
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.json_tokenizer import tokenizer_of
from rlx_mlir.models.tokenizer import Tokenizer

_FORMS = ({"messages"}, {"prompt", "completion"}, {"text"})
#: Keys that mean something to other programs that isn't implemented.
_REFUSED = ("functions", "images", "tool_calls", "tools", "weight")

_ROUND = 16
"""Lengths of batches are multiples of it."""


@dataclass(frozen=True)
class Example:
    """A text that is learnt from.

    Attributes:
        ids: its tokens.
        counts: of each, whether it is among those that are predicted.
        where: the file and line that it is from, for errors.
    """

    ids: tuple[int, ...]
    counts: tuple[bool, ...]
    where: str = "a text"

    @property
    def answers(self) -> int:
        """Tokens that are predicted."""
        return sum(self.counts[1:])


class Reader:
    """Makes examples of lines, with a model's tokenizer and chat template."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        """Takes both; without a template, messages are an error."""
        self._tokenizer, self._template = tokenizer, template

    @classmethod
    def of(cls, file: ModelFile, config: ModelConfig) -> Reader:
        """That of a model's file; TokenizerError, ChatTemplateError, InputError where its vocabulary can't be used."""
        origin = file.path or ""
        tokenizer = tokenizer_of(file.metadata, origin=origin)
        if tokenizer.vocab_size > config.vocab:
            raise InputError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, but the embedding table only {config.vocab} rows"
            )
        has_template = "tokenizer.chat_template" in file.metadata
        return cls(tokenizer, ChatTemplate.from_metadata(file.metadata, origin=origin) if has_template else None)

    def read(self, path: str | os.PathLike[str]) -> list[Example]:
        """The examples of a file of JSON lines; empty lines are left out.

        Raises ModelFileError, UnsupportedError with the line where it isn't one of the forms, BudgetError where the
        file is too large.
        """
        found: list[Example] = []
        for number, line in enumerate(read_bytes(path, budget="json_bytes").split(b"\n"), 1):
            if line.strip():
                found += self._examples(line, path, number)
        if not found:
            raise ModelFileError("the file must have an example in a line at least, but has none", path=path)
        return found

    def _examples(self, line: bytes, path: str | os.PathLike[str], number: int) -> list[Example]:
        where = f"{os.fspath(path)}: line {number}"
        value = parse_json(line, path, error=partial(_in_line, number))
        if not isinstance(value, dict):
            raise ModelFileError(f"line {number} must be an object, but is {shortened(value)}", path=path)
        if given := [key for key in _REFUSED if key in value]:
            raise UnsupportedError(f"{where} has '{given[0]}', which is not implemented")
        try:
            return [replace(example, where=where) for example in self._of(value)]
        except _Wrong as error:
            raise ModelFileError(f"line {number}{error}", path=path) from None
        except RlxError as error:
            raise ModelFileError(f"line {number}: {error}", path=path) from None

    def _of(self, value: Mapping[str, Json]) -> Iterator[Example]:
        """The examples of an object."""
        forms = [form for form in _FORMS if form <= value.keys()]
        if len(forms) != 1:
            keys = ", ".join(shortened(key) for key in list(value)[:8]) or "nothing"
            raise _Wrong(f" must have 'messages', or 'prompt' and 'completion', or 'text', but has {keys}")
        if "messages" in value:
            yield from self._conversation(value["messages"])
            return
        for key in forms[0]:
            if not isinstance(value[key], str):
                raise _Wrong(f": '{key}' must be a text, but is {shortened(value[key])}")
        prompt, answer = (value["prompt"], value["completion"]) if "prompt" in value else ("", value["text"])
        if not answer:
            raise _Wrong(f": '{'completion' if 'prompt' in value else 'text'}' must have some text, but is empty")
        yield self._continuation(prompt, answer)

    def _continuation(self, prompt: str, answer: str) -> Example:
        """A text of which what follows the prompt counts, and its end."""
        ids = self._tokenizer.tokenize(prompt + answer)
        known = _common(self._tokenizer.tokenize(prompt), ids) if prompt else 0
        if self._tokenizer.eos_id is not None:
            ids.append(self._tokenizer.eos_id)
        return _example(ids, [(known, len(ids))])

    def _conversation(self, messages: object) -> Iterator[Example]:
        """One example where the template writes turns alike whatever follows them; else one for each answer."""
        checked = _messages(messages)
        answers = [number for number, message in enumerate(checked) if message["role"] == "assistant"]
        if not answers:
            raise _Wrong(": 'messages' must have one with the role 'assistant', but have none")
        begins = [self._rendered(checked[:number], answer_follows=True) for number in answers]
        ends = [self._rendered(checked[: number + 1]) for number in answers]
        for number, begin, end in zip(answers, begins, ends, strict=True):
            if not end.startswith(begin):
                raise _Wrong(
                    f": message {number} is an answer, but the model's chat template doesn't write it after "
                    f"{shortened(begin[-40:])}, with which it asks for one"
                )
        if all(ends[-1].startswith(text) for text in (*begins, *ends)):
            yield self._turns(ends[-1], list(zip(begins, ends, strict=True)))
            return
        for begin, end in zip(begins, ends, strict=True):
            yield self._turns(end, [(begin, end)])

    def _turns(self, text: str, answers: Sequence[tuple[str, str]]) -> Example:
        """A text of which some parts count: what is behind the first of a pair, and in the second."""
        ids = self._tokens(text)
        spans = []
        for begin, end in answers:
            first, last = _common(self._tokens(begin), ids), _common(self._tokens(end), ids)
            # What a template writes behind the end of a turn is never generated.
            stops = [place for place in range(first, last) if ids[place] in self._tokenizer.stop_ids]
            spans.append((first, stops[-1] + 1 if stops else last))
        return _example(ids, spans)

    def _rendered(self, messages: Sequence[Mapping[str, object]], *, answer_follows: bool = False) -> str:
        if self._template is None:
            raise _Wrong(" has 'messages', but the model's file has no chat template")
        return self._template.render(messages, add_generation_prompt=answer_follows)

    def _tokens(self, text: str) -> list[int]:
        """Tokens of a text that a template made, as prompts get them."""
        bos = self._template.bos_token if self._template is not None else ""
        return self._tokenizer.tokenize(text, bos=False if bos and text.startswith(bos) else None, special=True)


class _Wrong(Exception):
    """What is wrong with a line, behind its number."""


def _in_line(number: int, message: str, *, path: str | os.PathLike[str] | None = None) -> ModelFileError:
    return ModelFileError(f"line {number}: {message}", path=path)


def _messages(value: object) -> list[dict[str, str]]:
    """Checked messages."""
    if not isinstance(value, list) or not value:
        raise _Wrong(f": 'messages' must be a list of messages, but is {shortened(value)}")
    found = []
    for number, message in enumerate(value):
        own = message if isinstance(message, dict) else {}
        role, content = own.get("role"), own.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            raise _Wrong(f": message {number} must have texts 'role' and 'content', but is {shortened(message)}")
        if given := [key for key in _REFUSED if key in own]:
            raise _Wrong(f": message {number} has '{given[0]}', which is not implemented")
        found.append({"role": role, "content": content})
    return found


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _example(ids: Sequence[int], spans: Sequence[tuple[int, int]]) -> Example:
    counts = [False] * len(ids)
    for first, last in spans:
        counts[first:last] = [True] * (last - first)
    return Example(tuple(ids), tuple(counts))


@dataclass(frozen=True)
class Rows:
    """Examples as arrays: what the inputs of `graph.LossGraph` take a row at a time.

    Attributes:
        tokens, targets: i32 [rows, length].
        counted: f32 [rows, length], 1 where the target is one of an answer, else 0.
        cut: examples of which tokens are left out.
        positions: i32 [rows, length], of each token the place in its example; None where each row has one example.
    """

    tokens: np.ndarray
    targets: np.ndarray
    counted: np.ndarray
    cut: int = 0
    positions: np.ndarray | None = None

    @property
    def packed(self) -> bool:
        """Whether rows may have several examples."""
        return self.positions is not None

    def inputs(self, *, packed: bool) -> dict[str, np.ndarray]:
        """The arrays by the names of inputs, of a graph for packed rows or for such of one example."""
        found = {"tokens": self.tokens, "targets": self.targets, "weights": self.counted}
        if packed:
            places = np.broadcast_to(np.arange(self.length, dtype=np.int32), self.tokens.shape)
            found["positions"] = places if self.positions is None else self.positions
        return found

    @property
    def length(self) -> int:
        """Tokens of a row."""
        return int(self.tokens.shape[1])

    @property
    def answers(self) -> int:
        """Targets that count."""
        return int(self.counted.sum())

    def __len__(self) -> int:
        return len(self.tokens)


def rows_of(examples: Sequence[Example], length: int, *, pack: bool = False, exact: bool = False) -> Rows:
    """Rows of at most `length` tokens, as long as the longest example needs.

    What is longer is cut at its end; a text all of which counts goes on in further rows.

    Args:
        examples: what is in them.
        length: tokens of a row at most.
        pack: put several examples into rows of `length` tokens where they fit, one behind the other; none sees another.
        exact: rows have `length` tokens, also where fewer would do.

    Raises InputError where an example has no answer within `length` tokens.
    """
    parts, cut = _cut(examples, length)
    return _rows(parts, length if exact or pack else _width(parts, length), cut, pack=pack)


def rows_alike(
    examples: Sequence[Example], held_out: Sequence[Example], length: int, *, pack: bool = False
) -> tuple[Rows, Rows | None]:
    """Rows of what is learnt from, as `rows_of` gives them, and of what is held out, all of one length.

    The latter have one example each; None where nothing is held out. Raises InputError as `rows_of` does.
    """
    (parts, cut), (others, others_cut) = _cut(examples, length), _cut(held_out, length)
    width = length if pack else _width([*parts, *others], length)
    return _rows(parts, width, cut, pack=pack), _rows(others, width, others_cut) if others else None


def _width(parts: Sequence[Example], length: int) -> int:
    """Tokens of rows that have the longest of the parts."""
    longest = max(len(part.ids) - 1 for part in parts)
    return min(length, -(-longest // _ROUND) * _ROUND)


def _cut(examples: Sequence[Example], length: int) -> tuple[list[Example], int]:
    """What examples are as parts of at most `length` tokens and the one that follows, and how many lose tokens."""
    parts: list[Example] = []
    cut = 0
    for example in examples:
        windows = _windows(example, length)
        is_long = len(example.ids) > length + 1
        cut += len(windows) == 1 and is_long
        kept = [window for window in windows if window.answers]
        if not kept:
            raise InputError(
                f"{example.where} has no token of an answer among its first {length}: "
                f"{f'it has {len(example.ids)}, so a larger length is needed' if is_long else 'it has none at all'}"
            )
        parts += kept
    return parts, cut


def _rows(parts: Sequence[Example], width: int, cut: int, *, pack: bool = False) -> Rows:
    """Rows of `width` tokens, of one part each or of several."""
    bins = _packed(parts, width) if pack else [[part] for part in parts]
    shape = (len(bins), width)
    places = np.tile(np.arange(width, dtype=np.int32), (len(bins), 1))
    several = any(len(inside) > 1 for inside in bins)
    tokens, targets = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    found = Rows(tokens, targets, np.zeros(shape, np.float32), cut, places if several else None)
    for row, inside in enumerate(bins):
        place = 0
        for part in inside:
            end = place + len(part.ids) - 1
            found.tokens[row, place:end] = part.ids[:-1]
            found.targets[row, place:end] = part.ids[1:]
            found.counted[row, place:end] = part.counts[1:]
            places[row, place:] = np.arange(width - place)
            place = end
    return found


def _windows(example: Example, length: int) -> list[Example]:
    """Parts of at most `length` tokens and the one that follows; the first alone, where not all counts."""
    if not all(example.counts[1:]):
        return [Example(example.ids[: length + 1], example.counts[: length + 1])]
    starts = range(0, max(1, len(example.ids) - 1), length)
    return [Example(example.ids[s : s + length + 1], example.counts[s : s + length + 1]) for s in starts]


def _packed(parts: Sequence[Example], width: int) -> list[list[Example]]:
    """Parts by row, the longest first, each into the first row in which it fits."""
    bins: list[list[Example]] = []
    room: list[int] = []
    for part in sorted(parts, key=lambda part: -len(part.ids)):
        size = len(part.ids) - 1
        place = next((number for number, left in enumerate(room) if left >= size), len(bins))
        if place == len(bins):
            bins.append([])
            room.append(width)
        bins[place].append(part)
        room[place] -= size
    return bins


__all__ = ["Example", "Reader", "Rows", "rows_alike", "rows_of"]
