# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Factors of matrices that readers of graphs build: what numpy finds, or what has the same product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx_mlir import GraphModule, compile, interpret
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.frontends import factors

SIZES = (1, 2, 3, 8)
SHAPES = [(n + more, n) for n in SIZES for more in (0, 3)] + [(2, 5), (1, 4)]
EPS = {"f32": 2e-5, "f64": 1e-12}


def found(function: Callable[..., Any], a: np.ndarray, *, compiled: bool = False) -> list[np.ndarray]:
    """What a function of matrices [b, M, N] gives."""
    m = GraphModule.mir("factors")
    values = function(m, m.input("a", ["b", *a.shape[1:]], "f64" if a.itemsize == 8 else "f32"))
    values = values if isinstance(values, tuple) else (values,)
    m.set_outputs({f"y{number}": value for number, value in enumerate(values)})
    results = compile(m).run({"a": a}) if compiled else interpret(m, {"a": a})
    return list(results.values())


def drawn(*shape: int, dtype: str = "f64") -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype({"f32": np.float32, "f64": np.float64}[dtype])


def is_close(x: np.ndarray, wanted: np.ndarray, dtype: str = "f64") -> None:
    scale = max(np.abs(wanted).max(initial=0), 1)
    np.testing.assert_allclose(x, wanted, atol=EPS[dtype] * scale, rtol=0)


def orthonormal(q: np.ndarray) -> None:
    is_close(q.transpose(0, 2, 1) @ q, np.broadcast_to(np.eye(q.shape[2]), (len(q), q.shape[2], q.shape[2])))


@pytest.mark.parametrize("n", SIZES)
def test_triangles(n: int) -> None:
    a = drawn(3, n, n)
    positive = a @ a.transpose(0, 2, 1) + np.eye(n)
    is_close(found(factors.cholesky, np.tril(positive))[0], np.linalg.cholesky(positive))
    a[0, :, 0] = a[0, ::-1, 0] * 1e-3  # whose first pivot isn't in the first row
    is_close(found(factors.determinant, a)[0], np.linalg.det(a))
    for one, wanted in zip(found(factors.log_determinant, a), np.linalg.slogdet(a), strict=True):
        is_close(one, wanted)


def test_matrices_without_factors() -> None:
    singular = np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert not found(factors.determinant, singular)[0].any()
    sign, log = found(factors.log_determinant, singular)
    assert not sign.any()
    assert (log == -np.inf).all()
    assert np.isnan(found(factors.cholesky, -np.eye(2)[None])[0]).any()


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.quick(8)
def test_reflections(shape: tuple[int, int], complete: bool) -> None:
    """Signs are those of LAPACK, too."""
    a = drawn(2, *shape)
    for one, wanted in zip(
        found(lambda m, x: factors.qr(m, x, complete=complete), a),
        np.linalg.qr(a, mode="complete" if complete else "reduced"),
        strict=True,
    ):
        is_close(one, wanted)


@pytest.mark.parametrize("n", SIZES)
def test_symmetric_matrices(n: int) -> None:
    a = drawn(2, n, n)
    a[1] = np.eye(n)  # of equal eigenvalues
    whole = np.tril(a) + np.tril(a, -1).transpose(0, 2, 1)
    values, vectors = found(factors.eigh, a)
    is_close(values, np.linalg.eigvalsh(whole))
    is_close(vectors @ (values[:, :, None] * vectors.transpose(0, 2, 1)), whole)
    orthonormal(vectors)


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.quick(8)
def test_singular_values(shape: tuple[int, int], complete: bool) -> None:
    a = drawn(3, *shape)
    a[1] = a[1, :1] * a[1, :, :1]  # of rank 1
    a[2] = 0
    u, values, v = found(lambda m, x: factors.svd(m, x, complete=complete), a)
    count = min(shape)
    wanted = np.linalg.svd(a, full_matrices=complete)
    assert [own.shape for own in (u, values, v)] == [own.shape for own in wanted]
    is_close(values, wanted[1])
    is_close((u[:, :, :count] * values[:, None]) @ v[:, :count], a)
    orthonormal(u)
    orthonormal(v.transpose(0, 2, 1))


def test_compiled_in_f32() -> None:
    a = drawn(2, 6, 6, dtype="f32")
    positive = a @ a.transpose(0, 2, 1) + np.eye(6, dtype=np.float32)
    is_close(found(factors.cholesky, positive, compiled=True)[0], np.linalg.cholesky(positive), "f32")
    is_close(found(factors.determinant, a, compiled=True)[0], np.linalg.det(a), "f32")
    is_close(found(factors.eigh, positive, compiled=True)[0], np.linalg.eigvalsh(positive), "f32")
    u, values, v = found(factors.svd, a, compiled=True)
    is_close(values, np.linalg.svd(a)[1], "f32")
    is_close((u * values[:, None]) @ v, a, "f32")


def test_sizes_have_to_be_known() -> None:
    m = GraphModule.mir("open")
    with pytest.raises(
        UnsupportedError, match=r"factors of matrices of n x 3 elements: both sizes are known, and not 0"
    ):
        factors.qr(m, m.input("a", [2, "n", 3]))
