# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generic kernels in work units: the same bits for any number of threads, and temporaries of a few positions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from compile_harness import Program, compare, compile_fresh

import rlx_mlir as rlx
from rlx_mlir import Executable, GraphModule, Value, interpret
from rlx_mlir.compiler import Compilation, CompileOptions

Build = Callable[[Program], Value]


def softmax(p: Program) -> Value:
    return p.m.softmax(p.input("x", ["b", "s", 40]))


def softmax_of_columns(p: Program) -> Value:
    return p.m.softmax(p.input("x", ["b", 40, 160]), axis=1)


def softmax_of_all(p: Program) -> Value:
    """The sum needs what is computed at every position, so each call computes all of that."""
    return p.m.softmax(p.input("x", [300]))


def layer_norm(p: Program) -> Value:
    vectors = [p.param(name, [40], "bf16") for name in ("gamma", "beta")]
    return p.m.layer_norm(p.input("x", ["b", "s", 40], "bf16"), *vectors)


def product(p: Program) -> Value:
    return p.m.gelu(p.m.matmul(p.input("x", ["b", "s", 70], "bf16"), p.param("w", [70, 200], "bf16")))


def small_product(p: Program) -> Value:
    return p.m.matmul(p.input("x", ["b", "s", 70]), p.param("w", [70, 9]))


def packed(p: Program) -> Value:
    return p.m.dequant_matmul(p.input("x", ["b", "s", 512]), p.param("w", [200, 512], packed="q4_1"))


def integers(p: Program) -> Value:
    return p.m.block_dot(*p.m.block_quantize(p.input("x", ["b", "s", 512])), p.param("w", [200, 512], packed="q6_k"))


def transposed(p: Program) -> Value:
    return p.m.exp(p.m.transpose(p.input("x", ["b", "s", 24]), [2, 0, 1])) * 0.5


def joined(p: Program) -> Value:
    x = p.input("x", ["b", "s", 24])
    return p.m.concat([x, p.m.neg(x)], axis=2)


def activations(p: Program) -> Value:
    return p.m.matmul(p.input("x", ["b", "s", 24]), p.input("y", ["b", 24, 150]))


def sum_of_all(p: Program) -> Value:
    return p.m.reduce(p.input("x", ["b", "s", 24]), kind="sum", axes=[0, 1, 2])


def gathered(p: Program) -> Value:
    """Rows anywhere in the table: what is read needs no position, what is written has one."""
    return p.m.gather(p.param("table", [50, 24]), p.m.cast(p.input("x", ["b", "s"], make=_rows), "i32"), axis=0)


def scattered(p: Program) -> Value:
    """Sums of entries, whose elements are independent of each other: an index is read for all of them."""
    x = p.input("x", ["s", 200])
    return p.m.scatter_add(x, p.m.cast(p.input("i", ["s"], make=_rows), "i32"), x)


def _rows(rng, shape):  # type: ignore[no-untyped-def]
    return rng.integers(0, 50, shape)


def larger_images(p: Program) -> Value:
    """What a pixel reads is a choice: there may be no pixel whose kernel reaches it."""
    return p.m.conv_transpose2d(p.input("x", [1, 6, 7, "s"]), p.param("w", [6, 5, 3, 4]), stride=2, padding=1, groups=2)


#: Kernels with the number of units that they have for b = 2 and s = 37; None where there is one.
BUILDS: dict[Build, str | None] = {
    softmax: "dim",
    softmax_of_columns: "160",
    softmax_of_all: "300",
    layer_norm: "dim",
    product: "200",
    small_product: "9",
    packed: "200",
    integers: "200",
    transposed: "dim",
    joined: "dim",
    activations: "150",
    gathered: "dim",
    larger_images: "10",
    scattered: "200",
    sum_of_all: None,
}


#: Programs of more dimensions, with odd sizes and vectors along more than one of them.
def pixels(p: Program) -> Value:
    vectors = [p.param(name, [64], "f16") for name in ("gamma", "beta")]
    return p.m.layer_norm(p.input("x", [8, 64, 32, 7], "f16"), *vectors, axis=1)


def pixels_of_any_size(p: Program) -> Value:
    vectors = [p.param(name, [24], "bf16") for name in ("gamma", "beta")]
    return p.m.layer_norm(p.input("x", ["b", 24, "s", 7], "bf16"), *vectors, axis=1)


def root_mean_squares(p: Program) -> Value:
    return p.m.rms_norm(p.input("x", ["b", 33, "s", 5], "f16"), p.param("gamma", [33], "f16"), axis=1)


def sums(p: Program) -> Value:
    return p.m.reduce(p.input("x", ["b", 35, "s", 7]), kind="sum", axes=[1])


def sums_of_rows(p: Program) -> Value:
    return p.m.reduce(p.input("x", [5, 21, 77], "f64"), kind="sum", axes=[2])


def means_of_images(p: Program) -> Value:
    return p.m.reduce(p.input("x", ["b", "s", 9, 13], "f16"), kind="mean", axes=[2, 3])


def largest(p: Program) -> Value:
    return p.m.reduce(p.input("x", [3, 67, 33, 3], "f16"), kind="max", axes=[1])


def products_of_rows(p: Program) -> Value:
    return p.m.reduce(p.input("x", ["b", "s", 45]), kind="prod", axes=[2])


def running_sums(p: Program) -> Value:
    return p.m.cumsum(p.input("x", ["b", 19, "s", 5], "f16"), axis=1)


def images(p: Program) -> Value:
    x, w = p.input("x", ["b", 6, 17, "s"]), p.param("w", [10, 3, 3, 3])
    return p.m.conv2d(x, w, padding=1, groups=2)


def windows(p: Program) -> Value:
    return p.m.pool(p.input("x", ["b", 3, 17, "s"], "f16"), "mean", (3, 2), stride=2, padding=1)


def groups(p: Program) -> Value:
    return p.m.group_norm(p.input("x", ["b", 6, 5, "s"]), p.param("gamma", [6]), num_groups=2)


def turned_product(p: Program) -> Value:
    return p.m.matmul(p.input("x", ["b", "s", 67], "f64"), p.param("w", [33, 67], "f64"), transpose_rhs=True)


def heads(p: Program) -> Value:
    q, k, v = (p.input(name, ["b", "s", 3 * 20], "f16") for name in "qkv")
    return p.m.attention(q, k, v, num_heads=3, head_dim=20, mask_kind="causal")


def chain(p: Program) -> Value:
    x, y = p.input("x", ["b", "s", 9, 7], "bf16"), p.input("y", [9, 1], "bf16")
    return p.m.gelu(x * y + 0.3) / (p.m.exp(x) + p.m.silu(y))


ODD: tuple[Build, ...] = (
    pixels,
    pixels_of_any_size,
    root_mean_squares,
    sums,
    sums_of_rows,
    means_of_images,
    largest,
    products_of_rows,
    running_sums,
    images,
    windows,
    groups,
    turned_product,
    heads,
    chain,
)


def _name(build: Build) -> str:
    return build.__name__


@pytest.mark.parametrize("build", [*BUILDS, *ODD], ids=_name)
@pytest.mark.quick(3)
def test_bits_do_not_depend_on_threads(build: Build) -> None:
    program = Program("mir")
    program.output(y=build(program))
    module = program.finish()
    sizes = {"b": 2, "s": 37}
    inputs, params = program.values(sizes)
    expected = interpret(module, {**inputs, **params})
    artifact = compile_fresh(module, disable_templates=("all",)).artifact
    # Calls of little work stay on one thread: here they have a lot of it.
    artifact = replace(artifact, calls=tuple((*call[:3], [(10**12, [])]) for call in artifact.calls))
    results = []
    for threads in (1, 2, 3, 4, 5, 8):
        executable = Executable(artifact, threads=threads)
        executable.set_params(params)
        results.append(executable.run(inputs))
        assert not compare(expected, results[-1], f"{threads} threads")
    assert len({result["y"].tobytes() for result in results}) == 1
    empty = program.values({"b": 2, "s": 0})[0]
    if build in BUILDS and build is not sum_of_all and "s" in str(program.arguments["x"].shape):
        assert executable.run(empty)["y"].size == 0


def loops(build: Build) -> str:
    """The module on the way to LLVM, its kernels as loops."""
    program = Program("mir")
    program.output(y=build(program))
    compilation = Compilation(program.finish(), CompileOptions(disable_templates=("all",)))
    compilation.run(until="cpu")
    return str(compilation.module)


@pytest.mark.parametrize("build", [*BUILDS, *ODD], ids=_name)
@pytest.mark.quick(10)
def test_llvm_may_not_reorder(build: Build) -> None:
    """Vectors and what is left over round alike where each operation stands for itself."""
    text = loops(build)
    assert "arith.addf" in text or "arith." in text
    assert "fastmath" not in text


@pytest.mark.parametrize("build", BUILDS, ids=_name)
@pytest.mark.quick(8)
def test_there_are_units(build: Build) -> None:
    for function in re.findall(r"\.units\((.*?)\n  }", loops(build), re.DOTALL):
        expected = BUILDS[build]
        count = [line for line in function.splitlines() if "arith.divui" in line]
        assert bool(count) == (expected is not None), function
        if expected == "dim":
            assert "memref.dim" in function
        elif expected is not None:
            assert f"arith.constant {expected} : index" in function or "memref.dim" in function


@pytest.mark.parametrize("build", [packed, integers])
def test_no_copy_of_a_whole_weight(build: Build) -> None:
    """Decoded rows stay in scratch for a block of them: 16 instead of 200."""
    shapes = re.findall(r"memref\.view .* to memref<([0-9x?]+)x[fi]\d+>", loops(build))
    assert "16x512" in shapes
    assert not [shape for shape in shapes if shape.startswith("200")]


def test_parts_of_memory_that_a_loop_computed() -> None:
    """A kernel reads two parts of what it computed, of which the second begins where no dimension of the loop does."""
    m = GraphModule.mir("parts")
    x, g = m.input("x", [5]), m.input("g", [10])
    h = m.cos(g)
    m.set_outputs({"y": (m.narrow(h, 0, 0, 5) + m.narrow(h, 0, 5, 5)) * x})
    given = {"x": np.arange(5, dtype=np.float32), "g": np.arange(10, dtype=np.float32)}
    found = rlx.compile(m, cache=False).run(given)["y"]
    np.testing.assert_allclose(found, np.cos(given["g"]).reshape(2, 5).sum(0) * given["x"], atol=1e-5)
