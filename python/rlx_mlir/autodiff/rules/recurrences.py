# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recurrences, which are differentiated as the scans that they are: in time and memory in proportion to the steps."""

from __future__ import annotations

from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import parts
from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import narrow, wide
from rlx_mlir.hir.values import Value


def _steps_first(m: Builders, x: Value) -> Value:
    """[B, S, ...] as [S, B, ...]"""
    return m.transpose(x, [1, 0, *range(2, x.ndim)])


@parts(mir.SelectiveScanOp)
def selective_scan(
    m: Builders, x: Value, delta: Value, a: Value, b: Value, c: Value, state: Value | None = None
) -> tuple[Value, Value]:
    """A scan whose steps are H = exp(delta a) H + delta b x, and the sum of c H"""
    inputs, steps, decay, into, out = wide(m, x, delta, a, b, c)
    batch, channels, count = m.sizes_of(x)[0], *m.sizes_of(a)
    zero = m.constant(0.0, inputs.dtype)
    start = m.expand(zero, [batch, channels, count]) if state is None else state

    def step(memory: Value, own: Value, length: Value, entry: Value, read: Value) -> tuple[Value, Value]:
        time = m.reshape(length, [batch, channels, 1])
        added = m.mul(m.mul(time, m.reshape(own, [batch, channels, 1])), m.reshape(entry, [batch, 1, count]))
        memory = m.add(m.mul(m.exp(m.mul(time, decay)), memory), added)
        return memory, m.sum(m.mul(memory, m.reshape(read, [batch, 1, count])), 2)

    sequences = tuple(_steps_first(m, each) for each in (inputs, steps, into, out))
    last, found = m.scan(step, start, sequences)
    return narrow(m, _steps_first(m, found), x), last


@parts(mir.GatedDeltaNetOp)
def gated_delta_net(
    m: Builders,
    q: Value,
    k: Value,
    v: Value,
    g: Value,
    beta: Value,
    state: Value | None = None,
    *,
    chunk: int | None = None,
) -> tuple[Value, Value]:
    """A scan whose steps decay the memory, correct it, and read it"""
    queries, keys, values, decay, strength = wide(m, q, k, v, g, beta)
    batch, _, heads, n = m.sizes_of(q)
    zero = m.constant(0.0, queries.dtype)
    start = m.expand(zero, [batch, heads, n, n]) if state is None else state
    queries = m.div(queries, m.sqrt(m.dim(q, 3, queries.dtype)))

    def step(memory: Value, query: Value, key: Value, value: Value, own: Value, rate: Value) -> tuple[Value, Value]:
        def column(x: Value) -> Value:
            return m.reshape(x, [batch, heads, n, 1])

        def row(x: Value) -> Value:
            return m.reshape(x, [batch, heads, 1, n])

        memory = m.mul(memory, m.exp(m.reshape(own, [batch, heads, 1, 1])))
        recalled = m.sum(m.mul(memory, column(key)), 2)
        change = m.mul(m.sub(value, recalled), m.reshape(rate, [batch, heads, 1]))
        memory = m.add(memory, m.mul(column(key), row(change)))
        return memory, m.sum(m.mul(memory, column(query)), 2)

    sequences = tuple(_steps_first(m, each) for each in (queries, keys, values, decay, strength))
    last, found = m.scan(step, start, sequences)
    return narrow(m, _steps_first(m, found), q), last
