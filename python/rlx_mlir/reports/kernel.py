# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One kernel of a module, at any stage that has kernels: for whoever reads its code."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlx_mlir import ir
from rlx_mlir.errors import InputError, did_you_mean
from rlx_mlir.rewriting import operations

#: An entry of PTX, with the name that it has.
_ENTRY = re.compile(r"^(?:\.visible )?\.entry (\w+)\(.*?^\}\n*", re.DOTALL | re.MULTILINE)
_GLOBAL = re.compile(r"^\t// \.globl\t(\w+).*\n", re.MULTILINE)


def check_kernel(kernel: str, known: Sequence[str], module: str) -> None:
    """Raises InputError where a module, whose kernels are known, has none of this name."""
    if kernel not in known:
        listed = ", ".join(known) or "none"
        raise InputError(f"'{module}' has no kernel '{kernel}'{did_you_mean(kernel, known)}; it has {listed}")


def keep_kernel(module: ir.AnyModule, kernel: str) -> None:
    """Erases the functions that don't belong to a kernel; what it may call and constants stay."""
    for op in list(operations(module, nested=False)):
        if op.name == "gpu.module":
            _keep(list(operations(op, nested=False)), kernel)
        else:
            _keep([op], kernel)


def _keep(listed: Sequence[ir.AnyOp], kernel: str) -> None:
    for op in listed:
        # What code calls outside of the module is declared as an llvm.func, and stays.
        is_function = op.name in ("func.func", "gpu.func") or (op.name == "llvm.func" and len(op.regions[0].blocks))
        # What a kernel's code relies on, as words.
        is_signature = op.name == "llvm.mlir.global" and str(op.attributes["sym_name"]).endswith('_signature"')
        if (is_function or is_signature) and not _belongs(ir.StringAttr(op.attributes["sym_name"]).value, kernel):
            op.erase()


def kernel_of_ptx(text: str, kernel: str) -> str:
    """The text with the entries that belong to a kernel alone."""
    text = _ENTRY.sub(lambda found: found.group(0) if _belongs(found.group(1), kernel) else "", text)
    return _GLOBAL.sub(lambda found: found.group(0) if _belongs(found.group(1), kernel) else "", text)


def _belongs(function: str, kernel: str) -> bool:
    """Whether a function is a kernel's, or one of its parts: `NAME.body`, `NAME_units`, `NAME_wgmma_0_64x128`."""
    return function == kernel or function.startswith((f"{kernel}.", f"{kernel}_"))
