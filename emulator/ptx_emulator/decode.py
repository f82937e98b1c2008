# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns instructions into Python functions that run them for the lanes of a machine's running group.

A handler is registered by the first word of an opcode. It looks at modifiers and operands once, and returns a function
without arguments; this returns None to go on, the place to jump to, or `AWAY`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptx_emulator.errors import EmulationError
from ptx_emulator.machine import AWAY, Action, Machine
from ptx_emulator.memory import Fault
from ptx_emulator.text import Instruction

Handler = Callable[[Machine, Instruction], Action]

HANDLERS: dict[str, Handler] = {}
#: What checks other instructions in kernels that use an instruction, by its opcode.
WATCHERS: dict[str, Callable[[Machine, Instruction, Action], Action]] = {}
#: Opcodes whose predicate splits the group, as they wait, end threads or work on whole warps.
SPLITTING = frozenset(
    (
        *("bar", "barrier", "mbarrier", "shfl", "vote", "match", "redux", "elect", "activemask"),
        *("ldmatrix", "stmatrix", "mma", "wgmma", "ret", "exit", "trap"),
    )
)
#: Numpy types of PTX types; bf16 are the raw bits, and so are pairs of elements.
DTYPES = {
    "pred": np.dtype(bool),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    **{f"{pair}x2": np.dtype(np.uint32) for pair in ("f16", "bf16", "s16", "u16")},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"{kind}{bits}": np.dtype(f"u{bits // 8}") for kind in "ub" for bits in (8, 16, 32, 64)},
}


def handles(*opcodes: str) -> Callable[[Handler], Handler]:
    """Registers a handler."""

    def register(handler: Handler) -> Handler:
        for opcode in opcodes:
            HANDLERS[opcode] = handler
        return handler

    return register


class Unknown(Exception):
    """An instruction, or a form of one, that isn't emulated."""


def dtype_of(word: str) -> np.dtype:
    """The numpy type of a PTX type."""
    if word not in DTYPES:
        raise Unknown(f"the type '.{word}' isn't emulated here")
    return DTYPES[word]


def take(words: Sequence[str], *known: str) -> set[str]:
    """Modifiers as a set; Unknown where one isn't known."""
    given = set(words)
    unknown = given - set(known)
    if unknown:
        raise Unknown(f"the modifier '.{min(unknown)}' isn't emulated here")
    return given


def elementwise(
    m: Machine, result: Any, dtype: Any, function: Callable[..., Any], rows: Sequence[np.ndarray]
) -> Action:
    """Applies a function of arrays to rows, lane by lane."""
    to = m.destination(result, dtype)
    if len(rows) == 1:
        (one,) = rows

        def run1() -> None:
            ix = m.ix
            to[ix] = function(one[ix])

        return run1
    if len(rows) == 2:
        first, second = rows

        def run2() -> None:
            ix = m.ix
            to[ix] = function(first[ix], second[ix])

        return run2

    def run() -> None:
        ix = m.ix
        to[ix] = function(*[row[ix] for row in rows])

    return run


def _guarded(m: Machine, instruction: Instruction, action: Action) -> Action:
    """The action for lanes where the predicate holds."""
    assert instruction.predicate is not None
    row, negated = m.register(instruction.predicate), instruction.negated
    splits = instruction.opcode in SPLITTING

    def run() -> Any:
        flags = row[m.ix]
        if negated:
            flags = ~flags
        number = np.count_nonzero(flags)
        if number == m.n:
            return action()
        lanes = m.lanes
        if splits:
            if number == 0:
                return None
            m.add(m.pc + 1, lanes[~flags])
            m.select(lanes[flags])
            result = action()
            if result is None:
                m.add(m.pc + 1, m.lanes)
            elif result is not AWAY:
                m.add(result, m.lanes)
            return AWAY
        if number == 0:
            return None
        m.select(lanes[flags])
        result = action()
        m.select(lanes)
        return result

    return run


#: What handlers raise where operands aren't those of a form that they know.
_MALFORMED = (KeyError, IndexError, AttributeError, TypeError, ValueError, StopIteration)


def bind(m: Machine) -> list[Action]:
    """The actions of the machine's function, and one for running past its end.

    Each is made when a thread first comes to its instruction, so what none comes to may be unknown.
    """
    watched = any(instruction.opcode == "wgmma" for instruction in m.function.instructions)

    def first(place: int) -> Action:
        def run() -> Any:
            action = m.code[place] = _action(m, m.function.instructions[place], watched)
            return action()

        return run

    return [*map(first, range(len(m.function.instructions))), m.leave]


def _action(m: Machine, instruction: Instruction, watched: bool) -> Action:
    handler = HANDLERS.get(instruction.opcode)
    try:
        if handler is None:
            raise Unknown("the instruction isn't emulated")
        action = handler(m, instruction)
    except (Unknown, Fault, EmulationError) as error:
        raise Fault(f"unknown instruction: {error}") from None
    except _MALFORMED as error:
        raise Fault(f"unknown instruction: its operands aren't known ({error!r})") from None
    if instruction.predicate is not None and instruction.opcode not in ("bra", "brx"):
        action = _guarded(m, instruction, action)
    return WATCHERS["wgmma"](m, instruction, action) if watched else action


@handles("bra", "brx")
def branch(m: Machine, instruction: Instruction) -> Action:
    """bra, brx.idx"""
    targets = instruction.targets
    if instruction.opcode == "brx":
        index_row = m.source(instruction.operands[0], np.uint32)

        def run_indexed() -> Any:
            index = index_row[m.ix]
            if (index >= len(targets)).any():
                raise Fault("the index of a branch is out of its table", np.flatnonzero(index >= len(targets)))
            kinds = np.unique(index)
            if len(kinds) == 1:
                return targets[int(kinds[0])]
            for kind in kinds:
                m.add(targets[int(kind)], m.lanes[index == kind])
            return AWAY

        if instruction.predicate is not None:
            return _guarded(m, instruction, run_indexed)
        return run_indexed
    (target,) = targets
    if instruction.predicate is None:
        return lambda: target
    row, negated = m.register(instruction.predicate), instruction.negated

    def run() -> Any:
        flags = row[m.ix]
        number = np.count_nonzero(flags)
        if negated:
            number = m.n - number
        if number == m.n:
            return target
        if number == 0:
            return None
        if negated:
            flags = ~flags
        lanes = m.lanes
        m.add(target, lanes[flags])
        m.add(m.pc + 1, lanes[~flags])
        return AWAY

    return run


@handles("ret", "exit")
def leave(m: Machine, instruction: Instruction) -> Action:
    """The threads end."""
    return m.leave


@handles("trap", "brkpt")
def trap(m: Machine, instruction: Instruction) -> Action:
    """The kernel gave up."""

    def run() -> Any:
        raise Fault("the kernel ran into a trap")

    return run


def nothing() -> None:
    """What has no effect here."""


@handles("griddepcontrol")
def dependency(m: Machine, instruction: Instruction) -> Action:
    """griddepcontrol: the threads know that the kernels before are over."""
    if instruction.words[1] != "wait":
        return nothing

    def run() -> None:
        assert m.waited is not None
        m.waited[m.ix] = True

    return run


@handles(
    "membar", "setmaxnreg", "prefetch", "prefetchu", "nanosleep", "pmevent", "discard",
    "applypriority", "createpolicy",
)  # fmt: skip
def no_effect(m: Machine, instruction: Instruction) -> Action:
    """Threads run in one order, registers are enough, and there is no cache."""
    return nothing
