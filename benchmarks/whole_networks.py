# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Milliseconds of whole networks with drawn weights: ours, torch and onnxruntime, in turns; results are compared.

    python benchmarks/whole_networks.py resnet18 dinov2 --threads 1 2
    python benchmarks/whole_networks.py mixtral --sizes s=1 s=256 --profile

Every size of a network is run by one executable. torch and onnxruntime are rivals where they can be imported;
onnxruntime runs what torch exports, where that is no loop of Python's. `vs` says how many times longer the other takes.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import io
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from harness import interleave, ratios, report, versions
from networks import NETWORKS, Network, draw
from networks.functions import Ours, Torch

import rlx_mlir as rlx

Run = Callable[[np.ndarray], np.ndarray]

#: Sizes at which each network is measured.
SIZES: dict[str, list[dict[str, int]]] = {
    "resnet18": [{"h": 224, "w": 224}, {"h": 160, "w": 256}, {"h": 320, "w": 320}],
    "dinov2": [{"h": 224, "w": 224}, {"h": 280, "w": 210}, {"h": 518, "w": 518}],
    "mamba": [{"s": 1}, {"s": 128}, {"s": 512}],
    "mixtral": [{"s": 1}, {"s": 64}, {"s": 256}],
    "conformer": [{"s": 50}, {"s": 200}, {"s": 800}],
}
#: Networks that torch exports: the others have loops whose number of steps, or rows, is that of the example.
EXPORTED = ("resnet18", "dinov2", "conformer")


def compiled(network: Network, weights: Mapping[str, np.ndarray], threads: int) -> rlx.Executable:
    """The network for any sizes up to its maxima."""
    m = rlx.GraphModule.mir("network")
    parameters = {name: m.param(name, shape) for name, shape in network.shapes().items()}
    m.set_outputs({"y": network(Ours(m), m.input("x", network.input_shape), parameters)})
    executable = rlx.compile(m, threads=threads, maxima=dict(network.maxima))
    executable.set_params(weights)
    return executable


def of_torch(network: Network, weights: Mapping[str, np.ndarray], threads: int) -> Run:
    """The same by torch."""
    import torch

    torch.set_num_threads(threads)
    own = {name: torch.from_numpy(array) for name, array in weights.items()}

    def run(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return network(Torch(), torch.from_numpy(x), own).numpy()

    return run


def of_onnxruntime(network: Network, weights: Mapping[str, np.ndarray], threads: int, example: np.ndarray) -> Run:
    """The same by onnxruntime, from what torch exports with dimensions of any size."""
    import onnxruntime
    import torch

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, array in weights.items():
                self.register_buffer(name.replace(".", "_"), torch.from_numpy(array))

        def forward(self, x: Any) -> Any:
            return network(Torch(), x, {name: getattr(self, name.replace(".", "_")) for name in weights})

    axes = {"x": {axis: size for axis, size in enumerate(network.input_shape) if isinstance(size, str)}}
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter that needs nothing but torch
        names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes}
        torch.onnx.export(Module(), (torch.from_numpy(example),), file, opset_version=18, dynamo=False, **names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Threads that spin after their work would take the time of whoever runs next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(file.getvalue(), options, ["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def drawn_input(network: Network, sizes: Mapping[str, int]) -> np.ndarray:
    """An input of these sizes."""
    shape = [sizes[size] if isinstance(size, str) else size for size in network.input_shape]
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def timed(run: Run, x: np.ndarray, clock: Callable[[], float]) -> Callable[[], float]:
    """Milliseconds of a call."""

    def measured() -> float:
        begin = clock()
        run(x)
        return (clock() - begin) * 1e3

    return measured


def print_shares(executable: rlx.Executable, x: np.ndarray) -> None:
    """The kernels that take most of a call's time, with where their code comes from."""
    executable.profile(True)
    executable.run({"x": x})
    executable.profile(False)
    seconds: dict[str, float] = collections.Counter()
    for kernel, own in executable.timings():
        seconds[kernel] += own
    total, templates = sum(seconds.values()), executable.artifact.templates
    for kernel, own in sorted(seconds.items(), key=lambda item: -item[1])[:8]:
        print(f"  {own / total:4.0%}  {kernel} ({templates[kernel].partition(':')[0]})", file=sys.stderr)


def measure(name: str, threads: int, options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each size of a network."""
    network = NETWORKS[name]()
    weights, wanted = draw(network, 0), options.sizes or SIZES[name]
    executable = compiled(network, weights, threads)
    runs: dict[str, Run] = {"ours": lambda x: executable.run({"x": x})["y"]}
    if importlib.util.find_spec("torch"):
        runs["torch"] = of_torch(network, weights, threads)
        if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx") and name in EXPORTED:
            runs["onnxruntime"] = of_onnxruntime(network, weights, threads, drawn_input(network, wanted[0]))
    clock = time.process_time if options.cpu_time else time.perf_counter
    rows = []
    for sizes in wanted:
        x = drawn_input(network, sizes)
        results = {who: run(x) for who, run in runs.items()}
        scale = float(np.abs(results["ours"]).max())
        for who, result in results.items():
            np.testing.assert_allclose(result, results["ours"], atol=1e-4 * scale, err_msg=f"{name}: {who}")
        series = interleave({who: timed(run, x, clock) for who, run in runs.items()}, options.rounds)
        what = " ".join(f"{symbol}={size}" for symbol, size in sizes.items())
        row: dict[str, object] = {"network": name, "sizes": what, "threads": threads}
        rows.append(row | ratios(series))
        if options.profile:
            print(f"{name} {what}:", file=sys.stderr)
            print_shares(executable, x)
    return rows


def parsed_sizes(text: str) -> dict[str, int]:
    """Sizes by symbol from `h=224,w=160`."""
    pairs = (part.partition("=") for part in text.split(","))
    return {symbol: int(size) for symbol, _, size in pairs}


def main() -> None:
    """Parses the command line, compares, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--sizes", type=parsed_sizes, nargs="+", help="such as h=224,w=160, instead of usual ones")
    parser.add_argument("--profile", action="store_true", help="print the kernels that take the time")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count the process's own time: for one thread on a busy machine"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := [name for name in options.networks if name not in NETWORKS]:
        parser.error(f"there is no network {unknown[0]}: {', '.join(NETWORKS)}")
    if options.cpu_time and options.threads != [1]:
        parser.error("--cpu-time is for --threads 1: with more, threads that wait count as if they worked")
    names = options.networks or list(NETWORKS)
    rows = [row for name in names for threads in options.threads for row in measure(name, threads, options)]
    about = versions(["rlx-mlir", "torch", "onnxruntime", "numpy"])
    report(f"milliseconds of a call, medians of {options.rounds} rounds", rows, about, options.json)


if __name__ == "__main__":
    main()
