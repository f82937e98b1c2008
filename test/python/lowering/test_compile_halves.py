# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models in f16 and bf16 by templates, with and without the tile registers of AMX."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compile_harness import Program, compare, compile_fresh, templates_of

from rlx_mlir import Executable, interpret
from rlx_mlir.errors import ExecutionError
from rlx_mlir.native import host_processor
from rlx_mlir.runtime.tiles import request_tiles

HALVES = ["f16", "bf16"]


def has_tiles(dtype: str) -> bool:
    """Whether this machine multiplies tiles of a type."""
    feature = {"f16": "amx-fp16", "bf16": "amx-bf16"}[dtype]
    present = host_processor()[3].split(",")
    return all(f"+{name}" in present for name in ("avx512bw", "amx-tile", feature)) and request_tiles()


def layer(dtype: str) -> Program:
    """Norms, products with bias, activation and gate, and a residual; then the rows as queries of one another."""
    p = Program()
    m = p.m
    x, residual = p.input("x", ["s", 96], dtype), p.input("r", ["s", 96], dtype)
    gamma = p.param("gamma", [96], dtype)
    normed = m.rms_norm(x, gamma)
    gated = m.swiglu(normed, **{f"{name}_w": p.param(name, [96, 96], dtype) for name in ("gate", "up", "down")})
    total = m.residual_rms_norm(gated, residual, gamma)
    y = m.linear(total, p.param("w", [96, 80], dtype), p.param("b", [80], dtype), activation="gelu")
    p.output(y=y, scores=m.matmul(y, y, transpose_rhs=True))
    return p


@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize("dtype", HALVES)
def test_a_layer(dtype: str, tiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not tiles:
        monkeypatch.setattr("rlx_mlir.lowering.cpu.request_tiles", lambda: False)
    elif not has_tiles(dtype):
        pytest.skip("this machine has no tiles of that type")
    program = layer(dtype)
    module = program.finish()
    expected_templates = {"gemm_amx", "gemm_amx_batched"} if tiles else {"gemm_panels", "gemm_batched"}
    compiled = compile_fresh(module)
    assert set(templates_of(compiled).values()) == {"rows", *expected_templates}
    # Calls of little work stay on one thread: here they have a lot of it.
    artifact = replace(compiled.artifact, calls=tuple((*call[:3], [(10**12, [])]) for call in compiled.artifact.calls))
    results = []
    for threads in (1, 2, 3):
        executable = Executable(artifact, threads=threads)
        for rows in (1, 7, 40):
            inputs, params = program.values({"s": rows})
            executable.set_params(params)
            got = executable.run(inputs)
            assert not compare(interpret(module, {**inputs, **params}), got, f"{rows} rows", 3e-2)
        results.append({name: array.tobytes() for name, array in got.items()})
    assert results[0] == results[1] == results[2]


def test_tiles_that_are_not_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code for tiles ends in an error of ours, where the system would end the process."""
    if not has_tiles("bf16"):
        pytest.skip("this machine has no tiles of bf16")
    artifact = compile_fresh(layer("bf16").finish()).artifact
    monkeypatch.setattr("rlx_mlir.runtime.executable.request_tiles", lambda: False)
    with pytest.raises(ExecutionError, match="'program' uses AMX tiles, which the operating system doesn't lend"):
        Executable(artifact)
