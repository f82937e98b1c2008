# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recurrent networks: RNN, GRU and LSTM, as scans along the sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

from ..call import Call
from ..registry import Refused, operator

#: Functions of cells, by their names in files.
_FUNCTIONS = {"Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu"}

#: The state after a step: of the projected input, the state before, and the recurrent weight and bias.
_Cell = Callable[[Call, Value, Sequence[Value], "_Weights"], tuple[Value, ...]]


class _Weights:
    """The weights of one direction.

    Attributes:
        r: [gates * H, H], for the state.
        rb: [gates * H], added to its products; None where there is none.
        p: [3 * H], for peepholes; None where there is none.
        functions: of the gates, by our names.
        hidden: H.
    """

    def __init__(self, call: Call, direction: int, gates: int, functions: Sequence[str]) -> None:
        self.hidden = call.integer("hidden_size", 0) or (call.shape(2)[2].constant or 0)
        self.functions = functions
        self.w, self.r = (_of(call, number, direction) for number in (1, 2))
        self.wb = self.rb = self.p = None
        if call.has(3):
            bias, count = _of(call, 3, direction), gates * self.hidden
            self.wb, self.rb = call.m.narrow(bias, 0, 0, count), call.m.narrow(bias, 0, count, count)
        if call.op == "LSTM" and call.has(7):
            self.p = _of(call, 7, direction)


def _of(call: Call, number: int, direction: int) -> Value:
    """What an operand has for one direction."""
    value = call.value(number)
    return call.reshaped(call.m.narrow(value, 0, direction, 1), Tensor.running(value).shape[1:])


def _gate(call: Call, x: Value, number: int, hidden: int) -> Value:
    return call.m.narrow(x, -1, number * hidden, hidden)


def _rnn(call: Call, x: Value, state: Sequence[Value], own: _Weights) -> tuple[Value, ...]:
    m = call.m
    y = m.add(x, m.matmul(state[0], own.r, transpose_rhs=True))
    return (m.activation(own.functions[0], y if own.rb is None else m.add(y, own.rb)),)


def _gru(call: Call, x: Value, state: Sequence[Value], own: _Weights) -> tuple[Value, ...]:
    """Gates are z, r, h in this order."""
    m, n, (h,) = call.m, own.hidden, state
    of_state = [m.matmul(h, m.narrow(own.r, 0, i * n, n), transpose_rhs=True) for i in range(2)]
    bias = [None if own.rb is None else m.narrow(own.rb, 0, i * n, n) for i in range(3)]
    update, reset = (
        m.activation(own.functions[0], _plus(call, m.add(_gate(call, x, i, n), of_state[i]), bias[i])) for i in range(2)
    )
    weight = m.narrow(own.r, 0, 2 * n, n)
    if call.flag("linear_before_reset"):
        inner = m.mul(reset, _plus(call, m.matmul(h, weight, transpose_rhs=True), bias[2]))
    else:
        inner = _plus(call, m.matmul(m.mul(reset, h), weight, transpose_rhs=True), bias[2])
    new = m.activation(own.functions[1], m.add(_gate(call, x, 2, n), inner))
    return (m.add(m.mul(m.sub(call.scalar(1, update), update), new), m.mul(update, h)),)


def _plus(call: Call, x: Value, bias: Value | None) -> Value:
    return x if bias is None else call.m.add(x, bias)


def _lstm(call: Call, x: Value, state: Sequence[Value], own: _Weights) -> tuple[Value, ...]:
    """Gates are i, o, f, c in this order, weights of peepholes i, o, f."""
    m, n, (h, c) = call.m, own.hidden, state
    whole = m.add(x, m.matmul(h, own.r, transpose_rhs=True))
    whole = whole if own.rb is None else m.add(whole, own.rb)
    i, o, f, new = (_gate(call, whole, number, n) for number in range(4))
    if own.p is not None:
        i, f = (m.add(gate, m.mul(m.narrow(own.p, 0, at * n, n), c)) for gate, at in ((i, 0), (f, 2)))
    i, f = m.activation(own.functions[0], i), m.activation(own.functions[0], f)
    cell = m.add(m.mul(f, c), m.mul(i, m.activation(own.functions[1], new)))
    o = o if own.p is None else m.add(o, m.mul(m.narrow(own.p, 0, n, n), cell))
    return m.mul(m.activation(own.functions[0], o), m.activation(own.functions[2], cell)), cell


#: Cell, number of gates, functions that it has unless the node says others, and number of states.
_CELLS: dict[str, tuple[_Cell, int, tuple[str, ...], int]] = {
    "RNN": (_rnn, 1, ("Tanh",), 1),
    "GRU": (_gru, 3, ("Sigmoid", "Tanh"), 1),
    "LSTM": (_lstm, 4, ("Sigmoid", "Tanh", "Tanh"), 2),
}


def _functions(call: Call, count: int, default: Sequence[str]) -> list[list[str]]:
    """The functions of each direction, by our names."""
    given = call.attributes.get("activations")
    words = [word.decode(errors="replace") for word in given] if given else list(default) * count
    unknown = [word for word in words if word not in _FUNCTIONS]
    if unknown:
        raise Refused(f"cells with {', '.join(sorted(set(unknown)))}")
    if len(words) != count * len(default):
        raise OnnxError(f"node '{call.name}': {count * len(default)} functions are needed, but there are {len(words)}")
    return [[_FUNCTIONS[word] for word in words[i::1][: len(default)]] for i in range(0, len(words), len(default))]


@operator("RNN", "GRU", "LSTM")
def _recurrent(call: Call) -> list[Tensor]:
    m = call.m
    cell, gates, default, states = _CELLS[call.op]
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    backwards = directions[call.choice("direction", "forward", tuple(directions))]
    if call.maybe_float("clip") is not None or call.flag("input_forget"):
        raise Refused("cells with 'clip' or 'input_forget'")
    if call.has(4) and not _are_whole(call):
        raise Refused("sequences of lengths of their own")
    batch_first = call.flag("layout")
    x = m.transpose(call.value(0), [1, 0, 2]) if batch_first else call.value(0)
    functions = _functions(call, len(backwards), default)
    stacked, last = [], []
    for number, back in enumerate(backwards):
        own = _Weights(call, number, gates, functions[number])
        ys, ends = _along(call, x, number, back, cell, own, states, batch_first)
        stacked.append(ys)
        last.append(ends)
    return _results(call, stacked, last, batch_first)


def _are_whole(call: Call) -> bool:
    """Whether the lengths of the sequences are known, and that of all of them."""
    numbers = call.tensor(4).numbers
    length = call.shape(0)[1 if call.flag("layout") else 0].constant
    return numbers is not None and length is not None and bool(np.all(numbers == length))


def _along(
    call: Call, x: Value, number: int, back: bool, cell: _Cell, own: _Weights, states: int, batch_first: bool
) -> tuple[Value, tuple[Value, ...]]:
    """All states [T, B, H] of one direction, and the last ones."""
    m = call.m
    projected = _plus(call, m.matmul(x, own.w, transpose_rhs=True), own.wb)
    batch = Tensor.running(x).shape[1]
    inits = []
    for place in range(states):
        if call.has(5 + place):
            given = call.value(5 + place)
            given = m.transpose(given, [1, 0, 2]) if batch_first else given
            inits.append(call.reshaped(m.narrow(given, 0, number, 1), [batch, own.hidden]))
        else:
            inits.append(call.filled(0, [batch, own.hidden], x.dtype))

    def step(*values: Value) -> tuple[tuple[Value, ...], Value]:
        with call.importer.region():
            found = cell(call, values[-1], values[:-1], own)
        return found, found[0]

    ends, ys = m.scan(step, tuple(inits), projected, reverse=back)
    return ys, ends


def _results(
    call: Call, stacked: Sequence[Value], last: Sequence[tuple[Value, ...]], batch_first: bool
) -> list[Tensor]:
    """States of all steps [T, directions, B, H], and the last ones [directions, B, H]; or with B first."""
    m = call.m

    def joined(values: Sequence[Value], axis: int) -> Value:
        rows = []
        for value in values:
            shape = list(Tensor.running(value).shape)
            shape.insert(axis, Size.of(1))
            rows.append(call.reshaped(value, shape))
        return m.concat(rows, axis) if len(rows) > 1 else rows[0]

    y = joined(stacked, 1)
    found = [m.transpose(y, [2, 0, 1, 3]) if batch_first else y]
    for place in range(len(last[0])):
        end = joined([ends[place] for ends in last], 0)
        found.append(m.transpose(end, [1, 0, 2]) if batch_first else end)
    return [call.out(value) for value in found]
