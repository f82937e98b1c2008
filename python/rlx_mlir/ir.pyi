# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The classes of the MLIR bindings are native and come without types.

from typing import Any

native: Any

def register_native_passes() -> None: ...
def new_context() -> Any: ...
def __getattr__(name: str) -> Any: ...
