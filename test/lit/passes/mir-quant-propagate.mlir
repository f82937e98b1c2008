// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-quant-propagate)' | FileCheck %s

// CHECK-LABEL: func @product
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xi8>, %[[W:.+]]: tensor<8x4xi8>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.q_matmul %[[X]], %[[W]] x_zp 3 out_zp -5 mult 6.250000e-02 : tensor<?x8xi8>, tensor<8x4xi8>
//  CHECK-NEXT:   return %[[Y]]
func.func @product(%x: tensor<?x8xi8>, %w: tensor<8x4xi8>) -> tensor<?x4xi8> {
  %dx = mir.dequantize %x scales [0.25] zero_points [3] : tensor<?x8xi8>
  %dw = mir.dequantize %w scales [0.5] zero_points [0] : tensor<8x4xi8>
  %p = mir.matmul %dx, %dw : tensor<?x8xf32>, tensor<8x4xf32>
  %y = mir.quantize %p scales [2.0] zero_points [-5] : tensor<?x4xf32>
  return %y : tensor<?x4xi8>
}

/// A bias is in units of the product; rows of more dimensions are one, and weights that are turned are turned back.
// CHECK-LABEL: func @bias
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x8xi8>, %[[W:.+]]: tensor<4x8xi8>, %[[B:.+]]: tensor<4xf32>)
//   CHECK-DAG:   %[[C:.+]] = mir.constant dense<8.000000e+00> : tensor<f32>
//   CHECK-DAG:   %[[M:.+]] = mir.mul %[[B]], %[[C]]
//   CHECK-DAG:   %[[R:.+]] = mir.round %[[M]]
//   CHECK-DAG:   %[[I:.+]] = mir.cast %[[R]] : tensor<4xf32> to tensor<4xi32>
//   CHECK-DAG:   %[[T:.+]] = mir.transpose %[[W]]
//   CHECK-DAG:   %[[ROWS:.+]] = mir.reshape %[[X]] to [-1, 8] : tensor<2x?x8xi8>
//       CHECK:   %[[Q:.+]] = mir.q_matmul %[[ROWS]], %[[T]] bias %[[I]] mult 1.250000e-01
//       CHECK:   %[[Y:.+]] = mir.reshape %[[Q]] to [2, -1, 4] : tensor<?x4xi8>
//       CHECK:   return %[[Y]]
func.func @bias(%x: tensor<2x?x8xi8>, %w: tensor<4x8xi8>, %b: tensor<4xf32>) -> tensor<2x?x4xi8> {
  %dx = mir.dequantize %x scales [0.25] zero_points [0] : tensor<2x?x8xi8>
  %dw = mir.dequantize %w scales [0.5] zero_points [0] : tensor<4x8xi8>
  %p = mir.matmul %dx, %dw transpose_rhs : tensor<2x?x8xf32>, tensor<4x8xf32>
  %s = mir.add %b, %p : tensor<4xf32>, tensor<2x?x4xf32>
  %y = mir.quantize %s scales [1.0] zero_points [0] : tensor<2x?x4xf32>
  return %y : tensor<2x?x4xi8>
}

// CHECK-LABEL: func @convolution
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x4x5x6xi8>, %[[W:.+]]: tensor<6x2x3x3xi8>, %[[B:.+]]: tensor<6x1x1xf32>)
//       CHECK:   mir.reshape %[[B]]
//       CHECK:   %[[I:.+]] = mir.cast %{{.+}} : tensor<6xf32> to tensor<6xi32>
//       CHECK:   %[[Y:.+]] = mir.q_conv2d %[[X]], %[[W]] bias %[[I]] padding [1, 1] groups 2 x_zp -128 mult 1.250000e-01
//       CHECK:   return %[[Y]]
func.func @convolution(%x: tensor<?x4x5x6xi8>, %w: tensor<6x2x3x3xi8>, %b: tensor<6x1x1xf32>) -> tensor<?x6x5x6xi8> {
  %dx = mir.dequantize %x scales [0.25] zero_points [-128] : tensor<?x4x5x6xi8>
  %dw = mir.dequantize %w scales [0.5] zero_points [0] : tensor<6x2x3x3xi8>
  %p = mir.conv %dx, %dw padding [1, 1] groups 2 : tensor<?x4x5x6xf32>, tensor<6x2x3x3xf32>
  %s = mir.add %p, %b : tensor<?x6x5x6xf32>, tensor<6x1x1xf32>
  %y = mir.quantize %s scales [1.0] zero_points [0] : tensor<?x6x5x6xf32>
  return %y : tensor<?x6x5x6xi8>
}

/// A tensor that is quantised as it was is what it was; by other scales it is rounded anew.
// CHECK-LABEL: func @again
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xi8>)
//       CHECK:   %[[D:.+]] = mir.dequantize %[[X]]
//       CHECK:   %[[Z:.+]] = mir.quantize %[[D]] scales [5.000000e-01]
//       CHECK:   return %[[X]], %[[Z]]
func.func @again(%x: tensor<4xi8>) -> (tensor<4xi8>, tensor<4xi8>) {
  %d = mir.dequantize %x scales [0.25] zero_points [1] : tensor<4xi8>
  %y = mir.quantize %d scales [0.25] zero_points [1] : tensor<4xf32>
  %z = mir.quantize %d scales [0.5] zero_points [1] : tensor<4xf32>
  return %y, %z : tensor<4xi8>, tensor<4xi8>
}

/// Scales of channels, products that something else reads, and operands of floats stay.
// CHECK-LABEL: func @stay
//   CHECK-NOT:   mir.q_matmul
//       CHECK:   return
func.func @stay(%x: tensor<2x8xi8>, %w: tensor<8x2xi8>, %f: tensor<2x8xf32>) -> (tensor<2x2xi8>, tensor<2x2xi8>, tensor<2x2xi8>, tensor<2x2xf32>) {
  %dx = mir.dequantize %x scales [0.25] zero_points [0] : tensor<2x8xi8>
  %dw = mir.dequantize %w scales [0.5] zero_points [0] : tensor<8x2xi8>
  %dc = mir.dequantize %w scales [0.5, 0.25] zero_points [0, 0] axis 1 : tensor<8x2xi8>
  %p = mir.matmul %dx, %dc : tensor<2x8xf32>, tensor<8x2xf32>
  %y = mir.quantize %p scales [1.0] zero_points [0] : tensor<2x2xf32>
  %r = mir.matmul %f, %dw : tensor<2x8xf32>, tensor<8x2xf32>
  %z = mir.quantize %r scales [1.0] zero_points [0] : tensor<2x2xf32>
  %s = mir.matmul %dx, %dw : tensor<2x8xf32>, tensor<8x2xf32>
  %t = mir.quantize %s scales [1.0] zero_points [0] : tensor<2x2xf32>
  return %y, %z, %t, %s : tensor<2x2xi8>, tensor<2x2xi8>, tensor<2x2xi8>, tensor<2x2xf32>
}

/// Several dimensions that number rows are one while they are multiplied, of any sizes.
// CHECK-LABEL: func @rows
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x2x?x8xi8>, %[[W:.+]]: tensor<8x4xi8>)
//       CHECK:   %[[R:.+]] = mir.reshape %[[X]] to [-1, 8]
//       CHECK:   %[[Y:.+]] = mir.q_matmul %[[R]], %[[W]]
//       CHECK:   mir.reshape %[[Y]] to [-3, 2, -3, 4] sizes ["d0", "d1"] like %[[X]], %[[X]] dims [0, 2]
func.func @rows(%x: tensor<?x2x?x8xi8>, %w: tensor<8x4xi8>) -> tensor<?x2x?x4xi8> {
  %dx = mir.dequantize %x scales [0.25] zero_points [3] : tensor<?x2x?x8xi8>
  %dw = mir.dequantize %w scales [0.5] zero_points [0] : tensor<8x4xi8>
  %p = mir.matmul %dx, %dw : tensor<?x2x?x8xf32>, tensor<8x4xf32>
  %y = mir.quantize %p scales [1.0] zero_points [0] : tensor<?x2x?x4xf32>
  return %y : tensor<?x2x?x4xi8>
}

/// So is what the weights have of outputs.
// CHECK-LABEL: func @outputs
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x?x8xi8>, %[[W:.+]]: tensor<8x?xi8>)
//       CHECK:   %[[R:.+]] = mir.reshape %[[X]] to [-1, 8]
//       CHECK:   %[[Y:.+]] = mir.q_matmul %[[R]], %[[W]]
//       CHECK:   mir.reshape %[[Y]] to [-3, -3, -1] sizes ["d0", "d1"] like %[[X]], %[[X]] dims [0, 1]
func.func @outputs(%x: tensor<?x?x8xi8>, %w: tensor<8x?xi8>) -> tensor<?x?x?xi8> {
  %dx = mir.dequantize %x scales [0.25] zero_points [3] : tensor<?x?x8xi8>
  %dw = mir.dequantize %w scales [0.5] zero_points [0] : tensor<8x?xi8>
  %p = mir.matmul %dx, %dw : tensor<?x?x8xf32>, tensor<8x?xf32>
  %y = mir.quantize %p scales [1.0] zero_points [0] : tensor<?x?x?xf32>
  return %y : tensor<?x?x?xi8>
}
