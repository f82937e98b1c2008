# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Asynchronous operations of sm_90a in the PTX emulator: mbarriers, bulk and tensor copies, products of warp groups."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx_harness import module_text, run_kernel

from ptx_emulator import DeviceMemory, TensorMap, load
from ptx_emulator.errors import EmulationError
from rlx_mlir.errors import InputError

RNG = np.random.default_rng(13)
HEAD = ".extern .shared .align 1024 .b8 smem[];"


def wait(address: str, parity: str, number: int = 0) -> str:
    """A loop until a phase is over, as LLVM writes it."""
    return f"""{{
  .reg .pred P1;
  AGAIN: mbarrier.try_wait.parity.shared.b64 P1, [{address}], {parity}, 10000000;
  @P1 bra.uni DONE;
  bra.uni AGAIN;
  DONE:
  }}"""


def kernel(body: str, parameters: list[str], maps: int = 0) -> str:
    """A module for sm_90a; the first parameters are tensor maps."""
    text = module_text(body, parameters, chip="sm_90a", head=HEAD)
    listed = ", ".join(f".param .align 64 .b8 map{i}[128]" for i in range(maps))
    return text.replace("kernel(", f"kernel({listed}{', ' if parameters and maps else ''}") if maps else text


def launch(text: str, arguments: list[Any], arrays: list[np.ndarray], threads: int = 128, shared: int = 8192) -> None:
    memory = DeviceMemory()
    for array in arrays:
        memory.register(array)
    load(text).launch("kernel", grid=(1,), block=(threads,), args=arguments, shared_bytes=shared, memory=memory)


# A ring of two stages: thread 0 of warp 4 copies in, 128 threads read and arrive.
RING = f"""
  ld.param.b64 %d1, [x]; ld.param.b64 %d2, [out]; ld.param.b32 %r20, [n];
  mov.u32 %r1, %tid.x; setp.ne.b32 %p1, %r1, 0; @%p1 bra READY;
  mbarrier.init.shared.b64 [smem], 1; mbarrier.init.shared.b64 [smem+8], 1;
  mbarrier.init.shared.b64 [smem+16], 4; mbarrier.init.shared.b64 [smem+24], 4;
  fence.mbarrier_init.release.cluster;
READY:
  bar.sync 0;
  mov.b32 %r2, 0; mov.b32 %r3, 0; mov.b32 %r30, smem;
  setp.ge.u32 %p2, %r1, 128; @%p2 bra PRODUCE;
CONSUME:
  and.b32 %r4, %r2, 1; shl.b32 %r5, %r4, 3; add.s32 %r5, %r5, %r30; shr.u32 %r6, %r2, 1; and.b32 %r6, %r6, 1;
  {wait("%r5", "%r6")}
  shl.b32 %r7, %r4, 9; shl.b32 %r8, %r1, 2; add.s32 %r7, %r7, %r8; add.s32 %r7, %r7, %r30;
  ld.shared.b32 %r9, [%r7+1024]; add.u32 %r3, %r3, %r9;
  and.b32 %r10, %r1, 31; setp.eq.b32 %p3, %r10, 0;
  @%p3 mbarrier.arrive.shared.b64 %d9, [%r5+16];
  add.s32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, %r20; @%p4 bra CONSUME;
  mad.wide.u32 %d2, %r1, 4, %d2; st.global.b32 [%d2], %r3; bra.uni END;
PRODUCE:
  setp.ne.b32 %p5, %r1, 128; @%p5 bra END;
FILL:
  and.b32 %r4, %r2, 1; shl.b32 %r5, %r4, 3; add.s32 %r5, %r5, %r30; shr.u32 %r6, %r2, 1; and.b32 %r6, %r6, 1;
  xor.b32 %r6, %r6, 1;
  add.s32 %r11, %r5, 16;
  {wait("%r11", "%r6")}
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 512;
  shl.b32 %r7, %r4, 9; add.s32 %r7, %r7, %r30; add.s32 %r7, %r7, 1024;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%d1], 512, [%r5];
  add.s64 %d1, %d1, 512; add.s32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, %r20; @%p4 bra FILL;
END:"""


def run_ring(text: str, steps: int = 7) -> tuple[np.ndarray, np.ndarray]:
    x, out = RNG.integers(0, 1000, (steps, 128), dtype=np.uint32), np.zeros(128, np.uint32)
    launch(text, [x, out, steps], [x, out], 160)
    return out, x.sum(axis=0)


def test_a_ring_of_bulk_copies() -> None:
    for steps in (1, 2, 3, 7):
        out, want = run_ring(kernel(RING, ["x", "out", "n"]), steps)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fence.mbarrier_init.release.cluster;", "", "initialised without a fence after it"),
        ("bar.sync 0;", "", "no mbarrier was initialised|without a barrier after its initialisation"),
        (wait("%r5", "%r6"), "", "never written|wasn't waited for is writing"),
        (wait("%r11", "%r6"), "", "wasn't waited for|expects 0 more of 1|race"),
        (
            "@%p3 mbarrier.arrive",
            "mbarrier.arrive",
            "128 arrivals at the mbarrier at byte 16, whose phase expects 4 more",
        ),
        ("[smem+16], 4;", "[smem+16], 5;", r"deadlock(.|\n)*for the mbarrier at byte"),
        ("b64 _, [%r5], 512;", "b64 _, [%r5], 528;", r"deadlock(.|\n)*0 of 1 arrivals and 16 bytes are missing"),
        ("[%d1], 512, [%r5]", "[%d1], 520, [%r5]", "all must be multiples of 16"),
        ("[smem], 1;", "[smem], 0;", "expects 1 to 1048575 arrivals, not 0"),
        ("[smem+8], 1;", "[smem+4], 1;", "isn't a multiple of 8"),
        ("ld.shared.b32 %r9, [%r7+1024]", "ld.shared.b32 %r9, [%r30+8]", "never written"),
    ],
)
def test_mistakes_with_mbarriers_are_found(old: str, new: str, message: str) -> None:
    assert old in RING
    with pytest.raises(EmulationError, match=message):
        run_ring(kernel(RING.replace(old, new), ["x", "out", "n"]))


def test_polling_mbarriers_ends() -> None:
    """test_wait answers at once; the loop around it goes on when the copy is over."""
    text = kernel(RING.replace("try_wait.parity", "test_wait.parity").replace(", 10000000", ""), ["x", "out", "n"])
    out, want = run_ring(text)
    np.testing.assert_array_equal(out, want)


# Tensor maps ----------------------------------------------------------------------------------------------------------


def tile_kernel(rank: int, size: int, store: bool) -> str:
    """Copies a box at coordinates to shared memory and from there, by threads, to `out`; or the other way."""
    places = ", ".join(f"%r{40 + i}" for i in range(rank))
    loads = " ".join(f"ld.param.b32 %r{40 + i}, [n{i}];" for i in range(rank))
    each = f"""mov.b32 %r3, %r1;
MORE: setp.ge.u32 %p3, %r3, {size // 16}; @%p3 bra ENOUGH;
  shl.b32 %r4, %r3, 4; add.s32 %r5, %r30, %r4; mad.wide.u32 %d2, %r3, 16, %d1; TRANSFER
  add.s32 %r3, %r3, 128; bra.uni MORE;
ENOUGH:"""
    vector = "{%r6, %r7, %r8, %r9}"
    if store:
        each = each.replace("TRANSFER", f"ld.global.v4.b32 {vector}, [%d2]; st.shared.v4.b32 [%r5+1024], {vector};")
        body = f"""{each}
  fence.proxy.async.shared::cta; bar.sync 0; setp.ne.b32 %p1, %r1, 0; @%p1 bra END;
  cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%d10, {{{places}}}], [smem+1024];
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:"""
    else:
        each = each.replace("TRANSFER", f"ld.shared.v4.b32 {vector}, [%r5+1024]; st.global.v4.b32 [%d2], {vector};")
        body = f"""
  setp.ne.b32 %p1, %r1, 0; @%p1 bra READY; mbarrier.init.shared.b64 [smem], 1; fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [smem], {size};
  cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [smem+1024], [%d10,
  {{{places}}}], [smem];
READY: bar.sync 0;
  {wait("smem", "0")}
  {each}"""
    start = f"""ld.param.b64 %d1, [out]; mov.u32 %r1, %tid.x; mov.b32 %r30, smem; mov.b64 %d9, map0;
  cvta.param.u64 %d10, %d9; {loads}\n"""
    return kernel(start + body, ["out", *(f"n{i}" for i in range(rank))], 1)


def swizzle(rows: np.ndarray, span: int) -> np.ndarray:
    """Rows of `span` bytes with their 16-byte pieces permuted as in shared memory: within 8 rows of 128 bytes."""
    pieces = rows.reshape(-1, 16)
    number = np.arange(len(pieces))
    line = number * 16 // 128
    return pieces[number ^ (line % {32: 2, 64: 4, 128: 8}[span])].reshape(rows.shape)


CASES = [
    # shape outermost first, box innermost first, coordinates innermost first, swizzle
    ((40,), (16,), (8,), 0),
    ((37,), (16,), (30,), 0),
    ((33, 64), (64, 8), (0, 16), 128),
    ((33, 64), (32, 16), (32, 24), 64),
    ((33, 48), (16, 16), (32, -5), 32),
    ((33, 64), (64, 16), (-8, 25), 128),
    ((5, 9, 32), (32, 4, 3), (0, 7, 3), 64),
    ((3, 4, 5, 16), (8, 2, 2, 2), (8, 4, -1, 2), 0),
    ((2, 3, 4, 5, 16), (16, 2, 2, 2, 2), (0, 3, 3, 2, 1), 32),
]


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize(("shape", "box", "place", "span"), CASES)
def test_tensor_copies(
    shape: tuple[int, ...], box: tuple[int, ...], place: tuple[int, ...], span: int, store: bool
) -> None:
    # Rows are padded, so that strides are multiples of 16 that no size gives.
    width = -(-shape[-1] // 8) * 8 + 8
    whole = RNG.integers(1, 1 << 16, (*shape[:-1], width)).astype(np.uint16)
    tensor = whole[..., : shape[-1]]
    size = int(np.prod(box)) * 2
    chosen = TensorMap.of(tensor, box, dtype="u16", swizzle=span)
    reversed_box = box[::-1]
    index = np.meshgrid(*(p + np.arange(n) for p, n in zip(place[::-1], reversed_box, strict=True)), indexing="ij")
    inside = np.all([(i >= 0) & (i < n) for i, n in zip(index, shape, strict=True)], axis=0)
    clipped = tuple(np.clip(i, 0, n - 1) for i, n in zip(index, shape, strict=True))
    text = tile_kernel(len(shape), size, store)
    if not store:
        want = np.where(inside, tensor[clipped], 0).astype(np.uint16).reshape(-1).view(np.uint8)
        out = np.zeros(size, np.uint8)
        launch(text, [chosen, out, *place], [whole, out], shared=1024 + size)
        np.testing.assert_array_equal(out, swizzle(want, span) if span else want)
        return
    data = RNG.integers(1, 1 << 16, reversed_box).astype(np.uint16)
    image = data.reshape(-1).view(np.uint8)
    want_whole = whole.copy()
    want_whole[..., : shape[-1]][tuple(i[inside] for i in clipped)] = data[inside]
    image = swizzle(image, span) if span else image
    launch(text, [chosen, np.ascontiguousarray(image), *place], [whole, image], shared=1024 + size)
    np.testing.assert_array_equal(whole, want_whole)


def test_maps_are_read_as_written() -> None:
    for shape, box, _, span in CASES:
        chosen = TensorMap.of(np.zeros((*shape[:-1], 64), np.uint16)[..., : shape[-1]], box, dtype="bf16", swizzle=span)
        data = chosen.to_bytes()
        assert len(data) == 128
        assert TensorMap.from_bytes(data).to_bytes() == data


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"address": 8}, "'address' expects a multiple of 16"),
        ({"strides": (24,)}, "'strides' expects multiples of 16"),
        ({"box": (4, 8)}, "'box' expects rows of a multiple of 16 bytes"),
        ({"box": (128, 8)}, "'box' expects rows of at most 128 bytes"),
        ({"box": (64, 300)}, "'box' expects 1 to 256"),
        ({"sizes": (0, 3)}, "'sizes' expects 1 to"),
        ({"swizzle": 16}, "'swizzle' expects 0, 32, 64 or 128"),
        ({"dtype": "f8"}, "'dtype' expects one of"),
    ],
)
def test_maps_that_the_driver_refuses(changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "dtype": "f16",
        "address": 4096,
        "sizes": (64, 8),
        "strides": (128,),
        "box": (64, 8),
        "swizzle": 128,
    }
    TensorMap(**good)
    with pytest.raises(InputError, match=message):
        TensorMap(**{**good, **changes})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fence.proxy.async.shared::cta;", "", "without fence.proxy.async after it"),
        # One thread fences, but doesn't know yet of what the other warps wrote.
        (
            "fence.proxy.async.shared::cta;",
            "setp.eq.b32 %p4, %r1, 0; @%p4 fence.proxy.async;",
            "without fence.proxy.async",
        ),
        ("bar.sync 0;", "", "never written|race in shared memory"),
        ("cp.async.bulk.wait_group 0;", "", "ends without waiting for its bulk copies"),
        ("cp.async.bulk.commit_group;", "", "ends without waiting for its bulk copies"),
        ("[smem+1024];\n", "[smem+1040];\n", "isn't a multiple of 128"),
        (
            "cp.async.bulk.wait_group 0;",
            "st.shared.b32 [smem+1024], 0; cp.async.bulk.wait_group 0;",
            "wasn't waited for",
        ),
    ],
)
def test_mistakes_with_tensor_stores_are_found(old: str, new: str, message: str) -> None:
    whole, image = np.zeros((8, 64), np.uint16), np.ones(1024, np.uint8)
    text = tile_kernel(2, 1024, True)
    assert old in text
    chosen = TensorMap.of(whole, (64, 8), dtype="u16", swizzle=128)
    with pytest.raises(EmulationError, match=message):
        launch(text.replace(old, new), [chosen, image, 0, 0], [whole, image], shared=2048 + 16)


def test_one_thread_may_fence_after_a_barrier() -> None:
    whole, image = np.zeros((8, 64), np.uint16), np.ones(1024, np.uint8)
    text = tile_kernel(2, 1024, True).replace("fence.proxy.async.shared::cta;", "")
    text = text.replace("cp.async.bulk.tensor", "fence.proxy.async; cp.async.bulk.tensor")
    launch(text, [TensorMap.of(whole, (64, 8), dtype="u16"), image, 0, 0], [whole, image], shared=2048)
    assert (whole == 0x0101).all()


def test_copies_over_what_threads_wrote_need_a_fence() -> None:
    text = kernel(
        RING.replace("mov.b32 %r2, 0;", "st.shared.b32 [smem+1024], 1; mov.b32 %r2, 0;", 1), ["x", "out", "n"]
    )
    with pytest.raises(EmulationError, match=r"writes over what threads wrote|race"):
        run_ring(text)


def test_tensor_copies_stay_in_registered_memory() -> None:
    whole, out = np.zeros((8, 64), np.uint16), np.zeros(1024, np.uint8)
    longer = TensorMap("u16", whole.ctypes.data, (64, 9), (128,), (64, 8), 128)
    launch(tile_kernel(2, 1024, False), [longer, out, 0, 0], [whole, out], shared=2048)
    with pytest.raises(
        EmulationError, match=r"(?s)a tensor map reaches .* outside of every registered range.*cp.async"
    ):
        launch(tile_kernel(2, 1024, False), [longer, out, 0, 1], [whole, out], shared=2048)
    with pytest.raises(EmulationError, match=r"aren't a tensor map|zeros, as for a tensor"):
        launch(tile_kernel(2, 1024, False), [bytes(128), out, 0, 1], [whole, out], shared=2048)


def test_bulk_reductions() -> None:
    out = np.full((8, 64), 2, np.float16)
    image = np.full((8, 64), 0.5, np.float16)
    text = tile_kernel(2, 1024, True).replace("cp.async.bulk.tensor.2d", "cp.reduce.async.bulk.tensor.2d")
    text = text.replace("shared::cta.tile.bulk_group", "shared::cta.add.tile.bulk_group")
    launch(text, [TensorMap.of(out, (64, 8), dtype="f16"), image, 0, 0], [out, image], shared=2048)
    assert (out == 2.5).all()


# Products of warp groups ----------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[Any, str, Any]] = {
    "f16": (np.float16, "f32", np.float32),
    "f16 sums": (np.float16, "f16", np.float16),
    "bf16": (ml_dtypes.bfloat16, "f32", np.float32),
    "e4m3": (ml_dtypes.float8_e4m3fn, "f32", np.float32),
    "s8": (np.int8, "s32", np.int32),
}


def image_of(matrix: np.ndarray, span: int, transposed: bool) -> tuple[np.ndarray, int, int]:
    """A matrix ``[rows, 32 bytes of k]`` as it lies in shared memory for wgmma, with its leading and stride offsets.

    Without a swizzle it is blocks of 8 rows of 16 bytes; else rows of `span` bytes, of which the first 32 are used.
    Transposed, rows are those of k, and what lies along them are the matrix's rows.
    """
    rows = np.ascontiguousarray(matrix.T if transposed else matrix).view(np.uint8)
    count, width = rows.shape
    if span == 0:
        blocks = rows.reshape(count // 8, 8, width // 16, 16)
        if transposed:  # k first within a block, then along the rows, then along k
            return blocks.transpose(0, 2, 1, 3).reshape(-1), 128 * (width // 16), 128
        return blocks.transpose(2, 0, 1, 3).reshape(-1), 128 * (count // 8), 128
    padded = np.zeros((count, -(-width // span) * span), np.uint8)
    padded[:, :width] = rows
    if not transposed:
        return swizzle(padded.reshape(-1), span), 16, 8 * span
    parts = padded.reshape(count, -1, span).transpose(1, 0, 2)
    return swizzle(np.ascontiguousarray(parts).reshape(-1), span), count * span, 8 * span


def descriptor(start: int, leading: int, stride: int, span: int) -> int:
    mode = {0: 0, 128: 1, 64: 2, 32: 3}[span]
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62


def product_kernel(
    kind: str, sums: str, columns: int, *, trans: str, registers: bool = False, scale: str = "1, 1"
) -> str:
    """D += A B of one warp group; A and B are images that threads copy to shared memory."""
    words = columns // 4 if sums == "f16" else columns // 2
    depth = 32 if kind in ("e4m3", "s8") else 16
    accumulators = ", ".join(f"%e{i}" for i in range(words))
    load_, store_ = (
        " ".join(f"{op}" for op in (template.format(i, 4 * i) for i in range(words)))
        for template in ("ld.global.b32 %e{0}, [%d4+{1}];", "st.global.b32 [%d4+{1}], %e{0};")
    )
    source = "{%r40, %r41, %r42, %r43}" if registers else "%d5"
    immediates = "" if kind == "s8" else f", {scale}" + (f", {trans}" if trans else "")
    body = f"""
  .reg .b32 %e<128>;
  ld.param.b64 %d1, [image]; ld.param.b64 %d2, [d]; ld.param.b64 %d3, [descriptors]; ld.param.b32 %r20, [n];
  mov.u32 %r1, %tid.x; mov.b32 %r30, smem; mov.b32 %r3, %r1;
MORE: shl.b32 %r4, %r3, 4; add.s32 %r5, %r30, %r4; mad.wide.u32 %d9, %r3, 16, %d1;
  ld.global.v4.b32 {{%r6, %r7, %r8, %r9}}, [%d9]; st.shared.v4.b32 [%r5], {{%r6, %r7, %r8, %r9}};
  add.s32 %r3, %r3, 128; setp.lt.u32 %p3, %r3, %r20; @%p3 bra MORE;
  fence.proxy.async; bar.sync 0;
  ld.global.b64 %d5, [%d3]; ld.global.b64 %d6, [%d3+8];
  mad.wide.u32 %d7, %r1, 16, %d3; ld.global.v4.b32 {{%r40, %r41, %r42, %r43}}, [%d7+16];
  mad.wide.u32 %d4, %r1, {4 * words}, %d2; {load_}
  setp.ne.b32 %p1, 1, 0;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{sums}.{kind}.{kind} {{{accumulators}}}, {source}, %d6,
  %p1{immediates};
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  {store_}"""
    return kernel(body, ["image", "d", "descriptors", "n"])


def fragments(matrix: np.ndarray) -> np.ndarray:
    """A matrix of 64 rows as lanes of a warp group hold it: thread t has row t / 4 of its warp's, and eight below."""
    result = []
    for thread in range(128):
        row, column = 16 * (thread // 32) + thread % 32 // 4, 2 * (thread % 4)
        for start in range(0, matrix.shape[1], 8):
            for below in (0, 8):
                result += [matrix[row + below, start + column], matrix[row + below, start + column + 1]]
    return np.array(result, matrix.dtype)


@pytest.mark.parametrize("columns", [8, 64, 256])
@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.quick(11)
def test_products_of_warp_groups(name: str, span: int, columns: int) -> None:
    check_product(name, span, columns, (False, False))


@pytest.mark.parametrize("transposed", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_transposed_products(span: int, transposed: tuple[bool, bool]) -> None:
    check_product("bf16", span, 128, transposed)


@pytest.mark.parametrize(("span", "columns"), [(32, 80), (64, 96), (64, 224)])
def test_transposed_products_of_whole_boxes(span: int, columns: int) -> None:
    check_product("bf16", span, columns, (False, True))


@pytest.mark.parametrize(("span", "columns"), [(64, 80), (128, 80), (128, 224)])
def test_transposed_matrices_are_whole_boxes(span: int, columns: int) -> None:
    """PTX defines layouts along N by whole boxes alone."""
    with pytest.raises(EmulationError, match=rf"a transposed matrix of {columns} elements has lines"):
        check_product("bf16", span, columns, (False, True))


def check_product(name: str, span: int, columns: int, transposed: tuple[bool, bool]) -> None:
    dtype, sums, result = KINDS[name]
    kind = name.split()[0]
    depth = 32 // np.dtype(dtype).itemsize
    a, b = (RNG.integers(-4, 5, (rows, depth)).astype(dtype) for rows in (64, columns))
    c = RNG.integers(-4, 5, (64, columns)).astype(result)
    first, second = image_of(a, span, transposed[0]), image_of(b, span, transposed[1])
    place = -(-len(first[0]) // 1024) * 1024
    image = np.zeros(-(-(place + len(second[0])) // 2048) * 2048, np.uint8)
    image[: len(first[0])], image[place : place + len(second[0])] = first[0], second[0]
    # Shared memory starts at 1024 in the window of addresses.
    words = np.array([descriptor(1024, *first[1:], span), descriptor(1024 + place, *second[1:], span)], np.uint64)
    d = fragments(c)
    extra = np.concatenate([words.view(np.uint8), np.zeros(2048, np.uint8)])
    trans = "" if kind in ("e4m3", "s8") else f"{int(transposed[0])}, {int(transposed[1])}"
    text = product_kernel(kind, sums, columns, trans=trans)
    launch(text, [image, d, extra, len(image) // 16], [image, d, extra], shared=len(image))
    want = a.astype(np.float64) @ b.astype(np.float64).T + c.astype(np.float64)
    np.testing.assert_array_equal(d, fragments(want.astype(result)))


def test_products_of_registers_and_signs() -> None:
    a, b = (RNG.integers(-4, 5, (rows, 16)).astype(np.float16) for rows in (64, 32))
    image, leading, stride = image_of(b, 128, False)
    words = np.array([0, descriptor(1024, leading, stride, 128)], np.uint64)
    # Register j of A holds rows below for odd j, and columns from 8 on for j of 2 and 3.
    registers = []
    for thread in range(128):
        row, column = 16 * (thread // 32) + thread % 32 // 4, 2 * (thread % 4)
        for down, right in ((0, 0), (8, 0), (0, 8), (8, 8)):
            registers += a[row + down, column + right : column + right + 2].tolist()
    extra = np.concatenate([words.view(np.uint8), np.array(registers, np.float16).view(np.uint8)])
    d = np.zeros(64 * 32, np.float32)
    text = product_kernel("f16", "f32", 32, trans="0", registers=True, scale="-1, 1")
    launch(text, [image, d, extra, len(image) // 16], [image, d, extra], shared=len(image))
    np.testing.assert_array_equal(d, fragments(-(a.astype(np.float32) @ b.astype(np.float32).T)))


def test_every_use_of_registers_needs_a_fence() -> None:
    """After a wait, accumulators are registers again: the next product needs a fence of its own."""
    image, leading, stride = image_of(np.ones((96, 16), np.float16), 128, False)
    words = np.array([descriptor(1024, leading, stride, 128)] * 2, np.uint64)
    extra, d = np.concatenate([words.view(np.uint8), np.zeros(2048, np.uint8)]), np.zeros(64 * 32, np.float32)
    text = product_kernel("f16", "f32", 32, trans="0, 0")
    start, end = text.index("wgmma.fence"), text.index("aligned 0;") + len("aligned 0;")
    once = text[start:end]
    launch(text.replace(once, once + once), [image, d, extra, len(image) // 16], [image, d, extra], shared=len(image))
    assert (d == 32).all()
    twice = once + once.replace("wgmma.fence.sync.aligned;", "")
    with pytest.raises(EmulationError, match=r"wgmma\.fence is missing"):
        launch(text.replace(once, twice), [image, d, extra, len(image) // 16], [image, d, extra], shared=len(image))


def test_registers_that_products_read_stay() -> None:
    image, leading, stride = image_of(np.ones((32, 16), np.float16), 128, False)
    words = np.array([0, descriptor(1024, leading, stride, 128)], np.uint64)
    extra, d = np.concatenate([words.view(np.uint8), np.zeros(2048, np.uint8)]), np.zeros(64 * 32, np.float32)
    text = product_kernel("f16", "f32", 32, trans="0", registers=True)
    text = text.replace("wgmma.wait_group", "mov.b32 %r42, 0; wgmma.wait_group")
    with pytest.raises(EmulationError, match="a register that wgmma reads is written before"):
        launch(text, [image, d, extra, len(image) // 16], [image, d, extra], shared=len(image))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("wgmma.wait_group.sync.aligned 0;", "", "an accumulator is read before wgmma.wait_group"),
        ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", "an accumulator is read before"),
        ("wgmma.commit_group.sync.aligned;", "", "an accumulator is read before wgmma.wait_group"),
        ("wgmma.fence.sync.aligned;", "", "wgmma.fence is missing"),
        ("fence.proxy.async; bar.sync 0;", "bar.sync 0;", "threads wrote without fence.proxy.async after it"),
        ("fence.proxy.async; bar.sync 0;", "fence.proxy.async;", "race in shared memory: an asynchronous read of byte"),
        (
            "wgmma.wait_group.sync.aligned 0;",
            "mov.b32 %e0, 0; wgmma.wait_group.sync.aligned 0;",
            "an accumulator is written",
        ),
        (
            "wgmma.commit_group.sync.aligned;",
            "wgmma.commit_group.sync.aligned; mov.b32 %e9, %e8;",
            "an accumulator is written",
        ),
        ("wgmma.commit_group", "st.shared.b32 [smem], 0; wgmma.commit_group", "race|wasn't waited for"),
    ],
)
def test_mistakes_with_products_are_found(old: str, new: str, message: str) -> None:
    b = np.ones((32, 16), np.float16)
    image, leading, stride = image_of(np.concatenate([b, b, b]), 128, False)
    words = np.array([descriptor(1024, leading, stride, 128)] * 2, np.uint64)
    extra, d = np.concatenate([words.view(np.uint8), np.zeros(2048, np.uint8)]), np.zeros(64 * 32, np.float32)
    text = product_kernel("f16", "f32", 32, trans="0, 0")
    assert old in text
    launch(text, [image, d, extra, len(image) // 16], [image, d, extra], shared=len(image))
    assert (d == 16).all()
    with pytest.raises(EmulationError, match=message):
        launch(text.replace(old, new, 1), [image, d, extra, len(image) // 16], [image, d, extra], shared=len(image))


def test_accumulators_may_move_while_in_flight() -> None:
    """As LLVM does at the ends of loops: a copy of an accumulator in flight is the accumulator."""
    b = np.ones((32, 16), np.float16)
    image, leading, stride = image_of(np.concatenate([b, b]), 128, False)
    words = np.array([descriptor(1024, leading, stride, 128)] * 2, np.uint64)
    extra, d = np.concatenate([words.view(np.uint8), np.zeros(2048, np.uint8)]), np.zeros(64 * 32, np.float32)
    text = product_kernel("f16", "f32", 32, trans="0, 0")
    product = re.findall(r"wgmma\.mma_async[^;]*;", text)[0]
    moved = "\n".join(f"mov.b32 %e{i + 64}, %e{i};" for i in range(16))
    again = re.sub(r"\{[^}]*\}", "{" + ", ".join(f"%e{i + 64}" for i in range(16)) + "}", product, count=1)
    back = "\n".join(f"mov.b32 %e{i}, %e{i + 64};" for i in range(16))
    wait_ = "wgmma.wait_group.sync.aligned 0;"
    text = text.replace(product, f"{product}\n{moved}\n{again}").replace(wait_, f"{wait_}\n{back}")
    launch(text, [image, d, extra, len(image) // 16], [image, d, extra], shared=len(image))
    assert (d == 32).all()


def test_blocks_of_a_cluster_share_memory() -> None:
    """Each block writes to the next one's memory, and reads what came to its own after the cluster's barrier."""
    body = """
  ld.param.b64 %d1, [out]; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %ctaid.x; mov.u32 %r9, %tid.x;
  add.s32 %r3, %r1, 1; and.b32 %r3, %r3, 3; mov.b32 %r4, smem; mapa.shared::cluster.u32 %r5, %r4, %r3;
  setp.ne.b32 %p1, %r9, 0; @!%p1 st.shared::cluster.b32 [%r5], %r2;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ld.shared.b32 %r6, [smem]; mad.wide.u32 %d1, %r2, 4, %d1; @!%p1 st.global.b32 [%d1], %r6;
  barrier.cluster.arrive; barrier.cluster.wait;"""
    out = np.zeros(8, np.uint32)
    text = kernel(body, ["out"]).replace("\n{\n", "\n.reqnctapercluster 4, 1, 1\n{\n", 1)
    run_kernel(text, [out], grid=(8,), shared_bytes=16)
    assert out.tolist() == [3, 0, 1, 2, 7, 4, 5, 6]
