# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How operations that users registered are drawn, and one that is there to be drawn in any case."""

from __future__ import annotations

import numpy as np

from rlx_mlir.attributes import PythonValue
from rlx_mlir.errors import BuildError
from rlx_mlir.fuzz.draft import Draft, Skip, word
from rlx_mlir.fuzz.primitives import generates
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.own_ops import OwnOp, Parameters, TensorSpec, register_op, registered_ops


@generates("mir.custom")
def custom(draft: Draft) -> None:
    own = draft.choose(registered_ops())
    operands, parameters = _sampled(draft, own) if own.sample is not None else _default(draft, own)
    try:
        results = draft.module.custom(own.name, *operands, **parameters)
    except BuildError:
        if own.sample is not None:
            raise
        raise Skip from None  # not every operation takes operands that are alike
    draft.values += results if isinstance(results, tuple) else [results]


def _sampled(draft: Draft, own: OwnOp) -> tuple[list[Value], dict[str, PythonValue]]:
    assert own.sample is not None
    specs, parameters = own.sample(draft.rng)
    return [draft.like(spec.shape, spec.dtype) for spec in specs], parameters


def _default(draft: Draft, own: OwnOp) -> tuple[list[Value], dict[str, PythonValue]]:
    """Operands of one shape and type, and the defaults of parameters."""
    first = draft.floating(1)
    count = 2 if own.operand_count is None else own.operand_count
    return [first, *(draft.like(first.shape, word(first)) for _ in range(count - 1))], {}


def _mixed(x: TensorSpec, y: TensorSpec, *, part: float = 0.25) -> TensorSpec:
    return x


def _mix(x: np.ndarray, y: np.ndarray, *, part: float) -> np.ndarray:
    return np.asarray(x + (y - x) * np.array(part, x.dtype))


def _lower_mix(m: GraphModule, x: Value, y: Value, *, part: float) -> Value:
    return x + (y - x) * part


def _sample_mix(rng: np.random.Generator) -> tuple[list[TensorSpec], Parameters]:
    spec = TensorSpec(tuple(int(size) for size in rng.integers(0, 9, rng.integers(1, 4))), "f32")
    return [spec, spec], {"part": float(rng.choice([0.25, 0.5]))}


#: CPUs call the kernel, GPUs take the lowering.
register_op("fuzz.mix", infer=_mixed, reference=_mix, lowering=_lower_mix, kernel=_mix, sample=_sample_mix)
