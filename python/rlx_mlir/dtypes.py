# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types: MLIR's words for them, and numpy's types. Needs no MLIR."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from rlx_mlir.errors import InputError

#: The numpy type of each element type that the dialects have.
DTYPES: dict[str, np.dtype] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "ui8": np.dtype(np.uint8),
    "ui16": np.dtype(np.uint16),
    "ui32": np.dtype(np.uint32),
    "complex<f32>": np.dtype(np.complex64),
}


def numpy_dtype(element: object) -> np.dtype:
    """The numpy type of an element type, an MLIR type or its word; InputError where there is none."""
    found = DTYPES.get(str(element))
    if found is None:
        raise InputError(f"element type {element} has no numpy type, known are {', '.join(DTYPES)}")
    return found
