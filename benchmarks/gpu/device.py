# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the benchmarks on GPUs share."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any


def need_gpu() -> None:
    """Ends the program with the reason where there is no GPU, or no torch for it."""
    if importlib.util.find_spec("torch") is None:
        raise SystemExit("this benchmark compares with torch, which isn't installed")
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs an NVIDIA GPU, and torch finds none")


def rlx_array(tensor: Any) -> Any:
    """A tensor of torch as ours, on the same memory."""
    from rlx_mlir.runtime.device import DeviceArray

    return DeviceArray.from_dlpack(tensor)


def captured(work: Callable[[], object]) -> Callable[[], None]:
    """Torch's work as a CUDA graph; a call waits for it."""
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()

    def run() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return run


def per_second(run: Callable[[], object], amount: float, floor: float) -> Callable[[], float]:
    """A figure for `interleave`: `amount` of work a call, per second, over at least `floor` seconds of calls."""
    from rlx_mlir.measure.timing import seconds_per_call

    seconds = seconds_per_call(run, floor)
    return lambda: amount / seconds()
