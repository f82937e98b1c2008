# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handlers of cvt: conversions between all types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptx_emulator import floats as fl
from ptx_emulator import integers as it
from ptx_emulator.decode import dtype_of, elementwise, handles, take
from ptx_emulator.machine import Action, Machine
from ptx_emulator.memory import Fault
from ptx_emulator.text import Instruction

_ROUNDINGS = ("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi")


@handles("cvt")
def convert(m: Machine, i: Instruction) -> Action:
    """cvt between all types, with rounding modes, `.sat`, `.relu`, `.satfinite` and `.ftz`."""
    target, source = i.words[-2], i.words[-1]
    modifiers = take(i.words[1:-2], *_ROUNDINGS, "ftz", "sat", "relu", "satfinite")
    mode = next((word for word in _ROUNDINGS if word in modifiers), "")
    if target.endswith("x2") and source in ("f32", "f16x2"):
        return _convert_pair(m, i, target, mode, modifiers)
    kind = source.removesuffix("x2")
    if kind in fl.FLOAT8:
        return elementwise(
            m,
            i.operands[0],
            np.uint32,
            lambda a: _unpack_float8(a, kind, "relu" in modifiers),
            [m.source(i.operands[1], np.uint16)],
        )
    function = conversion(target, source, mode, modifiers)
    return elementwise(m, i.operands[0], dtype_of(target), function, [m.source(i.operands[1], dtype_of(source))])


def _unpack_float8(codes: np.ndarray, kind: str, positive: bool) -> np.ndarray:
    values = fl.float8_to_f32(np.ascontiguousarray(codes).view(np.uint8), kind)
    if positive:
        values = np.where(values <= 0, np.float32(0), values)
    return fl.f32_to_f16(values).view(np.uint32)


def _convert_pair(m: Machine, i: Instruction, target: str, mode: str, modifiers: set[str]) -> Action:
    """Two f32 to a register of two elements: the first operand becomes the upper one."""
    element = target.removesuffix("x2")
    if element in fl.FLOAT8:
        part, result = dtype_of("u8"), dtype_of("u16")
        function: Any = lambda a: fl.f32_to_float8(a, element)  # noqa: E731
    else:
        part, result = dtype_of(element), dtype_of("u32")
        function = conversion(element, "f32", mode, modifiers)
    if i.words[-1] == "f16x2":
        halves = m.source(i.operands[1], np.uint32)

        def from_halves(a: np.ndarray) -> np.ndarray:
            values = np.ascontiguousarray(a).view(np.float16).astype(np.float32)
            return np.ascontiguousarray(_maybe_relu(values, modifiers, function)).view(result)

        return elementwise(m, i.operands[0], result, from_halves, [halves])
    rows = [m.source(operand, np.float32) for operand in i.operands[1:3]]

    def run(high: np.ndarray, low: np.ndarray) -> np.ndarray:
        pair = np.empty((len(high), 2), part)
        pair[:, 0], pair[:, 1] = _maybe_relu(low, modifiers, function), _maybe_relu(high, modifiers, function)
        return pair.view(result).reshape(-1)

    return elementwise(m, i.operands[0], result, run, rows)


def _maybe_relu(values: np.ndarray, modifiers: set[str], function: Any) -> np.ndarray:
    if "relu" in modifiers:
        values = np.where(values <= 0, np.float32(0), values)
    return function(values)


def conversion(target: str, source: str, mode: str, modifiers: set[str]) -> Callable[[np.ndarray], np.ndarray]:
    """The function that converts one type to another."""
    to = dtype_of(target)
    floating = {"f16", "bf16", "f32", "f64", "tf32"}
    if source not in floating and target not in floating:
        if "sat" in modifiers:
            return lambda a: it.saturate(a, to)
        return lambda a: a.astype(to)
    if source not in floating:
        return lambda a: _from_int(a, target, mode)
    read: Any = fl.bf16_to_f32 if source == "bf16" else (lambda a: a.astype(np.float32)) if source == "f16" else None
    flush = fl.flush if "ftz" in modifiers and source == "f32" else None

    def prepared(values: np.ndarray) -> np.ndarray:
        values = values if read is None else read(values)
        return values if flush is None else flush(values)

    if target not in floating:
        return lambda a: fl.float_to_int(prepared(a), mode, target, source)
    if mode.endswith("i"):

        def integral(values: np.ndarray) -> np.ndarray:
            return fl.round_integral(mode, prepared(values))

        finish = _to_float(target, "f64" if source == "f64" else "f32", "rn")
        return lambda a: finish(integral(a))
    finish = _to_float(target, "f64" if source == "f64" else "f32", mode)
    result = (lambda a: finish(prepared(a))) if target != source else prepared
    if "sat" in modifiers:
        return fl.saturating(result)
    if "relu" in modifiers and target in ("f16", "f32", "tf32"):
        return fl.relu(result)
    if "relu" in modifiers:
        return fl.relu_bf16(result)
    if "ftz" in modifiers and target == "f32":
        return lambda a: fl.flush(result(a))
    return result


def _to_float(target: str, source: str, mode: str) -> Callable[[np.ndarray], np.ndarray]:
    """From f32 or f64 to a float."""
    if target == "f64":
        return lambda a: a.astype(np.float64)
    if target == "f32":
        return (lambda a: fl.narrow_f32(a, mode)) if source == "f64" else (lambda a: a)
    if target == "tf32":
        return lambda a: fl.to_tf32(a, mode)
    last = fl.to_f16 if target == "f16" else fl.to_bf16
    if source == "f64":
        return lambda a: last(fl.odd_f32(a), mode)
    return lambda a: last(a, mode)


def _from_int(values: np.ndarray, target: str, mode: str) -> np.ndarray:
    if target == "f64":
        return values.astype(np.float64)
    if mode not in ("rn", ""):
        if values.dtype.itemsize == 8:
            raise Fault("directed rounding of 64-bit integers isn't emulated")
        wide = values.astype(np.float64)
        if target == "f32":
            return fl.narrow_f32(wide, mode)
        return (fl.to_f16 if target == "f16" else fl.to_bf16)(fl.odd_f32(wide), mode)
    if target == "f32":
        return values.astype(np.float32)
    if target == "f16":
        return fl.f32_to_f16(fl.odd_f32(values.astype(np.float64)))
    return fl.f32_to_bf16(fl.odd_f32(values.astype(np.float64)))
