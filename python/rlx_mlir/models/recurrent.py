# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which layers have a state of one size in place of keys and values, by the metadata of a file, and of what sizes."""

from __future__ import annotations

import numpy as np

from .delta import Delta
from .keys import Keys
from .short_conv import ShortConv


def delta_of(keys: Keys, layers: int) -> Delta | None:
    """The layers with gated delta rules; None where all have attention."""
    names = ("group_count", "time_step_rank", "state_size", "conv_kernel", "inner_size")
    keys.require(f"ssm.{name}" for name in names)
    groups, values, size, taps, inner = (keys.integer(f"ssm.{name}", 0) for name in names)
    if values % groups:
        raise keys.fail("ssm.time_step_rank", f"a multiple of the heads of keys, {groups}", values)
    if inner != values * size:
        raise keys.fail("ssm.inner_size", f"{values} heads of {size} elements", inner)
    if taps < 2:
        raise keys.fail("ssm.conv_kernel", "at least 2", taps)
    # Files count the layer that predicts further ahead among them, too.
    count = keys.integer("block_count", 0)
    recurs = keys.flags("attention.recurrent_layers", count)
    if recurs is None:
        interval = keys.integer("full_attention_interval", 4)
        recurs = [(layer + 1) % interval != 0 for layer in range(layers)]
    found = tuple(layer for layer in range(layers) if recurs[layer])
    return Delta(groups, values, size, taps, found) if found else None


def convs_of(keys: Keys, layers: int, heads: int, hidden: int) -> tuple[int, ShortConv | None]:
    """Heads of keys and values, and the layers with short convolutions, which have none; None where all have attention.

    Files say for each layer how many heads it has.
    """
    key = "attention.head_count_kv"
    given = keys.get(key)
    if not isinstance(given, np.ndarray) or given.ndim != 1 or given.dtype.kind not in "iu":
        return keys.integer(key, heads), None
    if len(given) != layers:
        raise keys.fail(key, f"an array of {layers} numbers, one for each layer", f"{len(given)} numbers")
    own = {int(count) for count in given} - {0}
    if len(own) != 1 or min(own) < 1:
        raise keys.fail(key, "one number above 0 in all layers that have attention, and 0 in others", given.tolist())
    found = tuple(layer for layer in range(layers) if not given[layer])
    if not found:
        return own.pop(), None
    keys.require(("shortconv.l_cache",))
    return own.pop(), ShortConv(hidden, keys.integer("shortconv.l_cache", 0, least=2), found)


__all__ = ["convs_of", "delta_of"]
