# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a planned module (stage lir) to the data of an artefact: calls, buffers, sizes and preparation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array, python_value
from rlx_mlir.errors import CompileError, StageError, shortened
from rlx_mlir.kernel_classes import OWN
from rlx_mlir.lowering.donation import mark_updated, updated_by
from rlx_mlir.lowering.functions import (
    CLASS,
    KERNEL,
    PREPARE,
    argument_attributes,
    called_operation,
    entry_function,
    functions,
    kernel_class,
    result_attributes,
)
from rlx_mlir.lowering.lir import CONDITIONS, POSITIONS, unnamed_symbol
from rlx_mlir.lowering.plan_regions import KINDS, Memory, RegionReader
from rlx_mlir.mir import dims
from rlx_mlir.mir.cost import type_bytes
from rlx_mlir.mir.custom import parameters_of, registered
from rlx_mlir.mir.dims import Size, largest, product
from rlx_mlir.mir.packed import packing, packing_of
from rlx_mlir.rewriting import operations
from rlx_mlir.runtime.artifact import (
    BufferSpec,
    OwnCall,
    PositionCondition,
    Preparation,
    PrepareStep,
    SizeCondition,
)
from rlx_mlir.runtime.prepare import constant_step
from rlx_mlir.runtime.sizes import Derived, Factor, Terms
from rlx_mlir.semantics import function as hir_function

#: Floating-point operations that count as one byte of memory traffic, in estimates of a call's work.
ATTENTION_FACTOR = 2

#: Multiply-adds that count as one byte of memory traffic, where rows share what is read of a weight.
PRODUCTS_PER_BYTE = 16


class PlanReader(RegionReader):
    """Reads the planned entry function."""

    def __init__(self, module: ir.AnyModule) -> None:
        super().__init__()
        self._entry = entry_function(module)
        self._declared = {
            op.name.value: op
            for op in module.operation.regions[0].blocks[0].operations
            if op.operation.name == "func.func" and not len(op.operation.regions[0].blocks)
        }
        attributes = self._entry.operation.attributes
        self.arena_bytes = int(attributes["mir.arena"].value)
        self.symbols = sorted((entry.name, int(entry.attr.value)) for entry in attributes["mir.symbols"])
        self._numbers = {name: number for number, (name, _) in enumerate(self.symbols)}
        self.conditions = [self._condition(own) for own in attributes[CONDITIONS]] if CONDITIONS in attributes else []
        self.inputs: list[BufferSpec] = []
        self.parameters: list[BufferSpec] = []
        self.outputs: list[BufferSpec] = []
        self.slots: list[tuple[int, int]] = []
        self.kernels: list[str] = []
        self._in_place: set[int] = set()
        self._arguments()
        self.positions = [self._position(own) for own in attributes[POSITIONS]] if POSITIONS in attributes else []
        for op in operations(self._entry, nested=False):
            self.read(op)
        self.outputs = mark_updated(self.outputs, self.calls, self._in_place)

    def terms(self, size: Size, more: Sequence[str] = ()) -> Terms:
        """The size as the run time reads it; `more` are symbols that are numbered after those of the plan."""
        numbers = self._numbers
        if more:
            numbers = {**numbers, **{name: len(numbers) + number for number, name in enumerate(more)}}
        return _terms(size, numbers)

    def _condition(self, words: ir.ArrayAttr) -> SizeCondition:
        left, relation, right, where = (word.value for word in words)
        return SizeCondition(self._side(left), self._side(right), at_least=relation == "ge", where=where)

    def _position(self, words: ir.ArrayAttr) -> PositionCondition:
        name, count, rows, limit, where = (word.value for word in words)
        known = {spec.name: (kind, i) for kind, specs in self._given() for i, spec in enumerate(specs)}
        kind, index = known[name]
        return PositionCondition(
            name, kind, index, count=self._side(count), rows=self._side(rows), limit=self._side(limit), where=where
        )

    def _given(self) -> list[tuple[Literal["input", "param"], list[BufferSpec]]]:
        return [("input", self.inputs), ("param", self.parameters)]

    def _side(self, text: str) -> tuple[str, Terms]:
        return text, self.terms(Size.parse(text))

    def _arguments(self) -> None:
        lists = {"input": self.inputs, "param": self.parameters, "output": self.outputs}
        for argument, own in zip(list(self._entry.arguments)[1:], argument_attributes(self._entry)[1:], strict=True):
            kind = own.get("mir.kind", "input")
            shape = ir.MemRefType(argument.type).shape
            words = own.get("mir.dims") or [f"{own.get('mir.name', 'arg')}_{i}" for i in range(len(shape))]
            dims = tuple(
                Size.parse(word) if size < 0 else Size.of(size) for size, word in zip(shape, words, strict=True)
            )
            found = lists[kind]
            self.memory[argument] = Memory(kind, len(found), dims, Size.of(0))
            found.append(
                BufferSpec(
                    name=own.get("mir.name", f"{kind}{len(found)}"),
                    dtype=str(ir.MemRefType(argument.type).element_type),
                    shape=tuple(str(d) if d.constant is None else d.constant for d in dims),
                    sizes=tuple(self.terms(d) for d in dims),
                    tied=own.get("mir.tied"),
                )
            )

    def read(self, op: ir.AnyOp) -> None:
        """Reads one operation."""
        operands = list(op.operands)
        if op.name == "arith.constant":
            self.sizes[op.results[0]] = Size.of(int(op.attributes["value"].value))
        elif op.name == "memref.dim":
            axis = self.sizes[operands[1]].constant
            assert axis is not None
            self.sizes[op.results[0]] = self.memory[operands[0]].dims[axis]
        elif op.name == "arith.muli":
            self.sizes[op.results[0]] = self.sizes[operands[0]] * self.sizes[operands[1]]
        elif op.name == "arith.addi":
            self.sizes[op.results[0]] = self.sizes[operands[0]] + self.sizes[operands[1]]
        elif op.name == "arith.subi":
            self.sizes[op.results[0]] = self.sizes[operands[0]] - self.sizes[operands[1]]
        elif op.name == "arith.floordivsi":
            self.sizes[op.results[0]] = dims.floordiv(self.sizes[operands[0]], self.sizes[operands[1]])
        elif op.name == "arith.maxsi":
            self.sizes[op.results[0]] = dims.maximum(self.sizes[operands[0]], self.sizes[operands[1]])
        elif op.name == "memref.view":
            self._view(op, operands)
        elif op.name == "memref.reinterpret_cast":
            count = len(ir.MemRefType(op.results[0].type).shape)
            sizes = tuple(self.sizes[v] for v in operands[1 : 1 + count])
            self.memory[op.results[0]] = replace(self.memory[operands[0]], dims=sizes)
        elif op.name == "memref.cast":
            self.memory[op.results[0]] = self.memory[operands[0]]
        elif op.name in KINDS:
            self.read_in_region(op)
        elif op.name == "func.call":
            self._call(op, operands)
        elif op.name != "func.return":
            raise CompileError(f"a planned function can't hold '{op.name}'")

    def _view(self, op: ir.AnyOp, operands: list[ir.Value]) -> None:
        kind = ir.MemRefType(op.results[0].type)
        dynamic = iter(operands[2:])
        sizes = tuple(self.sizes[next(dynamic)] if size < 0 else Size.of(size) for size in kind.shape)
        offset = self.sizes[operands[1]].constant
        assert offset is not None
        size = largest(product(sizes) * type_bytes(kind.element_type), dict(self.symbols))
        self.memory[op.results[0]] = Memory("arena", len(self.slots), sizes, Size.of(0))
        self.slots.append((offset, size))

    def _call(self, op: ir.AnyOp, operands: list[ir.Value]) -> None:
        name = python_value(op.attributes["callee"])
        if name not in self.kernels:
            self.kernels.append(name)
        dims: list[Size] = []
        for value in operands:
            shape = ir.MemRefType(value.type).shape
            dims += [size for size, extent in zip(self.memory[value].dims, shape, strict=True) if extent < 0]
        used = [self.memory[value] for value in operands]
        buffers = [self.buffer(own) for own in used]
        self._in_place |= updated_by(self._declared[name], [(own.kind, own.index) for own in used])
        work = self.terms(self._work(name, operands))
        self.calls.append((self.kernels.index(name), buffers, [self.terms(size) for size in dims], work))

    def _work(self, name: str, operands: list[ir.Value]) -> Size:
        """An estimate of the bytes or operations of a call: decides whether threads are worth their start."""
        kind = kernel_class(self._declared[name])
        result = product(self.memory[operands[-1]].dims)
        if kind == "gemm":
            length = self.memory[operands[0]].dims[-1]
            return self.memory[operands[-1]].dims[-1] * length + _share(result * length, PRODUCTS_PER_BYTE)
        if kind == "attention":
            # One argument may be queries, keys and values at once; then a mask, positions or the result come next.
            queries, keys = (self.memory[operand].dims for operand in operands[:2])
            return result * (keys if len(keys) == len(queries) else queries)[-2] * ATTENTION_FACTOR
        return product(self.memory[operands[0]].dims) * 4 + result * 4


def _terms(size: Size, numbers: Mapping[str, int]) -> Terms:
    return [(coefficient, [_factor(own, numbers) for own in factors]) for factors, coefficient in size.terms]


def _factor(factor: str | dims.Derived, numbers: Mapping[str, int]) -> Factor:
    if isinstance(factor, str):
        return numbers[factor]
    return Derived(factor.kind, factor.number, _terms(factor.size, numbers))


def _share(size: Size, divisor: int) -> Size:
    """About size / divisor, for estimates: no term is lost."""
    return Size(tuple((symbols, max(1, coefficient // divisor)) for symbols, coefficient in size.terms))


def read_preparation(module: ir.AnyModule) -> Preparation:
    """`@prepare` as data."""
    found = functions(module, PREPARE)
    if not found:
        return Preparation()
    function = found[0]
    names = [own["mir.name"] for own in argument_attributes(function)]
    indices = {argument: number for number, argument in enumerate(function.arguments)}
    steps = []
    *ops, terminator = operations(function, nested=False)
    for op in ops:
        steps.append(
            PrepareStep(op.name.removeprefix("mir."), tuple(indices[v] for v in op.operands), _step_attributes(op))
        )
        indices[op.results[0]] = len(names) + len(steps) - 1
    results = tuple(
        (own["mir.name"], indices[value])
        for own, value in zip(result_attributes(function), terminator.operands, strict=True)
    )
    return Preparation(tuple(names), tuple(steps), results)


def kernel_kinds(module: ir.AnyModule) -> dict[str, str]:
    """The class of each kernel by name: kernels have it, and once memory is planned, what the entry function calls."""
    kinds = {}
    for op in module.operation.regions[0].blocks[0].operations:
        attributes = op.operation.attributes
        if CLASS in attributes and "sym_name" in attributes:
            name = str(python_value(attributes["sym_name"])).removesuffix(".mir")
            kinds[name] = str(python_value(attributes[CLASS]))
    return kinds


def own_calls(module: ir.AnyModule) -> tuple[OwnCall, ...]:
    """The kernels that call operations of the user's own."""
    calls = []
    for kernel in functions(module, KERNEL):
        if kernel_class(kernel) != OWN:
            continue
        op = called_operation(kernel)
        own = registered(op)
        numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
        operands, results = ([_element_and_rank(value) for value in values] for values in (op.operands, op.results))
        calls.append(
            OwnCall(
                str(kernel.name.value).removesuffix(".mir"),
                own.name,
                own.parameters(parameters_of(op)),
                tuple(operands),
                tuple(results),
                tuple(numbers[value] for value in op.operands),
                own.is_native,
            )
        )
    return tuple(calls)


def _element_and_rank(value: ir.Value) -> tuple[str, int]:
    kind = ir.RankedTensorType(value.type)
    return str(kind.element_type), kind.rank


def _step_attributes(op: ir.AnyOp) -> dict[str, object]:
    if op.name == "mir.constant":
        return constant_step(elements_array(op.attributes["value"]))
    if op.name == "mir.repack":
        encoding = packing_of(op.results[0])
        return {"scheme": encoding.scheme, "k": encoding.k, "layout": encoding.layout}
    result = ir.RankedTensorType(op.results[0].type)
    if op.name == "mir.expand":
        return {"shape": list(result.shape)}
    if op.name == "mir.cast":
        return {"dtype": str(result.element_type)}
    return {key: python_value(value) for key, value in op.attributes.items()}


def name_arguments(module: ir.AnyModule) -> None:
    """Gives the entry function's arguments and results the names and kinds that callers see, where text has none."""
    entry = hir_function.entry_function(module)
    arguments, outputs = hir_function.arguments(entry), hir_function.results(entry)
    arg_attrs = hir_function.attribute_dictionaries(entry, "arg_attrs", len(arguments))
    for attributes, argument in zip(arg_attrs, arguments, strict=True):
        attributes["mir.name"] = ir.StringAttr.get(argument.name)
        attributes["mir.kind"] = ir.StringAttr.get(argument.kind)
    res_attrs = hir_function.attribute_dictionaries(entry, "res_attrs", len(outputs))
    for attributes, output in zip(res_attrs, outputs, strict=True):
        attributes["mir.name"] = ir.StringAttr.get(output.name)
    hir_function.set_signature(entry, arg_attrs=arg_attrs, res_attrs=res_attrs)


#: Attribute of a module from stage kernels on: the parameters that callers set, which packing has changed by then.
PARAMETERS = "mir.parameters"


def note_parameters(module: ir.Module, specs: Sequence[BufferSpec]) -> None:
    """Writes what callers set to the module, for its text to be compiled on from."""
    if not specs:
        return
    i64 = ir.IntegerType.get_signless(64)
    listed = []
    for own in specs:
        shape = [ir.StringAttr.get(n) if isinstance(n, str) else ir.IntegerAttr.get(i64, n) for n in own.shape]
        entry = {"name": ir.StringAttr.get(own.name), "dtype": ir.StringAttr.get(own.dtype)}
        entry["shape"] = ir.ArrayAttr.get(shape)
        if own.packed is not None:
            entry["packed"] = ir.StringAttr.get(own.packed)
        listed.append(ir.DictAttr.get(entry))
    module.operation.attributes[PARAMETERS] = ir.ArrayAttr.get(listed)


def noted_parameters(module: ir.Module) -> tuple[BufferSpec, ...]:
    """What `note_parameters` wrote; CompileError where the text of it was changed to what it can't be."""
    attributes = module.operation.attributes
    if PARAMETERS not in attributes:
        return ()
    specs = []
    try:
        for listed in ir.ArrayAttr(attributes[PARAMETERS]):
            own = {entry.name: python_value(entry.attr) for entry in ir.DictAttr(listed)}
            shape = tuple(size if isinstance(size, int) else str(size) for size in own["shape"])
            specs.append(BufferSpec(str(own["name"]), str(own["dtype"]), shape, packed=own.get("packed")))
    except (TypeError, KeyError, ValueError):
        raise CompileError(
            f"'{PARAMETERS}' of the module lists dictionaries of name, dtype, shape and packed, but is "
            f"{shortened(str(attributes[PARAMETERS]))}"
        ) from None
    return tuple(specs)


def check_noted(module: ir.AnyModule, noted: Sequence[BufferSpec], preparation: Preparation, problem: str) -> None:
    """StageError, which starts with the problem, where code reads parameters that `noted_parameters` doesn't have."""
    read = list(preparation.sources)
    made = {name for name, _ in preparation.results}
    for own in argument_attributes(entry_function(module)):
        if own.get("mir.kind") == hir_function.PARAM and own["mir.name"] not in made:
            read.append(own["mir.name"])
    known = {spec.name for spec in noted}
    if unknown := [name for name in dict.fromkeys(read) if name not in known]:
        raise StageError(
            f"{problem}: '{PARAMETERS}' of the module, which lists the parameters, doesn't have {', '.join(unknown)}; "
            "text of `emit` and of `rlx emit` has it"
        )


def declared_parameters(module: ir.AnyModule) -> tuple[BufferSpec, ...]:
    """What callers set: the parameters of the entry function, used or not, as the module declares them."""
    specs = []
    for argument in hir_function.arguments(hir_function.entry_function(module)):
        if argument.kind != hir_function.PARAM:
            continue
        shape = tuple(
            size if size >= 0 else symbol if symbol != "?" else unnamed_symbol(argument.name, axis)
            for axis, (size, symbol) in enumerate(zip(argument.type.shape, argument.symbols, strict=True))
        )
        packed = packing(argument.type)
        scheme = None if packed is None else packed.scheme
        specs.append(BufferSpec(argument.name, str(argument.type.element_type), shape, packed=scheme))
    return tuple(specs)
