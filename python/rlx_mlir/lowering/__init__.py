# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes and patterns between the stages, and the named pipelines. Importing registers them all."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
