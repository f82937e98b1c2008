# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The classes of the MLIR bindings are native; their stubs, where there are some, don't fit how dialects extend them.

from typing import Any

from rlx_mlir import _compiler

native = _compiler

def register_native_passes() -> None: ...
def new_context() -> Any: ...
def __getattr__(name: str) -> Any: ...
