# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model is made of: its file, checked, and the options that its modules and their parameters depend on."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from .. import checks
from ..activations import ACTIVATIONS, AUTO, way_of
from ..errors import InputError
from ..frontends.model_file import ModelFile
from .adapter import read_adapter
from .config import ModelConfig, check_context
from .opening import open_model
from .quantised import check_quantize, quantised
from .weights import check_nonfinite

CHUNK = 512
"""Tokens of a prompt that are processed at once, where nothing else is said."""
KV_DTYPE = "f32"
"""The type of cached keys and values, where nothing else is said."""
NONFINITE = "refuse"
"""What is done about weights that aren't finite, where nothing else is said."""


@dataclass(frozen=True)
class Source:
    """What a model is made of.

    Attributes:
        file: the model's.
        config: what the model is.
        context: positions that a sequence can have.
        chunk: tokens of a prompt that are processed at once, not more than the context has positions.
        activations: how activations meet quantised weights, with nothing left open.
        nonfinite: what is done about weights that aren't finite.
        quantize: the type that matrices were quantised to, or None.
        ranks: of the products that have an adapter.
        added: parameters of the adapter, by name.
    """

    file: ModelFile
    config: ModelConfig
    context: int
    chunk: int
    activations: str
    nonfinite: str
    quantize: str | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    added: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, str]:
        """What keys and values depend on, as texts."""
        return {
            "model": self.file.fingerprint(),
            "activations": self.activations,
            "kv_dtype": self.config.kv_dtype,
            "nonfinite": self.nonfinite,
            "lora": _digest(self.added) if self.ranks else "",
        }


def check_options(
    *,
    activations: str,
    chunk: int | None,
    kv_dtype: str | None,
    nonfinite: str | None,
    quantize: str | None,
) -> None:
    """Raises InputError for options that `open_source` can't honour, whatever the model is."""
    for name, value in (("activations", activations), ("kv_dtype", kv_dtype), ("nonfinite", nonfinite)):
        if value is not None:
            checks.text(name, value)
    if quantize is not None:
        check_quantize(checks.text("quantize", quantize))
    if nonfinite is not None:
        check_nonfinite(nonfinite)
    if activations not in (AUTO, *ACTIVATIONS):
        words = ", ".join((AUTO, *ACTIVATIONS))
        raise InputError(f"'activations' must be one of {words}, but is {activations!r}")
    if chunk is not None:
        checks.whole("chunk", chunk, 1)


def open_source(
    path_or_name: str | os.PathLike[str],
    *,
    activations: str = AUTO,
    context: int | None = None,
    chunk: int | None = None,
    kv_dtype: str | None = None,
    nonfinite: str | None = None,
    quantize: str | None = None,
    lora: str | os.PathLike[str] | None = None,
    target: str = "cpu",
    cache: bool = True,
    download: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Source:
    """Opens and checks a model's file; arguments and errors are those of `load_model`, with nothing compiled yet."""
    say = progress or (lambda text: None)
    nonfinite = nonfinite or NONFINITE
    file = open_model(path_or_name, download=download, progress=progress is not None)
    config = dataclasses.replace(ModelConfig.from_gguf(file), kv_dtype=kv_dtype or KV_DTYPE)
    if target != "cpu":  # what predicts further tokens is of use where these are processed at once
        config = dataclasses.replace(config, predicts=False)
    if quantize is not None:
        file, config = quantised(file, config, quantize, nonfinite=nonfinite, cache=cache, say=say)
    adapter = None if lora is None else read_adapter(checks.path("lora", lora), config)
    context = check_context(config, context)
    return Source(
        file,
        config,
        context,
        min(chunk or CHUNK, context),
        way_of(activations, target),
        nonfinite,
        quantize,
        {} if adapter is None else adapter.ranks,
        {} if adapter is None else adapter.params(),
    )


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """What tells an adapter's numbers apart."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


__all__ = ["CHUNK", "KV_DTYPE", "NONFINITE", "Source", "check_options", "open_source"]
