# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where two models part: what each part of their layers gives for a text, and the first part that differs.

Both read the same tokens. Parts are compared in the order in which they are computed, by names (see
`rlx_mlir.models.observed`), so that the first one that differs by more than a tolerance is where an error begins: a
rotation with another base is `blk.0.attn_q_rope`, a norm with another weight in layer 3 `blk.3.ffn_norm`. All that
follows differs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from rlx_mlir import checks
from rlx_mlir.errors import InputError
from rlx_mlir.frontends.model_file import ModelFile
from rlx_mlir.models import decoder
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.observed import Watch, build_observed

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule, Value
    from rlx_mlir.runtime.executable import Executable

TOKENS = 64
"""Tokens that are compared, at most: what parts give is kept for all of them."""

TOLERANCE = 0.05
"""By which a part may differ, by the size of what it should give."""

_HEADS = ("attn_q", "attn_k", "attn_q_norm", "attn_k_norm", "attn_q_rope", "attn_k_rope")
"""Parts whose heads some files have in another order."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Part:
    """What was found of a part.

    Attributes:
        name: such as blk.0.attn_norm.
        error: the size of the difference by the size of what the other model gives, both over all tokens.
    """

    name: str
    error: float

    @property
    def is_block(self) -> bool:
        """Whether it is a whole layer, or what the first one reads, or the last norm."""
        return self.name.count(".") <= 1


@dataclass(frozen=True)
class Comparison:
    """What was found of all parts.

    Attributes:
        parts: in the order in which they are computed.
        tolerance: by which they may differ.
        tokens: that were compared.
    """

    parts: tuple[Part, ...]
    tolerance: float
    tokens: int

    @property
    def first(self) -> Part | None:
        """The first part over the tolerance; None where there is none."""
        return next((part for part in self.parts if not part.error <= self.tolerance), None)

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        first = self.first
        return {
            "tokens": self.tokens,
            "tolerance": self.tolerance,
            "first": None if first is None else first.name,
            "parts": [{"name": part.name, "error": part.error} for part in self.parts],
        }


def compare_layers(
    file: ModelFile,
    other: ModelFile,
    ids: Sequence[int],
    *,
    tolerance: float = TOLERANCE,
    threads: int | None = None,
    cache: bool = True,
    progress: Callable[[str], object] | None = None,
) -> Comparison:
    """Runs two models over the same tokens and compares what their parts give; with exact activations.

    Args:
        file: the model.
        other: the one whose numbers count as right, with as many layers of the same sizes.
        ids: tokens, of which the first 64 are read.
        tolerance: by which a part may differ, by the size of what it should give.
        threads, cache: see `rlx.compile`.
        progress: is told what is done.

    Raises InputError where models don't have the same parts, there is no token, or an id isn't in the vocabulary, and
    what compiling and running raise.
    """
    if not checks.real("tolerance", tolerance) > 0:
        raise InputError(f"'tolerance' must be above 0, but is {tolerance}")
    configs = [ModelConfig.from_gguf(each) for each in (file, other)]
    _check_alike(*configs)
    size = min(len(ids), TOKENS, *(config.context for config in configs))
    own = [int(index) for index in ids[:size]]
    if not own or not 0 <= min(own) <= max(own) < configs[0].vocab:
        raise InputError(
            f"'ids' are tokens from 0 to {configs[0].vocab - 1}, one at least, but got {checks.shown(ids)}"
        )
    found = []
    for number, (each, config) in enumerate(zip((file, other), configs, strict=True)):
        if progress is not None:
            progress(f"layers of {'the other model' if number else 'the model'}")
        found.append(_run(each, config, own, threads, cache))
    parts = [Part(name, _difference(value, found[1][name])) for name, value in found[0].items() if name in found[1]]
    return Comparison(tuple(parts), float(tolerance), size)


def _check_alike(own: ModelConfig, other: ModelConfig) -> None:
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab"):
        first, second = getattr(own, name), getattr(other, name)
        if first != second:
            raise InputError(f"layers are compared one by one, but '{name}' is {first} here and {second} there")


def _run(
    file: ModelFile, config: ModelConfig, ids: Sequence[int], threads: int | None, cache: bool
) -> dict[str, Floats]:
    """What all parts give, by name, in order."""
    from rlx_mlir.compiler import compile_cached

    described = {"program": "evaluation.layers", "length": len(ids), **decoder.described(config)}
    executable = cast(
        "Executable",
        compile_cached(described, partial(_graph, config, len(ids)), threads=threads, cache=cache, activations="exact"),
    )
    executable.set_params(decoder.parameters(config, file, len(ids)))
    results = executable.run({"tokens": np.array([ids], np.int32)})
    return {name: _ordered(config, name, results[name]) for name in _in_order(config, results)}


def _graph(config: ModelConfig, length: int) -> GraphModule:
    outputs: dict[str, Value] = {}
    graph = build_observed(config, length, Watch(result=outputs.__setitem__), name="layers")
    graph.set_outputs(outputs)
    return graph


_WITHIN = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_q_norm", "attn_k_norm", "attn_q_rope", "attn_k_rope"),
    *("attn_kv_a_mqa", "attn_kv_a_norm", "attn_q_a", "attn_q_a_norm", "attn_q_b"),
    *("attention", "attn_output", "post_attention_norm", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down", "ffn_exps"),
    "post_ffw_norm",
)
"""Parts of a layer in the order in which they are computed."""


def _in_order(config: ModelConfig, found: Mapping[str, Floats]) -> Iterator[str]:
    """Names in the order in which parts are computed: a compiled module needn't keep it."""
    names = ["token_embd"]
    for layer in range(config.layers):
        names += [*(f"blk.{layer}.{part}" for part in _WITHIN), f"blk.{layer}"]
    return (name for name in (*names, "output_norm") if name in found)


def _ordered(config: ModelConfig, name: str, value: Floats) -> Floats:
    """A part with the elements of heads in one order, whichever the file has: those that rotate together half a head
    apart."""
    if not config.permuted_heads or name.rpartition(".")[2] not in _HEADS:
        return value
    pairs = value.reshape(*value.shape[:-1], -1, config.head_dim // 2, 2)
    found: Floats = pairs.swapaxes(-1, -2).reshape(value.shape)
    return found


def _difference(value: Floats, right: Floats) -> float:
    """The size of the difference by that of what is right; inf where numbers aren't finite, or only one isn't 0."""
    a, b = value.reshape(-1).astype(np.float64), right.reshape(-1).astype(np.float64)
    change, size = np.linalg.norm(a - b), np.linalg.norm(b)
    if not np.isfinite(change) or not np.isfinite(size):
        return float("inf")
    if size == 0:
        return 0.0 if change == 0 else float("inf")
    return float(change / size)


__all__ = ["TOLERANCE", "Comparison", "Part", "compare_layers"]
