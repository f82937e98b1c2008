// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

/// What is default isn't printed.
// CHECK-LABEL: func @dot_general
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x?x8x3xbf16>, %[[W:.+]]: tensor<3x?x4x5xbf16>)
//       CHECK:   %[[A:.+]] = mir.dot_general %[[X]], %[[W]] contracting [1, 3] with [1, 0] batch [0] with [2] : tensor<4x?x8x3xbf16>, tensor<3x?x4x5xbf16>
//       CHECK:   %[[B:.+]] = mir.dot_general %[[X]], %[[W]] contracting [1] with [1] : tensor<4x?x8x3xbf16>, tensor<3x?x4x5xbf16>
//       CHECK:   %[[C:.+]] = mir.dot_general %[[X]], %[[W]] batch [1, 3] with [1, 0] : tensor<4x?x8x3xbf16>, tensor<3x?x4x5xbf16>
//       CHECK:   return %[[A]], %[[B]], %[[C]] : tensor<4x8x5xbf16>, tensor<4x8x3x3x4x5xbf16>, tensor<?x3x4x8x4x5xbf16>
func.func @dot_general(%x: tensor<4x?x8x3xbf16>, %w: tensor<3x?x4x5xbf16>)
    -> (tensor<4x8x5xbf16>, tensor<4x8x3x3x4x5xbf16>, tensor<?x3x4x8x4x5xbf16>) {
  %a = mir.dot_general %x, %w contracting [1, 3] with [1, 0] batch [0] with [2] : tensor<4x?x8x3xbf16>, tensor<3x?x4x5xbf16>
  %b = mir.dot_general %x, %w contracting [1] with [1] batch [] with [] : tensor<4x?x8x3xbf16>, tensor<3x?x4x5xbf16>
  %c = mir.dot_general %x, %w batch [1, 3] with [1, 0] : tensor<4x?x8x3xbf16>, tensor<3x?x4x5xbf16>
  return %a, %b, %c : tensor<4x8x5xbf16>, tensor<4x8x3x3x4x5xbf16>, tensor<?x3x4x8x4x5xbf16>
}

/// Bytes have products of i32; a size that one operand knows is the result's.
// CHECK-LABEL: func @dot_general_bytes
//       CHECK:   mir.dot_general %{{.+}}, %{{.+}} contracting [1] with [1] batch [0] with [0] : tensor<?x8x2xi8>, tensor<3x8xui8>
//       CHECK:   return %{{.+}} : tensor<3x2xi32>
func.func @dot_general_bytes(%x: tensor<?x8x2xi8>, %w: tensor<3x8xui8>) -> tensor<3x2xi32> {
  %y = mir.dot_general %x, %w contracting [1] with [1] batch [0] with [0] : tensor<?x8x2xi8>, tensor<3x8xui8>
  return %y : tensor<3x2xi32>
}

/// Numbers: nothing is contracted, and nothing stays.
// CHECK-LABEL: func @dot_general_scalars
//       CHECK:   mir.dot_general %{{.+}}, %{{.+}} : tensor<f64>, tensor<f64>
//       CHECK:   return %{{.+}} : tensor<f64>
func.func @dot_general_scalars(%x: tensor<f64>, %y: tensor<f64>) -> tensor<f64> {
  %z = mir.dot_general %x, %y : tensor<f64>, tensor<f64>
  return %z : tensor<f64>
}

// CHECK-LABEL: func @lora_matmul
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x8xf16>, %[[W:.+]]: tensor<8x?xf16>, %[[A:.+]]: tensor<8x0xf16>, %[[B:.+]]: tensor<0x16xf16>)
//       CHECK:   %[[Y:.+]] = mir.lora_matmul %[[X]], %[[W]], %[[A]], %[[B]] scale 5.000000e-01 : tensor<2x?x8xf16>, tensor<8x?xf16>, tensor<8x0xf16>, tensor<0x16xf16>
//       CHECK:   return %[[Y]] : tensor<2x?x16xf16>
func.func @lora_matmul(%x: tensor<2x?x8xf16>, %w: tensor<8x?xf16>, %a: tensor<8x0xf16>, %b: tensor<0x16xf16>) -> tensor<2x?x16xf16> {
  %y = mir.lora_matmul %x, %w, %a, %b scale 0.5 : tensor<2x?x8xf16>, tensor<8x?xf16>, tensor<8x0xf16>, tensor<0x16xf16>
  return %y : tensor<2x?x16xf16>
}

// CHECK-LABEL: func @dense_solve
//  CHECK-SAME:   (%[[A:.+]]: tensor<?x8xf64>, %[[B:.+]]: tensor<?x?xf64>, %[[C:.+]]: tensor<8xf64>)
//       CHECK:   %[[X:.+]] = mir.dense_solve %[[A]], %[[B]] : tensor<?x8xf64>, tensor<?x?xf64>
//       CHECK:   %[[Y:.+]] = mir.dense_solve %[[A]], %[[C]] : tensor<?x8xf64>, tensor<8xf64>
//       CHECK:   return %[[X]], %[[Y]] : tensor<8x?xf64>, tensor<8xf64>
func.func @dense_solve(%a: tensor<?x8xf64>, %b: tensor<?x?xf64>, %c: tensor<8xf64>) -> (tensor<8x?xf64>, tensor<8xf64>) {
  %x = mir.dense_solve %a, %b : tensor<?x8xf64>, tensor<?x?xf64>
  %y = mir.dense_solve %a, %c : tensor<?x8xf64>, tensor<8xf64>
  return %x, %y : tensor<8x?xf64>, tensor<8xf64>
}

/// Two dimensions of `b` are [batch, n], also where they could be [n, k].
// CHECK-LABEL: func @batched_dense_solve
//  CHECK-SAME:   (%[[A:.+]]: tensor<?x8x8xf32>, %[[B:.+]]: tensor<8x8xf32>, %[[C:.+]]: tensor<?x8x0xf32>)
//       CHECK:   %[[X:.+]] = mir.batched_dense_solve %[[A]], %[[B]] : tensor<?x8x8xf32>, tensor<8x8xf32>
//       CHECK:   %[[Y:.+]] = mir.batched_dense_solve %[[A]], %[[C]] : tensor<?x8x8xf32>, tensor<?x8x0xf32>
//       CHECK:   return %[[X]], %[[Y]] : tensor<8x8xf32>, tensor<?x8x0xf32>
func.func @batched_dense_solve(%a: tensor<?x8x8xf32>, %b: tensor<8x8xf32>, %c: tensor<?x8x0xf32>) -> (tensor<8x8xf32>, tensor<?x8x0xf32>) {
  %x = mir.batched_dense_solve %a, %b : tensor<?x8x8xf32>, tensor<8x8xf32>
  %y = mir.batched_dense_solve %a, %c : tensor<?x8x8xf32>, tensor<?x8x0xf32>
  return %x, %y : tensor<8x8xf32>, tensor<?x8x0xf32>
}
