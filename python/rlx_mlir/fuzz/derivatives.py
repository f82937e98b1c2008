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

import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir import ir
from rlx_mlir.autodiff.batched_modules import vmap
from rlx_mlir.autodiff.modules import jvp, vjp
from rlx_mlir.autodiff.registry import is_differentiable, made_of
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.errors import GradientWarning, InputError, RlxError
from rlx_mlir.fuzz.cases import Case
from rlx_mlir.fuzz.graphs import finding, prepare, run_case
from rlx_mlir.fuzz.pool import Outcome, Task
from rlx_mlir.fuzz.sensitivity import applied, run_function
from rlx_mlir.hir import GraphModule
from rlx_mlir.interpreter import bind_inputs
from rlx_mlir.mir.backward import STRAIGHT_THROUGH
from rlx_mlir.mir.numerics import F64, is_float, is_inexact
from rlx_mlir.mir.packed import PackedWeight, packing
from rlx_mlir.mir.registry import VJPS, Evaluate, Evaluated, evaluate
from rlx_mlir.rewriting import operations
from rlx_mlir.semantics.function import arguments, body, function_name, functions, results

__all__ = ["check", "handle", "prepare"]

Arrays = dict[str, np.ndarray]
Rng = np.random.Generator

#: How far both sides of an equation may be apart, relative to the sum of the magnitudes of their terms.
_TRANSPOSED, _STEPS, _BATCH = 1e-6, 1e-3, 1e-9
#: How far outputs may be from what they are in a derivative, where operations are computed as their parts.
_PARTS = 1e-6
#: Changes of numbers that are hardly more than what f64 rounds.
_ROUNDING = 1e-14
#: Of the largest number that is taken: of larger ones, differences are rounding.
_LARGEST, _LARGEST_INPUT = 1e8, 1e4
#: Operations whose results are drawn, or steps; and those that round to a type of their own, whatever they are given.
_JUMPS = frozenset({"mir.sample", "mir.quantize", "mir.fake_quantize", "mir.fake_quantize_lsq"})
_ROUNDED = frozenset({"mir.fake_quantize_lsq_backward_scale", "mir.scaled_matmul"})
#: What errors say about operations that have no derivatives, or no batches.
_REFUSALS = ("has no rule of", "has no derivative", "give it a 'limit'", "can't have a batch")


def handle(task: Task) -> Outcome:
    """Runs one task."""
    return run_case(task, "derivatives", check)


def check(case: Case) -> Outcome:
    """Differentiates and batches a case, and compares."""
    try:
        module = case.module.lower_for_autodiff()
    except RlxError as error:
        return {"status": "unsupported", "message": str(error)}
    rng = np.random.default_rng(zlib.crc32(case.module.to_text().encode()))
    run = {name: _tamed(_wide(array), rng) for name, array in case.runs[0].items()}
    names = [a.name for a in arguments(module.entry) if is_differentiable(a.type)]
    try:
        plain = _run(module, run)
    except InputError as error:
        return {"status": "unsupported", "message": str(error)}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientWarning)
        usable = _usable_outputs(module, plain) if names else {}
        found: Outcome | None = {"status": "skipped", "message": "no output that has derivatives, or is small enough"}
        if usable:
            part = module.clone()
            part.set_outputs({name: value for name, value in part.outputs.items() if name in usable})
            part.erase_dead()
            found = _derivatives(part, run, usable, names, rng)
        if found is not None and found["status"] == "finding":
            return found
        return _batches(module, run, plain, rng) or found or {"status": "ok"}


def _usable_outputs(module: GraphModule, plain: Arrays) -> Arrays:
    """The outputs that have derivatives: no operation without a rule is on the way, and numbers aren't too large."""
    without: set[ir.Value] = set()
    *ops, end = [op.operation for op in body(module.entry).operations]
    for op in ops:
        has_rule = op.name in VJPS or made_of(op) is not None
        if not has_rule or any(operand in without for operand in op.operands):
            without.update(op.results)
    return {
        result.name: plain[result.name]
        for result, value in zip(results(module.entry), end.operands, strict=True)
        if value not in without and is_differentiable(result.type) and _is_tame(plain[result.name])
    }


def _wide(array: np.ndarray) -> np.ndarray:
    """Floats as f64, complex numbers as two; bytes of packed weights and integers as they are."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(F64) if is_float(array.dtype) else array


def _tamed(array: np.ndarray, rng: Rng) -> np.ndarray:
    """Numbers as those that there are, but of a size that small steps change, and none twice but 0 and -inf."""
    if not is_float(array.dtype):
        return array
    finite = np.nan_to_num(np.clip(array, -_LARGEST_INPUT, _LARGEST_INPUT), nan=0.5)
    own = finite * (1 + 1e-3 * rng.uniform(-1, 1, array.shape))
    return np.where(array == -np.inf, array, own)  # masks


def evaluate_wide(op: ir.AnyOp, operands: Sequence[object], inner: Evaluate | None = None) -> list[Evaluated]:
    """The results of an operation in f64: nothing is rounded to the types that it has."""
    operation = op.operation
    if operation.name in ("mir.cast", "hir.cast"):
        (x,), result = operands, operation.results[0].type
        if isinstance(x, np.ndarray) and is_inexact(x.dtype) and is_differentiable(result):
            is_complex = isinstance(ir.RankedTensorType(result).element_type, ir.ComplexType)
            return [x.astype(np.complex128) if is_complex else x.real]
    # Floats that are packed are rounded to a type of packed weights: they stay as they are instead.
    if operation.name == "mir.repack" and isinstance(operands[0], np.ndarray):
        return [operands[0]]
    if operation.name == "mir.dequant_matmul" and isinstance(operands[1], np.ndarray):
        return [operands[0] @ operands[1].T]
    found = evaluate(op, operands, inner or evaluate_wide)
    return [_wide(x) if isinstance(x, np.ndarray) and not isinstance(x, PackedWeight) else x for x in found]


def _run(module: GraphModule, values: Arrays) -> Arrays:
    """The outputs of a module, computed in f64.

    Raises InputError where a condition at run time doesn't hold.
    """
    values = {name: np.asarray(x) for name, x in values.items()}  # what is computed of an array of rank 0 isn't one
    kinds = {a.name: numpy_dtype(a.type.element_type) for a in arguments(module.entry)}
    narrow = {n: x.astype(kinds[n]) if is_inexact(x.dtype) else x for n, x in values.items()}
    bound = bind_inputs(module.entry, narrow)
    own = [
        values[a.name] if isinstance(x, np.ndarray) and is_inexact(x.dtype) else x
        for a, x in zip(arguments(module.entry), bound, strict=True)
    ]
    listed = {function_name(f): f for f in functions(module.ir_module)}
    found: list[Evaluated] = run_function(listed, module.entry, own, evaluate_wide)
    return {result.name: value for result, value in zip(results(module.entry), found, strict=True)}


def _is_tame(array: np.ndarray) -> bool:
    return bool(np.isfinite(array).all()) and float(np.abs(array).max(initial=0.0)) < _LARGEST


def _inner(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of the real parts of conj(a) b."""
    return float(np.sum(np.conj(a) * b).real)


def _like(rng: Rng, array: np.ndarray) -> np.ndarray:
    numbers = np.asarray(rng.standard_normal(array.shape))  # of rank 0, too
    return np.asarray(numbers + 1j * rng.standard_normal(array.shape)) if array.dtype.kind == "c" else numbers


@dataclass(frozen=True)
class Changes:
    """Terms of products of cotangents and tangents, and their magnitudes.

    Attributes:
        terms: for each output, or for each argument, the product of its cotangent and its tangent.
        size: the sum of the magnitudes of all that these are sums of.
    """

    terms: list[float]
    size: float

    @classmethod
    def of(cls, firsts: Sequence[np.ndarray], seconds: Sequence[np.ndarray]) -> Changes | None:
        """The products of arrays with others; None where a number is too large."""
        if not all(map(_is_tame, [*firsts, *seconds])):
            return None
        pairs = list(zip(firsts, seconds, strict=True))
        size = sum(float(np.abs(a).ravel() @ np.abs(b).ravel()) for a, b in pairs)
        return cls([_inner(a, b) for a, b in pairs], size)


def _derivatives(module: GraphModule, run: Arrays, plain: Arrays, names: Sequence[str], rng: Rng) -> Outcome | None:
    """A finding where derivatives aren't what they have to be; another outcome where there are none.

    Args:
        module: all outputs are usable.
        run: the values of arguments.
        plain: the outputs.
        names: of what it is differentiated by.
        rng: draws cotangents and tangents.
    """
    moving = [r.name for r in results(module.entry) if is_differentiable(r.type)]
    cotangents = {name: _like(rng, plain[name]) for name in moving}
    tangents = {name: _like(rng, run[name]) for name in names}
    found: dict[str, Changes] = {}
    again: dict[str, Callable[[Arrays], tuple[Arrays, Changes | None]]] = {}
    refused: Outcome | None = None
    for mode, given, others in ((vjp, cotangents, tangents), (jvp, tangents, cotangents)):
        try:
            own = mode(module, names)
        except RlxError as error:
            refused = _refused("derivative", error)
            if refused["status"] == "finding":
                return refused
            continue

        def computed(
            at: Arrays, own: GraphModule = own, given: Arrays = given, others: Arrays = others
        ) -> tuple[Arrays, Changes | None]:
            answers = _run(own, at | dict(zip(_new(module, own), given.values(), strict=True)))
            return answers, Changes.of(list(answers.values())[len(plain) :], list(others.values()))

        again[mode.__name__] = computed
        answers, changes = computed(run)
        for name, array in plain.items():
            if not _is_close(answers[name], array, _PARTS) and not _is_sensitive(module, run, name, answers[name], rng):
                return finding("derivative", f"{mode.__name__} changes output '{name}'")
        if changes is None:
            return {"status": "skipped", "message": "derivatives that are too large"}
        found[mode.__name__] = changes
    if not found or any(_has_own_rule(op) for op in operations(module.ir_module)):
        return refused
    first, last = found.get("vjp"), found.get("jvp")
    if first is not None and last is not None:
        reverse, forward = sum(first.terms), sum(last.terms)
        apart = abs(forward - reverse)
        if apart > _TRANSPOSED * (first.size + last.size) + 1e-9 and apart > 10 * _moved(again, found, run, rng):
            return finding("derivative", f"forward mode gives {forward}, reverse mode {reverse}")
    if any(_is_step(op) for op in operations(module.ir_module)):
        return refused
    terms = [sum(first.terms)] if first is not None and last is None else found["jvp"].terms
    return _steps(module, run, tangents, cotangents, terms) or refused


def _is_sensitive(module: GraphModule, run: Arrays, name: str, other: np.ndarray, rng: Rng) -> bool:
    """Whether changes of arguments by `_PARTS` move each element of an output about as far as another result is."""
    plain = _run(module, run)[name]
    if plain.shape != other.shape or not is_inexact(plain.dtype):
        return False
    most = np.zeros(plain.shape)
    for _ in range(4):
        most = np.maximum(most, abs(_run(module, _near(run, _PARTS, rng))[name] - plain))
    scale = float(np.abs(plain).max(initial=0.0))
    return bool(np.all(abs(other - plain) <= 10 * most + _PARTS * scale))


def _near(run: Arrays, size: float, rng: Rng) -> Arrays:
    """Arguments that are changed at random, by at most `size` of each number."""
    return {n: x * (1 + size * rng.uniform(-1, 1, x.shape)) if is_inexact(x.dtype) else x for n, x in run.items()}


def _moved(
    again: Mapping[str, Callable[[Arrays], tuple[Arrays, Changes | None]]],
    found: Mapping[str, Changes],
    run: Arrays,
    rng: Rng,
) -> float:
    """How far changes of arguments that are hardly more than rounding move what a mode gives.

    Args:
        again: computes the derivatives of a mode, of other arguments.
        found: what they are of these.
    """
    most = 0.0
    for _ in range(4):
        near = _near(run, _ROUNDING, rng)
        for name, computed in again.items():
            changes = computed(near)[1]
            most = max(most, np.inf if changes is None else abs(sum(changes.terms) - sum(found[name].terms)))
    return most


def _is_step(op: ir.Operation) -> bool:
    """Whether small changes of an operation's operands say nothing of its derivative."""
    return op.name in _JUMPS | _ROUNDED or applied(op) in STRAIGHT_THROUGH


def _has_own_rule(op: ir.Operation) -> bool:
    """Whether an operation has derivatives of its own, which are drawn at random: they need not be those of it."""
    return op.name == "mir.custom_fn" and any(len(region.blocks) for region in list(op.regions)[1:])


def _refused(kind: str, error: RlxError) -> Outcome:
    """What is without a rule on purpose is an error that says so; any other one is a finding."""
    text = str(error)
    if any(words in text for words in _REFUSALS):
        return {"status": "unsupported", "message": text}
    return finding(kind, text)


def _new(module: GraphModule, own: GraphModule) -> list[str]:
    """The inputs that a derivative has beyond those of the module."""
    before = {value.name for value in module.inputs}
    return [value.name for value in own.inputs if value.name not in before]


def _steps(
    module: GraphModule, run: Arrays, tangents: Arrays, cotangents: Arrays, terms: Sequence[float]
) -> Outcome | None:
    """A finding where small steps of several sizes and both ways agree with each other, but not with derivatives.

    Args:
        module, run: as of `_derivatives`.
        tangents: of arguments.
        cotangents: of outputs.
        terms: the derivative along the tangents of the product with each cotangent, or that of the sum of these.
    """
    is_each = len(terms) == len(cotangents)

    def at(step: float) -> np.ndarray:
        moved = run | {name: run[name] + step * tangent for name, tangent in tangents.items()}
        outputs = _run(module, moved)
        products = [_inner(cotangent, outputs[name]) for name, cotangent in cotangents.items()]
        return np.array(products if is_each else [sum(products)])

    def slope(step: float) -> np.ndarray:
        return np.asarray((8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step))

    try:
        first, second, third = slope(1e-4), slope(4e-5), slope(1e-5)
        bend = (at(1e-5) - 2 * at(0) + at(-1e-5)) / 1e-5  # a change of the slope, at a kink
    except InputError:  # a condition at run time, such as of an index
        return None
    own = np.array(terms if is_each else [sum(terms)])
    size = np.maximum(np.maximum(abs(first), abs(own)), 1e-3)
    spread = np.maximum(abs(first - second), abs(second - third))
    is_smooth = np.isfinite(spread) & (spread < 1e-5 * size) & (abs(bend) < _STEPS * size)
    wrong = is_smooth & (abs(second - own) > _STEPS * size)
    for step in (1e-8, 1e-9, 1e-10, 1e-11):  # a norm of nearly nothing is flat but for what is nearer to it than steps
        if wrong.any():
            wrong &= ~(abs(slope(step) - own) < 0.5 * abs(second - own))
    for given, expected in zip(own[wrong], second[wrong], strict=True):
        return finding("derivative", f"derivatives give {given}, small steps {expected}")
    return None


def _batches(module: GraphModule, run: Arrays, plain: Arrays, rng: Rng) -> Outcome | None:
    """A finding where a batch of two calls gives others than both calls."""
    own = [a for a in arguments(module.entry) if packing(a.type) is None and is_float(run[a.name].dtype)]
    chosen = [a.name for a in own if rng.random() < 0.6] or [a.name for a in own[:1]]
    if not chosen:
        return None
    other = run | {name: run[name] * 0.5 + 0.1 * _like(rng, run[name]) for name in chosen}
    try:
        singles = [plain, _run(module, other)]
    except InputError:  # a condition at run time, such as of an index
        return None
    try:
        batched = vmap(module, chosen, size=2)
    except RlxError as error:
        return _refused("batch", error)
    found = _run(batched, run | {name: np.stack([run[name], other[name]]) for name in chosen})
    for name, array in found.items():
        for number, single in enumerate(singles):
            if not _is_close(array[number], single[name], _BATCH):
                return finding("batch", f"entry {number} of output '{name}' of a batch isn't what the call gives")
    return None


def _is_close(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0))
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * scale + 1e-12, equal_nan=True))
