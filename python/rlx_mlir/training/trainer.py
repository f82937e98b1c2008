# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A module while it is trained: its parameters, what the optimiser keeps, and the executable of a step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx_mlir import checks
from rlx_mlir.arrays import as_array
from rlx_mlir.autodiff.work import copy_of
from rlx_mlir.compiler import compile
from rlx_mlir.errors import InputError
from rlx_mlir.frontends.safetensors import SafetensorsFile
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.hir import GraphModule
from rlx_mlir.optim.optimizers import Optimizer, adamw
from rlx_mlir.optim.schedules import Schedule, constant
from rlx_mlir.optim.steps import NUMBER, RATE, TrainStep, train_step
from rlx_mlir.place import located
from rlx_mlir.runtime.memory import MemoryReport
from rlx_mlir.runtime.prepare import Prepared
from rlx_mlir.training.memory import within

#: What the metadata of a checkpoint say it is.
FORMAT = "rlx-checkpoint-1"


class Trainer:
    """Trains a module: one executable computes the loss and the gradients, and changes the parameters in place.

    The same inputs in the same order give the same bits, for any number of threads, also after `save` and `restore`.
    """

    @located
    def __init__(
        self,
        module: GraphModule,
        params: Mapping[str, object],
        optimizer: Optimizer | None = None,
        *,
        wrt: Sequence[str] | None = None,
        schedule: Schedule | float = 1e-3,
        clip_norm: float | None = None,
        accumulate: int = 1,
        precision: str = "f32",
        loss_scale: float | None = None,
        recompute: Sequence[str] | str = (),
        memory_limit: int | None = None,
        shared: dict[str, Prepared] | None = None,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        """Compiles a step.

        Args:
            module: its first output is the loss.
            params: all its parameters by name; those that are trained are copied, others used as they are.
            optimizer: `adamw()` by default.
            wrt, clip_norm, accumulate, loss_scale, recompute: as of `train_step`.
            schedule: the learning rate by the number of the step from 0, or one for all steps.
            precision: `f32`, or the type of products and attention: `bf16` or `f16`. Parameters, gradients and what the
                optimiser keeps stay what they are.
            memory_limit: bytes of a step at its peak, with parameters and what the optimiser keeps: as few blocks of
                the module as possible are computed again so that it stays within.
            shared: as of `Executable.set_params`.
            threads, options: as of `compile`.

        Raises BuildError, InputError as `train_step` and `compile` do, and InputError where there is no such step.
        """
        checks.choice("precision", precision, ("f32", "bf16", "f16"))
        module = copy_of(module)
        if not callable(schedule):
            schedule = constant(schedule)
        self._schedule = checks.callback("schedule", schedule, "step")
        if precision != "f32":
            module = module.transform(f"mir-precision{{policy={precision}}}")
        chosen = adamw() if optimizer is None else optimizer
        limit = None if memory_limit is None else checks.whole("memory_limit", memory_limit, 1)
        given_blocks = (recompute,) if isinstance(recompute, str) else checks.names("recompute", recompute)

        def make(blocks: tuple[str, ...]) -> TrainStep:
            return train_step(
                module,
                chosen,
                wrt,
                clip_norm=clip_norm,
                accumulate=accumulate,
                loss_scale=loss_scale,
                recompute=tuple(dict.fromkeys((*given_blocks, *blocks))),
            )

        #: The blocks that a step computes again for the limit.
        self.recomputed: tuple[str, ...] = ()
        if limit is None:
            step = make(())
        else:
            step, self.recomputed = within(module, make, limit, options.get("maxima"))
        self._optimizer = chosen
        self._trained, self._losses = step.trained, list(module.outputs)
        given = checks.mapping("params", params, "a mapping from parameters to arrays")
        own = {name: _own(name, given[name]) if name in self._trained else given[name] for name in given}
        self._kept = {name: np.array(array) for name, array in step.state.items()}
        #: The executable of a step.
        self.executable = compile(step.module, threads=threads, **options)
        self.executable.set_params({**own, **self._kept}, shared=shared)
        self._arrays = {name: own[name] for name in self._trained} | self._kept

    @property
    def params(self) -> dict[str, np.ndarray]:
        """What is trained, by name: the arrays that steps change."""
        return {name: self._arrays[name] for name in self._trained}

    @property
    def memory(self) -> MemoryReport:
        """Bytes of a step, as it is planned: nothing has to run for it."""
        report: MemoryReport = self.executable.dispatch_report().memory
        return report

    @property
    def steps(self) -> int:
        """The number of steps that were taken; those that were left out by a scaled loss don't count."""
        return int(self._arrays[NUMBER])

    @located
    def step(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        """One step: the module's outputs, and the gradients' norm before they are clipped, by name.

        Args:
            inputs: by name; with the batches of a step as first dimension, where there are several.

        Raises InputError as `Executable.run` does, before anything is changed.
        """
        rate = np.asarray(self._schedule(self.steps), np.float32)
        found = self.executable.run({**inputs, RATE: rate}, donate=tuple(self._arrays))
        return {name: value for name, value in found.items() if name not in self._arrays}

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, object] | None = None) -> None:
        """Writes a checkpoint: a safetensors file of parameters and of what the optimiser keeps.

        Args:
            path: the file; it is the old one or the new one, whatever happens meanwhile.
            metadata: what `restore` gives back, such as a seed: anything that JSON holds.

        Raises OSError where it can't be written.
        """
        own = {"format": FORMAT, "optimizer": self._optimizer.described(), "metadata": dict(metadata or {})}
        write_safetensors(path, self._arrays, {key: json.dumps(value, sort_keys=True) for key, value in own.items()})

    def restore(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Goes on from a checkpoint, with the bits that steps without a break would have; gives its metadata.

        Raises SafetensorsError where the file can't be read, InputError where it isn't a checkpoint of this module and
        optimiser; nothing is changed then.
        """
        file, own = self._opened(path)
        arrays = {}
        for name, old in self._arrays.items():
            if name not in file.tensors:
                raise InputError(f"{file.path}: the checkpoint has no '{name}'")
            arrays[name] = file.tensor(name)
            if arrays[name].shape != old.shape or arrays[name].dtype != old.dtype:
                raise InputError(
                    f"{file.path}: '{name}' is {arrays[name].dtype} {list(arrays[name].shape)}, but here it is "
                    f"{old.dtype} {list(old.shape)}"
                )
        for name, array in arrays.items():
            self._arrays[name][...] = array
        return _metadata(own)

    def metadata_of(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """What `save` was given beside a checkpoint of this optimiser; raises as `restore` does."""
        return _metadata(self._opened(path)[1])

    def _opened(self, path: str | os.PathLike[str]) -> tuple[SafetensorsFile, dict[str, Any]]:
        """A checkpoint of this optimiser, and its metadata's values."""
        file = SafetensorsFile(path)
        try:
            own = {key: json.loads(text) for key, text in file.metadata.items()}
        except ValueError:
            own = {}
        if own.get("format") != FORMAT:
            raise InputError(f"{file.path}: not a checkpoint of training: its 'format' isn't {FORMAT!r}")
        if own.get("optimizer") != self._optimizer.described():
            raise InputError(
                f"{file.path}: its optimiser is {own.get('optimizer')}, but here it is {self._optimizer.described()}"
            )
        return file, own


def _metadata(own: Mapping[str, Any]) -> dict[str, Any]:
    found = own.get("metadata")
    return found if isinstance(found, dict) else {}


def _own(name: str, value: object) -> np.ndarray:
    """A copy that nobody else changes."""
    return np.array(as_array(f"parameter '{name}'", value), order="C")
