# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Types of matrices by mixes: what llama.cpp's quantiser gave the tensors of models with few columns and many layers.

`mixes.json` has, for each model and mix, the types by kind of tensor, layer after layer: `q6_k*4 q4_k*2` are four
layers of the one and two of the other. A mix with + had an importance matrix. Rows have `k` elements; where these are
96, those of `ffn_down` have 48, which no type's blocks divide.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlx_mlir.errors import InputError
from rlx_mlir.models.mixes import MIXES, Rules, gets_more, is_quantised, named_mix

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "mixes.json").read_text())


@pytest.mark.parametrize("model", RECORDED, ids=lambda model: str(model["name"]))
def test_types_are_those_of_llama_cpp(model: dict[str, Any]) -> None:
    checked = 0
    for word, kinds in model["types"].items():
        rules = Rules(
            MIXES[word.removesuffix("+")],
            model["layers"],
            model["grouped"],
            model.get("experts", 0),
            model["tied"],
            model["name"] == "llama80",
            word.endswith("+"),
        )
        for kind, text in kinds.items():
            types = [
                name for part in text.split() for name, _, count in [part.partition("*")] for _ in range(int(count))
            ]
            k = 48 if model["k"] == 96 and kind == "ffn_down" else model["k"]
            names = [f"{kind}.weight"] if len(types) == 1 else [f"blk.{i}.{kind}.weight" for i in range(len(types))]
            assert [rules.type_of(name, k) for name in names] == types, (word, kind)
            checked += len(types)
    assert checked > 900
    assert {word.removesuffix("+") for word in model["types"]} == set(MIXES)


def test_names_of_mixes() -> None:
    assert named_mix("Q4_K_M") is MIXES["q4_k_m"]
    assert named_mix("q5_k").name == "q5_k_m"
    numbers = {"f16": 1, "q8_0": 7, "q4_k_m": 15, "iq4_xs": 30, "iq2_m": 29, "bf16": 32}
    assert {name: MIXES[name].number for name in numbers} == numbers
    with pytest.raises(
        InputError, match=r"there is no mix 'q4_k_x' \(did you mean 'q4_k_[sm]'\?\); there are f32, f16"
    ):
        named_mix("q4_k_x")


def test_which_tensors_have_a_type_of_the_mix() -> None:
    found = [
        is_quantised(name, 2) for name in ("output.weight", "blk.0.ffn_gate_inp.weight", "a_norm.weight", "x.bias")
    ]
    assert found == [True, False, False, False]
    assert not is_quantised("output.weight", 1)
    assert is_quantised("blk.0.ffn_up_exps.weight", 3)


@pytest.mark.parametrize("layers", [1, 7, 8, 9, 32])
def test_layers_that_get_more(layers: int) -> None:
    found = [layer for layer in range(layers) if gets_more(layer, layers)]
    first, last = range(layers // 8), range(7 * layers // 8, layers)
    middle = [layer for layer in range(layers // 8, 7 * layers // 8) if (layer - layers // 8) % 3 == 2]
    assert found == sorted({*first, *middle, *last})
