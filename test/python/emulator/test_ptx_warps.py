# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What threads do together in the PTX emulator: shuffles, votes, barriers, atomic operations, loops that part them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptx_harness import each_lane, module_text, run_kernel

RNG = np.random.default_rng(11)
X = RNG.integers(0, 2**32, 128, dtype=np.uint32)


def per_lane(code: str, results: dict[str, Any], chip: str = "sm_80", **sources: np.ndarray) -> dict[str, np.ndarray]:
    return each_lane(code, {f"%{name}": values for name, values in sources.items()}, results, chip)


SHUFFLES = [("up", amount, clamp) for amount in (0, 1, 5, 31) for clamp in (0, 0x1800, 0x1000)]
for other_mode in ("down", "bfly", "idx"):
    SHUFFLES += [(other_mode, amount, clamp) for amount in (0, 1, 6, 31) for clamp in (31, 0x181F, 0x100F, 20)]


@pytest.mark.parametrize(("mode", "amount", "clamp"), SHUFFLES)
def test_shuffles_follow_their_definition(mode: str, amount: int, clamp: int) -> None:
    code = f"shfl.sync.{mode}.b32 %r2|%p1, %r1, {amount}, {clamp}, -1;"
    got = per_lane(code, {"%r2": np.uint32, "%p1": bool}, r1=X)
    for thread in range(len(X)):
        lane, segment = thread % 32, clamp >> 8 & 31
        low = lane & segment
        high = low | clamp & 31 & ~segment
        other = {"up": lane - amount, "down": lane + amount, "bfly": lane ^ amount, "idx": low | amount & ~segment}[
            mode
        ]
        inside = other >= high if mode == "up" else other <= high
        other = other if inside else lane
        assert got["%p1"][thread] == inside
        assert got["%r2"][thread] == X[thread - lane + other]


def test_votes_and_matches() -> None:
    flags = X % 3 == 0
    code = """vote.sync.ballot.b32 %r2, %p1, -1; vote.sync.any.pred %p2, !%p1, -1; vote.sync.all.pred %p3, %p1, -1;
    match.any.sync.b32 %r3, %r1, -1; elect.sync %r4|%p4, -1; activemask.b32 %r5;"""
    small = X % 4
    results = {
        "%r2": np.uint32,
        "%p2": bool,
        "%p3": bool,
        "%r3": np.uint32,
        "%r4": np.uint32,
        "%p4": bool,
        "%r5": np.uint32,
    }
    got = per_lane(code, results, "sm_90", r1=small, p1=flags)
    for warp in range(4):
        part = slice(32 * warp, 32 * warp + 32)
        word = sum(1 << lane for lane in range(32) if flags[part][lane])
        assert (got["%r2"][part] == word).all()
        assert (got["%p2"][part] == (~flags[part]).any()).all()
        assert (got["%p3"][part] == flags[part].all()).all()
        for lane in range(32):
            same = sum(1 << other for other in range(32) if small[part][other] == small[part][lane])
            assert got["%r3"][part][lane] == same
        assert got["%p4"][part].tolist() == [True] + [False] * 31
    assert (got["%r4"] == 0).all()
    assert (got["%r5"] == 0xFFFFFFFF).all()


@pytest.mark.parametrize(("name", "function"), [("add", np.add), ("min", np.minimum), ("max", np.maximum)])
def test_reductions(name: str, function: np.ufunc) -> None:
    got = per_lane(f"redux.sync.{name}.s32 %r2, %r1, -1;", {"%r2": np.int32}, r1=X)["%r2"]
    want = function.reduce(X.view(np.int32).reshape(4, 32), axis=1, dtype=np.int32)
    np.testing.assert_array_equal(got, np.repeat(want, 32))


def test_lanes_meet_at_collectives_after_different_ways() -> None:
    """Odd and even lanes come to one shuffle by different ways, the odd ones after a loop."""
    body = """
  ld.param.b64 %d1, [out]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.b32 %p1, %r2, 0; mov.b32 %r3, 0;
  @%p1 bra EVEN;
LOOP:
  add.s32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, %r1; @%p2 bra LOOP;
  bra MEET;
EVEN:
  mov.b32 %r3, %r1;
MEET:
  activemask.b32 %r5; setp.ne.b32 %p3, %r5, 0xFFFFFFFF; @%p3 trap;
  shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;
  mad.wide.u32 %d1, %r1, 4, %d1; st.global.b32 [%d1], %r4;"""
    out = np.zeros(64, np.uint32)
    run_kernel(module_text(body, ["out"]), [out], block=(64,))
    np.testing.assert_array_equal(out, np.arange(64) ^ 1)


def test_loops_of_different_lengths() -> None:
    """Steps of the Collatz sequence: every thread leaves at its own time."""
    code = """mov.b32 %r2, 0;
LOOP: setp.le.u32 %p1, %r1, 1; @%p1 bra OUT;
  and.b32 %r3, %r1, 1; setp.eq.b32 %p2, %r3, 0; add.u32 %r2, %r2, 1;
  @%p2 shr.u32 %r1, %r1, 1;
  @!%p2 mad.lo.u32 %r1, %r1, 3, 1;
  bra.uni LOOP;
OUT:"""
    start = np.arange(1, 200, dtype=np.uint32)
    want = []
    for number in start.tolist():
        steps = 0
        while number > 1:
            number = number // 2 if number % 2 == 0 else 3 * number + 1
            steps += 1
        want.append(steps)
    np.testing.assert_array_equal(per_lane(code, {"%r2": np.uint32}, r1=start)["%r2"], want)


def test_branches_by_table() -> None:
    code = """T: .branchtargets A, B, C;
  and.b32 %r2, %r1, 3; min.u32 %r2, %r2, 2; brx.idx %r2, T;
A: mov.b32 %r3, 10; bra.uni OUT;
B: mov.b32 %r3, 11; bra.uni OUT;
C: mov.b32 %r3, 12;
OUT:"""
    got = per_lane(code, {"%r3": np.uint32}, r1=X)["%r3"]
    np.testing.assert_array_equal(got, 10 + np.minimum(X & 3, 2))


REVERSE = """
  .shared .align 4 .b8 buffer[1024];
  ld.param.b64 %d1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x; shl.b32 %r3, %r1, 2; mov.b32 %r4, buffer;
  add.s32 %r5, %r4, %r3; st.shared.b32 [%r5], %r1;
  BARRIER
  sub.s32 %r6, %r2, %r1; shl.b32 %r6, %r6, 2; add.s32 %r6, %r6, %r4; ld.shared.b32 %r7, [%r6+-4];
  mov.u32 %r8, %ctaid.x; mad.lo.u32 %r8, %r8, %r2, %r1; mad.wide.u32 %d1, %r8, 4, %d1; st.global.b32 [%d1], %r7;"""


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "barrier.sync 3, 256;", "mov.b32 %r9, 5; bar.sync %r9;"])
def test_barriers(barrier: str) -> None:
    out = np.zeros(256 * 5, np.uint32)
    run_kernel(module_text(REVERSE.replace("BARRIER", barrier), ["out"]), [out], grid=(5,), block=(256,))
    np.testing.assert_array_equal(out.reshape(5, 256), np.tile(np.arange(255, -1, -1), (5, 1)))


def test_producers_arrive_and_consumers_wait() -> None:
    body = """
  .shared .align 4 .b8 buffer[512];
  ld.param.b64 %d1, [out]; mov.u32 %r1, %tid.x; mov.b32 %r4, buffer; setp.ge.u32 %p1, %r1, 64; @%p1 bra READ;
  shl.b32 %r2, %r1, 2; add.s32 %r2, %r2, %r4; mul.lo.u32 %r3, %r1, 7; st.shared.b32 [%r2], %r3;
  bar.arrive 2, 128; bra.uni END;
READ:
  bar.sync 2, 128; sub.s32 %r2, 127, %r1; shl.b32 %r2, %r2, 2; add.s32 %r2, %r2, %r4; ld.shared.b32 %r3, [%r2];
  mad.wide.u32 %d1, %r1, 4, %d1; st.global.b32 [%d1+-256], %r3;
END:"""
    out = np.zeros(64, np.uint32)
    run_kernel(module_text(body, ["out"]), [out], block=(128,))
    np.testing.assert_array_equal(out, 7 * np.arange(63, -1, -1))


def test_barriers_that_count() -> None:
    body = """
  ld.param.b64 %d1, [out]; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 70; bar.red.popc.u32 %r2, 0, %p1;
  bar.red.and.pred %p2, 0, %p1; selp.b32 %r3, 1000, 0, %p2; add.s32 %r2, %r2, %r3;
  mad.wide.u32 %d1, %r1, 4, %d1; st.global.b32 [%d1], %r2;"""
    out = np.zeros(96, np.uint32)
    run_kernel(module_text(body, ["out"]), [out], block=(96,))
    assert (out == 70).all()


@pytest.mark.parametrize(
    ("name", "kind", "dtype"),
    [("add", "u32", np.uint32), ("add", "f32", np.float32), ("max", "s32", np.int32), ("xor", "b32", np.uint32)],
)
def test_atomic_operations(name: str, kind: str, dtype: Any) -> None:
    values = (RNG.standard_normal(256) * 100).astype(dtype) if kind != "b32" else X.repeat(2)
    body = f"""
  ld.param.b64 %d1, [x]; ld.param.b64 %d2, [out]; ld.param.b64 %d4, [old]; mov.u32 %r1, %tid.x;
  mad.wide.u32 %d3, %r1, 4, %d1; ld.global.b32 %r2, [%d3]; and.b32 %r3, %r1, 3; mad.wide.u32 %d2, %r3, 4, %d2;
  atom.global.{name}.{kind} %r4, [%d2], %r2; red.global.add.u32 [%d2+16], 1;
  mad.wide.u32 %d4, %r1, 4, %d4; st.global.b32 [%d4], %r4;"""
    out, old = np.zeros(8, np.uint32), np.zeros(256, np.uint32)
    run_kernel(module_text(body, ["x", "out", "old"]), [values, out, old], block=(256,))
    function = {"add": np.add, "max": np.maximum, "xor": np.bitwise_xor}[name]
    for place in range(4):
        running = np.zeros(1, dtype)
        for thread in range(place, 256, 4):
            assert old.view(dtype)[thread] == running[0]
            running = function(running, values.view(dtype)[thread : thread + 1]).astype(dtype)
        assert out[:4].view(dtype)[place] == running[0]
    assert (out[4:] == 64).all()


def test_compare_and_swap_locks() -> None:
    """A counter behind a lock that one thread of each block takes: no count is lost."""
    body = """
  ld.param.b64 %d1, [out]; mov.u32 %r1, %tid.x; setp.ne.b32 %p1, %r1, 0; @%p1 bra END;
LOCK: atom.global.cas.b32 %r2, [%d1], 0, 1; setp.ne.b32 %p2, %r2, 0; @%p2 bra LOCK;
  ld.global.b32 %r3, [%d1+4]; add.s32 %r3, %r3, 1; st.global.b32 [%d1+4], %r3; atom.global.exch.b32 %r4, [%d1], 0;
END:"""
    out = np.zeros(2, np.uint32)
    run_kernel(module_text(body, ["out"]), [out], grid=(20,), block=(32,))
    assert out.tolist() == [0, 20]


def test_every_block_and_thread_runs_once() -> None:
    body = """
  ld.param.b64 %d1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x;
  mad.lo.u32 %r1, %r2, %r3, %r1;
  mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %nctaid.x; mad.lo.u32 %r4, %r5, %r6, %r4;
  mov.u32 %r5, %ctaid.z; mov.u32 %r7, %nctaid.y; mul.lo.u32 %r6, %r6, %r7; mad.lo.u32 %r4, %r5, %r6, %r4;
  mul.lo.u32 %r4, %r4, 35; add.u32 %r1, %r1, %r4; mad.wide.u32 %d1, %r1, 4, %d1; red.global.add.u32 [%d1], 1;"""
    out = np.zeros(3 * 4 * 5 * 35, np.uint32)
    stats = run_kernel(module_text(body, ["out"]), [out], grid=(3, 4, 5), block=(7, 5), lanes=512)
    assert (out == 1).all()
    assert stats.count("red") == len(out)
