# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `gpu-emit-ptx`: a GPU module in the NVVM dialect becomes PTX."""

from __future__ import annotations

from typing import Any

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.codegen.gpu import chips
from rlx_mlir.codegen.gpu.emit import PTX_VERSION
from rlx_mlir.errors import CompileError
from rlx_mlir.rewriting import Option, compiler_pass


@compiler_pass(
    "gpu-emit-ptx",
    dependent=("gpu", "nvvm", "llvm"),
    options={
        "chip": Option("compute capability", chips.DEFAULT_CHIP, tuple(chips.CHIPS)),
        "ptx": Option("version of PTX, such as 8.6; the least that knows the chip where empty", ""),
        "level": Option("LLVM's optimisation level, 0 to 3", 2),
    },
)
def emit_ptx(module: ir.Operation, *, chip: str, ptx: str, level: int) -> None:
    """Turn the GPU module into a `gpu.binary` that holds PTX.

    LLVM's code generator is part of the package: neither a CUDA toolkit nor a GPU is needed. PTX is text; drivers
    compile it for the GPU at hand. Kernels may need a later version of PTX than their chip does. Runs after
    rlx-gpu-to-nvvm.

    Raises CompileError where the PTX names functions that it doesn't hold.
    """
    for gpu_module in [op for op in module.regions[0].blocks[0].operations if op.operation.name == "gpu.module"]:
        kernels = [op.operation.attributes for op in gpu_module.operation.regions[0].blocks[0].operations]
        needed = [python_value(own[PTX_VERSION]) for own in kernels if PTX_VERSION in own]
        feature = chips.ptx_feature(chip, ptx, max(needed, default=0))
        text = generate(gpu_module, chip, feature, level)
        name = gpu_module.operation.attributes["sym_name"].value
        with gpu_module.operation.location, ir.InsertionPoint(gpu_module.operation):
            _binary(name, chip, feature, level, text)
        gpu_module.operation.erase()


def generate(gpu_module: Any, chip: str, feature: str, level: int) -> str:
    """PTX of a GPU module in the NVVM dialect."""
    plain = ir.Module.create(gpu_module.operation.location)
    for op in gpu_module.operation.regions[0].blocks[0].operations:
        plain.body.append(op.operation.clone())
    try:
        code = ir.native.emit_code(plain.operation, chips.TRIPLE, chip, feature, level, ir.native.CodeKind.ASSEMBLY)
    except ValueError as error:
        raise CompileError(f"GPU module '{gpu_module.operation.attributes['sym_name'].value}': {error}") from None
    text = bytes(code).decode()
    lines = [line.strip() for line in text.splitlines() if line.lstrip().startswith(".extern")]
    # Memory of blocks whose size the launch gives is external, too.
    if missing := [line for line in lines if not line.startswith(".extern .shared")]:
        raise CompileError("\n  ".join(["the PTX needs functions that it doesn't hold:", *missing]))
    return text


def _binary(name: str, chip: str, feature: str, level: int, text: str) -> None:
    """A `gpu.binary` at the insertion point; parsed, as the bindings leave parts of the object's attribute out."""
    target = f'#nvvm.target<O = {level}, chip = "{chip}", features = "{feature}">'
    content = "".join(c if c.isalnum() or c in " .,;:[]{}()_%@$<>/|+-" else f"\\{ord(c):02X}" for c in text)
    parsed = ir.Module.parse(f'gpu.binary @{name} [#gpu.object<{target}, assembly = "{content}">]')
    ir.InsertionPoint.current.insert(parsed.body.operations[0].operation.clone(ip=False))


def ptx_of(module: Any) -> str:
    """The PTX in a module after `gpu-emit-ptx`."""
    from mlir.dialects import gpu

    with module.context:
        binaries = [op for op in module.operation.regions[0].blocks[0].operations if op.operation.name == "gpu.binary"]
        objects = [gpu.ObjectAttr(o) for op in binaries for o in op.operation.attributes["objects"]]
        return "".join(bytes(o.object).decode() for o in objects)
