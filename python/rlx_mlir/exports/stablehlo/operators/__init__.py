# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writers of operations by family: importing this package fills the table."""

from . import blocks, control, elementwise, images, products, shapes
from .shared import REFUSALS, needs_numbers

__all__ = ["REFUSALS", "blocks", "control", "elementwise", "images", "needs_numbers", "products", "shapes"]
