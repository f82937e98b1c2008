# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel computes, read from its MIR: the specifications that templates for CPUs and schedules for GPUs take.

Each function raises UnsupportedByTemplate, with the reason, where a kernel isn't of the form that its class promises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    CallSpec,
    Conv2dSpec,
    ConvSpec,
    FftPart,
    FftSpec,
    GatherSpec,
    GroupedSpec,
    GroupNormSpec,
    LossSpec,
    MoveSpec,
    NormSpec,
    PackedGroupedSpec,
    PoolSpec,
    ProductSpec,
    QMatmulSpec,
    QuantizeSpec,
    RecurrenceSpec,
    ReduceSpec,
    SampleSpec,
    ScanSpec,
    SolveSpec,
    StateSpaceSpec,
    TopKSpec,
)
from rlx_mlir.dialects import mir
from rlx_mlir.kernel_classes import OWN
from rlx_mlir.lowering.convolutions import TRANSFORMS, is_by_channel, panels_of
from rlx_mlir.lowering.functions import called_operation, memref_of
from rlx_mlir.lowering.fuse import keeps_wide, producer, shape_of
from rlx_mlir.lowering.groups import PRODUCTS
from rlx_mlir.mir.custom import parameters_of, registered
from rlx_mlir.mir.fft import length_of, scale_of
from rlx_mlir.mir.packed import packing, packing_of
from rlx_mlir.own_ops import native_parameters
from rlx_mlir.rewriting import operations


def _body(kernel: ir.AnyOp) -> tuple[list[ir.AnyOp], list[ir.Value]]:
    """The kernel's operations, and the values that it returns."""
    *ops, terminator = operations(kernel, nested=False)
    return ops, list(terminator.operands)


def _sizes(value: ir.Value) -> tuple[int | None, ...]:
    return tuple(None if size < 0 else size for size in shape_of(value))


def _element(value: ir.Value) -> str:
    return str(ir.RankedTensorType(value.type).element_type)


def _constant(op: ir.AnyOp) -> float:
    """The one number of a constant; UnsupportedByTemplate where its elements differ."""
    value = op.attributes["value"]
    if isinstance(value, ir.DenseFPElementsAttr) and value.is_splat:
        return float(value.get_splat_value().value)
    if isinstance(value, ir.DenseIntElementsAttr) and value.is_splat:
        number = int(value.get_splat_value().value)
        if number == int(float(number)):
            return float(number)
        raise UnsupportedByTemplate(f"a constant with more digits than f64 has: {number}")
    raise UnsupportedByTemplate("a constant whose elements differ")


#: Operations whose results have no more digits than their operands.
EXACT = frozenset(
    f"mir.{word}"
    for word in (
        *("neg", "abs", "relu", "max", "min", "round", "where"),
        *("narrow", "reshape", "constant", "cast", "cache_update", "gather"),
    )
)


def _rounding(op: ir.AnyOp) -> str:
    """The type that an operation's result is rounded to before another one of its kernel reads it; empty for none.

    Kernels compute f16 and bf16 in f32. Values between operations are rounded as the graph has them, unless the module
    says that they may stay wide (see `mir-keep-wide`).
    """
    element = _element(op.results[0])
    if element not in ("f16", "bf16") or op.name in EXACT or keeps_wide(op):
        return ""
    return element if any(use.owner.name != "func.return" for use in op.results[0].uses) else ""


# Products -----------------------------------------------------------------------------------------


def read_product(name: str, kernel: ir.AnyOp) -> ProductSpec:
    """A kernel of class gemm."""
    ops, returned = _body(kernel)
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
    arguments = [v for v, own in zip(builder.arguments, program.arguments, strict=True) if not own.element]
    if any(_element(value) != _element(result) for value in [*arguments, *returned]):
        raise UnsupportedByTemplate(f"{name}: a product of {_element(result)} meets values of another type")
    shapes = (_sizes(inputs[0]), _sizes(weights[0]), _sizes(result))
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
            _element(result),
            False,
            packed.scheme,
            packed.layout,
            norm=norm,
            quantises=quantises,
            bits=BITS.get(_element(first.operands[0]), 8),
        )
    transposed = bool(first.opview.transpose_rhs)
    if scaled:
        float8 = (_element(inputs[0]), _element(weights[0]))
        return ProductSpec(name, "scaled_matmul", *shapes, program, order, _element(result), transposed, float8=float8)
    if _element(weights[0]) != _element(result):
        raise UnsupportedByTemplate(f"{name}: the operands are of {_element(inputs[0])} and {_element(weights[0])}")
    return ProductSpec(name, "matmul", *shapes, program, order, _element(result), transposed, norm=norm)


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
        if element := _rounding(op):
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
            other = "f32" if _element(op.result) != "f32" else ""
            self._kinds.append(Argument(kind, _sizes(scale), other))
            self.arguments.append(scale)
            self._steps.append(Step("mul", (value, ("arg", len(self.arguments) - 1))))
            value = ("step", len(self._steps) - 1)
        self._define(op.operation, value)

    def add(self, op: ir.AnyOp) -> None:
        """One operation of the kernel."""
        if op in self._products:
            return
        if op.name == "mir.constant":
            self._refs[op.results[0]] = ("const", _constant(op))
            return
        self._steps.append(Step(op.name.removeprefix("mir."), tuple(self._ref(v) for v in op.operands)))
        self._define(op, ("step", len(self._steps) - 1))

    def _ref(self, value: ir.Value) -> Ref:
        if value not in self._refs:
            self._kinds.append(Argument(self._broadcast(value), _sizes(value)))
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
    """A kernel of class rows."""
    ops, returned = _body(kernel)
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
            attributes = {"value": _constant(op)}
        if op.name == "mir.cast":
            attributes = {"to": _element(result)}
        read = tuple(None if value is None else names[value] for value in _named_operands(view))
        steps.append(RowStep(f"s{number}", op.name.removeprefix("mir."), read, attributes))
        if element := _rounding(op):
            names[result] = f"s{number}r"
            steps.append(RowStep(names[result], "cast", (f"s{number}",), {"to": element}))
    operands = []
    for argument in kernel.arguments:
        if len(roles[argument]) != 1:
            raise UnsupportedByTemplate(f"{name}: an operand is used in {len(roles[argument])} ways")
        role, width = next(iter(roles[argument]))
        operands.append(Operand(names[argument], memref_of(argument.type), role, width))  # type: ignore[arg-type]
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


def _buffer_of(value: ir.Value) -> Any:
    """The buffer of an operand; None where it is absent."""
    return None if value is None else memref_of(value.type)


_ATTENTION_ATTRIBUTES = (
    *("num_heads", "head_dim", "num_kv_heads", "mask_kind", "window", "scale", "softcap", "layout"),
    *("k_scheme", "v_scheme"),
)


def read_attention(name: str, kernel: ir.AnyOp) -> AttentionSpec:
    """A kernel of class attention."""
    ops, _ = _body(kernel)
    view = ops[0].opview
    shared = view.k == view.v
    values = None if shared else view.v
    given = [v for v in (view.q, view.k, values, view.mask, view.pos, view.sinks) if v is not None]
    if given != list(kernel.arguments):
        raise UnsupportedByTemplate(f"{name}: one value is several operands")
    return AttentionSpec(
        _buffer_of(view.q),
        _buffer_of(view.k),
        _buffer_of(view.v),
        _buffer_of(view.result),
        mask=_buffer_of(view.mask),
        pos=_buffer_of(view.pos),
        sinks=_buffer_of(view.sinks),
        shared=shared,
        **{attribute: python_value(getattr(view, attribute)) for attribute in _ATTENTION_ATTRIBUTES},
    )


def read_cache(name: str, kernel: ir.AnyOp) -> CacheSpec:
    """A kernel of class cache: rows that become blocks of a cache."""
    ops, _ = _body(kernel)
    view = ops[-1].opview
    given = [view.cache, view.new, view.pos]
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    if any(value not in numbers for value in given):
        raise UnsupportedByTemplate(f"{name}: an operand is a constant")
    cache, new, pos = (memref_of(value.type) for value in given)
    return CacheSpec(cache, new, pos, python_value(view.scheme), tuple(numbers[value] for value in given))


def read_quantize(name: str, kernel: ir.AnyOp) -> QuantizeSpec:
    """A kernel of class quantize, in blocks of 32, of an x of f32."""
    ops, returned = _body(kernel)
    if _element(kernel.arguments[0]) != "f32":
        raise UnsupportedByTemplate(f"{name}: quantisation of {_element(kernel.arguments[0])} has no template")
    if python_value(ops[0].opview.block) != 32 or returned != list(ops[0].results):
        raise UnsupportedByTemplate(f"{name}: quantisation in blocks of another length than 32")
    return QuantizeSpec(_sizes(kernel.arguments[0]), python_value(ops[0].opview.bits))


def read_conv(name: str, kernel: ir.AnyOp) -> ConvSpec:
    """A kernel of class conv: a depthwise convolution along a sequence."""
    ops, returned = _body(kernel)
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
    ops, returned = _body(kernel)
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
    ops, returned = _body(kernel)
    view = ops[-1].opview
    given = list(view.operation.operands)
    if list(kernel.arguments) != given or returned != list(view.operation.results):
        raise UnsupportedByTemplate(f"{name}: not all results are read, or an operand is a constant or stands twice")
    operands, results = (tuple(memref_of(value.type) for value in values) for values in (given, returned))
    return SampleSpec(operands, results, shape_of(view.values)[-1])


def read_gather(name: str, kernel: ir.AnyOp) -> GatherSpec:
    """A kernel of class gather: a gather, and element-wise operations on what it reads."""
    ops, returned = _body(kernel)
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
    """A kernel of class broadcast: element-wise operations, of which the last one's result is the kernel's."""
    ops, returned = _body(kernel)
    numbers: dict[ir.Value, int | float] = {argument: number for number, argument in enumerate(kernel.arguments)}
    steps: list[BroadcastStep] = []
    for op in ops:
        if op.name == "mir.constant":
            numbers[op.results[0]] = _constant(op)
            continue
        if len(returned) != 1 or (returned[0] == op.results[0]) != (op == ops[-1]):
            raise UnsupportedByTemplate(f"{name}: expects one result, of the last operation")
        word = op.name.removeprefix("mir.")
        kind = python_value(op.attributes["kind"]) if word == "compare" else word
        reads = tuple(numbers[value] for value in op.operands)
        numbers[op.results[0]] = len(kernel.arguments) + len(steps)
        steps.append(BroadcastStep(word, kind, reads, _element(op.results[0])))
    if any(shape_of(op.results[0]) != shape_of(returned[0]) for op in ops if op.name != "mir.constant"):
        raise UnsupportedByTemplate(f"{name}: operations of several shapes")
    operands = tuple(memref_of(argument.type) for argument in kernel.arguments)
    return BroadcastSpec(operands, memref_of(returned[0].type), tuple(steps))


def read_conv2d(name: str, kernel: ir.AnyOp) -> Conv2dSpec:
    """A kernel of class conv2d: a `mir.conv`, perhaps of panels that are put in order, and functions of elements."""
    ops, returned = _body(kernel)
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


def read_pool(name: str, kernel: ir.AnyOp) -> PoolSpec:
    """A kernel of class pool: one operation."""
    x, result, _ = _plain_operation(name, kernel)
    view = _body(kernel)[0][0].opview
    sizes = (tuple(python_value(own)) for own in (view.kernel_size, view.stride, view.padding))
    return PoolSpec(x, result, python_value(view.kind), *sizes)


def read_move(name: str, kernel: ir.AnyOp) -> MoveSpec:
    """A kernel of class move: one operation."""
    ops, _ = _body(kernel)
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


def read_reduce(name: str, kernel: ir.AnyOp) -> ReduceSpec:
    """A kernel of class reduce."""
    view, result = _only(name, kernel)
    rank = len(shape_of(view.x))
    axes = tuple(sorted({axis % rank for axis in python_value(view.axes)}))
    return ReduceSpec(memref_of(view.x.type), memref_of(result.type), python_value(view.kind), axes)


def read_norm(name: str, kernel: ir.AnyOp) -> NormSpec:
    """A kernel of class norm: a norm or softmax along another axis than the last."""
    ops, _ = _body(kernel)
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
    view = _body(kernel)[0][0].opview
    return GroupNormSpec(x, tuple(factors), python_value(view.num_groups), float(python_value(view.eps)), order)


def read_scan(name: str, kernel: ir.AnyOp) -> ScanSpec:
    """A kernel of class scan."""
    view, _ = _only(name, kernel)
    axis = python_value(view.axis) % len(shape_of(view.x))
    return ScanSpec(memref_of(view.x.type), axis, bool(view.exclusive))


def _only(name: str, kernel: ir.AnyOp) -> tuple[ir.AnyOp, ir.Value]:
    """The one operation of a kernel, which reads its one operand, and its result."""
    ops, _ = _body(kernel)
    if list(ops[-1].operands) != list(kernel.arguments):
        raise UnsupportedByTemplate(f"{name}: the operand is a constant")
    return ops[-1].opview, ops[-1].results[0]


def read_recurrence(name: str, kernel: ir.AnyOp) -> RecurrenceSpec:
    """A kernel of class recurrence."""
    view = _body(kernel)[0][0].opview
    buffers = _recurrence(name, kernel, [view.q, view.k, view.v, view.g, view.beta, view.state], view)
    return RecurrenceSpec(*[*buffers, view.chunk is not None and int(python_value(view.chunk)) == 1])


def read_state_space(name: str, kernel: ir.AnyOp) -> StateSpaceSpec:
    """A kernel of class state_space, whose rates may be one number."""
    view = _body(kernel)[0][-1].opview
    same = producer(view.a, mir.ConstantOp)
    rates, rate = (view.a, None) if same is None else (None, _constant(same.operation))
    read = [view.x, view.delta, rates, view.b, view.c, view.state]
    return StateSpaceSpec(*[*_recurrence(name, kernel, read, view), rate])


def _recurrence(name: str, kernel: ir.AnyOp, read: list[Any], view: ir.AnyOp) -> list[Any]:
    """The buffers of operands, of the result and of the last state, None where absent, and the order of operands."""
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    given = [value for value in read if value is not None]
    if any(value not in numbers for value in given):
        raise UnsupportedByTemplate(f"{name}: an operand is a constant")
    written = [value if value in _body(kernel)[1] else None for value in (view.result, view.state_out)]
    return [*map(_buffer_of, [*read, *written]), tuple(numbers[value] for value in given)]


def read_solve(name: str, kernel: ir.AnyOp) -> SolveSpec:
    """A kernel of class solve."""
    return SolveSpec(*_plain_operation(name, kernel))


def read_loss(name: str, kernel: ir.AnyOp) -> LossSpec:
    """A kernel of class loss: cross entropy, or with a third operand its gradient."""
    logits, labels, *d_loss, result, order = _plain_operation(name, kernel)
    return LossSpec(logits, labels, d_loss[0] if d_loss else None, result, order)


def read_grouped(name: str, kernel: ir.AnyOp) -> GroupedSpec | PackedGroupedSpec:
    """A kernel of class grouped: products with dense or with packed weights."""
    x, weight, expert, result, order = _plain_operation(name, kernel)
    ops, _ = _body(kernel)
    view = ops[0].opview
    if isinstance(view, mir.GroupedMatmulOp):
        return GroupedSpec(x, weight, expert, result, order)
    packed, experts = packing_of(view.weight), int(python_value(view.experts))
    return PackedGroupedSpec(x, weight, expert, result, order, packed.scheme, packed.layout, experts)


def read_fft(name: str, kernel: ir.AnyOp) -> FftSpec:
    """A kernel of class fft: a transform, or that of rows with zeros behind them, and parts of it."""
    ops, returned = _body(kernel)
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
    ops, _ = _body(kernel)
    view = ops[0].opview
    x_zp, w_zp, out_zp, mult = (python_value(number) for number in (view.x_zp, view.w_zp, view.out_zp, view.mult))
    return QMatmulSpec(x, weight, bias[0] if bias else "", result, x_zp, w_zp, out_zp, mult, order)


def _plain_operation(name: str, kernel: ir.AnyOp) -> list[Any]:
    """The buffers of the operands and of the result of a kernel's one operation, and the order of the operands."""
    ops, _ = _body(kernel)
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
