// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @dequant_matmul_scaled_int8
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x40xbf16>, %[[W:.+]]: tensor<40x17xi8>, %[[S:.+]]: tensor<3x17xf32>)
//       CHECK:   %[[R:.+]] = mir.dequant_matmul_scaled %[[X]], %[[W]] scale %[[S]] scheme int8 block 16 : tensor<2x?x40xbf16>, tensor<40x17xi8>, tensor<3x17xf32>
//       CHECK:   return %[[R]] : tensor<2x?x17xbf16>
func.func @dequant_matmul_scaled_int8(%x: tensor<2x?x40xbf16>, %w: tensor<40x17xi8>, %s: tensor<3x17xf32>) -> tensor<2x?x17xbf16> {
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int8 block 16 : tensor<2x?x40xbf16>, tensor<40x17xi8>, tensor<3x17xf32>
  return %r : tensor<2x?x17xbf16>
}

// CHECK-LABEL: func @dequant_matmul_scaled_int8a
//  CHECK-SAME:   (%[[X:.+]]: tensor<40xf32>, %[[W:.+]]: tensor<40x17xi8>, %[[S:.+]]: tensor<1x17xf32>, %[[Z:.+]]: tensor<1x17xf32>)
//       CHECK:   mir.dequant_matmul_scaled %[[X]], %[[W]] scale %[[S]] zero_point %[[Z]] scheme int8a block 64 : tensor<40xf32>, tensor<40x17xi8>, tensor<1x17xf32>, tensor<1x17xf32>
func.func @dequant_matmul_scaled_int8a(%x: tensor<40xf32>, %w: tensor<40x17xi8>, %s: tensor<1x17xf32>, %z: tensor<1x17xf32>) -> tensor<17xf32> {
  %r = mir.dequant_matmul_scaled %x, %w scale %s zero_point %z scheme int8a block 64 : tensor<40xf32>, tensor<40x17xi8>, tensor<1x17xf32>, tensor<1x17xf32>
  return %r : tensor<17xf32>
}

/// 5 x 3 nibbles take 8 bytes.
// CHECK-LABEL: func @dequant_matmul_scaled_int4
//       CHECK:   mir.dequant_matmul_scaled %{{.+}}, %{{.+}} scale %{{.+}} scheme int4 block 4 : tensor<1x5xf32>, tensor<8xi8>, tensor<2x3xf32>
func.func @dequant_matmul_scaled_int4(%x: tensor<1x5xf32>, %w: tensor<8xi8>, %s: tensor<2x3xf32>) -> tensor<1x3xf32> {
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int4 block 4 : tensor<1x5xf32>, tensor<8xi8>, tensor<2x3xf32>
  return %r : tensor<1x3xf32>
}

// CHECK-LABEL: func @dequant_matmul_scaled_fp8
//       CHECK:   mir.dequant_matmul_scaled %{{.+}}, %{{.+}} scale %{{.+}} scheme fp8e4m3 : tensor<1x5xf32>, tensor<5x3xi8>, tensor<3xf32>
//       CHECK:   mir.dequant_matmul_scaled %{{.+}}, %{{.+}} scale %{{.+}} scheme fp8e5m2 : tensor<1x5xf32>, tensor<5x3xi8>, tensor<3xf32>
func.func @dequant_matmul_scaled_fp8(%x: tensor<1x5xf32>, %w: tensor<5x3xi8>, %s: tensor<3xf32>) -> (tensor<1x3xf32>, tensor<1x3xf32>) {
  %a = mir.dequant_matmul_scaled %x, %w scale %s scheme fp8e4m3 : tensor<1x5xf32>, tensor<5x3xi8>, tensor<3xf32>
  %b = mir.dequant_matmul_scaled %x, %w scale %s scheme fp8e5m2 : tensor<1x5xf32>, tensor<5x3xi8>, tensor<3xf32>
  return %a, %b : tensor<1x3xf32>, tensor<1x3xf32>
}

// CHECK-LABEL: func @dequant_matmul_scaled_nvfp4
//  CHECK-SAME:   (%[[X:.+]]: tensor<1x17xf32>, %[[W:.+]]: tensor<26xi8>, %[[S:.+]]: tensor<2x3xi8>, %[[G:.+]]: tensor<1xf32>)
//       CHECK:   mir.dequant_matmul_scaled %[[X]], %[[W]] scale %[[S]] global_scale %[[G]] scheme nvfp4 : tensor<1x17xf32>, tensor<26xi8>, tensor<2x3xi8>, tensor<1xf32>
func.func @dequant_matmul_scaled_nvfp4(%x: tensor<1x17xf32>, %w: tensor<26xi8>, %s: tensor<2x3xi8>, %g: tensor<1xf32>) -> tensor<1x3xf32> {
  %r = mir.dequant_matmul_scaled %x, %w scale %s global_scale %g scheme nvfp4 : tensor<1x17xf32>, tensor<26xi8>, tensor<2x3xi8>, tensor<1xf32>
  return %r : tensor<1x3xf32>
}
