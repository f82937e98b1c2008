# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What operations of MIR are in PyTorch: functions with the arguments of references, of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from rlx_mlir import ir
from rlx_mlir.attributes import PythonValue, elements_array, python_value
from rlx_mlir.mir.packed import packing
from rlx_mlir.mir.registry import call_arguments
from rlx_mlir.pytorch.tensors import WORDS, array_of, tensor_of

Function = Callable[..., Any]

#: By our words of element types.
_TYPES = {word: getattr(torch, name) for name, word in WORDS.items()}
#: PyTorch has these types, but few operators of them.
_RARE = ("ui16", "ui32", "f8E4M3FN", "f8E5M2")


def _wide(function: Function) -> Function:
    """A function of floats, in f32 for such of 16 bits, that is rounded once."""

    def run(x: torch.Tensor, *rest: object, **named: PythonValue) -> torch.Tensor:
        halves = (torch.float16, torch.bfloat16)
        wide = [y.float() if isinstance(y, torch.Tensor) and y.dtype in halves else y for y in (x, *rest)]
        found = function(*wide, **named)
        return found.to(x.dtype) if found.dtype != torch.bool else found

    return run


def _matmul(lhs: torch.Tensor, rhs: torch.Tensor, *, transpose_rhs: bool = False) -> torch.Tensor:
    return lhs @ (rhs.transpose(-1, -2) if transpose_rhs else rhs)


def _reduce(x: torch.Tensor, *, kind: str, axes: Sequence[int], keep_dims: bool = False) -> torch.Tensor:
    if not axes:
        return x
    named: dict[str, bool] = {"keepdim": keep_dims}
    axes = list(axes)
    if kind in ("sum", "mean"):
        return getattr(torch, kind)(x, dim=axes, dtype=x.dtype, **named)
    if kind in ("max", "min"):
        return getattr(torch, f"a{kind}")(x, dim=axes, **named)
    for axis in sorted(axes, reverse=True):
        x = getattr(torch, kind)(x, dim=axis, **({"dtype": x.dtype} if kind == "prod" else {}), **named)
    return x


def _norm(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor | None = None, *, axis: int = -1, eps: float = 1e-5,
          centred: bool) -> torch.Tensor:  # fmt: skip
    rows = x.movedim(axis, -1)
    if centred:
        found = F.layer_norm(rows, rows.shape[-1:], gamma.to(x.dtype), None if beta is None else beta.to(x.dtype), eps)
    else:
        found = F.rms_norm(rows, rows.shape[-1:], gamma.to(x.dtype), eps)
        found = found if beta is None else found + beta
    return found.movedim(-1, axis)


def _layer_norm(x: torch.Tensor, *rest: object, **named: PythonValue) -> torch.Tensor:
    return _norm(x, *rest, centred=True, **named)


def _rms_norm(x: torch.Tensor, *rest: object, **named: PythonValue) -> torch.Tensor:
    return _norm(x, *rest, centred=False, **named)


def _gather(table: torch.Tensor, indices: torch.Tensor, *, axis: int, batch_dims: int = 0) -> torch.Tensor:
    own = indices.long().clamp(0, table.shape[axis] - 1)
    shape = [*table.shape[:axis], *own.shape, *table.shape[axis + 1 :]]
    return table.index_select(axis, own.reshape(-1)).reshape(shape)


def _slice(
    x: torch.Tensor,
    *_: torch.Tensor,
    axis: int,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
    **__: object,
) -> torch.Tensor:
    places = range(*slice(start, stop, step).indices(x.shape[axis]))
    return x.index_select(axis, torch.tensor(list(places), dtype=torch.long))


def _conv(x: torch.Tensor, weight: torch.Tensor, *, stride: Sequence[int] = (1, 1), padding: Sequence[int] = (0, 0),
          dilation: Sequence[int] = (1, 1), groups: int = 1) -> torch.Tensor:  # fmt: skip
    return F.conv2d(x, weight, None, tuple(stride), tuple(padding), tuple(dilation), groups)


def _cumsum(x: torch.Tensor, *, axis: int = -1, exclusive: bool = False) -> torch.Tensor:
    found = torch.cumsum(x, axis, dtype=x.dtype)
    return found - x if exclusive and not x.is_floating_point() else torch.cumsum(torch.cat(
        [torch.zeros_like(x.narrow(axis, 0, 1)), x.narrow(axis, 0, x.shape[axis] - 1)], axis), axis
    ) if exclusive else found  # fmt: skip


def _compare(lhs: torch.Tensor, rhs: torch.Tensor, *, kind: str) -> torch.Tensor:
    return getattr(torch, kind)(lhs, rhs)


def _relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


#: Operations by name, with functions that are called as references are; `shape` and `dtype` are those of the result.
TABLE: dict[str, Function] = {
    "mir.add": torch.add,
    "mir.sub": torch.sub,
    "mir.mul": torch.mul,
    "mir.div": torch.div,
    "mir.max": torch.maximum,
    "mir.min": torch.minimum,
    "mir.pow": _wide(torch.pow),
    "mir.and": torch.bitwise_and,
    "mir.or": torch.bitwise_or,
    "mir.xor": torch.bitwise_xor,
    "mir.not": torch.bitwise_not,
    "mir.compare": _compare,
    "mir.where": torch.where,
    "mir.relu": _relu,
    "mir.matmul": _wide(_matmul),
    "mir.reduce": _wide(_reduce),
    "mir.softmax": _wide(lambda x, *, axis=-1: torch.softmax(x, axis)),
    "mir.layer_norm": _wide(_layer_norm),
    "mir.rms_norm": _wide(_rms_norm),
    "mir.cumsum": _wide(_cumsum),
    "mir.gather": _gather,
    "mir.conv": _wide(_conv),
    "mir.gelu": _wide(lambda x: F.gelu(x)),
    "mir.gelu_approx": _wide(lambda x: F.gelu(x, approximate="tanh")),
    "mir.silu": _wide(F.silu),
    "mir.transpose": lambda x, *, permutation: x.permute(*permutation),
    "mir.concat": lambda *inputs, axis: torch.cat(inputs, axis),
    "mir.narrow": lambda x, *, axis, start, length: x.narrow(axis, start, length),
    "mir.slice": _slice,
    "mir.barrier": lambda x: x,
    **{
        f"mir.{name}": _wide(getattr(torch, name))
        for name in (
            "abs", "atan", "cos", "exp", "log", "neg", "round", "rsqrt", "sigmoid", "sin", "sqrt", "tan", "tanh", "erfc"
        )
    },
}  # fmt: skip


def _shaped(x: torch.Tensor, *_: torch.Tensor, shape: Sequence[int], **__: object) -> torch.Tensor:
    return x.reshape(shape)


def _expanded(x: torch.Tensor, *_: torch.Tensor, shape: Sequence[int], **__: object) -> torch.Tensor:
    return x.expand(*shape)


def _converted(x: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype)


#: The same, which are told the result's shape or element type.
TOLD: dict[str, Function] = {"mir.reshape": _shaped, "mir.expand": _expanded, "mir.cast": _converted}
TABLE |= TOLD


def refused(op: ir.Operation) -> str:
    """Why an operation isn't computed by PyTorch; '' where it is."""
    if op.name == "mir.gather" and "batch_dims" in op.attributes and python_value(op.attributes["batch_dims"]):
        return "a gather along dimensions that go together"
    for value in (*op.operands, *op.results):
        if packing(value.type) is not None:
            return "it reads packed weights"
        word = str(ir.RankedTensorType(value.type).element_type)
        if word not in _TYPES or word in _RARE:
            return f"elements of {word}"
    if op.name == "mir.cast" and _saturates(op):
        return "a cast that saturates, which PyTorch's doesn't"
    return ""


def _saturates(op: ir.Operation) -> bool:
    words = [str(ir.RankedTensorType(value.type).element_type) for value in (op.operands[0], op.results[0])]
    return words[1] not in ("i1", "f16", "bf16", "f32", "f64") and words[0] != "i1"


def run(op: ir.Operation, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of an operation."""
    if op.name == "mir.constant":
        return [elements_array(op.attributes["value"])]
    values, attributes = call_arguments(op, [tensor_of(np.ascontiguousarray(array)) for array in operands])
    kind = ir.RankedTensorType(op.results[0].type)
    if op.name == "mir.cast":
        attributes["dtype"] = _TYPES[str(kind.element_type)]
    elif op.name in TOLD:
        attributes["shape"] = list(kind.shape)
    found = TABLE[op.name](*values, **attributes)
    return [np.ascontiguousarray(array_of(found, "a result")).reshape(kind.shape)]
