# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random bits by counters, the same as XLA's: Philox 4x32 with 10 rounds, and Threefry 2x32 with 20.

The state is two numbers of 64 bits, a key and a counter, which goes on by as many blocks as were made. Words of 32 bits
are computed with as i64 here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlx_mlir.frontends import functions
from rlx_mlir.hir import GraphModule, Value

from ..call import Call, Results
from ..registry import Refused, operator

_BASE = 1 << 32
_LOW = np.int64(_BASE - 1)
#: What Philox multiplies by, and what its key grows by in each round.
_FACTORS, _STEPS, _PHILOX_ROUNDS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10
#: What Threefry's key is completed with, and by how many places it rotates: four rounds each, one after the other.
_PARITY, _ROTATIONS, _GROUPS = 0x1BD11BDA, ((13, 15, 26, 6), (17, 29, 16, 24)), 5


@operator("rng_bit_generator")
def _rng_bit_generator(call: Call) -> Results:
    shape, kind = call.result_shape(1), call.word("rng_algorithm", "DEFAULT")
    state = call.value(0)
    if state.dtype != np.int64 or tuple(state.shape) != (2,):
        raise Refused(f"a state of {state.dtype} {list(state.shape)}")
    dtype = call.result_dtype(1)
    if dtype.kind not in "iu" or any(size < 0 for size in shape):
        raise Refused(f"random bits of {call.op.results[1].type}")
    words = _Words(call.m)
    key, counter = (call.reshaped(call.m.narrow(state, 0, at, 1), []) for at in range(2))
    is_long = dtype.itemsize == 8
    made = _threefry if kind == "THREE_FRY" else _philox
    low, high, count = made(words, key, counter, shape, is_long=is_long)
    if high is not None:
        bits = call.cast(call.m.add(low, call.m.mul(high, np.int64(_BASE))), dtype)
    else:
        bits = functions.wrapped(call.m, low, dtype)
    following = call.m.add(counter, np.int64(count))
    rows = [call.reshaped(own, [1]) for own in (key, following)]
    return [call.m.concat(rows, 0), call.reshaped(bits, shape)]


class _Words:
    """Arithmetic of words of 32 bits, in i64."""

    def __init__(self, m: GraphModule) -> None:
        self.m = m

    def low(self, x: Value) -> Value:
        """The low word."""
        return self.m.bitwise_and(x, _LOW)

    def high(self, x: Value) -> Value:
        """The high word."""
        return self.low(self.m.floor_div(x, np.int64(_BASE)))

    def parts(self, x: Value) -> list[Value]:
        """Both."""
        return [self.low(x), self.high(x)]

    def sum(self, x: Value, y: Value | int) -> Value:
        """x + y, without what is beyond a word."""
        return self.low(self.m.add(x, y if isinstance(y, Value) else np.int64(y)))

    def xor(self, *values: Value) -> Value:
        """All of them, joined by exclusive or."""
        found = values[0]
        for value in values[1:]:
            found = self.m.bitwise_xor(found, value)
        return found

    def rotated(self, x: Value, by: int) -> Value:
        """x with its bits moved up, those at the end to the start."""
        up = self.low(self.m.mul(x, np.int64(1 << by)))
        return self.m.bitwise_or(up, self.m.floor_div(x, np.int64(1 << (32 - by))))

    def counted(self, start: Sequence[Value], count: int) -> list[Value]:
        """Words of `start`, `start` + 1, …: so many numbers, the lowest word first; what is beyond the last is lost."""
        carried, found = self.m.iota([count], 0, "i64"), []
        for word in start:
            total = self.m.add(word, carried)
            carried = self.high(total)
            found.append(self.low(total))
        return found


def _philox(
    words: _Words, key: Value, counter: Value, shape: Sequence[int], *, is_long: bool
) -> tuple[Value, Value | None, int]:
    """Low words of as many numbers as a shape has, in its order, their high words where they are long, and of blocks
    how many it took."""
    m, number = words.m, math.prod(shape)
    blocks = -(-number // (2 if is_long else 4))
    keys = words.parts(key)
    state = words.counted([*words.parts(counter), *keys], blocks)
    for _ in range(_PHILOX_ROUNDS):
        products = [m.mul(own, np.int64(factor)) for own, factor in zip(state[::2], _FACTORS, strict=True)]
        first, second = products
        state = [
            words.xor(words.high(second), state[1], keys[0]),
            words.low(second),
            words.xor(words.high(first), state[3], keys[1]),
            words.low(first),
        ]
        keys = [words.sum(own, step) for own, step in zip(keys, _STEPS, strict=True)]
    if is_long:
        return _woven(m, state[::2], number), _woven(m, state[1::2], number), blocks
    return _woven(m, state, number), None, blocks


def _woven(m: GraphModule, parts: Sequence[Value], number: int) -> Value:
    """The first elements of all parts, then the second ones, …: so many."""
    size = parts[0].shape[0]
    rows = m.concat([m.reshape(part, [size, 1]) for part in parts], 1)
    return m.narrow(m.reshape(rows, [size * len(parts)]), 0, 0, number)


def _threefry(
    words: _Words, key: Value, counter: Value, shape: Sequence[int], *, is_long: bool
) -> tuple[Value, Value | None, int]:
    """As `_philox`. A block is the two words of a long number, or of two numbers that stand side by side."""
    m, axis = words.m, _halved(shape)
    half = list(shape)
    if not is_long and half:
        half[axis] = -(-half[axis] // 2)
    count = math.prod(half)
    keys = words.parts(key)
    keys.append(words.xor(*keys, m.constant(np.int64(_PARITY))))
    a, b = words.counted(words.parts(counter), count)
    a, b = words.sum(a, keys[0]), words.sum(b, keys[1])
    for group in range(_GROUPS):
        for by in _ROTATIONS[group % 2]:
            a = words.sum(a, b)
            b = words.xor(words.rotated(b, by), a)
        a = words.sum(a, keys[(group + 1) % 3])
        b = words.sum(words.sum(b, keys[(group + 2) % 3]), group + 1)
    if is_long:
        return a, b, count
    if not half:
        return a, None, count
    pair = [*half[: axis + 1], 1, *half[axis + 1 :]]
    joined = m.concat([m.reshape(own, pair) for own in (a, b)], axis + 1)
    joined = m.reshape(joined, [*half[:axis], 2 * half[axis], *half[axis + 1 :]])
    return m.narrow(joined, axis, 0, shape[axis]), None, count


def _halved(shape: Sequence[int]) -> int:
    """The dimension along which blocks give two numbers: the first even one, or else the first of the largest."""
    even = [axis for axis, size in enumerate(shape) if size % 2 == 0]
    return even[0] if even else max(range(len(shape)), key=lambda axis: shape[axis], default=0)
