# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of operations, and that nothing is missing of the reference API's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from test_cli import rlx

from rlx_mlir import GraphModule
from rlx_mlir.errors import InputError
from rlx_mlir.semantics.ops import operation_classes
from rlx_mlir.tools import ops
from rlx_mlir.tools.reference_api import BUILDERS, OPERATIONS, RENAMED

ROOT = Path(__file__).resolve().parents[3]


def test_every_operation_of_the_reference_api():
    assert sum(map(len, OPERATIONS.values())) == 92
    missing = []
    for family in OPERATIONS.values():
        for theirs, ours in family.items():
            for word in ours.split():
                home, name = word.split(".")
                there = word in operation_classes() if home == "mir" else hasattr(GraphModule, name)
                missing += [] if there else [f"{theirs}: {word}"]
    assert not missing


def test_every_builder_of_the_reference_api():
    assert len(set(BUILDERS)) == len(BUILDERS) == 138
    assert RENAMED.keys() <= set(BUILDERS)
    names = {own: RENAMED.get(own, own) for own in BUILDERS}
    assert [own for own, name in names.items() if not callable(getattr(GraphModule, name, None))] == []
    assert [name for name in set(names.values()) if not getattr(GraphModule, name).__doc__] == []
    renamed_in_vain = [own for own in RENAMED if hasattr(GraphModule, own) and own != "sample"]
    assert renamed_in_vain == []


def test_rows():
    norm, backward = ops.row("mir.layer_norm"), ops.row("mir.layer_norm_backward_input")
    assert (norm.computed, norm.classes, norm.cpu, norm.gpu) == ("kernels", ("rows",), ("rows",), ("rows",))
    assert norm.stands_for == ("LayerNorm",)
    assert norm.reference == "rlx_mlir.mir.norms.layer_norm"
    assert backward.computed == "parts"
    silu, product, splats = ops.row("mir.silu"), ops.row("mir.compare"), ops.row("mir.gaussian_splat_prepare")
    assert (silu.vjp, silu.jvp, silu.batching) == ("rule", "rule", "rule")
    assert (norm.vjp, norm.jvp, backward.vjp) == ("rule", "transpose", "parts")
    assert (product.vjp, splats.vjp, splats.batching) == ("constant", "", "one by one")
    assert ops.row("mir.fused_swiglu").computed == "kernels or parts"
    assert ops.row("mir.repack").computed == "preparation"
    assert ops.row("mir.conjugate").gpu == ("refused",)
    with pytest.raises(InputError, match="no operation has 'nrm' in its name"):
        ops.matching("nrm")


@pytest.mark.parametrize("name", ops.operation_names())
@pytest.mark.quick(8)
def test_nothing_is_missing(name):
    """Each operation has a reference and, but for those of preparation and of users, code for CPUs and for GPUs."""
    row = ops.row(name)
    assert row.family
    assert row.reference
    if row.computed in ("preparation", "registered"):
        return
    assert row.classes or row.name == "mir.constant", "its example has kernels"
    assert "" not in (*row.cpu, *row.gpu)
    if row.gpu == ("refused",):
        assert re.search(r"complex<|ui\d", ops.example(name)), "GPUs refuse complex and unsigned values alone"


def test_command():
    listed = json.loads(rlx("ops", "norm", "--json").stdout)
    assert {each["name"] for each in listed} >= {"mir.layer_norm", "mir.rms_norm_backward_gamma"}
    assert set(listed[0]) == set(ops.Row.__dataclass_fields__)
    text = rlx("ops", "fused_swiglu").stdout
    assert re.search(r"fused_swiglu +fused +FusedSwiGLU +kernels or parts +rows +rows", text)
