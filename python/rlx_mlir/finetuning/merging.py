# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An adapter becomes part of a model: a GGUF file whose weights have its products added, quantised again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlx_mlir.errors import InputError
from rlx_mlir.formats import decode, encode, get_format
from rlx_mlir.frontends.gguf import GGUFFile, Tensor, write_gguf
from rlx_mlir.frontends.model_file import refuse_itself
from rlx_mlir.models.adapter import read_adapter
from rlx_mlir.models.config import WEIGHT_TYPES, ModelConfig


@dataclass(frozen=True)
class Merged:
    """A weight that an adapter changed.

    Attributes:
        name: of the weight.
        type: in the new file.
        change: root of the mean square of what was added.
        error: root of the mean square of what rounding to the type changed beside it.
    """

    name: str
    type: str
    change: float
    error: float


def merge_adapter(
    model: str | os.PathLike[str],
    adapter: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    type: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Merged]:
    """Writes a model with an adapter's products added to its weights; says how they were rounded.

    Args:
        model: the .gguf file.
        adapter: the folder, as `rlx finetune` and PEFT write it.
        output: the new file; metadata and all other tensors are those of the old one.
        type: of the weights that change, such as q8_0; by default each keeps its own.
        progress: is told what is done.

    Raises InputError where the output is the model itself, or the type isn't one of a weight; UnsupportedError where
    there is no quantiser for it; GGUFError, ModelFileError for the files; OSError where the output can't be written.
    """
    if type is not None and type not in WEIGHT_TYPES:
        raise InputError(f"'type' must be one of {', '.join(sorted(WEIGHT_TYPES))}, but is {type!r}")
    target = Path(output)
    file = GGUFFile(model)
    refuse_itself(file, target)
    config = ModelConfig.from_gguf(file)
    added = read_adapter(adapter, config)
    tensors: dict[str, Tensor] = {}
    found = []
    for name, info in file.tensors.items():
        product = name.removesuffix(".weight")
        if product not in added.factors:
            tensors[name] = (info.type, file.tensor(name), info.shape)
            continue
        if progress is not None:
            progress(f"merging {name}")
        own = type or info.type
        change = added.change(product)
        wanted = file.dequantize(name) + change
        rows = encode(own, wanted)
        tensors[name] = (own, rows, info.shape)
        dense = get_format(own).dense
        stored = decode(own, rows, info.k) if dense is None else rows.view(dense).astype(np.float32)
        found.append(Merged(name, own, _size(change), _size(stored - wanted)))
    # The new file is whole, whatever the old one is.
    metadata = {key: file.metadata.typed(key) for key in file.metadata if not key.startswith("split.")}
    write_gguf(target, metadata, tensors, version=file.version)
    return found


def _size(values: np.ndarray) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


__all__ = ["Merged", "merge_adapter"]
