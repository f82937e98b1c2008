// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --emit-bytecode | rlx-opt | FileCheck %s

/// What is default isn't printed.
// CHECK-LABEL: func @pool_default
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x4x5x6xbf16>)
//       CHECK:   %[[Y:.+]] = mir.pool mean %[[X]] kernel [3, 2] : tensor<2x4x5x6xbf16>
//       CHECK:   return %[[Y]] : tensor<2x4x3x5xbf16>
func.func @pool_default(%x: tensor<2x4x5x6xbf16>) -> tensor<2x4x3x5xbf16> {
  %y = mir.pool mean %x kernel [3, 2] stride [1, 1] padding [0, 0] : tensor<2x4x5x6xbf16>
  return %y : tensor<2x4x3x5xbf16>
}

/// Sizes that aren't known give sizes that aren't known; integers have all kinds but the mean.
// CHECK-LABEL: func @pool_dynamic
//       CHECK:   mir.pool max %{{.+}} kernel [3, 2] stride [2, 3] padding [4, 0] : tensor<?x?x?x6xf32>
//       CHECK:   mir.pool min %{{.+}} kernel [2, 2] stride [2, 2] : tensor<1x1x4x4xui8>
//       CHECK:   mir.pool sum %{{.+}} kernel [2, 2] : tensor<1x1x4x4xui8>
//       CHECK:   mir.pool prod %{{.+}} kernel [2, 2] : tensor<1x1x4x4xui8>
//       CHECK:   return %{{.+}} : tensor<?x?x?x2xf32>
func.func @pool_dynamic(%x: tensor<?x?x?x6xf32>, %i: tensor<1x1x4x4xui8>) -> tensor<?x?x?x2xf32> {
  %y = mir.pool max %x kernel [3, 2] stride [2, 3] padding [4, 0] : tensor<?x?x?x6xf32>
  %a = mir.pool min %i kernel [2, 2] stride [2, 2] : tensor<1x1x4x4xui8>
  %b = mir.pool sum %i kernel [2, 2] : tensor<1x1x4x4xui8>
  %c = mir.pool prod %i kernel [2, 2] : tensor<1x1x4x4xui8>
  return %y : tensor<?x?x?x2xf32>
}

/// One short of the kernel: no window.
// CHECK-LABEL: func @pool_of_nothing
//       CHECK:   return %{{.+}} : tensor<1x1x0x1xf32>
func.func @pool_of_nothing(%x: tensor<1x1x2x3xf32>) -> tensor<1x1x0x1xf32> {
  %y = mir.pool max %x kernel [3, 3] stride [2, 1] : tensor<1x1x2x3xf32>
  return %y : tensor<1x1x0x1xf32>
}

// CHECK-LABEL: func @max_pool2d_backward
//       CHECK:   mir.max_pool2d_backward %{{.+}}, %{{.+}} kernel [3, 3] stride [2, 2] padding [1, 1] : tensor<?x8x?x32xf32>, tensor<?x8x?x16xf32>
//       CHECK:   mir.max_pool2d_backward %{{.+}}, %{{.+}} kernel [1, 32] : tensor<?x8x?x32xf32>, tensor<?x8x?x1xf32>
func.func @max_pool2d_backward(%x: tensor<?x8x?x32xf32>, %dy: tensor<?x8x?x16xf32>, %dz: tensor<?x8x?x1xf32>) {
  %0 = mir.max_pool2d_backward %x, %dy kernel [3, 3] stride [2, 2] padding [1, 1] : tensor<?x8x?x32xf32>, tensor<?x8x?x16xf32>
  %1 = mir.max_pool2d_backward %x, %dz kernel [1, 32] : tensor<?x8x?x32xf32>, tensor<?x8x?x1xf32>
  return
}

// CHECK-LABEL: func @group_norm
//       CHECK:   mir.group_norm %{{.+}}, %{{.+}} groups 4 : tensor<?x8x?x?xf16>, tensor<8xf16>
//       CHECK:   mir.group_norm %{{.+}}, %{{.+}} beta(%{{.+}} : tensor<8xf16>) groups 2 eps 2.500000e-01 : tensor<?x8x?x?xf16>, tensor<8xf16>
//       CHECK:   mir.group_norm %{{.+}}, %{{.+}} groups 3 : tensor<1x?x2x2xf16>, tensor<?xf16>
func.func @group_norm(%x: tensor<?x8x?x?xf16>, %g: tensor<8xf16>, %c: tensor<1x?x2x2xf16>, %v: tensor<?xf16>) {
  %0 = mir.group_norm %x, %g groups 4 eps 1.0e-05 : tensor<?x8x?x?xf16>, tensor<8xf16>
  %1 = mir.group_norm %x, %g beta(%g : tensor<8xf16>) groups 2 eps 0.25 : tensor<?x8x?x?xf16>, tensor<8xf16>
  %2 = mir.group_norm %c, %v groups 3 : tensor<1x?x2x2xf16>, tensor<?xf16>
  return
}

// CHECK-LABEL: func @group_norm_backward
//       CHECK:   mir.group_norm_backward_input %{{.+}}, %{{.+}}, %{{.+}} groups 4 eps 2.500000e-01 : tensor<?x8x?x?xf64>, tensor<8xf64>
//       CHECK:   %[[G:.+]] = mir.group_norm_backward_gamma %{{.+}}, %{{.+}} groups 4 : tensor<?x8x?x?xf64>
//       CHECK:   %[[B:.+]] = mir.group_norm_backward_beta %{{.+}} : tensor<?x8x?x?xf64>
//       CHECK:   return %[[G]], %[[B]] : tensor<8xf64>, tensor<8xf64>
func.func @group_norm_backward(%x: tensor<?x8x?x?xf64>, %g: tensor<8xf64>) -> (tensor<8xf64>, tensor<8xf64>) {
  %0 = mir.group_norm_backward_input %x, %g, %x groups 4 eps 0.25 : tensor<?x8x?x?xf64>, tensor<8xf64>
  %1 = mir.group_norm_backward_gamma %x, %x groups 4 : tensor<?x8x?x?xf64>
  %2 = mir.group_norm_backward_beta %x : tensor<?x8x?x?xf64>
  return %1, %2 : tensor<8xf64>, tensor<8xf64>
}

// CHECK-LABEL: func @pixels
//       CHECK:   %[[Y:.+]] = mir.resize_nearest_2x %{{.+}} : tensor<?x3x?x5xcomplex<f32>>
//       CHECK:   mir.axial_rope2d %{{.+}} end_x 4 end_y 3 head_dim 32 : tensor<2x12x64xf32>
//       CHECK:   mir.axial_rope2d %{{.+}} end_x 2 end_y 2 head_dim 32 theta 1.000000e+02 repeat 3 : tensor<2x12x64xf32>
//       CHECK:   return %[[Y]] : tensor<?x3x?x10xcomplex<f32>>
func.func @pixels(%x: tensor<?x3x?x5xcomplex<f32>>, %t: tensor<2x12x64xf32>) -> tensor<?x3x?x10xcomplex<f32>> {
  %0 = mir.resize_nearest_2x %x : tensor<?x3x?x5xcomplex<f32>>
  %1 = mir.axial_rope2d %t end_x 4 end_y 3 head_dim 32 theta 1.0e+04 repeat 1 : tensor<2x12x64xf32>
  %2 = mir.axial_rope2d %t end_x 2 end_y 2 head_dim 32 theta 100.0 repeat 3 : tensor<2x12x64xf32>
  return %0 : tensor<?x3x?x10xcomplex<f32>>
}
