# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of PyTorch as arrays of numpy that share their memory, and the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from rlx_mlir.errors import InputError

if TYPE_CHECKING:
    import torch

#: The word of each element type that both have, by the name of PyTorch's.
WORDS = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "ui8",
    "uint16": "ui16",
    "uint32": "ui32",
    "complex64": "complex<f32>",
}
#: Types that numpy itself doesn't have: through which integers their memory goes.
_CARRIED = {
    "bfloat16": ("int16", np.dtype(ml_dtypes.bfloat16)),
    "float8_e4m3fn": ("uint8", np.dtype(ml_dtypes.float8_e4m3fn)),
    "float8_e5m2": ("uint8", np.dtype(ml_dtypes.float8_e5m2)),
}


def word_of(dtype: torch.dtype) -> str:
    """The word of an element type of PyTorch; InputError where the dialects don't have it."""
    name = str(dtype).removeprefix("torch.")
    if name not in WORDS:
        raise InputError(f"element type {dtype} of PyTorch isn't known, known are {', '.join(WORDS)}")
    return WORDS[name]


def array_of(tensor: torch.Tensor, what: str) -> np.ndarray:
    """A tensor as an array over the same memory; what is not contiguous is an array with strides.

    Args:
        what: names it in errors.

    Raises InputError for tensors on other devices, and those that aren't dense.
    """
    import torch

    if tensor.device.type != "cpu":
        raise InputError(f"{what} is on device {tensor.device}: bring it to the CPU first")
    if tensor.layout is not torch.strided:
        raise InputError(f"{what} is dense, but got layout {tensor.layout}")
    own = tensor.detach()
    if own.is_conj() or own.is_neg():
        own = own.resolve_conj().resolve_neg()
    name = str(own.dtype).removeprefix("torch.")
    if name in _CARRIED:
        carrier, dtype = _CARRIED[name]
        array: np.ndarray = own.view(getattr(torch, carrier)).numpy().view(dtype)
        return array
    word_of(own.dtype)
    result: np.ndarray = own.numpy()
    return result


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor over the same memory."""
    import torch

    for name, (carrier, dtype) in _CARRIED.items():
        if array.dtype == dtype:
            return torch.from_numpy(array.view(carrier)).view(getattr(torch, name))
    return torch.from_numpy(array)
