// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @fused_swiglu
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x16xf32>, %[[Y:.+]]: tensor<?xf16>)
//       CHECK:   %[[A:.+]] = mir.fused_swiglu %[[X]] : tensor<2x?x16xf32>
//       CHECK:   %[[B:.+]] = mir.fused_swiglu %[[Y]] gate_first : tensor<?xf16>
//       CHECK:   return %[[A]], %[[B]] : tensor<2x?x8xf32>, tensor<?xf16>
func.func @fused_swiglu(%x: tensor<2x?x16xf32>, %y: tensor<?xf16>) -> (tensor<2x?x8xf32>, tensor<?xf16>) {
  %a = mir.fused_swiglu %x : tensor<2x?x16xf32>
  %b = mir.fused_swiglu %y gate_first : tensor<?xf16>
  return %a, %b : tensor<2x?x8xf32>, tensor<?xf16>
}
