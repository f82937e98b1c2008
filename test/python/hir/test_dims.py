# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The algebra of sizes against the numbers that it stands for, and its normal form."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.mir.dims import Size, SizeText, ceildiv, floordiv, followed, is_never_negative, maximum, minimum

SYMBOLS = ("a", "b", "n")


class Both:
    """A size, and how its number follows from the numbers of symbols, without any normal form."""

    def __init__(self, size: Size, number) -> None:  # type: ignore[no-untyped-def]
        self.size, self.number = size, number


def constant(value: int) -> Both:
    return Both(Size.of(value), lambda _: value)


def symbol(name: str) -> Both:
    return Both(Size.of(name), lambda sizes: sizes[name])


def combined(kind: str, left: Both, right: Both) -> Both:
    operations = {
        "+": (Size.__add__, lambda x, y: x + y),
        "-": (Size.__sub__, lambda x, y: x - y),
        "*": (Size.__mul__, lambda x, y: x * y),
        "max": (maximum, max),
        "min": (minimum, min),
    }
    make, number = operations[kind]
    return Both(make(left.size, right.size), lambda sizes: number(left.number(sizes), right.number(sizes)))


def divided(kind: str, left: Both, by: int) -> Both:
    make, number = {
        "floordiv": (floordiv, lambda x: x // by),
        "ceildiv": (ceildiv, lambda x: -(-x // by)),
        "mod": (Size.__mod__, lambda x: x % by),
    }[kind]
    return Both(make(left.size, Size.of(by)), lambda sizes: number(left.number(sizes)))


leaves = st.one_of(st.integers(-9, 9).map(constant), st.sampled_from(SYMBOLS).map(symbol))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(combined, st.sampled_from(["+", "-", "*", "max", "min"]), inner, inner),
        st.builds(
            divided,
            st.sampled_from(["floordiv", "ceildiv", "mod"]),
            inner,
            st.integers(-6, 6).filter(bool),
        ),
    ),
    max_leaves=8,
)
numbers = st.fixed_dictionaries({name: st.integers(0, 40) for name in SYMBOLS})


@settings(max_examples=400, deadline=None)
@given(trees, numbers)
def test_sizes_are_the_numbers_they_stand_for(tree: Both, sizes: dict[str, int]) -> None:
    found = tree.size.evaluate(sizes)
    assert found == tree.number(sizes)
    assert found >= 0 or not is_never_negative(tree.size)
    shifted = tree.size.substituted({name: Size.of(name) * 2 + 1 for name in SYMBOLS})
    odd = {name: 2 * number + 1 for name, number in sizes.items()}
    assert shifted.evaluate(sizes) == tree.number(odd)
    assert Size.parse(str(tree.size)) == tree.size
    assert tree.size.symbols <= sizes.keys()
    for maxima in (None, sizes, dict.fromkeys(SYMBOLS, 40)):
        low, high = tree.size.bounds(maxima)
        assert low <= found <= high


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("floordiv(2*n + 4, 2)", "2 + n"),
        ("(2*n + 4) // 2", "2 + n"),
        ("2*n // 4 % 3", "floordiv(n, 2) + -3*floordiv(n, 6)"),
        ("floordiv(n + 5, 2)", "2 + floordiv(1 + n, 2)"),
        ("ceildiv(n, 2)", "floordiv(1 + n, 2)"),
        ("ceildiv(n - 1, 2)", "floordiv(n, 2)"),
        ("floordiv(floordiv(n, 2) + 1, 3)", "floordiv(2 + n, 6)"),
        ("ceildiv(max(n - 1, 0), 2)", "floordiv(n, 2)"),
        ("floordiv(max(n - 3, 0) + 5, 2)", "2 + max(-1 + floordiv(n, 2), 0)"),
        ("floordiv(4*n + 3, 6)", "floordiv(1 + 2*n, 3)"),
        ("floordiv(5*n, 3)", "floordiv(2*n, 3) + n"),
        ("floordiv(a*n, n)", "a"),
        ("floordiv(n, -2)", "floordiv(n, 2) + -1*n"),
        ("mod(2*n + 3, 2)", "1"),
        ("max(n, 0)", "n"),
        ("max(0, -n)", "0"),
        ("max(n - 1, 0)", "max(-1 + n, 0)"),
        ("max(0, n - 1) + 1", "1 + max(-1 + n, 0)"),
        ("max(1, n)", "1 + max(-1 + n, 0)"),
        ("max(a, b) - max(b, a)", "0"),
        ("min(n, 4) + max(n, 4)", "4 + n"),
        ("max(2*n - 2, 0)", "2*max(-1 + n, 0)"),
        ("max(max(n - 1, 0) - 1, 0)", "max(-2 + n, 0)"),
        ("max(2*max(n, 3) - 10, 0)", "2*max(-5 + n, 0)"),
        ("(a + 1)*(a - 1)", "-1 + a*a"),
        ("--n - -1", "1 + n"),
        ("floordiv(max, 2) + mod", "floordiv(max, 2) + mod"),
        ("min(floordiv(n, 2), n)", "floordiv(n, 2)"),
        ("max(n - floordiv(2*n + 1, 3), 0)", "-1*floordiv(1 + 2*n, 3) + n"),
        ("min(max(n - 1, 0), n)", "max(-1 + n, 0)"),
        ("max(floordiv(n, 2), floordiv(n, 2) - a)", "floordiv(n, 2)"),
        ("max(a - max(a - n, 0), 0)", "a + -1*max(a + -1*n, 0)"),
    ],
)
def test_normal_form(written: str, normal: str) -> None:
    assert str(Size.parse(written)) == normal
    assert Size.parse(normal) == Size.parse(written)


def test_sizes_of_other_values() -> None:
    a, n = Size.of("a"), Size.of("n")
    assert followed(3, []) == Size.of(3)
    assert followed("floordiv(d0 + 2*d1, 2)", [a, n]) == a // 2 + n
    assert followed("max(d0 - 1, 0)", [a + 1]) == a


@pytest.mark.parametrize("text", ["a + b + c + d + 1", "a"])
def test_products_are_bounded(text: str) -> None:
    def squared(times: int) -> Size:
        size = Size.parse(text)
        for _ in range(times):
            size = size * size
        return size

    assert squared(2).evaluate(dict.fromkeys("abcd", 1)) == Size.parse(text).evaluate(dict.fromkeys("abcd", 1)) ** 4
    with pytest.raises(UnsupportedError, match="a size has at most 4096 terms of 64 factors, but "):
        squared(20)


def test_divisors_that_divide_nothing() -> None:
    n, a = Size.of("n"), Size.of("a")
    assert floordiv(n * a, a) == n
    with pytest.raises(UnsupportedError, match=r"\(1 \+ n\) / \(a\) isn't made of sums"):
        floordiv(n + 1, a)
    with pytest.raises(InputError, match="the size n is divided by 0"):
        floordiv(n, Size.of(0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "in the size '', a number, a symbol or a function is expected, but there is the end"),
        ("n +", "a number, a symbol or a function is expected, but there is the end"),
        ("n n", "the end is expected, but there is 'n'"),
        ("floordiv(n)", r"',' is expected, but there is '\)'"),
        ("log(n, 2)", "sizes have the functions floordiv, ceildiv, mod, max, min, but 'log.* has 'log'"),
        ("n / 2", "the size 'n / 2' has a character that no size has"),
        ("(" * 100 + "n" + ")" * 100, "is nested more than 64 deep"),
    ],
)
def test_text_that_is_no_size(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Size.parse(text)


def test_text_is_computed_with_as_its_size():
    n, half = SizeText("n"), SizeText("floordiv(n, 2)")
    found = [
        n + 1,
        1 + n,
        n - 1,
        8 - n,
        n * 2,
        2 * n,
        n * n,
        n // 2,
        n % 3,
        half + half,
        n * np.int64(3),
        np.int64(3) * n,
    ]
    assert [str(text) for text in found] == [
        "1 + n", "1 + n", "-1 + n", "8 + -1*n", "2*n", "2*n", "n*n", "floordiv(n, 2)", "-3*floordiv(n, 3) + n",
        "2*floordiv(n, 2)", "3*n", "3*n",
    ]  # fmt: skip
    assert all(type(text) is SizeText for text in found)
    assert (n - n, n * 0) == (0, 0)
    assert (n + "_0", f"{n:>3}", {"n": 1}[n], pickle.loads(pickle.dumps(n))) == ("n_0", "  n", 1, "n")
    size = Size.of("n")
    assert size + half == half + size - 0 == size + floordiv(size, Size.of(2))
    assert 8 - size == Size.parse("8 - n")
    for other in (1.5, None, True):
        with pytest.raises(TypeError, match="unsupported operand"):
            n * other
    with pytest.raises(InputError, match="divided by 0"):
        n // 0
    with pytest.raises(InputError, match=r"'\?'"):
        SizeText("?") * 2
