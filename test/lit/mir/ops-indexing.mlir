// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --canonicalize | FileCheck %s --check-prefix=FOLD

// CHECK-LABEL: func @scatter_add
//  CHECK-SAME:   (%[[U:.+]]: tensor<2x?x8xbf16>, %[[I:.+]]: tensor<2x?xui8>, %[[T:.+]]: tensor<?x8xf32>)
//       CHECK:   %[[A:.+]] = mir.scatter_add %[[U]], %[[I]] axis 0 size 16 : tensor<2x?x8xbf16>, tensor<2x?xui8>
//       CHECK:   %[[B:.+]] = mir.scatter_add %[[U]], %[[I]] axis 0 like %[[T]] : tensor<2x?x8xbf16>, tensor<2x?xui8>, tensor<?x8xf32>
//       CHECK:   return %[[A]], %[[B]] : tensor<16x8xbf16>, tensor<?x8xbf16>
func.func @scatter_add(%u: tensor<2x?x8xbf16>, %i: tensor<2x?xui8>, %t: tensor<?x8xf32>) -> (tensor<16x8xbf16>, tensor<?x8xbf16>) {
  %a = mir.scatter_add %u, %i axis 0 size 16 : tensor<2x?x8xbf16>, tensor<2x?xui8>
  %b = mir.scatter_add %u, %i axis 0 like %t : tensor<2x?x8xbf16>, tensor<2x?xui8>, tensor<?x8xf32>
  return %a, %b : tensor<16x8xbf16>, tensor<?x8xbf16>
}

/// In the middle, at the end, of one number, and into nothing.
// CHECK-LABEL: func @scatter_add_axes
//       CHECK:   mir.scatter_add %{{.+}}, %{{.+}} axis 1 size 5 : tensor<2x3x4xcomplex<f32>>, tensor<3xi64>
//       CHECK:   mir.scatter_add %{{.+}}, %{{.+}} axis 3 size 0 : tensor<2x3x4xcomplex<f32>>, tensor<f32>
//       CHECK:   return %{{.+}}, %{{.+}} : tensor<2x5x4xcomplex<f32>>, tensor<2x3x4x0xcomplex<f32>>
func.func @scatter_add_axes(%u: tensor<2x3x4xcomplex<f32>>, %i: tensor<3xi64>, %j: tensor<f32>)
    -> (tensor<2x5x4xcomplex<f32>>, tensor<2x3x4x0xcomplex<f32>>) {
  %a = mir.scatter_add %u, %i axis 1 size 5 : tensor<2x3x4xcomplex<f32>>, tensor<3xi64>
  %b = mir.scatter_add %u, %j axis 3 size 0 : tensor<2x3x4xcomplex<f32>>, tensor<f32>
  return %a, %b : tensor<2x5x4xcomplex<f32>>, tensor<2x3x4x0xcomplex<f32>>
}

/// A size that the type of `like` has is a number.
// FOLD-LABEL: func @scatter_add_like
//  FOLD-SAME:   (%[[U:.+]]: tensor<?x8xf32>, %[[I:.+]]: tensor<?xi32>, %{{.+}}: tensor<7x9xi1>)
//       FOLD:   mir.scatter_add %[[U]], %[[I]] axis 0 size 7 : tensor<?x8xf32>, tensor<?xi32>
func.func @scatter_add_like(%u: tensor<?x8xf32>, %i: tensor<?xi32>, %t: tensor<7x9xi1>) -> tensor<7x8xf32> {
  %a = mir.scatter_add %u, %i axis 0 like %t : tensor<?x8xf32>, tensor<?xi32>, tensor<7x9xi1>
  return %a : tensor<7x8xf32>
}
