# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fine-tuning: an adapter of a model is trained on examples, and nothing else."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import cast

import numpy as np

from rlx_mlir.compiler import compile_cached
from rlx_mlir.errors import ExecutionError, InputError, shortened
from rlx_mlir.finetuning.data import Rows
from rlx_mlir.finetuning.graph import LossGraph
from rlx_mlir.frontends.model_file import ModelFile
from rlx_mlir.models import decoder
from rlx_mlir.models.adapter import Adapter, new_adapter
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.generation import peak_rss
from rlx_mlir.models.layers import adapter_names
from rlx_mlir.models.weights import replaced_weights
from rlx_mlir.optim import adamw, cosine
from rlx_mlir.place import located
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.runtime.prepare import Prepared
from rlx_mlir.training import Batches, Trainer


@dataclass(frozen=True)
class Settings:
    """What is trained, and how.

    Attributes:
        rank, alpha, targets: of the adapter, see `models.adapter.new_adapter`.
        steps: of the optimiser, AdamW.
        batch: rows that are computed at once.
        accumulate: batches of a step.
        rate, warmup: the learning rate rises over `warmup` steps, then falls along half a cosine to 0.
        weight_decay: of AdamW.
        clip_norm: the largest norm of all gradients together.
        seed: of the adapter's beginning and of the order of rows.
    """

    steps: int
    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ("attn_q", "attn_v")
    batch: int = 4
    accumulate: int = 1
    rate: float = 2e-4
    warmup: int = 0
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Step:
    """A step that was taken.

    Attributes:
        number: from 1.
        loss: mean cross entropy of the answers' tokens.
        gradient_norm: before it is clipped.
        tokens: of the rows, but for what fills them up.
        seconds: that it took.
        peak_rss: the largest resident size of the process so far, bytes.
    """

    number: int
    loss: float
    gradient_norm: float
    tokens: int
    seconds: float
    peak_rss: int


class FineTuning:
    """An adapter while it is trained. The same settings and rows give the same bits, for any number of threads.

    Attributes:
        file, config: the model.
        rows: what is learnt from.
        settings: how.
    """

    @located
    def __init__(
        self,
        file: ModelFile,
        config: ModelConfig,
        rows: Rows,
        settings: Settings,
        *,
        threads: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        """Compiles a step.

        Args:
            file, config: the model.
            rows: what is learnt from.
            settings: how.
            threads: of the compiled code.
            memory_limit: bytes of a step, with the model: as few layers as possible are computed again for their
                gradients so that it stays within. The bits are the same.

        Raises InputError where a setting is out of its range, there are too few rows for a step, or the limit is too
        low.
        """
        self.file, self.config, self.rows, self.settings = file, config, rows, settings
        self._threads = threads
        self._losses: Executable | None = None
        self._shared: dict[str, Prepared] = {}
        self._batches = Batches(
            rows.inputs(packed=rows.packed), settings.batch, seed=settings.seed, accumulate=settings.accumulate
        )
        begin = new_adapter(self.config, settings.targets, settings.rank, settings.alpha, settings.seed)
        self._scales = begin.scales
        self._graph = LossGraph(config, settings.batch, rows.length, begin.ranks, begin.scales, rows.packed)
        replaced_weights(self.file, iter(self.config.weights.values()), "refuse")  # an error, where one isn't finite
        self._weights = decoder.parameters(self.config, self.file, self.rows.length)
        trained: dict[str, np.ndarray] = {}
        for product, factors in begin.factors.items():
            trained |= dict(zip(adapter_names(product), factors, strict=True))
        self._trainer = Trainer(
            self._graph.build,
            {**self._weights, **trained},
            adamw(weight_decay=settings.weight_decay),
            wrt=list(trained),
            schedule=cosine(settings.rate, settings.steps, warmup=settings.warmup),
            clip_norm=settings.clip_norm,
            accumulate=settings.accumulate,
            memory_limit=memory_limit,
            shared=self._shared,
            material=self._graph.describe(),
            threads=threads,
            activations="exact",
        )

    @property
    def adapter(self) -> Adapter:
        """A copy of what was trained so far."""
        params = self._trainer.params
        names = {product: adapter_names(product) for product in self._graph.ranks}
        factors = {product: (params[a].copy(), params[b].copy()) for product, (a, b) in names.items()}
        return Adapter(factors, dict(self._scales))

    @property
    def memory(self) -> int:
        """Bytes that a step takes, as it is planned, with the model."""
        report = self._trainer.memory
        return report.peak_donated + (report.scratch or 0)

    @property
    def recomputed(self) -> tuple[str, ...]:
        """The layers that a step computes again for the limit of memory."""
        return self._trainer.recomputed

    @property
    def steps(self) -> int:
        """The number of steps that were taken."""
        return self._trainer.steps

    def step(self) -> Step:
        """Takes a step.

        Raises ExecutionError where its loss is no number: what is trained has none to go on from then.
        """
        begin = time.perf_counter()
        number = self._trainer.steps
        inputs = self._batches.at(number)
        counted = inputs["weights"]
        # The loss is a mean over batches; here one over all tokens of the step.
        weights = counted * np.float32(self.settings.accumulate / counted.sum())
        found = self._trainer.step({**inputs, "weights": weights})
        loss, norm = float(found["loss"]), float(found["optim.gradient_norm"])
        if not math.isfinite(loss):
            raise ExecutionError(
                f"step {number + 1}: the loss must be a finite number, but is {loss:g}: the rate, at most "
                f"{self.settings.rate:g}, may be too large; checkpoints of earlier steps are as they were"
            )
        return Step(
            number + 1,
            loss,
            norm,
            _filled(inputs),
            time.perf_counter() - begin,
            peak_rss(),
        )

    def loss(self, rows: Rows) -> float:
        """The mean cross entropy of the answers' tokens of rows that are as long as those that are learnt from.

        Raises InputError where they are of another length, or packed, but those that are learnt from aren't.
        """
        if rows.packed and not self.rows.packed:
            raise InputError("rows have several examples each, but those that are learnt from have one")
        if rows.length != self.rows.length:
            raise InputError(f"rows are of {self.rows.length} tokens, but got such of {rows.length}")
        if self._losses is None:
            self._losses = cast(
                Executable,
                compile_cached(self._graph.describe(), self._graph.build, threads=self._threads, activations="exact"),
            )
        # What is prepared of parameters may be computed from those that change.
        self._losses.set_params({**self._weights, **self._trainer.params}, shared=self._shared)
        size, total = self.settings.batch, 0.0
        inputs = rows.inputs(packed=self.rows.packed)
        for start in range(0, len(rows), size):
            part = {name: _padded(array[start : start + size], size) for name, array in inputs.items()}
            total += float(self._losses.run(part)["loss"])
        return total / rows.answers

    def loss_of_step(self, number: int) -> float:
        """The loss, as it is now, of the rows that a step was taken with; `number` is the step's, from 1."""
        inputs = self._batches.at(number - 1)
        tokens, targets, counted, *places = (
            array.reshape(-1, self.rows.length)
            for array in (inputs[name] for name in ("tokens", "targets", "weights", "positions") if name in inputs)
        )
        return self.loss(Rows(tokens, targets, counted, positions=places[0] if places else None))

    def run(self) -> Iterator[Step]:
        """Takes the steps that are left; raises as `step` does."""
        while self.steps < self.settings.steps:
            yield self.step()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint; OSError where it can't be written."""
        self._trainer.save(path, self._described())

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Goes on from a checkpoint, with the bits that steps without a break would have.

        Raises SafetensorsError, InputError as `Trainer.restore` does, and InputError where settings or rows are others.
        """
        before = self._trainer.metadata_of(path)
        for name, own in self._described().items():
            if before.get(name) != own:
                raise InputError(
                    f"{os.fspath(path)}: the checkpoint is of a run whose '{name}' is {shortened(before.get(name))}, "
                    f"but here it is {shortened(own)}"
                )
        self._trainer.restore(path)

    def _described(self) -> dict[str, object]:
        """What decides about the bits of a run."""
        digest = hashlib.sha256()
        for array in self.rows.inputs(packed=self.rows.packed).values():
            digest.update(repr(array.shape).encode() + array.tobytes())
        return {**asdict(self.settings), "targets": list(self.settings.targets), "rows": digest.hexdigest()}


def _filled(inputs: Mapping[str, np.ndarray]) -> int:
    """Tokens of rows up to the last one that counts."""
    counted = inputs["weights"].reshape(-1, inputs["weights"].shape[-1]) > 0
    last = counted.shape[1] - np.argmax(counted[:, ::-1], axis=1)
    return int(np.where(counted.any(axis=1), last, 0).sum())


def _padded(array: np.ndarray, rows: int) -> np.ndarray:
    """An array with zeros behind it, so that it has so many rows."""
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])


__all__ = ["FineTuning", "Settings", "Step"]
