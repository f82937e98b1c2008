# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes that join operations can be left out, by name: what runs then, what it is called, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from compile_harness import compile_fresh
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.compiler import CompileOptions, stages
from rlx_mlir.errors import InputError
from rlx_mlir.runtime import cache
from rlx_mlir.tools.cli import app

SWIGLU, BIAS = "mir-fuse-swiglu", "mir-fuse-matmul-bias-act"


def mlp() -> GraphModule:
    """A gate that becomes fused_swiglu, and a bias that a product takes."""
    m = GraphModule.mir("mlp")
    x = m.input("x", ["rows", 16])
    gate, up = (m.matmul(x, m.param(name, [16, 32])) for name in ("gate", "up"))
    m.set_outputs({"y": m.matmul(m.silu(gate) * up, m.param("down", [32, 16])) + m.param("bias", [16])})
    return m


def fused(**options: object) -> set[str]:
    """The fused operations that there are after fusion."""
    report = mlp().fusion_report(**options)
    return {name for name in report.after if name.startswith("mir.fused_")}


def test_what_is_skipped_is_not_joined() -> None:
    both = {"mir.fused_swiglu", "mir.fused_matmul_bias_act"}
    assert fused() == both == fused(skip_fusion=False)
    assert fused(skip_fusion=[SWIGLU]) == both - {"mir.fused_swiglu"}
    assert fused(skip_fusion=[BIAS]) == both - {"mir.fused_matmul_bias_act"}
    assert fused(skip_fusion=True) == set()
    assert "fused_swiglu" in rlx.emit(mlp(), "kernels")
    assert "fused_swiglu" not in rlx.emit(mlp(), "kernels", skip_fusion=(SWIGLU,))
    assert "fused_swiglu" not in rlx.emit(mlp(), "kernels", target="nvptx", skip_fusion=(SWIGLU,))


@pytest.mark.parametrize("skipped", [True, (SWIGLU,), (BIAS,)])
@pytest.mark.quick(1)
def test_results_are_those_of_the_graph(skipped: bool | tuple[str, ...]) -> None:
    random = np.random.default_rng(0)
    module = mlp()
    shapes = {"x": (3, 16), "gate": (16, 32), "up": (16, 32), "down": (32, 16), "bias": (16,)}
    arrays = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    executable = compile_fresh(module, skip_fusion=skipped)
    executable.set_params({name: arrays[name] for name in shapes if name != "x"})
    want = rlx.interpret(module, arrays)["y"]
    np.testing.assert_allclose(executable.run({"x": arrays["x"]})["y"], want, rtol=1e-4, atol=1e-4)


def test_nothing_else_changes() -> None:
    plain, without = stages(CompileOptions()), stages(CompileOptions(skip_fusion=(SWIGLU,)))
    assert [own for own, other in zip(without, plain, strict=True) if own != other] == [without[1]]
    assert f",{SWIGLU}," not in without[1][1]
    assert "mir-fuse-residual-norm,mir-fuse-shared-input,cse,mir-transform-kernels,rlx-to-kernels" in without[1][1]


def test_places_beside_what_is_skipped_are_places() -> None:
    options = CompileOptions(passes={f"after:{SWIGLU}": "canonicalize", "after:rlx-fuse": SWIGLU}, skip_fusion=True)
    pipeline = stages(options)[1][1]
    # The caller's own runs.
    assert "mir-fold-constants,canonicalize,cse,mir-fuse-swiglu,mir-transform-kernels,rlx-to-kernels" in pipeline


def test_keys_of_caches_say_what_is_skipped() -> None:
    def key(**options: object) -> str:
        return cache.cache_key({"module": "m"}, CompileOptions(**options).as_dict())

    assert len({key(), key(skip_fusion=True), key(skip_fusion=(SWIGLU,)), key(skip_fusion=(BIAS,))}) == 4
    assert key(skip_fusion=[SWIGLU, BIAS]) == key(skip_fusion=(BIAS, SWIGLU, BIAS))
    assert key(skip_fusion=False) == key()


@pytest.mark.parametrize(
    ("skipped", "message"),
    [
        (
            ("mir-fuse-swigl",),
            f"True or some of mir-raise-blocks, {BIAS}, .* but got 'mir-fuse-swigl' \\(did you mean '{SWIGLU}'\\?\\)",
        ),
        (("cse",), "True or some of .*, but got 'cse'"),
        (SWIGLU, "'skip_fusion' expects several names, but got 'mir-fuse-swiglu'"),
        (3, "'skip_fusion' expects several names, but got 3"),
        (None, "'skip_fusion' expects several names, but got None"),
    ],
)
def test_names_of_no_such_pass(skipped: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rlx.compile(mlp(), skip_fusion=skipped)
    with pytest.raises(InputError, match=message):
        mlp().fusion_report(skip_fusion=skipped)


def test_kernels_are_past_it() -> None:
    with pytest.raises(InputError, match="'skip_fusion' has no meaning for 'mlp', which is at stage kernels already"):
        rlx.compile(GraphModule.from_text(rlx.emit(mlp(), "kernels")), skip_fusion=True)


def test_reports_and_commands_say_what_is_skipped(tmp_path: Path) -> None:
    assert f"\n  skipped: {SWIGLU}\n" in str(mlp().fusion_report(skip_fusion=(SWIGLU,)))
    assert "skipped" not in str(mlp().fusion_report())
    (tmp_path / "m.mlir").write_text(mlp().to_text())
    words = ["report", str(tmp_path / "m.mlir"), "--activations", "exact", "--json", "--skip-fusion", SWIGLU]
    result = CliRunner().invoke(app, [*words, "--skip-fusion", BIAS])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["fusion"]["skipped"] == [BIAS, SWIGLU]
    words = ["emit", str(tmp_path / "m.mlir"), "--stage", "kernels", "--skip-fusion"]
    assert "mir.silu" in CliRunner().invoke(app, [*words, "all"]).output
    refused = CliRunner().invoke(app, [*words, "swiglu"])
    assert refused.exit_code == 1
    assert "'skip_fusion' expects True or some of" in refused.output
