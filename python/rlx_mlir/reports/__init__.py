# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler did, for people: fusion, ranges, dumps of passes, differences. Nothing is imported here."""
