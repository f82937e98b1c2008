# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Work on parameters that is done once: packing of weights, and hoisting into the function `@prepare`."""

from __future__ import annotations

from collections import Counter

from mlir.dialects import func

from rlx_mlir import ir
from rlx_mlir.activations import INTEGERS
from rlx_mlir.attributes import python_value
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.formats import PANEL_ROWS
from rlx_mlir.lowering.convolutions import pack_kernels
from rlx_mlir.lowering.extents import extent
from rlx_mlir.lowering.functions import (
    PREPARE,
    ROLE,
    argument_attributes,
    dictionary,
    entry_function,
    functions,
    raw_argument_attributes,
    result_attributes,
    set_signature,
)
from rlx_mlir.lowering.fuse import keep_result_wide, producer, shape_of
from rlx_mlir.lowering.hir_to_mir import activate
from rlx_mlir.mir.packed import LAYOUTS, packing, packing_of
from rlx_mlir.rewriting import (
    Option,
    PatternSet,
    Rewriter,
    ValueChange,
    apply_patterns,
    compiler_pass,
    identity,
    operations,
)
from rlx_mlir.runtime.prepare import OPERATIONS
from rlx_mlir.semantics.function import arguments, is_parameter, symbols_in, ties, unchanged_parameters

PACK, PLANES = PatternSet(), PatternSet()


#: What products may read: integers of so many bits, or floats as they are.
BITS = (*map(str, INTEGERS), "f32")


@compiler_pass(
    "mir-quantize-activations",
    options={
        "bits": Option("bits of what products read: 8, 15 or 22, or f32, which leaves it", "8", BITS),
        "attention": Option("the same of what queries, keys and values are computed from", "f32", BITS),
        "experts": Option("the same of what products with experts read", "f32", BITS),
    },
    changes_values=ValueChange("activations are rounded to integers, in blocks of 32", 0.05),
)
def quantize_activations(module: ir.Operation, *, bits: str, attention: str, experts: str) -> None:
    """Quantise what products with integer weights read, so that they use integer dot products.

    Changes values: the error is that of rounding each block of 32 activations to so many bits. Softmax amplifies the
    errors of queries, keys and values, and their weights are a small part of a model's: they have more, or none. So
    have products by which a selective scan goes into its states and reads them, whose errors multiply one another.
    """
    apply_patterns(module, quantizing(bits, attention, experts))


def quantizing(bits: str, attention: str, experts: str) -> PatternSet:
    """The pattern that quantises what products read; the words are those of the pass's options."""
    patterns = PatternSet()

    def bits_of(op: ir.AnyOp, usual: str, rewriter: Rewriter) -> int | None:
        """Bits of what a product reads; None, which the rewriter is told, where it stays as it is."""
        for_attention = attention != usual and feeds_attention(op.result)
        wanted = attention if for_attention else usual
        if wanted == "f32" and for_attention:
            rewriter.no_match("attention reads the product, and softmax amplifies errors: it stays exact")
        elif wanted == "f32":
            rewriter.no_match("activations stay in f32")
        else:
            return int(wanted)
        return None

    @patterns.pattern(mir.DequantMatmulOp)
    def quantize_product(op: mir.DequantMatmulOp, rewriter: Rewriter) -> None:
        """dequant_matmul(x, W) -> block_dot(block_quantize(x), W)"""
        wanted = bits_of(op, bits, rewriter)
        if wanted is not None and _has_integers(op, rewriter):
            x = mir.BlockQuantizeOp(op.x, bits=wanted)
            rewriter.replace(op, mir.block_dot(x.q, x.scale, x.sum, op.weight))

    @patterns.pattern(mir.DequantGroupedMatmulOp)
    def quantize_experts(op: mir.DequantGroupedMatmulOp, rewriter: Rewriter) -> None:
        """dequant_grouped_matmul(x, W, e) -> grouped_block_dot(block_quantize(x), W, e)"""
        wanted = bits_of(op, experts, rewriter)
        if wanted is not None and _has_whole_panels(op, rewriter, 2) and _has_integers(op, rewriter):
            x = mir.BlockQuantizeOp(op.x, bits=wanted)
            rewriter.replace(op, mir.grouped_block_dot(x.q, x.scale, x.sum, op.weight, op.expert, op.experts))

    return patterns


#: Operations that may stand between a projection and attention, those of heads that share a cached row last.
BEFORE_ATTENTION = frozenset(
    f"mir.{word}"
    for word in (
        *("narrow", "reshape", "rope", "cache_update", "rms_norm", "add"),
        *("concat", "dequant_grouped_matmul", "grouped_block_dot"),
    )
)

#: The operands of a selective scan that are what keys and queries are for attention.
_OF_SCANS = (3, 4)


def feeds_attention(value: ir.Value) -> bool:
    """Whether attention reads the value, or a scan by it, as it is or after the operations of a projection."""
    seen: set[int] = set()
    work = [value]
    while work:
        current = work.pop()
        for use in current.uses:
            user = use.owner.operation
            if user.name == "mir.attention":
                return True
            if user.name == "mir.selective_scan" and use.operand_number in _OF_SCANS:
                return True
            if user.name == "mir.add" and not any(map(_belongs_to_product, user.operands)):
                continue  # Neither: the stream of residuals goes on to other layers.
            if user.name in BEFORE_ATTENTION and identity(user) not in seen:
                seen.add(identity(user))
                work.append(user.results[0])
    return False


def _belongs_to_product(value: ir.Value) -> bool:
    """Whether a term is a bias, or what an adapter adds: a dense product."""
    return len(shape_of(value)) == 1 or producer(value, mir.MatmulOp) is not None


def _has_integers(op: mir.DequantMatmulOp | mir.DequantGroupedMatmulOp, rewriter: Rewriter) -> bool:
    """Whether there are integer products with the weight; the rewriter is told where not."""
    fmt = packing_of(op.weight).format
    if not (fmt.has_panels and fmt.has_integers):
        rewriter.no_match(f"{fmt.name} has no integer dot product")
    elif str(ir.RankedTensorType(op.x.type).element_type) != "f32":
        rewriter.no_match("the activations aren't of f32")
    else:
        return True
    return False


def _has_whole_panels(
    op: mir.DequantGroupedMatmulOp | mir.GroupedBlockDotOp, rewriter: Rewriter, together: int = 1
) -> bool:
    """Whether each expert has whole panels, so many at a time, which templates read; the rewriter is told where not."""
    rows, whole = shape_of(op.result)[1], together * PANEL_ROWS
    if rows % whole:
        rewriter.no_match(f"an expert has {rows} rows, no multiple of the {whole} of {together} panels")
    return rows % whole == 0


@compiler_pass(
    "mir-pack-weights",
    options={"layout": Option("layout of the weights: panels for CPUs, planes for GPUs", "panels", LAYOUTS[1:])},
)
def pack_weights(module: ir.Operation, *, layout: str) -> None:
    """Repack weights that products read into another layout; run mir-hoist-params after it.

    Panels are for all weights, and for kernels of images: convolutions read panels that are put back in order, which
    their own kernel leaves out. Planes are for packed ones: dense weights keep their rows, and what looks up rows of a
    weight that has planes reads these too.
    """
    apply_patterns(module, PLANES if layout == "planes" else PACK)


#: Bytes of a constant that may go into @prepare: what runs there is part of the artefact's description.
MAX_CONSTANT = 1 << 16


def can_prepare(op: ir.AnyOp) -> bool:
    """Whether the operation can run when parameters are set: by numpy, with sizes that are known."""
    if op.name == "mir.constant":
        value = op.attributes["value"]
        kind = ir.RankedTensorType(op.results[0].type)
        size = 0 if not isinstance(value, ir.DenseElementsAttr) or value.is_splat else extent(kind)
        return isinstance(value, ir.DenseElementsAttr) and str(kind.element_type) in DTYPES and size <= MAX_CONSTANT
    if op.name.removeprefix("mir.") not in OPERATIONS or (op.name == "mir.reshape" and len(op.operands) > 1):
        return False
    types = [ir.RankedTensorType(v.type) for v in (*op.operands, *op.results)]
    if not all(kind.has_static_shape for kind in types):
        return False
    # Conversions that round twice, or drop bits, are more than numpy's.
    source, *_, target = (str(kind.element_type) for kind in types)
    halves = ("f16", "bf16", "f32")
    return op.name != "mir.cast" or (source in halves and target in (*halves, "i32"))


def follows_from_parameters(value: ir.Value) -> bool:
    """Whether the value follows from parameters and constants, by operations that can run when parameters are set."""
    if is_parameter(value):
        return True
    owner = value.owner
    if isinstance(owner, ir.Block) or not can_prepare(owner.operation):
        return False
    operands = [v for v in owner.operands if not _is_fixed(v)]
    return bool(operands) and all(follows_from_parameters(v) for v in operands)


def _is_fixed(value: ir.Value) -> bool:
    """Whether the value follows from constants alone, by operations that can run when parameters are set."""
    owner = value.owner
    return not isinstance(owner, ir.Block) and can_prepare(owner.operation) and all(map(_is_fixed, owner.operands))


def is_known(value: ir.Value) -> bool:
    """Whether the value is known before the first call, and can be prepared."""
    return follows_from_parameters(value) or _is_fixed(value)


def pack_operand(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """product with rows of a packed weight -> product with its panels"""
    _repack(op, rewriter, "panels")


PACK.pattern(mir.DequantMatmulOp)(pack_operand)
PACK.pattern(mir.BlockDotOp)(pack_operand)


def pack_experts(op: mir.DequantGroupedMatmulOp | mir.GroupedBlockDotOp, rewriter: Rewriter) -> None:
    """product with the rows of packed experts -> product with their panels, where each expert has whole ones"""
    if _has_whole_panels(op, rewriter):
        _repack(op, rewriter, "panels")


PACK.pattern(mir.DequantGroupedMatmulOp)(pack_experts)
PACK.pattern(mir.GroupedBlockDotOp)(pack_experts)


def planes_operand(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """product with rows of a packed weight -> product with its planes, which gathers of its rows read too"""
    _repack(op, rewriter, "planes")


def _repack(op: ir.AnyOp, rewriter: Rewriter, layout: str) -> None:
    weight, packed = op.weight, packing_of(op.weight)
    if packed.layout != "rows" or not is_known(weight):
        return
    if not (packed.format.has_planes if layout == "planes" else packed.format.has_panels):
        return rewriter.no_match(f"{packed.scheme} has no {layout}")
    if min(shape_of(weight)) < 0:
        return rewriter.no_match("the weight has a dynamic size")
    repacked = mir.repack(weight, layout=ir.Attribute.parse(f"#mir<layout {layout}>"))
    for number, operand in enumerate(op.operation.operands):
        if operand == weight:
            op.operation.operands[number] = repacked
    rewriter.changed()


def gather_planes(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """gather(table in rows), where a product reads planes of the table -> gather(planes)"""
    table = op.table
    packed = packing(table.type)
    if packed is None or packed.layout != "rows":
        return
    for use in table.uses:
        user = use.owner
        if user.operation.name == "mir.repack" and packing_of(user.results[0]).layout == "planes":
            planes = mir.repack(table, layout=ir.Attribute.parse("#mir<layout planes>"))
            op.operation.operands[0] = planes
            rewriter.changed()
            return


PLANES.pattern(mir.DequantMatmulOp)(planes_operand)
PLANES.pattern(mir.BlockDotOp)(planes_operand)
PLANES.pattern(mir.GatherOp)(gather_planes)


def pack_dense(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """matmul with a dense matrix of parameters -> dequant_matmul with its panels, then bias and activation"""
    matmul = isinstance(op, mir.MatmulOp)
    x, weight = (op.lhs, op.rhs) if matmul else (op.x, op.weight)
    kind = ir.RankedTensorType(weight.type)
    if len(kind.shape) != 2 or not kind.has_static_shape or not is_known(weight):
        return
    if str(kind.element_type) not in IN_F32:
        return rewriter.no_match(f"products of {kind.element_type} have no template")
    if 0 in kind.shape:
        return rewriter.no_match("the weight is empty")
    rows = weight if op.transpose_rhs else mir.transpose(weight, [1, 0])
    y = mir.dequant_matmul(x, mir.repack(rows))
    if not matmul:  # the fused operation rounds once
        y = mir.add(keep_result_wide(y), op.bias)
        y = y if op.activation is None else activate(op.activation, keep_result_wide(y))
    rewriter.replace(op, y)


PACK.pattern(mir.MatmulOp)(pack_dense)
PACK.pattern(mir.FusedMatmulBiasActOp)(pack_dense)


def pack_convolution(op: mir.ConvOp, rewriter: Rewriter) -> None:
    """convolution with kernels of parameters -> convolution that reads their numbers for 16 outputs side by side"""
    pack_kernels(op, rewriter, is_known)


PACK.pattern(mir.ConvOp)(pack_convolution)


@compiler_pass("mir-hoist-params")
def hoist_params(module: ir.Operation) -> None:
    """Move what follows from parameters and constants into @prepare, which runs once when parameters are set."""
    function = entry_function(module)
    names = {number: own.get("mir.name") for number, own in enumerate(argument_attributes(function))}
    parameters = unchanged_parameters(function.operation)
    hoisted: dict[int, ir.AnyOp] = {}
    fixed: dict[int, ir.AnyOp] = {}  # what follows from constants alone: @prepare gets copies of what it needs
    for op in operations(function, nested=False):
        if not can_prepare(op):
            continue
        others = [v for v in op.operands if isinstance(v.owner, ir.Block) or identity(v.owner) not in fixed]
        if not others and op.name != "mir.repack":
            fixed[identity(op)] = op
        elif all(_from(v, parameters, hoisted) for v in others):
            hoisted[identity(op)] = op
    if not hoisted:
        return
    needed = _needed(hoisted, fixed)
    escaping = [
        result
        for op in hoisted.values()
        for result in op.results
        if any(identity(use.owner) not in hoisted for use in result.uses)
    ]
    block = function.operation.regions[0].blocks[0]
    sources = [argument for argument in block.arguments if any(identity(use.owner) in hoisted for use in argument.uses)]
    with function.operation.location:
        attributes = [_named(own, number) for number, own in enumerate(raw_argument_attributes(function))]
        labels = _labels(escaping, names)
        prepare = _declare_prepare(module, [s.type for s in sources], [v.type for v in escaping])
        prepare.operation.attributes["arg_attrs"] = ir.ArrayAttr.get([attributes[s.arg_number] for s in sources])
        prepare.operation.attributes["res_attrs"] = ir.ArrayAttr.get(
            [dictionary(mir__name=ir.StringAttr.get(label)) for label in labels]
        )
        moved = [op for op in operations(function, nested=False) if identity(op) in hoisted or identity(op) in needed]
        fill_function(moved, sources, escaping, prepare)
        for value, label in zip(escaping, labels, strict=True):
            argument = block.add_argument(value.type, function.operation.location)
            attributes.append(dictionary(mir__name=ir.StringAttr.get(label), mir__kind=ir.StringAttr.get("param")))
            value.replace_all_uses_with(argument)
    for op in reversed(list(hoisted.values())):
        op.erase()
    for op in reversed([op for number, op in fixed.items() if number in needed]):
        if next(iter(op.results[0].uses), None) is None:
            op.erase()
    named = set(ties(function.operation).values())
    tied = {own.index for own in arguments(function.operation) if own.name in named}
    for number in reversed(range(len(block.arguments))):
        argument = block.arguments[number]
        unread = next(iter(argument.uses), None) is None and number not in tied
        if is_parameter_attribute(attributes[number]) and unread:
            block.erase_argument(number)
            del attributes[number]
    set_signature(function, attributes)


def prepare_constant(module: ir.AnyModule, constant: ir.AnyOp) -> ir.Value:
    """An argument of the entry function that @prepare gives a constant for: it is in memory once, not in each call."""
    function = entry_function(module)
    found = functions(module, PREPARE)
    with function.operation.location:
        prepare = found[0] if found else _declare_prepare(module, [], [])
        if not found:
            with ir.InsertionPoint(prepare.add_entry_block()):
                func.ReturnOp([])
        *_, end = operations(prepare, nested=False)
        names = [own["mir.name"] for own in result_attributes(prepare)]
        labels = ("constant:prepared", *(f"constant:prepared#{number + 2}" for number in range(len(names))))
        label = next(name for name in labels if name not in names)
        with ir.InsertionPoint(end):
            value = constant.operation.clone().results[0]
            func.ReturnOp([*end.operands, value])
        end.erase()
        named = [dictionary(mir__name=ir.StringAttr.get(name)) for name in (*names, label)]
        set_signature(prepare, raw_argument_attributes(prepare), named)
        given = dictionary(mir__name=ir.StringAttr.get(label), mir__kind=ir.StringAttr.get("param"))
        attributes = [_named(own, number) for number, own in enumerate(raw_argument_attributes(function))]
        argument: ir.Value = function.operation.regions[0].blocks[0].add_argument(value.type, constant.location)
        set_signature(function, [*attributes, given])
    return argument


def _declare_prepare(module: ir.AnyModule, takes: list[ir.Type], gives: list[ir.Type]) -> ir.AnyOp:
    """@prepare of these types, without a body."""
    with ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]):
        prepare = func.FuncOp(_free_name(module, "prepare"), ir.FunctionType.get(takes, gives))
    prepare.operation.attributes[ROLE] = ir.StringAttr.get(PREPARE)
    return prepare


def _named(attributes: ir.DictAttr, number: int) -> ir.Attribute:
    """The attributes of an argument with its name, which its number gives where it has none: numbers change."""
    if "mir.name" in attributes:
        return attributes
    own = {entry.name: entry.attr for entry in attributes}
    return ir.DictAttr.get({**own, "mir.name": ir.StringAttr.get(f"arg{number}")})


def is_parameter_attribute(attributes: ir.DictAttr) -> bool:
    """Whether an argument's attributes say that it is a parameter."""
    return "mir.kind" in attributes and python_value(attributes["mir.kind"]) == "param"


def _needed(hoisted: dict[int, ir.AnyOp], fixed: dict[int, ir.AnyOp]) -> set[int]:
    """The operations among `fixed` that hoisted ones read, or that those read."""
    needed: set[int] = set()
    work = list(hoisted.values())
    while work:
        for operand in work.pop().operands:
            number = 0 if isinstance(operand.owner, ir.Block) else identity(operand.owner)
            if number in fixed and number not in needed:
                needed.add(number)
                work.append(fixed[number])
    return needed


def _from(value: ir.Value, parameters: set[int], hoisted: dict[int, ir.AnyOp]) -> bool:
    if isinstance(value.owner, ir.Block):
        return ir.BlockArgument(value).arg_number in parameters
    return identity(value.owner) in hoisted


def _free_name(module: ir.AnyModule, name: str) -> str:
    taken = symbols_in(module.regions[0].blocks[0])
    while name in taken:
        name += "_"
    return name


def _labels(values: list[ir.Value], names: dict[int, str | None]) -> list[str]:
    """A name for each prepared value: the names of what it comes from, numbered where not unique."""

    def sources(value: ir.Value) -> list[str]:
        if isinstance(value.owner, ir.Block):
            number = ir.BlockArgument(value).arg_number
            return [names[number] or f"arg{number}"]
        return [name for operand in value.owner.operands for name in sources(operand)]

    labels: list[str] = []
    seen: Counter[str] = Counter()
    for value in values:
        suffix = packing_of(value).layout if producer(value, mir.RepackOp) is not None else "prepared"
        label = ("+".join(dict.fromkeys(sources(value))) or "constant") + ":" + suffix
        seen[label] += 1
        labels.append(label if seen[label] == 1 else f"{label}#{seen[label]}")
    return labels


def fill_function(ops: list[ir.AnyOp], sources: list[ir.Value], escaping: list[ir.Value], target: ir.AnyOp) -> None:
    """Clones the operations into the empty function, which returns the escaping values."""
    block = target.add_entry_block()
    mapping = dict(zip(sources, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        clone_into(ops, mapping)
        func.ReturnOp([mapping[value] for value in escaping])


def clone_into(ops: list[ir.AnyOp], mapping: dict[ir.Value, ir.Value]) -> None:
    """Clones operations at the insertion point, with operands as `mapping` says; adds their results to it."""
    for op in ops:
        clone = op.operation.clone()
        for number, operand in enumerate(op.operation.operands):
            if operand in mapping:
                clone.operation.operands[number] = mapping[operand]
        for old, new in zip(op.operation.results, clone.operation.results, strict=True):
            mapping[old] = new
