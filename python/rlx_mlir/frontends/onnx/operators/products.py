# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products: matrices, Gemm, contractions in Einstein's notation."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

from ..call import Call
from ..registry import MICROSOFT, Refused, operator


def matmul(call: Call, a: Value, b: Value) -> Value:
    """A product as numpy's `matmul`: one-dimensional operands are a row and a column."""
    left, right = Tensor.running(a).shape, Tensor.running(b).shape
    if not left or not right:
        raise OnnxError(f"node '{call.name}': a factor of a product has no dimensions")
    x = call.reshaped(a, [1, *left]) if len(left) == 1 else a
    y = call.reshaped(b, [*right, 1]) if len(right) == 1 else b
    z = call.m.matmul(x, y)
    shape = list(Tensor.running(z).shape)
    if len(left) == 1:
        del shape[-2]
    if len(right) == 1:
        del shape[-1]
    return call.reshaped(z, shape)


@operator("MatMul")
def _matmul(call: Call) -> Tensor:
    return call.out(matmul(call, call.value(0), call.value(1)))


@operator("Gemm")
def _gemm(call: Call) -> Tensor:
    m = call.m
    a, b = call.value(0), call.value(1)
    dtype = a.dtype
    a = m.transpose(a) if call.flag("transA") else a
    y = m.matmul(a, b, transpose_rhs=call.flag("transB"))
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    y = m.mul(y, call.scalar(alpha, y)) if alpha != 1.0 else y
    if call.has(2) and beta != 0.0:
        c = call.value(2)
        c = m.mul(c, call.scalar(beta, c)) if beta != 1.0 else c
        y = m.add(y, c)
    return call.out(call.narrowed(y, dtype))


@operator("FusedMatMul", domain=MICROSOFT)
def _fused_matmul(call: Call) -> Tensor:
    m = call.m
    if call.flag("transBatchA") or call.flag("transBatchB"):
        raise Refused("batches that are transposed")
    a, b = call.value(0), call.value(1)
    if call.flag("transA"):
        a = m.transpose(a, [*range(a.ndim - 2), a.ndim - 1, a.ndim - 2])
    y = m.matmul(a, b, transpose_rhs=call.flag("transB"))
    alpha = call.number("alpha", 1.0)
    return call.out(m.mul(y, call.scalar(alpha, y)) if alpha != 1.0 else y)


# Einstein's notation --------------------------------------------------------------------------------


@operator("Einsum")
def _einsum(call: Call) -> Tensor:
    terms, result = _notation(call)
    values = [call.value(number) for number in range(len(call.inputs))]
    rest = list(zip(terms, values, strict=True))
    own, x = _single(call, *rest.pop(0))
    while rest:
        term, value = rest.pop(0)
        other, y = _single(call, term, value)
        needed = set(result).union(*(later for later, _ in rest))
        own, x = _contracted(call, own, x, other, y, needed)
    return call.out(_ordered(call, own, x, result))


def _notation(call: Call) -> tuple[list[str], str]:
    """A word of letters for each operand and for the result; digits stand for what an ellipsis is."""
    equation = call.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(call.inputs):
        raise OnnxError(f"node '{call.name}': {len(call.inputs)} operands, but '{equation[:80]}' has {len(terms)}")
    most = 0
    found = []
    for number, term in enumerate(terms):
        letters = term.replace("...", "")
        if not letters.isalpha() and letters:
            raise OnnxError(f"node '{call.name}': '{term[:80]}' has more than letters and an ellipsis")
        spread = call.rank(number) - len(letters)
        if spread < 0 or (spread and "..." not in term) or spread > 9:
            raise OnnxError(f"node '{call.name}': '{term[:80]}' doesn't fit {call.rank(number)} dimensions")
        most = max(most, spread)
        found.append(term.replace("...", "".join(str(9 - spread + i) for i in range(spread))))
    whole = "".join(str(9 - most + i) for i in range(most))
    if arrow:
        return found, right.replace("...", whole)
    letters = left.replace(",", "").replace("...", "")
    return found, whole + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))


def _single(call: Call, term: str, value: Value) -> tuple[str, Value]:
    """An operand with each letter once: of a letter that stands twice, the diagonal."""
    m = call.m
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            shape = Tensor.running(value).shape
            hit = m.eq(call.iota(shape, first), call.iota(shape, second))
            value = m.sum(m.where(hit, value, m.constant(call.scalar(0, value))), second)
            term = term[:second] + term[second + 1 :]
    return term, value


def _contracted(call: Call, a: str, x: Value, b: str, y: Value, needed: set[str]) -> tuple[str, Value]:
    """The product of two operands, summed over what nobody needs any more."""
    shapes = {
        letter: size for term, v in ((a, x), (b, y)) for letter, size in zip(term, Tensor.running(v).shape, strict=True)
    }
    del shapes
    x, a = _summed(call, x, a, needed | set(b))
    y, b = _summed(call, y, b, needed | set(a))
    x, a, y, b = _without_ones(call, x, a, y, b)
    batch = [letter for letter in a if letter in b and letter in needed]
    over = [letter for letter in a if letter in b and letter not in needed]
    z = call.m.dot_general(
        x,
        y,
        lhs_contracting=[a.index(letter) for letter in over],
        rhs_contracting=[b.index(letter) for letter in over],
        lhs_batch=[a.index(letter) for letter in batch],
        rhs_batch=[b.index(letter) for letter in batch],
    )
    own = [letter for letter in a if letter not in batch + over]
    other = [letter for letter in b if letter not in batch + over]
    return "".join([*batch, *own, *other]), z


def _without_ones(call: Call, x: Value, a: str, y: Value, b: str) -> tuple[Value, str, Value, str]:
    """Both operands without dimensions of 1 that the other one has larger."""

    def kept(value: Value, term: str, other: Sequence[Size], theirs: str) -> tuple[Value, str]:
        shape = Tensor.running(value).shape
        stay = [
            i
            for i, letter in enumerate(term)
            if not (shape[i].constant == 1 and letter in theirs and other[theirs.index(letter)].constant != 1)
        ]
        return call.reshaped(value, [shape[i] for i in stay]), "".join(term[i] for i in stay)

    left, right = Tensor.running(x).shape, Tensor.running(y).shape
    x2, a2 = kept(x, a, right, b)
    y2, b2 = kept(y, b, left, a)
    return x2, a2, y2, b2


def _summed(call: Call, value: Value, term: str, needed: set[str]) -> tuple[Value, str]:
    gone = [i for i, letter in enumerate(term) if letter not in needed]
    if not gone:
        return value, term
    return call.m.sum(value, gone), "".join(letter for letter in term if letter in needed)


def _ordered(call: Call, term: str, value: Value, result: str) -> Value:
    """A value with the dimensions of the result in their order."""
    value, term = _summed(call, value, term, set(result))
    if set(term) != set(result) or len(set(result)) != len(result):
        raise OnnxError(f"node '{call.name}': the result '{result[:80]}' has letters that no operand has")
    order = [term.index(letter) for letter in result]
    return call.m.transpose(value, order) if order != sorted(order) else value


@operator("Det")
def _det(call: Call) -> Tensor:
    """By Laplace's expansion, of matrices of up to 3 rows."""
    m, shape = call.m, call.shape(0)
    size = shape[-1].constant
    if size is None or size > 3 or shape[-2] != shape[-1]:
        raise Refused(f"determinants of matrices of {shape[-2]} x {shape[-1]}, up to 3 x 3 are known")
    x = call.wide(call.value(0))

    def entry(row: int, column: int) -> Value:
        picked = m.narrow(m.narrow(x, -2, row, 1), -1, column, 1)
        return call.reshaped(picked, shape[:-2])

    if size == 1:
        y = entry(0, 0)
    elif size == 2:
        y = entry(0, 0) * entry(1, 1) - entry(0, 1) * entry(1, 0)
    else:
        y = sum_of(
            entry(0, i)
            * (entry(1, (i + 1) % 3) * entry(2, (i + 2) % 3) - entry(1, (i + 2) % 3) * entry(2, (i + 1) % 3))
            for i in range(3)
        )
    return call.out(call.narrowed(y, call.dtype(0)))


def sum_of(values: object) -> Value:
    """The sum of values, one after the other."""
    total: Value | None = None
    for value in values:  # type: ignore[attr-defined]
        total = value if total is None else total + value
    assert total is not None
    return total
