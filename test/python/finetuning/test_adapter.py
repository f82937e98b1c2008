# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adapters in PEFT's layout: what is written, what is read, what it means, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from hf_decoder import HfDecoder
from interpreted import load_interpreted
from numpy_decoder import NumpyDecoder
from safetensors.numpy import load_file, save_file

from rlx_mlir.errors import InputError, ModelFileError, RlxError, SafetensorsError, UnsupportedError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import decoder
from rlx_mlir.models.adapter import Adapter, new_adapter, products_of, read_adapter, write_adapter
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.layers import ADAPTED
from rlx_mlir.models.loading import load_model

TOKENS = [5, 80, 260, 7, 7, 299, 31, 4, 150, 2]


def random_adapter(config: ModelConfig, targets: tuple[str, ...] = ADAPTED, rank: int = 4) -> Adapter:
    """One that changes a model much."""
    random = np.random.default_rng(1)
    begin = new_adapter(config, targets, rank, 2.0 * rank, 0)
    factors = {
        product: (a, (random.standard_normal(b.shape) * 0.2).astype(np.float32))
        for product, (a, b) in begin.factors.items()
    }
    return Adapter(factors, begin.scales)


class Adapted(NumpyDecoder):
    """The model of a file whose weights have an adapter's products added."""

    def __init__(self, file: GGUFFile, adapter: Adapter) -> None:
        super().__init__(file)
        self.adapter = adapter

    def weight(self, name: str) -> np.ndarray:
        found = super().weight(name)
        product = name.removesuffix(".weight")
        if product not in self.adapter.factors:
            return found
        a, b = (factor.astype(np.float64) for factor in self.adapter.factors[product])
        return found + self.adapter.scales[product] * b @ a


@pytest.fixture(scope="module")
def config(tiny_llama: Path) -> ModelConfig:
    return ModelConfig.from_gguf(GGUFFile(tiny_llama))


@pytest.fixture
def written(tmp_path: Path, config: ModelConfig) -> Path:
    write_adapter(tmp_path / "adapter", config, random_adapter(config), alpha=8.0, base="org/name")
    return tmp_path / "adapter"


def test_a_new_adapter_changes_nothing(config: ModelConfig) -> None:
    adapter = new_adapter(config, ("attn_q", "ffn_down"), 4, 8.0, 3)
    assert adapter.ranks == {f"blk.{i}.{name}": 4 for i in range(2) for name in ("attn_q", "ffn_down")}
    assert all(not adapter.change(product).any() for product in adapter.factors)
    a, b = adapter.factors["blk.1.ffn_down"]
    assert (a.shape, b.shape) == ((4, 96), (64, 4))
    assert 0.9 * 96**-0.5 < np.abs(a).max() <= 96**-0.5
    assert set(adapter.scales.values()) == {2.0}


@pytest.mark.parametrize(
    ("targets", "rank", "alpha", "text"),
    [
        (("attn_q",), 0, 8.0, "'rank'"),
        (("attn_q",), 4, 0.0, "'alpha' is a positive number, but got 0.0"),
        (("attn_q",), 4, float("nan"), "'alpha' is a positive number, but got nan"),
        (("q_proj",), 4, 8.0, "'targets'"),
        ((), 4, 8.0, "an adapter has a target at least"),
    ],
)
def test_numbers_and_targets_are_checked(
    config: ModelConfig, targets: tuple[str, ...], rank: int, alpha: float, text: str
) -> None:
    with pytest.raises(InputError, match=text):
        new_adapter(config, targets, rank, alpha, 0)


def test_targets_are_words() -> None:
    assert products_of("v_proj, q") == ("attn_q", "attn_v")
    assert products_of("all") == ADAPTED
    with pytest.raises(InputError, match=r"targets are q, k, v, o, gate, up, down or all, .* got 'dwn' \(did you mean"):
        products_of("q,dwn")


def test_files_are_those_of_peft(written: Path) -> None:
    described = json.loads((written / "adapter_config.json").read_text())
    wanted = {"peft_type": "LORA", "r": 4, "lora_alpha": 8.0, "base_model_name_or_path": "org/name", "bias": "none"}
    assert wanted.items() <= described.items()
    assert described["target_modules"] == [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]
    tensors = load_file(written / "adapter_model.safetensors")
    assert len(tensors) == 2 * 7 * 2
    prefix = "base_model.model.model.layers.1"
    assert tensors[f"{prefix}.self_attn.k_proj.lora_A.weight"].shape == (4, 64)
    assert tensors[f"{prefix}.mlp.down_proj.lora_B.weight"].shape == (64, 4)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
def test_what_is_written_is_read_back(tmp_path: Path, architecture: str) -> None:
    config = ModelConfig.from_gguf(GGUFFile(tiny_models.write(tmp_path / "tiny.gguf", architecture=architecture)))
    adapter = random_adapter(config)
    write_adapter(tmp_path / "adapter", config, adapter, alpha=8.0)
    found = read_adapter(tmp_path / "adapter", config)
    assert found.scales == adapter.scales
    assert found.ranks == adapter.ranks
    for product, factors in adapter.factors.items():
        for own, other in zip(factors, found.factors[product], strict=True):
            assert np.array_equal(own, other)


@pytest.mark.wide
def test_logits_are_those_of_transformers_and_peft(tiny_llama: Path, written: Path) -> None:
    """By their formulas and names, from the files alone."""
    wanted = HfDecoder(GGUFFile(tiny_llama), written)
    logits = wanted.logits(TOKENS)
    assert wanted.read == set(wanted.factors)
    found = load_model(tiny_llama, lora=written, activations="exact").logits(TOKENS)
    np.testing.assert_allclose(found, logits, atol=1e-4 * np.abs(logits).max())
    plain = load_model(tiny_llama, activations="exact").logits(TOKENS)
    assert np.abs(plain - logits).max() > 0.5


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # theirs
def test_peft_reads_what_is_written(tiny_llama: Path, written: Path, config: ModelConfig) -> None:
    """Where it is installed."""
    torch, peft, transformers = (pytest.importorskip(name) for name in ("torch", "peft", "transformers"))
    wanted = HfDecoder(GGUFFile(tiny_llama), written)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab,
            hidden_size=config.hidden,
            intermediate_size=config.ffn,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            rms_norm_eps=config.eps,
            rope_theta=config.rope_base,
            tie_word_embeddings=True,
        )
    )
    weights = {f"model.{name}.weight": torch.from_numpy(value).float() for name, value in wanted.weights.items()}
    model.load_state_dict(weights, strict=False)
    tuned = peft.PeftModel.from_pretrained(model, str(written)).eval()
    with torch.no_grad():
        logits = tuned(torch.tensor([TOKENS])).logits[0].numpy()
    found = load_model(tiny_llama, lora=written, activations="exact").logits(TOKENS)
    np.testing.assert_allclose(found, logits, atol=1e-4 * np.abs(logits).max())


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "gemma3"])
def test_models_of_each_family_have_adapters(tmp_path: Path, architecture: str) -> None:
    path = tiny_models.write(tmp_path / "tiny.gguf", architecture=architecture)
    file = GGUFFile(path)
    adapter = random_adapter(ModelConfig.from_gguf(file), ("attn_q", "attn_k", "attn_output", "ffn_gate"))
    wanted = Adapted(file, adapter).logits(TOKENS)
    model = load_interpreted(path, adapter=adapter)
    np.testing.assert_allclose(model.logits(TOKENS), wanted, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.wide
def test_generation_with_an_adapter_is_greedy_by_its_logits(tiny_llama: Path, written: Path) -> None:
    """Prompts and single tokens go through both modules."""
    model = load_model(tiny_llama, lora=written, activations="exact")
    generation = model.generate(TOKENS, greedy=True, max_tokens=5, ignore_eos=True)
    generation.read()
    assert len(generation.ids) == 5
    logits = model.logits([*TOKENS, *generation.ids[:-1]])
    assert generation.ids == logits[len(TOKENS) - 1 :].argmax(axis=1).tolist()
    assert "lora_a" in model.emit("decode", "mir")


def changed(folder: Path, **entries: Any) -> Path:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))
    return folder


def test_scales_follow_the_configuration(written: Path, config: ModelConfig) -> None:
    found = read_adapter(changed(written, lora_alpha=6, alpha_pattern={"layers.1.self_attn.v_proj": 2}), config)
    assert found.scales["blk.0.attn_v"] == found.scales["blk.1.attn_q"] == 1.5
    assert found.scales["blk.1.attn_v"] == 0.5
    assert read_adapter(changed(written, use_rslora=True), config).scales["blk.0.attn_v"] == 3.0


REFUSED: dict[str, tuple[dict[str, Any], type[RlxError], str]] = {
    "type": ({"peft_type": "IA3"}, UnsupportedError, r"'peft_type' must be LORA, but is 'IA3'"),
    "dora": ({"use_dora": True}, UnsupportedError, r"not implemented: 'use_dora' is True"),
    "bias": ({"bias": "all"}, UnsupportedError, r"'bias' is 'all'"),
    "saved": ({"modules_to_save": ["lm_head"]}, UnsupportedError, r"'modules_to_save' is \['lm_head'\]"),
    "begin": ({"init_lora_weights": "pissa_niter_4"}, UnsupportedError, r"changes the model's own weights"),
    "alpha": ({"lora_alpha": "8"}, ModelFileError, r"'lora_alpha' must be a number, but is '8'"),
    "pattern": ({"alpha_pattern": {".*q.*": 1}}, UnsupportedError, r"'alpha_pattern' has '\.\*q\.\*'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_configurations_that_are_refused(written: Path, config: ModelConfig, case: str) -> None:
    entries, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text) as caught:
        read_adapter(changed(written, **entries), config)
    assert "adapter_config.json" in str(caught.value)


NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({f"{NAME}B.weight": None}, r"must have lora_A and lora_B, but has lora_A alone"),
        ({f"{NAME}A.weight": np.zeros((4, 65), np.float32)}, r"needs lora_A \[rank, 64\] and lora_B \[64, rank\], but"),
        ({f"{NAME}A.weight": np.zeros((3, 64), np.float32)}, r"but they are \[3, 64\] and \[64, 4\]"),
        ({f"{NAME}A.weight": np.full((4, 64), np.nan, np.float32)}, r"must have finite elements"),
        ({"base_model.model.lm_head.lora_A.weight": np.zeros((4, 64), np.float32)}, r"belongs to no product"),
        ({NAME.replace("0", "2") + "A.weight": np.zeros((4, 64), np.float32)}, r"layers 0 to 1 have self_attn\.q_proj"),
        (None, r"the file has no tensors"),
    ],
)
def test_tensors_that_do_not_fit(written: Path, config: ModelConfig, changes: Any, text: str) -> None:
    path = written / "adapter_model.safetensors"
    tensors = {} if changes is None else {**load_file(path), **changes}
    save_file({name: value for name, value in tensors.items() if value is not None}, path)
    with pytest.raises(ModelFileError, match=text):
        read_adapter(written, config)


def test_files_that_are_not_there(tmp_path: Path, written: Path, config: ModelConfig, tiny_llama: Path) -> None:
    with pytest.raises(ModelFileError, match="the file is missing"):
        read_adapter(tmp_path, config)
    (written / "adapter_model.safetensors").write_bytes(b"nothing")
    with pytest.raises(SafetensorsError):
        load_model(tiny_llama, lora=written)


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_what_attention_reads_stays_exact_with_an_adapter(tmp_path: Path, architecture: str) -> None:
    """The adapter's term between a projection and attention is no other layer's."""
    config = ModelConfig.from_gguf(GGUFFile(tiny_models.write(tmp_path / "tiny.gguf", architecture=architecture)))
    counts = []
    for ranks in (None, new_adapter(config, ADAPTED, 4, 8.0, 0).ranks):
        module = decoder.build(config, "decode", ranks=ranks).lower().transform("mir-quantize-activations")
        counts.append(module.to_text().count("mir.block_dot"))
    assert counts[0] == counts[1] > 4 * config.layers
