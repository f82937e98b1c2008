# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many threads decode a model: no more than its weights can be read with.

One token reads every weight once, so memory bounds it, and a few threads may read as fast as all do; more of them only
wait for each other. Where that is, is measured once for a machine and a way of activations, with what decodes do most:
a product of one row with weights of 4 bits, the usual ones with the most arithmetic for a byte. Results have the same
bits for any number of threads.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from rlx_mlir import native
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import CacheError, InputError, RlxError, reason_of
from rlx_mlir.formats import get_format
from rlx_mlir.paths import cache_dir, make_private, read_small, write_atomically
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.cache import check_folder, compiler_build, key_of
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.runtime.prepare import Prepared

log = logging.getLogger(__name__)

#: In the environment: a number of threads, or `all`; then nothing is measured.
VARIABLE = "RLX_DECODE_THREADS"
#: Weights of fewer bytes may lie in a cache, which threads don't share as they share memory.
LEAST_BYTES = 256 << 20
#: What the fewest threads reach of the best rate.
ENOUGH = 0.97

#: Columns and bytes of the weights that are read: more than a last-level cache has for a core.
_COLUMNS, _BYTES = 4096, 64 << 20
#: Measurements of each number of threads, in turns; the best counts, since what disturbs only makes slower.
_ROUNDS = 5
#: Of the CPUs that were to be had, what this process has to have got: else others worked on them.
_UNDISTURBED = 0.85
#: Seconds after which a machine on which others worked is measured again.
_AGAIN = 3600
_FOLDER = "machine"


def decode_threads(
    weight_bytes: int, activations: str, *, cache: bool = True, product: Artifact | None = None
) -> int | None:
    """Threads to decode with where the caller doesn't say; None for as many as the process may use.

    What the environment says is taken first: of `VARIABLE`, then of RLX_NUM_THREADS, which is for all programs. Else it
    is what was measured on this machine, now where it wasn't before, which takes less than a second.

    Args:
        weight_bytes: that a token reads.
        activations: how they are computed, see `load_model`.
        cache: keep what was measured, and use it; where nothing may be kept, nothing is measured.
        product: what `product_artifact` gave, of a bundle; None has it compiled, or found compiled.

    Raises InputError where `VARIABLE` is neither `all` nor a number from 1 to 1024.
    """
    if (said := os.environ.get(VARIABLE)) is not None:
        return _said(said)
    most = native.default_threads()
    if "RLX_NUM_THREADS" in os.environ or most == 1 or weight_bytes < LEAST_BYTES or not cache:
        return None
    code = compiler_build() if product is None else hashlib.sha256(product.code).hexdigest()
    parts = _key_parts(activations, most, code)
    path = cache_dir() / _FOLDER / f"{key_of(parts)}.json"
    rates = _kept(path)
    if rates is None:
        rates = measured_rates(activations, candidates(most), product)
        _keep(path, parts, rates)
    return fewest(rates) if rates else None


def _said(text: str) -> int | None:
    if text == "all":
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1024):
        raise InputError(f"{VARIABLE} must be 'all' or a whole number from 1 to 1024, but it is {text!r}")
    return int(text)


def fewest(rates: Mapping[int, float]) -> int:
    """The fewest threads whose rate is nearly the best."""
    best = max(rates.values())
    return min(threads for threads, rate in rates.items() if rate >= ENOUGH * best)


def candidates(most: int) -> list[int]:
    """Numbers of threads to try: each up to 4, then in steps of at most a half, and the largest."""
    found = [1, 2, 3, 4]
    while found[-1] < most:
        found.append(found[-1] * 4 // 3 if found[-1] % 3 == 0 else found[-1] * 3 // 2)
    return [*(count for count in found if count < most), most]


# Measuring --------------------------------------------------------------------------------------------


def measured_rates(activations: str, counts: Sequence[int], product: Artifact | None = None) -> dict[int, float]:
    """Bytes of weights read per second by each number of threads; nothing where others kept the CPUs busy."""
    row_bytes = get_format("q4_0").row_bytes(_COLUMNS)
    size = _rows() * row_bytes
    # Memory that is mapped to be read is told apart by its address: it is packed once, and not compared.
    weights = np.frombuffer(mmap.mmap(-1, size, access=mmap.ACCESS_READ), np.uint8).reshape(-1, row_bytes)
    shared: dict[str, Prepared] = {}
    artifact = product_artifact(activations) if product is None else product
    calls = {count: _call(artifact, count, weights, shared) for count in counts}
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    share = 0.0
    for call in calls.values():
        call()
    for _ in range(_ROUNDS):
        for count, call in calls.items():
            begin, used = time.perf_counter(), time.process_time()
            call()
            spent = time.perf_counter() - begin
            seconds[count].append(spent)
            if count == counts[-1]:
                share = max(share, (time.process_time() - used) / (spent * count))
    if share < _UNDISTURBED:
        log.info("threads got %.0f%% of %d CPUs, so their number says nothing", 100 * share, counts[-1])
        return {}
    return {count: size / min(own) for count, own in seconds.items()}


def _rows() -> int:
    """Of the weights that are read."""
    return _BYTES // get_format("q4_0").row_bytes(_COLUMNS)


def product_artifact(activations: str, *, cpu: str = "", cache: bool = True) -> Artifact:
    """The product, compiled or found compiled; ``cpu`` and ``cache`` as for `rlx_mlir.compile`."""
    from rlx_mlir.compiler import cached_artifact
    from rlx_mlir.hir import GraphModule

    rows = _rows()

    def build() -> GraphModule:
        m = GraphModule.mir("decode_threads")
        x, w = m.input("x", [1, _COLUMNS]), m.param("w", [rows, _COLUMNS], packed="q4_0")
        m.set_outputs({"y": m.matmul(x, w, transpose_rhs=True)})
        return m

    material = {"decode_threads": [rows, _COLUMNS]}
    artifact: Artifact = cached_artifact(material, build, activations=activations, cpu=cpu, cache=cache)
    return artifact


def _call(artifact: Artifact, threads: int, weights: np.ndarray, shared: dict[str, Prepared]) -> Callable[[], object]:
    """A call of the product by so many threads."""
    executable = Executable(artifact, threads=threads)
    executable.set_params({"w": weights}, shared=shared)
    inputs, outputs = {"x": np.ones((1, _COLUMNS), np.float32)}, {"y": np.empty((1, len(weights)), np.float32)}
    return executable.bind(inputs, outputs=outputs)


# What is kept -----------------------------------------------------------------------------------------


def _key_parts(activations: str, most: int, code: str) -> dict[str, object]:
    """What the rates depend on: the processor, memory, what may be used of it, and the code."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "host": list(native.host_processor()),
        "memory": memory,
        "threads": most,
        "activations": activations,
        "compiler": code,
    }


def _kept(path: Path) -> dict[int, float] | None:
    """The rates in a file; None where they have to be measured.

    That is where there is no file, where it can't be used, which the log says, or where others kept the CPUs busy when
    it was written, some time ago.
    """
    try:
        check_folder(path.parent)
        text = read_small(path, "json_bytes")
        with foreign_errors("it is damaged", CacheError):
            found = json.loads(text)["rates"].items()
            rates = {int(count): float(rate) for count, rate in found}
        if not all(1 <= count <= 1024 and rate > 0 for count, rate in rates.items()):
            raise CacheError("it is damaged: rates are those of 1 to 1024 threads, and above 0")
        return rates if rates or time.time() - path.stat().st_mtime < _AGAIN else None
    except FileNotFoundError:
        return None
    except (OSError, RlxError) as error:
        log.warning("ignoring measured rates %s: %s", path, reason_of(error, path))
        return None


def _keep(path: Path, parts: Mapping[str, object], rates: Mapping[int, float]) -> None:
    try:
        check_folder(path.parent)
        make_private(path.parent)
        write_atomically(path, json.dumps({"key": dict(parts), "rates": rates}, indent=1).encode(), private=True)
    except (OSError, CacheError) as error:
        log.warning("can't write measured rates to %s: %s", path, reason_of(error, path))


__all__ = [
    "ENOUGH",
    "LEAST_BYTES",
    "VARIABLE",
    "candidates",
    "decode_threads",
    "fewest",
    "measured_rates",
    "product_artifact",
]
