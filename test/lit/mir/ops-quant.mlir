// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @dequant_matmul
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x64xf16>, %[[W:.+]]: tensor<24x40xi8, #mir.packed<q4_1, k = 64>>)
//       CHECK:   %[[R:.+]] = mir.dequant_matmul %[[X]], %[[W]] : tensor<2x?x64xf16>, tensor<24x40xi8, #mir.packed<q4_1, k = 64>>
//       CHECK:   return %[[R]] : tensor<2x?x24xf16>
func.func @dequant_matmul(%x: tensor<2x?x64xf16>, %w: tensor<24x40xi8, #mir.packed<q4_1, k = 64>>) -> tensor<2x?x24xf16> {
  %r = mir.dequant_matmul %x, %w : tensor<2x?x64xf16>, tensor<24x40xi8, #mir.packed<q4_1, k = 64>>
  return %r : tensor<2x?x24xf16>
}

/// Of 24 outputs in two panels of 16.
// CHECK-LABEL: func @dequant_matmul_panels
//  CHECK-SAME:   (%[[X:.+]]: tensor<64xf32>, %[[W:.+]]: tensor<2x640xi8, #mir.packed<q4_1, k = 64, n = 24, layout = panels>>)
//       CHECK:   %[[R:.+]] = mir.dequant_matmul %[[X]], %[[W]] : tensor<64xf32>, tensor<2x640xi8, #mir.packed<q4_1, k = 64, n = 24, layout = panels>>
//       CHECK:   return %[[R]] : tensor<24xf32>
func.func @dequant_matmul_panels(%x: tensor<64xf32>, %w: tensor<2x640xi8, #mir.packed<q4_1, k = 64, n = 24, layout = panels>>) -> tensor<24xf32> {
  %r = mir.dequant_matmul %x, %w : tensor<64xf32>, tensor<2x640xi8, #mir.packed<q4_1, k = 64, n = 24, layout = panels>>
  return %r : tensor<24xf32>
}

// CHECK-LABEL: func @block_quantize
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x64xbf16>)
//       CHECK:   %[[Q:.+]], %[[SCALE:.+]], %[[SUM:.+]] = mir.block_quantize %[[X]] : tensor<?x64xbf16>
//       CHECK:   mir.block_quantize %[[X]] block 64 : tensor<?x64xbf16>
//       CHECK:   return %[[Q]], %[[SCALE]], %[[SUM]] : tensor<?x64xi8>, tensor<?x2xf32>, tensor<?x2xi32>
func.func @block_quantize(%x: tensor<?x64xbf16>) -> (tensor<?x64xi8>, tensor<?x2xf32>, tensor<?x2xi32>) {
  %q, %scale, %sum = mir.block_quantize %x block 32 : tensor<?x64xbf16>
  %q64, %scale64, %sum64 = mir.block_quantize %x block 64 : tensor<?x64xbf16>
  return %q, %scale, %sum : tensor<?x64xi8>, tensor<?x2xf32>, tensor<?x2xi32>
}

/// Integers of 15 and 22 bits are of i16 and i32; 8 bits aren't printed.
// CHECK-LABEL: func @block_quantize_bits
//       CHECK:   %[[Q:.+]], %{{.+}}, %{{.+}} = mir.block_quantize %{{.+}} : tensor<?x64xf32>
//       CHECK:   %[[H:.+]], %{{.+}}, %{{.+}} = mir.block_quantize %{{.+}} bits 15 : tensor<?x64xf32>
//       CHECK:   %[[T:.+]], %{{.+}}, %{{.+}} = mir.block_quantize %{{.+}} block 64 bits 22 : tensor<?x64xf32>
//       CHECK:   return %[[Q]], %[[H]], %[[T]] : tensor<?x64xi8>, tensor<?x64xi16>, tensor<?x64xi32>
func.func @block_quantize_bits(%x: tensor<?x64xf32>) -> (tensor<?x64xi8>, tensor<?x64xi16>, tensor<?x64xi32>) {
  %q, %d, %s = mir.block_quantize %x bits 8 : tensor<?x64xf32>
  %h, %e, %t = mir.block_quantize %x bits 15 : tensor<?x64xf32>
  %t3, %f, %u = mir.block_quantize %x block 64 bits 22 : tensor<?x64xf32>
  return %q, %h, %t3 : tensor<?x64xi8>, tensor<?x64xi16>, tensor<?x64xi32>
}

// CHECK-LABEL: func @block_dot
//  CHECK-SAME:   (%[[Q:.+]]: tensor<?x256xi8>, %[[SCALE:.+]]: tensor<?x8xf32>, %[[SUM:.+]]: tensor<?x8xi32>, %[[W:.+]]: tensor<24x144xi8, #mir.packed<q4_k, k = 256>>)
//       CHECK:   %[[R:.+]] = mir.block_dot %[[Q]], %[[SCALE]], %[[SUM]], %[[W]] : tensor<?x256xi8>, tensor<24x144xi8, #mir.packed<q4_k, k = 256>>
//       CHECK:   return %[[R]] : tensor<?x24xf32>
func.func @block_dot(%q: tensor<?x256xi8>, %scale: tensor<?x8xf32>, %sum: tensor<?x8xi32>, %w: tensor<24x144xi8, #mir.packed<q4_k, k = 256>>) -> tensor<?x24xf32> {
  %r = mir.block_dot %q, %scale, %sum, %w : tensor<?x256xi8>, tensor<24x144xi8, #mir.packed<q4_k, k = 256>>
  return %r : tensor<?x24xf32>
}

// CHECK-LABEL: func @block_dot_digits
//       CHECK:   mir.block_dot %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}} : tensor<?x64xi16>, tensor<24x36xi8, #mir.packed<q4_0, k = 64>>
func.func @block_dot_digits(%q: tensor<?x64xi16>, %scale: tensor<?x2xf32>, %sum: tensor<?x2xi32>, %w: tensor<24x36xi8, #mir.packed<q4_0, k = 64>>) -> tensor<?x24xf32> {
  %r = mir.block_dot %q, %scale, %sum, %w : tensor<?x64xi16>, tensor<24x36xi8, #mir.packed<q4_0, k = 64>>
  return %r : tensor<?x24xf32>
}

// CHECK-LABEL: func @block_dot_panels
//  CHECK-SAME:   (%[[Q:.+]]: tensor<64xi8>, %[[SCALE:.+]]: tensor<2xf32>, %[[SUM:.+]]: tensor<2xi32>, %[[W:.+]]: tensor<2x704xi8, #mir.packed<q5_0, k = 64, n = 17, layout = panels>>)
//       CHECK:   mir.block_dot %[[Q]], %[[SCALE]], %[[SUM]], %[[W]] : tensor<64xi8>, tensor<2x704xi8, #mir.packed<q5_0, k = 64, n = 17, layout = panels>>
func.func @block_dot_panels(%q: tensor<64xi8>, %scale: tensor<2xf32>, %sum: tensor<2xi32>, %w: tensor<2x704xi8, #mir.packed<q5_0, k = 64, n = 17, layout = panels>>) -> tensor<17xf32> {
  %r = mir.block_dot %q, %scale, %sum, %w : tensor<64xi8>, tensor<2x704xi8, #mir.packed<q5_0, k = 64, n = 17, layout = panels>>
  return %r : tensor<17xf32>
}

// CHECK-LABEL: func @repack
//  CHECK-SAME:   (%[[W:.+]]: tensor<24x44xi8, #mir.packed<q5_0, k = 64>>)
//       CHECK:   %[[P:.+]] = mir.repack %[[W]] : tensor<24x44xi8, #mir.packed<q5_0, k = 64>>
//       CHECK:   return %[[P]] : tensor<2x704xi8, #mir.packed<q5_0, k = 64, n = 24, layout = panels>>
func.func @repack(%w: tensor<24x44xi8, #mir.packed<q5_0, k = 64>>) -> tensor<2x704xi8, #mir.packed<q5_0, k = 64, n = 24, layout = panels>> {
  %p = mir.repack %w : tensor<24x44xi8, #mir.packed<q5_0, k = 64>>
  return %p : tensor<2x704xi8, #mir.packed<q5_0, k = 64, n = 24, layout = panels>>
}

/// Integers that scale sub-blocks take a byte in panels: 148 bytes for the 144 of a row's block.
// CHECK-LABEL: func @repack_nested
//       CHECK:   mir.repack %{{.+}} : tensor<16x144xi8, #mir.packed<q4_k, k = 256>>
//       CHECK:   return %{{.+}} : tensor<1x2368xi8, #mir.packed<q4_k, k = 256, n = 16, layout = panels>>
func.func @repack_nested(%w: tensor<16x144xi8, #mir.packed<q4_k, k = 256>>) -> tensor<1x2368xi8, #mir.packed<q4_k, k = 256, n = 16, layout = panels>> {
  %p = mir.repack %w : tensor<16x144xi8, #mir.packed<q4_k, k = 256>>
  return %p : tensor<1x2368xi8, #mir.packed<q4_k, k = 256, n = 16, layout = panels>>
}

// CHECK-LABEL: func @repack_dense
//  CHECK-SAME:   (%[[W:.+]]: tensor<24x5xbf16>)
//       CHECK:   %[[P:.+]] = mir.repack %[[W]] : tensor<24x5xbf16>
//       CHECK:   return %[[P]] : tensor<2x160xi8, #mir.packed<bf16, k = 5, n = 24, layout = panels>>
func.func @repack_dense(%w: tensor<24x5xbf16>) -> tensor<2x160xi8, #mir.packed<bf16, k = 5, n = 24, layout = panels>> {
  %p = mir.repack %w : tensor<24x5xbf16>
  return %p : tensor<2x160xi8, #mir.packed<bf16, k = 5, n = 24, layout = panels>>
}
