# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles whose manifest or metadata somebody changed, digests and all: each loads and runs, or is an error of ours.

Run as a program, in a process of its own: ``bundle_mutations.py KIND BUNDLE FOLDER SEED COUNT``.
"""

from __future__ import annotations

import collections
import copy
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bundles import rewritten

from rlx_mlir.errors import RlxError
from rlx_mlir.models.bundle import MANIFEST, METADATA, TOKENIZER
from rlx_mlir.models.embedding import load_encoder
from rlx_mlir.models.loading import load_model

#: What stands in place of a value.
JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 7, 63, 2**31 - 1, 2**40, 2**62, 2**70, 0.5, -0.0, 1e300),
    *("", "native", "f32", "ui8", "q4_1", "a" * 100, "\0", [], {}, [[]], [1, 2], {"a": 1}, [0, 0, "f32", [2, 3]]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value in a value of JSON, but itself."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, own in items:
        yield (*path, key)
        yield from places(own, (*path, key))


def changed(document: Any, rng: random.Random) -> Any:
    """A copy in which one value is another one, is missing, or is there twice."""
    document = copy.deepcopy(document)
    # Most values are those of parameters: each part of the document is as likely as the others.
    key = rng.choice(list(document))
    *path, last = rng.choice([(key,), *((key, *own) for own in places(document[key]))])
    inner = document
    for each in path:
        inner = inner[each]
    what = rng.randrange(4)
    if what == 0:
        del inner[last]
    elif what == 1 and isinstance(inner, list):
        inner.insert(last, inner[last])
    elif what == 2 and type(inner[last]) is int:
        inner[last] += rng.choice((-1, 1, 64, 4096))
    else:
        inner[last] = rng.choice(JUNK)
    return document


def flipped(content: bytes, rng: random.Random) -> bytes:
    """The same with some bits flipped."""
    found = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def run_decoder(path: Path) -> None:
    """Loads a language model and has it do a little."""
    model = load_model(path)
    model.logits([1, 2])
    model.generate([5, 6], max_tokens=2, greedy=True).read()
    model.generate("the cat", max_tokens=1, draft="lookup").read()
    model.chat_ids([{"role": "user", "content": "a"}])


def run_encoder(path: Path) -> None:
    """Loads an encoder and has it do a little."""
    encoder = load_encoder(path)
    encoder.embed_tokens([[1, 2], [3]])
    encoder.embed(["the cat", ""])


RUN = {"decoder": (run_decoder, METADATA), "encoder": (run_encoder, TOKENIZER)}


def main(kind: str, bundle: Path, folder: Path, seed: int, count: int) -> None:
    """Prints how often what came of it: the name of an error, or that it ran."""
    rng, found = random.Random(seed), collections.Counter[str]()
    run, texts = RUN[kind]
    for number in range(count):

        def change(content: dict[str, bytes], what: int = number % 3) -> None:
            if what == 0:
                content[MANIFEST] = flipped(content[MANIFEST], rng)
            elif what == 1:
                content[texts] = flipped(content[texts][:4000], rng) + content[texts][4000:]
            else:
                content[MANIFEST] = json.dumps(changed(json.loads(content[MANIFEST]), rng)).encode()

        path = rewritten(bundle, folder / "changed.rlx", change)
        try:
            run(path)
            found["ran"] += 1
        except RlxError as error:
            found[type(error).__name__] += bool(str(error))
        except BaseException:
            print(f"seed {seed}, number {number}: {path}", file=sys.stderr)
            raise
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
