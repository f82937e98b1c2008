# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Differentiation and batching of modules: reverse mode, forward mode, and what is made of them."""

from __future__ import annotations

from rlx_mlir.autodiff.batched_modules import vmap
from rlx_mlir.autodiff.jacobians import hessian, jacfwd, jacrev
from rlx_mlir.autodiff.modules import grad, grad_with_loss, hvp, jvp, value_and_grad, vjp

__all__ = ["grad", "grad_with_loss", "hessian", "hvp", "jacfwd", "jacrev", "jvp", "value_and_grad", "vjp", "vmap"]
