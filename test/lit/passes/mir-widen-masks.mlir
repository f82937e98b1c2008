// RUN: rlx-opt %s --mir-widen-masks | FileCheck %s

// CHECK-LABEL: func @conditions(
//  CHECK-SAME:   %[[Q:.+]]: tensor<1x4x16xbf16>, %[[M:.+]]: tensor<1x?xi1>
//       CHECK:   %[[N:.+]] = mir.cast %[[M]] : tensor<1x?xi1> to tensor<1x?xbf16>
//       CHECK:   mir.attention %[[Q]], %{{.+}}, %{{.+}} mask(%[[N]] : tensor<1x?xbf16>)
func.func @conditions(%q: tensor<1x4x16xbf16>, %m: tensor<1x?xi1>, %k: tensor<1x?x16xbf16>) -> tensor<1x4x16xbf16> {
  %y = mir.attention %q, %k, %k mask(%m : tensor<1x?xi1>) heads 2 head_dim 8 masked custom
      : tensor<1x4x16xbf16>, tensor<1x?x16xbf16>
  return %y : tensor<1x4x16xbf16>
}

/// Numbers stay, and so does attention without a mask.
// CHECK-LABEL: func @numbers(
//   CHECK-NOT:   mir.cast
//       CHECK:   return
func.func @numbers(%q: tensor<1x4x16xf32>, %m: tensor<1x4xf32>) -> (tensor<1x4x16xf32>, tensor<1x4x16xf32>) {
  %y = mir.attention %q, %q, %q mask(%m : tensor<1x4xf32>) heads 2 head_dim 8 masked custom
      : tensor<1x4x16xf32>, tensor<1x4x16xf32>
  %z = mir.attention %q, %q, %q heads 2 head_dim 8 : tensor<1x4x16xf32>, tensor<1x4x16xf32>
  return %y, %z : tensor<1x4x16xf32>, tensor<1x4x16xf32>
}
