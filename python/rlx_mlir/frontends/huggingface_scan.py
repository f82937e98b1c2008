# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with selective scans in folders: Mamba's and Mamba 2's, alone or beside attention.

Files hold -exp(A_log), taps as rows, rates and weights of inputs as [heads, 1], and weights of norms as rows of groups.
Falcon-H1 multiplies what products give, and rows of the table, by factors that its configuration has; converters
multiply the weights. So does this, in f32: in the folder's type it would be another rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rlx_mlir.files import Json
from rlx_mlir.frontends.model_file import MetadataValue

from ..errors import ModelFileError
from .documents import Document
from .huggingface_delta import Made

_WORDS = {"in_proj": "ssm_in", "conv1d": "ssm_conv1d", "norm": "ssm_norm", "out_proj": "ssm_out"}
_BARE = {"dt_bias": "ssm_dt.bias", "A_log": "ssm_a", "D": "ssm_d"}
#: Of scans whose states have rates of their own, beside the others' but for the norm.
_CHANNEL_WORDS = {
    "x_proj": "ssm_x",
    "dt_proj": "ssm_dt",
    **{f"{word}_layernorm": f"ssm_{word}_norm" for word in ("dt", "b", "c")},
}


def layer_names(prefix: str) -> dict[str, str]:
    """Tensors of a scan, without `.weight` or `.bias`, and what GGUF calls them."""
    return {f"{prefix}.{theirs}": own for theirs, own in _WORDS.items()}


def channel_names(prefix: str) -> dict[str, str]:
    """As `layer_names`, of scans whose states have rates of their own."""
    words = {theirs: own for theirs, own in _WORDS.items() if theirs != "norm"} | _CHANNEL_WORDS
    return {f"{prefix}.{theirs}": own for theirs, own in words.items()}


def channel_bare_names(prefix: str) -> dict[str, str]:
    """As `bare_names`; biases of steps stand with a matrix there."""
    return {theirs: own for theirs, own in bare_names(prefix).items() if own != "ssm_dt.bias"}


def bare_names(prefix: str) -> dict[str, str]:
    """Those whose names have no such end."""
    return {f"{prefix}.{theirs}": own for theirs, own in _BARE.items()}


class ChannelScanOrder:
    """What files have in place of tensors of folders, where states have rates of their own."""

    def made(
        self, name: str, shape: tuple[int, ...], type: str, read: Callable[[], np.ndarray], where: str
    ) -> dict[str, Made]:
        """See `DeltaOrder.made`."""
        if name == "ssm_conv1d.weight":
            return _taps(name, shape, read, where)
        if name == "ssm_a":
            return {name: (shape, "f32", lambda: -np.exp(read().astype(np.float32)))}
        return {}


@dataclass(frozen=True)
class ScanOrder:
    """What files have in place of tensors of folders.

    Attributes:
        groups: of heads, each with a norm of its own.
        factors: by the word of a matrix, what its rows are multiplied by: one number, or one for each row.
    """

    groups: int
    factors: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, metadata: Mapping[str, MetadataValue], architecture: str, document: Document) -> ScanOrder:
        """By the metadata of a folder, and the factors that its configuration has."""
        words = ("group_count", "inner_size", "state_size", "time_step_rank")
        groups, inner, numbers, heads = (metadata[f"{architecture}.ssm.{word}"] for word in words)
        if architecture != "falcon-h1":
            return cls(groups)
        sections = [inner, inner, groups * numbers, groups * numbers, heads]
        return cls(groups, _factors(document, sections))

    def made(
        self, name: str, shape: tuple[int, ...], type: str, read: Callable[[], np.ndarray], where: str
    ) -> dict[str, Made]:
        """See `DeltaOrder.made`."""
        word = name.removesuffix(".weight")
        if name == "ssm_conv1d.weight":
            return _taps(name, shape, read, where)
        if word in ("ssm_a", "ssm_d"):
            if len(shape) != 1:
                raise _unfit(name, shape, "[heads]", where)
            column = (shape[0], 1)
            if word == "ssm_a":
                return {name: (column, "f32", lambda: -np.exp(read().astype(np.float32)).reshape(column))}
            return {name: (column, "f32", lambda: read().astype(np.float32).reshape(column))}
        if word == "ssm_norm":
            if len(shape) != 1 or shape[0] % self.groups:
                raise _unfit(name, shape, f"a multiple of {self.groups} groups", where)
            rows = (self.groups, shape[0] // self.groups)
            return {name: (rows, "f32", lambda: read().astype(np.float32).reshape(rows))}
        factor = self.factors.get(word)
        if factor is None or name.endswith(".bias") or (factor == 1).all():
            return {}
        if factor.size not in (1, shape[0]):
            raise _unfit(name, shape, f"{factor.size} rows", where)
        return {name: (shape, "f32", lambda: read().astype(np.float32) * factor[:, None])}


def _taps(name: str, shape: tuple[int, ...], read: Callable[[], np.ndarray], where: str) -> dict[str, Made]:
    """Those of a convolution, [channels, 1, taps], as rows."""
    if len(shape) != 3 or shape[1] != 1:
        raise _unfit(name, shape, "[channels, 1, taps]", where)
    own = (shape[0], shape[2])
    return {name: (own, "f32", lambda: read().astype(np.float32).reshape(own))}


def _unfit(name: str, shape: tuple[int, ...], rule: str, where: str) -> ModelFileError:
    return ModelFileError(f"what is '{name}' in files must be {rule}, but is {list(shape)}", path=where)


def _factors(document: Document, sections: list[int]) -> dict[str, np.ndarray]:
    """Those of Falcon-H1; `sections` are the rows of the first product of a scan that have a factor each."""
    numbers = {
        word: document.number(f"{word}_multiplier", 1.0)
        for word in ("attention_in", "attention_out", "key", "ssm_in", "ssm_out")
    }
    gate, down = _list(document, "mlp_multipliers", 2)
    by_row = np.repeat(_list(document, "ssm_multipliers", 5), sections)
    found = {
        "attn_q": numbers["attention_in"],
        "attn_k": numbers["attention_in"] * numbers["key"],
        "attn_v": numbers["attention_in"],
        "attn_output": numbers["attention_out"],
        "ssm_in": numbers["ssm_in"] * by_row,
        "ssm_out": numbers["ssm_out"],
        "ffn_gate": gate,
        "ffn_down": down,
        "token_embd": document.number("embedding_multiplier", 1.0),
        "output": document.number("lm_head_multiplier", 1.0),
    }
    return {word: np.atleast_1d(np.asarray(value, np.float32)) for word, value in found.items()}


def _list(document: Document, key: str, count: int) -> np.ndarray:
    """A list of so many finite numbers; ones where there is none."""
    value = document.content.get(key)
    if value is None:
        return np.ones(count)
    fits = isinstance(value, list) and len(value) == count
    if not fits or not all(isinstance(each, int | float) and not isinstance(each, bool) for each in value):
        raise document.fail(key, f"a list of {count} numbers", value)
    found = np.array(value, np.float64)
    if not np.isfinite(found).all():
        raise document.fail(key, f"a list of {count} finite numbers", value)
    return found


def step_limits(document: Document) -> dict[str, MetadataValue]:
    """The least and the largest step, by own keys, where `time_step_limit` says others than 0 and infinity."""
    key = "time_step_limit"
    value = document.content.get(key)
    if value is None:
        return {}
    least, most = (_limit(each) for each in value) if isinstance(value, list) and len(value) == 2 else (None, None)
    if least is None or most is None or not 0 <= least <= most:
        raise document.fail(key, "a least and a largest step, 0 or more", value)
    limits: dict[str, MetadataValue] = {"ssm.step_least": least} if least > 0 else {}
    return limits | ({"ssm.step_most": most} if most < float("inf") else {})


def _limit(value: Json) -> float | None:
    """A number, or infinity as transformers writes it; None for anything else."""
    if isinstance(value, dict) and value.get("__float__") == "Infinity":
        return float("inf")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


__all__ = [
    "ChannelScanOrder",
    "ScanOrder",
    "bare_names",
    "channel_bare_names",
    "channel_names",
    "layer_names",
    "step_limits",
]
