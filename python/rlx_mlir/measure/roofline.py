# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What this machine can do at most: arithmetic and reading, measured by kernels that this compiler compiles.

Figures are those of the moment: of the CPUs that the process may use, beside whatever else runs on them. So they are
measured when they are needed, in turns with what is compared with them, and kept for the process only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from rlx_mlir import native
from rlx_mlir.codegen.cpu.gemm_amx import SIDE, Tiles
from rlx_mlir.codegen.cpu.kernel import Scratch
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.emit import Emitter, Index, Value, memref, vec
from rlx_mlir.measure.timing import NOISY, Series, interleave
from rlx_mlir.runtime.executable import empty_aligned
from rlx_mlir.runtime.tiles import request_tiles

#: Elements of f32 that one unit of the reading kernel sums: 64 KiB.
CHUNK = 1 << 14
#: Units of the arithmetic kernels; a multiple of any sensible number of threads.
UNITS = 64
#: Multiply-adds of each accumulator in one unit.
STEPS = 20_000
#: Products of four tiles each in one unit, and the operands' bytes in a row.
TILE_STEPS, _TILE_ROW = 4_000, 64
#: Products of parts of bf16 that make one of f32, see docs/performance.md.
F32_PRODUCTS = 6
#: Bytes that the reading kernel reads where nothing else is said: more than most last-level caches hold.
WORKING_SET = 256 << 20
_LEAST_WORKING_SET, _MOST_WORKING_SET = 1 << 20, 1 << 30
#: Bytes that one measurement reads at least, over and over.
_LEAST_READ = 64 << 20


@dataclass(frozen=True)
class Roofline:
    """Upper bounds for this machine.

    Attributes:
        threads: that were used.
        flops: of multiply-adds of f32 in registers, two each, per second; where AMX has tiles of bf16, of products of
            f32 by these if they are faster: several products of parts for one.
        integer_ops: of dot products of bytes, two for each pair, per second, by the fastest instruction that products
            have: tiles of AMX, `vpdpbusd`, `vpmaddubsw` of AVX2, NEON's; None where the processor has none of them.
        bandwidth: bytes read per second from `working_set` bytes, over and over.
        spread: the largest of their spreads over the rounds.
        device: the GPU, whose arithmetic is a data sheet's, and whose bandwidth is that of a copy; empty for CPUs.
    """

    threads: int
    flops: float
    integer_ops: float | None
    bandwidth: float
    working_set: int
    spread: float
    device: str = ""

    @property
    def noise(self) -> str:
        """Why the figures are uncertain; empty where they aren't."""
        return f"spread of {self.spread:.0%} is above {NOISY:.0%}" if self.spread > NOISY else ""

    def arithmetic(self, integer: bool) -> float:
        """The bound for kernels whose products are of integers, or of f32."""
        return self.integer_ops if integer and self.integer_ops is not None else self.flops

    def seconds(self, flops: float, bytes: float, *, integer: bool = False) -> float:
        """The least time for so much work: that for its arithmetic or that for its bytes, whichever is longer."""
        return max(flops / self.arithmetic(integer), bytes / self.bandwidth)

    def __str__(self) -> str:
        integer = "" if self.integer_ops is None else f", {self.integer_ops / 1e9:.0f} Gop/s of int8"
        who, how = self.device or f"{self.threads} threads", "copied in" if self.device else "read from"
        return (
            f"{who}: {self.flops / 1e9:.0f} GFLOP/s of f32{integer}, {self.bandwidth / 1e9:.1f} GB/s "
            f"{how} {self.working_set >> 20} MiB" + (f" (uncertain: {self.noise})" if self.noise else "")
        )

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it; per second."""
        return {
            "threads": self.threads,
            "flops": self.flops,
            "integer_ops": self.integer_ops,
            "bandwidth": self.bandwidth,
            "working_set": self.working_set,
            "spread": self.spread,
            "device": self.device,
        }


class Probe:
    """The kernels, compiled and ready: each method runs one once and returns a figure per second."""

    def __init__(self, threads: int | None = None, working_set: int = WORKING_SET) -> None:
        """Compiles the kernels.

        Args:
            threads: of one call; None for as many as the process may use.
            working_set: bytes to read, rounded to whole chunks; at least 1 MiB.
        """
        target = _host()
        texts = {"peak_f32": _arithmetic("peak_f32", target, integer=False), "read": _read(target)}
        self.has_integers = target.vnni or target.dotprod or _by_pairs(target)
        if self.has_integers:
            texts["peak_int8"] = _arithmetic("peak_int8", target, integer=True)
        texts |= {name: _tiles(name, instruction) for name, instruction in _tile_kernels(target).items()}
        code = native.ObjectCode([_compiled("\n".join(texts.values()))])
        count = max(working_set, _LEAST_WORKING_SET) // (4 * CHUNK) * CHUNK
        self._data = empty_aligned((count,), np.dtype(np.float32))
        self._data.fill(1.0)  # pages of their own: a page of zeros that is shared would stay in the cache
        self._sums = empty_aligned((count // CHUNK,), np.dtype(np.float32))
        self._values = empty_aligned((UNITS,), np.dtype(np.float32))
        self._plans = {name: _plan(code, name, threads) for name in texts}
        self._target = target
        self.threads = int(self._plans["read"].threads)
        self.working_set = self._data.nbytes

    def flops(self) -> float:
        """f32 operations per second, a multiply-add being two."""
        seconds = self._run("peak_f32", self._values, [self._data.size, UNITS])
        return UNITS * STEPS * accumulators(self._target) * self._target.lanes("f32") * 2 / seconds

    def integer_ops(self) -> float:
        """Operations of dot products of bytes per second, two for each pair; only where `has_integers`."""
        seconds = self._run("peak_int8", self._values, [self._data.size, UNITS])
        return UNITS * STEPS * accumulators(self._target) * self._target.lanes("i8") * 2 / seconds

    def bandwidth(self) -> float:
        """Bytes per second."""
        times = -(-_LEAST_READ // self.working_set)
        sizes = [self._data.size, self._sums.size]
        return self.working_set * times / sum(self._run("read", self._sums, sizes) for _ in range(times))

    def tiles(self, name: str) -> float:
        """Operations of products of tiles per second, two for each pair of numbers; of a kernel of `_tile_kernels`."""
        seconds = self._run(name, self._values, [self._data.size, UNITS])
        pairs = SIDE * SIDE * (_TILE_ROW if name == "tiles_i8" else _TILE_ROW // 2)
        return UNITS * TILE_STEPS * 4 * pairs * 2 / seconds

    def figures(self) -> dict[str, Callable[[], float]]:
        """The methods by name, for `interleave`."""
        found = {"flops": self.flops, "bandwidth": self.bandwidth}
        if self.has_integers:
            found["integer_ops"] = self.integer_ops
        return found | {name: partial(self.tiles, name) for name in self._plans if name.startswith("tiles_")}

    def roofline(self, series: dict[str, Series]) -> Roofline:
        """The bounds that rounds of `figures` show: the best of each, since what disturbs only makes slower."""
        best = {name: max(series[name].values) for name in self.figures()}
        integer = max(best.get("integer_ops", 0.0), best.get("tiles_i8", 0.0))
        return Roofline(
            self.threads,
            max(best["flops"], best.get("tiles_bf16", 0.0) / F32_PRODUCTS),
            integer or None,
            best["bandwidth"],
            self.working_set,
            max(series[name].spread for name in best),
        )

    def _run(self, name: str, out: np.ndarray, sizes: list[int]) -> float:
        begin = time.perf_counter()
        self._plans[name].run([self._data.ctypes.data], [], [out.ctypes.data], sizes)
        return time.perf_counter() - begin


@cache
def measure(threads: int | None = None, working_set: int = WORKING_SET, rounds: int = 5) -> Roofline:
    """The bounds of this machine, measured once in a process for each set of arguments; takes about a second.

    Args:
        threads: of one call; None for as many as the process may use.
        working_set: bytes that are read: what fits into a cache is read faster.
        rounds: of all figures in turns.
    """
    probe = Probe(threads, working_set)
    return probe.roofline(interleave(probe.figures(), rounds))


def rounded_set(count: int) -> int:
    """Bytes of a working set, in steps of 16 MiB: the machine is measured once for sizes that differ little.

    No more than 1 GiB, which no cache holds: the weights of a large model may leave no room for as many bytes again.
    """
    step = 16 << 20
    return min(-(-count // step) * step, _MOST_WORKING_SET)


def accumulators(target: Target) -> int:
    """Independent multiply-adds in flight: nearly all registers, so that latency never shows."""
    return target.registers - 4


def _host() -> Target:
    from rlx_mlir import ir

    triple, cpu, features = ir.native.host_target()
    return Target.from_features(features, triple, cpu)


def _compiled(text: str) -> bytes:
    from rlx_mlir import ir
    from rlx_mlir.rewriting import run_pipeline

    with ir.new_context():
        module = ir.Module.parse(text)
        run_pipeline(module, "rlx-to-llvm")
        return bytes(ir.native.emit_code(module.operation, *ir.native.host_target(), 2, ir.native.CodeKind.OBJECT))


def _plan(code: native.ObjectCode, name: str, threads: int | None) -> native.Plan:
    """A plan of one call: it reads `data` and writes one value for each unit."""
    return native.Plan(
        code,
        symbols=[("data", 1 << 40), ("out", 1 << 30)],
        arena_bytes=0,
        slots=[],
        kernels=[name],
        inputs=["data"],
        params=[],
        outputs=["out"],
        calls=[(0, [("input", 0, 0), ("output", 0, 0)], [[(1, [0])], [(1, [1])]], None)],
        threads=threads or 0,
    )


_BUFFERS = [("x", memref((None,), "f32")), ("out", memref((None,), "f32"))]


def _kernel(
    name: str,
    unit: Callable[[Emitter, Value, Index, Scratch], Value],
    scratch: Callable[[Emitter, Scratch], object] = lambda em, parts: None,
) -> str:
    """A kernel whose unit number i writes `unit(em, x, i, parts)`, a scalar, to out[i]; `scratch` takes the parts."""
    em = Emitter()
    more = [("begin", "index"), ("end", "index"), ("scratch", "memref<?xi8>")]
    with (
        em.func(f"{name}.body", [*_BUFFERS, *more]) as (x, out, begin, end, own),
        em.loop(begin, end, hint="unit") as u,
    ):
        em.store(unit(em, x, u.iv, Scratch(em, own)), out, [u.iv])
    with em.func(f"{name}.units", _BUFFERS, ["index"]) as (_, out):
        em.return_([em.index(em.dim(out, 0))])
    with em.func(f"{name}.scratch", _BUFFERS, ["index"]):
        parts = Scratch(em)
        scratch(em, parts)
        em.return_([em.index(parts.bytes)])
    return em.text()


def _by_pairs(target: Target) -> bool:
    """Whether products of bytes are sums of pairs in i16, by AVX2."""
    return target.x86 and target.vector_bits == 256 and target.has("avx2") and not target.vnni


def _tile_kernels(target: Target) -> dict[str, str]:
    """Instructions of the kernels that multiply tiles, where the processor has them and the system lends them."""
    known = {"i8": "tdpbusd", "bf16": "tdpbf16ps"}
    found = {f"tiles_{element}": name for element, name in known.items() if target.tiles(element)}
    return found if found and request_tiles() else {}


def _arithmetic(name: str, target: Target, *, integer: bool) -> str:
    """Multiply-adds of registers with registers: of f32, or of bytes with sums in i32 (AVX2: in i16)."""
    pairs = integer and _by_pairs(target)
    kind = target.vector("i16" if pairs else "i32" if integer else "f32")

    def step(em: Emitter, total: Value, a: Value, b: Value) -> Value:
        if not integer:
            return target.fma(em, total, a, b)
        if pairs:  # of the sum itself: else the product would be computed once, before the loop
            pair = em.intrinsic("llvm.x86.avx2.pmadd.ub.sw", [em.bitcast(total, b.type), b], kind)
            return pair + em.bitcast(a, kind)
        name = f"llvm.x86.avx512.vpdpbusd.{target.vector_bits}" if target.vnni else "llvm.aarch64.neon.sdot.v4i32.v16i8"
        return em.intrinsic(name, [total, a, b], kind)

    def unit(em: Emitter, x: Value, _: Index, scratch: Scratch) -> Value:
        # From memory, so that nothing can be computed before it runs.
        a = em.vload(x, [0], target.vector("f32")) * 0.75
        b = em.vload(x, [64], target.vector("f32"))
        start = [em.vload(x, [16 * i], target.vector("f32")) for i in range(accumulators(target))]
        if integer:
            a, b = (em.bitcast(value, target.vector("i8")) for value in (a, b))
            start = [em.bitcast(value, kind) for value in start]
        with em.loop(0, STEPS, carry=start) as loop:
            loop.yield_([step(em, total, a, b) for total in loop.carry])
        total = loop.result[0]
        for other in loop.result[1:]:
            total = total + other
        if not integer:
            return em.reduce("add", total, "reassoc")
        return em.bitcast(em.reduce("add", em.bitcast(total, target.vector("i32"))), "f32")

    return _kernel(name, unit)


def _tiles(name: str, instruction: str) -> str:
    """Products of two tiles of rows with two of columns, over and over: four sums."""

    def parts(em: Emitter, scratch: Scratch) -> tuple[Tiles, Value]:
        return Tiles(em, scratch), scratch.take([4, SIDE, SIDE], "i32")

    def unit(em: Emitter, x: Value, _: Index, scratch: Scratch) -> Value:
        tiles, sums = parts(em, scratch)
        tiles.configure()
        row = tiles.stride(_TILE_ROW)
        for tile in range(4):
            tiles.emit("tilezero", tile)
            tiles.emit("tileloadd64", 4 + tile, tiles.pointer(x, tile * SIDE * _TILE_ROW), row)
        with em.loop(0, TILE_STEPS):
            for tile in range(4):
                tiles.emit(instruction, tile, 4 + tile // 2, 6 + tile % 2)
        total = em.zero(vec(SIDE, "i32"))
        for tile in range(4):
            tiles.emit("tilestored64", tile, tiles.pointer(sums, tile * SIDE * _TILE_ROW), row)
            total = total + em.vload(sums, [tile, 0, 0], vec(SIDE, "i32"))
        tiles.release()
        return em.bitcast(em.reduce("add", total), "f32")

    return _kernel(name, unit, parts)


def _read(target: Target) -> str:
    """Sums of chunks: one load and one addition for each vector."""
    lanes, ways = target.lanes("f32"), 8

    def unit(em: Emitter, x: Value, number: Index, _: Scratch) -> Value:
        first = number * CHUNK
        zeros = [em.zero(target.vector("f32")) for _ in range(ways)]
        with em.loop(first, first + CHUNK, lanes * ways, carry=zeros) as loop:
            parts = [em.vload(x, [loop.iv + lanes * way], target.vector("f32")) for way in range(ways)]
            loop.yield_([total + part for total, part in zip(loop.carry, parts, strict=True)])
        total = loop.result[0]
        for other in loop.result[1:]:
            total = total + other
        return em.reduce("add", total, "reassoc")

    return _kernel("read", unit)
