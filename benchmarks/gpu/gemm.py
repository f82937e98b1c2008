# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products of rlx-mlir and of torch (cuBLAS) on one GPU, on the same arrays, in turns.

    python benchmarks/gpu/gemm.py --json

x [M, K] times a parameter [N, K] (with --order kn: [K, N]), without bias. Figures are TFLOP/s: medians of rounds, each
of which measures ours and torch's in turn, since clocks and power change within seconds. A measurement is a number of
calls, each of which replays a CUDA graph of several products with operands of their own, ours and torch's alike, and
waits for it. Results are compared before anything is timed. With --tiles, every tile of the schedule for Hopper is
measured beside the one that its cost model chooses: that is what the model's figures come from.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from device import captured, need_gpu, per_second, rlx_array

SHAPES = [
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (512, 4096, 4096),
    (4096, 14336, 4096),
    (1024, 4096, 4096),
    (16, 4096, 4096),
    (64, 4096, 4096),
    (128, 4096, 4096),
]
"""M, N, K."""
GRAPH_FLOPS = 4e12
"""Operations of one graph: some milliseconds, so that the call itself doesn't count."""
GRAPH_BYTES = 4e9
"""Bytes of a graph's operands at most; many of them keep small ones from staying in L2."""
MOST_PRODUCTS = 64


@dataclass(frozen=True)
class Problem:
    """x [m, k] times w with n columns, stored [n, k] where `transposed`, else [k, n]."""

    m: int
    n: int
    k: int
    dtype: str
    transposed: bool

    @property
    def what(self) -> str:
        return f"M {self.m}, N {self.n}, K {self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def count(self) -> int:
        """Products in a graph."""
        size = 2 * (self.m * self.k + self.n * self.k + self.m * self.n)
        return max(1, min(MOST_PRODUCTS, int(GRAPH_FLOPS / self.flops), int(GRAPH_BYTES / size)))


class Operands:
    """The arrays of a problem's products, on the GPU."""

    def __init__(self, problem: Problem) -> None:
        import torch

        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[problem.dtype]
        generator = torch.Generator("cuda").manual_seed(0)

        def made(*shape: int, scale: float = 1.0) -> Any:
            return (torch.randn(*shape, device="cuda", generator=generator) * scale).to(dtype)

        shape = (problem.n, problem.k) if problem.transposed else (problem.k, problem.n)
        self.x = [made(problem.m, problem.k) for _ in range(problem.count)]
        self.w = [made(*shape, scale=problem.k**-0.5) for _ in range(problem.count)]
        self.problem, self.dtype = problem, dtype


class Ours:
    """The products as one compiled module."""

    def __init__(self, operands: Operands, choice: Any = None, *, allow_generic: bool = False) -> None:
        """choice: the tile and its splits in place of the model's, a `Choice` of `gemm_hopper_config`."""
        import torch

        import rlx_mlir as rlx

        problem = operands.problem
        graph = rlx.GraphModule.mir("products")
        outputs = {}
        for i, w in enumerate(operands.w):
            x = graph.input(f"x{i}", [problem.m, problem.k], problem.dtype)
            right = graph.param(f"w{i}", list(w.shape), problem.dtype)
            outputs[f"y{i}"] = graph.matmul(x, right, transpose_rhs=problem.transposed)
        graph.set_outputs(outputs)
        with chosen(choice):
            executable = rlx.compile(graph, target="cuda", cache=False)
        self.templates = sorted(set(executable.artifact.templates.values()))
        if not allow_generic and any(how.startswith("generic") for how in self.templates):
            raise SystemExit(f"{problem.what}: no schedule: {'; '.join(self.templates)}")
        executable.set_params({f"w{i}": w for i, w in enumerate(operands.w)})
        shape = (problem.m, problem.n)
        # What isn't written would be found.
        self.out = [torch.full(shape, float("nan"), device="cuda", dtype=operands.dtype) for _ in operands.x]
        inputs = {f"x{i}": x for i, x in enumerate(operands.x)}
        self.run = executable.bind(inputs, outputs={f"y{i}": rlx_array(y) for i, y in enumerate(self.out)})


@contextmanager
def chosen(choice: Any) -> Iterator[None]:
    """Products are compiled with a tile in place of the model's; None leaves it to the model."""
    if choice is None:
        yield
        return
    with mock.patch("rlx_mlir.codegen.gpu.gemm_hopper.choose_by_rows", return_value=[(None, choice)]):
        yield


class Torch:
    """The products by torch, as a CUDA graph."""

    def __init__(self, operands: Operands) -> None:
        import torch

        problem = operands.problem
        self.out = [torch.empty(problem.m, problem.n, device="cuda", dtype=operands.dtype) for _ in operands.x]
        weights = [w.T if problem.transposed else w for w in operands.w]

        def products() -> None:
            for x, w, out in zip(operands.x, weights, self.out, strict=True):
                torch.matmul(x, w, out=out)

        self.run = captured(products)


def relative_error(result: Any, x: Any, w: Any, *, transposed: bool) -> float:
    """The norm of the error over that of the product in f64, of up to 256 rows."""
    import torch

    rows = torch.linspace(0, x.shape[0] - 1, min(256, x.shape[0]), device="cuda").long()
    exact = x[rows].double() @ (w.T if transposed else w).double()
    return float(((result[rows].double() - exact).norm() / exact.norm()).item())


def compare(problem: Problem, options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for the model's tile, and with --tiles for each: medians, spreads, and ours over torch's."""
    from rlx_mlir.codegen.gpu.gemm_hopper_config import TILES, Choice
    from rlx_mlir.measure.timing import NOISY, interleave

    operands = Operands(problem)
    choices: dict[str, Choice | None] = {"model": None}
    if options.tiles:
        choices |= {
            f"{tile.out_rows}x{tile.out_columns}{' swapped' if tile.swapped else ''}, {splits} parts": Choice(
                tile, splits
            )
            for tile in TILES
            for splits in (1, 2, 4)
            if splits == 1 or tile.rows * tile.columns <= 64 * 64
        }
    runs: dict[str, Any] = {
        name: Ours(operands, choice, allow_generic=options.allow_generic) for name, choice in choices.items()
    }
    runs["torch"] = Torch(operands)
    limit = {"bf16": 5e-3, "f16": 1e-3}[problem.dtype]
    for name, own in runs.items():
        own.run()
        error = relative_error(own.out[-1], operands.x[-1], operands.w[-1], transposed=problem.transposed)
        if not error <= limit:
            raise SystemExit(f"{problem.what}: {name} has a relative error of {error:.2e}, above {limit:.0e}")
    flops = problem.flops * problem.count
    measured = {name: per_second(own.run, flops * 1e-12, options.floor) for name, own in runs.items()}
    series = interleave(measured, options.rounds, rest=0.0)
    torch = series.pop("torch")
    rows: list[dict[str, object]] = []
    for name, ours in series.items():
        noisy = " (noisy)" if max(ours.spread, torch.spread) > NOISY else ""
        rows.append(
            {
                "what": problem.what,
                "tile": name,
                "products": problem.count,
                "TFLOP/s": ours.median,
                "spread": f"{ours.spread:.0%}",
                "torch": torch.median,
                "torch spread": f"{torch.spread:.0%}",
                "to torch": f"{ours.median / torch.median:.3f}x{noisy}",
                "schedule": ", ".join(runs[name].templates),
            }
        )
    return rows


def shape_of(text: str) -> tuple[int, int, int]:
    """The sizes of `512x4096x4096`."""
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"expects M x N x K such as 512x4096x4096, but got '{text}'")
    m, n, k = map(int, parts)
    return m, n, k


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=shape_of, nargs="*", default=SHAPES, help="as MxNxK")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "f16"])
    parser.add_argument("--order", default="nk", choices=["nk", "kn"], help="how weights are stored")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--floor", type=float, default=0.1, help="seconds of calls for one measurement")
    parser.add_argument("--tiles", action="store_true", help="measure every tile of the schedule for Hopper")
    parser.add_argument("--allow-generic", action="store_true", help="measure kernels that have no schedule, too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    need_gpu()
    import torch

    from rlx_mlir.measure.report import report
    from rlx_mlir.measure.timing import versions

    rows: list[dict[str, object]] = []
    for m, n, k in options.shapes:
        rows.extend(compare(Problem(m, n, k, options.dtype, options.order == "nk"), options))
        torch.cuda.empty_cache()
    about = {**versions(["rlx-mlir", "torch"]), "gpu": torch.cuda.get_device_name()}
    report(f"matrix products of {options.dtype}, median of {options.rounds} rounds", rows, about, options.json)


if __name__ == "__main__":
    main()
