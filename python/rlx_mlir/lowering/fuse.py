# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fusion of MIR primitives into MIR's fused operations; each pass is one family of patterns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.hir_to_mir import is_packed, product
from rlx_mlir.mir.functions import FUNCTIONS, named
from rlx_mlir.rewriting import PatternSet, Rewriter, apply_patterns, compiler_pass, erase_dead, identity
from rlx_mlir.semantics.function import is_parameter

BIAS_ACT, RESIDUAL_NORM, SWIGLU, SHARED_INPUT = PatternSet(), PatternSet(), PatternSet(), PatternSet()


#: What would help where a value has more readers than the one that it could be fused into.
ONE_READER = "a value that something else reads too has to be written: give it one reader"


@compiler_pass("mir-fuse-matmul-bias-act")
def fuse_matmul_bias_act(module: ir.Operation) -> None:
    """Fuse matmul, the bias added to it and an activation; of f16 and bf16 after mir-keep-wide alone."""
    apply_patterns(module, BIAS_ACT)
    erase_dead(module)


@compiler_pass("mir-fuse-residual-norm")
def fuse_residual_norm(module: ir.Operation) -> None:
    """Fuse add and the norm of its sum; of f16 and bf16, whose sum would stay in f32, after mir-keep-wide alone."""
    apply_patterns(module, RESIDUAL_NORM)
    erase_dead(module)


@compiler_pass("mir-fuse-swiglu")
def fuse_swiglu(module: ir.Operation) -> None:
    """Fuse silu(x G) * (x U) with dense weights into one matmul with [U, G] and fused_swiglu."""
    apply_patterns(module, SWIGLU)
    erase_dead(module)


@compiler_pass("mir-fuse-shared-input")
def fuse_shared_input(module: ir.Operation) -> None:
    """Fuse products of one value with several weights into one product and slices of it."""
    apply_patterns(module, SHARED_INPUT)
    erase_dead(module)


#: Attribute of a module, or of one operation, whose values of f16 and bf16 may stay in f32 within a kernel.
WIDE = "mir.wide"


@compiler_pass("mir-keep-wide")
def keep_wide(module: ir.Operation) -> None:
    """Let values of f16 and bf16 stay in f32 where one kernel makes and reads them.

    Without this pass they are rounded as the graph has them, and fusion that would drop a rounding isn't done. Run
    before rlx-fuse.
    """
    module.attributes[WIDE] = ir.UnitAttr.get()


def keeps_wide(op: ir.AnyOp) -> bool:
    """Whether an operation's result of 16 bits may stay in f32 between operations: by itself, or by its module."""
    root = op.operation
    if WIDE in root.attributes:
        return True
    while root.parent is not None:
        root = root.parent
    return WIDE in root.attributes


def keep_result_wide(value: ir.Value) -> ir.Value:
    """Lets a value stay wide that is part of what was one operation, which rounded once."""
    if str(ir.RankedTensorType(value.type).element_type) in ("f16", "bf16"):
        value.owner.attributes[WIDE] = ir.UnitAttr.get()
    return value


#: What would help where fusion would drop a rounding.
WIDER = "compile(..., intermediates='wide') lets values of f16 and bf16 stay in f32 within a kernel"


def drops_rounding(op: ir.AnyOp, rewriter: Rewriter) -> bool:
    """Whether one operation in place of several would round less often than the graph does; says so."""
    if str(ir.RankedTensorType(op.operation.results[0].type).element_type) not in ("f16", "bf16") or keeps_wide(op):
        return False
    rewriter.no_match("one operation would round less often", hint=WIDER)
    return True


#: An operation, or None; what it has depends on the kinds that were asked for.
MaybeOp: TypeAlias = Any


def producer(value: ir.Value, *kinds: type[ir.OpView]) -> MaybeOp:
    """The operation of one of the kinds that makes the value; None where another one does, or none."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    view = owner.opview
    return view if isinstance(view, kinds) else None


def only_user(value: ir.Value) -> MaybeOp:
    """The operation that has the value's only use; None where there are more uses, or none."""
    uses = list(value.uses)
    return uses[0].owner.opview if len(uses) == 1 else None


#: Functions of one float, each with the operand `x`.
UNARY = named(lambda record: record.arity == 1 and record.floats)
#: Functions of two floats, with operands `lhs` and `rhs` that broadcast.
BINARY = named(lambda record: record.arity == 2 and record.floats)


def gated_products(mul: mir.MulOp) -> tuple[ir.AnyOp, ir.AnyOp, ir.AnyOp] | None:
    """(function, gate, up) of function(gate) * up, with two products of one kind that only this reads; else None."""
    for gated, other in ((mul.lhs, mul.rhs), (mul.rhs, mul.lhs)):
        function = None if isinstance(gated.owner, ir.Block) else gated.owner.opview
        if function is None or function.operation.name not in UNARY:
            continue
        gate = producer(function.x, mir.MatmulOp, mir.DequantMatmulOp, mir.BlockDotOp)
        up = producer(other, type(gate)) if gate is not None else None
        if up is not None and all(only_user(value) is not None for value in (gated, gate.result, up.result)):
            return function, gate, up
    return None


def gating(product: ir.AnyOp) -> tuple[ir.AnyOp, ir.AnyOp, ir.AnyOp, ir.AnyOp] | None:
    """(mul, function, gate, up) where the product is one of two that give function(gate) * up; else None."""
    user = only_user(product.result)
    if user is not None and user.operation.name in UNARY:
        user = only_user(user.result)
    found = gated_products(user) if isinstance(user, mir.MulOp) else None
    return None if found is None or product not in found[1:] else (user, *found)


def columns_of(shape: list[int]) -> str:
    """A row of a shape as text, such as `[24]`; `[?]` where its length is dynamic."""
    return f"[{'?' if shape[-1] < 0 else shape[-1]}]"


def shape_of(value: ir.Value) -> list[int]:
    """The dimensions of the value's type, a negative number where dynamic."""
    return list(ir.RankedTensorType(value.type).shape)


@BIAS_ACT.pattern(mir.AddOp)
def fuse_bias(op: mir.AddOp, rewriter: Rewriter) -> None:
    """matmul(x, W) + b -> fused_matmul_bias_act(x, W, b)"""
    for matmul, bias in ((producer(op.lhs, mir.MatmulOp), op.rhs), (producer(op.rhs, mir.MatmulOp), op.lhs)):
        if matmul is None:
            continue
        if drops_rounding(op, rewriter):
            return None
        if isinstance(ir.RankedTensorType(matmul.result.type).element_type, ir.IntegerType):
            return rewriter.no_match("the product is of integers")
        if only_user(matmul.result) is None:
            return rewriter.no_match("the product has other readers", hint=ONE_READER)
        weight, out = shape_of(matmul.rhs), shape_of(matmul.result)
        if len(weight) != 2 or shape_of(bias) != out[-1:]:
            return rewriter.no_match(
                "what is added isn't a vector as long as the product's rows",
                hint=f"a bias is {columns_of(out)}, and the weight a matrix",
            )
        fused = mir.fused_matmul_bias_act(matmul.lhs, matmul.rhs, bias, transpose_rhs=matmul.transpose_rhs or None)
        return rewriter.replace(op, fused)
    return None


def fuse_activation(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """act(fused_matmul_bias_act(x, W, b)) -> fused_matmul_bias_act(x, W, b) with the activation"""
    linear = producer(op.x, mir.FusedMatmulBiasActOp)
    if linear is None or linear.activation is not None or drops_rounding(op, rewriter):
        return
    if only_user(linear.result) is None:
        return rewriter.no_match("the sum has other readers", hint=ONE_READER)
    rewriter.replace(
        op,
        mir.fused_matmul_bias_act(
            linear.x,
            linear.weight,
            linear.bias,
            activation=op.operation.name.removeprefix("mir."),
            transpose_rhs=linear.transpose_rhs or None,
        ),
    )


for _record in FUNCTIONS.values():
    if _record.activation:
        BIAS_ACT.pattern(_record.op)(fuse_activation)


def fuse_residual(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """norm(add(x, r)) -> fused_residual norm(x, r)"""
    total = producer(op.x, mir.AddOp)
    if total is None or drops_rounding(op, rewriter):
        return
    if only_user(total.result) is None:
        return rewriter.no_match("the sum has other readers", hint=ONE_READER)
    if total.lhs.type != total.rhs.type:
        return rewriter.no_match("the sum broadcasts an operand", hint="residuals have the shape of what they go to")
    if python_value(op.axis) not in (-1, len(shape_of(op.x)) - 1):
        return rewriter.no_match("the norm isn't over the last axis")
    fused = mir.fused_residual_rms_norm if isinstance(op, mir.RmsNormOp) else mir.fused_residual_layer_norm
    rewriter.replace(op, fused(total.lhs, total.rhs, op.gamma, beta=op.beta, eps=op.eps))


RESIDUAL_NORM.pattern(mir.RmsNormOp)(fuse_residual)
RESIDUAL_NORM.pattern(mir.LayerNormOp)(fuse_residual)


@SWIGLU.pattern(mir.MulOp)
def fuse_dual_matmul(op: mir.MulOp, rewriter: Rewriter) -> None:
    """silu(x G) * (x U) -> fused_swiglu(x [U, G])"""
    for gated, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        silu, up = producer(gated, mir.SiluOp), producer(other, mir.MatmulOp)
        gate = producer(silu.x, mir.MatmulOp) if silu is not None else None
        if gate is None or up is None:
            continue
        if drops_rounding(op, rewriter):
            return None
        if gate.lhs != up.lhs:
            return rewriter.no_match("the products have different inputs")
        if any(only_user(value) is None for value in (gate.result, up.result, silu.result)):
            return rewriter.no_match("a product has other readers", hint=ONE_READER)
        transposed = bool(gate.transpose_rhs)
        weight = shape_of(gate.rhs)
        if gate.rhs.type != up.rhs.type or transposed != bool(up.transpose_rhs) or len(weight) != 2 or min(weight) < 0:
            return rewriter.no_match(
                "the weights differ in type, or aren't static matrices",
                hint="gate and up have one shape, element type and orientation",
            )
        both = mir.concat([up.rhs, gate.rhs], axis=0 if transposed else 1)
        return rewriter.replace(op, mir.fused_swiglu(product(gate.lhs, both, transposed)))
    return None


@SWIGLU.pattern(mir.MulOp)
def fuse_halves(op: mir.MulOp, rewriter: Rewriter) -> None:
    """silu(c[N:]) * c[:N] -> fused_swiglu(c); gate_first where the gate is the first half"""
    for gated, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        silu, up = producer(gated, mir.SiluOp), producer(other, mir.NarrowOp)
        gate = producer(silu.x, mir.NarrowOp) if silu is not None else None
        if gate is None or up is None or gate.x != up.x:
            continue
        if drops_rounding(op, rewriter):
            return None
        whole = shape_of(gate.x)
        half = whole[-1] // 2
        spans = [(python_value(n.axis) % len(whole), python_value(n.start), python_value(n.length)) for n in (up, gate)]
        last = len(whole) - 1
        if whole[-1] % 2 or {s[0] for s in spans} != {last} or {s[2] for s in spans} != {half}:
            return rewriter.no_match("the slices aren't the two halves of the last axis")
        if any(only_user(value) is None for value in (gate.result, up.result, silu.result)):
            return rewriter.no_match("a half has other readers", hint=ONE_READER)
        starts = (spans[0][1], spans[1][1])
        if starts not in ((0, half), (half, 0)):
            return rewriter.no_match("the slices aren't the two halves of the last axis")
        return rewriter.replace(op, mir.fused_swiglu(gate.x, gate_first=starts == (half, 0) or None))
    return None


def fuse_siblings(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """(x W1, x W2, …) -> slices of x [W1, W2, …]"""
    x, weight = _factors(op)
    transposed = isinstance(op, mir.MatmulOp) and bool(op.transpose_rhs)
    if gating(op) is not None:  # Both products of a gate are one kernel already.
        return
    siblings = list(_siblings(op, x))
    if len(siblings) < 2:
        return
    if not is_parameter(weight):
        if len(shape_of(weight)) == 2:
            rewriter.no_match(
                f"its weight isn't a parameter; products of the same value with other weights: {len(siblings) - 1}",
                hint="parameters are joined once, other values would be copied at each call",
            )
        return
    group: list[tuple[ir.AnyOp, ir.Value]] = []
    others: list[ir.AnyOp] = []
    for other, second in siblings:
        if not is_parameter(second):
            continue
        if transposed == bool(getattr(other, "transpose_rhs", False)) and _joinable(weight, second, transposed):
            group.append((other, second))
        else:
            others.append(other)
    if len(group) < 2:
        if others and all(op.operation.is_before_in_block(other.operation) for other in others):
            rewriter.no_match(
                f"{len(others)} more of its kind read the same value, but their weights can't be joined",
                hint="weights of one element type or format, and one orientation, share a product",
            )
        return
    group.sort(key=lambda member: _position(member[1]))
    if not all(op == member or op.operation.is_before_in_block(member.operation) for member, _ in group):
        return  # The first product of the group in program order is the one to rewrite.
    axis = 0 if is_packed(weight) or transposed else 1
    whole = product(x, mir.concat([w for _, w in group], axis=axis), transposed)
    start = 0
    for member, _ in group:
        width = shape_of(member.result)[-1]
        part = mir.narrow(whole, axis=len(shape_of(whole)) - 1, start=start, length=width)
        start += width
        rewriter.replace(member, part)


def _factors(op: ir.AnyOp) -> tuple[ir.Value, ir.Value]:
    """What a product multiplies, and its weight."""
    return (op.lhs, op.rhs) if isinstance(op, mir.MatmulOp) else (op.x, op.weight)


def _siblings(op: ir.AnyOp, x: ir.Value) -> Iterator[tuple[ir.AnyOp, ir.Value]]:
    """The products of an operation's kind and block that multiply a value, itself included, with their weights.

    Those of a gate aren't among them.
    """
    seen: set[int] = set()
    for use in x.uses:
        other = use.owner.opview
        if type(other) is not type(op) or other.operation.block != op.operation.block or identity(other) in seen:
            continue
        seen.add(identity(other))  # It may read x twice.
        first, second = _factors(other)
        if first == x and gating(other) is None:
            yield other, second


def _joinable(first: ir.Value, second: ir.Value, transposed: bool) -> bool:
    a, b = ir.RankedTensorType(first.type), ir.RankedTensorType(second.type)
    if len(a.shape) != 2 or len(b.shape) != 2 or min(*a.shape, *b.shape) < 0:
        return False
    inner = 1 if a.encoding is not None or transposed else 0
    return a.encoding == b.encoding and a.element_type == b.element_type and a.shape[inner] == b.shape[inner]


def _position(value: ir.Value) -> int:
    return int(ir.BlockArgument(value).arg_number)


SHARED_INPUT.pattern(mir.MatmulOp)(fuse_siblings)
SHARED_INPUT.pattern(mir.DequantMatmulOp)(fuse_siblings)
