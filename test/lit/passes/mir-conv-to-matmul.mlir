// RUN: rlx-opt %s --mir-conv-to-matmul | FileCheck %s --check-prefixes=CHECK,ALL
// RUN: rlx-opt %s --mir-conv-to-matmul=most=1000 | FileCheck %s --check-prefixes=CHECK,FEW
// RUN: rlx-opt %s --mir-conv-to-matmul="maxima=h:8,w:9" | FileCheck %s --check-prefix=SMALL
// RUN: rlx-opt %s --mir-conv-to-matmul="maxima=h:2000,w:9000" | FileCheck %s --check-prefix=LARGE

/// A kernel of one pixel needs no columns of its own.
// CHECK-LABEL: func @pixels(
//  CHECK-SAME:   %[[X:.+]]: tensor<?x8x4x4xf32>, %[[W:.+]]: tensor<16x8x1x1xf32>)
//         ALL:   %[[T:.+]] = mir.reshape %[[X]] to [-2, 1, 8, 1, 16]
//         ALL:   %[[C:.+]] = mir.reshape %[[T]] to [-2, 1, 8, 16]
//         ALL:   %[[K:.+]] = mir.reshape %[[W]] to [1, 16, 8]
//         ALL:   %[[Y:.+]] = mir.matmul %[[K]], %[[C]] : tensor<1x16x8xf32>, tensor<?x1x8x16xf32>
//         ALL:   %[[R:.+]] = mir.reshape %[[Y]] to [-2, 16, 4, 4]
//         ALL:   return %[[R]]
func.func @pixels(%x: tensor<?x8x4x4xf32>, %w: tensor<16x8x1x1xf32>) -> tensor<?x16x4x4xf32> {
  %y = mir.conv %x, %w : tensor<?x8x4x4xf32>, tensor<16x8x1x1xf32>
  return %y : tensor<?x16x4x4xf32>
}

/// Zeros around the image, and a slice for each tap.
// CHECK-LABEL: func @taps(
//         FEW:   mir.conv
// ALL-COUNT-2:   mir.concat
// ALL-COUNT-4:   mir.slice
//         ALL:   mir.concat %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}} axis 3
//         ALL:   mir.matmul
func.func @taps(%x: tensor<1x8x9x16xf16>, %w: tensor<16x4x2x2xf16>) -> tensor<1x16x10x10xf16> {
  %y = mir.conv %x, %w stride [1, 2] padding [1, 2] groups 2 : tensor<1x8x9x16xf16>, tensor<16x4x2x2xf16>
  return %y : tensor<1x16x10x10xf16>
}

/// Columns of overlapping places are more than what they read: unknown sizes of these stay as they are.
// CHECK-LABEL: func @stays(
//       CHECK:   mir.conv
//       CHECK:   mir.conv
//       CHECK:   mir.conv
func.func @stays(%x: tensor<1x8x?x16xf32>, %w: tensor<16x8x3x3xf32>, %d: tensor<8x1x3x3xf32>, %f: tensor<2x8x3x3xf32>)
    -> (tensor<1x16x?x14xf32>, tensor<1x8x?x14xf32>, tensor<1x2x?x14xf32>) {
  %a = mir.conv %x, %w : tensor<1x8x?x16xf32>, tensor<16x8x3x3xf32>
  %b = mir.conv %x, %d groups 8 : tensor<1x8x?x16xf32>, tensor<8x1x3x3xf32>
  %c = mir.conv %x, %f : tensor<1x8x?x16xf32>, tensor<2x8x3x3xf32>
  return %a, %b, %c : tensor<1x16x?x14xf32>, tensor<1x8x?x14xf32>, tensor<1x2x?x14xf32>
}

/// Patches that don't overlap have columns as large as the image, whatever its size, which one transposition makes.
// CHECK-LABEL: func @patches(
//         ALL:   mir.transpose %{{.+}} permutation [0, 1, 3, 5, 2, 4]
//     ALL-NOT:   mir.concat
//         ALL:   mir.matmul
//         FEW:   mir.matmul
func.func @patches(%x: tensor<?x3x?x?xf32>, %w: tensor<16x3x4x4xf32>) -> tensor<?x16x?x?xf32> {
  %y = mir.conv %x, %w stride [4, 4] : tensor<?x3x?x?xf32>, tensor<16x3x4x4xf32>
  return %y : tensor<?x16x?x?xf32>
}

/// Named sizes are taken at their maxima, 512 where none is declared.
// CHECK-LABEL: func @named(
//         ALL:   mir.matmul
//         FEW:   mir.conv
// SMALL-LABEL: func @named(
//       SMALL:   mir.matmul
// LARGE-LABEL: func @named(
//       LARGE:   mir.conv
func.func @named(%x: tensor<1x8x?x?xf16> {mir.name = "x", mir.dims = ["", "", "h", "w"]}, %w: tensor<16x8x3x2xf16>)
    -> tensor<1x16x?x?xf16> {
  %y = mir.conv %x, %w : tensor<1x8x?x?xf16>, tensor<16x8x3x2xf16>
  return %y : tensor<1x16x?x?xf16>
}

/// Of f32, convolutions whose columns would be larger than the image have a template that makes none.
// CHECK-LABEL: func @overlapping(
//       CHECK:   mir.conv
func.func @overlapping(%x: tensor<1x8x9x16xf32>, %w: tensor<16x8x3x3xf32>) -> tensor<1x16x7x14xf32> {
  %y = mir.conv %x, %w : tensor<1x8x9x16xf32>, tensor<16x8x3x3xf32>
  return %y : tensor<1x16x7x14xf32>
}

/// Of 8 bits: channels last, the zero point around the image; with several groups, it stays.
// CHECK-LABEL: func @bytes(
//  CHECK-SAME:   %[[X:.+]]: tensor<1x8x9x16xi8>, %[[W:.+]]: tensor<16x8x2x2xi8>, %[[B:.+]]: tensor<16xi32>,
//         ALL:   %[[L:.+]] = mir.transpose %[[X]] permutation [0, 2, 3, 1]
//         ALL:   mir.constant dense<5> : tensor<i8>
// ALL-COUNT-2:   mir.concat
// ALL-COUNT-4:   mir.slice
//         ALL:   %[[C:.+]] = mir.concat %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}} axis 3
//         ALL:   %[[R:.+]] = mir.reshape %[[C]] to [50, 32]
//         ALL:   mir.transpose %[[W]] permutation [2, 3, 1, 0]
//         ALL:   %[[Y:.+]] = mir.q_matmul %[[R]], %{{.+}} bias %[[B]] x_zp 5 w_zp -2 mult
//         ALL:   mir.transpose %{{.+}} permutation [0, 3, 1, 2]
//         FEW:   mir.q_conv2d
//       CHECK:   mir.q_conv2d
func.func @bytes(%x: tensor<1x8x9x16xi8>, %w: tensor<16x8x2x2xi8>, %b: tensor<16xi32>, %g: tensor<16x4x2x2xi8>)
    -> (tensor<1x16x5x10xi8>, tensor<1x16x8x15xi8>) {
  %y = mir.q_conv2d %x, %w bias %b stride [2, 2] padding [1, 2] x_zp 5 w_zp -2 mult 0.01
      : tensor<1x8x9x16xi8>, tensor<16x8x2x2xi8>, tensor<16xi32>
  %z = mir.q_conv2d %x, %g groups 2 mult 0.01 : tensor<1x8x9x16xi8>, tensor<16x4x2x2xi8>
  return %y, %z : tensor<1x16x5x10xi8>, tensor<1x16x8x15xi8>
}

/// Of f32, kernels that are parameters become panels where 16 outputs fill them: a template reads those, whatever places
/// they have. A few places are products.
// CHECK-LABEL: func @panels(
//       CHECK:   mir.conv %{{.+}}, %{{.+}} stride [2, 2] : tensor<1x8x9x16xf32>
//         ALL:   mir.matmul
//         ALL:   mir.matmul
//       CHECK:   return
func.func @panels(%x: tensor<1x8x9x16xf32>, %w: tensor<16x8x1x1xf32> {mir.kind = "param"}, %v: tensor<24x8x1x1xf32> {mir.kind = "param"},
                  %s: tensor<1x8x2x3xf32>) -> (tensor<1x16x5x8xf32>, tensor<1x24x9x16xf32>, tensor<1x16x2x3xf32>) {
  %y = mir.conv %x, %w stride [2, 2] : tensor<1x8x9x16xf32>, tensor<16x8x1x1xf32>
  %z = mir.conv %x, %v : tensor<1x8x9x16xf32>, tensor<24x8x1x1xf32>
  %u = mir.conv %s, %w : tensor<1x8x2x3xf32>, tensor<16x8x1x1xf32>
  return %y, %z, %u : tensor<1x16x5x8xf32>, tensor<1x24x9x16xf32>, tensor<1x16x2x3xf32>
}
