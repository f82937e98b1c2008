# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is known of tensors by their indices: the same as numpy computes, and built where something reads it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rlx_mlir import GraphModule, interpret
from rlx_mlir.frontends import positions
from rlx_mlir.frontends.positions import Conditions, Known, Positions
from rlx_mlir.mir.dims import Size

S, B, ONE = Size.of("s"), Size.of("b"), Size.of(1)
SIZES = {"s": 5, "b": 3}


def built(known: Known, sizes: dict[str, int] = SIZES) -> np.ndarray:
    """The elements, by what the graph computes."""
    m = GraphModule.mir("graph")
    m.input("x", ["b", "s"])
    m.set_outputs({"y": known.value(m)})
    return interpret(m, {"x": np.zeros((sizes["b"], sizes["s"]), np.float32)})["y"]


def counter(size: Size = S) -> Positions:
    return positions.counted(Size.of(0), 1, size, "i64")


def column(x: Known) -> Known:
    """[s] as [s, 1]"""
    return positions.placed(x, [0, None], (x.shape[0], ONE))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_counting(size: int) -> None:
    sizes = {"b": 3, "s": size}
    three = positions.counted(S, 3, S, "i32")
    np.testing.assert_array_equal(built(three, sizes), size + 3 * np.arange(size, dtype=np.int32), strict=True)
    wide = positions.expand(column(three), (S, B))
    np.testing.assert_array_equal(built(wide, sizes), np.repeat(size + 3 * np.arange(size)[:, None], 3, 1))


def test_sums_products_and_slices() -> None:
    rows = positions.added(column(counter()), counter(B), 4, (S, B), "i64")
    np.testing.assert_array_equal(built(rows), np.arange(5)[:, None] + 4 * np.arange(3))
    two = Positions((), Size.of(2), (), "i64")
    doubled = positions.multiplied(rows, two, (S, B), "i64")
    assert doubled is not None
    np.testing.assert_array_equal(built(doubled), 2 * (np.arange(5)[:, None] + 4 * np.arange(3)))
    cut = positions.taken(doubled, 0, Size.of(1), 2, (Size.of(2), B))
    np.testing.assert_array_equal(built(cut), (2 * (np.arange(5)[:, None] + 4 * np.arange(3)))[1:5:2])
    assert positions.multiplied(rows, rows, (S, B), "i64") is None


def test_parts_that_go_on_are_one() -> None:
    before = positions.counted(Size.of(-1), 1, ONE, "i64")
    whole = positions.joined([before, counter()], 0, (S + 1,))
    assert whole == Positions((S + 1,), Size.of(-1), (1,), "i64")
    assert positions.joined([counter(), counter()], 0, (S + S,)) is None
    assert positions.joined([counter(), positions.counted(S, 1, S, "i64")], 0, (S + S,)) is not None
    single = [positions.counted(Size.of(own), 1, ONE, "i64") for own in (3, 5, 7)]
    assert positions.joined(single, 0, (Size.of(3),)) == Positions((Size.of(3),), Size.of(3), (2,), "i64")
    assert positions.joined([*single, single[0]], 0, (Size.of(4),)) is None


@pytest.mark.parametrize("kind", ["le", "lt", "ge", "gt", "eq", "ne"])
@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_comparisons(kind: str, offset: int) -> None:
    keys = positions.added(counter(), Positions((), Size.of(offset), (), "i64"), 1, (S,), "i64")
    found = positions.compared(kind, column(counter()), keys, (S, S))  # type: ignore[arg-type]
    compare = {"le": "less_equal", "lt": "less", "ge": "greater_equal", "gt": "greater", "eq": "equal"}
    wanted = getattr(np, compare.get(kind, "not_equal"))(np.arange(5)[:, None], np.arange(5) + offset)
    np.testing.assert_array_equal(built(found), wanted, strict=True)
    opposite = positions.negated(found)
    assert opposite is not None
    np.testing.assert_array_equal(built(opposite), ~wanted)


def test_what_holds_everywhere_is_known() -> None:
    zero = Positions((), Size.of(0), (), "i64")
    assert positions.compared("ge", counter(), zero, (S,)).constant is True
    assert positions.compared("lt", counter(), zero, (S,)).constant is False
    assert positions.compared("lt", counter(), Positions((), S, (), "i64"), (S,)).constant is True
    assert positions.compared("ne", counter(), counter(), (S,)).constant is False
    assert positions.compared("eq", counter(), zero, (S,)).constant is None


def test_conjunctions() -> None:
    seen = positions.compared("le", counter(), column(counter()), (S, S))  # type: ignore[arg-type]
    three = Positions((), Size.of(3), (), "i64")
    last = positions.added(column(counter()), three, -1, (S, ONE), "i64")  # type: ignore[arg-type]
    near = positions.compared("gt", counter(), last, (S, S))
    both = positions.both(seen, near, (S, S))
    i, j = np.arange(5)[:, None], np.arange(5)
    np.testing.assert_array_equal(built(both), (j <= i) & (j > i - 3))
    assert positions.negated(both) is None
    never = Conditions((S, S), never=True)
    assert positions.both(seen, never, (S, S)).constant is False
    np.testing.assert_array_equal(built(never), np.zeros((5, 5), bool))
    assert positions.both(seen, seen, (S, S)) == seen


def test_looking_up() -> None:
    table = positions.added(column(counter()), counter(B), 10, (S, B), "i64")
    at = [
        positions.placed(counter(B), [None, None, 0], (ONE, ONE, B)),
        positions.placed(counter(), [None, 0, None], (ONE, S, ONE)),
    ]
    found = positions.looked_up(positions.placed(table, [1, 0], (B, S)), at, (ONE, S, B))  # type: ignore[arg-type]
    assert found is not None
    np.testing.assert_array_equal(built(found), (np.arange(5)[:, None] + 10 * np.arange(3))[None])
    negative = positions.counted(Size.of(-1), 1, S, "i64")
    assert positions.looked_up(counter(), [negative], (S,)) is None
    assert positions.plain(counter(), S) == 0
    assert positions.plain(negative, S) is None
    assert positions.plain(counter(), B) is None


def test_running_sums_are_of_zeros_alone() -> None:
    assert positions.summed(Conditions((S,), never=True), 0, (S,)) == Positions((S,), Size.of(0), (0,), "i64")
    assert positions.summed(counter(), 0, (S,)) is None


def test_sizes_as_numbers() -> None:
    for text, (b, s) in itertools.product(("b*s + 2", "2*s - b", "3"), ((3, 5), (1, 1))):
        m = GraphModule.mir("graph")
        m.input("x", ["b", "s"])
        m.set_outputs({"y": positions.first(m, Size.parse(text), 2, "i64")})
        found = interpret(m, {"x": np.zeros((b, s), np.float32)})["y"]
        np.testing.assert_array_equal(found, [[Size.parse(text).evaluate({"b": b, "s": s})]])
