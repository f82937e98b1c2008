# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that users register with kernels of C: what compiled code gives them, and what they may return."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import Executable, GraphModule, TensorSpec, own_ops, register_op
from rlx_mlir.errors import ExecutionError, InputError, RlxError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def forget_operation() -> Iterator[None]:
    """The operation of a test is gone after it."""
    yield
    if any(own.name == "own.half_sum" for own in own_ops.registered_ops()):
        own_ops.unregister_op("own.half_sum")


C_SOURCE = """
#include <stdint.h>

int64_t half_sum(void *const *buffers, const int64_t *sizes, const double *parameters) {
  const float *x = buffers[0], *y = buffers[1];
  float *z = buffers[2];
  if (sizes[0] != sizes[1] || sizes[0] != sizes[2])
    return 1;
  for (int64_t i = 0; i < sizes[0]; ++i)
    z[i] = (x[i] + y[i]) * (float)parameters[0] + (float)parameters[1];
  return 0;
}

int64_t fails(void *const *buffers, const int64_t *sizes, const double *parameters) { return 17; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("c")
    (folder / "own.c").write_text(C_SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "libown.so", "own.c"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "libown.so"))


def half_sum_module(kernel: Any, **parameters: Any) -> GraphModule:
    def infer(x: TensorSpec, y: TensorSpec, *, more: float = 0.1, by: float = 0.5) -> TensorSpec:
        return x

    def reference(x: np.ndarray, y: np.ndarray, *, more: float, by: float) -> np.ndarray:
        return (x + y) * np.float32(by) + np.float32(more)

    register_op("own.half_sum", infer=infer, reference=reference, kernel=kernel)
    m = GraphModule.mir("net")
    m.set_outputs({"z": m.custom("own.half_sum", m.input("x", ["n"]), m.input("y", ["n"]), **parameters)})
    return m


def test_compiled_code_calls_a_function_of_c(library: ctypes.CDLL) -> None:
    """Parameters come in the order of their names."""
    m = half_sum_module(library.half_sum, more=0.5, by=1 / 3)
    executable = rlx.compile(m, cache=False, verify="numeric")
    for n in (0, 1, 7):
        x, y = RNG.standard_normal((2, n)).astype(np.float32)
        assert np.allclose(executable(x, y), (x + y) * np.float32(1 / 3) + np.float32(0.5), rtol=1e-5)


def test_what_a_function_of_c_returns_is_an_error(library: ctypes.CDLL) -> None:
    executable = rlx.compile(half_sum_module(library.fails), cache=False)
    given = np.ones(3, np.float32)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"the kernel of 'own.half_sum' gave the error number 17"):
            executable(given, given)


def test_functions_of_c_have_an_address_and_need_no_lock(library: ctypes.CDLL) -> None:
    nothing = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)()
    with pytest.raises(InputError, match="a function of C at no address"):
        half_sum_module(nothing)
    with pytest.raises(InputError, match=r"a function of a ctypes.PyDLL, which needs the interpreter's lock"):
        half_sum_module(ctypes.PyDLL(library._name).half_sum)


def test_functions_of_c_take_numbers(library: ctypes.CDLL) -> None:
    with pytest.raises(RlxError, match="is of C and takes numbers, but 'by' is 'x'"):
        rlx.compile(half_sum_module(library.half_sum, by="x"), cache=False)


def test_an_artefact_says_of_what_language_its_kernels_are(library: ctypes.CDLL) -> None:
    artifact = rlx.compile(half_sum_module(library.half_sum), cache=False).artifact
    assert Executable(artifact)(np.ones(2, np.float32), np.ones(2, np.float32)) is not None
    own_ops.unregister_op("own.half_sum")
    half_sum_module(lambda x, y, *, more, by: x)
    with pytest.raises(ExecutionError, match="as a function of C, but its kernel is one of Python: compile it again"):
        Executable(artifact)
