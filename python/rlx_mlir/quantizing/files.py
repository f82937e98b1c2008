# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model as a GGUF file whose matrices have the types of a mix, written a piece at a time."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlx_mlir.errors import InputError
from rlx_mlir.formats import get_format
from rlx_mlir.formats.pieces import encoded_pieces
from rlx_mlir.frontends.gguf import Tensor, write_gguf
from rlx_mlir.frontends.model_file import MetadataValue, TensorInfo, refuse_itself
from rlx_mlir.models.mixes import Mix, Rules, is_quantised, named_mix, needs_importance
from rlx_mlir.quantizing.importance import Importance
from rlx_mlir.quantizing.sources import Source
from rlx_mlir.runtime.shown import size_text

_SPARE = 1 << 20
"""Bytes of a file beside its tensors, about, for metadata that aren't a vocabulary."""

#: Told which tensor is written, how many bytes of tensors are, and how many there will be.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Planned:
    """A tensor of the new file.

    Attributes:
        name, shape: innermost dimension last.
        source: its type in the model.
        type: in the new file.
        nbytes: in the new file.
    """

    name: str
    shape: tuple[int, ...]
    source: str
    type: str
    nbytes: int


@dataclass(frozen=True)
class Plan:
    """What a file will have.

    Attributes:
        mix: that was asked for.
        tensors: in order.
    """

    mix: Mix
    tensors: tuple[Planned, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def bits(self) -> float:
        """Bits of a weight, on average."""
        return 8 * self.nbytes / sum(math.prod(tensor.shape) for tensor in self.tensors)

    @property
    def requantised(self) -> int:
        """Tensors that were rounded before, to blocks of another type: their errors add up."""
        return sum(tensor.type != tensor.source and get_format(tensor.source).dense is None for tensor in self.tensors)

    @property
    def needing(self) -> tuple[Planned, ...]:
        """Tensors that are only quantised by an importance matrix."""
        return tuple(t for t in self.tensors if t.type != t.source and needs_importance(self.mix, t.name, t.type))

    def check(self, importance: Importance | None) -> None:
        """InputError where a tensor lacks the importance matrix that its type needs."""
        for tensor in self.needing:
            if importance is None:
                raise InputError(
                    f"the mix {self.mix.name} needs an importance matrix, a file or a text to make one of: "
                    f"'{tensor.name}' would be {tensor.type}, whose few bits must go where they count"
                )
            if not importance.has(tensor.name):
                raise InputError(
                    f"{importance.origin} says nothing of '{tensor.name}', which would be {tensor.type}, a type that "
                    "needs an importance matrix"
                )

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        return {
            "mix": self.mix.name,
            "bytes": self.nbytes,
            "bits_per_weight": self.bits,
            "requantised": self.requantised,
            "needs_importance": len(self.needing),
            "tensors": [
                {"name": t.name, "shape": list(t.shape), "from": t.source, "type": t.type, "bytes": t.nbytes}
                for t in self.tensors
            ],
        }


def plan(source: Source, mix: str, *, has_importance: bool = False) -> Plan:
    """The types that the tensors of a model get by a mix; InputError where there is no such mix.

    Some get others where there is an importance matrix.
    """
    found = named_mix(mix)
    rules = Rules.of(source.config, found, has_importance=has_importance)
    tensors = []
    for info in source.file.tensors.values():
        own = rules.type_of(info.name, info.k) if is_quantised(info.name, len(info.shape)) else source.kept_type(info)
        nbytes = info.rows * get_format(own).row_bytes(info.k)
        tensors.append(Planned(info.name, info.shape, info.type, own, nbytes))
    return Plan(found, tuple(tensors))


def quantize_file(
    source: Source,
    output: str | os.PathLike[str],
    mix: str,
    *,
    importance: Importance | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Writes a model as a GGUF file of some mix; the file appears whole or not at all.

    Args:
        source: the model.
        output: the new file.
        mix: one of `MIXES`, in any case.
        importance: what errors of the columns of matrices count; all alike without it.
        threads: that quantise; as many as the process may use by default.
        progress: is told how far it is.

    Returns what is in it. Raises InputError where there is no such mix, the output is the model itself, the disk has
    too little room, or the importance matrix is another model's, or lacks what a type of few bits needs; GGUFError for
    weights that aren't finite; OSError where it can't be written.
    """
    planned = plan(source, mix, has_importance=importance is not None)
    target = Path(output)
    refuse_itself(source.file, target)
    _check_room(target, planned.nbytes + _SPARE)
    if importance is not None:
        importance.check(source.file.tensors)
    planned.check(importance)
    done = 0

    def pieces(info: TensorInfo, tensor: Planned) -> Iterator[np.ndarray]:
        nonlocal done
        for piece in _pieces(source, info, tensor, importance, threads):
            yield piece
            done += piece.nbytes
            if progress is not None:
                progress(info.name, done, planned.nbytes)

    tensors: dict[str, Tensor] = {}
    for tensor in planned.tensors:
        tensors[tensor.name] = (tensor.type, pieces(source.file.info(tensor.name), tensor), tensor.shape)
    write_gguf(target, {**source.metadata, **_described(planned.mix, importance)}, tensors)
    return planned


def _described(mix: Mix, importance: Importance | None) -> dict[str, MetadataValue]:
    """Metadata about the quantisation."""
    found: dict[str, MetadataValue] = {"general.quantization_version": 2, "general.file_type": mix.number}
    return found | ({} if importance is None else importance.metadata())


def _pieces(
    source: Source, info: TensorInfo, tensor: Planned, importance: Importance | None, threads: int | None
) -> Iterator[np.ndarray]:
    """The bytes of a tensor, some rows at a time."""
    if tensor.type == info.type:
        yield source.raw(info)
        source.file.release()
        return
    fmt = get_format(tensor.type)
    matrices = info.shape[0] if len(info.shape) == 3 else 1  # those of experts have columns of their own
    weights = None if importance is None or fmt.dense is not None else importance.of(info.name, matrices, info.k)
    each = info.rows // matrices
    try:
        for number in range(matrices):

            def read(start: int, stop: int, first: int = number * each) -> np.ndarray:
                return source.rows(info, first + start, first + stop)

            own = None if weights is None else weights[number]
            yield from encoded_pieces(fmt, read, each, info.k, weights=own, threads=threads)
    except InputError as error:
        raise InputError(f"tensor '{info.name}' can't be quantised to {tensor.type}: {error}") from None
    source.file.release()


def _check_room(target: Path, needed: int) -> None:
    folder = target.absolute().parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InputError(f"'{target}' needs {size_text(needed)}, but its disk has {size_text(free)} left")


__all__ = ["Plan", "Planned", "plan", "quantize_file"]
