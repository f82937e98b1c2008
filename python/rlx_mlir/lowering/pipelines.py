# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The named pipelines; each step says why it stands where it does."""

from __future__ import annotations

from rlx_mlir.rewriting import named_pipeline

FUSE = named_pipeline(
    "rlx-fuse",
    "Fold constants, and fuse MIR primitives",
    ("mir-fold-constants", "patterns see numbers where the graph computes them; before parameters meet them"),
    ("mir-raise-blocks", "before fusion, whose patterns look for whole norms; on primitives as graphs have them"),
    ("mir-fuse-matmul-bias-act", "before shared-input fusion, which would hide single products behind slices"),
    ("mir-fuse-residual-norm", "the sum isn't written out"),
    ("mir-fuse-swiglu", "before shared-input fusion: both halves of a SwiGLU are one product already"),
    ("mir-fuse-shared-input", "products of one input read it once, and start one parallel region instead of several"),
    ("cse", "equal work of several blocks, such as quantised inputs, is done once; tensors have no destinations yet"),
)

KERNELS = named_pipeline(
    "rlx-to-kernels",
    "Pack weights and outline kernels",
    ("mir-widen-masks", "templates for attention read masks of numbers; the cast joins what makes the mask"),
    ("mir-pack-weights", "products read panels; after fusion, which joins weights in rows"),
    ("mir-keep-regions", "products in loops and branches get kernels of their own"),
    ("mir-hoist-invariants", "what a loop's steps share is outside; before parameters are prepared"),
    ("mir-hoist-params", "packing runs once; before outlining, so that no kernel does it at each call"),
    ("mir-outline-kernels", "from here on compile time depends on distinct kernels, not on layers"),
)

GENERIC = named_pipeline(
    "rlx-generic-kernels",
    "Lower kernels that no template covers",
    (
        "func.func(cpu-join-loops)",
        "what element-wise operations make for each other stays in registers; on tensors",
    ),
    ("kernel-destination-style", "before bufferisation, so that results are written where the caller wants them"),
    ("rlx-strip-signedness", "the bodies of loops say what has no sign; on kernels alone, @prepare has left"),
    ("func.func(eliminate-empty-tensors)", "lets the last operation write into the destination itself"),
    ("one-shot-bufferize", "kernels have buffers at their boundaries, so nothing crosses functions"),
    ("canonicalize", "sizes become sizes of arguments, which scratch planning needs"),
    ("cse", "after bufferisation: before, it merges destinations, and merged destinations are copied"),
    ("func.func(rlx-copies-to-linalg)", "copies between buffers of different strides would call a library"),
    ("func.func(convert-linalg-to-loops)", "loops for LLVM to optimise"),
    ("cpu-split-kernels", "on loops, which say what depends on what; work units for threads, smaller temporaries"),
    ("kernel-plan-scratch", "no allocation at run time, but for sizes that depend on data, which are freed"),
    ("cpu-order-sums", "after kernels are cut: the order of a sum follows from its length alone"),
    ("rlx-store-bools-as-bytes", "on loops, whose loads and stores are of one element"),
)

LLVM = named_pipeline(
    "rlx-to-llvm",
    "Lower kernels to the LLVM dialect",
    ("kernel-add-entry-points", "entry points for C, and nothing else, stay in the module"),
    ("inline", "a body is called from one place: its wrapper knows the pointers"),
    ("symbol-dce", "bodies that were inlined"),
    ("canonicalize", "constants fold into loops before they lower"),
    ("cse", "one load of each size"),
    ("rlx-expand-angles", "while operations are vectors; upstream's polynomials are wrong for large angles"),
    ("rlx-expand-math", "while operations are vectors: later they are calls for each lane"),
    ("convert-vector-to-scf", "transfers of more than one dimension become loops"),
    ("lower-affine", "index arithmetic of views"),
    ("expand-strided-metadata", "views become arithmetic on pointers"),
    ("lower-affine", "expand-strided-metadata makes more of it"),
    ("convert-scf-to-cf", "control flow for LLVM"),
    ("convert-math-to-llvm", "intrinsics where there are some"),
    ("convert-math-to-libm", "and the C library for the rest: calls for each lane of a vector"),
    ("convert-vector-to-llvm{reassociate-fp-reductions=true}", "sums over lanes have no order of their own"),
    ("convert-index-to-llvm", "indices are 64 bits"),
    ("arith-expand{include-bf16=true}", "conversions of bf16 without help from a library"),
    ("convert-complex-to-llvm", "complex numbers are structures of two floats"),
    ("convert-arith-to-llvm", "arithmetic"),
    ("convert-ub-to-llvm", "poison, from vector patterns"),
    ("finalize-memref-to-llvm", "buffers become descriptors"),
    ("convert-func-to-llvm", "functions"),
    ("convert-cf-to-llvm", "branches"),
    ("reconcile-unrealized-casts", "casts between descriptors and buffers meet their inverses"),
    ("canonicalize", "less text for LLVM to read"),
    ("cse", "as above"),
)
