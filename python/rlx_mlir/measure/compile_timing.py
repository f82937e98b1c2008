# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the time of a cold compilation goes: stage by stage, and pass by pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlx_mlir.compiler import Compilation, CompileOptions

if TYPE_CHECKING:
    from rlx_mlir.hir.module import GraphModule


@dataclass(frozen=True)
class PassTime:
    """A pass of a pipeline, and the seconds that it took."""

    name: str
    seconds: float


@dataclass(frozen=True)
class StageTime:
    """What leads to a stage.

    Attributes:
        name: of the stage, as `rlx emit` has it; or of a step before the first or after the last one.
        seconds: of everything: passes, and what the compiler reads from the module between them.
        passes: in order; empty where the step isn't made of passes.
    """

    name: str
    seconds: float
    passes: tuple[PassTime, ...] = ()


@dataclass(frozen=True)
class CompileTiming:
    """A cold compilation of a module.

    Attributes:
        name: of the module.
        stages: in order.
        kernels, calls, code_bytes: what came out.
    """

    name: str
    stages: tuple[StageTime, ...]
    kernels: int
    calls: int
    code_bytes: int

    @property
    def seconds(self) -> float:
        """Of all stages."""
        return sum(stage.seconds for stage in self.stages)

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        return {
            "program": self.name,
            "seconds": self.seconds,
            "kernels": self.kernels,
            "calls": self.calls,
            "code_bytes": self.code_bytes,
            "stages": [
                {
                    "stage": stage.name,
                    "seconds": stage.seconds,
                    "passes": [{"pass": own.name, "seconds": own.seconds} for own in stage.passes],
                }
                for stage in self.stages
            ],
        }


class _Timed(Compilation):
    """A compilation that runs its pipelines pass by pass, and notes how long each takes."""

    def __init__(self, module: GraphModule, options: CompileOptions) -> None:
        super().__init__(module, options)
        self.passes: list[PassTime] = []

    def _run_pipeline(self, pipeline: str, *, each: bool = True) -> None:
        from rlx_mlir.rewriting import run_pipeline
        from rlx_mlir.rewriting.pipelines import pass_name, split

        for step in split(pipeline):
            begin = time.perf_counter()
            with self._without_code():
                run_pipeline(self.module, step, verify=each)
            self.passes.append(PassTime(pass_name(step), time.perf_counter() - begin))


def time_compilation(build: Callable[[], GraphModule], options: CompileOptions) -> CompileTiming:
    """Compiles a module without the cache, and times it.

    Args:
        build: makes the module.
        options: of the compilation.

    LLVM's own time is that of its optimisations, and the rest of code generation: the difference between compiling to
    LLVM IR and to an object, which are both done for it.
    """
    from rlx_mlir.rewriting.registry import register_all

    register_all()
    begin = time.perf_counter()
    module = build()
    stages = [StageTime("build", time.perf_counter() - begin)]
    begin = time.perf_counter()
    compilation = _Timed(module, options)
    stages.append(StageTime("check", time.perf_counter() - begin))
    for stage, _ in list(compilation._steps):
        compilation.passes = []
        seconds = compilation.run(until=stage)[stage]
        stages.append(StageTime(stage, seconds, tuple(compilation.passes)))
    begin = time.perf_counter()
    code = compilation.code("OBJECT")
    whole = time.perf_counter() - begin
    begin = time.perf_counter()
    compilation.code("LLVM")
    optimising = min(time.perf_counter() - begin, whole)
    stages += [StageTime("optimise", optimising), StageTime("code", whole - optimising)]
    return CompileTiming(
        compilation.name, tuple(stages), len(compilation.templates), len(compilation.plan.calls), len(code)
    )
