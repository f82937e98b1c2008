# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attributes of StableHLO's operations, read from their text: our MLIR doesn't know their dialect.

`#stablehlo<comparison_direction LT>` is a word, `#stablehlo.dot<lhs_contracting_dimensions = [1]>` has fields, which
are numbers, lists of them, or words; of `#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>` the three lists are
read.
"""

from __future__ import annotations

import re

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array
from rlx_mlir.errors import StablehloError, shortened

_WORD = re.compile(r"#\w+<\w+ (\w+)>")
_FIELDS = re.compile(r"#[\w.]+<(.*)>", re.DOTALL)
_FIELD = re.compile(r"(\w+)\s*=\s*(\[[^\]]*\]|[\w-]+)\s*(?:,|$)")
_CONVOLUTION = re.compile(r"#[\w.]+<\[([^\]]*)\]x\[([^\]]*)\]->\[([^\]]*)\]>")


def word(attribute: ir.Attribute) -> str:
    """The word of an enumeration, such as `LT`."""
    found = _WORD.fullmatch(str(attribute))
    if found is None:
        raise StablehloError(f"an attribute is a word such as '#stablehlo<…  LT>', but is {shortened(attribute)}")
    return found[1]


def fields(attribute: ir.Attribute) -> dict[str, list[int]]:
    """The fields of a structure as lists of numbers; a number is a list of one, and what is no number isn't read."""
    found = _FIELDS.fullmatch(str(attribute))
    if found is None:
        raise StablehloError(f"an attribute is a structure with fields, but is {shortened(attribute)}")
    read: dict[str, list[int]] = {}
    for name, text in _FIELD.findall(found[1]):
        entries = [entry.strip() for entry in text.strip("[]").split(",") if entry.strip()]
        if all(re.fullmatch(r"-?\d+", entry) for entry in entries):
            read[name] = [int(entry) for entry in entries]
    return read


def convolution(attribute: ir.Attribute) -> tuple[list[str], list[str], list[str]]:
    """What the dimensions of images, kernels and results of a convolution are: letters, and numbers of space."""
    found = _CONVOLUTION.fullmatch(str(attribute))
    if found is None:
        raise StablehloError(f"an attribute is '[…]x[…]->[…]' of dimensions, but is {shortened(attribute)}")
    first, second, third = ([entry.strip() for entry in part.split(",")] for part in found.groups())
    return first, second, third


def numbers(attribute: ir.Attribute) -> list[int]:
    """Whole numbers, or conditions as such, of an array or of elements, in row-major order."""
    for kind in (ir.DenseI64ArrayAttr, ir.DenseBoolArrayAttr, ir.DenseI32ArrayAttr):
        if isinstance(attribute, kind):
            return [int(entry) for entry in attribute]
    if isinstance(attribute, ir.DenseElementsAttr):
        return [int(entry) for entry in elements_array(attribute).reshape(-1)]
    raise StablehloError(f"an attribute is an array of whole numbers, but is {shortened(attribute)}")
