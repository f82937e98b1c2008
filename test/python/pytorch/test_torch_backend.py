# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`torch.compile` with this backend: the same results and gradients, and one compilation for all sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rlx_mlir.pytorch import backend  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Counter:
    """Counts compilations."""

    def __init__(self) -> None:
        self.count = 0
        self._compile = backend.compile_module

    def __call__(self, *given: Any, **options: Any) -> Any:
        self.count += 1
        return self._compile(*given, **options)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    counter = Counter()
    monkeypatch.setattr(backend, "compile_module", counter)
    torch._dynamo.reset()
    yield counter
    torch._dynamo.reset()


class Layer(torch.nn.Module):  # type: ignore[misc]
    """A layer of a transformer, from ids to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
        self.up, self.down = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        self.head = torch.nn.Linear(32, 50)

    def forward(self, ids: Any) -> Any:
        h = self.table(ids)
        b, s, _ = h.shape
        q, k, v = self.qkv(self.norm(h)).view(b, s, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(attended.transpose(1, 2).reshape(b, s, 32))
        return self.head(h + self.down(torch.nn.functional.gelu(self.up(h))))


def ids(batch: int, length: int) -> Any:
    found = torch.randint(0, 50, (batch, length), generator=torch.Generator().manual_seed(batch + length))
    for dim in (0, 1):
        torch._dynamo.maybe_mark_dynamic(found, dim)
    return found


def test_inference_of_new_sizes_doesnt_compile_again(compilations: Counter) -> None:
    torch.manual_seed(0)
    model = Layer().eval()
    compiled = torch.compile(model, backend=backend.rlx)
    with torch.no_grad():
        for batch, length in ((2, 7), (3, 9), (5, 33)):
            given = ids(batch, length)
            torch.testing.assert_close(compiled(given), model(given), atol=1e-5, rtol=1e-5)
    assert compilations.count == 1
    with torch.no_grad():  # parameters that change are bound again
        model.head.weight.mul_(2.0)
        torch.testing.assert_close(compiled(given), model(given), atol=1e-5, rtol=1e-5)
    assert compilations.count == 1


def test_larger_sizes_than_planned_compile_once_more(compilations: Counter) -> None:
    compiled = torch.compile(lambda x: x * 2 + x.sum(), backend=backend.rlx, dynamic=True)
    for size in (5, 513, 1000, 700):
        x = torch.arange(float(size))
        torch.testing.assert_close(compiled(x), x * 2 + x.sum())
    assert compilations.count == 2


def test_training(compilations: Counter) -> None:
    torch.manual_seed(0)
    model = Layer()
    compiled = torch.compile(model, backend=backend.rlx, dynamic=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch, length in ((2, 7), (3, 9), (4, 5)):
        given, labels = ids(batch, length), ids(batch, length + 1)[:, 1:]
        found = []
        for run in (model, compiled):
            model.zero_grad()
            loss = torch.nn.functional.cross_entropy(run(given).flatten(0, 1), labels.flatten())
            loss.backward()
            found.append([loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, atol=2e-5, rtol=2e-5)
        optimiser.step()
    assert compilations.count == 2


def test_inputs_that_are_written_to(compilations: Counter) -> None:
    def update(x: Any, total: Any) -> Any:
        total.add_(x)
        return total * 2, x

    compiled = torch.compile(update, backend=backend.rlx)
    x, total = torch.arange(6.0), torch.ones(6)
    doubled, same = compiled(x, total)
    torch.testing.assert_close(total, torch.arange(6.0) + 1)
    torch.testing.assert_close(doubled, 2 * total)
    assert same is x


def test_what_isnt_supported_is_listed(compilations: Counter) -> None:
    compiled = torch.compile(lambda x: torch.special.i0(x), backend=backend.rlx)
    with pytest.raises(Exception, match=r"has 1 operations of PyTorch that aren't supported:\n.*i0"):
        compiled(torch.ones(3))
