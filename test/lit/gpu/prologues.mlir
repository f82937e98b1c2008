// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-outline-kernels{prologues=true})' | FileCheck %s
// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-outline-kernels)' | FileCheck %s --check-prefix=APART

/// The product of few rows quantises by itself what a norm of its own gives; the norm is exact for the other product,
/// and both repeat it.
// CHECK-LABEL: func.func private @rms_norm_dequant_matmul_0(
//       CHECK:   mir.rms_norm
//  CHECK-NEXT:   mir.dequant_matmul
// CHECK-LABEL: func.func private @rms_norm_block_quantize_block_dot_0(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: tensor<1x2x64xf32>, %[[G:[a-z0-9]+]]: tensor<64xf32>, %[[W:[a-z0-9]+]]: tensor<16x48xi8,
//  CHECK-SAME:   mir.kernel = "gemm"
//  CHECK-NEXT:   %[[N:.+]] = mir.rms_norm %[[X]], %[[G]]
//  CHECK-NEXT:   %[[Q:.+]], %[[D:.+]], %[[S:.+]] = mir.block_quantize %[[N]]
//  CHECK-NEXT:   %[[Y:.+]] = mir.block_dot %[[Q]], %[[D]], %[[S]], %[[W]]
//  CHECK-NEXT:   return %[[Y]]
// CHECK-LABEL: func @decode
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: tensor<1x2x64xf32>, %[[G:[a-z0-9]+]]: tensor<64xf32> {mir.kind = "param"}, %[[W:[a-z0-9]+]]: tensor<16x48xi8, {{.*}}, %[[V:[a-z0-9]+]]: tensor<24x48xi8,
//  CHECK-DAG:   call @rms_norm_block_quantize_block_dot_0(%[[X]], %[[G]], %[[W]])
//  CHECK-DAG:   call @rms_norm_dequant_matmul_0(%[[X]], %[[G]], %[[V]])
//  CHECK-NEXT:   return

// APART-LABEL: func @decode
//       APART:   call @rms_norm_0
//       APART:   call @block_quantize_0
//       APART:   call @block_dot_0
func.func @decode(%x: tensor<1x2x64xf32>, %g: tensor<64xf32> {mir.kind = "param"}, %w: tensor<16x48xi8, #mir.packed<q4_0, k = 64, layout = planes>> {mir.kind = "param"}, %v: tensor<24x48xi8, #mir.packed<q4_0, k = 64, layout = planes>> {mir.kind = "param"}) -> (tensor<1x2x16xf32>, tensor<1x2x24xf32>) {
  %n = mir.rms_norm %x, %g : tensor<1x2x64xf32>, tensor<64xf32>
  %q, %d, %s = mir.block_quantize %n : tensor<1x2x64xf32>
  %y = mir.block_dot %q, %d, %s, %w : tensor<1x2x64xi8>, tensor<16x48xi8, #mir.packed<q4_0, k = 64, layout = planes>>
  %z = mir.dequant_matmul %n, %v : tensor<1x2x64xf32>, tensor<24x48xi8, #mir.packed<q4_0, k = 64, layout = planes>>
  return %y, %z : tensor<1x2x16xf32>, tensor<1x2x24xf32>
}

// -----

/// Many rows, and a number that isn't known: what comes before is work, and stays apart.
// CHECK-LABEL: func @no_prologue_of_many_rows
//       CHECK:   call @block_quantize
//       CHECK:   call @block_dot
func.func @no_prologue_of_many_rows(%x: tensor<9x64xf32>, %w: tensor<16x48xi8, #mir.packed<q4_0, k = 64, layout = planes>> {mir.kind = "param"}) -> tensor<9x16xf32> {
  %q, %d, %s = mir.block_quantize %x : tensor<9x64xf32>
  %y = mir.block_dot %q, %d, %s, %w : tensor<9x64xi8>, tensor<16x48xi8, #mir.packed<q4_0, k = 64, layout = planes>>
  return %y : tensor<9x16xf32>
}

// -----

// CHECK-LABEL: func @no_prologue_of_dynamic_rows
//       CHECK:   call @block_quantize
//       CHECK:   call @block_dot
func.func @no_prologue_of_dynamic_rows(%x: tensor<?x64xf32>, %w: tensor<16x48xi8, #mir.packed<q4_0, k = 64, layout = planes>> {mir.kind = "param"}) -> tensor<?x16xf32> {
  %q, %d, %s = mir.block_quantize %x : tensor<?x64xf32>
  %y = mir.block_dot %q, %d, %s, %w : tensor<?x64xi8>, tensor<16x48xi8, #mir.packed<q4_0, k = 64, layout = planes>>
  return %y : tensor<?x16xf32>
}

// -----

/// What something else reads has to be computed all the same.
// CHECK-LABEL: func @no_norm_that_is_returned
//       CHECK:   %[[N:.+]] = call @rms_norm
//       CHECK:   %[[Y:.+]] = call @matmul_0(%[[N]],
//       CHECK:   return %[[Y]], %[[N]]
func.func @no_norm_that_is_returned(%x: tensor<1x64xf32>, %g: tensor<64xf32> {mir.kind = "param"}, %w: tensor<16x64xf32> {mir.kind = "param"}) -> (tensor<1x16xf32>, tensor<1x64xf32>) {
  %n = mir.rms_norm %x, %g : tensor<1x64xf32>, tensor<64xf32>
  %y = mir.matmul %n, %w transpose_rhs : tensor<1x64xf32>, tensor<16x64xf32>
  return %y, %n : tensor<1x16xf32>, tensor<1x64xf32>
}

// -----

/// Weights in rows of files have no schedule that norms, nor do rows that aren't of whole blocks, nor norms with an offset.
// CHECK-LABEL: func @no_norm_before_other_products
//  CHECK-COUNT-3:   call @rms_norm_{{[0-9]}}(
func.func @no_norm_before_other_products(%x: tensor<1x64xf32>, %g: tensor<64xf32> {mir.kind = "param"}, %b: tensor<64xf32> {mir.kind = "param"}, %w: tensor<16x36xi8, #mir.packed<q4_0, k = 64>> {mir.kind = "param"}, %z: tensor<1x40xf32>, %h: tensor<40xf32> {mir.kind = "param"}, %v: tensor<16x40xf32> {mir.kind = "param"}, %u: tensor<16x64xf32> {mir.kind = "param"}) -> (tensor<1x16xf32>, tensor<1x16xf32>, tensor<1x16xf32>) {
  %n = mir.rms_norm %x, %g : tensor<1x64xf32>, tensor<64xf32>
  %0 = mir.dequant_matmul %n, %w : tensor<1x64xf32>, tensor<16x36xi8, #mir.packed<q4_0, k = 64>>
  %m = mir.rms_norm %z, %h : tensor<1x40xf32>, tensor<40xf32>
  %1 = mir.matmul %m, %v transpose_rhs : tensor<1x40xf32>, tensor<16x40xf32>
  %o = mir.rms_norm %x, %g beta(%b : tensor<64xf32>) : tensor<1x64xf32>, tensor<64xf32>
  %2 = mir.matmul %o, %u transpose_rhs : tensor<1x64xf32>, tensor<16x64xf32>
  return %0, %1, %2 : tensor<1x16xf32>, tensor<1x16xf32>, tensor<1x16xf32>
}

// -----

/// Parts of one product's result stand where they are read, beyond the next product.
// CHECK-LABEL: func @parts(
//       CHECK:   %[[QK:.+]] = call @matmul_0(
//       CHECK:   call @matmul_1(
//       CHECK:   call @narrow_rope_neg_0(%[[QK]],
// APART-LABEL: func @parts(
//       APART:   call @matmul_0(
//       APART:   call @narrow_0(
//       APART:   call @matmul_1(
//       APART:   call @rope_neg_0(
func.func @parts(%x: tensor<1x2x32xf32>, %w: tensor<32x32xf32>, %u: tensor<32x8xf32>, %t: tensor<8x8xf32>) -> (tensor<1x2x16xf32>, tensor<1x2x16xf32>, tensor<1x2x8xf32>) {
  %qk = mir.matmul %x, %w : tensor<1x2x32xf32>, tensor<32x32xf32>
  %q = mir.narrow %qk axis 2 start 0 length 16 : tensor<1x2x32xf32>
  %k = mir.narrow %qk axis 2 start 16 length 16 : tensor<1x2x32xf32>
  %v = mir.matmul %x, %u : tensor<1x2x32xf32>, tensor<32x8xf32>
  %r = mir.rope %q, %t, %t head_dim 16 : tensor<1x2x16xf32>, tensor<8x8xf32>
  %b = mir.neg %k : tensor<1x2x16xf32>
  return %r, %b, %v : tensor<1x2x16xf32>, tensor<1x2x16xf32>, tensor<1x2x8xf32>
}
