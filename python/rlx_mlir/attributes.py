# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attributes as Python values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from rlx_mlir import ir
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.errors import InputError

#: An attribute of an operation in Python, and what builders take for one: a boolean, a number, a text, a list or
#: dictionary of these, or an attribute or type of MLIR where Python has nothing like it; None for one that isn't there.
PythonValue: TypeAlias = Any

_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|[-+]?\d[\d.]*(?:[eE][-+]?\d+)?")
_ENUM = re.compile(r"#\w+<\w+ (\w+)>")


def python_value(attribute: ir.Attribute | None) -> PythonValue:
    """The value of an attribute: numbers, strings, lists, dictionaries and words of enumerations; None stays None.

    Unit attributes become True. Attributes of other kinds (types, elements, encodings) are returned as they are.
    """
    if attribute is None or isinstance(attribute, bool | int | float | str):
        return attribute
    if isinstance(attribute, ir.UnitAttr):
        return True
    if isinstance(attribute, ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr | ir.StringAttr | ir.FlatSymbolRefAttr):
        try:
            return attribute.value
        except RuntimeError:  # of the bindings
            raise InputError(f"{attribute} is no text in UTF-8") from None
    if isinstance(attribute, ir.ArrayAttr):
        return [python_value(element) for element in attribute]
    if isinstance(attribute, ir.DictAttr):
        entries = (attribute[number] for number in range(len(attribute)))
        return {entry.name: python_value(entry.attr) for entry in entries}
    if isinstance(attribute, ir.DenseI64ArrayAttr | ir.DenseI32ArrayAttr | ir.DenseF32ArrayAttr):
        return list(attribute)
    if match := _ENUM.fullmatch(str(attribute)):
        return match[1]
    return attribute


def elements_array(attribute: ir.Attribute) -> np.ndarray:
    """The array of an elements attribute; InputError where it doesn't give its elements."""
    dense = ir.DenseElementsAttr(attribute)
    shaped = ir.RankedTensorType(dense.type)
    dtype = numpy_dtype(shaped.element_type)
    if dtype == np.bool_ and dense.is_splat:  # of which the bindings give one byte, and numpy reads as many as elements
        return np.full(shaped.shape, dense.get_splat_value().value)
    if dtype != ml_dtypes.bfloat16:
        array: np.ndarray = np.array(dense).astype(dtype, copy=False).reshape(shaped.shape)
        return array
    # The bindings give neither elements nor a buffer of bf16, so its text is read, which is exact.
    text = str(attribute).removeprefix("dense<").rpartition("> : ")[0]
    if text.startswith('"0x'):  # raw bytes: how many elements are printed
        flat = np.frombuffer(bytes.fromhex(text[3:-1]), "<u2").view(dtype)
    else:
        flat = np.array([_bf16(word) for word in _NUMBER.findall(text)], np.uint16).view(dtype)
    return np.resize(flat, shaped.shape)  # repeats a splat


def elements_attribute(array: np.ndarray, element: ir.Type) -> ir.DenseElementsAttr:
    """The elements attribute of an array; `element` is the MLIR type of its elements."""
    data: np.ndarray = np.require(array, requirements="C")
    with element.context, ir.Location.unknown():
        if array.dtype == np.bool_:
            data = np.packbits(data, axis=None, bitorder="little")
            made: ir.DenseElementsAttr = ir.DenseElementsAttr.get(data, type=element, shape=list(array.shape))
            return made
        if array.dtype == ml_dtypes.bfloat16:
            data = data.view(np.uint16)
        made = ir.DenseElementsAttr.get(data, type=ir.RankedTensorType.get(array.shape, element))
        return made


def floats_attribute(numbers: Iterable[float], context: ir.Context) -> ir.ArrayAttr:
    """Numbers as attributes of f32: the text of `array<f32: ...>` isn't exact."""
    kind = ir.F32Type.get(context)
    entries = [ir.FloatAttr.get(kind, number, loc=ir.Location.unknown(context)) for number in numbers]
    made: ir.ArrayAttr = ir.ArrayAttr.get(entries, context)
    return made


def _bf16(word: str) -> int:
    """The bits of a number's text; hexadecimal text is the bits (of infinities and NaN)."""
    if word.startswith("0x"):
        return int(word, 16)
    return int(np.array(float(word)).astype(ml_dtypes.bfloat16).view(np.uint16))
