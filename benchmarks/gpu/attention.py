# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of rlx-mlir and of torch (cuDNN, FlashAttention) on one GPU, on the same arrays, in turns.

    python benchmarks/gpu/attention.py --json

Prompts are S queries over S keys, in TFLOP/s, of which causal ones count half. Decoding is one query over a cache of
which `keys` are filled, in GB/s of those keys and values; torch gets the filled part alone. In all arrays heads come
before positions. Torch's backends get keys and values that were repeated for every query head before the clock starts,
or share them (`enable_gqa`), whichever works and is faster. Each measurement replays a CUDA graph of several attentions
with operands of their own, and waits for it. Results are compared with torch's in f32 before anything is timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from device import captured, need_gpu, per_second, rlx_array

PROMPTS = (512, 1024, 2048, 4096, 8192, 16384)
DECODE = (512, 4096, 32768)
CONTEXT = 32768
"""Rows of the caches that decoding reads: what isn't filled must cost nothing."""
GRAPH_FLOPS = 2e12
"""Operations of one graph: some milliseconds, so that the call itself doesn't count."""
GRAPH_BYTES = 8e9
"""Bytes of a graph's operands at most; many of them keep small ones from staying in L2."""
MOST = 32


@dataclass(frozen=True)
class Problem:
    """`queries` queries at the end of `keys` keys of a cache of `rows`, for `heads` query and KV heads."""

    batch: int
    heads: tuple[int, int]
    size: int
    queries: int
    keys: int
    rows: int
    dtype: str
    causal: bool

    @property
    def decodes(self) -> bool:
        return self.queries == 1

    @property
    def what(self) -> str:
        kind = f"decode {self.keys}" if self.decodes else f"prompt {self.keys}{' causal' if self.causal else ''}"
        return f"{kind}, batch {self.batch}, heads {self.heads[0]}/{self.heads[1]} x {self.size}"

    @property
    def work(self) -> float:
        """Operations of a prompt; bytes of the keys and values that decoding reads."""
        if self.decodes:
            return 2.0 * 2 * self.batch * self.heads[1] * self.keys * self.size
        whole = 4.0 * self.batch * self.heads[0] * self.queries * self.keys * self.size
        return whole / 2 if self.causal else whole

    @property
    def count(self) -> int:
        """Attentions in a graph."""
        size = 2 * self.batch * self.size * 2 * (self.heads[0] * self.queries + self.heads[1] * self.rows)
        wanted = MOST if self.decodes else int(GRAPH_FLOPS / self.work)
        return max(1, min(MOST, wanted, int(GRAPH_BYTES / size)))


class Operands:
    """q, k and v of a problem's attentions, on the GPU; what isn't filled of a cache is NaN."""

    def __init__(self, problem: Problem) -> None:
        import torch

        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[problem.dtype]
        generator = torch.Generator("cuda").manual_seed(0)

        def made(heads: int, length: int, filled: int) -> Any:
            shape = (problem.batch, heads, length, problem.size)
            x = torch.randn(*shape, device="cuda", generator=generator, dtype=torch.float32).to(dtype)
            x[:, :, filled:] = float("nan")
            return x

        self.problem = problem
        self.q = [made(problem.heads[0], problem.queries, problem.queries) for _ in range(problem.count)]
        self.k = [made(problem.heads[1], problem.rows, problem.keys) for _ in range(problem.count)]
        self.v = [made(problem.heads[1], problem.rows, problem.keys) for _ in range(problem.count)]

    def filled(self) -> Iterator[tuple[Any, Any, Any]]:
        """q, k, v without the rows that aren't filled."""
        keys = self.problem.keys
        for q, k, v in zip(self.q, self.k, self.v, strict=True):
            yield q, k[:, :, :keys], v[:, :, :keys]


class Ours:
    """The attentions as one compiled module."""

    def __init__(self, operands: Operands) -> None:
        import torch

        import rlx_mlir as rlx

        problem = operands.problem
        graph = rlx.GraphModule.mir("attentions")
        pos = graph.input("pos", [problem.batch], "i32") if problem.decodes else None
        outputs = {}
        for i, (q, k) in enumerate(zip(operands.q, operands.k, strict=True)):
            arrays = [graph.input(f"{x}{i}", list(y.shape), problem.dtype) for x, y in (("q", q), ("k", k), ("v", k))]
            outputs[f"y{i}"] = graph.attention(
                *arrays,
                num_heads=problem.heads[0],
                num_kv_heads=problem.heads[1],
                head_dim=problem.size,
                mask_kind="causal" if problem.causal else "none",
                layout="bhsd",
                pos=pos,
            )
        graph.set_outputs(outputs)
        executable = rlx.compile(graph, target="cuda", cache=False)
        self.schedules = sorted(set(executable.artifact.templates.values()))
        if any(how.startswith("generic") for how in self.schedules):
            raise SystemExit(f"{problem.what}: no schedule: {'; '.join(self.schedules)}")
        # What isn't written would be found.
        self.out = [torch.full_like(q, float("nan")) for q in operands.q]
        inputs = {f"{x}{i}": y for x in "qkv" for i, y in enumerate(getattr(operands, x))}
        if problem.decodes:
            last = [problem.keys - problem.queries] * problem.batch
            inputs["pos"] = torch.tensor(last, device="cuda", dtype=torch.int32)
        self.run = executable.bind(inputs, outputs={f"y{i}": rlx_array(y) for i, y in enumerate(self.out)})


def rivals(operands: Operands) -> dict[str, Callable[[], object]]:
    """Torch's backends that take the problem, as CUDA graphs."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    problem = operands.problem
    group = problem.heads[0] // problem.heads[1]
    attention = torch.nn.functional.scaled_dot_product_attention
    causal = problem.causal and not problem.decodes
    backends = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    found: dict[str, Callable[[], object]] = {}
    for name, backend in backends.items():
        for repeated in (False, True) if group > 1 else (False,):
            sets = [
                (q, *(x.repeat_interleave(group, 1) if repeated else x.contiguous() for x in (k, v)))
                for q, k, v in operands.filled()
            ]

            def work(sets: Sequence[Any] = sets, backend: Any = backend, shared: bool = not repeated) -> None:
                with sdpa_kernel(backend):
                    for q, k, v in sets:
                        attention(q, k, v, is_causal=causal, enable_gqa=shared and group > 1)

            try:
                work()
                torch.cuda.synchronize()
                found[f"{name}{' repeated' if repeated else ''}"] = captured(work)
            except RuntimeError as error:
                print(f"{problem.what}: {name} can't: {str(error).splitlines()[0][:80]}")
    return found


def check(operands: Operands, result: Any) -> None:
    """Ends the program where the last result differs from torch's in f32 by more than roundings."""
    import torch

    problem = operands.problem
    *_, (q, k, v) = operands.filled()
    heads = [0, problem.heads[0] - 1]
    for head in heads:
        kv = head * problem.heads[1] // problem.heads[0]
        rows = torch.linspace(0, problem.queries - 1, min(256, problem.queries), device="cuda").long()
        scores = q[0, head][rows].float() @ k[0, kv].float().T * problem.size**-0.5
        if problem.causal:
            position = rows + problem.keys - problem.queries
            scores = scores.masked_fill(torch.arange(problem.keys, device="cuda") > position[:, None], float("-inf"))
        want = torch.softmax(scores, 1) @ v[0, kv].float()
        error = float(((result[0, head][rows].float() - want).norm() / want.norm()).item())
        if not error <= 1e-2:
            raise SystemExit(f"{problem.what}: head {head} has a relative error of {error:.2e}, above 1e-02")


def compare(problem: Problem, options: argparse.Namespace) -> dict[str, object]:
    """One row: medians, spreads, and ours over torch's fastest backend."""
    from rlx_mlir.measure.timing import NOISY, interleave

    operands = Operands(problem)
    ours = Ours(operands)
    ours.run()
    check(operands, ours.out[-1])
    runs = {"ours": ours.run, **rivals(operands)}
    work = problem.work * problem.count * (1e-9 if problem.decodes else 1e-12)
    series = interleave(
        {name: per_second(run, work, options.floor) for name, run in runs.items()}, options.rounds, rest=0.0
    )
    own = series.pop("ours")
    unit = "GB/s" if problem.decodes else "TFLOP/s"
    row: dict[str, object] = {"what": problem.what, unit: own.median, "spread": f"{own.spread:.0%}"}
    if series:
        best = max(series, key=lambda name: series[name].median)
        noisy = " (noisy)" if max(own.spread, series[best].spread) > NOISY else ""
        ratio = f"{own.median / series[best].median:.3f}x{noisy}"
        row |= {"torch": series[best].median, "backend": best, "to torch": ratio}
    return row | {"schedule": ", ".join(ours.schedules)}


def problems(options: argparse.Namespace) -> list[Problem]:
    """What the command line asks for."""
    heads = tuple(options.heads)
    prompts = [
        Problem(options.batch, heads, size, length, length, length, options.dtype, causal)
        for size in options.sizes
        for length in options.prompts
        for causal in (False, True)
    ]
    decode = [
        Problem(options.batch, heads, size, 1, keys, max(CONTEXT, keys), options.dtype, True)
        for size in options.sizes
        for keys in options.decode
    ]
    return prompts + decode


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=int, nargs=2, default=(32, 8), metavar=("H", "HKV"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256], help="elements of a head")
    parser.add_argument("--prompts", type=int, nargs="*", default=PROMPTS, help="queries, and keys, of a prompt")
    parser.add_argument("--decode", type=int, nargs="*", default=DECODE, help="keys that one query sees")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "f16"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--floor", type=float, default=0.1, help="seconds of calls for one measurement")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    need_gpu()
    import torch

    from rlx_mlir.measure.report import report
    from rlx_mlir.measure.timing import versions

    rows = []
    for problem in problems(options):
        rows.append(compare(problem, options))
        torch.cuda.empty_cache()
    about = {**versions(["rlx-mlir", "torch"]), "gpu": torch.cuda.get_device_name()}
    report(f"attention of {options.dtype}, median of {options.rounds} rounds", rows, about, options.json)


if __name__ == "__main__":
    main()
