# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole networks with drawn weights, each written once, in words that several libraries have functions for.

A network is a dataclass of its sizes with the methods of `Network`; called with functions (`Ours`, `Torch`, those of a
test), inputs and weights, it gives its result by these functions. `benchmarks/whole_networks.py` measures them.
"""

from __future__ import annotations

from networks.base import Network, draw
from networks.conformer import Conformer
from networks.mamba import Mamba
from networks.moe import MixtureOfExperts
from networks.resnet import ResNet
from networks.vit import VisionTransformer

#: The networks by the names that the benchmark has for them.
NETWORKS: dict[str, type[Network]] = {
    "resnet18": ResNet,
    "dinov2": VisionTransformer,
    "mamba": Mamba,
    "mixtral": MixtureOfExperts,
    "conformer": Conformer,
}

__all__ = ["NETWORKS", "Conformer", "Mamba", "MixtureOfExperts", "Network", "ResNet", "VisionTransformer", "draw"]
