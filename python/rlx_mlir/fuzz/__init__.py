# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fuzzers of the compiler: random graphs, mutated model files, mutated IR text, each case in a child process.

`rlx fuzz` runs them; docs/fuzzing.md says how to read what they find.
"""
