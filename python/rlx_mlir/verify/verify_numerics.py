# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `rlx-verify-numerics`: whether a module still computes what it did at an earlier point of its pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlx_mlir import ir
from rlx_mlir.errors import InputError, reason_of
from rlx_mlir.rewriting import Option, compiler_pass, identity

if TYPE_CHECKING:
    from rlx_mlir.verify import NumericVerifier


@dataclass
class _Followed:
    """A module as it was last seen, in a context of its own: that of the running pipeline may not change."""

    module: ir.Module
    text: str
    verifier: NumericVerifier


_followed: dict[int, _Followed] = {}


@compiler_pass(
    "rlx-verify-numerics",
    options={
        "after": Option("the pass that ran since, as a pipeline: its tolerance applies, its rewrites are searched", ""),
        "begin": Option("start to follow the module, and compare nothing", False),
        "reference": Option("file of a module to compare with; where empty, the module as it was last followed", ""),
        "seed": Option("of the random inputs", 0, least=0),
        "nan": Option("use inputs with NaN and infinities, too", False),
    },
)
def verify_numerics(module: ir.Operation, *, after: str, begin: bool, reference: str, seed: int, nan: bool) -> None:
    """Interpret the module on small inputs and compare with what it gave before.

    `rlx-opt --rlx-verify-numerics --pass-pipeline=...` puts this pass before and after each pass of the pipeline.
    Modules that can't be interpreted (after stage kernels) are passed over.
    """
    from rlx_mlir.verify import NumericVerifier, compare_modules
    from rlx_mlir.verify.numerics import is_interpretable

    text = module.get_asm(enable_debug_info=True)
    context = ir.new_context()
    with ir.single_threaded(context):
        current = ir.Module.parse(text, context)
    if reference:
        compare_modules(_read(reference, current.context), current, step=after, seed=seed, nan=nan)
        return
    key = identity(module)
    if begin:
        _followed[key] = _Followed(current, text, NumericVerifier(current, seed=seed, nan=nan))
        return
    if key not in _followed:
        raise InputError("option 'reference' is a file, or an earlier 'rlx-verify-numerics{begin=true}' saw the module")
    known = _followed[key]
    if not is_interpretable(current) or text == known.text:
        return
    known.verifier.changed(after, known.module, current)
    known.module, known.text = current, text


def _read(path: str, context: ir.Context) -> ir.Module:
    try:
        module: ir.Module = ir.Module.parse(Path(path).read_text(), context)
        return module
    except (OSError, ir.MLIRError) as error:
        raise InputError(f"option 'reference' is a file with a module, but {path}: {reason_of(error)}") from None
