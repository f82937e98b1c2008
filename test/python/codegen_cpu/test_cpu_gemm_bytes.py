# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of quantised matrices: the same bits as the reference, by the instructions of each target."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from compile_harness import compile_fresh, templates_of
from cpu_harness import TARGETS, compiled
from test_cpu_gemm import ALL_TARGETS, need

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.codegen.cpu.gemm_bytes import CHUNK, DEPTH, GENERATORS, WIDTH, gemm_bytes
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import QMatmulSpec
from rlx_mlir.mir.quantize import q_matmul

#: Those without dot products of bytes, with them, and with tiles of bytes; `arm` multiplies numbers of i32.
OWN = {
    **{str(bits): target for bits, target in TARGETS.items()},
    **{name: ALL_TARGETS[name] for name in ("vnni256", "vnni512", "amx512")},
    "arm": Target(128, triple="aarch64-unknown-linux-gnu"),
}
#: Rows, K, columns: less than a chunk, a block and a panel each, and more, whole and not.
SIZES = [
    (1, 1, 1),
    (3, 2, 16),
    (7, 63, 17),
    (0, 8, 4),
    (4, 0, 5),
    (5, 9, 0),
    (CHUNK + 7, 130, WIDTH + 33),
    (CHUNK, DEPTH, WIDTH),
    (34, DEPTH + 3, 48),
    (13, 2 * DEPTH + 65, 2 * WIDTH + 1),
]
#: Zero points of x, weight and result.
ZEROS = [(0, 0, 0), (3, -128, 127), (-128, 127, -5), (0, 7, 0), (127, 0, -128)]


def spec_of(
    shapes: list[tuple[int | None, ...]], zeros: tuple[int, int, int] = (0, 0, 0), mult: float = 0.5, bias: bool = True
) -> QMatmulSpec:
    x, weight, result = (memref(shape, "i8") for shape in shapes)
    own = memref(shapes[2][1:], "i32") if bias else ""
    return QMatmulSpec(x, weight, own, result, *zeros, float(np.float32(mult)), tuple(range(3 if bias else 2)))


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.quick(3)
def test_template(name: str, dynamic: bool) -> None:
    target = OWN[name]
    if target.x86:
        need(target)
    zeros, mults = itertools.cycle(ZEROS), itertools.cycle((0.5, 0.0007, 0.05, 3e38))
    rng = np.random.default_rng(0)
    for number, (m, k, n) in enumerate(SIZES if dynamic else SIZES[::2]):
        shapes = [(None, None)] * 3 if dynamic else [(m, k), (k, n), (m, n)]
        x, w = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
        x[: m // 2], w[:, : n // 2] = -128, -128  # the largest products
        # Sums that wrap around are saturated by most factors: others have to be small.
        most = (0, 9999, 2**31)[number % 3]
        bias = rng.integers(-most, most, n).astype(np.int32) if most else None
        (x_zp, w_zp, out_zp), mult = next(zeros), next(mults)
        spec = spec_of(shapes, (x_zp, w_zp, out_zp), mult, bias is not None)
        with np.errstate(over="ignore"):
            want = q_matmul(x, w, bias, x_zp=x_zp, w_zp=w_zp, out_zp=out_zp, mult=mult)
        kernel = compiled("product", gemm_bytes("product", spec, target, tiled=target.tiles("i8")))
        given = [x, w, *([] if bias is None else [bias])]
        for cuts in (None, [1], range(30)):
            (found,) = kernel(given, [np.empty((m, n), np.int8)], cuts)
            np.testing.assert_array_equal(found, want, err_msg=f"{m} {k} {n}")


def by_multiplications(text: str) -> str:
    """A kernel whose dot products of bytes are functions that any machine can run."""
    call = re.compile(r'llvm.call_intrinsic "llvm\.(x86|aarch64)\.[\w.]+"(\(.*\)) : (\(vector<(\d+)xi32>.*)')
    found = call.search(text)
    assert found, "the kernel has no dot products"
    lanes, extend = int(found[4]), {"x86": "arith.extui", "aarch64": "arith.extsi"}[found[1]]
    wide = f"vector<{4 * lanes}xi32>"
    lines = [
        f"%u = {extend} %a : vector<{4 * lanes}xi8> to {wide}",
        f"%s = arith.extsi %b : vector<{4 * lanes}xi8> to {wide}",
        f"%p = arith.muli %u, %s : {wide}",
    ]
    total = "%total"
    for i in range(4):
        places = list(range(i, 4 * lanes, 4))
        lines.append(f"%q{i} = vector.shuffle %p, %p {places} : {wide}, {wide}")
        lines.append(f"%t{i} = arith.addi {total}, %q{i} : vector<{lanes}xi32>")
        total = f"%t{i}"
    lines.append(f"return {total} : vector<{lanes}xi32>")
    arguments = ", ".join(f"%{name}: vector<{4 * lanes}xi8>" for name in "ab")
    head = f"func.func private @dot(%total: vector<{lanes}xi32>, {arguments}) -> vector<{lanes}xi32> {{"
    return call.sub(r"func.call @dot\2 : \3", text) + "\n".join([head, *lines, "}"])


@pytest.mark.parametrize(
    "target",
    [OWN["vnni256"], OWN["vnni512"], Target(128, frozenset({"dotprod"}), "aarch64-unknown-linux-gnu")],
    ids=["vnni256", "vnni512", "dotprod"],
)
def test_sums_of_bytes_on_any_machine(target: Target) -> None:
    """What zero points add to dot products of bytes doesn't depend on the instruction."""
    rng = np.random.default_rng(2)
    m, k, n = 13, DEPTH + 70, WIDTH + 33
    x, w = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
    bias = rng.integers(-9999, 9999, n).astype(np.int32)
    for x_zp, w_zp, out_zp in ZEROS:
        spec = spec_of([(None, None)] * 3, (x_zp, w_zp, out_zp), 0.0007)
        kernel = compiled("product", by_multiplications(gemm_bytes("product", spec, target)))
        want = q_matmul(x, w, bias, x_zp=x_zp, w_zp=w_zp, out_zp=out_zp, mult=0.0007)
        np.testing.assert_array_equal(kernel([x, w, bias], [np.empty((m, n), np.int8)])[0], want)


def test_ties_are_rounded_away_from_zero() -> None:
    """Sums of one product each, times a half and a quarter: every third of them is a tie."""
    x, w = np.arange(-128, 128, dtype=np.int8).reshape(-1, 1), np.array([[1, 3, -1, -5]], np.int8)
    for name, mult in itertools.product(("256", "128", "arm"), (0.5, 0.25)):
        spec = spec_of([x.shape, w.shape, (256, 4)], mult=mult, bias=False)
        (found,) = compiled("ties", gemm_bytes("ties", spec, OWN[name]))([x, w], [np.empty((256, 4), np.int8)])
        exact = x.astype(np.int64) * w * int(mult * 4)  # in quarters
        want = np.sign(exact) * ((np.abs(exact) + 2) // 4)
        np.testing.assert_array_equal(found, want.clip(-128, 127))


def product(rows: int | str) -> GraphModule:
    m = GraphModule.mir("product")
    x, w, bias = m.input("x", [rows, 96], "i8"), m.param("w", [96, 80], "i8"), m.param("bias", [80], "i32")
    m.set_outputs({"y": m.q_matmul(x, w, bias, x_zp=3, w_zp=-5, out_zp=1, mult=0.002)})
    return m


@pytest.mark.parametrize(
    ("options", "there", "absent"),
    [
        ({"cpu": "nehalem"}, r"\bpmaddwd\s.*%xmm", r"%ymm"),
        ({"cpu": "haswell"}, r"\bvpmaddwd\s.*%ymm", r"%zmm|vpdpbusd"),
        ({"cpu": "skylake-avx512"}, r"\bvpmaddwd\s.*%zmm", r"vpdpbusd"),
        ({"cpu": "icelake-server"}, r"\bvpdpbusd\s.*%zmm", r"vpmaddwd|tdpb"),
        ({"cpu": "alderlake"}, r"\bvpdpbusd\s.*%ymm", r"vpmaddwd|%zmm"),
        ({"cpu": "sapphirerapids"}, r"\btdpbsud\s", r"vpmaddwd"),
        ({"triple": "aarch64-linux-gnu", "cpu": "cortex-a76"}, r"\bsdot\s+v", r"\bmla\b"),
        ({"triple": "aarch64-linux-gnu", "cpu": "cortex-a72"}, r"\bmla\s+v", r"\bsdot\b"),
    ],
    ids=lambda given: given.get("cpu", "") if isinstance(given, dict) else "",
)
@pytest.mark.quick(1)
def test_instructions_of_targets(options: dict[str, str], there: str, absent: str) -> None:
    code = rlx.emit(product("rows"), "asm", **{"triple": "x86_64-linux-gnu", **options})
    assert re.search(there, code)
    assert not re.search(absent, code)


def test_few_rows_are_no_tiles() -> None:
    tiled = GENERATORS[0]
    target = ALL_TARGETS["amx512"]
    for rows, takes in ((None, True), (16, True), (15, False), (1, False)):
        spec = spec_of([(rows, 8), (8, 4), (rows, 4)])
        assert (tiled.configure("product", spec, target) is not None) == takes
        assert tiled.configure("product", spec, ALL_TARGETS["vnni512"]) is None
        without = replace(target, features=target.features - {"avx512vnni"})
        assert tiled.configure("product", spec, without) is None


@pytest.mark.parametrize("threads", [1, 2])
def test_compiled(threads: int) -> None:
    """Any number of rows by one executable, by the template and by loops."""
    module = product("rows")
    rng = np.random.default_rng(1)
    params = {
        "w": rng.integers(-128, 128, (96, 80)).astype(np.int8),
        "bias": rng.integers(-9999, 9999, 80).astype(np.int32),
    }
    ways = [compile_fresh(module, threads=threads), compile_fresh(module, disable_templates=("all",))]
    assert {name for way in ways for name in templates_of(way).values()} <= {"gemm_bytes", "gemm_amx_bytes", "generic"}
    assert "generic" not in templates_of(ways[0]).values()
    for way in ways:
        way.set_params(params)
    for rows in (0, 1, 5, 200):
        x = rng.integers(-128, 128, (rows, 96)).astype(np.int8)
        want = rlx.interpret(module, {"x": x, **params})["y"]
        for way in ways:
            np.testing.assert_array_equal(way.run({"x": x})["y"], want)
