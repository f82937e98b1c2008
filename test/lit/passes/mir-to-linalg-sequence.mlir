// RUN: rlx-opt %s --pass-pipeline='builtin.module(func.func(mir-to-linalg))' | FileCheck %s

/// By group; windows are affine in the position and the tap; the innermost loop is parallel.
//   CHECK-DAG: #[[$X:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d0, d1, d4, d3 * 2 + d5, d7 + d6 * 3)>
//   CHECK-DAG: #[[$W:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d1, d2, d4, d5, d6)>
//   CHECK-DAG: #[[$Y:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d0, d1, d2, d3, d7)>
// CHECK-LABEL: func @conv
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x4x5x?xbf16>, %[[W:.+]]: tensor<8x2x3x2xbf16>)
//       CHECK:   %[[XG:.+]] = tensor.expand_shape %[[X]] {{\[\[}}0], [1, 2], [3], [4]] {{.+}} into tensor<?x2x2x5x?xbf16>
//       CHECK:   %[[WG:.+]] = tensor.expand_shape %[[W]] {{\[\[}}0, 1], [2], [3], [4]] {{.+}} into tensor<2x4x2x3x2xbf16>
//       CHECK:   linalg.generic {indexing_maps = [#[[$X]], #[[$W]], #[[$Y]]], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction", "parallel"]}
//  CHECK-SAME:     ins(%[[XG]], %[[WG]] : {{.+}}) outs(%{{.+}} : tensor<?x2x4x2x?xf32>)
//       CHECK:   ^bb0(%[[A:.+]]: bf16, %[[B:.+]]: bf16, %[[ACC:.+]]: f32):
//       CHECK:     arith.mulf
//       CHECK:     arith.addf %[[ACC]]
//       CHECK:   %[[R:.+]] = tensor.collapse_shape {{.+}} {{\[\[}}0], [1, 2], [3], [4]] : tensor<?x2x4x2x?xf32> into tensor<?x8x2x?xf32>
//       CHECK:   linalg.generic {{.+}} ins(%[[R]] : {{.+}})
//       CHECK:     arith.truncf
func.func @conv(%x: tensor<?x4x5x?xbf16>, %w: tensor<8x2x3x2xbf16>) -> tensor<?x8x2x?xbf16> {
  %y = mir.conv %x, %w stride [2, 1] dilation [1, 3] groups 2 : tensor<?x4x5x?xbf16>, tensor<8x2x3x2xbf16>
  return %y : tensor<?x8x2x?xbf16>
}

/// Zeros around the image are written once; reading needs no condition.
// CHECK-LABEL: func @conv_padding
//  CHECK-SAME:   (%[[X:.+]]: tensor<1x1x5x6xf32>, %[[W:.+]]: tensor<1x1x3x3xf32>)
//       CHECK:   %[[Z:.+]] = linalg.generic {{.+}} outs(%{{.+}} : tensor<1x1x7x10xf32>)
//       CHECK:   %[[S:.+]] = tensor.extract_slice %[[Z]][0, 0, 1, 2] [1, 1, 5, 6]
//       CHECK:   %[[C:.+]] = linalg.generic {{.+}} ins(%[[X]] : {{.+}}) outs(%[[S]] : {{.+}})
//       CHECK:   %[[P:.+]] = tensor.insert_slice %[[C]] into %[[Z]][0, 0, 1, 2] [1, 1, 5, 6]
//       CHECK:   tensor.expand_shape %[[P]]
func.func @conv_padding(%x: tensor<1x1x5x6xf32>, %w: tensor<1x1x3x3xf32>) -> tensor<1x1x5x8xf32> {
  %y = mir.conv %x, %w padding [1, 2] : tensor<1x1x5x6xf32>, tensor<1x1x3x3xf32>
  return %y : tensor<1x1x5x8xf32>
}

/// Batches are loops of both operands, the index replaces the axis.
// CHECK-LABEL: func @gather_in_batches
//  CHECK-SAME:   (%[[T:.+]]: tensor<?x?x8xf32>, %[[I:.+]]: tensor<?x1xi64>)
//       CHECK:   linalg.generic {{.+}} ins(%[[I]] : tensor<?x1xi64>) outs(%{{.+}} : tensor<?x1x8xf32>)
//       CHECK:     arith.maxsi
//       CHECK:     %[[ROW:.+]] = arith.index_cast
//       CHECK:     %[[B:.+]] = linalg.index 0
//       CHECK:     %[[E:.+]] = linalg.index 2
//       CHECK:     tensor.extract %[[T]][%[[B]], %[[ROW]], %[[E]]]
func.func @gather_in_batches(%t: tensor<?x?x8xf32>, %i: tensor<?x1xi64>) -> tensor<?x1x8xf32> {
  %y = mir.gather %t, %i axis 1 batch_dims 1 : tensor<?x?x8xf32>, tensor<?x1xi64>
  return %y : tensor<?x1x8xf32>
}

/// The memory goes through the loop and is changed in place; what a step needs besides is made before the loop.
// CHECK-LABEL: func @gated_delta_net
//  CHECK-SAME:   (%[[Q:[^:]+]]: tensor<2x?x3x8xbf16>, %[[K:[^:]+]]: tensor<2x?x3x8xbf16>, %[[V:[^:]+]]: tensor<2x?x3x8xbf16>, %[[G:[^:]+]]: tensor<2x?x3xbf16>, %[[BETA:[^:]+]]: tensor<2x?x3xbf16>, %[[S:[^:]+]]: tensor<2x3x8x8xf32>)
//       CHECK:   %[[START:.+]] = linalg.generic {{.+}} ins(%[[S]] : {{.+}})
//       CHECK:   %[[U:.+]] = tensor.empty() : tensor<2x3x8xf32>
//       CHECK:   %[[R:.+]]:2 = scf.for %[[AT:.+]] = {{.+}} iter_args(%[[M:.+]] = %[[START]], %[[OUT:.+]] = %{{.+}})
//   CHECK-NOT:     tensor.empty
//   CHECK-DAG:     %[[Q0:.+]] = tensor.extract_slice %[[Q]][0, %[[AT]], 0, 0] [2, 1, 3, 8]
//   CHECK-DAG:     %[[K0:.+]] = tensor.extract_slice %[[K]][0, %[[AT]], 0, 0] [2, 1, 3, 8]
//   CHECK-DAG:     %[[V0:.+]] = tensor.extract_slice %[[V]][0, %[[AT]], 0, 0] [2, 1, 3, 8]
//   CHECK-DAG:     %[[G0:.+]] = tensor.extract_slice %[[G]][0, %[[AT]], 0] [2, 1, 3]
//   CHECK-DAG:     %[[B0:.+]] = tensor.extract_slice %[[BETA]][0, %[[AT]], 0] [2, 1, 3]
//       CHECK:     %[[A:.+]] = linalg.generic {{.+}} ins(%[[G0]] : {{.+}})
//       CHECK:       math.exp
//       CHECK:     %[[RECALLED:.+]] = linalg.generic {{.+}} ins(%[[M]], %[[K0]] : {{.+}})
//       CHECK:     %[[D:.+]] = linalg.generic {{.+}} ins(%[[V0]], %[[A]], %[[B0]] : {{.+}}) outs(%[[RECALLED]] : {{.+}})
//       CHECK:     %[[NEXT:.+]] = linalg.generic {{.+}} ins(%[[K0]], %[[D]], %[[A]] : {{.+}}) outs(%[[M]] : {{.+}})
//       CHECK:     %[[O:.+]] = linalg.generic {{.+}} ins(%[[NEXT]], %[[Q0]] : {{.+}})
//       CHECK:     %[[W:.+]] = linalg.generic {{.+}} ins(%[[O]] : {{.+}})
//       CHECK:       arith.truncf
//       CHECK:     %[[Y:.+]] = tensor.insert_slice %[[W]] into %[[OUT]][0, %[[AT]], 0, 0] [2, 1, 3, 8]
//       CHECK:     scf.yield %[[NEXT]], %[[Y]]
//       CHECK:   return %[[R]]#1, %[[R]]#0
func.func @gated_delta_net(%q: tensor<2x?x3x8xbf16>, %k: tensor<2x?x3x8xbf16>, %v: tensor<2x?x3x8xbf16>, %g: tensor<2x?x3xbf16>, %b: tensor<2x?x3xbf16>, %s: tensor<2x3x8x8xf32>) -> (tensor<2x?x3x8xbf16>, tensor<2x3x8x8xf32>) {
  %y, %t = mir.gated_delta_net %q, %k, %v decay %g beta %b state %s : tensor<2x?x3x8xbf16>, tensor<2x?x3xbf16>, tensor<2x3x8x8xf32>
  return %y, %t : tensor<2x?x3x8xbf16>, tensor<2x3x8x8xf32>
}
