# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What builders say of arguments that aren't what they take: our words, with names and values, at the caller's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx_mlir import GraphModule
from rlx_mlir.errors import BuildError, InputError

Build = Callable[[Any, Any], Any]

CASES: dict[str, tuple[Build, str]] = {
    "operand": (lambda m, x: m.linear(None, x), r"'hir\.linear': 'x' is needed, but got None"),
    "attribute": (lambda m, x: m.attention(x, x, x, num_heads=None, head_dim=4), "'num_heads' is needed, but got None"),
    "float": (
        lambda m, x: m.attention(x, x, x, num_heads=1, head_dim=4, mask_kind="sliding_window", window=2.5),
        r"'window' is an integer, but got 2\.5",
    ),
    "truth": (lambda m, x: m.attention(x, x, x, num_heads=True, head_dim=4), "'num_heads' is an integer, but got True"),
    "entry": (lambda m, x: m.sum(x, True), "'axes' is an integer, but got True"),
    "flag": (lambda m, x: m.linear(x, x, transpose_weight=1), "'transpose_weight' is True or False, but got 1"),
    "size": (lambda m, x: m.reshape(x, 16), r"'mir\.reshape' expects a sequence of sizes and symbols, but got 16"),
    "word": (lambda m, x: m.expand(x, "ab"), r"'mir\.expand' expects a sequence of sizes and symbols, but got 'ab'"),
    "value": (lambda m, x: m.concat(x, 0), r"'mir\.concat' expects a sequence of values, but got <Value 'x'"),
    "values": (
        lambda m, x: m.dynamic_update_slice(x, x, [m.constant(np.int32(1))]),
        r"'mir\.dynamic_update_slice': 'start' is one value, but got 1 of them",
    ),
    "second of several": (lambda m, x: m.softmax([x, x]), r"'mir\.softmax': 'x' is one value, but got 2 of them"),
    "types": (
        lambda m, x: m.add(x, np.ones(4, np.float64)),
        r"same element type, but got 'lhs' of tensor<1x4x4xf32>, 'rhs' of tensor<4xf64>",
    ),
    "type": (
        lambda m, x: m.gather(x, x > 0, 0),
        "expects 'indices' to be dense tensor of f32, i32, i64 or ui8 to ui32",
    ),
    "same value": (lambda m, x: m.dequant_matmul(x[0], x[0]), "expects 'weight' to be packed weight"),
}


@pytest.mark.parametrize(("build", "message"), CASES.values(), ids=list(CASES))
def test_builders_name_what_is_wrong(build: Build, message: str) -> None:
    module = GraphModule.hir("f")
    x = module.input("x", [1, 4, 4])
    with pytest.raises(BuildError, match=message) as raised:
        build(module, x)
    assert str(raised.value).startswith(__file__)


def test_what_is_no_value_or_pipeline() -> None:
    module = GraphModule.hir("f")
    x = module.input("x", [2, 3])
    with pytest.raises(BuildError, match="a Value of module 'f' is expected, but got None"):
        module.replace(x, None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a pipeline is a text, such as 'hir-to-mir,cse', but got None"):
        module.transform(None)  # type: ignore[arg-type]


def test_flags_of_numpy_are_flags() -> None:
    module = GraphModule.hir("f")
    x = module.input("x", [2, 3])
    assert module.sum(x, 1, keep_dims=np.bool_(True)).shape == (2, 1)
    assert module.sum(x, 1, keep_dims=np.bool_(False)).shape == (2,)


@pytest.mark.parametrize(
    ("second", "result", "message"),
    [
        ("a", "z", "'f': arguments have names of their own, but 0 and 1 are both 'a'"),
        ("arg2", "z", "'f': arguments have names of their own, but 1 and 2 are both 'arg2'"),
        ("b", "y", "'f': results have names of their own, but 0 and 1 are both 'y'"),
    ],
)
def test_names_in_text_are_of_one_value(second: str, result: str, message: str) -> None:
    text = f"""
      func.func @f(%a: tensor<4xf32> {{mir.name = "a"}}, %b: tensor<4xf32> {{mir.name = "{second}"}}, %c: tensor<4xf32>)
          -> (tensor<4xf32> {{mir.name = "y"}}, tensor<4xf32> {{mir.name = "{result}"}}) {{
        %d = mir.sub %a, %b : tensor<4xf32>
        return %d, %c : tensor<4xf32>, tensor<4xf32>
      }}"""
    with pytest.raises(InputError, match=message):
        GraphModule.from_text(text)
