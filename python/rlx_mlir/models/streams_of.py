# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several streams by the metadata of a file, see `streams`."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from .keys import Keys
from .streams import Streams


def streams_of(keys: Keys, layers: int, local: Collection[int]) -> Streams:
    """What a file says of its streams.

    Args:
        keys: of the file.
        layers: their number.
        local: those that see a window only.
    """
    names = ("altup.num_inputs", "embedding_length_per_layer_input", "attention.shared_kv_layers")
    keys.require(names)
    count, extra = keys.integer(names[0], 0, least=2), keys.integer(names[1], 0)
    shared = keys.integer(names[2], 0, least=0)
    own = layers - shared
    kinds = {layer in local for layer in range(layers)} - {layer in local for layer in range(max(own, 0))}
    if own < 1 or kinds:
        rule = "so few that a layer of each kind, local and global, is before those that read keys of others"
        raise keys.fail(names[2], rule, shared)
    sources = list(range(own))
    for layer in range(own, layers):
        sources.append(max(source for source in range(own) if (source in local) == (layer in local)))
    low = keys.file.tensors.get("blk.0.laurel_l.weight")
    rank = low.shape[0] if low is not None and len(low.shape) == 2 else 0
    return Streams(count, extra, rank, tuple(sources), _cutoffs(keys, layers))


def _cutoffs(keys: Keys, layers: int) -> tuple[float | None, ...]:
    """How many standard deviations above the mean gates of each layer begin; minus infinity is none of them."""
    key = "activation_sparsity_scale"
    given = keys.get(key)
    if given is None:
        return (None,) * layers
    if not isinstance(given, np.ndarray) or given.dtype.kind != "f" or given.shape != (layers,):
        raise keys.fail(key, f"an array of {layers} numbers, one for each layer", np.asarray(given).tolist())
    if not (given < math.inf).all():
        raise keys.fail(key, "numbers, or minus infinity where nothing is cut off", given.tolist())
    return tuple(None if each == -math.inf else float(each) for each in given)


__all__ = ["streams_of"]
