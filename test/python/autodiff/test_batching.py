# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`vmap` of every operation beside a loop over the entries: results, what is built for them, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from batches import difference, drawn, looped, stacked, value_of
from test_api_map import EVERY_PRIMITIVE, Graph

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.autodiff import vmap
from rlx_mlir.errors import InputError
from rlx_mlir.fuzz.cases import random_case
from rlx_mlir.fuzz.primitives import SUMS
from rlx_mlir.fuzz.sensitivity import expected
from rlx_mlir.mir import COMPOSITIONS, REFERENCES, TERMINATORS
from rlx_mlir.mir.registry import BATCHING

F32 = np.float32
#: Operations that nothing batched can be an operand of.
WITHOUT_OPERANDS = frozenset({"mir.constant", "mir.dequant_moe_weights"})
#: Those whose results don't depend on elements.
OF_SIZES = frozenset({"mir.dim", "mir.iota"})
#: What is done one entry after the other whatever has the batch.
ONE_BY_ONE = frozenset(
    {
        "mir.gaussian_splat_prepare",
        "mir.gaussian_splat_rasterize",
        "mir.gaussian_splat_render",
        "mir.gaussian_splat_render_backward",
    }
)
#: Those of them whose entries take long.
COSTLY = ONE_BY_ONE - {"mir.gaussian_splat_rasterize"}
#: What is batched as what it is made of.
AS_PARTS = frozenset({"mir.group_norm_backward_beta", "mir.layer_norm_backward_gamma", "mir.rms_norm_backward_gamma"})
#: What is done so where entries have weights, tables or places of their own for which there is no better form.
AT_TIMES = frozenset(
    f"mir.{word}"
    for word in (
        *("conv", "conv_transpose2d", "conv2d_backward_input", "conv2d_backward_weight", "q_conv2d", "q_matmul"),
        *("dequant_matmul_scaled", "dynamic_slice", "dynamic_update_slice", "rope", "selective_scan"),
        *("fused_attention_block", "fused_transformer_layer", "scan"),
    )
)
OPS = sorted(name for name in REFERENCES.keys() - TERMINATORS if name.startswith("mir."))
#: Operations that the fuzzer draws with something that can have the batch.
DRAWN = [name for name in OPS if name not in WITHOUT_OPERANDS | OF_SIZES | {"mir.repack"}]


def test_operations_without_rules_are_known():
    assert set(OPS) - BATCHING.keys() == WITHOUT_OPERANDS | ONE_BY_ONE | AS_PARTS
    assert COMPOSITIONS.keys() >= AS_PARTS


def subsets(names: Sequence[str]) -> list[list[str]]:
    """Which arguments have the batch: each of up to three, alone and with others; of more, each alone, and all."""
    if len(names) <= 3:
        return [list(s) for n in range(1, len(names) + 1) for s in itertools.combinations(names, n)]
    return [*([name] for name in names), list(names)]


def check_drawn(name: str, number: int) -> bool:
    """Compares batches of one operation of the fuzzer's with loops; gives whether entries had different results."""
    found = drawn(name, number)
    if found is None:
        return False
    module, recipes, sizes = found
    differ = False
    chosen = subsets([n for n, recipe in recipes.items() if recipe.packed is None])
    for which, batched in enumerate(chosen):
        size = (3, 1, 2)[which % 3]
        entries = [
            {n: value_of(r, sizes, np.random.default_rng([number, e])) for n, r in recipes.items()} for e in range(size)
        ]
        given = stacked(entries, batched)
        try:
            wanted = looped(module, given, batched, size)
        except InputError:  # a condition at run time that the drawn values don't meet
            continue
        for own in (size, "n") if len(chosen) == 1 else ("n" if which % 2 else size,):
            result = vmap(module, batched, size=own)
            result.verify()
            about = f"{name} {number}, batches of {batched}, size {own}"
            assert scans(result) <= scans(module) or name in ONE_BY_ONE | AT_TIMES, about
            wrong = difference(rlx.interpret(result, given), wanted, exact=name not in SUMS)
            assert not wrong, f"{about}: {wrong}\n{module.to_text(locations=False)}"
            if own == "n":
                none = rlx.interpret(result, {n: v[:0] if n in batched else v for n, v in given.items()})
                assert {n: v.shape for n, v in none.items()} == {n: (0, *v.shape) for n, v in wanted[0].items()}, about
        differ |= any(value.tobytes() != wanted[-1][n].tobytes() for n, value in wanted[0].items())
    return differ


def scans(module: GraphModule) -> int:
    return module.to_text().count("mir.scan ")


@pytest.mark.parametrize(
    ("name", "number"),
    [pytest.param(name, n, marks=[pytest.mark.slow] * (n > 0 or name in COSTLY)) for name in DRAWN for n in range(6)],
)
def test_a_batch_is_a_loop(name, number):
    tried = itertools.count(number, 6)
    assert any(check_drawn(name, next(tried)) for _ in range(20))


@pytest.mark.parametrize("name", [name for name in EVERY_PRIMITIVE if "gaussian" not in name])
def test_inputs_with_a_batch_are_done_at_once(name):
    g = Graph("mir")
    g.m.set_outputs(EVERY_PRIMITIVE[name](g, g.m.primitives))
    if name == "repack" or not g.m.inputs:
        return
    batched = vmap(g.m, [value.name for value in g.m.inputs], size="n")
    batched.verify()
    assert scans(batched) == scans(g.m)


@pytest.mark.parametrize("number", range(200))
@pytest.mark.quick(8)
def test_random_graphs(number):
    case, _ = random_case(6, number)
    module, run = case.module.lower_for_autodiff(), case.runs[0]
    rng = np.random.default_rng(number)
    names = [value.name for value in [*module.inputs, *module.params] if value.packed is None]
    if not names or "mir.repack" in module.to_text() or sum(array.size for array in run.values()) > 30_000:
        return
    batched, size = [name for name in names if rng.random() < 0.5] or names[:1], int(rng.integers(1, 4))
    entries = [{n: shuffled(array, e) if n in batched else array for n, array in run.items()} for e in range(size)]
    given = stacked(entries, batched)
    wanted = looped(module, given, batched, size)
    result = vmap(module, batched, size="n" if rng.random() < 0.5 else size)
    got = rlx.interpret(result, given)
    if not difference(got, wanted, exact=True):
        return
    for place, entry in enumerate(entries):  # other orders of sums: as far away as small errors lead
        for name, own in expected(module.transform("mir-decompose").ir_module, entry, runs=30).items():
            assert not own.difference(np.asarray(got[name][place])), f"{name} of entry {place}"


def shuffled(array: np.ndarray, number: int) -> np.ndarray:
    """The elements in another order; in their own for the first entry of a batch."""
    return np.random.default_rng(number).permuted(array.reshape(-1)).reshape(array.shape) if number else array
