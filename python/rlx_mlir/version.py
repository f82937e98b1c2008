# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The version of the package; pyproject.toml reads it from here."""

__version__ = "0.1.0"
