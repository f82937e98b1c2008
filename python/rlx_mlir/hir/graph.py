# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What building rests on: the module, its entry function, and how an operation is made or refused."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rlx_mlir import checks, ir
from rlx_mlir.arrays import as_array, element_word
from rlx_mlir.attributes import PythonValue, elements_attribute, floats_attribute
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.errors import InputError, RlxError, StageError
from rlx_mlir.hir import place
from rlx_mlir.hir.emitting import Emitting
from rlx_mlir.hir.sizes import as_size
from rlx_mlir.hir.types import (
    DTypeLike,
    Options,
    ShapeLike,
    SizeLike,
    describe,
    dtype_word,
    element_type,
    first_message,
    packed_type,
    scalar_array,
    tensor_type,
)
from rlx_mlir.hir.values import Operand, Value
from rlx_mlir.mir.dims import Size, SizeText
from rlx_mlir.mir.packed import packing
from rlx_mlir.semantics import dims as dimensions
from rlx_mlir.semantics.function import (
    INPUT,
    PARAM,
    Signature,
    argument_attributes,
    body,
    entry_function,
    function_name,
)
from rlx_mlir.semantics.ops import argument_names, default_label, operation_classes, required

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

Anything = TypeVar("Anything")
Built = TypeVar("Built")

#: Stages in the order in which compilation goes through them.
STAGES = ("hir", "mir", "kernels", "linalg", "lir")
BUILDABLE = ("hir", "mir")

_ENUMS = {
    "activation": mir.Activation,
    "mask_kind": mir.MaskKind,
    "rope_style": mir.RopeStyle,
    "head_layout": mir.HeadLayout,
    "compare_kind": mir.CompareKind,
    "fft_norm": mir.FftNorm,
    "reduce_kind": mir.ReduceKind,
    "scaled_scheme": mir.ScaledScheme,
    "cache_scheme": mir.CacheScheme,
    "layout": mir.Layout,
    "ste": mir.Ste,
    "scale_mode": mir.ScaleMode,
}


#: Attributes that are there or not, and those that are floats; numbers of others are integers, of 32 bits or of 64.
_FLAGS = (
    *("exclusive", "gate_first", "inverse", "keep_dims", "nan_largest", "reverse", "smallest"),
    *("transpose_rhs", "transpose_weight"),
)
_NUMBERS = (
    *("decay", "eps", "eps1", "eps2", "mult", "scale", "scales", "softcap", "theta"),
    *("radius_scale", "alpha_cutoff", "transmittance_threshold", "loss_grad_clip"),
)
_SHORT = ("out_zp", "w_zp", "x_zp", "zero_points")
#: What numbers of Python, and lists of them, become in constants.
_OF_PYTHON = {np.dtype(np.float64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.complex64)}


@dataclass(frozen=True)
class Word:
    """A word of an enumeration of the MIR dialect, named by its attribute's mnemonic."""

    enum: str
    text: str

    def attribute(self, name: str, context: ir.Context) -> ir.Attribute:
        """The attribute; InputError names it and lists the words that there are."""
        known = [str(case) for case in _ENUMS[self.enum]]
        if not isinstance(self.text, str) or self.text not in known:
            raise InputError(f"'{name}' is one of {', '.join(known)}, but got {self.text!r}")
        return ir.Attribute.parse(f"#mir<{self.enum} {self.text}>", context)


def empty_module(name: str, context: ir.Context, here: place.Place) -> ir.Module:
    """A module whose entry function has no arguments, and returns nothing."""
    with context, here.location(context, name):
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            nothing = ir.TypeAttr.get(ir.FunctionType.get([], []))
            attributes = {"sym_name": ir.StringAttr.get(name), "function_type": nothing}
            function = ir.Operation.create("func.func", attributes=attributes, regions=1)
            with ir.InsertionPoint(function.regions[0].blocks.append()):
                ir.Operation.create("func.return")
    return module


class Graph(Emitting):
    """A module with one entry function, to which operations are appended before its return.

    `GraphModule` adds what callers use; the compiler reaches the IR by `ir_module`.
    """

    def __init__(self, module: ir.Module, stage: str, policy: str) -> None:
        self._module = module
        self._stage = stage
        self._policy = policy
        self._function = entry_function(module)
        self._scopes: list[str] = []
        self._generation = 0
        self._changed_by = ""
        self._dims: dict[ir.Value, dimensions.Dims] | None = None
        self._open: list[ir.Block] = []
        self._kept: list[ir.Operation] = []
        self._known: Signature | None = None

    @property
    def ir_module(self) -> ir.Module:
        """The MLIR module, for the compiler's own code. Whoever changes it calls `invalidate` afterwards."""
        return self._module

    @property
    def entry(self) -> ir.Operation:
        """The entry function, for the compiler's own code."""
        return self._function

    @property
    def name(self) -> str:
        """The module's name: that of its entry function."""
        return function_name(self._function)

    @property
    def stage(self) -> str:
        """`hir`, `mir`, `kernels`, `linalg` or `lir`."""
        return self._stage

    @property
    def fusion_policy(self) -> str | None:
        """`direct` or `fusable` at stage hir; None at others, where no block is left to lower."""
        return self._policy if self._stage == "hir" else None

    @property
    def _context(self) -> ir.Context:
        return self._module.context

    @property
    def _block(self) -> ir.Block:
        return body(self._function)

    def invalidate(self, changed_by: str) -> None:
        """Makes every handle stale; `changed_by` says in their errors what changed the module."""
        self._generation += 1
        self._changed_by = changed_by
        self._dims = None
        self._function = entry_function(self._module)
        self._known = None

    @property
    def _signature(self) -> Signature:
        """Names, types and attributes of the arguments."""
        if self._known is None:
            self._known = Signature.of(self._function)
        return self._known

    # -- values ------------------------------------------------------------------------------------------------------

    def _value(self, handle: ir.Value) -> Value:
        """A handle of an MLIR value of this module."""
        if isinstance(handle, ir.BlockArgument):
            of_entry = not self._kept or handle.owner == self._block
            name = self._signature.names[handle.arg_number] if of_entry else f"argument {handle.arg_number}"
            return Value(self, handle, name)
        owner = ir.OpResult(handle).owner
        return Value(self, handle, place.block_name(owner.location) or owner.name.partition(".")[2])

    def _resolve(self, value: Value) -> ir.Value:
        if not isinstance(value, Value):
            raise place.caller().error(f"a Value of module '{self.name}' is expected, but got {value!r}"[:400])
        if value._graph is not self:
            other = value._graph
            raise place.caller().error(
                f"value '{value._label}' belongs to module '{other.name}' (stage {other.stage}), "
                f"but is used in module '{self.name}' (stage {self.stage})"
            )
        if value._generation != self._generation:
            raise StageError(
                f"{place.caller()}: value '{value._label}' of module '{self.name}' is stale: "
                f"{self._changed_by} changed the module after the value was made"
            )
        return value._handle

    def _read(self, value: Value) -> ir.Value:
        """The MLIR value for an operation that is added now; BuildError for one of a region that is built already."""
        handle = self._resolve(value)
        if self._kept and not self._is_in_reach(handle):
            raise place.caller().error(
                f"value '{value._label}' belongs to a region that is built already: what a region computes leaves it "
                "as a result of the operation"
            )
        return handle

    def _is_in_reach(self, handle: ir.Value) -> bool:
        """Whether operations that are added now may read the value."""
        return self._depth(handle) is not None

    def _depth(self, handle: ir.Value) -> int | None:
        """How many regions that are open now are around a value; None where operations that are added can't read it."""
        block = handle.owner if isinstance(handle, ir.BlockArgument) else handle.owner.operation.block
        if block in self._open:
            return self._open.index(block) + 1
        return 0 if block == self._block else None

    # -- regions -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _inside(self, block: ir.Block) -> Iterator[None]:
        """Operations are added to the block of a region."""
        self._open.append(block)
        try:
            yield
        finally:
            self._open.pop()

    def _keep(self, op: ir.Operation) -> None:
        """Keeps an operation that stands nowhere: values of its regions, where building failed, are handles still."""
        self._kept.append(op)

    @property
    def _insertion_point(self) -> ir.InsertionPoint:
        """Where operations are added."""
        return ir.InsertionPoint(self._open[-1]) if self._open else ir.InsertionPoint.at_block_terminator(self._block)

    def _all_dims(self) -> dict[ir.Value, dimensions.Dims]:
        if self._dims is None:
            self._dims = dimensions.propagate(self._function)
        return self._dims

    def _shape(self, handle: ir.Value) -> tuple[int | SizeText, ...]:
        packed = packing(handle.type)
        if packed is not None:
            return (SizeText("?") if packed.n is None else packed.n, packed.k)
        words = dimensions.words(self._all_dims()[handle])
        return tuple(SizeText(word) if isinstance(word, str) else word for word in words)

    def _dimension(self, size: Size) -> tuple[Value, int] | None:
        """The first value of the graph that has a dimension of the size, and which; None where none has.

        In a region it is one of that region where there is one: the fewer values are captured.
        """
        best: tuple[int, ir.Value] | None = None
        for handle, dims in self._all_dims().items():
            if size not in dims or packing(handle.type) is not None:
                continue
            depth = self._depth(handle)
            if depth is not None and (best is None or depth > best[0]):
                best = (depth, handle)
                if depth == len(self._open):
                    break
        if best is None:
            return None
        return Value(self, best[1], str(size)), self._all_dims()[best[1]].index(size)

    # -- arguments ---------------------------------------------------------------------------------------------------

    def _argument(
        self, kind: str, name: str, shape: ShapeLike, dtype: DTypeLike | None, packed: str | None = None
    ) -> Value:
        here = place.caller()
        self._check_stage(f"{kind} '{name}'", here)
        known = self._signature
        with place.checking(f"{kind} '{name}'"):
            if not checks.is_text(name) or not name:
                raise InputError(f"the name of an {kind} is a non-empty string, but got {name!r}")
            if name in known.names:
                raise InputError(f"module '{self.name}' already has an argument '{name}'")
            if packed is None:
                type, symbols = tensor_type(shape, "f32" if dtype is None else dtype, self._context)
            elif dtype is not None:
                raise InputError(f"a packed weight has no element type of its own, but got dtype {dtype!r}")
            else:
                type, symbols = packed_type(packed, shape, self._context), ["", ""]
        handle = self._block.add_argument(type, here.location(self._context, name))
        known.append(self._function, name, type, argument_attributes(self._context, name, kind, symbols))
        if self._dims is not None:
            self._dims[handle] = dimensions.type_dims(handle.type, symbols)
        return Value(self, handle, name)

    def input(self, name: str, shape: ShapeLike, dtype: DTypeLike = "f32") -> Value:
        """A tensor that is given at each call.

        Args:
            name: by which callers pass it; unique among inputs and parameters.
            shape: sizes, or names of symbolic dimensions, such as `["batch", "seq", 64]`. Equal names mean equal
                sizes, checked at each call.
            dtype: `f16 bf16 f32 f64 i1 i8 i16 i32 i64 ui8 ui16 ui32 complex<f32>`, or a numpy type.

        Raises BuildError where the name is taken, or a dimension or the element type isn't one.
        """
        return self._argument(INPUT, name, shape, dtype)

    def input_batch_seq(self, name: str, hidden: int, dtype: DTypeLike = "f32") -> Value:
        """An input of shape `[batch, seq, hidden]` with both symbols dynamic."""
        return self._argument(INPUT, name, ["batch", "seq", hidden], dtype)

    def param(self, name: str, shape: ShapeLike, dtype: DTypeLike | None = None, *, packed: str | None = None) -> Value:
        """A tensor that is bound once and kept for all calls: a weight.

        Args:
            name: as in `input`.
            shape: as in `input`; for a packed weight `[N, K]`, N outputs of K inputs, as in GGUF files.
            dtype: as in `input`, f32 by default; not for packed weights.
            packed: block format of a packed weight, such as `q4_1`; its array is uint8 `[N, bytes of a row]`.

        Raises BuildError as `input` does, or where K isn't a multiple of the format's block length.
        """
        return self._argument(PARAM, name, shape, dtype, packed)

    def size(self, text: SizeLike) -> Size:
        """A size to compute with: `s = m.size("s")`, then `x[:, s // 2:]` or `m.reshape(x, [s // 2, 2])`.

        Sizes are added, subtracted and multiplied, and divided by numbers with `//` and `%`. Text has `floordiv(a, n)`,
        `ceildiv(a, n)`, `mod(a, n)`, `min(a, b)` and `max(a, b)`, too.
        """
        return as_size("size", text, "it")

    # -- operations --------------------------------------------------------------------------------------------------

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Names the block that operations built inside belong to; nested names are joined by dots."""
        if not checks.is_text(name) or not name:
            raise place.caller().error(f"the name of a block is a non-empty string, but got {name!r}")
        return self._in_scope(name)

    @contextmanager
    def _in_scope(self, name: str) -> Iterator[None]:
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def named(self, name: str, build: Callable[[Self], Built]) -> Built:
        """Runs `build(self)` in a scope of the given name, and returns what it returns."""
        with self.scope(name):
            return checked_build(build, self)(self)

    def constant(self, value: object, dtype: DTypeLike | None = None, *, name: str | None = None) -> Value:
        """A constant whose elements stand in the IR: small tables, not weights.

        Args:
            value: array or number; Python numbers and lists of them become f32, i64 or complex<f32> unless `dtype` says
                else.
            dtype: element type to convert to.
        """
        with place.checking("constant"):
            array = as_array("its value", value)
            if dtype is not None:
                wanted = tensor_dtype(dtype, self._context)
                with foreign_errors(f"{element_word(array.dtype)} doesn't become {dtype}"):
                    array = array.astype(wanted)
            elif not isinstance(value, np.ndarray | np.generic) and array.dtype in _OF_PYTHON:
                array = array.astype(_OF_PYTHON[array.dtype])
            if array.dtype == np.complex64:  # which attributes can't hold
                halves = {"re": self.constant(np.array(array.real)), "im": self.constant(np.array(array.imag))}
                return self._emit("mir.complex", halves, name=name)[0]
            attribute = elements_attribute(array, element_type(dtype_word(array.dtype), self._context))
        return self._emit(f"{self._stage}.constant", {}, {"value": attribute}, name=name)[0]

    def _check_stage(self, what: str, here: place.Place) -> None:
        if self._stage not in BUILDABLE:
            raise StageError(
                f"{here}: {what} can't be added to module '{self.name}' at stage {self._stage}: "
                f"graphs are built at stage {' or '.join(BUILDABLE)}"
            )

    def _operand(self, value: object, what: str, here: place.Place, constants: list[ir.Value]) -> ir.Value:
        """The MLIR value of an operand; arrays become constants, which are noted."""
        if isinstance(value, Value):
            return self._read(value)
        if isinstance(value, np.ndarray | np.generic):
            made = self._resolve(self.constant(value))
            constants.extend([*ir.OpResult(made).owner.operands, made])  # complex ones are made of their parts
            return made
        raise here.error(f"{what} is a Value or an array, but got {type(value).__name__} {value!r}"[:400])

    def _attributes(self, given: Mapping[str, PythonValue]) -> dict[str, ir.Attribute]:
        """Attributes from Python values; None and False (an absent unit attribute) are left out."""
        context, attributes = self._context, {}
        for name, value in given.items():
            if value is None or value is False:
                continue
            if isinstance(value, ir.Attribute):
                attributes[name] = value
            elif isinstance(value, Word):
                attributes[name] = value.attribute(name, context)
            elif name in _FLAGS:
                if not isinstance(value, bool | np.bool_):
                    raise InputError(f"'{name}' is True or False, but got {value!r}")
                if value:
                    attributes[name] = ir.UnitAttr.get(context)
            elif name in _NUMBERS and isinstance(value, list):
                attributes[name] = floats_attribute([checks.real(name, entry) for entry in value], context)
            elif name in _NUMBERS:
                attributes[name] = ir.FloatAttr.get(ir.F32Type.get(context), value, loc=ir.Location.unknown(context))
            elif name in _SHORT and isinstance(value, list):
                attributes[name] = ir.DenseI32ArrayAttr.get([_short(entry, name) for entry in value], context)
            elif name in _SHORT:
                attributes[name] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32, context), _short(value, name))
            elif isinstance(value, list):
                attributes[name] = ir.DenseI64ArrayAttr.get([integer(entry, name) for entry in value], context)
            else:
                attributes[name] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), integer(value, name))
        return attributes

    def _emit(
        self,
        op: str,
        operands: Mapping[str, object],
        attributes: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        shape: ShapeLike | None = None,
        result: ir.Type | list[ir.Type] | None = None,
        regions: Sequence[ir.Block | None] = (),
    ) -> tuple[Value, ...]:
        """Appends an operation; its result types are inferred, its verifier runs at once.

        Args:
            operands: by ODS name; None where an optional one is absent, a sequence for a variadic one.
            attributes: by ODS name, see `_attributes`.
            name: of the block, inside of the scopes.
            shape: what the caller believes the first result's shape to be; None entries aren't compared.
            result: type of the result, for operations that can't infer it; a list where they have any number.
            regions: the block of each region, which the operation takes; None where it is empty.

        Raises BuildError at the caller's line, in the words of the verifier; nothing is appended then.
        """
        here = place.caller()
        self._check_call(op, here, name, shape)
        scopes = ".".join([*self._scopes, name] if name else self._scopes)
        built: ir.Operation | None = None
        constants: list[ir.Value] = []
        values: dict[str, PythonValue] = {}
        if result is not None:
            values["results_" if regions else "outputs" if isinstance(result, list) else "result"] = result
        for key, operand in operands.items():
            what = f"'{key}' of '{op}'"
            if isinstance(operand, list | tuple):
                values[key] = [self._operand(each, what, here, constants) for each in operand]
            elif operand is not None:
                values[key] = self._operand(operand, what, here, constants)
        try:
            values.update(self._attributes(attributes or {}))
            if missing := [key for key in required(op) if key not in values]:
                raise InputError(f"'{missing[0]}' is needed, but got None")
            first = scopes or op.partition(".")[2]
            location = here.location(self._context, first)
            with self._context, location, self._insertion_point:
                built = operation_classes()[op](**values).operation
                for region, block in zip(built.regions, regions, strict=True):
                    if block is not None:
                        block.append_to(region)
                built.verify()
            self._check_shape(built, shape)
            label = scopes or default_label(built)
            if label != first:
                built.location = here.location(self._context, label)
        except (ir.MLIRError, RlxError, ValueError, TypeError) as error:
            text = first_message(error) if isinstance(error, ir.MLIRError) else describe(error)
            if match := re.search(r"Operand (\d+) of operation .* must be a Value", text):
                given = [key for key in argument_names(op) if key in operands and key in values]
                lists = [key for key in given if isinstance(values[key], list)]  # some may be several values
                number = int(match[1])
                key = given[number] if number < len(given) and given[number] in lists else lists[0]
                text = f"'{key}' is one value, but got {len(values[key])} of them"
            if built is not None:
                text = _explained(text, built, {key: values[key] for key in operands if key in values})
            self._take_back(built, regions, constants)
            raise here.error(text if f"'{op}'" in text else f"'{op}': {text}", scopes) from None
        return tuple(Value(self, each, label) for each in built.results)

    def _check_call(self, op: str, here: place.Place, name: object, shape: object) -> None:
        """Raises BuildError or StageError at the caller's line where an operation can't be built at all."""
        self._check_stage(f"'{op}'", here)
        if name is not None and not checks.is_text(name):
            raise here.error(f"'{op}': 'name' is the name of a block, a string, but got {name!r}"[:400])
        if shape is not None and (isinstance(shape, str | bytes) or not isinstance(shape, Sequence)):
            raise here.error(f"'{op}': 'shape' is a sequence of sizes and symbols, but got {shape!r}"[:400])
        if op.startswith("hir.") and self._stage != "hir":
            raise StageError(
                f"{here}: '{op}' is a block, but module '{self.name}' is at stage {self._stage}: "
                "blocks are built at stage hir, primitives at stage mir too"
            )

    def _take_back(
        self, built: ir.Operation | None, regions: Sequence[ir.Block | None], constants: Sequence[ir.Value]
    ) -> None:
        """Erases what an operation that failed has left, but for blocks: handles of what is inside go on to exist."""
        if built is not None:
            for block in regions:
                if block is not None:
                    block.append_to(self._kept[-1].regions[0])
            built.erase()
        for constant in reversed(constants):
            self._all_dims().pop(constant)
            ir.OpResult(constant).owner.erase()

    def _check_shape(self, built: ir.Operation, shape: ShapeLike | None) -> None:
        """Infers the symbols of the results; InputError where the first isn't as declared."""
        known = self._all_dims()
        computed = dimensions.operation_dims(built, [known[operand] for operand in built.operands])
        if shape is not None:
            inferred = dimensions.words(computed[0])
            fits = len(shape) == len(inferred) and all(
                declared is None or found == "?" or declared == found or _is_size(declared, own)
                for declared, found, own in zip(shape, inferred, computed[0], strict=True)
            )
            if not fits:
                raise InputError(f"the shape is declared as {list(shape)}, but inferred to be {list(inferred)}")
        known.update(zip(built.results, computed, strict=True))

    # -- what the operators of values call ---------------------------------------------------------------------------

    def _pair(self, op: str, lhs: Operand, rhs: Operand) -> tuple[Operand, Operand]:
        """Both operands, with a number made an array of the other's element type."""
        if isinstance(lhs, Value) and isinstance(rhs, Value):
            return lhs, rhs
        here = place.caller()
        if not isinstance(lhs, Value) and not isinstance(rhs, Value):
            raise here.error(f"'{op}': one operand is a Value, but got {lhs!r} and {rhs!r}")

        def convert(own: Operand, other: Operand) -> Operand:
            if isinstance(own, Value | np.ndarray):
                return own
            assert isinstance(other, Value)
            try:
                return scalar_array(own, other.dtype)
            except (InputError, TypeError) as error:
                raise here.error(f"'{op}': {describe(error)}") from None

        return convert(lhs, rhs), convert(rhs, lhs)

    def _binary(self, kind: str, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        left, right = self._pair(f"mir.{kind}", lhs, rhs)
        return self._emit(f"mir.{kind}", {"lhs": left, "rhs": right}, **options)[0]

    def _unary(self, kind: str, x: Operand, **options: Unpack[Options]) -> Value:
        return self._emit(f"mir.{kind}", {"x": x}, **options)[0]

    def _matmul(self, lhs: Operand, rhs: Operand, *, transpose_rhs: bool = False, **options: Unpack[Options]) -> Value:
        if isinstance(rhs, Value) and rhs.packed is not None:
            return self._emit("mir.dequant_matmul", {"x": lhs, "weight": rhs}, **options)[0]
        return self._emit("mir.matmul", {"lhs": lhs, "rhs": rhs}, {"transpose_rhs": transpose_rhs}, **options)[0]


def _explained(text: str, built: ir.Operation, operands: Mapping[str, ir.Value | list[ir.Value]]) -> str:
    """A message of MLIR's own rules, which number operands or leave out what they are, with names and types."""
    named = [(key, each) for key, own in operands.items() for each in (own if isinstance(own, list) else [own])]
    if match := re.search(r"operand #(\d+) must be", text):
        number = int(match[1])
        operand, before = built.operands[number], list(built.operands)[:number]
        key = [key for key, value in named if value == operand][before.count(operand)]
        return text.replace(match[0], f"expects '{key}' to be")
    if "failed to verify that all of" in text:
        return text + ", but got " + ", ".join(f"'{key}' of {value.type}" for key, value in named)
    return text


def checked_build(build: Anything, module: Graph) -> Anything:
    """A function that builds in a module; BuildError for what isn't one, or takes other arguments."""
    with place.checking(f"module '{module.name}'"):
        return checks.callback("build", build, "module")


def integer(value: PythonValue, name: str) -> int:
    """The value as an int; InputError names the attribute."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise InputError(f"'{name}' is an integer, but got {value!r}")


def _short(value: object, name: str) -> int:
    """The value as an int of 32 bits; InputError names the attribute."""
    return checks.whole(name, value, -(2**31), 2**31 - 1)


def tensor_dtype(dtype: DTypeLike, context: ir.Context) -> np.dtype:
    """The numpy type of what a caller wrote as an element type."""
    type, _ = tensor_type([], dtype, context)
    return numpy_dtype(type.element_type)


def axes_of(x: Value, axes: int | Sequence[int] | None) -> list[int]:
    """Dimensions from 0 on; all of them where `axes` is None. Those out of range are left for the verifier."""
    rank = len(shape_of(x))
    if axes is None:
        return list(range(rank))
    several = isinstance(axes, Sequence) and not isinstance(axes, str | bytes)
    listed: list[PythonValue] = list(axes) if isinstance(axes, Sequence) and several else [axes]
    return [axis + rank if isinstance(axis, int) and axis < 0 else axis for axis in listed]


def _is_size(declared: object, size: Size) -> bool:
    """Whether what is declared, a text, is the size in other words, such as `2*s + 1`."""
    try:
        return isinstance(declared, str) and Size.parse(declared) == size
    except RlxError:
        return False


def axis_of(x: Value, axis: int) -> int:
    """One dimension from 0 on; BuildError where it is no number."""
    with place.checking():
        number = integer(axis, "axis")
    return axes_of(x, number)[0]


def axis_within(x: Value, axis: int) -> int:
    """One dimension from 0 on; BuildError where there is no such dimension."""
    found, shape = axis_of(x, axis), shape_of(x)
    if not 0 <= found < len(shape):
        raise place.caller().error(f"'axis' is a dimension of {list(shape)}, but got {axis}"[:400])
    return found


def shape_of(x: object, named: str = "the operand") -> tuple[int | str, ...]:
    """The shape of an operand; BuildError where it is neither a value nor an array."""
    if not isinstance(x, Value | np.ndarray):
        raise place.caller().error(f"{named} is a Value or an array, but got {type(x).__name__} {x!r}"[:400])
    return x.shape
