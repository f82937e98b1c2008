// RUN: rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir{policy=direct})' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir{policy=fusable})' --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s --check-prefixes=CHECK,LOC

// CHECK-LABEL: func @int8a
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x40xf32>{{.*}}, %[[W:.+]]: tensor<40x17xi8>{{.*}}, %[[S:.+]]: tensor<2x17xf32>{{.*}}, %[[Z:.+]]: tensor<2x17xf32>{{.*}})
//       CHECK:   %[[Y:.+]] = mir.dequant_matmul_scaled %[[X]], %[[W]] scale %[[S]] zero_point %[[Z]] scheme int8a block 32
//         LOC:   loc("dequant_matmul(int8a/32)"
//       CHECK:   return %[[Y]]
func.func @int8a(%x: tensor<?x40xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>, %z: tensor<2x17xf32>) -> tensor<?x17xf32> {
  %y = hir.dequant_matmul_scaled %x, %w scale %s zero_point %z scheme int8a block 32
      : tensor<?x40xf32>, tensor<40x17xi8>, tensor<2x17xf32>, tensor<2x17xf32>
  return %y : tensor<?x17xf32>
}

// CHECK-LABEL: func @nvfp4
//  CHECK-SAME:   (%[[X:.+]]: tensor<1x17xf32>{{.*}}, %[[W:.+]]: tensor<26xi8>{{.*}}, %[[S:.+]]: tensor<2x3xi8>{{.*}}, %[[G:.+]]: tensor<1xf32>{{.*}})
//       CHECK:   mir.dequant_matmul_scaled %[[X]], %[[W]] scale %[[S]] global_scale %[[G]] scheme nvfp4
//         LOC:   loc("dequant_matmul(nvfp4/16)"
func.func @nvfp4(%x: tensor<1x17xf32>, %w: tensor<26xi8>, %s: tensor<2x3xi8>, %g: tensor<1xf32>) -> tensor<1x3xf32> {
  %y = hir.dequant_matmul_scaled %x, %w scale %s global_scale %g scheme nvfp4
      : tensor<1x17xf32>, tensor<26xi8>, tensor<2x3xi8>, tensor<1xf32>
  return %y : tensor<1x3xf32>
}
