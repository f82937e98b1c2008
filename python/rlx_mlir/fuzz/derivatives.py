# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The side of the fuzzer of derivatives in the child process: random graphs, differentiated and batched.

Everything is computed by the references in f64, whatever the types are, so that what is compared are formulas. It is
checked

- that reverse and forward mode are transposes of each other: <cotangents, J tangents> = <J^T cotangents, tangents>;
- that forward mode is what small steps say, where these agree with each other: at a kink they don't;
- that neither changes what the graph computes;
- that a batch of two calls gives what both calls give.

Tasks: `{seed, index, file}` draws a case, and leaves it in `file` if anything is wrong; `{file}` runs one again.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx_mlir import ir
from rlx_mlir.autodiff.batched_modules import vmap
from rlx_mlir.autodiff.modules import jvp, vjp
from rlx_mlir.autodiff.registry import is_differentiable
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.errors import InputError, RlxError
from rlx_mlir.fuzz.cases import Case, load_operations, random_case
from rlx_mlir.fuzz.graphs import finding, prepare
from rlx_mlir.fuzz.pool import Outcome, Task
from rlx_mlir.fuzz.sensitivity import run_function
from rlx_mlir.hir import GraphModule
from rlx_mlir.interpreter import bind_inputs
from rlx_mlir.mir.numerics import F64, is_float
from rlx_mlir.mir.packed import PackedWeight, packing
from rlx_mlir.mir.registry import Evaluate, evaluate
from rlx_mlir.semantics.function import arguments, function_name, functions, results

__all__ = ["check", "handle", "prepare"]

Arrays = dict[str, np.ndarray]

#: How far both sides of an equation may be apart, relative to the sum of the magnitudes of their terms.
_TRANSPOSED, _STEPS, _BATCH = 1e-6, 1e-3, 1e-9
#: Of the largest number that is taken: of larger ones, differences are rounding.
_LARGEST = 1e8
#: Operations whose results are drawn, or steps; nothing is learnt from small changes.
_JUMPS = frozenset({"mir.round", "mir.sample", "mir.quantize", "mir.fake_quantize", "mir.fake_quantize_lsq"})


def handle(task: Task) -> Outcome:
    """Runs one task."""
    path = Path(task["file"])
    if "seed" in task:
        load_operations(task.get("load", ()))
        case, counts = random_case(task["seed"], task["index"], tuple(task.get("ops", ())))
        case.save(path)  # before anything can go wrong
    else:
        case, counts = Case.load(path), {}
    begin = time.perf_counter()
    answer = check(case)
    answer["ops"] = dict(Counter(node.op for node in case.module))
    answer["seconds"] = time.perf_counter() - begin
    answer.update(counts)
    if answer["status"] != "finding" and "seed" in task:
        path.unlink()
        path.with_suffix(".npz").unlink()
    return answer


def check(case: Case) -> Outcome:
    """Differentiates and batches a case, and compares."""
    try:
        module = case.module.lower_for_autodiff()
    except RlxError as error:
        return {"status": "unsupported", "message": str(error)}
    run = {name: _wide(array) for name, array in case.runs[0].items()}
    rng = np.random.default_rng(zlib.crc32(case.module.to_text().encode()))
    names = [a.name for a in arguments(module.entry) if is_differentiable(a.type)]
    moving = [r.name for r in results(module.entry) if is_differentiable(r.type)]
    try:
        plain = _run(module, run)
    except InputError as error:
        return {"status": "unsupported", "message": str(error)}
    if not names or not moving or not all(_is_tame(plain[name]) for name in moving):
        return {"status": "skipped", "message": "nothing to be differentiated, or numbers that are too large"}
    with np.errstate(all="ignore"):
        return _derivatives(module, run, plain, (names, moving), rng) or _batches(module, run, rng) or {"status": "ok"}


def _wide(array: np.ndarray) -> np.ndarray:
    """Floats as f64; bytes of packed weights and integers as they are."""
    return array.astype(F64) if is_float(array.dtype) else array


def evaluate_wide(op: ir.AnyOp, operands: Sequence[object], inner: Evaluate | None = None) -> list[Any]:
    """The results of an operation in f64: nothing is rounded to the types that it has."""
    operation = op.operation
    if operation.name in ("mir.cast", "hir.cast") and isinstance(operands[0], np.ndarray):
        element = ir.RankedTensorType(operation.results[0].type).element_type
        if is_float(operands[0].dtype) and isinstance(element, ir.FloatType):
            return [operands[0]]
    found = evaluate(op, operands, inner or evaluate_wide)
    return [_wide(x) if isinstance(x, np.ndarray) and not isinstance(x, PackedWeight) else x for x in found]


def _run(module: GraphModule, values: Arrays) -> Arrays:
    """The outputs of a module, computed in f64.

    Raises InputError where a condition at run time doesn't hold.
    """
    kinds = {a.name: numpy_dtype(a.type.element_type) for a in arguments(module.entry)}
    narrow = {n: x.astype(kinds[n]) if is_float(x.dtype) else x for n, x in values.items()}
    bound = bind_inputs(module.entry, narrow)
    own = [
        values[a.name] if isinstance(x, np.ndarray) and is_float(x.dtype) else x
        for a, x in zip(arguments(module.entry), bound, strict=True)
    ]
    listed = {function_name(f): f for f in functions(module.ir_module)}
    found: list[Any] = run_function(listed, module.entry, own, evaluate_wide)
    return {result.name: value for result, value in zip(results(module.entry), found, strict=True)}


def _is_tame(array: np.ndarray) -> bool:
    return bool(np.isfinite(array).all()) and float(np.abs(array).max(initial=0.0)) < _LARGEST


def _inner(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of the real parts of conj(a) b."""
    return float(np.sum(np.conj(a) * b).real)


def _like(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    numbers = rng.standard_normal(array.shape)
    if array.dtype.kind == "c":
        return (numbers + 1j * rng.standard_normal(array.shape)).astype(array.dtype)
    return numbers


def _derivatives(
    module: GraphModule, run: Arrays, plain: Arrays, known: tuple[list[str], list[str]], rng: np.random.Generator
) -> Outcome | None:
    """A finding where derivatives aren't what they have to be; another outcome where there are none."""
    names, moving = known
    try:
        pulled, pushed = vjp(module, names), jvp(module, names)
    except RlxError as error:
        return _refused(error)
    cotangents = [_like(rng, plain[name]) for name in moving]
    tangents = [_like(rng, run[name]) for name in names]
    back, forth = (
        _run(own, run | dict(zip(_new(module, own), given, strict=True)))
        for own, given in ((pulled, cotangents), (pushed, tangents))
    )
    for name, array in plain.items():
        for way, found in (("reverse", back), ("forward", forth)):
            if not np.array_equal(found[name], array, equal_nan=array.dtype.kind in "fc"):
                return finding("derivative", f"{way} mode changes output '{name}'")
    gradients = list(back.values())[len(plain) :]
    changes = list(forth.values())[len(plain) :]
    if not all(map(_is_tame, [*gradients, *changes])):
        return {"status": "skipped", "message": "derivatives that are too large"}
    left = [_inner(a, b) for a, b in zip(cotangents, changes, strict=True)]
    right = [_inner(a, b) for a, b in zip(gradients, tangents, strict=True)]
    size = sum(
        float(np.abs(a).ravel() @ np.abs(b).ravel())
        for own, by in ((cotangents, changes), (gradients, tangents))
        for a, b in zip(own, by, strict=True)
    )
    if abs(sum(left) - sum(right)) > _TRANSPOSED * size + 1e-9:
        return finding("derivative", f"forward mode gives {sum(left)}, reverse mode {sum(right)}")
    if {node.op for node in module} & _JUMPS:
        return None
    return _steps(
        module, run, dict(zip(names, tangents, strict=True)), dict(zip(moving, cotangents, strict=True)), left
    )


def _refused(error: RlxError) -> Outcome:
    """An operation without a rule is an error that says so; any other one is a finding."""
    text = str(error)
    known = ("has no rule of", "has no derivative", "give it a 'limit'")
    status = "unsupported" if any(words in text for words in known) else "finding"
    return {"status": status, "message": text} if status != "finding" else finding("derivative", text)


def _new(module: GraphModule, own: GraphModule) -> list[str]:
    """The inputs that a derivative has beyond those of the module."""
    before = {value.name for value in module.inputs}
    return [value.name for value in own.inputs if value.name not in before]


def _steps(
    module: GraphModule, run: Arrays, tangents: Arrays, cotangents: Arrays, terms: Sequence[float]
) -> Outcome | None:
    """A finding where small steps of several sizes agree with each other, but not with forward mode."""

    def at(step: float) -> float:
        moved = run | {name: run[name] + step * tangent for name, tangent in tangents.items()}
        outputs = _run(module, moved)
        return sum(_inner(cotangent, outputs[name]) for name, cotangent in cotangents.items())

    def slope(step: float) -> float:
        return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)

    try:
        first, second, third = slope(1e-4), slope(4e-5), slope(1e-5)
    except InputError:  # a condition at run time, such as of an index
        return None
    size = max(abs(first), sum(map(abs, terms)), 1e-3)
    spread = max(abs(first - second), abs(second - third))
    if np.isfinite(spread) and spread < 1e-5 * size and abs(second - sum(terms)) > _STEPS * size:
        return finding("derivative", f"forward mode gives {sum(terms)}, small steps {second}")
    return None


def _batches(module: GraphModule, run: Arrays, rng: np.random.Generator) -> Outcome | None:
    """A finding where a batch of two calls gives others than both calls."""
    own = [a for a in arguments(module.entry) if packing(a.type) is None and is_float(run[a.name].dtype)]
    chosen = [a.name for a in own if rng.random() < 0.6] or [a.name for a in own[:1]]
    if not chosen:
        return None
    other = run | {name: run[name] * 0.5 + 0.1 * _like(rng, run[name]) for name in chosen}
    try:
        batched = vmap(module, chosen, size=2)
        singles = [_run(module, each) for each in (run, other)]
    except InputError:
        return None
    except RlxError as error:
        return finding("batch", str(error))
    both = run | {name: np.stack([run[name], other[name]]) for name in chosen}
    found = _run(batched, both)
    for name, array in found.items():
        for number, single in enumerate(singles):
            if not _is_close(array[number], single[name]):
                return finding("batch", f"entry {number} of output '{name}' of a batch isn't what the call gives")
    return None


def _is_close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0))
    return bool(np.allclose(a, b, rtol=_BATCH, atol=_BATCH * scale + 1e-12, equal_nan=True))
