# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every format of GGUF weights that products take: compiled, packed at run time, against decoding and multiplying."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from compile_harness import Program, check, templates_of
from gguf.constants import GGMLQuantizationType
from packed_harness import encoded

from rlx_mlir import formats

WEIGHTS = [name for name, fmt in formats.FORMATS.items() if fmt.is_weight]


def public_decoder(name: str, rows: np.ndarray) -> np.ndarray:
    """What the public package decodes; of q8_k and q1_0, which it doesn't, the formulas."""
    if name == "q1_0":
        blocks = rows.reshape(len(rows), -1, 18)
        signs = np.unpackbits(blocks[..., 2:], axis=-1, bitorder="little").astype(np.float32) * 2 - 1
        return (blocks[..., :2].copy().view("<f2").astype(np.float32) * signs).reshape(len(rows), -1)
    if name == "q8_k":
        blocks = rows.reshape(len(rows), -1, 292)
        values = blocks[..., :4].copy().view("<f4") * blocks[..., 4:260].view(np.int8).astype(np.float32)
        return values.reshape(len(rows), -1)
    return np.asarray(gguf.dequantize(rows, GGMLQuantizationType[name.upper()]))


def test_these_are_all() -> None:
    assert WEIGHTS == [
        "f32", "f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k",
        "iq2_xxs", "iq2_xs", "iq3_xxs", "iq1_s", "iq4_nl", "iq3_s", "iq2_s", "iq4_xs", "iq1_m", "bf16",
        "tq1_0", "tq2_0", "mxfp4", "nvfp4", "q1_0",
    ]  # fmt: skip


ENCODED = ["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0", "mxfp4"]
"""Formats that the package can quantise to."""


@pytest.mark.parametrize("name", ENCODED)
def test_encode_equals_the_public_encoder(name: str) -> None:
    values = np.random.default_rng(3).standard_normal((7, 512)).astype(np.float32) * 3
    values[0, :256], values[1, 32:64], values[2, ::5] = 0, 1e-30, -65504 / 16
    expected = gguf.quantize(values, GGMLQuantizationType[name.upper()])
    np.testing.assert_array_equal(formats.encode(name, values), expected.view(np.uint8).reshape(7, -1))


@pytest.mark.parametrize("name", [name for name in WEIGHTS if name not in ENCODED])
def test_the_public_package_has_no_other_encoder(name: str) -> None:
    with pytest.raises(NotImplementedError):
        gguf.quantize(np.zeros((1, 256), np.float32), GGMLQuantizationType[name.upper()])


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.quick(1)
def test_products_are_compiled_packed(name: str) -> None:
    k, n = 512, 19
    p = Program("mir")
    m = p.m
    x, ids = p.input("x", ["a", k]), p.input("ids", ["a"], "i32", lambda rng, shape: rng.integers(0, n, shape))
    w = p.param("w", [n, k], packed=name)
    p.output(product=m.dequant_matmul(x, w), biased=m.mm(x, w) + p.param("b", [n]), rows=m.gather(w, ids))
    ways = check(p, [{"a": 3}, {"a": 1}, {"a": 0}], maxima={"a": 3})
    packed = formats.get_format(name).has_panels
    assert ("gemm_panels" in templates_of(ways.templates).values()) == packed == (name != "q8_k")
    (spec,) = [spec for spec in ways.templates.params if spec.name == "w"]
    assert spec.shape == (n, formats.get_format(name).row_bytes(k)), "the parameter is the packed weight"

    rows = encoded(name, np.random.default_rng(4).standard_normal((n, k)).astype(np.float32))
    ways.set_params({"w": rows, "b": np.zeros(n, np.float32)})
    values = np.random.default_rng(5).standard_normal((3, k)).astype(np.float32)
    found = ways.templates.run({"x": values, "ids": np.array([18, 0, 7], np.int32)})
    decoded = public_decoder(name, rows)
    np.testing.assert_array_equal(found["rows"], decoded[[18, 0, 7]])
    want = values @ decoded.T
    np.testing.assert_allclose(found["product"], want, atol=2e-5 * np.abs(want).max(), rtol=1e-5)
