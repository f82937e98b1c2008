# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel computes, read from its MIR: the specifications that templates for CPUs and schedules for GPUs take.

Each function raises UnsupportedByTemplate, with the reason, where a kernel isn't of the form that its class promises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from rlx_mlir import ir
from rlx_mlir.activations import BITS
from rlx_mlir.attributes import python_value
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.program import Argument, Broadcast, Program, Ref, Step
from rlx_mlir.codegen.row_graph import Operand, Result, RowProgram, split_rows
from rlx_mlir.codegen.row_graph import Step as RowStep
from rlx_mlir.codegen.specs import (
    AttentionSpec,
    BroadcastSpec,
    BroadcastStep,
    CacheSpec,
    Conv2dSpec,
    ConvSpec,
    GatherSpec,
    MoveSpec,
    ProductSpec,
    QuantizeSpec,
    SampleSpec,
    TopKSpec,
)
from rlx_mlir.dialects import mir
from rlx_mlir.kernel_classes import OWN
from rlx_mlir.lowering.convolutions import TRANSFORMS, is_by_channel, panels_of
from rlx_mlir.lowering.functions import memref_of
from rlx_mlir.lowering.fuse import producer, shape_of
from rlx_mlir.lowering.groups import PRODUCTS
from rlx_mlir.lowering.kernel_body import (
    body_of,
    buffer_of,
    constant_number,
    element_name,
    known_sizes,
    rounding_of,
)
from rlx_mlir.lowering.operation_specs import (
    read_call,
    read_fft,
    read_group_norm,
    read_grouped,
    read_loss,
    read_norm,
    read_pool,
    read_q_matmul,
    read_recurrence,
    read_reduce,
    read_scan,
    read_solve,
    read_state_space,
)
from rlx_mlir.mir.packed import packing, packing_of

# Products -----------------------------------------------------------------------------------------


def read_product(name: str, kernel: ir.AnyOp) -> ProductSpec:
    """A kernel of class gemm."""
    ops, returned = body_of(kernel)
    products = [op for op in ops if isinstance(op.opview, PRODUCTS)]
    first = products[0]
    if any(_signature(op) != _signature(first) for op in products[1:]):
        raise UnsupportedByTemplate(f"{name}: its products differ in more than their weights")
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    fused, scaled = (isinstance(first.opview, kind) for kind in (mir.FusedMatmulBiasActOp, mir.ScaledMatmulOp))
    inputs = [first.operands[0]] if fused or scaled else list(first.operands)[:-1]
    inputs, before, norm = _prologue(inputs)
    weights = [op.operands[1] if fused or scaled else list(op.operands)[-1] for op in products]
    if any(value not in numbers for value in [*inputs, *weights]):
        raise UnsupportedByTemplate(f"{name}: a product reads what its kernel computes")
    builder = _ProgramBuilder(name, products)
    if fused:
        builder.linear(first.opview)
    if scaled:
        builder.scaled(first.opview)
    for op in ops:
        if op not in before:
            builder.add(op)
    program = builder.program(returned)
    order = tuple(numbers[value] for value in [*inputs, *weights, *builder.arguments])
    result = first.results[0]
    x_element, element = element_name(inputs[0]), element_name(result)
    arguments = [v for v, own in zip(builder.arguments, program.arguments, strict=True) if not own.element]
    if any(element_name(value) != element for value in [*arguments, *returned]):
        raise UnsupportedByTemplate(f"{name}: a product of {element} meets values of another type")
    shapes = (known_sizes(inputs[0]), known_sizes(weights[0]), known_sizes(result))
    if isinstance(first.opview, mir.BlockDotOp | mir.DequantMatmulOp):
        kind: Literal["block_dot", "dequant_matmul"] = (
            "block_dot" if isinstance(first.opview, mir.BlockDotOp) else "dequant_matmul"
        )
        packed = packing_of(weights[0])
        quantises = any(op.name == "mir.block_quantize" for op in before)
        return ProductSpec(
            name,
            kind,
            *shapes,
            program,
            order,
            element,
            False,
            packed.scheme,
            packed.layout,
            norm=norm,
            quantises=quantises,
            bits=BITS.get(element_name(first.operands[0]), 8),
        )
    transposed = bool(first.opview.transpose_rhs)
    if scaled:
        float8 = (x_element, element_name(weights[0]))
        return ProductSpec(name, "scaled_matmul", *shapes, program, order, element, transposed, float8=float8)
    if element_name(weights[0]) != element:
        raise UnsupportedByTemplate(f"{name}: the operands are of {x_element} and {element_name(weights[0])}")
    return ProductSpec(name, "matmul", *shapes, program, order, element, transposed, norm=norm)


def _prologue(inputs: list[ir.Value]) -> tuple[list[ir.AnyOp], list[ir.Value], float | None]:
    """What a kernel reads in place of a product's inputs, the operations in between, and the epsilon of a norm."""
    before: list[ir.AnyOp] = []
    norm: float | None = None
    quantised = producer(inputs[0], mir.BlockQuantizeOp)
    if quantised is not None:
        before.append(quantised.operation)
        inputs = [quantised.x]
    if (found := producer(inputs[0], mir.RmsNormOp)) is not None:
        before.append(found.operation)
        inputs, norm = [found.x, found.gamma], float(python_value(found.eps))
    return inputs, before, norm


def _signature(op: ir.AnyOp) -> tuple[object, ...]:
    """What products of one kernel share: all but the weight."""
    return op.name, list(op.operands)[:-1], op.operands[len(op.operands) - 1].type, dict(op.attributes.items())


class _ProgramBuilder:
    """Turns the pointwise operations after products into the program of an epilogue."""

    def __init__(self, name: str, products: list[ir.AnyOp]) -> None:
        self._name = name
        self._products = products
        self._shape = shape_of(products[0].results[0])
        self._refs: dict[ir.Value, Ref] = {}
        self._steps: list[Step] = []
        self._kinds: list[Argument] = []
        self.arguments: list[ir.Value] = []
        for i, op in enumerate(products):
            self._refs[op.results[0]] = ("acc", i)
            if not isinstance(op.opview, mir.FusedMatmulBiasActOp | mir.ScaledMatmulOp):  # which aren't done yet
                self._define(op, ("acc", i))

    def _define(self, op: ir.AnyOp, ref: Ref) -> None:
        """The value of an operation, rounded where others read it so."""
        if element := rounding_of(op):
            self._steps.append(Step(f"to_{element}", (ref,)))
            ref = ("step", len(self._steps) - 1)
        self._refs[op.results[0]] = ref

    def linear(self, op: mir.FusedMatmulBiasActOp) -> None:
        """The bias and the activation of a fused product."""
        self._steps.append(Step("add", (("acc", 0), self._ref(op.bias))))
        if (activation := python_value(op.activation)) is not None:
            self._steps.append(Step(activation, (("step", len(self._steps) - 1),)))
        self._define(op.operation, ("step", len(self._steps) - 1))

    def scaled(self, op: mir.ScaledMatmulOp) -> None:
        """The scales of a product of 8 bits; UnsupportedByTemplate where an operand's batches aren't the result's."""
        value: Ref = ("acc", 0)
        for scale, natural, entries in (
            (op.lhs_scale, "column", self._shape[:-1]),
            (op.rhs_scale, "row", self._shape[-1:]),
        ):
            if scale is None:
                continue
            own = shape_of(scale)
            if own not in ([], [1], entries):
                raise UnsupportedByTemplate(f"{self._name}: scales {own} aren't those of a result {self._shape}")
            kind: Any = "scalar" if own in ([], [1]) else natural
            other = "f32" if element_name(op.result) != "f32" else ""
            self._kinds.append(Argument(kind, known_sizes(scale), other))
            self.arguments.append(scale)
            self._steps.append(Step("mul", (value, ("arg", len(self.arguments) - 1))))
            value = ("step", len(self._steps) - 1)
        self._define(op.operation, value)

    def add(self, op: ir.AnyOp) -> None:
        """One operation of the kernel."""
        if op in self._products:
            return
        if op.name == "mir.constant":
            self._refs[op.results[0]] = ("const", constant_number(op))
            return
        self._steps.append(Step(op.name.removeprefix("mir."), tuple(self._ref(v) for v in op.operands)))
        self._define(op, ("step", len(self._steps) - 1))

    def _ref(self, value: ir.Value) -> Ref:
        if value not in self._refs:
            self._kinds.append(Argument(self._broadcast(value), known_sizes(value)))
            self.arguments.append(value)
            self._refs[value] = ("arg", len(self.arguments) - 1)
        return self._refs[value]

    def _broadcast(self, value: ir.Value) -> Broadcast:
        """How an argument has the elements of the product."""
        own = shape_of(value)
        # A row whose length its type leaves open is as long as the others.
        row = own == self._shape[-1:] or (len(own) == 1 and own[0] < 0)
        return "full" if own == self._shape else "row" if row else "scalar"

    def program(self, returned: list[ir.Value]) -> Program:
        """The program that gives the returned values."""
        outputs = tuple(self._refs[value] for value in returned)
        return Program(tuple(self._steps), tuple(self._kinds), outputs, len(self._products))


class _ImageProgramBuilder(_ProgramBuilder):
    """The same after a convolution, whose columns are the places of an image, and whose rows outputs."""

    def _broadcast(self, value: ir.Value) -> Broadcast:
        if shape_of(value) == self._shape:
            return "full"
        return "column" if is_by_channel(value, self._products[0].results[0]) else "scalar"


# Rows ---------------------------------------------------------------------------------------------


def read_rows(name: str, kernel: ir.AnyOp) -> RowProgram:
    """A kernel of class rows; where there are vectors alone, they are one row."""
    ops, returned = body_of(kernel)
    names = {argument: f"a{number}" for number, argument in enumerate(kernel.arguments)}
    roles: dict[ir.Value, set[tuple[str, int | None]]] = {argument: set() for argument in kernel.arguments}
    rows = _RowShape([op for op in ops if op.name != "mir.constant"])
    steps: list[RowStep] = []
    updates: dict[ir.Value, ir.AnyOp] = {}
    for number, op in enumerate(ops):
        view, result = op.opview, op.results[0]
        if isinstance(view, mir.ReshapeOp):
            if view.x in roles:
                raise UnsupportedByTemplate(f"{name}: an operand is read in another shape")
            names[result] = names[view.x]
            continue
        rows.note_roles(view, roles)
        names[result] = f"s{number}"
        if isinstance(view, mir.CacheUpdateOp):
            updates[result] = view
            continue
        attributes = {key: python_value(value) for key, value in op.attributes.items()}
        attributes.pop("operandSegmentSizes", None)
        if op.name == "mir.constant":
            attributes = {"value": constant_number(op)}
        if op.name == "mir.cast":
            attributes = {"to": element_name(result)}
        read = tuple(None if value is None else names[value] for value in _named_operands(view))
        steps.append(RowStep(f"s{number}", op.name.removeprefix("mir."), read, attributes))
        if element := rounding_of(op):
            names[result] = f"s{number}r"
            steps.append(RowStep(names[result], "cast", (f"s{number}",), {"to": element}))
    operands = []
    for argument in kernel.arguments:
        if len(roles[argument]) != 1:
            raise UnsupportedByTemplate(f"{name}: an operand is used in {len(roles[argument])} ways")
        role, width = next(iter(roles[argument]))
        operands.append(Operand(names[argument], memref_of(argument.type), role, width))  # type: ignore[arg-type]
    if not any(own.role == "row" for own in operands):  # vectors alone are one row
        operands = [replace(own, role="row") if own.role == "vector" else own for own in operands]
    results = []
    for number, value in enumerate(returned):
        update = updates.get(value)
        source, pos = (value, None) if update is None else (update.new, names[update.pos])
        results.append(Result(f"r{number}", memref_of(value.type), names[source], pos, rows.width(source)))
    space = next((o.name for o in operands if o.role == "row" and len(shape_of_rows(o)) > (rows.axis or 0)), None)
    return RowProgram(tuple(operands), tuple(steps), tuple(results), space, rows.axis)


def shape_of_rows(operand: Operand) -> tuple[int | None, ...]:
    """The leading dimensions of an operand that holds rows."""
    return split_rows(operand.type, operand.width)[1]


class _RowShape:
    """How the operations of a kernel see its rows: some work on several of them side by side (heads).

    Attributes:
        axis: the dimension that positions count along; None where no operation reads positions.
    """

    def __init__(self, ops: list[ir.AnyOp]) -> None:
        if not ops:
            raise UnsupportedByTemplate("a kernel of constants alone")
        self._finest = max((_leading(_row_value(op.opview)) for op in ops), key=len)
        ranks = {
            len(shape_of(_row_value(op.opview))) for op in ops if isinstance(op.opview, mir.RopeOp | mir.CacheUpdateOp)
        }
        if len(ranks) > 1:
            raise UnsupportedByTemplate("positions count along several dimensions")
        self.axis = ranks.pop() - 2 if ranks else None

    def heads(self, value: ir.Value) -> int:
        """Rows that one row of the value consists of."""
        own = _leading(value)
        if own == self._finest:
            return 1
        if own != _without_ones(self._finest[:-1]) or self._finest[-1] < 1:
            raise UnsupportedByTemplate("operations work on rows that don't fit together")
        return self._finest[-1]

    def width(self, value: ir.Value) -> int | None:
        """Elements of a row in the value, where that isn't its last dimension."""
        heads = self.heads(value)
        return None if heads == 1 else shape_of(value)[-1] // heads

    def note_roles(self, view: ir.AnyOp, roles: dict[ir.Value, set[tuple[str, int | None]]]) -> None:
        """Notes how the operation uses each of the kernel's arguments."""
        special: dict[ir.Value, str] = {}
        if isinstance(view, mir.RopeOp):
            special = {view.cos: "table", view.sin: "table"}
            if view.pos is not None:
                special[view.pos] = "pos"
        elif isinstance(view, mir.CacheUpdateOp):
            special = {view.cache: "tied", view.pos: "pos"}
        own = _row_value(view)
        for value in view.operation.operands:
            if value in roles:
                roles[value].add((special[value], None) if value in special else self._role(value, own))

    def _role(self, value: ir.Value, own: ir.Value) -> tuple[str, int | None]:
        """The role of an operand beside what the operation computes, and its rows' width."""
        shape, heads = shape_of(value), self.heads(own)
        width = None if heads == 1 or not shape else shape[-1] // heads
        if len(shape) > 1 and shape[:-1] == shape_of(own)[:-1]:
            return "row", width
        if all(size == 1 for size in shape):
            return "scalar", None
        return "vector" if len(shape) == 1 and heads == 1 else "periodic", width


def _row_value(view: ir.AnyOp) -> ir.Value:
    return view.new if isinstance(view, mir.CacheUpdateOp) else view.operation.results[0]


def _leading(value: ir.Value) -> list[int]:
    """The leading dimensions of a value, without trailing ones."""
    return _without_ones(shape_of(value)[:-1])


def _without_ones(sizes: list[int]) -> list[int]:
    while sizes and sizes[-1] == 1:
        sizes = sizes[:-1]
    return sizes


def _named_operands(view: ir.AnyOp) -> list[ir.Value | None]:
    """The operands in the order of the operation's definition, None where an optional one is absent."""
    if isinstance(view, mir.RopeOp):
        return [view.x, view.cos, view.sin, view.pos]
    if isinstance(view, mir.RmsNormOp | mir.LayerNormOp):
        return [view.x, view.gamma, view.beta]
    if isinstance(view, mir.FusedResidualRmsNormOp | mir.FusedResidualLayerNormOp):
        return [view.x, view.residual, view.bias, view.gamma, view.beta]
    return list(view.operation.operands)


# Others -------------------------------------------------------------------------------------------


_ATTENTION_ATTRIBUTES = (
    *("num_heads", "head_dim", "num_kv_heads", "mask_kind", "window", "scale", "softcap", "layout"),
    *("k_scheme", "v_scheme"),
)


def read_attention(name: str, kernel: ir.AnyOp) -> AttentionSpec:
    """A kernel of class attention."""
    ops, _ = body_of(kernel)
    view = ops[0].opview
    shared = view.k == view.v
    values = None if shared else view.v
    given = [v for v in (view.q, view.k, values, view.mask, view.pos, view.sinks) if v is not None]
    if given != list(kernel.arguments):
        raise UnsupportedByTemplate(f"{name}: one value is several operands")
    return AttentionSpec(
        buffer_of(view.q),
        buffer_of(view.k),
        buffer_of(view.v),
        buffer_of(view.result),
        mask=buffer_of(view.mask),
        pos=buffer_of(view.pos),
        sinks=buffer_of(view.sinks),
        shared=shared,
        **{attribute: python_value(getattr(view, attribute)) for attribute in _ATTENTION_ATTRIBUTES},
    )


def read_cache(name: str, kernel: ir.AnyOp) -> CacheSpec:
    """A kernel of class cache: rows that become blocks of a cache."""
    ops, _ = body_of(kernel)
    view = ops[-1].opview
    given = [view.cache, view.new, view.pos]
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    if any(value not in numbers for value in given):
        raise UnsupportedByTemplate(f"{name}: an operand is a constant")
    cache, new, pos = (memref_of(value.type) for value in given)
    return CacheSpec(cache, new, pos, python_value(view.scheme), tuple(numbers[value] for value in given))


def read_quantize(name: str, kernel: ir.AnyOp) -> QuantizeSpec:
    """A kernel of class quantize, in blocks of 32, of an x of f32."""
    ops, returned = body_of(kernel)
    if element_name(kernel.arguments[0]) != "f32":
        raise UnsupportedByTemplate(f"{name}: quantisation of {element_name(kernel.arguments[0])} has no template")
    if python_value(ops[0].opview.block) != 32 or returned != list(ops[0].results):
        raise UnsupportedByTemplate(f"{name}: quantisation in blocks of another length than 32")
    return QuantizeSpec(known_sizes(kernel.arguments[0]), python_value(ops[0].opview.bits))


def read_conv(name: str, kernel: ir.AnyOp) -> ConvSpec:
    """A kernel of class conv: a depthwise convolution along a sequence."""
    ops, returned = body_of(kernel)
    turned, _, conv, _, back = (op.opview for op in ops)
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    given = [turned.x, conv.weight]
    if returned != [back.result] or any(value not in numbers for value in given):
        raise UnsupportedByTemplate(f"{name}: a convolution of a constant")
    order = tuple(numbers[value] for value in given)
    x, weight, result = (memref_of(value.type) for value in [*given, back.result])
    return ConvSpec(x, weight, result, order)


def read_top_k(name: str, kernel: ir.AnyOp) -> TopKSpec:
    """A kernel of class top_k."""
    ops, returned = body_of(kernel)
    view = ops[0].opview
    given = list(kernel.arguments)
    if view.x not in given:
        raise UnsupportedByTemplate(f"{name}: the operand is a constant")
    first = given.index(view.x)
    order = (first, *(number for number in range(len(given)) if number != first))
    others = tuple(memref_of(given[number].type) for number in order[1:])
    values, indices = (memref_of(value.type) if value in returned else None for value in (view.values, view.indices))
    flags = bool(view.smallest), bool(view.nan_largest)
    k = python_value(view.k)
    return TopKSpec(
        memref_of(view.x.type), values, indices, k if isinstance(k, int) else None, *flags, others=others, order=order
    )


def read_sample(name: str, kernel: ir.AnyOp) -> SampleSpec:
    """A kernel of class sample."""
    ops, returned = body_of(kernel)
    view = ops[-1].opview
    given = list(view.operation.operands)
    if list(kernel.arguments) != given or returned != list(view.operation.results):
        raise UnsupportedByTemplate(f"{name}: not all results are read, or an operand is a constant or stands twice")
    operands, results = (tuple(memref_of(value.type) for value in values) for values in (given, returned))
    return SampleSpec(operands, results, shape_of(view.values)[-1])


def read_gather(name: str, kernel: ir.AnyOp) -> GatherSpec:
    """A kernel of class gather: a gather, and element-wise operations on what it reads."""
    ops, returned = body_of(kernel)
    first = next(op for op in ops if op.name != "mir.constant")
    view = first.opview
    builder = _ProgramBuilder(name, [first])
    for op in ops:
        builder.add(op)
    program = builder.program(returned)
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    given = [view.table, view.indices, *builder.arguments]
    if any(value not in numbers for value in given):
        raise UnsupportedByTemplate(f"{name}: an operand is a constant")
    encoding = packing(view.table.type)
    table, indices, *arguments = (memref_of(value.type) for value in given)
    return GatherSpec(
        table,
        indices,
        tuple(arguments),
        tuple(memref_of(value.type) for value in returned),
        python_value(view.axis),
        python_value(view.batch_dims),
        tuple(numbers[value] for value in given),
        program,
        *(("", "", 0) if encoding is None else (encoding.scheme, encoding.layout, encoding.k)),
    )


def read_broadcast(name: str, kernel: ir.AnyOp) -> BroadcastSpec:
    """A kernel of class broadcast: element-wise operations, of which the last one's result is one of the kernel's."""
    ops, returned = body_of(kernel)
    ops_of_elements = [op for op in ops if op.name != "mir.constant"]
    if any(shape_of(op.results[0]) != shape_of(returned[-1]) for op in ops_of_elements):
        raise UnsupportedByTemplate(f"{name}: operations of several shapes")
    numbers: dict[ir.Value, int | float] = {argument: number for number, argument in enumerate(kernel.arguments)}
    numbers |= {op.results[0]: constant_number(op) for op in ops if op.name == "mir.constant"}
    count = len(kernel.arguments)
    steps: list[BroadcastStep] = []
    sizes: list[tuple[int, int, int]] = []
    for op in ops_of_elements:
        if op.name in ("mir.quantize", "mir.dequantize"):
            raise UnsupportedByTemplate(f"{name}: element-wise quantisation has no template")
        word, result, reads = op.name.removeprefix("mir."), element_name(op.results[0]), list(op.operands)
        if word in ("iota", "expand"):
            reads = reads[: word == "expand"]
            sizes += _sizes_of_like(op, numbers, count)
        word = "copy" if word == "expand" else word
        kind = python_value(op.attributes["kind"]) if word == "compare" else word
        axis = python_value(op.attributes["axis"]) if word == "iota" else 0
        numbers[op.results[0]] = count + len(steps)
        read = tuple(numbers[value] for value in reads)
        if word in ("compare", "cast") and not any(isinstance(value, int) for value in read):
            raise UnsupportedByTemplate(f"{name}: {word} of constants alone")  # whose type nothing would say
        steps.append(BroadcastStep(word, kind, read, result, rounds=bool(rounding_of(op)), axis=axis))
    given = tuple(int(numbers[value]) - count for value in returned)
    if min(given) < 0 or len(steps) - 1 not in given:
        raise UnsupportedByTemplate(f"{name}: expects results of operations, and that of the last one")
    operands = tuple(memref_of(argument.type) for argument in kernel.arguments)
    own = () if given == (len(steps) - 1,) else given
    return BroadcastSpec(operands, memref_of(returned[-1].type), tuple(steps), own, tuple(sizes))


def _sizes_of_like(op: ir.AnyOp, numbers: Mapping[ir.Value, int | float], count: int) -> list[tuple[int, int, int]]:
    """The dimensions of an operation's result that are as long as those of one of `count` operands of the kernel."""
    like, dims = op.opview.like, python_value(op.opview.like_dims) if op.opview.like is not None else []
    operand = numbers.get(like) if like is not None else None
    if not isinstance(operand, int) or operand >= count:
        return []
    return [(axis, operand, own) for axis, own in enumerate(dims) if own >= 0]


def read_conv2d(name: str, kernel: ir.AnyOp) -> Conv2dSpec:
    """A kernel of class conv2d: a `mir.conv`, perhaps of panels that are put in order, and functions of elements."""
    ops, returned = body_of(kernel)
    view = next(op.opview for op in ops if isinstance(op.opview, mir.ConvOp))
    before = panels_of(view)
    builder = _ImageProgramBuilder(name, [view.operation])
    for op in ops:
        if op not in before:
            builder.add(op)
    program = builder.program(returned)
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    given = [view.x, before[0].operands[0] if before else view.weight, *builder.arguments]
    if any(value not in numbers for value in given):
        raise UnsupportedByTemplate(f"{name}: an operand is a constant")
    stride, padding, dilation = (tuple(python_value(own)) for own in (view.stride, view.padding, view.dilation))
    x, weight, result, *arguments = (memref_of(v.type) for v in (view.x, view.weight, view.result, *builder.arguments))
    order, groups = tuple(numbers[value] for value in given), python_value(view.groups)
    geometry = (stride, padding, dilation, groups)
    return Conv2dSpec(
        *(x, weight, result, *geometry, order, program, tuple(arguments)),
        in_panels=bool(before),
        transformed=any(TRANSFORMS in op.attributes for op in before),
    )


def read_move(name: str, kernel: ir.AnyOp) -> MoveSpec:
    """A kernel of class move: one operation."""
    ops, _ = body_of(kernel)
    op = ops[-1]
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    if any(value not in numbers for value in op.operands):
        raise UnsupportedByTemplate(f"{name}: an operand is a constant")
    if op.name == "mir.slice":
        raise UnsupportedByTemplate(f"{name}: the bounds of a slice follow from sizes")
    if op.name == "mir.expand" and len(op.operands) > 1:
        raise UnsupportedByTemplate(f"{name}: the result has sizes of another value")
    known = ("permutation", "axis", "start", "length")
    attributes = {key: python_value(value) for key, value in op.attributes.items() if key in known}
    if "permutation" in attributes:
        attributes["permutation"] = tuple(attributes["permutation"])
    return MoveSpec(
        op.name.removeprefix("mir."),
        tuple(memref_of(value.type) for value in op.operands),
        memref_of(op.results[0].type),
        tuple(numbers[value] for value in op.operands),
        **attributes,
    )


#: What a kernel computes, as a class of `codegen.specs` says it: which one follows from the kernel's class.
Spec: TypeAlias = Any

#: What reads the kernels of a class.
READERS: Mapping[str, Callable[[str, ir.AnyOp], Spec]] = {
    "gemm": read_product,
    "rows": read_rows,
    "attention": read_attention,
    "cache": read_cache,
    "quantize": read_quantize,
    "recurrence": read_recurrence,
    "state_space": read_state_space,
    "conv": read_conv,
    "top_k": read_top_k,
    "sample": read_sample,
    "gather": read_gather,
    "move": read_move,
    "broadcast": read_broadcast,
    "conv2d": read_conv2d,
    "pool": read_pool,
    "reduce": read_reduce,
    "scan": read_scan,
    "norm": read_norm,
    "group_norm": read_group_norm,
    "solve": read_solve,
    "loss": read_loss,
    "fft": read_fft,
    "grouped": read_grouped,
    "q_matmul": read_q_matmul,
    OWN: read_call,
}
