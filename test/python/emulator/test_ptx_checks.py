# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the PTX emulator refuses, its counts, its text, and launches by bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptx_harness import module_text, run_kernel

from ptx_emulator import DeviceMemory, TensorMap, launch_raw, load, parameter_layout
from ptx_emulator.errors import EmulationError
from rlx_mlir.errors import InputError

COPY = """
  ld.param.b64 %d1, [x]; ld.param.b64 %d2, [y]; mov.u32 %r1, %tid.x; mad.wide.u32 %d1, %r1, 4, %d1;
  mad.wide.u32 %d2, %r1, 4, %d2; ld.global.b32 %r2, [%d1]; st.global.b32 [%d2], %r2;"""


def one(
    code: str, out: np.ndarray | None = None, threads: int = 32, head: str = "", chip: str = "sm_80", **more: Any
) -> Any:
    """Runs code of a kernel whose parameter `out` is in %d1, and whose thread is in %r1."""
    out = np.zeros(32, np.uint32) if out is None else out
    body = f"  ld.param.b64 %d1, [out]; mov.u32 %r1, %tid.x;\n  {code}"
    return run_kernel(module_text(body, ["out"], head=head, chip=chip), [out], block=(threads,), **more)


def test_errors_name_kernel_line_thread_and_registers() -> None:
    x, y = np.zeros(32, np.uint32), np.zeros(20, np.uint32)
    with pytest.raises(EmulationError) as caught:
        run_kernel(module_text(COPY, ["x", "y"], name="copy"), [x, y], name="copy")
    error = caught.value
    assert (error.kernel, error.line) == ("copy", 13)
    assert error.thread == "block (0, 0, 0) thread (20, 0, 0)"
    assert error.instruction == "st.global.b32 [%d2], %r2;"
    assert "80 bytes after the start of one of 80 bytes" in str(error)
    assert f"%d2 = {y.ctypes.data + 80:#x}" in str(error)


def test_memory_between_ranges_is_nobodys() -> None:
    holder = np.zeros(64, np.uint32)
    memory = DeviceMemory()
    memory.register(holder[:16])
    memory.register(holder[32:])
    text = module_text(COPY, ["x", "y"])
    load(text).launch("kernel", grid=(1,), block=(16,), args=[holder[:16], holder[32:]], memory=memory)
    with pytest.raises(EmulationError, match="outside of every registered range"):
        load(text).launch("kernel", grid=(1,), block=(17,), args=[holder[:16], holder[32:]], memory=memory)
    memory.unregister(holder[32:].ctypes.data)
    with pytest.raises(EmulationError, match="outside of every registered range"):
        load(text).launch("kernel", grid=(1,), block=(16,), args=[holder[:16], holder[32:]], memory=memory)
    with pytest.raises(InputError, match="expects the start of a registered range"):
        memory.unregister(holder[40:].ctypes.data)


def test_ranges_may_overlap_and_allocations_are_patterns() -> None:
    holder = np.zeros(64, np.uint32)
    memory = DeviceMemory()
    for part in (holder[:32], holder[16:], holder[:32]):
        memory.register(part)
    assert memory.find(holder.ctypes.data, 256) is not None
    for _ in range(2):
        memory.unregister(holder.ctypes.data)
    assert memory.find(holder.ctypes.data, 256) is not None
    memory.unregister(holder.ctypes.data + 64)
    assert memory.find(holder.ctypes.data, 4) is None
    address = memory.allocate(100)
    assert address % 256 == 0
    assert (memory.view(address, 100) == 0xA5).all()
    with pytest.raises(InputError, match="aren't registered"):
        memory.view(address, 101)
    with pytest.raises(InputError, match="expects a contiguous array"):
        memory.register(holder[::2])


def test_what_is_read_only_stays() -> None:
    x, y = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    y.flags.writeable = False
    with pytest.raises(EmulationError, match="registered for reading only"):
        run_kernel(module_text(COPY, ["x", "y"]), [x, y])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "add.s64 %d1, %d1, 2; ld.global.b32 %r2, [%d1];",
            "access to 4 bytes at 0x[0-9a-f]+, which isn't a multiple of 4",
        ),
        ("add.s64 %d1, %d1, 8; ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%d1];", "16 bytes .* isn't a multiple of 16"),
        ("mov.b64 %d1, 0; ld.global.b32 %r2, [%d1];", "at 0x0, outside of every registered range"),
        ("mov.b64 %d1, 64; ld.b32 %r2, [%d1];", "at 0x40, outside of every registered range"),
        ("div.u32 %r2, 7, %r1;", r"thread \(0, 0, 0\): division by zero is undefined"),
        ("sub.s32 %r3, %r1, 9; rem.s32 %r2, 7, %r3;", r"thread \(9, 0, 0\): division by zero is undefined"),
        ("trap;", "the kernel ran into a trap"),
        ("frobnicate.b32 %r2, %r1;", "unknown instruction: the instruction isn't emulated"),
        ("add.rz.f32 %r2, %r1, %r1;", "unknown instruction: the modifier '.rz' isn't emulated here"),
        ("LOOP: bra.uni LOOP;", "a loop without end"),
        ("@%p3 bra LOOP; LOOP: setp.ne.b32 %p1, %r1, 0; @%p1 bar.sync 0;", "deadlock: no thread can go on"),
        ("setp.lt.u32 %p1, %r1, 5; @%p1 shfl.sync.idx.b32 %r2, %r1, 7, 31, 31;", "shuffle reads lane 7, which doesn't"),
        ("setp.lt.u32 %p1, %r1, 5; @%p1 shfl.sync.idx.b32 %r2, %r1, 7, 31, 15;", "isn't in its own mask of members"),
        ("bar.sync 16;", "a block has 16 barriers, but this one is number 16"),
        ("bar.sync 0, 48;", "expects a multiple of 32 threads"),
        ("mov.b64 %d2, 1000; ld.shared.b32 %r2, [%d2];", "byte -24 of shared memory, which has 64 bytes"),
        ("ld.shared.b32 %r2, [buffer+64];", "access to 4 bytes at byte 64 of shared memory, which has 64 bytes"),
        ("ld.shared.b32 %r2, [buffer];", "read of shared memory at byte 0, which was never written"),
        ("st.shared.b16 [buffer], %r1; ld.shared.b32 %r2, [buffer];", "at byte 2, which was never written"),
        ("ld.param.b64 %d3, [out]; mov.b64 %d2, out; st.b32 [%d2], 0;", "write to parameters"),
    ],
)
def test_mistakes_are_found(code: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptx_emulator.machine.BRANCHES", 1000)
    with pytest.raises(EmulationError, match=message):
        one(code, head=".shared .align 16 .b8 buffer[64];")


def test_a_part_of_a_warp_at_a_barrier() -> None:
    """Two halves of a warp come to different barrier instructions: counts agree, but `.aligned` is for whole warps."""
    code = """setp.lt.u32 %p1, %r1, 16; @%p1 bra FIRST; bar.sync 0; bra.uni END;
FIRST: bar.sync 0;
END:"""
    with pytest.raises(EmulationError, match="only a part of the warp of block"):
        one(code, threads=64)
    one(code.replace("bar.sync 0;", "barrier.sync 0;"), threads=64)


def test_threads_that_ended_are_missed_at_barriers() -> None:
    with pytest.raises(
        EmulationError, match=r"(?s)deadlock: .*\(32 ended\).*32 threads, .* wait at barrier 0 \(32 of 64"
    ):
        one("setp.lt.u32 %p1, %r1, 32; @%p1 ret; bar.sync 0;", threads=64)


@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize(("first", "second"), [("st", "ld"), ("ld", "st"), ("st", "st")])
def test_races(first: str, second: str, barrier: bool) -> None:
    """Warps 0 and 1 touch one word, one after the other; whether it is a race says the barrier alone."""
    words = {"st": "st.shared.b32 [buffer], %r1;", "ld": "ld.shared.b32 %r2, [buffer];"}
    code = f"""setp.lt.u32 %p1, %r1, 32; @%p1 st.shared.b32 [buffer], 5; bar.sync 1;
  @!%p1 {words[first]} {"bar.sync 0;" if barrier else ""} @%p1 {words[second]}"""
    head = ".shared .align 16 .b8 buffer[64];"
    if barrier:
        one(code, head=head, threads=64)
        return
    with pytest.raises(EmulationError, match="race in shared memory"):
        one(code, head=head, threads=64)
    one(code, head=head, threads=64, races=False)


@pytest.mark.parametrize(
    ("between", "ordered"),
    [
        ("bar.warp.sync -1;", True),
        ("bar.sync 0;", True),
        ("shfl.sync.idx.b32 %r9, %r1, 0, 31, -1;", False),
        ("vote.sync.ballot.b32 %r9, %p1, -1;", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("order", [("st", "ld"), ("ld", "st")])
@pytest.mark.parametrize("threads", [32, 64])
def test_lanes_of_a_warp_race(between: str, ordered: bool, order: tuple[str, str], threads: int) -> None:
    """Each lane writes its own word and reads another lane's: lanes that meet don't see each other's memory by that."""
    words = {"st": "st.shared.b32 [%r5], %r1;", "ld": "ld.shared.b32 %r2, [%r6];"}
    code = f"""mov.b32 %r4, buffer; mad.lo.u32 %r5, %r1, 4, %r4; xor.b32 %r6, %r1, 3; mad.lo.u32 %r6, %r6, 4, %r4;
  setp.ne.u32 %p1, %r1, 0; st.shared.b32 [%r5], 7; bar.sync 0; {words[order[0]]} {between} {words[order[1]]}"""
    head = ".shared .align 16 .b8 buffer[256];"
    if ordered:
        one(code, head=head, threads=threads)
        return
    with pytest.raises(EmulationError, match=r"lane 3 of the same warp (wrote|read): no bar\.warp\.sync"):
        one(code, head=head, threads=threads)


def test_own_words_and_words_that_all_read() -> None:
    """A lane is ordered with itself; one that writes what several have read isn't."""
    head = ".shared .align 16 .b8 buffer[256];"
    code = "mov.b32 %r4, buffer; mad.lo.u32 %r5, %r1, 4, %r4; st.shared.b32 [%r5], %r1; ld.shared.b32 %r2, [%r5];"
    one(f"{code} st.shared.b32 [%r5], %r2;", head=head)
    code = f"{code} bar.warp.sync -1; ld.shared.b32 %r2, [buffer];"
    one(f"{code} bar.warp.sync -1; st.shared.b32 [%r5], %r2;", head=head)
    with pytest.raises(EmulationError, match="which other lanes of the same warp read"):
        one(f"{code} st.shared.b32 [%r5], %r2;", head=head)


def test_counts() -> None:
    out = np.zeros(4096, np.uint32)
    code = """mad.wide.u32 %d2, %r1, 4, %d1; ld.global.b32 %r2, [%d2];
  mad.wide.u32 %d3, %r1, 128, %d1; st.global.b32 [%d3], %r2;"""
    stats = one(code, out, profile=True)
    assert stats.instructions["ld.global.b32"] == 32
    assert (stats.global_read, stats.global_written) == (128, 128)
    (store,) = stats.uncoalesced
    assert (store.store, store.sectors, store.least, store.requests) == (True, 32, 4, 1)
    assert stats.bank_conflicts == []
    total = one(code, out, profile=True)
    total += stats
    assert total.instructions["ld.global.b32"] == 64
    assert total.global_read == 256


@pytest.mark.parametrize(
    ("address", "width", "ways"),
    [("shl.b32 %r2, %r1, 2;", 4, 1), ("shl.b32 %r2, %r1, 3;", 4, 2), ("shl.b32 %r2, %r1, 7;", 4, 32),
     ("shl.b32 %r2, %r1, 4;", 16, 1), ("shl.b32 %r2, %r1, 5;", 16, 2), ("and.b32 %r2, %r1, 0;", 4, 1)],
)  # fmt: skip
def test_bank_conflicts(address: str, width: int, ways: int) -> None:
    kind, value = ("b32", "%r1") if width == 4 else ("v4.b32", "{%r1, %r1, %r1, %r1}")
    code = f"{address} mov.b32 %r3, buffer; add.s32 %r2, %r2, %r3; st.shared.{kind} [%r2], {value};"
    stats = one(code, head=".shared .align 16 .b8 buffer[4096];", profile=True)
    (access,) = stats.accesses.values()
    assert access.wavefronts == ways * access.least
    assert bool(stats.bank_conflicts) == (ways > 1)


def test_generic_addresses_reach_every_space() -> None:
    body = """
  .local .align 8 .b8 depot[16];
  .shared .align 8 .b8 buffer[256];
  ld.param.b64 %d1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %d1, %r1, 4, %d1;
  mov.b64 %d2, depot; cvta.local.u64 %d2, %d2; mul.lo.u32 %r2, %r1, 3; st.b32 [%d2+4], %r2;
  mov.b64 %d3, buffer; cvta.shared.u64 %d3, %d3; mad.wide.u32 %d3, %r1, 8, %d3; st.b32 [%d3], 1000;
  and.b32 %r3, %r1, 1; setp.eq.b32 %p1, %r3, 0; selp.b64 %d4, %d2, %d3, %p1; add.s64 %d5, %d4, 4;
  selp.b64 %d4, %d5, %d4, %p1;
  ld.b32 %r4, [%d4]; isspacep.shared %p2, %d4; selp.b32 %r5, 5, 0, %p2; add.s32 %r4, %r4, %r5;
  cvta.to.shared.u64 %d6, %d3; ld.shared.b32 %r6, [%d6]; add.s32 %r4, %r4, %r6; st.b32 [%d1], %r4;"""
    out = np.zeros(32, np.uint32)
    run_kernel(module_text(body, ["out"]), [out])
    lanes = np.arange(32)
    np.testing.assert_array_equal(out, np.where(lanes % 2, 2005, 1000 + 3 * lanes))


def test_constants_outside_of_functions() -> None:
    head = ".global .align 8 .b8 table[8] = {1, 2, 3, 4, 255};\n.const .align 4 .u32 words[3] = {7, 0x10, 9};"
    out = np.zeros(32, np.uint32)
    code = """ld.global.u32 %r2, [table]; ld.global.s8 %r3, [table+4]; ld.const.u32 %r4, [words+4];
  ld.global.u8 %r5, [table+5];"""
    one(f"{code} st.global.v4.b32 [%d1], {{%r2, %r3, %r4, %r5}};", out, threads=1, head=head)
    assert out[:4].tolist() == [0x04030201, 0xFFFFFFFF, 16, 0]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([np.zeros(4, np.uint32)], "'args' expects 2 values for kernel 'kernel', but got 1"),
        ([np.int32(5), 0], "'args' expects 8 bytes at position 0 for kernel 'kernel', but got 4"),
        (["x", 0], "'args' expects numbers, arrays or bytes, but got str"),
    ],
)
def test_arguments_are_checked(args: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(module_text(COPY, ["x", "y"])).launch("kernel", grid=(1,), block=(1,), args=args, memory=DeviceMemory())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "other"}, "'name' expects one of kernel, but got 'other'"),
        ({"grid": (0,)}, "'grid' expects one to three positive numbers"),
        ({"block": (2048,)}, "'block' expects at most 1024 threads"),
        ({"block": (256,)}, r"'block' expects at most \(128, 1, 1\) threads"),
        ({"shared_bytes": 170000}, "'shared_bytes' expects at most 166912 on sm_80"),
    ],
)
def test_launches_are_checked(options: dict[str, Any], message: str) -> None:
    text = module_text("", []).replace("\n{\n", "\n.maxntid 128, 1, 1\n{\n", 1)
    with pytest.raises(InputError, match=message):
        load(text).launch(**{"name": "kernel", "grid": (1,), "block": (32,), "memory": DeviceMemory(), **options})


@pytest.mark.parametrize(("chip", "kib"), [("sm_86", 99), ("sm_87", 163), ("sm_90a", 227), ("sm_120a", 99)])
def test_shared_memory_is_that_of_the_chip(chip: str, kib: int) -> None:
    kernel = load(module_text("", [], chip=chip))
    options: dict[str, Any] = {"grid": (1,), "block": (32,), "memory": DeviceMemory()}
    kernel.launch("kernel", shared_bytes=kib << 10, **options)
    with pytest.raises(InputError, match=f"expects at most {kib << 10} on {chip}"):
        kernel.launch("kernel", shared_bytes=(kib << 10) + 1, **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".version 7.8\n.visible .entry k()\n{\n  bra NOWHERE;\n}\n", "PTX line 4: 'NOWHERE' isn't a label"),
        (".version 7.8\n.visible .entry k()\n{\n  @%p1 bra X;\n}\n", "'%p1' isn't a register"),
        (".version 7.8\n.visible .entry k()\n{\n  mov.b32 %r1, 5;\n}\n", "'%r1' isn't a register"),
        (".version 7.8\n.visible .entry k()\n{\n  ret;\n", "a function isn't closed"),
        (".version 7.8\n.global .b7 x[4];\n", "unknown type 'b7'"),
    ],
)
def test_text_that_can_t_be_read(text: str, message: str) -> None:
    with pytest.raises(EmulationError, match=message):
        load(text)


def test_some_blocks_of_a_grid() -> None:
    """Those that are named run, and no others; clusters run as a whole."""
    body = """
      ld.param.b64 %d1, [x];
      mov.u32 %r1, %ctaid.x;
      mov.u32 %r2, %ctaid.y;
      mad.lo.u32 %r1, %r2, 4, %r1;
      mad.wide.u32 %d1, %r1, 4, %d1;
      st.global.b32 [%d1], 1;"""
    kernel, x, memory = load(module_text(body, ["x"], chip="sm_90")), np.zeros((3, 4), np.uint32), DeviceMemory()
    memory.register(x)
    options: dict[str, Any] = {"grid": (4, 3), "block": (1,), "args": [x], "memory": memory}
    kernel.launch("kernel", blocks=[(3, 2), (1,), (1, 0, 0)], **options)
    assert [tuple(map(int, at)) for at in np.argwhere(x)] == [(0, 1), (2, 3)]
    kernel.launch("kernel", blocks=[(0, 1), (1, 1)], cluster=(2, 1, 1), **options)
    assert x[1].tolist() == [1, 1, 0, 0]
    with pytest.raises(InputError, match=r"expects numbers of blocks of the grid \(4, 3, 1\), but got \[\(4, 0\)\]"):
        kernel.launch("kernel", blocks=[(4, 0)], **options)
    with pytest.raises(InputError, match=r"expects whole clusters of \(2, 1, 1\), but got 1 blocks"):
        kernel.launch("kernel", blocks=[(0, 0)], cluster=(2, 1, 1), **options)


def test_launches_by_bytes() -> None:
    """As a driver would: text with a NUL, parameters as one block, memory by addresses."""
    text = module_text(COPY, ["x", "y", "n0"]).encode() + b"\0"
    assert parameter_layout(text, "kernel") == [(0, 8), (8, 8), (16, 4)]
    x, y = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    memory = DeviceMemory()
    for array in (x, y):
        memory.register_range(array.ctypes.data, array.nbytes)
    parameters = x.ctypes.data.to_bytes(8, "little") + y.ctypes.data.to_bytes(8, "little") + bytes(4)
    launch_raw(text, "kernel", (1, 1, 1), (32, 1, 1), 0, parameters, memory=memory)
    np.testing.assert_array_equal(y, x)
    with pytest.raises(InputError, match="'parameters' expects 20 bytes for kernel 'kernel', but got 16"):
        launch_raw(text, "kernel", (1, 1, 1), (32, 1, 1), 0, parameters[:16], memory=memory)


def test_maps_are_values() -> None:
    chosen = TensorMap("f32", 4096, (8,), (), (8,))
    assert TensorMap.from_bytes(chosen.to_bytes()).box_bytes == 32
    with pytest.raises(InputError, match="expects 128 bytes"):
        TensorMap.from_bytes(bytes(64))


def test_blocks_in_braces() -> None:
    """Blocks in braces have registers and labels of their own, as inline assembly needs."""
    block = """{ .reg .b32 t; mov.b32 t, %r2;
  AGAIN: add.s32 t, t, 1; setp.lt.u32 %p1, t, 9; @%p1 bra AGAIN; mov.b32 %r2, t; }"""
    out = np.zeros(32, np.uint32)
    one(f"mov.b32 %r2, 0; {block} {block} mad.wide.u32 %d1, %r1, 4, %d1; st.global.b32 [%d1], %r2;", out)
    assert (out == 10).all()


def test_hints_for_caches_change_nothing() -> None:
    code = """createpolicy.fractional.L2::evict_first.b64 %d5, 1.0; mad.wide.u32 %d2, %r1, 4, %d1;
  ld.global.nc.L1::no_allocate.L2::cache_hint.b32 %r2, [%d2], %d5; add.s32 %r2, %r2, %r1;
  red.global.add.L2::cache_hint.u32 [%d2], %r2, %d5; prefetch.global.L2 [%d2];
  mov.b32 %r3, buffer; mad.lo.u32 %r3, %r1, 4, %r3;
  cp.async.ca.shared.global.L2::cache_hint [%r3], [%d2], 4, %d5; cp.async.wait_all; ld.shared.b32 %r4, [%r3];
  st.global.L2::cache_hint.b32 [%d2], %r4, %d5;"""
    out = np.ones(32, np.uint32)
    one(code, out, head=".shared .align 16 .b8 buffer[128];")
    np.testing.assert_array_equal(out, 2 + np.arange(32))


CHAIN = """
  ld.param.b64 %d1, [x]; ld.param.b64 %d2, [y]; mov.u32 %r1, %tid.x; mad.wide.u32 %d1, %r1, 4, %d1;
  mad.wide.u32 %d2, %r1, 4, %d2; BEFORE griddepcontrol.launch_dependents; griddepcontrol.wait; ld.global.b32 %r2, [%d1];
  st.global.b32 [%d2], %r2;"""


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("ld.global.b32 %r3, [%d1];", "read of global memory that a kernel has written, before griddepcontrol.wait"),
        ("st.global.b32 [%d2], 5;", "write to global memory before griddepcontrol.wait"),
        ("red.global.add.u32 [%d2], 5;", "write to global memory before griddepcontrol.wait"),
        ("ld.global.b32 %r3, [%d2];", ""),
        ("ld.global.nc.b32 %r3, [%d2];", ""),
        ("griddepcontrol.wait; ld.global.nc.b32 %r3, [%d1];", r"ld\.global\.nc of memory that a kernel has written"),
        ("setp.ge.u32 %p1, %r1, 32; @%p1 griddepcontrol.wait; bar.sync 0; ld.global.b32 %r3, [%d1];", ""),
        ("setp.ge.u32 %p1, %r1, 32; @%p1 griddepcontrol.wait; ld.global.b32 %r3, [%d1];", "before griddepcontrol.wait"),
    ],
)
def test_chains_wait_before_they_touch_what_kernels_write(before: str, message: str) -> None:
    """y of the first kernel is x of the second; only what no kernel writes may be read before the wait."""
    x, y, z = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    memory = DeviceMemory()
    for array in (x, y, z):
        memory.register(array)
    first, second = (
        load(module_text(CHAIN.replace("BEFORE", code), ["x", "y"], chip="sm_90")) for code in ("", before)
    )
    first.launch("kernel", grid=(1,), block=(64,), args=[x, y], memory=memory)
    if message:
        with pytest.raises(EmulationError, match=message):
            second.launch("kernel", grid=(1,), block=(64,), args=[y, z], memory=memory)
        return
    second.launch("kernel", grid=(1,), block=(64,), args=[y, z], memory=memory)
    np.testing.assert_array_equal(z, x)


def test_some_thread_waits_for_the_kernels_before() -> None:
    """A kernel that never waits may end before those ahead of it: who waits for it alone then waits for too little."""
    x = np.zeros(64, np.uint32)
    code = "setp.gt.u32 %p1, %r1, LAST; @%p1 griddepcontrol.wait; @%p1 ld.global.b32 %r2, [%d1];"
    one(code.replace("LAST", "30"), x, chip="sm_90")
    with pytest.raises(EmulationError, match=r"no thread executed griddepcontrol\.wait"):
        one(code.replace("LAST", "31"), x, chip="sm_90")
