# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels along a sequence compute on any target: depthwise convolutions, recurrences and selective scans."""

from __future__ import annotations

from dataclasses import dataclass

MAX_TAPS = 32
"""Taps are unrolled: more than these are left to generic code."""


@dataclass(frozen=True)
class ConvSpec:
    """A convolution after outlining: x [B, K - 1 + S, C], weight [C, 1, 1, K], result [B, S, C], as memref types.

    C and K are static; elements are f32, f16 or bf16, sums f32.
    """

    x: str
    weight: str
    result: str
    operand_order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class RecurrenceSpec:
    """One `mir.gated_delta_net` after outlining: memref types as text, None where absent.

    q, k, v and result are [B, S, H, n] of f32, f16 or bf16, g and beta [B, S, H], state and state_out [B, H, n, n] of
    f32; n is static. `operand_order` is that of `write_kernel`, for the operands that are there. With `by_step`, a step
    has the same bits whatever steps the call has beside it.
    """

    q: str
    k: str
    v: str
    g: str
    beta: str
    state: str | None
    result: str | None
    state_out: str | None
    operand_order: tuple[int, ...] | None = None
    by_step: bool = False


@dataclass(frozen=True)
class StateSpaceSpec:
    """One `mir.selective_scan` after outlining: memref types as text, None where absent.

    x, delta and result are [B, S, h] of f32, f16 or bf16, a is [h, n], b and c are [B, S, n], state and state_out
    [B, h, n] of f32; n is static. `rate` is the number that all of a are, which is no operand then. `operand_order` is
    that of `write_kernel`, for the operands that are there.
    """

    x: str
    delta: str
    a: str | None
    b: str
    c: str
    state: str | None
    result: str | None
    state_out: str | None
    operand_order: tuple[int, ...] | None = None
    rate: float | None = None
