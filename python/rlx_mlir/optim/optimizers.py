# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimisers: what a step makes of a parameter, of its gradient, and of what it keeps between steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlx_mlir import checks
from rlx_mlir.errors import InputError

if TYPE_CHECKING:
    from rlx_mlir.hir.images import Images
    from rlx_mlir.hir.values import Value


@dataclass(frozen=True)
class Optimizer(ABC):
    """A rule of one parameter, from its gradient; arrays that it keeps for each parameter begin with zeros."""

    @property
    @abstractmethod
    def slots(self) -> tuple[str, ...]:
        """The names of these arrays."""

    @abstractmethod
    def update(
        self, m: Images, w: Value, g: Value, slots: Mapping[str, Value], rate: Value, number: Value
    ) -> tuple[Value, dict[str, Value]]:
        """The parameter and the slots after a step.

        Args:
            m: builders of primitives.
            w, g: the parameter and its gradient, of one shape, of f32 or f64.
            slots: by name, of that shape.
            rate: the learning rate: one element.
            number: of the step, from 1: one element.
        """

    def described(self) -> dict[str, object]:
        """Its name and what it was made with, as JSON can hold it."""
        return {"name": type(self).__name__.lower(), **asdict(self)}


def _within(name: str, value: float, least: float, below: float | None = None) -> float:
    """A number of at least `least`, and less than `below`."""
    number = checks.real(name, value)
    if not least <= number or (below is not None and number >= below):
        limits = f"of at least {least:g}" if below is None else f"from {least:g} to less than {below:g}"
        raise InputError(f"'{name}' is a number {limits}, but got {value!r}")
    return number


@dataclass(frozen=True)
class Sgd(Optimizer):
    """See `sgd`."""

    momentum: float
    nesterov: bool
    weight_decay: float

    @property
    def slots(self) -> tuple[str, ...]:
        """The velocity, where there is momentum."""
        return ("velocity",) if self.momentum else ()

    def update(
        self, m: Images, w: Value, g: Value, slots: Mapping[str, Value], rate: Value, number: Value
    ) -> tuple[Value, dict[str, Value]]:
        """See `sgd`."""
        if self.weight_decay:
            g = m.add(g, m.mul(w, self.weight_decay))
        if not self.momentum:
            return m.sub(w, m.mul(g, rate)), {}
        velocity = m.add(m.mul(slots["velocity"], self.momentum), g)
        direction = m.add(g, m.mul(velocity, self.momentum)) if self.nesterov else velocity
        return m.sub(w, m.mul(direction, rate)), {"velocity": velocity}


@dataclass(frozen=True)
class AdamW(Optimizer):
    """See `adamw`."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float

    @property
    def slots(self) -> tuple[str, ...]:
        """The running means of the gradient and of its square."""
        return ("mean", "square")

    def update(
        self, m: Images, w: Value, g: Value, slots: Mapping[str, Value], rate: Value, number: Value
    ) -> tuple[Value, dict[str, Value]]:
        """See `adamw`."""
        # Numbers first: what follows on whole arrays is one kernel then, which divides once for each element.
        first, second = (_bias(m, beta, number) for beta in (self.beta1, self.beta2))
        decay = m.sub(1.0, m.mul(rate, self.weight_decay))
        length, inverse = m.div(rate, first), m.div(1.0, second)
        mean = m.add(m.mul(slots["mean"], self.beta1), m.mul(g, 1 - self.beta1))
        square = m.add(m.mul(slots["square"], self.beta2), m.mul(m.mul(g, g), 1 - self.beta2))
        spread = m.add(m.sqrt(m.mul(square, inverse)), self.eps)
        return m.sub(m.mul(w, decay), m.div(m.mul(mean, length), spread)), {"mean": mean, "square": square}


def _bias(m: Images, beta: float, number: Value) -> Value:
    """1 - beta^number: the part of a running mean that steps have given."""
    found: Value = m.sub(1.0, m.pow(m.constant(beta, number.dtype), number))
    return found


@dataclass(frozen=True)
class Lion(Optimizer):
    """See `lion`."""

    beta1: float
    beta2: float
    weight_decay: float

    @property
    def slots(self) -> tuple[str, ...]:
        """The running mean of the gradient."""
        return ("mean",)

    def update(
        self, m: Images, w: Value, g: Value, slots: Mapping[str, Value], rate: Value, number: Value
    ) -> tuple[Value, dict[str, Value]]:
        """See `lion`."""
        mean, decay = slots["mean"], m.sub(1.0, m.mul(rate, self.weight_decay))
        mixed = m.add(m.mul(mean, self.beta1), m.mul(g, 1 - self.beta1))
        zero, one = m.constant(0.0, w.dtype), m.constant(1.0, w.dtype)
        sign = m.sub(m.where(m.gt(mixed, zero), one, zero), m.where(m.lt(mixed, zero), one, zero))
        kept = m.mul(w, decay)
        following = m.add(m.mul(mean, self.beta2), m.mul(g, 1 - self.beta2))
        return m.sub(kept, m.mul(sign, rate)), {"mean": following}


def sgd(*, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0) -> Optimizer:
    """Gradient descent: v = momentum v + g, w = w - rate v; with `nesterov`, w = w - rate (g + momentum v).

    Args:
        momentum: from 0 to less than 1.
        nesterov: look ahead along the momentum.
        weight_decay: weight_decay w is added to the gradient before.

    Raises InputError where a number is out of its range.
    """
    return Sgd(
        _within("momentum", momentum, 0, 1), checks.flag("nesterov", nesterov), _within("weight_decay", weight_decay, 0)
    )


def adamw(*, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.01) -> Optimizer:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019).

        mean = beta1 mean + (1 - beta1) g
        square = beta2 square + (1 - beta2) g^2
        w = (1 - rate weight_decay) w - rate (mean / (1 - beta1^t)) / (sqrt(square / (1 - beta2^t)) + eps)

    Args:
        beta1, beta2: from 0 to less than 1.
        eps: added to the root; at least 0.
        weight_decay: at least 0.

    Raises InputError where a number is out of its range.
    """
    return AdamW(
        _within("beta1", beta1, 0, 1),
        _within("beta2", beta2, 0, 1),
        _within("eps", eps, 0),
        _within("weight_decay", weight_decay, 0),
    )


def lion(*, beta1: float = 0.9, beta2: float = 0.99, weight_decay: float = 0.0) -> Optimizer:
    """Steps of one length in the direction of a running mean's sign (Chen et al., 2023).

        w = (1 - rate weight_decay) w - rate sign(beta1 mean + (1 - beta1) g)
        mean = beta2 mean + (1 - beta2) g

    Args:
        beta1, beta2: from 0 to less than 1.
        weight_decay: at least 0.

    Raises InputError where a number is out of its range.
    """
    return Lion(_within("beta1", beta1, 0, 1), _within("beta2", beta2, 0, 1), _within("weight_decay", weight_decay, 0))
