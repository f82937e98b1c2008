// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(lir-plan)' | FileCheck %s

/// The output has memory of its own in the plan, and may get the parameter's: the kernel reads an element, and writes it.
// CHECK-LABEL: func @step(
//  CHECK-SAME:   %[[W:[a-z0-9]+]]: memref<?x8xf32> {{{[^}]+}}}, %[[G:[a-z0-9]+]]: memref<?x8xf32> {{{[^}]+}}},
//  CHECK-SAME:   %[[N:[a-z0-9]+]]: memref<?x8xf32> {mir.dims = ["n", ""], mir.kind = "output", mir.name = "next", mir.tied = "w"})
//   CHECK-NOT:   mir.ties
//       CHECK:   call @sub_0(%[[W]], %[[G]], %[[N]])
func.func private @sub_0(%w: tensor<?x8xf32>, %g: tensor<?x8xf32>) -> tensor<?x8xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.sub %w, %g : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
func.func @step(%w: tensor<?x8xf32> {mir.name = "w", mir.kind = "param", mir.dims = ["n", ""]}, %g: tensor<?x8xf32> {mir.name = "g", mir.kind = "input", mir.dims = ["n", ""]})
    -> (tensor<?x8xf32> {mir.name = "next"}) attributes {mir.ties = {next = "w"}} {
  %0 = call @sub_0(%w, %g) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

/// Views of the argument and of the result are followed; a product may write to what it doesn't read.
// CHECK-LABEL: func @views(
//  CHECK-SAME:   mir.name = "a2", mir.tied = "a"}
//  CHECK-SAME:   mir.name = "b2", mir.tied = "b"}
func.func private @neg_0(%x: tensor<32xf32>) -> tensor<32xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.neg %x : tensor<32xf32>
  return %0 : tensor<32xf32>
}
func.func private @matmul_0(%x: tensor<4x8xf32>, %y: tensor<8x8xf32>) -> tensor<4x8xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
  %0 = mir.matmul %x, %y : tensor<4x8xf32>, tensor<8x8xf32>
  return %0 : tensor<4x8xf32>
}
func.func @views(%a: tensor<4x8xf32> {mir.name = "a", mir.kind = "input"}, %b: tensor<4x8xf32> {mir.name = "b", mir.kind = "input"}, %c: tensor<8x8xf32> {mir.name = "c", mir.kind = "input"})
    -> (tensor<4x8xf32> {mir.name = "a2"}, tensor<4x8xf32> {mir.name = "b2"}) attributes {mir.ties = {a2 = "a", b2 = "b"}} {
  %0 = call @matmul_0(%a, %c) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %1 = mir.reshape %a to [32] : tensor<4x8xf32>
  %2 = call @neg_0(%1) : (tensor<32xf32>) -> tensor<32xf32>
  %3 = mir.reshape %2 to [4, 8] : tensor<32xf32>
  return %3, %0 : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

/// A result that is its argument needs no call.
// CHECK-LABEL: func @unchanged(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<8xf32> {mir.kind = "input", mir.name = "x"},
//  CHECK-SAME:   mir.name = "same", mir.tied = "x"},
//       CHECK:   call @neg_0(%[[X]],
func.func private @neg_0(%x: tensor<8xf32>) -> tensor<8xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.neg %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func @unchanged(%x: tensor<8xf32> {mir.name = "x", mir.kind = "input"}) -> (tensor<8xf32> {mir.name = "same"}, tensor<8xf32> {mir.name = "y"}) attributes {mir.ties = {same = "x"}} {
  %0 = call @neg_0(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %x, %0 : tensor<8xf32>, tensor<8xf32>
}

// -----

// expected-error @below {{output 'y' can't take the memory of 'x', to which it is tied: output 'z' has it}}
module {
  func.func private @neg_0(%x: tensor<8xf32>) -> tensor<8xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
    %0 = mir.neg %x : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
  func.func @twice(%x: tensor<8xf32> {mir.name = "x", mir.kind = "input"}) -> (tensor<8xf32> {mir.name = "z"}, tensor<8xf32> {mir.name = "y"}) attributes {mir.ties = {y = "x", z = "x"}} {
    %0 = call @neg_0(%x) : (tensor<8xf32>) -> tensor<8xf32>
    %1 = call @neg_0(%x) : (tensor<8xf32>) -> tensor<8xf32>
    return %0, %1 : tensor<8xf32>, tensor<8xf32>
  }
}

// -----

// expected-error @below {{output 'y' is tied to 'w', but there is no argument 'w'}}
module {
  func.func private @neg_0(%x: tensor<8xf32>) -> tensor<8xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
    %0 = mir.neg %x : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
  func.func @unknown(%x: tensor<8xf32> {mir.name = "x", mir.kind = "input"}) -> (tensor<8xf32> {mir.name = "y"}) attributes {mir.ties = {y = "w"}} {
    %0 = call @neg_0(%x) : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
