# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX models that tests and benchmarks make: nodes by name, and an encoder as exporters of PyTorch write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """Collects nodes and weights; results are named by numbers."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.random = np.random.default_rng(seed)

    def node(self, op: str, *inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """A node of operands by name, or of arrays; the name of its result, or the names of several."""
        names = [each if isinstance(each, str) else self.weight(each) for each in inputs]
        results = [f"{op}_{len(self.nodes)}" + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(op, names, results, name=results[0], domain=domain, **attributes))
        return results[0] if outputs == 1 else results

    def weight(self, array: Any, name: str = "") -> str:
        """An initialiser; its name."""
        name = name or f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def normal(self, *shape: int, scale: float = 0.05) -> np.ndarray:
        """Random numbers, f32."""
        return (self.random.standard_normal(shape) * scale).astype(np.float32)

    def model(
        self,
        inputs: dict[str, tuple[Any, Sequence[int | str | None]]],
        outputs: Sequence[str],
        opset: int = 17,
        domains: Sequence[str] = (),
        types: Sequence[int] = (),
    ) -> Any:
        """A model of what was built; inputs are (numpy type, shape) by name."""
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))
            for name, (dtype, shape) in inputs.items()
        ]
        kinds = types or [TensorProto.FLOAT] * len(outputs)
        results = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs, kinds, strict=True)]
        graph = helper.make_graph(self.nodes, "built", infos, results, self.weights)
        sets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=sets, ir_version=8)


def encoder(
    layers: int = 2, hidden: int = 24, heads: int = 4, vocabulary: int = 50, positions: int = 64, inner: int = 0
) -> Any:
    """An encoder like BERT as `torch.onnx.export` writes it, with batch and length as symbols.

    Shapes are computed by nodes, norms and GELU are arithmetic, attention is products and a softmax.
    """
    b = Builder()
    ids, mask = "input_ids", "attention_mask"
    scalar = {number: np.array(number, np.int64) for number in (0, 1)}
    length = b.node("Gather", b.node("Shape", ids), scalar[1], axis=0)
    batch = b.node("Gather", b.node("Shape", ids), scalar[0], axis=0)
    first, end = np.array([0], np.int64), b.node("Unsqueeze", length, np.array([0], np.int64))
    places = b.node("Slice", np.arange(positions, dtype=np.int64)[None], first, end, np.array([1], np.int64))
    x = b.node("Gather", b.normal(vocabulary, hidden), ids)
    x = b.node("Add", x, b.node("Gather", b.normal(positions, hidden), places))
    x = _norm(b, x, hidden)
    row = b.node("Unsqueeze", b.node("Unsqueeze", mask, np.array([1], np.int64)), np.array([2], np.int64))
    hidden_keys = b.node("Sub", np.float32(1), b.node("Cast", row, to=TensorProto.FLOAT))
    bias = b.node("Mul", hidden_keys, np.float32(np.finfo(np.float32).min))
    for _ in range(layers):
        attended = _attention(b, x, bias, batch, hidden, heads)
        x = _norm(b, b.node("Add", _linear(b, attended, hidden, hidden), x), hidden)
        up = _linear(b, x, hidden, inner or 4 * hidden)
        erf = b.node("Erf", b.node("Div", up, np.float32(np.sqrt(2))))
        active = b.node("Mul", b.node("Mul", up, b.node("Add", erf, np.float32(1))), np.float32(0.5))
        x = _norm(b, b.node("Add", _linear(b, active, inner or 4 * hidden, hidden), x), hidden)
    shape = ["batch", "sequence"]
    return b.model({ids: (np.int64, shape), mask: (np.int64, shape)}, [x], 14)


def _linear(b: Builder, x: str, inputs: int, outputs: int) -> str:
    return str(b.node("Add", b.normal(outputs), b.node("MatMul", x, b.normal(inputs, outputs))))


def _norm(b: Builder, x: str, hidden: int) -> str:
    difference = b.node("Sub", x, b.node("ReduceMean", x, axes=[-1]))
    variance = b.node("ReduceMean", b.node("Pow", difference, np.float32(2)), axes=[-1])
    root = b.node("Sqrt", b.node("Add", variance, np.float32(1e-12)))
    scaled = b.node("Mul", b.node("Div", difference, root), 1 + b.normal(hidden))
    return str(b.node("Add", scaled, b.normal(hidden)))


def _attention(b: Builder, x: str, bias: str, batch: str, hidden: int, heads: int) -> str:
    each, axis = hidden // heads, np.array([0], np.int64)
    shape = b.node(
        "Concat",
        b.node("Unsqueeze", batch, axis),
        np.array([-1], np.int64),
        np.array([heads], np.int64),
        np.array([each], np.int64),
        axis=0,
    )
    q, k, v = (b.node("Reshape", _linear(b, x, hidden, hidden), shape) for _ in range(3))
    q, v = (b.node("Transpose", value, perm=[0, 2, 1, 3]) for value in (q, v))
    k = b.node("Transpose", k, perm=[0, 2, 3, 1])
    scores = b.node("Div", b.node("MatMul", q, k), np.float32(np.sqrt(each)))
    weights = b.node("Softmax", b.node("Add", scores, bias), axis=-1)
    y = b.node("Transpose", b.node("MatMul", weights, v), perm=[0, 2, 1, 3])
    joined = b.node(
        "Concat",
        b.node("Unsqueeze", batch, axis),
        np.array([-1], np.int64),
        np.array([hidden], np.int64),
        axis=0,
    )
    return str(b.node("Reshape", y, joined))
