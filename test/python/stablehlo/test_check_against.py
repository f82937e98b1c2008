# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons with JAX and PyTorch find a fault that is planted, where it is, and nothing where there is none."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import compiler
from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.tools.cli import app

RIVALS = [
    pytest.param(own, marks=pytest.mark.skipif(importlib.util.find_spec(own) is None, reason=f"{own} isn't installed"))
    for own in ("jax", "torch", "iree")
]


def network() -> rlx.GraphModule:
    m = rlx.GraphModule.hir("network")
    x = m.input("x", ["n", 24])
    with m.scope("first"):
        h = m.rms_norm(m.linear(x, m.param("a", [24, 32]), m.param("b", [32])), m.param("g", [32]))
    with m.scope("second"):
        h = m.primitives.silu(h) * m.tanh(h)
    m.set_outputs({"y": m.softmax(m.linear(h, m.param("c", [32, 8]))), "kinds": m.cast(h, "i32")})
    return m


Wrong = Callable[[Callable[[rlx.GraphModule], bool]], None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Wrong:
    """Plants a fault: SiLU is compiled as sigmoid, in modules that a function says."""
    right = compiler.compile

    def of(where: Callable[[rlx.GraphModule], bool]) -> None:
        def wrong(module: rlx.GraphModule, **options: Any) -> Any:
            text = module.to_text(locations=True)
            text = text.replace("mir.silu", "mir.sigmoid") if where(module) else text
            return right(rlx.GraphModule.from_text(text), **options)

        monkeypatch.setattr(compiler, "compile", wrong)

    return of


@pytest.mark.parametrize("rival", RIVALS)
def test_a_fault_is_found(rival: str, plant: Wrong) -> None:
    plant(lambda module: True)
    found = rlx.check_against(network(), rival, sizes={"n": 5}).difference
    assert found is not None
    assert (found.op, found.fused) == ("mir.silu", False)
    assert "block 'second" in found.where
    assert "test_check_against.py" in found.where
    assert abs(found.ours - found.theirs) > found.allowed
    assert f"gives {found.ours:.9g} at {list(found.index)}, but {found.theirs:.9g} is right" in str(found)


@pytest.mark.parametrize("rival", RIVALS)
def test_a_fault_of_fusion_is_found(rival: str, plant: Wrong) -> None:
    """Of code that is right where all values are outputs, and wrong where they aren't."""
    plant(lambda module: len(module.outputs) < 5)
    found = rlx.check_against(network(), rival, sizes={"n": 5}).difference
    assert found is not None
    assert (found.op, found.fused) == ("mir.silu", True)
    assert "compiled with what is before it" in str(found)


def _saved(tmp_path: Path) -> str:
    path = tmp_path / "m.mlir"
    path.write_text(network().to_text())
    return str(path)


@pytest.mark.parametrize("rival", RIVALS)
def test_command(rival: str, tmp_path: Path, plant: Wrong) -> None:
    arguments = ["check-against", rival, _saved(tmp_path), "--size", "n=3"]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    assert "none differs" in run.output
    plant(lambda module: True)
    run = CliRunner().invoke(app, [*arguments, "--json"])
    assert run.exit_code == 1
    assert json.loads(run.output)["difference"]["op"] == "mir.silu"


@pytest.mark.parametrize("rival", RIVALS)
def test_nothing_differs(rival: str) -> None:
    for size in (1, 7):
        verdict = rlx.check_against(network(), rival, sizes={"n": size})
        assert verdict.difference is None, str(verdict)
        assert verdict.compared >= 8
    assert str(verdict).endswith("none differs")


def test_who_can_be_asked() -> None:
    with pytest.raises(UnsupportedError, match="no comparison with onnxruntime: modules aren't written as ONNX"):
        rlx.check_against(network(), "onnxruntime")
    with pytest.raises(InputError, match="is one of jax, torch, iree, onnxruntime, but got 'tvm'"):
        rlx.check_against(network(), "tvm")


@pytest.mark.parametrize("rival", RIVALS)
def test_arguments_are_checked(rival: str) -> None:
    with pytest.raises(InputError, match="'network' has no symbol 'm', it has n"):
        rlx.check_against(network(), rival, sizes={"m": 3})
    with pytest.raises(InputError, match="'network' has no argument 'z', it has x, a, b, g, c"):
        rlx.check_against(network(), rival, inputs={"z": np.ones(3, np.float32)})
    with pytest.raises(InputError, match="'factor' is above 0, but got 0"):
        rlx.check_against(network(), rival, factor=0)
