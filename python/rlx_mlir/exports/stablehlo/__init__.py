# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules as StableHLO, for JAX and other compilers; see docs/jax.md."""

from rlx_mlir.exports.stablehlo.writer import to_stablehlo

__all__ = ["to_stablehlo"]
