# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which layers have a state of one size in place of keys and values, by the metadata of a file, and of what sizes."""

from __future__ import annotations

import numpy as np

from .architecture import Architecture
from .channel_scan import ChannelScan
from .delta import Delta
from .keys import Keys
from .scan import Scan
from .short_conv import ShortConv

Recurrence = Delta | ShortConv | Scan | ChannelScan
"""What layers have whose past is a state of one size."""


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


def _key_heads(keys: Keys, layers: int, heads: int) -> tuple[int, tuple[int, ...]]:
    """Heads of keys and values, and the layers that have none, which files say for each layer."""
    key = "attention.head_count_kv"
    given = keys.get(key)
    if not isinstance(given, np.ndarray) or given.ndim != 1 or given.dtype.kind not in "iu":
        return keys.integer(key, heads), ()
    if len(given) != layers:
        raise keys.fail(key, f"an array of {layers} numbers, one for each layer", f"{len(given)} numbers")
    own = {int(count) for count in given} - {0}
    if len(own) != 1 or min(own) < 1:
        raise keys.fail(key, "one number above 0 in all layers that have attention, and 0 in others", given.tolist())
    return own.pop(), tuple(layer for layer in range(layers) if not given[layer])


def convs_of(keys: Keys, layers: int, heads: int, hidden: int) -> tuple[int, ShortConv | None]:
    """Heads of keys and values, and the layers with short convolutions, which have none; None where all attend."""
    own, found = _key_heads(keys, layers, heads)
    if not found:
        return own, None
    keys.require(("shortconv.l_cache",))
    return own, ShortConv(hidden, keys.integer("shortconv.l_cache", 0, least=2), found)


def scans_of(
    keys: Keys, layers: int, heads: int, *, architecture: Architecture
) -> tuple[int, Scan | ChannelScan, tuple[int, ...], tuple[int, ...]]:
    """Heads of keys and values, the layers with selective scans, and those with attention, and with networks."""
    every, kind = tuple(range(layers)), architecture.scans
    if kind == "all":
        return heads, _scan(keys, every, architecture), (), ()
    if kind == "beside":
        return keys.integer("attention.head_count_kv", heads), _scan(keys, every, architecture), every, every
    own, free = _key_heads(keys, layers, heads)
    attentive = tuple(layer for layer in every if layer not in free)
    if kind == "instead":
        return own, _scan(keys, free, architecture), attentive, every
    widths = keys.get("feed_forward_length")
    if not isinstance(widths, np.ndarray) or len(widths) != layers or len({int(width) for width in widths} - {0}) > 1:
        rule = f"an array of {layers} numbers, one in all layers that are networks, and 0 in others"
        raise keys.fail("feed_forward_length", rule, widths if widths is None else np.asarray(widths).tolist())
    networks = tuple(layer for layer in every if widths[layer])
    if both := sorted(set(networks) & set(attentive)):
        raise keys.fail("feed_forward_length", "0 in layers with heads of keys and values", f"above 0 in {both}")
    scanning = tuple(layer for layer in free if layer not in networks)
    return own, _scan(keys, scanning, architecture), attentive, networks


def _channel_scan(keys: Keys, layers: tuple[int, ...], architecture: Architecture) -> ChannelScan:
    names = ("inner_size", "time_step_rank", "state_size", "conv_kernel")
    keys.require(f"ssm.{name}" for name in names)
    inner, rank, numbers, taps = (keys.integer(f"ssm.{name}", 0) for name in names)
    if taps < 2:
        raise keys.fail("ssm.conv_kernel", "at least 2", taps)
    eps = None
    if keys.flag("ssm.dt_b_c_rms", architecture.scan_norms):
        eps = keys.number("ssm.norm_epsilon", keys.number(architecture.eps_key, 0))
    return ChannelScan(inner, rank, numbers, taps, layers, eps)


def _scan(keys: Keys, layers: tuple[int, ...], architecture: Architecture) -> Scan | ChannelScan:
    if architecture.channel_rates:
        return _channel_scan(keys, layers, architecture)
    names = ("inner_size", "time_step_rank", "group_count", "state_size", "conv_kernel")
    keys.require(f"ssm.{name}" for name in names)
    inner, heads, groups, numbers, taps = (keys.integer(f"ssm.{name}", 0) for name in names)
    if inner % heads:
        raise keys.fail("ssm.inner_size", f"a multiple of the heads, {heads}", inner)
    if heads % groups:
        raise keys.fail("ssm.time_step_rank", f"a multiple of the groups, {groups}", heads)
    if taps < 2:
        raise keys.fail("ssm.conv_kernel", "at least 2", taps)
    least = keys.number("ssm.step_least", 0.0, zero=0.0)
    most = None if keys.get("ssm.step_most") is None else keys.number("ssm.step_most", 0.0)
    if most is not None and most < least:
        raise keys.fail("ssm.step_most", f"at least the least step, {least}", most)
    return Scan(inner, heads, groups, numbers, taps, layers, least, most)


__all__ = ["Recurrence", "convs_of", "delta_of", "scans_of"]
