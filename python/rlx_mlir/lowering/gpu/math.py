# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes `gpu-lower-math` and `gpu-lower-subgroup-reduce`: what upstream would turn into calls of a library."""

from __future__ import annotations

from mlir.dialects import arith

from rlx_mlir import ir
from rlx_mlir.errors import CompileError
from rlx_mlir.lowering.gpu.build import WARP, found
from rlx_mlir.rewriting import compiler_pass, operations
from rlx_mlir.unsupported import list_operations

#: Instructions of the GPU, by the operation: LLVM's names.
INTRINSICS = {
    "math.absf": "llvm.fabs",
    "math.ceil": "llvm.ceil",
    "math.copysign": "llvm.copysign",
    "math.floor": "llvm.floor",
    "math.fma": "llvm.fma",
    "math.roundeven": "llvm.roundeven",
    "math.sqrt": "llvm.sqrt",
    "math.trunc": "llvm.trunc",
}
#: By the word of a reduction, the operation that combines two values: of floats, of integers.
COMBINE = {
    "add": ("arith.addf", "arith.addi"),
    "mul": ("arith.mulf", "arith.muli"),
    "maximumf": ("arith.maximumf", ""),
    "minimumf": ("arith.minimumf", ""),
    "maxsi": ("", "arith.maxsi"),
    "minsi": ("", "arith.minsi"),
}


@compiler_pass("gpu-lower-math", anchor="gpu.module", dependent=("llvm", "arith"))
def lower_math(module: ir.Operation) -> None:
    """Turn functions of the math dialect into instructions of the GPU; there is no library to call.

    `sqrt` and its like are exact, as on CPUs. Runs after rlx-expand-math and math-expand-ops, which expand the others.

    Raises CompileError where functions are left, such as those of f64: the message lists them all.
    """
    left = []
    for op in [op for op in operations(module) if op.name.startswith("math.")]:
        kind = str(op.results[0].type)
        with op.location, ir.InsertionPoint(op):
            if op.name == "math.rsqrt":
                new = arith.divf(_scalar(op, 1.0), _intrinsic("llvm.sqrt", list(op.operands), op.results[0].type))
            elif op.name in INTRINSICS and kind in ("f16", "f32", "f64"):
                new = _intrinsic(INTRINSICS[op.name], list(op.operands), op.results[0].type)
            else:
                left.append((op, f"of {kind}"))
                continue
        op.results[0].replace_all_uses_with(new)
        op.erase()
    if left:
        lines = ["GPUs have no instruction for, and we no expansion of:", *list_operations(left)]
        raise CompileError("\n  ".join(lines))


def _scalar(op: ir.AnyOp, value: float) -> ir.Value:
    return arith.constant(op.results[0].type, value)


def _intrinsic(name: str, operands: list[ir.Value], kind: ir.Type) -> ir.Value:
    return ir.Operation.create(
        "llvm.call_intrinsic",
        results=[kind],
        operands=operands,
        attributes={
            "intrin": ir.StringAttr.get(f"{name}.{kind}"),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        },
    ).result


@compiler_pass("gpu-lower-subgroup-reduce", anchor="gpu.module", dependent=("gpu", "arith"))
def lower_subgroup_reduce(module: ir.Operation) -> None:
    """Turn reductions of a warp into shuffles: each thread adds what its neighbour at a distance of 1, 2, .. 16 has.

    Every thread has the result. Values are of 32 bits.
    """
    for op in found(module, "gpu.subgroup_reduce"):
        value = op.operands[0]
        word = str(op.attributes["op"]).removeprefix("#gpu<all_reduce_op ").removesuffix(">")
        floats, integers = COMBINE.get(word, ("", ""))
        name = floats if str(value.type) == "f32" else integers if str(value.type) == "i32" else ""
        if not name:
            raise CompileError(
                f"reduction '{word}' of {value.type} at {op.location}: f32 and i32 are reduced by shuffles"
            )
        i32 = ir.IntegerType.get_signless(32)
        with op.location, ir.InsertionPoint(op):
            width = arith.constant(i32, WARP)
            distance = 1
            while distance < WARP:
                other = ir.Operation.create(
                    "gpu.shuffle",
                    results=[value.type, ir.IntegerType.get_signless(1)],
                    operands=[value, arith.constant(i32, distance), width],
                    attributes={"mode": ir.Attribute.parse("#gpu<shuffle_mode xor>")},
                ).results[0]
                value = ir.Operation.create(name, results=[value.type], operands=[value, other]).result
                distance *= 2
        op.results[0].replace_all_uses_with(value)
        op.erase()
