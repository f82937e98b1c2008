# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that memory bounds, on one GPU: rlx-mlir and torch beside a copy of as many bytes, in turns.

    python benchmarks/gpu/rows.py --json

RMSNorm, softmax, transpose, running sums along rows and along columns, sums of columns, a choice by the sign, and x
beside itself, of x [M, N], M rows chosen from x, SwiGLU of x [M, 2 N], in bf16. Figures are GB/s of what each reads and
writes at least; the copy is torch's, of x. Each measurement replays a CUDA graph of several with operands of their own,
which together are far larger than L2, and waits for it. Results are compared before anything is timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from device import captured, need_gpu, per_second, rlx_array

COUNT = 4
"""Operations of one graph."""

OPERATIONS = (
    "rms_norm",
    "softmax",
    "swiglu",
    "gather",
    "transpose",
    "cumsum",
    "column_cumsum",
    "column_sum",
    "concat",
    "where",
)


def build(operation: str, shape: tuple[int, int]) -> Any:
    """`COUNT` of the operation as one graph."""
    import rlx_mlir as rlx

    graph = rlx.GraphModule.mir(operation)
    outputs = {}
    for i in range(COUNT):
        x = graph.input(f"x{i}", list(shape), "bf16")
        if operation == "rms_norm":
            outputs[f"y{i}"] = graph.rms_norm(x, graph.param(f"gamma{i}", [shape[1]], "bf16"), eps=1e-5)
        elif operation == "softmax":
            outputs[f"y{i}"] = graph.softmax(x)
        elif operation == "gather":
            outputs[f"y{i}"] = graph.gather(x, graph.input(f"rows{i}", [shape[0]], "i32"))
        elif operation == "transpose":
            outputs[f"y{i}"] = graph.transpose(x, [1, 0])
        elif operation in ("cumsum", "column_cumsum"):
            outputs[f"y{i}"] = graph.cumsum(x, axis=-1 if operation == "cumsum" else 0)
        elif operation == "column_sum":
            outputs[f"y{i}"] = graph.reduce(x, "sum", [0])
        elif operation == "concat":
            outputs[f"y{i}"] = graph.concat([x, x], axis=1)
        elif operation == "where":
            outputs[f"y{i}"] = graph.where(graph.compare("gt", x, 0.0), x, 0.5)
        else:
            outputs[f"y{i}"] = graph.fused_swiglu(x, gate_first=True)
    graph.set_outputs(outputs)
    return graph


def by_torch(operation: str, x: Any, gamma: Any, chosen: Any) -> Any:
    """The same by torch's functions; `chosen` are the rows of a gather."""
    import torch

    functional = torch.nn.functional
    if operation == "rms_norm":
        return functional.rms_norm(x, x.shape[-1:], gamma, 1e-5)
    if operation == "softmax":
        return torch.softmax(x, -1)
    if operation == "gather":
        return x[chosen]
    if operation == "transpose":
        return x.t().contiguous()
    if operation in ("cumsum", "column_cumsum"):
        return torch.cumsum(x, -1 if operation == "cumsum" else 0)
    if operation == "column_sum":
        return x.sum(0)
    if operation == "concat":
        return torch.cat([x, x], 1)
    if operation == "where":
        return torch.where(x > 0, x, 0.5)
    gate, up = x.chunk(2, -1)
    return functional.silu(gate) * up


def compare(operation: str, m: int, n: int, options: argparse.Namespace) -> dict[str, object]:
    """One row: GB/s of ours, torch's and the copy's, and ours over each."""
    import torch

    import rlx_mlir as rlx
    from rlx_mlir.measure.timing import NOISY, interleave

    width = 2 * n if operation == "swiglu" else n
    xs = [torch.randn(m, width, device="cuda", dtype=torch.bfloat16) for _ in range(COUNT)]
    gamma = torch.randn(n, device="cuda", dtype=torch.bfloat16)
    chosen = torch.randint(m, (m,), device="cuda", dtype=torch.int32)
    result = {"transpose": (n, m), "column_sum": (n,), "concat": (m, 2 * n)}.get(operation, (m, n))
    outs = [torch.full(result, float("nan"), device="cuda", dtype=torch.bfloat16) for _ in range(COUNT)]
    executable = rlx.compile(build(operation, (m, width)), target="cuda", cache=False)
    executable.set_params({spec.name: gamma for spec in executable.params})
    inputs = {f"x{i}": x for i, x in enumerate(xs)}
    if operation == "gather":
        inputs |= {f"rows{i}": chosen for i in range(COUNT)}
    ours = executable.bind(inputs, outputs={f"y{i}": rlx_array(out) for i, out in enumerate(outs)})
    ours()
    wanted = by_torch(operation, xs[-1].float(), gamma.float(), chosen)
    # bf16 has eight digits, and sums are as large as their largest.
    error = (outs[-1].float() - wanted).abs().max().item() / max(1.0, wanted.abs().max().item())
    if not error <= 0.05:
        raise SystemExit(f"{operation}: differs from torch in f32 by {error:.2g} of the largest element")
    copies = [torch.empty_like(x) for x in xs]

    def copy() -> None:
        for x, out in zip(xs, copies, strict=True):
            out.copy_(x)

    def others() -> None:
        for x in xs:
            by_torch(operation, x, gamma, chosen)

    traffic = 2 * COUNT * (m * width + outs[0].numel())
    runs = {"ours": (ours, traffic), "torch": (captured(others), traffic)}
    runs["copy"] = (captured(copy), 4 * COUNT * m * width)
    measures = {name: per_second(run, 1e-9 * size, options.floor) for name, (run, size) in runs.items()}
    series = interleave(measures, options.rounds, rest=0.0)
    noisy = " (noisy)" if max(own.spread for own in series.values()) > NOISY else ""
    row: dict[str, object] = {"what": f"{operation} {m} x {width}"}
    row |= {f"{name} GB/s": own.median for name, own in series.items()}
    row |= {f"to {name}": f"{series['ours'].median / series[name].median:.3f}x{noisy}" for name in ("torch", "copy")}
    return row | {"spread": f"{series['ours'].spread:.0%}"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", nargs="+", default=OPERATIONS, choices=OPERATIONS)
    parser.add_argument("--rows", type=int, default=16384, help="M")
    parser.add_argument("--columns", type=int, default=4096, help="N")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--floor", type=float, default=0.1, help="seconds of calls for one measurement")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    need_gpu()
    import torch

    from rlx_mlir.measure.report import report
    from rlx_mlir.measure.timing import versions

    rows = [compare(operation, options.rows, options.columns, options) for operation in options.operations]
    about = {**versions(["rlx-mlir", "torch"]), "gpu": torch.cuda.get_device_name()}
    report(f"kernels that memory bounds, median of {options.rounds} rounds", rows, about, options.json)


if __name__ == "__main__":
    main()
