# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tells one family of folders from another, as data: see `huggingface_families`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Family:
    """What tells one family from another.

    Attributes:
        name: `model_type` in `config.json`.
        architecture: the name of GGUF.
        layer: tensors of a layer, without `.weight` or `.bias`, and what GGUF calls them.
        numbers: more keys that are numbers, or flags.
        defaults: what the absence of a key means, where it isn't what it means for LLaMA.
        activation: the key of the gate's function.
        activations: words of it that are the architecture's function.
        windows: which layers see a window where `layer_types` doesn't say: ``all``; ``later``, those from
            `max_window_layers` on; ``period``, all but every so many (`sliding_window_pattern`); ``unrotated``, those
            that don't rotate; empty for none.
        switched: the window is there only where `use_sliding_window` says so.
        refused: keys beside `REFUSED`.
        plus_one: norms multiply by 1 + weight.
        bare: tensors of a layer whose names have no such end, and what GGUF calls them.
        split_experts: a layer has a tensor for each expert, or one with gate and up of all experts.
        mixed_experts: tensors of all experts have gates and ups in turns, and biases; dense ones are [inputs, outputs],
            others are blocks of MXFP4 and their scales.
        packed: the methods of `quantization_config` whose tensors are read.
        near: the key that says how near scores are which weigh each other, see `routing.Routing`; empty for none.
        latent: keys and values are made of latents: `kv_lora_rank` and its like say how wide all is, rows that rotate
            together are side by side unless `rope_interleave` is false, and a layer has all of `attn_kv_b` in one.
        own_order: elements 2 i and 2 i + 1 of heads rotate together, and rows of queries and keys are as in files.
        nested_rope: rotations of local layers may be described apart.
        only_attention: `layer_types` may ask for other layers than those with attention, which aren't read.
        ahead: the key that says how many layers behind the last one predict tokens further ahead, which aren't read.
        streams: layers change several streams, see `huggingface_streams`.
        delta: layers have a gated delta rule in place of attention where `layer_types` says so, or all but every so
            many; and there may be a layer that predicts further ahead, by names of its own (`mtp_num_hidden_layers`).
        grouped: of such layers, files have heads in the order of folders, see `huggingface_delta`.
        convs: layers have a short convolution in place of attention where `layer_types` says so, or but for some
            (`full_attn_idxs`), and networks may be narrower than `intermediate_size` says.
        scans: which layers have a selective scan, as of `Architecture.scans`; empty for none.
        channel_rates: as of `Architecture.channel_rates`.
        scan: by the words of `huggingface_config.SCAN`, the keys that say of what sizes; None for what follows from the
            others.
        indices: attention stands in the layers that `attn_layer_indices` names, and scans in all.
        with_experts: the family of folders of this name some of whose layers are experts.
        with_scans: the family of folders of this name whose `layer_types` name layers with scans.
        part: the entry of `config.json` that describes the language model, where that is one part of several, of which
            the others are for what isn't text, and aren't read; empty where it is the whole.
    """

    name: str
    architecture: str
    layer: Mapping[str, str]
    numbers: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    activation: str = "hidden_act"
    activations: tuple[str, ...] = ("silu", "swish")
    windows: str = ""
    switched: bool = False
    refused: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    plus_one: bool = False
    bare: Mapping[str, str] = field(default_factory=dict)
    split_experts: bool = False
    mixed_experts: bool = False
    packed: tuple[str, ...] = ()
    near: str = ""
    latent: bool = False
    own_order: bool = False
    nested_rope: bool = False
    only_attention: bool = False
    ahead: str = ""
    streams: bool = False
    delta: bool = False
    grouped: bool = False
    convs: bool = False
    scans: str = ""
    channel_rates: bool = False
    scan: Mapping[str, str] = field(default_factory=dict)
    indices: bool = False
    with_experts: Family | None = None
    with_scans: Family | None = None
    part: str = ""


ATTENTION = {f"self_attn.{word}_proj": f"attn_{word}" for word in "qkv"} | {"self_attn.o_proj": "attn_output"}
"""What most families call the matrices of attention."""

NO_BIASES: Mapping[str, tuple[object, ...]] = {"attention_bias": (None, False), "mlp_bias": (None, False)}
"""What is refused where products have none."""


__all__ = ["ATTENTION", "NO_BIASES", "Family"]
