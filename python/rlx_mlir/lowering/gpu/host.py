# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes `gpu-chain-launches` and `gpu-launches-to-calls`: how launches depend on each other, and how they happen.

What a launch needs is written into arrays on the stack, and a function of the run time is called with them:

    rlx_cuda_launch(const int64_t launch[10], void *const *params)
    rlx_cuda_tensor_map(void *map, void *address, const int64_t *spec)
    rlx_cuda_check_counts(const int64_t *counts, const char *names)

`launch` holds the kernel's number, blocks and threads along x, y and z, bytes of dynamic shared memory, flags (bit 0:
the kernel may start before the one before has ended) and the number of parameters; `params` points to their values.
`spec` holds element type, rank, swizzle, promotion and what is read outside of the tensor; then sizes, strides in bytes
but for the innermost, and the box, innermost first.

A size that a kernel takes as i32 is of 64 bits until here. Before the launch, `counts` holds the kernel's number, how
many such sizes there are, the largest that is allowed, and the sizes; `names` are theirs.
"""

from __future__ import annotations

import re

from rlx_mlir import chips, ir
from rlx_mlir.codegen.gpu.kernel import COUNTS, MOST
from rlx_mlir.errors import CompileError
from rlx_mlir.lowering.functions import ROLE, declare_into, parse_into
from rlx_mlir.lowering.gpu.build import LAUNCH_SIZES, bodies, found, location_of, name_of
from rlx_mlir.lowering.kernel_body import constant_value
from rlx_mlir.mir.cost import type_bytes
from rlx_mlir.rewriting import Option, compiler_pass, operations

#: Attribute of a launch that may start before the kernel before has ended.
PDL = "rlx.pdl"
#: Role of functions that perform one launch, or make one tensor map.
CALL = "launch"
#: The first chip whose kernels may wait for each other.
FIRST_PDL = 90
#: Number of a tensor map's element type, by the element and whether it stands for another one.
ELEMENTS = {"i8": 0, "i16": 1, "i32": 3, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
ELEMENTS |= {"f8E4M3FN": 0, "f8E5M2": 0}
#: Numbers of a tensor map's swizzle, promotion and fill, by the words of its type.
SWIZZLES = {"none": 0, "swizzle_32b": 1, "swizzle_64b": 2, "swizzle_128b": 3}
PROMOTIONS = {"none": 0, "l2promo_64b": 1, "l2promo_128b": 2, "l2promo_256b": 3}
FILLS = {"zero": 0, "nan": 1}
#: Bytes of a tensor map, and their alignment.
MAP_BYTES, MAP_ALIGNMENT = 128, 64


@compiler_pass(
    "gpu-chain-launches",
    dependent=("nvvm",),
    options={"chip": Option("compute capability", chips.DEFAULT_CHIP, tuple(chips.CHIPS))},
)
def chain_launches(module: ir.Operation, *, chip: str) -> None:
    """Let generic kernels start before the kernels before them have ended, and wait for these: on sm_90 and later.

    A kernel's blocks are set up meanwhile. Kernels of schedules say themselves where they wait.

    Raises CompileError where a launch with `rlx.pdl` is of a kernel that doesn't wait, or one has more shared memory
    than the chip's blocks may have.
    """
    kernels = device_functions(module)
    if chips.sm_version(chip) >= FIRST_PDL:
        for kernel in kernels.values():
            if kernel.operation.name == "gpu.func":
                block = kernel.operation.regions[0].blocks[0]
                with kernel.operation.location, ir.InsertionPoint.at_block_begin(block):
                    for word in ("launch_dependents", "wait"):
                        kind = ir.Attribute.parse(f"#nvvm<grid_dep_action {word}>")
                        ir.Operation.create("nvvm.griddepcontrol", attributes={"kind": kind})
    waiting = {name for name, kernel in kernels.items() if waits(kernel)}
    for body in bodies(module):
        for launch in found(body.operation, "gpu.launch_func"):
            name = kernel_of(launch)
            if name not in kernels:
                raise CompileError(f"{location_of(launch)} is of kernel '{name}', which the module doesn't have")
            if kernels[name].operation.name == "gpu.func" and name in waiting:
                launch.attributes[PDL] = ir.UnitAttr.get()
            own, most = shared_bytes(launch), chips.shared_memory(chip)
            if own is not None and own > most:
                raise CompileError(
                    f"{location_of(launch)} has {own} bytes of shared memory, but blocks of {chip} have at most {most}"
                )
            if PDL in launch.attributes and name not in waiting:
                raise CompileError(
                    f"{location_of(launch)} may start before the kernel before has ended, but '{name}' doesn't wait"
                )


def shared_bytes(launch: ir.AnyOp) -> int | None:
    """Bytes of dynamic shared memory of a launch; None where the host computes them."""
    segments = list(ir.DenseI32ArrayAttr(launch.attributes["operandSegmentSizes"]))
    if not segments[10]:
        return 0
    return constant_value(list(launch.operands)[sum(segments[:10])])


def waits(kernel: ir.AnyOp) -> bool:
    """Whether a kernel waits for those before it."""
    return any(
        name_of(op) == "nvvm.griddepcontrol" and "wait" in str(op.attributes["kind"]) for op in operations(kernel)
    )


def device_functions(module: ir.AnyModule) -> dict[str, ir.AnyOp]:
    """The kernels of the program's GPU modules, by name."""
    kernels: dict[str, ir.AnyOp] = {}
    block = module.operation.regions[0].blocks[0]
    for gpu_module in [op for op in block.operations if op.operation.name == "gpu.module"]:
        for op in gpu_module.operation.regions[0].blocks[0].operations:
            if op.operation.name in ("gpu.func", "llvm.func"):
                kernels[str(op.operation.attributes["sym_name"].value)] = op
    return kernels


def kernel_of(launch: ir.AnyOp) -> str:
    """The name of the kernel that a `gpu.launch_func` launches."""
    return str(launch.attributes["kernel"]).rpartition("@")[2]


def kernel_names(module: ir.AnyModule) -> list[str]:
    """The kernels in the order of their numbers: that of the PTX where there is some, else of the GPU module."""
    from rlx_mlir.lowering.gpu.ptx import ptx_of

    names = re.findall(r"^\s*(?:\.visible )?\.entry (\w+)", ptx_of(module), re.MULTILINE)
    return names or list(device_functions(module))


@compiler_pass("gpu-launches-to-calls", dependent=("llvm", "func", "arith", "memref"))
def launches_to_calls(module: ir.Operation) -> None:
    """Turn launches and tensor maps into calls of the run time, and drop the GPU's code, which the artefact keeps.

    Kernels are numbered in the order in which the PTX has them. Runs after gpu-emit-ptx and before
    kernel-add-entry-points.
    """
    numbers = {name: number for number, name in enumerate(kernel_names(module))}
    block = module.regions[0].blocks[0]
    texts: list[str] = []
    places: list[object] = []
    for body in bodies(module):
        calls = _Calls(body, numbers)
        for op in found(body.operation, "nvgpu.tma.create.descriptor"):
            calls.tensor_map(op)
        for op in found(body.operation, "gpu.launch_func"):
            calls.launch(op)
        calls.finish()
        texts += calls.texts
        places += calls.places
    if texts:
        declared = "llvm.func @rlx_cuda_launch(!llvm.ptr, !llvm.ptr)\n"
        declared += "llvm.func @rlx_cuda_tensor_map(!llvm.ptr, !llvm.ptr, !llvm.ptr)\n"
        declared += "llvm.func @rlx_cuda_check_counts(!llvm.ptr, !llvm.ptr)\n"
        made = parse_into(block, declared + "\n".join(texts))
        for op, place in zip(made, places, strict=True):
            op.operation.attributes[ROLE] = ir.StringAttr.get(CALL)
            op.operation.location = place
            for inner in operations(op):
                inner.location = place
        declare_into(block, declared)
    for op in [op for op in block.operations if op.operation.name in ("gpu.module", "gpu.binary")]:
        op.operation.erase()
    if "gpu.container_module" in module.attributes:
        del module.attributes["gpu.container_module"]


class _Calls:
    """The launches and tensor maps of one body, as calls of functions that are written as text."""

    def __init__(self, body: ir.AnyOp, numbers: dict[str, int]) -> None:
        self._body, self._numbers = body, numbers
        self._stem = str(body.name.value).removesuffix(".body")
        self._maps: dict[object, object] = {}
        self._done: list[ir.AnyOp] = []
        self.texts: list[str] = []
        self.places: list[object] = []

    def finish(self) -> None:
        """Erases what was replaced, and views that nothing reads any more."""
        for op in reversed(self._done):
            op.erase()
        for op in reversed(list(operations(self._body.operation))):
            if op.name.startswith("memref.") and all(next(iter(r.uses), None) is None for r in op.results):
                op.erase()

    def launch(self, op: ir.AnyOp) -> None:
        """`gpu.launch_func`"""
        name = kernel_of(op)
        if name not in self._numbers:
            raise CompileError(f"{location_of(op)} launches '{name}', which isn't a kernel of the PTX")
        segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        operands = list(op.operands)
        first = segments[0]
        sizes = operands[first : first + LAUNCH_SIZES]
        rest = operands[first + LAUNCH_SIZES + sum(segments[7:10]) :]
        shared, arguments = rest[: segments[10]], rest[segments[10] : segments[10] + segments[11]]
        if first or sum(segments[7:10]) or len(rest) != len(shared) + len(arguments):
            raise CompileError(f"{location_of(op)} is asynchronous or has clusters, which isn't supported")
        counts = _counts(op, arguments)
        for at, size, _ in counts:
            arguments[at] = size
        values = [*sizes, *shared, *(self._maps.get(value, value) for value in arguments)]
        lines = _Lines()
        names = [f"%v{i}" for i in range(len(values))]
        dims = [lines.as_i64(v, value.type) for v, value in zip(names[:LAUNCH_SIZES], values, strict=False)]
        bytes_ = lines.as_i64(names[LAUNCH_SIZES], shared[0].type) if shared else lines.number(0)
        flags = lines.number(int(PDL in op.attributes))
        count = lines.number(len(arguments))
        kernel = lines.number(self._numbers[name])
        start = LAUNCH_SIZES + len(shared)
        if counts:
            given = [lines.as_i64(names[start + at], "index") for at, _, _ in counts]
            held = lines.array([kernel, lines.number(len(given)), lines.number(MOST), *given])
            words = lines.text([word for _, _, word in counts])
            lines.add(f"llvm.call @rlx_cuda_check_counts({held}, {words}) : (!llvm.ptr, !llvm.ptr) -> ()")
        launch = lines.array([kernel, *dims, bytes_, flags, count])
        pointers = []
        for v, value in zip(names[start:], values[start:], strict=True):
            pointers.append(v if str(value.type) == "!llvm.ptr" else lines.slot(v, value.type))
        params = lines.array(pointers, "!llvm.ptr")
        lines.add(f"llvm.call @rlx_cuda_launch({launch}, {params}) : (!llvm.ptr, !llvm.ptr) -> ()")
        self._call(op, "launch", values, lines)

    def tensor_map(self, op: ir.AnyOp) -> None:
        """`nvgpu.tma.create.descriptor`"""
        cast = op.operands[0].owner
        if isinstance(cast, ir.Block) or name_of(cast) != "memref.cast":
            raise CompileError(f"{location_of(op)} expects a cast of a buffer whose sizes and strides are known")
        ranked = cast.operands[0]
        kind, words = ir.MemRefType(ranked.type), _map_words(op)
        element = str(kind.element_type)
        if element not in ELEMENTS:
            raise CompileError(f"{location_of(op)}: there is no tensor map of {element}")
        box = [constant_value(value) for value in list(op.operands)[1:]]
        if None in box or len(box) != kind.rank:
            raise CompileError(f"{location_of(op)} expects a box of {kind.rank} constants, but got {box}")
        with op.location, ir.InsertionPoint.at_block_begin(self._body.regions[0].blocks[0]):
            pointer = ir.Type.parse("!llvm.ptr")
            i64 = ir.IntegerType.get_signless(64)
            one = ir.Operation.create(
                "llvm.mlir.constant", results=[i64], attributes={"value": ir.IntegerAttr.get(i64, 1)}
            ).result
            attributes = {
                "elem_type": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{MAP_BYTES} x i8>")),
                "alignment": ir.IntegerAttr.get(i64, MAP_ALIGNMENT),
            }
            place = ir.Operation.create("llvm.alloca", results=[pointer], operands=[one], attributes=attributes).result
        lines = _Lines()
        base, sizes, strides = lines.parts("%v1", kind)
        header = [ELEMENTS[element], kind.rank, SWIZZLES[words["swizzle"]], PROMOTIONS[words["l2promo"]]]
        spec = [lines.number(n) for n in [*header, FILLS[words["oob"]]]]
        spec += sizes[::-1]
        width = lines.number(type_bytes(kind.element_type))
        spec += [lines.op(f"llvm.mul {stride}, {width} : i64") for stride in strides[-2::-1]]
        spec += [lines.number(n or 0) for n in box[::-1]]
        array = lines.array(spec)
        lines.add(f"llvm.call @rlx_cuda_tensor_map(%v0, {base}, {array}) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()")
        self._maps[op.results[0]] = place
        self._call(op, "map", [place, ranked], lines)

    def _call(self, op: ir.AnyOp, word: str, values: list[ir.Value], lines: _Lines) -> None:
        """A call, in place of the operation, of a function of these lines."""
        name = f"{self._stem}.{word}_{len(self.texts)}"
        parameters = ", ".join(f"%v{i}: {value.type}" for i, value in enumerate(values))
        # Inlined into a loop, the arrays would take stack at each step.
        head = f"func.func private @{name}({parameters}) attributes {{no_inline}} {{"
        self.texts.append("\n".join([head, *lines.lines, "  return", "}"]))
        self.places.append(op.location)
        with op.location, ir.InsertionPoint(op):
            ir.Operation.create("func.call", operands=values, attributes={"callee": ir.FlatSymbolRefAttr.get(name)})
        self._done.append(op)


class _Lines:
    """Lines of a function at the level of the LLVM dialect."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def add(self, text: str) -> None:
        """A line without a result."""
        self.lines.append(f"  {text}")

    def op(self, text: str) -> str:
        """A line with a result; its name."""
        self._count += 1
        self.add(f"%r{self._count} = {text}")
        return f"%r{self._count}"

    def number(self, value: int) -> str:
        """A constant."""
        return self.op(f"llvm.mlir.constant({value} : i64) : i64")

    def as_i64(self, name: str, kind: ir.Type | str) -> str:
        """A number of type index, i32 or i64 as i64."""
        if str(kind) == "i64":
            return name
        return self.op(
            f"arith.index_cast {name} : index to i64" if str(kind) == "index" else f"llvm.zext {name} : {kind} to i64"
        )

    def parts(self, name: str, kind: ir.MemRefType) -> tuple[str, list[str], list[str]]:
        """(address of the first element, sizes, strides) of a buffer; numbers are i64."""
        rank = kind.rank
        results = ", ".join([f"%base_{self._count}", f"%offset_{self._count}"])
        if rank:
            results += f", %sizes_{self._count}:{rank}, %strides_{self._count}:{rank}"
        types = ", ".join([f"memref<{kind.element_type}>", "index", *["index"] * (2 * rank)])
        mark = self._count
        self.add(f"{results} = memref.extract_strided_metadata {name} : {kind} -> {types}")
        start = self.op(f"memref.extract_aligned_pointer_as_index {name} : {kind} -> index")
        width = self.op(f"arith.constant {type_bytes(kind.element_type)} : index")
        skipped = self.op(f"arith.muli %offset_{mark}, {width} : index")
        place = self.op(f"arith.addi {start}, {skipped} : index")
        address = self.op(f"llvm.inttoptr {self.as_i64(place, 'index')} : i64 to !llvm.ptr")

        def numbers(word: str) -> list[str]:
            names = [f"%{word}_{mark}"] if rank == 1 else [f"%{word}_{mark}#{i}" for i in range(rank)]
            return [self.op(f"arith.index_cast {own} : index to i64") for own in names]

        return address, numbers("sizes") if rank else [], numbers("strides") if rank else []

    def array(self, values: list[str], kind: str = "i64") -> str:
        """An array on the stack that holds the values."""
        size = self.number(max(1, len(values)))
        place = self.op(f"llvm.alloca {size} x {kind} : (i64) -> !llvm.ptr")
        for number, value in enumerate(values):
            at = self.op(f"llvm.getelementptr {place}[{number}] : (!llvm.ptr) -> !llvm.ptr, {kind}")
            self.add(f"llvm.store {value}, {at} : {kind}, !llvm.ptr")
        return place

    def text(self, words: list[str]) -> str:
        """Words on the stack, each of which a zero ends; the processors that host code is for are little-endian."""
        held = b"".join(word.encode() + b"\0" for word in words)
        parts = [held[at : at + 8].ljust(8, b"\0") for at in range(0, len(held), 8)]
        return self.array([self.number(int.from_bytes(part, "little", signed=True)) for part in parts])

    def slot(self, name: str, kind: ir.Type) -> str:
        """A place on the stack that holds one parameter's value: a buffer's address, or a number.

        A size of type index has 64 bits there, of which a kernel that takes an i32 reads the low half.
        """
        if isinstance(kind, ir.MemRefType):
            value, _, _ = self.parts(name, kind)
            return self.array([value], "!llvm.ptr")
        if str(kind) == "index":
            return self.array([self.as_i64(name, kind)])
        return self.array([name], str(kind))


def _counts(op: ir.AnyOp, arguments: list[ir.Value]) -> list[tuple[int, ir.Value, str]]:
    """The sizes that a launch passes as i32: number of the argument, the size as an index, what it is called."""
    named = list(ir.ArrayAttr(op.attributes[COUNTS])) if COUNTS in op.attributes else []
    words = [str(ir.StringAttr(word).value) for word in named]
    found = []
    for at, value in enumerate(arguments):
        if str(value.type) != "i32":
            continue
        word = words.pop(0) if words else f"parameter {at}"
        if not isinstance(value.owner, ir.Block) and name_of(value.owner) == "arith.index_cast":
            found.append((at, value.owner.operands[0], word))
    return found


def _map_words(op: ir.AnyOp) -> dict[str, str]:
    """The words of a tensor map's type: swizzle, l2promo, oob."""
    text = str(op.results[0].type)
    return {word: m[1] for word in ("swizzle", "l2promo", "oob") if (m := re.search(rf"{word} = (\w+)", text))}
