# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is asked of an error that refuses a fuzzer's case."""

from __future__ import annotations

from rlx_mlir.errors import RlxError

__all__ = ["check_refusal"]


def check_refusal(error: RlxError) -> None:
    """Raises what isn't a refusal: a lack of memory, and AssertionError for an error that says nothing."""
    if isinstance(error.__cause__, MemoryError):
        raise error.__cause__ from None
    if not str(error):
        raise AssertionError(f"{type(error).__name__} without a message") from error
