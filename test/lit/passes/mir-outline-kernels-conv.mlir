// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-outline-kernels)' | FileCheck %s
// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-outline-kernels{prologues=true gathers=true})' | FileCheck %s --check-prefix=GPU
// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-outline-kernels{apart=true})' | FileCheck %s --check-prefix=APART

/// The kernel of a convolution reads panels of weights, and goes on with functions of elements: with numbers for each
/// channel, of the whole result, and one.
// CHECK-LABEL: module
//       CHECK:   func.func private @[[K:.+]](%[[P:[a-z0-9]+]]: tensor<1x36x16xf32>, %[[X:[a-z0-9]+]]: tensor<?x4x8x8xf32>, %[[F:[a-z0-9]+]]: tensor<16x1x1xf32>, %[[R:[a-z0-9]+]]: tensor<?x16x8x8xf32>, %[[ONE:[a-z0-9]+]]: tensor<1xf32>) -> tensor<?x16x8x8xf32> attributes {mir.kernel = "conv2d"
//       CHECK:     %[[HALF:.+]] = mir.constant dense<5.000000e-01>
//       CHECK:     %[[T:.+]] = mir.transpose %[[P]] permutation [0, 2, 1]
//       CHECK:     %[[W:.+]] = mir.reshape %[[T]]
//       CHECK:     %[[Y:.+]] = mir.conv %[[X]], %[[W]] padding [1, 1]
//       CHECK:     %[[S:.+]] = mir.mul %[[F]], %[[Y]]
//       CHECK:     %[[A:.+]] = mir.add %[[S]], %[[R]]
//       CHECK:     %[[Q:.+]] = mir.relu %[[A]]
//       CHECK:     %[[H:.+]] = mir.mul %[[Q]], %[[HALF]]
//       CHECK:     %[[Z:.+]] = mir.sub %[[H]], %[[ONE]]
//       CHECK:     return %[[Z]]
//       CHECK:   func.func @block(
//  CHECK-NEXT:     call @[[K]](%arg1, %arg0, %arg2, %arg3, %arg4)
//  CHECK-NEXT:     return

/// On GPUs, and where each operation is a kernel, it does nothing else.
//   GPU-LABEL: func.func @block(
//         GPU:   call @conv_0
//         GPU:   call @mul
// APART-LABEL: func.func @block(
//       APART:   call @transpose_0
//       APART:   call @conv_0
//       APART:   call @mul
func.func @block(%x: tensor<?x4x8x8xf32> {mir.dims = ["n", "", "", ""], mir.name = "x"}, %p: tensor<1x36x16xf32> {mir.kind = "param", mir.name = "p"},
                 %f: tensor<16x1x1xf32> {mir.kind = "param", mir.name = "f"},
                 %r: tensor<?x16x8x8xf32> {mir.dims = ["n", "", "", ""], mir.name = "r"}, %one: tensor<1xf32> {mir.name = "one"})
    -> (tensor<?x16x8x8xf32> {mir.name = "z"}) {
  %half = mir.constant dense<5.0e-01> : tensor<1xf32>
  %t = mir.transpose %p permutation [0, 2, 1] : tensor<1x36x16xf32>
  %w = mir.reshape %t to [16, 4, 3, 3] : tensor<1x16x36xf32>
  %y = mir.conv %x, %w padding [1, 1] : tensor<?x4x8x8xf32>, tensor<16x4x3x3xf32>
  %s = mir.mul %f, %y : tensor<16x1x1xf32>, tensor<?x16x8x8xf32>
  %a = mir.add %s, %r : tensor<?x16x8x8xf32>
  %q = mir.relu %a : tensor<?x16x8x8xf32>
  %h = mir.mul %q, %half : tensor<?x16x8x8xf32>, tensor<1xf32>
  %z = mir.sub %h, %one : tensor<?x16x8x8xf32>, tensor<1xf32>
  return %z : tensor<?x16x8x8xf32>
}

// -----

/// What it can't read ends a kernel: a vector along rows of the image, images of another number, a sum that others read.
// CHECK-LABEL: module
//       CHECK:   func.func @ends(
//       CHECK:     call @conv_0(
//       CHECK:     call @add_
//       CHECK:     call @conv_
//       CHECK:     call @add_
//       CHECK:     call @conv_mul_0(
//       CHECK:     call @relu
func.func @ends(%x: tensor<?x4x8x8xf32> {mir.dims = ["n", "", "", ""], mir.name = "x"}, %w: tensor<16x4x3x3xf32> {mir.name = "w"},
                %v: tensor<16x4x3x3xf32> {mir.name = "v"}, %row: tensor<6xf32> {mir.name = "row"}, %r: tensor<1x16x6x6xf32> {mir.name = "r"},
                %f: tensor<1x16x1x1xf32> {mir.name = "f"})
    -> (tensor<?x16x6x6xf32> {mir.name = "a"}, tensor<?x16x6x6xf32> {mir.name = "b"}, tensor<?x16x6x6xf32> {mir.name = "c"}, tensor<?x16x6x6xf32> {mir.name = "d"}) {
  %y = mir.conv %x, %w : tensor<?x4x8x8xf32>, tensor<16x4x3x3xf32>
  %a = mir.add %y, %row : tensor<?x16x6x6xf32>, tensor<6xf32>
  %z = mir.conv %x, %v : tensor<?x4x8x8xf32>, tensor<16x4x3x3xf32>
  %b = mir.add %z, %r : tensor<?x16x6x6xf32>, tensor<1x16x6x6xf32>
  %u = mir.conv %x, %w : tensor<?x4x8x8xf32>, tensor<16x4x3x3xf32>
  %c = mir.mul %u, %f : tensor<?x16x6x6xf32>, tensor<1x16x1x1xf32>
  %d = mir.relu %c : tensor<?x16x6x6xf32>
  return %a, %b, %c, %d : tensor<?x16x6x6xf32>, tensor<?x16x6x6xf32>, tensor<?x16x6x6xf32>, tensor<?x16x6x6xf32>
}
