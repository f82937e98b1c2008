# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiling for other processors than this machine's: the code is there, and an emulator gets the same results."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import foreign
import numpy as np
import pytest
import tiny_models

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.errors import ExecutionError, InputError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import decoder
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.programs import maxima
from rlx_mlir.runtime.executable import Executable

ARM = "aarch64-linux-gnu"


def product(scheme: str = "q4_0") -> GraphModule:
    m = GraphModule.hir("product")
    x = m.input("x", ["rows", 64])
    m.set_outputs({"y": m.dequant_matmul(x, m.param("w", [32, 64], packed=scheme))})
    return m


@pytest.mark.parametrize(
    ("options", "there", "absent"),
    [
        ({"triple": ARM, "cpu": "cortex-a72"}, r"\bfmla\s+v", r"\b[su]dot\b"),
        ({"triple": ARM, "cpu": "cortex-a76", "activations": "int8"}, r"\bsdot\s+v", r"\b[xyz]mm\d"),
        ({"triple": ARM, "features": "+dotprod", "activations": "int8"}, r"\bsdot\s+v", r"\b[xyz]mm\d"),
        ({"triple": ARM, "cpu": "cortex-a76", "features": "-dotprod", "activations": "int8"}, r"\bmla\b", r"\bsdot\b"),
        ({"triple": "x86_64-linux-gnu", "cpu": "haswell"}, r"\bvfmadd\w+\s.*%ymm", r"%zmm"),
        (
            {"triple": "x86_64-linux-gnu", "cpu": "icelake-server", "activations": "int8"},
            r"\bvpdpbusd\s.*%zmm",
            r"\bbl\b",
        ),
        ({"triple": "x86_64-linux-gnu", "cpu": "nehalem"}, r"\bmulps\s.*%xmm", r"%ymm"),
    ],
)
@pytest.mark.quick(1)
def test_code_has_the_instructions_of_its_target(options: dict[str, str], there: str, absent: str) -> None:
    code = rlx.emit(product(), "asm", **options)
    assert re.search(there, code)
    assert not re.search(absent, code)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"triple": "moon-linux"}, "target 'moon-linux'.*moon-linux"),
        ({"triple": ARM, "cpu": "haswell"}, f"target '{ARM}' has no CPU 'haswell'"),
        ({"triple": ARM, "features": "+avx2"}, "'features' names .*avx2', which isn't a feature of aarch64"),
        ({"triple": ARM, "features": "dotprod"}, r"'features' expects \+name or -name, .* but got 'dotprod'"),
    ],
)
def test_unknown_targets_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rlx.emit(product(), "asm", **options)


def test_foreign_code_does_not_run_here() -> None:
    artifact = build_artifact(product(), CompileOptions(triple="aarch64-linux-gnu"))
    if rlx.compile(product(), cache=False).artifact.target["triple"].startswith("aarch64"):
        pytest.skip("it isn't foreign on this machine")
    with pytest.raises(ExecutionError, match="was compiled for aarch64, but this machine is"):
        Executable(artifact)


@pytest.mark.slow
@pytest.mark.skipif(bool(foreign.missing_tools("aarch64")), reason=f"needs {foreign.missing_tools('aarch64')}")
@pytest.mark.parametrize("cpu", ["cortex-a72", "cortex-a76"])
@pytest.mark.parametrize("activations", ["exact", "int8"])
@pytest.mark.parametrize(
    ("architecture", "scheme"),
    [("llama", "q4_1"), ("llama", "q8_0"), ("llama", "q5_0"), ("llama", "f32"), ("gemma3", "q4_0"), ("qwen3", "q5_1")],
)
def test_models_compute_the_same_on_aarch64(
    tmp_path: Path, architecture: str, scheme: str, activations: str, cpu: str
) -> None:
    matrices = ("attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up")
    path = tiny_models.write(tmp_path / "tiny.gguf", architecture=architecture, types=dict.fromkeys(matrices, scheme))
    rng = np.random.default_rng(3)
    with GGUFFile(path) as file:
        config = ModelConfig.from_gguf(file)
        params = decoder.parameters(config, file, 16)
        for program in decoder.PROGRAMS:
            module = decoder.build(config, program)
            options = CompileOptions(activations=activations, maxima=maxima(config, program, context=16, chunk=8))
            here = Executable(build_artifact(module, options))
            inputs = _inputs(here, rng, config.vocab)
            here.set_params(params)
            expected = here.run({name: array.copy() for name, array in inputs.items()})
            artifact = build_artifact(module, replace(options, triple=ARM, cpu=cpu))
            got = foreign.run_foreign(artifact, params, inputs, tmp_path)
            tolerance = 2e-5 if activations == "exact" else 2e-2  # a rounding to 8 bits may turn out differently
            for name, array in expected.items():
                np.testing.assert_allclose(got[name], array, atol=tolerance * np.abs(array).max(), rtol=0, err_msg=name)


def _inputs(executable: Executable, rng: np.random.Generator, vocab: int) -> dict[str, np.ndarray]:
    """Five tokens at position 3 of caches that are full of numbers; logits of two of them."""
    sizes = {"seq": 5, "context": 16, "outputs": 2}
    inputs: dict[str, np.ndarray] = {}
    for spec in executable.artifact.inputs:
        shape = [sizes[size] if isinstance(size, str) else size for size in spec.shape]
        if spec.name == "tokens":
            inputs[spec.name] = rng.integers(0, vocab, shape).astype(np.int32)
        elif spec.name == "pos":
            inputs[spec.name] = np.full(shape, 3, np.int32)
        elif spec.name == "rows":
            inputs[spec.name] = np.array([1, 4], np.int32)
        else:
            inputs[spec.name] = rng.standard_normal(shape, np.float32)
    return inputs
