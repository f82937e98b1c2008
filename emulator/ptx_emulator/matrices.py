# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handlers of products of matrices by warps, and of the loads and stores of their fragments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ptx_emulator import access
from ptx_emulator import floats as fl
from ptx_emulator.decode import Unknown, handles, take
from ptx_emulator.machine import AWAY, Action, Machine
from ptx_emulator.memory import Fault
from ptx_emulator.text import Instruction, Vector
from ptx_emulator.warps import collective


def _tf32(words: np.ndarray) -> np.ndarray:
    return (words & np.uint32(0xFFFFE000)).view(np.float32)


#: Elements of operands: bytes, and a function from raw unsigned elements to f32 (exact).
ELEMENTS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "f16": (2, lambda raw: raw.view(np.float16).astype(np.float32)),
    "bf16": (2, fl.bf16_to_f32),
    "tf32": (4, _tf32),
    "s8": (1, lambda raw: raw.view(np.int8).astype(np.float32)),
    "u8": (1, lambda raw: raw.astype(np.float32)),
    "e4m3": (1, lambda raw: fl.float8_to_f32(raw, "e4m3")),
    "e5m2": (1, lambda raw: fl.float8_to_f32(raw, "e5m2")),
}
_LANE = np.arange(32)
_GROUP, _MEMBER = _LANE // 4, _LANE % 4


def a_places(registers: int, elements: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column in A of each element: ``[32, registers, elements]``."""
    r, e = np.arange(registers)[None, :, None], np.arange(elements)[None, None, :]
    row = _GROUP[:, None, None] + 8 * (r & 1) + 0 * e
    column = elements * _MEMBER[:, None, None] + (r >> 1) * 4 * elements + e
    return row, column


def b_places(registers: int, elements: int) -> tuple[np.ndarray, np.ndarray]:
    """Row (along k) and column in B of each element: ``[32, registers, elements]``."""
    r, e = np.arange(registers)[None, :, None], np.arange(elements)[None, None, :]
    row = elements * _MEMBER[:, None, None] + r * 4 * elements + e
    return row, _GROUP[:, None, None] + 0 * (r + e)


def c_places(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each of a lane's elements of an accumulator of 16 rows: ``[32, count]``."""
    i = np.arange(count)[None, :]
    return _GROUP[:, None] + 8 * (i // 2 % 2), 2 * _MEMBER[:, None] + i % 2 + 8 * (i // 4)


def product_in_order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a @ b`` of f32: products and sums in f64, along k from its first element to its last, rounded to f32 once.

    A library's product sums in an order of its processor, shape and threads. It is taken where every order rounds to
    the same number; the elements where it might not, few, are summed in order.
    """
    with np.errstate(all="ignore"):
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        total = np.matmul(wide_a, wide_b) + 0.0  # no zero of the library's sign
        depth = a.shape[-1]
        # Two orders differ by at most 2 k u sum |a b|, with u = 2^-53; the factor 4 covers the rounding of this bound.
        largest = np.abs(wide_a).max(axis=-1, keepdims=True) * np.abs(wide_b).max(axis=-2, keepdims=True)
        error = largest * (4 * depth * depth * 2.0**-53)
        rounded = (total - error).astype(np.float32)
        sure = rounded == (total + error).astype(np.float32)
        if not sure.all():
            *lead, row, column = unsure = np.nonzero(~sure)
            of_a, of_b = (*lead, row), (*lead, column)
            terms = wide_a[of_a] * wide_b.swapaxes(-1, -2)[of_b]
            in_order = np.zeros(len(row))
            for k in range(depth):
                in_order += terms[:, k]
            rounded[unsure] = in_order.astype(np.float32)
    return rounded


def whole_warps(m: Machine) -> int:
    """The number of running warps; Fault where one isn't whole."""
    if m.n % 32:
        raise Fault("an instruction for whole warps runs in a part of one")
    return m.n // 32


def fragments(m: Machine, rows: list[np.ndarray], kind: str) -> np.ndarray:
    """Registers of the running warps as f32 elements ``[warps, 32, registers, elements]``."""
    width, decode = ELEMENTS[kind]
    ix = m.ix
    words = np.stack([row[ix] for row in rows], axis=1)
    raw = words.view(np.dtype(f"u{width}"))
    return decode(raw).reshape(-1, 32, len(rows), 4 // width)


@handles("mma")
def multiply(m: Machine, i: Instruction) -> Action:
    """mma.sync of f16, bf16, tf32, 8-bit integers and floats; sums in f64 along k in order, rounded to f32 once."""
    words = i.words
    shape = re.match(r"m(\d+)n(\d+)k(\d+)$", words[3])
    kinds = [word for word in words[4:] if word in ELEMENTS or word in ("f32", "s32")]
    take(words[1:], "sync", "aligned", words[3], "row", "col", "satfinite", *kinds)
    if shape is None or len(kinds) != 4 or words[4:6] != ("row", "col") or kinds[0] != kinds[3]:
        raise Unknown("this form of mma isn't emulated")
    rows_, columns, depth = (int(number) for number in shape.groups())
    result, a_kind, b_kind, _ = kinds
    elements = 4 // ELEMENTS[a_kind][0]
    operands = [operand.items if isinstance(operand, Vector) else (operand,) for operand in i.operands]
    a_rows, b_rows = ([m.source(item, np.uint32) for item in part] for part in operands[1:3])
    if (rows_, columns) != (16, 8) or depth != 2 * elements * len(a_rows) or len(a_rows) != 2 * len(b_rows):
        raise Unknown("this shape of mma isn't emulated")
    packed = result == "f16"
    dtype = np.dtype(np.int32) if result == "s32" else np.dtype(np.float32)
    c_rows = [m.source(item, np.uint32 if packed else dtype) for item in operands[3]]
    to = [m.destination(item, np.uint32 if packed else dtype) for item in operands[0]]
    a_at, b_at, c_at = a_places(len(a_rows), elements), b_places(len(b_rows), elements), c_places(4)
    saturates = "satfinite" in words and result == "s32"

    def run() -> Any:
        if not m.converge(None):
            return AWAY
        warps, ix = whole_warps(m), m.ix
        a, b = np.empty((warps, 16, depth), np.float32), np.empty((warps, depth, 8), np.float32)
        a[:, a_at[0], a_at[1]] = fragments(m, a_rows, a_kind)
        b[:, b_at[0], b_at[1]] = fragments(m, b_rows, b_kind)
        product = product_in_order(a, b)[:, c_at[0], c_at[1]].reshape(-1, 4)
        if packed:
            c = np.stack([row[ix] for row in c_rows], axis=1).view(np.float16).astype(np.float32)
            total = fl.f32_to_f16(product + c).view(np.uint32)
        elif result == "s32":
            wide = product.astype(np.int64) + np.stack([row[ix] for row in c_rows], axis=1)
            total = np.clip(wide, -(1 << 31), (1 << 31) - 1).astype(np.int32) if saturates else wide.astype(np.int32)
        else:
            total = fl.canonical(product + np.stack([row[ix] for row in c_rows], axis=1))
        for number, row in enumerate(to):
            row[ix] = total[:, number]
        return None

    return collective(m, run)


def _matrix_form(i: Instruction) -> tuple[int, bool]:
    """Number of matrices, and whether they are transposed."""
    words = take(i.words[1:], "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16")
    if "m8n8" not in words or "b16" not in words:
        raise Unknown("this form of matrix load or store isn't emulated")
    return next(number for number in (1, 2, 4) if f"x{number}" in words), "trans" in words


def _row_lanes(m: Machine, matrices: int) -> np.ndarray:
    """The lanes whose addresses are those of rows."""
    return m.lanes.reshape(-1, 32)[:, : 8 * matrices].reshape(-1)


@handles("ldmatrix")
def load_matrices(m: Machine, i: Instruction) -> Action:
    """ldmatrix of 8x8 matrices of 16-bit elements."""
    matrices, transposed = _matrix_form(i)
    target = i.operands[0]
    items = target.items if isinstance(target, Vector) else (target,)
    to = [m.destination(item, np.uint32) for item in items]
    address = access.address_of(m, i.operands[1])

    def run() -> Any:
        if not m.converge(None):
            return AWAY
        warps, lanes = whole_warps(m), m.lanes
        m.select(_row_lanes(m, matrices))
        words = access.read(m, access.space_of(i.words), address(), 4, 4)
        m.select(lanes)
        words = words.reshape(warps, matrices, 8, 4)
        if transposed:
            halves = np.ascontiguousarray(words).view(np.uint16).swapaxes(2, 3)
            words = np.ascontiguousarray(halves).view(np.uint32)
        for number, row in enumerate(to):
            row[m.ix] = words[:, number].reshape(-1)
        return None

    return collective(m, run)


@handles("stmatrix")
def store_matrices(m: Machine, i: Instruction) -> Action:
    """stmatrix of 8x8 matrices of 16-bit elements."""
    matrices, transposed = _matrix_form(i)
    value = i.operands[1]
    rows = [m.source(item, np.uint32) for item in (value.items if isinstance(value, Vector) else (value,))]
    address = access.address_of(m, i.operands[0])

    def run() -> Any:
        if not m.converge(None):
            return AWAY
        warps, lanes, ix = whole_warps(m), m.lanes, m.ix
        words = np.stack([row[ix].reshape(warps, 8, 4) for row in rows], axis=1)
        if transposed:
            halves = np.ascontiguousarray(words).view(np.uint16).swapaxes(2, 3)
            words = np.ascontiguousarray(halves).view(np.uint32)
        m.select(_row_lanes(m, matrices))
        access.write(m, access.space_of(i.words), address(), words.reshape(-1, 4), 4, 4)
        m.select(lanes)
        return None

    return collective(m, run)
