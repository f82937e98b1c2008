# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folding of constants: the same bits as without it, interpreted and compiled; its bounds, and what it reports."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from compile_harness import Program, compile_fresh, templates_of
from seeds import seed

from rlx_mlir import GraphModule, interpret
from rlx_mlir.compiler import Compilation, CompileOptions
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.hir import Value
from rlx_mlir.runtime.executable import Executable

FLOATS, INTEGERS = ("f16", "bf16", "f32", "f64"), ("i8", "i16", "i32", "i64")
#: By kind of element: numbers at the ends of types, and those that operations treat apart.
SPECIAL = {
    "float": (0.0, -0.0, 1.0, -1.0, 0.1, -2.5, 3.0, 65504.0, -1e-8, 1e30, np.inf, -np.inf, np.nan),
    "integer": (0, 1, -1, 2, -3, 7, 100, -100, 127, -128),
    "condition": (False, True),
}


def kind_of(dtype: str) -> str:
    return "float" if dtype in FLOATS else "integer" if dtype in INTEGERS else "condition"


class RandomConstants:
    """A graph in which everything follows from constants, and all values are returned."""

    def __init__(self, dtype: str, number: int, count: int = 30) -> None:
        self.rng = np.random.default_rng([seed(), number])
        self.dtype = dtype
        self.m = GraphModule.mir("constants")
        self.values = [self.constant([3, 4]), self.constant([4]), self.constant([]), self.constant([3, 1])]
        for _ in range(count):
            self.step()
        self.m.set_outputs({f"y{at}": value for at, value in enumerate(self.values)})

    def choose(self, options: list[str]) -> str:
        return options[int(self.rng.integers(len(options)))]

    def constant(self, shape: list[int], dtype: str = "") -> Value:
        dtype = dtype or self.dtype
        with np.errstate(over="ignore"):
            array = self.rng.choice(np.array(SPECIAL[kind_of(dtype)]), shape).astype(DTYPES[dtype])
        return self.m.constant(array)

    def pick(self, *, matrix: bool = False) -> Value:
        known = [v for v in self.values if v.dtype == DTYPES[self.dtype] and (not matrix or len(v.shape) == 2)]
        return known[int(self.rng.integers(len(known)))]

    def step(self) -> None:
        """One more operation, of a kind that the element type has."""
        makers: list[Callable[[], Value]] = [self.move, self.move, self.choice, self.conversion]
        makers += {
            "float": [self.arithmetic, self.arithmetic, self.rounded],
            "integer": [self.arithmetic, self.arithmetic, self.division, self.bits, self.total],
            "condition": [self.bits, self.bits, self.total],
        }[kind_of(self.dtype)]
        self.values.append(makers[int(self.rng.integers(len(makers)))]())

    def arithmetic(self) -> Value:
        x, y = self.pick(), self.constant([4] if self.rng.integers(2) else [])
        return getattr(self.m, self.choose(["add", "sub", "mul", "maximum", "minimum"]))(x, y)

    def rounded(self) -> Value:
        x = self.pick()
        if self.rng.integers(4) == 0:
            return self.m.div(x, self.constant([]))
        return getattr(self.m, self.choose(["sqrt", "neg", "abs", "round", "relu"]))(x)

    def division(self) -> Value:
        words = ["floor_div", "floor_rem", "trunc_div", "trunc_rem", "pow"]
        return getattr(self.m, self.choose(words))(self.pick(), self.constant([]))

    def bits(self) -> Value:
        word = self.choose(["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"])
        operands = [self.pick()] if word == "bitwise_not" else [self.pick(), self.constant([])]
        return getattr(self.m, word)(*operands)

    def total(self) -> Value:
        x = self.pick(matrix=True)
        if self.dtype == "i1":
            return getattr(self.m, self.choose(["any", "all"]))(x, 1, keep_dims=True)
        if self.dtype != "i16" and self.rng.integers(3) == 0:
            product = self.m.narrow(self.m.mm(x, self.m.transpose(x, [1, 0])), 1, 0, 1)
            return product if product.dtype == x.dtype else self.m.cast(product, self.dtype)
        return getattr(self.m, self.choose(["sum", "max", "min", "prod"]))(x, 1, keep_dims=True)

    def choice(self) -> Value:
        x = self.pick()
        if self.dtype == "i1":
            return self.m.where(self.constant([4], "i1"), x, self.constant([]))
        kinds = ["eq", "ne", "lt", "le", "gt", "ge"]
        condition = self.m.compare(self.choose(kinds), x, self.constant([]))
        return self.m.where(condition, x, self.constant([4]))

    def conversion(self) -> Value:
        others = [*FLOATS, *INTEGERS, "f8E4M3FN", "f8E5M2", "i1"]
        if self.rng.integers(3):
            return self.m.cast(self.m.cast(self.pick(), self.choose(others)), self.dtype)
        return self.m.cast(self.m.iota([4], dtype=self.choose(["f32", "i32", "i64"])), self.dtype)

    def move(self) -> Value:
        x, m = self.pick(matrix=True), self.m
        rows, columns = (int(size) for size in x.shape)
        moves: list[Callable[[], Value]] = [
            lambda: m.reshape(m.transpose(x, [1, 0]), [rows, columns]),
            lambda: m.slice(x, 1, step=-1),
            lambda: m.narrow(m.concat([x, x], 1), 1, 1, columns),
            lambda: m.gather(x, m.constant(np.array([2, -1, 9], np.int32)), 0),
            lambda: m.expand(m.narrow(x, 0, rows - 1, 1), [3, columns]),
        ]
        return moves[int(self.rng.integers(len(moves)))]()


def left(module: GraphModule) -> list[str]:
    """The operations that are left beside constants."""
    return [node.op for node in module.nodes() if node.op != "mir.constant"]


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether two arrays have the same bits, but for those of NaN: arithmetic has no rule for these."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.dtype.kind in "ib":
        return got.tobytes() == want.tobytes()
    lost = np.isnan(got.astype(np.float64)), np.isnan(want.astype(np.float64))
    zero = got.dtype.type(0)
    return np.array_equal(*lost) and np.where(lost[0], zero, got).tobytes() == np.where(lost[1], zero, want).tobytes()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "i1"])
@pytest.mark.quick(1)
def test_random_graphs_of_constants_fold_to_what_they_compute(dtype: str) -> None:
    kept = 0
    for number in range(8):
        module = RandomConstants(dtype, number).m
        folded = module.transform("mir-fold-constants")
        kept += len(left(folded))
        want, got = interpret(module, {}), interpret(folded, {})
        assert [name for name in want if not same(got[name], want[name])] == []
    # What is left of floats are maxima of zeros with two signs, and what reads them.
    assert kept < 8 * 15 if dtype in FLOATS else kept == 0


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "i1"])
@pytest.mark.quick(1)
def test_compiled_code_gives_the_same_bits_without_folding(dtype: str) -> None:
    """So a graph's results don't depend on what happens to be constant."""
    module = RandomConstants(dtype, 100, count=12).m
    options = CompileOptions(level=1)
    apart = Executable(Compilation(module, options, apart=True).artifact(), threads=1)
    want, got, plain = apart.run({}), compile_fresh(module, level=1, threads=1).run({}), interpret(module, {})
    assert [name for name in want if not same(got[name], want[name])] == []
    assert [name for name in want if not same(plain[name], want[name])] == []


def test_operations_stay_for_reasons_that_the_report_has() -> None:
    m = GraphModule.mir("reasons")
    x, places = m.input("x", ["rows", 64]), m.iota([64], dtype="f32")
    scaled = places * 0.5
    large = m.iota([128, 256], dtype="f32") + m.iota([128, 256], 1, dtype="f32")
    m.set_outputs({"y": x * scaled + m.exp(scaled), "large": large, "some": m.narrow(large, 0, 3, 1)})
    report = m.fusion_report()
    assert [rewrite.op for rewrite in report.folded] == ["mir.mul", "mir.narrow"]
    assert {miss.op: miss.reason for miss in report.kept} == {
        "mir.exp": "the last bits of exp aren't defined",
        "mir.add": "the constant would have 128.0 KiB, more than 64.0 KiB",
    }
    text = str(report)
    assert re.search(r"\nfolded\n +1  mir.mul: block 'mul' \(test_fold_constants.py:\d+\)\n", text)
    assert re.search(r"\nnot folded\n +1  mir.add .*\n +the constant .* -> option max-bytes is the bound\n", text)
    assert report.to_dict()["folded"] == [
        {"pattern": "fold", "op": rewrite.op, "where": rewrite.where} for rewrite in report.folded
    ]
    report.assert_clean()  # nothing that could be joined isn't
    assert [rewrite.op for _, rewrite in report.fused] == ["mir.iota"]  # both positions are one kernel


def test_reports_of_graphs_without_constants_say_nothing_of_them() -> None:
    m = GraphModule.mir("plain")
    m.set_outputs({"y": m.input("x", ["rows", 64]) * m.param("w", [64])})
    assert "fold" not in str(m.fusion_report())


def test_one_number_repeated_takes_no_memory() -> None:
    """Neither while it is computed, nor in the module."""
    m = GraphModule.mir("repeated")
    size = 1 << 20
    ones = m.expand(m.constant(np.float32(0.5)), [size, size])
    m.set_outputs({"y": m.narrow(m.transpose(ones * ones + ones, [1, 0]), 0, 7, 1)})
    folded = m.transform("mir-fold-constants")
    assert left(folded) == []
    assert f"dense<7.500000e-01> : tensor<1x{size}xf32>" in folded.to_text()


def test_what_parameters_meet_is_prepared_once_where_it_folds() -> None:
    """A conversion of integers can't run when parameters are set, but a constant can."""
    p = Program()
    table = p.m.cast(p.m.iota([64], dtype="i32"), "f32") / 64.0
    p.output(y=p.input("x", ["rows", 64]) * (p.param("w", [64]) + table))
    executable = compile_fresh(p.finish())
    assert [step.op for step in executable.artifact.preparation.steps] == ["constant", "add"]
    assert [spec.name for spec in executable.artifact.plan_parameters] == ["w:prepared"]
    inputs, params = p.values({"rows": 3})
    executable.set_params(params)
    want = inputs["x"] * (params["w"] + np.arange(64, dtype=np.float32) / 64)
    assert np.array_equal(executable.run(inputs)["y"], want)


@pytest.mark.parametrize("kind", ["product", "rows", "norm"])
def test_tables_leave_kernels_their_templates(kind: str) -> None:
    """Templates take one number from the kernel, but a table from memory alone, where it is prepared."""
    p = Program()
    m, x, w = p.m, p.input("x", ["rows", 64]), p.param("w", [64, 64])
    table = m.iota([64], dtype="f32") * 0.125
    p.output(y={"product": x @ w + table, "rows": m.abs(x) * table, "norm": m.rms_norm(x, table)}[kind])
    executable = compile_fresh(p.finish())
    found = templates_of(executable)
    assert set(found.values()) == {"gemm_panels" if kind == "product" else "rows"}
    assert "constant:prepared" in [spec.name for spec in executable.artifact.plan_parameters]
    inputs, params = p.values({"rows": 5})
    executable.set_params({name: params[name] for name in params if name in {s.name for s in executable.params}})
    want = interpret(p.m, {**inputs, **params})["y"]
    np.testing.assert_allclose(executable.run(inputs)["y"], want, rtol=1e-5, atol=1e-5)
