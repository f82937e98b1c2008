# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of gradients: of functions of one element, of norms, rotations, running sums and attention.

Each takes the gradient by the operation's result, `dy`, and gives that by an operand. Everything is computed in f32
(f64 for f64), and rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_mlir.attributes import PythonValue
from rlx_mlir.hir import place
from rlx_mlir.hir.arguments import number, word
from rlx_mlir.hir.checked import checked
from rlx_mlir.hir.graph import axis_within
from rlx_mlir.hir.primitives import Primitives
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Value

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ATTENTION = ("query", "key", "value")


@checked
class Gradients(Primitives):
    """The builders."""

    def activation_backward(self, kind: str, x: Value, dy: Value, **options: Unpack[Options]) -> Value:
        """dy kind'(x): the gradient of `activation(kind, x)` by x. A gradient goes through `round` as it is."""
        attributes = {"kind": word("activation", kind)}
        return self._emit("mir.activation_backward", {"x": x, "dy": dy}, attributes, **options)[0]

    def relu_backward(self, x: Value, dy: Value, **options: Unpack[Options]) -> Value:
        """dy where x > 0, and 0 elsewhere; NaN of x stays NaN."""
        return self.activation_backward("relu", x, dy, **options)

    def layer_norm_backward_input(
        self, x: Value, gamma: Value, dy: Value, *, axis: int = -1, eps: float = 1e-5, **options: Unpack[Options]
    ) -> Value:
        """The gradient of `layer_norm` by x."""
        attributes = {"axis": axis, "eps": number(eps)}
        operands = {"x": x, "gamma": gamma, "dy": dy}
        return self._emit("mir.layer_norm_backward_input", operands, attributes, **options)[0]

    def layer_norm_backward_gamma(
        self, x: Value, dy: Value, *, axis: int = -1, eps: float = 1e-5, **options: Unpack[Options]
    ) -> Value:
        """The gradient of `layer_norm` by gamma; that by beta is `norm_backward_beta(dy)`."""
        attributes = {"axis": axis, "eps": number(eps)}
        return self._emit("mir.layer_norm_backward_gamma", {"x": x, "dy": dy}, attributes, **options)[0]

    def rms_norm_backward_input(
        self, x: Value, gamma: Value, dy: Value, *, axis: int = -1, eps: float = 1e-5, **options: Unpack[Options]
    ) -> Value:
        """The gradient of `rms_norm` by x."""
        attributes = {"axis": axis, "eps": number(eps)}
        operands = {"x": x, "gamma": gamma, "dy": dy}
        return self._emit("mir.rms_norm_backward_input", operands, attributes, **options)[0]

    def rms_norm_backward_gamma(
        self, x: Value, dy: Value, *, axis: int = -1, eps: float = 1e-5, **options: Unpack[Options]
    ) -> Value:
        """The gradient of `rms_norm` by gamma."""
        attributes = {"axis": axis, "eps": number(eps)}
        return self._emit("mir.rms_norm_backward_gamma", {"x": x, "dy": dy}, attributes, **options)[0]

    def rms_norm_backward_beta(self, dy: Value, *, axis: int = -1, **options: Unpack[Options]) -> Value:
        """The gradient of `rms_norm` by beta: the sum of dy over all dimensions but `axis`."""
        kept = axis_within(dy, axis)
        others = [other for other in range(dy.ndim) if other != kept]
        return self.sum(dy, others, **options) if others else dy

    def layer_norm_backward_beta(self, dy: Value, *, axis: int = -1, **options: Unpack[Options]) -> Value:
        """The gradient of `layer_norm` by beta, which is that of `rms_norm`."""
        return self.rms_norm_backward_beta(dy, axis=axis, **options)

    def rope_backward(self, dy: Value, cos: Value, sin: Value, **options: PythonValue) -> Value:
        """The gradient of `rope` by x: the same rotation by negative angles. Keywords are those of `rope`."""
        return Primitives.rope(self, dy, cos, self.neg(sin), **options)

    def cumsum_backward(
        self, dy: Value, axis: int = -1, *, exclusive: bool = False, **options: Unpack[Options]
    ) -> Value:
        """The gradient of `cumsum` by x: the sum of dy from each place on, or after it where `exclusive`."""
        own = axis_within(dy, axis)
        back = self.cumsum(self.flip(dy, own), own, exclusive=exclusive)
        return self.flip(back, own, **options)

    def flip(self, x: Value, axis: int, **options: Unpack[Options]) -> Value:
        """x with its entries along a dimension in the opposite order."""
        own = axis_within(x, axis)
        size = x.shape[own]
        positions = self.iota([size], 0, "i32")
        last = self.sub(self.dim(x, own, "i32"), 1)
        return self.gather(x, self.sub(last, positions), own, **options)

    def attention_backward(
        self,
        q: Value,
        k: Value,
        v: Value,
        dy: Value,
        mask: Value | None = None,
        *,
        wrt: str,
        **options: PythonValue,
    ) -> Value:
        """The gradient of `attention` by `wrt`: query, key or value; what is else is that of `attention_backward_all`.

        Where several are wanted, `attention_backward_all` computes the weights once.
        """
        if wrt not in _ATTENTION:
            raise place.caller().error(f"'wrt' is one of {', '.join(_ATTENTION)}, but got {wrt!r}")
        return self.attention_backward_all(q, k, v, dy, mask, **options)[_ATTENTION.index(wrt)]

    def attention_backward_all(
        self,
        q: Value,
        k: Value,
        v: Value,
        dy: Value,
        mask: Value | None = None,
        *,
        num_heads: int,
        head_dim: int,
        num_kv_heads: int | None = None,
        mask_kind: str = "none",
        window: int | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        layout: str = "packed",
        pos: Value | None = None,
        **options: Unpack[Options],
    ) -> tuple[Value, Value, Value]:
        """The gradients of `attention` by q, k and v: its operands and keywords, and dy of the shape of q.

        The mask gets none. Keys that aren't seen and queries that see none have gradients of 0.
        """
        operands = {"q": q, "k": k, "v": v, "dy": dy, "mask": mask, "pos": pos}
        attributes = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "mask_kind": word("mask_kind", mask_kind),
            "window": window,
            "scale": number(scale),
            "softcap": number(softcap),
            "layout": word("head_layout", layout),
        }
        dq, dk, dv = self._emit("mir.attention_backward", operands, attributes, **options)
        return dq, dk, dv
