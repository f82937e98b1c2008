# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Other implementations of the workloads: numpy, torch, onnxruntime, jax and IREE, each as its users would write it.

Weights are constants to those that can prepare them (onnxruntime), and arrays that stay the same to the others. Nothing
is installed: a rival that can't be imported says how to get it.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.measure.workloads import Workload

#: A prepared computation: each call gives the result, as an array or as something that `numpy.asarray` reads.
Runner = Callable[[], Any]

INSTALL = "pip install 'rlx-mlir[bench]'"


@dataclass(frozen=True)
class Rival:
    """Another implementation.

    Attributes:
        name: as `--vs` has it.
        modules: that it needs.
        packages: whose versions are worth a line.
        prepare: a runner of a workload with so many threads; None for what runs whole models alone.
    """

    name: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    prepare: Callable[[Workload, int], Runner] | None = None

    @property
    def missing(self) -> list[str]:
        """Modules that can't be found."""
        return [name for name in self.modules if not _is_found(name)]


def _is_found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that holds it
        return False


# numpy ------------------------------------------------------------------------------------------------


def _numpy(workload: Workload, threads: int) -> Runner:
    return workload.reference


# torch ------------------------------------------------------------------------------------------------


def _torch(workload: Workload, threads: int) -> Runner:
    import torch

    torch.set_num_threads(threads)
    values = {name: torch.from_numpy(array) for name, array in {**workload.inputs, **workload.params}.items()}
    functional, sizes = torch.nn.functional, workload.sizes

    def gemm() -> Any:
        return values["x"] @ values["w"]

    def mlp() -> Any:
        x = values["x"]
        return (functional.silu(x @ values["gate"]) * (x @ values["up"])) @ values["down"]

    def attention() -> Any:
        def split(x: Any, heads: int) -> Any:
            return x.view(1, x.shape[1], heads, sizes["head_dim"]).transpose(1, 2)

        # A single query sees every key; torch's causal mask is aligned at the other end, and equal for squares alone.
        found = functional.scaled_dot_product_attention(
            split(values["q"], sizes["heads"]),
            split(values["k"], sizes["kv_heads"]),
            split(values["v"], sizes["kv_heads"]),
            is_causal=sizes["queries"] > 1,
            enable_gqa=True,
        )
        return found.transpose(1, 2).reshape(values["q"].shape)

    def rms_norm() -> Any:
        return functional.rms_norm(values["x"], (sizes["n"],), values["gamma"], 1e-5)

    def layer_norm() -> Any:
        return functional.layer_norm(values["x"], (sizes["n"],), values["gamma"], values["beta"], 1e-5)

    def softmax() -> Any:
        return torch.softmax(values["x"], -1)

    run = {
        "gemm": gemm,
        "mlp": mlp,
        "attention": attention,
        "rms_norm": rms_norm,
        "layer_norm": layer_norm,
        "softmax": softmax,
    }[workload.kind]

    def without_gradients() -> Any:
        with torch.inference_mode():
            return run()

    return without_gradients


# onnxruntime ------------------------------------------------------------------------------------------


def _onnxruntime(workload: Workload, threads: int) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(_onnx_model(workload), options, providers=["CPUExecutionProvider"])
    inputs = dict(workload.inputs)
    return lambda: session.run(["y"], inputs)[0]


def _onnx_model(workload: Workload) -> bytes:
    """The workload in ONNX, with its params as initialisers."""
    from onnx import TensorProto, helper, numpy_helper

    def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
        return helper.make_node(kind, inputs.split(), [output], **attributes)

    sizes = workload.sizes
    nodes = {
        "gemm": lambda: [node("MatMul", "x w", "y")],
        "mlp": lambda: [
            node("MatMul", "x gate", "g"),
            node("MatMul", "x up", "u"),
            node("Sigmoid", "g", "s"),
            node("Mul", "g s", "a"),
            node("Mul", "a u", "h"),
            node("MatMul", "h down", "y"),
        ],
        "attention": lambda: [
            node(
                "Attention",
                "q k v",
                "y",
                q_num_heads=sizes["heads"],
                kv_num_heads=sizes["kv_heads"],
                # Aligned at the first query and key, as torch's is.
                is_causal=int(sizes["queries"] > 1),
            )
        ],
        "rms_norm": lambda: [node("SimplifiedLayerNormalization", "x gamma", "y", axis=-1, epsilon=1e-5)],
        "layer_norm": lambda: [node("LayerNormalization", "x gamma beta", "y", axis=-1, epsilon=1e-5)],
        "softmax": lambda: [node("Softmax", "x", "y", axis=-1)],
    }[workload.kind]()
    graph = helper.make_graph(
        nodes,
        workload.kind,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in workload.inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, workload.reference().shape)],
        [numpy_helper.from_array(array, name) for name, array in workload.params.items()],
    )
    opset = 23 if workload.kind == "attention" else 17
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    return bytes(model.SerializeToString())


# jax --------------------------------------------------------------------------------------------------


def _jax(workload: Workload, threads: int) -> Runner:
    import jax
    import jax.numpy as jnp

    sizes = workload.sizes

    def gemm(x: Any, w: Any) -> Any:
        return x @ w

    def mlp(x: Any, gate: Any, up: Any, down: Any) -> Any:
        return (jax.nn.silu(x @ gate) * (x @ up)) @ down

    def attention(q: Any, k: Any, v: Any) -> Any:
        def split(x: Any, heads: int) -> Any:
            return x.reshape(1, x.shape[1], heads, sizes["head_dim"])

        found = jax.nn.dot_product_attention(
            split(q, sizes["heads"]),
            split(k, sizes["kv_heads"]),
            split(v, sizes["kv_heads"]),
            is_causal=sizes["queries"] > 1,
        )
        return found.reshape(q.shape)

    def rms_norm(x: Any, gamma: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * gamma

    def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * gamma + beta

    def softmax(x: Any) -> Any:
        return jax.nn.softmax(x, axis=-1)

    functions: dict[str, Callable[..., Any]] = {
        "gemm": gemm,
        "mlp": mlp,
        "attention": attention,
        "rms_norm": rms_norm,
        "layer_norm": layer_norm,
        "softmax": softmax,
    }
    compiled = jax.jit(functions[workload.kind])
    values = [jnp.asarray(array) for array in (*workload.inputs.values(), *workload.params.values())]
    return lambda: compiled(*values).block_until_ready()


# IREE -------------------------------------------------------------------------------------------------


def _iree(workload: Workload, threads: int) -> Runner:
    from iree import runtime

    # From our own linalg: no framework stands between, and both compilers start from the same operations.
    binary = _iree_compile(linalg_text(workload))
    runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    config = runtime.Config("local-task")
    context = runtime.SystemContext(config=config)
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, binary))
    function = context.modules.bench["main"]
    values = [
        runtime.asdevicearray(config.device, array) for array in (*workload.inputs.values(), *workload.params.values())
    ]
    return lambda: function(*values).to_host()


def _iree_compile(text: str) -> bytes:
    """A module of IREE's; in a process of its own, since two copies of MLIR's bindings don't fit into one."""
    tool = Path(sys.executable).with_name("iree-compile")
    command = [str(tool) if tool.exists() else "iree-compile", "-", *_IREE_FLAGS]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    except FileNotFoundError:
        raise UnsupportedError(f"iree-compile isn't there: {INSTALL}") from None
    if done.returncode:
        raise UnsupportedError(f"iree-compile fails: {done.stderr.decode(errors='replace').strip()[:500]}")
    return done.stdout


def linalg_text(workload: Workload) -> str:
    """The workload as one function `main` of linalg on tensors, inputs first, in a module `bench`."""
    from rlx_mlir import ir
    from rlx_mlir.lowering.functions import entry_function
    from rlx_mlir.rewriting import run_pipeline

    graph = workload.build()
    module = (graph if graph.stage == "mir" else graph.lower())._copy()
    run_pipeline(module, "func.func(mir-to-linalg),canonicalize,cse")
    with module.context:
        for name in [name for name, _ in module.operation.attributes.items()]:
            del module.operation.attributes[name]
        entry = entry_function(module).operation
        for name in ("arg_attrs", "res_attrs"):
            if name in entry.attributes:
                del entry.attributes[name]
        entry.attributes["sym_name"] = ir.StringAttr.get("main")
        module.operation.attributes["sym_name"] = ir.StringAttr.get("bench")
        return str(module)


_IREE_FLAGS = ("--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3")

#: In the order of tables.
RIVALS = {
    rival.name: rival
    for rival in (
        Rival("llama.cpp", ("llama_cpp",), ("llama-cpp-python",)),
        Rival("torch", ("torch",), ("torch",), _torch),
        Rival("onnxruntime", ("onnxruntime", "onnx"), ("onnxruntime",), _onnxruntime),
        Rival("iree", ("iree.compiler", "iree.runtime"), ("iree-base-compiler", "iree-base-runtime"), _iree),
        Rival("jax", ("jax",), ("jax",), _jax),
        Rival("numpy", ("numpy",), ("numpy",), _numpy),
    )
}


def rivals_of(text: str) -> list[Rival]:
    """Rivals by their names, with commas between; InputError for one that isn't known."""
    names = [word.strip() for word in text.split(",") if word.strip()]
    for name in names:
        if name not in RIVALS:
            raise InputError(f"'vs' expects some of {', '.join(RIVALS)}, but got '{name}'")
    return [RIVALS[name] for name in names]


def environment(threads: int) -> dict[str, str]:
    """What a process needs so that rivals use so many threads: some of them read it when they are imported."""
    own = dict(os.environ)
    for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # an old kernel would make numpy look slow
        own.pop(variable, None)
    count = str(threads)
    flags = f"{own.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"
    return own | {
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "RLX_NUM_THREADS": count,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags.strip(),
    }


def check(workload: Workload, rival: str, result: Any) -> None:
    """Raises UnsupportedError where a result is another than the reference's: then times don't compare."""
    expected, found = workload.reference(), np.asarray(result)
    distance = float(np.abs(found.reshape(expected.shape) - expected).max()) if found.size == expected.size else np.inf
    if not distance <= 1e-3 * max(1.0, float(np.abs(expected).max())):
        raise UnsupportedError(f"{rival} computes something else: {workload.name} differs by {distance:.2g}")


__all__ = ["INSTALL", "RIVALS", "Rival", "Runner", "check", "environment", "linalg_text", "rivals_of"]
