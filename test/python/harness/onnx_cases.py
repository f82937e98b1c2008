# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX's own cases of single nodes, run here: what each gives, or why it is refused.

python test/python/harness/onnx_cases.py [WORD…]     cases whose names have a word, and what became of them
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from rlx_mlir.errors import OnnxUnsupportedError
from rlx_mlir.frontends.onnx import from_onnx

#: Relative tolerance for elements of 16 bits, two units in the last place: what is made of several operations is
#: rounded once here, after each of them by the reference.
HALVES = {np.dtype(np.float16): 2 * 2**-10, np.dtype(ml_dtypes.bfloat16): 2 * 2**-7}

#: Absolute tolerance of cases that expect rounding errors of the reference, 2e-7 where the exact result is 0.
NOISE = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        name: of the case.
        word: passed, refused, or wrong.
        reason: why it was refused, or what is wrong.
        fixed: inputs that decide about sizes, whose elements were given while the model was read.
        seconds: that reading, compiling and running took.
    """

    name: str
    word: str
    reason: str = ""
    fixed: tuple[str, ...] = ()
    seconds: float = 0.0


def cases() -> list[Any]:
    """All cases of single nodes, sorted by name; without those that need what isn't installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return sorted(load_model_tests(kind="node"), key=lambda case: str(case.name))


def run(case: Any, *, interpreted: bool = False) -> Outcome:
    """Reads, compiles and runs a case, and compares with what ONNX says."""
    start = time.perf_counter()
    fixed: dict[str, np.ndarray] = {}
    try:
        while True:
            try:
                outcome = _run(case, fixed, interpreted)
                break
            except OnnxUnsupportedError as error:
                more = {name: _input(case, name) for name in error.inputs if name not in fixed}
                if not more:
                    raise
                fixed.update(more)
    except OnnxUnsupportedError as error:
        outcome = "refused", str(error)
    except Exception as error:
        outcome = "wrong", f"{type(error).__name__}: {error}"
    return Outcome(case.name, *outcome, tuple(fixed), time.perf_counter() - start)


def _input(case: Any, name: str) -> np.ndarray:
    names = [info.name for info in case.model.graph.input]
    return array_of(case.data_sets[0][0][names.index(name)])


def array_of(given: Any) -> np.ndarray:
    """What a case gives, as an array: messages of tensors where numpy hasn't the element type."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(given) if isinstance(given, TensorProto) else np.asarray(given)


def _run(case: Any, fixed: dict[str, np.ndarray], interpreted: bool) -> tuple[str, str]:
    model = from_onnx(case.model, fixed=fixed)
    call = model.interpret if interpreted else model.compile(cache=False, threads=1).run
    names = [info.name for info in case.model.graph.input]
    for given, wanted in case.data_sets:
        arrays = {name: array_of(array) for name, array in zip(names, given, strict=True) if name not in fixed}
        found = call(arrays)
        for info, expected in zip(case.model.graph.output, wanted, strict=True):
            atol = NOISE.get(case.name, case.atol)
            wrong = difference(np.asarray(found[info.name]), array_of(expected), case.rtol, atol)
            if wrong:
                return "wrong", f"'{info.name}' {wrong}"
    return "passed", ""


def difference(found: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> str:
    """What is wrong with a result; empty where it is within the tolerance."""
    if found.shape != expected.shape:
        return f"has shape {found.shape}, expected is {expected.shape}"
    if found.dtype != expected.dtype:
        return f"is of {found.dtype}, expected is {expected.dtype}"
    if expected.dtype.kind in "iub":
        wide, other = found.astype(np.int64), expected.astype(np.int64)
    else:
        wide, other = found.astype(np.float64), expected.astype(np.float64)
    rtol = max(rtol, HALVES.get(expected.dtype, 0.0))
    near = np.isclose(wide, other, rtol=rtol, atol=atol, equal_nan=True)
    if near.all():
        return ""
    place = tuple(int(i) for i in np.argwhere(~near)[0])
    count = int((~near).sum())
    return f"differs in {count} of {near.size} elements, first at {place}: {found[place]}, expected {expected[place]}"


def main_operator(case: Any) -> str:
    """The operator that a case is about: that of its only node, or where a function was expanded, of its name."""
    nodes = case.model.graph.node
    return str(nodes[0].op_type) if len(nodes) == 1 else str(case.name)


def one_of_each(chosen: Iterable[Any]) -> list[Any]:
    """The first case of each operator, without those of functions that were expanded."""
    found: dict[str, Any] = {}
    for case in chosen:
        if len(case.model.graph.node) == 1:
            found.setdefault(main_operator(case), case)
    return list(found.values())


def main(words: list[str]) -> None:
    """Prints what isn't passed, and how many of each."""
    interpreted = "--interpret" in words
    words = [word for word in words if not word.startswith("--")]
    counts: Counter[str] = Counter()
    for case in cases():
        if words and not any(word in case.name for word in words):
            continue
        outcome = run(case, interpreted=interpreted)
        word = outcome.word + (" with fixed inputs" if outcome.fixed and outcome.word == "passed" else "")
        counts[word] += 1
        if outcome.word != "passed":
            print(f"{outcome.word}: {outcome.name} ({outcome.seconds:.2f} s): {outcome.reason[:700]}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main(sys.argv[1:])
