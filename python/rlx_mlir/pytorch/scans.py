# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The selective scan of Mamba as one operator of PyTorch, `rlx::selective_scan`.

transformers has it as a loop over positions, which an exporter can only unroll: for one length, in as many operations.
While a model is exported, the operator stands in the place of that function.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rlx_mlir.hir.values import Value
from rlx_mlir.pytorch.graph import Importer, handles

if TYPE_CHECKING:
    from torch import Tensor
    from torch._ops import OpOverloadPacket

#: What the function is called where models have it.
_FUNCTION = "mamba_selective_scan"


@functools.cache
def operator() -> OpOverloadPacket:
    """The operator, which is registered once: hidden states and steps [B, h, S], rates [h, n], b and c [B, n, S]."""
    import torch

    def run(x: Tensor, step: Tensor, rates: Tensor, b: Tensor, c: Tensor) -> Tensor:
        decay = torch.exp(step[..., None] * rates[:, None])
        fresh = (step * x)[..., None] * b.transpose(1, 2)[:, None]
        state, results = torch.zeros_like(fresh[:, :, 0]), []
        for at in range(x.shape[2]):
            state = decay[:, :, at] * state + fresh[:, :, at]
            results.append((state * c[:, None, :, at]).sum(-1))
        return torch.stack(results, -1) if results else torch.empty_like(x)

    schema = "(Tensor x, Tensor step, Tensor rates, Tensor b, Tensor c) -> Tensor"
    torch.library.define("rlx::selective_scan", schema)
    torch.library.impl("rlx::selective_scan", "cpu", run)
    torch.library.register_fake("rlx::selective_scan", lambda x, *_: torch.empty_like(x))
    return torch.ops.rlx.selective_scan


@handles("rlx.selective_scan.default")
def selective_scan(im: Importer, x: Value, step: Value, rates: Value, b: Value, c: Value) -> Value:
    """The recurrence, of sequences before channels."""
    x, step, b, c = (im.m.transpose(each, [0, 2, 1]) for each in (x, step, b, c))
    return im.m.transpose(im.m.selective_scan(x, step, rates, b, c)[0], [0, 2, 1])


def _scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **_: object,
) -> Tensor | tuple[Tensor, None]:
    """In place of the function of models; its arguments are those of that."""
    import torch

    if delta_bias is not None:
        dt = dt + delta_bias.to(dt.dtype)[..., None]
    if delta_softplus:
        dt = torch.nn.functional.softplus(dt)
    found = operator()(hidden_states, dt, A, B, C)
    if D is not None:
        found = found + hidden_states * D[None, :, None]
    if z is not None:
        found = found * torch.nn.functional.silu(z)
    return (found, None) if return_last_state else found


@contextmanager
def whole_scans() -> Iterator[None]:
    """Within this, models of transformers that are loaded have the operator in place of the loop."""
    own = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("transformers.models.") and callable(getattr(module, _FUNCTION, None))
    ]
    kept = [getattr(module, _FUNCTION) for module in own]
    for module in own:
        setattr(module, _FUNCTION, _scan)
    try:
        yield
    finally:
        for module, function in zip(own, kept, strict=True):
            setattr(module, _FUNCTION, function)
