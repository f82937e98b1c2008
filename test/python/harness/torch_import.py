# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares models of PyTorch with the modules that they become, by the references of their operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rlx_mlir import interpret
from rlx_mlir.pytorch import TorchProgram, from_torch
from rlx_mlir.pytorch.tensors import array_of


class Function(torch.nn.Module):  # type: ignore[misc]
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


def drawn(*shape: int, dtype: Any = torch.float32, low: float = -2.0) -> Any:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(0, 5, shape, generator=generator, dtype=dtype)
    return (low + (2.0 - low) * torch.rand(shape, generator=generator)).to(dtype)


def meaning(program: TorchProgram, *given: Any) -> list[np.ndarray]:
    """The results by the references."""
    names = [value.name for value in program.module.inputs]
    arrays = {name: array_of(value, name) for name, value in zip(names, given, strict=True)}
    return list(interpret(program.module, {**arrays, **program.params}).values())


def check(
    model: Any, *given: Any, dynamic: bool = True, others: tuple[Any, ...] = (), is_long: bool = False
) -> TorchProgram:
    """Compares; with the first dimension of each tensor dynamic, on other tensors, too.

    Args:
        is_long: whether that dimension is at least 3: the exporter guards slices of less.
    """
    model = model if isinstance(model, torch.nn.Module) else Function(model)
    shapes = None
    if dynamic:
        batch = torch.export.Dim("n", min=3 if is_long else 1, max=64)
        each = tuple({0: batch} if own.ndim else None for own in given)
        shapes = (each,) if isinstance(model, Function) else each
    program = from_torch(model.eval(), given, dynamic_shapes=shapes)
    for own in (given, *others):
        with torch.no_grad():
            wanted = model(*own)
        wanted = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
        found = meaning(program, *own)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            expected = array_of(b, "result")
            assert a.shape == expected.shape
            assert a.dtype == expected.dtype
            if expected.dtype.kind in "iub":
                np.testing.assert_array_equal(a, expected)
            else:
                np.testing.assert_allclose(a.astype(np.float64), expected.astype(np.float64), rtol=2e-5, atol=2e-5)
    return program
