# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands: `rlx` and what it is made of, `rlx-opt`, `rlx-reduce`, `rlx-lsp-server`, `rlx-filecheck`."""
