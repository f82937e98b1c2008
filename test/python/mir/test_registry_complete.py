# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every MIR operation has all that Python must know of it, and a part that is left out is noticed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlx_mlir import GraphModule, ir
from rlx_mlir.codegen import UnsupportedByTemplate, program
from rlx_mlir.codegen.gpu import epilogue
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, pointer
from rlx_mlir.dialects import mir
from rlx_mlir.fuzz.operations import GENERATORS
from rlx_mlir.hir.elementwise import ElementwiseBuilders
from rlx_mlir.lowering import functions, fuse, groups, outline
from rlx_mlir.mir import COMPOSITIONS, COSTS, DIM_RULES, PREPARE_ONLY, REFERENCES, TERMINATORS, TO_LINALG, ranges
from rlx_mlir.mir.functions import FUNCTIONS
from rlx_mlir.mir.registry import PLANNED
from rlx_mlir.rewriting import run_pipeline
from rlx_mlir.verify import tolerance

ROOT = Path(__file__).resolve().parents[3]
OPS: dict[str, Any] = {
    op.OPERATION_NAME: op
    for _, op in inspect.getmembers(mir, inspect.isclass)
    if issubclass(op, ir.OpView) and op is not ir.OpView
}
EXAMPLE = re.compile(r"^ *```mlir\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
#: What users register brings its own lowering, or a function to call; what a region computes stands in its place.
REGISTERED = frozenset({"mir.custom", "mir.custom_fn"})
#: Operations that no class of kernels is for: they are computed by loops.
GENERIC = frozenset(
    f"mir.{word}"
    for word in (
        *("dequant_matmul_scaled", "dim", "if", "scan", "while"),
        *("dynamic_slice", "dynamic_update_slice", "reshape"),
        *("quantize", "fake_quantize", "fake_quantize_backward", "fake_quantize_lsq"),
        *("fake_quantize_lsq_backward_x", "fake_quantize_lsq_backward_scale", "q_conv2d"),
        *("max_pool2d_backward", "resize_nearest_2x"),
        *("conv_transpose2d", "conv2d_backward_input", "conv2d_backward_weight"),
        *("group_norm_backward_input", "group_norm_backward_gamma"),
        *("dot_general", "scatter_add", "dequant_moe_weights"),
        *("complex", "real", "imag", "conjugate", "complex_norm_sq", "complex_norm_sq_backward"),
        *("gaussian_splat_prepare", "gaussian_splat_rasterize"),
        "gaussian_splat_render_backward",
    )
)


def example(name: str) -> str:
    """The example in an operation's documentation; '' where there is none."""
    found = EXAMPLE.findall(OPS[name].__doc__ or "")
    return str(found[0]) if found else ""


def kernel_class(name: str) -> str:
    """The class of the kernel that the documented example becomes; '' where there is none."""
    if not example(name) or name in PREPARE_ONLY:
        return ""
    with ir.new_context():
        module = ir.Module.parse(example(name))
        run_pipeline(module, "builtin.module(mir-outline-kernels)")
        operations = [op.operation for op in module.body.operations]
        return " ".join(
            str(op.attributes[functions.CLASS].value) for op in operations if functions.CLASS in op.attributes
        )


def lowers(name: str) -> bool:
    """Whether loops compute it, or what it is made of."""
    return name in {pattern.root for pattern in TO_LINALG} | COMPOSITIONS.keys() | PREPARE_ONLY | REGISTERED


def has_class(name: str) -> bool:
    """Whether its kernel is of a class, or of none as is said; what is always made of others has no kernel."""
    if name in (COMPOSITIONS.keys() | {"mir.custom_fn"}) - {pattern.root for pattern in TO_LINALG}:
        return True
    return ("generic" in kernel_class(name)) == (name in GENERIC)


def builds(name: str) -> bool:
    """Whether the builder of a function of elements builds it."""
    record = FUNCTIONS.get(name.removeprefix("mir."))
    if record is None or not hasattr(GraphModule, record.builder_name):
        return False
    module = GraphModule.mir("built")
    x = module.input("x", [2], "f32" if record.floats else "i32")
    module.set_outputs({"y": getattr(module, record.builder_name)(*[x] * record.arity)})
    return name in module.to_text()


def emits_steps(name: str) -> bool:
    """Whether kernels for GPUs have code of a function of elements."""
    word = name.removeprefix("mir.")
    if word not in FUNCTIONS:
        return True
    element = "f32" if FUNCTIONS[word].floats else "i32"
    em = DeviceEmitter("sm_80")
    with em.kernel("step", [pointer("x")], 32) as (x,):
        operands = [em.ld(x, element)] * FUNCTIONS[word].arity
        try:
            return epilogue.elementwise(em, word, operands, element).type == element
        except (KeyError, UnsupportedByTemplate):
            return False


def fuses(name: str) -> bool:
    """Whether a function of floats joins kernels, and one of other elements those of other types."""
    record = FUNCTIONS.get(name.removeprefix("mir."))
    return name in (fuse.UNARY | fuse.BINARY if record is None or record.floats else groups.BROADCASTS)


def lit_text() -> str:
    """The tests that print and parse operations again."""
    files = sorted((ROOT / "test" / "lit" / "mir").glob("ops-*.mlir"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files if "invalid" not in file.name)


#: What each operation has.
PARTS: dict[str, Callable[[str], bool]] = {
    "reference": lambda name: name in REFERENCES,
    "dim rule": lambda name: name in DIM_RULES,
    "lowering to linalg": lowers,
    "kernel class": has_class,
    "fuzzer": lambda name: name in GENERATORS,
    "documented example": lambda name: name in example(name),
    "round trip in lit": lambda name: re.search(rf"\b{re.escape(name)}\b", lit_text()) is not None,
}

#: What a function of elements has beside.
OF_FUNCTIONS: dict[str, Callable[[str], bool]] = {
    "record": lambda name: name.removeprefix("mir.") in FUNCTIONS,
    "cost": lambda name: name in COSTS,
    "range rule": lambda name: name in ranges._RULES,
    "tolerance": lambda name: name in tolerance.EXACT | tolerance.ARITHMETIC | tolerance.TRANSCENDENTAL,
    "fusion": fuses,
    "step of CPU kernels": lambda name: name.removeprefix("mir.") in program.ELEMENTWISE,
    "step of GPU kernels": emits_steps,
    "builder": builds,
}


def functions_of_the_dialect() -> list[str]:
    """The functions of elements, as the ODS defines them."""
    text = (ROOT / "dialects" / "mir" / "elementwise.td").read_text(encoding="utf-8")
    return [
        f"mir.{word}" for word in re.findall(r"^def \w+ : MIR_(?:Unary|Binary|Integer)Op<\"(\w+)\"", text, re.MULTILINE)
    ]


#: What operations have that end regions, and those of planned functions.
OF_OTHERS = ("documented example", "round trip in lit")


def missing(name: str) -> list[str]:
    """The parts that an operation lacks."""
    if name in TERMINATORS | PLANNED:
        return [part for part in OF_OTHERS if not PARTS[part](name)]
    parts = PARTS | (OF_FUNCTIONS if name in functions_of_the_dialect() else {})
    return [part for part, is_there in parts.items() if not is_there(name)]


def test_operations_are_found():
    assert {"mir.add", "mir.attention", "mir.repack"} <= OPS.keys()
    assert {"mir.add", "mir.erfc"} <= set(functions_of_the_dialect()) <= OPS.keys()


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.quick(17)
def test_nothing_is_missing(name):
    assert not missing(name), f"{name} lacks {', '.join(missing(name))}"


def without(table: Any, *keys: str) -> Any:
    """A table or set without some of its keys."""
    if isinstance(table, dict):
        return {key: value for key, value in table.items() if key not in keys}
    return type(table)(key for key in table if key not in keys)


#: How a part is taken away from mir.erfc, and what lacks then: by attributes of modules.
TAKEN_AWAY: dict[str, list[tuple[Any, str]]] = {
    "kernel class": [(outline, "POINTWISE"), (outline, "BROADCASTS"), (outline, "ROW_WISE")],
    "tolerance": [(tolerance, "TRANSCENDENTAL")],
    "fusion": [(fuse, "UNARY")],
    "step of CPU kernels": [(program, "ELEMENTWISE")],
    "step of GPU kernels": [(epilogue, "DEVICE_UNARY")],
}
#: And by entries of tables.
TABLES: dict[str, Any] = {
    "reference": REFERENCES,
    "dim rule": DIM_RULES,
    "fuzzer": GENERATORS,
    "cost": COSTS,
    "range rule": ranges._RULES,
}


@pytest.mark.parametrize("part", [*PARTS, *OF_FUNCTIONS])
def test_a_part_that_is_left_out_is_noticed(part, monkeypatch):
    name, expected = "mir.erfc", [part]
    if part in TABLES:
        monkeypatch.delitem(TABLES[part], name)
    elif part in TAKEN_AWAY:
        for module, attribute in TAKEN_AWAY[part]:
            monkeypatch.setattr(module, attribute, without(getattr(module, attribute), name, "erfc"))
        expected = {"step of CPU kernels": [part, "step of GPU kernels"]}.get(part, expected)
    elif part == "record":
        monkeypatch.delitem(FUNCTIONS, "erfc")
        expected = ["record", "builder"]
    elif part == "builder":
        monkeypatch.delattr(ElementwiseBuilders, "erfc")
    elif part == "lowering to linalg":
        kept = [pattern for pattern in TO_LINALG if pattern.root != name]
        monkeypatch.setattr(type(TO_LINALG), "__iter__", lambda self: iter(kept))
    elif part == "documented example":
        monkeypatch.setattr(mir.ErfcOp, "__doc__", "erfc")
    else:
        assert part == "round trip in lit"
        text = lit_text().replace(name, "")
        monkeypatch.setitem(globals(), "lit_text", lambda: text)
    assert missing(name) == expected


def test_a_function_of_elements_stands_in_three_files():
    """The ODS, the family's record, a lit test; docs/generate.py writes documentation and builders from them.

    What reads models from elsewhere, writes or computes them there, may know it, too, and so may the list of libm's.
    """
    found = []
    readers = [
        ROOT / "python/rlx_mlir" / name for name in ("frontends", "pytorch", "lowering/raising", "exports", "against")
    ]
    readers.append(ROOT / "runtime/host_functions.cpp")
    for folder in ("dialects", "passes", "runtime", "python", "test/lit"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix not in (".td", ".cpp", ".h", ".py", ".pyi", ".mlir") or file.name.endswith("_gen.py"):
                continue
            if any(file.is_relative_to(folder) for folder in readers):
                continue
            text = file.read_text(encoding="utf-8")
            if re.search(r"erfc", text, re.IGNORECASE) and "Written by docs/generate.py" not in text:
                found.append(str(file.relative_to(ROOT)))
    assert found == [
        "dialects/mir/elementwise.td",
        "python/rlx_mlir/mir/elementwise.py",
        "test/lit/mir/ops-elementwise.mlir",
    ]


def test_nothing_is_left_over():
    """No entry for an operation that doesn't exist, and no pattern for one that only runs in preparation."""
    roots = {pattern.root for pattern in TO_LINALG}
    known = (
        REFERENCES.keys() | DIM_RULES.keys() | COMPOSITIONS.keys() | roots | PREPARE_ONLY
    )  # HIR has its entries there, too
    assert not {name for name in known if name.startswith("mir.")} - OPS.keys()
    assert not roots & PREPARE_ONLY
    assert {record.name for record in FUNCTIONS.values()} == set(functions_of_the_dialect())


def test_references_take_the_attributes_of_their_operations():
    """Keywords are the names of attributes in the ODS (or what the result type tells)."""
    wrong = []
    for name, op in OPS.items():
        if name in TERMINATORS | PLANNED:
            continue
        attributes = {k for k, v in vars(op).items() if isinstance(v, property)}
        for parameter in inspect.signature(REFERENCES[name]).parameters.values():
            known = attributes | {"regions", "result_dtype", "result_shape", "result_types"}
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in known:
                wrong.append(f"{name}: '{parameter.name}'")
    assert not wrong, wrong
