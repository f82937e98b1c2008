// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @sample
//  CHECK-SAME:   (%[[V:.+]]: tensor<?x8xf32>, %[[I:.+]]: tensor<?x8xi32>, %[[C:.+]]: tensor<?x3xf32>, %[[D:.+]]: tensor<?x?xf32>, %[[S:.+]]: tensor<2x16xi32>, %[[P:.+]]: tensor<?xi32>)
//       CHECK:   %{{.+}}, %{{.+}}, %{{.+}} = mir.sample %[[V]], %[[I]] by %[[C]], %[[D]] in %[[S]] at %[[P]]
//  CHECK-SAME:     : tensor<?x8xf32>, tensor<?x8xi32>, tensor<?x3xf32>, tensor<?x?xf32>, tensor<2x16xi32>, tensor<?xi32>
func.func @sample(%v: tensor<?x8xf32>, %i: tensor<?x8xi32>, %c: tensor<?x3xf32>, %d: tensor<?x?xf32>,
                  %s: tensor<2x16xi32>, %p: tensor<?xi32>) -> (tensor<?x1xi32>, tensor<?xi32>, tensor<2x16xi32>) {
  %token, %next, %chosen = mir.sample %v, %i by %c, %d in %s at %p
      : tensor<?x8xf32>, tensor<?x8xi32>, tensor<?x3xf32>, tensor<?x?xf32>, tensor<2x16xi32>, tensor<?xi32>
  return %token, %next, %chosen : tensor<?x1xi32>, tensor<?xi32>, tensor<2x16xi32>
}
