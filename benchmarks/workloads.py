# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Three small workloads, from numpy to numpy, by rlx-mlir and by every other framework that is installed, in turns.

    python benchmarks/workloads.py --threads 1 2

`linear` is gelu(x W + b) and `mlp` gelu(x W1 + b1) W2 + b2 for x (128, 768) and 3072 columns inside, `layer_norm` is of
(8, 128, 768), `attention` of (1, 12, 128, 64) without a mask. Weights are bound, and everything compiled, beforehand; a
call takes arrays of numpy and gives one. Each number of threads is a process of its own, which is kept on as many
processors: some frameworks can't be told. Rivals are torch (without gradients), onnxruntime, jax (jit) and iree
(compiled for this CPU, from what jax exports).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
from harness import NOISY, interleave, report, versions

RIVALS = ("torch", "onnxruntime", "jax", "iree")
_PACKAGES = {
    "torch": ("torch",),
    "onnxruntime": ("onnxruntime", "onnx"),
    "jax": ("jax",),
    "iree": ("iree.compiler", "iree.runtime", "jax"),
}

Array = np.ndarray[Any, Any]
Run = Callable[..., Array]


@dataclass(frozen=True)
class Workload:
    """What is computed: inputs of each call, weights that are bound beforehand, and the function on numpy."""

    name: str
    inputs: tuple[Array, ...]
    weights: tuple[Array, ...]
    reference: Callable[..., Array]


def workloads() -> dict[str, Workload]:
    """The workloads by name."""
    rng = np.random.default_rng(0)

    def normal(*shape: int, scale: float = 1.0) -> Array:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    def gelu(x: Array) -> Array:
        return x / 2 * (1 + np.vectorize(erf)(x / np.sqrt(2.0)))

    def linear(x: Array, w: Array, b: Array) -> Array:
        return gelu(x.astype(np.float64) @ w + b)

    def mlp(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
        return linear(x, w1, b1) @ w2 + b2

    def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
        centred = x.astype(np.float64) - x.mean(-1, keepdims=True, dtype=np.float64)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta

    def attention(q: Array, k: Array, v: Array) -> Array:
        scores = np.exp(q.astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
        return scores / scores.sum(-1, keepdims=True) @ v

    up, down = (normal(768, 3072, scale=768**-0.5), normal(3072)), (normal(3072, 768, scale=3072**-0.5), normal(768))
    heads = tuple(normal(1, 12, 128, 64) for _ in range(3))
    rows = normal(8, 128, 768)
    found = (
        Workload("linear", (normal(128, 768),), up, linear),
        Workload("mlp", (normal(128, 768),), (*up, *down), mlp),
        Workload("layer_norm", (rows,), (normal(768), normal(768)), layer_norm),
        Workload("attention", heads, (), attention),
    )
    return {workload.name: workload for workload in found}


# Implementations: each gives a function from the inputs to the result ------------------------------------------------


def ours(workload: Workload, threads: int) -> tuple[Run, Any]:
    """Our function, and the executable behind it."""
    import rlx_mlir as rlx

    graph = rlx.GraphModule.hir(workload.name)
    inputs = [graph.input(f"x{i}", array.shape) for i, array in enumerate(workload.inputs)]
    weights = [graph.param(f"w{i}", array.shape) for i, array in enumerate(workload.weights)]
    if workload.name == "attention":
        result = graph.attention(*inputs, num_heads=12, head_dim=64, layout="bhsd")
    elif workload.name == "layer_norm":
        result = graph.layer_norm(*inputs, *weights, eps=1e-5)
    else:
        result = graph.linear(*inputs, *weights[:2], activation="gelu")
        if workload.name == "mlp":
            result = graph.linear(result, *weights[2:])
    graph.set_outputs({"y": result})
    executable = rlx.compile(graph, threads=threads, cache=False)
    executable.set_params({f"w{i}": array for i, array in enumerate(workload.weights)})

    def run(*arrays: Array) -> Array:
        return executable.run({f"x{i}": array for i, array in enumerate(arrays)})["y"]

    return run, executable


def by_torch(workload: Workload, threads: int) -> Run:
    """torch's functions."""
    import torch

    torch.set_num_threads(threads)
    functional = torch.nn.functional
    weights = [torch.from_numpy(array) for array in workload.weights]
    matrices = [w.T.contiguous() if w.ndim == 2 else w for w in weights]  # `linear` is faster with those

    def compute(*x: Any) -> Any:
        if workload.name == "attention":
            return functional.scaled_dot_product_attention(*x)
        if workload.name == "layer_norm":
            return functional.layer_norm(x[0], (768,), *weights, eps=1e-5)
        y = functional.gelu(functional.linear(x[0], *matrices[:2]))
        return functional.linear(y, *matrices[2:]) if workload.name == "mlp" else y

    def run(*arrays: Array) -> Array:
        with torch.inference_mode():
            return compute(*map(torch.from_numpy, arrays)).numpy()

    return run


def by_onnxruntime(workload: Workload, threads: int) -> Run:
    """A graph of onnxruntime, in the operators that do most at once."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    names = [f"x{i}" for i in range(len(workload.inputs))], [f"w{i}" for i in range(len(workload.weights))]
    x, w = names
    if workload.name == "attention":
        nodes = [helper.make_node("Attention", x, ["y"])]
    elif workload.name == "layer_norm":
        nodes = [helper.make_node("LayerNormalization", [*x, *w], ["y"], epsilon=1e-5)]
    else:
        nodes = [
            helper.make_node("MatMul", [*x, w[0]], ["up"]),
            helper.make_node("BiasGelu", ["up", w[1]], ["h"], domain="com.microsoft"),
        ]
        if workload.name == "mlp":
            nodes.append(helper.make_node("Gemm", ["h", *w[2:]], ["y"]))
        else:
            nodes[-1].output[0] = "y"
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in zip(x, workload.inputs, strict=True)
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    arrays = [numpy_helper.from_array(array, name) for name, array in zip(w, workload.weights, strict=True)]
    graph = helper.make_graph(nodes, workload.name, inputs, outputs, arrays)
    versions = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.force_spinning_stop", "1")  # else it takes the next one's time
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])

    def run(*arrays: Array) -> Array:
        return session.run(None, dict(zip(x, arrays, strict=True)))[0]

    return run


def jax_function(workload: Workload) -> Callable[..., Any]:
    """A function of inputs and weights, in jax."""
    import jax

    def compute(*arrays: Any) -> Any:
        x, *w = arrays
        if workload.name == "attention":
            q, k, v = arrays
            weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5, axis=-1)
            return weights @ v
        if workload.name == "layer_norm":
            centred = x - x.mean(-1, keepdims=True)
            return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w[0] + w[1]
        y = jax.nn.gelu(x @ w[0] + w[1], approximate=False)
        return y @ w[2] + w[3] if workload.name == "mlp" else y

    return compute


def by_jax(workload: Workload, threads: int) -> Run:
    """What jax's jit makes; weights are constants, as ours are."""
    import jax

    weights = [jax.device_put(array) for array in workload.weights]
    compute = jax_function(workload)
    compiled = jax.jit(lambda *x: compute(*x, *weights))

    def run(*arrays: Array) -> Array:
        return np.asarray(compiled(*arrays))

    return run


def by_iree(workload: Workload, threads: int) -> Run:
    """What iree makes of the function that jax exports, for this CPU; one thread runs in place, more are tasks."""
    import iree.runtime
    import jax

    arrays = (*workload.inputs, *workload.weights)
    text = jax.jit(jax_function(workload)).lower(*arrays).as_text("stablehlo")
    # A process of its own: the bindings of its MLIR and those of ours don't go together.
    command = [str(Path(sys.executable).with_name("iree-compile")), "-", "-o", "-", "--iree-input-type=stablehlo"]
    command += ["--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
    code = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
    iree.runtime.flags.parse_flags(f"--task_topology_max_group_count={threads}")
    config = iree.runtime.Config("local-sync" if threads == 1 else "local-task")
    context = iree.runtime.SystemContext(config=config)
    module = iree.runtime.VmModule.copy_buffer(context.instance, code)
    context.add_vm_module(module)
    function = context.modules[module.name]["main"]
    weights = [iree.runtime.asdevicearray(config.device, array) for array in workload.weights]

    def run(*arrays: Array) -> Array:
        return function(*arrays, *weights).to_host()

    return run


_BUILD: dict[str, Callable[[Workload, int], Run]] = {
    "torch": by_torch,
    "onnxruntime": by_onnxruntime,
    "jax": by_jax,
    "iree": by_iree,
}


# Measuring --------------------------------------------------------------------------------------------------------


def microseconds(run: Run, arrays: tuple[Array, ...], floor: float, clock: Callable[[], float]) -> Callable[[], float]:
    """A figure for `interleave`: microseconds of a call, over at least `floor` seconds of calls after one more."""

    def measure() -> float:
        run(*arrays)
        calls, begin = 0, clock()
        while True:
            run(*arrays)
            calls += 1
            spent = clock() - begin
            if spent >= floor:
                return spent / calls * 1e6

    return measure


def is_installed(rival: str) -> bool:
    """Whether everything that a rival needs can be imported."""
    try:
        return all(importlib.util.find_spec(package) is not None for package in _PACKAGES[rival])
    except ModuleNotFoundError:
        return False


def compare(workload: Workload, threads: int, options: argparse.Namespace) -> dict[str, object]:
    """One row: our median, every rival's, and how many times faster ours is than the best of them."""
    run, executable = ours(workload, threads)
    runs: dict[str, Run] = {"ours": run}
    expected = workload.reference(*workload.inputs, *workload.weights)
    for rival in options.rivals:
        if is_installed(rival):
            runs[rival] = _BUILD[rival](workload, threads)
    for name, own in runs.items():
        np.testing.assert_allclose(own(*workload.inputs), expected, atol=2e-4, rtol=2e-4, err_msg=name)
    clock = time.process_time if options.cpu_time else time.perf_counter
    measures = {name: microseconds(own, workload.inputs, options.floor, clock) for name, own in runs.items()}
    series = interleave(measures, options.rounds)
    own = series.pop("ours")
    row: dict[str, object] = {"what": workload.name, "threads": threads, "ours us": own.median, "spread": own.spread}
    row |= {f"{name} us": series[name].median if name in series else None for name in options.rivals}
    if series:
        best = min(series, key=lambda name: series[name].median)
        noisy = max(own.spread, series[best].spread) > NOISY
        ratio = series[best].median / own.median
        row |= {"best": best, "its spread": series[best].spread, "ratio": ratio, "noisy": noisy}
    if options.profile:
        executable.profile(True)
        for _ in range(50):
            run(*workload.inputs)
        executable.profile(False)
        row["kernels us"] = {name: round(seconds * 1e6, 1) for name, seconds in executable.timings()}
    return row


def in_process(threads: int, arguments: Sequence[str]) -> list[dict[str, object]]:
    """The rows of one number of threads, measured in a process that is kept on as many processors."""
    processors = sorted(os.sched_getaffinity(0))[:threads]
    command = [sys.executable, __file__, *arguments, "--here", str(threads)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, preexec_fn=lambda: os.sched_setaffinity(0, processors)
    )
    return json.loads(done.stdout)


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--workloads", nargs="+", default=list(workloads()), choices=list(workloads()))
    parser.add_argument("--rivals", nargs="+", default=list(RIVALS), choices=RIVALS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--floor", type=float, default=0.02, help="seconds of calls for one measurement")
    parser.add_argument("--profile", action="store_true", help="add the times of our kernels")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count the process's own time: for one thread on a busy machine"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        chosen = workloads()
        print(json.dumps([compare(chosen[name], options.here, options) for name in options.workloads]))
        return
    if options.cpu_time and options.threads != [1]:
        parser.error("--cpu-time is for --threads 1: with more, threads that wait count as if they worked")
    missing = [rival for rival in options.rivals if not is_installed(rival)]
    if missing:
        print(f"not installed, so left out: {', '.join(missing)}", file=sys.stderr)
    rows = [row for threads in options.threads for row in in_process(threads, sys.argv[1:])]
    about = versions(["rlx-mlir", "torch", "onnxruntime", "jax", "iree-base-compiler", "numpy"])
    report(f"microseconds of a call, medians of {options.rounds} rounds", rows, about, options.json)


if __name__ == "__main__":
    main()
