# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handlers of arithmetic, logic, comparisons and moves: what each lane does alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptx_emulator import floats as fl
from ptx_emulator import integers as it
from ptx_emulator.decode import Unknown, dtype_of, elementwise, handles, take
from ptx_emulator.machine import Action, Machine
from ptx_emulator.memory import Fault
from ptx_emulator.text import Imm, Instruction, Not, Pair, Reg, Vector

FLOATS = ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64")


def float_function(kind: str, modifiers: set[str], f32: fl.Function, f64: fl.Function | None = None) -> fl.Function:
    """The function of an element type, from that of f32 (and f64), with `.ftz`, `.sat` and `.relu`."""
    base = kind.removesuffix("x2")
    if base == "f64":
        return f64 or f32
    if modifiers & {"rz", "rm", "rp"}:
        raise Unknown("directed rounding of arithmetic isn't emulated")
    function = f32
    if "ftz" in modifiers:
        function = fl.flushing(function)
    if "sat" in modifiers:
        function = fl.saturating(function)
    if "relu" in modifiers:
        function = fl.relu(function)
    if base == "f16":
        function = fl.of_f16(function)
    elif base == "bf16":
        function = fl.of_bf16(function)
    if kind.endswith("x2"):
        function = fl.of_pairs(function, dtype_of(base))
    return function


def _integer_pairs(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for `s16x2` and `u16x2`."""
    return fl.of_pairs(function, dtype_of(kind[:3])) if kind.endswith("x2") else function


def _apply(m: Machine, i: Instruction, kind: str, function: Callable[..., Any], result: str = "") -> Action:
    """All operands but the first have type `kind`; the result has it too, or `result`."""
    rows = [m.source(operand, dtype_of(kind)) for operand in i.operands[1:]]
    return elementwise(m, i.operands[0], dtype_of(result or kind), function, rows)


def _canonical(function: fl.Function) -> fl.Function:
    return lambda *operands: fl.canonical(function(*operands))


_ADD = {"add": np.add, "sub": np.subtract}


@handles("add", "sub")
def add(m: Machine, i: Instruction) -> Action:
    """add, sub of every type, with carries (`.cc`) and `.sat`."""
    kind, function = i.words[-1], _ADD[i.opcode]
    if kind in FLOATS:
        modifiers = take(i.words[1:-1], "rn", "ftz", "sat")
        return _apply(m, i, kind, float_function(kind, modifiers, _canonical(function), function))
    if "cc" in i.words:
        return _carry(m, i, kind, False)
    if "sat" in take(i.words[1:-1], "sat"):
        return _apply(m, i, kind, lambda a, b: it.saturate(function(a.astype(np.int64), b), np.dtype(np.int32)))
    return _apply(m, i, kind, _integer_pairs(kind, function))


@handles("addc", "subc")
def add_with_carry(m: Machine, i: Instruction) -> Action:
    """addc, subc, with or without `.cc`."""
    return _carry(m, i, i.words[-1], True)


def _carry(m: Machine, i: Instruction, kind: str, reads: bool) -> Action:
    flag = m.extra.setdefault("carry", np.zeros(m.count, bool))
    dtype = it.unsigned(dtype_of(kind))
    a_row, b_row = (m.source(operand, dtype) for operand in i.operands[1:])
    to, writes, subtract = m.destination(i.operands[0], dtype), "cc" in i.words, i.opcode.startswith("sub")

    def run() -> None:
        ix = m.ix
        a, b = a_row[ix], b_row[ix]
        carry = flag[ix].astype(dtype) if reads else np.zeros(m.n, dtype)
        if subtract:
            part = a - b
            result = part - carry
            out = (a < b) | (part < carry)
        else:
            part = a + b
            result = part + carry
            out = (part < a) | (result < part)
        to[ix] = result
        if writes:
            flag[ix] = out

    return run


@handles("mul")
def multiply(m: Machine, i: Instruction) -> Action:
    """mul.lo, mul.hi, mul.wide, and of floats."""
    kind = i.words[-1]
    if kind in FLOATS:
        modifiers = take(i.words[1:-1], "rn", "ftz", "sat")
        return _apply(m, i, kind, float_function(kind, modifiers, _canonical(np.multiply), np.multiply))
    half = i.words[1]
    if half == "wide":
        return _apply(m, i, kind, it.multiply_wide, f"{kind[0]}{int(kind[1:]) * 2}")
    return _apply(m, i, kind, np.multiply if half == "lo" else it.multiply_high)


@handles("mul24")
def multiply24(m: Machine, i: Instruction) -> Action:
    """mul24.lo"""
    take(i.words[1:-1], "lo")
    shift = 8

    def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        kind = a.dtype.type
        return ((a << kind(shift)) >> kind(shift)) * ((b << kind(shift)) >> kind(shift))

    return _apply(m, i, i.words[-1], function)


@handles("mad", "fma")
def multiply_add(m: Machine, i: Instruction) -> Action:
    """mad.lo, mad.hi, mad.wide of integers, fma of floats."""
    kind = i.words[-1]
    if kind in FLOATS:
        modifiers = take(i.words[1:-1], "rn", "ftz", "sat", "relu")
        base = kind.removesuffix("x2")
        if base not in ("f16", "bf16"):
            return _apply(m, i, kind, float_function(kind, modifiers, fl.fma_f32, fl.fma_f64))
        function = fl.fma_f16 if base == "f16" else fl.fma_bf16
        if "relu" in modifiers:
            function = fl.relu(function) if base == "f16" else fl.relu_bf16(function)
        if modifiers & {"sat", "ftz"}:
            raise Unknown("'.sat' and '.ftz' of 16-bit fma aren't emulated")
        return _apply(m, i, kind, fl.of_pairs(function, dtype_of(base)) if base != kind else function)
    half = i.words[1]
    dtype = dtype_of(kind)
    rows = [m.source(operand, dtype) for operand in i.operands[1:3]]
    if half == "wide":
        wide = it.widened(dtype)
        rows.append(m.source(i.operands[3], wide))
        return elementwise(m, i.operands[0], wide, lambda a, b, c: it.multiply_wide(a, b) + c, rows)
    rows.append(m.source(i.operands[3], dtype))
    if half == "hi":
        return elementwise(m, i.operands[0], dtype, lambda a, b, c: it.multiply_high(a, b) + c, rows)
    return elementwise(m, i.operands[0], dtype, lambda a, b, c: a * b + c, rows)


@handles("div", "rem")
def divide(m: Machine, i: Instruction) -> Action:
    """div of integers and floats, rem."""
    kind = i.words[-1]
    if kind in FLOATS:
        modifiers = take(i.words[1:-1], "rn", "ftz", "full", "approx")
        return _apply(m, i, kind, float_function(kind, modifiers, _canonical(np.divide), np.divide))
    return _apply(m, i, kind, it.divide if i.opcode == "div" else it.remainder)


_UNARY: dict[str, fl.Function] = {
    "sqrt": _canonical(np.sqrt),
    "rcp": _canonical(lambda a: 1 / a),
    "rsqrt": fl.wide(lambda a: 1 / np.sqrt(a)),
    "ex2": fl.wide(np.exp2),
    "lg2": fl.wide(np.log2),
    "sin": fl.wide(np.sin),
    "cos": fl.wide(np.cos),
    "tanh": fl.wide(np.tanh),
}
_UNARY64: dict[str, fl.Function] = {"sqrt": np.sqrt, "rcp": lambda a: 1 / a, "rsqrt": lambda a: 1 / np.sqrt(a)}


@handles(*_UNARY)
def unary(m: Machine, i: Instruction) -> Action:
    """Roots, reciprocals and approximations of functions, computed exactly and rounded once."""
    kind = i.words[-1]
    modifiers = take(i.words[1:-1], "rn", "approx", "ftz")
    return _apply(m, i, kind, float_function(kind, modifiers, _UNARY[i.opcode], _UNARY64.get(i.opcode)))


@handles("min", "max")
def extremum(m: Machine, i: Instruction) -> Action:
    """min, max; with `.NaN` a NaN operand wins, else the number does."""
    kind = i.words[-1]
    modifiers = take(i.words[1:-1], "ftz", "NaN", "relu")
    function: Any
    largest = i.opcode == "max"
    if kind not in FLOATS:
        function = np.maximum if largest else np.minimum
        return _apply(m, i, kind, _integer_pairs(kind, function))
    if "NaN" in modifiers:
        function = fl.maximum_nan if largest else fl.minimum_nan
    else:
        function = fl.maximum if largest else fl.minimum
    if len(i.operands) == 4:
        two = function
        function = lambda a, b, c: two(two(a, b), c)  # noqa: E731
    return _apply(m, i, kind, float_function(kind, modifiers - {"NaN"}, _canonical(function), function))


@handles("neg", "abs")
def sign(m: Machine, i: Instruction) -> Action:
    """neg, abs."""
    kind = i.words[-1]
    modifiers = take(i.words[1:-1], "ftz")
    negate = i.opcode == "neg"
    if kind not in FLOATS:
        return _apply(m, i, kind, np.negative if negate else np.abs)
    if kind.startswith(("f16", "bf16")) and not modifiers:
        ones = np.uint32(0x80008000) if kind.endswith("x2") else np.uint16(0x8000)
        function = (lambda a: a ^ ones) if negate else (lambda a: a & ~ones)
        return _apply(m, i, f"b{32 if kind.endswith('x2') else 16}", function)
    plain: Any = np.negative if negate else np.abs
    return _apply(m, i, kind, float_function(kind, modifiers, plain, plain))


@handles("copysign")
def copy_sign(m: Machine, i: Instruction) -> Action:
    """The magnitude of the second operand with the sign of the first."""
    return _apply(m, i, i.words[-1], lambda a, b: np.copysign(b, a))


@handles("testp")
def test_property(m: Machine, i: Instruction) -> Action:
    """testp: the class of a float."""
    dtype = dtype_of(i.words[-1])
    tiny = np.finfo(dtype).tiny
    tests: dict[str, Any] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= tiny),
        "subnormal": lambda a: (np.abs(a) < tiny) & (a != 0),
    }
    return elementwise(m, i.operands[0], bool, tests[i.words[1]], [m.source(i.operands[1], dtype)])


_LOGIC: dict[str, Any] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@handles("and", "or", "xor")
def logic(m: Machine, i: Instruction) -> Action:
    """and, or, xor of bits and predicates."""
    return _apply(m, i, i.words[-1], _LOGIC[i.opcode])


@handles("not", "cnot")
def invert(m: Machine, i: Instruction) -> Action:
    """not, cnot."""
    if i.opcode == "cnot":
        return _apply(m, i, i.words[-1], lambda a: (a == 0).astype(a.dtype))
    return _apply(m, i, i.words[-1], np.invert)


@handles("shl", "shr")
def shift(m: Machine, i: Instruction) -> Action:
    """shl, shr; amounts are 32-bit, and limited to the width."""
    dtype = dtype_of(i.words[-1])
    function = it.shift_left if i.opcode == "shl" else it.shift_right
    amount = i.operands[2]
    if isinstance(amount, Imm) and 0 <= amount.value < dtype.itemsize * 8:
        plain = np.left_shift if i.opcode == "shl" else np.right_shift
        rows = [m.source(i.operands[1], dtype), m.source(amount, dtype)]
        return elementwise(m, i.operands[0], dtype, plain, rows)
    rows = [m.source(i.operands[1], dtype), m.source(amount, np.uint32)]
    return elementwise(m, i.operands[0], dtype, function, rows)


@handles("shf")
def funnel_shift(m: Machine, i: Instruction) -> Action:
    """shf.l, shf.r with `.wrap` or `.clamp`."""
    left, wrap = i.words[1] == "l", i.words[2] == "wrap"
    return _apply(m, i, "b32", lambda a, b, c: it.funnel(a, b, c, left, wrap))


@handles("popc", "clz", "bfind", "brev")
def count_bits(m: Machine, i: Instruction) -> Action:
    """popc, clz, bfind, brev."""
    dtype = dtype_of(i.words[-1])
    row = m.source(i.operands[1], dtype)
    if i.opcode == "brev":
        return elementwise(m, i.operands[0], dtype, it.reverse_bits, [row])
    functions: dict[str, Any] = {"popc": it.population, "clz": it.leading_zeros, "bfind": it.highest_bit}
    function = functions[i.opcode]
    if "shiftamt" in i.words:
        last = np.uint32(dtype.itemsize * 8 - 1)

        def shift_amount(a: np.ndarray) -> np.ndarray:
            found = it.highest_bit(a)
            return np.where(found == np.uint32(0xFFFFFFFF), found, last - found)

        function = shift_amount
    return elementwise(m, i.operands[0], np.uint32, function, [row])


@handles("bfe")
def field_extract(m: Machine, i: Instruction) -> Action:
    """bfe"""
    dtype = dtype_of(i.words[-1])
    rows = [m.source(i.operands[1], dtype), *(m.source(o, np.uint32) for o in i.operands[2:])]
    return elementwise(m, i.operands[0], dtype, it.extract_field, rows)


@handles("bfi")
def field_insert(m: Machine, i: Instruction) -> Action:
    """bfi"""
    dtype = dtype_of(i.words[-1])
    rows = [*(m.source(o, dtype) for o in i.operands[1:3]), *(m.source(o, np.uint32) for o in i.operands[3:])]
    return elementwise(m, i.operands[0], dtype, it.insert_field, rows)


@handles("prmt")
def permute(m: Machine, i: Instruction) -> Action:
    """prmt.b32, with or without a mode."""
    mode = i.words[2] if len(i.words) > 2 else ""
    return _apply(m, i, "b32", lambda a, b, c: it.permute_bytes(a, b, c, mode))


@handles("lop3")
def logic3(m: Machine, i: Instruction) -> Action:
    """lop3.b32"""
    table = i.operands[4].value
    rows = [m.source(operand, np.uint32) for operand in i.operands[1:4]]
    return elementwise(m, i.operands[0], np.uint32, lambda a, b, c: it.logic3(a, b, c, table), rows)


@handles("sad")
def sum_difference(m: Machine, i: Instruction) -> Action:
    """sad: c + |a - b|."""
    return _apply(m, i, i.words[-1], lambda a, b, c: c + np.where(a > b, a - b, b - a))


@handles("dp4a", "dp2a")
def dot(m: Machine, i: Instruction) -> Action:
    """dp4a, dp2a."""
    a_kind, b_kind = i.words[-2], i.words[-1]
    signed = "s32" in (a_kind, b_kind)
    rows = [m.source(operand, np.uint32) for operand in i.operands[1:3]]
    rows.append(m.source(i.operands[3], np.int32 if signed else np.uint32))
    bytes_ = {"s32": np.dtype(np.int8), "u32": np.dtype(np.uint8)}
    halves = {"s32": np.dtype(np.int16), "u32": np.dtype(np.uint16)}
    if i.opcode == "dp4a":
        function = lambda a, b, c: it.dot4(a, b, c, bytes_[a_kind], bytes_[b_kind])  # noqa: E731
    else:
        high = i.words[1] == "hi"
        function = lambda a, b, c: it.dot2(a, b, c, (halves[a_kind], bytes_[b_kind]), high)  # noqa: E731
    return elementwise(m, i.operands[0], np.uint32, function, rows)


# Comparisons and choices ----------------------------------------------------------------------------------------------

_COMPARE: dict[str, Any] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


def comparison(word: str, floating: bool) -> Callable[[Any, Any], Any]:
    """The function of a comparison; ordered ones of floats are false for NaN, those with `u` are true."""
    if not floating:
        return _COMPARE[word]
    if word == "num":
        return lambda a, b: (a == a) & (b == b)
    if word == "nan":
        return lambda a, b: (a != a) | (b != b)
    if word.endswith("u") and word != "u":
        plain = _COMPARE[word[:-1]]
        return lambda a, b: plain(a, b) | (a != a) | (b != b)
    if word == "ne":
        return lambda a, b: (a != b) & (a == a) & (b == b)
    return _COMPARE[word]


def _comparing(
    m: Machine, i: Instruction, kind: str, operands: list[Any]
) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """The function of a setp or set, with its combination with a predicate, and its rows."""
    words = i.words[1:]
    modifiers = set(words)
    floating = kind in FLOATS
    compare = comparison(words[0], floating)
    if kind == "bf16":
        plain = compare
        compare = lambda a, b: plain(fl.bf16_to_f32(a), fl.bf16_to_f32(b))  # noqa: E731
    if "ftz" in modifiers:
        unflushed = compare
        compare = lambda a, b: unflushed(fl.flush(a), fl.flush(b))  # noqa: E731
    return compare, [m.source(operand, dtype_of(kind)) for operand in operands]


@handles("setp")
def set_predicate(m: Machine, i: Instruction) -> Action:
    """setp, with two results and a combination with a predicate."""
    kind = i.words[-1]
    compare, rows = _comparing(m, i, kind, i.operands[1:3])
    result = i.operands[0]
    first, second = (result.first, result.second) if isinstance(result, Pair) else (result, None)
    combine = next((word for word in i.words[2:-1] if word in _LOGIC), None)
    if second is None and combine is None:
        return elementwise(m, first, bool, compare, rows)
    other, negated, joined = None, False, _LOGIC[combine or "and"]
    if combine:
        operand = i.operands[3]
        negated = isinstance(operand, Not)
        other = m.source(operand.operand if isinstance(operand, Not) else operand, bool)
    to = m.destination(first, bool)
    to2 = m.destination(second, bool) if second is not None else None

    def run() -> None:
        ix = m.ix
        yes = compare(rows[0][ix], rows[1][ix])
        no = ~yes
        if other is not None:
            flags = ~other[ix] if negated else other[ix]
            yes, no = joined(yes, flags), joined(no, flags)
        to[ix] = yes
        if to2 is not None:
            to2[ix] = no

    return run


@handles("set")
def set_value(m: Machine, i: Instruction) -> Action:
    """set: all ones or 1.0 where a comparison holds."""
    kind, result = i.words[-1], i.words[-2]
    compare, rows = _comparing(m, i, kind, i.operands[1:3])
    if len(i.operands) > 3:
        raise Unknown("set with a predicate isn't emulated")
    dtype = dtype_of(result)
    true = dtype.type(1) if dtype.kind == "f" else np.array(-1, np.int64).astype(dtype)[()]
    return elementwise(m, i.operands[0], dtype, lambda a, b: np.where(compare(a, b), true, dtype.type(0)), rows)


@handles("selp")
def select(m: Machine, i: Instruction) -> Action:
    """selp"""
    kind = i.words[-1]
    dtype = np.dtype(f"u{dtype_of(kind).itemsize}")
    flag = i.operands[3]
    condition = m.source(flag.operand if isinstance(flag, Not) else flag, bool)
    rows = [condition, *(m.source(operand, dtype) for operand in i.operands[1:3])]
    if isinstance(flag, Not):
        return elementwise(m, i.operands[0], dtype, lambda p, a, b: np.where(p, b, a), rows)
    return elementwise(m, i.operands[0], dtype, np.where, rows)


@handles("slct")
def select_by_sign(m: Machine, i: Instruction) -> Action:
    """slct: a where c >= 0, else b."""
    dtype = np.dtype(f"u{dtype_of(i.words[-2]).itemsize}")
    rows = [*(m.source(o, dtype) for o in i.operands[1:3]), m.source(i.operands[3], dtype_of(i.words[-1]))]
    return elementwise(m, i.operands[0], dtype, lambda a, b, c: np.where(c >= 0, a, b), rows)


# Moves ----------------------------------------------------------------------------------------------------------------


@handles("mov")
def move(m: Machine, i: Instruction) -> Action:
    """mov, also of the parts of a register to or from a vector."""
    kind, result, value = i.words[-1], i.operands[0], i.operands[1]
    if isinstance(value, Vector) or isinstance(result, Vector):
        return _move_parts(m, kind, result, value)
    if kind == "b128":
        return _move_wide(m, result, value)
    row, to = m.source(value, dtype_of(kind) if kind == "pred" else np.dtype(f"u{dtype_of(kind).itemsize}")), None
    to = m.destination(result, row.dtype)

    def run() -> None:
        ix = m.ix
        to[ix] = row[ix]

    return run


def _wide_row(m: Machine, operand: Reg) -> np.ndarray:
    return m.register(operand).reshape(m.count, 2)


def _move_wide(m: Machine, result: Any, value: Any) -> Action:
    to, row = _wide_row(m, result), _wide_row(m, value)

    def run() -> None:
        to[m.ix] = row[m.ix]

    return run


def _move_parts(m: Machine, kind: str, result: Any, value: Any) -> Action:
    packs = isinstance(value, Vector)
    items = value.items if packs else result.items
    whole = result if packs else value
    size = int(kind[1:]) // 8
    part = np.dtype(f"u{size // len(items)}")
    if kind == "b128":
        register = _wide_row(m, whole)
    else:
        unsigned = np.dtype(f"u{size}")
        register = (m.destination(whole, unsigned) if packs else m.source(whole, unsigned)).reshape(m.count, 1)
        if register.dtype.itemsize != size:
            raise Fault(f"the register isn't {size} bytes wide")
    if not packs and isinstance(whole, Imm):
        register = register.copy()
    parts = register.view(part)
    rows = [m.source(item, part) if packs else m.destination(item, part) for item in items]

    def pack() -> None:
        ix = m.ix
        for number, row in enumerate(rows):
            parts[ix, number] = row[ix]

    def unpack() -> None:
        ix = m.ix
        values = parts[ix]
        for number, row in enumerate(rows):
            row[ix] = values[:, number]

    return pack if packs else unpack
