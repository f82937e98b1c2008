# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of MIR operations, for modules at stage hir and mir.

Every builder takes `name` (of the block that the operation belongs to, inside of the current scope) and `shape` (what
the caller believes the result's shape to be, checked against the inferred one), as keywords. Operands are values or
arrays; beside a value, binary operations take numbers too. All raise BuildError, at the caller's line, where operands
or attributes break a rule of the operation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir.formats import scaled_scheme
from rlx_mlir.hir import place
from rlx_mlir.hir.algebra import AlgebraBuilders
from rlx_mlir.hir.arguments import number, pair, word
from rlx_mlir.hir.complexes import ComplexBuilders
from rlx_mlir.hir.control import ControlBuilders
from rlx_mlir.hir.custom import CustomBuilder
from rlx_mlir.hir.elementwise import ElementwiseBuilders
from rlx_mlir.hir.graph import Word, axes_of
from rlx_mlir.hir.indexing import index
from rlx_mlir.hir.quantization import QuantizationBuilders
from rlx_mlir.hir.result_types import check_flag, context_of, like, product_type
from rlx_mlir.hir.shapes import Shapes
from rlx_mlir.hir.sizes import Followed, as_size
from rlx_mlir.hir.types import DTypeLike, Options, ReduceOptions, ShapeLike, SizeLike, dtype_word, element_type
from rlx_mlir.hir.values import Operand, Value
from rlx_mlir.mir.functions import of_arity

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Primitives(
    Shapes, ElementwiseBuilders, ComplexBuilders, AlgebraBuilders, QuantizationBuilders, CustomBuilder, ControlBuilders
):
    """The builders; what they need of a graph is abstract here."""

    @abstractmethod
    def _pair(self, op: str, lhs: Operand, rhs: Operand) -> tuple[Operand, Operand]: ...

    @abstractmethod
    def _matmul(
        self, lhs: Operand, rhs: Operand, *, transpose_rhs: bool = False, **options: Unpack[Options]
    ) -> Value: ...

    def _index(self, x: Value, key: object) -> Value:
        return index(self, x, key)

    # -- functions of one element ------------------------------------------------------------------------------------

    def activation(self, kind: str, x: Value, **options: Unpack[Options]) -> Value:
        """The function named `kind`: gelu, gelu_approx, silu, relu, sigmoid, tanh, exp, log, sqrt, rsqrt, neg, abs,
        sin, cos, tan, atan or round."""
        with place.checking():
            Word("activation", kind).attribute("kind", context_of(x))
        return self._unary(kind, x, **options)

    def cast(self, x: Value, dtype: DTypeLike, *, name: str | None = None, shape: ShapeLike | None = None) -> Value:
        """x in another element type; to integers it truncates and saturates, of complex numbers the real part stays."""
        with place.checking("'mir.cast'"):
            element = element_type(dtype_word(dtype), context_of(x))
        result = like(x, element=element)
        return self._emit("mir.cast", {"x": x}, name=name, shape=shape, result=result)[0]

    # -- functions of two elements, with numpy's broadcasting ---------------------------------------------------------

    def binary(self, kind: str, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """The operation named `kind`, on operands of one element type: add, sub, mul, div, max, min, pow, and, or, xor,
        floor_div, floor_rem, trunc_div or trunc_rem."""
        kinds = of_arity(2)
        if not isinstance(kind, str) or kind not in kinds:
            raise place.caller().error(f"a binary operation is one of {', '.join(kinds)}, but got {kind!r}")
        return self._binary(kind, lhs, rhs, **options)

    def compare(
        self, kind: str, lhs: Operand, rhs: Operand, *, name: str | None = None, shape: ShapeLike | None = None
    ) -> Value:
        """Whether eq, ne, lt, le, gt or ge holds, as i1; with NaN only ne does."""
        left, right = self._pair("mir.compare", lhs, rhs)
        attributes = {"kind": Word("compare_kind", kind)}
        return self._emit("mir.compare", {"lhs": left, "rhs": right}, attributes, name=name, shape=shape)[0]

    def eq(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """lhs == rhs."""
        return self.compare("eq", lhs, rhs, **options)

    def ne(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """lhs != rhs."""
        return self.compare("ne", lhs, rhs, **options)

    def lt(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """lhs < rhs."""
        return self.compare("lt", lhs, rhs, **options)

    def le(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """lhs <= rhs."""
        return self.compare("le", lhs, rhs, **options)

    def gt(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """lhs > rhs."""
        return self.compare("gt", lhs, rhs, **options)

    def ge(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """lhs >= rhs."""
        return self.compare("ge", lhs, rhs, **options)

    def where(
        self,
        condition: Value | np.ndarray,
        on_true: Operand,
        on_false: Operand,
        *,
        name: str | None = None,
        shape: ShapeLike | None = None,
    ) -> Value:
        """Elements of `on_true` where `condition` (i1) holds, of `on_false` elsewhere; all three broadcast."""
        left, right = self._pair("mir.where", on_true, on_false)
        operands = {"condition": condition, "on_true": left, "on_false": right}
        return self._emit("mir.where", operands, name=name, shape=shape)[0]

    # -- products ----------------------------------------------------------------------------------------------------

    def mm(self, lhs: Operand, rhs: Operand, *, transpose_rhs: bool = False, **options: Unpack[Options]) -> Value:
        """[..., M, K] times [..., K, N]; `transpose_rhs`: times [..., N, K]; or times a packed weight of N rows."""
        return self._matmul(lhs, rhs, transpose_rhs=transpose_rhs, **options)

    def matmul(self, lhs: Operand, rhs: Operand, *, transpose_rhs: bool = False, **options: Unpack[Options]) -> Value:
        """The same as `mm`."""
        return self._matmul(lhs, rhs, transpose_rhs=transpose_rhs, **options)

    def fused_matmul_bias_act(
        self,
        x: Value,
        weight: Value,
        bias: Value,
        *,
        activation: str | None = None,
        transpose_rhs: bool = False,
        **options: Unpack[Options],
    ) -> Value:
        """activation(x weight + bias), rounded once: x [..., K], weight [K, N] (or [N, K]), bias [N]."""
        operands = {"x": x, "weight": weight, "bias": bias}
        attributes = {"activation": word("activation", activation), "transpose_rhs": transpose_rhs}
        return self._emit("mir.fused_matmul_bias_act", operands, attributes, **options)[0]

    def scaled_matmul(
        self,
        lhs: Value,
        rhs: Value,
        lhs_scale: Operand | None = None,
        rhs_scale: Operand | None = None,
        *,
        dtype: DTypeLike = "f32",
        transpose_rhs: bool = False,
        **options: Unpack[Options],
    ) -> Value:
        """Product of f8 operands, [..., M, K] times [..., K, N] (or [..., N, K]), with f32 scales.

        Args:
            lhs_scale: one number, or one for each row: the dimensions of lhs without K. 1 where None.
            rhs_scale: one number, or one for each column: the dimensions of rhs without K. 1 where None.
            dtype: element type of the result: f32, f16 or bf16. The sum is f32, scaled, and rounded once.
        """
        operands = {"lhs": lhs, "rhs": rhs, "lhs_scale": lhs_scale, "rhs_scale": rhs_scale}
        with place.checking("'mir.scaled_matmul'"):
            element = element_type(dtype_word(dtype), context_of(lhs))
        result = product_type(lhs, rhs, element, transpose_rhs=transpose_rhs)
        attributes = {"transpose_rhs": transpose_rhs}
        return self._emit("mir.scaled_matmul", operands, attributes, result=result, **options)[0]

    def linear_bias(
        self,
        x: Value,
        weight: Value,
        bias: Value | None = None,
        *,
        transpose_rhs: bool = False,
        **options: Unpack[Options],
    ) -> Value:
        """x weight (+ bias), as separate operations; the bias is [N]."""
        return self.linear_bias_act(x, weight, bias, transpose_rhs=transpose_rhs, **options)

    def linear_bias_act(
        self,
        x: Value,
        weight: Value,
        bias: Value | None = None,
        *,
        activation: str | None = None,
        transpose_rhs: bool = False,
        **options: Unpack[Options],
    ) -> Value:
        """activation(x weight + bias), as separate operations; the bias is [N]."""
        y = self._matmul(x, weight, transpose_rhs=transpose_rhs, **options)
        if bias is not None:
            y = self._binary("add", y, bias, **options)
        return y if activation is None else self.activation(activation, y, **options)

    def shared_matmul_pair(
        self, x: Value, w_first: Value, w_second: Value, *, transpose_rhs: bool = False, **options: Unpack[Options]
    ) -> tuple[Value, Value]:
        """(x w_first, x w_second)."""
        return (
            self._matmul(x, w_first, transpose_rhs=transpose_rhs, **options),
            self._matmul(x, w_second, transpose_rhs=transpose_rhs, **options),
        )

    def swiglu_ffn(
        self,
        x: Value,
        *,
        gate_w: Value,
        up_w: Value,
        down_w: Value,
        transpose_rhs: bool = False,
        name: str | None = None,
    ) -> Value:
        """(silu(x gate_w) * (x up_w)) down_w, as separate operations; dense or packed weights."""
        gate = self._matmul(x, gate_w, transpose_rhs=transpose_rhs, name=name)
        up = self._matmul(x, up_w, transpose_rhs=transpose_rhs, name=name)
        hidden = self._binary("mul", self._unary("silu", gate, name=name), up, name=name)
        return self._matmul(hidden, down_w, transpose_rhs=transpose_rhs, name=name)

    def fused_swiglu_ffn(
        self,
        x: Value,
        *,
        gate_w: Value,
        up_w: Value,
        down_w: Value,
        transpose_rhs: bool = False,
        name: str | None = None,
    ) -> Value:
        """The function of `swiglu_ffn` with one product for [up_w, gate_w], which are dense."""
        check_flag("transpose_rhs", transpose_rhs)
        both = self.concat([up_w, gate_w], axis=0 if transpose_rhs else 1, name=name)
        hidden = self.fused_swiglu(self._matmul(x, both, transpose_rhs=transpose_rhs, name=name), name=name)
        return self._matmul(hidden, down_w, transpose_rhs=transpose_rhs, name=name)

    def fused_swiglu(self, x: Value, *, gate_first: bool = False, **options: Unpack[Options]) -> Value:
        """up * silu(gate) of rows [up, gate] (or [gate, up]): [..., 2F] -> [..., F]."""
        return self._emit("mir.fused_swiglu", {"x": x}, {"gate_first": gate_first}, **options)[0]

    def conv2d(
        self,
        x: Value,
        weight: Operand,
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        **options: Unpack[Options],
    ) -> Value:
        """Kernels [Co, Ci / groups, kH, kW] slid over x [N, Ci, H, W]: [N, Co, Ho, Wo].

        Ho = floor((H + 2 padding - dilation (kH - 1) - 1) / stride) + 1, and Wo likewise.

        Args:
            stride, padding, dilation: numbers, or pairs for H and W; `padding` zeros go around the image.
            groups: of channels that see only each other; as many as channels for a depthwise convolution.
        """
        attributes = {"stride": pair(stride), "padding": pair(padding), "dilation": pair(dilation), "groups": groups}
        return self._emit("mir.conv", {"x": x, "weight": weight}, attributes, **options)[0]

    # -- packed weights ----------------------------------------------------------------------------------------------

    def dequant_matmul(
        self,
        x: Value,
        weight: Value | np.ndarray,
        scale: Value | np.ndarray | None = None,
        zp: Value | np.ndarray | None = None,
        scheme: str | None = None,
        **options: Unpack[Options],
    ) -> Value:
        """x [..., K] times a quantised weight of N outputs: [..., N].

        Args:
            weight: packed by its type, without a scheme; else i8, the codes of the scheme: [K, N], or the bytes of
                ceil(K * N / 2) pairs of nibbles with int4.
            scale: f32, [ceil(K / block), N] or, with fp8, [N]; without one, all of fp8 are 1.
            zp: zero points of the scale's shape, with int8a only.
            scheme: `int8/32`, `int8a/32`, `int4/32` (with any length of blocks), `fp8e4m3` or `fp8e5m2`; see
                `rlx_mlir.formats`.
        """
        return self._dequant_matmul("mir", x, weight, scale, zp, scheme, options)

    def dequant_matmul_nvfp4(
        self,
        x: Value,
        codes: Value | np.ndarray,
        block_scales: Value | np.ndarray,
        global_scale: Value | np.ndarray,
        **options: Unpack[Options],
    ) -> Value:
        """x [..., K] times a weight in NVFP4, of i8 [ceil(K * N / 2)] with scales i8 [ceil(K / 16), N] and f32 [1]."""
        return self._dequant_matmul_nvfp4("mir", x, codes, block_scales, global_scale, options)

    def _dequant_matmul(
        self,
        dialect: str,
        x: Value,
        weight: Value | np.ndarray,
        scale: Value | np.ndarray | None,
        zp: Value | np.ndarray | None,
        scheme: str | None,
        options: Options,
    ) -> Value:
        if scheme is None:
            if scale is not None or zp is not None:
                raise place.caller().error("'dequant_matmul' takes 'scale' and 'zp' with a 'scheme' only")
            return self._emit(f"{dialect}.dequant_matmul", {"x": x, "weight": weight}, **options)[0]
        with place.checking():
            kind = scaled_scheme(scheme)
        if kind.word == "nvfp4":
            raise place.caller().error("weights in nvfp4 have a builder of their own, 'dequant_matmul_nvfp4'")
        if scale is None:
            if kind.block is not None:
                raise place.caller().error(f"'dequant_matmul' needs a 'scale' with {kind}")
            columns = [size for size in weight.shape[-1:] if isinstance(size, int)]
            scale = np.ones(columns, np.float32)
        operands = {"x": x, "weight": weight, "scale": scale, "zero_point": zp}
        attributes = {"scheme": Word("scaled_scheme", kind.word), "block": kind.attribute_block}
        return self._emit(f"{dialect}.dequant_matmul_scaled", operands, attributes, **options)[0]

    def _dequant_matmul_nvfp4(
        self, dialect: str, x: Value, codes: Operand, scales: Operand, global_scale: Operand, options: Options
    ) -> Value:
        operands = {"x": x, "weight": codes, "scale": scales, "global_scale": global_scale}
        attributes = {"scheme": Word("scaled_scheme", "nvfp4")}
        return self._emit(f"{dialect}.dequant_matmul_scaled", operands, attributes, **options)[0]

    def block_quantize(
        self, x: Value, *, block: int = 32, bits: int = 8, **options: Unpack[Options]
    ) -> tuple[Value, Value, Value]:
        """(q [..., K], scale f32 [..., K / block], sum i32 [..., K / block]), each block by its largest element.

        Args:
            block: elements that share a scale, a multiple of 32.
            bits: of q: 8 (i8), 15 (i16) or 22 (i32).
        """
        q, scale, total = self._emit("mir.block_quantize", {"x": x}, {"block": block, "bits": bits}, **options)
        return q, scale, total

    def block_dot(self, q: Value, scale: Value, sum: Value, weight: Value, **options: Unpack[Options]) -> Value:
        """Product of what `block_quantize` gives with a packed weight: f32 [..., N]."""
        operands = {"q": q, "scale": scale, "sum": sum, "weight": weight}
        return self._emit("mir.block_dot", operands, **options)[0]

    def repack(self, weight: Value, *, layout: str = "panels", **options: Unpack[Options]) -> Value:
        """A weight (packed rows, or dense [N, K]) in a layout that kernels read: panels on CPUs, planes on GPUs."""
        return self._emit("mir.repack", {"weight": weight}, {"layout": Word("layout", layout)}, **options)[0]

    # -- reductions --------------------------------------------------------------------------------------------------

    def reduce(
        self,
        x: Value,
        kind: str,
        axes: int | Sequence[int] | None = None,
        *,
        keep_dims: bool = False,
        name: str | None = None,
        shape: ShapeLike | None = None,
    ) -> Value:
        """Combines elements by sum, mean, max, min, prod, any or all along `axes` (all of them by default)."""
        attributes = {"kind": Word("reduce_kind", kind), "axes": axes_of(x, axes), "keep_dims": keep_dims}
        return self._emit("mir.reduce", {"x": x}, attributes, name=name, shape=shape)[0]

    def sum(self, x: Value, axes: int | Sequence[int] | None = None, **options: Unpack[ReduceOptions]) -> Value:
        """Sum along dimensions."""
        return self.reduce(x, "sum", axes, **options)

    def mean(self, x: Value, axes: int | Sequence[int] | None = None, **options: Unpack[ReduceOptions]) -> Value:
        """Mean along dimensions."""
        return self.reduce(x, "mean", axes, **options)

    def max(self, x: Value, axes: int | Sequence[int] | None = None, **options: Unpack[ReduceOptions]) -> Value:
        """Largest element along dimensions; NaN where any is NaN."""
        return self.reduce(x, "max", axes, **options)

    def min(self, x: Value, axes: int | Sequence[int] | None = None, **options: Unpack[ReduceOptions]) -> Value:
        """Smallest element along dimensions; NaN where any is NaN."""
        return self.reduce(x, "min", axes, **options)

    def prod(self, x: Value, axes: int | Sequence[int] | None = None, **options: Unpack[ReduceOptions]) -> Value:
        """Product along dimensions."""
        return self.reduce(x, "prod", axes, **options)

    def any(self, x: Value, axes: int | Sequence[int] | None = None, **options: Unpack[ReduceOptions]) -> Value:
        """Whether a condition (i1) holds along dimensions; of none, False."""
        return self.reduce(x, "any", axes, **options)

    def all(self, x: Value, axes: int | Sequence[int] | None = None, **options: Unpack[ReduceOptions]) -> Value:
        """Whether all conditions (i1) hold along dimensions; of none, True."""
        return self.reduce(x, "all", axes, **options)

    def softmax(self, x: Value, axis: int = -1, **options: Unpack[Options]) -> Value:
        """exp(x - max) / sum(exp(x - max)) along one dimension."""
        return self._emit("mir.softmax", {"x": x}, {"axis": axis}, **options)[0]

    def sm(self, x: Value, axis: int = -1, **options: Unpack[Options]) -> Value:
        """The same as `softmax`."""
        return self.softmax(x, axis, **options)

    def cumsum(self, x: Value, axis: int = -1, *, exclusive: bool = False, **options: Unpack[Options]) -> Value:
        """Running sum along one dimension, with `exclusive` without the element itself."""
        return self._emit("mir.cumsum", {"x": x}, {"axis": axis, "exclusive": exclusive}, **options)[0]

    def top_k(
        self, x: Value, k: SizeLike, *, smallest: bool = False, nan_largest: bool = False, **options: Unpack[Options]
    ) -> tuple[Value, Value]:
        """The k largest elements along the last dimension in descending order, and their positions (i32).

        Args:
            k: a number or a size, such as `min(n, 10)`, of symbols that values of the graph have; from 0 to the size
                of the dimension, where that is symbolic at the call. The size itself sorts rows.
            smallest: the k smallest elements in ascending order instead.
            nan_largest: NaN is larger than every number, otherwise smaller.
        """
        followed = Followed("mir.top_k", self._dimension, self._context)
        count = followed.attribute(as_size("mir.top_k", k, "'k'"))
        attributes = {"k": count, "smallest": smallest, "nan_largest": nan_largest}
        operands = {"x": x, "like": followed.values}
        values, indices = self._emit("mir.top_k", operands, attributes | followed.attributes, **options)
        return values, indices

    def sample(
        self,
        values: Value,
        indices: Value,
        controls: Value,
        draws: Value,
        chosen: Value,
        pos: Value,
        **options: Unpack[Options],
    ) -> tuple[Value, Value, Value]:
        """The next token of B sequences, drawn among their k largest logits: one step of generation.

        Args:
            values, indices: [B, k] f32 and i32, as `top_k` gives them.
            controls: [B, 3] f32: temperature (0 takes the largest), how many candidates are kept, top_p.
            draws: [B, P] f32, random numbers in [0, 1), by the position after which a token comes.
            chosen: [B, P] i32, the tokens that were chosen, likewise; overwritten where its result is an output.
            pos: [B] i32, the position of the last known token.

        Returns:
            The tokens [B, 1], -1 where nothing can be chosen; their positions [B], pos + 1; and `chosen` with them.
        """
        operands = {
            "values": values,
            "indices": indices,
            "controls": controls,
            "draws": draws,
            "chosen": chosen,
            "pos": pos,
        }
        token, place, result = self._emit("mir.sample", operands, **options)
        return token, place, result

    # -- norms -------------------------------------------------------------------------------------------------------

    def layer_norm(
        self,
        x: Value,
        gamma: Value,
        beta: Value | None = None,
        *,
        axis: int = -1,
        eps: float = 1e-5,
        **options: Unpack[Options],
    ) -> Value:
        """(x - mean) / sqrt(variance + eps) * gamma + beta along one dimension."""
        operands = {"x": x, "gamma": gamma, "beta": beta}
        return self._emit("mir.layer_norm", operands, {"axis": axis, "eps": number(eps)}, **options)[0]

    def ln(self, x: Value, gamma: Value, beta: Value | None = None, **options: Unpack[Options]) -> Value:
        """The same as `layer_norm`."""
        return self.layer_norm(x, gamma, beta, **options)

    def rms_norm(
        self,
        x: Value,
        gamma: Value,
        beta: Value | None = None,
        *,
        axis: int = -1,
        eps: float = 1e-5,
        **options: Unpack[Options],
    ) -> Value:
        """x / sqrt(mean(x^2) + eps) * gamma + beta along one dimension."""
        operands = {"x": x, "gamma": gamma, "beta": beta}
        return self._emit("mir.rms_norm", operands, {"axis": axis, "eps": number(eps)}, **options)[0]

    def fused_residual_rms_norm(
        self,
        x: Value,
        residual: Value,
        gamma: Value,
        beta: Value | None = None,
        *,
        bias: Value | None = None,
        eps: float = 1e-5,
        **options: Unpack[Options],
    ) -> Value:
        """rms_norm(x + residual + bias) over the last dimension; the sum isn't rounded."""
        operands = {"x": x, "residual": residual, "bias": bias, "gamma": gamma, "beta": beta}
        return self._emit("mir.fused_residual_rms_norm", operands, {"eps": number(eps)}, **options)[0]

    def fused_residual_layer_norm(
        self,
        x: Value,
        residual: Value,
        gamma: Value,
        beta: Value | None = None,
        *,
        bias: Value | None = None,
        eps: float = 1e-5,
        **options: Unpack[Options],
    ) -> Value:
        """layer_norm(x + residual + bias) over the last dimension; the sum isn't rounded."""
        operands = {"x": x, "residual": residual, "bias": bias, "gamma": gamma, "beta": beta}
        return self._emit("mir.fused_residual_layer_norm", operands, {"eps": number(eps)}, **options)[0]

    # -- attention ---------------------------------------------------------------------------------------------------

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
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
        sinks: Value | None = None,
        k_scheme: str | None = None,
        v_scheme: str | None = None,
        **options: Unpack[Options],
    ) -> Value:
        """softmax(scale q k^T, masked) v for each head; a query that sees no key gives zeros.

        Args:
            q: [B, Sq, num_heads * head_dim], or by `layout` (`bhsd`, `bshd`) of rank 4.
            k, v: [B, Sk, num_kv_heads * head_dim]; query head h reads head h // (num_heads / num_kv_heads).
            mask: with `mask_kind` custom [B, Sk] or [B, H, Sq, Sk], with bias [B, H, Sq, Sk], added to the scores.
            mask_kind: none, causal, sliding_window, custom or bias.
            window: number of keys that sliding_window keeps, the query's own included.
            scale: 1 / sqrt(head_dim) by default.
            softcap: c: scores become c tanh(score / c), before masks and biases.
            pos: [B] i32, the position of the first query; without it the last query stands at the last key.
            sinks: [num_heads], one more score of each softmax, which no key has: it takes a part of the weight.
            k_scheme, v_scheme: `q8_0` or `q4_0` where k or v are i8 [B, Sk, bytes], what `cache_update` wrote.
        """
        operands = {"q": q, "k": k, "v": v, "mask": mask, "pos": pos, "sinks": sinks}
        attributes = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "mask_kind": Word("mask_kind", mask_kind),
            "window": window,
            "scale": number(scale),
            "softcap": number(softcap),
            "layout": Word("head_layout", layout),
            "k_scheme": word("cache_scheme", k_scheme),
            "v_scheme": word("cache_scheme", v_scheme),
        }
        return self._emit("mir.attention", operands, attributes, **options)[0]

    def rope(
        self,
        x: Value,
        cos: Value,
        sin: Value,
        *,
        head_dim: int,
        style: str,
        n_rot: int | None = None,
        pos: Value | None = None,
        **options: Unpack[Options],
    ) -> Value:
        """Rotary position embedding of x [..., S, heads * head_dim] by tables [P, head_dim / 2].

        Args:
            style: `half` rotates elements i and i + n_rot / 2 together, `interleaved` 2i and 2i + 1. It belongs to
                the weights, so there is no default.
            n_rot: elements of each head that are rotated, all by default.
            pos: [B] i32, the row of the tables for the first position; 0 without it.
        """
        operands = {"x": x, "cos": cos, "sin": sin, "pos": pos}
        attributes = {"head_dim": head_dim, "n_rot": n_rot, "style": Word("rope_style", style)}
        return self._emit("mir.rope", operands, attributes, **options)[0]

    def gated_delta_net(
        self,
        q: Value,
        k: Value,
        v: Value,
        g: Value,
        beta: Value,
        state: Value | None = None,
        *,
        chunk: int | None = None,
        **options: Unpack[Options],
    ) -> tuple[Value, Value]:
        """Linear attention by a gated delta rule: (result [B, S, H, n], state [B, H, n, n] after the last token).

        Args:
            q, k, v: [B, S, H, n].
            g: [B, S, H], the logarithm of the decay of each step.
            beta: [B, S, H], the strength of each correction.
            state: [B, H, n, n] f32 (f64 where q is), what the call before gave; zeros without it.
            chunk: steps that generic code takes at once; with 1, all code goes step by step, and a step has the same
                bits wherever a sequence is cut.
        """
        operands = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "state": state}
        attributes = {} if chunk is None else {"chunk": chunk}
        result, state_out = self._emit("mir.gated_delta_net", operands, attributes, **options)
        return result, state_out

    def selective_scan(
        self,
        x: Value,
        delta: Value,
        a: Value,
        b: Value,
        c: Value,
        state: Value | None = None,
        **options: Unpack[Options],
    ) -> tuple[Value, Value]:
        """The recurrence of Mamba: (result [B, S, h], state [B, h, n] after the last token).

        Args:
            x, delta: [B, S, h], what comes in and the size of the step, which is positive.
            a: [h, n], the rate at which each state of a channel decays, which is negative.
            b, c: [B, S, n], how x goes into the states, and these into the result.
            state: [B, h, n] f32 (f64 where x is), what the call before gave; zeros without it.
        """
        operands = {"x": x, "delta": delta, "a": a, "b": b, "c": c, "state": state}
        result, state_out = self._emit("mir.selective_scan", operands, **options)
        return result, state_out

    def cache_update(
        self, cache: Value, new: Value, pos: Value, *, scheme: str | None = None, **options: Unpack[Options]
    ) -> Value:
        """cache [B, P, E] with rows pos[b], pos[b] + 1, … replaced by those of new [B, S, E].

        Args:
            scheme: `q8_0` or `q4_0`: the cache is i8 [B, P, bytes], of blocks of 32 elements.
        """
        attributes = {"scheme": word("cache_scheme", scheme)}
        return self._emit("mir.cache_update", {"cache": cache, "new": new, "pos": pos}, attributes, **options)[0]
