# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The reader of JSON that a stranger sent: every file of a model's folder, and headers of safetensors.

Stricter than Python's: UTF-8 without a byte order mark, no key twice (two readers would see two models), no NaN and
Infinity (which aren't JSON, but that configurations may have the latter), no halves of surrogate pairs; and bounded:
bytes, nesting and digits have budgets. Every error names the file and, where there is one, the byte.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from rlx_mlir import budgets
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import ModelFileError, RlxError, shortened
from rlx_mlir.files import Error, Json, Name, decode, is_there, read_bytes

Kind = TypeVar("Kind")

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_CHUNK = 1 << 22
#: How each byte changes the depth.
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1


def read_json(path: Name, *, error: Error = ModelFileError) -> Json:
    """The value in a file; what `error` makes where it can't be read or isn't JSON, BudgetError where it's too much."""
    return parse_json(read_bytes(path, error=error), path, error=error)


def read_object(path: Name, *, error: Error = ModelFileError, infinity: bool = False) -> dict[str, Json]:
    """As `read_json`, of a file that holds one object; in which Infinity is a number, where that is said."""
    value = parse_json(read_bytes(path, error=error), path, error=error, infinity=infinity)
    if not isinstance(value, dict):
        raise error(f"the file must hold a JSON object, but holds {shortened(value)}", path=path)
    return value


def parse_json(content: bytes, path: Name | None, *, error: Error = ModelFileError, infinity: bool = False) -> Json:
    """The value of JSON in bytes; `path` is where they are from, `infinity` as of `read_object`. As `read_json`."""
    what = "the JSON" if path is None else str(path)
    budgets.check("json_bytes", len(content), what)
    budgets.check("nesting", nesting(content), what)
    if content.startswith(b"\xef\xbb\xbf"):
        raise error("byte 0: JSON begins without a byte order mark", path=path)
    text = decode(content, path, error=error)

    with foreign_errors(what, partial(_wrapped, error, path)):
        return _parsed(text, what, path, error, infinity)


class Document:
    """A file with one JSON object, whose entries are checked as they are read.

    Attributes:
        path: the file.
        content: its entries.
    """

    def __init__(self, path: Path, what: str, content: dict[str, Json] | None = None) -> None:
        """Reads the file; `what` is what the folder would be that has it. With `content`, that is a part of it.

        Raises ModelFileError where it is missing or malformed, BudgetError.
        """
        self.path = path
        if content is None and not is_there(path):
            raise ModelFileError(f"the file is missing; {what} is a folder that has it", path=path)
        self.content: dict[str, Json] = read_object(path, infinity=True) if content is None else content

    def fail(self, key: str, rule: str, value: object) -> ModelFileError:
        return ModelFileError(f"'{key}' must be {rule}, but is {shortened(value)}", path=self.path)

    def get(self, key: str, kind: type[Kind], default: Kind | None = None) -> Kind:
        """An entry of a type; where there is none, the default, or an error where that is None."""
        value = self.content.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.fail(key, f"of type {kind.__name__}", value)
        return value

    def part(self, key: str) -> Document:
        """An entry that is an object, as a document of its own."""
        return Document(self.path, "", self.get(key, dict))

    def integer(self, key: str, least: int = 1, default: int | None = None) -> int:
        value = self.get(key, int, default)
        if not least <= value < 1 << 31:
            raise self.fail(key, f"an integer from {least} to 2^31 - 1", value)
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self.content.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value < math.inf:
            raise self.fail(key, "a finite number", value)
        return float(value)

    def refused(self, neutral: Mapping[str, tuple[object, ...]]) -> list[str]:
        """The entries that change something in a way that isn't implemented, by the values that change nothing."""
        return [
            f"'{key}' = {shortened(self.content[key])}"
            for key, values in neutral.items()
            if not any(self.content.get(key) == value for value in values)
        ]


def _wrapped(error: Error, path: Name | None, message: str) -> RlxError:
    return error(message.removeprefix(f"{path}: "), path=path)


def _parsed(text: str, what: str, path: Name | None, error: Error, infinity: bool) -> Json:
    """The value of JSON without a byte order mark whose nesting is checked."""

    def number(word: str) -> int:
        budgets.check("digits", len(word), what)
        try:
            return int(word)
        except ValueError:  # the interpreter has a limit too
            raise budgets.exceeded("digits", what, len(word)) from None

    def constant(word: str) -> float:
        if infinity and word == "Infinity":
            return math.inf
        raise error(f"{word} isn't JSON: numbers are finite", path=path)

    def fields(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise error(f"the key {shortened(twice)} stands twice in one object", path=path)
        return found

    try:
        value = json.loads(text, parse_int=number, parse_constant=constant, object_pairs_hook=fields)
        if _HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as cause:
        place = f"byte {len(text[: cause.pos].encode())}"
        if "\n" in text.strip():  # one line may be one of a file's lines, whose number is another
            place += f" (line {cause.lineno})"
        raise error(f"{place}: not JSON: {cause.msg[:1].lower()}{cause.msg[1:]}", path=path) from None
    except RecursionError:
        raise budgets.exceeded("nesting", what) from None
    except UnicodeEncodeError:
        raise error("a text has half of a surrogate pair, which isn't Unicode", path=path) from None
    return value


def nesting(content: bytes) -> int:
    """Levels of brackets within each other, outside of strings; of bytes that aren't JSON, about that."""
    if content.count(b"[") + content.count(b"{") <= 1:
        return content.count(b"[") + content.count(b"{")
    # Without what stands behind a backslash, every quote begins or ends a string.
    content = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    deepest = depth = quotes = 0
    for start in range(0, len(content), _CHUNK):
        part = np.frombuffer(content, np.uint8, min(_CHUNK, len(content) - start), start)
        marks = part == ord('"')
        inside = (quotes + np.cumsum(marks, dtype=np.int32)) & 1
        quotes = int(quotes + np.count_nonzero(marks)) & 1
        levels = depth + np.cumsum(np.where(inside == 1, 0, _STEPS[part]), dtype=np.int64)
        if levels.size:
            deepest, depth = max(deepest, int(levels.max())), int(levels[-1])
    return deepest


__all__ = ["Document", "nesting", "parse_json", "read_json", "read_object"]
