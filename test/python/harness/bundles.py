# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles of tiny models, and other bundles made of them, with digests that hold."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlx_mlir.models.bundle import MANIFEST
from rlx_mlir.runtime.container import Container, write_container

X86 = platform.machine() == "x86_64"
#: A CPU that this machine stands for with fewer instructions, and one that no machine stands for that has the other.
SMALLER = "x86-64-v2" if X86 else "generic"
LACKING = "sapphirerapids" if X86 else "apple-m4"
#: How the tiny models are bundled.
OPTIONS: dict[str, Any] = {"activations": "exact", "context": 64, "chunk": 16}


def rewritten(path: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Another bundle: ``change`` is given the sections by name, and changes that."""
    with Container(path) as container:
        kinds = {name: section.kind for name, section in container.sections.items()}
        content = {name: container.read(name) for name in container.sections}
    change(content)
    with write_container(target) as writer:
        for name, data in content.items():
            writer.add(name, data, kinds.get(name, kinds[MANIFEST]))
    return target


def with_manifest(path: Path, target: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A bundle whose manifest ``change`` has changed in place."""

    def changed(content: dict[str, bytes]) -> None:
        document = json.loads(content[MANIFEST])
        change(document)
        content[MANIFEST] = json.dumps(document).encode()

    return rewritten(path, target, changed)
