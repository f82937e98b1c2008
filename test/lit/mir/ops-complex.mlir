// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @parts
//  CHECK-SAME:   (%[[A:.+]]: tensor<?x8xf32>, %[[B:.+]]: tensor<8xf32>)
//       CHECK:   %[[Z:.+]] = mir.complex %[[A]], %[[B]] : tensor<?x8xf32>, tensor<8xf32>
//       CHECK:   mir.complex %[[A]], %[[A]] : tensor<?x8xf32>
//       CHECK:   mir.real %[[Z]] : tensor<?x8xcomplex<f32>>
//       CHECK:   mir.imag %[[Z]] : tensor<?x8xcomplex<f32>>
//       CHECK:   mir.conjugate %[[Z]] : tensor<?x8xcomplex<f32>>
//       CHECK:   %[[N:.+]] = mir.complex_norm_sq %[[Z]] : tensor<?x8xcomplex<f32>>
//       CHECK:   return %[[N]] : tensor<?x8xf32>
func.func @parts(%a: tensor<?x8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %0 = mir.complex %a, %b : tensor<?x8xf32>, tensor<8xf32>
  %1 = mir.complex %a, %a : tensor<?x8xf32>
  %2 = mir.real %0 : tensor<?x8xcomplex<f32>>
  %3 = mir.imag %0 : tensor<?x8xcomplex<f32>>
  %4 = mir.conjugate %0 : tensor<?x8xcomplex<f32>>
  %5 = mir.complex_norm_sq %0 : tensor<?x8xcomplex<f32>>
  return %5 : tensor<?x8xf32>
}

/// Arithmetic, moves, sums and casts are those of other numbers.
// CHECK-LABEL: func @arithmetic
//  CHECK-SAME:   (%[[Z:.+]]: tensor<?x8xcomplex<f32>>, %[[I:.+]]: tensor<3xi32>)
//       CHECK:   mir.add %[[Z]], %[[Z]] : tensor<?x8xcomplex<f32>>
//       CHECK:   mir.div %[[Z]], %[[Z]] : tensor<?x8xcomplex<f32>>
//       CHECK:   mir.neg %[[Z]] : tensor<?x8xcomplex<f32>>
//       CHECK:   mir.reduce sum %[[Z]] axes [0] : tensor<?x8xcomplex<f32>>
//       CHECK:   mir.reduce mean %[[Z]] axes [1] : tensor<?x8xcomplex<f32>>
//       CHECK:   mir.gather %[[Z]], %[[I]] axis 1 : tensor<?x8xcomplex<f32>>, tensor<3xi32>
//       CHECK:   mir.cast %[[Z]] : tensor<?x8xcomplex<f32>> to tensor<?x8xf16>
//       CHECK:   mir.cast %[[I]] : tensor<3xi32> to tensor<3xcomplex<f32>>
func.func @arithmetic(%z: tensor<?x8xcomplex<f32>>, %i: tensor<3xi32>) -> tensor<3xcomplex<f32>> {
  %0 = mir.add %z, %z : tensor<?x8xcomplex<f32>>
  %1 = mir.div %z, %z : tensor<?x8xcomplex<f32>>
  %2 = mir.neg %z : tensor<?x8xcomplex<f32>>
  %3 = mir.reduce sum %z axes [0] : tensor<?x8xcomplex<f32>>
  %4 = mir.reduce mean %z axes [1] : tensor<?x8xcomplex<f32>>
  %5 = mir.gather %z, %i axis 1 : tensor<?x8xcomplex<f32>>, tensor<3xi32>
  %6 = mir.cast %z : tensor<?x8xcomplex<f32>> to tensor<?x8xf16>
  %7 = mir.cast %i : tensor<3xi32> to tensor<3xcomplex<f32>>
  return %7 : tensor<3xcomplex<f32>>
}

/// Functions of complex numbers, and the gradient of their squares.
// CHECK-LABEL: func @functions
//  CHECK-SAME:   (%[[Z:.+]]: tensor<?x8xcomplex<f32>>, %[[G:.+]]: tensor<4x?xf32>)
//       CHECK:   mir.exp %[[Z]] : tensor<?x8xcomplex<f32>>
//       CHECK:   mir.log %[[Z]] : tensor<?x8xcomplex<f32>>
//       CHECK:   mir.sqrt %[[Z]] : tensor<?x8xcomplex<f32>>
//       CHECK:   %[[D:.+]] = mir.complex_norm_sq_backward %[[Z]], %[[G]] : tensor<?x8xcomplex<f32>>, tensor<4x?xf32>
//       CHECK:   return %[[D]] : tensor<4x8xcomplex<f32>>
func.func @functions(%z: tensor<?x8xcomplex<f32>>, %g: tensor<4x?xf32>) -> tensor<4x8xcomplex<f32>> {
  %0 = mir.exp %z : tensor<?x8xcomplex<f32>>
  %1 = mir.log %z : tensor<?x8xcomplex<f32>>
  %2 = mir.sqrt %z : tensor<?x8xcomplex<f32>>
  %3 = mir.complex_norm_sq_backward %z, %g : tensor<?x8xcomplex<f32>>, tensor<4x?xf32>
  return %3 : tensor<4x8xcomplex<f32>>
}
