# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with a gated delta rule in folders: Qwen 3.5's, in the order that GGUF files have.

In folders, heads of values that share a head of keys are beside each other: head i reads head i // r of the keys, r of
them each. In files, head j reads head j % Hk of Hk: it is head (j % Hk) r + j // Hk of the folder. That concerns rows
of products, channels of convolutions, and columns of the last product. Files hold -exp(A_log), and taps as rows.

Files of Qwen3-Next have the order of folders, but not of the rows of one product: its folders have those of a head of
keys beside each other, queries, keys, values, and gates, where files have all queries, all keys and all values in one
tensor and gates in another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlx_mlir.frontends.model_file import MetadataValue

from ..errors import ModelFileError

LAYER: Mapping[str, str] = {
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
"""Tensors of a layer, without `.weight`, and what GGUF calls them."""

GROUPED: Mapping[str, str] = {
    "linear_attn.in_proj_qkvz": "attn_qkvz",
    "linear_attn.in_proj_ba": "ssm_ba",
    **{name: LAYER[name] for name in ("linear_attn.conv1d", "linear_attn.norm", "linear_attn.out_proj")},
}
"""Likewise, of Qwen3-Next; no file has `attn_qkvz`."""

BARE: Mapping[str, str] = {"linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.A_log": "ssm_a"}
"""Those whose names have no such end."""

AHEAD: Mapping[str, str] = {
    "fc": "nextn.eh_proj",
    "pre_fc_norm_embedding": "nextn.enorm",
    "pre_fc_norm_hidden": "nextn.hnorm",
    "norm": "nextn.shared_head_norm",
}
"""Those of the layer that predicts further ahead, beside the ones that it has as another layer."""

Made = tuple[tuple[int, ...], str, Callable[[], np.ndarray]]
"""A tensor that is made: its shape, its type, and what makes it."""


@dataclass(frozen=True)
class DeltaOrder:
    """The order of heads.

    Attributes:
        keys, values: heads.
        size: elements of each.
        grouped: files have the order of folders.
    """

    keys: int
    values: int
    size: int
    grouped: bool = False

    @classmethod
    def of(cls, metadata: Mapping[str, MetadataValue], architecture: str, *, grouped: bool) -> DeltaOrder:
        """By the metadata of a folder."""
        names = ("group_count", "time_step_rank", "state_size")
        keys, values, size = (metadata[f"{architecture}.ssm.{name}"] for name in names)
        return cls(keys, values, size, grouped)

    def made(
        self, name: str, shape: tuple[int, ...], type: str, read: Callable[[], np.ndarray], where: str
    ) -> dict[str, Made]:
        """What files have in place of a tensor of a layer, by name; empty for one that folders have alike.

        Args:
            name: of GGUF, without the layer.
            shape, type: as the folder has it.
            read: gives its elements.
            where: the folder, for errors.

        Raises ModelFileError where its size doesn't fit the heads.
        """
        word, stay = name.removesuffix(".weight"), 2 * self.keys * self.size
        if word == "attn_qkvz":
            return self._apart(name, shape, type, read, where)
        if word == "ssm_conv1d":
            channels = self._order(name, shape, 0, where, before=stay, size=self.size)
            if len(shape) != 3 or shape[1] != 1:
                raise self._unfit(name, shape, "[channels, 1, taps]", where)
            own = (shape[0], shape[2])
            return {name: (own, "f32", lambda: read()[channels].astype(np.float32).reshape(own))}
        if word == "ssm_a":
            heads = self._order(name, shape, 0, where)
            return {name: (shape, "f32", lambda: -np.exp(read()[heads].astype(np.float32)))}
        same = self.grouped or self.keys == self.values
        if same or word not in ("attn_qkv", "attn_gate", *_OF_HEADS, "ssm_out"):
            return {}
        if word == "ssm_out":
            columns = self._order(name, shape, 1, where, size=self.size)
            return {name: (shape, type, lambda: np.ascontiguousarray(read()[:, columns]))}
        size, before = 1 if word in _OF_HEADS else self.size, stay if word == "attn_qkv" else 0
        rows = self._order(name, shape, 0, where, before=before, size=size)
        return {name: (shape, type, lambda: read()[rows])}

    def _apart(
        self, name: str, shape: tuple[int, ...], type: str, read: Callable[[], np.ndarray], where: str
    ) -> dict[str, Made]:
        """Queries, keys and values of all heads of keys, and gates, of rows that are of one such head after another."""
        each = self.values // self.keys
        widths = [self.size, self.size, each * self.size, each * self.size]
        count = self.keys * sum(widths)
        if len(shape) != 2 or shape[0] != count or self.values % self.keys:
            raise self._unfit(name, shape, f"[{count}, hidden] for {self.keys} heads of keys", where)
        parts = np.split(np.arange(count).reshape(self.keys, -1), np.cumsum(widths)[:-1], axis=1)
        *mixed, gates = (part.reshape(-1) for part in parts)
        rows = np.concatenate(mixed)
        return {
            "attn_qkv.weight": ((len(rows), shape[1]), type, lambda: read()[rows]),
            "attn_gate.weight": ((len(gates), shape[1]), type, lambda: read()[gates]),
        }

    def _order(
        self, name: str, shape: tuple[int, ...], axis: int, where: str, *, before: int = 0, size: int = 1
    ) -> npt.NDArray[np.intp]:
        """Which entries of the folder those of the file are, in turn: some that stay, then `size` of each head."""
        count = before + self.values * size
        if len(shape) <= axis or shape[axis] != count:
            raise self._unfit(name, shape, f"{count} for {self.values} heads of values", where)
        order = np.arange(self.values)
        if not self.grouped:
            order = order.reshape(self.keys, -1).T.reshape(-1)
        heads = (order[:, None] * size + np.arange(size)).reshape(-1) + before
        return np.concatenate([np.arange(before), heads])

    def _unfit(self, name: str, shape: tuple[int, ...], rule: str, where: str) -> ModelFileError:
        return ModelFileError(f"what is '{name}' in files must be {rule}, but is {list(shape)}", path=where)


_OF_HEADS = ("ssm_beta", "ssm_alpha", "ssm_dt.bias")
"""Tensors with one row for each head of values."""


__all__ = ["AHEAD", "BARE", "GROUPED", "LAYER", "DeltaOrder"]
