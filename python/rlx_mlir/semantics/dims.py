# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Symbolic dimensions of values: rules of the blocks, and their propagation through a function."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence

from rlx_mlir import ir
from rlx_mlir.errors import CompileError, UnsupportedError
from rlx_mlir.mir.control import REGIONS, called_dims, inner_dims
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.packed import packing
from rlx_mlir.mir.registry import DIM_RULES, dim_rule, result_dims
from rlx_mlir.semantics.function import arguments, body
from rlx_mlir.semantics.ops import blocks
from rlx_mlir.unsupported import blame

Dims = tuple[Size, ...]

_UNKNOWN = "?"
_numbers = itertools.count()


def unknown() -> Size:
    """A size that nothing is known of: equal to itself only."""
    return Size.of(f"{_UNKNOWN}{next(_numbers)}")


def is_known(size: Size) -> bool:
    """Whether the size is made of named symbols only."""
    return not any(symbol.startswith(_UNKNOWN) for symbol in size.symbols)


def outputs_of(weight: ir.Value, dims: Dims, transposed: bool) -> Size:
    """Number of outputs of a weight operand, dense or packed."""
    if packing(weight.type) is not None or transposed:
        return dims[0]
    return dims[1]


@dim_rule(*blocks("rms_norm", "rope", "residual_rms_norm", "depthwise_conv1d_causal"))
def like_first(op: ir.AnyOp, operands: Sequence[Dims]) -> Dims:
    """The dimensions of the first operand."""
    return operands[0]


@dim_rule(*blocks("linear", "linear_fused"))
def linear(op: ir.AnyOp, operands: Sequence[Dims]) -> Dims:
    """[..., K] x weight -> [..., N]"""
    return (*operands[0][:-1], outputs_of(op.weight, operands[1], op.transpose_weight))


@dim_rule(*blocks("dequant_matmul"))
def dequant_matmul(op: ir.AnyOp, operands: Sequence[Dims]) -> Dims:
    """[..., K] x packed [N, K] -> [..., N]"""
    return (*operands[0][:-1], operands[1][0])


@dim_rule(*blocks("dequant_matmul_scaled"))
def dequant_matmul_scaled(op: ir.AnyOp, operands: Sequence[Dims]) -> Dims:
    """[..., K] x codes with scales [..., N] -> [..., N]"""
    return (*operands[0][:-1], operands[2][-1])


@dim_rule(*blocks("shared_linear_pair"))
def shared_linear_pair(op: ir.AnyOp, operands: Sequence[Dims]) -> list[Dims]:
    """[..., K] x two weights -> [..., N1], [..., N2]"""
    lead = operands[0][:-1]
    return [
        (*lead, outputs_of(op.w_first, operands[1], op.transpose_weight)),
        (*lead, outputs_of(op.w_second, operands[2], op.transpose_weight)),
    ]


@dim_rule(*blocks("swiglu"))
def swiglu(op: ir.AnyOp, operands: Sequence[Dims]) -> Dims:
    """[..., K] -> [..., outputs of down_w]"""
    return (*operands[0][:-1], outputs_of(op.down_w, operands[3], op.transpose_weight))


@dim_rule(*blocks("attention", "llama_decoder_block"))
def with_caches(op: ir.AnyOp, operands: Sequence[Dims]) -> Dims | list[Dims]:
    """Like the first operand; new caches like the old ones."""
    if op.k_cache is None:
        return operands[0]
    dims_of = dict(zip(op.operation.operands, operands, strict=True))
    return [operands[0], dims_of[op.k_cache], dims_of[op.v_cache]]


@dim_rule(*blocks("gated_delta_net"))
def gated_delta_net(op: ir.AnyOp, operands: Sequence[Dims]) -> list[Dims]:
    """[B, S, H, n] -> the same, and the state [B, H, n, n]"""
    batch, _, heads, n = operands[0]
    return [operands[0], (batch, heads, n, n) if op.state is None else operands[5]]


@dim_rule(*blocks("qwen35_mtp_head"))
def qwen35_mtp_head(op: ir.AnyOp, operands: Sequence[Dims]) -> Dims:
    """[B, S, E] -> [B, 1, outputs of lm_head_w]"""
    return (operands[0][0], Size.of(1), outputs_of(op.lm_head_w, operands[-1], op.transpose_weight))


def type_dims(type: ir.Type, names: Sequence[str] = ()) -> Dims:
    """The dimensions of a tensor type; the dynamic ones have the given names, or are unknown."""
    if (known := _static_dims(type)) is not None:
        return known
    found = []
    for i in range(type.rank):
        if not type.is_dynamic_dim(i):
            found.append(Size.of(type.get_dim_size(i)))
        elif i < len(names) and names[i] not in ("", _UNKNOWN):
            found.append(Size.of(names[i]))
        else:
            found.append(unknown())
    return tuple(found)


def _static_dims(type: ir.Type) -> Dims | None:
    """The dimensions that a type says all of; none of what is no tensor. None where one is dynamic."""
    if not isinstance(type, ir.ShapedType) or not type.has_rank:
        return ()
    return _known_sizes(tuple(type.shape)) if type.has_static_shape else None


@functools.lru_cache(maxsize=1 << 10)
def _known_sizes(shape: tuple[int, ...]) -> Dims:
    """Known numbers as dimensions: a module has few shapes, and many values of each."""
    return tuple(Size.of(size) for size in shape)


def operation_dims(op: ir.Operation, operands: Sequence[Dims]) -> list[Dims]:
    """The dimensions of an operation's results: static ones from their types, the others by the operation's rule.

    Those of a call follow from the operations of the kernel.
    """
    types = [result.type for result in op.results]
    static = [dims for type in types if (dims := _static_dims(type)) is not None]
    if len(static) == len(types):
        return static
    from_types = [type_dims(type) for type in types]
    is_call = op.name == "func.call"
    if not (is_call or op.name in DIM_RULES):
        return from_types
    try:
        by_rule = called_dims(op, operands) if is_call else result_dims(op.opview, operands)
    except UnsupportedError:  # a size that is no sum of products of symbols: nothing is known of it
        return from_types
    except KeyError:  # a kernel of operations that aren't of MIR any more
        if not is_call:
            raise
        return from_types
    return [
        tuple(own if own.constant is not None else ruled for own, ruled in zip(dims, rule, strict=True))
        for dims, rule in zip(from_types, by_rule, strict=True)
    ]


def propagate(function: ir.Operation) -> dict[ir.Value, Dims]:
    """The dimensions of every value in a function, from the symbols of its arguments."""
    dims: dict[ir.Value, Dims] = {}
    for value, argument in zip(body(function).arguments, arguments(function), strict=True):
        dims[value] = type_dims(value.type, argument.symbols)
    for op in body(function).operations:
        add_results(op.operation, dims)
    return dims


def add_results(op: ir.Operation, dims: dict[ir.Value, Dims]) -> None:
    """Adds the dimensions of an operation's results, and of the values in its regions."""
    if len(op.results):
        try:
            computed = operation_dims(op, [dims[operand] for operand in op.operands])
        except Exception as error:
            raise CompileError(blame(op, error)) from error
        dims.update(zip(op.results, computed, strict=True))
        if op.name in REGIONS:
            dims.update(inner_dims(op, [dims[operand] for operand in op.operands]))


def words(sizes: Sequence[Size]) -> tuple[int | str, ...]:
    """Dimensions as callers read them: numbers, symbols, and '?' where nothing is known."""
    return tuple(
        size.constant if size.constant is not None else str(size) if is_known(size) else _UNKNOWN for size in sizes
    )


def evaluate(size: Size, sizes: Mapping[str, int]) -> int | None:
    """The number, where every symbol has one."""
    return size.evaluate(sizes) if size.symbols <= sizes.keys() else None
