# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A backend of `torch.compile`: `torch.compile(model, backend="rlx")`.

Graphs come by AOTAutograd: one of forward for inference, and one of forward and one of backward for training. Sizes
that are dynamic there are symbols here: a graph is compiled again only where a size is above what memory was planned
for, and then for twice as much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rlx_mlir.compiler import compile as compile_module
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.hir.module import GraphModule
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import DEFAULT_MAXIMUM, Size, at_most
from rlx_mlir.pytorch import handlers as handlers
from rlx_mlir.pytorch.graph import Entry, Importer
from rlx_mlir.pytorch.program import kept
from rlx_mlir.pytorch.symbols import Symbols
from rlx_mlir.pytorch.tensors import array_of, tensor_of, word_of
from rlx_mlir.runtime.executable import Executable

if TYPE_CHECKING:
    from torch import Tensor, fx
    from torch.fx import Node

#: What a graph takes and gives: tensors, sizes and numbers; None where a gradient isn't wanted.
Item: TypeAlias = Any
Compiled = Callable[[list[Item]], list[Item]]


def rlx(graph: fx.GraphModule, inputs: Sequence[Item], **options: Any) -> Callable[..., list[Item]]:
    """Compiles a graph that `torch.compile` found; `options=` of that are those of `rlx_mlir.compile`.

    Raises UnsupportedError, which lists every operator without a counterpart; `torch.compile` passes it on.
    """
    from torch._decomp import core_aten_decompositions
    from torch._dynamo.backends.common import aot_autograd

    given = dict(options.get("options") or {})

    def forward(own: fx.GraphModule, examples: Sequence[Item]) -> Callable[..., list[Item]]:
        return _boxed(CompiledGraph(own, given, _static_inputs()))

    def backward(own: fx.GraphModule, examples: Sequence[Item]) -> Callable[..., list[Item]]:
        return _boxed(CompiledGraph(own, given, frozenset()))

    def training(own: fx.GraphModule, examples: Sequence[Item]) -> Callable[..., list[Item]]:
        return _boxed(CompiledGraph(own, given, frozenset()))

    compiled: Callable[..., Callable[..., list[Item]]] = aot_autograd(
        fw_compiler=training,
        bw_compiler=backward,
        inference_compiler=forward,
        decompositions=kept(core_aten_decompositions()),
    )
    return compiled(graph, inputs)


def _sized(importer: Importer, value: Entry, fake: Tensor | int) -> Entry:
    """An input with the sizes that it has for the exporter: one that is a product is parted, and joined again."""
    wanted = importer.shape(fake) if isinstance(value, Value) else []
    if not isinstance(value, Value) or list(value.shape) == wanted:
        return value
    parted: list[int | str] = []
    for size in importer.sizes(fake):
        if len(size.terms) > 1:
            raise UnsupportedError(f"an input of PyTorch's graph has a dimension of {size}, no product of symbols")
        for factors, number in size.terms:
            parted += [*([number] if number != 1 or not factors else []), *map(str, factors)]
    return importer.m.reshape(importer.m.reshape(value, parted), wanted)


def _boxed(run: Compiled) -> Callable[..., list[Item]]:
    from functorch.compile import make_boxed_func

    boxed: Callable[..., list[Item]] = make_boxed_func(lambda *given: run(list(given)))
    return boxed


def _static_inputs() -> frozenset[int]:
    """Numbers of the inputs that are parameters and buffers, of the graph that is being compiled."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    meta = getattr(context, "fw_metadata", None)
    return frozenset(getattr(meta, "static_input_indices", None) or ())


class CompiledGraph:
    """A graph of operators, compiled; a call takes and gives what the graph does: tensors and sizes.

    Args:
        graph: of AOTAutograd.
        options: of `rlx_mlir.compile`.
        static: numbers of inputs that stay the same from call to call: parameters. They are bound, and bound again
            where a call finds them changed.
    """

    def __init__(self, graph: fx.GraphModule, options: Mapping[str, Any], static: frozenset[int]) -> None:
        self._options = dict(options)
        self._symbols = Symbols()
        self._static = static
        nodes = list(graph.graph.nodes)
        self._places = [node for node in nodes if node.op == "placeholder"]
        importer = Importer("graph", self._symbols)
        arguments = {node: self._argument(importer, number, node) for number, node in enumerate(self._places)}
        for node, value in arguments.items():  # once all are there, so that sizes have where they follow from
            importer.set(node, _sized(importer, value, node.meta["val"]))
        importer.run(nodes)
        self._results = list(next(node for node in nodes if node.op == "output").args[0])
        self._outputs = self._set_outputs(importer)
        importer.m.erase_dead()
        self.module: GraphModule = importer.m
        self._params = [int(spec.name[1:]) for spec in self.module.params]
        self._inputs = [int(spec.name[1:]) for spec in self.module.inputs]
        self._executable: Executable | None = None
        self._maxima = {symbol: self._first_maximum(symbol) for symbol in self.module.dynamic_symbols}
        self._bound: list[tuple[int, int]] = []

    def _argument(self, importer: Importer, number: int, node: Node) -> Entry:
        """An input or parameter, or a number; a dimension that isn't one symbol has a symbol of its own."""
        fake = node.meta["val"]
        if not hasattr(fake, "shape"):
            return fake if isinstance(fake, bool | float) else self._symbols.size(fake)
        shape = [
            size if isinstance(size, int) or size.isidentifier() else f"a{number}_{axis}"
            for axis, size in enumerate(importer.shape(fake))
        ]
        make = importer.m.param if number in self._static else importer.m.input
        return make(f"a{number}", shape, word_of(fake.dtype))

    def _first_maximum(self, symbol: str) -> int:
        """What memory is planned for at first: a symbol that stands for a product may be as large as that."""
        number, _, axis = symbol.partition("_")
        if not axis:
            return DEFAULT_MAXIMUM
        size = self._symbols.size(self._places[int(number[1:])].meta["val"].shape[int(axis)])
        return max(at_most(size, {}), 1)

    def _set_outputs(self, importer: Importer) -> dict[Node, str]:
        """Says what the module gives: the tensors that aren't inputs, each once; gives their names."""
        names: dict[Node, str] = {}
        for node in self._results:
            if hasattr(node, "meta") and node.op != "placeholder" and hasattr(node.meta.get("val"), "shape"):
                names.setdefault(node, f"r{len(names)}")
        importer.m.set_outputs({name: importer.get(node) for node, name in names.items()})
        return names

    def __call__(self, given: list[Item]) -> list[Item]:
        """Runs the graph."""
        sizes = self._sizes(given)
        found: dict[str, np.ndarray] = {}
        if self._outputs:
            executable = self._ready(given, sizes)
            found = executable.run({f"a{n}": array_of(given[n], f"input {n}") for n in self._inputs})
        return [self._result(node, given, found, sizes) for node in self._results]

    def _sizes(self, given: Sequence[Item]) -> dict[str, int]:
        """What each symbol is in a call."""
        sizes: dict[str, int] = {}
        for number, (node, value) in enumerate(zip(self._places, given, strict=True)):
            fake = node.meta["val"]
            pairs = zip(fake.shape, value.shape, strict=True) if hasattr(fake, "shape") else [(fake, value)]
            for axis, (symbol, size) in enumerate(pairs):
                if isinstance(symbol, bool | float) or not isinstance(size, int):
                    continue
                own = str(self._symbols.size(symbol))
                sizes[own if own.isidentifier() else f"a{number}_{axis}"] = size
        return sizes

    def _ready(self, given: Sequence[Item], sizes: Mapping[str, int]) -> Executable:
        """The code for the sizes of a call, with its parameters bound."""
        import torch

        larger = {symbol for symbol, limit in self._maxima.items() if sizes.get(symbol, 0) > limit}
        for symbol in larger:
            self._maxima[symbol] = 1 << (sizes[symbol] - 1).bit_length()
        if self._executable is None or larger:
            options = {"maxima": self._maxima, "threads": torch.get_num_threads(), **self._options}
            self._executable = compile_module(self.module, **options)
            self._bound = []
        states = [(given[n].data_ptr(), given[n]._version) for n in self._params]
        if states != self._bound or not self._bound:
            arrays = {f"a{n}": array_of(given[n], f"parameter {n}") for n in self._params}
            self._executable.set_params(arrays)
            self._bound = states
        return self._executable

    def _result(
        self, node: Node, given: Sequence[Item], found: Mapping[str, np.ndarray], sizes: Mapping[str, int]
    ) -> Item:
        """What a call gives for a node: a tensor, an input as it is, a size, or None."""
        if not hasattr(node, "meta"):
            return node
        if node.op == "placeholder":
            return given[self._places.index(node)]
        if node in self._outputs:
            return tensor_of(found[self._outputs[node]])
        size: Size = self._symbols.size(node.meta["val"])
        if not size.symbols <= sizes.keys():
            raise UnsupportedError(f"the size {size}, of which no input has the symbols")
        return size.evaluate(sizes)
