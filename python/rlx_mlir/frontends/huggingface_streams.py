# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with several streams in folders, as Gemma 3n's: names, and what `config.json` says of single layers."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from rlx_mlir.frontends.model_file import MetadataValue

from .documents import Document

LAYER: Mapping[str, str] = {
    "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
"""Tensors of a layer beside attention and the network, and what GGUF calls them."""

BARE: Mapping[str, str] = {"altup.correct_output_scale": "altup_correct_scale.weight"}
"""Those whose names don't end with `.weight`."""

OUTSIDE: Mapping[str, str] = {
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
}
"""Those outside of layers."""

STACKED: Mapping[str, str] = {
    "model.altup_projections": "altup_proj.weight",
    "model.altup_unembed_projections": "altup_unembd_proj.weight",
}
"""Those of which each stream but the first has one, `<name>.<number>.weight`."""

NUMBERS: Mapping[str, str] = {
    "altup_num_inputs": "altup.num_inputs",
    "hidden_size_per_layer_input": "embedding_length_per_layer_input",
}
"""Keys that are numbers above 0."""

_PATTERN, _WIDTHS = "activation_sparsity_pattern", "intermediate_size"
#: The share of gates that the first layers of large models leave out where no key says so.
_SHARE, _FIRST = 0.95, 10


def with_one_width(document: Document) -> Document:
    """A description whose layers are given one width, which all have; ModelFileError where they differ."""
    given = document.content.get(_WIDTHS)
    if not isinstance(given, list):
        return document
    if not given or any(each != given[0] for each in given):
        raise document.fail(_WIDTHS, "the same number for all layers", given)
    return Document(document.path, "", {**document.content, _WIDTHS: given[0]})


def cutoffs(document: Document, layers: int) -> dict[str, MetadataValue]:
    """By how many standard deviations above the mean so large a part of normal numbers is left out."""
    given = document.content.get(_PATTERN)
    if given is None:
        given = [_SHARE if layers > _FIRST and layer < _FIRST else 0.0 for layer in range(layers)]
    elif isinstance(given, int | float) and not isinstance(given, bool):
        given = [given] * layers
    fits = isinstance(given, list) and len(given) == layers
    if not fits or not all(type(each) in (int, float) and 0 <= each < 1 for each in given):
        raise document.fail(_PATTERN, f"{layers} numbers from 0 to less than 1, one for each layer", given)
    found = [NormalDist().inv_cdf(share) if share > 0 else -np.inf for share in given]
    return {"activation_sparsity_scale": np.array(found, np.float32)}


__all__ = ["BARE", "LAYER", "NUMBERS", "OUTSIDE", "STACKED", "cutoffs", "with_one_width"]
