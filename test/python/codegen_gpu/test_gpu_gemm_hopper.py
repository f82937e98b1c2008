# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products by wgmma: the choice of tiles, what the host launches, what ptxas says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import gpu_emulated
import gpu_host
import pytest
from gpu_harness import usage

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_config import Sizes
from rlx_mlir.codegen.gpu.gemm_hopper import gemm_hopper
from rlx_mlir.codegen.gpu.gemm_hopper_config import (
    SHARED_BYTES,
    TILES,
    Choice,
    Layout,
    Tile,
    choose,
    choose_by_rows,
    microseconds,
)
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.program import IDENTITY, SWIGLU, Argument, Program, Step

CHIP = "sm_90a"
BIAS_SILU_RESIDUAL = Program(
    (
        Step("add", (("acc", 0), ("arg", 0))),
        Step("silu", (("step", 0),)),
        Step("add", (("step", 1), ("arg", 1))),
    ),
    (Argument("row"), Argument("full")),
)
BIAS_GELU = Program((Step("add", (("acc", 0), ("arg", 0))), Step("gelu", (("step", 0),))), (Argument("row"),))
SCALED = Program(
    (Step("mul", (("acc", 0), ("arg", 0))), Step("mul", (("step", 0), ("arg", 1)))),
    (Argument("scalar"), Argument("column")),
)
PAIR = Program((), (), (("acc", 0), ("acc", 1)), 2)
PROGRAMS = {
    "identity": IDENTITY,
    "bias_gelu": BIAS_GELU,
    "bias_silu_residual": BIAS_SILU_RESIDUAL,
    "scaled": SCALED,
    "swiglu": SWIGLU,
    "pair": PAIR,
}


def name_of(tile: Tile) -> str:
    return f"{tile.rows}x{tile.columns}{'_swapped' if tile.swapped else ''}"


def ptx(kernel: DeviceKernel) -> str:
    return gpu_emulated.ptx(kernel.device, CHIP)


def product(
    m: int | None, n: int, k: int, program: Program = IDENTITY, element: str = "bf16", transpose: bool = True
) -> Gemm:
    weight = (n, k) if transpose else (k, n)
    return Gemm("mm", (m, k), weight, (m, n), program, element=element, transpose_rhs=transpose)


# -- the choice ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "tiles"),
    [
        ((8192, 8192, 8192), {"128x256"}),
        ((4096, 4096, 4096), {"128x256"}),
        ((512, 4096, 4096), {"128x128"}),
        ((4096, 14336, 4096), {"128x256", "256x128"}),
        ((1024, 14336, 4096), {"128x224"}),
        ((1000, 4104, 4096), {"256x128"}),
        ((2048, 4096, 4096), {"128x256"}),
        ((128, 4096, 4096), {"64x64"}),
        ((64, 4096, 4096), {"64x64"}),
        ((16, 4096, 4096), {"64x16_swapped"}),
        ((1, 4096, 14336), {"64x16_swapped"}),
    ],
)
def test_choice_is_the_one_measured_best(shape, tiles):
    choice = choose(Sizes(*shape))
    assert name_of(choice.tile) in tiles
    assert (choice.splits > 1) == choice.tile.swapped


@pytest.mark.parametrize(
    ("shape", "tile", "teraflops"),
    [
        ((8192, 8192, 8192), "128x256", 808),
        ((8192, 8192, 8192), "256x128", 806),
        ((8192, 8192, 8192), "128x128", 611),
        ((4096, 4096, 4096), "128x256", 786),
        ((4096, 4096, 4096), "128x128", 747),
        ((512, 4096, 4096), "128x256", 403),
        ((512, 4096, 4096), "128x128", 669),
        ((4096, 14336, 4096), "256x128", 797),
        ((4096, 14336, 4096), "128x128", 673),
    ],
)
def test_model_reproduces_measured_rates(shape, tile, teraflops):
    (found,) = [t for t in TILES if name_of(t) == tile]
    m, n, k = shape
    estimated = 2 * m * n * k / microseconds(Choice(found), Sizes(m, n, k), 132) / 1e6
    # The model has one clock; a chip half of which is idle ran 8 % faster.
    assert abs(estimated / teraflops - 1) < (0.08 if m == 512 else 0.05)


def test_choice_follows_the_number_of_multiprocessors():
    # 1024 x 4096 is 128 tiles of 128 x 256: one wave of 132 multiprocessors, but two of 114.
    assert name_of(choose(Sizes(1024, 4096, 4096), 132).tile) == "128x256"
    assert name_of(choose(Sizes(1024, 4096, 4096), 114).tile) != "128x256"


@pytest.mark.parametrize("products", [1, 2, 3])
def test_choices_by_rows_have_rising_limits(products):
    result = choose_by_rows(None, 4096, 4096, products=products)
    limits = [limit for limit, _ in result]
    assert limits[-1] is None
    assert limits[:-1] == sorted(limit for limit in limits[:-1] if limit is not None)
    assert len({choice for _, choice in result}) == len(result) <= 6
    assert choose_by_rows(77, 4096, 4096) == [(None, choose(Sizes(77, 4096, 4096)))]


def test_too_many_products_have_no_tile():
    with pytest.raises(ValueError, match="no tile has accumulators for 17 products"):
        choose(Sizes(16, 64, 64, products=17))
    program = Program((), (), tuple(("acc", i) for i in range(17)), 17)  # type: ignore[misc]
    with pytest.raises(UnsupportedByTemplate, match="no tile has accumulators for 17 products"):
        gemm_hopper(product(16, 64, 64, program), CHIP)


@pytest.mark.parametrize("tile", TILES, ids=name_of)
@pytest.mark.parametrize("n_major", [False, True])
@pytest.mark.parametrize(("products", "outputs"), [(1, 1), (1, 0), (2, 1), (2, 2), (3, 3), (4, 4)])
def test_shared_memory_holds_a_ring(tile, n_major, products, outputs):
    fitted = tile.shared_by(products)
    if fitted is None:
        assert products > 2
        return
    layout = Layout(fitted, products, n_major, outputs)
    assert layout.stages >= 2
    assert layout.bytes <= SHARED_BYTES
    # Swizzled boxes start at multiples of 1024 bytes.
    assert all(size % 1024 == 0 for size in (layout.left_bytes, layout.right_bytes, layout.staged_bytes))
    assert layout.stages >= 3 or products > 2


# -- what isn't covered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gemm", "chip", "reason"),
    [
        (product(64, 64, 64), "sm_90", "wgmma needs sm_90a, but the chip is sm_90"),
        (product(64, 64, 64), "sm_120a", "but the chip is sm_120a"),
        (product(64, 64, 64, element="f32"), CHIP, "f16 or bf16 here, but elements are f32"),
        (product(64, 64, 60), CHIP, "a multiple of 16 bytes, but K is 60, 120 bytes"),
        (product(64, 65, 64), CHIP, "a multiple of 16 bytes, but N is 65, 130 bytes"),
        (product(64, 64, 0), CHIP, "but K is 0"),
        (product(0, 64, 64), CHIP, "an operand is empty"),
        (Gemm("mm", (8, None), (64, None), (8, 64), element="f16", transpose_rhs=True), CHIP, "but K is dynamic"),
        (Gemm("mm", (2, 8, 64), (2, 64, None), (2, 8, None), element="f16"), CHIP, "but N is dynamic"),
        (
            Gemm("mm", (2, 3, 4, 8, 64), (2, 1, 4, 64, 64), (2, 3, 4, 8, 64), element="f16"),
            CHIP,
            "broadcast in the middle",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_unsupported_says_why(gemm, chip, reason):
    with pytest.raises(UnsupportedByTemplate, match=reason):
        gemm_hopper(gemm, chip)


# -- the host --------------------------------------------------------------------------------------------------------


def test_host_chooses_by_rows():
    kernel = gemm_hopper(product(None, 4096, 4096), CHIP)
    names = {}
    for rows in (0, 1, 16, 17, 128, 129, 512, 513, 10_000):
        made = gpu_host.launches(kernel, "mm", [(rows, 4096), (4096, 4096), (rows, 4096)])
        names[rows] = [launch.kernel.removeprefix("mm_wgmma_") for launch in made]
        assert all(launch.pdl for launch in made)
    assert names[0] == []
    assert names[1] == names[16] == ["0_16x64", "0_16x64_sum"]
    assert names[17] == names[128] == ["1_64x64"]
    assert names[129] == ["2_64x128"]
    assert names[512] == ["3_128x128"]
    assert names[513] == names[10_000] == ["4_128x256"]


def test_scratch_holds_the_parts_of_k():
    kernel = gemm_hopper(product(None, 4096, 4096), CHIP)
    for rows, expected in ((0, 0), (3, 3), (16, 16), (5000, 16)):
        sizes = [(rows, 4096), (4096, 4096), (rows, 4096)]
        assert gpu_host.scratch_bytes(kernel, "mm", sizes) == 2 * expected * 4096 * 4


def test_maps_of_both_orders_of_weights():
    for transpose, weight, shape, box in (
        (True, (512, 256), (512, 256), (256, 64)),
        (False, (256, 512), (256, 512), (64, 64)),
    ):
        gemm = product(1000, 512, 256, transpose=transpose)
        kernel = gemm_hopper(gemm, CHIP, choices=[(None, Choice(TILES[0]))])
        (launch,) = gpu_host.launches(kernel, "mm", [(1000, 256), weight, (1000, 512)])
        x, w, out, *sizes = launch.parameters
        assert isinstance(x, gpu_host.Map)
        assert isinstance(w, gpu_host.Map)
        assert isinstance(out, gpu_host.Map)
        assert (x.sizes, x.box, x.swizzle) == ((1000, 256), (128, 64), 128)
        assert (w.sizes, w.box, w.swizzle) == (shape, box, 128)
        assert (out.sizes, out.box, out.swizzle) == ((1000, 512), (64, 64), 128)
        assert [size.value for size in sizes if isinstance(size, gpu_host.Number)] == [8, 2, 4, 1000]
        assert launch.grid == (16, 1, 1)
        assert launch.block == (384, 1, 1)


def test_batches_broadcast():
    shapes = ((None, 8, None, 64), (None, 1, 64, 128), (None, 8, None, 128))
    kernel = gemm_hopper(Gemm("mm", *shapes, element="bf16"), CHIP)
    (launch,) = gpu_host.launches(kernel, "mm", [(3, 8, 200, 64), (3, 1, 64, 128), (3, 8, 200, 128)])
    maps = [p for p in launch.parameters if isinstance(p, gpu_host.Map)]
    assert [m.sizes for m in maps] == [(24, 200, 64), (3, 64, 128), (24, 200, 128)]
    # batches, then (number / inner) % count of x and of the weights.
    numbers = [p.value for p in launch.parameters if isinstance(p, gpu_host.Number)]
    assert numbers[-5:] == [24, 1, 24, 8, 3]


def test_operand_order_is_the_kernels():
    gemm = Gemm("mm", (64, 64), (64, 64), (64, 64), SWIGLU, operand_order=(1, 0, 1), element="f16", transpose_rhs=True)
    kernel = gemm_hopper(gemm, CHIP)
    (launch,) = gpu_host.launches(kernel, "mm", [(64, 64), (64, 64), (64, 64)])
    maps = [p.address.buffer for p in launch.parameters if isinstance(p, gpu_host.Map)]
    assert maps == ["b1", "b0", "b1", "b2"]


# -- the code --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("tile", TILES, ids=name_of)
@pytest.mark.quick(1)
def test_ptxas_keeps_everything_in_registers(tile, program):
    fitted = tile.shared_by(program.accumulators)
    assert fitted is not None
    # Each program is tried in one of both ways, the product alone in both.
    number = list(PROGRAMS.values()).index(program)
    ways = [("bf16", True, True), ("f16", False, False)]
    for element, transpose, constant in ways if program is IDENTITY else ways[number % 2 :][:1]:
        gemm = product(None, 4096, 4096, program, element, transpose)
        splits = 2 if tile.swapped and program is IDENTITY and transpose else 1
        text = ptx(gemm_hopper(gemm, CHIP, constant_weights=constant, choices=[(None, Choice(fitted, splits))]))
        for name, used in usage(text, CHIP).items():
            assert used.spilled == 0, name
            assert used.registers * (128 if name.endswith("_sum") else fitted.threads) <= 65536, name


@pytest.mark.wide
def test_ptxas_takes_batches_and_dynamic_rows():
    shapes = ((None, 8, None, 64), (None, 1, 64, 128), (None, 8, None, 128))
    for kernel in (
        gemm_hopper(Gemm("mm", *shapes, BIAS_SILU_RESIDUAL, element="bf16"), CHIP),
        gemm_hopper(product(None, 4096, 4096, BIAS_SILU_RESIDUAL), CHIP, constant_weights=True),
    ):
        assert all(used.spilled == 0 for used in usage(ptx(kernel), CHIP).values())


def _loops(text: str) -> list[str]:
    """The texts between labels and the jumps back to them."""
    lines = text.splitlines()
    labels = {line.split(":")[0]: i for i, line in enumerate(lines) if re.match(r"\$\w+:", line)}
    found = []
    for i, line in enumerate(lines):
        jump = re.search(r"bra(?:\.uni)?\s+(\$\w+);", line)
        if jump and labels[jump.group(1)] < i:
            found.append("\n".join(lines[labels[jump.group(1)] : i + 1]))
    return found


@pytest.mark.parametrize("tile", TILES, ids=name_of)
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.quick(3)
def test_main_loop_is_products_and_barriers(tile, transpose):
    text = ptx(gemm_hopper(product(None, 512, 4096, transpose=transpose), CHIP, choices=[(None, Choice(tile))]))
    inner = [loop for loop in _loops(text) if re.search(r"wgmma.wait_group.sync.aligned\s+1;", loop)]
    main = max((loop for loop in inner if "stmatrix" not in loop), key=len)
    count = Counter(re.findall(r"(wgmma\.mma_async\.\S+|mbarrier\.\w+|membar\S*|\sfence\S*|ld\.\S+|st\.\S+)", main))
    shape = f"wgmma.mma_async.sync.aligned.m64n{tile.columns}k16.f32.bf16.bf16"
    assert count == {shape: 4 * tile.blocks, "mbarrier.try_wait": 1, "mbarrier.arrive": 1}
    # The last two numbers say whether the operands lie along k (0) or across it (1).
    ends = set(re.findall(r"wgmma\.mma_async.*?p, 1,\s+1, (\d),\s+(\d);", main))
    assert ends == {("0", "0") if transpose else ("1", "0") if tile.swapped else ("0", "1")}
    loads = [loop for loop in _loops(text) if "cp.async.bulk.tensor.2d.shared::cluster" in loop]
    smallest = min(loads, key=len)
    boxes = 1 if transpose else tile.out_columns // (64 if tile.out_columns % 64 == 0 else 32)
    assert smallest.count("cp.async.bulk.tensor.2d.shared::cluster") == 1 + boxes
    assert "membar" not in text
    assert "atom" not in text
    assert ".cluster.shared::cta" not in text


def test_chains_wait_before_they_read():
    text = ptx(gemm_hopper(product(None, 4096, 4096), CHIP))
    for entry in text.split(".visible .entry")[1:]:
        wait = entry.index("griddepcontrol.wait")
        assert entry.index("griddepcontrol.launch_dependents") < wait
        first = min(i for i in (entry.find("cp.async.bulk.tensor"), entry.find("ld.global")) if i >= 0)
        assert wait < first


def test_constant_weights_are_loaded_ahead():
    tile = [(None, Choice(TILES[0]))]
    device = gemm_hopper(product(None, 4096, 4096), CHIP, constant_weights=True, choices=tile).device
    load = r"nvvm.cp.async.bulk.tensor.shared.cluster.global [^,]*, %(\w+),"
    loads = re.findall(rf"nvvm.griddepcontrol wait|{load}", device)
    # The loading thread: weights, the wait, x, then both for all other stages; the multiplying threads wait, too.
    assert loads == ["right0", "", "left0", "left0", "right0", ""]
    device = gemm_hopper(product(None, 4096, 4096), CHIP, choices=tile).device
    assert device.index("nvvm.griddepcontrol wait") < device.index("nvvm.cp.async.bulk.tensor.shared.cluster")


def test_benchmark_says_what_it_needs():
    script = Path(__file__).parents[3] / "benchmarks" / "gpu" / "gemm.py"
    told = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=True)
    assert "cuBLAS" in told.stdout
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    refused = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=hidden)
    assert refused.returncode == 1
    assert re.fullmatch(r"this benchmark (compares with torch|needs an NVIDIA GPU), .*\n", refused.stderr)
    wrong = subprocess.run([sys.executable, script, "--shapes", "1x2"], capture_output=True, text=True, check=False)
    assert "expects M x N x K such as 512x4096x4096, but got '1x2'" in wrong.stderr
