# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measured choices of kernels, kept beside compiled code: a file for what is compiled, how, and for which processor.

On GPUs, a file is for a GPU's name, its number of multiprocessors, and the version of the driver, too.

A file decides what code is made, so it is read with the same care as compiled code: it must be the user's, hold the
key that it is named by and the digest of its choices, and the choices must be some that there are.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from rlx_mlir import native
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import CacheError, InputError, RlxError, reason_of
from rlx_mlir.files import Json
from rlx_mlir.paths import cache_dir, make_private, read_small, write_atomically
from rlx_mlir.runtime.cache import check_folder, compiler_build, key_of
from rlx_mlir.tuning.choices import check_choices

log = logging.getLogger(__name__)

#: Choices by kernel: values by the name of the choice.
Chosen = dict[str, dict[str, int]]

#: What choices are kept under: nested mappings, as JSON writes them.
Parts = Mapping[str, Json]


def device_parts(ordinal: int = 0) -> dict[str, object]:
    """What choices hold for that were measured on a GPU; raises the run time's error where there is none."""
    device = native.CudaDevice(ordinal)
    return {
        "name": device.name,
        "multiprocessors": device.multiprocessors,
        "driver": native.cuda_driver_version(),
    }


def path_of(parts: Parts) -> Path:
    """The file for a key made of `cache.key_parts` without choices; for target `cuda`, of this machine's GPU.

    Another build of the compiler has the same file: names of kernels may have changed, so the file says which build
    measured it, and only that one uses it.
    """
    own = {**parts, "options": {k: v for k, v in parts["options"].items() if k != "choices"}}
    del own["compiler"]
    if own["options"].get("target") == "cuda":
        own["device"] = device_parts()
    return cache_dir() / "tuned" / f"{key_of(own)}.json"


def find(parts: Parts, known: Callable[[], Mapping[str, range]]) -> Chosen:
    """The choices; none where nothing was measured, by another build of the compiler, or where the file is damaged.

    A file that can't be used, whatever is in it, is said in the log.

    Args:
        parts: what the choices are kept under.
        known: gives the values of each choice that there is; asked where there is a file.
    """
    path = path_of(parts)
    try:
        check_folder(path.parent)
        return _read(path, known, by_rows=parts["options"].get("target") == "cuda")
    except FileNotFoundError:
        return {}
    except (OSError, RlxError) as error:
        log.warning("ignoring measured choices %s: %s", path, reason_of(error, path))
        return {}


def _read(path: Path, known: Callable[[], Mapping[str, range]], *, by_rows: bool) -> Chosen:
    """The choices in a file, none where another build measured them; CacheError where it is damaged."""
    text = read_small(path, "json_bytes")
    with foreign_errors("it is damaged", CacheError):
        found = json.loads(text)
        if found["build"] != compiler_build():
            return {}
        choices = found["choices"]
        if found["key"] != path.stem or found["sha256"] != _digest(choices):
            raise CacheError("it is damaged, or of another module: key and digest in it aren't those of its choices")
    try:
        check_choices(choices, known(), by_rows=by_rows)
    except InputError as error:
        raise CacheError(f"it is damaged: {error}") from None
    return {kernel: dict(own) for kernel, own in choices.items()}


def _digest(choices: object) -> str:
    return hashlib.sha256(json.dumps(choices, sort_keys=True).encode()).hexdigest()


def keep(parts: Parts, choices: Chosen, measured: Mapping[str, Json]) -> Path:
    """Writes choices, with what they were measured to gain; the file appears whole or not at all.

    Raises OSError, and CacheError where others can write the folder.
    """
    path = path_of(parts)
    content = {
        "build": compiler_build(),
        "key": path.stem,
        "sha256": _digest(choices),
        "choices": choices,
        "measured": dict(measured),
    }
    check_folder(path.parent)
    make_private(path.parent)
    write_atomically(path, json.dumps(content, indent=1).encode(), private=True)
    return path


def forget(parts: Parts) -> None:
    """Removes the file, if there is one."""
    path_of(parts).unlink(missing_ok=True)
