# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that order elements along dimensions of symbolic sizes, or of many elements."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_import import check, drawn  # noqa: E402

from rlx_mlir.frontends.indexing import FEW  # noqa: E402


def sorted_rows(*shape: int) -> Any:
    return torch.sort((drawn(*shape) * 4).round()).values


def with_nan(x: Any) -> Any:
    x = x.clone()
    x.view(-1)[0] = float("nan")
    return x


@pytest.mark.parametrize("count", [4, 60])
def test_orders_along_a_symbolic_dimension(count: int) -> None:
    others = [((drawn(own, 3) * 4).round(),) for own in (3, 17, FEW)]
    for function in (
        lambda x: torch.sort(x, dim=0, stable=True),
        lambda x: torch.argsort(x, dim=0, descending=True, stable=True),
        lambda x: torch.topk(x, 3, 0).values,
        lambda x: torch.median(x, 0).values,
        lambda x: torch.kthvalue(x, 2, 0).values,
    ):
        check(function, (drawn(count, 3) * 4).round(), others=tuple(others), is_long=True)
    check(lambda x: torch.nanmedian(x, 0).values, with_nan(drawn(count, 3)), others=tuple(others), is_long=True)


@pytest.mark.parametrize("right", [False, True])
def test_places_in_sorted_rows(right: bool) -> None:
    """Few elements are counted; in more, and in rows of symbolic lengths, places are found by bisection."""
    for length in (1, 17, FEW, FEW + 1, 128):
        x = with_nan((drawn(2, 9) * 4).round())
        check(lambda a, x: torch.searchsorted(a, x, right=right), sorted_rows(2, length), x, dynamic=False)
    check(
        lambda a, x: torch.bucketize(x, a, right=right),
        sorted_rows(40),
        with_nan(drawn(40)),
        others=((sorted_rows(3), drawn(3)), (sorted_rows(11), drawn(11))),
        is_long=True,
    )


def test_the_last_of_many_updates_stays() -> None:
    """Of places that come several times, in few places and in many."""
    for count in (1, 7, FEW, FEW + 1, 200):
        given = drawn(6, 2), drawn(count, dtype=torch.int64), drawn(count, 2)
        check(lambda x, i, v: x.index_put((i,), v), *given, dynamic=False)
    check(lambda x, i, v: x.scatter(1, i, v), drawn(2, 6), drawn(2, 90, dtype=torch.int64), drawn(2, 90), dynamic=False)
