# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Codes that a table turns into bytes: by the processor's shuffle of bytes, or by comparisons, with the same bits."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cpu_harness import compiled
from packed_harness import random_rows
from test_cpu_gemm import ALL_TARGETS, HOST, quantize

import rlx_mlir as rlx
from rlx_mlir import formats
from rlx_mlir.codegen.cpu.gemm_int8 import gemm_int8
from rlx_mlir.codegen.cpu.gemm_packed import gemm_panels
from rlx_mlir.codegen.cpu.kernel import Product
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.emit import Emitter, memref, vec

TARGETS = {
    "plain": Target(128),
    "ssse3": Target(128, frozenset({"ssse3"})),
    "arm": Target(128, triple="aarch64-unknown-linux-gnu"),
    "256": ALL_TARGETS["256"],
    "512": ALL_TARGETS["512"],
    "vnni512": ALL_TARGETS["vnni512"],
}
SHUFFLES = {
    "plain": "",
    "ssse3": "llvm.x86.ssse3.pshuf.b.128",
    "arm": "llvm.aarch64.neon.tbl1.v16i8",
    "256": "llvm.x86.avx2.pshuf.b",
    "512": "llvm.x86.avx512.pshuf.b.512",
    "vnni512": "llvm.x86.avx512.pshuf.b.512",
}


def runnable(name: str, text: str) -> str:
    """A kernel that this machine runs: shuffles of ARM are those of SSSE3 where numbers are below 16."""
    if name == "arm":
        text = text.replace(SHUFFLES["arm"], SHUFFLES["ssse3"])
        needed = {"ssse3"}
    else:
        needed = set(TARGETS[name].features)
    if missing := sorted(needed - HOST):
        pytest.skip(f"this machine has no {', '.join(missing)}")
    return text


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("length", [1, 2, 8, 15, 16])
def test_tables_of_bytes(name: str, length: int) -> None:
    target, table = TARGETS[name], [(37 * i + 200) % 256 for i in range(length)]
    lanes = target.vector_bits // 8
    em = Emitter()
    with em.func("look", [("codes", memref((lanes,), "i8")), ("found", memref((lanes,), "i8"))]) as (codes, found):
        em.vstore(target.looked_up(em, table, em.vload(codes, [0], vec(lanes, "i8"))), found, [0])
    text = em.text()
    assert (SHUFFLES[name] in text) if SHUFFLES[name] else ("call_intrinsic" not in text)
    assert text.count("arith.cmpi") == (0 if SHUFFLES[name] else length - 1)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("scheme", ["iq4_nl", "iq4_xs", "mxfp4", "nvfp4", "iq3_s", "iq1_m"])
@pytest.mark.quick(4)
def test_integer_products_have_the_same_bits(name: str, scheme: str) -> None:
    """Of any target, and of any number of rows."""
    n, k = 21, 2 * max(formats.get_format(scheme).block, 32)
    rows = random_rows(scheme, n, k)
    panels = formats.pack_panels(scheme, rows, k).view(np.int8)
    x = np.random.default_rng(1).standard_normal((5, k)).astype(np.float32)
    q, scale, total = quantize(x)
    results = []
    for own, count in (("plain", None), (name, None), (name, 5)):
        text = gemm_int8(TARGETS[own], Product("product", (count, k), n), scheme)
        assert (SHUFFLES[own] or "none of these") in text or not SHUFFLES[own]
        kernel = compiled("product", runnable(own, text))
        results.append(kernel([q, scale, total, panels], [np.zeros((5, n), np.float32)])[0])
    if name in ("plain", "ssse3"):  # others round once where these round twice
        assert results[0].tobytes() == results[1].tobytes()
    want = (q.reshape(5, -1, 32) * scale[..., None]).reshape(5, k).astype(np.float64) @ formats.decode(
        scheme, rows, k
    ).T
    np.testing.assert_allclose(results[1], want, atol=2e-6 * np.abs(want).max() * np.sqrt(k))
    assert results[1].tobytes() == results[2].tobytes()


@pytest.mark.parametrize("name", ["ssse3", "arm"])
@pytest.mark.parametrize("scheme", ["iq4_nl", "mxfp4", "iq3_s"])
@pytest.mark.quick(2)
def test_exact_products_are_those_of_decoded_weights(name: str, scheme: str) -> None:
    n, k = 21, max(formats.get_format(scheme).block, 32)
    rows = random_rows(scheme, n, k)
    panels = formats.pack_panels(scheme, rows, k).view(np.int8)
    text = runnable(name, gemm_panels(TARGETS[name], Product("product", (None, k), n), scheme))
    x = np.eye(k, dtype=np.float32)
    (found,) = compiled("product", text)([x, panels], [np.zeros((k, n), np.float32)])
    np.testing.assert_array_equal(found, formats.decode(scheme, rows, k).T)


@pytest.mark.parametrize(
    ("options", "there"),
    [
        ({"cpu": "nehalem"}, r"\bpshufb\s"),
        ({"cpu": "haswell"}, r"\bvpshufb\s.*%ymm"),
        ({"cpu": "icelake-server"}, r"\bvpshufb\s.*%zmm"),
        ({"triple": "aarch64-linux-gnu", "cpu": "cortex-a76"}, r"\btbl\s+v"),
    ],
    ids=lambda given: given.get("cpu", "") if isinstance(given, dict) else "",
)
@pytest.mark.quick(1)
def test_instructions_of_targets(options: dict[str, str], there: str) -> None:
    m = rlx.GraphModule.hir("tables")
    x, w = m.input("x", ["rows", 64]), m.param("w", [48, 64], packed="iq4_nl")
    m.set_outputs({"y": m.dequant_matmul(x, w)})
    code = rlx.emit(m, "asm", **{"triple": "x86_64-linux-gnu", "activations": "int8", **options})
    assert re.search(there, code)
