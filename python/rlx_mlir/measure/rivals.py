# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Other implementations: of the workloads numpy, torch, onnxruntime, jax and IREE, each as its users would write it; of
whole models llama.cpp and OpenVINO (`measure.models`).

Of workloads, everybody takes arrays of numpy and gives one in each call, as ours does; weights are bound before.
Nothing is installed: a rival that can't be imported says how to get it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir.against.iree_tools import iree_compile
from rlx_mlir.checks import Option
from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.measure.models import Load, OpenVino, llama_cpp
from rlx_mlir.measure.workloads import Workload

if TYPE_CHECKING:
    import onnx


#: A prepared computation: each call takes the workload's inputs, arrays of numpy, and gives the result as one.
Runner = Callable[[], np.ndarray]

INSTALL = "pip install 'rlx-mlir[bench]'"


@dataclass(frozen=True)
class Rival:
    """Another implementation.

    Attributes:
        name: as `--vs` has it.
        modules: that it needs.
        packages: that have them, whose versions are worth a line.
        prepare: a runner of a workload with so many threads; None for what runs whole models alone.
        load: loads a model; None for what runs workloads alone.
        usual: whether it is measured where no rivals are named.
    """

    name: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    prepare: Callable[[Workload, int], Runner] | None = None
    load: Load | None = None
    usual: bool = True

    @property
    def install(self) -> str:
        """The command that gets what it needs."""
        return INSTALL if self.load is None else f"pip install {' '.join(self.packages)}"

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
    params = {name: torch.from_numpy(array) for name, array in workload.params.items()}
    turned = {name: p.T.contiguous() for name, p in params.items() if p.ndim == 2}  # as `linear` wants them
    functional, sizes = torch.nn.functional, workload.sizes

    def mlp(x: torch.Tensor) -> torch.Tensor:
        return (functional.silu(x @ params["gate"]) * (x @ params["up"])) @ params["down"]

    def linear(x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(functional.linear(x, turned["w"], params["b"]))

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        def split(x: torch.Tensor, heads: int) -> torch.Tensor:
            return x.view(1, x.shape[1], heads, sizes["head_dim"]).transpose(1, 2)

        # A single query sees every key; torch's causal mask is aligned at the other end, and equal for squares alone.
        found = functional.scaled_dot_product_attention(
            split(q, sizes["heads"]),
            split(k, sizes["kv_heads"]),
            split(v, sizes["kv_heads"]),
            is_causal=sizes["queries"] > 1,
            enable_gqa=True,
        )
        return found.transpose(1, 2).reshape(q.shape)

    compute: Callable[..., torch.Tensor] = {
        "gemm": lambda x: x @ params["w"],
        "linear": linear,
        "mlp": mlp,
        "gelu_mlp": lambda x: functional.linear(linear(x), turned["w2"], params["b2"]),
        "attention": attention,
        "self_attention": functional.scaled_dot_product_attention,
        "rms_norm": lambda x: functional.rms_norm(x, (sizes["n"],), params["gamma"], 1e-5),
        "layer_norm": lambda x: functional.layer_norm(x, (sizes["n"],), params["gamma"], params["beta"], 1e-5),
        "softmax": lambda x: torch.softmax(x, -1),
    }[workload.kind]

    def run() -> np.ndarray:
        with torch.inference_mode():
            found: np.ndarray = compute(*map(torch.from_numpy, workload.inputs.values())).numpy()
            return found

    return run


# onnxruntime ------------------------------------------------------------------------------------------


def _onnxruntime(workload: Workload, threads: int) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")  # else it takes the next one's time
    session = onnxruntime.InferenceSession(_onnx_model(workload), options, providers=["CPUExecutionProvider"])
    inputs = dict(workload.inputs)
    return lambda: np.asarray(session.run(["y"], inputs)[0])


def _onnx_model(workload: Workload) -> bytes:
    """The workload in ONNX, with its params as initialisers."""
    from onnx import helper, numpy_helper

    def node(kind: str, inputs: str, output: str, domain: str = "", **attributes: Option) -> onnx.NodeProto:
        return helper.make_node(kind, inputs.split(), [output], domain=domain, **attributes)

    def value(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    def linear(output: str) -> list[onnx.NodeProto]:
        return [node("MatMul", "x w", "p"), node("BiasGelu", "p b", output, domain="com.microsoft")]

    sizes = workload.sizes
    nodes = {
        "gemm": lambda: [node("MatMul", "x w", "y")],
        "linear": lambda: linear("y"),
        "gelu_mlp": lambda: [*linear("h"), node("Gemm", "h w2 b2", "y")],
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
        "self_attention": lambda: [node("Attention", "q k v", "y")],
        "rms_norm": lambda: [node("SimplifiedLayerNormalization", "x gamma", "y", axis=-1, epsilon=1e-5)],
        "layer_norm": lambda: [node("LayerNormalization", "x gamma beta", "y", axis=-1, epsilon=1e-5)],
        "softmax": lambda: [node("Softmax", "x", "y", axis=-1)],
    }[workload.kind]()
    graph = helper.make_graph(
        nodes,
        workload.kind,
        [value(name, array) for name, array in workload.inputs.items()],
        [value("y", workload.reference())],
        [numpy_helper.from_array(array, name) for name, array in workload.params.items()],
    )
    opset = 23 if "attention" in workload.kind else 17
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=versions)
    model.ir_version = 10
    return bytes(model.SerializeToString())


# jax --------------------------------------------------------------------------------------------------


def _jax(workload: Workload, threads: int) -> Runner:
    import jax
    import jax.numpy as jnp

    sizes = workload.sizes

    def gemm(x: jax.Array, w: jax.Array) -> jax.Array:
        return x @ w

    def mlp(x: jax.Array, gate: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        return (jax.nn.silu(x @ gate) * (x @ up)) @ down

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        def split(x: jax.Array, heads: int) -> jax.Array:
            return x.reshape(1, x.shape[1], heads, sizes["head_dim"])

        found = jax.nn.dot_product_attention(
            split(q, sizes["heads"]),
            split(k, sizes["kv_heads"]),
            split(v, sizes["kv_heads"]),
            is_causal=sizes["queries"] > 1,
        )
        return found.reshape(q.shape)

    def rms_norm(x: jax.Array, gamma: jax.Array) -> jax.Array:
        return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * gamma

    def layer_norm(x: jax.Array, gamma: jax.Array, beta: jax.Array) -> jax.Array:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * gamma + beta

    def softmax(x: jax.Array) -> jax.Array:
        return jax.nn.softmax(x, axis=-1)

    def linear(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        return jax.nn.gelu(x @ w + b, approximate=False)

    def gelu_mlp(x: jax.Array, w: jax.Array, b: jax.Array, w2: jax.Array, b2: jax.Array) -> jax.Array:
        return linear(x, w, b) @ w2 + b2

    def self_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.softmax(q @ k.swapaxes(-1, -2) * sizes["head_dim"] ** -0.5, axis=-1) @ v

    functions: dict[str, Callable[..., jax.Array]] = {
        "gemm": gemm,
        "linear": linear,
        "mlp": mlp,
        "gelu_mlp": gelu_mlp,
        "attention": attention,
        "self_attention": self_attention,
        "rms_norm": rms_norm,
        "layer_norm": layer_norm,
        "softmax": softmax,
    }
    params = [jax.device_put(array) for array in workload.params.values()]
    compute = functions[workload.kind]
    compiled = jax.jit(lambda *inputs: compute(*inputs, *params))  # which are constants, as ours are
    inputs = list(workload.inputs.values())
    return lambda: np.asarray(compiled(*inputs))


# IREE -------------------------------------------------------------------------------------------------


def _iree(workload: Workload, threads: int) -> Runner:
    from iree import runtime

    # From our own linalg: no framework stands between, and both compilers start from the same operations.
    binary = iree_compile(linalg_text(workload), ("--iree-opt-level=O3",), install=INSTALL)
    runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    config = runtime.Config("local-sync" if threads == 1 else "local-task")
    context = runtime.SystemContext(config=config)
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, binary))
    function = context.modules.bench["main"]
    params = [runtime.asdevicearray(config.device, array) for array in workload.params.values()]
    inputs = list(workload.inputs.values())
    return lambda: np.asarray(function(*inputs, *params).to_host())


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


_LLAMA = ("llama-cpp-python",)

#: In the order of tables.
RIVALS = {
    rival.name: rival
    for rival in (
        Rival("llama.cpp", ("llama_cpp",), _LLAMA, load=llama_cpp("f16")),
        Rival("llama.cpp-q8_0", ("llama_cpp",), _LLAMA, load=llama_cpp("q8_0"), usual=False),
        Rival("openvino", ("openvino", "openvino_genai"), ("openvino-genai",), load=OpenVino),
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


def check(workload: Workload, rival: str, found: np.ndarray) -> None:
    """Raises UnsupportedError where a result is another than the reference's: then times don't compare."""
    expected = workload.reference()
    distance = float(np.abs(found.reshape(expected.shape) - expected).max()) if found.size == expected.size else np.inf
    if not distance <= 1e-3 * max(1.0, float(np.abs(expected).max())):
        raise UnsupportedError(f"{rival} computes something else: {workload.name} differs by {distance:.2g}")


__all__ = ["INSTALL", "RIVALS", "Rival", "Runner", "check", "environment", "linalg_text", "rivals_of"]
