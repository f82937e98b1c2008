// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-keep-wide,mir-fuse-matmul-bias-act)' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-fuse-matmul-bias-act)' | FileCheck %s --check-prefix=ROUNDED
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-fuse-matmul-bias-act)' --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s --check-prefix=LOC

/// The fused operation has the place of the one that it replaces.
// CHECK-LABEL: func @bias
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[W:.+]]: tensor<8x16xf32>, %[[B:.+]]: tensor<16xf32>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.fused_matmul_bias_act %[[X]], %[[W]], %[[B]] : tensor<?x8xf32>, tensor<8x16xf32>, tensor<16xf32>
//  CHECK-NEXT:   return %[[Y]]
//   LOC-LABEL: func @bias
//         LOC:   mir.fused_matmul_bias_act {{.+}} loc("proj"("model.py":4:1))
func.func @bias(%x: tensor<?x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<?x16xf32> {
  %p = mir.matmul %x, %w : tensor<?x8xf32>, tensor<8x16xf32> loc("proj"("model.py":3:1))
  %y = mir.add %p, %b : tensor<?x16xf32>, tensor<16xf32> loc("proj"("model.py":4:1))
  return %y : tensor<?x16xf32>
}

/// Either operand of the sum may be the product, and the bias may be computed after it.
/// By default values of bf16 are rounded where the graph has them: what would round less often isn't done.
// ROUNDED-LABEL: func @bias_first_and_late(
//       ROUNDED:   mir.matmul
//       ROUNDED:   mir.add
//       ROUNDED:   mir.gelu
// CHECK-LABEL: func @bias_first_and_late
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x4x8xbf16>, %[[W:.+]]: tensor<16x8xbf16>, %[[B:.+]]: tensor<16xbf16>)
//  CHECK-NEXT:   %[[LATE:.+]] = mir.neg %[[B]]
//  CHECK-NEXT:   %[[Y:.+]] = mir.fused_matmul_bias_act %[[X]], %[[W]], %[[LATE]] transpose_rhs activation gelu
//  CHECK-NEXT:   return %[[Y]]
func.func @bias_first_and_late(%x: tensor<2x4x8xbf16>, %w: tensor<16x8xbf16>, %b: tensor<16xbf16>) -> tensor<2x4x16xbf16> {
  %p = mir.matmul %x, %w transpose_rhs : tensor<2x4x8xbf16>, tensor<16x8xbf16>
  %late = mir.neg %b : tensor<16xbf16>
  %s = mir.add %late, %p : tensor<16xbf16>, tensor<2x4x16xbf16>
  %y = mir.gelu %s : tensor<2x4x16xbf16>
  return %y : tensor<2x4x16xbf16>
}

// CHECK-LABEL: func @activations
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xf32>, %[[W:.+]]: tensor<8x8xf32>, %[[B:.+]]: tensor<8xf32>)
//  CHECK-NEXT:   %[[A:.+]] = mir.fused_matmul_bias_act %[[X]], %[[W]], %[[B]] activation silu
//  CHECK-NEXT:   %[[C:.+]] = mir.fused_matmul_bias_act %[[A]], %[[W]], %[[B]] activation gelu_approx
//  CHECK-NEXT:   %[[D:.+]] = mir.fused_matmul_bias_act %[[C]], %[[W]], %[[B]] activation relu
//  CHECK-NEXT:   %[[E:.+]] = mir.fused_matmul_bias_act %[[D]], %[[W]], %[[B]] activation tanh
//  CHECK-NEXT:   return %[[E]]
func.func @activations(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = mir.fused_matmul_bias_act %x, %w, %b : tensor<4x8xf32>, tensor<8x8xf32>, tensor<8xf32>
  %1 = mir.silu %0 : tensor<4x8xf32>
  %2 = mir.fused_matmul_bias_act %1, %w, %b : tensor<4x8xf32>, tensor<8x8xf32>, tensor<8xf32>
  %3 = mir.gelu_approx %2 : tensor<4x8xf32>
  %4 = mir.fused_matmul_bias_act %3, %w, %b : tensor<4x8xf32>, tensor<8x8xf32>, tensor<8xf32>
  %5 = mir.relu %4 : tensor<4x8xf32>
  %6 = mir.fused_matmul_bias_act %5, %w, %b : tensor<4x8xf32>, tensor<8x8xf32>, tensor<8xf32>
  %7 = mir.tanh %6 : tensor<4x8xf32>
  return %7 : tensor<4x8xf32>
}

/// There is one activation only; exp is none that a block may have.
// CHECK-LABEL: func @no_fuse_second_or_other_activation
//       CHECK:   %[[F:.+]] = mir.fused_matmul_bias_act %{{.+}}, %{{.+}}, %{{.+}} activation relu
//       CHECK:   %[[S:.+]] = mir.silu %[[F]]
//       CHECK:   %[[G:.+]] = mir.fused_matmul_bias_act %[[S]], %{{.+}}, %{{.+}} : tensor<4x8xf32>
//       CHECK:   %[[E:.+]] = mir.exp %[[G]]
//       CHECK:   return %[[E]]
func.func @no_fuse_second_or_other_activation(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %1 = mir.add %0, %b : tensor<4x8xf32>, tensor<8xf32>
  %2 = mir.relu %1 : tensor<4x8xf32>
  %3 = mir.silu %2 : tensor<4x8xf32>
  %4 = mir.matmul %3, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %5 = mir.add %4, %b : tensor<4x8xf32>, tensor<8xf32>
  %6 = mir.exp %5 : tensor<4x8xf32>
  return %6 : tensor<4x8xf32>
}

/// The product itself is a result: it must not become the sum.
// CHECK-LABEL: func @no_fuse_product_returned
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xf32>, %[[W:.+]]: tensor<8x16xf32>, %[[B:.+]]: tensor<16xf32>)
//       CHECK:   %[[P:.+]] = mir.matmul %[[X]], %[[W]]
//       CHECK:   %[[S:.+]] = mir.add %[[P]], %[[B]]
//       CHECK:   return %[[P]], %[[S]]
func.func @no_fuse_product_returned(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> (tensor<4x16xf32>, tensor<4x16xf32>) {
  %p = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x16xf32>
  %s = mir.add %p, %b : tensor<4x16xf32>, tensor<16xf32>
  return %p, %s : tensor<4x16xf32>, tensor<4x16xf32>
}

/// The sum is a result as well as the activation of it: the activation isn't fused, the bias is.
// CHECK-LABEL: func @no_fuse_sum_returned
//       CHECK:   %[[S:.+]] = mir.fused_matmul_bias_act %{{.+}}, %{{.+}}, %{{.+}} : tensor<4x8xf32>
//       CHECK:   %[[Y:.+]] = mir.silu %[[S]]
//       CHECK:   return %[[S]], %[[Y]]
func.func @no_fuse_sum_returned(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> (tensor<4x16xf32>, tensor<4x16xf32>) {
  %p = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x16xf32>
  %s = mir.add %p, %b : tensor<4x16xf32>, tensor<16xf32>
  %y = mir.silu %s : tensor<4x16xf32>
  return %s, %y : tensor<4x16xf32>, tensor<4x16xf32>
}

// CHECK-LABEL: func @no_fuse_product_read_twice
//       CHECK:   %[[P:.+]] = mir.matmul
//       CHECK:   %[[S:.+]] = mir.add %[[P]], %{{.+}} : tensor<4x16xf32>, tensor<16xf32>
//       CHECK:   mir.mul %[[P]], %[[S]]
func.func @no_fuse_product_read_twice(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<4x16xf32> {
  %p = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x16xf32>
  %s = mir.add %p, %b : tensor<4x16xf32>, tensor<16xf32>
  %y = mir.mul %p, %s : tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}

/// What is added must be a vector as long as rows are: neither a matrix, nor one number for all columns.
// CHECK-LABEL: func @no_fuse_other_shapes
//       CHECK:   %[[P:.+]] = mir.matmul
//       CHECK:   %[[Q:.+]] = mir.add %[[P]], %{{.+}} : tensor<4x16xf32>
//       CHECK:   %[[R:.+]] = mir.matmul %[[Q]], %{{.+}} transpose_rhs
//       CHECK:   mir.add %[[R]], %{{.+}} : tensor<4x8xf32>, tensor<1xf32>
func.func @no_fuse_other_shapes(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %m: tensor<4x16xf32>, %one: tensor<1xf32>) -> tensor<4x8xf32> {
  %p = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x16xf32>
  %q = mir.add %p, %m : tensor<4x16xf32>
  %r = mir.matmul %q, %w transpose_rhs : tensor<4x16xf32>, tensor<8x16xf32>
  %s = mir.add %r, %one : tensor<4x8xf32>, tensor<1xf32>
  return %s : tensor<4x8xf32>
}

/// A batch of right operands isn't a weight.
// CHECK-LABEL: func @no_fuse_batched
//       CHECK:   %[[P:.+]] = mir.matmul
//       CHECK:   mir.add %[[P]]
func.func @no_fuse_batched(%x: tensor<2x4x8xf32>, %w: tensor<2x8x16xf32>, %b: tensor<16xf32>) -> tensor<2x4x16xf32> {
  %p = mir.matmul %x, %w : tensor<2x4x8xf32>, tensor<2x8x16xf32>
  %s = mir.add %p, %b : tensor<2x4x16xf32>, tensor<16xf32>
  return %s : tensor<2x4x16xf32>
}

/// The product is both operands of the sum.
// CHECK-LABEL: func @no_fuse_doubled
//       CHECK:   %[[P:.+]] = mir.matmul
//       CHECK:   mir.add %[[P]], %[[P]]
func.func @no_fuse_doubled(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %p = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x16xf32>
  %s = mir.add %p, %p : tensor<4x16xf32>
  return %s : tensor<4x16xf32>
}
