# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recurrences over a sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from mlir.dialects import scf

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    Map,
    SizeLike,
    as_index,
    divided,
    element_type,
    empty,
    extract_slice,
    filled,
    for_each,
    generic,
    plus,
    sizes_of,
    split_dims,
    times,
    write_slice,
)
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator, constant, exp, extract, index, sqrt
from rlx_mlir.rewriting import Rewriter


@reference(mir.GatedDeltaNetOp)
def gated_delta_net(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    beta: np.ndarray,
    state: np.ndarray | None = None,
    *,
    chunk: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The gated delta rule for all batch items and heads at once: ([B, S, H, n], [B, H, n, n]).

    Step by step; with `chunk`, so many steps at a time where no decay of theirs is above one.
    """
    queries, keys, values, decay, strength = (widen(x) for x in (q, k, v, g, beta))
    batch, steps, heads, n = q.shape
    memory = np.zeros((batch, heads, n, n), queries.dtype) if state is None else state.copy()
    result = np.empty_like(queries)
    queries = queries * queries.dtype.type(1 / math.sqrt(n)) if n else queries
    start = 0
    while start < steps:
        part = slice(start, start + (chunk or 1))
        advance = _chunk if chunk and chunk > 1 and np.all(decay[:, part] <= 0) else _steps
        own = (queries[:, part], keys[:, part], values[:, part], decay[:, part], strength[:, part])
        result[:, part], memory = advance(*own, memory)
        start += chunk or 1
    return narrow(result, q.dtype), memory


def _steps(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, beta: np.ndarray, memory: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Results and memory of some steps, one after the other."""
    result = np.empty_like(q)
    for t in range(q.shape[1]):
        memory = memory * np.exp(g[:, t])[..., None, None]
        recalled = np.einsum("bhij,bhi->bhj", memory, k[:, t])
        correction = (v[:, t] - recalled) * beta[:, t, :, None]
        memory = memory + k[:, t, :, :, None] * correction[:, :, None]
        result[:, t] = np.einsum("bhij,bhi->bhj", memory, q[:, t])
    return result, memory


def _chunk(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, beta: np.ndarray, memory: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same by matrix products, where no g is above 0: see `_Chunks`."""
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    a, beta = np.exp(g).transpose(0, 2, 1), beta.transpose(0, 2, 1)
    count = q.shape[2]
    decays = np.zeros((*a.shape, count), a.dtype)  # from step u to step c
    for c in range(count):
        decays[:, :, c, :c] = decays[:, :, c - 1, :c] * a[:, :, c, None]
        decays[:, :, c, c] = 1
    reach = np.cumprod(a, -1)[..., None]
    by_key, by_query = (np.where(decays > 0, decays * (x @ k.swapaxes(-1, -2)), 0) for x in (k, q))
    changes, result = v - reach * (k @ memory), reach * (q @ memory)
    for c in range(count):
        before = np.einsum("bhu,bhuj->bhj", by_key[:, :, c, :c], changes[:, :, :c])
        changes[:, :, c] = beta[:, :, c, None] * (changes[:, :, c] - before)
        # Row by row: 0 times the NaN of a later step would be NaN.
        result[:, :, c] += np.einsum("bhu,bhuj->bhj", by_query[:, :, c, : c + 1], changes[:, :, : c + 1])
    faded = k * decays[:, :, -1, :, None]
    return result.transpose(0, 2, 1, 3), reach[:, :, -1:] * memory + faded.swapaxes(-1, -2) @ changes


@cost(mir.GatedDeltaNetOp)
def gated_delta_net_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Decay, product with k, outer product with the correction, product with q: 7 n for each element of `v`."""
    return Cost(7 * sizes[op.v][-1] * sizes.count(op.v))


@dim_rule(mir.GatedDeltaNetOp)
def gated_delta_net_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """Those of q; [B, H, n, n], or those of the state that is given."""
    batch, _, heads, n = operands[0]
    return [operands[0], (batch, heads, n, n) if op.state is None else operands[5]]


@TO_LINALG.pattern(mir.GatedDeltaNetOp)
def lower_gated_delta_net(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """gated_delta_net -> scf.for over time, of the memory M, which is changed in place, and the result

    a = e^g; d[j] = beta (v[j] - a sum_i k[i] M[i, j]); M[i, j] = a M[i, j] + k[i] d[j]; o[j] = sum_i q[i] M[i, j] / √n
    """
    batch, steps, heads, n = sizes_of(op.q)
    narrow_type = element_type(op.q)
    wide = accumulator(narrow_type)
    memory_sizes, row_sizes = [batch, heads, n, n], [batch, heads, n]
    b, h, i, j = range(4)
    cell, by_key, by_value, gate = [b, h, i, j], [b, h, i], [b, h, j], [b, h]

    if op.state is None:
        start = filled(memory_sizes, wide, 0)
    else:
        start = generic(4, [(op.state, cell)], [(empty(memory_sizes, wide), cell)], lambda state, _: state)
    if 0 in (batch, steps, heads, n):  # a slice of nothing may not start at the end
        rewriter.replace(op, empty(sizes_of(op.q), narrow_type), start)
        return
    if op.chunk is not None and (chunk := int(python_value(op.chunk))) > 1:
        rewriter.replace(op, *_Chunks(op, chunk).run(start))
        return
    # Made outside of the loop, so that no step allocates.
    correction, answer, decay = empty(row_sizes, wide), empty(row_sizes, wide), empty([batch, heads], wide)
    scale = _reciprocal_root(n, wide)

    def rows(destination: ir.Value, memory: ir.Value, factors: ir.Value) -> ir.Value:
        """sum_i factors[i] M[i, j], written into the destination."""
        zeros = generic(3, [], [(destination, [0, 1, 2])], lambda _: constant(wide, 0))
        return generic(
            4,
            [(memory, cell), (factors, by_key)],
            [(zeros, by_value)],
            lambda m, factor, total: total + m * factor.widen(),
            reduction=[i],
        )

    def step(t: ir.Value, memory: ir.Value, result: ir.Value) -> list[ir.Value]:
        q, k, v = (extract_slice(x, [0, t, 0, 0], [batch, 1, heads, n], drop=[1]) for x in (op.q, op.k, op.v))
        g, beta = (extract_slice(x, [0, t, 0], [batch, 1, heads], drop=[1]) for x in (op.g, op.beta))
        a = generic(2, [(g, [0, 1])], [(decay, [0, 1])], lambda g, _: exp(g.widen()))
        d = generic(
            3,
            [(v, [0, 1, 2]), (a, [0, 1]), (beta, [0, 1])],
            [(rows(correction, memory, k), [0, 1, 2])],
            lambda v, a, beta, recalled: beta.widen() * (v.widen() - a * recalled),
        )
        operands = [(k, by_key), (d, by_value), (a, gate)]
        memory = generic(4, operands, [(memory, cell)], lambda k, d, a, m: a * m + k.widen() * d)
        o = rows(answer, memory, q)
        written = write_slice(
            o, result, [0, t, 0, 0], [batch, 1, heads, n], drop=[1], body=lambda x: (x * scale).to(narrow_type)
        )
        return [memory, written]

    memory, result = for_each(0, steps, [start, empty(sizes_of(op.q), narrow_type)], step)
    rewriter.replace(op, result, memory)


def _reciprocal_root(size: SizeLike, type: ir.Type) -> Scalar:
    """1 / sqrt(size)"""
    if isinstance(size, int):
        return constant(type, 1 / math.sqrt(size) if size else 1)
    return 1 / sqrt(Scalar(as_index(size)).to(type))


#: Rows of a factor that the innermost loop of a product takes at once, where they divide its length.
ROWS = (4, 2, 1)


class _Chunks:
    """gated_delta_net -> scf.for over batch items, heads and chunks of steps

    With a_t = e^g_t, D[c, u] = a_(u+1) ... a_c, and M the memory before the chunk (WY form, its triangular system
    solved by substitution):

        d_c = beta_c (v_c - D[c, -1] k_c M - sum_(u < c) D[c, u] (k_c . k_u) d_u)
        o_c = D[c, -1] q_c M + sum_(u <= c) D[c, u] (q_c . k_u) d_u
        M = D[last, -1] M + sum_c D[last, c] k_c d_c^T

    Products k M, q M, k k^T, q k^T, (D q k^T) d and k^T d are of matrices. Decays are products of numbers up to one: a
    chunk where a g is above 0 or NaN, or with fewer steps, goes step by step.
    """

    def __init__(self, op: ir.AnyOp, count: int) -> None:
        self._op, self._count = op, count
        self._batch, self._steps, self._heads, self._n = sizes_of(op.q)
        self._narrow = element_type(op.q)
        self._wide = accumulator(self._narrow)
        self._scale = _reciprocal_root(self._n, self._wide)

    def _make_room(self) -> None:
        """Temporaries of one head, so that no chunk allocates. Each is memory of its own: LLVM gives up on loops
        that write to one part of a kernel's scratch and read another."""
        count = self._count
        rows = [count, self._n]
        names = ("keys", "queries", "changes", "recalled", "asked")
        self._rows = {name: empty(rows, self._wide) for name in names}
        self._tables = {name: empty([count, count], self._wide) for name in ("by_key", "by_query")}
        self._turned = empty([self._n, count], self._wide)
        self._weights = [empty([1, count], self._wide) for _ in range(2)]
        self._vectors = {name: empty([count], self._wide) for name in ("decay", "reach", "fade")}
        self._lines = {name: empty([1, self._n], self._wide) for name in ("key", "query", "change", "answer")}
        self._numbers = {name: empty([], self._wide) for name in ("decay", "above")}

    def run(self, start: ir.Value) -> list[ir.Value]:
        """The result and the memory after the last step, from that before the first one."""
        result = empty(sizes_of(self._op.q), self._narrow)

        def head(b: ir.Value, h: ir.Value, memory: ir.Value, result: ir.Value) -> list[ir.Value]:
            self._make_room()
            place: list[SizeLike] = [b, h, 0, 0]
            sizes: list[SizeLike] = [1, 1, self._n, self._n]
            own = extract_slice(memory, place, sizes, drop=[0, 1])
            chunks = divided(plus(self._steps, self._count - 1), self._count)
            own, result = for_each(0, chunks, [own, result], lambda c, *now: self._advance(b, h, c, *now))
            return [write_slice(own, memory, place, sizes, drop=[0, 1]), result]

        def item(b: ir.Value, *now: ir.Value) -> list[ir.Value]:
            return for_each(0, self._heads, list(now), lambda h, *now: head(b, h, *now))

        memory, result = for_each(0, self._batch, [start, result], item)
        return [result, memory]

    def _advance(self, b: ir.Value, h: ir.Value, c: ir.Value, memory: ir.Value, result: ir.Value) -> list[ir.Value]:
        """One chunk of one head, whole or not."""
        t = times(c, self._count)
        rest = Scalar(as_index(self._steps)) - Scalar(as_index(t))
        is_whole = rest >= self._count
        branch = scf.IfOp(is_whole.value, [memory.type, result.type], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            g = extract_slice(self._op.g, [b, t, h], [1, self._count, 1], drop=[0, 2])
            zero = generic(0, [], [(self._numbers["above"], [])], lambda _: constant(self._wide, 0))
            above = generic(
                1,
                [(g, [0])],
                [(zero, [])],
                lambda g, total: total + (g.widen() <= 0).select(total.like(0), total.like(1)),
                reduction=[0],
            )
            none = extract(above, []).compare("eq", 0)
            inner = scf.IfOp(none.value, [memory.type, result.type], has_else=True)
            with ir.InsertionPoint(inner.then_block):
                scf.YieldOp(self._chunk(b, h, t, memory, result))
            with ir.InsertionPoint(inner.else_block):
                scf.YieldOp(self._one_by_one(b, h, t, self._count, memory, result))
            scf.YieldOp(list(inner.results))
        with ir.InsertionPoint(branch.else_block):
            scf.YieldOp(self._one_by_one(b, h, t, rest.value, memory, result))
        return list(branch.results)

    # Products -------------------------------------------------------------------------------------

    def _product(self, lhs: ir.Value, rhs: ir.Value, total: ir.Value, *, transposed: bool = False) -> ir.Value:
        """total + lhs rhs, or lhs^T rhs: the innermost loop runs along a row, and takes up to 4 rows of rhs at once."""
        length = sizes_of(rhs)[0]
        rows = next(r for r in ROWS if r == 1 or (isinstance(length, int) and length % r == 0))
        outer, i, j = range(3)
        groups, sizes = ([[0, 1], [2]], [divided(length, rows), rows, sizes_of(lhs)[1]])
        if not transposed:
            groups, sizes = [[0], [1, 2]], [sizes_of(lhs)[0], divided(length, rows), rows]
        left, step = split_dims(lhs, groups, sizes), ir.AffineDimExpr.get(i)
        operands: list[tuple[ir.Value, Map]] = []
        for r in range(rows):
            at = ir.AffineConstantExpr.get(r)
            operands.append((left, [i, at, outer] if transposed else [outer, i, at]))
            operands.append((rhs, [ir.AffineExpr.get_add(ir.AffineExpr.get_mul(step, rows), at), j]))

        def body(*scalars: Scalar) -> Scalar:
            *factors, total = scalars
            for x, y in zip(factors[::2], factors[1::2], strict=True):
                total = total + x * y
            return total

        return generic(3, operands, [(total, [outer, j])], body, reduction=[i])

    def _zeros(self, destination: ir.Value) -> ir.Value:
        loops = list(range(len(sizes_of(destination))))
        return generic(len(loops), [], [(destination, loops)], lambda _: constant(self._wide, 0))

    # Chunks ---------------------------------------------------------------------------------------

    def _chunk(self, b: ir.Value, h: ir.Value, t: SizeLike, memory: ir.Value, result: ir.Value) -> list[ir.Value]:
        """The chunk from step t on, whose decays aren't above one."""
        op, count, n, scale = self._op, self._count, self._n, self._scale
        place = ([b, t, h, 0], [1, count, 1, n])
        k, q, v = (extract_slice(x, *place, drop=[0, 2]) for x in (op.k, op.q, op.v))
        g, beta = (extract_slice(x, [b, t, h], [1, count, 1], drop=[0, 2]) for x in (op.g, op.beta))
        c, j = range(2)
        keys = generic(2, [(k, [c, j])], [(self._rows["keys"], [c, j])], lambda k, _: k.widen())
        queries = generic(2, [(q, [c, j])], [(self._rows["queries"], [c, j])], lambda q, _: q.widen() * scale)
        decay = generic(1, [(g, [c])], [(self._vectors["decay"], [c])], lambda g, _: exp(g.widen()))
        ones = generic(1, [], [(self._vectors["reach"], [c])], lambda _: constant(self._wide, 1))
        reach = generic(
            2,
            [(decay, [1])],
            [(ones, [0])],
            lambda a, total: total * (index(1) <= index(0)).select(a, a.like(1)),
            reduction=[1],
        )

        # Turned, so that the innermost loop doesn't accumulate in memory, which LLVM can't take for a register.
        turned = generic(2, [(k, [c, j])], [(self._turned, [j, c])], lambda k, _: k.widen())
        by_key = self._product(keys, turned, self._zeros(self._tables["by_key"]))
        by_query = self._product(queries, turned, self._zeros(self._tables["by_query"]))
        recalled = self._product(keys, memory, self._zeros(self._rows["recalled"]))
        wanted = generic(
            2,
            [(v, [c, j]), (reach, [c]), (beta, [c])],
            [(recalled, [c, j])],
            lambda v, reach, beta, m: beta.widen() * (v.widen() - reach * m),
        )

        asked = self._product(queries, memory, self._zeros(self._rows["asked"]))
        reached = generic(2, [(reach, [c])], [(asked, [c, j])], lambda reach, m: reach * m)

        def substitute(c: ir.Value, changes: ir.Value, answers: ir.Value, fade: ir.Value) -> list[ir.Value]:
            """Row c of the changes and of the answers; later changes are zeros still, not what may be NaN."""
            own = Scalar(c)
            a, strength = (extract_slice(y, [c], [1], drop=[0]) for y in (decay, beta))
            fade = generic(
                1, [(a, [])], [(fade, [0])], lambda a, f: index(0).compare("eq", own).select(a.like(1), a * f)
            )
            row = extract_slice(by_key, [c, 0], [1, count])
            weights = generic(
                2,
                [(row, [0, 1]), (fade, [1]), (strength, [])],
                [(self._weights[0], [0, 1])],
                lambda x, f, s, _: (index(1) < own).select(-(s.widen() * f * x), x.like(0)),
            )
            line = extract_slice(wanted, [c, 0], [1, n])
            copied = generic(2, [(line, [0, 1])], [(self._lines["change"], [0, 1])], lambda x, _: x)
            change = self._product(weights, changes, copied)
            changes = write_slice(change, changes, [c, 0], [1, n])
            row = extract_slice(by_query, [c, 0], [1, count])
            decayed = generic(
                2,
                [(row, [0, 1]), (fade, [1])],
                [(self._weights[1], [0, 1])],
                lambda x, f, _: (index(1) <= own).select(f * x, x.like(0)),
            )
            line = extract_slice(answers, [c, 0], [1, n])
            answer = self._product(decayed, changes, line)
            return [changes, write_slice(answer, answers, [c, 0], [1, n]), fade]

        start = [self._zeros(self._rows["changes"]), reached, self._zeros(self._vectors["fade"])]
        changes, answers, fade = for_each(0, count, start, substitute)
        faded = generic(2, [(fade, [c])], [(keys, [c, j])], lambda f, k: f * k)
        last = extract_slice(reach, [count - 1], [1], drop=[0])
        memory = generic(2, [(last, [])], [(memory, [c, j])], lambda a, m: a * m)
        memory = self._product(faded, changes, memory, transposed=True)
        narrow = self._narrow
        return [memory, write_slice(answers, result, *place, drop=[0, 2], body=lambda x: x.to(narrow))]

    # Steps ----------------------------------------------------------------------------------------

    def _one_by_one(
        self, b: ir.Value, h: ir.Value, t: SizeLike, count: SizeLike, memory: ir.Value, result: ir.Value
    ) -> list[ir.Value]:
        """`count` steps from t on, with decays of any size."""
        op, n, scale, narrow = self._op, self._n, self._scale, self._narrow

        def step(c: ir.Value, memory: ir.Value, result: ir.Value) -> list[ir.Value]:
            place = ([b, plus(t, c), h, 0], [1, 1, 1, n])
            k, q, v = (extract_slice(x, *place, drop=[0, 2]) for x in (op.k, op.q, op.v))
            g, beta = (extract_slice(x, place[0][:-1], [1, 1, 1], drop=[0, 1, 2]) for x in (op.g, op.beta))
            key = generic(2, [(k, [0, 1])], [(self._lines["key"], [0, 1])], lambda k, _: k.widen())
            query = generic(2, [(q, [0, 1])], [(self._lines["query"], [0, 1])], lambda q, _: q.widen() * scale)
            a = generic(0, [(g, [])], [(self._numbers["decay"], [])], lambda g, _: exp(g.widen()))
            memory = generic(2, [(a, [])], [(memory, [0, 1])], lambda a, m: a * m)
            change = generic(
                2,
                [(v, [0, 1]), (beta, [])],
                [(self._product(key, memory, self._zeros(self._lines["change"])), [0, 1])],
                lambda v, beta, recalled: beta.widen() * (v.widen() - recalled),
            )
            memory = self._product(key, change, memory, transposed=True)
            answer = self._product(query, memory, self._zeros(self._lines["answer"]))
            return [memory, write_slice(answer, result, *place, drop=[0, 2], body=lambda x: x.to(narrow))]

        return for_each(0, count, [memory, result], step)
