# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step of training as one graph: loss, gradients, and the parameters after it, in the memory of those before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlx_mlir import checks
from rlx_mlir.autodiff.batched_modules import batched_argument, finished
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.modules import value_and_grad
from rlx_mlir.autodiff.registry import zeros_like
from rlx_mlir.autodiff.work import chosen, copy_of
from rlx_mlir.errors import InputError
from rlx_mlir.hir import GraphModule, place
from rlx_mlir.hir.graph import empty_module
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.optim.optimizers import Optimizer
from rlx_mlir.optim.state import GOOD, NORM, NUMBER, RATE, SCALE, begin_of
from rlx_mlir.semantics.function import PARAM, arguments

#: After so many steps with finite gradients, the scale of the loss is doubled.
PATIENCE = 2000


@dataclass(frozen=True)
class TrainStep:
    """A step of training.

    Attributes:
        module: the graph, at stage mir. Its inputs are those of the module and `optim.rate`, the learning rate; its
            parameters those of the module, and what the optimiser keeps; its outputs those of the module,
            `optim.gradient_norm`, and every parameter that changes, under its own name and tied to it.
        trained: the names of what is trained.
        state: what the optimiser keeps, by name, as it is before the first step.
    """

    module: GraphModule
    trained: tuple[str, ...]
    state: dict[str, np.ndarray]


def train_step(
    module: GraphModule,
    optimizer: Optimizer,
    wrt: Sequence[str] | None = None,
    *,
    clip_norm: float | None = None,
    accumulate: int = 1,
    loss_scale: float | None = None,
    recompute: Sequence[str] | str = (),
) -> TrainStep:
    """The graph of a step of training.

    Args:
        module: its first output is the loss: one element, a mean over the batch. At stage hir or mir; it isn't changed.
        optimizer: such as `adamw()`.
        wrt: the parameters that are trained; by default all of floats.
        clip_norm: the largest norm of all gradients together, to which larger ones are scaled.
        accumulate: so many batches make one step: inputs have them as a further first dimension, gradients and the loss
            are means over them, other outputs have that dimension, too.
        loss_scale: what the loss is multiplied by before it is differentiated, for gradients that would vanish in f16:
            it is halved, and the step left out, where a gradient isn't finite, and doubled after 2000 steps.
        recompute: as of `vjp`.

    Raises BuildError as `value_and_grad` does, and where a name is taken; InputError where an option isn't one.
    """
    here = place.caller()
    source = copy_of(module)
    with place.checking():
        if not isinstance(optimizer, Optimizer):
            raise InputError(f"'optimizer' is one, such as adamw(), but got {checks.shown(optimizer)}")
        count = checks.whole("accumulate", accumulate, 1)
        limit = None if clip_norm is None else _positive("clip_norm", clip_norm)
        scale = None if loss_scale is None else _positive("loss_scale", loss_scale)
        names = chosen(source.ir_module, wrt)
        kinds = {own.name: own.kind for own in arguments(source.entry)}
        if inputs := [name for name in names if kinds[name] != PARAM]:
            raise InputError(f"parameters are trained, but '{inputs[0]}' of module '{source.name}' is an input")
    outputs = list(source.outputs)
    taken = {RATE, NUMBER, NORM, SCALE, GOOD, *names} & {*outputs, *(kinds.keys() - set(names))}
    if taken:
        raise here.error(f"module '{source.name}' has an output or argument '{min(taken)}', which a step has, too")
    if scale is not None:
        source = _scaled(source)
    gradients = value_and_grad(source, names, recompute=recompute)
    if count > 1:
        losses = 1 if scale is None else 2
        gradients = _accumulated(gradients, len(outputs) + losses - 1, losses, count)
    return _Step(gradients, outputs, names, optimizer, limit, scale).built()


def _positive(name: str, value: float) -> float:
    number = checks.real(name, value)
    if not 0 < number < np.inf:
        raise InputError(f"'{name}' is a positive number, but got {value!r}")
    return number


def _scaled(module: GraphModule) -> GraphModule:
    """A module with the loss times a parameter as a further output before the others."""
    outputs = module.outputs
    loss = next(iter(outputs.values()))
    scaled = module.primitives.mul(loss, module.param(SCALE, [], loss.dtype))
    module.set_outputs({SCALE: scaled, **outputs})
    return module


def _accumulated(module: GraphModule, outputs: int, losses: int, count: int) -> GraphModule:
    """A module of several batches: losses and gradients are means, other outputs are stacked.

    Args:
        module: with `outputs` outputs, of which the first `losses` are losses, and then gradients.
        count: of batches.
    """
    m = Builders(empty_module(module.name, module.ir_module.context, place.caller()))
    own, dims = arguments(module.entry), module._all_dims()
    given = []
    for argument, handle in zip(own, module._block.arguments, strict=True):
        axis = None if argument.kind == PARAM else 0
        given.append(batched_argument(m, argument, list(dims[handle]), axis, Size.of(count)).value)
    values = list(module.outputs.values())
    summed = [*values[:losses], *values[outputs:]]
    likes = {argument.name: value for argument, value in zip(own, given, strict=True)}
    zeros = [m.constant(np.zeros([1] * value.ndim), value.dtype) for value in values[:losses]]
    zeros += [zeros_like(m, likes[_of_gradient(name)]) for name in list(module.outputs)[outputs:]]
    sequences = [value for argument, value in zip(own, given, strict=True) if argument.kind != PARAM]

    def batch(*entries: Value) -> tuple[tuple[Value, ...], tuple[Value, ...] | None]:
        sums, inputs = entries[: len(summed)], iter(entries[len(summed) :])
        read = [next(inputs) if a.kind != PARAM else value for a, value in zip(own, given, strict=True)]
        _, results = m.replayed(module._block, read)
        new = [*results[:losses], *results[outputs:]]
        return tuple(m.add(a, b) for a, b in zip(sums, new, strict=True)), tuple(results[losses:outputs]) or None

    totals, stacked = m.scan(batch, tuple(zeros), tuple(sequences), length=None if sequences else count)
    means = [m.mul(total, 1 / count) for total in totals]
    ordered = [*means[:losses], *(stacked or ()), *means[losses:]]
    return finished(m, dict(zip(module.outputs, ordered, strict=True)))


def _of_gradient(name: str) -> str:
    """The parameter that an output is the gradient by."""
    return name.removeprefix("d_")


class _Step:
    """What is added to loss and gradients.

    Args:
        module: loss, other outputs, and gradients; before them the scaled loss, where there is a scale.
        outputs: names of the outputs of the module that is trained.
        names: of the parameters.
        optimizer: what makes new ones of them.
        limit: of the gradients' norm.
        scale: of the loss.
    """

    def __init__(
        self,
        module: GraphModule,
        outputs: Sequence[str],
        names: Sequence[str],
        optimizer: Optimizer,
        limit: float | None,
        scale: float | None,
    ) -> None:
        self._module, self._m = module, module.primitives
        self._outputs, self._names, self._optimizer = outputs, names, optimizer
        self._limit, self._scale = limit, scale
        self._state: dict[str, np.ndarray] = {}
        self._new: dict[str, Value] = {}

    def built(self) -> TrainStep:
        """The step."""
        m, module = self._m, self._module
        values = list(module.outputs.values())[0 if self._scale is None else 1 :]
        gradients = values[len(self._outputs) :]
        old = {name: module.value(name) for name in self._names}
        scale = None if self._scale is None else module.value(SCALE)
        wide = [self._wide(gradient) for gradient in gradients]
        if scale is not None:
            wide = [m.div(gradient, m.cast(scale, gradient.dtype)) for gradient in wide]
        # A norm that no update waits for is summed where the update reads the gradient anyway, in one kernel.
        norm = self._norm([self._squares(gradient) for gradient in wide]) if self._is_first else None
        if self._limit is not None and norm is not None:
            factor = m.minimum(m.div(m.constant(self._limit, norm.dtype), m.add(norm, 1e-6)), 1.0)
            wide = [m.mul(gradient, m.cast(factor, gradient.dtype)) for gradient in wide]
        rate = module.input(RATE, [])
        before = self._kept(NUMBER, [], np.int32)
        number = m.add(before, 1)
        finite = None if scale is None or norm is None else m.lt(norm, np.inf)
        squares = []
        for name, gradient in zip(self._names, wide, strict=True):
            self._update(name, old[name], gradient, rate, number, finite)
            if norm is None:
                squares.append(self._squares(gradient))
        norm = self._norm(squares) if norm is None else norm
        self._new[NUMBER] = number if finite is None else m.where(finite, number, before)
        if scale is not None and finite is not None:
            self._rescale(scale, finite)
        outputs = dict(zip(self._outputs, values, strict=False))
        module.set_outputs({**outputs, NORM: norm, **self._new}, tied={name: name for name in self._new})
        module.erase_dead()
        return TrainStep(module, tuple(self._names), self._state)

    def _wide(self, x: Value) -> Value:
        """A value in a type of 32 bits at least."""
        return self._m.cast(x, "f32") if x.dtype.itemsize < 4 else x

    @property
    def _is_first(self) -> bool:
        """Whether updates need the norm of the gradients."""
        return self._limit is not None or self._scale is not None

    def _squares(self, gradient: Value) -> Value:
        """The squares of a gradient, summed along its rows where it has some."""
        m = self._m
        own = m.mul(gradient, gradient)
        return m.sum(own, -1, keep_dims=True) if own.ndim > 1 else own

    def _norm(self, squares: Sequence[Value]) -> Value:
        """The root of the sum of all squares, in f32."""
        m = self._m
        total: Value | None = None
        for own in squares:
            own = m.sum(own)
            own = m.cast(own, "f32") if own.dtype != np.float32 else own
            total = own if total is None else m.add(total, own)
        assert total is not None, "there is a parameter"
        return m.sqrt(total)

    def _kept(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike) -> Value:
        """A parameter of the optimiser's own."""
        self._state[name] = begin_of(name, shape, dtype, self._scale)
        return self._module.param(name, list(shape), dtype)

    def _update(self, name: str, own: Value, gradient: Value, rate: Value, number: Value, finite: Value | None) -> None:
        """Adds what a step makes of one parameter."""
        m, old = self._m, self._wide(own)
        shape = [size for size in own.shape if isinstance(size, int)]
        if len(shape) != own.ndim:
            raise InputError(f"what is trained has a size that is known, but parameter '{name}' is {list(own.shape)}")
        slots = {slot: self._kept(f"{slot}.{name}", shape, gradient.dtype) for slot in self._optimizer.slots}
        own_rate, own_number = (m.cast(x, gradient.dtype) for x in (rate, number))
        new, kept = self._optimizer.update(m, old, gradient, slots, own_rate, own_number)
        pairs = {name: (new, old), **{f"{slot}.{name}": (kept[slot], slots[slot]) for slot in slots}}
        for key, (after, before) in pairs.items():
            chosen_value = after if finite is None else m.where(finite, after, before)
            self._new[key] = m.cast(chosen_value, own.dtype) if key == name and own is not old else chosen_value

    def _rescale(self, scale: Value, finite: Value) -> None:
        """Halves the scale after gradients that aren't finite, and doubles it after many that are."""
        m = self._m
        self._state[SCALE] = begin_of(SCALE, [], scale.dtype, self._scale)
        good = m.add(self._kept(GOOD, [], np.int32), 1)
        is_long = m.ge(good, PATIENCE)
        grown = m.where(is_long, m.mul(scale, 2.0), scale)
        self._new[SCALE] = m.where(finite, grown, m.mul(scale, 0.5))
        zero = m.constant(0, "i32")
        self._new[GOOD] = m.where(m.bitwise_and(finite, m.bitwise_not(is_long)), good, zero)
