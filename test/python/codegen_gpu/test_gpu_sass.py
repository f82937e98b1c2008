# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine code of the schedules' kernels: the instructions that their speed rests on, and none that would take it.

What ptxas made is read from nvdisasm's text; that it is fast is a matter for a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import pytest
from gpu_attention import Case as Attention
from gpu_emulated import ptx
from sass import Code, disassembled

from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.gpu.attention_decode import decode
from rlx_mlir.codegen.gpu.attention_f32 import prefill_f32
from rlx_mlir.codegen.gpu.attention_hopper import hopper_config, prefill_hopper
from rlx_mlir.codegen.gpu.attention_mma import prefill_mma
from rlx_mlir.codegen.gpu.broadcast import emit_broadcast
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_float8 import gemm_float8
from rlx_mlir.codegen.gpu.gemm_fma import gemm_fma
from rlx_mlir.codegen.gpu.gemm_hopper import gemm_hopper
from rlx_mlir.codegen.gpu.gemm_hopper_config import TILES, Choice, Tile
from rlx_mlir.codegen.gpu.gemm_mma import gemm_mma
from rlx_mlir.codegen.gpu.gemm_quant import gemm_block_dot, gemm_decoded
from rlx_mlir.codegen.gpu.gemv import Gemv, gemv
from rlx_mlir.codegen.gpu.gemv_float8 import gemv_float8
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.gpu.norm import emit_norm
from rlx_mlir.codegen.gpu.pointwise import emit_pointwise
from rlx_mlir.codegen.gpu.rows import emit_rows
from rlx_mlir.codegen.row_graph import Operand, Result, RowProgram, Step
from rlx_mlir.codegen.specs import BroadcastSpec, BroadcastStep, NormSpec

HOPPER, PORTABLE = "sm_90a", "sm_80"


def product(m: int, n: int, k: int, element: str, *, transpose: bool = True) -> Gemm:
    return Gemm("mm", (m, k), (n, k) if transpose else (k, n), (m, n), element=element, transpose_rhs=transpose)


def of_8_bits(m: int, n: int, k: int) -> Gemm:
    return replace(product(m, n, k, "bf16"), float8=("f8E4M3FN", "f8E4M3FN"))


def attention(kind: str, element: str, queries: int = 1, *, fixed: bool = False) -> Attention:
    return Attention(queries, 64, 32, 8, 128, element=element, kind=kind, fixed=fixed, pos=(7,) if fixed else None)


def rms_norm(element: str) -> RowProgram:
    type = memref([None, 4096], element)
    operands = (Operand("x", type), Operand("g", memref([4096], element), "vector"))
    return RowProgram(operands, (Step("y", "rms_norm", ("x", "g"), {"eps": 1e-5}),), (Result("o", type, "y"),))


def silu(element: str) -> RowProgram:
    type = memref([None, 4096], element)
    return RowProgram((Operand("x", type),), (Step("y", "silu", ("x",), {}),), (Result("o", type, "y"),), "x")


def softmax_of_columns(element: str) -> NormSpec:
    return NormSpec("softmax", memref([None, 64, 4096], element), (), 1, 0.0, (0,))


def conversion(source: str, target: str) -> BroadcastSpec:
    return BroadcastSpec(
        (memref([None, 64], source),), memref([None, 64], target), (BroadcastStep("cast", "cast", (0,), target),)
    )


def dense(element: str) -> Gemv:
    return Gemv("p", (1, 4096), 4096, element, element=element, dense=True)


def packed(scheme: str) -> Gemv:
    return Gemv("p", (1, 4096), 4096, scheme, quantised=True)


CORPUS: dict[str, tuple[str, Callable[[str], DeviceKernel]]] = {
    "attention by wgmma": (HOPPER, lambda chip: prefill_hopper("k", attention("causal", "bf16").spec(), chip)),
    "attention by mma": (PORTABLE, lambda chip: prefill_mma("k", attention("causal", "bf16").spec(), chip)),
    "attention of f32": (PORTABLE, lambda chip: prefill_f32("k", attention("none", "f32").spec(), chip)),
    "decoding": (HOPPER, lambda chip: decode("k", attention("causal", "bf16", fixed=True).spec(), chip)),
    "mma": (PORTABLE, lambda chip: gemm_mma(chip, product(4096, 4096, 4096, "bf16"))),
    "mma of 8 bits": ("sm_89", lambda chip: gemm_float8(chip, of_8_bits(4096, 4096, 4096))),
    "few rows of 8 bits": ("sm_89", lambda chip: gemv_float8(chip, of_8_bits(1, 4096, 65536))),
    "8 bits by mma of f16": (PORTABLE, lambda chip: gemm_float8(chip, of_8_bits(4096, 4096, 4096))),
    "8 bits on Hopper": (HOPPER, lambda chip: gemm_float8(chip, of_8_bits(4096, 4096, 4096))),
    "fma": (PORTABLE, lambda chip: gemm_fma(chip, product(4096, 4096, 4096, "f32"))),
    "block_dot": (PORTABLE, lambda chip: gemm_block_dot(chip, product(512, 4096, 4096, "f32"), "q8_0")),
    "decoded": (PORTABLE, lambda chip: gemm_decoded(chip, product(512, 4096, 4096, "bf16"), "q4_k")),
    "ring of q4_k": (HOPPER, lambda chip: gemv(chip, packed("q4_k"))),
    "ring of bf16": (HOPPER, lambda chip: gemv(chip, dense("bf16"))),
    "rows of q8_0": (PORTABLE, lambda chip: gemv(chip, packed("q8_0"))),
    "norm": (HOPPER, lambda chip: emit_rows("k", rms_norm("bf16"), chip)),
    "silu": (HOPPER, lambda chip: emit_pointwise("k", silu("bf16"), chip)),
    "softmax of columns": (PORTABLE, lambda chip: emit_norm("k", softmax_of_columns("bf16"), chip)),
    "conversion to 8 bits": (PORTABLE, lambda chip: emit_broadcast("k", conversion("f32", "f8E4M3FN"), chip)),
}

#: Of each kernel's code at least so many of these; then what its main loop is known by, and what that may not hold.
WANTED: dict[str, tuple[dict[str, int], str, str]] = {
    "attention by wgmma": ({"UTMALDG": 6, "UTMASTG": 2, "STSM": 8}, "HGMMA", "LD[GS]|ST[GS]|BAR|MEMBAR|CALL|S2R"),
    "attention by mma": ({"LDGSTS.*128": 8, "LDSM": 32, "STG.E.128": 16}, "HMMA", "LDG\\.|STG|I2F|S2UR"),
    "attention of f32": ({"LDG.E.128": 16, "STG.E.128": 16}, "FFMA", "LDG.E.U|STG|LDS$|STS|BAR"),
    "decoding": ({"LDGSTS.*128": 16, "STG.E.128": 4}, "LDGSTS", "LDG\\.|STG|BAR|I2F"),
    "mma": ({"LDGSTS.*128": 8, "STG.E.128": 16}, "HMMA", "LDG\\.|STG|I2F|CALL"),
    "mma of 8 bits": ({"LDGSTS.*128": 8, "STG.E.128": 16}, "QMMA", "LDG\\.|STG|I2F"),
    "few rows of 8 bits": ({"LDG.E.128": 6, "QMMA": 4}, "QMMA", "STG|LDS|STS|BAR"),
    "8 bits by mma of f16": ({"LDGSTS.*128": 8, "STG.E.128": 16}, "HMMA", "LDG\\.|STG|I2F"),
    "8 bits on Hopper": ({"LDGSTS.*128": 8, "F2FP.F16.E4M3": 64, "STG.E.128": 16}, "HMMA", "LDG\\.|STG|I2F"),
    "fma": ({"LDS.128": 64, "STG.E.128": 16}, "FFMA", "LDG\\.|STG|I2F"),
    "block_dot": ({"LDGSTS.*128": 4, "STG.E.128": 8}, "IMMA", "STG|I2F|CALL"),
    "decoded": ({"LDGSTS.*128": 4, "STG.E.128": 4}, "HMMA", "STG"),
    "ring of q4_k": ({"UBLKCP": 1, "LDS.128": 8}, "IDP", "LDG|STG|STS|I2F|BAR|CALL"),
    "ring of bf16": ({"UBLKCP": 1, "LDS.128": 8}, "FFMA", "LDG|STG|STS|PRMT|BAR|CALL"),
    "rows of q8_0": ({"LDG.E.128.CONSTANT": 8}, "IDP", "STG|STS|I2F|BAR|CALL"),
    "norm": ({"LDG.E.128": 2, "STG.E.128": 2}, "", ""),
    "silu": ({"LDG.E.128": 1, "STG.E.128": 1}, "", ""),
    "softmax of columns": ({"LDG.E.128": 3, "STG.E.128": 1}, "", ""),
    "conversion to 8 bits": ({"LDG.E.128": 1, "STG": 1}, "", ""),
}


@functools.cache
def machine_code(name: str) -> dict[str, Code]:
    """The kernels of one of the corpus."""
    chip, make = CORPUS[name]
    return disassembled(ptx(make(chip).device, chip), chip)


def check_memory(kernels: dict[str, Code]) -> None:
    """No registers in memory, and no waiting for other multiprocessors."""
    for name, code in kernels.items():
        assert not code.count("LDL|STL"), name
        assert code.count("MEMBAR") == code.count("MEMBAR.ALL.CTA"), name
        assert not code.count("ERRBAR"), name


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.quick(2)
def test_code_holds_what_speed_rests_on(name: str) -> None:
    kernels = machine_code(name)
    check_memory(kernels)
    wanted, mark, banned = WANTED[name]
    code = max(kernels.values(), key=lambda own: len(own.lines))
    for pattern, least in wanted.items():
        assert code.count(pattern) >= least, (pattern, code.opcodes())
    if mark:
        loops = code.loops(mark)
        assert loops
        # Rows that need it are computed again in loops of single elements, which aren't the main ones.
        for loop in (
            own for own in loops if not own.count("LDG.E.U16") or name in ("block_dot", "decoded", "rows of q8_0")
        ):
            assert not loop.count(banned), loop.opcodes()


def moves(loop: Code) -> int:
    """Instructions that only copy registers of threads."""
    return loop.count(r"MOV|IMAD\.MOV|R2UR|S2R$|S2UR")


@pytest.mark.parametrize("transpose", [True, False], ids=["nk", "kn"])
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
@pytest.mark.quick(4)
def test_the_main_loop_of_products_by_wgmma(tile: Tile, transpose: bool) -> None:
    gemm = product(4096, 4096, 4096, "bf16", transpose=transpose)
    kernel = gemm_hopper(gemm, HOPPER, constant_weights=True, choices=[(None, Choice(tile))])
    kernels = disassembled(ptx(kernel.device, HOPPER), HOPPER)
    check_memory(kernels)
    (code,) = kernels.values()
    main = min(code.loops("HGMMA"), key=lambda loop: len(loop.lines))
    products = 4 * tile.blocks
    assert main.count("HGMMA") == products
    assert main.count("WARPGROUP.ARRIVE") == main.count("WARPGROUP.DEPBAR") == 1
    assert moves(main) == 0
    assert len(main.lines) <= 34 + 6 * products, main.lines
    assert not main.count("LD|ST[GSL]|BAR|MEMBAR|FENCE"), main.opcodes()
    assert code.count("UTMALDG") >= 2
    assert code.count("UTMASTG") >= 1
    check_registers(code, tile.threads, (24, 240) if tile.consumers > 1 else None)


def test_the_main_loop_of_products_of_floats_of_8_bits() -> None:
    """Sums of each stage are added up in f32, while nothing else is moved."""
    gemm = replace(product(4096, 4096, 4096, "bf16"), float8=("f8E4M3FN", "f8E4M3FN"))
    kernels = disassembled(ptx(gemm_hopper(gemm, HOPPER, constant_weights=True).device, HOPPER), HOPPER)
    check_memory(kernels)
    (code,) = kernels.values()
    (main,) = code.loops("QGMMA")
    assert main.count("QGMMA") == 4
    assert main.count("FADD") == 64
    assert main.count("WARPGROUP.ARRIVE") == main.count("WARPGROUP.DEPBAR") == 1
    assert moves(main) == 0
    check_registers(code, 384, (24, 240))


def check_registers(code: Code, threads: int, exchanged: tuple[int, int] | None) -> None:
    """A block's registers suffice for what its warp groups ask for: they would wait without end for more."""
    assert code.registers * threads <= 65536
    if exchanged is None:
        assert not code.count("USETMAXREG")
        return
    fewer, more = exchanged
    assert code.count("USETMAXREG.DEALLOC") == code.count("USETMAXREG.TRY_ALLOC") == 1
    assert 128 * fewer + (threads - 128) * more <= code.registers * threads


def test_the_main_loops_of_attention_by_wgmma() -> None:
    code = machine_code("attention by wgmma")["k_wgmma"]
    config = hopper_config(attention("causal", "bf16").spec())
    loops = [loop for loop in code.loops("HGMMA") if loop.count("MUFU.EX2") > 60]
    assert len(loops) == 2, "tiles at the ends, and the others"
    for loop in loops:
        assert loop.count("HGMMA") == 128 // 16 + config.keys // 16
        assert loop.count("WARPGROUP.ARRIVE") == loop.count("WARPGROUP.DEPBAR") == 2
        assert moves(loop) <= 4
    check_registers(code, 384, config.registers)
