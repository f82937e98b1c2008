# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiling: from a module at any stage to an executable, through named pipelines."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from rlx_mlir import checks, limits
from rlx_mlir.checks import Option
from rlx_mlir.codegen.cpu.own_generators import generator_digests
from rlx_mlir.errors import CompileError, InputError, PassError, StageError, UnsupportedError
from rlx_mlir.kernel_classes import OWN
from rlx_mlir.options import CompileOptions as CompileOptions
from rlx_mlir.options import OptionKeywords, options_of
from rlx_mlir.place import located
from rlx_mlir.runtime import cache as compile_cache
from rlx_mlir.runtime import tuned
from rlx_mlir.runtime.artifact import Artifact, BufferSpec, CompiledModule, OwnCall, Preparation
from rlx_mlir.runtime.executable import Executable, check_threads
from rlx_mlir.tuning.choices import format_choices

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rlx_mlir import ir
    from rlx_mlir.hir.module import GraphModule
    from rlx_mlir.lowering.counting import CountedCall
    from rlx_mlir.reports.dumps import Dumper
    from rlx_mlir.verify import NumericVerifier


#: Stages that `emit` can print, in order.
STAGES = ("hir", "mir", "kernels", "lir", "linalg", "llvm", "asm")

#: Stages that `emit` can print for NVIDIA GPUs, in order.
GPU_STAGES = ("hir", "mir", "kernels", "lir", "linalg", "gpu", "nvvm", "ptx", "host")

#: Stages at which a module to compile may be, in order: built, or read from the text of later ones.
STARTS = ("hir", "mir", "kernels", "lir", "linalg")
RESUMABLE = STARTS[2:]

#: Attribute of a module whose kernels have code: what that is made for.
MACHINE = "mir.machine"

#: Stages that code of kernels is lowered to, by many small passes.
LOWERED = ("cpu", "llvm", "gpu", "nvvm", "host")

#: In place of fusion and outlining: a kernel for each operation as it is written.
APART = "mir-hoist-params,mir-outline-kernels{apart=true}"


@overload
def compile(
    module: GraphModule,
    *,
    target: Literal["nvptx"],
    threads: int | None = None,
    cache: bool = True,
    **options: Unpack[OptionKeywords],
) -> Artifact: ...


@overload
def compile(
    module: GraphModule,
    *,
    target: Literal["cpu", "cuda"] = "cpu",
    threads: int | None = None,
    cache: bool = True,
    **options: Unpack[OptionKeywords],
) -> Executable: ...


@overload
def compile(
    module: GraphModule,
    *,
    target: str,
    threads: int | None = None,
    cache: bool = True,
    **options: Unpack[OptionKeywords],
) -> CompiledModule: ...


@located
def compile(
    module: GraphModule,
    *,
    target: str = "cpu",
    threads: int | None = None,
    cache: bool = True,
    **options: Unpack[OptionKeywords],
) -> Artifact | Executable:
    """Compiles a module.

    Gives an `Executable`; for target `cuda` a `CudaExecutable`; for target `nvptx` the `Artifact`, which `save` writes
    to a file and `rlx_mlir.load` makes executable where there is a GPU.

    Args:
        module: a `GraphModule` at stage hir or mir, or at kernels, lir or linalg, from the text that `emit` gave, for
            the same target; it is not changed.
        target: what runs it: `cpu`, `cuda`, or `nvptx` for a GPU elsewhere.
        threads: of one call; None for as many as the process may use.
        cache: look for the compiled module on disk, and keep it there.
        options: the fields of `CompileOptions`, which says what each means: `activations` ("exact", "int16" or "int8"),
            `intermediates` ("rounded" or "wide"), `maxima` (of dynamic sizes, by symbol), `disable_templates`,
            `choices`, `level`; `verify` and `dump_dir` to look inside; `passes` of your own, `skip_fusion`;
            `time_limit`; `triple`, `cpu` and `features` for other CPUs, `chip`, `ptx` and `cubin` for GPUs.

    Raises InputError for options that aren't valid, UnsupportedError for operations that can't be compiled, and
    CompileError (or PassError, or TimeLimitError) with the pass, the place and a file that reproduces the failure.
    """
    chosen = options_of(target, options)
    check_threads(threads)
    checks.flag("cache", cache)
    _check_module(module)
    if module.stage in ("hir", "mir") and not module.outputs:
        raise InputError(f"'{module.name}' gives nothing: set_outputs says what it returns")
    if not cache:
        return _compiled(build_artifact(module, chosen), chosen, threads)
    material: dict[str, object] = {"module": module.to_text()}
    if chosen.passes or "mir.custom" in str(material["module"]):
        own = own_operations()
        if None in own.values():  # an entry could be taken for another operation's
            return _compiled(build_artifact(module, chosen), chosen, threads)
        material["own operations"] = own
    return cast(Executable, compile_cached(material, lambda: module, threads=threads, target=target, **options))


def own_operations() -> dict[str, str | None]:
    """What decides about code of the operations that users registered: all of them, as lowerings may use others."""
    from rlx_mlir.own_ops import registered_ops

    return {own.name: own.digest for own in registered_ops()}


def _check_module(module: object) -> None:
    from rlx_mlir.hir.module import GraphModule

    if isinstance(module, GraphModule):
        return
    advice = "text becomes one by GraphModule.from_text, a model's file an executable by load_model"
    if isinstance(getattr(module, "module", None), GraphModule):  # what reads models of other frameworks gives such
        advice = "its compile() binds its parameters, too; its graph is the attribute 'module'"
    raise InputError(f"'module' expects a GraphModule, but got {type(module).__name__}: {advice}")


@located
def compile_cached(
    material: Mapping[str, object],
    build: Callable[[], GraphModule],
    *,
    notes: Mapping[str, object] | None = None,
    threads: int | None = None,
    cache: bool = True,
    **options: Option,
) -> CompiledModule:
    """Compiles what `build` makes, or finds it compiled: then neither MLIR nor the compiler is loaded.

    What it gives is as for `compile`.

    Args:
        material: plain data that determines the module.
        build: makes the module; called only where the cache has no entry.
        notes: plain data that the artefact keeps as its `notes`, for whoever finds it; read after `build` was called.
        threads, cache, options: as for `compile`.
    """
    chosen = CompileOptions(**options)
    check_threads(threads)
    return _compiled(_cached_artifact(material, build, notes, chosen, cache=cache), chosen, threads)


@located
def cached_artifact(
    material: Mapping[str, object],
    build: Callable[[], GraphModule],
    *,
    notes: Mapping[str, object] | None = None,
    cache: bool = True,
    **options: Option,
) -> Artifact:
    """As `compile_cached`, for a machine that need not be this one: what is compiled isn't loaded."""
    return _cached_artifact(material, build, notes, CompileOptions(**options), cache=cache)


def _cached_artifact(
    material: Mapping[str, object],
    build: Callable[[], GraphModule],
    notes: Mapping[str, object] | None,
    chosen: CompileOptions,
    *,
    cache: bool,
) -> Artifact:
    def made(key: dict[str, object]) -> Artifact:
        artifact = build_artifact(build(), chosen)
        return dataclasses.replace(artifact, key=key, notes=dict(notes or {}))

    generators = {} if chosen.is_gpu else generator_digests()
    if not cache or None in generators.values():  # without a digest, an entry could be of another generator
        return made({})
    if generators:
        material = {**material, "own generators": generators}
    parts = compile_cache.key_parts(material, chosen.as_dict())
    if not chosen.choices and (measured := tuned.find(parts, chosen.known_choices)):
        chosen = dataclasses.replace(chosen, choices=measured)
        parts = compile_cache.key_parts(material, chosen.as_dict())
    artifact = None if chosen.is_observed else compile_cache.find(compile_cache.key_of(parts))
    if artifact is None:
        artifact = made(parts)
        compile_cache.keep(artifact)
    return artifact


def _compiled(artifact: Artifact, options: CompileOptions, threads: int | None) -> Artifact | Executable:
    """What runs the artefact; itself where it is to be run elsewhere."""
    if options.target == "nvptx":
        return artifact
    from rlx_mlir.runtime.loading import executable

    return executable(artifact, threads=threads)


def stages(
    options: CompileOptions, start: str = "hir", policy: str = "direct", *, apart: bool = False
) -> list[tuple[str, str]]:
    """(stage, pipeline that leads to it), in order, for a module that is at `start`.

    With `apart`, nothing is fused: each operation is a kernel of its own. That is for CPUs, and to compare with.
    """
    from rlx_mlir.rewriting.to_kernels import kernel_steps

    maxima = ",".join(f"{symbol}:{size}" for symbol, size in sorted(options.maxima.items()))
    disable = "+".join(options.disable_templates)
    machine = f"triple={options.triple} cpu={options.cpu} features={options.features}"
    templates = f"cpu-apply-templates{{{machine} disable={disable} choices={format_choices(options.choices)}}}"
    kernels = kernel_steps(
        gpu=options.is_gpu,
        activations=options.activations,
        intermediates=options.intermediates,
        maxima=options.maxima,
        disable_templates=options.disable_templates,
    )
    steps = [
        ("mir", f"hir-to-mir{{policy={policy}}}"),
        ("kernels", f"{kernels.primitives},{APART}" if apart else str(kernels)),
        ("lir", f'lir-plan{{maxima="{maxima}"}}'),
        ("linalg", f"{templates},func.func(mir-to-linalg)"),
        ("cpu", "rlx-generic-kernels"),
        ("llvm", "rlx-to-llvm"),
    ]
    if options.is_gpu:
        schedules = f"chip={options.chip} disable={disable} choices={format_choices(options.choices)}"
        assemble = f"gpu-assemble-ptx{{chip={options.chip} cubin={options.machine_code}}}"
        steps[1:] = [
            *steps[1:3],
            ("linalg", f"gpu-apply-schedules{{{schedules}}},func.func(mir-to-linalg)"),
            ("gpu", f"rlx-gpu-launch,gpu-chain-launches{{chip={options.chip}}}"),
            ("nvvm", "rlx-gpu-to-nvvm"),
            ("ptx", f"gpu-emit-ptx{{chip={options.chip} ptx={options.ptx} level={options.level}}},{assemble}"),
            ("host", "rlx-gpu-host-to-llvm"),
        ]
    if start not in STARTS:
        raise StageError(f"a module to compile is at stage {', '.join(STARTS)}, but this one is at {start}")
    first = STARTS.index(start)
    if options.passes or options.skipped:
        from rlx_mlir.rewriting.insertion import with_passes

        steps = with_passes(steps, options.passes, options.skipped)
    if not options.verify:
        return steps[first:]
    checked = [(stage, f"{pipeline},rlx-verify-stage{{stage={stage}}}") for stage, pipeline in steps[first:]]
    return [(checked[0][0], f"rlx-verify-stage{{stage={start}}},{checked[0][1]}"), *checked[1:]]


@located
def emit(
    module: GraphModule,
    stage: str,
    *,
    target: str = "cpu",
    kernel: str | None = None,
    **options: Unpack[OptionKeywords],
) -> str:
    """The module as the compiler has it at a stage: MLIR, but LLVM IR for `llvm` and `host`, assembly for `asm`, PTX.

    Args:
        module: a `GraphModule` at stage hir or mir; it is not changed.
        stage: one of `STAGES`, of `GPU_STAGES` for GPUs, not before the module's own.
        kernel: the name of one, whose functions alone are given: of stages from kernels on.
        target, options: see `CompileOptions`.

    Raises InputError where there is no such stage, kernel or option, and what `compile` raises.
    """
    chosen = options_of(target, options)
    known = GPU_STAGES if chosen.is_gpu else STAGES
    if not isinstance(stage, str) or stage not in known:
        raise InputError(
            f"'stage' expects one of {', '.join(known)} for target {chosen.target}, but got {checks.shown(stage)}"
        )
    if kernel is not None:
        checks.text("kernel", kernel)
    _check_module(module)
    if kernel is not None and stage in ("hir", "mir"):
        raise InputError(f"'kernel' is {kernel!r}, but there are kernels from stage kernels on, not at {stage}")
    if stage == module.stage:
        return str(module.to_text())
    compilation = Compilation(module, chosen)
    compilation.run(until="llvm" if stage == "asm" else stage)
    if kernel is not None:
        from rlx_mlir.reports.kernel import check_kernel, keep_kernel, kernel_of_ptx

        check_kernel(kernel, list(compilation.kinds), module.name)
        if stage == "ptx":
            return kernel_of_ptx(compilation.ptx, kernel)
        with compilation.module.context:
            keep_kernel(compilation.module, kernel)
    if stage in ("llvm", "asm", "host"):
        return compilation.code("ASSEMBLY" if stage == "asm" else "LLVM").decode()
    if stage == "ptx":
        return compilation.ptx
    return str(compilation.module)


class Compilation:
    """One module on its way through the stages, and what is read from it between them."""

    def __init__(self, module: GraphModule, options: CompileOptions, *, apart: bool = False) -> None:
        """Begins one; `apart` is that of `stages`."""
        self.name = module.name
        self.options = options
        self.module = module._copy()
        self._apart = apart
        self._steps = stages(options, module.stage, module.fusion_policy or "direct", apart=apart)
        self.plan: Any = None
        self.preparation = Preparation()
        self.parameters: tuple[BufferSpec, ...] = ()
        self.templates: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.own: tuple[OwnCall, ...] = ()
        self._is_counted = module.stage not in RESUMABLE[1:]  # at these, memory stands for values
        self._counted: Sequence[CountedCall] = ()
        self.kernels: ir.Module | None = None
        self.ptx = ""
        self.cubin, self.assembler = b"", ""
        self.device_kernels: tuple[str, ...] = ()
        self.verifier: NumericVerifier | None = None
        self._dumper: Dumper | None = None
        self.watch = limits.Watch(module.name, options.time_limit)
        self._check_passes(module)
        if module.stage in RESUMABLE:
            self._resume(module)
        else:
            self._check_supported(module)
            self._check_maxima(module)
            self._declare()
        self._observe(module.stage)

    def _resume(self, module: GraphModule) -> None:
        """Reads what passes before the module's stage have made; raises StageError where the text isn't of the stage.

        Raises InputError for options that mean something to those passes only.
        """
        from rlx_mlir.lowering.plan import check_noted, noted_parameters

        self._check_past(module)
        if module.stage == "kernels":
            self._check_maxima(module)
        problem = f"'{self.name}' can't be compiled from stage {module.stage} on"
        try:
            self._run_pipeline(f"rlx-verify-stage{{stage={module.stage}}}")
        except PassError as error:
            raise StageError(f"{problem}: {error}") from error
        with self.module.context:
            self.parameters = noted_parameters(self.module)
            for stage in RESUMABLE:
                self._read(stage)
                if stage == module.stage:
                    break
            check_noted(self.module, self.parameters, self.preparation, problem)
            if module.stage == "linalg":
                self._check_code(problem)

    def _check_past(self, module: GraphModule) -> None:
        """Raises InputError for options of passes that the module is past."""
        plain, past = CompileOptions(), RESUMABLE.index(module.stage)
        options = [
            "activations",
            "intermediates",
            "skip_fusion",
            *(["disable_templates", "choices"] if past > 1 else []),
        ]
        given = {name: getattr(self.options, name) != getattr(plain, name) for name in options}
        given["verify"] = self.options.verify == "numeric" and past > 0
        given["maxima"] = bool(self.options.maxima) and past > 0
        for name, is_given in given.items():
            if is_given:
                raise InputError(f"'{name}' has no meaning for '{self.name}', which is at stage {module.stage} already")

    def _check_code(self, problem: str) -> None:
        """Raises StageError where kernels have code that was made for another machine, or call the user's own."""
        from rlx_mlir.attributes import python_value

        attributes = self.module.operation.attributes
        found = python_value(attributes[MACHINE]) if MACHINE in attributes else None
        if found != self._machine():
            made = "doesn't say for which machine" if found is None else f"says that it is for {found}"
            raise StageError(
                f"{problem}: its kernels have code, of which '{MACHINE}' {made}, but it is compiled for "
                f"{self._machine()}; text of stage lir is for any"
            )
        if own := [name for name, kind in self.kinds.items() if kind == OWN]:
            raise StageError(
                f"{problem}: {', '.join(own)} calls an operation of the user's own, which text of stage lir names"
            )

    def _machine(self) -> str:
        """What code of kernels is made for: a target, and of CPUs a digest of their features."""
        if self.options.is_gpu:
            return f"nvptx {self.options.chip}"
        triple, cpu, features = self.options.machine()
        return f"{triple} {cpu} {hashlib.sha256(features.encode()).hexdigest()[:12]}"

    def _check_supported(self, module: GraphModule) -> None:
        from rlx_mlir.lowering.support import check_supported

        policy = module.fusion_policy or "direct"
        check_supported(self.module, self.name, policy=policy, gpu=self.options.is_gpu)

    def _check_maxima(self, module: GraphModule) -> None:
        """Raises InputError where a maximum is of a symbol that the module, as it is given, doesn't have."""
        known = module.dynamic_symbols
        for symbol in self.options.maxima:
            if symbol not in known:
                listed = ", ".join(known) or "no dynamic sizes"
                raise InputError(f"'maxima' names '{symbol}', but '{self.name}' has {listed}")

    def _check_passes(self, module: GraphModule) -> None:
        """Raises InputError where passes are put at a step that the module is past."""
        if not self.options.passes:
            return
        plain = dataclasses.replace(self.options, passes={})
        run = {stage for stage, _ in self._steps}
        for (stage, own), (_, other) in zip(stages(self.options), stages(plain), strict=True):
            if stage not in run and own != other:
                raise InputError(
                    f"'passes' has a place among the passes to {stage}, but '{self.name}' is at stage {module.stage}"
                )

    def _declare(self) -> None:
        """Notes what callers set, before passes drop, join and repack it."""
        from rlx_mlir.lowering.plan import declared_parameters, name_arguments

        with self.module.context:
            name_arguments(self.module)
            self.parameters = declared_parameters(self.module)

    def _observe(self, stage: str) -> None:
        """Makes what the options want to be told of passes."""
        if self.options.verify == "numeric":
            from rlx_mlir.verify import NumericVerifier

            self.verifier = NumericVerifier(self.module, maxima=dict(self.options.maxima))
        if self.options.dump_dir is not None:
            from rlx_mlir.reports.dumps import Dumper

            self._dumper = Dumper(self.options.dump_dir, self.name, self.module, stage)

    def run(self, until: str = "") -> dict[str, float]:
        """Runs the pipelines up to a stage, by default all; returns the seconds that each stage took."""
        from rlx_mlir.rewriting.steps import run_observed

        until = until or self._steps[-1][0]
        if until not in dict(self._steps):
            raise StageError(f"'{self.name}' is past stage {until}")
        seconds: dict[str, float] = {}
        while self._steps:
            stage, pipeline = self._steps[0]
            begin = time.perf_counter()
            with limits.watched(self.watch):
                if observers := [o for o in (self._dumper, self.verifier) if o is not None]:
                    run_observed(self.module, pipeline, observers)
                else:
                    self._run_pipeline(pipeline, each=stage not in LOWERED)
            with self.module.context:
                self._mark(stage)
                self._read(stage)
            seconds[stage] = time.perf_counter() - begin
            del self._steps[0]
            if stage == until:
                break
        return seconds

    def _run_pipeline(self, pipeline: str, *, each: bool = True) -> None:
        """Runs one pipeline on the module, and verifies what each pass makes, or what all of them make together."""
        from rlx_mlir.rewriting import run_pipeline
        from rlx_mlir.rewriting.steps import run_and_verify

        with self._without_code():
            if each:
                run_pipeline(self.module, pipeline)
            else:
                run_and_verify(self.module, pipeline)

    @contextmanager
    def _without_code(self) -> Iterator[None]:
        """Raises UnsupportedError where a pass finds what has no code."""
        try:
            yield
        except PassError as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, UnsupportedError):
                cause = cause.__cause__
            if cause is None:
                raise
            raise UnsupportedError(f"'{self.name}' can't be compiled: {error.__cause__}") from error

    def _mark(self, stage: str) -> None:
        """Writes the stage to the module; the policy of blocks says nothing once there are none."""
        from rlx_mlir import ir
        from rlx_mlir.lowering.plan import note_parameters

        attributes = self.module.operation.attributes
        attributes["mir.stage"] = ir.StringAttr.get(stage)
        if stage == "kernels":
            note_parameters(self.module, self.parameters)
        if stage == "linalg":
            attributes[MACHINE] = ir.StringAttr.get(self._machine())
        if "hir.policy" in attributes:
            del attributes["hir.policy"]

    def _read(self, stage: str) -> None:
        from rlx_mlir.lowering.functions import entry_function, functions
        from rlx_mlir.lowering.lir import argument_dims
        from rlx_mlir.lowering.plan import PlanReader, kernel_kinds, own_calls, read_preparation
        from rlx_mlir.rewriting.steps import clone

        if stage == "kernels":
            self.preparation = read_preparation(self.module)
            self.kinds = kernel_kinds(self.module)
            self.watch.kernels = tuple(self.kinds)
            self.own = own_calls(self.module)
            if self._is_counted:
                self._count()
            if self.verifier is not None:
                self.kernels = clone(self.module)
            if self.options.maxima:
                sizes = [size for dims in argument_dims(entry_function(self.module)) for size in dims]
                self._drop_maxima({symbol for size in sizes for symbol in size.symbols})
        elif stage == "lir":
            self.plan = PlanReader(self.module)
        elif stage == "ptx":
            from rlx_mlir.lowering.gpu.host import kernel_names
            from rlx_mlir.lowering.gpu.ptx import machine_code_of, ptx_of

            self.cubin, self.assembler = machine_code_of(self.module)
            self.ptx, self.device_kernels = ptx_of(self.module), tuple(kernel_names(self.module))
        elif stage in ("cpu", "gpu"):
            for function in functions(self.module):
                name, _, part = str(function.name.value).rpartition(".")
                if part == "body" and name in self.plan.kernels:  # what finishes a kernel is a part of it
                    self.templates[name] = function.operation.attributes["mir.template"].value

    def _count(self) -> None:
        """Notes what each call does; nothing where the formulas of that have too many terms."""
        from rlx_mlir.lowering.counting import counted_calls

        with suppress(UnsupportedError):
            self._counted = counted_calls(self.module)

    def _work(self) -> dict[str, Any]:
        """What an artefact says of that; nothing where passes of the user's own changed the calls since."""
        from rlx_mlir.lowering.counting import POSITION, counted_work

        plan = self.plan
        if [own.call.kernel for own in self._counted] != [plan.kernels[call[0]] for call in plan.calls]:
            return {}
        symbols = [name for name, _ in plan.symbols]
        used = {name for own in self._counted for name in own.work.symbols}
        if not used <= {*symbols, POSITION}:
            return {}
        return counted_work(self._counted, symbols, partial(plan.terms, more=(POSITION,))).to_dict()

    def _drop_maxima(self, used: set[str]) -> None:
        """Leaves out the maxima of symbols that only arguments had which nothing reads, and which are gone."""
        maxima = {symbol: size for symbol, size in self.options.maxima.items() if symbol in used}
        pipelines = dict(stages(dataclasses.replace(self.options, maxima=maxima), "mir", apart=self._apart))
        self._steps = [(stage, pipelines[stage]) for stage, _ in self._steps]

    def code(self, kind: str) -> bytes:
        """Code for the CPU of the module, which is at its last stage: `OBJECT`, `ASSEMBLY` or `LLVM`."""
        from rlx_mlir import ir
        from rlx_mlir.rewriting import operations
        from rlx_mlir.unsupported import list_operations

        emit_code = partial(
            ir.native.emit_code,
            self.module.operation,
            *self.options.machine(),
            self.options.level,
            getattr(ir.native.CodeKind, kind),
            self.watch.native,
        )
        try:
            return bytes(limits.interruptible(emit_code, self.watch))
        except ValueError as error:
            if self.watch.native.is_over:
                raise self.watch.error(self._unoptimised()) from None
            left = [(op, "") for op in operations(self.module) if not op.name.startswith("llvm.")]
            raise CompileError("\n  ".join([f"'{self.name}': {error}", *list_operations(left)])) from None

    def _unoptimised(self) -> Path | None:
        """A file with LLVM IR, not optimised, of the kernel that took the most time: for LLVM's own tools."""
        from rlx_mlir import ir
        from rlx_mlir.reports.kernel import keep_kernel
        from rlx_mlir.rewriting.failure import write_reproducer

        triple, cpu, features = self.options.machine()
        if culprit := self.watch.culprit():
            with self.module.context:
                keep_kernel(self.module, culprit)
        text = ir.native.emit_code(self.module.operation, triple, cpu, features, 0, ir.native.CodeKind.LLVM)
        command = f"; opt -O{self.options.level} %s | llc -relocation-model=pic --mcpu={cpu}\n"
        return write_reproducer(command + bytes(text).decode(), ".ll")

    def artifact(self) -> Artifact:
        """The compiled module."""
        from rlx_mlir.lowering.machine import instructions

        self.run()
        plan = self.plan
        triple, cpu, features = self.options.machine()
        return Artifact(
            name=self.name,
            target={"triple": triple, "cpu": cpu, "features": instructions(triple, features)},
            code=self.code("OBJECT"),
            symbols=tuple(plan.symbols),
            arena_bytes=plan.arena_bytes,
            slots=tuple(plan.slots),
            kernels=tuple(plan.kernels),
            inputs=tuple(plan.inputs),
            parameters=self.parameters,
            plan_parameters=tuple(plan.parameters),
            outputs=tuple(plan.outputs),
            calls=tuple(plan.calls),
            blocks=tuple(plan.blocks),
            preparation=self.preparation,
            templates=self.templates,
            kinds=self.kinds,
            conditions=tuple(plan.conditions),
            positions=tuple(plan.positions),
            work=self._work(),
            own=self.own,
            chip=self.options.chip,
            device_code=self.ptx.encode(),
            device_kernels=self.device_kernels,
            cubin=self.cubin,
            assembler=self.assembler,
        )


def build_artifact(module: GraphModule, options: CompileOptions) -> Artifact:
    """Runs the whole pipeline on a copy of the module, and verifies the result where the options say so."""
    compilation = Compilation(module, options)
    artifact = compilation.artifact()
    if compilation.kernels is not None:
        from rlx_mlir.verify import check_executable

        check_executable(Executable(artifact), compilation.kernels)
    return artifact
