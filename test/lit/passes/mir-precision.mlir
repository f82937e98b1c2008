// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-precision{policy=bf16})' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-precision{policy=f32})' | FileCheck %s --check-prefix=SAME

// SAME-NOT: bf16

/// Products in bf16, with one conversion of what two of them read; the norm between them stays in f32.
// CHECK-LABEL: func @products
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[W:.+]]: tensor<8x8xf32>, %[[G:.+]]: tensor<8xf32>)
//       CHECK:   %[[XH:.+]] = mir.cast %[[X]] : tensor<?x8xf32> to tensor<?x8xbf16>
//       CHECK:   %[[WH:.+]] = mir.cast %[[W]] : tensor<8x8xf32> to tensor<8x8xbf16>
//       CHECK:   %[[P:.+]] = mir.matmul %[[XH]], %[[WH]] : tensor<?x8xbf16>, tensor<8x8xbf16>
//       CHECK:   %[[PW:.+]] = mir.cast %[[P]] : tensor<?x8xbf16> to tensor<?x8xf32>
//       CHECK:   %[[N:.+]] = mir.rms_norm %[[PW]], %[[G]] {{.*}}: tensor<?x8xf32>
//       CHECK:   %[[NH:.+]] = mir.cast %[[N]] : tensor<?x8xf32> to tensor<?x8xbf16>
//       CHECK:   %[[R:.+]] = mir.matmul %[[NH]], %[[WH]] : tensor<?x8xbf16>, tensor<8x8xbf16>
//       CHECK:   %[[S:.+]] = mir.matmul %[[R]], %[[WH]] : tensor<?x8xbf16>, tensor<8x8xbf16>
//       CHECK:   %[[SW:.+]] = mir.cast %[[S]] : tensor<?x8xbf16> to tensor<?x8xf32>
//       CHECK:   return %[[SW]]
func.func @products(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %g: tensor<8xf32>) -> tensor<?x8xf32> {
  %p = mir.matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32>
  %n = mir.rms_norm %p, %g : tensor<?x8xf32>, tensor<8xf32>
  %r = mir.matmul %n, %w : tensor<?x8xf32>, tensor<8x8xf32>
  %s = mir.matmul %r, %w : tensor<?x8xf32>, tensor<8x8xf32>
  return %s : tensor<?x8xf32>
}

/// Packed weights, conditions and positions stay what they are, and so do products of other types.
// CHECK-LABEL: func @others
//  CHECK-SAME:   (%[[X:.+]]: tensor<1x4x32xf32>, %[[W:.+]]: tensor<16x34xi8, {{.+}}>, %[[M:.+]]: tensor<1x4xi1>, %[[I:.+]]: tensor<4x4xi8>, %[[D:.+]]: tensor<4x4xf64>, %[[POS:.+]]: tensor<1xi32>)
//       CHECK:   %[[XH:.+]] = mir.cast %[[X]]
//       CHECK:   mir.dequant_matmul %[[XH]], %[[W]] : tensor<1x4x32xbf16>
//       CHECK:   mir.attention %[[XH]], %[[XH]], %[[XH]] mask(%[[M]] : tensor<1x4xi1>) pos(%[[POS]] : tensor<1xi32>)
//       CHECK:   mir.matmul %[[I]], %[[I]] : tensor<4x4xi8>, tensor<4x4xi8>
//       CHECK:   mir.matmul %[[D]], %[[D]] : tensor<4x4xf64>, tensor<4x4xf64>
func.func @others(%x: tensor<1x4x32xf32>, %w: tensor<16x34xi8, #mir.packed<q8_0, k = 32>>, %m: tensor<1x4xi1>, %i: tensor<4x4xi8>, %d: tensor<4x4xf64>, %pos: tensor<1xi32>) -> (tensor<1x4x16xf32>, tensor<1x4x32xf32>, tensor<4x4xi32>, tensor<4x4xf64>) {
  %p = mir.dequant_matmul %x, %w : tensor<1x4x32xf32>, tensor<16x34xi8, #mir.packed<q8_0, k = 32>>
  %a = mir.attention %x, %x, %x mask(%m : tensor<1x4xi1>) pos(%pos : tensor<1xi32>) heads 2 head_dim 16 masked custom : tensor<1x4x32xf32>, tensor<1x4x32xf32>
  %j = mir.matmul %i, %i : tensor<4x4xi8>, tensor<4x4xi8>
  %e = mir.matmul %d, %d : tensor<4x4xf64>, tensor<4x4xf64>
  return %p, %a, %j, %e : tensor<1x4x16xf32>, tensor<1x4x32xf32>, tensor<4x4xi32>, tensor<4x4xf64>
}
