# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The template of Fourier transforms, against numpy's in f64, and which operations it takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from compile_harness import compile_fresh, templates_of
from cpu_harness import TARGETS, compiled

from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.fft import LONGEST, configure, emit_fft, factors
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import FftPart, FftSpec

WORDS: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "complex<f32>": np.complex64}
#: Lanes that are rows: of odd and of even numbers, fewer than lanes, and more; lanes that are parts, of every radix.
LENGTHS = (2, 3, 6, 13, 30, 77, 16, 64, 80, 112, 176, 208, 288, 1000, 2048)
#: Of complex numbers; forwards, backwards, and how they are scaled.
DIRECTIONS = ((-1, 1.0), (1, 0.125))


def transform(z: np.ndarray, sign: int, scale: float) -> np.ndarray:
    found = np.fft.fft(z) if sign < 0 else np.fft.ifft(z) * z.shape[-1]
    return np.asarray(found * scale)


def error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, relative to the root of the mean square."""
    return float(np.abs(got - want).max() / np.sqrt(np.mean(np.abs(want) ** 2)))


def limit(word: str, n: int) -> float:
    """Some units for each factor of two."""
    return (6e-16 if word == "f64" else 3e-7) * (2 + math.log2(n))


def stored(z: np.ndarray, word: str) -> np.ndarray:
    if word == "complex<f32>":
        return z.astype(np.complex64)
    return np.concatenate([z.real, z.imag], -1).astype(WORDS[word])


def complexes(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    re, im = np.split(x.astype(np.float64), 2, -1)
    return np.asarray(re + 1j * im)


def random(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(shape)
    return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape))


def run(spec: FftSpec, bits: int, x: np.ndarray, outs: list[np.ndarray], cuts: Any = None) -> list[np.ndarray]:
    target = TARGETS[bits]
    text = emit_fft("fft", configure("fft", spec, target), target)
    return compiled("fft", text)([x], outs, cuts)


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.quick(3)
def test_template(bits: int, word: str) -> None:
    for number, n in enumerate(LENGTHS):
        sign, scale = DIRECTIONS[number % 2]
        rows = (1, 3, 19)[number % 3]
        x = stored(random(rows, n), word)
        spec = FftSpec(memref((None, x.shape[1]), word), n, sign, scale)
        (found,) = run(spec, bits, x, [np.empty_like(x)])
        assert error(complexes(found), transform(complexes(x), sign, scale)) < limit(word, n), n
        for cuts in ([1], range(20)):
            assert run(spec, bits, x, [np.empty_like(x)], cuts)[0].tobytes() == found.tobytes()
        # A row has the same bits alone, and whatever stands beside it.
        (alone,) = run(spec, bits, x[-1:], [np.empty_like(x[-1:])])
        assert alone.tobytes() == found[-1:].tobytes()


def test_dimensions_in_front() -> None:
    x = stored(random(2, 1, 3, 32), "f32")
    for shape in ((2, 1, 3, 64), (None, 1, None, 64)):
        (found,) = run(FftSpec(memref(shape, "f32"), 32, -1, 1.0), 256, x, [np.empty_like(x)])
        assert error(complexes(found), np.fft.fft(complexes(x))) < limit("f32", 32)
    (found,) = run(FftSpec(memref((64,), "f32"), 32, -1, 1.0), 256, x[0, 0, 0], [np.empty_like(x[0, 0, 0])])
    assert error(complexes(found), np.fft.fft(complexes(x[0, 0, 0]))) < limit("f32", 32)


#: Of N numbers: the first half, all of them, and some of either, from either half.
PARTS = (
    lambda n: [(False, 0, n // 2 + 1), (True, 0, n // 2 + 1)],
    lambda n: [(False, 0, n), (True, 0, n)],
    lambda n: [(True, n // 2 - 3, 9), (False, 1, 2), (True, n // 2 + 1, n // 2 - 1), (False, n - 1, 1)],
)


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("word", ["f32", "f64"])
@pytest.mark.quick(2)
def test_real_rows(bits: int, word: str) -> None:
    for number, n in enumerate((512, 1024, 576, 640, 2048, 1120)):
        sign, scale = DIRECTIONS[number % 2]
        x = np.ascontiguousarray(random(3, n).real.astype(WORDS[word]))
        want = transform(x.astype(np.complex128), sign, scale)
        wanted = PARTS[number % 3](n)
        parts = [FftPart(memref((None, length), word), im, start, length) for im, start, length in wanted]
        outs = [np.empty((3, part.length), WORDS[word]) for part in parts]
        found = run(FftSpec(memref((None, n), word), n, sign, scale, tuple(parts)), bits, x, outs)
        for part, own in zip(parts, found, strict=True):
            exact = (want.imag if part.is_imaginary else want.real)[:, part.start :][:, : part.length]
            assert np.abs(own - exact).max() < limit(word, n) * np.sqrt(np.mean(np.abs(want) ** 2))


def test_what_has_no_template() -> None:
    for n, parts in ((1, ()), (17, ()), (8 * 17, ()), (LONGEST + 3**7, ())):
        with pytest.raises(UnsupportedByTemplate, match=f"transforms of {n} numbers"):
            configure("fft", FftSpec(f"memref<?x{2 * n}xf32>", n, -1, 1.0, parts), TARGETS[256])
    part = FftPart("memref<?x26xf32>", False, 0, 26)
    with pytest.raises(UnsupportedByTemplate, match="transforms of 25 numbers, which no vectors divide"):
        configure("fft", FftSpec("memref<?x50xf32>", 50, -1, 1.0, (part,)), TARGETS[256])


def test_factors() -> None:
    assert factors(1, 4) == []
    assert factors(64, 4) == [4, 4, 4]
    assert factors(32, 4) == [4, 4, 2]
    assert factors(16, 8) == [4, 4]
    assert factors(1 << 10, 8) == [8, 8, 4, 4]
    assert factors(2 * 3 * 5 * 7 * 11 * 13, 4) == [13, 11, 7, 5, 3, 2]
    assert factors(17, 4) is None
    for n in range(1, 5000):
        for most in (4, 8):
            if (found := factors(n, most)) is not None:
                assert math.prod(found) == n


def templates(m: GraphModule) -> list[str]:
    return sorted(word.split(":")[0] for word in templates_of(compile_fresh(m)).values())


def test_which_operations() -> None:
    m = GraphModule.mir("fft")
    rows, pairs = m.input("rows", ["b", 2, 64]), m.input("pairs", [24], "complex<f32>")
    m.set_outputs({"y": m.fft(rows), "z": m.fft(pairs, inverse=True), "none": m.fft(m.input("prime", [34]))})
    assert templates(m) == ["fft", "fft", "generic"]


def spectrum(**changes: Any) -> GraphModule:
    """Parts of the transform of real rows, with something changed."""
    m = GraphModule.mir("spectrum")
    n = changes.get("n", 64)
    x = m.input("x", [3, n])
    zeros = m.expand(m.constant(changes.get("fill", 0.0)), [3, changes.get("zeros", n)])
    block = m.concat([zeros, x] if changes.get("turned") else [x, zeros], -1)
    y = m.fft(block)
    outputs = {"re": m.narrow(y, -1, 0, n // 2 + 1)}
    if changes.get("between"):
        outputs["square"] = m.mul(outputs["re"], outputs["re"])
    outputs["im"] = m.narrow(m.narrow(y, -1, n, n), -1, 3, 2)
    if "also" in changes:
        outputs["also"] = m.relu({"block": block, "y": y, "zeros": zeros}[changes["also"]])
    if changes.get("both"):
        outputs["both"] = m.narrow(y, -1, n - 2, 4)
    m.set_outputs(outputs)
    return m


@pytest.mark.parametrize(
    ("changes", "takes"),
    [
        ({}, True),
        ({"n": 80}, True),
        ({"n": 36}, False),
        ({"n": 24}, False),
        ({"n": 136}, False),
        ({"fill": 1.0}, False),
        ({"zeros": 80}, False),
        ({"turned": True}, False),
        ({"both": True}, False),
        ({"between": True}, False),
        ({"also": "block"}, False),
        ({"also": "y"}, False),
        ({"also": "zeros"}, False),
    ],
    ids=str,
)
@pytest.mark.quick(3)
def test_which_real_rows(changes: dict[str, Any], takes: bool) -> None:
    m = spectrum(**changes)
    executable = compile_fresh(m)
    assert (list(templates_of(executable).values()) == ["fft"]) == takes
    given = {"x": np.random.default_rng(0).standard_normal((3, changes.get("n", 64))).astype(np.float32)}
    found = [way.run(given) for way in (executable, compile_fresh(m, disable_templates=("all",)))]
    for name, want in interpret(m, given).items():
        for own in found:
            np.testing.assert_allclose(own[name], want, rtol=1e-5, atol=2e-5)
