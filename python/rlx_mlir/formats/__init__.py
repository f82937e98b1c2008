# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weight formats: descriptions (`descriptions`), those of GGUF files (`gguf_types`, `grids`), decoders (`blocks`),
formats of users (`registry`), quantisers (`encoder`), the layouts for kernels (`panels`, `planes`), weights whose
scales are tensors of their own (`scaled`), and tensors of 8 bits whose scales are numbers (`affine`)."""

from .blocks import FORMATS, FORMATS_BY_ID, decode, get_format, quant_parts
from .descriptions import BlockFormat, Field, Grid, Plane, Scaled, Trits
from .encoder import encode
from .factors import Factor
from .panels import (
    PANEL_FORMATS,
    PANEL_ROWS,
    PanelLayout,
    pack_panels,
    panel_bytes,
    panel_layout,
    unpack_panels,
)
from .planes import (
    PLANE_FORMATS,
    PlaneLayout,
    RowPlane,
    pack_planes,
    plane_layout,
    planes_row_bytes,
    unpack_planes,
)
from .registry import each_format, register_format, registered_formats
from .scaled import SCALED_SCHEMES, ScaledScheme, ScaledWeight, decode_scaled, quantize_scaled, scaled_scheme

__all__ = [
    "FORMATS",
    "FORMATS_BY_ID",
    "PANEL_FORMATS",
    "PANEL_ROWS",
    "PLANE_FORMATS",
    "SCALED_SCHEMES",
    "BlockFormat",
    "Factor",
    "Field",
    "Grid",
    "PanelLayout",
    "Plane",
    "PlaneLayout",
    "RowPlane",
    "Scaled",
    "ScaledScheme",
    "ScaledWeight",
    "Trits",
    "decode",
    "decode_scaled",
    "each_format",
    "encode",
    "get_format",
    "pack_panels",
    "pack_planes",
    "panel_bytes",
    "panel_layout",
    "plane_layout",
    "planes_row_bytes",
    "quant_parts",
    "quantize_scaled",
    "register_format",
    "registered_formats",
    "scaled_scheme",
    "unpack_panels",
    "unpack_planes",
]
