# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measured choices of kernels, kept beside compiled code: a file for what is compiled, how, and for which processor.

On GPUs, a file is for a GPU's name, its number of multiprocessors, and the version of the driver, too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlx_mlir.models.hub import cache_dir
from rlx_mlir.runtime import native
from rlx_mlir.runtime.artifact import write_atomically
from rlx_mlir.runtime.cache import compiler_build, key_of

log = logging.getLogger(__name__)

#: Choices by kernel: values by the name of the choice.
Chosen = dict[str, dict[str, int]]


def device_parts(ordinal: int = 0) -> dict[str, Any]:
    """What choices hold for that were measured on a GPU; raises the run time's error where there is none."""
    device = native.CudaDevice(ordinal)
    return {
        "name": device.name,
        "multiprocessors": device.multiprocessors,
        "driver": native.cuda_driver_version(),
    }


def path_of(parts: Mapping[str, Any]) -> Path:
    """The file for a key made of `cache.key_parts` without choices; for target `cuda`, of this machine's GPU.

    Another build of the compiler has the same file: names of kernels may have changed, so the file says which build
    measured it, and only that one uses it.
    """
    own = {**parts, "options": {k: v for k, v in parts["options"].items() if k != "choices"}}
    del own["compiler"]
    if own["options"].get("target") == "cuda":
        own["device"] = device_parts()
    return cache_dir() / "tuned" / f"{key_of(own)}.json"


def find(parts: Mapping[str, Any]) -> Chosen:
    """The choices; none where nothing was measured, by another build of the compiler, or where the file is damaged."""
    path = path_of(parts)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["build"] != compiler_build():
            return {}
        return {
            str(kernel): {str(name): int(value) for name, value in own.items()}
            for kernel, own in found["choices"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("ignoring measured choices %s: %s", path, error)
        return {}


def keep(parts: Mapping[str, Any], choices: Chosen, measured: Mapping[str, Any]) -> Path:
    """Writes choices, with what they were measured to gain; the file appears whole or not at all. Raises OSError."""
    path = path_of(parts)
    text = json.dumps({"build": compiler_build(), "choices": choices, "measured": dict(measured)}, indent=1)
    write_atomically(path, text.encode())
    return path


def forget(parts: Mapping[str, Any]) -> None:
    """Removes the file, if there is one."""
    path_of(parts).unlink(missing_ok=True)
