# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The emitter of kernels for NVIDIA GPUs: `codegen.emit` at the level of the LLVM and NVVM dialects.

    em = DeviceEmitter("sm_90a")
    arguments = [pointer("x", readonly=True), pointer("y"), ("n", "i32")]
    with em.kernel("scale", arguments, threads=256) as (x, y, n):
        i = (em.block() * 256 + em.thread()) * 8
        with em.if_(em.cmpi("ult", i, n)):
            value = em.widen(em.ld(x, vec(8, "bf16"), i))
            em.st(em.narrow(value * 0.5, "bf16"), y, i)

- Pointers are `!llvm.ptr<1>` (global) and `!llvm.ptr<3>` (shared). `ld` and `st` count offsets in elements of what they
  move; their alignment is that of the whole access, up to 16 bytes, unless it is given.
- Python ints in subscripts and loop bounds are i32. i32 and i64 don't mix: `wide(x)` extends. An i32 offset is signed.
- Registers of fragments (`mma`, `ldmatrix`, `wgmma`) are Python lists of scalar values, in PTX's order.
- Vectors reach memory as one instruction where they are of 2, 4, 8 or 16 bytes.
- What needs an instruction that only some chips have checks the chip and raises UnsupportedByTemplate.

Functions of math on f32 have fast forms in `codegen.gpu.epilogue`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlx_mlir.chips import check_chip, sm_version
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Emitter, Index, Loop, Operand, Value, element_of, memref, shape_of, vec, with_element
from rlx_mlir.codegen.structures import Structure, flatten, pairwise, unflatten

__all__ = [
    "GENERIC",
    "GLOBAL",
    "SHARED",
    "BITS",
    "DeviceEmitter",
    "Index",
    "Launched",
    "Loop",
    "Operand",
    "Parameter",
    "Value",
    "element_of",
    "memref",
    "pointer",
    "shape_of",
    "struct_of",
    "tensor_map",
    "vec",
    "with_element",
]

GENERIC, GLOBAL, SHARED = "!llvm.ptr", "!llvm.ptr<1>", "!llvm.ptr<3>"
_CLUSTER = "!llvm.ptr<7>"
#: Width of elements in bits.
BITS = {"i1": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}
BITS |= {"f8E4M3FN": 8, "f8E5M2": 8}
#: Attribute of a kernel that needs a later version of PTX than its chip does: the version, times ten.
PTX_VERSION = "rlx.ptx"
#: What PTX calls floats of 8 bits.
FLOAT8 = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}
#: All threads of a warp.
_FULL = -1
#: For each word of a reduction, the operation that joins two values.
_JOIN = {
    "add": "arith.addf",
    "max": "arith.maximumf",
    "min": "arith.minimumf",
    "addi": "arith.addi",
    "maxsi": "arith.maxsi",
    "minsi": "arith.minsi",
}
#: For each word of a reduction, the value that changes nothing.
_NEUTRAL: dict[str, float] = {
    "add": 0.0,
    "max": -math.inf,
    "min": math.inf,
    "maxnum": -math.inf,
    "addi": 0,
    "maxsi": -(1 << 31),
    "minsi": (1 << 31) - 1,
}
_MATRIX = (
    "shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>, "
    "layout = #nvvm.mma_layout"
)

Parameter = tuple[str, str] | tuple[str, str, str]
"""A kernel's parameter: name, type, and attributes where it has some."""


def pointer(name: str, *, readonly: bool = False, constant: bool = False) -> Parameter:
    """A pointer to global memory.

    Args:
        readonly: the kernel doesn't write the memory.
        constant: no kernel does: a parameter of the model. Loads then go by the cache of constants, and the compiler
            may move them before `wait_dependencies`; so nothing that an earlier kernel writes may be constant.
    """
    words = (["llvm.noalias"] if constant else []) + (["llvm.readonly"] if readonly or constant else [])
    return name, GLOBAL, ", ".join(words)


def tensor_map(name: str) -> Parameter:
    """A tensor map (`HostEmitter.tensor_map`), 128 bytes by value."""
    return name, GENERIC, "llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant"


def struct_of(types: Sequence[str]) -> str:
    """The type of an LLVM struct."""
    return f"!llvm.struct<({', '.join(types)})>"


@dataclass(frozen=True)
class Launched:
    """What launches have to know of a kernel.

    Attributes:
        parameters: their names.
        waits: whether it waits for the kernels before it (`wait_dependencies`): it may start while they still run.
    """

    parameters: tuple[str, ...]
    waits: bool


class DeviceEmitter(Emitter):
    """Collects the text of kernels; see the module's docstring."""

    index_type = "i32"

    def __init__(self, chip: str) -> None:
        super().__init__()
        self.chip = check_chip(chip)
        self.sm = sm_version(chip)
        self.kernels: dict[str, Launched] = {}
        """The kernels that are done, by name."""
        self._ptx = 0
        self._waits = False

    def need(self, what: str, sm: int, *, exactly: bool = False) -> None:
        """Raises UnsupportedByTemplate where the chip is older than `sm`, or (`exactly`) isn't sm_<sm>a."""
        if self.sm < sm or (exactly and self.chip != f"sm_{sm}a"):
            raise UnsupportedByTemplate(f"{what} needs sm_{sm}{'a' if exactly else ''}, but the chip is {self.chip}")

    # -- kernels ------------------------------------------------------------------------------------------------------

    @contextmanager
    def kernel(
        self,
        name: str,
        parameters: Sequence[Parameter],
        threads: int | tuple[int, int, int],
        *,
        min_blocks: int | None = None,
        cluster: int | None = None,
        chained: bool = False,
    ) -> Iterator[list[Value]]:
        """`llvm.func @name`, launched with exactly `threads` threads a block.

        min_blocks: blocks that must fit a multiprocessor at one time, which bounds registers. cluster: blocks along x
        that form a cluster (sm_90 on). chained: the kernel begins by letting the next one start, and waiting for those
        before it.
        """
        shape = (threads, 1, 1) if isinstance(threads, int) else threads
        values = [Value(f"%{parameter[0]}", parameter[1], self) for parameter in parameters]
        self._begin()
        self._ptx, self._waits = 0, False
        if chained:
            self.launch_dependents()
            self.wait_dependencies()
        yield values
        self.kernels[name] = Launched(tuple(parameter[0] for parameter in parameters), self._waits)
        self.line("llvm.return")
        signature = ", ".join(
            f"{value}: {value.type}" + (f" {{{parameter[2]}}}" if len(parameter) > 2 and parameter[2] else "")
            for value, parameter in zip(values, parameters, strict=True)
        )
        attributes = ["gpu.kernel", "nvvm.kernel", f"nvvm.maxntid = array<i32: {', '.join(map(str, shape))}>"]
        if min_blocks is not None:
            attributes.append(f"nvvm.minctasm = {min_blocks} : i32")
        if cluster is not None:
            self.need("a cluster", 90)
            attributes.append(f"nvvm.cluster_dim = array<i32: {cluster}, 1, 1>")
        if self._ptx:
            attributes.append(f"{PTX_VERSION} = {self._ptx} : i32")
        self._finish(f"llvm.func @{name}({signature}) attributes {{{', '.join(attributes)}}} {{")

    # -- threads ------------------------------------------------------------------------------------------------------

    def sreg(self, name: str) -> Value:
        """A special register by its name in the NVVM dialect, e.g. `tid.x`."""
        return self.op(f"nvvm.read.ptx.sreg.{name} : i32", "i32", name.partition(".")[0])

    def thread(self, axis: str = "x") -> Value:
        """The thread's number in its block."""
        return self.sreg(f"tid.{axis}")

    def block(self, axis: str = "x") -> Value:
        """The block's number in the grid."""
        return self.sreg(f"ctaid.{axis}")

    def blocks(self, axis: str = "x") -> Value:
        """The number of blocks in the grid."""
        return self.sreg(f"nctaid.{axis}")

    def lane(self) -> Value:
        """The thread's number in its warp, for blocks along x."""
        return self.thread() & 31

    def warp(self) -> Value:
        """The warp's number in its block, for blocks along x; the same register for all threads of a warp."""
        return self.uniform(self.thread() >> 5)

    def uniform(self, x: Value) -> Value:
        """An i32 that all threads of a warp agree on, told to the compiler."""
        return self.shuffle_lane("idx", x, 0)

    def const(self, value: float | bool | Sequence[float], type: str = "") -> Value:
        """As for CPUs; UnsupportedByTemplate for a number, such as a size, that is no i32 where it should be one."""
        if (type or self.index_type) == "i32" and isinstance(value, int) and not -(1 << 31) <= value < 1 << 31:
            raise UnsupportedByTemplate(f"{value} is no number of 32 bits")
        return super().const(value, type)

    # -- integers -----------------------------------------------------------------------------------------------------

    def wide(self, x: Index) -> Value:
        """An i64 of an unsigned i32 or a number."""
        if not isinstance(x, Value):
            return self.const(x, "i64")
        return x if x.type == "i64" else self.cast("arith.extui", x, "i64")

    def short(self, x: Index) -> Value:
        """An i32 of the low bits of an i64, or of a number."""
        if not isinstance(x, Value):
            return self.const(x, "i32")
        return x if x.type == "i32" else self.cast("arith.trunci", x, "i32")

    # -- memory -------------------------------------------------------------------------------------------------------

    def shared(self, offset: Index = 0) -> Value:
        """The block's dynamic shared memory from byte `offset` on; it is aligned to 1024 bytes."""
        return self.at(self.op(f"llvm.mlir.addressof @smem : {SHARED}", SHARED, "smem"), offset, "i8")

    def at(self, base: Value, offset: Index, element: str) -> Value:
        """The address `offset` elements after `base`."""
        if isinstance(offset, int) and offset == 0:
            return base
        element = _held(element)
        if isinstance(offset, int) and -(1 << 31) <= offset < 1 << 31:
            return self.op(f"llvm.getelementptr {base}[{offset}] : ({base.type}) -> {base.type}, {element}", base.type)
        place = offset if isinstance(offset, Value) else self.const(offset, "i64")
        text = f"llvm.getelementptr {base}[{place}] : ({base.type}, {place.type}) -> {base.type}, {element}"
        return self.op(text, base.type)

    def ld(
        self, base: Value, type: str, offset: Index = 0, *, align: int | None = None, constant: bool = False
    ) -> Value:
        """A scalar or vector at `offset`, in elements. `constant`: nothing writes the memory while the kernel runs.

        Floats of 8 bits are bytes here.
        """
        type = _held(type)
        address = self.at(base, offset, element_of(type))
        words = " invariant" if constant else ""
        return self.op(
            f"llvm.load {address}{words} {{alignment = {align or _alignment(type)} : i64}} : {base.type} -> {type}",
            type,
        )

    def st(self, value: Value, base: Value, offset: Index = 0, *, align: int | None = None) -> None:
        """Stores a scalar or vector at `offset`, in elements."""
        address = self.at(base, offset, element_of(value.type))
        alignment = align or _alignment(value.type)
        self.line(f"llvm.store {value}, {address} {{alignment = {alignment} : i64}} : {value.type}, {base.type}")

    def ld_if(self, condition: Value, base: Value, type: str, offset: Index = 0, other: float = 0) -> Value:
        """`ld` where the condition holds, `other` elsewhere; then memory isn't touched."""
        with self.if_(condition, type) as branch:
            branch.yield_(self.ld(base, type, offset))
            branch.else_()
            branch.yield_(self.const(other, type))
        return branch.result

    def address(self, base: Value) -> Value:
        """The address as a number, e.g. for descriptors: i32 of shared memory, i64 of other memory."""
        type = "i32" if base.type == SHARED else "i64"
        return self.op(f"llvm.ptrtoint {base} : {base.type} to {type}", type)

    # -- values -------------------------------------------------------------------------------------------------------

    def widen(self, x: Value) -> Value:
        """f16 or bf16 as f32, a scalar or a vector; f32 as it is."""
        if element_of(x.type) == "f32":
            return x
        return self.cast("arith.extf", x, with_element(x.type, "f32"))

    def narrow(self, x: Value, element: str) -> Value:
        """f32 rounded to nearest even as f16 or bf16, a scalar or a vector; as it is for f32."""
        if element == element_of(x.type):
            return x
        return self.cast("arith.truncf", x, with_element(x.type, element))

    def pack(self, low: Value, high: Value, element: str) -> Value:
        """Two f32, rounded to f16 or bf16, in one i32."""
        return self.bitcast(self.narrow(self.vector([low, high]), element), "i32")

    def unpack(self, x: Value, element: str) -> list[Value]:
        """Two f16 or bf16 of an i32 as f32."""
        return self.floats(self.bitcast(x, vec(2, element)))

    def floats(self, x: Value) -> list[Value]:
        """The elements of a scalar or a vector as f32: `lanes` of `widen`, but one operation for each bf16."""
        count = math.prod(size or 0 for size in shape_of(x.type))
        if element_of(x.type) != "bf16" or not shape_of(x.type) or count % 2:
            return self.lanes(self.widen(x))
        words = self.lanes(self.bitcast(x, vec(count // 2, "i32") if count > 2 else "i32"))
        # A bf16 is the upper half of an f32.
        halves = [half for word in words for half in (word << 16, word & -65536)]
        return [self.bitcast(half, "f32") for half in halves]

    def lanes(self, x: Value) -> list[Value]:
        """The scalars of a vector; a scalar itself."""
        if not shape_of(x.type):
            return [x]
        (count,) = shape_of(x.type)
        assert count is not None
        return [self.extract(x, lane) for lane in range(count)]

    def each(self, function: Callable[..., Value], *vectors: Value) -> Value:
        """`function` of scalars, lane by lane; on scalars itself."""
        if not shape_of(vectors[0].type):
            return function(*vectors)
        return self.vector([function(*lane) for lane in zip(*map(self.lanes, vectors), strict=True)])

    def bitcast(self, x: Value, type: str) -> Value:
        """The same bits as another scalar or vector type."""
        return x if x.type == type else self.op(f"llvm.bitcast {x} : {x.type} to {type}", type)

    def asm(
        self,
        text: str,
        constraints: str,
        operands: Sequence[Value],
        results: Sequence[str] = (),
        *,
        effects: bool = True,
    ) -> list[Value]:
        """Inline PTX: operands are `$0`, `$1`, ..., results first. `effects`: it isn't a function of its operands."""
        words = "has_side_effects " if effects else ""
        quoted = text.replace("\\", "\\5C").replace("\n", "\\0A").replace('"', "\\22")
        types = ", ".join(operand.type for operand in operands)
        given = f" {', '.join(operands)}" if operands else ""
        head = f'llvm.inline_asm {words}asm_dialect = att "{quoted}", "{constraints}"{given} : ({types}) ->'
        if not results:
            self.line(f"{head} ()")
            return []
        if len(results) == 1:
            return [self.op(f"{head} {results[0]}", results[0])]
        return self.fields(self.op(f"{head} {struct_of(results)}", struct_of(results)), results)

    def pure(self, text: str, operands: Sequence[Value], result: str = "f32") -> Value:
        """One PTX instruction that is a function of its operands: `pure("ex2.approx.f32 $0, $1;", [x])`."""
        letters = {"f32": "f", "i32": "r", "i64": "l", "f64": "d", "i16": "h"}
        constraints = ",".join(["=" + letters[result], *(letters[operand.type] for operand in operands)])
        return self.asm(text, constraints, operands, [result], effects=False)[0]

    def fields(self, struct: Value, types: Sequence[str]) -> list[Value]:
        """The fields of an LLVM struct."""
        return [self.op(f"llvm.extractvalue {struct}[{i}] : {struct.type}", type) for i, type in enumerate(types)]

    def struct(self, values: Sequence[Value]) -> Value:
        """An LLVM struct of values."""
        type = struct_of([value.type for value in values])
        whole = self.op(f"llvm.mlir.poison : {type}", type)
        for i, value in enumerate(values):
            whole = self.op(f"llvm.insertvalue {value}, {whole}[{i}] : {type}", type)
        return whole

    def fmaf(self, a: Operand, b: Operand, c: Operand) -> Value:
        """a * b + c, rounded once; numbers are of the type of the operands that are values."""
        kind = next(value.type for value in (a, b, c) if isinstance(value, Value))
        a, b, c = (value if isinstance(value, Value) else self.const(value, kind) for value in (a, b, c))
        return self.op(f"llvm.intr.fma({a}, {b}, {c}) : ({kind}, {kind}, {kind}) -> {kind}", kind)

    def dp4a(self, a: Value, b: Value, c: Value, *, signed: tuple[bool, bool] = (True, True)) -> Value:
        """c + the dot product of four bytes, all i32."""
        words = ["<signed>" if one else "<unsigned>" for one in signed]
        left, right = (self.bitcast(x, "vector<4xi8>") for x in (a, b))
        text = f"nvvm.dot.accumulate.4way {left} {words[0]}, {right} {words[1]}, {c} : vector<4xi8>, vector<4xi8>"
        return self.op(text, "i32")

    # -- warps and blocks ---------------------------------------------------------------------------------------------

    def barrier(self, id: Index | None = None, threads: int | None = None) -> None:
        """Waits for all threads of the block, or for `threads` of them at barrier `id`."""
        if id is None:
            self.line("nvvm.barrier0")
            return
        count = f" number_of_threads = {self.const(threads)}" if threads is not None else ""
        self.line(f"nvvm.barrier id = {self.index(id)}{count}")

    def warp_sync(self) -> None:
        """Waits for the threads of the warp, and orders their accesses to memory."""
        self.line(f"nvvm.bar.warp.sync {self.const(_FULL)} : i32")

    def elect(self) -> Value:
        """True in one thread of the warp (sm_90 on)."""
        self.need("elect.sync", 90)
        return self.op("nvvm.elect.sync -> i1", "i1")

    def shuffle_lane(self, kind: str, x: Value, lane: Index) -> Value:
        """A 4-byte value of another thread of the warp.

        kind: `bfly` of the thread whose number differs by exclusive or with `lane`, `idx` of thread `lane`, `down` and
        `up` of the thread `lane` further on or back.
        """
        clamp = 0 if kind == "up" else 31
        plain = x if x.type in ("i32", "f32") else self.bitcast(x, "i32")
        text = f"nvvm.shfl.sync {kind} {self.const(_FULL)}, {plain}, {self.index(lane)}, {self.const(clamp)}"
        return self.bitcast(self.op(f"{text} : {plain.type} -> {plain.type}", plain.type), x.type)

    def ballot(self, condition: Value) -> Value:
        """An i32 whose bits say for which lanes of the warp a condition holds."""
        return self.op(f"nvvm.vote.sync ballot {self.const(_FULL)}, {condition} -> i32", "i32")

    def join(self, kind: str, x: Value, y: Value) -> Value:
        """Two values in one; `kind` as for `warp_reduce`."""
        if kind == "maxnum":  # of the arith dialect, it would become a call of a library
            return self.op(f"llvm.intr.maxnum({x}, {y}) : ({x.type}, {x.type}) -> {x.type}", x.type)
        return self.binary(_JOIN[kind], x, y)

    def warp_reduce(self, kind: str, x: Value, width: int = 32, *, stride: int = 1) -> Value:
        """All lanes' values joined; every thread of a group of `width` gets the same bits.

        kind: add, max, min (NaN wins), maxnum (NaN loses), addi, maxsi, minsi. stride: distance of neighbours in a
        group: `warp_reduce(x, 4)` joins 4 neighbours, `warp_reduce(x, 8, stride=4)` every fourth lane.
        """
        distance = stride
        while distance < width * stride:
            x = self.join(kind, x, self.shuffle_lane("bfly", x, distance))
            distance *= 2
        return x

    def block_reduce(self, kind: str, x: Value, memory: Value, threads: int) -> Value:
        """The values of all threads of the block (along x) joined; every thread gets the same bits.

        memory: shared memory of 4 bytes a warp, at a multiple of 16; it may be used again after a barrier, which a
        second `block_reduce` with it has.
        """
        warps = threads // 32
        x = self.warp_reduce(kind, x)
        if warps == 1:
            return x
        self.barrier()
        with self.if_(self.cmpi("eq", self.lane(), 0)):
            self.st(x, memory, self.thread() >> 5)
        self.barrier()
        if warps in (2, 4) or warps % 8 == 0:
            step = min(warps, 4)
            loaded = [self.ld(memory, vec(step, x.type), first) for first in range(0, warps, step)]
            return self.tree(kind, [part for vector in loaded for part in self.lanes(vector)])
        # Of a number of warps that isn't one of vectors, each warp reads one value a lane.
        exists = self.cmpi("ult", self.lane(), warps)
        return self.warp_reduce(kind, self.ld_if(exists, memory, x.type, self.lane(), _NEUTRAL[kind]))

    def tree(self, kind: str, values: Sequence[Value]) -> Value:
        """Values joined pair by pair; `kind` as for `warp_reduce`."""
        return pairwise(functools.partial(self.join, kind), values)

    # -- copies of single threads, and tensor cores of warps ----------------------------------------------------------

    def cp_async(self, target: Value, source: Value, size: int = 16, *, count: Value | None = None) -> None:
        """Starts a copy of 4, 8 or 16 bytes to shared memory; of `count` (i32) bytes, and zeros after them."""
        cache = "cg" if size == 16 else "ca"
        more = ("", "") if count is None else (f", {count}", ", i32")
        text = f"nvvm.cp.async.shared.global {target}, {source}, {size}, cache = {cache}{more[0]}"
        self.line(f"{text} : {target.type}, {source.type}{more[1]}")

    def cp_async_commit(self) -> None:
        """Makes the copies that this thread started a group."""
        self.line("nvvm.cp.async.commit.group")

    def cp_async_wait(self, pending: int) -> None:
        """Waits until at most `pending` groups of this thread aren't done."""
        self.line(f"nvvm.cp.async.wait.group {pending}")

    def ldmatrix(self, address: Value, count: int = 4, *, transpose: bool = False) -> list[Value]:
        """1, 2 or 4 matrices of 8 x 8 16-bit elements: i32 each. Lane i's address is row i % 8 of matrix i / 8."""
        types = ["i32"] * count
        layout = f"<{'col' if transpose else 'row'}>"
        result = "i32" if count == 1 else struct_of(types)
        made = self.op(
            f"nvvm.ldmatrix {address} {{num = {count} : i32, {_MATRIX}{layout}}} : ({SHARED}) -> {result}", result
        )
        return [made] if count == 1 else self.fields(made, types)

    def stmatrix(self, address: Value, values: Sequence[Value], *, transpose: bool = False) -> None:
        """The inverse of `ldmatrix` (sm_90 on)."""
        self.need("stmatrix", 90)
        layout = f"<{'col' if transpose else 'row'}>"
        types = ", ".join([SHARED, *(value.type for value in values)])
        self.line(f"nvvm.stmatrix {address}, {', '.join(values)} {{{_MATRIX}{layout}}} : {types}")

    def mma(self, kind: str, a: Sequence[Value], b: Sequence[Value], c: Sequence[Value], k: int = 0) -> list[Value]:
        """c + a b for a tile m16 n8 of a warp, a by rows, b by columns; registers are i32, accumulators f32 or i32.

        kind: f16 or bf16 (k 16, or 8), tf32 (k 8, or 4), s8 or u8 (k 32, or 16); `k` where it isn't the first one.
        """
        k = k or {"f16": 16, "bf16": 16, "tf32": 8, "s8": 32, "u8": 32}[kind]
        if kind == "f16":
            a, b = ([self.bitcast(x, "vector<2xf16>") for x in side] for side in (a, b))
        overflow = ", intOverflowBehavior = #nvvm.mma_int_overflow<wrapped>" if kind in ("s8", "u8") else ""
        types = (
            ""
            if kind == "f16"
            else (f", multiplicandAPtxType = #nvvm.mma_type<{kind}>, multiplicandBPtxType = #nvvm.mma_type<{kind}>")
        )
        result = struct_of([x.type for x in c])
        made = self.op(
            f"nvvm.mma.sync A[{', '.join(a)}] B[{', '.join(b)}] C[{', '.join(c)}] {{layoutA = #nvvm.mma_layout<row>, "
            f"layoutB = #nvvm.mma_layout<col>{types}{overflow}, shape = #nvvm.shape<m = 16, n = 8, k = {k}>}} : "
            f"({a[0].type}, {b[0].type}, {c[0].type}) -> {result}",
            result,
        )
        return self.fields(made, [x.type for x in c])

    def mma_float8(
        self, kinds: tuple[str, str], a: Sequence[Value], b: Sequence[Value], c: Sequence[Value]
    ) -> list[Value]:
        """c + a b for a tile m16 n8 k32 of a warp; registers as of `mma`. kinds: of a and b, e4m3 or e5m2."""
        self.need("mma of floats of 8 bits", 89)
        self._ptx = 84
        outs, left, right, sums = (
            f"{{{', '.join(f'${i}' for i in numbers)}}}"
            for numbers in (range(4), range(4, 8), range(8, 10), range(10, 14))
        )
        text = f"mma.sync.aligned.m16n8k32.row.col.f32.{kinds[0]}.{kinds[1]}.f32 {outs}, {left}, {right}, {sums};"
        constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
        # All threads of the warp take part: as an effect, it stays out of branches where the results are used.
        return self.asm(text, constraints, [*a, *b, *c], ["f32"] * 4)

    # -- mbarriers and bulk copies (sm_90 on) -------------------------------------------------------------------------

    def mbarrier_init(self, barrier: Value, count: int) -> None:
        """A barrier of 8 bytes in shared memory that waits for `count` arrivals; then comes `mbarrier_fence`."""
        self.line(f"nvvm.mbarrier.init {barrier}, {self.const(count)} : {SHARED}, i32")

    def mbarrier_fence(self) -> None:
        """Makes initialised barriers visible to bulk copies; a barrier of the block has to follow."""
        self.need("fence.mbarrier_init", 90)
        self.line("nvvm.fence.mbarrier.init")

    def mbarrier_arrive(self, barrier: Value) -> None:
        """Counts one arrival."""
        self.op(f"nvvm.mbarrier.arrive {barrier} : {SHARED} -> i64", "i64")

    def mbarrier_expect(self, barrier: Value, bytes: Index) -> None:
        """Counts one arrival, and makes the phase wait for `bytes` of bulk copies."""
        self.need("mbarrier.arrive.expect_tx", 90)
        self.line(f"nvvm.mbarrier.arrive.expect_tx {barrier}, {self.index(bytes)} : {SHARED}, i32")

    def mbarrier_wait(self, barrier: Value, parity: Index) -> None:
        """Waits until the phase of this parity is complete."""
        self.need("mbarrier.try_wait", 90)
        ticks = self.const(10_000_000)
        self.line(f"nvvm.mbarrier.try_wait.parity {barrier}, {self.index(parity)}, {ticks} : {SHARED}, i32, i32")

    def _cluster(self, address: Value) -> Value:
        return self.op(f"llvm.addrspacecast {address} : {SHARED} to {_CLUSTER}", _CLUSTER)

    def bulk_load(self, target: Value, source: Value, bytes: Index, barrier: Value) -> None:
        """Starts a copy of consecutive global memory; addresses and size are multiples of 16."""
        self.need("cp.async.bulk", 90)
        operands = f"{self._cluster(target)}, {source}, {barrier}, {self.index(bytes)}"
        self.line(f"nvvm.cp.async.bulk.shared.cluster.global {operands} : {_CLUSTER}, {GLOBAL}")

    def tma_load(self, target: Value, map: Value, coordinates: Sequence[Index], barrier: Value) -> None:
        """Starts a copy of a box of a tensor map; coordinates are innermost first, in elements."""
        self.need("cp.async.bulk.tensor", 90)
        box = ", ".join(self.index(x) for x in coordinates)
        text = f"nvvm.cp.async.bulk.tensor.shared.cluster.global {self._cluster(target)}, {map}, {barrier}, box [{box}]"
        self.line(f"{text} : {_CLUSTER}, {GENERIC}")

    def tma_store(self, map: Value, source: Value, coordinates: Sequence[Index]) -> None:
        """Starts a copy of a box to global memory; `fence_async` comes before, where threads wrote it."""
        self.need("cp.async.bulk.tensor", 90)
        box = ", ".join(self.index(x) for x in coordinates)
        self.line(f"nvvm.cp.async.bulk.tensor.global.shared.cta {map}, {source}, box [{box}] : {GENERIC}, {SHARED}")

    def tma_prefetch(self, map: Value) -> None:
        """Fetches a tensor map before it is used."""
        self.need("prefetch.tensormap", 90)
        self.line(f"nvvm.prefetch tensormap, {map} : {GENERIC}")

    def bulk_commit(self) -> None:
        """Makes the bulk stores that this thread started a group."""
        self.line("nvvm.cp.async.bulk.commit.group")

    def bulk_wait(self, pending: int, *, read: bool = False) -> None:
        """Waits until at most `pending` groups aren't done; `read`: until their source may be written again."""
        self.line(f"nvvm.cp.async.bulk.wait_group {pending}{' {read}' if read else ''}")

    def fence_async(self) -> None:
        """Makes what this thread wrote to shared memory visible to bulk copies and wgmma."""
        self.need("fence.proxy.async", 90)
        kind = "kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>"
        self.line(f"nvvm.fence.proxy {{{kind}}}")

    # -- tensor cores of warp groups (sm_90a) -------------------------------------------------------------------------

    def max_registers(self, action: str, count: int) -> None:
        """`increase` or `decrease` the warp group's registers a thread to `count`."""
        self.need("setmaxnreg", 90, exactly=True)
        self.line(f"nvvm.setmaxregister {action} {count}")

    def wgmma_descriptor(self, address: Value, leading: int, stride: int, swizzle: int = 128) -> Value:
        """What describes a matrix in shared memory to `wgmma`, i64.

        address: i32 (`self.address`). leading, stride: bytes between core matrices along the leading and the other
        dimension. swizzle: 0, 32, 64 or 128 bytes.
        """
        fixed = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle] << 62 | stride // 16 << 32 | leading // 16 << 16
        fixed -= 1 << 64 if fixed >> 63 else 0
        low = self.wide((address >> 4) & 0x3FFF)
        return low | self.const(fixed, "i64")

    def wgmma_fence(self) -> None:
        """Orders registers that were written before, which wgmma reads."""
        self.need("wgmma", 90, exactly=True)
        self.line("nvvm.wgmma.fence.aligned")

    def wgmma_commit(self) -> None:
        """Makes the products that were started a group."""
        self.line("nvvm.wgmma.commit.group.sync.aligned")

    def wgmma_wait(self, pending: int) -> None:
        """Waits until at most `pending` groups aren't done. Where other code runs meanwhile, use `wgmma_wait_tied`."""
        self.line(f"nvvm.wgmma.wait.group.sync.aligned {pending}")

    def wgmma_wait_tied(self, pending: int, values: Structure) -> Structure:
        """`wgmma_wait` through which f32 or i32 values pass: nothing that uses the results moves before it."""
        letter = {"f32": "f", "i32": "r"}
        operands = flatten(values)
        outs = [f"={letter[value.type]}" for value in operands]
        constraints = ",".join([*outs, *(str(i) for i in range(len(operands)))])
        text = f"wgmma.wait_group.sync.aligned {pending};"
        return unflatten(values, self.asm(text, constraints, operands, [value.type for value in operands]))

    def wgmma(
        self,
        kind: str,
        n: int,
        a: Value,
        b: Value,
        accumulators: Value,
        *,
        first: bool = False,
        right: str = "",
        layouts: tuple[str, str] = ("row", "col"),
    ) -> Value:
        """accumulators + a b for a tile m64 of a warp group; `first` leaves the accumulators' values out.

        a, b: descriptors. accumulators: a struct of n / 2 f32 (`struct`, `fields`). kind: f16, bf16, tf32, e4m3, e5m2,
        s8 (i32). right: that of b, where it is another one of 8 bits. layouts: (row, col) where both lie along k.
        """
        self.need("wgmma", 90, exactly=True)
        k = {"f16": 16, "bf16": 16, "tf32": 8}.get(kind, 32)
        total = "s32" if kind in ("s8", "u8") else "f32"
        return self.op(
            f"nvvm.wgmma.mma_async {a}, {b}, {accumulators}, <m = 64, n = {n}, k = {k}>, "
            f"D [<{total}>, <{'zero' if first else 'one'}>], A [<{kind}>, <one>, <{layouts[0]}>], "
            f"B [<{right or kind}>, <one>, <{layouts[1]}>] : {accumulators.type} -> {accumulators.type}",
            accumulators.type,
        )

    def wgmma_registers(
        self, kind: str, n: int, a: Sequence[Value], b: Value, accumulators: Sequence[Value], *, transpose: bool = False
    ) -> list[Value]:
        """As `wgmma` with `a` in 4 registers (i32) and the accumulators as values; `transpose`: b lies along n."""
        self.need("wgmma", 90, exactly=True)
        count = len(accumulators)
        k = {"f16": 16, "bf16": 16, "tf32": 8}.get(kind, 32)
        outs = ", ".join(f"${i}" for i in range(count))
        left = ", ".join(f"${2 * count + i}" for i in range(4))
        tail = f", {int(transpose)}" if kind in ("f16", "bf16") else ""
        text = (
            "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
            f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{kind}.{kind} {{{outs}}}, {{{left}}}, ${2 * count + 4}, "
            f"p, 1, 1{tail};\n}}"
        )
        constraints = ",".join(["=f"] * count + [str(i) for i in range(count)] + ["r"] * 4 + ["l"])
        return self.asm(text, constraints, [*accumulators, *a, b], ["f32"] * count)

    # -- chains of kernels (sm_90 on) ---------------------------------------------------------------------------------

    def launch_dependents(self) -> None:
        """Lets the next kernel of the chain start; nothing on chips before sm_90."""
        if self.sm >= 90:
            self.line("nvvm.griddepcontrol launch_dependents")

    def wait_dependencies(self) -> None:
        """Waits for the kernels before in the chain: before it, only weights may be read; nothing before sm_90."""
        if self.sm >= 90:
            self._waits = True
            self.line("nvvm.griddepcontrol wait")


def _held(type: str) -> str:
    """What registers hold of a type: floats of 8 bits are bytes."""
    return with_element(type, "i8") if element_of(type) in FLOAT8 else type


def _alignment(type: str) -> int:
    """Bytes of an access, at most 16: the greatest power of two that divides them."""
    size = BITS[element_of(type)] // 8 if not type.startswith("!") else 8
    for extent in shape_of(type):
        assert extent is not None
        size *= extent
    return min(16, size & -size)
