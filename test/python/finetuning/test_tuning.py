# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training of adapters: gradients against numpy, loss that falls, checkpoints to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from safetensors.numpy import load_file
from test_adapter import Adapted, random_adapter

import rlx_mlir as rlx
from rlx_mlir.errors import ExecutionError, InputError
from rlx_mlir.finetuning import FineTuning, Rows, Settings, graph
from rlx_mlir.finetuning.data import Example, rows_of
from rlx_mlir.finetuning.graph import LossGraph
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import decoder
from rlx_mlir.models.adapter import Adapter
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.layers import adapter_names

RNG = np.random.default_rng(0)


def examples() -> list[Example]:
    """Of different lengths, with answers in different places."""
    found = []
    for size, known in ((12, 5), (16, 9), (9, 0), (14, 13)):
        ids = tuple(RNG.integers(3, 299, size).tolist())
        found.append(Example(ids, tuple(place >= known for place in range(size))))
    return found


def wanted_loss(file: GGUFFile, adapter: Adapter, rows: Rows) -> float:
    """The mean cross entropy of the answers' tokens, in f64."""
    model = Adapted(file, adapter)
    total = 0.0
    for tokens, targets, counted in zip(rows.tokens, rows.targets, rows.counted, strict=True):
        logits = model.logits(tokens)
        logits = logits - logits.max(axis=1, keepdims=True)
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(targets)), targets]
        total += float(losses @ counted)
    return total / rows.answers


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_packed_examples_do_not_see_each_other(tmp_path: Path, architecture: str) -> None:
    """The loss of each example behind others is that of it alone, in layers of windows, too."""
    file = GGUFFile(tiny_models.write(tmp_path / "tiny.gguf", architecture=architecture))
    config = ModelConfig.from_gguf(file)
    adapter = random_adapter(config)
    params = decoder.parameters(config, file, 32)
    for product, factors in adapter.factors.items():
        params |= dict(zip(adapter_names(product), factors, strict=True))
    parts = [*examples(), Example((5, 7), (False, True))]  # one of one token

    def loss(rows: Rows, counted: np.ndarray) -> float:
        made = LossGraph(config, len(rows), 32, adapter.ranks, adapter.scales, rows.packed).build()
        inputs = {**rows.inputs(packed=rows.packed), "weights": counted}
        return float(rlx.interpret(made, {**inputs, **params})["loss"])

    packed = rows_of(parts, 32, pack=True)
    assert packed.packed
    assert len(packed) < len(parts)
    assert not rows_of(parts[:1], 32, pack=True).packed
    for part in parts:
        alone = rows_of([part], 32, exact=True)
        row, start = next(
            (row, start)
            for row in range(len(packed))
            for start in range(33 - len(part.ids) + 1)
            if packed.positions is not None
            and packed.positions[row, start] == 0
            and tuple(packed.tokens[row, start : start + len(part.ids) - 1]) == part.ids[:-1]
        )
        counted = np.zeros_like(packed.counted)
        counted[row, start : start + len(part.ids) - 1] = part.counts[1:]
        assert loss(packed, counted) == pytest.approx(loss(alone, alone.counted), rel=1e-5)


class Built(Exception):
    """A graph is built: nothing that was compiled is taken in its place."""


@pytest.mark.wide
def test_a_step_that_was_compiled_is_found_without_its_graph(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What decides about the graph, and nothing else, makes it be built again."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    file = GGUFFile(tiny_llama)
    config = ModelConfig.from_gguf(file)
    rows, own = rows_of(examples(), 32), Settings(4, 2, 4.0, ("attn_v",), batch=2, rate=1e-2)
    first = FineTuning(file, config, rows, own)

    def built(graph: LossGraph) -> None:
        raise Built

    monkeypatch.setattr(LossGraph, "build", built)
    again = FineTuning(file, config, rows, replace(own, steps=9, seed=0, warmup=1))  # numbers of a step that are inputs
    assert (again.memory, again.recomputed) == (first.memory, ())
    assert again.step().loss == first.step().loss
    changed = [
        replace(own, rank=3),
        replace(own, alpha=5.0),
        replace(own, batch=1),
        replace(own, accumulate=2),
        replace(own, weight_decay=0.1),
        replace(own, clip_norm=0.5),
        replace(own, targets=("attn_k",)),
    ]
    others = [rows_of(examples(), 32, pack=True), rows_of(examples(), 31, exact=True)]
    for other, settings in [*((rows, settings) for settings in changed), *((other, own) for other in others)]:
        with pytest.raises(Built):
            FineTuning(file, config, other, settings)


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_gradients_are_those_of_numpy(tmp_path: Path, architecture: str) -> None:
    """The model is packed in several types; differences of its loss in f64 along random directions of all factors."""
    path = tiny_models.write(tmp_path / "tiny.gguf", architecture=architecture, types={"ffn_up": "q8_0"})
    file = GGUFFile(path)
    config = ModelConfig.from_gguf(file)
    adapter = random_adapter(config)
    rows = rows_of(examples(), 16)
    module = rlx.value_and_grad(
        LossGraph(config, len(rows), rows.length, adapter.ranks, adapter.scales).build(),
        [name for product in adapter.factors for name in adapter_names(product)],
    )
    params = decoder.parameters(config, file, rows.length)
    for product, factors in adapter.factors.items():
        params |= dict(zip(adapter_names(product), factors, strict=True))
    inputs = {"tokens": rows.tokens, "targets": rows.targets, "weights": rows.counted / rows.answers}
    found = rlx.interpret(module, {**inputs, **params})
    assert found["loss"] == pytest.approx(wanted_loss(file, adapter, rows), rel=1e-5)
    for which in (0, 1):  # A, B
        way = {product: RNG.standard_normal(pair[which].shape) for product, pair in adapter.factors.items()}
        gradients = {product: found[f"d_{adapter_names(product)[which]}"] for product in way}
        slope = sum(float((gradients[product] * way[product]).sum()) for product in way)

        def moved(step: float, which: int = which, way: dict[str, np.ndarray] = way) -> Adapter:
            factors = {}
            for product, pair in adapter.factors.items():
                own = [factor.astype(np.float64) for factor in pair]
                own[which] = own[which] + step * way[product]
                factors[product] = (own[0], own[1])
            return Adapter(factors, adapter.scales)

        step = 1e-5
        difference = (wanted_loss(file, moved(step), rows) - wanted_loss(file, moved(-step), rows)) / (2 * step)
        assert slope == pytest.approx(difference, rel=1e-4)
        assert abs(slope) > 1e-3


@pytest.mark.wide
def test_logits_in_parts_give_the_same_gradients(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, but for the sum of the losses; and with less memory."""
    file = GGUFFile(tiny_llama)
    config = ModelConfig.from_gguf(file)
    adapter = random_adapter(config, ("attn_q",))
    rows = rows_of(examples(), 16)
    names = [name for product in adapter.factors for name in adapter_names(product)]
    params = decoder.parameters(config, file, rows.length)
    for product, factors in adapter.factors.items():
        params |= dict(zip(adapter_names(product), factors, strict=True))
    inputs = {"tokens": rows.tokens, "targets": rows.targets, "weights": rows.counted / rows.answers}
    found, sizes = [], []
    for limit in (1 << 20, config.vocab * 4 * 16):
        monkeypatch.setattr(graph, "_LOGITS", limit)
        module = LossGraph(config, len(rows), rows.length, adapter.ranks, adapter.scales).build()
        assert ("mir.scan" in module.to_text()) == (limit < 1 << 20)
        executable = rlx.compile(rlx.value_and_grad(module, names), activations="exact")
        executable.set_params(params)
        found.append(executable.run(inputs))
        sizes.append(executable.artifact.arena_bytes)
    assert sizes[1] < sizes[0]
    assert found[0].pop("loss") == pytest.approx(found[1].pop("loss"), rel=1e-6)
    for name, gradient in found[0].items():
        assert np.array_equal(gradient, found[1][name])


def test_parts_have_equal_rows() -> None:
    for rows, vocab in ((64, 300), (1024, 49152), (4096, 262144), (997, 128256), (3, 1 << 26)):
        parts = graph._parts(rows, vocab)
        assert rows % parts == 0
        assert parts == rows or rows // parts * vocab * 4 <= graph._LOGITS
    assert graph._parts(64, 300) == 1


SETTINGS = Settings(
    steps=100, rank=4, alpha=8.0, targets=("attn_q", "attn_v", "ffn_down"), batch=2, accumulate=2, rate=4e-2, warmup=2
)


@pytest.fixture(scope="module")
def rows() -> Rows:
    return rows_of(examples(), 16)


@pytest.fixture(scope="module")
def trained(tiny_llama: Path, rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> tuple[FineTuning, Path]:
    """After all steps; checkpoints of steps 10 and 100."""
    file = GGUFFile(tiny_llama)
    folder = tmp_path_factory.mktemp("checkpoints")
    tuning = FineTuning(file, ModelConfig.from_gguf(file), rows, SETTINGS)
    before = tuning.loss(rows)
    assert before == pytest.approx(wanted_loss(file, tuning.adapter, rows), rel=1e-5)
    first, *_, last = [step for step in tuning.run() if step.number != 10 or tuning.save(folder / "10") is None]
    assert first.loss == pytest.approx(before, rel=1e-5), "a step has all rows"
    assert last.loss < 0.1 < 3 < first.loss
    assert (first.number, last.number, tuning.steps) == (1, 100, 100)
    assert first.tokens == sum(len(example.ids) - 1 for example in examples())
    tuning.save(folder / "100")
    return tuning, folder


def test_an_adapter_learns_a_batch_by_heart(tiny_llama: Path, rows: Rows, trained: tuple[FineTuning, Path]) -> None:
    """The loss is that of the adapter in numpy, after training too."""
    tuning, _ = trained
    found = tuning.loss(rows)
    assert found < 0.1
    assert found == pytest.approx(wanted_loss(GGUFFile(tiny_llama), tuning.adapter, rows), rel=1e-3)


def again(trained: tuple[FineTuning, Path], threads: int | None = None, **changes: object) -> FineTuning:
    tuning, _ = trained
    return FineTuning(tuning.file, tuning.config, tuning.rows, replace(SETTINGS, **changes), threads=threads)


def test_runs_go_on_from_checkpoints_with_the_same_bits(trained: tuple[FineTuning, Path]) -> None:
    """With another number of threads, too."""
    tuning, folder = trained
    other = again(trained, threads=1)
    other.restore(folder / "10")
    assert other.steps == 10
    assert [step.number for step in other.run()] == list(range(11, 101))
    for product, factors in tuning.adapter.factors.items():
        for own, wanted in zip(other.adapter.factors[product], factors, strict=True):
            assert np.array_equal(own, wanted)
    other.save(folder / "again")
    found, wanted = load_file(folder / "again"), load_file(folder / "100")
    assert {"optim.step", "mean.blk.0.attn_q.lora_a", "blk.1.ffn_down.lora_b"} < found.keys() == wanted.keys()
    for name, array in found.items():
        assert np.array_equal(array, wanted[name]), name


@pytest.mark.wide
def test_a_loss_that_is_no_number_ends_a_run(trained: tuple[FineTuning, Path]) -> None:
    """What was trained is lost then; a checkpoint isn't."""
    _, folder = trained
    other = again(trained)
    other.restore(folder / "10")
    next(iter(other._trainer.params.values()))[...] = np.nan
    with pytest.raises(ExecutionError, match="step 11: the loss must be a finite number, but is nan: the rate, "):
        next(other.run())
    other.restore(folder / "10")
    assert np.isfinite(other.step().loss)


def test_less_memory_gives_the_same_bits(trained: tuple[FineTuning, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """As few layers as possible are computed again; where all of them don't bring a step within, that is said.

    Which ones were is known of a step that is found compiled, too.
    """
    tuning, _ = trained
    rows, settings = rows_of(examples(), 64, exact=True), replace(SETTINGS, batch=4, accumulate=1)
    whole = FineTuning(tuning.file, tuning.config, rows, settings)
    less = FineTuning(tuning.file, tuning.config, rows, settings, memory_limit=int(0.85 * whole.memory))
    assert (whole.recomputed, less.recomputed) == ((), ("layer0",))
    assert less.memory <= 0.9 * whole.memory
    for _ in range(2):
        assert less.step().loss == whole.step().loss
    for product, factors in whole.adapter.factors.items():
        for own, wanted in zip(less.adapter.factors[product], factors, strict=True):
            assert np.array_equal(own, wanted)
    with pytest.raises(InputError, match=r"with all of its \d blocks computed again, but the limit is 1\.0 KiB"):
        FineTuning(tuning.file, tuning.config, rows, settings, memory_limit=1024)
    monkeypatch.setattr(LossGraph, "build", lambda own: pytest.fail("built again"))
    found = FineTuning(tuning.file, tuning.config, rows, settings, memory_limit=int(0.85 * whole.memory))
    assert found.recomputed == less.recomputed


def test_checkpoints_of_other_runs_are_refused(trained: tuple[FineTuning, Path]) -> None:
    other = again(trained, rate=1e-2)
    before = other.adapter
    with pytest.raises(InputError, match=r"10: the checkpoint is of a run whose 'rate' is 0\.04, but here it is 0\.01"):
        other.restore(trained[1] / "10")
    assert other.steps == 0
    assert all(not b.any() for _, b in other.adapter.factors.values())
    assert before.ranks == other.adapter.ranks
    tuning = trained[0]
    counted = tuning.rows.counted.copy()
    counted[0, 5] = 0
    changed = FineTuning(tuning.file, tuning.config, replace(tuning.rows, counted=counted), SETTINGS)
    with pytest.raises(InputError, match="a run whose 'rows' is"):
        changed.restore(trained[1] / "10")


def test_too_few_rows_and_other_lengths(trained: tuple[FineTuning, Path]) -> None:
    with pytest.raises(InputError, match="a step takes 16 entries, but there are 4 in the data set"):
        again(trained, batch=8)
    with pytest.raises(InputError, match="rows are of 16 tokens, but got such of 32"):
        trained[0].loss(rows_of(examples(), 32, exact=True))


def test_packed_weights_stay_packed(trained: tuple[FineTuning, Path]) -> None:
    """What a step keeps in f32 is much less than the weights that are packed in the file."""
    tuning, _ = trained
    matrices = [info for info in tuning.config.weights.values() if len(info.shape) == 2]
    packed = sum(info.size for info in matrices if info.type != "f32")
    step, losses = tuning._trainer.executable, tuning._losses
    assert step._bound is not None
    assert losses is not None
    assert losses._bound is not None
    assert sum(array.size for array in step._bound.arrays if array.dtype == np.float32) < packed / 2
    (panels, others) = (
        {spec.name: array for spec, array in zip(own.artifact.plan_parameters, own._bound.arrays, strict=True)}
        for own in (step, losses)
    )
    name = "token_embd.weight:panels"
    assert np.shares_memory(panels[name], others[name]), "steps and losses have one copy"
