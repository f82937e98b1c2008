# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What schedules are written with: the emitter of kernels, the host's part, epilogues."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from gpu_harness import assemble

from ptx_emulator import DeviceMemory, load
from rlx_mlir import ir
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Value, memref, pointer, tensor_map, vec
from rlx_mlir.codegen.gpu.epilogue import Epilogue, exp, sigmoid
from rlx_mlir.codegen.gpu.kernel import HostEmitter, Numbers, Scratch, write_device_kernel
from rlx_mlir.codegen.gpu.tma_ring import Slot, TmaRing
from rlx_mlir.codegen.program import SWIGLU, Argument, Program, Step
from rlx_mlir.errors import InputError
from rlx_mlir.lowering.gpu.ptx import ptx_of
from rlx_mlir.lowering.gpu.schedules import SHARED_MEMORY
from rlx_mlir.rewriting import run_pipeline


def ptx_text(em: DeviceEmitter, host: str = "") -> str:
    """The PTX of the kernels that an emitter holds."""
    device = f"gpu.module @kernels {{\n{SHARED_MEMORY}\n{em.text()}}}"
    with ir.new_context(), ir.Location.unknown():
        module = ir.Module.parse(f"module attributes {{gpu.container_module}} {{\n{device}\n{host}\n}}")
        run_pipeline(module, f"rlx-gpu-to-nvvm,gpu-emit-ptx{{chip={em.chip}}}")
        return ptx_of(module)


def launch(em: DeviceEmitter, name: str, arguments: Sequence[object], *, threads: int, grid: int = 1) -> None:
    """Runs a kernel in the emulator; arrays are read and written in place."""
    memory = DeviceMemory()
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            memory.register(argument)
    kernels = load(ptx_text(em))
    kernels.launch(name, grid=(grid,), block=(threads,), args=list(arguments), shared_bytes=4096, memory=memory)


def every_instruction(em: DeviceEmitter) -> None:
    """A kernel that calls each method for the emitter's chip."""
    hopper, exact = em.sm >= 90, em.chip == "sm_90a"
    parameters = [pointer("x", readonly=True), pointer("y"), ("n", "i32"), *([tensor_map("t")] if hopper else [])]
    with em.kernel("all", parameters, 256, min_blocks=1) as (x, y, n, *maps):
        em.launch_dependents()
        em.wait_dependencies()
        place = em.at(em.shared(), em.thread() * 16, "i8")
        em.cp_async(place, em.at(x, em.thread(), "f32"))
        em.cp_async(place, x, 4)
        em.cp_async(place, x, 16, count=n)
        em.cp_async_commit()
        em.cp_async_wait(0)
        em.barrier()
        em.barrier(1, 128)
        em.warp_sync()
        a, b, single = em.ldmatrix(place), em.ldmatrix(place, 2, transpose=True), em.ldmatrix(place, 1)
        c = em.mma("bf16", a, b, [em.zero("f32")] * 4)
        c = em.mma("tf32", a, b, em.mma("f16", a, b, c))
        c = em.mma("tf32", a[:2], single, c, 4)
        d = em.mma("s8", a, b, [em.zero("i32")] * 4)
        k = em.dp4a(a[0], b[0], em.dp4a(a[0], b[0], d[0]), signed=(False, True))
        low, high = em.unpack(em.pack(c[0], c[1], "bf16"), "f16")
        with em.loop(0, n, 1, low + high) as loop:
            loop.yield_(em.warp_reduce("add", loop.carry, 8, stride=4))
        em.st(em.ld_if(em.cmpi("slt", n, 3), x, vec(4, "f32"), 4), y, em.thread() * 4)
        em.st(loop.result + em.cast("arith.sitofp", k, "f32"), y, em.wide(em.thread()))
        if hopper:
            bulk_copies(em, x, maps[0], n, place, a)
        if exact:
            warp_groups(em, a, y)


def bulk_copies(em: DeviceEmitter, x: Value, map: Value, n: Value, place: Value, a: list[Value]) -> None:
    barrier = em.shared(1024)
    em.tma_prefetch(map)
    with em.if_(em.elect()):
        em.mbarrier_init(barrier, 1)
        em.mbarrier_fence()
    em.mbarrier_expect(barrier, 1024)
    em.tma_load(em.shared(2048), map, [0, n], barrier)
    em.bulk_load(em.shared(2048), x, 512, barrier)
    em.mbarrier_wait(barrier, TmaRing(em, barrier, 4, 0, 32).advance(Slot(n, n)).phase)
    em.mbarrier_arrive(barrier)
    em.stmatrix(place, a)
    em.fence_async()
    em.tma_store(map, em.shared(2048), [0, n])
    em.bulk_commit()
    em.bulk_wait(0, read=True)


def warp_groups(em: DeviceEmitter, a: list[Value], y: Value) -> None:
    matrix = em.wgmma_descriptor(em.address(em.shared()), 16, 1024)
    em.wgmma_fence()
    sums = em.wgmma("bf16", 64, matrix, matrix, em.struct([em.zero("f32")] * 32), first=True)
    em.wgmma_commit()
    values = em.wgmma_wait_tied(0, em.fields(sums, ["f32"] * 32))
    em.wgmma_fence()
    values = em.wgmma_registers("bf16", 64, a, matrix, values)
    em.wgmma_commit()
    em.st(em.tree("add", em.wgmma_wait_tied(0, values)), y, em.thread())


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_90a", "sm_120"])
def test_every_instruction_assembles(chip: str) -> None:
    em = DeviceEmitter(chip)
    every_instruction(em)
    ptx = ptx_text(em)
    for word in ("ld.global", "cp.async.cg", "ldmatrix", "mma.sync", "dp4a", "shfl.sync.bfly"):
        assert word in ptx
    assert ("mbarrier.try_wait" in ptx) is (em.sm >= 90)
    assert ("wgmma.mma_async" in ptx) is (chip == "sm_90a")
    assemble(ptx, chip)


def test_instructions_that_a_chip_lacks_are_refused() -> None:
    em = DeviceEmitter("sm_89")
    for call in (em.elect, em.fence_async, em.mbarrier_fence):
        with pytest.raises(UnsupportedByTemplate, match="needs sm_90, but the chip is sm_89"):
            call()
    with pytest.raises(UnsupportedByTemplate, match=r"wgmma needs sm_90a, but the chip is sm_90$"):
        DeviceEmitter("sm_90").wgmma_fence()
    with pytest.raises(InputError, match="did you mean"):
        DeviceEmitter("sm_90b")


@pytest.mark.parametrize("threads", [32, 96, 256])
@pytest.mark.parametrize(("kind", "expected"), [("add", np.sum), ("max", np.max), ("min", np.min)])
def test_reductions_of_blocks(threads: int, kind: str, expected: object) -> None:
    em = DeviceEmitter("sm_80")
    with em.kernel("reduce", [pointer("x"), pointer("y")], threads) as (x, y):
        value = em.ld(x, "f32", em.thread())
        first = em.block_reduce(kind, value, em.shared(), threads)
        # The same memory again: what is read before must not be overwritten.
        em.st(em.block_reduce("max", first - value, em.shared(), threads), y, em.thread())
    x = np.random.default_rng(0).integers(-50, 50, threads).astype(np.float32)
    y = np.empty(threads, np.float32)
    launch(em, "reduce", [x, y], threads=threads)
    assert np.array_equal(y, np.full(threads, np.max(expected(x) - x)))  # type: ignore[operator]


def test_groups_of_lanes() -> None:
    em = DeviceEmitter("sm_80")
    with em.kernel("groups", [pointer("x"), pointer("y")], 32) as (x, y):
        value = em.ld(x, "i32", em.thread())
        em.st(em.warp_reduce("addi", value, 4), y, em.thread())
        em.st(em.warp_reduce("maxsi", value, 8, stride=4), y, em.thread() + 32)
        em.st(em.shuffle_lane("down", value, 1), y, em.thread() + 64)
    x = np.random.default_rng(0).integers(-99, 99, 32).astype(np.int32)
    y = np.empty((3, 32), np.int32)
    launch(em, "groups", [x, y], threads=32)
    assert np.array_equal(y[0], np.repeat(x.reshape(8, 4).sum(1), 4))
    assert np.array_equal(y[1], np.tile(x.reshape(8, 4).max(0), 8))
    assert np.array_equal(y[2], np.append(x[1:], x[-1]))


def test_fast_functions_are_good_to_the_last_digits() -> None:
    em = DeviceEmitter("sm_80")
    with em.kernel("functions", [pointer("x"), pointer("y"), pointer("z")], 256) as (x, y, z):
        at = em.block() * 256 + em.thread()
        value = em.ld(x, "f32", at)
        em.st(exp(em, value), y, at)
        em.st(sigmoid(em, value), z, at)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 89.0, 88.7, -87.0, -103.0, -106.0, 1e30, -1e30]
    x = np.array([*special, *np.linspace(-104, 88, 1024 - len(special))], np.float32)
    y, z = np.empty_like(x), np.empty_like(x)
    launch(em, "functions", [x, y, z], threads=256, grid=4)
    with np.errstate(over="ignore", under="ignore"):
        wide = np.exp(x.astype(np.float64))
        np.testing.assert_allclose(y, wide.astype(np.float32), rtol=6e-7, atol=3e-45)
        np.testing.assert_allclose(
            z, (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32), rtol=8e-7, atol=4e-39
        )


@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("columns", [8, 7, 1])
def test_epilogue_of_a_product(element: str, columns: int) -> None:
    """Bias, residual, a factor a row and one for all, with vectors where rows allow them."""
    steps = (
        Step("add", (("acc", 0), ("arg", 0))),
        Step("relu", (("step", 0),)),
        Step("mul", (("step", 1), ("arg", 2))),
        Step("add", (("step", 2), ("arg", 1))),
        Step("sub", (("step", 3), ("arg", 3))),
    )
    kinds = tuple(Argument(kind) for kind in ("row", "full", "column", "scalar"))  # type: ignore[arg-type]
    program = Program(steps, kinds, (("step", 4), ("step", 1)))
    em = DeviceEmitter("sm_80")
    names = ["acc", "bias", "residual", "factor", "less", "out", "positive"]
    with em.kernel("epilogue", [pointer(name) for name in names], 32) as (acc, *rest):
        epilogue = Epilogue(em, program, element, rest[:4], rest[4:], columns)
        row = em.block()
        with em.loop(0, (columns + 3) // 4) as loop:
            column = em.index(loop.iv * 4)
            # Products lie in rows of 8.
            at = row * 8 + column
            with em.if_(em.cmpi("eq", em.thread(), 0)):
                epilogue.store([[em.ld(acc, "f32", at + lane) for lane in range(4)]], row, column, limit=columns)
    dtype = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[element]
    rng = np.random.default_rng(0)
    acc = rng.standard_normal((3, 8)).astype(np.float32)
    bias, residual, factor, less = (
        rng.standard_normal(shape).astype(dtype) for shape in ((columns,), (3, columns), (3, 1), (1,))
    )
    out, positive = np.empty((3, columns), dtype), np.empty((3, columns), dtype)
    arrays = [acc, bias, residual, factor, less, out, positive]
    views = [array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array for array in arrays]
    launch(em, "epilogue", views, threads=32, grid=3)
    wide = [array.astype(np.float32) for array in arrays]
    first = np.maximum(acc[:, :columns] + wide[1], 0)
    assert np.array_equal(positive.astype(np.float32), first.astype(dtype).astype(np.float32))
    want = (first * wide[3] + wide[2] - wide[4]).astype(dtype).astype(np.float32)
    np.testing.assert_allclose(out.astype(np.float32), want, rtol=1e-6 if element == "f32" else 1e-2, atol=1e-6)


def test_two_products_become_one() -> None:
    em = DeviceEmitter("sm_80")
    with em.kernel("swiglu", [pointer("gate"), pointer("up"), pointer("out")], 32) as (gate, up, out):
        epilogue = Epilogue(em, SWIGLU, "f32", [], [out], 32)
        values = [[em.ld(side, "f32", em.thread())] for side in (gate, up)]
        epilogue.store(values, 0, em.thread())
    gate, up = (np.linspace(low, 5, 32, dtype=np.float32) for low in (-88, -3))
    out = np.empty(32, np.float32)
    launch(em, "swiglu", [gate, up, out], threads=32)
    wide = gate.astype(np.float64)
    np.testing.assert_allclose(out, (wide / (1 + np.exp(-wide)) * up).astype(np.float32), rtol=1e-6, atol=1e-38)


def test_host_part_names_what_it_launches() -> None:
    em = DeviceEmitter("sm_90a")
    with em.kernel("copy_0", [pointer("x", constant=True), pointer("y"), ("n", "i32"), tensor_map("m")], 64):
        em.wait_dependencies()

    def host(host: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        rows = host.dim(operands[0], 0)
        parts = scratch.take([rows, 4], "f32")
        map = host.tensor_map(operands[0], [rows, 64], [64, 1], [32, 64], swizzle=128)
        blocks = [host.iceildiv(rows, 32), 2]
        host.launch("copy_0", blocks, 64, [parts, results[0], host.i32(rows), map], shared=2048)

    def scratch(host: HostEmitter, operands: list[Value], parts: Scratch) -> None:
        parts.take([host.dim(operands[0], 0), 4], "f32")

    x, y = (("x", memref((None, 64), "bf16")), ("y", memref((None, 64), "bf16")))
    kernel = write_device_kernel("copy", "copies", [x], [y], em, host, scratch=scratch)
    assert kernel.schedule == "copies"
    with ir.new_context(), ir.Location.unknown():
        text = f"gpu.module @kernels {{\n{kernel.device}}}\n{kernel.host.text}"
        module = ir.Module.parse(f"module attributes {{gpu.container_module}} {{\n{text}}}")
        printed = str(module)
    assert re.search(
        r"blocks in \(%\w+, %c2, %c1\) threads in \(%c64, %c1, %c1\)\s+dynamic_shared_memory_size %c2048", printed
    )
    assert '{rlx.counts = ["n"], rlx.pdl}' in printed
    assert "{llvm.noalias, llvm.readonly}" in printed


@pytest.mark.parametrize(("chip", "chained", "marked"), [("sm_90a", True, 1), ("sm_90a", False, 0), ("sm_80", True, 0)])
def test_launches_of_kernels_that_wait_may_start_early(chip: str, chained: bool, marked: int) -> None:
    em = DeviceEmitter(chip)
    with em.kernel("fill", [pointer("y")], 32, chained=chained) as (y,):
        em.st(em.const(1.0, "f32"), y, em.thread())

    def host(host: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        host.launch("fill", 1, 32, results)

    kernel = write_device_kernel("fill", "fill", [], [("y", memref((32,), "f32"))], em, host)
    assert kernel.device.count("nvvm.griddepcontrol wait") == marked
    assert kernel.host.text.count("rlx.pdl") == marked


def test_numbers_that_a_kernel_reads_have_names_of_their_own() -> None:
    size, other = Value("%a", "index"), Value("%b", "index")
    numbers = Numbers({"rows": size, "axes": [{"size": other}, {"size": 3}, {"size": size}]})
    assert numbers.parameters == [("rows", "i64"), ("n1", "i64"), ("n3", "i64")]
    given = [Value(f"%{name}", "i64") for name, _ in numbers.parameters]
    assert numbers.filled(given) == {"rows": given[0], "axes": [{"size": given[1]}, {"size": 3}, {"size": given[2]}]}


@pytest.mark.parametrize(
    ("box", "swizzle", "message"),
    [([32, 128], 128, "rows of at most 128 bytes, but a box has 256"), ([512, 8], 0, "at most 256 elements a side")],
)
def test_boxes_that_no_tensor_map_has(box: list[int], swizzle: int, message: str) -> None:
    host = HostEmitter()
    with (
        pytest.raises(ValueError, match=message),
        host.func("f", [("x", memref((None, 512), "bf16"))]) as (x,),
    ):
        host.tensor_map(x, [host.dim(x, 0), 512], [512, 1], box, swizzle=swizzle)
