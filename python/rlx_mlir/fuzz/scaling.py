# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fuzzer of compile times: modules of a random family, at one size and at twice that, compiled in a child process.

Twice as much of anything (operands, layers, inputs, symbols, outputs) may cost two and a half times the processor time,
beyond what any compilation costs. Tasks: `{seed, index, file}` draws a family and sizes; `{file}` measures what the
file says, a line of JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rlx_mlir import ir
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.errors import InputError, RlxError
from rlx_mlir.files import Json
from rlx_mlir.fuzz.pool import Outcome, Task
from rlx_mlir.hir import GraphModule, Value

#: What twice the size may cost, and seconds below which a difference isn't looked at: they are noise.
RATIO, FLOOR = 2.5, 0.4
#: Seconds of the larger compilation up to which sizes are doubled: what isn't linear shows in large ones.
_ENOUGH = 10.0
_MARK = "// fuzz scaling: "

#: By name, a module of a size.
FAMILIES: dict[str, Callable[[int, np.random.Generator], GraphModule]] = {}
#: The first size of each family that isn't cheap.
_FIRST = {"layers": 4, "attention_layers": 2, "different_layers": 4}
Family = Callable[[int, np.random.Generator], GraphModule]


def family(function: Family) -> Family:
    """Registers a function that makes a module of a size."""
    FAMILIES[function.__name__] = function
    return function


@family
def concat_operands(size: int, rng: np.random.Generator) -> GraphModule:
    m = GraphModule.mir("concat")
    axis = int(rng.integers(2))
    shape: list[int | str] = [3, 4]
    shape[1 - axis] = "n" if rng.random() < 0.5 else 3
    m.set_outputs(m.concat([m.input(f"x{i}", shape) for i in range(size)], axis))
    return m


@family
def concat_of_slices(size: int, rng: np.random.Generator) -> GraphModule:
    m = GraphModule.mir("slices")
    x = m.input("x", ["n", size * 2])
    order = rng.permutation(size)
    m.set_outputs(m.concat([m.narrow(x, 1, 2 * int(i), 2) for i in order], 1))
    return m


@family
def chain(size: int, rng: np.random.Generator) -> GraphModule:
    m = GraphModule.mir("chain")
    x = m.input("x", ["n", 8])
    names = ("tanh", "exp", "neg", "silu", "sigmoid")
    first = x
    for _ in range(size):
        name = str(rng.choice(names))
        x = getattr(m, name)(x) if rng.random() < 0.7 else m.add(x, first)
    m.set_outputs(x)
    return m


@family
def separate_chain(size: int, rng: np.random.Generator) -> GraphModule:
    m = GraphModule.mir("separate")
    x = m.input("x", ["n", 8])
    for i in range(size):
        x = m.softmax(x, 1) if i % 2 else m.cumsum(x, int(rng.integers(2)))
    m.set_outputs(x)
    return m


@family
def inputs_and_outputs(size: int, rng: np.random.Generator) -> GraphModule:
    m = GraphModule.mir("inputs")
    m.set_outputs({f"y{i}": m.tanh(m.input(f"x{i}", [3, "n"])) for i in range(size)})
    return m


@family
def sum_of_inputs(size: int, rng: np.random.Generator) -> GraphModule:
    m = GraphModule.mir("sum")
    values = [m.input(f"x{i}", ["n", 4]) for i in range(size)]
    while len(values) > 1:  # a tree of random form
        first = values.pop(int(rng.integers(len(values))))
        second = values.pop(int(rng.integers(len(values))))
        values.append(m.add(first, second))
    m.set_outputs(values[0])
    return m


@family
def symbols(size: int, rng: np.random.Generator) -> GraphModule:
    m = GraphModule.mir("symbols")
    parts = [m.input(f"x{i}", [f"n{i}", 4]) for i in range(size)]
    m.set_outputs({"all": m.tanh(m.concat(parts, 0)) if rng.random() < 0.5 else m.concat(parts, 0)})
    return m


@family
def layers(size: int, rng: np.random.Generator) -> GraphModule:
    m = GraphModule.hir("layers")
    h = m.input("x", ["rows", 8])
    for i in range(size):
        gate_w, up_w = m.param(f"{i}.gate_w", [8, 16]), m.param(f"{i}.up_w", [8, 16])
        normed = m.rms_norm(h, m.param(f"{i}.gamma", [8]))
        h = h + m.swiglu(normed, gate_w=gate_w, up_w=up_w, down_w=m.param(f"{i}.down_w", [16, 8]))
    m.set_outputs(h)
    return m


@family
def attention_layers(size: int, rng: np.random.Generator) -> GraphModule:
    m = GraphModule.hir("attention")
    h = m.input("x", [1, "rows", 8])
    for i in range(size):
        q, k, v = (m.linear(h, m.param(f"{i}.{name}", [8, 8])) for name in "qkv")
        h = h + m.attention(q, k, v, num_heads=2, head_dim=4, mask_kind="causal")
    m.set_outputs(h)
    return m


@family
def different_layers(size: int, rng: np.random.Generator) -> GraphModule:
    """Layers of which no two are alike, so that none share code."""
    m = GraphModule.hir("different")
    h: Value = m.input("x", ["rows", 8])
    width = 8
    for i in range(size):
        after = 9 + i
        h = m.linear(h, m.param(f"w{i}", [width, after]), m.param(f"b{i}", [after]))
        width = after
    m.set_outputs(h)
    return m


def prepare() -> None:
    """Loads what every case needs, and compiles once: what the first compilation loads isn't counted."""
    from rlx_mlir.rewriting import registry

    registry.register_all()
    ir.native.print_stack_traces()
    _seconds(chain(2, np.random.default_rng(0)))


def handle(task: Task) -> Outcome:
    """Runs one task."""
    path = Path(task["file"])
    if "seed" in task:
        rng = np.random.default_rng([task["seed"], task["index"]])
        names = sorted(FAMILIES)
        name = names[task["index"] % len(names)]
        case = {"family": name, "size": int(_FIRST.get(name, 16) * (1 + rng.random())), "seed": task["index"]}
        path.write_text(f"// rlx fuzz replay {path.name}\n{_MARK}{json.dumps(case)}\n")
    answer = check(read(path))
    answer["ops"] = {read(path)["family"]: 1}
    if answer["status"] != "finding" and "seed" in task:
        path.unlink()
    return answer


def read(path: Path) -> dict[str, Json]:
    """The case in a file; InputError where it has none."""
    for line in path.read_text().splitlines():
        if line.startswith(_MARK):
            case: dict[str, Json] = json.loads(line.removeprefix(_MARK))
            return case
    raise InputError(f"{path} isn't a case of the fuzzer of compile times: it has no line '{_MARK}…'")


def check(case: dict[str, Json]) -> Outcome:
    """Compiles the family at the size, at twice that, and so on while that is quick; compares neighbours."""
    name, size, seed = case["family"], case["size"], case["seed"]
    try:
        before = measured(name, size, seed)
        while True:
            size *= 2
            after = measured(name, size, seed)
            if after > RATIO * max(before, FLOOR):
                # Once more: something else may have taken the processor's cache.
                before, again = measured(name, size // 2, seed), measured(name, size, seed)
                if min(after, again) > RATIO * max(before, FLOOR):
                    message = (
                        f"{name} of {size} takes {min(after, again):.2f} s of processor time to compile, "
                        f"and of {size // 2} {before:.2f} s"
                    )
                    return {"status": "finding", "kind": "scaling", "message": message, "where": name}
            if after > _ENOUGH:
                return {"status": "ok"}
            before = after
    except RlxError as error:
        message = f"{name} of {size}: {type(error).__name__}: {error}"
        return {"status": "finding", "kind": "compile", "message": message, "where": name}


def measured(name: str, size: int, seed: int = 0) -> float:
    """Processor time of compiling a family's module of a size, in seconds."""
    return _seconds(FAMILIES[name](size, np.random.default_rng(seed)))


def _seconds(module: GraphModule) -> float:
    """Processor time of compiling a module, without verification, of all threads."""
    begin = time.process_time()
    build_artifact(module, CompileOptions(verify=False))
    return time.process_time() - begin
