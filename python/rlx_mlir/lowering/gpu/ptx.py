# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes `gpu-emit-ptx` and `gpu-assemble-ptx`: a GPU module in the NVVM dialect becomes PTX and machine code."""

from __future__ import annotations

import logging

from rlx_mlir import chips, ir
from rlx_mlir.attributes import python_value
from rlx_mlir.codegen.gpu.assembler import CUBIN, chosen_assembler
from rlx_mlir.codegen.gpu.emit import PTX_VERSION
from rlx_mlir.errors import CompileError
from rlx_mlir.lowering.functions import functions
from rlx_mlir.rewriting import Option, compiler_pass

log = logging.getLogger(__name__)

#: The properties of an object of machine code: what made it.
ASSEMBLER = "assembler"
#: What the dialect calls the formats of objects, as numbers.
_FORMATS = {"ptx": 2, "cubin": 3}


@compiler_pass(
    "gpu-emit-ptx",
    dependent=("gpu", "nvvm", "llvm"),
    options={
        "chip": Option("compute capability", chips.DEFAULT_CHIP, tuple(chips.CHIPS)),
        "ptx": Option("version of PTX, such as 8.6; the least that knows the chip where empty", ""),
        "level": Option("LLVM's optimisation level, 0 to 3", 2, least=0, most=3),
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


def generate(gpu_module: ir.AnyOp, chip: str, feature: str, level: int) -> str:
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


@compiler_pass(
    "gpu-assemble-ptx",
    dependent=("gpu", "nvvm"),
    options={
        "chip": Option("compute capability that gpu-emit-ptx had", chips.DEFAULT_CHIP, tuple(chips.CHIPS)),
        "cubin": Option("whether machine code is made; auto: where a ptxas is found", "auto", CUBIN),
    },
)
def assemble_ptx(module: ir.Operation, *, chip: str, cubin: str) -> None:
    """Put machine code for the chip beside the PTX in a `gpu.binary`.

    NVIDIA's assembler, `ptxas`, isn't part of the package: where none is found, or it refuses the PTX, nothing changes.
    The PTX stays the first object, as drivers for other chips compile it. Runs after gpu-emit-ptx.

    Raises InputError where `cubin` is `always` and no assembler is found, CompileError where it refuses the PTX then.
    """
    from mlir.dialects import gpu

    assembler = chosen_assembler(cubin)
    if assembler is None:
        return
    for op in _binaries(module):
        # The PTX comes first; machine code of an earlier run is replaced.
        text = gpu.ObjectAttr(op.operation.attributes["objects"][0])
        try:
            code = assembler.assemble(bytes(text.object).decode(), chip)
        except CompileError as error:
            if cubin == "always":
                raise
            programs = ", ".join(f"'{f.name.value}'" for f in functions(module) if f.sym_visibility is None)
            log.warning("%s has no machine code beside its PTX: %s", programs or op.operation.location, error)
            return
        made_by = ir.DictAttr.get({ASSEMBLER: ir.StringAttr.get(assembler.version)})
        machine_code = gpu.ObjectAttr.get(text.target, _FORMATS["cubin"], code, made_by)
        op.operation.attributes["objects"] = ir.ArrayAttr.get([text, machine_code])


def _binaries(module: ir.AnyModule) -> list[ir.AnyOp]:
    block = module.operation.regions[0].blocks[0]
    return [op for op in block.operations if op.operation.name == "gpu.binary"]


def _objects(module: ir.AnyModule, kind: str) -> list[ir.Attribute]:
    from mlir.dialects import gpu

    objects = [gpu.ObjectAttr(o) for op in _binaries(module) for o in op.operation.attributes["objects"]]
    return [o for o in objects if o.format == _FORMATS[kind]]


def ptx_of(module: ir.AnyModule) -> str:
    """The PTX in a module after `gpu-emit-ptx`."""
    with module.context:
        return "".join(bytes(o.object).decode() for o in _objects(module, "ptx"))


def machine_code_of(module: ir.AnyModule) -> tuple[bytes, str]:
    """Machine code in a module after `gpu-assemble-ptx`, and the version of what made it; nothing where none was."""
    with module.context:
        for found in _objects(module, "cubin"):
            return bytes(found.object), found.properties[ASSEMBLER].value
    return b"", ""
