// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @grouped_matmul
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf16>, %[[W:.+]]: tensor<?x?x16xf16>, %[[E:.+]]: tensor<3xf32>)
//       CHECK:   %[[Y:.+]] = mir.grouped_matmul %[[X]], %[[W]], %[[E]] : tensor<?x8xf16>, tensor<?x?x16xf16>, tensor<3xf32>
//       CHECK:   return %[[Y]] : tensor<3x16xf16>
func.func @grouped_matmul(%x: tensor<?x8xf16>, %w: tensor<?x?x16xf16>, %e: tensor<3xf32>) -> tensor<3x16xf16> {
  %y = mir.grouped_matmul %x, %w, %e : tensor<?x8xf16>, tensor<?x?x16xf16>, tensor<3xf32>
  return %y : tensor<3x16xf16>
}

/// No row, no expert.
// CHECK-LABEL: func @grouped_matmul_of_none
//       CHECK:   mir.grouped_matmul %{{.+}}, %{{.+}}, %{{.+}} : tensor<0x8xf32>, tensor<0x8x16xf32>, tensor<0xi64>
//       CHECK:   return %{{.+}} : tensor<0x16xf32>
func.func @grouped_matmul_of_none(%x: tensor<0x8xf32>, %w: tensor<0x8x16xf32>, %e: tensor<0xi64>) -> tensor<0x16xf32> {
  %y = mir.grouped_matmul %x, %w, %e : tensor<0x8xf32>, tensor<0x8x16xf32>, tensor<0xi64>
  return %y : tensor<0x16xf32>
}

// CHECK-LABEL: func @dequant_grouped_matmul
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x32xbf16>, %[[W:.+]]: tensor<64x20xi8, #mir.packed<q4_1, k = 32>>, %[[E:.+]]: tensor<?xi32>)
//       CHECK:   %[[Y:.+]] = mir.dequant_grouped_matmul %[[X]], %[[W]], %[[E]] experts 4 : tensor<?x32xbf16>, tensor<64x20xi8, #mir.packed<q4_1, k = 32>>, tensor<?xi32>
//       CHECK:   %[[Z:.+]] = mir.dequant_moe_weights %[[W]] experts 32 : tensor<64x20xi8, #mir.packed<q4_1, k = 32>>
//       CHECK:   return %[[Y]], %[[Z]] : tensor<?x16xbf16>, tensor<32x32x2xf32>
func.func @dequant_grouped_matmul(%x: tensor<?x32xbf16>, %w: tensor<64x20xi8, #mir.packed<q4_1, k = 32>>, %e: tensor<?xi32>)
    -> (tensor<?x16xbf16>, tensor<32x32x2xf32>) {
  %y = mir.dequant_grouped_matmul %x, %w, %e experts 4 : tensor<?x32xbf16>, tensor<64x20xi8, #mir.packed<q4_1, k = 32>>, tensor<?xi32>
  %z = mir.dequant_moe_weights %w experts 32 : tensor<64x20xi8, #mir.packed<q4_1, k = 32>>
  return %y, %z : tensor<?x16xbf16>, tensor<32x32x2xf32>
}

// CHECK-LABEL: func @grouped_block_dot
//  CHECK-SAME:   (%[[Q:.+]]: tensor<?x64xi8>, %[[D:.+]]: tensor<?x2xf32>, %[[S:.+]]: tensor<?x2xi32>, %[[W:.+]]: tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, %[[E:.+]]: tensor<3xi64>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.grouped_block_dot %[[Q]], %[[D]], %[[S]], %[[W]], %[[E]] experts 2 : tensor<?x64xi8>, tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, tensor<3xi64>
//  CHECK-NEXT:   return %[[Y]] : tensor<3x16xf32>
func.func @grouped_block_dot(%q: tensor<?x64xi8>, %d: tensor<?x2xf32>, %s: tensor<?x2xi32>, %w: tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, %e: tensor<3xi64>)
    -> tensor<3x16xf32> {
  %y = mir.grouped_block_dot %q, %d, %s, %w, %e experts 2 : tensor<?x64xi8>, tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, tensor<3xi64>
  return %y : tensor<3x16xf32>
}

/// The rows of panels are those that they hold.
// CHECK-LABEL: func @dequant_grouped_panels
//       CHECK:   mir.dequant_grouped_matmul %{{.+}}, %{{.+}}, %{{.+}} experts 3
//       CHECK:   return %{{.+}} : tensor<2x6xf32>
func.func @dequant_grouped_panels(%x: tensor<2x32xf32>, %w: tensor<2x320xi8, #mir.packed<q4_1, k = 32, n = 18, layout = panels>>, %e: tensor<2xi32>)
    -> tensor<2x6xf32> {
  %y = mir.dequant_grouped_matmul %x, %w, %e experts 3
      : tensor<2x32xf32>, tensor<2x320xi8, #mir.packed<q4_1, k = 32, n = 18, layout = panels>>, tensor<2xi32>
  return %y : tensor<2x6xf32>
}
