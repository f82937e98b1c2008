# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page about JAX runs, and without JAX there is a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rlx_mlir as rlx
from rlx_mlir.errors import UnsupportedError

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_runs() -> None:
    pytest.importorskip("jax")
    text = ROOT.joinpath("docs/jax.md").read_text()
    program = "\n".join(block.partition("```")[0] for block in text.split("```python\n")[1:])
    exec(compile(program, "jax.md", "exec"), {"__name__": "document"})


def test_without_jax_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(UnsupportedError, match=r"functions of JAX need .*: pip install 'rlx-mlir\[jax\]'"):
        rlx.from_jax(abs, 1.0)
    m = rlx.GraphModule.mir("m")
    m.set_outputs({"y": m.tanh(m.input("x", [3]))})
    with pytest.raises(UnsupportedError, match=r"comparing with jax needs it, .*: pip install 'rlx-mlir\[jax\]'"):
        rlx.check_against(m, "jax")


def test_reading_text_loads_nothing_of_jax() -> None:
    program = (
        "import sys, rlx_mlir as rlx; m = rlx.GraphModule.mir('m'); m.set_outputs({'y': m.tanh(m.input('x', [3]))}); "
        "rlx.from_stablehlo(rlx.to_stablehlo(m)); assert not {'jax', 'jaxlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
