// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --emit-bytecode | rlx-opt | FileCheck %s

// CHECK-LABEL: func @quantize
//  CHECK-SAME:   (%[[X:.+]]: tensor<?xbf16>)
//       CHECK:   %[[Q:.+]] = mir.quantize %[[X]] scales [1.000000e-01] zero_points [-128] : tensor<?xbf16>
//       CHECK:   return %[[Q]] : tensor<?xi8>
func.func @quantize(%x: tensor<?xbf16>) -> tensor<?xi8> {
  %q = mir.quantize %x scales [0.1] zero_points [-128] : tensor<?xbf16>
  return %q : tensor<?xi8>
}

/// Numbers are printed such that they are read as they were.
// CHECK-LABEL: func @exact
//       CHECK:   scales [0.0122047244] zero_points [0]
func.func @exact(%x: tensor<f32>) -> tensor<i8> {
  %q = mir.quantize %x scales [0.0122047244] zero_points [0] : tensor<f32>
  return %q : tensor<i8>
}

/// The number of scales is the size of the dimension.
// CHECK-LABEL: func @quantize_channels
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?xf64>)
//       CHECK:   %[[Q:.+]] = mir.quantize %[[X]] scales [5.000000e-01, 3.000000e+00, 9.999940e-41] zero_points [0, 127, 1] axis -1 : tensor<2x?xf64>
//       CHECK:   return %[[Q]] : tensor<2x3xi8>
func.func @quantize_channels(%x: tensor<2x?xf64>) -> tensor<2x3xi8> {
  %q = mir.quantize %x scales [0.5, 3.0, 1.0e-40] zero_points [0, 127, 1] axis -1 : tensor<2x?xf64>
  return %q : tensor<2x3xi8>
}

// CHECK-LABEL: func @dequantize
//  CHECK-SAME:   (%[[Q:.+]]: tensor<0x2xi8>, %[[S:.+]]: tensor<i8>)
//       CHECK:   %[[X:.+]] = mir.dequantize %[[Q]] scales [5.000000e-01, 2.500000e-01] zero_points [0, 3] axis 1 : tensor<0x2xi8>
//       CHECK:   %[[Y:.+]] = mir.dequantize %[[S]] scales [5.000000e-01] zero_points [0] : tensor<i8>
//       CHECK:   return %[[X]], %[[Y]] : tensor<0x2xf32>, tensor<f32>
func.func @dequantize(%q: tensor<0x2xi8>, %s: tensor<i8>) -> (tensor<0x2xf32>, tensor<f32>) {
  %x = mir.dequantize %q scales [0.5, 0.25] zero_points [0, 3] axis 1 : tensor<0x2xi8>
  %y = mir.dequantize %s scales [0.5] zero_points [0] : tensor<i8>
  return %x, %y : tensor<0x2xf32>, tensor<f32>
}

/// What is default isn't printed.
// CHECK-LABEL: func @fake_quantize
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?xf16>)
//       CHECK:   %[[Y:.+]], %[[S:.+]] = mir.fake_quantize %[[X]] bits 8 : tensor<2x?xf16>
//       CHECK:   %{{.+}}, %[[C:.+]] = mir.fake_quantize %[[X]] bits 2 axis 1 ste hard_tanh : tensor<2x?xf16>
//       CHECK:   return %[[Y]], %[[S]], %[[C]] : tensor<2x?xf16>, tensor<1xf32>, tensor<?xf32>
func.func @fake_quantize(%x: tensor<2x?xf16>) -> (tensor<2x?xf16>, tensor<1xf32>, tensor<?xf32>) {
  %y, %s = mir.fake_quantize %x bits 8 ste identity scale_mode per_batch : tensor<2x?xf16>
  %z, %c = mir.fake_quantize %x bits 2 axis 1 ste hard_tanh : tensor<2x?xf16>
  return %y, %s, %c : tensor<2x?xf16>, tensor<1xf32>, tensor<?xf32>
}

// CHECK-LABEL: func @fake_quantize_state
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?xf32>, %[[S:.+]]: tensor<3xf32>, %[[ONE:.+]]: tensor<1xf32>)
//       CHECK:   %[[Y:.+]], %[[NEXT:.+]] = mir.fake_quantize %[[X]] state %[[S]] bits 4 axis 1 scale_mode ema decay 1.000000e+00 : tensor<2x?xf32>, tensor<3xf32>
//       CHECK:   mir.fake_quantize %[[X]] state %[[ONE]] bits 4 scale_mode fixed : tensor<2x?xf32>, tensor<1xf32>
//       CHECK:   return %[[Y]], %[[NEXT]] : tensor<2x3xf32>, tensor<3xf32>
func.func @fake_quantize_state(%x: tensor<2x?xf32>, %s: tensor<3xf32>, %one: tensor<1xf32>) -> (tensor<2x3xf32>, tensor<3xf32>) {
  %y, %next = mir.fake_quantize %x state %s bits 4 axis 1 scale_mode ema decay 1.0 : tensor<2x?xf32>, tensor<3xf32>
  %z, %same = mir.fake_quantize %x state %one bits 4 scale_mode fixed : tensor<2x?xf32>, tensor<1xf32>
  return %y, %next : tensor<2x3xf32>, tensor<3xf32>
}

// CHECK-LABEL: func @fake_quantize_backward
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x?xf32>, %[[S:.+]]: tensor<?xf32>)
//       CHECK:   %[[D:.+]] = mir.fake_quantize_backward %[[X]], %[[S]], %[[X]] bits 8 axis 0 ste tanh : tensor<?x?xf32>, tensor<?xf32>
//       CHECK:   mir.fake_quantize_backward %[[X]], %[[S]], %[[X]] bits 8 axis 0 : tensor<?x?xf32>, tensor<?xf32>
//       CHECK:   return %[[D]] : tensor<?x?xf32>
func.func @fake_quantize_backward(%x: tensor<?x?xf32>, %s: tensor<?xf32>) -> tensor<?x?xf32> {
  %d = mir.fake_quantize_backward %x, %s, %x bits 8 axis 0 ste tanh : tensor<?x?xf32>, tensor<?xf32>
  %e = mir.fake_quantize_backward %x, %s, %x bits 8 axis 0 : tensor<?x?xf32>, tensor<?xf32>
  return %d : tensor<?x?xf32>
}

// CHECK-LABEL: func @fake_quantize_lsq
//  CHECK-SAME:   (%[[X:.+]]: tensor<?xf32>, %[[S:.+]]: tensor<1xf32>)
//       CHECK:   %[[Y:.+]] = mir.fake_quantize_lsq %[[X]], %[[S]] bits 2 : tensor<?xf32>, tensor<1xf32>
//       CHECK:   %[[DX:.+]] = mir.fake_quantize_lsq_backward_x %[[X]], %[[S]], %[[Y]] bits 2 : tensor<?xf32>, tensor<1xf32>
//       CHECK:   %[[DS:.+]] = mir.fake_quantize_lsq_backward_scale %[[X]], %[[S]], %[[Y]] bits 2 : tensor<?xf32>, tensor<1xf32>
//       CHECK:   return %[[DX]], %[[DS]] : tensor<?xf32>, tensor<1xf32>
func.func @fake_quantize_lsq(%x: tensor<?xf32>, %s: tensor<1xf32>) -> (tensor<?xf32>, tensor<1xf32>) {
  %y = mir.fake_quantize_lsq %x, %s bits 2 : tensor<?xf32>, tensor<1xf32>
  %dx = mir.fake_quantize_lsq_backward_x %x, %s, %y bits 2 : tensor<?xf32>, tensor<1xf32>
  %ds = mir.fake_quantize_lsq_backward_scale %x, %s, %y bits 2 : tensor<?xf32>, tensor<1xf32>
  return %dx, %ds : tensor<?xf32>, tensor<1xf32>
}

// CHECK-LABEL: func @q_matmul
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x?xi8>, %[[W:.+]]: tensor<8x?xi8>, %[[B:.+]]: tensor<4xi32>)
//       CHECK:   mir.q_matmul %[[X]], %[[W]] mult 5.000000e-01 : tensor<?x?xi8>, tensor<8x?xi8>
//       CHECK:   %[[Y:.+]] = mir.q_matmul %[[X]], %[[W]] bias %[[B]] x_zp 1 w_zp -2 out_zp 3 mult 5.000000e-01 : tensor<?x?xi8>, tensor<8x?xi8>, tensor<4xi32>
//       CHECK:   return %[[Y]] : tensor<?x4xi8>
func.func @q_matmul(%x: tensor<?x?xi8>, %w: tensor<8x?xi8>, %b: tensor<4xi32>) -> tensor<?x4xi8> {
  %y = mir.q_matmul %x, %w x_zp 0 w_zp 0 out_zp 0 mult 0.5 : tensor<?x?xi8>, tensor<8x?xi8>
  %z = mir.q_matmul %x, %w bias %b x_zp 1 w_zp -2 out_zp 3 mult 0.5 : tensor<?x?xi8>, tensor<8x?xi8>, tensor<4xi32>
  return %z : tensor<?x4xi8>
}

// CHECK-LABEL: func @q_conv2d
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x4x5x?xi8>, %[[W:.+]]: tensor<8x2x3x2xi8>, %[[B:.+]]: tensor<8xi32>)
//       CHECK:   mir.q_conv2d %[[X]], %[[W]] groups 2 mult 5.000000e-01 : tensor<2x4x5x?xi8>, tensor<8x2x3x2xi8>
//       CHECK:   %[[Y:.+]] = mir.q_conv2d %[[X]], %[[W]] bias %[[B]] stride [2, 3] padding [1, 4] dilation [2, 5] groups 2 x_zp 1 w_zp -2 out_zp 3 mult 5.000000e-01 : tensor<2x4x5x?xi8>, tensor<8x2x3x2xi8>, tensor<8xi32>
//       CHECK:   return %[[Y]] : tensor<2x8x2x?xi8>
func.func @q_conv2d(%x: tensor<2x4x5x?xi8>, %w: tensor<8x2x3x2xi8>, %b: tensor<8xi32>) -> tensor<2x8x2x?xi8> {
  %y = mir.q_conv2d %x, %w groups 2 mult 0.5 : tensor<2x4x5x?xi8>, tensor<8x2x3x2xi8>
  %z = mir.q_conv2d %x, %w bias %b stride [2, 3] padding [1, 4] dilation [2, 5] groups 2 x_zp 1 w_zp -2 out_zp 3 mult 0.5
      : tensor<2x4x5x?xi8>, tensor<8x2x3x2xi8>, tensor<8xi32>
  return %z : tensor<2x8x2x?xi8>
}
