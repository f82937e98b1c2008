# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders whose matrices are floats of 8 bits (e4m3) with scales of their own: they become bf16 when they are read.

| `quant_method` | tensors beside `X.weight` [N, K] | scales of |
|---|---|---|
| `fp8` with `weight_block_size` [r, c] | `X.weight_scale_inv` [ceil(N / r), ceil(K / c)] | r rows, c columns |
| `fp8`, `fbgemm_fp8`, `compressed-tensors` | `X.weight_scale` [N, 1] or [N]; [1] or [] | a row, or all |

A weight is its float times the scale, in f32, rounded once. `X.input_scale` and its like say how activations may be
rounded to 8 bits, which is left out: activations stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ..errors import ModelFileError, UnsupportedError, shortened
from .documents import Document

FLOAT8 = "F8_E4M3"
"""The element type in safetensors files."""
DTYPE = np.dtype(ml_dtypes.float8_e4m3fn)

METHODS = ("fp8", "fbgemm_fp8", "compressed-tensors")
"""`quant_method` of `quantization_config`."""

_SCALES = (".weight_scale_inv", ".weight_scale")
_OF_INPUTS = (".input_scale", ".activation_scale", ".input_scale_ub")


@dataclass(frozen=True)
class Float8:
    """How matrices of a folder are packed.

    Attributes:
        block: rows and columns that have a scale; None where rows have one, or the matrix.
        path: of `config.json`.
    """

    block: tuple[int, int] | None
    path: str

    @classmethod
    def of(cls, document: Document) -> Float8 | None:
        """What `quantization_config` says; None where it's another method, or there is none.

        Raises UnsupportedError for floats of another kind, ModelFileError for blocks that can't be.
        """
        config = document.content.get("quantization_config")
        if not isinstance(config, dict) or config.get("quant_method") not in METHODS:
            return None
        path = str(document.path)
        if config["quant_method"] == "compressed-tensors":
            _check_groups(config, path)
        elif config.get("fmt", "e4m3") != "e4m3":
            raise UnsupportedError(f"{path}: floats of 8 bits are read as e4m3 alone, but 'fmt' is {config['fmt']!r}")
        given = config.get("weight_block_size")
        if given is None:
            return cls(None, path)
        fits = isinstance(given, list) and len(given) == 2 and all(type(each) is int and each > 0 for each in given)
        if not fits:
            raise document.fail("weight_block_size", "two integers above 0", given)
        return cls((given[0], given[1]), path)

    def numbers(self, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """A matrix as bf16.

        Args:
            weight: e4m3 [N, K].
            scale: see the module's docstring; `check` has seen it.
        """
        factors = scale.astype(np.float32)
        if factors.size == 1:
            factors = factors.reshape(1, 1)
        elif self.block is None:
            factors = factors.reshape(-1, 1)
        else:
            rows, columns = self.block
            factors = factors.repeat(rows, axis=0)[: weight.shape[0]].repeat(columns, axis=1)[:, : weight.shape[1]]
        return (weight.astype(np.float32) * factors).astype(ml_dtypes.bfloat16)

    def check(self, name: str, shape: tuple[int, ...], scale: tuple[int, ...]) -> None:
        """Raises ModelFileError where scales don't fit a matrix."""
        rows, columns = shape if len(shape) == 2 else (0, 0)
        whole: list[tuple[int, ...]] = [(), (1,), (1, 1)]
        if self.block is None:
            allowed, rule = [*whole, (rows,), (rows, 1)], f"{[rows, 1]}, one for each row, or of one element"
        else:
            count = (-(-rows // self.block[0]), -(-columns // self.block[1]))
            allowed, rule = [count], f"{list(count)}, one for each block of {list(self.block)} (weight_block_size)"
        if len(shape) != 2 or scale not in allowed:
            raise ModelFileError(
                f"the scales of '{name}', {list(shape)} of {FLOAT8}, must be {rule}, but are {list(scale)}",
                path=self.path,
            )


def _check_groups(config: Mapping[str, object], path: str) -> None:
    """Raises UnsupportedError unless all groups of `compressed-tensors` are floats of 8 bits by rows, or as a whole."""
    groups = config.get("config_groups")
    weights = [group.get("weights") for group in groups.values()] if isinstance(groups, dict) else []
    for own in weights or [None]:
        entries = own if isinstance(own, dict) else {}
        kind = (entries.get("num_bits"), entries.get("type"), entries.get("strategy"))
        if kind[:2] != (8, "float") or kind[2] not in ("channel", "tensor"):
            raise UnsupportedError(
                f"{path}: weights of 'compressed-tensors' are read as floats of 8 bits by 'channel' or 'tensor' alone, "
                f"but 'config_groups' has {shortened(own)}"
            )
    if config.get("kv_cache_scheme") is not None:
        raise UnsupportedError(f"{path}: 'kv_cache_scheme' of 'compressed-tensors' isn't supported, but is there")


def scale_of(name: str) -> str | None:
    """The matrix that a tensor has the scales of; None for one of another kind."""
    end = next((end for end in _SCALES if name.endswith(end)), None)
    return None if end is None else f"{name.removesuffix(end)}.weight"


def is_of_inputs(name: str) -> bool:
    """Whether a tensor says how activations may be rounded."""
    return name.endswith(_OF_INPUTS)


__all__ = ["DTYPE", "FLOAT8", "METHODS", "Float8", "is_of_inputs", "scale_of"]
