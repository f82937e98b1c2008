# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How operations on images are drawn: windows, transposed convolutions, groups of channels, and their gradients."""

from __future__ import annotations

from rlx_mlir.attributes import PythonValue
from rlx_mlir.fuzz.draft import FLOATS, INTEGERS, Dim, Draft, Skip, word
from rlx_mlir.fuzz.primitives import ALL, eps, generates
from rlx_mlir.hir import Value
from rlx_mlir.hir.graph import Word


def windows(draft: Draft, *, dilated: bool = True) -> tuple[list[int], dict[str, PythonValue], list[Dim]]:
    """(kernel, attributes, height and width of an image that is at most one short of the kernel)."""
    kernel = [draft.choose([1, 2, 3]) for _ in range(2)]
    attributes: dict[str, PythonValue] = {"stride": [draft.choose([1, 1, 2, 3]) for _ in range(2)]}
    attributes["padding"] = [draft.choose([0, 0, 1, 2]) for _ in range(2)]
    dilation = [draft.choose([1, 1, 2]) if dilated else 1 for _ in range(2)]
    if dilated:
        attributes["dilation"] = dilation
    spread = [d * (k - 1) + 1 - 2 * p for d, k, p in zip(dilation, kernel, attributes["padding"], strict=True)]
    area: list[Dim] = [draft.dim(max(1, size), 17) for size in spread]
    if draft.chance(0.08):
        short = draft.integer(0, 1)
        area[short] = max(spread[short] - 1, 0)
    return kernel, attributes, area


def gradient_of(draft: Draft, value: Value) -> Value:
    """A gradient of the shape of a value; of sizes that arguments can't have, the value itself."""
    if any(isinstance(dim, str) and dim not in draft.symbols for dim in value.shape):
        return value
    return draft.like(value.shape, word(value))


@generates("mir.pool", sums=True)
def pool(draft: Draft) -> None:
    kernel, attributes, area = windows(draft, dilated=False)
    dtype = draft.float_type() if draft.chance(0.8) else draft.choose(INTEGERS)
    kind = draft.choose(["max", "min", "sum", "prod", *(["mean"] if dtype in FLOATS else [])])
    x = draft.like([draft.dim(most=3), draft.dim(most=3), *area], dtype)
    draft.emit("mir.pool", {"x": x}, {"kind": Word("reduce_kind", kind), "kernel_size": kernel, **attributes})


@generates("mir.max_pool2d_backward", sums=True)
def max_pool2d_backward(draft: Draft) -> None:
    kernel, attributes, area = windows(draft, dilated=False)
    x = draft.like([draft.dim(most=3), draft.dim(most=3), *area], draft.float_type())
    attributes["kernel_size"] = kernel
    largest = draft.module.pool(x, "max", kernel, stride=attributes["stride"], padding=attributes["padding"])
    draft.emit("mir.max_pool2d_backward", {"x": x, "dy": gradient_of(draft, largest)}, attributes)


@generates("mir.conv_transpose2d", sums=True)
def conv_transpose2d(draft: Draft) -> None:
    groups, per_group, out = draft.choose([1, 1, 2, 3]), draft.size(1, 3), draft.size(1, 3)
    kernel, attributes, _ = windows(draft)
    attributes |= {"output_padding": [draft.choose([0, 0, 1]) for _ in range(2)], "groups": groups}
    more = [2 * p - o for p, o in zip(attributes["padding"], attributes["output_padding"], strict=True)]
    spread = [d * (k - 1) + 1 for d, k in zip(attributes["dilation"], kernel, strict=True)]
    # (size - 1) stride + spread isn't less than what the padding takes away.
    least = [-((own - m) // s) + 1 for own, m, s in zip(spread, more, attributes["stride"], strict=True)]
    area = [draft.dim(max(own, 0), 9) for own in least]
    dtype = draft.float_type()
    x = draft.like([draft.dim(most=3), groups * per_group, *area], dtype)
    weight = draft.like([groups * per_group, out, *kernel], dtype, param=0.8)
    draft.emit("mir.conv_transpose2d", {"x": x, "weight": weight}, attributes)


def convolution(draft: Draft) -> tuple[Value, Value, dict[str, PythonValue], Value]:
    """(image, kernels, attributes, gradient of their convolution)."""
    groups, per_group, out = draft.choose([1, 1, 2, 3]), draft.size(1, 3), draft.size(1, 3)
    kernel, attributes, area = windows(draft)
    dtype = draft.float_type()
    x = draft.like([draft.dim(most=3), groups * per_group, *area], dtype)
    weight = draft.like([groups * out, per_group, *kernel], dtype, param=0.8)
    attributes["groups"] = groups
    return x, weight, attributes, gradient_of(draft, draft.module.conv2d(x, weight, **attributes))


@generates("mir.conv2d_backward_input", sums=True)
def conv2d_backward_input(draft: Draft) -> None:
    x, weight, attributes, dy = convolution(draft)
    draft.emit("mir.conv2d_backward_input", {"dy": dy, "weight": weight, "x": x}, attributes)


@generates("mir.conv2d_backward_weight", sums=True)
def conv2d_backward_weight(draft: Draft) -> None:
    x, weight, attributes, dy = convolution(draft)
    draft.emit("mir.conv2d_backward_weight", {"x": x, "dy": dy}, {**attributes, "kernel_size": list(weight.shape[2:])})


def groups(draft: Draft) -> tuple[Value, dict[str, PythonValue]]:
    """(image, attributes) with groups of channels."""
    count = draft.choose([1, 2, 3])
    channels = count * draft.size(1, 5)
    x = draft.like([draft.dim(most=3), channels, draft.dim(most=9), draft.dim(most=9)], draft.float_type())
    return x, {"num_groups": count, "eps": eps(draft)}


@generates("mir.group_norm", sums=True)
def group_norm(draft: Draft) -> None:
    x, attributes = groups(draft)
    gamma = draft.vector(x.shape[1], word(x))
    beta = draft.optional(lambda: draft.vector(x.shape[1], word(x)), 0.7)
    draft.emit("mir.group_norm", {"x": x, "gamma": gamma, "beta": beta}, attributes)


@generates("mir.group_norm_backward_input", sums=True)
def group_norm_backward_input(draft: Draft) -> None:
    x, attributes = groups(draft)
    operands = {"x": x, "gamma": draft.vector(x.shape[1], word(x)), "dy": draft.like(x.shape, word(x))}
    draft.emit("mir.group_norm_backward_input", operands, attributes)


@generates("mir.group_norm_backward_gamma", sums=True)
def group_norm_backward_gamma(draft: Draft) -> None:
    x, attributes = groups(draft)
    draft.emit("mir.group_norm_backward_gamma", {"x": x, "dy": draft.like(x.shape, word(x))}, attributes)


@generates("mir.group_norm_backward_beta", sums=True)
def group_norm_backward_beta(draft: Draft) -> None:
    draft.emit("mir.group_norm_backward_beta", {"dy": draft.any(FLOATS, 4, 4)})


@generates("mir.resize_nearest_2x")
def resize_nearest_2x(draft: Draft) -> None:
    x = draft.any(ALL, 4, 4)
    if "?" in x.shape or draft.elements(x.shape) * 4 > draft.most_elements:
        raise Skip
    draft.emit("mir.resize_nearest_2x", {"x": x})


@generates("mir.axial_rope2d")
def axial_rope2d(draft: Draft) -> None:
    end_x, end_y, repeat = draft.size(1, 5), draft.size(1, 5), draft.choose([1, 1, 2])
    head_dim = draft.choose([4, 8, 16])
    width = head_dim * draft.choose([1, 2, 3])
    x = draft.like([draft.dim(most=3), end_x * end_y * repeat, width], draft.float_type())
    attributes: dict[str, PythonValue] = {"end_x": end_x, "end_y": end_y, "head_dim": head_dim, "repeat_factor": repeat}
    draft.emit("mir.axial_rope2d", {"x": x}, {**attributes, "theta": draft.choose([None, 100.0])})
