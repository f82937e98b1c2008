# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every operation and block, from the graph to its results: interpreted and compiled runs agree.

Each case is one module with many results: by templates and generically, for sizes of 0, 1 and others with one
executable, against the interpreter at both stages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compile_harness import DTYPES, Make, Program, Sizes, check, every, integers, normal, positive, scaled

from rlx_mlir.mir import COMPOSITIONS, TO_LINALG
from rlx_mlir.mir.functions import FUNCTIONS, of_arity
from rlx_mlir.semantics.ops import operation_classes

UNARY, BINARY = tuple(of_arity(1, "f32")), tuple(of_arity(2, "f32"))
#: Widths of rows: one, and around the width of vectors.
WIDTHS = (1, 15, 16, 17)
INTEGER_SCHEMES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
FLOATS = ("f32", "bf16", "f16", "f64")
GENERIC = {"generic"}


@dataclass(frozen=True)
class Case:
    """A module and how it is run.

    Attributes:
        build: adds arguments and results to the program.
        sizes: of its symbols.
        templates: see `check`.
        options: of `check` and of the compilation.
        stage: of the program.
        policy: of the program.
    """

    build: Callable[[Program], None]
    sizes: Sequence[Sizes]
    templates: set[str] | None
    options: dict[str, Any]
    stage: str = "hir"
    policy: str = "direct"

    def program(self) -> Program:
        """A new program of the case."""
        program = Program(stage=self.stage, policy=self.policy)
        self.build(program)
        return program


CASES: dict[str, Case] = {}
SLOW: set[str] = set()


def case(
    name: str,
    build: Callable[[Program], None],
    sizes: Sequence[Sizes] | None = None,
    templates: set[str] | None = None,
    *,
    stage: str = "hir",
    policy: str = "direct",
    slow: bool = False,
    **options: Any,
) -> None:
    """Adds a case."""
    assert name not in CASES, name
    CASES[name] = Case(build, sizes or [{}], templates, options, stage, policy)
    if slow:
        SLOW.add(name)


def of_rows(dtype: str, otherwise: str) -> set[str]:
    """Which template kernels of rows have for an element type, and which others have."""
    return {otherwise} if dtype == "f64" else {"rows"}


# -- element by element ----------------------------------------------------------------------------------------------


def unary(p: Program, dtype: str, widths: tuple[int, ...]) -> None:
    for width in widths:
        x, y = p.input(f"x{width}", ["a", "b", width], dtype), p.input(f"y{width}", ["a", "b", width], dtype, positive)
        for kind in UNARY:
            p.output(**{f"{kind}{width}": getattr(p.m, kind)(y if FUNCTIONS[kind].domain == "positive" else x)})


def binary(p: Program, dtype: str, kinds: tuple[str, ...], widths: tuple[int, ...], make: Make) -> None:
    for width in widths:
        x = p.input(f"x{width}", ["a", width], dtype, make)
        others = {
            "full": p.input(f"full{width}", ["a", width], dtype, make),
            "row": p.param(f"row{width}", [width], dtype, make),
            "one": p.input(f"one{width}", [1], dtype, make),
            "scalar": p.input(f"scalar{width}", [], dtype, make),
        }
        for kind in kinds:
            for name, other in others.items():
                p.output(**{f"{kind}_{name}{width}": p.m.binary(kind, x, other)})
            p.output(**{f"{kind}_swapped{width}": p.m.binary(kind, others["row"], x)})


def broadcasts(p: Program) -> None:
    x, y = p.input("x", ["a", 1, 5]), p.input("y", ["b", 5])
    z, column = p.input("z", ["a", 3, 1]), p.input("column", ["a", 1, 1])
    p.output(outer=x + y, inner=x * z, column=column / (z * z + 1.0), number=2.0 - x)


for _dtype in FLOATS:
    _widths = WIDTHS if _dtype == "f32" else (1, 17)
    case(
        f"unary {_dtype}",
        partial(unary, dtype=_dtype, widths=_widths),
        every(a=[0, 1, 2], b=[1, 3]),
        of_rows(_dtype, "broadcast"),
        tolerance=4e-3 if _dtype == "f16" else None,
        slow=_dtype == "f16",
    )
    case(
        f"binary {_dtype}",
        partial(binary, dtype=_dtype, kinds=BINARY, widths=_widths[-2:], make=positive),
        every(a=[0, 1, 3]),
        of_rows(_dtype, "broadcast"),
        slow=_dtype in ("bf16", "f64"),
    )
for _dtype in ("i8", "i32", "i64"):
    case(
        f"binary {_dtype}",
        partial(binary, dtype=_dtype, kinds=tuple(of_arity(2, _dtype)), widths=(5,), make=integers(-100, 100)),
        every(a=[0, 1, 3]),
        {"broadcast"},
        slow=_dtype == "i32",
    )
case("broadcasts", broadcasts, every(a=[0, 1, 2], b=[0, 1, 3]))


def logic(p: Program) -> None:
    x, row, some = p.input("x", ["a", 9]), p.param("row", [9]), p.input("some", ["a", 1], "i1", integers(0, 2))
    inside = (x > row) & (x < 1.0)
    p.output(inside=inside, outside=~inside, some=some | inside, odd=(x > 0.0) ^ some, kept=p.m.where(inside, x, row))
    p.output(any_row=inside.any(1), all_rows=(inside | some).all(0), any=inside.any(), kept_all=some.all(0, True))


case("logic", logic, every(a=[0, 1, 3]), {"broadcast", *GENERIC})


def comparisons(p: Program, dtype: str) -> None:
    x, y = (p.input(name, ["a", 9], dtype, integers(-2, 3)) for name in "xy")
    row, chosen = p.input("row", [9], dtype, integers(-2, 3)), p.input("chosen", ["a", 9], "i1", integers(0, 2))
    for kind in ("eq", "ne", "lt", "le", "gt", "ge"):
        p.output(**{kind: p.m.compare(kind, x, y), f"{kind}_row": p.m.compare(kind, row, x)})
    zero = 0.0 if dtype in FLOATS else 0
    p.output(where=p.m.where(chosen, x, y), least=p.m.where(p.m.lt(x, y), x, row))
    p.output(above=p.m.where(p.m.gt(x, zero), y, zero))


def casts(p: Program) -> None:
    for source in DTYPES:
        x = p.input(f"from_{source}", ["a", 9], source, integers(0, 2) if source == "i1" else scaled(3))
        for target in DTYPES:
            p.output(**{f"{source}_{target}": p.m.cast(x, target)})


for _dtype in ("f32", "bf16", "f64", "i32", "i8"):
    case(f"compare {_dtype}", partial(comparisons, dtype=_dtype), every(a=[0, 1, 5]), slow=_dtype in ("f64", "i32"))
case("cast", casts, every(a=[0, 1, 3]))


# -- shapes ----------------------------------------------------------------------------------------------------------


def movement(p: Program, dtype: str) -> None:
    m, make = p.m, integers(0, 2) if dtype == "i1" else scaled(20)
    x, y = p.input("x", ["a", 3, 8], dtype, make), p.input("y", ["b", 3, 8], dtype, make)
    narrow, column = p.input("narrow", [1, 3, 1], dtype, make), p.input("column", ["a", 1], dtype, make)
    p.output(
        flat=m.reshape(x, [-1, 8]),
        rows=m.reshape(x, ["a", 24]),
        split=m.reshape(x, ["a", 3, 2, -1]),
        apart=m.reshape(m.barrier(x), [-1, 8]),
        reversed=m.transpose(x),
        swapped=m.transpose(x, [1, 0, 2]),
        through=m.reshape(m.transpose(m.reshape(x, ["a", 24])), [8, 3, -1]),
        middle=m.narrow(x, 1, 1, 2),
        last=m.narrow(x, 2, 3, 4),
        all=m.narrow(x, -1, 0, 8),
        nothing=m.narrow(x, 1, 2, 0),
        second=m.slice(x, 1, 1, None, 2),
        later=m.slice(x, 0, 1),
        backwards=m.slice(x, 0, None, None, -1),
        size=m.dim(x, 0, "i32"),
        positions=m.iota(["a", 3]),
        joined=m.concat([x, y], 0),
        twice=m.concat([x, x], 1),
        wide=m.concat([x, x, x], 2),
        copied=m.concat([x], 0),
        grown=m.expand(narrow, [4, 3, 8]),
        rows_grown=m.expand(column, ["a", 7]),
    )


def gathers(p: Program) -> None:
    m = p.m
    table, packed, wide = p.param("table", [7, 33]), p.param("p", [9, 64], packed="q4_1"), p.param("w", [5, "width"])
    more = {s: p.param(s, [5, 256], packed=s) for s in (*INTEGER_SCHEMES, "f16", "bf16", "q8_k", "q6_k", "q4_k")}
    rows, pairs = p.input("rows", ["a"], "i32", integers(0, 5)), p.input("pairs", ["a", 2], "i64", integers(0, 5))
    x, floats = p.input("x", ["b", 5, 3]), p.input("floats", ["a"], "f32", integers(0, 3))
    p.output(rows=m.gather(table, rows), columns=m.gather(table, pairs, 1), packed=m.gather(packed, rows))
    p.output(middle=m.gather(x, pairs, 1), floats=m.gather(x, floats, 2), dynamic=m.gather(wide, pairs))
    each = p.input("each", ["b", 2], "i32", integers(0, 5))
    p.output(each=m.gather(x, each, 1, batch_dims=1))
    p.output(**{f"{scheme}_rows": m.gather(weight, rows) for scheme, weight in more.items()})


for _dtype in ("f32", "bf16", "i64", "i1"):
    case(
        f"movement {_dtype}",
        partial(movement, dtype=_dtype),
        every(a=[0, 1, 2], b=[0, 3]),
        slow=_dtype in ("f32", "i64"),
    )
case("gather", gathers, every(a=[0, 1, 3], b=[0, 2], width=[6]), {"gather"})


def dynamic_slices(p: Program) -> None:
    x, new, at = p.input("x", ["a", 9]), p.input("new", ["a", 2]), p.input("at", [], "i32", integers(-3, 12))
    p.output(window=p.m.dynamic_slice(x, at, 4, axis=1), updated=p.m.dynamic_update_slice(x, new, at, axis=1))


def complexes(p: Program) -> None:
    z = p.m.complex(p.input("re", ["a", 9]), p.input("im", [9]))
    product = z * p.m.conjugate(z)
    p.output(square=p.m.complex_norm_sq(z), re=p.m.real(product), im=p.m.imag(z + z), sum=p.m.real(z.sum(1)))


case("dynamic slices", dynamic_slices, every(a=[0, 1, 3]), {"copies", *GENERIC})
case("complex", complexes, every(a=[0, 1, 3]), GENERIC)


# -- reductions and norms --------------------------------------------------------------------------------------------


def reductions(p: Program, dtype: str) -> None:
    m, make = p.m, integers(-3, 4) if dtype[0] == "i" else normal
    x, y = p.input("x", ["a", 5, "b"], dtype, make), p.input("y", ["a", 3, 9], dtype, make)
    for kind in ("sum", "mean", "max", "min", "prod"):
        if kind == "mean" and dtype[0] == "i":
            continue
        p.output(
            **{
                f"{kind}_middle": m.reduce(x, kind, 1),
                f"{kind}_kept": m.reduce(x, kind, [1, 2], keep_dims=True),
                f"{kind}_all": m.reduce(x, kind),
                f"{kind}_last": m.reduce(y, kind, -1),
                f"{kind}_first": m.reduce(y, kind, 0),
            }
        )
    p.output(sums=m.cumsum(x), before=m.cumsum(y, exclusive=True), middle=m.cumsum(y, 1))
    ones = p.input("ones", [1, 5, 3, "b"], dtype, make)
    p.output(among_ones=m.cumsum(ones, -2), before_among_ones=m.cumsum(ones, 2, exclusive=True))
    if dtype in FLOATS:
        p.output(softmax=m.softmax(x), middle_softmax=m.softmax(x, 1), rows=m.softmax(y))
        values, indices = m.top_k(y, 3)
        p.output(largest=values, largest_at=indices, first=m.top_k(y, 1)[1])


def norms(p: Program, dtype: str, widths: tuple[int, ...]) -> None:
    m = p.m.primitives
    for n in widths:
        x, r = p.input(f"x{n}", ["a", "b", n], dtype), p.input(f"r{n}", ["a", "b", n], dtype)
        gamma, beta, bias = (p.param(f"{name}{n}", [n], dtype) for name in ("gamma", "beta", "bias"))
        p.output(
            **{
                f"rms{n}": m.rms_norm(x, gamma),
                f"rms_beta{n}": p.m.rms_norm(x, gamma, beta, eps=0.5),
                f"layer{n}": m.layer_norm(x, gamma),
                f"layer_beta{n}": m.layer_norm(x, gamma, beta),
                f"residual_rms{n}": m.fused_residual_rms_norm(x, r, gamma, beta, bias=bias),
                f"residual_layer{n}": m.fused_residual_layer_norm(x, r, gamma, bias=bias),
                f"block{n}": p.m.residual_rms_norm(x, r, gamma),
                f"sum_norm{n}": p.m.rms_norm(x + r, beta),
                f"softmax{n}": m.softmax(x),
                f"swiglu{n}": m.fused_swiglu(p.input(f"s{n}", ["a", "b", 2 * n], dtype)),
                f"gate_first{n}": m.fused_swiglu(p.input(f"t{n}", ["a", "b", 2 * n], dtype), gate_first=True),
            }
        )


def other_axis(p: Program) -> None:
    x, gamma = p.input("x", ["a", 5, "b"]), p.param("gamma", [5])
    p.output(rms=p.m.primitives.rms_norm(x, gamma, axis=1), layer=p.m.layer_norm(x, gamma, axis=1))


for _dtype in FLOATS:
    case(
        f"reduce {_dtype}",
        partial(reductions, dtype=_dtype),
        every(a=[0, 2], b=[0, 1, 7]),
        tolerance=8e-3 if _dtype == "f16" else None,
        slow=_dtype != "f32",
    )
    _widths = WIDTHS if _dtype == "f32" else (1, 17)
    case(
        f"norms {_dtype}",
        partial(norms, dtype=_dtype, widths=_widths),
        every(a=[0, 1, 3], b=[0, 2]),
        of_rows(_dtype, "generic"),
        tolerance={"f16": 8e-3, "bf16": 3e-2}.get(_dtype),
        slow=_dtype in ("f16", "f64"),
    )
for _dtype in ("i8", "i32", "i64"):
    case(
        f"reduce {_dtype}",
        partial(reductions, dtype=_dtype),
        every(a=[1, 2], b=[1, 7]),
        {"reduce", "generic"},
        slow=_dtype != "i32",
    )
case("norms of another axis", other_axis, every(a=[0, 2], b=[0, 1, 3]), {"norm"})


# -- products --------------------------------------------------------------------------------------------------------


def products(p: Program, dtype: str, inner: int) -> None:
    m = p.m
    for n in (1, 15, 33):
        x, r = p.input(f"x{n}", ["a", inner], dtype), p.input(f"r{n}", ["a", n], dtype)
        w, t, b = (p.param(f"{k}{n}", s, dtype) for k, s in (("w", [inner, n]), ("t", [n, inner]), ("b", [n])))
        given, one = (
            p.input(f"given{n}", [inner, n], dtype, scaled(inner**-0.5)),
            p.param(f"one{n}", [1], dtype, positive),
        )
        p.output(
            **{
                f"plain{n}": m.mm(x, w),
                f"transposed{n}": m.mm(x, t, transpose_rhs=True),
                f"bias_act{n}": m.linear_bias_act(x, w, b, activation="gelu"),
                f"residual{n}": m.mm(x, w) + r,
                f"scaled{n}": m.silu(m.mm(x, t, transpose_rhs=True) * one),
                f"fused{n}": m.fused_matmul_bias_act(x, w, b, activation="silu"),
                f"given{n}": m.mm(x, given),
                f"linear{n}": m.linear(x, t, b, activation="tanh", transpose_weight=True),
                f"linear_fused{n}": m.linear_fused(x, w, b, activation="relu"),
            }
        )


def integer_products(p: Program, dtype: str) -> None:
    """What follows a product, and products of one value, are joined where they are of floats."""
    m, whole = p.m, "i32" if dtype == "i8" else dtype
    x = p.input("x", ["a", 33], dtype, integers(-128, 128))
    w, v, t = (p.param(k, s, dtype, integers(-128, 128)) for k, s in (("w", [33, 7]), ("v", [33, 5]), ("t", [7, 33])))
    bias, other = p.param("bias", [7], whole, integers(-9, 9)), p.input("other", ["a", 7], whole, integers(-9, 9))
    p.output(plain=m.mm(x, w), transposed=m.mm(x, t, transpose_rhs=True), biased=m.mm(x, w) + bias)
    p.output(sibling=m.mm(x, v), residual=m.mm(x, w) * other - bias, scaled=m.cast(m.mm(x, w), "f32") * 0.5)
    y, z = (p.input(k, s, dtype, integers(-128, 128)) for k, s in (("y", [3, "a", 5]), ("z", [3, 5, "a"])))
    p.output(batch=m.mm(y, z), clipped=m.maximum(m.mm(y, z), 0) // 3)


for _dtype in ("i8", "i32", "i64"):
    case(
        f"products of {_dtype}",
        partial(integer_products, dtype=_dtype),
        every(a=[0, 1, 5]),
        slow=_dtype == "i64",
    )


def batched(p: Program) -> None:
    m = p.m
    x, y = p.input("x", [4, "a", 8]), p.input("y", [4, 8, "b"])
    z, row, u = p.input("z", [1, "b", 8]), p.input("row", ["b"]), p.input("u", ["a", "b", 8])
    w = p.param("w", [8, 6])
    p.output(batch=m.mm(x, y), spread=m.mm(x, z, transpose_rhs=True), biased=m.mm(x, y) + row)
    p.output(rows=m.mm(u, w), linear=m.linear(u, w, activation="relu"), flat=m.mm(m.reshape(u, [-1, 8]), w))


def dynamic_weights(p: Program) -> None:
    x, w, packed = p.input("x", ["a", "k"]), p.param("w", ["k", "n"]), p.param("packed", [9, 32], packed="q8_0")
    p.output(product=p.m.mm(x, w), packed=p.m.dequant_matmul(p.input("y", ["a", 32]), packed))


def mlps(p: Program, dtype: str = "f32") -> None:
    m = p.m
    x, other = p.input("x", ["a", "b", 32], dtype), p.input("other", ["a", "b", 24], dtype)
    gate, up, down = (p.param(n, s, dtype) for n, s in (("gate", [32, 24]), ("up", [32, 24]), ("down", [24, 32])))
    down_t = p.param("down_t", [32, 24], dtype)
    first, second = m.shared_linear_pair(x, gate, up)
    p.output(swiglu=m.swiglu(x, gate_w=gate, up_w=up, down_w=down), first=first, second=second * other)
    p.output(sum=x + m.mm(other, down_t, transpose_rhs=True))


def packed(p: Program, scheme: str, dtype: str = "f32") -> None:
    m = p.m
    k = 256 if scheme.endswith("_k") else 64
    for n in (1, 16, 33):
        x, r = p.input(f"x{n}", ["a", k], dtype), p.input(f"r{n}", ["a", n], dtype)
        w, b = p.param(f"w{n}", [n, k], packed=scheme), p.param(f"b{n}", [n], dtype)
        p.output(
            **{
                f"plain{n}": m.dequant_matmul(x, w),
                f"linear{n}": m.linear(x, w, b, activation="silu"),
                f"residual{n}": m.mm(x, w) + r,
            }
        )


def packed_mlp(p: Program, scheme: str) -> None:
    x = p.input("x", ["a", 64])
    gate, up, down = (p.param(name, [64, 64], packed=scheme) for name in ("gate", "up", "down"))
    p.output(y=p.m.swiglu(x, gate_w=gate, up_w=up, down_w=down), other=p.m.linear(x, down))


def blocks(p: Program) -> None:
    m = p.m
    x, y, w = (
        p.input("x", ["a", 64], make=scaled(4)),
        p.input("y", ["a", 64], "bf16"),
        p.param("w", [19, 64], packed="q4_1"),
    )
    q, scale, total = m.block_quantize(x)
    p.output(q=q, scale=scale, total=total, dot=m.block_dot(q, scale, total, w))
    for name, (q, scale, total) in {"wide": m.block_quantize(x, block=64), "half": m.block_quantize(y)}.items():
        p.output(**{f"{name}_q": q, f"{name}_scale": scale, f"{name}_total": total})


for _dtype in FLOATS:
    case(
        f"products {_dtype}",
        partial(products, dtype=_dtype, inner=33),
        every(a=[0, 1, 2, 5, 17]),
        {"gemm_panels", "gemm_dense", "rows"} if _dtype == "f32" else None,
        tolerance={"f16": 8e-3, "bf16": 6e-2}.get(_dtype),
        slow=_dtype in ("f16", "f64"),
    )
case("products of one term", partial(products, dtype="f32", inner=1), every(a=[0, 1, 5]), slow=True)
case("products of a long row", partial(products, dtype="f32", inner=520), every(a=[1, 5]), slow=True)
case("batched products", batched, every(a=[0, 1, 5, 17], b=[0, 1, 5, 17]))
case("products of dynamic weights", dynamic_weights, every(a=[0, 1, 5], k=[7], n=[4]))
for _policy in ("direct", "fusable"):
    case(f"mlps {_policy}", mlps, every(a=[0, 1, 2], b=[1, 5]), {"gemm_panels", "rows"}, policy=_policy)
case("mlps bf16", partial(mlps, dtype="bf16"), every(a=[0, 2], b=[1, 5]), tolerance=6e-2)
for _scheme in (*INTEGER_SCHEMES, "f32", "f16", "bf16"):
    case(
        f"packed {_scheme}",
        partial(packed, scheme=_scheme),
        every(a=[0, 1, 2, 5, 17]),
        {"gemm_panels", "rows"},
        slow=_scheme not in ("q4_1", "q8_0", "bf16"),  # test_cpu_gemm.py has every format
    )
for _scheme in ("q4_k", "q5_k", "q6_k", "q8_k", "q2_k", "q3_k"):
    case(
        f"packed {_scheme}",
        partial(packed, scheme=_scheme),
        every(a=[0, 1, 3]),
        {"gemm_panels", "rows"} if _scheme != "q8_k" else None,
        slow=_scheme != "q6_k",
    )
case("packed q4_1 bf16", partial(packed, scheme="q4_1", dtype="bf16"), every(a=[0, 1, 3]), tolerance=6e-2)
for _scheme in (*INTEGER_SCHEMES, "q4_k", "q5_k", "q6_k", "q2_k", "q3_k"):
    case(
        f"int8 {_scheme}",
        partial(packed, scheme=_scheme),
        every(a=[0, 1, 2, 5, 17]),
        {"gemm_int8", "block_quantize", "rows"},
        activations="int8",
        slow=_scheme not in ("q4_0", "q5_1", "q6_k"),
    )
case("mlp q4_1", partial(packed_mlp, scheme="q4_1"), every(a=[0, 1, 5]), {"gemm_panels"})
case(
    "mlp q8_0 int8",
    partial(packed_mlp, scheme="q8_0"),
    every(a=[0, 1, 5]),
    {"gemm_int8", "block_quantize"},
    activations="int8",
    tolerance=2e-2,  # what is rounded to 8 bits may fall to the other side
)
case("blocks", blocks, every(a=[0, 1, 2, 5]), {"gemm_int8", "block_quantize", "generic"}, stage="mir")


# -- attention -------------------------------------------------------------------------------------------------------

HEADS: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
LENGTHS: list[Sizes] = [
    {"b": b, "s": s, "t": t}
    for b, s, t in [(1, 1, 1), (2, 3, 5), (2, 5, 2), (1, 1, 9), (0, 3, 3), (2, 0, 4), (2, 4, 0), (1, 17, 17)]
]


def attentions(p: Program, dtype: str, kinds: tuple[str, ...]) -> None:
    m = p.m
    q, k, v = (p.input(n, ["b", length, w], dtype) for n, length, w in (("q", "s", 32), ("k", "t", 16), ("v", "t", 16)))
    keys = p.input("keys", ["b", "t"], "i1", integers(0, 2))
    shown = p.input("shown", ["b", 4, "s", "t"], dtype, integers(0, 2))
    bias = p.input("bias", ["b", 1, "s", "t"], dtype)
    sinks = p.param("sinks", [4])
    made = {
        "none": lambda: m.attention(q, k, v, **HEADS),
        "causal": lambda: m.attention(q, k, v, mask_kind="causal", **HEADS),
        "window": lambda: m.attention(q, k, v, mask_kind="sliding_window", window=3, **HEADS),
        "keys": lambda: m.attention(q, k, v, keys, mask_kind="custom", **HEADS),
        "custom": lambda: m.attention(q, k, v, shown, mask_kind="custom", **HEADS),
        "bias": lambda: m.attention(q, k, v, bias, mask_kind="bias", scale=0.3, softcap=2.0, **HEADS),
        "sinks": lambda: m.attention(q, k, v, mask_kind="sliding_window", window=3, sinks=sinks, **HEADS),
    }
    p.output(**{kind: made[kind]() for kind in kinds})


def layouts(p: Program) -> None:
    m = p.m
    q, k, v = (p.input(n, ["b", h, s, 8]) for n, h, s in (("q", 4, "s"), ("k", 2, "t"), ("v", 2, "t")))
    r, i, w = (p.input(n, ["b", s, h, 8]) for n, s, h in (("r", "s", 4), ("i", "t", 2), ("w", "t", 2)))
    flat = [p.input(n, [s, w]) for n, s, w in (("x", "s", 32), ("y", "t", 16), ("z", "t", 16))]
    causal = {"mask_kind": "causal", **HEADS}
    p.output(bhsd=m.attention(q, k, v, layout="bhsd", **causal), bshd=m.attention(r, i, w, layout="bshd", **causal))
    p.output(rank2=m.attention(*flat, **causal), same=m.attention(q, k, k, layout="bhsd", **HEADS))


def cached(p: Program, dtype: str, stored: str | None = None) -> None:
    m, size = p.m, 32
    q, k, v = (p.input(name, ["b", "s", width], dtype) for name, width in (("q", 32), ("k", 16), ("v", 16)))
    caches: dict[str, Any] = {name: p.input(name, ["b", size, 16], stored or dtype) for name in ("k_cache", "v_cache")}
    pos = p.input("pos", ["b"], "i32", integers(0, 15))
    cos, sin = p.param("cos", [size, 4], make=normal), p.param("sin", [size, 4], make=normal)
    q = m.rope(q, cos, sin, head_dim=8, style="half", pos=pos)
    k = m.rope(k, cos, sin, head_dim=8, style="interleaved", pos=pos, n_rot=4)
    result, keys, values = m.attention(q, k, v, **caches, pos=pos, mask_kind="causal", **HEADS)
    p.output(result=result, keys=keys, values=values, plain=m.rope(v, cos, sin, head_dim=8, style="half"))


def updates(p: Program) -> None:
    m = p.m
    cache, new, pos = (
        p.input("cache", ["b", 9, "e"]),
        p.input("new", ["b", "s", "e"]),
        p.input("pos", ["b"], "i32", integers(0, 4)),
    )
    updated = m.cache_update(cache, new, pos)
    p.output(updated=updated, total=m.sum(updated, 1), old=cache + 1.0)


case(
    "attention f32",
    partial(attentions, dtype="f32", kinds=("none", "causal", "window", "bias")),
    LENGTHS,
    {"attention"},
)
case("attention with sinks", partial(attentions, dtype="f32", kinds=("sinks",)), LENGTHS, {"attention"})
case("attention f32, masks", partial(attentions, dtype="f32", kinds=("keys", "custom")), LENGTHS)
for _dtype in FLOATS[1:]:
    case(
        f"attention {_dtype}",
        partial(attentions, dtype=_dtype, kinds=("causal", "custom", "bias")),
        LENGTHS,
        slow=_dtype != "bf16",
    )
case("attention layouts", layouts, LENGTHS, stage="mir")
for _dtype in ("f32", "bf16", "f64"):
    case(
        f"cached attention {_dtype}",
        partial(cached, dtype=_dtype),
        every(b=[0, 1, 2], s=[0, 1, 5, 17]),
        {"attention", "rows"} if _dtype == "f32" else None,
        tolerance=3e-2 if _dtype == "bf16" else None,
        slow=_dtype == "f64",
    )
for _stored in ("f16", "bf16"):
    case(
        f"cached attention f32, caches {_stored}",
        partial(cached, dtype="f32", stored=_stored),
        every(b=[0, 1, 2], s=[0, 1, 5, 17]),
        {"attention", "rows"},
        tolerance=2e-2,  # a stored number may be rounded to the other side
        slow=_stored == "bf16",
    )
case("cache updates", updates, every(b=[0, 1, 2], s=[0, 1, 5], e=[1, 9]), GENERIC, stage="mir")


# -- convolutions and recurrences ------------------------------------------------------------------------------------


def convolutions(p: Program) -> None:
    m = p.m
    x, deep = p.input("x", ["b", 4, "h", 7]), p.input("deep", ["b", "s", 6])
    plain, grouped = p.param("plain", [6, 4, 3, 3]), p.param("grouped", [6, 2, 1, 3])
    taps, before = p.param("taps", [6, 1, 1, 3]), p.input("before", ["b", 2, 6])
    p.output(plain=m.conv2d(x, plain, padding=1), grouped=m.conv2d(x, grouped, groups=2, dilation=(1, 2)))
    p.output(strided=m.conv2d(x, plain, padding=1, stride=(1, 2)), causal=m.depthwise_conv1d_causal(deep, taps, before))


def recurrence(p: Program, dtype: str) -> None:
    unit = scaled(0.5)
    q, k, v = (p.input(name, ["b", "s", 2, 4], dtype, unit) for name in "qkv")
    g, beta = (p.input(name, ["b", "s", 2], dtype, make) for name, make in (("g", scaled(0.2, -1)), ("beta", positive)))
    state = p.input("state", ["b", 2, 4, 4], "f64" if dtype == "f64" else "f32", unit)
    fresh, last = p.m.gated_delta_net(q, k, v, g, beta)
    carried, end = p.m.gated_delta_net(q, k, v, g, beta, state)
    p.output(fresh=fresh, last=last, carried=carried, end=end)


case("convolutions", convolutions, every(b=[0, 1, 2], h=[1, 5], s=[0, 1, 4]))
for _dtype in ("f32", "bf16"):
    case(f"recurrence {_dtype}", partial(recurrence, dtype=_dtype), every(b=[0, 2], s=[0, 1, 5]), slow=_dtype != "f32")


# -- what the entry function does besides calls ----------------------------------------------------------------------


def entry(p: Program) -> None:
    m = p.m
    x, w, scalar = p.input("x", ["a", 6]), p.param("w", [4, 6]), p.input("scalar", [])
    table, number = m.constant(np.arange(6, dtype=np.float32)), m.constant(np.float32(2.5))
    y = x + table
    split = m.reshape(y, ["a", 2, 3])
    p.output(input=x, again=x, param=w, constant=table, used=y, twice=y, split=split, flat=m.reshape(split, [-1]))
    p.output(input_flat=m.reshape(x, [-1]), scalar=scalar, squared=scalar * scalar, param_flat=m.reshape(w, [24]))
    p.output(number=number, further=split * 2.0, integers=m.constant([1, 2, 3], "i64"), bools=m.constant([True, False]))


def chain(p: Program) -> None:
    """Results that are returned and read; more operations in a row than one kernel takes."""
    x, w = p.input("x", ["a", 17]), p.param("w", [17, 17])
    y = x
    for number in range(20):
        y = p.m.tanh(y + x) if number % 2 else y * 0.5
        if number % 6 == 5:
            p.output(**{f"step{number}": y})
    product = p.m.mm(y, w)
    p.output(product=product, silu=p.m.silu(product), more=p.m.relu(product + x), reread=p.m.mm(product, w))


def prepared(p: Program) -> None:
    """Work on parameters alone, of which some runs when they are set."""
    m = p.m
    w, v, g, x = p.param("w", [8, 6]), p.param("v", [6, 8]), p.param("g", [6], make=positive), p.input("x", ["a", 8])
    p.output(sum=m.mm(x, w + m.transpose(v)), scaled=m.mm(x, w * g), flat=m.reshape(w, [-1]), exp=m.exp(g))
    p.output(
        cast=m.cast(m.cast(g, "bf16"), "f32"),
        grown=m.expand(g, [3, 6]),
        least=m.minimum(w, g),
        cut=m.narrow(w, 0, 2, 3),
    )
    p.output(normed=m.rms_norm(x, m.concat([g, m.narrow(g, 0, 1, 2)], 0)), ratio=w / g, left=-w, high=m.maximum(w, g))


def only_params(p: Program) -> None:
    p.output(y=p.m.exp(p.param("x", [3])))


def only_inputs(p: Program) -> None:
    p.output(y=p.m.exp(p.input("x", ["a"])))


def only_constants(p: Program) -> None:
    p.output(y=p.m.constant([1.0, 2.0]))


case("entry", entry, every(a=[0, 1, 3]))
case("chain", chain, every(a=[0, 1, 5]), {"rows", "gemm_panels"}, tolerance=1e-4)
case("prepared", prepared, every(a=[0, 1, 5]))
for _build, _sizes in (
    (only_params, [{}]),
    (only_inputs, every(a=[0, 1, 3])),
    (only_constants, [{}]),
):
    case(_build.__name__, _build, _sizes)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in CASES])
@pytest.mark.quick(12)
def test_every_way_to_run(name: str) -> None:
    chosen = CASES[name]
    check(chosen.program(), chosen.sizes, templates=chosen.templates, **chosen.options)


#: Families of primitives with tests of their own, which run what is compiled, and their files.
FAMILIES = {
    "test_complex.py": {"mir.complex_norm_sq_backward"},
    "test_fft.py": {"mir.fft"},
    "test_grouped.py": {
        "mir.grouped_matmul",
        "mir.dequant_grouped_matmul",
        "mir.dequant_moe_weights",
        "mir.grouped_block_dot",
    },
    "test_image_operations.py": {
        "mir.conv2d_backward_input",
        "mir.conv2d_backward_weight",
        "mir.conv_transpose2d",
        "mir.group_norm",
        "mir.group_norm_backward_gamma",
        "mir.group_norm_backward_input",
        "mir.max_pool2d_backward",
        "mir.pool",
        "mir.resize_nearest_2x",
    },
    "test_linear.py": {"mir.batched_dense_solve", "mir.dense_solve", "mir.dot_general"},
    "test_loss.py": {"mir.softmax_cross_entropy_backward", "mir.softmax_cross_entropy_with_logits"},
    "test_quantize.py": {
        "mir.dequantize",
        "mir.fake_quantize",
        "mir.fake_quantize_backward",
        "mir.fake_quantize_lsq",
        "mir.fake_quantize_lsq_backward_scale",
        "mir.fake_quantize_lsq_backward_x",
        "mir.q_conv2d",
        "mir.q_matmul",
        "mir.quantize",
    },
    "test_scatter_add.py": {"mir.scatter_add"},
    "test_selective_scan.py": {"mir.selective_scan"},
    "test_splats.py": {
        "mir.gaussian_splat_prepare",
        "mir.gaussian_splat_rasterize",
        "mir.gaussian_splat_render_backward",
    },
}

#: Blocks and primitives whose tests stand in other files.
ELSEWHERE = {
    "hir.dequant_matmul_scaled",
    "hir.llama_decoder_block",
    "hir.qwen35_mtp_head",
    "mir.condition",
    "mir.entry_view",
    "mir.custom",
    "mir.custom_fn",
    "mir.dequant_matmul_scaled",
    "mir.if",
    "mir.repack",
    "mir.sample",
    "mir.scaled_matmul",
    "mir.scan",
    "mir.while",
    "mir.yield",
}


def test_every_operation_has_a_case() -> None:
    with_kernels = {pattern.root for pattern in TO_LINALG}
    found = (
        ELSEWHERE | set().union(*FAMILIES.values()) | (COMPOSITIONS.keys() - with_kernels)
    )  # test_compositions.py, and the files of their families
    for chosen in CASES.values():
        module = chosen.program().finish()
        found |= {f"{op.op}" for op in module} | {f"{op.op}" for op in module.lower()}
    assert not operation_classes().keys() - found


@pytest.mark.parametrize("name", FAMILIES)
def test_families_compile_what_they_say(name: str) -> None:
    """Files of families name each of their operations or its builder, and run what is compiled."""
    text = (Path(__file__).parents[1] / "mir" / name).read_text()
    for operation in FAMILIES[name]:
        word = operation.removeprefix("mir.")
        assert word in text or word.replace("max_pool", "maxpool") in text, word
    assert re.search(r"rlx\.compile|check_program\(|check\(", text)
