# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NVIDIA chips by the names of compute capabilities, and the versions of PTX that know them.

LLVM ends the process at some words that it doesn't know, so names are checked here first.
"""

from __future__ import annotations

from rlx_mlir.errors import InputError, nearest

#: Target triple of the code.
TRIPLE = "nvptx64-nvidia-cuda"
#: Chip that code is generated for where none is named.
DEFAULT_CHIP = "sm_90"
#: Least version of PTX that has the instructions of a chip, times ten. `a`: with some that no later chip has.
CHIPS = {
    "sm_80": 70,
    "sm_86": 71,
    "sm_87": 74,
    "sm_89": 78,
    "sm_90": 80,
    "sm_90a": 80,
    "sm_100": 86,
    "sm_100a": 86,
    "sm_103": 88,
    "sm_103a": 88,
    "sm_120": 87,
    "sm_120a": 87,
    "sm_121": 88,
    "sm_121a": 88,
}
#: Number of the oldest chip.
OLDEST = 80
#: Versions of PTX, times ten, that the code generator writes.
PTX_VERSIONS = (70, 71, 72, 73, 74, 75, 76, 77, 78, 80, 81, 82, 83, 84, 85, 86, 87, 88)


def check_chip(chip: str) -> str:
    """The chip; InputError where it isn't known."""
    if chip not in CHIPS:
        close = nearest(chip, CHIPS)
        hint = f": did you mean '{close}'?" if close else ""
        raise InputError(f"'chip' expects one of {', '.join(CHIPS)}, but got '{chip}'{hint}")
    return chip


def chip_of(major: int, minor: int) -> str:
    """The chip of a GPU's compute capability, with the instructions that only it has; else the latest before it."""
    own = 10 * major + minor
    known = {sm_version(chip): chip for chip in CHIPS}  # of two, the one with `a`, which comes later
    if own in known:
        return known[own]
    older = [version for version in known if version <= own]
    if not older:
        raise InputError(f"expects a GPU of compute capability 8.0 or later, but got {major}.{minor}")
    return known[max(older)].removesuffix("a")


def sm_version(chip: str) -> int:
    """The number of a chip: 90 of sm_90a."""
    return int(check_chip(chip).removeprefix("sm_").rstrip("a"))


def runs_binary(chip: str, major: int, minor: int) -> bool:
    """Whether a GPU of a compute capability runs machine code for a chip: later minor ones do, but for those with a."""
    own, same = sm_version(chip), 10 * major + minor
    return own == same if chip.endswith("a") else own // 10 == major and own <= same


def shared_memory(chip: str) -> int:
    """Bytes of shared memory that a block may have."""
    return 1024 * {80: 163, 87: 163, 90: 227, 100: 227, 103: 227}.get(sm_version(chip), 99)


def ptx_feature(chip: str, ptx: str = "", kernels: int = 0) -> str:
    """The feature by which LLVM is told the version of PTX.

    Args:
        chip: a name of `CHIPS`.
        ptx: the version, such as ``8.6``; the least that knows the chip where empty: drivers of any later release
            take the code.
        kernels: the least that has the instructions of the kernels, times ten.

    Raises InputError where the chip or version isn't known, or the version doesn't know the chip or the kernels.
    """
    least = max(CHIPS[check_chip(chip)], kernels)
    if not ptx:
        return f"+ptx{least}"
    known = {f"{version // 10}.{version % 10}": version for version in PTX_VERSIONS}
    if ptx not in known:
        raise InputError(f"'ptx' expects one of {', '.join(known)}, but got '{ptx}'")
    if known[ptx] < least:
        what = f"kernels of this module on {chip}" if least == kernels else chip
        raise InputError(f"'ptx' expects at least {least // 10}.{least % 10} for {what}, but got {ptx}")
    return f"+ptx{known[ptx]}"
