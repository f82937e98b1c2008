# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page about PyTorch runs, and the package names the backend."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from rlx_mlir.errors import UnsupportedError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[3]


def test_the_backend_is_where_the_package_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["rlx"].partition(":")
    assert callable(getattr(import_module(module), name))
    assert "torch" not in " ".join(project["dependencies"])


def test_without_pytorch_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    import rlx_mlir as rlx

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UnsupportedError, match=r"'from_torch' needs PyTorch, .*: pip install 'rlx-mlir\[torch\]'"):
        rlx.from_torch(None)


def test_the_page_runs() -> None:
    pytest.importorskip("torch")
    text = ROOT.joinpath("docs/torch.md").read_text()
    program = "\n".join(block.partition("```")[0] for block in text.split("```python\n")[1:])
    from torch._dynamo import list_backends

    if "rlx" not in list_backends():  # of an installation that is older than the backend
        program = program.replace(
            'backend="rlx"', "backend=__import__('rlx_mlir.pytorch.backend', fromlist=['rlx']).rlx"
        )
    exec(compile(program, "torch.md", "exec"), {"__name__": "document"})
