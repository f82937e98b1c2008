# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks that are computed again: the same bits, less memory, and only what is asked for."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import GraphModule, Trainer, optim
from rlx_mlir.errors import BuildError, InputError

F32 = np.float32
WIDTH, LAYERS, ROWS = 64, 6, 512


def network(rows: int | str = ROWS) -> GraphModule:
    """Layers with more in them than between them."""
    m = GraphModule.hir("network")
    h = m.input("x", [rows, WIDTH])
    for number in range(LAYERS):
        with m.scope(f"layer{number}"):
            wide = m.silu(m.linear(m.rms_norm(h, m.param(f"g{number}", [WIDTH])), m.param(f"up{number}", [WIDTH, 512])))
            h = h + m.linear(wide, m.param(f"down{number}", [512, WIDTH]))
    m.set_outputs({"loss": m.mean(h * h)})
    return m


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {own.name: (rng.standard_normal(own.shape) * 0.1 + (own.ndim == 1)).astype(F32) for own in network().params}


X = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(F32)


def gradients(module: GraphModule) -> tuple[dict[str, np.ndarray], int]:
    executable = rlx.compile(module, cache=False)
    executable.set_params(weights())
    return executable.run({"x": X}), executable.artifact.arena_bytes


def test_bits_are_the_same_and_memory_is_less():
    kept, much = gradients(rlx.value_and_grad(network()))
    again = rlx.value_and_grad(network(), recompute="layer*")
    assert [node.op for node in again.nodes()].count("mir.barrier") == LAYERS
    computed, little = gradients(again)
    assert little < 0.5 * much
    for name, array in kept.items():
        np.testing.assert_array_equal(computed[name], array, err_msg=name)


def test_interpreted_gradients_are_the_same():
    values = {"x": X[:4], **weights()}
    kept = rlx.interpret(rlx.value_and_grad(network("n")), values)
    for patterns in ("layer*", ["layer1", "layer3"]):
        again = rlx.interpret(rlx.value_and_grad(network("n"), recompute=patterns), values)
        for name, array in kept.items():
            np.testing.assert_array_equal(again[name], array, err_msg=name)


def test_only_blocks_of_the_name_are_computed_again():
    module = rlx.vjp(network(), recompute=["layer2", "layer4"])
    assert [node.op for node in module.nodes()].count("mir.barrier") == 2


def test_patterns_that_match_nothing_are_refused():
    with pytest.raises(BuildError, match=r"no block of module 'network' has a name like 'block\*'"):
        rlx.grad(network(), recompute="block*")
    with pytest.raises(BuildError, match="'recompute' expects several names, but got 3"):
        rlx.grad(network(), recompute=3)


@pytest.mark.wide
def test_limits_choose_as_few_blocks_as_they_need():
    free = Trainer(network(), weights(), optim.sgd(), cache=False)
    assert free.recomputed == ()
    assert free.memory.peak_donated > 0
    limit = free.memory.peak_donated - 1_000_000
    bound = Trainer(network(), weights(), optim.sgd(), memory_limit=limit, cache=False)
    assert bound.memory.peak_donated <= limit
    assert bound.recomputed == tuple(f"layer{number}" for number in range(len(bound.recomputed)))
    assert 0 < len(bound.recomputed) < LAYERS
    losses = [float(own.step({"x": X})["loss"]) for own in (free, bound)]
    assert losses[0] == losses[1]
    for name, array in free.params.items():
        np.testing.assert_array_equal(bound.params[name], array, err_msg=name)
    with pytest.raises(InputError, match=r"with all of its 6 blocks computed again, but the limit is 1\.0 KiB"):
        Trainer(network(), weights(), optim.sgd(), memory_limit=1024)
