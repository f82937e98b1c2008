# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles a block for an NVIDIA GPU on a machine without one: the artefact, its kernels, their code.

Usage:

    python examples/gpu_offline.py                          for sm_90a
    python examples/gpu_offline.py --chip sm_80 --save ffn.rlx
    python examples/gpu_offline.py --ptx                    the text of PTX, and nothing else
"""

from __future__ import annotations

import argparse
from pathlib import Path

import rlx_mlir as rlx


def build() -> rlx.GraphModule:
    """A feed-forward block in bf16: x + swiglu(rms_norm(x))."""
    m = rlx.GraphModule.hir("ffn")
    x = m.input("x", ["tokens", 256], "bf16")
    shapes = {"gate_w": [256, 512], "up_w": [256, 512], "down_w": [512, 256]}
    weights = {name: m.param(name, shape, "bf16") for name, shape in shapes.items()}
    m.set_outputs({"y": x + m.swiglu(m.rms_norm(x, m.param("gamma", [256], "bf16")), **weights)})
    return m


def main() -> None:
    """Prints what each kernel became; with options, writes or prints code."""
    parser = argparse.ArgumentParser(description="Compiles a block for a GPU that isn't here.")
    parser.add_argument("--chip", default="sm_90a", help="compute capability, such as sm_80")
    parser.add_argument("--save", type=Path, help="file for the artefact, which rlx.load runs where the GPU is")
    parser.add_argument("--ptx", action="store_true", help="print PTX, and nothing else")
    options = parser.parse_args()

    m = build()
    if options.ptx:
        print(rlx.emit(m, "ptx", target="nvptx", chip=options.chip, maxima={"tokens": 128}))
        return
    artifact = rlx.compile(m, target="nvptx", chip=options.chip, maxima={"tokens": 128})
    print(artifact)
    for kernel in artifact.kernels:
        print(f"  {kernel:<32} {artifact.templates[kernel]}")
    print(f"{len(artifact.device_kernels)} kernels of the GPU in {len(artifact.device_code) / 1e3:.0f} kB of PTX")
    if options.save is not None:
        artifact.save(options.save)
        print(f"wrote {options.save}: rlx.load(...) on a machine with the GPU")


if __name__ == "__main__":
    main()
