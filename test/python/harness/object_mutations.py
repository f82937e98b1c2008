# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Links objects with changed bytes, one after the other, and prints each seed and how it ended.

    python object_mutations.py FOLDER FIRST COUNT

The folder has the objects, `*.o`. What a changed object leads to is an error or an image: this process ends only where
the loader has a fault. Nothing of what is loaded is called.
"""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path

from rlx_mlir import native
from rlx_mlir.errors import ExecutionError

_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 9, 11, 24, 64, 0xFFF1, 0xFFF2, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
#: Entries of tables, by the type of their section: symbols, relocations.
_ENTRIES = {2: 24, 4: 24}


def tables(data: bytes) -> list[tuple[int, int, int]]:
    """(offset, entries, bytes of an entry) of the header, the section headers, the symbols and the relocations."""
    (headers,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    found = [(0, 1, 64), (headers, count, 64)]
    for number in range(count):
        kind, _, _, offset, size = struct.unpack_from("<IQQQQ", data, headers + 64 * number + 4)
        if kind in _ENTRIES and size:
            found.append((offset, size // _ENTRIES[kind], _ENTRIES[kind]))
    return found


def changed(data: bytes, rng: random.Random) -> bytes:
    """An object with a few changes, of which some are made by somebody who knows where numbers are."""
    out = bytearray(data)
    places = tables(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        offset, count, size = rng.choice(places)
        at = offset + size * rng.randrange(count)
        way = rng.random()
        if way < 0.4:
            out[at + rng.randrange(size)] ^= 1 << rng.randrange(8)
        elif way < 0.9:
            width = rng.choice((1, 2, 4, 8))
            place = at + rng.randrange(size // width) * width
            old = int.from_bytes(out[place : place + width], "little")
            new = rng.choice((*_NUMBERS, old + 1, old - 1, 2 * old, len(data), len(data) - old, rng.getrandbits(64)))
            out[place : place + width] = (new % 2 ** (8 * width)).to_bytes(width, "little")
        else:
            other, entries, same = rng.choice(places)
            source = other + same * rng.randrange(entries)
            out[at : at + min(size, same)] = out[source : source + min(size, same)]
    return bytes(out[: rng.randrange(len(out))] if rng.random() < 0.05 else out)


def outcome(data: bytes, machine: int, own: int) -> str:
    """`linked`, or what is wrong."""
    functions = dict.fromkeys(native.host_functions(), 0x1000)
    try:
        native.link_objects([data], machine=machine, address=0x10000, functions=functions)
        if machine == own:
            native.ObjectCode([data])
    except ExecutionError as error:
        return str(error)
    return "linked"


def main(folder: str, first: str, count: str) -> None:
    objects = [path.read_bytes() for path in sorted(Path(folder).glob("*.o"))]
    own = 62 if native.host_processor()[0] == "x86_64" else 183
    for seed in range(int(first), int(first) + int(count)):
        print(seed, flush=True)
        rng = random.Random(seed)
        data = rng.choice(objects)
        (machine,) = struct.unpack_from("<H", data, 18)
        print(outcome(changed(data, rng), machine, own), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
