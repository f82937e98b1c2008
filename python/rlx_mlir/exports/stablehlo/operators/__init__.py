# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writers of operations by family: importing this package fills the table."""

from . import blocks, control, elementwise, images, products, shapes
from .shared import REFUSALS

__all__ = ["REFUSALS", "blocks", "control", "elementwise", "images", "products", "shapes"]
