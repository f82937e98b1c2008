# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What compiling costs as modules grow: code not at all with layers, time linearly with whatever grows."""

from __future__ import annotations

import time

import numpy as np
import pytest

from rlx_mlir import Executable, GraphModule, compile, emit
from rlx_mlir.fuzz import scaling
from rlx_mlir.lowering.outline import MAX_JOINED, MAX_JOINED_DYNAMIC


def compiled(module: GraphModule) -> tuple[Executable, float]:
    """The module compiled anew, and the processor time that it took."""
    begin = time.process_time()
    executable = compile(module, cache=False)
    return executable, time.process_time() - begin


def layers(count: int) -> GraphModule:
    m = GraphModule.hir("layers")
    h = m.input("x", ["rows", 32])
    for i in range(count):
        weights = {
            name: m.param(f"{i}.{name}", shape)
            for name, shape in (("gate_w", [32, 64]), ("up_w", [32, 64]), ("down_w", [64, 32]))
        }
        h = h + m.swiglu(m.rms_norm(h, m.param(f"{i}.gamma", [32])), **weights)
    m.set_outputs(h)
    return m


def test_layers_share_their_code() -> None:
    few, _ = compiled(layers(2))
    many, spent = compiled(layers(24))
    assert many.artifact.kernels == few.artifact.kernels
    assert len(many.artifact.code) == len(few.artifact.code)
    assert len(many.artifact.calls) == 12 * len(few.artifact.calls)
    assert spent < 30


@pytest.mark.parametrize("op", ["add", "where"])
@pytest.mark.quick(1)
def test_time_is_linear_in_what_computes_an_index(op: str) -> None:
    """The definitions of an index are not looked through again for each of its uses."""

    def chain(length: int) -> GraphModule:
        m = GraphModule.mir("chain")
        table, index = m.input("table", [64, 8]), m.input("index", [4], "i32")
        for i in range(length):
            # Each step reads the one before twice: without sharing, there are 2^length paths.
            index = index + index if op == "add" else m.where(index < 7, index, index - np.int32(i))
        m.set_outputs(m.gather(table, index))
        return m

    compiled(chain(2))  # what the first compilation loads isn't counted
    (_, short), (executable, long) = compiled(chain(12)), compiled(chain(96))
    assert long < 8 * 3 * max(short, 0.1)
    index, table = np.array([0, 0, 0, 0], np.int32), np.arange(512, dtype=np.float32).reshape(64, 8)
    assert np.array_equal(executable(table, index), table[[0, 0, 0, 0]])


@pytest.mark.parametrize("size", [3, "n"], ids=str)
def test_a_kernel_of_a_concatenation_joins_few(size: int | str) -> None:
    """Many operands are joined in groups, which keep their order."""
    most = MAX_JOINED if size == 3 else MAX_JOINED_DYNAMIC
    count = 2 * most + 1
    m = GraphModule.mir("joined")
    m.set_outputs({"y": m.concat([m.input(f"x{number}", [size, 2]) for number in range(count)], 0)})
    joined = [line.count("%") - 1 for line in emit(m, "kernels").splitlines() if " mir.concat " in line]
    assert joined
    assert max(joined) == most
    inputs = {f"x{number}": np.full((3, 2), number, np.float32) for number in range(count)}
    found = compile(m, cache=False, **({} if size == 3 else {"maxima": {"n": 3}})).run(inputs)
    assert np.array_equal(found["y"], np.concatenate(list(inputs.values())))


@pytest.mark.parametrize(
    ("family", "size", "doublings"),
    [("concat_operands", 32, 3), ("separate_chain", 16, 2), ("layers", 4, 2), ("inputs_and_outputs", 16, 2)],
)
@pytest.mark.quick(1)
def test_time_is_linear_in_what_grows(family: str, size: int, doublings: int) -> None:
    """What `rlx fuzz scaling` measures of all families, at small sizes: processor time, the best of two."""
    scaling.prepare()

    def seconds(count: int) -> float:
        return min(scaling.measured(family, count) for _ in range(2))

    few, many = seconds(size), seconds(size << doublings)
    assert many < scaling.RATIO**doublings * max(few, 0.1), f"{size}: {few:.2f} s, {size << doublings}: {many:.2f} s"


def test_time_is_linear_in_arguments() -> None:
    """Building a module: each argument that is added is known without reading those that are there."""

    def seconds(count: int) -> float:
        begin = time.process_time()
        m = GraphModule.mir("arguments")
        m.set_outputs(m.neg([m.input(f"x{i}", [4, "n"]) for i in range(count)][-1]))
        return time.process_time() - begin

    few, many = (min(seconds(count) for _ in range(3)) for count in (50, 400))
    assert many < scaling.RATIO**3 * max(few, 0.02), f"50 arguments: {few:.2f} s, 400: {many:.2f} s"
