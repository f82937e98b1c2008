# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of StableHLO with symbolic sizes, called with arrays, of whose sizes JAX's tools infer all others."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import numpy as np

from rlx_mlir.against.rivals import Jax
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.exports.stablehlo.tensors import type_of
from rlx_mlir.frontends.stablehlo.reader import parsed

_WORDS = {dtype: word for word, dtype in DTYPES.items()}
_SIGNATURE = re.compile(r"function_type = \((.*?)\) -> \((.*?)\), res_attrs")
_END = "}) : () -> ()"


def called(text: str, arrays: Sequence[np.ndarray]) -> str:
    """A module whose `main` has the types of arrays, and calls what was `main`."""
    signature = _SIGNATURE.search(text)
    assert signature is not None
    wanted, kinds = signature[1].split(", "), signature[2]
    given = [type_of(array.shape, _WORDS[array.dtype]) for array in arrays]
    count = len(kinds.split(", "))
    found = ", ".join(f"%r#{number}" for number in range(count)) if count > 1 else "%r"
    lines = [
        f'    %c{number} = "stablehlo.convert"(%a{number}) : ({own}) -> {kind}'
        for number, (own, kind) in enumerate(zip(given, wanted, strict=True))
    ]
    converted = ", ".join(f"%c{number}" for number in range(len(given)))
    result = f"%r:{count}" if count > 1 else "%r"
    heads = ", ".join(f"%a{number}: {own}" for number, own in enumerate(given))
    main = [
        f'  "func.func"() <{{function_type = ({", ".join(given)}) -> ({kinds}), sym_name = "main", '
        'sym_visibility = "public"}> ({',
        f"  ^bb0({heads}):",
        *lines,
        f'    {result} = "func.call"({converted}) <{{callee = @inner}}> : ({signature[1]}) -> ({kinds})',
        f'    "func.return"({found}) : ({kinds}) -> ()',
        f"  {_END}",
    ]
    inner = text.replace('"main", sym_visibility = "public"', '"inner", sym_visibility = "private"')
    end = inner.rindex(_END)
    return inner[:end] + "\n".join(main) + "\n" + inner[end:]


def run(text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What XLA computes, after every size was found to be a number."""
    from jaxlib import _jax
    from jaxlib.mlir import ir

    module = parsed(called(text, arrays).encode())
    content = io.BytesIO()
    module.operation.write_bytecode(content)
    refined = _jax.mlir.refine_polymorphic_shapes(
        content.getvalue(), enable_shape_assertions=True, validate_static_shapes=True
    )
    with module.context:
        return Jax().run_text(str(ir.Module.parse(refined)), arrays)
