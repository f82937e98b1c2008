# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What runs compiled models: the thread pool, the object loader, plans, and executables. Needs no MLIR."""
