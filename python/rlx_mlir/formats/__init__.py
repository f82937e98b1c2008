# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weight formats: descriptions and decoders (`blocks`), quantisers (`encoder`), the layout for kernels (`panels`)."""

from .blocks import FORMATS, FORMATS_BY_ID, BlockFormat, Field, Plane, Scaled, decode, get_format, quant_parts
from .encoder import encode
from .panels import (
    PANEL_FORMATS,
    PANEL_ROWS,
    PanelFactor,
    PanelLayout,
    pack_panels,
    panel_bytes,
    panel_layout,
    unpack_panels,
)

__all__ = [
    "FORMATS",
    "FORMATS_BY_ID",
    "PANEL_FORMATS",
    "PANEL_ROWS",
    "BlockFormat",
    "Field",
    "PanelFactor",
    "PanelLayout",
    "Plane",
    "Scaled",
    "decode",
    "encode",
    "get_format",
    "pack_panels",
    "panel_bytes",
    "panel_layout",
    "quant_parts",
    "unpack_panels",
]
