# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cross entropy of softmax and labels, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
from compile_harness import Program, compile_fresh
from compile_harness import check as check_program
from gpu_harness import compile_emulated
from linalg_harness import FLOATS, case, check, dyn, normal, word

from rlx_mlir import GraphModule, interpret
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError
from rlx_mlir.mir import REFERENCES

#: Repeated, outside at both ends.
LABELS = np.array([0, 16, 3, -5, 3, 40])
CHOSEN = np.clip(LABELS, 0, 16)


def test_reference() -> None:
    logits = normal(6, 17, dtype=np.float64, scale=3)
    share = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    want = -np.log(share[np.arange(6), CHOSEN])
    for labels in (LABELS.astype(np.int32), np.where(LABELS < 0, np.nan, LABELS + 0.5).astype(np.float32)):
        found = REFERENCES["mir.softmax_cross_entropy_with_logits"](logits, labels)
        np.testing.assert_allclose(found, want, rtol=1e-12)
        gradient = REFERENCES["mir.softmax_cross_entropy_backward"](logits, labels, np.arange(6.0))
        np.testing.assert_allclose(gradient, (share - np.eye(17)[CHOSEN]) * np.arange(6.0)[:, None], rtol=1e-12)


def test_gradient_is_that_of_the_loss() -> None:
    """By differences."""
    logits, step = normal(3, 5, dtype=np.float64), 1e-6
    labels, weights = np.array([1, 4, 0]), np.array([1.0, -2.0, 0.5])
    loss = REFERENCES["mir.softmax_cross_entropy_with_logits"]
    want = np.empty_like(logits)
    for at in np.ndindex(*logits.shape):
        moved = [logits.copy(), logits.copy()]
        moved[0][at] += step
        moved[1][at] -= step
        want[at] = (loss(moved[0], labels) - loss(moved[1], labels)) @ weights / (2 * step)
    found = REFERENCES["mir.softmax_cross_entropy_backward"](logits, labels, weights)
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", FLOATS, ids=word)
def test_compiled(dtype: np.dtype) -> None:
    cases = []
    large = normal(6, 17, dtype=dtype, scale=3) + dtype.type(80)  # exp of these overflows in f32
    edges = normal(6, 17, dtype=dtype)
    edges[0, 3], edges[1, 16], edges[2, 0] = -np.inf, np.inf, np.nan
    edges[3] = -np.inf
    for name, logits in (("normal", normal(6, 17, dtype=dtype)), ("large", large), ("edges", edges)):
        for labels in (LABELS.astype(np.int32), LABELS.astype(np.float32), CHOSEN.astype(np.uint8)):
            d = normal(6, dtype=dtype, seed=2)
            what = f"{name} {labels.dtype}"
            cases.append(case(what, mir.softmax_cross_entropy_with_logits, dyn(logits), dyn(labels)))
            cases.append(case(f"{what} back", mir.softmax_cross_entropy_backward, dyn(logits), labels, dyn(d)))
    for rows, classes in ((1, 1), (0, 3), (0, 0), (3, 8)):
        logits, labels = normal(rows, classes, dtype=dtype), np.zeros(rows, np.int64)
        cases.append(case(f"{rows} {classes}", mir.softmax_cross_entropy_with_logits, logits, dyn(labels)))
        cases.append(
            case(f"{rows} {classes} back", mir.softmax_cross_entropy_backward, logits, labels, logits[:, :1].sum(1))
        )
    check(cases)


def test_with_symbols() -> None:
    p = Program()
    logits, d = p.input("logits", ["n", "c"]), p.input("d", ["n"])
    labels = p.input("labels", ["n"], "i32", lambda rng, shape: rng.integers(0, 3, shape).astype(np.int32))
    p.output(
        loss=p.m.softmax_cross_entropy_with_logits(logits, labels),
        gradient=p.m.softmax_cross_entropy_backward(logits, labels, d),
    )
    check_program(p, [{"n": n, "c": c} for n, c in ((3, 5), (0, 4), (1, 1), (7, 500))], threads=2)


@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("features", ["", "+sse4.2,+avx2,+fma,+f16c"])
@pytest.mark.quick(6)
def test_template(element: str, features: str) -> None:
    """Numbers of classes around vectors and blocks of sums, rows that aren't finite, labels beyond both ends."""
    dtype = DTYPES[element]
    for classes, labels in ((1, "i64"), (17, "i32"), (64, "i32"), (65, "i64"), (2111, "i32")):
        module = GraphModule.mir("loss")
        x, label = module.input("x", ["n", classes], element), module.input("l", ["n"], labels)
        d = module.input("d", ["n"], element)
        module.set_outputs(
            {
                "loss": module.softmax_cross_entropy_with_logits(x, label),
                "gradient": module.softmax_cross_entropy_backward(x, label, d),
            }
        )
        executable = compile_fresh(module, features=features)
        assert set(executable.artifact.templates.values()) == {"cross_entropy"}
        rows = normal(7, classes, scale=3).astype(dtype)
        rows[0] += dtype.type(80)
        rows[1, 0], rows[2, classes // 2], rows[3, -1], rows[4] = -np.inf, np.inf, np.nan, -np.inf
        chosen = np.array([0, classes, 3, -5, classes - 1, classes // 2, 40], DTYPES[labels])
        for count in (0, 1, 7):
            given = {"x": rows[:count], "l": chosen[:count], "d": normal(7, seed=2).astype(dtype)[:count]}
            want = interpret(module, given)
            tolerance = {"f32": 2e-6, "f16": 1e-3, "bf16": 8e-3}[element]
            for name, found in executable.run(given).items():
                expected = want[name].astype(np.float64)
                np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_there_is_a_class_for_rows() -> None:
    module = GraphModule.mir("sizes")
    logits, labels = module.input("logits", ["n", "c"]), module.input("labels", ["m"], "i32")
    module.set_outputs({"y": module.softmax_cross_entropy_with_logits(logits, labels)})
    for run in (compile_fresh(module).run, lambda given: interpret(module, given)):
        for rows, classes, count in ((2, 0, 2), (2, 3, 4)):
            with pytest.raises(InputError, match=r"mir\.softmax_cross_entropy_with_logits"):
                run({"logits": normal(rows, classes), "labels": np.zeros(count, np.int32)})
        assert run({"logits": normal(0, 0), "labels": np.zeros(0, np.int32)})["y"].shape == (0,)


@pytest.mark.wide
def test_on_gpus() -> None:
    module = GraphModule.mir("gpu")
    logits, labels, d = module.input("x", ["n", 40]), module.input("l", ["n"], "i64"), module.input("d", ["n"])
    module.set_outputs(
        {
            "loss": module.softmax_cross_entropy_with_logits(logits, labels),
            "gradient": module.softmax_cross_entropy_backward(logits, labels, d),
        }
    )
    executable = compile_emulated(module)
    for rows in (0, 1, 5):
        given = {"x": normal(rows, 40), "l": np.arange(rows) * 9 - 1, "d": normal(rows)}
        want = interpret(module, given)
        for name, found in executable.run(given).items():
            np.testing.assert_allclose(found, want[name], rtol=1e-5, atol=1e-6)
