// RUN: rlx-opt %s --pass-pipeline='builtin.module(func.func(mir-to-linalg))' | FileCheck %s

/// 32 rows of the weight are decoded at a time; the 8 that are left follow the loop.
// CHECK-LABEL: func @int4
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x72xf32>, %[[W:.+]]: tensor<180xi8>, %[[S:.+]]: tensor<3x5xf32>)
//       CHECK:   scf.for %[[I:.+]] = %{{.+}} to %{{.+}} step %{{.+}} iter_args(%[[T:.+]] = %{{.+}}) -> (tensor<?x5xf32>)
//       CHECK:     %[[D:.+]] = linalg.generic {{.+}} outs(%{{.+}} : tensor<32x5xf32>)
//       CHECK:       tensor.extract %[[W]]
//       CHECK:       tensor.extract %[[S]]
//       CHECK:     %[[P:.+]] = tensor.extract_slice %[[X]][0, %{{.+}}] [%{{.+}}, 32] [1, 1]
//       CHECK:     %[[N:.+]] = linalg.generic {{.+}} ins(%[[P]], %[[D]] : {{.+}}) outs(%[[T]] : {{.+}})
//       CHECK:     scf.yield %[[N]]
//       CHECK:   linalg.generic {{.+}} outs(%{{.+}} : tensor<8x5xf32>)
//       CHECK:   tensor.extract_slice %[[X]][0, %{{.+}}] [%{{.+}}, 8] [1, 1]
func.func @int4(%x: tensor<?x72xf32>, %w: tensor<180xi8>, %s: tensor<3x5xf32>) -> tensor<?x5xf32> {
  %y = mir.dequant_matmul_scaled %x, %w scale %s scheme int4 block 32 : tensor<?x72xf32>, tensor<180xi8>, tensor<3x5xf32>
  return %y : tensor<?x5xf32>
}
