# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writers of modules for other compilers: StableHLO."""
