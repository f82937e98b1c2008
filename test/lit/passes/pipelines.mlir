// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-fuse)' | FileCheck %s --check-prefix=FUSE
// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-fuse,mir-quantize-activations,cse,rlx-to-kernels)' | FileCheck %s --check-prefix=KERNELS
// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-fuse,rlx-to-kernels,lir-plan,cpu-apply-templates{disable=all},func.func(mir-to-linalg),rlx-generic-kernels)' | FileCheck %s --check-prefix=GENERIC
// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-fuse,rlx-to-kernels,lir-plan,cpu-apply-templates,func.func(mir-to-linalg),rlx-generic-kernels,rlx-to-llvm)' | FileCheck %s --check-prefix=LLVM
// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-gpu-pipeline{chip=sm_86 cubin=never disable=all maxima=seq:7})' | FileCheck %s --check-prefix=GPU
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(rlx-gpu-pipeline{chips=sm_86})' 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(rlx-fuse{policy=direct})' 2>&1 | FileCheck %s --check-prefix=ERROR

// ERROR: option 'policy' isn't one of the pipeline's: it takes none
// OPTION: option 'chips' isn't one of the pipeline's: chip, ptx, cubin, level, disable, maxima

/// A pipeline's options go to the passes that have them.
//       GPU: func.func @main({{.+}} mir.symbols = {seq = 7 : i64}
//       GPU: mir.template = "generic: schedules are disabled"
//       GPU: gpu.binary @kernels [#gpu.object<#nvvm.target<{{.*}}chip = "sm_86"

//   FUSE-LABEL: func @main(
//    FUSE-SAME:   %[[X:[a-z0-9]+]]: tensor<?x32xf32> {{{[^}]+}}}, %[[G:[a-z0-9]+]]: tensor<32xf32> {{{[^}]+}}}, %[[Q:[a-z0-9]+]]: tensor<32x34xi8, {{[^{]+}} {{{[^}]+}}}, %[[K:[a-z0-9]+]]: tensor<16x34xi8,
//   FUSE-DAG:   %[[N:.+]] = mir.fused_residual_rms_norm %[[X]], %[[X]], %[[G]]
//   FUSE-DAG:   %[[W:.+]] = mir.concat %[[Q]], %[[K]] axis 0
//       FUSE:   %[[P:.+]] = mir.dequant_matmul %[[N]], %[[W]]
//   FUSE-DAG:   mir.narrow %[[P]] axis 1 start 0 length 32
//   FUSE-DAG:   mir.narrow %[[P]] axis 1 start 32 length 16
//   FUSE-NOT:   mir.add

// KERNELS-LABEL: func @prepare(
//       KERNELS:   mir.concat
//       KERNELS:   mir.repack
// KERNELS-LABEL: func @main(
//       KERNELS:   %[[N:.+]] = call @fused_residual_rms_norm_0(
//       KERNELS:   %[[Q:.+]]:3 = call @block_quantize_0(%[[N]])
//       KERNELS:   %[[P:.+]] = call @block_dot_0(%[[Q]]#0, %[[Q]]#1, %[[Q]]#2, %{{.+}})
//       KERNELS:   %[[R:.+]]:2 = call @narrow_0(%[[P]])
//       KERNELS:   return %[[R]]#0, %[[R]]#1

//   GENERIC-NOT: tensor<
//   GENERIC-NOT: linalg.
//       GENERIC: func.func private @{{.+}}.body({{.+}} attributes {mir.template = "generic: templates are disabled"}
//   GENERIC-NOT: memref.alloc{{[( ]}}

//      LLVM-NOT: func.func
//      LLVM-NOT: memref
//      LLVM-NOT: unrealized
//      LLVM-DAG: llvm.func @fused_residual_rms_norm_0(%{{.+}}: !llvm.ptr, %{{.+}}: !llvm.ptr, %{{.+}}: i64, %{{.+}}: i64, %{{.+}}: !llvm.ptr)
//      LLVM-DAG: llvm.func @dequant_matmul_0_units(%{{.+}}: !llvm.ptr) -> i64
//      LLVM-DAG: llvm.func @narrow_0_scratch(%{{.+}}: !llvm.ptr) -> i64
func.func @main(%x: tensor<?x32xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["seq", ""]}, %g: tensor<32xf32> {mir.name = "g", mir.kind = "param"},
                %q: tensor<32x34xi8, #mir.packed<q8_0, k = 32>> {mir.name = "q", mir.kind = "param"}, %k: tensor<16x34xi8, #mir.packed<q8_0, k = 32>> {mir.name = "k", mir.kind = "param"})
    -> (tensor<?x32xf32> {mir.name = "yq"}, tensor<?x16xf32> {mir.name = "yk"}) {
  %s = mir.add %x, %x : tensor<?x32xf32>
  %n = mir.rms_norm %s, %g : tensor<?x32xf32>, tensor<32xf32>
  %yq = mir.dequant_matmul %n, %q : tensor<?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
  %yk = mir.dequant_matmul %n, %k : tensor<?x32xf32>, tensor<16x34xi8, #mir.packed<q8_0, k = 32>>
  return %yq, %yk : tensor<?x32xf32>, tensor<?x16xf32>
}
