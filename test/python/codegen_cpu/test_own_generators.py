# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernel generators of users' own: what they make, what is refused, reported, and kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compile_harness import compile_fresh
from documents import blocks

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.cpu import registry
from rlx_mlir.codegen.cpu.kernel import write_kernel
from rlx_mlir.codegen.cpu.own_generators import generator_digests
from rlx_mlir.codegen.emit import element_of
from rlx_mlir.errors import CompileError, InputError, NumericError
from rlx_mlir.runtime import cache
from rlx_mlir.tuning.cpu import Knob

X = np.arange(15, dtype=np.float32).reshape(3, 5)


def sums(name: str, spec: Any, target: Any, *, factor: float = 1.0) -> str:
    """Running sums along rows, times a number that shows who made them."""
    if element_of(spec.x) != "f32" or spec.axis != 1:
        raise UnsupportedByTemplate(f"{name}: rows of f32 alone")

    def body(em: Any, operands: Any, results: Any, begin: Any, end: Any, scratch: Any) -> None:
        with em.loop(begin, end) as row, em.loop(0, em.dim(operands[0], 1), 1, em.zero("f32")) as column:
            total = column.carry + em.load(operands[0], [row.iv, column.iv]) * factor
            em.store(total, results[0], [row.iv, column.iv])
            column.yield_(total)

    return write_kernel(
        name,
        [("x", spec.x)],
        [("sums", spec.x)],
        units=lambda em, operands: em.dim(operands[0], 0),
        scratch=lambda em, operands, parts: None,
        body=body,
    )


def doubled(name: str, spec: Any, target: Any) -> str:
    return sums(name, spec, target, factor=2.0)


def chosen(name: str, spec: Any, target: Any) -> str:
    return sums(name, spec, target, factor=float(target.choices.get("my_factor") or 1))


def nothing(name: str, spec: Any, target: Any) -> str:
    return ""


def no_text(name: str, spec: Any, target: Any) -> str:
    return "func.func @no(("


def no_string(name: str, spec: Any, target: Any) -> Any:
    return 3


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    before = list(registry.generators())
    yield
    for name in generator_digests():
        rlx.unregister_generator(name)
    assert registry.generators() == before


def module(axis: int = 1) -> GraphModule:
    m = GraphModule.mir("sums")
    m.set_outputs({"y": m.cumsum(m.input("x", [3, 5]), axis=axis)})
    return m


def test_its_code_is_used_and_reported() -> None:
    record = rlx.register_generator("my.doubled", kernels="scan", emit=doubled)
    assert (record.name, record.kernels) == ("my.doubled", "scan")
    made = compile_fresh(module())
    np.testing.assert_array_equal(made.run({"x": X})["y"], 2 * np.cumsum(X, axis=1))
    (row,) = made.dispatch_report().kernels
    assert (row.kind, row.template) == ("scan", "my.doubled")
    assert 'mir.template = "my.doubled"' in rlx.emit(module(), "linalg")
    plain = compile_fresh(module(), disable_templates=("my.doubled",))
    np.testing.assert_array_equal(plain.run({"x": X})["y"], np.cumsum(X, axis=1))


def test_what_it_declines_is_another_generators() -> None:
    rlx.register_generator("my.doubled", kernels="scan", emit=doubled)
    made = compile_fresh(module(axis=0))
    np.testing.assert_array_equal(made.run({"x": X})["y"], np.cumsum(X, axis=0))
    assert "cumsum_0: rows of f32 alone" in str(made.dispatch_report())


def test_they_are_asked_in_order_and_before_those_of_the_package() -> None:
    rlx.register_generator("my.none", kernels="rows", emit=sums, configure=lambda name, spec, target: None)
    rlx.register_generator("my.doubled", kernels="scan", emit=doubled)
    rlx.register_generator("my.sums", kernels="scan", emit=sums)
    assert [own.name for own in registry.generators()[:3]] == ["my.none", "my.doubled", "my.sums"]
    assert compile_fresh(module()).dispatch_report().kernels[0].template == "my.doubled"
    m = GraphModule.mir("rows")
    m.set_outputs({"y": m.softmax(m.input("x", ["n", 8]))})
    assert compile_fresh(m).dispatch_report().kernels[0].template == "rows"


def test_knobs_arrive() -> None:
    rlx.register_generator(
        "my.chosen",
        kernels="scan",
        emit=chosen,
        knobs={"my_factor": Knob(range(1, 9), changes_bits=True)},
        candidates={"prefill": [{"my_factor": 3}]},
    )
    made = compile_fresh(module(), choices={"cumsum_0": {"my_factor": 3}})
    np.testing.assert_array_equal(made.run({"x": X})["y"], 3 * np.cumsum(X, axis=1))
    assert list(registry.candidates("my.chosen", "prefill")) == [{"my_factor": 3}]


def test_numeric_verification_checks_it() -> None:
    rlx.register_generator("my.doubled", kernels="scan", emit=doubled)
    with pytest.raises(NumericError, match=r"my\.doubled"):
        compile_fresh(module(), verify="numeric")


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        ("sums", {"kernels": "scan", "emit": sums}, "two or more words .* such as 'my.sums', but got 'sums'"),
        (3, {"kernels": "scan", "emit": sums}, "two or more words .*, but got 3"),
        ("my.sums", {}, "generator 'my.sums' lacks kernels, emit"),
        ("my.sums", {"kernels": "scan"}, "generator 'my.sums' lacks emit"),
        ("my.sums", {"emit": sums}, "generator 'my.sums' lacks kernels"),
        ("my.sums", {"kernels": "scans", "emit": sums}, r"one of gemm, .*, but got 'scans' \(did you mean 'scan'\?\)"),
        ("my.sums", {"kernels": "own", "emit": sums}, "'kernels' of 'my.sums' is one of gemm, .*, but got 'own'"),
        ("my.sums", {"kernels": "scan", "emit": "text"}, "'emit' of 'my.sums' is a function, but got 'text'"),
        ("my.sums", {"kernels": "scan", "emit": len}, r"takes \(name, config, target\), but is \(obj, /\)"),
        (
            "my.sums",
            {"kernels": "scan", "emit": sums, "configure": lambda name: None},
            r"'configure' of 'my.sums' takes \(name, spec, target\), but is \(name\)",
        ),
        ("my.sums", {"kernels": "scan", "emit": sums, "knob": {}}, r"has no 'knob' \(did you mean 'knobs'\?\)"),
        ("my.sums", {"kernels": "scan", "emit": sums, "knobs": {"own": 3}}, "knob 'own' of 'my.sums' is a Knob"),
        (
            "my.sums",
            {"kernels": "scan", "emit": sums, "knobs": {"prefetch": Knob(range(2))}},
            "'my.sums' can't have a knob 'prefetch': it is another generator's",
        ),
        (
            "my.sums",
            {"kernels": "scan", "emit": sums, "candidates": {"prefill": [{"own": 3}]}},
            "'candidates' of 'my.sums' chooses own, which is no knob of it",
        ),
        (
            "my.sums",
            {"kernels": "scan", "emit": sums, "candidates": {"train": []}},
            "'candidates' of 'my.sums' has prefill, decode, but got 'train'",
        ),
    ],
)
def test_what_is_refused(name: Any, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rlx.register_generator(name, **parts)


def test_names_are_taken_once() -> None:
    rlx.register_generator("my.sums", kernels="scan", emit=sums)
    with pytest.raises(InputError, match=r"'my\.sums' is registered already; unregister_generator forgets it"):
        rlx.register_generator("my.sums", kernels="scan", emit=doubled)
    with pytest.raises(InputError, match=r"no generator 'my.sum' is registered \(did you mean 'my.sums'\?\)"):
        rlx.unregister_generator("my.sum")


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (nothing, "generator 'my.wrong' gave text without @cumsum_0.body, @cumsum_0.units, @cumsum_0.scratch"),
        (no_text, "kernel 'cumsum_0'.*generator 'my.wrong' gave text that is no MLIR: .*expected non-function type"),
        (no_string, "'emit' of generator 'my.wrong' gives text, but gave 3"),
    ],
)
def test_text_that_is_no_kernel(emit: Any, message: str) -> None:
    rlx.register_generator("my.wrong", kernels="scan", emit=emit)
    with pytest.raises(CompileError, match=f"(?s){message}") as raised:
        compile_fresh(module())
    assert "disable_templates=('scan',) compiles kernels" in str(raised.value)


def test_generators_without_a_source_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(artifact: object) -> None:
        raise AssertionError("it was kept")

    monkeypatch.setattr(cache, "keep", kept)
    factor = 1.0
    rlx.register_generator("my.sums", kernels="scan", emit=lambda *own: sums(*own, factor=factor))
    assert generator_digests() == {"my.sums": None}
    assert rlx.compile(module()).dispatch_report().kernels[0].template == "my.sums"


@pytest.mark.wide
def test_results_are_kept_by_the_source_of_generators(tmp_path: Path) -> None:
    """The same name with another function gives another program: asked of processes of their own, with one cache."""
    example = blocks("docs/own-operations.md", "python")
    source = next(block.text for block in example if "register_generator(" in block.text)
    script = (
        "import numpy as np, rlx_mlir as rlx, rlx_mlir.compiler\n"
        "build = rlx.compiler.build_artifact\ncount = []\n"
        "rlx.compiler.build_artifact = lambda *own: count.append(1) or build(*own)\n"
        "m = rlx.GraphModule.mir('d')\nm.set_outputs({'d': m.cumsum(m.input('x', [2, 2]), axis=1)})\n"
        "print(rlx.compile(m)(x=np.ones((2, 2), np.float32))[0, 1], len(count))\n"
    )

    def result(source: str) -> str:
        (tmp_path / "own_sums.py").write_text(source)  # -B: bytecode is told apart by seconds and sizes
        done = subprocess.run(
            [sys.executable, "-B", "-c", f"import own_sums\n{script}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    other = source.replace("column.carry + ", "column.carry - ")
    assert other != source
    assert result(source) == "2.0 1"
    assert result(source) == "2.0 0"  # from the cache
    assert result(other) == "-2.0 1"
    assert result("") == "2.0 1"
