# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether the description of an artefact agrees with itself: what the plan's own checks, in C++, take from it.

Nothing here says that code is harmless: an artefact is code. A description that is damaged, or of another code, is
refused with an error, before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from rlx_mlir.boundary import foreign_errors
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import ExecutionError, InputError
from rlx_mlir.runtime import sizes
from rlx_mlir.runtime.artifact import Artifact, BufferSpec, Preparation
from rlx_mlir.runtime.sizes import Terms

#: Of an input, parameter or output as the plan takes it: bytes of an element, and sizes.
Extent = tuple[int, list[Terms]]


@contextmanager
def described(artifact: Artifact) -> Iterator[None]:
    """Turns what is raised while a description is read, in which anything may be of any type, into ExecutionError."""
    name = artifact.name if isinstance(artifact.name, str) else "the artefact"
    with foreign_errors(f"'{name}' has a description that makes no sense", ExecutionError):
        yield


def check_description(artifact: Artifact) -> None:
    """Raises ExecutionError where parts of the description contradict each other."""
    with described(artifact):
        _check_types(artifact)
        symbols = {name: number for number, (name, _) in enumerate(artifact.symbols)}
        for kind, specs in (("input", artifact.inputs), ("parameter", artifact.plan_parameters)):
            for spec in specs:
                _check_shape(kind, spec, symbols)
        given = {spec.name: spec for spec in (*artifact.plan_parameters, *artifact.inputs)}
        for spec in artifact.outputs:
            _check_output(spec, given, len(symbols))
        _check_preparation(artifact.preparation, artifact)
        for own in artifact.conditions:
            sizes.check(own.left[1], len(symbols))
            sizes.check(own.right[1], len(symbols))


def extents(artifact: Artifact) -> tuple[list[Extent], list[Extent], list[Extent]]:
    """How large the inputs, the plan's parameters and the outputs are, of a description that was checked.

    Inputs and parameters are as large as their shapes say, to which arrays are compared at each call.
    """
    symbols = {name: number for number, (name, _) in enumerate(artifact.symbols)}

    def given(spec: BufferSpec) -> Extent:
        found: list[Terms] = []
        for size in spec.shape:
            if isinstance(size, int):
                found.append([(size, [])])
            elif size in symbols:
                found.append([(1, [symbols[size]])])
            else:
                return 1, [[(0, [])]]  # No call reads what has a symbol that the plan doesn't have.
        return DTYPES[spec.dtype].itemsize, found

    outputs = [(DTYPES[spec.dtype].itemsize, list(spec.sizes)) for spec in artifact.outputs]
    return [given(spec) for spec in artifact.inputs], [given(spec) for spec in artifact.plan_parameters], outputs


#: An array that compiled code reads or writes: of numpy, or a `DeviceArray` where a GPU runs the code and the caller
#: asked for it, so that whoever asked needn't tell them apart.
RunArray: TypeAlias = Any


def plan_of(artifact: Artifact) -> dict[str, Any]:
    """What a plan is made from: what `rlx_mlir._runtime.Plan` takes, in the order in which files have it."""
    return {
        "symbols": artifact.symbols,
        "arena_bytes": artifact.arena_bytes,
        "slots": artifact.slots,
        "kernels": artifact.kernels,
        "inputs": [spec.name for spec in artifact.inputs],
        "params": [spec.name for spec in artifact.plan_parameters],
        "outputs": [spec.name for spec in artifact.outputs],
        "calls": artifact.calls,
        "blocks": [own.words for own in artifact.blocks],
        "positions": [
            (own.kind, own.index, own.count[1], own.rows[1], own.limit[1], own.where) for own in artifact.positions
        ],
        "extents": extents(artifact),
    }


def check_prepared(spec: BufferSpec, array: RunArray) -> None:
    """Raises ExecutionError where a prepared parameter hasn't the size that the plan reads."""
    fits = array.ndim == len(spec.shape) and all(
        size == own for size, own in zip(spec.shape, array.shape, strict=True) if isinstance(size, int)
    )
    if not fits or array.itemsize != DTYPES[spec.dtype].itemsize:
        raise ExecutionError(
            f"parameter '{spec.name}' is {list(array.shape)} of {array.dtype} once it is prepared, but the plan reads "
            f"{list(spec.shape)} of {spec.dtype}"
        )


def _check_types(artifact: Artifact) -> None:
    for specs in (artifact.inputs, artifact.parameters, artifact.plan_parameters, artifact.outputs):
        names = [spec.name for spec in specs]
        if len(set(names)) != len(names):
            raise InputError(f"names occur twice: {', '.join(names)}")
        for spec in specs:
            if not isinstance(spec.name, str) or spec.dtype not in DTYPES:
                raise InputError(f"'{spec.name}' has the element type {spec.dtype!r}")
            if not all((type(size) is int and size >= 0) or isinstance(size, str) for size in spec.shape):
                raise InputError(f"'{spec.name}' has the shape {list(spec.shape)}")
    for word in (*artifact.target.values(), *artifact.kernels, *artifact.templates.values(), artifact.name):
        if not isinstance(word, str):
            raise InputError(f"{word!r} stands where a text is needed")


def _check_shape(kind: str, spec: BufferSpec, symbols: Mapping[str, int]) -> None:
    """The shape of an input says what its sizes say."""
    expected: list[list[tuple[int, list[int]]]] = [
        [(size, [])] if isinstance(size, int) else [(1, [symbols.get(size, -1)])] for size in spec.shape
    ]
    for size, own, terms in zip(spec.shape, expected, spec.sizes, strict=True):
        known = isinstance(size, int) or size in symbols
        if known and list(terms) != (own if size != 0 else []) and list(terms) != own:
            raise InputError(f"{kind} '{spec.name}' has the shape {list(spec.shape)}, but the sizes {list(spec.sizes)}")


def _check_output(spec: BufferSpec, given: Mapping[str, BufferSpec], count: int) -> None:
    """An output's sizes are there; one that is tied is as large as the input or parameter."""
    for size, terms in zip(spec.shape, spec.sizes, strict=True):
        sizes.check(terms, count)
        if isinstance(size, int) and (sum(c for c, _ in terms) != size or any(used for _, used in terms)):
            raise InputError(f"output '{spec.name}' has the shape {list(spec.shape)}, but the sizes {list(spec.sizes)}")
    if spec.tied is not None:
        own = given[spec.tied]
        if own.sizes != spec.sizes or own.dtype != spec.dtype:
            raise InputError(f"output '{spec.name}' is tied to '{spec.tied}', which has another size or type")


def _check_preparation(preparation: Preparation, artifact: Artifact) -> None:
    """Steps read what comes before them, sources are parameters, and results are the plan's parameters."""
    known = {spec.name for spec in artifact.parameters}
    for name in preparation.sources:
        if name not in known:
            raise InputError(f"preparation reads '{name}', which isn't a parameter")
    count = len(preparation.sources)
    for number, step in enumerate(preparation.steps):
        _check_indices(step.operands, count + number)
        for shape in (step.attributes.get("shape"), step.attributes.get("new_shape")):
            if shape is not None and math.prod(max(size, 1) for size in shape) > 1 << 40:
                raise InputError(f"preparation makes an array of shape {shape}")
    _check_indices([index for _, index in preparation.results], count + len(preparation.steps))
    made = {name for name, _ in preparation.results}
    for spec in artifact.plan_parameters:
        if spec.name not in made and spec.name not in known:
            raise InputError(f"nothing gives the parameter '{spec.name}'")


def _check_indices(indices: Sequence[int], count: int) -> None:
    for index in indices:
        if type(index) is not int or not 0 <= index < count:
            raise InputError(f"preparation reads value {index!r} of {count}")


__all__ = ["Extent", "check_description", "check_prepared", "described", "extents", "plan_of"]
