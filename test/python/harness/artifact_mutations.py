# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes one thing in the description of an artefact, signs it again, loads and runs it: a program of its own.

``python artifact_mutations.py FOLDER FIRST LAST`` does so for each seed, with the artefacts and arrays in the folder.
It prints each seed before, so that whoever started it knows which one ended the process, and what it led to after.
"""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rlx_mlir import Artifact, Executable
from rlx_mlir.errors import RlxError
from rlx_mlir.runtime import artifact as files

NUMBERS = (-1, 0, 1, 2, 3, 5, 17, 63, 64, 65, 4096, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63), 1 << 64)
#: What says how an artefact came about: nothing that runs depends on it.
UNUSED = ("templates", "kinds", "key", "chip", "device_kernels", "assembler", "device_bytes", "target", "name")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values in a description that hold no others, and of all lists."""
    if isinstance(value, dict):
        return [leaf for key, own in value.items() if path or key not in UNUSED for leaf in leaves(own, (*path, key))]
    if isinstance(value, list):
        return [path] + [leaf for number, own in enumerate(value) for leaf in leaves(own, (*path, number))]
    return [path]


def mutate(description: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A copy in which one thing is another one."""
    changed = copy.deepcopy(description)
    places = leaves(changed)
    path = places[rng.integers(len(places))]
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    if not path:
        return changed
    value = parent[path[-1]]
    if isinstance(value, list):
        kind = rng.integers(4)
        if kind == 0 and value:
            value.pop(rng.integers(len(value)))
        elif kind == 1 and value:
            value.append(copy.deepcopy(value[rng.integers(len(value))]))
        elif kind == 2 and len(value) > 1:
            i, j = rng.choice(len(value), 2, replace=False)
            value[i], value[j] = value[j], value[i]
        else:
            parent[path[-1]] = None
    elif isinstance(value, int) and not isinstance(value, bool) and rng.integers(8):
        near = (value - 1, value + 1, value * 2, value // 2)
        parent[path[-1]] = int(near[rng.integers(4)]) if rng.integers(2) else NUMBERS[rng.integers(len(NUMBERS))]
    elif isinstance(value, str) and rng.integers(4):
        words = [place for place in places if isinstance(found(changed, place), str)]
        parent[path[-1]] = found(changed, words[rng.integers(len(words))])
    else:
        parent[path[-1]] = (None, [], "", 0.5, True, {}, [[1, [0]]], "x")[rng.integers(8)]
    return changed


def found(description: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        description = description[key]
    return description


def signed(data: bytes, change: Any) -> bytes:
    """The artefact with another description, and the checksum of that."""
    _, version, length, code_length, _ = files._HEADER.unpack_from(data)
    rest = data[files._HEADER.size :]
    header = json.dumps(change(json.loads(rest[:length])), separators=(",", ":")).encode()
    payload = rest[length:]
    digest = hashlib.sha256(files._LENGTHS.pack(len(header), code_length) + header + payload).digest()
    return files._HEADER.pack(files.MAGIC, version, len(header), code_length, digest) + header + payload


def attempt(data: bytes, params: dict[str, Any], calls: list[dict[str, Any]]) -> str:
    """Loads the artefact and runs it; what that led to."""
    try:
        executable = Executable(Artifact.from_bytes(data), threads=2)
        executable.set_params(params)
        for inputs in calls:
            executable.run(inputs)
    except RlxError as error:
        return f"{type(error).__name__}: {error}"
    return "ran"


def main() -> None:
    folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    cases = pickle.loads((folder / "cases.pickle").read_bytes())
    for seed in range(first, last):
        rng = np.random.default_rng(seed)
        data, params, calls = cases[seed % len(cases)]
        print(seed, flush=True)
        outcome = attempt(signed(data, lambda description: mutate(description, rng)), params, calls)  # noqa: B023
        print(" ".join(outcome.split()), flush=True)


if __name__ == "__main__":
    main()
