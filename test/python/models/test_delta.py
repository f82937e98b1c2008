# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose layers have states in place of keys and values, and the layer that predicts further tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import tiny_models
from interpreted import load_interpreted
from numpy_decoder import NumpyDecoder
from state_checks import cut_in_parts, gone_back, gone_on_behind_its_prompt, same_states, taken_at_once

from rlx_mlir.errors import ExecutionError, GGUFError, InputError, ModelFileError, RlxError, UnsupportedError
from rlx_mlir.finetuning.graph import LossGraph
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.models import decoder
from rlx_mlir.models.caches import cache_types, state_bytes
from rlx_mlir.models.choosing import Chooser
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.delta import Delta
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.observed import Watch, build_observed
from rlx_mlir.models.sampling import Sampler
from rlx_mlir.models.session import Hidden
from rlx_mlir.models.speculation import Prediction, Speculation

IDS = [int(i) for i in np.random.default_rng(7).integers(3, 290, 40)]
CONTEXT = 64


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write(tmp_path_factory.mktemp("delta") / "m.gguf", architecture="qwen35")


@pytest.fixture(scope="module")
def model(path: Path) -> Model:
    return load_model(path, context=CONTEXT, chunk=16)


def read(tmp_path: Path, **changes: Any) -> ModelConfig:
    return ModelConfig.from_gguf(GGUFFile(tiny_models.write(tmp_path / "m.gguf", changes, architecture="qwen35")))


# -- what is computed --------------------------------------------------------------------------------------------------


def test_layers_have_caches_or_states(path: Path) -> None:
    config = ModelConfig.from_gguf(GGUFFile(path))
    assert config.delta == Delta(keys=2, values=4, size=16, taps=4, layers=(0, 2))
    assert (config.layers, config.predicts, config.attentive) == (3, True, (1,))
    assert list(cache_types(config)) == ["k_1", "v_1"]
    assert config.delta.states() == {
        f"{name}_{layer}": shape for layer in (0, 2) for name, shape in (("conv", (3, 128)), ("delta", (4, 16, 16)))
    }
    assert state_bytes(config) == 2 * 4 * (3 * 128 + 4 * 16 * 16)
    assert decoder.modules_of(config) == tuple(decoder.SHAPES)
    for program in decoder.SHAPES:
        names = {param.name for param in decoder.build(config, program).params}
        ahead = {name for name in names if name.startswith("blk.3.")}
        assert (len(ahead) > 10) == (program == "predict")
        assert ("blk.0.ssm_conv1d.weight" in names) == (program != "predict")


@pytest.mark.parametrize("cuts", [[1] * 9, [8, 1], [3, 6], [2, 2, 5]], ids=str)
@pytest.mark.quick(4)
def test_a_prompt_has_the_same_bits_wherever_it_is_cut(model: Model, cuts: list[int]) -> None:
    whole, parts = cut_in_parts(model, IDS, cuts)
    same_states(whole, parts)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 17])
@pytest.mark.quick(6)
def test_tokens_at_once_have_the_bits_of_single_ones(model: Model, count: int) -> None:
    one, many = taken_at_once(model, IDS, count)
    same_states(one, many)


@pytest.mark.parametrize("kept", range(9))
def test_states_go_back_to_any_token_that_was_processed_at_once(model: Model, kept: int) -> None:
    gone_back(model, IDS, kept)


@pytest.mark.wide
def test_predictions_equal_numpy(path: Path) -> None:
    """Of as many pairs as there are in several chunks, and of what the layer itself gave."""
    reference, exact = NumpyDecoder(GGUFFile(path)), load_model(path, context=CONTEXT, chunk=16, activations="exact")
    states = reference.states(IDS)
    logits, own = reference.predicted(IDS[1:], states[:-1])
    for count in (1, 15, 16, 17, 39):
        drafter = Prediction(exact)
        found, hidden = drafter._predicted(IDS[1 : count + 1], states[:count].astype(np.float32), 0)
        np.testing.assert_allclose(found, logits[count - 1], rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(hidden[0], own[count - 1], rtol=2e-4, atol=2e-4)
    further, _ = drafter._predicted([7], hidden, 39)
    chained = np.concatenate([states[:-1], own[-1:]])
    np.testing.assert_allclose(further, reference.predicted([*IDS[1:], 7], chained)[0][-1], rtol=5e-4, atol=5e-4)


def test_a_head_without_a_norm_of_its_own_has_the_models(path: Path, tmp_path: Path) -> None:
    tensors = tiny_models.tensors(architecture="qwen35")
    del tensors["blk.3.nextn.shared_head_norm.weight"]
    file = GGUFFile(write_gguf(tmp_path / "m.gguf", tiny_models.metadata("qwen35"), tensors))
    params = {param.name for param in decoder.build(ModelConfig.from_gguf(file), "predict").params}
    assert "output_norm.weight" in params
    other = {param.name for param in decoder.build(ModelConfig.from_gguf(GGUFFile(path)), "predict").params}
    assert "output_norm.weight" not in other


# -- speculation -------------------------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {"greedy": True, "ignore_eos": True},
    {"temperature": 1.5, "seed": 3, "ignore_eos": True},
    {"temperature": 1.2, "seed": 5, "repetition_penalty": 1.4, "frequency_penalty": 0.3, "logprobs": 3},
    {"temperature": 1.5, "seed": 6, "stop": ["e", "at"], "ignore_eos": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
@pytest.mark.quick(4)
def test_texts_are_the_same(model: Model, options: dict[str, Any]) -> None:
    for length in (1, 9, 40):
        for most in (1, 2, 9, 30):
            plain = model.generate(IDS[:length], max_tokens=most, **options)
            text = plain.read()
            for draft in ("mtp", "lookup"):
                found = model.generate(IDS[:length], max_tokens=most, draft=draft, **options)
                assert (found.read(), found.ids, found.finish_reason) == (text, plain.ids, plain.finish_reason)
                assert found.logprobs == plain.logprobs


class Half:
    """Proposes tokens of which some are right, by a text that is known."""

    def __init__(self, text: Sequence[int], seed: int) -> None:
        self.text, self.random = list(text), np.random.default_rng(seed)

    def draft(self, ids: Sequence[int], chooser: Chooser, count: int) -> list[int]:
        right = self.text[len(ids) : len(ids) + count]
        wrong = self.random.random(len(right)) < 0.3
        return [int(self.random.integers(3, 260)) if bad else token for token, bad in zip(right, wrong, strict=True)]


def test_proposals_leave_the_states_of_single_steps(model: Model) -> None:
    options: dict[str, Any] = {"temperature": 1.7, "seed": 1, "max_tokens": 40, "ignore_eos": True}
    plain = model.generate(IDS[:11], **options)
    plain.read()
    task, session = model.task(IDS[:11], **options), model.session()
    session.feed(IDS[:11])
    ahead = Speculation(session, task, Half([*IDS[:11], *plain.ids], 1))
    task.take(task.chooser.choose(session.logits))
    while task.reason is None:
        task.take(ahead.follow(task.ids[-1]))
    assert task.ids == plain.ids
    assert 0 < ahead.accepted < ahead.drafted
    single = model.session()
    single.feed(IDS[:11])
    for token in task.ids[: len(session) - 11]:
        single.step(token)
    same_states(session, single)


def right_model(tmp_path: Path) -> Model:
    """The next token follows from the last one alone, and the layer that predicts knows how."""
    dense = ("token_embd", "attn_output", "ssm_out", "ffn_down", "nextn.eh_proj")
    tensors = tiny_models.tensors(dict.fromkeys(dense, "f32"), architecture="qwen35")
    for name, value in tensors.items():
        if name.endswith(("attn_output.weight", "ssm_out.weight", "ffn_down.weight")):
            tensors[name] = np.zeros_like(value)
    tensors["blk.3.nextn.enorm.weight"] = np.ones(64, np.float32)
    tensors["blk.3.nextn.eh_proj.weight"] = np.concatenate([np.eye(64), np.zeros((64, 64))], axis=1).astype(np.float32)
    tensors["blk.3.nextn.shared_head_norm.weight"] = tensors["output_norm.weight"]
    return load_model(
        write_gguf(tmp_path / "m.gguf", tiny_models.metadata("qwen35"), tensors), context=CONTEXT, chunk=16
    )


@pytest.mark.wide
def test_a_layer_that_is_right_is_believed(tmp_path: Path) -> None:
    """Greedily and by draws, which are shared: all that it proposes is chosen, but for what comes after the end."""
    model = right_model(tmp_path)
    for options in ({"greedy": True}, {"temperature": 0.7, "seed": 2}):
        found = model.generate(IDS[:6], draft="mtp", max_tokens=41, ignore_eos=True, **options)
        found.read()
        assert (
            found.stats.drafted_tokens == found.stats.accepted_tokens == 30
        )  # 10 rounds of 3, and one more token each
        # What a conversation shares with the one before is taken over, and the layer goes on without it.
        again = model.generate([*IDS[:6], *found.ids[:4], 5], draft="mtp", max_tokens=9, ignore_eos=True, **options)
        again.read()
        assert again.stats.reused_tokens == 6
        assert again.stats.drafted_tokens == again.stats.accepted_tokens > 5


def test_drawn_tokens_have_the_exact_distribution(model: Model) -> None:
    """The second token of many generations, against its exact probabilities."""
    session = model.session()
    session.feed(IDS[:6])
    sampler = Sampler(temperature=1.0, top_k=4, top_p=1.0, seed=0)
    exact = np.zeros(300)
    for token, chance in zip(*sampler.probabilities(session.logits), strict=True):
        ids, probabilities = sampler.probabilities(session.fork().step(int(token)))
        exact[ids] += chance * probabilities
    counts, runs = np.zeros(300), 600
    for seed in range(runs):
        generation = model.generate(
            IDS[:6], draft="mtp", temperature=1.0, top_k=4, top_p=1.0, seed=seed, max_tokens=3, ignore_eos=True
        )
        generation.read()
        counts[generation.ids[1]] += 1
    assert not counts[exact == 0].any()
    seen = exact > 0
    chi = ((counts[seen] - runs * exact[seen]) ** 2 / (runs * exact[seen])).sum()
    assert chi < 2.5 * seen.sum() + 20


def test_proposals_end_where_logits_are_not_finite(model: Model) -> None:
    """The text is the model's own all the same."""
    session, drafter = model.session(), Prediction(model)
    drafter.listen(session)
    session.feed(IDS[:5])
    drafter._heard._rows[0][:] = np.nan
    ids = [*IDS[:5], 9]
    assert drafter.draft(ids, Chooser(Sampler(greedy=True)), 3) == []


def test_hidden_states_are_those_of_tokens_that_stay() -> None:
    hidden = Hidden(4)
    hidden.add(np.arange(6, dtype=np.float32).reshape(3, 2))
    hidden.keep(6)
    hidden.add(np.full((1, 2), 9, np.float32))
    np.testing.assert_array_equal(hidden.taken(), [[0, 1], [2, 3], [9, 9]])
    assert hidden.begin == 7
    hidden.keep(2)
    assert hidden.begin == 2


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_forks_and_saved_sessions_go_on(model: Model, tmp_path: Path) -> None:
    session = model.session()
    session.feed(IDS[:5])
    session.extend(IDS[5:9])
    session.truncate(7)
    session.save(tmp_path / "a.session")
    fork, restored = session.fork(), model.restore(tmp_path / "a.session")
    wanted = session.step(11)
    np.testing.assert_array_equal(fork.step(11), wanted)
    np.testing.assert_array_equal(restored.step(11), wanted)
    same_states(session, restored)


def test_states_do_not_go_back_to_other_tokens(model: Model) -> None:
    session = model.session()
    session.feed(IDS[:9])
    session.step(4)
    rule = r"a session of 'qwen35' can't go back from 10 tokens to 9: layers have a state .* fork the session before"
    with pytest.raises(UnsupportedError, match=rule):
        session.truncate(9)
    assert len(session) == 10
    session.truncate(0)
    session.feed(IDS[:9])
    other = model.session()
    other.feed(IDS[:9])
    np.testing.assert_array_equal(session.logits, other.logits)


def test_what_fails_leaves_the_session_as_it_was(model: Model) -> None:
    session, other = model.session(), model.session()
    for each in (session, other):
        each.feed(IDS[:5])
    session.caches["v_1"][0, 2] = np.nan
    for call in (lambda: session.step(3), lambda: session.feed(IDS[:20]), lambda: session.extend(IDS[:12])):
        with pytest.raises(ExecutionError, match="the values of layer 1"):
            call()
        assert len(session) == 5
    same_states(session, other)


def test_conversations_go_on_behind_their_prompt(model: Model) -> None:
    """States are noted where a prompt ends: what begins as it did is processed from there, to the same bits."""
    gone_on_behind_its_prompt(model, IDS)


@pytest.mark.wide
def test_many_at_a_time_have_the_texts_of_each(model: Model) -> None:
    """Rows of sequences that end are taken by others, with their states."""
    prompts = [IDS[:3], IDS[3:20], IDS[5:6], IDS[10:40], IDS[2:4]]
    options: dict[str, Any] = {"temperature": 1.1, "max_tokens": 9}
    found = model.generate_many(prompts, sequences=3, seed=4, **options)
    for number, (prompt, generation) in enumerate(zip(prompts, found, strict=True)):
        alone = model.generate(prompt, seed=4 + number, **options)
        assert (alone.read(), alone.ids) == (generation.text, generation.ids)


@pytest.mark.wide
def test_a_bundle_has_all_modules(model: Model, tmp_path: Path) -> None:
    report = model.save_bundle(tmp_path / "m.rlx")
    assert set(report.modules) == set(decoder.SHAPES)
    loaded, options = load_model(tmp_path / "m.rlx"), {"greedy": True, "max_tokens": 12, "ignore_eos": True}
    wanted = model.generate(IDS[:9], **options).read()
    assert loaded.generate(IDS[:9], draft="mtp", **options).read() == wanted


# -- what is refused ---------------------------------------------------------------------------------------------------

METADATA: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "two further layers": (
        {"nextn_predict_layers": 2},
        UnsupportedError,
        r"'qwen35.nextn_predict_layers' must be 0 or 1, but is 2",
    ),
    "no layer at all": ({"block_count": 1}, GGUFError, r"'qwen35.block_count' must be an integer from 2 .*, but is 1"),
    "heads": (
        {"ssm__group_count": 3},
        GGUFError,
        r"time_step_rank' must be a multiple of the heads of keys, 3, but is 4",
    ),
    "width": ({"ssm__inner_size": 60}, GGUFError, r"ssm.inner_size' must be 4 heads of 16 elements, but is 60"),
    "taps": ({"ssm__conv_kernel": 1}, GGUFError, r"ssm.conv_kernel' must be at least 2, but is 1"),
    "no sizes": ({"ssm__state_size": None}, GGUFError, r"'qwen35.ssm.state_size' must be there"),
    "flags": (
        {"attention__recurrent_layers": np.array([True])},
        GGUFError,
        r"recurrent_layers' must be an array of 4 flags, one for each layer,.* is '1 flags'",
    ),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata_that_can_not_be(tmp_path: Path, name: str) -> None:
    changes, error, message = METADATA[name]
    with pytest.raises(error, match=message):
        read(tmp_path, **changes)


def test_flags_say_which_layers_have_states(tmp_path: Path) -> None:
    flags = np.array([True, False, True, False])
    config = read(tmp_path, attention__recurrent_layers=flags, full_attention_interval=3)
    assert config.delta is not None
    assert config.delta.layers == (0, 2)


def test_taps_are_f32(tmp_path: Path) -> None:
    tensors = tiny_models.tensors(architecture="qwen35")
    tensors["blk.2.ssm_conv1d.weight"] = tensors["blk.2.ssm_conv1d.weight"].astype(np.float16)
    file = GGUFFile(write_gguf(tmp_path / "m.gguf", tiny_models.metadata("qwen35"), tensors))
    with pytest.raises(UnsupportedError, match=r"'blk\.2\.ssm_conv1d\.weight' is f16, which must be f32"):
        ModelConfig.from_gguf(file)


def test_drafts_that_can_not_be(model: Model, tiny_llama: Path) -> None:
    other = load_interpreted(tiny_llama)
    with pytest.raises(InputError, match=r"'draft' is 'mtp', but the model has no layer that predicts"):
        other.generate("a", draft="mtp")
    with pytest.raises(UnsupportedError, match=r"layers of 'qwen35' have states that don't go back; .* with 'mtp'"):
        other.generate("a", draft=model)
    with pytest.raises(InputError, match=r"the model's modules are prefill, decode, batch, extend, but got 'settle'"):
        decoder.build(other.config, "settle")


def test_whole_sequences(path: Path) -> None:
    """Layers can be looked at, and learnt with, but examples beside each other can't be told apart."""
    config, seen = ModelConfig.from_gguf(GGUFFile(path)), []
    build_observed(config, 8, Watch(result=lambda name, value: seen.append(name)))
    assert {"blk.0", "blk.1", "blk.0.ssm_out", "blk.1.attn_q"} <= set(seen)
    ranks = {"blk.0.ffn_up": 2}
    assert LossGraph(config, 1, 8, ranks, {"blk.0.ffn_up": 1.0}, False).build().outputs
    with pytest.raises(UnsupportedError, match=r"layer 0 of 'qwen35' has one state .* give each a row of its own"):
        LossGraph(config, 1, 8, ranks, {"blk.0.ffn_up": 1.0}, True).build()


# -- folders -----------------------------------------------------------------------------------------------------------


def test_folders_without_the_layer_that_predicts(tmp_path: Path) -> None:
    """As transformers saves them, whatever the configuration says; and ones that say there is none."""
    tensors = folders.weights("qwen35")
    folder = folders.write(tmp_path / "f", "qwen35", tensors)
    assert ModelConfig.from_gguf(HuggingFaceFolder(folder)).predicts
    own = {name: value for name, value in folders.to_folder("qwen35", tensors).items() if not name.startswith("mtp")}
    write_safetensors(folder / "model.safetensors", own)
    config = ModelConfig.from_gguf(HuggingFaceFolder(folder))
    assert (config.layers, config.predicts) == (3, False)
    other = folders.write(tmp_path / "g", "qwen35", tensors, mtp_num_hidden_layers=0)
    assert ModelConfig.from_gguf(HuggingFaceFolder(other)).numbers() == config.numbers()


def test_the_language_model_of_a_model_with_pictures(tmp_path: Path) -> None:
    tensors = folders.weights("qwen35")
    folder = folders.write(tmp_path / "f", "qwen35", tensors)
    text = folders.config("qwen35")
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_5", "text_config": text}))
    own = {
        name.replace("model.", "model.language_model.", 1): value
        for name, value in folders.to_folder("qwen35", tensors).items()
    }
    write_safetensors(folder / "model.safetensors", {**own, "model.visual.norm.weight": np.ones(3, "f4")})
    alone = folders.write(tmp_path / "g", "qwen35", tensors)
    found, wanted = load_interpreted(folder).logits(IDS[:9]), load_interpreted(alone).logits(IDS[:9])
    np.testing.assert_array_equal(found, wanted)


FOLDERS: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "heads": (
        {"linear_value_head_dim": 8},
        UnsupportedError,
        r"'linear_key_head_dim' and 'linear_value_head_dim' must be equally wide, but have 16 and 8",
    ),
    "kinds": (
        {"layer_types": ["linear_attention", "sliding_attention", "linear_attention"]},
        ModelFileError,
        r"'layer_types' must be 3 of linear_attention, full_attention",
    ),
    "rows": (
        {"linear_num_value_heads": 6},
        ModelFileError,
        r"what is 'ssm_a' in files must be 6 for 6 heads of values, but is \[4\]",
    ),
    "no gates": ({"attn_output_gate": False}, UnsupportedError, r"'attn_output_gate' = False"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_that_can_not_be(tmp_path: Path, name: str) -> None:
    changes, error, message = FOLDERS[name]
    folder = folders.write(tmp_path / "f", "qwen35", folders.weights("qwen35"), **changes)
    with pytest.raises(error, match=message):
        ModelConfig.from_gguf(HuggingFaceFolder(folder))
