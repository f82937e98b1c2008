# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python classes of the operations of both dialects, generated from ODS."""
