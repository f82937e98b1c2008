# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The template of depthwise convolutions along a sequence, and which operations it takes."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import Program, check, compile_fresh, every, templates_of
from cpu_harness import TARGETS, compiled

from rlx_mlir import GraphModule
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.conv import emit_conv
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs.sequence import MAX_TAPS, ConvSpec

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def run(bits: int, word: str, x: np.ndarray, weight: np.ndarray, cuts: Any = None, *, dynamic: bool = False) -> Any:
    batch, length, channels = x.shape
    taps = weight.shape[-1]
    sizes = (None, None) if dynamic else (batch, length - taps + 1)
    spec = ConvSpec(
        memref((sizes[0], None if dynamic else length, channels), word),
        memref(weight.shape, word),
        memref((*sizes, channels), word),
    )
    kernel = compiled("conv", emit_conv("conv", spec, TARGETS[bits]))
    shape = (batch, length - taps + 1, channels)
    size = math.prod(shape)
    memory = np.ones(size + 64, x.dtype)
    found = kernel([x, weight], [memory[:size].reshape(shape)], cuts)[0]
    np.testing.assert_array_equal(memory[size:], 1, "what follows the result in memory stays")
    return found


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("word", DTYPES)
@pytest.mark.parametrize("shape", [(2, 9, 16, 4), (1, 4, 33, 4), (3, 2, 300, 1), (1, 3, 1, 2), (1, 2, 512, 3)], ids=str)
@pytest.mark.quick(4)
def test_template(bits, word, shape):
    batch, length, channels, taps = shape
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, length, channels)).astype(DTYPES[word])
    weight = rng.standard_normal((channels, 1, 1, taps)).astype(DTYPES[word])
    wide, factors = x.astype(np.float64), weight.astype(np.float64)[:, 0, 0]
    want = sum(wide[:, j : length - taps + 1 + j] * factors[:, j] for j in range(taps))
    found = run(bits, word, x, weight)
    tolerance = {"f32": 1e-5, "f16": 2**-11, "bf16": 2**-8}[word]
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=tolerance, atol=1e-5)
    for again in (run(bits, word, x, weight, range(20)), run(bits, word, x, weight, [1], dynamic=True)):
        assert again.tobytes() == found.tobytes()


def test_one_channel():
    """Less than a vector: nothing is written behind the result."""
    x, weight = np.ones((1, 3, 1), np.float32), np.ones((1, 1, 1, 2), np.float32)
    for bits in TARGETS:
        np.testing.assert_array_equal(run(bits, "f32", x, weight), np.full((1, 2, 1), 2, np.float32))


def test_what_has_no_template():
    for x, weight, message in (
        ("memref<1x4x8xf64>", "memref<8x1x1x4xf64>", "f64"),
        ("memref<1x4x?xf32>", "memref<?x1x1x4xf32>", "static channels"),
        ("memref<1x99x8xf32>", f"memref<8x1x1x{MAX_TAPS + 1}xf32>", f"at most {MAX_TAPS} taps"),
    ):
        with pytest.raises(UnsupportedByTemplate, match=message):
            emit_conv("conv", ConvSpec(x, weight, x), TARGETS[256])


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_causal_blocks(dtype):
    """A block is one kernel after the concatenation, of any size, and is the same in each way to run it."""
    p = Program()
    x, w = p.input("x", ["b", "s", 40], dtype), p.param("w", [40, 1, 1, 4], dtype)
    p.output(y=p.m.silu(p.m.depthwise_conv1d_causal(x, w, p.input("pad", ["b", 3, 40], dtype))))
    ways = check(p, every(b=[0, 1, 2], s=[0, 1, 6]))
    assert sorted(templates_of(ways.templates).values()) == ["conv", "copies", "rows"]


def chain(**changes: Any) -> tuple[GraphModule, dict[str, np.ndarray]]:
    """A convolution between transposes, with something changed."""
    m = GraphModule.mir("m")
    x, w = m.input("x", [4, 6, 4]), m.input("w", [4, 1, 1, 3])
    turned = m.transpose(x, [0, 2, 1])
    image = m.reshape(turned, changes.get("image", [4, 4, 1, 6]))
    y = m.conv2d(image, w, groups=4, **changes.get("attributes", {}))
    line = m.reshape(y, [y.shape[0], 4, -1])
    outputs = {"y": m.transpose(line, [0, 2, 1])}
    if "also" in changes:
        outputs["z"] = m.relu({"turned": turned, "y": y, "line": line, "image": image}[changes["also"]])
    m.set_outputs(outputs)
    rng = np.random.default_rng(0)
    return m, {
        "x": rng.standard_normal((4, 6, 4)).astype(np.float32),
        "w": rng.standard_normal((4, 1, 1, 3)).astype(np.float32),
    }


@pytest.mark.parametrize(
    ("changes", "takes"),
    [
        ({}, True),
        ({"attributes": {"dilation": [1, 2]}}, False),
        ({"attributes": {"padding": [0, 1]}}, False),
        ({"attributes": {"stride": [1, 2]}}, False),
        ({"image": [2, 4, 1, 12]}, False),
        ({"also": "turned"}, False),
        ({"also": "image"}, False),
        ({"also": "y"}, False),
        ({"also": "line"}, False),
    ],
    ids=str,
)
@pytest.mark.quick(2)
def test_which_convolutions(changes, takes):
    m, values = chain(**changes)
    executable = compile_fresh(m)
    assert ("conv" in templates_of(executable).values()) == takes
    generic = compile_fresh(m, disable_templates=("all",)).run(values)
    for name, found in executable.run(values).items():
        np.testing.assert_allclose(found, generic[name], rtol=1e-5, atol=1e-6)
