# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The range of keys that kernels of attention read, against a matrix of which query sees which key."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rlx_mlir.codegen.attention import AttentionKernel
from rlx_mlir.codegen.emit import Emitter
from rlx_mlir.codegen.specs import AttentionSpec


def kernel(kind: str, window: int | None) -> AttentionKernel:
    mask = "memref<?x?x?x?xf32>" if kind in ("custom", "bias") else None
    buffer = "memref<?x?x64xf32>"
    spec = AttentionSpec(buffer, buffer, buffer, buffer, 1, 64, mask=mask, mask_kind=kind, window=window)
    return AttentionKernel(Emitter(), spec)


def seen(kind: str, window: int | None, queries: int, keys: int, start: int | None) -> np.ndarray:
    """Whether query i may see key j, as far as their positions say: [queries, keys]."""
    positions = (keys - queries if start is None else start) + np.arange(queries)[:, None]
    places = np.arange(keys)[None]
    shown = (
        np.ones((queries, keys), bool) if start is None else np.broadcast_to(places < start + queries, (queries, keys))
    )
    if kind in ("causal", "sliding_window"):
        shown = shown & (places <= positions)
    if kind == "sliding_window":
        assert window is not None
        shown = shown & (places > positions - window)
    return shown


@pytest.mark.parametrize(
    ("kind", "window"),
    [("none", None), ("causal", None), ("custom", None), ("bias", None), *(("sliding_window", n) for n in (1, 3, 100))],
)
def test_the_range_holds_the_keys_that_some_query_sees_and_ends_with_them(kind: str, window: int | None) -> None:
    own = kernel(kind, window)
    for queries, keys, start in itertools.product((1, 2, 7), (0, 1, 5, 16), (None, -9, 0, 4, 15)):
        for first in range(queries):
            count = min(2, queries - first)
            shown = seen(kind, window, queries, keys, start)[first : first + count].any(axis=0)
            found = own.seen_by_some(queries, keys, start, first, count)
            assert isinstance(found.lo, int)
            assert isinstance(found.hi, int)
            inside = np.zeros(keys, bool)
            inside[found.lo : max(found.hi, 0)] = True
            np.testing.assert_array_equal(inside, shown, f"{queries} queries, {keys} keys, from {start}, {first}")


def test_the_offset_is_the_position_of_query_0() -> None:
    own = kernel("causal", None)
    assert own.seen_by_some(3, 10, None, 0, 3).offset == 7
    assert own.seen_by_some(3, 10, 4, 0, 3).offset == 4
