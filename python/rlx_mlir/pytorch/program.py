# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of PyTorch by its exporter: one graph, with parameters beside it that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_mlir import checks
from rlx_mlir.compiler import compile as compile_module
from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.hir.module import GraphModule
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import DEFAULT_MAXIMUM
from rlx_mlir.place import located
from rlx_mlir.pytorch import handlers as handlers
from rlx_mlir.pytorch.graph import HANDLERS, Importer
from rlx_mlir.pytorch.scans import whole_scans
from rlx_mlir.pytorch.symbols import Symbols, symbol_name
from rlx_mlir.pytorch.tensors import array_of, tensor_of, word_of
from rlx_mlir.runtime.executable import Executable

if TYPE_CHECKING:
    from torch import Tensor
    from torch._ops import OpOverload
    from torch.export import ExportedProgram
    from torch.export.graph_signature import InputSpec
    from torch.fx import Node
    from torch.nn import Module
    from typing_extensions import Unpack

    from rlx_mlir.options import OptionKeywords


#: What takes an operator of PyTorch apart.
Decomposition = Callable[..., object]
#: A list of tensors of a call's arguments, and what a call gives of a list of tensors.
Flatten = Callable[[Sequence[object], Mapping[str, object]], "list[Tensor]"]
Unflatten = Callable[["list[Tensor]"], object]


@dataclass
class TorchProgram:
    """A model of PyTorch as a module.

    Attributes:
        module: the graph, at stage mir. Its inputs are the model's tensors, its parameters those of the model that the
            graph reads, by their names there; outputs are `output0`, `output1`, …, then `new.NAME` for each buffer or
            input that the model writes to.
        params: an array for each parameter, over the memory of its tensor.
        tensors: the same tensors.
        mutated: by the name of an output, the buffer or input that it is the new value of.
        maxima: of each symbol, the largest size that the model allows, where it says so.
    """

    module: GraphModule
    params: dict[str, np.ndarray]
    tensors: dict[str, Tensor]
    _flatten: Flatten
    _unflatten: Unflatten
    mutated: dict[str, str] = field(default_factory=dict)
    maxima: dict[str, int] = field(default_factory=dict)

    @located
    def compile(self, *, threads: int | None = None, **options: Unpack[OptionKeywords]) -> TorchExecutable:
        """Compiles the module, and binds the parameters.

        Args:
            threads: of one call; None for as many as the process may use.
            options: as of `rlx_mlir.compile`; `maxima` are at most what the model allows.

        Raises what `rlx_mlir.compile` raises, and InputError for a target: `rlx_mlir.compile(program.module, target=…)`
        compiles for GPUs.
        """
        if "target" in options:
            raise InputError(
                "what is called with tensors is for CPUs: rlx_mlir.compile(program.module, target=…) for GPUs"
            )
        known = self.module.dynamic_symbols
        maxima = {symbol: min(limit, DEFAULT_MAXIMUM) for symbol, limit in self.maxima.items() if symbol in known}
        options["maxima"] = {**maxima, **options.get("maxima", {})}
        executable = compile_module(self.module, threads=threads, **options)
        return TorchExecutable(self, executable)


class TorchExecutable:
    """A compiled model that is called as the model is: with tensors, or arrays, in the same places.

    Attributes:
        executable: what `rlx_mlir.compile` gave, with the parameters bound.
        program: what it was compiled from.
    """

    def __init__(self, program: TorchProgram, executable: Executable) -> None:
        self.program = program
        self.executable = executable
        executable.set_params(program.params)
        self._inputs = [spec.name for spec in executable.inputs]
        self._results = [spec.name for spec in executable.outputs if spec.name not in program.mutated]

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Calls the model; its results have the structure that the model gives, of tensors.

        Raises InputError where arguments aren't those that the model was exported with.
        """
        program = self.program
        given = program._flatten(args, kwargs)
        tensors = dict(zip(self._inputs, given, strict=True))
        found = self.executable.run({name: _array(name, value) for name, value in tensors.items()})
        for name, target in program.mutated.items():
            own = program.tensors[target] if target in program.tensors else tensors[target]
            own.detach().copy_(tensor_of(found[name]))
        if any(target in program.params for target in program.mutated.values()):
            self.executable.set_params(program.params)
        return program._unflatten([tensor_of(found[name]) for name in self._results])


def _array(name: str, value: Tensor | np.ndarray) -> np.ndarray:
    return (
        value if isinstance(value, np.ndarray) or not hasattr(value, "detach") else array_of(value, f"input '{name}'")
    )


#: Operators that PyTorch can take apart and that are one of ours: they stay whole.
def kept(table: Mapping[OpOverload, Decomposition]) -> dict[OpOverload, Decomposition]:
    """A table of decompositions without those of operators that have a handler."""
    return {operator: own for operator, own in table.items() if str(operator) not in HANDLERS}


@located
def from_torch(
    model: Module | ExportedProgram,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    dynamic_shapes: object = None,
    name: str | None = None,
) -> TorchProgram:
    """A model of PyTorch as a module, by `torch.export`.

    Args:
        model: a `torch.nn.Module`, in evaluation or training mode as it is to be run, or an `ExportedProgram`.
        args, kwargs: examples of what the model is called with; not for exported programs.
        dynamic_shapes: as of `torch.export.export`: which dimensions calls decide, by `torch.export.Dim`s whose names
            are those of the symbols. Beside an exported program, the same tells the names.
        name: of the module; by default that of the model's class.

    Raises UnsupportedError, which lists every operator that has no counterpart, how often and where the model uses it
    first; InputError where the model isn't one, or a tensor isn't dense and on the CPU; and what `torch.export` raises.
    """
    try:
        import torch
        from torch.export import ExportedProgram
    except ImportError:
        raise UnsupportedError(
            "'from_torch' needs PyTorch, which isn't installed: pip install 'rlx-mlir[torch]'"
        ) from None
    if isinstance(model, ExportedProgram):
        if args or kwargs:
            raise InputError("an ExportedProgram has its example inputs already, but 'args' or 'kwargs' were given")
        exported = model
    elif isinstance(model, torch.nn.Module):
        with whole_scans():
            exported = torch.export.export(
                model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
            )
    else:
        raise InputError(f"'model' is a torch.nn.Module or an ExportedProgram, but got {checks.shown(model)}")
    name = checks.text("name", name) if name is not None else type(model).__name__
    lowered = exported.run_decompositions(kept(torch.export.default_decompositions()))
    return _Reader(lowered, name, dynamic_shapes).program()


class _Reader:
    """Builds the program of an exported one."""

    def __init__(self, exported: ExportedProgram, name: str, dynamic_shapes: object) -> None:
        self._exported = exported
        self._signature = exported.graph_signature
        self._symbols = Symbols(_names(exported, dynamic_shapes))
        self._importer = Importer(name, self._symbols)
        self._tensors: dict[str, Tensor] = {}

    def program(self) -> TorchProgram:
        """Reads the graph."""
        graph, importer = self._exported.graph, self._importer
        specs = {spec.arg.name: spec for spec in self._signature.input_specs}
        for node in graph.nodes:
            if node.op == "placeholder":
                self._argument(node, specs[node.name])
        importer.run(graph.nodes)
        mutated = self._outputs(next(node for node in graph.nodes if node.op == "output"))
        importer.m.erase_dead()
        read = {param.name for param in importer.m.params}
        tensors = {name: tensor for name, tensor in self._tensors.items() if name in read}
        return TorchProgram(
            importer.m,
            {name: array_of(tensor, f"parameter '{name}'") for name, tensor in tensors.items()},
            tensors,
            *self._calls(),
            mutated,
            self._maxima(),
        )

    def _argument(self, node: Node, spec: InputSpec) -> None:
        """An input or a parameter."""
        importer, meta = self._importer, node.meta.get("val")
        if not hasattr(meta, "shape"):
            importer.set(node, self._symbols.size(meta) if _is_size(meta) else meta)
            return
        shape, word = importer.shape(meta), word_of(meta.dtype)
        if spec.target is None:
            importer.set(node, importer.m.input(node.name, shape, word))
            return
        self._tensors[spec.target] = self._tensor(spec.target)
        importer.set(node, importer.m.param(spec.target, shape, word))

    def _tensor(self, target: str) -> Tensor:
        """A parameter, buffer or constant of the model."""
        exported = self._exported
        for known in (exported.state_dict, exported.constants):
            if target in known:
                return known[target]
        raise UnsupportedError(f"'{target}' of the exported program is no tensor")

    def _outputs(self, node: Node) -> dict[str, str]:
        """Sets what the module returns; gives the buffers and inputs that are written to, by output."""
        values: dict[str, Value] = {}
        mutated: dict[str, str] = {}
        importer = self._importer
        for given, spec in zip(node.args[0], self._signature.output_specs, strict=True):
            kind = spec.kind.name
            if kind == "USER_OUTPUT":
                if not hasattr(given, "meta") or not hasattr(given.meta["val"], "shape"):
                    raise UnsupportedError(f"output {len(values)} of the model is {given}, no tensor")
                values[f"output{len(values) - len(mutated)}"] = importer.get(given)
            elif kind in ("BUFFER_MUTATION", "USER_INPUT_MUTATION"):
                values[f"new.{spec.target}"] = importer.get(given)
                mutated[f"new.{spec.target}"] = spec.target
            else:
                raise UnsupportedError(f"an output of kind {kind} of the exported program")
        importer.m.set_outputs(values, tied=mutated)
        return mutated

    def _maxima(self) -> dict[str, int]:
        """Upper limits of symbols that the exporter knows."""
        found = {}
        for symbol, limits in self._exported.range_constraints.items():
            if getattr(limits.upper, "is_Integer", False) and int(limits.upper) < 2**31:
                found[self._symbols.name(str(symbol))] = int(limits.upper)
        return found

    def _calls(self) -> tuple[Flatten, Unflatten]:
        """What makes a list of tensors of a call's arguments, and a model's result of a list of tensors."""
        from torch.utils import _pytree as pytree

        spec_in, spec_out = self._exported.call_spec.in_spec, self._exported.call_spec.out_spec
        names = [spec.arg.name for spec in self._signature.input_specs if spec.target is None]
        tensors = {param.name for param in self._importer.m.inputs}

        def flatten(args: Sequence[object], kwargs: Mapping[str, object]) -> list[Tensor]:
            given, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
            if spec != spec_in:
                raise InputError(f"the model was exported to be called with {spec_in}, but got {spec}")
            return [value for name, value in zip(names, given, strict=True) if name in tensors]

        return flatten, lambda results: pytree.tree_unflatten(results, spec_out)


def _is_size(meta: object) -> bool:
    return (isinstance(meta, int) and not isinstance(meta, bool)) or type(meta).__name__ == "SymInt"


def _names(exported: ExportedProgram, dynamic_shapes: object) -> dict[str, str]:
    """What the caller calls the exporter's symbols: those that are the size of a dimension that has a name."""
    if dynamic_shapes is None:
        return {}
    from torch.utils import _pytree as pytree

    given = pytree.tree_leaves(dynamic_shapes, is_leaf=lambda own: hasattr(own, "__name__") or own is None)
    found: dict[str, str] = {}
    specs = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
    own = [
        node.meta["val"]
        for node in exported.graph.nodes
        if node.op == "placeholder" and specs[node.name].target is None
    ]
    symbolic = [size for meta in own for size in getattr(meta, "shape", ()) if type(size).__name__ == "SymInt"]
    named = [dim for dim in given if hasattr(dim, "__name__")]
    if len(named) != len(symbolic):
        return {}
    for dim, size in zip(named, symbolic, strict=True):
        if getattr(size.node.expr, "is_Symbol", False):
            found[str(size.node.expr)] = symbol_name(dim.__name__)
    return found
