# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The named pipelines for GPUs; each step says why it stands where it does."""

from __future__ import annotations

from rlx_mlir import chips
from rlx_mlir.rewriting import named_pipeline

KERNELS = named_pipeline(
    "rlx-gpu-to-kernels",
    "Outline kernels for GPUs",
    ("gpu-split-swiglu", "both products of a SwiGLU are one kernel, and what follows them is done on their sums"),
    ("gpu-turn-float8", "tensor cores read floats of 8 bits along K; before parameters are prepared"),
    ("mir-pack-weights{layout=planes}", "integers, scales and minima of packed rows apart; after fusion, as for CPUs"),
    ("cse", "a table that is looked up and multiplied with has one copy"),
    ("mir-keep-regions{loops=true alignment=16}", "the host takes the steps of loops whose bodies have kernels"),
    ("mir-hoist-invariants", "what a loop's steps share is outside; before parameters are prepared"),
    ("mir-hoist-params", "what depends on parameters alone runs once; dense weights keep their rows"),
    (
        "mir-outline-kernels{prologues=true gathers=true}",
        "from here on compile time depends on distinct kernels, not on layers",
    ),
)

LAUNCH = named_pipeline(
    "rlx-gpu-launch",
    "Turn kernels into launches of GPU kernels",
    ("func.func(gpu-free-destinations)", "fusion is wrong for nests that read what they overwrite"),
    ("func.func(linalg-fuse-elementwise-ops)", "on tensors: what one loop makes for one other stays in registers"),
    ("kernel-destination-style", "before bufferisation, so that results are written where the caller wants them"),
    ("func.func(eliminate-empty-tensors)", "lets the last operation write into the destination itself"),
    ("one-shot-bufferize", "kernels have buffers at their boundaries, so nothing crosses functions"),
    ("resolve-shaped-type-result-dims", "sizes of views become sizes of arguments, which scratch planning needs"),
    ("canonicalize", "as above"),
    ("cse", "after bufferisation: before, it merges destinations, and merged destinations are copied"),
    ("func.func(gpu-guard-divisions)", "after sizes are resolved, which divides by sizes of empty buffers too"),
    ("func.func(rlx-copies-to-linalg)", "copies are launches, too"),
    ("func.func(linalg-generalize-named-ops)", "one form of loops to map"),
    ("func.func(buffer-loop-hoisting)", "what each step of a loop on the host needs is there once"),
    ("kernel-plan-scratch", "kernels don't allocate: the caller gives memory, in the sizes that functions compute"),
    ("gpu-map-loops", "iterators still say which loops are parallel"),
    ("rlx-store-bools-as-bytes", "on loads and stores, which are of one element"),
    ("canonicalize", "sizes of views that mapping asked for: the host may not read memory for them"),
    ("gpu-outline-launches", "the host is left with sizes and launches"),
    ("canonicalize", "less code to lower"),
    ("cse", "as above"),
)

NVVM = named_pipeline(
    "rlx-gpu-to-nvvm",
    "Lower GPU kernels to the NVVM dialect",
    (
        "gpu.module(math-expand-ops{ops=powf})",
        "pow by exp and log, which expand next",
    ),
    ("gpu.module(rlx-expand-angles{scalars=true})", "upstream's polynomials are wrong for large angles"),
    ("gpu.module(rlx-expand-math{scalars=true})", "there is no library to call"),
    ("gpu.module(gpu-lower-math)", "what is left are instructions; upstream would call a library"),
    ("gpu.module(gpu-lower-subgroup-reduce)", "upstream has no lowering of f32"),
    ("gpu.module(expand-strided-metadata)", "views become arithmetic on pointers"),
    ("gpu.module(lower-affine)", "index arithmetic of views"),
    ("gpu.module(canonicalize)", "constants fold into loops before they lower"),
    ("gpu.module(cse)", "one computation of each position"),
    ("gpu.module(convert-scf-to-cf)", "control flow for LLVM"),
    ("gpu.module(convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=true})", "kernels take pointers, not descriptors"),
    ("gpu.module(convert-nvvm-to-llvm)", "instructions that LLVM has no intrinsics of become inline assembly"),
    ("gpu.module(reconcile-unrealized-casts)", "casts between pointers and buffers meet their inverses"),
)

HOST = named_pipeline(
    "rlx-gpu-host-to-llvm",
    "Lower the host's part to the LLVM dialect",
    ("gpu-launches-to-calls", "needs the numbers that the PTX gives kernels, and drops the GPU's code"),
    ("rlx-to-llvm", "as for kernels of CPUs: a body is a C function, which here computes sizes and launches"),
)

WHOLE = named_pipeline(
    "rlx-gpu-pipeline",
    "From MIR to PTX, machine code where a ptxas is found, and the host's part",
    ("inline", "blocks are functions of their own before"),
    ("symbol-dce", "what was inlined"),
    ("rlx-fuse", "as for CPUs"),
    ("rlx-gpu-to-kernels", "one function a kernel"),
    ('lir-plan{maxima="$maxima"}', "offsets of buffers, before kernels have code: they take buffers"),
    ("gpu-apply-schedules{chip=$chip disable=$disable}", "reads a kernel's MIR, so before it is lowered"),
    ("func.func(mir-to-linalg)", "kernels without a schedule"),
    ("rlx-gpu-launch", "one launch a loop nest"),
    ("gpu-chain-launches{chip=$chip}", "launches are there, and kernels are functions"),
    ("rlx-gpu-to-nvvm", "kernels of both kinds"),
    ("gpu-emit-ptx{chip=$chip ptx=$ptx level=$level}", "after this the module holds the host's part and text"),
    ("gpu-assemble-ptx{chip=$chip cubin=$cubin}", "machine code is made of the text"),
    options={"chip": chips.DEFAULT_CHIP, "ptx": "", "cubin": "auto", "level": "2", "disable": "", "maxima": ""},
)
