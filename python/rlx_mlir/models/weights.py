# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights that aren't numbers: one NaN or infinity, in a scale or an element, makes all logits NaN."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..errors import GGUFError, InputError
from ..formats import get_format
from ..formats.finite import count_broken, first_broken, without_broken
from ..frontends.model_file import ModelFile, TensorInfo

NONFINITE = ("refuse", "zero")
"""What is done about weights that aren't finite."""

_RELEASED = 1 << 26
"""Bytes after which pages of a file that were read are given back."""


def check_nonfinite(choice: str) -> None:
    """InputError for what isn't among `NONFINITE`."""
    if choice not in NONFINITE:
        raise InputError(f"'nonfinite' must be one of {', '.join(NONFINITE)}, but is {choice!r}")


def readable(info: TensorInfo) -> bool:
    """Whether a tensor's floats can be looked at."""
    return info.nbytes is not None and get_format(info.type_id).decodable


def raw_rows(file: ModelFile, info: TensorInfo) -> np.ndarray:
    """The bytes of a tensor, uint8 [rows, bytes of a row], a view."""
    return file.read(info).reshape(info.rows, -1).view(np.uint8)


def replaced_weights(file: ModelFile, infos: Iterator[TensorInfo], nonfinite: str) -> dict[str, np.ndarray]:
    """The tensors that have NaN or inf, with zeros in their place, uint8 [rows, bytes of a row], by name.

    Raises GGUFError, which names tensor, row and block, where ``nonfinite`` is ``refuse``.
    """
    found: dict[str, np.ndarray] = {}
    read = 0
    for info in infos:
        rows = raw_rows(file, info)
        place = first_broken(info.type_id, rows, info.k)
        if place is not None:
            if nonfinite == "refuse":
                raise GGUFError(
                    f"{describe_broken(info, *place)}; nonfinite='zero' ('rlx generate --nonfinite zero') reads such "
                    "weights as 0",
                    path=file.paths[info.part],
                    offset=info.offset + place[0] * rows.shape[1] + place[1] * get_format(info.type_id).nbytes,
                )
            found[info.name] = without_broken(info.type_id, rows, info.k)
        read += rows.nbytes
        if read > _RELEASED:
            file.release()
            read = 0
    return found


def describe_broken(info: TensorInfo, row: int, block: int) -> str:
    """Where a tensor has NaN or inf, in words."""
    fmt = get_format(info.type_id)
    if fmt.dense is not None:
        return (
            f"tensor '{info.name}', {info.type}, must have finite elements, but that of row {row}, column {block} isn't"
        )
    return (
        f"tensor '{info.name}', {info.type}, must have finite scales, but row {row}, block {block} has one that isn't"
    )


def broken_tensors(file: ModelFile) -> list[dict[str, object]]:
    """Name, type, first place and number of blocks (elements where dense) of each tensor that has NaN or inf."""
    rows: list[dict[str, object]] = []
    for info in filter(readable, file.tensors.values()):
        data = raw_rows(file, info)
        place = first_broken(info.type_id, data, info.k)
        if place is not None:
            rows.append(
                {
                    "name": info.name,
                    "type": info.type,
                    "row": place[0],
                    "block": place[1],
                    "count": count_broken(info.type_id, data, info.k),
                    "text": describe_broken(info, *place),
                }
            )
    return rows


__all__ = ["NONFINITE", "broken_tensors", "check_nonfinite", "readable", "replaced_weights"]
