# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of PyTorch, one after the other, as modules: the interpreter computes what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_import import Function, check, drawn, meaning  # noqa: E402

from rlx_mlir.errors import InputError, UnsupportedError  # noqa: E402
from rlx_mlir.pytorch import from_torch  # noqa: E402
from rlx_mlir.pytorch.tensors import array_of, tensor_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
F = torch.nn.functional


ELEMENTWISE: dict[str, Callable[[Any], Any]] = {
    "abs": torch.abs,
    "atan": torch.atan,
    "ceil": torch.ceil,
    "clamp": lambda x: x.clamp(-0.5, 0.7) + x.clamp(min=0.1),
    "elu": F.elu,
    "erf": torch.erf,
    "exp2": lambda x: torch.exp2(x) + torch.expm1(x),
    "floor": torch.floor,
    "gelu": lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"),
    "hardswish": lambda x: F.hardswish(x) + F.hardsigmoid(x) + F.relu6(x),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "logs": lambda x: torch.log(x.abs() + 0.1) + torch.log2(x.abs() + 1) + torch.log1p(x.abs()),
    "mish": F.mish,
    "neg": lambda x: -x,
    "pow": lambda x: x**2 + x**3 + x.abs() ** 0.5 + (x.abs() + 1) ** -0.5 + 1 / (x.abs() + 1) + x.abs() ** 1.7,
    "relu": torch.relu,
    "round": torch.round,
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 0.5) + torch.sqrt(x.abs()),
    "sigmoid": lambda x: torch.sigmoid(x) * torch.tanh(x) * F.silu(x),
    "sign": torch.sign,
    "softplus": lambda x: F.softplus(x) + F.softplus(x, beta=2.0),
    "trig": lambda x: torch.sin(x) + torch.cos(x) + torch.tan(x * 0.5),
}


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions_of_elements(name: str) -> None:
    check(ELEMENTWISE[name], drawn(5, 7), others=((drawn(1, 7),), (drawn(17, 7),)))


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "sums": lambda x, y: torch.add(x, y, alpha=2) - torch.sub(x, y, alpha=0.5) + (3 - x) + 2 * y,
    "quotients": lambda x, y: x / (y.abs() + 1) + x % 0.7 + torch.div(x, 0.3, rounding_mode="trunc") + x // 0.4,
    "extremes": lambda x, y: torch.maximum(x, y) - torch.minimum(x, y) + torch.max(x, y),
    "comparisons": lambda x, y: ((x < y) | (x >= 1.0)) & ~(x == y) ^ (y != 0.5),
    "chosen": lambda x, y: torch.where(x > y, x, 2.0) + x.masked_fill(y > 0, -3.0),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3) + torch.addcmul(x, x, y, value=2.0),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two(name: str) -> None:
    check(PAIRS[name], drawn(4, 6), drawn(4, 6, low=-1.0), others=((drawn(1, 6), drawn(1, 6, low=-1.0)),))


def test_logarithms_and_powers_near_nothing() -> None:
    small = torch.tensor([0.0, 1e-9, -1e-9, 1e-4, -1e-4, 0.5, 3.0, float("inf")])
    program = from_torch(Function(lambda x: (torch.log1p(x), F.softplus(torch.log(x.abs() + 1e-7)))), (small,))
    wanted = torch.log1p(small), F.softplus(torch.log(small.abs() + 1e-7))
    for found, own in zip(meaning(program, small), wanted, strict=True):
        np.testing.assert_allclose(found, own.numpy(), rtol=2e-6)


def test_integers() -> None:
    def compute(x: Any, y: Any) -> Any:
        return x // 3 + x % 4 - y * 2, x / 2, (x > y).sum(), x.to(torch.float32) * 0.5, x.float().to(torch.int32)

    check(compute, drawn(5, dtype=torch.int64) - 2, drawn(5, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_element_types(dtype: Any) -> None:
    program = check(lambda x, y: x * y + 1.5, drawn(4, 3, dtype=dtype), drawn(4, 3, dtype=dtype))
    assert array_of(torch.ones(2, dtype=torch.bfloat16), "x").dtype == ml_dtypes.bfloat16
    assert program.module.inputs[0].dtype == array_of(drawn(1, dtype=dtype), "x").dtype


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sums": lambda x: (x.sum(), x.sum(1), x.mean((1, 2), keepdim=True), x.prod(2)),
    "extremes": lambda x: (x.amax(1), x.amin((1, 2)), x.max(2), x.min(1, keepdim=True)),
    "places": lambda x: (x.argmax(-1), x.argmin(1, keepdim=True)),
    "variances": lambda x: (x.var(-1), x.var(1, unbiased=False), *torch.var_mean(x, (1, 2), correction=0)),
    "truths": lambda x: ((x > 0).any(1), (x > -9).all(), (x > 0).all(-1)),
    "softmax": lambda x: (torch.softmax(x, 1), torch.log_softmax(x, -1)),
    "running": lambda x: (x.cumsum(1), (x > 0).cumsum(2)),
    "norms": lambda x: (torch.linalg.vector_norm(x, dim=-1), x.abs().sum(1)),
    "largest": lambda x: torch.topk(x, 3),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    check(
        lambda x: tuple(torch.utils._pytree.tree_leaves(REDUCTIONS[name](x))),
        drawn(4, 5, 6),
        others=((drawn(1, 5, 6),),),
    )


SHAPES: dict[str, Callable[[Any], Any]] = {
    "views": lambda x: (x.reshape(-1, 3), x.flatten(1), x[:, None].squeeze(1), x.unflatten(1, (2, 3)), x.T),
    "slices": lambda x: (x[1:], x[:, 2:5], x[:, ::2], x[:, -2:], x[:, 3], x[0], x[..., 1:-1], x[:-1]),
    "orders": lambda x: (x.permute(1, 0), x.transpose(0, 1), x.flip(1), x.roll(2, 1)),
    "joins": lambda x: (torch.cat([x, x + 1], 1), torch.stack([x, x], 1), torch.cat([x, x[:2]], 0), x.repeat(2, 3)),
    "parts": lambda x: (*x.split(2, 1), *x.chunk(3, 1), *x.unbind(1)),
    "padding": lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 1, 2, 0), value=0.5), F.pad(x, (-1, 1))),
    "expansions": lambda x: (x[:, None].expand(-1, 4, -1), x[None], torch.broadcast_to(x, (2, *x.shape))),
    "triangles": lambda x: (x.tril(), x.triu(1)),
    "created": lambda x: (torch.zeros_like(x) + 1, torch.full_like(x, 3.0), torch.arange(x.shape[0]), x.new_ones(2)),
    "sizes": lambda x: (x * x.shape[0], x + torch.arange(x.shape[0], dtype=torch.float32)[:, None] / x.shape[0]),
    "updates": lambda x: torch.slice_scatter(x, x[:, 1:3] * 2, 1, 1, 3).select_scatter(x[:, 0], 1, 4),
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    def run(x: Any) -> Any:
        return tuple(torch.utils._pytree.tree_leaves(SHAPES[name](x)))

    check(run, drawn(6, 6), others=((drawn(9, 6),),), is_long=name == "slices")


def test_lookups() -> None:
    table = drawn(5, 4)

    def compute(x: Any, i: Any) -> Any:
        rows = x.index_select(1, torch.tensor([2, -1 + 1, 3]))
        return F.embedding(i, x[:5] * 0 + table), x[i], x[:, torch.tensor([0, 2])], rows, x.gather(1, i[:, None] % 4)

    check(compute, drawn(6, 4), drawn(6, dtype=torch.int64), dynamic=False)


def test_layers() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(6, 8),
        torch.nn.LayerNorm(8),
        torch.nn.GELU(),
        torch.nn.Linear(8, 8, bias=False),
        torch.nn.RMSNorm(8),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(8, 3),
    )
    program = check(layers, drawn(4, 6), others=((drawn(1, 6),), (drawn(33, 6),)))
    found = [program.params["0.weight"].ctypes.data, program.params["6.bias"].ctypes.data]
    assert found == [layers[0].weight.data_ptr(), layers[6].bias.data_ptr()]


def test_images() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(3, 2, 1),
        torch.nn.Conv2d(8, 8, 3, padding="same", groups=4),
        torch.nn.GroupNorm(2, 8),
        torch.nn.AvgPool2d(2),
        torch.nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1),
        torch.nn.BatchNorm2d(4, affine=False),
        torch.nn.Upsample(scale_factor=2),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
    )
    layers[1].running_mean.normal_()
    layers[1].running_var.uniform_(0.5, 2.0)
    check(layers, drawn(2, 3, 32, 32), others=((drawn(1, 3, 32, 32),),))


def test_sequences_of_channels() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv1d(4, 4, 3, padding=2, groups=4), torch.nn.Conv1d(4, 6, 1), torch.nn.MaxPool1d(2)
    )
    check(layers, drawn(3, 4, 9))


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float", "wide"])
@pytest.mark.parametrize("shared", [False, True])
def test_attention(mask: str, shared: bool) -> None:
    def attend(q: Any, k: Any, v: Any, m: Any) -> Any:
        given = {
            "none": None,
            "causal": None,
            "bool": m > 0,
            "float": m,
            "wide": m[:, None, :, :].expand(-1, 4, -1, -1),
        }
        own = given[mask] if mask in ("none", "causal", "wide") else given[mask][:, None]
        return F.scaled_dot_product_attention(q, k, v, own, is_causal=mask == "causal", enable_gqa=shared)

    heads = 2 if shared else 4
    check(attend, drawn(2, 4, 5, 8), drawn(2, heads, 5, 8), drawn(2, heads, 5, 8), drawn(2, 5, 5), dynamic=False)


def test_a_causal_mask_begins_at_the_first_key() -> None:
    def attend(q: Any, k: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, k, is_causal=True)

    check(attend, drawn(2, 2, 3, 4), drawn(2, 2, 5, 4), dynamic=False)


def test_all_that_isnt_supported_is_listed() -> None:
    def compute(x: Any) -> Any:
        return torch.linalg.matrix_exp(x) + torch.linalg.matrix_exp(x + 1) + torch.special.i0(x)

    with pytest.raises(UnsupportedError) as caught:
        from_torch(Function(compute), (drawn(4, 4),))
    text = str(caught.value)
    assert "has 3 operations of PyTorch that aren't supported" in text
    assert "2  aten.linalg_matrix_exp.default, first at " in text
    assert "torch_import.py:" in text
    assert "1  aten.special_i0.default" in text or "1  aten.i0.default" in text


def test_arguments() -> None:
    with pytest.raises(InputError, match=r"'model' is a torch.nn.Module or an ExportedProgram, but got 3"):
        from_torch(3)
    exported = torch.export.export(Function(lambda x: x + 1), (drawn(2, 2),))
    with pytest.raises(InputError, match="has its example inputs already"):
        from_torch(exported, (drawn(2, 2),))
    np.testing.assert_allclose(meaning(from_torch(exported), drawn(2, 2))[0], drawn(2, 2).numpy() + 1)
    with pytest.raises(InputError, match="'w' is on device meta"):
        array_of(torch.empty(2, device="meta"), "'w'")
    assert tensor_of(np.ones(2, ml_dtypes.bfloat16)).dtype == torch.bfloat16


class Counting(torch.nn.Module):  # type: ignore[misc]
    """Writes to a buffer at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.total.add_(x.sum(0))
        return x * 2 + self.total


def test_buffers_that_are_written_to_are_tied_outputs() -> None:
    model = Counting()
    program = from_torch(model, (drawn(4, 3),), dynamic_shapes=({0: torch.export.Dim("n")},))
    assert program.mutated == {"new.total": "total"}
    assert [v.name for v in program.module.params] == ["total"]
    run, reference = program.compile(threads=1), Counting()
    for rows in (4, 1, 7):
        x = drawn(rows, 3)
        np.testing.assert_allclose(run(x).numpy(), reference(x).numpy(), rtol=1e-6)
        np.testing.assert_allclose(model.total.numpy(), reference.total.numpy(), rtol=1e-6)


def test_symbols_have_the_names_of_dimensions() -> None:
    program = from_torch(
        Function(lambda x: x[:, 1:] * 2),
        (drawn(4, 5),),
        dynamic_shapes=(({0: torch.export.Dim("rows"), 1: torch.export.Dim("s", min=3, max=99)},),),
    )
    assert program.module.inputs[0].shape == ("rows", "s")
    assert program.maxima == {"s": 99}
    run = program.compile(threads=1, maxima={"rows": 16})
    np.testing.assert_allclose(run(drawn(3, 9)).numpy(), drawn(3, 9).numpy()[:, 1:] * 2)
    with pytest.raises(InputError, match="'rows' was compiled for at most 16"):
        run(drawn(17, 9))
    with pytest.raises(InputError, match="the model was exported to be called with"):
        run(drawn(3, 9), drawn(3, 9))
