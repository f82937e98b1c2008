# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types: ONNX's numbers and names for them, and numpy's types."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from rlx_mlir.dtypes import DTYPES

#: The number of each element type in files, and its name there.
NAMES = {
    1: "FLOAT",
    2: "UINT8",
    3: "INT8",
    4: "UINT16",
    5: "INT16",
    6: "INT32",
    7: "INT64",
    8: "STRING",
    9: "BOOL",
    10: "FLOAT16",
    11: "DOUBLE",
    12: "UINT32",
    13: "UINT64",
    14: "COMPLEX64",
    15: "COMPLEX128",
    16: "BFLOAT16",
    17: "FLOAT8E4M3FN",
    18: "FLOAT8E4M3FNUZ",
    19: "FLOAT8E5M2",
    20: "FLOAT8E5M2FNUZ",
    21: "UINT4",
    22: "INT4",
    23: "FLOAT4E2M1",
    24: "FLOAT8E8M0",
    25: "UINT2",
    26: "INT2",
}

#: numpy's types of those that arrays are read of; of the others, files are refused that have any.
NUMPY: dict[int, np.dtype] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    19: np.dtype(ml_dtypes.float8_e5m2),
    21: np.dtype(ml_dtypes.uint4),
    22: np.dtype(ml_dtypes.int4),
}

#: Bits of an element where it has less than a byte.
SMALL = {np.dtype(ml_dtypes.uint4): 4, np.dtype(ml_dtypes.int4): 4}

_IN_GRAPHS = frozenset(DTYPES.values())

FLOATS = frozenset(map(np.dtype, (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)))
#: Floats of 16 bits: what is made of several operations is computed in f32 for them, and rounded once.
HALVES = frozenset(map(np.dtype, (np.float16, ml_dtypes.bfloat16)))


def name_of(number: int) -> str:
    """The name of an element type of a file."""
    return NAMES.get(number, f"type {number}")


def in_graphs(dtype: np.dtype) -> bool:
    """Whether values of graphs may have the element type."""
    return dtype in _IN_GRAPHS


def is_integer(dtype: np.dtype) -> bool:
    """Whether elements are integers, conditions not included."""
    return dtype.kind in "iu" or dtype in SMALL
