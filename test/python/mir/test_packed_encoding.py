# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`#mir.packed` from Python: read, built and refused by its parameters, as C++ says."""

from __future__ import annotations

import re

import pytest

from rlx_mlir import ir
from rlx_mlir.mir.packed import Packing, packing

PackedAttr = ir.native.PackedAttr

CASES = {
    "#mir.packed<q4_1, k = 64>": ("q4_1", 64, None, "rows"),
    "#mir.packed<q4_1, k = 64, n = 24, layout = panels>": ("q4_1", 64, 24, "panels"),
    "#mir.packed<q6_k, k = 512, layout = planes>": ("q6_k", 512, None, "planes"),
}


@pytest.mark.parametrize("text", CASES)
def test_text_and_parameters_say_the_same(text: str) -> None:
    scheme, k, n, layout = CASES[text]
    with ir.new_context():
        parsed = ir.Attribute.parse(text)
        assert isinstance(parsed, PackedAttr)
        assert (parsed.scheme, parsed.k, parsed.n, parsed.layout) == (scheme, k, n, layout)
        built = PackedAttr.get(scheme, k, n, layout)
        assert built == parsed
        assert str(built) == text


def test_the_context_may_be_given() -> None:
    context = ir.new_context()
    assert PackedAttr.get("f32", 3, context=context).context == context
    with pytest.raises((TypeError, RuntimeError)):
        PackedAttr.get("f32", 3)


def test_other_attributes_are_none() -> None:
    with ir.new_context():
        other = ir.StringAttr.get("#mir.packed<q4_1, k = 64>")
        assert not PackedAttr.isinstance(other)
        assert PackedAttr.isinstance(PackedAttr.get("q4_1", 64))
        with pytest.raises(ValueError, match="Cannot cast attribute to PackedAttr"):
            PackedAttr(other)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (("q4_1", 33), "expects 'k' to be a positive multiple of the block length of q4_1, 32, but got 33"),
        (("q4_1", 64, 24), "expects a positive 'n' exactly with 'layout = panels', but 'n' is 24 and 'layout' is rows"),
        (("q4_1", 64, None, "panels"), "but 'n' is 0 and 'layout' is panels"),
        (("q8_k", 256, 16, "panels"), "expects 'layout = rows' for q8_k, which has no panels"),
        (("q9_9", 64), "unknown weight format 'q9_9', known are "),
        (("q4_1", 1 << 33), "expects 'k' and 'n' below 2"),
        (("q4_1", 64, None, "tiles"), "unknown layout 'tiles', known are rows, panels, planes"),
    ],
)
def test_what_the_verifier_says_is_raised(parameters: tuple[str, int], text: str) -> None:
    with ir.new_context(), pytest.raises(ValueError, match=re.escape(text)):
        PackedAttr.get(*parameters)


def test_rows_of_a_weight_are_of_its_type_or_its_encoding() -> None:
    with ir.new_context():
        types = [
            ir.Type.parse(text)
            for text in (
                "tensor<16x40xi8, #mir.packed<q4_1, k = 64>>",
                "tensor<?x40xi8, #mir.packed<q4_1, k = 64>>",
                "tensor<2x640xi8, #mir.packed<q4_1, k = 64, n = 24, layout = panels>>",
                "tensor<16x64xf32>",
                "i32",
            )
        ]
        assert [packing(type) for type in types] == [
            Packing("q4_1", 64, 16),
            Packing("q4_1", 64, None),
            Packing("q4_1", 64, 24, "panels"),
            None,
            None,
        ]
