# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules, and what is done to them, for people: fusion, ranges, memory, pictures, dumps. Nothing is imported here."""
