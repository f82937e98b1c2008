# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What loops and branches carry: structures of values, flat and back, and what is said of those that don't fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from rlx_mlir.codegen.emit import Emitter, Value
from rlx_mlir.codegen.structures import described, flatten, mapped, named, unflatten


@dataclass(frozen=True)
class State:
    sums: list[Value]
    lost: Value | None = None


class Slot(NamedTuple):
    stage: Value
    phase: Value


A, B, C = (Value(f"%{name}", type) for name, type in (("a", "f32"), ("b", "f32"), ("c", "i32")))
CASES: dict[str, tuple[Any, list[Value], str]] = {
    "a value": (A, [A], "f32"),
    "nothing": (None, [], "None"),
    "an empty tuple": ((), [], "()"),
    "lists in lists": ([[A], [B, C]], [A, B, C], "[[f32], [f32, i32]]"),
    "a named tuple": (Slot(C, A), [C, A], "(i32, f32)"),
    "a dataclass": (State([A, B], C), [A, B, C], "State(sums=[f32, f32], lost=i32)"),
    "a dictionary": ({"x": A, "rest": [C]}, [A, C], "{x=f32, rest=[i32]}"),
    "what isn't there": ((State([A]), C), [A, C], "(State(sums=[f32], lost=None), i32)"),
}


@pytest.mark.parametrize("case", CASES)
def test_flat_and_back(case: str) -> None:
    structure, values, text = CASES[case]
    assert flatten(structure) == values
    again = unflatten(structure, values)
    assert again == structure
    assert type(again) is type(structure)
    assert described(structure) == text


def test_lists_are_new_ones() -> None:
    shared = [[A] * 2] * 2
    own = unflatten(shared, [A, B, A, B])
    own[0][0] = C
    assert own == [[C, B], [A, B]]


def test_values_that_are_too_many_or_too_few() -> None:
    with pytest.raises(ValueError, match=r"more values than \[f32\] has, the first is %b"):
        unflatten([A], [A, B])
    with pytest.raises(ValueError, match=r"fewer values than \[f32, f32\] has"):
        unflatten([A, B], [A])


def test_names_and_numbers() -> None:
    sizes = {"rows": 4, "axes": [State([A, B]), 0]}
    assert list(named(sizes, numbers=True)) == [("rows", 4), ("sums", A), ("sums", B), ("axes", 0)]
    assert unflatten(sizes, [C, 1, 2, A]) == {"rows": C, "axes": [State([1, 2]), A]}


def test_mapped() -> None:
    assert mapped(lambda x, y: x if x == y else C, State([A, B]), State([A, A])) == State([A, C])
    with pytest.raises(ValueError, match="argument"):
        mapped(lambda x, y: x, [A], [A, B])


@pytest.mark.parametrize("other", [1, 2.0, {A}, State])
def test_what_no_loop_carries(other: Any) -> None:
    with pytest.raises(TypeError, match="lists, tuples, dictionaries and dataclasses"):
        flatten([A, other])


def test_a_loop_carries_a_structure() -> None:
    em = Emitter()
    with em.func("f", [("x", "f32")], ["f32"]) as (x,):
        with em.loop(0, 8, carry=(State([x, x]), em.const(1, "i32"))) as loop:
            state, turn = loop.carry
            loop.yield_((State([sum_ + x for sum_ in state.sums]), turn + turn))
        state, turn = loop.result
        assert turn.type == "i32"
        with em.if_(em.cmpi("eq", turn, 0), state) as branch:
            branch.yield_(state)
            branch.else_()
            branch.yield_(State([x, x]))
        em.return_([branch.result.sums[1]])
    text = em.text()
    assert "iter_args(%a_0 = %x, %a_1 = %x, %a_2 = %cst_0) -> (f32, f32, i32)" in text
    assert "-> (f32, f32) {" in text
    assert "return %r_1#1 : f32" in text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            lambda x, i: State([x]),
            r"loop: expects to yield State\(sums=\[f32, f32\], lost=None\), but got State\(sums=\[f32\]",
        ),
        (lambda x, i: State([x, i]), r"but got State\(sums=\[f32, i32\], lost=None\)"),
        (lambda x, i: [x, x], r"but got \[f32, f32\]"),
    ],
)
def test_a_loop_that_yields_something_else(given: Any, text: str) -> None:
    em = Emitter()
    with (
        pytest.raises(TypeError, match=text),
        em.func("f", [("x", "f32"), ("i", "i32")]) as (x, i),
        em.loop(0, 8, carry=State([x, x])) as loop,
    ):
        loop.yield_(given(x, i))


def test_a_branch_that_yields_something_else() -> None:
    em = Emitter()
    i = Value("%i", "i32", em)
    with (
        pytest.raises(TypeError, match="if: expects to yield f32, but got i32"),
        em.if_(em.cmpi("eq", i, 0), "f32") as branch,
    ):
        branch.yield_(i)
