// RUN: rlx-opt %s --pass-pipeline='builtin.module(cpu-apply-templates{features=+avx2,+fma,+f16c})' | FileCheck %s --check-prefixes=CHECK,ON,GEMM
// RUN: rlx-opt %s --pass-pipeline='builtin.module(cpu-apply-templates{features=+avx2,+fma,+f16c disable=gemm+quantize})' | FileCheck %s --check-prefixes=CHECK,ON,OFF
// RUN: rlx-opt %s --pass-pipeline='builtin.module(cpu-apply-templates{disable=all})' | FileCheck %s --check-prefix=ALL
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(cpu-apply-templates{disable=rows+gem})' 2>&1 | FileCheck %s --check-prefix=ERROR

// ERROR: error: pass 'cpu-apply-templates': option 'disable' expects gemm, {{.*}}, conv2d_winograd or all, joined by +, but got 'gem'

/// @prepare stays, for text to be compiled on from. Kernels that no template covers keep their MIR, and say why.
//       CHECK: func @prepare
// CHECK-LABEL: func private @reduce_0.mir(
//  CHECK-SAME:   mir.kernel = "generic", mir.role = "kernel", mir.template = "generic: reduce_0: kernels of class 'generic' have no template"
//       CHECK:   mir.reduce

/// Weights that aren't in panels have no template either.
// CHECK-LABEL: func private @dequant_matmul_0.mir(
//    ON-SAME:   mir.template = "generic: {{(dequant_matmul_0: the weight isn't in panels|templates are disabled)}}"

//   OFF-LABEL: func private @matmul_0.mir(
//    OFF-SAME:   mir.template = "generic: templates are disabled"
//         OFF:   mir.matmul
// CHECK-LABEL: func private @silu_0(memref<?x64xf32>, memref<?x64xf32>)

/// The code of a kernel: a body for a range of units, the number of units, and the scratch memory of a thread.
//  GEMM-LABEL: func private @matmul_0.body(
//   GEMM-SAME:   memref<?x64xf32>, %{{.+}}: memref<64x32xf32>, %{{.+}}: memref<?x32xf32>, %{{.+}}: index, %{{.+}}: index, %{{.+}}: memref<?xi8>)
//   GEMM-SAME:   attributes {mir.template = "gemm_dense"}
//    GEMM-NOT:   mir.matmul
//        GEMM:   vector.
//  GEMM-LABEL: func private @matmul_0.units(
//   GEMM-SAME:   -> index attributes {mir.template = "gemm_dense"}
//  GEMM-LABEL: func private @matmul_0.scratch(
//   GEMM-SAME:   -> index attributes {mir.template = "gemm_dense"}
//    ON-LABEL: func private @silu_0.body(
//     ON-SAME:   memref<?x64xf32>, %{{.+}}: memref<?x64xf32>, %{{.+}}: index, %{{.+}}: index, %{{.+}}: memref<?xi8>) attributes {mir.template = "rows"}
//      ON-NOT:   mir.silu
//    ON-LABEL: func private @silu_0.units(
//    ON-LABEL: func private @silu_0.scratch(

//         ALL: func @prepare
//     ALL-NOT: .body
//   ALL-LABEL: func private @reduce_0.mir(
//    ALL-SAME:   mir.template = "generic: templates are disabled"
//     ALL-NOT: .body
//   ALL-LABEL: func private @silu_0.mir(
//    ALL-SAME:   mir.template = "generic: templates are disabled"
//     ALL-NOT: .body

func.func @prepare(%g: tensor<4xf32> {mir.name = "g", mir.kind = "param"}) -> (tensor<4xf32> {mir.name = "g:prepared"}) attributes {mir.role = "prepare"} {
  %0 = mir.neg %g : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @reduce_0.mir(%x: tensor<?x64xf32>) -> tensor<?xf32> attributes {mir.kernel = "generic", mir.role = "kernel"} {
  %0 = mir.reduce sum %x axes [1] : tensor<?x64xf32>
  return %0 : tensor<?xf32>
}
func.func private @dequant_matmul_0.mir(%x: tensor<?x64xf32>, %w: tensor<32x68xi8, #mir.packed<q8_0, k = 64>>) -> tensor<?x32xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
  %0 = mir.dequant_matmul %x, %w : tensor<?x64xf32>, tensor<32x68xi8, #mir.packed<q8_0, k = 64>>
  return %0 : tensor<?x32xf32>
}
func.func private @matmul_0.mir(%x: tensor<?x64xf32>, %w: tensor<64x32xf32>) -> tensor<?x32xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
  %0 = mir.matmul %x, %w : tensor<?x64xf32>, tensor<64x32xf32>
  return %0 : tensor<?x32xf32>
}
func.func private @silu_0.mir(%x: tensor<?x64xf32>) -> tensor<?x64xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.silu %x : tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}
func.func private @silu_0(memref<?x64xf32>, memref<?x64xf32>) attributes {mir.kernel = "rows"}
