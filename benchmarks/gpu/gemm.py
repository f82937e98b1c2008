# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products of rlx-mlir and of torch (cuBLAS) on one GPU, on the same arrays, in turns.

    python benchmarks/gpu/gemm.py --json
    python benchmarks/gpu/gemm.py --dtype fp8 --scales rows

x [M, K] times a parameter [N, K] (with --order kn: [K, N]), without bias. Figures are TFLOP/s: medians of rounds, each
of which measures ours and torch's in turn, since clocks and power change within seconds. A measurement is a number of
calls, each of which replays a CUDA graph of several products with operands of their own, ours and torch's alike, and
waits for it. Results are compared before anything is timed. With --tiles, every tile of the schedule for Hopper is
measured beside the one that its cost model chooses: that is what the model's figures come from.

With --dtype fp8, operands are of e4m3, outputs of bf16, and torch's product is `torch._scaled_mm`, with one scale for
each operand or, by --scales rows, one for each row of x and column of w. By default both sides add up in f32
(`use_fast_accum=False`); with --fast-sums, neither does.
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
    """x [m, k] times w with n columns, stored [n, k] where `transposed`, else [k, n].

    Of fp8: rows, whether each row of x and column of w has a scale; fast, whether sums are left to tensor cores.
    """

    m: int
    n: int
    k: int
    dtype: str
    transposed: bool
    rows: bool = False
    fast: bool = False

    @property
    def float8(self) -> bool:
        return self.dtype == "fp8"

    @property
    def what(self) -> str:
        return f"M {self.m}, N {self.n}, K {self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def count(self) -> int:
        """Products in a graph."""
        read = (self.m * self.k + self.n * self.k) * (1 if self.float8 else 2)
        size = read + 2 * self.m * self.n
        return max(1, min(MOST_PRODUCTS, int(GRAPH_FLOPS / self.flops), int(GRAPH_BYTES / size)))


class Operands:
    """The arrays of a problem's products, on the GPU."""

    def __init__(self, problem: Problem) -> None:
        import torch

        kinds = {"bf16": torch.bfloat16, "f16": torch.float16, "fp8": torch.float8_e4m3fn}
        dtype = kinds[problem.dtype]
        generator = torch.Generator("cuda").manual_seed(0)

        def made(*shape: int, scale: float = 1.0) -> Any:
            return (torch.randn(*shape, device="cuda", generator=generator) * scale).to(dtype)

        shape = (problem.n, problem.k) if problem.transposed else (problem.k, problem.n)
        self.x = [made(problem.m, problem.k) for _ in range(problem.count)]
        # Small floats of 8 bits have few bits: there, scales make weights small.
        scale = 1.0 if problem.float8 else problem.k**-0.5
        self.w = [made(*shape, scale=scale) for _ in range(problem.count)]
        self.problem, self.dtype = problem, torch.bfloat16 if problem.float8 else dtype
        self.scales: tuple[Any, Any] | None = None
        if problem.float8:
            shapes = ((problem.m,), (problem.n,)) if problem.rows else ((1,), (1,))
            left, right = (torch.rand(*own, device="cuda", generator=generator) + 0.5 for own in shapes)
            self.scales = left, right


class Ours:
    """The products as one compiled module."""

    def __init__(self, operands: Operands, choice: Any = None, *, allow_generic: bool = False) -> None:
        """choice: the tile and its splits in place of the model's, a `Choice` of `gemm_hopper_config`."""
        import torch

        import rlx_mlir as rlx

        problem = operands.problem
        graph = rlx.GraphModule.mir("products")
        outputs = {}
        word = "f8E4M3FN" if problem.float8 else problem.dtype
        scales: dict[str, Any] = {}
        if operands.scales is not None:
            scales = dict(zip(("x_scale", "w_scale"), operands.scales, strict=True))
        given = [graph.param(name, list(scale.shape)) for name, scale in scales.items()]
        for i, w in enumerate(operands.w):
            x = graph.input(f"x{i}", [problem.m, problem.k], word)
            right = graph.param(f"w{i}", list(w.shape), word)
            if given:
                y = graph.scaled_matmul(x, right, *given, dtype="bf16", transpose_rhs=problem.transposed)
            else:
                y = graph.matmul(x, right, transpose_rhs=problem.transposed)
            outputs[f"y{i}"] = y
        graph.set_outputs(outputs)
        choices = {"scaled_matmul_0": {"fast_sums": 1}} if problem.fast else {}
        with chosen(choice):
            executable = rlx.compile(graph, target="cuda", cache=False, choices=choices)
        self.templates = sorted(set(executable.artifact.templates.values()))
        if not allow_generic and any(how.startswith("generic") for how in self.templates):
            raise SystemExit(f"{problem.what}: no schedule: {'; '.join(self.templates)}")
        executable.set_params({**scales, **{f"w{i}": w for i, w in enumerate(operands.w)}})
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
        if operands.scales is not None:
            if not problem.transposed:  # the only order that torch takes
                weights = [w.T.contiguous().T for w in weights]
            left, right = operands.scales
            if problem.rows:
                left, right = left[:, None], right[None]

        def products() -> None:
            for x, w, out in zip(operands.x, weights, self.out, strict=True):
                if operands.scales is None:
                    torch.matmul(x, w, out=out)
                    continue
                options = {"out_dtype": torch.bfloat16, "use_fast_accum": problem.fast}
                torch._scaled_mm(x, w, left, right, **options, out=out)

        self.run = captured(products)


def relative_error(result: Any, x: Any, w: Any, scales: tuple[Any, Any] | None, *, transposed: bool) -> float:
    """The norm of the error over that of the product in f64, of up to 256 rows."""
    import torch

    rows = torch.linspace(0, x.shape[0] - 1, min(256, x.shape[0]), device="cuda").long()
    exact = x[rows].double() @ (w.T if transposed else w).double()
    if scales is not None:
        left, right = scales
        exact = exact * (left if left.numel() == 1 else left[rows, None]).double() * right.double()
    return float(((result[rows].double() - exact).norm() / exact.norm()).item())


def compare(problem: Problem, options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for the model's tile, and with --tiles for each: medians, spreads, and ours over torch's."""
    from rlx_mlir.codegen.gpu.gemm_hopper_config import ACCUMULATORS, PROMOTED_ACCUMULATORS, TILES, Choice
    from rlx_mlir.measure.timing import NOISY, interleave

    operands = Operands(problem)
    choices: dict[str, Choice | None] = {"model": None}
    most = PROMOTED_ACCUMULATORS if problem.float8 and not problem.fast else ACCUMULATORS
    if options.tiles:
        choices |= {
            f"{tile.out_rows}x{tile.out_columns}{' swapped' if tile.swapped else ''}, {splits} parts": Choice(
                tile, splits
            )
            for tile in TILES
            if tile.blocks * tile.columns <= most
            for splits in (1, 2, 4)
            if splits == 1 or tile.rows * tile.columns <= 64 * 64
        }
    runs: dict[str, Any] = {
        name: Ours(operands, choice, allow_generic=options.allow_generic) for name, choice in choices.items()
    }
    runs["torch"] = Torch(operands)
    limit = {"bf16": 5e-3, "f16": 1e-3, "fp8": 2e-2 if problem.fast else 5e-3}[problem.dtype]
    for name, own in runs.items():
        own.run()
        last = (own.out[-1], operands.x[-1], operands.w[-1], operands.scales)
        error = relative_error(*last, transposed=problem.transposed)
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
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "f16", "fp8"])
    parser.add_argument("--scales", default="one", choices=["one", "rows"], help="with fp8: one, or one for each row")
    parser.add_argument("--fast-sums", action="store_true", help="with fp8: sums are left to tensor cores")
    parser.add_argument("--order", default="nk", choices=["nk", "kn"], help="how weights are stored")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--floor", type=float, default=0.1, help="seconds of calls for one measurement")
    parser.add_argument("--tiles", action="store_true", help="measure every tile of the schedule for Hopper")
    parser.add_argument("--allow-generic", action="store_true", help="measure kernels that have no schedule, too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.dtype != "fp8" and (options.fast_sums or options.scales != "one"):
        parser.error("--scales and --fast-sums are options of --dtype fp8")
    need_gpu()
    import torch

    from rlx_mlir.measure.report import report
    from rlx_mlir.measure.timing import versions

    rows: list[dict[str, object]] = []
    for m, n, k in options.shapes:
        how = (options.dtype, options.order == "nk", options.scales == "rows", options.fast_sums)
        rows.extend(compare(Problem(m, n, k, *how), options))
        torch.cuda.empty_cache()
    about = {**versions(["rlx-mlir", "torch"]), "gpu": torch.cuda.get_device_name()}
    report(f"matrix products of {options.dtype}, median of {options.rounds} rounds", rows, about, options.json)


if __name__ == "__main__":
    main()
