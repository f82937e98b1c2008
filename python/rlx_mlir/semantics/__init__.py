# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What functions and operations mean, without building any: arguments, sizes, references of blocks, conditions."""
