# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A module while it is trained: its parameters, what the optimiser keeps, and the executable of a step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from rlx_mlir import checks
from rlx_mlir.arrays import as_array
from rlx_mlir.checks import Option
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.errors import InputError
from rlx_mlir.files import Json
from rlx_mlir.frontends.safetensors import SafetensorsFile
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.optim.optimizers import Optimizer, adamw
from rlx_mlir.optim.schedules import Schedule, constant
from rlx_mlir.optim.state import NUMBER, RATE, begin_of
from rlx_mlir.place import located
from rlx_mlir.runtime.memory import MemoryReport
from rlx_mlir.runtime.prepare import Prepared
from rlx_mlir.training.making import Making

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule

#: What the metadata of a checkpoint say it is.
FORMAT = "rlx-checkpoint-1"


class Trainer(checks.Unpicklable):
    """Trains a module: one executable computes the loss and the gradients, and changes the parameters in place.

    The same inputs in the same order give the same bits, for any number of threads, also after `save` and `restore`.
    """

    _instead = "what 'save' writes is restored by other processes"

    @located
    def __init__(
        self,
        module: GraphModule | Callable[[], GraphModule],
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
        material: Mapping[str, object] | None = None,
        threads: int | None = None,
        **options: Option,
    ) -> None:
        """Compiles a step.

        Args:
            module: its first output is the loss. With `material` a function that gives it.
            params: all its parameters by name; those that are trained are copied, others used as they are.
            optimizer: `adamw()` by default.
            wrt, clip_norm, accumulate, loss_scale, recompute: as of `train_step`.
            schedule: the learning rate by the number of the step from 0, or one for all steps.
            precision: `f32`, or the type of products and attention: `bf16` or `f16`. Parameters, gradients and what the
                optimiser keeps stay what they are.
            memory_limit: bytes of a step at its peak, with parameters and what the optimiser keeps: as few blocks of
                the module as possible are computed again so that it stays within.
            shared: as of `Executable.set_params`.
            material: plain data that determines what `module` gives. That is called only where no such step is in the
                cache of compiled modules: elsewhere no graph is built. `wrt` has to be given then.
            threads, options: as of `compile`.

        Raises BuildError, InputError as `train_step` and `compile` do, and InputError where there is no such step.
        """
        checks.choice("precision", precision, ("f32", "bf16", "f16"))
        if not callable(schedule):
            schedule = constant(schedule)
        self._schedule = checks.callback("schedule", schedule, "step")
        self._optimizer = adamw() if optimizer is None else optimizer
        making = Making(
            optimizer=self._optimizer,
            wrt=wrt,
            clip_norm=clip_norm,
            accumulate=accumulate,
            loss_scale=loss_scale,
            recompute=(recompute,) if isinstance(recompute, str) else tuple(checks.names("recompute", recompute)),
            precision=precision,
            memory_limit=None if memory_limit is None else checks.whole("memory_limit", memory_limit, 1),
        )
        given = checks.mapping("params", params, "a mapping from parameters to arrays")
        if material is None:
            compiled = making.compiled(cast("GraphModule", module), threads, options)
        else:
            checks.mapping("material", material, "a mapping that determines the module")
            if wrt is None:
                raise InputError(
                    "'material' is given, and the module perhaps never built: 'wrt' has to name what is trained"
                )
            build = checks.callback("module", cast("Callable[[], GraphModule]", module))
            compiled = making.found(material, build, threads, options)
        #: The executable of a step; the blocks that it computes again for the limit.
        self.executable, self._trained, self.recomputed = compiled
        own = {name: _own(name, given[name]) if name in self._trained else given[name] for name in given}
        kept = {tied for output in self.executable.artifact.outputs if (tied := output.tied)} - {*self._trained}
        self._kept = {
            spec.name: begin_of(spec.name, [int(size) for size in spec.shape], numpy_dtype(spec.dtype), loss_scale)
            for spec in self.executable.artifact.parameters
            if spec.name in kept
        }
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
    def step(self, inputs: Mapping[str, object]) -> dict[str, np.ndarray]:
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

    def restore(self, path: str | os.PathLike[str]) -> dict[str, Json]:
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

    def metadata_of(self, path: str | os.PathLike[str]) -> dict[str, Json]:
        """What `save` was given beside a checkpoint of this optimiser; raises as `restore` does."""
        return _metadata(self._opened(path)[1])

    def _opened(self, path: str | os.PathLike[str]) -> tuple[SafetensorsFile, dict[str, Json]]:
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


def _metadata(own: Mapping[str, Json]) -> dict[str, Json]:
    found = own.get("metadata")
    return found if isinstance(found, dict) else {}


def _own(name: str, value: object) -> np.ndarray:
    """A copy that nobody else changes."""
    return np.array(as_array(f"parameter '{name}'", value), order="C")
