# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sessions in files: tokens, their keys and values, and the logits after them, in safetensors' format.

| tensor | shape | element type |
|---|---|---|
| `tokens` | [tokens] | i32 |
| `k_<layer>`, `v_<layer>` | [tokens, width] | the caches' |
| `conv_<layer>`, `delta_<layer>` | [1, …], the states of layers that have such in place of keys and values | f32 |
| `logits` | [vocab], missing where they aren't known | f32 |

The header's texts are ``format`` (`rlx-session`), ``version``, ``prefilled`` (how many tokens are a prompt's), and
``identity``: what the model computes keys and values from. A file is data: it's checked before it is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import SafetensorsError
from ..frontends.safetensors import SafetensorsFile
from ..frontends.safetensors_writer import write_safetensors
from .caches import cache_types, state_shapes
from .core import Core

_FORMAT = "rlx-session"
_VERSION = "1"


@dataclass(frozen=True)
class State:
    """What a file holds; see `Session.load`."""

    tokens: list[int]
    prefilled: int
    caches: Mapping[str, np.ndarray]
    states: Mapping[str, np.ndarray]
    logits: np.ndarray | None


def write(
    path: str | os.PathLike[str],
    model: Core,
    *,
    tokens: Sequence[int],
    prefilled: int,
    caches: Mapping[str, np.ndarray],
    states: Mapping[str, np.ndarray],
    logits: np.ndarray | None,
) -> None:
    """Writes a file; OSError where that fails."""
    tensors = {"tokens": np.array(tokens, np.int32), **caches, **states}
    if logits is not None:
        tensors["logits"] = logits
    texts = {"format": _FORMAT, "version": _VERSION, "prefilled": str(prefilled), "identity": _identity(model)}
    write_safetensors(path, tensors, texts)


def read(path: str | os.PathLike[str], model: Core) -> State:
    """Reads what `write` wrote for the same model.

    Raises SafetensorsError where the file is none of these, is damaged, or is of another model or other options.
    """
    file = SafetensorsFile(path)

    def fail(text: str) -> SafetensorsError:
        return SafetensorsError(text, path=file.path)

    known = file.metadata.get("format"), file.metadata.get("version")
    if known != (_FORMAT, _VERSION):
        raise fail(
            f"must be a session of version {_VERSION}, as 'Session.save' writes it, but is {known[0]!r} {known[1]!r}"
        )
    if file.metadata.get("identity") != _identity(model):
        raise fail(
            "was written with another model, or other 'kv_dtype', 'activations' or 'lora': "
            f"{_difference(file.metadata.get('identity', ''), model)}"
        )
    tokens = file.tensor("tokens")
    if tokens.ndim != 1 or tokens.dtype != np.int32 or tokens.size > model.context:
        raise fail(
            f"'tokens' must be i32, not more than the {model.context} positions of the context, but are {tokens.dtype} "
            f"{list(tokens.shape)}"
        )
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < model.config.vocab:
        raise fail(f"'tokens' must be in [0, {model.config.vocab}), but go from {tokens.min()} to {tokens.max()}")
    text = file.metadata.get("prefilled", "")
    prefilled = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    if not 0 <= prefilled <= tokens.size:
        raise fail(f"'prefilled' must be in [0, {tokens.size}], but is {text!r}"[:200])
    caches = {}
    for name, type in cache_types(model.config).items():
        array = file.tensor(name)
        if array.shape != (tokens.size, type.width) or array.dtype != type.dtype:
            shape = [tokens.size, type.width]
            raise fail(f"'{name}' must be {type.dtype} {shape}, but is {array.dtype} {list(array.shape)}")
        caches[name] = array
    states = {}
    for name, own in state_shapes(model.config).items():
        states[name] = array = file.tensor(name)
        if array.shape != (1, *own) or array.dtype != np.float32:
            raise fail(f"'{name}' must be float32 {[1, *own]}, but is {array.dtype} {list(array.shape)}")
    logits = file.tensor("logits") if "logits" in file.tensors else None
    if logits is not None and (logits.shape != (model.config.vocab,) or logits.dtype != np.float32):
        raise fail(f"'logits' must be f32 [{model.config.vocab}], but are {logits.dtype} {list(logits.shape)}")
    return State(tokens.tolist(), prefilled, caches, states, logits)


def _identity(model: Core) -> str:
    return json.dumps(dict(model.identity), sort_keys=True)


def _difference(text: str, model: Core) -> str:
    """What of the identity differs, in words."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return "its identity can't be read"
    names = [name for name, value in model.identity.items() if found.get(name) != value]
    return ", ".join(f"{name} is {model.identity[name]!r}, but {found.get(name)!r} in the file" for name in names)[:500]


__all__ = ["State", "read", "write"]
