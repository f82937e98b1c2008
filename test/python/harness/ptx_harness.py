# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small PTX kernels around the instructions that tests are about, and their runs in the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ptx_emulator import DeviceMemory, Stats, load

#: Register classes: prefix of names, type of the declaration, bytes of one value in memory.
CLASSES = {"p": ("pred", 1), "h": ("b16", 2), "r": ("b32", 4), "d": ("b64", 8)}


def module_text(
    body: str, parameters: Sequence[str], *, chip: str = "sm_80", name: str = "kernel", head: str = ""
) -> str:
    """A module with one kernel. The body uses registers %p, %h, %r, %d (16, 32, 64 bits) and the parameters' names."""
    registers = "\n".join(f"  .reg .{kind} %{prefix}<100>;" for prefix, (kind, _) in CLASSES.items())
    listed = ", ".join(f".param .{'b32' if p.startswith('n') else 'b64'} {p}" for p in parameters)
    version = "8.6" if chip >= "sm_89" else "7.8"
    return (
        f".version {version}\n.target {chip}\n.address_size 64\n{head}\n"
        f".visible .entry {name}({listed})\n{{\n{registers}\n{body}\n  ret;\n}}\n"
    )


def run_kernel(
    text: str,
    arrays: Sequence[Any],
    *,
    grid: Sequence[int] = (1,),
    block: Sequence[int] = (32,),
    shared_bytes: int = 0,
    name: str = "kernel",
    **options: Any,
) -> Stats:
    """Runs a kernel whose parameters are arrays and numbers; arrays change in place."""
    memory = DeviceMemory()
    for array in arrays:
        if isinstance(array, np.ndarray):
            memory.register(array)
    return load(text).launch(
        name, grid=grid, block=block, args=list(arrays), shared_bytes=shared_bytes, memory=memory, **options
    )


def each_lane(
    instruction: str, sources: Mapping[str, np.ndarray], results: Mapping[str, Any], chip: str = "sm_80"
) -> dict[str, np.ndarray]:
    """Runs one instruction (or several) for each element of equally long arrays.

    Args:
        instruction: PTX that reads the registers named by `sources` and writes those named by `results`.
        sources: values by register, such as ``{"%r1": x}``; predicates are bool arrays.
        results: numpy types by register.

    Returns arrays by register.
    """
    count = len(next(iter(sources.values())))
    body = ["  mov.u32 %r90, %tid.x;", "  mov.u32 %r91, %ctaid.x;", "  mad.lo.u32 %r90, %r91, 64, %r90;"]
    body += ["  ld.param.b32 %r92, [n];", "  setp.ge.u32 %p90, %r90, %r92;", "  @%p90 bra DONE;"]
    arrays: list[np.ndarray] = []

    def access(register: str, array: np.ndarray, store: bool) -> None:
        number = len(arrays)
        arrays.append(array)
        kind = register[1]
        size = CLASSES[kind][1]
        body.append(f"  ld.param.b64 %d90, [a{number}];")
        body.append(f"  mad.wide.u32 %d90, %r90, {size}, %d90;")
        if kind == "p":
            if store:
                body.append(f"  selp.b32 %r93, 1, 0, {register}; st.global.b8 [%d90], %r93;")
            else:
                body.append(f"  ld.global.u8 %r93, [%d90]; setp.ne.b32 {register}, %r93, 0;")
        elif store:
            body.append(f"  st.global.b{size * 8} [%d90], {register};")
        else:
            body.append(f"  ld.global.b{size * 8} {register}, [%d90];")

    for register, values in sources.items():
        access(register, np.ascontiguousarray(values), False)
    body.append("  " + instruction)
    outputs = {}
    for register, dtype in results.items():
        outputs[register] = np.zeros(count, dtype)
        access(register, outputs[register], True)
    body.append("DONE:")
    text = module_text("\n".join(body), [*(f"a{i}" for i in range(len(arrays))), "n"], chip=chip)
    run_kernel(text, [*arrays, np.int32(count)], grid=(-(-count // 64),), block=(64,))
    return outputs
