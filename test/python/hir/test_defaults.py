# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What isn't said means the same to builders, to operations and to their references."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import rlx_mlir.semantics.blocks  # noqa: F401 - registers the meaning of blocks
from rlx_mlir import GraphModule, ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir import REFERENCES

#: Where a builder says what operations don't: (builder, parameter) -> defaults of the builder and of the operation.
#: Layers of a decoder are causal, while `mask` is absent from the text of an operation that masks nothing.
SAID = {("llama_decoder_block", "mask_kind"): ("causal", "none")}


def _same(builder: object, meaning: object) -> bool:
    """Builders take a number for a pair of it."""
    return builder == meaning or (isinstance(meaning, tuple) and meaning == (builder, builder))


@pytest.mark.parametrize("stage", ["hir", "mir"])
def test_builders_and_references_have_the_same_defaults(stage: str) -> None:
    differences = {}
    for name, builder in inspect.getmembers(GraphModule, inspect.isfunction):
        meaning = REFERENCES.get(f"{stage}.{name}")
        if meaning is None or name.startswith("_"):
            continue
        own, its = inspect.signature(builder).parameters, inspect.signature(inspect.unwrap(meaning)).parameters
        for parameter in own.keys() & its.keys():
            defaults = own[parameter].default, its[parameter].default
            if inspect.Parameter.empty not in defaults and not _same(*defaults):
                differences[name, parameter] = defaults
    assert differences == (SAID if stage == "hir" else {})


def test_rope_rotates_halves_by_default() -> None:
    angle = np.arange(24, dtype=np.float32).reshape(3, 8)
    m = GraphModule.hir("decoder")

    def weight(name: str, *shape: int) -> object:
        return m.param(name, list(shape))

    m.set_outputs(
        {
            "y": m.llama_decoder_block(
                m.input("x", [1, 3, 16]),
                **{f"ln{i}_gamma": weight(f"g{i}", 16) for i in (1, 2)},
                **{f"{name}_w": weight(name, 16, 16) for name in ("q", "k", "v", "o", "gate", "up", "down")},
                cos=m.constant(np.cos(angle)),
                sin=m.constant(np.sin(angle)),
                num_heads=1,
                num_kv_heads=1,
                head_dim=16,
            )
        }
    )
    assert "rope half" in m.to_text()
    text = "func.func @f(%x: tensor<3x4xf32>, %c: tensor<3x2xf32>) -> tensor<3x4xf32> {\n" + (
        "%y = mir.rope %x, %c, %c head_dim 4 : tensor<3x4xf32>, tensor<3x2xf32>\nreturn %y : tensor<3x4xf32>\n}"
    )
    module = ir.Module.parse(text, ir.new_context())
    (function,) = module.body.operations
    rope = next(op for op in function.regions[0].blocks[0].operations if isinstance(op, mir.RopeOp))
    assert python_value(rope.style) == "half"
