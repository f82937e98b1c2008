# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The registry of kernel generators for CPUs: one record is all that picking, declining, reports and tuning ask for."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from compile_harness import compile_fresh, templates_of
from cpu_harness import TARGETS
from documents import blocks

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.codegen import UnsupportedByTemplate, cpu
from rlx_mlir.codegen.cpu import norm, registry
from rlx_mlir.codegen.cpu.kernel import Scratch, write_kernel
from rlx_mlir.codegen.cpu.registry import Generator
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.emit import Emitter, Value, element_of, memref, shape_of
from rlx_mlir.codegen.specs import ScanSpec
from rlx_mlir.compiler import CompileOptions
from rlx_mlir.errors import InputError
from rlx_mlir.measure import tune
from rlx_mlir.measure.subjects import ModuleSubject
from rlx_mlir.tuning.choices import check_choices
from rlx_mlir.tuning.cpu import Knob, ranges


def configure(name: str, spec: ScanSpec, target: Target) -> ScanSpec | None:
    """Exclusive sums are another generator's; those along another axis than the last aren't covered."""
    if spec.exclusive:
        return None
    if spec.axis != len(shape_of(spec.x)) - 1 or element_of(spec.x) != "f32":
        raise UnsupportedByTemplate(f"{name}: sums of f32 along the last axis alone")
    return spec


def emit(name: str, spec: ScanSpec, target: Target) -> str:
    """Running sums: a unit is a row. Negative where the knob says so, which shows that a choice arrives."""
    sign = -1.0 if target.choices.get("toy_sign") else 1.0

    def body(
        em: Emitter, operands: list[Value], results: list[Value], begin: Value, end: Value, parts: Scratch
    ) -> None:
        x, out = (em.rows(buffer) for buffer in (*operands, *results))
        with em.loop(begin, end) as row, em.loop(0, em.dim(x, 1), 1, em.zero("f32")) as column:
            total = column.carry + em.load(x, [row.iv, column.iv]) * sign
            em.store(total, out, [row.iv, column.iv])
            column.yield_(total)

    return write_kernel(
        name,
        [("x", spec.x)],
        [("out", spec.x)],
        units=lambda em, operands: em.dim(operands[0], 0),
        scratch=lambda em, operands, parts: None,
        body=body,
    )


TOY = Generator(
    "toy",
    "scan",
    configure,
    emit,
    switch="toys",
    knobs={"toy_sign": Knob(range(2), changes_bits=True)},
    candidates={"prefill": [{"toy_sign": 1}], "decode": [{"toy_sign": 1}]},
)


@pytest.fixture
def _toy() -> Iterator[None]:
    registry.generators().insert(0, TOY)
    yield
    registry.generators().remove(TOY)


def sums(axis: int = 1, exclusive: bool = False) -> GraphModule:
    m = GraphModule.mir("sums")
    m.set_outputs({"y": m.cumsum(m.input("x", [3, 5]), axis=axis, exclusive=exclusive)})
    return m


X = np.arange(15, dtype=np.float32).reshape(3, 5)


@pytest.mark.usefixtures("_toy")
def test_one_record_is_picked_and_reported() -> None:
    made = compile_fresh(sums())
    np.testing.assert_array_equal(made.run({"x": X})["y"], np.cumsum(X, axis=1))
    (row,) = made.dispatch_report().kernels
    assert (row.kind, row.template, row.reason) == ("scan", "toy", "")


@pytest.mark.usefixtures("_toy")
@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (sums(axis=0), "sums of f32 along the last axis alone"),
        (sums(exclusive=True), "scan of this form has no template"),
    ],
)
def test_what_it_declines_has_its_reason(module: GraphModule, reason: str) -> None:
    made = compile_fresh(module)
    (row,) = made.dispatch_report().kernels
    assert (row.template, row.reason) == ("generic", reason)
    assert f"cumsum_0: {reason}" in str(made.dispatch_report())


@pytest.mark.usefixtures("_toy")
@pytest.mark.parametrize("word", ["scan", "toys", "all"])
def test_it_can_be_left_out(word: str) -> None:
    assert list(templates_of(compile_fresh(sums(), disable_templates=(word,))).values()) == ["generic"]


@pytest.mark.usefixtures("_toy")
def test_its_candidates_are_tried() -> None:
    options = CompileOptions()
    plan = tune._Plan(1, 3, 8, False, False, lambda _: None)
    rule = compile_fresh(sums())
    tuner = tune._Tuner(ModuleSubject(sums(), options, {}, {}), plan)
    assert list(tuner._candidates(rule).values()) == [[{"toy_sign": 1}]]
    tuner = tune._Tuner(ModuleSubject(sums(), options, {}, {}), replace(plan, same_bits=True))
    assert not tuner._candidates(rule)
    chosen = compile_fresh(sums(), choices={"cumsum_0": {"toy_sign": 1}})
    np.testing.assert_array_equal(chosen.run({"x": X})["y"], -np.cumsum(X, axis=1))
    with pytest.raises(InputError, match="expects a number from 0 to 1 for toy_sign of 'cumsum_0', but got 2"):
        CompileOptions(choices={"cumsum_0": {"toy_sign": 2}})


def test_without_it_nothing_knows_it() -> None:
    assert "have no template" in str(compile_fresh(sums()).dispatch_report())
    with pytest.raises(InputError, match=r"'disable_templates' expects .*, conv2d_winograd, but got 'toys'"):
        CompileOptions(disable_templates=("toys",))
    with pytest.raises(InputError, match=r"expects tile_rows, .* for 'cumsum_0', but got 'toy_sign'"):
        CompileOptions(choices={"cumsum_0": {"toy_sign": 1}})


@pytest.mark.usefixtures("_toy")
def test_one_that_declines_leaves_the_kernel_to_the_next() -> None:
    """Reasons count only where all decline, each once."""
    spec = ScanSpec(memref((3, 5), "f32"), 0, False)
    registry.generators().append(replace(TOY, name="second", configure=lambda name, spec, target: spec))
    try:
        assert registry.generate("scan", "k", spec, TARGETS[128])[0] == "second"
    finally:
        registry.generators().pop()
    registry.generators().append(replace(TOY, name="third", switch=""))
    try:
        with pytest.raises(UnsupportedByTemplate, match=r"^k: sums of f32 along the last axis alone$"):
            registry.generate("scan", "k", spec, TARGETS[128])
    finally:
        registry.generators().pop()


def test_products_of_f32_may_do_without_tiles() -> None:
    """The switch leaves all generators of its name out; what takes the kernel then is the next one."""
    m = GraphModule.mir("m")
    m.set_outputs({"y": m.matmul(m.input("a", [64, 256]), m.input("w", [256, 64]))})
    machine = {"triple": "x86_64-unknown-linux-gnu", "cpu": "sapphirerapids"}
    for skipped, name in (((), "gemm_amx_f32_batched"), (("gemm_amx_f32",), "gemm_dense")):
        text = rlx.emit(m, "linalg", **machine, disable_templates=skipped)
        assert f'mir.template = "{name}"' in text


def test_the_record_in_the_documentation_is_that_of_the_file() -> None:
    (block,) = blocks("CONTRIBUTING.md", "python")
    known = dict(vars(norm))
    exec(block.text, known)
    assert known["GENERATORS"] == norm.GENERATORS


def test_every_generator_is_in_the_list() -> None:
    """A module with generators that the list doesn't name would never be asked."""
    names = [module.name for module in pkgutil.iter_modules(cpu.__path__)]
    having = {name for name in names if hasattr(importlib.import_module(f"{cpu.__name__}.{name}"), "GENERATORS")}
    assert sorted(having) == sorted(registry.MODULES)  # each once


def test_candidates_are_choices_of_knobs() -> None:
    known = registry.knobs()
    for generator in registry.generators():
        assert {name: known[name] for name in generator.knobs} == dict(generator.knobs), "one name is two knobs"
        for choices in generator.candidates.values():
            for choice in choices:
                check_choices({"kernel": choice}, ranges(generator.knobs))
            assert len({str(choice) for choice in choices}) == len(choices)
