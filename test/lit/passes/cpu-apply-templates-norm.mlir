// RUN: rlx-opt %s --pass-pipeline='builtin.module(cpu-apply-templates{features=+avx2,+fma,+f16c})' | FileCheck %s --check-prefixes=CHECK,ON
// RUN: rlx-opt %s --pass-pipeline='builtin.module(cpu-apply-templates{features=+avx2,+fma,+f16c disable=norm})' | FileCheck %s --check-prefixes=CHECK,OFF
// RUN: rlx-opt %s --pass-pipeline='builtin.module(cpu-apply-templates{features=+avx2,+fma,+f16c choices=rms_norm_0:column_vectors:1})' | FileCheck %s --check-prefix=ONE

/// Norms and softmax along another axis than the last: what the template declines keeps its MIR, and says why.
//   OFF-LABEL: func private @softmax_0.mir(
//    OFF-SAME:   mir.template = "generic: templates are disabled"
// CHECK-LABEL: func private @softmax_1.mir(
//     ON-SAME:   mir.template = "generic: softmax_1: expects at least 4 elements for each position along axis 1, but memref<?x33x2xf32> has 2"
//       CHECK:   mir.softmax
// CHECK-LABEL: func private @softmax_2.mir(
//     ON-SAME:   mir.template = "generic: softmax_2: expects at least 4 elements for each position along axis 1, but memref<8x?xf32> has 1"
// CHECK-LABEL: func private @softmax_3.mir(
//     ON-SAME:   mir.template = "generic: softmax_3: softmax of f64 has no template"

/// Exponentials are kept in scratch, 20 columns in two vectors and a third one that ends with the last column.
//    ON-LABEL: func private @softmax_0.body(
//     ON-SAME:   memref<?x33x20xf32>, %{{.+}}: memref<?x33x20xf32>, %{{.+}}: index, %{{.+}}: index, %[[SCRATCH:.+]]: memref<?xi8>) attributes {mir.template = "norm"}
//          ON:   memref.view %[[SCRATCH]]{{.+}} to memref<33x16xf32>
//  ON-COUNT-2:   arith.cmpf ogt, {{.+}} : vector<8xf32>
//          ON:   vector.fma {{.+}} : vector<8xf32>
//          ON:   arith.shli {{.+}} : vector<8xi32>

/// A product of the norm with gamma, then beta, from rows of their own: operands in the order of the operation.
//    ON-LABEL: func private @rms_norm_0.body(
//     ON-SAME:   %[[BETA:[^:]+]]: memref<24xf16>, %[[GAMMA:[^:]+]]: memref<24xf16>, %{{[^:]+}}: memref<24x64xf16>,
//          ON:   vector.fma
//          ON:   memref.load %[[GAMMA]]
//          ON:   memref.load %[[BETA]]
//          ON:   arith.mulf
//    ON-LABEL: func private @rms_norm_0.units(

/// A choice cuts columns otherwise: units are single vectors.
//   ONE-LABEL: func private @rms_norm_0.body(
//         ONE:   arith.remui %{{.+}}, %c8
//   ONE-LABEL: func private @rms_norm_0.units(
//         ONE:   return %c8

func.func private @softmax_0.mir(%x: tensor<?x33x20xf32>) -> tensor<?x33x20xf32> attributes {mir.kernel = "norm", mir.role = "kernel"} {
  %0 = mir.softmax %x axis 1 : tensor<?x33x20xf32>
  return %0 : tensor<?x33x20xf32>
}
func.func private @softmax_1.mir(%x: tensor<?x33x2xf32>) -> tensor<?x33x2xf32> attributes {mir.kernel = "norm", mir.role = "kernel"} {
  %0 = mir.softmax %x axis 1 : tensor<?x33x2xf32>
  return %0 : tensor<?x33x2xf32>
}
func.func private @softmax_2.mir(%x: tensor<8x?xf32>) -> tensor<8x?xf32> attributes {mir.kernel = "norm", mir.role = "kernel"} {
  %0 = mir.softmax %x : tensor<8x?xf32>
  return %0 : tensor<8x?xf32>
}
func.func private @softmax_3.mir(%x: tensor<33x20xf64>) -> tensor<33x20xf64> attributes {mir.kernel = "norm", mir.role = "kernel"} {
  %0 = mir.softmax %x axis 0 : tensor<33x20xf64>
  return %0 : tensor<33x20xf64>
}
func.func private @rms_norm_0.mir(%b: tensor<24xf16>, %g: tensor<24xf16>, %x: tensor<24x64xf16>) -> tensor<24x64xf16> attributes {mir.kernel = "norm", mir.role = "kernel"} {
  %0 = mir.rms_norm %x, %g beta(%b : tensor<24xf16>) axis 0 : tensor<24x64xf16>, tensor<24xf16>
  return %0 : tensor<24x64xf16>
}
