# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nodes with graphs in them: choices, loops, scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends.tensors import Several, Tensor, Thing
from rlx_mlir.hir import Value

from ..call import Call
from ..registry import Refused, operator

if TYPE_CHECKING:
    import onnx


#: Steps of a loop that are built one by one where their number is known: then shapes may change from step to step.
MOST_UNROLLED = 64


def _graph(call: Call, name: str) -> onnx.GraphProto:
    """A graph that is an attribute."""
    found = call.attributes.get(name)
    if found is None or not hasattr(found, "node"):
        raise OnnxError(f"node '{call.name}' ({call.op}) needs a graph '{name}'")
    graph: onnx.GraphProto = found
    return graph


def _values(call: Call, things: Sequence[Thing]) -> list[Value]:
    """Results of a graph as values."""
    found = []
    for thing in things:
        if isinstance(thing, Several):
            raise Refused("a sequence that leaves a choice or a loop of calls")
        found.append(call.importer.value(thing))
    return found


def _truth(call: Call, tensor: Tensor) -> Value:
    """A condition as one i1 without dimensions."""
    value = call.importer.value(tensor)
    return call.reshaped(value, [])


@operator("If")
def _if(call: Call) -> list[Thing]:
    condition = call.tensor(0)
    known = condition.numbers
    if known is not None:
        if known.size != 1:
            raise OnnxError(f"node '{call.name}': a condition is one element, but has {known.size}")
        return call.importer.inner(_graph(call, "then_branch" if known.reshape(-1)[0] else "else_branch"), [])
    branches = [_graph(call, name) for name in ("then_branch", "else_branch")]

    def branch(graph: onnx.GraphProto) -> Callable[[], tuple[Value, ...]]:
        def build() -> tuple[Value, ...]:
            with call.importer.region():
                return tuple(_values(call, call.importer.inner(graph, [])))

        return build

    found = call.m.cond(_truth(call, condition), branch(branches[0]), branch(branches[1]))
    return [call.out(value) for value in (found if isinstance(found, tuple) else (found,))]


# Loops ----------------------------------------------------------------------------------------------


@operator("Loop")
def _loop(call: Call) -> list[Thing]:
    body = _graph(call, "body")
    carried = [_present(call, thing) for thing in call.inputs[2:]]
    if len(body.input) != len(carried) + 2 or len(body.output) < len(carried) + 1:
        raise OnnxError(f"node '{call.name}': a body of {len(body.input)} inputs and {len(body.output)} outputs")
    trips, go_on = call.maybe(0), call.maybe(1)
    count = _known_number(trips)
    start = True if go_on is None else _known_number(go_on)
    if start is not None and not start:
        count = 0
    if count is not None and start is not None and count <= MOST_UNROLLED:
        found = _unrolled(call, body, carried, int(count))
        if found is not None:
            return found
    if len(body.output) > len(carried) + 1:
        for number, what in ((0, "the number of steps"), (1, "the condition")):
            if call.has(number):
                call.known(number, what)
        raise Refused("a loop that stacks results, and whose number of steps calls decide, or is large")
    return _while(call, body, carried, trips, go_on)


def _present(call: Call, thing: Thing | None) -> Thing:
    if thing is None:
        raise OnnxError(f"node '{call.name}': a carried value isn't there")
    return thing


def _known_number(tensor: Tensor | None) -> int | None:
    if tensor is None or tensor.numbers is None:
        return None
    return int(tensor.numbers.reshape(-1)[0])


def _unrolled(call: Call, body: onnx.GraphProto, carried: list[Thing], count: int) -> list[Thing] | None:
    """The results of a loop whose steps are built one by one; None where calls decide how many there are."""
    stacked: list[list[Tensor]] = [[] for _ in range(len(body.output) - len(carried) - 1)]
    things = list(carried)
    for step in range(count):
        given = [Tensor.of(np.array(step, np.int64)), Tensor.of(np.array(True)), *things]
        found = call.importer.inner(body, given)
        things = found[1 : 1 + len(things)]
        for own, thing in zip(stacked, found[1 + len(things) :], strict=True):
            if isinstance(thing, Several):
                raise Refused("sequences that are stacked")
            own.append(thing)
        go_on = found[0]
        assert isinstance(go_on, Tensor)
        if go_on.numbers is None:
            return None
        if not go_on.numbers.reshape(-1)[0]:
            break
    return [*things, *(_stack(call, own) for own in stacked)]


def _stack(call: Call, tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape along a new first dimension."""
    if not tensors:
        raise Refused("results of no step that are stacked")
    arrays = [tensor.array for tensor in tensors]
    if all(array is not None and array.dtype != object for array in arrays):
        return Tensor.of(np.stack([array for array in arrays if array is not None]))
    values = [call.importer.value(tensor) for tensor in tensors]
    rows = [call.reshaped(value, [1, *Tensor.running(value).shape]) for value in values]
    return call.out(call.m.concat(rows, 0) if len(rows) > 1 else rows[0])


def _while(
    call: Call, body: onnx.GraphProto, carried: list[Thing], trips: Tensor | None, go_on: Tensor | None
) -> list[Thing]:
    """A loop whose number of steps calls decide."""
    m = call.m
    inits = [m.constant(np.int64(0)), m.constant(np.bool_(True)) if go_on is None else _truth(call, go_on)]
    inits += _values(call, carried)
    limit = None if trips is None else call.reshaped(call.importer.value(trips), [])

    def holds(step: Value, on: Value, *_: Value) -> Value:
        return on if limit is None else m.bitwise_and(on, m.lt(step, limit))

    def following(step: Value, on: Value, *values: Value) -> tuple[Value, ...]:
        with call.importer.region():
            given = [call.out(step), call.out(on)]
            found = _values(call, call.importer.inner(body, [*given, *(call.out(value) for value in values)]))
            return (m.add(step, np.int64(1)), call.reshaped(found[0], []), *found[1:])

    found = m.while_loop(holds, following, tuple(inits))
    return [call.out(value) for value in found[2:]]


# Scans ----------------------------------------------------------------------------------------------


@operator("Scan", since=9)
def _scan(call: Call) -> list[Thing]:
    m, body = call.m, _graph(call, "body")
    count = call.integer("num_scan_inputs", 0)
    states = len(call.inputs) - count
    stacked = len(body.output) - states
    if count < 1 or states < 0 or stacked < 0 or len(body.input) != len(call.inputs):
        raise OnnxError(f"node '{call.name}': {count} sequences of {len(call.inputs)} operands")
    rows = _moved(call, states, count)
    inits = tuple(call.value(number) for number in range(states))

    def step(*values: Value) -> tuple[tuple[Value, ...], tuple[Value, ...] | None]:
        with call.importer.region():
            found = _values(call, call.importer.inner(body, [call.out(value) for value in values]))
            return tuple(found[:states]), tuple(found[states:]) or None

    last, found = m.scan(step, inits, tuple(rows))
    axes = call.ints("scan_output_axes", [0] * stacked)
    backwards = call.ints("scan_output_directions", [0] * stacked)
    results = []
    for value, axis, back in zip(found or (), axes, backwards, strict=True):
        value = m.flip(value, 0) if back else value
        at = call.along(axis, value.ndim)
        order = list(range(1, value.ndim))
        order.insert(at, 0)
        results.append(call.out(m.transpose(value, order) if at else value))
    return [*(call.out(value) for value in last), *results]


def _moved(call: Call, states: int, count: int) -> list[Value]:
    """The sequences with steps as their first dimension, in the order in which they are taken."""
    axes = call.ints("scan_input_axes", [0] * count)
    backwards = call.ints("scan_input_directions", [0] * count)
    rows = []
    for number, (axis, back) in enumerate(zip(axes, backwards, strict=True)):
        value = call.value(states + number)
        at = call.along(axis, value.ndim)
        value = call.m.transpose(value, [at, *(i for i in range(value.ndim) if i != at)]) if at else value
        rows.append(call.m.flip(value, 0) if back else value)
    return rows
