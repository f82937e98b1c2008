# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of matrices by warps, and the copies that feed them, in the PTX emulator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx_harness import module_text, run_kernel

from ptx_emulator.errors import EmulationError
from ptx_emulator.matrices import product_in_order

RNG = np.random.default_rng(5)

#: By name: type in PTX, type in numpy, words of the accumulator, type of that.
PRODUCTS: dict[str, tuple[str, Any, str, Any]] = {
    "f16": ("f16", np.float16, "f32", np.float32),
    "f16 sums": ("f16", np.float16, "f16", np.float16),
    "bf16": ("bf16", ml_dtypes.bfloat16, "f32", np.float32),
    "tf32": ("tf32", np.float32, "f32", np.float32),
    "s8": ("s8", np.int8, "s32", np.int32),
    "u8": ("u8", np.uint8, "s32", np.int32),
    "e4m3": ("e4m3", ml_dtypes.float8_e4m3fn, "f32", np.float32),
}


def operand(dtype: Any, rows: int) -> np.ndarray:
    """A matrix whose rows have 32 bytes, of numbers whose products are exact."""
    columns = 32 // np.dtype(dtype).itemsize
    low = 0 if dtype is np.uint8 else -8
    return RNG.integers(low, 9, (rows, columns)).astype(dtype)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_matrices_loaded_by_ldmatrix(name: str) -> None:
    """D = A B + C, [16, k] by [k, 8]; B is stored as its transpose. Rows of 32 bytes fit `ldmatrix` in every type."""
    kind, dtype, sums, result = PRODUCTS[name]
    a, b = operand(dtype, 16), operand(dtype, 8)
    c = RNG.integers(-5, 6, (16, 8)).astype(result)
    d = np.zeros((16, 8), result)
    depth = 32 // np.dtype(dtype).itemsize
    size = np.dtype(result).itemsize
    words = "{%r20, %r21}" if size == 2 else "{%r20, %r21, %r22, %r23}"
    # The place of c0 and c1 in a lane: row lane / 4, columns 2 (lane % 4); c2 and c3 are eight rows below.
    transfers = {
        "load": "ld.global.b32 %r20, [%d4]; ld.global.b32 %r21, [%d4+128];" if size == 2 else
        "ld.global.v2.b32 {%r20, %r21}, [%d4]; ld.global.v2.b32 {%r22, %r23}, [%d4+256];",
        "store": "st.global.b32 [%d5], %r20; st.global.b32 [%d5+128], %r21;" if size == 2 else
        "st.global.v2.b32 [%d5], {%r20, %r21}; st.global.v2.b32 [%d5+256], {%r22, %r23};",
    }  # fmt: skip
    body = f"""
  .shared .align 16 .b8 buffer[768];
  ld.param.b64 %d1, [a]; ld.param.b64 %d2, [b]; ld.param.b64 %d4, [c]; ld.param.b64 %d5, [d];
  mov.u32 %r1, %tid.x; mov.b32 %r2, buffer; shl.b32 %r3, %r1, 4; add.s32 %r4, %r2, %r3;
  mad.wide.u32 %d1, %r1, 16, %d1; ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%d1];
  st.shared.v4.b32 [%r4], {{%r5, %r6, %r7, %r8}};
  setp.lt.u32 %p1, %r1, 16; mad.wide.u32 %d2, %r1, 16, %d2;
  @%p1 ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%d2]; @%p1 st.shared.v4.b32 [%r4+512], {{%r5, %r6, %r7, %r8}};
  bar.sync 0;
  and.b32 %r9, %r1, 15; shr.u32 %r10, %r1, 4; shl.b32 %r9, %r9, 5; shl.b32 %r10, %r10, 4; add.s32 %r9, %r9, %r10;
  add.s32 %r9, %r9, %r2;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r11, %r12, %r13, %r14}}, [%r9];
  and.b32 %r9, %r1, 7; shl.b32 %r9, %r9, 5; and.b32 %r10, %r1, 8; shl.b32 %r10, %r10, 1; add.s32 %r9, %r9, %r10;
  add.s32 %r9, %r9, %r2;
  ldmatrix.sync.aligned.m8n8.x2.shared::cta.b16 {{%r15, %r16}}, [%r9+512];
  and.b32 %r9, %r1, 3; shr.u32 %r10, %r1, 2; shl.b32 %r10, %r10, 3; mad.lo.u32 %r9, %r9, 2, %r10;
  mad.wide.u32 %d4, %r9, {size}, %d4; mad.wide.u32 %d5, %r9, {size}, %d5; {transfers["load"]}
  mma.sync.aligned.m16n8k{depth}.row.col.{sums}.{kind}.{kind}.{sums} {words}, {{%r11, %r12, %r13, %r14}}, {{%r15,
  %r16}}, {words};
  {transfers["store"]}"""
    run_kernel(module_text(body, ["a", "b", "c", "d"], chip="sm_89"), [a, b, c, d])
    want = a.astype(np.float64) @ b.astype(np.float64).T + c.astype(np.float64)
    np.testing.assert_array_equal(d.astype(np.float64), want)


def test_tf32_ignores_low_bits() -> None:
    a = np.full(32, 0x3F801FFF, np.uint32)
    out = np.zeros(32, np.float32)
    body = """
  ld.param.b64 %d1, [a]; ld.param.b64 %d2, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %d1, %r1, 4, %d1;
  ld.global.b32 %r2, [%d1]; mov.b32 %r3, 0f00000000; mov.b32 %r4, 0f3F800000;
  mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%r5, %r6, %r7, %r8}, {%r2, %r2}, {%r4}, {%r3, %r3, %r3, %r3};
  mad.wide.u32 %d2, %r1, 4, %d2; st.global.b32 [%d2], %r5;"""
    run_kernel(module_text(body, ["a", "out"]), [a, out])
    np.testing.assert_array_equal(out, 4)


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_of_fragments(store: bool, transposed: bool) -> None:
    """Four 8x8 matrices, by address or by fragment: lane l holds elements 2 (l % 4) and the next of row l / 4."""
    x = RNG.integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)
    parts = x.swapaxes(1, 2) if transposed else x
    registers = np.ascontiguousarray(parts).view(np.uint32).reshape(4, 32).T.copy()
    trans = ".trans" if transposed else ""
    head = """
  .shared .align 16 .b8 buffer[512];
  ld.param.b64 %d1, [rows]; ld.param.b64 %d2, [words]; mov.u32 %r1, %tid.x; mov.b32 %r2, buffer; shl.b32 %r3, %r1, 4;
  add.s32 %r2, %r2, %r3; mad.wide.u32 %d1, %r1, 16, %d1; mad.wide.u32 %d2, %r1, 16, %d2;"""
    if store:
        body = f"""{head} ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d2];
  stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r2], {{%r4, %r5, %r6, %r7}}; bar.warp.sync -1;
  ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r2]; st.global.v4.b32 [%d1], {{%r4, %r5, %r6, %r7}};"""
        got = np.zeros_like(x)
        run_kernel(module_text(body, ["rows", "words"], chip="sm_90"), [got, registers])
        np.testing.assert_array_equal(got, x)
        return
    body = f"""{head} ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d1]; st.shared.v4.b32 [%r2], {{%r4, %r5, %r6, %r7}};
  bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r2];
  st.global.v4.b32 [%d2], {{%r4, %r5, %r6, %r7}};"""
    got = np.zeros_like(registers)
    run_kernel(module_text(body, ["rows", "words"]), [x, got])
    np.testing.assert_array_equal(got, registers)


COPY = """
  .shared .align 16 .b8 buffer[4096];
  ld.param.b64 %d1, [x]; ld.param.b64 %d2, [out]; mov.u32 %r1, %tid.x; mov.b32 %r2, buffer;
  mad.wide.u32 %d1, %r1, 16, %d1; mad.wide.u32 %d2, %r1, 16, %d2; shl.b32 %r3, %r1, 4; add.s32 %r2, %r2, %r3;
  cp.async.cg.shared.global [%r2], [%d1], 16; cp.async.commit_group;
  cp.async.ca.shared.global [%r2+2048], [%d1+2048], 8, LENGTH; cp.async.ca.shared.global [%r2+2056], [%d1+2056], 8;
  cp.async.commit_group;
  WAIT
  BARRIER
  xor.b32 %r4, %r2, 16; ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r4+FROM]; st.global.v4.b32 [%d2], {%r5, %r6, %r7, %r8};
"""


def copy_kernel(wait: str, barrier: str = "bar.sync 0;", start: int = 0, length: str = "8") -> str:
    text = COPY.replace("WAIT", wait).replace("BARRIER", barrier).replace("FROM", str(start)).replace("LENGTH", length)
    return module_text(text, ["x", "out"])


def test_copies_are_there_when_waited_for() -> None:
    x = RNG.integers(0, 2**32, (256, 4), dtype=np.uint32)
    order = np.arange(128) ^ 1
    for wait, start in (("cp.async.wait_group 1;", 0), ("cp.async.wait_group 0;", 2048), ("cp.async.wait_all;", 2048)):
        out = np.zeros((128, 4), np.uint32)
        run_kernel(copy_kernel(wait, start=start), [x, out], block=(128,))
        np.testing.assert_array_equal(out, x[start // 16 :][:128][order])
    out = np.zeros((128, 4), np.uint32)
    run_kernel(copy_kernel("cp.async.wait_all;", start=2048, length="5"), [x, out], block=(128,))
    want = x[128:][order].copy()
    want.view(np.uint8).reshape(128, 16)[:, 5:8] = 0
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(
    ("wait", "start", "message"),
    [
        ("", 0, "a copy that wasn't waited for is writing"),
        ("cp.async.wait_group 1;", 2048, "a copy that wasn't waited for is writing"),
        ("cp.async.wait_group 2;", 0, "a copy that wasn't waited for is writing"),
    ],
)
def test_missing_waits_are_found(wait: str, start: int, message: str) -> None:
    x, out = np.zeros((256, 4), np.uint32), np.zeros((128, 4), np.uint32)
    with pytest.raises(EmulationError, match=message):
        run_kernel(copy_kernel(wait, start=start), [x, out], block=(128,))


def test_a_missing_barrier_after_a_copy_is_found() -> None:
    """Lane 31 of a warp reads what lane 30 copied, so only a copy by another warp shows it."""
    x, out = np.zeros((256, 4), np.uint32), np.zeros((128, 4), np.uint32)
    text = copy_kernel("cp.async.wait_all;", "").replace("xor.b32 %r4, %r2, 16", "xor.b32 %r4, %r2, 512")
    with pytest.raises(EmulationError, match=r"race in shared memory: read of byte \d+, which warp 1 wrote at line"):
        run_kernel(text, [x, out], block=(128,))


def test_copies_of_nothing_read_nothing() -> None:
    """A source size of 0 fills with zeros, whatever the address is."""
    body = """
  .shared .align 16 .b8 buffer[512];
  ld.param.b64 %d2, [out]; mov.u32 %r1, %tid.x; mov.b32 %r2, buffer; shl.b32 %r3, %r1, 4; add.s32 %r2, %r2, %r3;
  mov.b64 %d1, 0;
  mov.b32 %r4, 0; cp.async.cg.shared.global [%r2], [%d1], 16, %r4; cp.async.wait_all;
  ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r2]; mad.wide.u32 %d2, %r1, 16, %d2;
  st.global.v4.b32 [%d2], {%r5, %r6, %r7, %r8};"""
    out = np.ones((32, 4), np.uint32)
    run_kernel(module_text(body, ["out"]), [out])
    assert not out.any()


@pytest.mark.parametrize("spread", [1, 20, 60])
def test_sums_have_an_order_of_their_own(monkeypatch: pytest.MonkeyPatch, spread: int) -> None:
    """The bits don't depend on the order of the library that is asked first, with cancellation and infinities, too."""
    random = np.random.default_rng(0)
    a = np.ldexp(random.standard_normal((3, 16, 32)), random.integers(-spread, spread + 1, (3, 16, 32)))
    b = np.ldexp(random.standard_normal((3, 32, 8)), random.integers(-spread, spread + 1, (3, 32, 8)))
    a, b = a.astype(np.float32), b.astype(np.float32)
    a[:, :, 16:], b[:, 16:] = a[:, :, :16], -b[:, :16]  # all cancels, but for what is changed below
    a[0, :, 20], a[1, 3, 5], b[2, 7, 2] = 1e-30, np.inf, np.nan
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    wanted = np.zeros((3, 16, 8))
    with np.errstate(invalid="ignore"):
        for k in range(32):
            wanted += wide_a[:, :, k : k + 1] * wide_b[:, k : k + 1]
    right = np.matmul
    for order in (np.arange(32), np.arange(32)[::-1], random.permutation(32)):
        monkeypatch.setattr(np, "matmul", lambda x, y, order=order: right(x[..., order], y[..., order, :]))
        np.testing.assert_array_equal(product_in_order(a, b), wanted.astype(np.float32))
