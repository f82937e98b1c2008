# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How operations with regions are drawn: choices, and loops of few steps in which values don't grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_mlir.checks import Option
from rlx_mlir.errors import BuildError
from rlx_mlir.fuzz.draft import FLOATS, Draft, Skip, word
from rlx_mlir.fuzz.primitives import generates
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.hir.values import ValueOrTuple

#: A step: the value it is of, and one of its shape that it may read.
Step = Callable[[GraphModule, Value, Value], Value]

#: What a step may do, such that values stay as large as they are.
STEPS: tuple[Step, ...] = (
    lambda m, x, other: m.add(m.mul(x, 0.5), m.mul(other, 0.5)),
    lambda m, x, other: m.maximum(x, other),
    lambda m, x, other: m.minimum(other, x),
    lambda m, x, _: m.neg(x),
    lambda m, x, _: m.abs(x),
    lambda m, x, _: m.mul(x, 0.75),
    lambda m, x, other: m.sub(m.mul(x, 0.25), other),
    lambda m, x, other: m.where(m.compare("lt", x, other), x, other),
    lambda m, x, other: other,
)


def _step(draft: Draft, other: Value) -> Callable[[Value], Value]:
    """One to three random steps, which may read a value from outside; perhaps a product before them.

    What has products keeps its region, with kernels for what is in it; short scans are unrolled.
    """
    steps = [draft.choose(STEPS) for _ in range(draft.integer(1, 3))]
    weight, width = None, other.shape[-1] if len(other.shape) > 1 else 0
    if isinstance(width, int) and width and draft.chance(0.5):
        weight = draft.new([width, width], word(other), scale=width**-0.5, param=0.8)

    def run(x: Value) -> Value:
        if weight is not None:
            x = draft.module.tanh(draft.module.matmul(x, weight))
        for step in steps:
            x = step(draft.module, x, other)
        return x

    return run


def _pair(draft: Draft, least_rank: int = 0) -> tuple[Value, Value]:
    """A value and one like it."""
    x = draft.any(FLOATS, least_rank)
    return x, draft.like(x.shape, word(x))


def _built(draft: Draft, build: Callable[[], ValueOrTuple]) -> None:
    """Runs a builder, whose results can be operands from then on."""
    try:
        found = build()
    except BuildError:  # such as sizes that two values don't share for sure
        raise Skip from None
    listed: Sequence[ValueOrTuple] = found if isinstance(found, tuple) else (found,)
    for each in listed:
        draft.values += each if isinstance(each, tuple) else [each] if each is not None else []


@generates("mir.if")
def choice(draft: Draft) -> None:
    x, other = _pair(draft)
    condition = draft.new([], "i1", param=0.1)
    then, otherwise = _step(draft, other), _step(draft, x)
    _built(draft, lambda: draft.module.cond(condition, lambda: then(x), lambda: otherwise(other)))


@generates("mir.while")
def loop(draft: Draft) -> None:
    m = draft.module
    x, other = _pair(draft)
    steps, limit = draft.integer(0, 4), draft.choose([None, None, 0, 2])
    count = draft.new([], "i32", domain="choice", param=0.1)
    swaps, step = draft.chance(0.3), _step(draft, other)

    def body(value: Value, old: Value, i: Value) -> tuple[Value, Value, Value]:
        following = old if swaps else step(value)
        return following, value, m.add(i, 1)

    def build() -> ValueOrTuple:
        return m.while_loop(lambda value, old, i: m.compare("lt", i, steps), body, (x, other, count), limit=limit)

    _built(draft, build)


@generates("mir.scan")
def scan(draft: Draft) -> None:
    m = draft.module
    xs = draft.any(FLOATS, 1)
    if draft.largest(xs.shape[0]) > 300:
        raise Skip
    entry = xs.shape[1:]
    init = draft.like(entry, word(xs))
    other = draft.like(entry, word(xs))
    step, length = _step(draft, other), draft.integer(0, 5)
    only, reverse, stacks = draft.chance(0.2), draft.chance(0.4), draft.chance(0.7)
    kept = 1 if length and only and draft.chance(0.3) else None

    def body(carried: Value, *given: Value) -> tuple[Value, Value | None]:
        following = m.add(m.mul(step(carried), 0.5), m.mul(given[0], 0.5)) if given else step(carried)
        return following, m.neg(following) if stacks else None

    sequences = None if only else xs
    _built(
        draft,
        lambda: m.scan(
            body, init, sequences, length=length if sequences is None else None, reverse=reverse, checkpoints=kept
        ),
    )


@generates("mir.custom_fn")
def function(draft: Draft) -> None:
    m = draft.module
    x, other = _pair(draft)
    steps = [draft.choose(STEPS) for _ in range(draft.integer(1, 3))]

    def run(value: Value, own: Value) -> Value:
        for step in steps:
            value = step(m, value, own)
        return value

    gradients: dict[str, Option] = {}
    if draft.chance(0.5):
        gradients["vjp"] = lambda value, own, result, dy: (m.mul(dy, own), m.mul(dy, result))
    if draft.chance(0.5):
        gradients["jvp"] = lambda value, own, dx, down: m.add(dx, m.mul(down, value))
    _built(draft, lambda: m.custom_fn(run, x, other, **gradients))
