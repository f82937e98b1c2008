# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of PyTorch are read and written where they are, whatever their element type."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import rlx_mlir as rlx  # noqa: E402
from rlx_mlir.errors import InputError  # noqa: E402
from rlx_mlir.pytorch.tensors import WORDS  # noqa: E402


def doubled(word: str) -> rlx.Executable:
    m = rlx.GraphModule.hir("doubled")
    x = m.input("x", ["n", 4], word)
    m.set_outputs({"y": m.add(x, x)}, tied={"y": "x"})
    return rlx.compile(m)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "int32"])
def test_tensors_are_read_written_and_donated_in_place(name: str) -> None:
    dtype: Any = getattr(torch, name)
    run = doubled(WORDS[name])
    x, into = torch.arange(12, dtype=dtype).reshape(3, 4), torch.empty(3, 4, dtype=dtype)
    expected = x + x
    assert run.run({"x": x}, outputs={"y": into})["y"] is into
    assert torch.equal(into, expected)
    back = torch.from_dlpack(rlx.as_dlpack(run(x)))
    assert back.dtype == dtype
    assert torch.equal(back, expected)
    run.run({"x": x}, donate=("x",))
    assert torch.equal(x, expected)


def test_tensors_that_are_refused() -> None:
    run = doubled("f32")
    with pytest.raises(InputError, match=r"input 'x' can't be read as an array .*requires grad|require gradient"):
        run(torch.ones(2, 4, requires_grad=True))
    with pytest.raises(InputError, match=r"output 'y' has shape .* but got .*float64"):
        run.run({"x": torch.ones(2, 4)}, outputs={"y": torch.empty(2, 4, dtype=torch.float64)})
    with pytest.raises(InputError, match="output 'y' goes to a contiguous, aligned, writeable array"):
        run.run({"x": torch.ones(2, 4)}, outputs={"y": torch.empty(4, 2).T})
