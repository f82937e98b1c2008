# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that call a function of the program which runs the code: operations of users' own."""

from __future__ import annotations

import struct

from rlx_mlir.codegen.emit import Emitter, Index, Value, shape_of
from rlx_mlir.codegen.specs import CallSpec

from .kernel import Scratch, write_kernel
from .registry import Generator, as_it_is
from .target import Target


def host_symbols(name: str) -> tuple[str, str]:
    """What a kernel calls: the function that computes it, and where that says with a number that it failed, another."""
    return f"own_{name}", f"own_{name}_failed"


def declare_call(name: str) -> str:
    """The declarations of `host_symbols`.

    The first takes the addresses of operands and results, the sizes of all their dimensions one after the other, and
    the parameters, which are f64; it gives 0, or the number of an error, which the second one is told.
    """
    function, failed = host_symbols(name)
    return f"llvm.func @{function}(!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i64\nllvm.func @{failed}(i64)\n"


def emit_call(name: str, spec: CallSpec) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text. One unit does all the work.

    With them come the declarations of what they call, which `declare_call` gives, too.
    """
    operands = [(f"operand{number}", kind) for number, kind in enumerate(spec.operands)]
    results = [(f"result{number}", kind) for number, kind in enumerate(spec.results)]
    function, failed = host_symbols(name)

    def units(em: Emitter, values: list[Value]) -> Index:
        return 1

    def body(em: Emitter, read: list[Value], written: list[Value], begin: Value, end: Value, own: Scratch) -> None:
        buffers = [*read, *written]
        sizes = [em.index(em.dim(buffer, axis)) for buffer in buffers for axis in range(len(shape_of(buffer.type)))]
        given = [
            _array(em, [_address(em, buffer) for buffer in buffers]),
            _array(em, [em.cast("arith.index_cast", size, "i64") for size in sizes]),
            _array(em, [_number(em, value) for value in spec.parameters]),
        ]
        pointers = ", ".join(["!llvm.ptr"] * len(given))
        status = em.op(f"llvm.call @{function}({', '.join(given)}) : ({pointers}) -> i64", "i64", "status")
        bad = em.op(f"arith.cmpi ne, {status}, {em.const(0, 'i64')} : i64", "i1", "bad")
        em.line(f"scf.if {bad} {{")
        em.line(f"  llvm.call @{failed}({status}) : (i64) -> ()")
        em.line("}")

    return declare_call(name) + write_kernel(name, operands, results, units=units, body=body, order=spec.order)


def _address(em: Emitter, buffer: Value) -> Value:
    """The address of a buffer's first element."""
    number = em.cast("arith.index_cast", em.address(buffer), "i64")
    return em.op(f"llvm.inttoptr {number} : i64 to !llvm.ptr", "!llvm.ptr", "pointer")


def _number(em: Emitter, value: float) -> Value:
    """A constant f64 by its bits, which is exact for any number."""
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    return em.op(f"arith.constant 0x{bits:016X} : f64", "f64", "parameter")


def _array(em: Emitter, values: list[Value]) -> Value:
    """The address of values of one type, one after the other, on the stack."""
    kind = values[0].type if values else "i64"
    count = em.const(max(len(values), 1), "i64")
    array = em.op(f"llvm.alloca {count} x {kind} : (i64) -> !llvm.ptr", "!llvm.ptr", "array")
    for number, value in enumerate(values):
        place = em.op(f"llvm.getelementptr {array}[{number}] : (!llvm.ptr) -> !llvm.ptr, {kind}", "!llvm.ptr", "place")
        em.line(f"llvm.store {value}, {place} : {kind}, !llvm.ptr")
    return array


def _emit(name: str, spec: CallSpec, target: Target) -> str:
    return emit_call(name, spec)


GENERATORS = (Generator("own", "own", as_it_is, _emit),)
