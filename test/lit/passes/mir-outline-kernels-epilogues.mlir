// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-outline-kernels)' | FileCheck %s
// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-outline-kernels{gathers=true})' | FileCheck %s --check-prefix=GPU

/// A sum that others read, too, and its activation are both results of the product; not on GPUs.
// CHECK-LABEL: func private @matmul_add_gelu_0
//       CHECK:   %[[P:.+]] = mir.matmul
//       CHECK:   %[[S:.+]] = mir.add %[[P]]
//       CHECK:   %[[H:.+]] = mir.gelu %[[S]]
//       CHECK:   return %[[S]], %[[H]]
// CHECK-LABEL: func @both(
//       CHECK:   call @matmul_add_gelu_0
//   CHECK-NOT:   call
//   GPU-LABEL: func @both(
//         GPU:   call @matmul_add_0
//         GPU:   call @gelu_0
func.func @both(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %b: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %p = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %s = mir.add %p, %b : tensor<4x8xf32>, tensor<8xf32>
  %h = mir.gelu %s : tensor<4x8xf32>
  return %s, %h : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

/// Where something reads the sum before what follows the activation, that stays behind it.
// CHECK-LABEL: func @order(
//       CHECK:   %[[R:.+]]:2 = call @matmul_gelu_0(%arg0, %arg1)
//       CHECK:   call @softmax_0(%[[R]]#0)
//       CHECK:   call @neg_0(%[[R]]#1)
func.func @order(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<8x4xf32>) {
  %s = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %h = mir.gelu %s : tensor<4x8xf32>
  %q = mir.softmax %s : tensor<4x8xf32>
  %t = mir.transpose %q permutation [1, 0] : tensor<4x8xf32>
  %n = mir.neg %h : tensor<4x8xf32>
  return %n, %t : tensor<4x8xf32>, tensor<8x4xf32>
}

// -----

/// Something else than a function reads the sum first: the kernel gives the sum alone.
// CHECK-LABEL: func @later(
//       CHECK:   %[[S:.+]] = call @matmul_0(%arg0, %arg1)
//       CHECK:   call @softmax_0(%[[S]])
//       CHECK:   call @gelu_0(%[[S]])
func.func @later(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> (tensor<8x4xf32>, tensor<4x8xf32>) {
  %s = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %q = mir.softmax %s : tensor<4x8xf32>
  %t = mir.transpose %q permutation [1, 0] : tensor<4x8xf32>
  %h = mir.gelu %s : tensor<4x8xf32>
  return %t, %h : tensor<8x4xf32>, tensor<4x8xf32>
}

// -----

/// What a product's result is multiplied by is computed with it, as nothing else reads it: it isn't written out.
// CHECK-LABEL: func private @matmul_gelu_slope_mul_0(
//       CHECK:   %[[P:.+]] = mir.matmul
//       CHECK:   %[[D:.+]] = mir.gelu_slope
//       CHECK:   mir.mul %[[P]], %[[D]]
// CHECK-LABEL: func @slope(
//       CHECK:   call @matmul_gelu_slope_mul_0(%arg0, %arg1, %arg2)
//   GPU-LABEL: func @slope(
//         GPU:   call @gelu_slope_0
//         GPU:   call @matmul_mul_0
func.func @slope(%dy: tensor<4x8xf32>, %w: tensor<8x8xf32>, %x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %p = mir.matmul %dy, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %d = mir.gelu_slope %x : tensor<4x8xf32>
  %r = mir.mul %p, %d : tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// -----

/// What others read is computed once, and so is what a kernel of rows makes: it joins that kernel.
// CHECK-LABEL: func @shared(
//       CHECK:   call @neg_0
//       CHECK:   call @matmul_mul_0
// CHECK-LABEL: func @normed(
//       CHECK:   call @softmax_mul_0
//       CHECK:   call @matmul_add_0
func.func @shared(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %a: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %p = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %n = mir.neg %a : tensor<4x8xf32>
  %r = mir.mul %p, %n : tensor<4x8xf32>
  return %r, %n : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

func.func @normed(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %a: tensor<4x8xf32>, %g: tensor<8xf32>) -> tensor<4x8xf32> {
  %p = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %s = mir.softmax %a : tensor<4x8xf32>
  %m = mir.mul %s, %g : tensor<4x8xf32>, tensor<8xf32>
  %r = mir.add %p, %m : tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}
