# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Block formats of users: what a description must fulfil, and who has to hear of a new one."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from .. import checks
from ..errors import InputError
from .blocks import FORMATS, FORMATS_BY_ID
from .descriptions import BlockFormat, Plane, Scaled, float_bytes

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_FLOATS = ("<f2", "<f4", "e8m0", "ue4m3")
_BYTES = ("u1", "i1")
_LIMIT = 2**31 - 1

_lock = threading.Lock()
_registered: dict[str, BlockFormat] = {}
_listeners: list[Callable[[BlockFormat], None]] = []


def register_format(format: BlockFormat) -> BlockFormat:
    """Makes a format of blocks known under its name: to `param(..., packed=name)`, decoders, kernels and types.

    It is known to the whole process, for ever: types that name it stay valid. Registering an equal description again
    does nothing.

    Args:
        format: a format of blocks; `sub` may be left at 0 where blocks have no sub-blocks.

    Of formats of GGUF files whose sizes alone are known (`decodable` is False), it completes the description.

    Returns the format. Raises InputError where the description contradicts itself, or another format has the name or
    the GGUF type number.
    """
    if not isinstance(format, BlockFormat):
        raise InputError(f"'format' is a BlockFormat, but got {checks.shown(format)}")
    format = replace(format, sub=format.sub or format.block)
    _check(format)
    with _lock:
        known = FORMATS.get(format.name)
        if known == format:
            return known
        sizes = (format.type_id, format.block, format.nbytes)
        if known is not None and (known.decodable or sizes != (known.type_id, known.block, known.nbytes)):
            raise InputError(f"format '{format.name}' is already registered, with another description")
        if known is None and format.type_id is not None and format.type_id in FORMATS_BY_ID:
            other = FORMATS_BY_ID[format.type_id].name
            raise InputError(f"format '{format.name}': GGUF type number {format.type_id} is that of {other}")
        for listener in _listeners:
            listener(format)
        FORMATS[format.name] = _registered[format.name] = format
        if format.type_id is not None:
            FORMATS_BY_ID[format.type_id] = format
    return format


def registered_formats() -> list[BlockFormat]:
    """The formats that `register_format` added, by name."""
    with _lock:
        return [_registered[name] for name in sorted(_registered)]


def each_format(listener: Callable[[BlockFormat], None]) -> None:
    """Calls a function for every format that there is, and for those that will be registered later."""
    checks.callback("listener", listener, "format")
    with _lock:
        for format in FORMATS.values():
            listener(format)
        _listeners.append(listener)


def _check(fmt: BlockFormat) -> None:
    """Raises InputError where decoding by the description would fail, or read what isn't there."""
    where = f"format '{fmt.name}'"
    if not _NAME.fullmatch(fmt.name):
        raise InputError(f"{where}: a name consists of lower-case letters, digits and '_', and begins with no digit")
    if fmt.grid is not None or fmt.trits is not None or fmt.rule or any(part.word for part in fmt.factors):
        raise InputError(f"{where}: grids, digits of base 3, rules and scattered scales are those of our own formats")
    if fmt.is_dense or not fmt.quants or fmt.scale is None:
        raise InputError(f"{where}: a format of blocks has planes of integers, a scale, and no dense element type")
    for what, size in (("block", fmt.block), ("nbytes", fmt.nbytes)):
        if not 0 < size <= _LIMIT:
            raise InputError(f"{where}: '{what}' must be from 1 to {_LIMIT}, but is {size}")
    if fmt.sub < 1 or fmt.block % fmt.sub:
        raise InputError(f"{where}: 'sub' must divide the block, {fmt.block}, but is {fmt.sub}")
    if fmt.minimum_sign not in (1, -1):
        raise InputError(f"{where}: 'minimum_sign' must be 1 or -1, but is {fmt.minimum_sign}")
    _check_fields(where, fmt)
    _check_integers(f"{where}: the integers", fmt, fmt.quants, fmt.block, fmt.offset, fmt.signed)
    _check_values(where, fmt)
    for what, part in (("scale", fmt.scale), ("minimum", fmt.minimum)):
        if part is not None:
            _check_factor(f"{where}: the {what}", fmt, part)
    each = fmt.floats_per_block > len(fmt.factors)
    if fmt.sub != fmt.block and not each and not any(part.planes for part in fmt.factors):
        raise InputError(f"{where}: sub-blocks of {fmt.sub} share one scale, as no integers scale them")


def _check_values(where: str, fmt: BlockFormat) -> None:
    """The table has a byte for each code, and the unit is a power of two that halves don't leave f32 by."""
    if fmt.values:
        if fmt.bits > 4 or len(fmt.values) != 1 << fmt.bits:
            raise InputError(
                f"{where}: 'values' are one for each code of at most 4 bits, but there are {len(fmt.values)} for codes "
                f"of {fmt.bits} bits"
            )
        if fmt.signed or fmt.offset or fmt.minimum is not None:
            raise InputError(f"{where}: beside 'values' there are no 'offset', signed integers and minima")
        for number in fmt.values:
            if not isinstance(number, int) or not -128 <= number <= 127:
                raise InputError(f"{where}: 'values' are integers from -128 to 127, but one is {checks.shown(number)}")
    if not (isinstance(fmt.unit, float) and math.frexp(fmt.unit)[0] == 0.5 and 2.0**-16 <= fmt.unit <= 2.0**16):
        raise InputError(f"{where}: 'unit' must be a power of two from 2^-16 to 2^16, but is {checks.shown(fmt.unit)}")


def _check_fields(where: str, fmt: BlockFormat) -> None:
    end = 0
    names = set()
    for field in fmt.fields:
        if field.name in names:
            raise InputError(f"{where}: two fields are called '{field.name}'")
        if field.count < 1 or field.offset != end:
            raise InputError(
                f"{where}: fields follow each other without gaps, but '{field.name}' has {field.count} numbers at byte "
                f"{field.offset}, where the one before ends at {end}"
            )
        names.add(field.name)
        try:
            end += field.count * float_bytes(field.dtype)
        except TypeError:
            raise InputError(f"{where}: field '{field.name}' is of {field.dtype!r}, which numpy doesn't know") from None
    if end != fmt.nbytes:
        raise InputError(f"{where}: 'nbytes' is {fmt.nbytes}, but the fields have {end}")


def _check_factor(where: str, fmt: BlockFormat, part: Scaled) -> None:
    field = next((field for field in fmt.fields if field.name == part.field), None)
    counts = (1,) if part.planes else (1, fmt.block // fmt.sub)
    if field is None or field.count not in counts or field.dtype not in _FLOATS:
        found = "there is none" if field is None else f"it has {field.count} of {field.dtype!r}"
        raise InputError(f"{where} needs a field '{part.field}' of one number, {', '.join(_FLOATS)}, but {found}")
    if not 1 <= part.step <= 255:
        raise InputError(f"{where}: 'step' must be from 1 to 255, but is {part.step}")
    if part.planes:
        _check_integers(f"{where}'s integers", fmt, part.planes, fmt.block // fmt.sub, part.offset, part.signed)
    elif part.offset or part.signed or part.step != 1:
        raise InputError(f"{where} has no integers, so 'offset', 'signed' and 'step' mean nothing")


def _check_integers(
    where: str, fmt: BlockFormat, planes: tuple[Plane, ...], count: int, offset: int, signed: bool
) -> None:
    """The planes lie in their fields, cover each integer, and don't share bits of it."""
    taken = 0
    for plane in planes:
        _check_plane(where, fmt, plane, count)
        bits = ((1 << plane.bits) - 1) << plane.into
        if taken & bits:
            raise InputError(f"{where}: two planes have bit {(taken & bits).bit_length() - 1} of the integer")
        taken |= bits
    if taken & (taken + 1) or not taken:
        raise InputError(f"{where}: planes give the bits {taken:#b} of the integer, not all from the lowest on")
    if not 0 <= offset <= 255:
        raise InputError(f"{where}: 'offset' must be from 0 to 255, but is {offset}")
    if signed and (taken != 255 or offset):
        raise InputError(f"{where}: signed integers are bytes without offset, but have {taken.bit_length()} bits")


def _check_plane(where: str, fmt: BlockFormat, plane: Plane, count: int) -> None:
    def fail(text: str) -> NoReturn:
        raise InputError(f"{where}: a plane in field '{plane.field}' {text}")

    field = next((field for field in fmt.fields if field.name == plane.field), None)
    if field is None or field.dtype not in _BYTES:
        fail("needs one of that name, of 'u1' or 'i1'")
    if len({len(plane.digits), len(plane.byte), len(plane.shift)}) != 1 or min(plane.digits, default=0) < 1:
        fail(f"has {plane.digits} digits, {plane.byte} bytes and {plane.shift} shifts: one each for every digit")
    if min(plane.byte) < 0 or plane.byte0 < 0 or plane.shift0 < 0 or min(plane.shift) < 0:
        fail("has a negative step or start")
    if math.prod(plane.digits) != count:
        fail(f"covers {math.prod(plane.digits)} integers, but there are {count}")
    if plane.bits < 1 or plane.into < 0 or plane.bits + plane.into > 8:
        fail(f"has {plane.bits} bits from bit {plane.into} on, but integers have 8")
    low, high = int(plane.bytes_.min()), int(plane.bytes_.max())
    if low < 0 or high >= field.count:
        fail(f"reads bytes {low} to {high}, but the field has {field.count}")
    top = plane.shift0 + sum(step * (size - 1) for step, size in zip(plane.shift, plane.digits, strict=True))
    if top + plane.bits > 8 and not plane.carry:
        fail(f"reads bits {top} to {top + plane.bits - 1} of a byte")
    if plane.carry and plane.bits != 1:
        fail(f"carries from byte to byte, so its bits are planes of their own, but it has {plane.bits}")
