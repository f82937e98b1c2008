# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of loops over sequences under the names of their uses, and of their gradients; all of them are `scan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rlx_mlir.attributes import PythonValue
from rlx_mlir.hir import place
from rlx_mlir.hir.backward import Gradients
from rlx_mlir.hir.checked import checked
from rlx_mlir.hir.control import Values, function_of
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Value, ValueOrTuple

if TYPE_CHECKING:
    from typing_extensions import Unpack

Body = Callable[..., Values]


def last_of_segments(length: int, count: int) -> list[int]:
    """The steps after which the carried values are kept, of so many steps: ceil((k + 1) length / count) - 1."""
    return [-(-(k + 1) * length // count) - 1 for k in range(count)]


@checked
class ScanBuilders(Gradients):
    """The builders. A body is a function of the carried value (one, or several in a tuple), of what else it is given,
    one after the other, and gives the next carried value."""

    def scan_checkpointed(
        self, body: Body, init: Values, length: int, checkpoints: int, **options: Unpack[Options]
    ) -> ValueOrTuple:
        """The carried value after so many steps; gradients keep so many of those before, and compute the others again.

        Args:
            body: a function of the carried value.
            init: that before the first step.
            length: number of steps.
            checkpoints: from 1 to `length`.
        """
        function_of("body", body, _count(init))
        return self.scan(
            lambda *carried: (body(*carried), None), init, length=length, checkpoints=checkpoints, **options
        )[0]

    def scan_with_xs(self, body: Body, init: Values, xs: Values, **options: Unpack[Options]) -> ValueOrTuple:
        """The carried value after a step for each entry along the first dimension of `xs`.

        Args:
            body: a function of the carried value and of an entry of each of `xs`.
            init: the carried value before the first step.
            xs: one value, or a tuple, of one size along the first dimension.
        """
        function_of("body", body, _count(init) + _count(xs))
        return self.scan(lambda *given: (body(*given), None), init, xs, **options)[0]

    def scan_with_bcasts_and_xs(
        self, body: Body, init: Values, bcasts: Sequence[Value], xs: Sequence[Value], **options: Unpack[Options]
    ) -> ValueOrTuple:
        """The same with values that are the same in each step: `body(carried, *bcasts, *entries)`."""
        count = _count(init)
        function_of("body", body, count + len(bcasts) + len(xs))

        def step(*given: Value) -> tuple[Values, None]:
            return body(*given[:count], *bcasts, *given[count:]), None

        return self.scan(step, init, tuple(xs), **options)[0]

    def scan_trajectory(self, body: Body, init: Value, length: int, **options: Unpack[Options]) -> Value:
        """The carried value after each of so many steps, along a first dimension: [length, ...]."""

        function_of("body", body, 1)

        def step(carried: Value) -> tuple[Value, Value]:
            following = body(carried)
            assert isinstance(following, Value)
            return following, following

        found: Value = self.scan(step, init, length=length, **options)[1]
        return found

    # -- gradients ---------------------------------------------------------------------------------------------------

    def scan_backward(
        self,
        body_vjp: Callable[..., Values],
        init: Value,
        trajectory: Value,
        upstream: Value,
        *xs: Value,
        **options: PythonValue,
    ) -> Value:
        """The gradient of a scan by `init`; see `scan_backward_all`, which gives those by `xs` as well."""
        return self.scan_backward_all(body_vjp, init, trajectory, upstream, *xs, **options)[0]

    def scan_backward_xs(
        self,
        body_vjp: Callable[..., Values],
        init: Value,
        trajectory: Value,
        upstream: Value,
        *xs: Value,
        index: int,
        **options: PythonValue,
    ) -> Value:
        """The gradient of a scan by `xs[index]`; see `scan_backward_all`."""
        return self.scan_backward_all(body_vjp, init, trajectory, upstream, *xs, **options)[1][index]

    def scan_backward_with_checkpoints(
        self,
        body_vjp: Callable[..., Values],
        body: Body,
        init: Value,
        checkpoints: Value,
        upstream: Value,
        *xs: Value,
        **options: PythonValue,
    ) -> Value:
        """`scan_backward` from some of the carried values; `body` computes the others again."""
        return self.scan_backward_all(body_vjp, init, checkpoints, upstream, *xs, body=body, **options)[0]

    def scan_backward_xs_with_checkpoints(
        self,
        body_vjp: Callable[..., Values],
        body: Body,
        init: Value,
        checkpoints: Value,
        upstream: Value,
        *xs: Value,
        index: int,
        **options: PythonValue,
    ) -> Value:
        """`scan_backward_xs` from some of the carried values; `body` computes the others again."""
        return self.scan_backward_all(body_vjp, init, checkpoints, upstream, *xs, body=body, **options)[1][index]

    def scan_backward_all(
        self,
        body_vjp: Callable[..., Values],
        init: Value,
        trajectory: Value,
        upstream: Value,
        *xs: Value,
        length: int | None = None,
        of_trajectory: bool = False,
        body: Body | None = None,
    ) -> tuple[Value, list[Value]]:
        """The gradients of `c = init; for t: c = body(c, *xs[t])` by `init` and by each of `xs`.

        Args:
            body_vjp: a function of a carried value, of an entry of each of `xs`, and of the gradient by what the body
                gives for these; it gives the gradient by the carried value, and by each entry: one value, or a tuple.
            init: the carried value before the first step.
            trajectory: the carried value after each step, [length, ...]; with `body`, after the steps that
                `checkpoints` of `scan` says, [K, ...].
            upstream: the gradient by the carried value after the last step; with `of_trajectory`, by that after each.
            xs: the sequences.
            length: number of steps, which is known; by default that of `xs` or of the trajectory.
            of_trajectory: whether `upstream` is [length, ...].
            body: a function of a carried value and of an entry of each of `xs`, where the trajectory has gaps.
        """
        here = place.caller()
        function_of("body_vjp", body_vjp, 2 + len(xs))
        if body is not None:
            function_of("body", body, 1 + len(xs))
        for number, x in enumerate((trajectory, *xs)):
            if not x.ndim:
                what = f"number {number - 1} of 'xs'" if number else "'trajectory'"
                raise here.error(f"{what} has a dimension of steps, but it is a single element")
        kept = trajectory.shape[0]
        steps: int | str | None = length if length is not None else xs[0].shape[0] if xs else kept
        if body is None:
            before = self._before(init, trajectory)
            return self._swept(
                body_vjp, before, self._begin(init, upstream, of_trajectory), upstream, xs, of_trajectory
            )
        if not isinstance(steps, int) or not isinstance(kept, int) or not 1 <= kept <= max(steps, 1):
            raise here.error(
                "a scan with checkpoints has a known number of steps, and from 1 to so many checkpoints, but got "
                f"{steps} and {kept}"
            )
        ends = last_of_segments(steps, kept)
        gradient, parts = self._begin(init, upstream, of_trajectory), []
        for number in range(kept)[::-1]:
            first, count = (0 if number == 0 else ends[number - 1] + 1), 0
            count = ends[number] + 1 - first
            start = init if number == 0 else self._entry(trajectory, number - 1)
            entries = [self.narrow(x, 0, first, count) for x in xs]
            before = self._carried(body, start, entries, count)
            own = self.narrow(upstream, 0, first, count) if of_trajectory else upstream
            gradient, found = self._swept(body_vjp, before, gradient, own, entries, of_trajectory)
            parts.append(found)
        return gradient, [self.concat(list(each)[::-1], 0) for each in zip(*parts, strict=True)]

    def _begin(self, init: Value, upstream: Value, of_trajectory: bool) -> Value:
        """The gradient by the last carried value, without what its place in the trajectory gets."""
        return self.expand(self.constant(0.0, init.dtype), init.shape) if of_trajectory else upstream

    def _entry(self, x: Value, number: int) -> Value:
        """An entry along the first dimension."""
        return self.reshape(self.narrow(x, 0, number, 1), list(x.shape[1:]))

    def _before(self, init: Value, trajectory: Value) -> Value:
        """The carried value before each step."""
        first = self.reshape(init, [1, *init.shape])
        return self.slice(self.concat([first, trajectory], 0), 0, 0, -1)

    def _carried(self, body: Body, start: Value, entries: Sequence[Value], count: int) -> Value:
        """The carried value before each of so many steps."""
        found: Value = self.scan(
            lambda carried, *given: (body(carried, *given), carried),
            start,
            tuple(entries) or None,
            length=count,
        )[1]
        return found

    def _swept(
        self,
        body_vjp: Callable[..., Values],
        before: Value,
        gradient: Value,
        upstream: Value,
        xs: Sequence[Value],
        of_trajectory: bool,
    ) -> tuple[Value, list[Value]]:
        """The gradient by the carried value before the first step, and by `xs`, from that after the last one."""

        def step(later: Value, carried: Value, *given: Value) -> tuple[Value, tuple[Value, ...] | None]:
            own, entries = self.add(later, given[-1]) if of_trajectory else later, given[: len(xs)]
            found = body_vjp(carried, *entries, own)
            by_carried, *by_entries = found if isinstance(found, tuple | list) else (found,)
            return by_carried, tuple(by_entries) or None

        sequences = (before, *xs, upstream) if of_trajectory else (before, *xs)
        by_init, by_xs = self.scan(step, gradient, sequences, reverse=True)
        return by_init, list(by_xs or ())


def _count(values: Values) -> int:
    return len(values) if isinstance(values, tuple | list) else 1
