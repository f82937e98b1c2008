# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of transformers with seeded random weights, of any batch and length, compute what eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import rlx_mlir as rlx  # noqa: E402
from rlx_mlir.errors import UnsupportedError  # noqa: E402
from rlx_mlir.reports.fusion import count_operations  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

TEXT = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
IMAGE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama(attention: str) -> Any:
    own = transformers.LlamaConfig(
        **TEXT, num_key_value_heads=2, max_position_embeddings=128, attn_implementation=attention, use_cache=False
    )
    return transformers.LlamaForCausalLM(own)


def qwen2(attention: str) -> Any:
    own = transformers.Qwen2Config(
        **TEXT, num_key_value_heads=2, max_position_embeddings=128, attn_implementation=attention, use_cache=False
    )
    return transformers.Qwen2ForCausalLM(own)


def mixtral(attention: str) -> Any:
    own = transformers.MixtralConfig(
        **TEXT,
        num_key_value_heads=2,
        num_local_experts=4,
        max_position_embeddings=128,
        attn_implementation=attention,
        use_cache=False,
    )
    return transformers.MixtralForCausalLM(own)


def bert(attention: str) -> Any:
    return transformers.BertModel(
        transformers.BertConfig(**TEXT, max_position_embeddings=128, attn_implementation=attention)
    )


def vit(attention: str) -> Any:
    return transformers.ViTModel(
        transformers.ViTConfig(**IMAGE, image_size=32, patch_size=8, attn_implementation=attention)
    )


def resnet(attention: str) -> Any:
    own = transformers.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], layer_type="basic")
    return transformers.ResNetModel(own)


def mamba(attention: str) -> Any:
    own = transformers.MambaConfig(vocab_size=128, hidden_size=32, num_hidden_layers=2, state_size=4, use_cache=False)
    return transformers.MambaForCausalLM(own)


MODELS: dict[str, tuple[Callable[[str], Any], str]] = {
    "llama-sdpa": (llama, "ids"),
    "llama-eager": (llama, "ids"),
    "qwen2-sdpa": (qwen2, "ids"),
    "qwen2-eager": (qwen2, "ids"),
    "bert-sdpa": (bert, "masked"),
    "bert-eager": (bert, "masked"),
    "vit-sdpa": (vit, "image"),
    "resnet-none": (resnet, "image"),
    "mamba-none": (mamba, "ids"),
}


def made(name: str) -> Any:
    build, _ = MODELS[name]
    torch.manual_seed(0)
    return build(name.partition("-")[2]).eval()


def arguments(kind: str, batch: int, length: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(batch * 100 + length)
    if kind == "image":
        return {"pixel_values": torch.randn(batch, 3, 32, 32, generator=generator)}
    given = {"input_ids": torch.randint(0, 128, (batch, length), generator=generator)}
    if kind == "masked":
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[0, length - length // 3 :] = 0
        given["attention_mask"] = mask
    return given


def shapes(kind: str) -> dict[str, Any]:
    batch, length = torch.export.Dim("b"), torch.export.Dim("s", max=128)
    if kind == "image":
        return {"pixel_values": {0: batch}}
    own = {0: batch, 1: length}
    return {"input_ids": own, "attention_mask": own} if kind == "masked" else {"input_ids": own}


def tensors(result: Any) -> list[Any]:
    listed = result.values() if hasattr(result, "values") else result
    return [each for each in listed if isinstance(each, torch.Tensor)]


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", MODELS)
def test_models_compute_what_eager_does(name: str) -> None:
    model, kind = made(name), MODELS[name][1]
    program = rlx.from_torch(model, (), arguments(kind, 2, 7), dynamic_shapes=shapes(kind))
    run = program.compile(threads=1)
    for batch, length in ((2, 7), (1, 1), (3, 5), (2, 33)):
        given = arguments(kind, batch, length)
        with torch.no_grad():
            wanted = tensors(model(**given))
        found = tensors(run(**given))
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-5, rtol=1e-5)
    for own, tensor in program.tensors.items():
        assert program.params[own].ctypes.data == tensor.data_ptr()


def test_mixtures_of_experts_compute_what_eager_does() -> None:
    """Of any sizes: rows are put in the order of their experts."""
    torch.manual_seed(0)
    model = mixtral("sdpa").eval()
    run = rlx.from_torch(model, (), arguments("ids", 2, 7), dynamic_shapes=shapes("ids")).compile(threads=1)
    for batch, length in ((2, 7), (1, 1), (3, 5)):
        given = arguments("ids", batch, length)
        with torch.no_grad():
            (wanted,) = (own for own in tensors(model(**given)) if own.ndim == 3)
        np.testing.assert_allclose(tensors(run(**given))[0].numpy(), wanted.numpy(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("ends", [[2, 2, 5, 6], [0, 0, 0, 0], [6, 6, 6, 6], [1, 2, 3, 4]])
def test_rows_behind_the_last_expert_are_zero(ends: list[int]) -> None:
    class Grouped(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, weight: Any, ends: Any) -> Any:
            return torch.ops.transformers.grouped_mm_fallback(x, weight, ends)

    pytest.importorskip("transformers.integrations.moe")
    given = (torch.randn(6, 5), torch.randn(4, 5, 3), torch.tensor(ends))
    found = rlx.from_torch(Grouped(), given).compile(threads=1)(*given)
    np.testing.assert_allclose(found.numpy(), Grouped()(*given).numpy(), atol=1e-5)


@pytest.mark.parametrize("name", ["llama-sdpa", "llama-eager"])
def test_a_llama_is_made_of_blocks(name: str) -> None:
    program = rlx.from_torch(made(name), (), arguments("ids", 2, 7), dynamic_shapes=shapes("ids"))
    raised = program.module.transform("mir-raise-blocks")
    counts = count_operations(raised.ir_module)
    blocks = {"attention": 2, "rms_norm": 5, "rope": 4, "silu": 2, "matmul": 15, "gather": 1}
    assert {op: counts[f"mir.{op}"] for op in blocks} == blocks
    assert not {"mir.softmax", "mir.transpose", "mir.concat", "mir.reduce", "mir.where", "mir.compare"} & counts.keys()
    assert str(raised).count("kv_heads 2") == 2
    assert str(raised).count("masked causal") == 2


@pytest.mark.parametrize("name", ["llama-sdpa", "llama-eager", "qwen2-sdpa"])
def test_every_kernel_of_a_llama_has_a_template(name: str) -> None:
    program = rlx.from_torch(made(name), (), arguments("ids", 2, 7), dynamic_shapes=shapes("ids"))
    templates = program.compile(threads=1).executable.artifact.templates
    assert not {kernel: why for kernel, why in templates.items() if why.startswith("generic")}


def test_training_isnt_exported() -> None:
    model = transformers.BertModel(transformers.BertConfig(**TEXT, attn_implementation="eager")).train()
    with pytest.raises(UnsupportedError, match="operations of PyTorch that aren't supported"):
        rlx.from_torch(model, (), arguments("masked", 2, 7))
