# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's core operators: which there are, and that those which few models have compute what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_import import Function, check, drawn  # noqa: E402

from rlx_mlir.errors import UnsupportedError  # noqa: E402
from rlx_mlir.pytorch import from_torch  # noqa: E402
from rlx_mlir.pytorch.graph import FOLDERS, HANDLERS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
F, nn = torch.nn.functional, torch.nn
INF, NAN = float("inf"), float("nan")

#: Core operators without a counterpart: results whose sizes depend on values, random numbers, and what gives a number.
MISSING = {
    "aten._local_scalar_dense.default",
    "aten.native_dropout.default",
    "aten.nonzero.default",
    "aten.rand.default",
    "aten.randn.default",
    "aten.randperm.default",
}


def core_operators() -> set[str]:
    """Those that have tensors as results, and write to none."""
    found = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in getattr(packet, "overloads", list)():
            operator = getattr(packet, overload)
            if torch.Tag.core in operator.tags and not name.startswith("sym_") and overload != "out":
                found.add(str(operator))
    return found


def test_core_operators_are_known() -> None:
    assert core_operators() - HANDLERS.keys() - FOLDERS.keys() == MISSING
    page = Path(__file__).parents[3].joinpath("docs/torch.md").read_text()
    listed = {name.split(".")[1] for name in MISSING}
    assert not [name for name in listed if f"`{name}`" not in page]


def index(*values: int) -> Any:
    return torch.tensor(values)


def each(model: Any, *given: Any) -> None:
    """As the model, whatever it gives, which is flattened."""
    own = model if isinstance(model, nn.Module) else Function(model)
    check(Function(lambda *x: tuple(torch.utils._pytree.tree_leaves(own(*x)))), *given, dynamic=False)


X, Y = drawn(5, 4), drawn(5, 4, low=-1.0)
IMAGES, VOLUMES = drawn(2, 3, 7, 8), drawn(2, 3, 7, 6, 5)

LOOKUPS: dict[str, tuple[Any, ...]] = {
    "of fewer": (lambda x, i: x.gather(1, i), X, torch.randint(0, 4, (3, 6))),
    "apart": (lambda x, i, j: x[i, :, j], drawn(5, 3, 4), index(0, -1), index(1, 2)),
    "behind": (lambda x, i, j: x[:, i, j], drawn(2, 5, 3, 4), index(0, -1)[None], index(1, 2)[:, None]),
    "put": (lambda x, i, v: x.index_put((i,), v), X, index(1, -2), drawn(2, 4)),
    "put twice": (lambda x, i, v: x.index_put((i,), v), X, index(1, 3, 1), drawn(3, 4)),
    "put behind": (
        lambda x, i, v: torch.ops.aten.index_put(x, [None, i], v),
        drawn(3, 5, 4),
        index(1, 3),
        drawn(3, 2, 4),
    ),
    "added": (lambda x, i, v: x.index_put((i, i), v, accumulate=True), X, index(1, 3, 1), drawn(3)),
    "masked": (lambda x: (x.index_put((x > 0,), torch.tensor(2.0)), x.index_fill(0, index(1), 0.5)), X),
    "scattered": (lambda x, i, v: x.scatter(0, i, v), X, torch.tensor([[0, 1], [0, 1], [2, 1]]), drawn(3, 2)),
    "scattered numbers": (lambda x, i: x.scatter(1, i, 3.0), X, torch.tensor([[0, 3], [1, 1]])),
    "combined": (
        lambda x, i, v: [x.scatter_reduce(0, i, v, kind) for kind in ("amax", "amin", "prod", "sum")],
        X,
        torch.tensor([[0, 1, 1, 2], [0, 1, 1, 2]]),
        drawn(2, 4),
    ),
    "scatter_add": (lambda x, i, v: x.scatter_add(1, i, v), X, torch.tensor([[0, 1, 1], [0, 3, 2]]), drawn(2, 3)),
    "copied": (lambda x, i, v: x.index_copy(1, i, v), X, index(3, 0), drawn(5, 2)),
    "diagonals": (lambda x: (x.diagonal(1), x.diagonal(-2, 1, 2), x.diagonal(0, 2, 0)), drawn(4, 5, 3)),
    "windows": (lambda x: x.unfold(1, 3, 2), drawn(4, 8, 3)),
    "bags": (nn.EmbeddingBag(10, 4, mode="sum"), index(1, 2, 4, 5, 4, 3), index(0, 2, 2, 5)),
    "means of bags": (nn.EmbeddingBag(10, 4), torch.tensor([[1, 2], [9, 9]])),
    "col2im": (nn.Fold((6, 7), (3, 2), padding=(1, 0), stride=(2, 1)), drawn(2, 18, 18)),
}


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", LOOKUPS)
def test_lookups(name: str) -> None:
    each(*LOOKUPS[name])


UNORDERED = torch.tensor([[1.0, -0.0, 0.0, NAN, INF, 2, 2, -5], [3, 3, 1, -INF, 0, 9, 9, 1]])
ORDERS: dict[str, Callable[[Any], Any]] = {
    "f32": lambda x: (torch.sort(x), torch.sort(x, 0, descending=True), torch.argsort(x, stable=True)),
    "f64": lambda x: (torch.sort(x.double(), stable=True, descending=True), torch.sort(x.double(), stable=True)),
    "i64": lambda x: torch.sort((x[1:, 4:] * 1e10).long(), stable=True),
    "i32": lambda x: torch.sort((x[1:, 4:] * 3).int(), stable=True, descending=True),
    "largest": lambda x: (torch.topk(x[1], 3), torch.topk(x, 2, 0, largest=False)),
    "middle": lambda x: (x.median(1), x.nanmedian(0).values, torch.kthvalue(x, 2, 1)),
    "one": lambda x: (torch.sort(x[:, :1]), torch.sort(x[0, 0])),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders(name: str) -> None:
    each(ORDERS[name], UNORDERED)


WINDOWS: dict[str, tuple[Any, Any]] = {
    "places": (nn.MaxPool2d(3, 2, 1, return_indices=True), IMAGES),
    "with gaps": (nn.MaxPool2d(3, 1, 0, dilation=2), IMAGES),
    "that end outside": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), IMAGES),
    "of volumes": (nn.MaxPool3d(3, 2, 1, ceil_mode=True), VOLUMES),
    "means of volumes": (nn.AvgPool3d(2, 2, 1), VOLUMES),
    "means that end outside": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), IMAGES),
    "means without padding": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGES),
    "means by a number": (nn.AvgPool2d(3, 2, divisor_override=5), IMAGES),
    "of sequences": (nn.AvgPool1d(3, 2, 1), IMAGES[:, :, 0]),
    "as many as wanted": (nn.AdaptiveAvgPool2d((3, 5)), IMAGES),
    "as many of volumes": (nn.AdaptiveAvgPool3d((2, 3, 5)), VOLUMES),
    "the largest of as many": (nn.AdaptiveMaxPool2d((None, 3)), IMAGES),
    "kernels of volumes": (nn.Conv3d(3, 6, (3, 1, 2), (2, 1, 1), (1, 0, 1), (2, 1, 1), groups=3), VOLUMES),
    "more after": (nn.Conv2d(3, 4, (4, 3), padding="same"), IMAGES),
    "without a batch": (nn.Conv2d(3, 4, 3), IMAGES[0]),
    "of each image": (nn.InstanceNorm2d(3, affine=True), IMAGES),
    "of groups": (nn.GroupNorm(3, 3, affine=False), IMAGES),
}


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str) -> None:
    torch.manual_seed(0)
    each(*WINDOWS[name])


SIZES: dict[str, Any] = {
    "linear": nn.Upsample(size=5, mode="linear"),
    "bilinear": nn.Upsample(scale_factor=(1.5, 0.7), mode="bilinear"),
    "bicubic": nn.Upsample(size=(9, 4), mode="bicubic", align_corners=True),
    "trilinear": nn.Upsample(scale_factor=2, mode="trilinear", align_corners=True),
    "nearest": nn.Upsample(size=(5, 9), mode="nearest"),
    "nearest-exact": nn.Upsample(scale_factor=1.7, mode="nearest-exact"),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str) -> None:
    each(SIZES[name], {"linear": IMAGES[:, :, 0], "trilinear": VOLUMES}.get(name, IMAGES))


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_images_of_sizes_that_calls_decide(mode: str) -> None:
    """One module for all sizes of images: scaled, and padded with their own pixels."""
    height, width = torch.export.Dim("height", min=4, max=64), torch.export.Dim("width", min=4, max=64)

    class Scaled(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return F.pad(F.interpolate(x, scale_factor=1.5, mode=mode), (2, 1, 1, 2), mode="reflect")

    program = from_torch(Scaled(), (IMAGES,), dynamic_shapes=({2: height, 3: width},))
    run = program.compile(threads=1, maxima={"height": 16, "width": 16})
    for size in ((7, 8), (5, 4), (16, 15)):
        x = drawn(2, 3, *size)
        torch.testing.assert_close(run(x), Scaled()(x), atol=1e-5, rtol=1e-5)


def test_images_at_places() -> None:
    grid = torch.rand(2, 4, 3, 2, generator=torch.Generator().manual_seed(0)) * 3 - 1.5

    def read(x: Any, g: Any) -> Any:
        return (
            F.grid_sample(x, g, align_corners=True, padding_mode="border"),
            F.grid_sample(x, g, align_corners=False),
            F.grid_sample(x, g, mode="nearest", align_corners=False),
        )

    each(read, IMAGES, grid)

    def cubic(x: Any, g: Any) -> Any:
        return [
            F.grid_sample(x, g, mode="bicubic", padding_mode=padding, align_corners=corners)
            for padding in ("zeros", "border", "reflection")
            for corners in (False, True)
        ]

    each(cubic, IMAGES, grid)
    places = torch.rand(2, 2, 3, 4, 3, generator=torch.Generator().manual_seed(1)) * 6 - 3
    each(lambda x, g: F.grid_sample(x, g, padding_mode="reflection", align_corners=False), VOLUMES, places)
    each(lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=True), VOLUMES, places)


def test_padding() -> None:
    each(lambda x: [F.pad(x, (2, 1, 1, 3), mode=mode) for mode in ("reflect", "replicate", "circular")], IMAGES)
    each(lambda x: F.pad(x, (2, 1, 1, 0, 0, 1), mode="reflect"), VOLUMES)


def test_functions_of_elements() -> None:
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.3])

    def compute(x: Any, y: Any) -> Any:
        inside = x.clamp(-0.9, 0.9)
        return (
            (x.trunc(), x.frac(), x.sinh(), x.cosh(), x.asinh(), (x.abs() + 1).acosh(), x.expm1()),
            (inside.asin(), inside.acos(), inside.atanh(), x.abs().log10(), torch.atan2(x, y), torch.hypot(x, y)),
            (torch.fmod(x, y), torch.remainder(x * 100, y), torch.fmod(x, 0.3), torch.logical_xor(x > 0, y > 0)),
            (torch.clamp(x, max=y), torch.clamp(x, y, y + 1), torch.logaddexp(x, y), torch.copysign(x, y)),
        )

    each(compute, X, Y)
    each(lambda x, y: torch.atan2(x[:, None], y), special, special)
    each(lambda x: (x << 2, x >> 1, torch.bitwise_left_shift(x, x.abs()), x % 3, torch.fmod(x, 3)), index(1, 5, -7, 0))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_functions_of_integers(dtype: Any) -> None:
    """They stay integers."""
    x = torch.tensor([-3, 0, 5], dtype=dtype)
    found = from_torch(Function(lambda x: (-x, torch.relu(x), torch.round(x), x.abs(), x.sign())), (x,)).compile()(x)
    for one, other in zip(found, (-x, x.relu(), x.round(), x.abs(), x.sign()), strict=True):
        assert one.dtype == other.dtype == dtype
        assert torch.equal(one, other)


def test_what_runs_along_a_dimension() -> None:
    each(lambda x: (x.cumprod(0), x.cummin(0).values, x.cummax(1).values, x.logcumsumexp(1), x[:0].cumsum(0)), X)
    each(lambda x: (x.norm(3), x.norm(0, 1), x.norm(-INF), x.norm(1.5, (0, 1))), X)


def test_places_in_an_order() -> None:
    rows = torch.sort(drawn(3, 5)).values

    def find(x: Any, y: Any) -> Any:
        return torch.searchsorted(x, y, right=True), torch.searchsorted(x, y), torch.bucketize(y, x[0])

    each(find, rows, torch.cat([drawn(3, 4), rows[:, :2]], 1))


def test_counts_of_intervals() -> None:
    """Of ends that are given, and of those of the data; what is outside of them is in none, as NaN isn't."""
    each(
        lambda x: (torch.histc(x, 5, -1.0, 1.0), torch.histc(x, 3), torch.histc(x), torch.histc(x, 1, 2, 3)),
        drawn(7, 5),
    )
    edges = torch.tensor([-2.0, -1.0, 0.0, 0.99, 1.0, 1.01, NAN])
    each(lambda x: (torch.histc(x, 4, -1.0, 1.0), torch.histc(x[:2] * 0 + 3.0, 3)), edges)
    numbers = index(3, 0, 2, 3, 3, 7)
    each(lambda x: torch.histc(x.float(), bins=4, min=0, max=3), numbers)


def test_linear_algebra() -> None:
    a = drawn(3, 4, 4) + 4 * torch.eye(4)
    each(
        lambda a, b: (torch.linalg.solve(a, b), torch.linalg.solve(a[0], b[0, :, 0]), torch.linalg.inv(a)),
        a,
        drawn(3, 4, 2),
    )
    each(
        lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, 1.0), torch.cdist(x, y, 3.0)), drawn(2, 4, 3), drawn(2, 5, 3)
    )
    each(lambda x: torch.pdist(x), X)
    each(nn.Bilinear(4, 4, 3), X, Y)


def test_factors_of_matrices() -> None:
    a = drawn(2, 3, 4, 4)
    positive = a @ a.mT + torch.eye(4)

    def compute(a: Any, positive: Any) -> Any:
        q, r = torch.linalg.qr(a[..., :3])
        values, vectors = torch.linalg.eigh(positive)
        u, singular, v = torch.linalg.svd(a[0, ..., :3], full_matrices=True)
        return (
            *(torch.linalg.cholesky(positive), torch.linalg.cholesky(positive[0, 0], upper=True)),
            *(torch.linalg.det(a), *torch.linalg.slogdet(a[0]), torch.linalg.det(a[0, 0])),
            *(q, r, torch.linalg.qr(a[0, 0], mode="complete").Q, torch.linalg.qr(a, mode="r").R),
            *(values, vectors.abs(), torch.linalg.eigvalsh(positive, UPLO="U")),
            *(singular, (u[..., :3] * singular[:, None]) @ v, torch.linalg.svdvals(a[1, 0, :2])),
        )

    each(compute, a, positive)


def test_where_a_mask_puts_elements() -> None:
    mask = torch.tensor([True, False, True, True])

    def compute(x: Any, source: Any) -> Any:
        return x.masked_scatter(mask, source), x.masked_scatter(x > 0, source), x[0].masked_scatter(mask, source[:1])

    each(compute, X, drawn(6, 4))


def test_spectra() -> None:
    def compute(x: Any) -> Any:
        whole = torch.fft.fft(x)
        return (
            torch.fft.fft2(x).abs(),
            torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), n=6, norm="ortho"),
            torch.view_as_real(torch.fft.ifft(whole * torch.view_as_complex(torch.stack([x, -x], -1)))),
            torch.fft.rfft(x, dim=0).imag + torch.fft.rfft2(x, dim=(1, 0)).real,
            torch.view_as_real(whole.conj() * 2 + torch.polar(x.abs(), x)),
            torch.angle(whole),
        )

    each(compute, drawn(4, 6))
    each(lambda x: torch.stft(x, 16, 8, window=torch.hann_window(16), return_complex=True).abs(), drawn(2, 64))


def test_what_isnt_supported_says_why() -> None:
    def compute(x: Any) -> Any:
        return torch.linalg.eigvals(x).real, F.max_pool2d(x[None], 2, return_indices=True), x.cummax(0).indices

    with pytest.raises(UnsupportedError, match=r"has 2 .*\n.*(linalg_eig|cummax)") as caught:
        from_torch(Function(compute), (drawn(4, 4),))
    assert "result 1 of aten.cummax.default" in str(caught.value)


def test_a_network_of_images_is_trained() -> None:
    """Norms by statistics of the batch, pools and convolutions, forward and backward, as eager does."""
    torch.manual_seed(0)

    def made() -> Any:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.GELU(),
            nn.AvgPool2d(2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.LayerNorm(8),
            nn.Linear(8, 3),
        )

    net, other = made(), made()
    other.load_state_dict(net.state_dict())
    compiled = torch.compile(net, backend="rlx")
    x, y = drawn(4, 3, 12, 12), index(0, 1, 2, 1)
    for own, run in ((net, compiled), (other, other)):
        optimiser = torch.optim.SGD(own.parameters(), 0.1)
        for _ in range(2):
            optimiser.zero_grad()
            F.cross_entropy(run(x), y).backward()
            optimiser.step()
    for name, value in net.state_dict().items():
        torch.testing.assert_close(
            value, other.state_dict()[name], atol=1e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
        )
