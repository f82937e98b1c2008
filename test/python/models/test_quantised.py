# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole models in 8 bits after a calibration: layers of integers bit-equal to the references, results near f32."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_encoders
from compile_harness import compile_fresh

from rlx_mlir import GraphModule, interpret
from rlx_mlir.calibration import calibrate
from rlx_mlir.errors import RlxError
from rlx_mlir.mir import REFERENCES
from rlx_mlir.models import encoder as graphs
from rlx_mlir.models import hub
from rlx_mlir.models.embedding import load_encoder, open_weights
from rlx_mlir.models.encoder_config import EncoderConfig

QUANTISED = "mir-insert-qdq,mir-quant-propagate"
#: The operations that give integers, and that of each which gives floats of them.
INTEGERS = ("mir.quantize", "mir.q_matmul", "mir.q_conv2d", "mir.dequantize")

Arrays = Mapping[str, np.ndarray]


def check_layers(module: GraphModule, params: Arrays, inputs: Arrays) -> tuple[np.ndarray, dict[str, int]]:
    """Each operation on integers of the compiled module, on what it reads there, against its reference, bit by bit.

    Returns the module's one output, and how many of each operation there are.
    """
    nodes = [node for node in module.nodes() if node.op in INTEGERS]
    listed = list(dict.fromkeys(value for node in nodes for value in (*node.operands, *node.results)))
    names = {value: f"value.{number}" for number, value in enumerate(listed)}
    [(output, result)] = module.outputs.items()
    module.set_outputs({output: result, **{name: value for value, name in names.items()}})
    executable = compile_fresh(module)
    executable.set_params(params)
    found = executable.run(inputs)
    counts = dict.fromkeys(INTEGERS, 0)
    for node in nodes:
        operands = [found[names[value]] for value in node.operands]
        want = REFERENCES[node.op](*operands, **node.attributes)
        np.testing.assert_array_equal(found[names[node.results[0]]], want, err_msg=f"{node}")
        counts[node.op] += 1
    return found[output], counts


def cosines(found: np.ndarray, want: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(found, axis=-1) * np.linalg.norm(want, axis=-1)
    return np.asarray((found * want).sum(axis=-1) / norms)


def batch(config: EncoderConfig, ids: list[list[int]]) -> dict[str, np.ndarray]:
    """Ids of tokens, padded to the longest."""
    shape = len(ids), max(map(len, ids))
    tokens, mask = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    for row, own in enumerate(ids):
        tokens[row, : len(own)], mask[row, : len(own)] = own, 1
    positions = np.arange(shape[1], dtype=np.int32) + config.first_position
    return {"tokens": tokens, "mask": mask, "positions": np.ascontiguousarray(np.broadcast_to(positions, shape))}


def check_encoder(folder: Path, seen: list[list[list[int]]], ids: list[list[int]], least: float) -> None:
    weights = open_weights(folder)
    config = EncoderConfig.from_folder(folder, weights)
    module, params = graphs.build(config), graphs.parameters(config, weights)
    ranges = calibrate(module, [batch(config, own) for own in seen], params=params, least_ratio=24)
    small = ranges.transform(QUANTISED)
    given = batch(config, ids)
    found, counts = check_layers(small, params, given)
    alike = cosines(found, interpret(module, {**given, **params})["embeddings"])
    assert alike.min() > least, f"cosines of 8 bits to f32: {alike}"
    assert counts["mir.q_matmul"] >= 4 * config.layers, counts


def test_small_encoder(tmp_path: Path) -> None:
    config = tiny_encoders.BERT | {"num_hidden_layers": 1}
    folder = tiny_encoders.write(tmp_path / "bert", config, tiny_encoders.tensors(config))
    rng = np.random.default_rng(0)
    seen, ids = ([rng.integers(0, 20, length).tolist() for length in (9, 30, 17)] for _ in range(2))
    check_encoder(folder, [seen], ids, 0.99)


@pytest.mark.slow
def test_minilm() -> None:
    try:
        folder = hub.resolve_folder("minilm", download=False)
    except RlxError:
        pytest.skip("MiniLM isn't on this machine")
    encoder = load_encoder(folder)
    texts = ("A man is eating food.", "The stock market crashed in 1929.", "What is the capital of France?")
    others = ("The cat sat on the mat.", "Compilers translate programs.", "Where is the nearest hospital?")
    seen, ids = ([encoder.tokenize(text) for text in own] for own in (texts, others))
    check_encoder(folder, [seen], ids, 0.98)


def network(m: GraphModule) -> Any:
    """A small network of convolutions, pools, and a product."""
    x = m.input("x", ["n", 3, 16, 16])
    h = m.relu(m.conv2d(x, m.param("stem", [16, 3, 5, 5]), padding=2) + m.param("b0", [16, 1, 1]))
    h = m.pool(h, "max", 2, stride=2)
    h = m.relu(m.conv2d(h, m.param("middle", [32, 16, 3, 3]), stride=2, padding=1) + m.param("b1", [32, 1, 1]))
    h = m.relu(m.conv2d(h, m.param("point", [24, 32, 1, 1])))
    return m.reshape(h, [-1, 24 * 16]) @ m.param("out", [24 * 16, 10]) + m.param("b2", [10])


def test_network_of_convolutions() -> None:
    """Nothing in it is summed in f32: all of it, compiled, has the bits of the interpreter."""
    m = GraphModule.mir("network")
    m.set_outputs({"y": network(m)})
    rng = np.random.default_rng(0)
    params = {}
    for value in m.params:
        fan = np.prod(value.shape[1:]) if value.ndim == 4 else value.shape[0]
        params[value.name] = (rng.standard_normal(value.shape) * (2 / fan) ** 0.5).astype(np.float32)
    seen = [{"x": rng.standard_normal((8, 3, 16, 16)).astype(np.float32)} for _ in range(2)]
    small = calibrate(m, seen, params=params).transform(QUANTISED)
    given = {"x": rng.standard_normal((5, 3, 16, 16)).astype(np.float32)}
    exact, want = (interpret(module, {**given, **params})["y"] for module in (m, small))
    found, counts = check_layers(small, params, given)
    np.testing.assert_array_equal(found, want)
    assert cosines(want, exact).min() > 0.995
    assert (counts["mir.q_conv2d"], counts["mir.q_matmul"]) == (3, 1)
