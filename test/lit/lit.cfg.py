# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Configuration of lit: our tools as substitutions, FileCheck from the LLVM wheel."""

import importlib.util
import sys
from pathlib import Path

import lit.formats

config.name = "rlx-mlir"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = str(Path(__file__).parent)
config.test_exec_root = str(Path(lit_config.params.get("exec_root", Path(__file__).parent / "Output")))
config.excludes = ["Output"]

llvm = Path(next(iter(importlib.util.find_spec("llvm").submodule_search_locations)))
config.substitutions.append((r"\brlx-opt\b", f"{sys.executable} -m rlx_mlir.tools.opt"))
config.substitutions.append((r"\bFileCheck\b", str(llvm / "bin" / "FileCheck")))
config.environment["FILECHECK_OPTS"] = "-enable-var-scope --dump-input=fail"
config.maxIndividualTestTime = 120
