# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Configuration of lit: our tools as substitutions, FileCheck from the LLVM wheel. Run it as `lit test/lit`."""

import importlib.util
import os
import sys
from pathlib import Path

import lit.formats

from rlx_mlir.codegen.gpu.assembler import find_assembler


def package(name: str) -> Path:
    """The folder of an installed package, which isn't imported."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        lit_config.fatal(f"package '{name}' isn't installed for {sys.executable}: pip install '.[test]'")
    return Path(next(iter(spec.submodule_search_locations)))


package("rlx_mlir")
config.name = "rlx-mlir"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.excludes = ["Output"]
config.test_source_root = str(Path(__file__).parent)
config.test_exec_root = str(Path(lit_config.params.get("exec_root", Path(__file__).parent / "Output")))
if "PYTHONPATH" in os.environ:  # of a copy of the package that has a fault
    config.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
if find_assembler() is not None:
    config.available_features.add("ptxas")
config.environment["OPENBLAS_NUM_THREADS"] = "1"  # threads that wait take processors from other tests
config.environment["FILECHECK_OPTS"] = "-enable-var-scope --dump-input=fail"
if lit_config.maxIndividualTestTimeIsSupported[0]:  # where psutil is installed
    config.maxIndividualTestTime = 120
sys.path.insert(0, config.test_source_root)
from opt_server import start  # noqa: E402  # lit runs this file by itself

config.substitutions += [
    (r"\brlx-opt\b", start(config.environment)),
    (r"\bFileCheck\b", str(package("llvm") / "bin" / "FileCheck")),
]
