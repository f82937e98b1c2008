# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Normalisation: of the last dimensions, of groups of channels, of batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size, product

from ..call import Call
from ..registry import Refused, operator

_F32 = np.dtype(np.float32)


@operator("LayerNormalization")
def _layer_norm(call: Call) -> list[Tensor]:
    x, shape = call.value(0), call.shape(0)
    axis, eps = call.axis(-1, len(shape)), call.number("epsilon", 1e-5)
    gamma, beta = call.value(1), call.maybe_value(2)
    found = [call.out(layer_normed(call, x, axis, gamma, beta, eps))]
    if call.wants(1) or call.wants(2):
        m, axes = call.m, list(range(axis, len(shape)))
        wide = call.wide(x)
        mean = m.mean(wide, axes, keep_dims=True)
        difference = wide - mean
        inverse = 1.0 / m.sqrt(m.mean(difference * difference, axes, keep_dims=True) + eps)
        found += [call.out(mean), call.out(inverse)]
    return found


def _fits(parameter: Value | None, shape: Sequence[Size]) -> bool:
    return parameter is None or Tensor.running(parameter).shape == tuple(shape)


def layer_normed(call: Call, x: Value, axis: int, gamma: Value, beta: Value | None, eps: float) -> Value:
    """x normalised along its dimensions from `axis` on."""
    m, shape = call.m, Tensor.running(x).shape
    own = shape[axis:]
    if eps > 0 and _fits(gamma, own) and _fits(beta, own) and all(size.constant != 0 for size in own):
        flat = [*shape[:axis], product(own)]
        rows = call.reshaped(x, flat)
        gamma = call.reshaped(gamma, [flat[-1]])
        beta = None if beta is None else call.reshaped(beta, [flat[-1]])
        return call.reshaped(m.layer_norm(rows, gamma, beta, eps=eps), shape)
    axes, wide = list(range(axis, len(shape))), call.wide(x)
    difference = wide - m.mean(wide, axes, keep_dims=True)
    y = difference / m.sqrt(m.mean(difference * difference, axes, keep_dims=True) + eps)
    y = m.mul(y, call.narrowed(gamma, y.dtype))
    return call.narrowed(y if beta is None else m.add(y, call.narrowed(beta, y.dtype)), x.dtype)


@operator("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_norm(call: Call) -> list[Tensor]:
    x = call.value(0)
    axis, eps = call.axis(-1, call.rank(0)), call.number("epsilon", 1e-5)
    found = [call.out(rms_normed(call, x, axis, call.value(1), eps))]
    if call.wants(1):
        wide, m = call.wide(x), call.m
        axes = list(range(axis, call.rank(0)))
        found.append(call.out(1.0 / m.sqrt(m.mean(wide * wide, axes, keep_dims=True) + eps)))
    return found


def rms_normed(call: Call, x: Value, axis: int, gamma: Value, eps: float) -> Value:
    """x divided by the root of its mean square along its dimensions from `axis` on."""
    m, shape = call.m, Tensor.running(x).shape
    own = shape[axis:]
    if eps > 0 and _fits(gamma, own) and all(size.constant != 0 for size in own):
        flat = [*shape[:axis], product(own)]
        return call.reshaped(m.rms_norm(call.reshaped(x, flat), call.reshaped(gamma, [flat[-1]]), eps=eps), shape)
    wide = call.wide(x)
    y = wide / m.sqrt(m.mean(wide * wide, list(range(axis, len(shape))), keep_dims=True) + eps)
    return call.narrowed(m.mul(y, call.narrowed(gamma, y.dtype)), x.dtype)


@operator("BatchNormalization")
def _batch_norm(call: Call) -> list[Tensor]:
    m, x = call.m, call.value(0)
    wide, eps = call.wide(x), call.number("epsilon", 1e-5)
    rank = call.rank(0)
    scale, bias, mean, variance = (call.narrowed(call.value(number), wide.dtype) for number in range(1, 5))
    found: list[Tensor] = []
    if call.version >= 14 and call.flag("training_mode"):
        axes = [axis for axis in range(rank) if axis != 1]
        momentum = call.number("momentum", 0.9)
        own = m.mean(wide, axes)
        difference = wide - _of_channels(call, own, rank)
        spread = m.mean(difference * difference, axes)
        running = [mean * momentum + own * (1 - momentum), variance * momentum + spread * (1 - momentum)]
        found = [call.out(call.narrowed(each, call.dtype(3 + number))) for number, each in enumerate(running)]
        mean, variance = own, spread
    elif call.wants(1):
        raise Refused("results of training before version 14")
    factor = scale / m.sqrt(variance + eps)
    y = (wide - _of_channels(call, mean, rank)) * _of_channels(call, factor, rank) + _of_channels(call, bias, rank)
    return [call.out(call.narrowed(y, x.dtype)), *found]


def _of_channels(call: Call, value: Value, rank: int) -> Value:
    """A vector as what broadcasts along dimension 1."""
    return call.reshaped(value, [*Tensor.running(value).shape, *[1] * (rank - 2)])


def _grouped(call: Call, x: Value, gamma: Value, beta: Value, groups: int, eps: float) -> Value:
    """Groups of channels of x [N, C, ...] normalised, with a factor and a summand for each channel."""
    shape = Tensor.running(x).shape
    flat = call.reshaped(x, [shape[0], shape[1], product(shape[2:]), Size.of(1)])
    if eps <= 0:
        raise Refused(f"'epsilon' is {eps}")
    return call.reshaped(call.m.group_norm(flat, gamma, beta, num_groups=groups, eps=eps), shape)


@operator("InstanceNormalization")
def _instance_norm(call: Call) -> Tensor:
    channels = call.shape(0)[1].constant
    if channels is None:
        raise Refused("a number of channels that calls decide")
    y = _grouped(call, call.value(0), call.value(1), call.value(2), channels, call.number("epsilon", 1e-5))
    return call.out(y)


@operator("GroupNormalization")
def _group_norm(call: Call) -> Tensor:
    channels, groups = call.shape(0)[1].constant, call.integer("num_groups", 0)
    if channels is None or groups <= 0 or channels % groups:
        raise OnnxError(f"node '{call.name}': {groups} groups don't divide {call.shape(0)[1]} channels")
    gamma, beta = call.value(1), call.value(2)
    if call.version < 21:  # one for each group
        call.affordable(channels)
        places = np.repeat(np.arange(groups, dtype=np.int64), channels // groups)
        gamma, beta = call.m.gather(gamma, places, 0), call.m.gather(beta, places, 0)
    return call.out(_grouped(call, call.value(0), gamma, beta, groups, call.number("epsilon", 1e-5)))


@operator("LpNormalization")
def _lp_norm(call: Call) -> Tensor:
    m, x = call.m, call.value(0)
    wide, axis, p = call.wide(x), call.axis(-1, call.rank(0)), call.integer("p", 2)
    if p == 2:
        size = m.sqrt(m.sum(wide * wide, axis, keep_dims=True))
    elif p == 1:
        size = m.sum(m.abs(wide), axis, keep_dims=True)
    else:
        raise OnnxError(f"node '{call.name}': 'p' is 1 or 2, but is {p}")
    return call.out(call.narrowed(m.where(m.eq(size, 0.0), wide * 0.0, wide / size), x.dtype))


@operator("LRN")
def _local_response(call: Call) -> Tensor:
    m, x, rank = call.m, call.value(0), call.rank(0)
    wide, count = call.wide(x), call.integer("size", 1)
    before, channels = (count - 1) // 2, call.shape(0)[1]
    pads = [(0, 0)] * rank
    pads[1] = (before, count - 1 - before)
    squares = call.padded(wide * wide, pads, 0.0)
    total: Value | None = None
    if channels.constant is None or count > 64:
        raise Refused(f"sums of {count} of {channels} channels")
    for start in range(count):
        part = m.narrow(squares, 1, start, channels.constant)
        total = part if total is None else total + part
    assert total is not None
    base = total * (call.number("alpha", 1e-4) / count) + call.number("bias", 1.0)
    return call.out(call.narrowed(wide / m.pow(base, call.number("beta", 0.75)), x.dtype))
