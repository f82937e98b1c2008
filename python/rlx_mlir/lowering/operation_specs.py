# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels of one operation compute, read from their MIR, as `kernel_specs` does for those of several.

Each function raises UnsupportedByTemplate, with the reason, where a kernel isn't of the form that its class promises.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.specs import (
    CallSpec,
    FftPart,
    FftSpec,
    GroupedSpec,
    GroupNormSpec,
    LossSpec,
    NormSpec,
    PackedGroupedSpec,
    PoolSpec,
    QMatmulSpec,
    QuantizedGroupedSpec,
    RecurrenceSpec,
    ReduceSpec,
    ScanSpec,
    SolveSpec,
    StateSpaceSpec,
)
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.functions import called_operation, memref_of
from rlx_mlir.lowering.fuse import producer, shape_of
from rlx_mlir.lowering.kernel_body import body_of, buffer_of, constant_number
from rlx_mlir.mir.custom import parameters_of, registered
from rlx_mlir.mir.fft import length_of, scale_of
from rlx_mlir.mir.packed import packing_of
from rlx_mlir.own_ops import native_parameters


def read_reduce(name: str, kernel: ir.AnyOp) -> ReduceSpec:
    """A kernel of class reduce."""
    view, result = _only(name, kernel)
    rank = len(shape_of(view.x))
    axes = tuple(sorted({axis % rank for axis in python_value(view.axes)}))
    return ReduceSpec(memref_of(view.x.type), memref_of(result.type), python_value(view.kind), axes)


def read_pool(name: str, kernel: ir.AnyOp) -> PoolSpec:
    """A kernel of class pool: one operation."""
    x, result, _ = _plain_operation(name, kernel)
    view = body_of(kernel)[0][0].opview
    sizes = (tuple(python_value(own)) for own in (view.kernel_size, view.stride, view.padding))
    return PoolSpec(x, result, python_value(view.kind), *sizes)


def read_norm(name: str, kernel: ir.AnyOp) -> NormSpec:
    """A kernel of class norm: a norm or softmax along another axis than the last."""
    ops, _ = body_of(kernel)
    op, numbers = ops[-1], {argument: number for number, argument in enumerate(kernel.arguments)}
    if any(value not in numbers for value in op.operands):
        raise UnsupportedByTemplate(f"{name}: an operand is a constant")
    view = op.opview
    axis = python_value(view.axis) % len(shape_of(view.x))
    eps = 0.0 if isinstance(view, mir.SoftmaxOp) else float(python_value(view.eps))
    x, *factors = (memref_of(value.type) for value in op.operands)
    order = tuple(numbers[value] for value in op.operands)
    return NormSpec(op.name.removeprefix("mir."), x, tuple(factors), axis, eps, order)


def read_group_norm(name: str, kernel: ir.AnyOp) -> GroupNormSpec:
    """A kernel of class group_norm: one operation."""
    x, *factors, _, order = _plain_operation(name, kernel)
    view = body_of(kernel)[0][0].opview
    return GroupNormSpec(x, tuple(factors), python_value(view.num_groups), float(python_value(view.eps)), order)


def read_scan(name: str, kernel: ir.AnyOp) -> ScanSpec:
    """A kernel of class scan."""
    view, _ = _only(name, kernel)
    axis = python_value(view.axis) % len(shape_of(view.x))
    return ScanSpec(memref_of(view.x.type), axis, bool(view.exclusive))


def _only(name: str, kernel: ir.AnyOp) -> tuple[ir.AnyOp, ir.Value]:
    """The one operation of a kernel, which reads its one operand, and its result."""
    ops, _ = body_of(kernel)
    if list(ops[-1].operands) != list(kernel.arguments):
        raise UnsupportedByTemplate(f"{name}: the operand is a constant")
    return ops[-1].opview, ops[-1].results[0]


def read_recurrence(name: str, kernel: ir.AnyOp) -> RecurrenceSpec:
    """A kernel of class recurrence."""
    view = body_of(kernel)[0][0].opview
    read = [view.q, view.k, view.v, view.g, view.beta, view.state]
    by_step = view.chunk is not None and int(python_value(view.chunk)) == 1
    return replace(RecurrenceSpec(*_recurrence(name, kernel, read, view)), by_step=by_step)


def read_state_space(name: str, kernel: ir.AnyOp) -> StateSpaceSpec:
    """A kernel of class state_space, whose rates may be one number."""
    view = body_of(kernel)[0][-1].opview
    same = producer(view.a, mir.ConstantOp)
    read = [view.x, view.delta, None if same is not None else view.a, view.b, view.c, view.state]
    rate = None if same is None else constant_number(same.operation)
    return replace(StateSpaceSpec(*_recurrence(name, kernel, read, view)), rate=rate)


def _recurrence(name: str, kernel: ir.AnyOp, read: list[Any], view: ir.AnyOp) -> list[Any]:
    """The buffers of operands, of the result and of the last state, None where absent, and the order of operands."""
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    given, returned = [value for value in read if value is not None], body_of(kernel)[1]
    if any(value not in numbers for value in given):
        raise UnsupportedByTemplate(f"{name}: an operand is a constant")
    written = [value if value in returned else None for value in (view.result, view.state_out)]
    return [*map(buffer_of, [*read, *written]), tuple(numbers[value] for value in given)]


def read_solve(name: str, kernel: ir.AnyOp) -> SolveSpec:
    """A kernel of class solve."""
    return SolveSpec(*_plain_operation(name, kernel))


def read_loss(name: str, kernel: ir.AnyOp) -> LossSpec:
    """A kernel of class loss: cross entropy, or with a third operand its gradient."""
    logits, labels, *d_loss, result, order = _plain_operation(name, kernel)
    return LossSpec(logits, labels, d_loss[0] if d_loss else None, result, order)


def read_grouped(name: str, kernel: ir.AnyOp) -> GroupedSpec | PackedGroupedSpec:
    """A kernel of class grouped: products with dense or with packed weights, of floats or of quantised rows."""
    x, *quantised, weight, expert, result, order = _plain_operation(name, kernel)
    ops, _ = body_of(kernel)
    view = ops[0].opview
    if isinstance(view, mir.GroupedMatmulOp):
        return GroupedSpec(x, weight, expert, result, order)
    packed, experts = packing_of(view.weight), int(python_value(view.experts))
    own = (x, weight, expert, result, order, packed.scheme, packed.layout, experts)
    return QuantizedGroupedSpec(*own, *quantised) if quantised else PackedGroupedSpec(*own)


def read_fft(name: str, kernel: ir.AnyOp) -> FftSpec:
    """A kernel of class fft: a transform, or that of rows with zeros behind them, and parts of it."""
    ops, returned = body_of(kernel)
    view = next(op.opview for op in ops if op.name == "mir.fft")
    n, inverse = length_of(view.x.type), bool(view.inverse)
    scale = scale_of(n, inverse=inverse, norm=str(python_value(view.norm)))
    x, parts = view.x, []
    if (joined := producer(x, mir.ConcatOp)) is not None:
        x = joined.inputs[0]
        parts = [_fft_part(value, view.result, n) for value in returned]
    if list(kernel.arguments) != [x]:
        raise UnsupportedByTemplate(f"{name}: the operand is a constant")
    return FftSpec(memref_of(x.type), n, 1 if inverse else -1, scale, tuple(parts))


def _fft_part(value: ir.Value, transform: ir.Value, n: int) -> FftPart:
    """What a part of a part of a transform's real and imaginary parts is."""
    start, length, out = 0, shape_of(value)[-1], memref_of(value.type)
    while value != transform:
        part = producer(value, mir.NarrowOp)
        start, value = start + int(python_value(part.start)), part.x
    return FftPart(out, start >= n, start % n, length)


def read_q_matmul(name: str, kernel: ir.AnyOp) -> QMatmulSpec:
    """A kernel of class q_matmul."""
    *buffers, result, order = _plain_operation(name, kernel)
    x, weight, *bias = buffers
    ops, _ = body_of(kernel)
    view = ops[0].opview
    x_zp, w_zp, out_zp, mult = (python_value(number) for number in (view.x_zp, view.w_zp, view.out_zp, view.mult))
    return QMatmulSpec(x, weight, bias[0] if bias else "", result, x_zp, w_zp, out_zp, mult, order)


def _plain_operation(name: str, kernel: ir.AnyOp) -> list[Any]:
    """The buffers of the operands and of the result of a kernel's one operation, and the order of the operands."""
    ops, _ = body_of(kernel)
    (op,) = ops if len(ops) == 1 else (None,)
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    if op is None or any(value not in numbers for value in op.operands):
        raise UnsupportedByTemplate(f"{name}: an operand is a constant")
    buffers = [memref_of(value.type) for value in (*op.operands, *op.results)]
    return [*buffers, tuple(numbers[value] for value in op.operands)]


def read_call(name: str, kernel: ir.AnyOp) -> CallSpec:
    """A kernel of class own: one operation of the user's own, all of whose results are the kernel's."""
    op = called_operation(kernel)
    own = registered(op)
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    parameters = native_parameters(own, own.parameters(parameters_of(op))) if own.is_native else []
    operands, results = (tuple(memref_of(value.type) for value in values) for values in (op.operands, op.results))
    return CallSpec(operands, results, tuple(numbers[value] for value in op.operands), tuple(parameters))
