# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Feed-forward networks and experts by the metadata of a file: how wide they are, which layers have experts, and how
these are chosen."""

from __future__ import annotations

import numpy as np

from ..errors import UnsupportedError
from ..frontends.model_file import MetadataValue
from .architecture import Architecture, Experts
from .keys import Keys, where
from .routing import BY_SOFTMAX, OF_CHOSEN, Routing

_SCORES = {0: "softmax", 1: "softmax", 2: "sigmoid"}
"""By the number of the function in files, of which 0 is none."""


def routing_of(keys: Keys, kind: Experts | None) -> Routing:
    """How experts are chosen."""
    if kind is not None and kind.mixed:
        if (used := keys.integer("expert_used_count", 0)) != 2:
            raise UnsupportedError(f"{where(keys.file)}'{keys.prefix}.expert_used_count' must be 2, but is {used}")
        return Routing("mixed", near=2 * keys.number("expert_jitter", 0.01, zero=0.0))
    if kind is None or not kind.routed:
        return OF_CHOSEN if kind is not None and kind.of_chosen else BY_SOFTMAX
    number = keys.integer("expert_gating_func", 2 if kind.by_sigmoid else 0, least=0)
    if number not in _SCORES:
        raise UnsupportedError(
            f"{where(keys.file)}'{keys.prefix}.expert_gating_func' must be one of {list(_SCORES)}, but is {number}"
        )
    experts, used = keys.integer("expert_count", 0), keys.integer("expert_used_count", 0)
    groups = keys.integer("expert_group_count", 0, least=0) or 1
    if experts % groups:
        raise keys.fail("expert_group_count", f"a divisor of the number of experts, {experts}", groups)
    own = keys.integer("expert_group_used_count", 0, least=0) or groups
    if not used * groups <= own * experts <= groups * experts:
        rule = f"at most {groups}, and so many that there are {used} experts in as many groups of {experts // groups}"
        raise keys.fail("expert_group_used_count", rule, own)
    whole = own == groups  # then each expert may be chosen
    scale = keys.number("expert_weights_scale", 1.0, zero=1.0)
    return Routing(_SCORES[number], 1 if whole else groups, 1 if whole else own, scale)


def sparse_of(keys: Keys, architecture: Architecture, layers: int) -> tuple[int, ...] | None:
    """The layers that have experts in place of one network; None for all, or where there are no experts."""
    kind = architecture.experts
    if kind is None:
        return None
    if kind.some:
        return tuple(layer for layer in range(layers) if f"blk.{layer}.ffn_gate_inp.weight" in keys.file.tensors)
    dense = keys.integer("leading_dense_block_count", 0, least=0) if kind.routed else 0
    if not dense:
        return None
    keys.require(("feed_forward_length",))
    return tuple(range(dense, layers + 1))  # that behind the last one predicts further ahead


def widths_of(keys: Keys, architecture: Architecture) -> dict[str, MetadataValue]:
    """The fields of feed-forward networks."""
    if architecture.experts is None:
        keys.require(("feed_forward_length",))
        own = {"experts": 0, "experts_used": 0, "expert_ffn": 0, "experts_normalised": False, "shared_ffn": 0}
        if architecture.scans == "all":
            return {"ffn": 0, **own}
        return {"ffn": _single_width(keys, architecture, 0), **own}
    kind = architecture.experts
    its_width = "expert_feed_forward_length" if kind.own_width else "feed_forward_length"
    shared = ("expert_shared_feed_forward_length",) if kind.shared or kind.added else ()
    shared = ("expert_shared_count",) if kind.shared_count else shared
    keys.require(("expert_count", "expert_used_count", its_width, *shared))
    experts, used = keys.integer("expert_count", 0), keys.integer("expert_used_count", 0)
    if used > experts:
        raise keys.fail("expert_used_count", f"at most the number of experts, {experts}", used)
    width = keys.integer(its_width, 0)
    return {
        "ffn": _single_width(keys, architecture, width),
        "experts": experts,
        "experts_used": used,
        "expert_ffn": width,
        "experts_normalised": keys.flag("expert_weights_norm", kind.normalised),
        "shared_ffn": keys.integer(shared[0], 0) * (width if kind.shared_count else 1) if shared else 0,
    }


def _single_width(keys: Keys, architecture: Architecture, default: int) -> int:
    """How wide networks are that aren't experts."""
    if architecture.scans == "single":  # 0 where a layer is something else, see `scans_of`
        return int(np.max(keys.get("feed_forward_length")))
    return keys.integer("feed_forward_length", default)


__all__ = ["routing_of", "sparse_of", "widths_of"]
