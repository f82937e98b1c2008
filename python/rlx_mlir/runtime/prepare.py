# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Preparation of parameters: the operations of `@prepare`, in numpy."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import mmap
import weakref
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rlx_mlir import formats
from rlx_mlir.dtypes import DTYPES, word_of
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.formats import affine
from rlx_mlir.runtime.artifact import Preparation, PrepareStep
from rlx_mlir.runtime.description import RunArray

Array = np.ndarray


def _repack(weight: Array, *, scheme: str, k: int, layout: str = "panels") -> Array:
    rows = weight.view(np.uint8) if scheme not in ("f32", "f16", "bf16") else weight
    pack = formats.pack_planes if layout == "planes" else formats.pack_panels
    return pack(scheme, np.ascontiguousarray(rows).view(np.uint8).reshape(rows.shape[0], -1), k).view(np.int8)


def _narrow(x: Array, *, axis: int, start: int, length: int) -> Array:
    return x[(slice(None),) * axis + (slice(start, start + length),)]


def _reshape(x: Array, *, new_shape: Sequence[int]) -> Array:
    return x.reshape([x.shape[i] if size == -2 else size for i, size in enumerate(new_shape)])


def constant_step(array: Array) -> dict[str, object]:
    """The attributes of a step that gives the array: plain data, in which equal elements stand once."""
    data = np.ascontiguousarray(array).reshape(-1)
    if data.size and np.all(data.view(np.uint8).reshape(data.size, -1) == data[:1].view(np.uint8)):
        data = data[:1]
    dtype = word_of(array.dtype)
    return {"dtype": dtype, "shape": list(array.shape), "data": base64.b64encode(data.tobytes()).decode()}


def _constant(*, dtype: str, shape: Sequence[int], data: str) -> Array:
    flat = np.frombuffer(base64.b64decode(data), DTYPES[dtype])
    return flat.reshape(shape) if flat.size == math.prod(shape) else np.broadcast_to(flat, shape)


def _cast(x: Array, *, dtype: str) -> Array:
    kind = DTYPES[dtype]
    return affine.saturate(x, kind) if kind.kind == "i" else x.astype(kind)


#: What can run when parameters are set; other operations stay in the module.
OPERATIONS: dict[str, Callable[..., Array]] = {
    "constant": _constant,
    "concat": lambda *inputs, axis: np.concatenate(inputs, axis=axis),
    "transpose": lambda x, *, permutation: np.transpose(x, permutation),
    "narrow": _narrow,
    "reshape": _reshape,
    "expand": lambda x, *, shape: np.broadcast_to(x, shape),
    "cast": _cast,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "quantize": affine.quantize,
    "round": np.rint,
    "repack": _repack,
}


@dataclass(frozen=True)
class Prepared:
    """A prepared parameter, as executables share it.

    Attributes:
        array: what code reads, in memory of the host or of a GPU.
        files: the mappings of files that it was computed from; once one is gone, its addresses mean nothing.
    """

    array: RunArray
    files: tuple[weakref.ref[mmap.mmap], ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether what identifies its sources still does."""
        return all(file() is not None for file in self.files)


#: Prepared parameters by the formula and the sources that give them.
Shared = MutableMapping[str, Prepared]


class Kept(dict[str, Prepared]):
    """Shared parameters that a subclass takes from elsewhere, where they outlast the process.

    Attributes:
        mappings: the mapped files whose parts are told apart by where they lie in them, not by their contents; in an
            order that is the same in each process.
    """

    mappings: Sequence[mmap.mmap] = ()

    def obtain(self, key: str, compute: Callable[[], Array]) -> Array:
        """A prepared parameter: what `compute` gives, or has given before; several threads may ask.

        Args:
            key: the formula and the contents that give it, the same in each process.
            compute: computes it.
        """
        raise NotImplementedError


def _owner(source: Array) -> object:
    """What has the memory of an array."""
    owner: object = source
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner


def _kind(source: Array) -> str:
    return f"{source.dtype}{list(source.shape)}"


def _contents(source: Array) -> str:
    contents = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
    return f"{_kind(source)} sha256:{hashlib.sha256(contents.data).hexdigest()}"


def _identify(source: Array) -> tuple[str, weakref.ref[mmap.mmap] | None]:
    """What tells the contents of an array from all others, and the mapping that has to be alive for that.

    Memory of a file that is mapped to be read has contents that stay: its address will do, which costs nothing. All
    other memory may change between two calls, or belong to another array by then: it is identified by its contents.
    """
    owner = _owner(source)
    if isinstance(owner, mmap.mmap) and source.flags.c_contiguous and memoryview(owner).readonly:
        return f"{_kind(source)} at {source.ctypes.data:#x} of {id(owner):#x}", weakref.ref(owner)
    return _contents(source), None


def _identify_for_all(source: Array, mappings: Sequence[mmap.mmap]) -> str:
    """What tells the contents of an array from all others in each process that has mapped the same files."""
    owner = _owner(source)
    number = next((number for number, mapping in enumerate(mappings) if mapping is owner), None)
    if number is None or not source.nbytes or not source.flags.c_contiguous:
        return _contents(source)
    start = np.frombuffer(mappings[number], np.uint8).ctypes.data
    at = source.ctypes.data - start
    return f"{_kind(source)} of bytes {at} to {at + source.nbytes}" + (f" of file {number}" if number else "")


class _Work:
    """A preparation and what it is applied to; by number, sources come before the results of steps."""

    def __init__(self, preparation: Preparation, sources: Mapping[str, Array]) -> None:
        self._preparation = preparation
        self._sources = sources
        self._count = len(preparation.sources)
        self._identities: dict[str, tuple[str, weakref.ref[mmap.mmap] | None]] = {}
        self._lasting: dict[str, str] = {}

    def _step(self, index: int) -> PrepareStep:
        return self._preparation.steps[index - self._count]

    def used(self, index: int) -> list[str]:
        """The sources of a value, as often as its formula names them."""
        if index < self._count:
            return [self._preparation.sources[index]]
        return [name for operand in self._step(index).operands for name in self.used(operand)]

    def size(self, index: int) -> int:
        """Bytes of what a value is made from."""
        return sum(self._sources[name].nbytes for name in self.used(index))

    def formula(self, index: int) -> str:
        """How a value is computed, and from what, in this process."""
        return self._formula(index, lambda name: self._identity(name)[0])

    def lasting_key(self, index: int, mappings: Sequence[mmap.mmap]) -> str:
        """A digest of how a value is computed, and from what, which is the same in each process."""

        def identity(name: str) -> str:
            if name not in self._lasting:
                self._lasting[name] = _identify_for_all(self._sources[name], mappings)
            return self._lasting[name]

        return hashlib.sha256(self._formula(index, identity).encode()).hexdigest()

    def _formula(self, index: int, identity: Callable[[str], str]) -> str:
        if index < self._count:
            name = self._preparation.sources[index]
            return f"{json.dumps(name)} {identity(name)}"
        step = self._step(index)
        operands = ",".join(self._formula(operand, identity) for operand in step.operands)
        return f"{step.op}({operands};{json.dumps(step.attributes, sort_keys=True)})"

    def files(self, index: int) -> tuple[weakref.ref[mmap.mmap], ...]:
        """The mapped files that a value's formula names."""
        found = (self._identity(name)[1] for name in dict.fromkeys(self.used(index)))
        return tuple(file for file in found if file is not None)

    def _identity(self, name: str) -> tuple[str, weakref.ref[mmap.mmap] | None]:
        if name not in self._identities:
            self._identities[name] = _identify(self._sources[name])
        return self._identities[name]

    def compute(self, index: int) -> Array:
        """The value, contiguous."""
        with np.errstate(all="ignore"):  # infinities and NaN are values like others
            return np.asarray(self._value(index), order="C")  # ascontiguousarray makes [] into [1]

    def _value(self, index: int) -> Array:
        if index < self._count:
            return self._sources[self._preparation.sources[index]]
        step = self._step(index)
        if step.op not in OPERATIONS:
            raise UnsupportedError(f"'{step.op}' can't run when parameters are set; known are {', '.join(OPERATIONS)}")
        return OPERATIONS[step.op](*(self._value(operand) for operand in step.operands), **step.attributes)


#: Puts a parameter, given by its name and its contents, where code reads it.
Place = Callable[[str, Array], RunArray]


def prepare(
    preparation: Preparation,
    sources: Mapping[str, Array],
    shared: Shared | None,
    place: Place = lambda _, array: array,
    where: str = "",
) -> dict[str, RunArray]:
    """Computes the plan's parameters one after the other, so that no more than one is in work at a time.

    Args:
        preparation: what to compute.
        sources: the caller's parameters by name.
        shared: results by the formula and the contents that give them; known ones are taken from it, new ones added,
            and those of files that are closed dropped; `Kept` has some from elsewhere. None where nothing is shared.
        place: puts each result where code reads it; they stay where they are by default.
        where: names that place, in the keys of `shared`.

    Returns:
        The plan's parameters by name.
    """
    forget_closed(shared)
    work, results = _Work(preparation, sources), {}
    # The largest first: what it is made from is in memory beside it, and most other results aren't yet.
    for name, index in sorted(preparation.results, key=lambda result: -work.size(result[1])):
        if shared is None:
            results[name] = place(name, work.compute(index))
            continue
        key = where + work.formula(index)
        entry = shared.get(key)
        if entry is None or not entry.is_current:
            entry = shared[key] = Prepared(place(name, _obtained(work, index, shared)), work.files(index))
        results[name] = entry.array
    return results


def _obtained(work: _Work, index: int, shared: Shared) -> Array:
    """A value: computed, or what has been kept of it."""
    if not isinstance(shared, Kept):
        return work.compute(index)
    return shared.obtain(work.lasting_key(index, shared.mappings), partial(work.compute, index))


def place_source(name: str, source: Array, shared: Shared | None, place: Place, where: str) -> RunArray:
    """Puts a parameter that is used as it is where code reads it, or finds it there; see `prepare`."""
    if shared is None:
        return place(name, source)
    contents, file = _identify(source)
    key = where + contents
    entry = shared.get(key)
    if entry is None or not entry.is_current:
        entry = shared[key] = Prepared(place(name, source), (file,) if file is not None else ())
    return entry.array


def forget_closed(shared: Shared | None) -> None:
    """Drops the results of files that are closed."""
    for key in [key for key, known in list((shared or {}).items()) if not known.is_current]:
        assert shared is not None
        shared.pop(key, None)
