# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adapters (LoRA) in PEFT's layout: `adapter_model.safetensors` and `adapter_config.json` in a folder.

PEFT names tensors after the modules of transformers; here products have the names of GGUF files' weights. The rows of
queries and keys are permuted in files of LLaMA models: those of B are, too, between the folder and here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .. import checks
from ..errors import InputError, ModelFileError, UnsupportedError, did_you_mean, shortened
from ..frontends.documents import read_object
from ..frontends.safetensors import SafetensorsFile
from ..frontends.safetensors_writer import write_safetensors
from ..paths import write_atomically
from .config import ModelConfig
from .layers import ADAPTED, adapter_names

Floats = npt.NDArray[np.float32]

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"

MODULES = dict(
    zip(
        ADAPTED,
        (
            *(f"self_attn.{name}_proj" for name in "qkvo"),
            *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
        ),
        strict=True,
    )
)
"""The modules of a layer in transformers, by the names of products here."""

_PRODUCTS = {module: product for product, module in MODULES.items()}
_NAME = re.compile(
    r"base_model\.model\.(?:model\.|language_model\.)*layers\.(\d{1,6})\.(\w+\.\w+)\.lora_([AB])\.(?:default\.)?weight"
)
_PREFIX = "base_model.model.model.layers"

_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "alora_invocation_tokens": (None,),
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "layer_replication": (None, []),
    "lora_bias": (False,),
    "modules_to_save": (None, []),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, [], {}),
    "use_dora": (False,),
    "use_qalora": (False,),
}
"""Entries of a configuration that change what is computed in a way that isn't implemented, and when they don't."""

#: Ways to begin that change the weights of the model, too.
_CHANGES_WEIGHTS = ("pissa", "olora", "corda", "loftq")


@dataclass(frozen=True)
class Adapter:
    """What is added to products of a model: scale B A, of low rank.

    Attributes:
        factors: by product, such as `blk.0.attn_q`: A [rank, inputs], and B [outputs, rank] in the order of the file.
        scales: by product.
    """

    factors: Mapping[str, tuple[Floats, Floats]]
    scales: Mapping[str, float]

    @property
    def ranks(self) -> dict[str, int]:
        """The rank of each product that has an adapter."""
        return {product: a.shape[0] for product, (a, _) in self.factors.items()}

    def params(self) -> dict[str, Floats]:
        """Arrays of the parameters of a graph whose adapters have no scales of their own."""
        found: dict[str, Floats] = {}
        for product, (a, b) in self.factors.items():
            first, second = adapter_names(product)
            found[first], found[second] = a, np.multiply(b, self.scales[product], dtype=np.float32)
        return found

    def change(self, product: str) -> Floats:
        """What the adapter adds to a weight, [outputs, inputs]."""
        a, b = self.factors[product]
        found: Floats = np.multiply(b @ a, self.scales[product], dtype=np.float32)
        return found


def products_of(names: str) -> tuple[str, ...]:
    """The products that words with commas between choose, in the order of a layer.

    Words are `q`, `k`, `v`, `o`, `gate`, `up`, `down`, also with `_proj`, and `all`.

    Raises InputError for other words, or none.
    """
    known = {module.split(".")[1].removesuffix("_proj"): product for product, module in MODULES.items()}
    chosen: set[str] = set()
    for word in (word.strip().removesuffix("_proj") for word in names.split(",")):
        if word == "all":
            chosen |= set(ADAPTED)
        elif word in known:
            chosen.add(known[word])
        else:
            raise InputError(
                f"targets are {', '.join(known)} or all, with commas between, but got '{word}'"
                f"{did_you_mean(word, known)}"
            )
    return tuple(product for product in ADAPTED if product in chosen)


def new_adapter(config: ModelConfig, targets: Sequence[str], rank: int, alpha: float, seed: int) -> Adapter:
    """An adapter that changes nothing yet, as PEFT begins: A uniform within 1 / sqrt(inputs), B zeros.

    Args:
        config: of the model.
        targets: products of every layer, among `layers.ADAPTED`.
        rank, alpha: what is added is multiplied by alpha / rank.
        seed: of A.

    Raises InputError where a number is out of its range, or a target isn't one of the products, or not of this model.
    """
    checks.whole("rank", rank, 1)
    if not 0 < checks.real("alpha", alpha) < np.inf:
        raise InputError(f"'alpha' is a positive number, but got {alpha!r}")
    for target in checks.names("targets", targets):
        checks.choice("targets", target, ADAPTED)
    if not targets:
        raise InputError("an adapter has a target at least, but 'targets' is empty")
    random = np.random.default_rng(seed)
    factors = {}
    for layer in range(config.layers):
        for target in targets:
            product = f"blk.{layer}.{target}"
            if f"{product}.weight" not in config.weights:
                raise InputError(f"'targets' has '{target}', but the model has no '{product}.weight'")
            outputs, inputs = config.weights[f"{product}.weight"].shape
            a = random.uniform(-1, 1, (rank, inputs)) * inputs**-0.5
            factors[product] = a.astype(np.float32), np.zeros((outputs, rank), np.float32)
    return Adapter(factors, dict.fromkeys(factors, alpha / rank))


def _rows(config: ModelConfig, product: str, *, to_file: bool) -> npt.NDArray[np.intp] | None:
    """Which rows of a weight are those of the other order, in turn; None where both have one order."""
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(product.rpartition(".")[2])
    if heads is None or not config.permuted_heads:
        return None
    # Elsewhere, the first halves of a head's pairs stand before the second ones; in the file, each pair is together.
    halves = np.arange(heads * config.head_dim).reshape(heads, 2, config.head_dim // 2)
    order = halves.swapaxes(1, 2).reshape(-1)
    return order if to_file else np.argsort(order)


def write_adapter(
    folder: str | os.PathLike[str], config: ModelConfig, adapter: Adapter, *, alpha: float, base: str | None = None
) -> None:
    """Writes an adapter with one rank as PEFT does.

    Args:
        folder: where; it is made where it isn't there.
        config: of the model that it is for.
        adapter: what is written.
        alpha: the adapter's scale is alpha / rank.
        base: the model's name for transformers, where it is known.

    Raises OSError where it can't be written.
    """
    tensors = {}
    for product, (a, b) in adapter.factors.items():
        _, layer, target = product.split(".")
        order = _rows(config, product, to_file=False)
        name = f"{_PREFIX}.{layer}.{MODULES[target]}"
        tensors[f"{name}.lora_A.weight"] = a
        tensors[f"{name}.lora_B.weight"] = b if order is None else b[order]
    targets = {product.split(".")[2] for product in adapter.factors}
    (rank,) = set(adapter.ranks.values())
    described: dict[str, object] = {
        "alpha_pattern": {},
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "layers_pattern": None,
        "layers_to_transform": None,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": rank,
        "rank_pattern": {},
        "revision": None,
        "target_modules": [MODULES[target].split(".")[1] for target in ADAPTED if target in targets],
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    write_safetensors(home / TENSORS, tensors, {"format": "pt"})
    write_atomically(home / CONFIG, (json.dumps(described, indent=2) + "\n").encode(), durable=True)


def read_adapter(folder: str | os.PathLike[str], config: ModelConfig) -> Adapter:
    """Reads an adapter that PEFT, or `write_adapter`, wrote, for a model.

    Raises ModelFileError, SafetensorsError where files can't be read, are damaged, or don't fit the model;
    UnsupportedError for what the configuration has that isn't implemented.
    """
    home = Path(folder)
    described = read_object(home / CONFIG)
    where = home / CONFIG
    _check_config(described, where)
    file = SafetensorsFile(home / TENSORS)
    found: dict[str, dict[str, Floats]] = {}
    for name in file.tensors:
        match = _NAME.fullmatch(name)
        product = f"blk.{int(match[1])}.{_PRODUCTS.get(match[2])}" if match else ""
        if match is None or f"{product}.weight" not in config.weights:
            raise ModelFileError(
                f"tensor {shortened(name)} belongs to no product that an adapter of this model may have: layers 0 to "
                f"{config.layers - 1} have {', '.join(MODULES.values())}",
                path=file.path,
            )
        found.setdefault(product, {})[match[3]] = _factor(file, name)
    if not found:
        raise ModelFileError("the file has no tensors", path=file.path)
    factors, scales = {}, {}
    for product in sorted(found, key=lambda name: (int(name.split(".")[1]), ADAPTED.index(name.split(".")[2]))):
        a, b = _checked(found[product], product, config, file.path)
        scales[product] = _scale(described, product, a.shape[0], where)
        order = _rows(config, product, to_file=True)
        factors[product] = a, b if order is None else np.ascontiguousarray(b[order])
    return Adapter(factors, scales)


def _factor(file: SafetensorsFile, name: str) -> Floats:
    """A tensor of floats, in f32."""
    values: Floats = np.asarray(file.floats(name), np.float32)
    if not np.isfinite(values).all():
        raise ModelFileError(f"tensor '{name}' must have finite elements, but has some that aren't", path=file.path)
    return values


def _checked(own: Mapping[str, Floats], product: str, config: ModelConfig, path: str) -> tuple[Floats, Floats]:
    """A and B of a product, whose shapes fit the model."""
    module = f"layers.{product.split('.')[1]}.{MODULES[product.split('.')[2]]}"
    outputs, inputs = config.weights[f"{product}.weight"].shape
    if len(own) != 2:
        raise ModelFileError(f"'{module}' must have lora_A and lora_B, but has lora_{next(iter(own))} alone", path=path)
    a, b = own["A"], own["B"]
    fits = a.ndim == b.ndim == 2 and a.shape[0] == b.shape[1] > 0 and (b.shape[0], a.shape[1]) == (outputs, inputs)
    if not fits:
        raise ModelFileError(
            f"'{module}' of this model needs lora_A [rank, {inputs}] and lora_B [{outputs}, rank], but they are "
            f"{list(a.shape)} and {list(b.shape)}",
            path=path,
        )
    return a, b


def _check_config(described: Mapping[str, object], path: Path) -> None:
    """Raises where a configuration isn't one of LoRA, or has what isn't implemented."""
    if described.get("peft_type") != "LORA":
        raise UnsupportedError(f"{path}: 'peft_type' must be LORA, but is {shortened(described.get('peft_type'))}")
    wrong = [
        f"'{name}' is {shortened(described[name])}"
        for name, neutral in _NEUTRAL.items()
        if name in described and described[name] not in neutral
    ]
    begin = described.get("init_lora_weights")
    if isinstance(begin, str) and begin.lower().startswith(_CHANGES_WEIGHTS):
        wrong.append(f"'init_lora_weights' is {shortened(begin)}, which changes the model's own weights")
    if wrong:
        raise UnsupportedError(f"{path}: the adapter has what is not implemented: {'; '.join(wrong)}")


def _scale(described: Mapping[str, object], product: str, rank: int, path: Path) -> float:
    """alpha / rank, or alpha / sqrt(rank), with the alpha of the product's module where it has one of its own."""
    module = f"layers.{product.split('.')[1]}.{MODULES[product.split('.')[2]]}"
    alpha = described.get("lora_alpha")
    own = described.get("alpha_pattern")
    for pattern, value in own.items() if isinstance(own, dict) else ():
        if _ends_with(f"model.{module}", pattern, path):
            alpha = value
            break
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise ModelFileError(f"'lora_alpha' must be a number, but is {shortened(alpha)}", path=path)
    return float(alpha) / (rank**0.5 if described.get("use_rslora") is True else rank)


def _ends_with(module: str, pattern: str, path: Path) -> bool:
    """Whether a pattern of PEFT's, of words and points alone, names a module by its end."""
    if not re.fullmatch(r"\^?[\w.]+", pattern):
        raise UnsupportedError(f"{path}: 'alpha_pattern' has {shortened(pattern)}, but only names are implemented")
    return f".{module}".endswith(f".{pattern.removeprefix('^')}")


__all__ = ["CONFIG", "MODULES", "TENSORS", "Adapter", "new_adapter", "products_of", "read_adapter", "write_adapter"]
