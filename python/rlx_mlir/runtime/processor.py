# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether this processor has what code was compiled for.

LLVM's names of features are of three kinds: instructions that code generation chooses, instructions that only programs
which ask for them by name have, such as those of operating systems, and hints about what is fast. Only the first kind
can end a process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path

from rlx_mlir import native
from rlx_mlir.errors import ExecutionError
from rlx_mlir.runtime.artifact import Artifact

#: What every processor of x86-64 has, and what is no instruction, though no CPU of LLVM's has it as a hint.
_X86_ALWAYS = frozenset(
    {
        *("64bit-mode", "x87", "nopl"),
        *("ermsb", "fsrm", "evex512"),
        *("prefer-128-bit", "prefer-legacy-setcc", "prefer-no-gather", "prefer-no-scatter"),
        *("harden-sls-ijmp", "harden-sls-ret", "lvi-cfi", "lvi-load-hardening", "seses"),
        *("retpoline", "retpoline-external-thunk", "retpoline-indirect-branches", "retpoline-indirect-calls"),
    }
)
#: Instructions that no code of ours has: there is no operation that they are chosen for.
_X86_BY_NAME = frozenset(
    {
        "cldemote",
        "clflushopt",
        "clwb",
        "clzero",
        "enqcmd",
        "fsgsbase",
        "fxsr",
        "hreset",
        "invpcid",
        "kl",
        "lwp",
        "movdir64b",
        "movdiri",
        "movrs",
        "mwaitx",
        "pconfig",
        "pku",
        "prefetchi",
        "ptwrite",
        "rdpid",
        "rdpru",
        "rdrnd",
        "rdseed",
        "rtm",
        "serialize",
        "sgx",
        "shstk",
        "tsxldtrk",
        "uintr",
        "usermsr",
        "waitpkg",
        "wbnoinvd",
        "widekl",
        "xsave",
        "xsavec",
        "xsaveopt",
        "xsaves",
    }
)
#: Of AArch64, what code generation chooses, and the word of Linux for it in /proc/cpuinfo. LLVM lists what it finds
#: of these, but not what it doesn't, and not all of them.
_ARM_WORDS = {
    "aes": "aes",
    "bf16": "bf16",
    "complxnum": "fcma",
    "crc": "crc32",
    "dotprod": "asimddp",
    "fp-armv8": "fp",
    "fp16fml": "asimdfhm",
    "fullfp16": "asimdhp",
    "i8mm": "i8mm",
    "jsconv": "jscvt",
    "lse": "atomics",
    "neon": "asimd",
    "rcpc": "lrcpc",
    "rdm": "asimdrdm",
    "sha2": "sha2",
    "sha3": "sha3",
    "sm4": "sm4",
    "sme": "sme",
    "sve": "sve",
    "sve2": "sve2",
}


def check_target(artifact: Artifact) -> None:
    """Raises ExecutionError where the code needs what this processor doesn't have: running it would end the process."""
    triple, cpu, features = native.host_target()
    theirs, ours = (text.partition("-")[0] for text in (artifact.target["triple"], triple))
    if theirs != ours:
        raise ExecutionError(f"'{artifact.name}' was compiled for {theirs}, but this machine is {ours}")
    if missing := lacking(artifact.target["features"], features, ours):
        named = f" ({artifact.target['cpu']})" if artifact.target.get("cpu") else ""
        raise ExecutionError(
            f"'{artifact.name}' was compiled for a processor{named} with {', '.join(missing)}, which this one ({cpu}) "
            "lacks"
        )


def relied_on(target: Mapping[str, str]) -> list[str]:
    """Those features of a target that end a process whose processor lacks them, as LLVM names them, in order."""
    wanted = {word[1:] for word in target["features"].split(",") if word.startswith("+")}
    if target["triple"].partition("-")[0] == "aarch64":
        return sorted(wanted & _ARM_WORDS.keys())
    return sorted(wanted - _X86_ALWAYS - _X86_BY_NAME)


def lacking(needed: str, here: str, architecture: str, words: Collection[str] | None = None) -> list[str]:
    """Those features that code relies on and a processor doesn't have.

    Args:
        needed: what the code was compiled for, ``+name`` and ``-name`` with commas between.
        here: what LLVM says of the processor, written likewise.
        architecture: the first part of a target triple.
        words: what Linux calls the features of an AArch64 processor; by default this one's.
    """
    present = {word[1:] for word in here.split(",") if word.startswith("+")}
    wanted = [word[1:] for word in needed.split(",") if word.startswith("+")]
    if architecture == "aarch64":
        known = _linux_words() if words is None else words
        return [name for name in wanted if name in _ARM_WORDS and name not in present and _ARM_WORDS[name] not in known]
    return [name for name in wanted if name not in present | _X86_ALWAYS | _X86_BY_NAME]


@lru_cache(maxsize=1)
def _linux_words() -> frozenset[str]:
    """What Linux calls the features of this processor; all of them where it doesn't say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").split("\n")
    except OSError:
        lines = []
    found = [line.partition(":")[2].split() for line in lines if line.startswith("Features")]
    return frozenset(found[0]) if found else frozenset(_ARM_WORDS.values())


__all__ = ["check_target", "lacking", "relied_on"]
