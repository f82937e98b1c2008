# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a driver that isn't there needs: launches of PTX by its text, with parameters as bytes.

A library with the driver's functions, for tests of the run time, calls these from its launch.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ptx_emulator.kernel import Module, load
from ptx_emulator.memory import DeviceMemory
from ptx_emulator.stats import Stats

#: Memory of launches that name none.
REGISTRY = DeviceMemory()

_load = functools.lru_cache(maxsize=32)(load)


def module_of(image: Module | str | bytes) -> Module:
    """The module of a text; the same one for the same text."""
    return image if isinstance(image, Module) else _load(image)


def parameter_layout(image: Module | str | bytes, name: str) -> list[tuple[int, int]]:
    """Offset and size in bytes of each parameter of a kernel."""
    parameters = module_of(image).function(name).parameters.values()
    return [(parameter.offset, parameter.size) for parameter in parameters]


def launch_raw(
    image: Module | str | bytes,
    name: str,
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    param_bytes: bytes,
    *,
    memory: DeviceMemory | None = None,
) -> Stats:
    """Runs a kernel.

    Args:
        image: PTX text (bytes may end in a NUL), or the module.
        name: of the entry.
        grid, block: three numbers each.
        shared_bytes: dynamic shared memory of a block.
        param_bytes: the parameters, each at its offset of `parameter_layout`.
        memory: what the kernel may touch; `REGISTRY` by default.

    Raises as `Module.launch` does.
    """
    return module_of(image).launch_bytes(name, grid, block, shared_bytes, param_bytes, memory or REGISTRY)
