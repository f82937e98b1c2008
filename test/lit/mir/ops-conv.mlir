// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --emit-bytecode | rlx-opt | FileCheck %s

/// What is default isn't printed.
// CHECK-LABEL: func @conv_default
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x4x5x6xbf16>, %[[W:.+]]: tensor<8x4x3x2xbf16>)
//       CHECK:   %[[Y:.+]] = mir.conv %[[X]], %[[W]] : tensor<2x4x5x6xbf16>, tensor<8x4x3x2xbf16>
//       CHECK:   return %[[Y]] : tensor<2x8x3x5xbf16>
func.func @conv_default(%x: tensor<2x4x5x6xbf16>, %w: tensor<8x4x3x2xbf16>) -> tensor<2x8x3x5xbf16> {
  %y = mir.conv %x, %w stride [1, 1] padding [0, 0] dilation [1, 1] groups 1 : tensor<2x4x5x6xbf16>, tensor<8x4x3x2xbf16>
  return %y : tensor<2x8x3x5xbf16>
}

// CHECK-LABEL: func @conv
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x4x5x6xf32>, %[[W:.+]]: tensor<8x2x3x2xf32>)
//       CHECK:   %[[Y:.+]] = mir.conv %[[X]], %[[W]] stride [2, 3] padding [1, 4] dilation [2, 5] groups 2 : tensor<2x4x5x6xf32>, tensor<8x2x3x2xf32>
//       CHECK:   return %[[Y]] : tensor<2x8x2x3xf32>
func.func @conv(%x: tensor<2x4x5x6xf32>, %w: tensor<8x2x3x2xf32>) -> tensor<2x8x2x3xf32> {
  %y = mir.conv %x, %w stride [2, 3] padding [1, 4] dilation [2, 5] groups 2 : tensor<2x4x5x6xf32>, tensor<8x2x3x2xf32>
  return %y : tensor<2x8x2x3xf32>
}

/// Sizes that aren't known give sizes that aren't known, and are compared with nothing.
// CHECK-LABEL: func @conv_dynamic
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x?x?x6xf32>, %[[W:.+]]: tensor<?x?x3x2xf32>)
//       CHECK:   %[[Y:.+]] = mir.conv %[[X]], %[[W]] stride [1, 2] groups 3 : tensor<?x?x?x6xf32>, tensor<?x?x3x2xf32>
//       CHECK:   return %[[Y]] : tensor<?x?x?x3xf32>
func.func @conv_dynamic(%x: tensor<?x?x?x6xf32>, %w: tensor<?x?x3x2xf32>) -> tensor<?x?x?x3xf32> {
  %y = mir.conv %x, %w stride [1, 2] groups 3 : tensor<?x?x?x6xf32>, tensor<?x?x3x2xf32>
  return %y : tensor<?x?x?x3xf32>
}

/// One short of the kernel: no position, whatever the stride.
// CHECK-LABEL: func @conv_of_nothing
//       CHECK:   mir.conv %{{.+}}, %{{.+}} stride [2, 1] : tensor<1x1x2x3xf32>, tensor<1x1x3x3xf32>
//       CHECK:   return %{{.+}} : tensor<1x1x0x1xf32>
func.func @conv_of_nothing(%x: tensor<1x1x2x3xf32>, %w: tensor<1x1x3x3xf32>) -> tensor<1x1x0x1xf32> {
  %y = mir.conv %x, %w stride [2, 1] : tensor<1x1x2x3xf32>, tensor<1x1x3x3xf32>
  return %y : tensor<1x1x0x1xf32>
}

// CHECK-LABEL: func @conv_transpose2d_default
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x4x5x6xbf16>, %[[W:.+]]: tensor<4x8x3x2xbf16>)
//       CHECK:   %[[Y:.+]] = mir.conv_transpose2d %[[X]], %[[W]] : tensor<2x4x5x6xbf16>, tensor<4x8x3x2xbf16>
//       CHECK:   return %[[Y]] : tensor<2x8x7x7xbf16>
func.func @conv_transpose2d_default(%x: tensor<2x4x5x6xbf16>, %w: tensor<4x8x3x2xbf16>) -> tensor<2x8x7x7xbf16> {
  %y = mir.conv_transpose2d %x, %w stride [1, 1] padding [0, 0] output_padding [0, 0] dilation [1, 1] groups 1 : tensor<2x4x5x6xbf16>, tensor<4x8x3x2xbf16>
  return %y : tensor<2x8x7x7xbf16>
}

/// (5 - 1) 2 - 2 + 2 (3 - 1) + 1 + 1 = 12 rows; padding may take away all columns.
// CHECK-LABEL: func @conv_transpose2d
//       CHECK:   %[[Y:.+]] = mir.conv_transpose2d %{{.+}}, %{{.+}} stride [2, 1] padding [1, 1] output_padding [1, 0] dilation [2, 1] groups 2 : tensor<?x4x5x1xf32>, tensor<4x3x3x2xf32>
//       CHECK:   return %[[Y]] : tensor<?x6x12x0xf32>
func.func @conv_transpose2d(%x: tensor<?x4x5x1xf32>, %w: tensor<4x3x3x2xf32>) -> tensor<?x6x12x0xf32> {
  %y = mir.conv_transpose2d %x, %w stride [2, 1] padding [1, 1] output_padding [1, 0] dilation [2, 1] groups 2 : tensor<?x4x5x1xf32>, tensor<4x3x3x2xf32>
  return %y : tensor<?x6x12x0xf32>
}

// CHECK-LABEL: func @conv_transpose2d_dynamic
//       CHECK:   mir.conv_transpose2d %{{.+}}, %{{.+}} groups 3 : tensor<?x?x?x6xf32>, tensor<?x?x3x2xf32>
//       CHECK:   return %{{.+}} : tensor<?x?x?x7xf32>
func.func @conv_transpose2d_dynamic(%x: tensor<?x?x?x6xf32>, %w: tensor<?x?x3x2xf32>) -> tensor<?x?x?x7xf32> {
  %y = mir.conv_transpose2d %x, %w groups 3 : tensor<?x?x?x6xf32>, tensor<?x?x3x2xf32>
  return %y : tensor<?x?x?x7xf32>
}

// CHECK-LABEL: func @conv2d_backward_input
//       CHECK:   mir.conv2d_backward_input %{{.+}}, %{{.+}} like %{{.+}} stride [2, 3] padding [1, 4] dilation [2, 5] groups 2 : tensor<?x8x2x3xf32>, tensor<8x2x3x2xf32>, tensor<?x4x5x6xf32>
//       CHECK:   mir.conv2d_backward_input %{{.+}}, %{{.+}} like %{{.+}} : tensor<?x8x?x?xf32>, tensor<8x4x3x2xf32>, tensor<?x4x5x6xf32>
func.func @conv2d_backward_input(%dy: tensor<?x8x2x3xf32>, %w: tensor<8x2x3x2xf32>, %x: tensor<?x4x5x6xf32>, %dz: tensor<?x8x?x?xf32>, %v: tensor<8x4x3x2xf32>) {
  %0 = mir.conv2d_backward_input %dy, %w like %x stride [2, 3] padding [1, 4] dilation [2, 5] groups 2 : tensor<?x8x2x3xf32>, tensor<8x2x3x2xf32>, tensor<?x4x5x6xf32>
  %1 = mir.conv2d_backward_input %dz, %v like %x : tensor<?x8x?x?xf32>, tensor<8x4x3x2xf32>, tensor<?x4x5x6xf32>
  return
}

// CHECK-LABEL: func @conv2d_backward_weight
//       CHECK:   mir.conv2d_backward_weight %{{.+}}, %{{.+}} kernel [3, 2] stride [2, 3] padding [1, 4] dilation [2, 5] groups 2 : tensor<?x4x5x6xf32>, tensor<?x8x2x3xf32>
//       CHECK:   %[[W:.+]] = mir.conv2d_backward_weight %{{.+}}, %{{.+}} kernel [5, 6] : tensor<?x?x?x6xf32>, tensor<?x8x?x1xf32>
//       CHECK:   return %[[W]] : tensor<8x?x5x6xf32>
func.func @conv2d_backward_weight(%x: tensor<?x4x5x6xf32>, %dy: tensor<?x8x2x3xf32>, %z: tensor<?x?x?x6xf32>, %dz: tensor<?x8x?x1xf32>) -> tensor<8x?x5x6xf32> {
  %0 = mir.conv2d_backward_weight %x, %dy kernel [3, 2] stride [2, 3] padding [1, 4] dilation [2, 5] groups 2 : tensor<?x4x5x6xf32>, tensor<?x8x2x3xf32>
  %1 = mir.conv2d_backward_weight %z, %dz kernel [5, 6] : tensor<?x?x?x6xf32>, tensor<?x8x?x1xf32>
  return %1 : tensor<8x?x5x6xf32>
}
