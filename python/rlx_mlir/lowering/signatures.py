# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel's code relies on, as words beside the code: a plan is checked against them when it is loaded.

A plan is data, and may be damaged; what compiled code does with a buffer follows from its shape and from the dims that
a call gives. `NAME_signature` holds the shapes of the buffers, and relations of the dims: polynomials that are 0, or at
least 0. `runtime/plan_spec.h` says how they are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_mlir import ir
from rlx_mlir.errors import RlxError
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.registry import result_dims
from rlx_mlir.rewriting import operations
from rlx_mlir.semantics.conditions import conditions

#: Attribute of a kernel's declaration: the relations of its dims, as words.
RELATIONS = "mir.relations"
#: What stands for the number of a dim where a factor is computed of a size and a number, which follow.
_DERIVED = {"floordiv": -1, "max": -2}


def relations(kernel: ir.AnyOp) -> list[int]:
    """The relations of a kernel's dims, as words: what its operations need of sizes, and what results follow from.

    The dims are all open sizes of the arguments, then of the results, in order.
    """
    dims: dict[ir.Value, tuple[Size, ...]] = {}
    numbers: dict[str, int] = {}

    def open_sizes(shape: Sequence[int]) -> tuple[Size, ...]:
        sizes = []
        for size in shape:
            word = f"d{len(numbers)}"
            if size < 0:
                numbers[word] = len(numbers)
            sizes.append(Size.of(word if size < 0 else size))
        return tuple(sizes)

    for argument in kernel.arguments:
        dims[argument] = open_sizes(ir.RankedTensorType(argument.type).shape)
    found: list[tuple[bool, Size]] = []
    *ops, terminator = operations(kernel, nested=False)
    try:
        for op in ops:
            sizes = result_dims(op.opview, [dims[value] for value in op.operands])
            dims.update(zip(op.results, sizes, strict=True))
            found += [(own.at_least, _difference(own.left, own.right)) for own in conditions(op, dims.__getitem__)]
    except RlxError:
        found = []  # Of sizes that are equal in each call, but that nothing says of the kernel alone.
    for value in terminator.operands:
        declared = open_sizes(ir.RankedTensorType(value.type).shape)
        for own, follows in zip(declared, dims.get(value, declared), strict=True):
            found.append((False, _difference(own, follows)))
    words, count = [], 0
    for at_least, size in dict.fromkeys(found):
        if size.constant is not None and (size.constant >= 0 if at_least else size.constant == 0):
            continue
        count += 1
        words += [int(at_least), *_size_words(size, numbers)]
    return [count, *words]


def _size_words(size: Size, numbers: Mapping[str, int]) -> list[int]:
    """Number of terms; for each its coefficient, the number of factors, and these."""
    words = [len(size.terms)]
    for factors, coefficient in size.terms:
        words += [coefficient, len(factors)]
        for factor in factors:
            if isinstance(factor, str):
                words.append(numbers[factor])
            else:
                words += [_DERIVED[factor.kind], factor.number, *_size_words(factor.size, numbers)]
    return words


def _difference(left: Size, right: Size) -> Size:
    return left + right * -1


def signature(name: str, kinds: Sequence[tuple[int, Sequence[int]]], relation_words: Sequence[int]) -> str:
    """Text of the words of a kernel as a constant.

    Args:
        kinds: of each buffer, bytes of an element, and the shape.
        relation_words: what `relations` gives.
    """
    words = [len(kinds)]
    for element, shape in kinds:
        words += [element, len(shape), *(max(size, -1) for size in shape)]
    words += relation_words
    words.insert(0, len(words) + 1)
    listed = ", ".join(map(str, words))
    return (
        f"llvm.mlir.global external constant @{name}_signature(dense<[{listed}]> : tensor<{len(words)}xi64>) "
        f": !llvm.array<{len(words)} x i64>\n"
    )
