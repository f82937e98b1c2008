# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether this machine's GPU computes what the numpy references say: the checks of `rlx check-gpu`."""
