# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What can be tuned: a module of a loaded model, or any module with arrays to run it on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from rlx_mlir.compiler import CompileOptions
from rlx_mlir.errors import InputError
from rlx_mlir.measure.profile import sample_ids
from rlx_mlir.measure.programs import executable_of, graph_of, material_of, options_of
from rlx_mlir.mir.dims import DEFAULT_MAXIMUM
from rlx_mlir.models.model import Model
from rlx_mlir.models.session import Session
from rlx_mlir.runtime.device import DeviceArray
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.runtime.prepare import Prepared
from rlx_mlir.semantics.function import INPUT, Argument, arguments
from rlx_mlir.verify.inputs import draw, symbols_of

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule
    from rlx_mlir.runtime.cuda import CudaExecutable

__all__ = ["ModelSubject", "ModuleSubject", "Sizes", "Subject"]

Sizes = Mapping[str, int | Sequence[int]]
"""Sizes by symbol; of one symbol there may be several, which are measured one after the other."""

#: Decode steps of a round.
_STEPS = 8


class Subject(Protocol):
    """A module, how it is compiled, and how it is run.

    Attributes:
        name: of the module.
        options: by which it is compiled where nothing was measured.
        on_gpu: whether a GPU runs it.
        symbol: what the sizes in `cases` are sizes of.
        cases: the sizes of all symbols that aren't at their maxima, by that of `symbol`.
        programs: whose candidates for CPUs are tried.
        params: arrays of its parameters.
        shared: what is prepared from these, one copy for all variants.
    """

    name: str
    options: CompileOptions
    on_gpu: bool
    symbol: str
    cases: Mapping[int, Mapping[str, int]]
    programs: tuple[str, ...]
    params: Mapping[str, object]
    shared: dict[str, Prepared]

    def graph(self) -> GraphModule:
        """The graph that is compiled."""

    def material(self) -> Mapping[str, object]:
        """What the graph is made of, for keys of caches."""

    def steps(self, executable: Executable, size: int) -> list[Callable[[], object]]:
        """What runs a compiled variant once each, at a size of `cases`."""


class ModelSubject:
    """One of the two modules of a model: prompts of some lengths, or single tokens in the middle of the context."""

    symbol = "tokens"

    def __init__(
        self,
        model: Model,
        program: str,
        params: Mapping[str, object],
        shared: dict[str, Prepared],
        prompts: Sequence[int],
    ) -> None:
        self._model = model
        self.name = program
        self.options = options_of(model, program)
        self.on_gpu = model.on_gpu
        self.params, self.shared = params, shared
        self.programs: tuple[str, ...] = (program,)
        most = min(model.chunk, model.context - 1)
        self.cases: Mapping[int, Mapping[str, int]] = {1: {}}
        if program == "prefill":
            lengths = sorted({min(length, most) for length in prompts})
            self.cases = {length: {"seq": length, "outputs": 1} for length in lengths}

    def graph(self) -> GraphModule:
        return graph_of(self._model, self.name)

    def material(self) -> Mapping[str, object]:
        return material_of(self._model, self.name)

    def steps(self, executable: Executable, size: int) -> list[Callable[[], object]]:
        model = self._model
        others: dict[str, Any] = {name: executable_of(model, name) for name in ("prefill", "decode")}
        variant = Model(
            model.file,
            model.config,
            context=model.context,
            chunk=model.chunk,
            activations=model.activations,
            candidates=model.candidates,
            **{**others, self.name: executable},
        )
        session = Session(variant)
        if self.name == "prefill":
            return [partial(session.prefill, sample_ids(size, model.config.vocab))]
        # As if there were tokens before: keys of zeros take the same time.
        before = model.context // 2
        session.load(sample_ids(before, model.config.vocab), 0, [], None)
        steps = min(_STEPS, model.context - before)
        return [partial(session.advance, token) for token in sample_ids(steps, model.config.vocab)]


class ModuleSubject:
    """Any module, on arrays that are given, and on random numbers for what isn't: integers are zeros then."""

    programs: tuple[str, ...] = ("prefill", "decode")  # how many rows it has at a time isn't known

    def __init__(
        self, module: GraphModule, options: CompileOptions, sizes: Sizes, arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Raises InputError for unknown symbols and arrays, and for sizes that can't be."""
        self._module = module
        self.name = module.name
        self.options = options
        self.on_gpu = options.is_gpu
        self.shared: dict[str, Prepared] = {}
        self._on_device: dict[int, dict[str, object]] = {}
        known = arguments(module.entry)
        inputs = [own for own in known if own.kind == INPUT]
        params = [own for own in known if own.kind != INPUT]
        _check_known("arrays", arrays, [own.name for own in known], module.name)
        symbols = symbols_of(known)
        _check_known("sizes", sizes, symbols, module.name)
        self.symbol, self.cases = _cases(symbols, options.maxima, _sizes_of(known, arrays), sizes)
        self._inputs = {size: _values(inputs, case, arrays) for size, case in self.cases.items()}
        self.params: Mapping[str, object] = _values(params, next(iter(self.cases.values())), arrays)

    def graph(self) -> GraphModule:
        return self._module

    def material(self) -> Mapping[str, object]:
        return {"module": self._module.to_text()}

    def steps(self, executable: Executable, size: int) -> list[Callable[[], object]]:
        # What an optimiser's step gives would grow from run to run, and needs no donation not to be copied.
        tied = {spec.tied for spec in executable.outputs if spec.tied is not None and spec.updated}
        if not self.on_gpu:
            return [partial(executable.run, self._inputs[size], donate=tied)]
        return [partial(cast("CudaExecutable", executable).run, self._placed(size), donate=tied, device_outputs=True)]

    def _placed(self, size: int) -> Mapping[str, object]:
        """The inputs on the GPU, so that copies aren't measured; integers stay: positions are checked by the host."""
        if size not in self._on_device:
            self._on_device[size] = {
                name: array if array.dtype.kind in "iub" else DeviceArray.from_numpy(array)
                for name, array in self._inputs[size].items()
            }
        return self._on_device[size]


def _values(
    known: Sequence[Argument], sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The arrays of some arguments: those that are given, and drawn ones."""
    drawn = draw([own for own in known if own.name not in arrays], sizes)
    return {own.name: np.asarray(arrays[own.name]) if own.name in arrays else drawn[own.name] for own in known}


def _sizes_of(known: Sequence[Argument], arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Sizes that given arrays have."""
    found: dict[str, int] = {}
    for own in known:
        shape = np.shape(arrays[own.name]) if own.name in arrays else ()
        if len(shape) == len(own.symbols):  # others are refused when they are run
            found |= {symbol: size for symbol, size in zip(own.symbols, shape, strict=True) if symbol not in ("", "?")}
    return found


def _cases(
    symbols: Sequence[str], maxima: Mapping[str, int], given: Mapping[str, int], sizes: Sizes
) -> tuple[str, Mapping[int, Mapping[str, int]]]:
    """The symbol of which there may be several sizes, and the sizes of all symbols by that of this one.

    Args:
        symbols: of the module.
        maxima: that are declared.
        given: sizes of given arrays.
        sizes: what is said.
    """
    listed: dict[str, list[int]] = {}
    for symbol in symbols:
        most = maxima.get(symbol, DEFAULT_MAXIMUM)
        own = sizes.get(symbol, given.get(symbol, most))
        listed[symbol] = list(own) if isinstance(own, Sequence) else [own]
        if not listed[symbol] or any(
            isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in listed[symbol]
        ):
            raise InputError(f"'sizes' expects positive numbers for '{symbol}', but got {own!r}")
        if (largest := max(listed[symbol])) > most:
            raise InputError(f"'sizes' has {largest} for '{symbol}', but its maximum is {most}: see 'maxima'")
    several = [symbol for symbol, own in listed.items() if len(own) > 1]
    if len(several) > 1:
        raise InputError(f"'sizes' may have several numbers for one symbol, but has for {' and '.join(several)}")
    if not listed:
        return "", {1: {}}
    varied = (several or [symbol for symbol in sizes if symbol in listed] or list(listed))[0]
    single = {symbol: own[0] for symbol, own in listed.items()}
    return varied, {size: {**single, varied: size} for size in sorted(set(listed[varied]))}


def _check_known(what: str, given: Iterable[str], known: Sequence[str], module: str) -> None:
    """Raises InputError where a name isn't among those of the module."""
    for name in given:
        if name not in known:
            raise InputError(f"'{what}' names '{name}', but '{module}' has {', '.join(known) or 'none'}")
