# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Microseconds of operations on images: ours, copying as many bytes, and torch where it is installed, in turns.

    python benchmarks/images.py --rounds 15 --threads 1
    python benchmarks/images.py --what conv2d pool --dtype f32

Ours are measured by the kernels' own clocks with one thread, around calls with several; the others around calls. `vs`
says how many times longer the other takes: beside a copy, what is read and written is the least that there is.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from harness import interleave, ratios, report, versions

import rlx_mlir as rlx
from rlx_mlir import GraphModule, Value

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """An operation on an image, with weights.

    Attributes:
        what: the builder.
        x: shape of the image.
        weights: shapes of parameters, in the order of the builder.
        options: of the builder, by keyword.
        torch: the function of `torch.nn.functional`, and how its keywords differ: a function of the options.
    """

    what: str
    x: Shape
    weights: tuple[Shape, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    torch: Callable[[Any, Any, list[Any]], Any] | None = None

    @property
    def name(self) -> str:
        """Builder, sizes and options."""
        options = "".join(f" {key}={value}" for key, value in self.options.items())
        kernel = "".join(f" {'x'.join(map(str, shape))}" for shape in self.weights if len(shape) > 1)
        return f"{self.what} {'x'.join(map(str, self.x))}{kernel}{options}"

    def arrays(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """The image and the weights."""
        rng = np.random.default_rng(0)
        x, *weights = (rng.standard_normal(shape, np.float32) for shape in (self.x, *self.weights))
        return x, weights

    def ours(self, threads: int) -> tuple[Callable[[], float], int]:
        """(microseconds of a call, bytes of arguments and results)."""
        x, weights = self.arrays()
        m = GraphModule.mir("image")
        image = m.input("x", self.x)
        params = [m.param(f"w{number}", shape) for number, shape in enumerate(self.weights)]
        result: Value = getattr(m, self.what)(image, *params, **self.options)
        m.set_outputs({"y": result})
        executable = rlx.compile(m, threads=threads, cache=False)
        if weights:
            executable.set_params({f"w{number}": value for number, value in enumerate(weights)})
        y = np.empty([int(size) for size in result.shape], np.float32)
        call = executable.bind({"x": x}, outputs={"y": y})

        def run() -> float:
            executable.profile(threads == 1)
            begin = time.perf_counter()
            call()
            spent = time.perf_counter() - begin
            return (sum(seconds for _, seconds in executable.timings()) if threads == 1 else spent) * 1e6

        return run, x.nbytes + y.nbytes + sum(weight.nbytes for weight in weights)

    def by_torch(self, threads: int) -> Callable[[], float]:
        """The same by torch."""
        import torch

        torch.set_num_threads(threads)
        x, *weights = (torch.from_numpy(array) for array in (self.arrays()[0], *self.arrays()[1]))
        assert self.torch is not None

        def run() -> float:
            begin = time.perf_counter()
            with torch.inference_mode():
                self.torch(torch.nn.functional, x, weights)  # type: ignore[misc]
            return (time.perf_counter() - begin) * 1e6

        return run


def copied(count: int) -> Callable[[], float]:
    """Microseconds of copying half of so many bytes: as many are read and written as there are."""
    source, target = np.ones(count // 2, np.uint8), np.empty(count // 2, np.uint8)

    def run() -> float:
        begin = time.perf_counter()
        np.copyto(target, source)
        return (time.perf_counter() - begin) * 1e6

    return run


def conv(x: Shape, weight: Shape, **options: int) -> Problem:
    return Problem("conv2d", x, (weight,), options, lambda f, x, w: f.conv2d(x, w[0], **options))


def transposed(x: Shape, weight: Shape, **options: int) -> Problem:
    return Problem("conv_transpose2d", x, (weight,), options, lambda f, x, w: f.conv_transpose2d(x, w[0], **options))


def pool(kind: str, x: Shape, size: int, stride: int, padding: int = 0) -> Problem:
    options = {"kind": kind, "kernel_size": size, "stride": stride, "padding": padding}
    name = "max_pool2d" if kind == "max" else "avg_pool2d"
    return Problem("pool", x, (), options, lambda f, x, _: getattr(f, name)(x, size, stride, padding))


def group_norm(x: Shape, groups: int) -> Problem:
    return Problem(
        "group_norm",
        x,
        ((x[1],), (x[1],)),
        {"num_groups": groups},
        lambda f, x, w: f.group_norm(x, groups, *w),
    )


PROBLEMS = (
    conv((1, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3),
    conv((1, 64, 56, 56), (64, 64, 3, 3), padding=1),
    conv((1, 64, 56, 56), (128, 64, 1, 1), stride=2),
    conv((1, 256, 14, 14), (256, 256, 3, 3), padding=1),
    conv((1, 128, 56, 56), (128, 1, 3, 3), padding=1, groups=128),
    transposed((1, 64, 28, 28), (64, 32, 2, 2), stride=2),
    transposed((1, 64, 28, 28), (64, 32, 4, 4), stride=2, padding=1),
    transposed((1, 64, 28, 28), (64, 32, 3, 3), padding=1),
    pool("max", (1, 64, 112, 112), 3, 2, 1),
    pool("max", (1, 64, 112, 112), 2, 2),
    pool("mean", (1, 64, 56, 56), 3, 1, 1),
    pool("mean", (1, 512, 7, 7), 7, 1),
    group_norm((1, 320, 64, 64), 32),
    group_norm((4, 64, 16, 16), 8),
    Problem(
        "resize_nearest_2x", (1, 64, 64, 64), torch=lambda f, x, _: f.interpolate(x, scale_factor=2, mode="nearest")
    ),
)


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    names = sorted({problem.what for problem in PROBLEMS})
    parser.add_argument("--what", nargs="+", choices=names, default=names)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    has_torch = importlib.util.find_spec("torch") is not None
    rows = []
    for problem in PROBLEMS:
        if problem.what not in options.what:
            continue
        ours, count = problem.ours(options.threads)
        implementations = {"ours": ours, "copy": copied(count)}
        if has_torch:
            implementations["torch"] = problem.by_torch(options.threads)
        rows.append({"what": problem.name, **ratios(interleave(implementations, options.rounds))})
    title = f"microseconds, f32, {options.threads} threads"
    report(title, rows, versions(["rlx-mlir", "numpy", *(["torch"] if has_torch else [])]), options.json)


if __name__ == "__main__":
    main()
