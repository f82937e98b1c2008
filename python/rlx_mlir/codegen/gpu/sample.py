# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPU schedule of `mir.sample`: one block for each sequence, one thread for each candidate.

Weights are added by one thread, in their order: results are those of other targets wherever exp is. All else is
counting. Of the tokens that were chosen, one is written, in place.
"""

from __future__ import annotations

import math

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Value, vec
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, pointer
from rlx_mlir.codegen.gpu.epilogue import exp
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.specs import SampleSpec
from rlx_mlir.mir.sampling import COUNT, NOTHING, TEMPERATURE, TOP_P

MOST_THREADS = 1024


def emit_sample(name: str, spec: SampleSpec, chip: str) -> DeviceKernel:
    """The kernel; UnsupportedByTemplate for more candidates than a block has threads."""
    k, threads = spec.k, -(-spec.k // 32) * 32
    if threads > MOST_THREADS:
        raise UnsupportedByTemplate(f"{name}: {k} candidates are more than a block has threads, {MOST_THREADS}")
    em = DeviceEmitter(chip)
    kernel = symbol_of(name)
    names = ("values", "indices", "controls", "draws", "pos")
    parameters = [*(pointer(own, readonly=True) for own in names), *map(pointer, ("token", "next", "chosen"))]
    with em.kernel(kernel, [*parameters, ("places", "i64")], threads, chained=True) as arguments:
        values, indices, controls, draws, pos, token, following, chosen, places = arguments
        row, thread = em.block(), em.thread()
        values, indices = (em.at(own, em.wide(row) * k, kind) for own, kind in ((values, "f32"), (indices, "i32")))
        controls = em.at(controls, em.wide(row) * 3, "f32")
        draws, chosen = (em.at(own, em.wide(row) * places, kind) for own, kind in ((draws, "f32"), (chosen, "i32")))
        temperature, count, top_p = (em.ld(controls, "f32", column) for column in (TEMPERATURE, COUNT, TOP_P))
        exists = em.cmpi("ult", thread, k)
        value, largest = em.ld_if(exists, values, "f32", thread), em.ld(values, "f32")
        end = em.short(places) - 1
        place = em.binary("arith.minsi", em.binary("arith.maxsi", em.ld(pos, "i32", em.wide(row)), 0), end)

        kept = em.cmpf("olt", em.cast("arith.sitofp", thread, "f32"), em.maximumf(count, 1.0))
        weight = exp(em, (value - largest) / temperature)
        weight = em.select(exists & kept, weight, 0.0)
        sums, memory = em.shared(), em.shared(4 * threads)
        _add_up(em, weight, sums, threads)

        def counted(condition: Value) -> Value:
            one = em.select(exists & condition, 1, 0)
            return em.block_reduce("addi", one, memory, threads)

        own, total = em.ld(sums, "f32", thread), em.ld(sums, "f32", k - 1)
        last = em.binary("arith.minsi", counted(em.cmpf("olt", own, top_p * total)), k - 1)
        bound = em.ld(draws, "f32", place) * em.ld(sums, "f32", last)
        drawn = em.binary("arith.minsi", counted(em.cmpf("ole", own, bound)), last)
        unordered = em.cmpi("sgt", counted(em.cmpf("uno", value, value)), 0)
        with em.if_(em.cmpi("eq", thread, 0)):
            at = em.select(em.cmpf("ogt", temperature, 0.0), drawn, 0)
            magnitude = em.maximumf(largest, -largest)
            impossible = unordered | em.cmpf("oeq", magnitude, math.inf)
            found = em.select(impossible, NOTHING, em.ld(indices, "i32", at))
            em.st(found, token, em.wide(row))
            em.st(em.binary("arith.minsi", place + 1, end), following, em.wide(row))
            em.st(found, chosen, place)

    def host(host: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        batch, length = (host.dim(operands[4], axis) for axis in (0, 1))
        given = [*operands[:4], operands[5], *results]
        host.launch(kernel, batch, threads, [*given, host.i64(length)], shared=4 * threads + 128)

    operands = [(own, kind) for own, kind in zip((*names[:4], "before", "pos"), spec.operands, strict=True)]
    results = [(own, kind) for own, kind in zip(("token", "next", "chosen"), spec.results, strict=True)]
    return write_device_kernel(name, "sample", operands, results, em, host)


def _add_up(em: DeviceEmitter, weight: Value, sums: Value, threads: int) -> None:
    """Puts the sums of the weights of each thread and of those before it into shared memory."""
    em.st(weight, sums, em.thread())
    em.barrier()
    with em.if_(em.cmpi("eq", em.thread(), 0)), em.loop(0, threads, 4, carry=em.const(0.0, "f32")) as loop:
        total, after = loop.carry, []
        for own in em.lanes(em.ld(sums, vec(4, "f32"), loop.iv)):
            total = total + own
            after.append(total)
        em.st(em.vector(after), sums, loop.iv)
        loop.yield_(total)
    em.barrier()
