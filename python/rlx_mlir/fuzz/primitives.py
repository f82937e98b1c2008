# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How each operation of MIR is drawn: legal operands and attributes, of every kind that there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import PythonValue, elements_attribute
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.formats import scaled_scheme
from rlx_mlir.fuzz.draft import FLOATS, INTEGERS, Dim, Draft, Shape, Skip, word
from rlx_mlir.fuzz.sensitivity import EXACT
from rlx_mlir.hir import Value
from rlx_mlir.hir.graph import Word
from rlx_mlir.mir.dims import Size, maximum, minimum
from rlx_mlir.mir.functions import FUNCTIONS, Elementwise, named

ARITH = (*FLOATS, *INTEGERS)
FLOAT8 = ("f8E4M3FN", "f8E5M2")
COMPLEX = "complex<f32>"
ALL = (*ARITH, "i1", COMPLEX)
#: Words of the enumeration: what operations with an activation take.
ACTIVATIONS = tuple(str(kind) for kind in mir.Activation)

#: Texts of schemes, with a place for the length of blocks.
SCALED_SCHEMES = ("int8/{}", "int8a/{}", "int4/{}", "fp8e4m3", "fp8e5m2", "nvfp4")

#: A function for each operation, by its name, that appends one such operation to a draft.
GENERATORS: dict[str, Callable[[Draft], None]] = {}
#: Operations that sum up.
SUMS: set[str] = set()
#: Operations that neither add nor multiply.
SINGLE = EXACT | named(lambda record: record.arity == 1)


def generates(*names: str, sums: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a function as what draws an operation; one for several operations takes the name, too."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        for name in names:
            if len(names) == 1:
                GENERATORS[name] = function
            else:
                GENERATORS[name] = lambda draft, name=name: function(draft, name)  # type: ignore[misc]
            if sums:
                SUMS.add(name)
        return function

    return register


def activation(draft: Draft, probability: float = 0.5) -> Word | None:
    """An activation or none."""
    return Word("activation", draft.choose(ACTIVATIONS)) if draft.chance(probability) else None


def eps(draft: Draft) -> float | None:
    """An epsilon, or None for the default."""
    return draft.choose([None, 1e-6, 0.25])


# -- element by element ----------------------------------------------------------------------------------------------


def element_types(record: Elementwise) -> tuple[str, ...]:
    """Those that a function of elements takes."""
    return tuple(dtype for dtype in ALL if record.takes(dtype))


def unary(draft: Draft, record: Elementwise) -> None:
    x = draft.any(element_types(record))
    if record.domain == "positive" and draft.chance(0.5):
        x = draft.like(x.shape, word(x), reuse=0.0, domain="positive")
    draft.emit(record.name, {"x": x})


def other_operand(draft: Draft, x: Value, dtype: str, **options: PythonValue) -> Value:
    """A value that broadcasts with x: like x, or with fewer dimensions, some of size 1."""
    shape: Shape = x.shape
    if draft.chance(0.4):
        return draft.like(shape, dtype, **options)
    shape = shape[draft.integer(0, len(shape)) :]
    shape = tuple(1 if draft.chance(0.3) else dim for dim in shape)
    if len(shape) == x.ndim and draft.chance(0.15) and x.ndim < 4:
        shape = (draft.size(most=5), *shape)
    if draft.elements(shape) * draft.elements(x.shape[: max(0, x.ndim - len(shape))]) > 80_000:
        raise Skip
    return draft.like(shape, dtype, **options)


def binary(draft: Draft, record: Elementwise) -> None:
    dtypes, is_power = element_types(record), record.op is mir.PowOp
    x = draft.any(dtypes)
    positive = record.domain == "positive" and word(x) in FLOATS and draft.chance(0.7)
    if positive and is_power:
        x = draft.like(x.shape, word(x), reuse=0.0, domain="positive")
    options = {"domain": "positive", "reuse": 0.0} if positive else {}
    if is_power and word(x) in FLOATS and draft.chance(0.4):
        options = {"domain": "choice", "reuse": 0.0}  # exponents that C has rules for, such as 0 and 0.5
        x = draft.floating()
    y = other_operand(draft, x, word(x), **options)
    if draft.chance(0.2) and not is_power:
        x, y = y, x
    draft.emit(record.name, {"lhs": x, "rhs": y})


for _record in FUNCTIONS.values():
    GENERATORS[_record.name] = partial(unary if _record.arity == 1 else binary, record=_record)


@generates("mir.iota")
def iota(draft: Draft) -> None:
    known = [dim for value in draft.values for dim in value.shape if isinstance(dim, str) and dim != "?"]
    shape: list[Dim] = []
    for _ in range(draft.integer(1, 3)):
        shape.append(draft.choose(known) if known and draft.chance(0.5) else draft.size(most=33))
    if draft.elements(shape) > draft.most_elements:
        raise Skip
    dtype = draft.choose(["i32", "i64", "f32", "ui8", "ui16", "ui32"])
    draft.values.append(draft.module.iota(shape, draft.integer(0, len(shape) - 1), dtype))


@generates("mir.compare")
def compare(draft: Draft) -> None:
    x = draft.any(ARITH)
    kind = Word("compare_kind", draft.choose(["eq", "ne", "lt", "le", "gt", "ge"]))
    draft.emit("mir.compare", {"lhs": x, "rhs": other_operand(draft, x, word(x))}, {"kind": kind})


@generates("mir.complex")
def complex_numbers(draft: Draft) -> None:
    re = draft.any(["f32"])
    draft.emit("mir.complex", {"re": re, "im": other_operand(draft, re, "f32")})


@generates("mir.real", "mir.imag", "mir.conjugate", "mir.complex_norm_sq")
def of_complex(draft: Draft, name: str) -> None:
    draft.emit(name, {"z": draft.any([COMPLEX])})


@generates("mir.where")
def where(draft: Draft) -> None:
    x = draft.any(ALL)
    y, condition = other_operand(draft, x, word(x)), other_operand(draft, x, "i1")
    draft.emit("mir.where", {"condition": condition, "on_true": x, "on_false": y})


@generates("mir.cast")
def cast(draft: Draft) -> None:
    x = draft.any(ALL)
    draft.values.append(draft.module.cast(x, draft.choose(ALL)))


def constant(draft: Draft, name: str) -> None:
    shape = [draft.size(most=9) for _ in range(draft.integer(0, 2))]
    is_own = name.partition(".")[0] == draft.module.stage
    kind = draft.choose(ALL if is_own else (*ARITH, "i1"))  # complex constants are made by the builder
    dtype = DTYPES[kind]
    least = 0 if dtype.kind == "u" else -4
    array = np.asarray(draft.rng.integers(least, 5, shape)) * (0.5 if dtype.kind not in "iub" else 1)
    if is_own:
        draft.values.append(draft.module.constant(np.asarray(array).astype(dtype)))
        return
    element = ir.Type.parse(kind, draft.module.ir_module.context)
    attribute = elements_attribute(np.asarray(array).astype(dtype), element)
    draft.emit(name, {}, {"value": attribute})


GENERATORS["mir.constant"] = lambda draft: constant(draft, "mir.constant")


# -- products --------------------------------------------------------------------------------------------------------


@generates("mir.matmul", sums=True)
def matmul(draft: Draft) -> None:
    x = draft.any((*FLOATS, "i8", "i32", "i64", "ui8", "ui32") if draft.chance(0.2) else FLOATS, 2)
    transposed, k, n = draft.chance(0.5), x.shape[-1], draft.dim()
    dtype = draft.choose(["i8", "ui8"]) if word(x) in ("i8", "ui8") else word(x)
    if x.ndim == 2 or draft.chance(0.5):
        rhs = draft.dense_weight(k, n, dtype, transposed)
    else:
        lead = x.shape[draft.integer(0, x.ndim - 2) : -2]
        lead = tuple(1 if draft.chance(0.3) else dim for dim in lead)
        shape = (*lead, n, k) if transposed else (*lead, k, n)
        if draft.elements(shape) > 80_000:
            raise Skip
        rhs = draft.like(shape, dtype)
    if draft.elements((*x.shape[:-1], n)) > 80_000:
        raise Skip
    draft.emit("mir.matmul", {"lhs": x, "rhs": rhs}, {"transpose_rhs": transposed})


@generates("mir.scaled_matmul", sums=True)
def scaled_matmul(draft: Draft) -> None:
    m, k, n, transposed = draft.dim(), draft.dim(), draft.dim(), draft.chance(0.5)
    lead = tuple(draft.dim(most=3) for _ in range(draft.integer(0, 1)))
    if draft.elements((*lead, m, n)) > 80_000:
        raise Skip
    x = draft.new((*lead, m, k), draft.choose(FLOAT8))
    shared = () if draft.chance(0.6) else lead
    w = draft.new((*shared, n, k) if transposed else (*shared, k, n), draft.choose(FLOAT8), param=0.8)
    scales = []
    for own in ((*lead, m), (*shared, n)):
        shape = draft.choose([None, (), (1,), own])
        scales.append(None if shape is None else draft.new(shape, "f32", "positive"))
    dtype = draft.choose(["f32", "bf16", "f16"])
    draft.values.append(draft.module.scaled_matmul(x, w, *scales, dtype=dtype, transpose_rhs=transposed))


@generates("mir.fused_matmul_bias_act", sums=True)
def fused_matmul_bias_act(draft: Draft) -> None:
    x, transposed, n = draft.floating(1), draft.chance(0.5), draft.dim()
    weight = draft.dense_weight(x.shape[-1], n, word(x), transposed)
    operands = {"x": x, "weight": weight, "bias": draft.vector(n, word(x))}
    draft.emit("mir.fused_matmul_bias_act", operands, {"activation": activation(draft), "transpose_rhs": transposed})


def rows_of(draft: Draft, k: int, dtype: str | None = None, least_rank: int = 1) -> Value:
    """A value of floats with k columns."""
    found = draft.pick(
        lambda v: v.ndim >= least_rank and v.shape[-1] == k and word(v) in ([dtype] if dtype else FLOATS)
    )
    if found is not None and draft.chance(0.6):
        return found
    return draft.new(draft.shape(least_rank, 3, last=k), dtype or draft.float_type())


@generates("mir.dequant_matmul", sums=True)
def dequant_matmul(draft: Draft) -> None:
    k = draft.columns()
    x = rows_of(draft, k)
    weight = draft.packed(draft.size(1, 65), k)
    if draft.chance(0.2):
        weight = repacked(draft, weight)
    draft.emit("mir.dequant_matmul", {"x": x, "weight": weight})


def repacked(draft: Draft, weight: Value) -> Value:
    """The weight in panels or planes; q8_k has planes only."""
    layout = "planes" if weight.packed == "q8_k" or draft.chance(0.3) else "panels"
    return draft.emit("mir.repack", {"weight": weight}, {"layout": Word("layout", layout)})[0]


@generates("mir.repack", sums=True)
def repack(draft: Draft) -> None:
    k = draft.columns()
    if draft.chance(0.6):
        weight = draft.packed(draft.size(1, 65), k)
        panels = repacked(draft, weight)
    else:
        dense = draft.new([draft.size(1, 65), k], draft.choose(["f32", "f16", "bf16"]), scale=k**-0.5, param=1.0)
        panels = draft.emit("mir.repack", {"weight": dense})[0]
    draft.emit("mir.dequant_matmul", {"x": rows_of(draft, k), "weight": panels})


@generates("mir.dequant_matmul_scaled", sums=True)
def dequant_matmul_scaled(draft: Draft) -> None:
    scaled_product(draft, "mir.dequant_matmul_scaled", 1)


def scaled_product(draft: Draft, op: str, least_rank: int) -> None:
    """A product with a weight whose scales are a tensor, in any scheme."""
    kind = scaled_scheme(draft.choose(SCALED_SCHEMES).format(draft.size(1, 65)))
    k, n = draft.size(0, 129), draft.size(0, 65)
    operands = {
        "x": rows_of(draft, k, least_rank=least_rank),
        "weight": draft.new(kind.code_shape(k, n), "i8", "bytes", param=0.8),
    }
    shape = kind.scale_shape(k, n)
    if kind.word == "nvfp4":
        operands["scale"] = draft.new(shape, "i8", "bytes", param=0.8)
        operands["global_scale"] = draft.new([1], "f32", scale=1e-3, param=0.8)
    else:
        operands["scale"] = draft.new(shape, "f32", scale=0.05, param=0.8)
    if kind.word == "int8a":
        operands["zero_point"] = draft.new(shape, "f32", scale=20.0, param=0.8)
    draft.emit(op, operands, {"scheme": Word("scaled_scheme", kind.word), "block": kind.attribute_block})


@generates("mir.block_quantize", sums=True)
def block_quantize(draft: Draft) -> None:
    k = draft.columns()
    block = draft.choose([None, *(size for size in (32, 64, 96, 256) if k % size == 0)])
    attributes = {"block": block, "bits": draft.choose([None, 8, 15, 22])}
    draft.emit("mir.block_quantize", {"x": rows_of(draft, k)}, attributes)


@generates("mir.block_dot", sums=True)
def block_dot(draft: Draft) -> None:
    k = draft.columns()
    bits = {"bits": draft.choose([None, 15, 22])}
    q, scale, total = draft.emit("mir.block_quantize", {"x": rows_of(draft, k)}, bits)
    weight = draft.packed(draft.size(1, 65), k, draft.integers(k))
    if draft.chance(0.3):
        weight = repacked(draft, weight)
    draft.emit("mir.block_dot", {"q": q, "scale": scale, "sum": total, "weight": weight})


def image(draft: Draft) -> tuple[list[Dim], list[Dim], dict[str, object]]:
    """Shapes of images and of a weight, and the attributes of their convolution."""
    groups, per_group, out = draft.choose([1, 1, 2, 3]), draft.size(1, 3), draft.size(1, 3)
    kernel = [draft.choose([1, 2, 3]) for _ in range(2)]
    stride, dilation = [draft.choose([1, 1, 2]) for _ in range(2)], [draft.choose([1, 1, 2]) for _ in range(2)]
    padding = [draft.choose([0, 1, 2]) for _ in range(2)]
    spread = [d * (k - 1) + 1 - 2 * p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    area = [draft.dim(max(1, size), 17) for size in spread]
    if draft.chance(0.08):  # one pixel less than the kernel covers: no results along this dimension
        short = draft.integer(0, 1)
        area[short] = max(spread[short] - 1, 0)
    attributes: dict[str, object] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return [draft.dim(most=3), groups * per_group, *area], [groups * out, per_group, *kernel], attributes


@generates("mir.conv", sums=True)
def conv(draft: Draft) -> None:
    shape, kernels, attributes = image(draft)
    dtype = draft.float_type()
    operands = {"x": draft.like(shape, dtype), "weight": draft.like(kernels, dtype, param=0.8)}
    draft.emit("mir.conv", operands, attributes)


# -- shapes ----------------------------------------------------------------------------------------------------------


@generates("mir.reshape")
def reshape(draft: Draft) -> None:
    x = draft.any(ALL)
    if draft.chance(0.25):
        _split(draft)
        return
    shape = x.shape
    entries: list[int] = []
    if all(isinstance(dim, int) for dim in shape):
        count = draft.elements(shape) if 0 not in shape else 0
        entries = [int(size) for size in _factors(draft, count)]
        if count and draft.chance(0.4):
            entries[draft.integer(0, len(entries) - 1)] = -1
    else:
        # Each dimension stays, is split, or joins the ones after it.
        merged = draft.integer(0, x.ndim - 1)
        for i, dim in enumerate(shape):
            if i >= merged and len(shape) - i > 1 and draft.chance(0.6):
                entries.append(-1)
                break
            if isinstance(dim, int):
                entries += [int(size) for size in _factors(draft, dim)] if dim and draft.chance(0.4) else [dim]
            else:
                entries.append(-2 if i == len(entries) else -1)
        if entries.count(-1) > 1 or (-1 in entries and 0 in entries):
            raise Skip
        kept = [shape[i] for i, entry in enumerate(entries) if entry == -2]
        if -1 in entries and any(draft.smallest(dim) == 0 for dim in kept):
            raise Skip
    draft.emit("mir.reshape", {"x": x, "like": []}, {"new_shape": entries})


def _split(draft: Draft) -> None:
    """Dimensions that symbols say are joined, and split again to other values' sizes."""
    x = draft.any(ALL, 2)
    if "?" in x.shape or 0 in x.shape or draft.elements(x.shape) > draft.most_elements:
        raise Skip
    at = draft.integer(0, x.ndim - 2)
    joined = draft.module.size(x.shape[at]) * x.shape[at + 1]
    flat = draft.module.reshape(x, [*x.shape[:at], joined, *x.shape[at + 2 :]])
    draft.values.append(flat)
    wanted = [*x.shape[:at], x.shape[at + 1], x.shape[at], *x.shape[at + 2 :]]
    draft.values.append(draft.module.reshape(flat, wanted if draft.chance(0.5) else list(x.shape)))


def _bound(draft: Draft) -> Size:
    """A size that follows from symbols, mostly within reach of a dimension; at times it is negative."""
    symbols = [dim for value in draft.values for dim in value.shape if isinstance(dim, str) and dim != "?"]
    size = draft.module.size(draft.choose(symbols))
    match draft.integer(0, 4):
        case 0:
            return size // draft.integer(2, 4)
        case 1:
            return maximum(size - draft.integer(1, 9), Size.of(0))
        case 2:
            return size - draft.integer(0, 9)
        case 3:
            return size - draft.module.size(draft.choose(symbols))
        case _:
            return size


def _start(draft: Draft, reach: int) -> Value:
    """A position, given or computed, that may be outside of a dimension."""
    dtype = draft.choose(["i32", "i64"])
    found = draft.pick(lambda value: value.ndim == 0 and word(value) == dtype)
    if found is not None and draft.chance(0.6):
        return found
    return draft.module.constant(np.array(draft.integer(-2, reach + 2)), dtype)


@generates("mir.dynamic_slice")
def dynamic_slices(draft: Draft) -> None:
    x = draft.any(ALL, 1)
    axis = draft.integer(0, x.ndim - 1)
    size = x.shape[axis]
    room = draft.smallest(size)
    length: Dim | Size = draft.choose([0, min(1, room), room, draft.integer(0, room)])
    if isinstance(size, str) and draft.chance(0.4):
        length = minimum(_bound(draft), draft.module.size(size))
        if min(length.evaluate(sizes) for sizes in draft.assignments) < 0:
            raise Skip
    draft.values.append(draft.module.dynamic_slice(x, _start(draft, draft.largest(size)), length, axis))


@generates("mir.dynamic_update_slice")
def dynamic_updates(draft: Draft) -> None:
    x = draft.any(ALL, 1)
    axis = draft.integer(0, x.ndim - 1)
    size = x.shape[axis]
    part: Dim = size if draft.chance(0.2) else draft.integer(0, draft.smallest(size))
    update = draft.like([*x.shape[:axis], part, *x.shape[axis + 1 :]], word(x))
    draft.values.append(draft.module.dynamic_update_slice(x, update, _start(draft, draft.largest(size)), axis))


def _factors(draft: Draft, count: int) -> list[int]:
    """Sizes whose product is `count`."""
    sizes = [count]
    for _ in range(draft.integer(0, 2)):
        last = sizes.pop()
        divisors = [n for n in (1, 2, 3, 4, 5, 8, 16) if last % n == 0]
        chosen = draft.choose(divisors)
        sizes += [chosen, last // chosen]
    order = draft.rng.permutation(len(sizes))
    return [sizes[int(i)] for i in order]


@generates("mir.transpose")
def transpose(draft: Draft) -> None:
    x = draft.any(ALL)
    draft.emit("mir.transpose", {"x": x}, {"permutation": [int(i) for i in draft.rng.permutation(x.ndim)]})


@generates("mir.barrier")
def barrier(draft: Draft) -> None:
    draft.emit("mir.barrier", {"x": draft.any(ALL)})


@generates("mir.narrow")
def narrow(draft: Draft) -> None:
    x = draft.any(ALL, 1)
    axis = draft.integer(0, x.ndim - 1)
    room = draft.smallest(x.shape[axis])
    start = draft.integer(0, room)
    length = draft.choose([0, 1, room - start, draft.integer(0, room - start)])
    draft.emit("mir.narrow", {"x": x}, {"axis": axis, "start": start, "length": min(length, room - start)})


@generates("mir.slice")
def slices(draft: Draft) -> None:
    x = draft.any(ALL, 1)
    axis = draft.integer(0, x.ndim - 1)
    reach = draft.largest(x.shape[axis]) + 2
    has_symbols = any(isinstance(dim, str) and dim != "?" for value in draft.values for dim in value.shape)
    start, stop = (
        None
        if draft.chance(0.3)
        else _bound(draft)
        if has_symbols and draft.chance(0.4)
        else draft.integer(-reach, reach)
        for _ in range(2)
    )
    step = draft.choose([1, 1, 2, 3, -1, -2])
    draft.values.append(draft.module.slice(x, axis, start, stop, step))


@generates("mir.dim")
def dimension(draft: Draft) -> None:
    x = draft.any(ALL, 1)
    dtype = draft.choose(["f32", "f64", "i32", "i64"])
    draft.values.append(draft.module.dim(x, draft.integer(0, x.ndim - 1), dtype))


@generates("mir.concat")
def concat(draft: Draft) -> None:
    if draft.chance(0.15):
        k = draft.columns()
        scheme = draft.scheme(k)
        weights = [draft.packed(draft.size(1, 33), k, scheme) for _ in range(draft.integer(1, 3))]
        joined = draft.emit("mir.concat", {"inputs": weights}, {"axis": 0})[0]
        draft.emit("mir.dequant_matmul", {"x": rows_of(draft, k), "weight": joined})
        return
    x = draft.any(ALL, 1)
    axis, inputs = draft.integer(0, x.ndim - 1), [x]
    for _ in range(draft.integer(0, 2)):
        shape: list[int | str] = list(x.shape)
        if draft.chance(0.6):
            shape[axis] = draft.dim(most=17)
        inputs.append(x if draft.chance(0.2) else draft.like(shape, word(x)))
    if sum(draft.elements(v.shape) for v in inputs) > 80_000:
        raise Skip
    draft.emit("mir.concat", {"inputs": [inputs[int(i)] for i in draft.rng.permutation(len(inputs))]}, {"axis": axis})


@generates("mir.expand")
def expand(draft: Draft) -> None:
    x = draft.any(ALL)
    shape: list[Dim] = [draft.size(most=9) if dim == 1 and draft.chance(0.7) else dim for dim in x.shape]
    if draft.chance(0.4) and x.ndim < 4:
        symbols = [dim for value in draft.values for dim in value.shape if isinstance(dim, str)]
        shape = [draft.choose(symbols) if symbols and draft.chance(0.3) else draft.size(most=5), *shape]
    if draft.elements(shape) > 80_000 or "?" in shape:
        raise Skip
    draft.values.append(draft.module.expand(x, shape))


#: What blocks count entries of tables in, and what gathers do beside.
INDICES = ("i32", "i64", "i32", "f32")
UNSIGNED_INDICES = ("ui8", "ui16", "ui32")


def indices(draft: Draft, shape: Sequence[Dim], limit: Dim, kinds: Sequence[str] = INDICES) -> Value:
    """Indices into so many entries; f32 at times."""
    dtype = draft.choose(kinds)
    return draft.new(shape, dtype, domain="index", scale=draft.smallest(limit), param=0.1)


@generates("mir.gather")
def gather(draft: Draft) -> None:
    kinds = (*INDICES, *UNSIGNED_INDICES)
    if draft.chance(0.25):
        k = draft.columns()
        table = draft.packed(draft.size(1, 33), k)
        draft.emit(
            "mir.gather",
            {"table": table, "indices": indices(draft, draft.shape(0, 2), table.shape[0], kinds)},
            {"axis": 0},
        )
        return
    table = draft.any(ALL, 1, 3)
    axis = draft.integer(0, table.ndim - 1)
    if draft.smallest(table.shape[axis]) == 0:
        raise Skip  # nothing to clamp to
    batch = draft.integer(0, axis) if draft.chance(0.3) else 0
    shape = (*table.shape[:batch], *draft.shape(0, 2))
    if draft.elements(shape) * draft.elements(table.shape) > 2_000_000 or len(shape) + table.ndim > 6:
        raise Skip
    chosen = draft.pick(lambda v: word(v) in kinds and v.ndim <= 2) if draft.chance(0.15) else None
    if chosen is None or batch:
        chosen = indices(draft, shape, table.shape[axis], kinds)
    draft.emit("mir.gather", {"table": table, "indices": chosen}, {"axis": axis, "batch_dims": batch or None})


# -- reductions and norms --------------------------------------------------------------------------------------------


@generates("mir.reduce", sums=True)
def reduce(draft: Draft) -> None:
    kind = draft.choose(["sum", "mean", "max", "min", "prod", "any", "all"])
    types = {"mean": (*FLOATS, COMPLEX), "sum": (*ARITH, COMPLEX), "any": ("i1",), "all": ("i1",)}
    x = draft.any(types.get(kind, ARITH))
    axes = [axis for axis in range(x.ndim) if draft.chance(0.5)]
    attributes = {"kind": Word("reduce_kind", kind), "axes": axes, "keep_dims": draft.chance(0.4)}
    draft.emit("mir.reduce", {"x": x}, attributes)


def axis_of(draft: Draft, x: Value) -> int | None:
    """A dimension, mostly the last; at times counted from the end; None for the default."""
    if draft.chance(0.6):
        return draft.choose([None, -1, x.ndim - 1])
    return draft.integer(-x.ndim, x.ndim - 1)


@generates("mir.softmax", sums=True)
def softmax(draft: Draft) -> None:
    x = draft.floating(1)
    draft.emit("mir.softmax", {"x": x}, {"axis": axis_of(draft, x)})


@generates("mir.cumsum", sums=True)
def cumsum(draft: Draft) -> None:
    x = draft.any(ARITH, 1)
    draft.emit("mir.cumsum", {"x": x}, {"axis": axis_of(draft, x), "exclusive": draft.chance(0.4)})


@generates("mir.top_k")
def top_k(draft: Draft) -> None:
    width = draft.size(1, 33)
    if draft.chance(0.3):
        x = draft.any(ARITH, 1)
        size = x.shape[-1]
        k = Size.of(draft.integer(0, draft.smallest(size)))
        if isinstance(size, str) and draft.chance(0.6):
            k = draft.module.size(size) if draft.chance(0.5) else minimum(k, draft.module.size(size))
    else:
        x = rows_of(draft, width) if draft.chance(0.6) else rows_of(draft, width, draft.choose(INTEGERS))
        k = Size.of(draft.integer(1, width))
    smallest, nan_largest = draft.chance(0.3), draft.chance(0.3)
    draft.values.extend(draft.module.top_k(x, k, smallest=smallest, nan_largest=nan_largest))


@generates("mir.layer_norm", "mir.rms_norm", sums=True)
def norm(draft: Draft, name: str) -> None:
    x = draft.floating(1)
    axis = axis_of(draft, x)
    size = x.shape[-1 if axis is None else axis]
    operands = {
        "x": x,
        "gamma": draft.vector(size, word(x)),
        "beta": draft.optional(lambda: draft.vector(size, word(x))),
    }
    draft.emit(name, operands, {"axis": axis, "eps": eps(draft)})


@generates("mir.fused_residual_layer_norm", "mir.fused_residual_rms_norm", sums=True)
def residual_norm(draft: Draft, name: str) -> None:
    x = draft.floating(1)
    dtype, size = word(x), x.shape[-1]
    operands = {
        "x": x,
        "residual": x if draft.chance(0.1) else draft.like(x.shape, dtype),
        "bias": draft.optional(lambda: draft.vector(size, dtype)),
        "gamma": draft.vector(size, dtype),
        "beta": draft.optional(lambda: draft.vector(size, dtype)),
    }
    draft.emit(name, operands, {"eps": eps(draft)})


@generates("mir.fused_swiglu")
def fused_swiglu(draft: Draft) -> None:
    half = draft.size(0, 33)
    x = rows_of(draft, 2 * half)
    draft.emit("mir.fused_swiglu", {"x": x}, {"gate_first": draft.chance(0.5)})
