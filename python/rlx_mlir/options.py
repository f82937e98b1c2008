# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What compiling can be told: the options, and what is checked of them."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypedDict

from rlx_mlir import checks
from rlx_mlir.activations import ACTIVATIONS
from rlx_mlir.checks import Option
from rlx_mlir.codegen.gpu.assembler import CUBIN, Assembler, chosen_assembler
from rlx_mlir.errors import InputError, did_you_mean
from rlx_mlir.kernel_classes import CLASSES
from rlx_mlir.tuning.choices import check_choices

#: What `target` may name.
TARGETS = ("cpu", "nvptx", "cuda")

#: What the environment's RLX_VERIFY may say.
_VERIFY: dict[str, bool | str] = {"1": True, "numeric": "numeric"}


def _level() -> int:
    """The optimisation level that the environment says; raises InputError where it says none."""
    text = os.environ.get("RLX_LEVEL") or "2"
    if text not in ("0", "1", "2", "3"):
        raise InputError(f"RLX_LEVEL expects a level from 0 to 3, but is {checks.shown(text)}")
    return int(text)


@dataclass(frozen=True)
class CompileOptions:
    """How to compile.

    Attributes:
        target: `cpu`; `nvptx` for NVIDIA GPUs, which need not be there: `compile` gives an artefact to save; `cuda` for
            the GPU of this machine.
        activations: `exact` computes products in f32. `int8` rounds what products with integer weights read to 8
            bits, block by block, and uses integer dot products; what queries, keys and values are computed from has 15
            bits on CPUs, and stays in f32 on GPUs. `int16` rounds all to 15 bits, on CPUs.
        intermediates: `rounded`: values of f16 and bf16 between operations are rounded as the graph has them, whether
            operations share a kernel or not. `wide`: they may stay in f32 within a kernel, and more operations are
            fused; results then depend on what is.
        maxima: declared maximum of each dynamic size, by its symbol; others are 512.
        disable_templates: classes of kernels (gemm, rows, attention, quantize, recurrence, conv, norm, or all) that
            take the generic path. gemm_amx_f32, a template and no class, takes it from products of f32, which then have
            another one: see docs/performance.md about their accuracy. gemm_digits likewise, from products of f32 with
            quantised weights, attention_amx, from attention, and conv2d_winograd, from convolutions of 3 x 3, whose
            weights take 2.8 times the memory for it.
        triple, cpu: of the machine to compile for, as LLVM names them (``aarch64-linux-gnu``, ``cortex-a76``); this one
            where both are empty. Code for other architectures can be looked at and kept, but not run here.
        features: CPU features, ``+name`` or ``-name`` with commas between: on top of those of the CPU that is named;
            alone, all that the code may use.
        chip: of target `nvptx`: the compute capability, such as ``sm_90``, which is the default; of target `cuda`, that
            of the GPU where empty.
        ptx: of GPUs: the version of PTX, such as ``8.6``; the least that has the chip's instructions where empty.
        cubin: of GPUs: whether artefacts have machine code beside PTX, which spares the driver to compile it. `auto`
            for target `nvptx`, where a ptxas is found; `always`, which is an error where none is; `never`.
        level: LLVM's optimisation level, 0 to 3. By default what the environment's RLX_LEVEL says, or 2. At 0, LLVM
            takes a tenth of the time, and what it makes runs many times as long.
        choices: of kernels by name, what their templates or schedules do in place of their rule (`rlx tune`):
            tile_rows, prefetch and others, see docs/performance.md; of GPUs docs/gpu.md lists them.
        verify: True checks after each stage that the module keeps its contract; `numeric` checks also that each pass,
            kernel and plan keeps what the module computes, by interpreting it on small inputs (slow). Changes nothing
            that is compiled. By default what the environment's RLX_VERIFY says: 1 or numeric.
        dump_dir: folder that gets a file for each pass that changed something, and an overview, README.md. By default
            what RLX_DUMP_DIR says.
        passes: pipelines of the caller's own by their places among the compiler's passes, such as
            ``{"after:rlx-fuse": "my-pass"}``; see docs/writing-a-pass.md. Where a pass's source can't be read, nothing
            is taken from the cache.
        skip_fusion: passes that join operations, of `rlx-fuse`, which aren't run: names such as ``mir-fuse-swiglu``, or
            True for all. What is left has kernels in common still: operations on what a product gives are done there.
        time_limit: seconds that passes and code generation may take; None for any time. TimeLimitError names the pass
            and the kernel that were at work then. A pass that is under way isn't interrupted.
    """

    target: str = "cpu"
    activations: str = "exact"
    intermediates: str = "rounded"
    maxima: Mapping[str, int] = field(default_factory=dict)
    disable_templates: tuple[str, ...] = ()
    features: str = ""
    triple: str = ""
    cpu: str = ""
    chip: str = ""
    ptx: str = ""
    cubin: str = "auto"
    level: int = field(default_factory=_level)
    choices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    verify: bool | str = field(default_factory=lambda: _VERIFY.get(os.environ.get("RLX_VERIFY", ""), False))
    dump_dir: str | os.PathLike[str] | None = field(default_factory=lambda: os.environ.get("RLX_DUMP_DIR") or None)
    passes: Mapping[str, str] = field(default_factory=dict)
    skip_fusion: bool | tuple[str, ...] = ()
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name in ("target", "activations", "intermediates", "features", "triple", "cpu", "chip", "ptx", "cubin"):
            checks.text(name, getattr(self, name))
        if self.target not in TARGETS:
            raise InputError(f"'target' expects {', '.join(TARGETS)}, but got '{self.target}'")
        others = ("chip", "ptx") if self.target == "cpu" else ("triple", "cpu", "features")
        for option in others:
            if getattr(self, option):
                given = getattr(self, option)
                raise InputError(f"'{option}' isn't an option of target {self.target}, but got {given!r}")
        if self.activations not in ACTIVATIONS:
            raise InputError(f"'activations' expects one of {', '.join(ACTIVATIONS)}, but got '{self.activations}'")
        if self.activations == "int16" and self.target != "cpu":
            raise InputError(f"'activations' int16 is for target cpu; {self.target} has exact and int8")
        if self.intermediates not in ("rounded", "wide"):
            raise InputError(f"'intermediates' expects rounded or wide, but got '{self.intermediates}'")
        if not isinstance(self.maxima, Mapping):
            raise InputError(f"'maxima' expects a mapping from symbols to sizes, but got {self.maxima!r}")
        for symbol, size in self.maxima.items():
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= checks.LARGEST:
                raise InputError(
                    f"'maxima' expects a positive size of 64 bits for {checks.shown(symbol)}, but got "
                    f"{checks.shown(size)}"
                )
        object.__setattr__(self, "disable_templates", checks.names("disable_templates", self.disable_templates))
        self._check_disabled()
        if self.target == "cpu" and (not isinstance(self.choices, Mapping) or self.choices):
            check_choices(self.choices, self.known_choices())
        checks.whole("level", self.level, 0, 3)
        if not isinstance(self.verify, bool) and not (isinstance(self.verify, str) and self.verify == "numeric"):
            raise InputError(f"'verify' expects True, False or 'numeric', but got {checks.shown(self.verify)}")
        if self.dump_dir is not None:
            checks.path("dump_dir", self.dump_dir)
        limit = self.time_limit
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 < limit < math.inf
        ):
            raise InputError(f"'time_limit' expects a positive number of seconds, or None, but got {limit!r}")
        if not isinstance(self.passes, Mapping) or self.passes:
            from rlx_mlir.rewriting.insertion import checked_passes

            object.__setattr__(self, "passes", checked_passes(self.passes))
        if not isinstance(self.skip_fusion, tuple) or self.skip_fusion:
            from rlx_mlir.rewriting.insertion import checked_fusions

            object.__setattr__(self, "skip_fusion", checked_fusions(self.skip_fusion))
        if self.cubin not in CUBIN:
            raise InputError(f"'cubin' expects {', '.join(CUBIN)}, but got {self.cubin!r}")
        if self.is_gpu:
            self._check_gpu()
        elif self.cubin != "auto":
            raise InputError(f"'cubin' isn't an option of target cpu, but got {self.cubin!r}")
        elif self.features or self.triple or self.cpu:
            self.machine()

    @property
    def is_gpu(self) -> bool:
        """Whether kernels run on a GPU."""
        return self.target != "cpu"

    def _check_disabled(self) -> None:
        """Raises InputError where `disable_templates` names neither a class nor what the target has beside them."""
        others = [name for name in self.disable_templates if name not in (*CLASSES, "all")]
        if not others:
            return
        from rlx_mlir.codegen.cpu.registry import switches

        known = (*CLASSES, "all", *switches())
        for name in others:
            if name not in known:
                raise InputError(f"'disable_templates' expects {', '.join(known)}, but got {name!r}")
            if self.is_gpu:
                raise InputError(f"'disable_templates' names {name}, which target {self.target} doesn't have")

    def known_choices(self) -> Mapping[str, range]:
        """The values that `choices` may have, by name."""
        if self.is_gpu:
            from rlx_mlir.tuning.gpu import KNOWN

            return KNOWN
        from rlx_mlir.codegen.cpu.registry import knobs
        from rlx_mlir.tuning.cpu import ranges

        return ranges(knobs())

    def _check_gpu(self) -> None:
        """Fills in the chip, and checks what only GPUs have."""
        from rlx_mlir import chips

        if self.verify == "numeric":
            raise InputError(f"'verify' expects True or False for target {self.target}, but got 'numeric'")
        check_choices(self.choices, self.known_choices(), by_rows=True)
        if not self.chip:
            object.__setattr__(self, "chip", _chip_of_device() if self.target == "cuda" else chips.DEFAULT_CHIP)
        chips.ptx_feature(self.chip, self.ptx)
        self.assembler()

    def machine(self) -> tuple[str, str, str]:
        """(triple, CPU, features) of the CPU to generate code for; InputError where LLVM doesn't know one of them.

        The host's part of a program for GPUs runs on any CPU of this architecture.
        """
        from rlx_mlir.lowering.machine import machine

        if self.is_gpu:
            return machine()[0], "", ""
        return machine(self.triple, self.cpu, self.features)

    @property
    def machine_code(self) -> str:
        """Whether there is machine code beside PTX, of `CUBIN`; drivers at hand compile PTX unless it is asked for."""
        return "never" if self.cubin == "auto" and self.target != "nvptx" else self.cubin

    def assembler(self) -> Assembler | None:
        """What makes machine code of PTX, or None; InputError where there has to be one, but none is found."""
        return chosen_assembler(self.machine_code)

    @property
    def skipped(self) -> list[str]:
        """The passes of `skip_fusion` by name."""
        return list(self.skip_fusion) if isinstance(self.skip_fusion, tuple) else []

    @property
    def is_observed(self) -> bool:
        """Whether the compilation itself is of interest: then nothing is taken from the cache."""
        return self.verify == "numeric" or self.dump_dir is not None or self._code_of_passes is None

    @cached_property
    def _code_of_passes(self) -> dict[str, str] | None:
        """Digests of the passes of the caller's own; None where one can't be read."""
        if not self.passes:
            return {}
        from rlx_mlir.rewriting.insertion import passes_digest

        return passes_digest(self.passes)

    def as_dict(self) -> dict[str, object]:
        """The options as plain data, for keys of caches."""
        return {
            "target": self.target,
            "activations": self.activations,
            "intermediates": self.intermediates,
            "maxima": dict(self.maxima),
            "disable_templates": list(self.disable_templates),
            "features": self.features,
            "triple": self.triple,
            "cpu": self.cpu,
            "chip": self.chip,
            "ptx": self.ptx,
            "cubin": f"{self.cubin} {assembler.version}" if (assembler := self.assembler()) else self.cubin,
            "level": self.level,
            "choices": {kernel: dict(own) for kernel, own in self.choices.items()},
            "skip_fusion": self.skipped,
            "passes": {"places": dict(self.passes), "code": self._code_of_passes},
        }


class OptionKeywords(TypedDict, total=False):
    """The fields of `CompileOptions` but `target`, as keywords: what editors complete and type checkers know."""

    activations: str
    intermediates: str
    maxima: Mapping[str, int]
    disable_templates: tuple[str, ...]
    features: str
    triple: str
    cpu: str
    chip: str
    ptx: str
    cubin: str
    level: int
    choices: Mapping[str, Mapping[str, int]]
    verify: bool | str
    dump_dir: str | os.PathLike[str] | None
    passes: Mapping[str, str]
    skip_fusion: bool | tuple[str, ...]
    time_limit: float | None


def options_of(target: str, given: Mapping[str, Option]) -> CompileOptions:
    """The options; InputError where one has an unknown name."""
    known = [own.name for own in dataclasses.fields(CompileOptions)]
    for name in given:
        if name not in known:
            raise InputError(f"compiling has no option '{name}'{did_you_mean(name, known)}; it has {', '.join(known)}")
    return CompileOptions(target=target, **given)


def _chip_of_device() -> str:
    """The compute capability of this machine's first GPU; the run time's error where there is none."""
    from rlx_mlir import chips, native

    return chips.chip_of(*native.CudaDevice(0).compute_capability)
