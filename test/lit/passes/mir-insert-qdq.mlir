// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-insert-qdq)' | FileCheck %s --check-prefixes=CHECK,OPEN
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-insert-qdq{symmetric=true})' | FileCheck %s --check-prefixes=CHECK,EVEN

/// Ranges hold 0 exactly: those of x become -1 to 1.55, with 0 at 28 - 128. Weights are symmetric.
// CHECK-LABEL: func @product
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[W:.+]]: tensor<8x4xf32>, %[[B:.+]]: tensor<4xf32>)
//        OPEN:   %[[QX:.+]] = mir.quantize %[[X]] scales [0.00999999977] zero_points [-28]
//        EVEN:   %[[QX:.+]] = mir.quantize %[[X]] scales [0.0122047244] zero_points [0]
//       CHECK:   %[[DX:.+]] = mir.dequantize %[[QX]]
//       CHECK:   %[[QW:.+]] = mir.quantize %[[W]] scales [1.000000e+00] zero_points [0]
//       CHECK:   %[[DW:.+]] = mir.dequantize %[[QW]] scales [1.000000e+00] zero_points [0]
//       CHECK:   %[[P:.+]] = mir.matmul %[[DX]], %[[DW]] : tensor<?x8xf32>, tensor<8x4xf32>
//       CHECK:   %[[Y:.+]] = mir.add %[[P]], %[[B]]
//        OPEN:   %[[QY:.+]] = mir.quantize %[[Y]] scales [1.000000e+00] zero_points [-128]
//        EVEN:   %[[QY:.+]] = mir.quantize %[[Y]] scales [2.00787401] zero_points [0]
//       CHECK:   %[[DY:.+]] = mir.dequantize %[[QY]]
//       CHECK:   return %[[DY]]
func.func @product(%x: tensor<?x8xf32>, %w: tensor<8x4xf32>, %b: tensor<4xf32>) -> tensor<?x4xf32> {
  %p = mir.matmul %x, %w {mir.ranges = [[-1.0 : f32, 1.55 : f32], [-127.0 : f32, 4.0 : f32], [3.0 : f32, 255.0 : f32]]} : tensor<?x8xf32>, tensor<8x4xf32>
  %y = mir.add %p, %b : tensor<?x4xf32>, tensor<4xf32>
  return %y : tensor<?x4xf32>
}

/// A product that something else reads too is quantised without the bias, for all that read it.
// CHECK-LABEL: func @two_readers
//       CHECK:   %[[P:.+]] = mir.conv
//       CHECK:   %[[Q:.+]] = mir.quantize %[[P]]
//       CHECK:   %[[D:.+]] = mir.dequantize %[[Q]]
//       CHECK:   %[[Y:.+]] = mir.add %[[D]], %{{.+}}
//       CHECK:   return %[[D]], %[[Y]]
func.func @two_readers(%x: tensor<1x2x5x5xf32>, %w: tensor<3x2x3x3xf32>, %b: tensor<3x1x1xf32>) -> (tensor<1x3x3x3xf32>, tensor<1x3x3x3xf32>) {
  %p = mir.conv %x, %w {mir.ranges = [[-1.0 : f32, 1.0 : f32], [-1.0 : f32, 1.0 : f32], [-3.0 : f32, 3.0 : f32]]} : tensor<1x2x5x5xf32>, tensor<3x2x3x3xf32>
  %y = mir.add %p, %b : tensor<1x3x3x3xf32>, tensor<3x1x1xf32>
  return %p, %y : tensor<1x3x3x3xf32>, tensor<1x3x3x3xf32>
}

/// Without ranges, or of another type: as they are. Ranges of zeros alone have a scale all the same.
// CHECK-LABEL: func @others
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x2xf32>, %[[H:.+]]: tensor<2x2xbf16>)
//       CHECK:   mir.matmul %[[X]], %[[X]] : tensor<2x2xf32>, tensor<2x2xf32>
//       CHECK:   mir.matmul %[[H]], %[[H]]
//       CHECK:   mir.quantize %[[X]] scales [9.99999997E-7]
func.func @others(%x: tensor<2x2xf32>, %h: tensor<2x2xbf16>) -> (tensor<2x2xf32>, tensor<2x2xbf16>, tensor<2x2xf32>) {
  %p = mir.matmul %x, %x : tensor<2x2xf32>, tensor<2x2xf32>
  %r = mir.matmul %h, %h {mir.ranges = [[0.0 : f32, 1.0 : f32], [0.0 : f32, 1.0 : f32], [0.0 : f32, 1.0 : f32]]} : tensor<2x2xbf16>, tensor<2x2xbf16>
  %z = mir.matmul %x, %x {mir.ranges = [[0.0 : f32, 0.0 : f32], [0.0 : f32, 0.0 : f32], [0.0 : f32, 0.0 : f32]]} : tensor<2x2xf32>, tensor<2x2xf32>
  return %p, %r, %z : tensor<2x2xf32>, tensor<2x2xbf16>, tensor<2x2xf32>
}
