# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled module as data: object code, the plan of its entry function, and how its parameters are prepared."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeAlias

import numpy as np

from rlx_mlir import budgets, checks
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import CacheError, InputError
from rlx_mlir.files import Json
from rlx_mlir.own_ops import Parameters
from rlx_mlir.paths import open_regular, write_atomically
from rlx_mlir.runtime import shown, sizes
from rlx_mlir.runtime.sizes import Terms

MAGIC = b"RLXMLIR\x00"
VERSION = 11
#: The oldest version that is read: 11 adds what calls do.
OLDEST = 10
_HEADER = struct.Struct("<8sIQQ32s")
_LENGTHS = struct.Struct("<QQ")

#: What `compile` gives: an `Executable`, a `CudaExecutable` for target cuda, an `Artifact` for nvptx.
CompiledModule: TypeAlias = Any

#: A buffer that a call reads or writes: (kind, index, offset), or (kind, index, offset, moves), as
#: `rlx_mlir._runtime.Buffer` says.
Buffer: TypeAlias = tuple[Any, ...]

#: A call of a kernel: (index, buffers, sizes, work).
Call: TypeAlias = tuple[int, Sequence[Buffer], Sequence[Terms], Terms]


@dataclass(frozen=True)
class BufferSpec:
    """An input, parameter or output.

    Attributes:
        name: by which callers give or read it.
        dtype: element type in MLIR's spelling; packed weights are of i8.
        shape: one number, or symbol, per dimension; an output's may be a formula of symbols.
        sizes: the same as polynomials.
        tied: of an output, the input or parameter whose memory it takes in calls that donate that.
        packed: of a parameter, its block format.
        updated: of an output that is tied, whether it starts as the input: a cache that calls write rows of.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    sizes: tuple[Terms, ...] = ()
    tied: str | None = None
    packed: str | None = None
    updated: bool = False

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The element type as numpy has it; words such as `f16` and `i8` are other types to numpy."""
        return DTYPES[self.dtype]

    def __str__(self) -> str:
        packed = f" ({self.packed})" if self.packed else ""
        return f"{self.name}: [{', '.join(map(str, self.shape))}] {self.dtype}{packed}"


@dataclass(frozen=True)
class SizeCondition:
    """What must hold of the symbols at each call.

    Attributes:
        left, right: sizes, as text and as polynomials.
        at_least: `left` is at least `right`; otherwise they are equal.
        where: the operation that needs it.
    """

    left: tuple[str, Terms]
    right: tuple[str, Terms]
    at_least: bool
    where: str


@dataclass(frozen=True)
class PositionCondition:
    """What must hold of the values of an input or parameter at each call: they are numbers of rows.

    Attributes:
        name: of the input or parameter.
        kind, index: `input` or `param`, and which of the plan's it is.
        count, rows, limit: how many positions there are, and of each, how many rows from it on are among how many; as
            text and as polynomials.
        where: what has these rows.
    """

    name: str
    kind: Literal["input", "param"]
    index: int
    count: tuple[str, Terms]
    rows: tuple[str, Terms]
    limit: tuple[str, Terms]
    where: str


@dataclass(frozen=True)
class BlockSpec:
    """Calls of a plan that run again and again, or perhaps not at all.

    Of a `for`, the calls from `middle` to `end` run `steps` times. Of a `while`, those from `begin` to `middle` run,
    and where `flag` holds then, the others and everything again; at most `steps` times where that is given. Of an
    `if`, the first ones run where `flag` holds, the others elsewhere. Buffers of calls and blocks are (kind, index,
    offset), or (kind, index, offset, moves): each move is a block and the bytes from one of its steps to the next.

    Attributes:
        kind: what it is.
        parent, part: the block that it is in, -1 for none, and of that: 0 for the calls before `middle`, 1 for others.
        begin, middle, end: numbers of calls.
        steps: how many there are, or at most.
        flag: the buffer of one byte that decides.
        swaps: (current, next, bytes): buffers that take turns after each step.
    """

    kind: Literal["for", "while", "if"]
    parent: int
    part: int
    begin: int
    middle: int
    end: int
    steps: Terms | None = None
    flag: Buffer | None = None
    swaps: tuple[tuple[Buffer, Buffer, Terms], ...] = ()

    @property
    def words(self) -> tuple[Any, ...]:
        """As the run time reads it."""
        return tuple(getattr(self, own.name) for own in fields(self))


@dataclass(frozen=True)
class OwnCall:
    """A kernel that calls an operation of the user's own.

    Attributes:
        kernel: its name.
        op: the name of the operation.
        parameters: of the operation.
        operands, results: element type and number of dimensions of each.
        order: the kernel's operand for each of `operands`.
        native: its kernel is a function of C, not of Python.
    """

    kernel: str
    op: str
    parameters: Parameters
    operands: tuple[tuple[str, int], ...]
    results: tuple[tuple[str, int], ...]
    order: tuple[int, ...]
    native: bool


@dataclass(frozen=True)
class PrepareStep:
    """One operation of `@prepare`: its operands are sources, then the results of earlier steps."""

    op: str
    operands: tuple[int, ...]
    attributes: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Preparation:
    """How plan parameters follow from the caller's: straight-line code over `sources`."""

    sources: tuple[str, ...] = ()
    steps: tuple[PrepareStep, ...] = ()
    #: (name of the plan's parameter, index among sources and steps)
    results: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, repr=False)
class Artifact:
    """Everything that running a module needs."""

    name: str
    target: dict[str, str]
    code: bytes
    symbols: tuple[tuple[str, int], ...]
    arena_bytes: int
    slots: tuple[tuple[int, int], ...]
    kernels: tuple[str, ...]
    inputs: tuple[BufferSpec, ...]
    #: What callers set.
    parameters: tuple[BufferSpec, ...]
    #: What the plan reads, after preparation.
    plan_parameters: tuple[BufferSpec, ...]
    outputs: tuple[BufferSpec, ...]
    calls: tuple[Call, ...]
    preparation: Preparation
    #: Which of the calls are in loops and branches.
    blocks: tuple[BlockSpec, ...] = ()
    #: The template of each kernel, or why it is generic.
    templates: dict[str, str] = field(default_factory=dict)
    #: The class of each kernel, which decides what templates may know it.
    kinds: dict[str, str] = field(default_factory=dict)
    #: What must hold of sizes that types leave open.
    conditions: tuple[SizeCondition, ...] = ()
    #: What must hold of positions.
    positions: tuple[PositionCondition, ...] = ()
    #: What each call reads, writes and computes, as plain data: see `rlx_mlir.runtime.work`. Empty where that wasn't
    #: counted, as in files of version 10.
    work: dict[str, Any] = field(default_factory=dict)
    #: What kernels call that isn't in the code.
    own: tuple[OwnCall, ...] = ()
    #: Of an entry of the cache: what its key is made of, see `rlx_mlir.runtime.cache.key_parts`.
    key: dict[str, object] = field(default_factory=dict)
    #: Of an entry of the cache: what whoever compiled it noted for whoever finds it.
    notes: dict[str, Json] = field(default_factory=dict)
    #: Of one for a GPU: the chip, such as `sm_90a`, its kernels as text of PTX, and their names by number. The rest
    #: is as for CPUs; `code` and `target` are those of the host's part, which launches the kernels.
    chip: str = ""
    device_code: bytes = b""
    device_kernels: tuple[str, ...] = ()
    #: Machine code of the same kernels for the chip, where an assembler was at hand, and the version of that.
    cubin: bytes = b""
    assembler: str = ""

    def __repr__(self) -> str:
        return shown.line("Artifact", self, f"{len(self.code) + len(self.device_code)} bytes of code")

    def _repr_html_(self) -> str:
        return shown.table("Artifact", self)

    def to_bytes(self) -> bytes:
        """The artefact as one file with a checksum."""
        description = {own.name: getattr(self, own.name) for own in fields(self)}
        code = description.pop("code")
        device_code = description.pop("device_code")
        payload: bytes = code + device_code + description.pop("cubin")
        description["device_bytes"] = len(device_code)
        header = json.dumps(description, separators=(",", ":"), default=asdict).encode()
        digest = hashlib.sha256(_LENGTHS.pack(len(header), len(code)) + header + payload).digest()
        return _HEADER.pack(MAGIC, VERSION, len(header), len(code), digest) + header + payload

    @staticmethod
    def from_bytes(data: bytes) -> Artifact:
        """Reads what `to_bytes` wrote; CacheError where it is damaged or of another version."""
        if not isinstance(data, bytes):
            raise InputError(f"an artefact is read from bytes, but got {checks.shown(data)}")
        _, length, code_length, digest = _header(data[: _HEADER.size])
        rest = data[_HEADER.size :]
        if hashlib.sha256(_LENGTHS.pack(length, code_length) + rest).digest() != digest:
            raise CacheError("the artefact's checksum doesn't hold: it is damaged")
        payload = rest[length:]
        with foreign_errors("the artefact's description can't be read", CacheError):
            return _restore(json.loads(rest[:length]), payload[:code_length], payload[code_length:])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the artefact to a file, which appears whole or not at all."""
        write_atomically(checks.path("path", path), self.to_bytes())

    @staticmethod
    def load(path: str | os.PathLike[str], *, own: bool = False) -> Artifact:
        """Reads an artefact's file. It is code: whoever wrote it decides what this process does when it is run.

        Args:
            path: the file.
            own: of the cache: not a link, the user's or root's, and not for others to write.

        Raises CacheError where it is no artefact, damaged or of another version, BudgetError where it is larger than
        the budgets allow, OSError where it can't be read.
        """
        try:
            with open_regular(checks.path("path", path), own=checks.flag("own", own)) as file:
                start = file.read(_HEADER.size)
                _header(start)  # before the rest is read, which may be of any size
                return Artifact.from_bytes(start + file.read())
        except CacheError as error:
            raise CacheError(f"{os.fspath(path)}: {error}") from None


def repetitions(artifact: Artifact, values: Sequence[int]) -> list[int]:
    """How often each call runs, for sizes of the symbols; once where that depends on values."""
    times = [1] * len(artifact.calls)
    for block in artifact.blocks:
        if block.kind == "for" and block.steps is not None:
            steps = sizes.evaluate(block.steps, values)
            times[block.middle : block.end] = [own * steps for own in times[block.middle : block.end]]
    return times


def _header(start: bytes) -> tuple[int, int, int, bytes]:
    """Version, bytes of the description and of the code, and digest, from an artefact's first bytes."""
    if start[: len(MAGIC)] != MAGIC:
        hint = "; models are for load_model" if start.startswith((b"GGUF", b"RLXBNDL")) else ""
        raise CacheError(f"not an artefact: it starts with {start[: len(MAGIC)]!r} instead of {MAGIC!r}{hint}")
    if len(start) < _HEADER.size:
        raise CacheError(f"an artefact has at least {_HEADER.size} bytes, but this one has {len(start)}")
    _, version, length, code_length, digest = _HEADER.unpack(start)
    if not OLDEST <= version <= VERSION:
        raise CacheError(f"not an artefact of version {VERSION}, but of {version}: compile the module again")
    budgets.check("json_bytes", length, "the artefact's description")
    return version, length, code_length, digest


def _restore(description: dict[str, Json], code: bytes, device: bytes) -> Artifact:
    def buffers(entries: Sequence[dict[str, Json]]) -> tuple[BufferSpec, ...]:
        return tuple(
            BufferSpec(
                **{**entry, "shape": tuple(entry["shape"]), "sizes": tuple(sizes.read(size) for size in entry["sizes"])}
            )
            for entry in entries
        )

    preparation = description["preparation"]
    device_bytes = description.pop("device_bytes")
    return Artifact(
        **{
            **description,
            "code": code,
            "device_code": device[:device_bytes],
            "cubin": device[device_bytes:],
            "device_kernels": tuple(description["device_kernels"]),
            "symbols": tuple((name, maximum) for name, maximum in description["symbols"]),
            "slots": tuple((offset, size) for offset, size in description["slots"]),
            "kernels": tuple(description["kernels"]),
            "inputs": buffers(description["inputs"]),
            "parameters": buffers(description["parameters"]),
            "plan_parameters": buffers(description["plan_parameters"]),
            "outputs": buffers(description["outputs"]),
            "calls": tuple(
                (kernel, [_buffer(own) for own in buffers], [sizes.read(size) for size in dims], sizes.read(work))
                for kernel, buffers, dims, work in description["calls"]
            ),
            "blocks": tuple(_block(own) for own in description["blocks"]),
            "conditions": tuple(
                SizeCondition(**{**own, "left": _size(own["left"]), "right": _size(own["right"])})
                for own in description["conditions"]
            ),
            "positions": tuple(
                PositionCondition(**{**own, **{key: _size(own[key]) for key in ("count", "rows", "limit")}})
                for own in description["positions"]
            ),
            "own": tuple(
                OwnCall(
                    **{
                        **call,
                        "operands": tuple((dtype, rank) for dtype, rank in call["operands"]),
                        "results": tuple((dtype, rank) for dtype, rank in call["results"]),
                        "order": tuple(call["order"]),
                    }
                )
                for call in description["own"]
            ),
            "preparation": Preparation(
                tuple(preparation["sources"]),
                tuple(
                    PrepareStep(step["op"], tuple(step["operands"]), step["attributes"])
                    for step in preparation["steps"]
                ),
                tuple((name, index) for name, index in preparation["results"]),
            ),
        }
    )


def _buffer(words: Sequence[Json]) -> Buffer:
    """A buffer from what JSON makes of it."""
    kind, index, offset, *moves = words
    offset = offset if isinstance(offset, int) else sizes.read(offset)
    return (kind, index, offset, *([(block, sizes.read(stride)) for block, stride in own] for own in moves))


def _block(words: dict[str, Json]) -> BlockSpec:
    """A block from what JSON makes of it."""
    steps, flag = words["steps"], words["flag"]
    return BlockSpec(
        **{
            **words,
            "steps": None if steps is None else sizes.read(steps),
            "flag": None if flag is None else _buffer(flag),
            "swaps": tuple((_buffer(a), _buffer(b), sizes.read(size)) for a, b, size in words["swaps"]),
        }
    )


def _size(pair: Sequence[Json]) -> tuple[str, Terms]:
    text, terms = pair
    return text, sizes.read(terms)
