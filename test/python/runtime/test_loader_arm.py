# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loader of AArch64, under an emulator: what compilers write runs, compiled modules compute what they should."""

from __future__ import annotations

import subprocess
from pathlib import Path

import foreign
import numpy as np
import pytest
from test_loader import DATA

from rlx_mlir import GraphModule
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.runtime.executable import Executable

ARM = "aarch64"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(foreign.missing_tools(ARM)), reason=f"needs {foreign.missing_tools(ARM)}"),
]
COMPILER, EMULATOR = foreign.TOOLS[ARM]

MAIN = """
#include <stdio.h>
extern void *find(const char *);
#define CALL(name) ((int (*)(int, int))find(#name))
int main(void) {
  printf("%d %d", CALL(counted)(0, 0), CALL(counted)(0, 0));
  for (int i = 0; i < 3; ++i) printf(" %d", CALL(at)(i, 0));
  printf(" %d %d", CALL(put)(999, 50), CALL(got)(999, 0));
  for (int i = 0; i < 2; ++i) printf(" %d", CALL(apply)(i, 5));
  for (int i = 0; i < 8; ++i) printf(" %d", CALL(chosen)(i, 0));
  printf(" %.6f %d\\n", ((double (*)(double))find("power"))(2.5), CALL(missing)(0, 0));
}
"""
MORE = """
#include <math.h>
extern int nobody(void) __attribute__((weak));
int missing(void) { return nobody ? nobody() : -1; }
double power(double x) { return pow(x, 3) + expf(1) * 0; }
"""
EXPECTED = "4 5 13 6 10 50 100 10 15 7 8 2 11 12 -1 0 100 15.625000 -1"


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return foreign.compile_loader(ARM, tmp_path_factory.mktemp("loader"))


@pytest.mark.parametrize(
    "options",
    [
        ("-O0", "-fPIC"),
        ("-O2", "-fPIC"),
        ("-Os", "-fPIC", "-fdata-sections"),
        ("-O2", "-fPIC", "-fno-plt"),
        ("-O2", "-fpic", "-mcmodel=tiny"),
        ("-O2", "-fno-pic"),
        ("-O2", "-fno-pic", "-mcmodel=large"),
    ],
)
def test_what_a_compiler_writes_runs(tmp_path: Path, loader: list[str], options: tuple[str, ...]) -> None:
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "code.c").write_text(f"{DATA}{MORE}")
    (tmp_path / "code2.c").write_text("int common[1000];")
    program = str(tmp_path / "program")
    for command in (
        [COMPILER, *options, "-fcommon", "-c", "code.c", "code2.c"],
        [COMPILER, "-c", "main.c"],
        [COMPILER.replace("gcc", "g++"), "-static", "-o", program, "main.o", *loader],
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([EMULATOR, program], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout.strip(), done.stderr) == (EXPECTED, "")


FEATURES = """
#include "runtime/processor.h"
#include <cstdio>
int main() {
  const rlx::runtime::Processor &own = rlx::runtime::hostProcessor();
  std::printf("%s\\n%s\\n", own.architecture.c_str(), own.features.c_str());
}
"""


def test_what_processors_have(tmp_path: Path) -> None:
    """Those that the emulator knows, and what their makers say that they have."""
    (tmp_path / "own.cpp").write_text(FEATURES)
    command = [COMPILER.replace("gcc", "g++"), "-std=c++17", "-static", "-I", str(foreign.ROOT), "-o", "own", "own.cpp"]
    subprocess.run([*command, str(foreign.ROOT / "runtime" / "processor.cpp")], cwd=tmp_path, check=True)
    later = {"dotprod", "fullfp16", "lse", "rcpc", "rdm"}
    for cpu, expected in (("cortex-a53", set()), ("cortex-a72", set()), ("cortex-a76", later)):
        done = subprocess.run([EMULATOR, "-cpu", cpu, "own"], cwd=tmp_path, capture_output=True, text=True, check=True)
        architecture, features = done.stdout.split()
        assert architecture == ARM
        assert {word[1:] for word in features.split(",") if word[0] == "+"} == {
            *("aes", "crc", "fp-armv8", "neon", "sha2"),
            *expected,
        }


@pytest.mark.parametrize("cpu", ["cortex-a72", "cortex-a76"])
def test_compiled_modules_run(tmp_path: Path, loader: list[str], cpu: str) -> None:
    m = GraphModule.hir("mixed")
    x, w = m.input("x", ["rows", 64]), m.param("w", [64, 32])
    m.set_outputs({"y": m.softmax(m.tan(m.linear(x, w)), -1), "z": m.tanh(x), "t": m.cumsum(x, 0)})
    options = {"maxima": {"rows": 9}}
    here = Executable(build_artifact(m, CompileOptions(**options)))
    there = build_artifact(m, CompileOptions(**options, triple="aarch64-linux-gnu", cpu=cpu))
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((64, 32)).astype(np.float32)}
    here.set_params(params)
    for rows in (1, 9):
        inputs = {"x": rng.standard_normal((rows, 64)).astype(np.float32)}
        found, linked = (foreign.run_foreign(there, params, inputs, tmp_path, own) for own in (loader, ()))
        for name, array in here.run(inputs).items():
            np.testing.assert_array_equal(found[name], linked[name])
            np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-5, err_msg=name)
