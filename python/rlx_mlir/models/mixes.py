# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mixes of types, by the names that llama.cpp's quantiser has for them: which matrix of a model gets which type.

A mix is named for the type that most matrices get. Those from which errors spread furthest get wider ones: the output
matrix, the values' projections, the down projections of some layers. The rules are those of llama.cpp's quantiser for
decoders without or with experts, so that a file has the types that users of that name know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import InputError, did_you_mean
from ..formats import get_format
from .config import ModelConfig
from .quantised import NEEDS_IMPORTANCE, quantised_type


@dataclass(frozen=True)
class Mix:
    """What a name stands for.

    Attributes:
        name: in lower case.
        most: the type of most matrices.
        number: as `general.file_type` has it.
        head: the type of the output matrix.
        table: that of the embedding table; `most` where it is empty.
        dense: all matrices get `most`, a type without blocks.
    """

    name: str
    most: str
    number: int
    head: str = "q6_k"
    table: str = ""
    dense: bool = field(default=False)


MIXES: Mapping[str, Mix] = {
    mix.name: mix
    for mix in (
        Mix("f32", "f32", 0, dense=True),
        Mix("f16", "f16", 1, dense=True),
        Mix("bf16", "bf16", 32, dense=True),
        Mix("q8_0", "q8_0", 7, head="q8_0"),
        Mix("q4_0", "q4_0", 2),
        Mix("q4_1", "q4_1", 3),
        Mix("q5_0", "q5_0", 8),
        Mix("q5_1", "q5_1", 9),
        Mix("q2_k", "q2_k", 10),
        Mix("q2_k_s", "q2_k", 21),
        Mix("q3_k_s", "q3_k", 11),
        Mix("q3_k_m", "q3_k", 12),
        Mix("q3_k_l", "q3_k", 13),
        Mix("q4_k_s", "q4_k", 14),
        Mix("q4_k_m", "q4_k", 15),
        Mix("q5_k_s", "q5_k", 16),
        Mix("q5_k_m", "q5_k", 17),
        Mix("q6_k", "q6_k", 18),
        Mix("iq1_s", "iq1_s", 24, head="q5_k", table="q2_k"),
        Mix("iq1_m", "iq1_m", 31, head="q5_k", table="q2_k"),
        Mix("iq2_xxs", "iq2_xxs", 19, head="q5_k", table="q2_k"),
        Mix("iq2_xs", "iq2_xs", 20, head="q5_k", table="q2_k"),
        Mix("iq2_s", "iq2_xs", 28, head="q5_k", table="iq3_s"),
        Mix("iq2_m", "iq2_s", 29, head="q5_k", table="iq3_s"),
        Mix("iq3_xxs", "iq3_xxs", 23, head="q5_k", table="iq3_s"),
        Mix("iq3_xs", "iq3_s", 22),
        Mix("iq3_s", "iq3_s", 26),
        Mix("iq3_m", "iq3_s", 27),
        Mix("iq4_nl", "iq4_nl", 25),
        Mix("iq4_xs", "iq4_xs", 30),
    )
}
"""By name."""

_ALIASES = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}


def named_mix(name: str) -> Mix:
    """The mix of a name in any case; q3_k, q4_k and q5_k are the middle ones. InputError where there is none."""
    lower = name.lower()
    found = MIXES.get(_ALIASES.get(lower, lower))
    if found is None:
        raise InputError(f"there is no mix '{name}'{did_you_mean(lower, MIXES)}; there are {', '.join(MIXES)}")
    return found


def gets_more(layer: int, layers: int) -> bool:
    """Whether a layer is among those that the middle mixes keep more of: the first and the last eighth, and every third
    one between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


_OF_THREE = ("iq3_xxs", "iq3_xs", "iq3_s", "iq3_m")

_WIDENING = tuple(f"ffn_{word}{of}" for word in ("gate", "up") for of in ("", "_exps", "_shexp"))
"""The matrices before the product that `ffn_down` multiplies."""


@dataclass(frozen=True)
class Rules:
    """What the types of a model's matrices depend on.

    Attributes:
        mix: what is asked for.
        layers: of the model.
        grouped: how many heads of queries share one of keys.
        experts: in a layer; 0 where there are none.
        tied: the embedding table is the output matrix.
        large: a model of the kind of LLaMA's 70B, 80 layers whose heads share keys.
        has_importance: there is an importance matrix.
    """

    mix: Mix
    layers: int
    grouped: int = 1
    experts: int = 0
    tied: bool = False
    large: bool = False
    has_importance: bool = False

    @classmethod
    def of(cls, config: ModelConfig, mix: Mix, *, has_importance: bool = False) -> Rules:
        """The rules for a model."""
        grouped = config.heads // config.kv_heads if config.kv_heads else 1
        return cls(
            mix,
            config.layers,
            grouped,
            config.experts,
            "output.weight" not in config.weights,
            config.architecture == "llama" and config.layers == 80 and grouped > 1,
            has_importance,
        )

    def wanted(self, name: str) -> str:
        """The type of a matrix by its name, whatever its rows are."""
        if self.mix.dense:
            return self.mix.most
        if name == "output.weight" or (self.tied and name == "token_embd.weight"):
            return self.mix.head
        if name == "token_embd.weight":
            return self.mix.table or self.mix.most
        _, _, rest = name.partition("blk.")
        layer, _, own = rest.partition(".")
        kind = own.removesuffix(".weight")
        if not layer.isdigit():
            return self.mix.most
        rule = {
            "attn_v": self._values,
            "attn_k": self._keys,
            "attn_q": self._queries,
            "attn_qkv": self._values,  # the values are a part of it
            "attn_output": self._output,
            "ffn_down": self._down,
            "ffn_down_exps": self._down,
            "ffn_down_shexp": self._down,
            **dict.fromkeys(_WIDENING, self._up),
        }.get(kind)
        return rule(int(layer)) if rule is not None else self.mix.most

    @property
    def _small(self) -> str:
        """What mixes of one or two bits give the matrices that get more; empty in other mixes."""
        if not self.mix.most.startswith(("iq1", "iq2")):
            return ""
        return "iq3_s" if self.mix.name in ("iq2_s", "iq2_m") else "q2_k"

    def _values(self, layer: int) -> str:
        mix, most = self.mix.name, self.mix.most
        if self._small:
            return "q4_k" if self.grouped >= 4 or self.experts >= 4 else self._small
        if mix == "q2_k":
            most = "q4_k" if self.grouped >= 4 else "q3_k"
        elif mix == "iq3_m" or (mix in ("q2_k_s", "iq3_xxs", "iq3_xs", "iq3_s") and self.grouped >= 4):
            most = "q4_k"
        elif mix == "iq3_xxs":
            most = "iq3_xxs" if self.has_importance else "iq3_s"
        elif mix == "q3_k_m":
            most = "q5_k" if layer < 2 else "q4_k"
        elif mix == "q3_k_l" or (most.startswith("iq4") and self.grouped >= 4):
            most = "q5_k"
        elif mix in ("q4_k_m", "q5_k_m") and gets_more(layer, self.layers):
            most = "q6_k"
        elif mix == "q4_k_s" and layer < 4:
            most = "q5_k"
        if self.large and most in ("q3_k", "q4_k"):
            most = "q5_k"
        return "q8_0" if self.experts == 8 else most

    def _keys(self, layer: int) -> str:
        if self.experts == 8:
            return "q4_k" if self._small else "q8_0"
        return self._queries(layer)

    def _queries(self, layer: int) -> str:
        return {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}.get(self.mix.name, self.mix.most)

    def _output(self, layer: int) -> str:
        if self.experts == 8:
            widened = ("q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m", "iq4_nl", "iq4_xs")
            return "q5_k" if self._small or self.mix.name in (*widened, *_OF_THREE) else self.mix.most
        other = {"q2_k": "q3_k", "q3_k_m": "q4_k", "q3_k_l": "q5_k", "iq3_xxs": "iq3_s", "iq3_m": "q4_k"}
        other |= {"iq1_s": "iq2_xxs", "iq1_m": "iq2_xxs", "iq2_s": "iq3_s", "iq2_m": "iq3_s"}
        return other.get(self.mix.name, self.mix.most)

    def _up(self, layer: int) -> str:
        outer = layer < self.layers // 8 or layer >= 7 * self.layers // 8
        return "iq3_xxs" if self.mix.name == "iq3_xs" and not outer else self.mix.most

    def _down(self, layer: int) -> str:
        mix, most, first = self.mix.name, self.mix.most, layer < self.layers // 8
        if self._small:
            return self._small if first else most
        if mix == "iq3_xxs" and not self.has_importance:
            return "q4_k" if first else "q3_k"
        if mix == "iq3_m" and (first or (self.experts == 8 and gets_more(layer, self.layers))):
            return "q4_k"
        if mix == "q2_k":
            return "q3_k"
        if mix == "q3_k_m":
            return "q5_k" if layer < self.layers // 16 else "q4_k"
        if mix == "q3_k_l":
            return "q5_k"
        if mix in ("q4_k_m", "q5_k_m"):
            return "q6_k" if gets_more(layer, self.layers) else most
        if first and mix == "q2_k_s":
            return "q4_k"
        if first and (mix == "q4_k_s" or (most.startswith("iq4") and not self.has_importance)):
            return "q5_k"
        if first and mix in ("q4_0", "q5_0") and self.has_importance:
            return {"q4_0": "q4_1", "q5_0": "q5_1"}[mix]
        return most

    def type_of(self, name: str, k: int) -> str:
        """The type of a matrix by its name and the elements of a row: where these aren't a multiple of the blocks of
        the type that the mix wants, it is a wider one of blocks of 32 (`quantised_type`), q8_0 for the output matrix,
        and f16 where they aren't a multiple of 32 either."""
        own = self.wanted(name)
        if own == self.mix.head and not self.mix.dense and k % get_format(own).block and self._is_head(name):
            own = "q8_0"
        return quantised_type(own, k) or "f16"

    def _is_head(self, name: str) -> bool:
        return name == ("token_embd.weight" if self.tied else "output.weight")


def is_quantised(name: str, dimensions: int) -> bool:
    """Whether a tensor is one that mixes give a type: a matrix, but for those that choose experts."""
    return dimensions >= 2 and name.endswith(".weight") and not name.endswith(("_norm.weight", "ffn_gate_inp.weight"))


def needs_importance(mix: Mix, name: str, own: str) -> bool:
    """Whether a matrix of a type is only quantised by an importance matrix: one of at most two bits, or of the three of
    iq3_xxs, but for the embedding table and the output matrix."""
    if name in ("output.weight", "token_embd.weight"):
        return False
    return own in NEEDS_IMPORTANCE or (own == "q2_k" and mix.name == "q2_k_s")


__all__ = ["MIXES", "Mix", "Rules", "gets_more", "is_quantised", "named_mix", "needs_importance"]
