# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How gradients are drawn."""

from __future__ import annotations

from rlx_mlir.fuzz.draft import Draft, word
from rlx_mlir.fuzz.primitives import ACTIVATIONS, axis_of, eps, generates
from rlx_mlir.hir.graph import Word


@generates("mir.activation_backward")
def activation_backward(draft: Draft) -> None:
    x = draft.floating()
    if draft.chance(0.5):
        x = draft.like(x.shape, word(x), reuse=0.0, domain="positive")
    operands = {"x": x, "dy": draft.like(x.shape, word(x))}
    draft.emit("mir.activation_backward", operands, {"kind": Word("activation", draft.choose(ACTIVATIONS))})


@generates("mir.layer_norm_backward_input", "mir.rms_norm_backward_input", sums=True)
def norm_backward_input(draft: Draft, name: str) -> None:
    x = draft.floating(1)
    axis = axis_of(draft, x)
    size = x.shape[-1 if axis is None else axis]
    operands = {"x": x, "gamma": draft.vector(size, word(x)), "dy": draft.like(x.shape, word(x))}
    draft.emit(name, operands, {"axis": axis, "eps": eps(draft)})


@generates("mir.layer_norm_backward_gamma", "mir.rms_norm_backward_gamma", sums=True)
def norm_backward_gamma(draft: Draft, name: str) -> None:
    x = draft.floating(1)
    operands = {"x": x, "dy": draft.like(x.shape, word(x))}
    draft.emit(name, operands, {"axis": axis_of(draft, x), "eps": eps(draft)})
