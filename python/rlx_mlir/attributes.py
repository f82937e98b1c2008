# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attributes as Python values."""

from __future__ import annotations

import re
from typing import Any

from rlx_mlir import ir

_ENUM = re.compile(r"#\w+<\w+ (\w+)>")


def python_value(attribute: ir.Attribute | None) -> Any:
    """The value of an attribute: numbers, strings, lists and words of enumerations; None stays None.

    Unit attributes become True. Attributes of other kinds (types, elements, encodings) are returned as they are.
    """
    if attribute is None or isinstance(attribute, bool | int | float | str):
        return attribute
    if isinstance(attribute, ir.UnitAttr):
        return True
    if isinstance(attribute, ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr | ir.StringAttr | ir.FlatSymbolRefAttr):
        return attribute.value
    if isinstance(attribute, ir.ArrayAttr):
        return [python_value(element) for element in attribute]
    if isinstance(attribute, ir.DenseI64ArrayAttr | ir.DenseI32ArrayAttr | ir.DenseF32ArrayAttr):
        return list(attribute)
    if match := _ENUM.fullmatch(str(attribute)):
        return match[1]
    return attribute
