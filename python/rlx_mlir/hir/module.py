# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`GraphModule`: a module of the compiler at one of its stages, as Python builds and reads it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from rlx_mlir import checks, ir
from rlx_mlir.activations import ACTIVATIONS
from rlx_mlir.attributes import PythonValue, python_value
from rlx_mlir.errors import InputError, StageError, shortened
from rlx_mlir.hir import place
from rlx_mlir.hir.blocks import Blocks
from rlx_mlir.hir.graph import BUILDABLE, STAGES, Built, checked_build, empty_module
from rlx_mlir.hir.images import Images
from rlx_mlir.hir.inspect import inspect
from rlx_mlir.hir.segments import Segments
from rlx_mlir.hir.types import DTypeLike, Options, first_message
from rlx_mlir.hir.values import Operand, Value
from rlx_mlir.locations import describe_location
from rlx_mlir.mir.dims import Size, check_symbol
from rlx_mlir.rewriting import operations, run_pipeline
from rlx_mlir.runtime.shown import preformatted
from rlx_mlir.semantics.dims import Dims
from rlx_mlir.semantics.function import (
    KERNEL,
    PREPARE,
    arguments,
    entry_function,
    function_name,
    function_type,
    functions,
    is_private,
    results,
    role,
)
from rlx_mlir.semantics.ops import operation_classes
from rlx_mlir.sources import BYTECODE, check_file, check_source, check_strings
from rlx_mlir.unsupported import list_operations, unknown_in_text

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Self, Unpack

    from rlx_mlir.reports.drawing import Drawing
    from rlx_mlir.reports.fusion import FusionReport
    from rlx_mlir.reports.memory import MemoryEstimate
    from rlx_mlir.reports.ranges import Bound, RangeReport

#: How blocks with a fused operation lower: to it, or to primitives.
POLICIES = ("direct", "fusable")

#: Attributes of the `builtin.module`: what its operations alone don't say.
_STAGE, _POLICY = "mir.stage", "hir.policy"


class GraphModule(Blocks, Segments):
    """A module with one entry function: an IR module, and the stage that it is at.

    Built by `hir`, `mir` or `define`; read by `from_text` or `from_bytecode`. Operations are appended before the
    return; `set_outputs` says what is returned. `lower`, `bind` and `transform` give new modules and leave this one as
    it is; `set_inputs`, `replace` and `erase_dead` change it, and make every handle of a `Value` stale.

    Modules are equal where their IR is, but for locations.
    """

    # -- making ------------------------------------------------------------------------------------------------------

    @classmethod
    def hir(cls, name: str, *, policy: str = "direct") -> GraphModule:
        """An empty module of blocks and primitives; `policy` as in `with_fusion_policy`."""
        return cls._empty(name, "hir", policy)

    @classmethod
    def mir(cls, name: str) -> GraphModule:
        """An empty module of primitives."""
        return cls._empty(name, "mir", "direct")

    @classmethod
    def define(
        cls, name: str, build: Callable[[GraphModule], Value | Sequence[Value] | Mapping[str, Value]]
    ) -> GraphModule:
        """A module at stage hir, whose outputs are what `build(module)` returns."""
        module = cls.hir(name)
        module.set_outputs(checked_build(build, module)(module))
        return module

    @classmethod
    def _empty(cls, name: str, stage: str, policy: str, context: ir.Context | None = None) -> GraphModule:
        here = place.caller()
        if not checks.is_text(name) or not name:
            raise here.error(f"the name of a module is a non-empty string, but got {name!r}")
        return cls(
            empty_module(name, ir.new_context() if context is None else context, here), stage, _checked_policy(policy)
        )

    @classmethod
    def from_ir(cls, module: ir.Module, *, stage: str | None = None) -> GraphModule:
        """A module around IR, which it takes over. For the compiler's own code.

        Args:
            stage: by default what the operations tell, and where they leave a choice, the attribute `mir.stage`.

        Raises StageError where the IR can't be at the stage, InputError where it has no single entry function, or two
        arguments or results of it have one name.
        """
        attributes = module.operation.attributes
        marked = python_value(attributes[_STAGE]) if _STAGE in attributes else None
        if stage is None and marked is not None and marked not in STAGES:
            raise StageError(
                f"text of stage {shortened(marked)} is there to be looked at; what is read, and compiled on from, "
                f"is text of {', '.join(STAGES)}"
            )
        found = detect_stage(module, marked) if stage is None else stage
        check_stage(module, found)
        if found in BUILDABLE:
            _check_arguments(entry_function(module))
        policy = python_value(attributes[_POLICY]) if _POLICY in attributes else "direct"
        return cls(module, found, _checked_policy(policy))

    @classmethod
    def from_text(cls, text: str | os.PathLike[str], *, stage: str | None = None) -> GraphModule:
        """A module from IR text, or from the file of a path.

        Args:
            text: IR; or a `Path`, or a string without line breaks that names a file.
            stage: the stage that the caller expects; by default it is detected.

        Raises InputError where the text doesn't parse or has no single entry function, BudgetError where it is larger,
        or nested more deeply, than `rlx_mlir.budget` allows, StageError where it isn't at the stage.
        """
        if not isinstance(text, os.PathLike) and not checks.is_text(text):
            raise InputError(f"a module is IR text or the path of a file with it, but got {checks.shown(text)}")
        context = ir.new_context()
        path = Path(text) if isinstance(text, os.PathLike) or _names_file(text) else None
        if path is not None and not path.is_file():
            raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}")
        if path is not None:
            check_file(path)
        else:
            check_source(str(text).encode(errors="replace"), "the IR")
        try:
            with ir.single_threaded(context):
                if path is not None:
                    module = ir.Module.parseFile(str(path), context)
                else:
                    module = ir.Module.parse(str(text), context)
        except ir.MLIRError as error:
            raise InputError(_parse_error(error, path, text)) from None
        except (OSError, RuntimeError, ValueError) as error:  # such as a message with a name that is no text
            raise InputError(f"{path or 'text'}: {error}") from None
        check_strings(module, str(path or "the IR"))
        return cls.from_ir(module, stage=stage)

    @classmethod
    def from_bytecode(
        cls, data: bytes | os.PathLike[str], *, stage: str | None = None, trusted: bool = False
    ) -> GraphModule:
        """A module from what `bytecode` gives, or from a file with it; raises as `from_text` does.

        MLIR's reader ends the process at some damage: another process reads the bytecode first, which takes about a
        second. `trusted` leaves that out, for bytecode that this program wrote and nobody could change.
        """
        what = os.fspath(data) if isinstance(data, os.PathLike) else "the bytecode"
        content = Path(data).read_bytes() if isinstance(data, os.PathLike) else data
        if not isinstance(content, bytes):
            raise InputError(f"bytecode is bytes, but got {checks.shown(content)}")
        if not content.startswith(BYTECODE):
            raise InputError(f"bytecode starts with 'ML\\xefR', but got {content[:4]!r}")
        if not checks.flag("trusted", trusted):
            check_source(content, what)
        try:
            context = ir.new_context()
            with ir.single_threaded(context):
                module = ir.Module.parse(content, context)
        except ir.MLIRError as error:
            raise InputError(_parse_error(error)) from None
        except (RuntimeError, ValueError) as error:
            raise InputError(f"{what} doesn't parse: {error}") from None
        check_strings(module, what)
        return cls.from_ir(module, stage=stage)

    @classmethod
    def wrap_mir_graph(cls, module: GraphModule) -> GraphModule:
        """A module at stage hir with the primitives of one at stage mir, to which blocks can be added."""
        if not isinstance(module, GraphModule):
            raise place.caller().error(f"a GraphModule at stage mir is wrapped, but got {checks.shown(module)}")
        if module.stage != "mir":
            raise StageError(f"{place.caller()}: module '{module.name}' is at stage {module.stage}, but mir is needed")
        return cls(module._copy(), "hir", "direct")

    def clone(self) -> GraphModule:
        """A copy; handles of this module are none of its."""
        return GraphModule(self._copy(), self._stage, self._policy)

    def __copy__(self) -> GraphModule:
        return self.clone()

    def __deepcopy__(self, memo: object) -> GraphModule:
        return self.clone()

    def __reduce__(self) -> tuple[Callable[[bytes, str], GraphModule], tuple[bytes, str]]:
        return _unpickled, (self.bytecode(), self._stage)

    def _copy(self) -> ir.Module:
        self._mark()
        source = self._module.operation
        module = ir.Module.create(source.location)
        with self._context:
            for name, attribute in source.attributes.items():
                module.operation.attributes[name] = attribute
            for op in self._module.body.operations:
                module.body.append(op.operation.clone())
        return module

    # -- blocks and primitives ---------------------------------------------------------------------------------------

    @property
    def primitives(self) -> Images:
        """The builders of primitives alone: also at stage hir, `rms_norm` and the like are operations of MIR there."""
        return _PrimitiveView(self)

    def block(self, name: str, build: Callable[[Self], Built]) -> Built:
        """The same as `named`."""
        return self.named(name, build)

    # -- policy and lowering -----------------------------------------------------------------------------------------

    def with_fusion_policy(self, policy: str) -> GraphModule:
        """Sets how blocks with a fused operation lower, and returns the module.

        Args:
            policy: `direct`, to fused operations; `fusable`, to primitives, which differentiation and fusion passes
                work on.

        Raises StageError at other stages than hir.
        """
        if self._stage != "hir":
            raise StageError(
                f"{place.caller()}: module '{self.name}' is at stage {self._stage}: a fusion policy is of stage hir"
            )
        self._policy = _checked_policy(policy)
        return self

    def lower(self) -> GraphModule:
        """A new module at stage mir, its blocks lowered by the fusion policy; the module itself after stage hir.

        Raises PassError where a block can't be lowered.
        """
        if self._stage != "hir":
            return self
        return self.transform(f"hir-to-mir{{policy={self._policy}}}", stage="mir")

    def lower_for_autodiff(self) -> GraphModule:
        """`lower` under the policy fusable, whatever the module's own."""
        return self.lower() if self._stage != "hir" else self.transform("hir-to-mir{policy=fusable}", stage="mir")

    def transform(self, pipeline: str, *, stage: str | None = None) -> GraphModule:
        """A new module: this one after a textual pipeline of passes.

        Args:
            stage: that the passes lead to; by default what the operations tell, the module's own where they leave a
                choice.

        Raises PassError with the passes' diagnostics, StageError where the result isn't at the stage, InputError where
        the pipeline is no text.
        """
        if not checks.is_text(pipeline):
            raise InputError(f"a pipeline is a text, such as 'hir-to-mir,cse', but got {pipeline!r}"[:400])
        module = self._copy()
        run_pipeline(module, pipeline)
        found = self._stage_after(module) if stage is None else stage
        check_stage(module, found)
        return GraphModule(module, found, self._policy)

    def _stage_after(self, module: ir.Module) -> str:
        """The stage of this module's IR after passes: its own, where operations don't tell that it is a later one."""
        had_blocks = any(op.name.startswith("hir.") for op in operations(self._module))
        found = detect_stage(module, None if had_blocks else self._stage)
        return found if STAGES.index(found) > STAGES.index(self._stage) else self._stage

    def bind(self, sizes: Mapping[str, int] | None = None, **more: int) -> GraphModule:
        """A new module with symbolic dimensions replaced by sizes; others stay dynamic.

        Args:
            sizes: by symbol; also as keywords.

        Raises InputError where a symbol isn't one of the module's, or a size isn't positive, PassError where an
        operation doesn't allow the size.
        """
        bound = {**({} if sizes is None else checks.mapping("sizes", sizes, "a mapping from symbols to sizes")), **more}
        known = self.dynamic_symbols
        for symbol, size in bound.items():
            if symbol not in known:
                raise InputError(f"module '{self.name}' has no symbol '{symbol}', it has {', '.join(known) or 'none'}")
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= checks.LARGEST:
                raise InputError(f"symbol '{symbol}' of module '{self.name}' is bound to a size >= 1, but got {size!r}")
        if not bound:
            return self.clone()
        symbols = ",".join(f"{symbol}:{size}" for symbol, size in bound.items())
        return self.transform(f"rlx-bind-dims{{symbols={symbols}}}")

    # -- reading -----------------------------------------------------------------------------------------------------

    def inspect(self) -> str:
        """What the module holds: counts, operations by kind, then a line for each argument, operation and output.

        Shapes show symbols; each operation its block's name and the line that built it.
        """
        return inspect(self)

    def fusion_report(self, *, activations: str = "exact", skip_fusion: bool | Sequence[str] = False) -> FusionReport:
        """What compiling joins, what it nearly does, and why not; printed, it is text. The module stays as it is.

        Args:
            activations: as of `compile`: `exact`, `int16` or `int8`.
            skip_fusion: as of `compile`: passes that aren't run, or True for all.

        Raises StageError where the module is past stage mir, InputError where an option is no such word.
        """
        from rlx_mlir.reports.fusion import fusion_report
        from rlx_mlir.rewriting.insertion import checked_fusions

        if self._stage not in BUILDABLE:
            raise StageError(f"{place.caller()}: module '{self.name}' is at stage {self._stage}: it is fused already")
        if not isinstance(activations, str) or activations not in ACTIVATIONS:
            words = ", ".join(ACTIVATIONS)
            raise InputError(f"{place.caller()}: 'activations' expects one of {words}, but got {activations!r}"[:400])
        skipped = checked_fusions(skip_fusion)
        return fusion_report(self._copy(), self.name, policy=self._policy, activations=activations, skipped=skipped)

    def range_report(
        self,
        *,
        inputs: Mapping[str, np.ndarray | Bound] | None = None,
        params: Mapping[str, np.ndarray | Bound] | None = None,
        dtype: str = "",
    ) -> RangeReport:
        """Which values may be beyond what an element type can hold, such as 65504 in f16; printed, it is text.

        Args:
            inputs: of each by name, an array, a bound of the magnitude, or (least, largest) value.
            params: the same of parameters.
            dtype: ask as if every float were of this type; where empty, each value is held against its own.

        What a value is at most is proved from these, and may be far more than it ever is. Where all are arrays, the
        report also says how large each value was. Raises InputError for names that aren't there, StageError where the
        module is past stage mir.
        """
        from rlx_mlir.reports.ranges import range_report

        if self._stage not in BUILDABLE:
            raise StageError(f"{place.caller()}: module '{self.name}' is at stage {self._stage}: ranges are of mir")
        return range_report(self, inputs=inputs, params=params, dtype=dtype)

    def memory_estimate(
        self,
        maxima: Mapping[str, int] | None = None,
        *,
        target: str = "cpu",
        activations: str = "exact",
        intermediates: str = "rounded",
        skip_fusion: bool | Sequence[str] = False,
    ) -> MemoryEstimate:
        """How many bytes a call will take; printed, it is text. Memory is planned as compiling does, but no code made.

        Args:
            maxima: largest size of each symbol, as of `compile`; others are 512.
            target: as of `compile`: `cpu`, or `cuda` or `nvptx` for GPUs.
            activations: as of `compile`: `exact`, `int16` or `int8`.
            intermediates: as of `compile`: `rounded` or `wide`.
            skip_fusion: as of `compile`: passes that aren't run, or True for all.

        The numbers are those that `dispatch_report().memory` of the compiled module has for the largest sizes, but for
        code and what threads need while they compute, such as tiles of a product (`scratch`).

        Raises InputError for symbols that the module doesn't have and words that aren't options, StageError where the
        module is past stage mir, PassError where memory can't be planned.
        """
        from rlx_mlir.reports.memory import memory_estimate
        from rlx_mlir.rewriting.insertion import checked_fusions
        from rlx_mlir.rewriting.to_kernels import kernel_steps

        if self._stage not in BUILDABLE:
            raise StageError(
                f"{place.caller()}: module '{self.name}' is at stage {self._stage}: memory is estimated at hir and mir"
            )
        checks.choice("target", target, ("cpu", "cuda", "nvptx"))
        checks.choice("activations", activations, ACTIVATIONS)
        checks.choice("intermediates", intermediates, ("rounded", "wide"))
        if maxima is not None:
            maxima = checks.mapping("maxima", maxima, "a mapping from symbols to sizes")
        steps = kernel_steps(gpu=target != "cpu", activations=activations, intermediates=intermediates, maxima=maxima)
        skipped = checked_fusions(skip_fusion)
        return memory_estimate(self._copy(), self.name, steps, policy=self._policy, maxima=maxima, skipped=skipped)

    def draw(self, *, depth: int | None = None) -> Drawing:
        """A picture of the graph: its `svg`, which notebooks show, and `save(path)`.

        Args:
            depth: how many blocks (scopes of names, such as layers) are drawn around each other at most: one within
                them is a box. By default as many as 250 boxes can show.

        Raises StageError where the module is past stage kernels, InputError where there would be more than 3000 boxes.
        """
        from rlx_mlir.reports.drawing import draw
        from rlx_mlir.reports.graph import graph_of

        return draw(graph_of(self._module, self._stage, self.fusion_policy), depth)

    def to_json(self, *, indent: int | None = None) -> str:
        """The graph for other programs, as docs/graphs.md describes it; it can't be read back into a module.

        Args:
            indent: spaces for each level; by default all is on one line.

        Raises StageError where the module is past stage kernels.
        """
        from rlx_mlir.reports.graph import graph_of

        if indent is not None:
            checks.whole("indent", indent)
        return graph_of(self._module, self._stage, self.fusion_policy).to_json(indent)

    def to_text(self, *, locations: bool = False, generic: bool = False) -> str:
        """The IR, which `from_text` reads.

        Args:
            locations: print where each operation comes from.
            generic: print every operation in the generic form.
        """
        self._mark()
        locations, generic = checks.flag("locations", locations), checks.flag("generic", generic)
        return str(self._module.operation.get_asm(enable_debug_info=locations, print_generic_op_form=generic))

    def bytecode(self) -> bytes:
        """The IR in MLIR's binary form, locations included, which `from_bytecode` reads."""
        self._mark()
        buffer = io.BytesIO()
        self._module.operation.write_bytecode(buffer)
        return buffer.getvalue()

    def verify(self) -> None:
        """Checks the IR and the contract of its stage; StageError says what doesn't hold."""
        try:
            with ir.single_threaded(self._context):
                self._module.operation.verify()
        except ir.MLIRError as error:
            raise StageError(f"module '{self.name}': {first_message(error)}") from None
        check_stage(self._module, self._stage)

    def _mark(self) -> None:
        """Writes to the IR what its operations don't say."""
        attributes = self._module.operation.attributes
        attributes[_STAGE] = ir.StringAttr.get(self._stage, self._context)
        if self._stage == "hir":
            attributes[_POLICY] = ir.StringAttr.get(self._policy, self._context)
        elif _POLICY in attributes:
            del attributes[_POLICY]

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<GraphModule '{self.name}' at stage {self.stage}: {len(self)} operations>"

    def _repr_html_(self) -> str:
        return preformatted(self.inspect())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphModule):
            return NotImplemented
        if self is other:
            return True
        self._mark()
        other._mark()
        theirs = other._module
        if other._context != self._context:  # types and attributes are compared by identity, within one context
            theirs = ir.Module.parse(other.bytecode(), self._context)
        return bool(ir.native.is_equivalent(self._module.operation, theirs.operation))

    #: Modules change, so they have no hash.
    __hash__ = None  # type: ignore[assignment]


class _PrimitiveView(Images):
    """The builders of primitives over a module."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module

    def constant(self, value: object, dtype: DTypeLike | None = None, *, name: str | None = None) -> Value:
        """That of the module."""
        return self._module.constant(value, dtype, name=name)

    def _emit(self, *arguments: PythonValue, **options: PythonValue) -> tuple[Value, ...]:
        return self._module._emit(*arguments, **options)

    def _binary(self, kind: str, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        return self._module._binary(kind, lhs, rhs, **options)

    def _pair(self, op: str, lhs: Operand, rhs: Operand) -> tuple[Operand, Operand]:
        return self._module._pair(op, lhs, rhs)

    def _unary(self, kind: str, x: Operand, **options: Unpack[Options]) -> Value:
        return self._module._unary(kind, x, **options)

    def _matmul(self, lhs: Operand, rhs: Operand, *, transpose_rhs: bool = False, **options: Unpack[Options]) -> Value:
        return self._module._matmul(lhs, rhs, transpose_rhs=transpose_rhs, **options)

    @property
    def _context(self) -> ir.Context:
        return self._module._context

    def _all_dims(self) -> dict[ir.Value, Dims]:
        return self._module._all_dims()

    def _dimension(self, size: Size) -> tuple[Value, int] | None:
        return self._module._dimension(size)

    def _resolve(self, value: Value) -> ir.Value:
        return self._module._resolve(value)

    def _read(self, value: Value) -> ir.Value:
        return self._module._read(value)

    def _value(self, handle: ir.Value) -> Value:
        return self._module._value(handle)

    def _inside(self, block: ir.Block) -> AbstractContextManager[None]:
        return self._module._inside(block)

    def _keep(self, op: ir.Operation) -> None:
        self._module._keep(op)


def _check_arguments(function: ir.Operation) -> None:
    """Raises InputError where two arguments, or two results, have one name: callers know them by it.

    Also where a dimension of an argument has a name that builders refuse: plans have sizes as text, in which `a*b` is a
    product.
    """
    for own in arguments(function):
        for dim, symbol in enumerate(own.symbols):
            if symbol in ("", "?"):  # a size, or nothing is known
                continue
            try:
                check_symbol(symbol)
            except InputError as error:
                where = f"function '{function_name(function)}': dimension {dim} of argument '{own.name}'"
                raise InputError(f"{where}: {error}") from None
    for what, names in (
        ("arguments", [own.name for own in arguments(function)]),
        ("results", [own.name for own in results(function)]),
    ):
        first: dict[str, int] = {}
        for number, name in enumerate(names):
            if first.setdefault(name, number) != number:
                raise InputError(
                    f"function '{function_name(function)}': {what} have names of their own, but {first[name]} and "
                    f"{number} are both '{name}'"
                )


def detect_stage(module: ir.Module, marked: str | None = None) -> str:
    """The stage that a module's operations tell.

    Args:
        marked: what an attribute says. It decides between hir and mir for a module of primitives alone, which is at
            mir without it, and for linalg, whose kernels may be vectors; otherwise passes may have left it behind.
    """
    dialects = {op.name.partition(".")[0] for op in _staged(module)}
    if "hir" in dialects:
        return "hir"
    if ("linalg" in dialects or marked == "linalg") and "mir" not in dialects:
        return "linalg"
    entries = [f for f in functions(module) if role(f) is None and not is_private(f)]  # that it is one is asked later
    if any(isinstance(type, ir.MemRefType) for f in entries for type in function_type(f).inputs):
        return "lir"
    if any(role(f) == KERNEL for f in functions(module)):
        return "kernels"
    return "hir" if marked == "hir" else "mir"


def _staged(module: ir.Module) -> Iterator[ir.Operation]:
    """The operations that a stage decides about: those of @prepare stay as they are while there is one."""
    for op in module.body.operations:
        if role(op.operation) != PREPARE:
            yield from (op.operation, *operations(op))


def check_stage(module: ir.Module, stage: str) -> None:
    """Raises StageError where a module has operations that its stage doesn't."""
    if not isinstance(stage, str) or stage not in STAGES:
        raise StageError(f"a stage is one of {', '.join(STAGES)}, but got {checks.shown(stage)}")
    banned = {"hir": (), "mir": ("hir",), "kernels": ("hir",), "linalg": ("hir", "mir"), "lir": ("hir",)}[stage]
    allowed = ("hir", "mir", "func") if stage in BUILDABLE else ()
    wrong = []
    for op in _staged(module):
        dialect = op.name.partition(".")[0]
        if dialect in banned or (allowed and dialect not in allowed):
            wrong.append((op, ""))
    if wrong:
        rule = f"a module at stage {stage} has no operations of {', '.join(banned)}"
        if any(op.name.partition(".")[0] not in banned for op, _ in wrong):
            rule = f"a module at stage {stage} holds operations of {', '.join(a for a in allowed if a not in banned)}"
        known = [name for name in operation_classes() if name.partition(".")[0] not in banned]
        raise StageError("\n  ".join([f"{rule}, but this one has", *list_operations(wrong, known)]))


def _checked_policy(policy: str) -> str:
    if not isinstance(policy, str) or policy not in POLICIES:
        raise InputError(f"a fusion policy is one of {', '.join(POLICIES)}, but got {checks.shown(policy)}")
    return policy


def _names_file(text: str) -> bool:
    return "\n" not in text and len(text) < 4096 and (text.endswith((".mlir", ".mlirbc")) or os.path.isfile(text))


def _unpickled(data: bytes, stage: str) -> GraphModule:
    """What was pickled. Who unpickles trusts the data with more than what bytecode may do."""
    return GraphModule.from_bytecode(data, stage=stage, trusted=True)


def _parse_error(error: ir.MLIRError, path: Path | None = None, text: object = "") -> str:
    diagnostics = error.error_diagnostics
    where = "the IR" if path is None else str(path)
    if path is not None:
        text = path.read_text(errors="replace") if path.is_file() else ""
    if unknown := unknown_in_text(str(text), operation_classes()):
        return "\n  ".join([f"{where} has operations that don't exist", *unknown])
    if not diagnostics:
        return f"{where} doesn't parse: {error}"
    first = diagnostics[0]
    # Verifiers show the operation; the parser has none yet.
    wrong = "isn't valid" if any(note.message.startswith("see current op") for note in first.notes) else "doesn't parse"
    location = first.location
    if not location.is_a_file():
        return f"{where} {wrong}: {describe_location(location) or 'somewhere'}: {first.message}"
    line, column = location.start_line, location.start_col
    if path is not None and location.filename == str(path):
        return f"{path}:{line}:{column}: {wrong}: {first.message}"
    own = "" if location.filename == "-" else f"{location.filename}: "  # what the text says of its operations
    return f"{where} {wrong}: {own}line {line}, column {column}: {first.message}"
