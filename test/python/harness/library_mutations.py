# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles that somebody changed, given to librlx_runtime.so: each is opened and runs, or is an error with a text.

Run as a program, in a process of its own: ``library_mutations.py BUNDLE FOLDER SEED COUNT``. Bytes of the file are
flipped as they are; and what the sections say is changed with digests that hold, but for code and weights: whoever
writes those decides what a process does.
"""

from __future__ import annotations

import collections
import hashlib
import json
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from bundle_mutations import changed, flipped
from bundles import rewritten
from c_api import CError
from c_runtime import Opened, verify

from rlx_mlir.models.bundle import MANIFEST, TEXT

_ARTIFACT = struct.Struct("<8sIQQ32s")
_HEADER_BYTES, _DIGESTED, _ENTRY_BYTES = 80, 48, 128


def run(path: Path) -> None:
    """Opens a bundle and has it do a little; raises CError."""
    opened = Opened(path, threads=1)
    session = opened.session()
    session.feed([1, 2, 3])
    session.ids(2)
    session.say("user", "hello the cat")
    session.next()
    opened.tokenize("hello world, the cat <|im_end|> \u00e9  \n")


def raw(bundle: Path, target: Path, rng: random.Random) -> None:
    """Some bits of the file are flipped, or it is cut off."""
    content = bundle.read_bytes()
    content = content[: rng.randrange(len(content))] if rng.random() < 0.2 else _front(content, rng)
    target.write_bytes(content)


def _front(content: bytes, rng: random.Random) -> bytes:
    """The same with bits flipped of the header, or of the table and the manifest, which come last."""
    size = rng.choice((_HEADER_BYTES, 20_000))
    return (
        flipped(content[:size], rng) + content[size:]
        if size == _HEADER_BYTES
        else content[:-size] + flipped(content[-size:], rng)
    )


def table(bundle: Path, target: Path, rng: random.Random) -> None:
    """Header or table say something else, with a digest that holds."""
    content = bytearray(bundle.read_bytes())
    (count,) = struct.unpack_from("<I", content, 12)
    (at,) = struct.unpack_from("<Q", content, 16)
    if rng.random() < 0.3:
        content[8:_DIGESTED] = flipped(bytes(content[8:_DIGESTED]), rng)
    else:
        entry = at + _ENTRY_BYTES * rng.randrange(count)
        place = entry + rng.choice((0, 64, 72, 112, 120))
        struct.pack_into("<Q", content, place, rng.choice((0, 1, 4096, 4097, len(content), 2**63, 2**64 - 4096)))
    entries = bytes(content[at : at + count * _ENTRY_BYTES])
    content[_DIGESTED:_HEADER_BYTES] = hashlib.sha256(bytes(content[:_DIGESTED]) + entries).digest()
    target.write_bytes(content)


def manifest(bundle: Path, target: Path, rng: random.Random) -> None:
    """The manifest says something else, or is no JSON any more."""

    def change(content: dict[str, bytes]) -> None:
        if rng.random() < 0.3:
            content[MANIFEST] = flipped(content[MANIFEST], rng)
        else:
            content[MANIFEST] = json.dumps(changed(json.loads(content[MANIFEST]), rng)).encode()

    rewritten(bundle, target, change)


def text(bundle: Path, target: Path, rng: random.Random) -> None:
    """Vocabulary, patterns and chat are something else."""

    def change(content: dict[str, bytes]) -> None:
        # Most of it are characters of patterns: bytes of tokens, at its start, and the chat, at its end, count as much.
        begin = rng.choice((0, len(content[TEXT]) - 400, rng.randrange(len(content[TEXT]) - 400)))
        end = begin + 400
        content[TEXT] = content[TEXT][:begin] + flipped(content[TEXT][begin:end], rng) + content[TEXT][end:]

    rewritten(bundle, target, change)


def description(bundle: Path, target: Path, rng: random.Random) -> None:
    """A module's description says something else of the same code."""

    def change(content: dict[str, bytes]) -> None:
        name = rng.choice([name for name in content if name.startswith("artifact/")])
        magic, version, length, code_length, _ = _ARTIFACT.unpack_from(content[name])
        rest = content[name][_ARTIFACT.size :]
        document = changed(json.loads(rest[:length]), rng)
        if "templates" not in document or rng.random() < 0.2:
            own = flipped(rest[:length], rng)
        else:
            own = json.dumps(document).encode()
        lengths = struct.pack("<QQ", len(own), code_length)
        digest = hashlib.sha256(lengths + own + rest[length:]).digest()
        header = _ARTIFACT.pack(magic, version, len(own), code_length, digest)
        content[name] = header + own + rest[length:]

    rewritten(bundle, target, change)


CHANGES: tuple[Callable[[Path, Path, random.Random], None], ...] = (raw, table, manifest, text, description)


def main(bundle: Path, folder: Path, seed: int, count: int) -> None:
    """Prints of each kind of change how often a file ran, and how often it was an error."""
    found: dict[str, collections.Counter[str]] = {change.__name__: collections.Counter() for change in CHANGES}
    path = folder / "changed.rlx"
    for number in range(count):
        change = CHANGES[number % len(CHANGES)]
        # The seed of each case is its own, and is known where the process ends in it.
        change(bundle, path, random.Random(f"{seed} {number}"))
        print(f"seed {seed}, number {number}: {change.__name__}", file=sys.stderr, flush=True)
        try:
            verify(path)
            run(path)
            found[change.__name__]["ran"] += 1
        except CError as error:
            found[change.__name__]["failed" if str(error) and error.status in (1, 2) else "without a text"] += 1
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
