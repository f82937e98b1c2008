# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Microseconds of Fourier transforms: ours, our generic code, and those of what else is installed, in turns.

    python benchmarks/spectra.py --rounds 15
    python benchmarks/spectra.py --fft 1024 64x4096 1000 --rfft 64x1024 --dtype "complex<f32>"

A size is N, or rows x N. numpy and scipy (pocketfft) and torch are rivals where they can be imported; they transform
complex64 (complex128 for f64), and real rows for `--rfft`. All are measured around calls, with one thread by the time
of the processor; `vs` says how many times longer the other takes. Results are compared with numpy's of f64 first.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable

import numpy as np
from harness import interleave, ratios, report, versions
from linear_algebra import Run, timed

import rlx_mlir as rlx

FFT = ("256", "1024", "4096", "16384", "65536", "1000", "97", "64x256", "64x1024", "64x4096", "64x16384", "64x65536")
RFFT = ("256", "1024", "4096", "16384", "65536", "1000", "64x256", "64x1024", "64x4096", "64x16384", "64x65536")

Function = Callable[[], object]


def shape_of(size: str) -> tuple[int, int]:
    """Rows and N."""
    *rows, n = map(int, size.split("x"))
    return (rows or [1])[0], n


def others(kind: str, given: np.ndarray, threads: int) -> dict[str, Function]:
    """The same function of other libraries."""
    found: dict[str, Function] = {"numpy": lambda: getattr(np.fft, kind)(given)}
    if importlib.util.find_spec("scipy"):
        import scipy.fft

        found["scipy"] = lambda: getattr(scipy.fft, kind)(given, workers=threads)
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(threads)
        tensor = torch.from_numpy(given)
        found["torch"] = lambda: getattr(torch.fft, kind)(tensor)
    return found


def bound(
    graph: rlx.GraphModule, x: np.ndarray, exact: np.ndarray, options: argparse.Namespace, **ways: object
) -> Function:
    """A call of a module; its results are compared first, with the parts of a spectrum that is exact."""
    executable = rlx.compile(graph, threads=options.threads, cache=False, **ways)
    found = executable.run({"x": x})
    if found["y"].dtype.kind == "c":
        got = found["y"]
    else:
        re, im = (found["y"], found["im"]) if "im" in found else np.split(found["y"], 2, -1)
        got = re + 1j * im
    worst = np.abs(got - exact).max() / np.sqrt(np.mean(np.abs(exact) ** 2))
    assert worst < 1e-5, f"an error of {worst:.1e}"
    return executable.bind({"x": x})


def complex_rows(size: str, options: argparse.Namespace) -> dict[str, Run]:
    """Ways to transform complex numbers."""
    rows, n = shape_of(size)
    rng = np.random.default_rng(n)
    z = rng.standard_normal((rows, n)) + 1j * rng.standard_normal((rows, n))
    given = z.astype(np.complex128 if options.dtype == "f64" else np.complex64)
    if options.dtype == "complex<f32>":
        x = given
    else:
        x = np.concatenate([given.real, given.imag], -1)
    graph = rlx.GraphModule.mir("transform")
    graph.set_outputs({"y": graph.fft(graph.input("x", x.shape, options.dtype))})
    exact = np.fft.fft(given.astype(np.complex128))
    ways = {
        "ours": bound(graph, x, exact, options),
        "generic": bound(graph, x, exact, options, disable_templates=("fft",)),
        **others("fft", given, options.threads),
    }
    return {name: timed(way, options.threads) for name, way in ways.items()}


def real_rows(size: str, options: argparse.Namespace) -> dict[str, Run]:
    """Ways to transform real numbers."""
    rows, n = shape_of(size)
    x = np.random.default_rng(n).standard_normal((rows, n)).astype(np.float64 if options.dtype == "f64" else np.float32)
    graph = rlx.GraphModule.mir("transform")
    re, im = graph.rfft(graph.input("x", x.shape, "f64" if options.dtype == "f64" else "f32"))
    graph.set_outputs({"y": re, "im": im})
    exact = np.fft.rfft(x.astype(np.float64))
    ways = {
        "ours": bound(graph, x, exact, options),
        "generic": bound(graph, x, exact, options, disable_templates=("fft",)),
        **others("rfft", x, options.threads),
    }
    return {name: timed(way, options.threads) for name, way in ways.items()}


def row(make: Callable[[str, argparse.Namespace], dict[str, Run]], size: str, options: argparse.Namespace) -> dict:
    """What is printed of a size."""
    return {"size": size, **ratios(interleave(make(size, options), options.rounds))}


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("f32", "f64", "complex<f32>"), default="f32")
    parser.add_argument("--fft", nargs="*", default=FFT)
    parser.add_argument("--rfft", nargs="*", default=RFFT)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rivals = [name for name in ("numpy", "scipy", "torch") if importlib.util.find_spec(name)]
    for make, sizes in ((complex_rows, options.fft), (real_rows, options.rfft)):
        rows = [row(make, size, options) for size in sizes]
        if rows:
            what = make.__name__.replace("_", " ")
            title = f"microseconds of transforms of {what}, {options.dtype}, {options.threads} threads"
            report(title, rows, versions(["rlx-mlir", *rivals]), options.json)


if __name__ == "__main__":
    main()
