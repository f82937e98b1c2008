# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled modules that run: parameters are set once, then each call gives inputs and gets outputs, as arrays."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError
from rlx_mlir.runtime import native
from rlx_mlir.runtime.artifact import Artifact, BufferSpec
from rlx_mlir.runtime.prepare import prepare

Array = np.ndarray[Any, Any]

def empty_aligned(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array whose data starts at a multiple of 64 bytes."""
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count].view(dtype).reshape(shape)


class Executable:
    """A compiled module.

    Calls from several threads are safe: they share one arena, and take turns. Parameters are copied or prepared by
    `set_params`; arrays that are used as they are must not be changed afterwards.
    """

    def __init__(self, artifact: Artifact, *, threads: int | None = None) -> None:
        """Loads the code.

        Args:
            artifact: what the compiler made, or a cache kept.
            threads: of one call; None for as many as the process may use.
        """
        self.artifact = artifact
        code = native.ObjectCode([artifact.code])
        self._plan = native.Plan(
            code,
            symbols=artifact.symbols,
            arena_bytes=artifact.arena_bytes,
            slots=artifact.slots,
            kernels=artifact.kernels,
            inputs=[spec.name for spec in artifact.inputs],
            params=[spec.name for spec in artifact.plan_parameters],
            outputs=[spec.name for spec in artifact.outputs],
            calls=artifact.calls,
            threads=threads or 0,
        )
        self._lock = threading.Lock()
        self._params: dict[str, Array] = {}
        self._addresses: list[int] = []

    @property
    def inputs(self) -> tuple[BufferSpec, ...]:
        """What a call needs."""
        return self.artifact.inputs

    @property
    def outputs(self) -> tuple[BufferSpec, ...]:
        """What a call gives."""
        return self.artifact.outputs

    @property
    def params(self) -> tuple[BufferSpec, ...]:
        """What `set_params` needs."""
        return self.artifact.parameters

    @property
    def threads(self) -> int:
        """Threads that one call uses at most."""
        return int(self._plan.threads)

    def set_params(self, params: Mapping[str, Any], *, shared: dict[str, Array] | None = None) -> None:
        """Binds every parameter, and prepares those that the code wants in another layout.

        Args:
            params: arrays by name: dense ones of the declared shape and element type, packed ones as bytes
                [rows, bytes of a row] (int8 or uint8).
            shared: prepared arrays by what they are computed from, to be taken from and added to: executables that
                get the same parameters and the same dictionary keep one copy.

        Raises InputError where one is missing, unknown, or of another shape or type; then the old ones stay.
        """
        _check_names("parameter", params, [spec.name for spec in self.params])
        sources: dict[str, Array] = {}
        sizes: dict[str, tuple[int, str]] = {}
        for spec in self.params:
            sources[spec.name] = _checked("parameter", spec, params[spec.name], sizes, self.artifact)
        prepared = prepare(self.artifact.preparation, sources, {} if shared is None else shared)
        bound = {
            spec.name: prepared[spec.name] if spec.name in prepared else sources[spec.name]
            for spec in self.artifact.plan_parameters
        }
        with self._lock:
            self._params = bound
            self._addresses = [array.ctypes.data for array in bound.values()]

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        outputs: Mapping[str, Array] | None = None,
        donate: Collection[str] = (),
    ) -> dict[str, Array]:
        """Runs the module once; other threads of Python go on meanwhile.

        Args:
            inputs: arrays by name (numpy, or anything with DLPack); copied only where not contiguous.
            outputs: arrays to write some of the results to, by name; the others are allocated.
            donate: names of inputs whose memory outputs tied to them take: caches updated in place.

        Returns:
            The results by name, in the order of `outputs`.

        Raises InputError, which names the input and the rule, where one is missing, unknown, of another shape or type,
        where sizes with one symbol differ, or where a size exceeds its declared maximum.
        """
        if not self._addresses and self.artifact.plan_parameters:
            raise InputError(f"'{self.artifact.name}' needs its parameters: call set_params first")
        _check_names("input", inputs, [spec.name for spec in self.inputs])
        sizes: dict[str, tuple[int, str]] = {}
        arrays = {s.name: _checked("input", s, inputs[s.name], sizes, self.artifact) for s in self.inputs}
        ordered = [sizes[name][0] if name in sizes else 1 for name, _ in self.artifact.symbols]
        results = self._results(arrays, outputs or {}, donate, ordered)
        self._plan.run(
            [array.ctypes.data for array in arrays.values()],
            self._addresses,
            [array.ctypes.data for array in results.values()],
            ordered,
        )
        return results

    def __call__(self, **inputs: Any) -> Array | tuple[Array, ...]:
        """Runs the module with inputs by keyword; returns the result, or a tuple where there are several."""
        results = tuple(self.run(inputs).values())
        return results[0] if len(results) == 1 else results

    def profile(self, enabled: bool = True) -> None:
        """Starts or stops measuring each call."""
        self._plan.profile(enabled)

    def timings(self) -> list[tuple[str, float]]:
        """(kernel, seconds per run) of each call since `profile(True)`."""
        runs, nanoseconds = self._plan.timings()
        return [(name, ns * 1e-9 / max(runs, 1)) for name, ns in zip(self._plan.calls, nanoseconds, strict=True)]

    def _results(
        self, inputs: Mapping[str, Array], given: Mapping[str, Array], donate: Collection[str], sizes: list[int]
    ) -> dict[str, Array]:
        names = [spec.name for spec in self.outputs]
        for name in given:
            if name not in names:
                raise InputError(f"'{self.artifact.name}' has no output '{name}'; it has {', '.join(names)}")
        tied = {spec.tied for spec in self.outputs}
        for name in donate:
            if name not in tied:
                raise InputError(f"input '{name}' can't be donated: no output of '{self.artifact.name}' is tied to it")
        results = {}
        for spec in self.outputs:
            shape = tuple(_evaluate(size, sizes) for size in spec.sizes)
            if spec.tied is not None and spec.tied in donate:
                results[spec.name] = inputs[spec.tied]
                continue
            array = given.get(spec.name)
            if array is None:
                array = empty_aligned(shape, DTYPES[spec.dtype])
            elif array.shape != shape or array.dtype != DTYPES[spec.dtype] or not array.flags.c_contiguous:
                raise InputError(
                    f"output '{spec.name}' expects a contiguous array of shape {shape} and type "
                    f"{DTYPES[spec.dtype]}, but got shape {array.shape} and type {array.dtype}"
                )
            if spec.tied is not None:
                np.copyto(array, inputs[spec.tied])
            results[spec.name] = array
        return results


def _evaluate(size: Any, sizes: list[int]) -> int:
    total = 0
    for coefficient, symbols in size:
        for symbol in symbols:
            coefficient *= sizes[symbol]
        total += coefficient
    return int(total)


def _check_names(what: str, given: Mapping[str, Any], expected: list[str]) -> None:
    missing = [name for name in expected if name not in given]
    unknown = [name for name in given if name not in expected]
    if missing or unknown:
        parts = []
        if missing:
            parts.append(f"missing {what}s: {', '.join(missing)}")
        if unknown:
            parts.append(f"unknown {what}s: {', '.join(unknown)}; known are {', '.join(expected)}")
        raise InputError("; ".join(parts))


def _checked(
    what: str, spec: BufferSpec, value: Any, sizes: dict[str, tuple[int, str]], artifact: Artifact
) -> Array:
    """The value as a contiguous array that fits the specification; notes the sizes of symbols."""
    if not isinstance(value, np.ndarray):
        value = np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
    dtype = DTYPES[spec.dtype]
    if value.dtype != dtype and not (spec.dtype == "i8" and value.dtype == np.uint8):
        raise InputError(f"{what} '{spec.name}' expects elements of {dtype}, but got {value.dtype}")
    if value.ndim != len(spec.shape):
        raise InputError(f"{what} '{spec.name}' expects {len(spec.shape)} dimensions, but got shape {value.shape}")
    for axis, (expected, size) in enumerate(zip(spec.shape, value.shape, strict=True)):
        if isinstance(expected, int):
            if size != expected:
                raise InputError(
                    f"{what} '{spec.name}' expects size {expected} in dimension {axis}, but got {size} of {value.shape}"
                )
            continue
        known, source = sizes.setdefault(expected, (size, spec.name))
        if known != size:
            raise InputError(
                f"{what} '{spec.name}' has size {size} in dimension {axis}, but '{expected}' is {known} in '{source}'"
            )
        maximum = dict(artifact.symbols).get(expected)
        if maximum is not None and size > maximum:
            raise InputError(
                f"{what} '{spec.name}' has size {size} in dimension {axis}, but '{expected}' was compiled for at most "
                f"{maximum}: compile with maxima={{'{expected}': {size}}}"
            )
    return np.ascontiguousarray(value)
