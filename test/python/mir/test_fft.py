# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms of any length against sums in f64, and the builders of the family against numpy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu_harness import calls, compile_emulated
from linalg_harness import case, check, dyn

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret, ir
from rlx_mlir.dialects import mir
from rlx_mlir.errors import BuildError
from rlx_mlir.mir import REFERENCES
from rlx_mlir.mir.fft import padded_length, radices

DTYPES = ("f32", "f64", "complex<f32>")
NORMS = ("backward", "forward", "ortho")
#: One; every small factor, alone and with others; powers of two around the stages' sizes; larger primes.
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 17, 26, 30, 31, 32, 34, 60, 64, 97, 100, 125, 128, 143)
QUICK = (1, 2, 13, 30, 34)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([*shape, seed])
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def stored(z: np.ndarray, dtype: str) -> np.ndarray:
    """Complex numbers as an operand has them."""
    if dtype == "complex<f32>":
        return z.astype(np.complex64)
    return np.concatenate([z.real, z.imag], -1).astype(np.float32 if dtype == "f32" else np.float64)


def complexes(x: np.ndarray) -> np.ndarray:
    """What is stored as complex128."""
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    n = x.shape[-1] // 2
    return x[..., :n].astype(np.float64) + 1j * x[..., n:].astype(np.float64)


def by_sums(z: np.ndarray, *, inverse: bool = False, norm: str = "backward") -> np.ndarray:
    """The definition: a product with all roots; exponents are reduced, so that angles are exact."""
    n = z.shape[-1]
    k = np.arange(n)
    roots = np.exp((2j if inverse else -2j) * np.pi * (np.outer(k, k) % n) / n)
    scale = {"backward": (1, 1 / n), "forward": (1 / n, 1), "ortho": (n**-0.5, n**-0.5)}[norm][inverse]
    return scale * (z @ roots)


def error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, relative to the root of the mean square."""
    assert got.shape == want.shape
    if not want.size:
        return 0.0
    return float(np.abs(got - want).max() / np.sqrt(np.mean(np.abs(want) ** 2)))


def limit(dtype: str, n: int) -> float:
    """What rounding may give: some units for each factor of two."""
    return (1e-14 if dtype == "f64" else 4e-7) * (2 + np.log2(padded_length(n) if radices(n) is None else n))


def program(n: int, dtype: str, *, inverse: bool = False, norm: str = "backward") -> GraphModule:
    module = GraphModule.mir("transform")
    x = module.input("x", ["rows", n if dtype == "complex<f32>" else 2 * n], dtype)
    module.set_outputs({"y": module.fft(x, inverse=inverse, norm=norm)})
    return module


@pytest.mark.parametrize("n", [1, 2, 7, 97, 1000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_reference_is_the_sum(n, dtype):
    for inverse in (False, True):
        for norm in NORMS:
            x = stored(numbers(2, n), dtype)
            found = REFERENCES["mir.fft"](x, inverse=inverse, norm=norm)
            assert found.dtype == x.dtype
            want = by_sums(complexes(x), inverse=inverse, norm=norm)
            assert error(complexes(found), want) < (1e-12 if dtype == "f64" else 3e-7)


def test_lengths_are_cut_into_stages():
    for n in range(1, 2000):
        found = radices(n)
        largest = max((p for p in range(2, n + 1) if n % p == 0 and all(p % q for q in range(2, p))), default=1)
        assert (found is None) == (largest > 13)
        if found is not None:
            assert np.prod(found, dtype=int) == n
            assert max(found, default=1) <= 13
    assert radices(1 << 16) == [8, 8, 8, 8, 4, 4]
    assert [padded_length(n) for n in (17, 97, 128 + 1)] == [64, 256, 512]


@pytest.mark.parametrize("n", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in LENGTHS])
def test_loops_are_the_reference(n):
    """Of every type and norm, forwards and backwards; static and dynamic sizes in front, several, and none."""
    cases = []
    for number, dtype in enumerate(DTYPES):
        inverse, norm = bool((n + number) % 2), NORMS[(n + number) % 3]

        def build(x: Any, inverse: bool = inverse, norm: str = norm) -> Any:
            return mir.FftOp(x, inverse=inverse, norm=_norm(norm))

        for shape in ((n,), (3, n), (0, n)):
            x = stored(numbers(*shape), dtype)
            dims = tuple(range(len(shape) - 1))
            cases.append(case(f"{dtype} {shape}", build, dyn(x, *dims) if dims else x, tolerance=limit(dtype, n)))
        x = stored(numbers(2, 1, 3, n), dtype)
        cases.append(case(f"{dtype} of several", build, dyn(x, 0, 2), tolerance=limit(dtype, n)))
    check(cases)


def _norm(word: str) -> Any:
    return ir.Attribute.parse(f"#mir<fft_norm {word}>")


#: Run by default; other combinations are slow.
COMPILED = ((1, "f32"), (12, "f64"), (64, "complex<f32>"), (97, "f32"))
ALL = [(n, dtype) for n in (1, 12, 64, 97, 1000) for dtype in DTYPES]


@pytest.mark.parametrize(
    ("n", "dtype"), [pytest.param(*pair, marks=[] if pair in COMPILED else [pytest.mark.slow]) for pair in ALL]
)
def test_compiled_for_any_number_of_rows(n, dtype):
    module = program(n, dtype, inverse=n % 2 == 0)
    executables = [rlx.compile(module, threads=threads, cache=False) for threads in (1, 2)]
    for rows in (0, 1, 3, 17):
        x = stored(numbers(rows, n), dtype)
        want = by_sums(complexes(x), inverse=n % 2 == 0)
        assert error(complexes(interpret(module, {"x": x})["y"]), want) < limit(dtype, n)
        for executable in executables:
            assert error(complexes(executable.run({"x": x})["y"]), want) < limit(dtype, n)


@pytest.mark.parametrize("n", [1 << 12, pytest.param(1 << 16, marks=pytest.mark.slow)])
def test_error_of_long_transforms(n):
    """A unit or two: it grows with the logarithm of the length."""
    executable = rlx.compile(program(n, "f32"), cache=False)
    z = numbers(2, n)
    x = stored(z, "f32")
    assert error(complexes(executable.run({"x": x})["y"]), np.fft.fft(complexes(x))) < 1e-6


def test_an_inverse_gives_back_what_was_transformed():
    module = GraphModule.mir("both")
    x = module.input("x", ["rows", 2 * 30])
    module.set_outputs({norm: module.fft(module.fft(x, norm=norm), inverse=True, norm=norm) for norm in NORMS})
    given = stored(numbers(3, 30), "f32")
    for found in rlx.compile(module, cache=False).run({"x": given}).values():
        np.testing.assert_allclose(found, given, atol=1e-6)


# ----------------------------------------------------------------------------------------------------------------------
# Builders
# ----------------------------------------------------------------------------------------------------------------------


def built(
    build: Callable[..., Any], arrays: dict[str, np.ndarray], *, symbolic: bool = True, stage: str = "mir"
) -> list[np.ndarray]:
    """What a builder's results are, interpreted and compiled; leading dimensions have symbols."""
    module = getattr(GraphModule, stage)("built")
    values = []
    for name, array in arrays.items():
        shape = [*(["rows"] if symbolic and array.ndim > 1 else array.shape[:1]), *array.shape[1:]]
        values.append(module.input(name, shape, array.dtype.name))
    found = build(module, *values)
    listed = list(found) if isinstance(found, tuple) else [found]
    module.set_outputs({f"y{number}": value for number, value in enumerate(listed)})
    want = interpret(module, arrays)
    got = rlx.compile(module, cache=False).run(arrays)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=2e-6 * max(np.abs(array).max(initial=1), 1))
    return list(got.values())


def real(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng([*shape, seed]).standard_normal(shape).astype(dtype)


def near(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=3e-6 * max(float(np.abs(want).max(initial=1)), 1.0))


#: (length, n): run by default, and slow.
FEW_REAL, MORE_REAL = [(8, None), (7, 12)], [(7, None), (1, None), (12, 20), (20, 9), (97, None)]


def slowly(quick: list[Any], slow: list[Any]) -> list[Any]:
    return [*quick, *(pytest.param(*entry, marks=pytest.mark.slow) for entry in slow)]


@pytest.mark.parametrize(("length", "n"), slowly(FEW_REAL, MORE_REAL))
def test_rfft_is_that_of_numpy(length, n):
    x = real(3, length)
    found = built(lambda m, x: sum((m.rfft(x, n=n, norm=norm) for norm in NORMS), ()), {"x": x})
    for norm, re, im in zip(NORMS, found[::2], found[1::2], strict=True):
        want = np.fft.rfft(x.astype(np.float64), n, norm=norm)
        near(re, want.real)
        near(im, want.imag)


def test_transforms_of_real_rows():
    x = real(2, 9, dtype=np.float64)
    want = np.fft.fft(x)
    found = built(
        lambda m, x: (
            *m.fft_real(x),
            *m.fft_batch_real(x),
            m.pad_last_axis_to_pow2(x),
            m.neg(m.pad_last_axis_to_pow2(x[:, :8])),
        ),
        {"x": x},
        stage="hir",
    )
    for got, part in zip(found, [want.real, want.imag] * 2, strict=False):
        near(got, part)
    np.testing.assert_array_equal(found[4], np.pad(x, [(0, 0), (0, 7)]))
    np.testing.assert_array_equal(found[5], -x[:, :8])


@pytest.mark.parametrize(("bins", "n"), slowly([(5, None), (5, 9), (4, 12)], [(2, None), (2, 3), (1, 1), (9, 8)]))
def test_irfft_is_that_of_numpy(bins, n):
    """Imaginary parts that can't be of real rows are dropped, as numpy drops them."""
    re, im = real(3, bins), real(3, bins, seed=1)
    (y,) = built(lambda m, re, im: m.irfft(re, im, n, norm="ortho"), {"re": re, "im": im})
    near(y, np.fft.irfft(re.astype(np.float64) + 1j * im, n, norm="ortho"))


def test_spectra_of_blocks():
    z = numbers(2, 6)
    re, im = built(lambda m, s: m.split_spectrum(s), {"s": stored(z, "f32")})
    near(re, z.real)
    near(im, z.imag)
    (y,) = built(lambda m, re, im: m.ifft_spectrum(re, im), {"re": re, "im": im})
    near(y, np.fft.ifft(z).real)


def test_transforms_along_dimensions():
    z = numbers(3, 4, 5).astype(np.complex64)
    block = stored(numbers(5, 3), "f32")
    cases: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (lambda m, z: m.fft_axis(z, 1), lambda z: np.fft.fft(z, axis=1)),
        (lambda m, z: m.fft_axis(z, -1, inverse=True, norm="forward"), lambda z: np.fft.ifft(z, norm="forward")),
        (lambda m, z: m.fft_norm(z, "ortho"), lambda z: np.fft.fft(z, norm="ortho")),
        (lambda m, z: m.fftn(z, norm="ortho"), lambda z: np.fft.fftn(z, norm="ortho")),
        (lambda m, z: m.ifftn(z, [2, -2, 1]), lambda z: np.fft.ifftn(z, axes=[1, 2])),
        (lambda m, z: m.neg(m.fftn(z, [])), lambda z: -z),
    ]
    found = built(
        lambda m, z, x: (*(build(m, z) for build, _ in cases), m.fftn(x, [-1])), {"z": z, "x": block}, symbolic=False
    )
    for got, (_, numpy) in zip(found, cases, strict=False):
        near(got, numpy(z.astype(np.complex128)))
    near(complexes(found[-1]), np.fft.fft(complexes(block)))


@pytest.mark.parametrize("symbolic", [pytest.param(False, marks=pytest.mark.slow), True])
def test_stft(symbolic):
    """Frames by themselves; the signal's length may be a symbol."""
    x, frame, hop = real(2, 29), 8, 5
    module = GraphModule.mir("frames")
    own = module.input("x", [2, "length" if symbolic else 29])
    module.set_outputs({"y": module.stft(own, frame, hop)})
    executable = rlx.compile(module, cache=False)
    for length in (8, 12, 13, 29) if symbolic else (29,):
        given = x[:, :length]
        starts = range(0, length - frame + 1, hop)
        spectra = [np.fft.rfft(given[:, start : start + frame].astype(np.float64)) for start in starts]
        want = np.stack([np.concatenate([s.real, s.imag], -1) for s in spectra])
        for got in (executable.run({"x": given}), interpret(module, {"x": given})):
            near(got["y"], want)


@pytest.mark.parametrize(("la", "lb", "n_fft"), slowly([(5, 3, None)], [(1, 1, None), (17, 16, 100)]))
def test_convolution(la, lb, n_fft):
    a, b = real(3, la), real(3, lb)
    found = built(lambda m, a, b: (m.fft_conv1d(a, b, n_fft), m.fft_conv1d(a, b, norm="forward")), {"a": a, "b": b})
    want = np.stack([np.convolve(x, y) for x, y in zip(a.astype(np.float64), b, strict=True)])
    near(found[0], want)
    near(found[1], want / (1 << (la + lb - 2).bit_length()))


def test_densities_and_frequencies():
    re, im = real(2, 5), real(2, 5, seed=1)
    density, of_rows = built(lambda m, re, im: (m.psd(re, im), m.psd_real(re)), {"re": re, "im": im})
    near(density, (re**2 + im**2) / 5)
    near(of_rows, np.abs(np.fft.rfft(re)) ** 2 / 3)
    for n in (1, 2, 5, 8):
        module = GraphModule.mir("frequencies")
        outputs = {"all": module.fftfreq_tensor(n, 0.5), "half": module.rfftfreq_tensor(n)}
        module.set_outputs({name: module.neg(value) for name, value in outputs.items()})
        found = interpret(module, {})
        np.testing.assert_array_equal(-found["all"], np.fft.fftfreq(n, 0.5))
        np.testing.assert_array_equal(-found["half"], np.fft.rfftfreq(n))


def test_errors_name_what_is_wrong():
    module = GraphModule.mir("wrong")
    x, free = module.input("x", [2, 6]), module.input("free", [2, "n"])
    nothing, odd = module.input("nothing", [2, 0]), module.input("odd", [2, 5])
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: module.fft(nothing), "expects the last dimension of 'x' to be static and positive, but got 0"),
        (lambda: module.fft(free), r"expects the last dimension of 'x' to be static and positive, but got \?"),
        (lambda: module.fft(odd), "expects the last dimension of 'x' to be even"),
        (lambda: module.fft(x, norm="none"), "'norm' is one of backward, forward, ortho, but got 'none'"),
        (lambda: module.rfft(free), "'rfft' expects the last dimension of 'x' to be static"),
        (lambda: module.rfft(nothing), "'rfft' expects 'n' to be from 1 to .*, but got 0"),
        (lambda: module.irfft(x, x, 0), "'irfft' expects 'n' to be from 1 to .*, but got 0"),
        (lambda: module.fftn(x), "'fftn' along more than one dimension expects 'x' to be of complex<f32>"),
        (lambda: module.split_spectrum(odd), "'split_spectrum' expects an even last dimension, but got 5"),
        (lambda: module.stft(x, 7, 1), "'stft' expects rows of 'x' to have 7 numbers at least"),
        (lambda: module.stft(x, 4, 0), "'stft' expects 'hop' to be from 1"),
        (lambda: module.fft_conv1d(x, free), "'fft_conv1d' expects the last dimension of 'b' to be static"),
        (lambda: module.fftfreq_tensor(0), "'fftfreq_tensor' expects 'n' to be from 1"),
        (lambda: module.fftfreq_tensor(4, 0), "expect 'd' to be a number other than 0"),
    ]
    for build, message in cases:
        with pytest.raises(BuildError, match=message):
            build()


# ----------------------------------------------------------------------------------------------------------------------
# GPUs
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [12, pytest.param(97, marks=pytest.mark.slow)])
def test_kernels_for_gpus_run_as_loops(n):
    module = program(n, "f32")
    executable = compile_emulated(module)
    for rows in (0, 1, 5):
        x = stored(numbers(rows, n), "f32")
        assert error(complexes(executable.run({"x": x})["y"]), by_sums(complexes(x))) < limit("f32", n)


def test_ptx_is_complete():
    assert not calls(rlx.emit(program(8, "f32"), "ptx", target="nvptx", chip="sm_80"))
