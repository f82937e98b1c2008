# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of floats of 8 bits for up to 8 rows of x, which are bound by reading weights.

A warp has 16 rows of a weight, the first side of mma; rows of x are its 8 columns, so that they cost nothing more. A
thread reads 16 bytes of each of two rows of the weight, and of one of x, for 64 elements of K that its quad shares. In
which order elements stand along K doesn't matter to a product, as long as it is the same on both sides: four words are
two steps of 32 elements, without an exchange. The warps of a block share K, and add up their sums in order.

Where chips multiply floats of 8 bits in registers, sums of 64 elements begin at zero, as in `gemm_float8`; elsewhere
they are converted to f16, exactly.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Index, Value, vec
from rlx_mlir.codegen.gpu.emit import FLOAT8, DeviceEmitter, Parameter, pointer
from rlx_mlir.codegen.gpu.epilogue import Epilogue
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_float8 import NATIVE, as_halves
from rlx_mlir.codegen.gpu.gemm_host import dense_operands, results_of
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.kernel import row_count
from rlx_mlir.codegen.structures import mapped

MOST_ROWS = 8
"""Rows of x at most: the columns of mma."""
WARPS, ROWS, SPAN, UNROLL = 8, 16, 64, 2
"""Warps of a block; rows of a weight of a block; elements of K of a warp's step; steps whose loads come first."""


def gemv_float8(chip: str, gemm: Gemm) -> DeviceKernel:
    """The kernel of a product of few rows. Operands as for `gemm_float8`; gemm.m is at most 8, or dynamic.

    Raises UnsupportedByTemplate for other types, batches, weights [K, N], and where N isn't known, or K no multiple of
    16.
    """
    n, k, m = gemm.n, gemm.k, gemm.m
    if gemm.float8 is None or gemm.batched or not gemm.transpose_rhs:
        raise UnsupportedByTemplate(f"{gemm.name}: few rows are multiplied with a matrix of floats of 8 bits along K")
    if not n or not k or k % 16 or (m is not None and m > MOST_ROWS):
        raise UnsupportedByTemplate(f"{gemm.name}: expects at most {MOST_ROWS} rows, of a multiple of 16 bytes")
    em, symbol = DeviceEmitter(chip), f"{symbol_of(gemm.name)}_few8"
    program = gemm.program
    names = [name for name, _ in dense_operands(gemm)]
    parameters: list[Parameter] = [
        *(pointer(name, readonly=True, constant=gemm.constant and name.startswith("w")) for name in names),
        *(pointer(name) for name, _ in results_of(gemm)),
        *([("m", "i32")] if m is None else []),
    ]
    with em.kernel(symbol, parameters, 32 * WARPS, chained=True) as values:
        x, weights = values[0], values[1 : 1 + program.accumulators]
        arguments, last = values[1 + program.accumulators : len(names)], len(names) + len(program.results)
        epilogue = Epilogue(em, program, gemm.element, arguments, values[len(names) : last], n)
        fast = bool(gemm.chosen.take("fast_sums")) or em.sm not in NATIVE
        _Block(em, gemm.float8, n, k, values[-1] if m is None else m, fast).run(x, weights, epilogue)

    def host(host: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        rows = row_count(host, operands[0])
        blocks: Index = -(-n // ROWS)
        if isinstance(rows, Value):
            blocks = host.select(host.cmpi("eq", rows, 0), 0, blocks)
        elif rows == 0:
            blocks = 0
        given = [*operands, *results, *([host.i32(rows)] if m is None else [])]
        shared = 4 * WARPS * ROWS * MOST_ROWS * program.accumulators
        host.launch(symbol, blocks, 32 * WARPS, given, shared=shared)

    return write_device_kernel(
        gemm.name, "gemv_float8", dense_operands(gemm), results_of(gemm), em, host, order=gemm.operand_order
    )


@dataclass(frozen=True)
class _Block:
    """Emits the 16 columns of the result of one block; fast: mma adds up all of K."""

    em: DeviceEmitter
    kinds: tuple[str, str]
    n: int
    k: int
    m: Index
    fast: bool

    def run(self, x: Value, weights: Sequence[Value], epilogue: Epilogue) -> None:
        """Products of the block, then their program."""
        em, n, k = self.em, self.n, self.k
        lane, warp = em.lane(), em.warp()
        group, quad = lane >> 2, lane & 3
        first_row = em.block() * ROWS

        def line(base: Value, row: Index, count: Index) -> Value:
            """The thread's first byte of a row, or of the last."""
            inside = em.imin(row, count - 1)
            return em.at(em.at(base, em.wide(inside) * k, "i8"), quad * 16, "i8")

        lines = [line(own, first_row + (group + half), n) for own in weights for half in (0, 8)]
        lines.append(line(x, group, self.m))
        sums = [[em.const(0.0, "f32")] * 4] * len(weights)
        step = WARPS * SPAN
        whole = k // SPAN // (WARPS * UNROLL) * UNROLL
        with em.loop(0, whole * step, step * UNROLL, sums, hint="k") as loop:
            place = loop.iv + warp * SPAN
            loaded = [[self._load(own, place + u * step) for own in lines] for u in range(UNROLL)]
            totals = loop.carry
            for words in loaded:
                totals = self._multiply(words, totals)
            loop.yield_(totals)
        sums = loop.result
        # What is left may end inside of a warp's step: what lies behind is zero.
        with em.loop(whole * step, k, step, sums, hint="k") as rest:
            place = rest.iv + warp * SPAN
            exists = em.cmpi("ult", place + quad * 16, k)
            rest.yield_(self._multiply([self._load(own, place, exists) for own in lines], rest.carry))
        self._finish(rest.result, first_row, epilogue)

    def _load(self, line: Value, place: Index, exists: Value | None = None) -> list[Value]:
        em, type = self.em, vec(4, "i32")
        address = em.at(line, place, "i8")
        return em.lanes(em.ld(address, type) if exists is None else em.ld_if(exists, address, type))

    def _multiply(self, words: Sequence[list[Value]], sums: list[list[Value]]) -> list[list[Value]]:
        """sums + weights x, of 64 elements of K; `words` are those of two rows of each weight, then those of x."""
        em, result = self.em, []
        *rows, x = words
        native, kinds = em.sm in NATIVE, (FLOAT8[self.kinds[1]], FLOAT8[self.kinds[0]])
        for low, high, total in zip(rows[::2], rows[1::2], sums, strict=True):
            part = total if self.fast else [em.const(0.0, "f32")] * 4
            for step in range(2):
                at = slice(2 * step, 2 * step + 2)
                if native:
                    a = [low[at][0], high[at][0], low[at][1], high[at][1]]
                    part = em.mma_float8(kinds, a, x[at], part)
                    continue
                halves = [as_halves(em, word, kinds[0]) for word in (*low[at], *high[at])]
                for word in range(2):
                    first, second = halves[word], halves[2 + word]
                    b = as_halves(em, x[at][word], kinds[1])
                    part = em.mma("f16", [first[0], second[0], first[1], second[1]], b, part)
            result.append(part if self.fast else mapped(operator.add, total, part))
        return result

    def _finish(self, sums: list[list[Value]], first_row: Index, epilogue: Epilogue) -> None:
        """Adds up the warps' sums, [weight][warp][row of x][row of the weight] in shared memory, and stores."""
        em, size = self.em, ROWS * MOST_ROWS
        group, pair = em.lane() >> 2, (em.lane() & 3) * 2
        for number, four in enumerate(sums):
            base = em.warp() * size + number * WARPS * size
            for e, value in enumerate(four):
                at = (pair + e % 2) * ROWS + (group + 8 * (e // 2))
                em.st(value, em.shared(), base + at)
        em.barrier()
        thread = em.thread()
        row, m = em.index(first_row + thread % ROWS), em.index(thread // ROWS)
        exists = em.cmpi("ult", m, self.m) & em.cmpi("ult", row, self.n)
        with em.if_(exists & em.cmpi("ult", thread, size)):
            products = []
            for number in range(len(sums)):
                places = [thread + (number * WARPS + w) * size for w in range(WARPS)]
                products.append([em.tree("add", [em.ld(em.shared(), "f32", at) for at in places])])
            epilogue.store(products, m, row)
