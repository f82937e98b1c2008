# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the executable of a step of training comes to be: built and compiled, or found compiled, without the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlx_mlir.compiler import compile, compile_cached
from rlx_mlir.optim.optimizers import AdamW, Lion, Optimizer, Sgd
from rlx_mlir.runtime.executable import Executable

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule
    from rlx_mlir.optim.steps import TrainStep

#: Optimisers that what they were made with says all about: their code is part of the compiler's identity.
_KNOWN = (AdamW, Lion, Sgd)
_RECOMPUTED = "recomputed"


@dataclass(frozen=True)
class Making:
    """What decides about a step, beside the module.

    Attributes:
        optimizer, wrt, clip_norm, accumulate, loss_scale, recompute: as of `train_step`.
        precision, memory_limit: as of `Trainer`.
    """

    optimizer: Optimizer
    wrt: Sequence[str] | None
    clip_norm: float | None
    accumulate: int
    loss_scale: float | None
    recompute: tuple[str, ...]
    precision: str
    memory_limit: int | None

    def compiled(
        self, module: GraphModule, threads: int | None, options: Mapping[str, Any]
    ) -> tuple[Executable, tuple[str, ...], tuple[str, ...]]:
        """The executable of a step of a module, what it trains, and the blocks computed again for the limit."""
        step, recomputed = self._made(module, options.get("maxima"))
        return compile(step.module, threads=threads, **options), step.trained, recomputed

    def found(
        self,
        material: Mapping[str, object],
        build: Callable[[], GraphModule],
        threads: int | None,
        options: Mapping[str, Any],
    ) -> tuple[Executable, tuple[str, ...], tuple[str, ...]]:
        """The same of a module that `material` determines, which is built only where no such step is in the cache."""
        if type(self.optimizer) not in _KNOWN or options.get("passes"):  # the user's own code decides, too
            return self.compiled(build(), threads, options)
        notes: dict[str, object] = {}

        def step() -> GraphModule:
            made, recomputed = self._made(build(), options.get("maxima"))
            notes[_RECOMPUTED] = list(recomputed)
            return made.module

        whole = {**material, "step": self._described()}
        executable: Executable = compile_cached(whole, step, notes=notes, threads=threads, **options)
        return executable, tuple(self.wrt or ()), tuple(executable.artifact.notes[_RECOMPUTED])

    def _described(self) -> dict[str, object]:
        """All of it, as JSON can write it."""
        return {
            "optimizer": self.optimizer.described(),
            "wrt": list(self.wrt or ()),
            "clip_norm": self.clip_norm,
            "accumulate": self.accumulate,
            "loss_scale": self.loss_scale,
            "recompute": list(self.recompute),
            "precision": self.precision,
            "memory_limit": self.memory_limit,
        }

    def _made(self, module: GraphModule, maxima: Mapping[str, int] | None) -> tuple[TrainStep, tuple[str, ...]]:
        """The step of a module, and the blocks that are computed again for the limit."""
        from rlx_mlir.autodiff.work import copy_of
        from rlx_mlir.optim.steps import train_step
        from rlx_mlir.training.memory import within

        module = copy_of(module)
        if self.precision != "f32":
            module = module.transform(f"mir-precision{{policy={self.precision}}}")

        def make(blocks: tuple[str, ...]) -> TrainStep:
            return train_step(
                module,
                self.optimizer,
                self.wrt,
                clip_norm=self.clip_norm,
                accumulate=self.accumulate,
                loss_scale=self.loss_scale,
                recompute=tuple(dict.fromkeys((*self.recompute, *blocks))),
            )

        if self.memory_limit is None:
            return make(()), ()
        return within(module, make, self.memory_limit, maxima)
