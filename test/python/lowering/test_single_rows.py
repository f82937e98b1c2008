# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled modules give a token the same bits alone, beside those of other sequences, and beside what follows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from packed_harness import encoded

import rlx_mlir as rlx
from rlx_mlir.hir import GraphModule, Value

Sizes = tuple[int | str, int]

#: Tokens of a sequence alone, of many sequences, of one.
SHAPES: dict[str, Sizes] = {"decode": (1, 1), "batch": ("batch", 1), "extend": (1, 8)}
BATCHES = (1, 2, 3, 4, 5, 8, 13, 64)
AVX2 = "+sse4.2,+ssse3,+avx,+avx2,+fma,+f16c"
K, N = 256, 37
INTEGERS = ("q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q6_k", "iq4_nl")


def param(m: GraphModule, name: str, n: int, k: int, kind: str) -> Value:
    """A weight [n, k]: dense, or packed by its type."""
    if kind in ("f32", "f16", "bf16"):
        return m.param(name, [n, k], kind)
    return m.param(name, [n, k], packed=kind)


def built(sizes: Sizes, kind: str, k: int, *, beside: bool = True) -> GraphModule:
    """Products as models have them: with bias, in a gated block with a residual, of low rank beside another; a norm.

    `beside`: others, too, of matrices that aren't of the kind.
    """
    m = GraphModule.hir("products")
    element = kind if kind in ("f16", "bf16") else "f32"
    dense = kind in ("f32", "f16", "bf16")
    x = m.input("x", [*sizes, k], element)
    n = m.rms_norm(x, m.param("gamma", [k], element), eps=1e-5)
    options = {"transpose_weight": dense}
    y = m.linear(n, param(m, "w", N, k, kind), m.param("bias", [N], element), **options)
    inner = m.linear(n, m.param("a", [5, k], element), transpose_weight=True)
    low = m.linear(inner, m.param("b", [N, 5], element), transpose_weight=True)
    matrices = {
        "gate_w": param(m, "gate", K, k, kind),
        "up_w": param(m, "up", K, k, kind),
        "down_w": param(m, "down", k, K, kind),
    }
    h = m.add(x, m.swiglu(n, **matrices, **options))
    outputs = {"low": m.add(y, low), "h": h, "p": m.softmax(m.add(y, low), axis=-1)}
    if beside:
        outputs["straight"] = m.matmul(n, m.param("straight", [k, N], element))
        outputs["given"] = m.matmul(n, m.input("given", [k, N], element))
        outputs["other"] = m.matmul(n, m.input("other", [N, k], element), transpose_rhs=True)
    m.set_outputs(outputs)
    return m


def values_of(m: GraphModule, kind: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Parameters, and inputs of known sizes other than x."""
    rng = np.random.default_rng(3)
    params: dict[str, np.ndarray] = {}
    for own in m.params:
        shape = [size for size in own.shape if isinstance(size, int)]
        values = rng.standard_normal(shape).astype(np.float32) / np.float32(8)
        params[own.name] = encoded(kind, values) if own.packed else values.astype(own.dtype)
    inputs = {
        own.name: (rng.standard_normal([int(size) for size in own.shape]) / 8).astype(own.dtype)
        for own in m.inputs
        if all(isinstance(size, int) for size in own.shape) and own.dtype.kind != "i" and own.name != "x"
    }
    return params, inputs


def check(kind: str, k: int, threads: int = 1, *, beside: bool = True, **options: Any) -> dict[str, set[str]]:
    """Compares all modules with `decode`, one row after the other; gives the templates of each."""
    ways, templates = {}, {}
    for name, sizes in SHAPES.items():
        module, maxima = built(sizes, kind, k, beside=beside), {"batch": 64} if "batch" in sizes else {}
        executable = rlx.compile(module, cache=False, threads=threads, maxima=maxima, **options)
        params, inputs = values_of(module, kind)
        executable.set_params(params)
        ways[name] = executable
        templates[name] = set(executable.artifact.templates.values())
    dtype = module.inputs[0].dtype
    rows = np.random.default_rng(k).standard_normal((64, k)).astype(np.float32).astype(dtype)
    rows[3] *= np.asarray(30, rows.dtype)
    alone = [ways["decode"].run({"x": row[None, None], **inputs}) for row in rows]

    def same(results: Mapping[str, np.ndarray], count: int, what: str) -> None:
        for name, value in results.items():
            expected = np.concatenate([own[name] for own in alone[:count]])
            assert value.reshape(expected.shape).tobytes() == expected.tobytes(), f"{name} of {what}"

    for count in BATCHES:
        same(ways["batch"].run({"x": rows[:count, None], **inputs}), count, f"{count} sequences")
    same(ways["extend"].run({"x": rows[None, :8], **inputs}), 8, "eight tokens")
    assert all(np.isfinite(value.astype(np.float32)).all() for own in alone for value in own.values())
    return templates


@pytest.mark.parametrize(("features", "threads"), [("", 1), ("", 2), (AVX2, 1)])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0"])
@pytest.mark.quick(4)
def test_exact(kind: str, features: str, threads: int) -> None:
    """Dense K isn't whole vectors."""
    templates = check(kind, 37 if kind != "q8_0" else K, threads, features=features)
    assert all({"gemm_dense", "rows"} <= found for found in templates.values()), templates


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize(("activations", "features"), [("exact", ""), ("exact", AVX2), ("int8", ""), ("int16", AVX2)])
@pytest.mark.quick(4)
def test_quantised_weights(kind: str, activations: str, features: str) -> None:
    """Those beside them are the same ones whatever the kind is."""
    templates = check(kind, K, beside=False, features=features, activations=activations)
    wanted = "gemm_int8" if activations != "exact" else "gemm_panels" if features else ""
    assert all(any(name.startswith(wanted) for name in found) for found in templates.values()), templates


@pytest.mark.parametrize("kind", ["f32", "q4_1"])
def test_loops(kind: str) -> None:
    """Kernels without a template."""
    check(kind, K if kind == "q4_1" else 37, disable_templates=("all",))


def test_long_rows() -> None:
    """Blocks of K of other rows are none here."""
    check("bf16", 2117)


@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_head(activations: str) -> None:
    """The row of a head that one asks for most often has code of its own, with the bits that it has beside others."""
    k = 64
    options: dict[str, Any] = {"maxima": {"tokens": 16}, "activations": activations}
    for n in (6 * k - 1, 6 * k):
        m = GraphModule.hir("head")
        m.set_outputs({"y": m.linear(m.input("x", [1, "tokens", k]), param(m, "head", n, k, "q8_0"))})
        text = rlx.emit(m, "linalg", kernel="block_dot_0", **options)
        assert ("arith.cmpi eq" in text) == (n == 6 * k)
        head = rlx.compile(m, cache=False, threads=1, **options)
        head.set_params(values_of(m, "q8_0")[0])
        rows = np.random.default_rng(n).standard_normal((1, 16, k), np.float32)
        alone = [head(x=rows[:, row : row + 1]) for row in range(16)]
        for count in (0, 1, 2, 7, 16):
            assert head(x=rows[:, :count]).tobytes() == b"".join(own.tobytes() for own in alone[:count])


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_experts(dtype: str) -> None:
    """Rows of x by the weight of their expert: alone, and beside others of the same one or of another."""
    k, n, experts = 140, 37, 3
    ways = {}
    for rows in (1, 8, "rows"):
        m = GraphModule.hir("experts")
        x, expert = m.input("x", [rows, k], dtype), m.input("expert", [rows], "i32")
        packed = m.param("packed", [experts * 32, 160], packed="q4_0")
        y = m.grouped_matmul(x, m.param("w", [experts, k, n], dtype), expert)
        z = m.dequant_grouped_matmul(m.input("z", [rows, 160]), packed, expert, experts=experts)
        m.set_outputs({"y": y, "z": z})
        maxima = {"rows": 200} if rows == "rows" else {}
        ways[rows] = rlx.compile(m, cache=False, threads=1, maxima=maxima)
        params, _ = values_of(m, "q4_0")
        ways[rows].set_params(params)
    element = m.inputs[0].dtype
    rng = np.random.default_rng(5)
    given = {"x": rng.standard_normal((200, k)).astype(element), "z": rng.standard_normal((200, 160), np.float32)}
    given["expert"] = rng.integers(0, experts, 200).astype(np.int32)
    given["expert"][:130] = 1  # more than go together
    alone = [ways[1].run({name: value[row : row + 1] for name, value in given.items()}) for row in range(200)]
    for way, count in ((8, 8), ("rows", 1), ("rows", 3), ("rows", 5), ("rows", 200)):
        found = ways[way].run({name: value[:count] for name, value in given.items()})
        for name, value in found.items():
            assert value.tobytes() == b"".join(own[name].tobytes() for own in alone[:count]), f"{name}, {count} rows"
