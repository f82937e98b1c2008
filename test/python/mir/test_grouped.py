# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of rows with the weight of their expert, dense and packed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from compile_harness import Program, compile_fresh, templates_of
from compile_harness import check as check_program
from gpu_harness import compile_emulated
from linalg_harness import FLOATS, builder, case, check, dyn, normal, word

from rlx_mlir import GraphModule, formats, interpret
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import BuildError, InputError
from rlx_mlir.mir import REFERENCES, PackedWeight

#: Repeated, outside at both ends; expert 2 of 4 has no row.
EXPERTS = np.array([3, 0, -1, 3, 100, 1, 0])
CHOSEN = np.clip(EXPERTS, 0, 3)


def packed(scheme: str, n: int, k: int) -> PackedWeight:
    rows = formats.encode(scheme, normal(n, k, scale=k**-0.5, seed=n))
    return PackedWeight(scheme, k, n, "rows", rows)


@pytest.mark.parametrize("kind", ["int32", "int64", "float32"])
def test_reference(kind: str) -> None:
    x, w = normal(7, 5, dtype=np.float64), normal(4, 5, 3, dtype=np.float64)
    experts = EXPERTS.astype(kind)
    if kind == "float32":
        experts[2], experts[5] = np.nan, 1.75
    want = np.stack([row @ w[e] for row, e in zip(x, CHOSEN, strict=True)])
    np.testing.assert_allclose(REFERENCES["mir.grouped_matmul"](x, w, experts), want, rtol=1e-12)


@pytest.mark.parametrize("dtype", FLOATS, ids=word)
def test_dense(dtype: np.dtype) -> None:
    cases = []
    for k, n in ((5, 17), (1, 1), (0, 3), (8, 0), (16, 9)):
        x, w = normal(7, k, dtype=dtype), normal(4, k, n, dtype=dtype, seed=1)
        for kind in (np.int32, np.float32, np.int64):
            cases.append(case(f"{k} {n} {kind}", mir.grouped_matmul, dyn(x), dyn(w), dyn(EXPERTS.astype(kind))))
        cases.append(case(f"{k} {n} bytes", mir.grouped_matmul, x, w, CHOSEN.astype(np.uint8)))
        cases.append(case(f"{k} {n} no row", mir.grouped_matmul, dyn(x[:0]), w, EXPERTS[:0].astype(np.int32)))
    check(cases)


@pytest.mark.parametrize("scheme", ["q4_0", "q8_0", "q4_k", "q6_k", "q2_k", "q3_k", "q5_k", "bf16"])
@pytest.mark.quick(2)
def test_packed_reference(scheme: str) -> None:
    weight = packed(scheme, 12, 256)
    decoded = formats.decode(scheme, weight.bytes, 256).reshape(4, 3, 256)
    np.testing.assert_array_equal(REFERENCES["mir.dequant_moe_weights"](weight, experts=4), decoded.swapaxes(1, 2))
    x = normal(7, 256)
    want = np.stack([decoded[e].astype(np.float64) @ row for row, e in zip(x, CHOSEN, strict=True)])
    found = REFERENCES["mir.dequant_grouped_matmul"](x, weight, EXPERTS, experts=4)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scheme", ["q4_0", "q8_0", "q4_k", "q6_k", "q2_k", "q3_k", "q5_k", "bf16", "f32"])
@pytest.mark.quick(3)
def test_packed(scheme: str) -> None:
    weight, experts = packed(scheme, 12, 256), EXPERTS.astype(np.int32)
    cases = [case("decoded", builder(mir.dequant_moe_weights, experts=4), weight)]
    for dtype in FLOATS:
        x = normal(7, 256, dtype=dtype)
        product = builder(mir.dequant_grouped_matmul, experts=4)
        cases.append(case(f"{dtype}", product, dyn(x), weight, dyn(experts)))
    cases.append(case("one", builder(mir.dequant_grouped_matmul, experts=1), normal(2, 256), weight, experts[:2]))
    if scheme not in ("f32", "bf16"):
        panels = weight.repacked("panels")
        cases.append(case("panels", builder(mir.dequant_grouped_matmul, experts=4), normal(7, 256), panels, experts))
        cases.append(case("panels decoded", builder(mir.dequant_moe_weights, experts=3), panels))
    check(cases)


@pytest.mark.parametrize("scheme", ["q4_0", "q8_0", "q4_k", "q6_k", "q2_k", "q3_k", "q5_k", "iq4_xs"])
@pytest.mark.quick(3)
def test_quantised(scheme: str) -> None:
    """Loops and the reference beside products of single rows with their expert."""
    weight, experts = packed(scheme, 12, 256), EXPERTS.astype(np.int32)
    cases = []
    for bits in (8, 15, 22):
        q, scale, total = REFERENCES["mir.block_quantize"](normal(7, 256), bits=bits)
        found = REFERENCES["mir.grouped_block_dot"](q, scale, total, weight, experts, experts=4)
        for row, chosen in enumerate(CHOSEN):
            own = PackedWeight(scheme, 256, 3, "rows", weight.bytes[chosen * 3 : chosen * 3 + 3])
            alone = REFERENCES["mir.block_dot"](q[row : row + 1], scale[row : row + 1], total[row : row + 1], own)
            np.testing.assert_allclose(found[row : row + 1], alone, rtol=1e-6, atol=1e-6)
        product = builder(mir.grouped_block_dot, experts=4)
        given = (dyn(q), dyn(scale), dyn(total))
        cases.append(case(f"{bits}", product, *given, weight, dyn(experts)))
        cases.append(case(f"{bits} panels", product, *given, weight.repacked("panels"), dyn(experts)))
        no_row = (dyn(value[:0]) for value in (q, scale, total))
        cases.append(case(f"{bits} no row", product, *no_row, weight, dyn(experts[:0])))
    check(cases)


def test_compiled_with_symbols() -> None:
    p = Program()
    x = p.input("x", ["t", 32])
    expert = p.input("expert", ["t"], "i32", lambda rng, shape: rng.integers(-1, 9, shape).astype(np.int32))
    w, q = p.param("w", [8, 32, 17]), p.param("q", [8 * 17, 32], packed="q8_0")
    p.output(
        dense=p.m.grouped_matmul(x, w, expert),
        packed=p.m.dequant_grouped_matmul(x, q, expert, experts=8),
        decoded=p.m.grouped_matmul(x, p.m.dequant_moe_weights(q, experts=8), expert),
    )
    for threads in (1, 2):
        check_program(p, [{"t": t} for t in (3, 0, 1, 33)], threads=threads)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("kind", ["i32", "i64", "f32"])
@pytest.mark.quick(3)
def test_template(dtype: str, kind: str) -> None:
    """More rows than a chunk, more inputs than are copied at once, columns that are no whole vectors, of several units
    and parts; single rows."""
    module = GraphModule.mir("template")
    x, w = module.input("x", ["t", "k"], dtype), module.input("w", [5, "k", "n"], dtype)
    module.set_outputs({"y": module.grouped_matmul(x, w, module.input("expert", ["t"], kind))})
    executable = compile_fresh(module, threads=2, maxima={"n": 1307})
    assert set(templates_of(executable).values()) == {"grouped"}
    rounding = {"f32": 1e-4, "bf16": 1e-2, "f16": 2e-3}[dtype]
    for rows, k, n in ((300, 131, 137), (7, 259, 16), (1, 5, 1), (3, 0, 9), (0, 4, 8), (5, 130, 0), (40, 130, 1307)):
        experts = np.random.default_rng(rows).choice([-3, 0, 0, 0, 0, 1, 1, 4, 9], rows).astype(DTYPES[kind])
        if kind == "f32" and rows:
            experts[0] = np.nan
        given = {
            "x": normal(rows, k, dtype=DTYPES[dtype]),
            "w": normal(5, k, n, dtype=DTYPES[dtype], scale=max(k, 1) ** -0.5),
            "expert": experts,
        }
        want, found = (run(given)["y"].astype(np.float64) for run in (partial(interpret, module), executable.run))
        np.testing.assert_allclose(found, want, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("n", [16, 32, 48, 160], ids=["one panel", "two", "odd", "many"])
@pytest.mark.parametrize("scheme", ["q4_1", "q8_0", "q4_k", "q6_k", "iq4_nl", "bf16", "f32"])
@pytest.mark.quick(7)
def test_packed_templates(scheme: str, n: int) -> None:
    """No row, one, some, more than a block; experts without rows, of one, of many; rows that can't be quantised."""
    k = 256
    weight = packed(scheme, 5 * n, k)
    module = GraphModule.mir("packed")
    x, expert = module.input("x", ["t", k]), module.input("expert", ["t"], "i32")
    w = module.param("w", [5 * n, k], packed=scheme)
    module.set_outputs({"y": module.dequant_grouped_matmul(x, w, expert, experts=5)})
    for options in ({}, {"disable_templates": ("gemm_digits",)}, {"features": "-avx512f"}):
        executable = compile_fresh(module, threads=2, maxima={"t": 300}, **options)
        (template,) = templates_of(executable).values()
        assert template in ("grouped_digits", "grouped_panels")
        assert template == "grouped_panels" or (n % 32 == 0 and not options.get("disable_templates"))
        executable.set_params({"w": weight.bytes})
        rows = {}
        for count in (0, 1, 2, 7, 300):
            given = {
                "x": normal(count, k),
                "expert": np.random.default_rng(count).choice([-3, 0, 0, 1, 1, 4, 9], count),
            }
            given["expert"] = given["expert"].astype(np.int32)
            if count == 300:
                given["x"][3], given["x"][5, 1], given["x"][250] = np.inf, np.nan, 1e-30
            want, found = interpret(module, {**given, "w": weight.bytes})["y"], executable.run(given)["y"]
            finite = np.isfinite(want)
            np.testing.assert_allclose(found[finite], want[finite], rtol=1e-4, atol=1e-4)
            assert np.array_equal(np.isnan(found), np.isnan(want))
            rows[count] = given, found
        given, found = rows[300]  # a row alone is the same bits
        for row in (0, 3, 5, 250, 299):
            alone = executable.run({name: value[row : row + 1] for name, value in given.items()})["y"]
            assert alone.tobytes() == found[row : row + 1].tobytes()


@pytest.mark.parametrize(
    ("scheme", "bits"),
    [(scheme, bits) for scheme in ("q4_0", "q4_1", "q8_0", "q4_k", "q6_k", "iq4_nl") for bits in (8, 15)]
    + [("q4_0", 22)],
)
@pytest.mark.quick(4)
def test_quantised_templates(scheme: str, bits: int) -> None:
    """As of floats: no row, one, some, more than a block, also on targets without dot products of bytes."""
    k, n = 256, 64
    weight = packed(scheme, 5 * n, k)
    module = GraphModule.mir("quantised")
    x, expert = module.input("x", ["t", k]), module.input("expert", ["t"], "i32")
    rows = module.block_quantize(x, bits=bits)
    w = module.param("w", [5 * n, k], packed=scheme)
    module.set_outputs({"y": module.grouped_block_dot(*rows, w, expert, experts=5)})
    without = ("-avx512vnni,-avxvnni", "-avx512f") if scheme in ("q4_0", "q6_k") else ()
    for options in ({}, *({"features": features} for features in without)):
        executable = compile_fresh(module, threads=2, maxima={"t": 300}, **options)
        assert bits == 22 or "grouped_int8" in templates_of(executable).values()
        executable.set_params({"w": weight.bytes})
        for count in (0, 1, 2, 7, 300):
            chosen = np.random.default_rng(count).choice([-3, 0, 0, 1, 1, 4, 9], count).astype(np.int32)
            given = {"x": normal(count, k), "expert": chosen}
            if count == 300:
                given["x"][3], given["x"][5, 1] = np.inf, np.nan
            want, found = interpret(module, {**given, "w": weight.bytes})["y"], executable.run(given)["y"]
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
        for row in (0, 5, 250, 299):  # alone it is the same bits
            alone = executable.run({name: value[row : row + 1] for name, value in given.items()})["y"]
            assert alone.tobytes() == found[row : row + 1].tobytes()


def test_activations_of_experts() -> None:
    """By the option of compile; where a weight has no integers, or an expert no pairs of panels, they stay floats."""
    module = GraphModule.mir("model")
    x, expert = module.input("x", ["t", 64]), module.input("expert", ["t"], "i32")
    shapes = {"pairs": (96, "q4_0"), "odd": (144, "q8_0"), "floats": (96, "bf16")}
    weights = {name: module.param(name, [n, 64], packed=scheme) for name, (n, scheme) in shapes.items()}
    module.set_outputs({n: module.dequant_grouped_matmul(x, w, expert, experts=3) for n, w in weights.items()})
    params = {name: packed(scheme, n, 64) for name, (n, scheme) in shapes.items()}
    given = {"x": normal(5, 64), "expert": np.array([2, 0, 0, 1, 2], np.int32)}
    want = interpret(module, given | {name: weight.bytes for name, weight in params.items()})
    for activations, error in (("exact", 1e-5), ("int16", 1e-3), ("int8", 0.05)):
        executable = compile_fresh(module, maxima={"t": 8}, activations=activations)
        assert ("grouped_int8" in templates_of(executable).values()) == (activations != "exact")
        executable.set_params({name: weight.bytes for name, weight in params.items()})
        for name, found in executable.run(given).items():
            loose = error if name == "pairs" else 1e-5
            np.testing.assert_allclose(found, want[name], rtol=loose, atol=loose)
        assert activations == "exact" or not np.array_equal(executable.run(given)["pairs"], want["pairs"])


def test_experts_that_are_no_whole_panels_stay_in_rows() -> None:
    module = GraphModule.mir("rows")
    x, expert = module.input("x", ["t", 32]), module.input("expert", ["t"], "i32")
    module.set_outputs(
        {"y": module.dequant_grouped_matmul(x, module.param("w", [48, 32], packed="q8_0"), expert, experts=4)}
    )
    executable = compile_fresh(module)
    assert next(iter(templates_of(executable).values())).startswith("generic")
    weight = packed("q8_0", 48, 32)
    executable.set_params({"w": weight.bytes})
    given = {"x": normal(5, 32), "expert": np.arange(5, dtype=np.int32)}
    np.testing.assert_allclose(
        executable.run(given)["y"], interpret(module, {**given, "w": weight.bytes})["y"], rtol=1e-4, atol=1e-5
    )


def test_experts_of_symbolic_number() -> None:
    """Where there is no expert, there is no row."""
    module = GraphModule.mir("experts")
    x, w = module.input("x", ["t", 4]), module.input("w", ["e", 4, 3])
    module.set_outputs({"y": module.grouped_matmul(x, w, module.input("expert", ["u"], "i64"))})
    executable = compile_fresh(module)
    given = {"x": normal(2, 4), "w": normal(5, 4, 3), "expert": np.array([4, 9])}
    np.testing.assert_allclose(executable.run(given)["y"], given["x"] @ given["w"][4], rtol=1e-5, atol=1e-6)
    none = {"x": given["x"][:0], "w": given["w"][:0], "expert": given["expert"][:0]}
    assert executable.run(none)["y"].shape == (0, 3)
    for run in (executable.run, lambda given: interpret(module, given)):
        with pytest.raises(InputError, match=r"mir\.grouped_matmul"):
            run(given | {"w": given["w"][:0]})
        with pytest.raises(InputError, match=r"mir\.grouped_matmul"):
            run(given | {"x": normal(3, 4)})


def test_on_gpus() -> None:
    module = GraphModule.mir("gpu")
    x, expert = module.input("x", ["t", 64]), module.input("expert", ["t"], "i32")
    w, q = module.param("w", [3, 64, 5]), module.param("q", [15, 64], packed="q4_0")
    module.set_outputs(
        {"dense": module.grouped_matmul(x, w, expert), "packed": module.dequant_grouped_matmul(x, q, expert, experts=3)}
    )
    executable = compile_emulated(module)
    params = {"w": normal(3, 64, 5, scale=0.125), "q": packed("q4_0", 15, 64).bytes}
    executable.set_params(params)
    for rows in (0, 1, 6):
        given = {"x": normal(rows, 64), "expert": np.arange(rows, dtype=np.int32) - 1}
        want = interpret(module, given | params)
        for name, found in executable.run(given).items():
            np.testing.assert_allclose(found, want[name], rtol=1e-4, atol=1e-5)


def test_builder() -> None:
    module = GraphModule.mir("built")
    x, expert = module.input("x", ["t", 32]), module.input("expert", ["t"], "i32")
    q = module.param("q", [12, 32], packed="q4_0")
    assert module.dequant_grouped_matmul(x, q, expert, experts=4).shape == ("t", 3)
    assert module.dequant_moe_weights(q, experts=2).shape == (2, 32, 6)
    with pytest.raises(BuildError, match="'experts' that divides the 12 rows of 'weight'"):
        module.dequant_moe_weights(q, experts=5)
    with pytest.raises(BuildError, match="'experts' is an integer"):
        module.dequant_grouped_matmul(x, q, expert, experts=4.0)
