# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What must hold of dynamic sizes at run time, operation by operation.

Types leave open whether two dynamic sizes that meet are equal, or whether a slice lies within a dynamic dimension. The
compiled code relies on it: executables check these conditions at each call, before anything is read. So they do with
the rows of tables and caches that positions name, where these are an input or a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.locations import block_name, source_line
from rlx_mlir.mir.control import REGIONS, carried_rules, inner_dims
from rlx_mlir.mir.conv import transposed_sizes
from rlx_mlir.mir.dims import Size, is_never_negative, product
from rlx_mlir.mir.kept import row_bytes
from rlx_mlir.mir.packed import packing
from rlx_mlir.mir.quant import packed_rows
from rlx_mlir.mir.shape import like_sizes, sliced
from rlx_mlir.mir.splats import META, OF_SPLAT, Image
from rlx_mlir.mir.windows import Windows
from rlx_mlir.rewriting import operations

Dims = tuple[Size, ...]
#: Gives the dimensions of a value.
DimsOf = Callable[[ir.Value], Dims]
#: Sizes of which the first must be equal to the second; or, of three with True, at least the second.
Rule = tuple[Size, Size] | tuple[Size, Size, bool]


@dataclass(frozen=True)
class Condition:
    """`left` is equal to `right`, or at least `right`; `where` says which operation needs it."""

    left: Size
    right: Size
    at_least: bool
    where: str


def conditions(op: ir.AnyOp, dims_of: DimsOf) -> list[Condition]:
    """The conditions of one operation that its types and symbols don't settle."""
    rule = _RULES.get(op.name)
    found = []
    for left, right, *more in rule(op.opview, dims_of) if rule is not None else ():
        at_least = bool(more)
        if left != right and not (at_least and is_never_negative(left - right)):
            found.append(Condition(left, right, at_least, _where(op)))
    if op.name in REGIONS:  # whether a region runs or not: nobody knows before
        inner = inner_dims(op, [dims_of(operand) for operand in op.operation.operands])
        for nested in operations(op, nested=False):
            found += conditions(nested, inner.__getitem__)
    return found


@dataclass(frozen=True)
class Positions:
    """`rows` rows from each number in the value `pos` on are among `limit` rows; `where` says which."""

    pos: ir.Value
    rows: Size
    limit: Size
    where: str


def positions(op: ir.AnyOp, dims_of: DimsOf) -> Positions | None:
    """What an operation needs of the values of its `pos`, where it reads or writes the rows that they name."""
    view = op.opview
    if isinstance(view, mir.CacheUpdateOp):
        return Positions(view.pos, dims_of(view.new)[1], dims_of(view.cache)[1], f"the cache of {_where(op)}")
    if isinstance(view, mir.RopeOp) and view.pos is not None:
        return Positions(view.pos, dims_of(view.x)[-2], dims_of(view.cos)[0], f"the table of {_where(op)}")
    return None


def _where(op: ir.AnyOp) -> str:
    block, line = block_name(op.location), source_line(op.location)
    named = f" in block '{block}'" if block and block != op.name.partition(".")[2] else ""
    return f"'{op.name}'{named}{f' at {line}' if line else ''}"


def _broadcast(*shapes: Dims) -> Iterable[Rule]:
    """Sizes at one position are equal, but for those that are 1 in their type."""
    for position in range(1, max(map(len, shapes)) + 1):
        sizes = [shape[-position] for shape in shapes if len(shape) >= position and shape[-position].constant != 1]
        yield from ((sizes[0], size) for size in sizes[1:])


def _equal(first: Sequence[Size], second: Sequence[Size]) -> Iterable[Rule]:
    yield from zip(first, second, strict=True)


def _pointwise(view: ir.AnyOp, dims: DimsOf) -> Iterable[Rule]:
    return _broadcast(*(dims(v) for v in view.operation.operands))


def _matmul(view: mir.MatmulOp | mir.ScaledMatmulOp, dims: DimsOf) -> Iterable[Rule]:
    lhs, rhs = dims(view.lhs), dims(view.rhs)
    yield lhs[-1], rhs[-1 if view.transpose_rhs else -2]
    yield from _broadcast(lhs[:-2], rhs[:-2]) if len(lhs) > 2 and len(rhs) > 2 else ()


def _scaled_matmul(view: mir.ScaledMatmulOp, dims: DimsOf) -> Iterable[Rule]:
    lhs, rhs = dims(view.lhs), dims(view.rhs)
    yield from _matmul(view, dims)
    columns = (*rhs[:-2], rhs[-2 if view.transpose_rhs else -1])
    for scale, entries in ((view.lhs_scale, lhs[:-1]), (view.rhs_scale, columns)):
        if scale is not None and tuple(size.constant for size in dims(scale)) not in ((), (1,)):
            yield from _equal(dims(scale), entries)


def _fused_matmul(view: mir.FusedMatmulBiasActOp, dims: DimsOf) -> Iterable[Rule]:
    weight = dims(view.weight)
    inner, outer = reversed(weight) if view.transpose_rhs else weight
    return [(dims(view.x)[-1], inner), (dims(view.bias)[0], outer)]


def _dequant_matmul(view: mir.DequantMatmulOp, dims: DimsOf) -> Iterable[Rule]:
    return [(dims(view.x)[-1], _inner(view.weight))]


def _block_dot(view: mir.BlockDotOp | mir.GroupedBlockDotOp, dims: DimsOf) -> Iterable[Rule]:
    q, scale = dims(view.q), dims(view.scale)
    yield q[-1], _inner(view.weight)
    yield from _equal(q[:-1], scale[:-1])
    yield from _equal(scale, dims(view.sum))


def _inner(weight: ir.Value) -> Size:
    packed = packing(weight.type)
    assert packed is not None, "the verifier's rule"
    return Size.of(packed.k)


def _concat(view: mir.ConcatOp, dims: DimsOf) -> Iterable[Rule]:
    axis = python_value(view.axis)
    first, *others = (dims(v) for v in view.operation.operands)
    for other in others:
        yield from (pair for i, pair in enumerate(zip(first, other, strict=True)) if i != axis)


def _narrow(view: mir.NarrowOp, dims: DimsOf) -> Iterable[Rule]:
    end = python_value(view.start) + python_value(view.length)
    return [(dims(view.x)[python_value(view.axis)], Size.of(end), True)]


def _slice(view: mir.SliceOp, dims: DimsOf) -> Iterable[Rule]:
    if view.length is None:
        return []
    known = like_sizes(view, [dims(value) for value in view.like])
    count = sliced(view, dims(view.x)[python_value(view.axis)], known)[1]
    return [(count, Size.of(python_value(view.length)))]


def _dynamic_slice(view: mir.DynamicSliceOp, dims: DimsOf) -> Iterable[Rule]:
    axis = python_value(view.axis)
    length = dims(view.result)[axis]
    yield dims(view.x)[axis], length, True
    if not is_never_negative(length):
        yield length, Size.of(0), True


def _top_k(view: mir.TopKOp, dims: DimsOf) -> Iterable[Rule]:
    k = dims(view.values)[-1]
    yield dims(view.x)[-1], k, True
    if not is_never_negative(k):
        yield k, Size.of(0), True


def _dynamic_update_slice(view: mir.DynamicUpdateSliceOp, dims: DimsOf) -> Iterable[Rule]:
    axis = python_value(view.axis)
    for dim, (size, part) in enumerate(zip(dims(view.x), dims(view.update), strict=True)):
        yield (size, part, True) if dim == axis else (size, part)


def _reshape(view: mir.ReshapeOp, dims: DimsOf) -> Iterable[Rule]:
    result = dims(view.result)
    yield product(dims(view.x)), product(result)
    given = [size for size, entry in zip(result, python_value(view.new_shape), strict=True) if entry == -3]
    yield from ((size, Size.of(0), True) for size in given if not is_never_negative(size))


def _expand(view: mir.ExpandOp, dims: DimsOf) -> Iterable[Rule]:
    yield from _broadcast(dims(view.result), dims(view.x))
    yield from _like(view, dims)


def _like(view: mir.ExpandOp | mir.IotaOp, dims: DimsOf) -> Iterable[Rule]:
    """The result has sizes of another value."""
    if view.like is None:
        return []
    own, result = dims(view.like), dims(view.result)
    return [(result[at], own[source]) for at, source in enumerate(python_value(view.like_dims)) if source >= 0]


def _norm(view: ir.AnyOp, dims: DimsOf) -> Iterable[Rule]:
    x = dims(view.x)
    width = x[python_value(view.axis)] if hasattr(view, "axis") else x[-1]
    for vector in (view.gamma, view.beta, getattr(view, "bias", None)):
        if vector is not None:
            yield dims(vector)[0], width
    if hasattr(view, "residual"):
        yield from _equal(x, dims(view.residual))


def _multiple(size: Size, number: int) -> Rule:
    """The size is a multiple of the number."""
    return size, size // number * number


def _fused_swiglu(view: mir.FusedSwigluOp, dims: DimsOf) -> Iterable[Rule]:
    yield _multiple(dims(view.x)[-1], 2)


def _rope(view: mir.RopeOp, dims: DimsOf) -> Iterable[Rule]:
    yield _multiple(dims(view.x)[-1], python_value(view.head_dim))
    yield from _equal(dims(view.cos), dims(view.sin))
    if view.pos is not None and len(dims(view.x)) > 2:
        yield dims(view.pos)[0], dims(view.x)[0]
    if view.pos is None:
        yield dims(view.cos)[0], dims(view.x)[-2], True


def _cache_update(view: mir.CacheUpdateOp, dims: DimsOf) -> Iterable[Rule]:
    cache, new = dims(view.cache), dims(view.new)
    yield from [(new[0], cache[0]), (dims(view.pos)[0], cache[0])]
    yield cache[-1], new[-1] if view.scheme is None else _row_bytes(view.scheme, dims(view.new)[-1].constant)
    yield cache[1], new[1], True


def _row_bytes(scheme: ir.Attribute, width: int | None) -> Size:
    """Bytes of a row of so many elements, which are known where rows are blocks."""
    assert width is not None, "the verifier's rule"
    return Size.of(row_bytes(python_value(scheme), width))


def _attention(view: mir.AttentionOp, dims: DimsOf) -> Iterable[Rule]:
    q, k, v = dims(view.q), dims(view.k), dims(view.v)
    heads, kv_heads = python_value(view.num_heads), python_value(view.num_kv_heads) or python_value(view.num_heads)
    layout, width = python_value(view.layout), python_value(view.head_dim)
    for x, scheme in ((k, view.k_scheme), (v, view.v_scheme)):
        if scheme is not None:
            yield x[-1], _row_bytes(scheme, kv_heads * width)
    k, v = (
        x if scheme is None else (*x[:-1], Size.of(kv_heads * width))
        for x, scheme in ((k, view.k_scheme), (v, view.v_scheme))
    )
    yield from _equal(k, v)
    if len(q) == 4:
        axis = 1 if layout == "bhsd" else 2
        yield from [(q[axis], Size.of(heads)), (k[axis], Size.of(kv_heads)), (q[3], Size.of(width))]
        yield k[3], Size.of(width)
        sequence = 3 - axis
    else:
        yield from [(q[-1], Size.of(heads * width)), (k[-1], Size.of(kv_heads * width))]
        sequence = len(q) - 2
    batch = q[0] if len(q) > 2 else Size.of(1)
    yield from [(q[0], k[0])] if len(q) > 2 else []
    if view.pos is not None:
        yield dims(view.pos)[0], batch
    if view.sinks is not None:
        yield dims(view.sinks)[0], Size.of(heads)
    if view.mask is not None:
        mask = dims(view.mask)
        full = (batch, Size.of(heads), q[sequence], k[sequence]) if len(mask) == 4 else (batch, k[sequence])
        yield from ((size, own) for size, own in zip(mask, full, strict=True) if size.constant != 1)


def _gated_delta_net(view: mir.GatedDeltaNetOp, dims: DimsOf) -> Iterable[Rule]:
    q = dims(view.q)
    for value in (view.k, view.v):
        yield from _equal(dims(value), q)
    for value in (view.g, view.beta):
        yield from _equal(dims(value), q[:3])
    if view.state is not None:
        yield from _equal(dims(view.state), (q[0], q[2], q[3], q[3]))


def _selective_scan(view: mir.SelectiveScanOp, dims: DimsOf) -> Iterable[Rule]:
    (batch, steps, channels), n = dims(view.x), dims(view.a)[1]
    yield dims(view.a)[0], channels
    yield from _equal(dims(view.delta), dims(view.x))
    for value in (view.b, view.c):
        yield from _equal(dims(value), (batch, steps, n))
    if view.state is not None:
        yield from _equal(dims(view.state), (batch, channels, n))


def _splats(view: ir.AnyOp, dims: DimsOf) -> Iterable[Rule]:
    (count,) = dims(view.opacities)
    for value, size in ((view.positions, 3), (view.scales, 3), (view.rotations, 4), (view.colors, 3)):
        yield dims(value)[0], count * size
    yield dims(view.meta)[0], Size.of(META)
    if isinstance(view, mir.GaussianSplatRenderBackwardOp):
        yield dims(view.d_rgba)[0], Size.of(4 * Image.of(view).pixels)


def _rasterized(view: mir.GaussianSplatRasterizeOp, dims: DimsOf) -> Iterable[Rule]:
    (length,), shared = dims(view.prepared), Image.of(view).shared
    yield dims(view.meta)[0], Size.of(META)
    yield length, Size.of(shared + OF_SPLAT), True
    yield _multiple(length - shared, OF_SPLAT)


def _of_one_shape(view: ir.AnyOp, dims: DimsOf) -> Iterable[Rule]:
    first, *others = (dims(value) for value in view.operation.operands)
    for other in others:
        yield from _equal(other, first)


def _windows(view: ir.AnyOp, dims: DimsOf, kernel: Sequence[int]) -> Iterable[Rule]:
    """An image is at most one short of its windows; where it is the gradient of these, `dy` has one for each."""
    windows, x = Windows.of(view, kernel), dims(view.x)
    for size, span, padding in zip(x[2:], windows.spans, windows.padding, strict=True):
        yield size + 2 * padding, Size.of(span - 1), True
    if hasattr(view, "dy"):
        yield from _equal(dims(view.dy)[2:], windows.counts(x[2:]))
        yield dims(view.dy)[0], x[0]


def _conv(view: mir.ConvOp | mir.QConv2dOp | mir.Conv2dBackwardInputOp, dims: DimsOf) -> Iterable[Rule]:
    weight = dims(view.weight)
    yield dims(view.x)[1], weight[1] * python_value(view.groups)
    yield _multiple(weight[0], python_value(view.groups))
    yield from _windows(view, dims, view.weight.type.shape[2:])
    if hasattr(view, "dy"):
        yield dims(view.dy)[1], weight[0]


def _conv_transpose2d(view: mir.ConvTranspose2dOp, dims: DimsOf) -> Iterable[Rule]:
    x = dims(view.x)
    yield x[1], dims(view.weight)[0]
    yield _multiple(x[1], python_value(view.groups))
    yield from ((size, Size.of(0), True) for size in transposed_sizes(view, x))


def _conv2d_backward_weight(view: mir.Conv2dBackwardWeightOp, dims: DimsOf) -> Iterable[Rule]:
    yield from (_multiple(dims(image)[1], python_value(view.groups)) for image in (view.x, view.dy))
    yield from _windows(view, dims, python_value(view.kernel_size))


def _pool(view: mir.PoolOp | mir.MaxPool2dBackwardOp, dims: DimsOf) -> Iterable[Rule]:
    yield from _windows(view, dims, python_value(view.kernel_size))
    if hasattr(view, "dy"):
        yield dims(view.dy)[1], dims(view.x)[1]


def _group_norm(view: ir.AnyOp, dims: DimsOf) -> Iterable[Rule]:
    x = dims(view.x)
    yield _multiple(x[1], python_value(view.num_groups))
    for vector in (getattr(view, "gamma", None), getattr(view, "beta", None)):
        if vector is not None:
            yield dims(vector)[0], x[1]
    if hasattr(view, "dy"):
        yield from _equal(dims(view.dy), x)


def _by_scales(view: mir.QuantizeOp | mir.DequantizeOp, dims: DimsOf) -> Iterable[Rule]:
    if view.axis is not None:
        (x,) = (dims(v) for v in view.operation.operands)
        yield x[python_value(view.axis)], Size.of(len(python_value(view.scales)))


def _rounded(view: ir.AnyOp, dims: DimsOf) -> Iterable[Rule]:
    """There are as many scales as indices along the axis; a gradient is as large as what it is of."""
    x = dims(view.x)
    scale = view.state if isinstance(view, mir.FakeQuantizeOp) else view.scale
    if scale is not None:
        yield Size.of(1) if view.axis is None else x[python_value(view.axis)], dims(scale)[0]
    if hasattr(view, "g"):
        yield from _equal(x, dims(view.g))


def _q_matmul(view: mir.QMatmulOp, dims: DimsOf) -> Iterable[Rule]:
    yield dims(view.x)[1], dims(view.weight)[0]
    if view.bias is not None:
        yield dims(view.bias)[0], dims(view.weight)[1]


def _q_conv2d(view: mir.QConv2dOp, dims: DimsOf) -> Iterable[Rule]:
    yield from _conv(view, dims)
    if view.bias is not None:
        yield dims(view.bias)[0], dims(view.weight)[0]


def _gather(view: mir.GatherOp, dims: DimsOf) -> Iterable[Rule]:
    shared = python_value(view.batch_dims)
    table, indices = dims(view.table), dims(view.indices)
    yield from _equal(table[:shared], indices[:shared])
    yield from _entry_for_each(table[python_value(view.axis)], product(indices))


def _scatter_add(view: mir.ScatterAddOp, dims: DimsOf) -> Iterable[Rule]:
    indices, axis = dims(view.indices), python_value(view.axis)
    yield from _equal(dims(view.updates)[axis : axis + len(indices)], indices)


def _dot_general(view: mir.DotGeneralOp, dims: DimsOf) -> Iterable[Rule]:
    lhs, rhs = dims(view.lhs), dims(view.rhs)
    for pairs in ((view.lhs_contracting, view.rhs_contracting), (view.lhs_batch, view.rhs_batch)):
        yield from ((lhs[a], rhs[b]) for a, b in zip(*map(python_value, pairs), strict=True))


def _lora_matmul(view: mir.LoraMatmulOp, dims: DimsOf) -> Iterable[Rule]:
    weight, a, b = dims(view.weight), dims(view.a), dims(view.b)
    return [(dims(view.x)[-1], weight[0]), (a[0], weight[0]), (a[1], b[0]), (b[1], weight[1])]


def _solve(view: mir.DenseSolveOp | mir.BatchedDenseSolveOp, dims: DimsOf) -> Iterable[Rule]:
    a, b = dims(view.a), dims(view.b)
    yield a[-2], a[-1]
    yield from _equal(b[: len(a) - 1], a[:-1])


def _entry_for_each(entries: Size, count: Size) -> Iterable[Rule]:
    """There is an entry that indices are clamped to, where there is an index."""
    if entries.constant is None or entries.constant == 0:
        yield (entries, Size.of(1), True) if count.constant else (entries * count, count, True)


def _grouped_matmul(view: mir.GroupedMatmulOp, dims: DimsOf) -> Iterable[Rule]:
    x, weight = dims(view.x), dims(view.weight)
    yield from [(x[1], weight[1]), (x[0], dims(view.expert)[0])]
    yield from _entry_for_each(weight[0], x[0])


def _dequant_grouped_matmul(view: mir.DequantGroupedMatmulOp, dims: DimsOf) -> Iterable[Rule]:
    x = dims(view.x)
    return [(x[1], _inner(view.weight)), (x[0], dims(view.expert)[0])]


def _grouped_block_dot(view: mir.GroupedBlockDotOp, dims: DimsOf) -> Iterable[Rule]:
    yield from _block_dot(view, dims)
    yield dims(view.q)[0], dims(view.expert)[0]


def _cross_entropy(view: mir.SoftmaxCrossEntropyWithLogitsOp, dims: DimsOf) -> Iterable[Rule]:
    rows, classes = dims(view.logits)
    yield rows, dims(view.labels)[0]
    yield from _entry_for_each(classes, rows)


def _cross_entropy_backward(view: mir.SoftmaxCrossEntropyBackwardOp, dims: DimsOf) -> Iterable[Rule]:
    rows = dims(view.logits)[0]
    return [(rows, dims(view.labels)[0]), (rows, dims(view.d_loss)[0])]


def _encoder(view: mir.FusedAttentionBlockOp | mir.FusedTransformerLayerOp, dims: DimsOf) -> Iterable[Rule]:
    """What both have; the products and norms that they become have the rules of theirs."""
    batch, length, inner = dims(view.hidden)
    heads = python_value(view.num_heads)
    width = Size.of(heads * python_value(view.head_dim))
    yield from _equal(dims(view.qkv_w), (inner, 3 * width))
    yield from _equal(dims(view.out_w), (width, inner))
    for bias, size in ((view.qkv_b, 3 * width), (view.out_b, inner)):
        if bias is not None:
            yield dims(bias)[0], size
    mask = dims(view.mask)
    full = (batch, Size.of(heads), length, length) if len(mask) == 4 else (batch, length)
    yield from ((size, own) for size, own in zip(mask, full, strict=True) if size.constant != 1)


def _attention_block(view: mir.FusedAttentionBlockOp, dims: DimsOf) -> Iterable[Rule]:
    yield from _encoder(view, dims)
    if view.cos is not None and view.sin is not None:
        yield from _equal(dims(view.cos), dims(view.sin))
        yield dims(view.cos)[0], dims(view.hidden)[1], True


def _transformer_layer(view: mir.FusedTransformerLayerOp, dims: DimsOf) -> Iterable[Rule]:
    yield from _encoder(view, dims)
    inner, outer = dims(view.hidden)[2], dims(view.fc1_w)[1]
    yield from _equal((*dims(view.fc1_w), *dims(view.fc2_w)), (inner, outer, outer, inner))
    for vector in (view.ln1_g, view.ln1_b, view.ln2_g, view.ln2_b, view.fc2_b):
        if vector is not None:
            yield dims(vector)[0], inner
    if view.fc1_b is not None:
        yield dims(view.fc1_b)[0], outer


def _sample(view: mir.SampleOp, dims: DimsOf) -> Iterable[Rule]:
    values, chosen, draws, controls = (dims(v) for v in (view.values, view.chosen, view.draws, view.controls))
    yield from [(own[0], values[0]) for own in (chosen, draws, controls, dims(view.pos))]
    yield from [(draws[1], chosen[1]), (controls[1], Size.of(3))]
    yield chosen[1], Size.of(1), True


def _carried(view: ir.AnyOp, dims: DimsOf) -> Iterable[Rule]:
    return carried_rules(view, [dims(value) for value in view.operation.operands])


def _outputs(weight: ir.Value, dims: DimsOf, transposed: object) -> Size:
    if packing(weight.type) is None:
        return dims(weight)[0 if transposed else 1]
    return packed_rows(weight, dims(weight))


def _linear(view: ir.AnyOp, dims: DimsOf) -> Iterable[Rule]:
    if view.bias is not None:
        yield dims(view.bias)[0], _outputs(view.weight, dims, view.transpose_weight)


def _swiglu(view: ir.AnyOp, dims: DimsOf) -> Iterable[Rule]:
    gate, up = (_outputs(weight, dims, view.transpose_weight) for weight in (view.gate_w, view.up_w))
    yield gate, up


#: Of blocks, what their numpy references don't find themselves: they broadcast what has size 1. Lowered blocks have the
#: conditions of their primitives.
_BLOCK_RULES: dict[str, Callable[[ir.AnyOp, DimsOf], Iterable[Rule]]] = {
    "hir.linear": _linear,
    "hir.linear_fused": _linear,
    "hir.swiglu": _swiglu,
    "hir.rms_norm": _norm,
    "hir.residual_rms_norm": _norm,
}

_RULES: dict[str, Callable[[ir.AnyOp, DimsOf], Iterable[Rule]]] = {
    **{f"mir.{name}": _pointwise for name in ("add", "sub", "mul", "div", "max", "min", "pow", "compare", "where")},
    **{
        f"mir.{name}": _norm
        for name in ("rms_norm", "layer_norm", "fused_residual_rms_norm", "fused_residual_layer_norm")
    },
    "mir.matmul": _matmul,
    "mir.scaled_matmul": _scaled_matmul,
    "mir.fused_matmul_bias_act": _fused_matmul,
    "mir.dequant_matmul": _dequant_matmul,
    "mir.block_dot": _block_dot,
    "mir.concat": _concat,
    "mir.narrow": _narrow,
    "mir.slice": _slice,
    "mir.dynamic_slice": _dynamic_slice,
    "mir.dynamic_update_slice": _dynamic_update_slice,
    "mir.top_k": _top_k,
    "mir.reshape": _reshape,
    "mir.expand": _expand,
    "mir.iota": _like,
    "mir.fused_swiglu": _fused_swiglu,
    "mir.rope": _rope,
    "mir.cache_update": _cache_update,
    "mir.sample": _sample,
    "mir.attention": _attention,
    "mir.gated_delta_net": _gated_delta_net,
    "mir.selective_scan": _selective_scan,
    "mir.complex_norm_sq_backward": _of_one_shape,
    **{f"mir.gaussian_splat_{name}": _splats for name in ("prepare", "render", "render_backward")},
    "mir.gaussian_splat_rasterize": _rasterized,
    "mir.conv": _conv,
    **{f"mir.{name}": _by_scales for name in ("quantize", "dequantize")},
    **{f"mir.fake_quantize{name}": _rounded for name in ("", "_backward", "_lsq", "_lsq_backward_x")},
    "mir.fake_quantize_lsq_backward_scale": _rounded,
    "mir.q_matmul": _q_matmul,
    "mir.q_conv2d": _q_conv2d,
    "mir.conv2d_backward_input": _conv,
    "mir.conv2d_backward_weight": _conv2d_backward_weight,
    "mir.conv_transpose2d": _conv_transpose2d,
    "mir.pool": _pool,
    "mir.max_pool2d_backward": _pool,
    **{f"mir.group_norm{word}": _group_norm for word in ("", "_backward_input", "_backward_gamma")},
    "mir.gather": _gather,
    "mir.scatter_add": _scatter_add,
    "mir.dot_general": _dot_general,
    "mir.lora_matmul": _lora_matmul,
    "mir.dense_solve": _solve,
    "mir.batched_dense_solve": _solve,
    "mir.grouped_matmul": _grouped_matmul,
    "mir.dequant_grouped_matmul": _dequant_grouped_matmul,
    "mir.grouped_block_dot": _grouped_block_dot,
    "mir.softmax_cross_entropy_with_logits": _cross_entropy,
    "mir.softmax_cross_entropy_backward": _cross_entropy_backward,
    "mir.fused_attention_block": _attention_block,
    "mir.fused_transformer_layer": _transformer_layer,
    "mir.if": _carried,
    "mir.while": _carried,
    "mir.scan": _carried,
    **_BLOCK_RULES,
}
