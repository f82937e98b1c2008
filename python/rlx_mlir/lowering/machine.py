# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The processor that code is generated for: this machine's, or another one by its names in LLVM."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.errors import InputError, nearest


def machine(triple: str = "", cpu: str = "", features: str = "") -> tuple[str, str, str]:
    """(triple, CPU, features) for code generation, in LLVM's terms.

    Args:
        triple: target triple such as ``aarch64-linux-gnu``; this machine's where empty.
        cpu: name of a CPU; where it and the triple are empty, this machine's.
        features: ``+name`` and ``-name``, separated by commas, on top of those of the CPU. Given alone, they are all
            that this machine's code may use.

    Raises InputError where LLVM does not know one of them: it ignores some words, and ends the process at others.
    """
    host, host_cpu, host_features = ir.native.host_target()
    if not triple and not cpu and not features:
        return host, host_cpu, host_features
    name = triple or host
    try:
        base = ir.native.target_features(name, cpu)
    except ValueError as error:
        raise InputError(str(error)) from None
    known = {feature[1:] for feature in base.split(",")}
    chosen = {feature[1:] for feature in base.split(",") if feature.startswith("+")}
    for word in features.split(",") if features else ():
        if word[:1] not in ("+", "-"):
            raise InputError(f"'features' expects +name or -name, separated by commas, but got '{word}'")
        if word[1:] not in known:
            close = nearest(word[1:], known)
            hint = f": did you mean '{word[0]}{close}'?" if close else ""
            raise InputError(f"'features' names '{word}', which isn't a feature of {name.partition('-')[0]}{hint}")
        (chosen.add if word[0] == "+" else chosen.discard)(word[1:])
    if not triple and not cpu:
        return host, "", features
    return name, cpu, ",".join(f"+{feature}" for feature in sorted(chosen))


def instructions(triple: str, features: str) -> str:
    """Of features for code generation, those that processors have to have: not those that say what is fast."""
    tuning = set(ir.native.tuning_features(triple))
    return ",".join(word for word in features.split(",") if word[1:] not in tuning)
